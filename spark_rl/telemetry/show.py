"""A reading as lines of text: what `spark-rl monitor` prints. Unknown is "N/A", with its reason said once below."""

from __future__ import annotations

import time
from collections.abc import Iterable

from spark_rl.telemetry.findings import Finding
from spark_rl.telemetry.reading import REASONS, GpuReading, Reading
from spark_rl.units import NOT_AVAILABLE, format_bytes


def reading_lines(reading: Reading, standing: Iterable[Finding] = ()) -> list[str]:
    """The machine in a few lines of at most 100 columns."""
    host = reading.host
    lines = [
        time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(reading.t)),
        f"memory  {format_bytes(host.mem_available_bytes)} of {format_bytes(host.mem_total_bytes)} can be had (MemAvailable); "
        f"free {format_bytes(host.mem_free_bytes)}, page cache {format_bytes(host.page_cache_bytes)}",
        f"        swap {format_bytes(host.swap_used_bytes)} of {format_bytes(host.swap_total_bytes)}, "
        f"in {_rate(host.swap_in_bytes_per_second)}, out {_rate(host.swap_out_bytes_per_second)}; "
        f"stalled {_number(host.psi_memory_full_percent, ' %', 1)} of the time",
    ]
    if reading.headroom_source not in (None, "MemAvailable"):
        lines.append(
            f"        headroom {format_bytes(reading.headroom_bytes)} below the limit by {reading.headroom_source}"
        )
    lines.append(
        f"host    cpu {_number(host.cpu_percent, ' %')}, hottest zone {_number(host.hottest_zone_c, ' °C')}, "
        f"NVMe {_number(host.nvme_c, ' °C')}, disk free {format_bytes(host.disk_free_bytes)}"
    )
    for gpu in reading.gpus:
        lines += _gpu_lines(gpu)
    if not reading.gpus:
        lines.append(f"gpu     {NOT_AVAILABLE}: {reading.reason('gpus') or 'no GPU'}")
    for finding in standing:
        lines.append(f"{finding.severity:<8}{finding.summary}")
        if finding.advice:
            lines.append(f"        -> {finding.advice}")
    reasons: dict[str, list[str]] = {}
    for path, code in reading.missing.items():
        if path.startswith("gpus."):
            reasons.setdefault(code, []).append(path.split(".", 2)[2])
    lines += [f"N/A     {', '.join(sorted(set(names)))}: {REASONS.get(code, code)}" for code, names in reasons.items()]
    return lines


def _gpu_lines(gpu: GpuReading) -> list[str]:
    reasons = NOT_AVAILABLE if gpu.event_reasons is None else ", ".join(gpu.event_reasons) or "none"
    shared = " (the host's, by MemAvailable)" if gpu.unified else ""
    used = format_bytes(gpu.memory_used_bytes)
    limit = "" if gpu.power_limit_watts is None else f" of {gpu.power_limit_watts:.0f}"
    return [
        f"gpu{gpu.index}    {gpu.name or NOT_AVAILABLE}: busy {_number(gpu.utilization_percent, ' %')}, "
        f"{_number(gpu.temperature_c, ' °C')} ({_number(gpu.margin_c, '')} below slowdown), "
        f"{_number(gpu.power_watts, '')}{limit} W, {_number(gpu.sm_clock_mhz, ' MHz')}",
        f"        memory {used} used of {format_bytes(gpu.memory_total_bytes)}{shared}; run {format_bytes(gpu.run_memory_bytes)}, "
        f"others {format_bytes(gpu.other_memory_bytes)}; slowed by: {reasons}",
    ]


def _rate(value: float | None) -> str:
    return NOT_AVAILABLE if value is None else f"{format_bytes(value)}/s"


def _number(value: float | None, unit: str, digits: int = 0) -> str:
    return NOT_AVAILABLE if value is None else f"{value:.{digits}f}{unit}"
