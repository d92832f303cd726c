"""What else one would pick to forecast a log, each done properly: past only, with labels as late as they would be.

Every forecaster takes a ``ForecastLog`` and returns predictions (Q, T) of the discounted mean of what follows each row;
those of the first half may be NaN. A regression learns from the label of row t from row t + delay on, when .99 of its
weight has been read.
"""

from __future__ import annotations

import importlib.util
import math
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: How often a model is fitted again in the second half: 45 times is once a day in the log of the package.
RIDGE_FITS, TREE_FITS, AR_FITS = 45, 7, 7
#: Ridge strengths, in rows.
STRENGTHS = 10.0 ** np.arange(0, 7)
#: The order of the autoregression, and the last rows that it is fitted on.
ORDER, AR_ROWS = 10, 10_080
#: River's step size, and at which gradient it is clipped at a horizon of one step, less with the root of the horizon:
#: the best of some twenty pairs on the first third of the log of the package, with hindsight. Without clipping it
#: diverges on signals that are 0 for hours; AdaGrad, Adam and PARegressor did worse.
RIVER_RATE, RIVER_CLIP = 0.003, 0.2


@dataclass(frozen=True, eq=False)
class ForecastLog:
    """What every forecaster is given.

    Readings (T, C), the last one held where one is missing; lag features X (T, F); γ of each horizon (H,); labels
    (Q, T) with NaN where they never become known; and after how many rows each horizon's label is known (H,).
    """

    held: Array
    X: Array
    gammas: Array
    labels: Array
    delay: NDArray[np.int64]

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

    def scaled(self) -> Array:
        """X by mean and deviation of its first half."""
        first = self.X[: self.T // 2]
        deviation = first.std(axis=0)
        scaled: Array = (self.X - first.mean(axis=0)) / np.where(deviation > 0.0, deviation, 1.0)
        return scaled


def persist(log: ForecastLog) -> Array:
    """The present reading."""
    return np.repeat(log.held.T, len(log.gammas), axis=0)


def smooth(log: ForecastLog) -> Array:
    """EWMA: m ← m + (x − m)/s, with the s, in powers of two, that is best for the labels of the first half."""
    out, half = np.full(log.labels.shape, np.nan), log.T // 2
    spans = 2.0 ** np.arange(0, np.log2(4.0 / (1.0 - log.gammas.max())) + 1.0)
    means = np.empty((len(spans), log.T))
    for c, x in enumerate(log.held.T):
        m = np.full(len(spans), x[0])
        for t, value in enumerate(x.tolist()):
            m += (value - m) / spans
            means[:, t] = m
        for q, _, h in (each for each in log.questions() if each[1] == c):
            known = log.labels[q, : max(0, half - log.delay[h])]
            errors = np.nanmean((means[:, : len(known)] - known) ** 2, axis=1)
            out[q] = means[np.argmin(errors)]
    return out


def fit_ridge(log: ForecastLog) -> Array:
    """Ridge regression on the lag features with an intercept, fitted again and again on all labels known by then.

    At each fit the strength is the best for the last fifth of those rows, after fitting on the rows before.
    """
    X = np.concatenate([log.scaled(), np.ones((log.T, 1))], axis=1)
    out, n = np.full(log.labels.shape, np.nan), X.shape[1]
    shrunk = np.append(np.ones(n - 1), 0.0)
    for q, _, h in log.questions():
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

    The number of trees is found once, at the half: the best for the last fifth of the labels known there.
    """
    import lightgbm as lgb

    out = np.full(log.labels.shape, np.nan)
    options = {
        "objective": "l2",
        "learning_rate": 0.1,
        "num_threads": 1,
        "verbose": -1,
        "seed": 0,
        "deterministic": True,
    }
    for q, _, h in log.questions():
        known = np.flatnonzero(~np.isnan(log.labels[q]))
        trees = 0
        for a, b in log.fits(TREE_FITS):
            rows = known[known < a - log.delay[h]]
            y = log.labels[q, rows]
            if not trees:
                cut = len(rows) * 4 // 5
                early = lgb.Dataset(log.X[rows[:cut]], y[:cut])
                late = lgb.Dataset(log.X[rows[cut:]], y[cut:], reference=early)
                found = lgb.train(
                    options, early, 200, valid_sets=[late], callbacks=[lgb.early_stopping(20, verbose=False)]
                )
                trees = max(1, found.best_iteration)
            model = lgb.train(options, lgb.Dataset(log.X[rows], y), trees)
            out[q, a:b] = model.predict(log.X[a:b], num_threads=1)
    return out


def learn_with_river(log: ForecastLog) -> Array:
    """River, row by row: linear regression with an intercept by SGD, features and target standardised as they come."""
    from river import linear_model, optim, preprocessing

    names = [f"f{i}" for i in range(log.X.shape[1])]
    scaler = preprocessing.StandardScaler()
    models = [
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


#: By the name that the table has for it: the function, and the package that it needs.
FORECASTERS: dict[str, tuple[Callable[[ForecastLog], Array], str]] = {
    "persistence": (persist, ""),
    "EWMA": (smooth, ""),
    "AR(10), statsforecast": (fit_autoregressions, "statsforecast"),
    "ridge, refit": (fit_ridge, ""),
    "LightGBM, refit": (fit_trees, "lightgbm"),
    "river, linear, SGD": (learn_with_river, "river"),
}


def is_installed(package: str) -> bool:
    return not package or importlib.util.find_spec(package) is not None


def lag_features(held: Array, time: Array | None, steps_a_day: int | None, longest: float) -> Array:
    """Of every signal its last four readings and its means over the last 4, 16, 64, … rows up to twice the longest
    horizon, and the reading a day before; with dates the time of day, as two waves."""
    T, columns = len(held), []
    for lag in (0, 1, 2, 3, *([steps_a_day - 1] if steps_a_day else [])):
        columns.append(held[np.maximum(np.arange(T) - lag, 0)])
    sums = np.concatenate([np.zeros((1, held.shape[1])), np.cumsum(held - held[0], axis=0)])
    windows = [4**k for k in range(1, 20) if 4**k <= min(2.0 * longest, T)]
    for window in windows:
        begin = np.maximum(np.arange(1, T + 1) - window, 0)
        columns.append(held[0] + (sums[1:] - sums[begin]) / (np.arange(1, T + 1) - begin)[:, None])
    if time is not None:
        angle = 2.0 * np.pi * (time / 86_400.0)[:, None] * np.array([1.0, 2.0])
        columns += [np.sin(angle), np.cos(angle)]
    return np.concatenate(columns, axis=1)
