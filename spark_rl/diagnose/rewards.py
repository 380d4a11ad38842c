"""Symptoms in the rewards: parts that never vary, groups without signal and why, and where the reward went."""

from __future__ import annotations

from collections.abc import Iterator

from spark_rl.diagnose.finding import Evidence, Finding, Severity
from spark_rl.diagnose.view import MIN_TREND_ROWS, ZERO, Course, View, course, late, middle, thin
from spark_rl.metrics import part_key
from spark_rl.metrics.groups import CEILING_SHARE, ZERO_SHARE
from spark_rl.stats import mean
from spark_rl.units import format_share

MIN_DEAD_ROWS = 5
"""Fewer rows without a single hit say little about a part."""

LATE_BLOOM_STEPS = 100
"""Before this step a part that never fired is dead "so far": in a healthy published run two parts first fired at
step 62."""

BAND = 0.1
"""Share of the reward's range that still counts as its bottom or top."""

NOTABLE_ZERO_SHARE = 0.2
WASTED_ZERO_SHARE = 0.5
"""Shares of late groups without signal that are worth a word, and a warning."""

LOW_LORA_RATE = 2e-6
"""Adapters of people whose runs improve were trained with 5e-6 to 5e-5; 5e-7 is for full fine-tuning."""

PLACES = {"floor": "at the bottom of the reward", "ceiling": "at the top", "plateau": "on a plateau between"}

MOSTLY = 0.8
"""Share of the late groups without signal that must be solved for the rest not to matter."""

LOST_ZERO_SHARE = 0.9
"""From here on nearly nothing is learned any more. (Axolotl's stability table asks for less than .8.)"""


def dead_parts(view: View) -> Iterator[Finding]:
    """Reward parts whose value is the same in every row: they add nothing to any advantage."""
    for name in view.log.part_names:
        key = part_key(name)
        series = view.log.series(key)
        if len(series) < MIN_DEAD_ROWS:
            continue
        values = [value for _, value in series]
        spreads = view.log.values(f"rewards/{name}/std")
        if max(values) - min(values) > ZERO or any(spread > ZERO for spread in spreads):
            continue
        value = values[0]
        at_zero = abs(value) < ZERO
        so_far = " so far" if series[-1][0] < LATE_BLOOM_STEPS else ""
        yield Finding(
            id="dead_reward_part",
            severity="warning",
            title=f"Reward part {name} is dead{so_far}" if at_zero else f"Reward part {name} never varies",
            words=f"{name} is {value:.4g} in all {len(series)} rows"
            + (
                ": it never fired, so it teaches nothing and hides that its goal is not met."
                + (" It may still come alive when the easier parts are learned." if so_far else "")
                if at_zero
                else ": a constant is subtracted with the group's mean, so it teaches nothing."
            ),
            evidence=view.ends(key),
            advice=(
                (
                    f"Score a completion that should satisfy {name} by hand; if it gets 0, the part is wrong.",
                    "If the part is right, the model never shows what it asks for: show it in the prompt, relax the "
                    "part, or fine-tune on examples first.",
                )
                if at_zero
                else ("Remove the part or make it tell completions apart.",)
            ),
            subject=name,
            numbers=(("value", value), ("rows", len(series))),
        )


