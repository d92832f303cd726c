"""Whole episodes in one call are those of an agent that steps; worlds against the book, NumPy and Gymnasium."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from emphatic import features as f
from emphatic import problems, rules
from emphatic.control import ALGORITHMS, WORLDS, Agent, Algorithm, EpsilonGreedy, Softmax, linear
from emphatic.errors import Diverged
from emphatic.problems import worlds
from emphatic.problems.control import words_of
from tests.support.plain import plain_python


@dataclass
class Stepped:
    """A world as an environment that nobody knows, so that an agent takes one step after the other."""

    world: problems.World

    def __post_init__(self) -> None:
        self.reset, self.step = self.world.reset, self.world.step


def tile_coding(world: problems.World) -> f.Tiles:
    """Hashed where four numbers are observed."""
    names = [f"o{i}" for i in range(len(world.ranges))]
    return f.Tiles(names, tiles=6, tilings=16, range=world.ranges, hashed=16_384 if len(names) > 2 else None)


def pair(algorithm: str | Algorithm, name: str, **settings: Any) -> tuple[Agent, problems.World]:
    """An agent and its world."""
    world = WORLDS[name](limit=25, seed=5)
    features = settings.pop("features", None) or (tile_coding(world) if world.ranges else world.mdp.S)  # type: ignore[attr-defined]
    defaults = {"alpha": 0.2, "gamma": 1.0, "lambda_": 0.8, "epsilon": 0.3, "seed": 4}
    return Agent(algorithm, features, world.actions, **defaults | settings), world


def assert_same(agent: Agent, other: Agent, tolerance: float = 0.0) -> None:
    """The same weights and traces, and the same random numbers from there on."""
    engine, others = agent.learner._engine, other.learner._engine
    pairs = [(engine.vector(r), others.vector(r)) for r in range(len(engine.rule.vectors))]
    for ours, expected in (*pairs, (engine.scalars, others.scalars)):
        np.testing.assert_allclose(ours, expected, rtol=0.0, atol=tolerance * abs(expected).max())
    assert abs(agent.learner.theta).max() > 0.01
    assert agent._pool[agent._drawn] == other._pool[other._drawn]
    assert (agent.acting, agent.probability) == (other.acting, other.probability)


def check_episodes(
    algorithm: str | Algorithm, name: str, episodes: int, limit: int, tolerance: float = 0.0, **settings: Any
) -> None:
    """Two calls, of one episode and of several, are the steps of the same agent."""
    (agent, world), (other, stepped) = (pair(algorithm, name, **settings) for _ in range(2))
    world.limit = stepped.limit = limit
    assert agent.can_run_episodes(world)
    assert not agent.can_run_episodes(Stepped(world))
    for count, seed in ((1, 3), (episodes - 1, None)):
        training, expected = agent.train(world, count, seed=seed), other.train(Stepped(stepped), count, seed=seed)
        assert training.steps.tolist() == expected.steps.tolist()
        assert training.returns.tolist() == expected.returns.tolist()
    assert_same(agent, other, tolerance)
    observation = world.reset()[0]
    assert observation == stepped.reset()[0]
    assert agent.start(observation) == other.start(observation)


@pytest.mark.parametrize("algorithm", [*ALGORITHMS, "replacing"])
def test_episodes_of_every_algorithm_are_its_steps(algorithm: str) -> None:
    kind = Algorithm("replacing", rules.replacing_td) if algorithm == "replacing" else algorithm
    name = "access_control" if algorithm.startswith("differential") else "cliff_walking"
    with plain_python():
        check_episodes(kind, name, 3, 25)


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("policy", [EpsilonGreedy(linear(1.0, 0.1, 20)), Softmax(0.5)])
def test_episodes_in_every_world_are_steps(name: str, policy: Any) -> None:
    with plain_python():
        check_episodes("sarsa", name, 2, 15, epsilon=None, policy=policy, gamma=0.9)


@pytest.mark.parametrize(
    "maker",
    [
        f.Features([f.Tiles(["o0", "o1"], tiles=4, tilings=4, range=[(-1.2, 0.5), (-0.07, 0.07)], hashed=50)]),
        f.Features([f.SoftBins(["o0", "o1"], bins=3, range=[(-1.2, 0.5), (-0.07, 0.07)]), f.Bias()]),
    ],
)
def test_episodes_with_other_features_are_steps(maker: f.Features) -> None:
    with plain_python():
        check_episodes("true_online_watkins_q", "mountain_car", 2, 40, features=maker)


@pytest.mark.long
@pytest.mark.parametrize(
    ("algorithm", "name"),
    [
        ("true_online_sarsa", "mountain_car"),
        ("watkins_q", "cliff_walking"),
        ("sarsa", "acrobot"),
        ("greedy_gq", "windy_gridworld"),
        ("differential_sarsa", "access_control"),
        (Algorithm("replacing", rules.replacing_td), "cliff_walking"),
    ],
)
def test_compiled_episodes_are_compiled_steps(algorithm: str | Algorithm, name: str) -> None:
    """The same episodes; compiled for the number of actions and features, sums may be rounded in another order."""
    check_episodes(algorithm, name, 20, 400, tolerance=1e-12)


def test_blocks_of_steps_go_on_where_the_last_one_was_left() -> None:
    with plain_python():
        agent, queue = pair("differential_sarsa", "access_control", alpha=0.01)
        other, stepped = pair("differential_sarsa", "access_control", alpha=0.01)
        first, _ = agent.run_episodes(queue, 2, 10, blocks=True)
        second, lengths = agent.run_episodes(queue, 1, 15, blocks=True)
        rewards, action = [], other.start(stepped.reset()[0])
        stepped.limit = None
        for _ in range(35):
            observation, reward, *_ = stepped.step(action)
            rewards.append(reward)
            action = other.step(reward, observation)
    assert lengths.tolist() == [15]
    assert [*first, *second] == pytest.approx([sum(rewards[:10]), sum(rewards[10:20]), sum(rewards[20:])])
    assert_same(agent, other)


def test_an_agent_that_would_diverge_stops_there() -> None:
    maker = f.Features([f.SoftBins(["o0", "o1"], bins=2, range=[(-1.2, 0.5), (-0.07, 0.07)])])
    with plain_python(), np.errstate(all="ignore"):
        agent, car = pair("sarsa", "mountain_car", features=maker, alpha=1e200)
        other, stepped = pair("sarsa", "mountain_car", features=maker, alpha=1e200)
        for learner, world in ((agent, car), (other, Stepped(stepped))):
            with pytest.raises(Diverged):
                learner.train(world, 2, seed=0)
        assert_same(agent, other)
        returns, steps = agent.run_episodes(car, 2, 30)
        assert returns.tolist() == steps.tolist() == []
        with pytest.raises(RuntimeError, match="call reset"):
            car.step(0)


def test_what_is_not_compiled_is_stepped() -> None:
    """A class derived from a world, features with traces, and a function of the observation."""

    class Backwards(problems.MountainCar):
        def step(self, action: int) -> Any:
            return super().step(2 - action)

    with plain_python():
        agent, car = pair("sarsa", "mountain_car")
        assert agent.can_run_episodes(car)
        assert not agent.can_run_episodes(Backwards())
        agent.train(Backwards(limit=5), 1)
        traces = f.Features([f.SoftBins(f.Trace("o0", steps=3), range=(-1.2, 0.5)), f.Bias()])
        assert not pair("sarsa", "mountain_car", features=traces)[0].can_run_episodes(car)
        agent, cliff = pair("sarsa", "cliff_walking", features=np.eye(48).__getitem__)
        assert not agent.can_run_episodes(cliff)
        assert agent.train(cliff, 2).steps.tolist() == pair("sarsa", "cliff_walking")[0].train(cliff, 2).steps.tolist()
        with pytest.raises(ValueError, match="'world' parameter of run_episodes must be of emphatic"):
            agent.run_episodes(cliff, 1, 5)


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
            x, y = world.place[:2] = 0.7, 0.3
            (x_next, y_next), reward, _, _, _ = world.step(action)
            assert reward == -1.0 - 400.0 * plain(x_next, y_next)
            moves.append((x_next - x, y_next - y))
    mean = np.array(moves).reshape(40, 4, 2).mean(axis=0)
    assert mean == pytest.approx(np.array([(0, 0.05), (0.05, 0), (0, -0.05), (-0.05, 0)]), abs=0.008)
    assert 0.006 < np.array(moves).reshape(40, 4, 2).std(axis=0).mean() < 0.014
