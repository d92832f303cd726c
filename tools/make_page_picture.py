"""Take the picture of the service's page that its documentation shows: ``python -m tools.make_page_picture``.

Starts ``emphatic serve``, sends it the first days of the log that comes with the package, and opens its page in
Chromium. Needs chromium on the path, playwright, and ``pip install 'emphatic[serve]'``.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

import emphatic
from emphatic.nexting.tables import open_table

PICTURE = Path(__file__).parent.parent / "docs" / "pictures" / "serve.png"
SIZE = {"width": 1100, "height": 800}
ROWS, BLOCK = 5760, 240


def readings() -> list[dict[str, object]]:
    """The first four days, as a meter would send them."""
    table = open_table(emphatic.nexting.data.household())
    block = next(table.blocks(ROWS))
    assert block.time is not None
    found: list[dict[str, object]] = []
    for seconds, row in zip(block.time.tolist(), block.values, strict=True):
        values = {name: None if np.isnan(one) else one for name, one in zip(table.names, row.tolist(), strict=True)}
        found.append({"time": f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}", **values})
    return found


def send(url: str, rows: list[dict[str, object]]) -> None:
    """Send readings, as soon as the service is there."""
    request = urllib.request.Request(url + "/readings", json.dumps(rows).encode(), {"content-type": "application/json"})
    for _ in range(600):
        try:
            with urllib.request.urlopen(request, timeout=60):
                return
        except urllib.error.URLError:
            time.sleep(0.1)
    raise TimeoutError(url)


def main() -> int:
    """Write the picture; 2 if there is no browser."""
    browser = shutil.which("chromium")
    if browser is None:
        print("chromium is not installed: apt-get install chromium.", file=sys.stderr)
        return 2
    from playwright.sync_api import sync_playwright

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url, rows = f"http://127.0.0.1:{port}", readings()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        command = [
            sys.executable, "-m", "emphatic", "serve", "--port", str(port), "--model", f"{folder}/model.safetensors",
            "--predict", "Global_active_power,Voltage", "--horizons", "2min,15min,1h,6h", "--warm-up", "500",
        ]  # fmt: skip
        with subprocess.Popen(command) as service:
            try:
                send(url, rows[:BLOCK])
                page = driver.chromium.launch(executable_path=browser, args=["--no-sandbox"]).new_page(viewport=SIZE)
                page.goto(url)
                for i in range(BLOCK, ROWS, BLOCK):
                    send(url, rows[i : i + BLOCK])
                    page.wait_for_timeout(200)
                page.locator("#forecasts tbody tr").first.wait_for()
                page.wait_for_timeout(3000)
                page.screenshot(path=PICTURE)
            finally:
                service.terminate()
    print(f"written: {PICTURE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
