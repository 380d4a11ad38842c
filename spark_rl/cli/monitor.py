"""`spark-rl monitor`: this machine's sensors and what they mean, without a run. Text, or one JSON row a pass."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from spark_rl.cli.output import emit, emit_json, say
from spark_rl.cli.terminal import is_dumb
from spark_rl.errors import ConfigError, ExitCode

if TYPE_CHECKING:
    from spark_rl.telemetry.reading import Reading

MIN_INTERVAL_SECONDS = 0.5
"""Drivers refresh their figures no faster, and some slow the GPU when asked more often."""


def add_parsers(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    monitor = commands.add_parser("monitor", help="the machine's sensors live, without a run")
    monitor.add_argument("--once", action="store_true", help="one pass, then end")
    monitor.add_argument("--json", action="store_true", help="one JSON object a line: readings as in telemetry.jsonl, and findings")  # fmt: skip
    monitor.add_argument("--interval", type=float, default=2.0, metavar="SECONDS", help="default 2; at least 0.5")
    monitor.add_argument("--replay", type=Path, metavar="FILE", help="play recorded readings in place of this machine")
    monitor.add_argument("--speed", type=float, default=1.0, metavar="N", help="of a replay: 10 = ten times as fast, 0 = no waiting")  # fmt: skip
    monitor.set_defaults(run=run_monitor)


def run_monitor(args: argparse.Namespace) -> int:
    from spark_rl.telemetry.show import reading_lines
    from spark_rl.telemetry.watcher import Watcher

    if args.interval < MIN_INTERVAL_SECONDS:
        raise ConfigError(
            f"--interval {args.interval:g}: at least {MIN_INTERVAL_SECONDS} s",
            "drivers refresh their figures no faster than that; the guard of a run looks at memory more often by itself",
        )
    if args.speed < 0:
        raise ConfigError(f"--speed {args.speed:g}: must not be negative")
    watcher = Watcher(spacing_seconds=0.0 if args.replay else min(1.8, args.interval * 0.9))
    in_place = not args.json and not args.once and sys.stdout.isatty() and not is_dumb()
    num_lines = 0
    for reading in _readings(args):
        notices = watcher.observe(reading)
        if args.json:
            emit_json(reading.to_row())
            for notice in notices:
                emit_json({"v": 1, "t": round(notice.t, 3), **notice.to_row()})
            continue
        lines = reading_lines(reading, watcher.standing)
        if in_place and num_lines:
            emit(f"\x1b[{num_lines}A\x1b[J" + "\n".join(lines))
        else:
            emit("\n".join(lines) if in_place or args.once else "\n".join([*lines, ""]))
        num_lines = len(lines)
    return ExitCode.OK


def _readings(args: argparse.Namespace) -> Iterator[Reading]:
    if args.replay is not None:
        from spark_rl.telemetry.replay import play, read_recording

        recording = read_recording(args.replay)
        if recording.num_skipped:
            say(f"{args.replay}: {recording.num_skipped} lines could not be read and were skipped")
        for reading in play(recording, args.speed or float("inf")):
            yield reading
            if args.once:
                return
        return
    from spark_rl.telemetry import Sampler

    sampler = Sampler(disk=Path.cwd())
    sampler.read()
    time.sleep(1.0)  # rates need two passes
    while True:
        yield sampler.read()
        if args.once:
            return
        time.sleep(args.interval)
