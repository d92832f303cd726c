"""Rules of one's own, and rules that use π and μ themselves, beside an agent and in logs; and own feature functions."""

from __future__ import annotations

import math
import pickle
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emphatic
from emphatic import GVF, CheckpointError, Horde, Learner, Policy, Rule
from emphatic import features as f

gymnasium = pytest.importorskip("gymnasium", reason="the extra 'gym' is not installed")

from emphatic.gymnasium import LearnGVFs, LearnGVFsVector  # noqa: E402

LEFT = [
    GVF("reward", gamma=0.9, lambda_=0.8, policy=Policy({0: 1.0}), name="left"),
    GVF("o2", gamma=0.5, lambda_=0.3, policy=Policy({0: 0.7, 1: 0.3}), name="mostly left"),
]


def _step(step: Any, memory: Any, x: Any, x_next: Any, g: Any) -> Any:
    alpha, I, lambda_, rho, gamma_next, delta = step
    (gamma,) = memory
    c = rho * gamma * lambda_
    s = rho * I
    w = alpha * delta
    return ((1.0, w * c), (0.0, c)), ((w * s, 0.0), (s, 0.0)), (gamma_next,)


def _slower(step: Any, memory: Any, x: Any, x_next: Any, g: Any) -> Any:
    """Half of TD(0), with the vectors and the memory of td."""
    alpha, I, lambda_, rho, gamma_next, delta = step
    (gamma,) = memory
    return ((1.0, 0.0), (0.0, 0.0)), ((0.5 * alpha * delta, 0.0), (0.0 * gamma, 0.0)), (gamma_next,)


#: td under another name.
OWN = Rule("my_td", _step, weights=("theta",), traces=("e",), memory=("gamma",))


def phi(observation: Any) -> Any:
    return np.array([1.0, *np.tanh(observation)])


def walk(env: Any, steps: int = 120) -> Any:
    env.reset(seed=3)
    rng = np.random.default_rng(3)
    for _ in range(steps):
        _, _, terminated, truncated, info = env.step(int(rng.integers(2)))
        if terminated or truncated:
            env.reset()
    return info.get("predictions")


def cart(rule: Any, features: Any = phi, **more: Any) -> Any:
    return LearnGVFs(gymnasium.make("CartPole-v1"), LEFT, features, rule=rule, alpha=0.05, engine="reference", **more)


@pytest.mark.parametrize(
    ("rule", "extra"), [("tree_backup", {}), ("abtd", {"xi": 1.5}), ("vtrace", {}), ("vtrace", {"rho_bar": 1.2})]
)
def test_rules_that_use_the_probabilities(rule: str, extra: dict[str, float]) -> None:
    """π and μ of every step are the policies' and the agent's; a learner with the log comes to the same weights."""
    env = cart(rule, record=True, **extra)
    walk(env)
    log, learner = env.log(), Learner(rule, 5, 2, engine="reference")
    learner.run(**log)
    assert np.abs(learner.theta).max() > 0.1
    assert env.episodes.theta == pytest.approx(learner.theta, rel=1e-9)
    if rule == "vtrace":
        return
    taken = log["rho"][:, 1] > 0.0  # not a cut
    assert set(log["pi"][taken, 0]) == {0.0, 1.0}
    assert set(log["pi"][taken, 1]) == {0.7, 0.3}
    assert np.array_equal(log["pi"][:, 1][taken], 0.5 * log["rho"][:, 1][taken])
    if rule == "abtd":
        assert set(log["mu"][taken, 1]) == {0.5}


OWN_BOUNDS = replace(emphatic.rules.get("bounded_etd"), name="own_bounds")


