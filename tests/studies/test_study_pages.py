"""The pages of studies: a sweep and a reproduction, complete in themselves, with what diverged kept in its place."""

from __future__ import annotations

import base64
import math
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from emphatic.nexting.cli import app
from emphatic.nexting.report import Axis, Figure, Key, Level, Line, Marks, Panel, Plot, category, text
from emphatic.nexting.report.plots import draw_file, read_plots
from emphatic.studies.pages import SweepPage, sweep_page
from reproductions.pages import ReproductionPage, reproduction_page, reproductions_index, verdict
from tests.report.test_report import HOSTILE, Reader, data, small
from tests.support.browser import found, in_a_browser

ALPHAS = [2.0**k for k in range(-6, 0)]
NONE_AT_ALL = SweepPage("nothing", "", "RMSVE")


def lines(low: float, runs: int = 50) -> list[dict[str, Any]]:
    """Two λ whose errors fall, then grow, then are no numbers."""
    means = [0.6, 0.3, low, 0.4, 1e30, math.nan]
    diverged = [0, 0, 0, 0.1, 0.5, 1]
    line = {"alpha": ALPHAS, "mean": means, "diverged": diverged} | ({"se": [0.01] * 6} if runs > 1 else {})
    return [{"value": 0.0, **line}, {"value": 0.9, **line, "mean": [*means[:2], low + 0.05, *means[3:]]}]


def sweep(name: str = "etd", runs: int = 50, **more: Any) -> SweepPage:
    """A sweep of a rule without and one with a second parameter."""
    etas = [{"choice": f"eta = {eta}", "lines": lines(low, runs)} for eta, low in (("1/4", 0.25), ("1", 0.15))]
    se = 0.004 if runs > 1 else None
    best = [
        {"rule": "tdrc", "alpha": 2.0**-4, "lambda": 0.0, "second": "eta = 1", "mean": 0.15, "mean_se": se}
        | ({"worse_by": 0.05, "worse_low": 0.04, "worse_high": 0.06} if runs > 1 else {}),
        {"rule": name, "alpha": 2.0**-4, "lambda": 0.0, "mean": 0.1, "mean_se": se, "diverged": 2, "runs": runs},
    ]
    curves = [
        {"rule": row["rule"], "setting": name, "mean": [0.6, 0.1, math.inf], "se": [0.1, None, None]} for row in best
    ]
    given: dict[str, Any] = {
        "title": name,
        "intro": name,
        "metric": "RMSVE",
        "unit": "weighted by d_μ",
        "counts": {"settings": 36, "runs": runs, "steps": 100, "learner_steps": 180_000, "diverged_settings": 9},
        "sensitivity": [
            {"rule": name, "line_name": "lambda", "panels": [{"choice": "", "lines": lines(0.1, runs)}]},
            {"rule": "tdrc", "line_name": "lambda", "panels": etas},
        ],
        "learning": {"points": [10, 50, 100], "best mean": curves, "best final": curves[:1]},
        "best": best,
        "baseline": {"w = 0": 0.689},
        "settings": {"problem": name},
        "seconds": {"learning": 2.0},
        "versions": {"emphatic": name},
    }
    return SweepPage(**(given | more))


def study(name: str = "chain", agree: bool | None = True) -> ReproductionPage:
    """A reproduction with every part in it."""
    ours = Line([0.1, 1.0], [0.5, math.inf], name, category(9), low=[0.4, 0.4], high=[0.6, 0.6], notes=[name, ""])
    published = Marks([0.1], [0.45], name, error=[0.02])
    panel = Panel(name, [ours], (0.0, 1.0), [published], [Level(0.2, name)])
    plot = Plot({"a": [panel], "b": [panel]}, name, x=Axis(name, "log"), y=Axis(name))
    checks: list[dict[str, Any]] = [
        {"name": name, "published": 2.27184, "ours": 2.2718412, "tolerance": 1e-5, "agree": True, "note": name},
        {"name": "second", "published": 0.347, "ours": 0.36, "tolerance": 0.008, "agree": agree},
        {"name": "third", "published": None, "ours": "as it is", "tolerance": None, "agree": None},
    ]
    figure = Figure(name, plot, name, [Key(category(9), name), Key("truth", name, symbol="diamond")])
    return ReproductionPage(name, name, [figure], checks, [name], {"runs": 5}, {"all": 3.0}, {"emphatic": name})


