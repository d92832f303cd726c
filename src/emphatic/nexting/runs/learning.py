"""The first phases of a run: a table is opened, and its rows are learned from, once and in order.

``open_log`` looks at a table and fills in the settings. ``learn_log`` has a ``Forecaster`` learn from its blocks, and
writes what is predicted in parts, with a resume point now and then: a run that was killed goes on from the last one,
and gives the same bits as if it had not been.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from emphatic import rules
from emphatic.common.locks import UNFINISHED
from emphatic.common.parts import PartStore
from emphatic.engines.compiled import blas_threads
from emphatic.features import Features
from emphatic.gvfs import durations
from emphatic.gvfs.gvf import GVF
from emphatic.hordes.horde import BLOCK, USUAL, Horde
from emphatic.learning.inputs import Active
from emphatic.nexting.answers.asked import Asked
from emphatic.nexting.answers.kernels import FIRST_ROWS
from emphatic.nexting.answers.timing import Timing
from emphatic.nexting.runs.forecaster import Forecaster, Said
from emphatic.nexting.runs.settings import ENGINE, WORDS, Settings, default_horizons
from emphatic.nexting.tables import Block, Clock, Hold, ReadingGuard, Table
from emphatic.nexting.tables.columns import CONSTANT, ColumnRole, Increments, find_roles
from emphatic.nexting.tables.table import Caller, open_table

__all__ = ["Learned", "OpenedLog", "Progress", "ResumePoint", "learn_log", "open_log"]

Array = NDArray[np.float64]
Progress = Callable[[str, int, int], None]
"""Called with the phase, how much is done, and of how much: 0 while that is not known."""

_log = logging.getLogger("emphatic.nexting.runs.runner")

#: Seconds of work that a killed run may lose; and, where the last save took longer than ``_QUICK``, how many times as
#: long it takes until the next: the model of a log of very many signals takes seconds to save.
SAVE, _QUICK, _TIMES_AS_LONG = 10.0, 0.5, 20.0
#: Numbers that wait to be written, at most: what keeps memory flat.
WAITING = 1 << 20
#: Rows at the start of a table that settings, ranges and its identity are found from.
FIRST = 10_000
#: What is written in parts.
PREDICTIONS = "predictions"
#: Bytes of weights and traces above which questions see only what is related to them, and the signals from which on
#: they do in any case.
LIMIT, UNGROUPED = 1 << 27, 32
#: The signals of a group whose questions share their features, at most, and how many others they see; and the same
#: where more than ``MANY`` signals are predicted, for memory counts more then.
MEMBERS, OUTSIDE = 8, 4
MANY, FEW_MEMBERS, FEW_OUTSIDE = 128, 4, 0
#: Answers of all questions that are worked on at a time, and the rows that are learned from at a time, at least.
_TOGETHER, _FEWEST_ROWS = 1 << 17, 64


# ---------------------------------------------------------------------- the Horde that settings describe
#
# With C signals at H horizons there are C·H questions, and features grow with C as well: the weights grow with its
# square. Above ``LIMIT`` bytes of them, "*" in the features of a question stands for the signals that it is about and
# the few that are most related to them, found in the warm-up by correlation.


def choose_related(table: Table, rows: int, predict: Sequence[str]) -> dict[str, list[str]]:
    """For each signal the others that its questions see, found in the first ``rows`` by correlation.

    The predicted signals are divided into groups of at most ``MEMBERS``. A group begins with the first signal that is
    in none, and takes the signals that correlate most with its members. Its questions see its members, and the
    ``OUTSIDE`` other signals that correlate most with one of them. Groups are smaller where signals are very many. A
    signal that is not predicted has no group.

    Args:
        table: The table.
        rows: The number of rows to look at.
        predict: The signals that are predicted.
    """
    close = _correlations(next(table.blocks(rows)).values)
    places = {name: place for place, name in enumerate(table.names)}
    free = np.zeros(len(places), bool)
    free[[places[name] for name in predict]] = True
    related: dict[str, list[str]] = {name: [] for name in table.names}
    most_members, most_outside = (MEMBERS, OUTSIDE) if len(predict) <= MANY else (FEW_MEMBERS, FEW_OUTSIDE)
    for name in predict:
        seed = places[name]
        if not free[seed]:
            continue
        members, affinity = [seed], close[seed].copy()
        free[seed] = False
        while len(members) < most_members and free.any():
            best = int(np.argmax(np.where(free, affinity, -1.0)))
            members.append(best)
            free[best] = False
            affinity += close[best]
        nearest = close[members].max(axis=0)
        nearest[members] = 0.0
        outside = [i for i in np.argsort(-nearest, kind="stable")[:most_outside].tolist() if nearest[i] > 0.0]
        for member in members:
            related[table.names[member]] = [table.names[i] for i in [*members, *outside] if i != member]
    return related


def _correlations(values: Array) -> NDArray[np.float32]:
    """The size of the correlation of each pair of signals (C, C) in these rows (B, C), 0 of one that does not vary."""
    values, _ = ReadingGuard(values.shape[1]).warm_up(values).judge(values)
    present = np.isfinite(values)
    known = np.where(present, values, 0.0)
    with np.errstate(all="ignore"):
        centred = np.where(present, known - known.sum(axis=0) / np.maximum(present.sum(axis=0), 1), 0.0)
        size = np.sqrt((centred**2).sum(axis=0))
        varies = np.isfinite(size) & (size > 1e-12 * np.abs(known).max(axis=0, initial=0.0))
        unit = np.where(varies, centred / size, 0.0).astype(np.float32)
    with blas_threads(1):  # the bits depend on how many there are
        close: NDArray[np.float32] = np.abs(unit.T @ unit)
    return close


def make_horde(settings: Settings, step: float | None) -> Horde:
    """The Horde that these settings describe, before it is warmed up; ``step`` is the usual step of the times."""
    return Horde(settings.gvfs(), make_makers(settings), **horde_options(settings, step), engine=ENGINE)


def make_guard(settings: Settings, names: Sequence[str]) -> ReadingGuard:
    """The guard of a stream of these signals, before it is warmed up.

    Columns that policies read are left as they are: an action or a probability is no measurement. So are all with the
    setting ``keep_sentinels``.
    """
    policies = [question.policy for question in settings.gvfs() if question.policy is not None]
    read = {column for policy in policies for column in (policy.column, policy.behaviour)}
    exempt = [c for c, name in enumerate(names) if name in read or settings.keep_sentinels]
    return ReadingGuard(len(names), exempt)


def horde_options(settings: Settings, step: float | None) -> dict[str, Any]:
    """The arguments of ``Horde`` that settings decide, besides its questions and features."""
    return {"rule": settings.rule, "rate": settings.rate, "stepsize": settings.stepsize, "step": step}


def make_makers(settings: Settings) -> Features | dict[str, Features]:
    """The features of all questions, or of each by its name where they see only what is related to them."""
    if settings.related is None:
        return Features.from_config(settings.features or ())
    questions = settings.gvfs()
    subjects: dict[tuple[str, ...], dict[str, None]] = {}  # of all questions that see the same signals
    seen = _seen_by(questions, settings.related)
    for question, signals in zip(questions, seen, strict=True):
        subjects.setdefault(signals, {}).update(dict.fromkeys(_subjects(question, settings.related)))
    makers = {
        signals: Features.from_config([_restricted(config, signals, [*about]) for config in settings.features or ()])
        for signals, about in subjects.items()
    }
    return {question.name: makers[signals] for question, signals in zip(questions, seen, strict=True)}


def _seen_by(questions: Sequence[GVF], related: Mapping[str, Sequence[str]]) -> list[tuple[str, ...]]:
    """The signals that each question sees: those that it is about, and those related to them; in the table's order."""
    places = {signal: place for place, signal in enumerate(related)}
    seen = []
    for question in questions:
        signals = _subjects(question, related)
        neighbours = (neighbour for signal in signals for neighbour in related[signal])
        seen.append(tuple(sorted({*signals, *neighbours}, key=places.__getitem__)))
    return seen


