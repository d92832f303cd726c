"""The service: one thread that learns from what waits in the inbox, writes the journal, and saves the model.

A reading is acknowledged when it is in the journal and the journal is on the disk. Readings are synced in groups: as
soon as nothing waits, and at the latest a tenth of a second after the first of a group. After each save the journal is
cut; a service that was killed goes on from the last save through the journal, to the same bits.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from emphatic.common.locks import hold_lock
from emphatic.nexting.predictor import Outcome, Prediction, Predictor, format_lines
from emphatic.nexting.settings import Settings
from emphatic.serve.bodies import is_deep
from emphatic.serve.inbox import Inbox, Incoming, Receipt
from emphatic.serve.journal import Journal
from emphatic.serve.recent import RecentRows, RunningError, Traffic
from emphatic.tables.pipe import BLOCK, JSON, Malformed, Reading, TextForm

__all__ = ["Service"]

logger = logging.getLogger("emphatic.serve")

#: Readings that may wait.
_CAPACITY = 4096
#: Readings that may be learned and not acknowledged, while the disk takes nothing.
_UNSYNCED = 16 * BLOCK
#: Seconds: the longest wait for readings, from a reading to the sync of its group (and a block more), and between two
#: attempts on a disk that fails.
_WAIT, _GROUP, _RETRY = 0.1, 0.05, 0.5
#: Seconds that a service that is stopped goes on learning from what waits, and until it ends in any case.
_DRAIN, _END = 2.0, 4.5


class Service:
    """A model that learns from readings as they come.

    ``open`` loads the model and goes through the journal, ``start`` starts the thread, ``stop`` ends it, and ``close``
    waits until the model is saved.
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
        self._held = ExitStack()
        self._thread = threading.Thread(target=self._work, name="emphatic learning", daemon=True)
        self._deadline = float("inf")

    # ------------------------------------------------------------------ beginning and end

    def open(self) -> None:
        """Load the model, if there is one, and learn from the journal; ValueError if they do not fit."""
        options: dict[str, Any] = {"learn": self.learn, "unit": "reading"}
        try:
            if self.learn:
                self._held.enter_context(hold_lock(self.model.with_name(f".{self.model.name}.lock"), self.model))
            serve: dict[str, Any] = {"journal": 0}
            if self.model.exists():
                self.predictor, state = Predictor.load(self.model, **options)
                own = self.predictor.settings
                ignored = self.settings.differences(replace(own, delimiter=self.predictor.delimiter))
                if ignored:
                    named = ", ".join(ignored)
                    logger.warning(
                        "%s: the model's own settings hold; ignored, since they differ: %s.", self.model, named
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
            self._held.close()
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
            self._held.close()

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
                some = [] if full else self.inbox.take(BLOCK, _WAIT)
                if some:
                    self._learn(some)
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
            while left := self.inbox.take(BLOCK, 0.0):
                self._unacknowledged += [(one, Receipt(None, taken=False)) for one in left]
            for one, _ in self._unacknowledged:
                if one.acknowledge is not None:
                    one.acknowledge(Receipt(None, taken=False))
            if self._journal is not None:
                self._journal.close()

    def _learn(self, some: Sequence[Incoming]) -> None:
        """Put the readings of a block into the journal, and learn from them."""
        entries: list[tuple[int, Reading | Malformed, dict[str, Any] | None]] = []
        for number, one in enumerate(some, self.readings + 1):
            reading = one.reading
            if not isinstance(reading, Malformed) and is_deep(reading):
                reading = Malformed("nested too deeply")
            if self._journal is not None and not isinstance(reading, Malformed):
                self._journal.append(reading, one.text, one.origin)
            entries.append((number, reading, one.origin))
        if not self._unacknowledged:
            self._first_unsynced = time.monotonic()
        outcomes = self._go_through(entries)
        self.traffic.add(len(some), time.monotonic() - some[0].arrived)
        self._unacknowledged += [(one, Receipt(outcome)) for one, outcome in zip(some, outcomes, strict=True)]

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
        """``Predictor.take``, and what watchers want to know of it."""
        outcomes = self.predictor.take(numbered, self._form)
        self.readings += len(numbered)
        self.malformed += sum(isinstance(outcome, Malformed) for outcome in outcomes)
        made = [outcome for outcome in outcomes if isinstance(outcome, Prediction)]
        if made:
            self.latest = made[-1]
        if self.recent is None and self.predictor.horde is not None:
            self._watch()
        if self.recent is not None and self._errors is not None:
            rows = [one for one in made if one.format is self.recent.format]
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
        for one, reply in done:
            if one.acknowledge is not None:
                one.acknowledge(reply)
        if self.publish is not None:
            for line in format_lines(reply.outcome for _, reply in done if isinstance(reply.outcome, Prediction)):
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
        self._held.enter_context(hold_lock(self._folder / ".lock", self._folder))
        journal = self._journal = Journal(self._folder)
        held = journal.last - journal.first + 1
        if held and not self.model.exists() and not self._first.exists():
            self._id = journal.id  # of a model that was killed before it was ever saved
        if held and (position is None or journal.first > position + 1 or journal.id != self._id):
            raise ValueError(
                f"{self._folder}: the journal, with {held} readings from number {journal.first} on, does not follow on "
                f"the model {self.model}. Serve the model it belongs to, or move it elsewhere."
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
