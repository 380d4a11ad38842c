"""`spark-rl ls | watch | stop`: look at runs and ask one to stop."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from spark_rl.cli.options import add_json_option, add_run_argument, add_runs_option
from spark_rl.cli.output import emit, emit_json, say


def add_parsers(commands: Any) -> None:
    listing = commands.add_parser("ls", help="the runs, with status and last step")
    add_runs_option(listing)
    add_json_option(listing)
    listing.set_defaults(run=run_ls)
    watch = commands.add_parser("watch", help="follow a run; leaving does not stop it")
    add_run_argument(watch)
    watch.add_argument("--once", action="store_true", help="show the state now and end")
    add_json_option(watch)
    watch.set_defaults(run=run_watch)
    stop = commands.add_parser("stop", help="ask a run to save a checkpoint and stop")
    add_run_argument(stop)
    stop.set_defaults(run=run_stop)


def run_ls(args: argparse.Namespace) -> int:
    from spark_rl.errors import RunDirError
    from spark_rl.headless import run_json, run_line
    from spark_rl.rundir import list_runs, runs_root
    from spark_rl.runstate import read_run

    root = runs_root(args.runs)
    runs = list_runs(root)
    if not runs and not args.json:
        say(f"no runs in {root}; start one: spark-rl quickstart")
    for run in runs:
        try:
            state = read_run(run)
        except RunDirError as error:  # one broken run does not hide the others
            if args.json:
                emit_json({"run": str(run.path), "status": "unreadable", "cause": error.message})
            else:
                emit(f"{run.name:<44} unreadable: {error.message}")
            continue
        if args.json:
            emit_json(run_json(state))
        else:
            emit(run_line(state))
    return 0


def run_watch(args: argparse.Namespace) -> int:
    from spark_rl.cli.follow import POLL_SECONDS, LinePrinter
    from spark_rl.headless import Follower, run_json, state_text
    from spark_rl.rundir import open_run, runs_root
    from spark_rl.runstate import read_run

    run = open_run(args.run_name, runs_root(args.runs))
    state = read_run(run)
    if args.json and (args.once or state.status not in ("running", "orphaned")):
        emit_json(run_json(state))
        return 0
    if args.once or state.status not in ("running", "orphaned"):
        emit(state_text(state))
        return 0
    follower, printer = Follower(run, state.max_steps), LinePrinter(sys.stderr.isatty())
    while True:
        lines = list(follower.new_lines())
        if args.json and lines:
            emit_json(run_json(read_run(run)))
        elif not args.json:
            for line in lines:
                printer.show(line)
        if read_run(run).status not in ("running", "orphaned"):
            break
        time.sleep(max(POLL_SECONDS, 0.5))
    printer.finish()
    final = read_run(run)
    if args.json:
        emit_json(run_json(final))
    else:
        emit(state_text(final))
    return 0


def run_stop(args: argparse.Namespace) -> int:
    from spark_rl import control
    from spark_rl.rundir import open_run, runs_root
    from spark_rl.runstate import read_run

    run = open_run(args.run_name, runs_root(args.runs))
    status = read_run(run).status
    if status not in ("running", "orphaned"):
        say(f"{run.name} is not running (it is {status})")
        return 0
    control.send(run, "stop")
    say(f"asked {run.name} to save a checkpoint and stop; spark-rl watch {run.name} shows when it has")
    return 0
