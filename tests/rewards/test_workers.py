"""Helper processes: order is kept, limits hold, and what breaks is replaced."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from spark_rl.errors import ConfigError
from spark_rl.rewards import user_worker
from spark_rl.rewards.workers import KillablePool

SOURCE = """
import os, time

def act(completions, **columns):
    word = completions[0]
    if word == "hang":
        while True:
            pass
    if word == "sleep":
        time.sleep(60)
    if word == "die":
        os._exit(3)
    if word == "raise":
        raise KeyError("missing")
    if word == "memory":
        return [float(len(bytearray(8 * 1024**3)))]
    return [float(word)]
"""


@pytest.fixture
def pool_of(tmp_path: Path) -> Callable[..., KillablePool]:
    path = tmp_path / "reward.py"
    path.write_text(SOURCE)

    def make(limit_s: float = 5.0, counts_cpu: bool = True, function: str = "act", workers: int = 2) -> KillablePool:
        setup = {"file": str(path), "function": function}
        return KillablePool(user_worker, limit_s, setup, counts_cpu=counts_cpu, max_workers=workers)

    return make


def payloads(*words: str) -> list[dict[str, object]]:
    return [{"completions": [word], "columns": {}} for word in words]


def test_outcomes_come_in_the_order_of_the_payloads(pool_of: Callable[..., KillablePool]) -> None:
    numbers = [str(number) for number in range(60)]
    pool = pool_of()
    for _ in range(3):
        outcomes = pool.run(payloads(*numbers))
        assert [outcome.value["values"][0] for outcome in outcomes] == [float(number) for number in numbers]


def test_a_payload_that_computes_forever_is_stopped_and_the_others_are_answered(
    pool_of: Callable[..., KillablePool],
) -> None:
    outcomes = pool_of(limit_s=0.3).run(payloads("1", "hang", "2"))
    assert [outcome.fault for outcome in outcomes] == [None, "timeout", None]


def test_a_payload_that_sleeps_is_stopped_by_the_clock(pool_of: Callable[..., KillablePool]) -> None:
    started = time.monotonic()
    outcomes = pool_of(limit_s=0.3, counts_cpu=False).run(payloads("sleep", "2"))
    assert [outcome.fault for outcome in outcomes] == ["timeout", None]
    assert time.monotonic() - started < 30


def test_death_and_exceptions_are_told_apart_and_replaced(pool_of: Callable[..., KillablePool]) -> None:
    outcomes = pool_of().run(payloads("die", "raise", "memory", "4"))
    assert [outcome.fault for outcome in outcomes] == ["crashed", "raised", "raised", None]
    assert "KeyError" in outcomes[1].detail


def test_what_cannot_be_loaded_is_told_at_the_start(pool_of: Callable[..., KillablePool]) -> None:
    with pytest.raises(ConfigError, match="no function 'actt'") as caught:
        pool_of(function="actt").warm()
    assert caught.value.hint == "did you mean 'act'?"


def test_closing_leaves_no_process(pool_of: Callable[..., KillablePool]) -> None:
    pool = pool_of()
    pool.run(payloads("1"))
    pids = [worker.process.pid for worker in pool._all]
    pool.close()
    assert pids
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_closed_pool_can_be_used_again(pool_of: Callable[..., KillablePool]) -> None:
    pool = pool_of()
    pool.run(payloads("1"))
    pool.close()
    assert pool.run(payloads("2"))[0].value == {"values": [2.0]}


def test_a_killed_parent_leaves_no_process(tmp_path: Path) -> None:
    (tmp_path / "reward.py").write_text(SOURCE)
    code = f"""
from spark_rl.rewards import user_worker
from spark_rl.rewards.workers import KillablePool
setup = {{"file": {str(tmp_path / "reward.py")!r}, "function": "act"}}
pool = KillablePool(user_worker, 60, setup, counts_cpu=False, max_workers=1)
pool.run([{{"completions": ["1"], "columns": {{}}}}])
print(pool._all[0].process.pid, flush=True)
pool.run([{{"completions": ["sleep"], "columns": {{}}}}])
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        helper = psutil.Process(int(parent.stdout.readline()))
        family = [helper, *helper.children(recursive=True)]
        parent.kill()
    _, alive = psutil.wait_procs(family, timeout=20)
    assert alive == []