def _subjects(question: GVF, related: Mapping[str, Sequence[str]]) -> list[str]:
    """The signals that a question is about: those that it names."""
    if isinstance(question.cumulant, str) and question.cumulant in related:
        return [question.cumulant]
    # An expression, or a γ that is one: what it may name, it sees.
    text = f"{question.cumulant} {question.gamma}"
    return [signal for signal in related if signal in text] or list(related)[:1]


def _restricted(config: Mapping[str, Any], seen: Sequence[str], own: Sequence[str]) -> dict[str, Any]:
    """The configuration of some features in which "*" stands for the signals ``seen``, and in a trace for the ``own``.

    Traces of related signals as well would take several times the memory.
    """

    def replaced(value: Any, signals: Sequence[str]) -> Any:
        if isinstance(value, Mapping):
            return {key: replaced(inner, own if key == "trace" else signals) for key, inner in value.items()}
        return list(signals) if value == "*" else value

    return {key: replaced(value, seen) if key == "of" else value for key, value in config.items()}


def is_large(settings: Settings, C: int) -> bool:
    """Whether C signals are too many to see in every question: more than ``UNGROUPED``, or the weights too large."""
    if C > UNGROUPED:
        return True
    n = 0
    for config in settings.features or ():
        of, bins = config.get("of"), int(config.get("bins", 1))
        steps = len(of["steps"]) if isinstance(of, Mapping) else 1
        inner = of["trace"] if isinstance(of, Mapping) else of
        n += bins * steps * (C if inner == "*" else len(inner) if isinstance(inner, Sequence) else 1)
    return 8 * len(rules.get(settings.rule or USUAL).vectors) * len(settings.gvfs()) * n > LIMIT


