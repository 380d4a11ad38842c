"""Host memory as the kernel tells it: /proc/meminfo, /proc/vmstat, PSI, cgroup limits, address-space limits.

In: a root folder (tests give their own) and a process id. Out: numbers, or None where the file is not there.
Files stay open and are read into one buffer, so that a pass in a machine that is running out costs almost nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from spark_rl.telemetry.reading import Ceiling

MEMINFO_KEYS = (
    "MemTotal", "MemFree", "MemAvailable", "Buffers", "Cached", "Shmem", "Dirty", "Writeback", "SwapTotal", "SwapFree",
)  # fmt: skip

_MEMINFO_LINE = re.compile(
    rb"^(" + b"|".join(key.encode() for key in MEMINFO_KEYS) + rb"): +(\d+)( kB)?$", re.MULTILINE
)
_UNLIMITED = 1 << 60
"""cgroup v1 writes "no limit" as a number near 2^63."""


class OpenFile:
    """A file that is read again and again from its start. Every failure is None, and the file is opened anew."""

    def __init__(self, path: Path, size: int = 16384) -> None:
        self.path = path
        self._buffer = bytearray(size)
        self._descriptor: int | None = None

    def read(self) -> bytes | None:
        for _ in range(2):
            try:
                if self._descriptor is None:
                    self._descriptor = os.open(self.path, os.O_RDONLY)
                length = os.preadv(self._descriptor, [self._buffer], 0)
                return bytes(memoryview(self._buffer)[:length])
            except OSError:
                self.close()
        return None

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def parse_meminfo(text: bytes) -> dict[str, int]:
    """The lines named in `MEMINFO_KEYS`, in bytes. Lines that are not there are left out."""
    return {match[1].decode(): int(match[2]) * (1024 if match[3] else 1) for match in _MEMINFO_LINE.finditer(text)}


def memory_elsewhere() -> dict[str, int]:
    """The same lines on a system without /proc (macOS, Windows), by psutil; {} when that knows nothing either."""
    import psutil

    try:
        memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    except (OSError, RuntimeError, psutil.Error):
        return {}
    return {
        "MemTotal": memory.total, "MemAvailable": memory.available, "MemFree": memory.free, "SwapTotal": swap.total, "SwapFree": swap.free,
    }  # fmt: skip


def available_from_meminfo(memory: Mapping[str, int]) -> int | None:
    """MemAvailable. Pages reserved as huge pages are not in it, and nobody but who asks for huge pages can have them.
    Kernels without MemAvailable get the usual estimate from below: free + file pages that are not shared."""
    available = memory.get("MemAvailable")
    if available is None:
        if "MemFree" not in memory:
            return None
        available = memory["MemFree"] + max(
            0, memory.get("Cached", 0) + memory.get("Buffers", 0) - memory.get("Shmem", 0)
        )
    return available


def parse_pressure(text: bytes) -> tuple[float | None, float | None]:
    """(some, full): percent of the last 10 seconds."""
    found: dict[bytes, float] = {}
    for line in text.splitlines():
        match = re.match(rb"(some|full) avg10=([0-9.]+)", line)
        if match:
            found[match[1]] = float(match[2])
    return found.get(b"some"), found.get(b"full")


def parse_vmstat(text: bytes) -> dict[str, int]:
    """Pages swapped in and out since boot."""
    return {match[1].decode(): int(match[2]) for match in re.finditer(rb"^(pswpin|pswpout) (\d+)$", text, re.MULTILINE)}


def count_oom_kills(proc: Path = Path("/proc")) -> int | None:
    """Processes the kernel has killed for want of memory since boot, in any cgroup; None where it does not count them."""
    try:
        match = re.search(r"^oom_kill (\d+)$", (proc / "vmstat").read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(match[1]) if match else None


def parse_cpu_times(text: bytes) -> tuple[int, int] | None:
    """(busy, all) in clock ticks over all cores since boot."""
    match = re.match(rb"cpu +([0-9 ]+)", text)
    if not match:
        return None
    ticks = [int(word) for word in match[1].split()[:8]]
    if len(ticks) < 5:
        return None
    everything = sum(ticks)
    return everything - ticks[3] - ticks[4], everything


@dataclass(frozen=True)
class MemoryGroup:
    """One level of a process's memory cgroup that has a limit."""

    folder: Path
    version: int
    limit_bytes: int


def find_memory_groups(pid: int, proc: Path = Path("/proc"), mounts: Path | None = None) -> list[MemoryGroup]:
    """The limited memory cgroups above a process, innermost first; [] when there is none or it cannot be read.

    Knows v2 (memory.max), v1 (memory.limit_in_bytes) and the hybrid layout. A container that sees only its own
    cgroup as the root of the mount is found through that root.
    """
    try:
        lines = (proc / str(pid) / "cgroup").read_text().splitlines()
        mount_lines = (mounts or proc / str(pid) / "mounts").read_text().splitlines()
    except OSError:
        return []
    paths: dict[int, str] = {}
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            paths[2] = path
        elif "memory" in controllers.split(","):
            paths[1] = path
    groups: list[MemoryGroup] = []
    for mount_line in mount_lines:
        words = mount_line.split()
        if len(words) < 4:
            continue
        version = 2 if words[2] == "cgroup2" else 1 if words[2] == "cgroup" and "memory" in words[3].split(",") else 0
        if version in paths:
            groups += _limited_levels(Path(words[1]), paths[version], version)
    return groups


