"""Attacks on a reward before a run finds them: text that answers nothing, and what it scores.

In:  a composite and rows of its data. Out: a report: what each attack earns per part, which parts fail, raise or are dead,
and whether a right answer is recognised in the usual wordings. Pure apart from calling the reward.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spark_rl.rewards.base import Completion, Row, completion_text
from spark_rl.rewards.composite import Composite
from spark_rl.rewards.matching import accepted_answers

WITHOUT_CONTENT = frozenset({"empty", "blank", "junk", "junk words", "padding", "repetition"})
"""Attacks that have no format either."""


def floor_of(means: str, attack: str) -> float:
    """What an attack may earn: correctness nothing; a format may hold without an answer, but not without content."""
    if means == "correct" or (means == "format" and attack in WITHOUT_CONTENT):
        return 0.0
    return 1.0


WORDINGS: Mapping[str, str] = {
    "plain": "{gold}",
    "boxed": r"\boxed{{{gold}}}",
    "answer tag": "<answer>{gold}</answer>",
    "hashes": "#### {gold}",
    "sentence": "The answer is {gold}.",
}
"""How models state a right answer."""


@dataclass(frozen=True)
class AttackResult:
    """What one attack earned from one part."""

    attack: str
    part: str
    highest: float | None
    num_above_floor: int
    num_rows: int
    num_bugs: int
    example: str
    """A completion that earned more than the floor, or whose scoring failed."""
    reason: str


@dataclass(frozen=True)
class CheckReport:
    """The whole check."""

    attacks: tuple[AttackResult, ...]
    recognised: Mapping[str, float | None]
    """Wording -> share of rows whose gold, stated so, is judged correct; None where it cannot be tried."""
    problems: tuple[str, ...]


def attack_texts(gold: str | None, prompt: str, other_golds: Sequence[str]) -> dict[str, str]:
    """One completion per attack for a row. None of them answers the question."""
    texts = {
        "empty": "",
        "blank": " \n\t \n",
        "junk": "banana",
        "junk words": "qwfp zxcv arst lorem ipsum dolor sit amet",
        "padding": "So, thinking about it step by step, we consider the problem. " * 40,
        "repetition": "the the the the " * 100,
        "numbers": " ".join(str(number) for number in range(1, 400)),
        "number lines": "\n".join(str(number) for number in range(1, 400)),
        "empty tags": "<think></think><answer></answer>",
        "empty box": r"\boxed{}",
        "markers": "<answer> \\boxed{ #### answer: " * 20,
    }
    if prompt:
        texts["prompt echo"] = prompt
        texts["prompt echo twice"] = prompt + "\n" + prompt
    if gold:
        texts["negation"] = f"The answer is not {gold}."
        texts["boxed negation"] = rf"It is not \boxed{{{gold}}}."
        texts["tag negation"] = f"<answer>not {gold}</answer>"
    every = [one for one in dict.fromkeys(other_golds) if one != gold][:50]
    if len(every) >= 3:
        tail = [gold] if gold else []
        texts["every answer"] = "The answer is " + " or ".join([*every, *tail]) + "."
        texts["every box"] = " ".join(rf"\boxed{{{one}}}" for one in [*every, *tail])
        texts["answer list"] = "<answer>" + ", ".join([*every, *tail]) + "</answer>"
    return texts


def check_reward(composite: Composite, rows: Sequence[Row], gold_of: Callable[[Row], Any]) -> CheckReport:
    """Attack a reward with every text on every row. `gold_of` gives a row's gold, or None."""
    golds = [first_gold(gold_of(row)) for row in rows]
    known = [gold for gold in golds if gold]
    attacks = [attack_texts(gold, prompt_of(row), known) for gold, row in zip(golds, rows, strict=True)]
    results: list[AttackResult] = []
    for name in dict.fromkeys(name for texts in attacks for name in texts):
        chosen = [index for index, texts in enumerate(attacks) if name in texts]
        completions = [attacks[index][name] for index in chosen]
        results += _attack(composite, name, completions, [rows[index] for index in chosen])
    recognised = {name: _recognised(composite, wording, golds, rows) for name, wording in WORDINGS.items()}
    return CheckReport(tuple(results), recognised, tuple(_problems(composite, results, recognised, rows)))


def prompt_of(row: Row) -> str:
    """The row's prompt as text; "" when it has none."""
    prompt = row.get("prompt", row.get("question", ""))
    if isinstance(prompt, str):
        return prompt
    return "\n".join(completion_text([{**message, "role": "assistant"}]) for message in prompt or ())


def first_gold(raw: Any) -> str | None:
    """The first accepted answer when it is a short text, for stating it in other words."""
    golds = accepted_answers(raw) if isinstance(raw, str | int | float | list | tuple) else []
    gold = golds[0].rsplit("####", 1)[-1].strip() if golds else ""
    return gold if gold and len(gold) <= 200 else None


def _attack(composite: Composite, name: str, completions: Sequence[str], rows: Sequence[Row]) -> list[AttackResult]:
    scored = composite.score(completions, rows)
    results = []
    for part, _ in composite.parts:
        floor = floor_of(part.means, name)
        verdicts = [one.parts[part.name] for one in scored]
        values = [verdict.value for verdict in verdicts if verdict.value is not None]
        above = [index for index, verdict in enumerate(verdicts) if verdict.value is not None and verdict.value > floor]
        bugs = [index for index, verdict in enumerate(verdicts) if verdict.is_bug]
        shown = (bugs or above or [0])[0]
        results.append(
            AttackResult(
                attack=name,
                part=part.name,
                highest=max(values, default=None),
                num_above_floor=len(above),
                num_rows=len(rows),
                num_bugs=len(bugs),
                example=completions[shown][:200],
                reason=verdicts[shown].reason,
            )
        )
    return results


def _recognised(composite: Composite, wording: str, golds: Sequence[str | None], rows: Sequence[Row]) -> float | None:
    chosen = [(wording.format(gold=gold), row) for gold, row in zip(golds, rows, strict=True) if gold]
    if not chosen:
        return None
    ungated = Composite(composite.parts)
    scored = ungated.score([text for text, _ in chosen], [row for _, row in chosen])
    judged = [one.correct for one in scored if one.correct is not None]
    return sum(judged) / len(judged) if judged else None


def _problems(
    composite: Composite,
    results: Sequence[AttackResult],
    recognised: Mapping[str, float | None],
    rows: Sequence[Row],
) -> list[str]:
    problems = [
        f"{one.part}: failed on {one.num_bugs} of {one.num_rows} completions of attack {one.attack!r}: {one.reason}"
        for one in results
        if one.num_bugs
    ]
    problems += [
        f"{one.part}: attack {one.attack!r} earns up to {one.highest:g} on {one.num_above_floor} of {one.num_rows} rows"
        for one in results
        if one.num_above_floor
    ]
    tried = [share for share in recognised.values() if share is not None]
    if tried and max(tried) == 0.0:
        problems.append("no wording of the right answer is judged correct")
    problems += _shape_problems(composite, rows)
    return problems


def _shape_problems(composite: Composite, rows: Sequence[Row]) -> list[str]:
    """A reward must judge a string and the same text as chat messages alike."""
    if not rows:
        return []
    text = "The answer is 4."
    shapes: list[Completion] = [text, [{"role": "assistant", "content": text}]]
    as_text, as_messages = (composite.score([shape], [rows[0]])[0] for shape in shapes)
    if as_text.total != as_messages.total:
        return [f"a string scores {as_text.total}, the same text as messages {as_messages.total}"]
    return []