def test_the_caption_names_the_method_of_the_intervals() -> None:
    (row, *_) = sweep(runs=3).best
    for method, said in (("t", "by Student’s t (fewer than five runs)"), ("bootstrap", "by bootstrap")):
        assert f"Intervals: 95%, {said}." in sweep_page(sweep(best=[{**row, "interval": method}]))


def numbers(page: str, key: str) -> Any:
    packed = data(page)["arrays"][key]
    return np.frombuffer(base64.b64decode(packed["data"]), {"float": "<f4", "number": "<f8"}[packed["kind"]])


PAGES: dict[str, Callable[[], str]] = {
    "sweep": lambda: sweep_page(sweep(HOSTILE)),
    "one run": lambda: sweep_page(sweep(runs=1)),
    "empty sweep": lambda: sweep_page(NONE_AT_ALL),
    "reproduction": lambda: reproduction_page(study(HOSTILE)),
    "empty reproduction": lambda: reproduction_page(ReproductionPage("nothing", "")),
    "log": small,
    "index": lambda: reproductions_index({"chain.html": study(HOSTILE)}, HOSTILE, HOSTILE),
}


@cache
def made(name: str) -> str:
    return PAGES[name]()


@pytest.mark.parametrize("name", PAGES)
def test_well_formed_safe_and_in_itself_complete(name: str) -> None:
    page = made(name)
    reader = Reader(page)
    assert reader.problems == []
    assert reader.open == []
    ids = {value for _, name, value in reader.attributes if name == "id"}
    links = [link for link in reader.of("a", "href") if link != "chain.html"]
    assert all(link.startswith("#") and link[1:] in ids for link in links)
    loading = {(tag, name) for tag, name, _ in reader.attributes if name in ("src", "srcset", "href", "action", "data")}
    assert loading <= {("a", "href")}
    assert not {"link", "iframe", "img", "object", "base"} & {tag for tag, _, _ in reader.attributes}
    style = "".join(reader.text["style"])
    assert "url(" not in style
    assert "@import" not in style
    assert any(value.startswith("default-src 'none'") for value in reader.of("meta", "content"))
    assert "<script>alert" not in page
    assert not re.search(r">\s*(None|nan|inf)\s*<", page.split("</main>")[0])


def test_what_is_empty_is_left_out() -> None:
    assert "<section" not in made("empty sweep")
    assert "<section" not in made("empty reproduction")
    without = sweep_page(sweep(sensitivity=(), learning={}))
    assert re.findall(r'<section id="(\w+)"', without) == ["summary", "settings", "time"]
    assert "uPlot" not in made("index")


def test_a_sweep_says_which_rule_was_best_and_by_how_much() -> None:
    said = sweep_page(sweep())
    assert "The best rule was etd, with a mean RMSVE of 0.1000 ± 0.0040 (alpha 2⁻⁴, lambda 0)." in said
    between = "Run by run the difference is between 0.040 and 0.060 (95%)."
    assert f"Next came tdrc with 0.1500 ± 0.0040, 50% more. {between}" in said
    assert "36 settings × 50 runs × 100 steps: 180,000 learner-steps in 2.0 s. In 9 settings some run diverged." in said
    assert "the difference is" not in made("one run")
    ends = {"worse_low": -0.001, "worse_high": 0.003}
    close = [{"rule": rule, "mean": mean, **ends} for rule, mean in (("a", 0.1), ("b", 0.101), ("c", None))]
    text = "the difference is between −0.0010 and 0.0030 (95%), so it is not clearly worse. 1 of 3 rules diverged"
    assert text in sweep_page(sweep(best=close))
    assert "At its best setting a has a mean RMSVE" in sweep_page(sweep(best=close[:1]))
    assert "No rule kept its RMSVE finite" in sweep_page(sweep(best=close[2:]))


