"""The few statistics that verdicts rest on: interval of a share, paired test, trend, robust middle.

In: plain numbers. Out: numbers. Pure Python, so that light commands can use it; compared with scipy in the tests.
Each function names where its formula comes from.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist, median

CONFIDENCE = 0.95
"""Of every interval that is shown."""

EXACT_TREND_LIMIT = 50
"""Up to this many tie-free values the trend test counts orderings exactly; beyond, the normal curve is as good."""


@dataclass(frozen=True)
class Interval:
    """A closed interval; for shares both ends lie in [0, 1]."""

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True)
class Trend:
    """Whether later values tend to be larger."""

    tau: float
    """Kendall's tau-b with time: 1 always rises, -1 always falls, 0 neither."""
    p_value: float
    """Two-sided; small means that a shuffled series would hardly look like this."""
    slope: float
    """Theil-Sen: the median change per unit of time."""


def wilson_interval(successes: int, n: int, confidence: float = CONFIDENCE) -> Interval:
    """Score interval of a share (Wilson 1927; Brown, Cai and DasGupta 2001, eq. 4). n = 0 gives [0, 1].

    Raises ValueError unless 0 <= successes <= n.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes of {n} is not a share")
    if n == 0:
        return Interval(0.0, 1.0)
    z = _z(confidence)
    share = successes / n
    scale = 1 + z * z / n
    middle = (share + z * z / (2 * n)) / scale
    half = z / scale * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    # At 0 and n the bound is exactly 0 and 1; rounding must not push the observed share out of its own interval.
    low = 0.0 if successes == 0 else min(middle - half, share)
    high = 1.0 if successes == n else max(middle + half, share)
    return Interval(low, high)


def mcnemar_exact(only_before: int, only_after: int) -> float:
    """Two-sided p-value of the exact McNemar test: a fair coin on the discordant pairs (McNemar 1947; Fagerland 2013).

    No discordant pair gives 1: nothing changed. Raises ValueError for negative counts.
    """
    if only_before < 0 or only_after < 0:
        raise ValueError("counts of pairs cannot be negative")
    n = only_before + only_after
    tail = sum(math.comb(n, k) for k in range(min(only_before, only_after) + 1))
    return min(1.0, float(Fraction(2 * tail, 2**n)))


def paired_difference_interval(
    both: int, only_before: int, only_after: int, neither: int, confidence: float = CONFIDENCE
) -> Interval:
    """Interval of share(after) - share(before) on the same prompts: square-and-add of two Wilson intervals with the
    correlation of the pairs (Newcombe 1998, paired data, method 10). No pairs give [-1, 1].
    """
    n = both + only_before + only_after + neither
    if n == 0:
        return Interval(-1.0, 1.0)
    before, after = (both + only_before) / n, (both + only_after) / n
    before_interval = wilson_interval(both + only_before, n, confidence)
    after_interval = wilson_interval(both + only_after, n, confidence)
    phi = _paired_phi(both, only_before, only_after, neither)
    change = after - before
    down = _square_and_add(after - after_interval.low, before_interval.high - before, phi)
    up = _square_and_add(after_interval.high - after, before - before_interval.low, phi)
    return Interval(max(-1.0, change - down), min(1.0, change + up))


def trend(values: Sequence[float], times: Sequence[float] | None = None) -> Trend | None:
    """Mann-Kendall trend (Mann 1945, Kendall 1975) with Theil-Sen slope (Sen 1968); None for fewer than 3 values.

    `times` must rise strictly; without it the values count as equally spaced. Exact where there is no tie and the
    series is short, else the normal curve with the variance corrected for ties.
    """
    n = len(values)
    if n < 3:
        return None
    at = list(times) if times is not None else list(range(n))
    score = 0
    slopes: list[float] = []
    for i in range(n - 1):
        for j in range(i + 1, n):
            step = values[j] - values[i]
            score += (step > 0) - (step < 0)
            slopes.append(step / (at[j] - at[i]))
    ties = [count for count in Counter(values).values() if count > 1]
    pairs = n * (n - 1) / 2
    comparable = pairs - sum(count * (count - 1) / 2 for count in ties)
    if comparable == 0:
        return Trend(0.0, 1.0, 0.0)
    tau = score / math.sqrt(pairs * comparable)
    if not ties and n <= EXACT_TREND_LIMIT:
        p_value = _exact_trend_p(n, score)
    else:
        variance = (n * (n - 1) * (2 * n + 5) - sum(t * (t - 1) * (2 * t + 5) for t in ties)) / 18
        p_value = math.erfc(abs(score) / math.sqrt(2 * variance))
    return Trend(tau, p_value, median(slopes))


def block_means(values: Sequence[float], num_blocks: int) -> list[float]:
    """Means of `num_blocks` consecutive runs of nearly equal length: averages out noise that neighbours share.

    Fewer values than blocks are returned as they are.
    """
    n = len(values)
    if n <= num_blocks:
        return list(values)
    edges = [round(index * n / num_blocks) for index in range(num_blocks + 1)]
    return [mean(values[low:high]) for low, high in itertools.pairwise(edges)]


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean. Raises ValueError when there is nothing to average."""
    if not values:
        raise ValueError("no values to average")
    return math.fsum(values) / len(values)


def median_of(values: Sequence[float]) -> float | None:
    """The middle value, None when there is none."""
    return median(values) if values else None


def _z(confidence: float) -> float:
    """Two-sided quantile of the normal curve: 1.96 for 95 %."""
    return NormalDist().inv_cdf((1 + confidence) / 2)


def _paired_phi(both: int, only_before: int, only_after: int, neither: int) -> float:
    """Correlation of the two answers; Newcombe's continuity correction applies where it is positive."""
    margins = (both + only_before) * (only_after + neither) * (both + only_after) * (only_before + neither)
    if margins == 0:
        return 0.0
    product = float(both * neither - only_before * only_after)
    if product > 0:
        n = both + only_before + only_after + neither
        product = max(product - n / 2, 0.0)
    return product / math.sqrt(margins)


def _square_and_add(first: float, second: float, phi: float) -> float:
    return math.sqrt(max(0.0, first * first - 2 * phi * first * second + second * second))


def _exact_trend_p(n: int, score: int) -> float:
    """Share of the n! orderings whose |score| is at least this one's (Kendall 1938)."""
    pairs = n * (n - 1) // 2
    counts = _orderings_by_inversions(n)
    extreme = sum(count for inversions, count in enumerate(counts) if abs(pairs - 2 * inversions) >= abs(score))
    return float(Fraction(extreme, math.factorial(n)))


@functools.lru_cache(maxsize=EXACT_TREND_LIMIT)
def _orderings_by_inversions(n: int) -> tuple[int, ...]:
    """How many orderings of n values have 0, 1, 2, ... inversions."""
    counts = [1]
    for size in range(2, n + 1):
        wider = [0] * (len(counts) + size - 1)
        for inversions, count in enumerate(counts):
            for shift in range(size):
                wider[inversions + shift] += count
        counts = wider
    return tuple(counts)
