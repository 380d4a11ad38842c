"""Verdicts leave and return as CSV or JSONL: for a spreadsheet, a colleague, or a script on a demo task.

Out: one row a sample, in review order, with the scores and the text. In: rows with `id`, `verdict` and `reader`; an
imported file names its reader. All problems of a file are told at once, and a file with problems changes nothing.
"""

from __future__ import annotations

import csv
import io
import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_rl.errors import ConfigError, Problem, Refused, SparkError, did_you_mean
from spark_rl.gate.inspection import Inspection, read_inspection, withdrawal_problem
from spark_rl.gate.opinions import SAYS, Opinion, last_words, reader_kind, write_opinions
from spark_rl.gate.samples import review_order, sample_command
from spark_rl.rundir import Clock, RunDir
from spark_rl.task import Task

FORMATS = (".csv", ".jsonl")
OWN_COLUMNS = ("id", "verdict", "note", "reader")
_FORMULA_START = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet runs a cell that begins like this; such a cell leaves with an apostrophe before it."""
_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
MAX_PROBLEMS = 20


@dataclass(frozen=True)
class Imported:
    """What an import did."""

    num_verdicts: int
    num_unchanged: int
    """Rows that say what is recorded already."""
    num_blank: int
    """Rows without a verdict."""
    readers: tuple[str, ...]


def export_rows(inspection: Inspection) -> list[dict[str, Any]]:
    """One flat row a sample. Raises Refused when there are none."""
    if not inspection.samples:
        raise Refused(
            f"{inspection.run.name}: no samples have been drawn", f"draw them: {sample_command(inspection.run)}"
        )
    opinions = inspection.opinions
    seed = inspection.drawn.seed if inspection.drawn else 0
    rows: list[dict[str, Any]] = []
    for sample in review_order(inspection.samples, seed):
        opinion = opinions.get(sample.id)
        row: dict[str, Any] = {
            "id": sample.id,
            "verdict": opinion.says if opinion else "",
            "note": opinion.note if opinion else "",
            "reader": opinion.reader if opinion else "",
            "total": sample.total,
            "correct": sample.correct,
        }
        for name, verdict in sample.parts.items():
            row[name if name not in row else f"part {name}"] = verdict.value
            row[f"{name} reason"] = verdict.reason
        row |= {
            "num_tokens": sample.num_tokens,
            "truncated": sample.truncated,
            "prompt": sample.prompt,
            "completion": sample.completion,
            "row": json.dumps(dict(sample.row), ensure_ascii=False, default=str),
            "scored": sample.digest(),
        }
        rows.append(row)
    return rows


def to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """CSV with a header; cells that a spreadsheet would run as formulas are marked as text."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(names)
    for row in rows:
        writer.writerow([_csv_cell(row.get(name)) for name in names])
    return out.getvalue()


def to_jsonl(rows: Sequence[Mapping[str, Any]]) -> str:
    """One JSON object a line; invisible and control characters are escaped, so that `cat` is safe."""
    lines = (json.dumps(dict(row), ensure_ascii=False, allow_nan=False) for row in rows)
    return "".join(_UNSAFE_IN_JSON.sub(lambda found: f"\\u{ord(found.group()):04x}", line) + "\n" for line in lines)


