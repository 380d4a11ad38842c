"""The bus of a run: what is written survives, what is torn is skipped and counted, what is unknown is null."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_rl.errors import RunDirError
from spark_rl.rundir import JsonlWriter, create_run, finite, open_run, read_json, read_jsonl, write_json, write_jsonl
from spark_rl.runstate import latest_by_step, read_run


def test_rows_carry_schema_and_time(tmp_path):
    JsonlWriter(tmp_path / "a.jsonl", clock=lambda: 12.3456).append({"x": 1})
    assert read_jsonl(tmp_path / "a.jsonl").rows == ({"v": 1, "t": 12.346, "x": 1},)


def test_nan_and_infinity_become_null_and_are_named(tmp_path):
    JsonlWriter(tmp_path / "a.jsonl").append({"loss": math.nan, "deep": {"x": [1.0, math.inf]}})
    row = read_jsonl(tmp_path / "a.jsonl").rows[0]
    assert row["loss"] is None
    assert row["nonfinite"] == ["loss", "deep.x.1"]


def test_a_torn_last_line_waits_for_its_rest(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"x": 1}\n{"x": ')
    first = read_jsonl(path)
    assert [row["x"] for row in first.rows] == [1]
    with path.open("ab") as file:
        file.write(b"2}\n")
    assert [row["x"] for row in read_jsonl(path, first.offset).rows] == [2]


def test_a_writer_that_comes_back_starts_on_a_new_line(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"x": 1}\n{"x": ')
    JsonlWriter(path).append({"x": 3})
    found = read_jsonl(path)
    assert [row["x"] for row in found.rows] == [1, 3]
    assert found.num_skipped == 1


def test_a_nul_filled_record_is_skipped_and_counted(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"x": 1}\n' + b"\0" * 30 + b'\n{"x": 2}\n')
    found = read_jsonl(path)
    assert [row["x"] for row in found.rows] == [1, 2]
    assert found.num_skipped == 1


def test_a_newer_schema_is_refused_with_a_sentence(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"v": 99}\n')
    with pytest.raises(RunDirError, match="newer spark_rl"):
        read_jsonl(path)


def test_half_a_character_is_written_as_an_escape_and_read_back(tmp_path):
    row = {"text": "a\udcc3b", "ä": "ö"}
    write_json(tmp_path / "a.json", row)
    JsonlWriter(tmp_path / "a.jsonl").append(row)
    write_jsonl(tmp_path / "b.jsonl", [row])
    for found in (read_json(tmp_path / "a.json"), *(read_jsonl(tmp_path / f"{name}.jsonl").rows[0] for name in "ab")):
        assert {key: found[key] for key in row} == row


def test_a_json_file_is_whole_or_absent(tmp_path):
    write_json(tmp_path / "a.json", {"x": math.nan})
    assert read_json(tmp_path / "a.json") == {"v": 1, "x": None, "nonfinite": ["x"]}
    assert read_json(tmp_path / "b.json") is None
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_two_runs_in_one_second_get_two_folders(tmp_path):
    names = {create_run(tmp_path, "x", clock=lambda: 0.0).name for _ in range(3)}
    assert len(names) == 3


def test_a_name_cannot_leave_the_runs_folder(tmp_path):
    assert create_run(tmp_path, "../../etc/x").path.parent == tmp_path


def test_a_missing_run_says_where_it_looked(tmp_path):
    with pytest.raises(RunDirError, match="not a run directory"):
        open_run("nothing", tmp_path)


def test_a_folder_without_rows_is_a_run_that_was_created(tmp_path):
    run = create_run(tmp_path, "x")
    write_json(run.recipe, {"grpo": {"max_steps": 3}})
    assert read_run(run).status == "created"


@given(st.lists(st.integers(1, 8), max_size=40))
def test_steps_run_again_appear_once_and_in_order(starts):
    """Each number is a process that ran one to three steps from there, as resumes do."""
    rows = [{"step": step, "n": n} for n, start in enumerate(starts) for step in range(start, start + 3)]
    kept = latest_by_step(rows)
    numbers = [row["step"] for row in kept]
    assert numbers == sorted(set(numbers))
    if rows:
        assert kept[-1] == rows[-1]


@given(
    st.recursive(st.floats() | st.text() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))
)
def test_whatever_is_written_is_json(value):
    cleaned, _ = finite({"x": value})
    json.dumps(cleaned, allow_nan=False)
