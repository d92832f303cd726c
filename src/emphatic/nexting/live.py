"""Forecasts live on a pipe: ``emphatic nexting -``; and kernels that are compiled before readings come."""

from __future__ import annotations

import logging
import math
import os
import select
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from emphatic.common.locks import hold_lock
from emphatic.nexting.runs.predictor import Every, Prediction, Predictor, format_lines
from emphatic.nexting.runs.settings import Settings
from emphatic.nexting.tables.pipe import Malformed, Reading, Readings, line_blocks
from emphatic.nexting.tables.text import LOOK_LINES

__all__ = ["Live", "compile_for_live"]

logger = logging.getLogger("emphatic.nexting")


# ---------------------------------------------------------------------- the pipe


@dataclass(frozen=True)
class Live:
    """``emphatic nexting -``: a line of predictions for each reading as it comes on a pipe, learning all the while.

    Standard output carries predictions only. Lines that wait are learned from together, at most 256 at a time. A slow
    consumer holds the producer back, for nothing is read before the last prediction is written. The model is saved now
    and then, on SIGTERM and SIGINT, at the end and when the consumer goes away; a run that resumes from it continues
    with the very next line.

    Args:
        model: The file of the model.
        settings: What to predict, and how.
        learn: Whether to learn; if not, the model only predicts.
        every: Which readings get a prediction.
        save_every: Seconds between two times that the model is saved.
        warm_up: The readings to warm up on; None for four times the longest horizon, as on a table.
        source: The file descriptor of the readings.
        sink: The file descriptor of the predictions.
    """

    model: Path
    settings: Settings
    learn: bool = True
    every: Every = field(default_factory=lambda: Every(None))
    save_every: float = 30.0
    warm_up: int | None = None
    source: int = 0
    sink: int = 1

    def run(self) -> None:
        """Predict until the pipe ends, a signal comes, or the consumer goes away; ValueError if no line can be read."""
        for descriptor, name in ((self.source, "input"), (self.sink, "output")):
            try:
                os.fstat(descriptor)
            except OSError:
                raise ValueError(f"standard {name} is closed. A pipe reads readings and writes predictions.") from None
        with _log_to_stderr(), self._alone():
            if self.model.exists():
                predictor, pending = self._load()
            else:
                predictor, pending = self._new(), b""
            with _signals() as wake:
                pipe = _Pipe(self, predictor, wake, pending)
                try:
                    pipe.write(pending)
                    pipe.predict()
                except BrokenPipeError:
                    logger.warning("the reader of the predictions has closed the pipe.")
                    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # so that nothing fails on the way out
                finally:
                    self.save(predictor, pipe.pending)
            if predictor.waiting:
                logger.warning(
                    "stopped after %d of %d readings of the warm-up: saved; the next run continues with them.",
                    predictor.waiting,
                    predictor.warm_up,
                )
            predictor.log_counts()
            predictor.check_readable()
            if pipe.ended and not predictor.readings:
                raise ValueError("nothing could be read: standard input ended without a reading.")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other pipes from learning with the same model."""
        if not self.learn:
            yield
            return
        with hold_lock(self.model.with_name(f".{self.model.name}.lock"), self.model):
            yield

    def _new(self) -> Predictor:
        predictor = Predictor(self.settings, learn=self.learn, every=self.every, warm_up=self.warm_up)
        if self._warm_up_file.exists():
            predictor.load_warm_up(self._warm_up_file)
        logger.info(
            "no model yet: warming up on the first %d readings%s; until then predictions are the current readings.",
            predictor.warm_up,
            f", of which {predictor.waiting} were saved" if predictor.waiting else "",
        )
        return predictor

    @property
    def _warm_up_file(self) -> Path:
        """The readings of a warm-up that is not complete."""
        return self.model.with_name(f"{self.model.name}.warm-up")

    def _load(self) -> tuple[Predictor, bytes]:
        """The predictor of the model, and the predictions that were not written before it was saved."""
        predictor, state = Predictor.load(self.model, learn=self.learn, every=self.every)
        predictor.ask_further(self.settings, self.model)
        latest = predictor.last_time
        logger.info(
            "resuming from %s at step %d%s. If a run was killed, send the readings after this one again.",
            self.model,
            predictor.step,
            "" if latest is None else f", after the reading of {latest}",
        )
        return predictor, state.get("live", {}).get("pending", "").encode()

    def save(self, predictor: Predictor, pending: bytes) -> None:
        """Save the model, or the readings of a warm-up, with the predictions that are not written yet."""
        if not self.learn:
            return
        if predictor.horde is None:
            if predictor.waiting:
                predictor.save_warm_up(self._warm_up_file)
            return
        state = predictor.state()
        state["live"]["pending"] = pending.decode()
        self.model.parent.mkdir(parents=True, exist_ok=True)
        predictor.horde.save(self.model, **state)
        self._warm_up_file.unlink(missing_ok=True)


class _Pipe:
    """One run of ``Live``: ``wake`` can be read once a signal has come, ``pending`` is text that is not written yet."""

    def __init__(self, live: Live, predictor: Predictor, wake: int, pending: bytes) -> None:
        self._live, self._predictor, self._wake, self.pending = live, predictor, wake, pending
        self._stop = False
        #: Whether the pipe ended, and no signal came.
        self.ended = False

    def predict(self) -> None:
        """Predict until the pipe ends or a signal comes."""
        predictor, saved = self._predictor, time.monotonic()
        look = min(LOOK_LINES, predictor.warm_up)
        readings = Readings((), predictor.columns, predictor.delimiter, look, predictor.header)
        for block in self._blocks(readings):
            outcomes = predictor.take(block, readings.form)
            self.write(b"".join(format_lines(outcome for outcome in outcomes if isinstance(outcome, Prediction))))
            if self._stop:
                return
            if time.monotonic() - saved > self._live.save_every:
                self._live.save(predictor, self.pending)
                saved = time.monotonic()

    def _blocks(self, readings: Readings) -> Iterator[list[tuple[int, Reading | Malformed]]]:
        """The readings that wait, until the pipe ends or a signal comes, and then those that were held back."""
        for lines in line_blocks(self._live.source, self._wake):
            yield list(readings.feed(lines))
        self.ended = not select.select([self._wake], [], [], 0)[0]
        yield list(readings.finish())

    def write(self, text: bytes) -> None:
        """Write text; if a signal comes first, what is not written stays pending."""
        self.pending, at = text, 0
        while at < len(text):
            signalled, writable, _ = select.select([self._wake], [self._live.sink], [])
            self._stop = bool(signalled)
            if self._stop and not writable:
                self.pending = text[at:]
                return
            at += os.write(self._live.sink, text[at : at + select.PIPE_BUF])  # a pipe takes this much without blocking
        self.pending = b""


@contextmanager
def _signals() -> Iterator[int]:
    """A pipe that can be read once SIGTERM or SIGINT has come."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    handlers = {which: signal.signal(which, lambda *_: None) for which in (signal.SIGTERM, signal.SIGINT)}
    previous = signal.set_wakeup_fd(write)
    try:
        yield read
    finally:
        signal.set_wakeup_fd(previous)
        for which, handler in handlers.items():
            signal.signal(which, handler)
        os.close(read)
        os.close(write)


