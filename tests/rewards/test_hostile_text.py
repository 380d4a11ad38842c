"""No text of 10 kB takes a reward longer than its limit, raises, or earns anything."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from spark_rl.rewards import ExactMatch, Format, JsonSchema, MathAnswer, RegexMatch, Reward, ToolCall

SIZE = 10_000
CPU_LIMIT_S = 0.5
"""What this process may spend on one text; algebra has its own limit in its own process."""

EXPRESSIONS = [
    "9^9^9^9",
    r"9^{9^{9^{9}}}",
    r"\sqrt{" * 60 + "2" + "}" * 60,
    "99999999!",
    r"(10^{100})!",
    r"\sum_{n=1}^{\infty}\frac{1}{n^n}",
    r"\int_0^\infty e^{-x^2}\sin(x^x)dx",
    "x^{1000000}+1",
    "(x+y+z)^{500}",
    r"\binom{100000}{50000}",
    r"\frac{1}{1+" * 30 + "1" + "}" * 30,
    "2^{2^{2^{2^{2^2}}}}",
    "9" * 9000,
    "1e999999",
    "10^{100000}",
    ",".join(map(str, range(2000))),
    "(" + "1," * 3000 + "1)",
]
ATOMS = [
    *("9^", r"\boxed{", r"\boxed{1}", r"\frac{", r"\sqrt{", "{", "}", "(", "[", "<think>", "</think>", "<answer>"),
    *("</answer>", "<tool_call>", "<function=f>", "</function>", "<parameter=a>", "#### ", "#### 1\n", "answer is "),
    *(
        "The answer is 1. ",
        "A: 1\n",
        "1",
        "1,",
        "1 ",
        "1.",
        "1e9",
        "-",
        "1=",
        "x=",
        r"\cup ",
        r"\pm",
        "!",
        r"\text{ a }",
    ),
    *(r"\left(", r"\begin{pmatrix}", "\\\\", "$", "```", "```json\n", '{"a":', "[1,", '"', "\n", " ", "a", "not ", "é"),
    *("\x00", "🙂", r"5\times10^{", "%", "1/", "a b ", "and ", "B) ", "_{5}", "f(a=", "[f(", ";", "<|python_tag|>"),
]
GOLDS = ("18", "1,2,3", "x^2+1")


def filled(atom: str) -> str:
    return (atom * (SIZE // len(atom) + 1))[:SIZE]


def texts() -> list[str]:
    chooser = random.Random(0)
    mixed = ["".join(chooser.choices(ATOMS, k=chooser.choice([5, 50, 1000])))[:SIZE] for _ in range(60)]
    repeated = [before + filled(atom) for atom in ATOMS for before in ("", "The answer is ", r"\boxed{", "<answer>")]
    return mixed + repeated + ["{" * SIZE, "[" * 5000 + "]" * 5000, '{"a":' * 1600, "[f(a=" + "-" * 9000 + "1)]"]


PLAIN: dict[str, tuple[Reward[Any], dict[str, Any]]] = {
    "exact": (ExactMatch(), {"answer": "18"}),
    "regex": (RegexMatch(pattern=r"<answer>\s*(.*?)\s*</answer>", answer="answer"), {"answer": "18"}),
    "format": (Format(tags=["think", "answer"]), {}),
    "sections": (Format(sections=["Reasoning:", "Answer:"]), {}),
    "json_schema": (JsonSchema(schema={"type": "object", "required": ["b"], "uniqueItems": True}), {}),
    "tool_call": (ToolCall(), {"ground_truth": [{"f": {"a": [2]}}]}),
}


@pytest.fixture(scope="module")
def math_answer() -> Iterator[MathAnswer]:
    reward = MathAnswer(time_limit_s=0.2)
    yield reward
    reward.close()
    for other, _ in PLAIN.values():
        other.close()


def spent(reward: Reward[Any], text: str, row: dict[str, Any]) -> float:
    """CPU seconds of this process for one verdict, which must be 0."""
    started = time.process_time()
    verdict = reward.judge(text, row)
    seconds = time.process_time() - started
    assert verdict.value == 0.0, (text[:60], verdict)
    return seconds


@pytest.mark.parametrize("name", PLAIN)
def test_hostile_text_is_cheap_for_every_reward(name: str) -> None:
    reward, row = PLAIN[name]
    chosen = texts()[::5] if name in ("regex", "json_schema") else texts()  # these two answer from another process
    assert max(spent(reward, text, row) for text in chosen) < CPU_LIMIT_S


@pytest.mark.parametrize("gold", GOLDS)
def test_hostile_text_is_cheap_for_the_math_reward(math_answer: MathAnswer, gold: str) -> None:
    assert max(spent(math_answer, text, {"answer": gold}) for text in texts()) < CPU_LIMIT_S


@pytest.mark.parametrize("gold", ["18", r"\sqrt{2}+x"])
def test_pathological_expressions_are_stopped_at_the_limit(math_answer: MathAnswer, gold: str) -> None:
    started = time.monotonic()
    completions = [rf"\boxed{{{expression}}}" for expression in EXPRESSIONS]
    verdicts = math_answer.judge_batch(completions, [{"answer": gold}] * len(completions))
    assert [verdict.value for verdict in verdicts] == [0.0] * len(completions)
    assert time.monotonic() - started < 60  # each has 0.2 s of CPU; the rest is a loaded machine
