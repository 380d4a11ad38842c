"""Programs that know the truth of shipped demo tasks without asking the reward, and read samples in a person's place.

In: a sample's prompt and completion. Out: what a right reward must say, compared with what this one said.
Recorded as "oracle, not a person"; refused for every task that is not shipped as a demo.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from spark_rl.errors import Refused, did_you_mean
from spark_rl.gate.opinions import Opinion
from spark_rl.gate.samples import Sample
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
    digits = [character for character in prompt if character in "0123456789"]
    well_formed = (
        len(completion) == len(digits) + 2
        and completion[0] == "["
        and completion[-1] == "]"
        and all(character in "0123456789" for character in completion[1:-1])
    )
    right = "[" + "".join(sorted(digits)) + "]"
    return Truth(well_formed, completion == right, f"the right answer is {right}")


ORACLES: Mapping[str, Oracle] = {"sort-digits": Oracle("sort-digits", sorted_digits)}


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
        if part.means == "format" and (verdict is None or (verdict.value == 1.0) is not truth.well_formed):
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
