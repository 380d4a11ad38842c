"""The gate itself: what is still missing, signing, and the check that training cannot get around.

In: a run's samples and the opinions on them, and the recipe, task, data and model as they are now. Out: a `SignOff` in
inspection.json, or Refused (exit 4) with every reason. Nothing here takes a flag that skips anything.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from spark_rl.errors import Refused, RunDirError
from spark_rl.gate.alarms import find_alarms
from spark_rl.gate.fingerprint import changes, fingerprint
from spark_rl.gate.inspection import Inspection, read_inspection, unmet
from spark_rl.gate.opinions import Opinion, ReaderKind, opinions_file, write_opinions
from spark_rl.gate.oracles import oracle_of, oracle_opinions
from spark_rl.gate.samples import drawn_file, name_some, read_drawn, sample_command
from spark_rl.gate.subject import Subject
from spark_rl.rundir import Clock, RunDir, list_runs, read_json, write_json
from spark_rl.task import Task

MAX_DIFFERENCES = 4
"""A sign-off that differs in more is about another task or model, and not worth naming."""

KIND_WORDS: dict[ReaderKind, str] = {
    "person": "person",
    "script": "script, not a person",
    "oracle": "oracle, not a person",
}


@dataclass(frozen=True)
class SignOff:
    """A closed inspection."""

    run: str
    """Name of the run directory that holds it."""
    signed_seconds: float
    """UTC."""
    kind: ReaderKind
    """The least trusted of its readers."""
    readers: tuple[str, ...]
    counts: Mapping[str, int]
    """samples, agree, disagree, unsure, withdrawn (disagreements taken back with a note), rescored (times)."""
    reading_seconds: float | None
    """From the first opinion to the last."""
    alarms: tuple[str, ...]
    """What the gate pointed out before it was signed."""
    fingerprint: Mapping[str, str]
    samples_digest: str
    opinions_digest: str

    @property
    def reader(self) -> str:
        """Who signed, in words."""
        return ", ".join(self.readers) if self.kind == "person" else KIND_WORDS[self.kind]


def sign(
    run: RunDir,
    subject: Subject,
    runs_root: Path | None = None,
    clock: Clock = time.time,
) -> SignOff:
    """Close the inspection of a run. Raises Refused with everything that is missing."""
    inspection = read_inspection(run)
    now = fingerprint(subject)
    problems = unmet(inspection, subject.task)
    drawn = inspection.drawn
    stale = changes(drawn.fingerprint, now) if drawn else []
    if stale and inspection.samples:
        problems.append(f"changed since the samples were drawn: {', '.join(stale)}")
    problems += open_disputes(_other_runs(run, runs_root), now)
    if problems or drawn is None:
        raise Refused(f"{run.name} cannot be signed: " + "; ".join(problems), _next_step(inspection, bool(stale)))
    times = [opinion.time_seconds for opinion in inspection.history if opinion.time_seconds is not None]
    signoff = SignOff(
        run=run.name,
        signed_seconds=round(clock(), 3),
        kind=least_trusted(inspection.opinions),
        readers=tuple(sorted({opinion.reader for opinion in inspection.opinions.values()})),
        counts=inspection.counts(),
        reading_seconds=round(max(times) - min(times), 1) if times else None,
        alarms=tuple(find_alarms(inspection.samples)),
        fingerprint=now,
        samples_digest=drawn.samples_digest,
        opinions_digest=opinions_digest(inspection.opinions),
    )
    write_json(run.inspection, {**_to_json(signoff), "seal": _seal(signoff)})
    return signoff


def sign_with_oracle(
    run: RunDir,
    subject: Subject,
    runs_root: Path | None = None,
    clock: Clock = time.time,
) -> SignOff:
    """Let a shipped demo task's oracle read every sample that no person has read, and sign.

    Raises Refused for any other task.
    """
    oracle = oracle_of(subject.task)
    inspection = read_inspection(run)
    by_person = {name for name, opinion in inspection.opinions.items() if opinion.kind == "person"}
    said = oracle_opinions(oracle, subject.task, inspection.samples)
    write_opinions(run, [opinion for opinion in said if opinion.sample_id not in by_person], clock)
    return sign(run, subject, runs_root, clock)


def require_signoff(
    run: RunDir,
    subject: Subject,
    runs_root: Path | None = None,
) -> SignOff:
    """The sign-off that allows this training: of this run, or of another under `runs_root` with the same fingerprint.

    Raises Refused saying what is missing or changed.
    """
    now = fingerprint(subject)
    others = _other_runs(run, runs_root)
    disputes = open_disputes([run, *others], now)
    if disputes:
        raise Refused("training is not allowed: " + "; ".join(disputes), "mend the reward, then rescore that run")
    own = standing(run, subject.task, now)
    if isinstance(own, SignOff):
        return own
    for other in others:
        if isinstance(found := _standing_elsewhere(other, subject.task, now), SignOff):
            return found
    message = f"training needs a signed inspection. {run.name}: {'; '.join(own)}"
    raise Refused("\n".join([message, *_closest(others, now)]), _next_step(read_inspection(run), is_signed(run)))


def standing(run: RunDir, task: Task, now: Mapping[str, str]) -> SignOff | tuple[str, ...]:
    """The sign-off of a run when it holds for this fingerprint, else why it does not."""
    signoff = read_signoff(run)
    inspection = read_inspection(run)
    if signoff is None:
        return tuple(unmet(inspection, task)) or ("every sample has a verdict, but nobody has signed",)
    if isinstance(signoff, str):
        return (signoff,)
    changed = changes(signoff.fingerprint, now)
    if changed:
        return (f"changed since it was signed: {', '.join(changed)}",)
    problems = unmet(inspection, task)
    if signoff.samples_digest != inspection.samples_digest:
        problems.append("the samples were changed after signing")
    if signoff.opinions_digest != opinions_digest(inspection.opinions):
        problems.append("verdicts were changed after signing")
    if inspection.drawn and changes(inspection.drawn.fingerprint, now):
        problems.append("the samples were drawn or scored under other settings")
    if signoff.kind != least_trusted(inspection.opinions):
        problems.append("the record names another kind of reader than the verdicts")
    return tuple(problems) or signoff


def _standing_elsewhere(run: RunDir, task: Task, now: Mapping[str, str]) -> SignOff | None:
    """Another run's sign-off; its broken files must not stop this one."""
    try:
        found = standing(run, task, now) if run.inspection.is_file() else None
    except RunDirError:
        return None
    return found if isinstance(found, SignOff) else None


