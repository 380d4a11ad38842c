"""Symptoms in the policy: entropy, divergence, lengths."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from spark_rl.diagnose.finding import Evidence, Finding, Severity
from spark_rl.diagnose.view import MIN_ROWS, PROBABLE, View, early, late, middle, series_trend, thin
from spark_rl.stats import mean
from spark_rl.units import format_share

COLLAPSED_ENTROPY = 0.1
"""Nats a token: the policy nearly always says the same. (Published tables call .05 to .5 healthy and .01 collapse.)"""

COLLAPSE_RATIO = 0.25
FALLING_RATIO = 0.5
LATE_FALL_RATIO = 0.7
"""Late entropy over early: gone, halved, and notable together with groups that score alike."""

DISSOLVING_RATIO = 3.0
DISSOLVING_ENTROPY = 2.0
"""Entropy that trebled, to more than 2 nats a token (seven equally likely choices at each): text falls apart."""

FAST_STEPS = 25
"""Entropy halved within this many optimizer steps speaks for a learning rate that is too high."""

SPIKE_RATIO = 10.0
SPIKE_KL = 0.5
"""A spike is this many times its neighbours' median, and at least this many nats."""

SPIKE_NEIGHBOURS = 10
"""Rows on each side that a spike is compared with."""

MIN_RETURN_ROWS = 3
"""Rows after a spike that show whether it came back."""

BLOWN_KL = 2.0
"""Nats a token, lasting: the policy has left the model it started from. (Axolotl's table calls > 2 bad.)"""

SWING = 0.4
"""Range of the reward in the second half, over the largest reward of the run: more than batches of alike prompts differ."""

CUT_SHARE = 0.3
MOSTLY_CUT_SHARE = 0.8
"""Shares of cut completions that earn a warning and a fault (the same as Axolotl's table)."""

AT_CAP = 0.95
"""Mean length over cap from which the cap binds, when the share of cut completions is not logged."""


def entropy(view: View) -> Iterator[Finding]:
    """Entropy that fell: because the answers became right, or because the policy settled on one habit."""
    series = view.log.series("entropy")
    values = [value for _, value in series]
    if len(values) < MIN_ROWS:
        return
    first, last = middle(early(values)), median(late(values))
    if not first or first <= 0:
        return
    ratio = last / first
    if ratio > DISSOLVING_RATIO and last > DISSOLVING_ENTROPY and view.reward_course.direction != "improving":
        yield Finding(
            "entropy_explosion",
            "warning",
            "Entropy explodes",
            f"Entropy rose from {first:.2f} to {last:.2g} nats a token while the reward did not rise: the policy is "
            "dissolving into noise.",
            view.ends("entropy"),
            ("Go back to a checkpoint from before the rise, with a lower learning rate or a larger beta.",),
            numbers=(("early", first), ("late", last), ("ratio", ratio)),
        )
        return
    numbers = (("early", first), ("late", last), ("ratio", ratio))
    evidence = view.ends("entropy")
    words = f"Entropy fell from {first:.2f} to {last:.2g} nats a token"
    alike = view.late_zero_share
    if last < COLLAPSED_ENTROPY and ratio < COLLAPSE_RATIO:
        if is_converged(view):
            yield Finding(
                "entropy_converged",
                "info",
                "Entropy fell as the answers became right",
                f"{words}, while the reward stayed near its best: the policy is sure because it is right.",
                evidence,
                ("Nothing to do; more steps will add little.",),
                numbers=numbers,
            )
            return
        yield Finding(
            "entropy_collapse",
            "warning",
            "Entropy collapsed",
            f"{words}{_halved_words(view)}: the policy stopped exploring before it was right.",
            evidence,
            ("Go back to a checkpoint from before the fall, with a lower learning rate or a larger beta.",),
            numbers=numbers,
        )
    elif ratio < FALLING_RATIO or (ratio < LATE_FALL_RATIO and alike is not None and alike >= 0.5):
        with_alike = alike is not None and alike >= 0.5
        yield Finding(
            "entropy_falling",
            "warning" if with_alike else "info",
            "Entropy is falling",
            words
            + (f", and {format_share(alike, 0)} of late groups score alike." if with_alike else "; not collapsed."),
            evidence,
            ("Watch it: below about 0.1 nats exploration ends.",),
            numbers=numbers,
        )


