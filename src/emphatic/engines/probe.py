"""The error of weights against known values, at a cost that does not grow with the number of states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Probe"]


@dataclass(frozen=True, eq=False)
class Probe:
    """The root mean square value error sqrt(Σ d (Phi_s θ − v)² / Σ d) of any θ, as ‖U θ − q‖.

    ``R`` is [U | q], the triangle of a QR decomposition of sqrt(d/Σd)·[Phi_s | v]: an orthogonal transform preserves
    the length of Phi_s θ − v, and is as exact as the sum over states itself. It has min(S, n+1) rows, of which row i is
    0 before column i: n(n+1)/2 products for each θ, whatever S. The error that no θ can remove is in row n.

    ``R`` is (1, rows, n+1) where all learners have the same values and weights, else (K, rows, n+1).

    Where the squares overflow, the error is infinity.
    """

    R: NDArray[np.float64]

    @staticmethod
    def of(Phi_s: NDArray[np.float64], v: NDArray[np.float64], d: NDArray[np.float64]) -> Probe:
        """The probe of these states' features, values and weights, both (S,), or one of them or both (K, S)."""
        v, d = np.broadcast_arrays(np.atleast_2d(v), np.atleast_2d(d))
        made = []
        for own, weight in zip(v, d, strict=True):
            weighted = np.sqrt(weight / weight.sum())[:, None] * np.column_stack([Phi_s, own])
            made.append(np.linalg.qr(weighted, mode="r"))
        return Probe(np.ascontiguousarray(made))

    @property
    def shared(self) -> bool:
        """Whether all learners have one goal."""
        return len(self.R) == 1

    def __call__(self, theta: NDArray[Any], learners: Any = slice(None)) -> NDArray[np.float64]:
        """The error of each row of θ, those of these learners, (K,)."""
        with np.errstate(all="ignore"):
            x = theta.astype(np.float64)
            if self.shared:
                off = x @ self.R[0, :, :-1].T - self.R[0, :, -1]
            else:
                R = self.R[learners]
                off = (R[:, :, :-1] @ x[:, :, None])[:, :, 0] - R[:, :, -1]
            square = np.square(off).sum(axis=1)
            return np.where(square <= np.finfo(np.float64).max, np.sqrt(square), np.inf)
