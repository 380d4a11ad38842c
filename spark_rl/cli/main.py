"""Entry point: builds the parser from the command modules, runs one command, maps errors to exit codes.

Each command group is a module of this package with `add_parsers(commands)`; every parser it adds sets
`run=<function(args) -> int>`. A module imports what its command needs inside `run`, so that `--help` stays light.
"""

from __future__ import annotations

import argparse
import importlib
import signal
import traceback
from collections.abc import Sequence

from spark_rl import __version__
from spark_rl.cli.output import drop_output, fail, lost, ready_streams, say
from spark_rl.errors import ExitCode, SparkError

COMMAND_MODULES = (
    "quickstart",
    "doctor",
    "profiles",
    "models",
    "fit",
    "run",
    "inspect",
    "rewards",
    "watch",
    "diagnose",
    "report",
    "export",
    "monitor",
    "launch_plan",
)
"""In the order of `--help`: the order in which a newcomer needs them."""

EXIT_CODES = """exit codes:
  0 ok   1 internal error   2 usage, config or task   3 does not fit   4 refused (probe, gate, variant, VLM)
  5 missing package   6 run directory or disk   7 training failed   8 stopped by the guard   130 interrupted"""


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="spark-rl",
        description="Local RLVR on one GPU: fit -> probe -> inspect (a person signs) -> train -> diagnose.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"spark-rl {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name in COMMAND_MODULES:
        importlib.import_module(f"spark_rl.cli.{name}").add_parsers(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code (see `spark_rl.errors.ExitCode`)."""
    ready_streams()
    try:
        return _run(argv)
    except BrokenPipeError:  # the reader of a pipe has gone (`| head`): not an error of ours
        drop_output()
        return 128 + signal.SIGPIPE


def _run(argv: Sequence[str] | None) -> int:
    parser = build_parser()
    try:
        args = parser.parse_args(argv)
    except SystemExit as stop:  # argparse has printed its own sentence
        return ExitCode.USAGE if stop.code else ExitCode.OK
    if args.command is None:
        parser.print_help()
        return ExitCode.OK
    try:
        return int(args.run(args))
    except SparkError as error:
        fail(error.message, error.hint)
        return error.exit_code
    except KeyboardInterrupt:
        say("interrupted")
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        raise
    except OSError as error:
        told = lost(error)
        if told is None:
            return _internal(error)
        drop_output()
        fail(told.message, told.hint)
        return told.exit_code
    except Exception as error:  # noqa: BLE001  the one place where an unforeseen fault is told to a person
        return _internal(error)


def _internal(error: Exception) -> int:
    traceback.print_exc()
    fail(f"internal error: {error}", "this is a bug of spark_rl; please report the lines above")
    return ExitCode.INTERNAL
