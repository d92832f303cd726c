"""The page in Chromium: what it draws, keeps and says, on streams that a test has written."""

from __future__ import annotations

import itertools
import math
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.support.page_server import Event, PageServer

pytest.importorskip("playwright", reason="needs playwright, of the test group")
from playwright.sync_api import Page, expect

pytestmark = [pytest.mark.serve, pytest.mark.xdist_group("chromium")]

H = ["2", "9", "36"]
HOSTILE = '<img src=x onerror="alert(1)"> & __proto__'
#: Seconds in which a page has drawn what was sent, on a busy machine.
SOON = 20_000


@pytest.fixture
def visit(window: Callable[..., Page]) -> Callable[..., Page]:
    """Open an address in a window of its own."""

    def open_page(address: str, clock: bool = False, **options: Any) -> Page:
        page = window(**({"viewport": {"width": 1000, "height": 800}} | options))
        if clock:
            page.clock.install()
        page.goto(address)
        return page

    return open_page


def reading(i: int) -> float:
    return math.sin(i / 40) + 0.2 * random.Random(i).uniform(-1, 1) + (5.0 if i % 1000 == 777 else 0.0)


def rows(a: int, b: int, **more: Any) -> dict[str, Any]:
    """Rows a to b, with readings of noise and a spike at 777, 1777, …"""
    steps = list(range(a, b))
    stamps = [1_170_288_000 + 60 * i for i in steps]
    return {
        "step": steps, "t": stamps, "time": [time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(t)) for t in stamps],
        "reading": [reading(i) for i in steps], "gap": [False for _ in steps],
        "predictions": {h: [math.sin((i + int(h)) / 40) for i in steps] for h in H}, **more,
    }  # fmt: skip


def signals(*names: str, step: int = 0, **more: Any) -> dict[str, Any]:
    names = names or ("power", "voltage", HOSTILE)
    return {
        "signals": list(names), "predicted": dict.fromkeys(names, H), "time": True, "warming_up": False, "waiting": 0,
        "warm_up": 100, "step": step, "learning": True, **more,
    }  # fmt: skip


def status(step: int, **more: Any) -> dict[str, Any]:
    return {
        "step": step, "readings": step, "malformed": 2, "rate": 987.6, "lag": 0.0123, "queue": 3, "saved_step": 17,
        "warming_up": False, "waiting": 0, "warm_up": 100, **more,
    }  # fmt: skip


def serve(n: int, *, then: bool = False, known: dict[str, Any] | None = None, **more: Any) -> PageServer:
    """n rows at once; ``then``, one more every 50 ms for as long as the page listens."""
    known = known or signals(step=n)

    def stream(signal: str | None, last: str | None) -> Iterator[Event]:
        begin = 0 if last is None else int(last) + 1
        yield "hello", known | {"signal": signal or known["signals"][0], "horizons": H, "step": max(n, begin)}
        for a in range(begin, n, 512):
            yield "rows", rows(a, min(n, a + 512), **more)
        for i in itertools.count(max(n, begin)):
            if i % 10 == 0:
                yield "status", status(i)
            if then:
                yield "rows", rows(i, i + 1)
            yield "pause", 0.05

    return PageServer(known, stream)


def wait_for(page: Page, expression: str, seconds: float = SOON / 1000) -> None:
    """Until it holds on the page. (``wait_for_function`` evaluates text, which the policy of the page forbids.)"""
    deadline = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, expression
        time.sleep(0.02)


def test_the_page_shows_readings_and_how_the_service_is(visit: Callable[..., Page]) -> None:
    with serve(200) as server:
        page = visit(server.url)
        wait_for(page, "emphatic.held === 200 && emphatic.drawn[0].length === 200")
        expect(page.locator("#state")).to_have_text("learning, 987.6 readings/s, lag 12.3 ms", timeout=SOON)
        drawn = page.evaluate("emphatic.drawn")
        sent = rows(0, 200)
        assert drawn[0] == sent["step"]
        assert drawn[3] == sent["reading"]
        assert drawn[4] == [None] * 200  # a value at +h is drawn only when it is to come
        assert page.title() == "power – emphatic"
        facts = page.locator("#facts").inner_text()
        assert all(one in facts for one in ("987.6", "12.3 ms", "17", "Malformed\n2"))
        assert page.locator("#notice").is_hidden()
        assert page.evaluate("[...document.querySelectorAll('canvas')].every(one => one.width > 100)")


