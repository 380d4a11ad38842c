"""The prompts of a task: rows read from a file, the hub or reasoning-gym, worded, and split without overlap.

In: a Task. Out: `Examples` (train and held-out prompts with the columns the rewards read, and notes on what was
dropped). Held-out prompts never occur in training: compared by content, not by row number.
"""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from spark_rl.errors import ConfigError, MissingPackage, Problem, did_you_mean
from spark_rl.task import DataTable, PromptTable, Task

MAX_PROBLEMS_SHOWN = 20

Message = dict[str, str]
Prompt = str | list[Message]

Note = Callable[[str], object]
"""Takes a sentence that a person should read."""


@dataclass(frozen=True)
class Example:
    """One prompt and the columns that rewards read."""

    prompt: Prompt
    row: Mapping[str, Any]

    @property
    def text(self) -> str:
        """The prompt as one text, for comparing and showing."""
        return prompt_text(self.prompt)


def prompt_text(prompt: Prompt) -> str:
    """A prompt as one text: chat messages by their roles."""
    if isinstance(prompt, str):
        return prompt
    return "\n".join(f"{message['role']}: {message['content']}" for message in prompt)


@dataclass(frozen=True)
class Examples:
    train: tuple[Example, ...]
    heldout: tuple[Example, ...]
    notes: tuple[str, ...] = ()
    """What was dropped or cut, in words."""

    def digest(self) -> str:
        """SHA-256 over every prompt and row, in order: part of the sign-off's fingerprint."""
        hasher = hashlib.sha256()
        for part in (self.train, self.heldout):
            for example in part:
                hasher.update(json.dumps([example.text, example.row], sort_keys=True, default=str).encode())
            hasher.update(b"|")
        return hasher.hexdigest()


def load_examples(task: Task) -> Examples:
    """Read, word and split the data of a task. Raises ConfigError naming file, line and column."""
    data = task.data
    notes: list[str] = []
    if data.reasoning_gym:
        train_rows, heldout_rows = _reasoning_gym_rows(task)
    elif data.hub:
        train_rows = _hub_rows(data.hub, data.hub_config, data.train or "train")
        heldout_rows = _hub_rows(data.hub, data.hub_config, data.heldout) if data.heldout else []
    else:
        assert data.train is not None
        train_rows = read_rows(task.base_dir / data.train, notes.append)
        heldout_rows = read_rows(task.base_dir / data.heldout, notes.append) if data.heldout else []
    train = word_rows(train_rows, task)
    heldout = word_rows(heldout_rows, task)
    if not data.heldout and not data.reasoning_gym:
        train, heldout = split_by_content(train, data.heldout_size)
        if 0 < len(heldout) < data.heldout_size:
            notes.append(f"{len(heldout)} prompts are held out, a fifth of the data (heldout_size {data.heldout_size})")
    train, heldout, dropped = drop_shared(train, heldout)
    notes += dropped
    if not data.reasoning_gym:  # its rows are made to measure
        notes += size_notes(data, len(train), len(heldout))
    if data.train_size is not None:
        train = train[: data.train_size]
    heldout = heldout[: data.heldout_size]
    if not train or not heldout:
        empty = "training" if not train else "held-out"
        raise ConfigError(
            f"{task.path}: no {empty} prompt is left", "; ".join(notes) or "the data is too small to split"
        )
    return Examples(tuple(train), tuple(heldout), tuple(notes))


def size_notes(data: DataTable, num_train: int, num_heldout: int) -> list[str]:
    """Where `train_size` and `heldout_size` give another number of prompts than the data or the task suggests."""
    notes = []
    if data.train_size is not None and data.train_size > num_train:
        notes.append(f"train_size is {data.train_size}, but there are only {num_train} training prompts; all are used")
    if num_heldout > data.heldout_size:
        notes.append(f"of {num_heldout} held-out prompts the first {data.heldout_size} are used (heldout_size)")
    return notes


