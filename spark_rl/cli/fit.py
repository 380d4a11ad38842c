"""`spark-rl fit`: does it fit, phase by phase, and how long will it take. Light: no torch, no network."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from spark_rl.cli.options import add_gpu_option, add_json_option, add_sets
from spark_rl.cli.output import emit, emit_json, say
from spark_rl.errors import ExitCode

if TYPE_CHECKING:
    from spark_rl.host import Machine
    from spark_rl.recipe import Recipe

WIDTH_WITHOUT_A_TERMINAL = 80


def add_parsers(commands: Any) -> None:
    parser = commands.add_parser("fit", help="dry check: memory by phase, what to change, time a step")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--profile", metavar="P", help="shipped profile (spark-rl profiles ls) or a file")
    what.add_argument("--recipe", metavar="R", help="a recipe: TOML, or the recipe.json of a run")
    what.add_argument("--model", metavar="M", help="hub id, folder or config.json, with the base recipe")
    what.add_argument("--what-fits", action="store_true", help="largest model class per method on the machine")
    parser.add_argument("--task", metavar="T", help="a task whose overrides apply")
    parser.add_argument("--machine", metavar="C", help="machine class, e.g. dgx-spark, 24, h100 (default: this host)")
    parser.add_argument("--gpu-gib", type=float, metavar="N", help="a card with N GiB")
    add_gpu_option(parser)
    add_sets(parser)
    parser.add_argument("--sweep", action="append", default=[], metavar="S.K=A,B", help="a grid of verdicts")
    parser.add_argument("--explain", action="store_true", help="every line with its formula")
    add_json_option(parser)
    parser.set_defaults(run=run_fit)


def run_fit(args: argparse.Namespace) -> int:
    machine = _machine(args)
    if args.what_fits or args.sweep:  # a report has them among its own notes
        for note in machine.notes:
            say(f"note: {note}")
    if args.what_fits:
        return _what_fits(machine, args.json)
    recipe = _recipe(args)
    if args.sweep:
        return _sweep(recipe, machine, args)
    from spark_rl.fit import fit_report

    report = fit_report(recipe, machine)
    if args.json:
        emit_json(report.to_json())
    else:
        emit(report.to_text(_width(), args.explain))
    if report.verdict == "tight":
        say("warning: inside the error band; it may or may not fit")
    return ExitCode.DOES_NOT_FIT if report.verdict == "does_not_fit" else ExitCode.OK


def _width() -> int:
    import shutil

    return min(120, shutil.get_terminal_size((WIDTH_WITHOUT_A_TERMINAL, 24)).columns)


def _machine(args: argparse.Namespace) -> Machine:
    from spark_rl.errors import ConfigError
    from spark_rl.host import detect_host, machine_class, machine_of_size

    if args.machine and args.gpu_gib is not None:
        raise ConfigError("--machine and --gpu-gib exclude each other")
    if args.gpu is not None and (args.machine or args.gpu_gib is not None):
        raise ConfigError("--gpu is a GPU of this host: --machine and --gpu-gib exclude it")
    if args.gpu_gib is not None:
        return machine_of_size(args.gpu_gib)
    if args.machine:
        return machine_class(args.machine)
    from spark_rl.fit.measured import last_bench, with_measured_speed

    return with_measured_speed(detect_host(args.gpu), last_bench())


def _recipe(args: argparse.Namespace) -> Recipe:
    from spark_rl.errors import ConfigError
    from spark_rl.recipe import BASE_FILE, resolve

    overrides = None
    if args.task:
        from spark_rl.task import load_task

        overrides = load_task(args.task).overrides
    if args.recipe and args.recipe.endswith(".json"):
        return _saved_recipe(args)
    if args.model:
        return resolve(str(BASE_FILE), overrides, [f'model.id="{args.model}"', *args.sets])
    chosen = args.profile or args.recipe
    if chosen is None:
        raise ConfigError("what should fit?", hint="give --profile P, --recipe R, --model M or --what-fits")
    return resolve(chosen, overrides, args.sets)


def _saved_recipe(args: argparse.Namespace) -> Recipe:
    import json
    from pathlib import Path

    from spark_rl.errors import ConfigError
    from spark_rl.fit.sweep import checked_settings
    from spark_rl.recipe import layer_from_sets, recipe_from_json

    path = Path(args.recipe)
    try:
        recipe = recipe_from_json(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path}: not a saved recipe: {error}") from None
    layer, problems = layer_from_sets(args.sets)
    if problems:
        raise ConfigError(problems)
    settings = {f"{section}.{key}": item.value for section, keys in layer.items() for key, item in keys.items()}
    return checked_settings(recipe, settings) if settings else recipe


def _sweep(recipe: Recipe, machine: Machine, args: argparse.Namespace) -> int:
    from spark_rl.fit.sweep import parse_axis, sweep
    from spark_rl.units import format_gib, format_seconds

    axes = [parse_axis(text) for text in args.sweep]
    any_fits = False
    if not args.json:
        names = "  ".join(axis.key for axis in axes)
        emit(f"{'verdict':<13} {'peak':>8} {'spare':>8} {'step':>10}  {names}")
    for row in sweep(recipe, machine, axes):
        values = "  ".join(str(value) for value in row.settings.values())
        if row.report is None:
            if args.json:
                emit_json({"settings": row.settings, "verdict": None, "problem": row.problem})
            else:
                emit(f"{'refused':<13} {'':>8} {'':>8} {'':>10}  {values}: {row.problem}")
            continue
        report = row.report
        any_fits = any_fits or report.verdict != "does_not_fit"
        if args.json:
            emit_json(
                {
                    "settings": row.settings,
                    "verdict": report.verdict,
                    "peak_bytes": round(report.peak_bytes),
                    "peak_phase": report.peak.name,
                    "headroom_bytes": round(report.headroom_bytes),
                    "step_seconds": round(report.step_seconds, 2),
                }
            )
        else:
            emit(
                f"{report.verdict.replace('_', ' '):<13} {format_gib(report.peak_bytes):>8} "
                f"{format_gib(report.headroom_bytes):>8} {format_seconds(report.step_seconds):>10}  {values}"
            )
    return ExitCode.OK if any_fits else ExitCode.DOES_NOT_FIT


def _what_fits(machine: Machine, as_json: bool) -> int:
    from spark_rl.fit.sweep import what_fits
    from spark_rl.units import format_gib, format_seconds

    found = what_fits(machine)
    if not as_json:
        emit(f"on {machine.name} ({machine.source}):")
    for row in found:
        report = row.report
        if as_json:
            emit_json(
                {
                    "machine": machine.name,
                    "method": row.method,
                    "size_class": row.size_class,
                    "model": None if report is None else report.work.card.name,
                    "verdict": None if report is None else report.verdict,
                    "peak_bytes": None if report is None else round(report.peak_bytes),
                    "step_seconds": None if report is None else round(report.step_seconds, 2),
                }
            )
        elif report is None:
            emit(f"{row.method:<6} nothing")
        else:
            emit(
                f"{row.method:<6} {row.size_class:<8} {report.verdict:<5} peak {format_gib(report.peak_bytes)} of "
                f"{format_gib(report.budget.device_bytes)} GiB, {format_seconds(report.step_seconds)} a step "
                f"({report.work.card.name})"
            )
    return ExitCode.OK
