"""The parts that features are composed of: plain records, in Python and in TOML.

A part is of signals ("S1", several, or "*" for all), of their traces or of their changes:

    SoftBins(Trace("*", steps=30), bins=20)
    kind = "soft_bins", of = { trace = "*", steps = 30 }, bins = 20

A part adds blocks of features to the plan (``Part.units``). TOML files and saved models know it by its ``kind``.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from emphatic.common.names import show
from emphatic.features import plan as ops
from emphatic.features import sources
from emphatic.features.plan import Array, CheckedReadings, FeaturePlan, SensedSource, Unit, is_missing
from emphatic.features.sources import Change, Names, Record, Smoothed, Trace, as_tuple, check_names, from_fields, plain
from emphatic.learning.inputs import refusal, whole

__all__ = ["KINDS", "Bias", "FeatureRow", "Function", "Missing", "OneHot", "Part", "SoftBins", "Tiles", "TimeOfDay"]
__all__ += ["TimeOfWeek", "TimeOfYear", "check_kind", "from_config"]

#: In seconds.
DAY = 86_400.0
YEAR = 365.2425 * DAY

Source = str | Change | Trace


class Part(Record):
    """One entry of the list that ``Features`` is given.

    A kind of part is a frozen dataclass with the method ``units``. It checks its fields in ``check``. A kind that ships
    with the library is listed in ``KINDS`` of this module, and has a ``kind``, the name by which TOML files and saved
    models find it.
    """

    kind: ClassVar[str]

    def units(self, plan: FeaturePlan) -> list[Unit]:
        """The blocks of features that it makes of the signals of the plan.

        Args:
            plan: The plan for the signals that there are; the part asks it for scales and columns.
        """
        raise NotImplementedError

    def found_under(self) -> str | None:
        """The name under which the maker stores the result of ``find``; None where there is nothing to find."""
        return None

    def find(self, rows: CheckedReadings) -> list[Any]:
        """Find what is not given from the rows of the warm-up; returns anything that JSON can hold.

        Args:
            rows: The rows of the warm-up.
        """
        raise NotImplementedError

    def signals(self) -> tuple[str, ...]:
        """The names of the signals that it is of; "*" among them for all that there are."""
        sources = as_tuple(getattr(self, "of", ()))
        return tuple(name for source in sources for name in as_tuple(getattr(source, "of", source)))

    def functions(self) -> tuple[str, ...]:
        """The names of the Python functions that it needs, and that a file cannot hold."""
        return ()

    def provide(self, functions: Mapping[str, Callable[..., Any]]) -> Part:
        """The same part with these functions.

        Args:
            functions: Python functions by name.
        """
        return self

    def config(self) -> dict[str, Any]:
        """The part as a table of a TOML file."""
        return {"kind": self.kind, **{name: plain(value, True) for name, value in self.given().items()}}

    @classmethod
    def from_config(cls, table: Mapping[str, Any]) -> Part:
        """The part that a table of a TOML file describes.

        Args:
            table: The fields by name, without ``kind``.
        """
        return from_fields(cls, cls.kind, table)


@dataclass(frozen=True, repr=False)
class Bias(Part):
    """One feature that is always 1."""

    kind: ClassVar[str] = "bias"

    def units(self, plan: FeaturePlan) -> list[Unit]:
        return [Unit(ops.CONSTANT, lambda knots: ["bias"])]


# ------------------------------------------------------------------ parts over a range


@dataclass(frozen=True, repr=False)
class ScaledPart(Part):
    """A part over a range, given or found by the warm-up; then the spacing can follow half-way the readings' quantiles.

    ``range`` is (low, high); where the part is of several sources it may be a list, one for each.
    """

    of: Source | Sequence[Source]
    range: tuple[float, float] | Sequence[tuple[float, float]] | None = field(default=None, kw_only=True)
    spacing: str = field(default="quantile", kw_only=True)

    def check(self) -> None:
        owner = type(self).__name__
        for source in as_tuple(self.of) or (None,):
            if not isinstance(source, Smoothed):
                check_names(source, owner)
        if self.spacing not in ("equal", "quantile"):
            raise refusal("spacing", owner, "be 'equal' or 'quantile'", repr(self.spacing))
        if self.range is not None:
            for pair in self._ranges(0) or ((),):
                if not _is_range(pair):
                    raise refusal("range", owner, "be (low, high) with low < high, both finite", repr(self.range))

    @classmethod
    def from_config(cls, table: Mapping[str, Any]) -> Part:
        values = dict(table)
        if "of" in values:
            of = values["of"]
            values["of"] = [*map(sources.from_config, of)] if isinstance(of, list) else sources.from_config(of)
        return super().from_config(values)

    def scales(self, plan: FeaturePlan, knots: int) -> list[tuple[int, str]]:
        """The scale of each source and the source's name.

        Args:
            plan: The plan that holds the scales.
            knots: How many knots each scale has.
        """
        sensed: list[SensedSource] = []
        for of in as_tuple(self.of):
            sensed += of.sources(plan) if isinstance(of, Smoothed) else plan.readings(of)
        ranges = self._ranges(len(sensed))
        if len(ranges) != len(sensed):
            wants = f"be one or {len(sensed)}, as many as sources"
            raise refusal("range", type(self).__name__, wants, f"{len(ranges)}")
        return [
            (plan.scale(source, knots, span, self.spacing), source.name)
            for source, span in zip(sensed, ranges, strict=True)
        ]

    def _ranges(self, sources: int) -> tuple[Any, ...]:
        """The range of each of the sources; as many as are given where each has its own."""
        separate = isinstance(self.range, tuple) and len(self.range) > 0 and isinstance(self.range[0], tuple)
        return tuple(self.range) if separate else (self.range,) * max(1, sources)  # type: ignore[arg-type]


def _is_range(pair: object) -> bool:
    """Whether it is (low, high); within ±1e300, so that no width overflows."""
    if not isinstance(pair, tuple) or len(pair) != 2 or not all(map(sources.is_number, pair)):
        return False
    return bool(-1e300 <= pair[0] < pair[1] <= 1e300)


@dataclass(frozen=True, repr=False)
class SoftBins(ScaledPart):
    """``bins`` overlapping triangles: a value between two centres makes both active, by 1−w and w.

    w is the relative distance from the first centre, so that predictions are linear between centres.

    Args:
        of: A signal's name, a ``Trace``, a ``Change``, or several of these; "*" means all signals.
        range: (low, high) of the centres, or a list of one pair per source; None for what the warm-up finds.
        spacing: "equal" for centres equally far apart; "quantile" for centres half-way between that place and the
            corresponding quantile of the warm-up's readings.
        bins: The number of centres of each source, 2 or more.
    """

    kind: ClassVar[str] = "soft_bins"
    bins: int = field(default=20, kw_only=True)

    def check(self) -> None:
        super().check()
        sources.check_at_least_two("bins", self.bins, "SoftBins")

    def units(self, plan: FeaturePlan) -> list[Unit]:
        scales = self.scales(plan, self.bins)
        return [Unit(ops.SOFT, partial(_bin_names, source), (scale,), size=self.bins) for scale, source in scales]


def _bin_names(source: str, knots: Sequence[Array]) -> Iterable[str]:
    return (f"{source} ≈ {centre:.6g}" for centre in knots[0])


@dataclass(frozen=True, repr=False)
class Tiles(ScaledPart):
    """Tile coding: ``tilings`` grids of ``tiles`` a side, each displaced, and one tile active in each.

    Tiling k is displaced by k·(1, 3, 5, …)/tilings of a tile, modulo 1 (asymmetric offsets). An active tile is
    1/√tilings and not 1, so that φ·φ of the part is 1: α = 1 moves a value all the way to its target, and what books
    write as α/tilings, for tiles of 1, is α here.

    Source: Sutton & Barto (2018), section 9.5.4.

    >>> from emphatic.features import Features
    >>> car = Features([Tiles(["position", "velocity"], range=[(-1.2, 0.5), (-0.07, 0.07)], tilings=2)])
    >>> car.n, car([-0.5, 0.0]).indices, car([-0.5, 0.0]).values.round(3)
    (162, array([ 31, 112]), array([0.707, 0.707]))

    Args:
        of: One source, or "*", is tiled separately; a list of sources is tiled jointly.
        range: (low, high) of the grid, or a list of one pair per source; None for what the warm-up finds.
        spacing: "equal" for edges equally far apart; "quantile" for edges half-way between that place and the
            corresponding quantile of the warm-up's readings.
        tiles: The tiles a side.
        tilings: The number of grids; it should be a power of 2 and at least 4 times the number of sources.
        hashed: Map the tiles to this many features by a fixed hash, and add those that collide in one row; None for a
            feature per tile.
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
        for source in self.of if isinstance(self.of, tuple) else ():
            names, steps = (source, 1) if isinstance(source, str) else (source.of, source.steps)
            if isinstance(steps, tuple) or not isinstance(names, str) or names == "*":
                raise refusal("of", "Tiles", "name one signal in each place of a list", repr(source))

    def units(self, plan: FeaturePlan) -> list[Unit]:
        scales = self.scales(plan, self.tiles + 1)
        groups = [scales] if isinstance(self.of, tuple) else [[scale] for scale in scales]
        # Displaced grids reach beyond the range on one side: they need one more tile there.
        op, size = (ops.HASHED, self.hashed) if self.hashed else (ops.EXACT, self.tiles + (self.tilings > 1))
        units = []
        for group in groups:
            members, of = tuple(scale for scale, _ in group), ", ".join(source for _, source in group)
            if self.hashed:
                names = partial(_hashed_names, of, size)
            else:
                names = partial(_tile_names, of, self.tilings, size, len(group))
            units.append(Unit(op, names, members, self.tilings, size, (self.tilings**-0.5, 0.0)))
        return units


