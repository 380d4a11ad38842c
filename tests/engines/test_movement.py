"""Training that does nothing is told from training that moves slowly: real optimizers on real dtypes."""

from __future__ import annotations

import pytest

from spark_rl.rollout.movement import Moved, MovementReport, vanishes

torch = pytest.importorskip("torch")

LEAST = 0.05
REFERENCE_RATE = 5e-7


def train(dtype, rate: float, stochastic: bool = False, steps: int = 3, gradient: float = 1.0) -> MovementReport:
    """Three Adam steps on weights with a spread of 0.02, as a language model's, and noisy gradients."""
    from spark_rl.engines.movement_watch import count_moved

    torch.manual_seed(0)
    weight = torch.nn.Parameter((torch.randn(256, 512) * 0.02).to(dtype))
    before = weight.detach().reshape(-1).clone()
    if stochastic:
        from torchao.optim import AdamW8bit

        optimizer = AdamW8bit([weight], lr=rate, weight_decay=0.0, bf16_stochastic_round=True)
    else:
        optimizer = torch.optim.AdamW([weight], lr=rate, weight_decay=0.0)
    for _ in range(steps):
        weight.grad = (torch.randn(256, 512) * gradient).to(dtype)
        optimizer.step()
    after = weight.detach().reshape(-1)
    moved = count_moved({"w": before}, {"w": after}, rate, rate * steps)
    return MovementReport(steps, rate, moved, had_gradient=gradient > 0)


def test_the_reference_rate_on_plain_bf16_weights_vanishes() -> None:
    report = train(torch.bfloat16, REFERENCE_RATE)
    assert report.share < 0.03 and vanishes(report, LEAST)


def test_the_same_rate_on_fp32_weights_moves_them() -> None:
    report = train(torch.float32, REFERENCE_RATE)
    assert report.share > 0.95 and not vanishes(report, LEAST)


def test_a_larger_rate_on_bf16_weights_moves_them() -> None:
    assert not vanishes(train(torch.bfloat16, 1e-4), LEAST)


@pytest.mark.slow
def test_stochastic_rounding_at_the_reference_rate_is_let_through_though_few_weights_moved() -> None:
    """Compiles torchao's kernel: half a minute."""
    report = train(torch.bfloat16, REFERENCE_RATE, stochastic=True)
    assert report.share < LEAST and not vanishes(report, LEAST)


def test_a_run_without_a_gradient_is_not_judged() -> None:
    assert not vanishes(train(torch.bfloat16, REFERENCE_RATE, gradient=0.0), LEAST)


def test_unused_embedding_rows_are_not_vanished_updates() -> None:
    report = MovementReport(3, 1e-4, {"float32": Moved(1000, 20, 0, 0, 0.0)}, had_gradient=True)
    assert not vanishes(report, LEAST)


def test_the_share_is_told_by_dtype() -> None:
    assert "bfloat16" in train(torch.bfloat16, REFERENCE_RATE).words()