def test_the_answers_to_an_own_question_are_drawn_where_they_were_given(visit: Callable[..., Page]) -> None:
    known = signals("power")
    known["predicted"] |= {"near": H[:1]}
    more: dict[str, Any] = {"low": {"2": [-2.0] * 200}, "high": {"2": [2.0] * 200}, "reading": [None] * 200}
    with serve(200, known=known, mark={"2": [None] * 199 + ["impossible"]}, **more) as server:
        page = visit(server.url + "/#near")
        wait_for(page, "emphatic.held === 200 && emphatic.drawn[0].length === 200")
        drawn = page.evaluate("emphatic.drawn")
        assert drawn[1:5] == [[-2.0] * 200, [2.0] * 200, [None] * 200, rows(0, 200)["predictions"]["2"]]
        expect(page.locator("#verdict")).to_have_text(f"{drawn[4][-1]:.3f}, between -2.00 and 2.00 (impossible)")
        expect(page.locator("#title")).to_have_text("near: answers")
        assert page.locator("#forecasts").is_hidden()


def test_noise_and_spikes_look_the_same_at_every_zoom(visit: Callable[..., Page]) -> None:
    n = 16_000
    with serve(n) as server:
        page = visit(server.url)
        wait_for(page, f"emphatic.held === {n}")
        x = np.array([reading(i) for i in range(n)])
        for window in (300, 1000, 4000, 16_000):
            page.select_option("#window", str(window))
            wait_for(page, f"Math.abs(emphatic.drawn[0][0] - {n - window}) < 1")
            steps, _, _, drawn, *_ = page.evaluate("emphatic.drawn")
            kept = np.array([value for value in drawn if value is not None])
            assert (kept.min(), kept.max()) == (x[-window:].min(), x[-window:].max())
            assert len(steps) <= 3 * 1000
            spikes = np.flatnonzero(x[-window:] > 3).size
            assert (kept > 3).sum() == spikes
            # Within any twentieth of the plot the readings reach as far as all of them do.
            for part in np.array_split(np.arange(n - window, n), 20):
                inside = [v for s, v in zip(steps, drawn, strict=True) if v is not None and part[0] <= s <= part[-1]]
                assert max(inside) - min(inside) > 0.9 * np.ptp(x[part]) or window == 300


def test_lines_break_where_rows_do_not_follow_and_where_readings_are_missing(visit: Callable[..., Page]) -> None:
    known = signals(step=90)

    def stream(signal: str | None, last: str | None) -> Iterator[Event]:
        yield "hello", known | {"signal": "power", "horizons": H}
        yield "rows", rows(0, 30) | {"reading": [None if i == 5 else float(i) for i in range(30)]}
        yield "rows", rows(30, 50) | {"gap": [i == 0 for i in range(20)]}
        yield "rows", rows(60, 90) | {"t": [1e300] * 30, "alarm": [True] * 30}  # ten steps were not sent
        yield "pause", 60.0

    with PageServer(known, stream) as server:
        page = visit(server.url)
        wait_for(page, "emphatic.held === 80")
        wait_for(page, "emphatic.drawn[0].length === 82")
        alarms = page.locator("#list li")  # of a time that is none; rows that follow one another are one alarm
        assert alarms.count() == 1
        expect(alarms).to_contain_text("30 rows in alarm")
        steps, _, _, drawn, *_ = page.evaluate("emphatic.drawn")
        assert [step for step, value in zip(steps, drawn, strict=True) if value is None] == [5, 29.5, 59.5]


def test_alarms_are_drawn_and_listed_where_there_are_any(visit: Callable[..., Page]) -> None:
    more: dict[str, Any] = {"anomaly": [float(i) for i in range(100)], "alarm": [i in (7, 70) for i in range(100)]}
    with serve(100, **more) as server:
        page = visit(server.url)
        wait_for(page, "emphatic.held === 100 && emphatic.drawn[0].length === 100")
        drawn = page.evaluate("emphatic.drawn")
        assert [i for i, value in enumerate(drawn[5]) if value is not None] == [7, 70]
        alarms = page.locator("#list li").all_inner_texts()
        assert [one.rpartition("score ")[2] for one in alarms] == ["70", "7"]
        assert alarms[1].split()[:3] == ["2007-02-01", "00:07:00", "alarm"]
    with serve(100) as server:
        page = visit(server.url)
        wait_for(page, "emphatic.held === 100 && emphatic.draws > 0")
        assert page.locator("#alarms").is_hidden()


