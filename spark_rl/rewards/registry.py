"""Which kinds of reward exist, and how a part of a task file becomes one.

In: a RewardPart and the folder its paths are relative to. Out: a Reward, or a ConfigError naming the nearest kind.
A kind's module is imported only when a part of that kind is built.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, cast

from spark_rl.errors import ConfigError, Problem, Refused, did_you_mean
from spark_rl.rewards.base import Reward, RewardPart

KINDS: dict[str, str] = {
    "exact": "spark_rl.rewards.matching:ExactMatch",
    "regex": "spark_rl.rewards.pattern:RegexMatch",
    "format": "spark_rl.rewards.format:Format",
    "python": "spark_rl.rewards.user_function:UserFunction",
    "math": "spark_rl.rewards.math_reward:MathAnswer",
    "json_schema": "spark_rl.rewards.json_reward:JsonSchema",
    "tool_call": "spark_rl.rewards.tool_call:ToolCall",
    "reasoning_gym": "spark_rl.rewards.reasoning_gym:ReasoningGym",
    "length_penalty": "spark_rl.rewards.length:LengthPenalty",
    "unit_tests": "spark_rl.rewards.unit_tests:UnitTests",
}


JUDGES = frozenset({"judge", "llm_judge", "reward_model"})
"""Kinds that are refused by name."""


def reward_class(kind: str) -> type[Reward[Any]]:
    """The class behind a kind."""
    if kind in JUDGES:
        raise Refused(
            f"reward kind {kind!r}: a model as judge is not accepted as a reward",
            "it would need measured agreement with human labels on a sealed split; use a verifier, or score offline",
        )
    if kind not in KINDS:
        raise ConfigError(
            f"unknown reward kind {kind!r}", did_you_mean(kind, KINDS) or "known kinds: " + ", ".join(KINDS)
        )
    module_name, class_name = KINDS[kind].split(":")
    return cast(type[Reward[Any]], getattr(import_module(module_name), class_name))


def build_reward(part: RewardPart, base_dir: Path) -> Reward[Any]:
    """The reward that a part describes. Unknown kinds and options raise ConfigError (exit 2)."""
    return reward_class(part.kind)(name=part.name, base_dir=base_dir, **dict(part.options))


def check_parts(parts: list[RewardPart], where: str = "task") -> list[Problem]:
    """What is wrong with a set of parts before any is built: names, weights, and promises a composite must keep."""
    problems = [
        Problem(where, part.name, f"unknown reward kind {part.kind!r}", did_you_mean(part.kind, KINDS))
        for part in parts
        if part.kind not in KINDS
    ]
    names = [part.name for part in parts]
    problems += [
        Problem(where, name, "two reward parts have this name") for name in sorted(set(names)) if names.count(name) > 1
    ]
    correct = [part for part in parts if part.means == "correct"]
    if correct and not any(part.means == "format" and part.weight > 0 for part in parts):
        problems.append(
            Problem(
                where,
                correct[0].name,
                "a wrong answer that is well formed would score the same as a malformed one",
                'add a part with means = "format" and a weight above 0',
            )
        )
    return problems
