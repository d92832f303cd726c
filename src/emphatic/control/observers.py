"""From an observation to the active features of a state, in arrays that the agent's kernels read."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.common.names import refusal, show
from emphatic.features import Features, Function, Part
from emphatic.learning.inputs import Active, real_array

__all__ = ["FunctionObserver", "MakerObserver", "MoreSlots", "Observation", "Observer", "TableObserver", "observer_of"]
__all__ += ["restored"]

#: What an environment shows: a number of a state, a row of numbers, or whatever the features' function takes.
Observation = Any
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Observer:
    """Makes φ(S) of n features, at most ``slots`` of them active; ``n`` is 0 until an observation shows it."""

    kind = "function"
    n = 0
    slots = 0
    #: What is checked to be finite in the last observation.
    readings: Floats = np.zeros(0)

    def prepare(self, observation: Observation) -> None:
        """Find n and the slots from a first observation, where they are not known."""

    def observe(self, observation: Observation, index: Integers, value: Floats) -> None:
        """Fill rows of (1, slots) with the active features; unused slots are −1."""
        raise NotImplementedError

    def begin(self) -> None:
        """Start an episode."""

    def copy(self) -> Observer:
        """An independent copy, with the same traces."""
        return copy(self)

    def appraise(self, observation: Observation, index: Integers, value: Floats) -> Floats:
        """``observe`` without a trace of it; what must be finite."""
        trial = self.copy()
        trial.observe(observation, index, value)
        return trial.readings

    def save(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What a file holds of it: a JSON-compatible header, and arrays."""
        return {"kind": self.kind, "n": self.n, "slots": self.slots}, {}


class TableObserver(Observer):
    """One feature for each of n states, which are observed as whole numbers from 0."""

    kind = "table"

    def __init__(self, n: int) -> None:
        if n < 1:
            raise refusal("features", "Agent", "be 1 state or more", str(n))
        self.n, self.slots = n, 1

    def observe(self, observation: Observation, index: Integers, value: Floats) -> None:
        try:
            state = int(observation)
            is_state = state == observation and 0 <= state < self.n
        except (TypeError, ValueError, OverflowError):
            is_state = False
        if not is_state:
            wanted = f"be a state, a whole number from 0 to {self.n - 1}"
            raise refusal("observation", "Agent", wanted, show(observation))
        index[0, 0], value[0, 0] = state, 1.0


