"""The guard's effects on the operating system: staying alive itself, making the worker the one that dies first, killing it.

Nothing here needs root. What is not allowed is left undone and said: each function returns what it did in words.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
from collections.abc import Iterable
from pathlib import Path

from spark_rl.telemetry import procfs

MCL_CURRENT, MCL_FUTURE, MCL_ONFAULT = 1, 2, 4
"""mlockall(2). On-fault: a thread's 8 MiB stack is locked page by page as it is used, not all at once."""

WORKER_OOM_SCORE = 800
"""Of 1000: the kernel takes the worker long before a shell, a desktop or the supervisor."""

BALLAST_BYTES = 8 * 1024 * 1024
"""Touched now and given back at the moment of acting, so that a few small objects can still be made."""


class Ballast:
    """Memory kept for the moment when there is none."""

    def __init__(self, size: int = BALLAST_BYTES) -> None:
        self._held: bytearray | None = bytearray(size)
        for offset in range(0, size, 4096):
            self._held[offset] = 1

    def drop(self) -> None:
        self._held = None


def lock_memory() -> str:
    """Keeps this process's pages in memory, as far as its limit allows, so that it can act while the machine swaps."""
    libc = ctypes.CDLL(None, use_errno=True)
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    may_grow = soft == resource.RLIM_INFINITY or os.geteuid() == 0
    if not may_grow and _resident_bytes() > soft:
        # Locking now would fail, and locking what comes later would make allocations fail in its place.
        return f"not locked in memory: the limit is {soft // 1024} KiB (ulimit -l); memory was pre-allocated instead"
    flags = MCL_CURRENT | MCL_ONFAULT | (MCL_FUTURE if may_grow else 0)
    if libc.mlockall(flags) == 0:
        return "locked in memory"
    return f"not locked in memory: {os.strerror(ctypes.get_errno())}; memory was pre-allocated instead"


def offer_worker(pid: int, proc: Path = Path("/proc")) -> str:
    """Raises the worker's out-of-memory score; its children inherit it. Raising one's own child needs no privilege."""
    try:
        (proc / str(pid) / "oom_score_adj").write_text(str(WORKER_OOM_SCORE))
    except OSError as error:
        return f"the worker's oom_score_adj could not be raised: {error.strerror}"
    return f"the worker's oom_score_adj is {WORKER_OOM_SCORE}"


def kill_worker(leader: int, members: Iterable[int] = ()) -> bool:
    """SIGKILL to a worker's process group, and to those of `members` (as seen lately) that descend from it in groups of
    their own. False when the group had gone already. Never signals the caller's own group."""
    if leader <= 1 or leader == os.getpgrp():
        return False
    elsewhere = [pid for pid in members if pid != leader and procfs.descends_from(pid, leader)]
    killed = False
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
        killed = True
    for pid in elsewhere:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return killed


def terminate_group(leader: int) -> bool:
    """SIGTERM to a worker's process group. False when it had gone already."""
    if leader <= 1 or leader == os.getpgrp():
        return False
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGTERM)
        return True
    return False


def _resident_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
