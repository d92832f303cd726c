"""The tools that read the code: ruff, mypy and import-linter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent


@pytest.mark.parametrize(
    "command",
    [
        [BIN / "ruff", "check", "--no-cache", "."],
        [BIN / "ruff", "format", "--no-cache", "--check", "."],
        [BIN / "mypy", "--cache-dir", "/dev/null"],
        [BIN / "lint-imports", "--no-cache"],
    ],
    ids=["ruff check", "ruff format", "mypy", "import-linter"],
)
def test_is_clean(command: list[str]) -> None:
    result = subprocess.run([str(part) for part in command], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
