"""The seccomp filter, run by a small interpreter of its own instruction set: what each call is answered."""

from __future__ import annotations

import errno
import struct

import pytest

from spark_rl.sandbox.inside import filter as seccomp
from spark_rl.sandbox.inside.syscalls import ALLOWED, CHECKED, MACHINES, REFUSED

OWN_PID = 77
ALLOW = "allow"
THREAD = 0x3D0F00  # what pthread_create passes to clone


def answer(machine: str, number: int, *arguments: int, audit: int | None = None) -> str | int:
    """ "allow", "kill", or the errno, for one call under the filter."""
    values = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    data = struct.pack("<iIQ6Q", number, audit or seccomp.AUDIT_MACHINE[machine], 0, *values)
    program = list(struct.iter_unpack("<HBBI", seccomp.build(machine, OWN_PID)))
    accumulator, place = 0, 0
    while True:
        code, if_true, if_false, value = program[place]
        place += 1
        if code == seccomp.LOAD_WORD:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif code == seccomp.AND:
            accumulator &= value
        elif code == seccomp.RETURN:
            if value == seccomp.ALLOW:
                return ALLOW
            return "kill" if value == seccomp.KILL else value & 0xFFFF
        else:
            holds = {
                seccomp.JUMP_EQUAL: accumulator == value,
                seccomp.JUMP_AT_LEAST: accumulator >= value,
                seccomp.JUMP_ANY_BIT: bool(accumulator & value),
            }[code]
            place += if_true if holds else if_false


def number_of(machine: str, name: str) -> int | None:
    return {**ALLOWED, **CHECKED, **REFUSED}[name][MACHINES.index(machine)]


def answer_to(machine: str, name: str, *arguments: int) -> str | int:
    number = number_of(machine, name)
    if number is None:
        pytest.skip(f"{machine} has no {name}")
    return answer(machine, number, *arguments)


machines = pytest.mark.parametrize("machine", MACHINES)


@machines
def test_every_call_on_the_list_is_allowed(machine: str) -> None:
    numbers = [number for name in ALLOWED if (number := number_of(machine, name)) is not None]
    assert {ALLOW} == {answer(machine, number) for number in numbers}


@machines
def test_every_refused_call_is_not_permitted(machine: str) -> None:
    numbers = [number for name in REFUSED if (number := number_of(machine, name)) is not None]
    assert {errno.EPERM} == {answer(machine, number) for number in numbers}


@machines
def test_every_other_call_does_not_exist(machine: str) -> None:
    listed = {number_of(machine, name) for name in {**ALLOWED, **CHECKED, **REFUSED}}
    others = [number for number in range(600) if number not in listed]
    assert {errno.ENOSYS} == {answer(machine, number) for number in others}


@machines
def test_no_number_stands_for_two_calls(machine: str) -> None:
    numbers = [number for name in {**ALLOWED, **CHECKED, **REFUSED} if (number := number_of(machine, name)) is not None]
    assert len(set(numbers)) == len(numbers)


def test_a_call_of_another_machine_kills() -> None:
    assert answer("x86_64", 1, audit=0x40000003) == "kill"


def test_the_x32_numbers_do_not_exist() -> None:
    assert answer("x86_64", 0x40000000 | 1) == errno.ENOSYS


@machines
@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("clone", (THREAD,), ALLOW),
        ("clone", (17,), errno.EPERM),
        ("clone", (THREAD | 0x10000000,), errno.EPERM),
        ("clone", (0x00010000,), errno.EPERM),
        ("kill", (OWN_PID, 9), ALLOW),
        ("kill", (1, 9), errno.EPERM),
        ("kill", (0xFFFFFFFF, 9), errno.EPERM),
        ("kill", (0, 9), errno.EPERM),
        ("tgkill", (OWN_PID, 78, 9), ALLOW),
        ("tgkill", (1, 1, 9), errno.EPERM),
        ("prlimit64", (0, 7), ALLOW),
        ("prlimit64", (1, 7), errno.EPERM),
        ("socketpair", (1, 1), ALLOW),
        ("socketpair", (16, 3), errno.EPERM),
        ("sendto", (3, 1000, 4, 0, 0, 0), ALLOW),
        ("sendto", (3, 1000, 4, 0, 0xDEAD, 16), errno.EPERM),
        ("sendto", (3, 1000, 4, 0, 0xDEAD00000000, 16), errno.EPERM),
        ("ioctl", (0, 0x5401), ALLOW),
        ("ioctl", (0, 0x5412), errno.EPERM),
        ("fcntl", (3, 1030), ALLOW),
        ("fcntl", (3, 8), errno.EPERM),
        ("prctl", (15,), ALLOW),
        ("prctl", (22,), errno.EPERM),
    ],
)
def test_arguments_decide(machine: str, name: str, arguments: tuple[int, ...], expected: str | int) -> None:
    assert answer_to(machine, name, *arguments) == expected


@machines
def test_the_template_filled_in_is_the_filter(machine: str) -> None:
    assert seccomp.template(machine).program(OWN_PID) == seccomp.build(machine, OWN_PID)


def test_a_machine_without_a_table_gets_no_filter() -> None:
    with pytest.raises(KeyError, match="no syscall table"):
        seccomp.build("riscv64", OWN_PID)
