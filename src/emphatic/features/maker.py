"""``Features``: a list of parts and their ranges; readings in, active features out.

Ranges adapt. A range that a part was given stays. A range that was found in the warm-up moves when recent readings have
left it:

- *The level has moved*: more than 2% of a signal's recent readings lay beyond one end of its range, and fewer than 0.5%
  at or beyond the other end (its outer tenth). Then the range slides towards the reading, by at most 1% of its
  width for each reading in a row that lay beyond (and faster after 100 in a row, so that no jump is too far), and the
  ranges of the signal's traces slide along with it.
- *It no longer fits*: more than half of the recent readings of a source lay beyond its range. Then the range of that
  source slides likewise or, where the other end is in use and the reading is no farther than a width, is stretched.

"Recent" is an exponential average over as many readings as the warm-up had, at least 500. Features keep their places in
the range: what was learned for its third bin now applies to other values, and the learner corrects that over time. (To
keep the values and reuse only the bins left behind is worse: a reused bin starts with a weight from the other end of
the range, whereas sliding is wrong by a fraction of a bin.)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from emphatic.errors import CheckpointError
from emphatic.features.parts import Part, check_kind, from_config
from emphatic.features.plan import (
    EDGE,
    READING,
    Array,
    CheckedReadings,
    FeatureColumns,
    FeaturePlan,
    Labels,
    check_signal_names,
)
from emphatic.learning.inputs import Active, make_unchecked, refusal

__all__ = ["AdaptiveRanges", "Features"]

#: For parts that need no time.
_NO_TIME = np.empty(0)
_FLOAT64 = np.dtype(np.float64)
#: The fewest readings that count as recent.
LEAST = 500.0
#: Statistics of a scale's recent readings: how many count as recent (0 where the range is fixed); the shares below
#: the range, at its low end, at its high end and above; how many in a row lay above, or minus how many below.
STATISTICS = 6


class Features:
    """Computes φ from values of signals, with a list of parts.

    >>> import numpy as np
    >>> from emphatic import features as f
    >>> maker = f.Features([f.Bias(), f.SoftBins("*", bins=3, range=(0, 10))])
    >>> maker.warm_up(np.empty((0, 1)), names=["S1"])
    Features([Bias(), SoftBins('*', range=[0, 10], bins=3)], n=4)
    >>> maker([2.0])
    Active([0, 1, 2], [1.0, 0.6, 0.4])
    >>> maker.names()
    ['bias', 'S1 ≈ 0', 'S1 ≈ 5', 'S1 ≈ 10']

    ``warm_up`` uses some rows to find ranges and categories that are not given. Where all are given, and every part
    names its signals, it need not be called: the signals are those of ``named``, in that order.

    A call computes φ of the next rows, (B, k), or of one, (k,), and carries traces over to the next call: results are
    bit-for-bit identical however the rows are divided into calls. Values outside a range are clipped to it, and counted
    in ``clipped``. A range from the warm-up follows values that have left it (``emphatic.features.maker``); a given
    range is fixed. If a value is missing (NaN or infinity), no feature of its part is active (index −1).

    Args:
        parts: The parts, such as ``[Bias(), SoftBins("*")]``; φ has their features in this order.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts: tuple[Part, ...] = tuple(parts) if isinstance(parts, Sequence) else ()
        if not self.parts or not all(isinstance(entry, Part) for entry in self.parts):
            raise refusal("parts", "Features", "be a list of parts, such as Bias() or SoftBins('*')", repr(parts))
        for entry in self.parts:
            if type(entry).units is Part.units:
                wants = "be parts that make features: for your own use Function, or a class with the method units(plan)"
                raise refusal("parts", "Features", wants, f"{type(entry).__name__}, which has no units(plan),")
        _check_different_names(self.parts)
        self._plan: FeaturePlan | None = None
        #: Whether the signals are those that the parts name, as nobody has told which there are.
        self._is_provisional = False

    # ------------------------------------------------------------------ warming up

    def warm_up(
        self, values: ArrayLike, *, names: Sequence[str], time: ArrayLike | None = None, labels: Labels | None = None
    ) -> Features:
        """Find what is not given from these rows. No trace is kept: the next row is the first. Returns self.

        Args:
            values: Readings (B, C). B may be 0 where everything is given.
            names: The names of the C signals.
            time: The rows' times, in seconds or datetime64.
            labels: An array for each name of a ``OneHot`` that is not a signal.
        """
        rows = CheckedReadings(check_signal_names(names), values, time, labels, None, "warm_up")
        named = ((entry.found_under(), entry) for entry in self.parts)
        findings = {name: entry.find(rows) for name, entry in named if name is not None}
        plan = make_plan(self.parts, rows.names, findings)
        sensed = np.empty((len(rows.values), len(plan.sources)))
        _kernel("sense")(rows.values, *plan.source_arrays(), np.full(len(plan.sources), np.nan), sensed)
        knots = [scale.find_knots(sensed[:, scale.source]) for scale in plan.scales]
        # φ·φ of these rows is measured by a maker that stops there, so that this one is left before its first row.
        trial = Features(self.parts)
        trial._begin(plan, AdaptiveRanges.fixed(plan, knots), 0.0)
        phi = trial(rows.values, time=time, labels=labels)
        norm = float(np.mean(np.sum(phi.values**2, axis=1))) if len(rows.values) else plan.norm
        self._begin(plan, AdaptiveRanges.found(plan, knots, sensed), norm)
        return self

    def _begin(
        self,
        plan: FeaturePlan,
        ranges: AdaptiveRanges,
        norm: float,
        z: Array | None = None,
        clipped: NDArray[np.int64] | None = None,
    ) -> None:
        """Reset to the state before the first row, or to one with these traces and counts."""
        self._plan, self._ranges, self._norm, self._is_provisional = plan, ranges, norm, False
        self._z = np.full(len(plan.sources), np.nan) if z is None else z.copy()
        self._clipped = np.zeros((len(plan.scales), 2), np.int64) if clipped is None else clipped.copy()
        self._timed, self._slots = plan.timed, plan.active
        #: The kernel's arguments between the columns of a call and its results: the plan, the state, and work arrays.
        self._arguments = (
            *plan.source_arrays(),
            *plan.unit_arrays(),
            *(self._z, ranges.knots, ranges.recent, ranges.moves, self._clipped),
            *(np.empty((1, len(plan.sources))), np.empty(len(plan.scales))),
        )
        #: Seconds, codes and numbers where every part takes readings alone, so that there are none; else None.
        self._no_columns = None
        if not (plan.timed or plan.codes or plan.numbers):
            self._no_columns = _NO_TIME, np.empty((0, 0), np.int64), np.empty((0, 0))
        #: Codes and numbers of one row in which no reading is missing; None where they depend on what is read.
        self._complete = plan.complete_columns()

    # ------------------------------------------------------------------ properties

    def _require(self) -> FeaturePlan:
        """The plan of the parts for these signals; raises before the warm-up, unless all is given."""
        return self._plan or self._infer()

    def _infer(self) -> FeaturePlan:
        """The plan for the signals that the parts name, where nothing is to be found."""
        names = () if "*" in self.named else self.named
        try:
            self.warm_up(np.empty((0, len(names))), names=names)
        except ValueError as error:
            raise RuntimeError(
                f"Features must be warmed up before use: call warm_up(values, names=…). {error}"
            ) from error
        self._is_provisional = True
        return self._require()

    @property
    def is_warm(self) -> bool:
        """Whether ``warm_up`` has told the signals, and found what is not given."""
        return self._plan is not None and not self._is_provisional

    @property
    def named(self) -> tuple[str, ...]:
        """The signals that its parts name, in the order in which they do; "*" for all that there are."""
        return tuple(dict.fromkeys(name for entry in self.parts for name in entry.signals()))

    @property
    def signals(self) -> tuple[str, ...]:
        """The names of the C signals; before ``warm_up`` those that are ``named``."""
        return self._require().names

    @property
    def n(self) -> int:
        """The number of features."""
        return self._require().n

    @property
    def active(self) -> int:
        """k, the largest number of features that are active in one row."""
        return self._require().active

    @property
    def largest(self) -> float | None:
        """A bound on the components of φ: the number of active ones, which colliding hashed tiles may reach.

        None where a user's function makes some of them.
        """
        plan = self._require()
        return None if plan.numbers else float(plan.active)

    @property
    def norm(self) -> float:
        """The mean of φ·φ over the rows of the warm-up; without rows, about the most it can be, nothing missing."""
        self._require()
        return self._norm

    @property
    def clipped(self) -> dict[str, tuple[int, int]]:
        """How many values were below and above the range, for each source; of several ranges, the most."""
        self._require()
        return self._by_source(self._clipped)

    @property
    def range_moves(self) -> dict[str, tuple[int, int]]:
        """How many times a range found in the warm-up was moved down and up to follow the readings, for each source."""
        self._require()
        return self._by_source(self._ranges.moves)

    def _by_source(self, counts: NDArray[np.int64]) -> dict[str, tuple[int, int]]:
        """Counts of scales by the names of their sources; of several, the most."""
        plan = self._require()
        most = np.zeros((len(plan.sources), 2), np.int64)
        for scale, k in plan.scales.items():
            np.maximum(most[scale.source], counts[k], out=most[scale.source])
        return {source.name: (int(down), int(up)) for source, (down, up) in zip(plan.sources, most, strict=True)}

    def names(self) -> list[str]:
        """A readable name for each of the n features."""
        plan = self._require()
        return plan.feature_names(self._ranges.by_scale(plan))

    def __repr__(self) -> str:
        n = "" if self._plan is None else f", n={self.n}"
        return f"Features([{', '.join(map(repr, self.parts))}]{n})"

    # ------------------------------------------------------------------ making φ

    def __call__(
        self,
        values: ArrayLike,
        *,
        time: ArrayLike | None = None,
        labels: Labels | None = None,
        missing: ArrayLike | None = None,
    ) -> Active:
        """φ of the next rows, (B, C) to (B, k), or of the next row, (C,) to (k,).

        Args:
            values: Readings, (B, C) or (C,).
            time: The rows' times, in seconds or datetime64; required by parts of time.
            labels: The rows' labels by name, an array each, or a single label for a single row.
            missing: Marks the missing readings, in the shape of ``values``, where the caller has put other values in
                their place; by default those that are NaN.
        """
        phi = self.activate(self.columns(values, time=time, labels=labels, missing=missing))
        return phi[0] if np.ndim(values) == 1 else phi

    def columns(
        self,
        values: ArrayLike,
        *,
        time: ArrayLike | None = None,
        labels: Labels | None = None,
        missing: ArrayLike | None = None,
    ) -> FeatureColumns:
        """The first half of a call, which checks its input and changes nothing.

        Args:
            values: Readings, (B, C), or (C,) for a block of one row.
            time: As in a call.
            labels: As in a call.
            missing: As in a call.
        """
        plan = self._plan or self._require()
        if (
            values.__class__ is np.ndarray
            and values.dtype is _FLOAT64
            and values.ndim == 2
            and values.shape[1] == len(plan.names)
            and values.flags.carray
        ):
            if self._no_columns is not None:
                return FeatureColumns(values, *self._no_columns)  # there is nothing else to check
            if (
                self._complete is not None
                and missing.__class__ is np.ndarray
                and missing.shape == values.shape
                and len(values) == 1
                and not np.count_nonzero(missing)
            ):
                if not self._timed:
                    return FeatureColumns(values, _NO_TIME, *self._complete)
                if time.__class__ is np.ndarray and time.dtype is _FLOAT64 and time.shape == (1,):
                    return FeatureColumns(values, time, *self._complete)
        rows = CheckedReadings(plan.names, values, time, labels, missing, "Features")
        return FeatureColumns(rows.values, rows.seconds if self._timed else _NO_TIME, *plan.make_columns(rows))

    def activate(self, columns: FeatureColumns) -> Active:
        """The second half of a call, which cannot fail: φ of these rows, (B, k).

        Args:
            columns: What ``columns`` returned for them.
        """
        readings = columns.readings
        shape = len(readings), self._slots
        index, value = np.empty(shape, np.int64), np.empty(shape)
        activate = _kernel("activate")
        top = activate(readings, columns.seconds, columns.codes, columns.numbers, *self._arguments, index, value)
        return make_unchecked(index, value, top)

    @property
    def needs_only_readings(self) -> bool:
        """Whether φ is made of readings, and of nothing else that a row may have."""
        self._require()
        return self._no_columns is not None

    def fill(self, readings: Array, index: NDArray[np.int64], value: Array) -> int:
        """φ of one row into arrays of the caller, for loops in which a call would take longer than its work.

        Args:
            readings: The row, (1, C), contiguous float64.
            index: Takes the indices of the active features, (1, k), contiguous int64.
            value: Takes their values, (1, k), contiguous float64.

        Returns:
            The largest of the indices.
        """
        columns = self._no_columns or self.columns(readings).extra
        return _kernel("activate")(readings, *columns, *self._arguments, index, value)

    def constant_arguments(self) -> tuple[NDArray[Any], ...] | None:
        """What ``kernels.activate`` takes between readings and results, where φ depends on the row alone; else None.

        It does not with traces, with ranges that adapt, or with features of anything but readings.
        """
        plan = self._require()
        adapts = bool((self._ranges.recent[:, 0] > 0.0).any())
        if self._no_columns is None or adapts or any(source.op != READING for source in plan.sources):
            return None
        return (*self._no_columns, *self._arguments)

    def cut(self) -> None:
        """Forget the traces: after a gap they start again from the first reading."""
        self._require()
        self._z[:] = np.nan

    def fix_ranges(self) -> None:
        """Fix all ranges from now on, including those found in the warm-up."""
        self._require()
        self._ranges.fix()

    def restart(self) -> None:
        """Return to the state after the warm-up: no traces, the ranges found then, and counts at 0."""
        self.cut()
        self._ranges.restart()
        self._clipped[:] = 0

    # ------------------------------------------------------------------ saving

    def to_config(self) -> list[dict[str, Any]]:
        """The parts as tables of a TOML file, ``[[features]]``."""
        for entry in self.parts:
            check_kind(entry)
        return [entry.config() for entry in self.parts]

    def provide(self, functions: Mapping[str, Callable[..., Any]]) -> Features:
        """Supply the Python functions that its parts name and that a file cannot hold. Returns self.

        Args:
            functions: The functions by name.
        """
        known = [name for entry in self.parts for name in entry.functions()]
        for name in functions:
            if name not in known:
                raise refusal("functions", "Features", f"have names of its functions: {', '.join(known)}", repr(name))
        self.parts = tuple(entry.provide(functions) for entry in self.parts)
        if self._plan is not None:
            self._plan = make_plan(self.parts, self._plan.names, self._plan.findings)
        return self

    @staticmethod
    def from_config(tables: Sequence[Mapping[str, Any]]) -> Features:
        """The maker that such tables describe.

        Args:
            tables: The parts as tables of a TOML file.

        >>> Features.from_config([{"kind": "soft_bins", "of": {"trace": "*", "steps": 30}, "bins": 20}])
        Features([SoftBins(Trace('*', steps=30))])
        """
        if not isinstance(tables, Sequence):
            raise refusal("tables", "from_config", "be a list of tables", repr(tables))
        return Features([from_config(table) for table in tables])

    def save(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """The complete state, to continue bit for bit: a JSON-compatible header, and arrays."""
        header = {
            "parts": self.to_config(),
            "signals": list(self.signals),
            "categories": self._require().findings,
            "norm": self._norm,
        }
        return header, {"z": self._z.copy(), "clipped": self._clipped.copy(), **self._ranges.arrays()}

    @staticmethod
    def load(
        header: Mapping[str, Any],
        arrays: Mapping[str, NDArray[Any]],
        functions: Mapping[str, Callable[..., Any]] | None = None,
    ) -> Features:
        """The maker that was saved.

        Args:
            header: The first value that ``save`` returned.
            arrays: The second.
            functions: Those of its ``Function`` parts, by name; they can also be supplied later, by ``provide``.

        Raises:
            CheckpointError: These are not what ``save`` returned.
        """
        try:
            maker = Features.from_config(header["parts"])
            findings = {str(name): list(values) for name, values in header["categories"].items()}
            plan = make_plan(maker.parts, check_signal_names(header["signals"]), findings)
            ranges = AdaptiveRanges.restore(plan, arrays)
            z, clipped = arrays["z"], arrays["clipped"]
            fine = z.dtype == np.float64 and clipped.dtype == np.int64
            if not fine or z.shape != (len(plan.sources),) or clipped.shape != (len(plan.scales), 2):
                raise ValueError("the arrays do not fit the parts")
            maker._begin(plan, ranges, float(header["norm"]), z, clipped)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise CheckpointError(f"These are not valid saved features: {error}") from error
        return maker.provide(functions or {})


def make_plan(parts: Sequence[Part], names: Sequence[str], findings: dict[str, list[Any]]) -> FeaturePlan:
    """The plan for signals of these names; ``findings`` is what the parts found in the warm-up."""
    plan = FeaturePlan(tuple(names), findings)
    for entry in parts:
        plan.units += entry.units(plan)
    if plan.n >= 1 << 48:
        raise refusal("parts", "Features", "make fewer than 2**48 features; use hashed tiles", f"{plan.n} features")
    return plan


def _check_different_names(parts: Sequence[Part]) -> None:
    """Raise if two functions, or two findings of the warm-up, have the same name."""
    names = [name for entry in parts for name in entry.functions()]
    if len(set(names)) < len(names):
        raise refusal("parts", "Features", "have functions of different names", ", ".join(names))
    finding = [(entry.found_under(), type(entry).__name__) for entry in parts]
    for i, (name, kind) in enumerate(finding):
        if name is not None and name in dict(finding[:i]):
            raise refusal("parts", "Features", f"have one {kind} at most of each name", f"{name!r} twice")


# The kernels are imported late, for they import numba. They are called without a check of types: all their arguments
# are made here or by the plan, or were checked.


@functools.cache
def _kernel(name: str) -> Callable[..., int]:
    from emphatic.engines.compiled import direct
    from emphatic.features import kernels

    return direct(getattr(kernels, name))  # type: ignore[no-any-return]


# ------------------------------------------------------------------ ranges


@dataclass
class AdaptiveRanges:
    """The knots of all scales now and after the warm-up, statistics of recent readings then and now, and counts."""

    knots: Array
    recent: Array
    first_knots: Array
    first_recent: Array
    moves: NDArray[np.int64]

    @classmethod
    def fixed(cls, plan: FeaturePlan, knots: Sequence[Array]) -> AdaptiveRanges:
        """Ranges that do not adapt."""
        flat, recent = np.concatenate([np.empty(0), *knots]), np.zeros((len(plan.scales), STATISTICS))
        return cls(flat, recent, flat.copy(), recent.copy(), np.zeros((len(plan.scales), 2), np.int64))

    @classmethod
    def found(cls, plan: FeaturePlan, knots: Sequence[Array], sensed: Array) -> AdaptiveRanges:
        """Ranges of which those found in a warm-up with these values of the sources adapt."""
        ranges = cls.fixed(plan, knots)
        watched, _ = plan.leaders()
        for scale, k in plan.scales.items():
            if watched[k] == k:
                seen = sensed[np.isfinite(sensed[:, scale.source]), scale.source]
                low, high = knots[k][0], knots[k][-1]
                ends = (seen < low + EDGE * (high - low), seen > high - EDGE * (high - low))
                ranges.recent[k, 0] = max(LEAST, len(seen))
                ranges.recent[k, 2:4] = [np.mean(end) if len(seen) else 0.0 for end in ends]
        ranges.first_recent[:] = ranges.recent
        return ranges

    def fix(self) -> None:
        """Stop adapting."""
        self.recent[:], self.first_recent[:], self.first_knots[:] = 0.0, 0.0, self.knots

    def restart(self) -> None:
        """Restore the state after the warm-up."""
        self.knots[:], self.recent[:], self.moves[:] = self.first_knots, self.first_recent, 0

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays to save."""
        return {name: array.copy() for name, array in vars(self).items()}

    @classmethod
    def restore(cls, plan: FeaturePlan, arrays: Mapping[str, NDArray[Any]]) -> AdaptiveRanges:
        """Restore what was saved."""
        ranges = cls.fixed(plan, _by_scale(plan, _check_knots(plan, arrays["knots"])))
        ranges.first_knots[:] = _check_knots(plan, arrays["first_knots"])
        for target, name in ((ranges.recent, "recent"), (ranges.first_recent, "first_recent")):
            saved = arrays[name]
            fits = saved.shape == target.shape and saved.dtype == target.dtype and np.isfinite(saved).all()
            if not fits or ((saved[:, 0] != 0.0) & (saved[:, 0] < LEAST)).any():
                raise ValueError("the arrays do not fit the parts")
            target[:] = saved
        if arrays["moves"].shape != ranges.moves.shape or arrays["moves"].dtype != np.int64:
            raise ValueError("the arrays do not fit the parts")
        ranges.moves[:] = arrays["moves"]
        return ranges

    def by_scale(self, plan: FeaturePlan) -> list[Array]:
        """The knots of each scale now."""
        return _by_scale(plan, self.knots)


def _by_scale(plan: FeaturePlan, flat: Array) -> list[Array]:
    """The knots of each scale, from those of all."""
    ends = np.cumsum([0, *(scale.knots for scale in plan.scales)]).tolist()
    return [flat[a:b] for a, b in pairwise(ends)]


def _check_knots(plan: FeaturePlan, flat: NDArray[Any]) -> Array:
    """Increasing knots for every scale."""
    fine = flat.dtype == np.float64 and flat.shape == (sum(scale.knots for scale in plan.scales),)
    if not fine or not all(np.isfinite(at).all() and (np.diff(at) > 0).all() for at in _by_scale(plan, flat)):
        raise ValueError("the arrays do not fit the parts")
    return flat
