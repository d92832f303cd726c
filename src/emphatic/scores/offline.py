"""An offline baseline, fitted in hindsight: ridge regression of the returns on the inputs of the online predictions.

    θ, w = argmin Σ_t (G_t − c − θ·φ_t − w·u_t)² + r ‖θ‖²

on the known returns of the first half of a log, φ being the same features and u the same answers that need no learning:
the present reading, and its trace over the horizon (``emphatic.scores.answers``). The intercept c and w are free: all
is centred on its means, and only θ is shrunk. The strength r is one of ``STRENGTHS`` times the mean square of an active
feature's value, so that it counts in rows; for each question the one that does best on the last fifth of the first
half, after fitting on what comes before, is used to fit the whole first half. The fit is then scored on the second
half, on which it learns nothing. All it needs of the rows are sums, so that one pass does: the first half is summed and
fitted, the second half predicted.

Returns near the end of the first half reach into the second, and are used too: if anything, this favours the baseline.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from emphatic.engines.compiled import blas_threads
from emphatic.learning.inputs import refusal
from emphatic.scores.masks import share_masks
from emphatic.scores.sums import Array, Features, MaskedSums, Sums, blocks

__all__ = ["STRENGTHS", "FirstHalf", "OfflineFit", "offline"]

#: Ridge strengths, in rows.
STRENGTHS = 10.0 ** np.arange(-2, 7)
#: Solving for more features than this would take minutes.
_FEATURES = 4096
#: Bytes for the sums of φφᵀ that are gathered in one pass.
ROOM = 2**28
#: What is added to the square of an answer, in its own unit: two answers may be the same.
_SLIGHT = 1e-6


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

    def of(self, questions: NDArray[np.int64]) -> FirstHalf:
        """The same for some of the questions."""
        part = FirstHalf(2 * self.half, self._level[questions])
        part.bits, part._sum, part._count = self.bits[questions], self._sum[questions], self._count[questions]
        return part

    @property
    def centre(self) -> Array:
        """The mean return of each question; 0 where none is known."""
        mean: Array = self._level + self._sum / np.maximum(1, self._count)
        return np.where(self._count > 0, mean, 0.0)


class OfflineFit:
    """The fit, from rows of features given in order: ``passes`` times, all but the last time only the first half.

    One pass is enough unless the questions' known rows differ so much, and the features are so many, that the sums
    would take more than 256 MiB. Each question has ``answers`` besides. ``strength`` (Q,) is each question's, in rows;
    NaN where nothing could be fitted or no strength chosen, and with more than some 4000 features active in the first
    half: ``reasons`` (Q,) explains why, or is "".
    """

    def __init__(self, n: int, T: int, H: int, first: FirstHalf, answers: int = 0) -> None:
        self.n, self.half, self._a = n, first.half, answers
        self._cut = self.half * 4 // 5
        self._centre = first.centre
        Q = len(self._centre)
        self.strength = np.full(Q, np.nan)
        self._masks, self._group = share_masks(first.bits, H)
        self._room = min(n, _FEATURES)
        most = max(1, ROOM // (16 * self._room**2) - 1)
        g = len(self._masks) if self._masks.any() else 0
        self._batches = [range(u, min(u + most, g)) for u in range(0, g, most)]
        self.passes = max(1, len(self._batches))
        self._place = np.full(n + 1, -1)  # of each feature in the sums; −1, none, is the last
        self._square = self._active = 0.0
        self._live = self._pass = 0
        self._W, self._c = np.zeros((0, Q)), np.full(Q, np.nan)
        self._w = np.zeros((Q, answers))
        self._sums: MaskedSums | None = None
        few = "fewer than two returns known in the first four fifths, or in the last fifth, of the first half"
        self.reasons = [few] * Q

    @property
    def room(self) -> int:
        """The bytes of the sums of a pass."""
        return 16 * self._room**2 * (1 + max(map(len, self._batches), default=0))

    def add(self, start: int, index: NDArray[np.int64], value: Array, G: Array, answers: Array | None = None) -> Array:
        """The next rows of a pass, from ``start`` on: active features (B, k), returns (Q, B) and answers (a, Q, B).

        Returns predictions (Q, B); NaN in the first half.
        """
        stop = start + len(index)
        u = np.empty((0, *G.shape)) if answers is None else answers - self._centre[:, None]
        if index.max(initial=-1) >= self.n:
            raise refusal("phi", "offline", f"have indices below n = {self.n}", str(index.max()))
        predictions = np.full(G.shape, np.nan)
        for a, b in pairwise([start, *(e for e in (self._cut, self.half) if start < e < stop), stop]):
            rows = slice(a - start, b - start)
            if b > self.half:
                predictions[:, rows] = self._predict(index[rows], value[rows], u[:, :, rows])
                continue
            if self._pass < len(self._batches):
                self._gather(a, index[rows], value[rows], G[:, rows], u[:, :, rows])
                if b == self.half:
                    self._fit_batch()
        return predictions

    def _gather(self, start: int, index: NDArray[np.int64], value: Array, G: Array, u: Array) -> None:
        batch = self._batches[self._pass]
        if self._pass == 0:
            self._survey(index, value)
            if self._live > self._room:
                self._batches, self._sums = [], None
                self.reasons = [f"more than {_FEATURES:,} active features would take too long to fit"] * len(
                    self.reasons
                )
                return
        own = np.isin(self._group, batch)
        if self._sums is None:
            group = self._group[own] - batch[0]
            self._sums = MaskedSums(self._masks[batch], group, self.half, self._cut, self._room, self._a)
        self._sums.add(start, self._place[index], value, G[own] - self._centre[own, None], u[:, own])

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
                with blas_threads(1):  # more would wait for each other on a busy machine
                    self._W[:, q], self._w[q], self._c[q], self.strength[q] = _fit(early, late, scale)
                for i in q:
                    self.reasons[i] = ""

    def _predict(self, index: NDArray[np.int64], value: Array, u: Array) -> Array:
        from emphatic.scores import kernels

        out = np.zeros((len(index), self._W.shape[1]))
        if len(self._W):
            kernels.apply(self._place[index], value, self._W, out)
        predictions: Array = out.T + np.einsum("qa,aqt->qt", self._w, u) + (self._c + self._centre)[:, None]
        return predictions


def offline(
    phi: Features, n: int, G: Array, known: NDArray[np.bool_], H: int, progress: Callable[[float], None] | None = None,
    *, answers: Array | None = None,
) -> tuple[Array, Array]:  # fmt: skip
    """The predictions (Q, T − T//2) of the second half, and each question's ridge strength (Q,), in rows.

    Each call of ``phi()`` iterates over the T rows of n features, in blocks; ``G`` and ``known`` are (Q, T), with H
    questions per signal; ``answers`` (a, Q, T), such as the present reading, are regressed on besides, without
    shrinkage. NaN where nothing could be fitted or no strength chosen, and with more than some 4000 active features.
    """
    T = G.shape[1]
    first = FirstHalf(T, np.array([g[k].mean() if k.any() else 0.0 for g, k in zip(G, known, strict=True)]))
    first.add(0, G, known)
    fit = OfflineFit(n, T, H, first, 0 if answers is None else len(answers))
    predictions = np.full((len(G), T), np.nan)
    steps, done = (fit.passes - 1) * fit.half + T, 0
    for last in [fit.half] * (fit.passes - 1) + [T]:
        for start, stop, index, value in blocks(phi, last):
            own = None if answers is None else answers[:, :, start:stop]
            predictions[:, start:stop] = fit.add(start, index, value, G[:, start:stop], own)
            done += stop - start
            if progress is not None:
                progress(done / steps)
    return predictions[:, fit.half :], fit.strength


def _fit(early: Sums, late: Sums, scale: float) -> tuple[Array, Array, Array, Array]:
    """θ (n, m), w (m, a), intercepts (m,) and strengths (m,): chosen on the late rows, fitted on all."""
    means = early.means
    fit, test = early.about(*means), late.about(*means)
    errors = [_error(test, *_ridge(fit, r * scale)) for r in STRENGTHS]
    best = np.argmin(errors, axis=0)
    whole = early.plus(late)
    mean, level, usual = whole.means
    whole = whole.about(mean, level, usual)
    theta, w = np.empty_like(whole.b), np.empty_like(whole.d)
    for i in set(best.tolist()):
        own = best == i
        theta[:, own], w[own] = _ridge(whole.of(own), STRENGTHS[i] * scale)
    return theta, w, level - mean @ theta - np.sum(usual * w, axis=1), STRENGTHS[best]


def _ridge(S: Sums, r: float) -> tuple[Array, Array]:
    """θ (n, m) and w (m, a) of

        [A + r I   U] [θ]   [b]
        [Uᵀ        D] [w] = [d]

    for each question, by elimination of θ. (Several strengths take less time this way than the eigenvectors of A.)
    """
    n, m, a = S.U.shape
    damped = S.A.copy()
    damped.flat[:: n + 1] += r
    solved = np.linalg.solve(damped, np.concatenate([S.b, S.U.reshape(n, m * a)], axis=1))
    theta, V = solved[:, :m], solved[:, m:].reshape(n, m, a)
    if not a:
        return theta, np.zeros((m, 0))
    unit = np.sqrt(np.einsum("maa->ma", S.D))
    unit = np.where(unit > 0.0, unit, 1.0)
    D = (S.D - np.einsum("nma,nmb->mab", S.U, V)) / (unit[:, :, None] * unit[:, None]) + _SLIGHT * np.eye(a)
    d = (S.d - np.einsum("nma,nm->ma", S.U, theta)) / unit
    w = np.linalg.solve(D, d[:, :, None])[:, :, 0] / unit
    return theta - np.einsum("nma,ma->nm", V, w), w


def _error(S: Sums, theta: Array, w: Array) -> Array:
    """Σ (G − θ·φ − w·u)² of each question."""
    own = np.sum(theta * (S.A @ theta), axis=0) + np.einsum("ma,mab,mb->m", w, S.D, w)
    own += 2.0 * np.einsum("nma,nm,ma->m", S.U, theta, w)
    error: Array = S.yy - 2.0 * (np.sum(theta * S.b, axis=0) + np.sum(w * S.d, axis=1)) + own
    return error
