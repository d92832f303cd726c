"""The answers suite: one mechanism for every question about the future, beside the forecasts of another checkout.

``python -m benchmarks answers --old CHECKOUT`` asks both for the value, the mean and the weighted mean of each signal
of the development logs at their horizons, and for probabilities that one is above the .9 quantile of its first half.
Labels are computed here, from readings as the guard takes them. The second half of the rows is compared.

No setting was chosen on the four logs ``UNSEEN``, which are reported apart.
"""

from __future__ import annotations

import argparse
import inspect
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

import emphatic
from benchmarks.development_logs import DevelopmentLog, development_logs, first_rows, is_installed
from benchmarks.forecasting import returns
from benchmarks.measure import Effort, Gate, gate
from benchmarks.report import Layout, Row
from emphatic.gvfs import durations
from emphatic.nexting.runs.settings import Settings
from emphatic.nexting.tables import Block, Clock, ReadingGuard, open_table

Array = NDArray[np.float64]
Answers = dict[str, Array]

ROOT = Path(__file__).parent.parent
EFFORT = Effort(1, 0.0)
LAYOUT = Layout(how="Every number is of the second half of the rows.")
UNSEEN = ("ausbeer", "seattle-weather", "solar power", "bike sharing")
#: Kinds of question, and how they are named: a weighted mean, a value, a mean, an event.
KINDS = ("E", "V", "M", "P")
#: Signals of a log that events are about; the share of labels that bands should hold.
EVENT_SIGNALS, COVERAGE = 2, 0.8
#: Separate windows from which on a single question may fail the gate; rows of a log that a refit ridge is fitted to.
WINDOWS, RIDGE_ROWS, REFIT = 20, 2000, 500


# ---------------------------------------------------------------------- questions and labels


class Asked(NamedTuple):
    """One question to a log: its kind, signal, horizon, text as typed, and threshold of an event."""

    kind: str
    signal: int
    horizon: int | str
    text: str
    threshold: float = math.nan


@dataclass(frozen=True, eq=False)
class Readings:
    """A log as it was read: blocks with the guard's verdicts, and what is known of its times."""

    names: tuple[str, ...]
    blocks: list[Block]
    clock: Clock | None
    dated: bool

    @classmethod
    def of(cls, source: object) -> Readings:
        """The rows of a table, guarded as a run guards them."""
        table = open_table(source)
        clock, guard = table.clock(), ReadingGuard(len(table.names))
        guard.warm_up(next(table.blocks(Settings().rows_to_warm_up(table, table.rows or 0))).values)
        return cls(
            table.names, [guard.mark(block) for block in table.blocks(8192, 0, clock)], table.clock(), table.dated
        )

    @property
    def step(self) -> float | None:
        """The usual step in seconds; None without times."""
        return float(self.clock.step) if self.clock is not None and self.clock.step > 0.0 else None

    @property
    def values(self) -> Array:
        """The readings as the guard takes them, (T, C)."""
        return np.concatenate([block.to_learn for block in self.blocks])

    @property
    def raw(self) -> Array:
        """The readings as they were read, NaN where the guard takes one for missing."""
        values = np.concatenate([block.values for block in self.blocks])
        return np.where(np.isnan(self.values), np.nan, values)

    @property
    def gap(self) -> NDArray[np.bool_]:
        """The rows that do not follow the row before."""
        return np.concatenate([block.gap if len(block.gap) else np.zeros(len(block), bool) for block in self.blocks])

    @property
    def time(self) -> Array:
        """The times in steps."""
        if self.step is None:
            return np.arange(len(self.values), dtype=np.float64)
        return np.concatenate([np.asarray(block.time, np.float64) for block in self.blocks]) / self.step

    def rows(self, horizon: int | str) -> float:
        """A horizon in steps."""
        return durations.seconds(horizon) / (self.step or 1.0) if isinstance(horizon, str) else float(horizon)


