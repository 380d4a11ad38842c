"""The Linux calls that Python does not wrap, each as one function that raises OSError when the kernel refuses.

Namespaces, mounts, capabilities, no_new_privs, seccomp, Landlock. Numbers are from the kernel's uapi headers.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Sequence

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
SECCOMP_MODE_FILTER = 2
CAPABILITY_VERSION_3 = 0x20080522
NUM_CAPABILITIES = 64

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MNT_DETACH = 2

NUMBER_OF = {
    "x86_64": {"pivot_root": 155, "capset": 126},
    "aarch64": {"pivot_root": 41, "capset": 91},
}
LANDLOCK_CREATE_RULESET = 444
LANDLOCK_ADD_RULE = 445
LANDLOCK_RESTRICT_SELF = 446
LANDLOCK_RULE_PATH_BENEATH = 1
LANDLOCK_CREATE_RULESET_VERSION = 1

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def _prctl(option: int, *arguments: int) -> None:
    padded = [*arguments, 0, 0, 0, 0][:4]
    _checked(_libc.prctl(option, *(ctypes.c_ulong(value) for value in padded)), f"prctl {option}")


def die_with_parent(signal_number: int) -> None:
    _prctl(PR_SET_PDEATHSIG, signal_number)


def forbid_new_privileges() -> None:
    _prctl(PR_SET_NO_NEW_PRIVS, 1)


def hide_from_debuggers() -> None:
    """No process of the same user can trace this one, and its /proc entry belongs to root."""
    _prctl(PR_SET_DUMPABLE, 0)


def unshare(flags: int) -> None:
    _checked(_libc.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    result = _libc.mount(
        source.encode(), target.encode(), kind.encode() if kind else None, ctypes.c_ulong(flags), options.encode()
    )
    _checked(result, f"mount {target}")


def pivot_root(new_root: str, put_old: str) -> None:
    number = NUMBER_OF[platform.machine()]["pivot_root"]
    _checked(_libc.syscall(number, new_root.encode(), put_old.encode()), "pivot_root")


def unmount(target: str) -> None:
    _checked(_libc.umount2(target.encode(), MNT_DETACH), f"umount {target}")


def drop_capabilities() -> None:
    """Give up every capability for good: bounding set, ambient set, and the three sets of this process."""
    for capability in range(NUM_CAPABILITIES):
        try:
            _prctl(PR_CAPBSET_DROP, capability)
        except OSError:  # EINVAL: past the kernel's last one. EPERM: no CAP_SETPCAP; then nothing is left to regain
            break
    _prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    header = struct.pack("=Ii", CAPABILITY_VERSION_3, 0)
    number = NUMBER_OF[platform.machine()]["capset"]
    _checked(_libc.syscall(number, header, bytes(24)), "capset")


def install_filter(program: bytes) -> None:
    """Install a seccomp filter made by filter.build; it can never be taken off again."""
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    where = ctypes.create_string_buffer(header, len(header))
    _prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(where))


# linux/landlock.h: access rights on files, in bit order, with the ABI version that brought each.
READ_RIGHTS = 0b0000_0000_0000_1101  # EXECUTE, READ_FILE, READ_DIR
LIST_RIGHT = 0b1000  # READ_DIR
ALL_RIGHTS_BY_ABI = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1}
FILE_RIGHTS = 0b0100_0000_0000_0111  # those that mean something for a file: EXECUTE, WRITE_FILE, READ_FILE, TRUNCATE


def landlock_version() -> int:
    """The Landlock ABI of this kernel; 0 when it has none."""
    version: int = _libc.syscall(LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), LANDLOCK_CREATE_RULESET_VERSION)
    return max(0, version)


def landlock(readable: Sequence[str], listable: Sequence[str], writable: Sequence[str]) -> None:
    """From now on this process and its children open nothing but these paths. Needs ABI 3 (truncation is covered)."""
    handled = ALL_RIGHTS_BY_ABI[min(3, landlock_version())]
    attributes = struct.pack("=Q", handled)
    ruleset = _checked(_libc.syscall(LANDLOCK_CREATE_RULESET, attributes, ctypes.c_size_t(8), 0), "landlock")
    # No device nodes, sockets or pipes with names may be made even where writing is allowed (bits 6, 9, 10, 11).
    write_rights = handled & ~(1 << 6 | 1 << 9 | 1 << 10 | 1 << 11)
    wanted = [(one, READ_RIGHTS) for one in readable]
    wanted += [(one, LIST_RIGHT) for one in listable]
    wanted += [(one, write_rights) for one in writable]
    for path, rights in wanted:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        kept = rights if os.path.isdir(path) else rights & FILE_RIGHTS
        rule = struct.pack("=Qi", kept, descriptor)
        _checked(
            _libc.syscall(LANDLOCK_ADD_RULE, ruleset, LANDLOCK_RULE_PATH_BENEATH, rule, 0), f"landlock rule for {path}"
        )
        os.close(descriptor)
    forbid_new_privileges()
    _checked(_libc.syscall(LANDLOCK_RESTRICT_SELF, ruleset, 0), "landlock_restrict_self")
    os.close(ruleset)
