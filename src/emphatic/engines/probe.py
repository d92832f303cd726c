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

    ``R`` is [U | q], the triangle of a QR decomposition of sqrt(d/Σd)·[Phi_s | v]: orthogonal, it leaves the length of
    Phi_s θ − v what it is, and is as exact as the sum over states itself. It has min(S, n+1) rows, of which row i is 0
    before column i: n(n+1)/2 products for each θ, whatever S. What no θ can do away with stands alone in row n.

    Where the squares overflow, the error is infinity.
    """

    R: NDArray[np.float64]

    @staticmethod
    def of(Phi_s: NDArray[np.float64], v: NDArray[np.float64], d: NDArray[np.float64]) -> Probe:
        """The probe of these states' features, values and weights."""
        weighted = np.sqrt(d / d.sum())[:, None] * np.column_stack([Phi_s, v])
        return Probe(np.ascontiguousarray(np.linalg.qr(weighted, mode="r")))

    def __call__(self, theta: NDArray[Any]) -> NDArray[np.float64]:
        """The error of each row of θ, (K,)."""
        with np.errstate(all="ignore"):
            square = np.square(theta.astype(np.float64) @ self.R[:, :-1].T - self.R[:, -1]).sum(axis=1)
            return np.where(square <= np.finfo(np.float64).max, np.sqrt(square), np.inf)
