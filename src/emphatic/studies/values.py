"""Lists of numbers in text form: ``0, .5, 1-2^-3`` or ``2^-18..2^0``."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

from emphatic.learning.inputs import refusal
from emphatic.questions.expressions import Expression

__all__ = ["numbers"]

#: A range: from, to, and how it goes on.
_RANGE = re.compile(r"(?P<first>.+?)\.\.(?P<last>[^:]+)(:(?P<how>[*+])(?P<by>.+))?")
#: The most numbers that one range may stand for.
_MOST = 100_000


def numbers(name: str, given: Any) -> tuple[float, ...]:
    """The numbers of a parameter: one, a list of them, or a text.

    In a text they are separated by commas, with + − * / ^ and brackets. ``a..b`` goes from a to b by doubling,
    ``a..b:*f`` by multiplying with f, and ``a..b:+s`` by adding s.

    >>> numbers("alpha", "2^-3..2^0, 3/2")
    (0.125, 0.25, 0.5, 1.0, 1.5)
    >>> numbers("lambda", "0..1:+.25")
    (0.0, 0.25, 0.5, 0.75, 1.0)
    """
    if isinstance(given, str):
        found = [number for item in given.split(",") for number in _item(name, item.strip())]
    elif isinstance(given, Iterable) and getattr(given, "shape", None) != ():
        found = [number for item in given for number in numbers(name, item)]
    else:
        try:
            found = [float(given)]
        except (TypeError, ValueError):
            raise refusal(name, "sweep", "be numbers", repr(given)) from None
    if not found or not all(map(math.isfinite, found)):
        raise refusal(name, "sweep", "be finite numbers, one at least", repr(given))
    return tuple(found)


def _item(name: str, text: str) -> list[float]:
    match = _RANGE.fullmatch(text)
    if match is None:
        return [_number(name, text)]
    first, last = _number(name, match["first"]), _number(name, match["last"])
    how, by = match["how"] or "*", _number(name, match["by"] or "2")
    if how == "+":
        # (from the start each time, so that no error adds up)
        steps = (last - first) / by if by else math.nan
        made = [first + i * by for i in range(_whole(name, text, steps) + 1)]
    else:
        fine = first > 0 and last > 0 and by > 0 and by != 1
        steps = math.log(last / first) / math.log(by) if fine else math.nan
        made = [first * by**i for i in range(_whole(name, text, steps) + 1)]
    return made


def _whole(name: str, text: str, steps: float) -> int:
    """The steps of a range that end where it ends, or before."""
    if not 0 <= steps <= _MOST:  # also refuses NaN
        raise refusal(name, "sweep", "be ranges that reach their end, such as 2^-6..2^0 or 0..1:+.1", repr(text))
    return int(steps + 1e-9)


def _number(name: str, text: str) -> float:
    try:
        return float(Expression(text.replace("^", "**"))({}))
    except Exception:  # whatever is wrong with it
        raise refusal(name, "sweep", "be numbers such as .1, 2^-8 or 1-1/4", repr(text)) from None
