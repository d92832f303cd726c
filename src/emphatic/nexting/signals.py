"""What a signal's plot shows: its readings, and for each horizon the predictions beside the actual returns."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from emphatic.learning.inputs import refusal

__all__ = ["SignalPlot", "SignalSketch", "Stretch", "signal_plot", "thin"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Stretch:
    """A stretch of the log, arrays of one length.

    ``x`` are row numbers or times (datetime64 or ISO strings), ``reading`` the signal, ``predictions`` and
    ``returns`` one array a horizon in the signal's own unit, NaN where unknown; so are ``low`` and ``high``, the ends
    of the predictions' intervals. ``alarm`` is the reading in rows in alarm and beside them. Each point is the mean of
    ``each`` rows.
    """

    x: NDArray[Any]
    reading: FloatArray
    predictions: Mapping[Hashable, FloatArray]
    returns: Mapping[Hashable, FloatArray]
    each: int = 1
    low: Mapping[Hashable, FloatArray] = field(default_factory=dict)
    high: Mapping[Hashable, FloatArray] = field(default_factory=dict)
    alarm: FloatArray | None = None


@dataclass(frozen=True)
class SignalPlot:
    """A signal by name: some rows one by one, and the whole log in coarse steps (None: those rows are all)."""

    name: str
    close: Stretch
    whole: Stretch | None = None


class _Means:
    """Means of each run of ``each`` rows (the last may be shorter), of several columns, of what is not NaN."""

    def __init__(self, rows: int, columns: int, each: int) -> None:
        self._each = each
        self._total = np.zeros((-(-rows // each), columns))
        self._count = np.zeros(self._total.shape)

    def add(self, start: int, columns: FloatArray) -> None:
        """The next rows (B, columns), from ``start`` on."""
        known = ~np.isnan(columns)
        first = start // self._each
        starts = np.maximum(np.arange(first * self._each, start + len(columns), self._each) - start, 0)
        runs = slice(first, first + len(starts))
        self._count[runs] += np.add.reduceat(known.astype(np.float64), starts, axis=0)
        self._total[runs] += np.add.reduceat(np.where(known, columns, 0.0), starts, axis=0)

    def means(self) -> FloatArray:
        return np.where(self._count > 0, self._total / np.maximum(self._count, 1), np.nan)


def thin(values: ArrayLike, each: int) -> FloatArray:
    """The mean of each run of ``each`` values (the last run may be shorter), of those that are not NaN.

    >>> thin([1.0, 3.0, 5.0, float("nan"), 9.0], 2)
    array([2., 5., 9.])
    """
    array = np.asarray(values, np.float64)
    if each == 1 or not len(array):
        return array
    means = _Means(len(array), 1, each)
    means.add(0, array[:, None])
    return means.means()[:, 0]


class SignalSketch:
    """The plot of a signal, gathered from blocks of its rows in order: memory does not grow with the rows.

    ``rows`` is their number. ``last`` is the last row whose return is known at every horizon: the close-up ends a
    tenth of itself after it, for at the end of the log a long horizon would have nothing to be compared with.
    ``intervals`` are the horizons that have them.
    """

    def __init__(
        self, name: str, rows: int, predictions: Sequence[Hashable], returns: Sequence[Hashable], last: int,
        most: int = 2000, intervals: Sequence[Hashable] = (),
    ) -> None:  # fmt: skip
        self._name, self._horizons = name, [list(some) for some in (predictions, returns, intervals, intervals)]
        columns = 2 + sum(len(some) for some in self._horizons)
        self._end = min(rows, max(most, last + most // 10))
        self._begin = max(0, self._end - most)
        self._close = np.empty((self._end - self._begin, columns))
        self._each = -(-rows // most)
        self._whole = _Means(rows, columns, self._each) if rows > most else None
        self._x: list[NDArray[Any]] = []
        self._starts: list[NDArray[Any]] = []

    def add(
        self, start: int, x: NDArray[Any], reading: FloatArray, predictions: Sequence[FloatArray],
        returns: Sequence[FloatArray], low: Sequence[FloatArray] = (), high: Sequence[FloatArray] = (),
        alarm: FloatArray | None = None,
    ) -> None:  # fmt: skip
        """The next rows, from ``start`` on: where they are along x, a column for each horizon, and the readings in
        alarm, NaN elsewhere."""
        marked = np.full(len(reading), np.nan) if alarm is None else alarm
        columns = np.stack([reading, *predictions, *returns, *low, *high, marked], axis=1)
        a, b = (min(max(edge - start, 0), len(x)) for edge in (self._begin, self._end))
        if a < b:
            self._close[start + a - self._begin : start + b - self._begin] = columns[a:b]
            self._x.append(x[a:b].copy())  # a view would keep all of x
        if self._whole is not None:
            self._whole.add(start, columns)
            starts = x[-start % self._each :: self._each]
            if len(starts):
                self._starts.append(starts.copy())

    def plot(self) -> SignalPlot:
        """What was gathered."""
        close = self._stretch(np.concatenate(self._x) if self._x else np.empty(0), self._close, 1)
        if self._whole is None:
            return SignalPlot(self._name, close)
        whole = self._stretch(np.concatenate(self._starts), self._whole.means(), self._each)
        return SignalPlot(self._name, close, whole)

    def _stretch(self, x: NDArray[Any], columns: FloatArray, each: int) -> Stretch:
        holes = _holes(x)
        drawn = iter([np.insert(column, holes, np.nan) for column in columns.T])
        reading = next(drawn)
        predictions, returns, low, high = ({horizon: next(drawn) for horizon in some} for some in self._horizons)
        alarm = _widen(next(drawn), reading)
        return Stretch(np.insert(x, holes, x[holes]), reading, predictions, returns, each, low, high, alarm)


def signal_plot(
    name: str,
    x: ArrayLike,
    reading: ArrayLike,
    predictions: Mapping[Any, ArrayLike],
    returns: Mapping[Any, ArrayLike],
    most: int = 2000,
) -> SignalPlot:
    """The plot of a signal from all its rows: ``most`` of them as they are, and all in at most ``most`` means.

    The close-up ends a tenth of itself after the last row whose return is known at every horizon (see
    ``SignalSketch``).
    """
    rows = np.asarray(x)
    if rows.dtype.kind in "UO":
        rows = rows.astype("datetime64[ms]")
    columns = {"reading": reading}
    columns |= {f"predictions[{h!r}]": y for h, y in predictions.items()}
    columns |= {f"returns[{h!r}]": y for h, y in returns.items()}
    for column, y in columns.items():
        if np.shape(y) != (len(rows),):
            raise refusal(column, "signal_plot", f"have shape ({len(rows)},), that of x", f"shape {np.shape(y)}")
    whole, ours, truth = (
        [np.asarray(y, np.float64) for y in many] for many in ([reading], predictions.values(), returns.values())
    )
    ends = [np.flatnonzero(~np.isnan(y)) for y in truth]
    last = min((int(known[-1]) for known in ends if len(known)), default=len(rows))
    sketch = SignalSketch(name, len(rows), list(predictions), list(returns), last, most)
    sketch.add(0, rows, whole[0], ours, truth)
    return sketch.plot()


def _widen(marked: FloatArray, reading: FloatArray) -> FloatArray | None:
    """What is marked, and the reading beside it: a single point would not be seen. None if nothing is."""
    here = ~np.isnan(marked)
    if not here.any():
        return None
    beside = np.zeros(len(here), np.bool_)
    beside[1:] |= here[:-1]
    beside[:-1] |= here[1:]
    return np.where(here, marked, np.where(beside, reading, np.nan))


def _holes(x: NDArray[Any]) -> NDArray[np.intp]:
    """Where a gap in time is: before these positions a line breaks rather than cross it."""
    if x.dtype.kind != "M" or len(x) < 3:
        return np.empty(0, np.intp)
    steps = np.diff(x.astype("datetime64[ms]").astype(np.int64))
    return np.flatnonzero(steps > 5 * np.median(steps)) + 1
