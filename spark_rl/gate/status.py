"""Where the inspection of a run stands: counts, facts about the samples, what is missing, whether a sign-off holds.

In: an `Inspection`, the task, and the fingerprint as it is now (None when it cannot be taken, with the reason).
Out: a frozen `Status` as text of 80 columns or as JSON. Reads only.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spark_rl.gate.alarms import find_alarms
from spark_rl.gate.display import one_line, sentence_lines
from spark_rl.gate.fingerprint import changes
from spark_rl.gate.inspection import read_inspection, unmet
from spark_rl.gate.samples import count_of
from spark_rl.gate.signoff import SignOff, read_signoff, standing
from spark_rl.rundir import RunDir
from spark_rl.task import Task
from spark_rl.units import format_seconds


@dataclass(frozen=True)
class Status:
    run: str
    counts: Mapping[str, int]
    alarms: tuple[str, ...]
    disagreements: tuple[tuple[str, str], ...]
    """(sample, note) of each that is open."""
    missing: tuple[str, ...]
    """What keeps it from being signed; when it is signed, why the sign-off no longer holds."""
    signoff: SignOff | None
    """As recorded, whether it holds or not."""
    holds: bool | None
    """Would `train` accept the sign-off? None when what it is about cannot be read."""


def read_status(run: RunDir, task: Task | None, now: Mapping[str, str] | None, reason: str | None = None) -> Status:
    """The status of a run. `reason`: why there is no task or no fingerprint."""
    inspection = read_inspection(run)
    signoff = read_signoff(run)
    missing = [reason] if reason else []
    holds: bool | None = None
    if task is not None and now is not None:
        found = standing(run, task, now)
        holds = isinstance(found, SignOff)
        if not isinstance(found, SignOff):
            missing += found
        if signoff is None and inspection.drawn:
            stale = changes(inspection.drawn.fingerprint, now)
            missing += [f"changed since the samples were drawn: {', '.join(stale)}"] if stale else []
    elif task is not None:
        missing += unmet(inspection, task)
    opinions = inspection.opinions
    return Status(
        run=run.name,
        counts=inspection.counts(),
        alarms=tuple(find_alarms(inspection.samples)),
        disagreements=tuple((name, opinions[name].note) for name in inspection.disputed),
        missing=tuple(missing),
        signoff=signoff if isinstance(signoff, SignOff) else None,
        holds=holds,
    )


def status_json(status: Status) -> dict[str, Any]:
    signoff = status.signoff
    return {
        "run": status.run,
        **status.counts,
        "signed": signoff is not None,
        "holds": status.holds,
        "reader": signoff.reader if signoff else None,
        "kind": signoff.kind if signoff else None,
        "signed_seconds": signoff.signed_seconds if signoff else None,
        "missing": list(status.missing),
        "alarms": list(status.alarms),
        "disagreements": [{"id": name, "note": note} for name, note in status.disagreements],
    }


def status_lines(status: Status, width: int = 80, encoding: str = "utf-8") -> list[str]:
    """The status in words."""
    lines = [f"inspection of {one_line(status.run, width - 14, encoding)}"]
    lines += [f"  {line}" for line in sentence_lines(counts_text(status.counts), width - 2)]
    for alarm in status.alarms:
        lines += sentence_lines(f"! {alarm}", width)
    for name, note in status.disagreements:
        lines.append(one_line(f"  {name}: {note or '(no note)'}", width, encoding))
    signoff = status.signoff
    if signoff:
        day = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(signoff.signed_seconds))
        timed = signoff.kind == "person" and signoff.reading_seconds is not None
        read = f", read in {format_seconds(signoff.reading_seconds)}" if timed else ""
        held = {True: "the sign-off holds", False: "the sign-off does NOT hold", None: "not compared"}[status.holds]
        lines += sentence_lines(f"signed by {signoff.reader} on {day}{read}; {held}", width)
    else:
        lines.append("not signed")
    for text in status.missing:
        lines += sentence_lines(f"- {text}", width)
    return lines


def counts_text(counts: Mapping[str, int]) -> str:
    """64 samples: 60 agree, 1 disagree, 2 unsure, 1 not read; scored again twice."""
    said = [f"{counts[word]} {word}" for word in ("agree", "disagree", "unsure") if counts[word]]
    said += [f"{counts['unread']} not read"] if counts["unread"] else []
    text = count_of(counts["samples"], "sample") + (f": {', '.join(said)}" if said else "")
    text += f"; scored again {_times(counts['rescored'])}" if counts["rescored"] else ""
    return text + (f"; {count_of(counts['withdrawn'], 'disagreement')} taken back" if counts["withdrawn"] else "")


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number} times")
