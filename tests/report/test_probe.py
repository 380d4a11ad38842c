"""The probe refuses what GRPO cannot learn from, and says how much signal there is where it can."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_rl.probe import ProbeCounts, expected_mixed_share, judge_probe


def counts(*successes: int, samples: int = 8, temperature: float = 1.0) -> ProbeCounts:
    return ProbeCounts(temperature, samples, tuple(successes))


def test_no_success_means_sft_first() -> None:
    result = judge_probe(counts(*[0] * 32), counts(*[0] * 32, temperature=0.3), 8)
    assert result.verdict == "sft_first"
    assert not result.allows_training
    assert "1.5 %" in result.words  # the rate that 0 of 256 cannot rule out


def test_success_only_at_low_temperature_advises_to_lower_it() -> None:
    result = judge_probe(counts(*[0] * 32), counts(*[3] * 32, temperature=0.3), 8)
    assert result.verdict == "sft_first"
    assert "lower the run's temperature" in result.words


def test_nearly_always_right_means_nothing_to_learn() -> None:
    assert judge_probe(counts(*[8] * 31, 6), None, 8).verdict == "nothing_to_learn"


def test_prompts_that_are_always_or_never_solved_hold_nothing_to_select() -> None:
    result = judge_probe(counts(*[8] * 16, *[0] * 16), None, 8)
    assert result.verdict == "nothing_to_learn"
    assert "16 of 32 prompts are always solved" in result.words


def test_a_few_unmixed_prompts_are_no_evidence_against_learning() -> None:
    assert judge_probe(counts(8, 0, 8, 0), None, 8).verdict == "learnable"


def test_sometimes_right_is_learnable_with_its_interval() -> None:
    result = judge_probe(counts(*[3] * 32), None, 8)
    assert result.verdict == "learnable"
    assert result.at_run.rate == 0.375
    assert result.at_run.interval.low < 0.375 < result.at_run.interval.high
    assert result.mixed_correct == 1.0


def test_rare_success_is_learnable_with_a_warning() -> None:
    result = judge_probe(counts(1, *[0] * 31), None, 8)
    assert result.verdict == "learnable"
    assert any("Thin signal" in note for note in result.notes)


def test_a_peak_that_is_wrong_is_told_from_a_peak_that_is_right() -> None:
    right = judge_probe(counts(*[2] * 32), counts(*[7] * 32, temperature=0.3), 8)
    wrong = judge_probe(counts(*[4] * 32), counts(*[0] * 32, temperature=0.3), 8)
    assert any("knows more than its samples show" in note for note in right.notes)
    assert any("most likely answer is wrong" in note for note in wrong.notes)


@given(st.lists(st.sampled_from(["a", "b", "c"]), min_size=2, max_size=8), st.integers(2, 8))
def test_mixed_share_counts_the_groups_that_could_be_drawn(outcomes: list[str], group_size: int) -> None:
    if len(outcomes) < group_size:
        return
    groups = list(itertools.combinations(outcomes, group_size))
    expected = sum(len(set(group)) > 1 for group in groups) / len(groups)
    assert expected_mixed_share([outcomes], group_size) == pytest.approx(expected)


@given(st.integers(0, 10))
def test_mixed_share_has_no_bias_with_enough_samples(tenths: int) -> None:
    """Averaged over all outcomes of 10 samples, the estimate is the true chance of a mixed group of 8."""
    from scipy.stats import binom

    p = tenths / 10
    average = sum(binom.pmf(k, 10, p) * expected_mixed_share([[True] * k + [False] * (10 - k)], 8) for k in range(11))
    assert average == pytest.approx(1 - p**8 - (1 - p) ** 8, abs=1e-9)


def test_fewer_samples_than_a_group_are_said_to_be_a_low_estimate() -> None:
    result = judge_probe(counts(2, 2, samples=4), None, 8)
    assert result.mixed_correct == pytest.approx(1 - 2 * 0.5**8)
    assert "low estimate" in result.mixed_method


def test_format_rewards_mix_groups_that_correctness_does_not() -> None:
    totals = tuple((0.0, 0.2) * 4 for _ in range(16))
    result = judge_probe(ProbeCounts(1.0, 8, (0,) * 16, totals), None, 8)
    assert (result.mixed_correct, result.mixed_reward) == (0.0, 1.0)
    assert result.verdict == "sft_first"


def test_a_result_is_one_json_object_with_unknown_as_null() -> None:
    saved = json.loads(json.dumps(judge_probe(counts(1, 2), None, 8).to_json(), allow_nan=False))
    assert saved["low"] is None
    assert saved["mixed_reward"] is None
    assert saved["run"]["n"] == 16


def test_a_probe_without_prompts_is_a_fault_of_the_caller() -> None:
    with pytest.raises(ValueError, match="at least one prompt"):
        judge_probe(counts(), None, 8)
