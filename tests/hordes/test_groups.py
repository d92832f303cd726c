"""Questions with features of their own: a horde of groups is as many hordes, and one in all else."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import emphatic
from emphatic import GVF, CheckpointError, Horde, Policy
from emphatic import features as f
from emphatic.errors import DivergenceWarning
from tests.hordes.test_horde import RULE, log, rewritten, rows_of

Array = NDArray[np.float64]


def coarse() -> f.Features:
    return f.Features([f.Bias(), f.SoftBins("x", bins=3, range=(-2, 2)), f.OneHot("door"), f.Missing("x")])


def fine() -> f.Features:
    return f.Features([f.SoftBins("y", bins=7), f.SoftBins(f.Trace("x", steps=5), bins=4, range=(-2, 2))])


QUESTIONS = [
    GVF("x", horizon=9),
    GVF("y", gamma="0.9 * (1 - end)", terminal="x"),
    GVF("x", gamma=0.8, policy=Policy({0: 0.3, 1: 0.7}, "move"), name="counted"),
    GVF("y", horizon=3, interest="end"),
    GVF("x", gamma=0.8, policy=Policy({0: 0.3, 1: 0.7}, "move", "mu"), name="given"),
]
#: Which questions share the first maker; the others share the second.
FIRST = [0, 2, 3]
SECOND = [1, 4]


def horde_of_groups(**more: Any) -> Horde:
    makers = {**dict.fromkeys(FIRST, coarse()), **dict.fromkeys(SECOND, fine())}
    features = {QUESTIONS[q].name: maker for q, maker in makers.items()}
    return Horde(QUESTIONS, features, **({"rule": RULE} | more)).warm_up(log())


def two_hordes(**more: Any) -> list[Horde]:
    """Of an array each has the part of its questions."""
    hordes = []
    for of, maker in ((FIRST, coarse()), (SECOND, fine())):
        own: dict[str, Any] = {name: p[of] if isinstance(p, np.ndarray) else p for name, p in more.items()}
        hordes.append(Horde([QUESTIONS[q] for q in of], maker, **({"rule": RULE} | own)).warm_up(log()))
    return hordes


def joined(first: Array, second: Array) -> Array:
    out = np.empty((*first.shape[:-1], 5))
    out[..., FIRST], out[..., SECOND] = first, second
    return out


@pytest.mark.parametrize("gaps", [False, True])
def test_a_log_through_groups_is_the_log_through_as_many_hordes(gaps: bool) -> None:
    table = log(gaps=gaps)
    horde, others = horde_of_groups(), two_hordes()
    np.testing.assert_array_equal(horde.run(table), joined(*(other.run(table) for other in others)))
    assert len(horde.makers) == len(horde.learners) == 2
    for learner, other in zip(horde.learners, others, strict=True):
        np.testing.assert_array_equal(learner.theta, other.learner.theta)
    np.testing.assert_array_equal(horde.base, joined(*(other.base for other in others)))
    assert horde.names == tuple(question.name for question in QUESTIONS)
    assert horde.rows == others[0].rows


def test_rows_and_transitions_through_groups() -> None:
    rows = rows_of(log())
    horde, others = horde_of_groups(), two_hordes()
    for row in rows[:40]:
        np.testing.assert_array_equal(horde.observe(row), joined(*(other.observe(row) for other in others)))
    for t, row in enumerate(rows[40:]):
        ended = t % 20 == 19
        step: list[Any]
        if t % 20 == 0:
            step = [some.begin(row) for some in (horde, *others)]
        else:
            step = [some.learn(1, 0.5, row, ended, predict=t % 3 == 0) for some in (horde, *others)]
        assert len({answers is None for answers in step}) == 1
        if step[0] is not None:
            np.testing.assert_array_equal(step[0], joined(*step[1:]))
    assert horde.counts == others[0].counts


def test_parameters_of_each_question_go_with_it() -> None:
    alpha, eta = np.array([0.1, 0.2, 0.3, 0.4, 0.5]), np.array([0.5, 1.0, 1.5, 2.0, 2.5])
    given: dict[str, Any] = {"rule": "gtd", "alpha": alpha, "eta": eta, "engine": "reference"}
    horde, others = horde_of_groups(**given), two_hordes(**given)
    np.testing.assert_array_equal(horde.run(log()), joined(*(other.run(log()) for other in others)))


@pytest.mark.parametrize("at", [0, 1, 50])
def test_goes_on_with_the_same_bits(at: int, tmp_path: Path) -> None:
    rows, path = rows_of(log()), tmp_path / "model"
    horde = horde_of_groups()
    for row in rows[:at]:
        horde.observe(row)
    horde.save(path, note="kept")
    other, more = Horde.load_with(path)
    assert more == {"note": "kept"}
    assert other.names == horde.names
    for row in rows[at:120]:
        assert other.observe(row).tolist() == horde.observe(row).tolist()
    horde.cut()
    horde.begin(rows[120])
    horde.learn(1, 0.5, rows[121], False, predict=False)
    horde.save(path)
    other = Horde.load(path)
    for row in rows[122:]:
        a, b = (some.learn(0, 0.25, row, False) for some in (horde, other))
        assert a.tolist() == b.tolist()
    with pytest.warns(UserWarning, match="holds a Horde"):
        assert emphatic.Learner.load_with(path)[0].K == 3


def test_one_maker_for_all_is_one_group() -> None:
    maker = coarse()
    horde = Horde(QUESTIONS, dict.fromkeys([q.name for q in QUESTIONS], maker), RULE).warm_up(log())
    assert horde.features is maker
    assert horde.learner.K == 5
    several = horde_of_groups()
    for name in ("features", "learner"):
        with pytest.raises(RuntimeError, match="have their own features"):
            getattr(several, name)


def assert_unchanged(horde: Horde, uses: Sequence[Callable[[], Any]], refused: Any, folder: Path) -> None:
    """Each use is refused, and leaves the horde as it was to the last bit."""
    horde.save(folder / "before")
    for use in uses:
        with refused:
            use()
        horde.save(folder / "after")
        assert (folder / "after").read_bytes() == (folder / "before").read_bytes()


def test_what_is_refused_changes_nothing(tmp_path: Path) -> None:
    when = np.datetime64("2020-01-01") + np.arange(180) * np.timedelta64(60, "s")
    makers = {"x@2": f.Features([f.SoftBins(f.Trace("x", steps=4), bins=3)]), "x@3": f.Features([f.TimeOfDay(bins=3)])}
    horde = Horde([GVF("x", horizon=2), GVF("x", horizon=3)], makers).warm_up(log() | {"time": when})
    row = rows_of(log(missing=False))[9]
    horde.observe(row, time=1.6e9)
    uses = (lambda: horde.observe(row), lambda: horde.observe(row, time="noon"), lambda: horde.begin(row))
    assert_unchanged(horde, uses, pytest.raises(ValueError, match="'time'"), tmp_path)


def refuse_large(row: Any) -> float:
    if row["x"] > 50.0:
        raise ArithmeticError("too large")
    return float(row["x"])


@pytest.mark.parametrize("groups", [False, True])
def test_a_function_that_raises_changes_nothing(groups: bool, tmp_path: Path) -> None:
    own = f.Features([f.SoftBins(f.Trace("x", steps=4), bins=3), f.Function(refuse_large)])
    makers = {"x@2": f.Features([f.SoftBins(f.Trace("x", steps=4), bins=3)]) if groups else own, "x@3": own}
    when = np.datetime64("2020-01-01") + np.arange(180) * np.timedelta64(60, "s")
    table = {"x": log(missing=False)["x"], "time": when}
    horde = Horde([GVF("x", horizon=2), GVF("x", horizon=3)], makers).warm_up(table)
    assert len(horde.makers) == 1 + groups

    def refused(*uses: Callable[[], Any]) -> None:
        assert_unchanged(horde, uses, pytest.raises(ArithmeticError, match="too large"), tmp_path)

    horde.observe({"x": 1.0})
    late = {"x": np.where(np.arange(180) == 150, 99.0, table["x"]), "time": when + (np.arange(180) > 90) * 10_000_000}
    refused(lambda: horde.observe({"x": 99.0}), lambda: horde.begin({"x": 99.0}), lambda: horde.run(late))
    horde.begin({"x": 1.0})
    horde.learn(0, 0.0, {"x": 2.0}, terminated=False, predict=False)
    refused(
        lambda: horde.learn(0, 0.0, {"x": 99.0}, terminated=False, predict=False),
        lambda: horde.learn(0, 0.0, {"x": 99.0}, terminated=True),
        lambda: horde.begin({"x": 99.0}),
    )


def test_a_maker_belongs_to_one_horde() -> None:
    """Traces and ranges are of one stream: two hordes with one maker are as two hordes with two."""

    def maker() -> f.Features:
        return f.Features([f.SoftBins(f.Trace("x", steps=4), bins=3)])

    questions, shared, rows = [GVF("x", horizon=2)], maker(), rows_of(log(missing=False))
    first, second = (Horde(questions, shared).warm_up(log()) for _ in range(2))
    lone = Horde(questions, maker()).warm_up(log())
    assert first.features is shared
    assert second.features is not shared
    for row, other in zip(rows, rows[::-1], strict=True):
        second.observe(other)
        assert first.observe(row).tolist() == lone.observe(row).tolist()
    # and one that has been warmed up, and used since, is taken as it was then
    x = log(missing=False)["x"]
    one, two = (maker().warm_up(x[:90, None], names=["x"]) for _ in range(2))
    answers = []
    for some in (one, one, two):
        horde = Horde(questions, some).prepare(["x"])
        horde.begin({"x": 0.0})
        answers.append([horde.learn(0, 0.0, {"x": 9.0 + value}, False).tolist() for value in x])
    assert answers[0] == answers[1] == answers[2]


@pytest.mark.parametrize(
    ("features", "match"),
    [
        ({"x@2": coarse()}, "entry for each question.*'x@3'"),
        ({"x@2": coarse(), "x@3": coarse(), "x@4": coarse()}, "no other.*'x@4'"),
        ({"x@2": coarse(), "x@3": [f.Bias()]}, "'features'.*question"),
        ({}, "'x@2'"),
    ],
)
def test_bad_features(features: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        Horde([GVF("x", horizon=2), GVF("x", horizon=3)], features)


def test_a_record_is_of_one_learner() -> None:
    with pytest.raises(ValueError, match="'record'"):
        horde_of_groups(record=True)


@pytest.mark.parametrize("name", ["of", "groups", "learner", "array", "questions"])
def test_damaged_files(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model"
    horde_of_groups().save(path)

    def change(header: dict[str, Any], arrays: dict[str, Any]) -> None:
        saved = header["horde"]
        if name == "of":
            saved["of"] = [[0, 1], [2]]
        elif name == "groups":
            arrays["horde.groups"] = np.frombuffer(zlib.compress(b"[]"), np.uint8)
        elif name == "learner":
            groups = json.loads(zlib.decompress(arrays["horde.groups"].tobytes()))
            groups[0]["learner"]["n"] = 3
            arrays["horde.groups"] = np.frombuffer(zlib.compress(json.dumps(groups).encode()), np.uint8)
        elif name == "array":
            arrays.pop("groups.horde.base")
        else:
            saved["of"] = saved["of"][::-1]

    rewritten(path, change)
    with pytest.raises(CheckpointError, match="not a valid Horde"):
        Horde.load(path)


def test_large_features_of_ones_own_freeze_a_learner_and_make_no_nan() -> None:
    """A function may return any number: divergence is found by the features as they are."""
    makers = f.Features([f.Bias(), f.Function(lambda row: 1e150 * row["x"], name="huge")])
    horde = Horde([GVF("reward", gamma=0.9)], makers, "td", alpha=0.5, rate=0.1, engine="sparse").prepare(["x"])
    assert makers.largest is None
    horde.begin({"x": 1.0})
    with (
        pytest.warns(DivergenceWarning, match="'reward@0.9' predicts .* impossible"),
        pytest.warns(DivergenceWarning, match="'reward@0.9' diverged"),
    ):
        assert len([horde.learn(0, 1.0, {"x": 1.0}, terminated=False) for _ in range(9)]) == 9
    assert horde.learner.frozen.all()
    assert np.isfinite(horde.learner.theta).all()
    assert f.Features([f.Bias()]).warm_up(np.empty((0, 1)), names=["x"]).largest == 1.0
