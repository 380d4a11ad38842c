"""No shipped reward pays more than its documented floor for text that answers nothing (docs/rewards.md, "Floors")."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_rl.rewards import Composite, ExactMatch, JsonSchema, MathAnswer, Reward, RewardPart, ToolCall
from spark_rl.rewards.attacks import attack_texts, check_reward
from spark_rl.rewards.matching import normalised

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
}
CALLS = [{"get_weather": {"city": ["Paris"], "unit": ["C", ""]}}]
GOLDS = (
    "18",
    "-3",
    "1,800",
    r"\frac{7}{2}",
    r"\sqrt{2}+x",
    "(1,2)",
    r"\{1,2\}",
    "even",
    "B",
    r"50\%",
    "[0,1)",
    "1,3,9",
)
PROMPTS = {
    "18": "A robe takes 18 bolts in all; what is 9*2? End with: The answer is <number>.",
    "even": "Is 4 even or odd? Put the word in \\boxed{}.",
    "B": "Which one? A) one B) two C) three. Answer: <letter>",
}

CASES: dict[str, tuple[Reward[Any], dict[str, Any], str | None]] = {
    **{
        f"math {gold}": (MathAnswer(time_limit_s=1.0), {"answer": gold, "prompt": PROMPTS.get(gold, "Solve it.")}, gold)
        for gold in GOLDS
    },
    "exact": (ExactMatch(), {"answer": "Paris", "prompt": "Name the capital of France."}, "Paris"),
    "json_schema": (JsonSchema(schema=SCHEMA), {"prompt": "Plan a trip as JSON with city and days."}, None),
    "tool_call": (ToolCall(), {"ground_truth": CALLS, "prompt": "Weather in Paris? Call get_weather."}, None),
}
"""Reward, a row for it, and the gold as text where it has one."""


@pytest.fixture(scope="module", autouse=True)
def _helpers_end() -> Iterator[None]:
    yield
    for reward, _, _ in CASES.values():
        reward.close()


@pytest.mark.parametrize("name", CASES)
def test_every_attack_earns_nothing(name: str) -> None:
    reward, row, gold = CASES[name]
    others = [str(number) for number in range(1, 60)] if gold and gold[-1].isdigit() else [*GOLDS, "odd", "A", "C", "D"]
    texts = attack_texts(gold, row["prompt"], [other for other in others if other != gold])
    verdicts = reward.judge_batch(list(texts.values()), [row] * len(texts))
    earned = {attack: (verdict.value, verdict.reason) for attack, verdict in zip(texts, verdicts, strict=True)}
    assert {attack: what for attack, what in earned.items() if what[0] != 0.0} == {}


LETTERS = "abcdefghijklmnopqrstuvwxyzABCXYZ \n\t.,:;!?()[]{}<>\\/|$%^&*_=+-#@~`'\"éßñ漢字🙂\u200b\x00"
"""No digit, so that no number can be hit by chance."""


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(junk=st.text(alphabet=LETTERS, max_size=200))
def test_random_text_without_the_answer_earns_nothing(name: str, junk: str) -> None:
    reward, row, gold = CASES[name]
    if gold and normalised(gold) in normalised(junk):
        return
    verdict = reward.judge(junk, row)
    assert verdict.value == 0.0, verdict.reason


MARKS = [
    "\\boxed{",
    "}",
    "<answer>",
    "</answer>",
    "####",
    "The answer is",
    "{",
    "[",
    '"',
    "$",
    "=",
    ":",
    ",",
    "\n",
    "f(",
    ")",
    "<tool_call>",
    "</tool_call>",
]


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(pieces=st.lists(st.sampled_from([*MARKS, "banana", "qwx", "zz "]), max_size=30))
def test_markers_without_an_answer_earn_nothing(name: str, pieces: list[str]) -> None:
    reward, row, _ = CASES[name]
    verdict = reward.judge(" ".join(pieces), row)
    assert verdict.value == 0.0, verdict.reason


@settings(max_examples=60, deadline=None, derandomize=True)
@given(gold=st.integers(-50, 50), padding=st.text(alphabet="abc \n.", max_size=200), seed=st.integers(0, 1000))
def test_padding_changes_no_verdict(gold: int, padding: str, seed: int) -> None:
    reward = CASES["math 18"][0]
    said = gold + random.Random(seed).choice([0, 1])
    plain = reward.judge(f"\\boxed{{{said}}}", {"answer": str(gold)})
    padded = reward.judge(f"{padding}\n\\boxed{{{said}}}\n", {"answer": str(gold)})
    assert plain.value == padded.value == float(said == gold)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    gold=st.integers(0, 30), last=st.integers(5, 60), separator=st.sampled_from([" ", ", ", "\n", "; ", " or ", ". "])
)
def test_listing_numbers_earns_nothing_whatever_the_separator(gold: int, last: int, separator: str) -> None:
    reward = CASES["math 18"][0]
    listed = separator.join(str(number) for number in range(last + 1))
    for text in (
        listed,
        f"The answer is {listed}.",
        f"<answer>{listed}</answer>",
        f"\\boxed{{{listed}}}",
        f"#### {listed}",
    ):
        assert reward.judge(text, {"answer": str(gold)}).value == 0.0


def test_an_empty_object_earns_only_what_the_schema_allows() -> None:
    strict, loose = JsonSchema(schema=SCHEMA), JsonSchema(schema={"type": "object"})
    assert strict.judge("{}", {}).value == 0.0
    assert loose.judge("{}", {}).value == 1.0


def test_the_check_finds_a_reward_that_pays_for_junk(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(
        "def reward(completions, **columns):\n    return [float(len(c) > 3) for c in completions]\n"
    )
    part = RewardPart("correct", "python", 1.0, "correct", {"file": "bad.py"})
    composite = Composite.build([part], tmp_path)
    report = check_reward(composite, [{"answer": "4", "prompt": "What is two and two?"}], lambda row: row["answer"])
    composite.close()
    assert any("'junk' earns up to 1" in problem for problem in report.problems)


def test_the_check_finds_a_reward_that_recognises_no_right_answer_or_raises(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(
        "def zero(completions, **columns):\n    return [0.0 for c in completions]\n"
        "def fail(completions, **columns):\n    return [1 / len(c) * 0 for c in completions]\n"
    )
    rows: list[Mapping[str, Any]] = [{"answer": "4", "prompt": "What is two and two?"}]
    for function, expected in (("zero", "no wording of the right answer"), ("fail", "ZeroDivisionError")):
        part = RewardPart("correct", "python", 1.0, "correct", {"file": "bad.py", "function": function})
        composite = Composite.build([part], tmp_path)
        report = check_reward(composite, rows, lambda row: row["answer"])
        composite.close()
        assert any(expected in problem for problem in report.problems), json.dumps(report.problems)


def test_the_check_says_which_shape_of_completions_a_function_wants(tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text(
        "def for_messages(completions, answer, **columns):\n"
        "    return [float(c[0]['content'].endswith(a)) for c, a in zip(completions, answer)]\n"
        "def by_repr(completions, answer, **columns):\n"
        "    return [float(str(c).startswith(a)) for c, a in zip(completions, answer)]\n"
    )
    rows: list[Mapping[str, Any]] = [{"answer": "4", "prompt": "What is two and two?"}]
    for function, accepts in (("for_messages", "messages"), ("by_repr", "strings")):
        part = RewardPart("correct", "python", 1.0, "correct", {"file": "r.py", "function": function})
        composite = Composite.build([part], tmp_path)
        report = check_reward(composite, rows, lambda row: row["answer"])
        composite.close()
        assert report.shapes == {"correct": accepts}
        advice = "correct: the function can judge messages only; set messages = true for this part"
        assert (advice in report.problems) == (accepts == "messages")