def _limited_levels(mount: Path, path: str, version: int) -> list[MemoryGroup]:
    limit_name = "memory.max" if version == 2 else "memory.limit_in_bytes"
    folder = mount / path.lstrip("/")
    if not folder.is_dir():
        folder = mount
    levels: list[MemoryGroup] = []
    while True:
        limit = _read_int(folder / limit_name)
        if limit is not None and limit < _UNLIMITED:
            levels.append(MemoryGroup(folder, version, limit))
        if folder == mount or mount not in folder.parents:
            return levels
        folder = folder.parent


def group_ceiling(group: MemoryGroup) -> Ceiling | None:
    """What is left in a cgroup: limit - usage + file pages it could drop. None when it has gone."""
    usage = _read_int(group.folder / ("memory.current" if group.version == 2 else "memory.usage_in_bytes"))
    if usage is None:
        return None
    try:
        stat = (group.folder / "memory.stat").read_text()
    except OSError:
        stat = ""
    prefix = "" if group.version == 2 else "total_"
    droppable = 0
    for key in (f"{prefix}inactive_file", f"{prefix}active_file"):
        match = re.search(rf"^{key} (\d+)$", stat, re.MULTILINE)
        droppable += int(match[1]) if match else 0
    used = max(0, usage - droppable)
    return Ceiling("cgroup", group.limit_bytes, max(0, group.limit_bytes - used))


def address_space_limit(pid: int, proc: Path = Path("/proc")) -> int | None:
    """RLIMIT_AS of a process in bytes; None when it has none or cannot be read."""
    try:
        text = (proc / str(pid) / "limits").read_text()
    except OSError:
        return None
    match = re.search(r"^Max address space +(\d+)", text, re.MULTILINE)
    return int(match[1]) if match else None


def process_sizes(pid: int, proc: Path = Path("/proc")) -> tuple[int, int] | None:
    """(virtual, resident) bytes of one process; None when it has gone."""
    words = (_read_start(f"{proc}/{pid}/statm") or b"").split(None, 2)
    return (int(words[0]) * PAGE_BYTES, int(words[1]) * PAGE_BYTES) if len(words) > 1 else None


def family_of(leader: int, proc: Path = Path("/proc")) -> list[int]:
    """Process ids of a worker's process group and of everything that descends from it, also in groups of their own
    (engines and sandboxes start some). Plain calls: there may be a thousand processes."""
    root = str(proc)
    try:
        names = os.listdir(root)  # noqa: PTH208  strings are all that is needed here
    except OSError:
        return []
    children: dict[int, list[int]] = {}
    members: list[int] = []
    for name in names:
        if not name.isdigit():
            continue
        parents = _parent_and_group(f"{root}/{name}/stat")
        if parents is None:
            continue
        pid, (parent, group) = int(name), parents
        children.setdefault(parent, []).append(pid)
        if group == leader or pid == leader:
            members.append(pid)
    found = dict.fromkeys(members)
    while members:
        for child in children.get(members.pop(), ()):
            if child not in found:
                found[child] = None
                members.append(child)
    return list(found)


def descends_from(pid: int, leader: int, proc: Path = Path("/proc")) -> bool:
    """Whether a process still is a descendant of the leader: its number may have been given to another meanwhile."""
    for _ in range(64):
        parents = _parent_and_group(f"{proc}/{pid}/stat")
        if parents is None or parents[0] <= 1:
            return False
        if leader in parents:
            return True
        pid = parents[0]
    return False


def _parent_and_group(path: str) -> tuple[int, int] | None:
    text = _read_start(path)
    if not text:
        return None
    # pid (name, which may hold anything) state ppid pgrp ...
    fields = text[text.rfind(b")") + 2 :].split(None, 3)
    return (int(fields[1]), int(fields[2])) if len(fields) > 2 else None


def _read_start(path: str) -> bytes | None:
    """The first bytes of a small file. No pathlib: it interns every part of every path, pass after pass."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        return os.read(descriptor, 512)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def process_name(pid: int, proc: Path = Path("/proc")) -> str | None:
    try:
        return (proc / str(pid) / "comm").read_text().strip() or None
    except OSError:
        return None


def tightest_first(ceilings: Sequence[Ceiling]) -> tuple[Ceiling, ...]:
    return tuple(sorted(ceilings, key=lambda ceiling: ceiling.available_bytes))


def _read_int(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
