"""Features for each signal's questions: where there are very many signals, not every question can see all of them.

With C signals at H horizons there are C·H questions, and features grow with C as well: the weights grow with its
square. Above ``LIMIT`` bytes of them, "*" in the features of a question stands for the signals that it is about and
the few that are most related to them, found in the warm-up by correlation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emphatic import rules
from emphatic.features import Features
from emphatic.hordes.horde import Horde

if TYPE_CHECKING:
    from emphatic.nexting.settings import Settings
    from emphatic.questions.gvf import GVF
    from emphatic.tables import Table

__all__ = [
    "LIMIT",
    "MOST",
    "Size",
    "choose_related",
    "expected_size",
    "is_large",
    "make_horde",
    "make_makers",
    "shares",
]

#: Bytes of weights and traces above which questions see only what is related to them.
LIMIT = 1 << 27
#: How many other signals a question sees then.
MOST = 7
#: Correlations computed at a time: rows of the matrix.
_ROWS = 256
#: Nanoseconds that one learner takes for one active feature of a row, and for a row; and what the program itself takes.
_ACTIVE_NS, _ROW_NS, _PROGRAM_BYTES = 1.6, 120.0, 300 << 20
#: Nanoseconds that ridges take for a pair of active features of a row, and for n³ of a solution.
_PAIR_NS, _SOLVE_NS = 1.0, 0.05
#: Seconds that features of their own cost the questions that share them.
_MAKER = 0.03


class Size(NamedTuple):
    """How large a run will be: learners, the features of each, bytes of memory, and seconds."""

    learners: int
    features: int
    memory: int
    seconds: float

    def text(self, settings: Settings) -> str:
        """The same in words."""
        text = f"{self.learners:,} learners × {self.features:,} features: about {self.memory / 1e6:,.0f} MB of memory"
        text += (
            f" and {max(1, self.seconds):,.0f} s to learn."
            if self.seconds < 120
            else (f" and {self.seconds / 60:,.0f} min to learn.")
        )
        if settings.related is None:
            return text
        return f"{text} There are so many signals that a question sees its own and the {MOST} most related ones."


def choose_related(table: Table, rows: int) -> dict[str, list[str]]:
    """For each signal the others whose readings in the first ``rows`` correlate most with its own, closest first."""
    values = next(table.blocks(rows)).values
    present = np.isfinite(values)
    known = np.where(present, values, 0.0)
    with np.errstate(all="ignore"):
        centred = np.where(present, known - known.sum(axis=0) / np.maximum(present.sum(axis=0), 1), 0.0)
        size = np.sqrt((centred**2).sum(axis=0))
        varies = np.isfinite(size) & (size > 1e-12 * np.abs(known).max(axis=0, initial=0.0))
        unit = np.where(varies, centred / size, 0.0)
    related: dict[str, list[str]] = {}
    for begin in range(0, len(table.names), _ROWS):
        close = np.abs(unit[:, begin : begin + _ROWS].T @ unit)
        for row, name in enumerate(table.names[begin : begin + _ROWS]):
            close[row, begin + row] = 0.0
            best = np.argsort(-close[row], kind="stable")[:MOST]
            related[name] = [table.names[i] for i in best if close[row, i] > 0.0]
    return related


def make_horde(settings: Settings, step: float | None) -> Horde:
    """The Horde that these settings describe, before it is warmed up; ``step`` is the usual step of the times."""
    from emphatic.nexting.settings import ENGINE

    return Horde(settings.gvfs(), make_makers(settings), **horde_options(settings, step), engine=ENGINE)


def horde_options(settings: Settings, step: float | None) -> dict[str, Any]:
    """The arguments of ``Horde`` that settings decide, besides its questions and features."""
    return {
        "rule": settings.rule,
        "rates": settings.rates,
        "stepsize": settings.stepsize,
        "step": step,
        "least_squares": settings.least_squares,
    }


def make_makers(settings: Settings) -> Features | dict[str, Features]:
    """The features of all questions, or of each by its name where they see only what is related to them."""
    if settings.related is None:
        return Features.from_config(settings.features or ())
    makers: dict[tuple[str, ...], Features] = {}
    found = {}
    for question in settings.gvfs():
        seen = _seen(question, settings.related)
        if seen not in makers:
            makers[seen] = Features.from_config([_restricted(part, seen) for part in settings.features or ()])
        found[question.name] = makers[seen]
    return found


def shares(settings: Settings, names: Sequence[str]) -> list[NDArray[np.int64]]:
    """Of the questions ``names``, the first ones, those that share features, in the order of the makers of a horde."""
    if settings.related is None:
        return [np.arange(len(names))]
    seen = [_seen(question, settings.related) for question in settings.gvfs()[: len(names)]]
    order = {signals: i for i, signals in enumerate(dict.fromkeys(seen))}
    which = np.array([order[signals] for signals in seen])
    return [np.flatnonzero(which == i) for i in range(len(order))]


def _seen(question: GVF, related: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The signals that a question sees: those that it names, and those related to them."""
    if isinstance(question.cumulant, str) and question.cumulant in related:
        own = [question.cumulant]
    else:  # an expression, or a γ that is one: what it may name, it sees
        text = f"{question.cumulant} {question.gamma}"
        own = [signal for signal in related if signal in text] or list(related)[:1]
    return tuple(dict.fromkeys([*own, *(other for signal in own for other in related[signal])]))


def _restricted(part: Mapping[str, Any], seen: Sequence[str]) -> dict[str, Any]:
    """A part of the features in which "*" stands for these signals."""

    def replaced(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: replaced(inner) for key, inner in value.items()}
        return list(seen) if value == "*" else value

    return {key: replaced(value) if key == "of" else value for key, value in part.items()}


def expected_size(horde: Horde, rows: int) -> Size:
    """How large a run of so many rows is: weights and memory closely, time roughly."""
    makers, K = horde.makers, [learner.K or 1 for learner in horde.learners]
    vectors = len(rules.get(horde.rule).vectors)
    weights = 8 * vectors * sum(maker.n * k for maker, k in zip(makers, K, strict=True))
    row = sum(k * (_ROW_NS + _ACTIVE_NS * maker.active) * 1e-9 for maker, k in zip(makers, K, strict=True))
    n = max(maker.n for maker in makers)
    memory, seconds = _PROGRAM_BYTES + 2 * weights, rows * row + _MAKER * (len(makers) - 1)
    for maker, group in zip(makers, horde.groups, strict=True):
        if group.ridges is not None:  # the matrix, and copies while it is solved for
            memory += 4 * 8 * maker.n**2
            solutions = rows / 1000 + 10 * math.log(1 + rows / 64)
            seconds += rows * _PAIR_NS * 1e-9 * maker.active**2 + solutions * _SOLVE_NS * 1e-9 * maker.n**3
    return Size(sum(K), n, memory, seconds)


def is_large(settings: Settings, C: int) -> bool:
    """Whether the weights on the features of C signals would take more than ``LIMIT`` bytes."""
    n = 0
    for part in settings.features or ():
        of, bins = part.get("of"), int(part.get("bins", 1))
        steps = len(of["steps"]) if isinstance(of, Mapping) else 1
        inner = of["trace"] if isinstance(of, Mapping) else of
        n += bins * steps * (C if inner == "*" else len(inner) if isinstance(inner, Sequence) else 1)
    learners = len(settings.gvfs()) * len(settings.rates)
    return 8 * len(rules.get(settings.rule).vectors) * learners * n > LIMIT
