"""A log as the symptoms read it: early against late, the reward's course, the share of groups without signal.

In: a `Log`. Out: a frozen `View` with what several symptoms need, worked out once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Literal, TypeVar

from spark_rl.diagnose.context import Context
from spark_rl.diagnose.finding import MAX_EVIDENCE, Evidence
from spark_rl.metrics import Log, Row, part_key
from spark_rl.metrics.groups import CEILING_SHARE, FLOOR_SHARE, NUM_GROUPS, PLATEAU_SHARE, ZERO_SHARE
from spark_rl.stats import Trend, block_means, mean, trend

MIN_ROWS = 6
"""Fewer rows have no early and late part to compare."""

NUM_BLOCKS = 20
"""Rows are averaged to at most this many before a trend is tested: neighbours share their noise."""

SURE = 0.01
PROBABLE = 0.05
HINT = 0.2
"""p-values (two-sided) that earn the words "surely", "probably" and "perhaps"; the last is 1 in 10 in one direction."""

FALL = 0.1
"""Two-sided p-value of the fall after a peak: 1 in 20 in its direction."""

NUM_PEAK_BLOCKS = 10

HIDDEN_GAIN = 0.1
"""A gain in held-out success that an interval around nothing may hide; a wider one comes of too few prompts and shows nothing."""

ZERO = 1e-6
"""Below this a printed spread or loss counts as 0 (logs round to 4-8 digits)."""

T = TypeVar("T")

Direction = Literal["improving", "falling", "late_fall", "flat", "too_few"]

MIN_TREND_ROWS = 8
"""With 7 rows even a perfectly rising series could be chance once in 2,520; with noise nothing shows."""


@dataclass(frozen=True)
class Course:
    """Where a series went, and how sure that is."""

    direction: Direction
    p_value: float | None
    early: float | None
    """Mean of the first quarter."""
    late: float | None
    """Mean of the last quarter."""
    peak: float | None = None
    """Highest of ten block means."""
    peak_step: int | None = None

    @property
    def sureness(self) -> str:
        """How sure the direction is, as an adverb."""
        if self.p_value is None:
            return "perhaps"
        return "surely" if self.p_value < SURE else "probably" if self.p_value < PROBABLE else "perhaps"


@dataclass(frozen=True)
class View:
    """One log with its context."""

    log: Log
    context: Context

    @property
    def rows(self) -> tuple[Row, ...]:
        return self.log.rows

    @cached_property
    def reward_key(self) -> str | None:
        """The column that stands for the reward: `reward`, or the only part there is."""
        if self.log.values("reward"):
            return "reward"
        parts = [part_key(name) for name in self.log.part_names]
        return parts[0] if len(parts) == 1 else None

    @cached_property
    def is_grpo(self) -> bool:
        return any(key == "reward" or key.startswith("rewards/") for key in self.log.names())

    @cached_property
    def reward_course(self) -> Course:
        return course(self.log.series(self.reward_key)) if self.reward_key else Course("too_few", None, None, None)

    @cached_property
    def zero_shares(self) -> list[tuple[int, float]]:
        """(step, share of groups whose completions all scored the same): counted from the completions where they are
        saved; else TRL's frac_reward_zero_std, which is a lower bound; 1 where reward_std is 0, whatever TRL says."""
        shares = []
        for row in self.rows:
            share, spread = row.get(ZERO_SHARE), row.get("reward_std")
            if share is None:
                share = row.get("frac_reward_zero_std")
                if spread is not None:
                    share = 1.0 if abs(spread) < ZERO else share or 0.0
            if share is not None:
                shares.append((row.step, share))
        return shares

    @cached_property
    def group_counts(self) -> dict[str, int] | None:
        """Groups without signal over the whole run by where they score; None when completions are not saved."""
        rows = [row for row in self.rows if ZERO_SHARE in row.values]
        if not rows:
            return None
        return {
            place: round(sum(row.values[key] * row.values[NUM_GROUPS] for row in rows))
            for place, key in (("floor", FLOOR_SHARE), ("ceiling", CEILING_SHARE), ("plateau", PLATEAU_SHARE))
        }

    @cached_property
    def heldout_rose(self) -> bool | None:
        """Whether held-out success rose; None where it was not measured, or on too few prompts to tell."""
        change = self.context.heldout_change
        if change is None:
            return None
        return True if change[0] > 0 else False if change[1] < HIDDEN_GAIN else None

    @cached_property
    def late_zero_share(self) -> float | None:
        """Mean share over the last quarter."""
        shares = [share for _, share in self.zero_shares]
        return mean(late(shares)) if shares else None

    @cached_property
    def cap(self) -> int | None:
        """max_completion_length: from the recipe, else what the longest completions keep being cut to."""
        if self.context.max_completion_length is not None:
            return self.context.max_completion_length
        longest = self.log.values("completions/max_length") or self.log.values("completions/mean_length")
        if not longest:
            return None
        top = max(longest)
        at_top = sum(value == top for value in longest)
        # A cut length comes back exactly; a longest answer that merely happened does not.
        return int(top) if top == int(top) and at_top >= max(2, len(longest) / 20) else None

    def evidence(self, key: str, steps: list[int]) -> tuple[Evidence, ...]:
        """The rows at these steps, thinned to a readable number, first and last kept."""
        values = {row.step: row.get(key) for row in self.rows}
        known = [step for step in steps if step in values]
        return tuple(Evidence(step, key, values[step]) for step in thin(known, MAX_EVIDENCE))

    def ends(self, key: str) -> tuple[Evidence, ...]:
        """The first, middle and last known value of a column."""
        series = self.log.series(key)
        return tuple(Evidence(step, key, value) for step, value in thin(series, 3))


