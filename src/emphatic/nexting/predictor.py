"""Predictions from readings as they come, learning all the while: what ``emphatic nexting -`` does between its pipes.

It has no pipe, file or signal of its own, so that anything that has readings can use it.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emphatic.hordes.horde import Horde
from emphatic.nexting.first_guesses import FirstGuesses, load_warm_up, save_warm_up
from emphatic.nexting.related import make_makers
from emphatic.nexting.settings import Settings
from emphatic.questions import durations
from emphatic.questions.gvf import GVF
from emphatic.tables import Clock
from emphatic.tables.notation import Notation, RowParser
from emphatic.tables.pipe import Malformed, Reading, Readings, collect_readings
from emphatic.tables.times import TimeColumn

__all__ = ["Every", "Prediction", "Predictor"]

logger = logging.getLogger("emphatic.nexting")

#: Malformed readings that are reported one by one; from there on they are counted.
_REPORTED = 100
#: Horizons in steps, where nothing says how long the stream will be.
_HORIZONS = (2, 9, 36, 144)
#: Readings to warm up on by default.
WARM_UP = 100


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


class Prediction(NamedTuple):
    """The predictions at one reading: its number, its time as it was written, and a value for each question."""

    step: int
    time: Any
    values: NDArray[np.float64]


class Predictor:
    """Takes readings, and gives a prediction for each.

    Without a model it warms up on the first ``warm_up`` readings: from the third on they are answered by persistence,
    with the present reading. Readings that cannot be used are logged under ``emphatic.nexting`` and counted.

    >>> import json
    >>> lines = [json.dumps({"x": t % 5}).encode() for t in range(100)]
    >>> predictor = Predictor(Settings(horizons=(2,)), warm_up=98)
    >>> made = [json.loads(predictor.line(p)) for p in predictor.take(Readings(lines)) if p]
    >>> made[0], made[-1]["step"]
    ({'step': 2, 'time': None, 'predictions': {'x': {'2': 2.0}}}, 99)
    """

    def __init__(
        self, settings: Settings, *, learn: bool = True, every: Every | None = None, warm_up: int = WARM_UP
    ) -> None:
        self.settings, self.learn, self.every, self.warm_up = settings, learn, every or Every(None), warm_up
        self.horde: Horde | None = None
        self.clock: Clock | None = None
        self.step = self.malformed = self.readings = 0
        #: Fields that could not be read, by kind.
        self.problems: Counter[str] = Counter()
        #: Readings whose time is before that of the one before them.
        self.backwards = 0
        self._first_malformed = ""
        self._waiting: list[tuple[int, Reading]] = []
        self._guesses = FirstGuesses(settings, _HORIZONS)
        self._readings_delimiter: str | None = None

    # ------------------------------------------------------------------ readings in, predictions out

    @property
    def waiting(self) -> int:
        """Readings of a warm-up that is not complete."""
        return len(self._waiting)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that readings may have; in the warm-up, those that they had so far."""
        if self.horde is None:
            return tuple(dict.fromkeys(name for _, reading in self._waiting for name in reading))
        return self._parser.columns

    @property
    def delimiter(self) -> str | None:
        """That of the CSV the model was learned from, or of the settings."""
        known = self._readings_delimiter if self.horde is None else self._parser.notation.delimiter
        return self.settings.delimiter or known

    @property
    def header(self) -> tuple[str, ...]:
        """The columns of the CSV the model was learned from, in their order."""
        if self.horde is None:
            return self.columns if self._readings_delimiter else ()
        return self._parser.notation.header

    def take(self, readings: Readings) -> Iterator[Prediction | None]:
        """For each reading its prediction, made once it has been learned from; None if it gets none."""
        for line, reading in readings:
            self._readings_delimiter = readings.delimiter
            try:
                if isinstance(reading, Malformed):
                    raise reading
                prediction = self._observe(line, reading, readings)
            except Malformed as error:
                self.malformed += 1
                self._first_malformed = self._first_malformed or f"line {line}: {error}"
                if self.malformed <= _REPORTED:
                    logger.warning("line %d: %s; skipped.", line, error)
                prediction = None
            yield prediction

    def line(self, prediction: Prediction) -> bytes:
        """A prediction as a line of JSON."""
        values = [repr(value) if math.isfinite(value) else "null" for value in prediction.values.tolist()]
        return (self._template % (prediction.step, json.dumps(prediction.time), *values)).encode()

    def log_counts(self) -> None:
        """Log how much could not be used, of what was not logged one by one."""
        if self.malformed > _REPORTED:
            logger.warning("%d malformed lines skipped.", self.malformed)
        for problem, count in self.problems.items():
            if count > 1:
                logger.warning("%s: %d times, each treated as missing.", problem, count)
        if self.backwards > 1:
            logger.warning("%d readings out of order in all.", self.backwards)

    def check_readable(self) -> None:
        """ValueError if there were lines, and no reading in any of them."""
        if self.malformed and not self.readings:
            raise ValueError(
                f"none of the {self.malformed} lines could be read; the first was {self._first_malformed}."
            )

    def _observe(self, line: int, reading: Reading, readings: Readings) -> Prediction | None:
        """Learn from a reading; its prediction, if it gets one."""
        if self.horde is None:
            self.readings += 1
            self._waiting.append((line, reading))
            if len(self._waiting) < self.warm_up:
                return self._guess(readings)
            return self._begin(readings)
        # All fields are looked at before anything is learned.
        row = self._parser.parse(reading)
        if not row.readable:
            absent = f"none of the signals {', '.join(self._parser.names[:6])} is in it"
            raise Malformed(next((f"{what}: {text}" for what, text in row.problems.items()), absent))
        self._report(line, row.problems)
        self.readings += 1
        if self.clock is not None:
            self._follow(self.clock, line, row.time, row.time_text)
        step, self.step = self.step, self.step + 1
        values = self.horde.observe(
            dict(zip(self._parser.names, row.values, strict=True)) | row.labels,
            time=None if self.clock is None else row.time, learn=self.learn,
        )  # fmt: skip
        return Prediction(step, row.time_text, values) if self.every(step, row.time) else None

    def _guess(self, readings: Readings) -> Prediction | None:
        """Persistence, for a reading of the warm-up."""
        guess, step = self._guesses(self._waiting, readings), len(self._waiting) - 1
        if guess is None or not self.every(step, guess.time):
            return None
        self._template = _template(guess.questions)
        return Prediction(step, guess.time_text, guess.values)

    def _follow(self, clock: Clock, line: int, time: float, written: Any) -> None:
        """Cut the traces where a reading does not follow on the one before it; log the first that comes too late."""
        before = clock.backwards
        if clock.find_gaps(np.array([time]))[0]:
            assert self.horde is not None
            self.horde.cut()
        if clock.backwards > before:
            self.backwards += 1
            if self.backwards == 1:
                logger.warning(
                    "line %d: out of order: its time %s is before that of the reading before it; nothing is learned "
                    "across. More of these are counted.", line, written,
                )  # fmt: skip

    def _report(self, line: int, problems: Mapping[str, str]) -> None:
        """Log a problem when it first occurs; count it."""
        for problem, text in problems.items():
            self.problems[problem] += 1
            if self.problems[problem] == 1:
                logger.warning("line %d: %s: %s; treated as missing. More of these are counted.", line, problem, text)

    # ------------------------------------------------------------------ the warm-up

    def _begin(self, readings: Readings) -> Prediction | None:
        """The warm-up is complete: make the horde, learn from the readings that wait; the prediction at the last."""
        waiting, self._waiting = self._waiting, []
        try:
            table, stray = collect_readings(waiting, readings, self.settings.time, self.settings.words())
            for line in sorted(stray):
                self.malformed += 1
                logger.warning("line %d: a stray record, with none of the columns of the others; skipped.", line)
            waiting = [(line, reading) for line, reading in waiting if line not in stray]
            rows = [reading for _, reading in waiting]
            settings = replace(self.settings, horizons=self.settings.horizons or _HORIZONS).filled(table, len(rows))
        except ValueError as error:
            raise ValueError(f"the first {len(waiting)} readings cannot be learned from: {error}") from None
        clock = table.clock()
        step = None if clock is None else clock.step
        horde = Horde(
            settings.gvfs(),
            make_makers(settings),
            settings.rule,
            rates=settings.rates,
            step=step,
            stepsize=settings.stepsize,
        )
        horde.warm_up(table, len(rows))
        for _, predictions in horde.blocks(table, clock):
            self.step += len(predictions)
        self.settings = settings
        self._ready(horde, clock, table.notation)
        if clock is not None and clock.backwards:
            self.backwards = clock.backwards
            logger.warning("%d of the first readings are out of order; nothing is learned across.", clock.backwards)
        for line, reading in waiting:
            self._report(line, self._parser.parse(reading).problems)
        for column, reason in table.ignored.items():
            logger.info("column %r is not used: %s.", column, reason)
        logger.info("warmed up on %d readings of %d signals; learning from now on.", self.step, len(table.names))
        row = self._parser.parse(waiting[-1][1])
        wanted = self.every(self.step - 1, row.time)
        return Prediction(self.step - 1, row.time_text, predictions[-1]) if wanted else None

    def _ready(self, horde: Horde, clock: Clock | None, notation: Notation) -> None:
        """All that a reading needs, made once."""
        self._parser = RowParser(horde.makers[0].signals, horde.categories, notation)
        self._template = _template(horde.questions)
        self.horde, self.clock = horde, clock

    # ------------------------------------------------------------------ saving

    def save_warm_up(self, path: Path) -> None:
        """Write the readings of a warm-up that is not complete."""
        save_warm_up(path, self._waiting, self._readings_delimiter)

    def load_warm_up(self, path: Path) -> None:
        """Go on from such readings."""
        self._waiting, self._readings_delimiter = load_warm_up(path)

    def state(self) -> dict[str, Any]:
        """What to save with the horde."""
        notation = self._parser.notation
        when = [notation.time.name, notation.time.a_second] if notation.time else [None, 1.0]
        return {
            "settings": self.settings.table(),
            "clock": None if self.clock is None else self.clock.state(),
            "live": {"step": self.step, "when": when},
            "notation": notation.config(),
            "table": {},
        }

    @classmethod
    def restore(
        cls, horde: Horde, state: Mapping[str, Any], *, learn: bool = True, every: Every | None = None
    ) -> Predictor:
        """From a horde and what was saved with it, by ``state`` or by a run on a table, or nothing."""
        predictor = cls(Settings.of(state.get("settings", {})), learn=learn, every=every)
        live = state.get("live", {})
        predictor.step = int(live.get("step", horde.rows))
        clock = None if state.get("clock") is None else Clock.restore(state["clock"])
        if "notation" in state:
            notation = Notation.from_config(state["notation"])
        else:  # as saved until 0.2: numbers with a point, times as numbers or in ISO
            column, a_second = live.get("when") or state.get("when") or (None, 1.0)
            notation = Notation(time=column and TimeColumn(tuple(column.split("+")), (None,), float(a_second)))
        predictor._ready(horde, clock, notation)
        return predictor


def _template(questions: Iterable[GVF]) -> str:
    """A line of JSON with places for the step, the time and each value.

    A plain question is under its signal and horizon, one of the user's own under its name and horizon, or its γ.
    """
    places: dict[str, list[str]] = {}
    for question in questions:
        name, _, horizon = question.name.rpartition("@")
        if question.name != f"{question.cumulant}@{question.horizon}":
            own = question.gamma if question.horizon is None else question.horizon
            name, horizon = question.name, own if isinstance(own, str) else f"{own:g}" if not callable(own) else ""
        place = _literal(horizon) + ": %s"
        at = places.setdefault(name, [])
        at.append(place if place not in at else _literal(question.name) + ": %s")
    body = ", ".join(f"{_literal(name)}: {{{', '.join(at)}}}" for name, at in places.items())
    return '{"step": %d, "time": %s, "predictions": {' + body + "}}\n"


def _literal(text: str) -> str:
    """Text as JSON, in a template of ``%``."""
    return json.dumps(text, ensure_ascii=False).replace("%", "%%")
