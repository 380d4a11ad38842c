"""What may cross between judge and candidate."""

from __future__ import annotations

import datetime
import json
import os
from collections import Counter, OrderedDict, deque, namedtuple
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_rl.sandbox.inside import wire

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False)
    | st.fractions()
    | st.decimals(allow_nan=False)
    | st.dates()
    | st.datetimes()
    | st.timedeltas()
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers(), inner)
        | st.sets(st.text())
    ),
    max_leaves=20,
)


def refuse(thing: Any) -> Any:
    raise AssertionError(f"{thing!r} has no plain form")


def across(value: Any) -> Any:
    """The value after a trip over the wire."""
    channel = os.memfd_create("channel")
    try:
        wire.send(channel, {"kind": "value", "value": wire.plain(value, refuse)})
        os.lseek(channel, 0, os.SEEK_SET)
        return wire.receive(channel)["value"]
    finally:
        os.close(channel)


def same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and one == other and (isinstance(one, int) or repr(one) == repr(other))


@given(VALUES)
@settings(max_examples=60, deadline=None)
def test_every_plain_value_arrives_as_itself(value: Any) -> None:
    arrived = across(value)
    assert type(arrived) is type(value)
    assert arrived == value


@pytest.mark.parametrize(
    "value",
    [
        1 << 100_000,
        -(1 << 5000),
        float("inf"),
        -0.0,
        "\ud800",
        range(1, 9, 2),
        deque([1, 2]),
        frozenset({1}),
        bytearray(b"x"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_unusual_values_arrive_as_themselves(value: Any) -> None:
    assert same(value, across(value))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Counter("aab"), {"a": 2, "b": 1}),
        ({"x": 1}.keys(), {"x"}),
        (OrderedDict(x=1), {"x": 1}),
        (namedtuple("Point", "x y")(1, 2), (1, 2)),
        (Fraction(1, 3), Fraction(1, 3)),
        (Decimal("0.10"), Decimal("0.10")),
        (datetime.time(1, 2), datetime.time(1, 2)),
    ],
)
def test_a_subclass_arrives_as_the_builtin_value(value: Any, expected: Any) -> None:
    assert same(expected, across(value))


def test_a_lying_subclass_loses_its_lies() -> None:
    lying = type("Lying", (int,), {"__eq__": lambda self, other: True, "__hash__": int.__hash__})
    assert across(lying(3)) != 4


def frame(body: bytes) -> int:
    """A file that holds one frame and then ends."""
    reading = os.memfd_create("frame")
    os.write(reading, len(body).to_bytes(4, "big") + body)
    os.lseek(reading, 0, os.SEEK_SET)
    return reading


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        b"\xff\xfe",
        b'{"value": {"ref": ["candidate", 0, "x"]}}',
        b'{"value": {"set": [[1]]}}',
        b'{"value": {"tuple": 5}}',
        b'{"value": {"tuple": {"ref": 1}}}',
        b'{"value": {"int": "zz"}}',
        b'{"value": {"dict": [[1]]}}',
        b'{"value": {"range": [1, 2, 0]}}',
        b'{"value": {"date": "never"}}',
        b"1" * 5000,
        b"[" * 100_000 + b"]" * 100_000,
    ],
)
def test_what_is_no_value_is_an_error_and_nothing_else(body: bytes) -> None:
    reading = frame(body)
    with pytest.raises(wire.WireError):
        wire.receive(reading)
    os.close(reading)


def test_a_frame_that_announces_gigabytes_is_refused_unread() -> None:
    reading, writing = os.pipe()
    os.write(writing, (1 << 31).to_bytes(4, "big"))
    with pytest.raises(wire.WireError):
        wire.receive(reading)


def test_a_value_beyond_the_limit_is_not_sent() -> None:
    with pytest.raises(wire.TooLarge):
        wire.send(-1, ["x" * (wire.MAX_FRAME_BYTES + 1)])


def test_a_value_nested_too_deep_is_not_sent() -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(wire.TooLarge):
        wire.send(-1, nested)


TAGS = st.sampled_from(
    ["int", "tuple", "dict", "set", "frozenset", "bytes", "range", "complex", "date", "timedelta", "ref", "x"]
)
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4) | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TAGS, inner, max_size=2),
    max_leaves=8,
)


@given(JUNK)
@settings(max_examples=200, deadline=None)
def test_no_tagged_junk_does_more_than_fail(junk: Any) -> None:
    reading = frame(json.dumps({"kind": "value", "value": junk}).encode())
    try:
        arrived = wire.receive(reading, lambda reference: "a stand-in")
    except wire.WireError:
        arrived = {}
    finally:
        os.close(reading)
    assert type(arrived) is dict
