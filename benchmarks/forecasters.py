"""What else one would pick to forecast a log, each done properly: past only, with labels as late as they would be.

Every forecaster takes a ``ForecastLog`` and returns predictions (Q, T) of the discounted mean of what follows each row;
those of the first half may be NaN. A regression learns from the label of row t from row t + delay on, when .99 of its
weight has been read.
"""

from __future__ import annotations

import math
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: How often a model is fitted again in the second half: 45 times is once a day in the household's log.
RIDGE_FITS, TREE_FITS, AR_FITS, MSTL_FITS = 45, 7, 7, 10
#: Ridge strengths, in rows.
STRENGTHS = 10.0 ** np.arange(0, 7)
#: The order of the autoregression, and the last rows that it is fitted on.
ORDER, AR_ROWS = 10, 10_080
#: MSTL decomposes the last so many rows, or of the longest period so many, and fits the level to the last rows alone.
MSTL_ROWS, MSTL_PERIODS, LEVEL_ROWS = 5_040, 4, 2_016
#: Leaves of a tree and the fewest rows in a leaf that are tried, the most trees, and on how many of the last rows.
TREE_SIZES, TREES, TUNING_ROWS = ((31, 20), (7, 5)), 200, 10_000
DAY, YEAR = 86_400.0, 365.2425 * 86_400.0
#: River's step size, and at which gradient it is clipped at a horizon of one step, less with the root of the horizon:
#: the best of some twenty pairs on the first third of the household's log, with hindsight. Without clipping it
#: diverges on signals that are 0 for hours; AdaGrad, Adam and PARegressor did worse.
RIVER_RATE, RIVER_CLIP = 0.003, 0.2


