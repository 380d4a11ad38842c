"""Our interval, exact test and trend agree with scipy, and hold what they promise where scipy has no counterpart."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from spark_rl.stats import (
    Interval,
    block_means,
    mcnemar_exact,
    paired_difference_interval,
    trend,
    wilson_interval,
)

counts = st.integers(0, 500)


@given(counts, counts)
def test_wilson_interval_is_scipys(successes: int, failures: int) -> None:
    n = successes + failures
    if n == 0:
        return
    expected = scipy_stats.binomtest(successes, n).proportion_ci(0.95, method="wilson")
    actual = wilson_interval(successes, n)
    assert (actual.low, actual.high) == pytest.approx((expected.low, expected.high), abs=1e-12)


@given(counts, counts)
def test_wilson_interval_holds_the_observed_share_and_stays_a_share(successes: int, failures: int) -> None:
    n = successes + failures
    interval = wilson_interval(successes, n)
    assert 0 <= interval.low <= interval.high <= 1
    assert n == 0 or successes / n in interval


def test_wilson_interval_of_nothing_is_everything() -> None:
    assert wilson_interval(0, 0) == Interval(0.0, 1.0)


def test_more_successes_than_trials_is_refused() -> None:
    with pytest.raises(ValueError, match="3 successes of 2"):
        wilson_interval(3, 2)


@given(st.integers(0, 200), st.integers(0, 200))
def test_mcnemar_is_the_exact_binomial_test_of_scipy(only_before: int, only_after: int) -> None:
    n = only_before + only_after
    expected = scipy_stats.binomtest(only_before, n, 0.5).pvalue if n else 1.0
    assert mcnemar_exact(only_before, only_after) == pytest.approx(expected, rel=1e-9)


def test_mcnemar_survives_thousands_of_discordant_pairs() -> None:
    assert 0 < mcnemar_exact(1800, 2200) < 1e-9


def test_mcnemar_of_no_discordant_pair_is_one() -> None:
    assert mcnemar_exact(0, 0) == 1.0


cells = st.tuples(*[st.integers(0, 60)] * 4)


@given(cells)
def test_paired_interval_holds_the_observed_change(table: tuple[int, int, int, int]) -> None:
    n = sum(table)
    interval = paired_difference_interval(*table)
    assert -1 <= interval.low <= interval.high <= 1
    assert n == 0 or interval.low - 1e-12 <= (table[2] - table[1]) / n <= interval.high + 1e-12


@given(cells)
def test_swapping_before_and_after_mirrors_the_paired_interval(table: tuple[int, int, int, int]) -> None:
    both, only_before, only_after, neither = table
    forth = paired_difference_interval(both, only_before, only_after, neither)
    back = paired_difference_interval(both, only_after, only_before, neither)
    assert (forth.low, forth.high) == pytest.approx((-back.high, -back.low), abs=1e-12)


def test_paired_interval_is_the_published_example() -> None:
    """Newcombe 1998, paired data: 36 both, 12 and 2 discordant, 0 neither; method 10 gives .0569 to .3404."""
    interval = paired_difference_interval(36, 2, 12, 0)
    assert (round(interval.low, 4), round(interval.high, 4)) == (0.0569, 0.3404)


@pytest.mark.parametrize("cell_shares", [(0.2, 0.1, 0.4, 0.3), (0.4, 0.05, 0.05, 0.5), (0.05, 0.02, 0.9, 0.03)])
def test_paired_interval_covers_the_true_change_about_19_times_of_20(cell_shares: tuple[float, ...]) -> None:
    """Exact coverage: every table of 20 pairs, weighted by its probability."""
    n, truth, covered = 20, cell_shares[2] - cell_shares[1], 0.0
    for both, lost, gained in itertools.product(range(n + 1), repeat=3):
        neither = n - both - lost - gained
        if neither < 0:
            continue
        table = (both, lost, gained, neither)
        ways = math.factorial(n) / math.prod(math.factorial(cell) for cell in table)
        probability = ways * math.prod(share**cell for share, cell in zip(cell_shares, table, strict=True))
        covered += probability * (truth in paired_difference_interval(*table))
    assert 0.92 <= covered <= 1.0


@given(st.lists(st.integers(-1000, 1000), min_size=3, max_size=30, unique=True))
def test_trend_without_ties_is_scipys_exact_kendall(values: list[int]) -> None:
    expected = scipy_stats.kendalltau(range(len(values)), values, method="exact")
    actual = trend([float(value) for value in values])
    assert actual is not None
    assert (actual.tau, actual.p_value) == pytest.approx((expected.statistic, expected.pvalue), abs=1e-9)


@given(st.lists(st.integers(0, 5), min_size=10, max_size=80))
def test_trend_with_ties_is_scipys_normal_kendall(values: list[int]) -> None:
    if len(set(values)) in (1, len(values)):
        return
    expected = scipy_stats.kendalltau(range(len(values)), values, method="asymptotic")
    actual = trend([float(value) for value in values])
    assert actual is not None
    assert (actual.tau, actual.p_value) == pytest.approx((expected.statistic, expected.pvalue), abs=1e-9)


def test_slope_is_scipys_theil_sen() -> None:
    noise = random.Random(1)
    times = [5.0 * index for index in range(12)]
    values = [0.1 * at + noise.gauss(0, 1) for at in times]
    actual = trend(values, times)
    assert actual is not None
    assert actual.slope == pytest.approx(scipy_stats.theilslopes(values, times).slope)


def test_two_values_have_no_trend_and_a_constant_series_has_none_to_see() -> None:
    assert trend([1.0, 2.0]) is None
    flat = trend([3.0] * 10)
    assert flat is not None
    assert (flat.tau, flat.p_value, flat.slope) == (0.0, 1.0, 0.0)


def test_block_means_keep_every_value_once() -> None:
    assert block_means([1.0, 3.0, 5.0, 7.0, 9.0], 2) == [2.0, 7.0]
    assert block_means([1.0, 2.0], 5) == [1.0, 2.0]
