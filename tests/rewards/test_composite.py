"""The composite and the rules at the boundary: what each odd return of a reward means."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from spark_rl.errors import ConfigError, Refused
from spark_rl.rewards import Composite, ExactMatch, Reward, RewardBug, RewardPart, Verdict, build_reward, check_parts
from spark_rl.rewards.base import RewardOptions, Row

FORMAT = RewardPart("format", "format", 0.2, "format", {"tags": ["think", "answer"]})
CORRECT = RewardPart("correct", "exact", 1.0, "correct")
GOOD = "<think>\nx\ny\n</think>\n<answer>\n4\n</answer>"


class Scripted(Reward[RewardOptions]):
    """Returns or raises what it is told, by completion."""

    kind = "scripted"

    def judge(self, completion: str, row: Row) -> Verdict:
        if completion == "raise":
            raise KeyError("x")
        return Verdict(row["value"], "scripted")


class WrongLength(Scripted):
    def judge_batch(self, completions: Sequence[str], rows: Sequence[Row]) -> list[Verdict]:
        return super().judge_batch(completions, rows)[1:]


class Scalar(Scripted):
    def judge_batch(self, completions: Sequence[str], rows: Sequence[Row]) -> Any:
        return 1.0


def scripted(reward: type[Reward[Any]] = Scripted, **part: Any) -> Composite:
    return Composite([(RewardPart("part", "scripted", **part), reward(name="part"))])


def test_a_well_formed_wrong_answer_and_a_malformed_one_never_score_the_same() -> None:
    for gated in (False, True):
        composite = Composite.build([FORMAT, CORRECT], Path(), gate_on_format=gated)
        wrong, malformed = composite.score([GOOD, "no tags"], [{"answer": "5"}, {"answer": "5"}])
        assert wrong.total is not None
        assert malformed.total is not None
        assert wrong.total > malformed.total


def test_correctness_without_a_format_part_is_a_problem_of_the_task() -> None:
    assert "malformed" in str(check_parts([CORRECT])[0])
    assert check_parts([FORMAT, CORRECT]) == []


def test_gating_makes_correctness_count_only_in_the_right_format() -> None:
    text = "4"
    open_total = Composite.build([FORMAT, CORRECT], Path()).score([text], [{"answer": "4"}])[0]
    gated = Composite.build([FORMAT, CORRECT], Path(), gate_on_format=True)
    gated_total = gated.score([text], [{"answer": "4"}])[0]
    assert (open_total.total, open_total.correct) == (1.0, True)
    assert (gated_total.total, gated_total.correct) == (0.0, False)
    assert "format does not hold" in gated_total.parts["correct"].reason
    assert gated.trl_functions()[1]([text], answer=["4"]) == [0.0]


def test_strings_and_messages_score_alike() -> None:
    composite = Composite.build([FORMAT, CORRECT], Path())
    as_text = composite.score([GOOD], [{"answer": "4"}])
    as_messages = composite.score([[{"role": "assistant", "content": GOOD}]], [{"answer": "4"}])
    assert as_text == as_messages
    assert as_text[0].total == 1.2


def test_none_is_left_out_of_the_total_and_is_never_zero() -> None:
    composite = Composite(
        [(CORRECT, ExactMatch(name="correct")), (RewardPart("part", "scripted"), Scripted(name="part"))]
    )
    rows = [{"answer": "4", "value": None}, {"answer": None, "value": None}, {"answer": None, "value": 0.5}]
    totals = [one.total for one in composite.score(["4", "4", "4"], rows)]
    assert totals == [1.0, None, 0.5]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_a_bug_and_is_counted(value: float) -> None:
    composite = scripted()
    scored = composite.score(["a"], [{"value": value}])[0]
    assert scored.total is None
    assert scored.correct is None
    assert scored.parts["part"].is_bug
    assert composite.bugs == {"part": 1}


def test_an_exception_is_a_bug_of_its_sample_only() -> None:
    composite = scripted()
    scored = composite.score(["a", "raise"], [{"value": 1.0}, {"value": 1.0}])
    assert [one.total for one in scored] == [1.0, None]
    assert "KeyError" in scored[1].parts["part"].reason
    assert composite.bugs == {"part": 1}


def test_a_bug_stops_a_trl_run_with_the_count_and_the_reason() -> None:
    with pytest.raises(RewardBug, match="failed on 1 of 2 completions: the reward raised KeyError"):
        scripted().trl_functions()[0](["a", "raise"], value=[1.0, 1.0])


def test_a_wrong_length_is_refused_with_expected_and_actual() -> None:
    with pytest.raises(RewardBug, match="returned 1 values, expected 2"):
        scripted(WrongLength).score(["a", "b"], [{"value": 1.0}] * 2)


def test_a_scalar_is_refused() -> None:
    with pytest.raises(RewardBug, match="returned one float, expected a list of 2 values"):
        scripted(Scalar).score(["a", "b"], [{"value": 1.0}] * 2)


def test_trl_functions_carry_names_and_weights() -> None:
    composite = Composite.build([FORMAT, CORRECT], Path())
    assert [function.__name__ for function in composite.trl_functions()] == ["format", "correct"]
    assert composite.weights == [0.2, 1.0]


def test_columns_that_are_not_one_value_per_completion_are_left_out() -> None:
    function = Composite.build([CORRECT], Path()).trl_functions()[0]
    values = function(["4", "5"], prompts=["a", "b"], answer=["4", "4"], trainer_state=object(), log_metric=print)
    assert values == [1.0, 0.0]


def test_coroutines_give_the_same_values() -> None:
    composite = Composite.build([FORMAT, CORRECT], Path())
    function = composite.trl_async_functions()[1]
    assert asyncio.run(function([GOOD], answer=["4"])) == [1.0]
    assert asyncio.run(composite.score_async([GOOD], [{"answer": "4"}]))[0].total == 1.2


def test_a_missing_column_is_an_error_of_the_task_that_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="no column 'answer'") as caught:
        Composite.build([CORRECT], Path()).score(["4"], [{"answers": "4"}])
    assert caught.value.hint == "did you mean 'answers'?"


def test_unknown_kinds_and_options_name_the_nearest() -> None:
    with pytest.raises(ConfigError) as kind:
        build_reward(RewardPart("a", "mth"), Path())
    assert kind.value.hint == "did you mean 'math'?"
    with pytest.raises(ConfigError, match=r"anwser: unknown option \(did you mean 'answer'"):
        build_reward(RewardPart("a", "exact", options={"anwser": "x"}), Path())


def test_a_model_as_judge_is_refused_by_name() -> None:
    with pytest.raises(Refused, match="judge"):
        build_reward(RewardPart("a", "judge"), Path())


def test_a_reward_alone_is_a_trl_function() -> None:
    reward = ExactMatch(answer="solution")
    assert reward.__name__ == "exact"
    assert reward(["4", [{"role": "assistant", "content": "5"}]], solution=["4", "4"]) == [1.0, 0.0]
