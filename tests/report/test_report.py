"""The page about a log: well formed, complete in itself, safe from what names say, and drawn by a browser."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from emphatic.nexting.report import Html, plots, share, text
from emphatic.nexting.report.plots import read_plots
from emphatic.nexting.runs.outlook import Forecast, Outlook, SignalVerdict
from emphatic.nexting.runs.report import FILES, NextingPage, nexting_page
from emphatic.nexting.scores.verdicts import Verdict, judge_signal
from tests.support.browser import found, in_a_browser

HOSTILE = """a"b'<script>alert(1)</script>&amp;"""
HORIZONS = {"1h": 3600.0, "1d": 86400.0}
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


def outlook(name: str, rows: int = 300, better: bool = True) -> Outlook:
    """A signal of an hour a row that is forecast at +1h and +1d, beside the week before."""
    time: NDArray[np.float64] = 1_483_315_200.0 + 3600.0 * np.arange(rows, dtype=np.float64)
    forecasts = [
        Forecast(name, horizon, float(time[-1]) + seconds, 0.75, 0.25, 1.25, 0.5)
        for horizon, seconds in HORIZONS.items()
    ]
    low, kind = (0.25, "better") if better else (-0.25, "no better")
    sentence = judge_signal(name, {"1h": Verdict(kind, "last_week", 0.4375, low, 0.5)})["sentence"]
    verdict = SignalVerdict(sentence, kind, "last_week", 0.4375, low, 0.5, "1h", 0.3, 0.4)
    return Outlook(name, True, time, np.sin(time / 86400 * 2 * np.pi), forecasts, verdict, "kW")


def score_of(name: str, horizon: str, **more: Any) -> dict[str, Any]:
    """An object of ``summary.json``, of which little is known."""
    score = {"text": f"`{name}` at +{horizon}", "kind": "at", "signal": name, "horizon": horizon, "known": 135}
    score |= {"verdict": "better", "best_baseline": "last_week", "skill_best": 0.4375, "default": True}
    return score | {"rmse": 0.1234567, "variance_explained": 0.951, "baselines": {"last_week": {"rmse": 0.4}}} | more


def nexting(names: Sequence[str], rows: int = 300, **reading: Any) -> NextingPage:
    """A page's data with everything in it that may be: hostile names, gaps, unknown scores."""
    first = {"reading": {"unreadable": {"only unreadable": 7}, **reading}, "signals": []}
    return NextingPage(
        title=HOSTILE,
        intro=HOSTILE,
        summary=[first, *(score_of(name, horizon) for name in names for horizon in HORIZONS)],
        outlooks=[outlook(name, rows, better=not i) for i, name in enumerate(names)],
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
        coverage=0.8,
    )


@cache
def small() -> str:
    return nexting_page(nexting([HOSTILE, *(f"signal {i}" for i in range(9))], columns_left_out=[
        {"name": HOSTILE, "why": HOSTILE}
    ]))  # fmt: skip


