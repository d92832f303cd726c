"""Hordes of the same stream put together: one Horde of all their questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.hordes.group import Group
from emphatic.hordes.horde import Horde
from emphatic.learning.learner import Learner, join

__all__ = ["join_hordes"]


def join_hordes(parts: Sequence[Horde], which: Mapping[str, int]) -> Horde:
    """One Horde of the questions of all, in order, which have seen the same rows.

    ``which`` says of each question which features it has, 0 for those of the first question, and so on.
    """
    first, Q = parts[0], [len(part.questions) for part in parts]
    shared: list[list[Group]] = [[] for _ in range(1 + max(which.values()))]
    for part in parts:
        for group in part._groups:
            shared[which[part.names[group.questions[0]]]].append(group)
    setup = first._setup
    makers = [groups[0].features for groups in shared]
    names = [name for part in parts for name in part.names]
    whole = Horde(
        [question for part in parts for question in part.questions],
        makers[0] if len(makers) == 1 else {name: makers[which[name]] for name in names}, setup.rule,
        rates=first.rates, step=first.step, mu=first._mu, scaled=setup.scaled, centred=setup.centred,
        least_squares=setup.least_squares,
        alpha=None if setup.alpha is None else _joined([part._setup.alpha for part in parts], Q),
        **setup.kind, **{name: _joined([part._setup.extra[name] for part in parts], Q) for name in setup.extra},
    )  # fmt: skip
    whole._makers = makers  # as they stand, and not as they were after the warm-up
    evaluator = whole._evaluator_of(first.signals, first.categories, first.step)
    base = np.concatenate([part.base for part in parts])
    whole._start(evaluator, base, [_learner(groups, len(first.rates)) for groups in shared])
    for group, groups in zip(whole._groups, shared, strict=True):
        group.phi, group.open = groups[0].phi, groups[0].open
        group.fresh[:] = np.concatenate([own.fresh for own in groups])
        arrays = [own.blend.arrays() for own in groups]
        group.blend.restore({name: np.concatenate([own[name] for own in arrays]) for name in arrays[0]})
        if group.ridges is not None:
            group.ridges.join([own.ridges for own in groups if own.ridges is not None])
    whole._hold, whole._rows, whole._before = first._hold, first._rows, first._before
    evaluator.counts = [counts for part in parts for counts in part._evaluator.counts]
    evaluator.departure = np.concatenate([part._evaluator.departure for part in parts], axis=1)
    return whole


def _learner(groups: Sequence[Group], E: int) -> Learner:
    """Theirs as one, with all questions of the first rate, then all of the next."""
    Q = [len(group.questions) for group in groups]
    begin = np.cumsum([0, *(E * q for q in Q)])[:-1]
    order: list[NDArray[Any]] = [
        b + rate * q + np.arange(q) for rate in range(E) for b, q in zip(begin, Q, strict=True)
    ]
    return join([group.learner for group in groups]).select(np.concatenate(order))


def _joined(values: Sequence[Any], Q: Sequence[int]) -> Any:
    """A parameter of all questions: a number where it is one, else one a question."""
    if all(np.ndim(value) == 0 for value in values):
        return values[0]
    return np.concatenate([np.broadcast_to(value, q) for value, q in zip(values, Q, strict=True)])
