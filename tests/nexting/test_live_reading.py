"""A pipe of readings as people have them: read in the notation of the model's log, or refused as a file is."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emphatic
from emphatic.hordes.horde import Horde
from emphatic.nexting.cli.terminal import FAILURES, report_error
from emphatic.nexting.live import Live
from emphatic.nexting.runs.predictor import PersistenceWarmUp as FirstGuesses
from emphatic.nexting.runs.predictor import Prediction, Predictor
from emphatic.nexting.runs.settings import Settings
from emphatic.nexting.tables import TableError, fields
from emphatic.nexting.tables.pipe import Reading, Readings, TextForm

START = datetime(2024, 3, 1, tzinfo=UTC)
FEW: dict[str, Any] = {
    "horizons": (2,), "rate": 0.3, "features": ({"kind": "bias"}, {"kind": "soft_bins", "of": "*", "bins": 3}),
}  # fmt: skip
SETTINGS = Settings(**FEW)


def predict(predictor: Predictor, text: Sequence[bytes | None]) -> list[Prediction]:
    readings = Readings(text, predictor.columns, predictor.delimiter, header=predictor.header)
    numbered = list(readings)
    return [one for one in predictor.take(numbered, readings.form) if isinstance(one, Prediction)]


def piped(text: bytes, model: Path, capsys: pytest.CaptureFixture[str], **more: Any) -> tuple[int, list[Any], str]:
    """The command on a pipe, in this process: exit code, lines out, standard error."""
    (inward, feed), (drain, out) = os.pipe(), os.pipe()
    got: list[bytes] = []

    def write() -> None:
        view = memoryview(text)
        with suppress(OSError):
            while view:
                view = view[os.write(feed, view[:65536]) :]
        os.close(feed)

    def read() -> None:
        while some := os.read(drain, 65536):
            got.append(some)

    threads = [threading.Thread(target=target, daemon=True) for target in (write, read)]
    for thread in threads:
        thread.start()
    capsys.readouterr()
    try:
        Live(model, more.pop("settings", SETTINGS), source=inward, sink=out, **more).run()
        code = 0
    except FAILURES as error:
        code = report_error(error)
    os.close(inward)
    os.close(out)
    for thread in threads:
        thread.join(10)
    os.close(drain)
    return code, [json.loads(line) for line in b"".join(got).splitlines()], capsys.readouterr().err


def european(rows: int, start: int = 0) -> list[str]:
    when = [START + timedelta(minutes=i) for i in range(start, start + rows)]
    power = 1100 + 300 * np.sin(np.arange(start, start + rows) / 9)
    texts = [f"{p:,.1f}".translate(str.maketrans(",.", ".,")) for p in power]
    return [
        f"{t:%d.%m.%Y};{t:%H:%M:%S};{p};{'EIN' if i % 2 else 'AUS'}"
        for i, (t, p) in enumerate(zip(when, texts, strict=True))
    ]


@pytest.fixture
def european_model(tmp_path: Path) -> Path:
    (tmp_path / "log.csv").write_text("\n".join(["Datum;Zeit;Leistung;Pumpe", *european(400)]) + "\n")
    emphatic.nexting.run(tmp_path / "log.csv", config=FEW, out=tmp_path / "out")
    return tmp_path / "out" / "model.safetensors"


@pytest.mark.parametrize("header", [True, False], ids=["with a header", "from the middle of the log"])
def test_a_pipe_is_read_in_the_notation_of_the_models_own_log(
    header: bool, european_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = emphatic.nexting.load_model(european_model)
    lines = ["Datum;Zeit;Leistung;Pumpe"] * header + european(40, 400)
    code, out, err = piped("\n".join(lines).encode() + b"\n", european_model, capsys)
    assert code == 0, err
    assert [one["step"] for one in out] == list(range(400, 440))
    assert out[0]["time"] == "01.03.2024 06:40:00"
    assert "skipped" not in err
    assert "missing" not in err
    fields = [line.split(";") for line in european(40, 400)]
    assert max(len(power) for _, _, power, _ in fields) == len("1.234,5")
    rows = [dict(zip(("Datum", "Zeit", "Leistung", "Pumpe"), row, strict=True)) for row in fields]
    expected = [before.observe(row)["Leistung at +2"] for row in rows]
    assert [one["predictions"]["Leistung"]["2"] for one in out] == expected
    assert max(expected) > 1300
    notation = Horde.load_with(european_model)[1]["notation"]
    assert notation["header"] == ["Datum", "Zeit", "Leistung", "Pumpe"]
    assert (notation["delimiter"], notation["style"]["comma"], notation["style"]["thousands"]) == (";", True, ".")


def test_settings_that_the_model_overrides_are_reported(
    european_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = european(1, 400)[0].encode()
    given = Settings.combine(FEW, horizons=(2, 7), delimiter=";", time="Zeit", stepsize="idbd")
    code, out, err = piped(line, european_model, capsys, settings=given, learn=False)
    assert (code, len(out)) == (0, 1)
    assert f"{european_model}: using the settings stored in the model. Ignored, because they differ: " in err
    named = err.split("because they differ: ")[1].split(".\n")[0].split(", ")
    assert {"horizons", "time", "stepsize"} <= {*named}
    assert "delimiter" not in named
    same = Horde.load_with(european_model)[1]["settings"]
    for settings in (Settings(), Settings.of(same), Settings(delimiter=";")):
        assert "ignored" not in piped(line, european_model, capsys, settings=settings, learn=False)[2]


def test_when_nothing_can_be_read_the_exit_code_is_2(european_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = piped(b"what is this\n" * 400, european_model, capsys)
    assert (code, out) == (2, [])
    assert err.splitlines()[-1].startswith("Error: none of the 400 lines could be read; the first was line 1: ")
    code, out, err = piped(b"[1]\n" * 30, european_model.with_name("none"), capsys)
    assert code == 2
    for text in (b"", b"Datum;Zeit;Leistung;Pumpe\n"):
        code, out, err = piped(text, european_model, capsys)
        assert (code, out) == (2, [])
        assert err.splitlines()[-1] == "Error: nothing could be read: standard input ended without a reading."


@pytest.mark.plain
def test_a_warm_up_keeps_the_settings_it_began_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [json.dumps({"x": t % 5, "y": t % 3}).encode() + b"\n" for t in range(16)]
    model, begun = tmp_path / "m", Settings(predict=("x",), horizons=(3, 7))
    assert piped(b"".join(lines[:4]), model, capsys, settings=begun, warm_up=12)[0] == 0
    _, out, _ = piped(b"".join(lines[4:8]), model, capsys, settings=Settings(), warm_up=12)
    assert out[-1]["predictions"] == {"x": {"3": 2.0, "7": 2.0}}
    # what is given now overrides it
    _, out, _ = piped(b"".join(lines[8:]), model, capsys, settings=Settings(predict=("y",)), warm_up=12)
    assert {signal: list(at) for signal, at in out[-1]["predictions"].items()} == {"y": ["3", "7"]}


def test_readings_out_of_order_are_told(european_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["Datum;Zeit;Leistung;Pumpe", *european(9, 400)]
    lines[4], lines[7] = lines[3].replace("06:42", "05:00"), lines[6].replace("06:45", "05:10")
    code, out, err = piped("\n".join(lines).encode(), european_model, capsys)
    assert (code, len(out)) == (0, 9)
    assert "line 5: out of order: its time 01.03.2024 05:00:00 is earlier than that of the previous reading" in err
    assert "2 readings out of order in all." in err


def test_a_stray_record_in_the_warm_up_defines_no_signal(caplog: pytest.LogCaptureFixture) -> None:
    lines = [json.dumps({"time": 1.7e9 + t, "x": np.sin(t / 5), "on": t % 3}).encode() for t in range(120)]
    lines.insert(0, b'{"boot": 17, "firmware": 3.2}')
    lines.insert(30, b'{"time": 1700000029, "battery": 3.9}')
    lines.insert(50, b'{"time": 1700000049, "x": 0.5, "on": 1, "alarm": 9}')
    predictor = Predictor(SETTINGS, warm_up=100)
    with caplog.at_level(logging.INFO, "emphatic"):
        made = predict(predictor, lines)
    assert predictor.horde is not None
    assert predictor.horde.signals == ("x", "on")
    # From the third reading on; none of a stray record, neither a line nor a signal.
    assert len(made) == 123 - 2 - 1
    assert {len(prediction.values) for prediction in made} == {2}
    messages = [record.getMessage() for record in caplog.records]
    assert [line for line in messages if "none of the columns" in line] == [
        "line 1: it has none of the columns of the other readings; skipped.",
        "line 31: it has none of the columns of the other readings; skipped.",
    ]
    assert "1 of the first readings are out of order; each starts a new sequence." in messages
    assert "column 'alarm' is not used: in only 1 of the first 98 readings." in messages
    # Readings that take turns are not stray.
    turns = [json.dumps({"time": 1.7e9 + t, f"s{t % 30}": t % 7}).encode() for t in range(120)]
    predictor = Predictor(SETTINGS, warm_up=100)
    predict(predictor, turns)
    assert predictor.horde is not None
    assert len(predictor.horde.signals) == 30


@pytest.mark.parametrize(
    ("head", "row", "signals", "malformed"),
    [([b"9.2,1", b"time,x,y"], b"%d,%d,1", ("x", "y"), 1), ([b"time,x,comment"], b"%d,%d", ("x", "comment"), 0)],
)
def test_garbage_before_a_header_is_skipped_and_it_may_have_more_names_than_rows_have_fields(
    head: list[bytes], row: bytes, signals: tuple[str, ...], malformed: int
) -> None:
    predictor = Predictor(SETTINGS, warm_up=100)
    text = [*head, *(row % (t, t % 7) for t in range(120))]
    assert len(predict(predictor, text)) == 118  # from the third reading on
    assert predictor.horde is not None
    assert (predictor.horde.signals, predictor.malformed) == (signals, malformed)


@pytest.mark.parametrize("name", ["%s", "100%", "%(x)d", '"%s"', "a@b", ""])
def test_columns_of_any_name_on_a_pipe(name: str, tmp_path: Path) -> None:
    lines = [json.dumps({name or "x": t % 5, "%d": 1 + t % 3}).encode() for t in range(110)]
    predictor = Predictor(SETTINGS, warm_up=100)
    made = predict(predictor, lines)
    assert predictor.horde is not None
    answers = json.loads(made[0].line)["predictions"]
    assert answers.keys() == {name or "x", "%d"}
    predictor.horde.save(tmp_path / "m", **predictor.state())
    again, _ = Predictor.load(tmp_path / "m")
    (prediction,) = predict(again, lines[:1])
    assert json.loads(prediction.line)["step"] == 110


def test_own_questions_are_listed_by_name_and_horizon() -> None:
    questions: tuple[dict[str, Any], ...] = (
        {"name": "high", "cumulant": "x > 0.5", "gamma": 0.9}, {"name": "slow", "cumulant": "x", "horizon": 9},
        {"name": "x", "cumulant": "x", "horizon": 2},
    )  # fmt: skip
    predictor = Predictor(replace(SETTINGS, questions=questions), warm_up=60)
    *_, prediction = predict(predictor, [json.dumps({"x": np.sin(t)}).encode() for t in range(70)])
    answers = json.loads(prediction.line)["predictions"]
    assert {name: list(at) for name, at in answers.items()} == {"x": ["2", "x"], "high": ["0.9"], "slow": ["9"]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,é\n1,2\n3,4\n".encode("latin1"), "line 1 of the readings is not UTF-8.*iconv"),
        ("a,b\n1,2\n3,4\n".encode("utf-16"), "line 1 of the readings is not UTF-8"),
        (b"a,b,a\n1,2,3\n3,4,5\n", "more than one column 'a'"),
    ],
)
@pytest.mark.parametrize("known", [(), ("a",)])
def test_a_header_that_cannot_be_read_stops_the_pipe(text: bytes, said: str, known: tuple[str, ...]) -> None:
    with pytest.raises(TableError, match=said):
        list(Readings(text.split(b"\n"), known))


def test_units_and_the_header_again_are_skipped_on_a_pipe() -> None:
    text = [b"t,x", b"s,kW", *(b"%d,%d" % (t, t % 7) for t in range(50)), b"t,x", b"50,1"]
    found = list(Readings(text, look=20))
    assert [(n, str(r)) for n, r in found if not isinstance(r, dict)] == [
        (2, "units below the header"),
        (53, "the header again"),
    ]
    assert len(found) == 53
    known = list(Readings(text, ("x",)))
    assert [n for n, r in known if not isinstance(r, dict)] == [53]  # a model finds no number in the units


def _nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def test_json_that_is_nested_deep_or_has_half_a_character() -> None:
    rows = [b'{"a": 1}', b'{"a":' * 100_000, b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", b'{"a": "\\ud800"}']
    first, *bad, last = [r for _, r in Readings(rows, ("a",))]
    assert first == {"a": 1}
    assert all(str(one).startswith("not JSON") for one in bad)
    assert fields.as_text(_nested(100_000)) == "nested too deeply"
    predictor = Predictor(SETTINGS, warm_up=20)
    lines = [json.dumps({"x": t % 5, "mode": "\ud800" if t % 2 else "on a"}).encode() for t in range(30)]
    assert len(predict(predictor, lines)) == 28  # from the third reading on
    assert isinstance(last, dict)


def test_before_there_is_a_model_each_signal_is_predicted_to_stay_as_last_read() -> None:
    """Also one that comes late: once it is known, by the readings that came before that."""
    guesses = FirstGuesses(Settings(), [2])
    waiting: list[tuple[int, Reading]] = []
    for t in range(40):
        waiting.append((t, {"x": float(t)} | ({"late": t / 8} if t >= 12 and t % 3 == 0 else {})))
        guess = guesses(waiting, TextForm())
        if t >= 19:  # every tenth reading it is looked which columns there are
            assert guess is not None
            assert guess.format.keys == [("x", "2"), ("late", "2")]
            assert guess.values[:, 0].tolist() == [t, t // 3 * 3 / 8]
