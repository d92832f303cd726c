"""Durations as people write them: 90s, 2min, 1.5h, 1d, 1mo, 1y."""

from __future__ import annotations

import math
import re

__all__ = ["MONTH", "YEAR", "format_duration", "seconds"]

#: The mean year and month of the calendar, in seconds.
YEAR = 365.2425 * 86400.0
MONTH = YEAR / 12.0
_UNITS = {"ms": 1e-3, "s": 1.0, "sec": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "day": 86400.0, "w": 604800.0}
_UNITS |= {"mo": MONTH, "month": MONTH, "y": YEAR, "year": YEAR}
_WRITTEN = re.compile(rf"\s*([0-9]*\.?[0-9]+(?:e-?[0-9]+)?)\s*({'|'.join(sorted(_UNITS, key=len, reverse=True))})\s*")


def seconds(text: str) -> float:
    """The seconds of a duration, above 0.

    >>> seconds("2min"), seconds("1.5 h"), seconds("250ms")
    (120.0, 5400.0, 0.25)
    >>> seconds("12mo") == seconds("1y") == 365.2425 * 86400.0
    True
    """
    match = _WRITTEN.fullmatch(text) if isinstance(text, str) else None
    duration = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if not 0.0 < duration < math.inf:
        raise ValueError(f"{text!r} is not a duration such as 90s, 2min, 1.5h or 1d")
    return duration


def format_duration(duration: float) -> str:
    """A duration in the largest unit that suits it.

    >>> format_duration(60.0), format_duration(5400.0), format_duration(0.11)
    ('1 min', '1.5 h', '0.11 s')
    >>> format_duration(3.0 * MONTH)
    '3 mo'
    """
    for unit, size in (("y", YEAR), ("mo", MONTH)):
        if duration >= size and (duration / size) % 1.0 < 1e-9:
            return f"{duration / size:g} {unit}"
    for unit in ("d", "h", "min"):
        if duration >= _UNITS[unit]:
            return f"{duration / _UNITS[unit]:.3g} {unit}"
    return f"{duration:.3g} s"
