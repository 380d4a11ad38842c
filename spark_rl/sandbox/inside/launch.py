"""From the host into the sandbox where bubblewrap is not at hand: namespaces of our own, a bare root, or Landlock.

In:  settings as JSON (what may be seen, where, and the command to become). Runs as a script of its own, before any sample.
Out: nothing; the process becomes the warm worker.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
from typing import Any, NoReturn

from . import kernel

STAGING = "/tmp"
OLD_ROOT = "/.old"
# statvfs f_flag bit -> mount flag: in a user namespace these must be kept when a bind is made read-only.
KEPT_MOUNT_FLAGS = {2: 2, 4: 4, 8: 8, 1024: 1024, 2048: 2048, 4096: 1 << 21}


def main(settings_text: str) -> NoReturn:
    settings = json.loads(settings_text)
    try:
        METHODS[settings["method"]](settings)
        os.execve(settings["command"][0], settings["command"], settings["environment"])
    except OSError as error:
        sys.exit(f"{error.strerror or error}" + (f": {error.filename}" if error.filename else ""))


def enter_namespaces(settings: dict[str, Any]) -> None:
    """New namespaces, then a root of our own. The calling process stays outside and waits."""
    user, group = os.getuid(), os.getgid()
    flags = (
        kernel.CLONE_NEWNS
        | kernel.CLONE_NEWPID
        | kernel.CLONE_NEWNET
        | kernel.CLONE_NEWIPC
        | kernel.CLONE_NEWUTS
        | kernel.CLONE_NEWCGROUP
    )
    if settings["new_user_namespace"] and made_user_namespace(settings["must_have_user_namespace"]):
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")
    kernel.unshare(flags)
    child = os.fork()
    if child:
        os.close(0)
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    kernel.die_with_parent(signal.SIGKILL)
    enter_root(settings)


def made_user_namespace(must_have: bool) -> bool:
    """Root may do without one: its rights may suffice for the other namespaces."""
    try:
        kernel.unshare(kernel.CLONE_NEWUSER)
    except OSError:
        if must_have:
            raise
        return False
    return True


def enter_root(settings: dict[str, Any]) -> None:
    """A root of read-only binds in memory, with an empty scratch folder; the host's root is gone afterwards."""
    sources = [(os.open(source, os.O_PATH), source, target) for source, target in settings["binds"]]
    kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("tmpfs", STAGING, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=4m,nr_inodes=4096,mode=755")
    for descriptor, source, target in sources:
        bind(descriptor, source, STAGING + target)
    for text, target in settings["links"]:
        os.symlink(text, STAGING + target)
    for target in settings["masked"]:
        if os.path.isdir(STAGING + target):
            kernel.mount("tmpfs", STAGING + target, "tmpfs", kernel.MS_RDONLY, "size=4k,nr_inodes=2")
    os.mkdir(STAGING + settings["scratch"])
    options = f"size={settings['scratch_bytes']},nr_inodes={settings['scratch_files']},mode=1777"
    kernel.mount("tmpfs", STAGING + settings["scratch"], "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, options)
    os.mkdir(STAGING + OLD_ROOT)
    kernel.pivot_root(STAGING, STAGING + OLD_ROOT)
    os.chdir("/")
    kernel.unmount(OLD_ROOT)
    os.rmdir(OLD_ROOT)
    for descriptor, _, _ in sources:
        os.close(descriptor)
    kernel.mount("none", "/", None, kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY | kernel.MS_NOSUID)


def bind(descriptor: int, source: str, target: str) -> None:
    """Bind one file or folder; read-only, except the harmless device nodes, which a read-only bind could not serve."""
    # Asked of the descriptor: a source below the staging folder cannot be reached by its name any more.
    is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
    os.makedirs(target if is_folder else os.path.dirname(target), mode=0o755, exist_ok=True)
    if not is_folder:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    kernel.mount(f"/proc/self/fd/{descriptor}", target, None, kernel.MS_BIND | kernel.MS_REC)
    if source.startswith("/dev/"):
        return
    present = os.statvfs(target).f_flag
    kept = sum(flag for bit, flag in KEPT_MOUNT_FLAGS.items() if present & bit)
    wanted = kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV
    kernel.mount("none", target, None, wanted | kept)


def enter_bare_root(settings: dict[str, Any]) -> None:
    """A folder that holds a copy of the interpreter and nothing else, as the root. Needs root's right to chroot."""
    os.chroot(settings["root"])
    os.chdir("/")


def enter_landlock(settings: dict[str, Any]) -> None:
    """The host's own paths, of which Landlock leaves the interpreter readable and the scratch folder writable."""
    kernel.landlock(settings["readable"], settings["listable"], settings["writable"])


METHODS = {"namespaces": enter_namespaces, "bare_root": enter_bare_root, "landlock": enter_landlock}


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
