"""Simulation: a table of the possible outcomes of every state, and a compiled walk through it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emphatic.learning.inputs import whole
from emphatic.problems.checks import FloatArray, seeds
from emphatic.problems.stream import Stream

if TYPE_CHECKING:
    from emphatic.problems.mdp import MDP

__all__ = ["Outcomes", "outcomes", "simulate"]

IntArray = NDArray[np.int64]


class Outcomes(NamedTuple):
    """What can follow each state under μ: an action, then a state or an end and the next episode's first state.

    Outcomes first[s] … first[s+1] − 1 are those of state s, and of s = S the first states, of which only
    ``following`` is given; ``share`` and ``other`` are alias tables.
    """

    first: IntArray
    share: FloatArray
    other: IntArray
    following: IntArray
    action: IntArray
    R: FloatArray
    gamma_next: FloatArray
    pi: FloatArray
    mu: FloatArray


def outcomes(mdp: MDP) -> Outcomes:
    """The table of an MDP, with one more row for the start."""
    S = mdp.S
    chance = mdp.mu[:, :, None] * mdp.P
    s, a, x = np.nonzero(chance)
    ends = x == S
    # An end is followed by each possible first state: a step then needs no second draw.
    begin = np.flatnonzero(mdp.start)
    times = np.where(ends, len(begin), 1)
    s, a, x, ends = (np.repeat(part, times) for part in (s, a, x, ends))
    weight = chance[s, a, x]
    following = x.copy()
    following[ends] = np.tile(begin, int(ends.sum()) // len(begin))
    weight[ends] *= mdp.start[following[ends]]
    first = np.concatenate([[0], np.cumsum(np.bincount(s, minlength=S)), [len(s) + len(begin)]])
    share, other = alias(np.concatenate([weight, mdp.start[begin]]), first)
    gamma_next = np.where(ends, 0.0, mdp.gamma[following])
    following = np.concatenate([following, begin])
    return Outcomes(first, share, other, following, a, mdp.R[s, a, x], gamma_next, mdp.pi[s, a], mdp.mu[s, a])


def alias(weight: FloatArray, first: IntArray) -> tuple[FloatArray, IntArray]:
    """Of each group of outcomes: the share of its own place that an outcome keeps, and which one has the rest.

    Walker (1977): what exceeds the mean in one outcome fills up those below it, so that a draw is two look-ups.
    """
    share, other = np.ones(len(weight)), np.arange(len(weight))
    for begin, end in zip(first[:-1].tolist(), first[1:].tolist(), strict=True):
        left = (weight[begin:end] / weight[begin:end].mean()).tolist()
        low = [k for k, w in enumerate(left) if w < 1.0]
        high = [k for k, w in enumerate(left) if w >= 1.0]
        while low and high:
            k, rich = low.pop(), high[-1]
            share[begin + k], other[begin + k] = left[k], begin + rich
            left[rich] -= 1.0 - left[k]
            if left[rich] < 1.0:
                low.append(high.pop())
    return share, other


def simulate(mdp: MDP, table: Outcomes, T: int, seed: Any, runs: int | None) -> Stream:
    """``MDP.simulate``."""
    from emphatic.problems.kernels import walk  # late: numba is imported on first use

    T = whole("T", T, "simulate")
    R = 1 if runs is None else whole("runs", runs, "simulate")
    root = seeds(seed, "simulate")
    chosen = np.empty((R, T), np.int64)
    states, actions, Phi = np.empty((R, T + 1), np.int64), np.empty((R, T), np.int64), np.empty((R, T + 1, mdp.n))
    u = np.empty(T + 1)
    for i in range(R):
        # A spawn key, so that a problem whose features come from the same seed does not draw the same numbers.
        sequence = np.random.SeedSequence(root if runs is None else (*root, i), spawn_key=(1,))
        np.random.default_rng(sequence).random(out=u)
        walk(
            u, table.first, table.share, table.other, table.following, table.action, mdp.Phi,
            chosen[i], states[i], actions[i], Phi[i],
        )  # fmt: skip
    per_outcome = (table.R, table.gamma_next, table.pi / table.mu, table.pi, table.mu)
    made = [_each(values, chosen) for values in per_outcome]
    now, following = states[:, :-1], states[:, 1:]
    made += [_each(mdp.I, now), _each(mdp.lambda_, now), _each(mdp.lambda_, following), _each(mdp.defined, now)]
    arrays = [states, actions, Phi, *made]
    return Stream(*(arrays if runs is not None else [array[0] for array in arrays]))


def _each(values: NDArray[Any], at: IntArray) -> NDArray[Any]:
    """values[at], taking no memory where they are all the same."""
    if (values == values[0]).all():
        return np.broadcast_to(values[0], at.shape)
    return values[at]
