"""The helper process behind workers.py: imports one handler's packages, then answers payloads from a forked child.

In:  JSON lines on stdin: first {"setup", "memory_bytes"}, then {"payload", "limit_s", "cpu_limit_s"}.
Out: JSON lines on stdout. The child that does the work is killed at a limit and forked anew; this process itself never
runs the work. The CPU limit is what decides on a loaded machine; the other one, in wall time, ends what only waits.
A handler is a module with `prepare(setup)` and `handle(payload) -> JSON value`.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, BinaryIO

from spark_rl.errors import SparkError

_PR_SET_PDEATHSIG = 1
"""From linux/prctl.h."""


class _Child:
    """The forked process that does the work."""

    def __init__(self, handle: Callable[[Any], Any], memory_bytes: int) -> None:
        to_child, from_parent = os.pipe()
        to_parent, from_child = os.pipe()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(from_parent)
            os.close(to_parent)
            _work(handle, to_child, from_child, memory_bytes, parent)
        os.close(to_child)
        os.close(from_child)
        self.stdin = os.fdopen(from_parent, "wb", buffering=0)
        self.stdout = to_parent

    def answer(self, line: bytes, limit_s: float, cpu_limit_s: float | None, parent_end: int) -> bytes:
        """The child's answer line, or the line that says which limit stopped it (the child is then gone).

        `parent_end` becomes readable while we wait only when our parent has gone: it asks one thing at a time.
        """
        try:
            data = line
            while data:
                data = data[self.stdin.write(data) :]
        except OSError:
            return self.ended(cpu_limit_s)
        received = b""
        deadline = time.monotonic() + limit_s
        while not received.endswith(b"\n"):
            waited_for = [self.stdout, parent_end]
            readable, _, _ = select.select(waited_for, [], [], max(0.0, deadline - time.monotonic()))
            if parent_end in readable and self.stdout not in readable:
                self.end()
                sys.exit(0)
            if not readable:
                self.end()
                return _line(fault="timeout", detail=f"stopped after {limit_s:g} s")
            chunk = os.read(self.stdout, 1 << 20)
            if not chunk:
                return self.ended(cpu_limit_s)
            received += chunk
        return received

    def ended(self, cpu_limit_s: float | None) -> bytes:
        """What to say of a child that ended by itself: its CPU limit, or a crash."""
        status = self.end()
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF:
            return _line(fault="timeout", detail=f"stopped after {cpu_limit_s:g} s of CPU time")
        return _line(fault="crashed", detail=f"ended with wait status {status}")

    def end(self) -> int:
        """Kill and reap; gives the wait status that it ended with."""
        for kill in (os.killpg, os.kill):  # its group, then itself in case it had not made the group yet
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        self.stdin.close()
        os.close(self.stdout)
        self.pid = 0
        return status


def _work(handle: Callable[[Any], Any], read_fd: int, write_fd: int, memory_bytes: int, parent: int) -> None:
    """The child's life: one answer per line until its parent goes."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)
    os.setpgid(0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory_bytes:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    with os.fdopen(read_fd, "rb") as requests, os.fdopen(write_fd, "wb", buffering=0) as answers:
        signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends the process even inside C code
        for request in requests:
            job = json.loads(request)
            signal.setitimer(signal.ITIMER_PROF, job["cpu_limit_s"] or 0)
            try:
                answer = _line(value=handle(job["payload"]))
            except (SystemExit, KeyboardInterrupt) as stop:
                answer = _line(fault="raised", detail=f"{type(stop).__name__}: {stop}"[:400])
            except Exception as error:  # noqa: BLE001  worker boundary: the caller gets the exception as data
                answer = _line(fault="raised", detail=f"{type(error).__name__}: {error}"[:400])
            signal.setitimer(signal.ITIMER_PROF, 0)
            while answer:
                answer = answer[answers.write(answer) :]
    os._exit(0)


def _line(**message: Any) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _prepared(module_name: str, setup: dict[str, Any]) -> tuple[Callable[[Any], Any] | None, bytes]:
    """The handler, and the message that says whether it can be used."""
    try:
        module = import_module(module_name)
        module.prepare(setup)
    except ModuleNotFoundError as error:
        return None, _line(ready=False, missing=error.name)
    except SparkError as error:
        return None, _line(ready=False, unusable=error.message, hint=error.hint)
    except Exception as error:  # noqa: BLE001  worker boundary: told to the caller, who raises it as a config error
        return None, _line(ready=False, unusable=f"{type(error).__name__}: {error}"[:400])
    handle: Callable[[Any], Any] = module.handle
    return handle, _line(ready=True)


def serve(handler: str, requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until they end."""
    first = json.loads(requests.readline())
    handle, message = _prepared(handler, first["setup"])
    answers.write(message)
    if handle is None:
        return
    gc.freeze()  # keeps the shared pages of the children shared
    child: _Child | None = None
    for request in requests:
        if child is None or child.pid == 0:
            child = _Child(handle, first["memory_bytes"])
        limits = json.loads(request)
        answers.write(child.answer(request, limits["limit_s"], limits["cpu_limit_s"], requests.fileno()))
    if child is not None and child.pid:
        child.end()


def main() -> None:
    """Keep stdin and stdout for the protocol; what the work prints goes to stderr and it reads nothing."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle; its end closes our stdin
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    with contextlib.suppress(BrokenPipeError):
        serve(sys.argv[1], requests, answers)


if __name__ == "__main__":
    main()
