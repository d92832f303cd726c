"""The service: one thread that learns from what waits in the inbox, writes the journal, and saves the model.

A reading is acknowledged when it is in the journal and the journal is on the disk. Readings are synced in groups: as
soon as nothing waits, and at the latest a tenth of a second after the first of a group. After each save the journal is
cut; a service that was killed goes on from the last save through the journal, to the same bits.

A reading with an id that is known is acknowledged, and not learned from again (``emphatic.nexting.serve.ids``).
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from emphatic.common.locks import hold_lock
from emphatic.nexting.live import compile_for_live
from emphatic.nexting.runs.alarms import WHY
from emphatic.nexting.runs.gvfs import MARKS
from emphatic.nexting.runs.outlook import values_at
from emphatic.nexting.runs.predictor import LineFormat, Outcome, Prediction, Predictor
from emphatic.nexting.runs.settings import Settings
from emphatic.nexting.serve.ids import DEFAULT_FIELD, KnownIds, check_id, scoped_id
from emphatic.nexting.serve.journal import Journal, JournalError, JournalState
from emphatic.nexting.serve.metrics import Histogram
from emphatic.nexting.serve.status import ConnectionStatus
from emphatic.nexting.tables.fields import as_name
from emphatic.nexting.tables.pipe import BLOCK, JSON, Reading, TextForm
from emphatic.nexting.tables.table import Malformed
from emphatic.nexting.tables.text import NOT_AN_OBJECT, read_object

__all__ = ["EndedError", "Inbox", "Incoming", "Publisher", "Receipt", "RecentRows", "Service"]
__all__ += ["StreamConnection", "Traffic", "WarmingUp", "read_json", "read_lines", "with_ids"]

logger = logging.getLogger("emphatic.serve")

#: Readings that may wait.
_CAPACITY = 4096
#: Readings that may be learned and not acknowledged, while the disk takes nothing.
_UNSYNCED = 16 * BLOCK
#: Readings that may be held back until kernels are compiled.
_HELD = 200_000
#: Seconds: the longest wait for readings, from a reading to the sync of its group (and a block more), and between two
#: attempts on a disk that fails.
_WAIT, _GROUP, _RETRY = 0.1, 0.05, 0.5
#: Seconds that a reading waits for others that are likely to come just now.
_MOMENT = 0.002
#: Seconds that a service that is stopped goes on learning from what waits, and until it ends in any case.
_DRAIN, _END = 2.0, 4.5
#: The longest body, in bytes; and the levels that a reading may have.
LONGEST, _DEEPEST = 1 << 20, 32
#: Recent rows that a page can show, and their values.
_ROWS, _VALUES = 4096, 1 << 22
#: Rows in alarm that are saved with the model.
_ALARMS = 1000
#: Topics whose last payload is remembered.
_TOPICS = 10_000
#: Seconds without a connection to a source after which the service is not ready.
_SOURCE_TIMEOUT = 30.0


# ---------------------------------------------------------------------- readings on their way in


class WarmingUp(NamedTuple):
    """The outcome of a reading before the service is ready: how many there are so far, and how many are needed.

    More than are needed may come while kernels are compiled; ``needed`` is 0 if the model only waits for these.
    """

    readings: int
    needed: int

    @property
    def line(self) -> bytes:
        """The answer to the reading."""
        answer = {"step": None, "time": None, "predictions": {}, "state": "warming up", **self._asdict()}
        return json.dumps(answer).encode() + b"\n"


#: What becomes of a reading in a service.
_Outcome = Outcome | WarmingUp


class EndedError(RuntimeError):
    """The service ended before it could do what it was asked."""


class Receipt(NamedTuple):
    """What became of a reading, once it is safe: why it was not used, or its prediction if it has one.

    ``taken`` is False if the service stopped before the reading was written down. ``repeated`` is True if the reading
    was known; ``line`` is then its first answer, if that is kept.
    """

    outcome: _Outcome
    taken: bool = True
    repeated: bool = False
    line: bytes | None = None


class Incoming(NamedTuple):
    """A reading on its way in.

    ``text`` is its JSON if that is at hand, and ``arrived`` the time by ``time.monotonic``. ``acknowledge`` is called
    once the reading is safe. ``origin`` is kept in the journal with the reading, and may have:

    - "ids": the ids of the reading; it is learned from only if none of them is known (``with_ids`` writes them),
    - "payload": a topic, and a digest of what came from it,
    - "delimiter" and "unnamed": how it was written, if it was not JSON,
    - any other name, such as the address of a source: where that source goes on after this reading.

    ``retained`` says that a broker had kept the reading for whoever subscribes: it is learned from unless its payload
    is the last one that was learned from its topic.
    """

    reading: Reading | Malformed
    text: bytes | None = None
    origin: dict[str, Any] | None = None
    acknowledge: Callable[[Receipt], None] | None = None
    arrived: float = 0.0
    retained: bool = False

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
        self._expected = 1  # readings that come together

    def __len__(self) -> int:
        return len(self._waiting)

    def offer(self, readings: Sequence[Incoming]) -> int:
        """Take the first of these readings, as many as there is room for; how many."""
        arrived = time.monotonic()
        with self._lock:
            room = 0 if self.closed else self.capacity - len(self._waiting)
            accepted = [reading._replace(arrived=arrived) for reading in readings[:room]]
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
            self._waiting.append(reading._replace(arrived=time.monotonic()))
            self._filled.notify()
            return True

    def take(self, most: int, timeout: float) -> list[Incoming]:
        """The readings that wait, at most ``most``; after ``timeout`` seconds perhaps none.

        Senders that wait for an answer send the next reading soon after it, all of them at about the same time. To
        learn from these together takes hardly longer than from one: so the first waits a moment for as many as came
        together before, and for one more.
        """
        with self._lock:
            if not self._waiting and not self.closed:
                self._filled.wait(timeout)
            until = time.monotonic() + _MOMENT
            while 0 < len(self._waiting) < min(self._expected, most) and not self.closed:
                if (seconds := until - time.monotonic()) <= 0.0 or not self._filled.wait(seconds):
                    break
            readings = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
            if readings:
                self._emptied.notify_all()
                count = len(readings)
                self._expected = count + 1 if count >= max(2, self._expected) else max(count, self._expected - 1)
            return readings

    def close(self) -> None:
        """Take nothing more in."""
        with self._lock:
            self.closed = True
            self._filled.notify_all()
            self._emptied.notify_all()


def with_ids(
    readings: Sequence[Incoming], scope: str, field: str, id: str | None = None, origin: dict[str, Any] | None = None
) -> list[Incoming]:
    """The readings of a message with their origins and ids.

    Args:
        readings: The readings.
        scope: What the ids belong to: a topic or a stream, empty for HTTP.
        field: The field of a reading that has its id, which is taken out of the reading; empty for none.
        id: The id of the message. A field goes before it.
        origin: What the origins of all the readings have.
    """
    identified = []
    for index, incoming in enumerate(readings):
        reading, ids = incoming.reading, list[str]()
        if isinstance(reading, Malformed):
            identified.append(incoming._replace(origin=origin))
            continue
        value = reading.get(field) if field else None
        try:
            if value is not None:
                ids.append(scoped_id(scope, check_id(value)))
                reading = {name: inner for name, inner in reading.items() if name != field}
                incoming = incoming._replace(reading=reading, text=None)
            elif id is not None:
                ids.append(scoped_id(scope, check_id(id), index, len(readings)))
        except Malformed as error:
            incoming = incoming._replace(reading=error)
        with_origin = {**(origin or {}), **({"ids": ids} if ids else {})}
        identified.append(incoming._replace(origin=with_origin or None))
    return identified


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
        Q, S = len(format.keys), len(format.signals)
        self.size = max(256, min(_ROWS, _VALUES // (len(self.names) + 3 * Q)))
        self._readings, self._values = np.empty((self.size, len(self.names))), np.empty((self.size, Q, 3))
        self._anomaly, self._why = np.zeros((self.size, S)), np.zeros((self.size, S), np.int8)
        self._mark = np.zeros((self.size, len(format.own)), np.int8)
        self._seconds, self._gap = np.empty(self.size), np.zeros(self.size, bool)
        self._time: list[object] = [None] * self.size
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
                if row.said is not None:
                    self._anomaly[at], self._why[at] = row.said.anomaly, row.said.why
                    self._mark[at] = row.said.mark
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
            values = {horizon: self._values[at, q] for horizon, q in places.items()}
            first_own = len(self.format.keys) - len(self.format.own)
            marks = {
                horizon: [MARKS[mark] for mark in self._mark[at, q - first_own].tolist()]
                for horizon, q in places.items()
                if q >= first_own
            }
            alarms: dict[str, Any] = {}
            if name in self.format.signals:
                c = self.format.signals.index(name)
                why = self._why[at, c].tolist()
                alarms = {"anomaly": _or_null(self._anomaly[at, c]), "alarm": [reason > 0 for reason in why]}
                alarms["why"] = [None if reason == 0 else WHY[reason - 1] for reason in why]
            times = [self._time[i] for i in at]
        rows = {"step": steps.tolist(), "time": times, "t": _or_null(seconds), "reading": _or_null(reading), "gap": gap}
        for kind, place in (("predictions", 0), ("low", 1), ("high", 2)):
            rows[kind] = {horizon: _or_null(column[:, place]) for horizon, column in values.items()}
        return rows | ({"mark": marks} if marks else {}) | alarms


class RecentAlarms:
    """The last rows in alarm, of all signals. They are saved with the model, so that a restart does not forget them.

    Args:
        rows: Those that were saved.
    """

    def __init__(self, rows: Iterable[dict[str, Any]] = ()) -> None:
        self._rows: deque[dict[str, Any]] = deque(rows, maxlen=_ALARMS)
        self._lock = threading.Lock()

    def add(self, rows: Sequence[Prediction], recent: RecentRows) -> None:
        """The next rows, of which those in alarm are kept."""
        for row in rows:
            said = row.said
            for c in [] if said is None else np.flatnonzero(said.why).tolist():
                assert said is not None
                signal = recent.format.signals[c]
                reading, score = float(row.readings[recent.names.index(signal)]), float(said.anomaly[c])
                alarm = {"signal": signal, "step": row.step, "time": row.time, "why": WHY[said.why[c] - 1]}
                numbers = {"t": row.seconds, "reading": reading, "anomaly": score}
                alarm |= {name: value if math.isfinite(value) else None for name, value in numbers.items()}
                with self._lock:
                    self._rows.append(alarm)

    def rows(self, signal: str | None = None) -> list[dict[str, Any]]:
        """The rows in alarm, the oldest first; of one signal, or of all."""
        with self._lock:
            return [row for row in self._rows if signal is None or row["signal"] == signal]


class Traffic:
    """How many readings came in the last seconds, and how long they waited."""

    SECONDS = 5.0

    def __init__(self) -> None:
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
            span = min(self.SECONDS, max(1.0, time.monotonic() - self._began))
            return sum(n for _, n, _ in self._blocks) / span, max((lag for *_, lag in self._blocks), default=0.0)

    def _forget(self) -> None:
        until = time.monotonic() - self.SECONDS
        while self._blocks and self._blocks[0][0] < until:
            self._blocks.popleft()


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
        id_field: The field of a reading that has its id; empty for none.
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
        id_field: str = DEFAULT_FIELD,
    ) -> None:
        self.model, self.settings, self.learn, self._warm_up = model, settings, learn, warm_up
        self.save_every, self.inbox, self.traffic = save_every, Inbox(_CAPACITY), Traffic()
        self._folder = journal or model.with_name(f"{model.name}.journal")
        #: Where each source that can be asked again goes on: its own kind of position, by name.
        self.positions: dict[str, Any] = {}
        #: The field of a reading that has its id, and the ids that were learned from.
        self.id_field, self.ids = id_field, KnownIds()
        self._payloads: dict[str, str] = {}  # the digest of the last payload of each topic that was learned from
        #: How sources and publishers do.
        self.sources: list[ConnectionStatus] = []
        self.publishers: list[ConnectionStatus] = []
        #: Readings taken since the service started; those of them that could not be used, and that were known.
        self.readings = self.malformed = self.repeated = 0
        self.saved_step = self.saved = 0
        #: When the model was saved, in seconds since 1970.
        self.saved_at = time.time()
        #: Seconds from the arrival of readings until they are learned from, and until they are safe.
        self.lag, self.latency = Histogram(), Histogram()
        #: The last prediction, and the recent rows, once there are any.
        self.latest: Prediction | None = None
        self.recent: RecentRows | None = None
        self.alarms = RecentAlarms()
        self._form = JSON
        #: Set once kernels are compiled; until then, and until they are learned from, readings are held back.
        self._compiled = threading.Event()
        self._held: deque[tuple[Sequence[tuple[int, Reading | Malformed]], TextForm]] = deque()
        self._held_count = self._replayed = 0
        self._compile_seconds: float | None = None  # until it is logged
        #: Why the last attempt to write to the disk failed; empty if it did not.
        self.trouble = ""
        #: What ended the thread, if it was an error.
        self.failure: BaseException | None = None
        #: Called with the line of every prediction, once its reading is safe. It must be set before ``open``, which
        #: publishes again what may not have been published before a crash.
        self.publish: Publisher | Callable[[bytes], None] | None = None
        self._unacknowledged: list[tuple[Incoming, Receipt]] = []
        self._first_unsynced = 0.0
        self._journal: Journal | None = None
        self._id: str | None = None  # the journal's
        self._locks = ExitStack()
        #: Held while the predictor changes, and by other threads while they read from it: its kernels run without the
        #: GIL, and scores are found in the same memory.
        self.predictor_lock = threading.Lock()
        self._thread = threading.Thread(target=self._work, name="emphatic learning", daemon=True)
        self._deadline = float("inf")
        #: What is to be asked, or no longer, by the thread: a function of the predictor, and its outcome.
        self._changes: SimpleQueue[tuple[Callable[[Predictor], None], Future[None]]] = SimpleQueue()

    # ------------------------------------------------------------------ beginning and end

    def open(self, wait: bool = True) -> None:
        """Load the model, if there is one, and learn from the journal; ValueError if they do not fit.

        Args:
            wait: Whether to wait for kernels that must be compiled first. If not, ``start`` compiles them in the
                background, and readings are written to the journal and learned from afterwards.
        """
        if wait:
            self._compiled.set()
        options: dict[str, Any] = {"learn": self.learn, "unit": "reading"}
        try:
            if self.learn:
                self._locks.enter_context(hold_lock(self.model.with_name(f".{self.model.name}.lock"), self.model))
            serve: dict[str, Any] = {"journal": 0}
            if self.model.exists():
                self.predictor, state = Predictor.load(self.model, **options)
                self.predictor.ask_further(self.settings, self.model)
                serve = state.get("serve", {})
                self.alarms = RecentAlarms(serve.get("alarms", ()))
                if "serve_ids" in state:
                    self.ids.load(np.asarray(state["serve_ids"], np.uint8).tobytes())
                self._watch()
            else:
                self.predictor = Predictor(self.settings, warm_up=self._warm_up, resilient=True, **options)
                if self._first.exists():
                    serve = self.predictor.load_warm_up(self._first)
                    self.ids.load(serve.get("ids", "").encode("utf-8", "surrogatepass"))
            if self.recent is not None and self.id_field in self.recent.names:
                logger.warning("%s: %r is a signal of the model, not an id.", self.model, self.id_field)
                self.id_field = ""
            self._payloads = dict(serve.get("payloads", {}))
            if self.publish is not None:
                for line in serve.get("unpublished", ()):
                    self.publish(line.encode())
            self.positions, self._id = dict(serve.get("positions", {})), serve.get("id")
            self.saved_step = self.predictor.step
            if self.learn:
                self._replay(serve.get("journal"))
        except BaseException:
            self._locks.close()
            raise
        if self.predictor.horde is None:
            logger.info("%s: no model yet; %d of %d readings to warm up on.", self.model, self.waiting, self.warm_up)
        else:
            logger.info("%s: continuing at step %d.", self.model, self.step)

    def start(self) -> None:
        """Start to learn."""
        if not self._compiled.is_set():
            threading.Thread(target=self._compile, name="emphatic compiling", daemon=True).start()
        self._thread.start()

    def _compile(self) -> None:
        """Compile or load all kernels that learning needs, so that no reading waits for one."""
        began = time.monotonic()
        try:
            compile_for_live(self.predictor.settings)
        except Exception as error:  # whatever it is, learning shows whether it matters
            logger.warning("kernels could not be compiled ahead: %s", error)
        self._compile_seconds = time.monotonic() - began
        self._compiled.set()

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
            logger.warning("the model is not saved: learning is busy. The journal has every acknowledged reading.")
        else:
            self._locks.close()

    # ------------------------------------------------------------------ what it is

    @property
    def warm_up(self) -> int:
        """The readings to warm up on."""
        return self.predictor.warm_up

    @property
    def waiting(self) -> int:
        """Readings of a warm-up that is not complete, or that wait for kernels."""
        return self.predictor.waiting + self._held_count

    @property
    def step(self) -> int:
        """The readings that the model has learned from."""
        return self.predictor.step

    @property
    def compiling(self) -> bool:
        """Whether readings are held back: until kernels are compiled, and those before them are learned from."""
        return bool(self._held) or not self._compiled.is_set()

    @property
    def warming_up(self) -> bool:
        """Whether there is no model yet, or readings wait for it."""
        return self.predictor.horde is None or self.compiling

    @property
    def state(self) -> WarmingUp:
        """How far the warm-up is: what is answered before the service is ready."""
        return WarmingUp(self.waiting, 0 if self.predictor.horde is not None else self.warm_up)

    @property
    def unacknowledged(self) -> int:
        """The readings that are learned from, and not on the disk yet."""
        return len(self._unacknowledged)

    @property
    def alive(self) -> bool:
        """Whether the thread that learns is there."""
        return self._thread.is_alive()

    @property
    def disconnected(self) -> str:
        """The source that has had no connection for too long; empty if there is none."""
        for status in self.sources:
            if (seconds := status.seconds_without()) > _SOURCE_TIMEOUT:
                why = f": {status.error}" if status.error else ""
                return f"{status.name}: no connection for {seconds:.0f} s{why}"
        return ""

    def journal_state(self) -> JournalState:
        """How large the journal is, and what was wrong with it."""
        return JournalState() if self._journal is None else self._journal.state()

    def publish_to(self, publisher: Publisher | None) -> None:
        """Publish predictions there, too. It must be called before ``open``."""
        self.publish = publisher
        if isinstance(status := getattr(publisher, "status", None), ConnectionStatus):
            self.publishers.append(status)

    def add_source(self, name: str) -> ConnectionStatus:
        """The status of a new source, which the source keeps current."""
        status = ConnectionStatus(name)
        self.sources.append(status)
        return status

    def rmse(self) -> list[tuple[str, str, float | None]]:
        """The errors so far of the values that are predicted: signal, horizon, root mean square."""
        if self.recent is None:
            return []
        with self.predictor_lock:
            asked = self.predictor.asked
            scores = asked.summary(asked.default)
        return [(name, f"{score['horizon']}", score["rmse"]) for score, name in values_at(scores)]

    # ------------------------------------------------------------------ the thread

    def _work(self) -> None:
        try:
            saved = time.monotonic()
            while not (self.inbox.closed and (not len(self.inbox) or time.monotonic() > self._deadline)):
                full = len(self._unacknowledged) >= _UNSYNCED or self._held_count >= _HELD
                catching_up = bool(self._held) and self._compiled.is_set()
                readings = [] if full else self.inbox.take(BLOCK, 0.0 if catching_up else _WAIT)
                if catching_up:
                    self._catch_up()
                elif self._compile_seconds is not None and not self.compiling:
                    self._log_compiled(self._compile_seconds)
                if readings:
                    self._learn(readings)
                self._change()
                self._sync(wait=bool(len(self.inbox)) and not full)
                if full and not catching_up:
                    time.sleep(_WAIT)
                if time.monotonic() - saved > self.save_every:
                    self._save()
                    saved = time.monotonic()
            self._end()
        except BaseException as error:
            self.failure = error
            logger.critical("learning ended with an error: %s", error, exc_info=True)
        finally:
            self.inbox.close()
            while not self._changes.empty():
                _, done = self._changes.get()
                if done.set_running_or_notify_cancel():
                    done.set_exception(EndedError("the service ends"))
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
            A future that is done when it is; its exception is a ValueError if the question cannot be asked, and an
            ``EndedError`` if the service ends before. While readings wait for kernels it waits too, and a future that
            is cancelled by then leaves the model as it is.
        """
        change = (lambda predictor: predictor.stop_asking(text)) if stop else (lambda predictor: predictor.ask(text))
        return self._submit(change)

    def _submit(self, change: Callable[[Predictor], None]) -> Future[None]:
        done: Future[None] = Future()
        self._changes.put((change, done))
        return done

    def export(self, path: Path) -> Future[None]:
        """Write the model as it is between two blocks of readings to a file, as ``emphatic nexting`` would.

        Args:
            path: The file.

        Returns:
            A future, as of ``ask``; its exception is a ValueError if there is no model yet.
        """

        def change(predictor: Predictor) -> None:
            if predictor.horde is None:
                raise ValueError("there is no model yet: the service is warming up")
            predictor.horde.save(path, **predictor.state())

        return self._submit(change)

    def _change(self) -> None:
        """Carry out the changes that wait, unless readings that came before them wait for kernels."""
        if self.compiling:
            return
        while not self._changes.empty():
            change, done = self._changes.get()
            if not done.set_running_or_notify_cancel():  # nobody waits for it any more
                continue
            try:
                with self.predictor_lock:
                    change(self.predictor)
            except (ValueError, ArithmeticError, RecursionError, OSError) as error:
                done.set_exception(ValueError(str(error)))
                continue
            if self.recent is not None:
                self.recent.format = self.predictor.format
            self.saved_step = -1  # the model is other than the saved one, though no reading came
            self._save()
            done.set_result(None)

    def _learn(self, block: Sequence[Incoming]) -> None:
        """Put the readings of a block into the journal, and learn from them; known ones are only acknowledged."""
        if not self._unacknowledged:
            self._first_unsynced = time.monotonic()
        for independent in _split_at_repeats(block):
            receipts = [self._recognise(incoming) for incoming in independent]
            entries: list[tuple[int, Reading | Malformed, dict[str, Any] | None]] = []
            for incoming, receipt in zip(independent, receipts, strict=True):
                if receipt is not None:
                    continue
                reading = incoming.reading
                if not isinstance(reading, Malformed) and is_deep(reading):
                    reading = Malformed("nested too deeply")
                if self._journal is not None and not isinstance(reading, Malformed):
                    self._journal.append(reading, incoming.text, incoming.origin)
                entries.append((self.readings + len(entries) + 1, reading, incoming.origin))
            outcomes = iter(self._go_through(entries))
            self._unacknowledged += [
                (incoming, Receipt(next(outcomes)) if receipt is None else receipt)
                for incoming, receipt in zip(independent, receipts, strict=True)
            ]
        moment = time.monotonic()
        self.traffic.add(len(block), moment - block[0].arrived)
        for incoming in block:
            self.lag.observe(moment - incoming.arrived)

    def _recognise(self, incoming: Incoming) -> Receipt | None:
        """The receipt of a reading that was learned from before; None for a new one."""
        origin = incoming.origin
        if origin is None or isinstance(incoming.reading, Malformed):
            return None
        known = self.ids.find(origin.get("ids", ()))
        if known is None and incoming.retained:
            topic, digest = origin["payload"]
            if self._payloads.get(topic) != digest:
                return None
        elif known is None:
            return None
        self.repeated += 1
        self._advance(origin)
        return Receipt(None, repeated=True, line=None if known is None else self.ids.answer(known))

    def _advance(self, origin: dict[str, Any]) -> None:
        """Take over where a source goes on."""
        self.positions |= {name: position for name, position in origin.items() if name not in _NO_POSITIONS}

    def _go_through(self, entries: Sequence[tuple[int, Reading | Malformed, dict[str, Any] | None]]) -> list[_Outcome]:
        """Learn from readings with their origins: how they were written, their ids, the position of their source."""
        outcomes: list[_Outcome] = []
        block: list[tuple[int, Reading | Malformed]] = []
        for number, reading, origin in entries:
            if origin is not None and "delimiter" in origin:
                form = TextForm(origin["delimiter"], tuple(origin["unnamed"]))
                if form != self._form:
                    outcomes += self._take(block)
                    self._form, block = form, []
            elif origin is not None:
                self._advance(origin)
            block.append((number, reading))
        outcomes += self._take(block)
        self._remember([(origin, outcome) for (_, _, origin), outcome in zip(entries, outcomes, strict=True) if origin])
        return outcomes

    def _remember(self, learned: Sequence[tuple[dict[str, Any], _Outcome]]) -> None:
        """Remember the ids of readings with the answers to those that came by HTTP, and the payloads of topics."""
        for origin, outcome in learned:
            if isinstance(outcome, Malformed):
                continue
            for id in origin.get("ids", ()):
                answer = b""
                if id.startswith("#") and isinstance(outcome, Prediction | WarmingUp):
                    answer = outcome.line
                self.ids.add(id, answer)
            if "payload" in origin:
                topic, digest = origin["payload"]
                self._payloads.pop(topic, None)
                self._payloads[topic] = digest
                if len(self._payloads) > _TOPICS:
                    del self._payloads[next(iter(self._payloads))]

    def _take(self, numbered: Sequence[tuple[int, Reading | Malformed]]) -> list[_Outcome]:
        """Learn from readings, or hold them back until kernels are compiled and those before them are learned from."""
        self.readings += len(numbered)
        if self.compiling:
            malformed = [(number, reading) for number, reading in numbered if isinstance(reading, Malformed)]
            self._learn_from(malformed, self._form)
            held = [(number, reading) for number, reading in numbered if not isinstance(reading, Malformed)]
            if held:
                self._held.append((held, self._form))
            outcomes: list[Any] = []
            for _, reading in numbered:
                self._held_count += not isinstance(reading, Malformed)
                outcomes.append(reading if isinstance(reading, Malformed) else self.state)
            return outcomes
        return self._learn_from(numbered, self._form)

    def _log_compiled(self, seconds: float) -> None:
        """Log that no reading has to wait any more."""
        self._compile_seconds = None
        logger.info("kernels are compiled or loaded, in %.1f s; learning from now on.", seconds)
        self._log_replayed()

    def _log_replayed(self) -> None:
        if self._replayed:
            logger.info("%s: learned again from %d readings since the last save.", self._folder, self._replayed)
        self._replayed = 0

    def _catch_up(self) -> None:
        """Learn from a block of the readings that were held back."""
        numbered, form = self._held[0]
        outcomes = self._learn_from(numbered, form)
        self._held.popleft()  # (only now: whoever asks is told that the service is ready when it is)
        self._held_count -= len(numbered)
        self._publish(outcomes)

    def _learn_from(self, numbered: Sequence[tuple[int, Reading | Malformed]], form: TextForm) -> list[_Outcome]:
        """``Predictor.take``, with its counts and what the page shows. Before there is a model: how many are needed."""
        waiting = self.predictor.waiting
        with self.predictor_lock:
            outcomes: list[Any] = self.predictor.take(numbered, form)
        self.malformed += sum(isinstance(outcome, Malformed) for outcome in outcomes)
        predictions = []
        for place, outcome in enumerate(outcomes):
            if isinstance(outcome, Prediction) and outcome.said is not None:
                predictions.append(outcome)
            elif not isinstance(outcome, Malformed):  # in the warm-up
                waiting += 1
                outcomes[place] = WarmingUp(waiting, self.warm_up)
        if predictions:
            self.latest = predictions[-1]
        if self.recent is None and self.predictor.horde is not None:
            self._watch()
        if self.recent is not None:
            self.recent.add(predictions)
            self.alarms.add(predictions, self.recent)
        return outcomes

    def _watch(self) -> None:
        """Prepare what watchers see of a model."""
        names = self.predictor.forecaster.horde.makers[0].signals
        self.recent = RecentRows(names, self.predictor.format)

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
        moment = time.monotonic()
        for incoming, receipt in done:
            self.latency.observe(moment - incoming.arrived)
            if incoming.acknowledge is not None:
                incoming.acknowledge(receipt)
        self._publish(receipt.outcome for _, receipt in done)

    def _publish(self, outcomes: Iterable[object]) -> None:
        if self.publish is not None:
            for outcome in outcomes:
                if isinstance(outcome, Prediction):
                    self.publish(outcome.line)

    def _save(self) -> bool:
        """Save the model with the position in the journal, and cut that; False if the disk does not take it."""
        journal, predictor = self._journal, self.predictor
        if self._held:  # the journal has them, and the model does not
            return False
        if journal is None or (predictor.step == self.saved_step and journal.last == self.saved):
            return True
        try:
            self._store(journal)
            journal.cut(journal.last)
        except OSError as error:
            self._report(f"{self.model}: the model cannot be saved: {error}; the journal keeps the readings since then")
            return False
        self.trouble = ""
        self.saved_step, self.saved, self.saved_at = predictor.step, journal.last, time.time()
        self._acknowledge()  # what the model holds is safe
        return True

    def _store(self, journal: Journal) -> None:
        """Write the model, or the readings of its warm-up, with the position in the journal."""
        serve: dict[str, Any] = {
            "journal": journal.last,
            "id": self._id,
            "positions": self.positions,
            "payloads": self._payloads,
            "alarms": self.alarms.rows(),
        }
        # What is learned and not acknowledged yet is published only after this.
        unconfirmed = getattr(self.publish, "unconfirmed", list)  # of a publisher that does not know, nothing
        unpublished = [*unconfirmed(), *self._unpublished_lines()]
        serve["unpublished"] = [line.decode() for line in unpublished]
        ids = self.ids.dump()
        self.model.parent.mkdir(parents=True, exist_ok=True)
        if self.predictor.horde is None:
            self.predictor.save_warm_up(self._first, **serve, ids=ids.decode("utf-8", "surrogatepass"))
        else:
            array = {"serve_ids": np.frombuffer(ids, np.uint8)} if ids else {}
            self.predictor.horde.save(self.model, **self.predictor.state(), serve=serve, **array)
            self._first.unlink(missing_ok=True)

    def _unpublished_lines(self) -> list[bytes]:
        """The predictions for readings that are learned from, and not acknowledged yet."""
        if self.publish is None:
            return []
        outcomes = (receipt.outcome for _, receipt in self._unacknowledged)
        return [outcome.line for outcome in outcomes if isinstance(outcome, Prediction)]

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
        is_missing = position is not None and journal.first > position + 1
        if (count and (position is None or is_missing or journal.id != self._id)) or (
            is_missing and journal.id == self._id and self._id is not None
        ):
            raise JournalError(
                f"{self._folder}: the journal, with {count} readings from number {journal.first} on, does not belong "
                f"to the model {self.model}, which has learned from {position or 0} readings of it. Serve its own "
                "model, or move the journal to another folder to continue from the last save of this model."
            )
        if is_missing:
            logger.warning(
                "%s: the journal has had %d readings that this model does not know; they are in another model.",
                self._folder,
                journal.last,
            )
        self._id = journal.mark(self._id)
        if position is None or is_missing:  # so that the model knows the journal before that has any readings
            try:
                self._store(journal)
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(self.model)) from None
        self.saved = position or 0
        journal.cut(self.saved)
        entries = journal.entries(self.saved)
        while block := list(islice(entries, BLOCK)):
            self._publish(self._go_through(block))  # perhaps again: nobody knows what was sent before the crash
        self._replayed, self.readings, self.malformed = self.readings, 0, 0
        if not self._held:
            self._log_replayed()

    @property
    def _first(self) -> Path:
        """The readings of a warm-up that is not complete."""
        return self.model.with_name(f"{self.model.name}.warm-up")

    def _report(self, trouble: str) -> None:
        """Log what is wrong with the disk, once."""
        if trouble != self.trouble:
            logger.error("%s.", trouble)
        self.trouble = trouble


