"""The samples a reader judges: which prompts are drawn, how samples are kept, in which order they are shown.

In: the training prompts, and completions of the model that will be trained with their scores. Out: `Sample`s in
inspect/samples.jsonl, and inspect/drawn.json with the fingerprint they were drawn and scored under.
Making completions is the worker's; this module imports nothing heavy.
"""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from spark_rl.dataset import Example, Examples, content_key
from spark_rl.errors import Refused, RunDirError
from spark_rl.gate.opinions import last_words, read_opinions
from spark_rl.rewards.base import Verdict
from spark_rl.rewards.composite import Scored
from spark_rl.rundir import SCHEMA, Clock, RunDir, finite, read_json, read_jsonl, write_json, write_text_atomic

TAIL_SHARE = 5
"""One sample in five is shown from each end of the scores before the middle."""


@dataclass(frozen=True)
class Sample:
    """One completion with what the reward said about it."""

    id: str
    prompt: str
    completion: str
    num_tokens: int
    truncated: bool
    """It ended at the length limit, not by itself."""
    total: float | None
    correct: bool | None
    parts: Mapping[str, Verdict]
    row: Mapping[str, Any]
    """The columns that the rewards read."""

    @property
    def has_bug(self) -> bool:
        return any(verdict.is_bug for verdict in self.parts.values())

    def digest(self) -> str:
        """SHA-256 over text and score, reasons left out: an opinion is about exactly this."""
        scores = {name: [_float(verdict.value), verdict.is_bug] for name, verdict in self.parts.items()}
        content = [self.id, self.prompt, self.completion, self.truncated, _float(self.total), self.correct, scores]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Drawn:
    """How the samples of a run came to be."""

    fingerprint: Mapping[str, str]
    """Of the run as the samples are scored now (see spark_rl.gate.fingerprint)."""
    seed: int
    """Of the review order."""
    num_samples: int
    samples_digest: str
    num_rescored: int
    """How often the same samples were scored again."""


def draw_prompts(examples: Examples, num_samples: int, seed: int) -> list[Example]:
    """Training prompts to sample from: seeded, and no prompt twice before every one was drawn."""
    unique = list({content_key(example): example for example in examples.train}.values())
    source = random.Random(f"inspect/{seed}")
    drawn: list[Example] = []
    while unique and len(drawn) < num_samples:
        drawn += source.sample(unique, min(len(unique), num_samples - len(drawn)))
    return drawn


def scoring_row(example: Example, num_tokens: int) -> dict[str, Any]:
    """The columns a reward gets in training. Of the tokens only their number is kept, so that lengths can be judged."""
    return {**example.row, "prompt": example.prompt, "completion_ids": [None] * num_tokens}


class Generated(Protocol):
    """What an engine gives for one prompt."""

    @property
    def text(self) -> str: ...
    @property
    def num_tokens(self) -> int: ...
    @property
    def truncated(self) -> bool: ...


def make_samples(
    examples: Sequence[Example], completions: Sequence[Generated], scored: Sequence[Scored]
) -> list[Sample]:
    """One sample per drawn prompt, numbered in the order drawn."""
    columns = zip(examples, completions, scored, strict=True)
    return [
        Sample(
            id=f"s{number:03d}",
            prompt=example.text,
            completion=completion.text,
            num_tokens=completion.num_tokens,
            truncated=completion.truncated,
            total=score.total,
            correct=score.correct,
            parts=score.parts,
            row=dict(example.row),
        )
        for number, (example, completion, score) in enumerate(columns, start=1)
    ]


def write_samples(
    run: RunDir,
    samples: Sequence[Sample],
    fingerprint: Mapping[str, str],
    seed: int = 0,
    num_rescored: int = 0,
    clock: Clock = time.time,
) -> None:
    """Keep the samples of a run with the fingerprint they were drawn under.

    Raises Refused for a new draw while a disagreement is open: that is closed by mending the reward and rescoring.
    """
    if not num_rescored:
        refuse_new_draw(run)
    stamp = round(clock(), 3)
    text = "".join(_line({"v": SCHEMA, "t": stamp, **sample_to_json(sample)}) + "\n" for sample in samples)
    run.inspect_samples.parent.mkdir(parents=True, exist_ok=True)
    # The old description goes first: killed in between, the run has samples that nothing vouches for, not the reverse.
    drawn_file(run).unlink(missing_ok=True)
    write_text_atomic(run.inspect_samples, text)
    write_json(
        drawn_file(run),
        {
            "t": stamp,
            "fingerprint": dict(fingerprint),
            "seed": seed,
            "num_samples": len(samples),
            "samples_digest": hashlib.sha256(text.encode()).hexdigest(),
            "num_rescored": num_rescored,
        },
    )


