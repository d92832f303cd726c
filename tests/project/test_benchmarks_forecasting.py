"""The forecasters of the forecasting suite use the past alone, and its returns are those that it describes."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import __main__ as command
from benchmarks.forecasters import FORECASTERS, Array, ForecastLog, ar_forecast, is_installed, lag_features
from benchmarks.forecasting import hold, returns

GAMMAS = np.array([0.5, 0.9])
DELAY = np.array([7, 44])


def log(x: Array) -> ForecastLog:
    labels, known = returns(x, np.zeros(len(x), bool), GAMMAS, DELAY)
    X = lag_features(hold(x), None, None, 10.0)
    return ForecastLog(hold(x), X, GAMMAS, np.where(known, labels, np.nan), DELAY)


def readings(T: int = 600) -> Array:
    rng, t = np.random.default_rng(0), np.arange(T)[:, None]
    x: Array = np.sin(t / np.array([7.0, 20.0])) + 0.1 * rng.normal(size=(T, 2))
    x[50:60, 0] = np.nan
    return x


@pytest.mark.parametrize("name", FORECASTERS)
def test_no_forecaster_looks_ahead(name: str) -> None:
    forecast, package = FORECASTERS[name]
    if not is_installed(package):
        pytest.skip(f"needs {package}: pip install --group forecasting")
    x, other, cut = readings(), readings(), 450
    other[cut + 1 :] = np.random.default_rng(1).normal(size=other[cut + 1 :].shape)
    first, second = forecast(log(x)), forecast(log(other))
    np.testing.assert_allclose(first[:, 300 : cut + 1], second[:, 300 : cut + 1], rtol=1e-9, atol=1e-9)
    assert (abs(first[:, cut + 1 :] - second[:, cut + 1 :]) > 1e-3).any()


def test_ridge_predicts_what_can_be_predicted() -> None:
    x = readings(2_000)
    G, known = returns(x, np.zeros(len(x), bool), GAMMAS)
    predictions = FORECASTERS["ridge, refit"][0](log(x))
    for p, g, rows in zip(predictions, G, known & (np.arange(2_000) >= 1_000), strict=True):
        assert np.mean((p[rows] - g[rows]) ** 2) < 0.1 * np.var(g[rows])


def test_returns_are_the_sums_that_define_them() -> None:
    x = readings(400)
    gap = np.zeros(400, bool)
    gap[200] = True
    for delay in (None, DELAY):
        G, known = returns(x, gap, GAMMAS, delay)
        for q, gamma in enumerate([*GAMMAS, *GAMMAS]):
            for t in (0, 45, 54, 120, 170, 198, 205, 340, 398):
                end = 200 if t < 200 else 400
                after = x[t + 1 : end, q // 2][: None if delay is None else delay[q % 2]]
                w = (1 - gamma) * gamma ** np.arange(len(after))
                seen = ~np.isnan(after)
                assert known[q, t] == (w.sum() >= 0.99 - 1e-9 and w[seen].sum() >= 0.5)
                if known[q, t]:
                    assert G[q, t] == pytest.approx(w[seen] @ after[seen] / w[seen].sum(), abs=1e-12)


def test_a_label_is_known_after_its_delay() -> None:
    x = readings(300)
    whole = log(x).labels
    for t, (q, delay) in ((30, (0, 7)), (90, (1, 44))):
        assert log(x[: t + delay + 1]).labels[q, t] == pytest.approx(whole[q, t], abs=1e-12)
        assert np.isnan(log(x[: t + delay]).labels[q, t])


def test_the_forecast_of_an_autoregression_is_the_sum_of_its_forecasts() -> None:
    phi, mean, gamma = np.array([0.5, 0.3]), 2.0, 0.8
    x = [1.0, 4.0]
    for _ in range(300):
        x.append(mean + phi[0] * (x[-1] - mean) + phi[1] * (x[-2] - mean))
    want = (1 - gamma) * gamma ** np.arange(300) @ np.array(x[2:])
    assert ar_forecast(np.array([[4.0, 1.0]]), phi, mean, gamma) == pytest.approx(want, abs=1e-12)


@pytest.mark.parametrize("words", [["core", "--table", "x.csv"], ["forecasting", "--horizons", "2,9"]])
def test_a_table_of_one_s_own_is_for_this_suite_alone(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks", *words])
    with pytest.raises(SystemExit, match="2"):
        command.main()


def test_features_of_a_log_that_never_varies_are_finite() -> None:
    still = replace(log(readings()), X=np.ones((600, 3)))
    assert np.isfinite(still.scaled()).all()
