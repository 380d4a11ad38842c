"""The tool-call reward: are the right functions called with accepted arguments?

In:  a completion with calls in any of the usual notations (see tool_text.py), and a row with the accepted calls:
     [{"function_name": {"argument": [accepted, values], "optional": ["value", ""]}}, ...]   ("" = may be left out)
     or [{"name": ..., "arguments": {...}}, ...] with one value per argument.
Out: 1.0 when calls and accepted calls pair up one to one, in any order; else 0.0 with the first difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from spark_rl.rewards.base import Reward, RewardOptions, Row, Verdict, column, shorten
from spark_rl.rewards.json_text import NotJson, parse_json
from spark_rl.rewards.tool_text import Call, find_calls


class ToolCallOptions(RewardOptions):
    answer: str = "ground_truth"
    """Column with the accepted calls, as a list or as JSON text. An empty list means that no call is right."""
    strings: Literal["loose", "exact"] = "loose"
    """"loose": case and spacing of string arguments do not matter."""
    dots_as_underscores: bool = False
    """Accept math_gcd for math.gcd, for chat templates that forbid dots in names."""


class ToolCall(Reward[ToolCallOptions]):
    """1.0 when every accepted call is made once and nothing else is called."""

    kind = "tool_call"
    options_type = ToolCallOptions

    def judge(self, completion: str, row: Row) -> Verdict:
        expected = expected_calls(column(row, self.options.answer))
        if isinstance(expected, str):
            return Verdict(None, f"column {self.options.answer!r}: {expected}")
        found = find_calls(completion)
        if found.fault is not None:
            return Verdict(0.0, found.fault)
        if len(found.calls) != len(expected):
            return Verdict(0.0, f"{len(found.calls)} calls are made, expected {len(expected)}")
        if not expected:
            return Verdict(1.0, "no call is made, as expected")
        return self._pair_up(found.calls, expected)

    def _pair_up(self, calls: Sequence[Call], expected: Sequence[ExpectedCall]) -> Verdict:
        faults = [[self._difference(call, one) for one in expected] for call in calls]
        if _matching([[fault is None for fault in row] for row in faults]):
            return Verdict(1.0, "the accepted calls are made")
        closest = [
            min((fault for fault in row if fault), key=_severity, default="") for row in faults if None not in row
        ]
        return Verdict(0.0, closest[0] if closest else "two calls answer the same request")

    def _difference(self, call: Call, expected: ExpectedCall) -> str | None:
        """How a call differs from an accepted one, or None."""
        if not self._same_name(call.name, expected.name):
            return f"function {shorten(call.name, 40)!r} is called, expected {expected.name!r}"
        for argument, value in call.arguments.items():
            if argument not in expected.arguments:
                return f"argument {shorten(argument, 40)!r} is not accepted by {expected.name}"
            accepted = expected.arguments[argument]
            if not any(self._same(value, one) for one in accepted):
                return f"argument {argument!r} is {shorten(repr(value), 40)}, accepted: {shorten(repr(list(accepted)), 60)}"
        missing = [
            name
            for name, accepted in expected.arguments.items()
            if name not in call.arguments and not _optional(accepted)
        ]
        return f"argument {missing[0]!r} is missing" if missing else None

    def _same_name(self, called: str, expected: str) -> bool:
        return called == expected or (self.options.dots_as_underscores and called == expected.replace(".", "_"))

    def _same(self, value: Any, accepted: Any) -> bool:
        if isinstance(value, bool) or isinstance(accepted, bool):
            return value is accepted
        if isinstance(value, int | float) and isinstance(accepted, int | float):
            return value == accepted
        if isinstance(value, str) and isinstance(accepted, str):
            return self._text(value) == self._text(accepted)
        if isinstance(value, list) and isinstance(accepted, list | tuple):
            return len(value) == len(accepted) and all(map(self._same, value, accepted))
        if isinstance(value, Mapping) and isinstance(accepted, Mapping):
            return self._same_object(value, accepted)
        return value is None and accepted is None

    def _same_object(self, value: Mapping[str, Any], accepted: Mapping[str, Any]) -> bool:
        """Objects agree key by key; in the accepted one a value may be a list of accepted values."""
        for key, one in value.items():
            if key not in accepted:
                return False
            options = accepted[key]
            alternatives = [*options, options] if isinstance(options, list) else [options]
            if not any(self._same(one, alternative) for alternative in alternatives):
                return False
        return all(
            key in value or (isinstance(options, list) and _optional(options)) for key, options in accepted.items()
        )

    def _text(self, text: str) -> str:
        return text if self.options.strings == "exact" else " ".join(text.split()).casefold()


class ExpectedCall(Call):
    """An accepted call: each argument maps to the list of its accepted values."""


def expected_calls(raw: Any) -> list[ExpectedCall] | str:
    """The accepted calls of a row, or why they cannot be read."""
    if isinstance(raw, str):
        try:
            raw = parse_json(raw)
        except NotJson as error:
            return str(error)
    if raw is None:
        return "there are no accepted calls"
    if isinstance(raw, Mapping):
        raw = [raw]
    if not isinstance(raw, Sequence) or not all(isinstance(one, Mapping) for one in raw):
        return "accepted calls are a list of objects"
    calls: list[ExpectedCall] = []
    for one in raw:
        if "name" in one and ("arguments" in one or "parameters" in one):
            arguments = one.get("arguments", one.get("parameters"))
            if not isinstance(arguments, Mapping):
                return "arguments are an object"
            calls.append(ExpectedCall(str(one["name"]), {name: [value] for name, value in arguments.items()}))
            continue
        for name, arguments in one.items():
            if arguments is None:
                continue
            if not isinstance(arguments, Mapping):
                return f"the arguments of {name!r} are an object of lists"
            accepted = {
                key: values if isinstance(values, list) else [values]
                for key, values in arguments.items()
                if values is not None
            }
            calls.append(ExpectedCall(str(name), accepted))
    return calls


def _optional(accepted: Sequence[Any]) -> bool:
    return any(isinstance(one, str) and one == "" for one in accepted)


def _severity(fault: str) -> int:
    """Differences in arguments tell more than a wrong name."""
    return 1 if fault.startswith("function") else 0


def _matching(table: list[list[bool]]) -> bool:
    """Whether every row can be given a column of its own (augmenting paths)."""
    owner: dict[int, int] = {}

    def place(row: int, seen: set[int]) -> bool:
        for index, fits in enumerate(table[row]):
            if fits and index not in seen:
                seen.add(index)
                if index not in owner or place(owner[index], seen):
                    owner[index] = row
                    return True
        return False

    return len(table) <= 64 and all(place(row, set()) for row in range(len(table)))