def refuse_new_draw(run: RunDir) -> None:
    """Raises Refused when the run's samples have an open disagreement."""
    drawn = read_drawn(run)
    if drawn is None or drawn.samples_digest != samples_file_digest(run):
        return  # nothing vouches for these samples (a write was cut off): only a new draw helps
    opinions = last_words(read_opinions(run))
    disputed = [
        sample.id
        for sample in read_samples(run)
        if (opinion := opinions.get(sample.id)) and opinion.says == "disagree" and opinion.scored == sample.digest()
    ]
    if disputed:
        raise Refused(
            f"{run.name}: a reader disagrees with the reward on {name_some(disputed)}; "
            "that is not settled by drawing other samples",
            f"mend the reward, then: spark-rl inspect rescore {run.path}",
        )


def drawn_file(run: RunDir) -> Path:
    return run.inspect_samples.with_name("drawn.json")


def read_samples(run: RunDir) -> list[Sample]:
    """The samples of a run, in the order drawn; none when none were drawn. Raises RunDirError for a broken file."""
    rows = read_jsonl(run.inspect_samples)
    if rows.num_skipped:
        raise RunDirError(
            f"{run.inspect_samples}: {rows.num_skipped} lines cannot be read", f"draw anew: {sample_command(run)}"
        )
    try:
        return [sample_from_json(row) for row in rows.rows]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunDirError(
            f"{run.inspect_samples}: a sample cannot be read: {type(error).__name__}: {error}",
            f"draw anew: {sample_command(run)}",
        ) from None


def read_drawn(run: RunDir) -> Drawn | None:
    """How the samples came to be; None when that is not known."""
    value = read_json(drawn_file(run))
    if value is None:
        return None
    try:
        return Drawn(
            fingerprint={str(name): str(digest) for name, digest in value["fingerprint"].items()},
            seed=int(value["seed"]),
            num_samples=int(value["num_samples"]),
            samples_digest=str(value["samples_digest"]),
            num_rescored=int(value["num_rescored"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunDirError(f"{drawn_file(run)}: cannot be read: {type(error).__name__}: {error}") from None


def samples_file_digest(run: RunDir) -> str | None:
    try:
        return hashlib.sha256(run.inspect_samples.read_bytes()).hexdigest()
    except OSError:
        return None


def review_order(samples: Sequence[Sample], seed: int) -> list[Sample]:
    """Samples without a score first, then both tails in turn (highest, lowest, ...), then a shuffled middle."""
    shuffled = list(samples)
    random.Random(f"review/{seed}").shuffle(shuffled)  # equal scores come in no particular order
    unscored = [sample for sample in shuffled if sample.total is None]
    ranked = sorted((sample for sample in shuffled if sample.total is not None), key=lambda sample: sample.total or 0.0)
    tail = min(max(1, len(ranked) // TAIL_SHARE), len(ranked) // 2)
    lowest, highest = ranked[:tail], ranked[len(ranked) - tail :][::-1]
    middle = ranked[tail : len(ranked) - tail]
    random.Random(f"middle/{seed}").shuffle(middle)
    ends = [sample for pair in zip(highest, lowest, strict=True) for sample in pair]
    return unscored + ends + middle


def sample_to_json(sample: Sample) -> dict[str, Any]:
    return {
        "id": sample.id,
        "prompt": sample.prompt,
        "completion": sample.completion,
        "num_tokens": sample.num_tokens,
        "truncated": sample.truncated,
        "total": sample.total,
        "correct": sample.correct,
        "parts": {
            name: {"value": verdict.value, "reason": verdict.reason, "is_bug": verdict.is_bug}
            for name, verdict in sample.parts.items()
        },
        "row": dict(sample.row),
    }


def sample_from_json(row: Mapping[str, Any]) -> Sample:
    """The reverse of `sample_to_json`. Raises KeyError, TypeError or ValueError for something else."""
    return Sample(
        id=str(row["id"]),
        prompt=str(row["prompt"]),
        completion=str(row["completion"]),
        num_tokens=int(row["num_tokens"]),
        truncated=bool(row["truncated"]),
        total=_float(row["total"]),
        correct=None if row["correct"] is None else bool(row["correct"]),
        parts={
            str(name): Verdict(_float(part["value"]), str(part["reason"]), bool(part["is_bug"]))
            for name, part in row["parts"].items()
        },
        row=dict(row["row"]),
    )


def name_some(ids: Sequence[str], limit: int = 5) -> str:
    """Sample names for a sentence."""
    shown = ", ".join(ids[:limit])
    return shown if len(ids) <= limit else f"{shown} and {len(ids) - limit} more"


def count_of(number: int, noun: str) -> str:
    """1 sample, 2 samples."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def sample_command(run: RunDir) -> str:
    return f"spark-rl inspect sample --run {run.path}"


def _float(value: float | None) -> float | None:
    """1 and 1.0 are the same score."""
    return None if value is None else float(value)


def _line(row: Mapping[str, Any]) -> str:
    cleaned, _ = finite(row)
    text = json.dumps(cleaned, ensure_ascii=False, allow_nan=False, default=str)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # half a surrogate pair, from an odd tokenizer
        return json.dumps(cleaned, ensure_ascii=True, allow_nan=False, default=str)
    return text
