"""The forecasting suite: predictions beside what else one would pick to forecast a log, wins and losses alike.

All predict the same: the discounted mean G of what follows each row, in the signal's unit. All are scored on the same
rows, those of the second half whose G is known, by variance explained, 1 − MSE / Var(G). G is computed here without
the package, and the scores of our predictions against it must be those of ``summary.json`` before anything is timed.
The cost is CPU time on one thread, of fitting and predicting all questions, over all rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

import emphatic
from benchmarks.development_logs import DevelopmentLog, chosen_logs, development_logs, first_rows, is_installed
from benchmarks.forecasters import (
    FORECASTERS,
    Array,
    ForecastLog,
    SeasonalModel,
    Seasons,
    ar_forecast,
    lag_features,
    loess_jumps,
)  # fmt: skip
from benchmarks.measure import Case, Effort, Gate, gate
from benchmarks.report import RESULTS, Layout, Row

EFFORT = Effort(1, 0.0)
OURS = "emphatic"
#: The rows of logs that ``--quick`` takes: a smoke test.
QUICK_ROWS = 480
#: Questions count as lost, and as won, from this difference in variance explained on.
MARGIN = 0.02
#: The discounts of horizons below 32 rows, of which every row is scored.
_SHORT = 1.0 - 1.0 / 32.0
LAYOUT = Layout(
    columns=("horizon", OURS, *FORECASTERS),
    how="Variance explained on the second half of each log, the median over its signals, the best in bold. A dash: the "
    "log has no period that a user would know. Empty: the package is not installed. The predictions of emphatic were "
    "developed on these logs.",
    packages=(
        "numpy", "numba", "lightgbm", "river", "statsforecast", "pmdarima", "vega_datasets", "pydataset", "greykite",
    ),
)  # fmt: skip


def cases(
    quick: bool, tables: Sequence[Path] = (), horizons: Sequence[str] | None = None, keep_others: bool = False
) -> Sequence[Case]:
    """All logs, and what the closed forms of other forecasts are checked with.

    Args:
        quick: Only show that the suite works.
        tables: Logs of one's own, which come after the others.
        horizons: Those of the tables, steps or durations; by default found from each table.
        keep_others: Measure only our scores. Those of the others, and the CPU time of all, are taken from the last
            results: other forecasters do not change with this package.
    """
    logs = chosen_logs(tables, horizons)
    if quick:
        first = DevelopmentLog("the first rows of the household's log", "", lambda: first_rows(QUICK_ROWS), ("2min", 6))
        logs = [first, *logs[len(logs) - len(tables) :]]
    emphatic.nexting.run(first_rows(1_000))  # compiles what the first log would wait for
    stored = json.loads((RESULTS / "forecasting.json").read_text(encoding="utf-8"))["rows"] if keep_others else None
    absent = [] if quick else [log for log in development_logs() if not is_installed(log.package)]
    return [AllLogs([Forecasts(log, stored) for log in logs], absent), OtherForecasts()]


@dataclass(frozen=True)
class Score(Row):
    """All forecasters on one log at one horizon, or something that is counted of them, with a number for each.

    Args:
        values: By forecaster; None for one that does not apply.
        explained: By forecaster the score of every question.
        form: How a number is written.
        highest: Whether the highest number is set in bold.
    """

    values: dict[str, float | None] = field(default_factory=dict)
    explained: dict[str, dict[str, float]] = field(default_factory=dict)
    form: str = ".3f"
    highest: bool = False
    unit: str = ""

    def cells(self) -> tuple[str, ...]:
        """What stands in the table."""
        if not self.values:
            return self.note, *[""] * (len(LAYOUT.columns) - 1)
        written = {name: "–" if value is None else format(value, self.form) for name, value in self.values.items()}
        if self.highest:
            finite = [value for value in self.values.values() if value is not None and np.isfinite(value)]
            best = format(max(finite), self.form) if finite else ""
            written = {name: f"**{text}**" if text == best else text for name, text in written.items()}
        return self.what, *(written.get(name, "") for name in LAYOUT.columns[1:])


@dataclass
class Forecasts:
    """All forecasters on one log.

    - ``labels``: the questions; ``scores``: by forecaster that of each question, None for one that does not apply;
    - ``seconds``: the CPU time of each forecaster.

    Args:
        source: The log.
        stored: The rows of the last results, from which the scores of the others are taken; None to measure them.
    """

    source: DevelopmentLog
    stored: Sequence[Mapping[str, Any]] | None = None
    labels: list[str] = field(default_factory=list)
    scores: dict[str, Array | None] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the gate."""
        return f"{self.source.name}: the scores of summary.json, from returns computed here"

    def gates(self) -> Iterator[Gate]:
        """Our scores are those that the package states."""
        scoring: list[float] = []

        def note(phase: str, *_: object) -> None:
            if phase == "scoring" and not scoring:
                scoring.append(process_time())

        source = self.source.read()
        began = process_time()
        result = emphatic.nexting.run(
            source,
            horizons=self.source.horizons,
            weighted=True,
            progress=note,
        )
        self.seconds[OURS] = scoring[0] - began
        means = [score for score in result.summary[1:] if score["kind"] == "weighted"]
        self.labels = [f"{score['signal']}@{score['horizon']}" for score in means]
        self.log, self.G, self.known = prepare(source, result, self.source.periods)
        predictions = np.array([result.predictions.column(score["text"]).to_numpy() for score in means])
        self.scores[OURS] = variance_explained(predictions, self.G, self.known)
        # The package scores readings as its guard takes them. Here all are scored as they are.
        # Of long windows it scores some rows, not all; it sums a return to .99 of its weight, and fills in what lacks.
        complete = ~np.isnan(self.log.labels)
        of_windows = variance_explained(predictions, self.log.labels, complete)
        guarded, short = (
            result.reading["guarded"],
            np.tile(self.log.gammas < _SHORT, len(means) // len(self.log.gammas)),
        )
        table = emphatic.nexting.tables.open_table(source)
        holes = np.isnan(np.concatenate([block.values for block in table.blocks()])).any(axis=0)
        whole = {name for name, hole in zip(table.names, holes, strict=True) if not hole and name not in guarded}
        comparable = np.array([score["signal"] in whole for score in means]) & short & (result.reading["gaps"] == 0)
        stated = np.array([score["variance_explained"] for score in means], np.float64)  # (None becomes NaN)
        comparable &= ~np.isnan(stated)
        if comparable.any():  # (predictions are stored in float32, and scores computed before that)
            yield gate(self.name, of_windows[comparable], stated[comparable], 1e-5)

    def rows(self, _: Effort) -> Iterator[Row]:
        """A row for each horizon, then how often each forecaster is the best, and what it costs."""
        if self.stored is None:
            self.measure_others()
        else:
            self.keep_others([row for row in self.stored if row["section"].startswith(f"{self.source.name}: ")])
        labels, (T, C), H = self.labels, self.log.held.shape, len(self.log.gammas)
        ours = self.scores[OURS]
        assert ours is not None
        section = f"{self.source.name}: {T:,} rows × {C} signals"
        for h in range(H):
            here = {name: None if scores is None else scores[h::H] for name, scores in self.scores.items()}
            if all(scores is None or np.isnan(scores).all() for scores in here.values()):
                continue  # the log is too short for this horizon
            yield Score(
                section, labels[h].rsplit("@")[-1], (self.name,),
                values={name: None if scores is None else float(np.nanmedian(scores)) for name, scores in here.items()},
                explained={
                    name: dict(zip(labels[h::H], scores.tolist(), strict=True))
                    for name, scores in here.items() if scores is not None
                },
                highest=True, ours=float(np.nanmedian(ours[h::H])),
            )  # fmt: skip
        highest = self.highest()
        best = {
            name: None if scores is None else float(np.sum(scores == highest)) for name, scores in self.scores.items()
        }
        yield Score(section, f"best of {np.sum(~np.isnan(highest))} questions", (self.name,), values=best, form=".0f")
        seconds = {name: None if scores is None else self.seconds[name] for name, scores in self.scores.items()}
        yield Score(section, "CPU seconds", (self.name,), values=seconds, form=",.2f")

    def measure_others(self) -> None:
        """Score and time the forecasters whose packages are installed."""
        for name, (forecast, package) in FORECASTERS.items():
            if is_installed(package):
                began = process_time()
                predictions = forecast(self.log)
                self.seconds[name] = process_time() - began
                scored = None if predictions is None else variance_explained(predictions, self.G, self.known)
                self.scores[name] = scored

    def keep_others(self, stored: Sequence[Mapping[str, Any]]) -> None:
        """Take the scores of the others, and the CPU time of all, from the rows of this log in the last results."""
        explained: dict[str, dict[str, float]] = {name: {} for name in FORECASTERS}
        for row in stored:
            for name, scores in row["explained"].items():
                explained.setdefault(name, {}).update(scores)
            if row["what"] == "CPU seconds":
                self.seconds |= {name: spent for name, spent in row["values"].items() if spent is not None}
        for name in FORECASTERS:
            scores = explained[name]
            if scores and not set(self.labels) >= set(scores):
                raise SystemExit(
                    f"{self.source.name}: the last results have other questions; run without --keep-others"
                )
            values = np.array([scores.get(label, np.nan) for label in self.labels])
            self.scores[name] = values if scores else None

    def highest(self) -> Array:
        """The best score of each question."""
        highest: Array = np.fmax.reduce([scores for scores in self.scores.values() if scores is not None])
        return highest


def variance_explained(predictions: Array, G: Array, known: NDArray[np.bool_]) -> Array:
    """The variance explained on the second half, of each question; NaN where the return does not vary."""
    explained = np.full(len(G), np.nan)
    for q, (p, g, known_rows) in enumerate(zip(predictions, G, known, strict=True)):
        rows = known_rows & (np.arange(len(g)) >= len(g) // 2)
        if rows.any() and np.ptp(g[rows]) > 0.0:
            explained[q] = 1.0 - np.mean((p[rows] - g[rows]) ** 2) / np.var(g[rows])
    return explained


@dataclass
class AllLogs:
    """The counts over all logs, then each log; and the logs whose package is not installed."""

    logs: Sequence[Forecasts]
    absent: Sequence[DevelopmentLog] = ()

    def gates(self) -> Iterator[Gate]:
        """Those of the logs."""
        for log in self.logs:
            yield from log.gates()

    def rows(self, effort: Effort) -> Iterator[Row]:
        """The rows of all logs, the counts first."""
        rows = [row for log in self.logs for row in log.rows(effort)]
        yield from sum_up(self.logs)
        yield from rows
        for log in self.absent:
            yield Score("not compared", log.name, (), note=f"{log.name}: the package {log.package} has it")


def sum_up(logs: Sequence[Forecasts]) -> Iterator[Row]:
    """Over the questions of all logs: how often each forecaster is the best, far behind the best, and beside ours."""
    names = [name for name in LAYOUT.columns if any(name in log.scores for log in logs)]
    counts: dict[str, dict[str, float | None]] = {}
    for name in names:
        pairs = [(log, scores) for log in logs if (scores := log.scores.get(name)) is not None]
        if not pairs:
            continue
        theirs = np.concatenate([scores for _, scores in pairs])
        highest = np.concatenate([log.highest() for log, _ in pairs])
        ours = np.concatenate([log.scores[OURS] for log, _ in pairs])
        counts.setdefault("questions", {})[name] = float(np.sum(~np.isnan(theirs)))
        counts.setdefault("is the best", {})[name] = float(np.sum(theirs == highest))
        counts.setdefault("more than .05 below the best", {})[name] = float(np.sum(theirs < highest - 0.05))
        if name != OURS:
            counts.setdefault(f"{OURS} loses to it by more than {MARGIN:g}", {})[name] = float(
                np.sum(theirs > ours + MARGIN)
            )
            counts.setdefault(f"{OURS} wins by more than {MARGIN:g}", {})[name] = float(np.sum(ours > theirs + MARGIN))
    gates = tuple(log.name for log in logs)
    for what, values in counts.items():
        yield Score("all questions of all logs", what, gates, values=values, form=".0f")


class OtherForecasts:
    """Forecasts of a discounted mean in closed form, beside those summed over statsforecast's own forecasts."""

    def gates(self) -> Iterator[Gate]:
        """One for the autoregression, and one for MSTL."""
        if not is_installed("statsforecast"):
            return
        from statsforecast.models import ARIMA, MSTL

        x, gamma = first_rows(500)["Voltage"], 0.9
        weights = (1 - gamma) * gamma ** np.arange(400)
        model = ARIMA(order=(2, 0, 0)).fit(x[:300])
        coefficients = model.model_["coef"]
        mean = model.forward(x, h=400)["mean"]
        phi = np.array([coefficients["ar1"], coefficients["ar2"]])
        got = ar_forecast(x[None, :-3:-1], phi, coefficients["intercept"], gamma)
        yield gate("AR: as statsforecast forecasts", got, np.array([weights @ mean]))

        periods = (12, 60)
        mean = MSTL(list(periods), stl_kwargs=loess_jumps(periods)).fit(x).predict(400)["mean"]
        got = SeasonalModel.fit(x, periods).forecast(x[:0], np.array([gamma]))[0]
        yield gate("MSTL: as statsforecast forecasts", got, np.array([weights @ mean]))

    def rows(self, _: Effort) -> Iterator[Row]:
        """None."""
        yield from ()


def prepare(source: Any, result: Any, periods: tuple[int, ...] | None) -> tuple[ForecastLog, Array, NDArray[np.bool_]]:
    """The log as forecasters are given it; the returns and where they are known, (Q, T).

    Args:
        source: The path or the frame.
        result: Of ``emphatic.nexting.run`` on it.
        periods: Its periods in rows, or None for those that its stamps suggest.
    """
    table = emphatic.nexting.tables.open_table(source)
    clock, signals = table.clock(), list(result.settings.predict)
    blocks = [(block.values, block.time, block.find_gaps(clock)) for block in table.blocks()]
    x = np.concatenate([values for values, _, _ in blocks])[:, [table.names.index(name) for name in signals]]
    gap = np.concatenate([gap for _, _, gap in blocks])
    time = np.concatenate([time for _, time, _ in blocks]) if table.dated else None
    gammas = np.array(result.settings.gammas(table))
    G, known = returns(x, gap, gammas)
    delay = np.array([1 if g == 0.0 else int(np.ceil(np.log(0.01) / np.log(g) - 1e-9)) for g in gammas])
    labels, complete = returns(x, gap, gammas, delay)
    held = hold(x)
    seasons = Seasons.find(held, time, None if clock is None else clock.step, periods)
    X = lag_features(held, time, seasons, float(1.0 / (1.0 - gammas.max())))
    labels = np.where(complete, labels, np.nan)
    return ForecastLog(held, X, gammas, labels, delay, seasons, seasons.repeat(gammas)), G, known


def returns(
    x: Array, gap: NDArray[np.bool_], gammas: Array, delay: NDArray[np.int64] | None = None
) -> tuple[Array, NDArray[np.bool_]]:
    """G_t = Σ w_k x_{t+1+k} / Σ w_k over the readings there are, w_k = (1 − γ) γᵏ, up to a gap; with a ``delay`` only
    over the next so many rows. Known where .99 of the weight lies before the gap or the end, and half was read, from
    the first reading on."""
    T, C = x.shape
    H, centre = len(gammas), hold(x)[0]
    γ = np.tile(gammas, C)
    read = ~np.isnan(x)
    # by row: the sum of weighted readings, the weight that was read, and the weight there is, each of what follows
    sums = np.zeros((T, 3, C * H))
    state = np.zeros((3, C * H))
    for t in range(T - 2, -1, -1):
        if gap[t + 1]:
            state[:] = 0.0
        else:
            now = np.stack([np.where(read[t + 1], x[t + 1] - centre, 0.0), read[t + 1], np.ones(C)])
            state = γ * state + (1.0 - γ) * np.repeat(now, H, axis=1)
        sums[t] = state
    if delay is not None:
        for q in range(C * H):
            k = min(int(delay[q % H]), T)
            sums[: T - k, :, q] -= γ[q] ** k * sums[k:, :, q].copy()
    with np.errstate(invalid="ignore", divide="ignore"):
        G = sums[:, 0] / sums[:, 1] + np.repeat(centre, H)
    begun = np.repeat(np.maximum.accumulate(read, axis=0), H, axis=1)
    known = (sums[:, 2] >= 0.99 - 1e-9) & (sums[:, 1] >= 0.5 - 1e-9) & begun
    return G.T, known.T


def hold(x: Array) -> Array:
    """The last reading where one is missing; the first one, before there is any; 0 if there never is."""
    read = ~np.isnan(x)
    last = np.maximum.accumulate(np.where(read, np.arange(len(x))[:, None], 0), axis=0)
    last = np.where(np.maximum.accumulate(read, axis=0), last, np.argmax(read, axis=0))
    return np.nan_to_num(np.take_along_axis(x, last, axis=0))
