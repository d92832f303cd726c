"""The parts that features are composed of, and what they may be made of: plain records, in Python and in TOML.

A part is of signals ("S1", several, or "*" for all), of their traces or of their changes:

    SoftBins(Trace("*", steps=30), bins=20)
    kind = "soft_bins", of = { trace = "*", steps = 30 }, bins = 20
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from emphatic.features.records import Record, at_least_two, check_names, is_number, listed, plain
from emphatic.learning.inputs import refusal, whole

__all__ = ["Bias", "Change", "Missing", "OneHot", "Part", "SoftBins", "Tiles", "TimeOfDay", "TimeOfWeek", "Trace"]

#: A signal's name, several, or "*".
Names = str | Sequence[str]


@dataclass(frozen=True, repr=False)
class _Smoothed(Record):
    of: Names
    steps: float | Sequence[float] = field(default=1, kw_only=True)

    def check(self) -> None:
        what = type(self).__name__
        check_names(self.of, what)
        for steps in listed(self.steps) or (None,):
            if not (is_number(steps) and 1 <= steps < math.inf):
                raise refusal("steps", what, "be a number of 1 or more, or several", repr(steps))

    def config(self) -> dict[str, Any]:
        given = self.given()
        return {type(self).__name__.lower(): plain(given.pop("of")), **{k: plain(v) for k, v in given.items()}}


@dataclass(frozen=True, repr=False)
class Trace(_Smoothed):
    """The exponential trace z of a signal x, an average of the past that forgets in about ``steps`` steps.

        z_t = z_{t−1} + (x_t − z_{t−1})/steps

    It starts at the first reading, and stays where a reading is missing. Several ``steps`` make a trace each.

    >>> Trace("*", steps=[4, 16])
    Trace('*', steps=[4, 16])
    """

    steps: float | Sequence[float] = field(kw_only=True)


@dataclass(frozen=True, repr=False)
class Change(_Smoothed):
    """How far a signal x is from its trace z of the step before: x_t − z_{t−1}.

    With ``steps=1`` that is x_t − x_{t−1}. It is not known, and no feature of it is active, at the first reading and
    where a reading is missing.
    """


Source = str | Trace | Change
#: One source or several.
Of = Source | Sequence[Source]


class Part(Record):
    """One entry of the list that ``Features`` is given."""

    kind: ClassVar[str]

    def config(self) -> dict[str, Any]:
        """The part as a table of a TOML file."""
        return {"kind": self.kind, **{name: plain(value, True) for name, value in self.given().items()}}


@dataclass(frozen=True, repr=False)
class Bias(Part):
    """One feature that is always 1."""

    kind: ClassVar[str] = "bias"


@dataclass(frozen=True, repr=False)
class _Scaled(Part):
    """A part over a range: as given, or found by the warm-up, where half of the spacing can follow the readings.

    ``range`` is (low, high); where the part is of several sources it may be a list, one for each.
    """

    of: Of
    range: tuple[float, float] | Sequence[tuple[float, float]] | None = field(default=None, kw_only=True)
    spacing: str = field(default="quantile", kw_only=True)

    def check(self) -> None:
        what = type(self).__name__
        for source in listed(self.of) or (None,):
            if not isinstance(source, Trace | Change):
                check_names(source, what)
        if self.spacing not in ("equal", "quantile"):
            raise refusal("spacing", what, "be 'equal' or 'quantile'", repr(self.spacing))
        if self.range is not None:
            for pair in self.ranges(0) or ((),):
                fine = isinstance(pair, tuple) and len(pair) == 2 and all(map(is_number, pair))
                if not (fine and -1e300 <= pair[0] < pair[1] <= 1e300):
                    raise refusal("range", what, "be (low, high) with low < high, both finite", repr(self.range))

    def ranges(self, sources: int) -> tuple[Any, ...]:
        """The range of each of the sources; as many as are given where each has its own."""
        own = isinstance(self.range, tuple) and len(self.range) > 0 and isinstance(self.range[0], tuple)
        return tuple(self.range) if own else (self.range,) * max(1, sources)  # type: ignore[arg-type]


@dataclass(frozen=True, repr=False)
class SoftBins(_Scaled):
    """``bins`` overlapping triangles: a value between two centres makes both active, by 1−w and w.

    w is how far it is from the one to the other, so that what is learned is linear between the centres. With
    ``spacing="equal"`` the centres are equally far apart; with "quantile" each lies half-way between there and
    where the warm-up's readings would put it, were there equally many between any two.
    """

    kind: ClassVar[str] = "soft_bins"
    bins: int = field(default=20, kw_only=True)

    def check(self) -> None:
        super().check()
        at_least_two("bins", self.bins, "SoftBins")


@dataclass(frozen=True, repr=False)
class Tiles(_Scaled):
    """Tile coding: ``tilings`` grids of ``tiles`` a side, each displaced, and one tile active in each.

    One source, or "*", is tiled by itself; a list of sources is tiled jointly. Tiling k is displaced by
    k·(1, 3, 5, …)/tilings of a tile, modulo 1 (asymmetric offsets; ``tilings`` should be a power of 2 and at least 4
    times the number of sources). A tile's value is 1/√tilings, so that φ·φ of the part is 1. With ``hashed``, tiles
    fall into so many features by a fixed hash, and those that meet in one row are added.

    Source: Sutton & Barto (2018), section 9.5.4.
    """

    kind: ClassVar[str] = "tiles"
    tiles: int = field(default=8, kw_only=True)
    tilings: int = field(default=8, kw_only=True)
    hashed: int | None = field(default=None, kw_only=True)

    def check(self) -> None:
        super().check()
        for name in ("tiles", "tilings"):
            whole(name, getattr(self, name), "Tiles")
        if self.hashed is not None and whole("hashed", self.hashed, "Tiles") >= 1 << 32:
            raise refusal("hashed", "Tiles", "be below 2**32", repr(self.hashed))
        if isinstance(self.of, tuple):
            for source in self.of:
                names = source if isinstance(source, str) else source.of
                several = not isinstance(source, str) and isinstance(source.steps, tuple)
                if several or not isinstance(names, str) or names == "*":
                    raise refusal("of", "Tiles", "name one signal in each place of a list", repr(source))


@dataclass(frozen=True, repr=False)
class _Cycle(Part):
    """Soft bins around a circle of time."""

    bins: int = field(default=24, kw_only=True)

    def check(self) -> None:
        at_least_two("bins", self.bins, type(self).__name__)


@dataclass(frozen=True, repr=False)
class TimeOfDay(_Cycle):
    """Soft bins around the day: the first centre at midnight, the last one's neighbour the first."""

    kind: ClassVar[str] = "time_of_day"


