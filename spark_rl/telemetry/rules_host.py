"""Rules about the machine: memory that falls, page cache, swap, other programs, sensors that are gone. Pure functions of a
window."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from spark_rl.telemetry.findings import Finding, Rule, Severity, Thresholds
from spark_rl.telemetry.reading import Reading
from spark_rl.telemetry.window import last_seconds, low_points, shown, slope
from spark_rl.units import GIB, MIB, format_bytes, format_seconds

SWAP_THRASH_BYTES = 16 * MIB
CO_TENANT_BYTES = GIB


def memory_falling(window: Sequence[Reading], thresholds: Thresholds, standing: bool) -> Finding | None:
    """Memory that will reach the floor: within minutes at the present slope, or within an hour by its low points."""
    span = [(reading.monotonic, reading.headroom_bytes) for reading in window if reading.headroom_bytes is not None]
    if len(span) < 4:
        return None
    now, headroom = span[-1]
    room = headroom - thresholds.floor_bytes
    recent = [point for point in span if now - point[0] <= 20.0]
    rate, fit = slope(recent)
    seconds = room / -rate if rate < 0 else float("inf")
    near = headroom <= 2 * thresholds.shed_bytes and len(recent) >= 4 and recent[-1][0] - recent[0][0] >= 1.0
    if near and fit >= 0.8 and recent[0][1] - headroom >= 256 * MIB and seconds <= (180 if standing else 120):
        return _falling(headroom, -rate, seconds, "severe", thresholds)
    lows = low_points(span, 60.0)
    if len(lows) >= 6:
        rate, fit = slope(lows)
        seconds = (lows[-1][1] - thresholds.floor_bytes) / -rate if rate < 0 else float("inf")
        lost = lows[0][1] - lows[-1][1]
        if fit >= 0.8 and lost >= 256 * MIB and seconds <= (7200 if standing else 3600):
            return _falling(headroom, -rate, seconds, "warning", thresholds)
    return None


def page_cache(window: Sequence[Reading], thresholds: Thresholds, standing: bool) -> Finding | None:
    """Unified memory only: file pages make CUDA's own "free" small while memory is available."""
    last = window[-1]
    host = last.host
    total, free, available, cache = (
        host.mem_total_bytes,
        host.mem_free_bytes,
        host.mem_available_bytes,
        host.page_cache_bytes,
    )
    if not last.unified or total is None or free is None or available is None or cache is None:
        return None
    scale = 0.8 if standing else 1.0
    if cache >= 0.2 * total * scale and free <= 0.15 * total / scale and available >= thresholds.shed_bytes:
        dirty = host.dirty_bytes or 0
        insist = f"; {format_bytes(dirty)} of it is dirty: sync first" if dirty >= GIB else ""
        return Finding(
            "page_cache", "host", "info",
            f"{format_bytes(available)} can be had, though only {format_bytes(free)} is free: the rest is page cache",
            {"mem_available_bytes": available, "mem_free_bytes": free, "page_cache_bytes": cache, "dirty_bytes": host.dirty_bytes},
            "nothing to do; CUDA counts the cache as used, so if an allocator refuses to start: sync; "
            f"echo 3 | sudo tee /proc/sys/vm/drop_caches{insist}",
        )  # fmt: skip
    return None


def swap_thrash(window: Sequence[Reading], thresholds: Thresholds, standing: bool) -> Finding | None:
    """The machine moves pages instead of working."""
    span = last_seconds(window, 15.0, standing)
    if not span:
        return None
    factor = 0.5 if standing else 1.0
    swapping = all(
        min(item.host.swap_in_bytes_per_second or 0, item.host.swap_out_bytes_per_second or 0)
        >= SWAP_THRASH_BYTES * factor
        for item in span
    )
    stalled = all((item.host.psi_memory_full_percent or 0) >= 10 * factor for item in span)
    if not swapping and not stalled:
        return None
    last = span[-1].host
    return Finding(
        "swap_thrash", "host", "severe",
        f"the machine is thrashing: {format_bytes(last.swap_in_bytes_per_second)}/s in, {format_bytes(last.swap_out_bytes_per_second)}/s out, "
        f"{shown(last.psi_memory_full_percent, '%')} of the time everything waits for memory",
        {
            "swap_in_bytes_per_second": last.swap_in_bytes_per_second, "swap_out_bytes_per_second": last.swap_out_bytes_per_second,
            "psi_memory_full_percent": last.psi_memory_full_percent, "swap_used_bytes": last.swap_used_bytes,
        },
        "free memory (a smaller batch, fewer generations, other programs); with swap off (sudo swapoff -a) the same "
        "shortage ends a program instead of freezing the machine for hours",
    )  # fmt: skip


