"""What a rule may say: `Finding`, the figures it judges by, and its type. Rules are in `rules_gpu` and `rules_host`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from spark_rl.telemetry.reading import Reading
from spark_rl.units import GIB

Severity = Literal["info", "warning", "severe"]


@dataclass(frozen=True)
class Thresholds:
    """The figures rules judge by, where they depend on the machine or the recipe."""

    shed_bytes: int = 12 * GIB
    floor_bytes: int = 8 * GIB
    disk_low_bytes: int = 2 * GIB


@dataclass(frozen=True)
class Finding:
    """Something a person should know, with what it rests on."""

    rule: str
    subject: str
    """"host" or "gpu0"."""
    severity: Severity
    summary: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    advice: str = ""


Rule = Callable[[Sequence[Reading], Thresholds, bool], Finding | None]
"""(window, oldest first; thresholds; whether its finding stands already) -> finding. What stands is judged by looser
thresholds, so that nothing flaps. A GPU rule sees one GPU: windows of machines with more are narrowed before."""