def _closest(others: Sequence[RunDir], now: Mapping[str, str]) -> list[str]:
    """The sign-off that differs least, with what differs; nothing when they are all about something else."""
    found: list[tuple[int, str]] = []
    for other in others:
        try:
            signoff = read_signoff(other)
        except RunDirError:
            continue
        if isinstance(signoff, SignOff):
            changed = changes(signoff.fingerprint, now)
            found.append((len(changed), f"{other.name} is signed, but differs in: {', '.join(changed)}"))
    near = [pair for pair in found if 0 < pair[0] <= MAX_DIFFERENCES]
    return [min(near, key=lambda pair: pair[0])[1]] if near else []


def least_trusted(opinions: Mapping[str, Opinion]) -> ReaderKind:
    """One verdict of a program makes the reading a program's."""
    kinds = {opinion.kind for opinion in opinions.values()}
    return "oracle" if "oracle" in kinds else "script" if "script" in kinds else "person"


def is_signed(run: RunDir) -> bool:
    """Whether this run holds a sign-off of its own. Whether that still matches is `require_signoff`'s answer."""
    return isinstance(read_signoff(run), SignOff)


def read_signoff(run: RunDir) -> SignOff | str | None:
    """The record in inspection.json; None when there is none; a sentence when it was not written by signing."""
    value = read_json(run.inspection)
    if value is None:
        return None
    if value.get("kind") not in KIND_WORDS:
        return "inspection.json is not a sign-off record"
    try:
        signoff = SignOff(
            run=str(value["run"]),
            signed_seconds=float(value["signed_seconds"]),
            kind=cast(ReaderKind, value["kind"]),
            readers=tuple(str(name) for name in value["readers"]),
            counts={str(name): int(count) for name, count in value["counts"].items()},
            reading_seconds=None if value["reading_seconds"] is None else float(value["reading_seconds"]),
            alarms=tuple(str(text) for text in value["alarms"]),
            fingerprint={str(name): str(digest) for name, digest in value["fingerprint"].items()},
            samples_digest=str(value["samples_digest"]),
            opinions_digest=str(value["opinions_digest"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return "inspection.json is not a sign-off record"
    if value.get("seal") != _seal(signoff) or value.get("reader") != signoff.reader:
        return "inspection.json was changed after signing"
    return signoff


def open_disputes(runs: Sequence[RunDir], now: Mapping[str, str]) -> list[str]:
    """Open disagreements about this very reward, in any of the runs: another draw does not settle them."""
    found = []
    for run in runs:
        try:
            drawn = read_drawn(run)
            if drawn is None or changes(drawn.fingerprint, now):
                continue
            disputed = read_inspection(run).disputed
        except RunDirError:
            continue
        if disputed:
            found.append(f"a reader of {run.name} disagrees with this reward on {name_some(disputed)}")
    return found


def adopt_signoff(run: RunDir, signoff: SignOff, runs_root: Path) -> None:
    """Copy the inspection that allowed a run into it, so that the run can be understood and resumed alone.

    A run that has samples of its own keeps them.
    """
    if signoff.run == run.name or run.inspect_samples.exists():
        return
    source = RunDir(runs_root / signoff.run)
    run.inspect_samples.parent.mkdir(parents=True, exist_ok=True)
    names: tuple[Callable[[RunDir], Path], ...] = (
        lambda one: one.inspect_samples,
        drawn_file,
        opinions_file,
        lambda one: one.inspection,
    )
    try:
        for name in names:  # the record last: without what it vouches for it would be refused
            temporary = name(run).with_suffix(".tmp")
            shutil.copyfile(name(source), temporary)
            temporary.replace(name(run))
    except OSError as error:
        raise RunDirError(f"{run.path}: the inspection cannot be copied: {error.strerror}") from None


def opinions_digest(opinions: Mapping[str, Opinion]) -> str:
    """SHA-256 over who said what about which score."""
    content = sorted([name, said.says, said.scored, said.reader, said.kind] for name, said in opinions.items())
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _other_runs(run: RunDir, runs_root: Path | None) -> list[RunDir]:
    """Other runs beside this one, newest first."""
    root = runs_root or run.path.parent
    return [other for other in reversed(list_runs(root)) if other.path.resolve() != run.path.resolve()]


def _next_step(inspection: Inspection, changed: bool) -> str:
    run = inspection.run
    if not inspection.samples or (inspection.drawn is None):
        return f"draw samples: {sample_command(run)}"
    if inspection.disputed or any(sample.has_bug for sample in inspection.samples):
        return f"mend the reward, then: spark-rl inspect rescore {run.path}"
    if changed:
        return f"score the same samples again (spark-rl inspect rescore {run.path}), or put back what was changed"
    if inspection.unread:
        return f"read them: spark-rl inspect review {run.path}"
    return f"spark-rl inspect sign {run.path}"


def _to_json(signoff: SignOff) -> dict[str, Any]:
    return {"reader": signoff.reader, **asdict(signoff)}


def _seal(signoff: SignOff) -> str:
    """A checksum that shows an edit by hand. It keeps nobody out who computes it too; the samples and verdicts are
    checked again anyway."""
    return hashlib.sha256(json.dumps(_to_json(signoff), sort_keys=True, default=str).encode()).hexdigest()
