"""What a run's telemetry comes to, in a few lines for a report: lowest headroom, hottest moment, energy, bandwidth.

In: telemetry.jsonl, read line by line (a day has 43,000 rows), and the metrics rows. Out: (label, words) pairs; what was
not measured is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from spark_rl.telemetry.energy import energy_of_run
from spark_rl.telemetry.reading import GpuReading, Reading
from spark_rl.units import format_bytes


def summary_of_run(telemetry: Path, metrics: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Facts about the machine during the run; [] when nothing was recorded."""
    lowest: tuple[int, str] | None = None
    hottest: tuple[float, float | None] | None = None
    bandwidth: Mapping[str, Any] | None = None
    powered: list[Reading] = []
    for row in _rows(telemetry):
        headroom = row.get("headroom_bytes")
        if isinstance(headroom, int) and (lowest is None or headroom < lowest[0]):
            lowest = (headroom, str(row.get("headroom_source")))
        measured = row.get("bandwidth")
        if isinstance(measured, dict) and isinstance(measured.get("bytes_per_second"), int | float):
            bandwidth = measured
        gpus = [gpu for gpu in row.get("gpus") or () if isinstance(gpu, dict)]
        for gpu in gpus:
            celsius = gpu.get("temperature_c")
            if isinstance(celsius, int | float) and (hottest is None or celsius > hottest[0]):
                hottest = (celsius, _number(gpu.get("margin_c")))
        if gpus and isinstance(row.get("t"), int | float):
            energies = tuple(
                GpuReading(
                    index, power_watts=_number(gpu.get("power_watts")), energy_joules=_number(gpu.get("energy_joules"))
                )
                for index, gpu in enumerate(gpus)
            )
            powered.append(Reading(t=float(row["t"]), monotonic=float(row["t"]), gpus=energies))
    facts: list[tuple[str, str]] = []
    if lowest is not None:
        facts.append(("Lowest headroom", f"{format_bytes(lowest[0])} ({lowest[1]})"))
    if hottest is not None:
        margin = "" if hottest[1] is None else f", {hottest[1]:.0f} below slowdown"
        facts.append(("Hottest", f"{hottest[0]:.0f} °C{margin}"))
    if bandwidth is not None:
        facts.append(
            ("Memory bandwidth", f"{bandwidth['bytes_per_second'] / 1e9:.1f} GB/s, {str(bandwidth.get('source'))[:20]}")
        )
    energy = energy_of_run(powered, metrics)
    if energy.total is not None and energy.joules_per_step is not None:
        words = f"{energy.total.joules / 1000:.1f} kJ {energy.total.source}, {energy.joules_per_step:.0f} J a step"
        if energy.joules_per_1000_tokens is not None:
            words += f", {energy.joules_per_1000_tokens:.0f} J per 1,000 completion tokens"
        facts.append(("Energy of training", words))
    return facts


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """Rows that can be read; torn and NUL-filled lines are passed over."""
    try:
        with path.open("rb") as file:
            for line in file:
                try:
                    row = json.loads(line)
                except ValueError:
                    continue
                if isinstance(row, dict):
                    yield row
    except OSError:
        return
