"""The report of a run in Chromium: its first screen at the width of a desk and of a phone, dark, and on paper."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emphatic
from emphatic.nexting.report.page import share

pytest.importorskip("playwright", reason="needs playwright, of the test group")
from playwright.sync_api import Page

pytestmark = [pytest.mark.serve, pytest.mark.xdist_group("chromium")]

SIZES = {"desk": (1280, 900), "phone": (390, 844)}
ROWS = 24 * 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a run: a signal with a day and a week, one that follows it, and noise."""
    rng = np.random.default_rng(0)
    hours = np.arange(ROWS)
    daily = 5.0 + 3.0 * np.sin(hours / 24 * 2 * np.pi) + 2.0 * (hours // 24 % 7 >= 5) + 0.3 * rng.normal(size=ROWS)
    signals = {"power": daily, "heat": np.roll(daily, 3) + rng.normal(size=ROWS), "noise": rng.normal(size=ROWS)}
    times = np.datetime64("2024-01-01T00:00") + hours.astype("timedelta64[h]")
    lines = [",".join(["time", *signals]), *(
        f"{when},{','.join(f'{values[t]:.4f}' for values in signals.values())}" for t, when in enumerate(times)
    )]  # fmt: skip
    log, out = tmp_path_factory.mktemp("screen") / "log.csv", tmp_path_factory.mktemp("screen") / "out"
    log.write_text("\n".join(lines), "utf-8")
    emphatic.nexting.run(log, horizons=["1h", "6h", "1d"], out=out)
    return out


@pytest.fixture
def visit(window: Callable[..., Page], folder: Path) -> Callable[..., Page]:
    """Open the report in a window of a size."""

    def open_page(size: str, **options: Any) -> Page:
        width, height = SIZES[size]
        page = window(viewport={"width": width, "height": height}, **options)
        page.goto((folder / "report.html").as_uri())
        page.wait_for_function("document.querySelector('#outlook .plot').charts !== undefined")
        return page

    return open_page


def texts_on_first_screen(page: Page) -> str:
    """The text of every element that lies inside the first screen as a whole."""
    return str(
        page.evaluate(
            """() => [...document.querySelectorAll("h1, p, option, button")].filter((one) => {
                const box = (one.closest("select") || one).getBoundingClientRect();
                return box.width > 0 && box.top >= 0 && box.bottom <= innerHeight && box.right <= innerWidth;
            }).map((one) => one.textContent).join("\\n")"""
        )
    )


INK = """() => {
    const canvas = document.querySelector("#outlook canvas");
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const colours = new Set();
    for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 200) colours.add(data.slice(i, i + 3).join());
    return colours.size;
}"""


@pytest.mark.parametrize("size", SIZES)
def test_verdict_baseline_skill_plot_and_last_forecast_are_on_the_first_screen(
    visit: Callable[..., Page], folder: Path, size: str
) -> None:
    page = visit(size)
    summary = json.loads((folder / "summary.json").read_text("utf-8"))
    text = texts_on_first_screen(page)
    assert "power is predicted " in text
    (verdict,) = (row for row in summary[0]["signals"] if row["signal"] == "power")
    assert verdict["sentence"] in text
    assert f"({verdict['best_baseline']})" in text
    assert f"Skill {share(verdict['skill_best'])} " in text
    assert "(2024-03-01 23:00:00): " in text  # a day after the last row
    assert all(name in text for name in ("power", "heat", "noise"))  # to choose from
    box = page.locator("#outlook .plot").bounding_box()
    assert box is not None
    assert box["y"] + box["height"] <= SIZES[size][1]
    assert box["height"] >= 250
    assert page.evaluate(INK) > 20
    assert page.evaluate("document.documentElement.scrollWidth") == SIZES[size][0]


@pytest.mark.parametrize("size", SIZES)
def test_another_signal_is_chosen_from_the_list_and_from_the_table(visit: Callable[..., Page], size: str) -> None:
    page = visit(size)
    shown = page.locator("#outlook .verdict:not([hidden])")
    assert shown.count() == 1
    page.locator("#outlook select").select_option(label="noise")
    assert shown.inner_text().startswith("noise is predicted no better")
    drawn = "document.querySelector('#outlook .plot').charts[0].root.parentNode.textContent"
    assert str(page.evaluate(drawn)).startswith("noise")
    page.locator("#all button.pick", has_text="heat").click()
    assert shown.inner_text().startswith("heat is predicted")
    assert page.locator("#outlook select").input_value() == page.locator(
        "#outlook option", has_text="heat"
    ).get_attribute("value")


def test_on_a_phone_nothing_hides_behind_a_sideways_scroll(visit: Callable[..., Page]) -> None:
    page = visit("phone")
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    page.wait_for_timeout(300)
    wide = page.evaluate(
        """() => [...document.querySelectorAll("body *")].filter((one) => one.clientWidth &&
            !one.closest("svg, .uplot") && !one.matches("input, select, .unseen, .head") &&
            one.scrollWidth > one.clientWidth + 1 &&
            getComputedStyle(one).display !== "inline").map((one) => `${one.tagName} ${one.id} ${one.className}`)"""
    )
    assert wide == []
    labels = page.evaluate("[...document.querySelectorAll('#scores td')].map((cell) => cell.dataset.head)")
    assert "variance explained: online" in labels


def test_dark_by_preference_and_light_on_paper(visit: Callable[..., Page], tmp_path: Path) -> None:
    page = visit("desk", color_scheme="dark")
    dark = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(dark) == "rgb(20, 22, 26)"
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(dark) == "rgb(251, 251, 250)"
    assert page.evaluate("document.querySelector('#outlook .plot').charts[0].width") <= 720
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(dark) == "rgb(20, 22, 26)"
    assert page.evaluate("document.querySelector('#outlook .plot').charts[0].width") > 900
    page.pdf(path=tmp_path / "report.pdf", format="A4")
    assert (tmp_path / "report.pdf").stat().st_size > 50_000
