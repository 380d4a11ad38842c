"""The `control` file: how a viewer asks a run for something. Written by viewers, read by worker and supervisor.
The supervisor's guard asks in the same words through a file of its own, so that neither overwrites the other."""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from spark_rl.rundir import Clock, RunDir, write_text_atomic

Request = Literal["stop", "checkpoint", "pause", "resume", "shed"]
"""shed: save a checkpoint, empty caches, use less memory a step from here on; only the guard asks for it."""
Asker = Literal["viewer", "guard"]


@dataclass(frozen=True)
class ControlRequest:
    request: Request
    id: str
    """Tells a new request from one that was already carried out."""
    t: float
    """UTC seconds."""


def send(run: RunDir, request: Request, clock: Clock = time.time, asker: Asker = "viewer") -> ControlRequest:
    """Ask the run. A later request replaces one that was not read yet."""
    asked = ControlRequest(request, uuid.uuid4().hex, clock())
    write_text_atomic(_file_of(run, asker), json.dumps(asked.__dict__) + "\n")
    return asked


def read_request(run: RunDir, newer_than: float, asker: Asker = "viewer") -> ControlRequest | None:
    """The request in the file, or None: there is none, it cannot be read, or it was meant for an earlier process."""
    try:
        asked = ControlRequest(**json.loads(_file_of(run, asker).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return asked if asked.request in get_args(Request) and asked.t >= newer_than else None


def _file_of(run: RunDir, asker: Asker) -> Path:
    return run.control if asker == "viewer" else run.guard_control
