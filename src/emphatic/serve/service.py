"""The service: one thread that learns from what waits in the inbox, writes the journal, and saves the model.

A reading is acknowledged when it is in the journal and the journal is on the disk. Readings are synced in groups: as
soon as nothing waits, and at the latest a tenth of a second after the first of a group. After each save the journal is
cut; a service that was killed goes on from the last save through the journal, to the same bits.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import json
import logging
import math
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from emphatic.common.locks import hold_lock
from emphatic.nexting.predictor import ENDS, OF_A_SIGNAL, WHY, LineFormat, Outcome, Prediction, Predictor, format_lines
from emphatic.nexting.settings import Settings
from emphatic.questions.gvf import LARGEST
from emphatic.serve.journal import Journal
from emphatic.tables.fields import as_name
from emphatic.tables.pipe import BLOCK, JSON, Reading, TextForm
from emphatic.tables.table import Malformed
from emphatic.tables.text import NOT_AN_OBJECT, read_object

if TYPE_CHECKING:
    import uvicorn
    from starlette.applications import Starlette

__all__ = ["Inbox", "Incoming", "Receipt", "RecentRows", "RunningError", "Service", "Traffic", "read_json", "run"]

logger = logging.getLogger("emphatic.serve")

Array = NDArray[np.float64]
#: Readings that may wait.
_CAPACITY = 4096
#: Readings that may be learned and not acknowledged, while the disk takes nothing.
_UNSYNCED = 16 * BLOCK
#: Seconds: the longest wait for readings, from a reading to the sync of its group (and a block more), and between two
#: attempts on a disk that fails.
_WAIT, _GROUP, _RETRY = 0.1, 0.05, 0.5
#: Seconds that a service that is stopped goes on learning from what waits, and until it ends in any case.
_DRAIN, _END = 2.0, 4.5
#: The longest body, in bytes; and the levels that a reading may have.
LONGEST, _DEEPEST = 1 << 20, 32
#: Recent rows that a page can show, and their values.
_ROWS, _VALUES = 4096, 1 << 22
#: Seconds that open connections get when the service ends.
_GRACE = 3
#: Connections at a time, and seconds for which one may be open without a complete request.
_CONNECTIONS, _IDLE = 128, 20.0
#: Stands for every numeric address among the names that a Host header may have.
NUMERIC_HOSTS = "*.*.*.*"


# ---------------------------------------------------------------------- readings on their way in


class Receipt(NamedTuple):
    """What became of a reading, once it is safe: why it was not used, or its prediction if it has one.

    ``taken`` is False if the service stopped before the reading was written down.
    """

    outcome: Prediction | Malformed | None
    taken: bool = True


class Incoming(NamedTuple):
    """A reading on its way in.

    ``text`` is its JSON if that is at hand, ``origin`` what its source needs to go on after it, and ``acknowledge`` is
    called once the reading is safe.
    """

    reading: Reading | Malformed
    text: bytes | None = None
    origin: dict[str, Any] | None = None
    acknowledge: Callable[[Receipt], None] | None = None
    arrived: float = 0.0

    def arriving(self, seconds: float) -> Incoming:
        """The reading with the time at which it arrived, by ``time.monotonic``."""
        return self._replace(arrived=seconds)

    def answered_by(self, acknowledge: Callable[[Receipt], None]) -> Incoming:
        """The reading with what is called once it is safe."""
        return self._replace(acknowledge=acknowledge)


class Inbox:
    """At most ``capacity`` readings that wait. ``offer`` takes what fits, ``put`` waits until there is room."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._waiting: deque[Incoming] = deque()
        self._lock = threading.Lock()
        self._filled, self._emptied = threading.Condition(self._lock), threading.Condition(self._lock)
        #: Whether nothing more is taken in.
        self.closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def offer(self, readings: Sequence[Incoming]) -> int:
        """Take the first of these readings, as many as there is room for; how many."""
        arrived = time.monotonic()
        with self._lock:
            room = 0 if self.closed else self.capacity - len(self._waiting)
            accepted = [reading.arriving(arrived) for reading in readings[:room]]
            self._waiting.extend(accepted)
            if accepted:
                self._filled.notify()
            return len(accepted)

    def put(self, reading: Incoming) -> bool:
        """Wait for room, and take the reading; False if the inbox was closed first."""
        with self._lock:
            while len(self._waiting) >= self.capacity and not self.closed:
                self._emptied.wait()
            if self.closed:
                return False
            self._waiting.append(reading.arriving(time.monotonic()))
            self._filled.notify()
            return True

    def take(self, most: int, timeout: float) -> list[Incoming]:
        """The readings that wait, at most ``most``; after ``timeout`` seconds perhaps none."""
        with self._lock:
            if not self._waiting and not self.closed:
                self._filled.wait(timeout)
            readings = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
            if readings:
                self._emptied.notify_all()
            return readings

    def close(self) -> None:
        """Take nothing more in."""
        with self._lock:
            self.closed = True
            self._filled.notify_all()
            self._emptied.notify_all()


