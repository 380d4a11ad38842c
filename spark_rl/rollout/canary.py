"""Does the engine sample with the trainer's weights? Pure comparison of numbers that the engine hooks collect; no torch.

Three questions, each a function that answers None (healthy) or a `Diagnosis` with a name:
    judge_sync      checksums of every tensor: what the trainer holds, what was pushed, what the engine holds now
    judge_prompts   token ids: what the run's chat template makes, what was handed over, what the engine says it read
    judge_logprobs  log-probabilities of the same tokens by sampler and trainer, and how far the sampler followed the update
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Name = Literal[
    "stale",
    "half-synced",
    "adapter missing",
    "adapter applied twice",
    "wrong chat template",
    "truncated vocabulary",
    "unexplained difference",
]

SUM_TOLERANCE = 1e-9
"""Relative to the sum of magnitudes: float64 sums of the same elements in another order differ by about 1e-13 for 1e9 of
them; a bf16 tensor that differs in one element of a million differs by 1e-9 of it or more."""

MERGE_TOLERANCE = 0.05
"""Of the adapter's own contribution: merging rounds to the base's dtype, and twice-applied is 1.0 away."""

FACTOR_OVER_NOISE = 4.0
"""The later log-probability differences may exceed the first one by this factor. Measured on a CPU by scripts/canary_battery,
healthy: below 5e-7 in fp32 over 200 steps; 0.0011 first, 0.0035 at most in bf16 over 40. FLOOR decides there."""

MEAN_CEILING = {"float32": 0.02, "float16": 0.1, "bfloat16": 0.25}
"""Largest mean absolute difference that is let through at the first comparison, per dtype of the coarser side: above what two
engines show for one model (0.02-0.03 in a public bf16 run, below 0.002 in fp32), below another model (beyond 1)."""

FLOOR = {"float32": 0.002, "float16": 0.01, "bfloat16": 0.03}
"""Below this a difference is never called a fault by its size alone, per dtype."""

FOLLOWED = 0.5
"""An engine that has followed an update by less than half of it has not got it."""

PROGRESS_OVER_NOISE = 3.0
"""The update must have moved the trainer's own log-probabilities by this many times the noise before `followed` is trusted."""


@dataclass(frozen=True)
class Diagnosis:
    name: Name
    words: str
    """What was seen, with the figures."""

    @property
    def hint(self) -> str:
        return HINTS[self.name]


HINTS: dict[Name, str] = {
    "stale": "the weights are pushed but not used: another vLLM build, or rollout.kind = native",
    "half-synced": "some tensors never arrive: report the names above; rollout.kind = native meanwhile",
    "adapter missing": "the engine samples from the base model: rollout.kind = native, or merge by full fine-tuning",
    "adapter applied twice": "an earlier merge was not undone: rollout.kind = native; do not export this run's base",
    "wrong chat template": "serve the same tokenizer and chat template as the trainer's",
    "truncated vocabulary": "the engine was built for a smaller vocabulary than the trainer's head",
    "unexplained difference": "compare the dtypes in effective.json; rollout.kind = native is the reference",
}


@dataclass(frozen=True)
class Sums:
    """Checksum of a tensor: additive, so that a fused tensor is compared with its parts."""

    total: float
    magnitude: float
    """Sum of absolute values."""

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.total + other.total, self.magnitude + other.magnitude)


def agree(one: Sums, other: Sums, slack: float = 0.0) -> bool:
    """Equal but for the order of summation, plus an absolute `slack`."""
    allowed = SUM_TOLERANCE * max(one.magnitude, other.magnitude) + slack
    return abs(one.total - other.total) <= allowed and abs(one.magnitude - other.magnitude) <= allowed


