"""What a batch learner would have got: ridge regression of the returns on the same features.

    θ = argmin Σ_t (G_t − c − θ·φ_t)² + r ‖θ‖²

fitted on the known returns of the first half of a log. The intercept c is free: features and returns are taken from
their means. The strength r is one of ``STRENGTHS`` times the mean square of an active feature's value, so that it
counts in rows; for each question the one that does best on the last fifth of the first half, after fitting on what
comes before, is used to fit the whole first half. All it needs of the rows are sums, gathered in one pass.

Returns near the end of the first half reach into the second, and those are used too: if anything, this baseline
knows too much.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from emphatic.scores.masks import shared
from emphatic.scores.sums import Array, Features, Sums, blocks, gather, survey

__all__ = ["STRENGTHS", "offline"]

#: Ridge strengths, in rows.
STRENGTHS = 10.0 ** np.arange(-2, 7)
#: Solving for more features than this would take minutes.
_FEATURES = 4096
#: Bytes for the sums of φφᵀ that are gathered in one pass.
_ROOM = 2**31


def offline(
    phi: Features, n: int, G: Array, known: NDArray[np.bool_], H: int, progress: Callable[[float], None] | None = None
) -> tuple[Array, Array]:
    """The predictions (Q, T − T//2) of the second half, and each question's ridge strength (Q,), in rows.

    ``phi()`` gives the T rows of n features anew, in blocks; ``G`` and ``known`` are (Q, T), with H questions a
    signal. NaN where nothing could be fitted or no strength chosen, and with more than some 4000 active features.
    """
    from emphatic.scores import kernels

    Q, T = G.shape
    half = T // 2
    cut = half * 4 // 5
    strength, made = np.full(Q, np.nan), np.full((Q, T - half), np.nan)
    place, scale = survey(phi, n, half)
    live = int(place.max()) + 1
    masks, group = shared(known[:, :half], H)
    if not 0 < live <= _FEATURES or not masks.any():
        return made, strength
    W, c = np.zeros((live, Q)), np.full(Q, np.nan)
    centre = np.array([g[k].mean() if k.any() else 0.0 for g, k in zip(G[:, :half], known[:, :half], strict=True)])
    most = max(1, _ROOM // (16 * live**2) - 1)
    batches = [range(u, min(u + most, len(masks))) for u in range(0, len(masks), most)]
    steps = 1 + len(batches) * half + T
    done = 1

    def told(rows: int) -> None:
        nonlocal done
        done += rows
        if progress is not None:
            progress(done / steps)

    for batch in batches:
        own = np.flatnonzero(np.isin(group, batch))
        y = np.where(masks[group[own]], G[own, :half] - centre[own, None], 0.0)
        gathered = gather(phi, place, y, masks[batch], group[own] - batch[0], cut, told)
        for u, (early, late) in zip(batch, gathered, strict=True):
            if early.N and late.N:
                q = np.flatnonzero(group == u)
                W[:, q], c[q], strength[q] = _fit(early, late, scale)
    for start, stop, index, value in blocks(phi, T):
        if stop > half:
            a = max(half - start, 0)
            out = np.zeros((stop - start - a, Q))
            kernels.apply(place[index[a:]], value[a:], W, out)
            made[:, start + a - half : stop - half] = (out + (c + centre)).T
        told(stop - start)
    return made, strength


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