class NotJson(ValueError):
    """The text is not JSON."""


def read_json(body: bytes) -> tuple[list[Incoming], bool]:
    """The readings in a JSON text, and whether it is a list; ``NotJson`` if it is neither JSON nor text.

    What is no object of names and readings is ``Malformed``.
    """
    try:
        value = json.loads(body.decode().removeprefix("\ufeff"))
    except (ValueError, RecursionError, MemoryError) as error:
        raise NotJson(f"not JSON: {error}") from None
    if isinstance(value, list):
        return [Incoming(_reading(element)) for element in value], True
    return [Incoming(_reading(value), body.strip())], False


def read_lines(body: bytes) -> list[Incoming]:
    """The readings in lines of JSON; a blank line is none."""
    readings = []
    for line in body.split(b"\n"):
        if not line.strip():
            continue
        try:
            readings.append(Incoming(read_object(line.decode()), line.strip()))
        except (Malformed, UnicodeDecodeError) as error:
            readings.append(Incoming(error if isinstance(error, Malformed) else Malformed("not UTF-8 text")))
    return readings


def is_deep(value: Reading) -> bool:
    """Whether a value is nested so deeply that it could not be written or read again everywhere."""
    level: list[Any] = [value]
    for _ in range(_DEEPEST):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if inner.__class__ is dict or inner.__class__ is list
        ]
        if not level:
            return False
    return True


def _reading(value: object) -> Reading | Malformed:
    if not isinstance(value, dict):
        return Malformed(NOT_AN_OBJECT)
    return {as_name(name): inner for name, inner in value.items()}


# ---------------------------------------------------------------------- the recent past


