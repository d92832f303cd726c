"""Scoring what a run kept: backwards through the readings for the returns, then forwards for all that needs them.

A return needs the future. So the readings are gone through backwards once, and what each block needs to know of the
rows after it is noted. Then all blocks are gone through forwards: the returns of a block are computed again from that
note, its features are made, the offline fit sums the first half and predicts the second, and sums and plots are
gathered. What is held in memory is one part, the sums, and one bit for each question and row of the first half. If
questions have features of their own, and the sums of all would take too much memory, the first half is gone through
once for some of them at a time. Blocks begin at multiples of the rows of a block, whatever parts the rows were written
in: no sum depends on when a run was interrupted.

A row's features are made once here, and once while learning. To make them once in all they would have to be kept,
some tens of numbers a row, for the offline fit needs them together with returns that learning does not know yet: its
sums for the first half, and its weights, which depend on these, for the second. It takes a twentieth of a run's time.
Without the offline fit they are not made here at all.

The scores come as a ``ScoreTable``: a list of dicts that shows as a table, in text and in a notebook, and becomes a
frame.
"""

from __future__ import annotations

import html
import math
import time as clock_time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast

import numpy as np
from numpy.typing import NDArray

from emphatic.common.parts import PartReader, open_writer
from emphatic.features import Features
from emphatic.hordes.ridges import LIMIT
from emphatic.nexting.intervals import AlarmList, read_reasons
from emphatic.nexting.learning import (
    FIRST,
    Learned,
    LogRows,
    Progress,
    block_rows,
    make_features,
    shares,
)
from emphatic.nexting.outlook import History
from emphatic.scores.baselines import FirstHalf, HindsightFit, PlainAnswers, find_baselines
from emphatic.scores.measures import IntervalScores, LogScores, finite
from emphatic.scores.returns import Returns, rows_between
from emphatic.tables import Hold

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    import pyarrow.parquet as pq

__all__ = ["PlotBuilder", "ScoreTable", "Scored", "SignalPlot", "Stretch", "score_log"]

Array = NDArray[np.float64]
#: The bytes of the sums of several fits that are made in one pass.
ROOM = 1 << 26
#: Bytes of predictions that are written together, at least.
_ROW_GROUP = 1 << 25
#: The fewest rows of a group of rows, but for the last: for each column of each group a file has a kilobyte of facts.
_GROUP_ROWS = 256
#: The predictions of more questions than this are written after scoring: each column takes memory while it waits.
_WIDE = 500
#: A signal is written in float64 if a step of float32 at its level is a larger share of its range than this, or if its
#: level is larger than that.
_EXACT, _LARGEST = 1e-5, 1e30
#: Signals that are plotted, at most: a page with more would be too large to open.
PLOTTED = 100
#: Why there is no offline fit where none was wanted.
SKIPPED = "skipped, as offline=False asks"


# ---------------------------------------------------------------------- plots of signals


@dataclass(frozen=True)
class Stretch:
    """A stretch of the log, arrays of one length.

    Args:
        x: Row numbers, or times (datetime64 or ISO strings).
        reading: The signal.
        predictions: An array a horizon in the signal's own unit, NaN where unknown.
        returns: The actual returns, an array a horizon.
        each: The rows of which each point is the mean.
        low: The lower ends of the predictions' intervals, an array a horizon.
        high: Their upper ends.
        alarm: The reading in rows in alarm and beside them, NaN elsewhere; None if there is no alarm.
    """

    x: NDArray[Any]
    reading: Array
    predictions: Mapping[Hashable, Array]
    returns: Mapping[Hashable, Array]
    each: int = 1
    low: Mapping[Hashable, Array] = field(default_factory=dict)
    high: Mapping[Hashable, Array] = field(default_factory=dict)
    alarm: Array | None = None


@dataclass(frozen=True)
class SignalPlot:
    """A signal by name: some rows one by one, and the whole log in coarse steps (None: those rows are all)."""

    name: str
    close: Stretch
    whole: Stretch | None = None