@dataclass(frozen=True)
class Sync:
    """One weight sync, tensor by tensor, under the engine's names (fused tensors summed)."""

    expected: Mapping[str, Sums]
    """What the engine should hold: the trainer's weights in the engine's dtype, adapters merged once."""
    pushed: Mapping[str, Sums] | None
    """What was handed to the engine; None when that cannot be seen."""
    held: Mapping[str, Sums]
    """What the engine holds now. Tensors that cannot be read are absent."""
    base: Mapping[str, Sums] | None = None
    """Without any adapter; None in full fine-tuning."""
    before: Mapping[str, Sums] | None = None
    """What the engine held after the sync before; None at the first."""
    vocabulary: tuple[int, int] | None = None
    """Rows of the trainer's output head, tokens that the engine can sample."""


def judge_sync(sync: Sync) -> Diagnosis | None:
    """What is wrong after a sync, or None."""
    if sync.vocabulary and sync.vocabulary[1] < sync.vocabulary[0]:
        return Diagnosis(
            "truncated vocabulary",
            f"the engine can sample {sync.vocabulary[1]} tokens, the trainer's head has {sync.vocabulary[0]}",
        )
    if sync.base is not None:
        told = _judge_adapter(sync, sync.pushed if sync.pushed is not None else sync.held)
        if told:
            return told
    wanted = sync.pushed if sync.pushed is not None else sync.expected
    never = sorted(set(sync.expected) - set(wanted))
    wrong = sorted(name for name, held in sync.held.items() if name in wanted and not agree(held, wanted[name]))
    if not never and not wrong:
        return _judge_pushed(sync)
    total = len(sync.expected)
    missed = sorted({*never, *wrong})
    if not never and set(_due(sync, wanted)) <= set(wrong):
        return Diagnosis("stale", f"none of the {len(wrong)} tensors that changed arrived, e.g. {wrong[0]}")
    vocabulary = [name for name in missed if "embed_tokens" in name or "lm_head" in name]
    if vocabulary == missed:
        return Diagnosis("truncated vocabulary", f"only {', '.join(missed)} differ from the trainer's")
    shown = ", ".join(missed[:3])
    return Diagnosis("half-synced", f"{len(missed)} of {total} tensors did not arrive: {shown}")


def _due(sync: Sync, wanted: Mapping[str, Sums]) -> list[str]:
    """Tensors that this sync had to change; all of them where it is not known what was there."""
    known = [name for name in sync.held if name in wanted]
    if sync.before is None:
        return known
    return [name for name in known if name in sync.before and not agree(sync.before[name], wanted[name])]


def _judge_pushed(sync: Sync) -> Diagnosis | None:
    """The engine took what it was given; was that right? Merging is compared in `_judge_adapter`, by its own tolerance."""
    if sync.pushed is None or sync.base is not None:
        return None
    wrong = sorted(name for name, sums in sync.expected.items() if not agree(sums, sync.pushed[name]))
    if wrong:
        shown = ", ".join(wrong[:3])
        return Diagnosis("unexplained difference", f"{len(wrong)} tensors were pushed with other values: {shown}")
    return None


def _judge_adapter(sync: Sync, got: Mapping[str, Sums]) -> Diagnosis | None:
    """How often the adapter is in what the engine was given: the least-squares factor over all adapted tensors."""
    assert sync.base is not None
    adapted = [name for name in sync.base if name in got and not agree(sync.base[name], sync.expected[name])]
    deltas = [
        (sync.expected[name].total - sync.base[name].total, got[name].total - sync.base[name].total) for name in adapted
    ]
    weight = sum(delta * delta for delta, _ in deltas)
    if not weight:
        return None
    factor = sum(delta * found for delta, found in deltas) / weight
    if abs(factor - 1) <= MERGE_TOLERANCE:
        return None
    if abs(factor) <= 0.25 and sync.pushed is not None:
        return Diagnosis(
            "adapter missing", f"the engine was given the base weights: {factor:.2f} of the adapter is in them"
        )
    if 1.75 <= factor <= 2.25:
        return Diagnosis("adapter applied twice", f"the engine was given {factor:.2f} times the adapter")
    return None if sync.pushed is None else Diagnosis("half-synced", f"only {factor:.2f} of the adapter was pushed")


