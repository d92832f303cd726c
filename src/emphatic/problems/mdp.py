"""A finite Markov decision process with two policies and features, and its exact solutions.

Below the class are the linear algebra of Markov chains that it uses, and the checks of its arguments.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from emphatic import rules
from emphatic.learning import xi
from emphatic.learning.inputs import real_array, refusal
from emphatic.problems.stream import FloatArray, Outcomes, Stream, outcomes, simulate
from emphatic.rules import Rule

__all__ = ["MDP", "from_gymnasium"]

BoolArray = NDArray[np.bool_]

#: How far from 1 the sum of a row of probabilities may be.
TOLERANCE = 1e-8
#: The most sweeps of relative value iteration, and of policy iteration.
MOST_SWEEPS = 200_000
#: Sweeps of value iteration before policies are evaluated exactly.
SWEEPS_BEFORE_POLICIES = 2_000


@dataclass(frozen=True, eq=False, init=False, repr=False)
class MDP:
    """S states, A actions, a target policy π, a behaviour policy μ and n features of a state.

    Every field is a read-only array of full shape; ``replace`` makes a variant.

    Args:
        P: P[s, a, s'] is the probability of s' after action a in state s; (S, A, S), or (S, A, S+1) where a last
            column is the end of an episode. The field is the latter.
        R: The (expected) reward of a transition: a number, (S,), (S, A) or of P's shape.
        gamma: The discount on arriving in a state, a number or (S,); an end counts as 0.
        pi: The target policy, (A,) or (S, A). Where I = 0 a row may be zeros or NaN: the target policy is undefined
            there, and nothing should be learned from a step that begins there (``Stream.active``).
        mu: The behaviour policy, (A,) or (S, A); by default the target policy.
        Phi: The features of each state, (S, n); by default the identity.
        I: The interest, a number or (S,).
        lambda_: λ, a number or (S,).
        start: The probabilities of an episode's first state, (S,); by default all equal.
        name: A name for the repr.
        cells: The states' original numbers, (S,); by default 0 … S−1.

    >>> from emphatic import problems
    >>> chain = problems.chain()
    >>> chain
    MDP('chain', S=5, A=2, n=3)
    >>> chain.v_pi.round(12).tolist()
    [4.0, 3.0, 2.0, 1.0, 1.0]
    >>> round(chain.msve(chain.fixed_point("etd")), 6), round(chain.msve(chain.fixed_point("td")), 6)
    (1.728646, 2.877066)
    """

    P: FloatArray
    R: FloatArray
    gamma: FloatArray
    pi: FloatArray
    mu: FloatArray
    Phi: FloatArray
    I: FloatArray
    lambda_: FloatArray
    start: FloatArray
    name: str
    cells: NDArray[np.int64]

    def __init__(
        self,
        P: ArrayLike,
        R: ArrayLike,
        gamma: ArrayLike,
        pi: ArrayLike,
        mu: ArrayLike | None = None,
        Phi: ArrayLike | None = None,
        I: ArrayLike = 1.0,
        lambda_: ArrayLike = 0.0,
        start: ArrayLike | None = None,
        name: str = "",
        cells: ArrayLike | None = None,
    ) -> None:
        full = check_transitions(P)
        S, A, _ = full.shape
        interest = check_per_state("I", I, S, 0.0, math.inf)
        target = check_policy("pi", pi, S, A, interest == 0.0)
        if mu is None and not target.any(axis=1).all():
            raise refusal("mu", "MDP", "be given if 'pi' is undefined in some states", "none")
        fields = {
            "P": full,
            "R": check_rewards(R, full.shape, np.shape(P)),
            "gamma": check_per_state("gamma", gamma, S, 0.0, 1.0),
            "pi": target,
            "mu": target if mu is None else check_policy("mu", mu, S, A),
            "Phi": check_features(Phi, S),
            "I": interest,
            "lambda_": check_per_state("lambda_", lambda_, S, 0.0, 1.0),
            "start": check_start(start, S),
            "name": name,
            "cells": check_cells(cells, S),
        }
        for field, value in fields.items():
            object.__setattr__(self, field, value)
        self._check_undefined()

    def __repr__(self) -> str:
        return f"MDP({self.name!r}, S={self.S}, A={self.A}, n={self.n})"

    def replace(self, **changes: Any) -> MDP:
        """The same MDP with some fields changed.

        Args:
            **changes: Arguments of ``MDP``.

        >>> from emphatic import problems
        >>> problems.chain().replace(gamma=0.5).v_pi.round(3).tolist()
        [2.0, 2.0, 2.0, 2.0, 2.0]
        """
        return replace(self, **changes)

    @property
    def S(self) -> int:
        """The number of states."""
        return int(self.P.shape[0])

    @property
    def A(self) -> int:
        """The number of actions."""
        return int(self.P.shape[1])

    @property
    def n(self) -> int:
        """The number of features."""
        return int(self.Phi.shape[1])

    @property
    def defined(self) -> NDArray[np.bool_]:
        """The states in which the target policy is defined, (S,)."""
        return np.asarray(self.pi.any(axis=1))

    def _check_undefined(self) -> None:
        """Raise if the target policy leads to a state where it is undefined, with γ above 0."""
        undefined = ~self.defined
        if undefined.any():
            lost = np.argwhere((self.P_pi > 0.0) & undefined & (self.gamma > 0.0))
            if len(lost):
                s, x = lost[0]
                wanted = f"be 0 in state {x}, where 'pi' is undefined and to which it leads from state {s}"
                raise refusal("gamma", "MDP", wanted, str(self.gamma[x]))

    # ------------------------------------------------------------------ values and visits

    @cached_property
    def P_pi(self) -> FloatArray:
        """P_π (S, S): transitions under the target policy; a row sums to 1 minus the probability of an end."""
        return read_only(np.einsum("sa,sax->sx", self.pi, self.P)[:, :-1])

    @cached_property
    def P_mu(self) -> FloatArray:
        """P_μ (S, S), the same under the behaviour policy."""
        return read_only(np.einsum("sa,sax->sx", self.mu, self.P)[:, :-1])

    @cached_property
    def r_pi(self) -> FloatArray:
        """r_π (S,): the expected reward of a step under the target policy."""
        return read_only(np.einsum("sa,sax,sax->s", self.pi, self.P, self.R))

    @cached_property
    def v_pi(self) -> FloatArray:
        """v_π = (𝟙 − P_πΓ)⁻¹ r_π (S,): the true values; 0 where π is undefined."""
        return read_only(sum_powers(self._discounted, self.r_pi))

    @cached_property
    def d_mu(self) -> FloatArray:
        """d_μ (S,): the fraction of time behaviour spends in each state, an end being followed by a first state."""
        return read_only(find_visits(self._restarting, *self._recurrent))

    @cached_property
    def _restarting(self) -> FloatArray:
        """P_μ with ends followed by first states."""
        ends = np.einsum("sa,sa->s", self.mu, self.P[:, :, -1])
        return self.P_mu + np.outer(ends, self.start)

    @cached_property
    def _recurrent(self) -> tuple[BoolArray, bool]:
        return find_recurrent(self._restarting, self.start)

    def _covered(self) -> None:
        """Raise if behaviour never chooses an action of the target policy in a recurrent state."""
        bad = np.argwhere((self.pi > 0.0) & (self.mu == 0.0) & self._recurrent[0][:, None])
        if len(bad):
            s, a = bad[0]
            wanted = "take every action that 'pi' takes in a visited state; otherwise ρ = π/μ is infinite"
            raise refusal("mu", "MDP", wanted, f"0.0 for state {s}, action {a}, where pi is {self.pi[s, a]}")

    # ------------------------------------------------------------------ average reward

    @cached_property
    def d_pi(self) -> FloatArray:
        """d_π (S,): the fraction of time π spends in each state; an end is followed by a first state."""
        P = self._target_chain
        return read_only(find_visits(P, *find_recurrent(P, self.start), "d_pi", "pi"))

    @cached_property
    def reward_rate(self) -> float:
        """r̄ = Σ d_π r_π: the average reward of a step under the target policy, whatever γ is."""
        return float(self.d_pi @ self.r_pi)

    @cached_property
    def differential_values(self) -> FloatArray:
        """v = (𝟙 − P_π + 1d_πᵀ)⁻¹(r_π − r̄) (S,): the sum of rewards above the average, centred: Σ d_π v = 0."""
        deviations = np.eye(self.S) - self._target_chain + self.d_pi
        return read_only(np.asarray(np.linalg.solve(deviations, self.r_pi - self.reward_rate), np.float64))

    @cached_property
    def optimal_reward_rate(self) -> float:
        """The largest average reward of any policy, by relative value iteration, whatever γ, π and μ are.

        An end is followed by a first state. Puterman (1994), section 8.5: an aperiodic chain of the same rate is
        iterated until the bounds on the rate are 1e-12 apart, or no longer come closer.
        """
        P = self.P[:, :, :-1] + self.P[:, :, -1:] * self.start
        r = (self.P * self.R).sum(axis=2)
        v, gap = np.zeros(self.S), math.inf
        scale = max(1.0, float(np.abs(r).max()))
        for _ in range(MOST_SWEEPS):
            change = 0.5 * ((r + P @ v).max(axis=1) - v)
            low, high = 2.0 * change.min(), 2.0 * change.max()
            gap = high - low
            if gap <= 1e-12 * scale:
                return float((low + high) / 2.0)
            v = v + change - change[0]
        if gap > 1e-9 * scale:
            wanted = "let some policy take every state to every other, so that one rate is the best from all"
            raise refusal("P", "MDP", wanted, f"rates from {low:g} to {high:g}")
        return float((low + high) / 2.0)

    @cached_property
    def _target_chain(self) -> FloatArray:
        """P_π with ends followed by first states."""
        if not self.defined.all():
            s = int(np.argmin(self.defined))
            raise refusal("pi", "MDP", "be defined in every state, for an average reward", f"none in state {s}")
        ends = np.einsum("sa,sa->s", self.pi, self.P[:, :, -1])
        return self.P_pi + np.outer(ends, self.start)

    # ------------------------------------------------------------------ optimal values

    @cached_property
    def optimal_action_values(self) -> FloatArray:
        """q* (S, A): the values of the best policy, by policy iteration."""
        r = (self.P * self.R).sum(axis=2)
        discounted = self.P[:, :, :-1] * self.gamma
        states = np.arange(self.S)
        greedy = (r + discounted @ self._swept_values(r, discounted)).argmax(axis=1)
        for _ in range(MOST_SWEEPS):
            q = r + discounted @ sum_powers(discounted[states, greedy], r[states, greedy])
            # An action is replaced only where another is better by more than rounding, so that the search ends.
            slack = 1e-10 * max(1.0, float(np.abs(q).max()))
            improves = q.max(axis=1) > q[states, greedy] + slack
            if not improves.any():
                return read_only(q)
            greedy = np.where(improves, q.argmax(axis=1), greedy)
        raise AssertionError("policy iteration visits each policy at most once")

    @cached_property
    def optimal_values(self) -> FloatArray:
        """v* (S,): the values of the best policy, max_a q*(s, a)."""
        return read_only(self.optimal_action_values.max(axis=1))

    def _swept_values(self, r: FloatArray, discounted: FloatArray) -> FloatArray:
        """Values from which the greedy policy is proper: those after some sweeps of value iteration.

        Raises where no policy's values are finite: every policy needs an end or a γ below 1 on its way.
        """
        v = np.zeros(self.S)
        for _ in range(SWEEPS_BEFORE_POLICIES):
            after = (r + discounted @ v).max(axis=1)
            if np.abs(after - v).max() <= 1e-13 * max(1.0, float(np.abs(after).max())):
                return np.asarray(after)
            v = after
        greedy = (r + discounted @ v).argmax(axis=1)
        discount_transitions(self.P[np.arange(self.S), greedy, :-1], self.gamma, "gamma")
        return v

    @cached_property
    def _discounted(self) -> FloatArray:
        """P_πΓ"""
        return discount_transitions(self.P_pi, self.gamma, "gamma")

    # ------------------------------------------------------------------ emphasis and fixed points

    def followon(self, decay: ArrayLike | None = None) -> FloatArray:
        """f = (𝟙 − ΓP_πᵀ)⁻¹i with i = d_μ·I: d_μ times the expected follow-on trace.

        Args:
            decay: Takes γ's place where γ > 0; a number or (S,).
        """
        self._covered()
        M = self._discounted
        if decay is not None:
            discount = check_per_state("decay", decay, self.S, 0.0, 1.0, "followon")
            M = discount_transitions(self.P_pi, discount * (self.gamma > 0.0), "decay")
        return sum_powers(M.T, self.objective)

    def emphasis(self, rule: str | Rule = "etd", decay: ArrayLike | None = None) -> FloatArray:
        """m (S,): the weight of each state's update in a rule's fixed point.

        td and every rule without emphasis: d_μ·I. etd: Λi + (𝟙−Λ)f. etd_beta: the same with f_β. bounded_etd: etd's,
        of each state of ``with_cut_traces``.

        Args:
            rule: A rule, or the name of one, whose fixed point is known.
            decay: β of rules with a decay of their own, a number or (S,).
        """
        self._covered()
        i, of = self.objective, _known(rule)
        if of.fixed_point == "cut":
            return self.with_cut_traces.emphasis("etd")
        if not of.emphasis:
            return i
        if of.emphasis == "decay" and decay is None:
            raise ValueError(f"The 'decay' parameter of emphasis is required by rule {of.name!r}.")
        f = self.followon(decay if of.emphasis == "decay" else None)
        return self.lambda_ * i + (1.0 - self.lambda_) * f

    @cached_property
    def P_lambda(self) -> FloatArray:
        """P^λ = 𝟙 − (𝟙 − P_πΓΛ)⁻¹(𝟙 − P_πΓ)"""
        M = self._discounted
        return read_only(np.eye(self.S) - sum_powers(M * self.lambda_, np.eye(self.S) - M))

    def key_matrix(self, rule: str | Rule = "etd", decay: ArrayLike | None = None) -> FloatArray:
        """diag(m)(𝟙 − P^λ): a rule is stable, whatever the features, if this is positive definite.

        Of residual_gradient (𝟙 − P_πΓ)ᵀdiag(m)(𝟙 − P_πΓ) plus the variance of what follows: Σ m E_π[(x − γ'x')²] as
        a form in x.

        Args:
            rule: A rule, or the name of one, whose fixed point is known.
            decay: β of rules with a decay of their own, a number or (S,).
        """
        if _known(rule).fixed_point == "cut":
            return self.with_cut_traces.key_matrix("etd")
        m = self.emphasis(rule, decay)
        if _known(rule).fixed_point == "residual":
            ahead = m[:, None] * self.P_pi * self.gamma
            return np.asarray(np.diag(m + (ahead * self.gamma).sum(axis=0)) - ahead - ahead.T)
        return m[:, None] * (np.eye(self.S) - self.P_lambda)

    @cached_property
    def with_cut_traces(self) -> MDP:
        """The chain of (S⁻, A⁻, S) that behaviour visits, with λ(S)/max(1, ρ(S⁻, A⁻)): etd there is bounded_etd here.

        States are one if they differ in S⁻ and A⁻ alone and these have the same max(1, ρ), which is 1 of a first state.
        """
        self._covered()
        ends = self.P[:, :, -1]
        visited = (self.mu > 0.0) & (self.d_mu > 0.0)[:, None]
        ratio = np.maximum(1.0, np.divide(self.pi, self.mu, out=np.ones_like(self.pi), where=visited))
        s, a, x = np.nonzero(self.P[:, :, :-1] * visited[:, :, None])
        starts = np.flatnonzero(self.start) if ends[visited].any() else np.empty(0, np.intp)
        pairs = np.stack([np.append(np.ones(len(starts)), ratio[s, a]), np.append(starts, x)])
        (cut, state), number = np.unique(pairs, axis=1, return_inverse=True)
        state, number = state.astype(np.intp), number.reshape(-1)[len(starts) :]
        P, R = np.zeros((2, self.S, self.A, len(state) + 1))
        P[s, a, number], P[:, :, -1] = self.P[s, a, x], np.where(visited, ends, 1.0)
        R[s, a, number], R[:, :, -1] = self.R[s, a, x], self.R[:, :, -1]
        fields = {name: getattr(self, name)[state] for name in ("gamma", "pi", "mu", "Phi", "I")}
        start = np.where(cut == 1.0, self.start[state], 0.0) if len(starts) else None
        return MDP(P[state], R[state], **fields, lambda_=self.lambda_[state] / cut, start=start, name=self.name)

    def is_positive_definite(self, rule: str | Rule = "etd", decay: ArrayLike | None = None) -> bool:
        """Whether xᵀKx > 0 for every x ≠ 0, K being the key matrix.

        Args:
            rule: A rule, or the name of one, whose fixed point is known.
            decay: β of rules with a decay of their own, a number or (S,).
        """
        K = self.key_matrix(rule, decay)
        eigenvalues = np.linalg.eigvalsh(K + K.T)
        return bool(eigenvalues[0] > self.S * np.finfo(float).eps * abs(eigenvalues).max())

    def A_matrix(self, rule: str | Rule = "etd", decay: ArrayLike | None = None) -> FloatArray:
        """A = Φᵀ K Φ with K the key matrix: the expected update is α(b − Aθ).

        Args:
            rule: A rule, or the name of one, whose fixed point is known.
            decay: β of rules with a decay of their own, a number or (S,).
        """
        Phi = self.with_cut_traces.Phi if _known(rule).fixed_point == "cut" else self.Phi
        return Phi.T @ self.key_matrix(rule, decay) @ Phi

    def b_vector(self, rule: str | Rule = "etd", decay: ArrayLike | None = None) -> FloatArray:
        """b = Φᵀ diag(m)(𝟙 − P_πΓΛ)⁻¹ r_π; of residual_gradient Σ m E_π[R(φ − γ'φ')].

        Args:
            rule: A rule, or the name of one, whose fixed point is known.
            decay: β of rules with a decay of their own, a number or (S,).
        """
        if _known(rule).fixed_point == "cut":
            return self.with_cut_traces.b_vector("etd")
        m = self.emphasis(rule, decay)
        if _known(rule).fixed_point == "residual":
            arriving = np.einsum("s,sa,sax,sax->x", m, self.pi, self.P, self.R)[:-1]
            return np.asarray(self.Phi.T @ (m * self.r_pi - self.gamma * arriving))
        return self.Phi.T @ (m * sum_powers(self._discounted * self.lambda_, self.r_pi))

    def fixed_point(self, rule: str | Rule = "etd", decay: ArrayLike | None = None) -> FloatArray:
        """θ* with Aθ* = b: where the rule's expected update is 0; the shortest one if there are several.

        Args:
            rule: A rule, or the name of one, whose fixed point is known.
            decay: β of rules with a decay of their own, a number or (S,).
        """
        with np.errstate(over="ignore", invalid="ignore"):
            A, b = self.A_matrix(rule, decay), self.b_vector(rule, decay)
        if not (np.isfinite(A).all() and np.isfinite(b).all()):
            raise ValueError("A and b of this problem are beyond the range of float64: scale 'Phi' or 'R' down.")
        theta = least_norm(A, b)
        if theta is None:
            name = _known(rule).name
            raise ValueError(f"Rule {name!r} has no fixed point here: A is singular and b is not in its range.")
        return theta

    # ------------------------------------------------------------------ errors

    @cached_property
    def objective(self) -> FloatArray:
        """d_μ·I (S,): how much each state's error counts, unless other weights are given."""
        return read_only(self.d_mu * self.I)

    @cached_property
    def best(self) -> FloatArray:
        """The θ of least mean squared value error under d_μ·I; the shortest one if there are several."""
        return read_only(self.best_for())

    def best_for(self, d: ArrayLike | None = None) -> FloatArray:
        """The θ of least mean squared value error under other weights.

        Args:
            d: The weights of the states' errors, (S,); by default d_μ·I.
        """
        root = np.sqrt(self.checked_weights(d, "best_for"))
        return np.asarray(np.linalg.lstsq(root[:, None] * self.Phi, root * self.v_pi, rcond=None)[0], np.float64)

    def checked_weights(self, d: ArrayLike | None, function: str) -> FloatArray:
        """Weights of the states' errors, (S,); ValueError if they are invalid.

        Args:
            d: The weights; by default d_μ·I.
            function: The name of the function that was called, for the message.
        """
        weight = self.objective if d is None else check_per_state("d", d, self.S, 0.0, math.inf, function)
        if not weight.any():
            got = "0 everywhere" if d is not None else "d_μ·I, which is: there is no interest where behaviour goes"
            raise refusal("d", function, "not be 0 in every state", got)
        return weight

    def msve(self, theta: ArrayLike, d: ArrayLike | None = None) -> Any:
        """Σ d (Φθ − v_π)² / Σ d, the mean squared value error.

        Args:
            theta: Weights (n,), or (…, n) for an array of errors.
            d: The weights of the states' errors, (S,); by default d_μ·I.
        """
        weights = check_weights(theta, self.n, "msve")
        weight = self.checked_weights(d, "msve")
        with np.errstate(over="ignore", invalid="ignore"):
            error = (weights @ self.Phi.T - self.v_pi) ** 2 @ weight / weight.sum()
        return float(error) if weights.ndim == 1 else error

    def rmsve(self, theta: ArrayLike, d: ArrayLike | None = None) -> Any:
        """The root of ``msve``.

        Args:
            theta: Weights (n,), or (…, n) for an array of errors.
            d: The weights of the states' errors, (S,); by default d_μ·I.
        """
        error = np.sqrt(self.msve(theta, d))
        return float(error) if error.ndim == 0 else error

    def mspbe(self, theta: ArrayLike) -> float:
        """The mean squared projected Bellman error (b − Aθ)ᵀ(Φᵀ diag(d_μ·I) Φ)⁻¹(b − Aθ) / Σ d_μ·I, A and b being td's.

        It is a mean as ``msve`` is: that of the squared projection of T^λv − v, v = Φθ, under d_μ·I. It is 0 at td's
        fixed point. Sutton, Maei et al. (2009), where I = 1 and so Σ d_μ·I = 1.

        Args:
            theta: Weights (n,).
        """
        gap = self.b_vector("td") - self.A_matrix("td") @ check_weights(theta, self.n, "mspbe")
        if not self.objective.any():
            raise refusal("I", "MDP", "be above 0 in a state that behaviour visits, for mspbe", "0 in all of them")
        C = self.Phi.T * self.objective @ self.Phi
        return float(gap @ np.linalg.lstsq(C, gap, rcond=None)[0] / self.objective.sum())

    @property
    def probe(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(Phi, v_pi, d_μ·I): ``Learner.run(probe=mdp.probe)`` gives the RMSVE of each step."""
        return self.Phi, self.v_pi, self.objective

    def xi(self, zeta: float) -> float:
        """ABTD's ξ(ζ), over the actions that either policy takes (``emphatic.learning.xi``).

        Args:
            zeta: ζ, from 0 to 1.
        """
        possible = np.maximum(self.pi, self.mu) > 0.0
        return xi(zeta, self.pi[possible], self.mu[possible])

    # ------------------------------------------------------------------ experience

    @cached_property
    def _outcomes(self) -> Outcomes:
        self._covered()
        return outcomes(self)

    def simulate(self, T: int, *, seed: int | Sequence[int] = 0, runs: int | None = None) -> Stream:
        """T steps of behaviour under μ.

        A stream depends on its seed alone: not on how many runs there are, and a longer one begins as a shorter.

        Args:
            T: The number of steps.
            seed: A whole number of 0 or more, or several.
            runs: The number of runs; run i is the stream of seed (seed, i). None for one run without that axis.

        >>> from emphatic import problems
        >>> problems.baird().simulate(1000, runs=20)
        Stream(runs=20, T=1000, n=8)
        """
        return simulate(self, self._outcomes, T, seed, runs)


def _known(rule: str | Rule) -> Rule:
    """The rule, if its fixed point is known."""
    known_rule = rules.get(rule) if isinstance(rule, str) and rule in rules.names() else rule
    if not isinstance(known_rule, Rule) or not known_rule.fixed_point:
        known = ", ".join(name for name in rules.names() if rules.get(name).fixed_point)
        raise refusal("rule", "emphasis", f"be one whose fixed point is known: {known}", repr(rule))
    return known_rule


def from_gymnasium(
    env: object, pi: ArrayLike, mu: ArrayLike | None = None, gamma: ArrayLike = 0.99, Phi: ArrayLike | None = None
) -> MDP:
    """The MDP of a Gymnasium environment that has its transitions in ``env.unwrapped.P``: FrozenLake, Taxi, ….

    What is flagged as terminated ends the episode; the first states are those of ``initial_state_distrib``, or all.
    A time limit is not part of the table, and not part of the MDP.

    Args:
        env: An environment, or the id of one.
        pi: The target policy, (A,) or (S, A).
        mu: The behaviour policy, (A,) or (S, A); by default the target policy.
        gamma: The discount on arriving in a state, a number or (S,).
        Phi: The features of each state, (S, n); by default the identity.

    >>> lake = from_gymnasium("FrozenLake-v1", pi=[0.25] * 4)
    >>> lake
    MDP('FrozenLake-v1', S=16, A=4, n=16)
    >>> round(float(lake.v_pi[0]), 4)
    0.0124
    """
    env = _make(env) if isinstance(env, str) else env
    bare = getattr(env, "unwrapped", env)
    table = getattr(bare, "P", None)
    if not table:
        wanted = "have a table of transitions, env.unwrapped.P, as FrozenLake, CliffWalking and Taxi do"
        raise refusal("env", "from_gymnasium", wanted, repr(env))
    S, A = len(table), len(table[0])
    P, R = np.zeros((S, A, S + 1)), np.zeros((S, A, S + 1))
    for s in range(S):
        for a in range(A):
            for chance, next_state, reward, terminated in table[s][a]:
                x = S if terminated else int(next_state)
                P[s, a, x] += chance
                R[s, a, x] += chance * reward
    R = np.divide(R, P, out=R, where=P > 0.0)
    spec = getattr(bare, "spec", None)
    start = getattr(bare, "initial_state_distrib", None)
    return MDP(P, R, gamma, pi, mu, Phi, start=start, name=spec.id if spec else type(bare).__name__)


def _make(name: str) -> Any:
    try:
        import gymnasium
    except ImportError as error:
        raise ImportError("from_gymnasium needs gymnasium: pip install 'emphatic[gym]'") from error
    return gymnasium.make(name)


# ------------------------------------------------------------------ exact properties of finite Markov chains


def find_recurrent(P: FloatArray, start: FloatArray) -> tuple[BoolArray, bool]:
    """The recurrent states of a chain that begins in ``start``, and whether each can be reached from every other."""
    reach = (P > 0.0) | np.eye(len(P), dtype=bool)
    while True:
        paths = reach.astype(np.float32)
        further = paths @ paths > 0.0
        if (further == reach).all():
            break
        reach = further
    reached = reach[start > 0.0].any(axis=0)
    returns = np.asarray(reached & (~reach | reach.T).all(axis=1))
    return returns, bool(reach[np.ix_(returns, returns)].all())


def find_visits(
    P: FloatArray, visited: BoolArray, connected: bool, name: str = "d_mu", policy: str = "mu"
) -> FloatArray:
    """The share of time that a chain spends in each state, given ``recurrent``'s answers."""
    if not connected:
        kind = "behaviour" if policy == "mu" else "target"
        raise ValueError(
            f"{name} is not unique: there are several sets of states that the {kind} policy never leaves once it is in "
            f"one of them (state {np.flatnonzero(visited)[0]} is in one). Give a '{policy}' that can take every state "
            "to every other, or a 'start' from which only one of the sets is reached."
        )
    d = np.zeros(len(P))
    d[visited] = stationary(P[np.ix_(visited, visited)])
    return d


def stationary(P: FloatArray) -> FloatArray:
    """d = Pᵀd, Σd = 1, of an irreducible chain.

    State by state the chain is watched only while it is in those left; no two numbers are ever subtracted, so each
    component is exact to a few units in its last place. Grassmann, Taksar & Heyman (1985).
    """
    P, S = P.copy(), len(P)
    for k in range(S - 1, 0, -1):
        P[:k, k] /= P[k, :k].sum()
        P[:k, :k] += np.outer(P[:k, k], P[k, :k])
    d = np.ones(S)
    for k in range(1, S):
        d[k] = d[:k] @ P[:k, k]
    return np.asarray(d / d.sum())


def discount_transitions(P_pi: FloatArray, discount: FloatArray, name: str) -> FloatArray:
    """P_πΓ, if 𝟙 − P_πΓ can be inverted: every state must lead to a termination or a γ below 1."""
    M = P_pi * discount
    able = M.sum(axis=1) < 1.0 - 1e-12
    while not able.all():
        wider = able | (M[:, able] > 0.0).any(axis=1)
        if (wider == able).all():
            raise ValueError(
                f"The sum of what follows state {np.argmin(able)} under 'pi' is infinite: no episode ends and no "
                f"'{name}' is below 1 on any way from there. Give a '{name}' below 1, or a P in which 'pi' reaches an "
                "end."
            )
        able = wider
    return M


def sum_powers(M: FloatArray, x: FloatArray) -> FloatArray:
    """x + Mx + M²x + … = (𝟙 − M)⁻¹x"""
    return np.asarray(np.linalg.solve(np.eye(len(M)) - M, x), np.float64)


def least_norm(A: FloatArray, b: FloatArray) -> FloatArray | None:
    """The shortest θ with Aθ = b; None if there is no such θ."""
    theta = np.asarray(np.linalg.lstsq(A, b, rcond=None)[0], np.float64)
    scale = np.abs(A).max() * np.abs(theta).max() + np.abs(b).max()
    return theta if np.abs(A @ theta - b).max() <= 1e-9 * scale else None


# ------------------------------------------------------------------ validation
# Each check returns a read-only float64 array of full shape, or raises a ValueError that names the place.


def check_transitions(P: ArrayLike) -> FloatArray:
    """(S, A, S+1): the last column is the end of an episode."""
    array = _as_floats("P", P)
    if array.ndim != 3 or 0 in array.shape or array.shape[2] - array.shape[0] not in (0, 1):
        raise refusal("P", "MDP", "have shape (S, A, S) or (S, A, S+1)", f"shape {array.shape}")
    array = _distributions("P", array, ("state", "action", "next state"))
    S, A, columns = array.shape
    return read_only(array if columns == S + 1 else np.concatenate([array, np.zeros((S, A, 1))], axis=2))


def check_rewards(R: ArrayLike, shape: tuple[int, ...], given: tuple[int, ...]) -> FloatArray:
    """(S, A, S+1) from a number, (S,), (S, A) or the shape that P was given in; it takes no more memory than that."""
    array = _as_floats("R", R)
    if array.shape not in ((), given[:1], given[:2], given, shape):
        S, A, columns = given
        wanted = f"be a number or have shape ({S},), ({S}, {A}) or ({S}, {A}, {columns})"
        raise refusal("R", "MDP", wanted, f"shape {array.shape}")
    _within("R", array, -math.inf, math.inf, ("state", "action", "next state"))
    if array.ndim == 3 and array.shape != shape:
        array = np.concatenate([array, np.zeros((*given[:2], 1))], axis=2)
    return read_only(np.broadcast_to(array.reshape(array.shape + (1,) * (3 - array.ndim)), shape))


def check_policy(name: str, value: ArrayLike, S: int, A: int, optional: NDArray[np.bool_] | None = None) -> FloatArray:
    """(S, A) from (A,), the same in every state, or (S, A).

    In states that are ``optional`` a row of zeros or NaN leaves the policy undefined, and is kept as zeros.
    """
    array = _as_floats(name, value)
    if array.shape not in ((A,), (S, A)):
        raise refusal(name, "MDP", f"have shape ({A},) or ({S}, {A})", f"shape {array.shape}")
    if optional is None or array.ndim == 1:
        return read_only(np.broadcast_to(_distributions(name, array, ("state", "action")[-array.ndim :]), (S, A)))
    undefined = optional & ((array == 0.0) | np.isnan(array)).all(axis=1)
    array[undefined] = 1.0 / A
    array = _distributions(name, array, ("state", "action"))
    array[undefined] = 0.0
    return read_only(array)


def check_features(Phi: ArrayLike | None, S: int) -> FloatArray:
    """(S, n), one row per state; the identity if not given."""
    if Phi is None:
        return read_only(np.eye(S))
    array = _as_floats("Phi", Phi)
    if array.ndim != 2 or len(array) != S or array.shape[1] == 0:
        raise refusal("Phi", "MDP", f"have shape ({S}, n)", f"shape {array.shape}")
    _within("Phi", array, -math.inf, math.inf, ("state", "feature"))
    return read_only(array)


def check_per_state(
    name: str, value: ArrayLike, S: int, least: float, most: float, function: str = "MDP"
) -> FloatArray:
    """(S,) from a number or (S,), between ``least`` and ``most``."""
    array = _as_floats(name, value, function)
    if array.shape not in ((), (S,)):
        raise refusal(name, function, f"be a number or have shape ({S},)", f"shape {array.shape}")
    _within(name, array, least, most, ("state",)[: array.ndim], function)
    return read_only(np.broadcast_to(array, (S,)))


def check_cells(cells: ArrayLike | None, S: int) -> NDArray[np.int64]:
    """(S,) whole numbers, each once; 0 … S−1 where none are given."""
    array = np.arange(S) if cells is None else real_array("cells", cells, "MDP")
    if array.shape != (S,) or array.dtype.kind not in "iu" or len(np.unique(array)) < S:
        raise refusal("cells", "MDP", f"be {S} different whole numbers", repr(cells))
    array = array.astype(np.int64)
    array.flags.writeable = False
    return array


def check_start(start: ArrayLike | None, S: int) -> FloatArray:
    """(S,) probabilities; uniform where none are given."""
    if start is None:
        return read_only(np.full(S, 1.0 / S))
    array = _as_floats("start", start)
    if array.shape != (S,):
        raise refusal("start", "MDP", f"have shape ({S},)", f"shape {array.shape}")
    return read_only(_distributions("start", array, ("state",)))


def check_weights(theta: ArrayLike, n: int, function: str) -> FloatArray:
    """θ (…, n). It need not be finite: the error of diverged weights is a valid result."""
    array = _as_floats("theta", theta, function)
    if array.ndim == 0 or array.shape[-1] != n:
        raise refusal("theta", function, f"have shape (…, {n})", f"shape {array.shape}")
    return array


def _as_floats(name: str, value: ArrayLike, function: str = "MDP") -> FloatArray:
    return real_array(name, value, function).astype(np.float64)


def read_only(array: FloatArray) -> FloatArray:
    """The same array, made read-only."""
    array.flags.writeable = False
    return array


def _within(
    name: str, array: FloatArray, least: float, most: float, axes: tuple[str, ...], function: str = "MDP"
) -> None:
    bad = ~((array >= least) & (array <= most) & np.isfinite(array))
    if bad.any():
        at = tuple(np.argwhere(bad)[0])
        bounds = f"{least:g} or more" if math.isinf(most) else f"between {least:g} and {most:g}"
        wanted = "be finite" if math.isinf(least) else f"be {bounds}, and finite"
        raise refusal(name, function, wanted, f"{array[at]}{_place(axes, at)}")


def _distributions(name: str, array: FloatArray, axes: tuple[str, ...]) -> FloatArray:
    """Probabilities that sum to 1 along the last axis, to the last digit."""
    _within(name, array, 0.0, 1.0 + TOLERANCE, axes)
    total = np.asarray(array.sum(axis=-1))
    bad = np.abs(total - 1.0) > TOLERANCE
    if bad.any():
        at = tuple(np.argwhere(bad)[0])
        wanted = "sum to 1" if array.ndim == 1 else f"sum to 1 over {axes[-1]}s"
        raise refusal(name, "MDP", wanted, f"{total[at]}{_place(axes, at)}")
    return np.asarray(array / total[..., None])


def _place(axes: tuple[str, ...], at: tuple[Any, ...]) -> str:
    named = ", ".join(f"{axis} {i}" for axis, i in zip(axes, at, strict=False))
    return f" for {named}" if named else ""
