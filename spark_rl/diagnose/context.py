"""What is known about a run besides its numbers: settings that decide what a symptom means and which remedy applies.

In: the recipe a run directory keeps, or what a trainer's file happens to say. Out: a frozen `Context` where unknown
is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Context:
    """Settings of the run; None where the log does not tell."""

    max_completion_length: int | None = None
    learning_rate: float | None = None
    beta: float | None = None
    num_generations: int | None = None
    method: str | None = None
    """full, lora or qlora."""
    loss_type: str | None = None
    importance_sampling_level: str | None = None
    off_policy: bool | None = None
    """Whether a batch of completions is used for more than one optimizer step."""
    is_moe: bool | None = None
    """Whether the model is a mixture of experts."""
    heldout_change: tuple[float, float] | None = None
    """95 % interval of the change in held-out success."""
    part_meanings: Mapping[str, str] = field(default_factory=dict)
    """Reward part -> format, correct or other."""


def context_from_recipe(recipe: Mapping[str, Any], **known: Any) -> Context:
    """The context of one of our runs; `known` adds what the recipe does not hold. Missing values stay None."""
    grpo = recipe.get("grpo") or {}
    accumulation = grpo.get("gradient_accumulation_steps")
    per_generation = grpo.get("steps_per_generation") or accumulation
    off_policy = None
    if accumulation and grpo.get("num_iterations"):
        off_policy = grpo["num_iterations"] > 1 or per_generation > accumulation
    return Context(
        max_completion_length=grpo.get("max_completion_length"),
        learning_rate=grpo.get("learning_rate"),
        beta=grpo.get("beta"),
        num_generations=grpo.get("num_generations"),
        method=(recipe.get("tuning") or {}).get("method"),
        loss_type=grpo.get("loss_type"),
        importance_sampling_level=grpo.get("importance_sampling_level"),
        off_policy=off_policy,
        **known,
    )
