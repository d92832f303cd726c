"""What a signal's plot shows: its readings, and for each horizon the predictions beside what then happened."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from emphatic.learning.inputs import refusal

__all__ = ["SignalPlot", "Stretch", "signal_plot", "thin"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Stretch:
    """A stretch of the log, arrays of one length.

    ``x`` are row numbers or times (datetime64 or ISO strings), ``reading`` the signal, ``predictions`` and
    ``returns`` one array a horizon in the signal's own unit, NaN where unknown. Each point is the mean of ``each``
    rows.
    """

    x: NDArray[Any]
    reading: FloatArray
    predictions: Mapping[Hashable, FloatArray]
    returns: Mapping[Hashable, FloatArray]
    each: int = 1


@dataclass(frozen=True)
class SignalPlot:
    """A signal by name: some rows one by one, and the whole log in coarse steps (None: those rows are all)."""

    name: str
    close: Stretch
    whole: Stretch | None = None


def thin(values: ArrayLike, each: int) -> FloatArray:
    """The mean of each run of ``each`` values (the last run may be shorter), of those that are not NaN.

    >>> thin([1.0, 3.0, 5.0, float("nan"), 9.0], 2)
    array([2., 5., 9.])
    """
    array = np.asarray(values, np.float64)
    starts = np.arange(0, len(array), each)
    if each == 1 or not len(array):
        return array
    known = ~np.isnan(array)
    count = np.add.reduceat(known.astype(np.float64), starts)
    total = np.add.reduceat(np.where(known, array, 0.0), starts)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def signal_plot(
    name: str,
    x: ArrayLike,
    reading: ArrayLike,
    predictions: Mapping[Any, ArrayLike],
    returns: Mapping[Any, ArrayLike],
    most: int = 2000,
) -> SignalPlot:
    """The plot of a signal from all its rows: ``most`` of them as they are, and all in at most ``most`` means.

    The close-up ends a tenth of itself after the last row whose return is known at every horizon: at the end of the
    log, a long horizon would have nothing to be compared with.
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

    def stretch(part: slice, each: int) -> Stretch:
        starts = rows[part][::each]
        holes = _holes(starts)

        def taken(y: ArrayLike) -> FloatArray:
            return np.insert(thin(np.asarray(y, np.float64)[part], each), holes, np.nan)

        ours, truth = ({h: taken(y) for h, y in many.items()} for many in (predictions, returns))
        return Stretch(np.insert(starts, holes, starts[holes]), taken(reading), ours, truth, each)

    if len(rows) <= most:
        return SignalPlot(name, stretch(slice(None), 1))
    ends = [np.flatnonzero(~np.isnan(np.asarray(y, np.float64))) for y in returns.values()]
    last = min((int(known[-1]) for known in ends if len(known)), default=len(rows))
    end = min(len(rows), max(most, last + most // 10))
    return SignalPlot(name, stretch(slice(end - most, end), 1), stretch(slice(None), -(-len(rows) // most)))


def _holes(x: NDArray[Any]) -> NDArray[np.intp]:
    """Where a gap in time is: before these positions a line breaks rather than cross it."""
    if x.dtype.kind != "M" or len(x) < 3:
        return np.empty(0, np.intp)
    steps = np.diff(x.astype("datetime64[ms]").astype(np.int64))
    return np.flatnonzero(steps > 5 * np.median(steps)) + 1
