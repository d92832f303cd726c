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

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Blend", "Combination"]

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

#: How many horizons' worth of evidence the prior p = m counts for.
KAPPA = 5.0
#: The largest k, k for each horizon seen, the least share of the error of p that an answer's is taken for; and the
#: horizons' worth of evidence that the blends' ridges count for.
CONSTANTS = (8.0, 0.3, 0.05, 20.0, 100.0)
#: The numbers that a question carries in a ``Blend`` and in a ``Combination``: see the kernels.
_BLENDED, _COMBINED = 10, 12
#: The blends among the answers of a ``Combination``.
_BLENDS = 2


class Blend:
    """The blends of Q questions with E answers each, and their state from row to row.

    Args:
        gamma: γ of each question, (Q,).
        E: The number of answers that are blended, besides the reading and its trace.
    """

    def __init__(self, gamma: Array, E: int) -> None:
        Q = len(gamma)
        self.gamma = np.ascontiguousarray(gamma, np.float64)
        self.scalars = np.zeros((Q, _BLENDED))
        #: w, u, z, b of each question
        self.vectors = np.zeros((Q, 4, E + 2))
        self.products = np.zeros((Q, E + 2, E + 2))

    def __call__(self, V: Array, x: Array, follows: Flags, ends: Flags | None = None) -> Array:
        """The answers (B, Q) to B rows.

        Args:
            V: The answers to be blended, (B, Q, E).
            x: The readings (B, Q), NaN where missing.
            follows: The rows (B,) that follow the row before.
            ends: The rows (B,) in which an episode terminates; none by default.
        """
        out = np.empty(x.shape)
        _kernel("blend")(
            np.ascontiguousarray(V, np.float64),
            np.ascontiguousarray(x, np.float64),
            np.ascontiguousarray(follows),
            np.zeros(len(x), bool) if ends is None else ends,
            self.gamma,
            KAPPA,
            self.scalars,
            self.vectors,
            self.products,
            out,
        )
        return out

    @property
    def weights(self) -> Array:
        """w of each question, (Q, E + 2): of its learners, of the present reading and of its trace."""
        return self.vectors[:, 0].copy()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The state, by name."""
        return {"scalars": self.scalars, "vectors": self.vectors, "products": self.products}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore what ``arrays`` returned; ValueError if it does not fit."""
        _overwrite(self.arrays(), arrays, "blend")


class Combination:
    """Combines several answers to one question into one that does not lose to the best of them.

    The answers v_i to a question are those of its learners, one for each rate; those of its ridges, one for each
    strength (``emphatic.hordes.ridges``); the present reading; and its trace over the horizon. Two more are made of
    these: blends p_j = m + Σ_i w_i (v_i − m), m being the running mean of the readings, whose weights minimise the mean
    of (G − p_j)² with a ridge towards the shares below, of 20 or of 100 horizons' worth of evidence. The prediction is

        p = Σ share_i v_i,   share_i ∝ (mean of (G − v_i)²)^−k,   k = min(8, 0.3 · the horizons seen)

    over all of them and m. A blend may be much better than every answer that it is made of, or much worse where there
    is little evidence; but its share rests on what it predicted before it knew, as that of every other answer does. As
    k is not large, answers that are about equally good are averaged, which is better than any of them, and one that was
    best by chance does not win all.

    G, the return, is not known yet, but differences of errors are, from TD errors, for they telescope. With u = v − m,

        d_t = (1 − γ) x_{t+1} + γ p_{t+1} − p_t,    z_t = γ z_{t−1} + u_t,    Σ_t (G_t − p_t) u_t ≈ Σ_t d_t z_t
        (G − v)² − (G − m)² = u² − 2 (G − m) u,     E (G − p)² ≈ E d² / (1 − γ²)

    Averages forget: a step's weight grows with its number. Shares and weights are found every 16 steps that are learned
    from, or every h/8 if those are more. Every v_i, and p, is kept within the readings so far and half their range
    beyond. Where a reading is missing, or does not follow the row before, nothing is learned and z starts again.

    Args:
        gamma: γ of each of the Q questions, (Q,).
        E: The number of answers that are combined, besides the reading and its trace.
    """

    def __init__(self, gamma: Array, E: int) -> None:
        Q, E = len(gamma), E + 2
        self.gamma = np.ascontiguousarray(gamma, np.float64)
        self.scalars = np.zeros((Q, _COMBINED))
        #: share, u, z, b and the mean of u² of each answer
        self.vectors = np.zeros((Q, 5, E + _BLENDS))
        self.blends = np.zeros((Q, _BLENDS, E))
        self.products = np.zeros((Q, E, E))
        self._constants = np.array(CONSTANTS)

    def __call__(self, V: Array, x: Array, follows: Flags) -> tuple[Array, Array]:
        """The predictions (B, Q) at B rows, and the single answers (B, Q, E + 2), within bounds.

        Args:
            V: The answers to be combined, (B, Q, E).
            x: The readings (B, Q), NaN where missing.
            follows: The rows (B,) that follow the row before.
        """
        out, single = np.empty(x.shape), np.empty((*x.shape, self.products.shape[1]))
        _kernel("combine")(
            np.ascontiguousarray(V, np.float64),
            np.ascontiguousarray(x, np.float64),
            np.ascontiguousarray(follows),
            self.gamma,
            self._constants,
            self.scalars,
            self.vectors,
            self.blends,
            self.products,
            out,
            single,
        )
        return out, single

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The state, by name."""
        return {"scalars": self.scalars, "vectors": self.vectors, "blends": self.blends, "products": self.products}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore what ``arrays`` returned; ValueError if it does not fit."""
        _overwrite(self.arrays(), arrays, "combination")


def _overwrite(state: Mapping[str, NDArray[Any]], saved: Mapping[str, NDArray[Any]], what: str) -> None:
    """Overwrite arrays with those of a file; ValueError if one does not fit."""
    for name, array in state.items():
        stored = saved[name]
        if stored.shape != array.shape or stored.dtype != array.dtype or not np.isfinite(stored).all():
            raise ValueError(f"its {name!r} of the {what} do not fit")
        array[:] = stored


@cache
def _kernel(name: str) -> Any:
    """A kernel, called without a look at its arguments: ``Blend`` and ``Combination`` make all of them."""
    from emphatic.engines.compiled import direct
    from emphatic.hordes import blend_kernels  # late: it imports numba

    return direct(getattr(blend_kernels, name))
