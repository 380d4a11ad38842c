"""`spark-rl rewards score|check`: score a file offline against labels; attack a reward before a run does."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_rl.cli.output import emit, emit_json, fail, say
from spark_rl.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from spark_rl.rewards.agreement import Agreement, PartSummary
    from spark_rl.rewards.composite import Composite
    from spark_rl.task import Task

LABEL_COLUMNS = ("label", "is_correct", "label_correct", "correct")
COMPLETION_COLUMNS = ("completion", "response", "solution", "output", "text")


def add_parsers(commands: Any) -> None:
    rewards = commands.add_parser("rewards", help="score a file with a reward, or attack the reward")
    actions = rewards.add_subparsers(dest="action", metavar="ACTION", required=True)
    score = actions.add_parser("score", help="score completions in a file; show disagreements with a label column")
    score.add_argument("--task", required=True, help="shipped task or task file")
    score.add_argument("--in", dest="file", required=True, type=Path, help="JSONL, CSV or Parquet with completions")
    score.add_argument("--completion", help="column with the completion (default: the first of the usual names)")
    score.add_argument("--label", help="column that says whether a completion is right")
    score.add_argument("--show", type=int, default=10, help="disagreements to show")
    score.add_argument("--json", action="store_true", help="one object per row, then one summary")
    score.set_defaults(run=run_score)
    check = actions.add_parser("check", help="attack a reward: junk, negation, padding, echo, every answer at once")
    check.add_argument("--task", required=True, help="shipped task or task file")
    check.add_argument("--rows", type=int, default=20, help="rows of the task's data to attack")
    check.add_argument("--json", action="store_true")
    check.set_defaults(run=run_check)


def run_score(args: argparse.Namespace) -> int:
    from spark_rl.dataset import read_rows
    from spark_rl.rewards.agreement import as_label, compare, summarise_parts
    from spark_rl.task import load_task

    task = load_task(args.task)
    rows = [_renamed(row, task) for row in read_rows(args.file, say)]
    completion_column = _column(rows[0], args.completion, COMPLETION_COLUMNS, "completion", args.file)
    label_column = _column(rows[0], args.label, LABEL_COLUMNS, "label", args.file)
    if completion_column is None:
        raise ConfigError(
            f"{args.file}: no completion column", "name it with --completion; columns: " + ", ".join(rows[0])
        )
    completions = [row.get(completion_column) or "" for row in rows]
    composite = _composite(task)
    try:
        scored = composite.score(completions, rows)
    finally:
        composite.close()
    labels = [as_label(row.get(label_column)) if label_column else None for row in rows]
    agreement = compare([one.correct for one in scored], labels) if label_column else None
    parts = summarise_parts(task.reward_parts, scored)
    if args.json:
        for number, (one, label) in enumerate(zip(scored, labels, strict=True)):
            verdicts = {name: dataclasses.asdict(verdict) for name, verdict in one.parts.items()}
            emit_json({"row": number, "total": one.total, "correct": one.correct, "label": label, "parts": verdicts})
        emit_json({"summary": _summary(parts, agreement, len(rows), dict(composite.bugs))})
        return 2 if composite.bugs else 0
    _print_parts(parts)
    if agreement is not None:
        _print_agreement(agreement)
        for number in agreement.disagreements[: args.show]:
            reasons = "; ".join(f"{name}: {verdict.reason}" for name, verdict in scored[number].parts.items())
            emit(f"  row {number}: label {labels[number]}, judged {scored[number].correct}: {reasons}")
    if composite.bugs:
        for name, count in composite.bugs.items():
            reason = next(one.parts[name].reason for one in scored if one.parts[name].is_bug)
            fail(f"{name} failed on {count} of {len(rows)} completions: {reason}", "a failure is not a score of 0")
    return 2 if composite.bugs else 0


def run_check(args: argparse.Namespace) -> int:
    from spark_rl.dataset import load_examples
    from spark_rl.rewards.attacks import check_reward
    from spark_rl.task import load_task

    task = load_task(args.task)
    rows = [{**example.row, "prompt": example.prompt} for example in load_examples(task).train[: args.rows]]
    composite = _composite(task)
    golds = [part.options.get("answer", "answer") for part in task.reward_parts if part.means == "correct"]
    try:
        report = check_reward(composite, rows, lambda row: next((row[name] for name in golds if name in row), None))
    finally:
        composite.close()
    if args.json:
        emit_json(dataclasses.asdict(report))
        return 2 if report.problems else 0
    emit(f"{'attack':<18} {'part':<16} {'highest':>8} {'above floor':>12} {'failed':>7}")
    for one in report.attacks:
        highest = "N/A" if one.highest is None else f"{one.highest:.2f}"
        above = f"{one.num_above_floor}/{one.num_rows}"
        emit(f"{one.attack:<18} {one.part:<16} {highest:>8} {above:>12} {one.num_bugs:>7}")
    for name, share in report.recognised.items():
        emit(f"right answer as {name:<12} {'N/A' if share is None else f'{100 * share:.0f} %'} judged correct")
    for part, shape in report.shapes.items():
        emit(f"{part} accepts {shape}")
    for problem in report.problems:
        say(f"problem: {problem}")
    return 2 if report.problems else 0


def _composite(task: Task) -> Composite:
    from spark_rl.rewards.composite import Composite

    return Composite(task.build_rewards(), gate_on_format=task.scoring.gate_on_format)


def _renamed(row: dict[str, Any], task: Task) -> dict[str, Any]:
    """The row with the task's column names beside the file's own."""
    return {**row, **{ours: row[theirs] for ours, theirs in task.data.columns.items() if theirs in row}}


def _column(row: dict[str, Any], asked: str | None, usual: tuple[str, ...], what: str, file: Path) -> str | None:
    """The asked-for column, or the first usual one that is there, or None."""
    if asked is not None and asked not in row:
        raise ConfigError(
            f"{file}: no {what} column {asked!r}", did_you_mean(asked, row) or "columns: " + ", ".join(row)
        )
    return asked or next((name for name in usual if name in row), None)


def _summary(
    parts: list[PartSummary], agreement: Agreement | None, num_rows: int, bugs: dict[str, int]
) -> dict[str, Any]:
    compared = None if agreement is None else {**dataclasses.asdict(agreement), "percent": agreement.percent}
    return {
        "rows": num_rows,
        "parts": [dataclasses.asdict(part) for part in parts],
        "agreement": compared,
        "bugs": bugs,
    }


def _print_parts(parts: list[PartSummary]) -> None:
    emit(f"{'part':<20} {'mean':>7} {'full':>6} {'applies':>8} {'none':>6} {'failed':>7}")
    for part in parts:
        mean = "N/A" if part.mean is None else f"{part.mean:.3f}"
        emit(
            f"{part.name:<20} {mean:>7} {part.num_full:>6} {part.num_applies:>8} {part.num_none:>6} {part.num_bugs:>7}"
        )
        if part.constant is not None:
            say(f"{part.name} is {part.constant:g} in every row: it teaches nothing")


def _print_agreement(agreement: Agreement) -> None:
    percent = "N/A" if agreement.percent is None else f"{agreement.percent:.2f} %"
    rates = [
        f"{name} {'N/A' if rate is None else f'{rate:.3f}'}"
        for name, rate in (("TPR", agreement.true_positive_rate), ("TNR", agreement.true_negative_rate))
    ]
    emit(f"agreement {percent} on {agreement.num_compared} of {agreement.num_rows} rows; {', '.join(rates)}")
