"""The same samples, scored by the mended reward: how a disagreement is closed.

In: a run with samples, and the task as it is now. Out: the samples with new scores; opinions on unchanged scores stand,
the others are open again. Refused when anything but the reward, the task or the data changed: that is another draw.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from spark_rl.dataset import Example, Examples, content_key
from spark_rl.errors import Refused
from spark_rl.gate.fingerprint import changes, fingerprint, is_rescorable
from spark_rl.gate.inspection import read_inspection
from spark_rl.gate.samples import Sample, name_some, sample_command, scoring_row, write_samples
from spark_rl.gate.subject import Subject
from spark_rl.rewards.composite import Composite
from spark_rl.rundir import Clock, RunDir


@dataclass(frozen=True)
class Rescored:
    """What a rescoring did."""

    num_samples: int
    changed: tuple[str, ...]
    """Samples with another score."""
    reopened: tuple[str, ...]
    """Those of them that had a verdict."""
    disputed: tuple[str, ...]
    """Disagreements that stay open: their score did not change."""


def rescore(
    run: RunDir,
    subject: Subject,
    clock: Clock = time.time,
) -> Rescored:
    """Score a run's samples anew. Raises Refused when they are not samples of what would be trained now."""
    inspection = read_inspection(run)
    drawn = inspection.drawn
    if not inspection.samples or drawn is None or drawn.samples_digest != inspection.samples_digest:
        raise Refused(f"{run.name}: there are no samples to score again", f"draw them: {sample_command(run)}")
    now = fingerprint(subject)
    other = {name for name in {*drawn.fingerprint, *now} if not is_rescorable(name)}
    beyond = changes(
        {name: value for name, value in drawn.fingerprint.items() if name in other},
        {name: value for name, value in now.items() if name in other},
    )
    if beyond:
        raise Refused(
            f"{run.name}: scoring again cannot settle a change of {', '.join(beyond)}",
            "the model would write other completions: draw samples in a new run",
        )
    sources = _examples_of(inspection.samples, subject.examples, run)
    composite = Composite(subject.task.build_rewards(), gate_on_format=subject.task.scoring.gate_on_format)
    try:
        scored = composite.score(
            [sample.completion for sample in inspection.samples],
            [
                scoring_row(example, sample.num_tokens)
                for example, sample in zip(sources, inspection.samples, strict=True)
            ],
        )
    finally:
        composite.close()
    samples = [
        replace(sample, total=score.total, correct=score.correct, parts=score.parts, row=dict(example.row))
        for sample, score, example in zip(inspection.samples, scored, sources, strict=True)
    ]
    changed = [new.id for old, new in zip(inspection.samples, samples, strict=True) if old.digest() != new.digest()]
    write_samples(run, samples, now, drawn.seed, drawn.num_rescored + 1, clock)
    return Rescored(
        num_samples=len(samples),
        changed=tuple(changed),
        reopened=tuple(name for name in changed if name in inspection.opinions),
        disputed=tuple(name for name in inspection.disputed if name not in changed),
    )


def _examples_of(samples: Sequence[Sample], examples: Examples, run: RunDir) -> list[Example]:
    """The training example of each sample as the data has it now: by prompt, or by row when the prompt was cut."""
    by_prompt = {content_key(example): example for example in examples.train}
    found: list[Example] = []
    lost: list[str] = []
    for sample in samples:
        example = by_prompt.get(content_key(Example(sample.prompt, sample.row)))
        example = example or next((one for one in examples.train if dict(one.row) == dict(sample.row)), None)
        if example is None:
            lost.append(sample.id)
        else:
            found.append(example)
    if lost:
        raise Refused(
            f"{run.name}: the prompts of {name_some(lost)} are no longer among the training prompts",
            "wording or data changed too much: draw samples in a new run",
        )
    return found