@dataclass(frozen=True, repr=False)
class TimeOfWeek(_Cycle):
    """Soft bins around the week, which starts at midnight before Monday."""

    kind: ClassVar[str] = "time_of_week"
    bins: int = field(default=28, kw_only=True)


@dataclass(frozen=True, repr=False)
class OneHot(Part):
    """One feature for each of the ``categories``, given or found by the warm-up, and one for any other.

    Of a signal or of a label. None is active where the value is missing (None or NaN).
    """

    kind: ClassVar[str] = "one_hot"
    of: str
    categories: Sequence[str | float] | None = field(default=None, kw_only=True)

    def check(self) -> None:
        if not isinstance(self.of, str):
            raise refusal("of", "OneHot", "be the name of one signal or label", repr(self.of))
        if self.categories is not None:
            given = self.categories if isinstance(self.categories, tuple) else ()
            plain = all(isinstance(c, str) or (isinstance(c, int | float) and math.isfinite(c)) for c in given)
            if not given or not plain or len(set(given)) < len(given):
                wanted = "be a list of different strings or finite numbers"
                raise refusal("categories", "OneHot", wanted, repr(self.categories))


@dataclass(frozen=True, repr=False)
class Missing(Part):
    """A feature for each signal that is 1 where the reading is missing."""

    kind: ClassVar[str] = "missing"
    of: Names

    def check(self) -> None:
        check_names(self.of, "Missing")
