"""The lock files agree with pyproject.toml and with each other."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = Path(__file__).resolve().parents[2]
LOCKS = ("light", "train-cpu", "train-cuda", "vllm-cpu", "dev")
HOSTS = [(machine, python) for machine in ("x86_64", "aarch64") for python in ("3.11", "3.12")]
EXTRAS_IN = {
    "": ("light", "train-cpu", "train-cuda"),
    "rewards": ("train-cpu", "train-cuda"),
    "train": ("train-cpu", "train-cuda"),
    "vllm": ("train-cuda",),
    "dev": ("dev",),
}


def pins(lock: str, machine: str, python: str) -> dict[str, str]:
    """Name -> version on a Linux host."""
    environment = dict(default_environment()) | {
        "platform_machine": machine,
        "python_version": python,
        "python_full_version": f"{python}.7",
        "sys_platform": "linux",
    }
    versions: dict[str, str] = {}
    for line in (PROJECT / "locks" / f"{lock}.txt").read_text().splitlines():
        text = line.partition("#")[0].strip()
        if not text:
            continue
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate(environment):
            assert requirement.name not in versions, f"{lock} pins {requirement.name} twice"
            versions[requirement.name] = next(iter(requirement.specifier)).version
    return versions


def stated(extra: str) -> list[Requirement]:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    lines = project["optional-dependencies"][extra] if extra else project["dependencies"]
    return [Requirement(line) for line in lines if not line.startswith("spark_rl[")]


@pytest.mark.parametrize(("machine", "python"), HOSTS)
@pytest.mark.parametrize("extra", EXTRAS_IN)
def test_every_dependency_is_locked_within_its_range(extra: str, machine: str, python: str) -> None:
    for lock in EXTRAS_IN[extra]:
        locked = pins(lock, machine, python)
        if lock == "dev":
            locked |= pins("light", machine, python)
        for requirement in stated(extra):
            name = canonicalize_name(requirement.name)
            assert name in locked, f"{lock}: {name} is not locked; run scripts/lock"
            assert requirement.specifier.contains(locked[name]), f"{lock}: {name} {locked[name]}; run scripts/lock"


@pytest.mark.parametrize(("machine", "python"), HOSTS)
def test_no_two_lock_files_disagree(machine: str, python: str) -> None:
    agreed: dict[str, str] = {}
    for lock in LOCKS:
        for name, version in pins(lock, machine, python).items():
            assert agreed.setdefault(name, version) == version, f"{name}: {agreed[name]} and, in {lock}, {version}"


def test_the_cpu_files_bring_no_gpu_library() -> None:
    for lock in ("light", "train-cpu", "vllm-cpu"):
        names = set(pins(lock, "x86_64", "3.11")) - {"nvidia-ml-py"}
        heavy = {name for name in names if name.startswith(("nvidia-", "cuda-")) or name in ("triton", "xformers")}
        assert heavy == set()


def test_lock_files_name_no_index_and_no_folder() -> None:
    for lock in LOCKS:
        text = (PROJECT / "locks" / f"{lock}.txt").read_text()
        assert "://" not in text
        assert "--" not in text.replace("--no-deps", "")
