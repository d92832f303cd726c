"""The forecasting suite: predictions beside what else one would pick to forecast a log, wins and losses alike.

All predict the same: the discounted mean G of what follows each row, in the signal's unit. All are scored on the same
rows, those of the second half whose G is known, by variance explained, 1 − MSE / Var(G). G is computed here without
the package, and the scores of our predictions against it must be those of ``summary.json`` before anything is timed.
The cost is CPU time on one thread, of fitting and predicting all questions, over all rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

import emphatic
from benchmarks.cases import Effort, run_cases
from benchmarks.forecasters import FORECASTERS, Array, ForecastLog, ar_forecast, is_installed, lag_features
from benchmarks.measure import Gate, gate
from benchmarks.report import Layout, Row

HORIZONS = ("2min", "1h", "6h", "1d")
INSTALL = "pip install --group forecasting to compare"
OURS = "emphatic nexting"
LAYOUT = Layout(
    columns=("forecaster", "first", "second", "third", "fourth", "best in", "µs a row"),
    how="Variance explained on the second half, the median over the signals, at each of four horizons; in how many of "
    "all questions a forecaster is the best; and CPU time a row, for all questions together.",
    packages=("numpy", "numba", "lightgbm", "river", "statsforecast"),
)


def run(
    quick: bool = False, table: Path | None = None, horizons: Sequence[str] | None = None
) -> tuple[list[Gate], list[Row]]:
    """Every gate and every row; ``quick`` only shows that the suite works. A ``table`` of one's own comes second."""
    if quick:
        logs = [
            Forecasts("the first day of the log of the package", _first_rows(1_440), ("2min", "4min", "8min", "15min"))
        ]
    else:
        logs = [Forecasts("the log of the package", emphatic.data.household(), HORIZONS)]
    if table is not None:
        logs.append(Forecasts(table.name, table, horizons and tuple(int(h) if h.isdigit() else h for h in horizons)))
    emphatic.nexting.run(_first_rows(1_000), offline=False)  # compiles what the first log would wait for
    return run_cases([*logs, Autoregression()], Effort(1, 0.0))


def _first_rows(rows: int) -> dict[str, Any]:
    table = emphatic.streams.open_table(emphatic.data.household())
    block = next(table.blocks(rows))
    return {name: block.values[:, i] for i, name in enumerate(table.names)} | {"time": block.time}


@dataclass(frozen=True)
class Score(Row):
    """One forecaster on one log: the score of every question, the medians at each horizon, and how often it is best."""

    explained: dict[str, float] | None = None
    medians: tuple[float, ...] = ()
    best: int = 0

    def cells(self) -> tuple[str, ...]:
        if self.explained is None:
            return self.what, *[""] * (len(LAYOUT.columns) - 2), self.note
        medians = [f"{median:.3f}" for median in self.medians] + [""] * (4 - len(self.medians))
        return self.what, *medians, f"{self.best} of {len(self.explained)}", f"{self.ours:,.1f}"


