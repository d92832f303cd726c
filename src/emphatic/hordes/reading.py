"""Observations as rows of numbers and labels, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.common.names import show
from emphatic.learning.inputs import refusal
from emphatic.questions.gvf import LARGEST

__all__ = ["REWARD", "probability", "row_of", "rows_of"]

Array = NDArray[np.float64]
#: The signal that a transition has besides its observation.
REWARD = "reward"


def row_of(
    observation: Any, function: str, signals: Sequence[str], categories: Sequence[str], reward: Any = None
) -> tuple[Array, dict[str, Any]]:
    """The row (1, C) of all signals, and labels; of a transition, with its reward. ``function`` names the caller."""
    labels: dict[str, Any] = {name: [None] for name in categories}
    wanted = signals if function == "observe" else [name for name in signals if name != REWARD]
    if isinstance(observation, Mapping):
        readings = [_number(name, observation.get(name), function) for name in wanted]
        labels = {name: [_label(name, observation.get(name), function)] for name in categories}
    elif isinstance(observation, str) or not hasattr(observation, "__len__") or len(observation) != len(wanted):
        raise refusal("observation", function, f"be {{name: reading}} or {len(wanted)} readings", repr(observation))
    else:
        readings = [_number(name, reading, function) for name, reading in zip(wanted, observation, strict=True)]
    if len(wanted) < len(signals):
        readings.insert(signals.index(REWARD), _number(REWARD, reward, function))
    return np.array([readings]), labels


def rows_of(observations: Any, signals: Sequence[str], categories: Sequence[str]) -> tuple[Array, dict[str, Any]]:
    """The rows (B, C) of all signals, NaN where a reading is missing, and labels, of ``observe_many``."""
    wanted = f"be {{name: column}} or an array (B, {len(signals)})"
    if not isinstance(observations, Mapping):
        try:
            values = np.array(observations, np.float64)
        except (TypeError, ValueError):
            raise refusal("observations", "observe_many", wanted, repr(observations)) from None
        if values.ndim != 2 or values.shape[1] != len(signals):
            raise refusal("observations", "observe_many", wanted, f"shape {values.shape}")
        labels: dict[str, Any] = {name: np.full(len(values), None, object) for name in categories}
    else:
        lengths = {len(column) for column in observations.values()}
        if len(lengths) != 1:
            raise refusal("observations", "observe_many", "have columns of one length", str(sorted(lengths)))
        B = lengths.pop()
        values, labels = np.full((B, len(signals)), np.nan), {}
        for c, name in enumerate(signals):
            column = observations.get(name, ())
            try:
                values[: len(column), c] = np.asarray(column, np.float64)
            except (TypeError, ValueError, OverflowError):
                values[:, c] = [_number(name, reading, "observe_many") for reading in column]
        for name in categories:
            labels[name] = np.full(B, None, object)
            for t, label in enumerate(observations.get(name, ())):
                labels[name][t] = _label(name, label.item() if isinstance(label, np.generic) else label, "observe_many")
    values[~np.isfinite(values)] = np.nan
    return values, labels


def probability(mu: Any, function: str) -> list[float] | None:
    """μ as passed with a step."""
    if mu is None:
        return None
    value = float(mu) if isinstance(mu, int | float | np.number) else np.nan
    if not 1.0 / LARGEST < value <= LARGEST:
        raise refusal("mu", function, "be a probability or a density, above 0 and finite", repr(mu))
    return [value]


def _number(name: str, reading: Any, function: str) -> float:
    try:
        if reading.__class__ is float or not np.iscomplexobj(reading):
            return np.nan if reading is None else float(reading)
        raise TypeError
    except Exception:  # whatever the object's own conversion raises
        raise refusal("observation", function, f"have a number for {name!r}", show(reading)) from None


def _label(name: str, label: Any, function: str) -> Any:
    if not isinstance(label, str | int | float | None):
        raise refusal("observation", function, f"have text or a number for {name!r}", repr(label))
    return label
