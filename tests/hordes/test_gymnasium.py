"""Questions learned beside an agent in real environments, against loops written out by hand with ``Learner.learn``."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emphatic
from emphatic import GVF, DivergenceWarning, Policy

gymnasium = pytest.importorskip("gymnasium", reason="the extra 'gym' is not installed")

from emphatic.gymnasium import LearnGVFs, LearnGVFsVector, tiles  # noqa: E402

#: The usual rule is learned by for questions with policies too, and says so where it goes astray.
pytestmark = pytest.mark.filterwarnings("ignore:.*which is impossible:emphatic.DivergenceWarning")

ROOT = Path(__file__).parents[2]
RULE = "true_online_etd"
RANGES = {"o0": (-2.4, 2.4), "o1": (-3.0, 3.0), "o2": (-0.21, 0.21), "o3": (-3.5, 3.5)}
SPACE = gymnasium.make("CartPole-v1").observation_space


def coder() -> emphatic.features.Features:
    return tiles(SPACE, [["o0", "o1"], ["o2", "o3"]], ranges=RANGES, tiles=4, tilings=4)


def likely_left(observation: Any, action: Any) -> float:
    """A target policy that depends on the state."""
    left = 0.9 if float(observation[2]) < 0.0 else 0.3
    return left if action == 0 else 1.0 - left


def angle(observation: Any, action: Any, reward: float, following: Any) -> float:
    return float(following[2]) - float(observation[2]) + 0.1 * float(action)


def upright(observation: Any, action: Any, reward: float, following: Any) -> float:
    return 0.9 if abs(following[2]) < 0.1 else 0.5


QUESTIONS = [
    GVF("reward", gamma=0.9),
    GVF("o2", horizon=8, lambda_=0.7),
    GVF("abs(o2) + 0.5 * reward", gamma=upright, interest=0.3, lambda_=0.4, name="expression"),
    GVF(angle, gamma=0.8, policy=Policy({0: 1.0}), lambda_=0.2, name="left"),
    GVF(1.0, gamma=0.7, policy=Policy(likely_left), interest="abs(o2)", terminal=2.0, lambda_=0.0, name="likely left"),
]


def by_hand(
    learner: emphatic.Learner, phi: Any, phi_next: Any, observation: Any, action: int, reward: float, following: Any,
    terminated: bool, mu: float, alpha: float, seen: list[Any] | None = None,
) -> None:  # fmt: skip
    """One step of QUESTIONS, every number written out; with the cumulants ``seen`` before, by bounded_etd."""
    observation, following = observation.astype(np.float64), following.astype(np.float64)
    after = following[2]
    gamma = np.array([0.9, 1 - 1 / 8, 0.9 if abs(after) < 0.1 else 0.5, 0.8, 0.7])
    gamma_next = np.zeros(5) if terminated else gamma
    left = float(action == 0)
    likely = 0.9 if observation[2] < 0.0 else 0.3
    likely = likely if action == 0 else 1.0 - likely
    R = np.array(
        [reward, after, abs(after) + 0.5 * reward, after - observation[2] + 0.1 * action, 1 + 2 * (1 - gamma_next[4])]
    )
    bounds = {}
    if seen is not None:
        seen.append(R)
        constant = np.array([0.9, 1 - 1 / 8, np.nan, 0.8, 0.7])
        low, high = np.minimum(0, np.min(seen, axis=0)), np.maximum(0, np.max(seen, axis=0))
        low, high = low / (1 - constant), high / (1 - constant)
        bounds = {"low": np.where(np.isnan(low), -np.inf, low), "high": np.where(np.isnan(high), np.inf, high)}
    learner.learn(
        alpha=alpha,
        I=np.array([1 - 0.9, 1 / 8, 0.3, 1 - 0.8, abs(observation[2])]),
        lambda_=np.array([1 - 4 * (1 - 0.9), 0.7, 0.4, 0.2, 0.0]),
        phi=phi,
        rho=np.array([1.0, 1.0, 1.0, left / mu, likely / mu]),
        R=R,
        phi_next=phi_next,
        gamma_next=gamma_next,
        **bounds,
    )


class Agent:
    """Acts at random, not uniformly, and knows its own probabilities."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def __call__(self, observation: Any) -> tuple[int, float]:
        right = 0.6 if observation[2] > 0 else 0.35
        action = int(self.rng.random() < right)
        return action, right if action else 1 - right


