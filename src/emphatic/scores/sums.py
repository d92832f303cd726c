"""Sums over the rows of a log, gathered from the active features of each: all that least squares needs of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emphatic.learning.inputs import Active, refusal
from emphatic.scores.masks import Bits, count, unpack

__all__ = ["Array", "Features", "MaskedSums", "Sums", "blocks"]

Array = NDArray[np.float64]
Features = Callable[[], Iterator[Active]]


class Sums(NamedTuple):
    """Sums over some rows: their number, φ, φφᵀ; of m questions φG, G and G²; and of the a answers u that each has
    besides: u (m, a), φu (n, m, a), uuᵀ (m, a, a) and uG (m, a)."""

    N: int
    s: Array
    A: Array
    b: Array
    y: Array
    yy: Array
    v: Array
    U: Array
    D: Array
    d: Array

    def about(self, phi: Array, G: Array, u: Array) -> Sums:
        """The same sums of φ − phi, G − G and u − u."""
        N, s, y, v = self.N, self.s, self.y, self.v
        A = self.A - np.outer(s, phi) - np.outer(phi, s) + N * np.outer(phi, phi)
        b = self.b - np.outer(s, G) - np.outer(phi, y) + N * np.outer(phi, G)
        U = self.U - np.multiply.outer(s, u) - np.multiply.outer(phi, v) + N * np.multiply.outer(phi, u)
        D = self.D - v[:, :, None] * u[:, None] - u[:, :, None] * v[:, None] + N * u[:, :, None] * u[:, None]
        d = self.d - v * G[:, None] - u * y[:, None] + N * u * G[:, None]
        return Sums(
            N, s - N * phi, A, b, y - N * G, self.yy - 2 * G * y + N * G**2, v - N * u, U, D, d
        )  # fmt: skip

    def plus(self, more: Sums) -> Sums:
        """The sums over these rows and more."""
        both: list[Any] = [own + other for own, other in zip(tuple(self), tuple(more), strict=True)]  # type: ignore[operator]
        return Sums(*both)

    def of(self, questions: NDArray[np.bool_]) -> Sums:
        """The same of some questions."""
        b, y, yy, v = self.b[:, questions], self.y[questions], self.yy[questions], self.v[questions]
        return Sums(
            self.N, self.s, self.A, b, y, yy, v, self.U[:, questions], self.D[questions], self.d[questions]
        )  # fmt: skip

    @property
    def means(self) -> tuple[Array, Array, Array]:
        """Of φ, G and u."""
        return self.s / self.N, self.y / self.N, self.v / self.N


class MaskedSums:
    """Sums over the first half of a log for g masks (g, bytes), of the rows before ``cut`` apart from those after.

    ``group`` says which mask each of m questions has, and ``a`` how many answers; there are at most ``room`` features.
    Most rows are in most masks: φφᵀ is summed over all rows, and over the rows outside a mask, to be subtracted.
    """

    def __init__(self, masks: Bits, group: NDArray[np.int64], half: int, cut: int, room: int, a: int) -> None:
        g, m = len(masks), len(group)
        self._masks, self._group, self._cut = masks, group, cut
        self._outside = np.array([count(mask) > 0.5 * half for mask in masks])
        self._A = np.zeros((2, g + 1, room, room))
        self._P = np.zeros((2, room, g + m + a * m))
        self._N = np.zeros((2, g), np.int64)
        self._y, self._yy = np.zeros((2, m)), np.zeros((2, m))
        self._v, self._D, self._d = np.zeros((2, m, a)), np.zeros((2, m, a, a)), np.zeros((2, m, a))

    def add(self, start: int, at: NDArray[np.int64], value: Array, Y: Array, answers: Array) -> None:
        """Rows from ``start`` on, all on one side of the cut: places of features, their values, G (m, B) and answers
        (a, m, B)."""
        from emphatic.scores import kernels

        part, mask = int(start >= self._cut), unpack(self._masks, start, start + len(at))
        own = np.where(mask[self._group], Y, 0.0)
        u = np.where(mask[self._group], answers, 0.0)
        every = np.full((1, len(at)), self._outside.any())
        kernels.gram(
            at, value, np.ascontiguousarray(np.vstack([every, mask ^ self._outside[:, None]]).T), self._A[part]
        )
        columns = np.concatenate([mask, own, u.reshape(-1, len(at))])
        kernels.project(at, value, np.ascontiguousarray(columns.T, np.float64), self._P[part])
        self._N[part] += mask.sum(axis=1)
        self._y[part] += own.sum(axis=1)
        self._yy[part] += (own**2).sum(axis=1)
        self._v[part] += u.sum(axis=2).T
        self._D[part] += np.einsum("amt,bmt->mab", u, u)
        self._d[part] += np.einsum("amt,mt->ma", u, own)

    def of_mask(self, u: int, order: NDArray[np.int64]) -> tuple[Sums, Sums]:
        """The sums of mask u, before the cut and after, with features in this order of their places."""
        g, m, own = len(self._masks), len(self._group), self._group == u
        both = []
        for part in (0, 1):
            A = self._A[part, u + 1][np.ix_(order, order)]
            if self._outside[u]:
                A = self._A[part, 0][np.ix_(order, order)] - A
            P = self._P[part][order]
            U = P[:, g + m :].reshape(len(order), -1, m).transpose(0, 2, 1)
            both.append(
                Sums(
                    int(self._N[part, u]),
                    P[:, u],
                    _whole(A),
                    P[:, g : g + m][:, own],
                    self._y[part, own],
                    self._yy[part, own],
                    self._v[part, own],
                    U[:, own],
                    self._D[part, own],
                    self._d[part, own],
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
