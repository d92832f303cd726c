"""Tables and pipes as nobody writes them: read, or refused in one line with exit code 2; never a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROWS = "".join(f"{i % 7},{i % 5}\n" for i in range(40))
DEEP = '{"x": ' + "[" * 100_000 + "]" * 100_000 + "}\n"


def emphatic(folder: Path, *given: str, text: bytes | None = None) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "emphatic.cli", "nexting", *given]
    done = subprocess.run(command, cwd=folder, input=text, capture_output=True, check=False, timeout=120)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def refused(answer: tuple[int, str, str]) -> str:
    code, said, wrong = answer
    assert (code, said) == (2, ""), wrong[-1000:]
    last = wrong.splitlines()[-1]
    assert last.startswith("Error: ")
    assert "Traceback" not in wrong
    return last


def test_a_column_named_like_a_format(tmp_path: Path) -> None:
    """Live, and then from the model that was saved."""
    rows = "%s,%d\n" + ROWS
    for _ in range(2):
        code, said, wrong = emphatic(
            tmp_path, "-", "--model", "m", "--horizons", "2", "--warm-up", "5", text=rows.encode()
        )
        assert (code, "Traceback" in wrong) == (0, False), wrong[-1000:]
        assert said


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


def test_json_without_end(tmp_path: Path) -> None:
    (tmp_path / "deep.jsonl").write_text(DEEP * 3)
    refused(emphatic(tmp_path, "deep.jsonl", "--horizons", "2", "--out", "out"))
    assert not (tmp_path / "out").exists()
    code, said, wrong = emphatic(
        tmp_path, "-", "--model", "m", "--horizons", "2", "--warm-up", "5", text=DEEP.encode() * 9
    )
    assert (code, said, "Traceback" in wrong) == (2, "", False), wrong[-1000:]


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_a_header_in_another_encoding_stops_a_pipe(tmp_path: Path, encoding: str) -> None:
    """It stops a file too, unless a byte order mark tells the encoding."""
    text = ("wärme,x\n" + ROWS).encode(encoding)
    (tmp_path / "log.csv").write_bytes(text)
    of_file = emphatic(tmp_path, "log.csv", "--horizons", "2", "--out", "out")
    if encoding == "utf-16":
        assert (of_file[0], "wärme" in (tmp_path / "out" / "summary.json").read_text("utf-8")) == (0, True)
    else:
        refused(of_file)
    refused(emphatic(tmp_path, "-", "--model", "m", "--horizons", "2", "--warm-up", "5", text=text))
    assert not (tmp_path / "m").exists()
