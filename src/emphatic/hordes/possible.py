"""What answers are possible, and how many steps speak for them.

Of a question of constant γ < 1, with cumulants so far from c to C, every return lies from

    low = min(0, c) / (1 − γ)    to    high = max(0, C) / (1 − γ)

both as the learner has them: in its unit, and from ``base`` on. A prediction that is further outside than this range
is wide is impossible. The *support* of an answer is the effective sample size

    (Σ w)² / Σ w²,    w = Π ρ over the last round(1 / (1 − γ)) steps

with one w for each step that was learned from: the number of steps, if behaviour always followed the policy. A window
goes on where a sequence begins: behaviour that never follows the policy for so long supports no answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.engines.compiled import direct
from emphatic.hordes import possible_kernels as kernels

__all__ = ["Possible"]

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
#: The most steps of a window, whose memory is then at most 8 MB.
_LONGEST = 1 << 20


class Possible:
    """What is possible for Q questions with one stream, and their support.

    Args:
        gamma: γ of each question (Q,), NaN where it varies.
        policies: Which have a policy, (Q,).
        base: What the learner's predictions are deviations from, (Q,).
        factor: What an answer of each question is multiplied by to be in the learner's unit, (Q,).
    """

    def __init__(self, gamma: Array, policies: Flags, base: Array, factor: Array) -> None:
        bounded = gamma < 1.0
        #: What is fixed, and what belongs to the sequence, of each question: see the kernels.
        self.questions, self._known = (np.zeros(len(gamma), dtype) for dtype in (kernels.QUESTION, kernels.KNOWN))
        scale = np.where(bounded, 1.0 - gamma, 0.0)
        horizon = np.round(1.0 / np.where(bounded, scale, np.inf))
        window = np.where(policies, np.minimum(horizon, _LONGEST), 0.0).astype(np.int64)
        questions = self.questions
        questions["scale"], questions["factor"], questions["base"] = scale, factor, base
        questions["window"], questions["begin"] = np.where(bounded, window, -1), np.cumsum(window) - window
        self._ratios = np.zeros(int(window.sum()))
        self._known["largest"], self._known["support"] = -math.inf, np.where(bounded, 0.0, np.nan)
        #: The least and the most return, (1, 2, Q), changed in place: −∞ and ∞ where there is no range.
        self.bounds = np.empty((1, 2, len(gamma)))
        self._refresh()
        self._take, self._find, self._clip = map(direct, (kernels.take, kernels.find_impossible, kernels.clip))
        self._support = self._known["support"]  # (a view: to find it takes as long as to copy it)

    @property
    def support(self) -> Array:
        """The support of each question, (Q,): NaN where γ is 1 or varies."""
        return self._support.copy()

    @property
    def answers(self) -> Array:
        """The least and the most answer to each question that is possible, (2, Q)."""
        return self.in_answers(self.bounds[0])

    def in_answers(self, values: Array) -> Array:
        """Numbers (…, Q) in the learner's unit as answers."""
        answers: Array = (values + self.questions["base"]) / self.questions["factor"]
        return answers

    def take(self, R: Array, rho: Array, bounds: Array | None = None) -> None:
        """Take the next T steps, (T, Q), before they are learned from; all arrays are contiguous.

        Args:
            R: The cumulants in the learner's unit.
            rho: ρ, NaN where nothing is learned.
            bounds: Take what is possible at each step, (T, 2, Q), where that is to be known.
        """
        self._take(R, rho, self.questions, self._known, self._ratios, self.bounds if bounds is None else bounds)
        if bounds is not None:
            self.bounds[0] = bounds[-1]

    def find(self, answers: Array, bounds: Array) -> int:
        """The place of the first answer (B, Q) that is impossible by these bounds, or −1; once for each question."""
        place: int = self._find(np.asarray(answers, np.float64), self.questions, self._known, bounds)
        return place

    def clip(self, V: Array, bounds: Array) -> Array:
        """Predictions (B, Q) within the bounds, float64, in place where they are."""
        V = np.asarray(V, np.float64)
        self._clip(V, bounds)
        return V

    def share(self, other: Possible) -> None:
        """Take part in what is known to another, of the same questions: the weights are shared with its stream."""
        self._known, self._support, self.bounds = other._known, other._support, other.bounds

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The state, by name."""
        known = self._known.view(np.float64).reshape(len(self._known), -1)
        names = ("log_product", "steps")
        return {"known": known, "ratios": self._ratios} | {name: self.questions[name] for name in names}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore what ``arrays`` returned; ValueError if it does not fit."""
        for name, array in self.arrays().items():
            stored = arrays[name]
            if stored.shape != array.shape or stored.dtype != array.dtype or (name == "steps" and stored.min() < 0):
                raise ValueError(f"its {name!r} of what is possible do not fit")
            array[:] = stored
        if not ((self._known["least"] <= 0.0) & (self._known["most"] >= 0.0)).all():
            raise ValueError("its range of cumulants does not contain 0")
        self._refresh()

    def _refresh(self) -> None:
        """The bounds by the cumulants so far."""
        scale = self.questions["scale"]
        for bound, name, endless in zip(self.bounds[0], ("least", "most"), (-np.inf, np.inf), strict=True):
            bound[:] = endless
            np.divide(self._known[name], scale, out=bound, where=scale > 0.0)
