"""Energy of a stretch of a run: per training step and per 1,000 completion tokens, from telemetry and metrics rows.

In: readings and the times of steps. Out: joules, and whether the driver counted them or power was integrated here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from spark_rl.telemetry.reading import Reading


@dataclass(frozen=True)
class Energy:
    joules: float
    source: Literal["counted", "integrated"]
    """From the driver's energy counter, or power times time between readings."""


@dataclass(frozen=True)
class EnergyReport:
    """All None when no GPU tells its power or its energy."""

    total: Energy | None
    joules_per_step: float | None
    joules_per_1000_tokens: float | None


def energy_between(readings: Sequence[Reading], start: float, end: float) -> Energy | None:
    """Energy of all GPUs between two UTC times; None when fewer than two readings lie there or none tells.
    A counter that was reset (driver reloaded) is not used."""
    span = [reading for reading in readings if start <= reading.t <= end and reading.gpus]
    if len(span) < 2:
        return None
    counted = 0.0
    for first, last in zip(span[0].gpus, span[-1].gpus, strict=False):
        if first.energy_joules is None or last.energy_joules is None or last.energy_joules < first.energy_joules:
            break
        counted += last.energy_joules - first.energy_joules
    else:
        # The counter is read every two seconds: over a short stretch its steps would be most of the figure.
        if span[-1].t - span[0].t >= 10 and counted > 0:
            return Energy(counted * (end - start) / (span[-1].t - span[0].t), "counted")
    joules = covered = 0.0
    for sooner, later in pairwise(span):
        powers = [
            (a.power_watts + b.power_watts) / 2
            for a, b in zip(sooner.gpus, later.gpus, strict=False)
            if a.power_watts is not None and b.power_watts is not None
        ]
        if powers:
            joules += sum(powers) * (later.t - sooner.t)
            covered += later.t - sooner.t
    return Energy(joules * (end - start) / covered, "integrated") if covered > 0 else None


def energy_of_run(readings: Sequence[Reading], metrics: Sequence[Mapping[str, Any]]) -> EnergyReport:
    """Energy from the first to the last logged step, per step and per 1,000 completion tokens.

    Tokens are those the engine counted (`rollout/num_tokens`, absent in steps that train on an earlier rollout); a run
    whose engine counts none has no figure per token.
    """
    rows = [row for row in metrics if isinstance(row.get("t"), int | float)]
    if len(rows) < 2:
        return EnergyReport(None, None, None)
    total = energy_between(readings, float(rows[0]["t"]), float(rows[-1]["t"]))
    if total is None:
        return EnergyReport(None, None, None)
    tokens = sum(float(row.get("rollout/num_tokens") or 0) for row in rows[1:])
    return EnergyReport(total, total.joules / (len(rows) - 1), total.joules / tokens * 1000 if tokens > 0 else None)