def read_rows(path: Path, note: Note = lambda words: None) -> list[dict[str, Any]]:
    """Rows of a .jsonl, .csv or .parquet file. Raises ConfigError with line and reason.

    `note` is told what was read otherwise than it is written.
    """
    if not path.is_file():
        raise ConfigError(f"{path}: no such data file", "paths in a task file are relative to that file")
    readers: dict[str, Callable[[Path, Note], list[dict[str, Any]]]] = {
        ".jsonl": _read_jsonl,
        ".json": _read_jsonl,
        ".csv": _read_csv,
        ".parquet": _read_parquet,
    }
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise ConfigError(f"{path}: unknown kind of data file {path.suffix!r}", "use .jsonl, .csv or .parquet")
    rows = reader(path, note)
    if not rows:
        raise ConfigError(f"{path}: the data file is empty", "one row a prompt")
    return rows


def word_rows(rows: Sequence[Mapping[str, Any]], task: Task) -> list[Example]:
    """Rename columns and fill the template. Missing columns are named with the ones that are there."""
    if not rows:
        return []
    where = str(task.path)
    wanted = template_columns(task.prompt.template)
    if not wanted:
        raise ConfigError(
            [Problem(where, "prompt.template", "names no column, so every prompt would be the same", "write {column}")]
        )
    present = set(rows[0])
    sources = task.data.columns
    missing = [source for source in sources.values() if source not in present]
    renamed_present = (present - set(sources.values())) | set(sources)
    missing += [name for name in wanted if name not in renamed_present]
    if missing:
        raise ConfigError(
            [
                Problem(
                    where,
                    f"column {name!r}",
                    f"not in the data (it has: {', '.join(sorted(map(str, present)))})",
                    did_you_mean(name, map(str, present)) or "map it with [data] columns = { ours = 'theirs' }",
                )
                for name in missing
            ]
        )
    renamed = [rename_columns(row, sources) for row in rows]
    gaps = [(number, name) for number, row in enumerate(renamed, 1) for name in wanted if row.get(name) is None]
    if gaps:
        shown = [
            Problem(where, f"row {number} of the data", f"has no {name!r}, which the template names", "mend the row")
            for number, name in gaps[:MAX_PROBLEMS_SHOWN]
        ]
        more = len(gaps) - len(shown)
        raise ConfigError(shown, f"{more} more such rows" if more else None)
    return [Example(word_prompt(row, task.prompt), row) for row in renamed]


def rename_columns(row: Mapping[str, Any], sources: Mapping[str, str]) -> dict[str, Any]:
    """A row under our names: a mapped column takes the place of one that has our name already."""
    kept = {name: value for name, value in row.items() if name not in sources and name not in sources.values()}
    return {**kept, **{ours: row[source] for ours, source in sources.items() if source in row}}


def template_columns(template: str) -> list[str]:
    return re.findall(r"\{(\w+)\}", template)


def word_prompt(row: Mapping[str, Any], prompt: PromptTable) -> Prompt:
    """The prompt of one row: text, or messages when the model's chat template is to be used."""
    text = re.sub(r"\{(\w+)\}", lambda match: str(row[match.group(1)]), prompt.template)
    if not prompt.chat:
        shots = "".join(f"{question}{answer}\n" for question, answer in prompt.examples)
        return (f"{prompt.system}\n" if prompt.system else "") + shots + text + (prompt.prefill or "")
    messages: list[Message] = []
    if prompt.system:
        messages.append({"role": "system", "content": prompt.system})
    for question, answer in prompt.examples:
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    messages.append({"role": "user", "content": text})
    if prompt.prefill:
        messages.append({"role": "assistant", "content": prompt.prefill})
    return messages


def content_key(example: Example) -> bytes:
    """Two prompts are the same when they differ in white space only."""
    return hashlib.sha256(" ".join(example.text.split()).encode()).digest()


