"""A header that nobody writes is read, from a file and from a pipe."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROWS = "".join(f"{i % 7},{i % 5}\n" for i in range(40))


def emphatic(folder: Path, *given: str, text: bytes | None = None) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "emphatic.nexting.cli", "nexting", *given]
    done = subprocess.run(command, cwd=folder, input=text, capture_output=True, check=False, timeout=120)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.mark.parametrize("live", [False, True])
def test_a_very_long_header(tmp_path: Path, live: bool) -> None:
    """Of more than 128 KiB: it is read."""
    names = [f"{'long' * 60}{i}" for i in range(600)]
    rows = ",".join(names) + "\n" + "".join(",".join([str(i % 7)] * 600) + "\n" for i in range(30))
    assert len(rows.splitlines()[0]) > 1 << 17
    (tmp_path / "log.csv").write_text(rows)
    given = ["--predict", names[0], "--horizons", "2"]
    if live:
        answer = emphatic(tmp_path, "-", "--warm-up", "5", "--model", "m", *given, text=rows.encode())
    else:
        answer = emphatic(tmp_path, "log.csv", "--print-config", *given)
    assert (answer[0], "Traceback" in answer[2]) == (0, False), answer[2][-1000:]
