"""A task file: where the prompts come from, how they are worded, and what counts as success.

In: the name of a shipped task or the path of a TOML file. Out: a frozen `Task`, or one ConfigError with every problem.
Reading the data itself is `spark_rl.dataset`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tomlkit
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from spark_rl.errors import ConfigError, Problem, did_you_mean
from spark_rl.recipe import Layer, check_layer, layer_from_tables, read_toml
from spark_rl.rewards.base import Reward, RewardPart
from spark_rl.rewards.registry import build_reward, check_parts

TASKS_DIR = Path(__file__).parent / "data" / "tasks"


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TaskTable(_Table):
    name: str
    title: str
    demo: bool = False
    """Shipped for showing and testing; only such a task may be signed by its oracle or a script."""
    oracle: str | None = None
    """Demo tasks: the program that knows the truth (see spark_rl.gate.oracles)."""


class DataTable(_Table):
    """Exactly one source: files (train, heldout), a hub data set, or a reasoning-gym task."""

    train: str | None = None
    """File (.jsonl, .csv, .parquet), or the split's name for a hub data set."""
    heldout: str | None = None
    """File or split; when it is left out, heldout_size rows are split off by content."""
    hub: str | None = None
    """Hub data set id."""
    hub_config: str | None = None
    reasoning_gym: str | None = None
    """A reasoning-gym task name."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the reasoning-gym task."""
    train_size: Annotated[int, Field(gt=0)] | None = None
    heldout_size: Annotated[int, Field(gt=0)] = 200
    seed: int = 0
    columns: dict[str, str] = Field(default_factory=dict)
    """our name -> column of the file"""


class PromptTable(_Table):
    template: str
    """Text with {column} places."""
    chat: bool = True
    """Wrap in the model's chat template; false = plain text."""
    system: str | None = None
    examples: tuple[tuple[str, str], ...] = ()
    """Example turns before the question: (user, assistant)."""
    enable_thinking: bool | None = None
    prefill: str | None = None
    """Start of the assistant's answer."""
    template_arguments: dict[str, Any] = Field(default_factory=dict)
    """Extra arguments of the chat template."""


class ScoringTable(_Table):
    gate_on_format: bool = False
    """Correctness counts only where every format part holds."""


class _RewardTable(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)

    name: str
    kind: str
    weight: float = 1.0
    means: Literal["format", "correct", "other"] = "other"


@dataclass(frozen=True)
class Task:
    """One task file, read and checked."""

    path: Path
    task: TaskTable
    data: DataTable
    prompt: PromptTable
    scoring: ScoringTable
    reward_parts: tuple[RewardPart, ...]
    overrides: Layer
    """Recipe values that this task sets: [override.grpo] and so on."""

    @property
    def name(self) -> str:
        return self.task.name

    @property
    def base_dir(self) -> Path:
        return self.path.parent

    def build_rewards(self) -> list[tuple[RewardPart, Reward[Any]]]:
        """Each part with its reward. Raises ConfigError for unknown kinds and options."""
        return [(part, build_reward(part, self.base_dir)) for part in self.reward_parts]

    def file_digest(self) -> str:
        """SHA-256 of the task file as it is on disk."""
        return hashlib.sha256(self.path.read_bytes()).hexdigest()


def list_tasks() -> list[Path]:
    return sorted(TASKS_DIR.glob("*.toml"))


def find_task(task: str) -> Path:
    """A shipped task's name or a file's path. Raises ConfigError naming the nearest."""
    if task.endswith(".toml") or "/" in task:
        path = Path(task)
        if path.is_file():
            return path
        raise ConfigError(f"{task}: no such task file", "shipped tasks: " + ", ".join(p.stem for p in list_tasks()))
    path = TASKS_DIR / f"{task}.toml"
    if path.is_file():
        return path
    names = [known.stem for known in list_tasks()]
    raise ConfigError(f"no task named {task!r}", did_you_mean(task, names) or "shipped tasks: " + ", ".join(names))


