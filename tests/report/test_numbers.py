"""The numbers that people read, in the terminal and on the pages, against the files they are from."""

from __future__ import annotations

import base64
import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import emphatic
from emphatic.report import amount, plots, share
from emphatic.report.page import percent
from tests.report.test_report import data

RIVALS = ("", "offline", "persistence", "mean")
Numbers = dict[str, Any]


def array(page: str, key: str) -> np.ndarray:
    """Numbers of a plot."""
    packed = data(page)["arrays"][key]
    raw = base64.b64decode(packed["data"])
    if packed["kind"] == "levels":
        levels = np.frombuffer(raw, "<u2").astype(float)
        return np.where(levels == 65535, np.nan, packed["low"] + packed["scale"] * levels)
    return np.frombuffer(raw, "<f4" if packed["kind"] == "float" else "<f8").astype(float)


def cells(page: str, section: str) -> list[list[tuple[str, str]]]:
    """The rows of the first table of a section: for each cell the number it is sorted by, and its text."""
    html = page.split(f'<section id="{section}"')[1].split("</table>")[0].split("<tbody>")[1]
    found = [re.findall(r'<td[^>]*?(?: data-order="([^"]*)")?>(.*?)</td>', row) for row in html.split("</tr>")[:-1]]
    return [[(order, re.sub("<[^>]*>", "", text)) for order, text in row] for row in found]


def value(score: Numbers, rival: str, what: str = "variance_explained") -> float:
    """A number of a score or of one of its baselines."""
    found: float = (score[rival] if rival else score)[what]
    return found


def process(*given: object) -> str:
    """What the command writes to a wide terminal."""
    code = "from emphatic.cli import app; app()"
    command = [sys.executable, "-c", code, *map(str, given)]
    return subprocess.run(
        command, check=True, capture_output=True, text=True, encoding="utf-8", env=os.environ | {"COLUMNS": "200"}
    ).stdout


def columns_of(shown: str) -> list[list[str]]:
    """The rows of a table in the terminal."""
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in shown.splitlines() if line[:1] == "│"]


