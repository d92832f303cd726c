"""reference, for elementwise rules: one learner after another, in plain NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from emphatic.engines.base import Arrays, Features
from emphatic.engines.reference import Reference
from emphatic.engines.watch import Watch

if TYPE_CHECKING:
    from emphatic.rules import ElementwiseRule

__all__ = ["ReferenceElementwise"]


class ReferenceElementwise(Reference):
    """X_i ← component(s, X_i, φ_i, φ'_i) for all i at once."""

    rule: ElementwiseRule

    def take(
        self, phi: Features, phi_next: Features, top: float, parameters: Arrays, predictions: NDArray[Any], watch: Watch
    ) -> int:
        assert isinstance(phi, np.ndarray)
        assert isinstance(phi_next, np.ndarray)
        X, scalars = np.empty_like(self.X), np.empty_like(self.scalars)
        for t in range(len(phi)):
            if len(predictions):
                with np.errstate(all="ignore"):
                    predictions[t] = self.X[0] @ phi[t]
            for k in range(self.K):
                step = [float(p[t, k]) for p in parameters]
                with np.errstate(all="ignore"):
                    X[:, k], scalars[k], self.delta[k] = self._moved(k, step, phi[t], phi_next[t])
                fine = np.isfinite(self.delta[k]) and np.isfinite(scalars[k]).all() and np.isfinite(X[:, k]).all()
                if not fine and not watch.frozen[k]:
                    if not watch.freeze:
                        return t * self.K + k
                    watch.frozen[k] = True
            moving = ~watch.frozen
            self.X[:, moving], self.scalars[moving] = X[:, moving], scalars[moving]
        return -1

    def _moved(
        self, k: int, step: list[float], phi: NDArray[Any], phi_next: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[np.float64], float]:
        """X and the scalars of learner k after a step, and δ."""
        rule, array, X, scalars = self.rule, self.rule.vectorized, self.X[:, k], self.scalars[k].copy()
        memory = tuple(scalars[: self.M])
        theta = X[0]
        step[5] = delta = step[5] + step[4] * float(theta @ phi_next) - float(theta @ phi)
        z = tuple(X)
        if rule.signal is not None:
            z = array["adapt"](array["signal"](tuple(step), memory), z, phi)
        sums = tuple(float(np.sum(term)) for term in array["terms"](z, phi, phi_next))
        _, s, scalars[: self.M] = array["rule"](tuple(step), memory, sums)
        after = np.array(np.broadcast_arrays(*array["component"](s, z, phi, phi_next), theta)[:-1])
        if rule.change:
            scalars[rule.memory.index(rule.change)] = float((after[0] - theta) @ phi_next)
        scalars[-1] += 1.0
        return after, scalars, delta
