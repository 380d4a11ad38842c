"""`spark-rl launch-plan`: the commands for a vLLM server, and for more than one GPU or machine."""

from __future__ import annotations

import argparse
from typing import Any

from spark_rl.cli.options import add_json_option, add_recipe_options
from spark_rl.cli.output import emit, emit_json
from spark_rl.errors import ExitCode


def add_parsers(commands: Any) -> None:
    parser = commands.add_parser("launch-plan", help="commands for server mode and for more than one machine")
    add_recipe_options(parser)
    parser.add_argument("--machines", type=int, default=1, metavar="N", help="trainer machines (default 1)")
    parser.add_argument("--gpus", type=int, default=1, metavar="N", help="trainer GPUs in each (default 1)")
    parser.add_argument(
        "--hosts", default="", metavar="A,B", help="names or addresses, trainers first, then the server"
    )
    parser.add_argument("--parallel", choices=("ddp", "fsdp"), default="ddp", help="copies (ddp) or shards (fsdp)")
    parser.add_argument("--server", action="store_true", help="completions from `vllm serve` on a machine of its own")
    add_json_option(parser)
    parser.set_defaults(run=run_launch_plan)


def run_launch_plan(args: argparse.Namespace) -> int:
    from spark_rl.host import machine_class
    from spark_rl.recipe import resolve
    from spark_rl.rollout.commands import launch_commands
    from spark_rl.task import load_task

    recipe = resolve(args.profile, load_task(args.task).overrides, args.sets)
    machine = machine_class(recipe.profile.machine)
    found = launch_commands(
        recipe,
        args.profile,
        args.task,
        machines=args.machines,
        gpus=args.gpus,
        parallel=args.parallel,
        server=args.server,
        unified=machine.is_unified,
        hosts=tuple(host for host in args.hosts.split(",") if host),
    )
    for commands in found:
        if args.json:
            emit_json({"machine": commands.machine, "commands": list(commands.lines)})
        else:
            emit(f"# {commands.machine}")
            for line in commands.lines:
                emit(line)
    return ExitCode.OK
