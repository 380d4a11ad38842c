"""What the saved completions of each step say about its groups: how many are solved, failed, or alike between.

In: a run's samples folder and the group size. Out: columns to add to a `Log`. TRL's own `frac_reward_zero_std` compares
a 32-bit deviation with 0 to 1e-8, so groups that all scored 1.2 count as different; this one compares the scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from spark_rl.metrics.log import Log, Row
from spark_rl.metrics.readers import decode, json_lines

SAME = 1e-6
"""Totals closer than this are the same score."""

BOTTOM = 0.1
"""Share of the range of totals that counts as its bottom."""

ZERO_SHARE = "groups/zero_share"
FLOOR_SHARE = "groups/floor_share"
CEILING_SHARE = "groups/ceiling_share"
PLATEAU_SHARE = "groups/plateau_share"
NUM_GROUPS = "groups/count"
CORRECT = "correct"


@dataclass(frozen=True)
class StepSamples:
    """The completions of one step, as they were scored."""

    step: int
    rows: tuple[Mapping[str, Any], ...]
    """prompt, completion, total, correct, parts."""


def read_samples(folder: Path) -> list[StepSamples]:
    """Every step's completions, in order of steps; unreadable lines are left out."""
    steps = []
    for path in sorted(folder.glob("*.jsonl")):
        if path.stem.isdigit():
            steps.append(StepSamples(int(path.stem), tuple(read_sample_file(path))))
    return sorted(steps, key=lambda samples: samples.step)


def read_sample_file(path: Path) -> list[Mapping[str, Any]]:
    """The rows of one file of completions; none when it is not there."""
    try:
        data = path.read_bytes()
    except OSError:
        return []
    return [row for row in json_lines(decode(data))[0] if "completion" in row]


def groups_of(rows: Sequence[Mapping[str, Any]], num_generations: int) -> list[list[Mapping[str, Any]]]:
    """Completions of one prompt each, `num_generations` at a time; a prompt drawn twice makes two groups."""
    by_prompt: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_prompt.setdefault(str(row.get("prompt")), []).append(row)
    size = max(1, num_generations)
    return [same[start : start + size] for same in by_prompt.values() for start in range(0, len(same), size)]


def group_columns(steps: Sequence[StepSamples], num_generations: int) -> dict[int, dict[str, float]]:
    """Per step: share of groups that are alike, split by where, and the share of correct completions."""
    totals = [total for samples in steps for row in samples.rows if (total := _total(row)) is not None]
    bottom = min(totals) + BOTTOM * (max(totals) - min(totals)) if totals else 0.0
    return {samples.step: _columns(samples, num_generations, bottom) for samples in steps if samples.rows}


def with_columns(log: Log, columns: Mapping[int, Mapping[str, float]]) -> Log:
    """The log with columns added to the steps it has; what a row holds already is kept."""
    rows = tuple(Row(row.step, {**columns.get(row.step, {}), **row.values}, row.nonfinite) for row in log.rows)
    return replace(log, rows=rows)


def _columns(samples: StepSamples, num_generations: int, bottom: float) -> dict[str, float]:
    groups = groups_of(samples.rows, num_generations)
    places = [_place(group, bottom) for group in groups]
    shares = {key: places.count(key) / len(groups) for key in (FLOOR_SHARE, CEILING_SHARE, PLATEAU_SHARE)}
    columns = {NUM_GROUPS: float(len(groups)), ZERO_SHARE: sum(shares.values()), **shares}
    judged = [row["correct"] for row in samples.rows if isinstance(row.get("correct"), bool)]
    if judged:
        columns[CORRECT] = sum(judged) / len(judged)
    return columns


def _place(group: Sequence[Mapping[str, Any]], bottom: float) -> str | None:
    """Where a group without spread lies; None for a group with spread, or too small or unscored to tell."""
    totals = [_total(row) for row in group]
    known = [total for total in totals if total is not None]
    if len(known) < 2 or max(known) - min(known) > SAME:
        return None
    if all(row.get("correct") is True for row in group):
        return CEILING_SHARE
    return FLOOR_SHARE if known[0] <= bottom else PLATEAU_SHARE


def _total(row: Mapping[str, Any]) -> float | None:
    total = row.get("total")
    return float(total) if isinstance(total, int | float) and not isinstance(total, bool) else None
