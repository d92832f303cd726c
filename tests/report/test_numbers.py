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

from emphatic.nexting.report import amount, share
from emphatic.nexting.scores.verdicts import describe_baseline
from tests.report.test_report import data

EXPLAINED = "variance_explained"
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


def process(*given: object) -> str:
    """What the command writes to a wide terminal."""
    code = "from emphatic.nexting.cli import app; app()"
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
def nexting(log: Path) -> tuple[Path, str, str]:
    """The folder of the results, the page, and what the terminal showed."""
    out = log.with_name("out")
    asked = ("--ask", "s0 at +12", "--ask", "mean of s0 over 12", "--ask", "s0@12")
    shown = process("nexting", log, "--horizons", "2,12", *asked, "--out", out)
    return out, (out / "report.html").read_text("utf-8"), shown


def summary_of(folder: Path) -> list[Numbers]:
    """The objects of ``summary.json``."""
    found: list[Numbers] = json.loads((folder / "summary.json").read_text("utf-8"))
    return found


def test_the_medians_in_the_terminal(nexting: tuple[Path, str, str]) -> None:
    folder, _, shown = nexting
    for row, horizon in zip(columns_of(shown), (2, 12), strict=True):
        scores = [score for score in summary_of(folder)[1:] if (score["kind"], score["horizon"]) == ("at", horizon)]
        assert len(scores) == 5
        numbers = []
        for name in (None, "best", "persistence"):
            several = [
                (score["baselines"][score["best_baseline"] if name == "best" else name] if name else score)[EXPLAINED]
                for score in scores
            ]
            middle = statistics.median(several)
            others = (max(several), min(several), statistics.mean(several))
            assert min(abs(other - middle) for other in others) > 0.001, name
            numbers.append(share(middle, 3).replace("−", "-"))
        better = sum(score["verdict"] == "better" for score in scores)
        assert row == [str(horizon), *numbers, f"{better} of 5"]


def test_every_score_on_the_page(nexting: tuple[Path, str, str]) -> None:
    folder, page, _ = nexting
    for score, row in zip(summary_of(folder)[1:], cells(page, "scores"), strict=True):
        best = score["baselines"][score["best_baseline"]]
        assert [row.pop(i)[1] for i in (3, 1, 0)] == [
            describe_baseline(score["best_baseline"]), score["verdict"], score["text"],
        ]  # fmt: skip
        expected = [score["skill_best"], score[EXPLAINED], best[EXPLAINED], score["rmse"], best["rmse"], score["mae"]]
        expected += [score["coverage"], score["known"]]
        shows = [share] * 3 + [amount] * 3 + [share, amount]
        for (order, text), number, show in zip(row, expected, shows, strict=True):
            assert text == show(number)
            assert order == repr(float(number))


def test_the_forecast_on_the_page(nexting: tuple[Path, str, str]) -> None:
    """In the table and in the plot, what the last row of ``predictions.parquet`` has."""
    folder, page, _ = nexting
    last = {name: value for name, (value,) in pq.read_table(folder / "predictions.parquet")[-1:].to_pydict().items()}
    plot = next(plot for plot in data(page)["plots"] if plot["group"] == "outlook")
    for row, panels in zip(cells(page, "all"), plot["views"].values(), strict=True):
        name = row[0][1]
        for (order, shown), horizon in zip(row[2:4], (2, 12), strict=True):
            middle, low, high = (last[f"{name} at +{horizon}{end}"] for end in ("", ".low", ".high"))
            assert float(order) == pytest.approx(middle, rel=1e-6)
            numbers = [float(part.replace("−", "-")) for part in re.findall(r"−?[\d.]+", shown)]
            assert numbers == pytest.approx([middle, low, high], abs=0.05 * (high - low))
        (panel,) = panels
        assert panel["title"] == name
        (marks,) = panel["marks"]
        np.testing.assert_array_equal(array(page, marks["x"]), [2499 + 2, 2499 + 12])
        for end, key in (("", "y"), (".low", "low"), (".high", "high")):
            expected = [last[f"{name} at +{horizon}{end}"] for horizon in (2, 12)]
            np.testing.assert_allclose(array(page, marks[key]), expected, rtol=1e-4, atol=1e-4)


def test_answers_on_the_page_are_at_the_end_of_what_they_are_about(nexting: tuple[Path, str, str]) -> None:
    folder, page, _ = nexting
    predictions = pq.read_table(folder / "predictions.parquet")
    drawn = {plot["group"]: plot["views"][""][0] for plot in data(page)["plots"] if plot["group"] != "outlook"}
    for q, (text, later, title) in enumerate((
        ("s0 at +12", 12, "Forecast, at the time that it is about"),
        ("mean of s0 over 12", 12, "Answer, at the end of its window"),
        ("s0@12", 0, "Weighted mean, at the row that asks"),
    )):  # fmt: skip
        panel = drawn[f"asked {q}"]
        assert panel["title"] == title
        (line,) = [line for line in panel["lines"] if line["name"] == "answer"]
        rows = np.arange(2500 - len(array(page, line["y"])), 2500)
        np.testing.assert_array_equal(array(page, line["x"]), rows + later)
        for key, end in (("y", ""), ("low", ".low"), ("high", ".high")):
            expected = predictions.column(text + end).to_numpy()[rows]
            np.testing.assert_allclose(array(page, line[key]), expected, atol=np.ptp(expected) / 60_000)


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