@pytest.mark.parametrize(
    ("rule", "given"),
    [
        *(("vtrace", {"rho_bar": end}) for end in (1.0, 1.5, math.inf, [1.0, math.inf], [math.inf, 1.5])),
        *((OWN_BOUNDS, {"low": end}) for end in (-math.inf, -0.1, [-math.inf, -0.1])),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_a_bound_that_may_be_infinite_is_saved(
    rule: Any, given: dict[str, float | list[float]], tmp_path: Path
) -> None:
    """V-trace's ρ̄, and the lower end of a range, which JSON cannot hold where they are infinite: one that is, is as
    none. Each question has its own. (The horde finds the range of ``bounded_etd`` itself.)"""
    rng = np.random.default_rng(0)
    log = {"x": rng.normal(size=300), "a": rng.integers(0, 2, 300)}
    policy = Policy({"0": 1.0}, column="a", behaviour={"0": 0.5, "1": 0.5}) if rule == "vtrace" else None
    questions = [GVF("x", gamma=gamma, lambda_=0.9, policy=policy) for gamma in (0.8, 0.7)]

    def horde(**extra: Any) -> Horde:
        bins = f.Features([f.Bias(), f.SoftBins("x", bins=4, range=(-3, 3))])
        return Horde(questions, bins, rule=rule, engine="reference", **extra)

    bounded, unbounded = horde(**given), horde()
    for learner in (bounded, unbounded):
        learner.run(log)
    bounded.save(tmp_path / "model.safetensors")
    again = Horde.load(tmp_path / "model.safetensors", rule=None if rule == "vtrace" else rule)
    predictions = bounded.run(log)
    assert np.array_equal(again.run(log), predictions)
    (end,) = given.values()
    same = (predictions == unbounded.run(log)).all(axis=0)
    assert np.array_equal(same, np.broadcast_to(np.isinf(end), 2))


@pytest.mark.parametrize("every", [1, 7])
def test_steps_that_are_put_off_have_their_probabilities(every: int) -> None:
    at_once, later = cart("tree_backup"), cart("tree_backup", every=every)
    walk(at_once)
    walk(later)
    assert later.episodes.theta == pytest.approx(at_once.episodes.theta, rel=1e-9)


def test_rows_of_a_log_have_their_probabilities(tmp_path: Path) -> None:
    """In blocks, row by row, and across a file; where the cumulant is missing the trace is forgotten."""
    rng = np.random.default_rng(0)
    x, action = rng.normal(size=300), rng.integers(0, 2, 300)
    x[100] = np.nan
    question = GVF("x", gamma=0.8, lambda_=0.9, policy=Policy({"0": 1.0}, column="a", behaviour={"0": 0.5, "1": 0.5}))

    def bins() -> f.Features:
        return f.Features([f.Bias(), f.SoftBins("x", bins=4, range=(-3, 3))])

    def horde() -> Horde:
        made = Horde([question], bins(), "tree_backup", rate=0.1, engine="reference")
        return made.warm_up({"x": x, "a": action.astype(float)}, rows=300)

    whole, rows = horde(), horde()
    at_once = whole.run({"x": x, "a": action.astype(float)})
    for t in range(150):
        rows.observe({"x": x[t], "a": float(action[t])})
    rows.save(tmp_path / "horde.safetensors")
    rows = Horde.load(tmp_path / "horde.safetensors")
    each = [rows.observe({"x": x[t], "a": float(action[t])}) for t in range(150, 300)]
    assert np.array(each) == pytest.approx(at_once[150:], rel=1e-9)
    td = Horde([question], bins(), "td", rate=0.1, engine="reference")
    assert np.abs(td.run({"x": x, "a": action.astype(float)})[-1] - at_once[-1]) > 1e-3


def test_densities_are_no_probabilities() -> None:
    question = GVF("x", gamma=0.8, policy=Policy(lambda observation, action: 3.0, behaviour=lambda o, a: 2.0))
    horde = Horde([question], f.Features([f.Bias()]), "tree_backup", rate=0.1, engine="reference").prepare(["x"])
    horde.begin({"x": 0.0})
    with pytest.raises(ValueError, match="'pi' parameter of GVF must be a probability, at most 1, for this rule"):
        horde.learn(0, 1.0, {"x": 1.0}, terminated=False)


def test_a_rule_of_ones_own_beside_an_agent(tmp_path: Path) -> None:
    """The same as td; saved, and loaded with the rule."""
    env, td = cart(OWN, _features()), cart("td", _features())
    assert walk(env) == pytest.approx(walk(td), rel=1e-12)
    assert env.episodes.hordes[0].rule == "my_td"
    path = tmp_path / "gvfs.safetensors"
    env.save(path)
    with pytest.raises(CheckpointError, match="rule 'my_td', which is not the library's: give that Rule again"):
        LearnGVFs.load(path, gymnasium.make("CartPole-v1"))
    again = LearnGVFs.load(path, gymnasium.make("CartPole-v1"), rule=OWN)
    assert np.array_equal(again.episodes.theta, env.episodes.theta)
    assert Horde.load(path, rule=OWN).rule == "my_td"


def test_a_rule_of_ones_own_in_vectors_and_logs() -> None:
    env = LearnGVFsVector(gymnasium.make_vec("CartPole-v1", num_envs=2), LEFT, phi, rule=OWN, engine="reference")
    env.reset(seed=1)
    env.step(np.array([0, 1]))
    _, _, _, _, info = env.step(np.array([0, 0]))
    assert info["predictions"].shape == (2, 2)
    x = np.sin(np.arange(200.0))
    answers = [
        Horde([GVF("x", horizon=4)], f.Features([f.Bias(), f.SoftBins("x", bins=3)]), rule, engine="reference").run(
            {"x": x}
        )
        for rule in (OWN, "td")
    ]
    assert answers[0] == pytest.approx(answers[1], rel=1e-12)


def _features() -> f.Features:
    return f.Features([f.Bias(), f.SoftBins("o2", bins=3, range=(-0.2, 0.2))])


def test_a_function_of_the_observation_makes_the_features() -> None:
    """It is given the observation as the environment gives it, and its numbers are φ."""
    seen: list[Any] = []

    def own(observation: Any) -> Any:
        seen.append(observation)
        return phi(observation)

    env = cart("td", own, record=True)
    observation, _ = env.reset(seed=1)
    env.step(0)
    assert env.episodes.features.n == 5
    assert all(one.dtype == np.float32 and one.shape == (4,) for one in seen)
    log = env.log()["Phi"]
    dense = np.zeros(5)
    dense[log.indices[0]] = log.values[0]
    assert dense == pytest.approx(phi(observation), rel=1e-6)


def test_a_rule_with_the_name_of_a_library_rule_is_not_loaded_as_that(tmp_path: Path) -> None:
    td = emphatic.rules.get("td")
    own = Rule("td", _slower, weights=td.weights, traces=td.traces, memory=td.memory)
    learner, path = emphatic.Learner(own, 2, engine="reference"), tmp_path / "m.safetensors"
    learner.run(np.eye(2), 1.0, 0.5, alpha=0.5)
    learner.save(path)
    with pytest.raises(CheckpointError, match="rule 'td', which is not the library's: give that Rule again"):
        emphatic.load(path)
    assert emphatic.load(path, rule=own).rule == own
    horde = Horde([GVF("x", gamma=0.8)], f.Features([f.Bias()]), own, rate=0.1, engine="reference")
    horde.run({"x": np.sin(np.arange(30.0))})
    horde.save(path)
    with pytest.raises(CheckpointError, match="rule 'td', which is not the library's: give that Rule again"):
        Horde.load(path)
    row = {"x": 0.5}
    assert np.array_equal(Horde.load(path, rule=own).observe(row), horde.observe(row))
    for rule in (td, pickle.loads(pickle.dumps(td)), deepcopy(td)):  # the library's own, wherever it comes from
        emphatic.Learner(rule, 2, engine="reference").save(path)
        assert emphatic.load(path).rule == td
