"""Data that a reward cannot judge by ends a run before minutes are spent on loading a model."""

from __future__ import annotations

import os
from datetime import date
from typing import Any

import pytest

from spark_rl.errors import ExitCode
from spark_rl.rundir import read_jsonl
from spark_rl.worker import finish
from tests.run.conftest import make_run

TASK = """
[task]
name = "mine"
title = "a task of a user"
[data]
train = "{data}"
heldout_size = 4
[prompt]
template = "{{question}}"
chat = false
[[reward]]
name = "form"
kind = "regex"
pattern = '\\d+'
means = "format"
weight = 0.2
[[reward]]
name = "right"
{reward}
means = "correct"
"""

PYTHON = 'kind = "python"\nfile = "reward.py"\nfunction = "score"'


def events_of(folder, reward: str, rows: list[dict[str, Any]]) -> tuple[ExitCode, list[dict[str, Any]]]:
    """What a worker that should draw samples tells, up to its end."""
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(arrow.Table.from_pylist(rows), folder / "d.parquet")
    (folder / "reward.py").write_text("def score(completions, **_):\n    return [1.0] * len(completions)\n")
    (folder / "t.toml").write_text(TASK.format(data="d.parquet", reward=reward))
    run = make_run(folder / "runs", task=str(folder / "t.toml"))
    code = finish(run, ["inspect"], os.getpid())
    return code, list(read_jsonl(run.worker_events).rows)


@pytest.mark.parametrize(
    ("reward", "extra", "words"),
    [
        (PYTHON, {"blob": b"\xff\xfe"}, "column 'blob' cannot be sent there"),
        (PYTHON, {"day": date(2024, 2, 1)}, "column 'day' cannot be sent there"),
        ('kind = "exact"\nanswer = "gold"', {}, "no column 'gold'"),
    ],
    ids=["bytes", "dates", "a column that is not there"],
)
def test_columns_that_a_reward_cannot_take_are_told_before_the_model_is_loaded(tmp_path, reward, extra, words):
    rows = [{"question": f"{n} + 1", "answer": str(n + 1), **extra} for n in range(40)]
    code, events = events_of(tmp_path, reward, rows)
    assert code == ExitCode.USAGE
    assert [row["event"] for row in events] == ["worker_finished"]  # not even the phase "load" has begun
    assert words in events[0]["cause"]


def test_such_a_column_in_a_late_row_alone_is_found_too(tmp_path):
    rows = [{"question": f"{n} + 1", "answer": str(n + 1), "day": None} for n in range(40)]
    rows[33]["day"] = date(2024, 2, 1)
    code, events = events_of(tmp_path, PYTHON, rows)
    assert code == ExitCode.USAGE and "column 'day'" in events[0]["cause"]


def test_such_a_column_that_no_reward_is_handed_does_no_harm(tmp_path):
    rows = [{"question": f"{n} + 1", "answer": str(n + 1), "day": date(2024, 2, 1)} for n in range(40)]
    code, events = events_of(tmp_path, 'kind = "exact"', rows)
    assert code == ExitCode.OK and events[-1]["cause"] is None