def judge_prompts(
    expected: Sequence[Sequence[int]], given: Sequence[Sequence[int]], read: Sequence[Sequence[int]]
) -> Diagnosis | None:
    """The run's own encoding, the ids handed to the sampler, and the ids the sampler says it has read."""
    pairs = (
        ("the trainer's prompt is not encoded as at the inspection", expected, given),
        ("the engine read other tokens", given, read),
    )
    for words, left, right in pairs:
        differing = [
            index for index, (one, other) in enumerate(zip(left, right, strict=False)) if list(one) != list(other)
        ]
        if differing:
            index = differing[0]
            return Diagnosis(
                "wrong chat template",
                f"{words}: {len(differing)} of {len(left)} prompts differ, e.g. {_clip(left[index])} against {_clip(right[index])}",
            )
    return None


def _clip(ids: Sequence[int]) -> str:
    return str([*ids[:8], "..."] if len(ids) > 8 else list(ids))


@dataclass(frozen=True)
class Logprobs:
    """One comparison on the same tokens, at one set of weights."""

    mean_difference: float
    """Mean |sampler - trainer| over the tokens just sampled, at the run's temperature."""
    mean_signed: float
    """Mean of sampler - trainer: positive when the sampler chooses among fewer tokens."""
    num_tokens: int
    dtype: str
    """The coarser of the two sides."""
    followed: float | None = None
    """On fixed tokens: how much of the trainer's movement since the last comparison the engine shows: 1 = all, 0 = none.
    None at the first comparison or where the engine cannot be asked."""
    progress: float | None = None
    """On fixed tokens: mean movement of the trainer's own log-probabilities since the last comparison."""
    fixed_difference: float | None = None
    """On fixed tokens: mean |engine - trainer|."""


def threshold(noise: float | None, dtype: str) -> float:
    """Largest healthy mean difference: from the noise measured at the first comparison, within the dtype's bounds."""
    if noise is None:
        return MEAN_CEILING[dtype]
    return min(MEAN_CEILING[dtype], max(FLOOR[dtype], FACTOR_OVER_NOISE * noise))


def judge_logprobs(now: Logprobs, noise: float | None) -> Diagnosis | None:
    """`noise` is the mean difference of the first comparison, when both sides held the same checkpoint; None at the first."""
    limit = threshold(noise, now.dtype)
    told = _judge_following(now, noise)
    if told:
        return told
    if now.mean_difference <= limit:
        return None
    words = f"mean difference of log-probabilities {now.mean_difference:.4f} over {now.num_tokens} tokens, healthy is up to {limit:.4f}"
    if now.mean_signed > 0.8 * now.mean_difference and (now.fixed_difference or 0.0) <= limit:
        return Diagnosis("truncated vocabulary", f"{words}; the sampler is surer of every token it chose")
    if now.fixed_difference is not None and now.fixed_difference <= limit:
        return Diagnosis("wrong chat template", f"{words}, but none on the same prompts: the sampler was given others")
    return Diagnosis("unexplained difference", words)


def _judge_following(now: Logprobs, noise: float | None) -> Diagnosis | None:
    """Whether the engine moved with the trainer. Needs no size of difference to be trusted, only a visible update."""
    if now.followed is None or now.progress is None or noise is None:
        return None
    if now.progress < PROGRESS_OVER_NOISE * max(noise, 1e-6):
        return None
    words = f"the trainer's log-probabilities moved by {now.progress:.4f}, the engine's by {now.followed:.2f} of that"
    if now.followed < 0.2:
        return Diagnosis("stale", words)
    if now.followed < FOLLOWED:
        return Diagnosis("half-synced", words)
    if now.followed > 1.6:
        return Diagnosis("adapter applied twice", words)
    return None
