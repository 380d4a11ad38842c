"""Runs with the fake engine through the real supervisor and worker processes: seconds, no torch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from spark_rl.recipe import resolve
from spark_rl.rundir import RunDir, create_run, read_json, read_jsonl, write_json
from spark_rl.task import load_task

ALL_STAGES = ("probe", "inspect", "oracle", "train")


def make_run(root: Path, *sets: str, task: str = "sort-digits", profile: str = "cpu-tiny") -> RunDir:
    """A run directory as `spark-rl run` makes it, with the fake engine."""
    loaded = load_task(task)
    recipe = resolve(profile, loaded.overrides, ["engine.name=fake", "grpo.save_steps=10", *sets])
    run = create_run(root, "test")
    write_json(run.task, {"name": loaded.name, "path": str(loaded.path.resolve()), "digest": loaded.file_digest()})
    write_json(run.recipe, recipe.to_json())
    return run


def start(run: RunDir, stages: tuple[str, ...] = ALL_STAGES) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "spark_rl.supervisor", str(run.path), "--stages", ",".join(stages)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def wait_until(holds: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Poll until the condition holds; AssertionError when it does not in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = holds()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError("the condition did not come true in time")


def steps(run: RunDir) -> list[int]:
    return [row["step"] for row in read_jsonl(run.metrics).rows]


def worker_pid(run: RunDir) -> int:
    processes = wait_until(lambda: read_json(run.processes))
    return int(processes["worker"]["pid"])


@pytest.fixture
def supervised() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """`start`, with everything that is still alive killed after the test."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(run: RunDir, stages: tuple[str, ...] = ALL_STAGES) -> subprocess.Popen[bytes]:
        process = start(run, stages)
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            for child in psutil.Process(process.pid).children(recursive=True):
                os.kill(child.pid, signal.SIGKILL)
            process.kill()
        process.wait()
