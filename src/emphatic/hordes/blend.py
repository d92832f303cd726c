"""Combines several predictions of one question into one, weighted by how accurate each has been so far.

A question is answered by learners with different step sizes; no step size is best for every signal. There are also
two answers that need no learning: the present reading x, and its trace over the horizon. The answer is

    p = m + Σ_i w_i (v_i − m)

with m the running mean of the readings. The weights minimise the mean of (G − p)² + ridge |w|², G being the return
(in the unit of the signal, Σ (1 − γ) γᵏ x). G is not known yet, but Σ_t (G_t − p_t) u_t is, from TD errors, for the
differences telescope: with u = v − m,

    d_t = (1 − γ) x_{t+1} + γ p_{t+1} − p_t,    z_t = γ z_{t−1} + u_t,    Σ_t (G_t − p_t) u_t ≈ Σ_t d_t z_t

so that w solves (avg u uᵀ + ridge) w = avg (d z + (p − m) u). Averages forget: a step's weight grows with its number.
The ridge, KAPPA · avg d² / (1 − γ²) · h / t, is the noise of that many horizons' worth of evidence. w is 0 at first,
and solved for every 16 steps that are learned from, or every h/8 if those are more. Every v_i, and p, is kept within
the readings so far and half their range beyond: a learner that diverges does no harm. Where a reading is missing, or
does not follow the row before, nothing is learned and z starts again; the last reading is used in its place. Before
the first reading the answer is that of the middle learner. Where an episode has terminated p is 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Blend"]

Array = NDArray[np.float64]

#: How many horizons' worth of evidence the prior p = m counts for.
KAPPA = 5.0
#: The state of a question: see the kernel.
_SCALARS = 10


class Blend:
    """The blends of Q questions with E answers each, and their state from row to row."""

    def __init__(self, gamma: Array, E: int) -> None:
        Q = len(gamma)
        self.gamma = np.ascontiguousarray(gamma, np.float64)
        self.scalars = np.zeros((Q, _SCALARS))
        #: w, u, z, b of each question
        self.vectors = np.zeros((Q, 4, E + 2))
        self.products = np.zeros((Q, E + 2, E + 2))

    def __call__(self, V: Array, x: Array, follows: NDArray[np.bool_], ends: NDArray[np.bool_] | None = None) -> Array:
        """The answers (B, Q) to B rows, from V (B, Q, E) and the readings x (B, Q), NaN where missing.

        ``follows`` (B,) marks the rows that follow the row before, ``ends`` (B,) those in which an episode terminates.
        """
        from emphatic.hordes import blend_kernels

        out = np.empty(x.shape)
        blend_kernels.blend(
            np.ascontiguousarray(V), np.ascontiguousarray(x), np.ascontiguousarray(follows),
            np.zeros(len(x), bool) if ends is None else ends, self.gamma, KAPPA, self.scalars, self.vectors,
            self.products, out,
        )  # fmt: skip
        return out

    @property
    def weights(self) -> Array:
        """w of each question, (Q, E + 2): of its learners, of the present reading and of its trace."""
        return self.vectors[:, 0].copy()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The state, by name."""
        return {"scalars": self.scalars, "vectors": self.vectors, "products": self.products}

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Restore what ``arrays`` returned; ValueError if it does not fit."""
        for name, own in self.arrays().items():
            stored = arrays[name]
            if stored.shape != own.shape or stored.dtype != own.dtype or not np.isfinite(stored).all():
                raise ValueError(f"its {name!r} of the blend do not fit")
            own[:] = stored
