"""Format, exact match, regular expressions and the length penalty."""

from __future__ import annotations

import pytest

from spark_rl.errors import ConfigError
from spark_rl.rewards import ExactMatch, Format, LengthPenalty, RegexMatch, WithLengthPenalty
from spark_rl.rewards.length import soft_overlong
from spark_rl.rewards.pattern import may_explode

TAGS = Format(tags=["reasoning", "answer"])


@pytest.mark.parametrize(
    "completion",
    [
        "<reasoning>\nx\ny\n</reasoning>\n<answer>\n4\n</answer>\n",
        "<reasoning>\nx\n</reasoning>\n<answer>\n4\n</answer>\n",
        "<reasoning>x</reasoning><answer>4</answer>",
    ],
)
def test_bodies_of_one_or_many_lines_hold_the_format(completion: str) -> None:
    assert TAGS.judge(completion, {}).value == 1.0


@pytest.mark.parametrize(
    ("completion", "reason"),
    [
        ("<answer>4</answer><reasoning>x</reasoning>", "out of order"),
        ("hello <reasoning>x</reasoning><answer>4</answer>", "outside"),
        ("<reasoning>x</reasoning><answer>4</answer> bye", "outside"),
        ("<reasoning>x</reasoning><answer></answer>", "empty"),
        ("<reasoning>x</reasoning><answer>4", "0 times"),
        ("<reasoning>x</reasoning><answer>4</answer><answer>5</answer>", "2 times"),
        ("<reasoning><answer>4</answer></reasoning>", "out of order"),
        ("", "0 times"),
    ],
)
def test_each_broken_rule_is_named(completion: str, reason: str) -> None:
    verdict = TAGS.judge(completion, {})
    assert verdict.value == 0.0
    assert reason in verdict.reason


def test_a_prefilled_opening_tag_may_be_in_the_prompt() -> None:
    assert Format(tags=["think", "answer"], opened=True).judge("x</think><answer>4</answer>", {}).value == 1.0


def test_partial_credit_never_reaches_the_full_value() -> None:
    reward = Format(tags=["think", "answer"], partial=True)
    assert reward.judge("<think>x</think>", {}).value == 0.45
    assert reward.judge("<think>x</think><answer>4</answer> and more", {}).value == 0.9


def test_sections_hold_in_order_with_text() -> None:
    reward = Format(sections=["Reasoning:", "Answer:"])
    assert reward.judge("Reasoning: a\nb\nAnswer: 4", {}).value == 1.0
    assert reward.judge("Answer: 4\nReasoning: a", {}).value == 0.0
    assert reward.judge("Reasoning:\nAnswer: 4", {}).value == 0.0
    assert reward.judge("nothing", {}).value == 0.0


def test_exact_match_forgives_typography_and_knows_several_golds() -> None:
    reward = ExactMatch()
    assert reward.judge("The answer is  New   York.", {"answer": ["NYC", "new york"]}).value == 1.0
    assert reward.judge("The answer is Boston.", {"answer": ["NYC", "new york"]}).value == 0.0
    assert reward.judge("", {"answer": "x"}).value == 0.0
    assert reward.judge("x", {"answer": []}).value is None


def test_strict_match_of_the_whole_text() -> None:
    reward = ExactMatch(where="whole", normalise="strict")
    assert reward.judge("[01359]", {"answer": "[01359]"}).value == 1.0
    assert reward.judge("the answer is [01359]", {"answer": "[01359]"}).value == 0.0


def test_the_last_match_of_a_pattern_decides() -> None:
    reward = RegexMatch(pattern=r"<answer>\s*(.*?)\s*</answer>", answer="answer")
    assert reward.judge("<answer>\n4\n</answer>", {"answer": "4"}).value == 1.0
    assert reward.judge("<answer>4</answer><answer>5</answer>", {"answer": "4"}).value == 0.0
    assert reward.judge("4", {"answer": "4"}).value == 0.0


def test_a_pattern_that_explodes_is_stopped() -> None:
    reward = RegexMatch(pattern=r"^(a+)+$", time_limit_s=0.3)
    assert may_explode(r"^(a+)+$")
    assert not may_explode(r"\[\d{5}\]")
    assert reward.judge("a" * 60 + "!", {}).value == 0.0
    assert reward.judge("aaa", {}).value == 1.0


def test_a_broken_pattern_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="not a regular expression"):
        RegexMatch(pattern="(")


@pytest.mark.parametrize(("length", "expected"), [(0, 0.0), (80, 0.0), (90, -0.5), (100, -1.0), (500, -1.0)])
def test_the_length_penalty_grows_over_the_buffer(length: int, expected: float) -> None:
    assert soft_overlong(length, max_length=100, buffer=20) == expected
    verdict = LengthPenalty(max_length=100, buffer=20).judge("x", {"completion_ids": [0] * length})
    assert verdict.value == expected


def test_unknown_token_counts_do_not_apply() -> None:
    assert LengthPenalty(max_length=100, buffer=20).judge("x", {}).value is None


def test_the_wrapper_adds_the_penalty_to_another_reward() -> None:
    reward = WithLengthPenalty(ExactMatch(), max_length=4, buffer=2, unit="characters")
    assert reward(["4", "4   "], answer=["4", "4"]) == [1.0, 0.0]
