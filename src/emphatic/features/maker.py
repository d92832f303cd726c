"""``Features``: a list of parts and their ranges; readings in, active features out."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.errors import CheckpointError
from emphatic.features.adapting import AdaptiveRanges, leaders
from emphatic.features.parts import Part, check_kind, from_config
from emphatic.features.plan import FeaturePlan, make_plan
from emphatic.features.ranges import find_knots
from emphatic.features.readings import CheckedReadings, FeatureColumns, Labels, check_signal_names
from emphatic.learning.active import Active, make_unchecked
from emphatic.learning.inputs import refusal

__all__ = ["Features"]

#: For parts that need no time.
_NO_TIME = np.empty(0)
_FLOAT64 = np.dtype(np.float64)


class Features:
    """Makes φ from readings, by a list of parts.

    >>> import numpy as np
    >>> from emphatic import features as f
    >>> maker = f.Features([f.Bias(), f.SoftBins("*", bins=3, range=(0, 10))])
    >>> maker.warm_up(np.empty((0, 1)), names=["S1"])
    Features([Bias(), SoftBins('*', range=[0, 10], bins=3)], n=4)
    >>> maker([2.0])
    Active([0, 1, 2], [1.0, 0.6, 0.4])
    >>> maker.names()
    ['bias', 'S1 ≈ 0', 'S1 ≈ 5', 'S1 ≈ 10']

    ``warm_up`` uses some rows to find ranges and categories that are not given. A call computes φ of the next rows,
    (B, k), or of one, (k,), and carries traces over to the next call: the bits are the same however the rows are
    divided into calls. Values outside a range are clipped to it, and counted in ``clipped``; a range that was found
    follows readings that have left it (``emphatic.features.adapting``), one that was given is fixed. A missing reading
    (NaN or infinity) makes no feature of that part active (index −1).
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts: tuple[Part, ...] = tuple(parts) if isinstance(parts, Sequence) else ()
        if not self.parts or not all(isinstance(part, Part) for part in self.parts):
            raise refusal("parts", "Features", "be a list of parts, such as Bias() or SoftBins('*')", repr(parts))
        for part in self.parts:
            if type(part).units is Part.units:
                wants = "be parts that make features: for your own use Function, or a class with the method units(plan)"
                raise refusal("parts", "Features", wants, f"{type(part).__name__}, which has no units(plan),")
        names = [name for part in self.parts for name in part.functions()]
        if len(set(names)) < len(names):
            raise refusal("parts", "Features", "have functions of different names", ", ".join(names))
        finding = [(part.found_under(), type(part).__name__) for part in self.parts]
        for i, (name, kind) in enumerate(finding):
            if name is not None and name in dict(finding[:i]):
                raise refusal("parts", "Features", f"have one {kind} at most of each name", f"{name!r} twice")
        self._plan: FeaturePlan | None = None

    # ------------------------------------------------------------------ warming up

    def warm_up(self, values: Any, *, names: Sequence[str], time: Any = None, labels: Labels | None = None) -> Features:
        """Find what is not given from these rows (B, C). No trace is kept: the next row is the first.

        ``names`` are those of the C signals; ``time`` is in seconds or datetime64; ``labels`` has an array for each
        name of a ``OneHot`` that is not a signal. B may be 0 where everything is given. Returns self.
        """
        rows = CheckedReadings.check(check_signal_names(names), values, time, labels, None, "warm_up")
        named = ((part.found_under(), part) for part in self.parts)
        found = {name: part.find(rows) for name, part in named if name is not None}
        plan = make_plan(self.parts, rows.names, found)
        sensed = np.empty((len(rows.values), len(plan.sources)))
        _sensing()(rows.values, *plan.source_arrays(), np.full(len(plan.sources), np.nan), sensed)
        knots = [find_knots(scale, sensed[:, scale.source]) for scale in plan.scales]
        trial = Features(self.parts)
        trial._begin(plan, AdaptiveRanges.fixed(plan, knots), 0.0)
        phi = trial(rows.values, time=time, labels=labels)
        norm = float(np.mean(np.sum(phi.values**2, axis=1))) if len(rows.values) else plan.norm
        self._begin(plan, AdaptiveRanges.found(plan, knots, sensed), norm)
        return self

    def _begin(self, plan: FeaturePlan, ranges: AdaptiveRanges, norm: float) -> None:
        """Reset to the state before the first row."""
        self._plan, self._ranges, self._norm = plan, ranges, norm
        self._z = np.full(len(plan.sources), np.nan)
        self._clipped = np.zeros((len(plan.scales), 2), np.int64)
        self._timed, self._slots = plan.timed, plan.active
        #: The kernel's arguments between the columns of a call and its results: the plan, the state, and work arrays.
        self._arguments = (
            *plan.source_arrays(), *plan.unit_arrays(*leaders(plan)), self._z, ranges.knots, ranges.recent,
            ranges.moves, self._clipped, np.empty((1, len(plan.sources))), np.empty(len(plan.scales)),
        )  # fmt: skip
        #: Seconds, codes and numbers where every part takes readings alone, so that there are none; else None.
        self._no_columns = None
        if not (plan.timed or plan.codes or plan.numbers):
            self._no_columns = _NO_TIME, np.empty((0, 0), np.int64), np.empty((0, 0))

    # ------------------------------------------------------------------ properties

    def _require(self) -> FeaturePlan:
        """The plan of the parts for these signals; raises before the warm-up."""
        if self._plan is None:
            raise RuntimeError("Features must be warmed up before use: call warm_up(values, names=…).")
        return self._plan

    @property
    def is_warm(self) -> bool:
        """Whether its ranges and categories are known, so that φ can be computed."""
        return self._plan is not None

    @property
    def signals(self) -> tuple[str, ...]:
        """The names of the C signals."""
        return self._require().names

    @property
    def n(self) -> int:
        """The number of features."""
        return self._require().n

    @property
    def active(self) -> int:
        """k, the slots of a row: at most so many features are active at once."""
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
        return plan.feature_names(self._ranges.each(plan))

    def __repr__(self) -> str:
        n = "" if self._plan is None else f", n={self.n}"
        return f"Features([{', '.join(map(repr, self.parts))}]{n})"

    # ------------------------------------------------------------------ making φ

    def __call__(self, values: Any, *, time: Any = None, labels: Labels | None = None, missing: Any = None) -> Active:
        """φ of the next rows, (B, C) to (B, k), or of the next row, (C,) to (k,).

        ``missing`` (of the same shape) marks the missing readings, where the caller has put other values in their
        place; by default those that are NaN.
        """
        phi = self.activate(self.columns(values, time=time, labels=labels, missing=missing))
        return phi[0] if np.ndim(values) == 1 else phi

    def columns(
        self, values: Any, *, time: Any = None, labels: Labels | None = None, missing: Any = None
    ) -> FeatureColumns:
        """The first half of a call, which checks its input and changes nothing.

        One row is a block of one.
        """
        plan = self._plan or self._require()
        if (
            self._no_columns is not None
            and values.__class__ is np.ndarray
            and values.dtype is _FLOAT64
            and values.ndim == 2
            and values.shape[1] == len(plan.names)
            and values.flags.carray
        ):
            return FeatureColumns(values, *self._no_columns)  # there is nothing else to check
        rows = CheckedReadings.check(plan.names, values, time, labels, missing, "Features")
        return FeatureColumns(rows.values, rows.seconds if self._timed else _NO_TIME, *plan.make_columns(rows))

    def activate(self, columns: FeatureColumns) -> Active:
        """The second half of a call, which cannot fail: φ of these rows, (B, k)."""
        readings = columns.readings
        shape = len(readings), self._slots
        index, value = np.empty(shape, np.int64), np.empty(shape)
        top = _activation()(readings, columns.seconds, columns.codes, columns.numbers, *self._arguments, index, value)
        return make_unchecked(index, value, top)

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
        for part in self.parts:
            check_kind(part)
        return [part.config() for part in self.parts]

    def provide(self, functions: Mapping[str, Callable[..., Any]]) -> Features:
        """Supply the Python functions that its parts name and that a file cannot hold. Returns self."""
        known = [name for part in self.parts for name in part.functions()]
        for name in functions:
            if name not in known:
                raise refusal("functions", "Features", f"have names of its functions: {', '.join(known)}", repr(name))
        self.parts = tuple(part.provide(functions) for part in self.parts)
        if self._plan is not None:
            self._plan = make_plan(self.parts, self._plan.names, self._plan.found)
        return self

    @staticmethod
    def from_config(tables: Sequence[Mapping[str, Any]]) -> Features:
        """The maker that such tables describe.

        >>> Features.from_config([{"kind": "soft_bins", "of": {"trace": "*", "steps": 30}, "bins": 20}])
        Features([SoftBins(Trace('*', steps=30))])
        """
        if not isinstance(tables, Sequence):
            raise refusal("tables", "from_config", "be a list of tables", repr(tables))
        return Features([from_config(table) for table in tables])

    def save(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """The complete state, to continue bit for bit: a JSON-compatible part, and arrays."""
        header = {
            "parts": self.to_config(),
            "signals": list(self.signals),
            "categories": self._require().found,
            "norm": self._norm,
        }
        return header, {"z": self._z.copy(), "clipped": self._clipped.copy(), **self._ranges.arrays()}

    @staticmethod
    def load(
        header: Mapping[str, Any],
        arrays: Mapping[str, NDArray[Any]],
        functions: Mapping[str, Callable[..., Any]] | None = None,
    ) -> Features:
        """The maker that was saved; ``CheckpointError`` if these are not what ``save`` returned.

        ``functions`` are those of its ``Function`` parts, by name; they can also be supplied later, by ``provide``.
        """
        try:
            maker = Features.from_config(header["parts"])
            found = {str(name): list(values) for name, values in header["categories"].items()}
            plan = make_plan(maker.parts, check_signal_names(header["signals"]), found)
            ranges = AdaptiveRanges.restore(plan, arrays)
            z, clipped = arrays["z"], arrays["clipped"]
            fine = z.dtype == np.float64 and clipped.dtype == np.int64
            if not fine or z.shape != (len(plan.sources),) or clipped.shape != (len(plan.scales), 2):
                raise ValueError("the arrays do not fit the parts")
            maker._begin(plan, ranges, float(header["norm"]))
            maker._z[:], maker._clipped[:] = z, clipped
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise CheckpointError(f"These are not valid saved features: {error}") from error
        return maker.provide(functions or {})


# (late, for they import numba; all that they are given is made here or by the plan, or was checked)


@functools.cache
def _sensing() -> Any:
    from emphatic.engines.compiled import direct
    from emphatic.features import kernels

    return direct(kernels.sense)


@functools.cache
def _activation() -> Any:
    from emphatic.engines.compiled import direct
    from emphatic.features import kernels

    return direct(kernels.activate)
