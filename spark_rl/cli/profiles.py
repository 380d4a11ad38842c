"""`spark-rl profiles ls|show|cp|validate` and `spark-rl recipe show`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from spark_rl.cli.options import add_json_option, add_recipe_options
from spark_rl.cli.output import emit, emit_json, say


def add_parsers(commands: Any) -> None:
    profiles = commands.add_parser("profiles", help="list, show, copy and check profiles")
    actions = profiles.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("ls", help="the shipped profiles")
    add_json_option(listing)
    listing.set_defaults(run=run_ls)
    show = actions.add_parser("show", help="a profile's file, with its reasons")
    show.add_argument("profile")
    show.set_defaults(run=run_show)
    copy = actions.add_parser("cp", help="copy a profile to a file of your own")
    copy.add_argument("profile")
    copy.add_argument("file", type=Path)
    copy.set_defaults(run=run_cp)
    validate = actions.add_parser("validate", help="check profile files; all problems at once")
    validate.add_argument("profiles", nargs="*", metavar="PROFILE", help="names or files (default: all shipped)")
    validate.set_defaults(run=run_validate)

    recipe = commands.add_parser("recipe", help="what a profile, a task and --set resolve to")
    recipe_actions = recipe.add_subparsers(dest="action", metavar="ACTION", required=True)
    recipe_show = recipe_actions.add_parser("show", help="every value with its source and reason")
    add_recipe_options(recipe_show, task_required=False)
    add_json_option(recipe_show)
    recipe_show.set_defaults(run=run_recipe_show)


def run_ls(args: argparse.Namespace) -> int:
    import tomllib  # titles need no comments, and this reads forty files five times as fast

    from spark_rl.errors import ConfigError
    from spark_rl.recipe import list_profiles

    for path in list_profiles():
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8")).get("profile", {})
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path}: cannot be read: {error}") from None
        if args.json:
            emit_json({"profile": path.stem, **table})
        else:
            emit(f"{path.stem:<32} {table.get('title', '')}")
    return 0


def run_show(args: argparse.Namespace) -> int:
    from spark_rl.recipe import find_profile

    emit(find_profile(args.profile).read_text(encoding="utf-8").rstrip("\n"))
    return 0


def run_cp(args: argparse.Namespace) -> int:
    from spark_rl.errors import ConfigError
    from spark_rl.recipe import find_profile
    from spark_rl.rundir import write_text_atomic

    source, target = find_profile(args.profile), args.file
    if target.is_dir():
        target = target / source.name
    if target.exists():
        raise ConfigError(f"{target}: exists already", "choose another name")
    if not target.parent.is_dir():
        raise ConfigError(f"{target.parent}: no such folder")
    write_text_atomic(target, source.read_text(encoding="utf-8"))
    say(f"copied to {target}; use it with --profile {target if '/' in str(target) else './' + str(target)}")
    return 0


def run_validate(args: argparse.Namespace) -> int:
    from spark_rl.errors import ConfigError, Problem
    from spark_rl.recipe import list_profiles, resolve

    problems: list[Problem] = []
    names = args.profiles or [str(path) for path in list_profiles()]
    for name in names:
        try:
            resolve(name)
        except ConfigError as error:
            problems += error.problems or (Problem(name, None, error.message, error.hint),)
    if problems:
        raise ConfigError(problems)
    say(f"{len(names)} profile{'s' if len(names) != 1 else ''} ok")
    return 0


def run_recipe_show(args: argparse.Namespace) -> int:
    from spark_rl.recipe import resolve
    from spark_rl.recipe_schema import SECTIONS

    overrides = None
    if args.task:
        from spark_rl.task import load_task

        overrides = load_task(args.task).overrides
    recipe = resolve(args.profile, overrides, args.sets)
    if args.json:
        emit_json(recipe.to_json())
        return 0
    for section in SECTIONS:
        emit(f"[{section}]")
        for key, value in getattr(recipe, section).model_dump(mode="json").items():
            origin = recipe.provenance.get(f"{section}.{key}")
            shown = "unset" if value is None else value
            source = origin.source if origin else "base"
            reason = f": {origin.reason}" if origin and origin.reason else ""
            emit(f"  {key} = {shown}")
            emit(f"      {source}{reason}")
    return 0
