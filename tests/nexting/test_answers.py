"""``answers`` of a run: each single answer scored beside the prediction, and nothing that looks ahead."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import emphatic

Array = NDArray[np.float64]
NAMES = ["rate 0.1", "rate 0.3", "rate 1", "ridge 30", "ridge 300", "ridge 3000"]
NAMES += ["short season", "long season", "drift 0.001", "reading", "trace"]


def log(rows: int = 1600) -> dict[str, Array]:
    rng, t = np.random.default_rng(1), np.arange(rows)
    wave = np.sin(t / 11) + 0.2 * rng.normal(size=rows)
    wave[[100, 400, 401]] = np.nan
    return {"wave": wave, "walk": rng.normal(size=rows).cumsum(), "still": np.full(rows, 4.0)}


def test_every_answer_is_scored_where_the_prediction_is(tmp_path: Path) -> None:
    result = emphatic.nexting.run(log(), horizons=[2, 10], offline=False, out=tmp_path / "out")
    for score in result.summary:
        assert list(score["answers"]) == NAMES
        known = score["variance_explained"] is not None
        assert known == (score["signal"] != "still")
        assert all((value is not None) == known for value in score["answers"].values())
        if known:  # persistence is the reading
            assert score["answers"]["reading"] == pytest.approx(score["persistence"]["variance_explained"], abs=1e-5)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "model.safetensors", "predictions.parquet", "report.html", "summary.json"
    ]  # fmt: skip


def test_answers_that_are_not_there_have_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    one = emphatic.nexting.run(log(600), horizons=[2], offline=False, config={"rates": [0.3]})
    assert one.summary[0]["answers"] == {}
    assert "one rate" in one.summary[0]["reasons"]["answers"]
    monkeypatch.setattr("emphatic.hordes.group.LIMIT", 10)
    large = emphatic.nexting.run(log(600), horizons=[2], offline=False)
    assert list(large.summary[0]["answers"]) == [name for name in NAMES if "ridge" not in name]
    assert "no ridges" in large.summary[0]["reasons"]["answers"]


@pytest.mark.parametrize(("horizons", "row"), [([2, 10], 1000), ([2, 200], 900)])
def test_what_comes_after_a_row_changes_nothing_before_it(horizons: list[int], row: int) -> None:
    """Noise, in a signal that was still, too, or the end of the log."""
    whole, disturbed = log(6000), log(6000)
    for column in disturbed.values():
        column[row:] = np.random.default_rng(5).normal(size=6000 - row) * 50
    short = {name: column[:row] for name, column in whole.items()}
    found = [emphatic.nexting.run(table, predict=list(whole), horizons=horizons, offline=False).predictions
             for table in (whole, disturbed, short)]  # fmt: skip
    for name in found[0].column_names:
        one, other, cut = (table.column(name).to_numpy() for table in found)
        assert np.array_equal(one[:row], other[:row])
        assert np.array_equal(one[:row], cut)
        assert name == "row" or not np.array_equal(one, other)


def test_scores_do_not_depend_on_how_the_rows_were_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts end where a checkpoint was due, or a run was killed; the offline fit, too, is the same to the last bit."""
    rng, t = np.random.default_rng(5), np.arange(9000)
    log = {"x": 1000.0 + np.sin(t / 20) + 0.2 * rng.normal(size=9000), "y": np.cumsum(rng.normal(size=9000)) * 0.1}
    log["y"][::97] = np.nan
    whole = emphatic.nexting.run(log, horizons=[2, 20])
    monkeypatch.setattr("emphatic.nexting.learning.WAITING", 1)
    parts = emphatic.nexting.run(log, horizons=[2, 20])
    for one, other in zip(whole.summary, parts.summary, strict=True):
        one.pop("reading", None), other.pop("reading", None)
        assert one["offline"]["rmse"] is not None
        assert one == other
