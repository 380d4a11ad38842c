"""Recorded readings through the same code as live ones: a file of telemetry rows becomes a stream of `Reading`s.

In: a JSONL file as telemetry.jsonl has it; a row with the key "machine" may say what the machine was. Out: readings and
what could not be read. A torn or NUL-filled line is skipped and counted; a newer schema is refused with a sentence.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spark_rl.errors import ConfigError, Problem
from spark_rl.telemetry.reading import SCHEMA_VERSION, Reading, reading_from_row


@dataclass(frozen=True)
class Recording:
    """What a file holds."""

    readings: tuple[Reading, ...]
    machine: Mapping[str, Any] = field(default_factory=dict)
    """What the recording says about the machine itself: driver_version, product_name, packages, ..."""
    num_skipped: int = 0
    """Lines that were torn, NUL-filled or not readings."""

    @property
    def seconds(self) -> float:
        return self.readings[-1].monotonic - self.readings[0].monotonic if self.readings else 0.0


def read_recording(path: Path) -> Recording:
    """Every reading of a file, oldest first. Raises ConfigError when it cannot be opened, holds no reading, or is newer."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    readings: list[Reading] = []
    machine: dict[str, Any] = {}
    num_skipped = 0
    for line in lines:
        if not line.strip():
            continue
        try:
            row = json.loads(line.strip(b"\0").decode("utf-8"))
            if not isinstance(row, dict):
                raise ValueError("not an object")
            version = row.get("v", SCHEMA_VERSION)
            if isinstance(version, int) and version > SCHEMA_VERSION:
                raise ConfigError(
                    [
                        Problem(
                            str(path),
                            None,
                            f"written by a newer spark_rl (schema {version}, this one reads {SCHEMA_VERSION})",
                        )
                    ],
                    "upgrade spark_rl",
                )
            if "machine" in row and "t" not in row:
                machine.update(row["machine"])
                continue
            readings.append(reading_from_row(row))
        except (ValueError, TypeError, KeyError, AttributeError):
            num_skipped += 1
    if not readings:
        raise ConfigError(f"{path}: holds no readings", "it should look like telemetry.jsonl of a run")
    readings.sort(key=lambda reading: reading.monotonic)
    return Recording(tuple(readings), machine, num_skipped)


def play(
    recording: Recording,
    speed: float = 1.0,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Reading]:
    """The readings at the pace they were taken, times `speed`; infinite speed does not wait at all."""
    started = clock()
    first = recording.readings[0].monotonic
    for reading in recording.readings:
        if speed != float("inf"):
            wait = (reading.monotonic - first) / speed - (clock() - started)
            if wait > 0:
                sleep(wait)
        yield reading