class RecentRows:
    """The last rows: readings, predictions and times, in a ring. Steps follow one another."""

    def __init__(self, names: Sequence[str], format: LineFormat) -> None:
        self.names, self.format = tuple(names), format
        Q = len(format.keys)
        self.size = max(256, min(_ROWS, _VALUES // (len(self.names) + (1 + len(ENDS)) * Q)))
        self._readings, self._values = np.empty((self.size, len(self.names))), np.empty((self.size, Q))
        self._seconds, self._gap = np.empty(self.size), np.zeros(self.size, bool)
        self._time: list[object] = [None] * self.size
        self._derived: dict[str, NDArray[Any]] = {}
        self._lock = threading.Lock()
        #: The steps that are kept: from ``first`` to before ``end``.
        self.first = self.end = 0

    def add(self, rows: Sequence[Prediction]) -> None:
        """The next rows."""
        with self._lock:
            for row in rows:
                if row.step != self.end:
                    self.first = self.end = row.step
                at = row.step % self.size
                self._readings[at], self._values[at] = row.readings, row.values
                self._seconds[at], self._gap[at], self._time[at] = row.seconds, row.gap, row.time
                for kind, values in row.derived.items():
                    if kind not in self._derived:
                        self._derived[kind] = np.zeros((self.size, len(values)), values.dtype)
                    self._derived[kind][at] = values
                self.end = row.step + 1
                self.first = max(self.first, self.end - self.size)

    def columns(self, name: str, start: int, most: int) -> dict[str, Any] | None:
        """At most ``most`` rows of one name from step ``start`` on, column by column as JSON can hold them."""
        with self._lock:
            start = max(start, self.first)
            steps = np.arange(start, min(self.end, start + most))
            if not len(steps):
                return None
            at = steps % self.size
            seconds, gap = self._seconds[at], self._gap[at].tolist()
            reading = self._readings[at, self.names.index(name)] if name in self.names else np.full(len(at), np.nan)
            places = self.format.places.get(name, {})
            by_horizon = {
                kind: {horizon: values[at, q] for horizon, q in places.items()}
                for kind, values in {"predictions": self._values, **self._derived}.items()
                if kind not in OF_A_SIGNAL
            }
            by_signal = {}
            if name in self.format.signals:
                c = self.format.signals.index(name)
                by_signal = {kind: self._derived[kind][at, c] for kind in OF_A_SIGNAL if kind in self._derived}
            times = [self._time[i] for i in at]
        rows = {"step": steps.tolist(), "time": times, "t": _or_null(seconds), "reading": _or_null(reading), "gap": gap}
        for kind, columns in by_horizon.items():
            rows[kind] = {horizon: _or_null(column) for horizon, column in columns.items()}
        if "why" in by_signal:
            rows["why"] = [None if reason == 0 else WHY[reason - 1] for reason in by_signal.pop("why").tolist()]
        return rows | {kind: _or_null(column) for kind, column in by_signal.items()}


class Traffic:
    """How many readings came in the last seconds, and how long they waited."""

    def __init__(self, seconds: float = 5.0) -> None:
        self._seconds = seconds
        self._blocks: deque[tuple[float, int, float]] = deque()
        self._began = time.monotonic()
        self._lock = threading.Lock()

    def add(self, count: int, lag: float) -> None:
        """Count a block of readings, the first of which waited for ``lag`` seconds."""
        with self._lock:
            self._blocks.append((time.monotonic(), count, lag))
            self._forget()

    def rate_and_lag(self) -> tuple[float, float]:
        """Readings a second, and the longest wait."""
        with self._lock:
            self._forget()
            span = min(self._seconds, max(1.0, time.monotonic() - self._began))
            return sum(n for _, n, _ in self._blocks) / span, max((lag for *_, lag in self._blocks), default=0.0)

    def _forget(self) -> None:
        until = time.monotonic() - self._seconds
        while self._blocks and self._blocks[0][0] < until:
            self._blocks.popleft()


class RunningError:
    """The root mean square error of recent predictions, by question, from the readings that followed.

    The return G = Σ (1 − γ) γᵏ x of a prediction is known when γᵏ has become small. A fixed number of predictions wait
    for that, spread over the time that it takes, however long the horizon. Averages forget with a memory of about 500
    predictions. A reading that is missing or beyond ``LARGEST`` counts as the reading before it.
    """

    #: Rows that are counted together; only the predictions of the last of them may wait.
    TOGETHER = 16

    #: Predictions that wait for their return.
    SLOTS = 48
    #: A return is complete when this share of its weight is still to come.
    REST = 0.02
    MEMORY = 500.0

    def __init__(self, gamma: Array, column: Sequence[int]) -> None:
        with np.errstate(divide="ignore"):
            horizon = np.where(gamma < 1.0, 1.0 / (1.0 - gamma), np.inf)
        self._questions = np.flatnonzero((np.asarray(column) >= 0) & np.isfinite(horizon) & np.isfinite(gamma))
        self._gamma, self._column = gamma[self._questions], np.asarray(column, np.intp)[self._questions]
        # SLOTS predictions, at such intervals that the oldest is complete before its place is needed again
        self._interval = np.ceil(np.log(self.REST) / np.log(np.maximum(self._gamma, 1e-12)) / (self.SLOTS - 1))
        Q = len(self._questions)
        self._G, self._weight = np.zeros((Q, self.SLOTS)), np.zeros((Q, self.SLOTS))
        self._p = np.full((Q, self.SLOTS), np.nan)
        self._since, self._next = np.full(Q, np.inf), np.zeros(Q, np.intp)
        self._last = np.full(len(column) and int(max(column)) + 1, np.nan)
        self._squares, self._count = np.zeros(Q), np.zeros(Q)
        self._all = len(gamma)

    def add(self, rows: Sequence[Prediction]) -> None:
        """The rows of a block."""
        if len(self._questions):
            for start in range(0, len(rows), self.TOGETHER):
                self._add(rows[start : start + self.TOGETHER])

    def _add(self, rows: Sequence[Prediction]) -> None:
        if any(row.gap for row in rows):
            self._p[:] = np.nan  # the readings across a gap are not known
            self._last[:] = np.nan
            return
        x = np.array([row.readings for row in rows])[:, : len(self._last)]
        known = np.abs(x) <= LARGEST
        if not known.all():
            previous = np.where(np.isfinite(self._last), self._last, 0.0)
            for row, there in zip(x, known, strict=True):
                row[~there] = previous[~there]
                previous = row
        self._last = x[-1]
        B = len(rows)
        powers = self._gamma[:, None] ** np.arange(B)
        ahead = (1.0 - self._gamma) * np.einsum("qb,bq->q", powers, x[:, self._column])
        self._G += self._weight * ahead[:, None]
        self._weight *= (self._gamma**B)[:, None]
        done = np.isfinite(self._p) & (self._weight < self.REST)
        if done.any():
            error = np.where(done, self._G / (1.0 - self._weight) - self._p, 0.0)
            count = done.sum(axis=1)
            keep = (1.0 - 1.0 / self.MEMORY) ** count
            self._squares = keep * self._squares + (error**2).sum(axis=1)
            self._count = keep * self._count + count
            self._p[done] = np.nan
        self._since += B
        due = np.flatnonzero(self._since >= self._interval)
        slot = self._next[due]
        p = rows[-1].values[self._questions[due]]
        self._p[due, slot] = np.where(np.abs(p) <= LARGEST, p, np.nan)
        self._G[due, slot], self._weight[due, slot] = 0.0, 1.0
        self._next[due] = (slot + 1) % self.SLOTS
        self._since[due] = 0

    def rmse(self) -> list[float | None]:
        """The error of each question; None where no return is known yet."""
        errors: list[float | None] = [None] * self._all
        for q, squares, count in zip(self._questions, self._squares, self._count, strict=True):
            if count > 0:
                errors[int(q)] = math.sqrt(squares / count)
        return errors


def _or_null(values: NDArray[Any]) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in values.tolist()]


# ---------------------------------------------------------------------- the service


class Service:
    """A model that learns from readings as they come.

    ``open`` loads the model and goes through the journal, ``start`` starts the thread, ``stop`` ends it, and ``close``
    waits until the model is saved.

    Args:
        model: The file of the model; it need not exist.
        settings: What a new model predicts; those of an existing model are its own.
        learn: Whether to learn from readings, or only to predict.
        warm_up: The readings that a new model is made from.
        save_every: Seconds between two saves of the model.
        journal: The folder of readings since the last save; by default beside the model.
        capacity: The readings that may wait.
    """

    def __init__(
        self,
        model: Path,
        settings: Settings,
        *,
        learn: bool = True,
        warm_up: int | None = None,
        save_every: float = 30.0,
        journal: Path | None = None,
        capacity: int = _CAPACITY,
    ) -> None:
        self.model, self.settings, self.learn, self._warm_up = model, settings, learn, warm_up
        self.save_every, self.inbox, self.traffic = save_every, Inbox(capacity), Traffic()
        self._folder = journal or model.with_name(f"{model.name}.journal")
        #: Where each source that can be asked again goes on: its own kind of position, by name.
        self.positions: dict[str, Any] = {}
        #: Readings taken since the service started, and those of them that could not be used.
        self.readings = self.malformed = 0
        self.saved_step = self.saved = 0
        #: The last prediction, and the recent rows, once there are any.
        self.latest: Prediction | None = None
        self.recent: RecentRows | None = None
        self._errors: RunningError | None = None
        self._form = JSON
        #: Why the last attempt to write to the disk failed; empty if it did not.
        self.trouble = ""
        #: What ended the thread, if it was an error.
        self.failure: BaseException | None = None
        #: Called with the line of every prediction, once its reading is safe.
        self.publish: Callable[[bytes], None] | None = None
        self._unacknowledged: list[tuple[Incoming, Receipt]] = []
        self._first_unsynced = 0.0
        self._journal: Journal | None = None
        self._id: str | None = None  # the journal's
        self._locks = ExitStack()
        self._thread = threading.Thread(target=self._work, name="emphatic learning", daemon=True)
        self._deadline = float("inf")
        #: What is to be asked, or no longer, by the thread: a function of the predictor, and its outcome.
        self._changes: SimpleQueue[tuple[Callable[[Predictor], None], Future[None]]] = SimpleQueue()

    # ------------------------------------------------------------------ beginning and end

    def open(self) -> None:
        """Load the model, if there is one, and learn from the journal; ValueError if they do not fit."""
        options: dict[str, Any] = {"learn": self.learn, "unit": "reading"}
        try:
            if self.learn:
                self._locks.enter_context(hold_lock(self.model.with_name(f".{self.model.name}.lock"), self.model))
            serve: dict[str, Any] = {"journal": 0}
            if self.model.exists():
                self.predictor, state = Predictor.load(self.model, **options)
                for text in self.settings.ask:
                    if text.strip() not in self.predictor.settings.ask:
                        self.predictor.ask(text)
                settings = replace(self.predictor.settings, delimiter=self.predictor.delimiter, ask=self.settings.ask)
                ignored = ", ".join(self.settings.differences(settings))
                if ignored:
                    logger.warning(
                        "%s: the model's own settings hold; ignored, since they differ: %s.", self.model, ignored
                    )
                serve = state.get("serve", {})
                self._watch()
            else:
                self.predictor = Predictor(self.settings, warm_up=self._warm_up, resilient=True, **options)
                if self._first.exists():
                    serve = self.predictor.load_warm_up(self._first)
            self.positions, self._id = dict(serve.get("positions", {})), serve.get("id")
            self.saved_step = self.predictor.step
            if self.learn:
                self._replay(serve.get("journal"))
        except BaseException:
            self._locks.close()
            raise
        if self.warming_up:
            logger.info("%s: no model yet; %d of %d readings to warm up on.", self.model, self.waiting, self.warm_up)
        else:
            logger.info("%s: going on at step %d.", self.model, self.step)

    def start(self) -> None:
        """Start to learn."""
        self._thread.start()

    def stop(self) -> None:
        """Take nothing more in, learn from what waits, save, and end; returns at once."""
        self._deadline = time.monotonic() + _DRAIN
        self.inbox.close()

    def close(self) -> None:
        """``stop``, and wait until the model is saved."""
        self.stop()
        if self._thread.ident is not None:
            self._thread.join(_END)
        if self._thread.is_alive():
            logger.warning("the model is not saved: learning is busy. The journal has all that was acknowledged.")
        else:
            self._locks.close()

    # ------------------------------------------------------------------ what it is

    @property
    def warm_up(self) -> int:
        """The readings to warm up on."""
        return self.predictor.warm_up

    @property
    def waiting(self) -> int:
        """Readings of a warm-up that is not complete."""
        return self.predictor.waiting

    @property
    def step(self) -> int:
        """The readings that the model has learned from."""
        return self.predictor.step

    @property
    def warming_up(self) -> bool:
        """Whether there is no model yet."""
        return self.predictor.horde is None

    @property
    def unacknowledged(self) -> int:
        """The readings that are learned from, and not on the disk yet."""
        return len(self._unacknowledged)

    @property
    def alive(self) -> bool:
        """Whether the thread that learns is there."""
        return self._thread.is_alive()

    def rmse(self) -> list[tuple[str, str, float | None]]:
        """The error of recent predictions: name, horizon, root mean square."""
        recent, errors = self.recent, self._errors
        if recent is None or errors is None:
            return []
        return [(*key, error) for key, error in zip(recent.format.keys, errors.rmse(), strict=True)]

    # ------------------------------------------------------------------ the thread

    def _work(self) -> None:
        try:
            saved = time.monotonic()
            while not (self.inbox.closed and (not len(self.inbox) or time.monotonic() > self._deadline)):
                full = len(self._unacknowledged) >= _UNSYNCED
                readings = [] if full else self.inbox.take(BLOCK, _WAIT)
                if readings:
                    self._learn(readings)
                self._change()
                self._sync(wait=bool(len(self.inbox)) and not full)
                if time.monotonic() - saved > self.save_every:
                    self._save()
                    saved = time.monotonic()
            self._end()
        except BaseException as error:
            self.failure = error
            logger.critical("learning has ended by an error: %s", error, exc_info=True)
        finally:
            self.inbox.close()
            while not self._changes.empty():
                self._changes.get()[1].set_exception(ValueError("the service ends"))
            while waiting := self.inbox.take(BLOCK, 0.0):
                self._unacknowledged += [(incoming, Receipt(None, taken=False)) for incoming in waiting]
            for incoming, _ in self._unacknowledged:
                if incoming.acknowledge is not None:
                    incoming.acknowledge(Receipt(None, taken=False))
            if self._journal is not None:
                self._journal.close()

    def ask(self, text: str, stop: bool = False) -> Future[None]:
        """Ask a question of one line, learned from now on, or no longer ask it.

        It is done between two blocks of readings, and the model is saved at once, so that readings of the journal are
        never learned from for a question that came after them.

        Args:
            text: The question.
            stop: Whether it is no longer to be asked.

        Returns:
            A future that is done when it is; its exception is a ValueError if the question cannot be asked.
        """
        done: Future[None] = Future()
        change = (lambda predictor: predictor.stop_asking(text)) if stop else (lambda predictor: predictor.ask(text))
        self._changes.put((change, done))
        return done

    def _change(self) -> None:
        """Carry out the changes that wait."""
        while not self._changes.empty():
            change, done = self._changes.get()
            try:
                change(self.predictor)
            except ValueError as error:
                done.set_exception(error)
                continue
            if self.recent is not None:
                self.recent.format = self.predictor.format
            self.saved_step = -1  # the model is other than the saved one, though no reading came
            self._save()
            done.set_result(None)

    def _learn(self, block: Sequence[Incoming]) -> None:
        """Put the readings of a block into the journal, and learn from them."""
        entries: list[tuple[int, Reading | Malformed, dict[str, Any] | None]] = []
        for number, incoming in enumerate(block, self.readings + 1):
            reading = incoming.reading
            if not isinstance(reading, Malformed) and is_deep(reading):
                reading = Malformed("nested too deeply")
            if self._journal is not None and not isinstance(reading, Malformed):
                self._journal.append(reading, incoming.text, incoming.origin)
            entries.append((number, reading, incoming.origin))
        if not self._unacknowledged:
            self._first_unsynced = time.monotonic()
        outcomes = self._go_through(entries)
        self.traffic.add(len(block), time.monotonic() - block[0].arrived)
        self._unacknowledged += [
            (incoming, Receipt(outcome)) for incoming, outcome in zip(block, outcomes, strict=True)
        ]

    def _go_through(self, entries: Sequence[tuple[int, Reading | Malformed, dict[str, Any] | None]]) -> list[Outcome]:
        """Learn from readings with their origins: how they were written, or the position of their source."""
        outcomes: list[Outcome] = []
        block: list[tuple[int, Reading | Malformed]] = []
        for number, reading, origin in entries:
            if origin is not None and "delimiter" in origin:
                form = TextForm(origin["delimiter"], tuple(origin["unnamed"]))
                if form != self._form:
                    outcomes += self._take(block)
                    self._form, block = form, []
            elif origin is not None:
                self.positions |= origin
            block.append((number, reading))
        return outcomes + self._take(block)

    def _take(self, numbered: Sequence[tuple[int, Reading | Malformed]]) -> list[Outcome]:
        """``Predictor.take``, with its counts and what the page shows."""
        outcomes = self.predictor.take(numbered, self._form)
        self.readings += len(numbered)
        self.malformed += sum(isinstance(outcome, Malformed) for outcome in outcomes)
        predictions = [outcome for outcome in outcomes if isinstance(outcome, Prediction)]
        if predictions:
            self.latest = predictions[-1]
        if self.recent is None and self.predictor.horde is not None:
            self._watch()
        if self.recent is not None and self._errors is not None:
            # Predictions of the warm-up are written in another form.
            rows = [prediction for prediction in predictions if prediction.format is self.recent.format]
            self.recent.add(rows)
            self._errors.add(rows)
        return outcomes

    def _watch(self) -> None:
        """Prepare what watchers see of a model."""
        horde = self.predictor.horde
        assert horde is not None
        names = horde.makers[0].signals
        self.recent = RecentRows(names, self.predictor.format)
        places = {name: c for c, name in enumerate(names)}
        column = [places.get(q.cumulant, -1) if isinstance(q.cumulant, str) else -1 for q in horde.questions]
        self._errors = RunningError(horde.gamma, column)

    # ------------------------------------------------------------------ the disk

    def _sync(self, wait: bool) -> None:
        """Sync the journal and acknowledge, unless more readings wait and the first of the group is young."""
        if not self._unacknowledged or (wait and time.monotonic() - self._first_unsynced < _GROUP):
            return
        if self._journal is not None:
            try:
                self._journal.sync()
            except OSError as error:
                self._report(f"the journal cannot be written: {error}; readings are not acknowledged until it can")
                time.sleep(_RETRY)
                return
            self.trouble = ""
        self._acknowledge()

    def _acknowledge(self) -> None:
        done, self._unacknowledged = self._unacknowledged, []
        for incoming, receipt in done:
            if incoming.acknowledge is not None:
                incoming.acknowledge(receipt)
        if self.publish is not None:
            for line in format_lines(receipt.outcome for _, receipt in done if isinstance(receipt.outcome, Prediction)):
                self.publish(line)

    def _save(self) -> bool:
        """Save the model with the position in the journal, and cut that; False if the disk does not take it."""
        journal, predictor = self._journal, self.predictor
        if journal is None or (predictor.step == self.saved_step and journal.last == self.saved):
            return True
        try:
            self._store(journal)
            journal.cut(journal.last)
        except OSError as error:
            self._report(f"{self.model}: the model cannot be saved: {error}; the journal keeps what came since")
            return False
        self.trouble = ""
        self.saved_step, self.saved = predictor.step, journal.last
        self._acknowledge()  # what the model holds is safe
        return True

    def _store(self, journal: Journal) -> None:
        """Write the model, or the readings of its warm-up, with the position in the journal."""
        serve = {"journal": journal.last, "id": self._id, "positions": self.positions}
        self.model.parent.mkdir(parents=True, exist_ok=True)
        if self.predictor.horde is None:
            self.predictor.save_warm_up(self._first, **serve)
        else:
            self.predictor.horde.save(self.model, **self.predictor.state(), serve=serve)
            self._first.unlink(missing_ok=True)

    def _end(self) -> None:
        """Save for the last time; if the disk does not take it, the journal has all that was acknowledged."""
        if self._save():
            if self.learn and not self.warming_up:
                logger.info("%s: saved at step %d.", self.model, self.saved_step)
        elif self._journal is not None:
            with suppress(OSError):
                self._journal.sync()
                self._acknowledge()
        self.predictor.log_counts()

    def _replay(self, position: int | None) -> None:
        """Open the journal, and learn from the readings in it after a position; None if the model knows of none."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._locks.enter_context(hold_lock(self._folder / ".lock", self._folder))
        journal = self._journal = Journal(self._folder)
        count = journal.last - journal.first + 1
        if count and not self.model.exists() and not self._first.exists():
            self._id = journal.id  # of a model that was killed before it was ever saved
        if count and (position is None or journal.first > position + 1 or journal.id != self._id):
            raise ValueError(
                f"{self._folder}: the journal, with {count} readings from number {journal.first} on, does not follow "
                f"on the model {self.model}. Serve the model it belongs to, or move it elsewhere."
            )
        self._id = journal.mark(self._id)
        if position is None:  # so that the model knows the journal before that has any readings
            try:
                self._store(journal)
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(self.model)) from None
        self.saved = position or 0
        journal.cut(self.saved)
        entries = journal.entries(self.saved)
        while block := list(islice(entries, BLOCK)):
            self._go_through(block)
        if self.readings:
            logger.info("%s: learned again from %d readings since the last save.", self._folder, self.readings)
        self.readings = self.malformed = 0

    @property
    def _first(self) -> Path:
        """The readings of a warm-up that is not complete."""
        return self.model.with_name(f"{self.model.name}.warm-up")

    def _report(self, trouble: str) -> None:
        """Log what is wrong with the disk, once."""
        if trouble != self.trouble:
            logger.error("%s.", trouble)
        self.trouble = trouble


# ---------------------------------------------------------------------- running


def read_token(path: Path) -> str:
    """The token in a file; ValueError if there is none."""
    try:
        token = path.read_text("ascii", "replace").strip()
    except OSError as error:
        raise ValueError(f"--token-file {path} cannot be read: {error.strerror}.") from None
    if not token or not token.isprintable() or not token.isascii() or " " in token:
        raise ValueError(
            f"--token-file {path} must hold a token: one line of letters, digits and signs, without spaces."
        )
    if len(token) < 16:
        logger.warning("%s: the token has only %d characters; 16 or more cannot be guessed.", path, len(token))
    return token


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach this address."""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def allowed_hosts(host: str) -> tuple[str, ...]:
    """The names that a Host header may have: those of this machine; and, where others can reach it, any number."""
    local = ("127.0.0.1", "localhost", "::1", host)
    return local if is_loopback(host) else (*local, socket.gethostname(), socket.getfqdn(), NUMERIC_HOSTS)


def open_socket(host: str, port: int) -> socket.socket:
    """A socket that listens; OSError in one sentence if it cannot be had."""
    if not 0 <= port <= 65535:
        raise ValueError(f"--port must be from 0 to 65535. Got {port}.")
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, proto)  # asyncio sends at once only where it knows that this is TCP
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(128)
        except OSError:
            listening.close()
            raise
        return listening
    except socket.gaierror as error:
        raise ValueError(f"--host {host} is not an address of this machine: {error.strerror}.") from None
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            raise ValueError(f"--host {host} is not an address of this machine: {error.strerror}.") from None
        raise ValueError(f"port {port} of {host} cannot be used: {error.strerror}. Choose another: --port N.") from None