# ---------------------------------------------------------------------- the table


@dataclass(frozen=True, eq=False)
class OpenedLog:
    """A table whose rows have been counted, with all settings filled in.

    Args:
        source: The table as the caller gave it: a path, or data in memory.
        table: The table.
        rows: The number of its rows.
        settings: The settings, with the defaults that were found from the table.
        seconds: How long it took to look at the table.
        teacher: The Horde to go on with, which has learned from other sequences; by default a new one.
    """

    source: object
    table: Table
    rows: int
    settings: Settings
    seconds: float
    teacher: Horde | None = None

    @property
    def warm_up_rows(self) -> int:
        """The first rows, from which ranges, categories and means are found."""
        return self.settings.rows_to_warm_up(self.table, self.rows)

    @property
    def step(self) -> float | None:
        """The usual step of the table's clock; None without times."""
        clock = self.table.clock()
        return None if clock is None else clock.step

    def new_guard(self) -> ReadingGuard:
        """The guard of the readings, before it is warmed up."""
        return make_guard(self.settings, self.table.names)

    def warmed_up(self, guard: ReadingGuard) -> Horde:
        """A Horde as it is before the first row.

        Args:
            guard: The guard of the readings, which is warmed up with it.
        """
        if self.teacher is not None:
            guard.warm_up(next(self.table.blocks(self.warm_up_rows)).values)
            return self.teacher.restart()
        return make_horde(self.settings, self.step).warm_up(self.table, self.warm_up_rows, guard)

    def check_rows(self, rows: int) -> None:
        """ValueError if the table had another number of rows when it was read."""
        if rows != self.rows:
            raise ValueError(f"{self.table.name}: the table changed while it was read: {self.rows} rows, then {rows}.")

    def phi(self, maker: Features) -> Iterator[Active]:
        """The features of all rows, in blocks.

        Args:
            maker: Makes them, and is as it is before the first row.
        """
        hold = Hold(len(self.table.names))
        for block in self.log_blocks():
            yield _make_features(maker, block, *hold.fill(block.to_learn))

    def readings(self) -> tuple[Array, NDArray[np.bool_], NDArray[np.bool_]]:
        """All rows at once.

        Returns:
            The signals to predict (T, C) as they are learned from, with the last value where one is missing; which of
            them are missing; and the rows (T,) that do not follow the previous row.
        """
        places = [self.table.names.index(name) for name in self.settings.predict or ()]
        hold = Hold(len(self.table.names))
        blocks = [(*hold.fill(block.to_learn), block.gap) for block in self.log_blocks()]
        readings, missing, gap = (np.concatenate([block[i] for block in blocks]) for i in range(3))
        self.check_rows(len(gap))
        return readings[:, places], missing[:, places], gap

    def log_blocks(self) -> Iterator[Block]:
        """All rows from the first, as a guard marks them."""
        guard = self.new_guard().warm_up(next(self.table.blocks(self.warm_up_rows)).values)
        return (guard.mark(block) for block in self.table.blocks(BLOCK))


