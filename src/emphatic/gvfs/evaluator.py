"""Questions evaluated on rows: R, γ, ρ and interest as arrays.

A row is what was read at one time. A step leads from one row to the next: its cumulant R_{t+1} and γ_{t+1} are read in
the row in which it ends, its ρ_t and interest in the row in which it begins. Rows of a log come in blocks; a transition
of an agent is a step between two blocks of one row, with the reward as a signal of the second.

An *expression* over named signals, as a question may be written in a file, is ``"S1 - S2"`` or ``"abs(S3) > 0.5"``:
names of columns, numbers, + − * / ** %, comparisons, ``and``, ``or``, ``not``, and the functions below. A name that is
not a plain word is written in backticks. Nothing else is allowed, so that a file cannot run code. True counts as 1.
"""

from __future__ import annotations

import ast
import inspect
import math
import operator
import re
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, SupportsFloat

import numpy as np
from numpy.typing import NDArray

from emphatic.gvfs import gvf
from emphatic.gvfs.gvf import GVF, LARGEST, Array, Observations, Policy, Quantity, action_name, can_take
from emphatic.learning.inputs import refusal
from emphatic.rules import AnyRule

__all__ = [
    "FUNCTIONS",
    "Before",
    "Behaviour",
    "Condition",
    "Evaluator",
    "Expression",
    "Quantities",
    "Ratio",
    "Targets",
    "check_behaviour",
]

#: A row as it was read and with the last readings held, in which a step begins.
Before = tuple[Observations, Observations]
#: A stream's own μ: a number, a table or a function of (observation, action); None where it is not known.
Behaviour = float | Mapping[Any, float] | Callable[[Any, Any], float] | None

_FOLLOWS = np.ones(1, bool)


@dataclass(slots=True)
class Targets:
    """The learning targets of Q questions in the steps that end in B rows, each (B, Q).

    ``known`` marks where the cumulant and all else were read; ``all_known`` tells that this is so everywhere.
    ``chances`` are π and μ, for rules that use these themselves.
    """

    R: Array
    known: NDArray[np.bool_]
    gamma: Array
    rho: Array
    interest: Array
    all_known: bool
    chances: Array | None = None  # (2, B, Q)

    def part(self, rows: slice) -> Targets:
        """Some of the rows."""
        R, known, gamma, rho = self.R[rows], self.known[rows], self.gamma[rows], self.rho[rows]
        chances = None if self.chances is None else self.chances[:, rows]
        return Targets(R, known, gamma, rho, self.interest[rows], self.all_known, chances)

    def of(self, questions: NDArray[np.intp]) -> Targets:
        """Some of the questions."""
        known, chances = self.known.take(questions, axis=1), self.chances
        floats = (self.R, self.gamma, self.rho, self.interest)
        R, gamma, rho, interest = (array.take(questions, axis=1) for array in floats)
        chances = None if chances is None else chances.take(questions, axis=2)
        return Targets(R, known, gamma, rho, interest, self.all_known, chances)

    @staticmethod
    def joined(blocks: Sequence[Targets]) -> Targets:
        """The targets of several blocks of rows as one."""
        names = ("R", "known", "gamma", "rho", "interest")
        arrays: dict[str, Any] = {name: np.concatenate([getattr(block, name) for block in blocks]) for name in names}
        chances = [block.chances for block in blocks if block.chances is not None]
        return Targets(
            **arrays,
            all_known=all(block.all_known for block in blocks),
            chances=np.concatenate(chances, axis=1) if chances else None,
        )


