"""Symptoms in the log itself: nothing to judge, numbers that are none, a loss of 0, engines that disagree."""

from __future__ import annotations

from collections.abc import Iterator

from spark_rl.diagnose.finding import Evidence, Finding
from spark_rl.diagnose.view import ZERO, View, late, middle, thin

FEW_ROWS = 20
"""Fewer rows carry weak evidence of any trend."""

VITAL = ("loss", "grad_norm", "reward", "reward_std", "kl", "entropy")
"""Columns whose NaN means that the weights may be broken; a reward part is NaN where it never applied."""

MISMATCH_NATS = 0.1
BROKEN_MISMATCH_NATS = 1.0
"""Mean difference of log-probabilities between sampler and trainer: worth a look, and broken (Axolotl's table)."""

UNSTABLE_GRAD_NORM = 10.0
"""Before clipping (Axolotl's table calls .001 to 1 healthy and > 10 unstable)."""


def nothing_to_judge(view: View) -> Finding | None:
    """Why a log cannot be judged at all; None when it can."""
    log = view.log
    trainer = log.trainer
    if not log.rows and not log.eval_rows:
        every, last = trainer.get("logging_steps"), trainer.get("max_steps") or trainer.get("global_step")
        if every and last and every > last:
            why = f"logging_steps is {every:g} and the run has only {last:g} steps, so no row was ever logged"
        elif trainer.get("trainer_state"):
            why = "its log_history is empty"
        else:
            why = "the log holds no rows yet"
        return Finding(
            "no_rows",
            "warning",
            "Nothing to judge",
            f"There is nothing to judge: {why}.",
            advice=("Set logging_steps = 1: a step of GRPO is expensive, its row is cheap.",),
        )
    if not log.rows and any("reward" in row.values for row in log.eval_rows):
        return Finding(
            "no_rows",
            "warning",
            "Nothing to judge",
            f"The log has {len(log.eval_rows)} evaluation rows and no row of training: there is no course to judge.",
            advice=("Set logging_steps = 1, or give the log of the training itself.",),
        )
    if not view.is_grpo:
        names = [key for key in log.names() if key != "epoch"] or [f"eval_{key}" for key in log.eval_rows[0].values]
        return Finding(
            "not_grpo",
            "warning",
            "Not a GRPO run",
            f"No row has a reward; the log has {', '.join(sorted(names)[:6])}. There is nothing to judge here.",
            advice=("Give the metrics of a GRPO run (TRL's names, old or new).",),
        )
    return None


def few_rows(view: View) -> Iterator[Finding]:
    """How much a short log can tell."""
    rows = len(view.rows)
    if rows < FEW_ROWS:
        span = view.rows[-1].step - view.rows[0].step
        every = f", one each {span / (rows - 1):.0f} steps" if rows > 1 and span > rows else ""
        yield Finding(
            "few_rows",
            "info",
            f"Only {rows} rows",
            f"The log has {rows} rows{every}: large effects show, small ones cannot be told from noise.",
            advice=("Log every step (logging_steps = 1), and judge by held-out success.",),
            numbers=(("rows", rows),),
        )


def not_a_number(view: View) -> Iterator[Finding]:
    """NaN or infinity in a column that must have a number."""
    for key in VITAL:
        steps = [row.step for row in view.rows if key in row.nonfinite]
        if not steps:
            continue
        lasting = all(key not in row.values for row in view.rows if row.step >= steps[0])
        words = f"{key} is not a finite number in {len(steps)} of {len(view.rows)} rows, first at step {steps[0]}"
        yield Finding(
            "not_a_number",
            "fault" if lasting or key.startswith("reward") else "warning",
            f"{key} is not a number",
            f"{words}{_nan_words(key, lasting)}",
            tuple(Evidence(step, key, None) for step in thin(steps, 6)),
            (
                "A group size of 1, or a reward that returned None for every completion, makes NaN rewards."
                if key.startswith("reward")
                else "Go back to a checkpoint before this step; use bf16 instead of fp16, or a lower learning rate.",
            ),
            key,
            (("first_step", steps[0]), ("rows", len(steps))),
        )


