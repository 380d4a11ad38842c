"""`spark-rl export RUN`: the trained model as safetensors that other programs load."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from spark_rl.cli.options import add_json_option, add_run_argument
from spark_rl.cli.output import emit_json, say
from spark_rl.units import format_count


def add_parsers(commands: Any) -> None:
    parser = commands.add_parser("export", help="the trained model as safetensors, loaded again and compared")
    add_run_argument(parser)
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder to write (default: RUN/export)")
    parser.add_argument("--adapter", action="store_true", help="the adapter alone instead of merged weights")
    add_json_option(parser)
    parser.set_defaults(run=run_export)


def run_export(args: argparse.Namespace) -> int:
    from spark_rl.errors import MissingPackage
    from spark_rl.gate.subject import read_recipe, read_subject
    from spark_rl.rundir import open_run, read_json, runs_root

    run = open_run(args.run_name, runs_root(args.runs))
    recipe = read_recipe(run)
    # A finished run keeps its held-out prompts, so that it is exported when its task has gone.
    prompts = (read_json(run.eval) or {}).get("prompts")
    if not prompts:
        prompts = [example.text for example in read_subject(run).examples.heldout]
    try:
        from spark_rl.export import export
    except ImportError as error:
        raise MissingPackage(f"export needs {error.name}", "run scripts/setup without --light") from None
    out = args.out or run.path / "export"
    done = export(run, recipe, out, prompts[:8], as_adapter=args.adapter)
    if args.json:
        emit_json(done.to_json())
    else:
        say(f"{done.kind} model with {format_count(done.num_parameters)} parameters in {done.path}")
        say(f"loaded again: mean log-probability differs by {done.max_mean_difference:.2g} from the trained model")
        if done.note:
            say(done.note)
    return 0
