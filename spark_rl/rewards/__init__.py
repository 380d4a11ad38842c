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
    from spark_rl.rewards.matching import ExactMatch as ExactMatch
    from spark_rl.rewards.matching import RegexMatch as RegexMatch
    from spark_rl.rewards.registry import build_reward as build_reward
    from spark_rl.rewards.user_function import UserFunction as UserFunction

_HOMES = {
    "Reward": "base",
    "RewardBug": "base",
    "RewardPart": "base",
    "Verdict": "base",
    "Composite": "composite",
    "Scored": "composite",
    "Format": "format",
    "ExactMatch": "matching",
    "RegexMatch": "matching",
    "build_reward": "registry",
    "UserFunction": "user_function",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
