"""Problems from the literature, as data.

The docstring of each problem says what its states, actions, policies, rewards and features are, what it is known for,
and where it comes from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from emphatic.learning.inputs import refusal, whole
from emphatic.problems.mdp import MDP
from emphatic.problems.stream import FloatArray, seeds

__all__ = ["THETA_0", "baird", "boyan", "chain", "collision", "example_9_4", "garnet", "random_walk", "two_theta"]

#: The weights that the published runs of Baird's counterexample begin with.
THETA_0 = (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 10.0, 1.0)


def two_theta(lambda_: ArrayLike = 0.0) -> MDP:
    """θ → 2θ: two states of one weight, whose values are θ and 2θ.

    States: two; either may be the first.
    Actions: left goes to the first state, right to the second.
    Policies: π goes right; μ goes either way, ½ each.
    Rewards and discount: R = 0, γ = .9.
    Features: φ = 1 and φ = 2.
    Known for: A = −.2 in off-policy TD(0), which diverges; A = 3.4 in ETD(0), which does not.
    Source: Sutton, Mahmood & White (2016), sections 3 and 4; Tsitsiklis & Van Roy (1997).

    Args:
        lambda_: λ, a number or one per state.

    >>> float(two_theta().A_matrix("td")[0, 0].round(12)), float(two_theta().A_matrix("etd")[0, 0].round(12))
    (-0.2, 3.4)
    """
    to = [[1.0, 0.0], [0.0, 1.0]]
    return MDP([to, to], 0.0, 0.9, [0.0, 1.0], [0.5, 0.5], [[1.0], [2.0]], lambda_=lambda_, name="two_theta")


def chain(lambda_: ArrayLike = 0.0, I: ArrayLike = 1.0) -> MDP:
    """Five states in a row with three features between them.

    States: five; the first is that on the left.
    Actions: left and right move one state; at the ends the outward one stays.
    Policies: π goes right; μ goes left with probability ⅔.
    Rewards and discount: R = 1 on every step, γ = (0, 1, 1, 1, 0).
    Features: (1, 0, 0), (1, 1, 0), (0, 1, 0), (0, 1, 1), (0, 0, 1).
    Known for: d_μ = (16, 8, 4, 2, 1)/31 but m = (16, 24, 28, 30, 1)/31: emphasis looks where π goes and μ seldom
        does, and leaves an MSVE of 1.73 where off-policy TD(0) leaves 2.88. The best possible is .67.
    Source: Sutton, Mahmood & White (2016), section 5.

    Args:
        lambda_: λ, a number or one per state.
        I: The interest, a number or one per state.

    >>> (chain().emphasis("etd") * 31).round(12).tolist()
    [16.0, 24.0, 28.0, 30.0, 1.0]
    """
    P = np.zeros((5, 2, 5))
    for s in range(5):
        P[s, 0, max(s - 1, 0)] = P[s, 1, min(s + 1, 4)] = 1.0
    Phi = [[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 1, 1], [0, 0, 1]]
    return MDP(
        P, 1.0, [0, 1, 1, 1, 0], [0, 1], [2 / 3, 1 / 3], Phi, I=I, lambda_=lambda_, start=[1, 0, 0, 0, 0], name="chain"
    )


def baird() -> MDP:
    """Seven states with eight weights, which could represent the values exactly.

    States: six upper and one lower; each may be the first.
    Actions: dashed goes to one of the upper states, ⅙ each; solid to the lower one.
    Policies: π goes solid; μ goes dashed with probability 6/7.
    Rewards and discount: R = 0, γ = .99.
    Features: the upper states have values 2θ_i + θ_8, the lower one θ_7 + 2θ_8.
    Known for: off-policy TD(0) and even its expected update diverge. From θ_0 = (1, 1, 1, 1, 1, 1, 10, 1)
        (``emphatic.problems.literature.THETA_0``) (1, 1, 1, 1, 1, 1, 4, −2)·θ stays 44 on every path, and expected
        emphatic updates lead to (22/13 six times, 88/13, −44/13). Sampled, emphatic TD has too much variance here.
    Source: Baird (1995); Sutton & Barto (2018), sections 11.2 and 11.8.

    >>> baird().is_positive_definite("td"), baird().is_positive_definite("etd")
    (False, True)
    """
    P = np.zeros((7, 2, 7))
    P[:, 0, :6] = 1 / 6
    P[:, 1, 6] = 1.0
    Phi = np.zeros((7, 8))
    Phi[range(6), range(6)] = 2.0
    Phi[:6, 7] = 1.0
    Phi[6, 6:] = 1.0, 2.0
    return MDP(P, 0.0, 0.99, [0.0, 1.0], [6 / 7, 1 / 7], Phi, name="baird")


def example_9_4(I: ArrayLike = (1.0, 0.0, 0.0, 0.0), lambda_: ArrayLike = 1.0) -> MDP:
    """Four states in a row, two to a feature, of which only the first is of interest.

    States: four and the end; an episode begins in the first.
    Actions: one, which leads to the next state.
    Policies: the same.
    Rewards and discount: R = 1 on every step, γ = 1: v_π = (4, 3, 2, 1).
    Features: (1, 0), (1, 0), (0, 1), (0, 1).
    Known for: with λ = 1 (Monte Carlo) θ_1 = 4, the interesting state's value, and θ_2 is never touched; with
        λ = (1, 1, 0, 1) (two-step) θ = (4, 2). Interest everywhere gives (3.5, 1.5) with λ = 1 and (3.25, 1.75) with
        λ = 0.
    Source: Sutton & Barto (2018), example 9.4 in section 9.11.

    Args:
        I: The interest, a number or one per state.
        lambda_: λ, a number or one per state.

    >>> example_9_4(lambda_=[1, 1, 0, 1]).fixed_point("etd").round(9).tolist()
    [4.0, 2.0]
    """
    P = np.eye(5)[1:].reshape(4, 1, 5)
    Phi = [[1, 0], [1, 0], [0, 1], [0, 1]]
    return MDP(P, 1.0, 1.0, [1.0], Phi=Phi, I=I, lambda_=lambda_, start=[1, 0, 0, 0], name="example_9_4")


def random_walk(states: int = 19, features: str = "tabular", rewards: tuple[float, float] = (-1.0, 1.0)) -> MDP:
    """States in a row between two exits, left and right equally likely.

    States: ``states`` of them, 3 or more; an episode begins in the middle.
    Actions: left and right move one state, and from the ends of the row end the episode.
    Policies: π = μ, ½ each: on-policy.
    Rewards and discount: ``rewards`` on leaving to the left and to the right, else 0; γ = 1.
    Features: "tabular", one per state; "inverted", all but that one, each 1/√(states − 1); "dependent", about half as
        many as states: the first n states have one more feature each, the others one less, all of length 1.
    Known for: v_π rises linearly from one exit's reward to the other's. 19 states compare TD(λ) algorithms (Sutton &
        Barto); 5 states with rewards (0, 1) and these three representations, gradient-TD algorithms (Sutton et al.).
    Source: Sutton & Barto (2018), examples 6.2 and 7.1, section 12.5; Sutton, Maei et al. (2009), section 8.

    Args:
        states: The number of states, 3 or more.
        features: "tabular", "inverted" or "dependent".
        rewards: The rewards on leaving to the left and to the right.

    >>> random_walk(3).v_pi.tolist(), random_walk(5, "dependent").n
    ([-0.5, 0.0, 0.5], 3)
    """
    S = whole("states", states, "random_walk")
    if S < 3:
        raise refusal("states", "random_walk", "be 3 or more", str(S))
    P, R = np.zeros((S, 2, S + 1)), np.zeros((S, 2))
    for s in range(S):
        P[s, 0, s - 1] = P[s, 1, s + 1] = 1.0  # −1 is the last column, the end
    if np.shape(rewards) != (2,):
        raise refusal("rewards", "random_walk", "be two numbers", repr(rewards))
    R[0, 0], R[-1, 1] = rewards
    if features == "tabular":
        Phi = np.eye(S)
    elif features == "inverted":
        Phi = (1.0 - np.eye(S)) / math.sqrt(S - 1)
    elif features == "dependent":
        n, row = S // 2 + 1, np.arange(S)[:, None]
        on = (np.arange(n) <= row) & (np.arange(n) > row - n)
        Phi = on / np.sqrt(on.sum(axis=1, keepdims=True))
    else:
        raise refusal("features", "random_walk", "be 'tabular', 'inverted' or 'dependent'", repr(features))
    start = np.arange(S) == S // 2
    return MDP(P, R, 1.0, [0.5, 0.5], Phi=Phi, start=start, name="random_walk")


def boyan() -> MDP:
    """A chain of thirteen states that is walked in steps of one or two.

    States: thirteen and the end; an episode begins in the first.
    Actions: one, which goes on by one state or two, ½ each; from the last but one to the last, and from there to
        the end.
    Policies: the same.
    Rewards and discount: R = −3 from the first eleven states, −2 from the next, 0 at the end; γ = 1.
    Features: four; states 1, 5, 9 and 13 have one each, and those in between are mixtures in steps of ¼.
    Known for: v_π = −24, −22, …, 0 is linear in the features, θ* = (−24, −16, −8, 0), so every TD algorithm can find
        it and only speed differs.
    Source: Boyan (2002), "Technical update: least-squares temporal difference learning".

    >>> boyan().v_pi.round(9).tolist()[:3], bool(abs(boyan().fixed_point("td") - [-24, -16, -8, 0]).max() < 1e-9)
    ([-24.0, -22.0, -20.0], True)
    """
    P, R = np.zeros((13, 1, 14)), np.full(13, -3.0)
    for s in range(11):
        P[s, 0, s + 1 : s + 3] = 0.5
    P[11, 0, 12] = P[12, 0, 13] = 1.0
    R[11:] = -2.0, 0.0
    Phi = np.maximum(0.0, 1.0 - np.abs(np.arange(13)[:, None] / 4 - np.arange(4)))
    return MDP(P, R, 1.0, [1.0], Phi=Phi, start=np.arange(13) == 0, name="boyan")


def collision(seed: int | Sequence[int] = 0) -> MDP:
    """Eight states in a row towards a wall; features are drawn from ``seed``.

    States: eight; an episode begins in one of the first four, ¼ each.
    Actions: forward moves one state, and from the last ends the episode; turn ends it.
    Policies: π goes forward; μ does in the first four states, and turns half of the time in the others.
    Rewards and discount: R = 1 for going forward from the last state, else 0; γ = .9.
    Features: six binary ones, three of them 1 in each state, each such choice equally likely.
    Known for: v_π(s) = .9^(8−s) and d_μ = (2, 4, 6, 8, 8, 4, 2, 1)/35; off-policy algorithms differ in speed and in
        what they converge to, and the emphatic ones do best.
    Source: Ghiassian & Sutton (2021), "An empirical comparison of off-policy prediction learning algorithms on the
        collision task".

    Args:
        seed: Of the features: a whole number of 0 or more, or several.

    >>> round(collision().rmsve([0.0] * 6), 5)
    0.68908
    """
    P, R = np.zeros((8, 2, 9)), np.zeros((8, 2))
    for s in range(8):
        P[s, 0, s + 1] = P[s, 1, 8] = 1.0
    R[7, 0] = 1.0
    mu = np.full((8, 2), 0.5)
    mu[:4] = 1.0, 0.0
    start = [0.25] * 4 + [0.0] * 4
    Phi = np.zeros((8, 6))
    rng = np.random.default_rng(seeds(seed, "collision"))
    np.put_along_axis(Phi, rng.random((8, 6)).argsort(axis=1)[:, :3], 1.0, axis=1)
    return MDP(P, R, 0.9, [1.0, 0.0], mu, Phi, start=start, name="collision")


def garnet(
    states: int = 30,
    actions: int = 4,
    branching: int = 2,
    n: int | None = 8,
    seed: int | Sequence[int] = 0,
    *,
    gamma: float = 0.95,
    on_policy: bool = False,
) -> MDP:
    """A random MDP, the same for the same arguments.

    States: ``states``; each may be the first, and there are no episodes.
    Actions: ``actions``; each leads to ``branching`` states, drawn anew for each state and action, with
        probabilities that cut the unit interval at random places.
    Policies: π and μ draw each state's probabilities uniformly from all there are; on-policy π = μ.
    Rewards and discount: R(s, a) is standard normal; ``gamma``.
    Features: ``n`` binary ones, half of them (rounded down, at least one) 1 in each state, all states different if
        there are enough; with n = None one per state.
    Known for: no special structure to exploit, so algorithms can be compared over many draws. With a single action
        and successor a draw may fall apart into several chains, and has then no d_μ.
    Source: Archibald, McKinnon & Thomas (1995); with features, Bhatnagar et al. (2009), "Natural actor–critic
        algorithms", whose smaller Garnet has the default sizes.

    Args:
        states: The number of states.
        actions: The number of actions.
        branching: The number of states that each action can lead to.
        n: The number of features; None for one per state.
        seed: A whole number of 0 or more, or several.
        gamma: The discount.
        on_policy: Whether μ is π.

    >>> garnet(seed=3)
    MDP('garnet', S=30, A=4, n=8)
    """
    S, A = whole("states", states, "garnet"), whole("actions", actions, "garnet")
    b = whole("branching", branching, "garnet")
    if b > S:
        raise refusal("branching", "garnet", f"be at most the number of states, {S}", str(b))
    rng = np.random.default_rng(seeds(seed, "garnet"))
    next_states = rng.random((S, A, S)).argsort(axis=2)[:, :, :b]
    cuts = np.sort(rng.random((S, A, b - 1)), axis=2)
    P = np.zeros((S, A, S))
    np.put_along_axis(P, next_states, np.diff(cuts, axis=2, prepend=0.0, append=1.0), axis=2)
    R = rng.standard_normal((S, A))
    pi, mu = rng.dirichlet(np.ones(A), (2, S))
    Phi = None if n is None else _binary(S, whole("n", n, "garnet"), rng)
    return MDP(P, R, gamma, pi, pi if on_policy else mu, Phi, name="garnet")


def _binary(S: int, n: int, rng: np.random.Generator) -> FloatArray:
    """Rows of n bits with half of them 1, no two the same while there are others left."""
    ones = max(1, n // 2)
    room = math.comb(n, ones)
    rows: list[tuple[int, ...]] = []
    used: set[tuple[int, ...]] = set()
    while len(rows) < S:
        row = tuple(sorted(rng.permutation(n)[:ones].tolist()))
        if row not in used:
            used.add(row)
            rows.append(row)
        if len(used) == room:
            used.clear()
    Phi = np.zeros((S, n))
    np.put_along_axis(Phi, np.array(rows), 1.0, axis=1)
    return Phi
