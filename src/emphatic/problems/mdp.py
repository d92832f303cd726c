"""A finite Markov decision process with two policies and features, and its exact solutions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from emphatic import rules
from emphatic.learning.inputs import refusal
from emphatic.learning.returns import xi
from emphatic.problems import checks, exact
from emphatic.problems.checks import FloatArray, kept
from emphatic.problems.simulate import Outcomes, outcomes, simulate
from emphatic.problems.stream import Stream
from emphatic.rules import Rule

__all__ = ["MDP"]


@dataclass(frozen=True, eq=False, init=False, repr=False)
class MDP:
    """S states, A actions, a target policy π, a behaviour policy μ and n features of a state.

    P[s, a, s'] is the probability of s' after action a in state s; P is (S, A, S), or (S, A, S+1) where a last column
    is the end of an episode, and it is kept as the latter. R is the (expected) reward of a transition: a number, (S,),
    (S, A) or of P's shape. ``gamma`` is the discount on arriving in a state, a number or (S,); an end counts as 0.
    ``pi`` and ``mu`` are (A,) or (S, A); without ``mu`` behaviour is on-policy. ``Phi`` is (S, n), by default the
    identity. Interest ``I`` and ``lambda_`` are numbers or (S,), ``start`` the probabilities of an episode's first
    state, by default all equal. Where I = 0 a row of ``pi`` may be zeros or NaN: the target policy is undefined there,
    and nothing should be learned from a step that begins there (``Stream.active``). ``cells`` are the states' original
    numbers, by default 0 … S−1. Every field is a read-only array of full shape; ``replace`` makes a
    variant.

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
        full = checks.transitions(P)
        S, A, _ = full.shape
        interest = checks.per_state("I", I, S, 0.0, math.inf)
        target = checks.policy("pi", pi, S, A, interest == 0.0)
        if mu is None and not target.any(axis=1).all():
            raise refusal("mu", "MDP", "be given where 'pi' is undefined in some states", "none")
        fields = {
            "P": full,
            "R": checks.rewards(R, full.shape, np.shape(P)),
            "gamma": checks.per_state("gamma", gamma, S, 0.0, 1.0),
            "pi": target,
            "mu": target if mu is None else checks.policy("mu", mu, S, A),
            "Phi": checks.features(Phi, S),
            "I": interest,
            "lambda_": checks.per_state("lambda_", lambda_, S, 0.0, 1.0),
            "start": checks.start_states(start, S),
            "name": name,
            "cells": checks.state_numbers(cells, S),
        }
        for field, value in fields.items():
            object.__setattr__(self, field, value)
        self._check_undefined()

    def __repr__(self) -> str:
        return f"MDP({self.name!r}, S={self.S}, A={self.A}, n={self.n})"

    def replace(self, **changes: Any) -> MDP:
        """The same MDP with some fields changed, passed as to ``MDP``.

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
        return kept(np.einsum("sa,sax->sx", self.pi, self.P)[:, :-1])

    @cached_property
    def P_mu(self) -> FloatArray:
        """P_μ (S, S), the same under the behaviour policy."""
        return kept(np.einsum("sa,sax->sx", self.mu, self.P)[:, :-1])

    @cached_property
    def r_pi(self) -> FloatArray:
        """r_π (S,): the expected reward of a step under the target policy."""
        return kept(np.einsum("sa,sax,sax->s", self.pi, self.P, self.R))

    @cached_property
    def v_pi(self) -> FloatArray:
        """v_π = (𝟙 − P_πΓ)⁻¹ r_π (S,): the true values; 0 where π is undefined."""
        return kept(exact.sums(self._discounted, self.r_pi))

    @cached_property
    def d_mu(self) -> FloatArray:
        """d_μ (S,): the share of time behaviour spends in each state, an end being followed by a first state."""
        return kept(exact.visits(self._restarting, *self._recurrent))

    @cached_property
    def _restarting(self) -> FloatArray:
        """P_μ with ends followed by first states."""
        ends = np.einsum("sa,sa->s", self.mu, self.P[:, :, -1])
        return self.P_mu + np.outer(ends, self.start)

    @cached_property
    def _recurrent(self) -> tuple[exact.BoolArray, bool]:
        return exact.recurrent(self._restarting, self.start)

    def _covered(self) -> None:
        """Raise if behaviour never chooses an action of the target policy in a recurrent state."""
        bad = np.argwhere((self.pi > 0.0) & (self.mu == 0.0) & self._recurrent[0][:, None])
        if len(bad):
            s, a = bad[0]
            wanted = "take every action that 'pi' takes in a state that is visited, or ρ = π/μ is infinite"
            raise refusal("mu", "MDP", wanted, f"0.0 for state {s}, action {a}, where pi is {self.pi[s, a]}")

    @cached_property
    def _discounted(self) -> FloatArray:
        """P_πΓ"""
        return exact.discounted(self.P_pi, self.gamma, "gamma")

    # ------------------------------------------------------------------ emphasis and fixed points

    def followon(self, beta: ArrayLike | None = None) -> FloatArray:
        """f = (𝟙 − ΓP_πᵀ)⁻¹i with i = d_μ·I: d_μ times the expected follow-on trace. β takes γ's place where γ > 0."""
        self._covered()
        M = self._discounted
        if beta is not None:
            discount = checks.per_state("beta", beta, self.S, 0.0, 1.0, "followon")
            M = exact.discounted(self.P_pi, discount * (self.gamma > 0.0), "beta")
        return exact.sums(M.T, self.objective)

    def emphasis(self, rule: str | Rule = "etd", beta: ArrayLike | None = None) -> FloatArray:
        """m (S,): the weight of each state's update in a rule's fixed point.

        td and every rule without emphasis: d_μ·I. etd: Λi + (𝟙−Λ)f. etd_beta: the same with f_β.
        """
        self._covered()
        i, of = self.objective, _known(rule)
        if not of.emphasis:
            return i
        if of.emphasis == "beta" and beta is None:
            raise ValueError(f"The 'beta' parameter of emphasis is required by rule {of.name!r}.")
        f = self.followon(beta if of.emphasis == "beta" else None)
        return self.lambda_ * i + (1.0 - self.lambda_) * f

    @cached_property
    def P_lambda(self) -> FloatArray:
        """P^λ = 𝟙 − (𝟙 − P_πΓΛ)⁻¹(𝟙 − P_πΓ)"""
        M = self._discounted
        return kept(np.eye(self.S) - exact.sums(M * self.lambda_, np.eye(self.S) - M))

    def key_matrix(self, rule: str | Rule = "etd", beta: ArrayLike | None = None) -> FloatArray:
        """diag(m)(𝟙 − P^λ): a rule is stable, whatever the features, if this is positive definite.

        Of residual_gradient (𝟙 − P_πΓ)ᵀdiag(m)(𝟙 − P_πΓ) plus the variance of what follows: Σ m E_π[(x − γ'x')²] as
        a form in x.
        """
        m = self.emphasis(rule, beta)
        if _known(rule).fixed_point == "residual":
            ahead = m[:, None] * self.P_pi * self.gamma
            return np.asarray(np.diag(m + (ahead * self.gamma).sum(axis=0)) - ahead - ahead.T)
        return m[:, None] * (np.eye(self.S) - self.P_lambda)

    def is_positive_definite(self, rule: str | Rule = "etd", beta: ArrayLike | None = None) -> bool:
        """Whether xᵀKx > 0 for every x ≠ 0, K being the key matrix."""
        K = self.key_matrix(rule, beta)
        eigenvalues = np.linalg.eigvalsh(K + K.T)
        return bool(eigenvalues[0] > self.S * np.finfo(float).eps * abs(eigenvalues).max())

    def A_matrix(self, rule: str | Rule = "etd", beta: ArrayLike | None = None) -> FloatArray:
        """A = Φᵀ K Φ with K the key matrix: the expected update is α(b − Aθ)."""
        return self.Phi.T @ self.key_matrix(rule, beta) @ self.Phi

    def b_vector(self, rule: str | Rule = "etd", beta: ArrayLike | None = None) -> FloatArray:
        """b = Φᵀ diag(m)(𝟙 − P_πΓΛ)⁻¹ r_π; of residual_gradient Σ m E_π[R(φ − γ'φ')]."""
        m = self.emphasis(rule, beta)
        if _known(rule).fixed_point == "residual":
            arriving = np.einsum("s,sa,sax,sax->x", m, self.pi, self.P, self.R)[:-1]
            return np.asarray(self.Phi.T @ (m * self.r_pi - self.gamma * arriving))
        return self.Phi.T @ (m * exact.sums(self._discounted * self.lambda_, self.r_pi))

    def fixed_point(self, rule: str | Rule = "etd", beta: ArrayLike | None = None) -> FloatArray:
        """θ* with Aθ* = b: where the rule's expected update is 0; the shortest one if there are several."""
        with np.errstate(over="ignore", invalid="ignore"):
            A, b = self.A_matrix(rule, beta), self.b_vector(rule, beta)
        if not (np.isfinite(A).all() and np.isfinite(b).all()):
            raise ValueError("A and b of this problem are beyond the range of float64: scale 'Phi' or 'R' down.")
        theta = exact.least_norm(A, b)
        if theta is None:
            name = _known(rule).name
            raise ValueError(f"Rule {name!r} has no fixed point here: A is singular and b is not in its range.")
        return theta

    # ------------------------------------------------------------------ errors

    @cached_property
    def objective(self) -> FloatArray:
        """d_μ·I (S,): how much each state's error counts, unless other weights are given."""
        return kept(self.d_mu * self.I)

    @cached_property
    def best(self) -> FloatArray:
        """The θ of least mean squared value error under d_μ·I; the shortest one if there are several."""
        return kept(self.best_for())

    def best_for(self, d: ArrayLike | None = None) -> FloatArray:
        """The same under other weights ``d``, (S,)."""
        root = np.sqrt(self.checked_weights(d, "best_for"))
        return np.asarray(np.linalg.lstsq(root[:, None] * self.Phi, root * self.v_pi, rcond=None)[0], np.float64)

    def checked_weights(self, d: ArrayLike | None, function: str) -> FloatArray:
        """Weights of the states' errors, (S,), by default d_μ·I; ValueError if they are invalid."""
        weight = self.objective if d is None else checks.per_state("d", d, self.S, 0.0, math.inf, function)
        if not weight.any():
            got = "0 everywhere" if d is not None else "d_μ·I, which is: there is no interest where behaviour goes"
            raise refusal("d", function, "not be 0 in every state", got)
        return weight

    def msve(self, theta: ArrayLike, d: ArrayLike | None = None) -> Any:
        """Σ d (Φθ − v_π)² / Σ d with d = d_μ·I unless given; ``theta`` is (n,), or (…, n) for an array of errors."""
        weights = checks.weights(theta, self.n, "msve")
        weight = self.checked_weights(d, "msve")
        with np.errstate(over="ignore", invalid="ignore"):
            error = (weights @ self.Phi.T - self.v_pi) ** 2 @ weight / weight.sum()
        return float(error) if weights.ndim == 1 else error

    def rmsve(self, theta: ArrayLike, d: ArrayLike | None = None) -> Any:
        """The root of ``msve``."""
        error = np.sqrt(self.msve(theta, d))
        return float(error) if error.ndim == 0 else error

    def mspbe(self, theta: ArrayLike) -> float:
        """The mean squared projected Bellman error (b − Aθ)ᵀ(Φᵀ diag(d_μ·I) Φ)⁻¹(b − Aθ), A and b being td's.

        It is 0 at td's fixed point. Sutton, Maei et al. (2009).
        """
        gap = self.b_vector("td") - self.A_matrix("td") @ checks.weights(theta, self.n, "mspbe")
        C = self.Phi.T * self.objective @ self.Phi
        return float(gap @ np.linalg.lstsq(C, gap, rcond=None)[0])

    @property
    def probe(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(Phi, v_pi, d_μ·I): ``Learner.run(probe=mdp.probe)`` gives the RMSVE of each step."""
        return self.Phi, self.v_pi, self.objective

    def xi(self, zeta: float) -> float:
        """ABTD's ξ(ζ), over the actions that either policy takes (``emphatic.xi``)."""
        taken = np.maximum(self.pi, self.mu) > 0.0
        return xi(zeta, self.pi[taken], self.mu[taken])

    # ------------------------------------------------------------------ experience

    @cached_property
    def _outcomes(self) -> Outcomes:
        self._covered()
        return outcomes(self)

    def simulate(self, T: int, *, seed: int | Sequence[int] = 0, runs: int | None = None) -> Stream:
        """T steps of behaviour under μ. With ``runs``, run i is the stream of seed (seed, i).

        A stream depends on its seed alone: not on how many runs there are, and a longer one begins as a shorter.

        >>> from emphatic import problems
        >>> problems.baird().simulate(1000, runs=20)
        Stream(runs=20, T=1000, n=8)
        """
        return simulate(self, self._outcomes, T, seed, runs)


def _known(rule: str | Rule) -> Rule:
    """The rule, if its fixed point is known."""
    found = rules.get(rule) if isinstance(rule, str) and rule in rules.names() else rule
    if not isinstance(found, Rule) or not found.fixed_point:
        known = ", ".join(name for name in rules.names() if rules.get(name).fixed_point)
        raise refusal("rule", "emphasis", f"be one whose fixed point is known: {known}", repr(rule))
    return found
