"""What a careful reader of a sweep asks for: edges of grids, fresh runs, sensitivity, spread, legible figures."""

from __future__ import annotations

import functools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from emphatic.nexting.cli import app
from emphatic.nexting.report.plots import Line, Plot, look, read_plots
from emphatic.studies import Recorded, Sweep, sweep
from emphatic.studies.results import _area
from emphatic.studies.statistics import interval, tolerance_interval

pytestmark = pytest.mark.plain
RUNNER = CliRunner()
FEW: dict[str, Any] = {"runs": 3, "steps": 60, "every": 5}


def swept(grid: Any, **more: Any) -> Sweep:
    return sweep("chain", grid, **(FEW | more))


# ---------------------------------------------------------------------- edges


@pytest.mark.parametrize(
    ("axes", "edges"),
    [
        # α falls short of what it could be in all of these: the best is the largest
        ({"alpha": [1e-4, 2e-4], "lambda": 0}, ["alpha"]),
        ({"alpha": [2e-4, 1e-4], "lambda": 0}, ["alpha"]),
        ({"alpha": 1e-4, "lambda": 0}, []),  # a single value is no grid
        ({"alpha": [1e-4, 1e-4], "lambda": 0}, []),
        ({"alpha": [1e-4, 2e-4], "lambda": [0, 1]}, ["alpha"]),  # λ = 1 is the end of what is possible
        ({"alpha": [1e-4, 2e-4], "lambda": [0.1, 0.9]}, ["alpha", "lambda"]),
        ({"alpha": [1e-4, 0.01, 60.0], "lambda": 0}, []),
    ],
)
def test_a_best_setting_at_the_edge_of_its_grid(axes: dict[str, Any], edges: list[str]) -> None:
    (best,) = swept({"rule": "td"} | axes).best
    assert best["edge"] == edges
    assert bool(best["advice"]) == bool(edges)
    for name in edges:
        assert f"{name} = {best[name]:.6g} is the largest of its grid: extend it upwards." in best["advice"]


def test_the_lower_edge_and_an_alpha_of_zero() -> None:
    (best,) = swept({"rule": "td", "alpha": [20.0, 40.0], "lambda": 0}).best
    assert best["advice"] == "alpha = 20 is the least of its grid: extend it downwards."
    (best,) = swept({"rule": "td", "alpha": [0, 20.0], "lambda": 0}).best
    assert (best["alpha"], best["edge"]) == (0.0, [])


def test_edges_are_those_of_the_grid_that_a_setting_is_in() -> None:
    """A rule in two grids: other values of α with another λ do not count, the same λ in both does."""
    small = {"rule": "td", "alpha": [1e-4, 2e-4], "lambda": 0}
    apart = swept([small, {"rule": "td", "alpha": [1e-9, 1.0], "lambda": 0.1}])
    assert apart.edges == [["alpha"]] * 4
    joined = swept([small, {"rule": "td", "alpha": [5e-5, 1.0], "lambda": 0}])
    assert joined.edges == [[], [], ["alpha"], ["alpha"]]
    gtd = swept({"rule": ["td", "gtd"], "alpha": [0.01, 0.02, 0.04], "lambda": [0, 0.5], "eta": [0, 1, 2]})
    for setting, edge in enumerate(gtd.edges):
        value = {name: column[setting] for name, column in gtd.parameters.items()}
        ends = {"alpha": (0.01, 0.04), "lambda": (0.5,), "eta": (2,)}
        assert edge == [name for name in ends if value[name] in ends[name]]


