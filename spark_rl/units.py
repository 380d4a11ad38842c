"""Numbers with units, as people read them. Unknown (None) is drawn "N/A", never 0."""

from __future__ import annotations

KIB = 1024
MIB = 1024**2
GIB = 1024**3

NOT_AVAILABLE = "N/A"


def format_bytes(num_bytes: float | None) -> str:
    """Bytes in the largest binary unit that keeps a leading digit: 1536 -> "1.50 KiB"."""
    if num_bytes is None:
        return NOT_AVAILABLE
    sign = "-" if num_bytes < 0 else ""
    size = abs(float(num_bytes))
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{sign}{size:.0f} B" if unit == "B" else f"{sign}{size:.2f} {unit}"
        size /= 1024
    return f"{sign}{size:.2f} TiB"


def format_gib(num_bytes: float | None) -> str:
    """Bytes in GiB with two digits, for columns that must line up."""
    return NOT_AVAILABLE if num_bytes is None else f"{num_bytes / GIB:.2f}"


def format_seconds(seconds: float | None) -> str:
    """A duration as a person says it: 3.2 s, 2 m 10 s, 1 h 05 m."""
    if seconds is None:
        return NOT_AVAILABLE
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} m {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} m"


def format_count(count: float | None) -> str:
    """A count in short form: 134515008 -> "134.5 M"."""
    if count is None:
        return NOT_AVAILABLE
    for limit, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(count) >= limit:
            return f"{count / limit:.1f} {unit}"
    return f"{count:.0f}"


def format_share(share: float | None, digits: int = 1) -> str:
    """A share in percent: 0.392 -> "39.2 %"."""
    return NOT_AVAILABLE if share is None else f"{100 * share:.{digits}f} %"
