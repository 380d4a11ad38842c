"""The `control` file: how a viewer asks a run for something. Written by viewers, read by worker and supervisor."""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass
from typing import Literal, get_args

from spark_rl.rundir import Clock, RunDir, write_text_atomic

Request = Literal["stop", "checkpoint", "pause", "resume"]


@dataclass(frozen=True)
class ControlRequest:
    request: Request
    id: str
    """Tells a new request from one that was already carried out."""
    t: float
    """UTC seconds."""


def send(run: RunDir, request: Request, clock: Clock = time.time) -> ControlRequest:
    """Ask the run. A later request replaces one that was not read yet."""
    asked = ControlRequest(request, uuid.uuid4().hex, clock())
    write_text_atomic(run.control, json.dumps(asked.__dict__) + "\n")
    return asked


def read_request(run: RunDir, newer_than: float) -> ControlRequest | None:
    """The request in the file, or None: there is none, it cannot be read, or it was meant for an earlier process."""
    try:
        asked = ControlRequest(**json.loads(run.control.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return asked if asked.request in get_args(Request) and asked.t >= newer_than else None
