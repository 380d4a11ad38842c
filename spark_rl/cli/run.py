"""`spark-rl run | train | probe | resume`: make a run ready, start its supervisor, follow it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from spark_rl.cli.options import add_gpu_option, add_json_option, add_run_argument, add_runs_option, add_sets
from spark_rl.cli.output import emit, emit_json, say
from spark_rl.errors import ConfigError, ExitCode, RunDirError

if TYPE_CHECKING:
    from spark_rl.host import Machine
    from spark_rl.rundir import RunDir


def add_parsers(commands: Any) -> None:
    run = commands.add_parser("run", help="probe -> inspection gate -> train -> diagnose")
    add_new_run_options(run)
    run.add_argument("--server", metavar="URL", help="completions from this `vllm serve` (checked before the run)")
    run.set_defaults(run=run_run)
    train = commands.add_parser("train", help="train a run that has been signed (--run RUN, or a new one)")
    add_new_run_options(train)
    train.set_defaults(run=run_train)
    probe = commands.add_parser("probe", help="can the model succeed sometimes?")
    add_new_run_options(probe)
    probe.set_defaults(run=run_probe)
    resume = commands.add_parser("resume", help="go on from the last checkpoint of a run")
    add_run_argument(resume)
    add_gpu_option(resume)
    add_json_option(resume)
    resume.set_defaults(run=run_resume)


def add_new_run_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--run", dest="run_name", metavar="RUN", help="an existing run instead of a new one")
    parser.add_argument("--profile", metavar="P", help="shipped profile (spark-rl profiles ls) or a file")
    parser.add_argument("--task", metavar="T", help="shipped task or a task file")
    add_sets(parser)
    add_gpu_option(parser)
    add_runs_option(parser)
    add_json_option(parser)


def run_run(args: argparse.Namespace) -> int:
    from spark_rl.gate import is_signed

    run = new_or_existing(args)
    if is_signed(run):
        return start_and_follow(run, ("train",), args.json)
    code = start_and_follow(run, ("probe", "inspect"), as_json=False)
    if code != ExitCode.OK:
        return code
    return start_and_follow(run, ("train",), args.json, from_start=False)


def run_train(args: argparse.Namespace) -> int:
    run = new_or_existing(args)
    stages = ("train",) if run.probe.exists() else ("probe", "train")
    return start_and_follow(run, stages, args.json)


def run_probe(args: argparse.Namespace) -> int:
    from spark_rl.rundir import read_json

    run = new_or_existing(args)
    code = start_and_follow(run, ("probe",), as_json=False)
    result = read_json(run.probe)
    if result and args.json:
        emit_json({"run": str(run.path), **result, **gpu_json(run), **variants_json(run)})
    elif result:
        emit(result["words"])
    return code


def run_resume(args: argparse.Namespace) -> int:
    from spark_rl.rundir import open_run, read_json, runs_root
    from spark_rl.runstate import read_run

    run = open_run(args.run_name, runs_root(args.runs))
    state = read_run(run)
    if state.status == "finished" and (read_json(run.eval) or {}).get("after"):
        say(f"{run.name} is finished; nothing to resume")
        return ExitCode.OK
    settle(run, args.gpu)
    return start_and_follow(run, ("train",), args.json, from_start=False)


def new_or_existing(args: argparse.Namespace) -> RunDir:
    """The run that --run names, or a new one from --profile and --task."""
    from spark_rl.rundir import open_run, runs_root

    root = runs_root(args.runs)
    if args.run_name:
        if args.profile or args.task or args.sets:
            raise ConfigError("--run names a run that has its recipe already", "leave out --profile, --task and --set")
        run = open_run(args.run_name, root)
        settle(run, args.gpu)
        return run
    if not args.profile or not args.task:
        missing = " and ".join(name for name in ("--profile", "--task") if not getattr(args, name[2:]))
        raise ConfigError(f"{missing} missing", "spark-rl profiles ls shows the profiles; or give --run RUN")
    from spark_rl.launch import prepare

    server = getattr(args, "server", None)
    sets = [*args.sets, "rollout.kind=vllm_server", f'rollout.server_base_url="{server}"'] if server else args.sets
    prepared = prepare(args.profile, args.task, sets, root, args.gpu)
    say(prepared.fit.summary())
    say(f"rollouts: {prepared.plan.route.name}: {prepared.plan.route.words}")
    for line in prepared.admission.lines():
        say(line)
    for note in prepared.plan.notes:
        say(f"note: {note.text}")
    say_notes(prepared.machine)
    say(f"run: {prepared.run.path}")
    return prepared.run


def settle(run: RunDir, gpu: str | None) -> None:
    """The GPU of a run that exists; where it is another than before, a person is told."""
    from spark_rl.launch import settle_gpu

    machine = settle_gpu(run, gpu)
    if machine is not None:
        say(f"{run.name} goes on with {machine.gpu_name or 'the CPU'}")
        say_notes(machine)


def say_notes(machine: Machine) -> None:
    for note in machine.notes:
        say(f"note: {note}")


def gpu_json(run: RunDir) -> dict[str, Any]:
    """Which GPU the run uses, for --json; null without one."""
    from spark_rl.rundir import read_json

    host = read_json(run.host) or {}
    return {name: host.get(name) for name in ("gpu_index", "gpu_uuid")}


def variants_json(run: RunDir) -> dict[str, Any]:
    """Which variants of GRPO the run uses and on what evidence, for --json; an empty list for plain GRPO."""
    from spark_rl.rundir import read_json

    return {"variants": (read_json(run.variant) or {}).get("variants", [])}


def start_and_follow(run: RunDir, stages: Sequence[str], as_json: bool, from_start: bool = True) -> ExitCode:
    """Start the supervisor, show what it writes, and answer with the outcome."""
    from spark_rl import supervisor
    from spark_rl.cli.follow import follow
    from spark_rl.headless import run_json
    from spark_rl.rundir import read_json
    from spark_rl.runstate import max_steps_of, read_run

    recipe = read_json(run.recipe)
    if recipe is None:
        raise RunDirError(f"{run.path}: has no recipe.json")
    from spark_rl.rundir import read_jsonl

    offset_start = from_start or not read_jsonl(run.events).rows
    code = follow(run, max_steps_of(recipe), supervisor.start(run, stages), offset_start)
    if as_json:
        emit_json({**run_json(read_run(run)), **gpu_json(run), **variants_json(run), "exit_code": int(code)})
    elif code == ExitCode.OK and "train" in stages:
        for line in outcome_lines(run):
            emit(line)
    return code


def outcome_lines(run: RunDir) -> list[str]:
    """What a finished run tells a person last."""
    from spark_rl.headless import success_text
    from spark_rl.rundir import read_json

    saved = read_json(run.eval) or {}
    lines = []
    if saved.get("before") and saved.get("after"):
        before, after = saved["before"]["correct"], saved["after"]["correct"]
        lines.append(f"held-out success  before {success_text(sum(before), len(before))}")
        lines.append(f"                  after  {success_text(sum(after), len(after))}")
        lines.append(f"paired exact McNemar test: p = {saved['result']['p_value']:.2g}")
    if run.report.exists():
        lines.append(f"report: {run.report}")
    return lines
