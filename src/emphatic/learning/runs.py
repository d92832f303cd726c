"""One call of ``run``: its checked input, the blocks in which it proceeds, and what it collects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from emphatic.engines.base import Arrays, Engine, Features, Rows, Watch, block
from emphatic.learning import inputs

if TYPE_CHECKING:
    from emphatic.engines.base import Probe

__all__ = ["Collection", "Log", "fit"]

#: Components of φ converted at a time when features are not in the form that the engine reads.
_CONVERTED = 1 << 21
#: Predictions kept at a time when only their errors are requested.
_COMPARED = 1 << 24


@dataclass(slots=True)
class Log:
    """T steps: φ and φ' of each, the largest |component| of these, and the parameters, (T, K)."""

    phi: Features
    phi_next: Features
    top: float
    parameters: Arrays

    def __len__(self) -> int:
        return len(self.phi)

    def blocks(self, engine: Engine, most: int) -> Iterator[tuple[int, int, Log]]:
        """The steps in blocks of at most so many, and features in the form that the engine reads: begin, end, log."""
        T = len(self.phi)
        fits = isinstance(self.phi, Rows) == isinstance(self.phi_next, Rows) == engine.takes_rows
        if fits and most >= T:
            if T:
                yield 0, T, self
            return
        size = most if fits else min(most, _CONVERTED // engine.n)
        grain = engine.grain[0] or 1
        size = max(1, size // grain) * grain  # as the engine would cut them itself
        for begin in range(0, T, size):
            end = min(begin + size, T)
            phi, phi_next = (fit(block(some, begin, end), engine) for some in (self.phi, self.phi_next))
            yield begin, end, Log(phi, phi_next, self.top, tuple(p[begin:end] for p in self.parameters))


def fit(features: Features, engine: Engine) -> Features:
    """Features in the form that the engine reads."""
    if isinstance(features, Rows):
        return features if engine.takes_rows else features.dense(engine.n, engine.dtype)
    return Rows.of(features) if engine.takes_rows else features


class Collection:
    """What a run of T steps leaves besides the weights: predictions or their squared errors, and value errors."""

    def __init__(
        self, engine: Engine, T: int, predictions: Any, returns: Any, probe: Probe | None, every: int, direct: bool
    ) -> None:
        self.T, self.K, self._dtype, self._returns = T, engine.K, engine.dtype, returns
        kept = T if predictions and returns is None else 0
        #: (T, K), on the device if requested; no rows if none are requested.
        self.predictions = engine.room(kept) if direct else np.empty((kept, self.K), engine.dtype)
        self.squares: NDArray[np.float64] = np.zeros(self.K)
        self._probe, self._every = probe, every
        self.errors = np.empty((0 if probe is None else -(-T // every), self.K))

    @property
    def most(self) -> int:
        """How many steps to run at a time, so that little memory is needed."""
        return self.T if self._returns is None else max(1, _COMPARED // self.K)

    def room(self, begin: int, end: int) -> Any:
        """Where the predictions of these steps go."""
        if self._returns is not None:
            return np.empty((end - begin, self.K), self._dtype)
        return self.predictions[begin:end] if len(self.predictions) else self.predictions

    def watch(self, begin: int, frozen: NDArray[np.bool_], freeze: bool) -> Watch:
        """What to watch from step ``begin`` on."""
        if self._probe is None:
            return Watch(frozen, freeze)
        every = self._every
        return Watch(frozen, freeze, self._probe, self.errors[-(-begin // every) :], every, -begin % every)

    def add(self, begin: int, end: int, made: Any, sum_squares: Any) -> None:
        """Compare the predictions of these steps with the actual returns."""
        if self._returns is not None:
            self.squares += sum_squares(made, self._returns[begin:end])


def check_outputs(predictions: Any, on_divergence: Any, *, device: bool) -> None:
    """Check the keywords of ``run`` that select its outputs."""
    if not (predictions is None or isinstance(predictions, bool) or (predictions == "device" and device)):
        wanted = "be True, False or None, or 'device' with the cuda engine"
        raise inputs.refusal("predictions", "run", wanted, repr(predictions))
    if on_divergence not in ("raise", "freeze"):
        raise inputs.refusal("on_divergence", "run", "be 'raise' or 'freeze'", repr(on_divergence))
