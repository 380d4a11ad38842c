"""Makes JSON instances for a schema: one that is valid, one with one constraint broken, one of the wrong shape.

In:  a JSON Schema (already parsed), and a judge `is_valid(instance)` made by a validator that the product does not use.
Out: instances; what each is worth is for the judge to say. Deterministic for a given seed.
"""

from __future__ import annotations

import copy
import itertools
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

Judge = Callable[[Any], bool]
MAX_DEPTH = 7
MAX_CHANGES = 2000
MAX_VALUES = 60
"""Values in one instance before optional parts are left out."""
FORMATS = {
    "date-time": "2026-01-31T12:30:00Z",
    "date": "2026-01-31",
    "time": "12:30:00Z",
    "email": "someone@example.org",
    "uri": "https://example.org/a",
    "uri-reference": "/a",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uuid": "123e4567-e89b-42d3-a456-426614174000",
    "hostname": "example.org",
    "regex": "^a$",
    "json-pointer": "/a/b",
}


class NoInstance(ValueError):
    """The schema asks for something that this generator cannot make."""


class Maker:
    """Makes instances of one schema."""

    def __init__(self, schema: Any, judge: Judge, seed: int = 0) -> None:
        self.schema = schema
        self.judge = judge
        self.seed = seed
        self.random = random.Random(seed)
        self.fullness = 0.5
        self.num_made = 0

    def valid(self, attempts: int = 60) -> Any:
        """An instance that the judge accepts. Raises NoInstance."""
        for attempt in range(attempts):
            self.num_made = 0
            self.fullness = (1.0, 0.6, 0.3, 0.0)[(self.seed + attempt) % 4]
            try:
                instance = self.make(self.schema, 0)
            except (NoInstance, RecursionError):
                continue
            if self.judge(instance):
                return instance
        raise NoInstance("no valid instance was found")

    def broken(self, valid: Any) -> Any:
        """The valid instance with one thing changed so that the judge refuses it; unchanged when nothing breaks it."""
        changes = list(itertools.islice(self.changes(valid), MAX_CHANGES))
        self.random.shuffle(changes)
        return next((changed for changed in changes if not self.judge(changed)), valid)

    def wrong_shape(self, valid: Any) -> Any:
        """A value of another JSON type than the valid one."""
        shapes: list[Any] = [[], "text", 7, {"unexpected": [True]}, None, True]
        others = [shape for shape in shapes if json_type(shape) != json_type(valid)]
        return next((shape for shape in others if not self.judge(shape)), others[0])

    def make(self, schema: Any, depth: int) -> Any:
        """A value for a subschema; not yet checked by the judge."""
        self.num_made += 1
        if self.num_made > MAX_VALUES:  # the rest of the instance is kept to what the schema requires
            self.fullness = 0.0
        if self.num_made > 3 * MAX_VALUES:
            raise NoInstance("the instance grows too large")
        if schema is True or schema == {}:
            return self.random.choice(["x", 1, {}])
        if schema is False or depth > 3 * MAX_DEPTH:
            raise NoInstance("nothing fits")
        schema = self.flattened(schema)
        if "const" in schema:
            return copy.deepcopy(schema["const"])
        if "enum" in schema:
            return copy.deepcopy(self.random.choice(schema["enum"]))
        if "default" in schema and self.random.random() < 0.1:
            return copy.deepcopy(schema["default"])
        kind = self.type_of(schema)
        maker = {
            "object": self.make_object,
            "array": self.make_array,
            "string": self.make_string,
            "integer": self.make_number,
            "number": self.make_number,
            "boolean": lambda *_: self.random.random() < 0.5,
            "null": lambda *_: None,
        }[kind]
        return maker(schema, depth)

    def flattened(self, schema: dict[str, Any], hops: int = 0) -> dict[str, Any]:
        """The schema with $ref, allOf and one branch of anyOf/oneOf merged into it."""
        if hops > 20:
            raise NoInstance("references go round in a circle")
        result = dict(schema)
        if "$ref" in result:
            return self.flattened(merged(self.resolve(result.pop("$ref")), result), hops + 1)
        for part in result.pop("allOf", []):
            result = merged(result, self.flattened(part, hops + 1) if isinstance(part, dict) else {})
        for keyword in ("oneOf", "anyOf"):
            if branches := [branch for branch in result.pop(keyword, []) if branch is not False]:
                branch = self.random.choice(branches)
                result = merged(result, self.flattened(branch, hops + 1) if isinstance(branch, dict) else {})
        if "if" in result:
            condition, then = result.pop("if"), result.pop("then", {})
            otherwise = result.pop("else", {})
            chosen = [condition, then] if self.random.random() < 0.5 else [otherwise]
            for part in chosen:
                result = merged(result, part if isinstance(part, dict) else {})
        return result

    def resolve(self, reference: str) -> dict[str, Any]:
        """The subschema that a local reference names."""
        if not reference.startswith("#"):
            for named in self.named():
                if reference in (named.get("$id"), named.get("id")):
                    return named
            raise NoInstance(f"reference {reference}")
        node: Any = self.schema
        for step in filter(None, reference[1:].split("/")):
            key = step.replace("%25", "%").replace("~1", "/").replace("~0", "~")
            node = node[int(key)] if isinstance(node, list) else node.get(key)
            if node is None:
                raise NoInstance(f"reference {reference}")
        return node if isinstance(node, dict) else {}

    def named(self) -> Iterator[dict[str, Any]]:
        """Every subschema that is an object."""
        stack: list[Any] = [self.schema]
        while stack:
            node = stack.pop()
            if isinstance(node, dict):
                yield node
                stack += node.values()
            elif isinstance(node, list):
                stack += node

    def type_of(self, schema: dict[str, Any]) -> str:
        """The type to make: as stated, or as the keywords suggest."""
        stated = schema.get("type")
        if isinstance(stated, list):
            return str(self.random.choice(stated)) if stated else "object"
        if isinstance(stated, str):
            return stated if stated != "any" else "string"
        hints = {
            "object": ("properties", "required", "additionalProperties", "patternProperties", "minProperties"),
            "array": ("items", "minItems", "maxItems", "uniqueItems", "prefixItems", "contains"),
            "string": ("pattern", "minLength", "maxLength", "format"),
            "number": ("minimum", "maximum", "multipleOf", "exclusiveMinimum", "exclusiveMaximum"),
        }
        return next((kind for kind, words in hints.items() if any(word in schema for word in words)), "string")

    def make_object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        properties = schema.get("properties", {})
        needed = schema.get("required", [])
        needed = list(needed) if isinstance(needed, list) else []
        needed += [name for name, sub in properties.items() if isinstance(sub, dict) and sub.get("required") is True]
        optional = [name for name in properties if name not in needed and depth < MAX_DEPTH]
        chosen = needed + [name for name in optional if self.random.random() < self.fullness / (1 + depth)]
        result: dict[str, Any] = {}
        for name in chosen:
            try:
                result[name] = self.make(self.property_schema(schema, name), depth + 1)
            except NoInstance:
                if name in needed:
                    raise
        for number in range(20):
            if len(result) >= schema.get("minProperties", 0):
                break
            name = self.new_name(schema, number)
            result[name] = self.make(self.property_schema(schema, name), depth + 1)
        return result

    def property_schema(self, schema: dict[str, Any], name: str) -> Any:
        parts = [schema["properties"][name]] if name in schema.get("properties", {}) else []
        parts += [sub for pattern, sub in schema.get("patternProperties", {}).items() if re.search(pattern, name)]
        if not parts:
            extra = schema.get("additionalProperties", True)
            return extra if isinstance(extra, dict | bool) else True
        result: Any = parts[0]
        for part in parts[1:]:
            result = merged(result, part) if isinstance(result, dict) and isinstance(part, dict) else part
        return result

    def new_name(self, schema: dict[str, Any], number: int) -> str:
        if patterns := list(schema.get("patternProperties", {})):
            return matching_text(self.random.choice(patterns), self.random)
        if isinstance(names := schema.get("propertyNames"), dict):
            return str(self.make({"type": "string", **names}, 0))
        return f"key{number}"

    def make_array(self, schema: dict[str, Any], depth: int) -> list[Any]:
        prefix = schema.get("prefixItems", schema["items"] if isinstance(schema.get("items"), list) else [])
        rest = (
            schema.get("additionalItems", True) if isinstance(schema.get("items"), list) else schema.get("items", True)
        )
        low = schema.get("minItems", 0)
        high = min(schema.get("maxItems", low + 3), low + 3)
        wanted = max(low, self.random.randint(0, 2) if depth < MAX_DEPTH else 0)
        if "contains" in schema:
            return [self.make(schema["contains"], depth + 1) for _ in range(max(low, 1))]
        result: list[Any] = []
        for index in range(40):
            if len(result) >= min(max(wanted, low), max(high, low)):
                break
            item = self.make(prefix[index] if index < len(prefix) else rest, depth + 1)
            if not (schema.get("uniqueItems") and item in result):
                result.append(item)
        return result

    def make_string(self, schema: dict[str, Any], depth: int) -> str:
        if "pattern" in schema:
            text = matching_text(schema["pattern"], self.random)
        elif schema.get("format") in FORMATS:
            text = FORMATS[schema["format"]]
        else:
            text = self.random.choice(["text", "A longer text, with spaces.", "ünï", "0"])
        low, high = schema.get("minLength", 0), schema.get("maxLength")
        if len(text) < low and "pattern" not in schema:
            text += "x" * (low - len(text))
        return text[:high] if high is not None and "pattern" not in schema else text

    def make_number(self, schema: dict[str, Any], depth: int) -> float:
        integer = schema.get("type") == "integer"
        low, high = schema.get("minimum"), schema.get("maximum")
        below, above = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
        step = schema.get("multipleOf", schema.get("divisibleBy", 1 if integer else 0.5))
        if isinstance(below, int | float) and not isinstance(below, bool):
            low = below + step
        elif below is True and low is not None:
            low += step
        if isinstance(above, int | float) and not isinstance(above, bool):
            high = above - step
        elif above is True and high is not None:
            high -= step
        start = low if low is not None else (high - 3 * step if high is not None else 1)
        value = -(-start // step) * step
        if high is None or value + 2 * step <= high:
            value += self.random.randint(0, 2) * step
        return int(value) if integer or float(value).is_integer() else value

    def changes(self, instance: Any) -> Iterator[Any]:
        """The instance with one place changed, in many ways."""
        for path in places(instance):
            value = at(instance, path)
            for changed in self.changed_values(value):
                yield replaced(instance, path, changed)
            if isinstance(value, dict):
                for name in value:
                    yield replaced(instance, path, {key: item for key, item in value.items() if key != name})
                yield replaced(instance, path, {**value, "unexpected key": "x"})
            if isinstance(value, list):
                yield replaced(instance, path, value[:-1])
                yield replaced(instance, path, [*value, *value[:1]])
                yield replaced(instance, path, [*value, {"unexpected": 1}])

    def changed_values(self, value: Any) -> list[Any]:
        others: list[Any] = [None, True, 0, "x", [], {}]
        changed = [other for other in others if json_type(other) != json_type(value)]
        if isinstance(value, str):
            changed += [value + "!", "", value[:-1], value * 200, value.upper()]
        if isinstance(value, int | float) and not isinstance(value, bool):
            changed += [value + 0.25, value - 1_000_000, value + 1_000_000, -value - 1]
        return changed


def merged(one: Any, other: dict[str, Any]) -> dict[str, Any]:
    """Two schemas as one: good enough to generate from; the judge has the last word."""
    result = dict(one) if isinstance(one, dict) else {}
    for key, value in other.items():
        if key in ("properties", "patternProperties") and key in result:
            result[key] = {**result[key], **value}
        elif key == "required" and isinstance(result.get(key), list) and isinstance(value, list):
            result[key] = list(dict.fromkeys([*result[key], *value]))
        elif key == "enum" and key in result:
            result[key] = [item for item in result[key] if item in value] or value
        else:
            result[key] = value
    return result


def json_type(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return {str: "string", list: "array", dict: "object", type(None): "null"}[type(value)]


def places(instance: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every path into an instance, the root first."""
    yield path
    items = (
        instance.items() if isinstance(instance, dict) else enumerate(instance) if isinstance(instance, list) else ()
    )
    for key, value in items:
        yield from places(value, (*path, key))


def at(instance: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        instance = instance[step]
    return instance


def replaced(instance: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy of the instance with another value at a path."""
    if not path:
        return copy.deepcopy(value)
    result = copy.deepcopy(instance)
    at(result, path[:-1])[path[-1]] = copy.deepcopy(value)
    return result


def matching_text(pattern: str, chooser: random.Random) -> str:
    """A short text that a pattern finds, from the parsed pattern; NoInstance for constructs it does not know."""
    from re import _parser  # type: ignore[attr-defined]

    try:
        return _text_of(_parser.parse(pattern), chooser, {})
    except re.error as error:
        raise NoInstance(str(error)) from None


_CATEGORY = {"CATEGORY_DIGIT": "7", "CATEGORY_WORD": "w", "CATEGORY_SPACE": " ", "CATEGORY_NOT_DIGIT": "d"}
_CATEGORY |= {"CATEGORY_NOT_SPACE": "s", "CATEGORY_NOT_WORD": "-"}


def _text_of(parsed: Any, chooser: random.Random, groups: dict[int, str]) -> str:
    pieces = []
    for operation, argument in parsed:
        name = str(operation)
        if name == "LITERAL":
            pieces.append(chr(argument))
        elif name == "NOT_LITERAL":
            pieces.append("a" if argument != ord("a") else "b")
        elif name == "ANY":
            pieces.append("a")
        elif name == "IN":
            pieces.append(_one_of(argument, chooser))
        elif name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            low, high, inner = argument
            count = min(int(high), low + chooser.randint(0, 2))
            pieces.append("".join(_text_of(inner, chooser, groups) for _ in range(count)))
        elif name == "SUBPATTERN":
            text = _text_of(argument[-1], chooser, groups)
            groups[argument[0] or 0] = text
            pieces.append(text)
        elif name == "BRANCH":
            pieces.append(_text_of(chooser.choice(argument[1]), chooser, groups))
        elif name == "GROUPREF":
            pieces.append(groups.get(argument, ""))
        elif name not in ("AT", "ASSERT", "ASSERT_NOT"):
            raise NoInstance(f"pattern construct {name}")
    return "".join(pieces)


def _one_of(items: Any, chooser: random.Random) -> str:
    if str(items[0][0]) == "NEGATE":
        banned = re.compile("[" + "".join(_class_text(item) for item in items[1:]) + "]")
        return next(character for character in "aZ5-_ é~" if not banned.match(character))
    operation, argument = chooser.choice(items)
    if str(operation) == "RANGE":
        return chr(chooser.randint(argument[0], min(argument[1], argument[0] + 25)))
    return chr(argument) if str(operation) == "LITERAL" else _CATEGORY[str(argument)]


def _class_text(item: Any) -> str:
    operation, argument = item
    if str(operation) == "RANGE":
        return re.escape(chr(argument[0])) + "-" + re.escape(chr(argument[1]))
    if str(operation) == "LITERAL":
        return re.escape(chr(argument))
    return {"CATEGORY_DIGIT": r"\d", "CATEGORY_WORD": r"\w", "CATEGORY_SPACE": r"\s"}.get(str(argument), "")
