"""What questions are made of, row by row: their cumulants, γ, interest and terminal values, and their ratios ρ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from emphatic.learning.inputs import refusal
from emphatic.questions.expressions import Expression
from emphatic.questions.gvf import LARGEST, Array, Observations, Policy, Quantity, told

__all__ = ["Quantities", "Ratio"]


class Quantities:
    """One quantity of each question as numbers (B, Q): constants, columns, expressions and functions."""

    def __init__(
        self, what: str, given: Sequence[Quantity | None], default: Array, names: Sequence[str], of: Sequence[str]
    ) -> None:
        self.what, self.of = what, of
        self._constant = np.array(default, np.float64)
        columns: list[tuple[int, int]] = []
        self._made: list[tuple[int, Expression | Callable[[Any], Any]]] = []
        for q, quantity in enumerate(given):
            if isinstance(quantity, int | float):
                self._constant[q] = quantity
            elif isinstance(quantity, str) and quantity in names:
                columns.append((q, names.index(quantity)))
            elif isinstance(quantity, str):
                self._made.append((q, self._expression(quantity, names, of[q])))
            elif quantity is not None:
                self._made.append((q, quantity))
        self._columns = np.array(columns, np.int64).reshape(-1, 2).T
        #: Whether any is other than a constant, or other than the default.
        self.varies = bool(columns or self._made)
        self.given = any(quantity is not None for quantity in given)

    def _expression(self, text: str, names: Sequence[str], of: str) -> Expression:
        try:
            made = Expression(text)
        except ValueError as error:
            raise refusal(
                self.what, "GVF", f"be a column or an expression of columns ({error})", f"{text!r} in {of!r}"
            ) from None
        missing = sorted(made.names - set(names))
        if missing:
            there = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
            raise refusal(
                self.what, "GVF", f"be about the signals that there are, {there}", f"{missing[0]!r} in {of!r}"
            )
        return made

    def __call__(self, rows: Observations) -> Array:
        """The values in each row; NaN where there is none."""
        out = np.empty((len(rows), len(self._constant)))
        out[:] = self._constant
        at, column = self._columns
        out[:, at] = rows.values[:, column]
        for q, made in self._made:
            if isinstance(made, Expression):
                out[:, q] = made(rows.signals)
            else:
                out[:, q] = [self._number(q, made(rows.row(t))) for t in range(len(rows))]
        return out

    def _number(self, q: int, value: Any) -> float:
        try:
            return np.nan if value is None else float(value)
        except (TypeError, ValueError, OverflowError):
            raise refusal(self.what, "GVF", f"give numbers in {self.of[q]!r}", repr(value)) from None


class Ratio:
    """ρ = π(a) / μ(a) of each row; 0 where the action or μ is missing."""

    def __init__(self, policy: Policy, signals: Sequence[str], categories: Sequence[str], of: str) -> None:
        self.policy, self.of = policy, of
        self.counts: Counter[str] = Counter()
        mu = policy.behaviour if isinstance(policy.behaviour, str) and policy.behaviour != "count" else None
        for column, known in ((policy.column, (*signals, *categories)), (mu, tuple(signals))):
            if column is not None and column not in known:
                raise refusal(
                    "policy", "GVF", f"name columns that there are, {', '.join(known[:12])}", f"{column!r} in {of!r}"
                )

    def __call__(self, raw: Observations, held: Observations) -> Array:
        """Actions and μ are those that were read; functions see the last readings held."""
        behaviour, column = self.policy.behaviour, self.policy.column
        actions: Sequence[Any]
        if raw.actions is not None:
            actions = raw.actions
        elif column is None:
            wanted = f"be given, for {self.of!r} has a policy and no column of actions"
            raise refusal("action", "observe", wanted, "none")
        else:
            actions = raw.labels[column] if column in raw.labels else raw.signals[column].tolist()
        mu: Sequence[Any] | None = raw.mu
        if mu is None and isinstance(behaviour, str) and behaviour != "count":
            mu = raw.signals[behaviour].tolist()
        out = np.zeros(len(raw))
        for t, action in enumerate(actions):
            if action is None or action != action:
                continue
            name = told(action)
            if behaviour == "count":
                self.counts[name] += 1
            pi = self._chance(self.policy.target, held, t, action, name)
            if pi == 0.0:
                continue
            chance = mu[t] if mu is not None else self._mu(held, t, action, name)
            if chance is None or chance != chance:
                continue
            if not 1.0 / LARGEST < chance <= 1.0:
                raise refusal(
                    "mu", "observe", f"be above 0 and at most 1 for action {name!r}, which was taken", repr(chance)
                )
            out[t] = pi / chance
        return out

    def _mu(self, held: Observations, t: int, action: Any, name: str) -> float:
        behaviour = self.policy.behaviour
        if behaviour == "count":
            return self.counts[name] / self.counts.total()
        return behaviour if isinstance(behaviour, float | int) else self._chance(behaviour, held, t, action, name)

    def _chance(self, table: Any, held: Observations, t: int, action: Any, name: str) -> float:
        if not callable(table):
            return float(table.get(name, 0.0))
        chance: Any = table(held.row(t), action)
        value = float(chance) if isinstance(chance, int | float | np.number) else np.nan
        if not 0.0 <= value <= 1.0:
            raise refusal("policy", "GVF", f"give action {name!r} in {self.of!r} a probability", repr(chance))
        return value
