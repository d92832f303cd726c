"""Many signals: what each question sees, what is said beforehand, and that all else goes on as ever."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emphatic
from emphatic.nexting.runs import learning as related
from emphatic.nexting.runs.settings import Settings
from emphatic.nexting.tables import open_table
from tests.support.tables import assert_same_table

C, T = 12, 600


@pytest.fixture(autouse=True)
def low_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(related, "LIMIT", 1 << 16)
    monkeypatch.setattr(related, "MEMBERS", 3)
    monkeypatch.setattr(related, "OUTSIDE", 1)


def log() -> dict[str, Any]:
    """Four walks, each seen by three sensors, and one that stands still."""
    rng = np.random.default_rng(3)
    walks = np.cumsum(rng.normal(size=(T, 4)), axis=0)
    columns = {f"s{i}": (-1) ** i * walks[:, i % 4] + 0.1 * rng.normal(size=T) for i in range(C)}
    columns["s5"][40:44] = np.nan
    return columns | {"still": np.ones(T)}


def test_groups_are_of_the_most_correlated_signals() -> None:
    table = open_table(log())
    groups = related.choose_related(table, 500, table.names)
    values = np.stack([np.nan_to_num(column[:500], nan=np.nanmean(column[:500])) for column in log().values()])
    with np.errstate(invalid="ignore"):
        expected = np.nan_to_num(np.abs(np.corrcoef(values)))
    for i, name in enumerate(table.names[:C]):
        members = [j for j in range(C) if j % 4 == i % 4]
        assert set(groups[name][:2]) == {f"s{j}" for j in members if j != i}
        [outside] = groups[name][2:]
        nearest = expected[members][:, [j for j in range(C) if j not in members]].max()
        assert expected[members, table.names.index(outside)].max() == pytest.approx(nearest, abs=0.02)
        assert "still" not in groups[name]
    assert groups["still"] == []


def test_what_is_not_predicted_has_no_group_but_is_seen() -> None:
    table = open_table(log())
    groups = related.choose_related(table, 500, ["s0", "s1"])
    assert {name for name, others in groups.items() if others} == {"s0", "s1"}
    assert groups["s0"][0] == "s1"
    assert {"s4", "s8", "s5", "s9"} & set(groups["s0"])  # what correlates most with one of the two
    assert set(groups["s0"]) - {"s1"} == set(groups["s1"]) - {"s0"}


def test_more_signals_than_a_few_are_divided_into_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(related, "LIMIT", 1 << 40)
    assert Settings(horizons=(2,)).filled(open_table(log()), T).related is None
    monkeypatch.setattr(related, "UNGROUPED", C)
    assert Settings(horizons=(2,)).filled(open_table(log()), T).related is not None


def test_many_signals_see_what_is_related_and_the_rest_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {"predict": list(log()), "horizons": [2, 6]}  # one of them never changes
    result = emphatic.nexting.run(log(), **asked, out=tmp_path / "out")
    horde = result.model.forecaster.horde
    assert [learner.K for learner in horde.learners] == [6] * (C // 3) + [2]
    signals = [re.findall(r"s\d+ ≈", " ".join(maker.names())) for maker in horde.makers]
    assert [len(set(seen)) for seen in signals] == [4] * (C // 3) + [0]
    # The settings, written as TOML, give the same.
    text = result.settings.toml()
    assert set(tomllib.loads(text)["related"]) == set(log())
    (tmp_path / "all.toml").write_text(text, "utf-8")
    again = emphatic.nexting.run(log(), config=tmp_path / "all.toml")
    assert_same_table(again.predictions, result.predictions)
    assert again.summary == result.summary
    # Not worse than where every question sees everything.
    monkeypatch.setattr(related, "LIMIT", 1 << 30)
    whole = emphatic.nexting.run(log(), **asked)
    assert whole.settings.related is None
    some, every = ([s["variance_explained"] for s in r.summary[1:] if s["signal"] != "still"] for r in (result, whole))
    assert np.median(some) > np.median(every) - 0.01
    # It goes on, live.
    model = emphatic.nexting.load_model(tmp_path / "out" / "model.safetensors")
    said = model.observe(dict.fromkeys(log(), 1.0))
    assert list(said) == result.predictions.column_names[1:]
    assert said["s3 at +6"] is not None


def test_own_questions_see_the_signals_they_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(related, "LIMIT", 1)
    config = {"questions": [{"name": "sum", "cumulant": "s1 + s2", "horizon": 3}], "horizons": [2], "predict": ["s0"]}
    result = emphatic.nexting.run(log(), config=config)
    chosen = result.settings.related
    assert chosen is not None
    names = " ".join(result.model.forecaster.horde.makers[1].names())
    for signal in {"s1", "s2", *chosen["s1"], *chosen["s2"]}:
        assert f"{signal} ≈" in names
    assert "s0 ≈" not in names or "s0" in {*chosen["s1"], *chosen["s2"]}
    assert [row["signal"] for row in result.verdict] == ["s0"]


def test_related_must_be_signals() -> None:
    with pytest.raises(ValueError, match="'related' names 's99', and there is no such numeric column"):
        emphatic.nexting.run(log(), config={"related": {"s1": ["s99"]}})
    with pytest.raises(ValueError, match="'related' must be a table of lists of signals"):
        emphatic.nexting.run(log(), config={"related": {"s1": "s2"}})


def test_why_a_number_is_missing_is_said() -> None:
    result = emphatic.nexting.run(
        {"x": np.sin(np.arange(60)), "still": np.ones(60)}, predict=["x", "still"], horizons=[2, 50]
    )
    scores = {score["text"]: score for score in result.summary[1:]}
    assert scores["x at +2"]["variance_explained"] is not None
    for text in ("x at +50", "mean of x over 50"):
        assert (scores[text]["scored"], scores[text]["variance_explained"]) == (0, None)
    assert scores["still at +2"]["variance_explained"] is None
    assert result.reading["unscored"] == [
        {"signal": "still", "why": "it never changes"},
        {"horizon": 50, "why": "no window of the second half is known"},
    ]
    assert result.verdict[1]["sentence"] == "still cannot be judged: it never changes."


def test_of_500_signals_the_weights_stay_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """500 signals × 400 rows at the four default horizons: under 70 MB, where it would be 500."""
    monkeypatch.setattr(related, "LIMIT", 1 << 27)
    x = np.cumsum(np.random.default_rng(0).normal(size=(400, 500)), axis=0)
    table = open_table({f"s{i}": column for i, column in enumerate(x.T)})
    chosen = Settings().filled(table, 400)
    assert chosen.related is not None
    assert all(len(others) == related.FEW_MEMBERS - 1 for others in chosen.related.values())
    makers = related.make_makers(chosen)
    assert isinstance(makers, dict)
    assert len({id(maker) for maker in makers.values()}) == 500 // related.FEW_MEMBERS
    n = makers["s0@2"].warm_up(x, names=table.names).n
    learners = len(chosen.gvfs())
    assert learners == 2000
    assert 16 * learners * n < 70e6
    # Of thirty, every question sees all.
    few = open_table({f"s{i}": column for i, column in enumerate(x.T[:30])})
    assert Settings().filled(few, 400).related is None


@pytest.mark.parametrize("cut", [200, 512, 513, 600])
def test_a_wide_model_goes_on_from_its_file_with_the_same_bits(cut: int, tmp_path: Path) -> None:
    settings = Settings().filled(open_table(log()), T)
    table = open_table(log())
    whole = related.make_horde(settings, None).warm_up(table, T)
    block = next(table.blocks(T))
    expected = whole.observe_many(block.values, learn=True)
    horde = related.make_horde(settings, None).warm_up(table, T)
    predictions = [horde.observe_many(block.values[:cut])]
    horde.save(tmp_path / "model")
    again, more = emphatic.Horde.load_with(tmp_path / "model")
    assert more == {}
    again.save(tmp_path / "again")
    assert (tmp_path / "model").read_bytes() == (tmp_path / "again").read_bytes()
    dense = emphatic.Horde.load(tmp_path / "model", engine="dense")
    for group, other in zip(again.groups, dense.groups, strict=True):
        np.testing.assert_array_equal(group.learner.theta, other.learner.theta)
    if cut < T:
        predictions.append(again.observe_many(block.values[cut:]))
    np.testing.assert_array_equal(np.concatenate(predictions), expected)


def test_very_many_signals_have_a_small_calendar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Coarser hours and days: the features of TD take a fraction of the memory."""
    times = {"time": np.datetime64("2026-01-01T00:00:00") + np.arange(T) * np.timedelta64(3600, "s")}
    usual = emphatic.nexting.run(times | log(), horizons=[2])
    monkeypatch.setattr(related, "MANY", C // 2)
    small = emphatic.nexting.run(times | log(), horizons=[2], out=tmp_path / "small")
    sizes = [max(maker.n for maker in of.model.forecaster.horde.makers) for of in (usual, small)]
    assert sizes[1] < sizes[0]
    # It goes on, from its file as from memory.
    loaded = emphatic.nexting.load_model(tmp_path / "small" / "model.safetensors")
    reading = dict.fromkeys(log(), 1.0) | {"time": "2026-02-01"}
    assert repr(loaded.observe(reading)) == repr(small.model.observe(reading))
