"""Work that may hang, run in processes that can be killed: symbolic algebra, scorers of packages, users' functions.

In:  JSON payloads for one handler module (see worker_main.py). Out: one `Outcome` each: a value, or which limit stopped it.
Each worker imports its packages once and then forks a child that does the work, so that replacing a killed child costs
milliseconds and not the import. Payloads and answers are JSON; nothing that came from a worker is ever unpickled.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

from spark_rl.errors import ConfigError, MissingPackage
from spark_rl.rewards import worker_main
from spark_rl.units import GIB

START_LIMIT_S = 120.0
"""Importing a scorer's packages on a loaded machine has been seen to take 20 s."""
WALL_FACTOR = 10.0
"""A CPU limit comes with a limit in wall time this much longer, so that a loaded machine does not change verdicts."""
GRACE_S = 5.0
"""How long after its own limit a worker may take to say so before it is killed from outside."""


@dataclass(frozen=True)
class Outcome:
    """What became of one payload."""

    value: Any = None
    fault: Literal["timeout", "crashed", "raised"] | None = None
    detail: str = ""


class _Worker:
    """One helper process; not thread-safe, the pool's lock guards it."""

    def __init__(self, handler: str, setup: Mapping[str, Any], memory_bytes: int) -> None:
        command = [sys.executable, "-m", worker_main.__name__, handler]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self.buffer = b""
        self.deadline = time.monotonic() + START_LIMIT_S
        self.job: int | None = None
        self.send({"setup": dict(setup), "memory_bytes": memory_bytes})

    @property
    def fileno(self) -> int:
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def send(self, message: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        data = json.dumps(message).encode() + b"\n"
        while data:
            data = data[self.process.stdin.write(data) :]

    def read(self) -> tuple[list[Any], bool]:
        """Complete messages that have arrived, and whether the process has closed its end."""
        chunk = os.read(self.fileno, 1 << 20)
        *lines, self.buffer = (self.buffer + chunk).split(b"\n")
        return [json.loads(line) for line in lines], not chunk

    def kill(self) -> None:
        with contextlib.suppress(OSError):
            self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self.process.wait()


def _kill_all(workers: list[_Worker]) -> None:
    for worker in workers:
        worker.kill()
    workers.clear()


class KillablePool:
    """Up to `max_workers` helper processes for one handler, started when there is work for them.

    The limit is CPU time, or with `counts_cpu=False` wall time, for work that may sleep or wait for others.
    `memory_bytes` bounds the address space of each child that works; 0 leaves it unbounded.
    """

    def __init__(
        self,
        handler: ModuleType,
        limit_s: float,
        setup: Mapping[str, Any] | None = None,
        *,
        counts_cpu: bool = True,
        max_workers: int | None = None,
        memory_bytes: int = 4 * GIB,
    ) -> None:
        self.handler = handler.__name__
        self.limit_s = limit_s
        self.counts_cpu = counts_cpu
        self.setup = dict(setup or {})
        self.max_workers = max_workers or min(4, os.cpu_count() or 1)
        self.memory_bytes = memory_bytes
        self._idle: list[_Worker] = []
        self._starting: list[_Worker] = []
        self._all: list[_Worker] = []
        self._lock = threading.Lock()
        self._finalizer = weakref.finalize(self, _kill_all, self._all)

    def run(self, payloads: Sequence[Any], limit_s: float | None = None) -> list[Outcome]:
        """One outcome per payload, in order. `limit_s` bounds each payload by itself."""
        with self._lock:
            return self._run(payloads, limit_s or self.limit_s)

    def warm(self) -> None:
        """Start one worker and wait until it can be used; raises ConfigError or MissingPackage when it cannot."""
        with self._lock:
            if not self._all:
                worker = _Worker(self.handler, self.setup, self.memory_bytes)
                self._all.append(worker)
                self._settle([worker])

    def close(self) -> None:
        """Kill all helper processes; the pool may be used again afterwards."""
        with self._lock:
            _kill_all(self._all)
            self._idle.clear()
            self._starting.clear()

    def _run(self, payloads: Sequence[Any], limit_s: float) -> list[Outcome]:
        outcomes: list[Outcome | None] = [None] * len(payloads)
        waiting = deque(range(len(payloads)))
        busy, self._starting = self._starting, []
        for worker in busy:
            worker.deadline = time.monotonic() + START_LIMIT_S
        try:
            while waiting or any(worker.job is not None for worker in busy):
                self._hire(waiting, busy, payloads, limit_s)
                for worker in self._ready(busy):
                    self._collect(worker, busy, outcomes)
                self._fire_late(busy, outcomes, limit_s)
        except BaseException:
            for worker in busy:
                self._drop(worker)
            raise
        self._starting = busy  # what is left has no job yet: it was started and not needed
        return [outcome or Outcome(fault="crashed", detail="no answer") for outcome in outcomes]

    def _settle(self, busy: list[_Worker]) -> None:
        """Wait for workers that are starting."""
        try:
            while busy:
                for worker in self._ready(busy):
                    self._collect(worker, busy, [])
                self._fire_late(busy, [], START_LIMIT_S)
        except BaseException:
            for worker in busy:
                self._drop(worker)
            raise

    def _hire(self, waiting: deque[int], busy: list[_Worker], payloads: Sequence[Any], limit_s: float) -> None:
        """Hand waiting payloads to idle workers; start another worker when each has several waiting."""
        while waiting and self._idle:
            worker = self._idle.pop()
            worker.job = waiting.popleft()
            wall_s = limit_s * (WALL_FACTOR if self.counts_cpu else 1.0)
            worker.deadline = time.monotonic() + wall_s + GRACE_S
            limits = {"limit_s": wall_s, "cpu_limit_s": limit_s if self.counts_cpu else None}
            try:
                worker.send({"payload": payloads[worker.job], **limits})
            except OSError:  # it died while idle
                waiting.appendleft(worker.job)
                self._drop(worker)
                continue
            busy.append(worker)
        starting = len(self._all)
        if waiting and starting < self.max_workers and (starting == 0 or len(waiting) > 8 * starting):
            worker = _Worker(self.handler, self.setup, self.memory_bytes)
            self._all.append(worker)
            busy.append(worker)

    def _ready(self, busy: list[_Worker]) -> list[_Worker]:
        with selectors.DefaultSelector() as selector:
            for worker in busy:
                selector.register(worker.fileno, selectors.EVENT_READ, worker)
            soonest = min(worker.deadline for worker in busy)
            return [key.data for key, _ in selector.select(max(0.0, soonest - time.monotonic()))]

    def _collect(self, worker: _Worker, busy: list[_Worker], outcomes: list[Outcome | None]) -> None:
        messages, closed = worker.read()
        for message in messages:
            if "ready" in message:
                _refuse_if_unusable(message)
            elif worker.job is not None:
                outcomes[worker.job] = Outcome(message.get("value"), message.get("fault"), message.get("detail", ""))
                worker.job = None
            busy.remove(worker)
            self._idle.append(worker)
        if closed:
            if worker in busy:
                busy.remove(worker)
            if worker.job is not None:
                outcomes[worker.job] = Outcome(fault="crashed", detail="the helper process ended")
            elif worker not in self._idle:
                self._drop(worker)
                raise ConfigError(f"the helper process for {self.handler!r} did not start")
            self._drop(worker)

    def _fire_late(self, busy: list[_Worker], outcomes: list[Outcome | None], limit_s: float) -> None:
        now = time.monotonic()
        for worker in [worker for worker in busy if worker.deadline < now]:
            busy.remove(worker)
            self._drop(worker)
            if worker.job is None:
                raise ConfigError(f"the helper process for {self.handler!r} was not ready within {START_LIMIT_S:g} s")
            outcomes[worker.job] = Outcome(fault="timeout", detail=f"no answer within {limit_s:g} s")

    def _drop(self, worker: _Worker) -> None:
        worker.kill()
        if worker in self._all:
            self._all.remove(worker)
        if worker in self._idle:
            self._idle.remove(worker)


def _refuse_if_unusable(message: Mapping[str, Any]) -> None:
    if package := message.get("missing"):
        raise MissingPackage(f"package {package!r} is not installed", 'pip install "spark_rl[rewards]"')
    if fault := message.get("unusable"):
        raise ConfigError(str(fault), message.get("hint"))