#: What the origin of a reading may have besides the positions of sources.
_NO_POSITIONS = {"delimiter", "unnamed", "ids", "payload"}


def _split_at_repeats(block: Sequence[Incoming]) -> Iterator[list[Incoming]]:
    """The readings of a block, cut before each that may be known once those before it are learned from."""
    if not any(incoming.origin for incoming in block):
        yield list(block)
        return
    independent: list[Incoming] = []
    seen: set[str] = set()
    for incoming in block:
        origin = incoming.origin or {}
        names = {*origin.get("ids", ()), *([f"topic {origin['payload'][0]}"] if incoming.retained else ())}
        if names & seen:
            yield independent
            independent, seen = [], set()
        independent.append(incoming)
        seen |= names
        if "payload" in origin:
            seen.add(f"topic {origin['payload'][0]}")
    yield independent


# ---------------------------------------------------------------------- connections


class StreamConnection(Protocol):
    """A source of readings or a publisher of predictions: a thread that begins and ends with the service."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """End; what is not acknowledged by then comes again, if it can."""


class Publisher(StreamConnection, Protocol):
    """Where predictions go, besides HTTP."""

    def __call__(self, line: bytes) -> None:
        """Send a prediction.

        A publisher may also have a method ``unconfirmed``, the lines that the broker has not confirmed, which are saved
        with the model and sent again after a restart; and ``status``, a ``ConnectionStatus``.
        """
