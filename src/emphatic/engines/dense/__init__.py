"""dense: step by step in numba. For one learner one pass over memory per step: the update and the next products.

X is (m, K, n) in the learner's dtype; the rule's scalars are always float64. Cost per step and learner: O(m n) time; m
n numbers of memory. In each step all learners first find their coefficients and only then move, so that if one of them
diverges all are left before that same step. Learners of few features run side by side: see ``lanes``.

A probed step costs n²/2 more, whatever the number of states. A frozen learner costs nothing except its recorded
outputs.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from emphatic.engines import compiled
from emphatic.engines.base import UNFIT, ArrayEngine, Arrays, DenseSteps, Flags, Snapshot
from emphatic.engines.dense import lanes
from emphatic.engines.reference import ReferenceElementwise
from emphatic.engines.unrolled import HUGE, ElementwiseFunctions, Functions, unrolled

if TYPE_CHECKING:
    from emphatic.rules import ElementwiseRule, Rule

__all__ = ["Dense", "DenseElementwise"]

#: From here on learners go side by side, if their features are few.
_SEVERAL = 8
#: Up to here the kernel probes: for more features NumPy's matrix product, which reads R once for all learners.
_PROBED = 256
#: Steps after which those that have been frozen are left out.
_STEPS = 4096
#: From here on features are looked over ahead of the steps.
_WIDE = 256


@functools.cache
def kernel(rule: Rule, dtype: str, name: str, interpreted: bool) -> Any:
    """One of the functions of ``dense_kernels``, for this rule."""
    real, f8, i8, flag = getattr(types, dtype), types.float64, types.int64, types.boolean
    functions = Functions(rule, dtype)
    functions.add_learn("X, scalars, phi, phi_next")
    text = compiled.compose(functions, "dense.dense_kernels")
    module = compiled.module(f"dense_{rule.name}_{dtype}", text)
    X, cube = types.Array(real, 3, "C"), types.Array(f8, 3, "C")
    table, flat = types.Array(f8, 2, "C"), types.Array(f8, 1, "C")
    phi, Phi = (types.Array(real, ndim, "C", readonly=True) for ndim in (1, 2))
    bits = types.Array(getattr(types, f"int{real.bitwidth}"), 2, "C", readonly=True)
    predictions, flags = types.Array(real, 2, "C"), types.Array(flag, 1, "C", readonly=True)
    count = len(rule.parameters)
    parameters = compiled.several(types.Array(f8, 2, "A", readonly=True), count)
    horde = (X, table, flat, types.Array(i8, 1, "C"), types.Array(flag, 1, "C"))
    signature = {
        "learn": (X, table, phi, phi, *[f8] * count),
        "run": (X, table, Phi, Phi, flags, parameters, predictions, flat),
        "run_wide": (X, table, Phi, Phi, bits, bits, flag, flags, parameters, predictions, flat),
        "learn_many": (*horde, phi, phi, parameters, predictions, table),
        "run_many": (*horde, flag, Phi, Phi, flags, f8, i8, i8, parameters, predictions, cube, table, i8, i8, table),
    }
    return compiled.kernel(module, name, *signature[name])


class Dense(ArrayEngine):
    """All of X in one array, moved whole each step."""

    name = "dense"
    rule: Rule

    def __init__(self, rule: Rule, n: int, K: int, dtype: str) -> None:
        super().__init__(rule, n, K, dtype)
        self._work = np.zeros((K, self.scalars.shape[1] + len(unrolled(rule).coefficients)))

    def make_kernel(self, name: str) -> Any:
        return kernel(self.rule, self.dtype, name, compiled.interpreted())

    @property
    def grain(self) -> tuple[int, int]:
        # One learner's sums for the next step are made along with this one's update, in another order than its first
        # ones; one alone, and fewer than go side by side, have kernels of their own.
        return (1, _SEVERAL) if self.K > 1 else (0, 1)

    @property
    def looks_over(self) -> bool:
        return self.K == 1

    def snapshot(self) -> Snapshot:
        return self.X.copy(), self.scalars.copy()

    def restore(self, snapshot: Snapshot) -> None:
        self.X[:], self.scalars[:] = snapshot

    def stepper(self, single: bool) -> Any:
        if single:
            return functools.partial(self._compiled("learn"), self.X, self.scalars)
        learn, learners, none = self._compiled("learn_many"), np.arange(self.K), np.empty((0, self.K), self.dtype)

        def step(phi: NDArray[Any], phi_next: NDArray[Any], parameters: Arrays, frozen: NDArray[np.bool_]) -> Any:
            fine = learn(
                self.X, self.scalars, self.delta, learners, frozen, phi, phi_next, parameters, none, self._work
            )
            return self.delta.copy() if fine else None

        return step

    def direct_learn(self) -> tuple[Any, ...] | None:
        if compiled.interpreted():
            return None
        return compiled.direct(self._compiled("learn")), self.X, self.scalars

    def predictor(self) -> Any:
        return _predictor(self)

    def run(self, steps: DenseSteps) -> int:
        T = len(steps.phi)
        if steps.watch.probe is None or self.n > _PROBED or len(steps.predictions) > T:
            return super().run(steps)
        if self.K == 1 and T:  # its features may not have been looked over
            steps = steps._replace(top=float(max(np.abs(steps.phi).max(), np.abs(steps.phi_next).max())))
            if not steps.top <= HUGE:
                return UNFIT
        return self._run_many(steps)

    def take(self, steps: DenseSteps) -> int:
        if self.K > 1:
            return self._run_many(steps)
        watch = steps.watch
        status = 0 if watch.frozen[0] else self._run_one(steps)
        if status >= 0 and (watch.freeze or watch.frozen[0]):
            watch.frozen[0] = True
            self._stand_still(np.zeros(1, np.int64), status, len(steps.phi), steps)
            status = -1
        return status

    def _run_one(self, steps: DenseSteps) -> int:
        """All steps of one learner; the status."""
        status: int
        phi, phi_next, _, parameters, predictions, _, breaks = steps
        state, outputs = (self.X, self.scalars), (predictions, self.delta)
        if self.n < _WIDE:
            status = self._compiled("run")(*state, phi, phi_next, breaks, parameters, *outputs)
            return status
        bits = [rows.view(f"i{rows.itemsize}") for rows in (phi, phi_next)]
        one_log = phi_next.ctypes.data == phi.ctypes.data + phi.strides[0]
        status = self._compiled("run_wide")(*state, phi, phi_next, *bits, one_log, breaks, parameters, *outputs)
        return status

    def _run_many(self, steps: DenseSteps) -> int:
        T, watch = len(steps.phi), steps.watch
        few = self.n <= lanes.MOST_FEATURES and self.K >= _SEVERAL and (watch.probe is None or watch.probe.shared)
        run_lanes = lanes.stepper(self.rule, (self.X, self.scalars, self.delta), steps) if few else None
        size = lanes.STEPS if few else _STEPS
        moving, frozen = np.flatnonzero(~watch.frozen), np.flatnonzero(watch.frozen)
        for t0 in range(0, T, size):
            t1 = min(t0 + size, T)
            if len(frozen):
                self._stand_still(frozen, t0, t1, steps)
                watch.write(t0, t1, self.X[0, frozen], frozen)
            backup = None if watch.freeze or run_lanes is None else (self.X.copy(), self.scalars.copy())
            unsure = moving if run_lanes is None else run_lanes(moving, t0, t1)
            if not len(unsure):
                continue
            # Where something may overflow, running step by step finds exactly where.
            status = self._step_by_step(unsure, t0, t1, steps)
            if status != -1 and backup is not None:
                # All must be before the same step, as a run up to there leaves them.
                self.X[:], self.scalars[:] = backup
                assert run_lanes is not None
                end = status // self.K
                self._step_by_step(run_lanes(moving, t0, end), t0, end, steps)
                self._start_sequence(moving, end, end + 1, steps.first)
            if status != -1:
                return status
            if watch.frozen[unsure].any():
                moving, frozen = np.flatnonzero(~watch.frozen), np.flatnonzero(watch.frozen)
        return -1

    def _step_by_step(self, learners: NDArray[np.int64], t0: int, t1: int, steps: DenseSteps) -> int:
        """Steps t0 … t1 − 1 of these learners; the status."""
        phi, phi_next, top, parameters, predictions, watch, breaks = steps
        horde = (self.X, self.scalars, self.delta, learners, watch.frozen, watch.freeze)
        goal = np.empty((0, 0, 0)) if watch.probe is None else watch.probe.R
        errors = (goal, watch.errors, watch.every, watch.first)
        status: int = self._compiled("run_many")(
            *horde, phi, phi_next, breaks, top, t0, t1, parameters, predictions, *errors, self._work
        )
        return status

    def _stand_still(self, ks: NDArray[np.int64], t0: int, t1: int, steps: DenseSteps) -> None:
        """What frozen learners predict at steps t0 … t1 − 1, and their last δ; their traces end with a sequence."""
        phi, phi_next, _, parameters, predictions, _, breaks = steps
        self._start_sequence(ks, t0, t1, breaks)
        theta = self.X[0, ks]
        with np.errstate(all="ignore"):  # the last weights are finite, what they predict need not be
            if len(predictions):
                predictions[t0:t1, ks] = phi[t0:t1] @ theta.T
            if t1 > t0:
                v, v_next = theta @ phi[t1 - 1], theta @ phi_next[t1 - 1]
                self.delta[ks] = parameters[5][t1 - 1, ks] + parameters[4][t1 - 1, ks] * v_next - v

    def _start_sequence(self, ks: NDArray[np.int64], t0: int, t1: int, first: Flags) -> None:
        """``cut`` of these learners, if a sequence begins at one of steps t0 … t1 − 1."""
        if first[t0:t1].any():
            self.X[len(self.rule.weights) :, ks] = 0.0
            self.scalars[ks, : self.forgotten] = 0.0

    @property
    def nbytes(self) -> int:
        return super().nbytes + self._work.nbytes


def _predictor(engine: ArrayEngine) -> Callable[[Any], float | NDArray[Any]] | None:
    """θ·φ of a single learner."""
    if engine.K > 1:
        return None
    theta, n = engine.X[0, 0], engine.n

    def predict(phi: Any) -> float | NDArray[Any]:
        shape = phi.shape
        if shape == theta.shape:
            return float(phi @ theta)
        if len(shape) != 2 or shape[1] != n or not phi.flags.c_contiguous:
            return np.nan
        values: NDArray[Any] = phi.dot(theta)  # (as ``@`` it would warn of what is not finite)
        return values if math.isfinite(values.dot(values)) else np.nan

    return predict


@functools.cache
def elementwise_kernel(rule: ElementwiseRule, dtype: str, name: str, interpreted: bool) -> Any:
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
    starts_sequences = False

    def __init__(self, rule: ElementwiseRule, n: int, K: int, dtype: str) -> None:
        super().__init__(rule, n, K, dtype)
        self._before: NDArray[Any] = np.zeros_like(self.X)
        self._scalars_before = np.zeros_like(self.scalars)

    def make_kernel(self, name: str) -> Any:
        return elementwise_kernel(self.rule, self.dtype, name, compiled.interpreted())

    def stepper(self, single: bool) -> Any:
        if single:
            return functools.partial(self._compiled("learn"), self.X, self._before, self.scalars)
        return None

    def predictor(self) -> Any:
        return _predictor(self)

    def take(self, steps: DenseSteps) -> int:
        phi, phi_next, _, parameters, predictions, watch, _ = steps
        state = (self.X, self._before, self.scalars, self._scalars_before, self.delta)
        status: int = self._compiled("run_many")(
            *state, watch.frozen, watch.freeze, phi, phi_next, parameters, predictions
        )
        return status

    @property
    def nbytes(self) -> int:
        return super().nbytes + self._before.nbytes + self._scalars_before.nbytes
