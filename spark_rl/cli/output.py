"""How the command line speaks: data on stdout, words on stderr, one JSON object a line with --json."""

from __future__ import annotations

import errno
import io
import json
import os
import sys
from typing import Any, TextIO

from spark_rl.errors import RunDirError

LOST = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EACCES}
"""What a disk or a folder may do to any write or read: the machine's state, not a bug of ours."""


def ready_streams() -> None:
    """Make stdin, stdout and stderr usable whatever the shell handed over.

    A stream that is closed (`>&-`) becomes /dev/null, lest the next file that is opened takes its number. A character
    that the terminal's encoding lacks is written as an escape.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            try:
                os.fstat(number)
            except OSError:
                os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def drop_output() -> None:
    """Nobody reads any more, or nothing can be written: keep the interpreter from trying again when it ends."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            _drop(stream)


def _drop(stream: TextIO) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def lost(error: OSError) -> RunDirError | None:
    """What to tell of an error that the disk or a folder is to blame for; None for any other."""
    if error.errno not in LOST:
        return None
    place = error.filename2 or error.filename or "standard output"
    return RunDirError(f"{place}: {error.strerror}", "is the disk full or read-only, or the folder somebody else's?")


def emit(text: str = "") -> None:
    """A line of data for stdout."""
    print(text, flush=True)


def emit_json(value: Any) -> None:
    """One JSON object on one line of stdout. NaN and infinity are a bug of the caller: ValueError."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:  # JSON has escapes of its own
        text = json.dumps(value, allow_nan=False)
    print(text, flush=True)


def say(text: str) -> None:
    """A line of words for stderr. Words that cannot be written are lost; what the command does goes on."""
    sys.stdout.flush()
    try:
        print(text, file=sys.stderr, flush=True)
    except BrokenPipeError:
        raise
    except OSError:
        _drop(sys.stderr)


def fail(message: str, hint: str | None = None) -> None:
    """`error: ...`, then `hint: ...`, on stderr."""
    say("\n".join(f"error: {line}" for line in message.splitlines() or [""]))
    if hint:
        say(f"hint: {hint}")
