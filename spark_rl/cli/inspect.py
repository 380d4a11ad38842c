"""`spark-rl inspect review | rescore | export | import | sign | status`: the gate. Light; only sampling needs a model."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_rl.cli.options import add_json_option, add_run_argument
from spark_rl.cli.output import emit, emit_json, say
from spark_rl.cli.run import add_new_run_options
from spark_rl.errors import ConfigError, ExitCode, Refused, RunDirError, SparkError

if TYPE_CHECKING:
    from spark_rl.rundir import RunDir


def add_parsers(commands: Any) -> None:
    inspect = commands.add_parser("inspect", help="read scored samples and sign: nothing is trained before")
    actions = inspect.add_subparsers(dest="action", metavar="ACTION", required=True)
    sample = actions.add_parser("sample", help="draw and score completions of the model that will be trained")
    add_new_run_options(sample)
    sample.set_defaults(run=run_sample)
    review = _add_action(actions, "review", run_review, "read samples one at a time in this terminal")
    review.add_argument("--reader", metavar="NAME", help="who reads (default: your login name)")
    _add_action(actions, "rescore", run_rescore, "score the same samples with the mended reward")
    export = _add_action(actions, "export", run_export, "write samples and verdicts as CSV or JSONL")
    export.add_argument("file", metavar="FILE", type=Path, nargs="?", help=".csv or .jsonl (default: JSONL on stdout)")
    bring = _add_action(actions, "import", run_import, "take verdicts from a CSV or JSONL file")
    bring.add_argument("file", metavar="FILE", type=Path, help=".csv or .jsonl file")
    bring.add_argument("--reader", metavar="NAME", help="reader of rows that name none")
    _add_action(actions, "sign", run_sign, "close the inspection; refused while anything is open")
    _add_action(actions, "status", run_status, "counts, what stands out, what is missing")


def _add_action(actions: Any, name: str, run: Any, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(name, help=text, description=text)
    add_run_argument(parser)
    add_json_option(parser)
    parser.set_defaults(run=run)
    return parser


def run_sample(args: argparse.Namespace) -> int:
    from spark_rl.cli.run import new_or_existing, start_and_follow
    from spark_rl.gate.samples import refuse_new_draw

    run = new_or_existing(args)
    refuse_new_draw(run)
    stages = ("inspect",) if run.probe.exists() else ("probe", "inspect")
    code = start_and_follow(run, stages, args.json)
    if code == ExitCode.OK:
        say(f"read them: spark-rl inspect review {run.path}")
    return code


def run_review(args: argparse.Namespace) -> int:
    from spark_rl.cli.terminal import PlainTerminal, is_interactive
    from spark_rl.gate.inspection import read_inspection
    from spark_rl.gate.opinions import reader_kind, write_opinions
    from spark_rl.gate.review import review
    from spark_rl.gate.samples import count_of, sample_command

    run = _open(args)
    inspection = read_inspection(run)
    if not inspection.samples:
        raise Refused(f"{run.name}: no samples have been drawn", f"draw them: {sample_command(run)}")
    reader = args.reader or _login_name()
    if reader_kind(reader) != "person":
        raise ConfigError(f"{reader!r} cannot read at a terminal", "a script's verdicts are imported")
    if not is_interactive():
        raise ConfigError(
            "reading needs a terminal, and this is none",
            f"spark-rl inspect export {run.path} FILE.csv, fill in verdict and reader, then inspect import",
        )
    with PlainTerminal() as terminal:
        saved = review(inspection, reader, terminal, lambda opinion: write_opinions(run, [opinion]))
    if args.json:
        emit_json({"run": str(run.path), "reader": reader, "saved": sum(saved.values()), **saved})
    else:
        say(f"{count_of(sum(saved.values()), 'verdict')} saved; spark-rl inspect status {run.path} shows what is open")
    return ExitCode.OK


def run_rescore(args: argparse.Namespace) -> int:
    from spark_rl.gate.rescore import rescore
    from spark_rl.gate.subject import read_subject

    run = _open(args)
    done = rescore(run, read_subject(run))
    if args.json:
        emit_json(
            {
                "run": str(run.path),
                "samples": done.num_samples,
                "changed": list(done.changed),
                "reopened": list(done.reopened),
                "disputed": list(done.disputed),
            }
        )
        return ExitCode.OK
    emit(
        f"{done.num_samples} samples scored again: {len(done.changed)} changed, "
        f"{len(done.reopened)} verdicts reopened, {len(done.disputed)} disagreements still open"
    )
    if done.reopened:
        say(f"hint: read those again: spark-rl inspect review {run.path}")
    return ExitCode.OK


def run_export(args: argparse.Namespace) -> int:
    from spark_rl.gate.exchange import FORMATS, export_rows, to_csv, to_jsonl
    from spark_rl.gate.inspection import read_inspection
    from spark_rl.rundir import write_text_atomic

    run = _open(args)
    rows = export_rows(read_inspection(run))
    if args.file is None:
        for line in to_jsonl(rows).splitlines():
            emit(line)
        return ExitCode.OK
    if args.file.suffix.lower() not in FORMATS:
        raise ConfigError(f"{args.file}: unknown kind of file {args.file.suffix!r}", "use .csv or .jsonl")
    if not args.file.parent.is_dir():
        raise ConfigError(f"{args.file}: no such folder")
    csv_text = "\ufeff" + to_csv(rows)  # the mark by which spreadsheets know UTF-8
    write_text_atomic(args.file, csv_text if args.file.suffix.lower() == ".csv" else to_jsonl(rows))
    if args.json:
        emit_json({"run": str(run.path), "file": str(args.file), "samples": len(rows)})
    else:
        say(
            f"{len(rows)} samples written to {args.file}; fill in verdict and reader, then: "
            f"spark-rl inspect import {run.path} {args.file}"
        )
    return ExitCode.OK


def run_import(args: argparse.Namespace) -> int:
    from spark_rl.gate.exchange import import_verdicts
    from spark_rl.gate.subject import read_task

    run = _open(args)
    done = import_verdicts(run, args.file, read_task(run), args.reader)
    if args.json:
        emit_json(
            {
                "run": str(run.path),
                "verdicts": done.num_verdicts,
                "unchanged": done.num_unchanged,
                "blank": done.num_blank,
                "readers": list(done.readers),
            }
        )
    else:
        who = f" by {', '.join(done.readers)}" if done.readers else ""
        emit(f"{done.num_verdicts} verdicts{who} recorded, {done.num_unchanged} known already, {done.num_blank} blank")
    return ExitCode.OK


def run_sign(args: argparse.Namespace) -> int:
    from spark_rl.gate.signoff import sign
    from spark_rl.gate.status import counts_text
    from spark_rl.gate.subject import read_subject

    run = _open(args)
    signoff = sign(run, read_subject(run))
    if args.json:
        emit_json({"run": str(run.path), "reader": signoff.reader, "kind": signoff.kind, **signoff.counts})
    else:
        emit(f"signed by {signoff.reader}: {counts_text(signoff.counts)}")
        say(f"hint: spark-rl train --run {run.path}")
    return ExitCode.OK


def run_status(args: argparse.Namespace) -> int:
    from spark_rl.cli.terminal import output_encoding
    from spark_rl.gate.fingerprint import fingerprint
    from spark_rl.gate.status import read_status, status_json, status_lines
    from spark_rl.gate.subject import read_subject, read_task

    run = _open(args)
    task = now = reason = None
    try:
        task = read_task(run)
        now = fingerprint(read_subject(run))
    except SparkError as error:
        if isinstance(error, RunDirError):
            raise
        reason = f"cannot be compared with what would be trained now: {error.message}"
    status = read_status(run, task, now, reason)
    if args.json:
        emit_json({"path": str(run.path), **status_json(status)})
    else:
        for line in status_lines(status, 80, output_encoding()):
            emit(line.encode(output_encoding(), errors="backslashreplace").decode(output_encoding()))
    return ExitCode.OK


def _open(args: argparse.Namespace) -> RunDir:
    from spark_rl.rundir import open_run, runs_root

    return open_run(args.run_name, runs_root(args.runs))


def _login_name() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        raise ConfigError("who reads is not known", "give your name with --reader NAME") from None