def open_log(
    source: object,
    settings: Settings,
    progress: Progress,
    roles: Mapping[str, ColumnRole] | None = None,
    extent: Mapping[str, Any] | None = None,
) -> OpenedLog:
    """Look at a table, count its rows, and fill in the settings that were left out.

    Args:
        source: The table: data in memory, the path of a file, or the address of a store.
        settings: What to predict, and how.
        progress: Called while rows are counted.
        roles: What each column is, where that is known; by default it is found from the first rows.
        extent: What the run that is resumed had read of a database; None otherwise.
    """
    began, request = time.perf_counter(), settings.request(time.time())
    table = open_table(
        source,
        caller=Caller("run", "data"),
        time=settings.time,
        delimiter=settings.delimiter,
        sort=bool(settings.sort),
        pivot=settings.pivot,
        words=settings.words(),
        topics=settings.topics,
        resample=settings.resample,
        max_age=settings.max_age,
        missing=settings.missing or (),
        skip_lines=settings.skip_lines,
        header=settings.header,
        query=request.query,
        range=request.range,
        step=request.step,
        extent=extent,
    )
    rows = table.count_rows(lambda rows: progress("reading", rows, 0))
    if rows < 3:
        few = "1 row is" if rows == 1 else f"{rows} rows are"
        steps = [h for h in settings.horizons or default_horizons(rows, None) if not isinstance(h, str)]
        needed = rows_to_score(int(max(min(steps, default=1.0), 1.0)))
        raise ValueError(f"{table.name}: {few} too few to learn from; at least {needed:,} are needed.")
    settings = choose_columns(table, rows, settings, roles)
    settings = settings.filled(table, rows)
    _check_scorable(table, rows, settings.horizons or ())
    signals, horizons = settings.predict or (), settings.horizons or ()
    _log.info("%s: %d rows; predicting %s at %s", table.name, rows, ", ".join(signals), ", ".join(map(str, horizons)))
    return OpenedLog(source, table, rows, settings, time.perf_counter() - began)


def choose_columns(
    table: Table, rows: int, settings: Settings, roles: Mapping[str, ColumnRole] | None = None, live: bool = False
) -> Settings:
    """Leave columns out that are no signals, and have counters as their increments; the settings say which.

    Args:
        table: The table, which is changed.
        rows: The number of its rows.
        settings: What the user asks for: a column that is named there is not left out.
        roles: What each column is, where that is known.
        live: Whether more rows are to come: what has not changed yet may change.
    """
    block, is_known = next(table.blocks(FIRST)), roles is not None
    roles = find_roles(table.names, block.values) if roles is None else roles
    named = settings.names_columns(table.names)
    reasons = {name: roles[name].why for name in table.names if roles[name].kind == "none" and name not in named}
    still = [name for name, why in reasons.items() if why == CONSTANT]
    # (that of machines has been found from all rows)
    for name in still if live else [] if is_known else _find_varying(table, still, block, rows):
        del reasons[name]
    if len(reasons) == len(table.names):
        listed = ", ".join(f"{name!r} ({why})" for name, why in list(reasons.items())[:6])
        raise ValueError(
            f"{table.name}: there is no signal to predict: {listed}. To predict a column anyway, name it: predict=…"
        )
    # What never changes is not predicted, but stays a column: what comes after a row changes nothing before it.
    constant = {name: why for name, why in reasons.items() if why == CONSTANT}
    reasons = {name: why for name, why in reasons.items() if why != CONSTANT}
    if reasons:
        table.leave_out(reasons)
    table.ignored |= constant
    if constant and settings.predict is None:
        settings = replace(settings, predict=tuple(name for name in table.names if name not in constant))
    counters = settings.increments if isinstance(settings.increments, tuple) else ()
    if settings.increments is None:
        counters = tuple(name for name in table.names if roles[name].kind == "counter")
    for name in counters:
        if name not in table.names:
            raise ValueError(f"{table.name}: 'increments' names {name!r}, and there is no such numeric column.")
    if counters:
        values = block.values if not reasons else next(table.blocks(FIRST)).values
        table.take_increments({name: _largest_rise(values[:, table.names.index(name)]) for name in counters})
    return settings if settings.increments is False else replace(settings, increments=counters or None)


