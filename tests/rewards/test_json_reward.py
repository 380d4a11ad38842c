"""The JSON Schema reward: where JSON is found, why it is refused, and agreement with another validator."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_rl.errors import ConfigError
from spark_rl.rewards import JsonSchema
from spark_rl.rewards.ecma_pattern import python_pattern
from spark_rl.rewards.json_formats import CHECKS
from spark_rl.rewards.json_text import find_json

NEEDS_A = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


@pytest.fixture(scope="module")
def by_column() -> Iterator[JsonSchema]:
    reward = JsonSchema(column="schema")
    yield reward
    reward.close()


@pytest.mark.parametrize(
    ("completion", "where"),
    [
        ('{"a":1}', "whole text"),
        ('\ufeff{"a":1}\n', "whole text"),
        ('```json\n{"a":1}\n```', "fenced block"),
        ('```\n{"a":1}\n```', "fenced block"),
        ('Here:\n```python\nprint(1)\n```\n```json\n{"a":1}\n```', "fenced block"),
        ('Sure: {"a":1}', "first balanced object"),
        ('Sure {that one}: {"a":1}. Bye {"a":2}', "first balanced object"),
        ('<think>{"a":2}</think>{"a":1}', "whole text"),
        ('The string "}" and {"a":1}', "first balanced object"),
    ],
)
def test_json_is_found_in_the_documented_order(completion: str, where: str) -> None:
    found = find_json(completion)
    assert (found.value, found.where, found.fault) == ({"a": 1}, where, None)


@pytest.mark.parametrize(
    ("completion", "reason"),
    [
        ("", "empty"),
        ("banana", "no JSON"),
        ('"{\\"a\\":1}"', "a string that holds JSON"),
        ("{'a':1}", "not JSON"),
        ('{"a":1,"a":2}', "given twice"),
        ('{"a":NaN}', "NaN"),
        ('{"a":1e999}', "too large"),
        ('{"a":' + "9" * 9000 + "}", "too long"),
        ('{"a":1', "never ends"),
        ("[" * 5000 + "]" * 5000, "too deeply"),
        ('<think>{"a":1}', "not closed"),
    ],
)
def test_what_is_not_json_has_one_reason(completion: str, reason: str) -> None:
    found = find_json(completion)
    assert found.fault is not None
    assert reason in found.fault


def test_a_violation_names_the_place() -> None:
    verdict = JsonSchema(schema=NEEDS_A).judge('{"a":"x"}', {})
    assert verdict.value == 0.0
    assert verdict.reason == "violates the schema at a: 'x' is not of type 'integer'"


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ('{"type": 3}', "not valid itself"),
        ('{"$ref": "http://example.org/other.json"}', "cannot be resolved"),
        ('{"$ref": "#"}', "circle"),
        ('{"pattern": "("}', "pattern"),
        ("{", "not JSON"),
        (None, "there is none"),
    ],
)
def test_a_schema_that_cannot_be_used_is_told_and_does_not_apply(
    by_column: JsonSchema, schema: str | None, reason: str
) -> None:
    verdict = by_column.judge("{}", {"schema": schema})
    assert verdict.value is None
    assert reason in verdict.reason


def test_an_unusable_schema_of_the_task_is_an_error_of_the_task(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be used"):
        JsonSchema(schema={"type": 3}).judge("{}", {})
    (tmp_path / "s.json").write_text("{")
    with pytest.raises(ConfigError, match="not usable"):
        JsonSchema(base_dir=tmp_path, file="s.json")
    with pytest.raises(ConfigError, match="exactly one"):
        JsonSchema()


def test_a_pattern_that_explodes_is_stopped() -> None:
    reward = JsonSchema(schema={"pattern": "^(a+)+$"}, time_limit_s=0.3)
    assert "not judged within" in reward.judge(json.dumps("a" * 60 + "!"), {}).reason


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        (r"^a$", "a\n", False),
        (r"^\d$", "٣", False),
        (r"^[\w]+$", "ü", False),
        (r"^(?<y>\d{4})-\k<y>$", "2026-2026", True),
        (r"^\/a\-b\_$", "/a-b_", True),
        (r"^\u{1F600}$", "😀", True),
        (r"^[^]$", "\n", True),
        (r"^[[]$", "[", True),
        (r"^\p{L}+$", "aü", True),
        (r"^[\w-.]+$", "a-b.c", True),
        (r"^[.-\d]+$", ".-7", True),
        (r"^[\w-z]+$", "{", False),
    ],
)
def test_patterns_mean_what_ecma_262_says(pattern: str, text: str, matches: bool) -> None:
    import re

    assert (re.search(python_pattern(pattern), text) is not None) == matches


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("date", "2024-02-29", "2023-02-29"),
        ("time", "12:30:00.5+01:00", "12:30:00"),
        ("date-time", "2026-01-31T12:30:00Z", "2026-01-31 12:30"),
        ("email", "a.b@example.org", "a@b@c"),
        ("hostname", "example.org", "-a.org"),
        ("ipv4", "192.0.2.1", "192.0.2.256"),
        ("ipv6", "2001:db8::1", "2001:db8::1::2"),
        ("uri", "https://example.org/a?b=%20", "/relative"),
        ("uri-reference", "/relative", "a b"),
        ("uuid", "123e4567-e89b-42d3-a456-426614174000", "123e4567e89b42d3a456426614174000"),
    ],
)
def test_formats_tell_good_from_bad(name: str, good: str, bad: str) -> None:
    assert CHECKS[name](good)
    assert not CHECKS[name](bad)


DRAFT = "http://json-schema.org/draft-{}/schema#"
SCHEMAS: list[dict[str, Any]] = [
    {"$schema": DRAFT.format("04"), "minimum": 3, "exclusiveMinimum": True, "type": "number"},
    {"$schema": DRAFT.format("04"), "items": [{"type": "integer"}], "additionalItems": False},
    {"$schema": DRAFT.format("06"), "exclusiveMinimum": 3, "contains": {"const": 1}, "propertyNames": {"maxLength": 2}},
    {"$schema": DRAFT.format("07"), "if": {"type": "string"}, "then": {"minLength": 2}, "else": {"type": "integer"}},
    {"$schema": DRAFT.format("07"), "dependencies": {"a": ["b"], "c": {"required": ["d"]}}},
    {"$schema": "https://json-schema.org/draft/2019-09/schema", "dependentRequired": {"a": ["b"]}, "minContains": 1},
    {
        "$schema": "https://json-schema.org/draft/2019-09/schema",
        "properties": {"a": {}},
        "unevaluatedProperties": False,
    },
    {"$schema": "https://json-schema.org/draft/2020-12/schema", "prefixItems": [{"type": "string"}], "items": False},
    {"$schema": "https://json-schema.org/draft/2020-12/schema", "contains": {"type": "integer"}, "maxContains": 1},
    {"multipleOf": 0.01},
    {"type": "integer", "multipleOf": 3},
    {"uniqueItems": True},
    {"enum": [1, "a", None, [1], {"a": 1}]},
    {"const": {"a": [1, 2]}},
    {"patternProperties": {"^a\\d$": {"type": "integer"}}, "additionalProperties": False},
    {"oneOf": [{"type": "integer"}, {"minimum": 2}], "not": {"const": 5}},
    {"$defs": {"n": {"type": "object", "properties": {"next": {"$ref": "#/$defs/n"}}}}, "$ref": "#/$defs/n"},
    {"minProperties": 1, "maxProperties": 2, "minItems": 1, "maxItems": 2, "minLength": 1, "maxLength": 2},
]
INSTANCES: list[Any] = [
    *(None, True, False, 0, 1, 1.0, 1.5, 2, 3, 3.5, 5, 19.99, 0.07, "", "a", "ab", "abc", "é", [], {}),
    *([1], [1, 1], [1, 1.0], [True, 1], ["a"], ["a", 2], [1, "a", 3], [[1], [1]], [{"a": 1}, {"a": 1}]),
    *({"a": 1}, {"a": [1, 2]}, {"a": 1, "b": 2}, {"c": 1}, {"c": 1, "d": 2}, {"abc": 1}, {"a1": 1}, {"a1": "x"}),
    *({"a1": 1, "b": 1}, {"next": {}}, {"next": {"next": 1}}, {"next": {"next": {"next": {}}}}),
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: json.dumps(schema)[:60])
def test_every_draft_is_judged_as_another_validator_does(by_column: JsonSchema, schema: dict[str, Any]) -> None:
    judge = pytest.importorskip("jsonschema_rs").validator_for(schema)
    texts = [json.dumps(instance) for instance in INSTANCES]
    verdicts = by_column.judge_batch(texts, [{"schema": schema}] * len(texts))
    expected = {text: float(judge.is_valid(instance)) for text, instance in zip(texts, INSTANCES, strict=True)}
    assert {text: verdict.value for text, verdict in zip(texts, verdicts, strict=True)} == expected
