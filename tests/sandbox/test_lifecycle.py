"""Workers: replaced when dirty, gone when the trainer is, the same size after many samples."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from spark_rl.sandbox import Limits, ProgramJob, Sandbox, TestJob
from spark_rl.sandbox.warm import descendants

PROJECT = Path(__file__).parents[2]
JOB = TestJob(["def f(n):\n    return n + 1\n"], "def check(c):\n    assert c(1) == 2\n", entry_point="f")


@pytest.fixture
def single() -> Sandbox:
    return Sandbox(Limits(time_seconds=5.0), num_pairs=1)


def test_a_worker_that_was_left_dirty_is_replaced_and_a_clean_one_kept(single: Sandbox) -> None:
    with single as sandbox:
        sandbox.run(ProgramJob(["print(1)"]))
        first = sandbox.worker_pids
        sandbox.run(ProgramJob(["print(2)"]))
        assert sandbox.worker_pids == first
        sandbox.run(ProgramJob(["open('left', 'w').close()"]))
        sandbox.run(ProgramJob(["print(3)"]))
        assert sandbox.worker_pids != first
        assert not Path("/proc", str(first[0])).exists()


def test_a_worker_that_dies_is_replaced_and_its_sample_is_no_failure_of_the_candidate(single: Sandbox) -> None:
    with single as sandbox:
        assert sandbox.check(JOB).passed is True
        for pid in sandbox.worker_pids:
            for one in [*descendants(pid), pid]:
                os.kill(one, signal.SIGKILL)
        outcomes = [sandbox.check(JOB) for _ in range(3)]
        assert [one.passed for one in outcomes if not one.sandbox_failed][-1] is True
        assert all(one.passed is None for one in outcomes if one.sandbox_failed)


def test_a_killed_trainer_takes_its_workers_along() -> None:
    program = (
        "import sys, time\nfrom spark_rl.sandbox import Sandbox, ProgramJob\nfrom spark_rl.sandbox.warm import descendants\n"
        "import os\nsandbox = Sandbox(num_pairs=1)\nsandbox.run(ProgramJob(['print(1)']))\n"
        "print(*descendants(os.getpid()), flush=True)\nsandbox.run(ProgramJob(['import time; time.sleep(60)']))\n"
    )
    trainer = subprocess.Popen(
        [sys.executable, "-c", program], cwd=PROJECT, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert trainer.stdout is not None
    workers = [psutil.Process(int(text)) for text in trainer.stdout.readline().split()]
    assert workers
    trainer.kill()
    trainer.wait()
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert alive == []


def test_a_forked_child_of_the_trainer_does_not_end_its_parents_workers(single: Sandbox) -> None:
    with single as sandbox:
        assert sandbox.check(JOB).passed is True
        child = os.fork()
        if child == 0:
            sandbox.close()
            os._exit(0)
        os.waitpid(child, 0)
        assert sandbox.check(JOB).passed is True


def resident_bytes(sandbox: Sandbox) -> int:
    pids = [os.getpid(), *sandbox.worker_pids, *(one for pid in sandbox.worker_pids for one in descendants(pid))]
    return sum(psutil.Process(pid).memory_info().rss for pid in pids)


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_memory_and_descriptors_stay_flat(single: Sandbox, count: int) -> None:
    """The thousand is slow: some seconds of work on a busy machine."""
    with single as sandbox:
        sandbox.check_all([JOB] * 50)
        memory, descriptors = resident_bytes(sandbox), psutil.Process().num_fds()
        assert all(one.passed for one in sandbox.check_all([JOB] * count))
        assert resident_bytes(sandbox) - memory < 8 * 1024 * 1024
        assert psutil.Process().num_fds() == descriptors


def test_an_interrupted_check_leaves_a_working_sandbox(single: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    from spark_rl.sandbox import checks

    def interrupted(*_: object) -> str:
        raise KeyboardInterrupt

    with single as sandbox:
        with monkeypatch.context() as patched:
            patched.setattr(checks, "wait_for", interrupted)
            with pytest.raises(KeyboardInterrupt):
                sandbox.check(JOB)
        assert sandbox.check(JOB).passed is True
