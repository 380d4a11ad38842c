"""Rules about one GPU: heat, clocks that are stuck low, the power limit, sensors that froze. Pure functions of a window.

Thresholds for DGX Spark come from public measurements: 58,805 busy samples of a healthy unit (SM clock never below
2197 MHz, at most 101 W and 86 °C) and reports of stuck ones (500-850 MHz, 15-20 W, no reason given).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from spark_rl.telemetry.findings import Finding, Rule, Thresholds
from spark_rl.telemetry.reading import GpuReading, Reading
from spark_rl.telemetry.window import all_of, counter_share, gpu_of, last_seconds, median_of, share_of, shown
from spark_rl.units import format_seconds

BUSY_PERCENT = 80.0
STUCK_HOLD_SECONDS = 30.0
STUCK_POWER_ONLY_SECONDS = 120.0
"""Low power at a healthy clock can also be a very small model, so it must last longer."""
GB10_STUCK_MHZ = 1400.0
GB10_STUCK_WATTS = 25.0
GB10_COOL_C = 75.0
DISCRETE_STUCK_SHARE = 0.5
"""Of the maximum SM clock: a card that is busy and neither hot nor at its power limit runs well above half."""
BENIGN_REASONS = frozenset({"GpuIdle", "ApplicationsClocksSetting", "DisplayClockSetting", "SyncBoost"})
THERMAL_REASONS = frozenset({"SwThermalSlowdown", "HwThermalSlowdown"})
HOT_BEGINS: Callable[[float], bool] = (8.0).__gt__
HOT_STANDS: Callable[[float], bool] = (10.0).__gt__
"""Margin in degrees: the healthy unit's 86 °C leave 8."""
FROZEN_SECONDS = 60.0
FROZEN_READINGS = 12


def thermal_throttling(window: Sequence[Reading], thresholds: Thresholds, standing: bool) -> Finding | None:
    """Hot, and the clock falls: said by the driver's reasons or counters, or seen as a clock that fell at a small margin."""
    for gpu, span in _per_gpu(window, 20.0, standing):
        reasons = share_of(
            span, lambda item: item.event_reasons is not None and bool(THERMAL_REASONS & set(item.event_reasons))
        )
        slowed = counter_share(window, gpu.index, "thermal_slowed_us", 20.0)
        margin = median_of(span, "margin_c")
        hot = margin is not None and margin <= (10 if standing else 6)
        told = (reasons or 0) >= (0.2 if standing else 0.5) or (slowed or 0) >= (0.02 if standing else 0.05)
        if not hot and not told:
            continue
        clock, before = median_of(span, "sm_clock_mhz"), _reference_clock(window, gpu.index)
        fell = clock is not None and before is not None and clock < (0.95 if standing else 0.92) * before
        busy = (median_of(span, "utilization_percent") or 0) >= 50
        if told or (hot and fell and busy):
            evidence = {
                "temperature_c": median_of(span, "temperature_c"),
                "margin_c": margin,
                "sm_clock_mhz": clock,
                "sm_clock_before_mhz": before,
                "share_of_readings_with_thermal_reason": reasons,
                "share_of_time_slowed": slowed,
            }
            return Finding(
                "thermal_throttling",
                f"gpu{gpu.index}",
                "severe",
                f"heat slows the GPU: {shown(evidence['temperature_c'], '°C')}, clock {shown(clock, 'MHz')} after {shown(before, 'MHz')}",
                evidence,
                "cap the clock (sudo nvidia-smi -lgc 300,2200; decoding loses nothing measurable), free the air path, "
                "reduce load on the CPU beside it; sudo nvidia-smi -rgc takes the cap back"
                if gpu.unified
                else "free the air path and check the fans; a power limit (sudo nvidia-smi -pl) trades a little speed for much heat",
            )
    return None


