"""Variants of GRPO are a remedy, not a setting: one is admitted only on its symptom.

In: a recipe, whether its model is a mixture of experts, and what earlier runs of the same task and model show. Out: an
`Admission` with its evidence, or Refused (exit 4) with what was looked at. `admit` is pure; `check_variant` reads the
runs folder. Every earlier run is diagnosed again from its metrics: a diagnosis.json is not evidence. Light: no torch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_rl.diagnose import Diagnosis, Finding, VariantAdvice, context_from_recipe, diagnose_run
from spark_rl.diagnose.variants import OFF_POLICY_SETTING, ON_POLICY
from spark_rl.errors import ConfigError, Refused, RunDirError, SparkError
from spark_rl.gate.subject import read_recipe
from spark_rl.modelcard import is_mixture
from spark_rl.models import resolve_model
from spark_rl.recipe import Recipe
from spark_rl.rundir import RunDir, list_runs, read_json
from spark_rl.runstate import read_run
from spark_rl.task import Task

SYMPTOMS: Mapping[str, str] = {
    "dapo": "entropy collapse or degenerate long reasoning",
    "dr_grpo": "reward or length rising without quality",
    "gspo": "a mixture-of-experts model with off-policy updates",
}

MAX_NAMED = 3
"""Runs that a refusal names with what they show; the rest is counted."""


@dataclass(frozen=True)
class Shown:
    """What one earlier run of the same task and model shows."""

    run: str
    """Name of its directory."""
    diagnosis: Diagnosis

    def advice(self, variant: str) -> VariantAdvice | None:
        return next((advice for advice in self.diagnosis.variants if advice.variant == variant), None)

    def advises(self, variant: str) -> bool:
        advice = self.advice(variant)
        return advice is not None and advice.advised


@dataclass(frozen=True)
class Earlier:
    """The runs folder, as far as it is about one task and model."""

    folder: str
    shown: tuple[Shown, ...] = ()
    """Newest first."""
    changed: tuple[str, ...] = ()
    """Runs of the same model whose task has this name, but whose task file read differently: no evidence."""
    skipped: tuple[str, ...] = ()
    """One sentence for each run that could not be read."""


@dataclass(frozen=True)
class Ground:
    """Why one variant is admitted."""

    variant: str
    why: str
    run: str | None = None
    """The run that showed the symptom; None where the model alone is the reason."""
    findings: tuple[Finding, ...] = ()
    """The symptom, as it was diagnosed when this run was made."""
    note: str | None = None
    """What keeps the variant without effect as the recipe stands."""

    def to_json(self) -> dict[str, Any]:
        return {
            "variant": self.variant,
            "why": self.why,
            "run": self.run,
            "findings": [finding.to_json() for finding in self.findings],
            "note": self.note,
        }


@dataclass(frozen=True)
class Admission:
    """The grounds of every variant that a recipe asks for; none for plain GRPO."""

    grounds: tuple[Ground, ...] = ()
    skipped: tuple[str, ...] = ()
    """Earlier runs that could not be read."""

    def lines(self) -> Iterator[str]:
        """For the first screen of a run."""
        for ground in self.grounds:
            yield f"variant: {ground.variant}: {ground.why}"
            if ground.note:
                yield f"note: {ground.note}"
        for sentence in self.skipped:
            yield f"note: skipped while looking for the symptom: {sentence}"

    def to_json(self) -> dict[str, Any]:
        return {"variants": [ground.to_json() for ground in self.grounds]}


def asked_variants(recipe: Recipe) -> dict[str, tuple[str, ...]]:
    """Every variant that a recipe asks for -> the settings that ask for it; empty for plain GRPO."""
    grpo = recipe.grpo
    by_sequence = grpo.importance_sampling_level == "sequence"
    asked: dict[str, list[str]] = {}
    if grpo.loss_type != "grpo":
        asked.setdefault(grpo.loss_type, []).append(f"grpo.loss_type={grpo.loss_type}")
    if by_sequence:
        asked.setdefault("gspo", []).append("grpo.importance_sampling_level=sequence")
    if grpo.epsilon_high != grpo.epsilon and not by_sequence:  # GSPO's clip range is its own, and asymmetric too
        asked.setdefault("dapo", []).append(f"grpo.epsilon_high={grpo.epsilon_high:g}")
    if grpo.mask_truncated_completions:
        asked.setdefault("dapo", []).append("grpo.mask_truncated_completions=true")
    if grpo.scale_rewards == "none":
        asked.setdefault("dr_grpo", []).append("grpo.scale_rewards=none")
    return {variant: tuple(settings) for variant, settings in asked.items()}


def need_a_run(variants: Collection[str], is_moe: bool | None) -> frozenset[str]:
    """Those of the variants that only an earlier run can speak for."""
    return frozenset(name for name in variants if name in SYMPTOMS and not (name == "gspo" and is_moe))


def admit(recipe: Recipe, is_moe: bool | None, earlier: Earlier) -> Admission:
    """The grounds of every variant of the recipe; of several runs that show a symptom, the newest.

    Raises Refused for a variant that neither the model nor a run speaks for.
    """
    grounds = []
    for variant, settings in asked_variants(recipe).items():
        ground = _ground(recipe, variant, is_moe, earlier)
        if ground is None:
            raise _refusal(variant, settings, is_moe, earlier)
        grounds.append(ground)
    return Admission(tuple(grounds), earlier.skipped)


def check_variant(recipe: Recipe, task: Task, root: Path) -> Admission:
    """Whether the variants that a recipe asks for may run, judged by its model and the runs under `root`.

    Raises Refused with what was looked at.
    """
    asked = asked_variants(recipe)
    if not asked:
        return Admission()
    is_moe = is_mixture(recipe.model.id, recipe.model.revision)
    wanted = need_a_run(asked, is_moe)
    return admit(recipe, is_moe, look_back(recipe, task, root, wanted) if wanted else Earlier(str(root)))


def look_back(recipe: Recipe, task: Task, root: Path, wanted: Collection[str]) -> Earlier:
    """What the runs of this task and model under `root` show, newest first, until all the wanted variants are advised."""
    shown: list[Shown] = []
    changed: list[str] = []
    skipped: list[str] = []
    for run in reversed(list_runs(root)):
        if shown and all(any(one.advises(variant) for one in shown) for variant in wanted):
            break
        try:
            same_file = _same_subject(run, recipe, task)
            if same_file:
                shown.append(Shown(run.name, diagnose_run(read_run(run))))
            elif same_file is False:
                changed.append(run.name)
        except SparkError as error:  # somebody else's broken run must not stop this one
            skipped.append(error.message)
    return Earlier(str(root), tuple(shown), tuple(changed), tuple(skipped))


def _same_subject(run: RunDir, recipe: Recipe, task: Task) -> bool | None:
    """Whether a run's task file read as it does now; None for another task or model."""
    saved = read_json(run.task)
    if saved is None:
        raise RunDirError(f"{run.path}: does not say which task it is about (task.json)")
    same_file = saved.get("digest") == task.file_digest()
    if not same_file and saved.get("name") != task.name:
        return None
    return same_file if _model_of(read_recipe(run)) == _model_of(recipe) else None