def _hashed_names(of: str, size: int, knots: object) -> Iterable[str]:
    return (f"tiles({of}) #{i}" for i in range(size))


def _tile_names(of: str, tilings: int, size: int, dimensions: int, knots: object) -> Iterable[str]:
    for tiling in range(tilings):
        for at in itertools.product(range(size), repeat=dimensions):
            yield f"tiles({of}) {tiling}: {', '.join(map(str, at))}"


# ------------------------------------------------------------------ time


@dataclass(frozen=True, repr=False)
class CyclicPart(Part):
    """Soft bins around a circle of ``period`` seconds, the first centre ``origin`` seconds after 1970 began."""

    period: ClassVar[float]
    origin: ClassVar[float] = 0.0
    #: The names of the days of the cycle.
    days: ClassVar[Sequence[str]]
    bins: int = field(default=24, kw_only=True)

    def check(self) -> None:
        sources.check_at_least_two("bins", self.bins, type(self).__name__)

    def units(self, plan: FeaturePlan) -> list[Unit]:
        minutes = [round(self.period / 60 * bin / self.bins) for bin in range(self.bins)]
        names = [f"time of {self.days[m // 1440]} {m // 60 % 24:02d}:{m % 60:02d}" for m in minutes]
        return [Unit(ops.CYCLE, lambda knots: names, size=self.bins, real=(self.period, self.origin))]


