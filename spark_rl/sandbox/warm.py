"""One warm worker as the host sees it: started under a method, handed samples, restarted when a sample left anything.

In:  a role and the descriptors of a sample. Out: a report once that sample's process is dead.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spark_rl.errors import Refused
from spark_rl.sandbox.bare_root import empty_folder
from spark_rl.sandbox.methods import Launch

START_SECONDS = 20.0
"""A worker starts in 0.1 to 0.3 s; on a machine that swaps, in some seconds."""
STOP_SECONDS = 20.0
"""A killed process goes at once, unless the kernel is freeing a GiB or writing to a busy disk for it."""


class WorkerDied(Exception):
    """The warm worker itself ended: the sample gets no verdict from it."""


@dataclass(frozen=True)
class Report:
    """How one sample's process ended."""

    status: int
    """Exit code, or minus the signal that killed it."""
    peak_bytes: int
    cpu_seconds: float
    overfull: bool
    """It filled its scratch folder beyond the limit."""
    dirty: bool
    """It left files or processes; the worker was replaced."""


class WarmWorker:
    """Holds the process; not safe for two threads at once."""

    def __init__(self, launch: Callable[[], Launch]) -> None:
        self._make_launch = launch
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._launch: Launch | None = None
        self.num_starts = 0
        self.num_own_descendants = 0

    def start(self) -> None:
        """Start the process and wait until it is warm. Refused, with what it said, when it does not come up."""
        self._launch = launch = self._make_launch()
        if launch.scratch is not None:
            launch.scratch.mkdir(mode=0o700, exist_ok=True)
            if launch.user is not None:
                os.chown(launch.scratch, launch.user, launch.user)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with tempfile.TemporaryFile() as said:
            self._process = subprocess.Popen(
                launch.command,
                stdin=theirs.fileno(),
                stdout=said,
                stderr=said,
                env=launch.environment,
                cwd="/",
                start_new_session=True,
            )
            theirs.close()
            self._control = ours
            myself = os.pidfd_open(os.getpid())
            try:
                socket.send_fds(ours, [b"trainer"], [myself])
                answer = self._receive(START_SECONDS)
            except OSError:
                answer = b""
            finally:
                os.close(myself)
            if answer != b"ready":
                self.stop()
                said.seek(0)
                text = " ".join(said.read(4096).decode("utf-8", "replace").split())
                raise Refused(f"the sandbox worker did not start: {text[-300:] or 'it said nothing'}")
        self.num_starts += 1
        self.num_own_descendants = len(descendants(self._process.pid))

    @property
    def pid(self) -> int | None:
        """The process on the host; its children are the worker's."""
        return self._process.pid if self._process else None

    def begin(self, role: bytes, descriptors: Sequence[int]) -> None:
        """Hand over a sample. The descriptors may be closed afterwards."""
        if self._process is None or self._process.poll() is not None:
            self.stop()
            self.start()
        assert self._control is not None
        try:
            socket.send_fds(self._control, [role], list(descriptors))
        except OSError as error:
            raise WorkerDied(str(error)) from None

    def end(self) -> None:
        """Ask for the sample's end; harmless when it has ended by itself."""
        assert self._control is not None
        with contextlib.suppress(OSError):
            self._control.send(b"s")

    def ends_by_itself(self, seconds: float) -> bool:
        """Wait for the sample to end without being asked to."""
        assert self._control is not None
        ready, _, _ = select.select([self._control], [], [], max(0.0, seconds))
        return bool(ready)

    def report(self) -> Report:
        """Wait until nothing of the sample is left. A worker that it left dirty is replaced."""
        assert self._control is not None
        answer = self._receive(STOP_SECONDS)
        if not answer:
            self.stop()
            raise WorkerDied("the sandbox worker ended or did not answer")
        report = Report(**json.loads(answer))
        if report.dirty:
            self.stop()
        return report

    def _receive(self, seconds: float) -> bytes:
        assert self._control is not None
        ready, _, _ = select.select([self._control], [], [], seconds)
        if not ready:
            return b""
        try:
            return self._control.recv(65536)
        except OSError:
            return b""

    def stop(self) -> None:
        """End the worker and everything in it, and remove its scratch folder. Safe to call twice."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            self._end_process(self._process)
            self._process = None
        if self._launch is not None and self._launch.scratch is not None and self._launch.scratch.is_dir():
            empty_folder(self._launch.scratch)
            self._launch.scratch.rmdir()
        self._launch = None

    @staticmethod
    def _end_process(process: subprocess.Popen[bytes]) -> None:
        """It ends by itself when the control socket closes; what does not is killed with its whole family."""
        try:
            process.wait(timeout=1.0)
            return
        except subprocess.TimeoutExpired:
            family = descendants(process.pid)
        for pid in [*reversed(family), process.pid]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=STOP_SECONDS)


def descendants(pid: int) -> list[int]:
    """Children, their children and so on, from /proc; parents before children."""
    found = []
    pending = [pid]
    while pending:
        current = pending.pop()
        try:
            with open(f"/proc/{current}/task/{current}/children") as file:  # noqa: PTH123
                children = [int(text) for text in file.read().split()]
        except OSError:
            children = []
        found += children
        pending += children
    return found
