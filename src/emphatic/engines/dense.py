"""dense: step by step in numba. For one learner one pass over memory a step: the update, and the next step's products.

X is (m, K, n) in the learner's dtype; the rule's scalars are always float64. Cost a step and learner: O(m n) time; m n
numbers of memory. In each step all learners first find their coefficients and only then move, so that if one of them
diverges all stand before that same step. Learners of few features go side by side: see ``wide``.

A step that is probed costs n²/2 more, whatever the number of states. A learner that is frozen costs nothing but what it
leaves to be written down.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from emphatic.engines import compiled, wide
from emphatic.engines.base import UNFIT, Arrays, Engine, Features
from emphatic.engines.dense_text import source
from emphatic.engines.text import HUGE, Unrolled
from emphatic.engines.watching import Watch

if TYPE_CHECKING:
    from emphatic.rules import Rule

__all__ = ["Dense", "source"]

#: From here on learners go side by side, if their features are few.
_SEVERAL = 8
#: Up to here the kernel probes: for more features NumPy's matrix product, which reads R once for all learners.
_PROBED = 256
#: Steps after which those that have been frozen are left out.
_STEPS = 4096
#: From here on features are looked over ahead of the steps.
_WIDE = 256


@functools.cache
def _kernel(rule: Rule, dtype: str, name: str) -> Any:
    real, f8 = getattr(types, dtype), types.float64
    module = compiled.module(f"dense_{rule.name}_{dtype}", source(rule, dtype))
    state = (types.Array(real, 3, "C"), types.Array(f8, 2, "C"))
    if name == "learn":
        phi = types.Array(real, 1, "C", readonly=True)
        return compiled.kernel(module, name, *state, phi, phi, *[f8] * len(rule.parameters))
    Phi = types.Array(real, 2, "C", readonly=True)
    bits = types.Array(getattr(types, f"int{real.bitwidth}"), 2, "C", readonly=True)
    parameters = [types.Array(f8, 2, "A", readonly=True)] * len(rule.parameters)
    out = [types.Array(real, 2, "C"), types.Array(f8, 1, "C")]
    if name in ("run", "run_wide"):
        return compiled.kernel(module, name, *state, Phi, Phi, bits, bits, types.boolean, *parameters, *out)
    i8, table = types.int64, types.Array(f8, 2, "C")
    who = (types.Array(i8, 1, "C"), types.Array(types.boolean, 1, "C"), types.boolean)
    return compiled.kernel(
        module, name, *state, out[1], *who, Phi, Phi, f8, i8, i8, *parameters, out[0], table, table, i8, i8, table
    )


class Dense(Engine):
    """All of X in one array, moved whole each step."""

    name = "dense"
    takes_rows = False

    def __init__(self, rule: Rule, n: int, K: int, dtype: str) -> None:
        super().__init__(rule, n, K, dtype)
        self.X: NDArray[Any] = np.zeros((len(rule.vectors), K, n), dtype)
        self._work = np.zeros((K, self.scalars.shape[1] + len(Unrolled(rule).coefficients)))
        self._delta = np.zeros(K)

    @property
    def grain(self) -> tuple[int, int]:
        # One learner's sums for the next step are made along with this one's update, in another order than its first
        # ones; one alone, and fewer than go side by side, have kernels of their own.
        return (1, _SEVERAL) if self.K > 1 else (0, 1)

    @property
    def looks_over(self) -> bool:
        return self.K == 1

    def quick(self) -> Any:
        if self.K > 1:
            return None
        return functools.partial(_kernel(self.rule, self.dtype, "learn"), self.X, self.scalars)

    def quick_predict(self) -> Any:
        if self.K > 1:
            return None
        theta = self.X[0, 0]
        return lambda phi: float(phi @ theta) if phi.shape == theta.shape else np.nan

    def run(
        self, phi: Features, phi_next: Features, top: float, parameters: Arrays, predictions: NDArray[Any]
    ) -> tuple[int, NDArray[np.float64]]:
        assert isinstance(phi, np.ndarray)
        assert isinstance(phi_next, np.ndarray)
        if self.K == 1:
            bits = [part.view(f"i{part.itemsize}") for part in (phi, phi_next)]
            one_log = phi_next.ctypes.data == phi.ctypes.data + phi.strides[0]
            kernel = _kernel(self.rule, self.dtype, "run_wide" if self.n >= _WIDE else "run")
            status = kernel(self.X, self.scalars, phi, phi_next, *bits, one_log, *parameters, predictions, self._delta)
            return status, self._delta
        return self._run_many(phi, phi_next, top, parameters, predictions, Watch(np.zeros(self.K, bool))), self._delta

    def run_watched(
        self, phi: Features, phi_next: Features, top: float, parameters: Arrays, predictions: NDArray[Any], watch: Watch
    ) -> int:
        assert isinstance(phi, np.ndarray)
        assert isinstance(phi_next, np.ndarray)
        if (self.K == 1 and watch.probe is None) or (self.n > _PROBED and watch.probe is not None):
            return super().run_watched(phi, phi_next, top, parameters, predictions, watch)
        if self.K == 1 and len(phi):  # its features may not have been looked over
            top = float(max(np.abs(phi).max(), np.abs(phi_next).max()))
            if not top <= HUGE:
                return UNFIT
        return self._run_many(phi, phi_next, top, parameters, predictions, watch)

    def _run_many(
        self, phi: NDArray[Any], phi_next: NDArray[Any], top: float, parameters: Arrays, predictions: NDArray[Any],
        watch: Watch,
    ) -> int:  # fmt: skip
        T, given = len(phi), (phi, phi_next, top, parameters, predictions, watch)
        few = self.n <= wide.MOST_FEATURES and self.K >= _SEVERAL
        steps = wide.stepper(self.rule, (self.X, self.scalars, self._delta), *given) if few else None
        size = wide.STEPS if few else _STEPS
        moving, standing = np.flatnonzero(~watch.frozen), np.flatnonzero(watch.frozen)
        for t0 in range(0, T, size):
            t1 = min(t0 + size, T)
            if len(standing):
                self._stand_still(standing, t0, t1, phi, predictions, watch)
            before = None if watch.freeze or steps is None else (self.X.copy(), self.scalars.copy())
            unsure = moving if steps is None else steps(moving, t0, t1)
            if not len(unsure):
                continue
            if before is not None:  # all are to stand before the same step
                (self.X[:], self.scalars[:]), unsure = before, moving
            # Where something may overflow, step by step says exactly where.
            status = self._step_by_step(unsure, t0, t1, *given)
            if status != -1:
                return status
            if watch.frozen[unsure].any():
                moving, standing = np.flatnonzero(~watch.frozen), np.flatnonzero(watch.frozen)
        return -1

    def _step_by_step(
        self, learners: NDArray[np.int64], t0: int, t1: int, phi: NDArray[Any], phi_next: NDArray[Any], top: float,
        parameters: Arrays, predictions: NDArray[Any], watch: Watch,
    ) -> int:  # fmt: skip
        goal = np.empty((0, 0)) if watch.probe is None else watch.probe.R
        status: int = _kernel(self.rule, self.dtype, "run_many")(
            self.X, self.scalars, self._delta, learners, watch.frozen, watch.freeze, phi, phi_next, top, t0, t1,
            *parameters, predictions, goal, watch.errors, watch.every, watch.first, self._work,
        )  # fmt: skip
        return status

    def _stand_still(
        self, ks: NDArray[np.int64], t0: int, t1: int, phi: NDArray[Any], predictions: NDArray[Any], watch: Watch
    ) -> None:
        """What learners that do not move predict, and how far they are off, at steps t0 … t1 − 1."""
        theta = self.X[0, ks]
        if len(predictions):
            with np.errstate(all="ignore"):  # the last weights are finite, what they predict need not be
                predictions[t0:t1, ks] = phi[t0:t1] @ theta.T
        if watch.probe is not None:
            rows = slice(*(-(-(t - watch.first) // watch.every) for t in (t0, t1)))
            watch.errors[rows, ks] = watch.probe(theta)

    def vector(self, r: int) -> NDArray[Any]:
        return np.array(self.X[r])

    def view(self, r: int) -> NDArray[Any]:
        out: NDArray[Any] = self.X[r]
        return out

    def place(self, ks: NDArray[np.int64], part: Any) -> None:
        self.X[:, ks], self.scalars[ks] = part.X, part.scalars

    def set_vector(self, r: int, value: NDArray[Any]) -> None:
        self.X[r] = value

    def predict(self, phi: Features) -> NDArray[Any]:
        assert isinstance(phi, np.ndarray)
        out: NDArray[Any] = phi @ self.X[0].T
        return out

    def clear_traces(self) -> None:
        self.X[len(self.rule.weights) :] = 0.0

    @property
    def nbytes(self) -> int:
        return self.X.nbytes + self.scalars.nbytes + self._work.nbytes
