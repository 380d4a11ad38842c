"""What machine are we on, or which named machine is meant.

In: a class name ("dgx-spark", "24"), a size in GiB, or this host's own sensors (NVML and psutil, read once). Out: one
frozen `Machine`: memory pools, bandwidth, compute rate, each with its source. Never imports torch; a sensor that does
not answer leaves None, never 0.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from spark_rl.errors import ConfigError, did_you_mean
from spark_rl.gpu_choice import GpuReading, choose_gpu, read_gpus
from spark_rl.units import GIB, KIB

MachineKind = Literal["cpu", "discrete", "unified"]


@dataclass(frozen=True)
class Machine:
    """Memory and speed of one computer as a training run sees it."""

    name: str
    """Class name ("dgx-spark", "24") or "this host"."""
    kind: MachineKind
    """cpu: no NVIDIA GPU; discrete: own video memory; unified: one pool for CPU and GPU."""
    gpu_name: str | None
    gpu_count: int
    """GPUs in the computer, whichever of them the run uses."""
    device_total_bytes: int | None
    """Physical memory CUDA can address on one GPU (the whole pool on unified machines); None without a GPU."""
    host_total_bytes: int | None
    bandwidth_bytes_per_second: float | None
    """Headline memory bandwidth of the device (host memory on a CPU machine)."""
    bf16_flops: float | None
    """Dense bf16 matrix rate with fp32 accumulation, per second, as published; fp16 where the chip has no bf16."""
    supports_bf16: bool | None = None
    decode_efficiency_ceiling: float = 0.85
    """Share of the headline bandwidth that decode of a large dense model sustains."""
    training_efficiency: float = 0.45
    """Share of `bf16_flops` that a fine-tuning step sustains."""
    host_link_bytes_per_second: float | None = None
    """One direction between device and host, sustained; None where there is one pool."""
    device_available_bytes: int | None = None
    """Free now, when measured; MemAvailable on unified machines (never MemFree)."""
    host_available_bytes: int | None = None
    compute_capability: str | None = None
    source: str = ""
    """Where the figures come from."""
    notes: tuple[str, ...] = ()
    """What a person should know about these readings."""
    gpu_index: int | None = None
    """NVML's number of the GPU that these figures are of; None without one, and for a named class."""
    gpu_uuid: str | None = None

    @property
    def is_unified(self) -> bool:
        return self.kind == "unified"

    @property
    def sustained_decode_bytes_per_second(self) -> float | None:
        if self.bandwidth_bytes_per_second is None:
            return None
        return self.bandwidth_bytes_per_second * self.decode_efficiency_ceiling


def _card(
    name: str,
    gpu_name: str,
    total_gib: float,
    bandwidth_gb: float,
    bf16_tflops: float,
    *,
    host_gib: float,
    capability: str,
    supports_bf16: bool = True,
    link_gb: float = 24.0,
    training_efficiency: float = 0.45,
    note: str = "",
) -> Machine:
    """One discrete card. Totals are what CUDA reports as logged in public runs, not the number on the box."""
    return Machine(
        name=name,
        kind="discrete",
        gpu_name=gpu_name,
        gpu_count=1,
        device_total_bytes=int(total_gib * GIB),
        host_total_bytes=int(host_gib * GIB),
        bandwidth_bytes_per_second=bandwidth_gb * 1e9,
        bf16_flops=bf16_tflops * 1e12,
        supports_bf16=supports_bf16,
        host_link_bytes_per_second=link_gb * 1e9,
        compute_capability=capability,
        training_efficiency=training_efficiency,
        source="vendor bandwidth and dense bf16 rate; total as CUDA reports it in public logs" + note,
    )