def test_the_edge_is_flagged_everywhere(tmp_path: Path) -> None:
    words = "sweep chain --rules td,etd --alpha .0001,.0002 --lambda 0,.9 --runs 3 --steps 60 --every 5 --figures --out"
    result = RUNNER.invoke(app, [*words.split(), str(tmp_path)], env={"COLUMNS": "160"})
    assert result.exit_code == 0, result.output
    advice = "alpha = 0.0002 is the largest of its grid: extend it upwards."
    assert f"! td is best at the edge of the grid: {advice}" in result.output
    assert "0.0002 !" in result.output
    (td, etd) = json.loads((tmp_path / "summary.json").read_text("utf-8"))["best"]
    assert td["edge"] == ["alpha", "lambda"]
    assert td["advice"].startswith(advice)
    edges = pq.read_table(tmp_path / "settings.parquet").column("edge").to_pylist()
    assert edges[td["setting"]] == td["edge"]
    assert edges[etd["setting"]] == etd["edge"]
    page = (tmp_path / "report.html").read_text("utf-8")
    assert f"td: {advice}" in page
    assert "0.0002 (edge)" in page
    plots = dict(read_plots(page))
    panels = [panel for plot in plots.values() for panel in next(iter(plot.views.values()))]
    marked = [mark for panel in panels for mark in panel.marks]
    assert sum(mark.symbol == "triangle" and mark.label == "edge of the grid" for mark in marked) >= 4
    for kind in ("alpha", "rules", "lambda"):
        assert "edge of the grid" in (tmp_path / f"{kind}.svg").read_text("utf-8")


# ---------------------------------------------------------------------- keys


def test_a_diverged_best_has_every_key(tmp_path: Path) -> None:
    grid = [{"rule": "td", "alpha": [0.01, 0.02], "lambda": 0}, {"rule": "etd", "alpha": [1e5, 1e6], "lambda": 0}]
    found = swept(grid, steps=400, rerun=2, out=tmp_path, tolerance=0.5)
    lived, lost = json.loads((tmp_path / "summary.json").read_text("utf-8"))["best"]
    assert lost["diverged"] == 2
    assert set(lost) == set(lived)
    unknown = {"mean", "mean_se", "mean_low", "mean_high", "interval", "median", "worse_by", "worse_low"}
    assert {name for name in lost if lost[name] is None} >= unknown | {"worst", "chosen_mean"}
    assert {name for name in lived if lived[name] is None} == {"tolerance_low", "tolerance_high"}  # of two runs
    assert found.best[1]["mean"] == math.inf
    alone = swept(grid[:1], runs=1).best[0]
    assert set(alone) == set(lived)


# ---------------------------------------------------------------------- fresh runs


@functools.cache
def rerun_and_whole() -> tuple[Sweep, Sweep]:
    grid = {"rule": ["td", "etd", "abtd"], "alpha": [0.01, 0.02, 0.1], "lambda": [0, 0.5, 0.9, 1], "zeta": [0, 0.6]}
    few: dict[str, Any] = {"steps": 80, "every": 5}
    return sweep("collision", grid, runs=3, rerun=6, **few), sweep("collision", grid, runs=9, **few)


def test_all_that_is_shown_of_chosen_settings_is_from_fresh_runs() -> None:
    """The best by their mean and by their end, the best at each λ, and the others over α at the best λ."""
    found, whole = rerun_and_whole()
    fresh = whole.mean[:, 3:]
    assert np.array_equal(found.mean, whole.mean[:, :3])  # runs 0 to 2 choose, 3 to 8 report
    for by in ("mean", "final"):
        for row, setting in zip(found.bests(by), found.choose(by), strict=True):
            assert row["mean"] == pytest.approx(fresh[setting].mean())
            assert row["final"] == pytest.approx(whole.final[setting, 3:].mean())
            assert (row["runs"], row["chosen_runs"]) == (6, 3)
    for rule in ("td", "etd", "abtd"):
        _, values, settings = found.along(rule)
        assert len(values) == (2 if rule == "abtd" else 4)
        np.testing.assert_allclose(found.errors_of(settings.tolist()), fresh[settings])
    for entry, setting in zip([one for one in found.sensitivity if one["at_best"]], found.choose(), strict=True):
        line = found._line(setting, "alpha")
        assert (entry["fresh"], entry["runs"]) == (True, 6)
        assert entry["mean"] == pytest.approx(fresh[line].mean(axis=1))
    assert {entry["fresh"] for entry in found.sensitivity if not entry["at_best"]} == {False}


