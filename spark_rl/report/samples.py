"""Which completions a reader should see: both tails and the middle, and what changed on held-out prompts.

In: scored rows as the run keeps them. Out: frozen views with text made safe. The choice is the same every time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from spark_rl.report.text import visible

Fate = Literal["gained", "lost", "still wrong", "still right"]

SHOWN_FATES: tuple[tuple[Fate, int], ...] = (("gained", 3), ("lost", 3), ("still wrong", 2), ("still right", 1))
"""How many held-out prompts of each kind are shown: what changed, then what did not."""


@dataclass(frozen=True)
class PartView:
    name: str
    value: float | None
    reason: str


@dataclass(frozen=True)
class SampleView:
    """One completion as the page shows it."""

    prompt: str
    completion: str
    total: float | None
    correct: bool | None
    parts: tuple[PartView, ...]

    @property
    def verdict(self) -> str:
        return {True: "right", False: "wrong", None: "not judged"}[self.correct]


@dataclass(frozen=True)
class HeldoutView:
    """One held-out prompt before and after training."""

    fate: Fate
    before: SampleView
    after: SampleView


def sample_view(row: Mapping[str, Any]) -> SampleView:
    """A row of samples/ or eval/, whatever is missing in it."""
    parts = row.get("parts")
    correct = row.get("correct")
    return SampleView(
        prompt=visible(str(row.get("prompt") or "")),
        completion=visible(str(row.get("completion") or "")),
        total=_number(row.get("total")),
        correct=correct if isinstance(correct, bool) else None,
        parts=tuple(_part_view(name, part) for name, part in parts.items()) if isinstance(parts, Mapping) else (),
    )


def choose_samples(rows: Sequence[Mapping[str, Any]], count: int = 6) -> tuple[SampleView, ...]:
    """The best, the worst and the middle of a step, from as many prompts as possible, best first."""
    views = [sample_view(row) for row in rows]
    ranked = sorted(views, key=lambda view: -(view.total if view.total is not None else float("-inf")))
    if len(ranked) <= count:
        return tuple(ranked)
    third, middle = count // 3, len(ranked) // 2
    wanted = [*range(len(ranked))[: count - 2 * third], *range(middle, middle + third), *range(len(ranked))[-third:]]
    chosen: list[int] = []
    for index in wanted:
        chosen.append(_other_prompt(ranked, index, chosen))
    return tuple(ranked[index] for index in sorted(chosen))


def heldout_views(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> tuple[HeldoutView, ...]:
    """Some held-out prompts with both answers, grouped by what became of them. Rows are of the same prompts, in order."""
    views: dict[Fate, list[HeldoutView]] = {fate: [] for fate, _ in SHOWN_FATES}
    for first, second in zip(before, after, strict=False):
        if first.get("prompt") == second.get("prompt"):
            was, now = sample_view(first), sample_view(second)
            views[_fate(was, now)].append(HeldoutView(_fate(was, now), was, now))
    return tuple(view for fate, count in SHOWN_FATES for view in views[fate][:count])


def _other_prompt(ranked: Sequence[SampleView], index: int, chosen: Sequence[int]) -> int:
    """The nearest sample of equal total whose prompt is not shown yet, else the nearest that is not chosen."""
    seen = {ranked[at].prompt for at in chosen}
    near = sorted(range(len(ranked)), key=lambda at: abs(at - index))
    for at in near:
        if at not in chosen and ranked[at].total == ranked[index].total and ranked[at].prompt not in seen:
            return at
    return next(at for at in near if at not in chosen)


def _fate(before: SampleView, after: SampleView) -> Fate:
    if after.correct is True:
        return "still right" if before.correct is True else "gained"
    return "lost" if before.correct is True else "still wrong"


def _part_view(name: object, part: object) -> PartView:
    fields = part if isinstance(part, Mapping) else {}
    value = _number(fields.get("value"))
    return PartView(visible(str(name), 80), value, visible(str(fields.get("reason") or ""), 300))


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