# Half-rate fp32 accumulation on GeForce is already in the bf16 figures. PCIe 4 x16 sustains about 24 GB/s one way,
# PCIe 5 about 50, PCIe 3 about 11.
_CARDS = (
    _card("12", "RTX 3060 12 GB class", 11.63, 360, 51, host_gib=32, capability="8.6"),
    _card("16", "RTX 4080 / 16 GB class", 15.57, 717, 97.5, host_gib=32, capability="8.9"),
    _card("24", "RTX 4090 / 24 GB class", 23.51, 1008, 165.2, host_gib=64, capability="8.9"),
    _card("32", "RTX 5090 / 32 GB class", 31.36, 1792, 209.5, host_gib=64, capability="12.0", link_gb=50),
    _card("48", "RTX 6000 Ada / 48 GB class", 47.40, 960, 364, host_gib=128, capability="8.9"),
    _card("80", "A100-80 / 80 GB class", 79.15, 2039, 312, host_gib=256, capability="8.0"),
    _card("96", "RTX PRO 6000 Blackwell", 94.97, 1792, 503.8, host_gib=256, capability="12.0", link_gb=50),
    _card("141", "H200", 139.80, 4800, 989, host_gib=512, capability="9.0", link_gb=50),
    _card("180", "B200", 178.35, 8000, 2250, host_gib=1024, capability="10.0", link_gb=50),
    _card("t4", "Tesla T4", 14.74, 320, 65, host_gib=25, capability="7.5", supports_bf16=False, link_gb=11),
    _card("l4", "L4", 22.16, 300, 121, host_gib=64, capability="8.9"),
    _card("rtx-3090", "RTX 3090", 23.57, 936, 71, host_gib=64, capability="8.6"),
    _card("a6000", "RTX A6000", 47.40, 768, 155, host_gib=128, capability="8.6"),
    _card("l40s", "L40S", 44.39, 864, 362, host_gib=128, capability="8.9"),
    _card("a100-40", "A100-40", 39.49, 1555, 312, host_gib=128, capability="8.0"),
    _card("h100", "H100 SXM", 79.19, 3350, 989, host_gib=256, capability="9.0", link_gb=50),
)

_SPARK = Machine(
    name="dgx-spark",
    kind="unified",
    gpu_name="NVIDIA GB10",
    gpu_count=1,
    # MemTotal of three public GB10 readings is 127 600 748 kB.
    device_total_bytes=127_600_748 * KIB,
    host_total_bytes=127_600_748 * KIB,
    bandwidth_bytes_per_second=273e9,
    # 125 TF is the headline by ratio; 91-93 TF is what a healthy unit sustains in a bf16 matrix product.
    bf16_flops=92e12,
    supports_bf16=True,
    decode_efficiency_ceiling=0.90,
    # MemAvailable on an idle desktop-less GB10 reads 113.1 GiB (118 566 368 kB).
    device_available_bytes=118_566_368 * KIB,
    host_available_bytes=118_566_368 * KIB,
    compute_capability="12.1",
    source="MemTotal and MemAvailable of an idle GB10 as logged; 273 GB/s vendor; 92 TF measured matrix product",
)

_CPU = Machine(
    name="cpu",
    kind="cpu",
    gpu_name=None,
    gpu_count=0,
    device_total_bytes=None,
    host_total_bytes=16 * GIB,
    bandwidth_bytes_per_second=20e9,
    bf16_flops=0.15e12,
    supports_bf16=None,
    training_efficiency=0.5,
    host_available_bytes=14 * GIB,
    source="a small desktop or a CI runner: two to four cores, 16 GiB; fp32 rate",
)

_OTHER_UNIFIED = (
    replace(
        _SPARK,
        name="thor",
        gpu_name="Jetson AGX Thor",
        bf16_flops=120e12,
        compute_capability="11.0",
        source="128 GB unified, 273 GB/s vendor; bf16 rate taken as half of the ratio figure (258 TF), unmeasured",
    ),
    replace(
        _SPARK,
        name="orin-64",
        gpu_name="Jetson AGX Orin 64",
        device_total_bytes=int(61.4 * GIB),
        host_total_bytes=int(61.4 * GIB),
        device_available_bytes=int(56 * GIB),
        host_available_bytes=int(56 * GIB),
        bandwidth_bytes_per_second=204.8e9,
        bf16_flops=40e12,
        compute_capability="8.7",
        source="64 GB unified, 204.8 GB/s vendor; bf16 rate unmeasured",
    ),
)

_ALL: dict[str, Machine] = {machine.name: machine for machine in (_CPU, *_CARDS, _SPARK, *_OTHER_UNIFIED)}