def zero_variance(view: View) -> Iterator[Finding]:
    """Groups whose completions all scored the same, split by where: floor, ceiling or a plateau between."""
    shares = view.zero_shares
    late_share = view.late_zero_share
    if late_share is None or len(shares) < 3:
        return
    mean_share = mean([share for _, share in shares])
    if late_share < NOTABLE_ZERO_SHARE and mean_share < NOTABLE_ZERO_SHARE:
        return
    whole_rows = [step for step, share in shares if share >= 1 - ZERO]
    places = place_rows(view, whole_rows)
    groups = view.group_counts
    counts = groups or {place: sum(at == place for at in places.values()) for place in PLACES}
    total = sum(counts.values())
    main = max(counts, key=counts.__getitem__) if total else None
    # A short log has no late part of its own: a quarter of few rows is chance.
    judged_share = late_share if len(shares) >= MIN_TREND_ROWS else mean_share
    severity: Severity = "info"
    if judged_share >= WASTED_ZERO_SHARE and not _solved_at_the_end(view, places, [step for step, _ in shares]):
        severity = "fault" if judged_share >= LOST_ZERO_SHARE else "warning"
    words = f"On average {format_share(mean_share, 0)} of groups had no spread of reward ({format_share(late_share, 0)} in the last quarter)."
    if total:
        what = f"{total} such groups" if groups else f"{total} rows of {len(shares)} had no other groups"
        words += f" {what}: " + ", ".join(f"{count} {PLACES[place]}" for place, count in counts.items()) + "."
    if not groups:
        words += _plateau_words(view, [step for step, place in places.items() if place == "plateau"])
    yield Finding(
        id="zero_variance",
        severity=severity,
        title="Groups without signal" + (f", mostly at the {main}" if main else ""),
        words=words,
        evidence=view.evidence(view.reward_key or "reward", whole_rows)
        if whole_rows and not groups
        else tuple(
            Evidence(step, ZERO_SHARE if groups else "frac_reward_zero_std", at) for step, at in thin(shares, 3)
        ),
        advice=_zero_variance_advice([place for place, count in counts.items() if count * 4 >= total > 0], view),
        subject=main,
        numbers=(
            ("rows", len(whole_rows)),
            *counts.items(),
            ("mean_share", round(mean_share, 4)),
            ("late_share", round(late_share, 4)),
        ),
    )


def _solved_at_the_end(view: View, places: dict[int, str], steps: list[int]) -> bool:
    """Whether the late groups without signal are those that are solved: success, not waste."""
    late_steps = set(late(steps))
    if view.group_counts is not None:
        rows = [row for row in view.rows if row.step in late_steps and ZERO_SHARE in row.values]
        alike = sum(row.values[ZERO_SHARE] for row in rows)
        return alike > 0 and sum(row.values[CEILING_SHARE] for row in rows) >= MOSTLY * alike
    settled = {place for step, place in places.items() if step in late_steps}
    return settled == {"ceiling"}


