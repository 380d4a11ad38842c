"""One-token mutants of a Python program, and what the tests say about them when they run without any sandbox.

In:  trusted code only (a data set's own canonical solutions). Out: mutated sources; whether the tests kill them.
"""

from __future__ import annotations

import io
import os
import random
import resource
import signal
import subprocess
import sys
import tokenize
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

SWAPS = {
    "+": "-", "-": "+", "*": "+", "/": "*", "//": "*", "%": "//", "**": "*",
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "+=": "-=", "-=": "+=", "*=": "+=",
    "and": "or", "or": "and", "True": "False", "False": "True", "not": "", "in": "not in", "min": "max", "max": "min",
    "break": "continue", "continue": "break", "any": "all", "all": "any",
}  # fmt: skip
REFERENCE_LIMIT_S = 8.0
REFERENCE_MEMORY = 2 * 1024**3


def mutants(source: str, count: int, seed: int = 0) -> list[str]:
    """Up to `count` programs that differ from `source` in one token."""
    lines = source.splitlines(keepends=True)
    changed = []
    for token in _tokens(source):
        replacement = _replacement(token)
        if replacement is None:
            continue
        row, column = token.start[0] - 1, token.start[1]
        line = lines[row]
        swapped = line[:column] + replacement + line[column + len(token.string) :]
        changed.append("".join([*lines[:row], swapped, *lines[row + 1 :]]))
    random.Random(seed).shuffle(changed)
    return changed[:count]


def _tokens(source: str) -> list[tokenize.TokenInfo]:
    try:
        return list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (tokenize.TokenError, IndentationError):
        return []


def _replacement(token: tokenize.TokenInfo) -> str | None:
    if token.type in (tokenize.OP, tokenize.NAME):
        return SWAPS.get(token.string)
    if token.type == tokenize.NUMBER and token.string.isdigit():
        return str(int(token.string) + 1)
    return None


def killed(programs: Sequence[str]) -> list[bool]:
    """Whether each program, which ends with its tests, fails when run by a plain interpreter (or never ends)."""
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        return list(pool.map(_fails, programs))


def _fails(program: str) -> bool:
    process = subprocess.Popen(
        [sys.executable, "-I", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=_limited,
    )
    try:
        process.communicate(program.encode(), timeout=REFERENCE_LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return True
    return process.returncode != 0


def _limited() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (REFERENCE_MEMORY, REFERENCE_MEMORY))


def whole_program(problem: Mapping[str, str], body: str) -> str:
    """A HumanEval problem as one program that fails unless the tests hold."""
    return f"{problem['prompt']}{body}\n{problem['test']}\ncheck({problem['entry_point']})\n"
