"""What a batch learner would have got: ridge regression of the returns on the same features.

    θ = argmin Σ_t (G_t − c − θ·φ_t)² + r ‖θ‖²

fitted on the known returns of the first half of a log. The intercept c is free: features and returns are centred on
their means. The strength r is one of ``STRENGTHS`` times the mean square of an active feature's value, so that it
counts in rows; for each question the one that does best on the last fifth of the first half, after fitting on what
comes before, is used to fit the whole first half. All it needs of the rows are sums, so that one pass does: the first
half is summed and fitted, the second half predicted.

Returns near the end of the first half reach into the second, and those are used too: if anything, this baseline
knows too much.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from emphatic.learning.inputs import refusal
from emphatic.scores.masks import share_masks
from emphatic.scores.sums import Array, Features, MaskedSums, Sums, blocks

__all__ = ["STRENGTHS", "FirstHalf", "OfflineFit", "offline"]

#: Ridge strengths, in rows.
STRENGTHS = 10.0 ** np.arange(-2, 7)
#: Solving for more features than this would take minutes.
_FEATURES = 4096
#: Bytes for the sums of φφᵀ that are gathered in one pass.
_ROOM = 2**31


class FirstHalf:
    """What must be known of the returns of the first half before the features are seen: where they are known (a bit
    a question and row), and their means, which keep digits in the sums. Blocks of rows come in any order."""

    def __init__(self, T: int, level: Array) -> None:
        self.half = T // 2
        self.bits = np.zeros((len(level), -(-self.half // 8)), np.uint8)
        self._level, self._sum, self._count = level, np.zeros(len(level)), np.zeros(len(level), np.int64)

    def add(self, start: int, G: Array, known: NDArray[np.bool_]) -> None:
        """Rows from ``start`` on, a multiple of 8; (Q, B) each."""
        assert start % 8 == 0
        G, known = G[:, : max(0, self.half - start)], known[:, : max(0, self.half - start)]
        packed = np.packbits(known, axis=1)
        self.bits[:, start // 8 : start // 8 + packed.shape[1]] = packed
        self._sum += np.where(known, G - self._level[:, None], 0.0).sum(axis=1)
        self._count += known.sum(axis=1)

    @property
    def centre(self) -> Array:
        """The mean return of each question; 0 where none is known."""
        mean: Array = self._level + self._sum / np.maximum(1, self._count)
        return np.where(self._count > 0, mean, 0.0)


class OfflineFit:
    """The fit, from rows of features given in order: ``passes`` times, all but the last time only the first half.

    One pass is enough unless the questions' known rows differ so much, and the features are so many, that the sums
    would take more than 2 GiB. ``strength`` (Q,) is each question's, in rows; NaN where nothing could be fitted or no
    strength chosen, and with more than some 4000 features active in the first half.
    """

    def __init__(self, n: int, T: int, H: int, first: FirstHalf) -> None:
        self.n, self.half = n, first.half
        self._cut = self.half * 4 // 5
        self._centre = first.centre
        Q = len(self._centre)
        self.strength = np.full(Q, np.nan)
        self._masks, self._group = share_masks(first.bits, H)
        self._room = min(n, _FEATURES)
        most = max(1, _ROOM // (16 * self._room**2) - 1)
        g = len(self._masks) if self._masks.any() else 0
        self._batches = [range(u, min(u + most, g)) for u in range(0, g, most)]
        self.passes = max(1, len(self._batches))
        self._place = np.full(n + 1, -1)  # of each feature in the sums; −1, none, is the last
        self._square = self._active = 0.0
        self._live = self._pass = 0
        self._W, self._c = np.zeros((0, Q)), np.full(Q, np.nan)
        self._sums: MaskedSums | None = None

    def add(self, start: int, index: NDArray[np.int64], value: Array, G: Array) -> Array:
        """The next rows of a pass, from ``start`` on: active features (B, k) and returns (Q, B).

        Returns predictions (Q, B); NaN in the first half.
        """
        stop = start + len(index)
        if index.max(initial=-1) >= self.n:
            raise refusal("phi", "offline", f"have indices below n = {self.n}", str(index.max()))
        predictions = np.full(G.shape, np.nan)
        for a, b in pairwise([start, *(e for e in (self._cut, self.half) if start < e < stop), stop]):
            rows = slice(a - start, b - start)
            if b > self.half:
                predictions[:, rows] = self._predict(index[rows], value[rows])
                continue
            if self._pass < len(self._batches):
                self._gather(a, index[rows], value[rows], G[:, rows])
                if b == self.half:
                    self._fit_batch()
        return predictions

    def _gather(self, start: int, index: NDArray[np.int64], value: Array, G: Array) -> None:
        batch = self._batches[self._pass]
        if self._pass == 0:
            self._survey(index, value)
            if self._live > self._room:
                self._batches, self._sums = [], None
                return
        own = np.isin(self._group, batch)
        if self._sums is None:
            group = self._group[own] - batch[0]
            self._sums = MaskedSums(self._masks[batch], group, self.half, self._cut, self._room)
        self._sums.add(start, self._place[index], value, G[own] - self._centre[own, None])

    def _survey(self, index: NDArray[np.int64], value: Array) -> None:
        """Give features a place when they are first active, and sum the squares of active values."""
        seen = np.zeros(self.n + 1, np.bool_)
        seen[index] = True
        new = np.flatnonzero(seen[: self.n] & (self._place[: self.n] < 0))
        self._place[new] = np.arange(self._live, self._live + len(new))
        self._live += len(new)
        active = value[index >= 0]
        self._square += float(np.sum(active**2))
        self._active += len(active)

    def _fit_batch(self) -> None:
        """The first half has been seen: fit the questions of this pass."""
        sums, batch = self._sums, self._batches[self._pass]
        self._sums, self._pass = None, self._pass + 1
        if sums is None or not self._live:
            return
        live = np.flatnonzero(self._place[: self.n] >= 0)
        order = self._place[live]
        self._place[live] = np.arange(len(live))
        if not len(self._W):
            self._W = np.zeros((len(live), self._W.shape[1]))
        scale = self._square / self._active if self._square else 1.0
        for u in batch:
            early, late = sums.of_mask(u - batch[0], order)
            if early.N and late.N:
                q = np.flatnonzero(self._group == u)
                self._W[:, q], self._c[q], self.strength[q] = _fit(early, late, scale)

    def _predict(self, index: NDArray[np.int64], value: Array) -> Array:
        from emphatic.scores import kernels

        out = np.zeros((len(index), self._W.shape[1]))
        if len(self._W):
            kernels.apply(self._place[index], value, self._W, out)
        return (out + (self._c + self._centre)).T


def offline(
    phi: Features, n: int, G: Array, known: NDArray[np.bool_], H: int, progress: Callable[[float], None] | None = None
) -> tuple[Array, Array]:
    """The predictions (Q, T − T//2) of the second half, and each question's ridge strength (Q,), in rows.

    ``phi()`` gives the T rows of n features anew, in blocks; ``G`` and ``known`` are (Q, T), with H questions a
    signal. NaN where nothing could be fitted or no strength chosen, and with more than some 4000 active features.
    """
    T = G.shape[1]
    first = FirstHalf(T, np.array([g[k].mean() if k.any() else 0.0 for g, k in zip(G, known, strict=True)]))
    first.add(0, G, known)
    fit = OfflineFit(n, T, H, first)
    predictions = np.full((len(G), T), np.nan)
    steps, done = (fit.passes - 1) * fit.half + T, 0
    for last in [fit.half] * (fit.passes - 1) + [T]:
        for start, stop, index, value in blocks(phi, last):
            predictions[:, start:stop] = fit.add(start, index, value, G[:, start:stop])
            done += stop - start
            if progress is not None:
                progress(done / steps)
    return predictions[:, fit.half :], fit.strength


def _fit(early: Sums, late: Sums, scale: float) -> tuple[Array, Array, Array]:
    """Weights (n, m), intercepts (m,) and strengths (m,): chosen on the late rows, fitted on all."""
    fit = early.about(*early.means)
    test = late.about(*early.means)
    thetas = [_ridge(fit.A, fit.b, r * scale) for r in STRENGTHS]
    errors = [test.yy - 2 * np.sum(th * test.b, axis=0) + np.sum(th * (test.A @ th), axis=0) for th in thetas]
    best = np.argmin(errors, axis=0)
    whole = early.plus(late)
    mean, level = whole.means
    whole = whole.about(mean, level)
    theta = np.empty_like(whole.b)
    for i in set(best.tolist()):
        theta[:, best == i] = _ridge(whole.A, whole.b[:, best == i], STRENGTHS[i] * scale)
    return theta, level - mean @ theta, STRENGTHS[best]


def _ridge(A: Array, b: Array, r: float) -> Array:
    """(A + r I)⁻¹ b; several strengths this way take less time than the eigenvectors of A."""
    damped = A.copy()
    damped.flat[:: len(A) + 1] += r
    return np.asarray(np.linalg.solve(damped, b), np.float64)
