"""Readings as they come: one row at a time, 20 signals at 4 horizons in blocks, and a pipe through its own process."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

from benchmarks.cases import Effort
from benchmarks.measure import Gate, Side, fastest, gate
from benchmarks.report import Row
from emphatic import GVF, features
from emphatic.hordes.horde import Horde
from emphatic.nexting.predictor import ENGINE, Prediction, Predictor, format_lines
from emphatic.nexting.settings import Settings
from emphatic.tables import Table, open_table
from emphatic.tables.pipe import Malformed, Reading, Readings

HORIZONS = (2, 9, 36, 144)
WARM_UP = 500
SECTION = "a reading of {} signals at {} horizons, {} learners of {:,} features"


def signals(T: int, C: int) -> dict[str, Any]:
    """C waves with noise, and the time."""
    rng, t = np.random.default_rng(0), np.arange(T)
    waves = {f"s{i}": np.round(np.sin(t / (40 + 10 * i)) + rng.normal(0, 0.1, T), 4) for i in range(C)}
    return {"time": 1.7e9 + t, **waves}


def json_lines(T: int, C: int) -> list[bytes]:
    columns = signals(T, C)
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    return [json.dumps(dict(zip(columns, row, strict=True))).encode() + b"\n" for row in rows]


def open_signals(T: int, C: int, start: int = 0) -> Table:
    return open_table({name: column[start:] for name, column in signals(T, C).items()})


@dataclass(frozen=True)
class Incoming:
    """T readings of C signals, learned from in blocks of 64 by the core, and by ``emphatic nexting -``."""

    T: int
    C: int
    #: Whether exponential means alone are predicted, and not the values at each horizon and the means up to it too.
    exponential_only: bool = False

    @property
    def name(self) -> str:
        return f"{self.C} signals as readings come" + (", --exponential-only" if self.exponential_only else "")

    def saved(self, folder: Path) -> tuple[Path, Horde]:
        """A model that is warmed up and has learned from the first rows; and its horde."""
        path = folder / "model.safetensors"
        settings = Settings(horizons=HORIZONS, exponential_only=self.exponential_only)
        predictor = Predictor(settings, warm_up=WARM_UP)
        predictor.take(Readings(json_lines(WARM_UP, self.C)))
        assert predictor.horde is not None
        predictor.horde.save(path, **predictor.state())
        return path, Horde.load(path, engine=ENGINE)

    def gates(self) -> Iterator[Gate]:
        with tempfile.TemporaryDirectory() as folder:
            path, horde = self.saved(Path(folder))
            reference = Horde.load(path, engine="reference")
            rows = WARM_UP + min(self.T, 60)
            values = np.stack([one for name, one in signals(rows, self.C).items() if name != "time"], axis=1)[WARM_UP:]
            want = reference.observe_many(values, time=signals(rows, self.C)["time"][WARM_UP:])
            yield gate(self.name, self.blocks(path, rows), want)

    def blocks(self, path: Path, rows: int, block: int = 64) -> Any:
        """The predictions at all rows after the warm-up."""
        predictor, _ = Predictor.load(path)
        numbered: list[tuple[int, Reading | Malformed]] = list(Readings(json_lines(rows, self.C)))[WARM_UP:]
        outcomes = [one for i in range(0, len(numbered), block) for one in predictor.take(numbered[i : i + block])]
        return np.array([one.values for one in outcomes if isinstance(one, Prediction)])

    def rows(self, effort: Effort) -> Iterator[Row]:
        with tempfile.TemporaryDirectory() as folder:
            path, horde = self.saved(Path(folder))
            learner = horde.learner
            section = SECTION.format(self.C, len(HORIZONS), learner.K, learner.n)
            section += ", --exponential-only" if self.exponential_only else ", values and means at each too"
            core, log, lines = self.core_and_log(path, effort.rounds)
            yield Row(
                section, "CPU time in blocks of 64, beside Horde.run on the same rows", gates=(self.name,),
                ours=core, alternative=log, versus="Horde.run", ratio=core / log, at_most=1.5,
            )  # fmt: skip
            yield Row(
                section, "CPU time with JSON lines parsed and written, beside the readings alone", gates=(self.name,),
                ours=lines, alternative=core, versus="take", ratio=lines / core, at_most=1.4,
            )  # fmt: skip
            rate = max(self.piped(path) for _ in range(max(1, effort.rounds // 2)))
            yield Row(
                section, "readings a second through a pipe, JSON in and JSON out", gates=(self.name,),
                ours=1e6 / rate, ratio=rate, at_least=5000,
            )  # fmt: skip

    def core_and_log(self, path: Path, rounds: int) -> tuple[float, float, float]:
        """The least CPU time of a reading in µs: by ``take`` in blocks of 64, by ``Horde.run``, and as a pipe takes it.

        The pipe parses the lines of the same blocks before, and writes those of the predictions after ``take``.
        """
        lines = json_lines(WARM_UP + self.T, self.C)
        numbered: list[tuple[int, Reading | Malformed]] = list(Readings(lines))[WARM_UP:]
        table, best = open_signals(WARM_UP + self.T, self.C, WARM_UP), [np.inf, np.inf, np.inf]
        for _ in range(rounds):
            predictor, _ = Predictor.load(path)
            predictor.take(numbered[:64])
            begin = process_time()
            for i in range(64, self.T, 64):
                predictor.take(numbered[i : i + 64])
            best[0] = min(best[0], (process_time() - begin) / (self.T - 64) * 1e6)
            horde = Horde.load(path)
            begin = process_time()
            horde.run(table)
            best[1] = min(best[1], (process_time() - begin) / self.T * 1e6)
            predictor, _ = Predictor.load(path)
            readings = Readings((), predictor.columns)
            predictor.take(list(readings.feed(lines[WARM_UP : WARM_UP + 64])), readings.form)
            begin = process_time()
            for i in range(64, self.T, 64):
                block = list(readings.feed(lines[WARM_UP + i : WARM_UP + i + 64]))
                outcomes = predictor.take(block, readings.form)
                b"".join(format_lines(outcome for outcome in outcomes if isinstance(outcome, Prediction)))
            best[2] = min(best[2], (process_time() - begin) / (self.T - 64) * 1e6)
        return best[0], best[1], best[2]

    def piped(self, path: Path) -> float:
        """Readings a second through a process, from the 256th answer to the last."""
        lines = json_lines(WARM_UP + self.T, self.C)[WARM_UP:]
        model = shutil.copy(path, path.with_name("piped.safetensors"))  # which goes on: the next round begins again
        command = [sys.executable, "-m", "emphatic.cli", "nexting", "-", "--model", str(model), "--save-every", "1h"]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            feed, out = process.stdin, process.stdout

            def write() -> None:
                feed.writelines(lines)
                feed.close()

            thread = threading.Thread(target=write)
            thread.start()
            first = min(256, self.T // 2)
            for _ in range(first):
                out.readline()
            begin = perf_counter()
            rest = sum(1 for _ in islice(out, self.T - first))
            seconds = perf_counter() - begin  # without the end, at which the model is saved
            answers = first + rest + sum(1 for _ in out)
            thread.join()
        if answers != self.T:
            raise RuntimeError(f"{answers} answers to {self.T} readings")
        return rest / seconds


@dataclass(frozen=True)
class RowByRow:
    """One row at a time: ``Horde.observe`` beside ``Horde.learn``, and ``Predictor.take`` beside blocks of 1,000."""

    T: int
    block: int = 1000

    @property
    def name(self) -> str:
        return "one row at a time"

    def horde(self) -> Horde:
        tiles = features.Tiles(["x"], tiles=8, tilings=8, range=[(0, 1)], spacing="equal")
        maker = features.Features([features.Bias(), tiles])
        return Horde([GVF("x", gamma=0.9)], maker, rates=1.0, alpha=0.1, centred=False, scaled=False)

    def hordes(self) -> tuple[Horde, Horde]:
        """The same question for rows of a log, and for transitions; both stand after the first reading."""
        by_row = self.horde().warm_up({"x": self.readings()[:100]}, 100)
        by_step = self.horde().prepare(["x"])
        by_row.observe({"x": self.readings()[0]})
        by_step.begin({"x": self.readings()[0]})
        return by_row, by_step

    def readings(self) -> list[float]:
        values: list[float] = np.random.default_rng(0).random(self.T).tolist()
        return values

    def predictor(self) -> Predictor:
        """Warmed up, and past the first solutions of its regressions."""
        predictor = Predictor(Settings(horizons=(2,)), warm_up=98)
        predictor.take(self.numbered()[:200])
        return predictor

    def numbered(self) -> list[tuple[int, Reading | Malformed]]:
        return [(t + 1, {"x": value}) for t, value in enumerate(self.readings())]

    def gates(self) -> Iterator[Gate]:
        by_row, by_step = self.hordes()
        readings = self.readings()[1:200]
        want = np.array([by_step.learn(None, 0.0, {"x": value}, False) for value in readings])
        yield gate(f"{self.name}: observe", np.array([by_row.observe({"x": value}) for value in readings]), want)
        alone, together, incoming = self.predictor(), self.predictor(), self.numbered()[200:400]
        singles = [outcome for reading in incoming for outcome in alone.take([reading])]
        got, want = (
            np.array([outcome.values for outcome in outcomes if isinstance(outcome, Prediction)])
            for outcomes in (singles, together.take(incoming))
        )
        yield gate(f"{self.name}: take", got, want, 0.0)

    def rows(self, effort: Effort) -> Iterator[Row]:
        by_row, by_step = self.hordes()
        alone, together, readings, numbered = self.predictor(), self.predictor(), self.readings(), self.numbered()

        def observe() -> None:
            for value in readings:
                by_row.observe({"x": value})

        def learn() -> None:
            for value in readings:
                by_step.learn(None, 0.0, {"x": value}, False)

        def take_singles() -> None:
            for reading in numbered:
                alone.take([reading])

        def take_blocks(size: int = self.block) -> None:
            for begin in range(0, self.T, size):
                together.take(numbered[begin : begin + size])

        calls = {"observe": observe, "learn": learn, "take": take_singles, "blocks": take_blocks}
        calls["small blocks"] = lambda: take_blocks(64)
        µs = fastest({name: Side(call, self.T) for name, call in calls.items()}, effort.rounds, effort.seconds)
        yield Row(
            self.name, "Horde.observe of a row, beside Horde.learn of a transition", gates=(f"{self.name}: observe",),
            ours=µs["observe"], alternative=µs["learn"], versus="learn", ratio=µs["observe"] / µs["learn"], at_most=2,
        )  # fmt: skip
        yield Row(
            self.name, f"Predictor.take of one reading, beside blocks of {self.block:,}", gates=(f"{self.name}: take",),
            ours=µs["take"], alternative=µs["blocks"], versus="blocks", ratio=µs["take"] / µs["blocks"], at_most=12,
        )  # fmt: skip
        yield Row(
            self.name, f"Predictor.take of 64 readings, beside blocks of {self.block:,}",
            gates=(f"{self.name}: take",), ours=µs["small blocks"], alternative=µs["blocks"], versus="blocks",
            ratio=µs["small blocks"] / µs["blocks"], at_most=2,
        )  # fmt: skip