def test_what_diverged_leaves_the_frame_and_does_not_set_it() -> None:
    page = sweep_page(sweep())
    panel = data(page)["plots"][0]["views"][""][0]
    assert panel["range"] == pytest.approx([0.0, 1.15 * 0.689])
    means = numbers(page, panel["lines"][0]["y"])
    np.testing.assert_allclose(means, [0.6, 0.3, 0.1, 0.4, 1e30, np.inf], rtol=1e-6)
    shares = [note.removeprefix("± 0.01 · ") for note in panel["lines"][0]["notes"]]
    assert shares == ["± 0.01"] * 3 + [f"{share}% of runs diverged" for share in (10, 50, 100)]
    high = numbers(page, panel["lines"][0]["high"])
    np.testing.assert_allclose(high[:3], np.array([0.6, 0.3, 0.1]) + 2.00957 * 0.01, rtol=1e-5)
    assert np.isnan(high[-1])


def test_the_best_over_a_parameter_comes_first() -> None:
    page = sweep_page(sweep())
    plot = data(page)["plots"][1]
    assert list(plot["views"]) == ["best", "eta = 1/4", "eta = 1"]
    assert plot["first"] == "best"
    best = plot["views"]["best"][0]
    np.testing.assert_allclose(numbers(page, best["lines"][0]["y"])[:4], [0.6, 0.3, 0.15, 0.4], rtol=1e-6)
    assert best["lines"][0]["notes"][2] == "± 0.01 · eta = 1"
    assert np.isfinite(numbers(page, best["lines"][0]["low"])[:4]).all()
    assert numbers(page, best["marks"][0]["x"]) == [2.0**-4]
    assert "Best over eta" in page
    assert [key for key in plot["x"] if plot["x"][key] == "log2"] == ["scale"]


def test_a_curve_has_a_gap_where_nothing_is_known() -> None:
    """As at the end of a log, whose last returns are not known yet; what diverged leaves the frame."""
    curve = {"rule": "etd", "setting": "", "mean": [0.6, math.nan, None, math.inf], "se": None}
    page = sweep_page(sweep(learning={"points": [1, 2, 3, 4], "best mean": [curve]}))
    plot = data(page)["plots"][-1]["views"]["best mean"][0]
    np.testing.assert_array_equal(
        numbers(page, plot["lines"][0]["y"]), np.array([0.6, np.nan, np.nan, np.inf], np.float32)
    )


def test_a_rule_without_lambda_has_no_key() -> None:
    line = {"value": "not set", "alpha": ALPHAS, "mean": [0.5] * 6}
    one = [{"rule": "td", "line_name": "", "panels": [{"choice": "", "lines": [line]}]}]
    page = sweep_page(sweep(sensitivity=one))
    assert "not set" not in page.split('id="sensitivity"')[1].split('<div class="multiples"')[0]
    assert data(page)["plots"][0]["views"][""][0]["lines"][0]["name"] == "td"


