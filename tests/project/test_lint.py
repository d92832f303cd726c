"""The tools that read the code: ruff, mypy and import-linter."""

from __future__ import annotations

import subprocess

import pytest

from tools.lint import COMMANDS, ROOT


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name == "mypy" else ()) for name in COMMANDS]
)
def test_is_clean(name: str) -> None:
    result = subprocess.run(COMMANDS[name], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