def co_tenant(window: Sequence[Reading], thresholds: Thresholds, standing: bool) -> Finding | None:
    """Another program holds memory that the run counted on: on the GPU by name, or on the shared memory by difference."""
    last = window[-1]
    if last.worker is None:
        return None
    for gpu in last.gpus:
        other, total = gpu.other_memory_bytes, gpu.memory_total_bytes
        if other is not None and total and other >= max(CO_TENANT_BYTES, 0.02 * total) * (0.5 if standing else 1):
            return Finding(
                "co_tenant", f"gpu{gpu.index}", "warning",
                f"{gpu.other_process or 'another process'} is using the same GPU: {format_bytes(other)} are not the run's",
                {"other_memory_bytes": other, "process": gpu.other_process, "run_memory_bytes": gpu.run_memory_bytes},
                "one server at a time on this GPU: stop the other, or lower the run's share of memory",
            )  # fmt: skip
    if not last.unified:
        return None
    now_bytes = _not_ours(last)
    earlier = [value for reading in window[::5] if (value := _not_ours(reading)) is not None]
    if now_bytes is None or len(earlier) < 2:
        return None
    grown = now_bytes - min(earlier)
    if grown >= 4 * GIB * (0.5 if standing else 1):
        return Finding(
            "co_tenant", "host", "warning",
            f"programs beside the run took {format_bytes(grown)} of the shared memory",
            {"grown_bytes": grown, "not_ours_bytes": now_bytes},
            "ps aux --sort=-rss | head shows who; on unified memory everything they take is taken from the GPU",
        )  # fmt: skip
    return None


def sensors_lost(window: Sequence[Reading], thresholds: Thresholds, standing: bool) -> Finding | None:
    """The driver went down or hangs, or one sensor that answered before does not any more."""
    last = window[-1]
    state = last.missing.get("gpus")
    if state in ("driver_down", "driver_hangs", "driver_error"):
        return Finding(
            "dead_sensor", "gpu", "severe", f"the GPU's sensors are gone: {last.reason('gpus')}", {"state": state},
            "the memory guard goes on without them; look at dmesg for Xid lines; a hung driver usually needs a reboot",
        )  # fmt: skip
    span = last_seconds(window, 10.0, standing)
    first = window[0]
    gone = [
        path
        for path, code in last.missing.items()
        if code in ("driver_error", "stale", "not_present", "no_permission", "not_supported")
        and path not in first.missing
        and span
        and all(path in reading.missing for reading in span)
        and path.startswith(("host.", "gpus."))
    ]
    if not gone:
        return None
    return Finding(
        "dead_sensor", gone[0], "warning", f"{', '.join(gone[:3])} answered before and does not any more",
        {"paths": gone, "reasons": {path: last.missing[path] for path in gone}},
        "figures that rest on it are N/A from here on",
    )  # fmt: skip


def telemetry_gap(window: Sequence[Reading], thresholds: Thresholds, standing: bool) -> Finding | None:
    """Nobody was read for a while: the machine was wedged, suspended or starved."""
    if len(window) < 3:
        return None
    gap = window[-1].monotonic - window[-2].monotonic
    earlier = [reading.monotonic for reading in window[-12:-1]]
    usual = median(later - sooner for sooner, later in pairwise(earlier))
    if gap < max(10.0, 5 * usual):
        return None
    host = window[-2].host
    used = None
    if host.mem_total_bytes and host.mem_available_bytes is not None:
        used = round(100 * (1 - host.mem_available_bytes / host.mem_total_bytes), 1)
    return Finding(
        "telemetry_gap", "host", "severe" if used is not None and used > 90 else "warning",
        f"no reading for {format_seconds(gap)}; {shown(used, '%')} of memory was in use before",
        {"gap_seconds": round(gap, 1), "used_percent_before": used},
        "the machine was frozen or suspended; at high memory use it was out of memory: lower the run's peak",
    )  # fmt: skip


def disk_low(window: Sequence[Reading], thresholds: Thresholds, standing: bool) -> Finding | None:
    """The folder of the run is about to be full."""
    free = window[-1].host.disk_free_bytes
    if free is None or free >= thresholds.disk_low_bytes * (1.2 if standing else 1):
        return None
    return Finding(
        "disk_low", "host", "warning", f"{format_bytes(free)} left where the run writes", {"disk_free_bytes": free},
        "delete old checkpoints or move runs: --runs DIR",
    )  # fmt: skip


HOST_RULES: tuple[Rule, ...] = (
    memory_falling, page_cache, swap_thrash, co_tenant, sensors_lost, telemetry_gap, disk_low,
)  # fmt: skip


def _falling(headroom: int, rate: float, seconds: float, severity: Severity, thresholds: Thresholds) -> Finding:
    return Finding(
        "memory_falling", "host", severity,
        f"memory falls by {format_bytes(rate * 60)} a minute: {format_bytes(headroom)} left, the floor of "
        f"{format_bytes(thresholds.floor_bytes)} in {format_seconds(max(0.0, seconds))}",
        {"headroom_bytes": headroom, "bytes_per_second": round(rate), "seconds_to_floor": round(max(0.0, seconds), 1)},
        "a steady fall is a leak or a growing cache: save, then lower num_generations, completion length or micro-batch",
    )  # fmt: skip


def _not_ours(reading: Reading) -> int | None:
    """Memory in use that belongs neither to the run's processes nor to its GPU allocations; None when unknown."""
    host, worker = reading.host, reading.worker
    if host.mem_total_bytes is None or host.mem_available_bytes is None or worker is None or worker.rss_bytes is None:
        return None
    on_gpu = [gpu.run_memory_bytes for gpu in reading.gpus]
    if any(size is None for size in on_gpu):
        return None
    return host.mem_total_bytes - host.mem_available_bytes - worker.rss_bytes - sum(size or 0 for size in on_gpu)
