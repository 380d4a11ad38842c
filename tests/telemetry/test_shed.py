"""Shedding in the middle of a run: smaller pieces, the same sums; and the figures of rollouts that bandwidth rests on."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spark_rl import control
from spark_rl.engines.rollout_clock import RolloutClock
from spark_rl.rundir import read_jsonl
from spark_rl.runstate import read_run
from tests.run.conftest import ALL_STAGES, make_run, start, steps, wait_until


def test_rollouts_are_timed_and_counted_until_they_are_taken() -> None:
    now = iter((0.0, 2.0, 10.0, 13.0))
    trainer = SimpleNamespace(_generate=lambda prompts: ([[1, 2], [3]], [[7] * 5, [8] * 9], None))
    clock = RolloutClock(trainer, lambda: next(now))
    assert clock.take() == {}
    trainer._generate(["a", "b"])
    trainer._generate(["a", "b"])
    assert clock.take() == {
        "rollout/seconds": 5.0,
        "rollout/num_completions": 4,
        "rollout/num_tokens": 28,
        "rollout/num_decode_steps": 18,
        "rollout/num_prompt_tokens": 6,
    }
    assert clock.take() == {}


@pytest.mark.train  # loads the embedded model and takes real GRPO steps: about half a minute
def test_a_real_run_sheds_and_goes_on(tmp_path: Path) -> None:
    run = make_run(tmp_path, "engine.name=plain", "grpo.max_steps=12", "grpo.save_steps=100", "eval.num_prompts=20")
    supervisor = start(run, ALL_STAGES)

    def at_step_two() -> Any:
        assert supervisor.poll() is None, read_run(run).cause
        return len(steps(run)) >= 2

    wait_until(at_step_two, 240)
    control.send(run, "shed", asker="guard")
    assert supervisor.wait(timeout=240) == 0, read_run(run).cause
    state = read_run(run)
    shed = [row for row in state.events if row.get("event") == "memory_shed"]
    assert len(shed) == 1
    assert "gradient checkpointing on" in shed[0]["message"]
    assert steps(run) == list(range(1, 13))
    assert any(row.get("event") == "checkpoint_saved" and row["step"] < 12 for row in state.events)
    assert all(row["rollout/seconds"] > 0 for row in state.metrics)
    bandwidths = [row["bandwidth"] for row in read_jsonl(run.telemetry).rows if row.get("bandwidth")]
    assert bandwidths
    assert bandwidths[-1]["source"] == "derived"
