"""The run directory: the only bus between a run and whoever looks at it. Every file has one writer.

    recipe.json fit.json host.json task.json     written before the start by the command
    variant.json                                 the same, where a variant of GRPO was asked for: which run admitted it
    processes.json events.jsonl telemetry.jsonl  supervisor
    worker.jsonl metrics.jsonl samples/ checkpoints/ probe.json eval.json effective.json diagnosis.json   worker
    inspection.json inspect/                     the gate
    control                                      viewers: stop, checkpoint, pause, resume
    guard-control                                the supervisor's guard: shed, stop, pause, resume
    stdout.log stderr.log                        the worker's own output

JSONL rows carry `v` (schema) and `t` (UTC seconds). Writes that must survive go to a temporary file, are flushed to
disk, and renamed.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from spark_rl.errors import RunDirError

SCHEMA = 1

HALF_CHARACTERS = "backslashreplace"
"""Half a surrogate pair (an odd tokenizer's text, a file name that is not UTF-8) becomes \\udcff, which is JSON's own escape."""


Clock = Callable[[], float]


@dataclass(frozen=True)
class RunDir:
    """Names of the files of one run."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def recipe(self) -> Path:
        return self.path / "recipe.json"

    @property
    def task(self) -> Path:
        """Where the task came from: {"path", "digest"}."""
        return self.path / "task.json"

    @property
    def variant(self) -> Path:
        """On what evidence a variant of GRPO was admitted; not there for plain GRPO."""
        return self.path / "variant.json"

    @property
    def fit(self) -> Path:
        return self.path / "fit.json"

    @property
    def host(self) -> Path:
        return self.path / "host.json"

    @property
    def effective(self) -> Path:
        return self.path / "effective.json"

    @property
    def probe(self) -> Path:
        return self.path / "probe.json"

    @property
    def inspection(self) -> Path:
        return self.path / "inspection.json"

    @property
    def inspect_samples(self) -> Path:
        return self.path / "inspect" / "samples.jsonl"

    @property
    def eval(self) -> Path:
        return self.path / "eval.json"

    @property
    def diagnosis(self) -> Path:
        return self.path / "diagnosis.json"

    @property
    def processes(self) -> Path:
        return self.path / "processes.json"

    @property
    def events(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def worker_events(self) -> Path:
        return self.path / "worker.jsonl"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def telemetry(self) -> Path:
        return self.path / "telemetry.jsonl"

    @property
    def samples(self) -> Path:
        return self.path / "samples"

    @property
    def control(self) -> Path:
        return self.path / "control"

    @property
    def guard_control(self) -> Path:
        """Like `control`, written by the supervisor's guard."""
        return self.path / "guard-control"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def model(self) -> Path:
        """The trained weights: full weights or the adapter."""
        return self.path / "model"

    @property
    def stdout_log(self) -> Path:
        return self.path / "stdout.log"

    @property
    def stderr_log(self) -> Path:
        return self.path / "stderr.log"

    @property
    def report(self) -> Path:
        return self.path / "report.html"


def runs_root(choice: str | None = None) -> Path:
    """Where runs live: --runs DIR, else SPARK_RL_RUNS, else ./runs."""
    return Path(choice or os.environ.get("SPARK_RL_RUNS") or "runs")


def create_run(root: Path, name: str, clock: Clock = time.time) -> RunDir:
    """A new empty run directory `<UTC time>-<name>`. Raises RunDirError when it cannot be made."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(clock()))
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-") or "run"
    for attempt in range(1000):
        path = root / (f"{stamp}-{safe}" + (f"-{attempt + 1}" if attempt else ""))
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise RunDirError(
                f"{path}: cannot make a run directory: {error.strerror}", "choose another with --runs"
            ) from None
        (path / "inspect").mkdir()
        (path / "samples").mkdir()
        (path / "checkpoints").mkdir()
        return RunDir(path)
    raise RunDirError(f"{root}: a thousand runs named {stamp}-{safe} exist already")


def open_run(choice: str, root: Path) -> RunDir:
    """A run by path, by name, or "last". Raises RunDirError when there is none."""
    if choice == "last":
        runs = list_runs(root)
        if not runs:
            raise RunDirError(f"{root}: no runs here", "start one: spark-rl quickstart, or choose another with --runs")
        return runs[-1]
    for path in (Path(choice), root / choice):
        if (path / "recipe.json").is_file():
            return RunDir(path)
    raise RunDirError(f"{choice}: not a run directory (no recipe.json)", f"spark-rl ls shows the runs in {root}")


def list_runs(root: Path) -> list[RunDir]:
    """Runs under `root`, oldest first (names begin with the time)."""
    if not root.is_dir():
        return []
    return [RunDir(path) for path in sorted(root.iterdir()) if (path / "recipe.json").is_file()]


def write_text_atomic(path: Path, text: str) -> None:
    """Either the old content or the whole new one is on disk, whatever happens in between."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8", errors=HALF_CHARACTERS) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        _remove(temporary)
        raise RunDirError(f"{path}: cannot be written: {error.strerror}", "is the disk full or read-only?") from None


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """A JSON file of the run, with its schema number; written atomically."""
    cleaned, nonfinite = finite({"v": SCHEMA, **value})
    if nonfinite:
        cleaned["nonfinite"] = nonfinite
    write_text_atomic(path, json.dumps(cleaned, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON file of the run; None when it is not there. Raises RunDirError when it cannot be used."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise RunDirError(f"{path}: cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise RunDirError(f"{path}: expected an object")
    check_schema(path, value)
    return value


def check_schema(path: Path, row: Mapping[str, Any]) -> None:
    """Raises RunDirError when a newer version of spark_rl wrote this."""
    version = row.get("v", SCHEMA)
    if isinstance(version, int) and version > SCHEMA:
        raise RunDirError(
            f"{path}: written by a newer spark_rl (schema {version}, this one reads {SCHEMA})", "upgrade spark_rl"
        )


def finite(value: Any, path: str = "") -> tuple[Any, list[str]]:
    """The value with NaN and infinity replaced by None, and the dotted names of those that were."""
    if isinstance(value, float) and not math.isfinite(value):
        return None, [path]
    if isinstance(value, Mapping):
        cleaned, names = {}, []
        for key, item in value.items():
            cleaned[key], found = finite(item, f"{path}.{key}" if path else str(key))
            names += found
        return cleaned, names
    if isinstance(value, list | tuple):
        items, names = [], []
        for index, item in enumerate(value):
            one, found = finite(item, f"{path}.{index}")
            items.append(one)
            names += found
        return items, names
    return value, []


def jsonl_line(row: Mapping[str, Any], now: float) -> bytes:
    """A row as one line, with `v`, `t` and, where needed, `nonfinite`."""
    head: dict[str, Any] = {"v": SCHEMA, "t": round(now, 3)}
    try:
        line = to_json({**head, **row}, inf_nan_mode="null")  # a quarter of json's time: a step has hundreds of rows
        if b"null" not in line:  # so nothing in it was NaN or infinite
            return line + b"\n"
        cleaned, nonfinite = finite(row)
        return (to_json({**head, "nonfinite": nonfinite, **cleaned}) if nonfinite else line) + b"\n"
    except PydanticSerializationError:  # half a character somewhere
        cleaned, nonfinite = finite(row)
        whole = {**head, "nonfinite": nonfinite, **cleaned} if nonfinite else {**head, **row}
        return json.dumps(whole, ensure_ascii=False).encode("utf-8", HALF_CHARACTERS) + b"\n"


def write_jsonl(path: Path, rows: Iterable[Mapping[str, Any]], clock: Clock = time.time) -> None:
    """A whole file of rows in one go, replacing an earlier one. Renamed into place but not forced to disk: completions
    of a step are written at every step, and a step lost to a power cut is run again from its checkpoint."""
    now = clock()
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(b"".join([jsonl_line(row, now) for row in rows]))
        temporary.replace(path)
    except OSError as error:
        _remove(temporary)
        raise RunDirError(f"{path}: cannot be written: {error.strerror}", "is the disk full or read-only?") from None


def _remove(temporary: Path) -> None:
    """Remove what a failed write has left; on a read-only disk there is nothing, and asking fails."""
    with contextlib.suppress(OSError):
        temporary.unlink()


class JsonlWriter:
    """Appends rows to one file, each whole or torn at the end, never interleaved. The file's only writer."""

    def __init__(self, path: Path, clock: Clock = time.time) -> None:
        self._path = path
        self._clock = clock
        path.parent.mkdir(parents=True, exist_ok=True)
        _cut_torn_tail(path)
        # O_APPEND and one write a row: a reader never sees two rows mixed, a kill leaves at most one torn line.
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def append(self, row: Mapping[str, Any]) -> None:
        """Raises RunDirError when the disk is full."""
        data = jsonl_line(row, self._clock())
        try:
            written = os.write(self._descriptor, data)
        except OSError as error:
            raise RunDirError(f"{self._path}: cannot be written: {error.strerror}", "is the disk full?") from None
        if written < len(data):
            raise RunDirError(f"{self._path}: only part of a row could be written", "is the disk full?")

    def close(self) -> None:
        os.close(self._descriptor)


@dataclass(frozen=True)
class Rows:
    """What could be read of a JSONL file."""

    rows: tuple[dict[str, Any], ...]
    num_skipped: int
    """Torn, NUL-filled or otherwise unreadable lines."""
    offset: int
    """Bytes read: pass it to the next call to get only what is new."""


def read_jsonl(path: Path, offset: int = 0) -> Rows:
    """Complete rows from `offset` on. A torn last line is left for the next call; a broken one is skipped and counted."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read()
    except FileNotFoundError:
        return Rows((), 0, offset)
    except OSError as error:
        raise RunDirError(f"{path}: cannot be read: {error.strerror}") from None
    complete, newline, _rest = data.rpartition(b"\n")
    rows: list[dict[str, Any]] = []
    num_skipped = 0
    for line in complete.split(b"\n") if newline else ():
        if not line.strip():
            continue
        try:
            row = json.loads(line.decode("utf-8"))
        except (ValueError, RecursionError):
            num_skipped += 1
            continue
        if not isinstance(row, dict):
            num_skipped += 1
            continue
        check_schema(path, row)
        rows.append(row)
    return Rows(tuple(rows), num_skipped, offset + len(complete) + len(newline))


def has_torn_tail(path: Path) -> bool:
    """Whether the file ends in the middle of a row."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            if file.tell() == 0:
                return False
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except FileNotFoundError:
        return False


def _cut_torn_tail(path: Path) -> None:
    """Before appending again: end a torn last line, so that the next row starts on its own line (it is then skipped)."""
    if has_torn_tail(path):
        with path.open("ab") as file:
            file.write(b"\n")
