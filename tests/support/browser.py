"""Pages in a real browser, where there is one."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

__all__ = ["found", "in_a_browser"]

Test = TypeVar("Test", bound=Callable[..., Any])

#: A busy machine draws one page at a time soon enough, but not two.
_MARKS = (
    pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed"),
    pytest.mark.long,
    pytest.mark.xdist_group("chromium"),
)
_FLAGS = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-sync"


def in_a_browser(test: Test) -> Test:
    """A test that needs chromium."""
    for mark in _MARKS:
        test = mark(test)
    return test


def found(folder: Path, html: str, wanted: str, width: int) -> str | None:
    """What the page's own script wrote into ``data-found`` of its body; tried thrice, as frames may come too late."""
    (folder / "frame.html").write_text(html, encoding="utf-8")
    seen = None
    for attempt in range(3):
        profile = f"--user-data-dir={folder / f'profile{attempt}'}"
        command = ["chromium", *_FLAGS.split(), profile, f"--window-size={width},9000", "--virtual-time-budget=20000"]
        command += ["--dump-dom", (folder / "frame.html").as_uri()]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False).stdout
        match = re.search(r'data-found="([^"]*)"', shown)
        seen = match and match[1]
        if seen == wanted:
            break
    return seen
