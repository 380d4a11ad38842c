"""`spark-rl quickstart`: the whole path on the embedded model and task; no GPU, no download, no question asked."""

from __future__ import annotations

import argparse
import time
from typing import Any

from spark_rl.cli.options import add_gpu_option, add_json_option, add_runs_option
from spark_rl.cli.output import emit, emit_json, say
from spark_rl.errors import ExitCode

PROFILE, TASK = "cpu-tiny", "sort-digits"


def add_parsers(commands: Any) -> None:
    parser = commands.add_parser("quickstart", help="the whole path on an embedded model and task; a CPU is enough")
    parser.add_argument("--seed", type=int, default=3407, help="of training and sampling (default 3407)")
    add_gpu_option(parser)
    add_runs_option(parser)
    add_json_option(parser)
    parser.set_defaults(run=run_quickstart)


def run_quickstart(args: argparse.Namespace) -> int:
    started = time.monotonic()
    from spark_rl import supervisor
    from spark_rl.cli.follow import follow
    from spark_rl.cli.run import gpu_json, outcome_lines, say_notes
    from spark_rl.launch import prepare
    from spark_rl.rundir import read_json, read_jsonl, runs_root

    say("A language model of 0.9 million parameters sorts five digits; it is right about two times in five.")
    say("GRPO lets it answer each prompt eight times and strengthens the answers that scored above the group's mean.")
    prepared = prepare(PROFILE, TASK, [f"grpo.seed={args.seed}"], runs_root(args.runs), args.gpu)
    run, max_steps = prepared.run, prepared.recipe.grpo.max_steps
    say(prepared.fit.summary())
    say_notes(prepared.machine)
    say(f"run: {run.path}")
    stages = ("probe", "inspect", "oracle", "train")
    code = follow(run, max_steps, supervisor.start(run, stages), from_start=True)
    if code != ExitCode.OK:
        return code
    saved = read_json(run.eval) or {}
    if args.json:
        trained = [row for row in read_jsonl(run.worker_events).rows if row.get("event") == "trained"]
        emit_json(
            {
                "seed": args.seed,
                "steps": trained[-1]["step"],
                "before": _counts(saved["before"]),
                "after": _counts(saved["after"]),
                "train_seconds": trained[-1]["train_seconds"],
                "compute_seconds": round(time.monotonic() - started, 1),
                "run": str(run.path),
                **gpu_json(run),
            }
        )
        return ExitCode.OK
    for line in outcome_lines(run):
        emit(line)
    emit(f"next: spark-rl diagnose {run.path}")
    return ExitCode.OK


def _counts(part: dict[str, Any]) -> dict[str, int]:
    return {"successes": sum(part["correct"]), "n": len(part["correct"])}
