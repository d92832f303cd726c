"""Agents against independent ones, ends and truncations, saving, policies, step sizes and bad input."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emphatic
from emphatic import Active, problems, rules
from emphatic import features as f
from emphatic.control import ALGORITHMS, Agent, Algorithm, EpsilonGreedy, Softmax, exponential, linear
from reproductions.plain_agents import PlainAgent
from tests.support.plain import plain_python
from tests.support.streams import relative_error


def gamma_of(algorithm: str) -> float:
    return 1.0 if algorithm.startswith("differential") else 0.95


def episodes(agent: Any, env: Any, count: int, most: int = 60) -> list[int]:
    """Actions of so many episodes; a step that is too late is truncated by starting anew."""
    actions = []
    for _ in range(count):
        observation, _ = env.reset()
        action = agent.start(observation)
        for _ in range(most):
            actions.append(action)
            observation, reward, terminated, _, _ = env.step(action)
            action = agent.step(reward, observation, terminated)
            if action is None:
                break
    return actions


def test_the_signature_and_the_names_are_as_documented() -> None:
    parameters = inspect.signature(Agent).parameters
    assert list(parameters) == [
        "algorithm", "features", "actions", "alpha", "gamma", "lambda_", "epsilon", "policy", "stepsize", "seed",
        "extra",
    ]  # fmt: skip
    assert {name: p.default for name, p in parameters.items() if p.default is not p.empty} == {
        "lambda_": 0.0, "epsilon": None, "policy": None, "stepsize": None, "seed": None
    }  # fmt: skip
    assert set(ALGORITHMS) == {
        "sarsa", "true_online_sarsa", "expected_sarsa", "true_online_expected_sarsa", "watkins_q",
        "true_online_watkins_q", "greedy_gq", "tree_backup_control", "retrace", "q_sigma", "emphatic_sarsa",
        "differential_sarsa", "differential_q",
    }  # fmt: skip
    assert not set(ALGORITHMS) & set(rules.names())


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_agent_is_the_independent_one(algorithm: str) -> None:
    """With the same random numbers, on features that overlap: the same actions, θ and R̄."""
    mdp, rng = problems.windy_gridworld(), np.random.default_rng(3)
    Phi = (rng.random((70, 9)) < 0.4) * rng.choice([1.0, 0.5], (70, 9))
    gamma, kind = gamma_of(algorithm), ALGORITHMS[algorithm]
    plain = PlainAgent(algorithm, lambda s: Phi[s], 9, 4, 0.05, gamma, 0.8, 0.2, 5, kind.sigma, kind.eta)
    with plain_python():
        agent = Agent(algorithm, lambda s: Phi[s], 4, alpha=0.05, gamma=gamma, lambda_=0.8, epsilon=0.2, seed=5)
        actions = episodes(agent, problems.Environment(mdp, 1), 3)
    assert actions == episodes(plain, problems.Environment(mdp, 1), 3)
    assert relative_error(agent.learner.theta, plain.theta) < 1e-12
    assert abs(plain.theta).max() > 0.01
    if algorithm.startswith("differential"):
        assert agent.reward_rate == pytest.approx(plain.rbar, abs=1e-12)
    assert relative_error(agent.values(11), plain.values(11)) < 1e-12


@pytest.mark.long
def test_compiled_steps_are_those_of_plain_python() -> None:
    """Tile coding, many features: the same actions, and θ to rounding."""

    def learned() -> tuple[Agent, list[Any]]:
        tiles = f.Tiles(["o0", "o1"], tiles=4, tilings=4, range=[(-1.2, 0.5), (-0.07, 0.07)])
        agent = Agent("sarsa", f.Features([f.Bias(), tiles]), 3, alpha=0.1, gamma=0.99, lambda_=0.9, seed=2)
        return agent, episodes(agent, problems.MountainCar(4), 2, 150)

    agent, actions = learned()
    with plain_python():
        plain, chosen = learned()
    assert actions == chosen
    assert relative_error(agent.learner.theta, plain.learner.theta) < 1e-12


def test_a_termination_has_no_value_and_a_truncation_has_one() -> None:
    with plain_python():
        ends = {}
        for end in ("terminated", "truncated"):
            agent = Agent("watkins_q", 2, 1, alpha=0.5, gamma=0.9, lambda_=0.9, seed=0)
            agent.start(1)
            agent.step(10.0, 0, terminated=True)  # q(1) = 5
            agent.start(0)
            assert agent.step(1.0, 1, **{end: True}) is None
            assert not agent.acting
            ends[end] = float(agent.values(0)[0])
            with pytest.raises(RuntimeError, match="call start"):
                agent.step(0.0, 0)
            agent.start(1)  # nothing of the last episode is left in the traces
            agent.step(100.0, 1, terminated=True)
            assert float(agent.values(0)[0]) == ends[end]
    assert ends["terminated"] == 0.5
    assert ends["truncated"] == 0.5 * (1.0 + 0.9 * 5.0)


@pytest.mark.parametrize("algorithm", ["true_online_sarsa", "q_sigma", "differential_q"])
@pytest.mark.parametrize("kind", ["table", "tiles", "function"])
def test_an_agent_saved_in_the_middle_of_an_episode_continues_bit_for_bit(
    algorithm: str, kind: str, tmp_path: Path
) -> None:
    def phi(s: int) -> Active:
        return Active([s % 7, 7 + s % 5])

    phi.n = 12  # type: ignore[attr-defined]
    maker = f.Features(
        [f.SoftBins("o0", bins=9, range=(0, 70)), f.SoftBins(f.Trace("o0", steps=3), bins=5, range=(0, 70))]
    )
    features: Any = {"table": 70, "tiles": maker, "function": phi}[kind]
    env = problems.Environment(problems.windy_gridworld(), 2)
    with plain_python():
        gamma = gamma_of(algorithm)
        agent = Agent(algorithm, features, 4, alpha=0.1, gamma=gamma, lambda_=0.7, epsilon=linear(0.5, 0.1, 50), seed=3)
        episodes(agent, env, 1, 20)
        log = []
        action = agent.start(env.reset()[0])
        for t in range(40):
            observation, reward, terminated, _, _ = env.step(action)
            if t == 15:
                agent.save(tmp_path / "agent.safetensors")
            log.append((reward, observation, terminated))
            action = agent.step(reward, observation, terminated)
            if action is None:
                break
        again = Agent.load(tmp_path / "agent.safetensors", features=phi if kind == "function" else None)
        assert again.acting
        for entry in log[15:]:
            action_again = again.step(*entry)
        assert action_again == action
        assert np.array_equal(again.learner.theta, agent.learner.theta)
        assert np.array_equal(again.learner.e, agent.learner.e)
        assert again.start(5) == agent.start(5)
        assert np.array_equal(again.values(5), agent.values(5))


def test_a_file_that_is_not_an_agent_is_refused(tmp_path: Path) -> None:
    emphatic.Learner("td", 3, engine="sparse").save(tmp_path / "learner.safetensors")
    with pytest.raises(emphatic.CheckpointError, match="was not saved by an Agent"):
        Agent.load(tmp_path / "learner.safetensors")
    with plain_python():
        agent = Agent("sarsa", lambda s: np.eye(3)[s], 2, alpha=0.1, gamma=0.9)
        agent.start(0)
        agent.save(tmp_path / "agent.safetensors")
        with pytest.raises(ValueError, match=r"'features' parameter of Agent\.load must be passed again"):
            Agent.load(tmp_path / "agent.safetensors")
        with pytest.raises(ValueError, match="must make 3 features"):
            Agent.load(tmp_path / "agent.safetensors", features=4)
        assert emphatic.load(tmp_path / "agent.safetensors").n == 6


def test_values_change_nothing() -> None:
    maker = f.Features([f.SoftBins(f.Trace("o0", steps=3), bins=5, range=(0, 9))])
    with plain_python():
        agent = Agent("sarsa", maker, 2, alpha=0.3, gamma=0.9, seed=1)
        other = Agent("sarsa", f.Features(maker.parts), 2, alpha=0.3, gamma=0.9, seed=1)
        for a in (agent, other):
            a.start([4.0])
        for t in range(20):
            agent.values([float(t % 9)])
            assert agent.step(1.0, [float(t % 5)]) == other.step(1.0, [float(t % 5)])
        assert np.array_equal(agent.learner.theta, other.learner.theta)


def test_policies_choose_as_often_as_they_should() -> None:
    with plain_python():
        for policy, expected in (
            (EpsilonGreedy(0.3), [0.1, 0.8, 0.1]),
            (Softmax(2.0), np.exp([0.0, 1.0, 0.5]) / np.exp([0.0, 1.0, 0.5]).sum()),
        ):
            agent = Agent("sarsa", 1, 3, alpha=0.0, gamma=0.0, policy=policy, seed=0)
            agent.learner.theta = [0.0, 2.0, 1.0]
            agent.start(0)
            counts = np.zeros(3)
            for _ in range(4000):
                counts[agent.step(0.0, 0)] += 1
            assert abs(counts / 4000 - expected).max() < 0.03


def test_a_schedule_changes_the_probabilities() -> None:
    with plain_python():
        for schedule, expected in (
            (linear(1.0, 0.0, 10), [1.0, 0.9, 0.5, 0.0, 0.0]),
            (exponential(1.0, 0.01, 10), [1.0, 0.01**0.1, 0.1, 0.01, 0.01]),
        ):
            agent = Agent("sarsa", 1, 2, alpha=0.0, gamma=0.0, epsilon=schedule, seed=0)
            agent.learner.theta = [1.0, 0.0]
            chosen = [agent.start(0)]
            seen = [agent.probability]
            for _ in range(14):
                chosen.append(agent.step(0.0, 0))
                seen.append(agent.probability)
            epsilon = np.array([p * 2 if a else 2 * (1 - p) for a, p in zip(chosen, seen, strict=True)])
            assert epsilon[[0, 1, 5, 10, 14]] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("stepsize", ["autostep", "swifttd", "emphatic", "tidbd", "auto"])
def test_step_sizes_adapt_inside_an_agent(stepsize: str) -> None:
    """Its learner is the one that ``learn`` makes of the same pairs, to the last digits."""
    algorithm = "true_online_sarsa" if stepsize in ("swifttd", "emphatic", "auto") else "sarsa"
    with plain_python():
        agent = Agent(algorithm, 7, 2, alpha=1.0, gamma=0.9, lambda_=0.8, stepsize=stepsize, seed=1)
        learner = emphatic.Learner(ALGORITHMS[algorithm].rule, 14, engine="sparse", stepsize=stepsize)
        rng = np.random.default_rng(0)
        state, action = 3, agent.start(3)
        for _ in range(60):
            after, reward = int(rng.integers(7)), float(rng.normal())
            action_after = agent.step(reward, after)
            pairs = (Active([action * 7 + state]), Active([action_after * 7 + after]))
            learner.learn(1.0, 1.0, 0.8, pairs[0], 1.0, reward, pairs[1], 0.9)
            state, action = after, action_after
        assert abs(learner.theta).max() > 0.01
        assert relative_error(agent.learner.theta, learner.theta) < 1e-12


def test_q_sigma_and_gq_take_their_own_numbers() -> None:
    """σ = 1 is Sarsa and σ = 0 is tree backup, with traces."""
    mdp, thetas = problems.cliff_walking(), {}
    with plain_python():
        for name, algorithm in (
            ("sarsa", ALGORITHMS["sarsa"]),
            ("one", ALGORITHMS["q_sigma"].replace(sigma=1.0)),
            ("tree", ALGORITHMS["tree_backup_control"]),
            ("zero", ALGORITHMS["q_sigma"].replace(sigma=0.0)),
            ("off", ALGORITHMS["expected_sarsa"].replace(greedy=True)),
        ):
            agent = Agent(algorithm, 48, 4, alpha=0.3, gamma=0.9, lambda_=0.6, seed=4)
            episodes(agent, problems.Environment(mdp, 0), 1, 80)
            thetas[name] = agent.learner.theta
    assert relative_error(thetas["one"], thetas["sarsa"]) < 1e-12
    assert relative_error(thetas["zero"], thetas["tree"]) < 1e-12
    assert relative_error(thetas["off"], thetas["tree"]) > 1e-3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"algorithm": "sarza"}, "'algorithm' parameter of Agent must be one of sarsa, .* Did you mean 'sarsa'"),
        ({"algorithm": None}, "'algorithm' parameter"),
        ({"features": "tiles"}, "'features' parameter of Agent must be Tiles or a Features"),
        ({"features": 0}, "'features' parameter"),
        ({"features": True}, "'features' parameter"),
        ({"actions": 0}, "'actions' parameter of Agent must be a number of actions"),
        ({"actions": 2.0}, "'actions' parameter"),
        ({"actions": [1, 1]}, "'actions' parameter"),
        ({"alpha": -1.0}, "'alpha' parameter of Agent must be a number of 0 or more"),
        ({"alpha": float("nan")}, "'alpha' parameter"),
        ({"alpha": "0.1"}, "'alpha' parameter of Agent must be a number"),
        ({"alpha": 10**400}, "'alpha' parameter of Agent must be a number of 0 or more"),
        ({"gamma": 1.1}, "'gamma' parameter of Agent must be a number from 0 to 1"),
        ({"lambda_": -0.1}, "'lambda_' parameter"),
        ({"epsilon": 1.5}, "'epsilon' parameter of Agent must be a number from 0 to 1"),
        ({"epsilon": Softmax(1.0)}, "'epsilon' parameter of Agent .* is a 'policy'"),
        ({"epsilon": 0.1, "policy": Softmax(1.0)}, "'epsilon' parameter of Agent must be left out where 'policy' is"),
        ({"policy": 0.1}, "'policy' parameter of Agent must be EpsilonGreedy"),
        ({"kappa": 1.0}, "'kappa' parameter of Agent is none of algorithm 'sarsa'"),
        ({"algorithm": "expected_sarsa", "eta": 1.0}, "'eta' .* is none of .* These can be given: lambda_next"),
        ({"algorithm": "greedy_gq", "eta": 1.0, "beta": 0.1}, "'eta' parameter of Agent must not be given together"),
        ({"algorithm": "greedy_gq", "beta": -1.0}, "'beta' parameter of Agent must be 0 or more, and finite"),
        ({"algorithm": Algorithm("x", "differential_etd")}, "'decay' parameter of Agent is required by rule"),
        ({"algorithm": Algorithm("x", "tree_backup"), "pi": 1.0}, "'pi' parameter of Agent is none of"),
        ({"epsilon": 10**400}, "'epsilon' parameter"),
        ({"stepsize": "adam"}, "'stepsize' parameter must be one of"),
        ({"seed": -1}, "'seed' parameter of Agent"),
        ({"seed": "x"}, "'seed' parameter of Agent"),
        ({"seed": True}, "'seed' parameter of Agent"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(changes: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"algorithm": "sarsa", "features": 3, "actions": 2, "alpha": 0.1, "gamma": 0.9}
    with plain_python(), pytest.raises(ValueError, match=message) as error:
        Agent(**(arguments | changes))
    assert "\n" not in str(error.value)


def test_continuous_actions_and_other_spaces_are_refused() -> None:
    spaces = pytest.importorskip("gymnasium").spaces
    with plain_python():
        agent = Agent("sarsa", 3, spaces.Discrete(2, start=5), alpha=0.1, gamma=0.9, seed=0)
        assert {agent.start(0) for _ in range(20)} <= {5, 6}
        with pytest.raises(ValueError, match="Continuous actions are not supported"):
            Agent("sarsa", 3, spaces.Box(-1.0, 1.0), alpha=0.1, gamma=0.9)
        with pytest.raises(ValueError, match="'actions' parameter of Agent must be"):
            Agent("sarsa", 3, spaces.MultiDiscrete([2, 2]), alpha=0.1, gamma=0.9)
        with pytest.raises(ValueError, match=r"'features' parameter of Agent must be .* Use .*tiles\(space\)"):
            Agent("sarsa", spaces.Box(-1.0, 1.0, (2,)), 2, alpha=0.1, gamma=0.9)


class Thermostat:
    """Two states; an action is a number from −1 to 1."""

    def __init__(self, space: Any) -> None:
        self.action_space = space

    def reset(self, *, seed: int | None = None) -> tuple[int, dict[str, Any]]:
        return 0, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        return 1, float(np.ravel(action)[0]), True, False, {}


def test_environments_that_do_not_fit_are_refused_in_one_line() -> None:
    """A list of actions to choose among makes an agent for continuous actions."""
    spaces = pytest.importorskip("gymnasium").spaces
    with plain_python():
        half: Any = np.float32(0.5)
        agent = Agent("watkins_q", spaces.Discrete(2), [[-1.0], [0.5]], alpha=0.1, gamma=0.9, epsilon=half, seed=0)
        assert set(agent.train(Thermostat(spaces.Box(-1.0, 1.0)), 9).returns.tolist()) == {-1.0, 0.5}
        for env, message in (
            (None, "be an environment with reset and step, as in Gymnasium. Got None"),
            (Thermostat(spaces.Box(-0.5, 0.5)), "take the agent's 2 actions. Got Box.* Continuous actions are not"),
            (Thermostat(spaces.MultiDiscrete([2, 2])), "take the agent's 2 actions. Got MultiDiscrete"),
            (Thermostat(spaces.Discrete(3)), "take the agent's 2 actions. Got Discrete"),
        ):
            with pytest.raises(ValueError, match=f"'env' parameter of train must {message}") as error:
                agent.train(env, 1)
            assert "\n" not in str(error.value)
        several = Thermostat(spaces.MultiDiscrete([2, 2]))
        several.num_envs = 2  # type: ignore[attr-defined]
        with pytest.raises(ValueError, match=r"must be one environment. Got a vector of 2 instead"):
            agent.train(several, 1)
        agent = Agent("watkins_q", f.Features([f.SoftBins("o0", bins=3)]), 2, alpha=0.1, gamma=0.9)
        with pytest.raises(ValueError, match=r"'features' parameter of Agent must fit an observation of 1 .* range"):
            agent.start([0.5])


def test_a_world_without_an_end_needs_a_discount_or_the_average_reward() -> None:
    with plain_python():
        queue = problems.access_control()
        agent = Agent("sarsa", queue.S, 2, alpha=0.1, gamma=1.0)
        with pytest.raises(ValueError, match=r"'gamma' parameter of train must be below 1 for 'sarsa'.* never ends"):
            agent.train(problems.Environment(queue, limit=5), 1)
        agent = Agent("differential_sarsa", queue.S, 2, alpha=0.1, gamma=1.0)
        with pytest.raises(ValueError, match="'env' parameter of train must have a 'limit' of steps, as it never ends"):
            agent.train(problems.Environment(queue), 1)
        assert agent.train(problems.Environment(queue, limit=5), 1).steps.tolist() == [5]


@pytest.mark.parametrize(
    ("features", "good", "bad", "message"),
    [
        (3, 1, 3, "must be a state, a whole number from 0 to 2. Got 3"),
        (3, 1, 0.5, "must be a state"),
        (3, 1, float("nan"), "must be a state"),
        (3, 1, None, "must be a state"),
        (f.Features([f.SoftBins("o0", bins=3, range=(0, 1))]), [0.5], [float("nan")], "must be finite"),
        (f.Features([f.SoftBins("o0", bins=3, range=(0, 1))]), [0.5], [float("inf")], "must be finite"),
        (f.Features([f.SoftBins("o0", bins=3, range=(0, 1))]), [0.5], [0.5, 0.5], "must have 1 components"),
        (f.Features([f.SoftBins("o0", bins=3, range=(0, 1))]), [0.5], "far", "observation"),
        (f.Features([f.Tiles(["o0", "o1"], tiles=2, range=(0, 1))]), [0.5, 0.1], [0.5], "must have 2 components"),
        (f.Features([f.Tiles(["o0", "o1"], tiles=2, range=(0, 1))]), [0.5, 0.1], 0.5, "must have 2 components"),
        (
            lambda x: np.array([x, 1.0]),
            1.0,
            float("nan"),
            "return a φ without NaN or infinity. Got such a φ for the ob",
        ),
        (lambda x: np.ones(int(x)), 2.0, 3.0, "return φ of shape"),
    ],
)
def test_a_bad_observation_changes_nothing(features: Any, good: Any, bad: Any, message: str) -> None:
    with plain_python():
        agent = Agent("sarsa", features, 2, alpha=0.1, gamma=0.9, lambda_=0.9, seed=1)
        agent.start(good)
        agent.step(1.0, good)
        theta, e = agent.learner.theta, agent.learner.e
        for call in (agent.start, agent.values, lambda o: agent.step(1.0, o)):
            with pytest.raises((ValueError, TypeError), match=message) as error:
                call(bad)
            assert "\n" not in str(error.value)
        for reward in (float("nan"), float("inf"), None, "x", 10**400):
            with pytest.raises(ValueError, match=r"'reward' parameter of Agent\.step must be a finite number"):
                agent.step(reward, good)  # type: ignore[arg-type]
        assert np.array_equal(agent.learner.theta, theta)
        assert np.array_equal(agent.learner.e, e)
        assert agent.step(1.0, good) in (0, 1)


def test_divergence_is_reported_and_changes_nothing() -> None:
    with plain_python(), np.errstate(all="ignore"):
        agent = Agent("sarsa", lambda x: np.array([1e30]), 1, alpha=1e250, gamma=1.0, seed=0)
        agent.start(0.0)
        with pytest.raises(emphatic.Diverged):
            [agent.step(1e30, 0.0) for _ in range(9)]
        assert np.isfinite(agent.learner.theta).all()


def test_active_features_need_n_and_may_grow() -> None:
    def phi(x: int) -> Active:
        return Active(np.arange(x))

    with plain_python():
        with pytest.raises(ValueError, match="have an attribute n"):
            Agent("sarsa", phi, 2, alpha=0.1, gamma=0.9).start(1)
        phi.n = 9  # type: ignore[attr-defined]
        for stepsize in (None, "autostep"):
            agent = Agent("expected_sarsa" if stepsize is None else "sarsa", phi, 2, alpha=0.1, gamma=0.9, seed=0,
                          stepsize=stepsize)  # fmt: skip
            agent.start(1)
            for count in (2, 9, 1, 5):
                agent.step(1.0, count)
            assert agent.values(9).shape == (2,)
            assert abs(agent.learner.theta).max() > 0.0
            with pytest.raises(ValueError, match="features below n = 9"):
                agent.step(1.0, 10)


def test_training_beside_gymnasium_and_its_questions() -> None:
    gymnasium = pytest.importorskip("gymnasium")
    from emphatic import GVF
    from emphatic.gymnasium import LearnGVFs, tiles

    env = gymnasium.make("CliffWalking-v1" if "CliffWalking-v1" in gymnasium.registry else "CliffWalking-v0",
                         max_episode_steps=30)  # fmt: skip
    with plain_python():
        agent = Agent("watkins_q", 48, env.action_space, alpha=0.5, gamma=1.0, seed=0)
        training = agent.train(env, 3, seed=1)
        assert len(training) == len(training.returns) == len(training.steps) == 3
        assert (training.steps <= 30).all()
        assert training[-1] == training.returns[2]
        assert np.mean(training) == training.returns.mean()
        wrapped = LearnGVFs(env, [GVF("reward", gamma=0.9)], tiles(env.observation_space))
        agent.train(wrapped, 1)
        assert abs(wrapped.episodes.theta).max() > 0.0
        with pytest.raises(ValueError, match="'episodes' parameter of train"):
            agent.train(env, -1)
        with pytest.raises(ValueError, match="'env' parameter of train must take the agent's 4 actions"):
            agent.train(gymnasium.make("CartPole-v1"), 1)


def test_a_rule_of_ones_own_learns_inside_an_agent() -> None:
    rule = emphatic.rules.get("td")
    with plain_python():
        agents = [
            Agent(algorithm, 48, 4, alpha=0.3, gamma=0.9, lambda_=0.5, seed=1)
            for algorithm in ("sarsa", Algorithm("mine", rule))
        ]
        for agent in agents:
            episodes(agent, problems.Environment(problems.cliff_walking(), 0), 1, 40)
        assert np.array_equal(agents[0].learner.theta, agents[1].learner.theta)


def constants_of(rule: rules.Rule) -> dict[str, Any]:
    """A number within the range of each constant parameter of a rule, not its default."""
    ranges = {name: np.clip(rule.ranges[name], -1.0, 1.0) for name in Algorithm("", rule).extra if name != "eta"}
    return {name: float(low + 0.2 * (high - low)) for name, (low, high) in ranges.items()}


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("name", rules.names())
def test_every_parameter_of_a_rule_reaches_an_agent(name: str, given: bool) -> None:
    """The agent's learner is the one that ``learn`` makes of the same pairs, whatever parameters the rule has."""
    rule = rules.get(name)
    extra = {key: value for key, value in constants_of(rule).items() if given or key not in rule.defaults}
    alpha, gamma, lambda_, rng = 0.05, 0.9, 0.3, np.random.default_rng(2)
    with plain_python():
        agent = Agent(Algorithm("own", rule), 6, 2, alpha=alpha, gamma=gamma, lambda_=lambda_, seed=1, **extra)
        learner = emphatic.Learner(rule, 12, engine="reference")
        state, action = 0, agent.start(0)
        for _ in range(80):
            probability = agent.probability
            of_step = {key: probability for key in ("pi", "mu") if key in rule.extra}
            after, reward = int(rng.integers(6)), float(rng.normal())
            action_after = agent.step(reward, after)
            phi, phi_next = np.eye(12)[action * 6 + state], np.eye(12)[action_after * 6 + after]
            learner.learn(alpha, 1.0, lambda_, phi, 1.0, reward, phi_next, gamma, **extra, **of_step)
            state, action = after, action_after
    assert abs(learner.theta).max() > 0.01
    assert relative_error(agent.learner.theta, learner.theta) < 1e-12
    assert agent.extra == extra


