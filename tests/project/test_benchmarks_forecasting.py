"""The forecasters of the forecasting suite use the past alone, and its returns are those that it describes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emphatic
from benchmarks import __main__ as command
from benchmarks import forecasting
from benchmarks.development_logs import DevelopmentLog, development_logs, is_installed
from benchmarks.forecasters import (
    FORECASTERS,
    Array,
    ForecastLog,
    SeasonalModel,
    Seasons,
    ar_forecast,
    lag_features,
    repeated_means,
    scaled,
)
from benchmarks.forecasting import OURS, AllLogs, Forecasts, Score, hold, returns, sum_up
from benchmarks.measure import Effort, run_cases

GAMMAS = np.array([0.5, 0.9])
DELAY = np.array([7, 44])
YEAR = 3.0e7


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


def test_ridge_predicts_what_can_be_predicted() -> None:
    x = readings(2_000)
    G, known = returns(x, np.zeros(len(x), bool), GAMMAS)
    predictions = FORECASTERS["ridge"][0](log(x))
    assert predictions is not None
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


def test_a_repeated_period_has_the_mean_that_its_repetition_has() -> None:
    x, m, gamma = readings(200), 30, 0.95
    x = hold(x)
    means = repeated_means(x, m, np.array([0.0, gamma]))
    for t in (m - 1, m, 77, 199):
        endless = np.tile(x[t - m + 1 : t + 1], (40, 1))
        want = (1 - gamma) * gamma ** np.arange(len(endless)) @ endless
        np.testing.assert_allclose(means[t, :, 1], want, rtol=1e-10)
        np.testing.assert_allclose(means[t, :, 0], x[t - m + 1], rtol=1e-12)
    assert (means[m - 2] == x[m - 2][:, None]).all()


def test_seasonal_naive_takes_the_better_period() -> None:
    t = np.arange(900)
    x = np.stack([np.sin(2 * np.pi * t / 24), np.sin(2 * np.pi * t / 30)], axis=1)
    series = log(x, periods=(24, 30))
    G, known = returns(x, np.zeros(900, bool), GAMMAS)
    predictions = FORECASTERS["seasonal naive"][0](series)
    assert predictions is not None
    late = known & (t >= 450)
    assert np.abs(predictions - G)[late].max() < 0.01  # the returns lack what lies beyond the log's end


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


def months(count: int) -> Array:
    time: Array = (np.datetime64("1949-01") + np.arange(count)).astype("datetime64[s]").astype(np.float64)
    return time


@pytest.mark.parametrize(
    ("time", "step", "periods"),
    [
        (months(144), 31 * 86_400.0, (12,)),
        (months(636)[::3], 92 * 86_400.0, (4,)),
        (np.arange(4_000) * 1_800.0, 1_800.0, (48, 336)),
        (np.arange(400) * 1_800.0, 1_800.0, (48,)),  # two weeks do not fit into the first half
        (np.arange(2_000) * 86_400.0, 86_400.0, (7, 365)),
        (np.arange(200) * 1e7, 1e7, (3,)),
        (np.arange(50) * YEAR, YEAR, ()),
    ],
)
def test_periods_that_a_user_would_know(time: Array, step: float, periods: tuple[int, ...]) -> None:
    seasons = Seasons.find(np.zeros((len(time), 1)), time, step)
    assert seasons.periods == periods
    if periods:
        assert seasons.steps.tolist() == list(range(len(time)))


def test_the_grid_of_readings_holds_the_last_where_a_row_lacks() -> None:
    time = np.arange(300, dtype=np.float64) * 1_800.0
    time[100:] += 3 * 1_800.0
    time[200] = time[199]
    time[201:] -= 1_800.0
    x = np.arange(300.0)[:, None]
    seasons = Seasons.find(x, time, 1_800.0)
    assert seasons.periods == (48,)
    assert seasons.steps[[99, 100, 199, 200, 201]].tolist() == [99, 103, 202, 202, 203]
    assert seasons.grid[[99, 100, 102, 103, 202, 203], 0].tolist() == [99.0, 99.0, 99.0, 100.0, 199.0, 201.0]


def test_a_log_without_periods_has_no_seasonal_forecasts() -> None:
    for name in ("seasonal naive", "MSTL"):
        assert FORECASTERS[name][0](log(readings(), periods=())) is None


def test_development_logs_are_those_of_the_packages_that_are_installed() -> None:
    logs = development_logs()
    assert len({entry.name for entry in logs}) == len(logs) == 15
    for entry in logs:
        if is_installed(entry.package):
            table = emphatic.streams.open_table(entry.read())
            assert table.names
            assert table.dated == ("without stamps" not in entry.name), entry.name


def test_the_table_names_what_it_lacks() -> None:
    absent = DevelopmentLog("tides", "no_such_package", dict, (2,))
    (row,) = list(AllLogs([], [absent]).rows(Effort(1, 0.0)))[-1:]
    assert row.cells()[0] == "tides: the package no_such_package has it"
    assert not any(row.cells()[1:])


def test_a_row_shows_the_best_in_bold() -> None:
    row = Score("s", "2", (), values={OURS: 0.5, "EWMA": 0.7004, "ridge": 0.7, "MSTL": None}, highest=True)
    cells = dict(zip(forecasting.LAYOUT.columns, row.cells(), strict=True))
    assert (cells[OURS], cells["EWMA"], cells["ridge"], cells["MSTL"], cells["river"]) == (
        "0.500", "**0.700**", "**0.700**", "–", "",
    )  # fmt: skip


def test_questions_are_counted_over_all_logs() -> None:
    logs = [Forecasts(DevelopmentLog(name, "", dict, (2,))) for name in "ab"]
    first: dict[str, Any] = {OURS: np.array([0.5, 0.9, np.nan]), "EWMA": np.array([0.6, 0.1, np.nan]), "MSTL": None}
    second: dict[str, Any] = {OURS: np.array([0.3]), "EWMA": np.array([0.29]), "MSTL": np.array([0.35])}
    for forecasts, scores in zip(logs, (first, second), strict=True):
        forecasts.scores = scores
    counts = {row.what: row.values for row in sum_up(logs) if isinstance(row, Score)}
    assert counts["questions"] == {OURS: 3, "EWMA": 3, "MSTL": 1}
    assert counts["is the best"] == {OURS: 1, "EWMA": 1, "MSTL": 1}
    assert counts["more than .05 below the best"] == {OURS: 1, "EWMA": 2, "MSTL": 0}
    assert counts["emphatic loses to it by more than 0.02"] == {"EWMA": 1, "MSTL": 1}
    assert counts["emphatic wins by more than 0.02"] == {"EWMA": 1, "MSTL": 0}


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


def test_features_of_a_log_that_never_varies_are_finite() -> None:
    assert np.isfinite(scaled(np.ones((600, 3)))).all()