@pytest.mark.parametrize("kind", ["lambda", "rules", "steps", "runs"])
def test_captions_say_on_which_runs(kind: str) -> None:
    found, whole = rerun_and_whole()
    text = " ".join(words.get_text() for words in found.plot(kind).texts)
    assert "chosen on 3 runs and are shown on 6 fresh ones" in " ".join(text.split())
    text = " ".join(words.get_text() for words in whole.plot(kind).texts)
    assert "chosen on 9 runs and are shown on the same runs, so errors are slightly too small" in " ".join(text.split())


def test_the_page_says_on_which_runs(tmp_path: Path) -> None:
    found, _ = rerun_and_whole()
    found.write(tmp_path)
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "The settings were chosen on 3 runs; the errors are those of other runs." in page
    assert page.count("Settings were chosen on 3 runs and are shown on 6 fresh ones.</p>") == 3  # rules, λ, learning
    lines = pq.read_table(tmp_path / "rerun_lines.parquet")
    assert found.rerun_lines is not None
    assert sorted(set(lines.column("swept").to_pylist())) == found.lines_of_figures()
    assert pq.read_table(tmp_path / "rerun.parquet").num_rows == 3 * 6


def test_what_is_no_number_of_fresh_runs_is_refused() -> None:
    grid = {"rule": "td", "alpha": 0.01, "lambda": 0}
    with pytest.raises(ValueError, match="'rerun' parameter of sweep must be a whole number of 0 or more"):
        swept(grid, rerun=-1)
    with pytest.raises(ValueError, match="'rerun' parameter of sweep must be 0 with a log"):
        sweep(Recorded(Phi=np.ones((9, 1)), R=np.ones(8), gamma_next=0.0), grid, rerun=2)


def test_tracked_curves_are_of_fresh_runs() -> None:
    calls: list[float] = []
    grid = {"rule": "td", "alpha": [0.01, 0.1], "lambda": 0}
    found = swept(grid, rerun=2, track=lambda name, value, step: calls.append(value))
    assert found.rerun is not None
    assert calls == pytest.approx(found.rerun.curve[0].mean(axis=0), rel=1e-6)


# ---------------------------------------------------------------------- sensitivity


def test_the_area_under_a_curve() -> None:
    alpha = np.array([0.1, 0.2, 0.8])
    assert _area(alpha, np.array([1.0, 1.0, 1.0]), 2.0) == pytest.approx(1.0)
    # from .1 to .2 is a third of the axis; .5 is the ceiling of the last
    assert _area(alpha, np.array([0.2, 0.4, np.inf]), 0.5) == pytest.approx((0.3 * 1 + 0.45 * 2) / 3)
    assert _area(alpha, np.array([0.2, 0.4, np.inf]), 0.0) == math.inf


def test_sensitivity_is_in_the_summary(tmp_path: Path) -> None:
    grid = {"rule": ["td", "gtd"], "alpha": [0, 0.01, 0.1, 1e6], "lambda": [0, 0.5], "eta": [0.1, 1]}
    swept(grid, out=tmp_path)
    summary = json.loads((tmp_path / "summary.json").read_text("utf-8"))
    rows = summary["sensitivity"]
    assert [(row["rule"], row["lambda"]) for row in rows] == [("td", 0), ("td", 0.5), ("gtd", 0), ("gtd", 0.5)]
    assert all(("eta" in row) == (row["rule"] == "gtd") for row in rows)
    assert [row["rule"] for row in rows if row["at_best"]] == ["td", "gtd"]
    ceiling = summary["baselines"]["θ = 0"]
    for row in rows:
        assert row["alpha"] == [0.01, 0.1, 1e6]
        assert row["mean"][-1] is None
        assert row["worst"] is None  # it diverged
        assert row["diverged"][-1] == 3
        place, error = np.log(row["alpha"]), np.minimum([*row["mean"][:2], np.inf], ceiling)
        assert row["area"] == pytest.approx(np.trapezoid(error, place) / np.ptp(place))
        assert row["mean_low"][0] < row["mean"][0] < row["mean_high"][0]
    for row in summary["best"]:
        (curve,) = (one for one in rows if one["at_best"] and one["rule"] == row["rule"])
        assert (row["area"], row["worst"], row["alpha"]) == (curve["area"], curve["worst"], curve["best_alpha"])
    page = (tmp_path / "report.html").read_text("utf-8")
    assert '<section id="rules"' in page
    assert "diverged at 1 step size" in page
    single = swept({"rule": ["td"], "alpha": 0.1, "lambda": 0})
    assert single.sensitivity == []
    assert (single.best[0]["area"], single.best[0]["worst"]) == (None, None)