class Evaluator:
    """The questions of a horde, prepared for a rule and a stream of these signals and categories.

    The default interest 1 − γ brings F to 1 where every ρ is 1. A rule without emphasis weighs steps by the interest
    itself, and there the default is 1. ``mu`` is the stream's own μ, for policies that do not give one. With
    ``chances`` π and μ of each step are computed too: every question must then have a policy.
    """

    def __init__(
        self,
        questions: Sequence[GVF],
        signals: Sequence[str],
        categories: Sequence[str],
        step: float | None,
        rule: AnyRule,
        mu: Behaviour = None,
        chances: bool = False,
    ) -> None:
        self.signals, self.categories = tuple(signals), tuple(categories)
        if not rule.interest and any(q.interest not in (None, 1.0) for q in questions):
            raise refusal("interest", "GVF", f"be left out for rule {rule.name!r}, which has none", "one")
        self.chances, self.step = chances, step
        constants = [question.constant_gamma(step) for question in questions]
        #: The questions whose γ is 1 everywhere.
        self.endless = [q.name for q, g in zip(questions, constants, strict=True) if g == 1.0]
        #: γ where it is constant, else NaN.
        self.gamma = np.array([np.nan if g is None else g for g in constants])
        discounted = self.gamma < 1.0
        #: 1 − γ where γ is constant and below 1: predictions times this are in the cumulant's own unit.
        self.scale = np.where(discounted, 1.0 - self.gamma, 1.0)
        self.lambda_ = np.array([q.default_lambda(g) for q, g in zip(questions, constants, strict=True)])
        names = [question.name for question in questions]
        actions = [None if q.policy is None else q.policy.column for q in questions]

        def quantities(what: str, each: Sequence[Quantity | None], default: Array) -> Quantities:
            return Quantities(what, each, default, self.signals, names, actions)

        Q = len(questions)
        self._cumulant = quantities("cumulant", [q.cumulant for q in questions], self.scale)
        self._gamma = quantities("gamma", [None if q.horizon is not None else q.gamma for q in questions], self.gamma)
        usual = self.scale if rule.emphasis else np.ones(Q)
        self._interest = quantities("interest", [q.interest for q in questions], usual)
        self._terminal = quantities("terminal", [q.terminal for q in questions], np.zeros(Q))
        self._ones, self._zeros, self._yes = np.ones((1, Q)), np.zeros((1, Q)), np.ones((1, Q), bool)
        #: Whether R is known wherever the signals are, and is simply read.
        self._sure = self._cumulant.are_signals and not self._gamma.varies and not self._terminal.used
        #: Whether everything else in a step is constant too, except for termination.
        self._plain = self._sure and not self._interest.varies and not any(q.policy for q in questions)
        # Each policy once, and which questions are about it.
        of_policy: list[tuple[Ratio, list[int]]] = []
        self._with_policy = [q for q, question in enumerate(questions) if question.policy is not None]
        for q in self._with_policy:
            policy = questions[q].policy
            assert policy is not None
            sharers = next((of for ratio, of in of_policy if ratio.policy == policy), None)
            if sharers is None:
                of_policy.append((Ratio(policy, self.signals, self.categories, names[q], mu), [q]))
            else:
                sharers.append(q)
        self._ratios = [(ratio, np.array(of, np.intp)) for ratio, of in of_policy]
        #: Whether actions are counted.
        self.counting = any(ratio.counting for ratio, _ in self._ratios)
        unpaid = np.array([q.terminal is None for q in questions], bool)
        plain = np.array([q.policy is None for q in questions], bool)
        #: Which questions have a policy.
        self.with_policy = ~plain
        #: Which questions learn the deviation from a mean: Σ γᵏ (x − x̄) and x̄ / (1 − γ) together are the return.
        self.unit = np.where(discounted & unpaid, self.scale, 0.0)
        #: Where F, once at 1, stays there: on-policy, with interest 1 − γ, a constant.
        self.steady = discounted & plain & np.array([q.interest is None for q in questions], bool)
        if rule.emphasis != "gamma":
            self.steady[:] = False
        #: ρ and interest, with ``chances`` π and μ too, of the step that begins in the last row of a log, (2 or 4, Q).
        self.departure = np.zeros((4 if chances else 2, Q))
        self._plain_departure = np.concatenate([self._ones, self._interest.constant])
        #: Whether some function is given transitions, so that the row before is needed.
        self.needs_before = any(
            quantity.has_steps for quantity in (self._cumulant, self._gamma, self._interest, self._terminal)
        )
        #: Whether some function is given observations, and not rows alone.
        self.needs_observations = self.needs_before or any(ratio.has_functions for ratio, _ in self._ratios)

    def __call__(
        self,
        raw: Observations,
        held: Observations,
        before: Before | None = None,
        follows: NDArray[np.bool_] | None = None,
    ) -> Targets:
        """The targets of rows of a log.

        Args:
            raw: The rows as they were read, NaN where a reading is missing.
            held: The rows with the last reading held.
            before: The row before the first of them; None where there is none.
            follows: The rows (B,) that end a step; all of them by default.
        """
        if self._plain and raw.complete:
            self.departure = self._plain_departure
            R = self._cumulant(raw)
            return Targets(R, self._yes, self._gamma.constant, self._ones, self._interest.constant, True)
        follows = np.ones(len(raw), bool) if follows is None else follows
        R, known, gamma, all_known = self._arrive(raw, held, before, follows, False)
        departures = self._depart(raw, held)
        rho, interest, *chances = (
            np.vstack([arrival, rows[:-1]]) for arrival, rows in zip(self.departure, departures, strict=True)
        )
        if self._interest.has_steps:
            self._put_late_interest(interest, held, before, follows)
        self.departure = np.stack([rows[-1] for rows in departures])
        return Targets(R, known, gamma, rho, interest, all_known, np.stack(chances) if chances else None)

    @property
    def constants(self) -> tuple[Array, Array] | None:
        """γ and interest (1, Q), where they are constant and every step's cumulant is simply read; else None."""
        return (self._gamma.constant, self._interest.constant) if self._plain else None

    def read_step(self, values: Array) -> Array:
        """The cumulants (1, Q) of an agent's row (1, C) with nothing missing, where ``constants`` are all else.

        Args:
            values: The row.
        """
        return self._cumulant.select(values)

    def transition(self, before: Before, raw: Observations, held: Observations, terminated: bool) -> Targets:
        """One step from the row before, which has the action, to the next, both blocks of one row.

        Where it ``terminated`` γ is 0.
        """
        if self._plain and raw.complete:
            R, gamma = self._cumulant(raw), self._zeros if terminated else self._gamma.constant
            return Targets(R, self._yes, gamma, self._ones, self._interest.constant, True)
        R, known, gamma, all_known = self._arrive(raw, held, before, _FOLLOWS, terminated)
        rho, interest, *chances = self._depart(*before)
        if self._interest.has_steps:
            self._put_late_interest(interest, held, before, _FOLLOWS)
        return Targets(R, known, gamma, rho, interest, all_known, np.stack(chances) if chances else None)

    def _arrive(
        self, raw: Observations, held: Observations, before: Before | None, follows: NDArray[np.bool_], terminated: bool
    ) -> tuple[Array, NDArray[np.bool_], Array, bool]:
        """R, where it is known, and γ of the steps that end in the rows; and whether all is known."""
        if raw.complete and self._sure:
            return self._cumulant(raw), self._yes, self._zeros if terminated else self._gamma.constant, True
        before_raw, before_held = (None, None) if before is None else before
        x = self._read(self._cumulant, raw, before_raw, follows)
        known = np.abs(x) <= LARGEST
        if terminated:
            gamma = self._zeros
        else:
            gamma = self._read(self._gamma, held, before_held, follows)
            if self._gamma.varies:
                finite = np.isfinite(gamma)
                known &= finite
                gamma[~finite] = 0.0
                self._check("gamma", gamma, 1.0)
        Z = None
        if self._terminal.used:
            Z = self._read(self._terminal, held, before_held, follows)
            known &= np.abs(Z) <= LARGEST
        all_known = np.count_nonzero(known) == known.size
        R = x if all_known else np.where(known, x, 0.0)
        if Z is not None:
            R = np.where(known, R + (1.0 - gamma) * np.where(known, Z, 0.0), 0.0)
        return R, known, gamma, all_known

    def _depart(self, raw: Observations, held: Observations) -> tuple[Array, ...]:
        """ρ and interest of the steps that begin in the rows; with ``chances`` π and μ too."""
        interest = self._interest(held)
        if self._interest.varies:
            interest[np.isnan(interest)] = 0.0
            self._check("interest", interest, LARGEST)
        B = len(raw.values)
        if self.chances:
            chances = np.empty((3, *interest.shape))  # ρ, π and μ
            for ratio, of in self._ratios:
                chances[:, :, of] = ratio.chances(raw, held)[:, :, None]
            return chances[0], interest, chances[1], chances[2]
        rho = self._ones if B == 1 else np.ones(interest.shape)
        if self._ratios:
            rho = rho.copy() if B == 1 else rho
            for ratio, of in self._ratios:
                if B == 1:
                    rho[0, of] = ratio.at(raw, held)
                else:
                    rho[:, of] = ratio(raw, held)[:, None]
        return rho, interest

    def _read(
        self, quantities: Quantities, rows: Observations, before: Observations | None, follows: NDArray[np.bool_]
    ) -> Array:
        out = quantities(rows)
        if quantities.has_steps:
            out[:, quantities.of_steps] = quantities.steps(rows, before, follows)
        return out

    def _put_late_interest(
        self, interest: Array, held: Observations, before: Before | None, follows: NDArray[np.bool_]
    ) -> None:
        """Interest by functions of the transition, which is known only when it ends."""
        values = self._interest.steps(held, None if before is None else before[1], follows)
        interest[:, self._interest.of_steps] = np.where(np.isnan(values), 0.0, values)
        self._check("interest", interest, LARGEST)

    def _check(self, what: str, values: Array, most: float) -> None:
        """Raise if a value is below 0 or above ``most``."""
        bad = ~((values >= 0.0) & (values <= most))
        if bad.any():
            t, q = np.argwhere(bad)[0]
            name = self._gamma.of[q]
            raise refusal(what, "GVF", f"be between 0 and {most:g} in every row", f"{values[t, q]} of {name!r}")

    def cumulants(self, raw: Observations) -> Array:
        """The cumulants read in the first row of an episode, in which no step ends."""
        return self._read(self._cumulant, raw, None, np.zeros(len(raw), bool))

    def mean(self, rows: Observations) -> Array:
        """The mean cumulant of the questions that learn the deviation from it, else 0."""
        follows = np.arange(len(rows)) > 0
        values = self._read(self._cumulant, rows, None, follows)
        known = np.abs(values) <= LARGEST
        mean: Array = np.where(known, values, 0.0).sum(axis=0) / np.maximum(1, known.sum(axis=0))
        return np.where(self.unit > 0.0, mean, 0.0)

    @property
    def counts(self) -> list[dict[str, int]]:
        """The actions counted so far, of each question with a policy."""
        if not self.counting:
            return [{} for _ in self._with_policy]
        of_question = {q: ratio.counts for ratio, of in self._ratios for q in of.tolist()}
        return [dict(of_question[q]) for q in self._with_policy]

    @counts.setter
    def counts(self, counts: Sequence[dict[str, int]]) -> None:
        if len(counts) != len(self._with_policy):
            raise ValueError("its counts of actions are not one per policy")
        for counted in counts:
            if not all(type(count) is int and count > 0 for count in counted.values()):
                raise ValueError("its counts of actions are not whole numbers")
        of_question = dict(zip(self._with_policy, counts, strict=True))
        for ratio, of in self._ratios:
            ratio.counts = Counter(of_question[int(of[0])])


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
        out = self.select(rows.values)
        if self._expressions:
            signals = rows.signals
            for q, expression in self._expressions:
                out[:, q] = expression(signals)
        if self._row_functions:
            dicts = [rows.row(t) for t in range(B)]
            for q, function in self._row_functions:
                out[:, q] = [self._as_float(q, function(row)) for row in dicts]
        return out

    def select(self, values: Array) -> Array:
        """The constants and the signals in rows (B, C), among the values (B, Q) of all."""
        if self._only_columns:
            return values.take(self._from, axis=1)
        out = np.repeat(self.constant, len(values), axis=0)
        if len(self._at):
            out[:, self._at] = values.take(self._from, axis=1)
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
            observation, next_observation = source.observation(at), rows.observation(t)
            reward = None if self._reward is None else float(rows.values[t, self._reward])
            for i, (q, function) in enumerate(self._step_functions):
                action = self._action(source, at, self._actions[q])
                out[t, i] = self._as_float(q, function(observation, action, reward, next_observation))
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
        if len(required) != 1 and can_take(signature, 4):
            return True
        if not can_take(signature, 1):
            wanted = f"be a function of a row, or of (observation, action, reward, next observation), in {of!r}"
            got = f"{getattr(function, '__name__', 'a function')}{signature}"
            raise refusal(self.what, "GVF", f"{wanted}: of one parameter or of four", got)
        return False

    def _as_float(self, q: int, value: SupportsFloat | None) -> float:
        try:
            return np.nan if value is None else float(value)
        except (TypeError, ValueError, OverflowError):
            raise refusal(self.what, "GVF", f"give numbers in {self.of[q]!r}", repr(value)) from None


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
        by_policy = policy.behaviour != "count"
        #: Whether actions are counted, for nothing else gives μ.
        self.counting = not by_policy and default is None
        self._behaviour = policy.behaviour if by_policy else default
        self._target = policy.target if isinstance(policy.target, Mapping) else None
        self._target_function: Callable[[Any, Any], float] = policy.target  # type: ignore[assignment]
        self.has_functions = callable(policy.target) or callable(self._behaviour)
        self._by_name = self._target is not None or isinstance(self._behaviour, Mapping)
        self._column = self._behaviour if isinstance(self._behaviour, str) else None
        for what, column, known in (
            ("column", policy.column, (*signals, *categories)),
            ("behaviour", self._column, tuple(signals)),
        ):
            if column is not None and column not in known:
                wanted = f"name existing columns, {', '.join(known[:12])}, as its {what!r}"
                raise refusal("policy", "GVF", wanted, f"{column!r} in {of!r}")
        if policy.column in signals and self._target is not None and not any(map(_is_number, self._target)):
            wanted = (
                f"have a target of numbers, because its column {policy.column!r} holds numbers (of ON and OFF, 1 and 0)"
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
        chances = np.array([self._ratio(raw, held, t, action, column) for t, action in enumerate(actions)]).T
        for what, values in zip(("pi", "mu"), chances[1:], strict=True):
            if (values > 1.0).any():
                wanted = "be a probability, at most 1, for this rule; densities are not supported"
                raise refusal(what, "GVF", wanted, f"{values.max()} in {self.of!r}")
        return chances

    def _actions(self, raw: Observations) -> Sequence[Any]:
        if raw.actions is not None:
            return raw.actions
        if self.policy.column is None:
            wanted = f"be given, because {self.of!r} has a policy and no column of actions"
            raise refusal("action", "observe", wanted, "none")
        return raw.column(self.policy.column)

    def _ratio(
        self, raw: Observations, held: Observations, t: int, action: object, chances: Sequence[Any] | None
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
            else self._density(self._target_function, held, t, action)
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

    def _refused(self, action: object, most: str, mu: object) -> ValueError:
        wanted = f"be above 0 and {most} for action {_format(action)!r}, which was chosen"
        return refusal("mu", "observe", wanted, f"{mu!r} in {self.of!r}")

    def _mu(self, held: Observations, t: int, action: object, name: str) -> float:
        """μ(a) by a table, a function or a number."""
        behaviour = self._behaviour
        if behaviour is None:
            wanted = "be given with the step, or set env.mu before it: these actions cannot be counted"
            raise refusal("mu", "learn", wanted, f"none for {self.of!r}")
        if callable(behaviour):
            return self._density(behaviour, held, t, action)
        return float(behaviour.get(name, 0.0) if isinstance(behaviour, Mapping) else behaviour)

    def _density(self, function: Callable[[Any, Any], float], held: Observations, t: int, action: object) -> float:
        chance: object = function(held.observation(t), action)
        value = _as_number(chance)
        if not 0.0 <= value <= LARGEST:
            wanted = f"give action {_format(action)!r} in {self.of!r} a probability, or a density, of 0 or more"
            raise refusal("policy", "GVF", wanted, repr(chance))
        return value


def check_behaviour(mu: object, function: str) -> Behaviour:
    """A stream's own μ, checked."""
    if isinstance(mu, Mapping):
        return {action_name(action): float(p) for action, p in mu.items()}
    if mu is None or (callable(mu) and gvf.takes_action(mu)):
        return mu
    value = _as_number(mu)
    if not 1.0 / LARGEST < value <= LARGEST:
        wanted = "be a function of (observation, action), a table, or a number above 0"
        raise refusal("mu", function, wanted, repr(mu))
    return value


def _as_number(value: object) -> float:
    """A number, or an array of one number; NaN for anything else."""
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.item()
    return float(value) if isinstance(value, int | float | np.number) else np.nan


def _scalar(action: object) -> Any:
    return action.item() if isinstance(action, np.ndarray) and action.size == 1 else action


def _format(action: object) -> Any:
    try:
        return action_name(_scalar(action))
    except ValueError:
        return action


def _is_number(action: str) -> bool:
    try:
        return not math.isnan(float(action))
    except ValueError:
        return False


# ---------------------------------------------------------------------- expressions


Function = Callable[..., Any]

#: Each function, and its least and greatest number of arguments.
FUNCTIONS: dict[str, tuple[Function, int, int]] = {"abs": (np.abs, 1, 1)}
FUNCTIONS["min"] = lambda *values: reduce(np.minimum, values), 2, 99
FUNCTIONS["max"] = lambda *values: reduce(np.maximum, values), 2, 99
FUNCTIONS |= {name: (getattr(np, name), 1, 1) for name in ("sqrt", "exp", "log", "sin", "cos", "sign")}
FUNCTIONS["where"] = np.where, 3, 3

_OPERATORS: dict[type[ast.AST], Function] = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}
_OPERATORS |= {ast.Div: operator.truediv, ast.Pow: operator.pow, ast.Mod: operator.mod}
_OPERATORS |= {ast.USub: operator.neg, ast.UAdd: operator.pos}
_OPERATORS |= {ast.Not: np.logical_not, ast.And: np.logical_and, ast.Or: np.logical_or}
_OPERATORS |= {ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Lt: operator.lt, ast.LtE: operator.le}
_OPERATORS |= {ast.Eq: operator.eq, ast.NotEq: operator.ne}

#: The longest expression allowed.
_LONGEST = 1000


class Expression:
    """A formula of signals.

    >>> import numpy as np
    >>> area = Expression("2 * `side 1` + max(S2, 0)")
    >>> sorted(area.names)
    ['S2', 'side 1']
    >>> area({"side 1": np.array([1.0, 2.0]), "S2": np.array([-1.0, 1.0])}).tolist()
    [2.0, 5.0]
    """

    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or not text.strip() or len(text) > _LONGEST:
            raise ValueError(f"an expression must have 1 to {_LONGEST} characters, got {str(text)[:60]!r}")
        self.text = text
        word = "quoted"
        while word in text:
            word += "_"
        quoted: list[str] = []

        def plain(match: re.Match[str]) -> str:
            quoted.append(match[1])
            return f" {word}{len(quoted) - 1} "

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                source = re.sub(r"`([^`]+)`", plain, text).strip()
                tree = ast.parse(source, mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise ValueError(f"{text!r} is not an expression of signals") from None
        self.names: set[str] = set()
        #: In reverse Polish order: numbers, names, and functions with their number of arguments. There is
        #: no recursion, neither here nor in a call, for a text may be nested deeper than the interpreter goes.
        self._program: list[float | str | tuple[Function, int]] = []
        self._tree, self._source = tree.body, source
        self._quoted = {f"{word}{i}": name for i, name in enumerate(quoted)}
        todo: list[ast.AST] = [tree.body]
        while todo:
            item, operands = self._decompose(todo.pop())
            self._program.append(item)
            todo += operands
        self._program.reverse()

    @property
    def is_condition(self) -> bool:
        """Whether it is a comparison, or conditions joined by ``and``, ``or`` and ``not``."""
        match self._tree:
            case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
                return True
        return False

    def _decompose(self, node: ast.AST) -> tuple[float | str | tuple[Function, int], list[ast.expr]]:
        """The operation of a node, and its operands."""
        match node:
            case ast.Constant(value=bool() | int() | float() as number) if abs(number) < 1e300:
                return float(number), []
            case ast.Name(id=word):
                name = self._quoted.get(word, word)
                self.names.add(name)
                return name, []
            case ast.BinOp(left=left, op=op, right=right) | ast.Compare(left=left, ops=[op], comparators=[right]) if (
                type(op) in _OPERATORS
            ):
                return (_OPERATORS[type(op)], 2), [left, right]
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
                return (_OPERATORS[type(op)], 1), [operand]
            case ast.BoolOp(op=op, values=values):
                function = _OPERATORS[type(op)]
                return (lambda *values: reduce(function, values), len(values)), values
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
                function, least, most = FUNCTIONS[name]
                if least <= len(args) <= most:
                    return (function, len(args)), args
        segment = ast.get_source_segment(self._source, node)
        raise ValueError(
            f"{self.text!r} has a part that is not understood: {segment!r}. There are names of signals, numbers, "
            f"+ - * / ** %, comparisons of two, and, or, not, and {', '.join(FUNCTIONS)}"
        )

    def __call__(self, signals: Mapping[str, NDArray[Any] | float]) -> Any:
        """Its value; NaN where any of its signals is missing or the formula has none."""
        return self._evaluate(self._program, signals)

    def _evaluate(
        self, program: list[float | str | tuple[Function, int]], signals: Mapping[str, NDArray[Any] | float]
    ) -> Any:
        stack: list[Any] = []
        with np.errstate(all="ignore"):
            for item in program:
                if isinstance(item, str):
                    stack.append(np.asarray(signals[item], np.float64))
                elif isinstance(item, float):
                    stack.append(np.float64(item))
                else:
                    function, count = item
                    values = stack[-count:]
                    del stack[-count:]
                    stack.append(np.asarray(function(*values), np.float64))
            # A comparison with what is missing is false, and would count as 0.
            missing = reduce(operator.or_, (np.isnan(signals[name]) for name in self.names), np.False_)
            return np.where(missing, np.nan, stack[0])

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"


#: How far two sides of a comparison are on its right side, in their own unit; ± 1 where there is no distance.
_MARGINS: dict[type[ast.AST], Function] = {
    ast.Gt: operator.sub,
    ast.GtE: operator.sub,
    ast.Lt: lambda a, b: b - a,
    ast.LtE: lambda a, b: b - a,
    ast.Eq: lambda a, b: np.where(a == b, 1.0, -1.0),
    ast.NotEq: lambda a, b: np.where(a != b, 1.0, -1.0),
}


class Condition(Expression):
    """An expression that holds where it is not 0, with a margin: by how much it holds, or fails below 0.

    The margin of ``a > b`` is a − b, of ``and`` the smallest margin, of ``or`` the greatest, of ``not`` the negative,
    and of whatever else ± 1.

    >>> import numpy as np
    >>> hot = Condition("T > 30 and not H < 20")
    >>> signals = {"T": np.array([31.0, 35.0, 20.0]), "H": np.array([50.0, 18.0, np.nan])}
    >>> hot(signals).tolist(), hot.margin(signals).tolist()
    ([1.0, 0.0, nan], [1.0, -2.0, nan])
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._margins: list[float | str | tuple[Function, int]] = []
        todo: list[tuple[ast.AST, bool]] = [(self._tree, True)]
        while todo:
            node, holds = todo.pop()
            item: float | str | tuple[Function, int]
            operands: list[tuple[ast.AST, bool]]
            match node:
                case ast.Compare(left=left, ops=[op], comparators=[right]) if holds:
                    item, operands = (_MARGINS[type(op)], 2), [(left, False), (right, False)]
                case ast.BoolOp(op=op, values=values) if holds:
                    smallest_or_greatest = np.minimum if isinstance(op, ast.And) else np.maximum
                    item = (lambda *margins, f=smallest_or_greatest: reduce(f, margins)), len(values)
                    operands = [(value, True) for value in values]
                case ast.UnaryOp(op=ast.Not(), operand=operand) if holds:
                    item, operands = (operator.neg, 1), [(operand, True)]
                case _ if holds:
                    item, operands = (lambda value: np.where(value != 0, 1.0, -1.0), 1), [(node, False)]
                case _:
                    item, numbers = self._decompose(node)
                    operands = [(number, False) for number in numbers]
            self._margins.append(item)
            todo += operands
        self._margins.reverse()

    def margin(self, signals: Mapping[str, NDArray[Any] | float]) -> Any:
        """By how much it holds; NaN where any of its signals is missing."""
        return self._evaluate(self._margins, signals)
