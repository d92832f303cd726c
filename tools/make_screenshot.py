"""Take the picture of a report that the README shows: ``python -m tools.make_screenshot``.

Runs ``emphatic nexting`` on the data that come with the package, opens its report in Chromium without a window, and
keeps its first screen. Needs chromium on the path (``apt-get install chromium``).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PICTURE = Path(__file__).parent.parent / "docs" / "pictures" / "report.png"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SIZE = (1280, 900)
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--virtual-time-budget=10000",
)  # fmt: skip


def main() -> int:
    """Write the picture; 2 if there is no browser."""
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        print(f"None of {', '.join(BROWSERS)} is installed: apt-get install chromium.", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        out, profile = Path(folder) / "out", Path(folder) / "profile"
        command = [sys.executable, "-m", "emphatic.nexting.cli", "nexting", "--out", str(out)]
        subprocess.run(command, check=True)
        subprocess.run(
            [
                browser, *FLAGS, f"--user-data-dir={profile}", f"--window-size={SIZE[0]},{SIZE[1]}",
                f"--screenshot={PICTURE}", (out / "report.html").as_uri(),
            ],
            check=True, timeout=120, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    print(f"written: {PICTURE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
