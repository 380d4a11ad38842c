"""From files to one Recipe: base values <- profile <- task <- --set, with the source and reason of every value.

In: the name or path of a profile, the overrides of a task, `section.key=value` settings. Out: a frozen `Recipe`,
or one ConfigError that names every problem at once. Reads TOML; imports nothing heavy.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomlkit
from pydantic import ValidationError
from pydantic_core import ErrorDetails
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import Item, Table

from spark_rl.errors import ConfigError, Problem, did_you_mean
from spark_rl.recipe_schema import (
    NUM_GENERATIONS_FLOOR,
    SECTIONS,
    CanarySection,
    EngineSection,
    EvalSection,
    GrpoSection,
    GuardSection,
    InspectSection,
    LoraSection,
    MemorySection,
    ModelSection,
    ProbeSection,
    ProfileSection,
    PromptSection,
    RolloutSection,
    TuningSection,
    VllmSection,
)

BASE_FILE = Path(__file__).parent / "data" / "base.toml"


@dataclass(frozen=True)
class Origin:
    """Where a value came from and why it is what it is."""

    source: str
    reason: str | None


@dataclass(frozen=True)
class Setting:
    """One value of one layer, before validation."""

    value: Any
    origin: Origin


Layer = dict[str, dict[str, Setting]]
"""section -> key -> setting"""


@dataclass(frozen=True)
class Recipe:
    """Everything a run is asked to do, validated. `provenance` is keyed "section.key"."""

    name: str
    profile: ProfileSection
    model: ModelSection
    engine: EngineSection
    tuning: TuningSection
    lora: LoraSection
    grpo: GrpoSection
    rollout: RolloutSection
    vllm: VllmSection
    memory: MemorySection
    canary: CanarySection
    prompt: PromptSection
    probe: ProbeSection
    inspect: InspectSection
    eval: EvalSection
    guard: GuardSection
    provenance: Mapping[str, Origin]

    @property
    def steps_per_generation(self) -> int:
        return self.grpo.steps_per_generation or self.grpo.gradient_accumulation_steps

    @property
    def generation_batch_size(self) -> int:
        """Completions sampled at once: per_device_train_batch_size x steps_per_generation (TRL's rule, one process)."""
        return self.grpo.per_device_train_batch_size * self.steps_per_generation

    @property
    def prompts_per_generation(self) -> int:
        return self.generation_batch_size // self.grpo.num_generations

    def to_json(self) -> dict[str, Any]:
        """Sections as plain values, and the origin of each."""
        return {
            "name": self.name,
            **{section: getattr(self, section).model_dump(mode="json") for section in SECTIONS},
            "provenance": {
                key: {"source": origin.source, "reason": origin.reason} for key, origin in self.provenance.items()
            },
        }


def recipe_from_json(saved: Mapping[str, Any]) -> Recipe:
    """The recipe that a run directory keeps. Raises pydantic's ValidationError when a newer version wrote it."""
    sections = {section: SECTIONS[section].model_validate(saved[section]) for section in SECTIONS}
    provenance = {key: Origin(**origin) for key, origin in saved["provenance"].items()}
    return Recipe(name=saved["name"], provenance=provenance, **sections)  # type: ignore[arg-type]


def profiles_dir() -> Path:
    """The shipped profiles: beside the package, or where SPARK_RL_PROFILES says."""
    return Path(os.environ.get("SPARK_RL_PROFILES") or Path(__file__).resolve().parents[1] / "profiles")


def list_profiles() -> list[Path]:
    return sorted(profiles_dir().glob("*.toml"))


def find_profile(profile: str) -> Path:
    """A shipped profile's name, or the path of a file. Raises ConfigError naming the nearest."""
    if profile.endswith(".toml") or "/" in profile:
        path = Path(profile)
        if path.is_file():
            return path
        raise ConfigError(f"{profile}: no such profile file", "spark-rl profiles ls shows the shipped ones")
    path = profiles_dir() / f"{profile}.toml"
    if path.is_file():
        return path
    hint = did_you_mean(profile, [known.stem for known in list_profiles()]) or "spark-rl profiles ls shows them all"
    raise ConfigError(f"no profile named {profile!r}", hint)


def read_toml(path: Path) -> tomlkit.TOMLDocument:
    """A TOML file with its comments. Raises ConfigError with the line where it cannot be read."""
    try:
        return tomlkit.parse(path.read_text(encoding="utf-8-sig"))
    except TOMLKitError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None


def layer_from_tables(tables: Mapping[str, Any], source: str, prefix: str = "") -> tuple[Layer, list[Problem]]:
    """Sections of a parsed document as a layer. Values outside a table, and unknown sections and keys, are problems.

    `prefix` stands before every key that a problem names: "override." in a task file.
    """
    layer: Layer = {}
    problems: list[Problem] = []
    for section, table in tables.items():
        schema = SECTIONS.get(section)
        if schema is None:
            problems.append(Problem(source, prefix + section, "unknown section", did_you_mean(section, SECTIONS)))
        elif not isinstance(table, Mapping):
            problems.append(Problem(source, prefix + section, "must be a table", f"write [{prefix}{section}]"))
        else:
            for key, value in table.items():
                if key not in schema.model_fields:
                    problems.append(_unknown_key(source, section, key, prefix))
                else:
                    layer.setdefault(section, {})[key] = Setting(_plain(value), Origin(source, _comment(table, key)))
    return layer, problems


def check_layer(layer: Layer, prefix: str = "") -> Iterator[Problem]:
    """Values of one layer that have a wrong type or range, whatever the other layers will add."""
    for section, settings in layer.items():
        try:
            SECTIONS[section].model_validate({key: setting.value for key, setting in settings.items()})
        except ValidationError as error:
            faults = [fault for fault in error.errors() if fault["loc"] and fault["loc"][0] in settings]
            yield from _validation_problems(section, settings, faults, prefix)


def layer_from_sets(sets: Sequence[str]) -> tuple[Layer, list[Problem]]:
    """`section.key=value` settings of the command line; the value is TOML, a bare word is a string."""
    layer: Layer = {}
    problems: list[Problem] = []
    for text in sets:
        path, equals, raw = text.partition("=")
        section, dot, key = path.strip().partition(".")
        if not equals or not dot:
            problems.append(Problem("--set", text, "must read section.key=value", "e.g. --set grpo.num_generations=8"))
        elif section not in SECTIONS:
            problems.append(Problem("--set", path, "unknown section", did_you_mean(section, SECTIONS)))
        elif key not in SECTIONS[section].model_fields:
            problems.append(_unknown_key("--set", section, key))
        else:
            setting = Setting(_toml_value(raw.strip()), Origin("--set", "given on the command line"))
            layer.setdefault(section, {})[key] = setting
    return layer, problems


def resolve(
    profile: str,
    task_layer: Layer | None = None,
    sets: Sequence[str] = (),
) -> Recipe:
    """Merge the layers and validate the result. Raises ConfigError with every problem at once."""
    path = find_profile(profile)
    base, problems = layer_from_tables(read_toml(BASE_FILE), "base")
    own, own_problems = layer_from_tables(read_toml(path), _display(path))
    chosen, set_problems = layer_from_sets(sets)
    problems += own_problems + set_problems
    merged = merge_layers(base, own, task_layer or {}, chosen)
    sections: dict[str, Any] = {}
    for section, schema in SECTIONS.items():
        settings = merged.get(section, {})
        try:
            sections[section] = schema.model_validate({key: setting.value for key, setting in settings.items()})
        except ValidationError as error:
            problems += _validation_problems(section, settings, error.errors())
    if len(sections) < len(SECTIONS):
        raise ConfigError(problems)
    provenance = {f"{s}.{key}": setting.origin for s in SECTIONS for key, setting in merged.get(s, {}).items()}
    recipe = Recipe(name=path.stem, provenance=provenance, **sections)
    problems += check_recipe(recipe)
    if problems:
        raise ConfigError(problems)
    return recipe


def merge_layers(*layers: Layer) -> Layer:
    """Later layers win, key by key."""
    merged: Layer = {}
    for layer in layers:
        for section, settings in layer.items():
            merged.setdefault(section, {}).update(settings)
    return merged


def check_recipe(recipe: Recipe) -> Iterator[Problem]:
    """Values that are each allowed but not together, and the floors of the reference recipe."""
    grpo = recipe.grpo

    def problem(key: str, message: str, hint: str | None = None) -> Problem:
        origin = recipe.provenance.get(key)
        return Problem(origin.source if origin else recipe.name, key, message, hint)

    if grpo.num_generations < NUM_GENERATIONS_FLOOR:
        why = (
            "the deviation of a single value is undefined and poisons every advantage"
            if grpo.num_generations == 1
            else "smaller groups have no usable mean and deviation"
        )
        yield problem(
            "grpo.num_generations",
            f"{grpo.num_generations} is below the floor of {NUM_GENERATIONS_FLOOR}: {why}",
            f"use {NUM_GENERATIONS_FLOOR} or more; lower per_device_train_batch_size to save memory instead",
        )
    total = recipe.generation_batch_size
    if total % grpo.num_generations:
        yield problem("grpo.num_generations", *batch_arithmetic(recipe))
    if recipe.tuning.method == "qlora" and recipe.model.quantization != "bnb-4bit":
        yield problem("tuning.method", 'qlora needs model.quantization = "bnb-4bit"', "or use method = lora")
    if recipe.tuning.method == "full" and recipe.model.quantization != "none":
        yield problem(
            "model.quantization",
            "full fine-tuning cannot train quantised weights",
            "use lora or qlora, or quantization = none",
        )
    if recipe.prompt.max_prompt_length + grpo.max_completion_length > recipe.model.max_seq_length:
        needed = recipe.prompt.max_prompt_length + grpo.max_completion_length
        yield problem(
            "model.max_seq_length",
            f"{recipe.model.max_seq_length} is shorter than max_prompt_length + max_completion_length = {needed}",
            f"set it to {needed} or more",
        )
    if recipe.rollout.kind == "vllm_server" and not recipe.rollout.server_base_url:
        yield problem(
            "rollout.server_base_url", "missing: rollout.kind is vllm_server", "give the address of `vllm serve`"
        )
    guard = recipe.guard
    for high, low in (("unified_shed_gib", "unified_floor_gib"), ("host_shed_gib", "host_floor_gib")):
        if getattr(guard, high) <= getattr(guard, low):
            yield problem(f"guard.{high}", f"must be above guard.{low}", "the guard sheds first and stops later")
    if not guard.resume_celsius < guard.pause_celsius < guard.stop_celsius:
        yield problem("guard.pause_celsius", "must lie between resume_celsius and stop_celsius")


def batch_arithmetic(recipe: Recipe) -> tuple[str, str]:
    """What TRL and Unsloth would each do with batch sizes that do not divide, and the group sizes that would."""
    grpo = recipe.grpo
    total = recipe.generation_batch_size
    divisors = [count for count in range(2, total + 1) if total % count == 0]
    size = grpo.per_device_train_batch_size
    unsloth_size = size if total % grpo.num_generations == 0 else grpo.num_generations
    message = (
        f"{size} per device x {recipe.steps_per_generation} = {total} completions a step do not divide by "
        f"num_generations {grpo.num_generations}: TRL refuses; Unsloth would silently train with "
        f"per_device_train_batch_size {unsloth_size}"
    )
    allowed = [count for count in divisors if count >= NUM_GENERATIONS_FLOOR]
    hint = f"group sizes that divide {total}: {divisors}"
    hint += (
        ""
        if allowed
        else f"; none reaches {NUM_GENERATIONS_FLOOR}: raise per_device_train_batch_size or gradient_accumulation_steps"
    )
    return message, hint


def _unknown_key(source: str, section: str, key: str, prefix: str = "") -> Problem:
    fields = SECTIONS[section].model_fields
    hint = did_you_mean(key, fields)
    if hint is None:
        homes = [other for other, schema in SECTIONS.items() if key in schema.model_fields]
        hint = f"{key} belongs to [{homes[0]}]" if homes else f"[{section}] has: {', '.join(fields)}"
    return Problem(source, f"{prefix}{section}.{key}", "unknown key", hint)


def _validation_problems(
    section: str, settings: Mapping[str, Setting], faults: Sequence[ErrorDetails], prefix: str = ""
) -> Iterator[Problem]:
    for fault in faults:
        key = str(fault["loc"][0]) if fault["loc"] else ""
        setting = settings.get(key)
        source = setting.origin.source if setting else "base"
        given = f"{setting.value!r}: " if setting else ""
        yield Problem(source, f"{prefix}{section}.{key}", given + fault["msg"][0].lower() + fault["msg"][1:])


def _plain(value: Any) -> Any:
    return value.unwrap() if isinstance(value, Item) else value


def _comment(table: Any, key: str) -> str | None:
    item = table.value.item(key) if isinstance(table, Table) else None
    comment = item.trivia.comment if isinstance(item, Item) else ""
    return comment.lstrip("# ").strip() or None


def _toml_value(raw: str) -> Any:
    try:
        return _plain(tomlkit.value(raw))
    except (TOMLKitError, ValueError):
        return raw


def _display(path: Path) -> str:
    """A path as a person would type it from here."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
