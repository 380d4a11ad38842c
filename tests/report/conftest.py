"""Run directories made by hand: as the worker would leave them, in any state."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_rl.evaluate import compare
from spark_rl.probe import ProbeCounts, judge_probe
from spark_rl.report import render_page
from spark_rl.report.gather import gather
from spark_rl.rundir import JsonlWriter, RunDir, create_run, write_json

START = 1_790_000_000.0


def write_rows(path: Path, rows: list[dict[str, Any]], every: float = 2.0) -> None:
    times = iter(START + every * index for index in range(len(rows)))
    writer = JsonlWriter(path, clock=lambda: next(times))
    for row in rows:
        writer.append(row)
    writer.close()


def sample(prompt: str, completion: str, correct: bool, reason: str = "compared") -> dict[str, Any]:
    return {
        "prompt": prompt,
        "completion": completion,
        "total": 1.2 if correct else 0.2,
        "correct": correct,
        "parts": {
            "format": {"value": 1.0, "reason": "well formed", "is_bug": False},
            "answer": {"value": float(correct), "reason": reason, "is_bug": False},
        },
    }


@pytest.fixture
def empty_run(tmp_path: Path) -> RunDir:
    """Just created: a recipe and nothing else."""
    return create(tmp_path)


def create(folder: Path) -> RunDir:
    run = create_run(folder / "runs", "toy", clock=lambda: START)
    write_json(
        run.recipe,
        {
            "name": "toy",
            "profile": {"title": "toy profile"},
            "model": {"id": "embedded"},
            "grpo": {"num_generations": 2, "max_steps": 40, "max_completion_length": 16, "beta": 0.01},
            "provenance": {
                "grpo.num_generations": {"source": "base", "reason": "the floor"},
                "grpo.max_steps": {"source": "--set", "reason": "given on the command line"},
            },
        },
    )
    return run


@pytest.fixture(scope="session")
def finished_page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of a run that went well; made once."""
    return render_page(gather(fill(create(tmp_path_factory.mktemp("page"))), now_seconds=START + 500))


@pytest.fixture
def finished_run(empty_run: RunDir) -> RunDir:
    """A run that went well: 40 steps, probe, sign-off, evaluation before and after."""
    return fill(empty_run)


@pytest.fixture
def make_run(empty_run: RunDir) -> Callable[..., RunDir]:
    return lambda **changes: fill(empty_run, **changes)


def fill(run: RunDir, completion: str = "[12345]", reason: str = "compared", part: str = "answer") -> RunDir:
    rows = [
        {
            "step": step,
            "loss": 0.0,
            "grad_norm": 0.5,
            "reward": 0.4 + step / 50,
            "reward_std": 0.3,
            f"rewards/{part}/mean": step / 50,
            "rewards/format/mean": 0.9,
            "kl": 0.002 * step,
            "entropy": 0.8 - 0.01 * step,
            "completions/mean_length": 8.0,
            "completions/max_length": 9.0,
            "completions/min_length": 7.0,
        }
        for step in range(1, 41)
    ]
    write_rows(run.metrics, rows)
    for step in (1, 20, 40):
        pairs = [sample(f"sort {index // 2}=", completion, index % 2 == 0, reason) for index in range(8)]
        write_rows(run.samples / f"{step:06d}.jsonl", [{"step": step, **row} for row in pairs])
    before, after = [index % 4 == 0 for index in range(40)], [index % 8 != 1 for index in range(40)]
    prompts = [f"sort {index}=" for index in range(40)]
    write_json(
        run.eval,
        {
            "prompts": prompts,
            "before": {"correct": before, "greedy_successes": 12},
            "after": {"correct": after, "greedy_successes": None},
            "result": compare(before, after).to_json(),
        },
    )
    for when, correct in (("before", before), ("after", after)):
        held = [sample(prompt, completion, right, reason) for prompt, right in zip(prompts, correct, strict=True)]
        write_rows(run.path / "eval" / f"samples_{when}.jsonl", held)
    write_json(
        run.probe, judge_probe(ProbeCounts(1.0, 4, (1, 2, 0, 3)), ProbeCounts(0.3, 2, (1, 1, 0, 2)), 2).to_json()
    )
    write_json(
        run.inspection,
        {"reader": "oracle, not a person", "counts": {"samples": 50, "agree": 50}, "alarms": [], "fingerprint": {}},
    )
    write_json(
        run.effective,
        {
            "values": {"beta": 0.01},
            "differences": [{"key": "grpo.top_k", "asked": 0, "effective": None, "reason": "0 is written as none"}],
            "versions": {"trl": "1.14.2"},
        },
    )
    write_json(
        run.fit,
        {
            "verdict": "fits",
            "peak_bytes": 2**30,
            "peak_low_bytes": 2**29,
            "peak_high_bytes": 2**31,
            "peak_phase": "rollout",
            "budget_bytes": 2**33,
            "phases": [{"phase": "rollout", "bytes": 2**30}, {"phase": "load", "bytes": 2**20}],
        },
    )
    write_json(run.host, {"name": "cpu"})
    write_json(run.task, {"path": "/somewhere/sort-digits.toml"})
    phases = [{"event": "phase_started", "phase": phase} for phase in ("load", "probe", "train")]
    trained = {"event": "trained", "step": 40, "train_seconds": 80.0, "stopped": False}
    write_rows(run.worker_events, [*phases, trained], every=30.0)
    end = {"event": "run_ended", "exit_code": 0, "cause": None}
    write_rows(run.events, [{"event": "supervisor_started", "pid": 1}, end], every=200.0)
    return run


@pytest.fixture
def rewrite() -> Callable[[Path, dict[str, Any]], None]:
    """Change keys of a JSON file of a run."""

    def change(path: Path, changes: dict[str, Any]) -> None:
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return change
