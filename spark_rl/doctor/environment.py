"""What doctor looks at, as plain data: tests and recordings make it as well as `gather` does. None = not known."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spark_rl.telemetry.findings import Finding
from spark_rl.telemetry.reading import Reading


@dataclass(frozen=True)
class Gpu:
    index: int
    name: str | None = None
    compute_capability: tuple[int, int] | None = None
    unified: bool = False
    memory_total_bytes: int | None = None
    display_active: bool | None = None


@dataclass(frozen=True)
class CodeIsolation:
    """What keeps programs that a model wrote apart from this machine, found by starting it and trying to break it."""

    method: str | None
    """A name of spark_rl.sandbox.methods, strongest first there; None: none holds."""
    says: str
    """One line for people."""
    tried: Mapping[str, str] = field(default_factory=dict)
    """Stronger method -> why it is not in force."""


@dataclass(frozen=True)
class Environment:
    """One machine and its installed stack."""

    system: str = "Linux"
    """platform.system()."""
    architecture: str = "x86_64"
    kernel: str | None = None
    python: tuple[int, int] = (3, 11)
    is_root: bool = False
    is_wsl: bool = False
    container: str | None = None
    """"docker", "podman", "kubernetes", ...; None outside."""
    product_name: str | None = None
    dgx_os: str | None = None
    gpus: tuple[Gpu, ...] = ()
    gpu_state: str = "ok"
    """"ok" or the reason code for the whole driver."""
    driver_version: str | None = None
    driver_cuda: str | None = None
    packages: Mapping[str, str] | None = None
    """Installed distribution -> version; None when not known (a recording)."""
    pins: Mapping[str, str] = field(default_factory=dict)
    """Distribution -> the version this release of spark_rl pins."""
    torch_cuda: str | None = None
    """CUDA version torch was built for; "" for a CPU build."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that matter."""
    reading: Reading | None = None
    findings: tuple[Finding, ...] = ()
    """What the rules say about the last seconds of readings, or about a recording."""
    runs_free_bytes: int | None = None
    cache_free_bytes: int | None = None
    runs_writable: bool | None = None
    memlock_bytes: int | None = None
    """RLIMIT_MEMLOCK; None = unlimited or not known."""
    bench: Mapping[str, Any] | None = None
    """The last result of `spark-rl bench`."""
    has_sysfs: bool = True
    code_isolation: CodeIsolation | None = None
    """For unit-test rewards; None = not tried (a recording)."""

    @property
    def is_spark(self) -> bool:
        """A DGX Spark or a sibling with the same chip."""
        named = any("GB10" in (gpu.name or "") for gpu in self.gpus)
        return named or "DGX_Spark" in (self.product_name or "").replace(" ", "_")

    @property
    def unified(self) -> bool:
        return any(gpu.unified for gpu in self.gpus)

    def version(self, package: str) -> tuple[int, ...] | None:
        """The installed version as numbers; None when it is not installed or not known."""
        text = (self.packages or {}).get(package)
        return None if text is None else version_tuple(text)


def version_tuple(text: str) -> tuple[int, ...]:
    """The leading numbers of a version: "2.13.0+cpu" -> (2, 13, 0)."""
    match = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(word) for word in match[0].split(".")) if match else ()


def environment_from_recording(
    machine: Mapping[str, Any], readings: Sequence[Reading], findings: tuple[Finding, ...]
) -> Environment:
    """The environment of a recorded machine. What the recording does not tell stays unknown."""
    last = readings[-1]
    told = {item.get("index", position): item for position, item in enumerate(machine.get("gpus") or ())}
    gpus = []
    for gpu in last.gpus:
        item = told.get(gpu.index, {})
        capability = item.get("compute_capability")
        gpus.append(
            Gpu(gpu.index, item.get("name") or gpu.name, tuple(capability) if capability else None, gpu.unified, gpu.memory_total_bytes, item.get("display_active"))
        )  # fmt: skip
    simple = (
        "system",
        "architecture",
        "kernel",
        "container",
        "product_name",
        "dgx_os",
        "driver_version",
        "driver_cuda",
        "packages",
        "torch_cuda",
        "bench",
    )
    return Environment(
        **{name: machine[name] for name in simple if name in machine},
        variables=machine.get("variables") or {},
        gpus=tuple(gpus),
        gpu_state=last.missing.get("gpus", "ok"),
        reading=last,
        findings=findings,
    )
