"""A horde against a plain loop, one question at a time; any cut, missing readings, gaps, refusals, files, the truth."""

from __future__ import annotations

import copy
import json
import math
import tracemalloc
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import emphatic
from emphatic import GVF, CheckpointError, Horde, Policy
from emphatic import features as f
from emphatic.errors import DivergenceWarning
from emphatic.learning import checkpoint, tensors
from emphatic.learning.sequences import UndiscountedWarning
from emphatic.nexting.tables import open_table
from tests.support.equations import stationary, true_online_etd, true_values
from tests.support.sequence import Sequence

Array = NDArray[np.float64]
Table = dict[str, Any]

#: The usual rule is learned by for questions with policies too, and says so where it goes astray.
pytestmark = pytest.mark.filterwarnings("ignore:.*which is impossible:emphatic.DivergenceWarning")

T = 180
RATE = 0.3


def parts() -> list[f.Part]:
    """Made anew for every horde: 1 + 3 + 3 + 3 + 2 features."""
    trace = f.SoftBins(f.Trace("x", steps=4), bins=3, range=(-2, 2))
    return [f.Bias(), f.SoftBins("x", bins=3, range=(-2, 2)), trace, f.OneHot("door"), f.Missing("x")]


def log(missing: bool = True, gaps: bool = False) -> Table:
    """Signals x, y, an ending, an action in numbers and in words, its probability, a door; holes, and gaps in time."""
    rng = np.random.default_rng(4)
    x = np.zeros(T)
    for t in range(1, T):
        x[t] = 0.8 * x[t - 1] + rng.normal()
    mu = rng.choice([0.2, 0.5, 0.9], T)
    move = (rng.random(T) < mu).astype(float)
    made: Table = {
        "x": x,
        "y": rng.normal(size=T) + 3,
        "end": (rng.random(T) < 0.1).astype(float),
        "move": move,
        "mu": np.where(move == 1, mu, 1 - mu),
        "door": rng.choice(["open", "shut"], T).astype(object),
        "way": np.where(move == 1, "up", "down").astype(object),
    }
    if missing:
        for name, share in (("x", 0.15), ("y", 0.05), ("end", 0.05), ("move", 0.1), ("mu", 0.1)):
            made[name] = np.where(rng.random(T) < share, np.nan, made[name])
        made["x"][:2] = made["end"][:4] = np.nan
        made["door"][[3, 4, 90]] = None
        made["way"][[5, 50]] = None
    if gaps:
        when = np.arange(T) * 10.0
        when[[60, 61, 150]] += 1000
        made["time"] = np.maximum.accumulate(when + np.cumsum(np.isin(np.arange(T), [60, 61, 150]) * 500.0))
    return made


def rows_of(table: Table) -> list[dict[str, Any]]:
    return [{name: column[t] for name, column in table.items() if name != "time"} for t in range(T)]


def held(column: Array) -> Array:
    out = np.array(column)
    for t in range(1, len(out)):
        if math.isnan(out[t]):
            out[t] = out[t - 1]
    return out


RULE = "true_online_etd"


def horde_of(*questions: GVF, rate: float | None = RATE, table: Table | None = None, **given: Any) -> Horde:
    """One learner of all questions, those with a policy too."""
    return Horde(questions, f.Features(parts()), rate=rate, **{"rule": RULE, **given}).warm_up(table or log())


def phi_of(table: Table, gap: NDArray[np.bool_]) -> tuple[Array, float]:
    """φ of every row as a dense array, and the mean of φ·φ in the warm-up; the maker itself is tested elsewhere."""
    names = [name for name in table if name not in ("door", "way", "time")]
    values = np.stack([held(table[name]) for name in names], axis=1)
    maker = f.Features(parts()).warm_up(values, names=names, labels={"door": table["door"]})
    out = np.zeros((T, maker.n))
    for t in range(T):
        if gap[t]:
            maker.cut()
        gone = np.array([math.isnan(table[name][t]) for name in names])
        phi = maker(values[t], labels={"door": table["door"][t]}, missing=gone)
        out[t, phi.indices[phi.indices >= 0]] = phi.values[phi.indices >= 0]
    return out, maker.norm


