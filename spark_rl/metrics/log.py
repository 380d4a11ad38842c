"""Rows of a GRPO run as a frozen `Log`, whoever wrote them.

In: raw rows under old or new names, with eval rows, closing rows and repeated steps mixed in. Out: one canonical row
a step. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from spark_rl.metrics.catalogue import BOOKKEEPING, SUMMARY_KEYS, canonical_key, is_part_mean

OVERFLOW = 1e30
"""A logged number beyond this is no measurement any more; it counts as infinite."""

EVAL = "eval_"
"""Prefix of the names in TRL's evaluation rows."""


@dataclass(frozen=True)
class Row:
    """One logged step under canonical names."""

    step: int
    values: Mapping[str, float]
    """Finite numbers only."""
    nonfinite: frozenset[str] = frozenset()
    """Names whose value was NaN or infinite."""

    def get(self, key: str) -> float | None:
        return self.values.get(key)


@dataclass(frozen=True)
class Log:
    """What a log says, whoever wrote it."""

    rows: tuple[Row, ...]
    """One a step, in order of steps."""
    eval_rows: tuple[Row, ...] = ()
    """Names without their `eval_` prefix."""
    source: str = ""
    num_skipped: int = 0
    """Lines that could not be read."""
    num_repeated: int = 0
    """Rows that a resumed run wrote again; the last writing counts."""
    has_steps: bool = True
    """False: the log names no step, rows are numbered from 1."""
    trainer: Mapping[str, Any] = field(default_factory=dict)
    """What else the file knows: logging_steps, max_steps, global_step."""

    def series(self, key: str) -> list[tuple[int, float]]:
        """(step, value) where the value is known."""
        return [(row.step, row.values[key]) for row in self.rows if key in row.values]

    def values(self, key: str) -> list[float]:
        return [row.values[key] for row in self.rows if key in row.values]

    def names(self) -> list[str]:
        """Every name that occurs, in order of first occurrence."""
        return list(dict.fromkeys(key for row in self.rows for key in (*row.values, *sorted(row.nonfinite))))

    @property
    def part_names(self) -> list[str]:
        """Reward parts, in order of first occurrence."""
        return [key.split("/", 1)[1].rsplit("/", 1)[0] for key in self.names() if is_part_mean(key)]


def log_from_rows(
    raw_rows: Iterable[Mapping[str, Any]],
    source: str = "",
    num_skipped: int = 0,
    trainer: Mapping[str, Any] | None = None,
) -> Log:
    """Canonical rows from raw ones: names mapped, eval and closing rows split off, repeated steps settled."""
    # The closing row that Transformers appends (total time, mean loss) is not a step.
    parsed = [_parse(raw) for raw in raw_rows if not SUMMARY_KEYS & raw.keys()]
    has_steps = any(step is not None for step, _, _ in parsed)
    train: list[Row] = []
    evals: list[Row] = []
    last_step = 0
    for number, (step, values, nonfinite) in enumerate(parsed, start=1):
        at = step if step is not None else (last_step if has_steps else number)
        last_step = at
        held = {key[len(EVAL) :]: value for key, value in values.items() if key.startswith(EVAL)}
        held_bad = frozenset(key[len(EVAL) :] for key in nonfinite if key.startswith(EVAL))
        own = {key: value for key, value in values.items() if not key.startswith(EVAL)}
        own_bad = frozenset(key for key in nonfinite if not key.startswith(EVAL))
        if held or held_bad:
            evals.append(Row(at, held, held_bad))
        if (own.keys() | own_bad) - {"epoch"}:
            train.append(Row(at, own, own_bad))
    rows, num_repeated = settle_steps(train)
    return Log(tuple(rows), tuple(evals), source, num_skipped, num_repeated, has_steps, dict(trainer or {}))


def settle_steps(rows: Sequence[Row]) -> tuple[list[Row], int]:
    """One row a step in rising order, and how many were written again.

    A step that occurs again replaces itself and everything after it (a resumed run), unless the neighbouring rows of
    one step name different things (a log that spreads a step over two rows): those are merged. A table in falling
    order is turned round first.
    """
    ordered = list(rows)
    if len(ordered) > 2 and all(a.step > b.step for a, b in pairwise(ordered)):
        ordered.reverse()
    kept: list[Row] = []
    num_repeated = 0
    for row in ordered:
        if kept and kept[-1].step == row.step and not (_names(kept[-1]) & _names(row) - {"epoch"}):
            before = kept.pop()
            kept.append(Row(row.step, {**before.values, **row.values}, before.nonfinite | row.nonfinite))
            continue
        while kept and kept[-1].step >= row.step:
            kept.pop()
            num_repeated += 1
        kept.append(row)
    return kept, num_repeated


def number(value: Any) -> float | None:
    """A number however a log writes it ("1,234.5", "nan", 3); None for everything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:  # an integer of hundreds of digits
            return float("inf" if value > 0 else "-inf")
    if not isinstance(value, str):
        return None
    try:
        return float(value.strip().replace(",", ""))
    except ValueError:
        return None


def _parse(raw: Mapping[str, Any]) -> tuple[int | None, dict[str, float], frozenset[str]]:
    """(step, finite values, names of the others) of one raw row."""
    step: int | None = None
    values: dict[str, float] = {}
    named = raw.get("nonfinite")
    nonfinite = {canonical_key(str(name)) for name in named} if isinstance(named, Sequence | frozenset) else set()
    for name, value in raw.items():
        if name in BOOKKEEPING or name.endswith(("__MIN", "__MAX")):
            continue
        parsed = number(value)
        if parsed is None:
            continue
        key = canonical_key(name)
        if key == "step":
            step = int(parsed) if abs(parsed) < OVERFLOW else None
        elif abs(parsed) < OVERFLOW:
            # A row may hold the old and the new name of one thing; the new one counts.
            if key not in values or key == name:
                values[key] = parsed
        else:
            nonfinite.add(key)
    return step, values, frozenset(nonfinite - values.keys())


def _names(row: Row) -> set[str]:
    return set(row.values) | row.nonfinite
