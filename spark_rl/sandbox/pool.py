"""The pool: as many pairs of warm workers as cores, each pair checking one sample at a time.

In:  jobs. Out: outcomes, in the order of the jobs.
A pair is two sandboxes that share nothing: the candidate runs in one, the tests in the other. They speak over one socket
whose only traffic is calls and plain values. The verdict leaves the judge's sandbox on a socket of its own, with the
nonce of the run; the candidate's process never holds it.
"""

from __future__ import annotations

import contextlib
import os
import queue
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

from spark_rl.sandbox import checks
from spark_rl.sandbox.detect import Isolation, find_isolation
from spark_rl.sandbox.jobs import Outcome, ProgramJob, TestJob
from spark_rl.sandbox.limits import Limits
from spark_rl.sandbox.methods import MethodName
from spark_rl.sandbox.warm import WarmWorker

Item = TypeVar("Item")
Result = TypeVar("Result")
MAX_DEFAULT_PAIRS = 8
"""A pair holds 35 MiB even when idle, and eight check some hundred samples a second: more than a training step draws."""


@dataclass(frozen=True)
class Pair:
    """A candidate's sandbox and a judge's sandbox."""

    candidate: WarmWorker
    judge: WarmWorker

    def stop(self) -> None:
        self.candidate.stop()
        self.judge.stop()


class Sandbox:
    """Checks samples in isolation. Use as a context manager, or call `close`; the end of the process closes it too."""

    def __init__(
        self, limits: Limits | None = None, num_pairs: int | None = None, method: MethodName | None = None
    ) -> None:
        """Raises Refused when no isolation holds on this machine."""
        self.limits = limits or Limits()
        self.isolation = find_isolation(self.limits, only=method)
        self.num_pairs = num_pairs or min(len(os.sched_getaffinity(0)), MAX_DEFAULT_PAIRS)
        self._pairs = [Pair(self.isolation.worker(), self.isolation.worker()) for _ in range(self.num_pairs)]
        self._free: queue.SimpleQueue[Pair] = queue.SimpleQueue()
        for pair in self._pairs:
            self._free.put(pair)
        self._threads = ThreadPoolExecutor(self.num_pairs, thread_name_prefix="sandbox")
        self._close = weakref.finalize(self, _close, os.getpid(), self._pairs, self._threads, self.isolation)

    def check(self, job: TestJob) -> Outcome:
        """The tests' verdict on one candidate."""
        with self.borrowed() as pair:
            return checks.run_tests(pair.candidate, pair.judge, job, self.limits)

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """A function that uses this sandbox, on each item, as many at a time as there are pairs; results in order."""
        return list(self._threads.map(function, items))

    def check_all(self, jobs: Sequence[TestJob]) -> list[Outcome]:
        """`check` for each, as many at a time as there are pairs."""
        return self.map(self.check, jobs)

    def run(self, job: ProgramJob) -> Outcome:
        """One program on one input."""
        with self.borrowed() as pair:
            return checks.run_program(pair.candidate, job, self.limits)

    def run_all(self, jobs: Sequence[ProgramJob]) -> list[Outcome]:
        return self.map(self.run, jobs)

    def each_worker(self, action: Callable[[WarmWorker], object], times: int) -> None:
        """Do something `times` times on the candidates' workers, all at once; for benchmarks."""

        def once(_: int) -> None:
            with self.borrowed() as pair:
                action(pair.candidate)

        list(self._threads.map(once, range(times)))

    @contextlib.contextmanager
    def borrowed(self) -> Iterator[Pair]:
        pair = self._free.get()
        try:
            yield pair
        finally:
            self._free.put(pair)

    @property
    def worker_pids(self) -> list[int]:
        """Host processes of the workers that are running."""
        workers = [worker for pair in self._pairs for worker in (pair.candidate, pair.judge)]
        return [worker.pid for worker in workers if worker.pid is not None]

    def close(self) -> None:
        """End every worker and remove every folder."""
        self._close()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _close(owner: int, pairs: Sequence[Pair], threads: ThreadPoolExecutor, isolation: Isolation) -> None:
    if os.getpid() != owner:  # a forked child of the trainer must not end its parent's workers
        return
    threads.shutdown(wait=True, cancel_futures=True)
    for pair in pairs:
        pair.stop()
    isolation.close()
