"""Files that hold a GRPO run's numbers -> `Log`: JSON Lines, trainer_state.json, CSV, and captured terminal output.

In: a path, of a file or of a folder that a trainer wrote. Out: a `Log`, or ConfigError saying what can be read.
What is unreadable inside a file is skipped and counted.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from spark_rl.errors import ConfigError
from spark_rl.metrics.log import Log, log_from_rows

READABLE = "readable: metrics.jsonl, trainer_state.json, CSV with a Step column, a saved terminal output"

MAX_LINE_CHARS = 100_000
"""A printed metric row has about 1,500 characters; longer lines of terminal output are not rows."""

_PAIR = re.compile(
    r"""['"]([^'"]{1,200})['"]\s*:\s*['"]?(-?(?:\d[\d_.]*(?:[eE][-+]?\d+)?|nan|inf|NaN|Infinity))['"]?"""
)


def read_log(path: Path) -> Log:
    """The log in a file, or the newest one in a folder. Raises ConfigError when there is none to read."""
    if path.is_dir():
        path = _log_in_folder(path)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file", READABLE) from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}", READABLE) from None
    return log_from_text(decode(data), str(path))


def log_from_text(text: str, source: str) -> Log:
    """The log in a text, by what the text looks like. Raises ConfigError when it looks like none of them."""
    start = text.lstrip()[:1]
    if not start:
        return log_from_rows([], source)
    if start in ("{", "["):
        whole = _whole_json(text)
        if whole is not None:
            return _from_json(whole, source)
        rows, num_skipped = json_lines(text)
        if rows:
            return log_from_rows(rows, source, num_skipped)
    table = _table(text)
    if table is not None:
        return log_from_rows(table, source)
    printed = list(_printed_rows(text))
    if printed:
        return log_from_rows(printed, source)
    raise ConfigError(f"{source}: no metric rows found", READABLE)


def decode(data: bytes) -> str:
    """Text of a log file: UTF-8, or UTF-16 as spreadsheets save it; NUL bytes of a torn file removed."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", errors="replace")
    return data.decode("utf-8-sig", errors="replace").replace("\0", "")


def _log_in_folder(folder: Path) -> Path:
    direct = [folder / name for name in ("metrics.jsonl", "trainer_state.json")]
    checkpoints = sorted(
        folder.glob("checkpoint-*/trainer_state.json"),
        key=lambda path: int("".join(filter(str.isdigit, path.parent.name)) or 0),
        reverse=True,
    )
    for path in (*direct, *checkpoints):
        if path.is_file():
            return path
    raise ConfigError(f"{folder}: holds no metrics.jsonl and no trainer_state.json", READABLE)


def _whole_json(text: str) -> Any:
    """The text as one JSON value; None when it is not one."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _from_json(value: Any, source: str) -> Log:
    if isinstance(value, Mapping) and isinstance(value.get("log_history"), list):
        known = ("logging_steps", "max_steps", "global_step", "num_train_epochs", "train_batch_size", "epoch")
        trainer = {key: value[key] for key in known if isinstance(value.get(key), int | float)}
        rows = [row for row in value["log_history"] if isinstance(row, Mapping)]
        return log_from_rows(rows, source, len(value["log_history"]) - len(rows), {"trainer_state": True, **trainer})
    if isinstance(value, Mapping) and _is_metric_row(value):
        return log_from_rows([value], source)
    if isinstance(value, Mapping):  # a quoted excerpt: {"log_rows": [...]} or the like
        lists = [item for item in value.values() if isinstance(item, list) and item and _all_rows(item)]
        if len(lists) == 1:
            return log_from_rows(lists[0], source)
        singles = [item for item in value.values() if isinstance(item, Mapping) and _is_metric_row(item)]
        if singles:
            return log_from_rows(singles, source)
    if isinstance(value, list) and _all_rows(value):
        return log_from_rows(value, source)
    raise ConfigError(f"{source}: JSON without metric rows", READABLE)


def json_lines(text: str) -> tuple[list[Mapping[str, Any]], int]:
    """Objects of JSON Lines, and how many lines were none."""
    rows: list[Mapping[str, Any]] = []
    num_skipped = 0
    for line in text.splitlines():
        if not line.strip():
            continue
        row = _whole_json(line)
        if isinstance(row, Mapping):
            rows.append(row)
        else:
            num_skipped += 1
    return rows, num_skipped


def _table(text: str) -> list[Mapping[str, Any]] | None:
    """Rows of a CSV or TSV whose header names a step or a known metric; None when it has no such header."""
    lines = text.lstrip("\r\n").splitlines()
    if len(lines) < 1:
        return None
    separator = max(",;\t", key=lines[0].count)
    if lines[0].count(separator) == 0:
        return None
    header = [name.strip() for name in next(csv.reader([lines[0]], delimiter=separator))]
    lowered = {name.lower().rsplit(" - ", 1)[-1].removeprefix("train/") for name in header}
    if not lowered & {"step", "global_step", "reward", "loss", "training loss", "kl"}:
        return None
    reader = csv.DictReader(io.StringIO("\n".join(lines[1:])), fieldnames=header, delimiter=separator)
    decimal_comma = separator == ";"
    return [
        {
            name: value.replace(",", ".") if decimal_comma else value
            for name, value in row.items()
            if isinstance(name, str) and isinstance(value, str)
        }
        for row in reader
    ]


def _printed_rows(text: str) -> Iterator[dict[str, str]]:
    """Rows as a trainer prints them: {'loss': 0.0, 'reward': 1.25, ...}, one a line, other output between them.

    Read by pattern, not evaluated: the text may hold anything.
    """
    for line in text.splitlines():
        if "{" not in line or len(line) > MAX_LINE_CHARS:
            continue
        pairs = dict(_PAIR.findall(line[line.index("{") :]))
        if {"loss", "reward"} & pairs.keys():
            yield pairs


def _is_metric_row(value: Mapping[str, Any]) -> bool:
    return bool({"loss", "reward", "step", "kl", "eval_loss"} & value.keys())


def _all_rows(items: Sequence[Any]) -> bool:
    return all(isinstance(item, Mapping) for item in items) and any(_is_metric_row(item) for item in items)