@dataclass
class Forecasts:
    """All forecasters on one log."""

    name: str
    source: Any
    horizons: Sequence[int | str] | None

    @property
    def gate(self) -> str:
        return f"{self.name}: the scores of summary.json, from returns computed here"

    def gates(self) -> Iterator[Gate]:
        spent: dict[str, float] = {}

        def note(phase: str, *_: object) -> None:
            spent.setdefault(phase, process_time())

        self.result = emphatic.nexting.run(
            self.source, horizons=self.horizons, offline=False,
            announce=lambda _: note("begin"), progress=note,
        )  # fmt: skip
        summary = self.result.summary
        self.labels = [f"{score['signal']}@{score['horizon']}" for score in summary]
        self.seconds = spent["scoring"] - spent["begin"]
        self.log, self.G, self.known = prepare(self.source, self.result)
        ours = np.array([self.result.predictions.column(name).to_numpy() for name in self.labels])
        self.scores = {OURS: self.score(ours)}
        stated = np.array(
            [np.nan if score["variance_explained"] is None else score["variance_explained"] for score in summary]
        )
        assert (np.isnan(stated) == np.isnan(self.scores[OURS])).all()
        yield gate(self.gate, np.nan_to_num(self.scores[OURS]), np.nan_to_num(stated))

    def rows(self, effort: Effort) -> Iterator[Row]:
        cost = {OURS: self.seconds}
        for name, (forecast, package) in FORECASTERS.items():
            if is_installed(package):
                began = process_time()
                predictions = forecast(self.log)
                cost[name] = process_time() - began
                self.scores[name] = self.score(predictions)
        best = np.max(np.nan_to_num(list(self.scores.values()), nan=-np.inf), axis=0)
        C, H = self.log.held.shape[1], len(self.log.gammas)
        horizons = ", ".join(str(score["horizon"]) for score in self.result.summary[:H])
        section = f"{self.name}, {self.log.T:,} rows × {C} signals: {horizons}"
        for name in (OURS, *FORECASTERS):
            if name not in self.scores:
                yield Score(section, name, gates=(self.gate,), note=INSTALL)
                continue
            explained = self.scores[name]
            medians = tuple(float(m) for m in np.nanmedian(explained.reshape(C, H), axis=0))
            yield Score(
                section, name, gates=(self.gate,), ours=cost[name] / self.log.T * 1e6,
                explained=dict(zip(self.labels, explained.tolist(), strict=True)), medians=medians,
                best=int(np.sum(explained == best)),
            )  # fmt: skip

    def score(self, predictions: Array) -> Array:
        """The variance explained on the second half, of each question; NaN where the return does not vary."""
        explained = np.full(len(self.G), np.nan)
        for q, (p, G, known) in enumerate(zip(predictions, self.G, self.known, strict=True)):
            rows = known & (np.arange(len(G)) >= len(G) // 2)
            if rows.any() and np.ptp(G[rows]) > 0.0:
                explained[q] = 1.0 - np.mean((p[rows] - G[rows]) ** 2) / np.var(G[rows])
        return explained


class Autoregression:
    """The forecast of a discounted mean by an autoregression, beside that summed over statsforecast's own forecasts."""

    def gates(self) -> Iterator[Gate]:
        if not is_installed("statsforecast"):
            return
        from statsforecast.models import ARIMA

        x = _first_rows(500)["Voltage"]
        model = ARIMA(order=(2, 0, 0)).fit(x[:300])
        found, gamma = model.model_["coef"], 0.9
        mean = model.forward(x, h=400)["mean"]
        got = ar_forecast(x[None, :-3:-1], np.array([found["ar1"], found["ar2"]]), found["intercept"], gamma)
        yield gate("AR: as statsforecast forecasts", got, np.array([(1 - gamma) * gamma ** np.arange(400) @ mean]))

    def rows(self, _: Effort) -> Iterator[Row]:
        yield from ()


def prepare(source: Any, result: Any) -> tuple[ForecastLog, Array, NDArray[np.bool_]]:
    """The log as forecasters are given it; the returns and where they are known, (Q, T)."""
    table = emphatic.streams.open_table(source)
    clock, signals = table.clock(), list(result.settings.predict)
    blocks = [(block.values, block.time, block.find_gaps(clock)) for block in table.blocks()]
    x = np.concatenate([values for values, _, _ in blocks])[:, [table.names.index(name) for name in signals]]
    gap = np.concatenate([gap for _, _, gap in blocks])
    time = np.concatenate([time for _, time, _ in blocks]) if table.dated else None
    gammas = np.array([score["gamma"] for score in result.summary[: len(result.summary) // len(signals)]])
    G, known = returns(x, gap, gammas)
    delay = np.array([1 if g == 0.0 else int(np.ceil(np.log(0.01) / np.log(g) - 1e-9)) for g in gammas])
    labels, complete = returns(x, gap, gammas, delay)
    day = round(86_400.0 / clock.step) if time is not None and clock is not None else None
    held = hold(x)
    X = lag_features(held, time, day, float(1.0 / (1.0 - gammas.max())))
    return ForecastLog(held, X, gammas, np.where(complete, labels, np.nan), delay), G, known


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