def early(values: list[T]) -> list[T]:
    """The first 5 %, at least one and at most ten values: before much has happened."""
    return values[: min(10, max(1, len(values) // 20))]


def late(values: list[T]) -> list[T]:
    """The last quarter, at least three values."""
    return values[-max(3, len(values) // 4) :]


def thin(items: list[T], limit: int) -> list[T]:
    """At most `limit` items, evenly spread, first and last among them."""
    if len(items) <= limit:
        return list(items)
    return [items[round(index * (len(items) - 1) / (limit - 1))] for index in range(limit)]


def series_trend(series: list[tuple[int, float]]) -> Trend | None:
    """Mann-Kendall on block means."""
    return trend(block_means([value for _, value in series], NUM_BLOCKS))


def course(series: list[tuple[int, float]]) -> Course:
    """Where a series went. A rise that was lost again afterwards is a late fall, not flat."""
    values = [value for _, value in series]
    n = len(values)
    if n < MIN_TREND_ROWS:
        return Course("too_few", None, values[0] if values else None, values[-1] if values else None)
    quarter = max(2, n // 4)
    first, last = mean(values[:quarter]), mean(values[-quarter:])
    blocks = block_means(values, NUM_PEAK_BLOCKS)
    top = max(range(len(blocks)), key=blocks.__getitem__)
    peak_step = series[min(n - 1, int((top + 0.5) * n / len(blocks)))][0]
    whole = series_trend(series)
    assert whole is not None  # n >= MIN_TREND_ROWS
    fall_p = _fall_after_peak(series, top, len(blocks))
    # A dip after a large gain is still a gain.
    if fall_p is not None and blocks[top] - last > (blocks[top] - first) / 3:
        return Course("late_fall", fall_p, first, last, blocks[top], peak_step)
    direction: Direction = "flat"
    if whole.p_value < HINT and whole.tau != 0:
        direction = "improving" if whole.tau > 0 else "falling"
    return Course(direction, whole.p_value, first, last, blocks[top], peak_step)


def _fall_after_peak(series: list[tuple[int, float]], top: int, num_blocks: int) -> float | None:
    """p-value of the fall from the peak block on, where a rise up to it is probable; else None.

    In series of pure noise this is not None about once in fifty (simulated, 50 to 250 rows).
    """
    n = len(series)
    before, after = series[: round((top + 1) * n / num_blocks)], series[round(top * n / num_blocks) :]
    if min(len(before), len(after)) < MIN_TREND_ROWS:
        return None
    rise, fall = series_trend(before), series_trend(after)
    if rise is None or fall is None:
        return None
    is_peak = rise.tau > 0 and rise.p_value < PROBABLE and fall.tau < 0 and fall.p_value < FALL
    return fall.p_value if is_peak else None


def middle(values: list[float]) -> float | None:
    """Median, None for nothing."""
    return median(values) if values else None
