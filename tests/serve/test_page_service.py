"""The page of a running service: in Chromium, slow, and vanishing."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

pytest.importorskip("starlette", reason="needs pip install 'emphatic[serve]'")
pytest.importorskip("playwright", reason="needs playwright, of the test group")
from playwright.sync_api import Browser, Page, expect

from tests.support.services import FLAGS, Served, free_port, readings

pytestmark = [pytest.mark.serve, pytest.mark.xdist_group("chromium")]
SOON = 30_000


def wait_for(page: Page, expression: str) -> None:
    deadline = time.monotonic() + SOON / 1000
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, (expression, page.inner_text("body"))
        time.sleep(0.05)


def test_the_page_of_a_service_that_is_killed_and_comes_back(browser: Browser, tmp_path: Path) -> None:
    model, port = tmp_path / "model.safetensors", free_port()
    page = browser.new_page()
    with Served(model, *FLAGS, port=port) as service:
        page.goto(service.url)
        expect(page.locator("#notice")).to_contain_text("No reading has arrived yet", timeout=SOON)
        service.post(readings(10))
        expect(page.locator("#state")).to_have_text("warming up: 10 of 60 readings", timeout=SOON)
        lines = service.post(readings(290, 10)).text.splitlines()
        last = json.loads(lines[-1])
        wait_for(page, f"emphatic.last === {last['step']}")
        expect(page.locator("#title")).to_have_text("S1: readings and forecast", timeout=SOON)
        wait_for(page, f"emphatic.drawn[6].includes({last['predictions']['S1']['2']})")  # the path of the forecast
        drawn = page.evaluate("emphatic.drawn[3]")
        assert [value for value in drawn if value is not None][-50:] == [one["S1"] for one in readings(50, 250)]
        page.select_option("#signal", "S2")
        expect(page.locator("#title")).to_have_text("S2: readings and forecast", timeout=SOON)
        service.kill()
        expect(page.locator("#state")).to_have_text("connection lost; trying again", timeout=SOON)
    with Served(model, *FLAGS, port=port) as service:
        last = json.loads(service.post(readings(100, 300)).text.splitlines()[-1])
        wait_for(page, f"emphatic.last === {last['step']}")
        expect(page.locator("#state")).to_have_class("state live", timeout=SOON)
        expect(page.locator("#title")).to_have_text("S2: readings and forecast", timeout=SOON)
        service.post([{"time": 1_700_000_400, "S1": 0.0, "S2": 1000.0}])
        expect(page.locator("#list li").first).to_contain_text(
            "2023-11-14 22:20:00.000 too high reading 1,000", timeout=SOON
        )
        wait_for(page, "emphatic.drawn[5].some(value => value === 1000)")
        page.close()


def test_a_question_is_asked_in_the_field_of_the_page(browser: Browser, tmp_path: Path) -> None:
    """A mistake is answered with what was meant and stays in the field; answers go on, and one is stopped."""
    with Served(tmp_path / "model", *FLAGS, "--ask", "S2 at +3") as service:
        service.post(readings(200))
        page = browser.new_page(viewport={"width": 1000, "height": 800})
        page.goto(service.url)
        answers, problem, field = page.locator("#answers li"), page.locator("#problem"), page.locator("#question")
        expect(answers).to_have_count(1, timeout=SOON)
        expect(answers.first).to_contain_text("In 3 rows S2 is", timeout=SOON)
        assert problem.is_hidden()
        field.fill("P(S1 > 0.5 in the next 9 seconds)")
        field.press("Enter")
        expect(problem).to_contain_text("Did you mean 'P(S1 > 0.5 within 9s)'?", timeout=SOON)
        expect(field).to_have_value("P(S1 > 0.5 in the next 9 seconds)")
        field.fill("P(S1 > <b>0.5</b> within 9s)")
        page.get_by_role("button", name="Ask", exact=True).click()
        expect(problem).to_contain_text("'P(S1 > <b>0.5</b> within 9s)' is not a question", timeout=SOON)
        before = answers.first.inner_text()
        service.post(readings(20, 200))
        expect(answers.first).not_to_have_text(before, timeout=SOON)  # beside the problem, which is still there
        assert problem.is_visible()
        field.fill("P(S1 > 0.5 within 9s)")
        field.press("Enter")
        expect(answers).to_have_count(2, timeout=SOON)
        expect(problem).to_be_hidden()
        expect(field).to_have_value("")
        expect(answers.nth(1)).to_contain_text("learning: 0 of 100 windows known")
        service.post(readings(50, 220))
        expect(answers.nth(1)).to_contain_text("Within the next 9 s S1 exceeds 0.5 with probability", timeout=SOON)
        expect(answers.nth(1)).to_contain_text("learning: 21 of 100 windows known", timeout=SOON)
        answers.first.get_by_role("button", name="Stop asking").click()
        expect(answers).to_have_count(1, timeout=SOON)
        assert [question["text"] for question in service.client.get("/ask").json()] == ["P(S1 > 0.5 within 9s)"]
        page.close()


def test_the_token_is_taken_by_a_form_and_never_by_the_address(browser: Browser, tmp_path: Path) -> None:
    token, port, model = "correct-horse-battery-staple", free_port(), tmp_path / "model.safetensors"
    (tmp_path / "token").write_text(token + "\n")
    options = (*FLAGS, "--token-file", tmp_path / "token")
    page = browser.new_page()
    with Served(model, *options, port=port) as service:
        for address in ("/", f"/?token={token}"):
            answer = page.goto(service.url + address)
            assert answer is not None
            assert answer.status == 401
        page.fill("#token", "wrong")
        page.click("button")
        expect(page.locator(".wrong")).to_have_text("Wrong token.", timeout=SOON)
        page.fill("#token", token)
        page.click("button")
        expect(page.locator("#notice")).to_contain_text("No reading has arrived yet", timeout=SOON)
        assert token not in page.url
        assert page.evaluate("document.cookie") == ""  # out of reach of scripts
    with Served(model, *options, port=port):  # its sessions are over: the page asks again
        expect(page.locator("#token")).to_be_visible(timeout=SOON)
        page.close()


def request_stream(service: Served) -> socket.socket:
    raw = socket.create_connection(("127.0.0.1", urlsplit(service.url).port or 0), timeout=10)
    raw.sendall(b"GET /stream HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    return raw


def memory(service: Served) -> int:
    """The memory of the process, in bytes."""
    status = Path(f"/proc/{service.process.pid}/status").read_text()
    return 1024 * int(status.partition("VmRSS:")[2].split()[0])


def test_slow_pages_cost_the_service_nothing(tmp_path: Path) -> None:
    with Served(tmp_path / "model.safetensors", *FLAGS) as service:
        service.post(readings(500))
        slow = [request_stream(service) for _ in range(8)]  # never read from
        service.post(readings(500, 500))
        before, worst = memory(service), 0.0
        for i in range(1000, 21_000, 500):
            began = time.monotonic()
            service.post(readings(500, i))
            worst = max(worst, time.monotonic() - began)
        assert memory(service) < before + 30_000_000
        assert worst < 5.0
        for one in slow:
            one.close()
        assert service.client.get("/healthz").json() == {"status": "alive"}
