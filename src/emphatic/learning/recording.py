"""The learner of one sequence: it learns, can be cut, and can record all its input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.engines.base import Arrays, Rows
from emphatic.learning.active import Active
from emphatic.learning.learner import Learner

__all__ = ["RecordedLearner"]

Array = NDArray[np.float64]
#: Where all of these are 0 a step changes no weight, whatever the rule.
_OFF = ("alpha", "beta", "rho", "gamma_next", "R")


class RecordedLearner:
    """The learner of K questions. One that would diverge is ``frozen``: it keeps its last weights; the others go on.

    ``constant`` has all parameters of a step, (1, K) each, of which I, ρ, γ' and R are passed anew in each step. No
    component of φ is larger than ``top``; where that is None, the components are checked.
    """

    def __init__(self, learner: Learner, constant: Arrays, top: float | None, record: bool) -> None:
        self.learner, self._constant, self._top = learner, constant, top
        self._off = [at for at, name in enumerate(learner.rule.parameters) if name in _OFF]
        self._steps: list[tuple[Any, ...]] | None = [] if record else None

    @property
    def frozen(self) -> NDArray[np.bool_]:
        """Which questions are frozen, (K,)."""
        frozen: NDArray[np.bool_] = self.learner.frozen
        return frozen

    def learn(
        self, phi: Rows, phi_next: Rows, I: Array, rho: Array, gamma: Array, R: Array, alpha: Array | None = None,
        extra: Mapping[str, Array] | None = None, afresh: bool = False,
    ) -> Array:  # fmt: skip
        """Learn from T steps with parameters (T, K); returns θ·φ' after each, (T, K).

        ``alpha`` may be given where no other parameter depends on it, and ``extra`` parameters that vary. With
        ``afresh`` all is as ``Learner.run`` and ``Learner.predict`` would do it, bit for bit.
        """
        constant = self._constant if len(R) == 1 else [np.broadcast_to(p, R.shape) for p in self._constant]
        if extra:
            names = self.learner.rule.parameters
            constant = [extra.get(name, p) for name, p in zip(names, constant, strict=True)]
        given = (constant[0] if alpha is None else alpha, I, constant[2], rho, gamma, R, *constant[6:])
        before = self.learner.steps_taken if self._steps is not None else None
        top = self._top
        if top is None or afresh:
            top = float(max(np.abs(phi.values).max(initial=0.0), np.abs(phi_next.values).max(initial=0.0)))
        v = self.learner._step(phi, phi_next, top, given, afresh)
        if self._steps is not None:
            taken = self.learner.steps_taken - before
            given = self._without(given, np.arange(len(phi))[:, None] >= taken)
            parts = (phi.indices, phi.values, phi_next.indices, phi_next.values)
            self._steps.append((*(part.reshape(len(phi), -1) for part in parts), *given))
        return v

    def cut(self) -> None:
        """What follows is another sequence."""
        self.learner.cut()
        if self._steps:
            index, value, _, _, *given = (part[-1:] for part in self._steps[-1])
            index, value = np.full_like(index, -1), np.zeros_like(value)
            nothing = self._without(tuple(given), np.ones_like(given[0], bool))
            self._steps.append((index, value, index, value, *nothing))

    def log(self) -> dict[str, Any]:
        """The arguments of ``Learner.run`` that lead to the same weights.

        A cut is a step with φ = φ' = 0 and α = ρ = γ' = 0, which changes no weight and forgets the traces.
        """
        if not self._steps:
            raise RuntimeError("Nothing was recorded: pass record=True when creating it.")
        index, value, index_next, value_next, *given = map(np.concatenate, zip(*self._steps, strict=True))
        phi = {"Phi": Active(index, value), "Phi_next": Active(index_next, value_next)}
        return phi | dict(zip(self.learner.rule.parameters, given, strict=True))

    def _without(self, given: Arrays, these: NDArray[np.bool_]) -> Arrays:
        """The parameters of steps (T, K), where the marked ones change nothing."""
        return tuple(np.where(these, 0.0, p) if at in self._off else p for at, p in enumerate(given))
