"""Names of a GRPO run's numbers: TRL's current name, what to call it on screen, its unit and the ends of its axis.

Old names, notebook tables and exports are mapped to TRL's current ones. Imports nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """One column of a log: how to name and draw it."""

    key: str
    """TRL's current name."""
    title: str
    unit: str
    low: float | None = None
    """Lower end of its axis; None follows the data."""
    high: float | None = None
    """Upper end of its axis; None follows the data."""
    means: str = ""
    """One sentence for help."""


CATALOGUE: tuple[Metric, ...] = (
    Metric("reward", "Reward", "", means="Mean of the weighted sum of all reward parts."),
    Metric("reward_std", "Reward spread", "", 0.0, means="Deviation over the batch, or mean over groups (older TRL)."),
    Metric("correct", "Success", "share", 0.0, 1.0, "Share of completions whose correctness parts are all satisfied."),
    Metric(
        "frac_reward_zero_std",
        "Groups without signal",
        "share",
        0.0,
        1.0,
        "TRL's share of groups whose completions all scored the same; too low where scores are not whole numbers.",
    ),
    Metric(
        "groups/zero_share",
        "Groups without signal",
        "share",
        0.0,
        1.0,
        "Share of groups whose completions all scored the same, counted from the completions.",
    ),
    Metric("groups/floor_share", "All failed", "share", 0.0, 1.0, "Groups without signal at the bottom of the reward."),
    Metric("groups/ceiling_share", "All solved", "share", 0.0, 1.0, "Groups whose completions are all correct."),
    Metric("groups/plateau_share", "Alike between", "share", 0.0, 1.0, "Groups without signal between both ends."),
    Metric("kl", "KL to the start", "nats", 0.0, means="Mean divergence a token from the model before training."),
    Metric("entropy", "Entropy", "nats", 0.0, means="Mean entropy of the next-token distribution."),
    Metric("loss", "Loss", "", means="Near 0 by construction while updates are on-policy; not a sign of progress."),
    Metric("grad_norm", "Gradient norm", "", 0.0, means="Before clipping."),
    Metric("learning_rate", "Learning rate", "", 0.0),
    Metric("completions/mean_length", "Mean length", "tokens", 0.0),
    Metric("completions/min_length", "Shortest", "tokens", 0.0),
    Metric("completions/max_length", "Longest", "tokens", 0.0),
    Metric("completions/mean_terminated_length", "Mean length of finished ones", "tokens", 0.0),
    Metric("completions/min_terminated_length", "Shortest finished", "tokens", 0.0),
    Metric("completions/max_terminated_length", "Longest finished", "tokens", 0.0),
    Metric(
        "completions/clipped_ratio",
        "Cut off",
        "share",
        0.0,
        1.0,
        "Share of completions that reached max_completion_length without ending.",
    ),
    Metric("clip_ratio/region_mean", "Clipped ratios", "share", 0.0, 1.0, "Share of tokens outside the trust region."),
    Metric("clip_ratio/low_mean", "Clipped below", "share", 0.0, 1.0),
    Metric("clip_ratio/high_mean", "Clipped above", "share", 0.0, 1.0),
    Metric(
        "sampling/sampling_logp_difference/mean",
        "Sampler against trainer",
        "nats",
        0.0,
        means="Mean difference of log-probabilities between the sampling engine and the trainer.",
    ),
    Metric("sampling/sampling_logp_difference/max", "Sampler against trainer, worst", "nats", 0.0),
    Metric("sampling/importance_sampling_ratio/mean", "Importance ratio", "", 0.0),
    Metric("step_time", "Step time", "s", 0.0),
    Metric("num_tokens", "Tokens seen", "tokens", 0.0),
    Metric("epoch", "Epoch", "", 0.0),
)

ALIASES: Mapping[str, str] = {
    "completion_length": "completions/mean_length",
    "Step": "step",
    "global_step": "step",
    "train/global_step": "step",
    "_step": "step",
    "Training Loss": "loss",
    "Epoch": "epoch",
}
"""Names of older TRL, of notebooks' tables and of exports -> TRL's current name."""

BOOKKEEPING = frozenset({"v", "t", "nonfinite", "_timestamp", "_runtime", "_wandb"})
"""Columns about the row, not about the run."""

SUMMARY_KEYS = frozenset(
    {"train_runtime", "train_samples_per_second", "train_steps_per_second", "total_flos", "train_tokens_per_second"}
)
"""The closing row that Transformers appends; it is not a step."""

_BY_KEY: Mapping[str, Metric] = {metric.key: metric for metric in CATALOGUE}


def metric_of(key: str) -> Metric:
    """The catalogue's entry, or one made from the name: a reward part, or whatever a user logs."""
    canonical = canonical_key(key)
    known = _BY_KEY.get(canonical)
    if known is not None:
        return known
    if canonical.startswith("rewards/"):
        name, _, statistic = canonical.removeprefix("rewards/").rpartition("/")
        return Metric(canonical, name if statistic == "mean" else f"{name} spread", "")
    return Metric(canonical, canonical, "")


def canonical_key(name: str) -> str:
    """TRL's current name of a column, from old names, notebook tables and exports that prefix a run's name."""
    key = name.strip()
    if " - " in key:  # an export of several runs: "my-run - train/reward"
        key = key.rsplit(" - ", 1)[1]
    if key in ALIASES:
        return ALIASES[key]
    key = "eval_" + key.removeprefix("eval/") if key.startswith("eval/") else key.removeprefix("train/")
    key = ALIASES.get(key, key)
    if key.startswith("rewards/") and not (key.count("/") > 1 and key.endswith(("/mean", "/std"))):
        return f"{key}/mean"
    return key


def part_key(name: str) -> str:
    """The column of a reward part's mean."""
    return f"rewards/{name}/mean"


def is_part_mean(key: str) -> bool:
    return key.startswith("rewards/") and key.endswith("/mean")
