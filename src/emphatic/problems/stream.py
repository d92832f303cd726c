"""Experience sampled from an ``MDP``, in the form that ``Learner.run`` expects.

Simulation is a table of the possible outcomes of every state, and a compiled walk through it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emphatic import rules
from emphatic.learning.inputs import refusal, whole

if TYPE_CHECKING:
    from emphatic.problems.mdp import MDP

__all__ = ["FloatArray", "Outcomes", "Stream", "outcomes", "seeds", "simulate"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Stream:
    """One run of T steps, or several with a leading axis on every array: ``stream[i]`` is then run i.

    Row t of each array is step t: φ_t, A_t, R_{t+1}, γ_{t+1}, and so on; ``states`` and ``Phi`` have one more row.
    Where an episode ends γ_{t+1} is 0 and the next row is the first state of the next episode, so no row is spent on
    an end. For ``Tasks`` the arrays from ``R`` on are (T, K).

    Where the target policy is undefined ρ = I = 0; as that alone does not keep every rule from learning (w of a
    gradient rule continues to move), the step size should be 0 there too: ``alpha=0.01 * stream.active``.

    Args:
        states: The states S_0 … S_T, (T+1,).
        actions: The actions A_t, (T,).
        Phi: The features of the states, (T+1, n).
        R: The rewards R_{t+1}, (T,).
        gamma_next: The discounts γ_{t+1}, (T,).
        rho: The ratios π/μ of the actions, (T,).
        pi: The target policy's probabilities of the actions, (T,).
        mu: The behaviour policy's probabilities of the actions, (T,).
        I: The interest in S_t, (T,).
        lambda_: λ of S_t, (T,).
        lambda_next: λ of S_{t+1}, (T,).
        active: Where the target policy is defined, (T,).

    >>> from emphatic import Learner, problems
    >>> stream = problems.collision().simulate(1000)
    >>> learner = Learner("td", 6, engine="reference")
    >>> learner.run(**stream.inputs("td"), alpha=0.01).shape
    (1000,)
    """

    states: NDArray[np.int64]
    actions: NDArray[np.int64]
    Phi: FloatArray
    R: FloatArray
    gamma_next: FloatArray
    rho: FloatArray
    pi: FloatArray
    mu: FloatArray
    I: FloatArray
    lambda_: FloatArray
    lambda_next: FloatArray
    active: NDArray[np.bool_]

    @property
    def T(self) -> int:
        """The number of steps of a run."""
        return int(self.actions.shape[-1])

    @property
    def runs(self) -> int | None:
        """The number of runs; None for a single run without that axis."""
        return len(self.actions) if self.actions.ndim == 2 else None

    def __len__(self) -> int:
        """How many runs, or the steps of a single one."""
        return len(self.R)

    def __getitem__(self, i: int) -> Stream:
        """Run i."""
        if self.runs is None:
            raise TypeError("This stream is a single run: its arrays are its fields, stream.R, stream.Phi, ….")
        return Stream(*(getattr(self, field.name)[i] for field in fields(self)))

    def __iter__(self) -> Iterator[Stream]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        runs = "" if self.runs is None else f"runs={self.runs}, "
        return f"Stream({runs}T={self.T}, n={self.Phi.shape[-1]})"

    def inputs(self, rule: str | rules.AnyRule) -> dict[str, Any]:
        """Keywords for ``Learner.run``: everything that the rule takes except α and its own parameters (β, ξ, …).

        ``stream.inputs(rule) | {"lambda_": 0.9}`` has another λ. λ' is left to follow it unless the MDP's λ varies.

        Args:
            rule: A rule, or the name of one.
        """
        of = rules.get(rule) if isinstance(rule, str) else rule
        if self.runs is not None:
            raise ValueError(f"'inputs' is for a single run and this stream has {self.runs}: use stream[i].inputs(…).")
        if of.action_values and (self.rho != 1.0).any():
            raise ValueError(
                f"{of.name} learns values of states and actions, and these are features of states: "
                "off-policy it would learn those of the behaviour policy. Give it φ(s, a) and φ̄' = Σ_a π(a|s')φ(s', a) "
                "of your own."
            )
        names = ("Phi", "R", "gamma_next", "rho", "lambda_", *("I",) * of.interest)
        varies = bool((self.lambda_ != self.lambda_next).any())
        names += tuple(name for name in ("lambda_next",) * varies + ("pi", "mu") if name in of.extra)
        return {name: getattr(self, name) for name in names}


def seeds(seed: object, function: str) -> tuple[int, ...]:
    """The whole numbers of a seed, one or several."""
    entropy = tuple(seed) if isinstance(seed, Sequence | np.ndarray) and not isinstance(seed, str) else (seed,)
    whole_numbers = [word for word in entropy if isinstance(word, int | np.integer) and not isinstance(word, bool)]
    if not entropy or len(whole_numbers) < len(entropy) or min(whole_numbers) < 0:
        raise refusal("seed", function, "be a whole number of 0 or more, or several", repr(seed))
    return tuple(int(word) for word in entropy)


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
    s, a, x, ends = (np.repeat(column, times) for column in (s, a, x, ends))
    weight = chance[s, a, x]
    next_state = x.copy()
    next_state[ends] = np.tile(begin, int(ends.sum()) // len(begin))
    weight[ends] *= mdp.start[next_state[ends]]
    starts = np.concatenate([[0], np.cumsum(np.bincount(s, minlength=S)), [len(s) + len(begin)]])
    share, alias = alias_tables(np.concatenate([weight, mdp.start[begin]]), starts)
    gamma_next = np.where(ends, 0.0, mdp.gamma[next_state])
    next_state = np.concatenate([next_state, begin])
    return Outcomes(starts, share, alias, next_state, a, mdp.R[s, a, x], gamma_next, mdp.pi[s, a], mdp.mu[s, a])


def alias_tables(weight: FloatArray, starts: IntArray) -> tuple[FloatArray, IntArray]:
    """Of each group of outcomes: the share of its place that an outcome keeps, and which outcome has the remainder.

    Walker (1977): what exceeds the mean in one outcome fills up those below it, so that a draw is two look-ups.
    """
    share, alias = np.ones(len(weight)), np.arange(len(weight))
    for begin, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        left = (weight[begin:end] / weight[begin:end].mean()).tolist()
        low = [k for k, w in enumerate(left) if w < 1.0]
        high = [k for k, w in enumerate(left) if w >= 1.0]
        while low and high:
            k, rich = low.pop(), high[-1]
            share[begin + k], alias[begin + k] = left[k], begin + rich
            left[rich] -= 1.0 - left[k]
            if left[rich] < 1.0:
                low.append(high.pop())
    return share, alias


def simulate(mdp: MDP, table: Outcomes, T: int, seed: int | Sequence[int], runs: int | None) -> Stream:
    """``MDP.simulate``."""
    from emphatic.problems.kernels import walk  # late: numba is imported on first use

    T = whole("T", T, "simulate")
    R = 1 if runs is None else whole("runs", runs, "simulate")
    root = seeds(seed, "simulate")
    chosen = np.empty((R, T), np.int64)
    states, actions, Phi = np.empty((R, T + 1), np.int64), np.empty((R, T), np.int64), np.empty((R, T + 1, mdp.n))
    u = np.empty(T + 1)
    tables = (table.first, table.share, table.other, table.following, table.action, mdp.Phi)
    for i in range(R):
        # A spawn key, so that a problem whose features come from the same seed does not draw the same numbers.
        sequence = np.random.SeedSequence(root if runs is None else (*root, i), spawn_key=(1,))
        np.random.default_rng(sequence).random(out=u)
        walk(u, *tables, chosen[i], states[i], actions[i], Phi[i])
    per_outcome = (table.R, table.gamma_next, table.pi / table.mu, table.pi, table.mu)
    per_step = [_look_up(values, chosen) for values in per_outcome]
    s, s_next = states[:, :-1], states[:, 1:]
    per_step += [_look_up(mdp.I, s), _look_up(mdp.lambda_, s), _look_up(mdp.lambda_, s_next), _look_up(mdp.defined, s)]
    arrays = [states, actions, Phi, *per_step]
    return Stream(*(arrays if runs is not None else [array[0] for array in arrays]))


def _look_up(values: NDArray[Any], at: IntArray) -> NDArray[Any]:
    """values[at], taking no memory where they are all the same."""
    if (values == values[0]).all():
        return np.broadcast_to(values[0], at.shape)
    return values[at]
