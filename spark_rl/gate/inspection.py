"""Everything the gate knows about one run, and what keeps it from being signed.

In: the samples, how they were drawn, and every opinion on them. Out: an `Inspection`, and sentences about what is
missing. Decisions here are pure; reading the files is one function.
Being unsure is an honest answer: it does not block, it is counted, and it must not be the answer to more than half.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from spark_rl.errors import Refused
from spark_rl.gate.opinions import SAYS, Opinion, last_words, read_opinions
from spark_rl.gate.oracles import oracle_of, oracle_opinions
from spark_rl.gate.samples import Drawn, Sample, count_of, name_some, read_drawn, read_samples, samples_file_digest
from spark_rl.rundir import RunDir
from spark_rl.task import Task

MIN_SAMPLES = 50
"""The contract of the gate: 50 to 100 samples are read."""


@dataclass(frozen=True)
class Inspection:
    """Everything the gate knows about one run, read once."""

    run: RunDir
    samples: tuple[Sample, ...]
    drawn: Drawn | None
    samples_digest: str | None
    history: tuple[Opinion, ...]

    @property
    def opinions(self) -> dict[str, Opinion]:
        """The opinions that hold for the samples as they are scored now, by sample."""
        digests = {sample.id: sample.digest() for sample in self.samples}
        last = last_words(self.history)
        return {name: last[name] for name in digests if name in last and last[name].scored == digests[name]}

    @property
    def disputed(self) -> list[str]:
        return [name for name, opinion in self.opinions.items() if opinion.says == "disagree"]

    @property
    def unread(self) -> list[str]:
        opinions = self.opinions
        return [sample.id for sample in self.samples if sample.id not in opinions]

    def counts(self) -> dict[str, int]:
        opinions = self.opinions
        said = Counter(opinion.says for opinion in opinions.values())
        return {
            "samples": len(self.samples),
            **{word: said[word] for word in SAYS},
            "unread": len(self.samples) - len(opinions),
            "withdrawn": num_withdrawn(self.history),
            "rescored": self.drawn.num_rescored if self.drawn else 0,
        }


def read_inspection(run: RunDir) -> Inspection:
    """Raises RunDirError when a file of the inspection is broken."""
    return Inspection(run, tuple(read_samples(run)), read_drawn(run), samples_file_digest(run), read_opinions(run))


def num_withdrawn(history: Sequence[Opinion]) -> int:
    """How often a reader took a disagreement back without the score having changed."""
    count = 0
    last: dict[str, Opinion] = {}
    for opinion in history:
        before = last.get(opinion.sample_id)
        if before and before.says == "disagree" != opinion.says and before.scored == opinion.scored:
            count += 1
        last[opinion.sample_id] = opinion
    return count


def withdrawal_problem(before: Opinion | None, sample: Sample, after: Opinion) -> str | None:
    """Why a disagreement cannot be taken back like this; None when it can, or none is taken back."""
    if not before or before.says != "disagree" or after.says == "disagree" or before.scored != sample.digest():
        return None
    if after.note.strip():
        return None
    return f"{sample.id}: a disagreement is closed by mending the reward and rescoring; to take it back, note why"


def unmet(inspection: Inspection, task: Task) -> list[str]:
    """What keeps an inspection from being signed, by itself (whatever else changed since)."""
    run, samples, drawn = inspection.run, inspection.samples, inspection.drawn
    if not samples:
        return [f"no samples have been drawn (spark-rl inspect sample --run {run.path})"]
    problems = []
    if drawn is None or drawn.samples_digest != inspection.samples_digest or drawn.num_samples != len(samples):
        problems.append("the samples on disk are not the ones that were drawn")
    if len({sample.id for sample in samples}) < len(samples):
        problems.append("two samples have the same name")
    if len(samples) < MIN_SAMPLES:
        problems.append(f"{len(samples)} samples are too few: at least {MIN_SAMPLES} are read")
    bugs = [sample.id for sample in samples if sample.has_bug]
    if bugs:
        problems.append(f"the reward itself failed on {len(bugs)} of {len(samples)} samples: {name_some(bugs)}")
    unread, disputed = inspection.unread, inspection.disputed
    if unread:
        problems.append(f"{len(unread)} of {len(samples)} samples have no verdict: {name_some(unread)}")
    if disputed:
        is_or_are = "is" if len(disputed) == 1 else "are"
        problems.append(f"{count_of(len(disputed), 'disagreement')} {is_or_are} open: {name_some(disputed)}")
    opinions = inspection.opinions
    num_unsure = sum(opinion.says == "unsure" for opinion in opinions.values())
    if 2 * num_unsure > len(samples):
        problems.append(f"{num_unsure} of {len(samples)} verdicts are unsure: nobody can vouch for this reward")
    return problems + _unfit_readers(inspection, task)


def _unfit_readers(inspection: Inspection, task: Task) -> list[str]:
    """Programs may read for demo tasks only, oracles only for the shipped ones, and only what they really say."""
    problems = []
    opinions = list(inspection.opinions.values())
    by_script = [opinion for opinion in opinions if opinion.kind == "script"]
    by_oracle = [opinion for opinion in opinions if opinion.kind == "oracle"]
    if by_script and not task.task.demo:
        problems.append(
            f"{count_of(len(by_script), 'verdict')} by a script, and the task {task.name!r} is not a demo: a person reads it"
        )
    if by_oracle:
        try:
            oracle = oracle_of(task)
        except Refused as refusal:
            return [*problems, refusal.message]
        said = {opinion.sample_id: opinion.says for opinion in oracle_opinions(oracle, task, inspection.samples)}
        differing = [opinion.sample_id for opinion in by_oracle if said[opinion.sample_id] != opinion.says]
        if differing:
            problems.append(f"the oracle does not say what is recorded for {name_some(differing)}")
    return problems
