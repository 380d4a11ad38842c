"""Variants of GRPO are a remedy, not a setting: one is admitted only on its symptom. Pure function of the recipe."""

from __future__ import annotations

from spark_rl.errors import Refused
from spark_rl.recipe import Recipe

SYMPTOMS = {
    "dapo": "entropy collapse or degenerate long reasoning",
    "dr_grpo": "reward or length rising without quality",
    "gspo": "a mixture-of-experts model, or off-policy updates",
}


def variant_of(recipe: Recipe) -> str | None:
    """The variant a recipe asks for, or None for plain GRPO."""
    grpo = recipe.grpo
    if grpo.loss_type != "grpo":
        return grpo.loss_type
    if grpo.importance_sampling_level == "sequence":
        return "gspo"
    if grpo.epsilon_high != grpo.epsilon or grpo.mask_truncated_completions:
        return "dapo"
    return "dr_grpo" if grpo.scale_rewards == "none" else None


def check_variant(recipe: Recipe) -> None:
    """Refused unless the recipe is plain GRPO: no run before this one can have shown the symptom."""
    variant = variant_of(recipe)
    if variant is not None:
        symptom = SYMPTOMS.get(variant, "no symptom that we know of")
        raise Refused(
            f"the recipe asks for {variant}, a variant for: {symptom}",
            "train with plain GRPO first (grpo.loss_type = grpo) and read `spark-rl diagnose RUN`",
        )
