"""Which GPU of this machine a run uses: all of them read through NVML, one chosen by a pure function, and said why.

In: NVML's readings, what `--gpu` asked for, CUDA_VISIBLE_DEVICES. Out: one `GpuReading` (or none) with a sentence, and the
variables that show a worker this one card alone. Indices are NVML's, as nvidia-smi counts them; CUDA by itself may count
otherwise (fastest first), so a worker is given the UUID. Never imports torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spark_rl.errors import ConfigError
from spark_rl.units import format_bytes


@dataclass(frozen=True)
class GpuReading:
    """What NVML said about one GPU; None where it would not say."""

    name: str
    total_bytes: int | None
    """None where the GPU has no memory of its own (GB10)."""
    free_bytes: int | None
    count: int
    """GPUs in the machine."""
    compute_capability: str | None
    index: int | None = 0
    uuid: str | None = None
    drives_display: bool | None = None


@dataclass(frozen=True)
class GpuChoice:
    gpu: GpuReading | None
    """None: no GPU is there, or CUDA_VISIBLE_DEVICES hides all."""
    why: str | None = None
    """A sentence for a person; None where there was nothing to choose."""


def choose_gpu(gpus: Sequence[GpuReading], asked: str | None = None, visible: str | None = None) -> GpuChoice:
    """The GPU that `asked` (an index, or a UUID or its start) names; else, of those that drive no display, the one with most
    free memory. `visible` is CUDA_VISIBLE_DEVICES (None: not set) and leaves out what it hides.

    Raises ConfigError, naming the GPUs there are, when `asked` names none of them.
    """
    if not gpus:
        if asked is not None:
            raise ConfigError(
                f"GPU {asked} is asked for, and no NVIDIA GPU answers in this machine",
                "nvidia-smi tells whether the driver works",
            )
        return GpuChoice(None)
    if names_slice(visible):
        return _slice(gpus, asked, visible)
    candidates = visible_gpus(gpus, visible)
    if asked is not None:
        gpu = _asked_for(gpus, candidates, asked, visible)
        return GpuChoice(gpu, _why(gpus, gpu, f"asked for as {asked}"))
    if not candidates:
        return GpuChoice(None, f"CUDA_VISIBLE_DEVICES={visible!r} hides every GPU of this machine: the CPU is used")
    undisplayed = [gpu for gpu in candidates if not gpu.drives_display]
    # Sorting keeps the order of NVML among equals; unknown memory comes last.
    gpu = max(undisplayed or candidates, key=lambda one: -1 if one.free_bytes is None else one.free_bytes)
    among = "" if len(candidates) == len(gpus) else f", of those that CUDA_VISIBLE_DEVICES={visible} leaves"
    if len(candidates) == 1:
        reason = f"the only one that CUDA_VISIBLE_DEVICES={visible} leaves" if among else "the only one that answers"
    elif len(undisplayed) == 1:
        reason = f"the only one that drives no display{among}"
    elif undisplayed:
        reason = f"the most free memory without a display{among}"
    else:
        reason = f"the most free memory{among}; all of them drive a display"
    return GpuChoice(gpu, _why(gpus, gpu, f"{reason}; --gpu chooses another"))


def visible_gpus(gpus: Sequence[GpuReading], visible: str | None) -> list[GpuReading]:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves. As CUDA reads it: the first entry that names no GPU ends the list, so that
    an empty value and -1 leave none."""
    if visible is None:
        return list(gpus)
    found: list[GpuReading] = []
    for entry in visible.split(","):
        named = _named(gpus, entry.strip())
        if len(named) != 1:
            break
        found += [gpu for gpu in named if gpu not in found]
    return found


def names_slice(visible: str | None) -> bool:
    """Whether CUDA_VISIBLE_DEVICES names a slice of a card (MIG)."""
    return visible is not None and any(entry.strip().startswith("MIG-") for entry in visible.split(","))


def pinned_uuid(gpu_uuid: str | None, gpu_count: int | None) -> str | None:
    """The UUID of the card that alone counts for a run; None where the machine has no other, so that nothing is narrowed
    and no reading is left out on a machine where there is nothing to confuse."""
    return gpu_uuid if gpu_count is not None and gpu_count > 1 else None


def gpu_environment(environ: Mapping[str, str], uuid: str | None) -> dict[str, str]:
    """Variables that show a process the GPU `uuid` alone; {} for None, and where the user has picked a slice of a card."""
    if uuid is None or names_slice(environ.get("CUDA_VISIBLE_DEVICES")):
        return {}
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": uuid}


