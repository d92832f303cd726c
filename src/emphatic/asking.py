"""Questions put to rows of readings: R, γ, ρ, interest and λ as arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.expressions import Expression
from emphatic.inputs import refusal
from emphatic.questions import GVF, Array, Observations, Policy, Quantity

__all__ = ["Asking", "Rows"]


@dataclass(frozen=True)
class Rows:
    """What B rows say to Q questions, each (B, Q).

    ``R``, ``there`` (whether the cumulant was read) and ``gamma`` are about the step that ends in the row; ``rho`` and
    ``interest`` about the one that begins there; ``x`` is the cumulant with the last reading held.
    """

    R: Array
    there: NDArray[np.bool_]
    gamma: Array
    rho: Array
    interest: Array
    x: Array

    def part(self, some: slice) -> Rows:
        return Rows(self.R[some], self.there[some], self.gamma[some], self.rho[some], self.interest[some], self.x[some])


class Asking:
    """All questions of a horde, made ready for a stream of these signals and categories."""

    def __init__(
        self,
        questions: Sequence[GVF],
        signals: Sequence[str],
        categories: Sequence[str],
        step: float | None,
    ) -> None:
        self.categories = tuple(categories)
        constants = [question.constant_gamma(step) for question in questions]
        #: γ where it is constant, else NaN.
        self.gamma = np.array([np.nan if g is None else g for g in constants])
        #: 1 − γ where γ is constant and below 1: predictions times this are in the cumulant's own unit.
        self.scale = np.array([1.0 if g is None or g == 1.0 else 1.0 - g for g in constants])
        self.lambda_ = np.array([q.default_lambda(g) for q, g in zip(questions, constants, strict=True)])
        self._cumulant = [Asked(q.cumulant, signals, "cumulant", q.name) for q in questions]
        self._gamma = [
            None if g is not None else Asked(q.gamma, signals, "gamma", q.name)  # type: ignore[arg-type]
            for q, g in zip(questions, constants, strict=True)
        ]
        self._interest = [
            Asked(_default_interest(g) if q.interest is None else q.interest, signals, "interest", q.name)
            for q, g in zip(questions, constants, strict=True)
        ]
        self._terminal = [
            None if q.terminal is None else Asked(q.terminal, signals, "terminal", q.name) for q in questions
        ]
        self._ratio = [None if q.policy is None else Ratio(q.policy, signals, categories, q.name) for q in questions]
        plain = np.array([q.policy is None and q.terminal is None for q in questions])
        discounted = np.isfinite(self.gamma) & (self.gamma < 1.0)
        #: Whose answers may be blended: what will be, as things go, of one signal or formula.
        self.blended = plain & discounted
        #: Who learns the departure from a mean: Σ γᵏ (x − x̄) and x̄ / (1 − γ) together are the return.
        self.unit = np.where(discounted & np.array([q.terminal is None for q in questions]), self.scale, 0.0)
        #: Whose emphasis stands still at 1: interest 1 − γ, a constant.
        self.steady = discounted & np.array([q.interest is None and q.policy is None for q in questions])

    def __call__(self, raw: Observations, held: Observations) -> Rows:
        """From the rows as they were read (NaN missing) and with the last reading held."""
        x = np.stack([asked(held) for asked in self._cumulant], axis=1)
        read = np.stack([asked(raw) for asked in self._cumulant], axis=1)
        there = np.isfinite(read)
        gamma = np.empty_like(x)
        for q, asked in enumerate(self._gamma):
            gamma[:, q] = self.gamma[q] if asked is None else asked(held)
            if asked is not None:
                known = np.isfinite(gamma[:, q])
                there[:, q] &= known
                if not ((gamma[known, q] >= 0.0) & (gamma[known, q] <= 1.0)).all():
                    raise refusal("gamma", "GVF", "be between 0 and 1 in every row", f"{gamma[:, q]}")
                gamma[~known, q] = 0.0
        R = np.where(there, read, 0.0)
        for q, asked in enumerate(self._terminal):
            if asked is not None:
                Z = asked(held)
                there[:, q] &= np.isfinite(Z)
                R[:, q] += (1.0 - gamma[:, q]) * np.where(np.isfinite(Z), Z, 0.0)
        R *= self.scale
        interest = np.stack([asked(held) for asked in self._interest], axis=1)
        interest = np.where(np.isfinite(interest), interest, 0.0)
        if (interest < 0.0).any():
            raise refusal("interest", "GVF", "be 0 or more in every row", f"{interest.min()}")
        rho = np.ones_like(x)
        for q, ratio in enumerate(self._ratio):
            if ratio is not None:
                rho[:, q] = ratio(held)
        return Rows(R, there, gamma, rho, interest, x)

    def mean(self, rows: Observations) -> Array:
        """The mean cumulant of the questions that learn the departure from it, else 0."""
        values = np.stack([asked(rows) for asked in self._cumulant], axis=1)
        there = np.isfinite(values)
        mean: Array = np.where(there, values, 0.0).sum(axis=0) / np.maximum(1, there.sum(axis=0))
        return np.where(self.unit > 0.0, mean, 0.0)

    def counts(self) -> list[list[list[Any]] | None]:
        """The actions counted so far, of the questions that estimate μ so."""
        return [None if ratio is None else [[a, c] for a, c in ratio.counts.items()] for ratio in self._ratio]

    def set_counts(self, counts: Sequence[Any]) -> None:
        """Take up what ``counts`` gave."""
        for ratio, pairs in zip(self._ratio, counts, strict=True):
            if ratio is not None:
                ratio.counts = Counter({action: int(count) for action, count in pairs})


def _default_interest(gamma: float | None) -> float:
    return 1.0 if gamma is None or gamma == 1.0 else 1.0 - gamma


class Asked:
    """A quantity of a question as numbers, row by row: a constant, a column, an expression or a function."""

    def __init__(self, quantity: Quantity, names: Sequence[str], what: str, of: str) -> None:
        self.constant = float(quantity) if isinstance(quantity, int | float) else None
        self._function = quantity if callable(quantity) else None
        self.names: tuple[str, ...] = ()
        self._expression: Expression | None = None
        if isinstance(quantity, str):
            if quantity in names:
                self.names = (quantity,)
                return
            try:
                self._expression = Expression(quantity)
            except ValueError as error:
                raise refusal(
                    what, "GVF", f"be a column or an expression of columns ({error})", repr(quantity)
                ) from None
            missing = sorted(self._expression.names - set(names))
            if missing:
                there = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
                raise refusal(what, "GVF", f"be about the signals that there are, {there}", f"{missing[0]!r} in {of!r}")
            self.names = tuple(sorted(self._expression.names))

    def __call__(self, rows: Observations) -> Array:
        """Its value in each row; NaN where it has none."""
        if self.constant is not None:
            return np.full(rows.rows, self.constant)
        if self._expression is not None:
            return np.broadcast_to(self._expression(rows.signals), rows.rows).astype(np.float64)
        if self._function is not None:
            return np.array([float(self._function(rows.row(t))) for t in range(rows.rows)], np.float64)
        return np.asarray(rows.signals[self.names[0]], np.float64)


class Ratio:
    """ρ = π(a) / μ(a) of each row; 0 where the action is missing."""

    def __init__(self, policy: Policy, signals: Sequence[str], categories: Sequence[str], of: str) -> None:
        self.policy = policy
        self.counts: Counter[Any] = Counter()
        known = (*signals, *categories)
        for column in (policy.column, policy.behaviour if isinstance(policy.behaviour, str) else None):
            if column is not None and column != "count" and column not in known:
                raise refusal(
                    "policy", "GVF", f"name columns that there are, {', '.join(known[:12])}", f"{column!r} in {of!r}"
                )

    def __call__(self, rows: Observations) -> Array:
        column = self.policy.column
        actions: Any
        if rows.actions is not None:
            actions = rows.actions
        elif column is None:
            raise refusal("action", "observe", "be given, for a question has a policy and no column of actions", "none")
        else:
            actions = rows.labels[column] if column in rows.labels else rows.signals[column]
        out = np.zeros(rows.rows)
        for t, action in enumerate(actions):
            if action is None or action != action:
                continue
            plain = _plain(action)
            if self.policy.behaviour == "count":
                self.counts[plain] += 1
            pi = self._chance(self.policy.target, rows, t, plain)
            if pi == 0.0:
                continue
            mu = rows.mu[t] if rows.mu is not None else None
            mu = self._mu(rows, t, plain) if mu is None else float(mu)
            if not 0.0 < mu <= 1.0:
                raise refusal(
                    "mu", "observe", f"be above 0 and at most 1 for action {plain!r}, which was taken", repr(mu)
                )
            out[t] = pi / mu
        return out

    def _chance(self, table: Any, rows: Observations, t: int, action: Any) -> float:
        chance = table(rows.row(t), action) if callable(table) else table.get(action, table.get(str(action), 0.0))
        if not 0.0 <= chance <= 1.0:
            raise refusal("policy", "GVF", f"give action {action!r} a probability from 0 to 1", repr(chance))
        return float(chance)

    def _mu(self, rows: Observations, t: int, action: Any) -> float:
        behaviour = self.policy.behaviour
        if isinstance(behaviour, str):
            if behaviour == "count":
                return self.counts[action] / self.counts.total()
            return float(rows.signals[behaviour][t])
        if isinstance(behaviour, int | float):
            return float(behaviour)
        return self._chance(behaviour, rows, t, action)


def _plain(action: Any) -> Any:
    """An action as a file can hold it: 1.0 is 1."""
    value = action.item() if isinstance(action, np.generic) else action
    return int(value) if isinstance(value, float) and value.is_integer() else value
