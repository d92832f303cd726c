"""Many agents at once: each is the ``Agent`` that steps alone; worlds against the book, NumPy and Gymnasium."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from emphatic import features as f
from emphatic import problems, rules
from emphatic.control import ALGORITHMS, WORLDS, Agents, Algorithm, Softmax, linear, many, tile_coding
from emphatic.problems import worlds
from emphatic.problems.control import words_of
from tests.support.plain import plain_python
from tests.support.streams import relative_error


def lengths_alone(agents: Agents, k: int, episodes: int, limit: int) -> tuple[Any, list[int]]:
    """Agent k stepped from Python in its world, as ``train`` does it; the agent, and the steps of its episodes."""
    agent, world = agents.alone(k)
    if not world.continuing:
        world.limit = limit
        return agent, agent.train(world, episodes).steps.tolist()
    action = agent.start(world.reset()[0])
    for _ in range(episodes * limit):
        observation, reward, _, _, _ = world.step(action)
        action = agent.step(reward, observation)
    return agent, [limit] * episodes


@pytest.mark.parametrize("algorithm", [*ALGORITHMS, "replacing"])
def test_each_of_many_agents_is_the_agent_alone(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same episodes and θ, with settings and random numbers of its own; three agents in two lanes."""
    monkeypatch.setattr(many, "GROUP", 2)
    world = "access_control" if algorithm.startswith("differential") else "cliff_walking"
    kind = Algorithm("replacing", rules.replacing_td) if algorithm == "replacing" else algorithm
    with plain_python():
        agents = Agents(kind, world, alpha=[0.1, 0.4, 0.2], lambda_=[0.8, 0.0, 0.5], epsilon=[0.1, 0.3, 0.2], seed=4)
        training = agents.train(3, limit=25)
        assert not training.diverged.any()
        for k in range(3):
            agent, steps = lengths_alone(agents, k, 3, 25)
            assert training.steps[k].tolist() == steps
            assert relative_error(agents.theta[k], agent.learner.theta) < 1e-12
            assert abs(agent.learner.theta).max() > 0.1
            if algorithm.startswith("differential"):
                assert agents.reward_rate[k] == pytest.approx(agent.reward_rate, abs=1e-12)


@pytest.mark.parametrize("algorithm", ["true_online_sarsa", "q", "gq", "replacing"])
def test_each_of_many_agents_with_dense_features_is_the_agent_alone(algorithm: str) -> None:
    """Three agents in different states, each with a dense φ, and with the unit vectors what one feature a state is."""
    kind = Algorithm("replacing", rules.replacing_td) if algorithm == "replacing" else algorithm
    phi = np.random.default_rng(1).normal(size=(48, 5)) / 5.0
    settings: dict[str, Any] = {"alpha": [0.1, 0.3, 0.2], "lambda_": [0.8, 0.0, 0.5], "seed": 4}
    with plain_python():
        agents = Agents(kind, "cliff_walking", features=phi, **settings)
        training = agents.train(2, limit=25)
        for k in range(3):
            agent, steps = lengths_alone(agents, k, 2, 25)
            assert training.steps[k].tolist() == steps
            assert agent.learner.n == agents.n * 4 == 20
            assert relative_error(agents.theta[k], agent.learner.theta) < 1e-12
            assert abs(agent.learner.theta).max() > 0.01
        unit, table = (Agents(kind, "cliff_walking", features=given, **settings) for given in (np.eye(48), None))
        assert np.array_equal(unit.train(1, limit=9).returns, table.train(1, limit=9).returns)
        assert relative_error(unit.theta, table.theta) < 1e-12


