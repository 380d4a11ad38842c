"""A plain terminal for reading samples: whole screens out, single keys in, nothing left behind on exit.

Linux and macOS terminals (termios). Used by `spark-rl inspect review`; the Textual screens have their own.
"""

from __future__ import annotations

import codecs
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from spark_rl.cli.output import emit

CLEAR = "\x1b[H\x1b[2J"
"""Cursor home, clear the screen: understood by every terminal that is not "dumb"."""

_SEQUENCES = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1b[C": "right",
    "\x1b[D": "left",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1bOC": "right",
    "\x1bOD": "left",
    "\x1b[5~": "pageup",
    "\x1b[6~": "pagedown",
}


def is_interactive() -> bool:
    """Whether a person can see and type here."""
    return os.name == "posix" and sys.stdin.isatty() and sys.stdout.isatty()


def is_dumb() -> bool:
    """Whether the terminal knows nothing but lines of text."""
    return os.environ.get("TERM", "dumb") == "dumb"


def output_encoding() -> str:
    return sys.stdout.encoding or "ascii"


class PlainTerminal:
    """Single-key input while it is entered (`with`); the terminal's own settings come back whatever happens."""

    def __init__(self) -> None:
        self._input = sys.stdin.fileno()
        self._settings: list[Any] | None = None
        self._on_return: Any = signal.SIG_DFL
        self._waiting = ""

    @property
    def encoding(self) -> str:
        return output_encoding()

    def __enter__(self) -> PlainTerminal:
        import termios
        import tty

        self._settings = termios.tcgetattr(self._input)
        tty.setcbreak(self._input)
        # Stopped with Ctrl-Z and brought back, the shell has put its own settings in place.
        self._on_return = signal.signal(signal.SIGCONT, lambda number, frame: tty.setcbreak(self._input))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import termios

        if self._settings is not None:
            signal.signal(signal.SIGCONT, self._on_return)
            termios.tcsetattr(self._input, termios.TCSADRAIN, self._settings)

    def size(self) -> tuple[int, int]:
        columns, rows = shutil.get_terminal_size()
        return columns, rows - 1  # the last row is where the cursor stays and a line is typed

    def draw(self, lines: Sequence[str]) -> None:
        start = "" if is_dumb() else CLEAR
        emit(_in_encoding(start + "\n".join(lines), self.encoding))

    def key(self) -> str:
        if not self._waiting:
            self._waiting = self._read()
        for sequence, name in _SEQUENCES.items():
            if self._waiting.startswith(sequence):
                self._waiting = self._waiting[len(sequence) :]
                return name
        if self._waiting.startswith("\x1b"):  # an unknown sequence: none of its letters is an answer
            self._waiting = ""
            return "\x1b"
        first, self._waiting = self._waiting[:1], self._waiting[1:]
        return "" if first == "\x04" else first

    def line(self, question: str) -> str | None:
        """A line typed with the terminal's own editing; None at its end (Ctrl-D)."""
        import termios
        import tty

        self._waiting = ""
        if self._settings is not None:
            termios.tcsetattr(self._input, termios.TCSAFLUSH, self._settings)
        try:
            emit(_in_encoding(question, self.encoding))
            typed = self._read()
        finally:
            if self._settings is not None:
                tty.setcbreak(self._input)
        return typed.rstrip("\n") if typed else None

    def _read(self) -> str:
        """What was typed, "" at the end of input. A character that came in halves is completed."""
        decoder = codecs.getincrementaldecoder(sys.stdin.encoding or "utf-8")(errors="replace")
        text = ""
        while not text:
            try:
                data = os.read(self._input, 4096)
            except OSError:  # the terminal has gone
                return ""
            text = decoder.decode(data, final=not data)
            if not data:
                return text
        return text


def _in_encoding(text: str, encoding: str) -> str:
    """The text with escapes for what the terminal's encoding lacks."""
    return text.encode(encoding, errors="backslashreplace").decode(encoding)