def test_an_agent_takes_another_second_step_size_and_keeps_it_in_a_file(tmp_path: Path) -> None:
    """Greedy-GQ with eta, and with the same β; α changes β = eta·α with it."""
    weights = []
    with plain_python():
        extras: list[dict[str, Any]] = [{"eta": 0.5}, {"beta": 0.025}]
        for extra in extras:
            agent = Agent("greedy_gq", 48, 4, alpha=0.05, gamma=0.9, lambda_=0.6, seed=4, **extra)
            episodes(agent, problems.Environment(problems.cliff_walking(), 0), 1, 30)
            agent.save(tmp_path / "agent.safetensors")
            agent = Agent.load(tmp_path / "agent.safetensors")
            assert agent.extra == extra
            agent.alpha = 0.1
            with pytest.raises(TypeError, match="does not support item assignment"):
                agent.extra["eta"] = 2.0  # type: ignore[index]
            with pytest.raises(ValueError, match="'kappa' parameter of Agent is none of"):
                agent.extra = {"kappa": 1.0}
            episodes(agent, problems.Environment(problems.cliff_walking(), 1), 1, 30)
            weights.append(agent.learner.w)
    plain = PlainAgent("greedy_gq", lambda s: np.eye(48)[s], 48, 4, 0.05, 0.9, 0.6, 0.1, 4, eta=0.5)
    episodes(plain, problems.Environment(problems.cliff_walking(), 0), 1, 30)
    plain.alpha = 0.1
    episodes(plain, problems.Environment(problems.cliff_walking(), 1), 1, 30)
    assert relative_error(weights[0], plain.w) < 1e-12
    assert relative_error(weights[1], plain.w) > 1e-3


