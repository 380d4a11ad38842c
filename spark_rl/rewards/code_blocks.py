"""Which program a completion means.

In:  a completion, the code it continued (if any) and the name it should define.
Out: readings of it as a whole program, best first; the sandbox runs the first that compiles. Nothing is compiled here:
even parsing model-written text is the sandbox's work.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass

from spark_rl.rewards.extract import after_reasoning

_FENCE = re.compile(
    r"^[ \t]*(?:```|~~~)[ \t]*([\w+-]*)[^\n]*\n(.*?)(?:^[ \t]*(?:```|~~~)|\Z)", re.MULTILINE | re.DOTALL
)
_FENCE_LINE = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)
_PYTHON = frozenset({"python", "python3", "py", "py3", "ipython", "pycon"})
_CODE_LINE = re.compile(r"^(?:async def|def|class|import|from|@|[A-Za-z_]\w* *=)[ \t(\w]", re.MULTILINE)
_NEXT_TOP_LEVEL_LINE = re.compile(r"\n(?=[^\s#)\]}])")


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    language: str
    text: str


def fenced_blocks(text: str) -> list[Block]:
    """Every fenced block in order; one that is never closed goes to the end."""
    return [Block(match[1].lower(), match[2]) for match in _FENCE.finditer(text)]


def defines(code: str, name: str | None) -> bool:
    """Whether a line at any depth defines this function or class, or assigns this name at the top.

    Of an entry point like "Solution().sum" the class counts.
    """
    if not name:
        return False
    escaped = re.escape(name.partition("().")[0])
    pattern = rf"^[ \t]*(?:async[ \t]+)?(?:def|class)[ \t]+{escaped}\b|^{escaped}[ \t]*="
    return re.search(pattern, code, re.MULTILINE) is not None


def chosen_block(blocks: list[Block], entry_point: str | None) -> str:
    """The last block that defines the entry point, else the last one in Python, else the last one."""
    python = [block for block in blocks if block.language in _PYTHON or not block.language]
    defining = [block for block in python if defines(block.text, entry_point)]
    return (defining or python or blocks)[-1].text


def looks_like_code(prompt: str) -> bool:
    """Whether a prompt is code that a completion can continue, rather than a question in words."""
    return _CODE_LINE.search(prompt) is not None


def readings(completion: str, prompt: str = "", entry_point: str | None = None) -> list[str]:
    """The completion as programs, best first; empty when its reasoning was never closed or it holds nothing."""
    text = after_reasoning(completion)
    if text is None or not text.strip():
        return []
    opening = prompt if looks_like_code(prompt) else ""
    if opening and text[:1] in " \t":  # a body that continues the prompt; a fence after it closes the prompt's own
        text = _FENCE_LINE.split(text, maxsplit=1)[0]
    blocks = fenced_blocks(text)
    code = textwrap.dedent(chosen_block(blocks, entry_point)) if blocks else text
    if not opening:
        return [code]
    if defines(code, entry_point):
        # The opening brings the imports and helpers that people leave out when they write the function again.
        return [f"{closed(opening)}\n\n{code}", code]
    found = [opening + code, opening + up_to_next_top_level(code)]
    # A chat template or a stripped answer may have lost the first line's indentation, or all of it.
    found += [f"{opening}    {code.lstrip()}", opening + textwrap.indent(textwrap.dedent(code), "    ")]
    return list(dict.fromkeys(found))


def closed(opening: str) -> str:
    """A prompt that ends in an open function, ended."""
    return opening + "\n    pass\n" if opening.rstrip().endswith(":") else opening


def up_to_next_top_level(code: str) -> str:
    """The body that continues the prompt, without what a base model wrote after it."""
    match = _NEXT_TOP_LEVEL_LINE.search(code)
    return code[: match.start() + 1] if match else code
