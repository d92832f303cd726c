"""How a horde learns: its rule, rates and step size, and every parameter that stays the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.learning.inputs import parameters
from emphatic.rules import AnyRule

__all__ = ["Setup"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Setup:
    """How a horde learns: see ``Horde``."""

    rule: AnyRule
    rates: tuple[float, ...]
    alpha: Any
    scaled: bool
    centred: bool
    record: bool
    kind: Mapping[str, Any]
    extra: Mapping[str, Any]
    least_squares: bool = False

    def of(self, questions: NDArray[np.intp], whole: int) -> Setup:
        """The same for some of the ``whole`` number of questions."""

        def part(p: Any) -> Any:
            return p if p is None or np.ndim(p) == 0 else np.asarray(p)[questions]

        extra = {name: part(p) for name, p in self.extra.items()}
        kind = dict(self.kind)
        if "stepsize" in kind:  # one number a learner: of all questions with the first rate, then with the next
            learners = [questions + whole * i for i in range(len(self.rates))]
            kind["stepsize"] = kind["stepsize"].select(np.concatenate(learners))
        return replace(self, alpha=part(self.alpha), extra=extra, kind=kind)

    @property
    def chances(self) -> tuple[str, ...]:
        """Which of π and μ the rule itself uses; they come from the questions' policies."""
        return tuple(name for name in ("pi", "mu") if name in self.rule.extra and name not in self.extra)

    def constants(self, Q: int, norm: float, lambda_: Any) -> tuple[Array, ...]:
        """All parameters of a step (1, K), of which I, ρ, γ', R and ``chances`` are passed anew in each step."""
        E = len(self.rates)
        if self.alpha is None and "stepsize" in self.kind:
            alpha = np.repeat(self.rates, Q)
        elif self.alpha is None:
            alpha = np.repeat(self.rates, Q) / max(norm, 1e-12)
        else:
            alpha = _scaled_by(self.rates, self.alpha, Q)
        values = (alpha, 1.0, np.tile(lambda_, E), 1.0, 0.0, 0.0)
        extra = {name: p if np.ndim(p) == 0 else np.tile(p, E) for name, p in self.extra.items()}
        extra |= dict.fromkeys(self.chances, 1.0)
        found = parameters(self.rule, "learn", 1, Q * E, values, extra)
        return tuple(np.ascontiguousarray(p) for p in found)


def _scaled_by(rates: Sequence[float], alpha: Any, Q: int) -> Any:
    try:
        each = np.broadcast_to(np.asarray(alpha, np.float64), Q)
    except (TypeError, ValueError):
        return alpha  # errors are reported where all parameters are checked
    return np.concatenate([rate * each for rate in rates])
