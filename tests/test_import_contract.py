"""Dry checks and viewers never load the training stack: real processes, whose `sys.modules` is read as they end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.run.conftest import make_run, start

HEAVY = {"torch", "transformers", "trl", "unsloth", "unsloth_zoo", "vllm", "datasets", "peft", "accelerate"}

REPORT_MODULES = """
import atexit, json, runpy, sys
report = sys.argv.pop(1)
atexit.register(lambda: open(report, "w").write(json.dumps(sorted({name.partition(".")[0] for name in sys.modules}))))
runpy.run_module("spark_rl", run_name="__main__", alter_sys=True)
"""

DRY_COMMANDS = (
    "--help",
    "--version",
    "profiles ls",
    "profiles show cpu-tiny",
    "profiles validate cpu-tiny",
    "recipe show --profile cpu-tiny --task sort-digits",
    "models ls",
    "fit --profile cpu-tiny --json",
    "fit --profile cpu-tiny --machine dgx-spark --explain",
    "fit --what-fits --machine 24gb",
)
COMMANDS_ABOUT_A_RUN = (
    "ls",
    "watch --once",
    "watch --once --json",
    "inspect status",
    "inspect export",
    "diagnose",
    "report",
    "eval --json",
    "stop",
)


def modules_after(arguments: list[str], folder: Path) -> set[str]:
    """Top-level names in sys.modules when `spark-rl ARGUMENTS` ended with exit code 0."""
    report = folder / "modules.json"
    done = subprocess.run(
        [sys.executable, "-c", REPORT_MODULES, str(report), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, f"spark-rl {' '.join(arguments)}: exit {done.returncode}\n{done.stderr}"
    return set(json.loads(report.read_text()))


@pytest.fixture(scope="module")
def finished_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A runs folder with one finished run of the fake engine."""
    folder = tmp_path_factory.mktemp("runs")
    run = make_run(folder, "grpo.max_steps=10")
    assert start(run).wait(timeout=120) == 0
    return folder


@pytest.mark.parametrize("command", DRY_COMMANDS)
def test_a_dry_command_loads_nothing_heavy(command: str, tmp_path: Path) -> None:
    assert modules_after(command.split(), tmp_path) & HEAVY == set()


@pytest.mark.parametrize("command", COMMANDS_ABOUT_A_RUN)
def test_a_command_about_a_run_loads_nothing_heavy(command: str, finished_runs: Path, tmp_path: Path) -> None:
    assert modules_after([*command.split(), "--runs", str(finished_runs)], tmp_path) & HEAVY == set()


@pytest.mark.parametrize("module", ["spark_rl", "spark_rl.supervisor", "spark_rl.headless", "spark_rl.guard"])
def test_a_light_module_loads_nothing_heavy(module: str) -> None:
    program = f"import {module}, sys, json; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert {name.partition(".")[0] for name in json.loads(done.stdout)} & HEAVY == set()