# ---------------------------------------------------------------------- the spread of runs


def test_tolerance_and_distribution_by_keyword_and_file(tmp_path: Path) -> None:
    grid = {"rule": "td", "alpha": [0.01, 0.02], "lambda": 0}
    found = swept(grid, runs=9, tolerance=0.5, distribution=True, out=tmp_path / "keyword")
    (best,) = found.best
    low, high = tolerance_interval(found.mean[best["setting"]], 0.5)
    assert (best["tolerance"], best["tolerance_low"], best["tolerance_high"]) == (0.5, low, high)
    config = tmp_path / "sweep.toml"
    config.write_text(
        'problem = "chain"\nruns = 9\nsteps = 60\nevery = 5\ntolerance = 0.5\ndistribution = true\n'
        '[[grid]]\nrule = "td"\nalpha = [0.01, 0.02]\nlambda = 0\n'
    )
    result = RUNNER.invoke(app, ["sweep", "--config", str(config), "--out", str(tmp_path / "file")])
    assert result.exit_code == 0, result.output
    assert "50% of runs lie between" in result.output
    for name in ("keyword", "file"):
        summary = json.loads((tmp_path / name / "summary.json").read_text("utf-8"))
        assert (summary["tolerance"], summary["best"][0]["tolerance_low"]) == (0.5, low)
        page = (tmp_path / name / "report.html").read_text("utf-8")
        (plot,) = (plot for label, plot in read_plots(page) if label.startswith("all runs"))
        dots = plot.views[""][0].marks[0]
        np.testing.assert_allclose(np.asarray(dots.y, float), found.mean[best["setting"]], rtol=1e-6)
    assert "All runs of the best settings" not in _page_of(swept(grid), tmp_path / "none")


def _page_of(found: Sweep, folder: Path) -> str:
    found.write(folder)
    return (folder / "report.html").read_text("utf-8")


def test_too_few_runs_for_a_tolerance_interval(tmp_path: Path) -> None:
    found = swept({"rule": "td", "alpha": 0.01, "lambda": 0}, tolerance=0.9, distribution=True)
    assert (found.best[0]["tolerance"], found.best[0]["tolerance_low"]) == (0.9, None)
    assert "Tolerance intervals of 90% need 46 runs or more." in _page_of(found, tmp_path)


@pytest.mark.parametrize("share", [0, 1, -0.5, 1.5, True, "many"])
def test_what_is_no_share_is_refused(share: Any) -> None:
    with pytest.raises(ValueError, match="'tolerance' parameter of sweep must be a number between 0 and 1"):
        swept({"rule": "td", "alpha": 0.01}, tolerance=share)


def test_a_file_with_a_wrong_switch(tmp_path: Path) -> None:
    (tmp_path / "sweep.toml").write_text('problem = "chain"\ndistribution = 3\n')
    result = RUNNER.invoke(app, ["sweep", "--config", str(tmp_path / "sweep.toml")])
    assert result.exit_code == 2
    assert "'distribution' must be true or false" in result.output


