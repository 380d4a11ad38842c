"""The ways to isolate untrusted code, best first, and how a warm worker is started under each.

    bubblewrap   namespaces made by bubblewrap: own file system, processes, network, IPC, host name
    namespaces   the same, made by ourselves: bubblewrap is missing, or user namespaces are off and we are root
    bare_root    root in a container that may not make namespaces: another user in a root that holds only an interpreter
    landlock     no root and no namespaces: Landlock shuts the file system (kernel 6.2 or newer)
Under every one of them the same seccomp allow list, resource limits, no_new_privs and absence of capabilities hold
inside: no new process, no program, no socket, no signal to others, no other process's memory.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from spark_rl.sandbox import layout
from spark_rl.sandbox.inside.confine import ProcessLimits
from spark_rl.sandbox.layout import Interpreter
from spark_rl.sandbox.limits import Limits

MethodName = Literal["bubblewrap", "namespaces", "bare_root", "landlock"]
METHODS: tuple[MethodName, ...] = ("bubblewrap", "namespaces", "bare_root", "landlock")

SAYS: dict[MethodName, str] = {
    "bubblewrap": "bubblewrap namespaces, seccomp, resource limits",
    "namespaces": "own namespaces (no bubblewrap), seccomp, resource limits",
    "bare_root": "another user in a bare root (no namespaces), seccomp, resource limits",
    "landlock": "Landlock (no namespaces), seccomp, resource limits",
}

# Users that nothing else uses: systemd's list of user numbers leaves 60706 to 61183 free on every distribution.
FIRST_SANDBOX_USER = 60_750
NUM_SANDBOX_USERS = 400


@dataclass(frozen=True)
class Launch:
    """How to start one warm worker."""

    command: tuple[str, ...]
    environment: dict[str, str]
    scratch: Path | None
    """A folder on the host to make before and to remove afterwards; None where it is inside only."""
    user: int | None
    """Who owns the scratch folder and runs the samples; None: we do."""


def sandbox_user(number: int) -> int | None:
    """The user that untrusted code runs as; None: ours, because only root may become another that exists here."""
    # The process id keeps two trainers apart: threads are counted per user.
    user = FIRST_SANDBOX_USER + (7 * os.getpid() + number) % NUM_SANDBOX_USERS
    if os.geteuid() != 0:
        return None
    maps = [Path(f"/proc/self/{kind}_map").read_text() for kind in ("uid", "gid")]
    return user if all(is_mapped(user, text) for text in maps) else None


def is_mapped(user: int, id_map: str) -> bool:
    """Whether a user or group exists in a user namespace, from the text of its uid_map or gid_map."""
    spans = [[int(word) for word in line.split()] for line in id_map.splitlines()]
    return any(first <= user < first + count for first, _, count in spans)


def process_limits(limits: Limits, counted_alone: bool) -> ProcessLimits:
    return ProcessLimits(
        cpu_seconds=limits.cpu_seconds,
        memory_bytes=limits.memory_bytes,
        file_bytes=limits.file_bytes,
        open_files=limits.open_files,
        threads=limits.threads if counted_alone else None,
    )


def worker_settings(method: MethodName, limits: Limits, scratch: Path, user: int | None) -> str:
    """What the warm worker is told, as JSON."""
    own_pids = method in ("bubblewrap", "namespaces")
    return json.dumps(
        {
            "limits": asdict(
                process_limits(limits, counted_alone=user is not None or (own_pids and os.geteuid() != 0))
            ),
            "scratch": str(scratch),
            "scratch_bytes": limits.scratch_bytes,
            "scratch_files": limits.scratch_files,
            "mount_scratch": method == "bubblewrap",
            "watch_scratch": method != "namespaces",
            "own_pids": own_pids,
            "user": user,
        }
    )


def environment(scratch: Path) -> dict[str, str]:
    """All of the environment there is inside."""
    # The interpreter's own libpython is beside it, wherever its build expected it.
    libraries = str(layout.PYTHON_HOME / "lib")
    home = str(scratch)
    return {"HOME": home, "TMPDIR": home, "LANG": "C.UTF-8", "PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": libraries}


def launch_bubblewrap(python: Interpreter, limits: Limits, number: int) -> Launch:
    user = sandbox_user(number)
    settings = worker_settings("bubblewrap", limits, layout.SCRATCH, user)
    arguments = [shutil.which("bwrap") or "bwrap", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    arguments += ["--unshare-cgroup-try", "--as-pid-1", "--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN"]
    if user is None:
        # "try": root without another user to become may have the right to the others and no user namespaces.
        arguments += ["--unshare-user-try" if os.geteuid() == 0 else "--unshare-user"]
    else:
        # Without a user namespace: as root we can make the others directly, and become a user that owns nothing.
        arguments += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    for folder in layout.folders(python):  # bubblewrap itself would make them for the user 0 only
        arguments += ["--dir", str(folder)]
    for source, target in layout.binds(python):
        arguments += ["--ro-bind", str(source), str(target)]
    for text, target in layout.links():
        arguments += ["--symlink", text, str(target)]
    for folder in layout.masked(python):
        arguments += ["--tmpfs", str(folder), "--remount-ro", str(folder)]
    for device in layout.DEVICES:
        arguments += ["--dev-bind", device, device]
    arguments += ["--perms", "1777", "--size", str(limits.scratch_bytes), "--tmpfs", str(layout.SCRATCH)]
    arguments += ["--remount-ro", "/", "--hostname", "sandbox", "--"]
    inside = layout.command(layout.inside_executable(python), layout.CODE_HOME, settings)
    return Launch((*arguments, *inside), environment(layout.SCRATCH), None, user)


def launcher(python: Interpreter, settings: dict[str, object]) -> tuple[str, ...]:
    """The command that runs inside/launch.py with the host's interpreter."""
    program = (
        f"import sys; sys.path.insert(0, {str(python.package.parent)!r}); "
        "from inside.launch import main; main(sys.argv[1])"
    )
    return (str(python.executable), "-I", "-S", "-X", "utf8", "-c", program, json.dumps(settings))


