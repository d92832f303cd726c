"""What questions become: series, groups of questions that share features, and one target for each kind of label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from emphatic.gvfs.evaluator import Condition, Expression
from emphatic.nexting.answers.language import CONDITIONS, Question, parse, quoted
from emphatic.nexting.answers.records import ANY, AT, FIRST, MAX, MEAN_OF, MIN, WEIGHTED
from emphatic.nexting.answers.timing import Timing

__all__ = ["LARGEST", "GroupOf", "Plan", "default_questions"]

Array = NDArray[np.float64]
#: The kind of label of each kind of question; the first two always come together.
_KINDS = {"at": AT, "mean": MEAN_OF, "sum": MEAN_OF, "integral": MEAN_OF, "weighted": WEIGHTED}
_KINDS |= {"max": MAX, "min": MIN, "share": MEAN_OF, "event": ANY, "event_at": AT, "until": FIRST}
_TOGETHER = (AT, MEAN_OF)
#: Readings beyond this are not summed: their squares overflow.
LARGEST = 1e100


def default_questions(
    signals: Sequence[str], horizons: Sequence[float | str], step: float | None = None, weighted: bool = False
) -> list[str]:
    """The value of each signal at each horizon, and its mean until then, as far as a question can name them.

    A number of rows that is not whole, and a name with a backtick, cannot be written in a question. Where they are
    ``weighted``, the weighted means follow.

    >>> default_questions(["side 1"], [8, "1h"])[:2]
    ['`side 1` at +8', 'mean of `side 1` over 8']
    """
    texts = []
    for name in map(quoted, signals):
        for horizon in horizons:
            length = horizon if isinstance(horizon, str) else f"{horizon:.15g}"
            pair = [f"{name} at +{length}", f"mean of {name} over {length}"]
            asked = [*pair, f"{name}@{length}"] if weighted else pair
            texts += asked if _can_ask(pair[0], step) else []
    return texts


def _can_ask(text: str, step: float | None) -> bool:
    """Whether a text asks for the value of a signal at a horizon that the stream has."""
    try:
        question = parse(text)
        question.span(step)
    except ValueError:
        return False
    return question.value_of is not None


class SeriesOf(NamedTuple):
    """What a series is made of: a signal, an expression, or a condition."""

    expression: Expression | str

    @property
    def is_condition(self) -> bool:
        """Whether labels are 0 and 1, and features are of a margin."""
        return isinstance(self.expression, Condition)

    def read(self, signals: Mapping[str, int], read: Array, sound: Array, held: Array) -> tuple[Array, Array, Array]:
        """The reading of each row as labels know it, NaN where it is missing; the same held; and for features.

        Args:
            signals: The column of each signal.
            read: Readings as they were read, NaN where missing (B, C): conditions are about these.
            sound: Readings as the guard took them, NaN where missing.
            held: The last of these, where one is missing.
        """
        assert not isinstance(self.expression, str)
        names = self.expression.names
        raw = read if self.is_condition else sound
        reading = np.asarray(self.expression({name: raw[:, signals[name]] for name in names}), np.float64)
        latest = {name: held[:, signals[name]] for name in names}
        present = np.asarray(self.expression(latest), np.float64)
        if not isinstance(self.expression, Condition):
            reading = np.where(np.abs(reading) < LARGEST, reading, np.nan)
            present = np.where(np.abs(present) < LARGEST, present, 0.0)
            return reading, present, present
        reading = np.where(np.isnan(reading), np.nan, reading != 0.0)
        present = np.where(np.isnan(reading), (present != 0.0) & ~np.isnan(present), reading)
        margin = np.asarray(self.expression.margin(latest), np.float64)
        return reading, present, np.where(np.abs(margin) < LARGEST, margin, 0.0)


class GroupOf(NamedTuple):
    """Questions that share features: the series, the window in rows and in time, the kinds of label."""

    series: int
    h: int
    span: float
    kinds: tuple[int, ...]
    is_event: bool


@dataclass
class Plan:
    """Series, groups, and for each question its target and what an answer is multiplied by.

    Args:
        signals: The signals of the stream, which are the first series.
        questions: The questions.
        timing: What is known of the times.
    """

    signals: tuple[str, ...]
    questions: list[Question]
    timing: Timing
    series: list[SeriesOf] = field(init=False)
    groups: list[GroupOf] = field(init=False)
    targets: NDArray[np.int64] = field(init=False)
    scales: Array = field(init=False)

    def __post_init__(self) -> None:
        places = {name: i for i, name in enumerate(self.signals)}
        self.series = [SeriesOf(name) for name in self.signals]
        step, groups, scales = self.timing.step or 1.0, [], []
        for question in self.questions:
            question.check(self.signals)
            key = question.signal if question.signal in self.signals else repr(question.body)
            if key not in places:
                places[key] = len(self.series)
                self.series.append(SeriesOf(question.expression))
            span, kind = question.span(self.timing.step), _KINDS[question.kind]
            h = self.timing.rows(span)
            is_together = kind in _TOGETHER and question.kind not in CONDITIONS
            kinds = _TOGETHER if is_together else (kind,)
            groups.append(GroupOf(places[key], h, span, kinds, question.is_event))
            rows = float(h) if self.timing.regular else span / step
            of_kind = {"sum": rows, "integral": rows * step / question.unit, "until": span}
            scales.append(of_kind.get(question.kind, 1.0))
        self.groups, self.scales = sorted(set(groups)), np.array(scales)
        begin = np.concatenate([[0], np.cumsum([len(group.kinds) for group in self.groups])]).astype(np.int64)
        self.targets = np.array(
            [
                begin[self.groups.index(group)] + group.kinds.index(_KINDS[question.kind])
                for group, question in zip(groups, self.questions, strict=True)
            ],
            np.int64,
        )
