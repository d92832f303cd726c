"""Questions evaluated on rows: R, γ, ρ and interest as arrays.

A row is what was read at one time. A step leads from one row to the next: its cumulant R_{t+1} and γ_{t+1} are read in
the row in which it ends, its ρ_t and interest in the row in which it begins. Rows of a log come in blocks; a transition
of an agent is a step between two blocks of one row, with the reward as a signal of the second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.learning.inputs import refusal
from emphatic.questions.gvf import GVF, LARGEST, Array, Observations, Quantity
from emphatic.questions.quantities import Before, Quantities
from emphatic.questions.ratios import Behaviour, Ratio
from emphatic.rules import AnyRule

__all__ = ["Evaluator", "Targets"]

_FOLLOWS = np.ones(1, bool)


@dataclass(slots=True)
class Targets:
    """The learning targets of Q questions in the steps that end in B rows, each (B, Q).

    ``known`` marks where the cumulant and all else were read; ``all_known`` tells that this is so everywhere; ``x`` is
    the cumulant as it was read. ``chances`` are π and μ, for rules that use these themselves.
    """

    R: Array
    known: NDArray[np.bool_]
    gamma: Array
    rho: Array
    interest: Array
    x: Array
    all_known: bool
    chances: Array | None = None  # (2, B, Q)

    def part(self, rows: slice) -> Targets:
        """Some of the rows."""
        return Targets(
            self.R[rows], self.known[rows], self.gamma[rows], self.rho[rows], self.interest[rows], self.x[rows],
            self.all_known, None if self.chances is None else self.chances[:, rows],
        )  # fmt: skip

    def of(self, questions: NDArray[np.intp]) -> Targets:
        """Some of the questions."""
        own: Any = (self.R, self.known, self.gamma, self.rho, self.interest, self.x)
        chances = None if self.chances is None else self.chances.take(questions, axis=2)
        R, known, gamma, rho, interest, x = (array.take(questions, axis=1) for array in own)
        return Targets(R, known, gamma, rho, interest, x, self.all_known, chances)

    @staticmethod
    def joined(parts: Sequence[Targets]) -> Targets:
        """The targets of several blocks of rows as one."""
        names = ("R", "known", "gamma", "rho", "interest", "x")
        every: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        chances = [part.chances for part in parts if part.chances is not None]
        return Targets(
            **every,
            all_known=all(part.all_known for part in parts),
            chances=np.concatenate(chances, axis=1) if chances else None,
        )


class Evaluator:
    """The questions of a horde, prepared for a rule and a stream of these signals and categories.

    The default interest 1 − γ keeps a rule's emphasis at 1. A rule without emphasis weighs steps by the interest
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
        self.chances = chances
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
            same = next((of for ratio, of in of_policy if ratio.policy == policy), None)
            if same is None:
                of_policy.append((Ratio(policy, self.signals, self.categories, names[q], mu), [q]))
            else:
                same.append(q)
        self._ratios = [(ratio, np.array(of, np.intp)) for ratio, of in of_policy]
        #: Whether actions are counted.
        self.counting = any(ratio.counting for ratio, _ in self._ratios)
        unpaid = np.array([q.terminal is None for q in questions])
        plain = np.array([q.policy is None for q in questions])
        #: Which answers may be blended: questions without a policy about one signal or formula.
        self.blended = discounted & plain & unpaid
        #: Which questions learn the deviation from a mean: Σ γᵏ (x − x̄) and x̄ / (1 − γ) together are the return.
        self.unit = np.where(discounted & unpaid, self.scale, 0.0)
        #: Which emphasis stays at 1: interest 1 − γ, a constant.
        self.steady = discounted & plain & np.array([q.interest is None for q in questions])
        if rule.emphasis != "gamma":
            self.steady[:] = False
        #: ρ and interest, with ``chances`` π and μ too, of the step that begins in the last row of a log, (2 or 4, Q).
        self.departure = np.zeros((4 if chances else 2, Q))
        #: Whether some function is given transitions, so that the row before is needed.
        self.needs_before = any(
            some.has_steps for some in (self._cumulant, self._gamma, self._interest, self._terminal)
        )

        #: Whether some function is given observations, and not rows alone.
        self.needs_observations = self.needs_before or any(ratio.has_functions for ratio, _ in self._ratios)

    def __call__(
        self, raw: Observations, held: Observations, before: Before | None = None,
        follows: NDArray[np.bool_] | None = None,
    ) -> Targets:  # fmt: skip
        """Rows of a log, as they were read (NaN missing) and with the last reading held.

        ``before`` is the row before the first of them; ``follows`` (B,) marks the rows that end a step.
        """
        follows = np.ones(len(raw), bool) if follows is None else follows
        R, known, gamma, x, all_known = self._arrive(raw, held, before, follows, False)
        following = self._depart(raw, held)
        rho, interest, *chances = (
            np.vstack([last, each[:-1]]) for last, each in zip(self.departure, following, strict=True)
        )
        if self._interest.has_steps:
            self._put_late_interest(interest, held, before, follows)
        self.departure = np.stack([each[-1] for each in following])
        return Targets(R, known, gamma, rho, interest, x, all_known, np.stack(chances) if chances else None)

    def transition(self, before: Before, raw: Observations, held: Observations, terminated: bool) -> Targets:
        """One step from the row before, which has the action, to the next, both blocks of one row.

        Where it ``terminated`` γ is 0.
        """
        if self._plain and raw.complete:
            x, gamma = self._cumulant(raw), self._zeros if terminated else self._gamma.constant
            return Targets(x, self._yes, gamma, self._ones, self._interest.constant, x, True)
        R, known, gamma, x, all_known = self._arrive(raw, held, before, _FOLLOWS, terminated)
        rho, interest, *chances = self._depart(*before)
        if self._interest.has_steps:
            self._put_late_interest(interest, held, before, _FOLLOWS)
        return Targets(R, known, gamma, rho, interest, x, all_known, np.stack(chances) if chances else None)

    def _arrive(
        self, raw: Observations, held: Observations, before: Before | None, follows: NDArray[np.bool_],
        terminated: bool,
    ) -> tuple[Array, NDArray[np.bool_], Array, Array, bool]:  # fmt: skip
        """R, where it is known, γ and the cumulant of the steps that end in the rows; and whether all is known."""
        if raw.complete and self._sure:
            x = self._cumulant(raw)
            return x, self._yes, self._zeros if terminated else self._gamma.constant, x, True
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
        return R, known, gamma, x, all_known

    def _depart(self, raw: Observations, held: Observations) -> tuple[Array, ...]:
        """ρ and interest of the steps that begin in the rows; with ``chances`` π and μ too."""
        interest = self._interest(held)
        if self._interest.varies:
            interest[np.isnan(interest)] = 0.0
            self._check("interest", interest, LARGEST)
        B = len(raw.values)
        if self.chances:
            found = np.empty((3, *interest.shape))
            for ratio, of in self._ratios:
                found[:, :, of] = ratio.chances(raw, held)[:, :, None]
            return found[0], interest, found[1], found[2]
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
        found = {q: ratio.counts for ratio, of in self._ratios for q in of.tolist()}
        return [dict(found[q]) for q in self._with_policy]

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