def _largest_rise(values: Array) -> float:
    """The largest step up of a counter."""
    return float(np.diff(values[np.isfinite(values)]).max(initial=0.0))


def _find_varying(table: Table, names: Sequence[str], first: Block, rows: int) -> list[str]:
    """Those of the columns that do not change in the first block, but later."""
    waiting = {name: table.names.index(name) for name in names}
    if rows <= len(first) or not names:
        return []
    values = {name: first.values[np.isfinite(first.values[:, c]), c][0] for name, c in waiting.items()}
    varying: list[str] = []
    for block in table.blocks(BLOCK):
        for name, c in list(waiting.items()):
            readings = block.values[:, c]
            if (np.isfinite(readings) & (readings != values[name])).any():
                varying.append(name)
                del waiting[name]
        if not waiting:
            break
    return varying


def rows_to_score(h: int) -> int:
    """The rows of a log without gaps that has a window of h rows in its second half.

    >>> rows_to_score(2), rows_to_score(40)
    (23, 81)
    """
    return max(FIRST_ROWS + h, 2 * h) + 1


def _check_scorable(table: Table, rows: int, horizons: Sequence[float | str]) -> None:
    """ValueError if the log is so short that no horizon can be scored."""
    timing = Timing.of(table.clock(), table.dated)
    windows = {horizon: timing.window(horizon) for horizon in horizons}
    shortest = min(windows, key=windows.__getitem__)
    needed = rows_to_score(windows[shortest])
    if rows < needed:
        raise ValueError(
            f"{table.name}: {rows:,} rows are too few: {needed:,} are needed for the shortest horizon, {shortest}. "
            f"Use a longer log{', or shorter horizons' if windows[shortest] > 1 else ''}."
        )


# ---------------------------------------------------------------------- rows of a log


@dataclass
class ReadingCounts:
    """For each signal how many readings could not be used, and the least and the greatest that could.

    ``gaps`` is the number of rows that do not follow the row before, and ``begins`` is the first time.
    """

    unreadable: list[int]
    infinite: list[int]
    lowest: list[float | None]
    highest: list[float | None]
    gaps: int = 0
    begins: float | None = None

    @classmethod
    def none(cls, C: int) -> ReadingCounts:
        """Before the first row."""
        return cls([0] * C, [0] * C, [None] * C, [None] * C)

    def add(self, block: Block) -> None:
        """Count the next block of the table, which a guard has marked."""
        for counts, new in ((self.unreadable, block.unreadable), (self.infinite, block.infinite)):
            counts[:] = [a + int(b) for a, b in zip(counts, new, strict=True)]
        sound = np.where(np.isnan(block.to_learn), np.nan, block.values)
        for c, column in enumerate(sound.T):
            known = column[np.isfinite(column)]
            if len(known):
                low, high = self.lowest[c], self.highest[c]
                self.lowest[c] = float(known.min()) if low is None else min(low, float(known.min()))
                self.highest[c] = float(known.max()) if high is None else max(high, float(known.max()))
        self.gaps += int(block.gap.sum())
        if block.time is not None and len(block):
            self.begins = float(block.time[0]) if self.begins is None else self.begins


def _make_features(maker: Features, block: Block, held: Array, missing: NDArray[np.bool_]) -> Active:
    """Features of the next rows.

    ``held`` are the readings, the last one held where one is ``missing``. Rows between two gaps are made at a time:
    after a gap traces start anew.
    """
    inner = np.flatnonzero(block.gap[1:]) + 1
    pieces = []
    for begin, end in pairwise([0, *inner.tolist(), len(block)]):
        piece = slice(begin, end)
        if block.gap[begin]:
            maker.cut()
        time = None if block.time is None else block.time[piece]
        labels = {name: column[piece] for name, column in block.labels.items()}
        pieces.append(maker(held[piece], time=time, labels=labels, missing=missing[piece]))
    return Active(np.concatenate([phi.indices for phi in pieces]), np.concatenate([phi.values for phi in pieces]))


