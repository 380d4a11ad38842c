"""Where in a completion the final answer stands.

In: the completion. Out: the stated answer with the rule that found it. One order for all rewards that read answers:
1. text after the last closed reasoning block (an unfinished one leaves nothing to read);
2. the last <answer>...</answer>;  3. the last \\boxed{...};  4. the last "#### ...";
5. the last "the answer is ..." / "Answer: ..." / "A: ...";  6. the whole text.
An unclosed tag or box counts up to the end of its line. More than MAX_STATED different answers state none.
All scans are linear in the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Rule = Literal["unfinished", "too_many", "negated", "answer_tag", "boxed", "hashes", "phrase", "whole"]

WHY_NONE: dict[str, str] = {
    "unfinished": "the reasoning block is not closed, so no answer is stated",
    "too_many": "too many different answers are stated",
    "negated": "the stated answer is denied",
}
"""Rules under which no answer is stated, and the reason to give."""
MAX_STATED = 3
"""Different marked answers in one completion: more is a list of guesses, fewer is a change of mind (the last counts)."""

_ANSWER_TAG = re.compile(r"<answer>", re.IGNORECASE)
_ANSWER_END = re.compile(r"</answer>", re.IGNORECASE)
_BOX = re.compile(r"\\f?boxed[ ]*(\{|[ ]?\d)")
_NUMBER_LINE = re.compile(r"^[^\w\n]{0,4}\d[\d.,]*[^\w\n]{0,4}$", re.MULTILINE)
_HASHES = re.compile(r"####[ \t]*([^\n]*)")
_PHRASE = re.compile(
    r"\bans(?:wer)?[*_]{0,3}(?:\s(?:is|are|was|would be|equals|must be)\b[ \t]*[:=]?|[ \t]?[:=])[*_]{0,3}[ \t]*\n?[ \t]*([^\n]+)",
    re.IGNORECASE,
)
_LETTER_A = re.compile(r"^[ \t]*A:[ \t]*([^\n]+)", re.MULTILINE)
_REASONING_TAGS = ("think", "thinking", "reasoning", "scratchpad")
_NEGATION_BEFORE = re.compile(
    r"(?:\b(?:not|never|isn['’]t|cannot be|can['’]t be|wasn['’]t|aren['’]t|wrong|incorrect)\b)"
    r"(?:\s+(?:equal|equals|to|the|be|a|an|exactly|simply|answer|is|value|result)\b){0,4}[\s:=$(*]*\Z",
    re.IGNORECASE,
)
_NEGATION = re.compile(r"\b(?:not|never|wrong|incorrect|isn['’]t|aren['’]t|false that)\b", re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<!\d)[.!?;](?=\s|$)|(?<=\d)[.!?;](?=\s+[A-Z(]|\s*$)|(?<=\d)[!?;](?!\s*\d)")
_REASON = re.compile(
    r",?\s+(?:because|since|so|as|which|where|for|when|if)\b|,\s+(?:the|this|that|it|we|not|rather|instead)\b"
    r"|,\s+and\b(?!\s*(?:[\d$\\(-]|[a-z]\s*=))",
    re.IGNORECASE,
)
"""Where a sentence goes on after its answer; ", and 7" goes on with a list."""


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


def balanced(text: str, start: int, opening: str = "{", closing: str = "}") -> int | None:
    """Index just after the group that opens at `start`, or None when it never closes."""
    depth = 0
    for index in range(start, len(text)):
        if text[index] == opening:
            depth += 1
        elif text[index] == closing:
            depth -= 1
            if depth == 0:
                return index + 1
    return None


def boxes(text: str) -> list[tuple[int, str]]:
    """Every outermost \\boxed{...}: where it starts and what it holds. A box never closed holds the rest of its line."""
    found = []
    position = 0
    while match := _BOX.search(text, position):
        group = match.start(1)
        if text[group] != "{":  # \boxed 7
            found.append((match.start(), text[group : match.end()].strip()))
            position = match.end()
            continue
        end = balanced(text, group)
        if end is None:
            line_end = text.find("\n", group)
            found.append((match.start(), text[group + 1 : line_end if line_end >= 0 else len(text)]))
            break
        found.append((match.start(), text[group + 1 : end - 1]))
        position = end
    return found


def find_answer(completion: str) -> FoundAnswer:
    """The stated final answer by the order above."""
    text = after_reasoning(completion)
    if text is None:
        return FoundAnswer("", "unfinished")
    if tags := _tagged(text):
        inner = [(start, boxed[-1][1] if (boxed := boxes(body)) else _unwrapped(body)) for start, body in tags]
        return _last(text, inner, "answer_tag")
    if boxed := boxes(text):
        return _last(text, boxed, "boxed")
    if hashes := [(match.start(), match[1]) for match in _HASHES.finditer(text) if match[1].strip()]:
        return _last(text, hashes, "hashes")
    phrases = [(match.start(), match[1]) for pattern in (_PHRASE, _LETTER_A) for match in pattern.finditer(text)]
    if phrases:
        return _last(text, [(start, first_clause(_unwrapped(body))) for start, body in sorted(phrases)], "phrase")
    return FoundAnswer(text.strip(), "whole")


def _unwrapped(body: str) -> str:
    """What follows "the answer is" inside something that was already marked as the answer."""
    inner = _PHRASE.search(body) if len(body) <= 400 else None
    return inner[1] if inner and not is_negated(body[: inner.start(1)]) else body


def _tagged(text: str) -> list[tuple[int, str]]:
    found = []
    for opening in _ANSWER_TAG.finditer(text):
        closing = _ANSWER_END.search(text, opening.end())
        if closing is None:
            line_end = text.find("\n", opening.end())
            found.append((opening.start(), text[opening.end() : line_end if line_end >= 0 else len(text)]))
            break
        found.append((opening.start(), text[opening.end() : closing.start()]))
    return found


def _last(text: str, stated: list[tuple[int, str]], rule: Rule) -> FoundAnswer:
    """The last stated answer, unless too many different ones are stated or it is denied."""
    if len({body.strip() for _, body in stated}) > MAX_STATED:
        return FoundAnswer("", "too_many")
    start, body = stated[-1]
    if rule in ("hashes", "phrase") and len(_NUMBER_LINE.findall(text, start)) > MAX_STATED:
        return FoundAnswer("", "too_many")
    if _NEGATION_BEFORE.search(text[max(0, start - 60) : start]):
        return FoundAnswer(body.strip(), "negated")
    return FoundAnswer(body.strip(), rule)


def first_clause(line: str) -> str:
    """What a sentence states before it goes on to give reasons: "18, because 9 * 2 = 18." -> "18"."""
    line = line[:600]
    if end := _SENTENCE_END.search(line):
        line = line[: end.start()]
    if (reason := _REASON.search(line)) and line[: reason.start()].strip():
        line = line[: reason.start()]
    return line.strip().lstrip("*_ ").strip()


def last_sentence(text: str) -> str:
    """The last sentence of the last line that is not empty."""
    lines = [line for line in text[-2000:].splitlines() if line.strip()]
    line = lines[-1].strip() if lines else ""
    ends = [match.end() for match in _SENTENCE_END.finditer(line) if match.end() < len(line)]
    return line[ends[-1] :].strip() if ends else line


def is_negated(text: str) -> bool:
    """Whether a short text denies what it says."""
    return bool(_NEGATION.search(text))
