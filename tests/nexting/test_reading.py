"""``emphatic nexting`` on logs as people have them: what it reads, refuses, writes and says of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import emphatic
from emphatic.nexting.runs.learning import rows_to_score
from emphatic.nexting.tables import open_table
from tests.support.command import nexting
from tests.tables.test_as_people_write import TIMES, N, X, rows

#: What the columns of a question end with.
KINDS = ("", ".low", ".high", ".usual")
FEW = "rate = 0.3\nfeatures = [{kind = 'bias'}, {kind = 'soft_bins', of = '*', bins = 3}]\n"
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The command in this process on these lines: exit code, standard output (as one line) and standard error."""
    monkeypatch.chdir(tmp_path)
    Path("few.toml").write_text(FEW)

    def command(lines: list[str], *given: object) -> tuple[int, str, str]:
        Path("log.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        code, out, err = nexting(capsys, "log.csv", "--out", "out", "--overwrite", "--config", "few.toml", *given)
        return code, " ".join(out.split()), err

    return command


def iso(header: str = "time,x") -> list[str]:
    return rows(header, lambda t, x: f"{t:%Y-%m-%d %H:%M},{x}")


def written() -> tuple[Any, list[dict[str, Any]]]:
    return pq.read_table("out/predictions.parquet"), json.loads(Path("out/summary.json").read_text("utf-8"))


def test_the_last_lines_and_the_summary_say_how_the_table_was_read(call: Call) -> None:
    lines = rows("time,x,id,at", lambda t, x: f"{t:%d/%m/%Y %H:%M},{x},{t:%H-%M-%d}u,{t:%H:%M}")
    lines.insert(1, ",kW,,")
    lines[50] += ",too,many"
    lines[60] = lines[60].rsplit(",", 2)[0]
    del lines[100:110]
    code, out, err = call(lines, "--horizons", "2,10min,2d")
    assert code == 0, err
    assert "Time: 'time' (%d/%m/%Y %H:%M); typical step 5 min; 2 gaps." in out
    dropped = "1 × units below the header (first: 2); 1 × 6 fields, where the header has 4 (first: 51)"
    assert f"Rows dropped: {dropped}." in out
    assert "Short rows: 1; absent fields count as missing." in out
    left = (
        "'at' (a time of day), 'id' (text column with fewer than 2 or more than 50 distinct values in the first rows)"
    )
    assert f"Columns left out: {left}." in out
    assert "Not scored at: 2d (no window of the second half is known)." in out
    table, summary = written()
    reading = summary[0]["reading"]
    assert reading["time"] == {"columns": ["time"], "format": "%d/%m/%Y %H:%M", "zone": None}
    assert (reading["rows"], reading["step"], reading["gaps"], reading["rows_short"]) == (289, 300.0, 2, 1)
    assert {one["name"] for one in reading["columns_left_out"]} == {"id", "at"}
    assert {one["count"] for one in reading["rows_dropped"]} == {1}
    assert (reading["delimiter"], reading["decimal"], reading["units"]) == (",", ".", {"x": "kW"})
    assert all("reading" not in row for row in summary[1:])
    # The file's own rows, counted from the first below the header: those that were dropped count.
    number = table.column("row").to_pylist()
    assert number == [i for i in range(1, 291) if i != 49]


def test_without_a_time_neighbours_of_a_dropped_row_are_a_gap(call: Call) -> None:
    lines = rows("x,y", lambda t, x: f"{x},1")
    lines[150] = "1,2,3"
    code, out, _ = call(lines, "--horizons", 2)
    assert code == 0
    assert "No time column: no column reads as a time. 1 gap." in out
    _, summary = written()
    assert (summary[0]["reading"]["gaps"], summary[0]["reading"]["rows"]) == (1, N - 1)
    lines[150] = "1,2"
    code, out, _ = call(lines, "--horizons", 2)
    assert "No time column: no column reads as a time. 0 gaps." in out


def test_times_that_cannot_be_read_and_infinite_values_are_counted_and_said(call: Call) -> None:
    lines = iso()
    lines[60] = "2024-13-45 99:99,0.5"
    lines[70] = lines[70].rsplit(",", 1)[0] + ",inf"
    code, out, err = call(lines, "--horizons", 2, "--ask", "x at +1000000000y")
    assert code == 0, err
    assert "Times missing or not readable: 1; such a row is taken to follow the one above." in out
    assert "Not finite numbers, counted as missing: 1 of 'x'." in out
    assert "In 1e+09 y x is" in out  # no date can be written for it
    reading = written()[1][0]["reading"]
    assert (reading["times_missing"], reading["unreadable"]) == (1, {"x": 1})


@pytest.mark.parametrize("option", [("--warm-up", 50), ("--save-every", "5s"), ("--every", 3)])
def test_options_of_a_pipe_are_refused_for_a_file(call: Call, option: tuple[str, object]) -> None:
    code, out, err = call(iso(), *option)
    assert (code, out) == (2, "")
    assert f"{option[0]}" in err
    assert "need a pipe" in err
    assert not Path("out").exists()


def test_unsorted_rows_are_refused_and_sorted_on_request(call: Call) -> None:
    lines = iso()
    order = np.random.default_rng(0).permutation(N)
    shuffled = [lines[0], *(lines[1 + i] for i in order)]
    code, out, err = call(shuffled, "--horizons", 2)
    assert (code, out) == (2, "")
    assert "not sorted by time" in err
    assert "--sort" in err
    assert not Path("out").exists()
    code, out, _ = call(shuffled, "--horizons", 2, "--sort")
    assert code == 0
    assert "Rows sorted by time." in out
    sorted_rows, summary = written()
    assert summary[0]["reading"]["sorted"] is True
    assert sorted_rows.column("row").to_pylist() == np.argsort(order).tolist()


def test_long_format_is_pivoted(call: Call) -> None:
    lines = ["time,sensor,value"]
    lines += [f"{t:%Y-%m-%d %H:%M},{s},{x + ord(s)}" for t, x in zip(TIMES, X, strict=True) for s in "AB"]
    code, out, err = call(lines, "--horizons", 2)
    assert code == 0, err
    assert "Pivoted: a column of 'value' for each 'sensor'." in out
    table, summary = written()
    assert table.column_names[:4] == ["row", "time", "A at +2", "A at +2.low"]
    assert summary[0]["reading"]["pivoted"] == ["sensor", "value"]
    assert summary[0]["reading"]["sorted"] is False
    assert emphatic.nexting.run("log.csv", horizons=[2], config="few.toml", pivot="sensor,value").rows == N
    assert call(lines, "--horizons", 2, "--pivot", "", "--print-config")[0] == 0
    code, _, err = call([lines[0].replace("sensor", "station"), *lines[1:]], "--horizons", 2)
    assert code == 2  # a station may be a machine of its own
    assert "--pivot station,value" in err
    for given in (["--pivot", "sensor"], ["--pivot", "sensor,nothing"]):
        assert call(lines, "--horizons", 2, *given)[0] == 2


@pytest.mark.parametrize(("suffix", "zone"), [("+01:00", "+01:00"), ("Z", "UTC"), ("", None)])
def test_zoned_stamps_keep_their_zone(suffix: str, zone: str | None, call: Call) -> None:
    assert call(rows("time,x", lambda t, x: f"{t:%Y-%m-%dT%H:%M:%S}{suffix},{x}"), "--horizons", 2)[0] == 0
    table, summary = written()
    assert table.schema.field("time").type == pa.timestamp("us", zone)
    assert summary[0]["reading"]["time"]["zone"] == zone
    stamps = [datetime.fromisoformat(f"{t:%Y-%m-%dT%H:%M:%S}{suffix}".replace("Z", "+00:00")) for t in TIMES]
    assert table.column("time").to_pylist() == stamps


def test_switches_are_predicted(call: Call) -> None:
    lines = rows("time,pump", lambda t, x: f"{t:%Y-%m-%d %H:%M},{'ON' if x > 0 else 'OFF'}")
    assert call(lines, "--horizons", 2)[0] == 0
    table, summary = written()
    assert table.column_names[:3] == ["row", "time", "pump at +2"]
    assert summary[1]["variance_explained"] > 0.5


def test_percentages_are_predicted_and_the_last_lines_say_so(call: Call) -> None:
    code, out, _ = call(rows("time,level", lambda t, x: f"{t:%Y-%m-%d %H:%M},{50 + 10 * x:.3f}%"), "--horizons", 2)
    assert code == 0
    assert "Percent signs ignored (50% is 50): 'level'." in out
    table, summary = written()
    asked = [f"{text}{kind}" for text in ("level at +2", "mean of level over 2") for kind in KINDS]
    assert table.column_names == ["row", "time", *asked, "level.anomaly", "level.alarm", "level.why"]
    assert summary[0]["reading"]["percent"] == ["level"]


def test_a_switch_whose_words_are_named_stays_words() -> None:
    log = {"x": X, "move": ["yes", "no", "yes"] * 100}
    policy: dict[str, Any] = {"column": "move", "target": {"yes": 1.0}}
    config = {"horizons": [2], "rate": 0.3, "features": [{"kind": "bias"}, {"kind": "soft_bins", "of": "x"}]}
    question = {"cumulant": "x", "horizon": 2, "name": "q", "policy": policy}
    result = emphatic.nexting.run(log, config=config | {"questions": [question]})
    assert result.model.forecaster.horde.categories == ("move",)
    assert {"x at +2", "q"} <= set(result.predictions.column_names)
    horde = emphatic.Horde(
        [emphatic.GVF("x", horizon=2, policy=emphatic.Policy(**policy), name="q")],
        emphatic.features.Features([emphatic.features.Bias()]),
    )
    horde.run(log)
    assert horde.categories == ("move",)
    horde.run(log)  # and so it stays
    with pytest.raises(ValueError, match="have a target of numbers, because its column 'move' holds numbers"):
        emphatic.Horde(horde.questions, emphatic.features.Features([emphatic.features.Bias()])).run(open_table(log))


def test_a_horizon_shorter_than_the_step_is_refused(call: Call) -> None:
    for given in (["--horizons", "1s"], ["--horizons", "2,4min"]):
        code, _, err = call(iso(), *given)
        assert code == 2
        assert "is shorter than a typical step of the log, 5 min. Use 5min or more" in err
    Path("few.toml").write_text(FEW + "questions = [{cumulant = 'x', horizon = '30s', name = 'q'}]\n")
    assert "'30s' is shorter than a typical step" in call(iso(), "--horizons", 2)[2]
    Path("few.toml").write_text(FEW)
    assert call(iso(), "--horizons", "5min")[0] == 0


def test_too_few_rows_say_how_many_would_do(call: Call) -> None:
    code, _, err = call(iso()[:11], "--horizons", "2,9")
    assert code == 2
    assert "10 rows are too few" in err
    needed = rows_to_score(2)
    assert f"{needed} are needed for the shortest horizon, 2. Use a longer log, or shorter horizons." in err
    assert call(iso()[:needed], "--horizons", "2,9")[0] == 2
    for count, scored in ((needed, [1, 0]), (rows_to_score(9) - 1, [7, 0]), (rows_to_score(9), [8, 1])):
        code, out, _ = call(iso()[: count + 1], "--horizons", "2,9")
        assert code == 0
        _, summary = written()
        assert [score["scored"] for score in summary[1:] if score["kind"] == "at"] == scored
        missing = [{"horizon": 9, "why": "no window of the second half is known"}] * (not scored[1])
        assert summary[0]["reading"]["unscored"] == missing
        assert ("Not scored at: 9 (no window of the second half is known)." in out) == (not scored[1])


def test_a_pipe_is_neither_sorted_nor_a_run_to_resume(capsys: pytest.CaptureFixture[str]) -> None:
    for given in (["--sort"], ["--resume"], ["--overwrite"], ["--print-config"]):
        code, _, err = nexting(capsys, "-", *given)
        assert code == 2
        assert "a file" in err


def test_a_column_that_is_never_read_says_why_it_has_no_score(call: Call) -> None:
    code, out, _ = call(
        rows("time,x,y,z", lambda t, x: f"{t:%Y-%m-%d %H:%M},{x},,3"), "--horizons", 2, "--predict", "x,y,z"
    )
    assert code == 0
    assert "Not scored: y (it has no value in the whole log), z (it never changes)." in out


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"data": 3}, "The 'data' parameter of run must be a path, a frame"),
        ({"delimiter": ",,"}, "The 'delimiter' parameter of run must be one ASCII character"),
        ({"horizons": [0]}, "'horizons' must be between 1 and"),
        ({"horizons": ["soon"]}, "'horizons' must"),
        ({"sort": "yes"}, "'sort' must be true or false"),
        ({"pivot": "x"}, "must name two columns"),
        ({"resume": True}, "together with the folder"),
        ({"config": 3}, "the path of a TOML file, a mapping or Settings"),
        ({"config": {"horizon": [2]}}, "Did you mean 'horizons'"),
        ({"predict": ["z"]}, "no numeric column 'z'"),
        ({"horizons": []}, "must not be empty"),
    ],
)
def test_refusals_name_what_was_called(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        emphatic.nexting.run(**{"data": {"x": np.arange(99.0) % 7}} | given)
    assert "open_table" not in str(caught.value)
    assert "GVF" not in str(caught.value)


def test_sensors_that_report_one_at_a_time_are_scored_without_a_grid() -> None:
    i = np.arange(900)
    columns = {f"s{k}": np.where(i % 3 == k, np.sin(i / 30 + k), np.nan) for k in range(3)}
    few = {"rate": 0.3, "features": [{"kind": "bias"}, {"kind": "soft_bins", "of": "*", "bins": 5}]}
    result = emphatic.nexting.run(columns, resample="none", horizons=[5, 20], config=few)
    assert all(score["variance_explained"] is not None for score in result.summary[1:] if score["kind"] == "at")
