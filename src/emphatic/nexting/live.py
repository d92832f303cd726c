"""Nexting on a pipe: a line of predictions for each reading as it comes, learning all the while.

Standard output carries predictions only. Lines that wait are learned from together, at most 256 at a time. A slow
consumer holds the producer back, for nothing is read before the last prediction is written. The model is saved now and
then, on SIGTERM and SIGINT, at the end and when the consumer goes away; a run that resumes from it continues with the
very next line.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from emphatic.common.locks import hold_lock
from emphatic.nexting.prediction_lines import format_lines
from emphatic.nexting.predictor import WARM_UP, Every, Prediction, Predictor
from emphatic.nexting.settings import Settings
from emphatic.tables.pipe import Malformed, Reading, Readings, line_blocks
from emphatic.tables.text import LOOK_LINES

__all__ = ["Every", "Live"]

logger = logging.getLogger("emphatic.nexting")


@dataclass
class Live:
    """``emphatic nexting -``."""

    model: Path
    settings: Settings
    learn: bool = True
    every: Every = field(default_factory=lambda: Every(None))
    save_every: float = 30.0
    warm_up: int = WARM_UP
    source: int = 0
    sink: int = 1

    def run(self) -> None:
        """Predict until the pipe ends, a signal comes, or the consumer goes away; ValueError if no line can be read."""
        for descriptor, name in ((self.source, "input"), (self.sink, "output")):
            try:
                os.fstat(descriptor)
            except OSError:
                raise ValueError(f"standard {name} is closed; readings come in and predictions go out there.") from None
        with _log_to_stderr(), self._alone():
            self._pending, self._stop, self._ended = b"", False, False
            self.predictor = self._load() if self.model.exists() else self._new()
            with _signals() as wake:
                try:
                    if self._pending:
                        self._write(self._pending, wake)
                    self._predict(wake)
                except BrokenPipeError:
                    logger.warning("the reader of the predictions has gone.")
                    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # so that nothing fails on the way out
                finally:
                    self._save()
            if self.predictor.waiting:
                logger.warning(
                    "stopped after %d of %d readings of the warm-up: they are saved; the next run goes on from them.",
                    self.predictor.waiting, self.warm_up,
                )  # fmt: skip
            self.predictor.log_counts()
            self.predictor.check_readable()
            if self._ended and not self.predictor.readings:
                raise ValueError("nothing could be read: standard input ended without a reading.")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other pipes from learning with the same model."""
        if not self.learn:
            yield
            return
        with hold_lock(self.model.with_name(f".{self.model.name}.lock"), self.model):
            yield

    def _predict(self, wake: int) -> None:
        predictor, saved = self.predictor, time.monotonic()
        look = min(LOOK_LINES, self.warm_up)
        readings = Readings((), predictor.columns, predictor.delimiter, look, predictor.header)
        for block in self._blocks(readings, wake):
            outcomes = predictor.take(block, readings.form)
            self._pending = b"".join(format_lines(each for each in outcomes if isinstance(each, Prediction)))
            self._write(self._pending, wake)
            if self._stop:
                return
            if time.monotonic() - saved > self.save_every:
                self._save()
                saved = time.monotonic()

    def _blocks(self, readings: Readings, wake: int) -> Iterator[list[tuple[int, Reading | Malformed]]]:
        """The readings that wait, until the pipe ends or a signal comes, and then those that were held back."""
        for lines in line_blocks(self.source, wake):
            yield list(readings.feed(lines))
        self._ended = not select.select([wake], [], [], 0)[0]
        yield list(readings.finish())

    def _write(self, text: bytes, wake: int) -> None:
        """Write the text; if a signal comes first, the rest of it stays pending."""
        at = 0
        while at < len(text):
            signalled, writable, _ = select.select([wake], [self.sink], [])
            self._stop = bool(signalled)
            if self._stop and not writable:
                self._pending = text[at:]
                return
            at += os.write(self.sink, text[at : at + select.PIPE_BUF])  # a pipe takes so much without blocking
        self._pending = b""

    # ------------------------------------------------------------------ the model

    def _new(self) -> Predictor:
        predictor = Predictor(self.settings, learn=self.learn, every=self.every, warm_up=self.warm_up)
        if self._first.exists():
            predictor.load_warm_up(self._first)
        logger.info(
            "no model yet: warming up on the first %d readings%s; until then predictions are the present readings.",
            self.warm_up, f", of which {predictor.waiting} were saved" if predictor.waiting else "",
        )  # fmt: skip
        return predictor

    @property
    def _first(self) -> Path:
        """The readings of a warm-up that is not complete."""
        return self.model.with_name(f"{self.model.name}.warm-up")

    def _load(self) -> Predictor:
        predictor, state = Predictor.load(self.model, learn=self.learn, every=self.every)
        ignored = self.settings.differences(replace(predictor.settings, delimiter=predictor.delimiter))
        if ignored:
            logger.warning(
                "%s: the model's own settings hold; ignored, since they differ: %s.", self.model, ", ".join(ignored)
            )
        self._pending = state.get("live", {}).get("pending", "").encode()
        logger.info("resuming from %s at step %d.", self.model, predictor.step)
        return predictor

    def _save(self) -> None:
        if not self.learn:
            return
        if self.predictor.horde is None:
            if self.predictor.waiting:
                self.predictor.save_warm_up(self._first)
            return
        state = self.predictor.state()
        state["live"]["pending"] = self._pending.decode()
        self.model.parent.mkdir(parents=True, exist_ok=True)
        self.predictor.horde.save(self.model, **state)
        self._first.unlink(missing_ok=True)


@contextmanager
def _signals() -> Iterator[int]:
    """A pipe that can be read once SIGTERM or SIGINT has come."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    handlers = {which: signal.signal(which, lambda *_: None) for which in (signal.SIGTERM, signal.SIGINT)}
    before = signal.set_wakeup_fd(write)
    try:
        yield read
    finally:
        signal.set_wakeup_fd(before)
        for which, handler in handlers.items():
            signal.signal(which, handler)
        os.close(read)
        os.close(write)


@contextmanager
def _log_to_stderr() -> Iterator[None]:
    """Log to standard error in plain lines: errors only, if that is the log level of the package."""
    handler, before = logging.StreamHandler(), (logger.level, logger.propagate)
    handler.setFormatter(logging.Formatter("emphatic: %(message)s"))
    quiet = logging.getLogger("emphatic").getEffectiveLevel() > logging.WARNING
    logger.setLevel(logging.ERROR if quiet else logging.INFO)
    logger.propagate = False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]