def data(page: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def section(page: str, name: str) -> str:
    return page.split(f'<section id="{name}"')[1].split("</section>")[0]


def test_what_names_say_is_only_text() -> None:
    page = small()
    reader = Reader(page)
    assert reader.problems == []
    assert "<script>alert" not in page
    assert "".join(reader.text["h1"]) == HOSTILE
    assert HOSTILE in "".join(reader.text["td"])
    assert "<script" not in page.split("</main>")[0]


def test_unknown_numbers_are_dashes() -> None:
    body = small().split("</main>")[0]
    assert not re.search(r">\s*(None|nan|inf)\s*<", body)
    rows = re.findall(r"<tr>(.*?)</tr>", section(body, "scores"))
    cells = [re.sub("<[^>]*>", "", cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", rows[-1])]
    assert cells == [
        "`signal 8` at +1d", "better", "0.44", "the week before", "0.951", "–", "0.123", "0.400", "–", "–", "135",
    ]  # fmt: skip


def test_nothing_but_the_first_object_is_needed() -> None:
    page = nexting_page(NextingPage("empty", "", [{"reading": {}, "signals": []}]))
    assert Reader(page).problems == []
    assert "<section" not in page


def test_size_is_bounded() -> None:
    few = nexting_page(nexting(["a"], rows=4))
    assert len(few.encode()) < 150_000
    many = nexting_page(nexting([f"signal {i}" for i in range(100)], rows=1500))
    assert len(many.encode()) < 3_000_000


def test_the_page_says_how_the_table_was_read() -> None:
    made = nexting(
        ["a"],
        time={"columns": ["date", "clock"], "format": "%d.%m.%Y", "zone": "+01:00"},
        rows=300, delimiter=";", decimal=",", step=60.0, gaps=0,
        rows_dropped=[{"why": "units", "count": 1, "first": 2}],
        columns_left_out=[{"name": "note", "why": "text"}],
    )  # fmt: skip
    command = "tail -f READINGS | emphatic nexting - --model model.safetensors"
    made = replace(made, files=FILES, command=command, toml='horizons = [2]\nname = "<b>"\n')
    page = nexting_page(made)
    assert Reader(page).problems == []
    for shown in ("date + clock", "%d.%m.%Y", "+01:00", ">units<", ">note<", ";"):
        assert shown in section(page, "quality")
    assert all(name in section(page, "files") for name in FILES)
    assert "emphatic nexting - --model model.safetensors" in section(page, "files")
    assert "emphatic serve --model model.safetensors" in section(page, "files")
    assert "<pre>horizons = [2]\nname = &quot;&lt;b&gt;&quot;\n</pre>" in section(page, "settings")
    without_time = nexting_page(nexting(["a"], time={"why": "no column rises"}))
    assert "none: no column rises" in without_time


def test_nearly_one_never_shows_as_one() -> None:
    assert [share(v) for v in (0.995, 0.99999, 1.0, 0.9499)] == ["0.995", "0.999", "1.00", "0.95"]


def test_figures_as_svg_are_those_of_the_page(tmp_path: Path) -> None:
    ((label, plot),) = read_plots(small())
    assert label.startswith("Forecast: ")
    for view in list(plot.views)[:3]:
        plots.draw_file(plot, tmp_path / f"{view}.svg", view)
        root = ElementTree.parse(tmp_path / f"{view}.svg").getroot()
        assert root.tag.endswith("svg")
    assert "signal 2, kW" in "".join(root.itertext())


def test_what_draws_and_renders_is_imported_late() -> None:
    code = "import sys, emphatic.nexting.report; assert not {'jinja2', 'matplotlib'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_text_escapes_once() -> None:
    assert text(text("<")) == "&lt;"
    assert text(Html("<b>")) == "<b>"


@in_a_browser
def test_drawn_at_phone_width(tmp_path: Path) -> None:
    """A frame of 390 px: the plot is drawn, the first view is shown, and nothing sticks out sideways."""
    probe = """<script>const look = () => {
      const inside = document.querySelector("iframe").contentDocument;
      const [chart] = inside.querySelector("#outlook .plot").charts || [];
      if (!chart) return;
      const drawn = chart.data.slice(1).filter((column) => column.some((value) => value !== null)).length;
      const found = [drawn, inside.documentElement.scrollWidth];
      document.body.dataset.found = found.join(); }; setInterval(look, 100);</script>"""
    frame = f'<body>{probe}<iframe width="390" height="9000" srcdoc="{text(small())}"></iframe></body>'
    wanted = "3,390"  # readings, baseline and the path between forecasts
    assert found(tmp_path, frame, wanted, 800) == wanted


@in_a_browser
def test_a_page_says_what_scrolls_searches_and_saves_pictures(tmp_path: Path) -> None:
    """Real clicks and keys: a search hides rows, a table too tall or wide says so, a plot becomes a picture."""
    made = nexting([f"signal {i}" for i in range(40)], rows=100)
    probe = """<script>const look = () => {
      const view = document.querySelector("iframe").contentWindow, inside = view.document;
      const field = inside.querySelector("#all input"), plot = inside.querySelector("#outlook .plot");
      if (!field || !plot || !plot.charts) return;
      const tall = inside.querySelector("#scores .more").textContent;
      field.value = "signal 1";
      field.dispatchEvent(new view.Event("input", { bubbles: true }));
      const left = [...inside.querySelectorAll("#all tbody tr")].filter((row) => !row.hidden).length;
      const picture = view.pictureOf(plot);
      const ink = picture.getContext("2d").getImageData(0, 0, picture.width, picture.height).data;
      const colours = new Set();
      for (let i = 0; i < ink.length; i += 4) colours.add(ink[i] << 16 | ink[i + 1] << 8 | ink[i + 2]);
      document.body.dataset.found = [tall.startsWith("All 80 rows"), left, colours.size > 20].join();
    }; setInterval(look, 100);</script>"""
    frame = f'<body>{probe}<iframe width="800" height="9000" srcdoc="{text(nexting_page(made))}"></iframe></body>'
    wanted = "true,13,true"  # 1, 10 to 19, 21 and 31
    assert found(tmp_path, frame, wanted, 900) == wanted


# ---------------------------------------------------------------------- the first screen


def test_the_page_opens_with_the_verdict_and_the_forecast() -> None:
    page = nexting_page(nexting(["power", HOSTILE]))
    screen = section(page, "outlook")
    assert page.index('<section id="outlook">') < page.index('<section id="all">') < page.index('class="intro"')
    assert "power is predicted better than with the week before, by 44% at +1h." in screen
    assert (
        "Skill 0.44 (0.25 to 0.50) over the week before (last_week), at +1h · error (RMSE) 0.300 kW, baseline 0.400 kW"
        in screen
    )
    assert "farthest forecast, at +1d (2017-01-15 11:00:00): 0.750 kW (0.250 to 1.25)" in screen
    assert f"{text(HOSTILE)} is predicted no better than with the week before." in screen
    assert "1 of 2 signals predicted better than the best baseline." in page
    assert "skill 0.44 (−0.25 to 0.50) over the week before" in page  # (why it is no better)


def test_forecasts_are_drawn_at_the_times_that_they_are_about() -> None:
    """A dot at each horizon, the path between them from the last reading on, and the baseline."""
    made = nexting(["power", "voltage"])
    packed = next(plot for plot in data(nexting_page(made))["plots"] if plot["group"] == "outlook")
    for view, of_signal in zip(("0", "1"), made.outlooks, strict=True):
        (panel,) = packed["views"][view]
        assert [line["name"] for line in panel["lines"]] == ["reading", "best baseline", "between forecasts"]
        (marks,) = panel["marks"]
        assert marks["notes"] == ["at +1h", "at +1d"]
        assert panel["origin"] == 1000.0 * of_signal.time[-1]
    drawn = next(plot for label, plot in read_plots(nexting_page(made)) if label.startswith("Forecast"))
    (panel,) = drawn.views["0"]
    ends = np.asarray(panel.marks[0].x).astype("datetime64[s]").astype(np.int64) - made.outlooks[0].time[-1]
    assert ends.tolist() == [3600, 86400]
    np.testing.assert_allclose(np.asarray(panel.marks[0].y, np.float64), [0.75, 0.75], atol=1e-4)


def test_all_signals_have_their_verdict_and_forecasts() -> None:
    table = section(nexting_page(nexting(["power", HOSTILE])), "all")
    assert table.count('class="badge better"') == 1
    assert table.count('class="badge no-better"') == 1
    assert ">0.750 kW <small" in table


def test_a_signal_without_forecast_says_so() -> None:
    made = nexting(["power"])
    page = nexting_page(replace(made, outlooks=[replace(made.outlooks[0], forecasts=(), verdict=SignalVerdict())]))
    assert "No value of power was forecast." in page
