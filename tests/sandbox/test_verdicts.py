"""The verdict of tests on a candidate: right, wrong, and without one."""

from __future__ import annotations

import pytest

from spark_rl.sandbox import Outcome, ProgramJob, Sandbox, TestJob

SQUARE_TESTS = "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(3) == 9\n"


def outcome(
    sandbox: Sandbox, source: str, tests: str = SQUARE_TESTS, entry_point: str | None = "f", **rest: str
) -> Outcome:
    return sandbox.check(TestJob([source], tests=tests, entry_point=entry_point, **rest))


def test_a_right_program_passes(sandbox: Sandbox) -> None:
    assert outcome(sandbox, "def f(n):\n    return n * n\n").passed is True


def test_a_wrong_program_fails_with_the_line_that_failed(sandbox: Sandbox) -> None:
    found = outcome(sandbox, "def f(n):\n    return 2 * n\n")
    assert found.passed is False
    assert "assert candidate(3) == 9" in found.reason


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ("def f(n:\n", "SyntaxError"),
        ("import nothing_like_this\n", "ModuleNotFoundError"),
        ("def g(n):\n    return n * n\n", "does not define 'f'"),
        ("raise SystemExit(0)\n", "SystemExit"),
        ("import os\nos._exit(0)\n", "ended without an answer"),
        ("def f(n):\n    raise StopIteration\n", "StopIteration"),
        ("f = 5\n", "TypeError"),
    ],
)
def test_a_broken_program_fails_with_its_reason(sandbox: Sandbox, source: str, word: str) -> None:
    found = outcome(sandbox, source)
    assert found.passed is False
    assert word in found.reason


@pytest.mark.parametrize(
    ("tests", "word"),
    [
        ("def check(candidate:\n", "not Python"),
        ("def check(candidate):\n    pass\n", "never call"),
        ("x = 1\n", "never call"),
        ("import numpy\n\ndef check(candidate):\n    assert candidate(2) == 4\n", "numpy"),
        ("def check(candidate):\n    assert helper(candidate(2)) == 4\n", "helper"),
        ("class Own:\n    pass\n\ndef check(candidate):\n    candidate(Own())\n", "no plain form"),
    ],
)
def test_unusable_tests_give_no_verdict(sandbox: Sandbox, tests: str, word: str) -> None:
    found = outcome(sandbox, "def f(n):\n    return n * n\n", tests)
    assert found.passed is None
    assert word in found.reason


@pytest.mark.parametrize(
    "tests",
    [
        "def check(candidate):\n    assert all(map(lambda n: candidate(n) == n * n, range(5)))\n",
        "def check(candidate):\n    for n in range(3):\n        assert candidate(n) == n * n\n",
        "def check(candidate):\n    assert [candidate(n) for n in (1, 2)] == [1, 4]\n",
    ],
)
def test_ending_the_iteration_does_not_end_the_tests(sandbox: Sandbox, tests: str) -> None:
    assert outcome(sandbox, "def f(n):\n    raise StopIteration\n", tests).passed is False


def test_the_prompts_helper_is_used_and_not_the_candidates(sandbox: Sandbox) -> None:
    prompt = "def helper(n):\n    return n + 1\n\n\ndef f(n):\n"
    tests = "def check(candidate):\n    assert helper(candidate(1)) == 3\n"
    honest = prompt + "    return n + 1\n"
    cheating = honest.replace("return n + 1\n\n\n", "return 3\n\n\n").replace("    return n + 1\n", "    return 0\n")
    assert outcome(sandbox, honest, tests, prompt=prompt).passed is True
    assert outcome(sandbox, cheating, tests, prompt=prompt).passed is False


def test_an_open_prompt_still_brings_its_imports(sandbox: Sandbox) -> None:
    prompt = "import math\n\n\ndef f(n):\n"
    tests = "def check(candidate):\n    assert candidate(4) == math.isqrt(4)\n"
    assert outcome(sandbox, prompt + "    return math.isqrt(n)\n", tests, prompt=prompt).passed is True


