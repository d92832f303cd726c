"""The forecasters of the forecasting suite use the past alone, and its returns are those that it describes."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import __main__ as command
from benchmarks import forecasting
from benchmarks.development_logs import is_installed
from benchmarks.forecasters import FORECASTERS, Array, ForecastLog, SeasonalModel, Seasons, ar_forecast, lag_features
from benchmarks.forecasting import hold, returns
from benchmarks.measure import Effort, run_cases

GAMMAS = np.array([0.5, 0.9])
DELAY = np.array([7, 44])


def log(x: Array, time: Array | None = None, periods: tuple[int, ...] | None = (44, 126)) -> ForecastLog:
    labels, known = returns(x, np.zeros(len(x), bool), GAMMAS, DELAY)
    seasons = Seasons.find(hold(x), time, None if time is None else float(np.median(np.diff(time))), periods)
    X = lag_features(hold(x), time, seasons, 10.0)
    return ForecastLog(
        hold(x), X, GAMMAS, np.where(known, labels, np.nan), DELAY, seasons, seasons.repeat(GAMMAS)
    )  # fmt: skip


def readings(T: int = 600) -> Array:
    rng, t = np.random.default_rng(0), np.arange(T)[:, None]
    x: Array = np.sin(t / np.array([7.0, 20.0])) + 0.1 * rng.normal(size=(T, 2))
    x[50:60, 0] = np.nan
    return x


def stamps(T: int = 600) -> Array:
    """Every 30 minutes; some rows lack, and some stamps stand twice."""
    steps = np.ones(T)
    steps[[100, 320, 470]], steps[[200, 449, 450]] = 30.0, 0.0
    time: Array = np.cumsum(steps) * 1_800.0
    return time


@pytest.mark.parametrize("stamped", [False, True], ids=["rows", "stamps"])
@pytest.mark.parametrize("name", FORECASTERS)
def test_no_forecaster_looks_ahead(name: str, stamped: bool) -> None:
    forecast, package = FORECASTERS[name]
    if not is_installed(package):
        pytest.skip(f"needs {package}: pip install --group forecasting")
    x, other, cut = readings(), readings(), 449
    other[cut + 1 :] = np.random.default_rng(1).normal(size=other[cut + 1 :].shape)
    time, periods = (stamps(), None) if stamped else (None, (44, 126))
    first, second = forecast(log(x, time, periods)), forecast(log(other, time, periods))
    assert first is not None
    assert second is not None
    assert np.isfinite(first[:, 300:]).all()
    np.testing.assert_allclose(first[:, 300 : cut + 1], second[:, 300 : cut + 1], rtol=1e-9, atol=1e-9)
    assert (abs(first[:, cut + 1 :] - second[:, cut + 1 :]) > 1e-3).any()


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


def test_the_forecast_of_an_autoregression_is_the_sum_of_its_forecasts() -> None:
    phi, mean, gamma = np.array([0.5, 0.3]), 2.0, 0.8
    x = [1.0, 4.0]
    for _ in range(300):
        x.append(mean + phi[0] * (x[-1] - mean) + phi[1] * (x[-2] - mean))
    want = (1 - gamma) * gamma ** np.arange(300) @ np.array(x[2:])
    assert ar_forecast(np.array([[4.0, 1.0]]), phi, mean, gamma) == pytest.approx(want, abs=1e-12)


@pytest.mark.parametrize(
    ("model", "n"),
    [
        (SeasonalModel((np.array([1.0, 3.0, -4.0]),), 10.0, 0.5, 0.3, 0.1, 0.9), 8),
        (SeasonalModel((np.array([2.0, -2.0]), np.array([0.0, 1.0, 5.0, -6.0])), -3.0, 0.2, 0.5, 0.05), 5),
        (SeasonalModel((np.arange(7.0) - 3.0,), 4.0, alpha=0.4), 20),
    ],
)
def test_forecasts_of_seasons_are_the_sums_of_their_paths(model: SeasonalModel, n: int) -> None:
    x, gamma = np.random.default_rng(n).normal(size=n), 0.8
    got = model.forecast(x, np.array([gamma]))
    level, trend = model.level, model.trend

    def season(step: int) -> float:
        return float(sum(component[step % len(component)] for component in model.components))

    for i in range(n + 1):
        path, ahead, slope = [], level, trend
        for k in range(400):
            slope *= model.phi
            ahead += slope
            path.append(ahead + season(i + k))
        assert got[i, 0] == pytest.approx((1 - gamma) * gamma ** np.arange(400) @ np.array(path), abs=1e-9)
        if i < n:
            error = x[i] - season(i) - (level + model.phi * trend)
            level = level + model.phi * trend + model.alpha * error
            trend = model.phi * trend + model.beta * error


def test_tables_of_one_s_own_come_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        lines = ["x", *(f"{value:.4f}" for value in readings(400)[:, 1])]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    monkeypatch.setattr(forecasting, "FORECASTERS", {"persistence": FORECASTERS["persistence"]})
    tables = [tmp_path / "a.csv", tmp_path / "b.csv"]
    gates, rows = run_cases(forecasting.cases(True, tables, ["2", "9"]), Effort(1, 0.0))
    sections = list(dict.fromkeys(row.section.split(":")[0] for row in rows))
    assert sections == ["all questions of all logs", "the first rows of the household's log", "a.csv", "b.csv"]
    assert [row.what for row in rows if row.section.startswith("b.csv")] == [
        "2", "9", "best of 2 questions", "CPU seconds",
    ]  # fmt: skip
    assert sum("summary.json" in passed.name for passed in gates) == 3


@pytest.mark.parametrize(
    "words", [["core", "--table", "x.csv"], ["forecasting", "--horizons", "2,9"], ["core", "--keep-others"]]
)
def test_a_table_of_one_s_own_is_for_this_suite_alone(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks", *words])
    with pytest.raises(SystemExit, match="2"):
        command.main()
