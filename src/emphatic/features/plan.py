"""The plan of a list of parts for given signals, and the rows of readings that it is for.

A *source* is a signal's reading, or something computed from it and its trace. A *scale* places knots over a source, and
locates its value among them. A *unit* is a block of consecutive features that one operation of the kernels
makes, of scales or of columns: codes (a small integer a row, −1 for none) or given values (numbers).

Parts fill the plan (``Part.units``); it depends on no kind of part. ``CheckedReadings`` are the rows of a call of
``Features`` as its user passed them, ``FeatureColumns`` what the kernels take of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from emphatic.learning.inputs import real_array, refusal

__all__ = ["Array", "CheckedReadings", "FeatureColumns", "FeaturePlan", "Labels", "Scale", "SensedSource", "Unit"]

Array = NDArray[np.float64]
Labels = Mapping[str, Any]

#: The share of the warm-up left out at either end, and how much wider the range is made then, by its own width.
TAIL, MARGIN = 0.005, 0.05
# The kernels hold copies of the following numbers: after a change here, touch their file too.
#: The operations of sources.
READING, TRACE, CHANGE = 0, 1, 2
#: The operations of units.
CONSTANT, SOFT, EXACT, HASHED, CYCLE, CODE, GIVEN = 0, 1, 2, 3, 4, 5, 6
#: How much of a range is its end.
EDGE = 0.1


# ------------------------------------------------------------------ rows


def check_signal_names(names: Sequence[str]) -> tuple[str, ...]:
    """Different names of signals."""
    signals = () if isinstance(names, str) else tuple(names)
    fine = signals and all(isinstance(name, str) for name in signals) and len(set(signals)) == len(signals)
    if not fine or "*" in signals:
        raise refusal("names", "warm_up", "be a list of different names other than '*'", repr(names))
    return signals


def is_missing(value: object) -> bool:
    """None, NaN or infinity."""
    return value is None or (isinstance(value, float) and not math.isfinite(value))


class CheckedReadings:
    """The rows of one call of ``function``: ``values`` (B, C); all else is checked when a part uses it."""

    def __init__(
        self,
        names: tuple[str, ...],
        values: ArrayLike,
        time: ArrayLike | None,
        labels: Labels | None,
        gone: ArrayLike | None,
        function: str,
    ) -> None:
        array = real_array("values", values, function)
        single = array.ndim == 1 and function != "warm_up"
        if single:
            array = array[None]
        if array.ndim != 2 or array.shape[1] != len(names):
            wants = f"have shape (B, {len(names)}), a column for each signal"
            raise refusal("values", function, wants, f"{array.shape}")
        self.names, self.values, self.function = names, np.ascontiguousarray(array, np.float64), function
        self.time, self.labels, self.gone, self.single = time, labels, gone, single

    @cached_property
    def seconds(self) -> Array:
        """Seconds since 1970, NaN where there is no time."""
        if self.time is None:
            raise ValueError(
                "The 'time' parameter is required: there are features of time. Pass the time of the row, in seconds "
                "since 1970 or as datetime64, such as time=np.datetime64('2026-01-31T12:00'). Horde.observe also takes "
                "it in the row: {'time': '2026-01-31 12:00', …}."
            )
        array = np.atleast_1d(np.asarray(self.time))
        if array.dtype.kind == "M":
            since = array.astype("M8[us]")
            array = np.where(np.isnat(since), np.nan, since.astype(np.int64) / 1e6)
        B = len(self.values)
        if array.shape != (B,) or array.dtype.kind not in "fiu":
            raise refusal("time", "Features", f"be {B} times, in seconds or datetime64", f"{array.dtype} {array.shape}")
        return np.ascontiguousarray(array, np.float64)

    @cached_property
    def missing(self) -> NDArray[np.bool_]:
        """Which readings are missing, (B, C)."""
        gone = ~np.isfinite(self.values) if self.gone is None else np.asarray(self.gone)
        gone = gone[None] if gone.ndim == 1 else gone
        if gone.shape != self.values.shape or gone.dtype.kind != "b":
            wants = f"be true or false, of shape {self.values.shape}"
            raise refusal("missing", "Features", wants, f"{self.gone!r}")
        return gone

    def column(self, name: str) -> list[Any]:
        """The values of a signal, or the labels of that name."""
        if name in self.names:
            return list(self.values[:, self.names.index(name)].tolist())
        if self.labels is None or name not in self.labels:
            got = repr(self.labels and list(self.labels))
            raise refusal("labels", self.function, f"have {name!r}, which is not a signal", got)
        labels, B = self.labels[name], len(self.values)
        column = [labels] if self.single else labels.tolist() if hasattr(labels, "tolist") else list(labels)
        if len(column) != B:
            raise refusal("labels", self.function, f"have one label per row, {B} in all", f"{len(column)} of {name!r}")
        return column

    def categories(self, name: str) -> list[Any]:
        """Each value of that column once, as first seen."""
        values = list(dict.fromkeys(value for value in self.column(name) if not is_missing(value)))
        if not values or not all(isinstance(value, str | int | float) for value in values):
            wants = f"have strings or numbers of {name!r}, whose categories are to be found"
            raise refusal("values" if name in self.names else "labels", self.function, wants, repr(values))
        return values


@dataclass(slots=True)
class FeatureColumns:
    """The checked input of φ for B rows: readings (B, C), seconds, codes and numbers.

    Seconds, codes and numbers are absent where no part needs them.
    """

    readings: Array
    seconds: Array
    codes: NDArray[np.int64]
    numbers: Array

    @property
    def extra(self) -> tuple[Array, NDArray[np.int64], Array]:
        """Seconds, codes and numbers: all but the readings."""
        return self.seconds, self.codes, self.numbers

    def part(self, rows: slice) -> FeatureColumns:
        """Some of the rows."""
        return FeatureColumns(self.readings[rows], self.seconds[rows], self.codes[rows], self.numbers[rows])

    @staticmethod
    def joined(parts: Sequence[FeatureColumns]) -> FeatureColumns:
        """The rows of several as one."""
        arrays = zip(*((c.readings, c.seconds, c.codes, c.numbers) for c in parts), strict=True)
        return FeatureColumns(*map(np.concatenate, arrays))


# ------------------------------------------------------------------ the plan


@dataclass(frozen=True)
class SensedSource:
    """An operation on a column of readings."""

    op: int
    column: int
    steps: float
    name: str


@dataclass(frozen=True)
class Scale:
    """Knots over a source; where ``range`` is None it is to be found."""

    source: int
    knots: int
    range: tuple[float, float] | None
    spacing: str

    def find_knots(self, seen: Array) -> Array:
        """Increasing knots: equally spaced, or half-way from there to the quantiles of what was seen.

        Half-way, so that they differ even where most readings are equal, and no two are far apart.
        """
        finite = np.clip(seen[np.isfinite(seen)], -1e300, 1e300)
        if self.range is None and not len(seen):
            raise refusal("values", "warm_up", "have rows, to find a range", "none")
        low, high = self.range or _find_range(finite)
        equal = np.linspace(low, high, self.knots)
        if not (np.diff(equal) > 0).all():
            raise refusal("range", "a part", f"be wide enough for {self.knots} different knots", repr(self.range))
        if self.spacing == "equal" or not len(finite):
            return equal
        quantiles = np.quantile(np.clip(finite, low, high), np.linspace(0.0, 1.0, self.knots))
        quantiles[0], quantiles[-1] = low, high
        return 0.5 * equal + 0.5 * quantiles


def _find_range(finite: Array) -> tuple[float, float]:
    """The middle 99%, a twentieth of its width wider at either end; around what is constant, as wide as it is large."""
    if not len(finite):
        return -1.0, 1.0
    low, high = (float(q) for q in np.quantile(finite, (TAIL, 1.0 - TAIL)))
    if not _differ(low, high):
        low, high = float(finite.min()), float(finite.max())
    if not _differ(low, high):
        half = abs(low) if abs(low) > 1e-300 else 1.0
        return low - half, low + half
    margin = MARGIN * (high - low)
    return low - margin, high + margin


def _differ(low: float, high: float) -> bool:
    """Whether floats between them can be distinguished."""
    return high - low > 1e-9 * max(abs(low), abs(high))


@dataclass(frozen=True)
class Unit:
    """Features that one operation makes.

    ``names`` gives the name of each, from the knots of its members. ``members`` are scales, or a column. ``norm`` is
    φ·φ of the unit where nothing is missing.
    """

    op: int
    names: Callable[[Sequence[Array]], Iterable[str]]
    members: tuple[int, ...] = ()
    tilings: int = 1
    size: int = 1
    real: tuple[float, float] = (1.0, 0.0)
    norm: float = 1.0

    @property
    def slots(self) -> int:
        """How many features can be active at once."""
        return {SOFT: 2, CYCLE: 2, EXACT: self.tilings, HASHED: self.tilings, GIVEN: self.size}.get(self.op, 1)

    @property
    def features(self) -> int:
        """How many features there are."""
        return self.tilings * self.size ** len(self.members) if self.op == EXACT else self.size


@dataclass
class Columns:
    """Consecutive columns that a function makes of the rows of a call, (B, count)."""

    start: int
    count: int
    function: Callable[[CheckedReadings], NDArray[Any]]
    complete: int | None = None  # what it makes of every row in which no reading is missing


@dataclass
class FeaturePlan:
    """The plan of parts for these signals; ``findings`` is what the parts found in the warm-up, by name."""

    names: tuple[str, ...]
    findings: dict[str, list[Any]]
    sources: dict[SensedSource, int] = field(default_factory=dict)
    scales: dict[Scale, int] = field(default_factory=dict)
    codes: list[Columns] = field(default_factory=list)
    numbers: list[Columns] = field(default_factory=list)
    units: list[Unit] = field(default_factory=list)

    # ------------------------------------------------------------------ for parts

    def columns(self, of: str | Sequence[str]) -> list[int]:
        """The signals of these names, or all for "*"."""
        if of == "*":
            return list(range(len(self.names)))
        wanted = of if isinstance(of, tuple) else (of,)
        for name in wanted:
            if name not in self.names:
                wants = f"have all signals that the parts name, {name!r} too"
                raise refusal("names", "warm_up", wants, repr(self.names))
        return [self.names.index(name) for name in wanted]

    def readings(self, of: str | Sequence[str]) -> list[SensedSource]:
        """The signals themselves as sources."""
        return [SensedSource(READING, column, 1.0, self.names[column]) for column in self.columns(of)]

    def scale(self, source: SensedSource, knots: int, span: tuple[float, float] | None, spacing: str) -> int:
        """The number of this scale, which parts share where they can."""
        at = self.sources.setdefault(source, len(self.sources))
        return self.scales.setdefault(Scale(at, knots, span, spacing), len(self.scales))

    def code(
        self, count: int, function: Callable[[CheckedReadings], NDArray[np.int64]], complete: int | None = None
    ) -> int:
        """The number of the first of ``count`` new columns of codes, which ``function`` makes of the rows of a call.

        ``complete`` is their code in every row in which no reading is missing, if that is always the same.
        """
        self.codes.append(Columns(_width(self.codes), count, function, complete))
        return self.codes[-1].start

    def given(self, count: int, function: Callable[[CheckedReadings], Array]) -> int:
        """The same with numbers, which are the values of features as they are; NaN for none."""
        self.numbers.append(Columns(_width(self.numbers), count, function))
        return self.numbers[-1].start

    # ------------------------------------------------------------------ for the maker

    @property
    def n(self) -> int:
        """The number of features."""
        return sum(unit.features for unit in self.units)

    @property
    def active(self) -> int:
        """How many features can be active at once."""
        return sum(unit.slots for unit in self.units)

    @property
    def timed(self) -> bool:
        """Whether it needs times."""
        return any(unit.op == CYCLE for unit in self.units)

    @property
    def norm(self) -> float:
        """φ·φ where nothing is missing, the most for all but hashed tiles that fall together."""
        return float(sum(unit.norm for unit in self.units))

    def source_arrays(self) -> tuple[NDArray[np.int64], Array]:
        """(source, rate), as ``kernels.sense`` takes them."""
        source = np.array([(s.op, s.column) for s in self.sources], np.int64).reshape(-1, 2)
        return source, np.array([1.0 / s.steps for s in self.sources], np.float64)

    def leaders(self) -> tuple[list[int], list[int]]:
        """For each scale whose range adapts: the one that is watched for its source, the one that its signal follows.

        The scales of a source have the same range, and the first is watched. A signal's ranges follow its readings or,
        where there is no scale of those, its shortest trace; changes follow nothing. −1 means none.
        """
        sources = list(self.sources)
        of_source: dict[int, int] = {}
        of_signal: dict[int, int] = {}
        adaptive = [(scale.source, k) for scale, k in self.scales.items() if scale.range is None]
        for source, k in adaptive:
            of_source.setdefault(source, k)
        # By operation, then memory: readings come before traces, and the shortest trace before the others.
        for source in sorted(of_source, key=lambda at: (sources[at].op, sources[at].steps)):
            if sources[source].op != CHANGE:
                of_signal.setdefault(sources[source].column, of_source[source])
        watched, followed = [-1] * len(self.scales), [-1] * len(self.scales)
        for source, k in adaptive:
            watched[k] = of_source[source]
            followed[k] = of_signal[sources[source].column] if sources[source].op != CHANGE else -1
        return watched, followed

    def unit_arrays(self) -> tuple[NDArray[np.int64], NDArray[np.int64], Array, NDArray[np.int64]]:
        """(scale, unit, real, member), as ``kernels.activate`` takes them."""
        starts = np.cumsum([0, *(s.knots for s in self.scales)])[:-1]
        scale = [
            (s.source, start, s.knots, *leading)
            for s, start, *leading in zip(self.scales, starts, *self.leaders(), strict=True)
        ]
        slot = feature = member = 0
        rows = []
        for u in self.units:
            rows.append((u.op, slot, feature, member, len(u.members), u.tilings, u.size))
            slot, feature, member = slot + u.slots, feature + u.features, member + len(u.members)
        return (
            np.array(scale, np.int64).reshape(-1, 5),
            np.array(rows, np.int64).reshape(-1, 7),
            np.array([u.real for u in self.units], np.float64).reshape(-1, 2),
            np.array([m for u in self.units for m in u.members], np.int64),
        )

    def complete_columns(self) -> tuple[NDArray[np.int64], Array] | None:
        """``make_columns`` of one row in which no reading is missing; None where these depend on what is read."""
        if self.numbers or any(block.complete is None for block in self.codes):
            return None
        codes = np.array([[block.complete for block in self.codes for _ in range(block.count)]], np.int64)
        return codes.reshape(1, -1), np.empty((1, 0))

    def make_columns(self, rows: CheckedReadings) -> tuple[NDArray[np.int64], Array]:
        """The codes and the given numbers of each row, (B, columns)."""
        B = len(rows.values)
        codes, numbers = np.empty((B, _width(self.codes)), np.int64), np.empty((B, _width(self.numbers)))
        for array, blocks in ((codes, self.codes), (numbers, self.numbers)):
            for block in blocks:
                array[:, block.start : block.start + block.count] = block.function(rows)
        return codes, numbers

    def feature_names(self, knots: Sequence[Array]) -> list[str]:
        """A name for each of the n features, in order."""
        scaled = (SOFT, EXACT, HASHED)  # whose members are scales
        return [name for u in self.units for name in u.names([knots[m] for m in u.members] if u.op in scaled else ())]


def _width(columns: list[Columns]) -> int:
    return columns[-1].start + columns[-1].count if columns else 0
