"""Rewards: verifiers, the composite, and the rules at the boundary. Each is a plain callable in TRL's shape.

`from spark_rl.rewards import MathAnswer` works in any TRL script; nothing heavy is imported until a reward is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spark_rl.rewards.base import Reward as Reward
    from spark_rl.rewards.base import RewardBug as RewardBug
    from spark_rl.rewards.base import RewardPart as RewardPart
    from spark_rl.rewards.base import Verdict as Verdict
    from spark_rl.rewards.composite import Composite as Composite
    from spark_rl.rewards.composite import Scored as Scored
    from spark_rl.rewards.format import Format as Format
    from spark_rl.rewards.json_reward import JsonSchema as JsonSchema
    from spark_rl.rewards.length import LengthPenalty as LengthPenalty
    from spark_rl.rewards.length import WithLengthPenalty as WithLengthPenalty
    from spark_rl.rewards.matching import ExactMatch as ExactMatch
    from spark_rl.rewards.math_reward import MathAnswer as MathAnswer
    from spark_rl.rewards.pattern import RegexMatch as RegexMatch
    from spark_rl.rewards.reasoning_gym import ReasoningGym as ReasoningGym
    from spark_rl.rewards.registry import build_reward as build_reward
    from spark_rl.rewards.registry import check_parts as check_parts
    from spark_rl.rewards.tool_call import ToolCall as ToolCall
    from spark_rl.rewards.unit_tests import UnitTests as UnitTests
    from spark_rl.rewards.user_function import UserFunction as UserFunction

_HOMES = {
    "Reward": "base",
    "RewardBug": "base",
    "RewardPart": "base",
    "Verdict": "base",
    "Composite": "composite",
    "Scored": "composite",
    "Format": "format",
    "JsonSchema": "json_reward",
    "LengthPenalty": "length",
    "WithLengthPenalty": "length",
    "ExactMatch": "matching",
    "RegexMatch": "pattern",
    "MathAnswer": "math_reward",
    "ReasoningGym": "reasoning_gym",
    "build_reward": "registry",
    "check_parts": "registry",
    "ToolCall": "tool_call",
    "UnitTests": "unit_tests",
    "UserFunction": "user_function",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
