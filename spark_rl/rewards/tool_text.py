"""Tool calls in model text, in the notations of the usual chat templates. Nothing is ever evaluated.

In: the completion. Out: the calls, or one reason why they cannot be read. Tried in this order, after closed reasoning:
1. Hermes, Qwen:  <tool_call>{"name": ..., "arguments": {...}}</tool_call>, one per call
2. Qwen coder:    <tool_call><function=name><parameter=key>value</parameter></function></tool_call>
3. Llama 3.1:     <function=name>{...}</function>
4. Llama 3:       {"name": ..., "parameters": {...}}, after <|python_tag|> or alone; several with ";" or as a list
5. Llama 3.2, 4:  [name(key=value), ...]   (literals only)
Text around calls is allowed in 1 to 3; in 4 and 5 the call is the whole text or a fenced block.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spark_rl.rewards.extract import after_reasoning
from spark_rl.rewards.json_text import NotJson, balanced_json, parse_json

MAX_CALLS = 64
MAX_PARAMETERS = 256
MAX_PYTHONIC = 20_000
"""Characters of a Python-like call that are parsed; the parser's memory grows with nesting."""
_HERMES = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_FUNCTION = re.compile(r"<function=([\w.\-]{1,200})>(.*?)</function>", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([\w.\-]{1,200})>\n?(.*?)\n?</parameter>", re.DOTALL)
_FENCED = re.compile(r"```[A-Za-z_]*[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL)
_END_MARKERS = ("<|eom_id|>", "<|eot_id|>", "<|im_end|>", "<|python_end|>", "</s>")


@dataclass(frozen=True)
class Call:
    """One call as written."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class FoundCalls:
    """The calls of a completion (none is a valid answer), or why they cannot be read."""

    calls: tuple[Call, ...] = ()
    fault: str | None = None


class _Unreadable(ValueError):
    pass


def find_calls(completion: str) -> FoundCalls:
    """The calls by the order above."""
    text = after_reasoning(completion)
    if text is None:
        return FoundCalls(fault="the reasoning block is not closed, so no call is made")
    for marker in _END_MARKERS:
        text = text.replace(marker, "")
    text = text.strip()
    try:
        calls = _calls(text)
    except _Unreadable as error:
        return FoundCalls(fault=str(error))
    if len(calls) > MAX_CALLS:
        return FoundCalls(fault=f"more than {MAX_CALLS} calls are made")
    return FoundCalls(tuple(calls))


def _calls(text: str) -> list[Call]:
    if "<tool_call>" in text:
        return [call for match in _HERMES.finditer(text) for call in _marked_calls(match[1].strip())]
    if "<function=" in text:
        return _tagged_functions(text)
    if "<|python_tag|>" in text:
        text = text.split("<|python_tag|>", 1)[1].strip()
    if fenced := _FENCED.search(text):
        text = fenced[1].strip()
    text = text.replace("<|python_start|>", "").strip()
    if text[:1] == "{" or text[:2] in ("[{", "[]") or re.match(r"\[\s*[\]{]", text):
        return _json_calls(text)
    if re.match(r"\[?\s*[A-Za-z_][\w.]*\s*\(", text):
        return _python_calls(text)
    return []


def _marked_calls(body: str) -> list[Call]:
    return _tagged_functions(body) if "<function=" in body else _json_calls(body)


def _tagged_functions(text: str) -> list[Call]:
    found = list(_FUNCTION.finditer(text)) if text.count("<function=") == text.count("</function>") <= MAX_CALLS else []
    if not found or len(found) != text.count("<function="):
        raise _Unreadable("a <function=...> is not closed")
    calls = []
    for match in found:
        body = match[2].strip()
        if "<parameter=" in body:
            closed = body.count("<parameter=") == body.count("</parameter>") <= MAX_PARAMETERS
            parameters = _PARAMETER.findall(body) if closed else []
            if len(parameters) != body.count("<parameter=") or len({name for name, _ in parameters}) != len(parameters):
                raise _Unreadable("a <parameter=...> is not closed or is given twice")
            calls.append(Call(match[1], {name: _loose_value(value) for name, value in parameters}))
        else:
            calls.append(Call(match[1], _arguments(_json(body)) if body else {}))
    return calls


def _loose_value(text: str) -> Any:
    """A parameter between tags: JSON when it is JSON, else the text."""
    try:
        return parse_json(text)
    except NotJson:
        return {"True": True, "False": False, "None": None}.get(text, text)


def _json_calls(text: str) -> list[Call]:
    """One object, a list of them, or several with semicolons, commas or nothing between."""
    calls: list[Call] = []
    position = 0
    while position < len(text):
        if text[position] not in "{[":
            raise _Unreadable("there is text between or after the calls")
        end = balanced_json(text, position)
        if end is None:
            raise _Unreadable("the JSON of a call never ends")
        value = _json(text[position:end])
        calls += [_call(one) for one in (value if isinstance(value, list) else [value])]
        if len(calls) > MAX_CALLS:
            return calls
        position = end
        while position < len(text) and text[position] in " \t\r\n;,":
            position += 1
    return calls


def _json(text: str) -> Any:
    try:
        return parse_json(text)
    except NotJson as error:
        raise _Unreadable(f"the call is {error}") from None


def _call(value: Any) -> Call:
    if isinstance(value, Mapping) and isinstance(value.get("function"), Mapping):
        value = value["function"]
    if not isinstance(value, Mapping) or not isinstance(value.get("name"), str):
        raise _Unreadable('a call is an object with "name" and "arguments"')
    given = [key for key in ("arguments", "parameters", "args") if key in value]
    if len(given) > 1:
        raise _Unreadable("a call gives its arguments twice")
    return Call(value["name"], _arguments(value[given[0]]) if given else {})


def _arguments(value: Any) -> Mapping[str, Any]:
    if isinstance(value, str):  # OpenAI's wire format: the object as JSON text
        value = _json(value) if value.strip() else {}
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _Unreadable(f"arguments are an object, not {type(value).__name__}")
    return value


def _python_calls(text: str) -> list[Call]:
    if len(text) > MAX_PYTHONIC:
        raise _Unreadable("the calls are too long to be read")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # about a model's text, so nobody's business
            expression = ast.parse(text, mode="eval").body
        nodes = expression.elts if isinstance(expression, ast.List | ast.Tuple) else [expression]
        return [_python_call(node) for node in nodes]
    except _Unreadable:
        raise
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        raise _Unreadable("the calls are not written as [name(key=value), ...]") from None


def _python_call(node: ast.expr) -> Call:
    if not isinstance(node, ast.Call):
        raise _Unreadable("there is something other than calls in the list")
    if node.args or any(keyword.arg is None for keyword in node.keywords):
        raise _Unreadable("arguments are given by name")
    names = [str(keyword.arg) for keyword in node.keywords]
    if len(set(names)) != len(names):
        raise _Unreadable("an argument is given twice")
    values = [json.loads(json.dumps(ast.literal_eval(keyword.value), allow_nan=False)) for keyword in node.keywords]
    return Call(_dotted(node.func), dict(zip(names, values, strict=True)))


def _dotted(node: ast.expr) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        raise _Unreadable("a function is called by its name")
    return ".".join(reversed([*parts, node.id]))