def test_names_of_signals_are_text_whatever_they_say(visit: Callable[..., Page]) -> None:
    names = ("power", HOSTILE, "__proto__", "constructor", "a\n\tb", "é" * 500, "../../etc/passwd?signal=x#y")
    with serve(50, known=signals(*names)) as server:
        page = visit(server.url)
        for name in names:
            page.select_option("#signal", value=name) if name != "power" else None
            wait_for(page, "emphatic.held === 50")
            expect(page.locator("#title")).to_have_text(f"{name}: readings and forecast", timeout=SOON)
        assert page.locator("img").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.goto(server.url + "#%E0%A4%A")  # not even an address
        wait_for(page, "emphatic.held === 50")
        page.goto("about:blank")
        page.goto(server.url + "/#constructor")
        expect(page.locator("#title")).to_have_text("constructor: readings and forecast", timeout=SOON)


def test_many_signals_can_be_searched(visit: Callable[..., Page]) -> None:
    with serve(50, known=signals(*(f"sensor {i}" for i in range(300)))) as server:
        page = visit(server.url)
        expect(page.locator("#signal option")).to_have_count(300, timeout=SOON)
        page.fill("#filter", "SENSOR 29")
        expect(page.locator("#signal option")).to_have_count(12, timeout=SOON)  # 29, 290 … 299, and the one shown
        page.select_option("#signal", "sensor 297")
        expect(page.locator("#title")).to_have_text("sensor 297: readings and forecast", timeout=SOON)


def test_memory_does_not_grow_with_the_stream(visit: Callable[..., Page]) -> None:
    """A stream at a hundred times the speed of life: an hour at 100 readings a second."""
    known = signals()

    def stream(signal: str | None, last: str | None) -> Iterator[Event]:
        yield "hello", known | {"signal": "power", "horizons": H}
        for a in range(0, 360_000, 512):
            steps = range(a, a + 512)
            values = [i % 7 for i in steps]
            yield "rows", {
                "step": list(steps), "t": list(steps), "time": list(map(str, steps)), "reading": values,
                "predictions": dict.fromkeys(H, values), "gap": [i % 5 == 0 for i in steps],
                "alarm": [i % 3 == 0 for i in steps],
                "why": ["drifting" if i % 3 == 0 else None for i in steps],
            }  # fmt: skip
            yield "status", status(a)
        yield "pause", 60.0

    with PageServer(known, stream) as server:
        page = visit(server.url)
        browser = page.context.new_cdp_session(page)
        sizes = []
        for step in (60_000, 355_000):
            wait_for(page, f"emphatic.last >= {step}", 120)
            browser.send("HeapProfiler.collectGarbage")
            sizes.append(browser.send("Runtime.getHeapUsage")["usedSize"])
            sizes.append(page.evaluate("emphatic.room"))
            assert page.evaluate("emphatic.held") == 16_384
            assert page.evaluate("emphatic.drawn.every(column => column.length <= 3 * innerWidth)")
            assert page.locator("#list li").count() == 50
        assert sizes[1] == sizes[3]
        assert sizes[2] < sizes[0] + 3_000_000, sizes


def test_the_page_reconnects_and_loses_and_repeats_nothing(visit: Callable[..., Page]) -> None:
    with serve(100, then=True) as server:
        page = visit(server.url)
        wait_for(page, "emphatic.held > 105")
        server.drop()
        wait_for(page, f"emphatic.held > {page.evaluate('emphatic.held') + 10}")
        assert server.connections >= 2
        steps = page.evaluate("emphatic.drawn[0]")
        assert steps == list(range(len(steps)))  # no break: the browser said what it had seen
        expect(page.locator("#state")).to_have_class("state live", timeout=SOON)
        server.down = True
        server.drop()
        expect(page.locator("#state")).to_have_text("connection lost; trying again", timeout=SOON)
        server.down = False
        expect(page.locator("#state")).to_have_class("state live", timeout=SOON)


def test_a_service_that_begins_again_is_shown_from_its_beginning(visit: Callable[..., Page]) -> None:
    begun = []

    def stream(signal: str | None, last: str | None) -> Iterator[Event]:
        begun.append(last)
        step = 500 if len(begun) == 1 else 40
        yield "hello", signals(step=step) | {"signal": "power", "horizons": H}
        yield "rows", rows(0, step)
        yield "pause", 60.0

    with PageServer(signals(), stream) as server:
        page = visit(server.url)
        wait_for(page, "emphatic.held === 500")
        server.drop()
        wait_for(page, "emphatic.held === 40")