def test_unittest_classes_and_test_functions_run(sandbox: Sandbox) -> None:
    tests = (
        "import unittest\nfrom solution import f\n\n"
        "class Case(unittest.TestCase):\n    def test_two(self):\n        self.assertEqual(f(2), 4)\n\n"
        "def test_three():\n    assert f(3) == 9\n"
    )
    assert outcome(sandbox, "def f(n):\n    return n * n\n", tests, None).passed is True
    assert outcome(sandbox, "def f(n):\n    return 4\n", tests, None).passed is False
    assert outcome(sandbox, "def f(n):\n    return 9\n", tests, None).passed is False


def test_a_method_can_be_the_entry_point(sandbox: Sandbox) -> None:
    tests = "def check(candidate):\n    assert candidate(n=2) == 4\n"
    source = "class Solution:\n    def f(self, n):\n        return {}\n"
    assert outcome(sandbox, source.format("n * n"), tests, "Solution().f").passed is True
    assert outcome(sandbox, source.format("n"), tests, "Solution().f").passed is False
    assert outcome(sandbox, source.format("n"), "def check(candidate):\n    pass\n", "Solution().f").passed is None


def test_a_library_module_that_the_tests_name_is_never_the_candidates(sandbox: Sandbox) -> None:
    tests = "assert math.isclose(f(2), 4)\n"
    cheating = "class math:\n    isclose = staticmethod(lambda *_: True)\n\ndef f(n):\n    return 0\n"
    assert outcome(sandbox, cheating, tests, None).passed is False
    assert outcome(sandbox, "import math\n\ndef f(n):\n    return n * 2.0\n", tests, None).passed is True
    assert outcome(sandbox, "def statistics(n):\n    return n\n", "assert statistics(2) == 2\n", None).passed is True


def test_assertions_are_counted_one_by_one(sandbox: Sandbox) -> None:
    asserts = ["assert f(1) == 1", "assert f(2) == 4", "assert f(3) == 10"]
    found = sandbox.check(TestJob(["def f(n):\n    return n * n\n"], asserts=asserts))
    assert (found.passed, found.passes, found.total) == (False, 2, 3)


def test_objects_of_the_candidates_classes_can_be_used_but_not_compared(sandbox: Sandbox) -> None:
    stack = (
        "class Stack:\n    def __init__(self):\n        self.items = []\n    def push(self, item):\n        self.items.append(item)\n"
        "    def pop(self):\n        return self.items.pop()\n    def __eq__(self, other):\n        return True\n"
    )
    used = "s = Stack()\ns.push(1)\ns.push([2])\nassert s.pop() == [2] and s.items == [1]\n"
    compared = "assert Stack() == 5\n"
    assert outcome(sandbox, stack, used, None).passed is True
    assert outcome(sandbox, stack, compared, None).passed is False


def test_functions_of_the_tests_can_be_handed_over(sandbox: Sandbox) -> None:
    tests = "def check(candidate):\n    assert candidate(lambda n: n + 1, [1, 2]) == [2, 3]\n"
    assert outcome(sandbox, "def f(g, items):\n    return [g(item) for item in items]\n", tests).passed is True


def test_arguments_go_by_value_unless_the_tests_are_about_changing_them(sandbox: Sandbox) -> None:
    source = "def f(items, seen, table):\n    items.sort()\n    seen.add(1)\n    table['x'] = [1]\n"
    tests = (
        "def check(candidate):\n    items, seen, table = [2, 1], set(), {}\n    assert candidate(items, seen, table) is None\n"
        "    assert (items, seen, table) == ([1, 2], {1}, {'x': [1]})\n"
    )
    verdicts = [
        sandbox.check(TestJob([source], tests, entry_point="f", arguments_change=change)).passed
        for change in (False, True)
    ]
    assert verdicts == [False, True]


