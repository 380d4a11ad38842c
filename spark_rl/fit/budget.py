"""What there is: the memory a run may use on this machine, and what stays out of its reach.

In: a `Machine` and the floors. Out: `Budget`. Two pools on a discrete machine; one on unified memory, where MemAvailable
is the truth and nothing parked on the host frees anything; one on a CPU. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from spark_rl.errors import ConfigError
from spark_rl.fit.lines import Line, Phase
from spark_rl.host import Machine
from spark_rl.units import GIB, format_gib

UNIFIED_FLOOR_GIB = 12.0
"""MemAvailable that must be left at the predicted peak (design: a GB10 fell from 34 to 12.7 GiB in 1.5 s)."""
HOST_FLOOR_GIB = 4.0
"""The same for host memory of a discrete machine."""
CPU_FLOOR_GIB = 1.0


@dataclass(frozen=True)
class Budget:
    """Bytes a run may use."""

    device_bytes: float
    """On the device; the whole pool on unified and CPU machines."""
    host_bytes: float | None
    """Host memory of a discrete machine, floor taken off; None when it is not known or there is one pool."""
    one_pool: bool
    floor_bytes: float
    sentence: str

    def counts(self, line: Line) -> bool:
        """Whether this line takes from the device pool; with one pool host lines do too (page cache is given back)."""
        return line.pool == "device" or (self.one_pool and line.name not in _RECLAIMABLE)

    def need(self, phase: Phase) -> float:
        """What this phase takes from the device pool."""
        return sum(line.num_bytes for line in phase.lines if self.counts(line))

    def host_need(self, phase: Phase) -> float:
        if self.one_pool:
            return 0.0
        return sum(line.num_bytes for line in phase.lines if line.pool == "host" and line.name not in _RECLAIMABLE)


_RECLAIMABLE = ("page cache",)


def budget_of(
    machine: Machine, *, unified_floor_gib: float = UNIFIED_FLOOR_GIB, host_floor_gib: float = HOST_FLOOR_GIB
) -> Budget:
    """The budget of a machine. Raises ConfigError when no sensor says how much memory there is."""
    if machine.kind == "cpu":
        total = machine.host_available_bytes or machine.host_total_bytes
        if total is None:
            raise ConfigError("this host does not say how much memory it has", "name a class: --machine cpu")
        return Budget(
            total - CPU_FLOOR_GIB * GIB, None, True, CPU_FLOOR_GIB * GIB,
            f"{format_gib(total)} GiB of host memory less {CPU_FLOOR_GIB:g} that stay free",
        )  # fmt: skip
    if machine.device_total_bytes is None:
        raise ConfigError(
            f"the memory sensor of {machine.gpu_name or 'the GPU'} does not answer",
            "name a class instead: --machine dgx-spark, or --gpu-gib 24",
        )
    if machine.is_unified:
        available = machine.device_available_bytes or machine.host_available_bytes
        if available is None:
            available = int(machine.device_total_bytes * 0.93)
        floor = unified_floor_gib * GIB
        return Budget(
            available - floor, None, True, floor,
            f"MemAvailable {format_gib(available)} of {format_gib(machine.device_total_bytes)} GiB unified memory, less "
            f"{unified_floor_gib:g} that must stay free",
        )  # fmt: skip
    free = machine.device_available_bytes
    usable = machine.device_total_bytes if free is None else min(free, machine.device_total_bytes)
    host = machine.host_available_bytes or machine.host_total_bytes
    words = f"{format_gib(machine.device_total_bytes)} GiB on the device"
    if free is not None and free < machine.device_total_bytes:
        words += f", {format_gib(free)} free now"
    return Budget(
        float(usable), None if host is None else host - host_floor_gib * GIB, False, host_floor_gib * GIB, words
    )
