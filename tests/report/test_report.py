"""The page about a log: well formed, complete in itself, safe from what names say, and drawn by a browser."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import weakref
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from emphatic.answers.timing import Timing
from emphatic.nexting.outlook import History, SignalVerdict, make_outlook, read_forecasts, read_verdict
from emphatic.nexting.report import FILES, NextingPage, nexting_page
from emphatic.nexting.scoring import PlotBuilder, SignalPlot
from emphatic.report import Column, Html, amount, plots, share, table, text
from emphatic.report.plots import read_plots
from emphatic.scores.verdicts import Verdict, judge_signal
from tests.support.browser import found, in_a_browser

HOSTILE = """a"b'<script>alert(1)</script>&amp;"""
HORIZONS = {"2 min": 2.0, 30: 30.0}
VOID = {"meta", "input", "br"}


class Reader(HTMLParser):
    """Collects what a browser would see: elements that do not close, links, text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.problems: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text: dict[str, list[str]] = {}
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"</{tag}> at {self.getpos()}")

    def handle_data(self, data: str) -> None:
        self.text.setdefault(self.open[-1] if self.open else "", []).append(data)

    def of(self, tag: str, name: str) -> list[str]:
        return [value for found, attribute, value in self.attributes if (found, attribute) == (tag, name)]


def nexting(names: list[str], rows: int = 300) -> NextingPage:
    """A page's data with everything in it that may be: hostile names, gaps, unknown scores."""
    rng = np.random.default_rng(0)
    x = np.datetime64("2007-02-01T00:00", "ms") + 60_000 * np.arange(rows)
    x[rows // 2 :] += 3_600_000
    scores, signals = [], []
    pair = {"rmse": 0.2, "variance_explained": 0.9}
    unknown = {"rmse": None, "variance_explained": None}
    for name in names:
        reading = rng.random(rows)
        truth = np.where(np.arange(rows) < 0.9 * rows, reading, np.nan)
        signals.append(signal_plot(name, x, reading, dict.fromkeys(HORIZONS, reading), dict.fromkeys(HORIZONS, truth)))
        for horizon, steps in HORIZONS.items():
            score = {"signal": name, "horizon": horizon, "gamma": 1 - 1 / steps, "ratio_to_offline": None, "known": 135}
            baselines = {"first_half": pair, "persistence": pair, "mean": unknown, "offline": unknown}
            scores.append({**score, "rmse": 0.1234567, "variance_explained": 0.951, **baselines})
    curve = [[0.5, 0.25, None]] * len(scores)
    return NextingPage(
        title=HOSTILE,
        intro=HOSTILE,
        scores=scores,
        curves={"rows": [100, 200, 300], "ours": curve, "persistence": curve, "mean": curve},
        signals=signals,
        quality={
            "rows": rows,
            "usual step": "1 min",
            "gaps": 1,
            "longest gaps": [(rows // 2, "2007-02-01 02:30", HOSTILE)],
            "missing": {HOSTILE: (3, 2)},
            "clipped": {HOSTILE: (0, 1)},
            "constant": [HOSTILE],
        },
        settings={"rule": "true_online_etd", HOSTILE: {"deep": [HOSTILE, None, 0.5]}, "empty": {}},
        seconds={"learning": 1.5, HOSTILE: 0.25},
        versions={HOSTILE: "0.1.0"},
        reading={
            "unreadable": {"only unreadable": 7},
            "columns_left_out": [{"name": HOSTILE, "why": HOSTILE}],
        },
    )


@cache
def small() -> str:
    return nexting_page(nexting([HOSTILE, *(f"signal {i}" for i in range(9))]))


def data(page: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_what_names_say_is_only_text() -> None:
    page = small()
    reader = Reader(page)
    assert "<script>alert" not in page
    assert "".join(reader.text["h1"]) == HOSTILE
    assert "".join(reader.text["h3"]).startswith(HOSTILE)
    assert "<script" not in page.split("</main>")[0]


def test_every_signal_is_there_and_those_after_the_eighth_are_folded() -> None:
    page = small()
    for i in range(9):
        assert f"<h3>signal {i}</h3>" in page
    assert page.count("<article") == 8
    assert page.count('<details class="card"') == 2
    assert len(data(page)["plots"]) == 10 + 1  # and the learning curves


def test_unknown_numbers_are_dashes() -> None:
    body = small().split("</main>")[0]
    assert not re.search(r">\s*(None|nan|inf)\s*<", body)
    rows = re.findall(r"<tr>(.*?)</tr>", body.split('id="scores"')[1].split("</section>")[0])
    cells = re.findall(r"<td[^>]*>(.*?)</td>", rows[-1])
    assert cells[1:] == ["30 steps", "0.951", "–", "0.90", "–", "–", "–", "0.90", "0.123", "–", "0.200", "–", "135"]


def test_nothing_but_scores_is_needed() -> None:
    page = nexting_page(NextingPage("empty", "", []))
    reader = Reader(page)
    assert reader.problems == []
    page = nexting_page(NextingPage("one", "", [{"signal": "a", "horizon": 2}]))
    assert "1 signal predicted at 1 horizon, learned in one pass over a log.<" in page


def test_size_is_bounded() -> None:
    """500 kB and the data."""
    few = nexting_page(nexting(["a"], rows=4))
    assert len(few.encode()) < 150_000
    assert "plotly" not in few.lower()
    many = nexting(["a", "b"], rows=9000)
    assert len(nexting_page(many)) - len(few) < 2 * 15e6 / 50 / 2  # so that 50 signals with 4 horizons stay below 15 MB


def test_the_page_says_what_comes_next_and_how_the_table_was_read() -> None:
    made = replace(
        nexting(["a", "still", HOSTILE]),
        quality={"constant": ["still"]},
        upcoming=[{"signal": "a", "now": 123_458_000.0, "predictions": {"2 min": 123_458_001.7, 30: None}}],
        when="2024-03-01 00:05:00",
        files=FILES,
        command="tail -f READINGS | emphatic nexting - --model model.safetensors",
        toml='horizons = [2]\nname = "<b>"\n',
        reading={
            "time": {"columns": ["date", "clock"], "format": "%d.%m.%Y", "zone": "+01:00"},
            "rows": 300, "delimiter": ";", "decimal": ",", "step": 60.0, "gaps": 0,
            "rows_dropped": [{"why": "units", "count": 1, "first": 2}],
            "columns_left_out": [{"name": "note", "why": "text"}],
        },
    )  # fmt: skip
    page = nexting_page(made)
    assert Reader(page).problems == []
    order = [page.index(f'<section id="{name}"') for name in ("next", "summary", "signals")]
    assert order == sorted(order)
    part = {name: page.split(f'<section id="{name}"')[1].split("</section>")[0] for name in
            ("next", "quality", "files", "settings")}  # fmt: skip
    assert ">123,458,000<" in part["next"]
    assert ">123,458,002<" in part["next"]
    assert "2024-03-01 00:05:00" in part["next"]
    for shown in ("date + clock", "%d.%m.%Y", "+01:00", ">units<", ">note<", ";"):
        assert shown in part["quality"]
    assert all(name in part["files"] for name in FILES)
    assert "emphatic nexting - --model model.safetensors" in part["files"]
    assert "emphatic serve --model model.safetensors" in part["files"]
    assert "<pre>horizons = [2]\nname = &quot;&lt;b&gt;&quot;\n</pre>" in part["settings"]
    without_time = nexting_page(replace(made, reading={"time": {"why": "no column rises"}}))
    assert "none: no column rises" in without_time


def test_why_a_number_is_missing_stands_beside_it() -> None:
    made = nexting(["a", "b"])
    scores = [dict(score) for score in made.scores]
    for score in scores:
        score["reasons"] = {"offline": "skipped"}
    scores[0] |= {"variance_explained": None, "reasons": {"variance_explained": "nothing known", "offline": "skipped"}}
    page = nexting_page(replace(made, scores=scores))
    assert "– Offline fit: skipped (all)." in page
    assert "– Variance explained: nothing known (a at 2 min)." in page


def test_nearly_one_never_shows_as_one() -> None:
    assert [share(v) for v in (0.995, 0.99999, 1.0, 0.9499)] == ["0.995", "0.999", "1.00", "0.95"]
    page = nexting_page(NextingPage("one", "", [{"signal": "a", "horizon": 1, "variance_explained": 0.9996}]))
    assert "99.9% at 1 step." in page
    assert "100%" not in page.split("</header>")[1].split('style="width:100%"')[0]


def test_figures_as_svg_are_those_of_the_page(tmp_path: Path) -> None:
    drawn = plots.read_plots(small())
    assert [label.partition(":")[0] for label, _ in drawn][-1] == "Learning curves"
    assert len(drawn) == 11
    for i, (_, plot) in enumerate(drawn):
        for view in list(plot.views)[:2]:
            plots.draw_file(plot, tmp_path / f"{i}-{view}.svg", view)
            root = ElementTree.parse(tmp_path / f"{i}-{view}.svg").getroot()
            assert root.tag.endswith("svg")
    words = "".join(ElementTree.parse(tmp_path / "4-whole.svg").getroot().itertext())
    assert "30 steps · variance explained 0.951" in words


def test_curves_must_be_those_of_the_scores() -> None:
    with pytest.raises(ValueError, match=r"'curves\['ours'\]' parameter of nexting_page must have one curve .* Got 0"):
        nexting_page(NextingPage("", "", [{"signal": "a", "horizon": 2}], {"rows": [], "ours": []}))


def test_what_draws_and_renders_is_imported_late() -> None:
    code = "import sys, emphatic.report; assert not {'jinja2', 'matplotlib'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def signal_plot(name: str, x: Any, reading: Any, ours: Any, truth: Any, most: int = 2000) -> SignalPlot:
    """The plot of a signal from all its rows at once."""
    ends = [np.flatnonzero(~np.isnan(y)) for y in truth.values()]
    last = min((int(known[-1]) for known in ends), default=len(x))
    builder = PlotBuilder(name, len(x), list(ours), list(truth), last, most)
    builder.add(0, x, np.asarray(reading, float), list(ours.values()), list(truth.values()))
    return builder.plot()


def test_a_plot_ends_where_predictions_can_be_compared() -> None:
    x = np.arange(1000)
    truth = {2: np.where(x < 900, x, np.nan), 50: np.where(x < 700, x, np.nan)}
    plot = signal_plot("a", x, x, {2: x, 50: x}, truth, most=100)
    np.testing.assert_array_equal(plot.close.x, x[609:709])
    np.testing.assert_array_equal(plot.close.returns[2], x[609:709])
    assert plot.whole is not None
    assert plot.whole.each == 10
    np.testing.assert_array_equal(plot.whole.reading, x[::10] + 4.5)
    assert signal_plot("a", x, x, {}, {}).whole is None


@pytest.mark.parametrize("rows", [90, 1000, 1003])
@pytest.mark.parametrize("block", [1, 7, 64, 2000])
def test_a_plot_from_blocks_is_that_of_all_rows(rows: int, block: int) -> None:
    rng = np.random.default_rng(0)
    x = np.datetime64("2024-01-01", "ms") + 1000 * (np.arange(rows) + 500 * (np.arange(rows) > 400))
    reading, ours = rng.normal(size=(2, rows))
    truth = np.where(np.arange(rows) < 0.8 * rows, rng.normal(size=rows), np.nan)
    expected = signal_plot("a", x, reading, {2: ours}, {2: truth}, most=100)
    last = int(np.flatnonzero(~np.isnan(truth))[-1])
    builder = PlotBuilder("a", rows, [2], [2], last, most=100)
    for a in range(0, rows, block):
        part = x[a : a + block].copy()
        kept = weakref.ref(part)
        builder.add(a, part, reading[a : a + block], [ours[a : a + block]], [truth[a : a + block]])
        del part
        assert kept() is None  # or memory would grow with the rows
    found = builder.plot()
    for one, other in ((found.close, expected.close), (found.whole, expected.whole)):
        assert (one is None) == (other is None) == (rows <= 100 and one is not found.close)
        if one is not None and other is not None:
            np.testing.assert_array_equal(one.x, other.x)
            assert one.each == other.each
            np.testing.assert_allclose(one.reading, other.reading, rtol=1e-12)
            np.testing.assert_allclose(one.predictions[2], other.predictions[2], rtol=1e-12)
            np.testing.assert_allclose(one.returns[2], other.returns[2], rtol=1e-12)


def test_lines_break_at_gaps_in_time() -> None:
    times = np.array(["2007-02-01T00:00", "2007-02-01T00:01", "2007-02-01T00:02", "2007-02-01T09:00"], "M8[ms]")
    plot = signal_plot("a", times, [1.0, 2.0, 3.0, 4.0], {}, {})
    np.testing.assert_array_equal(plot.close.reading, [1.0, 2.0, 3.0, np.nan, 4.0])
    assert plot.close.x[3] == plot.close.x[4]


def test_the_best_as_shown_is_marked() -> None:
    columns = [
        Column("a", "a", share, rival="r"),
        Column("b", "b", share, rival="r"),
        Column("c", "c", share, rival="r"),
    ]
    html = table(columns, [{"a": 0.941, "b": 0.939, "c": -0.9}, {"a": None, "b": -2.0, "c": np.float32(-3)}])
    assert re.findall(r'class="number( best)?"[^>]*>([^<]*)<', html)[3:] == [
        (" best", "0.94"),
        (" best", "0.94"),
        ("", "−0.90"),
        ("", "–"),
        (" best", "−2.00"),
        ("", "−3.00"),
    ]
    less = [Column("a", "a", amount, rival="r", sign=-1), Column("b", "b", amount, rival="r", sign=-1)]
    assert 'best" data-order="1.0">1<' in table(less, [{"a": 1, "b": 2}])


def test_text_escapes_once() -> None:
    assert text(text("<")) == "&lt;"
    assert text(Html("<b>")) == "<b>"


@in_a_browser
def test_drawn_at_phone_width(tmp_path: Path) -> None:
    """A frame of 390 px: the plots in view are drawn, the first view is shown, and nothing sticks out sideways."""
    probe = """<script>const look = () => {
      const inside = document.querySelector("iframe").contentDocument;
      const count = (what) => inside.querySelectorAll(what).length;
      const charts = [...inside.querySelectorAll("#curves .plot")].flatMap((plot) => plot.charts || []);
      const series = charts.reduce((sum, chart) => sum + chart.series.length - 1, 0);
      const found = [count(".plot:has(.uplot)"), series, inside.documentElement.scrollWidth];
      document.body.dataset.found = found.join(); }; setInterval(look, 100);</script>"""
    frame = f'<body>{probe}<iframe width="390" height="9000" srcdoc="{text(small())}"></iframe></body>'
    wanted = "9,26,390"  # 8 signals and the curves; 10 signals and 3 lines at each of 2 horizons
    assert found(tmp_path, frame, wanted, 800) == wanted


@in_a_browser
def test_a_page_says_what_scrolls_searches_and_saves_pictures(tmp_path: Path) -> None:
    """Real clicks and keys: a search hides rows, a table too tall or wide says so, a plot becomes a picture."""
    names = [f"signal {i}" for i in range(40)]
    made = nexting(names)
    made = replace(
        made, upcoming=[{"signal": n, "now": 1e6 + i, "predictions": {30: 2.0}} for i, n in enumerate(names)]
    )
    probe = """<script>const look = () => {
      const view = document.querySelector("iframe").contentWindow, inside = view.document;
      const search = (words) => {
        field.value = words;
        field.dispatchEvent(new view.Event("input", { bubbles: true })); };
      const field = inside.querySelector("#next input"), plot = inside.querySelector("#signals .plot");
      if (!field || !plot || !plot.charts) return;
      search("");
      const tall = inside.querySelector("#next .more").textContent;
      search("signal 1");
      const left = [...inside.querySelectorAll("#next tbody tr")].filter((row) => !row.hidden).length;
      const picture = view.pictureOf(plot);
      const ink = picture.getContext("2d").getImageData(0, 0, picture.width, picture.height).data;
      const colours = new Set();
      for (let i = 0; i < ink.length; i += 4) colours.add(ink[i] << 16 | ink[i + 1] << 8 | ink[i + 2]);
      const wide = plot.charts.every((chart) => chart.bbox.left === plot.charts[0].bbox.left);
      document.body.dataset.found = [tall.startsWith("All 40 rows"), left, colours.size > 20, wide].join();
    }; setInterval(look, 100);</script>"""
    frame = f'<body>{probe}<iframe width="800" height="9000" srcdoc="{text(nexting_page(made))}"></iframe></body>'
    wanted = "true,13,true,true"  # 1, 10 to 19, 21 and 31
    assert found(tmp_path, frame, wanted, 900) == wanted


# ---------------------------------------------------------------------- the first screen


def with_outlooks(names: list[str], forecast: float = 0.75) -> NextingPage:
    """A page whose signals are forecast at +1h and +1d, the first better than the week before."""
    step, begin = 3600.0, 1_483_315_200.0
    time = begin + step * np.arange(24 * 28)
    history = History(names, Timing(step, dated=True))
    history.add(time, np.column_stack([np.sin(time / 86400 * 2 * np.pi + i) for i in range(len(names))]))
    summary = [
        {
            "text": f"x at +{horizon}", "signal": name, "horizon": horizon, "answer": forecast, "low": 0.25,
            "high": 1.25, "known": 500, "scored": 9, "rmse": 0.3, "baselines": {"last_week": {"rmse": 0.4}},
        }
        for name in names for horizon in ("1h", "1d")
    ]  # fmt: skip
    forecasts = read_forecasts(summary, float(time[-1]), step)
    better, not_better = (
        Verdict(kind, "last_week", 0.4375, low, 0.5) for kind, low in (("better", 0.25), ("no better", -0.25))
    )
    judged = {n: judge_signal(n, {"1h": not_better if i else better}, "value") for i, n in enumerate(names)}
    outlooks = [make_outlook(history, n, forecasts[n], read_verdict(summary, n, judged), unit="kW") for n in names]
    return replace(nexting(names), outlooks=outlooks, coverage=0.8)


def test_the_page_opens_with_the_verdict_and_the_forecast() -> None:
    made = with_outlooks(["power", HOSTILE])
    page = nexting_page(made)
    assert Reader(page).problems == []
    screen = page.split('<section id="outlook">')[1].split("</section>")[0]
    assert page.index('<section id="outlook">') < page.index('<section id="all">') < page.index('class="intro"')
    assert "power is predicted better than with the week before, by 44% at +1h." in screen
    assert (
        "Skill 0.44 (0.25 to 0.50) over the week before (last_week), at +1h · error (RMSE) 0.300 kW, baseline 0.400 kW"
        in screen
    )
    assert "farthest forecast, at +1d (2017-01-30 23:00:00): 0.750 kW (0.250 to 1.25)" in screen
    assert f"{text(HOSTILE)} is predicted no better than with the week before." in screen
    assert "1 of 2 signals predicted better than the best baseline." in page
    assert "skill 0.44 (−0.25 to 0.50) over the week before" in page  # (why it is no better)
    assert HOSTILE not in page


def test_only_values_at_a_time_are_drawn_into_the_future() -> None:
    """A dot at each horizon that was learned, and the path and the baseline between; no exponential mean."""
    made = with_outlooks(["power", "voltage"])
    packed = next(plot for plot in data(nexting_page(made))["plots"] if plot["group"] == "outlook")
    for view, outlook in zip(("0", "1"), made.outlooks, strict=True):
        (panel,) = packed["views"][view]
        assert [line["name"] for line in panel["lines"]] == ["reading", "the week before", "between forecasts"]
        (marks,) = panel["marks"]
        assert marks["notes"] == ["at +1h", "at +1d"]
        assert panel["origin"] == 1000.0 * outlook.time[-1]
    drawn = next(plot for label, plot in read_plots(nexting_page(made)) if label.startswith("Forecast"))
    (panel,) = drawn.views["0"]
    ends = np.asarray(panel.marks[0].x).astype("datetime64[s]").astype(np.int64) - made.outlooks[0].time[-1]
    assert ends.tolist() == [3600, 86400]
    np.testing.assert_allclose(np.asarray(panel.marks[0].y, np.float64), [0.75, 0.75], atol=1e-4)


def test_all_signals_have_their_verdict_and_forecasts() -> None:
    page = nexting_page(with_outlooks(["power", HOSTILE]))
    table = page.split('<section id="all">')[1].split("</section>")[0]
    assert "<svg" not in table
    assert table.count('class="badge better"') == 1
    assert table.count('class="badge no-better"') == 1
    assert ">0.750 kW <small" in table


def test_a_signal_without_forecast_says_what_is_known_of_it() -> None:
    made = with_outlooks(["power", "still"])
    empty = [replace(outlook, forecasts=(), verdict=SignalVerdict()) for outlook in made.outlooks]
    page = nexting_page(replace(made, outlooks=empty, quality={"constant": ["still"]}))
    assert "The mean of what power does next (horizon 2 min) is predicted with a variance explained of 0.951." in page
    assert "still never changes." in page
