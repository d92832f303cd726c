"""Least squares: the weights to which TD(λ) would converge if it went through its data again and again.

    e ← ρ(γλe + Iφ)                          with ``emphatic``  F ← ρ⁻γF + I,  M = λI + (1−λ)F,  e ← ρ(γλe + Mφ)
    A ← fA + e (φ − γ'φ')ᵀ,   b ← fb + eR          A = ridge · 𝟙 and b = 0 at first, f is ``forgetting``
    θ = A⁻¹b

LSTD(λ): Bradtke & Barto (1996), Boyan (2002); with the emphasis of Sutton, Mahmood & White (2016), ELSTD(λ): Yu (2015).
There is no step size. Its place is taken by P = A⁻¹, which a step changes by one product of two vectors (Sherman and
Morrison's formula), so that a step takes n² operations and not n³:

    k = Pe / (f + (φ − γ'φ')ᵀPe),   θ ← θ + δk,   P ← (P − k (φ − γ'φ')ᵀP) / f

Where λ = 1 and ρ = 1 the sum telescopes: A = S − γ' e φ'ᵀ at the last step with S = ridge · 𝟙 + Σ I φφᵀ, whatever γ.
Learners with different γ then have S and its inverse P in common, and θ = Pb + Pe γ'φ'·Pb / (1 − γ'φ'·Pe): the
prediction stands for what is not known of the return. Pb and Pe are kept: a step takes n² + nK operations, not Kn².

Rounding errors do not grow: A and b are kept, and after every so many steps, and where the denominator costs digits, P
and θ are computed from them directly. With f < 1 the ridge is then renewed, before less than 1e-12 of it is left: what
is no longer active would otherwise leave A singular.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from emphatic import rules
from emphatic.engines.base import Features, Rows, block
from emphatic.errors import Diverged
from emphatic.learning import inputs
from emphatic.learning.active import Active
from emphatic.learning.least_squares_state import LIMIT, Array, LeastSquaresState

__all__ = ["LIMIT", "LeastSquares"]

#: Weights that are kept at a time for a probe, and components of φ that are converted at a time.
_KEPT = 1 << 20
#: What may keep A and b finite: there is no alpha.
_REMEDY = "smaller rho, lambda_ or I, or smaller features and rewards"


class LeastSquares(LeastSquaresState):
    """K learners by least squares, LSTD(λ) or with ``emphatic`` ELSTD(λ); K=None is a single one without the K axis.

    ``ridge`` is what A begins with, on its diagonal: so many rows' worth of a prior θ = 0, where features are about 1.
    ``forgetting`` is the factor by which everything before a step counts less after it; 1 forgets nothing. Both may be
    (K,), one for each learner.

    Learners that share λ, γ, ρ and I share one matrix as well, and differ in R only. So do learners with different γ
    whose λ and ρ have been 1 from the first step on, with a common I, without forgetting, and where φ follows φ'. From
    the first step on in which that does not hold, or where ridge or forgetting are (K,), each has its own. A matrix
    takes 16 n² bytes and about 8 n² operations a step (``nbytes``, ``matrices``); more features than ``limit`` are
    refused.

    >>> import numpy as np
    >>> learner = LeastSquares(1, ridge=1e-9)
    >>> predictions = learner.run(np.ones((101, 1)), np.ones(100), 0.5, lambda_=0.9)
    >>> round(learner.predict([1.0]), 6)
    2.0
    >>> learner
    LeastSquares(n=1, emphatic=False, steps=100)
    """

    def learn(self, I: Any, lambda_: Any, phi: Any, rho: Any, R: Any, phi_next: Any, gamma_next: Any) -> Any:
        """One step; returns the TD error δ = R + γ'θ·φ' − θ·φ, from before the update.

        Arguments are those of ``Learner.learn``, without alpha, and in its order.
        """
        with self._guard:
            now, following = (self._features(name, p, "learn") for name, p in (("phi", phi), ("phi_next", phi_next)))
            parameters = self._parameters("learn", 1, (gamma_next, lambda_, rho, I), R)
            try:
                self._run(now, following, *parameters, "raise")
            except Diverged as error:
                raise Diverged(self._steps, error.learner, "learn", error.remedy) from None
            return float(self._delta[0]) if self._K is None else self._delta.copy()

    def run(
        self,
        Phi: Any,
        R: Any,
        gamma_next: Any,
        *,
        lambda_: Any = 0.0,
        rho: Any = 1.0,
        I: Any = 1.0,
        Phi_next: Any = None,
        predictions: bool = True,
        probe: tuple[ArrayLike, ArrayLike, ArrayLike] | None = None,
        probe_every: int = 1,
        on_divergence: Literal["raise", "freeze"] = "raise",
    ) -> Any:
        """Learn from a whole log; returns the predictions θ_t·φ_t made before each update, (T,) or (T, K).

        Arguments are those of ``Learner.run``, without alpha; so is what is returned with a ``probe``.
        """
        if not isinstance(predictions, bool):
            raise inputs.refusal("predictions", "run", "be True or False", repr(predictions))
        if on_divergence not in ("raise", "freeze"):
            raise inputs.refusal("on_divergence", "run", "be 'raise' or 'freeze'", repr(on_divergence))
        with self._guard:
            now = self._features("Phi", Phi, "run")
            if Phi_next is None:
                if not len(now):
                    raise inputs.refusal("Phi", "run", "have T + 1 rows for T steps, so at least one", "none")
                now, following = block(now, 0, len(now) - 1), block(now, 1, len(now))
            else:
                following = self._features("Phi_next", Phi_next, "run")
                if len(following) != len(now):
                    got = str(len(following))
                    raise inputs.refusal("Phi_next", "run", f"have as many rows as 'Phi', {len(now)}", got)
            T, count = len(now), self._K or 1
            goal = None if probe is None else inputs.probe(probe, self.n, self._K)
            every = inputs.whole("probe_every", probe_every, "run")
            parameters, rewards = self._parameters("run", T, (gamma_next, lambda_, rho, I), R)
            made = np.empty((T if predictions else 0, count))
            errors = np.empty((0 if goal is None else -(-T // every), count))
            size = max(1, _KEPT // (self.n * (1 if goal is None else count)))
            for begin in range(0, T, size):
                end, skip = min(begin + size, T), -begin % every
                due = range(begin + skip, end, every)
                weights = np.empty((0 if goal is None else len(due), count, self.n))
                self._run(
                    block(now, begin, end), block(following, begin, end), parameters[:, begin:end], rewards[begin:end],
                    on_divergence, made[begin:end], weights, every, skip, begin,
                )  # fmt: skip
                if goal is not None:
                    for step, theta in zip(due, weights, strict=True):
                        errors[step // every] = goal(theta)
            answer = self._without_K(made) if predictions else None
            return answer if goal is None else (answer, self._without_K(errors))

    def predict(self, phi: Any) -> Any:
        """θ·φ for φ of shape (n,) or (T, n), ``Active`` or CSR: a number or (T,); with K learners (K,) or (T, K)."""
        with self._guard.shared:
            rows = self._features("phi", phi, "predict")
            dense = rows.dense(self.n, "float64") if isinstance(rows, Rows) else rows
            answer = np.einsum("ti,ki->tk", dense, self._theta)
            one = (phi.indices.ndim if isinstance(phi, Active) else np.ndim(phi)) == 1
            if not one:
                return self._without_K(answer)
            return float(answer[0, 0]) if self._K is None else answer[0]

    def cut(self) -> None:
        """Start a new sequence: forget the traces, and keep what has been learned."""
        from emphatic.learning import least_squares_kernels as kernels

        with self._guard:
            if self._is_common and kernels.is_open(self._e, self._memory, self._phi_next):
                self._split()
            self._e[:], self._Pe[:], self._memory[:] = 0.0, 0.0, 0.0

    # ------------------------------------------------------------------ inside

    def _features(self, name: str, value: Any, function: str) -> Features:
        return inputs.features(name, inputs.import_array(name, value, function), function, self.n, "float64")[0]

    def _parameters(self, function: str, T: int, values: tuple[Any, ...], R: Any) -> tuple[Array, Array]:
        """γ', λ, ρ and I (4, T, G), and R (T, K), checked; learners that differ in the former get a matrix each.

        If they differ in γ alone, and sums telescope from the first step on, they get one in common.
        """
        rule, names = rules.get("etd"), ("gamma_next", "lambda_", "rho", "I")
        found = [
            inputs.series(function, T, self._K, rule, name, p) for name, p in zip(names, values, strict=True)
        ]  # fmt: skip
        rewards = np.ascontiguousarray(inputs.series(function, T, self._K, rule, "R", R))
        if len(self._A) < (self._K or 1):
            differ = [p.strides[1] != 0 and bool((p != p[:, :1]).any()) for p in found]
            telescopes = not any(differ[1:]) and (found[1] == 1.0).all() and (found[2] == 1.0).all()
            if telescopes and differ[0] and not self._steps and self._forgetting[0] == 1.0:
                self._share()
            elif not telescopes if self._is_common else any(differ):
                self._split()
        return np.stack([p[:, : len(self._e)] for p in found]), rewards

    def _run(
        self, now: Features, following: Features, parameters: Array, R: Array, on_divergence: str,
        made: Array | None = None, weights: Array | None = None, every: int = 1, skip: int = 0, offset: int = 0,
    ) -> None:  # fmt: skip
        """Some steps, with predictions and weights into the arrays given; ``offset`` is the first one's number."""
        from emphatic.learning import least_squares_kernels as kernels

        Phi, Phi_next = (p.dense(self.n, "float64") if isinstance(p, Rows) else p for p in (now, following))
        made = np.empty((0, len(self._theta))) if made is None else made
        weights = np.empty((0, *self._theta.shape)) if weights is None else weights
        parameters, period, t, after = np.ascontiguousarray(parameters), self._period, 0, -1
        while t < len(Phi):
            due = min(len(Phi), t + period - self._steps % period)
            data = Phi[:due], Phi_next[:due], parameters[:, :due].copy(), R[:due], t
            if self._is_common:
                done, how, g = kernels.common_steps(
                    *data, self.emphatic, self._A[0], self._P[0], self._b, self._theta, self._e, self._memory, self._Pb,
                    self._Pe, self._phi_next, self._frozen, made, weights, every, skip, self._delta,
                )  # fmt: skip
            else:
                done, how, g = kernels.steps(
                    *data, after, self.emphatic, self._forgetting, self._A, self._P, self._b, self._theta, self._e,
                    self._memory, self._frozen, made, weights, every, skip, self._delta,
                )  # fmt: skip
            self._pass(done - t)
            t, after = done, -1
            if how == kernels.APART or (how == kernels.DIVERGED and self._is_common and on_divergence == "freeze"):
                self._split()
                continue
            if how == kernels.SINGULAR:
                how, after = kernels.DONE if self._solve(g) else kernels.DIVERGED, -1 if self._is_common else g
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
        from emphatic.learning import least_squares_kernels as kernels

        own = slice(None) if len(self._A) == 1 else slice(g, g + 1)
        with blas_threads(1), np.errstate(all="ignore"):
            if not (np.isfinite(self._A[g]).all() and np.isfinite(self._b[own]).all()):
                return False
            try:
                P = np.linalg.inv(self._A[g])
            except np.linalg.LinAlgError:
                P = np.full((self.n, self.n), np.nan)
            theta = self._b[own] @ P.T
            self._P[g] = P
            if self._is_common:
                self._Pb[:], self._Pe[:] = theta, self._e @ P.T
                kernels.solve_common(self._memory, self._Pb, self._Pe, self._phi_next, self._theta)
            elif np.isfinite(theta).all():
                self._theta[own] = theta
        return True
