"""Logs of other tools, old and new, whole and torn, become one canonical row a step."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_rl.errors import ConfigError
from spark_rl.metrics import Log, canonical_key, log_from_rows, metric_of, read_log
from spark_rl.metrics.readers import log_from_text


def steps(log: Log) -> list[int]:
    return [row.step for row in log.rows]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("completion_length", "completions/mean_length"),
        ("rewards/accuracy", "rewards/accuracy/mean"),
        ("rewards/accuracy/std", "rewards/accuracy/std"),
        ("rewards/mean", "rewards/mean/mean"),
        ("Training Loss", "loss"),
        ("train/reward", "reward"),
        ("my-run - train/rewards/fmt", "rewards/fmt/mean"),
        ("eval/reward", "eval_reward"),
        ("kl", "kl"),
    ],
)
def test_old_names_are_read_as_the_current_ones(old: str, new: str) -> None:
    assert canonical_key(old) == new
    assert canonical_key(new) == new


def test_a_reward_part_is_titled_by_its_name() -> None:
    assert metric_of("rewards/xmlcount").title == "xmlcount"
    assert metric_of("my/own/number").title == "my/own/number"


def test_evaluation_rows_are_kept_apart() -> None:
    log = log_from_rows([{"step": 1, "reward": 0.5}, {"step": 1, "eval_reward": 0.7, "eval_runtime": 3.0}])
    assert [row.values for row in log.rows] == [{"reward": 0.5}]
    assert log.eval_rows[0].values == {"reward": 0.7, "runtime": 3.0}


def test_the_closing_row_of_a_trainer_is_not_a_step() -> None:
    log = log_from_rows([{"step": 5, "reward": 1.0}, {"step": 5, "train_runtime": 60.0, "train_loss": 0.1}])
    assert [row.values for row in log.rows] == [{"reward": 1.0}]


def test_steps_written_again_after_a_resume_count_once() -> None:
    rows = [{"step": step, "reward": float(step)} for step in (1, 2, 3, 4)]
    again = [{"step": step, "reward": 10.0 * step} for step in (3, 4, 5)]
    log = log_from_rows([*rows, *again])
    assert [row.values["reward"] for row in log.rows] == [1.0, 2.0, 30.0, 40.0, 50.0]
    assert log.num_repeated == 2


def test_a_step_spread_over_two_rows_is_merged() -> None:
    log = log_from_rows([{"step": 1, "loss": 0.1}, {"step": 1, "reward": 0.5}])
    assert [row.values for row in log.rows] == [{"loss": 0.1, "reward": 0.5}]


def test_a_table_in_falling_order_is_turned_round() -> None:
    assert steps(log_from_rows([{"step": step, "reward": 0.0} for step in (30, 20, 10)])) == [10, 20, 30]


def test_rows_without_steps_are_numbered_and_said_to_be() -> None:
    log = log_from_rows([{"reward": 0.1}, {"reward": 0.2}])
    assert steps(log) == [1, 2]
    assert not log.has_steps


def test_nan_is_named_and_never_a_value() -> None:
    log = log_from_rows(
        [
            {"step": 1, "reward": math.nan, "kl": 0.1},
            {"step": 2, "reward": None, "nonfinite": ["reward"], "kl": 0.2},
            {"step": 3, "reward": "inf"},
        ]
    )
    assert [row.nonfinite for row in log.rows] == [frozenset({"reward"})] * 3
    assert log.values("reward") == []


def test_a_torn_last_line_is_skipped_and_counted() -> None:
    log = log_from_text('{"step": 1, "reward": 0.5}\n{"step": 2, "reward": 0.6}\n{"step": 3, "rew', "metrics.jsonl")
    assert (steps(log), log.num_skipped) == ([1, 2], 1)


def test_a_trainer_state_with_nan_literals_is_read() -> None:
    text = '{"log_history": [{"step": 1, "loss": NaN, "reward": 0.5}], "logging_steps": 1, "max_steps": 9}'
    log = log_from_text(text, "trainer_state.json")
    assert log.rows[0].nonfinite == {"loss"}
    assert log.trainer["max_steps"] == 9


@pytest.mark.parametrize(
    "text",
    [
        "Step,Training Loss,reward\n1,0.0,0.5\n2,No Log,0.6\n",
        "﻿Step;Training Loss;reward\r\n1;0,0;0,5\r\n2;;0,6\r\n",
        "step\tloss\treward\n1\t0\t0.5\n2\t\t0.6\n",
        '"Step","run-a - train/loss","run-a - train/reward","run-a - train/reward__MIN"\n1,0,0.5,0.1\n2,,0.6,0.1\n',
    ],
    ids=["notebook", "spreadsheet", "tabs", "export"],
)
def test_tables_are_read_whatever_separates_their_columns(text: str) -> None:
    from spark_rl.metrics.readers import decode

    log = log_from_text(decode(text.encode()), "table.csv")
    assert log.series("reward") == [(1, 0.5), (2, 0.6)]
    assert log.series("loss") == [(1, 0.0)]


def test_a_utf16_table_is_read() -> None:
    from spark_rl.metrics.readers import decode

    assert log_from_text(decode("Step,reward\n1,0.5\n".encode("utf-16")), "x.csv").values("reward") == [0.5]


def test_printed_rows_are_found_between_other_output() -> None:
    text = """Unsloth: will patch your computer
{'loss': 0.0, 'grad_norm': 0.95, 'rewards/accuracy_reward': 0.275, 'reward': 1.2, 'epoch': 0.01}
  2%|#         | 2/100 [00:10<08:20]{'loss': '1e-05', 'grad_norm': 'nan', 'reward': '1.3'}
{"not": "a row"}
"""
    log = log_from_text(text, "train.log")
    assert log.values("reward") == [1.2, 1.3]
    assert log.rows[1].nonfinite == {"grad_norm"}


def test_the_newest_checkpoint_of_a_folder_is_read(tmp_path: Path) -> None:
    for step in (9, 10):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        state = {"log_history": [{"step": at, "reward": 0.0} for at in range(1, step + 1)]}
        (folder / "trainer_state.json").write_text(json.dumps(state))
    assert len(read_log(tmp_path).rows) == 10


def test_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        read_log(tmp_path / "nothing.json")


@pytest.mark.parametrize("text", ["hello", "a,b\n1,2\n", '{"a": 1}', "[1, 2]", "{'x': 1}"])
def test_a_file_without_metric_rows_says_what_can_be_read(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        log_from_text(text, "some.file")
    assert "trainer_state.json" in str(caught.value.hint)


def test_an_empty_file_is_a_log_without_rows() -> None:
    assert log_from_text("", "metrics.jsonl").rows == ()
    assert log_from_text("Step,reward\n", "x.csv").rows == ()


scalars = st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8)
names = st.sampled_from(
    ["step", "reward", "loss", "kl", "eval_loss", "rewards/a", "rewards/a/std", "completion_length", "x"]
)


@given(st.lists(st.dictionaries(names, scalars, max_size=6), max_size=12))
def test_any_rows_at_all_become_rising_steps_with_finite_values(rows: list[dict[str, object]]) -> None:
    log = log_from_rows(rows)
    assert steps(log) == sorted(set(steps(log)))
    assert all(math.isfinite(value) for row in log.rows for value in row.values.values())


@given(st.text(max_size=300) | st.text(alphabet="{}[]\",:\n'0123456789.elosrwadNn ", max_size=300))
def test_any_text_is_read_or_refused_in_words(text: str) -> None:
    try:
        log_from_text(text, "any")
    except ConfigError as error:
        assert error.hint
