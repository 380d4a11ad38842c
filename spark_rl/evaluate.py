"""Did held-out success change? Compares the same prompts before and after training.

In: one bool a prompt, before and after, in the same order; greedy counts beside them. Out: a frozen `Evaluation`
with intervals and an exact paired test. Pure; the worker does the sampling.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spark_rl.errors import RunDirError
from spark_rl.stats import Interval, mcnemar_exact, paired_difference_interval, wilson_interval
from spark_rl.units import format_share


@dataclass(frozen=True)
class Outcome:
    """Held-out success of one model: one sample a prompt at the run's temperature."""

    successes: int
    n: int
    greedy_successes: int | None = None
    """Of the same prompts with greedy decoding; reported beside, never instead."""

    @property
    def rate(self) -> float:
        return self.successes / self.n

    @property
    def interval(self) -> Interval:
        """Wilson, 95 %."""
        return wilson_interval(self.successes, self.n)

    def to_json(self) -> dict[str, Any]:
        interval = self.interval
        return {
            "successes": self.successes,
            "n": self.n,
            "rate": self.rate,
            "low": interval.low,
            "high": interval.high,
            "greedy_successes": self.greedy_successes,
        }

    def to_text(self) -> str:
        interval = self.interval
        return f"{self.successes}/{self.n} = {format_share(self.rate)} (95 % interval {format_share(interval.low)} to {format_share(interval.high)})"


@dataclass(frozen=True)
class Paired:
    """The change on the same prompts."""

    both: int
    gained: int
    """Wrong before, right after."""
    lost: int
    """Right before, wrong after."""
    neither: int

    @property
    def n(self) -> int:
        return self.both + self.gained + self.lost + self.neither

    @property
    def change(self) -> float:
        """Share after minus share before."""
        return (self.gained - self.lost) / self.n

    @property
    def interval(self) -> Interval:
        """Of the change, 95 % (Newcombe, paired)."""
        return paired_difference_interval(self.both, self.lost, self.gained, self.neither)

    @property
    def p_value(self) -> float:
        """Exact McNemar, two-sided."""
        return mcnemar_exact(self.lost, self.gained)


@dataclass(frozen=True)
class Evaluation:
    """Before, after where there is one, and the paired comparison."""

    before: Outcome
    after: Outcome | None = None
    paired: Paired | None = None

    def to_json(self) -> dict[str, Any]:
        paired = self.paired
        return {
            "before": self.before.to_json(),
            "after": self.after.to_json() if self.after else None,
            "p_value": paired.p_value if paired else None,
            "change": paired.change if paired else None,
            "change_low": paired.interval.low if paired else None,
            "change_high": paired.interval.high if paired else None,
            "gained": paired.gained if paired else None,
            "lost": paired.lost if paired else None,
        }

    def to_text(self) -> str:
        """Lines for a terminal."""
        lines = [f"before  {self.before.to_text()}"]
        if self.after is None or self.paired is None:
            lines.append("after   not evaluated yet")
        else:
            interval = self.paired.interval
            lines += [
                f"after   {self.after.to_text()}",
                f"change  {100 * self.paired.change:+.1f} points "
                f"(95 % interval {100 * interval.low:+.1f} to {100 * interval.high:+.1f}), "
                f"{self.paired.gained} gained, {self.paired.lost} lost, exact McNemar p = {self.paired.p_value:.2g}",
            ]
        greedy = [_greedy_text(outcome) for outcome in (self.before, self.after) if outcome is not None]
        if any(greedy):
            lines.append("greedy  " + " -> ".join(text or "N/A" for text in greedy))
        return "\n".join(lines)


def compare(
    before: Sequence[bool],
    after: Sequence[bool] | None = None,
    greedy_before: int | None = None,
    greedy_after: int | None = None,
) -> Evaluation:
    """Success on the same prompts in the same order. Raises ValueError when the lengths differ or nothing was asked."""
    if not before:
        raise ValueError("an evaluation needs at least one prompt")
    first = Outcome(sum(before), len(before), greedy_before)
    if after is None:
        return Evaluation(first)
    if len(after) != len(before):
        raise ValueError(f"{len(before)} answers before and {len(after)} after: not the same prompts")
    pairs = list(zip(before, after, strict=True))
    paired = Paired(
        both=sum(b and a for b, a in pairs),
        gained=sum(a and not b for b, a in pairs),
        lost=sum(b and not a for b, a in pairs),
        neither=sum(not b and not a for b, a in pairs),
    )
    return Evaluation(first, Outcome(sum(after), len(after), greedy_after), paired)


def evaluation_from_saved(saved: Mapping[str, Any]) -> Evaluation:
    """The comparison anew from a run's saved per-prompt results (eval.json). Raises RunDirError when they are broken."""
    before, after = saved.get("before"), saved.get("after")
    if not isinstance(before, Mapping):
        raise RunDirError("eval.json holds no result of the model before training")
    try:
        return compare(
            [bool(right) for right in before["correct"]],
            [bool(right) for right in after["correct"]] if isinstance(after, Mapping) else None,
            before.get("greedy_successes"),
            after.get("greedy_successes") if isinstance(after, Mapping) else None,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RunDirError(f"eval.json cannot be used: {error}") from None


def _greedy_text(outcome: Outcome) -> str | None:
    count = outcome.greedy_successes
    return None if count is None else f"{count}/{outcome.n} = {format_share(count / outcome.n)}"