def test_a_reproduction_judges_each_number() -> None:
    page = reproduction_page(study(agree=True))
    assert "✓</b> 2 of 2 numbers agree; 1 more is only reported.</span>" in page
    rows = re.findall(r"<tr>(.*?)</tr>", page.split('id="checks"')[1].split("</section>")[0])
    cells = [re.sub("<[^>]*>", "", cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", rows[1])]
    assert cells == ["chain", "✓ agrees", "2.27184", "2.271841", "± 1e−05", "chain"]
    sharp = {"name": "sharp", "published": 0.531441, "ours": 0.531441, "tolerance": 5.3e-13, "agree": True}
    assert "0.53144100000000" in reproduction_page(ReproductionPage("", "", checks=[sharp]))
    page = reproduction_page(study(agree=False))
    assert "✗</b> 1 of 2 numbers agree" in page
    assert "Different from what was published: second." in page
    assert verdict([{"agree": None}]) == "1 number reported; it is not judged."
    assert verdict([{"agree": True}]) == "1 of 1 number agrees."


def test_the_index_leads_to_every_study() -> None:
    page = reproductions_index(
        {"a.html": study("a"), "b.html": study("b", agree=False), "c.html": ReproductionPage("c", "")}
    )
    assert Reader(page).of("a", "href") == ["a.html", "b.html", "c.html"]
    assert "✗</b> 1 of 2 studies agree in every number." in page


def test_a_logarithmic_axis_has_no_zero() -> None:
    plot = Plot({"": [Panel("", [Line([0.0, 1.0], [1.0, 1.0], "a")])]}, "", x=Axis(scale="log2"))
    with pytest.raises(ValueError, match="'x' parameter of Line must be above 0 on a logarithmic axis"):
        reproduction_page(ReproductionPage("", "", [Figure("", plot)]))


def test_files_are_drawn_from_the_description_that_a_page_holds(tmp_path: Path) -> None:
    """Read back from the page it is the same, and each plot becomes a file with what it says."""
    ((label, plot),) = read_plots(made("reproduction"))
    described = study(HOSTILE).figures[0].plot
    assert (label, plot.group, plot.x, plot.y, list(plot.views)) == (
        HOSTILE,
        HOSTILE,
        described.x,
        described.y,
        ["a", "b"],
    )
    (panel,), (expected,) = plot.views["a"], described.views["a"]
    assert (panel.title, panel.y_range, panel.levels) == (expected.title, expected.y_range, expected.levels)
    for shape, given in zip([*panel.lines, *panel.marks], [*expected.lines, *expected.marks], strict=True):
        for name, value in vars(given).items():
            if name in ("x", "y", "low", "high", "error") and value is not None:
                np.testing.assert_allclose(getattr(shape, name), value, rtol=1e-7)
            else:
                assert getattr(shape, name) == value
    plots = dict(read_plots(made("sweep")))
    draw_file(plots["tdrc: RMSVE against alpha"], tmp_path / "tdrc.svg")
    words = "".join(ElementTree.parse(tmp_path / "tdrc.svg").getroot().itertext())
    assert all(shown in words for shown in ("RMSVE", "alpha", "lambda 0.9", "best: lambda 0"))
    axis = Axis("$a$", ticks={0.0: "$_$", 1.0: "b"})
    odd = Plot({"": [Panel("in $ or $^", [Line([0.0, 1.0], [1.0, 2.0], "$_{$")])]}, "", x=axis)
    draw_file(odd, tmp_path / "odd.svg")
    words = "".join(ElementTree.parse(tmp_path / "odd.svg").getroot().itertext())
    assert all(shown in words for shown in ("in $ or $^", "$_{$", "$a$", "$_$"))


def test_plot_of_a_sweep_without_matplotlib(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line with the pip command, before anything is learned."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SystemExit) as stopped:
        app(["sweep", "chain", "--figures", "--out", str(tmp_path / "out")])
    assert stopped.value.code == 2
    assert capsys.readouterr().err == "Error: Figures need matplotlib: pip install 'emphatic[plot]'\n"
    assert not (tmp_path / "out").exists()


@in_a_browser
def test_drawn_at_phone_width(tmp_path: Path) -> None:
    """All plots are drawn without an error, and nothing sticks out sideways."""
    probe = """<script>const look = () => {
      const found = [...document.querySelectorAll("iframe")].flatMap(({ contentDocument: inside }) => {
        const charts = [...inside.querySelectorAll(".plot")].flatMap((plot) => plot.charts || []);
        const sum = (count) => charts.reduce((total, chart) => total + count(chart), 0);
        const dots = (chart) => chart.series.reduce((total, { points }, i) => total
          + (i && points.show(chart, i) ? chart.data[i].filter(Number.isFinite).length : 0), 0);
        return [inside.querySelectorAll(".plot:has(.uplot)").length, sum((chart) => chart.series.length - 1),
          sum((chart) => chart.bands), sum((chart) => chart.levels), sum((chart) => chart.marks), sum(dots),
          inside.documentElement.scrollWidth]; });
      document.body.dataset.found = found.join(); }; setInterval(look, 100);</script>"""
    frames = [
        f'<iframe width="390" height="4000" srcdoc="{text(made(name))}"></iframe>' for name in ("sweep", "reproduction")
    ]
    # A sweep: 2 panels, each a line and a band for 2 λ of 6 points, a level and a dot; then twice 2 curves of 3 points
    # with their bands, and a level. A reproduction: a line of 2 points with a band, a level and a mark.
    wanted = "4,8,8,4,2,36,390,1,1,1,1,1,2,390"
    assert found(tmp_path, f"<body>{probe}{''.join(frames)}</body>", wanted, 900) == wanted
