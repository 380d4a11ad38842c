"""The judge's side: runs the tests, which are trusted, against a candidate in another process.

In:  a job (tests, trusted prompt and setup code, entry point) and the connection to the candidate.
Out: a verdict. Every comparison of the tests happens here, between values of built-in types rebuilt from JSON, so the
candidate cannot redefine `==`, patch an assertion, read an expected value or end the tests early.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import sys
import traceback
import unittest
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from . import wire
from .remote import CandidateGone, CandidateLacks, NotAValue, Remote, Session

TESTS_FILE = "<tests>"


class FaultyTests(Exception):
    """The tests cannot be run, whatever the candidate does: no verdict."""


def judge(job: dict[str, Any], descriptor: int) -> dict[str, Any]:
    """The verdict on one candidate: {"passed": true | false | null, "reason", "calls", "passes", "total"}."""
    session = Session(descriptor, job.get("arguments_change") is True)
    try:
        return _judge(job, session)
    except (FaultyTests, wire.Unsendable) as error:
        return _verdict(None, f"the tests cannot be used: {error}", session)
    except BaseException as error:  # noqa: BLE001  worker boundary: nothing but a complete run is a pass
        return _failure(job, session, error)


def _judge(job: dict[str, Any], session: Session) -> dict[str, Any]:
    names = Namespace(session)
    for code in (job.get("prompt"), job.get("setup")):
        run_trusted(code, names)
    session.wait_until_loaded()
    asserts = job.get("asserts")
    entry = bind_entry_point(job.get("entry_point"), names)
    if entry is None:
        names.asks = True
        names.modules = modules_meant("\n".join(asserts) if asserts else job["tests"])
    sys.modules["solution"] = solution_module(session)
    if asserts is not None:
        return _judge_asserts(asserts, names, session)
    run_tests(compiled(job["tests"]), names)
    run_checks(names, entry)
    if session.calls == 0:
        raise FaultyTests("they never call the candidate")
    return _verdict(True, f"passed all tests ({session.calls} calls)", session)


def _judge_asserts(asserts: list[str], names: Namespace, session: Session) -> dict[str, Any]:
    """Each assertion on its own, so that the share that passed is known."""
    codes = [compiled(text) for text in asserts]
    if not codes:
        raise FaultyTests("the list of assertions is empty")
    passes, first_failure = 0, ""
    for text, code in zip(asserts, codes, strict=True):
        try:
            run_tests(code, names)
        except (FaultyTests, wire.Unsendable):
            raise
        except CandidateGone as error:
            first_failure = first_failure or f"{error}, in: {text.strip()}"
            break
        except BaseException as error:  # noqa: BLE001  worker boundary
            first_failure = first_failure or f"{_named(error)}, in: {text.strip()}"
            continue
        passes += 1
    if session.calls == 0:
        raise FaultyTests("they never call the candidate")
    reason = first_failure or f"passed all {len(codes)} assertions"
    return {**_verdict(passes == len(codes), reason, session), "passes": passes, "total": len(codes)}


def bind_entry_point(entry_point: str | None, names: Namespace) -> Any:
    """What the tests call, also under its own name: a function or class, or "Class().method"."""
    if not entry_point:
        return None
    name, call, method = entry_point.partition("().")
    entry = names[name] = names.session.named(name)
    if call:
        entry = getattr(entry(), method)
        names.session.calls = 0  # making the object is no test of it
    return entry


def modules_meant(tests: str) -> frozenset[str]:
    """Library modules that tests use as `math.isclose` without importing them: the judge's own, never the candidate's."""
    try:
        nodes = list(ast.walk(ast.parse(tests)))
    except (SyntaxError, ValueError):
        return frozenset()
    bases = {node.value.id for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)}
    return frozenset(bases & sys.stdlib_module_names)


class Namespace(dict[str, Any]):
    """The tests' globals. While `asks` is set, a name that nothing trusted defines is asked of the candidate."""

    def __init__(self, session: Session) -> None:
        super().__init__(__name__="tests", __builtins__=builtins)
        self.session = session
        self.asks = False
        self.modules: frozenset[str] = frozenset()

    def __missing__(self, name: str) -> Any:
        if not self.asks or name in builtins.__dict__ or name.startswith("__"):
            raise KeyError(name)
        if name in self.modules:
            return importlib.import_module(name)
        return self.session.named(name)


