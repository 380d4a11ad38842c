"""The warm worker: an interpreter that has imported what programs import, and forks one process per sample.

In:  over the control socket (descriptor 0), one byte that names the role and the descriptors of the sample.
Out: one line of JSON when that sample's process is dead and everything it left is gone or reported.
It never reads a sample, so that no sample can find another one's code or tests in the memory it inherits.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import json
import os
import platform
import select
import signal
import socket
import sys
from typing import Any, NoReturn

from . import candidate, judge, kernel, wire
from . import filter as seccomp
from .confine import ProcessLimits, drop_to, lock_down

# What HumanEval-like programs import; loading one of these takes longer than the whole check.
PRELOADED = [
    "array",
    "ast",
    "bisect",
    "calendar",
    "cmath",
    "collections",
    "collections.abc",
    "copy",
    "csv",
    "dataclasses",
    "datetime",
    "decimal",
    "enum",
    "fractions",
    "functools",
    "hashlib",
    "heapq",
    "inspect",
    "io",
    "itertools",
    "json",
    "math",
    "numbers",
    "operator",
    "os",
    "pprint",
    "queue",
    "random",
    "re",
    "statistics",
    "string",
    "struct",
    "textwrap",
    "threading",
    "time",
    "traceback",
    "types",
    "typing",
    "unicodedata",
    "unittest",
    "uuid",
    "zlib",
]

ROLE_CANDIDATE = b"c"
ROLE_PROGRAM = b"p"
ROLE_JUDGE = b"j"
ROLE_BARE_INTERPRETER = b"b"  # for the benchmark: what a fork and exec of Python costs in this very sandbox
STOP = b"s"
LOWEST_PARKED = 64
# Only where the scratch folder has no size limit of its own is it measured, this often.
SCRATCH_WATCH_SECONDS = 0.01


def main(settings_text: str) -> NoReturn:
    """Confine this process, say "ready", then serve samples until the trainer closes the socket or dies."""
    settings = json.loads(settings_text)
    control = socket.socket(fileno=0)
    if settings["mount_scratch"]:
        mount_scratch(settings)
    os.chdir(settings["scratch"])
    drop_to(settings["user"])
    limits = ProcessLimits(**settings["limits"])
    for name in PRELOADED:
        with contextlib.suppress(ImportError):  # an interpreter may be built without some
            importlib.import_module(name)
    gc.collect()
    gc.freeze()
    Zygote(control, settings, limits).serve()


def mount_scratch(settings: dict[str, Any]) -> None:
    """An empty file system in memory with a limit on bytes and on files, over the one that bubblewrap mounted."""
    flags = kernel.MS_NOSUID | kernel.MS_NODEV
    options = f"size={settings['scratch_bytes']},nr_inodes={settings['scratch_files']},mode=1777"
    with contextlib.suppress(OSError):  # refused by some AppArmor profiles: then the folder is measured instead
        kernel.mount("tmpfs", settings["scratch"], "tmpfs", flags, options)
        settings["watch_scratch"] = False


class Zygote:
    """Serves one sample at a time."""

    def __init__(self, control: socket.socket, settings: dict[str, Any], limits: ProcessLimits) -> None:
        self.control = control
        self.settings = settings
        self.limits = limits
        self.filter_template = seccomp.template(platform.machine())  # KeyError: no table, so no worker
        self.trainer = -1

    def serve(self) -> NoReturn:
        """The first message brings the trainer's pidfd; then one message per sample."""
        _, (self.trainer,), _, _ = socket.recv_fds(self.control, 64, 1)
        self.control.send(b"ready")
        idle = select.poll()
        idle.register(self.control, select.POLLIN)
        idle.register(self.trainer, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in idle.poll()}
            if self.trainer in ready:
                os._exit(0)
            message, descriptors, _, _ = socket.recv_fds(self.control, 64, 4)
            if not message:
                os._exit(0)
            if message != STOP:  # a stop that crossed our report on the wire is late, and means nothing now
                self.control.send(json.dumps(self.run(message, descriptors)).encode())

    def run(self, role: bytes, descriptors: list[int]) -> dict[str, Any]:
        """One sample from fork to report."""
        child = os.fork()
        if child == 0:
            self.become(role, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        watch = os.pidfd_open(child)
        overfull = self.wait(watch)
        os.close(watch)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        _, status, usage = os.wait4(child, 0)
        strays = self.kill_strays()
        return {
            "status": os.waitstatus_to_exitcode(status),
            "peak_bytes": usage.ru_maxrss * 1024,
            "cpu_seconds": usage.ru_utime + usage.ru_stime,
            "overfull": overfull,
            "dirty": strays or bool(os.listdir(self.settings["scratch"])),
        }

    def wait(self, child_watch: int) -> bool:
        """Until the sample's process ends, the trainer says stop, or the scratch folder is overfull (then True)."""
        events = select.poll()
        for descriptor in (child_watch, self.control.fileno(), self.trainer):
            events.register(descriptor, select.POLLIN)
        pause = SCRATCH_WATCH_SECONDS * 1000 if self.settings["watch_scratch"] else None
        while True:
            ready = {descriptor for descriptor, _ in events.poll(pause)}
            if self.trainer in ready:
                self.die()
            if self.control.fileno() in ready:
                if not self.control.recv(64):
                    self.die()
                return False
            if child_watch in ready:
                return False
            if self.settings["watch_scratch"] and self.scratch_is_overfull():
                return True

    def scratch_is_overfull(self) -> bool:
        num_bytes = num_files = 0
        for folder, folders, files in os.walk(self.settings["scratch"]):
            num_files += len(folders) + len(files)
            for name in files:
                with contextlib.suppress(OSError):
                    num_bytes += os.lstat(f"{folder}/{name}").st_blocks * 512
            if num_bytes > self.settings["scratch_bytes"] or num_files > self.settings["scratch_files"]:
                return True
        return False

    def kill_strays(self) -> bool:
        """Kill whatever else lives in this process namespace. The filter forbids new processes; this does not rely on it."""
        if not self.settings["own_pids"]:
            return False
        found = False
        while True:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
            try:
                os.waitpid(-1, 0)
                found = True
            except ChildProcessError:
                return found

    def die(self) -> NoReturn:
        """The trainer is gone: take the sample along."""
        if self.settings["own_pids"]:
            os._exit(0)  # process 1: the kernel kills the rest of the namespace
        os.killpg(0, signal.SIGKILL)
        os._exit(0)

    def become(self, role: bytes, descriptors: list[int]) -> NoReturn:
        """In the child: close everything but the sample's own descriptors, lock down, run."""
        try:
            keep_only(descriptors)
            if role == ROLE_BARE_INTERPRETER:
                os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", "pass"])
            self.work(role)
        except BaseException as error:  # noqa: BLE001  worker boundary: the process ends here whatever happened
            with contextlib.suppress(OSError):
                os.write(2, f"{type(error).__name__}: {error}"[:500].encode("utf-8", "replace"))
            os._exit(70)
        os._exit(0)

    def work(self, role: bytes) -> None:
        job = wire.receive(3)
        if role == ROLE_PROGRAM:
            standard_input = os.memfd_create("stdin")
            os.write(standard_input, job["stdin"].encode("utf-8", "surrogatepass"))
            os.lseek(standard_input, 0, os.SEEK_SET)
            os.dup2(standard_input, 0)
            os.close(standard_input)
        lock_down(self.limits, self.filter_template)
        gc.enable()
        if role == ROLE_JUDGE:
            wire.send(3, {**judge.judge(job, 4), "nonce": job["nonce"]})
        elif role == ROLE_CANDIDATE:
            candidate.serve(3, job["sources"])
            flush()
        else:
            os.close(3)
            os._exit(exit_code_of(job["sources"]))


def exit_code_of(sources: list[str]) -> int:
    """Run a whole program; the exit code that Python itself would give it."""
    code = 0
    try:
        candidate.run_program(sources)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException as error:  # noqa: BLE001  worker boundary: untrusted code
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        code = 1
    flush()
    return code & 0xFF


def flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def keep_only(descriptors: list[int]) -> None:
    """Descriptors afterwards: 0 nothing; 1 and 2 the first one given; 3 and up the others; no more."""
    held = [fcntl.fcntl(one, fcntl.F_DUPFD, LOWEST_PARKED) for one in descriptors]
    nothing = os.open("/dev/null", os.O_RDWR)
    for target, source in ((0, nothing), (1, held[0]), (2, held[0]), *enumerate(held[1:], 3)):
        os.dup2(source, target)
    os.closerange(2 + len(held), 1 << 20)