def import_verdicts(
    run: RunDir, path: Path, task: Task, reader: str | None = None, clock: Clock = time.time
) -> Imported:
    """Record the verdicts of a file. `reader` names the reader of rows that name none.

    Raises ConfigError with every problem and its line, Refused for a script's verdicts on a task that is not a demo.
    """
    inspection = read_inspection(run)
    if not inspection.samples:
        raise Refused(f"{run.name}: no samples have been drawn", f"draw them: {sample_command(run)}")
    samples = {sample.id: sample for sample in inspection.samples}
    current, last = inspection.opinions, last_words(inspection.history)
    opinions: dict[str, Opinion] = {}
    problems: list[Problem] = []
    num_blank = num_unchanged = 0
    seen: set[str] = set()

    for line, row in read_rows(path):

        def fault(key: str, message: str, hint: str | None = None, line: int = line) -> None:
            problems.append(Problem(str(path), f"line {line}, {key}", message, hint))

        name, verdict = str(row.get("id") or "").strip(), str(row.get("verdict") or "").strip().casefold()
        sample = samples.get(name)
        if sample is None:
            fault("id", f"{name!r} is no sample of {run.name}", did_you_mean(name, samples))
            continue
        if name in seen:
            fault("id", f"{name} occurs twice", "keep one row a sample")
            continue
        seen.add(name)
        if not verdict:
            num_blank += 1
            continue
        if verdict not in SAYS:
            fault("verdict", f"{verdict!r} is not agree, disagree or unsure", did_you_mean(verdict, SAYS))
            continue
        if row.get("scored") not in (None, "", sample.digest()):
            fault("scored", f"{name} was scored again since this file was exported", "export it anew")
            continue
        note, who = _from_cell(str(row.get("note") or "")), str(row.get("reader") or reader or "").strip()
        known = current.get(name)
        if known and (known.says, known.note, known.reader) == (verdict, note, who):
            num_unchanged += 1
            continue
        try:
            opinion = Opinion(name, verdict, sample.digest(), who, reader_kind(who), note)
        except SparkError as error:
            fault("reader", error.message, error.hint)
            continue
        blocked = withdrawal_problem(last.get(name), sample, opinion)
        if blocked:
            fault("verdict", blocked)
            continue
        opinions[name] = opinion
    if problems:
        more = len(problems) - MAX_PROBLEMS
        raise ConfigError(problems[:MAX_PROBLEMS], f"{more} more such lines" if more > 0 else "nothing was imported")
    if not task.task.demo and any(opinion.kind == "script" for opinion in opinions.values()):
        raise Refused(
            f"verdicts of a script are valid for demo tasks only, and {task.name!r} is none",
            "a person reads the samples and puts their own name in the reader column",
        )
    if not opinions and not num_unchanged:
        raise ConfigError(f"{path}: holds no verdict", "fill the verdict column with agree, disagree or unsure")
    write_opinions(run, list(opinions.values()), clock)
    readers = tuple(sorted({opinion.reader for opinion in opinions.values()}))
    return Imported(len(opinions), num_unchanged, num_blank, readers)


def read_rows(path: Path) -> list[tuple[int, dict[str, Any]]]:
    """(line, row) of a .csv or .jsonl file. Raises ConfigError for anything that cannot be read or lacks a column."""
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"{path}: unknown kind of file {path.suffix!r}", "use .csv or .jsonl")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}", "save it as UTF-8") from None
    rows = _csv_rows(path, text) if path.suffix.lower() == ".csv" else _jsonl_rows(path, text)
    if not rows:
        raise ConfigError(f"{path}: the file is empty")
    missing = [name for name in ("id", "verdict") if not any(name in row for _, row in rows)]
    if missing:
        present = list(rows[0][1])
        raise ConfigError([Problem(str(path), name, "missing column", did_you_mean(name, present)) for name in missing])
    return rows


def _csv_rows(path: Path, text: str) -> list[tuple[int, dict[str, Any]]]:
    first = text.split("\n", 1)[0]
    delimiter = max(",;\t", key=first.count)  # spreadsheets in many languages save with semicolons
    csv.field_size_limit(1 << 30)  # a completion of 32k tokens is longer than csv's limit of 128 KiB
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        return [(reader.line_num, {str(key): value for key, value in row.items() if key}) for row in reader]
    except csv.Error as error:
        raise ConfigError([Problem(str(path), f"line {reader.line_num}", f"not readable as CSV: {error}")]) from None


def _jsonl_rows(path: Path, text: str) -> list[tuple[int, dict[str, Any]]]:
    rows: list[tuple[int, dict[str, Any]]] = []
    problems: list[Problem] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            problems.append(Problem(str(path), f"line {number}", f"not complete JSON: {error}"))
            continue
        if isinstance(row, dict):
            rows.append((number, row))
        else:
            problems.append(Problem(str(path), f"line {number}", "expected an object"))
    if problems:
        raise ConfigError(problems[:MAX_PROBLEMS])
    return rows


def _csv_cell(value: Any) -> str:
    if value is None:
        return ""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    text = text.replace("\0", "\\x00").encode("utf-8", errors="backslashreplace").decode("utf-8")
    risky = isinstance(value, str) and text.startswith(_FORMULA_START)
    return f"'{text}" if risky else text


def _from_cell(text: str) -> str:
    """The note without the apostrophe that an export put before it."""
    text = text.strip()
    return text[1:] if text.startswith("'") and text[1:].startswith(_FORMULA_START) else text