# ------------------------------------------------------------------ nexting


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five signals, from smooth to nearly noise, whose levels change by more and more."""
    rng, t = np.random.default_rng(2), np.arange(2500)
    made = {
        f"s{i}": np.sin(t / (5 + 9 * i)) + 0.1 * 2.0**i * rng.normal(size=len(t)) + 0.4 * i**2 * (t > 1500)
        for i in range(5)
    }
    made["s3"][1500:1600] = np.nan
    path: Path = tmp_path_factory.mktemp("numbers") / "log.parquet"
    pq.write_table(pa.table(made), path)
    return path


@pytest.fixture(scope="module")
def nexting(log: Path) -> tuple[list[Numbers], str, str]:
    """summary.json, the page, and what the terminal showed."""
    out = log.with_name("out")
    shown = process("nexting", log, "--horizons", "2,12", "--exponential-only", "--out", out)
    return json.loads((out / "summary.json").read_text("utf-8")), (out / "report.html").read_text("utf-8"), shown


def medians(summary: list[Numbers], horizon: int) -> list[float]:
    """Of the variance explained, online and by each baseline."""
    here = [score for score in summary if score["horizon"] == horizon]
    assert len(here) == 5
    found = [statistics.median(value(score, rival) for score in here) for rival in RIVALS]
    for rival, middle in zip(RIVALS, found, strict=True):
        several = [value(score, rival) for score in here]
        others = (max(several), min(several), statistics.mean(several))
        assert min(abs(other - middle) for other in others) > 0.001, rival
    return found


def test_the_medians_in_the_terminal(nexting: tuple[list[Numbers], str, str]) -> None:
    summary, _, shown = nexting
    for row, horizon in zip(columns_of(shown), (2, 12), strict=True):
        scores = [score for score in summary if score["horizon"] == horizon]
        best = [score["baselines"][score["best_baseline"]]["variance_explained"] for score in scores]
        online, offline, persistence, _ = medians(summary, horizon)
        better = sum(score["verdict"] == "better" for score in scores)
        numbers = [f"{middle:.3f}" for middle in (online, statistics.median(best), persistence, offline)]
        assert row == [str(horizon), *numbers, f"{better} of 5"]


def test_the_medians_on_the_page(nexting: tuple[list[Numbers], str, str]) -> None:
    summary, page, _ = nexting
    rows = cells(page, "summary")
    assert [row[0][1] for row in rows] == ["2 steps", "12 steps"]
    for row, horizon in zip(rows, (2, 12), strict=True):
        numbers = [row[i] for i in (1, 3, 4, 5)]  # a meter stands after the first
        assert [float(order) for order, _ in numbers] == medians(summary, horizon)
        assert [text for _, text in numbers] == [share(middle) for middle in medians(summary, horizon)]
    lead = ", ".join(f"{100 * medians(summary, h)[0]:.0f}% at {h} steps" for h in (2, 12))
    assert f"Variance explained of the weighted means for the median signal: {lead}." in page
    lengths = [round(100 * max(0.0, medians(summary, h)[0])) for h in (2, 12)]
    assert re.findall(r'<i style="width:(\d+)%"', page)[:2] == list(map(str, lengths))


def test_every_score_on_the_page(nexting: tuple[list[Numbers], str, str]) -> None:
    summary, page, _ = nexting
    for score, row in zip(summary, cells(page, "scores"), strict=True):
        assert [row[0][1], row[1][1]] == [score["signal"], f"{score['horizon']} steps"]
        expected = [value(score, rival) for rival in RIVALS]
        expected += [score["ratio_to_offline"], score["skill"], score["first_half"]["variance_explained"]]
        expected += [value(score, rival, "rmse") for rival in RIVALS]
        expected += [score["coverage"], score["interval_score"], score["known"]]
        shows = [share] * 7 + [amount] * 4 + [share, amount, amount]
        assert row.pop(-2)[1] == ("yes" if score["calibrated"] else "not yet")
        for (order, text), number, show in zip(row[2:], expected, shows, strict=True):
            assert text == ("–" if number is None else show(number))
            assert order == ("" if number is None else repr(float(number)))
    panels = [
        panel
        for plot in data(page)["plots"]
        if plot["group"] == "signals"
        for panel in plot["views"]["close"]
        if panel["title"] != "reading"
    ]
    titles = [
        f"{s['horizon']} steps · variance explained {share(s['variance_explained'])} · "
        + (f"{percent(s['coverage'])} inside the interval" if s["calibrated"] else "interval not calibrated yet")
        for s in summary
    ]
    assert [panel["title"] for panel in panels] == titles


def test_the_intervals_on_the_page(nexting: tuple[list[Numbers], str, str], log: Path) -> None:
    """Bands around the predictions, and what comes next with its interval."""
    _, page, _ = nexting
    result = emphatic.nexting.run(log, horizons=[2, 12], offline=False)
    ends = {end: result.predictions.column(f"s0@2.{end}").to_numpy() for end in ("low", "high")}
    plot = next(plot for plot in data(page)["plots"] if plot["group"] == "signals")
    (line,) = [line for line in plot["views"]["close"][1]["lines"] if line["name"] == "prediction"]
    rows = array(page, line["x"]).astype(int)
    for end, values in ends.items():
        np.testing.assert_allclose(array(page, line[end]), values[rows], atol=np.ptp(values) / 60_000)
    drawn = next(plot for label, plot in plots.read_plots(page) if label.startswith("s0:"))
    plots.draw_file(drawn, log.with_name("s0.svg"))
    assert log.with_name("s0.svg").read_text("utf-8").count("fill-opacity: 0.2") == 2  # a band for each horizon
    shown = cells(page, "next")[0][2][1]
    numbers = [float(part.replace("−", "-")) for part in re.findall(r"−?[\d.]+", shown)]
    expected = [result.predictions.column(name)[-1].as_py() for name in ("s0@2", "s0@2.low", "s0@2.high")]
    assert numbers == pytest.approx(expected, abs=0.01 * (expected[2] - expected[1]))


def test_the_learning_curves_on_the_page(nexting: tuple[list[Numbers], str, str], log: Path) -> None:
    _, page, _ = nexting
    curves = emphatic.nexting.run(log, horizons=[2, 12]).curves
    views = data(page)["plots"][-1]["views"]
    for panel, horizon in zip(views["all"], (2, 12), strict=True):
        here = [curve for curve in curves if curve["horizon"] == horizon]
        table = {name: np.array([curve[name] for curve in here], float) for name in ("rmse", "persistence", "mean")}
        ratios = {"online": table["rmse"] / table["mean"], "persistence": table["persistence"] / table["mean"]}
        tops = [1.0]
        for name, ratio in ratios.items():
            (line,) = [line for line in panel["lines"] if line["name"] == name]
            expected = np.nanmedian(ratio, axis=0)
            np.testing.assert_allclose(array(page, line["y"]), expected, atol=np.ptp(expected) / 60_000)
            np.testing.assert_array_equal(array(page, line["x"]), here[0]["rows"])
            tops.append(float(expected.max()))
        assert panel["range"] == pytest.approx([0.0, 1.08 * min(max(tops), 2.0)])
    for j, curve in enumerate(curves[::2]):
        lines = {line["name"]: array(page, line["y"]) for line in views[str(j)][0]["lines"]}
        for name, key in (("online", "rmse"), ("persistence", "persistence"), ("running mean", "mean")):
            expected = np.array(curve[key], float)
            np.testing.assert_allclose(lines[name], expected, atol=np.nanmax(expected) / 60_000)


# ------------------------------------------------------------------ a sweep


def test_the_bands_and_ranges_of_a_sweep(tmp_path: Path) -> None:
    given = ["--rules", "td,etd", "--alpha", "2^-8..2^-6", "--lambda", "0,.9", "--runs", 4, "--steps", 300]
    shown = process("sweep", "chain", *given, "--out", tmp_path)
    summary = json.loads((tmp_path / "summary.json").read_text("utf-8"))
    page = (tmp_path / "report.html").read_text("utf-8")
    settings = pq.read_table(tmp_path / "settings.parquet").to_pylist()
    results = pq.read_table(tmp_path / "results.parquet").to_pylist()

    best = {row["rule"]: row for row in summary["best"]}
    printed = {row[0]: row for line in shown.splitlines() if (row := re.split(r"\s{2,}", line.strip()))[0] in best}
    assert list(printed) == list(best)
    for rule, ours in best.items():
        mean, ends = (f"{ours['mean']:.4g} ± {ours['mean_se']:.2g}", f"{ours['mean_low']:.3g}–{ours['mean_high']:.3g}")
        assert printed[rule][3:6] == [mean, ends, f"{ours['final']:.4g}"]
    for rule, *numbers in cells(page, "summary"):
        mean, low, _, median, final = (order for order, _ in numbers[:5])
        names = ("mean", "mean_low", "median", "final")
        assert [float(order) for order in (mean, low, median, final)] == [best[rule[1]][name] for name in names]

    plots = data(page)["plots"]
    sensitivity = [plot for plot in plots if plot["x"]["title"] == "alpha"]
    learning = next(plot for plot in plots if plot["group"] == "learning")
    for rule, plot in zip(best, sensitivity, strict=True):
        (panel,) = plot["views"][""]
        for line, lambda_ in zip(panel["lines"], (0.0, 0.9), strict=True):
            own = [s for s in settings if (s["rule"], s["lambda"]) == (rule, lambda_)]
            np.testing.assert_allclose(array(page, line["x"]), [s["alpha"] for s in own])
            for name, column in (("y", "mean"), ("low", "mean_low"), ("high", "mean_high")):
                np.testing.assert_allclose(array(page, line[name]), [s[column] for s in own], rtol=1e-6)
        least = min(s["mean"] for s in settings)
        assert panel["range"][1] == pytest.approx(1.15 * max(*summary["baselines"].values(), 1.2 * least))
    for by in ("mean", "final"):
        (panel,) = learning["views"][f"best {by}"]
        for line, rule in zip(panel["lines"], best, strict=True):
            chosen = min((s for s in settings if s["rule"] == rule), key=lambda s: s[by])
            runs = np.array([row["curve"] for row in results if row["setting"] == chosen["setting"]])
            mean, se = runs.mean(axis=0), runs.std(axis=0, ddof=1) / 2.0
            half = 3.18244630528 * se  # Student's t of 4 runs, at 97.5%
            for name, expected in (("y", mean), ("low", mean - half), ("high", mean + half)):
                np.testing.assert_allclose(array(page, line[name]), expected, rtol=1e-5)
