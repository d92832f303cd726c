"""Sums over the rows of a log, gathered from the active features of each: all that least squares needs of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from emphatic.learning.active import Active
from emphatic.learning.inputs import refusal

__all__ = ["Array", "Features", "Sums", "blocks", "gather", "survey"]

Array = NDArray[np.float64]
Features = Callable[[], Iterator[Active]]


class Sums(NamedTuple):
    """Sums over some rows: their number, φ, φφᵀ, and for m questions φG, G and G²."""

    N: int
    s: Array
    A: Array
    b: Array
    y: Array
    yy: Array

    def about(self, phi: Array, G: Array) -> Sums:
        """The same sums of φ − phi and G − G."""
        A = self.A - np.outer(self.s, phi) - np.outer(phi, self.s) + self.N * np.outer(phi, phi)
        b = self.b - np.outer(self.s, G) - np.outer(phi, self.y) + self.N * np.outer(phi, G)
        s, y = self.s - self.N * phi, self.y - self.N * G
        return Sums(self.N, s, A, b, y, self.yy - 2 * G * self.y + self.N * G**2)

    def plus(self, more: Sums) -> Sums:
        """The sums over these rows and more."""
        return Sums(
            self.N + more.N,
            self.s + more.s,
            self.A + more.A,
            self.b + more.b,
            self.y + more.y,
            self.yy + more.yy,
        )

    @property
    def means(self) -> tuple[Array, Array]:
        """Of φ and G."""
        return self.s / self.N, self.y / self.N


def gather(
    phi: Features,
    place: NDArray[np.int64],
    y: Array,
    masks: NDArray[np.bool_],
    group: NDArray[np.int64],
    cut: int,
    told: Callable[[int], None],
) -> Iterator[tuple[Sums, ...]]:
    """For each mask (g, half), the sums over its rows before ``cut`` and after; y (m, half) is G, 0 outside the mask.

    Most rows are in most masks: φφᵀ is summed over all rows, and over the rows outside a mask to be taken away.
    """
    from emphatic.scores import kernels

    live, g, half = int(place.max()) + 1, *masks.shape
    outside = np.mean(masks, axis=1) > 0.5
    use = np.vstack([np.full((1, half), outside.any()), masks ^ outside[:, None]])
    A = np.zeros((2, g + 1, live, live))
    P = np.zeros((2, live, g + len(y)))
    for start, stop, index, value in blocks(phi, half, cut):
        at, rows, part = place[index], slice(start, stop), int(start >= cut)
        kernels.gram(at, value, np.ascontiguousarray(use[:, rows].T), A[part])
        Y = np.concatenate([masks[:, rows], y[:, rows]]).T
        kernels.project(at, value, np.ascontiguousarray(Y, np.float64), P[part])
        told(stop - start)
    for u in range(g):
        own = group == u
        yield tuple(
            Sums(
                int(masks[u, rows].sum()),
                P[part, :, u],
                _whole(A[part, 0] - A[part, u + 1] if outside[u] else A[part, u + 1]),
                P[part, :, g:][:, own],
                y[own, rows].sum(axis=1),
                (y[own, rows] ** 2).sum(axis=1),
            )
            for part, rows in enumerate((slice(0, cut), slice(cut, half)))
        )


def _whole(A: Array) -> Array:
    """Both sides of the diagonal."""
    return A + A.T - np.diag(np.diag(A))


def survey(phi: Features, n: int, half: int) -> tuple[NDArray[np.int64], float]:
    """A number for each feature that is active in the first half, −1 for others; the mean square of active values."""
    seen = np.zeros(n + 1, np.bool_)
    square = count = 0.0
    for _, _, index, value in blocks(phi, half):
        if index.max(initial=-1) >= n:
            raise refusal("phi", "offline", f"have indices below n = {n}", str(index.max()))
        seen[index] = True  # −1, none, is the last
        active = value[index >= 0]
        square += float(np.sum(active**2))
        count += len(active)
    seen[n] = False
    return np.where(seen, np.cumsum(seen) - 1, -1), square / count if square else 1.0


def blocks(phi: Features, T: int, cut: int = 0) -> Iterator[tuple[int, int, NDArray[np.int64], Array]]:
    """(start, stop, indices, values) of the first T rows; no block reaches across ``cut``."""
    start = 0
    for block in phi():
        index, value = np.ascontiguousarray(block.indices), np.ascontiguousarray(block.values)
        first, end = start, min(start + len(index), T)
        for stop in sorted({min(max(cut, start), end), end}):
            if stop > start:
                yield start, stop, index[start - first : stop - first], value[start - first : stop - first]
                start = stop
        if start == T:
            return
    if start < T:
        raise refusal("phi", "offline", f"give {T} rows", f"{start}")