class RowChecksum:
    """A checksum of all rows so far: readings, times and labels. It does not depend on the blocks they come in."""

    def __init__(self) -> None:
        self.rows = 0
        self._columns: dict[str, Any] = {}

    def add(self, block: Block, rows: int | None = None) -> None:
        """Add the next rows of the table: a block of it, or the first ``rows`` of a block."""
        rows = len(block) if rows is None else min(rows, len(block))
        self._update("values", block.values[:rows].tobytes())
        if block.time is not None:
            self._update("time", block.time[:rows].tobytes())
        for name, labels in block.labels.items():
            self._update(f"label {name}", json.dumps(labels[:rows].tolist())[1:-1].encode() + b", ")
        self.rows += rows

    def hexdigest(self) -> str:
        """The checksum as text."""
        columns = {name: checksum.hexdigest() for name, checksum in sorted(self._columns.items())}
        return hashlib.blake2b(json.dumps([self.rows, columns]).encode(), digest_size=16).hexdigest()

    def _update(self, column: str, data: bytes) -> None:
        if column not in self._columns:
            self._columns[column] = hashlib.blake2b(digest_size=16)
        self._columns[column].update(data)


# ---------------------------------------------------------------------- stopping


class StopRequest:
    """Ctrl-C or SIGTERM while a run learns: it stops after the block that it is at, when everything can be saved."""

    #: The signal that came, or None.
    signal: int | None = None

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Note the first signal; a second one does not wait."""
        if self.signal is not None:
            raise KeyboardInterrupt(number)
        self.signal = number


@contextmanager
def catch_stop() -> Iterator[StopRequest]:
    """Within it SIGINT and SIGTERM are noted, unless the program ignores them."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():  # signals can be handled only there
        yield request
        return
    handlers = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        if callable(signal.getsignal(number)):  # someone would stop for it
            handlers[number] = signal.signal(number, request.handle)
    try:
        yield request
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


# ---------------------------------------------------------------------- learning


@dataclass(frozen=True, eq=False)
class Learned:
    """A log that has been learned from; what was predicted lies in parts.

    Args:
        log: The log.
        forecaster: All that was learned.
        clock: The clock after the last row; None without times.
        counts: What was counted in the readings.
        guard: The guard of the readings after the last row.
        store: The parts.
        seconds: How long learning took.
    """

    log: OpenedLog
    forecaster: Forecaster
    clock: Clock | None
    counts: ReadingCounts
    guard: ReadingGuard
    store: PartStore
    seconds: float

    @property
    def learners(self) -> int:
        """The number of learners."""
        return sum(learner.K or 1 for learner in self.forecaster.horde.learners)

    @property
    def frozen(self) -> int:
        """How many learners have diverged, and stay as they were."""
        return sum(int(learner.frozen.sum()) for learner in self.forecaster.horde.learners)

    @property
    def constant(self) -> list[str]:
        """The signals that never changed."""
        pairs = zip(self.log.table.names, self.counts.lowest, self.counts.highest, strict=True)
        return [name for name, lowest, highest in pairs if lowest == highest]

    def guarded_counts(self) -> dict[str, dict[str, int]]:
        """How many readings of each signal were pulled in and taken for missing, where there are any."""
        return self.guard.counts(self.log.table.names)

    def unused_columns(self) -> dict[str, str]:
        """Columns of text that neither features nor questions use, and why."""
        used = {config["of"] for config in self.log.settings.features or () if config["kind"] == "one_hot"}
        used |= {gvf.policy.column for gvf in self.forecaster.returns.questions if gvf.policy is not None}
        why = f"text column with fewer than 2 or more than {WORDS} distinct values in the first rows"
        return {name: why for name in self.log.table.categories if name not in used}


class ResumePoint(NamedTuple):
    """Where a stopped run resumes: all parts of the rows that the horde has learned from are on the disk.

    Attributes:
        horde: The horde after these rows.
        state: What the run needs besides to go on from there.
    """

    horde: Horde
    state: Mapping[str, Any]


class Resumption(NamedTuple):
    """How a log is learned from: the parts, and where to go on after the rows that were learned before.

    Args:
        store: The parts, marked with the id of this run.
        identity: What tells this table from another, before its rows are read.
        checksum: The checksum of the rows that were learned before.
        point: Where the run resumes; None at the first row.
    """

    store: PartStore
    identity: Mapping[str, Any]
    checksum: RowChecksum
    point: ResumePoint | None