def test_generators_are_read_value_by_value(sandbox: Sandbox) -> None:
    tests = "def check(candidate):\n    assert list(candidate(3)) == [0, 1, 2]\n    assert next(candidate(1)) == 0\n"
    assert outcome(sandbox, "def f(n):\n    yield from range(n)\n", tests).passed is True


def test_expected_exceptions_are_recognised(sandbox: Sandbox) -> None:
    tests = (
        "def check(candidate):\n    try:\n        candidate(-1)\n    except ValueError as error:\n        assert 'negative' in str(error)\n"
        "    else:\n        assert False\n"
    )
    source = "class Negative(ValueError):\n    pass\n\ndef f(n):\n    raise Negative('negative')\n"
    assert outcome(sandbox, source, tests).passed is True
    assert outcome(sandbox, "def f(n):\n    raise KeyError('negative')\n", tests).passed is False


@pytest.mark.parametrize(
    "source",
    [
        "import asyncio\n\nasync def square(n):\n    await asyncio.sleep(0)\n    return n * n\n\ndef f(n):\n    return asyncio.run(square(n))\n",
        "from concurrent.futures import ThreadPoolExecutor\n\ndef f(n):\n    with ThreadPoolExecutor(4) as pool:\n        return sum(pool.map(lambda _: n, range(n)))\n",
        "import tempfile\n\ndef f(n):\n    with tempfile.TemporaryFile('w+') as file:\n        file.write(str(n * n))\n        file.seek(0)\n        return int(file.read())\n",
        "import hashlib, random, decimal, dataclasses, zoneinfo, sqlite3\n\ndef f(n):\n    return sqlite3.connect(':memory:').execute('select ?*?', (n, n)).fetchone()[0]\n",
        "import sys\nsys.setrecursionlimit(20_000)\n\ndef f(n, depth=9_000):\n    return n * n if depth == 0 else f(n, depth - 1)\n",
    ],
    ids=["asyncio", "threads", "temporary file", "library modules", "recursion"],
)
def test_ordinary_programs_work(sandbox: Sandbox, source: str) -> None:
    found = outcome(sandbox, source)
    assert found.passed is True, found.reason


def test_each_sample_draws_its_own_random_numbers(sandbox: Sandbox) -> None:
    job = ProgramJob(["import random\nprint(random.random())\n"])
    assert len({one.output for one in sandbox.run_all([job] * 6)}) == 6


def test_outcomes_come_in_the_order_of_the_jobs(sandbox: Sandbox) -> None:
    jobs = [
        TestJob([f"def f():\n    return {number}\n"], "def check(c):\n    assert c() == 3\n", entry_point="f")
        for number in range(8)
    ]
    assert [number == 3 for number in range(8)] == [one.passed for one in sandbox.check_all(jobs)]


@pytest.mark.parametrize(
    ("program", "stdin", "passed", "status", "output"),
    [
        ("print(int(input()) * 2)\n", "21\n", True, 0, "42\n"),
        ("import sys\nsys.exit(3)\n", "", False, 3, ""),
        ("import sys\nsys.exit('no')\n", "", False, 1, ""),
        ("if __name__ == '__main__':\n    print('main')\n", "", True, 0, "main\n"),
        ("import sys\nprint(len(sys.stdin.read()))\n", "x" * 500_000, True, 0, "500000\n"),
    ],
)
def test_whole_programs_run_as_python_runs_them(
    sandbox: Sandbox, program: str, stdin: str, passed: bool, status: int, output: str
) -> None:
    found = sandbox.run(ProgramJob([program], stdin))
    assert (found.passed, found.status) == (passed, status)
    assert found.output.startswith(output)


def test_the_first_reading_that_compiles_is_run(sandbox: Sandbox) -> None:
    assert sandbox.run(ProgramJob(["print(1", "print(2)", "print(3)"])).output == "2\n"