def compiled(source: str) -> Any:
    try:
        return compile(source, TESTS_FILE, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise FaultyTests(f"they are not Python ({error})") from None


def run_trusted(code: str | None, names: Namespace) -> None:
    """Prompt or setup code. A prompt may end in an open function head, or be prose: then it defines nothing."""
    for ending in ("", "\n    pass\n"):
        try:
            exec(compile((code or "") + ending, "<prompt>", "exec", dont_inherit=True), names)  # noqa: S102  trusted
        except (SyntaxError, ValueError):
            continue
        except Exception as error:  # noqa: BLE001  worker boundary: a prompt that raises defines what it got to
            if not isinstance(error, NameError):
                raise FaultyTests(f"the prompt's own code raised {_named(error)}") from None
        return


def run_tests(code: Any, names: Namespace) -> None:
    """The tests' module-level code. What no candidate can cause is the tests' own fault."""
    try:
        exec(code, names)  # noqa: S102  the user's own tests
    except CandidateLacks:
        raise
    except (NameError, ImportError) as error:
        raise_if_own_fault(error, names)
        raise


def is_in(errors: list[BaseException], error: BaseException) -> bool:
    return any(one is error for one in errors)


def raise_if_own_fault(error: BaseException, names: Namespace) -> None:
    if not is_in(names.session.raised, error):
        raise FaultyTests(f"they raise {_named(error)}") from None


def solution_module(session: Session) -> ModuleType:
    """What `from solution import NAME` in tests finds: the candidate's names."""

    def find(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return session.named(name)

    module = ModuleType("solution")
    module.__getattr__ = find  # type: ignore[method-assign]
    return module


def run_checks(names: Namespace, entry: Any) -> None:
    """HumanEval's check(candidate), unittest classes, and test_ functions: whichever the tests define."""
    check = names.get("check")
    cases = [item for item in names.values() if isinstance(item, type) and issubclass(item, unittest.TestCase)]
    functions = [item for name, item in names.items() if name.startswith("test") and callable(item)]
    try:
        if check is not None and entry is not None:
            check(entry)
        for function in functions:
            if not isinstance(function, type | Remote):
                function()
    except (NameError, ImportError) as error:
        if not isinstance(error, CandidateLacks):
            raise_if_own_fault(error, names)
        raise
    for case in cases:
        run_case(case)


def run_case(case: type[unittest.TestCase]) -> None:
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
    for _, text in (*result.failures, *result.errors):
        raise AssertionError(text.strip().splitlines()[-1])
    if result.unexpectedSuccesses:
        raise AssertionError("a test passed that was expected to fail")


def _verdict(passed: bool | None, reason: str, session: Session) -> dict[str, Any]:
    return {"passed": passed, "reason": reason, "calls": session.calls, "passes": int(passed is True), "total": 1}


def _failure(job: dict[str, Any], session: Session, error: BaseException) -> dict[str, Any]:
    frames = traceback.extract_tb(error.__traceback__)
    theirs = isinstance(error, CandidateGone | CandidateLacks | NotAValue | AssertionError) or is_in(
        session.raised, error
    )
    if not theirs and all(frame.filename != TESTS_FILE for frame in frames):
        return {**_verdict(None, f"the judge failed: {_named(error)}", session), "judge_failed": True}
    where = failing_line(job.get("tests") or "", frames)
    return _verdict(False, _named(error) + (f", in: {where}" if where else ""), session)


def failing_line(tests: str, frames: Iterable[traceback.FrameSummary]) -> str | None:
    numbers = [frame.lineno for frame in frames if frame.filename == TESTS_FILE and frame.lineno]
    lines = tests.splitlines()
    return lines[numbers[-1] - 1].strip() if numbers and numbers[-1] <= len(lines) else None


def _named(error: BaseException) -> str:
    text = " ".join(str(error).split())[:300]
    if isinstance(error, CandidateGone | CandidateLacks):
        return text
    return type(error).__name__ + (f": {text}" if text else "")
