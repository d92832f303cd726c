"""``emphatic nexting``: its files, its scores told anew, killed and resumed, bad files, settings, memory, accuracy."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
import safetensors
from numpy.typing import NDArray

import emphatic
from emphatic import features as f
from emphatic.features import Features
from emphatic.hordes.horde import BLOCK
from emphatic.nexting.answers.language import quoted
from emphatic.nexting.runs import learning, scoring, settings
from emphatic.nexting.runs import runner as nexting
from emphatic.nexting.scores import known_return
from emphatic.nexting.tables import open_table
from emphatic.nexting.tables.text import Delimited
from tests.support import command
from tests.support.processes import COMMAND, Forked, run
from tests.support.tables import assert_same_table

T = 4 * BLOCK + 1234
START = np.datetime64("2024-03-01T00:00:00", "us")
FILES = ["model.safetensors", "predictions.parquet", "report.html", "summary.json"]
Call = Callable[..., tuple[int, str, str]]


def readings(rows: int = T) -> dict[str, Any]:
    """Minutes with two gaps of a day; a wave with holes, a walk, a mode, an identifier and a constant."""
    rng = np.random.default_rng(5)
    t = np.arange(rows)
    when = START + (t + 1440 * (t >= 6000) + 1440 * (t >= 2 * BLOCK)) * np.timedelta64(60, "s")
    wave = 20.0 + np.sin(t / 30) + 0.1 * rng.normal(size=rows)
    wave[(t > 2000) & (t < 2040) | (rng.random(rows) < 0.001)] = np.nan
    return {
        "time": when,
        "wave (°C)": wave,
        "walk": np.cumsum(rng.normal(size=rows)) * 0.1,
        "mode": np.where(np.sin(t / 500) > 0, "heat", "off"),
        "id": [f"r{i}" for i in t],
        "level": np.full(rows, 3.0),
    }


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("log") / "plant.parquet"
    pq.write_table(pa.table(readings()), path)
    return path


@pytest.fixture(scope="module")
def small(log: Path) -> Path:
    """The first rows, as CSV."""
    path = log.with_name("plant.csv")
    made = readings(1500)
    rows = zip(*(column.tolist() if hasattr(column, "tolist") else column for column in made.values()), strict=True)
    path.write_text("\n".join([",".join(made), *(",".join(map(str, row)) for row in rows)]).replace("nan", ""), "utf-8")
    return path


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The command in this process, in an empty folder: exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)

    def called(*given: object) -> tuple[int, str, str]:
        code, said, wrong = command.nexting(capsys, *given)
        return code, said, without_progress(wrong)

    return called


def without_progress(lines: str) -> str:
    return re.sub(r"(?m)^emphatic: .*\n", "", lines)


def process(*given: object, code: str = COMMAND) -> tuple[int, str, str]:
    """The same in a process of its own."""
    done = run(code, *given)
    return done.returncode, done.stdout.decode(), without_progress(done.stderr.decode())


def loaded(out: Path) -> tuple[Any, list[dict[str, Any]]]:
    return pq.read_table(out / "predictions.parquet"), json.loads((out / "summary.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def finished(log: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The output folder of one run that nothing disturbed, and what it said."""
    out: Path = tmp_path_factory.mktemp("finished") / "new [bold]" / "out"
    code, said, wrong = process("nexting", log, "--horizons", "2,1h", "--predict", SIGNALS, "--out", out)
    assert (code, wrong) == (0, "")
    return out, said


#: All columns of numbers: the last of them never changes, and is predicted because it is named.
SIGNALS = "wave (°C),walk,level"


#: What the columns of a question end with.
KINDS = ("", ".low", ".high", ".usual")


def questions(signals: Sequence[str], horizons: Sequence[object]) -> list[str]:
    """What is asked by default, in its order."""
    forms = ("{} at +{}", "mean of {} over {}")
    return [form.format(quoted(signal), h) for signal in signals for h in horizons for form in forms]


def columns(signals: Sequence[str], horizons: Sequence[object], own: Sequence[str] = ()) -> list[str]:
    """Columns of predictions after the time: those of all questions, of own questions, and of the signals' alarms."""
    asked = [text + kind for text in questions(signals, horizons) for kind in KINDS]
    ends = [name + kind for name in own for kind in KINDS[1:]]
    return [*asked, *own, *ends, *(f"{signal}.{kind}" for signal in signals for kind in ("anomaly", "alarm", "why"))]


# ---------------------------------------------------------------------- what is written