def stuck_low(window: Sequence[Reading], thresholds: Thresholds, standing: bool) -> Finding | None:
    """Busy and cool, nothing named as a reason, and yet a clock or a power far below what such work draws."""
    for gpu, span in _per_gpu(window, STUCK_HOLD_SECONDS, standing):
        if not all_of(span, "utilization_percent", lambda value: value >= BUSY_PERCENT):
            continue
        if any(set(item.event_reasons or ()) - BENIGN_REASONS for item in span):
            continue
        clock, power, celsius = (median_of(span, name) for name in ("sm_clock_mhz", "power_watts", "temperature_c"))
        if gpu.unified:
            cool = celsius is None or celsius < GB10_COOL_C
            slow = clock is not None and clock < GB10_STUCK_MHZ * (1.1 if standing else 1)
            weak = power is not None and power < GB10_STUCK_WATTS * (1.1 if standing else 1)
            if weak and not slow and clock is not None:
                weak = standing or _all_of_gpu(
                    window,
                    gpu.index,
                    STUCK_POWER_ONLY_SECONDS,
                    lambda item: (
                        (item.power_watts or 0) < GB10_STUCK_WATTS and (item.utilization_percent or 0) >= BUSY_PERCENT
                    ),
                )
            advice = (
                "pull the power brick from the wall and from the box for 60 s (a reboot is not enough), then fwupd for "
                "firmware; if it comes back again and again: RMA. If you locked the clocks yourself: nvidia-smi -rgc"
            )
        else:
            margin = median_of(span, "margin_c")
            cool = margin is None or margin > 15
            limit = gpu.max_sm_clock_mhz
            slow = (
                clock is not None
                and limit is not None
                and clock < limit * DISCRETE_STUCK_SHARE * (1.1 if standing else 1)
            )
            weak = False
            advice = "look for locked clocks (nvidia-smi -q -d CLOCK; sudo nvidia-smi -rgc), then for a loose power cable or a laptop on battery"
        if cool and (slow or weak):
            figures = f"{shown(clock, 'MHz')}, {shown(power, 'W')}, {shown(celsius, '°C')}"
            return Finding(
                "stuck_low",
                f"gpu{gpu.index}",
                "severe",
                f"the GPU is busy, cool and slow, and gives no reason: {figures}",
                {
                    "sm_clock_mhz": clock,
                    "power_watts": power,
                    "temperature_c": celsius,
                    "utilization_percent": median_of(span, "utilization_percent"),
                    "event_reasons": list(span[-1].event_reasons or ()),
                    "healthy": "2200-2500 MHz, 38-101 W when busy"
                    if gpu.unified
                    else f"up to {shown(gpu.max_sm_clock_mhz, 'MHz')}",
                },
                advice,
            )
    return None


def power_cap(window: Sequence[Reading], thresholds: Thresholds, standing: bool) -> Finding | None:
    """The power limit holds the clock down: ordinary at full load on a card, a fault when the supply brakes."""
    for gpu, span in _per_gpu(window, 60.0, standing):
        clock = median_of(span, "sm_clock_mhz")
        evidence = {
            "sm_clock_mhz": clock,
            "power_watts": median_of(span, "power_watts"),
            "power_limit_watts": gpu.power_limit_watts,
        }
        braked = share_of(span, lambda item: "HwPowerBrakeSlowdown" in (item.event_reasons or ())) or 0
        if braked >= (0.05 if standing else 0.2):
            return Finding(
                "power_cap", f"gpu{gpu.index}", "severe", f"the power supply brakes the GPU: {shown(clock, 'MHz')}",
                {**evidence, "share_of_readings": braked},
                "use the original 240 W brick, plugged in directly" if gpu.unified else "check the power cables and what the supply can give",
            )  # fmt: skip
        capped = share_of(span, lambda item: "SwPowerCap" in (item.event_reasons or ())) or 0
        low_below = 2000.0 if gpu.unified else 0.8 * (gpu.max_sm_clock_mhz or 0)
        if capped >= (0.5 if standing else 0.8) and clock is not None and clock < low_below:
            return Finding(
                "power_cap", f"gpu{gpu.index}", "info", f"the power limit holds the clock at {clock:.0f} MHz",
                {**evidence, "share_of_readings": capped},
                "expected at full load; nothing to do unless the limit was lowered by hand" if not gpu.unified else "expected only near 100 W; below that look at the power brick",
            )  # fmt: skip
    return None


def hot(window: Sequence[Reading], thresholds: Thresholds, standing: bool) -> Finding | None:
    """Near the temperature at which the device slows itself, which a healthy machine does not reach."""
    for gpu, span in _per_gpu(window, 30.0, standing):
        if not all_of(span, "margin_c", HOT_STANDS if standing else HOT_BEGINS):
            continue
        if thermal_throttling(window, thresholds, standing) is None:  # else it is said already, and worse
            margin, celsius = median_of(span, "margin_c"), median_of(span, "temperature_c")
            return Finding(
                "hot", f"gpu{gpu.index}", "warning",
                f"the GPU is {shown(margin, '°C')} below its slowdown temperature ({shown(celsius, '°C')})",
                {"margin_c": margin, "temperature_c": celsius, "power_watts": median_of(span, "power_watts")},
                "give it air; on DGX Spark cap the clock: sudo nvidia-smi -lgc 300,2200",
            )  # fmt: skip
    return None


