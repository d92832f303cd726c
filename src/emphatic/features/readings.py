"""The rows that ``Features`` is called with, checked: signals, times and labels as arrays and lists."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.learning.inputs import real_array, refusal

__all__ = ["Array", "CheckedReadings", "FeatureColumns", "Labels", "check_signal_names", "is_missing"]

Array = NDArray[np.float64]
Labels = Mapping[str, Any]


def check_signal_names(names: Any) -> tuple[str, ...]:
    """Different names of signals."""
    given = () if isinstance(names, str) else tuple(names)
    if not given or not all(isinstance(name, str) for name in given) or len(set(given)) < len(given) or "*" in given:
        raise refusal("names", "warm_up", "be a list of different names, none of them '*'", repr(names))
    return given


@dataclass
class CheckedReadings:
    """The rows of one call of ``function``: ``values`` (B, C); the rest is checked when a part uses it."""

    names: tuple[str, ...]
    values: Array
    time: Any
    labels: Labels | None
    gone: Any
    single: bool
    function: str

    @classmethod
    def check(
        cls, names: tuple[str, ...], values: Any, time: Any, labels: Labels | None, gone: Any, function: str
    ) -> CheckedReadings:
        """From what a user gives."""
        array = real_array("values", values, function)
        single = array.ndim == 1 and function != "warm_up"
        if single:
            array = array[None]
        if array.ndim != 2 or array.shape[1] != len(names):
            wants = f"have shape (B, {len(names)}), a column for each signal"
            raise refusal("values", function, wants, f"{array.shape}")
        return cls(names, np.ascontiguousarray(array, np.float64), time, labels, gone, single, function)

    @cached_property
    def seconds(self) -> Array:
        """Seconds since 1970, NaN where there is no time."""
        if self.time is None:
            raise ValueError("The 'time' parameter of Features is required by its parts of time.")
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
        given, B = self.labels[name], len(self.values)
        column = [given] if self.single else given.tolist() if hasattr(given, "tolist") else list(given)
        if len(column) != B:
            raise refusal("labels", self.function, f"have one label per row, {B} in all", f"{len(column)} of {name!r}")
        return column

    def categories(self, name: str) -> list[Any]:
        """Each value of that column once, as first seen."""
        found = list(dict.fromkeys(value for value in self.column(name) if not is_missing(value)))
        if not found or not all(isinstance(value, str | int | float) for value in found):
            wants = f"have strings or numbers of {name!r}, whose categories are to be found"
            raise refusal("values" if name in self.names else "labels", self.function, wants, repr(found))
        return found


@dataclass(slots=True)
class FeatureColumns:
    """The checked input of φ for B rows: readings (B, C), seconds, codes and numbers.

    Seconds, codes and numbers are absent where no part needs them.
    """

    readings: Array
    seconds: Array
    codes: NDArray[np.int64]
    numbers: Array

    def part(self, rows: slice) -> FeatureColumns:
        """Some of the rows."""
        return FeatureColumns(self.readings[rows], self.seconds[rows], self.codes[rows], self.numbers[rows])

    @staticmethod
    def joined(parts: Sequence[FeatureColumns]) -> FeatureColumns:
        """The rows of several as one."""
        return FeatureColumns(
            np.concatenate([part.readings for part in parts]), np.concatenate([part.seconds for part in parts]),
            np.concatenate([part.codes for part in parts]), np.concatenate([part.numbers for part in parts]),
        )  # fmt: skip


def is_missing(value: Any) -> bool:
    """None, NaN or infinity."""
    return value is None or (isinstance(value, float) and not math.isfinite(value))
