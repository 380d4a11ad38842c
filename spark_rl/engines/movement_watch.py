"""Counts which trained weights change in the first optimizer steps, on a sample of each tensor, for `rollout.movement`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import TrainerCallback

from spark_rl.errors import TrainingFailed
from spark_rl.recipe import Recipe
from spark_rl.rollout.movement import WAYS_OUT, Moved, MovementReport, vanishes

SAMPLES_PER_TENSOR = 65_536
"""Evenly spaced elements of each trained tensor: a share of 1 % is then known to 0.04 points, for some MiB of copies."""

LARGEST_STEP = 4.0
"""In learning rates: Adam's first step is one, later ones stay below this."""

TYPICAL_STEP = 0.5
"""In learning rates: what a weight with a noisy gradient moves, for the expectation of stochastic rounding."""


class MovementWatch(TrainerCallback):  # type: ignore[misc]
    """Judges once, after `canary.moved_steps` optimizer steps."""

    def __init__(self, recipe: Recipe, report: Callable[[MovementReport], None]) -> None:
        self._steps, self._least = recipe.canary.moved_steps, recipe.canary.moved_share
        self._report = report
        self._before: dict[str, torch.Tensor] = {}
        self._left = self._steps
        self._rates: list[float] = []
        self._had_gradient = False

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        self._before = {name: _sample(parameter).clone() for name, parameter in _trained(model)}

    def on_pre_optimizer_step(
        self, args: Any, state: Any, control: Any, model: Any = None, optimizer: Any = None, **_: Any
    ) -> None:
        if self._left <= 0:
            return
        self._rates.append(float(optimizer.param_groups[0]["lr"]))
        self._had_gradient = self._had_gradient or any(
            parameter.grad is not None and bool(parameter.grad.any()) for _, parameter in _trained(model)
        )

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        if self._left <= 0 or not self._before:
            return
        self._left -= 1
        if self._left:
            return
        total_rate = sum(self._rates)
        moved = count_moved(
            self._before, {name: _sample(p) for name, p in _trained(model)}, max(self._rates), total_rate
        )
        self._before = {}
        report = MovementReport(self._steps, max(self._rates), moved, self._had_gradient)
        self._report(report)
        if vanishes(report, self._least):
            raise TrainingFailed(
                f"training does nothing: {report.words()}; the updates vanish in rounding", "; or ".join(WAYS_OUT)
            )


def _trained(model: Any) -> list[tuple[str, torch.nn.Parameter]]:
    return [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]


def _sample(parameter: torch.Tensor) -> torch.Tensor:
    flat = parameter.detach().reshape(-1)
    return flat[:: max(1, flat.numel() // SAMPLES_PER_TENSOR)]


def count_moved(
    before: dict[str, torch.Tensor], after: dict[str, torch.Tensor], rate: float, total_rate: float
) -> dict[str, Moved]:
    """Per dtype; `rate` is the largest learning rate of the steps, `total_rate` their sum."""
    found: dict[str, Moved] = {}
    for name, old in before.items():
        new = after.get(name)
        if new is None or new.shape != old.shape:
            continue
        dtype = str(old.dtype).removeprefix("torch.")
        changed = old != new
        half_spacing = (
            torch.exp2(torch.floor(torch.log2(old.abs().double().clamp_min(1e-30)))) * torch.finfo(old.dtype).eps / 2
        )
        coarse = half_spacing > LARGEST_STEP * rate
        expected = (TYPICAL_STEP * total_rate / (2 * half_spacing)).clamp(max=1.0)[coarse].sum()
        mine = Moved(old.numel(), int(changed.sum()), int(coarse.sum()), int((changed & coarse).sum()), float(expected))
        sofar = found.get(dtype)
        found[dtype] = mine if sofar is None else _plus(sofar, mine)
    return found


def _plus(one: Moved, other: Moved) -> Moved:
    return Moved(
        one.num_weights + other.num_weights,
        one.num_changed + other.num_changed,
        one.num_coarse + other.num_coarse,
        one.num_coarse_changed + other.num_coarse_changed,
        one.coarse_expected + other.coarse_expected,
    )
