"""Which isolation is in force on this machine, found by starting it and trying to break it.

Out: an Isolation that makes warm workers, or Refused with the reason for each method. There is no unsafe last resort.
"""

from __future__ import annotations

import contextlib
import itertools
import subprocess
from dataclasses import dataclass
from pathlib import Path

from spark_rl.errors import Refused
from spark_rl.sandbox import bare_root, methods, selftest
from spark_rl.sandbox.layout import this_interpreter
from spark_rl.sandbox.limits import Limits
from spark_rl.sandbox.methods import METHODS, SAYS, Launch, MethodName
from spark_rl.sandbox.warm import WarmWorker, WorkerDied


@dataclass(frozen=True)
class Tried:
    """A method that is not in force, and why."""

    method: MethodName
    reason: str


class Isolation:
    """One method, ready to start workers. Owns the folder that some methods need."""

    def __init__(self, method: MethodName, limits: Limits) -> None:
        self.method = method
        self.limits = limits
        self.tried: tuple[Tried, ...] = ()
        self._python = this_interpreter()
        self._numbers = itertools.count()
        self.folder: Path | None = None
        bare_root.remove_stale_folders()
        if method in ("bare_root", "landlock"):
            self.folder = bare_root.make_private_folder()
            if method == "bare_root":
                bare_root.build(self._python, self.folder)

    @property
    def says(self) -> str:
        """One line for people."""
        return SAYS[self.method]

    def worker(self) -> WarmWorker:
        """A worker that is not started yet."""
        return WarmWorker(self._launch)

    def _launch(self) -> Launch:
        number = next(self._numbers)
        if self.method == "bubblewrap":
            return methods.launch_bubblewrap(self._python, self.limits, number)
        if self.method == "namespaces":
            return methods.launch_namespaces(self._python, self.limits, number)
        assert self.folder is not None
        if self.method == "bare_root":
            return methods.launch_bare_root(self._python, self.limits, number, self.folder)
        return methods.launch_landlock(self._python, self.limits, number, self.folder)

    def close(self) -> None:
        """Remove the folder; workers must be stopped before."""
        if self.folder is not None and self.folder.is_dir():
            bare_root.remove_tree(self.folder)


def find_isolation(limits: Limits | None = None, only: MethodName | None = None) -> Isolation:
    """The best method that holds here (or `only` that one). Refused when none does."""
    limits = limits or Limits()
    tried: list[Tried] = []
    for method in METHODS if only is None else (only,):
        reason = methods.may_try(method)
        if reason is None:
            isolation, reason = _try(method, limits)
            if isolation is not None:
                isolation.tried = tuple(tried)
                return isolation
        tried.append(Tried(method, reason or "unknown"))
    raise Refused(
        "model-written code cannot be isolated on this machine, so it is not run:\n"
        + "\n".join(f"  {one.method}: {one.reason}" for one in tried),
        "install bubblewrap, or run where user namespaces or Landlock (kernel 6.2 or newer) are allowed",
    )


def _try(method: MethodName, limits: Limits) -> tuple[Isolation | None, str | None]:
    isolation = None
    try:
        isolation = Isolation(method, limits)
        worker = isolation.worker()
        try:
            worker.start()
            found = selftest.breaches(worker, limits)
        finally:
            worker.stop()
    except (Refused, WorkerDied, OSError, KeyError, subprocess.SubprocessError) as error:
        found = [error.message if isinstance(error, Refused) else str(error)]
    if not found:
        return isolation, None
    if isolation is not None:
        with contextlib.suppress(OSError):
            isolation.close()
    return None, "it does not hold: " + "; ".join(found)