def test_four_files_a_short_table_and_where_the_report_is(finished: tuple[Path, str]) -> None:
    out, said = finished
    assert sorted(path.name for path in out.iterdir()) == FILES
    assert str(out / "report.html") in said.replace("\n", "")
    assert len(said.splitlines()) <= 20
    assert "report.html lists them." in said
    assert "Time: 'time' (ISO 8601); typical step 1 min; 2 gaps." in said
    assert (
        "Columns left out: 'id' (text column with fewer than 2 or more than 50 distinct values in the first rows)."
        in said
    )
    table, _ = loaded(out)
    assert table.column_names == ["row", "time", *columns(SIGNALS.split(","), (2, "1h"))]
    assert table.column("row").to_pylist() == list(range(T))
    np.testing.assert_array_equal(table.column("time").to_numpy(), readings()["time"])
    for name in table.column_names[2:]:
        kind = pa.dictionary(pa.int8(), pa.string()) if name.endswith(".why") else pa.float32()
        assert table.schema.field(name).type == (pa.bool_() if name.endswith(".alarm") else kind)
        if not name.endswith(".why"):
            cells = table.column(name).to_numpy()
            begins = 200 if name.endswith((".low", ".high")) else 0
            assert np.isfinite(cells[begins:]).all() or name.startswith("level at")  # (no interval, for it is constant)


