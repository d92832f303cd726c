"""Ridge regression of the returns on the features, online: LSTD(1) with one matrix for all questions of a group.

A row's return G is the mean of what follows, Σ (1 − γ) γᵏ x. Over the s rows so far, with weights w_t = t/s,

    A = Σ w φφᵀ,   N = Σ w,   m = Σ w φ / N,   b_q = Σ w φ G_q,   y_q = Σ w G_q
    θ_q = (A − N m mᵀ + r 𝟙)⁻¹ (b_q − m y_q),   c_q = y_q / N − m·θ_q,   the answer is c_q + θ_q·φ

for each of the strengths r = 30, 300, 3000, in rows (times the mean square of an active feature's value). What is not
known of a return yet is replaced by the prediction v at the last row,

    Σ_t w φ_t G_t = Σ_t w φ_t (what was read) + z v,   z = Σ_t γ^(s−t) w φ_t

and so is what lies beyond a gap; a missing reading adds nothing: it counts as predicted. The prediction before the
first solution is the mean reading so far: where the horizon is long, that of the first rows is most of every return.
Only what was read before a row is used for its answers. A row costs m² operations for m active features and m Q for Q
questions, a solution k³ for the k features that have been active so far: the others have θ = 0. It is found again when
the rows have grown by a tenth, and at least every 1,000 rows or when they have grown by a hundredth, if that is later;
where n is large, when they have grown by a half or by (n/40)² rows. Rows are added, and solutions found, at fixed
places of the stream: bits do not depend on how it is cut into blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.engines.compiled import direct
from emphatic.hordes import ridge_kernels
from emphatic.learning.inputs import Active
from emphatic.scores.baselines import factor, solve_upper

__all__ = ["LIMIT", "STRENGTHS", "Ridges"]

Array = NDArray[np.float64]

#: In rows.
STRENGTHS = (30.0, 300.0, 3000.0)
#: More features than this would take too long to solve for.
LIMIT = 4000
#: Rows that are added together, a multiple of four; rows of the first solution, and how many are added at most before
#: the next.
_TOGETHER, _FIRST, _MOST = 32, 64, 1000
#: The share by which rows grow between two solutions, and by which they grow in a long log. Where n is large they grow
#: by (n/40)² rows, at most by a half: a solution then costs n operations a row.
_GROWTH, _AT_LEAST, _AT_MOST, _LARGE = 0.1, 0.01, 0.5, 40
#: A row that follows the row before.
_FOLLOWS = np.ones(1, bool)
#: Of ``ridge_kernels``: what is counted.
_ROWS, _WAITING, _WEIGHT, _SQUARES, _ACTIVE, _SOLVED = range(6)
_BEFORE, _MEAN, _RETURNS, _AHEAD = range(4)


class Ridges:
    """The regressions of Q questions with constant γ on n features, m of them active, and their state.

    Args:
        gamma: γ of each question, (Q,).
        base: What is subtracted from each question's readings, and added to its answers, (Q,).
        n: The number of features.
        m: The most features that are active at once.
    """

    def __init__(self, gamma: Array, base: Array, n: int, m: int) -> None:
        Q, S = len(gamma), len(STRENGTHS)
        self.gamma, horizon = np.unique(gamma, return_inverse=True)
        self._horizon = np.ascontiguousarray(horizon.reshape(-1), np.int64)
        self.base, H = np.array(base), len(self.gamma)
        self.theta, self.intercept = np.zeros((n, Q * S)), np.zeros(Q * S)
        self.counts, self.each = np.zeros(6), np.zeros((4, Q))
        self.sums, self.A, self.b = np.zeros(n), np.zeros((n, n)), np.zeros((n, Q))
        self.z, self.weights = np.zeros((n, H)), np.zeros(2 * H)
        self.index, self.value = np.zeros((_TOGETHER, m), np.int64), np.zeros((_TOGETHER, m))
        self.steps = np.zeros((_TOGETHER, Q + 1))
        # In the order of the kernel's arguments; all of them are changed in place.
        self._state: tuple[NDArray[Any], ...] = (self.base, self.gamma, self._horizon, self.theta, self.intercept)
        self._state += (self.counts, self.each, self.sums, self.A, self.z, self.weights, self.b)
        self._state += (self.index, self.value, self.steps)
        self._due = _FIRST  # rows of the next solution

    def __call__(
        self,
        phi: Active,
        x: Array,
        follows: NDArray[np.bool_],
        learn: bool = True,
        answers: Array | None = None,
        place: int = 0,
    ) -> Array:
        """The answers (B, Q, S) at B rows, or ``answers`` with these in it.

        Args:
            phi: φ of each row, (B, m).
            x: The readings (B, Q), NaN where missing.
            follows: The rows (B,) that follow the row before.
            learn: Whether to learn from the rows.
            answers: An array (B, Q, …) of several answers to each question, to put them into.
            place: The place of the first of them there.
        """
        B, Q = x.shape
        if answers is None:
            answers = np.empty((B, Q, len(STRENGTHS)))
        as_array, t = np.ascontiguousarray, 0
        rows = as_array(phi.indices), as_array(phi.values), as_array(x), as_array(follows), answers, place
        while t < B:
            t = self._run(rows, t, learn)
        return answers

    def row(self, phi: Active, x: Array, answers: Array, place: int) -> None:
        """A call with one row that follows the row before, and learns; all arrays are contiguous.

        Args:
            phi: φ of the row, (1, m).
            x: The readings (1, Q).
            answers: An array (1, Q, …) to put the answers into.
            place: The place of the first of them there.
        """
        self._run((phi.indices, phi.values, x, _FOLLOWS, answers, place), 0, True)

    def _run(self, rows: tuple[Any, ...], begin: int, learn: bool) -> int:
        """The kernel on rows from ``begin`` on, up to the next solution; returns the next row."""
        end: int = direct(ridge_kernels.rows)(*rows, begin, self._due, learn, *self._state)
        if learn and self.counts.item(_ROWS) >= self._due and self.counts.item(_WAITING) == 0.0:
            self._solve()
            self._due = self._next_solution()
        return end

    def _next_solution(self) -> int:
        """The number of rows at which the next solution is due."""
        solved = int(self.counts[_SOLVED])
        if not solved:
            return _FIRST
        large = min(int((len(self.sums) / _LARGE) ** 2), int(_AT_MOST * solved))
        return solved + max(large, min(_MOST, int(_GROWTH * solved)), int(_AT_LEAST * solved))

    def _solve(self) -> None:
        """θ and c of every question and strength, from the sums, of which w is t and not yet t/s.

        A feature that was never active has θ = 0: the others are solved for without it.
        """
        from emphatic.engines.compiled import blas_threads

        rows, N, Q = self.counts[_ROWS], self.counts[_WEIGHT], self.b.shape[1]
        self.counts[_SOLVED] = rows
        scale = self.counts[_SQUARES] / self.counts[_ACTIVE] if self.counts[_SQUARES] > 0.0 else 1.0
        active = np.flatnonzero(self.A.diagonal())
        prediction, mean = self.each[_BEFORE], self.sums[active] / N
        weights, intercepts = self.theta[active].reshape(-1, Q, len(STRENGTHS)), self.intercept.reshape(Q, -1)
        with np.errstate(all="ignore"), blas_threads(1):  # the bits depend on how many there are
            y = self.each[_RETURNS] + prediction * self.weights[self._horizon]
            system, work = np.empty((2, len(active), len(active) + Q))
            system[:, len(active) :] = (
                self.b[active] + prediction * self.z[active][:, self._horizon] - np.outer(mean, y)
            )
            direct(ridge_kernels.gather)(self.A, active, mean, N, system)
            for s, strength in enumerate(STRENGTHS):
                theta = _ridge(system, strength * scale * rows, work)
                if theta is None:
                    continue
                intercept = y / N - mean @ theta
                sound = np.isfinite(intercept) & np.isfinite(theta).all(axis=0)
                weights[:, sound, s] = theta[:, sound]
                intercepts[sound, s] = intercept[sound]
        self.theta[active] = weights.reshape(-1, self.theta.shape[1])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The state, by name."""
        names = ("theta", "intercept", "counts", "each", "sums", "A", "b", "z", "weights")
        # Rows that no longer wait are 0: they are overwritten before they are read.
        waits = np.arange(_TOGETHER)[:, None] < self.counts[_WAITING]
        waiting = {name: np.where(waits, getattr(self, name), 0) for name in ("index", "value", "steps")}
        return {name: getattr(self, name) for name in names} | waiting

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore what ``arrays`` returned; ValueError if it does not fit."""
        for name, array in self.arrays().items():
            stored = arrays[name]
            if stored.shape != array.shape or stored.dtype != array.dtype or not np.isfinite(stored).all():
                raise ValueError(f"the array {name!r} of the ridges does not fit")
            getattr(self, name)[:] = stored
        waiting = self.counts[_WAITING]
        if (
            not (waiting == int(waiting) and 0 <= waiting < _TOGETHER)
            or not ((self.index >= -1) & (self.index < len(self.sums))).all()
        ):
            raise ValueError("the waiting rows of the ridges do not fit")
        self._due = self._next_solution()

    def join(self, ridges: Sequence[Ridges]) -> None:
        """Join the states of regressions on the same rows that have these questions between them, in order."""
        arrays = ridges[0].arrays()
        for name in ("theta", "intercept", "each", "b"):
            arrays[name] = np.concatenate([shard.arrays()[name] for shard in ridges], axis=-1)
        arrays["steps"] = np.hstack([*(shard.steps[:, :-1] for shard in ridges), ridges[0].steps[:, -1:]])
        arrays["z"], arrays["weights"] = np.zeros_like(self.z), np.zeros_like(self.weights)
        for shard in ridges:
            at = np.searchsorted(self.gamma, shard.gamma)
            arrays["z"][:, at], arrays["weights"][at] = shard.z, shard.weights[: len(at)]
        self.restore(arrays)


def _ridge(system: Array, r: float, work: Array) -> Array | None:
    """(A + r 𝟙)⁻¹ b of the system [A b] with a symmetric A, of which the upper half is read.

    None if that is not positive definite. ``work`` is of the system's shape.
    """
    blocks = factor(system, r, work)
    return None if blocks is None else solve_upper(work, blocks, work[:, len(system) :].copy())
