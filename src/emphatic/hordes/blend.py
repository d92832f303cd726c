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

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.asking import return_kernels
from emphatic.engines.compiled import direct
from emphatic.hordes import blend_kernels

__all__ = ["WIDTH", "Blend", "Combination", "RateBlend", "make_lanes"]

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

#: How many horizons' worth of evidence the prior p = m counts for.
KAPPA = 5.0
#: The numbers that a question carries in a ``Blend`` and in a ``Combination``, and those of each answer and each
#: mixture of the latter: see the kernels.
_BLENDED, _COMBINED, _OF_ANSWERS, _OF_MIXTURES = 10, 15, 11, 4
#: The mixtures of a ``Combination``: by power of the errors, convex, and free.
_MIXTURES = 3
#: The answers that a ``Combination`` adds to those it is called with: reading, trace and mean.
_SAFE = 3
#: Vectors of answers that the kernel needs room for, and where the number of steps is that are learned from.
_ROOMS, _LEARNED = 9, 6
#: Questions that the kernel treats at a time.
WIDTH = 8
#: A row that follows the row before, or in which an answer is another one; and a row that does not.
_FOLLOWS, _NOT_RENEWED = np.ones(1, bool), np.zeros(1, bool)


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
        direct(blend_kernels.blend)(
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
    """Combines several answers to one question into one that a bad answer among them can harm little.

    The answers v_i to a question are those of its learners, one for each rate; those of its ridges, one for each
    strength (``emphatic.hordes.ridges``); and three safe ones, which need no learning: the present reading, its trace
    over the horizon, and the mean of the readings. All follows from the mean products of their errors,

        R_ij = mean of (G − v_i) (G − v_j)

    G, the return, is not known yet: what is missing of it is replaced by the prediction p at the last row, and moves
    with it. With d_t = (1 − γ) x_{t+1} + γ p_{t+1} − p_t the return of each row s ≤ t moves by γ^(t−s) d_t, and so R
    follows from sums alone. Means forget: a step's weight grows with its number. There are three mixtures
    c_k = Σ w_i v_i:

    1. w_i ∝ R_ii^−k with k = min(8, the horizons seen): about equally good answers are averaged, and answers that say
       the same count as one;
    2. w ≥ 0, Σ w = 1 that minimise wᵀRw with a ridge towards the first, of 60 horizons' worth of evidence;
    3. Σ w = 1 that minimise it with a ridge towards the second, of 20 horizons' worth.

    The prediction is p = Σ share_k c_k, share_k ∝ (mean of (G − c_k)²)^−k; the shares of the second and the third count
    less while there are fewer than some 200 horizons. A mixture may be much better than every answer that it is made
    of, or much worse; but its share rests on what it predicted before it knew. Weights and shares are found every 16
    steps that are learned from, or every h/8 or 1/1,024 of the steps so far if those are more; in the first 256 steps
    every 1/16 to 1/32 of them, or h/8.

    What limits the harm that an answer can do:

    - Every v_i, c_k and p is kept within the range of the trace and half its width beyond, or the present reading; and
      every c_k within the range of the answers at that row.
    - A bound that readings have reached ten times, as 0 is by meters and counts, is passed by none.
    - An answer that is suddenly far from all others, measured by how far it usually is, or that repeats itself exactly,
      or is no number, is pulled towards the others, as their errors weigh them, for as long; the further it is, the
      closer to them, by (limit / deviation)⁴. Its error is that of what it said.

    Where a reading is missing, or does not follow the row before, nothing is learned, and earlier returns stay as they
    are. Before the first reading the answer is that of the middle learner.

    Args:
        gamma: γ of each of the Q questions, (Q,).
        E: The number of answers that are combined, besides the safe ones.
    """

    def __init__(self, gamma: Array, E: int) -> None:
        Q, N = len(gamma), E + _SAFE
        self.E, self.gamma = E, np.ascontiguousarray(gamma, np.float64)
        shapes = {"scalars": (_COMBINED,), "vectors": (_OF_ANSWERS, N), "weights": (_MIXTURES, N)}
        shapes |= {"mixtures": (_OF_MIXTURES, _MIXTURES), "errors": (N, N)}
        #: What questions carry, as the kernel has it: in lanes. Of R, the errors, it has the lower half.
        count = -(-Q // WIDTH)
        self._lanes = {name: make_lanes(count, shape) for name, shape in shapes.items()}
        #: γ, and the steps learned from after which weights may have to be found.
        self._gamma, self._due = make_lanes(count, ()), make_lanes(count, ())
        self._gamma.reshape(-1)[:Q] = gamma
        # In the order of the kernel's arguments; all but γ are changed in place.
        self._state = self._gamma, self._due, *self._lanes.values()
        #: Where the kernel computes.
        self._room = make_lanes(1, (2 * N + _ROOMS, N))[0]
        self._none_fresh = np.zeros((1, Q, 0), bool)

    def __call__(
        self, V: Array, x: Array, follows: Flags, fresh: Flags | None = None, optional: int | None = None
    ) -> tuple[Array, Array]:
        """The predictions (B, Q) at B rows, and the single answers (B, Q, E + 2), within bounds.

        Args:
            V: The answers to be combined, (B, Q, E).
            x: The readings (B, Q), NaN where missing.
            follows: The rows (B,) that follow the row before.
            fresh: Where an answer is another one from this row on, (B, Q, E): what was known of it no longer holds, and
                it is taken for as good as the second best of the others. None: nowhere.
            optional: Answers from this one on are NaN where there is none, and in V the last ones before them stand in:
                a copy of the reading, or no answer at all, would harm a combination more. None: there are all.
        """
        E = self.E
        out, single = np.empty(x.shape), np.empty((*x.shape, E + 2))
        fresh = np.zeros((*x.shape, 0), bool) if fresh is None else np.ascontiguousarray(fresh, np.bool_)
        arrays = (
            np.ascontiguousarray(V, np.float64),
            fresh,
            fresh.any(axis=(1, 2)),  # most rows have none, and a look at each answer takes long
            E if optional is None else optional,
            np.ascontiguousarray(x, np.float64),
            np.ascontiguousarray(follows),
            *self._state,
            out,
            single,
        )
        direct(blend_kernels.combine)(*arrays, self._room)
        return out, single

    def row(self, V: Array, x: Array, fresh: Flags | None, optional: int, single: Array) -> Array:
        """A call with one row that follows the row before: the predictions (1, Q); all arrays are contiguous.

        Args:
            V: As in a call.
            x: As in a call.
            fresh: As in a call.
            optional: As in a call.
            single: Takes the single answers (1, Q, E + 2).
        """
        out = np.empty(x.shape)
        renewed = _NOT_RENEWED if fresh is None else _FOLLOWS
        fresh = self._none_fresh if fresh is None else fresh
        arrays = V, fresh, renewed, optional, x, _FOLLOWS, *self._state, out, single, self._room
        direct(blend_kernels.combine)(*arrays)
        return out

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The state, by name: a row for each question."""
        rows = {name: np.moveaxis(lanes, -1, 1) for name, lanes in self._lanes.items()}
        return {name: array.reshape(-1, *array.shape[2:])[: len(self.gamma)] for name, array in rows.items()}

    @property
    def weights(self) -> Array:
        """w of each question and mixture, (Q, 3, E + 3)."""
        return self.arrays()["weights"]

    @property
    def errors(self) -> Array:
        """R of each question, its lower half, (Q, E + 3, E + 3)."""
        return self.arrays()["errors"]

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore what ``arrays`` returned; ValueError if it does not fit."""
        state = self.arrays()
        _overwrite(state, arrays, "combination")
        for name, lanes in self._lanes.items():
            rows = np.zeros((lanes.shape[0] * lanes.shape[-1], *lanes.shape[1:-1]))
            rows[: len(self.gamma)] = state[name]
            lanes[:] = np.moveaxis(rows.reshape(len(lanes), WIDTH, *lanes.shape[1:-1]), 1, -1)
        self._due[:] = self._lanes["scalars"][:, _LEARNED] + 1.0


class RateBlend:
    """Combines the learners of questions whose γ varies, or that have a policy or a terminal value.

    Their returns are followed until less than a thousandth of their weight is missing (of weighted means, a hundredth).
    Each learner, and the mean of
    the returns so far, counts by (its mean squared error so far)⁻⁴; before 20 returns are known the middle rate
    answers. Of a question with a policy the returns are known of rows after which the log took that policy's actions.
    Every answer is kept within the returns so far and half their range beyond, or where the return is a weighted mean
    within the cumulants so far: a learner that diverges does little harm.

    Args:
        scale: What the cumulants of each question are multiplied by to make the return a weighted mean, (Q,); 0 where
            it is none.
        E: The number of learners of each.
    """

    def __init__(self, scale: Array, E: int) -> None:
        Q = len(scale)
        self._unit = np.where(scale > 0.0, 1.0 / np.where(scale > 0.0, scale, 1.0), 0.0)
        self.state = np.zeros((Q, return_kernels.RATE_SQUARES + E + 1))
        # (finite, for a file)
        self.state[:, return_kernels.RATE_LEAST], self.state[:, return_kernels.RATE_MOST] = 1e300, -1e300
        #: The rows whose return is not known yet.
        self.open_rows = np.zeros((Q, return_kernels.OPEN_ROWS, 3 + E + 1))

    def __call__(self, V: Array, R: Array, gamma: Array, taken: Flags, follows: Flags) -> Array:
        """The answers (B, Q) to B rows.

        Args:
            V: The answers to be combined, (B, Q, E).
            R: The cumulants of the steps that end in the rows, (B, Q), NaN where unknown.
            gamma: γ of these steps, (B, Q).
            taken: Where the question's policy takes the action of the step, (B, Q).
            follows: The rows (B,) that end a step that is learned from.
        """
        out = np.empty(V.shape[:2])
        R, gamma = (np.ascontiguousarray(np.broadcast_to(array, out.shape), np.float64) for array in (R, gamma))
        taken = np.ascontiguousarray(np.broadcast_to(taken, out.shape))
        V, follows = np.ascontiguousarray(V, np.float64), np.ascontiguousarray(follows)
        return_kernels.blend_rates(V, R, gamma, taken, follows, self._unit, self.state, self.open_rows, out)
        return out

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The state, by name."""
        return {"state": self.state, "open_rows": self.open_rows}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore what ``arrays`` returned; ValueError if it does not fit."""
        _overwrite(self.arrays(), arrays, "rates")


def make_lanes(count: int, shape: tuple[int, ...]) -> Array:
    """Zeros of this shape for so many bundles of questions in lanes, (count, …, WIDTH): none across two cache lines.

    Args:
        count: The number of bundles.
        shape: The shape of what a question has.
    """
    size = count * WIDTH * math.prod(shape)
    memory = np.zeros(size + WIDTH)
    begin = -memory.ctypes.data // memory.itemsize % WIDTH
    return memory[begin : begin + size].reshape(count, *shape, WIDTH)


def _overwrite(state: Mapping[str, NDArray[Any]], saved: Mapping[str, NDArray[Any]], what: str) -> None:
    """Overwrite arrays with those of a file; ValueError if one does not fit."""
    for name, array in state.items():
        stored = saved[name]
        if stored.shape != array.shape or stored.dtype != array.dtype or not np.isfinite(stored).all():
            raise ValueError(f"its {name!r} of the {what} do not fit")
        array[:] = stored