def test_progress_is_shown_on_standard_error_where_it_is_a_terminal(log: Path, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    shown = bytearray()
    with Forked(COMMAND, "nexting", log, "--horizons", 2, "--out", tmp_path / "out", stderr=theirs) as child:
        os.close(theirs)
        with suppress(OSError):  # the end of a terminal, on Linux
            while some := os.read(ours, 4096):
                shown += some
        assert child.stdout is not None
        said = child.stdout.read()
        assert child.wait() == 0
    os.close(ours)
    assert b"learning" in shown
    assert b"rows/s" in shown
    assert b"learning" not in said
    assert b"report.html" in said


def test_summary_has_the_signals_and_then_an_object_a_question(finished: tuple[Path, str]) -> None:
    _, (first, *scores) = loaded(finished[0])
    assert list(first) == ["reading", "signals"]
    assert [(row["signal"], row["verdict"]) for row in first["signals"]] == [
        ("wave (°C)", "better"), ("walk", "no better"), ("level", "too short")
    ]  # fmt: skip
    assert [score["text"] for score in scores] == questions(SIGNALS.split(","), (2, "1h"))
    expected = product(SIGNALS.split(","), (2, "1h"), ("at", "mean"))
    assert [(score["signal"], score["horizon"], score["kind"]) for score in scores] == list(expected)
    for score in scores:
        assert score["default"]
        assert type(score["rmse"]) is type(score["mae"]) is float
        for part in (score, *score["baselines"].values()):
            assert (part["variance_explained"] is None) == (score["signal"] == "level")
        if score["signal"] != "level":
            assert score["variance_explained"] > 0.9
            assert 0.78 < score["coverage"] < 0.82


def test_the_model_opens_and_goes_on(finished: tuple[Path, str]) -> None:
    path = finished[0] / "model.safetensors"
    model = emphatic.nexting.load_model(path)
    assert model.step == model.forecaster.horde.rows == T
    said = model.observe({"walk": 1.0, "time": "2024-04-01 00:00:00"})
    assert list(said) == columns(SIGNALS.split(","), (2, "1h"))
    with safetensors.safe_open(path, "numpy") as file:
        assert {"sparse.H", "horde.more.asked.0.answers.gram.0", "horde.more.alarms.tails"} <= set(file.keys())


def test_the_report_stands_alone_and_tells_of_the_data(finished: tuple[Path, str]) -> None:
    page = (finished[0] / "report.html").read_text("utf-8")
    assert "default-src 'none'" in page
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", re.sub(r"(?s)<script.*?</script>", "", page))
    assert not re.search(r"<script[^>]*\bsrc=", page)
    for said in (
        "plant.parquet",
        "wave (°C)",
        "2024-03-05 03:59:00",
        "2024-03-06 04:00:00",
        "more than 50 distinct values",
    ):
        assert said in page, said
    gone = int(np.isnan(readings()["wave (°C)"]).sum())
    quality = page[page.index("Data quality") :]
    assert re.search(rf">{gone}<", quality)
    assert re.search(r"gaps</dt><dd>2</dd>", quality)
    assert re.search(r"constant</dt><dd>level</dd>", quality)


def test_a_signal_far_from_zero_is_written_in_float64() -> None:
    """Steps of float32 are 4e-6 at 50, and 0.06 at 1e6."""
    x = np.sin(np.arange(600) / 9)
    logs = {"x": x, "grid": 50.0 + 1e-2 * x, "far": 1e6 + x}
    result = emphatic.nexting.run(logs, horizons=[5])
    types = {name: str(result.predictions.schema.field(name).type) for name in result.predictions.column_names}
    assert {types[name] for name in ("x at +5", "x at +5.low", "mean of x over 5.usual", "x.anomaly")} == {"float"}
    assert {types[name] for name in ("grid at +5", "grid at +5.low", "mean of far over 5.high")} == {"double"}
    assert np.ptp(result.predictions["far at +5"].to_numpy()[300:]) < 4.0


def test_ends_in_float32_leave_out_no_label_of_an_interval_without_width(tmp_path: Path) -> None:
    """They are rounded outward: the value of a signal that stands still lies in its interval, whatever its digits."""
    level = 0.1
    assert float(np.float32(level)) != level
    log = {"x": np.full(300, level), "y": np.sin(np.arange(300))}
    result = emphatic.nexting.run(log, predict=["x", "y"], horizons=[2, 5])
    for text in ("mean of x over 2", "mean of x over 5"):
        low, high = (result.predictions.column(f"{text}.{end}").to_numpy() for end in ("low", "high"))
        known = np.isfinite(low)
        assert known[100:].all()
        assert (low.dtype, high.dtype) == (np.float32, np.float32)
        assert np.all((low[known].astype(float) <= level) & (level <= high[known].astype(float))), text
        assert np.all(high[known] - low[known] <= 2 * np.spacing(np.float32(level)))
    values = np.array([level, -level, 1e-50, 3.0, np.nan, 1e300, -1e300, np.inf])
    for name, outward in (("x.low", np.less_equal), ("x.high", np.greater_equal)):
        with scoring._PredictionsFile(tmp_path / name, ()) as file:
            file.write(pa.table({"x": values, name: values}))
        written = pq.read_table(tmp_path / name)
        assert np.all(outward(written[name].to_numpy().astype(np.float64), values) | np.isnan(values))
        np.testing.assert_array_equal(written["x"].to_numpy()[:4], values[:4].astype(np.float32))


def test_scores_are_those_of_the_definition(finished: tuple[Path, str]) -> None:
    table, (_, *scores) = loaded(finished[0])
    made = readings()
    minutes = ((made["time"] - made["time"][0]) // np.timedelta64(60, "s")).astype(int)
    for score in scores:
        if score["kind"] != "at":
            continue
        x, text = made[score["signal"]], score["text"]
        by_minute = np.full(minutes[-1] + 61, np.nan)
        by_minute[minutes] = x
        y = by_minute[minutes + (2 if score["horizon"] == 2 else 60)]
        known = np.isfinite(y) & (np.arange(T) >= 20)
        use = known & (np.arange(T) >= T // 2)
        assert (score["known"], score["scored"]) == (known.sum(), use.sum())
        held = x[np.maximum.accumulate(np.where(np.isfinite(x), np.arange(T), 0))]
        said, low, high = (table.column(f"{text}{kind}").to_numpy()[use].astype(float) for kind in KINDS[:3])
        for part, guess in ((score, said), (score["baselines"]["persistence"], held[use])):
            error = guess - y[use]
            assert part["rmse"] == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-5, abs=1e-5)
            assert part["mae"] == pytest.approx(np.mean(np.abs(error)), rel=1e-5, abs=1e-5)
            if score["signal"] != "level":
                explained = 1.0 - np.mean(error**2) / y[use].var()
                assert part["variance_explained"] == pytest.approx(explained, rel=1e-5)
        if score["signal"] != "level":
            assert score["coverage"] == pytest.approx(np.mean((low <= y[use]) & (y[use] <= high)), abs=1e-3)


# ---------------------------------------------------------------------- stopped, and gone on with

KILLED = """
import os, signal, sys
from emphatic.nexting.runs import learning as nexting
from emphatic.nexting.cli import app
nexting.SAVE, nexting.WAITING = 0.0, 1
left = int(sys.argv.pop(1))

def hook(event, about):
    global left
    if event == "os.rename" and ".unfinished" in str(about[0]):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(hook)
app()
"""

SLOW = """
import time
from emphatic.nexting.runs import runner as nexting
from emphatic.nexting.cli import app
nexting.score_log = lambda *_: (print("now", flush=True), time.sleep(60))
app()
"""


def test_killed_again_and_again_it_comes_to_the_same(finished: tuple[Path, str], log: Path, tmp_path: Path) -> None:
    """Killed when a file is written but not yet in its place: predictions, a model, a result."""
    out = tmp_path / "out"
    model = out / ".unfinished" / "model.safetensors"
    stood = []
    for left in (4, 4, 4, 4, 4):
        told = process(
            left, "nexting", log, "--horizons", "2,1h", "--predict", SIGNALS, "--out", out, "--resume", code=KILLED
        )
        assert told == (-signal.SIGKILL, "", "")
        stood.append(emphatic.Horde.load_with(model)[0].rows)
    assert stood == [BLOCK, 2 * BLOCK, 3 * BLOCK, 4 * BLOCK, T]
    assert sorted(path.name for path in out.iterdir()) == [".unfinished", "predictions.parquet"]
    code, said, wrong = process("nexting", log, "--horizons", "2,1h", "--predict", SIGNALS, "--out", out, "--resume")
    assert (code, wrong) == (0, "")
    assert said.splitlines()[:-1] == finished[1].splitlines()[:-1]
    assert sorted(path.name for path in out.iterdir()) == FILES
    assert_same_table(loaded(out)[0], loaded(finished[0])[0])
    assert loaded(out)[1] == loaded(finished[0])[1]


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_asked_to_stop_it_says_how_to_go_on(small: Path, tmp_path: Path, number: signal.Signals, expected: int) -> None:
    with Forked(SLOW, "nexting", small, "--horizons", 2, "--out", tmp_path / "out") as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.readline() == b"now\n"
        child.send_signal(number)
        said, wrong = child.stdout.read(), without_progress(child.stderr.read().decode())
        going_on = f"Stopped. Continue with --resume --out {tmp_path / 'out'}.\n"
        assert (child.wait(), said, wrong) == (expected, b"", going_on)
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".unfinished"]


def stop(*_: Any) -> None:
    raise KeyboardInterrupt


def stopped_before_scores(small: Path, call: Call, monkeypatch: pytest.MonkeyPatch, out: Path | str) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(nexting, "score_log", stop)
        assert call(small, "--horizons", 2, "--out", out)[0] == 130


def test_resume_knows_its_table_and_settings(
    log: Path, small: Path, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    stopped_before_scores(small, call, monkeypatch, out)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    shifted = tmp_path / "shifted.csv"
    changed, times = re.subn(r"(?m)^(2024-03-01 10:00:00),.", r"\1,8", small.read_text("utf-8"))
    assert times == 1
    shifted.write_text(changed, "utf-8")
    for given in ([small, 3], [small, 2, "--time", ""], [log, 2], [shifted, 2]):
        code, said, wrong = call("--out", out, "--resume", given[0], "--horizons", *given[1:])
        assert (code, said) == (2, "")
        assert wrong.startswith("Error: ")
        assert "another table or other settings" in wrong
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    # What a killed run may have left: a part that the checkpoint does not know of, and files half written.
    part = out / ".unfinished" / "predictions-000000000000.parquet"
    part.with_name("predictions-000000001500.parquet").write_bytes(part.read_bytes())
    part.with_name(".0123456789abcdef.partial").write_bytes(b"half")
    assert call(small, "--horizons", 2, "--out", out, "--resume")[0] == 0
    assert sorted(path.name for path in out.iterdir()) == FILES
    assert loaded(out)[0].column("row").to_pylist() == list(range(1500))
    code, _, wrong = call(small, "--horizons", 2, "--out", out, "--resume")
    assert (code, wrong) == (2, f"Error: {out}: nothing to resume: the run there is finished.\n")
    assert call(small, "--horizons", 3, "--out", out, "--overwrite")[0] == 0


def test_without_a_checkpoint_resume_starts(small: Path, call: Call) -> None:
    """Killed before the first one, a run may have left a part, or half of one."""
    left = Path("out/.unfinished")
    left.mkdir(parents=True)
    for name in ("predictions-000000000000.parquet", "000000004096.partial", ".0123456789abcdef.partial"):
        (left / name).write_bytes(b"half")
    assert call(small, "--horizons", 2, "--out", "out", "--resume")[0] == 0
    assert sorted(path.name for path in Path("out").iterdir()) == FILES
    assert loaded(Path("out"))[0].num_rows == 1500


def test_an_interrupt_before_the_first_checkpoint_leaves_nothing(
    small: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "learn_log", stop)
    assert call(small, "--out", "a/b/out") == (130, "", "Stopped. Nothing was saved.\n")
    assert not Path("a").exists()


# ---------------------------------------------------------------------- what cannot be

NUMBERS = b"a,b,d\n" + b"".join(b"%d,%d,%d\n" % (i % 7, i % 5, i % 3) for i in range(99))
BAD = {
    "empty": (b"", "empty"),
    "short": (b"a,b\n1,2\n3,4\n", "2 rows are too few"),
    "newest": (b"time,x\n2024-01-03,1\n2024-01-02,2\n2024-01-01,3\n", "--time ''"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_files(kind: str, call: Call, tmp_path: Path) -> None:
    content, said = BAD[kind]
    path = tmp_path / f"{kind}.csv"
    path.write_bytes(content)
    refused(call(path, "--out", "out"), said)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["missing.csv"], "there is no such file"),
        (["good.csv", "--delimiter", "|"], "--delimiter"),
        (["good.csv", "--delimiter", "ab"], "delimiter"),
        (["good.csv", "--predict", "c"], "there is no numeric column 'c'"),
        (["good.csv", "--ask", "c?"], "Error: 'c?' is not a question"),
        (["good.csv", "--predict", ""], "must not be empty"),
        (["good.csv", "--predict", "a,a"], "twice"),
        (["good.csv", "--time", "c"], "there is no column 'c'"),
        (["good.csv", "--horizons", "2,2"], "twice"),
        (["good.csv", "--horizons", "0"], "must be between 1 and"),
        (["good.csv", "--horizons", "1e30"], "below 1e12 steps"),
        (["good.csv", "--horizons", "abc"], "a duration such as '2min'"),
        (["good.csv", "--horizons", "2min"], "the stream has no time"),
        (["good.csv", "--config", "missing.toml"], "No such file"),
        (["good.csv", "--config", "good.csv"], "not TOML"),
        (["good.csv", "--out", "good.csv"], "there is a file of this name"),
        (["good.csv", "--out", "good.csv/out"], "Not a directory"),
    ],
)  # fmt: skip
def test_bad_flags(given: list[str], said: str, call: Call, tmp_path: Path) -> None:
    (tmp_path / "good.csv").write_bytes(NUMBERS)
    refused(call("--out", "out", *given), said)


def test_a_text_column_cannot_be_predicted(call: Call, tmp_path: Path) -> None:
    (tmp_path / "words.csv").write_text("a,mode\n" + "1.5,run\n2,idle\n2.25,stop\n" * 20)
    refused(call(tmp_path / "words.csv", "--out", "out", "--predict", "mode"), "the column 'mode' is text")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("horizon = [2]", "there is no setting 'horizon'"),
        ("horizons = 2", "must be a list"),
        ("horizons = [true]", "Got True"),
        ("horizons = [2, 2.0]", "twice"),
        ("predict = [1]", "no numeric column 1"),
        ("time = true", "or false"),
        ("rate = 'fast'", "must be a number above 0"),
        ("rule = 'none'", "'rule'"),
        ("features = []", "'parts'"),
        ("features = [{kind = 'none'}]", "'kind'"),
        ("features = [{kind = 'soft_bins', of = 'c'}]", "'c' too"),
        ("features = [{kind = 'time_of_day'}]", "'time'"),
        ("questions = [{cumulant = 'a'}]", "one of 'gamma' and 'horizon'"),
        ("questions = [{cumulant = 'c', horizon = 2}]", "'c' in"),
        ("questions = [{cumulant = 'a', gamma = 1.0}]", "γ must be below 1"),
        ("questions = [{cumulant = 'a', horizon = 2, name = 'row'}]", "other than 'row'"),
        ("questions = [{cumulant = 'a', horizon = 2, name = 'a@2'}]\nhorizons = [2]", "'a@2' twice"),
        ("questions = [{cumulant = 'a', horizon = 2, policy = 1}]", "must be a Policy"),
        ("questions = [{cumulant = 'a', horizon = 2, policy = {target = {1 = 1.0}}, name = 'q'}]", "column = …"),
    ],
)
def test_bad_settings(text: str, said: str, call: Call, tmp_path: Path) -> None:
    (tmp_path / "good.csv").write_bytes(NUMBERS)
    (tmp_path / "bad.toml").write_text(text, "utf-8")
    refused(call("good.csv", "--config", "bad.toml", "--out", "out"), said)


