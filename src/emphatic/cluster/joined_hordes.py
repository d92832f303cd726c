"""Hordes of the same stream put together: one Horde of all their questions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from emphatic.hordes.horde import Horde
from emphatic.learning.inputs import refusal
from emphatic.learning.joining import join

__all__ = ["join_hordes"]


def join_hordes(parts: Sequence[Horde]) -> Horde:
    """One Horde of the questions of all, in order, which have seen the same rows with the same features.

    A Horde's learner has all questions with the first rate, then all with the next: the learners of the parts are put
    in that order.
    """
    first = parts[0]
    if any(len(part.makers) > 1 for part in parts):
        raise refusal("parts", "join_hordes", "share their features", "questions with features of their own")
    groups = [part._groups[0] for part in parts]
    Q = [len(part.questions) for part in parts]
    E, setup = len(first.rates), first._setup
    learner = join([part.learner for part in parts])
    begin = np.cumsum([0, *(E * q for q in Q)])[:-1]
    order = [b + rate * q + np.arange(q) for rate in range(E) for b, q in zip(begin, Q, strict=True)]
    alpha: Any = None if setup.alpha is None else _joined([part._setup.alpha for part in parts], Q)
    extra = {name: _joined([part._setup.extra[name] for part in parts], Q) for name in setup.extra}
    whole = Horde(
        [question for part in parts for question in part.questions], first.features, first.rule, rates=first.rates,
        alpha=alpha, step=first.step, mu=first._mu, scaled=setup.scaled, centred=setup.centred,
        **{**setup.kind, **extra},
    )  # fmt: skip
    whole._makers = [first.features]  # as it stands, and not as it was after its warm-up
    evaluator = whole._evaluator_of(first.signals, first.categories, first.step)
    base = np.concatenate([part.base for part in parts])
    whole._start(evaluator, base, [learner.select(np.concatenate(order))])
    group = whole._groups[0]
    group.phi, group.open = groups[0].phi, groups[0].open
    group.fresh[:] = np.concatenate([own.fresh for own in groups])
    arrays = [own.blend.arrays() for own in groups]
    group.blend.restore({name: np.concatenate([own[name] for own in arrays]) for name in arrays[0]})
    whole._hold, whole._rows, whole._before = first._hold, first._rows, first._before
    evaluator.counts = [counts for part in parts for counts in part._evaluator.counts]
    evaluator.departure = np.concatenate([part._evaluator.departure for part in parts], axis=1)
    return whole


def _joined(values: Sequence[Any], Q: Sequence[int]) -> Any:
    """A parameter of all questions: a number where it is one, else one a question."""
    if all(np.ndim(value) == 0 for value in values):
        return values[0]
    return np.concatenate([np.broadcast_to(value, q) for value, q in zip(values, Q, strict=True)])
