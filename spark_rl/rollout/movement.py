"""Do the weights move at all? Pure judgement of counted changes; the engine's hooks count.

A step of 5e-7 on a bf16 weight of 0.02 is 1/120 of the spacing there: rounding to nearest loses it, for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Moved:
    """Trained weights of one dtype after the first steps."""

    num_weights: int
    num_changed: int
    num_coarse: int
    """Weights whose half spacing is above the largest step an optimizer of this learning rate makes: rounding to nearest can
    never move them."""
    num_coarse_changed: int
    coarse_expected: float
    """How many of those unbiased (stochastic) rounding would have moved."""

    @property
    def share(self) -> float:
        return self.num_changed / self.num_weights if self.num_weights else 0.0


@dataclass(frozen=True)
class MovementReport:
    steps: int
    learning_rate: float
    moved: Mapping[str, Moved]
    """By dtype of the trained weights."""
    had_gradient: bool

    @property
    def share(self) -> float:
        total = sum(one.num_weights for one in self.moved.values())
        return sum(one.num_changed for one in self.moved.values()) / total if total else 0.0

    def words(self) -> str:
        parts = [f"{dtype} {one.share:.1%}" for dtype, one in self.moved.items()]
        return f"{self.share:.1%} of the trained weights changed in {self.steps} steps at {self.learning_rate:g} ({', '.join(parts)})"


WAYS_OUT = (
    'tuning.master_weights = "fp32" (4 more bytes a weight)',
    'tuning.master_weights = "stochastic" with grpo.optim = "adamw_torch_8bit" (bf16 weights, steps survive on average)',
    'tuning.method = "lora" (adapters are fp32)',
)


def vanishes(report: MovementReport, least_share: float) -> bool:
    """True when training does nothing: few weights changed, and the coarse ones not even as chance would move them.

    Without a gradient (every group scored alike, no KL) nothing can move and nothing is judged.
    """
    if not report.had_gradient or report.share >= least_share:
        return False
    expected = sum(one.coarse_expected for one in report.moved.values())
    changed = sum(one.num_coarse_changed for one in report.moved.values())
    if expected < 10:
        # Nothing coarse: a small share of fine weights is sparsity (unused embeddings), unless nothing moved at all.
        return report.share == 0.0
    return changed < 0.25 * expected