def place_rows(view: View, steps: list[int]) -> dict[int, str]:
    """Where the reward of each row lies: floor, ceiling or plateau.

    The range is what the run has seen. The floor reaches up to where the run began: a policy that scores alike where it
    started has not got off the ground, one that does so between its start and its best has settled.
    """
    key = view.reward_key
    values = dict(view.log.series(key)) if key else {}
    if not values:
        return {}
    low, high = min(values.values()), max(values.values())
    start = middle(list(values.values())[: max(5, len(values) // 10)]) or low
    width = high - low
    places = {}
    for step in steps:
        value = values.get(step)
        if value is None:
            continue
        if width > ZERO and value >= high - BAND * width:
            places[step] = "ceiling"
        elif width <= ZERO or value <= max(low, start) + BAND * width:
            places[step] = "floor"
        else:
            places[step] = "plateau"
    return places


def reward_trend(view: View) -> Iterator[Finding]:
    """Whether the reward rises, how sure that is, and through which parts."""
    way = view.reward_course
    key = view.reward_key
    if key is None or way.early is None or way.late is None:
        return
    parts = {name: course(view.log.series(part_key(name))) for name in view.log.part_names}
    numbers = (
        ("early", way.early),
        ("late", way.late),
        ("p_value", way.p_value),
        ("rows", len(view.log.values(key))),
    )
    moved = f"from {way.early:.3g} (first quarter) to {way.late:.3g} (last quarter)"
    chance = "" if way.p_value is None else f", p = {way.p_value:.2g} by Mann-Kendall over block means"
    evidence = view.ends(key)
    if way.direction == "improving":
        stands = _stands_still(view.log.series(key)) if way.sureness != "perhaps" else None
        title = "Reward improving" if way.sureness == "surely" else f"Reward {way.sureness} improving"
        yield Finding(
            "reward_trend",
            "good" if way.sureness != "perhaps" else "info",
            "Reward rose, and has held since" if stands is not None else title,
            f"The reward rose {moved}{chance}."
            + (f" Since step {stands} it neither rises nor falls." if stands is not None else "")
            + _part_words(parts)
            + _few_words(view),
            evidence,
            () if way.sureness != "perhaps" else ("Train longer or log every step before concluding anything.",),
            "improving",
            numbers,
        )
    elif way.direction in ("late_fall", "falling"):
        words = (
            f"The reward rose to {way.peak:.3g} around step {way.peak_step} and fell to {way.late:.3g} since{chance}."
            if way.direction == "late_fall"
            else f"The reward fell {moved}{chance}."
        )
        yield Finding(
            "reward_trend",
            "info" if way.direction == "falling" and way.sureness == "perhaps" else "warning",
            "Reward falls again" if way.direction == "late_fall" else f"Reward {way.sureness} falling",
            words + _part_words(parts) + _few_words(view),
            evidence,
            (
                "Take the checkpoint before the fall, and compare held-out success of both.",
                "Lower the learning rate or raise beta; read samples from before and after the fall.",
            ),
            way.direction,
            numbers,
        )
    elif way.direction == "flat":
        yield Finding(
            "reward_trend",
            "info",
            "No trend in the reward",
            f"The reward went {moved}{chance}: no more than its noise." + _few_words(view),
            evidence,
            _flat_advice(view),
            "flat",
            numbers,
        )


def one_sided_gain(view: View) -> Iterator[Finding]:
    """The total rises through format parts alone while correctness stands still."""
    meanings = view.context.part_meanings
    if view.reward_course.direction != "improving" or not meanings:
        return
    courses = {name: course(view.log.series(part_key(name))) for name in view.log.part_names}
    correct = [name for name in courses if meanings.get(name) == "correct"]
    rising = [name for name, way in courses.items() if way.direction == "improving"]
    if correct and rising and not any(name in rising for name in correct):
        yield Finding(
            "form_not_answer",
            "warning",
            "The form is learned, the answer is not",
            f"The reward rises through {', '.join(rising)}; {', '.join(correct)} shows no rise.",
            view.ends(part_key(correct[0])),
            (
                "Go on only if the form had to come first; else lower the weight of the format part.",
                "Check on read samples that a right answer scores as right.",
            ),
        )


def gain_through_one_part(view: View) -> Iterator[Finding]:
    """The total rises through a single part while other parts that could rise stand still."""
    if view.reward_course.direction != "improving" or view.reward_course.sureness == "perhaps":
        return
    moves: dict[str, float] = {}
    for name in view.log.part_names:
        way = course(view.log.series(part_key(name)))
        if way.early is None or way.late is None:
            return
        moves[name] = way.late - way.early if way.direction == "improving" and way.sureness != "perhaps" else 0.0
    rising = [name for name, move in moves.items() if move > 0]
    still = [name for name in moves if name not in rising]
    if len(rising) != 1 or not still:
        return
    meanings = view.context.part_meanings
    goals = [name for name in still if meanings.get(name, _guessed_meaning(name)) == "correct"]
    if meanings and goals:
        return  # said more exactly by one_sided_gain
    yield Finding(
        "gain_through_one_part",
        "warning" if goals else "info",
        f"The rise comes through {rising[0]} alone",
        f"{rising[0]} rose by {moves[rising[0]]:.3g}; without a rise: {', '.join(still)}."
        + (f" By its name {goals[0]} is the goal, and it does not move." if goals else ""),
        view.ends(part_key(rising[0])),
        ("Read late samples: is the part that rises what you want, or a cheap way to the total?",),
        rising[0],
    )


def gain_without_quality(view: View) -> Iterator[Finding]:
    """The reward of training rises while held-out success does not."""
    change = view.context.heldout_change
    way = view.reward_course
    key = view.reward_key
    if change is None or key is None or way.direction != "improving" or way.sureness == "perhaps" or view.heldout_rose:
        return
    words = (
        f"The reward rose from {way.early:.3g} to {way.late:.3g}, but the change of held-out success lies between "
        f"{100 * change[0]:+.1f} and {100 * change[1]:+.1f} points (95 %)"
    )
    if view.heldout_rose is None:
        yield Finding(
            "reward_without_quality",
            "info",
            "The reward rises, held-out success cannot tell",
            f"{words}: too few prompts to see whether it rose.",
            view.ends(key),
            ("Hold more prompts out, or raise eval.num_prompts: 100 and more show a gain of 10 points.",),
            "unclear",
        )
        return
    yield Finding(
        "reward_without_quality",
        "warning",
        "The reward rises, held-out success does not",
        f"{words}.",
        view.ends(key),
        (
            "Read late samples: the policy may earn the reward without doing the task.",
            "If only the form part rises, its weight is too large.",
        ),
    )


def _guessed_meaning(name: str) -> str | None:
    """What a part of a stranger's log is about, by the words people use for the goal."""
    words = ("correct", "accuracy", "answer", "solve", "success", "pass")
    return "correct" if any(word in name.lower() for word in words) else None


def _stands_still(series: list[tuple[int, float]]) -> int | None:
    """The step since which a rising series shows no trend any more: the middle, where the second half is flat."""
    half = series[len(series) // 2 :]
    return half[0][0] if course(half).direction == "flat" else None


def _plateau_words(view: View, plateau: list[int]) -> str:
    """The plateau's level against the best that was reached before."""
    key = view.reward_key
    if not plateau or key is None:
        return ""
    values = dict(view.log.series(key))
    level = sorted(values[step] for step in plateau)
    typical = f"{level[len(level) // 10]:.3g} to {level[-1 - len(level) // 10]:.3g}"
    best_step = max(values, key=values.__getitem__)
    words = f" The plateau lies at {typical}"
    if values[best_step] > level[-1] + ZERO:
        words += f", though {values[best_step]:.3g} was reached at step {best_step}"
    return words + ": the policy settled on one strategy that is not the best one it has seen."


def _zero_variance_advice(places: list[str], view: View) -> tuple[str, ...]:
    """Remedies for every place that holds a good part of the rows without signal."""
    advice: list[str] = []
    if "plateau" in places:
        advice += [
            "Go back to a checkpoint before the plateau, with a lower learning rate or a larger beta.",
            "See what the plateau's completions have in common: a cheap partial credit is the usual cause; repair it.",
            "A variant does not help here: without spread in a group there is no advantage to reweight.",
        ]
    if "floor" in places:
        clipped = view.log.values("completions/clipped_ratio")
        if clipped and (middle(late(clipped)) or 0) > 0.5:
            advice.append("Most completions are cut off before they can answer: raise max_completion_length first.")
        advice += [
            "At the bottom: take easier prompts, give partial credit, or fine-tune on examples first.",
            "Check that the reward can be earned at all: score a right answer by hand.",
        ]
    if "ceiling" in places:
        advice.append("At the top: drop solved prompts or take harder ones; those steps are spent on nothing.")
    return tuple(advice) or ("Look at which prompts are always or never solved, and drop or replace them.",)


def _part_words(parts: dict[str, Course]) -> str:
    rising = [name for name, way in parts.items() if way.direction == "improving" and way.sureness != "perhaps"]
    still = [name for name, way in parts.items() if way.direction == "flat"]
    words = f" Rising parts: {', '.join(rising)}." if rising and len(parts) > 1 else ""
    return words + (f" Without a trend: {', '.join(still)}." if still and rising else "")


def _few_words(view: View) -> str:
    rows = len(view.rows)
    return f" With {rows} rows this is weak evidence; held-out success decides." if rows < 20 else ""


def _flat_advice(view: View) -> tuple[str, ...]:
    context = view.context
    if (
        context.method in ("lora", "qlora")
        and context.learning_rate is not None
        and context.learning_rate < LOW_LORA_RATE
    ):
        return (
            f"A learning rate of {context.learning_rate:.2g} is low for {context.method}, which usually takes 5e-6 to 5e-5.",
        )
    divergence = middle(late(view.log.values("kl"))) if view.log.values("kl") else None
    if divergence is not None and divergence < 1e-3:
        return (
            f"The policy has hardly moved (KL {divergence:.2g}): train longer or raise the learning rate; with LoRA it "
            "usually lies at 5e-6 and more.",
        )
    return ("Look at the findings above first; without any, train longer or take prompts of medium difficulty.",)
