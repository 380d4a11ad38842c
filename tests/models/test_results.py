"""The committed result of the real run: enough prompts, a clear gain, the page made from the data, nothing of a machine."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from spark_rl.recipe import resolve

PROJECT = Path(__file__).resolve().parents[2]
RESULT = PROJECT / "docs" / "results" / "smollm2-sums.json"


@pytest.fixture(scope="module")
def summary() -> dict[str, Any]:
    return dict(json.loads(RESULT.read_text(encoding="utf-8")))


def test_held_out_success_rose_by_fifteen_points_on_two_hundred_prompts(summary: dict[str, Any]) -> None:
    assert summary["before"]["n"] >= 200
    assert summary["change"] >= 0.15
    assert summary["p_value"] < 0.01


def test_it_took_less_than_an_hour_with_the_unsloth_engine(summary: dict[str, Any]) -> None:
    assert summary["total_seconds"] < 3600
    assert summary["recipe"]["engine"]["name"] == "unsloth"


def test_the_recipe_of_the_result_is_the_shipped_profile(summary: dict[str, Any]) -> None:
    shipped = resolve("cpu-smollm2-135m").to_json()
    keys = ("learning_rate", "per_device_train_batch_size", "num_generations", "max_steps", "beta")
    assert {key: summary["recipe"]["grpo"][key] for key in keys} == {key: shipped["grpo"][key] for key in keys}


def test_the_page_is_made_from_the_data(summary: dict[str, Any]) -> None:
    spec = importlib.util.spec_from_file_location("_results", PROJECT / "scripts" / "_results.py")
    assert spec is not None and spec.loader is not None
    results = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(results)
    page = RESULT.with_suffix(".md").read_text(encoding="utf-8")
    assert results.page(page.splitlines()[0].removeprefix("# "), summary) == page


def test_no_folder_of_a_machine_is_in_the_result() -> None:
    text = RESULT.read_text(encoding="utf-8")
    assert not any(folder in text for folder in ("/home/", "/root", "/tmp/"))
