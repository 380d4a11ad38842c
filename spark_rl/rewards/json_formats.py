"""The values of JSON Schema's "format" that are enforced, as checks for the jsonschema package.

In: names of formats. Out: a FormatChecker. Unknown formats (int32, color, ...) are annotations and always pass.
"""

from __future__ import annotations

import ipaddress
import re
import uuid
from collections.abc import Callable
from datetime import date
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from spark_rl.rewards.ecma_pattern import python_pattern

_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})\Z", re.ASCII)
_TIME = re.compile(r"(\d{2}):(\d{2}):(\d{2})(?:\.\d+)?(?:[Zz]|[+-](\d{2}):(\d{2}))\Z", re.ASCII)
_EMAIL = re.compile(r"[^@\s\"(),:;<>\[\\\]]+@(?:[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*|\[[^\]\s]+\])\Z")
_HOSTNAME = re.compile(
    r"(?=.{1,253}\Z)[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*\Z"
)
_URI_CHARACTERS = re.compile(r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]*\Z")
_RELATIVE_POINTER = re.compile(r"(?:0|[1-9]\d*)(?:#|(?:/(?:[^~/]|~[01])*)*)\Z")
_JSON_POINTER = re.compile(r"(?:/(?:[^~/]|~[01])*)*\Z")


def is_date(text: str) -> bool:
    """RFC 3339 full-date."""
    match = _DATE.match(text)
    if match is None:
        return False
    try:
        date(int(match[1]) or 4, int(match[2]), int(match[3]))
    except ValueError:
        return False
    return True


def is_time(text: str) -> bool:
    """RFC 3339 full-time; a leap second may be 60."""
    match = _TIME.match(text)
    if match is None:
        return False
    hour, minute, second, offset_hour, offset_minute = (int(part or 0) for part in match.groups())
    return hour < 24 and minute < 60 and second <= 60 and offset_hour < 24 and offset_minute < 60


def is_date_time(text: str) -> bool:
    """RFC 3339 date-time."""
    return len(text) > 11 and text[10] in "Tt" and is_date(text[:10]) and is_time(text[11:])


def is_uri(text: str) -> bool:
    """RFC 3986, with a scheme."""
    return is_uri_reference(text) and bool(re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", text))


def is_uri_reference(text: str) -> bool:
    """RFC 3986, scheme optional."""
    if not _URI_CHARACTERS.match(text) or re.search(r"%(?![0-9A-Fa-f]{2})", text):
        return False
    try:
        _ = urlsplit(text).port
    except ValueError:
        return False
    return True


def _raises(parse: Callable[[str], Any]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            parse(text)
        except (ValueError, re.error):
            return False
        return True

    return check


CHECKS: dict[str, Callable[[str], bool]] = {
    "date": is_date,
    "time": is_time,
    "date-time": is_date_time,
    "email": lambda text: bool(_EMAIL.match(text)),
    "hostname": lambda text: bool(_HOSTNAME.match(text)),
    "ipv4": _raises(ipaddress.IPv4Address),
    "ipv6": lambda text: "%" not in text and _raises(ipaddress.IPv6Address)(text),
    "uri": is_uri,
    "uri-reference": is_uri_reference,
    "uuid": lambda text: (
        bool(re.fullmatch(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", text)) and bool(uuid.UUID(text))
    ),
    "json-pointer": lambda text: bool(_JSON_POINTER.match(text)),
    "regex": _raises(python_pattern),
    "idn-email": lambda text: text.count("@") == 1 and all(text.split("@")) and not re.search(r"\s", text),
    "iri": lambda text: bool(re.match(r"[A-Za-z][A-Za-z0-9+.-]*:\S*\Z", text)),
    "relative-json-pointer": lambda text: bool(_RELATIVE_POINTER.match(text)),
    "uri-template": lambda text: bool(re.fullmatch(r"(?:[^{}\s\"'<>\\^`|]|\{[^{}\s]+\})*", text)),
}

DRAFT_4 = frozenset({"date-time", "email", "hostname", "ipv4", "ipv6", "uri", "regex", "date", "time", "idn-email"})
"""Enforced in drafts 3 and 4; the last four are not in their texts, but validators of those drafts know them."""
DRAFT_6 = DRAFT_4 | {"uri-reference", "json-pointer", "uri-template"}
DRAFT_7 = DRAFT_6 | {"iri", "relative-json-pointer"}


@lru_cache(maxsize=8)
def format_checks(names: frozenset[str]) -> Any:
    """A FormatChecker with these of the checks; only strings can break a format."""
    from jsonschema import FormatChecker

    checker = FormatChecker(formats=())
    for name in sorted(names):
        checker.checks(name)(_for_strings(CHECKS[name]))
    return checker


def _for_strings(check: Callable[[str], bool]) -> Callable[[object], bool]:
    return lambda value: not isinstance(value, str) or check(value)