def plain(
    table: Table, read: Array, gamma: Any, *, rho: Any = 1.0, interest: Any = None, lambda_: float | None = None,
    Z: Any = 0.0, departs: bool = True, gap: NDArray[np.bool_] | None = None, rate: float = RATE,
) -> Array:  # fmt: skip
    """One question's answers by the equations, sequence by sequence; all quantities are of their row."""
    gap = np.zeros(T, bool) if gap is None else gap
    Phi, norm = phi_of(table, gap)
    constant = isinstance(gamma, float)
    unit = 1 - gamma if constant else 1.0
    lambda_ = (min(0.9, max(0.0, 1 - 4 * unit)) if constant else 0.9) if lambda_ is None else lambda_
    steady = constant and interest is None and isinstance(rho, float)
    gammas, rhos, Zs = (np.broadcast_to(np.asarray(a, np.float64), T) for a in (gamma, rho, Z))
    I = np.full(T, unit) if interest is None else np.nan_to_num(np.broadcast_to(interest, T))
    known = np.isfinite(read) & np.isfinite(gammas) & np.isfinite(Zs)
    base = float(np.mean(read[np.isfinite(read)])) if departs else 0.0
    R = np.where(known, unit * (read + (1 - gammas) * np.where(known, Zs, 0) - base), 0.0)
    theta, out = np.zeros(Phi.shape[1]), np.zeros(T)
    starts = [0, *np.flatnonzero(gap).tolist(), T]
    for a, b in pairwise(starts):
        now, after = slice(a, b - 1), slice(a + 1, b)
        fresh = np.concatenate([[True], ~known[after][:-1]]) if b - a > 1 else np.zeros(0, bool)
        alpha = np.full(b - a - 1, rate / norm)
        if steady:
            alpha = np.where(fresh, alpha * (1 - gamma * lambda_), alpha)
        made = true_online_etd(
            Sequence(
                Phi[now], Phi[after], R[after], np.where(known, gammas, 0.0)[after], alpha,
                np.full(len(alpha), lambda_), np.where(known[after], rhos[now], 0.0),
                np.where(fresh & steady, 1.0, I[now]), theta,
            )
        )  # fmt: skip
        Theta = made.rows["theta"]
        out[a:b] = np.sum(Theta * Phi[a:b], axis=1)
        theta = Theta[-1]
    return out + base


def counted(actions: list[Any], target: Mapping[Any, float]) -> Array:
    counts: Counter[Any] = Counter()
    out = np.zeros(len(actions))
    for t, action in enumerate(actions):
        if action is not None and action == action:
            counts[action] += 1
            out[t] = target[action] * counts.total() / counts[action]
    return out


def _cases() -> dict[str, tuple[GVF, Callable[[Table], dict[str, Any]]]]:
    pi = {0: 0.3, 1: 0.7}

    def chance(t: Table) -> Array:
        return np.select([t["move"] == 1, t["move"] == 0], [0.7, 0.3], 0.0)

    def given(t: Table) -> Array:
        return np.where(
            np.isnan(t["mu"]) | np.isnan(t["move"]), 0.0, chance(t) / np.where(np.isnan(t["mu"]), 1.0, t["mu"])
        )

    def on(name: str = "move", behaviour: Any = "count") -> Policy:
        return Policy(pi if name == "move" else {"down": 0.3, "up": 0.7}, name, behaviour)

    return {
        "column": (GVF("x", horizon=9), lambda t: {"read": t["x"], "gamma": 8 / 9}),
        "long": (GVF("y", horizon=200), lambda t: {"read": t["y"], "gamma": 0.995}),
        "next": (GVF("x", gamma=0), lambda t: {"read": t["x"], "gamma": 0.0}),
        "expression": (
            GVF("(x > 0.5) * y", gamma=0.5, lambda_=1.0),
            lambda t: {"read": (t["x"] > 0.5) * t["y"] + 0 * t["x"], "gamma": 0.5, "lambda_": 1.0},
        ),
        "function": (
            GVF(lambda o: None if math.isnan(o["x"]) else o["x"] ** 2 + (o["door"] == "open"), horizon=4, name="f"),
            lambda t: {"read": t["x"] ** 2 + (t["door"] == "open"), "gamma": 0.75},
        ),
        "termination": (
            GVF("y", gamma=lambda o: 1 - o["end"], lambda_=0.5),
            lambda t: {"read": t["y"], "gamma": 1 - held(t["end"]), "lambda_": 0.5, "departs": False},
        ),
        "terminal value": (
            GVF(0.25, gamma="0.95 * (1 - end)", terminal="x + y", name="Z"),
            lambda t: {
                "read": np.full(T, 0.25), "gamma": 0.95 * (1 - held(t["end"])), "Z": held(t["x"]) + held(t["y"]),
                "departs": False,
            },
        ),
        "terminal value, constant γ": (
            GVF("x", gamma=0.9, terminal=2),
            lambda t: {"read": t["x"], "gamma": 0.9, "Z": 2.0, "departs": False},
        ),
        "interest": (
            GVF("x", gamma=0.8, interest="end"),
            lambda t: {"read": t["x"], "gamma": 0.8, "interest": held(t["end"])},
        ),
        "μ in a column": (
            GVF("x", gamma=0.8, policy=on("move", "mu")),
            lambda t: {"read": t["x"], "gamma": 0.8, "rho": given(t)},
        ),
        "μ in a table": (
            GVF("y", gamma=0.8, policy=on("way", {"up": 0.6, "down": 0.4})),
            lambda t: {
                "read": t["y"], "gamma": 0.8,
                "rho": np.array([{"up": 0.7 / 0.6, "down": 0.3 / 0.4, None: 0.0}[a] for a in t["way"]]),
            },
        ),
        "μ the same": (
            GVF("x", gamma=0.8, policy=on("move", 0.5)),
            lambda t: {"read": t["x"], "gamma": 0.8, "rho": chance(t) / 0.5},
        ),
        "policies as functions": (
            GVF(
                "x", gamma=0.8,
                policy=Policy(
                    lambda o, a: 0.75 if (o["y"] > 3) == (a == 1) else 0.25, "move", lambda o, a: 0.25 + a / 2
                ),
            ),
            lambda t: {
                "read": t["x"], "gamma": 0.8,
                "rho": np.where(
                    np.isnan(t["move"]), 0.0,
                    np.where((held(t["y"]) > 3) == (t["move"] == 1), 0.75, 0.25) / (0.25 + held(t["move"]) / 2),
                ),
            },
        ),
        "μ counted": (
            GVF("x", gamma=0.8, policy=on()),
            lambda t: {"read": t["x"], "gamma": 0.8, "rho": counted(t["move"].tolist(), pi)},
        ),
        "μ counted, in words": (
            GVF("x", gamma=0.8, policy=on("way"), interest=1),
            lambda t: {
                "read": t["x"], "gamma": 0.8, "interest": 1.0,
                "rho": counted(t["way"].tolist(), {"down": 0.3, "up": 0.7}),
            },
        ),
    }  # fmt: skip