def maker() -> Any:
    features = coder()
    return features.warm_up(np.empty((0, 4)), names=["o0", "o1", "o2", "o3"])


def made(limit: int = 25, **more: Any) -> LearnGVFs:
    """CartPole with a short limit: some episodes end by falling, others by the limit."""
    given: dict[str, Any] = {"rule": RULE, "alpha": 0.05} | more
    return LearnGVFs(gymnasium.make("CartPole-v1", max_episode_steps=limit), QUESTIONS, coder(), **given)


def drive(env: LearnGVFs, steps: int, seed: int = 0, seen: Callable[..., None] | None = None) -> list[Any]:
    agent, infos = Agent(seed), []
    observation, info = env.reset(seed=seed)
    for _ in range(steps):
        infos.append(info)
        action, mu = agent(observation)
        env.mu = mu
        following, reward, terminated, truncated, info = env.step(action)
        if seen is not None:
            seen(observation, action, reward, following, terminated, truncated, mu, info)
        observation = following
        if terminated or truncated:
            observation, info = env.reset()
            if seen is not None:
                seen(observation, None, None, None, None, None, None, info)
    return infos


def test_terminated_and_truncated_are_as_in_a_loop_by_hand() -> None:
    features, hand, ends = maker(), emphatic.Learner(RULE, maker().n, 5, engine="sparse"), [0, 0]

    def seen(observation: Any, action: Any, reward: Any, following: Any, terminated: Any, truncated: Any, mu: Any,
             info: Any) -> None:  # fmt: skip
        if action is None:
            np.testing.assert_allclose(info["predictions"], hand.predict(features(observation)), rtol=1e-10, atol=1e-12)
            return
        phi, phi_next = features(observation), features(following)
        by_hand(hand, phi, phi_next, observation, action, reward, following, terminated, mu, alpha=0.05)
        expected = np.zeros(5) if terminated else hand.predict(phi_next)
        np.testing.assert_allclose(info["predictions"], expected, rtol=1e-10, atol=1e-12)
        if truncated and not terminated:
            hand.cut()
        ends[0], ends[1] = ends[0] + terminated, ends[1] + (truncated and not terminated)

    env = made()
    drive(env, 600, seen=seen)
    assert min(ends) >= 3, "both ways to end are there"
    np.testing.assert_allclose(env.episodes.theta, hand.theta, rtol=1e-10, atol=1e-12)
    assert np.abs(hand.theta).max() > 0.01


def test_rewards_and_observations_pass_through_untouched() -> None:
    plain, wrapped = gymnasium.make("CartPole-v1"), made(500)
    one, _ = plain.reset(seed=3)
    two, info = wrapped.reset(seed=3)
    assert info["predictions"].shape == (5,)
    for t in range(200):
        np.testing.assert_array_equal(one, two)
        one, *rest = plain.step(t % 2)
        two, *others = wrapped.step(t % 2)
        assert rest[:3] == others[:3]
        if rest[1] or rest[2]:
            (one, _), (two, _) = plain.reset(), wrapped.reset()


def test_predictions_given_out_are_not_changed_later() -> None:
    infos = drive(made(), 20)
    assert len({info["predictions"].tobytes() for info in infos}) > 10


