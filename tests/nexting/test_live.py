"""Nexting on a pipe, with real processes and real pipes: killed, stopped, held back, left alone, and fed nonsense.

Most processes are forked (``tests.support.processes``); the first one, and the one whose output is closed, are started.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from emphatic.hordes.horde import Horde
from emphatic.nexting.predictor import Every
from emphatic.tables.pipe import LONGEST, line_blocks
from tests.support.processes import COMMAND, Forked, run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pipes and signals of POSIX")

START = [sys.executable, "-m", "emphatic.cli", "nexting", "-"]
FLAGS = ["--horizons", "2,9", "--warm-up", "60", "--exponential-only"]
ROWS = 2000


def readings(rows: int = ROWS) -> list[bytes]:
    rng = np.random.default_rng(0)
    t = np.arange(rows)
    S1, S2 = np.sin(t / 7) + 0.1 * rng.normal(size=rows), np.cos(t / 11) + 0.1 * rng.normal(size=rows)
    made = [{"time": 1.7e9 + int(i), "S1": round(a, 4), "S2": round(b, 4)} for i, a, b in zip(t, S1, S2, strict=True)]
    for i in range(5, rows, 97):
        made[i]["S2"] = None
    return [json.dumps(one).encode() + b"\n" for one in made]


def started(*flags: str, stderr: int = subprocess.PIPE) -> Any:
    """The command with pipes to all its ends, which are closed with it."""
    return Forked(COMMAND, "nexting", "-", *flags, stderr=stderr)


def fed(text: bytes, *flags: str) -> tuple[int, list[dict[str, Any]], str]:
    """The exit code, the lines out and what it wrote to standard error, of a run on all of this text."""
    done = run(COMMAND, "nexting", "-", *flags, input=text)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr.decode()


def learned(path: Path, out: Path) -> None:
    """A run on a file."""
    done = run(COMMAND, "nexting", path, "--horizons", "2,9", "--out", out)
    assert done.returncode == 0, done.stderr.decode()


def seconds_until(done: Callable[[], bool]) -> float:
    began = time.monotonic()
    while not done() and time.monotonic() - began < 30:
        time.sleep(0.01)
    return time.monotonic() - began


def unread(pipe: Any) -> int:
    """The bytes that wait in a pipe."""
    import fcntl
    import termios

    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def live_state(model: Path) -> dict[str, Any]:
    state: dict[str, Any] = Horde.load_with(model)[1]["live"]
    return state


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[bytes], Path]:
    """What a run that is never interrupted writes, line by line, and its model."""
    model = tmp_path_factory.mktemp("live") / "model.safetensors"
    done = subprocess.run(
        [*START, *FLAGS, "--model", str(model)],
        input=b"".join(readings()),
        capture_output=True,
        timeout=120,
        check=True,
    )
    return done.stdout.splitlines(), model


def test_a_line_for_every_reading(whole: tuple[list[bytes], Path]) -> None:
    """The first two do not tell yet what they are; until the warm-up is complete, what is read is the prediction."""
    out, model = whole
    assert len(out) == ROWS - 2
    first = [json.loads(line) for line in readings()[:59]]
    held = [next(one["S2"] for one in first[t::-1] if one["S2"] is not None) for t in range(59)]
    for t in range(2, 59):
        x = {"S1": first[t]["S1"], "S2": held[t]}
        assert json.loads(out[t - 2])["predictions"] == {name: {"2": value, "9": value} for name, value in x.items()}
    assert json.loads(out[57])["predictions"] != json.loads(out[56])["predictions"]
    for i, line in enumerate(out):
        made = json.loads(line)
        assert list(made) == ["step", "time", "predictions", "low", "high", "anomaly", "alarm", "why"]
        assert (made["step"], made["time"]) == (2 + i, 1.7e9 + 2 + i)
        assert {signal_: list(at) for signal_, at in made["predictions"].items()} == {
            "S1": ["2", "9"],
            "S2": ["2", "9"],
        }
    assert live_state(model)["step"] == ROWS
    # It learned: the last predictions of a sine are near what then happened.
    S1 = np.sin(np.arange(ROWS + 50) / 7)
    truth = [np.average(S1[t + 1 : t + 51], weights=0.5 ** np.arange(50)) for t in range(ROWS - 300, ROWS)]
    made = [json.loads(line)["predictions"]["S1"]["2"] for line in out[-300:]]
    assert np.mean((np.array(made) - truth) ** 2) < 0.1 * np.var(truth)


@pytest.mark.long
def test_killed_twenty_times_and_resumed(whole: tuple[list[bytes], Path], tmp_path: Path) -> None:
    """From the last save on, the lines are those of a run that never stopped."""
    expected = {json.loads(line)["step"]: line for line in whole[0]}
    model, text = tmp_path / "m", readings()
    rng, kills, seen = np.random.default_rng(3), 0, set()
    ended = None
    while ended != 0:
        begin = live_state(model)["step"] if model.exists() else 0
        with started(*FLAGS, "--model", str(model), "--save-every", "0.02s") as process:
            thread = process.feed(text[begin:])
            last = int(rng.integers(1, 120)) if kills < 20 else -1
            for count, line in enumerate(process.stdout, start=1):  # to the end: a pipe holds what was written before
                if not line.endswith(b"\n"):
                    continue
                step = json.loads(line)["step"]
                assert line.rstrip(b"\n") == expected[step]
                seen.add(step)
                if count == last:
                    process.kill()
            ended = process.wait(30)
            thread.join(10)
        kills += ended != 0
    assert kills == 20
    assert seen == set(expected)
    assert Horde.load(model).learner.theta.tobytes() == Horde.load(whole[1]).learner.theta.tobytes()


@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_at_once(whole: tuple[list[bytes], Path], tmp_path: Path, which: signal.Signals) -> None:
    """While it waits for input, and while nobody takes its output."""
    model, text = tmp_path / "m", readings()
    with started(*FLAGS, "--model", str(model), "--save-every", "1h") as process:
        process.stdin.write(b"".join(text[:300]))
        process.stdin.flush()
        out = [process.stdout.readline() for _ in range(298)]
        assert not model.exists()
        process.send_signal(which)
        assert seconds_until(model.exists) < 1.0
        assert process.wait(10) == 0
    assert live_state(model)["step"] == 300
    # Now nobody reads: the pipe fills, and it must still stop; what was not taken comes first when it goes on.
    with started("--model", str(model), "--save-every", "1h") as process:
        thread = process.feed(text[300:])
        saved = model.stat().st_mtime_ns
        seconds_until(lambda: unread(process.stdout) > 30_000)
        process.send_signal(which)
        assert seconds_until(lambda: model.stat().st_mtime_ns != saved) < 1.0
        got = process.stdout.read()
        assert process.wait(10) == 0
        thread.join(10)
    step = live_state(model)["step"]
    assert 300 < step < ROWS, "the producer was held back"
    rest = run(COMMAND, "nexting", "-", "--model", model, input=b"".join(text[step:]))
    assert rest.returncode == 0
    assert (b"".join(out) + got + rest.stdout).splitlines() == whole[0]


def test_when_the_reader_goes_away(tmp_path: Path) -> None:
    model, pipe = tmp_path / "m", subprocess.PIPE
    command = [*START, *FLAGS, "--model", str(model)]
    with (
        open(tmp_path / "stderr", "wb") as err,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=err) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"".join(readings(100)))  # as much as a pipe holds
        process.stdin.flush()
        for _ in range(70):
            process.stdout.readline()
        process.stdout.close()
        with suppress(BrokenPipeError):
            process.stdin.write(b"".join(readings(300)[100:]))
            process.stdin.flush()
        assert process.wait(20) == 0
    stderr = (tmp_path / "stderr").read_text()
    assert live_state(model)["step"] > 60
    assert "has closed the pipe" in stderr
    assert "Traceback" not in stderr


def test_csv_no_learning_and_thinning(whole: tuple[list[bytes], Path], tmp_path: Path) -> None:
    text = readings(300)
    table = ["S2,extra,S1,time"]
    for line in text:
        one = json.loads(line)
        table.append(f"{'' if one['S2'] is None else one['S2']},x,{one['S1']},{one['time']}")
    code, out, stderr = fed("\n".join(table).encode(), *FLAGS, "--model", str(tmp_path / "m"), "--every", "50")
    assert code == 0, stderr
    assert [one["step"] for one in out] == [49, 99, 149, 199, 249, 299]
    code, out, stderr = fed(b"".join(text), *FLAGS, "--model", str(tmp_path / "n"), "--every", "20s")
    assert [one["step"] for one in out] == list(range(2, 300, 20))
    # A frozen model stays as it is, to the last byte, and gives the same answers twice.
    before = whole[1].read_bytes()
    later = b"".join(text).replace(b"170", b"171")
    answers = [fed(later, "--model", str(whole[1]), "--no-learn")[1] for _ in range(2)]
    assert answers[0] == answers[1]
    assert len(answers[0]) == 300
    assert whole[1].read_bytes() == before
    code, _, stderr = fed(b"", "--model", str(tmp_path / "none"), "--no-learn")
    assert (code, "needs a model" in stderr) == (2, True)


def nonsense() -> Iterator[bytes]:
    """A thousand times a good line and 99 hostile ones of every kind."""
    rng = np.random.default_rng(0)
    kinds = [
        b"{", b"[]", b"null", b'"S1"', b"{}", b'{"other": 1}', b'{"S1": "abc"}', b'{"S1": [1]}', b'{"S1": {"a": 1}}',
        b"\xff\xfe\x00binary\x00", b"[" * 1500, b'{"a":' * 1500, b"{'S1': 1}", b"1,2,3", b"NaN", b"\x00" * 50,
        b'{"S1": 1e999999', b'{"S1": true, "S2"', b"--- ### ---",
    ]  # fmt: skip
    hostile = b"".join(kinds[int(k)] + b"\n" for k in rng.integers(0, len(kinds), 99))
    fine = b'{"time": %d, "S1": NaN, "S2": 1e999, "more": [1, 2]}\n'
    for i in range(1000):
        yield fine % (1_700_010_000 + i) + hostile


@pytest.mark.long
def test_nonsense_costs_no_crash_and_no_memory(whole: tuple[list[bytes], Path], tmp_path: Path) -> None:
    """A hundred thousand lines, one of them of 10 MB; what is logged of them is bounded too."""
    model = tmp_path / "m"
    model.write_bytes(whole[1].read_bytes())

    def text() -> Iterator[bytes]:
        yield b'{"S1": "' + b"x" * 10_000_000 + b'"}\n'
        yield from nonsense()

    with open(tmp_path / "stderr", "wb") as err, started("--model", str(model), stderr=err.fileno()) as process:
        thread = process.feed(text())
        first, used = process.stdout.readline(), [resident(process.pid)]
        used += [resident(process.pid) for _ in process.stdout]
        assert process.wait(60) == 0
        thread.join(10)
    assert json.loads(first)["predictions"]["S1"]["2"] is not None
    stderr = (tmp_path / "stderr").read_text()
    assert "line 1: longer than 8 MiB; skipped." in stderr
    assert "line 3:" in stderr
    assert "malformed lines skipped." in stderr
    assert len(stderr) < 50_000
    assert max(used) - used[0] < 20 * 2**20, "200 bytes a line"
    assert live_state(model)["step"] == ROWS + 1000


def resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def test_lines_are_cut_and_bounded() -> None:
    read, write = os.pipe()
    os.set_blocking(write, True)
    text = b"a\n\nb" + b"c" * 70_000 + b"\n" + b"d" * (LONGEST + 10) + b"\ne"

    def fill() -> None:
        view = memoryview(text)
        while view:
            view = view[os.write(write, view[:5000]) :]
        os.close(write)

    threading.Thread(target=fill, daemon=True).start()
    blocks = list(line_blocks(read))
    assert [line for block in blocks for line in block] == [b"a", b"", b"b" + b"c" * 70_000, None, b"e"]
    os.close(read)


def test_every_must_be_a_count_or_a_duration() -> None:
    with pytest.raises(ValueError, match="--every must be"):
        Every("soon")


@pytest.mark.parametrize(("level", "lines_"), [("WARNING", 2), ("ERROR", 0)])
def test_messages_are_plain_lines_whatever_logging_is_set_up(level: str, lines_: int, tmp_path: Path) -> None:
    code = (
        "import logging, pathlib; from emphatic.nexting.predictor import Live, Settings;"
        f"logging.basicConfig(); logging.getLogger('emphatic').setLevel('{level}');"
        f"Live(pathlib.Path({str(tmp_path / 'm')!r}), Settings()).run()"
    )
    done = run(code, input=b'{"x": 1}\n')
    assert done.returncode == 0
    assert (
        done.stderr.decode().splitlines()
        == [
            "emphatic: no model yet: warming up on the first 576 readings; until then predictions are the current "
            "readings.",
            "emphatic: stopped after 1 of 576 readings of the warm-up: saved; the next run continues with them.",
        ][:lines_]
    )


def test_a_pipe_that_ends_within_the_warm_up_goes_on_from_there(
    whole: tuple[list[bytes], Path], tmp_path: Path
) -> None:
    text, model, made = readings()[:80], ["--model", str(tmp_path / "m")], []
    for begin, end in ((0, 10), (10, 50), (50, 80)):
        # Later runs have the settings and the length of the warm-up from the first.
        code, out, stderr = fed(b"".join(text[begin:end]), *([] if begin else FLAGS), *model)
        assert code == 0
        made += out
        assert (f"stopped after {end} of 60 readings of the warm-up: saved; the next run continues" in stderr) == (
            end < 60
        )
        assert [path.name for path in tmp_path.iterdir()] == (["m.warm-up"] if end < 60 else ["m"])
    assert made == [json.loads(line) for line in whole[0][:78]]
    (tmp_path / "m").rename(tmp_path / "n.warm-up")
    code, out, stderr = fed(b"".join(text), *FLAGS, "--model", str(tmp_path / "n"))
    assert (code, out) == (2, [])
    assert "n.warm-up: this is not the saved warm-up of a pipe" in stderr


# ---------------------------------------------------------------------- the same as from a file


def in_a_file(kind: str, rows: int = 640) -> list[bytes]:
    """A log as people write it: the lines of a file."""
    rng, start = np.random.default_rng(1), datetime(2007, 2, 1)
    power, level = 230 + rng.normal(size=rows), np.sin(np.arange(rows) / 9) + 0.1 * rng.normal(size=rows)
    mode, heater = rng.choice(["heat", "cool", "off"], rows), rng.random(rows) < 0.5
    made = []
    for i in range(rows):
        when = start + timedelta(minutes=i if i < 550 else i + 60)
        cells: list[Any] = [f"{power[i]:.3f}", f"{level[i]:.4f}", str(mode[i]), "true" if heater[i] else "FALSE"]
        if i % 41 == 7:
            cells[i % 2] = ["N/A", "--", "?", "Error"][i % 4]
        if i % 53 == 9:
            cells[2] = "NA"
        if kind == "iso":
            made.append(",".join([f"{when:%Y-%m-%d %H:%M:%S}", *cells]))
        elif kind == "decimal comma":
            comma = [cell.replace(".", ",") for cell in cells]
            made.append(";".join([f"{when:%d/%m/%Y}", f"{when:%H:%M}", *(f'"{cell}"' for cell in comma)]))
        else:
            row = {
                "time": f"{when:%d.%m.%Y %H:%M:%S}",
                **dict(zip(("power", "level", "mode", "heater"), cells, strict=True)),
            }
            row["level"] = float(cells[1]) if cells[1][-1].isdigit() else cells[1]
            row["heater"] = bool(heater[i])
            made.append(json.dumps(row))
    header = {"iso": ["time,power,level,mode,heater"], "decimal comma": ['\ufeffDate;Time;power;"level";mode;heater']}
    return [f"{line}\n".encode() for line in header.get(kind, []) + made]


def predictions(lines: list[dict[str, Any]], kind: str = "predictions") -> tuple[list[str], Any]:
    names = [f"{signal_}@{h}" for signal_, at in lines[0][kind].items() for h in at]
    return names, np.array([[value for at in line[kind].values() for value in at.values()] for line in lines])


@pytest.mark.parametrize("kind", ["iso", "decimal comma", "json"])
def test_a_pipe_gives_the_predictions_of_the_file(kind: str, tmp_path: Path) -> None:
    """Warmed up on as many rows, the two differ by how rows are cut into blocks: by rounding.

    And a model learned from the file goes on with a pipe in the same notation.
    """
    lines_ = in_a_file(kind)
    path, header = tmp_path / "log.txt", 0 if kind == "json" else 1
    path.write_bytes(b"".join(lines_))
    learned(path, tmp_path / "out")
    expected = pq.read_table(tmp_path / "out" / "predictions.parquet")
    code, out, stderr = fed(b"".join(lines_), *FLAGS[:2], "--model", str(tmp_path / "live"), "--warm-up", "500")
    assert code == 0, stderr
    assert [one["step"] for one in out] == list(range(2, 640))
    out = out[498:]
    names, made = predictions(out)
    np.testing.assert_allclose(made, np.column_stack([expected[name] for name in names])[500:], rtol=1e-7, atol=1e-9)
    for end in ("low", "high"):
        named, found = predictions(out, end)
        assert named == names
        wanted = np.column_stack([expected[f"{name}.{end}"] for name in names])[500:]
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)
    errors = b"".join(lines_).count(b"Error")
    assert f"line {8 + header}: 'level' is not a number: 'Error'; counted as missing." in stderr
    assert f"'level' is not a number: {errors} times, each counted as missing." in stderr
    # Both models know how the log was written, and had the same times.
    models = [Horde.load_with(tmp_path / name)[1] for name in ("out/model.safetensors", "live")]
    assert models[0]["notation"] == models[1]["notation"]
    assert models[0]["clock"] == models[1]["clock"]
    assert models[0]["clock"]["gaps"] == 1
    assert models[0]["clock"]["missing"] == 0
    # From the file to the pipe: the first 600 rows in a file, the others on a pipe.
    cut = 600 + header
    path.write_bytes(b"".join(lines_[:cut]))
    learned(path, tmp_path / "cut")
    code, later, stderr = fed(
        b"".join(lines_[:header] + lines_[cut:]), "--model", str(tmp_path / "cut/model.safetensors")
    )
    assert code == 0, stderr
    assert [one["step"] for one in later] == list(range(600, 640))
    np.testing.assert_allclose(predictions(later)[1], made[100:], rtol=1e-9, atol=1e-9)
    for end in ("low", "high"):
        np.testing.assert_allclose(predictions(later, end)[1], predictions(out[100:], end)[1], rtol=1e-6, atol=1e-6)
    assert [one["time"] for one in later] == [one["time"] for one in out[100:]]


def test_a_time_that_cannot_be_read_is_reported(tmp_path: Path, whole: tuple[list[bytes], Path]) -> None:
    model = tmp_path / "m"
    model.write_bytes(whole[1].read_bytes())
    text = b"".join(
        json.dumps({"S1": 0.0, "S2": 1.0} | time).encode() + b"\n"
        for time in (
            {"time": 1.7e9 + ROWS},
            {"time": "soon"},
            {"time": "later"},
            {},
            {"time": None},
            {"time": math.nan},
        )
    )
    code, out, stderr = fed(text, "--model", str(model))
    assert code == 0
    assert [one["time"] for one in out] == [1.7e9 + ROWS, None, None, None, None, None]
    assert "line 2: the time 'time' cannot be read: 'soon'; counted as missing." in stderr
    assert "line 3" not in stderr
    assert "line 4: the time 'time' is absent" in stderr
    assert "the time 'time' cannot be read: 2 times, each counted as missing." in stderr
