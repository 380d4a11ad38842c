"""The seccomp filter of a confined process, as the bytes the kernel takes.

In:  the machine's name and the process id that may still be signalled (its own).
Out: a classic BPF program. Pure: installing it is confine.py's work.
An allow list: what is not named is refused, so a new kernel call is never a new hole.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from .syscalls import ALLOWED, CHECKED, MACHINES, REFUSED

# linux/bpf_common.h and linux/seccomp.h
LOAD_WORD = 0x20
JUMP_EQUAL = 0x15
JUMP_AT_LEAST = 0x35
JUMP_ANY_BIT = 0x45
JUMP_ALWAYS = 0x05
AND = 0x54
RETURN = 0x06
ALLOW = 0x7FFF0000
KILL = 0x80000000
ERRNO = 0x00050000

OFFSET_NUMBER = 0
OFFSET_MACHINE = 4
AUDIT_MACHINE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
X32_BIT = 0x40000000

CLONE_THREAD = 0x00010000
CLONE_VM = 0x00000100
CLONE_NEW_ANYTHING = 0x7E020080  # every CLONE_NEW* bit
AF_UNIX = 1
# Terminal and descriptor questions that Python asks of any file: TCGETS, FIONREAD, FIONBIO, FIOCLEX, FIONCLEX.
IOCTLS = (0x5401, 0x541B, 0x5421, 0x5451, 0x5450)
# F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_GETLK, F_SETLK, F_SETLKW, F_DUPFD_CLOEXEC. Without F_SETOWN (it sends
# signals to others) and F_SETPIPE_SZ (it takes kernel memory).
FCNTLS = (0, 1, 2, 3, 4, 5, 6, 7, 1030)
# PR_SET_NAME, PR_GET_NAME
PRCTLS = (15, 16)

PLACEHOLDER = 0x5AFE1D00  # no process id: the kernel's largest is 4194304

Instruction = tuple[int, int, int, int]


def low_word(argument: int) -> int:
    """Offset of an argument's low 32 bits (both machines are little-endian)."""
    return 16 + 8 * argument


def high_word(argument: int) -> int:
    return low_word(argument) + 4


def statement(code: int, value: int) -> Instruction:
    return (code, 0, 0, value)


def refuse(error: int) -> Instruction:
    return statement(RETURN, ERRNO | error)


def one_of(argument: int, values: tuple[int, ...]) -> list[Instruction]:
    """Allow when the argument's low word is one of the values, else EPERM."""
    checks = [(JUMP_EQUAL, len(values) - place, 0, value) for place, value in enumerate(values)]
    return [statement(LOAD_WORD, low_word(argument)), *checks, refuse(errno.EPERM), statement(RETURN, ALLOW)]


def checks_of(name: str, own_pid: int) -> list[Instruction]:
    """The argument checks of one syscall; every path ends in a return."""
    if name == "ioctl":
        return one_of(1, IOCTLS)
    if name == "fcntl":
        return one_of(1, FCNTLS)
    if name == "prctl":
        return one_of(0, PRCTLS)
    if name == "prlimit64":
        return one_of(0, (0,))
    if name in ("kill", "tgkill"):
        return one_of(0, (own_pid,))
    if name == "socketpair":
        return one_of(0, (AF_UNIX,))
    if name == "sendto":  # without an address: only into a connected pair
        return [
            statement(LOAD_WORD, low_word(4)),
            (JUMP_EQUAL, 0, 2, 0),
            statement(LOAD_WORD, high_word(4)),
            (JUMP_EQUAL, 1, 0, 0),
            refuse(errno.EPERM),
            statement(RETURN, ALLOW),
        ]
    if name == "clone":  # a thread of this process, and nothing that is new to it
        wanted = CLONE_THREAD | CLONE_VM
        return [
            statement(LOAD_WORD, low_word(0)),
            (JUMP_ANY_BIT, 2, 0, CLONE_NEW_ANYTHING),
            statement(AND, wanted),
            (JUMP_EQUAL, 1, 0, wanted),
            refuse(errno.EPERM),
            statement(RETURN, ALLOW),
        ]
    raise ValueError(name)


def runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """First and last of each run of neighbours: a filter of runs is a third as long to walk as one of numbers.

    The kernel walks it some 450 times when it is installed, to know beforehand which calls it always allows.
    """
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


@dataclass(frozen=True)
class Template:
    """The filter of a machine, built once; each process fills in its own id."""

    before: bytes
    between: bytes
    after: bytes

    def program(self, own_pid: int) -> bytes:
        number = struct.pack("<I", own_pid)
        return number.join((self.before, self.between, self.after))


def template(machine: str) -> Template:
    """Everything of the filter but the two places where the own process id stands (kill and tgkill)."""
    built = build(machine, PLACEHOLDER)
    before, between, after = built.split(struct.pack("<I", PLACEHOLDER))
    return Template(before, between, after)


def build(machine: str, own_pid: int) -> bytes:
    """The filter for this machine. KeyError for a machine without a syscall table."""
    column = MACHINES.index(machine) if machine in MACHINES else None
    if column is None:
        raise KeyError(f"no syscall table for {machine}")
    program: list[Instruction] = [
        statement(LOAD_WORD, OFFSET_MACHINE),
        (JUMP_EQUAL, 1, 0, AUDIT_MACHINE[machine]),
        statement(RETURN, KILL),
        statement(LOAD_WORD, OFFSET_NUMBER),
    ]
    if machine == "x86_64":
        program += [(JUMP_AT_LEAST, 0, 1, X32_BIT), refuse(errno.ENOSYS)]
    for name, numbers in CHECKED.items():
        if (number := numbers[column]) is not None:
            body = checks_of(name, own_pid)
            program += [(JUMP_EQUAL, 0, len(body), number), *body]
    for numbers in REFUSED.values():
        if (number := numbers[column]) is not None:
            program += [(JUMP_EQUAL, 0, 1, number), refuse(errno.EPERM)]
    for first, last in runs(number for numbers in ALLOWED.values() if (number := numbers[column]) is not None):
        program += [
            (JUMP_AT_LEAST, 1, 0, first),
            refuse(errno.ENOSYS),  # between this run and the one before
            (JUMP_AT_LEAST, 1, 0, last + 1),
            statement(RETURN, ALLOW),
        ]
    program.append(refuse(errno.ENOSYS))
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in program)
