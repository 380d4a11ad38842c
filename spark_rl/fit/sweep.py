"""Many recipes at once: a grid of settings, and the largest model that each method can hold on a machine.

In: a recipe or nothing, a machine. Out: rows. No remedies are searched here, so that a thousand recipes take seconds.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from pydantic import ValidationError

from spark_rl.errors import ConfigError, Problem, SparkError, did_you_mean
from spark_rl.fit.remedies import Settings, with_settings
from spark_rl.fit.report import FitReport, fit_report
from spark_rl.host import Machine
from spark_rl.modelcard import ModelCard, find_card
from spark_rl.recipe import BASE_FILE, Recipe, layer_from_sets, resolve
from spark_rl.recipe_schema import SECTIONS

MOST_RECIPES = 100_000


@dataclass(frozen=True)
class Axis:
    """One key of the grid and the values it takes."""

    key: str
    values: tuple[object, ...]


def parse_axis(text: str) -> Axis:
    """`section.key=a,b,c`. Raises ConfigError for an unknown key, an empty list or a value of the wrong kind."""
    key, equals, raw = text.partition("=")
    key = key.strip()
    section, _, name = key.partition(".")
    if not equals or not raw.strip():
        raise ConfigError(f"--sweep {text!r} must read section.key=a,b,c")
    if section not in SECTIONS or name not in SECTIONS[section].model_fields:
        known = [f"{sec}.{field}" for sec, schema in SECTIONS.items() for field in schema.model_fields]
        raise ConfigError(f"--sweep: unknown key {key!r}", hint=did_you_mean(key, known))
    values = []
    for item in raw.split(","):
        layer, problems = layer_from_sets([f"{key}={item.strip()}"])
        if problems:
            raise ConfigError(problems)
        values.append(layer[section][name].value)
    return Axis(key, tuple(values))


@dataclass(frozen=True)
class SweepRow:
    settings: Settings
    report: FitReport | None
    problem: str | None
    """Why this combination is refused, or None."""


def sweep(recipe: Recipe, machine: Machine, axes: Sequence[Axis]) -> Iterator[SweepRow]:
    """Every combination, in order. A combination that is not a valid recipe or is refused carries the reason."""
    count = 1
    for axis in axes:
        count *= len(axis.values)
    if count > MOST_RECIPES:
        raise ConfigError(f"--sweep: {count:,} combinations are more than the {MOST_RECIPES:,} that make sense")

    @cache
    def card_of(model_id: str, revision: str | None) -> ModelCard:
        return find_card(model_id, revision)

    for values in itertools.product(*(axis.values for axis in axes)):
        settings: Settings = dict(zip((axis.key for axis in axes), values, strict=True))
        try:
            changed = checked_settings(recipe, settings)
            card = card_of(changed.model.id, changed.model.revision)
            yield SweepRow(settings, fit_report(changed, machine, with_remedies=False, card=card), None)
        except SparkError as error:
            yield SweepRow(settings, None, error.message)


def checked_settings(recipe: Recipe, settings: Settings) -> Recipe:
    """The recipe with these values, each checked against its section. Raises ConfigError naming the key."""
    plain = with_settings(recipe, settings)
    cleaned: Settings = {}
    for path in settings:
        section, _, name = path.partition(".")
        try:
            checked = SECTIONS[section].model_validate(getattr(plain, section).model_dump(warnings=False))
        except ValidationError as error:
            problems = [Problem("--sweep", path, fault["msg"]) for fault in error.errors()]
            raise ConfigError(problems) from None
        cleaned[path] = getattr(checked, name)
    return with_settings(recipe, cleaned)


# --------------------------------------------------------------------------------------------------- what fits

SIZES: tuple[tuple[str, str], ...] = (
    ("70b", "meta-llama/Llama-3.3-70B-Instruct"),
    ("32b", "Qwen/Qwen2.5-32B-Instruct"),
    ("30b-a3b", "Qwen/Qwen3-30B-A3B"),
    ("14b", "Qwen/Qwen2.5-14B-Instruct"),
    ("9b", "google/gemma-2-9b-it"),
    ("7-8b", "Qwen/Qwen3-8B"),
    ("3b", "Qwen/Qwen2.5-3B-Instruct"),
    ("1.5b", "Qwen/Qwen2.5-1.5B-Instruct"),
    ("0.5b", "Qwen/Qwen2.5-0.5B-Instruct"),
)
"""One well-known model for each size class, largest first."""

METHODS = ("full", "lora", "qlora")


@dataclass(frozen=True)
class LargestModel:
    method: str
    size_class: str | None
    """None when not even the smallest fits."""
    report: FitReport | None


def plan_settings(method: str, machine: Machine) -> list[str]:
    """The settings that a careful person would choose for this method on this machine."""
    shared = machine.kind == "discrete" and method != "full"
    chosen = [
        f"tuning.method={method}",
        "model.max_seq_length=1536",
        "grpo.per_device_train_batch_size=4",
        "grpo.gradient_accumulation_steps=8",
        f"model.quantization={'bnb-4bit' if method == 'qlora' else 'none'}",
    ]
    if method == "full":
        chosen += ["tuning.master_weights=stochastic", "grpo.optim=adamw_torch_8bit", "grpo.beta=0.0"]
    if machine.kind == "cpu":
        return [*chosen, "rollout.kind=native", "model.dtype=float32"]
    if shared:
        return [*chosen, "rollout.kind=unsloth_vllm", "vllm.standby=true", "memory.gradient_checkpointing=unsloth"]
    if method == "full":
        return [*chosen, "rollout.kind=vllm_colocate", f"vllm.kv_cache_memory_bytes={2 * 1024**3}"]
    return [*chosen, "rollout.kind=native"]


def what_fits(machine: Machine) -> list[LargestModel]:
    """The largest size class of each method whose plan does not miss the budget."""
    found = []
    for method in METHODS:
        if machine.kind == "cpu" and method == "qlora":
            found.append(LargestModel(method, None, None))
            continue
        largest = LargestModel(method, None, None)
        for size_class, model_id in SIZES:
            sets = [*plan_settings(method, machine), f'model.id="{model_id}"']
            recipe = resolve(str(BASE_FILE), sets=sets)
            report = fit_report(recipe, machine, with_remedies=False)
            if report.verdict != "does_not_fit":
                largest = LargestModel(method, size_class, report)
                break
        found.append(largest)
    return found