def test_steps_can_be_learned_from_several_at_a_time() -> None:
    online, later = made(record=True), made(record=True, every=7)
    infos, some = drive(online, 300), drive(later, 300)
    looks = 0
    for info, other in zip(infos, some, strict=True):
        if "predictions" in other:
            np.testing.assert_allclose(other["predictions"], info["predictions"], rtol=1e-10, atol=1e-13)
            looks += 1
    assert 40 < looks < 100
    np.testing.assert_allclose(later.episodes.theta, online.episodes.theta, rtol=1e-10, atol=1e-13)
    one, two = online.log(), later.log()
    np.testing.assert_array_equal(one["Phi"].indices, two["Phi"].indices)
    np.testing.assert_array_equal(one["R"], two["R"])
    np.testing.assert_array_equal(one["rho"], two["rho"])


@pytest.mark.parametrize("engine", ["sparse", "dense"])
def test_a_log_replays_to_the_same_weights(engine: str) -> None:
    env = made(record=True, engine=engine)
    drive(env, 400)
    log = env.log()
    again = emphatic.Learner(RULE, env.episodes.learners[0].n, K=5, engine=engine)
    predictions = again.run(**log)
    np.testing.assert_allclose(again.theta, env.episodes.theta, rtol=1e-10, atol=1e-13)
    assert len(predictions) > 400, "a step for each cut"


def test_a_reset_in_the_middle_cuts_the_sequence() -> None:
    env = made(500, record=True)
    env.reset(seed=0)
    for _ in range(3):
        env.step(1)
    env.reset(seed=1)
    learner = env.episodes.learners[0]
    assert not learner.e.any()
    assert learner.theta.any()
    env.step(0)
    assert len(env.log()["R"]) == 5


@pytest.mark.parametrize("given", ["attribute", "function", "number"])
def test_mu_comes_from_the_agent_a_function_or_is_uniform(given: str) -> None:
    def mu(observation: Any, action: int) -> float:
        return 0.25 if action else 0.75

    ways: dict[str, Any] = {"attribute": None, "function": mu, "number": 0.75}
    env = made(record=True, mu=ways[given])
    env.reset(seed=0)
    if given == "attribute":
        env.mu = 0.75
    env.step(0)
    env.step(0)
    ratios = env.log()["rho"][:, 3]
    second = 0.5 if given == "attribute" else 0.75  # said for one step alone
    np.testing.assert_allclose(ratios, [1 / 0.75, 1 / second])


def test_frozen_lake_s_values_are_those_of_its_transition_table() -> None:
    lake = gymnasium.make("FrozenLake-v1", is_slippery=False, max_episode_steps=12)

    def path(state: Any, action: Any) -> float:
        """Down, but right where that is ice on the way to the goal."""
        return float(action == (2 if state in (1, 8, 13, 14) else 1))

    ask = [GVF("reward", gamma=0.9, policy=Policy(path), lambda_=1.0, interest=1.0)]
    env = LearnGVFs(lake, ask, tiles(lake.observation_space), alpha=0.2)
    rng = np.random.default_rng(0)
    state, _ = env.reset(seed=0)
    for _ in range(1500):
        keeps = rng.random() < 0.5  # half of the time on the path, else anywhere
        action = max(range(4), key=lambda a: path(state, a)) if keeps else int(rng.integers(4))
        env.mu = 0.5 * path(state, action) + 0.125
        state, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            state, _ = env.reset()
    table, v = lake.unwrapped.P, np.zeros(16)
    for _ in range(20):
        for s in range(16):
            v[s] = sum(
                path(s, a) * p * (r + 0.9 * v[s_next] * (not over))
                for a in range(4)
                for p, s_next, r, over in table[s][a]
            )
    learned, over = env.episodes.theta[0, :16], [5, 7, 11, 12, 15]
    assert not learned[over].any(), "nothing is learned of where an episode ends"
    v[over] = 0.0
    assert v[0] == pytest.approx(0.9**5)
    np.testing.assert_allclose(learned, v, atol=0.02)


# ------------------------------------------------------------------------------------------------ several environments

MODES = ["NextStep", "SameStep", "Disabled"]


