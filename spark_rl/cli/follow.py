"""Following a run in the foreground: lines on stderr until it ends; Ctrl-C asks it to stop."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from spark_rl import control
from spark_rl.cli.output import say
from spark_rl.errors import ExitCode, RunDirError
from spark_rl.headless import Follower, Line
from spark_rl.rundir import RunDir, read_jsonl
from spark_rl.runstate import tail_of
from spark_rl.units import format_seconds

POLL_SECONDS = 0.2
PLAIN_SECONDS = 5.0
"""Without a terminal, at most one progress line in this time."""

FULL_BYTES = 65_536
"""With less free than this, a supervisor that ended without a word could not write one."""


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


def follow(run: RunDir, max_steps: int | None, supervisor: subprocess.Popen[bytes], from_start: bool) -> ExitCode:
    """Show the run until its supervisor ends. Returns the run's exit code.

    The first Ctrl-C asks the run to save a checkpoint and stop; a second one does not wait for that.
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
                say(f"not waiting: the run saves a checkpoint and stops by itself; spark-rl watch {run.path} shows it")
                raise
            asked_to_stop = True
            control.send(run, "stop")
            say("asked to stop: the run saves a checkpoint first (Ctrl-C again does not wait for it)")
    printer.finish()
    if asked_to_stop:
        return ExitCode.INTERRUPTED
    end = end_of(run, supervisor.pid)
    if end is None:
        return tell_silent_end(run, supervisor.returncode)
    if end.get("hint"):
        say(f"hint: {end['hint']}")
    return ExitCode(end["exit_code"])


def end_of(run: RunDir, supervisor_pid: int) -> Mapping[str, Any] | None:
    """The `run_ended` event of this supervisor; None where it wrote none, whatever an earlier one wrote."""
    end, is_own = None, False
    for row in read_jsonl(run.events).rows:
        if row.get("event") == "supervisor_started":
            is_own = row.get("pid") == supervisor_pid
            end = None if is_own else end
        elif row.get("event") == "run_ended" and is_own:
            end = row
    return end


def tell_silent_end(run: RunDir, returncode: int) -> ExitCode:
    """A supervisor that was killed, or that could not begin: its own words are in supervisor.log."""
    if returncode < 0:
        say(f"error: the supervisor was killed by {signal.Signals(-returncode).name}")
        say(f"hint: spark-rl resume {run.path} goes on from the last checkpoint")
        return ExitCode.TRAINING_FAILED
    words = [line for line in tail_of(run.path / "supervisor.log") if line.startswith("error: ")]
    if not words and shutil.disk_usage(run.path).free < FULL_BYTES:
        raise RunDirError(f"{run.path}: cannot be written: the disk is full", "free some space; then spark-rl resume")
    say(words[-1] if words else f"error: the supervisor ended without a word; see {run.path / 'supervisor.log'}")
    return ExitCode(returncode) if words and returncode in list(ExitCode) else ExitCode.INTERNAL
