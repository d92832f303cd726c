"""Predictions as lines of JSON, and which readings get one."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from emphatic.questions import durations
from emphatic.questions.gvf import GVF

__all__ = ["ENDS", "OF_A_SIGNAL", "Every", "LineFormat", "Prediction", "format_lines", "question_keys"]

#: What a line has beside the predictions, for each question: the ends of its interval.
ENDS = ("low", "high")
#: And for each signal: how surprising its reading is, and whether that is an alarm.
OF_A_SIGNAL = ("anomaly", "alarm")
#: Lines that are written together: more would take memory, and hardly less time.
_TOGETHER = 256


class Every:
    """Which readings get a prediction: every N-th, or one in so many seconds."""

    def __init__(self, text: str | None) -> None:
        self._count = self._seconds = 0.0
        if text is None:
            self._count = 1.0
        elif text.strip().isdigit() and int(text) > 0:
            self._count = float(text)
        else:
            try:
                self._seconds = durations.seconds(text)
            except ValueError:
                raise ValueError(
                    f"--every must be a number of readings or a duration such as 5s. Got {text!r}."
                ) from None
        self._last = -math.inf

    def __call__(self, step: int, when: float) -> bool:
        if self._count:
            return (step + 1) % self._count == 0
        now = when if math.isfinite(when) else time.monotonic()
        if now - self._last < self._seconds:
            return False
        self._last = now
        return True


def question_keys(questions: Iterable[GVF]) -> list[tuple[str, str]]:
    """The two keys under which each question is in a line of predictions.

    A plain question is under its signal and horizon, one of the user's own under its name and horizon, or its γ.
    """
    keys: dict[tuple[str, str], None] = {}
    for question in questions:
        name, _, horizon = question.name.rpartition("@")
        if question.name != f"{question.cumulant}@{question.horizon}":
            own = question.gamma if question.horizon is None else question.horizon
            name, horizon = question.name, own if isinstance(own, str) else f"{own:g}" if not callable(own) else ""
        keys[(name, horizon) if (name, horizon) not in keys else (name, question.name)] = None
    return list(keys)


class LineFormat:
    """The form of a line of predictions: {"step": …, "time": …, "predictions": {signal: {horizon: value}}, …}.

    Then follow "low" and "high", the ends of the predictions' intervals, of the same form; and "anomaly" and "alarm",
    {signal: value} for each of ``signals``.
    """

    def __init__(self, questions: Iterable[GVF], signals: Iterable[str]) -> None:
        #: The keys of each question.
        self.keys = question_keys(questions)
        #: The horizons of each name, with the numbers of their questions.
        self.places: dict[str, dict[str, int]] = {}
        for q, (name, horizon) in enumerate(self.keys):
            self.places.setdefault(name, {})[horizon] = q
        self._order = [q for at in self.places.values() for q in at.values()]
        self._in_order = self._order == sorted(self._order)
        bodies = (", ".join(f"{_literal(h)}: %s" for h in at) for at in self.places.values())
        body = ", ".join(f"{_literal(name)}: {{{own}}}" for name, own in zip(self.places, bodies, strict=True))
        entries = "".join(f', "{kind}": {{{body}}}' for kind in ("predictions", *ENDS))
        self.signals = tuple(signals)
        body = ", ".join(f"{_literal(name)}: %s" for name in self.signals)
        entries += "".join(f', "{kind}": {{{body}}}' for kind in OF_A_SIGNAL)
        self._template = '{"step": %d, "time": %s' + entries + "}\n"

    def lines(self, predictions: Sequence[Prediction]) -> list[bytes]:
        """Predictions as lines of JSON; a value that is not finite is null. All or none of them have ``derived``."""
        arrays = [self._ordered(np.array([each.values for each in predictions]))]
        rest = [["null"] * (len(ENDS) * len(self.keys) + len(OF_A_SIGNAL) * len(self.signals))] * len(predictions)
        if predictions[0].derived:
            found = {kind: np.array([each.derived[kind] for each in predictions]) for kind in (*ENDS, *OF_A_SIGNAL)}
            arrays += [*(self._ordered(found[kind]) for kind in ENDS), found["anomaly"]]
            rest = [["true" if raised else "false" for raised in row] for row in found["alarm"].tolist()]
        values = np.hstack(arrays)
        texts, width = _texts(values.reshape(-1)), values.shape[1]
        return [
            (
                self._template % (each.step, json.dumps(each.time), *texts[i * width : (i + 1) * width], *rest[i])
            ).encode()
            for i, each in enumerate(predictions)
        ]

    def _ordered(self, array: NDArray[np.float64]) -> NDArray[np.float64]:
        """Values (B, Q) of all questions in the order of a line."""
        return array if self._in_order else array[:, self._order]


class Prediction(NamedTuple):
    """The predictions at one reading: its number, its time as it was written, and a value for each question.

    ``format`` is that of its line; ``readings`` are those of the signals (NaN missing), ``seconds`` is the time as a
    number, and ``gap`` tells whether the reading does not follow on the one before it. ``derived`` has what was derived
    from them, by kind, as ``emphatic.nexting.derived`` makes it: "low" and "high", a value for each question, "anomaly"
    and "alarm", one for each signal that is predicted; it is empty in the warm-up.
    """

    step: int
    time: Any
    values: NDArray[np.float64]
    format: LineFormat
    readings: Sequence[float] = ()
    seconds: float = math.nan
    gap: bool = False
    derived: Mapping[str, NDArray[Any]] = {}

    @property
    def line(self) -> bytes:
        """The prediction as a line of JSON."""
        return format_lines([self])[0]


def format_lines(predictions: Iterable[Prediction]) -> list[bytes]:
    """Predictions as lines of JSON, all together: in little more than half the time that they take one by one."""
    lines: list[bytes] = []
    for (form, _), alike in groupby(predictions, key=lambda each: (each.format, bool(each.derived))):
        while some := list(islice(alike, _TOGETHER)):
            lines += form.lines(some)
    return lines


def _texts(values: NDArray[np.float64]) -> list[str]:
    """Numbers as ``repr`` writes them; null where they are not finite.

    Arrow finds the same digits in a third of the time. What it writes in another form is left to ``repr``.
    """
    texts: list[str] = pa.array(values).cast(pa.string()).to_pylist()
    size = np.abs(values)
    same = (size >= 1e-4) & (size < 1e9) & (values != np.rint(values))
    for i in np.flatnonzero(~same).tolist():
        texts[i] = repr(float(values[i])) if size[i] < math.inf else "null"
    return texts


def _literal(text: str) -> str:
    """Text as JSON, in a template of ``%``."""
    return json.dumps(text, ensure_ascii=False).replace("%", "%%")