def vector(mode: str, weights: str, count: int = 3, **more: Any) -> LearnGVFsVector:
    limits = [9, 25, 14]
    modes = gymnasium.vector.AutoresetMode
    envs = gymnasium.vector.SyncVectorEnv(
        [lambda limit=limit: gymnasium.make("CartPole-v1", max_episode_steps=limit) for limit in limits[:count]],
        autoreset_mode=modes(mode),
    )
    given: dict[str, Any] = {"rule": RULE, "alpha": 0.05} | more
    return LearnGVFsVector(envs, QUESTIONS, coder(), weights=weights, **given)


def drive_vector(env: LearnGVFsVector, mode: str, steps: int) -> list[list[tuple[Any, ...]]]:
    """What each sub-environment went through: (observation, action, reward, following, terminated, truncated, μ)."""
    agents = [Agent(seed) for seed in range(env.num_envs)]
    observations, _ = env.reset(seed=5)
    through: list[list[tuple[Any, ...]]] = []
    over = np.zeros(env.num_envs, bool)
    for _ in range(steps):
        chosen = [agent(observation) for agent, observation in zip(agents, observations, strict=True)]
        env.mu = np.array([mu for _, mu in chosen])
        following, rewards, terminated, truncated, infos = env.step(np.array([action for action, _ in chosen]))
        assert infos["predictions"].shape == (env.num_envs, 5)
        taken = []
        for i, (action, mu) in enumerate(chosen):
            final = infos["final_obs"][i] if mode == "SameStep" and (terminated[i] or truncated[i]) else following[i]
            if not (mode == "NextStep" and over[i]):
                taken.append((i, observations[i], action, rewards[i], final, terminated[i], truncated[i], mu))
        through.append(taken)
        observations, over = following, terminated | truncated
        if mode == "Disabled" and over.any():
            observations, _ = env.reset(options={"reset_mask": over})
            over = np.zeros(env.num_envs, bool)
    return through


