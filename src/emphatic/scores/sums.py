"""Sums over the rows of a log, gathered from the active features of each: all that least squares needs of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from emphatic.learning.active import Active
from emphatic.learning.inputs import refusal
from emphatic.scores.masks import Bits, count, unpack

__all__ = ["Array", "Features", "MaskedSums", "Sums", "blocks"]

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


class MaskedSums:
    """Sums over the first half of a log for g masks (g, bytes), of the rows before ``cut`` apart from those after.

    ``group`` says which mask each of m questions has; there are at most ``room`` features. Most rows are in most
    masks: φφᵀ is summed over all rows, and over the rows outside a mask, to be subtracted.
    """

    def __init__(self, masks: Bits, group: NDArray[np.int64], half: int, cut: int, room: int) -> None:
        g, m = len(masks), len(group)
        self._masks, self._group, self._cut = masks, group, cut
        self._outside = np.array([count(mask) > 0.5 * half for mask in masks])
        self._A = np.zeros((2, g + 1, room, room))
        self._P = np.zeros((2, room, g + m))
        self._N = np.zeros((2, g), np.int64)
        self._y, self._yy = np.zeros((2, m)), np.zeros((2, m))

    def add(self, start: int, at: NDArray[np.int64], value: Array, Y: Array) -> None:
        """Rows from ``start`` on, all on one side of the cut: places of features, their values, and G (m, B)."""
        from emphatic.scores import kernels

        part, mask = int(start >= self._cut), unpack(self._masks, start, start + len(at))
        own = np.where(mask[self._group], Y, 0.0)
        every = np.full((1, len(at)), self._outside.any())
        kernels.gram(
            at, value, np.ascontiguousarray(np.vstack([every, mask ^ self._outside[:, None]]).T), self._A[part]
        )
        kernels.project(at, value, np.ascontiguousarray(np.concatenate([mask, own]).T, np.float64), self._P[part])
        self._N[part] += mask.sum(axis=1)
        self._y[part] += own.sum(axis=1)
        self._yy[part] += (own**2).sum(axis=1)

    def of_mask(self, u: int, order: NDArray[np.int64]) -> tuple[Sums, Sums]:
        """The sums of mask u, before the cut and after, with features in this order of their places."""
        g, own = len(self._masks), self._group == u
        both = []
        for part in (0, 1):
            A = self._A[part, u + 1][np.ix_(order, order)]
            if self._outside[u]:
                A = self._A[part, 0][np.ix_(order, order)] - A
            P = self._P[part][order]
            both.append(
                Sums(
                    int(self._N[part, u]), P[:, u], _whole(A), P[:, g:][:, own], self._y[part, own], self._yy[part, own]
                )
            )
        return both[0], both[1]


def _whole(A: Array) -> Array:
    """Both sides of the diagonal."""
    return A + A.T - np.diag(np.diag(A))


def blocks(phi: Features, T: int) -> Iterator[tuple[int, int, NDArray[np.int64], Array]]:
    """(start, stop, indices, values) of the first T rows."""
    start = 0
    for block in phi():
        index, value = np.ascontiguousarray(block.indices), np.ascontiguousarray(block.values)
        stop = min(start + len(index), T)
        yield start, stop, index[: stop - start], value[: stop - start]
        start = stop
        if start == T:
            return
    if start < T:
        raise refusal("phi", "offline", f"give {T} rows", f"{start}")