@pytest.mark.parametrize("world", WORLDS)
def test_every_world_is_the_same_for_many_agents_and_for_one(world: str) -> None:
    with plain_python():
        gamma = 0.9 if world == "access_control" else 1.0
        agents = Agents(
            "sarsa", world, 2, alpha=0.2, gamma=gamma, lambda_=0.7, epsilon=[linear(1.0, 0.1, 20), Softmax(0.5)]
        )
        training = agents.train(2, limit=15)
        theta = agents.theta
        returns = training.returns + agents.train(1, limit=5).returns.sum()  # training goes on where it was
        assert np.isfinite(returns).all()
        for k in range(2):
            agent, world_of_its_own = agents.alone(k)
            world_of_its_own.limit = 15
            if not world_of_its_own.continuing:
                assert agent.train(world_of_its_own, 2).returns.tolist() == training.returns[k].tolist()
                assert relative_error(theta[k], agent.learner.theta) < 1e-12


@pytest.mark.long
@pytest.mark.parametrize(
    ("algorithm", "world"), [("true_online_sarsa", "mountain_car"), ("q", "cliff_walking"), ("sarsa", "acrobot")]
)
def test_compiled_agents_are_those_alone(algorithm: str, world: str) -> None:
    """More agents than a group has, until some have finished before others."""
    agents = Agents(algorithm, world, 11, alpha=0.3, lambda_=0.9, epsilon=0.1)
    training = agents.train(20, limit=400)
    for k in (0, 7, 10):
        agent, steps = lengths_alone(agents, k, 20, 400)
        assert training.steps[k].tolist() == steps
        assert relative_error(agents.theta[k], agent.learner.theta) < 1e-12


def test_runs_of_the_same_number_have_the_same_random_numbers() -> None:
    with plain_python():
        agents = Agents("q", "windy_gridworld", alpha=0.5, runs=[3, 3, 4], epsilon=0.3)
        agents.train(1, limit=40)
        assert np.array_equal(agents.theta[0], agents.theta[1])
        assert not np.array_equal(agents.theta[0], agents.theta[2])


def test_an_agent_that_diverges_stops_alone() -> None:
    maker = f.Features([f.SoftBins(["o0", "o1"], bins=2, range=[(-1.2, 0.5), (-0.07, 0.07)])])
    with plain_python(), np.errstate(all="ignore"):
        agents = Agents("sarsa", "mountain_car", features=maker, alpha=[0.01, 1e200], lambda_=0.9)
        training = agents.train(2, limit=30)
        assert training.diverged.tolist() == [False, True]
        assert training.steps.tolist() == [[30, 30], [0, 0]]
        assert np.isnan(training.returns[1]).all()
        assert np.isfinite(agents.theta).all()
        assert agents.train(1, limit=3).steps.tolist() == [[3], [0]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"world": "mountain"},
            "'world' parameter of Agents must be one of mountain_car, .* Did you mean 'mountain_car'",
        ),
        ({"world": 3}, "'world' parameter"),
        ({"alpha": [0.1, 0.2], "lambda_": [0.1, 0.2, 0.3]}, "'lambda_' parameter of Agents must be one value or 2"),
        ({"alpha": []}, "'alpha' parameter of Agents must be one value or more"),
        ({"alpha": [0.1, -1.0]}, "'alpha' parameter of Agent must be 0 or more"),
        ({"algorithm": "differential_q", "gamma": 0.9}, "'gamma' parameter of Agent must be 1"),
        ({"world": "access_control"}, "'gamma' parameter of Agents must be below 1 for 'sarsa' in a world that never"),
        ({"K": 0}, "'K' parameter of Agents"),
        ({"seed": -1}, "'seed' parameter of Agents"),
        ({"runs": [-1]}, "'runs' parameter of Agents"),
        ({"features": f.Features([f.Bias()])}, "'features' parameter of Agents must be None for an MDP"),
        ({"features": np.eye(3)}, r"'features' parameter of Agents must be None .* \(48, n\). Got shape \(3, 3\)"),
        ({"features": np.full((48, 2), np.nan)}, "'features' parameter of Agents must be None .* of finite numbers"),
        ({"world": "mountain_car", "features": 3}, "'features' parameter of Agents must be a Features"),
        (
            {"world": "mountain_car", "features": f.Features([f.SoftBins(f.Trace("o0", steps=3), range=(0, 1))])},
            "'features' parameter of Agents must be a Features of readings with given ranges, without traces",
        ),
    ],
)
def test_bad_arguments_are_refused_in_one_line(changes: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"algorithm": "sarsa", "world": "cliff_walking", "alpha": 0.1} | changes
    with plain_python(), pytest.raises(ValueError, match=message) as error:
        Agents(arguments.pop("algorithm"), arguments.pop("world"), arguments.pop("K", None), **arguments)
    assert "\n" not in str(error.value)


