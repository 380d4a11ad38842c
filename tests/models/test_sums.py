"""The task for the real model: its data are what the script makes, and mirrored sums stay on one side."""

from __future__ import annotations

import json
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

from spark_rl.dataset import load_examples
from spark_rl.rewards.composite import Composite
from spark_rl.task import TASKS_DIR, load_task

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "make_sums_task"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    loader = SourceFileLoader("make_sums_task", str(SCRIPT))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def rows(part: str) -> list[dict[str, str]]:
    lines = (TASKS_DIR / f"sums.{part}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_the_shipped_rows_are_what_the_script_makes(script: ModuleType) -> None:
    assert rows("train") == script.rows(held_out=False)
    assert rows("heldout") == script.rows(held_out=True)


def test_a_sum_and_its_mirror_are_never_on_both_sides() -> None:
    pairs = {part: {frozenset((row["a"], row["b"])) for row in rows(part)} for part in ("train", "heldout")}
    assert pairs["train"] & pairs["heldout"] == set()


def test_three_hundred_sums_are_held_out_and_none_is_dropped() -> None:
    examples = load_examples(load_task("sums"))
    assert len(examples.heldout) == 300
    assert examples.notes == ()


def test_the_number_alone_is_right_and_words_around_it_are_malformed() -> None:
    task = load_task("sums")
    row = {"a": "17", "b": "25", "answer": "42"}
    says = [" 42", "42\n", " 41", " 42.", " 42 in all", ""]
    scored = Composite(task.build_rewards()).score(says, [row] * len(says))
    assert [one.total for one in scored] == [1.2, 1.2, 0.2, 0.0, 0.0, 0.0]
