"""Least squares: the weights to which TD(λ) would converge if it went through its data again and again.

    e ← ρ(γλe + Iφ)                          with ``emphatic``  F ← ρ⁻γF + I,  M = λI + (1−λ)F,  e ← ρ(γλe + Mφ)
    A ← fA + e (φ − γ'φ')ᵀ,   b ← fb + eR          A = ridge · 𝟙 and b = 0 at first, f is ``forgetting``
    θ = A⁻¹b

LSTD(λ): Bradtke & Barto (1996), Boyan (2002); with the emphasis of Sutton, Mahmood & White (2016), ELSTD(λ): Yu (2015).
There is no step size. Its place is taken by P = A⁻¹, which a step changes by one product of two vectors (Sherman and
Morrison's formula), so that a step takes n² operations and not n³:

    k = Pe / (f + (φ − γ'φ')ᵀPe),   θ ← θ + δk,   P ← (P − k (φ − γ'φ')ᵀP) / f

Rounding errors do not grow: A and b are kept, and after every so many steps, and where the denominator costs digits, P
and θ are computed from them directly. With f < 1 the ridge is then renewed, before less than 1e-12 of it is left: what
is no longer active would otherwise leave A singular.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from emphatic import rules
from emphatic.common.locks import Guard
from emphatic.common.names import refusal
from emphatic.engines.base import UNBROKEN, Features, Rows, block
from emphatic.errors import Diverged
from emphatic.learning import checkpoint, inputs
from emphatic.learning.inputs import Active, FeaturesLike, Numbers, SupportsDLPack
from emphatic.learning.tensors import Stored, TensorPart

__all__ = ["LIMIT", "LeastSquares"]

Array = NDArray[np.float64]

#: The most features, unless another limit is given: two matrices of 4,000² take 256 MB, and a step about 0.1 s.
LIMIT = 4000
#: P and θ are computed directly after so many steps, or two for each feature: it adds little to the cost of a step.
_PERIOD = 512
#: The least that forgetting leaves of the ridge.
_LEFT = 1e-12
#: Weights that are held at a time for a probe, and components of φ that are converted at a time.
_KEPT = 1 << 20
#: What may keep A and b finite: there is no alpha.
_REMEDY = "smaller rho, lambda_ or I, or smaller features and rewards"
#: Prefix of the names of arrays that a user saves with a learner.
_MORE = "more."
#: The arrays of the state by the names of their attributes.
_ARRAYS = ("forgetting", "ridge", "A", "P", "b", "theta", "e", "memory", "frozen", "taken")


class LeastSquares:
    """K learners by least squares, LSTD(λ) or with ``emphatic`` ELSTD(λ); K=None is a single one without the K axis.

    Learners that share λ, γ, ρ and I share one matrix, and differ in R only. From the first step in which this does not
    hold, or if ridge or forgetting are (K,), each learner has its own matrix. A matrix takes 16 n² bytes and about 8 n²
    operations per step (``nbytes``, ``matrices``).

    >>> import numpy as np
    >>> learner = LeastSquares(1, ridge=1e-9)
    >>> predictions = learner.run(np.ones((101, 1)), np.ones(100), 0.5, lambda_=0.9)
    >>> round(learner.predict([1.0]), 6)
    2.0
    >>> learner
    LeastSquares(n=1, emphatic=False, steps=100)

    Args:
        n: The number of features.
        K: The number of learners; None for one without the K axis.
        emphatic: Whether updates are weighted by emphasis, as in ELSTD(λ).
        forgetting: The factor by which the weight of past data falls with each step, a number or (K,); 1 forgets
            nothing.
        ridge: The initial diagonal of A, a number or (K,): it has the effect of this many rows with θ = 0, if features
            are about 1.
        limit: The largest number of features that is accepted.
    """

    def __init__(
        self,
        n: int,
        K: int | None = None,
        *,
        emphatic: bool = False,
        forgetting: float | ArrayLike = 1.0,
        ridge: float | ArrayLike = 1.0,
        limit: int = LIMIT,
    ) -> None:
        n, limit = inputs.whole("n", n, "LeastSquares"), inputs.whole("limit", limit, "LeastSquares")
        self._K = None if K is None else inputs.whole("K", K, "LeastSquares")
        if not isinstance(emphatic, bool):
            raise refusal("emphatic", "LeastSquares", "be True or False", repr(emphatic))
        if n > limit:
            needs = f"{16 * n * n / 1e9:,.1f} GB for each matrix"
            wanted = f"be at most {limit:,}: it takes n² memory and time, {needs}. Use a Learner, or give a limit"
            raise refusal("n", "LeastSquares", wanted, f"{n:,}")
        self.n, self.emphatic, self.limit = n, emphatic, limit
        options = {
            "forgetting": _option("forgetting", forgetting, self._K, 1.0),
            "ridge": _option("ridge", ridge, self._K, inputs.LARGEST),
        }
        count, G = self._K or 1, max(map(len, options.values()))
        self._forgetting, self._ridge = (np.array(np.broadcast_to(p, G)) for p in options.values())
        self._A, self._P = np.zeros((G, n, n)), np.zeros((G, n, n))
        for g in range(G):
            np.fill_diagonal(self._A[g], self._ridge[g])
            with np.errstate(over="ignore"):  # beyond 1e308 the first step solves directly
                np.fill_diagonal(self._P[g], 1.0 / self._ridge[g])
        self._b, self._theta = np.zeros((count, n)), np.zeros((count, n))
        self._e, self._memory = np.zeros((G, n)), np.zeros((G, 2))
        self._frozen, self._delta = np.zeros(G, bool), np.zeros(count)
        self._taken = np.zeros(count, np.int64)
        self._steps = 0
        self._period = max(_PERIOD, 2 * n)
        if (least := float(self._forgetting.min())) < 1.0:
            self._period = max(1, min(self._period, int(math.log(_LEFT) / math.log(least))))
        self._guard = Guard("learner")

    # ------------------------------------------------------------------ learning

    def learn(
        self,
        I: Numbers,
        lambda_: Numbers,
        phi: FeaturesLike,
        rho: Numbers,
        R: Numbers,
        phi_next: FeaturesLike,
        gamma_next: Numbers,
    ) -> Any:
        """One step; returns the TD error δ = R + γ'θ·φ' − θ·φ, from before the update.

        Arguments are those of ``Learner.learn``, without alpha, and in its order.

        Args:
            I: The interest in φ.
            lambda_: The trace parameter λ.
            phi: The features φ of the state, (n,) or ``Active``.
            rho: The importance sampling ratio ρ of the action taken.
            R: The cumulant R that followed.
            phi_next: The features φ' of the next state.
            gamma_next: The discount γ' at the next state.
        """
        with self._guard:
            (row, _), (row_next, _) = self._read("phi", phi, "learn"), self._read("phi_next", phi_next, "learn")
            parameters = self._parameters("learn", 1, (gamma_next, lambda_, rho, I), R)
            try:
                self._run(row, row_next, *parameters, "raise")
            except Diverged as error:
                raise Diverged(self._steps, error.learner, "learn", error.remedy) from None
            return float(self._delta[0]) if self._K is None else self._delta.copy()

    def run(
        self,
        Phi: FeaturesLike,
        R: Numbers,
        gamma_next: Numbers,
        *,
        lambda_: Numbers = 0.0,
        rho: Numbers = 1.0,
        I: Numbers = 1.0,
        Phi_next: FeaturesLike | None = None,
        first: ArrayLike | SupportsDLPack | None = None,
        predictions: bool = True,
        probe: tuple[ArrayLike, ArrayLike, ArrayLike] | None = None,
        probe_every: int = 1,
        on_divergence: Literal["raise", "freeze"] = "raise",
    ) -> Any:
        """Learn from a whole log; returns the predictions θ_t·φ_t made before each update, (T,) or (T, K).

        Arguments are those of ``Learner.run``, without alpha; so is what is returned with a ``probe``.

        Args:
            Phi: The features, (T+1, n), row t being φ_t; with ``Phi_next``, (T, n).
            R: The cumulants.
            gamma_next: The discounts γ'.
            lambda_: The trace parameters λ.
            rho: The importance sampling ratios ρ.
            I: The interests.
            Phi_next: φ' of each step, (T, n), where that is not φ of the next step.
            first: A mask (T,), True where a step begins a sequence: as if ``cut`` were called before that step.
            predictions: False returns None in their place.
            probe: (Phi_s, v, d): also returns the root mean square value error before each update.
            probe_every: The error is computed before each ``probe_every``-th update.
            on_divergence: "raise" raises ``Diverged``; with "freeze" a learner that would diverge keeps its last
                finite weights, and the others continue.
        """
        if not isinstance(predictions, bool):
            raise refusal("predictions", "run", "be True or False", repr(predictions))
        if on_divergence not in ("raise", "freeze"):
            raise refusal("on_divergence", "run", "be 'raise' or 'freeze'", repr(on_divergence))
        with self._guard:
            rows, rows_next, _ = inputs.log_features(lambda name, phi: self._read(name, phi, "run"), Phi, Phi_next)
            T, count = len(rows), self._K or 1
            goal = None if probe is None else inputs.probe(probe, self.n, self._K)
            every = inputs.whole("probe_every", probe_every, "run")
            breaks = UNBROKEN if first is None else inputs.mask("first", first, "run", T)
            parameters, rewards = self._parameters("run", T, (gamma_next, lambda_, rho, I), R)
            if first is None and Phi_next is not None:
                t = inputs.first_discontinuity(rows, rows_next, parameters[0], self.n)
                if t >= 0:
                    inputs.warn_of_sequences(t, rules.get("etd" if self.emphatic else "td"), stacklevel=3)
            values = np.empty((T if predictions else 0, count))
            errors = np.empty((0 if goal is None else -(-T // every), count))
            size = max(1, _KEPT // (self.n * (1 if goal is None else count)))
            begins = sorted({*range(0, T, size), *np.flatnonzero(breaks).tolist()})
            for begin, end in pairwise([*begins, T]):
                if breaks[begin : begin + 1].any():
                    self._start_sequence()
                skip = -begin % every
                due = range(begin + skip, end, every)
                weights = np.empty((0 if goal is None else len(due), count, self.n))
                steps = block(rows, begin, end), block(rows_next, begin, end), parameters[:, begin:end]
                outputs: tuple[Any, ...] = (values[begin:end], weights, every, skip, begin)
                self._run(*steps, rewards[begin:end], on_divergence, *outputs)
                if goal is not None:
                    for step, theta in zip(due, weights, strict=True):
                        errors[step // every] = goal(theta)
            answer = self._without_K(values) if predictions else None
            return answer if goal is None else (answer, self._without_K(errors))

    def predict(self, phi: FeaturesLike) -> Any:
        """θ·φ for one φ or several: a number or (T,); with K learners (K,) or (T, K).

        Args:
            phi: (n,) or (T, n), as an array, ``Active`` or CSR.
        """
        with self._guard.shared:
            rows, _ = self._read("phi", phi, "predict")
            dense = rows.dense(self.n, "float64") if isinstance(rows, Rows) else rows
            answer = np.einsum("ti,ki->tk", dense, self._theta)
            ndim = phi.indices.ndim if isinstance(phi, Active) else np.ndim(phi)  # type: ignore[arg-type]
            if ndim != 1:
                return self._without_K(answer)
            return float(answer[0, 0]) if self._K is None else answer[0]

    def cut(self) -> None:
        """Start a new sequence: forget the traces, and keep what has been learned."""
        with self._guard:
            self._start_sequence()

    # ------------------------------------------------------------------ what it is

    @property
    def K(self) -> int | None:
        """The number of learners; None for one without the K axis."""
        return self._K

    @property
    def theta(self) -> Array:
        """θ = A⁻¹b, (n,) or (K, n): a copy."""
        return self._first(self._theta)

    @property
    def b(self) -> Array:
        """b, (n,) or (K, n): a copy."""
        return self._first(self._b)

    @property
    def A(self) -> Array:
        """A, with the ridge: (n, n), or (K, n, n): a copy."""
        return self._of_each(self._A)

    @property
    def e(self) -> Array:
        """The trace, (n,) or (K, n)."""
        return self._of_each(self._e)

    @property
    def steps(self) -> int:
        """The steps so far."""
        return self._steps

    @property
    def frozen(self) -> Any:
        """Which learners are frozen because they would have diverged, (K,)."""
        frozen = np.broadcast_to(self._frozen, self._K or 1)
        return bool(frozen[0]) if self._K is None else frozen.copy()

    @property
    def matrices(self) -> int:
        """1 where one matrix serves all learners, else K."""
        return len(self._A)

    @property
    def nbytes(self) -> int:
        """The size of the state in bytes."""
        return sum(array.nbytes for array in self._arrays().values())

    def __repr__(self) -> str:
        K = "" if self._K is None else f", K={self._K}"
        return f"LeastSquares(n={self.n}{K}, emphatic={self.emphatic}, steps={self._steps})"

    # ------------------------------------------------------------------ copying and saving

    def copy(self) -> Self:
        """Another learner in the same state."""
        with self._guard.shared:
            learner = object.__new__(type(self))
            vars(learner).update(vars(self) | {f"_{name}": array.copy() for name, array in self._state().items()})
            learner._delta, learner._guard = self._delta.copy(), Guard("learner")
            return learner

    __copy__ = copy

    def __deepcopy__(self, memo: object) -> Self:
        return self.copy()

    def save(self, path: str | os.PathLike[str], **more: object) -> None:
        """Write one safetensors file, which ``emphatic.load`` and other tools can open, completely or not at all.

        Args:
            path: The file to write; one that exists is replaced.
            **more: What to save with the learner, for ``load_with``: arrays as arrays, other values as JSON in the
                header.
        """
        with self._guard.shared:
            header = {"n": self.n, "K": self._K, "emphatic": self.emphatic, "limit": self.limit, "steps": self._steps}
            arrays = self._arrays()
            entries, tensors = checkpoint.pack(more, _MORE, (*arrays, "format", "least_squares"))
            state = {name: TensorPart.of(array) for name, array in arrays.items()}
            checkpoint.write(path, {"least_squares": header, "more": entries}, state | tensors)

    @classmethod
    def load_with(cls, path: str | os.PathLike[str]) -> tuple[Self, dict[str, Any]]:
        """The learner that ``save`` wrote, and the ``more`` that was saved with it.

        Args:
            path: The file.
        """
        with checkpoint.open_sound(path) as (header, stored):
            if "least_squares" not in header:
                raise ValueError("it does not hold a LeastSquares; emphatic.load opens other learners")
            return cls._restored(header["least_squares"], stored), checkpoint.unpack(header["more"], stored, _MORE)

    @classmethod
    def _restored(cls, header: Mapping[str, Any], stored: Mapping[str, Stored]) -> Self:
        """From an open checkpoint; ValueError, KeyError or TypeError if it is invalid."""
        G = stored["forgetting"].shape
        if len(G) != 1 or G[0] not in (1, header["K"] or 1) or any(stored[name].shape[:1] != G for name in ("A", "P")):
            raise ValueError("its matrices are neither one nor one for each learner")
        options = {
            name: option if len(option := stored[name].array()) > 1 else option[0] for name in ("forgetting", "ridge")
        }
        learner = cls(header["n"], header["K"], emphatic=header["emphatic"], limit=header["limit"], **options)
        if len(learner._A) < G[0]:
            learner._split()
        for name, array in learner._arrays().items():
            tensor = stored[name]
            if (tensor.dtype, tensor.shape) != (array.dtype.name, array.shape):
                raise ValueError(f"its {name!r} is {tensor.dtype} of shape {tensor.shape}")
            tensor.into(array)
            if name != "P" and not np.isfinite(array).all():
                raise ValueError(f"its {name!r} is not finite")
        steps = header["steps"]
        if not (type(steps) is int and 0 <= learner._taken.min() <= learner._taken.max() <= steps):
            raise ValueError(f"its counts of steps are not from 0 to {steps!r}")
        learner._steps = steps
        return learner

    # ------------------------------------------------------------------ inside

    def _read(self, name: str, value: FeaturesLike, function: str) -> tuple[Features, float]:
        return inputs.features(name, inputs.import_array(name, value, function), function, self.n, "float64")

    def _parameters(self, function: str, T: int, values: tuple[Numbers, ...], R: Numbers) -> tuple[Array, Array]:
        """γ', λ, ρ and I (4, T, G), and R (T, K), checked; learners that differ in the former get a matrix each."""
        rule, names = rules.get("etd"), ("gamma_next", "lambda_", "rho", "I")
        series = [inputs.series(function, T, self._K, rule, name, p) for name, p in zip(names, values, strict=True)]
        rewards = np.ascontiguousarray(inputs.series(function, T, self._K, rule, "R", R))
        if len(self._A) < (self._K or 1) and any(p.strides[1] != 0 and (p != p[:, :1]).any() for p in series):
            self._split()
        return np.stack([p[:, : len(self._e)] for p in series]), rewards

    def _start_sequence(self) -> None:
        self._e[:], self._memory[:] = 0.0, 0.0

    def _run(
        self,
        rows: Features,
        rows_next: Features,
        parameters: Array,
        R: Array,
        on_divergence: str,
        values: Array | None = None,
        weights: Array | None = None,
        every: int = 1,
        skip: int = 0,
        offset: int = 0,
    ) -> None:
        """Some steps, with predictions and weights into the arrays given; ``offset`` is the first step's number."""
        from emphatic.learning import least_squares_kernels as kernels

        Phi, Phi_next = (p.dense(self.n, "float64") if isinstance(p, Rows) else p for p in (rows, rows_next))
        values = np.empty((0, len(self._theta))) if values is None else values
        weights = np.empty((0, *self._theta.shape)) if weights is None else weights
        # Of the step at t, the matrices up to ``done_up_to`` are done: a kernel returns in the midst of a step where a
        # matrix must be done_up_to for directly.
        parameters, period, t, done_up_to = np.ascontiguousarray(parameters), self._period, 0, -1
        while t < len(Phi):
            due = min(len(Phi), t + period - self._steps % period)
            data = Phi[:due], Phi_next[:due], parameters[:, :due].copy(), R[:due], t
            outputs: tuple[Any, ...] = (self._frozen, values, weights, every, skip, self._delta)
            matrices = self._forgetting, self._A, self._P, self._b, self._theta, self._e, self._memory
            done, how, g = kernels.steps(*data, done_up_to, self.emphatic, *matrices, *outputs)
            self._pass(done - t)
            t, done_up_to = done, -1
            if how == kernels.SINGULAR:
                how, done_up_to = kernels.DONE if self._solve(g) else kernels.DIVERGED, g
            if how == kernels.DIVERGED:
                if on_divergence == "raise":
                    raise Diverged(offset + t, g, remedy=_REMEDY)
                self._frozen[g] = True
            if how == kernels.DONE and t == due and self._steps % period == 0:
                for g in np.flatnonzero(~self._frozen).tolist():
                    forgotten = self._ridge[g] * (1.0 - self._forgetting[g] ** period)
                    self._A[g].flat[:: self.n + 1] += forgotten
                    self._solve(g)

    def _pass(self, steps: int) -> None:
        self._steps += steps
        self._taken[~np.broadcast_to(self._frozen, len(self._taken))] += steps

    def _solve(self, g: int) -> bool:
        """P = A⁻¹ and θ = Pb of a matrix; whether A and b are finite.

        Where A is singular θ stays as it is, and P is NaN: the next step solves directly again.
        """
        from emphatic.engines.compiled import blas_threads

        learners = slice(None) if len(self._A) == 1 else slice(g, g + 1)
        with blas_threads(1), np.errstate(all="ignore"):
            if not (np.isfinite(self._A[g]).all() and np.isfinite(self._b[learners]).all()):
                return False
            try:
                P = np.linalg.inv(self._A[g])
            except np.linalg.LinAlgError:
                P = np.full((self.n, self.n), np.nan)
            theta = self._b[learners] @ P.T
            self._P[g] = P
            if np.isfinite(theta).all():
                self._theta[learners] = theta
        return True

    def _state(self) -> dict[str, NDArray[Any]]:
        """The arrays that change, by the names of their attributes."""
        return {name: getattr(self, f"_{name}") for name in _ARRAYS}

    def _arrays(self) -> dict[str, NDArray[Any]]:
        """The same as files name and hold them."""
        return {
            {"taken": "steps_taken"}.get(name, name): array.view(np.uint8) if array.dtype == bool else array
            for name, array in self._state().items()
        }

    def _first(self, array: Array) -> Array:
        return np.array(array[0] if self._K is None else array)

    def _of_each(self, array: Array) -> Array:
        """Of each learner, from what each matrix has."""
        return np.array(array[0]) if self._K is None else np.array(np.broadcast_to(array, (self._K, *array.shape[1:])))

    def _without_K(self, array: Array) -> Array:
        return array[:, 0] if self._K is None else array

    def _split(self) -> None:
        """Give each learner its own matrix, as it is now."""
        for name in ("forgetting", "ridge", "A", "P", "frozen", "e", "memory"):
            setattr(self, f"_{name}", np.repeat(getattr(self, f"_{name}"), self._K or 1, axis=0))


def _option(name: str, value: ArrayLike, K: int | None, most: float) -> Array:
    """A positive number, or one for each learner, as (1,) or (K,)."""
    array = np.asarray(inputs.real_array(name, value, "LeastSquares"), np.float64)
    form = "a number" if K is None else f"a number or {K} numbers"
    if array.shape not in ((), (K,)) or not ((array > 0.0) & (array <= most)).all():
        wanted = f"be {form} greater than 0" + (" and at most 1" if most == 1.0 else ", and finite")
        raise refusal(name, "LeastSquares", wanted, repr(value))
    return array.reshape(-1)
