"""Every error a user may meet, with the exit code it ends in.

    SparkError                 a sentence, and a hint that says what to do
      ConfigError        2     profile, task, data or usage; holds all problems at once
      DoesNotFit         3     fit says no
      Refused            4     probe, gate, variant or VLM rule
      MissingPackage     5     a package or engine is not installed
      RunDirError        6     a run directory cannot be read or written
      TrainingFailed     7     the worker stopped with an error
      StoppedByGuard     8     memory or heat
Anything else that reaches the top is an internal error, exit 1.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum


class ExitCode(IntEnum):
    OK = 0
    INTERNAL = 1
    USAGE = 2
    DOES_NOT_FIT = 3
    REFUSED = 4
    MISSING_PACKAGE = 5
    RUN_DIR = 6
    TRAINING_FAILED = 7
    STOPPED_BY_GUARD = 8
    INTERRUPTED = 130


class SparkError(Exception):
    """A foreseeable fault: `message` says what and where, `hint` says what to do."""

    exit_code: ExitCode = ExitCode.INTERNAL

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@dataclass(frozen=True)
class Problem:
    """One thing wrong in one place of one file."""

    where: str
    """File, or the option that was given."""
    key: str | None
    """Dotted key, column or line."""
    message: str
    hint: str | None = None

    def __str__(self) -> str:
        place = f"{self.where}: {self.key}" if self.key else self.where
        return f"{place}: {self.message}" + (f" ({self.hint})" if self.hint else "")


class ConfigError(SparkError):
    """Usage, profile, task or data. Carries every problem found, so that one reading mends them all."""

    exit_code = ExitCode.USAGE

    def __init__(self, problems: Sequence[Problem] | str, hint: str | None = None) -> None:
        self.problems: tuple[Problem, ...] = () if isinstance(problems, str) else tuple(problems)
        message = problems if isinstance(problems, str) else "\n".join(str(problem) for problem in problems)
        super().__init__(message, hint)


class DoesNotFit(SparkError):
    exit_code = ExitCode.DOES_NOT_FIT


class Refused(SparkError):
    exit_code = ExitCode.REFUSED


class MissingPackage(SparkError):
    exit_code = ExitCode.MISSING_PACKAGE


class RunDirError(SparkError):
    exit_code = ExitCode.RUN_DIR


class TrainingFailed(SparkError):
    exit_code = ExitCode.TRAINING_FAILED


class StoppedByGuard(SparkError):
    exit_code = ExitCode.STOPPED_BY_GUARD


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word closest to `word`, or None when nothing is close."""
    matches = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return matches[0] if matches else None


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """A hint naming the nearest known word, or None."""
    match = nearest(word, known)
    return f"did you mean {match!r}?" if match else None
