"""Facts that a reader should see before the first sample, each from a case that happened to somebody."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from spark_rl.gate import Sample
from spark_rl.gate.alarms import find_alarms
from spark_rl.rewards.base import RewardPart, Verdict
from spark_rl.rewards.composite import Composite
from spark_rl.rewards.registry import build_reward


def sample(number: int, total: float | None = 1.0, **changes: object) -> Sample:
    plain = Sample(f"s{number:03d}", "p", f"text {number}", 5, False, total, True, {}, {})
    return replace(plain, **changes)  # type: ignore[arg-type]


def with_part(name: str, verdicts: list[Verdict]) -> list[Sample]:
    return [
        sample(number, verdict.value, parts={name: verdict, "other": Verdict(number % 2, "")})
        for number, verdict in enumerate(verdicts)
    ]


def test_nothing_is_said_about_healthy_samples() -> None:
    verdicts = [Verdict(number % 2, "matched" if number % 2 else "no match") for number in range(64)]
    assert find_alarms(with_part("format", verdicts)) == []


def test_nothing_is_said_about_no_samples() -> None:
    assert find_alarms([]) == []


def test_a_part_that_never_scores_is_named_with_its_reason() -> None:
    """A format pattern whose dot does not match a new line: 0 in all 250 rows of a public run."""
    completions = ["<reasoning>\nx\ny\n</reasoning>\n<answer>\n4\n</answer>\n"] * 99 + ["4"]
    part = RewardPart(
        "soft_format", "regex", options={"pattern": r"(?-s:<reasoning>.*</reasoning>\s*<answer>.*</answer>)"}
    )
    scored = Composite([(part, build_reward(part, Path()))]).score(completions, [{}] * 100)
    samples = [
        sample(number, one.total, completion=completion, parts=one.parts)
        for number, (completion, one) in enumerate(zip(completions, scored, strict=True))
    ]
    assert any(alarm.startswith("0 of 100 samples ever score on soft_format") for alarm in find_alarms(samples))


def test_a_part_that_always_gives_full_marks_is_named() -> None:
    """A scorer that returns 1.0 for any text, "banana" included."""
    alarms = find_alarms(with_part("halting", [Verdict(1.0, "scored 1")] * 20))
    assert alarms == ["halting never varies: 1 on all 20 samples (scored 1)"]


def test_failures_of_the_reward_come_first_and_are_counted() -> None:
    """A scorer that raises on some answers."""
    bug = Verdict(None, "the reward raised ValueError: invalid literal for int(): 'banana'", is_bug=True)
    alarms = find_alarms(with_part("factors", [bug] * 3 + [Verdict(0.0, "wrong")] * 17))
    assert alarms[0].startswith("factors itself failed on 3 of 20 samples: the reward raised ValueError")


def test_gold_answers_that_cannot_be_read_are_named_with_the_commonest_reason() -> None:
    """Raw gold answers that a parser does not read: 0 of 273 became scores."""
    silent = [Verdict(None, "gold answer cannot be parsed: '#### 42'")] * 11
    alarms = find_alarms(with_part("math", [*silent, Verdict(1.0, "equal"), Verdict(0.0, "not equal")]))
    assert alarms == ["math does not apply to 11 of 13 samples: gold answer cannot be parsed: '#### 42'"]


def test_a_few_gold_answers_that_cannot_be_read_are_counted_too() -> None:
    verdicts = [Verdict(None, "the gold cannot be read")] * 4 + [Verdict(number % 2, "") for number in range(60)]
    assert find_alarms(with_part("math", verdicts)) == [
        "math does not apply to 4 of 64 samples: the gold cannot be read"
    ]


def test_rambling_to_the_limit_that_is_paid_more_than_the_floor_is_named() -> None:
    """A runaway penalty that left 0.048 for running on: 84 % of completions settled there."""
    runaway = [sample(number, 0.048, truncated=True) for number in range(41)]
    others = [sample(number, total) for number, total in enumerate([0.0, 1.0, 0.5, 0.3] * 5, start=41)]
    alarm = next(text for text in find_alarms(runaway + others) if "share the score" in text)
    assert alarm.startswith("41 of 61 samples share the score 0.048, 41 of them cut off at the length limit")


def test_cut_off_texts_at_the_floor_are_no_reward_for_rambling() -> None:
    samples = [sample(number, 0.0, truncated=True) for number in range(10)]
    samples += [sample(number, 1.0) for number in range(10, 40)]
    assert find_alarms(samples) == []


def test_a_common_score_of_finished_texts_is_no_alarm() -> None:
    assert find_alarms([sample(number, 0.5 if number % 3 else 1.0) for number in range(30)]) == []


def test_no_success_at_all_is_said() -> None:
    assert "0 of 8 samples are correct: there is nothing to reinforce" in find_alarms(
        [sample(number, number / 8, correct=False) for number in range(8)]
    )


def test_a_model_that_says_one_thing_only_is_named() -> None:
    alarms = find_alarms([sample(number, number / 8, completion="") for number in range(8)])
    assert alarms == ["8 of 8 completions are empty"]


@given(reason=st.text(max_size=300), totals=st.lists(st.one_of(st.none(), st.floats(-2, 2)), min_size=1, max_size=20))
def test_alarms_are_harmless_text_whatever_a_reason_holds(reason: str, totals: list[float | None]) -> None:
    samples = [
        sample(number, total, parts={"part": Verdict(total, reason, is_bug=total is None)})
        for number, total in enumerate(totals)
    ]
    assert all(alarm.isprintable() for alarm in find_alarms(samples))
