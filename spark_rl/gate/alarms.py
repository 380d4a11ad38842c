"""Facts about the samples that a reader should see before the first one: dead parts, failures, paid-for rambling.

In: the scored samples. Out: sentences, the gravest first; none when nothing stands out. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from spark_rl.gate.display import one_line
from spark_rl.gate.samples import Sample
from spark_rl.rewards.base import Verdict

MIN_CLUSTER_SHARE = 0.1
"""Equal scores of fewer samples than this share are chance."""
MANY_SHARE = 0.5
"""Cut-off completions and repeated texts are named from this share on."""
SOME_SHARE = 0.05
"""Samples to which a part does not apply (a gold answer that cannot be read) are named from this share on."""


MAX_REASON = 80
"""Characters of a reason that an alarm quotes."""


def find_alarms(samples: Sequence[Sample]) -> list[str]:
    """Everything that stands out."""
    if not samples:
        return []
    names = list(dict.fromkeys(name for sample in samples for name in sample.parts))
    alarms: list[str] = []
    for name in names:
        alarms += _failures(name, samples)
    for name in names:
        alarms += _dead_part(name, samples)
    alarms += _paid_rambling(samples)
    for name in names:
        alarms += _not_applying(name, samples)
    alarms += _no_success(samples)
    alarms += _cut_off(samples)
    alarms += _repeated(samples)
    return alarms


def _verdicts(name: str, samples: Sequence[Sample]) -> list[Verdict]:
    return [sample.parts[name] for sample in samples if name in sample.parts]


def _failures(name: str, samples: Sequence[Sample]) -> Iterator[str]:
    """The reward raised, hung or returned something that is no number."""
    reasons = [verdict.reason for verdict in _verdicts(name, samples) if verdict.is_bug]
    if reasons:
        yield f"{name} itself failed on {len(reasons)} of {len(samples)} samples: {_commonest(reasons)}"


def _dead_part(name: str, samples: Sequence[Sample]) -> Iterator[str]:
    """A part that gives every sample the same teaches nothing."""
    values = [verdict.value for verdict in _verdicts(name, samples) if verdict.value is not None]
    if len(values) < 2 or len(set(values)) > 1:
        return
    reasons = [verdict.reason for verdict in _verdicts(name, samples) if verdict.value is not None]
    if values[0] <= 0:
        yield f"0 of {len(values)} samples ever score on {name} (always {values[0]:g}: {_commonest(reasons)})"
    else:
        yield f"{name} never varies: {values[0]:g} on all {len(values)} samples ({_commonest(reasons)})"


def _paid_rambling(samples: Sequence[Sample]) -> Iterator[str]:
    """The commonest score is that of texts that ran into the limit, and it is above the floor: running on pays."""
    totals = Counter(sample.total for sample in samples if sample.total is not None)
    if not totals:
        return
    score, count = totals.most_common(1)[0]
    floor = min(0.0, *totals)
    num_cut = sum(sample.truncated for sample in samples if sample.total == score)
    if (
        count >= max(2, MIN_CLUSTER_SHARE * len(samples))
        and 2 * num_cut > count
        and score is not None
        and score > floor
    ):
        yield (
            f"{count} of {len(samples)} samples share the score {score:g}, {num_cut} of them cut off at the length "
            f"limit: text without an end is paid more than the floor of {floor:g}"
        )


def _not_applying(name: str, samples: Sequence[Sample]) -> Iterator[str]:
    """A part that has nothing to say, as when a gold answer cannot be read: nobody learns from these."""
    verdicts = _verdicts(name, samples)
    reasons = [verdict.reason for verdict in verdicts if verdict.value is None and not verdict.is_bug]
    if reasons and len(reasons) >= SOME_SHARE * len(verdicts):
        yield f"{name} does not apply to {len(reasons)} of {len(verdicts)} samples: {_commonest(reasons)}"


def _no_success(samples: Sequence[Sample]) -> Iterator[str]:
    known = [sample.correct for sample in samples if sample.correct is not None]
    if known and not any(known):
        yield f"0 of {len(known)} samples are correct: there is nothing to reinforce"


def _cut_off(samples: Sequence[Sample]) -> Iterator[str]:
    num_cut = sum(sample.truncated for sample in samples)
    if num_cut >= MANY_SHARE * len(samples):
        yield f"{num_cut} of {len(samples)} samples are cut off at the length limit (grpo.max_completion_length)"


def _repeated(samples: Sequence[Sample]) -> Iterator[str]:
    text, count = Counter(sample.completion for sample in samples).most_common(1)[0]
    if count > 1 and count >= MANY_SHARE * len(samples):
        what = "empty" if not text.strip() else "the same text"
        yield f"{count} of {len(samples)} completions are {what}"


def _commonest(reasons: Sequence[str]) -> str:
    """The commonest reason, as short and harmless text."""
    reason, count = Counter(reasons).most_common(1)[0]
    shown = one_line(reason, MAX_REASON)
    return shown if count == len(reasons) else f"{shown} ({count} times)"
