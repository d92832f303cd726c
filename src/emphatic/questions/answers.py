"""Questions put to rows of readings: R, γ, ρ, interest and λ as arrays."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from emphatic.learning.inputs import refusal
from emphatic.learning.sequences import UndiscountedWarning
from emphatic.questions.gvf import GVF, LARGEST, Array, Observations, Quantity
from emphatic.questions.quantities import Quantities, Ratio
from emphatic.rules import Rule

__all__ = ["Asking", "Rows"]


@dataclass(frozen=True)
class Rows:
    """What B rows say to Q questions, each (B, Q).

    ``R``, ``there`` (whether the cumulant was read) and ``gamma`` are about the step that ends in the row; ``rho`` and
    ``interest`` about the one that begins there; ``x`` is the cumulant as it was read.
    """

    R: Array
    there: NDArray[np.bool_]
    gamma: Array
    rho: Array
    interest: Array
    x: Array

    def part(self, some: slice) -> Rows:
        """Some of the rows."""
        return Rows(self.R[some], self.there[some], self.gamma[some], self.rho[some], self.interest[some], self.x[some])


class Asking:
    """All questions of a horde, made ready for a rule and a stream of these signals and categories.

    The default interest 1 − γ keeps a rule's emphasis at 1. A rule without emphasis weighs steps by the interest
    itself, and there the default is 1.
    """

    def __init__(
        self,
        questions: Sequence[GVF],
        signals: Sequence[str],
        categories: Sequence[str],
        step: float | None,
        rule: Rule,
    ) -> None:
        self.categories = tuple(categories)
        constants = [question.constant_gamma(step) for question in questions]
        endless = [q.name for q, g in zip(questions, constants, strict=True) if g == 1.0]
        if endless:
            warnings.warn(f"{endless[0]!r} has γ = 1 everywhere: what it asks for has no end", UndiscountedWarning, 2)
        #: γ where it is constant, else NaN.
        self.gamma = np.array([np.nan if g is None else g for g in constants])
        discounted = self.gamma < 1.0
        #: 1 − γ where γ is constant and below 1: predictions times this are in the cumulant's own unit.
        self.scale = np.where(discounted, 1.0 - self.gamma, 1.0)
        self.lambda_ = np.array([q.default_lambda(g) for q, g in zip(questions, constants, strict=True)])

        def asked(what: str, given: Sequence[Quantity | None], default: Array) -> Quantities:
            return Quantities(what, given, default, signals, [question.name for question in questions])

        self._cumulant = asked("cumulant", [q.cumulant for q in questions], self.scale)
        self._gamma = asked("gamma", [None if q.horizon is not None else q.gamma for q in questions], self.gamma)
        usual = self.scale if rule.emphasis else np.ones(len(questions))
        self._interest = asked("interest", [q.interest for q in questions], usual)
        self._terminal = asked("terminal", [q.terminal for q in questions], np.zeros(len(questions)))
        self._ratio = {
            q: Ratio(question.policy, signals, categories, question.name)
            for q, question in enumerate(questions)
            if question.policy is not None
        }
        unpaid = np.array([q.terminal is None for q in questions])
        plain = np.array([q.policy is None for q in questions])
        #: Whose answers may be blended: what will be, as things go, of one signal or formula.
        self.blended = discounted & plain & unpaid
        #: Who learns the departure from a mean: Σ γᵏ (x − x̄) and x̄ / (1 − γ) together are the return.
        self.unit = np.where(discounted & unpaid, self.scale, 0.0)
        #: Whose emphasis stands still at 1: interest 1 − γ, a constant.
        self.steady = discounted & plain & np.array([q.interest is None for q in questions])
        if rule.emphasis != "gamma":
            self.steady[:] = False

    def __call__(self, raw: Observations, held: Observations) -> Rows:
        """From the rows as they were read (NaN missing) and with the last reading held."""
        read = self._cumulant(raw)
        there = np.abs(read) <= LARGEST
        gamma = self._gamma(held)
        if self._gamma.varies:
            known = np.isfinite(gamma)
            there &= known
            gamma[~known] = 0.0
            self._refuse_outside("gamma", gamma, 0.0, 1.0)
        R = np.where(there, read, 0.0)
        if self._terminal.given:
            Z = self._terminal(held)
            there &= np.abs(Z) <= LARGEST
            R = np.where(there, R + (1.0 - gamma) * np.where(there, Z, 0.0), 0.0)
        R *= self.scale
        interest = self._interest(held)
        if self._interest.varies:
            interest[np.isnan(interest)] = 0.0
            self._refuse_outside("interest", interest, 0.0, LARGEST)
        rho = np.ones_like(R)
        for q, ratio in self._ratio.items():
            rho[:, q] = ratio(raw, held)
        return Rows(R, there, gamma, rho, interest, read)

    def _refuse_outside(self, what: str, values: Array, least: float, most: float) -> None:
        bad = ~((values >= least) & (values <= most))
        if bad.any():
            t, q = np.argwhere(bad)[0]
            name = self._gamma.of[q]
            raise refusal(what, "GVF", f"be between {least:g} and {most:g} in every row", f"{values[t, q]} of {name!r}")

    def mean(self, rows: Observations) -> Array:
        """The mean cumulant of the questions that learn the departure from it, else 0."""
        values = self._cumulant(rows)
        there = np.abs(values) <= LARGEST
        mean: Array = np.where(there, values, 0.0).sum(axis=0) / np.maximum(1, there.sum(axis=0))
        return np.where(self.unit > 0.0, mean, 0.0)

    @property
    def counts(self) -> list[dict[str, int]]:
        """The actions counted so far, of each question with a policy."""
        return [dict(ratio.counts) for ratio in self._ratio.values()]

    @counts.setter
    def counts(self, counts: Sequence[dict[str, int]]) -> None:
        for ratio, given in zip(self._ratio.values(), counts, strict=True):
            if not all(type(count) is int and count > 0 for count in given.values()):
                raise ValueError("its counts of actions are not whole numbers")
            ratio.counts = Counter(given)
