"""All symptoms over one log, worst first, and the sentence that sums them up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from spark_rl.diagnose import numbers, policy, rewards
from spark_rl.diagnose.context import Context, context_from_recipe
from spark_rl.diagnose.finding import Diagnosis, Finding, worst_first
from spark_rl.diagnose.variants import advise
from spark_rl.diagnose.view import View
from spark_rl.errors import SparkError
from spark_rl.metrics import Log, group_columns, log_from_rows, read_samples, with_columns
from spark_rl.modelcard import is_mixture
from spark_rl.rundir import RunDir, read_json, write_json
from spark_rl.runstate import RunState, read_run
from spark_rl.task import load_task

Symptom = Callable[[View], Iterator[Finding]]

SYMPTOMS: tuple[Symptom, ...] = (
    numbers.not_a_number,
    numbers.engines_disagree,
    policy.length_at_cap,
    policy.divergence,
    policy.shortcut,
    policy.entropy,
    rewards.zero_variance,
    rewards.dead_parts,
    rewards.one_sided_gain,
    rewards.gain_through_one_part,
    rewards.gain_without_quality,
    policy.length_grows,
    numbers.unstable_gradients,
    rewards.reward_trend,
    numbers.zero_loss,
    numbers.few_rows,
)
"""In the order in which they are worth reading among findings of the same severity."""


def diagnose(log: Log, context: Context | None = None) -> Diagnosis:
    """Everything the log shows. Never raises for what a log may hold."""
    view = View(log, context or Context())
    hopeless = numbers.nothing_to_judge(view)
    if hopeless is not None:
        return _diagnosis(view, [hopeless])
    return _diagnosis(view, [finding for symptom in SYMPTOMS for finding in symptom(view)])


def diagnose_run(state: RunState) -> Diagnosis:
    """The diagnosis of one of our runs, with what its recipe, task and held-out results add."""
    return diagnose(log_of_run(state), context_of_run(state))


def write_diagnosis(run: RunDir) -> Diagnosis:
    """Diagnose a run and keep the answer in its diagnosis.json. Raises RunDirError when it cannot be written."""
    diagnosis = diagnose_run(read_run(run))
    write_json(run.diagnosis, diagnosis.to_json())
    return diagnosis


def log_of_run(state: RunState) -> Log:
    """The metric rows of one of our runs, with what its saved completions tell about their groups."""
    log = log_from_rows(state.metrics, str(state.run.metrics), state.num_skipped)
    num_generations = (state.recipe.get("grpo") or {}).get("num_generations")
    if not isinstance(num_generations, int):
        return log
    return with_columns(log, group_columns(read_samples(state.run.samples), num_generations))


def context_of_run(state: RunState) -> Context:
    """Settings, the kind of model, what the reward parts mean, and the change in held-out success, as far as files tell."""
    model = state.recipe.get("model") or {}
    saved = (read_json(state.run.eval) or {}).get("result") or {}
    low, high = saved.get("change_low"), saved.get("change_high")
    return context_from_recipe(
        state.recipe,
        is_moe=is_mixture(model["id"], model.get("revision")) if model.get("id") else None,
        heldout_change=(low, high) if low is not None and high is not None else None,
        part_meanings=_part_meanings(state.run),
    )


def _part_meanings(run: RunDir) -> dict[str, str]:
    """Reward part -> format, correct or other. Empty when the task file has gone or changed beyond reading."""
    source = (read_json(run.task) or {}).get("path")
    if not isinstance(source, str):
        return {}
    try:
        return {part.name: part.means for part in load_task(Path(source)).reward_parts}
    except SparkError:
        return {}


def _diagnosis(view: View, findings: Sequence[Finding]) -> Diagnosis:
    log = view.log
    ordered = worst_first(findings)
    notes = []
    if log.num_skipped:
        notes.append(f"{log.num_skipped} lines could not be read and were skipped.")
    if log.num_repeated:
        notes.append(f"{log.num_repeated} rows were written again after a resume; the last writing counts.")
    if log.rows and not log.has_steps:
        notes.append("The log names no steps; rows are numbered from 1.")
    if log.eval_rows:
        notes.append(f"{len(log.eval_rows)} evaluation rows are kept apart.")
    return Diagnosis(
        headline=_headline(ordered, len(log.rows)),
        findings=ordered,
        variants=advise(ordered, view.context),
        num_rows=len(log.rows),
        first_step=log.rows[0].step if log.rows else None,
        last_step=log.rows[-1].step if log.rows else None,
        notes=tuple(notes),
    )


def _headline(findings: Sequence[Finding], num_rows: int) -> str:
    trend = next((finding for finding in findings if finding.id == "reward_trend"), None)
    bad = [finding for finding in findings if finding.severity in ("fault", "warning")]
    way = f"{trend.title}. " if trend else ""
    if not bad:
        return f"{way}Nothing wrong found in {num_rows} rows."
    if bad[0].id in ("no_rows", "not_grpo"):
        return bad[0].words
    titles = "; ".join(finding.title for finding in bad if finding is not trend)
    return f"{way}{titles}." if titles else way.strip()
