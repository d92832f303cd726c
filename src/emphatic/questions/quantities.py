"""The quantities that define questions: cumulants, γ, interest and terminal values of rows, as numbers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.learning.inputs import refusal
from emphatic.questions.expressions import Expression
from emphatic.questions.gvf import Array, Observations, Quantity

__all__ = ["Before", "Quantities"]

#: A row as it was read and with the last readings held, in which a step begins.
Before = tuple[Observations, Observations]


class Quantities:
    """One quantity of each question as numbers (B, Q): constants, signals, expressions and functions.

    A function of one parameter is given a row, {name: value}; one of four the transition that ends in the row,
    (observation, action, reward, next observation). The action is the one given with the row, or else that of the
    question's own column of ``actions``; the reward is the signal "reward", or None where there is no such signal.
    """

    def __init__(
        self,
        what: str,
        quantities: Sequence[Quantity | None],
        default: Array,
        signals: Sequence[str],
        of: Sequence[str],
        actions: Sequence[str | None],
    ) -> None:
        self.what, self.of = what, of
        self._actions = actions
        self._reward = signals.index("reward") if "reward" in signals else None
        #: The constants, (1, Q), and defaults; read-only.
        self.constant = np.array(default, np.float64)[None]
        columns: list[tuple[int, int]] = []
        self._expressions: list[tuple[int, Expression]] = []
        self._row_functions: list[tuple[int, Callable[..., Any]]] = []
        self._step_functions: list[tuple[int, Callable[..., Any]]] = []
        for q, quantity in enumerate(quantities):
            if isinstance(quantity, int | float):
                self.constant[0, q] = quantity
            elif isinstance(quantity, str) and quantity in signals:
                columns.append((q, signals.index(quantity)))
            elif isinstance(quantity, str):
                self._expressions.append((q, self._expression(quantity, signals, of[q])))
            elif quantity is not None:
                functions = self._step_functions if self._takes_a_step(quantity, of[q]) else self._row_functions
                functions.append((q, quantity))
        self._at, self._from = np.array(columns, np.int64).reshape(-1, 2).T
        self._only_columns = len(columns) == len(quantities)
        #: Which quantities are functions of a transition.
        self.of_steps: NDArray[np.intp] = np.array([q for q, _ in self._step_functions], np.intp)
        self.has_steps = bool(self._step_functions)
        #: Whether all are constants or signals, and so known where the signals are.
        self.are_signals = not (self._expressions or self._row_functions or self._step_functions)
        #: Whether any is other than a constant, or other than the default.
        self.varies = bool(columns or self._expressions or self._row_functions or self._step_functions)
        #: Whether any question has this quantity.
        self.used = any(quantity is not None for quantity in quantities)

    def __call__(self, rows: Observations) -> Array:
        """The values in each row, NaN where there is none; those of transitions are left to ``steps``.

        Constants are shared, and must not be written to.
        """
        B = len(rows.values)
        if not self.varies:
            return self.constant if B == 1 else np.broadcast_to(self.constant, (B, self.constant.shape[1]))
        if self._only_columns:
            return rows.values.take(self._from, axis=1)
        out = np.repeat(self.constant, B, axis=0)
        if len(self._at):
            out[:, self._at] = rows.values.take(self._from, axis=1)
        if self._expressions:
            signals = rows.signals
            for q, expression in self._expressions:
                out[:, q] = expression(signals)
        if self._row_functions:
            dicts = [rows.row(t) for t in range(B)]
            for q, function in self._row_functions:
                out[:, q] = [self._number(q, function(row)) for row in dicts]
        return out

    def steps(self, rows: Observations, before: Observations | None, follows: NDArray[np.bool_]) -> Array:
        """The values (B, …) of the functions of transitions, ``of_steps``, in the steps that end in the rows.

        ``before`` is the row before the first; only rows that ``follows`` marks end a step.
        """
        out = np.full((len(rows), len(self._step_functions)), np.nan)
        for t in np.flatnonzero(follows).tolist():
            source, at = (before, 0) if t == 0 else (rows, t - 1)
            if source is None:
                continue
            now, following = source.observation(at), rows.observation(t)
            reward = None if self._reward is None else float(rows.values[t, self._reward])
            for i, (q, function) in enumerate(self._step_functions):
                action = self._action(source, at, self._actions[q])
                out[t, i] = self._number(q, function(now, action, reward, following))
        return out

    def _action(self, rows: Observations, t: int, column: str | None) -> Any:
        if rows.actions is not None:
            return rows.actions[t]
        return None if column is None else rows.column(column)[t]

    def _expression(self, text: str, signals: Sequence[str], of: str) -> Expression:
        try:
            expression = Expression(text)
        except ValueError as error:
            wanted = f"be a signal or an expression of signals ({error})"
            raise refusal(self.what, "GVF", wanted, f"{text!r} in {of!r}") from None
        unknown = sorted(expression.names - set(signals))
        if unknown:
            known = ", ".join(signals[:12]) + (", …" if len(signals) > 12 else "")
            raise refusal(self.what, "GVF", f"be about the signals, {known}", f"{unknown[0]!r} in {of!r}")
        return expression

    def _takes_a_step(self, function: Callable[..., Any], of: str) -> bool:
        """Whether a function takes a transition instead of a row."""
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):  # a builtin without a signature
            return False
        required = [
            p
            for p in signature.parameters.values()
            if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        if len(required) != 1 and _can_take(signature, 4):
            return True
        if not _can_take(signature, 1):
            wanted = (
                f"be a function of a row, or of (observation, action, reward, next observation), in {of!r}: "
                "of one parameter or of four"
            )
            raise refusal(self.what, "GVF", wanted, f"{getattr(function, '__name__', 'a function')}{signature}")
        return False

    def _number(self, q: int, value: Any) -> float:
        try:
            return np.nan if value is None else float(value)
        except (TypeError, ValueError, OverflowError):
            raise refusal(self.what, "GVF", f"give numbers in {self.of[q]!r}", repr(value)) from None


def _can_take(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True