@pytest.mark.parametrize("compiled", [True, False])
def test_what_is_set_acts_from_the_next_step_on(compiled: bool) -> None:
    """In whole episodes and in single steps: another policy acts, α = 0 learns nothing, γ and λ are in the next δ."""
    world: Any = problems.Environment(problems.cliff_walking(), seed=0, limit=200)
    env = world if compiled else Stepped(world)
    with plain_python():
        agent = Agent("watkins_q", 48, 4, alpha=0.5, gamma=1.0, seed=0)
        agent.train(env, 300)
        theta = agent.learner.theta.copy()
        agent.alpha, agent.policy = 0.0, EpsilonGreedy(0.0)
        assert (agent.alpha, agent.policy) == (0.0, EpsilonGreedy(0.0))
        assert agent.train(env, 5).returns.tolist() == [-13.0] * 5
        assert np.array_equal(agent.learner.theta, theta)
        agent.gamma, agent.lambda_ = 0.5, 0.25
        agent.start(12)
        agent.step(-1.0, 25)
        best = float(agent.values(25).max())
        assert agent.delta == pytest.approx(-1.0 + 0.5 * best - agent.values(12).max())
        for name, value in (("alpha", -1.0), ("gamma", 2.0), ("lambda_", None), ("policy", 0.1)):
            before = getattr(agent, name)
            with pytest.raises(ValueError, match=f"'{name}' parameter of Agent"):
                setattr(agent, name, value)
            assert getattr(agent, name) == before


