"""What a sandbox is asked and what it answers: frozen values, no behaviour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class TestJob:
    """Check one candidate against tests that call it."""

    __test__ = False  # not a test class, whatever its name says to pytest
    sources: Sequence[str]
    """Readings of the completion as a program, best first; the first that compiles is run."""
    tests: str = ""
    """Trusted test code: HumanEval's `check(candidate)`, unittest classes, `test_` functions, or bare assertions."""
    asserts: Sequence[str] | None = None
    """Assertions judged one by one instead of `tests`."""
    entry_point: str | None = None
    """The name under test. None: whatever name the tests use and do not define."""
    prompt: str = ""
    """Trusted code the completion continued; what it defines beside the entry point is used by the tests."""
    setup: str = ""
    """Trusted code run before the tests."""
    arguments_change: bool = False
    """The tests look at what the candidate did to the lists, dicts and sets it was given (work in place)."""


@dataclass(frozen=True)
class ProgramJob:
    """Run one program on one standard input."""

    sources: Sequence[str]
    stdin: str = ""


@dataclass(frozen=True)
class Outcome:
    """What came of one job."""

    passed: bool | None
    """None: no verdict, because the tests cannot be used or the sandbox failed; never because of the candidate."""
    reason: str
    passes: int = 0
    """Assertions that held, of `total`."""
    total: int = 1
    output: str = ""
    """What the candidate printed, up to the limit."""
    seconds: float = 0.0
    status: int | None = None
    """Exit code of a whole program, or minus the signal; None where it was not run to its end."""
    peak_bytes: int | None = None
    timed_out: bool = False
    """It was still running at its deadline."""
    sandbox_failed: bool = False
    """The sandbox itself failed: a bug or a lack of resources on the host, to be counted apart."""
