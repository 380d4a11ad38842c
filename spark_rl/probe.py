"""Can the model succeed sometimes? Judges counts of successes before any training is paid for.

In: successes per prompt at the run's temperature and at a low one, and the group size. Out: a frozen `ProbeResult`
with a verdict and its words. Pure; the worker does the sampling.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import comb
from typing import Any, Literal

from spark_rl.stats import Interval, mean, wilson_interval
from spark_rl.units import format_share

Verdict = Literal["learnable", "sft_first", "nothing_to_learn"]

NOTHING_TO_LEARN_SHARE = 0.95
"""From here on training can add at most 5 points. With 200 held-out prompts the 95 % interval of a share of .95 spans
6 points, so even the whole gain could hardly be told from chance."""

SPLIT_BOUND = 0.2
"""No prompt with both outcomes counts as evidence only when the interval of that share ends below this (16 prompts)."""

THIN_SIGNAL_SHARE = 0.1
"""Below this share of mixed groups most of a step is spent on groups without a gradient; said as a warning."""


@dataclass(frozen=True)
class ProbeCounts:
    """What was sampled at one temperature."""

    temperature: float
    num_samples: int
    """Completions per prompt."""
    successes: tuple[int, ...]
    """Correct completions of each prompt."""
    totals: tuple[tuple[float | None, ...], ...] | None = None
    """Total reward of every completion of each prompt, when known."""

    @property
    def num_successes(self) -> int:
        return sum(self.successes)

    @property
    def num_completions(self) -> int:
        return self.num_samples * len(self.successes)

    @property
    def rate(self) -> float:
        return self.num_successes / self.num_completions

    @property
    def interval(self) -> Interval:
        """Wilson, 95 %, over all completions."""
        return wilson_interval(self.num_successes, self.num_completions)

    def to_json(self) -> dict[str, Any]:
        interval = self.interval
        return {
            "temperature": self.temperature,
            "prompts": len(self.successes),
            "samples_per_prompt": self.num_samples,
            "successes": self.num_successes,
            "n": self.num_completions,
            "rate": self.rate,
            "low": interval.low,
            "high": interval.high,
            "successes_per_prompt": list(self.successes),
        }


@dataclass(frozen=True)
class ProbeResult:
    """The verdict on whether GRPO has something to select."""

    verdict: Verdict
    words: str
    """The verdict in one or two sentences."""
    notes: tuple[str, ...]
    """What else the numbers say."""
    at_run: ProbeCounts
    at_low: ProbeCounts | None
    num_generations: int
    mixed_correct: float
    """Expected share of groups of `num_generations` with right and wrong completions."""
    mixed_reward: float | None
    """Expected share of groups whose total rewards differ; None when rewards were not given."""
    mixed_method: str
    """How the shares were estimated."""

    @property
    def allows_training(self) -> bool:
        return self.verdict == "learnable"

    def to_json(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "words": self.words,
            "notes": list(self.notes),
            "run": self.at_run.to_json(),
            "low": self.at_low.to_json() if self.at_low else None,
            "num_generations": self.num_generations,
            "mixed_correct": self.mixed_correct,
            "mixed_reward": self.mixed_reward,
            "mixed_method": self.mixed_method,
        }


def judge_probe(at_run: ProbeCounts, at_low: ProbeCounts | None, num_generations: int) -> ProbeResult:
    """Judge a probe. Raises ValueError when nothing was sampled or counts do not fit the number of samples."""
    for counts in (at_run, at_low):
        if counts is not None:
            _check(counts)
    outcomes = [(True,) * k + (False,) * (at_run.num_samples - k) for k in at_run.successes]
    mixed_correct = expected_mixed_share(outcomes, num_generations)
    mixed_reward = expected_mixed_share(at_run.totals, num_generations) if at_run.totals is not None else None
    verdict, words = _verdict(at_run, at_low, mixed_correct, num_generations)
    return ProbeResult(
        verdict=verdict,
        words=words,
        notes=tuple(_notes(verdict, at_run, at_low, mixed_correct, num_generations)),
        at_run=at_run,
        at_low=at_low,
        num_generations=num_generations,
        mixed_correct=mixed_correct,
        mixed_reward=mixed_reward,
        mixed_method=mixed_method(at_run.num_samples, num_generations),
    )


def expected_mixed_share(outcomes_per_prompt: Sequence[Sequence[Hashable]], group_size: int) -> float:
    """Mean over prompts of the probability that a group of `group_size` completions holds two different outcomes.

    With s >= G samples a prompt, a group is G of them drawn without replacement: 1 - sum_v C(n_v, G) / C(s, G), where
    n_v counts outcome v; this has no bias. With s < G the shares n_v / s stand for the probabilities:
    1 - sum_v (n_v / s)^G, which is too low on average (the function is concave), so it never promises too much.
    """
    return mean([_mixed_probability(outcomes, group_size) for outcomes in outcomes_per_prompt])


def mixed_method(num_samples: int, group_size: int) -> str:
    """How `expected_mixed_share` counts, in words."""
    if num_samples >= group_size:
        return f"groups of {group_size} drawn from the {num_samples} samples of each prompt"
    return (
        f"1 - p^{group_size} - (1 - p)^{group_size} from {num_samples} samples a prompt, "
        "fewer than a group: a low estimate"
    )


def _mixed_probability(outcomes: Sequence[Hashable], group_size: int) -> float:
    s = len(outcomes)
    counts = Counter(outcomes).values()
    if s >= group_size:
        return 1 - sum(comb(count, group_size) for count in counts) / comb(s, group_size)
    return 1 - sum((count / s) ** group_size for count in counts)


def _check(counts: ProbeCounts) -> None:
    if not counts.successes or counts.num_samples < 1:
        raise ValueError("a probe needs at least one prompt and one sample")
    if not all(0 <= k <= counts.num_samples for k in counts.successes):
        raise ValueError(f"successes per prompt must lie between 0 and {counts.num_samples}")
    if counts.totals is not None and len(counts.totals) != len(counts.successes):
        raise ValueError("rewards and successes are of different numbers of prompts")


def _verdict(at_run: ProbeCounts, at_low: ProbeCounts | None, mixed: float, group_size: int) -> tuple[Verdict, str]:
    seen = f"{at_run.num_successes} of {at_run.num_completions} completions at temperature {at_run.temperature:g}"
    if at_run.num_successes == 0:
        high = at_run.interval.high
        words = f"No success in {at_run.num_completions} completions at temperature {at_run.temperature:g}"
        words += f" (true rate below {format_share(high)} at 95 %): GRPO has nothing to select."
        if at_low is not None and at_low.num_successes:
            return "sft_first", (
                f"{words} At temperature {at_low.temperature:g} it succeeds {at_low.num_successes} times of "
                f"{at_low.num_completions}: lower the run's temperature, or fine-tune on examples first."
            )
        return "sft_first", f"{words} Fine-tune on examples first (SFT), show example turns, or take easier prompts."
    if at_run.rate >= NOTHING_TO_LEARN_SHARE:
        return "nothing_to_learn", (
            f"Right already in {seen} ({format_share(at_run.rate)}): training could add at most {format_share(1 - at_run.rate)}, too little "
            "to tell from chance. Take harder prompts."
        )
    if mixed == 0 and wilson_interval(0, len(at_run.successes)).high < SPLIT_BOUND:
        solved = sum(k == at_run.num_samples for k in at_run.successes)
        return "nothing_to_learn", (
            f"{solved} of {len(at_run.successes)} prompts are always solved and the rest never: no group would hold "
            "right and wrong completions, so there is no gradient towards the answer. Take prompts of medium difficulty."
        )
    return "learnable", (
        f"Right in {seen} ({format_share(at_run.rate)}); about {format_share(mixed, 0)} of groups of {group_size} hold right and wrong ones."
    )


def _notes(
    verdict: Verdict, at_run: ProbeCounts, at_low: ProbeCounts | None, mixed: float, group_size: int
) -> list[str]:
    notes = []
    if verdict == "learnable" and mixed < THIN_SIGNAL_SHARE:
        side = "never solved" if at_run.rate < 0.5 else "always solved"
        notes.append(
            f"Thin signal: {format_share(1 - mixed, 0)} of groups of {group_size} would be all alike, mostly {side}. Expect many "
            "steps; prompts of medium difficulty or larger groups help."
        )
    if at_low is not None and at_run.num_successes:
        if at_low.interval.low > at_run.interval.high:
            notes.append(
                f"Better at temperature {at_low.temperature:g} ({format_share(at_low.rate)}): the model knows more than its "
                "samples show, so part of the gain of training will be a narrower distribution."
            )
        elif at_low.interval.high < at_run.interval.low:
            notes.append(
                f"Worse at temperature {at_low.temperature:g} ({format_share(at_low.rate)}): its most likely answer is wrong and "
                "success comes from exploring."
            )
    return notes
