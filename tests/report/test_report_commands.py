"""`spark-rl report`, `eval` and `diagnose` as a person types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spark_rl.cli.main import main
from spark_rl.diagnose import write_diagnosis
from spark_rl.rundir import RunDir


def test_eval_prints_counts_and_the_paired_p_value(finished_run: RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", str(finished_run.path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert {"successes": 10, "n": 40}.items() <= answer["before"].items()
    assert {"successes": 35, "n": 40}.items() <= answer["after"].items()
    assert 0 < answer["p_value"] < 0.001


def test_eval_recomputes_from_the_saved_answers(finished_run: RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    saved = json.loads(finished_run.eval.read_text())
    saved["result"] = {"p_value": 0.99}
    finished_run.eval.write_text(json.dumps(saved))
    main(["eval", str(finished_run.path), "--json"])
    assert json.loads(capsys.readouterr().out)["p_value"] < 0.001


def test_eval_of_a_run_without_results_says_so(empty_run: RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", str(empty_run.path)]) == 6
    assert "no held-out results yet" in capsys.readouterr().err


def test_report_prints_where_the_page_is(finished_run: RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", finished_run.name, "--runs", str(finished_run.path.parent)]) == 0
    assert Path(capsys.readouterr().out.strip()) == finished_run.report
    assert finished_run.report.is_file()


def test_report_of_no_run_is_a_run_directory_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "nothing", "--runs", str(tmp_path)]) == 6
    assert "nothing" in capsys.readouterr().err


def test_diagnose_reads_a_run_by_name_and_answers_in_json(
    finished_run: RunDir, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diagnose", finished_run.name, "--runs", str(finished_run.path.parent), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["rows"] == 40
    assert "reward_trend" in [finding["id"] for finding in answer["findings"]]


def test_a_kept_diagnosis_is_the_one_that_is_shown(finished_run: RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    write_diagnosis(finished_run)
    main(["diagnose", str(finished_run.path), "--json"])
    kept = json.loads(finished_run.diagnosis.read_text())
    assert {key: value for key, value in kept.items() if key != "v"} == json.loads(capsys.readouterr().out)


def test_diagnose_reads_a_strangers_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "trainer_state.json"
    file.write_text('{"log_history": [], "logging_steps": 10, "max_steps": 6}')
    assert main(["diagnose", str(file)]) == 0
    assert "logging_steps is 10 and the run has only 6 steps" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("text", ["", "not a log"])
def test_diagnose_of_what_is_no_log_ends_in_words(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file.txt"
    file.write_text(text)
    code = main(["diagnose", str(file)])
    captured = capsys.readouterr()
    assert (code, "Traceback" in captured.err) == (0 if not text else 2, False)


def test_diagnose_of_a_missing_path_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(tmp_path / "none.json"), "--runs", str(tmp_path)]) == 2
    assert "no such run and no such file" in capsys.readouterr().err
