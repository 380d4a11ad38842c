"""Where in a completion the final answer stands.

In: the completion. Out: the stated answer with the rule that found it. One order for all rewards that read answers:
1. text after the last closed reasoning block (an unfinished one leaves nothing to read);
2. the last <answer>...</answer>;  3. the last balanced \\boxed{...};  4. the last "#### ...";
5. the last "the answer is ..." / "Answer: ..." / "A: ...";  6. the whole text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Rule = Literal["unfinished", "answer_tag", "boxed", "hashes", "phrase", "whole"]

_ANSWER_TAG = re.compile(r"<answer>(.*?)</answer>", re.DOTALL | re.IGNORECASE)
_HASHES = re.compile(r"####[ \t]*([^\n]*)")
_PHRASE = re.compile(
    r"(?:(?:final|correct)\s+)?\banswer(?:\s+(?:is|are|was|would\s+be|equals)\b\s*:?|\s*[:=])[ \t]*([^\n]+)",
    re.IGNORECASE,
)
_LETTER_A = re.compile(r"^[ \t]*A:[ \t]*([^\n]+)", re.MULTILINE)
_REASONING_TAGS = ("think", "thinking", "reasoning", "scratchpad")


@dataclass(frozen=True)
class FoundAnswer:
    """The stated answer and the rule that found it."""

    text: str
    rule: Rule


def after_reasoning(completion: str) -> str | None:
    """The text after the last closed reasoning block; None when a block was opened and never closed."""
    text = completion
    for tag in _REASONING_TAGS:
        closing = text.rfind(f"</{tag}>")
        rest = text[closing + len(tag) + 3 :] if closing >= 0 else text
        if f"<{tag}>" in rest:
            return None
        text = rest
    return text


def last_boxed(text: str) -> str | None:
    """The content of the last closed \\boxed{...} (braces balanced), or None."""
    for name in (r"\boxed", r"\fbox"):
        start = text.rfind(name)
        while start >= 0:
            content = _braced(text, start + len(name))
            if content is not None:
                return content
            start = text.rfind(name, 0, start)
    return None


def _braced(text: str, start: int) -> str | None:
    """The content of the brace group that begins at `start` (spaces allowed before it)."""
    while start < len(text) and text[start] == " ":
        start += 1
    if start >= len(text) or text[start] != "{":
        return None
    depth = 0
    for index in range(start, len(text)):
        if text[index] == "{":
            depth += 1
        elif text[index] == "}":
            depth -= 1
            if depth == 0:
                return text[start + 1 : index]
    return None


def find_answer(completion: str) -> FoundAnswer:
    """The stated final answer by the order above."""
    text = after_reasoning(completion)
    if text is None:
        return FoundAnswer("", "unfinished")
    if tags := _ANSWER_TAG.findall(text):
        inner = tags[-1].strip()
        boxed = last_boxed(inner)
        return FoundAnswer((boxed if boxed is not None else inner).strip(), "answer_tag")
    if (boxed := last_boxed(text)) is not None:
        return FoundAnswer(boxed.strip(), "boxed")
    if hashes := _HASHES.findall(text):
        return FoundAnswer(hashes[-1].strip(), "hashes")
    if phrases := [match for pattern in (_PHRASE, _LETTER_A) for match in pattern.finditer(text)]:
        last = max(phrases, key=lambda match: match.start())
        return FoundAnswer(last.group(1).strip(), "phrase")
    return FoundAnswer(text.strip(), "whole")


def final_answer(completion: str) -> str:
    """The stated final answer's text; the whole text when nothing marks an answer."""
    return find_answer(completion).text
