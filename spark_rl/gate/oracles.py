"""Programs that know the truth of shipped demo tasks without asking the reward, and read samples in a person's place.

In: a sample's prompt and completion. Out: what a right reward must say, compared with what this one said.
Recorded as "oracle, not a person"; refused for every task that is not shipped as a demo.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from spark_rl.errors import Refused, did_you_mean
from spark_rl.gate.display import one_line
from spark_rl.gate.opinions import Opinion
from spark_rl.gate.samples import Sample
from spark_rl.rewards.base import Verdict
from spark_rl.task import TASKS_DIR, Task


@dataclass(frozen=True)
class Truth:
    """What is so about one completion."""

    well_formed: bool
    correct: bool
    because: str


@dataclass(frozen=True)
class Oracle:
    name: str
    judge: Callable[[str, str], Truth]
    """(prompt, completion) -> truth"""


def sorted_digits(prompt: str, completion: str) -> Truth:
    """`sort 50391=` is answered `[01359]`: the same digits in ascending order, in brackets, and nothing else."""
    question = re.fullmatch(r"sort ([0-9]+)=", prompt)
    if question is None:
        raise unreadable(prompt)
    digits = question.group(1)
    well_formed = (
        len(completion) == len(digits) + 2
        and completion[0] == "["
        and completion[-1] == "]"
        and completion[1:-1].isdecimal()
    )
    right = "[" + "".join(sorted(digits)) + "]"
    return Truth(well_formed, completion.strip() == right, f"the right answer is {right}")


def sums(prompt: str, completion: str) -> Truth:
    """A prompt that ends in `17 + 25 =` is answered with the number, 42, and nothing else but spaces around it."""
    question = re.search(r"([0-9]+) \+ ([0-9]+) =\Z", prompt)
    if question is None:
        raise unreadable(prompt)
    right = str(int(question.group(1)) + int(question.group(2)))
    return Truth(completion.strip().isdecimal(), completion.strip() == right, f"the right answer is {right}")


def unreadable(prompt: str) -> Refused:
    return Refused(f"the oracle cannot read the prompt {one_line(prompt, 60)!r}", "it knows the shipped task only")


ORACLES: Mapping[str, Oracle] = {
    oracle.name: oracle for oracle in (Oracle("sort-digits", sorted_digits), Oracle("sums", sums))
}


def oracle_of(task: Task, tasks_dir: Path = TASKS_DIR) -> Oracle:
    """The oracle of a shipped demo task. Raises Refused for any other task."""
    name = task.task.oracle
    if not task.task.demo:
        raise Refused(f"the task {task.name!r} is not a demo: no oracle may sign it", "a person reads the samples")
    if task.path.resolve().parent != tasks_dir.resolve():
        raise Refused(
            f"{task.path} is not one of the shipped tasks: no oracle may sign it",
            "a person reads the samples, or for a demo a script imports its verdicts",
        )
    if name is None:
        raise Refused(f"the task {task.name!r} has no oracle", "a person reads the samples")
    if name not in ORACLES:
        hint = did_you_mean(name, ORACLES) or "known oracles: " + ", ".join(ORACLES)
        raise Refused(f"the task {task.name!r} names an unknown oracle {name!r}", hint)
    return ORACLES[name]


def oracle_opinions(oracle: Oracle, task: Task, samples: Sequence[Sample]) -> list[Opinion]:
    """What the oracle says about each sample's score."""
    return [oracle_opinion(oracle, task, sample) for sample in samples]


def oracle_opinion(oracle: Oracle, task: Task, sample: Sample) -> Opinion:
    """Agrees when every format part and the correctness of the sample are as they truly are."""
    truth = oracle.judge(sample.prompt, sample.completion)
    faults = []
    if sample.correct is not truth.correct:
        faults.append(f"correct is {sample.correct}, should be {truth.correct}: {truth.because}")
    for part in task.reward_parts:
        verdict = sample.parts.get(part.name)
        if part.means == "format" and not _says(verdict, truth.well_formed):
            form = "well formed" if truth.well_formed else "malformed"
            faults.append(f"{part.name} is {verdict.value if verdict else None}, the answer is {form}")
    return Opinion(
        sample_id=sample.id,
        says="disagree" if faults else "agree",
        scored=sample.digest(),
        reader=f"oracle {oracle.name}",
        kind="oracle",
        note="; ".join(faults),
    )


def _says(verdict: Verdict | None, holds: bool) -> bool:
    """Whether a format part gives full marks exactly where the form holds; to have no opinion is wrong."""
    return verdict is not None and verdict.value is not None and (verdict.value >= 1.0) is holds
