"""The embedded model's data and files: what is shipped is what the script makes, and nothing held out was ever seen."""

from __future__ import annotations

import importlib.util
import itertools
import json
import random
import sys
from pathlib import Path
from types import ModuleType

import pytest

from spark_rl.dataset import load_examples
from spark_rl.models import EMBEDDED_DIR
from spark_rl.rewards.composite import Composite
from spark_rl.task import TASKS_DIR, load_task

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture(scope="module")
def tiny() -> ModuleType:
    """scripts/_tiny_model.py as a module."""
    pytest.importorskip("torch", reason="the toy is made with torch")
    pytest.importorskip("transformers")
    spec = importlib.util.spec_from_file_location("_tiny_model", SCRIPTS / "_tiny_model.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def rows(part: str) -> list[dict[str, str]]:
    lines = (TASKS_DIR / f"sort-digits.{part}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def digit_sets(part: str) -> set[str]:
    return {"".join(sorted(filter(str.isdigit, row["prompt"]))) for row in rows(part)}


def test_no_held_out_digits_occur_in_training_in_any_order() -> None:
    assert len(digit_sets("heldout")) > 150
    assert set() == digit_sets("heldout") & digit_sets("train")


def test_the_shipped_rows_are_what_the_script_draws(tiny: ModuleType) -> None:
    assert rows("train") == tiny.task_rows(1, 2000, held_out=False)
    assert rows("heldout") == tiny.task_rows(1, 400, held_out=True)


def test_pre_training_never_draws_held_out_digits(tiny: ModuleType) -> None:
    drawn = itertools.islice(tiny.pretraining_rows(random.Random(3)), 3000)
    held_out = digit_sets("heldout")
    assert not any("".join(sorted(filter(str.isdigit, prompt))) in held_out for prompt, _ in drawn)


def test_the_split_does_not_depend_on_the_order_of_digits(tiny: ModuleType) -> None:
    assert tiny.is_held_out("12345") == tiny.is_held_out("54321")


def test_the_task_gives_each_habit_its_reward() -> None:
    task = load_task("sort-digits")
    row = {"prompt": "sort 50391=", "answer": "[01359]"}
    says = ["[01359]", "[95310]", "[50391]", "01359", "?", ""]
    scored = Composite(task.build_rewards()).score(says, [row] * len(says))
    assert [one.total for one in scored] == [1.2, 0.2, 0.2, 0.0, 0.0, 0.0]


def test_the_task_has_three_hundred_held_out_prompts_or_more() -> None:
    examples = load_examples(load_task("sort-digits"))
    assert len(examples.heldout) >= 300
    assert examples.notes == ()


def test_the_tokenizer_has_one_token_a_character_and_returns_the_text(tiny: ModuleType) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED_DIR)
    ids = tokenizer("sort 50391=[01359]")["input_ids"]
    assert len(ids) == 14
    assert tokenizer.decode(ids) == "sort 50391=[01359]"


def test_the_shipped_model_is_right_on_thirty_to_fifty_percent_and_malformed_on_some(tiny: ModuleType) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(EMBEDDED_DIR).eval()
    found = tiny.measure(model, AutoTokenizer.from_pretrained(EMBEDDED_DIR), rows("heldout"), seed=0, sample=True)
    assert 0.3 <= found["right"] <= 0.5
    assert found["bare"] + found["gives up"] > 0.08


def test_heads_are_64_wide_as_vllm_and_unsloth_want() -> None:
    config = json.loads((EMBEDDED_DIR / "config.json").read_text(encoding="utf-8"))
    assert (config["architectures"][0], config["head_dim"]) == ("LlamaForCausalLM", 64)


def test_the_readme_of_the_model_names_the_command_that_makes_it() -> None:
    assert "scripts/make_tiny_model --seed 1" in (EMBEDDED_DIR / "README.md").read_text(encoding="utf-8")