def test_a_connection_that_fell_silent_is_opened_again(visit: Callable[..., Page]) -> None:
    """A laptop that was closed: no error comes, only nothing more."""

    def stream(signal: str | None, last: str | None) -> Iterator[Event]:
        yield "hello", signals(step=10) | {"signal": "power", "horizons": H}
        yield "rows", rows(0, 10)
        yield "pause", 120.0

    with PageServer(signals(), stream) as server:
        page = visit(server.url, clock=True)
        wait_for(page, "emphatic.held === 10")
        page.clock.fast_forward(3_600_000)
        deadline = time.monotonic() + 20
        while server.connections < 2 and time.monotonic() < deadline:
            page.clock.run_for(1000)
        assert server.connections >= 2
        assert page.evaluate("emphatic.held") == 10


def test_zoom_and_pause_hold_the_view_and_follow_lets_go(visit: Callable[..., Page]) -> None:
    with serve(400, then=True) as server:
        page = visit(server.url)
        wait_for(page, "emphatic.held > 400 && emphatic.draws > 2")
        box = page.locator("#live .u-over").bounding_box()
        assert box is not None
        middle = box["y"] + box["height"] / 2
        page.mouse.move(box["x"] + 0.25 * box["width"], middle)
        page.mouse.down()
        page.mouse.move(box["x"] + 0.5 * box["width"], middle, steps=4)
        page.mouse.up()
        wait_for(page, "emphatic.drawn[0].length < 150")
        expect(page.locator("#pause")).to_have_text("Follow", timeout=SOON)
        first = page.evaluate("emphatic.drawn[0]")
        before = page.evaluate("emphatic.held")
        wait_for(page, f"emphatic.held > {before + 5}")
        assert page.evaluate("emphatic.drawn[0]") == first
        page.locator("#pause").click()
        wait_for(page, "emphatic.drawn[0].length > 400")
        page.locator("#pause").click()
        expect(page.locator("#pause")).to_have_text("Follow", timeout=SOON)
        held = page.evaluate("emphatic.drawn[0].length")
        wait_for(page, f"emphatic.held > {page.evaluate('emphatic.held') + 5}")
        assert page.evaluate("emphatic.drawn[0].length") == held
        page.locator("#live .u-over").dblclick()
        wait_for(page, f"emphatic.drawn[0].length > {held}")


def test_light_dark_and_the_width_of_a_phone(visit: Callable[..., Page]) -> None:
    known = signals("a_rather_long_name_of_a_signal_" * 4, "b")
    with serve(50, known=known, reading=[(-1) ** i * 12345.678 for i in range(50)]) as server:
        seen = set()
        for scheme, width in (("light", 1200), ("dark", 1200), ("light", 360), ("dark", 360)):
            page = visit(server.url, color_scheme=scheme, viewport={"width": width, "height": 700})
            wait_for(page, "emphatic.held === 50 && emphatic.draws > 0")
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (scheme, width)
            assert page.evaluate("document.querySelector('canvas').clientWidth") <= width
            seen.add((page.evaluate("getComputedStyle(document.body).backgroundColor"), scheme))
        assert len(seen) == 2
        page.emulate_media(color_scheme="light")  # also while it is open
        page.set_viewport_size({"width": 700, "height": 700})
        wait_for(page, "document.querySelector('canvas').clientWidth > 600")


def test_the_end_of_a_warm_up_brings_signals(visit: Callable[..., Page]) -> None:
    begun = []

    def stream(signal: str | None, last: str | None) -> Iterator[Event]:
        begun.append(last)
        warm = len(begun) > 1
        known = signals(*(("power", "voltage") if warm else ("power",)), step=50, time=warm, warming_up=not warm)
        yield "hello", known | {"signal": "power", "horizons": ["2min", "9min"]}
        if warm:
            yield "rows", rows(0, 50)
            yield "pause", 60.0

    with PageServer(signals(), stream) as server:
        page = visit(server.url)
        wait_for(page, "emphatic.held === 50")
        expect(page.locator("#signal option")).to_have_text(["power", "voltage"], timeout=SOON)