@dataclass(frozen=True, eq=False)
class Seasons:
    """Periods that a user would know, in steps of a regular grid, and the grid: rows may lack in a log.

    The step of each row (T,); readings by step (N, C), the last one held where a row lacks.
    """

    periods: tuple[int, ...]
    steps: NDArray[np.int64]
    grid: Array

    @classmethod
    def find(
        cls, held: Array, time: Array | None, step: float | None, periods: tuple[int, ...] | None = None
    ) -> Seasons:
        """The seasons of a log.

        Args:
            held: Readings (T, C) without missing ones.
            time: Their stamps in seconds since 1970, or None.
            step: The usual seconds from row to row.
            periods: The periods in steps, or None for those that the stamps suggest.

        Stamps suggest a day where rows are finer, a week where they are no coarser than a day, and a year where they
        are no finer. Only periods of which two fit into the first half count.
        """
        T = len(held)
        steps = np.arange(T)
        if time is not None and step is not None:
            # Months differ in length and must not drift: each step counts by itself.
            forward = np.rint(np.nan_to_num(np.diff(time, prepend=time[0])) / step).astype(np.int64)
            steps = np.cumsum(np.maximum(forward, 0))
            lengths = ((DAY, step <= DAY / 2), (7 * DAY, step <= DAY), (YEAR, step >= DAY))
            suggested = tuple(round(length / step) for length, counts in lengths if counts)
            periods = suggested if periods is None else periods
        sparse = steps[-1] >= 10 * T  # gaps of years between seconds
        periods = tuple(m for m in periods or () if m > 1 and 2 * m <= steps[T // 2] and not sparse)
        if not periods:
            return cls((), np.arange(T), held)
        filled, rows = np.unique(steps, return_index=True)  # of rows with one stamp the first, which all of them know
        return cls(periods, steps, held[rows[np.searchsorted(filled, np.arange(steps[-1] + 1), side="right") - 1]])

    def repeat(self, gammas: Array) -> Array:
        """For each row Σ (1 − γ) γᵏ x_{t+1+k}, were the last period repeated for ever: (C·H, T, P)."""
        means = [repeated_means(self.grid, m, gammas) for m in self.periods]
        C, H = self.grid.shape[1], len(gammas)
        out = np.empty((C * H, len(self.steps), len(means)))
        for p, mean in enumerate(means):
            out[:, :, p] = mean[self.steps].reshape(len(self.steps), C * H).T
        return out


def repeated_means(x: Array, period: int, gammas: Array) -> Array:
    """The discounted mean of what follows each row of x (N, C) if the period that ends there repeats: (N, C, H).

    Σ over k < m of (1 − γ) γᵏ x_{t+1+k−m} / (1 − γᵐ). Where no whole period has passed, it is the reading.
    """
    N, C = x.shape
    ahead = np.zeros((N + 1, C, len(gammas)))
    centre = x[0]
    for t in range(N - 1, -1, -1):
        ahead[t] = gammas * ahead[t + 1] + (1.0 - gammas) * (x[t] - centre)[:, None]
    out = np.repeat(x[:, :, None], len(gammas), axis=2)
    weight = gammas**period
    out[period - 1 :] = (ahead[: N + 1 - period] - weight * ahead[period:]) / (1.0 - weight) + centre[:, None]
    return out


@dataclass(frozen=True, eq=False)
class ForecastLog:
    """What every forecaster is given.

    Readings (T, C), the last one held where one is missing; lag features X (T, F); γ of each horizon (H,); labels
    (Q, T) with NaN where they never become known; after how many rows each horizon's label is known (H,); the seasons;
    and for each of their P periods the discounted mean of what follows, would the last period repeat (Q, T, P).
    """

    held: Array
    X: Array
    gammas: Array
    labels: Array
    delay: NDArray[np.int64]
    seasons: Seasons
    repeated: Array

    @property
    def T(self) -> int:
        return len(self.held)

    def questions(self) -> Iterator[tuple[int, int, int]]:
        """Each question, its signal and its horizon."""
        H = len(self.gammas)
        return ((q, q // H, q % H) for q in range(len(self.labels)))

    def fits(self, count: int) -> list[tuple[int, int]]:
        """The second half in ``count`` pieces: a model is fitted before the first row of each."""
        edges = np.unique(np.linspace(self.T // 2, self.T, count + 1).astype(int)).tolist()
        return list(pairwise(edges))

    def features(self, q: int) -> Array:
        """Those of all questions and what the question's answer would be if the last period repeated, (T, F + P)."""
        return np.concatenate([self.X, self.repeated[q]], axis=1)

    def best(self, q: int, answers: Array) -> int:
        """Which of several answers (A, T) to question q is best for the labels that are known at the half."""
        known = self.labels[q, : max(0, self.T // 2 - int(self.delay[q % len(self.gammas)]))]
        errors = np.where(np.isnan(known), 0.0, answers[:, : len(known)] - known)
        return int(np.argmin((errors**2).sum(axis=1)))


def scaled(X: Array) -> Array:
    """Features by mean and deviation of their first half."""
    first = X[: len(X) // 2]
    deviation = first.std(axis=0)
    result: Array = (X - first.mean(axis=0)) / np.where(deviation > 0.0, deviation, 1.0)
    return result


def persist(log: ForecastLog) -> Array:
    """The present reading."""
    return np.repeat(log.held.T, len(log.gammas), axis=0)


def smooth(log: ForecastLog) -> Array:
    """EWMA: m ← m + (x − m)/s, with the s, in powers of two, that is best for the labels of the first half."""
    out = np.full(log.labels.shape, np.nan)
    spans = 2.0 ** np.arange(0, np.log2(4.0 / (1.0 - log.gammas.max())) + 1.0)
    means = np.empty((len(spans), log.T))
    for c, x in enumerate(log.held.T):
        m = np.full(len(spans), x[0])
        for t, value in enumerate(x.tolist()):
            m += (value - m) / spans
            means[:, t] = m
        for q, signal, _ in log.questions():
            if signal == c:
                out[q] = means[log.best(q, means)]
    return out


def repeat_season(log: ForecastLog) -> Array | None:
    """Seasonal naive: the last period again and again, of the periods the one that is best in the first half."""
    if not log.seasons.periods:
        return None
    return np.array([answers[:, log.best(q, answers.T)] for q, answers in enumerate(log.repeated)])


def fit_seasons(log: ForecastLog) -> Array | None:
    """MSTL by statsforecast, fitted again and again: seasonal components by LOESS, and ETS for what remains.

    Between fits the seasonal components repeat, and the level and trend of ETS go on with each reading.
    """
    seasons = log.seasons
    if not seasons.periods:
        return None
    out, H = np.full(log.labels.shape, np.nan), len(log.gammas)
    rows = max(MSTL_ROWS, MSTL_PERIODS * max(seasons.periods))
    for c in range(log.held.shape[1]):
        x = seasons.grid[:, c]
        for a, b in log.fits(MSTL_FITS):
            end = int(seasons.steps[a - 1]) + 1
            model = SeasonalModel.fit(x[max(0, end - rows) : end], seasons.periods)
            at = seasons.steps[a:b] - end + 1  # how many readings came after those of the fit
            forecasts = model.forecast(x[end : int(seasons.steps[b - 1]) + 1], log.gammas)
            out[c * H : (c + 1) * H, a:b] = forecasts[at].T
    return out


def loess_jumps(periods: tuple[int, ...]) -> dict[str, int]:
    """After how many rows a LOESS is evaluated again, linear between them: a tenth of its window, as by default in R.

    The windows are those of the shortest period, for MSTL takes one number for all; at each row fits would take hours.
    """
    shortest = min(periods)
    return {"seasonal_jump": 2, "trend_jump": math.ceil(0.174 * shortest), "low_pass_jump": math.ceil(shortest / 10)}


@dataclass(frozen=True, eq=False)
class SeasonalModel:
    """What MSTL has fitted: the last period of each seasonal component, and the level, trend and constants of ETS."""

    components: tuple[Array, ...]
    level: float
    trend: float = 0.0
    alpha: float = 0.0
    beta: float = 0.0
    phi: float = 1.0

    @classmethod
    def fit(cls, x: Array, periods: tuple[int, ...]) -> SeasonalModel:
        """Decompose the readings, and fit ETS to the last of those without their seasons."""
        from statsforecast.models import AutoETS
        from statsforecast.mstl import mstl

        parts = mstl(x, list(periods), stl_kwargs=loess_jumps(periods))
        adjusted = (parts["trend"] + parts["remainder"]).to_numpy()[-LEVEL_ROWS:]
        names = [name for name in parts.columns if name.startswith("seasonal")]
        components = tuple(parts[name].to_numpy()[-m:] for name, m in zip(names, sorted(periods), strict=True))
        if np.ptp(adjusted) <= 1e-9 * np.abs(adjusted).max():
            return cls(components, float(adjusted[-1]))
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            model = AutoETS(model="ZZN").fit(adjusted).model_
        alpha, beta, _, phi = (float(value) for value in model["par"][:4])
        states = model["states"][-1]
        if model["components"][1] == "N":
            return cls(components, float(states[0]), alpha=alpha)
        phi = 1.0 if model["components"][3] == "N" else phi
        return cls(components, float(states[0]), float(states[1]), alpha, beta, phi)

    def forecast(self, x: Array, gammas: Array) -> Array:
        """Σ (1 − γ) γᵏ x_{t+1+k} after the fit, and after each of the readings that followed: (1 + len(x), H).

        The mean of the level is l + b φ / (1 − γφ), that of each component the one of its repetition.
        """
        n = len(x)
        season, expected = np.zeros(n), np.zeros((n + 1, len(gammas)))
        for component in self.components:
            m = len(component)
            cycle = np.tile(component, 2 + n // m)  # ends with whole periods, so that row i continues with i + 1
            season += cycle[:n]
            expected += repeated_means(cycle[:, None], m, gammas)[m - 1 : m + n, 0]
        level, trend = self.level, self.trend
        levels, trends = np.empty(n + 1), np.empty(n + 1)
        levels[0], trends[0] = level, trend
        for i, value in enumerate((x - season).tolist()):
            ahead = level + self.phi * trend
            level, trend = ahead + self.alpha * (value - ahead), self.phi * trend + self.beta * (value - ahead)
            levels[i + 1], trends[i + 1] = level, trend
        reach = self.phi / (1.0 - gammas * self.phi)
        forecast: Array = expected + levels[:, None] + trends[:, None] * reach
        return forecast


def fit_ridge(log: ForecastLog) -> Array:
    """Ridge regression on the lag features with an intercept, fitted again and again on all labels known by then.

    At each fit the strength is the best for the last fifth of those rows, after fitting on the rows before.
    """
    out, n = np.full(log.labels.shape, np.nan), log.features(0).shape[1] + 1
    shrunk = np.append(np.ones(n - 1), 0.0)
    for q, _, h in log.questions():
        X = np.concatenate([scaled(log.features(q)), np.ones((log.T, 1))], axis=1)
        known = np.flatnonzero(~np.isnan(log.labels[q]))
        Z = np.concatenate([X, np.nan_to_num(log.labels[q])[:, None]], axis=1)
        pieces: list[Array] = []  # sums over the rows of each piece, the last column being the label's
        done = 0
        for a, b in log.fits(RIDGE_FITS):
            rows = known[(known >= done) & (known < a - log.delay[h])]
            for some in np.array_split(rows, max(1, len(rows) * 2 * RIDGE_FITS // log.T)):
                pieces.append(Z[some].T @ Z[some])
            done = max(done, a - int(log.delay[h]))
            late = max(1, len(pieces) // 5)
            early, test = sum(pieces[:-late], np.zeros((n + 1, n + 1))), sum(pieces[-late:], np.zeros((n + 1, n + 1)))
            tried = [_solve(early, r * shrunk) for r in STRENGTHS]
            best = STRENGTHS[int(np.argmin([np.append(w, -1.0) @ test @ np.append(w, -1.0) for w in tried]))]
            out[q, a:b] = X[a:b] @ _solve(early + test, best * shrunk)
    return out


def _solve(sums: Array, ridge: Array) -> Array:
    n = len(ridge)
    damped = sums[:n, :n] + np.diag(ridge + 1e-9)
    solved: Array = np.asarray(np.linalg.solve(damped, sums[:n, n]), np.float64)
    return solved


def fit_trees(log: ForecastLog) -> Array:
    """LightGBM on the lag features, fitted again and again on all labels known by then.

    How it is set up is found once, at the half, as what is best for the last fifth of the labels known there (of the
    last 10,000): the size of the trees, their number, and whether they predict the return or its difference from the
    present reading.
    """
    out = np.full(log.labels.shape, np.nan)
    for q, c, h in log.questions():
        X, known = log.features(q), np.flatnonzero(~np.isnan(log.labels[q]))
        setup: TreeSetup | None = None
        for a, b in log.fits(TREE_FITS):
            rows = known[known < a - log.delay[h]]
            if len(rows) < 10:
                out[q, a:b] = log.held[a:b, c]
                continue
            if setup is None:
                recent = rows[-TUNING_ROWS:]
                setup = TreeSetup.find(X[recent], log.labels[q, recent], log.held[recent, c])
            base = log.held[:, c] if setup.difference else np.zeros(log.T)
            model, _ = setup.train(X[rows], log.labels[q, rows] - base[rows])
            out[q, a:b] = model.predict(X[a:b], num_threads=1) + base[a:b]
    return out


@dataclass(frozen=True)
class TreeSetup:
    """How LightGBM is set up: leaves of a tree, the fewest rows in a leaf, trees, and what they predict."""

    leaves: int
    smallest_leaf: int
    difference: bool
    trees: int = TREES

    @classmethod
    def find(cls, X: Array, y: Array, readings: Array) -> TreeSetup:
        """The best for the last fifth of the rows, after training on those before."""
        scores: dict[TreeSetup, float] = {}
        for leaves, smallest_leaf in TREE_SIZES:
            for difference in (False, True):
                setup = cls(leaves, smallest_leaf, difference)
                model, error = setup.train(X, y - readings if difference else y, len(y) * 4 // 5)
                scores[replace(setup, trees=max(1, model.best_iteration))] = error
        return min(scores, key=lambda setup: scores[setup])

    def train(self, X: Array, y: Array, cut: int | None = None) -> tuple[Any, float]:
        """A model of all rows; or of those before the ``cut``, stopped early by those after, and its error there."""
        import lightgbm as lgb

        options = {
            "objective": "l2", "learning_rate": 0.1, "num_leaves": self.leaves, "min_data_in_leaf": self.smallest_leaf,
            "num_threads": 1, "verbose": -1, "seed": 0, "deterministic": True,
        }  # fmt: skip
        early = lgb.Dataset(X[:cut], y[:cut])
        if cut is None:
            return lgb.train(options, early, self.trees), 0.0
        late = lgb.Dataset(X[cut:], y[cut:], reference=early)
        stop = lgb.early_stopping(20, verbose=False)
        model = lgb.train(options, early, self.trees, valid_sets=[late], callbacks=[stop])
        return model, float(model.best_score["valid_0"]["l2"])


def learn_with_river(log: ForecastLog) -> Array:
    """River, row by row: linear regression with an intercept by SGD, features and target standardised as they come."""
    from river import linear_model, optim, preprocessing

    names = [f"f{i}" for i in range(log.X.shape[1])]
    scaler: Any = preprocessing.StandardScaler()
    models: list[Any] = [
        preprocessing.TargetStandardScaler(
            linear_model.LinearRegression(
                optim.SGD(RIVER_RATE), clip_gradient=RIVER_CLIP * math.sqrt(1.0 - log.gammas[h])
            )
        )
        for _, _, h in log.questions()
    ]
    out, labels = np.full(log.labels.shape, np.nan), log.labels.tolist()
    questions = [(q, int(log.delay[h])) for q, _, h in log.questions()]
    waiting: deque[dict[str, float]] = deque(maxlen=int(log.delay.max()) + 1)
    for t, row in enumerate(log.X.tolist()):
        x = dict(zip(names, row, strict=True))
        scaler.learn_one(x)
        waiting.append(scaler.transform_one(x))
        for q, delay in questions:
            if t >= delay and labels[q][t - delay] == labels[q][t - delay]:
                models[q].learn_one(waiting[-1 - delay], labels[q][t - delay])
            out[q, t] = models[q].predict_one(waiting[-1])
    return out


def fit_autoregressions(log: ForecastLog) -> Array:
    """An AR(10) of each signal, fitted again and again by statsforecast on the last rows (conditional sum of squares).

    The forecast of the discounted mean is linear in the last readings: see ``ar_forecast``.
    """
    from statsforecast.models import ARIMA

    out = np.full(log.labels.shape, np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the optimiser may not have converged
        for c, x in enumerate(log.held.T):
            for a, b in log.fits(AR_FITS):
                rows = x[max(0, a - AR_ROWS) : a]
                coefficients = ARIMA(order=(ORDER, 0, 0), method="CSS").fit(rows).model_["coef"]
                phi = np.array([coefficients[f"ar{i + 1}"] for i in range(ORDER)])
                some = np.lib.stride_tricks.sliding_window_view(x[a - ORDER + 1 : b], ORDER)[:, ::-1]
                for h, gamma in enumerate(log.gammas.tolist()):
                    out[c * len(log.gammas) + h, a:b] = ar_forecast(some, phi, coefficients["intercept"], gamma)
    return out


def ar_forecast(last: Array, phi: Array, mean: float, gamma: float) -> Array:
    """The forecast of Σ (1 − γ) γᵏ x_{t+1+k} by an autoregression, from the last readings (B, p), the latest first.

    With z the last departures from the mean and A the companion matrix, x_{t+1+k} is mean + e₁ᵀ Aᵏ⁺¹ z, so that the
    sum is mean + (1 − γ) e₁ᵀ A (I − γA)⁻¹ z.
    """
    p = len(phi)
    A = np.vstack([phi, np.eye(p)[:-1]])
    weights = (1.0 - gamma) * np.linalg.solve((np.eye(p) - gamma * A).T, A[0])
    forecast: Array = mean + (last - mean) @ weights
    return forecast


#: By the name that the table has for it: the function, and the package that it needs. It returns
#: None for a log without periods.
FORECASTERS: dict[str, tuple[Callable[[ForecastLog], Array | None], str]] = {
    "persistence": (persist, ""),
    "EWMA": (smooth, ""),
    "seasonal naive": (repeat_season, ""),
    "MSTL": (fit_seasons, "statsforecast"),
    "AR(10)": (fit_autoregressions, "statsforecast"),
    "ridge": (fit_ridge, ""),
    "LightGBM": (fit_trees, "lightgbm"),
    "river": (learn_with_river, "river"),
}


def lag_features(held: Array, time: Array | None, seasons: Seasons, longest: float) -> Array:
    """Of every signal its last four readings, its means over the last 4, 16, 64, … rows up to twice the longest
    horizon, and its reading a period before the next row; with stamps the time of day and of year, as waves and
    as numbers, and the day of the week, where the first half has a whole day, year and week.

    Args:
        held: Readings (T, C) without missing ones.
        time: Their stamps in seconds since 1970, or None.
        seasons: The periods and the grid of readings.
        longest: The longest horizon, in rows.
    """
    T, columns = len(held), []
    for lag in range(4):
        columns.append(held[np.maximum(np.arange(T) - lag, 0)])
    for period in seasons.periods:
        columns.append(seasons.grid[np.maximum(seasons.steps + 1 - period, 0)])
    sums = np.concatenate([np.zeros((1, held.shape[1])), np.cumsum(held - held[0], axis=0)])
    windows = [4**k for k in range(1, 20) if 4**k <= min(2.0 * longest, T)]
    for window in windows:
        begin = np.maximum(np.arange(1, T + 1) - window, 0)
        columns.append(held[0] + (sums[1:] - sums[begin]) / (np.arange(1, T + 1) - begin)[:, None])
    if time is not None:
        # A cycle that the first half has not seen whole is but a trend, on which a regression goes astray.
        seen = time[T // 2] - time[0]
        for cycle in (length for length in (DAY, YEAR) if seen >= length):
            phase = (time / cycle % 1.0)[:, None]
            angles = 2.0 * np.pi * phase * np.array([1.0, 2.0])
            columns += [np.sin(angles), np.cos(angles), phase]
        if seen >= 7 * DAY:
            columns.append(np.floor(time / DAY % 7.0)[:, None])
    return np.nan_to_num(np.concatenate(columns, axis=1))