@contextmanager
def _log_to_stderr() -> Iterator[None]:
    """Log to standard error in plain lines: errors only, if that is the log level of the package."""
    handler, level, propagate = logging.StreamHandler(), logger.level, logger.propagate
    handler.setFormatter(logging.Formatter("emphatic: %(message)s"))
    quiet = logging.getLogger("emphatic").getEffectiveLevel() > logging.WARNING
    logger.setLevel(logging.ERROR if quiet else logging.INFO)
    logger.propagate = False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


# ---------------------------------------------------------------------- kernels compiled ahead

# A kernel is compiled when it is first called, which takes seconds. What needs which kernels is known to the code that
# calls them alone. So a service runs that code before it is ready, on a few readings of every kind.

#: Readings of the warm-up, and after it: a block, and single ones.
_KERNEL_WARM_UP, _KERNEL_BLOCKS = 98, (30, 1, 1)
_KERNEL_HORIZONS = (2, 9)
#: A question with a policy, in a column of the readings.
_WITH_POLICY = (
    {"name": "if on", "cumulant": "level", "horizon": 2, "policy": {"column": "state", "target": {"on": 1.0}}},
)


def compile_for_live(settings: Settings | None = None) -> None:
    """Compile or load what ``emphatic serve`` and ``emphatic nexting -`` need.

    Args:
        settings: What will be predicted, and how. The rule, its step sizes, and whether a question has a policy decide
            which kernels there are.
    """
    settings = settings or Settings()
    plain = Settings(
        rule=settings.rule,
        stepsize=settings.stepsize,
        horizons=_KERNEL_HORIZONS,
        questions=_WITH_POLICY if any("policy" in question for question in settings.questions) else (),
    )
    with _silence(), tempfile.TemporaryDirectory() as folder:
        predictor = Predictor(plain, warm_up=_KERNEL_WARM_UP)
        readings = list(enumerate(_readings(_KERNEL_WARM_UP + sum(_KERNEL_BLOCKS)), start=1))
        predictor.take(readings[:_KERNEL_WARM_UP])
        at = _KERNEL_WARM_UP
        for count in _KERNEL_BLOCKS:
            predictor.take(readings[at : at + count])
            at += count
        path = Path(folder) / "model"
        predictor.save(path)
        Predictor.load(path)


def _readings(count: int) -> Iterator[dict[str, Any]]:
    """Readings of two signals and a label, ten minutes apart; some are missing and some are far off."""
    begin = datetime(2024, 1, 1)
    for t in range(count):
        level = 1e9 if t % 50 == 40 else round(math.sin(t / 7) + 0.1 * math.cos(t * t), 6)
        yield {
            "time": (begin + timedelta(minutes=10 * t)).isoformat(),
            "level": level,
            "flow": None if t % 20 == 15 else round(math.cos(t / 11), 6),
            "state": ("on", "off", "idle")[t % 3],
        }


@contextmanager
def _silence() -> Iterator[None]:
    """Keep what is said of these readings out of the log."""
    loggers = [logging.getLogger(name) for name in ("emphatic.nexting", "emphatic.nexting.tables")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
