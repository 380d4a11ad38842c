"""What a sample cannot have more of."""

from __future__ import annotations

import pytest

from spark_rl.sandbox import ProgramJob, Sandbox, TestJob
from spark_rl.units import MIB


def test_time_ends_a_sample_that_sleeps(sandbox: Sandbox) -> None:
    found = sandbox.run(ProgramJob(["import time\ntime.sleep(100)\n"]))
    assert found.passed is False
    assert found.reason == "still running after 3 s"
    assert found.seconds < 6


def test_a_program_that_closes_its_output_does_not_gain_time(sandbox: Sandbox) -> None:
    found = sandbox.run(ProgramJob(["import os, time\nos.closerange(0, 10)\ntime.sleep(100)\n"]))
    assert (found.passed, found.sandbox_failed) == (False, False)
    assert found.reason == "still running after 3 s"


def test_the_tests_own_endless_loop_ends_too(sandbox: Sandbox) -> None:
    tests = "def check(candidate):\n    while True:\n        candidate()\n"
    found = sandbox.check(TestJob(["def f():\n    return 1\n"], tests, entry_point="f"))
    assert found.passed is False


@pytest.mark.parametrize(
    ("program", "word"),
    [
        ("held = []\nwhile True:\n    held.append(bytearray(50_000_000))\n", "MemoryError"),
        ("import sys\nwhile True:\n    sys.stdout.write('x' * 100_000)\n", "printed more than"),
        ("import os\nwhile True:\n    os.write(2, b'x' * 100_000)\n", "printed more than"),
        ("open('big', 'wb').truncate(1 << 40)\n", "OSError|killed|file"),
        ("import os\nheld = [os.pipe() for _ in range(1000)]\n", "Too many open files"),
        (
            "import threading, time\nwhile True:\n    threading.Thread(target=time.sleep, args=(9,), daemon=True).start()\n",
            "can't start",
        ),
    ],
    ids=["memory", "output", "error output", "file size", "descriptors", "threads"],
)
def test_resources_end(sandbox: Sandbox, program: str, word: str) -> None:
    found = sandbox.run(ProgramJob([program]))
    assert found.passed is False
    assert any(one in f"{found.reason} {found.output}" for one in word.split("|")), (
        f"{found.reason} {found.output[-300:]}"
    )


def test_the_scratch_folder_ends(sandbox: Sandbox) -> None:
    program = (
        "import os\nwritten = 0\ntry:\n    for number in range(100):\n        with open(f'file{number}', 'wb') as file:\n"
        "            written += file.write(b'x' * 8_000_000)\nexcept OSError:\n    pass\nprint(written)\n"
    )
    found = sandbox.run(ProgramJob([program]))
    written = int(found.output or 0)
    assert written <= 96 * MIB


def test_files_are_counted_too(sandbox: Sandbox) -> None:
    program = (
        "import os\nnumber = 0\ntry:\n    while number < 50_000:\n        open(f'f{number}', 'w').close()\n        number += 1\n"
        "except OSError:\n    pass\nprint(number)\n"
    )
    found = sandbox.run(ProgramJob([program]))
    assert "scratch" in found.reason or int(found.output) < 2000


def test_a_program_too_long_to_be_meant_is_refused_unread(sandbox: Sandbox) -> None:
    found = sandbox.check(TestJob(["#" * 3_000_000], "def check(c): pass", entry_point="f"))
    assert found.passed is False
    assert "more than" in found.reason


def test_output_is_kept_up_to_its_limit(sandbox: Sandbox) -> None:
    assert sandbox.run(ProgramJob(["print('y' * 1000)"])).output == "y" * 1000 + "\n"


def test_peak_memory_is_reported(sandbox: Sandbox) -> None:
    found = sandbox.run(ProgramJob(["held = bytearray(100_000_000)\n"]))
    assert found.peak_bytes is not None
    assert found.peak_bytes > 90_000_000