class StreamConnection(Protocol):
    """A source of readings or a publisher of predictions: a thread that begins and ends with the service."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """End; what is not acknowledged by then comes again, if it can."""


class Publisher(StreamConnection, Protocol):
    """Where predictions go, besides HTTP."""

    def __call__(self, line: bytes) -> None:
        """Send a prediction."""


def run(
    service: Service,
    source: StreamConnection | None,
    publisher: Publisher | None,
    listening: socket.socket,
    app: Starlette,
) -> int:
    """Serve until SIGTERM or SIGINT.

    Args:
        service: The service, after ``open``.
        source: Where readings come from besides HTTP.
        publisher: Where predictions go besides HTTP.
        listening: The socket of the HTTP interface.
        app: The HTTP interface.

    Returns:
        The exit code: 1 if learning ended by an error.
    """
    import uvicorn

    class Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield  # they are handled below

    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        limit_concurrency=_CONNECTIONS,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=_GRACE,
        proxy_headers=False,
    )
    server = Server(config)

    async def serve() -> None:
        loop = asyncio.get_running_loop()

        def stop() -> None:
            service.stop()
            app.state.closing.set()
            server.should_exit = True

        for which in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(which, stop)
        host, port = listening.getsockname()[:2]
        logger.info("listening at http://%s:%d", f"[{host}]" if ":" in host else host, port)
        watching = [loop.create_task(task) for task in (_watch(service, stop), _close_idle(server))]
        await server.serve(sockets=[listening])
        for task in watching:
            task.cancel()

    service.publish = publisher
    service.start()
    for connection in (publisher, source):
        if connection is not None:
            connection.start()
    try:
        asyncio.run(serve())
    finally:
        service.close()
        for connection in (source, publisher):  # now that all is acknowledged
            if connection is not None:
                connection.stop()
    return 1 if service.failure is not None else 0


async def _watch(service: Service, stop: Callable[[], None]) -> None:
    """End the service if learning has ended."""
    while service.failure is None:
        await asyncio.sleep(0.2)
    stop()


async def _close_idle(server: uvicorn.Server) -> None:
    """Close connections that send no complete request: uvicorn waits for its headers for ever.

    A hundred such connections would keep all other clients out.
    """
    idle: dict[object, tuple[object, float]] = {}  # by connection: its last request, and since when it is idle
    while True:
        clock, known, idle = time.monotonic(), idle, {}
        connection: Any
        for connection in list(server.server_state.connections):
            cycle = connection.cycle  # its request and response
            if cycle is not None and not cycle.response_complete:
                continue
            entry = known.get(connection)
            idle[connection] = entry if entry is not None and entry[0] is cycle else (cycle, clock)
            seconds = clock - idle[connection][1]
            if seconds > 2 * _IDLE:
                connection.transport.abort()  # it does not take what was written either
            elif seconds > _IDLE:
                connection.transport.close()
        await asyncio.sleep(_IDLE / 20)
