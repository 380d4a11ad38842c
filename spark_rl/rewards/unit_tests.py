"""Unit tests as a reward: the program a completion holds is run against the row's tests, in the sandbox.

In:  a completion; a row with tests (HumanEval's code, a list of assertions, or pairs of input and output).
Out: 1.0 or 0.0 (or the share that passed), with the first failure as the reason.
Model-written code never runs outside the sandbox: where none holds, the first use raises Refused with the reasons.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import Field

from spark_rl.rewards.base import Reward, RewardOptions, Row, Verdict, column, shorten
from spark_rl.rewards.code_blocks import looks_like_code, readings
from spark_rl.sandbox.checks import visible
from spark_rl.sandbox.jobs import Outcome, ProgramJob, TestJob
from spark_rl.sandbox.limits import Limits
from spark_rl.sandbox.pool import Sandbox
from spark_rl.units import MIB


class UnitTestsOptions(RewardOptions):
    tests: str = "test"
    """Column with the tests: code (HumanEval's check, unittest, test_ functions), a list of assertions, or input/output pairs."""
    entry_point: str = "entry_point"
    """Column with the name under test; where the data has none, the names that the tests use and do not define."""
    prompt: str = "prompt"
    """Column with the code that the completion continues; a prompt in words or in messages is not prepended."""
    setup: str = "setup"
    """Column with trusted code to run before the tests; it may be absent."""
    partial: bool = False
    """Reward the share of assertions or pairs that hold, instead of all or nothing."""
    arguments_change: bool = False
    """For tests of work in place: they see what the candidate did to its arguments. Leave it off elsewhere: a candidate could
    then change what the tests compare with."""
    time_limit_seconds: float = Field(default=5.0, gt=0, le=600)
    memory_mib: int = Field(default=1024, ge=128)
    workers: int | None = Field(default=None, ge=1)
    """Samples checked at the same time; None: one per core, at most 8."""


@dataclass(frozen=True)
class IoPair:
    """What a whole program reads and what it must print."""

    stdin: str
    expected: str


Tests = str | tuple[str, ...] | tuple[IoPair, ...]


class UnitTests(Reward[UnitTestsOptions]):
    """1.0 when every test holds."""

    kind = "unit_tests"
    options_type = UnitTestsOptions

    def __init__(self, name: str | None = None, base_dir: Path | None = None, **options: Any) -> None:
        super().__init__(name, base_dir, **options)
        self._sandbox: Sandbox | None = None

    @property
    def sandbox(self) -> Sandbox:
        """Started at the first use. Raises Refused where nothing isolates."""
        if self._sandbox is None:
            self._sandbox = Sandbox(limits_of(self.options), num_pairs=self.options.workers)
        return self._sandbox

    def judge(self, completion: str, row: Row) -> Verdict:
        return self.judge_batch([completion], [row])[0]

    def judge_batch(self, completions: Sequence[str], rows: Sequence[Row]) -> list[Verdict]:
        """All samples of the batch at once, as many at a time as there are workers."""
        plans = [plan(text, row, self.options) for text, row in zip(completions, rows, strict=True)]
        if all(isinstance(one, Verdict) for one in plans):
            return [one for one in plans if isinstance(one, Verdict)]
        return self.sandbox.map(self._carry_out, plans)

    def _carry_out(self, one: TestJob | IoPlan | Verdict) -> Verdict:
        if isinstance(one, Verdict):
            return one
        if isinstance(one, TestJob):
            return test_verdict(once_more(lambda: self.sandbox.check(one)), self.options.partial)
        return io_verdict(one.pairs, self._run_pairs(one), self.options.partial)

    def _run_pairs(self, one: IoPlan) -> list[Outcome]:
        """Runs until the verdict is known: a program that hangs on every input must cost its limit once, not each time."""
        outcomes: list[Outcome] = []
        for pair, job in zip(one.pairs, one.jobs, strict=True):
            outcomes.append(once_more(partial(self.sandbox.run, job)))
            failed = io_failure(pair, outcomes[-1]) is not None
            if failed and (not self.options.partial or outcomes[-1].timed_out):
                break
        return outcomes

    def close(self) -> None:
        if self._sandbox is not None:
            self._sandbox.close()
            self._sandbox = None


def once_more(check: Callable[[], Outcome]) -> Outcome:
    """A second try where the sandbox itself failed (a worker killed for memory): workers are fresh by then."""
    outcome = check()
    return check() if outcome.sandbox_failed else outcome


def limits_of(options: UnitTestsOptions) -> Limits:
    seconds = options.time_limit_seconds
    return Limits(time_seconds=seconds, cpu_seconds=max(1, round(seconds)), memory_bytes=options.memory_mib * MIB)


@dataclass(frozen=True)
class IoPlan:
    """One completion as a program, to be run once per pair."""

    pairs: tuple[IoPair, ...]
    jobs: tuple[ProgramJob, ...]


def plan(completion: str, row: Row, options: UnitTestsOptions) -> TestJob | IoPlan | Verdict:
    """What to run for one completion, or the verdict where nothing needs to run."""
    tests = read_tests(column(row, options.tests))
    if not tests:
        return Verdict(None, f"column {options.tests!r} holds no tests in this row")
    entry_point = text_or_none(row.get(options.entry_point))
    prompt = text_or_none(row.get(options.prompt)) or ""
    prompt = prompt if looks_like_code(prompt) else ""
    sources = tuple(readings(completion, prompt, entry_point))
    if not sources:
        return Verdict(0.0, "the completion holds no program (or its reasoning never ends)")
    pairs = tuple(test for test in tests if isinstance(test, IoPair))
    if pairs:
        return IoPlan(pairs, tuple(ProgramJob(sources, pair.stdin) for pair in pairs))
    return TestJob(
        sources,
        tests=tests if isinstance(tests, str) else "",
        asserts=None if isinstance(tests, str) else tuple(test for test in tests if isinstance(test, str)),
        entry_point=entry_point,
        prompt=prompt,
        setup=text_or_none(row.get(options.setup)) or "",
        arguments_change=options.arguments_change,
    )


def text_or_none(value: Any) -> str | None:
    """A column that is text; messages and absent columns are not."""
    return value if isinstance(value, str) and value else None


def read_tests(value: Any) -> Tests:
    """The tests column in its several shapes; empty when it holds none."""
    if isinstance(value, str):
        stripped = value.strip()
        if not stripped.startswith(("[", "{")):
            return value if stripped else ""
        try:
            return read_tests(json.loads(stripped))
        except ValueError:
            return value
    if isinstance(value, Mapping):
        return tuple(pairs_of(value))
    if not isinstance(value, Sequence):
        return ()
    if all(isinstance(item, Mapping) for item in value):
        return tuple(pair for item in value for pair in pairs_of(item))
    return tuple(item for item in value if isinstance(item, str) and item.strip())


def pairs_of(item: Mapping[str, Any]) -> list[IoPair]:
    """{"input", "output"} or {"inputs": [...], "outputs": [...]}."""
    if "inputs" in item and "outputs" in item:
        return [
            IoPair(as_text(one), as_text(other)) for one, other in zip(item["inputs"], item["outputs"], strict=False)
        ]
    if "input" in item and "output" in item:
        return [IoPair(as_text(item["input"]), as_text(item["output"]))]
    return []


def as_text(value: Any) -> str:
    """Input and output as text; a list is one line per item."""
    return "\n".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def test_verdict(outcome: Outcome, partial: bool) -> Verdict:
    if outcome.passed is None:
        return Verdict(None, outcome.reason, is_bug=outcome.sandbox_failed)
    share = outcome.passes / outcome.total if partial and outcome.total else float(outcome.passed)
    counted = (
        f"{outcome.passes} of {outcome.total} assertions hold: " if outcome.total > 1 and not outcome.passed else ""
    )
    return Verdict(share, counted + shorten(outcome.reason, 300))


def io_verdict(pairs: Sequence[IoPair], outcomes: Sequence[Outcome], partial: bool) -> Verdict:
    """The verdict on a program run once per pair; pairs it was not run on any more count as failed."""
    for outcome in outcomes:
        if outcome.sandbox_failed:
            return Verdict(None, outcome.reason, is_bug=True)
    failures = [
        f"input {shorten(pair.stdin, 40)!r}: {why}"
        for pair, outcome in zip(pairs, outcomes, strict=False)
        if (why := io_failure(pair, outcome)) is not None
    ]
    passes = len(outcomes) - len(failures)
    if not failures:
        return Verdict(1.0, f"the output is right for all {len(pairs)} inputs")
    not_run = f" ({len(pairs) - len(outcomes)} not run)" if len(outcomes) < len(pairs) else ""
    reason = f"{passes} of {len(pairs)} outputs are right{not_run}; {failures[0]}"
    return Verdict(passes / len(pairs) if partial else 0.0, reason)


def io_failure(pair: IoPair, outcome: Outcome) -> str | None:
    """Why one run is not a pass, or None."""
    if not outcome.passed:
        return outcome.reason
    if same_output(outcome.output, pair.expected):
        return None
    return f"printed {shorten(visible(outcome.output[:1000]), 60)!r} instead of {shorten(pair.expected, 60)!r}"


def same_output(printed: str, expected: str) -> bool:
    """Equal line by line, apart from spaces at line ends and empty lines at the end."""
    return _lines(printed) == _lines(expected)


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]
