"""What is watched in a run: which learners are frozen, and which errors are recorded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.engines.probe import Probe

__all__ = ["Watch"]

_NO_ERRORS = np.empty((0, 0))


@dataclass(eq=False, slots=True)
class Watch:
    """What is watched in a run of K learners."""

    #: Which learners are frozen, (K,); with ``freeze``, those that would diverge are added.
    frozen: NDArray[np.bool_]
    freeze: bool = False
    #: Before steps ``first``, ``first`` + ``every``, … the learners' errors go into the next row of ``errors``, (…, K).
    probe: Probe | None = None
    errors: NDArray[np.float64] = field(default_factory=lambda: _NO_ERRORS)
    every: int = 1
    first: int = 0

    def steps(self, T: int) -> range:
        """The steps of T before which errors are recorded."""
        return range(T, T) if self.probe is None else range(self.first, T, self.every)

    def write(self, begin: int, end: int, theta: NDArray[Any], learners: Any = slice(None)) -> None:
        """Record the errors of these learners before steps begin … end − 1, with unchanged weights."""
        if self.probe is not None:
            rows = slice(*(max(0, -(-(t - self.first) // self.every)) for t in (begin, end)))
            self.errors[rows, learners] = self.probe(theta, learners)