# Names people use for the same class.
_ALIASES: dict[str, str] = {
    "spark": "dgx-spark", "gb10": "dgx-spark", "80-96": "80", "a100": "80", "a100-80": "80", "a10g": "24", "a10": "24",
    "rtx-3060": "12", "rtx-4070": "12", "rtx-4080": "16", "rtx-4090": "24", "4090": "24", "3090": "rtx-3090",
    "rtx-5090": "32", "5090": "32", "rtx-6000-ada": "48", "h100-80": "h100", "h200": "141", "b200": "180",
    "rtx-pro-6000": "96", "none": "cpu", "no-gpu": "cpu",
}  # fmt: skip


def machine_names() -> tuple[str, ...]:
    """The names `machine_class` knows, aliases left out."""
    return tuple(_ALL)


def machine_class(name: str) -> Machine:
    """The named machine class. Raises ConfigError, with the nearest name, when there is none."""
    key = name.strip().lower().replace("_", "-").replace(" ", "-")
    for suffix in ("-gb", "gb", "-gib", "gib"):
        key = key.removesuffix(suffix)
    key = key.removeprefix("gpu-")
    key = _ALIASES.get(key, key)
    if key in _ALL:
        return _ALL[key]
    hint = did_you_mean(key, (*_ALL, *_ALIASES))
    known = ", ".join(_ALL)
    raise ConfigError(f"unknown machine {name!r}", hint=f"{hint + ' ' if hint else ''}known: {known}")


def machine_of_size(gpu_gib: float) -> Machine:
    """A discrete card whose addressable memory is `gpu_gib`; speed from the nearest class. Refuses nonsense sizes."""
    if not 1 <= gpu_gib <= 2048:
        raise ConfigError(f"a GPU of {gpu_gib:g} GiB is not a size we can plan for", hint="give 1 to 2048")
    sized = [card for card in _CARDS if card.name.isdigit() and card.device_total_bytes]
    closest = min(sized, key=lambda card: abs((card.device_total_bytes or 0) - gpu_gib * GIB))
    return replace(
        closest,
        name=f"{gpu_gib:g} GiB",
        gpu_name=f"a card with {gpu_gib:g} GiB",
        device_total_bytes=int(gpu_gib * GIB),
        source=f"memory as asked; speed of the {closest.name} GB class",
    )


def without_availability(machine: Machine) -> Machine:
    """The same machine with nothing else running on it."""
    return replace(machine, device_available_bytes=None, host_available_bytes=None)


# --------------------------------------------------------------------------------------------------- this host


@dataclass(frozen=True)
class MemInfo:
    """/proc/meminfo in bytes; a field the kernel does not print is None."""

    total_bytes: int | None
    available_bytes: int | None
    free_bytes: int | None
    cached_bytes: int | None
    swap_free_bytes: int | None
    dirty_bytes: int | None = None

    @property
    def reclaimable_bytes(self) -> int | None:
        """What a cache drop would hand back: MemAvailable less MemFree."""
        if self.available_bytes is None or self.free_bytes is None:
            return None
        return max(0, self.available_bytes - self.free_bytes)


def parse_meminfo(text: str) -> MemInfo:
    """Read /proc/meminfo text. Lines that are missing or damaged become None."""
    fields: dict[str, int] = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            fields[name.strip()] = int(words[0]) * (KIB if words[1:2] == ["kB"] else 1)
    return MemInfo(
        total_bytes=fields.get("MemTotal"),
        available_bytes=fields.get("MemAvailable"),
        free_bytes=fields.get("MemFree"),
        cached_bytes=fields.get("Cached"),
        swap_free_bytes=fields.get("SwapFree"),
        dirty_bytes=fields.get("Dirty"),
    )


def read_meminfo(path: Path = Path("/proc/meminfo")) -> MemInfo:
    """Host memory now; psutil where there is no /proc/meminfo."""
    try:
        return parse_meminfo(path.read_text())
    except OSError:
        import psutil

        memory = psutil.virtual_memory()
        return MemInfo(memory.total, memory.available, memory.free, None, None)


# Parts of NVML device names, most particular first, and the class whose speed they have.
_NAME_PARTS: Mapping[str, str] = {
    "GB10": "dgx-spark", "Thor": "thor", "Orin": "orin-64", "B200": "180", "H200": "141", "H100": "h100",
    "A100-SXM4-80": "80", "A100 80": "80", "A100": "a100-40", "L40S": "l40s", "RTX PRO 6000": "96",
    "6000 Ada": "48", "A6000": "a6000", "5090": "32", "4090": "24", "3090": "rtx-3090", "A10": "24", "L4": "l4",
    "T4": "t4", "4080": "16", "5080": "16", "3060": "12", "4070": "12",
}  # fmt: skip


