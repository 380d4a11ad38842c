"""Following a run in the foreground: lines on stderr until it ends; Ctrl-C asks it to stop."""

from __future__ import annotations

import subprocess
import sys
import time

from spark_rl import control
from spark_rl.cli.output import say
from spark_rl.errors import ExitCode
from spark_rl.headless import Follower, Line
from spark_rl.rundir import RunDir, read_jsonl
from spark_rl.units import format_seconds

POLL_SECONDS = 0.2
PLAIN_SECONDS = 5.0
"""Without a terminal, at most one progress line in this time."""


class LinePrinter:
    """Progress overwrites itself on a terminal; elsewhere it is thinned out to plain lines."""

    def __init__(self, is_terminal: bool) -> None:
        self._is_terminal = is_terminal
        self._open = 0
        self._started = self._last_progress = time.monotonic()

    def show(self, line: Line) -> None:
        if not line.transient:
            self.finish()
            say(f"[{format_seconds(time.monotonic() - self._started)}] {line.text}")
        elif self._is_terminal:
            sys.stderr.write("\r" + line.text.ljust(self._open)[:200])
            sys.stderr.flush()
            self._open = len(line.text)
        elif time.monotonic() - self._last_progress >= PLAIN_SECONDS:
            self._last_progress = time.monotonic()
            say(line.text)

    def finish(self) -> None:
        """End an open progress line."""
        if self._open:
            sys.stderr.write("\n")
            self._open = 0


def follow(run: RunDir, max_steps: int, supervisor: subprocess.Popen[bytes], from_start: bool) -> ExitCode:
    """Show the run until its supervisor ends. Returns the run's exit code.

    The first Ctrl-C asks the run to save a checkpoint and stop; a second one leaves it running.
    """
    follower, printer = Follower(run, max_steps, from_start), LinePrinter(sys.stderr.isatty())
    asked_to_stop = False
    while True:
        try:
            ended = supervisor.poll() is not None
            for line in follower.new_lines():
                printer.show(line)
            if ended:
                break
            time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            printer.finish()
            if asked_to_stop:
                say(f"left running; spark-rl watch {run.name} shows it, spark-rl stop {run.name} stops it")
                raise
            asked_to_stop = True
            control.send(run, "stop")
            say("asked to stop: the run saves a checkpoint first (Ctrl-C again leaves it running)")
    printer.finish()
    if asked_to_stop:
        return ExitCode.INTERRUPTED
    ends = [row for row in read_jsonl(run.events).rows if row.get("event") == "run_ended"]
    if not ends:
        say(f"the supervisor ended with code {supervisor.returncode} without a word; see {run.path / 'supervisor.log'}")
        return ExitCode.INTERNAL
    if ends[-1].get("hint"):
        say(f"hint: {ends[-1]['hint']}")
    return ExitCode(ends[-1]["exit_code"])