def split_by_content(examples: Sequence[Example], heldout_size: int) -> tuple[list[Example], list[Example]]:
    """Held-out = the prompts with the smallest hashes, at most a fifth: stable when rows are added or reordered."""
    unique = {content_key(example): example for example in examples}
    count = min(heldout_size, len(unique) // 5)
    chosen = set(sorted(unique)[:count])
    train = [example for example in examples if content_key(example) not in chosen]
    return train, [unique[key] for key in sorted(chosen)]


def drop_shared(train: Sequence[Example], heldout: Sequence[Example]) -> tuple[list[Example], list[Example], list[str]]:
    """Held-out prompts once each, and no training prompt that is held out; notes say how many were dropped."""
    unique = {content_key(example): example for example in heldout}
    kept = [example for example in train if content_key(example) not in unique]
    notes = []
    if len(unique) < len(heldout):
        notes.append(f"{len(heldout) - len(unique)} held-out prompts were duplicates and were dropped")
    if len(kept) < len(train):
        notes.append(f"{len(train) - len(kept)} training prompts are also held out and were dropped from training")
    return kept, list(unique.values()), notes


def apply_length_policy(
    examples: Examples,
    max_prompt_length: int,
    overlong: str,
    encode: Callable[[Prompt], Sequence[int]],
    decode: Callable[[Sequence[int]], str],
) -> Examples:
    """Drop, cut or refuse prompts longer than `max_prompt_length` tokens; the notes count them.

    Cutting keeps the end of a plain-text prompt; a chat prompt cannot be cut without breaking its turns.
    """
    notes = list(examples.notes)
    parts: dict[str, tuple[Example, ...]] = {}
    for name in ("train", "heldout"):
        kept: list[Example] = []
        num_long = longest = 0
        for example in getattr(examples, name):
            tokens = encode(example.prompt)
            if len(tokens) <= max_prompt_length:
                kept.append(example)
                continue
            num_long, longest = num_long + 1, max(longest, len(tokens))
            if overlong == "cut":
                if not isinstance(example.prompt, str):
                    raise ConfigError('prompt.overlong = "cut" needs plain-text prompts', "use drop, or chat = false")
                kept.append(replace(example, prompt=decode(tokens[-max_prompt_length:])))
        label = "training" if name == "train" else "held-out"
        if num_long and overlong == "refuse":
            raise ConfigError(
                f"{num_long} {label} prompts are longer than prompt.max_prompt_length {max_prompt_length} "
                f"(the longest has {longest} tokens)",
                'raise it, or set prompt.overlong = "drop"',
            )
        if num_long:
            done = "cut" if overlong == "cut" else "dropped"
            notes.append(f"{num_long} {label} prompts over {max_prompt_length} tokens were {done} (longest {longest})")
        if not kept:
            raise ConfigError(f"every {label} prompt is longer than prompt.max_prompt_length {max_prompt_length}")
        parts[name] = tuple(kept)
    return Examples(parts["train"], parts["heldout"], tuple(notes))


def _read_jsonl(path: Path, note: Note) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    problems: list[Problem] = []
    for number, line in _lines(path):
        if not line.strip(" \t\r\n\0"):
            if "\0" in line:
                problems.append(
                    Problem(
                        str(path), f"line {number}", "filled with NUL bytes", "the file was cut off; remove the line"
                    )
                )
            continue
        try:
            row = json.loads(line)
            if "\\ud" in line.lower():
                json.dumps(row, ensure_ascii=False).encode()  # raises where an escape is half a character
        except json.JSONDecodeError as error:
            torn = "" if line.endswith("\n") else " (torn last line)"
            problems.append(
                Problem(str(path), f"line {number}", f"not complete JSON{torn}: {error.msg}", "mend or remove the line")
            )
            continue
        except UnicodeEncodeError:
            problems.append(Problem(str(path), f"line {number}", "holds half a character (a lone \\ud800-\\udfff)"))
            continue
        except (ValueError, RecursionError) as error:  # a number of thousands of digits, or brackets without end
            problems.append(Problem(str(path), f"line {number}", f"cannot be read: {error}", "mend or remove the line"))
            continue
        if not isinstance(row, dict):
            problems.append(Problem(str(path), f"line {number}", f"is a {type(row).__name__}, expected an object"))
            continue
        rows.append(row)
    if problems:
        more = len(problems) - MAX_PROBLEMS_SHOWN
        raise ConfigError(problems[:MAX_PROBLEMS_SHOWN], f"{more} more such lines" if more > 0 else None)
    return rows


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    number = 0
    try:
        with path.open(encoding="utf-8-sig", errors="strict", newline="\n") as file:
            for number, line in enumerate(file, start=1):
                yield number, line
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}: after line {number}: not UTF-8 text: {error.reason}", "save the file as UTF-8"
        ) from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None


