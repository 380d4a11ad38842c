"""How the command line speaks: data on stdout, words on stderr, one JSON object a line with --json."""

from __future__ import annotations

import json
import sys
from typing import Any


def emit(text: str = "") -> None:
    """A line of data for stdout."""
    print(text, flush=True)


def emit_json(value: Any) -> None:
    """One JSON object on one line of stdout. NaN and infinity are a bug of the caller: ValueError."""
    print(json.dumps(value, allow_nan=False, ensure_ascii=False), flush=True)


def say(text: str) -> None:
    """A line of words for stderr."""
    sys.stdout.flush()
    print(text, file=sys.stderr, flush=True)


def fail(message: str, hint: str | None = None) -> None:
    """`error: ...`, then `hint: ...`, on stderr."""
    say("\n".join(f"error: {line}" for line in message.splitlines() or [""]))
    if hint:
        say(f"hint: {hint}")
