"""Attacks on a reward before a run finds them: text that answers nothing, and what it scores.

In:  a composite and rows of its data. Out: a report: what each attack earns per part, which parts fail, raise or are dead,
and whether a right answer is recognised in the usual wordings. Pure apart from calling the reward.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spark_rl.errors import ConfigError
from spark_rl.rewards.base import Completion, Row, completion_text, guarded_judge
from spark_rl.rewards.composite import Composite
from spark_rl.rewards.matching import accepted_answers
from spark_rl.rewards.user_function import UserFunction

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
    shapes: Mapping[str, str]
    """Parts that are users' functions: which shape of completions they accept ("strings", "messages", "both", "neither")."""
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
    functions = [reward for _, reward in composite.parts if isinstance(reward, UserFunction)]
    shapes = {reward.__name__: accepted_shape(reward, rows[0], golds[0]) for reward in functions if rows}
    problems = [*_problems(composite, results, recognised, rows), *_advice(functions, shapes)]
    return CheckReport(tuple(results), recognised, shapes, tuple(problems))


def accepted_shape(reward: UserFunction, row: Row, gold: str | None) -> str:
    """Which shape of completions a user's function can judge: tried with both, on a right answer and on another text.

    A shape counts when the function neither fails on it nor, while the other shape earns something, earns nothing.
    """
    earned: dict[str, float | None] = {}
    for shape, messages in (("strings", False), ("messages", True)):
        other = UserFunction(reward.__name__, reward.base_dir, **{**reward.options.model_dump(), "messages": messages})
        texts = [wording.format(gold=gold or "4") for wording in WORDINGS.values()]
        try:
            verdicts = [guarded_judge(other, text, row) for text in texts]
        except ConfigError:
            verdicts = []
        finally:
            other.close()
        values = [verdict.value for verdict in verdicts if verdict.value is not None]
        failed = not verdicts or any(verdict.is_bug for verdict in verdicts)
        earned[shape] = None if failed else max(values, default=0.0)
    best = max((value for value in earned.values() if value is not None), default=None)
    accepted = [shape for shape, value in earned.items() if value is not None and (value > 0 or not best)]
    return {0: "neither", 1: "".join(accepted), 2: "both"}[len(accepted)]


def _advice(functions: Sequence[UserFunction], shapes: Mapping[str, str]) -> list[str]:
    """What to set where a function wants the other shape of completions."""
    wanted = {False: "messages", True: "strings"}
    return [
        f"{reward.__name__}: the function can judge {shapes[reward.__name__]} only; "
        f"set messages = {str(not reward.options.messages).lower()} for this part"
        for reward in functions
        if shapes.get(reward.__name__) == wanted[reward.options.messages]
    ]


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