def _nan_words(key: str, lasting: bool) -> str:
    if not lasting:
        return "; later rows are finite again."
    return ", and ever since." if key.startswith("reward") else ", and ever since: the weights are broken."


def zero_loss(view: View) -> Iterator[Finding]:
    """A printed loss of 0: normal on-policy, no signal, or cannot be told."""
    losses = view.log.series("loss")
    zeros = [step for step, value in losses if abs(value) < ZERO]
    if len(zeros) < 2 or len(zeros) * 2 < len(losses):
        return
    gradients = view.log.values("grad_norm")
    spreads = view.log.values("reward_std")
    moving = any(value > ZERO for value in gradients or spreads)
    moved = any(value > ZERO for value in view.log.values("kl"))
    words = f"The loss prints as 0 in {len(zeros)} of {len(losses)} rows. "
    evidence = view.evidence("loss", zeros[:2]) + tuple(
        view.ends("grad_norm" if gradients else "reward_std")[:2] if gradients or spreads else ()
    )
    if moving or moved:
        yield Finding(
            "zero_loss_normal",
            "info",
            "A loss of 0 is normal here",
            f"{words}Advantages of a group sum to 0 and every ratio is 1 while updates are on-policy, so only beta x KL "
            "is left of the printed value; the gradient is not 0"
            + (
                f" (grad_norm {middle(gradients):.2g} in the middle)."
                if gradients and moving
                else ", as the spread of rewards shows."
                if moving
                else ", as the growing KL shows."
            )
            + (" Clip ratios of 0 have the same cause." if _never(view, "clip_ratio/region_mean") else ""),
            evidence,
            ("Read the reward and held-out success, not the loss.",),
        )
    elif gradients or spreads:
        yield Finding(
            "zero_loss_no_signal",
            "fault",
            "Nothing is being learned",
            f"{words}The {'gradient' if gradients else 'spread of rewards'} is 0 as well: every group scored alike.",
            evidence,
            ("See the rewards: all completions of a prompt get the same score.",),
        )
    else:
        yield Finding(
            "zero_loss_unclear",
            "info",
            "A loss of 0 alone says nothing",
            f"{words}Neither grad_norm nor reward_std nor kl is logged, which would tell normal from broken.",
            evidence,
        )


def _never(view: View, key: str) -> bool:
    """Whether a column is logged and 0 in every row."""
    values = view.log.values(key)
    return bool(values) and not any(values)


def engines_disagree(view: View) -> Iterator[Finding]:
    """Log-probabilities of the same tokens differ between the sampling engine and the trainer."""
    key = "sampling/sampling_logp_difference/mean"
    values = view.log.values(key)
    level = middle(late(values)) if values else None
    if level is not None and level >= MISMATCH_NATS:
        broken = level >= BROKEN_MISMATCH_NATS
        yield Finding(
            "engines_disagree",
            "fault" if broken else "warning",
            "Sampler and trainer disagree",
            f"Their log-probabilities differ by {level:.2g} nats a token: "
            + ("the sampler does not have the trained weights." if broken else "more than numerics explain."),
            view.ends(key),
            ("Check that the adapter reaches the engine, and that both use the same dtype and sampling settings.",),
        )


def unstable_gradients(view: View) -> Iterator[Finding]:
    """Gradient norms that stay far above what clipping is meant for."""
    values = view.log.values("grad_norm")
    level = middle(late(values)) if len(values) >= 3 else None
    if level is not None and level > UNSTABLE_GRAD_NORM:
        yield Finding(
            "unstable_gradients",
            "warning",
            "Gradients are large",
            f"The gradient norm before clipping is {level:.3g} in the last quarter; every step is cut to max_grad_norm.",
            view.ends("grad_norm"),
            ("Lower the learning rate; look for rewards on a very large scale.",),
        )
