"""The checks at the door of ``Features``: readings, times and labels as arrays and lists that it can trust."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.learning.inputs import numbers, refusal

__all__ = ["Labels", "block", "categories", "column", "is_missing", "seconds", "signal_names"]

Array = NDArray[np.float64]
Labels = Mapping[str, Any]


def signal_names(names: Any) -> tuple[str, ...]:
    given = () if isinstance(names, str) else tuple(names)
    if not given or not all(isinstance(name, str) for name in given) or len(set(given)) < len(given) or "*" in given:
        raise refusal("names", "warm_up", "be a list of different names, none of them '*'", repr(names))
    return given


def block(values: Any, columns: int, function: str) -> Array:
    array = numbers("values", values, function)
    if array.ndim == 1 and function != "warm_up":
        array = array[None]
    if array.ndim != 2 or array.shape[1] != columns:
        raise refusal("values", function, f"have shape (B, {columns}), a column for each signal", f"{array.shape}")
    return np.ascontiguousarray(array, np.float64)


def seconds(time: Any, B: int) -> Array:
    """Seconds since 1970, NaN where there is no time."""
    if time is None:
        raise ValueError("The 'time' parameter of Features is required by its parts of time.")
    array = np.atleast_1d(np.asarray(time))
    if array.dtype.kind == "M":
        since = array.astype("M8[us]")
        array = np.where(np.isnat(since), np.nan, since.astype(np.int64) / 1e6)
    if array.shape != (B,) or array.dtype.kind not in "fiu":
        raise refusal("time", "Features", f"be {B} times, in seconds or datetime64", f"{array.dtype} {array.shape}")
    return np.ascontiguousarray(array, np.float64)


def column(
    name: str, rows: Array, names: Sequence[str], labels: Labels | None, function: str, one: bool = False
) -> list[Any]:
    """The values that a ``OneHot`` is of: a signal's, or the labels of that name."""
    if name in names:
        return list(rows[:, names.index(name)].tolist())
    if labels is None or name not in labels:
        raise refusal("labels", function, f"have {name!r}, which is not a signal", repr(labels and list(labels)))
    given = labels[name]
    listed = [given] if one else given.tolist() if hasattr(given, "tolist") else list(given)
    if len(listed) != len(rows):
        raise refusal("labels", function, f"have a label a row, {len(rows)} in all", f"{len(listed)} of {name!r}")
    return listed


def categories(name: str, rows: Array, names: Sequence[str], labels: Labels | None) -> list[Any]:
    """Each value of that column once, as first seen."""
    values = column(name, rows, names, labels, "warm_up")
    found = list(dict.fromkeys(value for value in values if not is_missing(value)))
    if not found or not all(isinstance(value, str | int | float) for value in found):
        wanted = f"have strings or numbers of {name!r}, whose categories are to be found"
        raise refusal("values" if name in names else "labels", "warm_up", wanted, repr(found))
    return found


def is_missing(value: Any) -> bool:
    """None, NaN or infinity."""
    return value is None or (isinstance(value, float) and not math.isfinite(value))
