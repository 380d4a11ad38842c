"""Validates JSON against a schema, inside a helper process.

In:  {"schema": JSON text or null, "has_value", "value", "formats"}. Out: {}, {"violation": ...} or {"unusable": ...}.
Differences from the jsonschema package's defaults, each needed to judge as the specification says: patterns are read as
ECMA-262 has them, multipleOf is exact for decimals, and a schema without "$schema" is read by the newest draft that accepts it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from functools import lru_cache
from importlib import import_module
from typing import Any

from spark_rl.rewards.ecma_pattern import python_pattern
from spark_rl.rewards.json_formats import CHECKS, DRAFT_4, DRAFT_6, DRAFT_7, format_checks

MAX_REASON = 160


def prepare(setup: dict[str, Any]) -> None:
    """Import the validator before children are forked."""
    for package in ("jsonschema", "jsonschema_specifications", "referencing.jsonschema"):
        import_module(package)


def handle(payload: dict[str, Any]) -> dict[str, Any]:
    """The judgement on one value."""
    if payload["schema"] is None:
        return {"unusable": "there is none"}
    validator = _validator(payload["schema"], payload["formats"])
    if isinstance(validator, str):
        return {"unusable": validator}
    if not payload["has_value"]:
        return {}
    try:
        violation = _violation(validator, payload["value"])
    except RecursionError:
        shallow = json.dumps(payload["value"]).count("[") + json.dumps(payload["value"]).count("{") < 50
        return (
            {"unusable": "its $ref go round in a circle"}
            if shallow
            else {"violation": "nested too deeply to be judged"}
        )
    return {"violation": violation} if violation else {}


def _violation(validator: Any, value: Any) -> str | None:
    from jsonschema.exceptions import best_match

    error = best_match(validator.iter_errors(value))
    if error is None:
        return None
    place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.absolute_path).lstrip(".")
    return f"violates the schema{' at ' + place if place else ''}: {error.message}"[:MAX_REASON]


@lru_cache(maxsize=2048)
def _validator(schema_text: str, formats: str) -> Any:
    """A validator, or the sentence that says why the schema cannot be used."""
    from jsonschema.exceptions import SchemaError

    try:
        schema = json.loads(schema_text)
    except (ValueError, RecursionError) as error:
        return f"it is not JSON: {error}"
    if not isinstance(schema, dict | bool):
        return f"a schema is an object or a boolean, not {type(schema).__name__}"
    try:
        patterned = _with_python_patterns(schema)
        cls = _draft(patterned)
        cls.check_schema(patterned, format_checker=None)
    except SchemaError as error:
        place = "/".join(str(step) for step in error.absolute_path)
        return f"it is not valid itself{' at ' + place if place else ''}: {error.message}"[:MAX_REASON]
    except (ValueError, re.error) as error:
        return str(error)[:MAX_REASON]
    except RecursionError:
        return "it is nested too deeply"
    if reference := _unresolvable(patterned, cls):
        return f"$ref {reference!r} cannot be resolved (nothing is fetched)"
    names = frozenset(CHECKS) if formats == "on" else _draft_formats(cls) if formats == "draft" else frozenset[str]()
    return _exact(cls)(patterned, format_checker=format_checks(names) if names else None)


def _draft(schema: dict[str, Any] | bool) -> Any:
    """The validator class of the schema's draft; without a known "$schema", the newest draft that accepts it."""
    from jsonschema.exceptions import SchemaError

    jsonschema: Any = import_module("jsonschema")
    newest = jsonschema.Draft202012Validator
    if isinstance(schema, bool):
        return newest
    stated = str(schema.get("$schema", "")).strip().rstrip("#")
    for uri in (
        stated,
        stated + "#",
        stated.replace("https://", "http://", 1),
        stated.replace("https://", "http://", 1) + "#",
    ):
        found = jsonschema.validators.validator_for({"$schema": uri}, default=None)
        if stated and found is not None:
            return found
    for cls in (newest, jsonschema.Draft201909Validator, jsonschema.Draft7Validator, jsonschema.Draft4Validator):
        try:
            cls.check_schema(schema, format_checker=None)
        except SchemaError:
            continue
        return cls
    return newest


def _draft_formats(cls: Any) -> frozenset[str]:
    """The formats that a draft asks to be enforced; none from 2019-09 on."""
    jsonschema: Any = import_module("jsonschema")
    by_draft = {
        jsonschema.Draft3Validator: DRAFT_4,
        jsonschema.Draft4Validator: DRAFT_4,
        jsonschema.Draft6Validator: DRAFT_6,
        jsonschema.Draft7Validator: DRAFT_7,
    }
    return by_draft.get(cls, frozenset())


@lru_cache(maxsize=8)
def _exact(cls: Any) -> Any:
    """The class with multipleOf exact for decimals: 19.99 is a multiple of 0.01."""
    validators: Any = import_module("jsonschema.validators")
    keyword = "divisibleBy" if "divisibleBy" in cls.VALIDATORS else "multipleOf"
    return validators.extend(cls, {keyword: _multiple_of})


def _multiple_of(validator: Any, divisor: Any, instance: Any, schema: Any) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError

    if validator.is_type(instance, "number") and Decimal(repr(instance)) % Decimal(repr(divisor)) != 0:
        yield ValidationError(f"{instance!r} is not a multiple of {divisor!r}")


_DATA_KEYWORDS = frozenset({"const", "enum", "default", "examples", "example"})
_NAMED_SUBSCHEMAS = frozenset(
    {"properties", "definitions", "$defs", "dependentSchemas", "dependencies", "dependentRequired"}
)


def _with_python_patterns(schema: Any) -> Any:
    """The schema with every pattern in Python's spelling. Names of properties and plain data are left alone."""
    if isinstance(schema, list):
        return [_with_python_patterns(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _DATA_KEYWORDS:
            result[key] = value
        elif key == "pattern" and isinstance(value, str):
            result[key] = python_pattern(value)
        elif key == "patternProperties" and isinstance(value, dict):
            result[key] = {python_pattern(name): _with_python_patterns(item) for name, item in value.items()}
        elif key in _NAMED_SUBSCHEMAS and isinstance(value, dict):
            result[key] = {name: _with_python_patterns(item) for name, item in value.items()}
        else:
            result[key] = _with_python_patterns(value)
    return result


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        for item in schema:
            yield from _references(item)
    elif isinstance(schema, dict):
        for key, value in schema.items():
            if key in ("$ref", "$dynamicRef") and isinstance(value, str):
                yield value
            elif key in _NAMED_SUBSCHEMAS and isinstance(value, dict):
                for item in value.values():
                    yield from _references(item)
            elif key not in _DATA_KEYWORDS:
                yield from _references(value)


def _unresolvable(schema: Any, cls: Any) -> str | None:
    """The first reference that leads nowhere, or None. Schemas with nested identifiers are left to the validator."""
    from referencing.exceptions import Unresolvable

    referencing: Any = import_module("referencing")
    drafts: Any = import_module("referencing.jsonschema")
    references = sorted(set(_references(schema)))
    if not references:
        return None
    specification = drafts.specification_with(cls.META_SCHEMA.get("$schema", ""), default=None)
    registry = import_module("jsonschema_specifications").REGISTRY
    resource = referencing.Resource(contents=schema, specification=specification)
    base = resource.id() or ""
    resolver = registry.with_resource(base, resource).crawl().resolver(base)
    nested = json.dumps(schema).count('"$id"') > 1
    for reference in references:
        try:
            resolver.lookup(reference)
        except (Unresolvable, ValueError, KeyError, TypeError, AttributeError):
            if not nested:
                return reference
    return None
