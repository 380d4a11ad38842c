"""`spark-rl diagnose RUN|FILE`: symptoms of a run, ours or a stranger's log."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_rl.cli.options import add_json_option, add_runs_option
from spark_rl.cli.output import emit, emit_json

if TYPE_CHECKING:
    from spark_rl.diagnose import Diagnosis


def add_parsers(commands: Any) -> None:
    parser = commands.add_parser("diagnose", help="what a run's numbers show, with evidence; reads strangers' logs too")
    parser.add_argument(
        "target",
        metavar="RUN|FILE",
        nargs="?",
        default="last",
        help="a run (default: last), or metrics.jsonl, trainer_state.json, CSV, saved terminal output",
    )
    add_runs_option(parser)
    add_json_option(parser)
    parser.set_defaults(run=run_diagnose)


def run_diagnose(args: argparse.Namespace) -> int:
    diagnosis = diagnose_target(args.target, args.runs)
    if args.json:
        emit_json(diagnosis.to_json())
    else:
        emit(diagnosis.to_text())
    return 0


def diagnose_target(target: str, runs: str | None) -> Diagnosis:
    """A run by name or path, else a log file or a folder with one. Raises ConfigError or RunDirError."""
    from spark_rl.diagnose import diagnose, diagnose_run
    from spark_rl.errors import ConfigError
    from spark_rl.metrics import read_log
    from spark_rl.rundir import open_run, runs_root
    from spark_rl.runstate import read_run

    path, root = Path(target), runs_root(runs)
    is_run = target == "last" or any((folder / "recipe.json").is_file() for folder in (path, root / target))
    if is_run:
        return diagnose_run(read_run(open_run(target, root)))
    if path.exists():
        return diagnose(read_log(path))
    raise ConfigError(
        f"{target}: no such run and no such file", f"spark-rl ls shows the runs in {root}; or give the path of a log"
    )
