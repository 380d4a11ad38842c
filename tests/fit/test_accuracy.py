"""The targets on public measurements. Rows of the same kind for other models are kept elsewhere."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from spark_rl.fit.cases import predict_case
from spark_rl.fit.scoring import Score, predict_rows, score
from spark_rl.modelcard import ModelCard

pytestmark = pytest.mark.cases
SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "score_fit"


@pytest.fixture(scope="module")
def result(case_rows: list[dict[str, Any]], case_cards: Mapping[str, ModelCard]) -> Score:
    return score(predict_rows(case_rows, case_cards))


def test_half_of_the_training_rows_are_within_8_percent_and_nine_tenths_within_20(result: Score) -> None:
    numbers = result.to_json()
    assert numbers["n"] >= 200
    assert numbers["median_abs_pct"] <= 8
    assert numbers["p90_abs_pct"] <= 20


def test_no_run_that_died_of_memory_is_said_to_fit(result: Score) -> None:
    assert result.false_fits == ()


def test_hardly_any_run_that_fitted_is_said_not_to_fit(result: Score) -> None:
    assert len(result.false_ooms) <= 0.02 * result.fitting_rows


def test_the_band_holds_nine_tenths_and_is_not_wide(result: Score) -> None:
    numbers = result.to_json()
    assert numbers["band_cover_pct"] >= 90
    assert numbers["band_median_width"] <= 1.5


def test_where_only_a_length_limit_is_known_the_forecast_stays_above(result: Score) -> None:
    assert result.cap_below <= 0.05 * result.cap_rows


def test_every_row_that_ran_out_of_memory_is_predicted(
    case_rows: list[dict[str, Any]], case_cards: Mapping[str, ModelCard]
) -> None:
    for row in case_rows:
        if row["scored"] and row["verdict"] == "oom":
            assert predict_case(row, case_cards).verdict in ("tight", "does_not_fit"), row["id"]


def test_a_prediction_does_not_look_at_the_answer(
    case_rows: list[dict[str, Any]], case_cards: Mapping[str, ModelCard]
) -> None:
    for row in case_rows:
        kv = {**row["kv"], "concurrency": None, "kv_tokens": None} if row["kv"] else row["kv"]
        blind = {**row, "id": "x", "source": "", "notes": "", "confidence": None, "kv": kv}
        blind = {key: value for key, value in blind.items() if key not in ("measured_gib", "verdict")}
        assert predict_case(blind, case_cards) == predict_case(row, case_cards), row["id"]


def test_a_row_without_a_known_shape_says_so(case_cards: Mapping[str, ModelCard]) -> None:
    assert predict_case({"id": 1, "method": "sft", "shape_of": None}, case_cards).reason == "model shape not known"


def test_the_script_prints_one_row_a_case(cases_dir: Path, tmp_path: Path) -> None:
    source = (cases_dir / "memory" / "memory_cases.jsonl").read_text().splitlines()[:40]
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(source))
    run = [sys.executable, str(SCRIPT), "--cases", str(cases_dir), "--predict", str(file)]
    rows = [
        json.loads(line) for line in subprocess.run(run, capture_output=True, text=True, check=True).stdout.splitlines()
    ]
    assert [row["id"] for row in rows] == [json.loads(line)["id"] for line in source]
    assert {"predicted_gib", "low_gib", "high_gib", "verdict", "phase", "kv_concurrency"} <= set(rows[0])


def test_the_script_ends_with_its_summary(cases_dir: Path) -> None:
    run = [sys.executable, str(SCRIPT), "--cases", str(cases_dir), str(cases_dir / "memory" / "memory_cases.jsonl")]
    last = subprocess.run(run, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
    assert {
        "n",
        "median_abs_pct",
        "p90_abs_pct",
        "false_fits",
        "false_ooms",
        "band_cover_pct",
        "kv_max_abs_pct",
        "unpredicted",
    } <= set(json.loads(last))


def test_a_broken_line_is_named(tmp_path: Path, cases_dir: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"id": 1}\n{"id": \n')
    run = subprocess.run(
        [sys.executable, str(SCRIPT), "--cases", str(cases_dir), str(file)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 2
    assert "line 2" in run.stderr


@pytest.mark.parametrize("field", ["micro_batch", "gpu_total_gib", "lora_targets", "vllm", "tensor_parallel"])
def test_a_field_of_the_wrong_kind_is_a_reason_and_no_crash(
    field: str, case_rows: list[dict[str, Any]], case_cards: Mapping[str, ModelCard]
) -> None:
    row = next(row for row in case_rows if row["tuning"] == "lora" and row["scored"])
    found = predict_case({**row, field: {"odd": 1} if field == "vllm" else "odd"}, case_cards)
    assert found.reason is None or "not of the expected kind" in found.reason


def test_an_optimizer_with_an_unknown_name_is_read_by_its_words(
    case_rows: list[dict[str, Any]], case_cards: Mapping[str, ModelCard]
) -> None:
    row = next(row for row in case_rows if row["tuning"] == "full" and row["scored"] and row["measured_gib"])
    small = predict_case({**row, "optimizer": "adam_new_8bit"}, case_cards).predicted_gib
    plain = predict_case({**row, "optimizer": "adam_new"}, case_cards).predicted_gib
    assert small is not None and plain is not None and small < plain
