"""What readers said about samples: an append-only log, of which the last word on each sample counts.

In: one opinion at a time, from the review, an imported file, an oracle or a script. Out: the last opinion per sample.
An opinion names the score it was given for (`scored`), so it lapses by itself when the score changes.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

from spark_rl.errors import ConfigError, RunDirError
from spark_rl.rundir import Clock, JsonlWriter, RunDir, read_jsonl

Says = Literal["agree", "disagree", "unsure"]
ReaderKind = Literal["person", "script", "oracle"]

SAYS: tuple[Says, ...] = get_args(Says)
MAX_NAME = 64
MAX_NOTE = 2000


@dataclass(frozen=True)
class Opinion:
    """One reader's verdict on one scored sample."""

    sample_id: str
    says: Says
    """Does the reader agree with what the reward said?"""
    scored: str
    """Digest of the sample with its score: the opinion holds for this score only."""
    reader: str
    kind: ReaderKind
    note: str = ""
    time_seconds: float | None = None
    """UTC; set when it is written."""


def reader_kind(name: str) -> ReaderKind:
    """What a reader's name makes it. "script" or "script-..." is a program; "oracle" is reserved for the shipped ones.

    Raises ConfigError for a name that cannot stand in a record.
    """
    if not name.strip() or len(name) > MAX_NAME or not name.isprintable():
        raise ConfigError(
            f"reader name {name[:MAX_NAME]!r} is empty, too long or not printable", "give yours with --reader NAME"
        )
    first = re.split(r"[^a-z0-9]+", name.strip().casefold())[0]
    if first == "oracle":
        raise ConfigError(f"reader name {name!r} is reserved", "a shipped demo task's oracle signs by itself")
    return "script" if first == "script" else "person"


def opinions_file(run: RunDir) -> Path:
    return run.inspect_samples.with_name("verdicts.jsonl")


def read_opinions(run: RunDir) -> tuple[Opinion, ...]:
    """Every opinion ever given, oldest first; torn or foreign lines are left out (their samples count as not read)."""
    parsed = (_parse(row) for row in read_jsonl(opinions_file(run)).rows)
    return tuple(opinion for opinion in parsed if opinion is not None)


def last_words(opinions: Iterable[Opinion]) -> dict[str, Opinion]:
    """The last opinion on each sample, whatever score it was given for."""
    return {opinion.sample_id: opinion for opinion in opinions}


def write_opinions(run: RunDir, opinions: Sequence[Opinion], clock: Clock = time.time) -> None:
    """Append opinions; each is on disk before this returns. Raises RunDirError when it cannot be written."""
    writer = JsonlWriter(opinions_file(run), clock)
    try:
        for opinion in opinions:
            writer.append(
                {
                    "id": opinion.sample_id,
                    "verdict": opinion.says,
                    "note": _storable(opinion.note)[:MAX_NOTE],
                    "reader": opinion.reader,
                    "kind": opinion.kind,
                    "scored": opinion.scored,
                }
            )
    finally:
        writer.close()
    _flush_to_disk(opinions_file(run))


def _flush_to_disk(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise RunDirError(f"{path}: cannot be written: {error.strerror}", "is the disk full?") from None


def _parse(row: Mapping[str, Any]) -> Opinion | None:
    texts = [row.get(key) for key in ("id", "scored", "reader")]
    if not all(isinstance(text, str) and text for text in texts):
        return None
    if row.get("verdict") not in SAYS or row.get("kind") not in get_args(ReaderKind):
        return None
    stamp = row.get("t")
    return Opinion(
        sample_id=str(row["id"]),
        says=cast(Says, row["verdict"]),
        scored=str(row["scored"]),
        reader=str(row["reader"]),
        kind=cast(ReaderKind, row["kind"]),
        note=str(row.get("note") or ""),
        time_seconds=float(stamp) if isinstance(stamp, int | float) else None,
    )


def _storable(text: str) -> str:
    """The text as UTF-8 can hold it."""
    return text.encode("utf-8", errors="replace").decode("utf-8")