def _slice(gpus: Sequence[GpuReading], asked: str | None, visible: str | None) -> GpuChoice:
    """A slice has a UUID of its own, and NVML's readings are those of the whole card: nothing is pinned."""
    if asked is not None:
        raise ConfigError(
            f"GPU {asked} is a whole one, and CUDA_VISIBLE_DEVICES={visible} names a slice of one", "use one of the two"
        )
    words = f"CUDA_VISIBLE_DEVICES={visible} names a slice of a GPU: it has less memory than the whole GPU that is read here"
    return GpuChoice(replace(gpus[0], index=None, uuid=None), words)


def _asked_for(
    gpus: Sequence[GpuReading], candidates: Sequence[GpuReading], asked: str, visible: str | None
) -> GpuReading:
    named = _named(gpus, asked.strip())
    there = "; ".join(f"{gpu.index}: {_described(gpu)} ({gpu.uuid or 'no UUID'})" for gpu in gpus)
    if not named:
        raise ConfigError(f"no GPU of this machine is called {asked}", f"there are {there}")
    if len(named) > 1:
        raise ConfigError(f"{len(named)} GPUs have a UUID that begins with {asked}", f"there are {there}")
    if named[0] not in candidates:
        raise ConfigError(
            f"GPU {asked} is hidden by CUDA_VISIBLE_DEVICES={visible}",
            f"unset the variable, or name a GPU that it leaves; there are {there}",
        )
    return named[0]


def _named(gpus: Sequence[GpuReading], entry: str) -> list[GpuReading]:
    """GPUs with this index, or whose UUID begins so; "GPU-" may be left out."""
    if entry.isdecimal():
        return [gpu for gpu in gpus if gpu.index == int(entry)]
    start = entry.lower().removeprefix("gpu-")
    if not start:
        return []
    return [gpu for gpu in gpus if gpu.uuid is not None and gpu.uuid.lower().removeprefix("gpu-").startswith(start)]


def _why(gpus: Sequence[GpuReading], gpu: GpuReading, reason: str) -> str | None:
    if gpu.count == 1 and len(gpus) == 1:
        return None
    return f"GPU {gpu.index} of {gpu.count} is used ({_described(gpu)}): {reason}"


def _described(gpu: GpuReading) -> str:
    return gpu.name if gpu.free_bytes is None else f"{gpu.name}, {format_bytes(gpu.free_bytes)} free"


# ------------------------------------------------------------------------------------------------------- NVML


def read_gpus() -> list[GpuReading]:
    """Every GPU that answers NVML, in its order; [] when there is no driver, no library or no device. A card that answers
    no question (fallen off the bus) is left out and still counted."""
    try:
        import pynvml
    except ImportError:
        return []
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        count = int(pynvml.nvmlDeviceGetCount())
        found = [_read_gpu(pynvml, index, count) for index in range(count)]
        return [gpu for gpu in found if gpu is not None]
    except pynvml.NVMLError:
        return []
    finally:
        _answer(pynvml.NVMLError, pynvml.nvmlShutdown)


def _read_gpu(nvml: Any, index: int, count: int) -> GpuReading | None:
    handle = _answer(nvml.NVMLError, nvml.nvmlDeviceGetHandleByIndex, index)
    if handle is None:
        return None

    def ask(question: Callable[..., Any]) -> Any:
        return _answer(nvml.NVMLError, question, handle)

    name, uuid, memory = ask(nvml.nvmlDeviceGetName), ask(nvml.nvmlDeviceGetUUID), ask(nvml.nvmlDeviceGetMemoryInfo)
    if name is None and uuid is None and memory is None:
        return None
    capability = ask(nvml.nvmlDeviceGetCudaComputeCapability)
    # A display server on the card (active), or a monitor plugged into it (mode): either takes memory and stutters.
    display = [ask(nvml.nvmlDeviceGetDisplayActive), ask(nvml.nvmlDeviceGetDisplayMode)]
    total = int(memory.total) if memory is not None and memory.total else None
    return GpuReading(
        name=name.decode() if isinstance(name, bytes) else str(name or "unknown NVIDIA GPU"),
        total_bytes=total,
        free_bytes=int(memory.free) if memory is not None and total is not None else None,
        count=count,
        compute_capability=f"{capability[0]}.{capability[1]}" if capability else None,
        index=index,
        uuid=uuid.decode() if isinstance(uuid, bytes) else uuid,
        drives_display=None if display == [None, None] else any(display),
    )


def _answer(error: type[Exception], question: Callable[..., Any], *arguments: Any) -> Any:
    """The answer, or None when NVML refuses (GB10 refuses memory, power limit and more)."""
    try:
        return question(*arguments)
    except error:
        return None
