"""Combines several answers to one question into one that does not lose to the best of them.

The answers v_i to a question are those of its learners, one for each rate; those of its ridges, one for each strength
(``emphatic.hordes.ridges``); the present reading; and its trace over the horizon. Two more are made of these: blends
p_j = m + Σ_i w_i (v_i − m), m being the running mean of the readings, whose weights minimise the mean of (G − p_j)²
with a ridge towards the shares below, of 20 or of 100 horizons' worth of evidence. The prediction is

    p = Σ share_i v_i,   share_i ∝ (mean of (G − v_i)²)^−k,   k = min(8, 0.3 · the horizons seen)

over all of them and m. A blend may be much better than every answer that it is made of, or much worse where there is
little evidence; but its share rests on what it predicted before it knew, as that of every other answer does. As k is
not large, answers that are about equally good are averaged, which is better than any of them, and one that was best by
chance does not win all.

G, the return, is not known yet, but differences of errors are, from TD errors, for they telescope. With u = v − m,

    d_t = (1 − γ) x_{t+1} + γ p_{t+1} − p_t,    z_t = γ z_{t−1} + u_t,    Σ_t (G_t − p_t) u_t ≈ Σ_t d_t z_t
    (G − v)² − (G − m)² = u² − 2 (G − m) u,     E (G − p)² ≈ E d² / (1 − γ²)

Averages forget: a step's weight grows with its number. Shares and weights are found every 16 steps that are learned
from, or every h/8 if those are more. Every v_i, and p, is kept within the readings so far and half their range beyond.
Where a reading is missing, or does not follow the row before, nothing is learned and z starts again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Combination"]

Array = NDArray[np.float64]

#: The largest k, k for each horizon seen, the least share of the error of p that an answer's is taken for; and the
#: horizons' worth of evidence that the blends' ridges count for.
CONSTANTS = (8.0, 0.3, 0.05, 20.0, 100.0)
#: The state of a question: see the kernel.
_SCALARS, _BLENDS = 12, 2


class Combination:
    """The answers of Q questions, E each besides the reading and its trace, and their state from row to row."""

    def __init__(self, gamma: Array, E: int) -> None:
        Q, E = len(gamma), E + 2
        self.gamma = np.ascontiguousarray(gamma, np.float64)
        self.scalars = np.zeros((Q, _SCALARS))
        #: share, u, z, b and the mean of u² of each answer
        self.vectors = np.zeros((Q, 5, E + _BLENDS))
        self.blends = np.zeros((Q, _BLENDS, E))
        self.products = np.zeros((Q, E, E))

    def __call__(self, V: Array, x: Array, follows: NDArray[np.bool_]) -> tuple[Array, Array]:
        """The predictions (B, Q) at B rows, and the single answers (B, Q, E + 2), within bounds.

        V is (B, Q, E), the readings x (B, Q), NaN where missing; ``follows`` marks the rows that follow the one before.
        """
        from emphatic.hordes import blend_kernels

        out, single = np.empty(x.shape), np.empty((*x.shape, self.products.shape[1]))
        blend_kernels.combine(
            np.ascontiguousarray(V), np.ascontiguousarray(x), np.ascontiguousarray(follows), self.gamma,
            np.array(CONSTANTS), self.scalars, self.vectors, self.blends, self.products, out, single,
        )  # fmt: skip
        return out, single

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The state, by name."""
        return {
            "scalars": self.scalars, "vectors": self.vectors, "blends": self.blends, "products": self.products
        }  # fmt: skip

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Restore what ``arrays`` returned; ValueError if it does not fit."""
        for name, own in self.arrays().items():
            stored = arrays[name]
            if stored.shape != own.shape or stored.dtype != own.dtype or not np.isfinite(stored).all():
                raise ValueError(f"its {name!r} of the combination do not fit")
            own[:] = stored
