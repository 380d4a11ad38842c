"""Verdicts leave and return as CSV or JSONL; a file with a problem changes nothing."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark_rl.errors import ConfigError, Refused
from spark_rl.gate import read_samples, write_samples
from spark_rl.gate.exchange import export_rows, import_verdicts, to_csv, to_jsonl
from spark_rl.gate.inspection import read_inspection
from spark_rl.gate.opinions import read_opinions
from spark_rl.gate.rescore import rescore
from spark_rl.rundir import RunDir

from .conftest import Bench, task_text

Rows = list[dict[str, Any]]


def exported(run: RunDir) -> Rows:
    return export_rows(read_inspection(run))


def fill(rows: Rows, **values: Any) -> Rows:
    return [{**row, **values} for row in rows]


def write(path: Path, rows: Rows) -> Path:
    path.write_text("\ufeff" + to_csv(rows) if path.suffix == ".csv" else to_jsonl(rows), encoding="utf-8", newline="")
    return path


@pytest.mark.parametrize("name", ["verdicts.csv", "verdicts.jsonl"])
def test_a_round_trip_through_a_file_can_be_signed(bench: Bench, name: str) -> None:
    run = bench.sampled_run()
    path = write(bench.folder / name, fill(exported(run), verdict="agree", reader="anna", note="so it is"))
    done = import_verdicts(run, path, bench.task)
    assert (done.num_verdicts, done.readers) == (50, ("anna",))
    assert bench.sign(run).reader == "anna"


def test_rows_come_in_review_order_with_scores_and_text(bench: Bench) -> None:
    run = bench.sampled_run()
    rows = exported(run)
    assert {row["id"] for row in rows} == {sample.id for sample in read_samples(run)}
    assert (rows[0]["total"], rows[1]["total"]) == (1.2, 0.0)
    assert rows[0]["format"] == 1.0
    assert rows[0]["completion"].startswith("<")


def test_what_is_recorded_already_is_not_recorded_again(bench: Bench) -> None:
    run = bench.sampled_run()
    bench.agree_to_all(run)
    before = read_opinions(run)
    done = import_verdicts(run, write(bench.folder / "v.csv", exported(run)), bench.task)
    assert (done.num_verdicts, done.num_unchanged) == (0, 50)
    assert read_opinions(run) == before


def test_rows_without_a_verdict_are_counted_and_left_open(bench: Bench) -> None:
    run = bench.sampled_run()
    rows = exported(run)
    rows[:10] = fill(rows[:10], verdict="Agree ", reader="anna")
    done = import_verdicts(run, write(bench.folder / "v.csv", rows), bench.task)
    assert (done.num_verdicts, done.num_blank) == (10, 40)


def test_a_reader_may_be_named_for_the_whole_file(bench: Bench) -> None:
    run = bench.sampled_run()
    path = write(bench.folder / "v.jsonl", fill(exported(run), verdict="agree"))
    assert import_verdicts(run, path, bench.task, reader="ben").readers == ("ben",)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda row: row.update(verdict="fine"), "'fine' is not agree, disagree or unsure"),
        (lambda row: row.update(verdict="agre"), "did you mean 'agree'"),
        (lambda row: row.update(id="s999"), "'s999' is no sample of"),
        (lambda row: row.update(id="s001"), "s001 occurs twice"),
        (lambda row: row.update(reader=""), "reader name '' is empty"),
        (lambda row: row.update(reader="Oracle"), "is reserved"),
        (lambda row: row.update(scored="0" * 64), "was scored again since this file was exported"),
    ],
)
def test_a_problem_is_told_with_its_line_and_nothing_is_imported(
    bench: Bench, change: Callable[[dict[str, Any]], None], told: str
) -> None:
    run = bench.sampled_run()
    rows = sorted(fill(exported(run), verdict="agree", reader="anna"), key=lambda row: row["id"])
    change(rows[4])
    with pytest.raises(ConfigError, match=told) as caught:
        import_verdicts(run, write(bench.folder / "v.jsonl", rows), bench.task)
    assert "line 5" in caught.value.message
    assert read_opinions(run) == ()


def test_all_problems_are_told_at_once(bench: Bench) -> None:
    run = bench.sampled_run()
    rows = fill(exported(run), verdict="agree", reader="anna")
    rows[0]["verdict"], rows[7]["id"] = "fine", "x"
    with pytest.raises(ConfigError) as caught:
        import_verdicts(run, write(bench.folder / "v.jsonl", rows), bench.task)
    assert [problem.key for problem in caught.value.problems] == ["line 1, verdict", "line 8, id"]


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("v.txt", "", "unknown kind of file"),
        ("v.csv", "", "is empty"),
        ("v.csv", "id;said\ns001;agree\n", "verdict: missing column"),
        ("v.jsonl", '{"id": "s001", "verd', "line 1: not complete JSON"),
        ("v.jsonl", "[1]\n", "expected an object"),
        ("v.jsonl", '{"id": "s001", "verdict": ""}\n', "holds no verdict"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_one_sentence(
    bench: Bench, name: str, content: str, told: str
) -> None:
    run = bench.sampled_run()
    (bench.folder / name).write_text(content)
    with pytest.raises(ConfigError, match=told):
        import_verdicts(run, bench.folder / name, bench.task)


def test_a_file_in_another_encoding_is_refused(bench: Bench) -> None:
    (bench.folder / "v.csv").write_bytes("id,verdict,reader\ns001,agree,Zoë\n".encode("latin-1"))
    with pytest.raises(ConfigError, match="cannot be read"):
        import_verdicts(bench.sampled_run(), bench.folder / "v.csv", bench.task)


def test_a_missing_file_is_named(bench: Bench) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        import_verdicts(bench.sampled_run(), bench.folder / "v.csv", bench.task)


def test_a_spreadsheets_semicolons_are_read(bench: Bench) -> None:
    run = bench.sampled_run()
    (bench.folder / "v.csv").write_text("id;verdict;note;reader\r\ns001;disagree;a, b;Zoë\r\n", encoding="utf-8")
    import_verdicts(run, bench.folder / "v.csv", bench.task)
    assert [(one.says, one.note, one.reader) for one in read_opinions(run)] == [("disagree", "a, b", "Zoë")]


def test_a_hand_written_row_needs_no_digest(bench: Bench) -> None:
    run = bench.sampled_run()
    (bench.folder / "v.jsonl").write_text('{"id": "s001", "verdict": "agree", "reader": "anna"}\n')
    assert import_verdicts(run, bench.folder / "v.jsonl", bench.task).num_verdicts == 1


def test_a_file_from_before_a_rescoring_is_refused_where_the_score_changed(bench: Bench) -> None:
    run = bench.sampled_run()
    path = write(bench.folder / "v.jsonl", fill(exported(run), verdict="agree", reader="anna"))
    bench.rewrite("my_reward.py", lambda text: text.replace("else 0.0", "else 0.1"))
    rescore(run, bench.subject)
    with pytest.raises(ConfigError, match="scored again"):
        import_verdicts(run, path, bench.task)


def test_a_script_is_recorded_as_one_on_a_demo_task(bench: Bench) -> None:
    bench.task_file.write_text(task_text(demo=True))
    run = bench.sampled_run()
    path = write(bench.folder / "v.jsonl", fill(exported(run), verdict="agree", reader="script"))
    import_verdicts(run, path, bench.task)
    assert bench.sign(run).kind == "script"


@pytest.mark.parametrize("reader", ["script", "Script", "script-ci", " script 7"])
def test_a_scripts_verdicts_are_refused_for_any_other_task(bench: Bench, reader: str) -> None:
    run = bench.sampled_run()
    path = write(bench.folder / "v.jsonl", fill(exported(run), verdict="agree", reader=reader))
    with pytest.raises(Refused, match="valid for demo tasks only"):
        import_verdicts(run, path, bench.task)
    assert read_opinions(run) == ()


def test_an_oracles_verdicts_do_not_return_as_a_persons(bench: Bench) -> None:
    run = bench.sampled_run()
    bench.agree_to_all(run, "oracle sort-digits", "oracle")
    rows = fill(exported(run), note="changed")
    with pytest.raises(ConfigError, match="is reserved"):
        import_verdicts(run, write(bench.folder / "v.jsonl", rows), bench.task)


def test_a_disagreement_is_not_taken_back_without_a_reason(bench: Bench) -> None:
    run = bench.sampled_run()
    bench.say(run, "disagree", ["s002"])
    row = {"id": "s002", "verdict": "agree", "reader": "anna"}
    (bench.folder / "v.jsonl").write_text(json.dumps(row))
    with pytest.raises(ConfigError, match="to take it back, note why"):
        import_verdicts(run, bench.folder / "v.jsonl", bench.task)
    (bench.folder / "v.jsonl").write_text(json.dumps({**row, "note": "I misread the prompt"}))
    import_verdicts(run, bench.folder / "v.jsonl", bench.task)
    assert read_inspection(run).counts()["withdrawn"] == 1


def hostile_run(bench: Bench, completion: str) -> RunDir:
    run = bench.new_run()
    samples = bench.samples()
    samples[0] = replace(samples[0], completion=completion)
    write_samples(run, samples, bench.fingerprint())
    return run


@pytest.mark.parametrize("completion", ['=HYPERLINK("http://x")', "+1+1", "-2+3", "@SUM(A1)", "\t=1"])
def test_a_completion_does_not_become_a_spreadsheet_formula(bench: Bench, completion: str) -> None:
    text = to_csv(exported(hostile_run(bench, completion)))
    cells = [row["completion"] for row in csv.DictReader(io.StringIO(text)) if row["id"] == "s001"]
    assert cells == ["'" + completion]


def test_a_note_that_looks_like_a_formula_survives_the_round_trip(bench: Bench) -> None:
    run = bench.sampled_run()
    bench.say(run, "unsure", ["s001"], note="=2 would be right")
    done = import_verdicts(run, write(bench.folder / "v.csv", exported(run)), bench.task)
    assert done.num_unchanged == 1


@pytest.mark.parametrize("completion", ["a\x1b[2Jb", "a\x9b2Jb", "\u202eabc", "nul\0nul", 'quo"te,\r\nline', "\ud83d"])
def test_odd_text_leaves_and_returns(bench: Bench, completion: str) -> None:
    run = hostile_run(bench, completion)
    rows = fill(exported(run), verdict="agree", reader="anna")
    jsonl = to_jsonl(rows)
    assert "\x1b" not in jsonl
    assert "\x9b" not in jsonl
    assert "\u202e" not in jsonl
    assert completion in {json.loads(line)["completion"] for line in jsonl.splitlines()}
    for name in ("v.csv", "v.jsonl"):
        import_verdicts(run, write(bench.folder / name, rows), bench.task)
    assert read_inspection(run).unread == []


def test_nothing_is_exported_before_samples_are_drawn(bench: Bench) -> None:
    with pytest.raises(Refused, match="no samples have been drawn"):
        exported(bench.new_run())
