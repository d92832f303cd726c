"""One stream through ``Horde.run``, ``observe`` and ``learn``: the same R, γ, ρ, interest and predictions."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import emphatic
from emphatic import GVF, Horde, Policy, rules
from emphatic import features as f
from emphatic.errors import CheckpointError
from emphatic.gvfs.evaluator import Evaluator
from emphatic.gvfs.gvf import Observations
from emphatic.nexting.tables import Block, Hold
from tests.hordes.test_horde import rewritten

Array = NDArray[np.float64]
SIGNALS = ("x", "y", "end", "move", "mu", "reward")
FIELDS = ("R", "known", "gamma", "rho", "interest")
RULES: dict[str, dict[str, Any]] = {
    "true_online_etd": {},
    "etd_beta": {"decay": 0.4},
    "td": {},
    "true_online_td": {},
    "gtd": {"eta": 0.5},
}


class Stream:
    """T rows: signals with holes, doors, and the rows that begin an episode; those before them may have terminated."""

    def __init__(self, seed: int, T: int, terminates: bool, missing: float) -> None:
        rng = np.random.default_rng(seed)
        self.T = T
        self.first = rng.random(T) < 0.15
        self.first[0] = True
        end = np.append(self.first[1:], False) & (rng.random(T) < 0.6) & ~self.first & terminates
        up = rng.choice([0.25, 0.5, 0.75], T)
        move = (rng.random(T) < up).astype(float)
        holes = rng.random((4, T)) < missing
        reward = np.where(self.first | holes[2], np.nan, rng.normal(size=T))
        self.columns: dict[str, Any] = {
            "x": np.where(holes[0], np.nan, rng.uniform(-2, 2, T)),
            "y": np.where(holes[1], np.nan, rng.uniform(0, 1, T)),
            "end": end.astype(float),
            # No action is taken in the last row of an episode.
            "move": np.where(holes[3] | np.append(self.first[1:], True), np.nan, move),
            "mu": np.where(move == 1, up, 1 - up),
            "reward": reward,
            "door": np.where(self.first, "open", rng.choice(np.array(["open", "shut", None], object), T)),
        }
        self.ended = end

    def row(self, t: int, reward: bool = True) -> dict[str, Any]:
        return {name: column[t] for name, column in self.columns.items() if reward or name != "reward"}

    def action(self, t: int) -> Any:
        move = float(self.columns["move"][t])
        return None if math.isnan(move) else move

    def episodes(self) -> list[dict[str, Any]]:
        """A table of each."""
        edges = [*np.flatnonzero(self.first).tolist(), self.T]
        return [{name: column[a:b] for name, column in self.columns.items()} for a, b in pairwise(edges)]


def door(row: Any) -> float | None:
    return None if math.isnan(row["x"]) else row["x"] + (row["door"] == "open")


def change(observation: Any, action: Any, reward: Any, following: Any) -> float:
    return float(following["x"] - observation["x"] + reward)


def push(observation: Any, action: Any, reward: Any, following: Any) -> float:
    """In a log the action is known of a question with a column of actions."""
    return 0.5 if action is None or math.isnan(action) else float(action + following["x"])


def fading(observation: Any, action: Any, reward: Any, following: Any) -> float:
    return 0.0 if following["end"] else 0.5 + 0.4 * float(following["y"])


def doubt(observation: Any, action: Any, reward: Any, following: Any) -> float:
    return abs(float(observation["y"]) + float(following["y"]))


def likely(observation: Any, action: Any) -> float:
    return 0.75 if (observation["y"] > 0.5) == (action == 1) else 0.25


def density(observation: Any, action: Any) -> float:
    return 1.5 + float(observation["y"] > 0.5) + float(action)


TABLE = {0: 0.25, 1: 0.75}
POLICIES: dict[str, Policy | None] = {
    "none": None,
    "count": Policy(TABLE, "move"),
    "table": Policy(TABLE, "move", {0: 0.5, 1: 0.5}),
    "column": Policy(TABLE, "move", "mu"),
    "number": Policy(likely, "move", 0.5),
    "function": Policy(likely, "move", density),
}
CUMULANTS: list[Any] = ["x", "reward", "x * y + reward", 1.0, door, change]
#: The last two are for streams that do not terminate.
GAMMAS: list[Any] = ["0.9 * (1 - end)", "(1 - end) * y", lambda row: 0.8 * (1.0 - row["end"]), fading, 0.75, 0.0]
INTERESTS: list[Any] = [None, 0.5, "y", lambda row: row["y"] + 1.0, doubt]
TERMINALS: list[Any] = [None, None, 2.0, "x", lambda row: row["y"], lambda o, a, r, n: float(n["x"] - o["y"])]


@st.composite
def cases(draw: st.DrawFn) -> tuple[Stream, list[GVF]]:
    terminates = draw(st.booleans())
    stream = Stream(draw(st.integers(0, 10**6)), draw(st.integers(2, 30)), terminates, draw(st.sampled_from([0, 0.2])))
    gammas = GAMMAS[:-2] if terminates else GAMMAS

    def question(q: int) -> GVF:
        policy = POLICIES[draw(st.sampled_from(sorted(POLICIES)))]
        return GVF(
            draw(st.sampled_from(CUMULANTS if policy is None else [*CUMULANTS, push])),
            gamma=draw(st.sampled_from(gammas)),
            policy=policy,
            interest=draw(st.sampled_from(INTERESTS)),
            terminal=draw(st.sampled_from(TERMINALS)),
            name=f"question {q}",
        )

    return stream, [question(q) for q in range(draw(st.integers(1, 4)))]


def observations(stream: Stream, values: Array, rows: slice, **more: Any) -> Observations:
    return Observations(SIGNALS, values[rows], {"door": stream.columns["door"][rows].tolist()}, **more)


@given(cases(), st.sampled_from(sorted(RULES)))
@settings(max_examples=60, deadline=None)
def test_targets_are_the_same(case: tuple[Stream, list[GVF]], rule: str) -> None:
    stream, questions = case
    values = np.stack([stream.columns[name] for name in SIGNALS], axis=1)
    held, _ = Hold(len(SIGNALS)).fill(values)
    new: Callable[[], Evaluator] = lambda: Evaluator(questions, SIGNALS, ("door",), None, rules.get(rule))  # noqa: E731
    whole = slice(0, stream.T)
    log = new()(observations(stream, values, whole), observations(stream, held, whole), None, ~stream.first)
    by_row, by_step = new(), new()
    before: Any = None
    for t in range(stream.T):
        row = slice(t, t + 1)
        pair = observations(stream, values, row), observations(stream, held, row)
        one = by_row(*pair, before, ~stream.first[row])
        ways = [one]
        if not stream.first[t]:
            ways.append(by_step.transition(before, *pair, bool(stream.ended[t])))
        for way in ways if not stream.first[t] else []:
            for field in FIELDS:
                expected = getattr(log, field)[t]
                np.testing.assert_array_equal(getattr(way, field)[0], expected, err_msg=f"{field} at {t}")
        before = pair
        for rows in before:
            rows.actions = [stream.action(t)]
    assert log.known.shape == (stream.T, len(questions))


def hordes(stream: Stream, questions: list[GVF], rule: str, scaled: bool) -> list[Horde]:
    parts = [
        f.Bias(), f.SoftBins("x", bins=3, range=(-2, 2)), f.SoftBins(f.Trace("y", steps=3), bins=3, range=(0, 1)),
        f.OneHot("door", categories=["open", "shut"]), f.Missing("x"),
    ]  # fmt: skip
    engine = "auto" if rule == "true_online_etd" else "reference"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", emphatic.UndiscountedWarning)
        return [
            Horde(questions, f.Features(parts), rule, rate=0.3, scaled=scaled, engine=engine, **RULES[rule]).warm_up(
                stream.columns
            )
            for _ in range(3)
        ]


@given(cases(), st.sampled_from(sorted(RULES)), st.booleans(), st.data())
@settings(max_examples=40, deadline=None)
def test_predictions_are_the_same(case: tuple[Stream, list[GVF]], rule: str, scaled: bool, data: st.DataObject) -> None:
    stream, questions = case
    log, by_row, by_step = hordes(stream, questions, rule, scaled)
    parts = []
    for episode in stream.episodes():
        log.cut()
        parts.append(log.run(episode))
    whole = np.concatenate(parts)
    waits = data.draw(st.integers(0, 3))
    for t in range(stream.T):
        if stream.first[t] and t:
            by_row.cut()
        row = by_row.observe(stream.row(t))
        np.testing.assert_allclose(row, whole[t], rtol=1e-9, atol=1e-9, err_msg=f"row {t}")
        if stream.first[t]:
            step: Array | None = by_step.begin(stream.row(t, reward=False))
        else:
            step = by_step.learn(
                stream.action(t - 1), stream.columns["reward"][t], stream.row(t, reward=False),
                bool(stream.ended[t]), mu=None, predict=waits == 0 or t % (waits + 1) == 0,
            )  # fmt: skip
        if stream.ended[t]:
            assert step is not None
            assert not step.any()
        elif step is not None:
            np.testing.assert_allclose(step, whole[t], rtol=1e-9, atol=1e-9, err_msg=f"step {t}")
    np.testing.assert_allclose(by_step.learner.theta, log.learner.theta, rtol=1e-9, atol=1e-9)
    assert by_step.rows == by_row.rows == log.rows == stream.T
    assert by_step.counts == by_row.counts == log.counts


# ---------------------------------------------------------------------------------------------------- transitions


def questions() -> list[GVF]:
    return [
        GVF("x", horizon=5),
        GVF("reward", gamma="0.9 * (1 - end)", interest="y", terminal=1.0),
        GVF("x + reward", gamma=0.5, policy=Policy(TABLE), name="counted"),
        GVF("y", gamma=0.8, policy=Policy(TABLE, behaviour="mu"), name="column"),
    ]


def prepared(asked: list[GVF] | None = None, **more: Any) -> Horde:
    parts = [f.Bias(), f.SoftBins("x", bins=4, range=(-2, 2)), f.SoftBins(f.Trace("y", steps=3), bins=3, range=(0, 1))]
    given: dict[str, Any] = {"rule": "true_online_etd", "rate": 0.3, **more}
    return Horde(questions() if asked is None else asked, f.Features(parts), **given).prepare(["x", "y", "end", "mu"])


class Agent:
    """Goes on with a horde, where it stands, through a stream."""

    def __init__(self, stream: Stream, **more: Any) -> None:
        self.stream, self.more, self.t = stream, more, 0

    def observation(self, t: int) -> dict[str, Any]:
        return {name: self.stream.columns[name][t] for name in ("x", "y", "end", "mu")}

    def go(self, horde: Horde, until: int, every: int = 1) -> list[Any]:
        out = []
        while self.t < until:
            t, stream = self.t, self.stream
            answers: Any
            if stream.first[t]:
                answers = horde.begin(self.observation(t))
            else:
                truncated = bool(t + 1 < stream.T and stream.first[t + 1] and not stream.ended[t])
                answers = horde.learn(
                    stream.action(t - 1), stream.columns["reward"][t], self.observation(t), bool(stream.ended[t]),
                    truncated, predict=t % every == 0,
                )  # fmt: skip
            out.append(None if answers is None else answers.tolist())
            self.t += 1
        return out


@pytest.mark.parametrize("every", [1, 4])
@pytest.mark.parametrize("more", [{}, {"centred": False, "scaled": False, "rate": 1.0, "alpha": 0.05}], ids=str)
def test_goes_on_with_the_same_bits(every: int, more: dict[str, Any], tmp_path: Path) -> None:
    stream, path = Stream(3, 80, True, 0.1), tmp_path / "model"
    begins, ends = np.flatnonzero(stream.first)[1:4].tolist(), (np.flatnonzero(stream.ended)[:2] + 1).tolist()
    assert ends
    for at in (1, 2, 3, 30, 31, *begins, *ends):
        horde, agent = prepared(**more), Agent(stream)
        agent.go(horde, at, every)
        horde.save(path)
        other, again = Horde.load(path), Agent(stream)
        again.t = at
        assert (other.in_episode, other.signals) == (horde.in_episode, ("x", "y", "end", "mu", "reward"))
        assert again.go(other, 80, every) == agent.go(horde, 80, every)
        assert other.learner.theta.tobytes() == horde.learner.theta.tobytes()
        assert other.counts == horde.counts
        assert set(horde.counts) == {"counted"}
        assert (other.rows, other.hold.state()) == (horde.rows, horde.hold.state())


@pytest.mark.parametrize("every", [1, 4])
def test_a_step_that_can_follow_goes_its_own_way_to_the_same_bits(every: int, tmp_path: Path) -> None:
    asked = [GVF("x", gamma=0.9), GVF(1.0, gamma=0.8, name="a constant"), GVF("reward", horizon=5)]
    single: dict[str, Any] = {"centred": False, "scaled": False, "rate": 1.0, "alpha": 0.05}
    one, other = prepared(asked, **single), prepared(asked, **single)
    rng = np.random.default_rng(1)
    rows = rng.uniform(0, 1, (60, 1, 5))
    rows[20, 0, 1], rows[30, 0, 4] = np.nan, 1e300  # one lacks a reading, another has one that is too large
    followed = 0
    for t, row in enumerate(rows):
        if t == 45:
            one.save(tmp_path / "model")
            one = Horde.load(tmp_path / "model")
        first, predict = t in (0, 10), t % every == 0
        block = Block(0, row, None, {}, gap=np.array([first]), terminated=np.array([t == 9]))
        if not first and t != 9 and one.can_follow(row):
            followed += 1
            answers = one.follow(row, predict)
        else:
            answers = one.advance(block, predict=predict)
        expected = other.advance(block, predict=predict)
        assert (answers is None, expected is None) == (not (predict or t in (0, 9, 10)),) * 2
        assert answers is None or answers.tobytes() == expected.tobytes()  # type: ignore[union-attr]
    assert followed == 60 - 3 - 2
    assert one.learner.theta.tobytes() == other.learner.theta.tobytes()
    assert (one.rows, one.hold.state()) == (other.rows, other.hold.state())
    assert not prepared().can_follow(rows[0])


def test_a_log_of_transitions_replays_to_the_same_weights() -> None:
    stream = Stream(6, 90, True, 0.1)
    horde = prepared(record=True, rate=0.3)
    Agent(stream).go(horde, 90)
    again = emphatic.Learner("true_online_etd", horde.features.n, K=4)
    again.run(**horde.log())
    np.testing.assert_allclose(again.theta, horde.learner.theta, rtol=1e-10, atol=1e-12)
    with pytest.raises(RuntimeError, match="only transitions"):
        horde.observe(Agent(stream).observation(0))


def test_alpha_is_one_a_question_and_the_rate_is_a_factor_of_it() -> None:
    stream = Stream(7, 40, True, 0.0)
    plain: dict[str, Any] = {"centred": False, "scaled": False}
    whole = prepared(alpha=[0.1, 0.2, 0.3, 0.4], rate=0.5, **plain)
    Agent(stream).go(whole, 40)
    for q in range(4):
        alone = prepared([questions()[q]], alpha=0.1 * (q + 1) * 0.5, rate=1.0, **plain)
        Agent(stream).go(alone, 40)
        np.testing.assert_allclose(whole.learner.theta[q], alone.learner.theta[0], rtol=1e-9, atol=1e-12)
    with pytest.raises(ValueError, match="'alpha' parameter"):
        prepared(alpha=[0.1, 0.2])
    with pytest.raises(ValueError, match="'alpha' parameter"):
        prepared(alpha=-0.1)


def test_what_is_refused_changes_nothing(tmp_path: Path) -> None:
    stream = Stream(8, 40, True, 0.0)
    horde, agent = prepared(), Agent(stream)
    with pytest.raises(RuntimeError, match=r"call begin\(observation\)"):
        horde.learn(1, 0.0, agent.observation(0), False)
    agent.go(horde, int(np.flatnonzero(stream.first)[1]) - 1)
    assert horde.in_episode

    def state() -> bytes:
        horde.save(tmp_path / "state")
        return (tmp_path / "state").read_bytes()

    before, good = state(), agent.observation(30)
    bad: list[tuple[str, dict[str, Any]]] = [
        ("observation", {"observation": [1.0, 2.0]}),
        ("observation", {"observation": good | {"x": "high"}}),
        ("observation", {"reward": "much"}),
        ("observation", {"observation": "none"}),
        ("mu", {"mu": 0.0}),
        ("mu", {"mu": math.inf}),
        ("mu", {"mu": "half"}),
        ("action", {"action": ["up"]}),
        ("gamma", {"observation": good | {"end": 3.0}}),
    ]
    for name, wrong in bad:
        step: dict[str, Any] = {"action": 1, "reward": 0.0, "observation": good, "terminated": False, **wrong}
        with pytest.raises(ValueError, match=f"The '{name}' parameter"):
            horde.learn(**step)
        assert state() == before, wrong
    with pytest.raises(ValueError, match="'observation' parameter of begin"):
        horde.begin([1.0])
    with pytest.raises(RuntimeError, match=r"cut\(\) first"):
        horde.observe(good)
    assert state() == before
    horde.cut()
    horde.observe([1.0, 0.5, 0.0, 0.5, 0.0], action=1)


def test_an_episode_after_a_log_is_another_sequence(tmp_path: Path) -> None:
    stream = Stream(4, 60, False, 0.1)
    made = hordes(stream, [GVF("x", horizon=5), GVF("y", gamma="0.9 * (1 - end)")], "true_online_etd", True)
    for horde in made:
        for t in range(30):
            horde.observe(stream.row(t))
    made[1].cut()
    made[2].save(tmp_path / "model")
    made[2] = Horde.load(tmp_path / "model")
    for horde in made:
        horde.begin(stream.row(30, reward=False))
        for t in range(31, 60):
            horde.learn(None, stream.columns["reward"][t], stream.row(t, reward=False), False)
    assert made[0].learner.theta.tobytes() == made[1].learner.theta.tobytes() == made[2].learner.theta.tobytes()


def test_continuous_actions_in_rows_and_transitions() -> None:
    ask = [GVF("x", gamma=0.8, policy=Policy(lambda o, a: float(2.0 - abs(a[0]))), name="density")]
    by_row, by_step = prepared(ask, rate=0.3), prepared(ask, rate=0.3)
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1, 1, (20, 4))
    actions, mu = rng.uniform(-1, 1, (20, 1)), rng.uniform(0.5, 3.0, 20)
    by_step.begin(rows[0])
    for t in range(20):
        row = by_row.observe([*rows[t], 0.0], action=actions[t], mu=mu[t])
        if t:
            step = by_step.learn(actions[t - 1], 0.0, rows[t], False, mu=mu[t - 1])
            np.testing.assert_allclose(row, step, rtol=1e-10, atol=1e-12)
    assert np.abs(by_row.learner.theta).max() > 0.01
    with pytest.raises(ValueError, match=r"'mu'.*cannot be counted"):
        by_step.learn(actions[0], 0.0, rows[0], False)


def test_a_reward_is_not_held_into_the_next_episode() -> None:
    horde = prepared([GVF("x", gamma=0.8, interest="reward")], rate=0.3, record=True)
    for _ in range(2):
        horde.begin([1.0, 0.5, 0.0, 0.5])
        horde.learn(0, 2.0, [1.0, 0.5, 0.0, 0.5], False)
        horde.learn(0, 3.0, [1.0, 0.5, 0.0, 0.5], True)
    assert horde.log()["I"][:, 0].tolist() == [0.0, 2.0, 0.0, 2.0]


@pytest.mark.parametrize("reading", [math.nan, math.inf, -math.inf, 1e101, None])
def test_a_reading_that_is_missing_or_too_large_teaches_nothing(reading: Any) -> None:
    horde = prepared([GVF("x", gamma=0.8), GVF("y", gamma=0.8)], rate=0.3, record=True)
    horde.begin([1.0, 0.5, 0.0, 0.5])
    horde.learn(0, 2.0, [1.0, 0.5, 0.0, 0.5], False)
    horde.learn(0, 2.0, [reading, 0.5, 0.0, 0.5], False)
    assert horde.log()["rho"].tolist() == [[1.0, 1.0], [0.0, 1.0]]
    assert np.isfinite(horde.log()["R"]).all()


def test_what_was_missing_when_it_was_saved_is_missing_after(tmp_path: Path) -> None:
    ask = [GVF("x", gamma=0.8, policy=Policy(TABLE, behaviour="mu"))]
    horde = prepared(ask, rate=0.3)
    horde.begin([1.0, 0.5, 0.0, 0.5])
    horde.learn(1, 2.0, [0.5, 0.5, 0.0, math.nan], False)
    horde.save(tmp_path / "model")
    other = Horde.load(tmp_path / "model")
    before = horde.learner.theta
    for some in (horde, other):
        some.learn(1, 2.0, [-1.0, 0.5, 0.0, 0.5], False)  # without μ there is no ratio
        np.testing.assert_array_equal(some.learner.theta, before)
        some.learn(1, 2.0, [-1.0, 0.5, 0.0, 0.5], False)
        assert (some.learner.theta != before).any()


def test_functions_see_the_observation_as_it_was_given() -> None:
    seen: list[Any] = []

    def watch(*step: Any) -> float:
        seen.append(step)
        return 1.0

    def target(observation: Any, action: Any) -> float:
        seen.append((observation, action))
        return 0.5

    ask = [GVF(watch, gamma=0.5, policy=Policy(target, behaviour=0.5), name="watch")]
    horde = prepared(ask)
    first, second = {"x": 1.0, "y": None, "end": 0.0, "mu": 0.5}, {"x": 2.0, "y": 0.5, "end": 0.0, "mu": 0.5}
    horde.begin(first)
    horde.learn("go", 3.0, second, False)
    now = {"x": 1.0, "y": math.nan, "end": 0.0, "mu": 0.5, "reward": math.nan}
    following = second | {"reward": 3.0}
    assert repr(seen) == repr([(now, "go", 3.0, following), (now, "go")])


def test_features_of_time() -> None:
    maker = f.Features([f.Bias(), f.TimeOfDay(bins=4)]).warm_up(np.empty((0, 1)), names=["x"], time=np.empty(0))
    horde = Horde([GVF("reward", gamma=0.5)], maker).prepare(["x"])
    with pytest.raises(ValueError, match="'time'"):
        horde.begin([1.0])
    assert not horde.in_episode
    horde.begin([1.0], time=0.0)
    for predict in (True, False):
        with pytest.raises(ValueError, match="'time'"):
            horde.learn(0, 1.0, [1.0], False, predict=predict)
    assert horde.learn(0, 1.0, [1.0], False, time=7200.0, predict=False) is None
    assert horde.learn(0, 1.0, [1.0], False, time=14400.0) is not None
    assert horde.learner.steps == 2


def test_a_function_for_mu_is_given_again(tmp_path: Path) -> None:
    def mu(observation: Any, action: Any) -> float:
        return 0.25

    horde = prepared(mu=mu)
    Agent(Stream(1, 20, True, 0.0)).go(horde, 10)
    assert horde.counts == {}
    horde.save(tmp_path / "model")
    with pytest.raises(CheckpointError, match=r"'mu' was a function.*mu="):
        Horde.load(tmp_path / "model")
    assert Horde.load(tmp_path / "model", mu=mu).rows == 10
    for wrong in (0.0, -1.0, "count", [0.5], math.nan, lambda observation: 0.5):
        with pytest.raises(ValueError, match="'mu' parameter of Horde"):
            prepared(mu=wrong)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda header, arrays: header.update(signals=["x", "y"]), "signals"),
        (lambda header, arrays: header.update(episode={}), "not a valid Horde"),
        (lambda header, arrays: header.update(episode=5), "not a valid Horde"),
        (lambda header, arrays: header.update(alpha="much"), "alpha"),
        (lambda header, arrays: header.update(centred="yes"), "centred"),
        (lambda header, arrays: arrays.pop("horde.raw"), "horde.raw"),
        (lambda header, arrays: arrays.update({"horde.held": np.zeros(3)}), "held"),
        (lambda header, arrays: [arrays.pop("horde.indices"), arrays.pop("horde.values")], "no features"),
    ],
)
def test_damaged_files(change: Callable[[dict[str, Any], dict[str, Any]], Any], match: str, tmp_path: Path) -> None:
    path = tmp_path / "model"
    stream = Stream(2, 30, False, 0.0)
    horde = Horde([GVF("x", horizon=3)], f.Features([f.Bias(), f.OneHot("door", categories=["open"])]), rate=0.3)
    horde.warm_up(stream.columns)
    horde.begin(stream.row(0, reward=False))
    horde.learn(1, 0.5, stream.row(1, reward=False), False)
    horde.save(path)
    assert Horde.load(path).in_episode
    rewritten(path, lambda header, arrays: change(header["horde"], arrays))
    with pytest.raises(CheckpointError, match=match):
        Horde.load(path)


def test_names_of_an_observation() -> None:
    maker = f.Features([f.Bias()])
    with pytest.raises(ValueError, match=r"'names'.*without 'reward'"):
        Horde([GVF("x", horizon=3)], maker).prepare(["x", "reward"])
    with pytest.raises(ValueError, match="about the signals, x, reward"):
        Horde([GVF("z", horizon=3)], maker).prepare(["x"])
    maker.warm_up(np.zeros((0, 1)), names=["x"])
    with pytest.raises(ValueError, match=r"'features'.*component"):
        Horde([GVF("y", horizon=3)], maker).prepare(["y"])


@pytest.mark.parametrize("ending", [{"terminated": True}, {"terminated": False, "truncated": True}])
def test_no_step_leads_from_an_episode_to_a_log(ending: dict[str, bool]) -> None:
    horde = Horde([GVF("reward", gamma=0.9)], f.Features([f.Bias()]), "td", rate=0.5, centred=False).prepare(["x"])
    horde.observe({"x": 0.0, "reward": 1.0})
    horde.observe({"x": 0.0, "reward": 1.0})
    horde.begin({"x": 0.0})
    horde.learn(0, 1.0, {"x": 0.0}, **ending)
    theta = horde.learner.theta
    horde.observe({"x": 0.0, "reward": 100.0})
    assert np.array_equal(horde.learner.theta, theta)
    assert not np.any(horde.learner.e * horde.learner.gamma[:, None])  # nothing of it lives on


def test_a_row_that_a_function_refuses_loses_no_other() -> None:
    """Also where steps would be put off."""

    def refuse(row: Any) -> float:
        if row["x"] > 0.9:
            raise ValueError("too large")
        return float(row["x"])

    maker = f.Features([f.Bias(), f.Function(refuse, name="refuse")])
    horde = Horde([GVF("reward", gamma=0.9)], maker, "td", rate=0.1, centred=False).prepare(["x"])
    horde.begin({"x": 0.1})
    for x in (0.2, 0.3):
        assert horde.learn(0, 1.0, {"x": x}, terminated=False, predict=False) is None
    with pytest.raises(ValueError, match="too large"):
        horde.learn(0, 1.0, {"x": 1.0}, terminated=False, predict=False)
    horde.learn(0, 1.0, {"x": 0.4}, terminated=False)
    assert (horde.learner.steps, horde.rows) == (3, 4)


@pytest.mark.parametrize("flag", ["False", None, np.nan, 1])
def test_terminated_is_true_or_false(flag: Any) -> None:
    horde = Horde([GVF("reward", gamma=0.9)], f.Features([f.Bias()]), "td", rate=0.5).prepare(["x"])
    horde.begin({"x": 0.0})
    with pytest.raises(ValueError, match="'terminated' parameter of learn must be True or False"):
        horde.learn(0, 1.0, {"x": 0.0}, terminated=flag)
