"""Full disks, kills, interrupted calls and too little memory, some of each: see ``tests.attack.faults``."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of processes are of another kind")
@pytest.mark.parametrize("work", ["save", "nexting", "sweep"])
def test_the_old_file_or_the_new_one(work: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.attack.faults", work], capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    for fault in ("full: refused", "kill: killed", "signals: done", "memory: refused", "memory: done"):
        assert found[fault] > 0, found