CASES = _cases()


def all_questions() -> list[GVF]:
    return [GVF(**{**vars(question), "name": name}) for name, (question, _) in CASES.items()]


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("missing", [False, True])
def test_is_the_plain_loop(missing: bool, gaps: bool) -> None:
    table = log(missing, gaps)
    gap = np.zeros(T, bool)
    if gaps:
        gap[[60, 61, 150]] = True
    made = horde_of(*all_questions(), table=table).run(table)
    for q, (name, (_, expect)) in enumerate(CASES.items()):
        expected = plain(table, **expect(table), gap=gap)
        scale = np.abs(expected - expected.mean()).max()
        assert scale > 0.002, name
        np.testing.assert_allclose(made[:, q], expected, rtol=1e-10, atol=1e-10 * scale, err_msg=name)


def test_answers_in_units_of_the_return() -> None:
    table = log()
    questions = all_questions()
    own = horde_of(*questions).run(table)
    horde = horde_of(*questions, scaled=False)
    unit = np.where(np.isnan(horde.gamma), 1.0, 1 - horde.gamma)
    np.testing.assert_allclose(horde.run(table) * unit, own, rtol=1e-12)


@pytest.mark.parametrize(("rate", "rates"), [(None, (0.1, 0.3)), (0.7, (0.7, 0.7)), (np.float32(0.5), (0.5, 0.5))])
def test_the_rate_is_by_default_that_of_the_kind_of_question(rate: Any, rates: tuple[float, float]) -> None:
    """One rule learns questions without a policy and with one, at different rates."""
    table = log()
    made = horde_of(*all_questions(), rate=rate).run(table)
    for q, (name, (question, expect)) in enumerate(CASES.items()):
        expected = plain(table, **expect(table), rate=rates[question.policy is not None])
        np.testing.assert_allclose(made[:, q], expected, rtol=1e-9, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("missing", [False, True])
def test_row_by_row_is_the_log_in_any_cut(missing: bool) -> None:
    table = log(missing)
    whole = horde_of(*all_questions(), table=table).run(table)
    by_row = horde_of(*all_questions(), table=table)
    np.testing.assert_allclose([by_row.observe(row) for row in rows_of(table)], whole, rtol=1e-10, atol=1e-10)
    assert by_row.rows == T
    K = by_row.learner.K
    assert K == 15
    horde, at = horde_of(*all_questions(), table=table), 0
    for size in (6, K, K + 1, 61, T - 2 * K - 68):  # one block has as many steps as there are learners
        made = horde.run({name: column[at : at + size] for name, column in table.items()})
        np.testing.assert_allclose(made, whole[at : at + size], rtol=1e-10, atol=1e-10)
        at += size
    assert at == T
    assert horde.hold.missing.tolist() == by_row.hold.missing.tolist()


def test_a_cut_is_a_gap() -> None:
    table = log(gaps=True)
    whole = horde_of(*all_questions(), table=table).run(table)
    horde, made = horde_of(*all_questions(), table=table), []
    for t, row in enumerate(rows_of(table)):
        if t in (60, 61, 150):
            horde.cut()
        made.append(horde.observe(row))
    np.testing.assert_allclose(made, whole, rtol=1e-10, atol=1e-10)
    uncut = horde_of(*all_questions())
    other = np.array([uncut.observe(row) for row in rows_of(table)])
    assert (np.abs(other - whole)[62:].max(axis=0) > 1e-6).all()


def test_an_observation_in_any_form() -> None:
    table = log()
    questions = [question for question in all_questions() if "way" not in str(question.policy)]
    names = horde_of(*questions).features.signals
    table["door"][:] = None
    first, second, third = (horde_of(*questions) for _ in range(3))
    for t, row in enumerate(rows_of(table)[:60]):
        expected = first.observe(row)
        spare = {name: value for name, value in row.items() if isinstance(value, str) or value == value}
        bad = {name: (None, math.inf, -math.inf)[t % 3] for name in names if name not in spare}
        np.testing.assert_array_equal(second.observe({**spare, **bad, "unknown": "?"} if t % 2 else spare), expected)
        listed: Any = [row[name] if row[name] == row[name] else None for name in names]
        np.testing.assert_array_equal(third.observe(np.array(listed, np.float64) if t % 2 else listed), expected)


def test_action_and_mu_of_the_caller() -> None:
    table = log()
    target = {0: 0.3, 1: 0.7}
    told = horde_of(
        GVF("x", gamma=0.8, policy=Policy(target, "move", "mu"), name="given"),
        GVF("x", gamma=0.8, policy=Policy(target, "move"), name="counted"),
    )
    asked = horde_of(
        GVF("x", gamma=0.8, policy=Policy(target, behaviour=0.123), name="given"),
        GVF("x", gamma=0.8, policy=Policy(target), name="counted"),
    )
    for t, row in enumerate(rows_of(table)):
        if row["move"] != row["move"] or row["mu"] != row["mu"]:
            row["move"], row["mu"] = 1.0, 0.5
        action = [row["move"], int(row["move"]), np.int64(row["move"]), str(int(row["move"]))][t % 4]
        a, b = (
            told.observe(row),
            asked.observe({**row, "move": None}, action=action, mu=(row["mu"], np.float64(row["mu"]))[t % 2]),
        )
        assert a[0] == pytest.approx(b[0], abs=1e-12)
    asked.observe(row, action=True, mu=np.float32(0.5))
    with pytest.raises(ValueError, match=r"'action'.*'given'"):
        asked.run(table)


# ---------------------------------------------------------------------------------------------------- refusals


def state(horde: Horde, folder: Path) -> bytes:
    horde.save(folder / "state")
    return (folder / "state").read_bytes()


def test_what_is_refused_changes_nothing(tmp_path: Path) -> None:
    features = f.Features([*parts(), f.TimeOfDay(bins=4)])
    questions = [
        GVF("x", horizon=5), GVF("x", gamma="y / 10"), GVF("x", horizon=3, interest="mu"),
        GVF("x", horizon=4, policy=Policy({0: 0.5, 1: 0.5}, "move", "mu")),
        GVF("x", horizon=6, policy=Policy({0: 0.5, 1: 0.5}, "move")),
        GVF("x", horizon=7, policy=Policy({"up": 0.5, "down": 0.5}, "way")),
    ]  # fmt: skip
    table = log() | {"time": np.datetime64("2020-01-01") + np.arange(T) * np.timedelta64(60, "s")}
    horde = Horde(questions, features).warm_up(table)
    when = 1.6e9
    good = {"x": 1.0, "y": 2.0, "end": 0.0, "move": 1.0, "mu": 0.5, "door": "open", "way": "up"}
    for t in range(30):
        horde.observe(good | {"x": float(t % 7)}, time=when)
    before = state(horde, tmp_path)
    bad: list[tuple[str, Any, dict[str, Any]]] = [
        ("observation", {**good, "x": "high"}, {}), ("observation", {**good, "x": [1.0, 2.0]}, {}),
        ("observation", {**good, "x": 1j}, {}), ("observation", {**good, "x": 10**400}, {}),
        ("observation", {**good, "door": ["open"]}, {}), ("observation", [1.0, 2.0], {}), ("observation", "12345", {}),
        ("observation", 5, {}), ("observation", None, {}), ("observation", [1.0, 2.0, 0.0, 1.0, "x"], {}),
        ("observation", np.ones((5, 2)), {}), ("gamma", {**good, "y": 20.0}, {}), ("gamma", {**good, "y": -1.0}, {}),
        ("interest", {**good, "mu": -1.0}, {}), ("mu", {**good, "mu": 0.0}, {}), ("mu", {**good, "mu": 1.5}, {}),
        ("mu", good, {"mu": 0.0}), ("mu", good, {"mu": math.nan}), ("mu", good, {"mu": "half"}),
        ("action", good, {"action": ["up"]}), ("action", good, {"action": math.nan}), ("time", good, {"time": None}),
        ("time", good, {"time": "noon"}),
    ]  # fmt: skip
    for name, observation, more in bad:
        with pytest.raises(ValueError, match=f"The '{name}' parameter"):
            horde.observe(observation, **{"time": when, **more})
        assert state(horde, tmp_path) == before, (name, observation, more)

    def broken(o: Any) -> float:
        return 1 / float(o["x"] - 99)

    other = horde_of(GVF("x", horizon=3, policy=Policy({0: 0.5, 1: 0.5}, "move")), GVF(broken, horizon=3))
    with pytest.raises(ZeroDivisionError):
        other.observe({**good, "x": 99.0})
    assert other.counts == {}
    assert other.rows == other.hold.rows == 0


def test_tables_that_do_not_fit() -> None:
    horde = horde_of(GVF("x", horizon=3))
    for table in ({"x": [1.0, 2.0]}, {**log(), "more": np.ones(T)}):
        with pytest.raises(ValueError, match=r"'table'.*x, y, end, move, mu, door, way"):
            horde.run(table)
    learned = horde.run(log())
    with pytest.raises(ValueError, match="'cumulant'"):
        horde.warm_up({"z": np.arange(9.0)})
    horde.cut()
    assert np.isfinite(learned).all()
    horde.observe(rows_of(log())[5])  # as if nothing had been


@pytest.mark.parametrize(
    ("match", "given"),
    [
        ("questions", {"questions": []}),
        ("questions", {"questions": GVF("x", horizon=2)}),
        ("questions", {"questions": ["x"]}),
        ("questions.*'x@2' twice", {"questions": [GVF("x", horizon=2)] * 2}),
        ("features", {"features": [f.Bias()]}),
        *(
            ("'rate' parameter of Horde must be a finite number above 0. Got", {"rate": rate})
            for rate in (0, -1, "0.3", [0.1], {"td": 0.1}, True, 1j, math.nan, math.inf, 10**400, np.float64(-1))
        ),
        ("rates", {"rates": 0.1}),
        ("rule", {"rule": "true_online_etc"}),
        ("decay", {"rule": "etd_beta"}),
        ("beta", {"rule": "true_online_etd", "beta": 0.5}),
        ("pi", {"rule": "tree_backup"}),
    ],
)
def test_what_a_horde_cannot_be(match: str, given: dict[str, Any]) -> None:
    whole = {"questions": [GVF("x", horizon=2)], "features": f.Features(parts()), **given}
    with pytest.raises(ValueError, match=match):
        Horde(**whole)


def test_before_the_warm_up() -> None:
    horde = Horde([GVF("x", horizon=2)], f.Features(parts()))
    for use in (lambda: horde.observe({"x": 1.0}), horde.cut, lambda: horde.learner, lambda: horde.gamma):
        with pytest.raises(RuntimeError, match="warm"):
            use()


def test_a_long_episode_is_no_cause_for_a_warning() -> None:
    table = log()
    table["end"][:] = 0.0
    horde_of(GVF("y", gamma="1 - end")).run(table)
    with pytest.warns(UndiscountedWarning, match="y@1"):
        horde_of(GVF("y", gamma=1.0))


def test_a_question_whose_learner_diverges_is_named_once() -> None:
    horde = Horde([GVF("x", gamma=1.0), GVF("x", horizon=5)], f.Features([f.Bias()]))
    with (
        pytest.warns(UndiscountedWarning),
        pytest.warns(DivergenceWarning, match=r"^The learner of 'x@1\.0' diverged and is frozen: .*Choose γ below 1"),
    ):
        horde.run({"x": np.full(2000, 5.0)})
    horde.observe({"x": 5.0})
    assert horde.learner.frozen.tolist() == [True, False]
    other = Horde([GVF("x", horizon=5), GVF("x", horizon=6)], f.Features([f.Bias()]), rate=1e9).prepare(["x"])
    other.begin({"x": 1.0})
    with pytest.warns(DivergenceWarning, match=r"^The learners of 'x@5', 'x@6' diverged and are frozen: their"):
        assert len([other.learn(0, 1.0, {"x": 1.0}, terminated=False) for _ in range(100)]) == 100


def test_wild_readings_and_a_learner_that_diverges() -> None:
    table = log()
    table["x"][[50, 51, 120]] = 1e300, -1e300, 1.7e308
    questions = GVF("x", horizon=9), GVF("x / y", horizon=9)
    assert np.abs(horde_of(*questions, table=table).run(table)).max() < 50
    horde = horde_of(*questions, rate=1.0, alpha=[0.1, 1e9], table=table)
    with pytest.warns(DivergenceWarning, match="'x / y@9'"):
        assert np.abs(horde.run(table)[:, 0]).max() < 50
    assert horde.learner.frozen.tolist() == [False, True]
    assert np.isfinite(np.array([horde.observe(row) for row in rows_of(log())])).all()


def test_another_rule() -> None:
    """Without emphasis every step counts as 1, and as M is then 1 − γλ times larger than in a steady ETD, so is α."""
    table = log(missing=False)
    gamma, lambda_ = 8 / 9, 5 / 9
    M = 1 - gamma * lambda_
    etd = horde_of(GVF("x", horizon=9), table=table).run(table)
    td = horde_of(GVF("x", horizon=9), rule="true_online_td", engine="reference", rate=RATE * M, table=table).run(table)
    np.testing.assert_allclose(td, etd, rtol=1e-10, atol=1e-10)


# ---------------------------------------------------------------------------------------------------- the truth


def test_off_policy_answers_are_the_values_of_the_target() -> None:
    """Five states in a ring; the behaviour goes right half the time, the target nine times in ten."""
    S, gamma, rng = 5, 0.8, np.random.default_rng(11)
    reward = np.array([0.0, 1.0, -1.0, 2.0, 5.0])
    steps = 30_000
    right = rng.random(steps) < 0.5
    state = np.cumsum(np.concatenate([[0], np.where(right[:-1], 1, -1)])) % S
    table = {"s": state.astype(float), "x": reward[state], "right": right.astype(float)}
    target = {1: 0.9, 0: 0.1}
    P = 0.9 * np.roll(np.eye(S), 1, axis=1) + 0.1 * np.roll(np.eye(S), -1, axis=1)
    assert stationary(P) == pytest.approx(0.2)
    v = true_values(P, P @ reward, np.full(S, gamma)) * (1 - gamma)
    behave = 0.5 * np.roll(np.eye(S), 1, axis=1) + 0.5 * np.roll(np.eye(S), -1, axis=1)
    b = true_values(behave, behave @ reward, np.full(S, gamma)) * (1 - gamma)
    assert np.abs(v - b).max() > 0.3
    horde = Horde(
        [
            GVF("x", gamma=gamma, policy=Policy(target, "right", 0.5), name="given"),
            GVF("x", gamma=gamma, policy=Policy(target, "right"), name="counted"),
            GVF("x", gamma=gamma, name="as things go"),
        ],
        f.Features([f.OneHot("s", categories=[0, 1, 2, 3, 4])]), rate=0.01,
    )  # fmt: skip
    made = horde.run(table)[-15_000:]
    late = state[-15_000:]
    answers = np.array([[made[late == s, q].mean() for s in range(S)] for q in range(3)])
    spread = np.ptp(v)
    assert np.abs(answers[0] - v).max() < 0.05 * spread
    assert np.abs(answers[1] - answers[0]).max() < 0.02 * spread
    assert np.abs(answers[2] - b).max() < 0.05 * spread


# ---------------------------------------------------------------------------------------------------- keeping


def saved_questions() -> list[GVF]:
    return [
        q for q in all_questions() if not any(callable(v) for v in (q.cumulant, q.gamma)) and "function" not in q.name
    ]


@pytest.mark.parametrize("at", [0, 1, 2, 59, 60, 61, 100])
def test_goes_on_with_the_same_bits(at: int, tmp_path: Path) -> None:
    rows = rows_of(log())
    horde = horde_of(*saved_questions())

    def go_on(horde: Horde, begin: int, end: int) -> list[list[float]]:
        out = []
        for t in range(begin, end):
            if t == 60:
                horde.cut()
            out.append(horde.observe(rows[t]).tolist())
        return out

    go_on(horde, 0, at)
    if at == 60:
        horde.cut()
    horde.save(tmp_path / "model", note={"a": 1}, table=np.arange(3))
    steps = horde.learner.steps
    other, more = Horde.load_with(tmp_path / "model")
    assert more.pop("table").tolist() == [0, 1, 2]
    assert more == {"note": {"a": 1}}
    assert other.questions == horde.questions
    assert other.rows == at
    assert state(other, tmp_path) == state(horde, tmp_path)
    assert go_on(other, at, 140) == go_on(horde, at, 140)
    rest = {name: column[140:] for name, column in log().items()}
    assert other.run(rest).tolist() == horde.run(rest).tolist()
    with pytest.warns(UserWarning, match=r"model' holds a Horde; .* its learner\. emphatic\.Horde\.load opens"):
        learner = emphatic.load(tmp_path / "model")
    assert learner.K == horde.learner.K
    assert learner.steps == steps


@pytest.mark.plain
def test_a_horde_is_loaded_with_any_engine_that_is_there(tmp_path: Path) -> None:
    x, path = np.sin(np.arange(60.0) / 5), tmp_path / "m.safetensors"
    horde = Horde([GVF("x", horizon=3), GVF("x", horizon=9)], f.Features([f.Bias(), f.SoftBins("x", bins=3)]))
    horde.run({"x": x})
    horde.save(path)
    expected = [horde.observe({"x": value}) for value in x[:20]]
    for engine in ("reference", "dense", "sparse", "auto"):
        other = Horde.load(path, engine=engine)
        assert other.learner.engine == engine
        got = [other.observe({"x": value}) for value in x[:20]]
        assert np.allclose(got, expected, rtol=0, atol=1e-10)
        other.save(tmp_path / "again")
        again = Horde.load(tmp_path / "again")
        assert np.array_equal(again.observe({"x": 0.5}), other.observe({"x": 0.5}))
    with pytest.raises(ValueError, match=r"'engine' parameter of load must be 'auto' or one of .*'spars'"):
        Horde.load(path, engine="spars")
    if "cuda" not in emphatic.engines.available():
        with pytest.raises(ValueError, match="must name an engine for this machine, such as 'auto'"):
            Horde.load(path, engine="cuda")


def test_functions_are_not_saved(tmp_path: Path) -> None:
    horde = horde_of(GVF("x", horizon=2), GVF(lambda o: 1.0, horizon=2, name="mine"))
    with pytest.raises(ValueError, match="'mine' has a function"):
        horde.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def rewritten(path: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> None:
    """The file with its header and arrays changed."""
    with open(path, "rb") as file:
        metadata, stored = tensors.read(file)
        arrays = {name: part.array() for name, part in stored.items()}
    header = json.loads(metadata["emphatic"])
    header.pop("blake2b")  # which would find the change before all else; it is written anew
    change(header, arrays)
    made = {name: tensors.TensorPart.of(np.ascontiguousarray(array)) for name, array in arrays.items()}
    checkpoint.write(path, header, made)


def _damages() -> dict[str, Callable[[dict[str, Any], dict[str, Any]], None]]:
    def told(*keys: Any, value: Any) -> Callable[[dict[str, Any], dict[str, Any]], None]:
        def change(header: dict[str, Any], arrays: dict[str, Any]) -> None:
            inner = header["horde"]
            for key in keys[:-1]:
                inner = inner[key]
            inner[keys[-1]] = value

        return change

    def array(name: str, value: Callable[[Any], Any]) -> Callable[[dict[str, Any], dict[str, Any]], None]:
        def change(header: dict[str, Any], arrays: dict[str, Any]) -> None:
            arrays[name] = value(arrays[name])

        return change

    def without(name: str) -> Callable[[dict[str, Any], dict[str, Any]], None]:
        return lambda header, arrays: arrays.pop(name)

    def bare(key: str) -> Callable[[dict[str, Any], dict[str, Any]], None]:
        return lambda header, arrays: header["horde"].pop(key)

    keys = (
        "questions", "categories", "rate", "rule", "step", "scaled", "kind", "extra", "rows", "features", "hold",
        "counts", "more", "signals", "mu", "alpha", "centred",
    )  # fmt: skip
    return {
        "no horde": lambda header, arrays: header.pop("horde"),
        "a horde of nothing": lambda header, arrays: header.update(horde=None),
        **{f"no {key}": bare(key) for key in keys},
        **{f"{key} a list": told(key, value=[1, [2]]) for key in keys},
        "no questions": told("questions", value=[]),
        "one question fewer": told("questions", value=[{"cumulant": "x", "horizon": 2}]),
        "hostile question": told("questions", 0, "cumulant", value="__import__('os').system('false')"),
        "unknown signal": told("questions", 0, "cumulant", value="z"),
        "another rule": told("rule", value="td"),
        "another engine": told("kind", value={"engine": "warp"}),
        "rate": told("rate", value=-0.1),
        "counts": told("counts", value=[{"1": -1}] * 6),
        "counts of text": told("counts", value=[{"1": "many"}] * 6),
        "few counts": told("counts", value=[]),
        "rows": told("rows", value="many"),
        "hold": told("hold", "last", value=[1.0]),
        "hold's counts": told("hold", "missing", value=[1]),
        "long base": array("horde.base", lambda a: np.append(a, 1.0)),
        "base NaN": array("horde.base", lambda a: a * np.nan),
        "now": array("horde.now", lambda a: a.astype(np.float32)),
        "fresh": array("horde.fresh", lambda a: a[1:]),
        "two rows": array("horde.indices", lambda a: np.vstack([a, a])),
        "indices out of range": array("horde.indices", lambda a: a + 1000),
        "negative indices": array("horde.indices", lambda a: a - 1000),
        "values NaN": array("horde.values", lambda a: a * np.nan),
        "no values": without("horde.values"),
        "knots": array("features.knots", lambda a: a[::-1]),
        "theta": array("theta", lambda a: a[:, 1:]),
    }


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    horde = horde_of(*saved_questions())
    horde.run(log())
    path = tmp_path_factory.mktemp("model") / "model"
    horde.save(path)
    rewritten(path, lambda header, arrays: None)
    assert Horde.load(path).rows == T
    return path.read_bytes()


@pytest.mark.parametrize("name", _damages())
def test_damaged_files(name: str, model: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.write_bytes(model)
    rewritten(path, _damages()[name])
    with pytest.raises(CheckpointError, match="model"):
        Horde.load(path)


def test_files_of_others(model: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model"
    emphatic.TrueOnlineETD(3).save(path)
    with pytest.raises(CheckpointError, match=r"not a Horde: use emphatic\.load"):
        Horde.load(path)
    for size in (0, 7, 100, len(model) // 2, len(model) - 1):
        path.write_bytes(model[:size])
        with pytest.raises(CheckpointError):
            Horde.load(path)
    path.write_bytes(b"x,y\n1,2\n")
    with pytest.raises(CheckpointError):
        Horde.load(path)
    with pytest.raises(FileNotFoundError):
        Horde.load(tmp_path / "none")


def test_a_model_of_nexting_is_not_continued_as_a_horde(tmp_path: Path) -> None:
    """It has more than the horde, which a horde that is loaded by itself would not continue."""
    path, horde = tmp_path / "model", horde_of(GVF("x", horizon=3))
    horde.save(path, settings={"horizons": [3]}, run="1")
    for load in (Horde.load, emphatic.load):
        with pytest.raises(CheckpointError, match=r"model' is a model of emphatic\.nexting: ") as caught:
            load(path)
        assert str(caught.value).endswith("emphatic.nexting.load_model(path) loads what continues.")
    other, more = Horde.load_with(path)
    assert more == {"settings": {"horizons": [3]}, "run": "1"}
    assert other.run(log()).tolist() == horde.run(log()).tolist()


# ---------------------------------------------------------------------------------------------------- memory


def test_memory_does_not_grow_with_the_rows() -> None:
    def peak(rows: int) -> int:
        x = np.sin(np.arange(rows) * 0.1)
        table = open_table({"x": x})
        maker = f.Features([f.Bias(), f.SoftBins("x", bins=3)])
        horde = Horde([GVF("x", horizon=h) for h in (2, 8)], maker).warm_up(table)
        tracemalloc.start()
        for _ in horde.blocks(table):
            pass
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert horde.rows == rows
        return used

    peak(10_000)
    assert peak(100_000) < 1.2 * peak(20_000) + 1_000_000


def test_a_copy_is_another_horde() -> None:
    horde = horde_of(GVF("x", horizon=3))
    horde.run(log())
    other = copy.deepcopy(horde)
    row = rows_of(log())[7]
    assert horde.observe(row).tolist() == other.observe(row).tolist()
    assert (horde.rows, other.rows) == (T + 1, T + 1)