# ---------------------------------------------------------------------- figures


@pytest.mark.parametrize("count", [1, 3, 4, 12])
@pytest.mark.parametrize("runs", [2, 6])
def test_every_figure_has_bands_for_any_number_of_lambdas(count: int, runs: int, tmp_path: Path) -> None:
    lambdas = np.linspace(0.0, 1.0, count).tolist()
    found = swept({"rule": "td", "alpha": [0.01, 0.02, 0.04], "lambda": lambdas}, runs=runs)
    for kind in ("alpha", "rules", "lambda", "steps"):
        (axes,) = (place for place in found.plot(kind).axes if place.get_visible())
        lines = [line for line in axes.get_lines() if not line.get_label().startswith("_") or len(line.get_xdata()) > 2]
        bands = [band for band in axes.collections if band.get_paths()]
        assert len(bands) == (count if kind == "alpha" else 1), (kind, lines)
    page = _page_of(found, tmp_path)
    for label, plot in read_plots(page):
        lines = [line for panels in plot.views.values() for panel in panels for line in panel.lines]
        assert lines
        assert all(line.low is not None and np.isfinite(line.low).any() for line in lines), label
    # the band is the interval of the table
    (panel,) = dict(read_plots(page))["td: RMSVE against alpha"].views[""]
    setting = int(np.flatnonzero((found.parameters["lambda"] == 0.0) & (found.parameters["alpha"] == 0.02))[0])
    (line,) = (line for line in panel.lines if line.key == "line 0.0")
    ends = interval(found.mean[setting])
    assert line.low is not None
    assert line.high is not None
    assert (np.asarray(line.low)[1], np.asarray(line.high)[1]) == pytest.approx((ends.low, ends.high), rel=1e-6)


def test_baselines_are_labelled() -> None:
    found = swept({"rule": "td", "alpha": [0.01, 0.02], "lambda": [0, 0.5]})
    for kind in ("alpha", "rules", "lambda", "steps", "runs"):
        axes = found.plot(kind).axes[0]
        words = {text.get_text() for text in axes.texts}
        low, high = axes.get_ylim()
        assert {name for name, value in found.baselines.items() if low <= value <= high} <= words
        assert "θ = 0" in words
    log = Recorded(Phi=np.eye(4)[np.arange(60) % 4], R=np.ones(59), gamma_next=0.5)
    words = {text.get_text() for text in sweep(log, {"rule": "td", "alpha": [0.1, 0.2]}).plot("rules").axes[0].texts}
    assert {"θ = 0", "mean return"} <= words


def test_curves_that_coincide_are_told_apart() -> None:
    """tree_backup, vtrace and abtd (ζ = λ/2) have the same traces on collision, and so the same curves."""
    grid = {"rule": ["tree_backup", "vtrace"], "alpha": [0.01, 0.02], "lambda": [0, 1]}
    found = sweep("collision", grid, **FEW)
    np.testing.assert_allclose(found.mean[:4], found.mean[4:], rtol=1e-9)
    for kind in ("rules", "lambda", "steps"):
        axes = found.plot(kind).axes[0]
        first, second = (line for line in axes.get_lines() if line.get_label() in ("tree_backup", "vtrace"))
        assert first.get_color() != second.get_color()
        assert (first.get_linestyle(), first.get_marker()) != (second.get_linestyle(), second.get_marker())
        assert first.get_zorder() < second.get_zorder()  # the one with gaps is above the solid one
        heights = [text.get_position()[1] for text in axes.texts if text.get_text() in ("tree_backup", "vtrace")]
        assert abs(heights[0] - heights[1]) > 0.05  # of the axes: the names stand one above the other


def test_sixteen_lines_look_different() -> None:
    looks = {(i % 8, look(i)["dash"]) for i in range(16)}
    assert len(looks) == 16
    Plot({"": []}, "", direct=True)
    assert Line([0.0], [0.0], "", **look(5)).marker == "square"
