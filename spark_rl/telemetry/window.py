"""Windows of readings: the stretch a rule looks at, and the few statistics rules need. Pure functions; unknown stays None."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from spark_rl.telemetry.reading import GpuReading, Reading


def last_seconds(window: Sequence[Reading], seconds: float, standing: bool) -> Sequence[Reading]:
    """The last `seconds` of readings; [] when the window does not reach back that far (a third does for what stands)."""
    now = window[-1].monotonic
    wanted = seconds / 3 if standing else seconds
    if now - window[0].monotonic < 0.9 * wanted:
        return []
    first = len(window)
    while first > 0 and now - window[first - 1].monotonic <= wanted:
        first -= 1
    return window[first:] if len(window) - first >= 2 else []


def gpu_of(reading: Reading, index: int) -> GpuReading | None:
    return next((gpu for gpu in reading.gpus if gpu.index == index), None)


def median_of(span: Sequence[GpuReading], name: str) -> float | None:
    values: list[float] = [value for item in span if (value := getattr(item, name)) is not None]
    return median(values) if values else None


def all_of(span: Sequence[GpuReading], name: str, holds: Callable[[float], bool]) -> bool:
    values = [getattr(item, name) for item in span]
    return all(value is not None and holds(value) for value in values)


def share_of(span: Sequence[GpuReading], holds: Callable[[GpuReading], bool]) -> float | None:
    known = [item for item in span if item.event_reasons is not None]
    return round(sum(map(holds, known)) / len(known), 3) if known else None


def counter_share(window: Sequence[Reading], index: int, name: str, seconds: float) -> float | None:
    """Share of the last `seconds` by which an accumulated counter (microseconds) grew."""
    points = [
        (reading.monotonic, value)
        for reading in last_seconds(window, seconds, False)
        if (gpu := gpu_of(reading, index)) and (value := getattr(gpu, name)) is not None
    ]
    if len(points) < 2 or points[-1][0] - points[0][0] < seconds / 2:
        return None
    grown_us: float = max(0, points[-1][1] - points[0][1])
    return round(grown_us / 1e6 / (points[-1][0] - points[0][0]), 3)


def slope(points: Sequence[tuple[float, int]]) -> tuple[float, float]:
    """(bytes per second, r^2) of the least-squares line."""
    count = len(points)
    if count < 2:
        return 0.0, 0.0
    mean_x = sum(x for x, _ in points) / count
    mean_y = sum(y for _, y in points) / count
    xx = sum((x - mean_x) ** 2 for x, _ in points)
    yy = sum((y - mean_y) ** 2 for _, y in points)
    xy = sum((x - mean_x) * (y - mean_y) for x, y in points)
    return (xy / xx, xy * xy / (xx * yy)) if xx > 0 and yy > 0 else (0.0, 0.0)


def low_points(points: Sequence[tuple[float, int]], seconds: float) -> list[tuple[float, int]]:
    """The lowest point of every full interval: what a run that breathes at every step really needs."""
    lows: dict[int, tuple[float, int]] = {}
    start = points[0][0]
    for moment, value in points:
        bucket = int((moment - start) // seconds)
        if bucket not in lows or value < lows[bucket][1]:
            lows[bucket] = (moment, value)
    return [lows[bucket] for bucket in sorted(lows)]


def shown(value: float | None, unit: str) -> str:
    return "N/A" if value is None else f"{value:.0f} {unit}"
