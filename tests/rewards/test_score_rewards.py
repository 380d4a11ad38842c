"""scripts/score_rewards on the cases: the figures that the project promises."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).resolve().parents[2]
SCRIPT = PROJECT / "scripts" / "score_rewards"


def scores(*arguments: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.mark.cases
def test_plain_sets_agree_with_their_labels(cases_dir: Path) -> None:
    result = scores("--cases", str(cases_dir), "--only", "gsm8k", "gsm8k-golds", "plain", "bfcl", "schemas")
    assert result["gsm8k_pct"] >= 99
    assert result["gsm8k_gold_parsed_pct"] == 100
    assert result["plain_pct"] == 100
    assert result["bfcl_pct"] == 100
    assert result["bfcl_mutants_rejected_pct"] == 100
    assert result["schema_pct"] in (100, None)


@pytest.mark.cases
@pytest.mark.slow
def test_math_pairs_agree_with_their_labels(cases_dir: Path) -> None:
    """Slow: algebra on 90 pairs of expressions."""
    result = scores("--cases", str(cases_dir), "--only", "math")
    assert result["math_pct"] >= 97
    assert result["math_unlisted_pct"] >= 99


def test_every_mislabelled_pair_has_a_reason() -> None:
    rows = [json.loads(line) for line in (SCRIPT.parent / "mislabelled_math.jsonl").read_text().splitlines()]
    assert rows
    assert all(len(row["pair"]) == 16 and len(row["reason"]) > 30 for row in rows)
    assert len({row["pair"] for row in rows}) == len(rows)


def test_a_set_without_a_file_is_null_and_a_named_file_that_is_absent_is_an_error(tmp_path: Path) -> None:
    assert set(scores("--cases", str(tmp_path)).values()) == {None}
    missing = [sys.executable, str(SCRIPT), "--gsm8k", str(tmp_path / "none.jsonl")]
    assert subprocess.run(missing, capture_output=True, check=False).returncode == 2


def test_other_files_of_the_same_form_are_taken(tmp_path: Path) -> None:
    row = {"question": "?", "ground_truth": "x\nA: 7", "m": {"is_correct": True, "solution": "so 7\nA: 7"}}
    path = tmp_path / "more.jsonl"
    path.write_text("\ufeff" + json.dumps(row) + "\n")
    assert scores("--cases", str(tmp_path), "--gsm8k", str(path))["gsm8k_pct"] == 100
