"""The core of live nexting: readings in, predictions out, learning all the while.

It has no pipe, file or signal of its own: ``emphatic nexting -`` and ``emphatic serve`` use it alike.
"""

from __future__ import annotations

import logging
import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from emphatic.errors import CheckpointError
from emphatic.hordes.horde import Horde
from emphatic.nexting.derived import Derived
from emphatic.nexting.first_guesses import FirstGuesses, load_warm_up, save_warm_up
from emphatic.nexting.prediction_lines import Every, LineFormat, Prediction
from emphatic.nexting.related import make_makers
from emphatic.nexting.settings import ENGINE, Settings
from emphatic.tables import Clock
from emphatic.tables.jsonlines import is_nested
from emphatic.tables.notation import Notation, ParsedRow, RowParser
from emphatic.tables.pipe import BLOCK, JSON, Malformed, Reading, TextForm, collect_readings
from emphatic.tables.times import TimeColumn

__all__ = ["ENGINE", "Every", "Outcome", "Prediction", "Predictor"]

logger = logging.getLogger("emphatic.nexting")

#: What becomes of a reading: its prediction, why it could not be used, or None if it gets no prediction.
Outcome = Prediction | Malformed | None
#: Malformed readings that are reported one by one; from there on they are counted.
_REPORTED = 100
#: Horizons in steps, where nothing says how long the stream will be.
_HORIZONS = (2, 9, 36, 144)
#: Readings to warm up on by default.
WARM_UP = 100
#: The most names in the readings of a warm-up, where they come from strangers.
_NAMES = 2000
#: The most signals that a message names.
_NAMED = 6


class _Waiting(NamedTuple):
    """A reading that is to be learned from: its place among the outcomes, its number, and its fields."""

    place: int
    number: int
    row: ParsedRow


