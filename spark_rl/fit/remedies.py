"""What would make it fit: each change recomputed, the cheapest first, then the shortest ladder of several.

In: a recipe that does not fit. Out: `Remedy` values. The order is the out-of-memory ladder: settings that cost nothing or
little time, then the batch, then lengths and groups, then the method, then the model. A setting that frees nothing on this
machine is never advised.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from spark_rl.errors import SparkError
from spark_rl.fit.from_recipe import workload_from_recipe
from spark_rl.fit.report import FitReport, Remedy, report_of
from spark_rl.host import Machine
from spark_rl.modelcard import ModelCard
from spark_rl.recipe import Recipe
from spark_rl.recipe_schema import NUM_GENERATIONS_FLOOR
from spark_rl.rollout.plan import TORCHAO_OPTIMIZERS

Settings = dict[str, object]
"""Dotted key -> value."""

ENOUGH = 4
"""Single remedies to show."""


@dataclass(frozen=True)
class Rung:
    """One rung of the ladder: from a recipe, the settings that would change; empty when it has nothing to change."""

    cost: str
    change: Callable[[Recipe, Machine], Settings]
    is_method: bool = False
    """Changes how the model is tuned: the last resort before another model."""


def with_settings(recipe: Recipe, settings: Settings) -> Recipe:
    """The recipe with these values; they are taken as valid."""
    sections: dict[str, Settings] = {}
    for path, value in settings.items():
        section, _, key = path.partition(".")
        sections.setdefault(section, {})[key] = value
    changed = {name: getattr(recipe, name).model_copy(update=values) for name, values in sections.items()}
    return replace(recipe, **changed)


def _sleep(recipe: Recipe, machine: Machine) -> Settings:
    if recipe.rollout.kind == "vllm_colocate":
        if not recipe.vllm.sleep:
            return {"vllm.sleep": True, "vllm.sleep_level": 2}
        if recipe.vllm.sleep_level == 1 and machine.is_unified:
            return {"vllm.sleep_level": 2}
    if recipe.rollout.kind == "unsloth_vllm" and not recipe.vllm.standby:
        return {"vllm.standby": True}
    return {}


def _checkpointing(recipe: Recipe, machine: Machine) -> Settings:
    if recipe.memory.gradient_checkpointing == "off":
        return {"memory.gradient_checkpointing": "on"}
    return {}


def _park_activations(recipe: Recipe, machine: Machine) -> Settings:
    if (
        machine.kind != "discrete"
        or recipe.engine.name != "unsloth"
        or recipe.memory.gradient_checkpointing == "unsloth"
    ):
        return {}
    return {"memory.gradient_checkpointing": "unsloth"}


def _small_optimizer(recipe: Recipe, machine: Machine) -> Settings:
    if "8bit" in recipe.grpo.optim or machine.kind == "cpu":
        return {}
    return {"grpo.optim": "adamw_8bit"}


def _stochastic(recipe: Recipe, machine: Machine) -> Settings:
    if recipe.tuning.method != "full" or recipe.tuning.master_weights != "fp32" or machine.kind == "cpu":
        return {}
    return {"tuning.master_weights": "stochastic", "grpo.optim": "adamw_torch_8bit"}


def _state_can_move(recipe: Recipe, machine: Machine) -> bool:
    """Whether Unsloth can put optimizer state on the host, and gains by it."""
    return (
        machine.kind == "discrete"
        and recipe.engine.name == "unsloth"
        and recipe.grpo.optim not in TORCHAO_OPTIMIZERS
        and not recipe.grpo.optim.startswith("paged")
    )


def _park_optimizer(recipe: Recipe, machine: Machine) -> Settings:
    if not _state_can_move(recipe, machine) or recipe.memory.park_optimizer_during_rollout:
        return {}
    return {"memory.park_optimizer_during_rollout": True}


def _offload_optimizer(recipe: Recipe, machine: Machine) -> Settings:
    if not _state_can_move(recipe, machine) or recipe.memory.offload_optimizer_state:
        return {}
    return {"memory.offload_optimizer_state": True}


def _chunked_logits(recipe: Recipe, machine: Machine) -> Settings:
    if recipe.engine.name == "unsloth" or recipe.memory.use_liger_kernel:
        return {}
    return {"memory.use_liger_kernel": True}


def _engine_share(recipe: Recipe, machine: Machine) -> Settings:
    if recipe.rollout.kind != "vllm_colocate" or recipe.vllm.gpu_memory_utilization <= 0.2:
        return {}
    return {"vllm.gpu_memory_utilization": round(max(0.15, recipe.vllm.gpu_memory_utilization * 0.7), 2)}


def _more_engine_share(recipe: Recipe, machine: Machine) -> Settings:
    if recipe.rollout.kind == "native" or recipe.vllm.gpu_memory_utilization >= 0.85:
        return {}
    return {"vllm.gpu_memory_utilization": round(min(0.9, recipe.vllm.gpu_memory_utilization + 0.15), 2)}


def _batch(recipe: Recipe, machine: Machine) -> Settings:
    size = recipe.grpo.per_device_train_batch_size
    if size < 2 or size % 2:
        return {}
    return {
        "grpo.per_device_train_batch_size": size // 2,
        "grpo.gradient_accumulation_steps": recipe.grpo.gradient_accumulation_steps * 2,
    }


def _one_row(recipe: Recipe, machine: Machine) -> Settings:
    size = recipe.grpo.per_device_train_batch_size
    if size <= 2:
        return {}
    return {
        "grpo.per_device_train_batch_size": 1,
        "grpo.gradient_accumulation_steps": recipe.grpo.gradient_accumulation_steps * size,
    }


def _native(recipe: Recipe, machine: Machine) -> Settings:
    return {} if recipe.rollout.kind == "native" else {"rollout.kind": "native"}


def _no_reference(recipe: Recipe, machine: Machine) -> Settings:
    return {"grpo.beta": 0.0} if recipe.tuning.method == "full" and recipe.grpo.beta > 0 else {}


def _shorter(recipe: Recipe, machine: Machine) -> Settings:
    length = recipe.grpo.max_completion_length
    return {"grpo.max_completion_length": length // 2} if length >= 256 else {}


def _smaller_groups(recipe: Recipe, machine: Machine) -> Settings:
    if recipe.grpo.num_generations <= NUM_GENERATIONS_FLOOR:
        return {}
    return {"grpo.num_generations": NUM_GENERATIONS_FLOOR}


def _lora(recipe: Recipe, machine: Machine) -> Settings:
    return {"tuning.method": "lora"} if recipe.tuning.method == "full" else {}


def _qlora(recipe: Recipe, machine: Machine) -> Settings:
    if recipe.tuning.method == "qlora" or recipe.model.quantization != "none" or machine.kind == "cpu":
        return {}
    found: Settings = {"tuning.method": "qlora", "model.quantization": "bnb-4bit"}
    if recipe.rollout.kind == "vllm_colocate":
        found["rollout.kind"] = "native" if machine.is_unified else "unsloth_vllm"
        if not machine.is_unified:
            found["vllm.standby"] = True
    return found


LADDER: tuple[Rung, ...] = (
    Rung("no cost: the engine gives its memory back while training", _sleep),
    Rung("no cost in quality, the engine's share is smaller: fewer completions at once", _engine_share),
    Rung("no cost: the cache gets the room it lacks", _more_engine_share),
    Rung("little: 8-bit optimizer state", _small_optimizer),
    Rung("little: stochastic rounding instead of fp32 master weights", _stochastic),
    Rung("about a third more training time: activations are recomputed", _checkpointing),
    Rung("little time: activations wait on the host", _park_activations),
    Rung("little time: logits in chunks", _chunked_logits),
    Rung("a transfer a step: optimizer state waits on the host while sampling", _park_optimizer),
    Rung("a transfer a step: optimizer state lives on the host", _offload_optimizer),
    Rung("more time, same result: smaller micro-batch, more accumulation", _batch),
    Rung("more time, same result: one row at a time", _one_row),
    Rung("several times slower sampling: no engine on the card", _native),
    Rung("quality: no KL term, so no reference copy", _no_reference),
    Rung("quality: shorter completions", _shorter),
    Rung("quality: the smallest useful group", _smaller_groups),
    Rung("method: adapters instead of all weights", _lora, True),
    Rung("method: adapters on a 4-bit base", _qlora, True),
)


def find_remedies(recipe: Recipe, machine: Machine, card: ModelCard, report: FitReport) -> tuple[Remedy, ...]:
    """Single changes that make it fit, cheapest first. Where none does, the shortest ladder that keeps the method; the
    changes of method follow, and a ladder with them where nothing else is left."""
    singles = [(rung, _tried(recipe, machine, card, rung.change(recipe, machine), rung.cost)) for rung in LADDER]
    working = [(rung, remedy) for rung, remedy in singles if remedy is not None and remedy.verdict != "does_not_fit"]
    found = [remedy for rung, remedy in working if not rung.is_method]
    if not found:
        ladder = _climb(recipe, machine, card, report, [rung for rung in LADDER if not rung.is_method])
        found += [ladder] if ladder else []
    found += [remedy for rung, remedy in working if rung.is_method]
    if not found:
        ladder = _climb(recipe, machine, card, report, list(LADDER))
        found += [ladder] if ladder else []
    return tuple(found[:ENOUGH])


def _climb(recipe: Recipe, machine: Machine, card: ModelCard, report: FitReport, rungs: list[Rung]) -> Remedy | None:
    """Rungs in order, each kept only when it lowers the peak or mends the engine, until it fits; then needless ones
    are dropped again."""
    taken: list[tuple[Rung, Settings]] = []
    current, best, fits = recipe, report, None
    again = [rung for rung in rungs if rung.change in (_batch, _shorter, _engine_share)]
    for rung in (*rungs, *again, *again):
        settings = rung.change(current, machine)
        if not settings:
            continue
        candidate = with_settings(current, settings)
        tried = _report(candidate, machine, card)
        if tried is None or not _better(tried, best):
            continue
        current, best = candidate, tried
        taken.append((rung, settings))
        if best.verdict != "does_not_fit":
            fits = best
            break
    if fits is None:
        return None
    merged = _without_needless(recipe, machine, card, taken)
    final = _report(with_settings(recipe, merged), machine, card)
    assert final is not None
    costs = [rung.cost for rung, settings in taken if any(key in merged for key in settings)]
    return Remedy(_words(merged), "; ".join(dict.fromkeys(costs)), final.peak_bytes, final.verdict, final.step_seconds)


def _without_needless(
    recipe: Recipe, machine: Machine, card: ModelCard, taken: list[tuple[Rung, Settings]]
) -> Settings:
    kept = list(taken)
    for entry in list(taken)[:-1]:
        rest = [other for other in kept if other is not entry]
        tried = _report(with_settings(recipe, _merged(rest)), machine, card)
        if tried is not None and tried.verdict != "does_not_fit":
            kept = rest
    return _merged(kept)


def _merged(taken: list[tuple[Rung, Settings]]) -> Settings:
    merged: Settings = {}
    for _, settings in taken:
        merged.update(settings)
    return merged


def _better(tried: FitReport, best: FitReport) -> bool:
    if best.engine_problem and not tried.engine_problem:
        return True
    if tried.engine_problem and not best.engine_problem:
        return False
    return tried.peak_bytes < best.peak_bytes - 2**20 or tried.host_peak_bytes < best.host_peak_bytes - 2**20


def _tried(recipe: Recipe, machine: Machine, card: ModelCard, settings: Settings, cost: str) -> Remedy | None:
    if not settings:
        return None
    report = _report(with_settings(recipe, settings), machine, card)
    if report is None:
        return None
    return Remedy(_words(settings), cost, report.peak_bytes, report.verdict, report.step_seconds)


def _report(recipe: Recipe, machine: Machine, card: ModelCard) -> FitReport | None:
    """The report of a changed recipe; None when that combination is refused."""
    try:
        return report_of(recipe, workload_from_recipe(recipe, machine, card), machine)
    except SparkError:
        return None


def _words(settings: Settings) -> tuple[str, ...]:
    def value(item: object) -> str:
        return str(item).lower() if isinstance(item, bool) else f"{item:g}" if isinstance(item, float) else str(item)

    return tuple(f"{path}={value(item)}" for path, item in settings.items())
