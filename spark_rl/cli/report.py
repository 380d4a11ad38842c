"""`spark-rl report RUN` writes the page of a run; `spark-rl eval RUN` prints its held-out success, before and after."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from spark_rl.cli.options import add_json_option, add_run_argument
from spark_rl.cli.output import emit, emit_json


def add_parsers(commands: Any) -> None:
    report = commands.add_parser("report", help="one self-contained HTML page about a run")
    add_run_argument(report)
    report.add_argument("--out", type=Path, metavar="FILE", help="where to write it (default: report.html in the run)")
    report.set_defaults(run=run_report)
    evaluation = commands.add_parser("eval", help="held-out success before and after, paired, from the saved results")
    add_run_argument(evaluation)
    add_json_option(evaluation)
    evaluation.set_defaults(run=run_eval)


def run_report(args: argparse.Namespace) -> int:
    from spark_rl.report import write_report
    from spark_rl.rundir import open_run, runs_root

    emit(str(write_report(open_run(args.run_name, runs_root(args.runs)), args.out)))
    return 0


def run_eval(args: argparse.Namespace) -> int:
    from spark_rl.errors import RunDirError
    from spark_rl.evaluate import evaluation_from_saved
    from spark_rl.rundir import open_run, read_json, runs_root

    run = open_run(args.run_name, runs_root(args.runs))
    saved = read_json(run.eval)
    if saved is None:
        raise RunDirError(f"{run.name}: no held-out results yet", "they are made by spark-rl run and train")
    evaluation = evaluation_from_saved(saved)
    if args.json:
        emit_json(evaluation.to_json())
    else:
        emit(evaluation.to_text())
    return 0
