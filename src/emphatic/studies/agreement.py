"""A published number compared with ours.

A study gives an ``Outcome``: its ``Check``s, its figures, and what a reader should know about them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from emphatic.report import Figure

__all__ = ["ORIGINS", "Check", "Origin", "Outcome", "claim", "compare", "count_numbers", "finding"]

#: Where a published number comes from: printed as such; digitised, that is read off a figure; replayed, that is
#: computed by the authors' own updates; or derived, as it follows exactly from what is printed.
Origin = Literal["", "printed", "digitised", "replayed", "derived"]
ORIGINS: tuple[Origin, ...] = ("printed", "digitised", "replayed", "derived")


@dataclass(frozen=True)
class Check:
    """A number (or a few, or a claim in words): as published, as found here, and how far apart the two may be.

    ``agree`` is None where nothing was published to be compared with: such a row is only reported. ``number`` names the
    published number where several checks are about the same one.
    """

    name: str
    published: float | str | None
    ours: float | str
    tolerance: float | str | None = None
    agree: bool | None = None
    note: str = ""
    origin: Origin = ""
    number: str = ""


def compare(
    name: str, published: ArrayLike, ours: ArrayLike, tolerance: ArrayLike, note: str = "", origin: Origin = "derived",
    number: str = "",
) -> Check:  # fmt: skip
    """Numbers agree if all of them are within the tolerance.

    >>> compare("A", [1.0, 2.0], [1.0, 2.1], 0.05)
    Check(name='A', published='1, 2', ours='1, 2.1', tolerance=0.05, agree=False, note='', origin='derived', number='')
    """
    allowed = np.vectorize(lambda value: float(f"{value:.2g}"))(tolerance)  # what is shown is what decides
    agree = bool(np.all(np.abs(np.subtract(ours, published)) <= allowed))
    least = float(np.min(allowed))
    decimals = min(7, max(0, 1 - math.floor(math.log10(least)))) if 0.0 < least < math.inf else 7
    shown = _format(published, decimals), _format(ours, decimals), _format(allowed, 15)
    return Check(name, *shown, agree, note, origin, number)


def claim(
    name: str, published: str, ours: float | str, agree: bool, note: str = "", origin: Origin = "printed"
) -> Check:
    """A published statement, such as that a method diverges, and what was found; ``note`` is the criterion."""
    return Check(name, published, ours, None, bool(agree), note, origin)


def finding(name: str, ours: float | str, note: str = "") -> Check:
    """A result with no published number to compare it with."""
    return Check(name, None, ours, note=note)


def count_numbers(checks: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    """How many different published numbers agree, and how many are judged: one agrees if all checks of it do.

    >>> count_numbers([{"name": "a", "agree": True}, {"name": "a again", "number": "a", "agree": False}])
    (0, 1)
    """
    found: dict[Any, bool] = {}
    for i, check in enumerate(checks):
        if check.get("agree") is not None:
            key = check.get("number") or check.get("name") or i
            found[key] = found.get(key, True) and bool(check["agree"])
    return sum(found.values()), len(found)


def _format(values: ArrayLike, decimals: int) -> float | str:
    """A number unchanged; several as text, to so many decimals."""
    array = np.asarray(values, np.float64)
    if array.ndim == 0:
        return float(array)
    return ", ".join(f"{round(value, decimals) + 0.0:.12g}".replace("-", "−") for value in array.ravel().tolist())


@dataclass(frozen=True)
class Outcome:
    """What a study found; ``reproduce`` adds its name, title and source and how long it took."""

    checks: Sequence[Check]
    figures: Sequence[Figure] = ()
    notes: Sequence[str] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    title: str = ""
    source: str = ""
    seconds: float = 0.0

    @property
    def agree(self) -> bool:
        """Whether no number disagrees."""
        return all(check.agree is not False for check in self.checks)
