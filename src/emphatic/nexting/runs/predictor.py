"""Live nexting: readings in, predictions out, learning all the while.

``Predictor`` has no pipe, file or signal of its own: ``Live`` (``emphatic nexting -``) and ``emphatic serve`` use it
alike. Before there is a model, ``PersistenceWarmUp`` answers. ``LineFormat`` writes predictions as lines of JSON.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from emphatic.common.files import atomic_file
from emphatic.common.names import refusal
from emphatic.errors import CheckpointError
from emphatic.gvfs import durations
from emphatic.gvfs.gvf import GVF
from emphatic.hordes.horde import Horde
from emphatic.nexting.answers.asked import KINDS, Asked
from emphatic.nexting.answers.language import parse, parse_all
from emphatic.nexting.answers.timing import Timing
from emphatic.nexting.runs.alarms import OF_A_SIGNAL, WHY
from emphatic.nexting.runs.forecaster import Forecaster, Said
from emphatic.nexting.runs.gvfs import MARKS
from emphatic.nexting.runs.learning import choose_columns, make_guard, make_horde
from emphatic.nexting.runs.settings import ENGINE, Settings
from emphatic.nexting.tables import Block, Clock, ReadingGuard, Table, pipe
from emphatic.nexting.tables.columns import Increments
from emphatic.nexting.tables.fields import Notation
from emphatic.nexting.tables.grid import Grid, arrangement_lines
from emphatic.nexting.tables.pipe import Malformed, ParsedRow, Reading, RowParser, TextForm
from emphatic.nexting.tables.text import is_nested

__all__ = ["Every", "LineFormat", "Outcome", "PersistenceWarmUp", "Prediction", "Predictor", "format_lines"]

logger = logging.getLogger("emphatic.nexting")

#: Malformed readings that are reported one by one; from there on they are counted.
_REPORTED = 100
#: Horizons in steps, where nothing says how long the stream will be.
_HORIZONS = (2, 9, 36, 144)
#: The most names in the readings of a warm-up, where they come from strangers.
_NAMES = 2000
#: A date, for an example.
_SOME_TIME = 1_700_000_000.0
#: The most signals that a message names.
_NAMED = 6
#: Readings from which on a warm-up knows their columns well enough to answer.
_LEAST = 3
#: What the file of an incomplete warm-up says of itself.
_FORMAT = "emphatic warm-up 1"
#: So few readings are learned from one by one, which leads to the same bits in less time than a block.
_ALONE = 4


# ---------------------------------------------------------------------- lines of predictions


class Every:
    """Which readings get a prediction: every N-th, or one in so many seconds.

    Args:
        text: A number of readings, or a duration such as "5s"; None for all readings.
    """

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
        self._latest = -math.inf

    def __call__(self, step: int, when: float) -> bool:
        if self._count:
            return (step + 1) % self._count == 0
        moment = when if math.isfinite(when) else time.monotonic()
        if moment - self._latest < self._seconds:
            return False
        self._latest = moment
        return True


#: Whether there is an alarm, and the reasons by their numbers, as they stand in a line.
_TRUTHS, _REASONS = (b"false", b"true"), (b"null", *(f'"{reason}"'.encode() for reason in WHY))
#: What a line has of each prediction besides its value.
_BOUNDS = ("low", "high")


class LineFormat:
    """The form of a line of predictions: {"step": …, "time": …, "predictions": {signal: {horizon: value}}, …}.

    A prediction is the answer to a question ``SIGNAL at +h`` that is asked by default, or to one of the user's own.
    Then follow "low" and "high", the ends of their intervals, of the same form; and "anomaly", "alarm" and "why",
    {signal: value} for each signal that is predicted. All other questions are under "asked", {question: {"answer":
    value, "low": value, "high": value, "usual": value}}. Where answers to own questions are unsupported or impossible,
    "marks" has the word, of the form of "predictions".

    Args:
        signals: The signals that have alarms.
        values: The signal and the horizon of each value that is predicted.
        own: The name and the horizon of each question of the user's own.
        places: The places of the values among all that is asked.
        asked: The texts of all that is asked.
    """

    def __init__(
        self,
        signals: Iterable[str],
        values: Sequence[tuple[str, str]],
        own: Sequence[tuple[str, str]] = (),
        places: Sequence[int] | None = None,
        asked: Sequence[str] = (),
    ) -> None:
        self.signals = tuple(signals)
        #: The two keys of each prediction: its signal or name, and its horizon; those of own questions come last.
        self.keys, self.own = [*values, *own], tuple(own)
        #: The horizons of each name, with the numbers of their predictions.
        self.places: dict[str, dict[str, int]] = {}
        for q, (name, horizon) in enumerate(self.keys):
            self.places.setdefault(name, {})[horizon] = q
        self._values = np.array(range(len(values)) if places is None else places, np.int64)
        shown = {*self._values.tolist()}
        #: The questions under "asked", and their places among all that is asked.
        self.asked = tuple(text for q, text in enumerate(asked) if q not in shown)
        self._asked = np.array([q for q in range(len(asked)) if q not in shown], np.int64)
        self._order = np.array([q for at in self.places.values() for q in at.values()], np.int64)
        bodies = (", ".join(f"{_literal(h)}: %s" for h in at) for at in self.places.values())
        body = ", ".join(f"{_literal(name)}: {{{inner}}}" for name, inner in zip(self.places, bodies, strict=True))
        entries = "".join(f', "{kind}": {{{body}}}' for kind in ("predictions", *_BOUNDS))
        body = ", ".join(f"{_literal(name)}: %s" for name in self.signals)
        entries += "".join(f', "{kind}": {{{body}}}' for kind in OF_A_SIGNAL)
        if self.asked:
            body = ", ".join(f'"{kind}": %s' for kind in KINDS)
            entries += ', "asked": {' + ", ".join(f"{_literal(text)}: {{{body}}}" for text in self.asked) + "}"
        template = '{"step": %s, "time": %s' + entries + "}\n"
        count = 2 + 3 * len(self.keys) + len(OF_A_SIGNAL) * len(self.signals) + len(KINDS) * len(self.asked)
        #: A line in pieces: texts, and between them the fields.
        self._pieces = [b""] * (2 * count + 1)
        self._pieces[::2] = (template % (("\0",) * count)).encode().split(b"\0")

    @classmethod
    def of(cls, forecaster: Forecaster) -> LineFormat:
        """That of what a forecaster says."""
        asked = forecaster.asked
        places = {text: q for q, text in enumerate(asked.texts)}
        about = [question for question in map(parse, asked.default) if question.value_of is not None]
        values = [(str(question.value_of), f"{question.length}") for question in about]
        own = []
        for gvf in forecaster.returns.questions:
            length = gvf.gamma if gvf.horizon is None else gvf.horizon
            text = "" if callable(length) else length if isinstance(length, str) else f"{length:g}"
            own.append((gvf.name, gvf.name if (gvf.name, text) in values else text))
        return cls(forecaster.signals, values, own, [places[question.text] for question in about], asked.texts)

    def predictions(self, said: Said) -> NDArray[np.float64]:
        """Value, low and high of each prediction (…, Q, 3), in the order of ``keys``."""
        values = said.asked[..., self._values, :3]
        return np.concatenate([values, said.own[..., :3]], axis=-2) if said.own.shape[-2] else values

    def write(self, prediction: Prediction) -> bytes:
        """A prediction as a line of pipe.JSON; a value that is not finite is null."""
        S, said = len(self.signals), prediction.said
        values = np.ascontiguousarray(prediction.values[self._order].T).reshape(-1)
        if said is None:
            numbers = np.concatenate((values, np.full(S, np.nan)))
            words = [b"null"] * (2 * S)
        else:
            numbers = np.concatenate((values, said.anomaly, said.asked[self._asked].reshape(-1)))
            words = [*(_TRUTHS[why > 0] for why in said.why.tolist()), *map(_REASONS.__getitem__, said.why.tolist())]
        texts = orjson.dumps(numbers, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1].split(b",")
        pieces = self._pieces.copy()
        head = b"%d" % prediction.step, _write_time(prediction.time)
        begin = len(values) + S
        pieces[1::2] = (*head, *texts[:begin], *words, *texts[begin:])
        if said is not None and said.mark.any():
            marks: dict[str, dict[str, str | None]] = {}
            for g in np.flatnonzero(said.mark).tolist():
                name, horizon = self.keys[len(self._values) + g]
                marks.setdefault(name, {})[horizon] = MARKS[said.mark[g]]
            pieces[-1] = pieces[-1][:-2] + b', "marks": ' + json.dumps(marks, ensure_ascii=False).encode() + b"}\n"
        return b"".join(pieces)


class Prediction(NamedTuple):
    """The predictions at one reading.

    Attributes:
        step: The number of the reading.
        time: Its time as it was written.
        values: Value, low and high of each prediction (Q, 3), as ``LineFormat.keys`` names them.
        format: The form of its line.
        readings: The readings of the signals, NaN where missing.
        seconds: The time as a number.
        gap: Whether the reading does not follow the one before it.
        said: All that is said at it; None in the warm-up.
    """

    step: int
    time: object
    values: NDArray[np.float64]
    format: LineFormat
    readings: Sequence[float] = ()
    seconds: float = math.nan
    gap: bool = False
    said: Said | None = None

    @property
    def line(self) -> bytes:
        """The prediction as a line of pipe.JSON."""
        return self.format.write(self)


def format_lines(predictions: Iterable[Prediction]) -> list[bytes]:
    """Predictions as lines of pipe.JSON."""
    return [prediction.line for prediction in predictions]


def _write_time(time: object) -> bytes:
    """A time as pipe.JSON; of a number, ``json`` takes ten times as long."""
    is_number = isinstance(time, float) and time - time == 0.0
    return (repr(time) if is_number else json.dumps(time)).encode()


def _literal(text: str) -> str:
    """Text as pipe.JSON, in a template of ``%``."""
    return json.dumps(text, ensure_ascii=False).replace("%", "%%")


# ---------------------------------------------------------------------- the warm-up

Waiting = Sequence[tuple[int, Reading]]


class PersistenceAnswers(NamedTuple):
    """The present reading of each signal as the value at every horizon: when, and the predictions."""

    time: float
    time_text: object
    values: NDArray[np.float64]
    format: LineFormat


class PersistenceWarmUp:
    """Answers before there is a model, by persistence: the present reading, or the last one where that is missing.

    A name that has come only once may be that of a stray record, and is no signal yet.

    Args:
        settings: What to predict.
        horizons: The horizons, where the settings have none.
    """

    def __init__(self, settings: Settings, horizons: Sequence[float | str]) -> None:
        self._predict, self._horizons = settings.predict, settings.horizons or horizons
        self._options = settings.reading_options()
        self._parser: RowParser | None = None
        self._form: tuple[Any, ...] = ()  # what the parser was made for
        self._held = 0  # readings whose values are in _present
        self._present: dict[str, float] = {}
        self._names: tuple[str, ...] = ()  # whose lines these are
        self._format = LineFormat((), ())
        self._settings = replace(settings, horizons=settings.horizons or tuple(horizons))
        #: The readings to warm up on, by the rule for all streams; horizons as durations count once the step is known.
        self.rows = self._settings.warm_up_rows(None)

    def __call__(self, waiting: Waiting, form: TextForm) -> PersistenceAnswers | None:
        """The answers at the last of the readings so far; None if they do not tell yet what they are."""
        if len(waiting) < _LEAST:
            return None
        if self._parser is None or len(waiting) == _last_look(len(waiting)):
            counts = Counter(name for _, reading in waiting for name in reading)
            rows = [{name: value for name, value in row.items() if counts[name] > 1} for _, row in waiting]
            try:
                table = pipe.collect(rows, *form, self._options)
            except ValueError:  # the message comes when the warm-up is complete
                return None
            columns = (table.names, table.categories, table.notation)
            if self._parser is None or self._form != columns:
                self._parser, self._form, self._held = RowParser(*columns), columns, 0
            clock = table.clock()
            self.rows = self._settings.warm_up_rows(None if clock is None else clock.step)
            if table.grid_plan is not None:  # so many rows need more readings
                self.rows = math.ceil(self.rows * max(1.0, len(rows) / max(1, table.count_rows())))
            for row in map(self._parser.parse, rows[self._held : -1]):
                self._hold(row.values)
        row = self._parser.parse(waiting[-1][1])
        if not row.readable:
            return None
        self._hold(row.values)
        self._held = len(waiting)
        names = tuple(self._predict or self._parser.names)
        if self._names != names:  # (80 of them take longer to make than a reading takes to learn)
            self._names = names
            horizons = [horizon if isinstance(horizon, str) else f"{horizon:g}" for horizon in self._horizons]
            self._format = LineFormat(names, [(name, horizon) for name in names for horizon in horizons])
        present = np.repeat([self._present.get(name, np.nan) for name in names], len(self._horizons))
        values = np.stack([present, np.full(len(present), np.nan), np.full(len(present), np.nan)], axis=1)
        return PersistenceAnswers(row.time, row.time_text, values, self._format)

    def _hold(self, values: Sequence[float]) -> None:
        assert self._parser is not None
        for name, value in zip(self._parser.names, values, strict=True):
            if np.isfinite(value):
                self._present[name] = float(value)


def _last_look(count: int) -> int:
    """The last time that a warm-up of so many readings looks at all of them for their columns.

    That is at every 10th up to 100, then at every 100th, and so on: all looks together take no longer than a few.
    """
    return count - count % max(10, int(10 ** (len(str(count)) - 1)))


# ---------------------------------------------------------------------- the predictor


#: What becomes of a reading: its prediction, why it could not be used, or None if it gets no prediction.
Outcome = Prediction | Malformed | None


class _Waiting(NamedTuple):
    """A reading that is to be learned from: its place among the outcomes, its number, and its fields."""

    place: int
    number: int
    row: ParsedRow


class _Model(NamedTuple):
    """What every reading needs once the warm-up is complete."""

    forecaster: Forecaster
    parser: RowParser
    format: LineFormat
    grid: Grid | None = None

    @classmethod
    def of(cls, forecaster: Forecaster, notation: Notation, grid: Grid | None = None) -> _Model:
        """Those of a forecaster."""
        horde = forecaster.horde
        parser = RowParser(horde.makers[0].signals, horde.categories, notation)
        return cls(forecaster, parser, LineFormat.of(forecaster), grid)

    def rows(self, reading: Reading, row: ParsedRow) -> list[ParsedRow]:
        """The rows to learn from that a reading completes: itself, or those of the grid of time."""
        if self.grid is None:
            return [row]
        time = self.parser.notation.time
        assert time is not None
        completed = self.grid.feed(row, self.parser.reported(reading))
        return [regular._replace(time_text=time.write(regular.time)) for regular in completed]


class Predictor:
    """Takes readings, and gives a prediction for each.

    Without a model it warms up on the first readings: from the third on they are answered by persistence, with the
    present reading. Readings that cannot be used are logged under ``emphatic.nexting`` and counted.

    Args:
        settings: What to predict, and how.
        learn: Whether to learn; if not, a model only predicts.
        every: Which readings get a prediction; all by default.
        warm_up: The readings to warm up on; by default four times the longest horizon, 500 to 10,000, as on a table.
        unit: What messages call a reading.
        resilient: Whether readings come from strangers. A warm-up that cannot be learned from is a ValueError; a
            resilient predictor starts it again, and refuses readings that bring thousands of names into it. It drops
            questions of one line about signals that there are not.

    >>> predictor = Predictor(Settings(horizons=(2,)), warm_up=98)
    >>> outcomes = predictor.take((t + 1, {"x": t % 5}) for t in range(100))
    >>> outcomes[1], outcomes[2].line[:60]
    (None, b'{"step": 2, "time": null, "predictions": {"x": {"2": 2.0}}, ')
    >>> outcomes[-1].step, outcomes[-1].format.keys, outcomes[-1].values.shape
    (99, [('x', '2')], (1, 3))
    """

    def __init__(
        self,
        settings: Settings,
        *,
        learn: bool = True,
        every: Every | None = None,
        warm_up: int | None = None,
        unit: str = "line",
        resilient: bool = False,
    ) -> None:
        self.settings, self.learn, self.every = settings, learn, every or Every(None)
        self.clock: Clock | None = None
        self.increments: Increments | None = None
        #: The guard of the readings; None in the warm-up, and of a model that was saved by itself.
        self.guard: ReadingGuard | None = None
        self.step = self.malformed = self.readings = 0
        #: Fields that could not be read, by kind.
        self.problems: Counter[str] = Counter()
        #: Questions of one line that could not be asked when the warm-up was complete.
        self.dropped: tuple[str, ...] = ()
        #: Readings whose time is before that of the one before them.
        self.backwards = 0
        self._model: _Model | None = None
        self._unit, self._first_malformed, self._resilient = unit, "", resilient
        self._warm_up = warm_up
        self._names: set[str] = set()
        self._waiting: list[tuple[int, Reading]] = []
        self._persistence = PersistenceWarmUp(settings, _HORIZONS)
        self._form = pipe.JSON

    # ------------------------------------------------------------------ readings in, predictions out

    @property
    def horde(self) -> Horde | None:
        """The horde; None in the warm-up."""
        return None if self._model is None else self._model.forecaster.horde

    @property
    def forecaster(self) -> Forecaster:
        """All that is learned; RuntimeError in the warm-up."""
        return self._require().forecaster

    @property
    def asked(self) -> Asked:
        """The questions; RuntimeError in the warm-up."""
        return self.forecaster.asked

    def observe(self, reading: Reading) -> dict[str, Any]:
        """Learn from one more reading; what is said at it, by the columns of ``predictions.parquet``.

        It is empty in the warm-up. ValueError if the reading cannot be used, which then changes nothing.

        Args:
            reading: {name: value}, as a line of a pipe has it, with its time where the stream has times.
        """
        if not isinstance(reading, Mapping):
            raise refusal("reading", "observe", "be {name: value}", repr(reading))
        outcome = self.take([(self.step + 1, reading)])[0]
        if isinstance(outcome, Malformed):
            raise ValueError(str(outcome))
        if outcome is None or outcome.said is None:
            return {}
        columns = self.forecaster.columns(outcome.said.row(None))
        return {name: column.tolist()[0] for name, column in columns.items()}

    def summary(self) -> list[dict[str, Any]]:
        """The scores so far, as the objects of ``summary.json`` from the second on."""
        return self.forecaster.summary()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file, from which ``load`` continues.

        Args:
            path: The file.
        """
        self.forecaster.horde.save(path, **self.state())

    def ask(self, text: str) -> None:
        """Ask one more question of one line, which is learned from now on; ValueError if it cannot be asked.

        Args:
            text: The question, such as "P(power > 5 within 1h)".
        """
        if self._model is None:  # what it names is checked when the warm-up is complete
            asked = parse_all([*self.settings.ask, text])
            self.settings = replace(self.settings, ask=tuple(question.text for question in asked))
            return
        self._model.forecaster.ask(text)
        self._set_asked(self._model)

    def stop_asking(self, text: str) -> None:
        """No longer ask a question of one line; ValueError if it is not asked.

        Args:
            text: The question.
        """
        if self._model is None:
            if text.strip() not in self.settings.ask:
                raise ValueError(f"{text!r} is not among the questions added.")
            self.settings = replace(self.settings, ask=tuple(t for t in self.settings.ask if t != text.strip()))
            return
        self._model.forecaster.asked.remove(text)
        self._set_asked(self._model)

    def ask_further(self, settings: Settings, path: Path) -> None:
        """Ask the questions of settings that a model does not have yet; log which other settings differ from its own.

        Args:
            settings: The settings.
            path: The file of the model, for messages.
        """
        for text in settings.ask:
            if text.strip() in self.settings.ask:
                continue
            try:
                self.ask(text)
            except ValueError as error:
                if text.strip() not in self.dropped:
                    raise
                logger.warning("%s The question is dropped.", error)
        ignored = settings.differences(replace(self.settings, delimiter=self.delimiter, ask=settings.ask))
        if ignored:
            names = ", ".join(ignored)
            logger.warning("%s: using the settings stored in the model. Ignored, because they differ: %s.", path, names)

    def _set_asked(self, model: _Model) -> None:
        texts = tuple(question.text for question in model.forecaster.asked.questions)
        self.settings = replace(self.settings, ask=texts)
        self._model = model._replace(format=LineFormat.of(model.forecaster))

    @property
    def format(self) -> LineFormat:
        """The form of a line of predictions; RuntimeError in the warm-up."""
        return self._require().format

    def _require(self) -> _Model:
        if self._model is None:
            raise RuntimeError("The warm-up is not complete: there is no model yet.")
        return self._model

    @property
    def last_time(self) -> float | str | None:
        """The time of the last row that was learned from, as the column has it; None without times."""
        time = None if self._model is None else self._model.parser.notation.time
        if time is None or self.clock is None or not math.isfinite(self.clock.last):
            return None
        return time.write(self.clock.last)

    @property
    def waiting(self) -> int:
        """Readings of a warm-up that is not complete."""
        return len(self._waiting)

    @property
    def warm_up(self) -> int:
        """The readings to warm up on: those asked for, or by the rule, as far as the readings tell."""
        return self._persistence.rows if self._warm_up is None else self._warm_up

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that readings may have; in the warm-up, those that they had so far."""
        if self._model is None:
            return tuple(dict.fromkeys(name for _, reading in self._waiting for name in reading))
        return self._model.parser.columns

    def example_time(self) -> tuple[str | None, object]:
        """The column of the time and a time as it is written there, for sources that write the time of arrival.

        The column is None where times are not dates or are not wanted; the example is None where there is none yet.
        """
        if self._model is not None:
            time = self._model.parser.notation.time
            if time is None or not time.dated or len(time.names) != 1:
                return None, None
            return time.names[0], time.write(_SOME_TIME)
        if self.settings.time is False:
            return None, None
        name = self.settings.time if isinstance(self.settings.time, str) else "time"
        return name, next((row[name] for _, row in reversed(self._waiting) if row.get(name) is not None), None)

    @property
    def delimiter(self) -> str | None:
        """That of the CSV the model was learned from, or of the settings."""
        known = self._form.delimiter if self._model is None else self._model.parser.notation.delimiter
        return self.settings.delimiter or known

    @property
    def header(self) -> tuple[str, ...]:
        """The columns of the CSV the model was learned from, in their order."""
        if self._model is None:
            return self.columns if self._form.delimiter else ()
        return self._model.parser.notation.header

    def take(self, readings: Iterable[tuple[int, Reading | Malformed]], form: TextForm = pipe.JSON) -> list[Outcome]:
        """Learn from readings. They may be cut into any batches without changing a bit of what is learned or predicted.

        Args:
            readings: The readings with their numbers, which messages name.
            form: How they were written.

        Returns:
            The outcome of each reading: a prediction once it is learned from.
        """
        self._form = form
        outcomes: list[Outcome] = []
        block: list[_Waiting] = []
        for number, reading in readings:
            outcome: Outcome = None
            try:
                if isinstance(reading, Malformed):
                    raise reading
                if self._model is None:
                    outcome = self._collect(number, reading)
                else:
                    row = self._parse(self._model.parser, number, reading)
                    place = len(outcomes)
                    block += [_Waiting(place, number, regular) for regular in self._model.rows(reading, row)]
                    self.readings += self._model.grid is not None
            except Malformed as error:
                outcome = self._reject(number, error)
            outcomes.append(outcome)
            if len(block) >= pipe.BLOCK:
                self._learn(block, outcomes)
                block = []
        if len(block) > _ALONE:
            self._learn(block, outcomes)
        else:
            for waiting in block:
                self._learn([waiting], outcomes)
        return outcomes

    def log_counts(self) -> None:
        """Log how much could not be used, of what was not logged one by one."""
        if self.malformed > _REPORTED:
            logger.warning("%d malformed %ss skipped.", self.malformed, self._unit)
        for problem, count in self.problems.items():
            if count > 1:
                logger.warning("%s: %d times, each counted as missing.", problem, count)
        if self.backwards > 1:
            logger.warning("%d readings out of order in all.", self.backwards)
        for name, counts in self.guarded_counts().items():
            outliers = "1 outlier" if counts["pulled_in"] == 1 else f"{counts['pulled_in']:,} outliers"
            logger.warning("%s: %s pulled in, %d counted as missing.", name, outliers, counts["missing"])

    def guarded_counts(self) -> dict[str, dict[str, int]]:
        """How many readings of each signal were pulled in and taken for missing, where there are any."""
        return {} if self.guard is None else self.guard.counts(self._require().parser.names)

    def check_readable(self) -> None:
        """ValueError if there were lines, and no reading in any of them."""
        if self.malformed and not self.readings:
            raise ValueError(
                f"none of the {self.malformed} {self._unit}s could be read; the first was {self._first_malformed}."
            )

    # ------------------------------------------------------------------ learning

    def _parse(self, parser: RowParser, number: int, reading: Reading) -> ParsedRow:
        """The fields of a reading, all looked at before anything is learned; ``Malformed`` if none can be used."""
        row = parser.parse(reading)
        if not row.readable:
            names = parser.names
            if not reading.keys() & {*names, *parser.categories}:
                unnamed = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
                raise Malformed(f"the reading has none of the model's signals ({', '.join(names[:_NAMED])}{unnamed})")
            raise Malformed("; ".join(f"{problem}: {text}" for problem, text in row.problems.items()))
        if row.problems:
            self._report(number, row.problems)
        return row

    def _learn(self, waiting: list[_Waiting], outcomes: list[Outcome]) -> None:
        """Learn from readings and fill in their predictions. One that the horde refuses changes nothing."""
        forecaster, parser, form, grid = self._require()
        if len(waiting) > 1 and any(question.policy is not None for question in forecaster.returns.questions):
            for reading in waiting:  # the marks of a line are those of its own row
                self._learn([reading], outcomes)
            return
        clock = None if self.clock is None else self.clock.copy()
        guard = None if self.guard is None else self.guard.copy()
        block = Block.from_rows([reading.row for reading in waiting], parser.names, parser.categories, clock, self.step)
        increments = None if self.increments is None else self.increments.copy()
        if increments is not None:
            increments(block)
        if guard is not None:
            guard.mark(block)
        try:
            said = forecaster(block, self.learn)
        except ValueError as error:
            if len(waiting) == 1:
                outcomes[waiting[0].place] = self._reject(waiting[0].number, Malformed(str(error)))
                return
            for reading in waiting:
                self._learn([reading], outcomes)
            return
        if clock is not None:
            self._follow(waiting, clock)
        self.guard, self.increments = guard, increments
        self.readings += len(waiting) if grid is None else 0
        values = form.predictions(said)
        for i, reading in enumerate(waiting):
            row = reading.row
            if self.every(self.step, row.time):
                read = row.values if increments is None else block.values[i].tolist()
                outcomes[reading.place] = Prediction(
                    self.step, row.time_text, values[i], form, read, row.time, bool(block.gap[i]), said.row(i)
                )
            self.step += 1

    def _follow(self, waiting: list[_Waiting], clock: Clock) -> None:
        """Advance to the clock after these readings; log the first reading of all that is out of order."""
        previous, self.clock = self.clock, clock
        if previous is None or clock.backwards == previous.backwards:
            return
        if not self.backwards:
            latest = previous.last
            for reading in waiting:
                if reading.row.time < latest:
                    logger.warning(
                        "%s %d: out of order: its time %s is earlier than that of the previous reading. It starts a "
                        "new sequence. Further ones are only counted.",
                        self._unit,
                        reading.number,
                        reading.row.time_text,
                    )
                    break
                latest = reading.row.time if math.isfinite(reading.row.time) else latest
        self.backwards += clock.backwards - previous.backwards

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
                    "%s %d: %s: %s; counted as missing. Further ones are only counted.",
                    self._unit,
                    number,
                    problem,
                    text,
                )

    # ------------------------------------------------------------------ the warm-up

    def _collect(self, number: int, reading: Reading) -> Prediction | None:
        """A reading of the warm-up: answered by persistence, and the last one by the horde.

        ``Malformed`` if nothing in it could be a number or a label, whatever the columns turn out to be.
        """
        nested = [name for name, value in reading.items() if is_nested(value)]
        if not reading or (nested and all(value is None or is_nested(value) for value in reading.values())):
            raise Malformed(
                f"{nested[0]!r} is not a number, but an object or a list" if nested else "the reading is empty"
            )
        if self._resilient:
            if len(self._names) < len(self._names | reading.keys()) > _NAMES:
                raise Malformed(f"with this reading the warm-up would have more than {_NAMES:,} names")
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
                self._names, self._persistence = set(), PersistenceWarmUp(self.settings, _HORIZONS)
                return None
        answers, step = self._persistence(self._waiting, self._form), len(self._waiting) - 1
        if answers is None or not self.every(step, answers.time):
            return None
        return Prediction(step, answers.time_text, answers.values, answers.format)

    def _begin(self) -> Prediction | None:
        """The warm-up is complete: make the horde, learn from the readings that wait; the prediction at the last."""
        waiting, self._waiting = self._waiting, []
        try:
            table, stray = pipe.collect_readings(waiting, self._form, self.settings.reading_options())
            for number in sorted(stray):
                self.malformed += 1
                logger.warning("%s %d: it has none of the columns of the other readings; skipped.", self._unit, number)
            waiting = [(number, reading) for number, reading in waiting if number not in stray]
            rows = table.count_rows()
            if rows < 3:
                raise ValueError(f"they give {rows} row{'' if rows == 1 else 's'}, one per time step, and 3 are needed")
            settings = choose_columns(table, rows, self.settings, live=True)
            unknown = _find_unknown(settings, table) if self._resilient else {}
            asked = tuple(text for text in settings.ask if text not in unknown)
            settings = replace(settings, ask=asked, horizons=settings.horizons or _HORIZONS).filled(table, rows)
        except ValueError as error:
            raise ValueError(f"the first {len(waiting)} readings cannot be learned from: {error}") from None
        clock = table.clock()
        guard = make_guard(settings, table.names)
        horde = make_horde(settings, None if clock is None else clock.step).warm_up(table, rows, guard)
        forecaster = Forecaster(horde, settings, Timing.of(clock, table.dated))
        model = _Model.of(forecaster, table.notation)
        self.settings, self.clock, self.guard = settings, clock, guard
        self.dropped += tuple(text.strip() for text in unknown)
        for reason in unknown.values():
            logger.warning("%s The question is dropped.", reason)
        for block in table.blocks(horde.block_rows, clock=clock):
            said = forecaster(guard.mark(block))
            self.step += len(block)
        model = self._model = model._replace(grid=table.grid)
        self.increments = table.increments
        if clock is not None and clock.backwards:
            self.backwards = clock.backwards
            logger.warning("%d of the first readings are out of order; each starts a new sequence.", clock.backwards)
        for number, reading in waiting:
            self._report(number, model.parser.parse(reading).problems)
        for column, reason in table.ignored.items():
            logger.info("column %r is not used: %s.", column, reason)
        for line in arrangement_lines(table.facts()):
            logger.info("%s", line)
        logger.info("warm-up complete: %d readings of %d signals. Learning starts.", self.step, len(table.names))
        row = model.parser.parse(waiting[-1][1])
        if model.grid is not None:
            time, labels = table.notation.time, {name: column[-1] for name, column in block.labels.items()}
            assert time is not None
            assert block.time is not None
            end = float(block.time[-1])
            row = ParsedRow(block.values[-1].tolist(), labels, end, time.write(end), {}, True)
        if not self.every(self.step - 1, row.time):
            return None
        final = said.row(-1)
        values = model.format.predictions(final)
        return Prediction(self.step - 1, row.time_text, values, model.format, row.values, row.time, said=final)

    # ------------------------------------------------------------------ saving

    def save_warm_up(self, path: Path, **more: Any) -> None:
        """Write the readings of a warm-up that is not complete, its settings, and its length if one was given.

        Args:
            path: The file.
            more: What else is saved, for ``load_warm_up``.
        """
        saved = {
            "format": _FORMAT,
            "delimiter": self._form.delimiter,
            "settings": self.settings.table(),
            "warm_up": self._warm_up,
            "readings": self._waiting,
            "more": more,
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as file:
            file.write(json.dumps(saved).encode())

    def load_warm_up(self, path: Path) -> dict[str, Any]:
        """Continue a warm-up from its saved readings, with the settings it began with where none are given now.

        Args:
            path: The file. CheckpointError if ``save_warm_up`` did not write it.

        Returns:
            What else was saved with them.
        """
        try:
            saved = json.loads(path.read_text("utf-8"))
            if saved["format"] != _FORMAT:
                raise ValueError
            settings, form = Settings.of(saved["settings"]), TextForm(saved["delimiter"])
            self._waiting = [(int(line), dict(reading)) for line, reading in saved["readings"]]
            warm_up = None if saved["warm_up"] is None else int(saved["warm_up"])
            more = dict(saved["more"])
        except (ValueError, KeyError, TypeError):
            raise CheckpointError(
                f"{path}: this is not the saved warm-up of a pipe. Remove it to start over."
            ) from None
        self._warm_up = warm_up if self._warm_up is None else self._warm_up
        ask = tuple(dict.fromkeys((*settings.ask, *self.settings.ask)))  # as with a model, those asked now are added
        self.settings, self._form = replace(self.settings.over(settings), ask=ask), form
        self._persistence = PersistenceWarmUp(self.settings, _HORIZONS)
        # As if the warm-up had not been interrupted: from the last time that it looked at all readings.
        for count in range(_last_look(len(self._waiting)), len(self._waiting) + 1):
            self._persistence(self._waiting[:count], self._form)
        self._names = {name for _, reading in self._waiting for name in reading}
        return more

    def state(self) -> dict[str, Any]:
        """What to save with the horde."""
        model = self._require()
        notation = model.parser.notation
        return {
            "settings": self.settings.table(),
            "clock": None if self.clock is None else self.clock.state(),
            "guard": None if self.guard is None else self.guard.state(),
            "live": {"step": self.step, "dropped": list(self.dropped)},
            "increments": None if self.increments is None else self.increments.state(),
            "notation": notation.config(),
            "grid": None if model.grid is None else model.grid.state(),
            "table": {},
            **model.forecaster.state(),
        }

    @classmethod
    def load(cls, path: str | os.PathLike[str], **options: Any) -> tuple[Predictor, dict[str, Any]]:
        """The predictor of a model in a file. A model that was learned by another engine goes on with ``ENGINE``.

        Args:
            path: The file.
            options: Those of ``restore``.

        Returns:
            The predictor, and all that was saved with the model.
        """
        horde, state = Horde.load_with(path, engine=ENGINE)
        try:
            return cls.restore(horde, state, **options), state
        except ValueError as error:
            raise CheckpointError(f"{os.fsdecode(path)!r} is not a valid model: {error}") from error

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
        """The predictor of a horde.

        Args:
            horde: The horde.
            state: What was saved with it: by ``state``, or by a run on a table.
            learn: Whether to learn.
            every: Which readings get a prediction.
            unit: What messages call a reading.
        """
        predictor = cls(Settings.of(state.get("settings", {})), learn=learn, every=every, unit=unit)
        live = state.get("live", {})
        predictor.step = int(live.get("step", horde.rows))
        predictor.dropped = tuple(map(str, live.get("dropped", ())))
        notation = Notation.from_config(state["notation"]) if "notation" in state else Notation()
        predictor.clock = None if state.get("clock") is None else Clock.restore(state["clock"])
        predictor.guard = None if state.get("guard") is None else ReadingGuard.restore(state["guard"])
        grid = None if state.get("grid") is None else Grid.restore(state["grid"])
        increments = state.get("increments")
        predictor.increments = None if increments is None else Increments.restore(increments)
        asked = Asked.load(state, horde.signals)
        forecaster = Forecaster(horde, predictor.settings, asked.timing, asked=asked)
        forecaster.restore(state)
        predictor._model = _Model.of(forecaster, notation, grid)
        return predictor


def _find_unknown(settings: Settings, table: Table) -> dict[str, ValueError]:
    """Questions of one line that cannot be asked of a table, and why: strangers may have asked before it was known."""
    step = Timing.of(table.clock(), table.dated).step
    own = {GVF.from_config(question).name for question in settings.questions}
    unknown = {}
    for text in settings.ask:
        question = parse(text)
        try:
            question.check(table.names)
            question.span(step)
            if question.text in own:
                raise ValueError(f"{question.text!r} is the name of another question.")
        except ValueError as error:
            unknown[text] = error
    return unknown