def shortcut(view: View) -> Iterator[Finding]:
    """Nearly deterministic answers whose reward swings with the batch: one habit that is right by luck of the prompt."""
    found = next((finding for finding in entropy(view) if finding.id == "entropy_collapse"), None)
    key = view.reward_key
    if found is None or key is None:
        return
    series = view.log.series(key)
    tail = series[len(series) // 2 :]
    rewards = [value for _, value in tail]
    span = max(value for _, value in series) - min(value for _, value in series)
    scale = max(span, *(abs(value) for _, value in series))
    if span <= 0 or max(rewards) - min(rewards) < SWING * scale:
        return
    halved = _halved_step(view)
    fast = halved is not None and halved <= FAST_STEPS
    rate = view.context.learning_rate or middle(view.log.values("learning_rate"))
    yield Finding(
        "shortcut",
        "warning",
        "Settled on a shortcut" + ("; the learning rate is too high" if fast else ""),
        f"Answers are nearly deterministic, yet the reward of a step swings between {min(rewards):.2g} and "
        f"{max(rewards):.2g} in the second half: one habit that some batches reward and others do not, such as always "
        "answering with the same position or value."
        + (f" Entropy had halved by step {halved} at a learning rate of {rate:.2g}." if fast and rate else ""),
        tuple(Evidence(step, key, value) for step, value in thin(tail, 6)),
        (
            "Lower the learning rate (a quarter is a good first try) and start again from the base model.",
            "Balance the data so that no fixed answer is right more often than chance.",
        ),
        numbers=(("halved_step", halved), ("learning_rate", rate)),
    )


def is_converged(view: View) -> bool:
    """Whether the late reward stays near the best the run has seen, clearly above where it began."""
    key = view.reward_key
    values = view.log.values(key) if key else []
    if len(values) < MIN_ROWS:
        return False
    low, high = min(values), max(values)
    tail = values[len(values) // 2 :][-max(3, len(values) // 4) :]
    if high - low <= 0:
        return False
    return (
        median(tail) >= low + 0.8 * (high - low)
        and min(tail) >= low + 0.5 * (high - low)
        and view.reward_course.direction == "improving"
    )


def divergence(view: View) -> Iterator[Finding]:
    """KL: isolated spikes, a jump that changed the run, or a lasting blow-up."""
    series = view.log.series("kl")
    if len(series) < MIN_ROWS:
        return
    values = [value for _, value in series]
    level = median(late(values))
    if level > BLOWN_KL:
        yield Finding(
            "kl_blow_up",
            "fault",
            "KL blew up",
            f"KL is {level:.3g} nats a token over the last quarter: the policy has left the model it started from.",
            view.ends("kl"),
            ("Go back to an earlier checkpoint with a lower learning rate or a larger beta.",),
            numbers=(("late", level),),
        )
        return
    spikes = spikes_of(series)
    if not spikes:
        return
    top_step, top = max(spikes, key=lambda spike: spike[1])
    evidence = tuple(Evidence(step, "kl", value) for step, value in thin(spikes, 6))
    numbers = (("spikes", len(spikes)), ("largest", top), ("step", top_step))
    plural = f"{len(spikes)} isolated KL spikes, the largest" if len(spikes) > 1 else "One KL spike,"
    change = _zero_share_around(view, top_step)
    if change is not None and change[0] < 0.3 and change[1] >= 0.5:
        yield Finding(
            "kl_spike_settled",
            "warning",
            f"KL jumped to {top:.3g} at step {top_step}, and the run settled there",
            f"Groups without signal were {format_share(change[0], 0)} before step {top_step} and {format_share(change[1], 0)} since: after the "
            "jump the policy repeats one kind of answer.",
            evidence,
            ("Go back to the checkpoint before the jump; lower the learning rate or max_grad_norm, or raise beta.",),
            numbers=numbers,
        )
        return
    num_after = sum(step > top_step for step, _ in series)
    if num_after < MIN_RETURN_ROWS:
        yield Finding(
            "kl_spike",
            "info",
            "KL spiked at the end of the log",
            f"{plural} {top:.3g} at step {top_step}, with {num_after} rows after it, too few to see whether it came back; "
            f"the usual level is {level:.2g}.",
            evidence,
            ("Watch the next steps, or compare held-out success with the checkpoint before.",),
            numbers=numbers,
        )
        return
    yield Finding(
        "kl_spike",
        "info",
        "KL spiked and came back",
        f"{plural} {top:.3g} at step {top_step}; the usual level is {level:.2g}. A few tokens of one batch; "
        "not a collapse.",
        evidence,
        ("Nothing to do while it comes back.",),
        numbers=numbers,
    )


def spikes_of(series: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """Rows that stand far above their neighbours."""
    spikes = []
    for index, (step, value) in enumerate(series):
        around = series[max(0, index - SPIKE_NEIGHBOURS) : index] + series[index + 1 : index + 1 + SPIKE_NEIGHBOURS]
        typical = median(other for _, other in around)
        if value >= SPIKE_KL and value >= SPIKE_RATIO * max(typical, 1e-9):
            spikes.append((step, value))
    return spikes


def length_at_cap(view: View) -> Iterator[Finding]:
    """Completions that are cut off before they end."""
    cap = view.cap
    ratios = view.log.series("completions/clipped_ratio")
    lengths = view.log.series("completions/mean_length")
    if len(ratios) >= 3:
        values = [value for _, value in ratios]
        first, last = mean(early(values)), mean(late(values))
        if last < CUT_SHARE:
            return
        words = f"{format_share(last, 0)} of completions are cut off in the last quarter ({format_share(first, 0)} at the start)"
        key = "completions/clipped_ratio"
        severity: Severity = "fault" if last >= MOSTLY_CUT_SHARE else "warning"
    elif len(lengths) >= 3 and cap is not None:
        values = [value for _, value in lengths]
        first, last = mean(early(values)), mean(late(values))
        if last < AT_CAP * cap:
            return
        words = f"Completions are {last:.0f} tokens long on average in the last quarter, with a cap of {cap}"
        key, severity = "completions/mean_length", "warning"
    else:
        return
    words += f"; the cap is {cap} tokens" if cap is not None and key != "completions/mean_length" else ""
    yield Finding(
        "length_at_cap",
        severity,
        "The cap on length is too small",
        f"{words}: an answer that is cut off cannot be right, whatever it was going to say.",
        view.ends(key),
        (
            "Raise max_completion_length (and check with fit that it still fits), or ask for shorter answers.",
            "If only some runaway completions are cut, filter them: mask_truncated_completions = true keeps them from "
            "being learned from.",
        ),
        numbers=(("early", first), ("late", last), ("cap", cap)),
    )


def length_grows(view: View) -> Iterator[Finding]:
    """Length rising while the reward, or held-out success, does not."""
    series = view.log.series("completions/mean_length")
    if len(series) < MIN_ROWS:
        return
    values = [value for _, value in series]
    first, last = mean(values[: len(values) // 4 or 1]), mean(late(values))
    rising = series_trend(series)
    gained = (
        view.heldout_rose if view.heldout_rose is not None else view.reward_course.direction not in ("flat", "falling")
    )
    if rising is None or rising.tau <= 0 or rising.p_value >= PROBABLE or last < 1.25 * first or gained:
        return
    yield Finding(
        "length_without_quality",
        "warning",
        "Completions grow without getting better",
        f"Mean length rose from {first:.0f} to {last:.0f} tokens; "
        + ("the reward did not." if view.heldout_rose is None else "held-out success did not rise."),
        view.ends("completions/mean_length"),
        ("Read long completions: repetition means the reward pays for it, or does not punish it.",),
        numbers=(("early", first), ("late", last)),
    )


def _halved_step(view: View) -> int | None:
    series = view.log.series("entropy")
    start = middle(early([value for _, value in series]))
    return next((step for step, value in series if start and value < start / 2), None)


def _halved_words(view: View) -> str:
    step = _halved_step(view)
    return f" (half of it by step {step})" if step is not None else ""


def _zero_share_around(view: View, step: int) -> tuple[float, float] | None:
    """Mean share of groups without signal before a step and after it."""
    before = [share for at, share in view.zero_shares if at < step]
    after = [share for at, share in view.zero_shares if at > step]
    return (mean(before), mean(after)) if len(before) >= 3 and len(after) >= 3 else None