def _model_of(recipe: Recipe) -> tuple[str, str | None, bool]:
    """The model's folder or hub id, its revision, and whether it is only played by a script: a folder has one name however
    it was written, and what a script shows speaks for no model."""
    scripted = recipe.engine.name == "fake"
    try:
        return str(resolve_model(recipe.model.id)), recipe.model.revision, scripted
    except ConfigError:  # its folder has gone since
        return recipe.model.id, recipe.model.revision, scripted


def _ground(recipe: Recipe, variant: str, is_moe: bool | None, earlier: Earlier) -> Ground | None:
    if variant not in SYMPTOMS:
        return None
    note = _without_effect(recipe, variant)
    if variant == "gspo" and is_moe:
        return Ground(
            variant, "the model is a mixture of experts: token ratios jump when its routing changes", note=note
        )
    for one in earlier.shown:
        advice = one.advice(variant)
        if advice is not None and advice.advised:
            found = [one.diagnosis.find(name) for name in advice.because]
            findings = tuple(finding for finding in found if finding is not None)
            titles = "; ".join(f"{finding.id} ({finding.title})" for finding in findings)
            return Ground(variant, f"{one.run} shows {titles or advice.words}", one.run, findings, note)
    return None


def _without_effect(recipe: Recipe, variant: str) -> str | None:
    """Ratios are all 1 while updates are on-policy: nothing is clipped, token by token or as a sequence."""
    grpo = recipe.grpo
    if context_from_recipe(recipe.to_json()).off_policy is not False:
        return None
    what = {
        "gspo": "importance_sampling_level = sequence",
        "dapo": "epsilon_high" if grpo.epsilon_high != grpo.epsilon else None,
    }.get(variant)
    return f"{what} is without effect: {ON_POLICY}; {OFF_POLICY_SETTING} would make them off-policy" if what else None


def _refusal(variant: str, settings: tuple[str, ...], is_moe: bool | None, earlier: Earlier) -> Refused:
    """What was asked, what was looked at, what to do."""
    asked = f"the recipe asks for {variant}, a variant for: {SYMPTOMS.get(variant, 'no symptom that we know of')}"
    leave_out = f"leave out {' and '.join(settings)}"
    if variant not in SYMPTOMS:
        return Refused(asked, f"train plain GRPO: {leave_out}")
    if variant == "gspo":
        asked += "; this model is dense" if is_moe is False else "; what kind this model is cannot be read"
    num_shown = len(earlier.shown)
    if num_shown:
        lines = [f"{asked}. Runs of this task and model under {earlier.folder}: {num_shown}, none with evidence for it"]
        hint = f"stay with plain GRPO ({leave_out}) until `spark-rl diagnose RUN` advises {variant}"
    else:
        lines = [f"{asked}. No run of this task and model is under {earlier.folder}"]
        hint = f"train plain GRPO first ({leave_out}) and read `spark-rl diagnose RUN`"
    for one in earlier.shown[:MAX_NAMED]:
        advice = one.advice(variant)
        lines.append(f"  {one.run}: {advice.words if advice else 'no advice'}. {one.diagnosis.headline}")
    if num_shown > MAX_NAMED:
        lines.append(f"  and {num_shown - MAX_NAMED} older")
    if earlier.changed:
        lines.append(f"  not counted, because the task file has changed since: {_some(earlier.changed)}")
    lines += [f"  skipped: {sentence}" for sentence in earlier.skipped[:MAX_NAMED]]
    if len(earlier.skipped) > MAX_NAMED:
        lines.append(f"  skipped: {len(earlier.skipped) - MAX_NAMED} more")
    if variant == "gspo" and is_moe is False:
        hint = f"token ratios suit a dense model: {leave_out}"
    return Refused("\n".join(lines), hint)


def _some(names: tuple[str, ...]) -> str:
    rest = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {rest} more" if rest > 0 else "")