def checkpoint_file(out: Path) -> Path:
    """The checkpoint of an unfinished run in an output folder."""
    return out / UNFINISHED / "model.safetensors"


def find_point(out: Path) -> ResumePoint | None:
    """Where the run that was stopped in an output folder resumes; None if it was stopped before it saved anything."""
    path = checkpoint_file(out)
    return ResumePoint(*Horde.load_with(path)) if path.exists() else None


def find_resumption(log: OpenedLog, out: Path, point: ResumePoint | None, progress: Progress) -> Resumption:
    """Where a run on this log begins, or resumes; ValueError if the run that was stopped there is not the same."""
    identity = _identify(log)
    digest = RowChecksum()
    digest.add(next(log.table.blocks(FIRST)))
    text = json.dumps([identity, log.settings.table(), digest.hexdigest()])
    store = PartStore(out / UNFINISHED, hashlib.sha256(text.encode()).hexdigest()[:32])
    checksum = RowChecksum()
    if point is not None and (
        point.state["settings"] != log.settings.table()
        or point.state["table"] != identity | {"is": point.state["table"]["is"]}
        or not _is_same_run(log, store.run, point, checksum, progress)
    ):
        raise ValueError(
            f"{out}: the unfinished run there used another table or other settings. "
            "Resume with the same ones, or start again with --overwrite."
        )
    return Resumption(store, identity, checksum, point)


def _identify(log: OpenedLog) -> dict[str, Any]:
    names, categories, extent = list(log.table.names), list(log.table.categories), log.table.extent
    if extent is not None:  # of a query: a database may grow, and hold other tables
        return {"rows": log.rows, "names": names, "categories": categories, "bytes": None, "extent": extent}
    size = os.path.getsize(log.source) if isinstance(log.source, str | os.PathLike) else None
    return {"rows": log.rows, "names": names, "categories": categories, "bytes": size}


def _is_same_run(log: OpenedLog, run: str, point: ResumePoint, checksum: RowChecksum, progress: Progress) -> bool:
    """Whether these are the rows that an unfinished run has read: all of them are read again."""
    rows = point.horde.rows
    for block in log.table.blocks(BLOCK):
        checksum.add(block, rows - checksum.rows)
        progress("checking", checksum.rows, rows)
        if checksum.rows >= rows:
            break
    return (checksum.hexdigest(), run) == (point.state["table"]["is"], point.state["run"])