@dataclass(frozen=True, repr=False)
class TimeOfDay(CyclicPart):
    """Soft bins around the day: the first centre is at midnight, and follows the last.

    Args:
        bins: The number of centres, 2 or more.
    """

    kind: ClassVar[str] = "time_of_day"
    period: ClassVar[float] = DAY
    days: ClassVar[Sequence[str]] = ("day",)


@dataclass(frozen=True, repr=False)
class TimeOfWeek(CyclicPart):
    """Soft bins around the week, which starts at midnight before Monday.

    Args:
        bins: The number of centres, 2 or more.
    """

    kind: ClassVar[str] = "time_of_week"
    period: ClassVar[float] = 7 * DAY
    origin: ClassVar[float] = 4 * DAY  # 1970-01-05 was a Monday
    days: ClassVar[Sequence[str]] = [f"week {day}" for day in ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")]
    bins: int = field(default=28, kw_only=True)


@dataclass(frozen=True, repr=False)
class TimeOfYear(CyclicPart):
    """Soft bins around the year of 365.2425 days, which starts at midnight before 1 January.

    Args:
        bins: The number of centres, 2 or more.
    """

    kind: ClassVar[str] = "time_of_year"
    period: ClassVar[float] = YEAR
    days: ClassVar[Sequence[str]] = [f"year, day {number}" for number in range(1, 367)]
    bins: int = field(default=12, kw_only=True)


# ------------------------------------------------------------------ categories, missing values, functions


@dataclass(frozen=True, repr=False)
class OneHot(Part):
    """One feature for each of the ``categories``, and one for any other.

    None is active where the value is missing (None or NaN).

    Args:
        of: The name of a signal or of a label.
        categories: Different strings or finite numbers; None for those that the warm-up finds.
    """

    kind: ClassVar[str] = "one_hot"
    of: str
    categories: Sequence[str | float] | None = field(default=None, kw_only=True)

    def check(self) -> None:
        if not isinstance(self.of, str):
            raise refusal("of", "OneHot", "be the name of one signal or label", repr(self.of))
        if self.categories is not None:
            categories = self.categories if isinstance(self.categories, tuple) else ()
            fine = all(isinstance(c, str | bool) or sources.is_number(c) for c in categories)
            if not categories or not fine or len(set(categories)) < len(categories):
                wants = "be a list of different strings or finite numbers"
                raise refusal("categories", "OneHot", wants, repr(self.categories))

    def found_under(self) -> str:
        return self.of

    def find(self, rows: CheckedReadings) -> list[Any]:
        return list(self.categories or rows.categories(self.of))

    def units(self, plan: FeaturePlan) -> list[Unit]:
        categories = plan.findings[self.of]
        indices = {category: i for i, category in enumerate(categories)}
        unknown = len(indices)

        def codes(rows: CheckedReadings) -> NDArray[np.int64]:
            column = rows.column(self.of)
            return np.array([-1 if is_missing(c) else indices.get(c, unknown) for c in column], np.int64).reshape(-1, 1)

        names = [f"{self.of} = {category}" for category in (*categories, "other")]
        return [Unit(ops.CODE, lambda knots: names, (plan.code(1, codes),), size=len(categories) + 1)]


@dataclass(frozen=True, repr=False)
class Missing(Part):
    """A feature for each signal that is 1 where the value is missing.

    Args:
        of: A signal's name, several names, or "*" for all signals.
    """

    kind: ClassVar[str] = "missing"
    of: Names

    def check(self) -> None:
        check_names(self.of, "Missing")

    def units(self, plan: FeaturePlan) -> list[Unit]:
        columns = np.array(plan.columns(self.of))
        start = plan.code(len(columns), lambda rows: np.where(rows.missing[:, columns], 0, -1), -1)
        # φ·φ counts what is active where nothing is missing: none of these.
        return [
            Unit(ops.CODE, partial(_missing_name, plan.names[c]), (start + i,), norm=0.0) for i, c in enumerate(columns)
        ]


def _missing_name(signal: str, knots: object) -> list[str]:
    return [f"{signal} missing"]


class FeatureRow(dict[str, Any]):
    """Readings and labels by name, NaN or None where missing; ``time`` is in seconds since 1970, or None."""

    time: float | None = None


@dataclass(frozen=True, repr=False)
class Function(Part):
    """``size`` features that a Python function computes from each row: it returns ``size`` numbers, or one.

    A feature is active if its number is not 0; None, NaN and infinity make none active. Numbers should be about 1 in
    size, because φ·φ of each other part is about 1.

    A file cannot hold a function: a saved maker refers to it by name, and it must be supplied again
    (``Features.provide``).

    Args:
        function: It is called with {name: reading} of all signals and labels, whose attribute ``time`` is in seconds
            since 1970 (None where rows have no time), and must depend on nothing else.
        size: How many features it makes.
        name: The function's own name unless given.

    >>> Function(lambda row: row["x"] > row["y"], name="x above y")
    Function('x above y')
    """

    kind: ClassVar[str] = "function"
    function: Callable[[FeatureRow], Any] | None = None
    size: int = field(default=1, kw_only=True)
    name: str | None = field(default=None, kw_only=True)

    def check(self) -> None:
        if self.function is not None and not callable(self.function):
            raise refusal("function", "Function", "be a function of a row", repr(self.function))
        whole("size", self.size, "Function")
        name = getattr(self.function, "__name__", None) if self.name is None else self.name
        if not isinstance(name, str) or not name or name == "<lambda>":
            raise refusal("name", "Function", "be given, where the function has no name of its own", repr(self.name))
        object.__setattr__(self, "name", name)

    def units(self, plan: FeaturePlan) -> list[Unit]:
        column = plan.given(self.size, self._values)
        names = [f"{self.name}"] if self.size == 1 else [f"{self.name} {i}" for i in range(self.size)]
        return [Unit(ops.GIVEN, lambda knots: names, (column,), size=self.size, norm=float(self.size))]

    def signals(self) -> tuple[str, ...]:
        return ("*",)

    def functions(self) -> tuple[str, ...]:
        return (str(self.name),)

    def provide(self, functions: Mapping[str, Callable[..., Any]]) -> Part:
        return dataclasses.replace(self, function=functions.get(str(self.name), self.function))

    def config(self) -> dict[str, Any]:
        return {"kind": self.kind, "name": self.name} | ({} if self.size == 1 else {"size": self.size})

    def __repr__(self) -> str:
        return f"Function({self.name!r}{'' if self.size == 1 else f', size={self.size}'})"

    def _values(self, rows: CheckedReadings) -> Array:
        """The numbers of each row, (B, size)."""
        if self.function is None:
            raise ValueError(
                f"The feature {self.name!r} is a Python function, which a file cannot hold. Give it again: "
                f"features.provide({{{self.name!r}: …}})."
            )
        labels = {name: rows.column(name) for name in rows.labels or () if name not in rows.names}
        values = np.where(rows.missing, np.nan, rows.values)
        columns = zip(*values.T.tolist(), *labels.values(), strict=True)
        names = (*rows.names, *labels)
        features = np.empty((len(rows.values), self.size))
        for t, readings in enumerate(columns):
            row = FeatureRow(zip(names, readings, strict=True))
            row.time = None if rows.time is None else float(rows.seconds[t])
            features[t] = self._as_floats(self.function(row), t)
        return np.where(np.isfinite(features), features, np.nan)

    def _as_floats(self, returned: Any, t: int) -> list[float]:
        """What the function returned, as ``size`` numbers."""
        several = returned.tolist() if hasattr(returned, "tolist") else returned
        if several is None:
            return [math.nan] * self.size
        several = list(several) if isinstance(several, list | tuple) else [several]
        if len(several) != self.size or not all(isinstance(x, int | float | None) for x in several):
            wants = "a number" if self.size == 1 else f"{self.size} numbers"
            what = f"The function of the feature {self.name!r} must return {wants} or None"
            raise ValueError(f"{what}. Got {returned!r} instead, at row {t} of the call.")
        return [math.nan if x is None else float(x) for x in several]


#: The kinds by their names in TOML.
KINDS: dict[str, type[Part]] = {
    kind.kind: kind for kind in (Bias, Function, Missing, OneHot, SoftBins, Tiles, TimeOfDay, TimeOfWeek, TimeOfYear)
}


def check_kind(part: Part) -> None:
    """Raise for a part that could not be read back."""
    if KINDS.get(getattr(part, "kind", "")) is not type(part):
        raise ValueError(
            f"{part!r} cannot be saved: {type(part).__name__} is not one of the library's kinds of features, and could "
            "not be read back. Use Function, which can be supplied again on loading, or list its parts instead."
        )


def from_config(table: object) -> Part:
    """The part that a table of a TOML file describes."""
    if not isinstance(table, dict) or table.get("kind") not in KINDS:
        got = table.get("kind") if isinstance(table, dict) else table
        raise refusal("kind", "a feature", f"be one of {', '.join(KINDS)}", show(got))
    return KINDS[table["kind"]].from_config({name: value for name, value in table.items() if name != "kind"})
