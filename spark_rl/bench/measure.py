"""Measures memory bandwidth, matrix rate and disk on this machine, judges them against its class, keeps the result.

In: nothing but the machine (a folder for the disk test can be given). Out: `BenchResult`. About five seconds on a CPU.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from spark_rl.gpu_choice import gpu_environment, pinned_uuid
from spark_rl.host import Machine, detect_host
from spark_rl.rundir import write_json
from spark_rl.telemetry.bandwidth import GB10_PEAK_BYTES_PER_SECOND

ARRAY_BYTES = 128 * 1024**2
"""A thread: far above any cache, small enough for a laptop."""
MATRIX_SIZE = 1536
DISK_BYTES = 128 * 1024**2
REPEATS = 5
GPU_SECONDS = 180
HEALTHY_READ_SHARE = 0.55
"""Of the headline bandwidth: GB10 reads 161 of 273 GB/s beside an idle engine, discrete cards 80-93 %."""
HEALTHY_MATMUL_SHARE = 0.55
"""Of the published dense rate: healthy GB10 reaches 91 of 125 TFLOPS, a unit stuck at low power 36."""
BUSY_LOAD_PER_CORE = 0.7
"""Run-queue length per core above which other programs share what is measured: such figures are shown, not kept."""
SLOW_DISK_BYTES_PER_SECOND = 100e6
"""A checkpoint of a 1.5B model with optimizer state (about 18 GB) takes three minutes at this rate."""


@dataclass(frozen=True)
class BenchResult:
    """Bytes and floating-point operations per second; None = could not be measured."""

    t: float
    device: str
    """The GPU's name, or "cpu"."""
    host_read_bytes_per_second: float
    host_copy_bytes_per_second: float
    """Bytes read plus bytes written."""
    matmul_flops: float
    matmul_dtype: str
    device_read_bytes_per_second: float | None
    """Of the memory the model lives in: the GPU's, or the host's on a machine without one."""
    device_copy_bytes_per_second: float | None
    disk_write_bytes_per_second: float | None
    reference_loop_seconds: float
    """A fixed Python loop, to compare machines by."""
    notes: tuple[str, ...] = ()
    judgements: tuple[Mapping[str, Any], ...] = field(default_factory=tuple)
    """{"what", "measured", "expected_low", "expected_high", "verdict", "words"}"""
    gpu_index: int | None = None
    gpu_uuid: str | None = None
    """Which of the host's GPUs was measured; None without one."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def result_file() -> Path:
    """Where the last result is kept: under XDG_CACHE_HOME or ~/.cache."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "spark_rl" / "bench.json"


def read_result(path: Path | None = None) -> dict[str, Any] | None:
    """The last result, or None when there is none that can be read."""
    try:
        value = json.loads((path or result_file()).read_text())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def run_bench(
    disk_folder: Path,
    machine: Machine | None = None,
    keep: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> BenchResult:
    """Measure everything, judge it, write the result to `keep` (default `result_file()`); not on a machine that is busy
    with something else, which a note says."""
    machine = machine or detect_host()
    notes: list[str] = [*machine.notes]
    load = load_per_core()
    is_busy = load is not None and load > BUSY_LOAD_PER_CORE
    if is_busy:
        notes.append(f"the machine was busy (load {load:.1f} a core): these figures are low, and were not kept")
    say("memory bandwidth of the host")
    read, copy = measure_host_memory()
    say("matrix rate")
    matmul, dtype = measure_host_matmul(), "float32"
    say("disk")
    disk = measure_disk(disk_folder)
    device, device_read, device_copy = "cpu", read, copy
    if machine.kind != "cpu":
        say("GPU (in a process of its own)")
        found = measure_gpu(pinned_uuid(machine.gpu_uuid, machine.gpu_count))
        if "error" in found:
            notes.append(f"the GPU could not be measured: {found['error']}")
            device, device_read, device_copy = machine.gpu_name or "GPU", None, None  # type: ignore[assignment]
        else:
            device, matmul, dtype = found["device"], found["matmul_flops"], found["matmul_dtype"]
            device_read, device_copy = found["device_read_bytes_per_second"], found["device_copy_bytes_per_second"]
    result = BenchResult(
        t=time.time(),
        device=device,
        host_read_bytes_per_second=read,
        host_copy_bytes_per_second=copy,
        matmul_flops=matmul,
        matmul_dtype=dtype,
        device_read_bytes_per_second=device_read,
        device_copy_bytes_per_second=device_copy,
        disk_write_bytes_per_second=disk,
        reference_loop_seconds=reference_loop(),
        notes=tuple(notes),
        gpu_index=machine.gpu_index,
        gpu_uuid=machine.gpu_uuid,
    )
    result = BenchResult(**{**asdict(result), "notes": result.notes, "judgements": judge(result, machine)})
    if is_busy:
        return result
    path = keep or result_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, result.to_json())
    return result


def load_per_core() -> float | None:
    """Run-queue length over the last minute per core; None where the system does not tell."""
    try:
        return os.getloadavg()[0] / _num_cores()
    except (OSError, AttributeError):
        return None