def frozen_sensor(window: Sequence[Reading], thresholds: Thresholds, standing: bool) -> Finding | None:
    """A busy GPU whose power, clock, temperature and utilisation do not change by a digit, or whose energy stands still."""
    for gpu, span in _per_gpu(window, FROZEN_SECONDS, False):
        answers = {item.answered_at for item in span if item.answered_at is not None}
        if len(span) < FROZEN_READINGS or (answers and len(answers) < FROZEN_READINGS):
            continue
        if not all_of(span, "utilization_percent", lambda value: value >= 50):
            continue
        names = ("power_watts", "sm_clock_mhz", "temperature_c", "utilization_percent")
        values = {name: {getattr(item, name) for item in span} for name in names}
        known = {name: seen for name, seen in values.items() if seen != {None}}
        energies = [item.energy_joules for item in span if item.energy_joules is not None]
        energy_stands = len(energies) >= 2 and energies[0] == energies[-1] and energies[0] > 0
        if (
            "power_watts" in known and len(known) >= 3 and all(len(seen) == 1 for seen in known.values())
        ) or energy_stands:
            shown = {name: next(iter(seen)) for name, seen in known.items() if len(seen) == 1}
            return Finding(
                "frozen_sensor", f"gpu{gpu.index}", "warning",
                f"the GPU's readings have not changed by a digit for {format_seconds(FROZEN_SECONDS)} of work",
                {**shown, "energy_stands_still": energy_stands, "readings": len(span)},
                "do not trust power, clock and heat figures; restart nvidia-persistenced or reload the driver between runs",
            )  # fmt: skip
    return None


def implausible(window: Sequence[Reading], thresholds: Thresholds, standing: bool) -> Finding | None:
    """A reading no machine can have."""
    bounds: Mapping[str, tuple[float, float]] = {
        "temperature_c": (1, 130), "power_watts": (0, 2000), "sm_clock_mhz": (0, 6000), "utilization_percent": (0, 100),
    }  # fmt: skip
    span = last_seconds(window, 5.0, standing)
    for gpu in window[-1].gpus:
        for name, (low, high) in bounds.items():
            seen = [getattr(gpu_of(reading, gpu.index), name, None) for reading in span]
            if seen and all(value is not None and not low <= value <= high for value in seen):
                return Finding(
                    "dead_sensor", f"gpus.{gpu.index}.{name}", "warning", f"{name} reads {seen[-1]:g}, which cannot be",
                    {"value": seen[-1], "plausible": [low, high]}, "this figure is not to be trusted",
                )  # fmt: skip
    return None


GPU_RULES: tuple[Rule, ...] = (thermal_throttling, stuck_low, power_cap, hot, frozen_sensor, implausible)


def _per_gpu(window: Sequence[Reading], seconds: float, standing: bool) -> list[tuple[GpuReading, list[GpuReading]]]:
    span = last_seconds(window, seconds, standing)
    found = []
    for gpu in window[-1].gpus:
        readings = [item for reading in span if (item := gpu_of(reading, gpu.index)) is not None]
        if len(readings) >= 2:
            found.append((gpu, readings))
    return found


def _all_of_gpu(window: Sequence[Reading], index: int, seconds: float, holds: Callable[[GpuReading], bool]) -> bool:
    span = [item for reading in last_seconds(window, seconds, False) if (item := gpu_of(reading, index)) is not None]
    return bool(span) and all(holds(item) for item in span)


def _reference_clock(window: Sequence[Reading], index: int) -> float | None:
    """The clock this GPU ran at when busy, earlier in the window: what nine tenths of its readings did not exceed."""
    now = window[-1].monotonic
    clocks = [
        gpu.sm_clock_mhz
        for reading in window
        if now - reading.monotonic > 20.0
        and (gpu := gpu_of(reading, index))
        and gpu.sm_clock_mhz is not None
        and (gpu.utilization_percent or 0) >= 50
    ]
    return sorted(clocks)[int(0.9 * (len(clocks) - 1))] if len(clocks) >= 5 else None
