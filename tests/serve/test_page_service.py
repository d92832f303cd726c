"""The page of a running service: in Chromium, slow, and vanishing."""

from __future__ import annotations

import math
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.services import RunningService, start_service

pytest.importorskip("starlette", reason="needs pip install 'emphatic[serve]'")
pytest.importorskip("playwright", reason="needs playwright, of the test group")
from playwright.sync_api import Browser, Page, expect, sync_playwright

pytestmark = [pytest.mark.serve, pytest.mark.xdist_group("chromium")]
SOON = 30_000
OPTIONS = ("--warm-up", "20", "--horizons", "2,9", "--save-every", "5s")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed")
    with sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        yield found
        found.close()


def wave(a: int, b: int) -> list[dict[str, float]]:
    return [{"power": math.sin(i / 9), "<b>": float(i % 5)} for i in range(a, b)]


def wait_for(page: Page, expression: str) -> None:
    deadline = time.monotonic() + SOON / 1000
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, (expression, page.inner_text("body"))
        time.sleep(0.05)


def test_the_page_of_a_service_that_is_killed_and_comes_back(browser: Browser) -> None:
    with start_service(*OPTIONS) as service:
        page = browser.new_page()
        page.goto(service.url)
        expect(page.locator("#notice")).to_contain_text("No reading has come yet", timeout=SOON)
        service.post(wave(0, 10))
        expect(page.locator("#state")).to_have_text("warming up: 10 of 20 readings", timeout=SOON)
        lines = service.post(wave(10, 300))
        wait_for(page, "emphatic.last === 299")
        expect(page.locator("#title")).to_have_text("power: readings and predictions", timeout=SOON)
        steps, _, _, readings, *predictions = page.evaluate("emphatic.drawn[0]")
        assert readings[-100:] == [one["power"] for one in wave(200, 300)]
        assert predictions[0][-1] == lines[-1]["predictions"]["power"]["2"]
        page.select_option("#signal", "<b>")
        expect(page.locator("#title")).to_have_text("<b>: readings and predictions", timeout=SOON)
        service.kill()
        expect(page.locator("#state")).to_have_text("connection lost; trying again", timeout=SOON)
        service.start()
        service.post(wave(300, 400))
        wait_for(page, "emphatic.last === 399")
        expect(page.locator("#state")).to_have_class("state live", timeout=SOON)
        page.close()


def test_the_token_is_taken_by_a_form_and_never_by_the_address(browser: Browser, tmp_path: Path) -> None:
    token = "correct horse battery staple"
    (tmp_path / "token").write_text(token + "\n")
    with start_service(*OPTIONS, "--token-file", str(tmp_path / "token")) as service:
        page = browser.new_page()
        for address in ("/", f"/?token={token}"):
            answer = page.goto(service.url + address)
            assert answer is not None
            assert answer.status == 401
        page.fill("#token", "wrong")
        page.click("button")
        expect(page.locator(".wrong")).to_have_text("That is not the token.", timeout=SOON)
        page.fill("#token", token)
        page.click("button")
        expect(page.locator("#notice")).to_contain_text("No reading has come yet", timeout=SOON)
        assert token not in page.url
        assert page.evaluate("document.cookie") == ""  # out of reach of scripts
        service.kill()
        service.start()  # its sessions are over: the page asks again
        expect(page.locator("#token")).to_be_visible(timeout=SOON)
        page.close()


def request_stream(service: RunningService) -> socket.socket:
    raw = socket.create_connection(("127.0.0.1", service.port), timeout=10)
    raw.sendall(f"GET /stream HTTP/1.1\r\nHost: 127.0.0.1:{service.port}\r\n\r\n".encode())
    return raw


def memory(service: RunningService) -> int:
    """The memory of the process, in bytes."""
    status = Path(f"/proc/{service.process.pid}/status").read_text()
    return 1024 * int(status.partition("VmRSS:")[2].split()[0])


def test_slow_and_vanishing_pages_cost_the_service_nothing() -> None:
    with start_service(*OPTIONS) as service:
        service.post(wave(0, 500))
        for _ in range(3):  # pages that vanish make room for others
            pages = [request_stream(service) for _ in range(32)]
            assert all(page.recv(12) == b"HTTP/1.1 200" for page in pages)
            with request_stream(service) as one_more:
                assert one_more.recv(12) == b"HTTP/1.1 503"
            for page in pages:
                page.close()
            deadline = time.monotonic() + 15
            while time.monotonic() < deadline:
                with request_stream(service) as page:
                    if page.recv(12) == b"HTTP/1.1 200":
                        break
                time.sleep(0.1)
            time.sleep(0.5)
        slow = [request_stream(service) for _ in range(8)]  # never read from
        service.post(wave(500, 1000))
        before, worst = memory(service), 0.0
        for i in range(1000, 21_000, 500):
            began = time.monotonic()
            service.post(wave(i, i + 500))
            worst = max(worst, time.monotonic() - began)
        assert memory(service) < before + 30_000_000
        assert worst < 5.0
        for one in slow:
            one.close()
        assert '"alive"' in service.get("/healthz")