def measure_host_memory(num_threads: int | None = None) -> tuple[float, float]:
    """(read, copy) bytes per second with every core at work, the best of several runs."""
    count = min(num_threads or _num_cores(), 16)
    sources = [np.ones(ARRAY_BYTES // 8) for _ in range(count)]
    targets = [np.empty_like(source) for source in sources]

    def read(index: int) -> None:
        # A dot product with itself reads once, vectorised; numpy lets other threads run meanwhile.
        np.dot(sources[index], sources[index])

    def copy(index: int) -> None:
        np.copyto(targets[index], sources[index])

    size = ARRAY_BYTES * count
    return size / _best_of_threads(read, count), 2 * size / _best_of_threads(copy, count)


def measure_host_matmul() -> float:
    """fp32 floating-point operations per second of numpy's matrix product."""
    left = np.ones((MATRIX_SIZE, MATRIX_SIZE), dtype=np.float32)
    seconds = _best(lambda: left @ left)
    return float(2.0 * MATRIX_SIZE**3 / seconds)


def measure_disk(folder: Path) -> float | None:
    """Bytes per second written and flushed to the disk; None when the folder cannot be written or is nearly full."""
    path = folder / f".spark_rl_bench_{os.getpid()}"
    block = os.urandom(1024**2)
    try:
        if shutil.disk_usage(folder).free < 4 * DISK_BYTES:
            return None
        started = time.perf_counter()
        with path.open("wb", buffering=0) as file:
            for _ in range(DISK_BYTES // len(block)):
                file.write(block)
            os.fsync(file.fileno())
        return DISK_BYTES / (time.perf_counter() - started)
    except OSError:
        return None
    finally:
        path.unlink(missing_ok=True)


def measure_gpu(uuid: str | None = None) -> dict[str, Any]:
    """What `gpu_probe` found on the GPU `uuid` (None: the first that torch sees), or {"error": ...}."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "spark_rl.bench.gpu_probe"],
            capture_output=True,
            text=True,
            timeout=GPU_SECONDS,
            check=False,
            env={**os.environ, **gpu_environment(os.environ, uuid)},
        )
        value = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return {"error": f"no answer within {GPU_SECONDS} s"}
    except (OSError, ValueError, IndexError):
        return {"error": "the probe ended without an answer"}
    return value if isinstance(value, dict) else {"error": "the probe's answer is not an object"}


def reference_loop() -> float:
    """Seconds of a fixed loop of plain Python."""

    def loop() -> int:
        total = 0
        for number in range(1_000_000):
            total += number & 7
        return total

    return _best(loop, 3)


def judge(result: BenchResult, machine: Machine) -> tuple[Mapping[str, Any], ...]:
    """What the figures say against the class's healthy band; one entry a figure that has a band."""
    found: list[Mapping[str, Any]] = []
    headline = machine.bandwidth_bytes_per_second if machine.kind != "cpu" else None
    if "GB10" in (machine.gpu_name or ""):
        headline = headline or GB10_PEAK_BYTES_PER_SECOND
    measured = result.device_read_bytes_per_second
    if headline and measured is not None and machine.kind != "cpu":
        found.append(_judged("memory read", measured, HEALTHY_READ_SHARE * headline, headline, 1e9, "GB/s", "stop what else uses memory and measure again; if it stays low: power off at the wall for 60 s"))  # fmt: skip
    if machine.bf16_flops and machine.kind != "cpu" and result.matmul_dtype in ("bfloat16", "float16"):
        found.append(_judged("matrix product", result.matmul_flops, HEALTHY_MATMUL_SHARE * machine.bf16_flops, machine.bf16_flops, 1e12, "TFLOPS", "look at clock and power while it runs (spark-rl monitor): stuck low, hot, or capped?"))  # fmt: skip
    if result.disk_write_bytes_per_second is not None:
        found.append(_judged("disk write", result.disk_write_bytes_per_second, SLOW_DISK_BYTES_PER_SECOND, None, 1e6, "MB/s", "checkpoints will take minutes: write runs to a faster disk (--runs DIR)"))  # fmt: skip
    return tuple(found)


def _judged(
    what: str, measured: float, low: float, high: float | None, unit: float, name: str, advice: str
) -> Mapping[str, Any]:
    well = measured >= low
    band = f"{low / unit:.0f}-{high / unit:.0f}" if high is not None else f"at least {low / unit:.0f}"
    words = f"{measured / unit:.0f} {name}, healthy is {band}"
    return {
        "what": what, "measured": measured, "expected_low": low, "expected_high": high, "verdict": "healthy" if well else "low",
        "words": words if well else f"{words}: {advice}",
    }  # fmt: skip


def _num_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _best(work: Callable[[], Any], repeats: int = REPEATS) -> float:
    work()
    best = float("inf")
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - started)
    return best


def _best_of_threads(work: Callable[[int], None], count: int) -> float:
    def together() -> None:
        threads = [threading.Thread(target=work, args=(index,)) for index in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return _best(together)
