"""What crosses between judge and candidate: length-prefixed frames of JSON, and plain values in them.

Only values of built-in types cross, rebuilt on the far side as exactly those types: no class of the sender, no
`__eq__`, no pickle. An object of another class crosses as a reference that only its owner can resolve.
JSON, not pickle or marshal: its decoder cannot be made to run code or to corrupt memory.
"""

from __future__ import annotations

import datetime
import json
import os
from collections import deque
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any, cast

MAX_FRAME_BYTES = 16 * 1024 * 1024
# Integers beyond this go as hex: decimal conversion is quadratic, and Python caps it at 4,300 digits.
MAX_DECIMAL_BITS = 4096


class WireError(Exception):
    """The other side closed, or sent what is no frame or no value."""


class Unsendable(Exception):
    """A value that has no plain form."""


class TooLarge(Exception):
    """A value beyond MAX_FRAME_BYTES, or nested too deep."""


def send(descriptor: int, message: Any) -> None:
    """One frame, or TooLarge."""
    try:
        body = json.dumps(message, separators=(",", ":")).encode("ascii")
    except (RecursionError, MemoryError):
        raise TooLarge("the value is nested too deep, or too large to send") from None
    if len(body) > MAX_FRAME_BYTES:
        raise TooLarge(f"the value takes {len(body)} bytes, more than {MAX_FRAME_BYTES}")
    data = memoryview(len(body).to_bytes(4, "big") + body)
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError as error:
        raise WireError(f"the other side is gone ({error.strerror})") from None


def receive(descriptor: int, resolve: Callable[[Any], Any] | None = None) -> Any:
    """The next frame's message. WireError at the end of the stream or on anything malformed."""
    size = int.from_bytes(_exactly(descriptor, 4), "big")
    if size > MAX_FRAME_BYTES:
        raise WireError(f"a frame of {size} bytes")
    body = _exactly(descriptor, size)
    try:
        return json.loads(body.decode("ascii"), object_hook=_Untag(resolve))
    except (ValueError, TypeError, ArithmeticError, RecursionError, MemoryError, OverflowError) as error:
        raise WireError(f"not a plain value: {type(error).__name__}") from None


def _exactly(descriptor: int, size: int) -> bytes:
    chunks = []
    while size:
        try:
            chunk = os.read(descriptor, min(size, 1 << 20))
        except OSError as error:
            raise WireError(f"the other side is gone ({error.strerror})") from None
        if not chunk:
            raise WireError("the other side ended")
        chunks.append(chunk)
        size -= len(chunk)
    return b"".join(chunks)


_EXACT = frozenset({bool, float, str, type(None)})
_TEXT_FORM: dict[type, tuple[str, Callable[[Any], str]]] = {
    Decimal: ("decimal", str),
    Fraction: ("fraction", str),
    datetime.datetime: ("datetime", datetime.datetime.isoformat),
    datetime.date: ("date", datetime.date.isoformat),
    datetime.time: ("time", datetime.time.isoformat),
}


def plain(value: Any, refer: Callable[[Any], Any]) -> Any:
    """The value as JSON. Subclasses of built-in types go as their built-in value; others as `refer` says."""
    kind = type(value)
    if kind in _EXACT:
        return value
    if kind is int:
        return value if value.bit_length() <= MAX_DECIMAL_BITS else {"int": hex(value)}
    if kind is list:
        return [plain(item, refer) for item in value]
    if kind is tuple:
        return {"tuple": [plain(item, refer) for item in value]}
    if kind is dict:
        return {"dict": [[plain(key, refer), plain(item, refer)] for key, item in value.items()]}
    return _plain_other(value, kind, refer)


_SET_LIKE_VIEWS: tuple[type, ...] = (type({}.keys()), type({}.items()))  # they compare with sets as sets do


def _plain_other(value: Any, kind: type, refer: Callable[[Any], Any]) -> Any:
    if kind in _TEXT_FORM:
        tag, write = _TEXT_FORM[kind]
        return {tag: write(value)}
    if isinstance(value, set | frozenset) or kind in _SET_LIKE_VIEWS:
        name = "frozenset" if isinstance(value, frozenset) else "set"
        return {name: [plain(item, refer) for item in value]}
    if isinstance(value, bytes | bytearray):
        return {"bytes" if isinstance(value, bytes) else "bytearray": value.hex()}
    if isinstance(value, deque):
        return {"deque": [plain(item, refer) for item in value]}
    if kind is range:
        return {"range": [value.start, value.stop, value.step]}
    if kind is complex:
        return {"complex": [value.real, value.imag]}
    if kind is datetime.timedelta:
        return {"timedelta": [value.days, value.seconds, value.microseconds]}
    for base in (int, float, str, list, tuple, dict):
        if isinstance(value, base):
            return plain(cast(Callable[[Any], Any], base)(value), refer)
    return {"ref": refer(value)}


class _Untag:
    """json's object hook: every object of a frame is one tagged value, except the outermost message."""

    def __init__(self, resolve: Callable[[Any], Any] | None) -> None:
        self.resolve = resolve

    def __call__(self, item: dict[str, Any]) -> Any:
        if len(item) != 1:
            return item
        ((tag, content),) = item.items()
        if tag == "ref":
            if self.resolve is None:
                raise ValueError("a reference where none may be")
            return self.resolve(content)
        rebuild = _REBUILD.get(tag)
        if rebuild is None:
            return item
        if type(content) not in (list, str):
            raise ValueError("a tag holds a list or a text")
        return rebuild(content)


def _range(content: Any) -> range:
    return range(*content)


_REBUILD: dict[str, Callable[[Any], Any]] = {
    "int": lambda text: int(text, 16),
    "tuple": tuple,
    "dict": lambda pairs: {key: item for key, item in pairs},  # noqa: C416  dict() would take other shapes too
    "set": set,
    "frozenset": frozenset,
    "bytes": bytes.fromhex,
    "bytearray": bytearray.fromhex,
    "deque": deque,
    "range": _range,
    "complex": lambda parts: complex(*parts),
    "decimal": Decimal,
    "fraction": Fraction,
    "datetime": datetime.datetime.fromisoformat,
    "date": datetime.date.fromisoformat,
    "time": datetime.time.fromisoformat,
    "timedelta": lambda parts: datetime.timedelta(*parts),
}
