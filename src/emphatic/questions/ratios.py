"""ρ = π(a) / μ(a), the importance sampling ratio of each step."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from emphatic.learning.inputs import refusal
from emphatic.questions.gvf import LARGEST, Array, Observations, Policy, action_name, takes_action

__all__ = ["Behaviour", "Ratio", "check_behaviour"]

#: A stream's own μ: a number, a table or a function of (observation, action); None where it is not known.
Behaviour = float | Mapping[Any, float] | Callable[[Any, Any], float] | None


class Ratio:
    """ρ of the steps that begin in rows, for one policy; 0 where the action or μ is missing.

    μ is, in this order: what came with the row; the policy's own ``behaviour`` unless that is "count"; the stream's,
    ``default``; the fraction of all actions so far that were this one. π and μ may be densities where a function gives
    them, and μ where it comes with the row.
    """

    def __init__(
        self, policy: Policy, signals: Sequence[str], categories: Sequence[str], of: str, default: Behaviour = None
    ) -> None:
        self.policy, self.of = policy, of
        self.counts: Counter[str] = Counter()
        own = policy.behaviour != "count"
        #: Whether actions are counted, for nothing else gives μ.
        self.counting = not own and default is None
        self._behaviour = policy.behaviour if own else default
        self._target = policy.target if isinstance(policy.target, Mapping) else None
        self.has_functions = callable(policy.target) or callable(self._behaviour)
        self._by_name = self._target is not None or isinstance(self._behaviour, Mapping)
        self._column = self._behaviour if isinstance(self._behaviour, str) else None
        for what, column, known in (
            ("column", policy.column, (*signals, *categories)),
            ("behaviour", self._column, tuple(signals)),
        ):
            if column is not None and column not in known:
                wanted = f"name columns that there are, {', '.join(known[:12])}, as its {what!r}"
                raise refusal("policy", "GVF", wanted, f"{column!r} in {of!r}")
        if policy.column in signals and self._target is not None and not any(map(_is_number, self._target)):
            wanted = (
                f"have a target of numbers, for its column {policy.column!r} holds numbers (of ON and OFF, 1 and 0)"
            )
            raise refusal("policy", "GVF", wanted, f"{list(self._target)} in {of!r}")

    def __call__(self, raw: Observations, held: Observations) -> Array:
        """ρ of each row. Actions and μ are those that were read; functions see the last readings held."""
        actions = self._actions(raw)
        chances = None if self._column is None else raw.column(self._column)
        return np.array([self._ratio(raw, held, t, action, chances)[0] for t, action in enumerate(actions)])

    def at(self, raw: Observations, held: Observations) -> float:
        """ρ of a single row."""
        chances = None if self._column is None else raw.column(self._column)
        return self._ratio(raw, held, 0, self._actions(raw)[0], chances)[0]

    def chances(self, raw: Observations, held: Observations) -> Array:
        """ρ, π and μ of each row, (3, B); π = 0 and μ = 1 where ρ is 0 because one of them is missing.

        For rules that use π and μ themselves, which must be probabilities.
        """
        actions = self._actions(raw)
        column = None if self._column is None else raw.column(self._column)
        found = np.array([self._ratio(raw, held, t, action, column) for t, action in enumerate(actions)]).T
        for what, values in zip(("pi", "mu"), found[1:], strict=True):
            if (values > 1.0).any():
                wanted = "be a probability, at most 1, for this rule; densities are not supported"
                raise refusal(what, "GVF", wanted, f"{values.max()} in {self.of!r}")
        return found

    def _actions(self, raw: Observations) -> Sequence[Any]:
        if raw.actions is not None:
            return raw.actions
        if self.policy.column is None:
            wanted = f"be given, for {self.of!r} has a policy and no column of actions"
            raise refusal("action", "observe", wanted, "none")
        return raw.column(self.policy.column)

    def _ratio(
        self, raw: Observations, held: Observations, t: int, action: Any, chances: Sequence[Any] | None
    ) -> tuple[float, float, float]:
        """ρ, π and μ."""
        if action is None or (isinstance(action, float | np.floating) and action != action):
            return 0.0, 0.0, 1.0
        counted = self.counting and not (isinstance(action, np.ndarray) and action.ndim)
        name = action_name(_scalar(action)) if self._by_name or counted else ""
        if counted:
            self.counts[name] += 1
        pi = (
            self._target.get(name, 0.0)
            if self._target is not None
            else self._density(self.policy.target, held, t, action)
        )
        if pi == 0.0:
            return 0.0, 0.0, 1.0
        mu = None if raw.mu is None else raw.mu[t]
        if mu is None and chances is not None:
            mu = chances[t]
            if mu is None or mu != mu:
                return 0.0, 0.0, 1.0
            if not mu <= 1.0:
                raise self._refused(action, "at most 1", mu)
        elif mu is None:
            mu = self.counts[name] / self.counts.total() if counted else self._mu(held, t, action, name)
        if not 1.0 / LARGEST < mu <= LARGEST:
            raise self._refused(action, "finite", mu)
        return float(pi / mu), pi, mu

    def _refused(self, action: Any, most: str, mu: Any) -> ValueError:
        wanted = f"be above 0 and {most} for action {_format(action)!r}, which was chosen"
        return refusal("mu", "observe", wanted, f"{mu!r} in {self.of!r}")

    def _mu(self, held: Observations, t: int, action: Any, name: str) -> float:
        """μ(a) by a table, a function or a number."""
        behaviour: Any = self._behaviour
        if behaviour is None:
            wanted = "be given where actions cannot be counted: with the step, or set env.mu before it"
            raise refusal("mu", "learn", wanted, f"none for {self.of!r}")
        if callable(behaviour):
            return self._density(behaviour, held, t, action)
        return float(behaviour.get(name, 0.0) if isinstance(behaviour, Mapping) else behaviour)

    def _density(self, function: Any, held: Observations, t: int, action: Any) -> float:
        chance: Any = function(held.observation(t), action)
        value = _number(chance)
        if not 0.0 <= value <= LARGEST:
            wanted = f"give action {_format(action)!r} in {self.of!r} a probability, or a density, of 0 or more"
            raise refusal("policy", "GVF", wanted, repr(chance))
        return value


def check_behaviour(mu: Any, function: str) -> Behaviour:
    """A stream's own μ, checked."""
    if isinstance(mu, Mapping):
        return {action_name(action): float(p) for action, p in mu.items()}
    if mu is None or (callable(mu) and takes_action(mu)):
        return mu  # type: ignore[no-any-return]
    value = _number(mu)
    if not 1.0 / LARGEST < value <= LARGEST:
        wanted = "be a function of (observation, action), a table, or a number above 0"
        raise refusal("mu", function, wanted, repr(mu))
    return value


def _number(value: Any) -> float:
    """A number, or an array of one number; NaN for anything else."""
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.item()
    return float(value) if isinstance(value, int | float | np.number) else np.nan


def _scalar(action: Any) -> Any:
    return action.item() if isinstance(action, np.ndarray) and action.size == 1 else action


def _format(action: Any) -> Any:
    try:
        return action_name(_scalar(action))
    except ValueError:
        return action


def _is_number(action: str) -> bool:
    try:
        return not math.isnan(float(action))
    except ValueError:
        return False
