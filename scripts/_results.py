"""What a finished run leaves in docs/results: one JSON file for programs, one Markdown page for people.

In: a run directory. Out: a summary of plain values without paths or host names, and its text. Reads files only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spark_rl.recipe_schema import SECTIONS
from spark_rl.rundir import RunDir, read_json, read_jsonl

CURVE_KEYS = {
    "step": "step",
    "reward": "reward",
    "rewards/correct/mean": "correct",
    "rewards/format/mean": "format",
    "frac_reward_zero_std": "groups_without_signal",
    "kl": "kl",
    "entropy": "entropy",
    "step_time": "step_seconds",
}
"""Metric of the trainer -> name in the summary."""


def summarise(run: RunDir, command: str, machine: Mapping[str, Any], total_seconds: float) -> dict[str, Any]:
    """Recipe, before and after, curve and seconds of a finished run."""
    recipe, saved = read_json(run.recipe) or {}, read_json(run.eval) or {}
    probe, effective = read_json(run.probe) or {}, read_json(run.effective) or {}
    trained = [row for row in read_jsonl(run.worker_events).rows if row.get("event") == "trained"]
    metrics = read_jsonl(run.metrics).rows
    curve = [
        {name: row.get(key) for key, name in CURVE_KEYS.items()} for row in metrics if row.get("reward") is not None
    ]
    result = saved["result"]
    return {
        "command": command,
        "machine": dict(machine),
        "versions": effective.get("versions"),
        "probe": probe.get("words"),
        "before": result["before"],
        "after": result["after"],
        "change": result["change"],
        "change_low": result["change_low"],
        "change_high": result["change_high"],
        "gained": result["gained"],
        "lost": result["lost"],
        "p_value": result["p_value"],
        "greedy": {when: saved[when].get("greedy_successes") for when in ("before", "after")},
        "steps": trained[-1]["step"],
        "train_seconds": trained[-1]["train_seconds"],
        "total_seconds": round(total_seconds, 1),
        "recipe": {section: recipe[section] for section in SECTIONS if section in recipe},
        "curve": curve,
    }


def page(title: str, summary: Mapping[str, Any]) -> str:
    """The summary as a page of Markdown."""
    before, after, greedy, machine = summary["before"], summary["after"], summary["greedy"], summary["machine"]
    grpo, lora = summary["recipe"]["grpo"], summary["recipe"]["lora"]
    n = before["n"]
    lines = [
        f"# {title}",
        "",
        f"Made by `{summary['command']}` in {summary['total_seconds'] / 60:.0f} minutes "
        f"({summary['train_seconds'] / 60:.0f} of them training) on {machine['cores']} cores of {machine['processor']}.",
        f"Engine {summary['recipe']['engine']['name']}, {summary['steps']} steps of "
        f"{grpo['per_device_train_batch_size'] * grpo['gradient_accumulation_steps']} completions, groups of "
        f"{grpo['num_generations']}, LoRA rank {lora['r']}, learning rate {grpo['learning_rate']}, beta {grpo['beta']}.",
        "",
        f"Probe: {summary['probe']}",
        "",
        f"Held-out success on {n} prompts that training never saw, one completion each at temperature {grpo['temperature']}:",
        "",
        "| | before | after |",
        "|---|---|---|",
        f"| sampled | {rate(before)} | {rate(after)} |",
        f"| greedy | {count(greedy['before'], n)} | {count(greedy['after'], n)} |",
        "",
        f"Change {summary['change'] * 100:+.1f} points, 95 % interval {summary['change_low'] * 100:+.1f} to "
        f"{summary['change_high'] * 100:+.1f}; {summary['gained']} prompts gained, {summary['lost']} lost; exact McNemar "
        f"p = {summary['p_value']:.1g}.",
        "",
        "| step | reward | correct | format | KL | entropy | seconds |",
        "|---|---|---|---|---|---|---|",
        *(curve_row(rows) for rows in windows(summary["curve"], max(1, len(summary["curve"]) // 12))),
        "",
        "Each line is the mean over the steps up to the one named. The JSON file beside this page has every step and value.",
    ]
    return "\n".join(lines) + "\n"


def rate(outcome: Mapping[str, Any]) -> str:
    return f"{outcome['rate']:.1%} [{outcome['low']:.1%}, {outcome['high']:.1%}] ({outcome['successes']})"


def count(successes: int | None, n: int) -> str:
    return "N/A" if successes is None else f"{successes / n:.1%} ({successes})"


def windows(rows: Sequence[Mapping[str, Any]], size: int) -> list[Sequence[Mapping[str, Any]]]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def curve_row(rows: Sequence[Mapping[str, Any]]) -> str:
    means = [mean([row.get(key) for row in rows]) for key in ("reward", "correct", "format", "kl", "entropy")]
    seconds = mean([row.get("step_seconds") for row in rows])
    cells = ["N/A" if value is None else f"{value:.3f}" for value in means]
    return f"| {rows[-1]['step']} | {' | '.join(cells)} | {'N/A' if seconds is None else f'{seconds:.1f}'} |"


def mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