def load_task(task: str | Path) -> Task:
    """Read and check a task file. Raises ConfigError with every problem in it."""
    path = find_task(str(task))
    document = read_toml(path)
    tables = document.unwrap()
    problems: list[Problem] = []
    known: dict[str, type[BaseModel]] = {
        "task": TaskTable,
        "data": DataTable,
        "prompt": PromptTable,
        "scoring": ScoringTable,
    }
    for name in tables:
        if name not in (*known, "reward", "override"):
            problems.append(
                Problem(str(path), name, "unknown table", did_you_mean(name, (*known, "reward", "override")))
            )
    parsed: dict[str, Any] = {}
    for name, schema in known.items():
        content = tables.get(name, {})
        if name not in tables and name != "scoring":
            problems.append(Problem(str(path), name, "missing table", f"add [{name}]"))
            continue
        try:
            parsed[name] = schema.model_validate(content)
        except ValidationError as error:
            problems += _faults(path, name, schema, error)
    parts, part_problems = _reward_parts(path, tables.get("reward", []))
    problems += part_problems
    overrides, override_problems = _overrides(path, document)
    problems += override_problems
    if "data" in parsed:
        problems += _check_source(path, parsed["data"])
    if "task" in parsed and parsed["task"].oracle and not parsed["task"].demo:
        problems.append(
            Problem(str(path), "task.oracle", "only a demo task may have an oracle", "a person reads yours")
        )
    if problems:
        raise ConfigError(problems)
    return Task(path, parsed["task"], parsed["data"], parsed["prompt"], parsed["scoring"], tuple(parts), overrides)


def _reward_parts(path: Path, entries: Any) -> tuple[list[RewardPart], list[Problem]]:
    where = str(path)
    if not isinstance(entries, list) or not entries:
        return [], [Problem(where, "reward", "no reward part", "add at least one [[reward]]")]
    parts: list[RewardPart] = []
    problems: list[Problem] = []
    for index, entry in enumerate(entries):
        try:
            table = _RewardTable.model_validate(entry)
        except ValidationError as error:
            problems += _faults(path, f"reward[{index}]", _RewardTable, error)
            continue
        options = dict(table.model_extra or {})
        parts.append(RewardPart(table.name, table.kind, table.weight, table.means, options))
    if not problems:
        problems += check_parts(parts, where)
        if not any(part.means == "correct" for part in parts):
            hint = 'mark the part that decides success with means = "correct"'
            problems.append(Problem(where, "reward", "no part means correct", hint))
    return parts, problems


def _overrides(path: Path, document: tomlkit.TOMLDocument) -> tuple[Layer, list[Problem]]:
    tables = document.get("override", {})
    if not isinstance(tables, Mapping):
        return {}, [Problem(str(path), "override", "must hold tables", "write [override.grpo]")]
    layer, problems = layer_from_tables(tables, str(path), "override.")
    return layer, [*problems, *check_layer(layer, "override.")]


def _check_source(path: Path, data: DataTable) -> list[Problem]:
    where = str(path)
    sources = [name for name in ("hub", "reasoning_gym") if getattr(data, name)]
    if len(sources) == 2:
        return [Problem(where, "data", "names two sources: hub and reasoning_gym", "keep one")]
    if not sources and not data.train:
        return [
            Problem(where, "data.train", "missing", "name a .jsonl, .csv or .parquet file, a hub id, or reasoning_gym")
        ]
    if data.reasoning_gym and (data.train or data.heldout):
        return [Problem(where, "data.train", "has no effect with reasoning_gym", "use train_size and heldout_size")]
    if data.options and not data.reasoning_gym:
        return [Problem(where, "data.options", "has no effect without reasoning_gym", "remove it")]
    return []


def _faults(path: Path, table: str, schema: type[BaseModel], error: ValidationError) -> list[Problem]:
    problems = []
    for fault in error.errors():
        key = ".".join(str(step) for step in fault["loc"])
        if fault["type"] == "extra_forbidden":
            hint = did_you_mean(key, schema.model_fields) or "known keys: " + ", ".join(schema.model_fields)
            problems.append(Problem(str(path), f"{table}.{key}", "unknown key", hint))
        else:
            problems.append(Problem(str(path), f"{table}.{key}", fault["msg"][0].lower() + fault["msg"][1:]))
    return problems
