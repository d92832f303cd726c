"""Nexting on a pipe, with real processes and real pipes: killed, stopped, held back, left alone, and fed nonsense.

Most processes are forked (``tests.support.processes``); the first one, and the one whose output is closed, are started.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emphatic.hordes.horde import Horde
from emphatic.nexting.runs.predictor import Every
from emphatic.nexting.tables.pipe import LONGEST, line_blocks
from tests.support.processes import COMMAND, Forked, run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pipes and signals of POSIX")

START = [sys.executable, "-m", "emphatic.nexting.cli", "nexting", "-"]
FLAGS = ["--horizons", "2,9", "--warm-up", "60"]
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
    learned, expected_learned = (Horde.load_with(path)[0].learner.theta for path in (model, whole[1]))
    assert learned.tobytes() == expected_learned.tobytes()


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
        "import logging, pathlib; from emphatic.nexting.live import Live, Settings;"
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