def questions_of(log: Readings, horizons: Sequence[int | str]) -> list[Asked]:
    """All questions to a log."""
    asked, half = [], log.raw[: len(log.raw) // 2]
    for i, name in enumerate(log.names):
        quoted = f"`{name}`"
        q90 = float(f"{np.nanquantile(half[:, i], 0.9):.6g}") if np.isfinite(half[:, i]).any() else math.nan
        for h in horizons:
            asked.append(Asked("E", i, h, f"{quoted}@{h}"))
            asked.append(Asked("V", i, h, f"{quoted} at +{h}"))
            asked.append(Asked("M", i, h, f"mean of {quoted} over {h}"))
            if i < EVENT_SIGNALS and math.isfinite(q90):
                length = h if isinstance(h, str) else f"{h} rows"
                asked.append(Asked("P", i, h, f"P({quoted} > {q90!r} within {length})", q90))
    return asked


def labels_of(log: Readings, question: Asked) -> Array:
    """The label of each row, NaN where it is not known: 90% of a window must have been read."""
    h, time = log.rows(question.horizon), log.time
    if question.kind == "E":
        x = log.values[:, [question.signal]]
        G, known = returns(x, log.gap, np.array([1.0 - 1.0 / h]))
        of_mean: Array = np.where(known, G, np.nan)[0]
        return of_mean
    x = (log.raw if question.kind == "P" else log.values)[:, question.signal]
    read, slack = ~np.isnan(x), 0.1
    begin = np.arange(len(x)) + 1
    end = np.maximum(np.searchsorted(time, time + h + slack, "right"), begin)
    closed = time + h - slack <= time[-1]
    if question.kind == "V":
        nearest = np.full(len(x), np.nan)
        for candidate in (end - 1, np.minimum(end, len(x) - 1)):
            is_near = np.abs(time[candidate] - time - h) <= 0.5
            nearest = np.where(is_near & (candidate >= begin) & np.isnan(nearest), x[candidate], nearest)
        return nearest
    y = np.where(read, x > question.threshold if question.kind == "P" else x, 0.0)
    sums, counts = (np.concatenate([[0.0], np.cumsum(array)]) for array in (y, read))
    count = counts[end] - counts[begin]
    enough = closed & (count >= 0.9 * math.floor(h + slack) - 1e-9) & (count > 0)
    with np.errstate(all="ignore"):
        mean = (sums[end] - sums[begin]) / count
    labels: Array = np.where(enough, mean > 0.0 if question.kind == "P" else mean, np.nan)
    return labels


# ---------------------------------------------------------------------- answers of both


def answers_by_run(source: object, log: Readings, asked: Sequence[Asked], horizons: Any) -> Answers:
    """The columns of a run of the version that is imported, by text; under "" its seconds for what is asked by default.

    An earlier version predicted weighted means unasked, and fitted in hindsight where that was not refused.
    """
    known = inspect.signature(emphatic.nexting.run).parameters
    options: dict[str, Any] = {"offline": False} if "offline" in known else {}
    began = process_time()
    result = emphatic.nexting.run(source, horizons=horizons, **options)
    out = {"": np.array(process_time() - began)}
    options |= {"weighted": True} if "weighted" in known else {}
    events = [question.text for question in asked if question.kind == "P"]
    tables = [result.predictions, emphatic.nexting.run(source, horizons=horizons, ask=events, **options).predictions]
    for question in asked:
        name = log.names[question.signal]
        texts = (question.text, question.text.replace(f"`{name}`", name))
        for end in ("", ".low", ".high"):
            for table in tables:
                for text in texts:
                    if f"{text}{end}" in table.column_names:
                        out[f"{question.text}{end}"] = table.column(f"{text}{end}").to_numpy()
    return out


def answers_alone(log: Readings, asked: Sequence[Asked], dated: bool = True, together: bool = True) -> Answers:
    """The answers without TD; without dates, or to the questions about each signal without the others."""
    from emphatic.nexting.answers.answers import Answers as Mechanism
    from emphatic.nexting.answers.timing import Timing

    timing = Timing.of(log.clock, log.dated and dated)
    rows = sum(map(len, log.blocks))
    out: Answers = {}
    for chosen in [range(len(log.names))] if together else [[c] for c in range(len(log.names))]:
        about = [question for question in asked if question.signal in chosen]
        mechanism = Mechanism([log.names[c] for c in chosen], [q.text for q in about], timing, COVERAGE, rows)
        answers = np.concatenate([mechanism(_only(block, chosen)) for block in log.blocks])
        out |= {question.text: answers[:, q, 0] for q, question in enumerate(about)}
    return out


def _only(block: Block, signals: Sequence[int]) -> Block:
    """The rows of a block with some of its signals."""
    places = list(signals)
    guarded = None if block.guarded is None else block.guarded[:, places]
    return replace(block, values=block.values[:, places], guarded=guarded)


def collect(name: str, out: Path) -> None:
    """Write the columns of a run of the checkout that is imported, for a development log."""
    (log,) = (log for log in development_logs() if log.name == name)
    readings = Readings.of(log.read())
    asked = questions_of(readings, log.horizons or ())
    emphatic.nexting.run({"x": np.sin(np.arange(300) / 9.0)}, horizons=(2,))  # compiles
    np.savez(out, **answers_by_run(log.read(), readings, asked, log.horizons))  # type: ignore[arg-type]


def answers_of_checkout(old: Path, name: str, folder: Path) -> Answers:
    """The answers of a run of another checkout."""
    out = folder / f"{name.replace(' ', '-')}.npz"
    if not out.exists():
        path = os.pathsep.join([str(old / "src"), os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, "-m", "benchmarks.answers", name, str(out)]
        subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": path}, check=True)
    with np.load(out) as arrays:
        return dict(arrays)


# ---------------------------------------------------------------------- scores


class Score(NamedTuple):
    """How good answers are: over rows of the second half whose label is known."""

    explained: float
    rmse: float
    mae: float
    coverage: float
    interval_score: float
    windows: float


def score(y: Array, answers: Answers, text: str, h: float) -> Score:
    """The score of answers to a question with these labels."""
    T = len(y)
    p = answers[text]
    use = (np.arange(T) >= T // 2) & np.isfinite(y) & np.isfinite(p)
    y, error = y[use], p[use] - y[use]
    variance = float(np.var(y)) if len(y) else 0.0
    if variance <= 1e-12 * float(np.mean(y**2) if len(y) else 0.0):
        return Score(math.nan, math.nan, math.nan, math.nan, math.nan, 0.0)
    square, coverage, interval = float(np.mean(error**2)), math.nan, math.nan
    if f"{text}.low" in answers and np.isfinite(answers[f"{text}.low"][use]).any():
        low, high = answers[f"{text}.low"][use], answers[f"{text}.high"][use]
        outside = np.maximum(low - y, 0.0) + np.maximum(y - high, 0.0)
        coverage = float(np.nanmean(np.where(np.isnan(outside), np.nan, outside <= 0.0)))
        interval = float(np.nanmean(high - low + 2.0 / (1.0 - COVERAGE) * outside))
    mae = float(np.mean(np.abs(error)))
    return Score(1.0 - square / variance, math.sqrt(square), mae, coverage, interval, len(y) / max(h, 1.0))


def refit_ridge(log: Readings, question: Asked, periods: Sequence[int]) -> Array:
    """A plain ridge for the value at +h, refitted every 500 rows on all labels known by then.

    Its features are the reading, lags 1 to 24, the readings that the log's periods say of the label, and hours of the
    week where there are hours.
    """
    h, y = round(log.rows(question.horizon)), labels_of(log, question)
    x = log.values[:, question.signal]
    x = x[np.maximum.accumulate(np.where(np.isnan(x), 0, np.arange(len(x))))]
    x = np.nan_to_num(x, nan=float(np.nanmean(x)))
    T, rows = len(x), np.arange(len(x))
    lags = [x[np.maximum(rows - k, 0)] for k in range(25)]
    lags += [x[np.maximum(rows - p + (h - 1) % p + 1, 0)] for p in periods]
    F = np.stack([np.ones(T), *lags], axis=1)
    if log.dated and log.step is not None and log.step <= 3600.0:
        hour = (log.time * log.step // 3600.0).astype(np.int64) % 168
        F = np.concatenate([F, np.eye(168)[hour]], axis=1)
    out, ridge = np.full(T, np.nan), np.full(F.shape[1], 1.0)
    ridge[0] = 1e-6
    scale = np.where(F.std(axis=0) > 0.0, F.std(axis=0), 1.0)
    F = F / scale
    A, b, done = np.zeros((F.shape[1], F.shape[1])), np.zeros(F.shape[1]), 0
    for begin in range(REFIT, T, REFIT):
        new = np.arange(done, max(done, begin - h))
        new, done = new[np.isfinite(y[new])], max(done, begin - h)
        A, b = A + F[new].T @ F[new], b + F[new].T @ y[new]
        out[begin : begin + REFIT] = F[begin : begin + REFIT] @ np.linalg.solve(A + np.diag(ridge), b)
    return out


@dataclass
class Comparison:
    """Scores of both, question by question.

    Args:
        ours: Those of this checkout.
        theirs: Those of the other.
        ridge: RMSE of values beside a refit ridge, ours and theirs over its own.
        naive: RMSE of values beside the present reading.
        seconds: The seconds of both.
    """

    kind: list[str] = field(default_factory=list)
    name: list[str] = field(default_factory=list)
    ours: list[Score] = field(default_factory=list)
    theirs: list[Score] = field(default_factory=list)
    ridge: list[tuple[float, float]] = field(default_factory=list)
    naive: list[tuple[str, float]] = field(default_factory=list)
    seconds: list[tuple[str, float, float, float]] = field(default_factory=list)

    def add(self, log: DevelopmentLog, theirs: Callable[[Readings, list[Asked]], Answers]) -> None:
        """Compare on one log."""
        readings = Readings.of(log.read())
        asked = questions_of(readings, log.horizons or ())
        old, new = theirs(readings, asked), answers_by_run(log.read(), readings, asked, log.horizons)
        T, C = readings.values.shape
        self.seconds.append((log.name, float(new[""]), float(old[""]), 1e6 / (T * C)))
        step = readings.step
        periods = [round(s / step) for s in (86400.0, 604800.0) if step and 2 <= s / step <= 2100]
        for question in asked:
            if question.text not in old:
                continue
            h, y = readings.rows(question.horizon), labels_of(readings, question)
            ours, before = score(y, new, question.text, h), score(y, old, question.text, h)
            if not math.isfinite(ours.explained + before.explained):
                continue
            self.kind.append(question.kind)
            self.name.append(f"{log.name}: {question.text}")
            self.ours.append(ours)
            self.theirs.append(before)
            if question.kind != "V":
                continue
            x = readings.values[:, question.signal]
            held = x[np.maximum.accumulate(np.where(np.isnan(x), 0, np.arange(T)))]
            self.naive.append((self.name[-1], ours.rmse / score(y, {"": held}, "", h).rmse))
            if T >= RIDGE_ROWS:
                rmse = score(y, {"": refit_ridge(readings, question, log.periods or periods)}, "", h).rmse
                self.ridge.append((ours.rmse / rmse, before.rmse / rmse))

    def rows(self, section: str, gates: tuple[str, ...]) -> Iterator[Row]:
        """A row for each line of the comparison."""
        kinds, ours, theirs = np.array(self.kind), np.array(self.ours), np.array(self.theirs)
        if not len(kinds):
            return
        change = ours[:, 0] - theirs[:, 0]

        def row(what: str, value: float, least: float | None = None, most: float | None = None) -> Row:
            return Row(section, what, gates, ratio=float(value), at_least=least, at_most=most)

        numbers = kinds != "P"
        for kind in KINDS[:3]:
            of = kinds == kind
            yield row(f"{kind}: variance explained, median difference", np.median(change[of]), least=-0.002)
            yield row(f"{kind}: variance explained, mean difference", np.mean(change[of]), least=0.0)
            yield row(f"{kind}: share worse by > .02", np.mean(change[of] < -0.02), most=0.12)
            yield row(f"{kind}: share better by > .02", np.mean(change[of] > 0.02))
            yield row(f"{kind}: mean absolute error, median ratio", np.median(ours[of, 2] / theirs[of, 2]), most=1.01)
            ratio = ours[of, 4] / theirs[of, 4]
            yield row(f"{kind}: coverage of bands, median", np.nanmedian(ours[of, 3]), least=0.78, most=0.82)
            yield row(f"{kind}: interval score, median ratio", np.nanmedian(ratio), most=1.01)
        yield row("all: share worse by > .02", np.mean(change[numbers] < -0.02), most=0.08)
        judged = numbers & (ours[:, 5] >= WINDOWS)
        yield row("all: worse by > .1, of 20 separate windows", float(np.sum(change[judged] < -0.1)), most=0.0)
        if self.ridge:
            ridge = np.array(self.ridge)
            yield row("V: RMSE beside a refit ridge, median", np.median(ridge[:, 0]), most=0.98)
            lost = np.mean(ridge > 1.02, axis=0)
            yield row("V: share lost to it by > 2%, more than the other's", max(lost[0] - lost[1], 0.0), most=0.0)
        yield row("V: RMSE beside the present value, worst", max(ratio for _, ratio in self.naive), most=1.05)
        if (of := kinds == "P").any():
            yield row("events: Brier skill, median difference", np.median(change[of]), least=-0.005)
            yield row("events: Brier skill, worst difference", np.min(change[of]), least=-0.03)
        cost = np.array([[ours, theirs] for _, ours, theirs, _ in self.seconds]).sum(axis=0)
        yield row("processor time, ours / theirs", cost[0] / cost[1], most=1.0)


def compare(arguments: Sequence[str], old: Path) -> tuple[list[Gate], list[Row]]:
    """The gates, and the rows of all development logs beside another checkout.

    Args:
        arguments: The suite and its options.
        old: The other checkout.
    """
    gates = list(OwnScores(True).gates())
    passed = tuple(gate.name for gate in gates)
    logs = [log for log in development_logs() if is_installed(log.package)]
    absent = [log.name for log in development_logs() if not is_installed(log.package)]
    rows = [Row("left out", name, passed, note="not installed") for name in absent]
    developed, unseen = Comparison(), Comparison()
    with tempfile.TemporaryDirectory() as folder:
        for log in logs:
            comparison = unseen if log.name in UNSEEN else developed
            comparison.add(log, lambda *_, name=log.name: answers_of_checkout(old, name, Path(folder)))
    rows += developed.rows("the logs on which it was developed", passed)
    rows += unseen.rows(f"logs on which nothing was chosen: {', '.join(UNSEEN)}", passed)
    return gates, rows


# ---------------------------------------------------------------------- our scores alone


@dataclass
class OwnScores:
    """Our answers to the household's log: the scores that they state are those computed here.

    Args:
        quick: Only the first rows.
    """

    quick: bool
    name: str = "the stated scores, from labels computed here"
    scores: dict[str, Score] = field(default_factory=dict)

    def gates(self) -> Iterator[Gate]:
        """Stated scores of values are those of labels computed here."""
        from emphatic.nexting.answers.answers import Answers as Mechanism
        from emphatic.nexting.answers.timing import Timing

        log = Readings.of(first_rows(2_000 if self.quick else 20_000))
        asked = [question for question in questions_of(log, ("2min", "1h")) if question.kind in ("V", "M")]
        rows = sum(map(len, log.blocks))
        mechanism = Mechanism(log.names, [q.text for q in asked], Timing.of(log.clock, log.dated), COVERAGE, rows)
        answers = np.concatenate([mechanism(block) for block in log.blocks])
        stated, computed = [], []
        for q, (question, summary) in enumerate(zip(asked, mechanism.summary(), strict=True)):
            y, h = labels_of(log, question), log.rows(question.horizon)
            self.scores[question.text] = score(y, {"": answers[:, q, 0]}, "", h)
            stated.append(summary["rmse"])
            computed.append(self.scores[question.text].rmse)
        is_scored = np.isfinite(computed)  # (some signals do not vary)
        yield gate(self.name, np.array(stated, np.float64)[is_scored], np.array(computed)[is_scored], 1e-6)

    def rows(self, _: Effort) -> Iterator[Row]:
        """The variance explained of each question, then what faults cost."""
        for text, of in self.scores.items():
            yield Row("household", text, (self.name,), ratio=of.explained)
        rows = 3_000 if self.quick else 24_000
        clean = explained_beside_fault(rows, lambda x: x)
        for fault, spoil in FAULTS.items():
            worst = float(np.min(explained_beside_fault(rows, spoil) - clean))
            yield Row(
                "variance explained, less that of the clean log", fault, (self.name,), ratio=worst, at_least=-0.03
            )
        yield from ablation([] if self.quick else development_logs(), self.name)


def ablation(logs: Sequence[DevelopmentLog], gate_name: str) -> Iterator[Row]:
    """What the mechanism loses without one of its parts: differences of the variance explained, over all questions."""
    changes: dict[str, list[float]] = {
        "without TD": [],
        "without TD and dates": [],
        "without TD, each signal alone": [],
    }
    for log in logs:
        if not is_installed(log.package) or log.name in UNSEEN:
            continue
        readings = Readings.of(log.read())
        asked = [question for question in questions_of(readings, log.horizons or ()) if question.kind != "P"]
        whole = answers_by_run(log.read(), readings, asked, log.horizons)
        parts = {"without TD": answers_alone(readings, asked)}
        parts["without TD and dates"] = answers_alone(readings, asked, dated=False)
        parts["without TD, each signal alone"] = answers_alone(readings, asked, together=False)
        for question in asked:
            y, h = labels_of(readings, question), readings.rows(question.horizon)
            of_all = score(y, whole, question.text, h).explained
            for name, answers in parts.items():
                change = score(y, answers, question.text, h).explained - of_all
                changes[name] += [change] if math.isfinite(change) else []
    for name, of_part in changes.items():
        if of_part:
            section, worst = "ablation: variance explained, less that of all parts", f"worst {min(of_part):.3f}"
            yield Row(section, f"{name}, median", (gate_name,), ratio=float(np.median(of_part)))
            yield Row(section, f"{name}, mean", (gate_name,), ratio=float(np.mean(of_part)), note=worst)


def _replaced(begin: float, count: int, value: Callable[[Array], Any]) -> Callable[[Array], Array]:
    """Replaces so many readings from a share of the rows on."""

    def spoil(x: Array) -> Array:
        first = int(begin * len(x))
        x = x.copy()
        x[first : first + count] = value(x[first : first + count])
        return x

    return spoil


#: What may happen to a sensor.
FAULTS: dict[str, Callable[[Array], Array]] = {
    "stuck for 138 rows": _replaced(0.55, 138, lambda x: x[0]),
    "30 rows at −999": _replaced(0.55, 30, lambda _: -999.0),
    **{f"a glitch of {sd:,} sd": _replaced(0.55, 1, partial(np.add, 4.0 * sd)) for sd in (10, 100, 1000)},
    "another level": _replaced(0.3, 10**9, lambda x: x + 30.0),
    "constant for 5,000 rows": _replaced(0.2, 5_000, lambda x: x[0]),
}


def explained_beside_fault(rows: int, spoil: Callable[[Array], Array]) -> Array:
    """The variance explained of values and means of an hourly signal with a fault, from .6 of the rows on."""
    from emphatic.nexting.answers.answers import Answers as Mechanism
    from emphatic.nexting.answers.timing import Timing

    rng, t = np.random.default_rng(0), np.arange(rows)
    x = 20.0 + 5.0 * np.sin(t / 24.0 * 2.0 * np.pi) + lfilter([1.0], [1.0, -0.9], rng.normal(size=rows))
    log = Readings.of({"time": np.datetime64("2024-01-01", "s") + t * 3600, "x": spoil(x)})
    asked = [question for question in questions_of(log, (2, 9, 36)) if question.kind in ("V", "M")]
    mechanism = Mechanism(log.names, [q.text for q in asked], Timing.of(log.clock, log.dated), COVERAGE, rows)
    answers = np.concatenate([mechanism(block) for block in log.blocks])
    late = slice(rows // 5, None)  # (whose second half is scored)
    return np.array(
        [score(labels_of(log, of)[late], {"": answers[late, q, 0]}, "", 1.0).explained for q, of in enumerate(asked)]
    )


def cases(quick: bool) -> Sequence[OwnScores]:
    """Our scores; the comparison needs another checkout."""
    return [OwnScores(quick)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.answers", description="Write the columns of a run.")
    parser.add_argument("log", help="a development log")
    parser.add_argument("out", type=Path, help="the file")
    arguments = parser.parse_args()
    collect(arguments.log, arguments.out)
