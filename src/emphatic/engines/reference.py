"""reference: any rule, one learner after another, in plain NumPy.

Slow and obvious; every other engine is compared with it. Cost per step and learner: O(m n), in Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from emphatic.engines.base import ArrayEngine, DenseSteps, Features
from emphatic.rules import Update

if TYPE_CHECKING:
    from emphatic.rules import ElementwiseRule

__all__ = ["Reference", "ReferenceElementwise"]


class Reference(ArrayEngine):
    """X ← A X + B [φ; φ'], with the rule's A and B."""

    name = "reference"

    def take(self, steps: DenseSteps) -> int:
        phi, phi_next, _, parameters, predictions, watch, breaks = steps
        X, memory = np.empty_like(self.X), np.empty((self.K, self.M))
        for t in range(len(phi)):
            if len(breaks) and breaks[t]:
                self.cut()
            P = np.stack([phi[t], phi_next[t]])
            with np.errstate(all="ignore"):
                (pp, pq), (_, qq) = (P @ P.T).tolist()
                for k in range(self.K):
                    x, x_next = (self.X[:, k] @ P.T).T.tolist()
                    step = [float(p[t, k]) for p in parameters]
                    step[5] = delta = step[5] + step[4] * x_next[0] - x[0]  # R gives way to δ
                    self.delta[k] = delta
                    A, B, memory[k] = self._decide(step, self.scalars[k, : self.M].tolist(), x, x_next, [pp, pq, qq])
                    X[:, k] = np.array(A) @ self.X[:, k] + np.array(B) @ P
                    fine = np.isfinite(delta) and np.isfinite(memory[k]).all() and np.isfinite(X[:, k]).all()
                    if not fine and not watch.frozen[k]:
                        if not watch.freeze:
                            return t * self.K + k
                        watch.frozen[k] = True
                if len(predictions):
                    predictions[t] = self.X[0] @ phi[t]
            moving = ~watch.frozen
            self.X[:, moving] = X[:, moving]
            self.scalars[moving, : self.M] = memory[moving]
            self.scalars[moving, -1] += 1.0
        return -1

    def _decide(self, *scalars: list[float]) -> Update:
        """The rule; division by 0 gives infinity or NaN, as in every engine."""
        pure = cast("Callable[..., Update]", self.rule.pure)
        try:
            return pure(*(tuple(values) for values in scalars))
        except ZeroDivisionError:
            return pure(*(tuple(np.array(values)) for values in scalars))

    @property
    def grain(self) -> tuple[int, int]:
        return 1, 1

    def predict(self, phi: Features) -> NDArray[Any]:
        with np.errstate(all="ignore"):  # BLAS may set flags for what lies beyond the ends of small arrays
            return super().predict(phi)


class ReferenceElementwise(Reference):
    """X_i ← component(s, X_i, φ_i, φ'_i) for all i at once."""

    rule: ElementwiseRule

    def take(self, steps: DenseSteps) -> int:
        phi, phi_next, _, parameters, predictions, watch, breaks = steps
        X, scalars = np.empty_like(self.X), np.empty_like(self.scalars)
        for t in range(len(phi)):
            if len(breaks) and breaks[t]:
                self.cut()
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
        z, scalars_of_step = tuple(X), tuple(np.array(step))  # (NumPy's, which may be divided by 0)
        if rule.signal is not None:
            z = array["adapt"](array["signal"](scalars_of_step, memory), z, phi)
        # A term that is the same for every component counts once for each of them.
        sums = tuple(np.sum(np.broadcast_to(term, phi.shape)) for term in array["terms"](z, phi, phi_next))
        A, s, scalars[: self.M] = array["rule"](scalars_of_step, memory, sums)
        X_next = np.array(np.broadcast_arrays(*array["component"](s, z, phi, phi_next), theta)[:-1])
        if rule.change:
            scalars[rule.memory.index(rule.change)] = float((X_next[0] - theta) @ phi_next)
        scalars[-1] += 1.0
        if not (np.isfinite(A).all() and np.isfinite(s).all()):
            scalars[:] = np.nan  # every engine refuses such a step, whether a component shows it or not
        return X_next, scalars, delta