def machine_from_readings(gpu: GpuReading | None, memory: MemInfo, name: str = "this host") -> Machine:
    """The machine that these readings describe. Pure: tests feed it logged readings.

    A GPU that reports no memory of its own is unified: the total is MemTotal and what is free is MemAvailable, because
    MemFree counts page cache as used.
    """
    if gpu is None:
        return replace(
            _CPU,
            name=name,
            host_total_bytes=memory.total_bytes,
            host_available_bytes=memory.available_bytes,
            source="/proc/meminfo; no NVIDIA GPU answers NVML; speed of a small CPU",
        )
    class_name = next((known for part, known in _NAME_PARTS.items() if part in gpu.name), None)
    unified = gpu.total_bytes is None or (class_name is not None and _ALL[class_name].is_unified)
    if unified:
        speed = _ALL[class_name] if class_name else _SPARK
        return replace(
            speed,
            name=name,
            gpu_name=gpu.name,
            gpu_count=gpu.count,
            gpu_index=gpu.index,
            gpu_uuid=gpu.uuid,
            device_total_bytes=memory.total_bytes,
            host_total_bytes=memory.total_bytes,
            device_available_bytes=memory.available_bytes,
            host_available_bytes=memory.available_bytes,
            compute_capability=gpu.compute_capability or speed.compute_capability,
            source=f"MemTotal and MemAvailable of this host (NVML reports no memory); speed of {speed.name}",
            notes=_cache_notes(memory),
        )
    assert gpu.total_bytes is not None
    speed = _ALL[class_name] if class_name else machine_of_size(max(1.0, gpu.total_bytes / GIB))
    return replace(
        speed,
        name=name,
        gpu_name=gpu.name,
        gpu_count=gpu.count,
        gpu_index=gpu.index,
        gpu_uuid=gpu.uuid,
        device_total_bytes=gpu.total_bytes,
        host_total_bytes=memory.total_bytes,
        device_available_bytes=gpu.free_bytes,
        host_available_bytes=memory.available_bytes,
        compute_capability=gpu.compute_capability or speed.compute_capability,
        source=f"NVML and /proc/meminfo of this host; speed of the {speed.name} class",
    )


DIRTY_CACHE_BYTES = 2 * GIB
"""Dirty pages beyond this cannot be given back at once."""


def _cache_notes(memory: MemInfo) -> tuple[str, ...]:
    """Page cache is not used memory; only dirty pages have to be written first."""
    reclaimable, dirty = memory.reclaimable_bytes, memory.dirty_bytes
    if reclaimable is None or memory.free_bytes is None or reclaimable < 8 * GIB:
        return ()
    words = (
        f"MemFree is only {memory.free_bytes / GIB:.1f} GiB because {reclaimable / GIB:.1f} GiB are page cache, which the "
        "kernel gives back"
    )
    if dirty is not None and dirty > DIRTY_CACHE_BYTES:
        return (
            f"{words}; {dirty / GIB:.1f} GiB of it are dirty: run `sync`, and drop caches if an allocation still fails",
        )
    return (f"{words}; dropping caches is needed only if an allocator insists on MemFree",)


def detect_host(gpu: str | None = None) -> Machine:
    """This host with one of its GPUs, from NVML and psutil only. Reads sensors once; never raises for a missing one.

    `gpu`: an index or a UUID; None takes the GPU that `choose_gpu` prefers. Raises ConfigError when it names none.
    """
    gpus = read_gpus()
    choice = choose_gpu(gpus, gpu, os.environ.get("CUDA_VISIBLE_DEVICES"))
    machine = machine_from_readings(choice.gpu, read_meminfo())
    if gpus and choice.gpu is None:
        machine = replace(machine, source="/proc/meminfo; every GPU is hidden; speed of a small CPU")
    if choice.why is not None:
        machine = replace(machine, notes=(choice.why, *machine.notes))
    if platform.system() != "Linux":
        return replace(machine, source=f"{machine.source}; {platform.system()}: training is not supported here")
    return machine
