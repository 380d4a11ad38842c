"""How a reward's verdicts compare with labels: the numbers a person needs before trusting a reward.

In: scores and labels, row by row. Out: a frozen summary; unknown labels and rows without a verdict are counted apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spark_rl.rewards.base import RewardPart
from spark_rl.rewards.composite import Scored


@dataclass(frozen=True)
class PartSummary:
    """One part over a file."""

    name: str
    mean: float | None
    """Mean over the rows where the part applies."""
    num_applies: int
    num_none: int
    num_bugs: int
    num_full: int
    """Rows where the part reaches its full value of 1."""
    constant: float | None
    """The one value that every row has, when there is only one: such a part teaches nothing."""


@dataclass(frozen=True)
class Agreement:
    """Verdict "correct" against a label."""

    num_rows: int
    num_compared: int
    num_agree: int
    true_positive_rate: float | None
    true_negative_rate: float | None
    disagreements: tuple[int, ...]
    """Row numbers, from 0."""

    @property
    def percent(self) -> float | None:
        return None if not self.num_compared else 100.0 * self.num_agree / self.num_compared


def summarise_parts(parts: Sequence[RewardPart], scored: Sequence[Scored]) -> list[PartSummary]:
    """One summary per part, in the order of the task."""
    summaries = []
    for part in parts:
        verdicts = [one.parts[part.name] for one in scored]
        values = [verdict.value for verdict in verdicts if verdict.value is not None]
        bugs = sum(verdict.is_bug for verdict in verdicts)
        summaries.append(
            PartSummary(
                name=part.name,
                mean=sum(values) / len(values) if values else None,
                num_applies=len(values),
                num_none=len(verdicts) - len(values) - bugs,
                num_bugs=bugs,
                num_full=sum(value >= 1.0 for value in values),
                constant=values[0] if len(values) > 1 and len(set(values)) == 1 else None,
            )
        )
    return summaries


def as_label(value: Any) -> bool | None:
    """A label column's value as correct or not; None when it says neither."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float):
        return value > 0
    word = str(value).strip().casefold()
    if word in ("true", "1", "yes", "correct", "right", "agree", "pass"):
        return True
    if word in ("false", "0", "no", "incorrect", "wrong", "disagree", "fail"):
        return False
    return None


def compare(said: Sequence[bool | None], labels: Sequence[bool | None]) -> Agreement:
    """Agreement over the rows that have both a verdict and a label."""
    both = [
        (row, one, label) for row, (one, label) in enumerate(zip(said, labels, strict=True)) if None not in (one, label)
    ]
    positives = [one for _, one, label in both if label]
    negatives = [one for _, one, label in both if not label]
    wrong = tuple(row for row, one, label in both if one != label)
    return Agreement(
        num_rows=len(labels),
        num_compared=len(both),
        num_agree=len(both) - len(wrong),
        true_positive_rate=sum(map(bool, positives)) / len(positives) if positives else None,
        true_negative_rate=sum(not one for one in negatives) / len(negatives) if negatives else None,
        disagreements=wrong,
    )