@pytest.mark.parametrize("weights", ["several", "one"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rule", [RULE, "bounded_etd"])
def test_each_sub_environment_is_a_sequence_of_its_own(rule: str, mode: str, weights: str) -> None:
    alpha = 0.05 if rule == RULE else 0.4
    env = vector(mode, weights, rule=rule, alpha=alpha)
    through = drive_vector(env, mode, 150)
    features, n = maker(), maker().n
    hands = [emphatic.Learner(rule, n, 5, engine="dense") for _ in range(3)]
    seen: list[Any] = [None] * 3 if rule == RULE else [[]] * 3 if weights == "one" else [[], [], []]
    cuts = 0
    last: emphatic.Learner | None = None
    for taken in through:
        for i, observation, action, reward, following, terminated, truncated, mu in taken:
            hand = hands[i]
            if weights == "one" and last is not None:
                hand.theta = last.theta  # its own traces, and the weights as the others have left them
            phi, phi_next = features(observation), features(following)
            by_hand(hand, phi, phi_next, observation, action, reward, following, terminated, mu, alpha, seen[i])
            if truncated and not terminated:
                hand.cut()
                cuts += 1
            last = hand
    assert cuts > 10
    assert last is not None
    expected = last.theta if weights == "one" else np.array([hand.theta for hand in hands])
    np.testing.assert_allclose(env.episodes.theta, expected, rtol=1e-9, atol=1e-12)
    assert np.abs(expected).max() > 0.01


@pytest.mark.parametrize("weights", ["several", "one"])
def test_the_logs_of_several_environments_replay_to_the_same_weights(weights: str) -> None:
    env = vector("NextStep", weights, record=True)
    drive_vector(env, "NextStep", 80)
    again = [emphatic.Learner(RULE, maker().n, K=5, engine="sparse") for _ in range(3)]
    for i, learner in enumerate(again):
        learner.run(**env.log(i))
    theta = np.array([learner.theta for learner in again])
    np.testing.assert_allclose(
        theta.sum(axis=0) if weights == "one" else theta, env.episodes.theta, rtol=1e-10, atol=1e-13
    )


# ------------------------------------------------------------------------------------------------ as in a horde


def named(row: Any) -> float:
    """A function of a row."""
    return float(row["o2"] + row["reward"])


def test_a_function_of_one_parameter_is_given_the_row_that_follows() -> None:
    ask = [GVF(named, gamma=0.9), GVF("o2 + reward", gamma=0.9)]
    env = LearnGVFs(gymnasium.make("CartPole-v1"), ask, coder(), record=True)
    drive(env, 30)
    R = env.log()["R"]
    np.testing.assert_array_equal(R[:, 0], R[:, 1])
    assert np.ptp(R) > 0.0
    with pytest.raises(ValueError, match="one parameter or of four"):
        LearnGVFs(gymnasium.make("CartPole-v1"), [GVF(lambda o, a: 1.0, gamma=0.9)], coder())


def test_where_nothing_gives_mu_actions_are_counted() -> None:
    ask = [GVF("o2", gamma=0.9, policy=Policy({0: 0.5, 1: 0.5}))]
    pushes = gymnasium.spaces.Box(0.0, 1.0, (), np.float64)  # of which nothing says how likely one is
    cart = gymnasium.wrappers.TransformAction(gymnasium.make("CartPole-v1"), int, pushes)
    env = LearnGVFs(cart, ask, coder(), record=True)
    env.reset(seed=0)
    for action in (0.0, 1.0, 1.0, 0.0):
        env.step(np.array(action))
    assert env.log()["rho"][:, 0].tolist() == [0.5, 0.5 / (1 / 2), 0.5 / (2 / 3), 0.5 / (2 / 4)]
    (horde,) = env.episodes.hordes
    assert horde.counts == {"o2@0.9": {"0": 2, "1": 2}}


# ------------------------------------------------------------------------------------------------ keeping

SAVED = [
    GVF("reward", gamma=0.9),
    GVF("o2", horizon=8, lambda_=0.7),
    GVF("abs(o2) + 0.5 * reward", gamma="0.9 * (abs(o2) < 0.1)", interest="abs(o2)", terminal=2.0, name="expression"),
    GVF("o2", gamma=0.8, policy=Policy({0: 1.0}), name="left"),
]


def driven(env: Any, agent: Agent, observation: Any, steps: int) -> tuple[Any, list[bytes | None]]:
    seen = []
    for _ in range(steps):
        action, _ = agent(observation)
        observation, _, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            observation, info = env.reset()
        seen.append(info["predictions"].tobytes() if "predictions" in info else None)
    return observation, seen


def mu_of(observation: Any, action: Any) -> float:
    assert observation.dtype == np.float32
    assert observation.shape == (4,)
    right = 0.6 if observation[2] > 0 else 0.35
    return right if action else 1 - right


@pytest.mark.parametrize("more", [{}, {"every": 7}, {"rate": 0.5}, {"mu": mu_of}], ids=", ".join)
@pytest.mark.parametrize("steps", [1, 24, 40, 61])
def test_goes_on_with_the_same_bits(more: dict[str, Any], steps: int, tmp_path: Path) -> None:
    def plain() -> Any:
        return gymnasium.make("CartPole-v1", max_episode_steps=24)

    def start(env: Any) -> tuple[Any, Any]:
        """Where an environment is after so many steps."""
        agent = Agent(0)
        observation, _ = env.reset(seed=0)
        return agent, driven(env, agent, observation, steps)[0]

    env = LearnGVFs(plain(), SAVED, coder(), **more)
    agent, observation = start(env)
    env.save(tmp_path / "model")
    fresh = plain()
    again, same = start(fresh)
    other = LearnGVFs.load(tmp_path / "model", fresh, mu=more.get("mu"))
    np.testing.assert_array_equal(observation, same)
    assert driven(other, again, same, 80)[1] == driven(env, agent, observation, 80)[1]
    for one, two in zip(other.episodes.hordes[0].learners, env.episodes.hordes[0].learners, strict=True):
        assert one.theta.tobytes() == two.theta.tobytes()
    assert other.episodes.questions == tuple(SAVED)


def test_a_part_of_shared_weights_is_not_saved(tmp_path: Path) -> None:
    envs = gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync")
    for weights in ("one", "several"):
        env = LearnGVFsVector(envs, SAVED, coder(), weights=weights)
        env.reset(seed=0)
        for horde in env.episodes.hordes:
            if weights == "several":
                horde.save(tmp_path / "model")
                continue
            with pytest.raises(ValueError, match="cannot be saved by itself"):
                horde.save(tmp_path / "model")


def test_a_loaded_environment_may_be_reset(tmp_path: Path) -> None:
    env = LearnGVFs(gymnasium.make("CartPole-v1"), SAVED, coder())
    drive(env, 5)
    env.save(tmp_path / "model")
    other = LearnGVFs.load(tmp_path / "model", gymnasium.make("CartPole-v1"))
    one, two = ([info["predictions"].tolist() for info in drive(some, 40, seed=1)] for some in (env, other))
    assert one == two


def test_what_cannot_be_saved_or_loaded(tmp_path: Path) -> None:
    path = tmp_path / "model"
    env = made()
    env.reset(seed=0)
    with pytest.raises(ValueError, match="has a function as its"):
        env.save(path)
    waiting = LearnGVFs(gymnasium.make("CartPole-v1"), SAVED, tiles(SPACE), warm_up=30)
    with pytest.raises(RuntimeError, match="Nothing can be saved during the warm-up"):
        waiting.save(path)
    saved = LearnGVFs(gymnasium.make("CartPole-v1"), SAVED, coder())
    saved.reset(seed=0)
    saved.save(path)
    with pytest.raises(ValueError, match=r"'env'.*4 components"):
        LearnGVFs.load(path, gymnasium.make("Pendulum-v1"))
    (horde,) = saved.episodes.hordes
    horde.save(path)
    with pytest.raises(emphatic.CheckpointError, match=r"Horde\.load opens it"):
        LearnGVFs.load(path, gymnasium.make("CartPole-v1"))
    damages: list[Any] = [5, {}, {"every": 0, "since": 0}, {"every": 1, "since": -1}, {"every": "1", "since": 0}]
    for damage in damages:
        horde.save(path, gymnasium=damage)
        with pytest.raises(emphatic.CheckpointError, match="valid LearnGVFs"):
            LearnGVFs.load(path, gymnasium.make("CartPole-v1"))


# ------------------------------------------------------------------------------------------------ the rest


def test_ranges_can_be_found_from_the_first_steps() -> None:
    features = tiles(SPACE, [["o0", "o1"], ["o2", "o3"]], tiles=4, tilings=4)  # o1 and o3 are unbounded
    env = LearnGVFs(gymnasium.make("CartPole-v1"), QUESTIONS, features, warm_up=30)
    infos = drive(env, 40)
    known = [bool(np.isfinite(info["predictions"]).all()) for info in infos]
    assert known.index(True) in range(25, 31)
    assert all(known[known.index(True) :])
    assert all(learner.steps > 5 for learner in env.episodes.hordes[0].learners)
    with pytest.raises(ValueError, match="warm_up=500"):
        LearnGVFs(gymnasium.make("CartPole-v1"), QUESTIONS, tiles(SPACE))


@pytest.mark.parametrize("every", [1, 8])
def test_a_question_that_diverges_stands_still_and_the_others_go_on(every: int) -> None:
    wild = GVF(lambda o, a, r, o_next: 1e99 * float(o_next[1]), gamma=1.0, lambda_=1.0, name="wild")
    env = LearnGVFs(gymnasium.make("CartPole-v1"), [wild, QUESTIONS[0]], coder(), alpha=3.0, every=every, record=True)
    with pytest.warns(DivergenceWarning, match="'reward@0.9' predicts"):
        infos = drive(env, 60)
    assert env.episodes.frozen.tolist() == [[True, False]]
    assert all(np.isfinite(info["predictions"]).all() for info in infos if "predictions" in info)
    alone = LearnGVFs(gymnasium.make("CartPole-v1"), [QUESTIONS[0]], coder(), alpha=3.0)
    with pytest.warns(DivergenceWarning):
        drive(alone, 60)
    np.testing.assert_allclose(env.episodes.theta[1], alone.episodes.theta[0], rtol=1e-10)
    again = emphatic.Learner(RULE, maker().n, K=2, engine="sparse")
    again.run(**env.log())
    np.testing.assert_allclose(again.theta, env.episodes.theta, rtol=1e-10)


def test_continuous_actions_need_a_density() -> None:
    env = gymnasium.make("Pendulum-v1")
    ask = [GVF("reward", gamma=0.9, policy=Policy(lambda observation, action: 2.0 - abs(float(action[0]))))]
    learning = LearnGVFs(env, ask, tiles(env.observation_space), record=True)
    learning.reset(seed=0)
    with pytest.raises(ValueError, match=r"set env\.mu"):
        learning.step(np.array([0.5], np.float32))
    learning.reset(seed=0)
    learning.mu = 0.25
    learning.step(np.array([0.5], np.float32))
    assert learning.log()["rho"].tolist() == [[6.0]]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"questions": []}, "'questions' parameter of LearnGVFs"),
        ({"questions": [GVF("o9", gamma=0.5)]}, "be about the signals, o0, o1, o2, o3, reward"),
        ({"questions": [GVF("o1 +", gamma=0.5)]}, "be a signal or an expression"),
        ({"questions": [GVF("o1", gamma=0.5, policy=Policy({0: 1.0}, behaviour="column"))]}, "'behaviour'"),
        ({"features": None}, "'features' parameter of LearnGVFs"),
        (
            {"rule": "tree_backup", "questions": QUESTIONS[:1]},
            "'policy' parameter of GVF must be given for rule 'tree_",
        ),
        ({"rule": min}, "'rule' parameter must be one of td"),
        ({"features": lambda observation: "φ"}, "'features' parameter of LearnGVFs must return numbers"),
        ({"features": divmod}, "'features' parameter of LearnGVFs must return numbers"),
        ({"alpha": -1.0}, "'alpha' parameter of learn"),
        ({"nonsense": 1.0}, "'nonsense' parameter"),
        ({"names": ["a", "b"]}, "be about the signals, a, b, reward"),
    ],
)
def test_bad_input_is_refused(given: dict[str, Any], said: str) -> None:
    right: dict[str, Any] = {"questions": QUESTIONS, "features": coder()}
    with pytest.raises(ValueError, match=said):
        LearnGVFs(gymnasium.make("CartPole-v1"), **(right | given))


def test_weights_besides_theta_cannot_be_shared() -> None:
    with pytest.raises(ValueError, match="be 'several' for rule 'gtd'"):
        vector("NextStep", "one", rule="gtd")
    with pytest.raises(ValueError, match="be 'one' or 'several'"):
        vector("NextStep", "two")


def test_nothing_is_recorded_unless_asked() -> None:
    env = made()
    drive(env, 3)
    with pytest.raises(RuntimeError, match="record=True"):
        env.log()


@pytest.mark.long
@pytest.mark.parametrize("example", ["cartpole", "halfcheetah"])
def test_the_examples_are_right(example: str, tmp_path: Path) -> None:
    if example == "halfcheetah":
        pytest.importorskip("mujoco", reason="gymnasium[mujoco] is not installed")
    command = [sys.executable, str(ROOT / "examples" / f"{example}.py"), "--quick"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


def test_without_the_extra_the_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    monkeypatch.delitem(sys.modules, "emphatic.gymnasium")
    with pytest.raises(ImportError, match=r"pip install 'emphatic\[gym\]'"):
        importlib.import_module("emphatic.gymnasium")