def launch_namespaces(python: Interpreter, limits: Limits, number: int) -> Launch:
    user = sandbox_user(number)
    inside = worker_settings("namespaces", limits, layout.SCRATCH, user)
    devices = [(Path(device), Path(device)) for device in layout.DEVICES]
    settings = {
        "method": "namespaces",
        "new_user_namespace": user is None,
        "must_have_user_namespace": os.geteuid() != 0,
        "binds": [[str(source), str(target)] for source, target in layout.binds(python) + devices],
        "links": [[text, str(target)] for text, target in layout.links()],
        "masked": [str(folder) for folder in layout.masked(python)],
        "scratch": str(layout.SCRATCH),
        "scratch_bytes": limits.scratch_bytes,
        "scratch_files": limits.scratch_files,
        "command": layout.command(layout.inside_executable(python), layout.CODE_HOME, inside),
        "environment": environment(layout.SCRATCH),
    }
    return Launch(launcher(python, settings), environment(layout.SCRATCH), None, user)


def launch_bare_root(python: Interpreter, limits: Limits, number: int, root: Path) -> Launch:
    """`root` is a tree made by bare_root.build; each worker has a scratch folder of its own in it."""
    user = sandbox_user(number)
    scratch = layout.SCRATCH / str(number)
    inside = worker_settings("bare_root", limits, scratch, user)
    settings: dict[str, object] = {
        "method": "bare_root",
        "root": str(root),
        "command": layout.command(layout.inside_executable(python), layout.CODE_HOME, inside),
        "environment": environment(scratch),
    }
    return Launch(launcher(python, settings), environment(scratch), root / scratch.relative_to("/"), user)


def launch_landlock(python: Interpreter, limits: Limits, number: int, root: Path) -> Launch:
    """`root` is a private folder for the scratch folders."""
    scratch = root / str(number)
    inside = worker_settings("landlock", limits, scratch, user=None)
    settings: dict[str, object] = {
        "method": "landlock",
        "readable": [str(path) for path in readable_on_host(python)],
        "listable": [str(python.library), str(python.package.parent)],
        "writable": [str(scratch), "/dev/null"],
        "command": layout.command(python.executable, python.package.parent, inside),
        "environment": environment(scratch),
    }
    return Launch(launcher(python, settings), environment(scratch), scratch, None)


def readable_on_host(python: Interpreter) -> Sequence[Path]:
    """Host paths that Landlock leaves readable: the standard library without what the other methods mask."""
    library = [entry for entry in sorted(python.library.iterdir()) if entry.name not in layout.MASKED]
    others = [source for source, _ in layout.binds(python) if source not in (python.library, python.package)]
    return [*others, python.package, *library, *(Path(device) for device in layout.DEVICES)]


def may_try(method: MethodName) -> str | None:
    """Why a method is out of the question here without trying it; None when it may be tried."""
    if not sys.platform.startswith("linux"):
        return "it needs Linux"
    if method == "bubblewrap" and shutil.which("bwrap") is None:
        return "bwrap is not installed"
    if method == "bare_root" and sandbox_user(0) is None:
        return "it needs root, and another user to become"
    return None