class MakerObserver(Observer):
    """The features of a ``Features``: tile coding, soft bins, traces of readings, …."""

    def __init__(self, maker: Features) -> None:
        self.maker = maker
        self._buffer = np.empty((1, 0))
        if maker.is_warm:
            self._size()

    def _size(self) -> None:
        self.n, self.slots = self.maker.n, self.maker.active
        self._buffer = np.zeros((1, len(self.maker.signals)))
        self.readings = self._buffer[0]

    def prepare(self, observation: Observation) -> None:
        if not self.maker.is_warm:
            named = self.maker.named
            components = tuple(f"o{i}" for i in range(int(np.size(observation))))
            names = components if {*named} <= {*components, "*"} else named
            try:
                self.maker.warm_up(np.empty((0, len(names))), names=names)
            except ValueError as error:
                wanted = (
                    f"fit an observation of {len(components)} readings, {', '.join(names)}, each with a given range"
                )
                raise refusal("features", "Agent", wanted, f"features that do not: {error}") from error
        self._size()

    def observe(self, observation: Observation, index: Integers, value: Floats) -> None:
        try:
            if len(observation) != self.readings.size:  # a single number would become all of them
                raise ValueError
            self.readings[:] = observation
        except (TypeError, ValueError):
            self._convert(observation)
        self.maker.fill(self._buffer, index, value)

    def _convert(self, observation: Observation) -> None:
        """An observation that is not a row of numbers: an array of another shape, or what cannot be used."""
        array = real_array("observation", observation, "Agent")
        if array.size != self.readings.size:
            wanted = f"have {self.readings.size} components, {', '.join(self.maker.signals)}"
            raise refusal("observation", "Agent", wanted, f"shape {array.shape}")
        self.readings[:] = array.reshape(-1)

    def begin(self) -> None:
        self.maker.cut()

    def copy(self) -> MakerObserver:
        if not self.maker.is_warm:
            return MakerObserver(Features(self.maker.parts))
        header, arrays = self.maker.save()
        parts = [part for part in self.maker.parts if isinstance(part, Function)]
        functions = {name: part.function for part in parts for name in part.functions() if part.function is not None}
        return MakerObserver(Features.load(header, arrays, functions))

    def save(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        header, arrays = self.maker.save()
        return {"kind": "maker", "maker": header}, arrays


class FunctionObserver(Observer):
    """A function of the observation that returns φ, an array (n,) or ``Active``."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function
        n = getattr(function, "n", 0)
        self.n = n if isinstance(n, int) and not isinstance(n, bool) and n > 0 else 0

    def prepare(self, observation: Observation) -> None:
        phi = self._phi(observation)
        if isinstance(phi, Active):
            if not self.n:
                wanted = "have an attribute n, the number of features, if it returns Active"
                raise refusal("features", "Agent", wanted, show(self.function))
            self.slots = max(self.slots, phi.indices.size)
        else:
            self.n = self.n or phi.size
            self.slots = self.n

    def _phi(self, observation: Observation) -> Active | Floats:
        phi = self.function(observation)
        if isinstance(phi, Active):
            if phi.indices.ndim != 1:
                raise refusal("features", "Agent", "return one φ for an observation", f"{len(phi.indices)} rows")
            if self.n and phi.top >= self.n:
                raise refusal("features", "Agent", f"return features below n = {self.n}", str(phi.top))
            return phi
        array = np.asarray(real_array("features", phi, "Agent"), np.float64)
        if array.ndim != 1 or (self.n and array.size != self.n) or not array.size:
            wanted = f"return φ of shape ({self.n or 'n'},), always the same"
            raise refusal("features", "Agent", wanted, f"shape {array.shape}")
        return array

    def observe(self, observation: Observation, index: Integers, value: Floats) -> None:
        phi = self._phi(observation)
        values = phi.values if isinstance(phi, Active) else phi
        self.readings = np.ascontiguousarray(values)
        count = values.size
        if count > index.shape[1]:
            raise MoreSlots(count)
        index[0, :count] = phi.indices if isinstance(phi, Active) else np.arange(count)
        value[0, :count] = values
        index[0, count:] = -1


class MoreSlots(Exception):
    """More features are active than ever before; the agent makes room for so many, and observes again."""

    def __init__(self, slots: int) -> None:
        self.slots = slots


def observer_of(features: object) -> Observer:
    """What makes φ of an observation, from the argument ``features`` of an agent.

    Args:
        features: A ``Features`` or a ``Part`` of one, the number of states of a table, a ``Discrete`` space of them, or
            a function of the observation that returns φ.
    """
    if isinstance(features, Observer):
        return features
    if isinstance(features, Features | Part):
        return MakerObserver(features if isinstance(features, Features) else Features([features]))
    if isinstance(features, int | np.integer) and not isinstance(features, bool):
        return TableObserver(int(features))
    if callable(features):
        return FunctionObserver(features)
    if type(features).__name__ == "Discrete" and getattr(features, "start", None) == 0:
        return TableObserver(int(features.n))  # type: ignore[attr-defined]
    wanted = "be Tiles or a Features, a number of states, or a function of the observation that returns φ"
    hint = "Use emphatic.gymnasium.tiles(space)." if type(features).__name__ == "Box" else ""
    raise refusal("features", "Agent", wanted, show(features), hint)


def restored(header: dict[str, Any], arrays: dict[str, NDArray[Any]], features: object) -> Observer:
    """The observer that ``save`` described; ValueError where ``features`` must be passed again."""
    if header["kind"] == "table":
        return TableObserver(int(header["n"]))
    if header["kind"] == "maker":
        return MakerObserver(Features.load(header["maker"], arrays))
    if features is None:
        wanted = "be passed again if they are a function, which a file cannot hold"
        raise refusal("features", "Agent.load", wanted, "none")
    observer = observer_of(features)
    n = int(header["n"])
    if observer.n not in (0, n):
        raise refusal("features", "Agent.load", f"make {n} features, as before", str(observer.n))
    observer.n, observer.slots = n, int(header["slots"])
    return observer