def expected(name: str, begin: int, known: int = 500) -> dict[str, Any]:
    """The answer to /forecast after ``begin`` rows of a minute: at +10min and +1h, and the last value besides."""
    ahead = [10.0, 60.0]
    path = {"ahead": [0.0, *ahead], "mean": [0.0, 1.0, 2.0], "low": [0.0, 0.5, None], "high": [0.0, 1.5, None]}
    verdict = {
        "sentence": f"{name} is predicted better than the last value.", "kind": "better", "baseline": "persistence",
        "baseline_words": "the last value", "skill": 0.4375, "rmse": 0.3, "baseline_rmse": 0.4, "horizon": "10min",
    }  # fmt: skip
    forecasts = [
        {"horizon": "10min", "time": 1_170_288_000 + 60 * (begin + 9), "mean": 1.0, "low": 0.5, "high": 1.5,
         "baseline": 0.25, "rmse": 0.31, "ahead": 10.0},
        {"horizon": "1h", "time": 1_170_288_000 + 60 * (begin + 59), "mean": 2.0, "low": None, "high": None,
         "baseline": None, "rmse": None, "ahead": 60.0},
    ]  # fmt: skip
    learning = "" if known >= 100 else f"learning: {known} of 100 windows known"
    return {
        "signal": name, "unit": "kW", "learning": learning, "verdict": verdict, "forecasts": forecasts, "path": path,
        "baseline": {"ahead": [0.0, 60.0], "mean": [0.25, 0.25]}, "step": begin,
    }  # fmt: skip


@pytest.mark.parametrize("size", [(1280, 900), (390, 844)])
def test_the_forecast_is_drawn_to_the_right_of_now(visit: Callable[..., Page], size: tuple[int, int]) -> None:
    with serve(200) as server:
        server.forecast = lambda signal: expected(signal, 200)
        page = visit(server.url, viewport={"width": size[0], "height": size[1]})
        wait_for(page, "emphatic.held === 200 && emphatic.drawn[0].at(-1) > 199")
        live = page.evaluate("emphatic.drawn")
        path, baseline = live[-4], live[-3]
        assert live[0][-1] == 199 + 60
        assert [value for value in path if value is not None] == [0.0, 1.0, 2.0]
        assert [value for value in baseline if value is not None] == [0.25, 0.25]
        assert max(x for x, value in zip(live[0], live[3], strict=True) if value is not None) == 199
        rows_of_table = page.locator("#forecasts tbody tr").all_inner_texts()
        assert rows_of_table[0].split("\t")[:4] == ["at +10min", "2007-02-01 03:29", "1.00 kW", "0.500 … 1.50"]
        assert rows_of_table[0].split("\t")[4:] == (["0.250", "0.310"] if size[0] > 1000 else [])
        running = page.locator("#running").inner_text()
        assert "forecast 0.300 kW" in running
        assert "the last value (persistence) 0.400 kW; skill 0.44" in running
        table = page.locator(".scroll:has(#forecasts)")
        assert table.evaluate("one => one.scrollWidth <= one.clientWidth")
        for id in ("#verdict", "#live"):
            box = page.locator(id).bounding_box()
            assert box is not None
            assert box["y"] + box["height"] <= size[1]
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.locator("#pause").click()
        wait_for(page, "emphatic.drawn[0].at(-1) === 199")  # a view that is held ends with its last row


def test_nothing_is_drawn_before_the_forecast_was_answered(visit: Callable[..., Page]) -> None:
    answer = threading.Event()

    def forecast(signal: str) -> dict[str, Any]:
        assert answer.wait(60)
        return expected(signal, 200)

    with serve(200) as server:
        server.forecast = forecast
        page = visit(server.url)
        wait_for(page, "emphatic.held === 200")
        expect(page.locator("#state")).to_have_text("connecting…", timeout=SOON)
        assert not page.locator("#live").is_visible()
        assert not page.locator("#pause").is_visible()
        answer.set()
        expect(page.locator("#live")).to_be_visible(timeout=SOON)
        expect(page.locator("#verdict")).to_be_visible()
        expect(page.locator("#pause")).to_be_visible()


def test_before_forecasts_exist_the_page_says_how_far_learning_is(visit: Callable[..., Page]) -> None:
    with serve(100) as server:
        server.forecast = lambda signal: expected(signal, 100, known=37) | {"forecasts": [], "verdict": {}}
        page = visit(server.url)
        expect(page.locator("#ahead")).to_have_text("learning: 37 of 100 windows known.", timeout=SOON)
        assert page.locator("#forecasts").is_hidden()
        assert page.locator("#legend").is_hidden()