def block_rows(questions: int) -> int:
    """The rows to learn from at a time: fewer where there are very many questions, so that memory does not grow."""
    return max(_FEWEST_ROWS, min(BLOCK, _TOGETHER // questions // _FEWEST_ROWS * _FEWEST_ROWS))


def learn_log(log: OpenedLog, resumption: Resumption, progress: Progress) -> Learned:
    """Learn from all rows of a log, or from those after the point where a stopped run resumes.

    The state is saved every ``SAVE`` seconds, or less often where that takes long.

    Args:
        log: The log.
        resumption: Where to begin.
        progress: Called after every block.
    """
    began = time.perf_counter()
    store, identity, checksum, point = resumption
    guard, timing = log.new_guard(), Timing.of(log.table.clock(), log.table.dated)
    horde = log.warmed_up(guard) if point is None else point.horde
    asked = None if point is None else Asked.load(point.state, horde.signals)
    forecaster = Forecaster(horde, log.settings, timing, log.rows, asked)
    if point is None:
        store.clear()
        clock, counts = log.table.clock(), ReadingCounts.none(len(log.table.names))
    else:
        store.drop(horde.rows, PREDICTIONS)
        forecaster.restore(point.state)
        began -= float(point.state["seconds"])
        clock = None if point.state["clock"] is None else Clock.restore(point.state["clock"])
        counts = ReadingCounts(**point.state["counts"])
        guard = ReadingGuard.restore(point.state["guard"])
        if point.state["increments"] is not None:
            log.table.increments = Increments.restore(point.state["increments"])
    for note in describe_default(log.settings, timing.step):
        _log.warning("%s: %s", log.table.name, note)
    writer = _PartWriter(log, store, forecaster)

    def save(grid: Mapping[str, Any] | None = None) -> None:
        writer.flush()
        increments = log.table.increments
        state = {
            "settings": log.settings.table(),
            "run": store.run,
            "table": {**identity, "is": checksum.hexdigest()},
            "notation": log.table.notation.config(),
            "clock": None if clock is None else clock.state(),
            "guard": guard.state(),
            "increments": None if increments is None else increments.state(),
            "counts": asdict(counts),
            "seconds": time.perf_counter() - began,
        }
        horde.save(store.folder / "model.safetensors", **state, **forecaster.state(), grid=grid)

    due = time.perf_counter() + SAVE
    remaining = horde.rows < log.rows
    with catch_stop() as request:
        for block in log.table.blocks(block_rows(len(horde.questions)), horde.rows, clock) if remaining else ():
            checksum.add(block)
            writer.add(block, forecaster(guard.mark(block)))
            counts.add(block)
            end = block.row + len(block)
            progress("learning", end, log.rows)
            if request.signal is not None:
                break
            now = time.perf_counter()
            if now >= due and end < log.rows:
                save()
                saved = time.perf_counter()
                due = saved + max(SAVE, _TIMES_AS_LONG * (saved - now - _QUICK))
        if horde.rows < log.rows and request.signal is not None:
            save()
            raise KeyboardInterrupt(request.signal)
        log.check_rows(horde.rows)
        save(None if log.table.grid is None else log.table.grid.state())
        if request.signal is not None:
            raise KeyboardInterrupt(request.signal)
    return Learned(log, forecaster, clock, counts, guard, store, time.perf_counter() - began)


def describe_default(settings: Settings, step: float | None) -> list[str]:
    """What there is to say before a run about its horizons: that values are at other times, or cannot be asked for."""
    predict, horizons, notes = settings.predict or (), settings.horizons or (), []
    fractions = [h for h in horizons if not isinstance(h, str) and h != int(h)]
    unnamed = [name for name in predict if "`" in name]
    if fractions or unnamed:
        listed = ", ".join([*map(str, fractions), *map(repr, unnamed)])
        notes.append(f"{listed}: no question can ask for this, so that there is no forecast of it.")
    for horizon in horizons:
        if step is None or not isinstance(horizon, str):
            continue
        rows = durations.seconds(horizon) / step
        if abs(rows - round(rows)) > 0.05:
            nearest = durations.format_duration(max(1, math.ceil(rows - 0.5 - 1e-6)) * step)
            notes.append(
                f"{horizon} is not a whole number of rows: the value at +{horizon} is that of the nearest reading, at "
                f"+{nearest}."
            )
    return notes


class _PartWriter:
    """Writes what is said at the rows of a log in parts."""

    def __init__(self, log: OpenedLog, store: PartStore, forecaster: Forecaster) -> None:
        self._table, self._store, self._forecaster = log.table, store, forecaster
        self._waiting: list[tuple[Block, Said]] = []

    def add(self, block: Block, said: Said) -> None:
        """The next block. Parts are written before too many numbers wait."""
        self._waiting.append((block, said))
        if sum(of_block.asked.size + of_block.own.size for _, of_block in self._waiting) >= WAITING:
            self.flush()

    def flush(self) -> None:
        """Write the blocks that wait."""
        due, self._waiting = self._waiting, []
        if not due:
            return
        blocks = [block for block, _ in due]
        columns: dict[str, Any] = {"row": np.concatenate([block.numbers for block in blocks])}
        times = [block.time for block in blocks if block.time is not None]
        if times:
            seconds = np.concatenate(times)
            columns["time"] = _stamps(seconds, self._table.zone) if self._table.dated else seconds
        said = Said(*(np.concatenate(arrays) for arrays in zip(*(said for _, said in due), strict=True)))
        self._store.write(PREDICTIONS, blocks[0].row, columns | self._forecaster.columns(said))


def _stamps(seconds: Array, zone: str | None) -> pa.Array:
    """Times as Arrow has them, in their zone if they have one."""
    known = np.isfinite(seconds)
    micro = np.where(known, np.round(seconds * 1e6), 0).astype(np.int64)
    return pa.array(micro, mask=~known).cast(pa.timestamp("us", zone))
