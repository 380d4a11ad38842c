"""Doubles that are real at the edge: a libnvidia-ml of our own for the real pynvml, and folders that look like /proc and /sys."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark_rl.telemetry.reading import Ceiling, GpuReading, HostReading, Reading, WorkerReading
from spark_rl.units import GIB

HERE = Path(__file__).parent

GB10_TOTAL_BYTES = 127600748 * 1024


@pytest.fixture(scope="session")
def fake_nvml_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with our libnvidia-ml.so.1, for LD_LIBRARY_PATH."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here to build the stand-in for libnvidia-ml")
    folder = tmp_path_factory.mktemp("nvml")
    library = folder / "libnvidia-ml.so.1"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", library, HERE / "fake_nvml.c"], check=True
    )
    return folder


RunWithNvml = Callable[..., Any]


@pytest.fixture
def run_with_nvml(fake_nvml_folder: Path, tmp_path: Path) -> RunWithNvml:
    """Runs Python code in a process whose NVIDIA driver is the stand-in; `code` prints one JSON value, which comes back.
    `mood(word)` inside the code changes how the driver behaves from then on."""

    def run(device: str | None, code: str, timeout: float = 60) -> Any:
        control = tmp_path / "mood"
        control.write_text("")
        env = {**os.environ, "FAKE_NVML": device or "", "FAKE_NVML_CONTROL": str(control)}
        env["LD_LIBRARY_PATH"] = str(fake_nvml_folder) if device else str(tmp_path)
        prelude = f"import json, pathlib\ndef mood(word):\n    pathlib.Path({str(control)!r}).write_text(word)\n"
        done = subprocess.run(
            [sys.executable, "-c", prelude + code],
            env=env,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


def write_tree(root: Path, files: dict[str, str]) -> Path:
    """Files with their contents below a root."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def meminfo(total_kb: int, available_kb: int, free_kb: int, cached_kb: int = 0, swap_kb: int = 0) -> str:
    return (
        f"MemTotal:       {total_kb} kB\nMemFree:        {free_kb} kB\nMemAvailable:   {available_kb} kB\n"
        f"Buffers:           0 kB\nCached:         {cached_kb} kB\nDirty:          0 kB\nWriteback:      0 kB\n"
        f"Shmem:          0 kB\nSwapTotal:      {swap_kb} kB\nSwapFree:       {swap_kb} kB\n"
    )


def healthy_gb10(seconds: float, **changes: Any) -> Reading:
    """A busy, healthy DGX Spark in a decode phase; `changes` go to the GPU. The last digits move, as they do."""
    wobble = (seconds * 7.3) % 1.0
    gpu = GpuReading(
        index=0,
        name="NVIDIA GB10",
        unified=True,
        memory_total_bytes=GB10_TOTAL_BYTES,
        memory_available_bytes=int(40 * GIB),
        memory_source="MemAvailable",
        run_memory_bytes=int(70 * GIB),
        other_memory_bytes=0,
        utilization_percent=96.0,
        temperature_c=68.0,
        margin_c=27.0,
        power_watts=41.0 + wobble,
        sm_clock_mhz=2496.0 - round(10 * wobble),
        max_sm_clock_mhz=3003.0,
        event_reasons=(),
        power_capped_us=165687,
        thermal_slowed_us=903158,
        energy_joules=1e6 + 41 * seconds,
        answered_at=seconds,
    )
    return at(seconds, 40.0, gpu=replace(gpu, **changes))


def at(
    seconds: float,
    headroom_gib: float | None,
    *,
    gpu: GpuReading | None = None,
    host: dict[str, Any] | None = None,
    worker_gib: float | None = 20.0,
    source: str = "MemAvailable",
    missing: dict[str, str] | None = None,
) -> Reading:
    """A reading of a DGX-Spark-sized host with that much headroom."""
    headroom = None if headroom_gib is None else int(headroom_gib * GIB)
    values: dict[str, Any] = {
        "mem_total_bytes": GB10_TOTAL_BYTES,
        "mem_available_bytes": headroom,
        "mem_free_bytes": None if headroom is None else headroom // 2,
        "page_cache_bytes": None if headroom is None else headroom // 4,
        "psi_memory_full_percent": 0.0,
        "swap_in_bytes_per_second": 0.0,
        "swap_out_bytes_per_second": 0.0,
        **(host or {}),
    }
    return Reading(
        t=1_780_000_000.0 + seconds,
        monotonic=seconds,
        host=HostReading(**values),
        gpus=() if gpu is None else (gpu,),
        worker=None if worker_gib is None else WorkerReading(4123, 1, int(worker_gib * GIB)),
        ceilings=() if headroom is None else (Ceiling(source, GB10_TOTAL_BYTES, headroom),),
        missing=missing or {},
    )


@pytest.fixture
def fake_proc(tmp_path: Path) -> Iterator[Path]:
    """A /proc of a GB10 whose page cache is full: little is free, much is available (a composite of two reports)."""
    yield write_tree(
        tmp_path / "proc",
        {
            "meminfo": meminfo(127600748, 118566368, 7789944, 108_000_000, 16_000_000),
            "vmstat": "pswpin 100\npswpout 200\n",
            "pressure/memory": "some avg10=1.50 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.25 avg60=0.00 avg300=0.00 total=0\n",
            "stat": "cpu  100 0 100 800 0 0 0 0 0 0\n",
        },
    )
