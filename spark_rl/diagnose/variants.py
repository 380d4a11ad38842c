"""When the evidence speaks for a variant of GRPO, and when it does not.

In: findings and the run's settings. Out: one `VariantAdvice` per variant. A variant is advised only on its own
symptom, only where its precondition holds, and never before a simpler cause has been dealt with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spark_rl.diagnose.context import Context
from spark_rl.diagnose.finding import Finding, VariantAdvice

SIMPLER_CAUSES = {
    "shortcut": "the learning rate and the data",
    "kl_spike_settled": "the learning rate",
    "kl_blow_up": "the learning rate and beta",
    "dead_reward_part": "the dead reward part",
    "not_a_number": "the numbers that are none",
}
"""Findings that explain a symptom by themselves -> what to repair first."""


DAPO_REMEDIES: Mapping[str, tuple[str, str]] = {
    "entropy_collapse": (
        "raise epsilon_high to 0.28 (clip-higher), which lets rare tokens grow",
        "grpo.epsilon_high=0.28",
    ),
    "length_at_cap": (
        "mask_truncated_completions = true (overlong filtering)",
        "grpo.mask_truncated_completions=true",
    ),
}
"""Symptom -> what to do about it, in words and as a setting."""

OFF_POLICY_SETTING = "grpo.num_iterations=2"
"""The smallest change that makes updates off-policy: every batch of completions is used twice."""

ON_POLICY = "updates are on-policy (num_iterations 1, steps_per_generation = accumulation), so every ratio is 1"


def advise(findings: Sequence[Finding], context: Context) -> tuple[VariantAdvice, ...]:
    """One verdict per variant, advised or not, with the reason."""
    by_id: dict[str, Finding] = {}
    for finding in findings:
        by_id.setdefault(finding.id, finding)
    return (_dapo(by_id, context), _dr_grpo(by_id, context), _gspo(context))


def _dapo(found: dict[str, Finding], context: Context) -> VariantAdvice:
    if context.loss_type == "dapo" and "entropy_collapse" not in found:
        return VariantAdvice("dapo", False, "already in use")
    symptoms = [name for name in ("entropy_collapse",) if name in found]
    if _degenerate_length(found):
        symptoms.append("length_at_cap")
    if not symptoms:
        return VariantAdvice("dapo", False, "needs an entropy collapse or reasoning that degenerates into length")
    simpler = _simpler(found)
    if simpler:
        return VariantAdvice("dapo", False, f"first repair {simpler}; it explains the symptom", tuple(symptoms))
    settings = [DAPO_REMEDIES[name][1] for name in symptoms]
    clips = "entropy_collapse" in symptoms
    if clips and context.off_policy is False:
        settings.append(OFF_POLICY_SETTING)
    return VariantAdvice(
        "dapo",
        True,
        "; ".join(DAPO_REMEDIES[name][0] for name in symptoms),
        tuple(symptoms),
        tuple(settings),
        _clipping_needs(context.off_policy) if clips else None,
    )


def _clipping_needs(off_policy: bool | None) -> str | None:
    """What clip-higher needs beside its own setting; None where this run has it."""
    if off_policy:
        return None
    if off_policy is None:
        state = "clip-higher changes nothing while updates are on-policy, which the log does not tell"
    else:
        state = f"clip-higher changes nothing as this run was: {ON_POLICY} and nothing is clipped"
    return f"{state}; {OFF_POLICY_SETTING} makes them off-policy"


def _dr_grpo(found: dict[str, Finding], context: Context) -> VariantAdvice:
    if context.loss_type == "dr_grpo":
        return VariantAdvice("dr_grpo", False, "already in use")
    symptoms = [
        name
        for name in ("length_without_quality", "reward_without_quality")
        if name in found and found[name].severity != "info"  # too few held-out prompts show nothing
    ]
    if not symptoms:
        return VariantAdvice("dr_grpo", False, "needs a length or a reward that rises without quality")
    simpler = _simpler(found)
    if simpler:
        return VariantAdvice("dr_grpo", False, f"first repair {simpler}; it explains the symptom", tuple(symptoms))
    return VariantAdvice(
        "dr_grpo",
        True,
        'loss_type = "dr_grpo" and scale_rewards = "none" take the length and the spread out of the weighting',
        tuple(symptoms),
        ("grpo.loss_type=dr_grpo", "grpo.scale_rewards=none"),
    )


def _gspo(context: Context) -> VariantAdvice:
    if context.importance_sampling_level == "sequence":
        return VariantAdvice("gspo", False, "already in use")
    if context.is_moe is None:
        return VariantAdvice("gspo", False, "for mixture-of-experts models; the log does not say what model this is")
    if not context.is_moe:
        return VariantAdvice("gspo", False, "for mixture-of-experts models; this one is dense")
    if context.off_policy is None:
        return VariantAdvice("gspo", False, "without effect unless updates are off-policy, which the log does not tell")
    if not context.off_policy:
        return VariantAdvice("gspo", False, f"without effect: {ON_POLICY}")
    return VariantAdvice(
        "gspo",
        True,
        'importance_sampling_level = "sequence": a mixture-of-experts model with off-policy updates needs it, because '
        "token ratios jump when the routing changes",
        settings=("grpo.importance_sampling_level=sequence",),
    )


def _degenerate_length(found: dict[str, Finding]) -> bool:
    """Cut completions that the run itself brought about: few at the start, most at the end."""
    finding = found.get("length_at_cap")
    if finding is None:
        return False
    first, last = finding.number("early"), finding.number("late")
    return first is not None and last is not None and first < 0.3 and 0.8 <= last <= 1


def _simpler(found: dict[str, Finding]) -> str | None:
    causes = [cause for name, cause in SIMPLER_CAUSES.items() if name in found]
    zero = found.get("zero_variance")
    if zero is not None and zero.severity in ("warning", "fault") and zero.subject in ("plateau", "floor"):
        causes.append("the reward that lets groups score alike")
    return " and ".join(dict.fromkeys(causes)) or None