class Predictor:
    """Takes readings, and gives a prediction for each.

    Without a model it warms up on the first ``warm_up`` readings: from the third on they are answered by persistence,
    with the present reading. Readings that cannot be used are logged under ``emphatic.nexting`` and counted; ``unit``
    is what messages call a reading. A warm-up that cannot be learned from is a ValueError; a ``resilient`` predictor,
    whose readings come from strangers, starts it again, and refuses readings that bring thousands of names into it.

    >>> predictor = Predictor(Settings(horizons=(2,)), warm_up=98)
    >>> outcomes = predictor.take((t + 1, {"x": t % 5}) for t in range(100))
    >>> outcomes[1], outcomes[2].line[:60]
    (None, b'{"step": 2, "time": null, "predictions": {"x": {"2": 2.0}}, ')
    >>> outcomes[-1].step, outcomes[-1].derived["low"] < outcomes[-1].values
    (99, array([ True]))
    """

    def __init__(
        self,
        settings: Settings,
        *,
        learn: bool = True,
        every: Every | None = None,
        warm_up: int = WARM_UP,
        unit: str = "line",
        resilient: bool = False,
    ) -> None:
        self.settings, self.learn, self.every, self.warm_up = settings, learn, every or Every(None), warm_up
        self.horde: Horde | None = None
        self.clock: Clock | None = None
        self.step = self.malformed = self.readings = 0
        #: Fields that could not be read, by kind.
        self.problems: Counter[str] = Counter()
        #: Readings whose time is before that of the one before them.
        self.backwards = 0
        self._unit, self._first_malformed, self._resilient = unit, "", resilient
        self._names: set[str] = set()
        self._waiting: list[tuple[int, Reading]] = []
        self._guesses = FirstGuesses(settings, _HORIZONS)
        self._form = JSON

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
        known = self._form.delimiter if self.horde is None else self._parser.notation.delimiter
        return self.settings.delimiter or known

    @property
    def header(self) -> tuple[str, ...]:
        """The columns of the CSV the model was learned from, in their order."""
        if self.horde is None:
            return self.columns if self._form.delimiter else ()
        return self._parser.notation.header

    def take(self, readings: Iterable[tuple[int, Reading | Malformed]], form: TextForm = JSON) -> list[Outcome]:
        """Learn from numbered readings; returns the outcome of each, a prediction once its reading is learned from.

        The readings may be cut into any batches without changing a bit of what is learned or predicted. ``form`` is
        how they were written.
        """
        self._form = form
        outcomes: list[Outcome] = []
        block: list[_Waiting] = []
        for number, reading in readings:
            outcome: Outcome = None
            try:
                if isinstance(reading, Malformed):
                    raise reading
                if self.horde is None:
                    outcome = self._collect(number, reading)
                else:
                    block.append(_Waiting(len(outcomes), number, self._parse(number, reading)))
            except Malformed as error:
                outcome = self._reject(number, error)
            outcomes.append(outcome)
            if len(block) == BLOCK:
                self._learn(block, outcomes)
                block = []
        if block:
            self._learn(block, outcomes)
        return outcomes

    def log_counts(self) -> None:
        """Log how much could not be used, of what was not logged one by one."""
        if self.malformed > _REPORTED:
            logger.warning("%d malformed %ss skipped.", self.malformed, self._unit)
        for problem, count in self.problems.items():
            if count > 1:
                logger.warning("%s: %d times, each treated as missing.", problem, count)
        if self.backwards > 1:
            logger.warning("%d readings out of order in all.", self.backwards)

    def check_readable(self) -> None:
        """ValueError if there were lines, and no reading in any of them."""
        if self.malformed and not self.readings:
            raise ValueError(
                f"none of the {self.malformed} {self._unit}s could be read; the first was {self._first_malformed}."
            )

    # ------------------------------------------------------------------ learning

    def _parse(self, number: int, reading: Reading) -> ParsedRow:
        """The fields of a reading, all looked at before anything is learned; ``Malformed`` if none can be used."""
        row = self._parser.parse(reading)
        if not row.readable:
            if not reading.keys() & {*self._parser.names, *self._parser.categories}:
                names = self._parser.names
                more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
                raise Malformed(f"none of the signals {', '.join(names[:_NAMED])}{more} is in it")
            raise Malformed("; ".join(f"{what}: {text}" for what, text in row.problems.items()))
        self._report(number, row.problems)
        return row

    def _learn(self, block: list[_Waiting], outcomes: list[Outcome]) -> None:
        """Learn from readings and fill in their predictions. One that the horde refuses changes nothing."""
        assert self.horde is not None
        rows = [each.row for each in block]
        names = self._parser.names
        values = np.array([row.values for row in rows])
        columns: dict[str, Any] = dict(zip(names, values.T, strict=True))
        columns |= {name: [row.labels[name] for row in rows] for name in self._parser.categories}
        clock, time, gap = copy(self.clock), None, None
        if clock is not None:
            time = np.array([row.time for row in rows])
            gap = clock.find_gaps(time)
        try:
            predictions = self.horde.observe_many(columns, time=time, gap=gap, learn=self.learn)
        except ValueError as error:
            if len(block) == 1:
                outcomes[block[0].place] = self._reject(block[0].number, Malformed(str(error)))
                return
            for each in block:
                self._learn([each], outcomes)
            return
        self._follow(block, clock)
        self.readings += len(block)
        breaks = np.zeros(len(block), bool) if gap is None else gap
        derived = self.derived(predictions, values, breaks)
        for i, each in enumerate(block):
            row = each.row
            if self.every(self.step, row.time):
                outcomes[each.place] = Prediction(
                    self.step, row.time_text, predictions[i], self.format, row.values, row.time, bool(breaks[i]),
                    {kind: found[i] for kind, found in derived.items()},
                )  # fmt: skip
            self.step += 1

    def _follow(self, block: list[_Waiting], clock: Clock | None) -> None:
        """Advance to the clock after these readings; log the first reading of all that is out of order."""
        before, self.clock = self.clock, clock
        if before is None or clock is None or clock.backwards == before.backwards:
            return
        if not self.backwards:
            last = before.last
            for each in block:
                if each.row.time < last:
                    logger.warning(
                        "%s %d: out of order: its time %s is before that of the reading before it; nothing is learned "
                        "across. More of these are counted.", self._unit, each.number, each.row.time_text,
                    )  # fmt: skip
                    break
                last = each.row.time if math.isfinite(each.row.time) else last
        self.backwards += clock.backwards - before.backwards

    def _reject(self, number: int, error: Malformed) -> Malformed:
        """Count a reading that cannot be used, and log it."""
        self.malformed += 1
        self._first_malformed = self._first_malformed or f"{self._unit} {number}: {error}"
        if self.malformed <= _REPORTED:
            logger.warning("%s %d: %s; skipped.", self._unit, number, error)
        return error

    def _report(self, number: int, problems: Mapping[str, str]) -> None:
        """Log a problem when it first occurs; count it."""
        for problem, text in problems.items():
            self.problems[problem] += 1
            if self.problems[problem] == 1:
                logger.warning(
                    "%s %d: %s: %s; treated as missing. More of these are counted.", self._unit, number, problem, text
                )

    # ------------------------------------------------------------------ the warm-up

    def _collect(self, number: int, reading: Reading) -> Prediction | None:
        """A reading of the warm-up: answered by persistence, and the last one by the horde.

        ``Malformed`` if nothing in it could be a number or a label, whatever the columns turn out to be.
        """
        nested = [name for name, value in reading.items() if is_nested(value)]
        if not reading or (nested and all(value is None or is_nested(value) for value in reading.values())):
            raise Malformed(f"{nested[0]!r} is not a number, but an object or a list" if nested else "nothing is in it")
        if self._resilient:
            if len(self._names) < len(self._names | reading.keys()) > _NAMES:
                raise Malformed(f"it brings more than {_NAMES:,} names into the warm-up")
            self._names |= reading.keys()
        self.readings += 1
        self._waiting.append((number, reading))
        if len(self._waiting) >= self.warm_up:
            try:
                return self._begin()
            except ValueError as error:
                if not self._resilient:
                    raise
                logger.warning("%s The warm-up starts again.", error)
                self._names, self._guesses = set(), FirstGuesses(self.settings, _HORIZONS)
                return None
        guess, step = self._guesses(self._waiting, self._form), len(self._waiting) - 1
        if guess is None or not self.every(step, guess.time):
            return None
        signals = dict.fromkeys(str(question.cumulant) for question in guess.questions)
        return Prediction(step, guess.time_text, guess.values, LineFormat(guess.questions, signals))

    def _begin(self) -> Prediction | None:
        """The warm-up is complete: make the horde, learn from the readings that wait; the prediction at the last."""
        waiting, self._waiting = self._waiting, []
        try:
            table, stray = collect_readings(waiting, self._form, self.settings.time, self.settings.words())
            for number in sorted(stray):
                self.malformed += 1
                logger.warning(
                    "%s %d: a stray record, with none of the columns of the others; skipped.", self._unit, number
                )
            waiting = [(number, reading) for number, reading in waiting if number not in stray]
            rows = [reading for _, reading in waiting]
            settings = replace(self.settings, horizons=self.settings.horizons or _HORIZONS).filled(table, len(rows))
        except ValueError as error:
            raise ValueError(f"the first {len(waiting)} readings cannot be learned from: {error}") from None
        clock = table.clock()
        horde = Horde(
            settings.gvfs(),
            make_makers(settings),
            settings.rule,
            rates=settings.rates,
            step=None if clock is None else clock.step,
            stepsize=settings.stepsize,
            least_squares=settings.least_squares,
            engine=ENGINE,
        )
        horde.warm_up(table, len(rows))
        self.settings = settings
        self._ready(horde, clock, table.notation)
        for block, predictions in horde.blocks(table, clock):
            self.step += len(predictions)
            derived = self.derived(predictions, block.values, block.gap)
        if clock is not None and clock.backwards:
            self.backwards = clock.backwards
            logger.warning("%d of the first readings are out of order; nothing is learned across.", clock.backwards)
        for number, reading in waiting:
            self._report(number, self._parser.parse(reading).problems)
        for column, reason in table.ignored.items():
            logger.info("column %r is not used: %s.", column, reason)
        logger.info("warmed up on %d readings of %d signals; learning from now on.", self.step, len(table.names))
        row = self._parser.parse(waiting[-1][1])
        if not self.every(self.step - 1, row.time):
            return None
        return Prediction(
            self.step - 1, row.time_text, predictions[-1], self.format, row.values, row.time,
            derived={kind: found[-1] for kind, found in derived.items()},
        )  # fmt: skip

    def _ready(self, horde: Horde, clock: Clock | None, notation: Notation) -> None:
        """Set up what every reading needs."""
        self._parser = RowParser(horde.makers[0].signals, horde.categories, notation)
        self.derived = Derived(horde, self.settings.coverage, self.settings.false_alarm_rate)
        self.format = LineFormat(horde.questions, self.derived.signals)
        self.horde, self.clock = horde, clock

    # ------------------------------------------------------------------ saving

    def save_warm_up(self, path: Path, **more: Any) -> None:
        """Write the readings of a warm-up that is not complete, and ``more``."""
        save_warm_up(path, self._waiting, self._form.delimiter, self.settings, more)

    def load_warm_up(self, path: Path) -> dict[str, Any]:
        """Continue a warm-up from its saved readings, with the settings it began with where none are given now.

        Returns the ``more`` that was saved with them.
        """
        self._waiting, delimiter, settings, more = load_warm_up(path)
        self.settings, self._form = self.settings.over(settings), TextForm(delimiter)
        self._guesses = FirstGuesses(self.settings, _HORIZONS)
        self._names = {name for _, reading in self._waiting for name in reading}
        return more

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
            **self.derived.state(),
        }

    @classmethod
    def load(cls, path: str | os.PathLike[str], **options: Any) -> tuple[Predictor, dict[str, Any]]:
        """The predictor of a model in a file, and all that was saved with it; ``options`` are those of ``restore``.

        A model that was learned by another engine goes on with ``ENGINE``.
        """
        horde, state = Horde.load_with(path, engine=ENGINE)
        try:
            return cls.restore(horde, state, **options), state
        except ValueError as error:
            raise CheckpointError(f"{os.fsdecode(path)!r} is not a sound model: {error}") from error

    @classmethod
    def restore(
        cls,
        horde: Horde,
        state: Mapping[str, Any],
        *,
        learn: bool = True,
        every: Every | None = None,
        unit: str = "line",
    ) -> Predictor:
        """The predictor of a horde and what was saved with it, by ``state``, by a run on a table, or nothing."""
        predictor = cls(Settings.of(state.get("settings", {})), learn=learn, every=every, unit=unit)
        live = state.get("live", {})
        predictor.step = int(live.get("step", horde.rows))
        clock = None if state.get("clock") is None else Clock.restore(state["clock"])
        if "notation" in state:
            notation = Notation.from_config(state["notation"])
        else:  # tests/data/0.1.0/horde: numbers have a point, times are numbers or in ISO
            column, a_second = live.get("when") or state.get("when") or (None, 1.0)
            notation = Notation(time=column and TimeColumn(tuple(column.split("+")), (None,), float(a_second)))
        predictor._ready(horde, clock, notation)
        predictor.derived.restore(state)
        return predictor
