"""Questions put to transitions: R, γ', ρ and interest of a step (observation, action, reward, next observation).

The rows that questions name are an observation's components and "reward". A cumulant, a γ and a terminal value are
read in the row that follows, interest in the row before. A question's own function, wherever it stands, is given
the transition: ``f(observation, action, reward, observation_next)``; a policy's, ``f(observation, action)``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.learning.inputs import refusal
from emphatic.questions.expressions import Expression
from emphatic.questions.gvf import GVF, Policy, Quantity, told

__all__ = ["Transitions"]

Array = NDArray[np.float64]
#: (observation, action, reward, next observation)
Transition = tuple[Any, Any, float, Any]


class Transitions:
    """All questions, made ready for transitions between rows of these signals."""

    def __init__(self, questions: Sequence[GVF], names: Sequence[str]) -> None:
        signals = (*names, "reward")
        Q = len(questions)
        constant = [question.constant_gamma(None) for question in questions]
        self.lambda_ = np.array([q.default_lambda(g) for q, g in zip(questions, constant, strict=True)])

        def quantities(what: str, given: Sequence[Quantity]) -> Quantities:
            return Quantities(given, signals, what, [question.name for question in questions])

        self._R = quantities("cumulant", [q.cumulant for q in questions])
        self._gamma = quantities(
            "gamma", [q.gamma if g is None else g for q, g in zip(questions, constant, strict=True)]  # type: ignore[misc]
        )  # fmt: skip
        self._I = quantities(
            "interest",
            [_interest(g) if q.interest is None else q.interest for q, g in zip(questions, constant, strict=True)],
        )
        self._terminal = (
            None
            if all(q.terminal is None for q in questions)
            else quantities("terminal", [0.0 if q.terminal is None else q.terminal for q in questions])
        )
        self._zeros, self._ones = np.zeros(Q), np.ones(Q)
        #: Each policy once, and which questions are about it.
        self._policies: list[tuple[Policy, list[int]]] = []
        for at, question in enumerate(questions):
            if question.policy is not None:
                _check(question.policy, question.name)
                same = next((which for policy, which in self._policies if policy == question.policy), None)
                if same is None:
                    self._policies.append((question.policy, [at]))
                else:
                    same.append(at)

    def __call__(
        self, row: Array, row_next: Array, transition: Transition, terminated: bool, mu: Callable[[], float | None]
    ) -> tuple[Array, Array, Array, Array]:
        """R, γ', ρ and I, each (Q,). ``mu`` gives the probability of the action, if it is known."""
        R = self._R(row_next, transition)
        gamma = self._zeros if terminated else self._gamma(row_next, transition)
        I = self._I(row, transition)
        if self._terminal is not None:
            R = R + (1.0 - gamma) * self._terminal(row_next, transition)
        rho = self._rho(transition, mu) if self._policies else self._ones
        there = np.isfinite(R)
        if not there.all():  # what was not read teaches nothing
            R, rho = np.where(there, R, 0.0), np.where(there, rho, 0.0)
        if self._gamma.varies and not terminated and not ((gamma >= 0.0) & (gamma <= 1.0)).all():
            raise refusal("gamma", "GVF", "be between 0 and 1", f"{gamma.tolist()}")
        if self._I.varies and not ((I >= 0.0) & np.isfinite(I)).all():
            raise refusal("interest", "GVF", "be 0 or more, and finite", f"{I.tolist()}")
        return R, gamma, rho, I

    def _rho(self, transition: Transition, mu: Callable[[], float | None]) -> Array:
        observation, action = transition[:2]
        rho = self._ones.copy()
        for policy, which in self._policies:
            pi = chance(policy.target, observation, action)
            if pi == 0.0:
                rho[which] = 0.0
                continue
            known = mu() if policy.behaviour == "count" else chance(policy.behaviour, observation, action)
            if known is None:
                raise refusal(
                    "mu", "step", "be known where a question has a policy: set env.mu before the step", "nothing"
                )
            if not 0.0 < known < np.inf:
                raise refusal("mu", "step", f"be above 0 for action {action!r}, which was taken", repr(known))
            rho[which] = pi / known
        return rho


class Quantities:
    """A number for each question: constants, signals of a row, expressions of them, functions of the transition."""

    def __init__(self, given: Sequence[Quantity], signals: Sequence[str], what: str, of: Sequence[str]) -> None:
        self._signals = tuple(signals)
        self._values = np.array([float(q) if isinstance(q, int | float) else 0.0 for q in given])
        at = [i for i, q in enumerate(given) if isinstance(q, str) and q in signals]
        self._at = np.array(at, np.int64)
        self._from = np.array([self._signals.index(given[i]) for i in at], np.int64)
        self._whole = len(at) == len(given)
        self._functions = [(i, q) for i, q in enumerate(given) if callable(q)]
        self._expressions: list[tuple[int, Expression]] = []
        for i, q in enumerate(given):
            if isinstance(q, str) and q not in signals:
                try:
                    made = Expression(q)
                except ValueError as error:
                    raise refusal(what, "GVF", f"be a signal or an expression of signals ({error})", repr(q)) from None
                unknown = sorted(made.names - set(signals))
                if unknown:
                    there = ", ".join(self._signals[:12]) + (", …" if len(signals) > 12 else "")
                    raise refusal(what, "GVF", f"be about the signals, {there}", f"{unknown[0]!r} in {of[i]!r}")
                self._expressions.append((i, made))
        self.varies = bool(at or self._functions or self._expressions)

    def __call__(self, row: Array, transition: Transition) -> Array:
        if not self.varies:
            return self._values
        if self._whole:
            return row[self._from]
        out = self._values.copy()
        if len(self._at):
            out[self._at] = row[self._from]
        for i, function in self._functions:
            out[i] = function(*transition)
        if self._expressions:
            signals = dict(zip(self._signals, row, strict=True))
            for i, expression in self._expressions:
                out[i] = expression(signals)
        return out


def chance(given: Any, observation: Any, action: Any) -> float:
    """π(a) or μ(a): by a number, a table or a function. A density may be above 1."""
    if isinstance(given, Mapping):
        p = given.get(told(action.item() if isinstance(action, np.ndarray) else action), 0.0)
    else:
        p = given(observation, action) if callable(given) else given
    value = float(p)
    if not 0.0 <= value < np.inf:
        raise refusal("policy", "GVF", f"give action {action!r} a probability, or a density, of 0 or more", repr(p))
    return value


def _interest(gamma: float | None) -> float:
    return 1.0 if gamma is None or gamma == 1.0 else 1.0 - gamma


def _check(policy: Policy, of: str) -> None:
    if isinstance(policy.behaviour, str) and policy.behaviour != "count":
        wanted = "be a number, a table or a function where there are no columns, or left out"
        raise refusal("behaviour", "Policy", wanted, f"{policy.behaviour!r} in {of!r}")
