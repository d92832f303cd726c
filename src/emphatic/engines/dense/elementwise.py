"""dense, for elementwise rules: three passes over memory per step, of which one finds δ, one adapts, and one moves.

X is (m, K, n) in the learner's dtype, and so is what it was before the last step: 2 m n numbers of memory per learner.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from emphatic.engines import compiled
from emphatic.engines.base import Arrays, Features
from emphatic.engines.elementwise_functions import ElementwiseFunctions
from emphatic.engines.reference_elementwise import ReferenceElementwise
from emphatic.engines.watch import Watch

if TYPE_CHECKING:
    from emphatic.rules import ElementwiseRule

__all__ = ["DenseElementwise"]


@functools.cache
def kernel(rule: ElementwiseRule, dtype: str, name: str, interpreted: bool) -> Any:
    """One of the functions of ``elementwise_kernels``, for this rule."""
    real, f8, flag = getattr(types, dtype), types.float64, types.boolean
    functions = ElementwiseFunctions(rule, dtype)
    functions.add_learn("X, Y, scalars, phi, phi_next")
    text = compiled.compose(functions, "dense.elementwise_kernels")
    module = compiled.module(f"dense_{rule.name}_{dtype}", text)
    X, table, flat = types.Array(real, 3, "C"), types.Array(f8, 2, "C"), types.Array(f8, 1, "C")
    phi, Phi = (types.Array(real, ndim, "C", readonly=True) for ndim in (1, 2))
    count = len(rule.parameters)
    parameters = compiled.several(types.Array(f8, 2, "A", readonly=True), count)
    frozen, predictions = types.Array(flag, 1, "C"), types.Array(real, 2, "C")
    signature = {
        "learn": (X, X, table, phi, phi, *[f8] * count),
        "run_many": (X, X, table, table, flat, frozen, flag, Phi, Phi, parameters, predictions),
    }
    return compiled.kernel(module, name, *signature[name])


class DenseElementwise(ReferenceElementwise):
    """X moved component by component, all of it each step."""

    name = "dense"

    def __init__(self, rule: ElementwiseRule, n: int, K: int, dtype: str) -> None:
        super().__init__(rule, n, K, dtype)
        self._before: NDArray[Any] = np.zeros_like(self.X)
        self._scalars_before = np.zeros_like(self.scalars)

    def make_kernel(self, name: str) -> Any:
        return kernel(self.rule, self.dtype, name, compiled.interpreted())

    def stepper(self, single: bool) -> Any:
        if single:
            return functools.partial(self._compiled("learn"), self.X, self._before, self.scalars)
        return None

    def predictor(self) -> Any:
        if self.K > 1:
            return None
        theta = self.X[0, 0]
        return lambda phi: float(phi @ theta) if phi.shape == theta.shape else np.nan

    def take(
        self, phi: Features, phi_next: Features, top: float, parameters: Arrays, predictions: NDArray[Any], watch: Watch
    ) -> int:
        status: int = self._compiled("run_many")(
            self.X, self._before, self.scalars, self._scalars_before, self.delta, watch.frozen, watch.freeze,
            phi, phi_next, parameters, predictions,
        )  # fmt: skip
        return status

    @property
    def nbytes(self) -> int:
        return super().nbytes + self._before.nbytes + self._scalars_before.nbytes