class _Means:
    """Means of each run of ``each`` rows (the last may be shorter), of several columns, of what is not NaN."""

    def __init__(self, rows: int, columns: int, each: int) -> None:
        self._each = each
        self._total = np.zeros((-(-rows // each), columns))
        self._count = np.zeros(self._total.shape)

    def add(self, start: int, columns: Array) -> None:
        """The next rows (B, columns), from ``start`` on."""
        known = ~np.isnan(columns)
        run = start // self._each
        starts = np.maximum(np.arange(run * self._each, start + len(columns), self._each) - start, 0)
        runs = slice(run, run + len(starts))
        self._count[runs] += np.add.reduceat(known.astype(np.float64), starts, axis=0)
        self._total[runs] += np.add.reduceat(np.where(known, columns, 0.0), starts, axis=0)

    def means(self) -> Array:
        return np.where(self._count > 0, self._total / np.maximum(self._count, 1), np.nan)


class PlotBuilder:
    """The plot of a signal, gathered from blocks of its rows in order: memory does not grow with the rows.

    Args:
        name: The signal.
        rows: The number of rows.
        predictions: The horizons of the predictions.
        returns: The horizons of the returns.
        last: The last row whose return is known at every horizon: the close-up ends a tenth of itself after it, for at
            the end of the log a long horizon would have nothing to be compared with.
        most: The number of points at most.
        intervals: The horizons that have intervals.
    """

    def __init__(
        self,
        name: str,
        rows: int,
        predictions: Sequence[Hashable],
        returns: Sequence[Hashable],
        last: int,
        most: int = 2000,
        intervals: Sequence[Hashable] = (),
    ) -> None:
        self._name, self._horizons = name, [list(horizons) for horizons in (predictions, returns, intervals, intervals)]
        columns = 2 + sum(len(horizons) for horizons in self._horizons)
        self._end = min(rows, max(most, last + most // 10))
        self._begin = max(0, self._end - most)
        self._close = np.empty((self._end - self._begin, columns))
        self._each = -(-rows // most)
        self._whole = _Means(rows, columns, self._each) if rows > most else None
        self._x: list[NDArray[Any]] = []
        self._starts: list[NDArray[Any]] = []

    def add(
        self,
        start: int,
        x: NDArray[Any],
        reading: Array,
        predictions: Sequence[Array],
        returns: Sequence[Array],
        low: Sequence[Array] = (),
        high: Sequence[Array] = (),
        alarm: Array | None = None,
    ) -> None:
        """The next rows, from ``start`` on: where they are along x, a column for each horizon, and the readings in
        alarm, NaN elsewhere."""
        marked = np.full(len(reading), np.nan) if alarm is None else alarm
        columns = np.stack([reading, *predictions, *returns, *low, *high, marked]).T
        a, b = (min(max(edge - start, 0), len(x)) for edge in (self._begin, self._end))
        if a < b:
            self._close[start + a - self._begin : start + b - self._begin] = columns[a:b]
            self._x.append(x[a:b].copy())  # a view would keep all of x
        if self._whole is not None:
            self._whole.add(start, columns)
            starts = x[-start % self._each :: self._each]
            if len(starts):
                self._starts.append(starts.copy())

    def plot(self) -> SignalPlot:
        """What was gathered."""
        close = self._stretch(np.concatenate(self._x) if self._x else np.empty(0), self._close, 1)
        if self._whole is None:
            return SignalPlot(self._name, close)
        whole = self._stretch(np.concatenate(self._starts), self._whole.means(), self._each)
        return SignalPlot(self._name, close, whole)

    def _stretch(self, x: NDArray[Any], columns: Array, each: int) -> Stretch:
        holes = _holes(x)
        drawn = iter([np.insert(column, holes, np.nan) for column in columns.T])
        reading = next(drawn)
        predictions, returns, low, high = ({horizon: next(drawn) for horizon in kind} for kind in self._horizons)
        alarm = _widen(next(drawn), reading)
        return Stretch(np.insert(x, holes, x[holes]), reading, predictions, returns, each, low, high, alarm)


def _widen(marked: Array, reading: Array) -> Array | None:
    """What is marked, and the reading beside it: a single point would not be seen. None if nothing is."""
    here = ~np.isnan(marked)
    if not here.any():
        return None
    beside = np.zeros(len(here), np.bool_)
    beside[1:] |= here[:-1]
    beside[:-1] |= here[1:]
    return np.where(here, marked, np.where(beside, reading, np.nan))


def _holes(x: NDArray[Any]) -> NDArray[np.intp]:
    """Where a gap in time is: before these positions a line breaks rather than cross it."""
    if x.dtype.kind != "M" or len(x) < 3:
        return np.empty(0, np.intp)
    steps = np.diff(x.astype("datetime64[ms]").astype(np.int64))
    return np.flatnonzero(steps > 5 * np.median(steps)) + 1


# ---------------------------------------------------------------------- scores


@dataclass(frozen=True, eq=False)
class Scored:
    """A log that has been scored.

    Args:
        learned: The log after learning.
        summary: The scores, a dict a question.
        curves: The learning curves, a dict a question.
        plots: A plot a signal.
        constant: The signals that never changed.
        upcoming: The predictions from the last row, a dict a signal.
        alarms: The alarms with the highest scores.
        span: The first and the last time; None without times.
        seconds: How long scoring took.
        history: The last readings of the signals that are plotted, and their seasonal shape.
    """

    learned: Learned
    summary: list[dict[str, Any]]
    curves: list[dict[str, Any]]
    plots: list[SignalPlot]
    constant: list[str]
    upcoming: list[dict[str, Any]]
    alarms: list[dict[str, Any]]
    span: tuple[float | None, float | None]
    seconds: float
    history: History | None = None


def score_log(learned: Learned, offline: bool, progress: Progress) -> Scored:
    """Score the plain questions of a log: each signal that is predicted at each horizon.

    On the way the predictions are written as one file, ``predictions``, beside their parts.

    Args:
        learned: The log after learning.
        offline: Whether the predictions are compared with an offline fit.
        progress: Called now and then.
    """
    began = clock_time.perf_counter()
    plain, meter = _Plain(learned), _Meter(learned.log.rows, progress)
    is_wide = len(plain.names) > _WIDE
    with _PredictionsFile(learned.store.folder / "predictions", plain, learned.horde.names) as file:
        scored = _score(plain, learned, offline, meter, file, not is_wide)
        if is_wide:  # The parts are read once more, when what scoring takes is free again.
            for number in learned.store.starts("predictions"):
                file.write(learned.store.read("predictions", number))
    periods = learned.horde.periods
    for score in scored.summary:
        score["periods"] = [period._asdict() for period in periods.get(score["signal"], [])]
        if not score["answers"]:
            score["reasons"]["answers"] = "with one rate, the prediction of its learner is used"
        elif not any(name.startswith("ridge") for name in score["answers"]):
            score["reasons"]["answers"] = f"no ridges: more than {LIMIT:,} features would take too long to solve for"
    return replace(scored, seconds=clock_time.perf_counter() - began)


class _Plain:
    """The plain questions of a log, whose number is Q = C · H: C signals at H horizons."""

    def __init__(self, learned: Learned) -> None:
        settings, counts = learned.log.settings, learned.counts
        self.signals, self.categories = learned.log.table.names, learned.log.table.categories
        self.predict, self.horizons = settings.predict or (), settings.horizons or ()
        H = len(self.horizons)
        self.gammas, self.names = learned.horde.gamma[:H], learned.horde.names[: len(self.predict) * H]
        #: The places of the predicted signals among all.
        self.places = [self.signals.index(name) for name in self.predict]
        #: The first reading of each predicted signal: a signal far from 0 would lose digits in long sums.
        self.centres = [counts.start[c] for c in self.places]
        # Before a signal's first reading there is nothing to compare with; of one never read, nowhere.
        begins = [counts.first[c] if counts.first[c] >= 0 else learned.log.rows for c in self.places]
        self.first_rows = np.repeat(begins, H)[:, None]
        #: For each maker of features the questions that it is for.
        self.shares = shares(settings, self.names)


class _PredictionsFile:
    """The predictions of a log as one file, in float32 where that is exact enough.

    The parts keep float64, which scores and a run that resumes need. Call ``begin`` before the first rows.

    Args:
        path: The file.
        plain: The plain questions.
        names: The names of all questions, the plain ones first.
    """

    def __init__(self, path: Path, plain: _Plain, names: Sequence[str]) -> None:
        self._path, self._signals, self._own = path, plain.signals, set(names[len(plain.names) :])
        self._precise: list[str] = []
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []

    def begin(self, lowest: Array, highest: Array) -> None:
        """Find the signals that need float64, from the range of each: those whose level is far above it."""
        with np.errstate(all="ignore"):
            size, width = np.fmax(abs(lowest), abs(highest)), highest - lowest
            needs = (width > 0) & ((size * np.finfo(np.float32).eps > _EXACT * width) | (size > _LARGEST))
        self._precise = [name for name, is_precise in zip(self._signals, needs, strict=True) if is_precise]

    def write(self, table: pa.Table) -> None:
        """Write rows, many at a time: a group of rows takes time and memory for each column.

        So does the writer: it is opened when the first of them are written.
        """
        import pyarrow as pa

        self._waiting.append(table.cast(pa.schema([self._narrow(field) for field in table.schema])))
        is_short = sum(rows.num_rows for rows in self._waiting) < _GROUP_ROWS
        if not is_short and sum(rows.nbytes for rows in self._waiting) >= _ROW_GROUP:
            self.flush()

    def _narrow(self, field: pa.Field) -> pa.Field:
        """A column as the file has it."""
        import pyarrow as pa

        name = field.name
        is_precise = name == "time" or any(signal in name for signal in self._precise)
        is_precise |= bool(self._precise) and name.removesuffix(".low").removesuffix(".high") in self._own
        return field if is_precise or field.type != pa.float64() else field.with_type(pa.float32())

    def flush(self) -> None:
        """Write the rows that wait, if there are any."""
        import pyarrow as pa

        if not self._waiting:
            return
        rows = pa.concat_tables(self._waiting)
        self._waiting.clear()
        if self._writer is None:
            self._writer = open_writer(self._path, rows)
        self._writer.write_table(rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is None:
            self.flush()
        if self._writer is not None:
            self._writer.close()


class _Meter:
    """Turns rows that are gone through into progress: a twentieth of it going backwards, which is quick."""

    def __init__(self, rows: int, progress: Progress) -> None:
        self._total, self._progress = rows, progress
        self._done, self._expected, self._begin = 0, rows, 0

    def go_forwards(self, rows: int) -> None:
        """From here on ``rows`` rows are gone through for the other nineteen."""
        self._done, self._expected, self._begin = 0, rows, self._total

    def add(self, rows: int) -> None:
        self._done += rows
        share = 19 if self._begin else 1
        done = self._begin + share * self._total * self._done // self._expected
        self._progress("scoring", done, 20 * self._total)


class _Hindsight(NamedTuple):
    """What going backwards finds: the state of the returns after each block, by its first row; the last row whose
    return is known, of each question; the range of each signal; and whether all rows have a date."""

    states: dict[int, Array]
    known_until: NDArray[np.int64]
    lowest: Array
    highest: Array
    dated: bool


class _Rows(NamedTuple):
    """Consecutive rows: the readings as they are, and of all signals (B, S) with the last one held where one is
    missing, those to compare with and those that are learned from; the returns, those that the offline fit learns
    from, and where they are known (Q, B); predictions and the ends of their intervals (B, Q); anomaly scores and
    reasons of alarms of the signals predicted (B, C); component answers (Q, B) by name."""

    start: int
    readings: LogRows
    held: Array
    to_learn: Array
    missing: NDArray[np.bool_]
    G: Array
    G_to_learn: Array
    known: NDArray[np.bool_]
    predictions: Array = np.empty((0, 0))
    low: Array = np.empty((0, 0))
    high: Array = np.empty((0, 0))
    anomaly: Array = np.empty((0, 0))
    why: NDArray[np.int8] = np.empty((0, 0), np.int8)
    answers: Mapping[str, Array] = {}


class _Passes:
    """Goes through the rows that were written in parts, backwards and forwards."""

    def __init__(self, plain: _Plain, learned: Learned, meter: _Meter) -> None:
        self._plain, self._store, self._rows, self._meter = plain, learned.store, learned.log.rows, meter
        self._dated, self._block = learned.log.table.dated, block_rows(len(plain.names))
        self._readings = PartReader(learned.store, "readings")
        # Readings that were pulled in are scored as they are, and the offline fit learns from what they were pulled to.
        self._pulled_in = any(counts["pulled_in"] for counts in learned.guarded_counts().values())
        twice = 2 if self._pulled_in else 1
        missing = np.isnan(self._read(0, min(FIRST, self._rows)).scored[:, plain.places])
        self._returns = Returns(plain.gammas, plain.centres * twice, np.tile(rows_between(missing), twice))

    def backwards(self, half: FirstHalf) -> _Hindsight:
        """Note what each block's returns need of the rows after it, and all that must be known to go forwards."""
        states: dict[int, Array] = {}
        known_until = np.full(len(self._plain.names), self._rows)
        C, dated = len(self._plain.signals), self._dated
        lowest, highest = np.full(C, np.inf), np.full(C, -np.inf)
        for begin in reversed(range(0, self._rows, self._block)):
            readings = self._read(begin, min(begin + self._block, self._rows))
            states[begin] = self._returns.state.copy()
            G, G_to_learn, known = self._known(begin, readings)
            half.add(begin, G_to_learn, known)
            comparable = known & ~np.isnan(G)
            new = (known_until == self._rows) & comparable.any(axis=1)
            known_until[new] = begin + len(readings) - 1 - np.argmax(comparable[new, ::-1], axis=1)
            values = readings.scored
            lowest = np.fmin(lowest, np.fmin.reduce(values, axis=0, initial=np.inf))
            highest = np.fmax(highest, np.fmax.reduce(values, axis=0, initial=-np.inf))
            dated = dated and readings.time is not None and bool(np.isfinite(readings.time).all())
            self._meter.add(len(readings))
        return _Hindsight(states, known_until, lowest, highest, dated)

    def forwards(
        self,
        stop: int,
        half: int,
        states: Mapping[int, Array],
        write: Callable[[pa.Table], None] | None = None,
    ) -> Iterator[_Rows]:
        """All rows before ``stop``, in blocks that do not reach across the half.

        With ``write``, which is called with each part of the predictions, rows have their predictions and answers.
        """
        hold, hold_guarded = Hold(len(self._plain.signals)), Hold(len(self._plain.signals))
        predictions = None if write is None else PartReader(self._store, "predictions", write)
        answers = PartReader(self._store, "answers")
        for begin in range(0, stop, self._block):
            readings = self._read(begin, min(begin + self._block, self._rows))
            self._returns.state[:] = states[begin]
            G, G_to_learn, known = self._known(begin, readings)
            end = min(begin + self._block, stop)
            for a, b in pairwise(sorted({begin, end, *([half] if begin < half < end else [])})):
                block = slice(a - begin, b - begin)
                rows, returns = readings[block], (G[:, block], G_to_learn[:, block], known[:, block])
                (held, missing), (to_learn, _) = hold.fill(rows.scored), hold_guarded.fill(rows.guarded)
                if predictions is None:
                    yield _Rows(a, rows, held, to_learn, missing, *returns)
                else:
                    ends = self._predicted(predictions.rows(a, b))
                    components = self._component_answers(answers, a, b, ends[0])
                    yield _Rows(a, rows, held, to_learn, missing, *(*returns, *ends), components)
                self._meter.add(b - a)

    def _read(self, begin: int, end: int) -> LogRows:
        return LogRows.from_table(self._readings.rows(begin, end), self._plain.categories)

    def _known(self, begin: int, readings: LogRows) -> tuple[Array, Array, NDArray[np.bool_]]:
        """The returns of a block, those of the guarded readings, and where they are known, (Q, B)."""
        values, Q = readings.scored[:, self._plain.places], len(self._plain.names)
        if self._pulled_in:
            values = np.concatenate([values, readings.guarded[:, self._plain.places]], axis=1)
        G, known = self._returns(values, np.isnan(values), readings.gap)
        return G[:Q], G[-Q:], known[:Q] & (np.arange(begin, begin + len(readings)) >= self._plain.first_rows)

    def _predicted(self, table: pa.Table) -> tuple[Array, Array, Array, Array, NDArray[np.int8]]:
        """Predictions and ends of intervals (B, Q), anomaly scores and reasons of alarms (B, C)."""

        def stack(names: Sequence[str], kind: str) -> NDArray[Any]:
            return np.stack([table.column(f"{name}{kind}").to_numpy() for name in names]).T

        names, predict = self._plain.names, self._plain.predict
        return (
            stack(names, ""),
            stack(names, ".low"),
            stack(names, ".high"),
            stack(predict, ".anomaly"),
            np.stack([read_reasons(table.column(f"{name}.why")) for name in predict]).T,
        )

    def _component_answers(self, reader: PartReader, begin: int, end: int, predictions: Array) -> dict[str, Array]:
        """The component answers, (Q, B) each; none for rows of the first half, before the first part of them."""
        if not reader.starts or begin < reader.starts[0]:
            return {}
        table, Q = reader.rows(begin, end), predictions.shape[1]
        answers = {}
        for name in table.column_names:
            differences = table.column(name).combine_chunks().flatten().to_numpy().reshape(table.num_rows, -1)
            answers[name] = predictions.T + np.ascontiguousarray(differences[:, :Q].T)
        return answers


def _score(
    plain: _Plain, learned: Learned, offline: bool, meter: _Meter, file: _PredictionsFile, is_written: bool
) -> Scored:
    """The scores; where ``is_written``, predictions are written to the file on the way."""
    rows_total, H = learned.log.rows, len(plain.horizons)
    passes = _Passes(plain, learned, meter)
    half = FirstHalf(rows_total, np.repeat(plain.centres, H))
    hindsight = passes.backwards(half)
    file.begin(hindsight.lowest, hindsight.highest)
    write = file.write if is_written else lambda _: None
    fits = _Fits(plain, learned, half) if offline else None
    batches = [] if fits is None else fits.batches
    meter.go_forwards(rows_total + max(len(batches) - 1, 0) * half.half)
    if fits is not None:
        for batch in batches[:-1]:
            fits.begin(batch)
            for rows in passes.forwards(half.half, half.half, hindsight.states):
                fits.add(rows, fits.make_features(rows))
        fits.begin(batches[-1])
    step = learned.log.step if learned.log.table.dated else None
    scores = LogScores(plain.predict, plain.horizons, plain.gammas, rows_total, step)
    builders = _PlotBuilders(plain, rows_total, hindsight)
    history = History(plain.predict[:PLOTTED], learned.asked.timing)
    alarms = AlarmList(plain.predict)
    intervals = IntervalScores(len(plain.names), half.half, learned.log.settings.coverage)
    begins = None
    for rows in passes.forwards(rows_total, half.half, hindsight.states, write):
        time = rows.readings.time
        begins = float(time[0]) if begins is None and time is not None else begins
        fitted = {} if fits is None else fits.add(rows, fits.make_features(rows))
        fitted = fitted if rows.start >= half.half else {}
        intervals.add(rows.start, rows.low, rows.high, rows.G, rows.known)
        alarms.add(rows.start, rows.anomaly, rows.why, time)
        readings, missing = rows.held[:, plain.places], rows.missing[:, plain.places]
        scores.add_answers(rows.start, rows.answers, rows.G, rows.known)
        builders.add(rows, readings)
        history.add(time if history.timing.step else None, np.where(missing, np.nan, readings)[:, :PLOTTED])
        known = rows.G, rows.known, time
        scores.add(rows.start, readings, missing, rows.predictions, fitted, *known, answers=rows.answers)
    file.flush()
    varies = hindsight.lowest < hindsight.highest
    constant = [name for name, changes in zip(plain.signals, varies, strict=True) if not changes]
    skipped = {name: [SKIPPED] * len(plain.names) for name in _hindsight_baselines()}
    summary = scores.scores(skipped if fits is None else fits.reasons)
    _add_intervals(summary, intervals, learned.derived.intervals.calibrated)
    counts = alarms.counts()
    guarded = learned.guarded_counts()
    for score in summary:
        score |= counts[score["signal"]] | {"guarded": guarded.get(score["signal"], {"pulled_in": 0, "missing": 0})}
    of_values = learned.asked.judge_signals()
    summary[0]["signals"] = [of_values.get(of_means["signal"], of_means) for of_means in scores.signals(summary)]
    return Scored(
        learned,
        summary,
        scores.curves(),
        builders.plots(),
        constant,
        _upcoming(plain, rows, readings[-1]),
        alarms.highest(),
        (begins, None if time is None else float(time[-1])),
        0.0,
        history,
    )


def _add_intervals(summary: Sequence[dict[str, Any]], intervals: IntervalScores, calibrated: NDArray[np.bool_]) -> None:
    """Complete the scores by those of the intervals, and the reasons where there are none."""
    calibrated = calibrated[: len(summary)]  # (own questions follow those of signals and horizons)
    for score, interval, proved in zip(summary, intervals.scores(), calibrated, strict=True):
        score |= interval | {"calibrated": bool(proved)}
        if interval["coverage"] is None:
            why = score["reasons"].get("variance_explained", "there are no intervals")
            score["reasons"] |= dict.fromkeys(interval, why)


def _upcoming(plain: _Plain, rows: _Rows, reading: Array) -> list[dict[str, Any]]:
    """The predictions from the last row, a dict a signal."""
    H = len(plain.horizons)
    kinds = {"predictions": rows.predictions[-1], "low": rows.low[-1], "high": rows.high[-1]}
    return [
        {"signal": name, "now": finite(float(reading[c]))}
        | {
            kind: {h: finite(float(values[c * H + i])) for i, h in enumerate(plain.horizons)}
            for kind, values in kinds.items()
        }
        for c, name in enumerate(plain.predict)
    ]


class _PlotBuilders:
    """The plots of all predicted signals, gathered as the rows go by."""

    def __init__(self, plain: _Plain, rows: int, hindsight: _Hindsight) -> None:
        horizons, self._H, self._dated = plain.horizons, len(plain.horizons), hindsight.dated
        ends = hindsight.known_until.reshape(-1, self._H).min(axis=1).tolist()
        self._builders = [
            PlotBuilder(name, rows, horizons, horizons, end, intervals=horizons)
            for name, end in list(zip(plain.predict, ends, strict=True))[:PLOTTED]
        ]

    def add(self, rows: _Rows, held: Array) -> None:
        """The next rows; ``held`` (B, C) are the readings of the predicted signals."""
        x: NDArray[Any] = np.arange(rows.start, rows.start + len(held))
        time = rows.readings.time
        if self._dated and time is not None:
            x = (time * 1000.0).astype("int64").astype("datetime64[ms]")
        truth = np.where(rows.known, rows.G, np.nan)
        for c, builder in enumerate(self._builders):
            q = slice(c * self._H, c * self._H + self._H)
            predictions, low, high = (list(array[:, q].T) for array in (rows.predictions, rows.low, rows.high))
            marked = np.where(rows.why[:, c] > 0, held[:, c], np.nan)
            builder.add(rows.start, x, held[:, c], predictions, list(truth[q]), low, high, marked)

    def plots(self) -> list[SignalPlot]:
        return [builder.plot() for builder in self._builders]


def _hindsight_baselines() -> dict[str, Callable[..., HindsightFit]]:
    """The baselines that are fitted in hindsight, by name."""
    return {name: baseline.fit for name, baseline in find_baselines().items() if baseline.fit is not None}


class _Fits:
    """The fits in hindsight, one for the questions that share their features; ``batches`` are summed together."""

    def __init__(self, plain: _Plain, learned: Learned, half: FirstHalf) -> None:
        self._plain, self._learned, self._half = plain, learned, half.half
        H = len(plain.horizons)
        self._fits = [
            {
                name: begin(learned.features(i).n, learned.log.rows, H, half.of(share), 2)
                for name, begin in _hindsight_baselines().items()
            }
            for i, share in enumerate(plain.shares)
        ]
        self._makers: dict[int, Features] = {}
        self._batch: Sequence[int] = ()
        self._answers = PlainAnswers(plain.gammas, len(plain.predict))
        room = [sum(fit.room for fit in fits.values()) for fits in self._fits]
        together: list[list[int]] = [[]]
        for i in range(len(room)):
            if together[-1] and sum(room[j] for j in together[-1]) + room[i] > ROOM:
                together.append([])
            together[-1].append(i)
        passes = [max(fit.passes for fit in fits.values()) for fits in self._fits]
        self.batches = [batch for batch in together for _ in range(max(passes[i] for i in batch))]

    def begin(self, batch: Sequence[int]) -> None:
        """Another time through the rows, for these; the makers of the others stay where they are, at the half."""
        self._batch = batch
        self._makers |= {i: self._learned.features(i) for i in batch}
        self._answers = PlainAnswers(self._plain.gammas, len(self._plain.predict))

    def make_features(self, rows: _Rows) -> dict[int, tuple[NDArray[np.int64], Array]]:
        """The active features of the next rows and their values, of each maker whose fits need them."""
        makers = self._batch if rows.start < self._half else self._makers
        return {i: make_features(self._makers[i], rows.readings, rows.to_learn, rows.missing) for i in makers}

    def add(self, rows: _Rows, features: Mapping[int, tuple[NDArray[np.int64], Array]]) -> dict[str, Array]:
        """The next rows: sum those of the first half, predict those of the second (Q, B), NaN in the first."""
        predictions = {name: np.full(rows.G.shape, np.nan) for name in _hindsight_baselines()}
        answers = self._answers(rows.to_learn[:, self._plain.places])
        for i, (indices, values) in features.items():
            share = self._plain.shares[i]
            G = rows.G_to_learn[share]
            for name, fit in self._fits[i].items():
                predictions[name][share] = fit.add(rows.start, indices, values, G, answers[:, share])
        return predictions

    @property
    def reasons(self) -> dict[str, list[str]]:
        """Why there is no fit, of each question; "" where there is. By the baseline's name."""
        reasons = {name: [""] * len(self._plain.names) for name in _hindsight_baselines()}
        for fits, share in zip(self._fits, self._plain.shares, strict=True):
            for name, fit in fits.items():
                for q, reason in zip(share, fit.reasons, strict=True):
                    reasons[name][q] = reason
        return reasons


# ---------------------------------------------------------------------- tables that people look at


#: Rows that a table shows, and the length of a text in it, at most.
_SHOWN, _LONGEST = 60, 60


class ScoreTable(list[dict[str, Any]]):
    """A list of dicts, one for each row of a table.

    It is an ordinary list, which ``json.dumps`` takes, and shows as a table of some of its keys.

    Args:
        rows: The dicts.
        columns: The keys that are shown and become columns of frames; default: all whose values are numbers, text or
            times.

    >>> table = ScoreTable([{"signal": "x", "skill": 0.25, "more": {}}, {"signal": "y", "skill": None, "more": {}}])
    >>> table
    signal  skill
    x       0.25
    y       –
    >>> table[0]["skill"]
    0.25
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]] = (), columns: Sequence[str] | None = None) -> None:
        super().__init__(cast("Iterable[dict[str, Any]]", rows))
        self._columns = columns

    @property
    def columns(self) -> list[str]:
        """The columns of the table.

        >>> ScoreTable([{"signal": "x", "answers": {}}]).columns
        ['signal']
        """
        names = dict.fromkeys(name for row in self for name in row)
        if self._columns is not None:
            return [name for name in self._columns if name in names]
        return [name for name in names if all(_is_plain(row.get(name)) for row in self)]

    def to_pandas(self) -> Any:
        """The table as a pandas DataFrame.

        >>> ScoreTable([{"x": 1}, {"x": 2}]).to_pandas()["x"].tolist()
        [1, 2]
        """
        return import_pandas().DataFrame({name: [row.get(name) for row in self] for name in self.columns})

    def __repr__(self) -> str:
        names = self.columns
        lines = [names, *([_show(row.get(name)) for name in names] for row in self[:_SHOWN])]
        widths = [max(len(line[i]) for line in lines) for i in range(len(names))]
        text = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
        ]
        if len(self) > _SHOWN:
            text.append(f"… and {len(self) - _SHOWN:,} more")
        return "\n".join(text)

    __str__ = __repr__

    def _repr_html_(self) -> str:
        """The table as HTML, for notebooks."""
        names = self.columns
        head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
        body = "".join(
            f"<tr>{''.join(f'<td>{html.escape(_show(row.get(name)))}</td>' for name in names)}</tr>"
            for row in self[:_SHOWN]
        )
        unlisted = f"<p>… and {len(self) - _SHOWN:,} more</p>" if len(self) > _SHOWN else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{unlisted}"


def import_pandas() -> Any:
    """The package; ImportError with the command that installs it."""
    try:
        import pandas
    except ImportError:
        raise ImportError("pandas is not installed: pip install pandas") from None
    return pandas


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | datetime)


def _show(value: object) -> str:
    """A value in a cell, numbers to three digits."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1e3 else f"{value:,.0f}" if abs(value) < 1e9 else f"{value:.3g}"
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