def _read_csv(path: Path, note: Note) -> list[dict[str, Any]]:
    reader = csv.DictReader((line for _, line in _lines(path)), strict=True)
    rows: list[dict[str, Any]] = []
    try:
        written = list(reader.fieldnames or ())
        header = [name.strip() for name in written]
        doubled = sorted({name for name in header if header.count(name) > 1})
        if doubled:
            raise ConfigError(
                [
                    Problem(
                        str(path),
                        "line 1",
                        f"names a column twice: {', '.join(map(repr, doubled))}",
                        "rename one of them",
                    )
                ]
            )
        padded = [name for name, old in zip(header, written, strict=True) if name != old]
        if padded:
            note(f"{path.name}: spaces around the column names {', '.join(map(repr, padded))} were removed")
        reader.fieldnames = header
        for row in reader:
            if None in row or None in row.values():
                raise ConfigError(
                    [
                        Problem(
                            str(path),
                            f"line {reader.line_num}",
                            "has more or fewer fields than the header",
                            "mend the row",
                        )
                    ]
                )
            rows.append(dict(row))
    except csv.Error as error:
        raise ConfigError([Problem(str(path), f"line {reader.line_num}", f"not readable as CSV: {error}")]) from None
    return rows


def _read_parquet(path: Path, note: Note) -> list[dict[str, Any]]:
    try:
        import pyarrow.parquet as parquet
        from pyarrow.lib import ArrowException
    except ImportError:
        raise MissingPackage(f"{path}: reading Parquet needs pyarrow", "run scripts/setup without --light") from None
    try:
        rows: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    except (ArrowException, OSError) as error:
        raise ConfigError(f"{path}: not readable as Parquet: {error}") from None
    return rows


def _hub_rows(name: str, config: str | None, split: str) -> list[dict[str, Any]]:
    try:
        import datasets
    except ImportError:
        raise MissingPackage("hub data sets need the datasets package", "run scripts/setup without --light") from None
    try:
        rows: Iterable[Mapping[str, Any]] = datasets.load_dataset(name, config, split=split)
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:  # RuntimeError: its script
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ConfigError(
            f"hub data set {name!r} ({split}) cannot be loaded: {first}",
            "without a network, save it as JSONL once and name the file in [data] train",
        ) from None
    return [dict(row) for row in rows]


def _reasoning_gym_rows(task: Task) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    try:
        import reasoning_gym
    except ImportError:
        raise MissingPackage(
            "reasoning-gym tasks need the reasoning-gym package", "run scripts/setup without --light"
        ) from None
    data = task.data
    name = str(data.reasoning_gym)
    try:
        train_size = data.train_size or 2000
        # Another seed draws other questions; those that occur in both are dropped from training by content.
        train = reasoning_gym.create_dataset(name, size=train_size, seed=data.seed, **data.options)
        heldout = reasoning_gym.create_dataset(name, size=2 * data.heldout_size, seed=data.seed + 1, **data.options)
    except (ValueError, TypeError, AssertionError) as error:
        from reasoning_gym.factory import DATASETS

        raise ConfigError(f"{task.path}: reasoning-gym task {name!r}: {error}", did_you_mean(name, DATASETS)) from None
    return [dict(row) for row in train], [dict(row) for row in heldout]
