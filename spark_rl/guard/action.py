"""What the guard may ask of the supervisor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

ActionKind = Literal["shed", "stop", "kill", "pause", "resume", "calm"]
Cause = Literal["memory", "heat"]

HALF_HOUR = 1800.0


@dataclass(frozen=True)
class Action:
    """Something the supervisor must do now."""

    kind: ActionKind
    cause: Cause
    reason: str
    """A sentence for people, with the figures."""
    before: Mapping[str, Any] = field(default_factory=dict)
    """The readings it rests on."""