@dataclass
class Stepped:
    """A world as an environment that nobody knows, so that an agent takes one step after the other."""

    world: problems.World

    def __post_init__(self) -> None:
        self.reset, self.step = self.world.reset, self.world.step


@pytest.mark.parametrize("compiled", [True, False])
def test_an_evaluation_is_greedy_and_changes_nothing(compiled: bool) -> None:
    tiles = f.Tiles(["o0", "o1"], tiles=4, tilings=4, range=[(-1.2, 0.5), (-0.07, 0.07)])
    with plain_python():
        for features, world in (
            (48, problems.Environment(problems.cliff_walking(), 0)),
            (tiles, problems.MountainCar()),
        ):
            world.limit = 80
            env: Any = world if compiled else Stepped(world)
            settings: dict[str, Any] = {"alpha": 0.3, "gamma": 0.9, "lambda_": 0.5, "stepsize": "tidbd", "seed": 0}
            agent = Agent("sarsa", features, world.actions, **settings)
            assert len(agent.evaluate(env, 1)) == 1  # nothing is learned yet: any action
            agent.train(env, 3, seed=1)
            observation = world.reset()[0]
            action = agent.start(observation)
            state = {name: getattr(agent.learner, name) for name in ("theta", "e")}
            pool, decisions = agent._pool[agent._drawn :], agent._status.copy()
            training = agent.evaluate(env, 3, seed=5)
            assert all(np.array_equal(getattr(agent.learner, name), array) for name, array in state.items())
            assert agent._pool[agent._drawn :] == pool
            assert np.array_equal(agent._status, decisions)
            assert agent.acting
            greedy = [0.0] * 3
            for episode in range(3):
                observation, _ = world.reset(seed=5 if episode == 0 else None)
                over = False
                while not over:
                    values = agent.values(observation)
                    if np.sort(values)[-1] - np.sort(values)[-2] < 1e-9:
                        greedy[episode] = training.returns[episode]  # ties are broken by chance
                        training.returns[episode + 1 :] = greedy[episode + 1 :] = [0.0] * (2 - episode)
                        break
                    observation, reward, terminated, truncated, _ = world.step(int(values.argmax()))
                    greedy[episode] += reward
                    over = terminated or truncated
            assert greedy == training.returns.tolist()
            agent.step(-1.0, observation)
            assert action in range(world.actions)


def test_differential_agents_discount_too() -> None:
    """Reward centering (Naik et al. 2024): γ below 1, with R̄."""
    queue = problems.access_control()
    for algorithm in ("differential_sarsa", "differential_q"):
        plain = PlainAgent(algorithm, lambda s: np.eye(44)[s], 44, 2, 0.05, 0.9, 0.5, 0.2, 5)
        with plain_python():
            agent = Agent(algorithm, 44, 2, alpha=0.05, gamma=0.9, lambda_=0.5, epsilon=0.2, seed=5)
            actions = episodes(agent, problems.Environment(queue, 1), 1, 200)
        assert actions == episodes(plain, problems.Environment(queue, 1), 1, 200)
        assert relative_error(agent.learner.theta, plain.theta) < 1e-12
        assert agent.reward_rate == pytest.approx(plain.rbar, abs=1e-12)
        assert abs(plain.rbar) > 0.01