def refused(told: tuple[int, str, str], said: str) -> None:
    """One clear line, code 2, and nothing written."""
    code, out, err = told
    assert (code, out) == (2, "")
    assert re.fullmatch(r"Error: .*\n", err), err
    assert said in err
    assert not Path("out").exists()


def test_a_full_disk(small: Path, tmp_path: Path) -> None:
    """A file may not grow beyond some size, as none can on a full disk."""
    out = tmp_path / "a" / "out"
    for most in (2_000, 100_000):
        limited = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({most}, {most}))\n{COMMAND}"
        code, said, wrong = process("nexting", small, "--horizons", 2, "--out", out, code=limited)
        assert (code, said, wrong) == (2, "", f"Error: {out}: File too large.\n")
        assert not out.parent.exists()


def test_an_error_leaves_what_was_there(
    small: Path, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(nexting, "score_log", stop)
    out = tmp_path / "out"
    out.mkdir()
    assert call(small, "--out", out) == (2, "", f"Error: {out}: No space left on device.\n")
    assert list(out.iterdir()) == []
    (out / "summary.json").write_text("before")
    assert call(small, "--out", out, "--overwrite")[0] == 2
    assert [(path.name, path.read_text()) for path in out.iterdir()] == [("summary.json", "before")]


# ---------------------------------------------------------------------- settings

QUESTIONS = """
horizons = [5]
predict = ["level"]

[[features]]
kind = "bias"
[[features]]
kind = "soft_bins"
of = { trace = ["walk", "wave (°C)"], steps = [4, 16] }
bins = 8

[[questions]]
cumulant = "walk - 2 * `wave (°C)`"
horizon = "30min"
name = "difference"
[[questions]]
cumulant = "walk"
horizon = 9
name = "if it heated"
policy = { column = "mode", target = { heat = 1.0 }, behaviour = "count" }
[[questions]]
cumulant = 1
gamma = "`wave (°C)` < 20.9"
name = "steps to warm"
"""


def test_printed_settings_give_the_same_run(small: Path, call: Call, tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text(QUESTIONS, "utf-8")
    code, printed, wrong = call(small, "--config", "one.toml", "--predict", "walk,wave (°C)", "--print-config")
    assert (code, wrong) == (0, "")
    told = tomllib.loads(printed)
    assert (told["predict"], told["horizons"], told["time"]) == (["walk", "wave (°C)"], [5], "time")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.toml"]
    (tmp_path / "two.toml").write_text(printed, "utf-8")
    assert call(small, "--config", "one.toml", "--predict", "walk,wave (°C)", "--out", "one")[0] == 0
    assert call(small, "--config", "two.toml", "--out", "two")[0] == 0
    one, two = loaded(Path("one")), loaded(Path("two"))
    assert_same_table(one[0], two[0])
    assert one[1] == two[1]
    own, signals = ["difference", "if it heated", "steps to warm"], ["walk", "wave (°C)"]
    assert one[0].column_names == ["row", "time", *columns(signals, [5], own)]
    assert [score["text"] for score in one[1][1:]] == [*questions(signals, [5]), *own]


def test_printed_defaults_are_the_defaults(small: Path, call: Call, tmp_path: Path) -> None:
    code, printed, _ = call(small, "--print-config")
    assert code == 0
    (tmp_path / "all.toml").write_text(printed, "utf-8")
    assert call(small, "--config", "all.toml", "--print-config") == (0, printed, "")
    assert tomllib.loads(printed)["horizons"] == ["2min", "5min", "10min", "15min"]


def test_columns_of_any_name(call: Call, tmp_path: Path) -> None:
    names = ["a b", 'q"x', "é°", "100%", "a@b", "a/b", "[red]x[/red]", "<b>&</b>", "a,b", "row", "1"]
    rng = np.random.default_rng(1)
    pq.write_table(pa.table({name: rng.normal(size=300).cumsum() for name in names}), tmp_path / "odd.parquet")
    assert call("odd.parquet", "--horizons", 2, "--predict", '"a,b", q"x,a@b')[0] == 0
    out = Path("nexting/odd")
    assert loaded(out)[0].column_names == ["row", *columns(["a,b", 'q"x', "a@b"], [2])]
    assert call("odd.parquet", "--horizons", 2, "--overwrite")[0] == 0
    assert loaded(out)[0].column_names == ["row", *columns(names, [2])]
    page = (out / "report.html").read_text("utf-8")
    assert "<b>&</b>" not in page
    assert "[red]x[/red]" in page


@pytest.mark.parametrize(
    "x",
    [
        np.full(99, 3.0),
        np.full(99, np.nan),
        np.where(np.arange(99) < 60, np.nan, 1.0),
        np.sin(np.arange(99)) * 1e307,
        np.sin(np.arange(99)) * 1e-300,
        1e9 + np.sin(np.arange(99)) * 1e-3,
        np.arange(99),
        np.arange(99) % 2 == 0,
        np.arange(25.0),
        np.where(np.arange(99) % 9, np.sin(np.arange(99)), np.inf),
    ],
    ids=["constant", "missing", "late", "huge", "tiny", "far", "counter", "truth", "short", "infinite"],
)  # fmt: skip
def test_odd_readings_are_no_error(x: NDArray[Any], call: Call, tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": x, "y": np.cos(np.arange(len(x)))}), tmp_path / "odd.parquet")
    Path("as-they-are.toml").write_text("increments = false")
    given = ["--horizons", "1,2,5", "--predict", "x,y", "--config", "as-they-are.toml", "--out", "out"]
    code, _, wrong = call("odd.parquet", *given)
    assert (code, wrong) == (0, "")
    table, summary = loaded(Path("out"))
    assert (table.num_rows, len(summary)) == (len(x), 1 + 2 * 3 * 2)
    usable = np.isfinite(x) & (np.abs(x) < 1e100)
    first = int(np.argmax(usable)) if usable.any() else len(x)
    for text in questions("xy", (1, 2, 5)):
        answer, low, high, usual = (table.column(text + kind).to_numpy() for kind in KINDS)
        begins = first if "x" in text.split() else 0
        assert np.isnan([answer[:begins], usual[:begins]]).all(), text
        assert np.isfinite([answer[begins:], usual[begins:]]).all(), text
        ends = np.isfinite(low)
        assert (low[ends] <= high[ends]).all(), text
        assert not np.isinf(high).any(), text


def test_time_is_left_aside_where_asked(small: Path, call: Call) -> None:
    assert call(small, "--horizons", 2, "--time", "", "--predict", "walk", "--out", "out")[0] == 0
    assert loaded(Path("out"))[0].column_names == ["row", *columns(["walk"], [2])]


def test_a_tab_can_be_written(call: Call, tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_bytes(NUMBERS.replace(b",", b"\t"))
    assert call("t.tsv", "--delimiter", r"\t", "--horizons", 2, "--out", "out")[0] == 0


# ---------------------------------------------------------------------- by default


@pytest.mark.parametrize("rows", [3, 900, 5456, 10**6])
@pytest.mark.parametrize("step", [None, 1e-5, 0.004, 0.11, 1.0, 59.7, 3600.0, 86400.0, 2.6e6])
def test_default_horizons_are_four_from_two_steps_on(rows: int, step: float | None) -> None:
    horizons = settings.default_horizons(rows, step)
    gammas = [emphatic.GVF("x", horizon=h).constant_gamma(step) or 0.0 for h in horizons]
    steps = [1 / (1 - gamma) for gamma in gammas]
    assert len(set(steps)) == 4
    assert steps == sorted(steps)
    assert 1.4 < steps[0] < 3
    assert 0.6 < steps[-1] / max(8, rows / 100) < 1.7


def test_default_features_are_of_what_varies() -> None:
    many = {f"w{k}": np.arange(600) % k for k in (1, 2, 50, 51)}
    words = {name: [f"word {i}" for i in column] for name, column in many.items()}
    late = [None] * 550 + ["x", "y"] * 25
    table = open_table({"x": np.arange(600.0), "still": np.ones(600), **words, "late": late})
    parts = [Features.from_config([part]).parts[0] for part in settings.default_features(table, 10.0)]
    assert [part.of for part in parts if isinstance(part, f.OneHot)] == ["w2", "w50"]
    assert [part.of for part in parts if isinstance(part, f.SoftBins)] == [("x",), f.Trace(("x",), steps=(4, 16))]
    assert not any(isinstance(part, f.TimeOfDay) for part in parts)


def test_the_warm_up_depends_on_the_horizons_and_not_on_the_length_of_the_log() -> None:
    for horizon, expected in ((2, 500), (200, 800), (10**6, 10_000)):
        chosen = settings.Settings(horizons=(horizon,))
        assert chosen.warm_up_rows(None) == expected
        for rows in (100, 700, 20_000):
            table = open_table({"x": np.arange(float(rows))})
            assert chosen.rows_to_warm_up(table, rows) == min(rows, expected)
    assert settings.Settings(horizons=("1h",)).warm_up_rows(10.0) == 4 * 360
    assert settings.Settings(horizons=(2,), questions=({"cumulant": "x", "gamma": 0.999},)).warm_up_rows(None) == 4000


# ---------------------------------------------------------------------- how much, how well


@pytest.mark.long
def test_the_household_without_tuning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    began = time.perf_counter()
    log = emphatic.nexting.data.household()
    horizons = {2: 0.932, 60: 0.667, 360: 0.444, 1440: 0.35}
    run = emphatic.nexting.run(log, horizons=[*horizons], weighted=True, out=tmp_path / "out")
    for score in run.summary[1:]:
        assert score["variance_explained"] >= score["baselines"]["persistence"]["variance_explained"] - 0.02, score
    block = next(open_table(log).blocks(run.rows))
    second = np.arange(run.rows) >= run.rows // 2
    for horizon, least in horizons.items():
        explained = []
        for name, x in zip(run.settings.predict or (), block.values.T, strict=True):
            p = run.predictions.column(f"{name}@{horizon}").to_numpy()
            G, known = known_return(x, np.isnan(x), np.zeros(run.rows, bool), 1.0 - 1.0 / horizon)
            error, y = (p - G)[known & second], G[known & second]
            explained.append(1.0 - np.mean(error**2) / y.var())
        assert len(explained) == 7
        assert statistics.median(explained) >= least, horizon
    with capsys.disabled():
        print(f" household: learned in {run.seconds['learning']:.1f} s of {time.perf_counter() - began:.1f} s ", end="")


# ---------------------------------------------------------------------- passes over the table, and memory


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "jsonl", "parquet"])
def test_a_table_is_read_to_its_end_once_and_text_once_more_to_count_its_rows(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is found from the first rows opens the table again, and reads no further than these."""
    rows = 12_000
    made = pa.table({"x": np.sin(np.arange(rows) / 7), "word": ["on", "off", "on"] * (rows // 3)})
    path = tmp_path / f"table.{kind}"
    if kind == "jsonl":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in made.to_pylist()))
    elif kind == "parquet":
        pq.write_table(made, path)
    else:
        with pa.output_stream(path) as stream:
            pacsv.write_csv(made, stream)
    phi: list[int] = []
    make = Features.activate

    def counted(self: Features, columns: Any) -> Any:
        made = make(self, columns)
        phi.append(len(made.indices))
        return made

    ended: list[int] = []
    source = type(cast(Any, open_table(str(path)))._source)
    batches = source.batches

    def followed(self: Any, names: tuple[str, ...], start: int) -> Iterator[Any]:
        yield from batches(self, names, start)
        ended.append(start)

    monkeypatch.setattr(Features, "activate", counted)
    monkeypatch.setattr(source, "batches", followed)
    result = emphatic.nexting.run(path, horizons=[2, 20])
    assert ended == [0] * (1 if kind == "parquet" else 2)
    assert result.rows == rows
    # To warm up, and to learn from.
    assert sum(phi) == 500 + rows


def test_what_is_still_open_is_closed(monkeypatch: pytest.MonkeyPatch, small: Path, tmp_path: Path) -> None:
    """A reader that reads ahead must not be alive when the program ends, however it ends."""
    open_: list[int] = []
    batches = Delimited.batches

    def counted(self: Delimited, names: tuple[str, ...], start: int) -> Iterator[Any]:
        open_.append(1)
        try:
            yield from batches(self, names, start)
        finally:
            open_.pop()

    monkeypatch.setattr(Delimited, "batches", counted)
    with pytest.raises(OSError, match="No such file"):
        emphatic.nexting.run(small, horizons=2, out="/proc/x")
    assert open_ == []
    with pytest.raises(ValueError, match="no numeric column 'nothing'"):
        emphatic.nexting.run(small, predict="nothing", out=tmp_path / "out")
    assert open_ == []


MEMORY = """
import resource, sys
from emphatic.nexting.cli import app
try:
    app()
finally:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


@pytest.mark.long
def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    """Of the whole command: learning, scoring and the page."""
    (tmp_path / "few.toml").write_text(
        "rate = 0.3\nhorizons = [2, 3, 5, 7, 11, 13]\n"
        "features = [{kind = 'bias'}, {kind = 'soft_bins', of = '*', bins = 3}]\n"
    )
    peaks = []
    for rows in (100_000, 800_000):  # from about 100,000 rows on, what waits to be written has its full size
        path = tmp_path / f"{rows}.parquet"
        t = np.arange(rows)
        made = {f"x{i}": np.sin(t / (9 + i)) for i in range(4)} | {"time": START + t * np.timedelta64(1, "s")}
        pq.write_table(pa.table(made), path, row_group_size=20_000)
        given = ["nexting", path, "--config", tmp_path / "few.toml", "--out", tmp_path / f"out{rows}"]
        # A process started afresh: a forked one begins with memory of the other.
        command = [sys.executable, "-c", MEMORY, *map(str, given)]
        done = subprocess.run(command, capture_output=True, check=True, text=True)
        peaks.append(int(done.stdout.splitlines()[-1]))
    # The predictions alone of 700,000 rows more take 134 MB; the peak of one and the same run varies by 20 to 30.
    assert peaks[1] - peaks[0] < 134 / 2, peaks


# ---------------------------------------------------------------------- from Python


def test_from_python_and_by_the_command_it_is_the_same(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, rows = tmp_path / "plant.parquet", BLOCK + 300
    pq.write_table(pa.table(readings(rows)), log)
    assert call(log, "--horizons", "2,1h", "--predict", SIGNALS, "--out", "out")[0] == 0
    table, summary = loaded(Path("out"))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    told: list[tuple[str, int, int]] = []
    for data in (str(log), log, pq.read_table(log), pq.read_table(log).to_pandas(), pl.read_parquet(log)):
        result = emphatic.nexting.run(
            data, horizons=[2, "1h"], predict=SIGNALS.split(","), progress=lambda *given: told.append(given)
        )
        assert_same_table(result.predictions, table)
        assert result.summary == summary
        assert result.out is None
    assert {phase for phase, _, _ in told} == {"learning", "scoring"}
    assert all(0 < done <= total for _, done, total in told)
    assert not list(temporary.iterdir())
    assert result.model.step == result.rows == rows
    assert list(result.model.observe({"walk": 1.0, "time": "2024-04-01"})) == table.column_names[2:]
    assert [*(result.settings.horizons or ())] == [2, "1h"]
    assert "wave (°C)" in result.report(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text("utf-8") == result.report()


def test_from_python_settings_come_as_a_mapping_or_a_file(tmp_path: Path) -> None:
    x = np.cumsum(np.random.default_rng(0).normal(size=(400, 2)), axis=0)
    config = {"horizons": [3], "rate": 0.3, "features": [{"kind": "bias"}, {"kind": "soft_bins", "of": "*"}]}
    first = emphatic.nexting.run(x, config=config, horizons=[2])
    assert first.predictions.column_names == ["row", *columns(["column_1", "column_2"], [2])]
    assert set(first.model.forecaster.horde.groups[0].setup.rates) == {0.3}
    (tmp_path / "all.toml").write_text(first.settings.toml(), "utf-8")
    assert_same_table(emphatic.nexting.run(x, config=tmp_path / "all.toml").predictions, first.predictions)
    assert emphatic.nexting.run(x, config=first.settings).summary == first.summary


# ---------------------------------------------------------------------- what is logged


def test_the_log_goes_to_standard_error_from_the_level_on(tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_bytes(NUMBERS + b"1,2,3,4\n1,2,3,5\n" + NUMBERS.partition(b"\n")[2])
    given = ["nexting", path, "--horizons", 2, "--out", tmp_path / "out", "--overwrite"]
    code, _, wrong = process(*given)
    assert code == 0
    assert re.fullmatch(
        r"\S+ \S+ WARNING emphatic\.nexting\.runs\.runner: .*bad\.csv: rows dropped: 2, the first at line 101: .*\n",
        wrong,
    )
    assert process("--log-level", "error", *given)[2] == ""
    _, _, wrong = process("--log-level", "INFO", *given)
    assert "INFO emphatic.nexting.runs.runner: learned from 198 rows" in wrong
    assert process("--log-level", "loud", *given)[0] == 2
