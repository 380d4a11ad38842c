"""Lines and phases of a memory report.

In: bytes and words. Out: `Line` (what, how much, by which formula), `Phase` (lines that are alive together). A phase's
total is the sum of its lines, always.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Pool = Literal["device", "host"]
Owner = Literal["torch", "slack", "engine", "driver", "managed", "system"]


@dataclass(frozen=True)
class Line:
    """One thing that takes memory."""

    name: str
    num_bytes: float
    formula: str
    """How the bytes follow, in words and numbers; the unit is bytes."""
    note: str = ""
    pool: Pool = "device"
    owner: Owner = "torch"
    """Who allocates it: torch's allocator (the figures `max_memory_allocated` and `_reserved` report), the rollout
    engine, the allocator's slack, the driver (CUDA context), managed memory (paged optimizer states), or the system."""


@dataclass(frozen=True)
class Phase:
    """A moment of the run and all that is alive in it."""

    name: str
    lines: tuple[Line, ...]
    note: str = ""

    def total(self, pool: Pool = "device") -> float:
        return sum(line.num_bytes for line in self.lines if line.pool == pool)

    def of_owner(self, owner: Owner, pool: Pool = "device") -> float:
        return sum(line.num_bytes for line in self.lines if line.pool == pool and line.owner == owner)


def giga(value: float) -> str:
    """A count in words for formulas: 7.24e9 -> "7.24 G"."""
    for limit, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"
