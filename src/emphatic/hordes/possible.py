"""What answers are possible, and how many steps speak for them.

Of a question of constant γ < 1, with cumulants so far from c to C, every return lies from

    low = min(0, c) / (1 − γ)    to    high = max(0, C) / (1 − γ)

both as the learner has them: in its unit, and from ``base`` on. A prediction that is further outside than this range
is wide is impossible. The *support* of an answer is the effective sample size

    (Σ w)² / Σ w²,    w = Π ρ over the last round(1 / (1 − γ)) steps of the sequence

with one w for each step that was learned from: the number of steps, if behaviour always followed the policy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["SUPPORTED", "Impossible", "Possible"]

Array = NDArray[np.float64]
#: An answer with less support is marked.
SUPPORTED = 10.0
#: The most steps of a window: beyond, a product of ratios is hardly ever another one.
_LONGEST = 1 << 20


class Impossible(NamedTuple):
    """A prediction that is impossible, and the range at that time, in the learner's unit.

    Attributes:
        question: The number of the question among those of its learner.
        prediction: The prediction.
        low: The least return that was possible.
        high: The most.
    """

    question: int
    prediction: float
    low: float
    high: float


class Possible:
    """What is possible for Q questions with one stream, and their support.

    Args:
        gamma: γ of each question (Q,), NaN where it varies.
        policies: Which have a policy, (Q,).
        K: The number of learners for whom ``low`` and ``high`` are kept, a multiple of Q.
        factor: What an answer of each question is multiplied by to be in the learner's unit, (Q,).
    """

    def __init__(self, gamma: Array, policies: NDArray[np.bool_], K: int, factor: Array) -> None:
        kernels = _kernels()
        Q, bounded = len(gamma), gamma < 1.0
        self._questions = np.zeros(Q, kernels.QUESTION)
        self._questions["span"] = np.where(bounded, 1.0 / np.where(bounded, 1.0 - gamma, 1.0), 0.0)
        horizon = np.minimum(np.round(self._questions["span"]), _LONGEST)
        window = np.where(bounded, np.where(policies, horizon, 0.0), -1.0).astype(np.int64)
        self._questions["window"], self._questions["factor"] = window, factor
        self._questions["begin"] = np.cumsum(window.clip(0)) - window.clip(0)
        self._known, self._sequences = np.zeros(Q, kernels.KNOWN), np.zeros(Q, kernels.SEQUENCE)
        self._known["largest"] = -math.inf
        self._ratios = np.zeros(int(window.clip(0).sum()))
        #: The support of each question (Q,): NaN where γ is 1 or varies.
        self.support = np.where(bounded, 0.0, np.nan)
        #: The least and the most return of each learner, (1, K): −∞ and ∞ where there is no range.
        self.low, self.high = np.empty((1, K)), np.empty((1, K))
        self._refresh()
        self._take, self._find = _direct("take"), _direct("find_impossible")

    def take(self, R: Array, rho: Array) -> None:
        """Take the next step, (1, Q), before it is learned from; both arrays are contiguous.

        Args:
            R: The cumulants in the learner's unit.
            rho: ρ, 0 where nothing is learned.
        """
        self._take(
            R, rho, self._questions, self._known, self._sequences, self._ratios, self.low, self.high, self.support
        )

    def take_many(self, R: Array, rho: Array, low: Array, high: Array) -> None:
        """``take`` of T steps, (T, Q): what is possible at each goes to ``low`` and ``high``, (T, K).

        Args:
            R: As for ``take``.
            rho: As for ``take``.
            low: Takes the least return at each step, or (1, K) at the last.
            high: Takes the most.
        """
        R, rho = (np.ascontiguousarray(np.broadcast_to(p, R.shape)) for p in (R, rho))
        self._take(R, rho, self._questions, self._known, self._sequences, self._ratios, low, high, self.support)
        self.low[:], self.high[:] = low[-1], high[-1]

    def find(self, answers: Array, base: Array, low: Array | None = None, high: Array | None = None) -> int:
        """How many questions are, for the first time, given an answer (B, Q) that is impossible.

        Args:
            answers: The answers.
            base: What they are learned as the deviation from.
            low: The least return at each row, where it changed; all of them contiguous.
            high: The most.
        """
        low, high = self.low if low is None else low, self.high if high is None else high
        count: int = self._find(answers, base, self._questions, self._known, low, high)
        return count

    def named(self) -> list[Impossible]:
        """The impossible predictions that were found and not returned yet, the first of each question."""
        places = np.flatnonzero(self._known["named"] == 1.0)
        self._known["named"][places] = 2.0
        return [Impossible(q, *self._known[["prediction", "low", "high"]][q].item()) for q in places.tolist()]

    def cut(self) -> None:
        """The next step begins a sequence."""
        self._sequences["steps"] = 0.0

    def share(self, other: Possible) -> None:
        """Take part in what is known to another, of the same questions: the weights are shared with its stream."""
        self._known, self.support, self.low, self.high = other._known, other.support, other.low, other.high

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The state, by name."""
        kinds = {"known": self._known, "sequences": self._sequences}
        records = {name: array.view(np.float64).reshape(len(array), -1) for name, array in kinds.items()}
        return records | {"ratios": self._ratios, "support": self.support}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore what ``arrays`` returned; ValueError if it does not fit."""
        for name, array in self.arrays().items():
            stored = arrays[name]
            if stored.shape != array.shape or stored.dtype != array.dtype:
                raise ValueError(f"its {name!r} of what is possible do not fit")
            array[:] = stored
        self._refresh()

    def join(self, parts: Sequence[Possible]) -> None:
        """Take the state of those that have these questions between them, in order."""
        arrays = [part.arrays() for part in parts]
        self.restore({name: np.concatenate([of_part[name] for of_part in arrays]) for name in arrays[0]})

    def _refresh(self) -> None:
        """``low`` and ``high`` by the cumulants so far."""
        span = self._questions["span"]
        E = self.low.shape[1] // len(span)
        for bound, field, unbounded in ((self.low, "least", -math.inf), (self.high, "most", math.inf)):
            bound[0] = np.tile(np.where(span > 0.0, self._known[field] * span, unbounded), E)


@cache
def _kernels() -> Any:
    from emphatic.hordes import possible_kernels  # late: it imports numba

    return possible_kernels


@cache
def _direct(name: str) -> Any:
    """A kernel, called without a look at its arguments: ``Possible`` knows their types."""
    from emphatic.engines.compiled import direct

    return direct(getattr(_kernels(), name))
