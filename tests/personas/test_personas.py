"""Every script of this folder runs in an empty folder, in an interpreter of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

SCRIPTS = sorted(path for path in Path(__file__).parent.glob("*.py") if path.stem not in ("__init__", "test_personas"))


def marked(script: Path) -> ParameterSet:
    mark = pytest.mark.cluster if script.stem == "cluster" else pytest.mark.long
    return pytest.param(script, id=script.stem, marks=mark)


@pytest.mark.parametrize("script", [marked(script) for script in SCRIPTS])
def test_a_user_gets_what_the_documentation_says(script: Path, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
