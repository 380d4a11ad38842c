"""A worker that really allocates, watched by the real supervisor and guard: ended or relieved before the limit.

Three limits are tried: a budget for the worker's processes (works anywhere), an address-space limit, and a memory cgroup
(v1 or v2, skipped where none can be made). The kernel's own out-of-memory kill would end a cgroup's worker with SIGKILL and
no word; a breach of an address-space limit would end it with MemoryError. Neither may be seen.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_rl import control
from spark_rl.rundir import RunDir, read_jsonl
from spark_rl.runstate import read_run
from spark_rl.units import GIB, MIB
from tests.run.conftest import make_run, start, steps, wait_until

LIMIT_BYTES = 1 * GIB
NUM_TRIALS = 20
LEAKS_MIB = (8, 12, 16, 24, 32, 48, 64, 96)
"""A step: 20 ms apart and more, so up to 4.8 GB/s."""


def can_make_groups() -> bool:
    """Whether the cgroup tests below have a chance here."""
    places = (
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
        (Path("/sys/fs/cgroup"), "cgroup.subtree_control"),
    )
    return any(os.access(parent, os.W_OK) and (parent / name).exists() for parent, name in places)


def supervise(
    run: RunDir, *, leak_mib: float | str, sheds: bool = False, before: Callable[[], None] | None = None
) -> int:
    """Runs probe, gate and training to the end; the worker leaks at every training step. Returns the exit code."""
    env = {**os.environ, "SPARK_RL_FAKE_LEAK_MIB": str(leak_mib), "SPARK_RL_FAKE_SHEDS": "1" if sheds else ""}
    with (run.path / "supervisor.log").open("wb") as log:
        return subprocess.run(
            [sys.executable, "-m", "spark_rl.supervisor", str(run.path), "--stages", "probe,inspect,oracle,train"],
            env=env, preexec_fn=before, stdout=log, stderr=log, timeout=300, check=False,
        ).returncode  # fmt: skip


def events(run: RunDir, name: str) -> list[dict[str, Any]]:
    return [row for row in read_jsonl(run.events).rows if row.get("event") == name]


def lowest_headroom(run: RunDir) -> int:
    return min(row["headroom_bytes"] for row in read_jsonl(run.telemetry).rows if row["headroom_bytes"] is not None)


def assert_stopped_in_time(run: RunDir, code: int, source: str) -> None:
    assert code == 8, (run.path / "supervisor.log").read_text() + str(read_run(run).cause)
    state = read_run(run)
    assert state.cause is not None
    assert "by the guard" in state.cause
    acted = events(run, "guard_acted")
    assert acted[-1]["before"]["headroom_source"] == source
    assert acted[-1]["before"]["headroom_gib"] * GIB > 0
    effects = events(run, "guard_effect")
    assert len(effects) == len(acted)
    assert "headroom_gib" in effects[-1]["after"]


@pytest.mark.slow  # 20 runs through real processes, 3-5 s each; 8 where the cgroup test below runs too
@pytest.mark.parametrize("trial", range(8 if can_make_groups() else NUM_TRIALS))
def test_a_leaking_worker_is_ended_before_its_budget(tmp_path: Path, trial: int) -> None:
    run = make_run(tmp_path, f"guard.worker_budget_gib={LIMIT_BYTES / GIB}", "grpo.max_steps=2000")
    code = supervise(run, leak_mib=LEAKS_MIB[trial % len(LEAKS_MIB)])
    assert_stopped_in_time(run, code, "budget")
    assert lowest_headroom(run) > 0


def test_a_fast_leak_is_ended_before_its_budget_and_the_run_tells_why(tmp_path: Path) -> None:
    run = make_run(tmp_path, "guard.worker_budget_gib=0.5", "grpo.max_steps=2000")
    code = supervise(run, leak_mib=24)
    assert_stopped_in_time(run, code, "budget")
    assert lowest_headroom(run) > 0
    assert events(run, "guard_started")[0]["floor_bytes"] == 64 * MIB


@pytest.mark.slow  # half a minute: the ramp must have left the ten seconds over which a slow fall is measured
def test_a_slow_leak_is_asked_to_shed_first_and_goes_on_when_that_helps(tmp_path: Path) -> None:
    run = make_run(tmp_path, "guard.worker_budget_gib=0.5", "grpo.max_steps=1100")
    code = supervise(run, leak_mib=",".join(["4"] * 78 + ["0"] * 520 + ["0.1"]), sheds=True)
    assert code == 0
    acted = [row["action"] for row in events(run, "guard_acted")]
    assert acted[0] == "shed"
    assert "kill" not in acted
    shed = [row for row in read_run(run).events if row.get("event") == "memory_shed"]
    saved = [row for row in read_run(run).events if row.get("event") == "checkpoint_saved"]
    assert len(shed) == 1
    assert any(abs(row["t"] - shed[0]["t"]) < 1 for row in saved)


def test_a_worker_that_stops_when_asked_has_saved_a_checkpoint(tmp_path: Path) -> None:
    run = make_run(tmp_path, "guard.worker_budget_gib=0.5", "grpo.max_steps=2000", "grpo.save_steps=1000")
    code = supervise(run, leak_mib=2)
    assert code == 8
    saved = [row for row in read_run(run).events if row.get("event") == "checkpoint_saved"]
    assert saved, [row["action"] for row in events(run, "guard_acted")]


def test_an_address_space_limit_is_a_ceiling_too(tmp_path: Path) -> None:
    run = make_run(tmp_path, "grpo.max_steps=2000")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (2 * GIB, 2 * GIB))

    code = supervise(run, leak_mib=16, before=limit)
    assert_stopped_in_time(run, code, "address space")
    assert "MemoryError" not in run.stderr_log.read_text()


class MemoryGroupFolder:
    """A memory cgroup of ours with a limit, v1 or v2."""

    def __init__(self, folder: Path, limit_file: str, version: int) -> None:
        self.folder, self.version = folder, version
        folder.mkdir()
        (folder / limit_file).write_text(str(LIMIT_BYTES))

    def enter(self) -> None:
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self) -> None:
        """A test that failed may have left processes behind: they are this group's only members."""
        for pid in (self.folder / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        wait_until(lambda: not (self.folder / "cgroup.procs").read_text(), 20)
        self.folder.rmdir()

    def num_oom_kills(self) -> int:
        text = (self.folder / ("memory.events" if self.version == 2 else "memory.oom_control")).read_text()
        return int(next(line.split()[1] for line in text.splitlines() if line.startswith("oom_kill ")))


@pytest.fixture
def memory_group() -> Iterator[MemoryGroupFolder]:
    name = f"spark-rl-test-{uuid.uuid4().hex[:8]}"
    for parent, limit_file, version in (
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", 1),
        (Path("/sys/fs/cgroup"), "memory.max", 2),
    ):
        try:
            group = MemoryGroupFolder(parent / name, limit_file, version)
        except OSError:
            (parent / name).rmdir() if (parent / name).is_dir() else None
            continue
        yield group
        group.remove()
        return
    pytest.skip("no memory cgroup can be made here (not root, or no controller)")


@pytest.mark.slow  # 20 runs through real processes, 3-5 s each
@pytest.mark.parametrize("trial", range(NUM_TRIALS))
def test_a_leaking_worker_is_ended_before_its_cgroups_limit(
    tmp_path: Path, memory_group: MemoryGroupFolder, trial: int
) -> None:
    run = make_run(tmp_path, "grpo.max_steps=2000")
    code = supervise(run, leak_mib=LEAKS_MIB[trial % len(LEAKS_MIB)], before=memory_group.enter)
    assert memory_group.num_oom_kills() == 0
    assert_stopped_in_time(run, code, "cgroup")


def test_a_fast_leak_in_a_cgroup_is_ended_before_the_kernel_does_it(
    tmp_path: Path, memory_group: MemoryGroupFolder
) -> None:
    run = make_run(tmp_path, "grpo.max_steps=2000")
    code = supervise(run, leak_mib=48, before=memory_group.enter)
    assert memory_group.num_oom_kills() == 0
    assert_stopped_in_time(run, code, "cgroup")


def test_the_worker_is_what_the_kernel_would_take_first(tmp_path: Path) -> None:
    from spark_rl.guard.effects import WORKER_OOM_SCORE, offer_worker

    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert str(WORKER_OOM_SCORE) in offer_worker(child.pid)
        assert Path(f"/proc/{child.pid}/oom_score_adj").read_text().strip() == str(WORKER_OOM_SCORE)
        child.kill()


def test_a_pause_of_the_guard_is_not_lifted_by_a_viewer(tmp_path: Path) -> None:
    run = make_run(tmp_path, "grpo.max_steps=300")
    supervisor = start(run)
    wait_until(lambda: len(steps(run)) >= 3)
    control.send(run, "pause", asker="guard")
    paused = wait_until(lambda: [row for row in read_run(run).events if row.get("event") == "paused"])
    control.send(run, "resume")
    wait_until(lambda: not run.control.exists() or time.time() - run.control.stat().st_mtime > 1.5)
    assert steps(run)[-1] == paused[0]["step"], "the worker looks every half second and has seen the viewer's request"
    control.send(run, "resume", asker="guard")
    assert supervisor.wait(timeout=120) == 0
    assert len(steps(run)) == 300
    assert [row["by"] for row in paused] == [["guard"]]