def test_a_world_without_an_end_needs_a_limit() -> None:
    with plain_python():
        agents = Agents("differential_sarsa", "access_control", alpha=0.01)
        with pytest.raises(ValueError, match=r"'limit' parameter of Agents\.train must be given"):
            agents.train(1)
        with pytest.raises(ValueError, match=r"'episodes' parameter of Agents\.train"):
            agents.train(-1, limit=5)


# ---------------------------------------------------------------------- worlds


def test_random_numbers_are_those_of_numpy() -> None:
    with np.errstate(over="ignore"):
        for seed in (0, [3, 1]):
            (high, low, *step), generator = words_of(seed), np.random.default_rng(seed)
            plain, numbers = getattr(worlds.following, "py_func", worlds.following), []
            for _ in range(50):
                high, low, u = plain(high, low, *step)
                numbers.append(u)
            assert numbers == generator.random(50).tolist()


def test_mountain_car_moves_as_in_the_book() -> None:
    with plain_python():
        car = problems.MountainCar(1)
        (position, velocity), _ = car.reset()
        assert position == -0.6 + 0.2 * np.random.default_rng(1).random()
        for action in (2, 2, 0, 1, 2):
            (x, v), reward, ended, truncated, _ = car.step(action)
            velocity += 0.001 * (action - 1) - 0.0025 * math.cos(3.0 * position)
            position += velocity
            assert (x, v, reward, ended, truncated) == (position, velocity, -1.0, False, False)
        with pytest.raises(ValueError, match="'action' parameter of MountainCar must be from 0 to 2"):
            car.step(3)


def test_the_acrobots_accelerations_are_those_of_gymnasium() -> None:
    acrobot = pytest.importorskip("gymnasium.envs.classic_control.acrobot").AcrobotEnv()
    plain = getattr(worlds.accelerations, "py_func", worlds.accelerations)
    for place in np.random.default_rng(0).normal(size=(20, 4)):
        for torque in (-1.0, 0.0, 1.0):
            assert plain(place, torque) == pytest.approx(acrobot._dsdt(np.append(place, torque))[2:4], rel=1e-12)


def test_puddles_cost_what_their_depth_is() -> None:
    plain = getattr(worlds.depth, "py_func", worlds.depth)
    assert plain(0.2, 0.75) == pytest.approx(0.1)
    assert plain(0.2, 0.80) == pytest.approx(0.05)
    assert plain(0.45, 0.4) == pytest.approx(0.1)
    assert plain(0.05, 0.75) == pytest.approx(0.05)
    assert plain(0.45, 0.75) == pytest.approx(0.2)  # in both
    assert plain(0.9, 0.9) == 0.0
    with plain_python():
        world = problems.PuddleWorld(3)
        for _ in range(20):
            (x, y), _ = world.reset()
            assert x + y < 1.9
        moves = []
        for action in [0, 1, 2, 3] * 40:
            x, y = world._place[:2] = 0.7, 0.3
            (x_next, y_next), reward, _, _, _ = world.step(action)
            assert reward == -1.0 - 400.0 * plain(x_next, y_next)
            moves.append((x_next - x, y_next - y))
    mean = np.array(moves).reshape(40, 4, 2).mean(axis=0)
    assert mean == pytest.approx(np.array([(0, 0.05), (0.05, 0), (0, -0.05), (-0.05, 0)]), abs=0.008)
    assert 0.006 < np.array(moves).reshape(40, 4, 2).std(axis=0).mean() < 0.014


def test_tile_coding_covers_the_observations() -> None:
    assert tile_coding(problems.MountainCar()).warm_up(np.empty((0, 2)), names=["o0", "o1"]).n == 8 * 9 * 9
