"""Nexting on a pipe: a line of predictions for each reading as it comes, learning all the while.

Standard output carries predictions only. A slow consumer holds the producer back, for nothing is read before what was
made of the last reading is written. The model is saved now and then, on SIGTERM and SIGINT, at the end and when the
consumer goes away; a run that takes it up goes on with the very next line.
"""

from __future__ import annotations

import json
import math
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from emphatic.features import Features
from emphatic.hordes.horde import Horde
from emphatic.nexting.settings import Settings
from emphatic.questions import durations
from emphatic.tables import Clock, TableError, open_table
from emphatic.tables.pipe import Malformed, Reading, lines, moment, number, reader

__all__ = ["Every", "Live"]

#: Malformed lines that are told one by one; from there on they are counted.
_TOLD = 100
#: What a pipe takes at once without blocking, if it takes anything.
_ATOM = 512
#: Horizons in steps, where nothing says how long the stream will be.
_HORIZONS = (2, 9, 36, 144)


class Every:
    """Which readings get a line: every N-th, or one in so many seconds."""

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


@dataclass
class Live:
    """``emphatic nexting -``."""

    model: Path
    settings: Settings
    learn: bool = True
    every: Every = field(default_factory=lambda: Every(None))
    save_every: float = 30.0
    warm_up: int = 500
    source: int = 0
    sink: int = 1

    def run(self) -> None:
        """Until the pipe ends, a signal comes, or the consumer goes away."""
        self.horde: Horde | None = None
        self.clock: Clock | None = None
        self.step = self._malformed = 0
        self._waiting: list[Reading] = []
        self._pending, self._stop = b"", False
        self._when: tuple[str | None, float] = (None, 1.0)
        if self.model.exists():
            self._take_up()
        else:
            self._say(f"no model yet: warming up on the first {self.warm_up} readings.")
        with _wakened() as wake:
            try:
                if self._pending:
                    self._write(self._pending, wake)
                self._lines(wake)
            except BrokenPipeError:
                self._say("the reader of the predictions has gone.")
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # so that nothing fails on the way out
            finally:
                self._save()
        if self._waiting:
            self._say(
                f"stopped after {len(self._waiting)} of {self.warm_up} readings to warm up on: there is no model."
            )
        if self._malformed > _TOLD:
            self._say(f"{self._malformed} lines were malformed and skipped.")

    # ------------------------------------------------------------------ the loop

    def _lines(self, wake: int) -> None:
        parse, count, saved = None, 0, time.monotonic()
        for count, line in enumerate(lines(self.source, wake), start=1):
            try:
                if line is None:
                    raise Malformed("longer than 1 MiB")
                if not line.strip():
                    continue
                if parse is None:
                    parse, is_reading = reader(line)
                    if not is_reading:
                        continue
                made = self._observe(parse(line))
            except Malformed as error:
                self._malformed += 1
                if self._malformed <= _TOLD:
                    self._say(f"line {count}: {error}; skipped.")
                continue
            if made is not None:
                self._pending = made
                self._write(made, wake)
            if self._stop:
                return
            if time.monotonic() - saved > self.save_every:
                self._save()
                saved = time.monotonic()

    def _observe(self, reading: Reading) -> bytes | None:
        """Learn from a reading; the line to write for it, if it gets one."""
        if self.horde is None:
            self._waiting.append(reading)
            if len(self._waiting) >= self.warm_up:
                self._begin()
            return None
        names, categories = self._names
        if not any(name in reading for name in (*names, *categories)):
            raise Malformed(f"none of the signals {', '.join(names[:6])} is in it")
        # All fields are looked at before anything is learned.
        values = np.array([number(reading.get(name)) for name in names])
        shown, when = self._moment(reading)
        labels = {name: _label(reading.get(name)) for name in categories}
        if self.clock is not None and self.clock.follow(np.array([when]))[0]:
            self.horde.cut()
        step, self.step = self.step, self.step + 1
        answers = self.horde.observe(
            dict(zip(names, values.tolist(), strict=True)) | labels, time=when if self.clock is not None else None,
            learn=self.learn,
        )  # fmt: skip
        return self._line(step, shown, answers) if self.every(step, when) else None

    def _moment(self, reading: Reading) -> tuple[Any, float]:
        """The time of a reading as it came and in seconds; a time that cannot be read is none."""
        column, a_second = self._when
        if column is None:
            return None, math.nan
        if column in reading:
            shown = reading[column]
        else:  # a date and a time of day
            shown = " ".join(str(reading[part]) for part in column.split("+") if part in reading) or None
        try:
            return shown, moment(shown, a_second)
        except Malformed:
            return None, math.nan

    def _line(self, step: int, when: Any, answers: Any) -> bytes:
        numbers = [repr(value) if math.isfinite(value) else "null" for value in answers.tolist()]
        return (self._template % (step, json.dumps(when), *numbers)).encode()

    def _begin(self) -> None:
        """The warm-up is complete: make the horde, and learn from what was waiting."""
        waiting, self._waiting = self._waiting, []
        columns = {
            name: [_plain(reading.get(name)) for reading in waiting]
            for name in dict.fromkeys(k for r in waiting for k in r)
        }
        try:
            table = open_table(_tidy(columns), time=self.settings.time)
            horizons = self.settings.horizons or _HORIZONS
            settings = Settings(**{**self.settings.__dict__, "horizons": horizons}).filled(table, len(waiting))
        except (TableError, ValueError) as error:
            raise SystemExit(f"Error: the first {len(waiting)} readings cannot be learned from: {error}") from None
        self.settings, self.clock = settings, table.clock()
        features = Features.from_config(settings.features or ())
        step = None if self.clock is None else self.clock.step
        self.horde = Horde(settings.asked(), features, settings.rule, rates=settings.rates, step=step)
        self.horde.warm_up(table, len(waiting))
        for _, predictions in self.horde.blocks(table, self.clock):
            self.step += len(predictions)
        self._when = (table.time, table.a_second)
        self._ready()
        self._say(f"warmed up on {self.step} readings of {len(self._names[0])} signals; predicting from here on.")

    # ------------------------------------------------------------------ keeping

    def _ready(self) -> None:
        """What each line needs, made once."""
        horde = self.horde
        assert horde is not None
        self._names = horde.features.signals, horde.categories
        shown: dict[str, dict[str, str]] = {}
        for question in horde.questions:
            signal_, _, horizon = question.name.rpartition("@")
            shown.setdefault(signal_ or question.name, {})[horizon if signal_ else ""] = "%s"
        body = json.dumps(shown, ensure_ascii=False).replace("%", "%%").replace('"%%s"', "%s")
        self._template = '{"step": %d, "time": %s, "predictions": ' + body + "}\n"

    def _take_up(self) -> None:
        self.horde, more = Horde.load_with(self.model)
        self.settings = Settings.of(more["settings"])
        self.clock = None if more.get("clock") is None else Clock.restore(more["clock"])
        live = more.get("live", {})
        self.step = int(live.get("step", self.horde.rows))
        self._pending = live.get("pending", "").encode()
        column, a_second = live.get("when") or more.get("when") or (None, 1.0)
        self._when = column, float(a_second)
        self._ready()
        self._say(f"going on from {self.model}, at step {self.step}.")

    def _save(self) -> None:
        if self.horde is None or not self.learn:
            return
        clock = None if self.clock is None else self.clock.state()
        live = {"step": self.step, "pending": self._pending.decode(), "when": list(self._when)}
        self.model.parent.mkdir(parents=True, exist_ok=True)
        self.horde.save(self.model, settings=self.settings.table(), clock=clock, live=live, table={})

    def _write(self, text: bytes, wake: int) -> None:
        """All of it, unless a signal comes first: then it stays pending."""
        at = 0
        while at < len(text):
            ready, able, _ = select.select([wake], [self.sink], [])
            self._stop = bool(ready)
            if self._stop and not able:
                self._pending = text[at:]
                return
            at += os.write(self.sink, text[at : at + _ATOM])
        self._pending = b""

    def _say(self, text: str) -> None:
        print(f"emphatic: {text}", file=sys.stderr, flush=True)


@contextmanager
def _wakened() -> Iterator[int]:
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


def _label(value: Any) -> Any:
    return value if isinstance(value, str) and value else None


def _plain(value: Any) -> Any:
    """A field of a reading as a column can hold it."""
    return value if isinstance(value, str | bool | int | float) else None


def _tidy(columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Columns of one kind each: numbers where all are, else text."""
    out: dict[str, list[Any]] = {}
    for name, values in columns.items():
        plain = [value for value in values if value is not None]
        if all(isinstance(value, bool | int | float) for value in plain):
            out[name] = [None if value is None or not math.isfinite(value) else float(value) for value in values]
        else:
            out[name] = [None if value is None else str(value) for value in values]
    return out
