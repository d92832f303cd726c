"""The control suite: an agent's step beside its environment, and whole episodes beside agents stepped from Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.measure import Case, Effort, Gate, Side, fastest, gate
from benchmarks.report import Row
from emphatic import problems
from emphatic.control import Agent
from emphatic.features import Bias, Features, Tiles
from emphatic.problems import MountainCar
from reproductions.plain_agents import PlainAgent

EFFORT = Effort(5, 0.05)
#: θ beside that of an agent in plain NumPy, or of the same agent stepped from Python.
TOLERANCE = 1e-12
#: The worlds in which whole episodes run; by world its class and the algorithm.
WORLDS: dict[str, tuple[Callable[..., Any], str]] = {
    "windy_gridworld": (lambda **given: problems.Environment(problems.windy_gridworld(), **given), "sarsa"),
    "cliff_walking": (lambda **given: problems.Environment(problems.cliff_walking(), **given), "watkins_q"),
    "mountain_car": (MountainCar, "true_online_sarsa"),
}


def cases(quick: bool) -> Sequence[Case]:
    """All cases; ``quick`` makes them small."""
    if quick:
        return [OneStep(200), BesideNumPy(1), Episodes("windy_gridworld", 5, 60)]
    return [
        OneStep(2_000),
        Beside("CartPole-v1", 2_000),
        Beside("MountainCar-v0", 2_000),
        BesideNumPy(2),
        *(Episodes(world, 200, 1_000) for world in WORLDS),
    ]


def hashed_tiles(n: int) -> Features:
    """8 tilings of n features."""
    return Features([Tiles(["o0", "o1"], tiles=8, tilings=8, range=list(MountainCar.ranges), hashed=n)])


def new_agent(n: int) -> Agent:
    return Agent("true_online_sarsa", hashed_tiles(n), 3, alpha=0.1, gamma=1.0, lambda_=0.9, seed=0)


def new_plain_agent(n: int) -> PlainAgent:
    """The same agent in plain NumPy."""
    maker = hashed_tiles(n)
    maker.warm_up(np.empty((0, 2)), names=["o0", "o1"])

    def phi(observation: Any) -> Any:
        active = maker(np.array(observation, np.float64))
        dense = np.zeros(maker.n)
        dense[active.indices[active.indices >= 0]] = active.values[active.indices >= 0]
        return dense

    return PlainAgent("true_online_sarsa", phi, n, 3, 0.1, 1.0, 0.9, 0.1, 0)


def follow(agent: Any, world: Any, episodes: int) -> int:
    """Whole episodes, a call a step; how many steps."""
    steps = 0
    for _ in range(episodes):
        action = agent.start(world.reset()[0])
        over = False
        while not over:
            observation, reward, terminated, truncated, _ = world.step(action)
            over, steps = terminated or truncated, steps + 1
            end = (terminated, truncated) if truncated else (terminated,)
            action = agent.step(reward, observation, *end)
    return steps


@dataclass(frozen=True)
class OneStep:
    """``Agent.step`` on observations of mountain car, 8 tilings, 3 actions, n = 4,096."""

    steps: int

    def gates(self) -> Iterator[Gate]:
        agent, plain = new_agent(4_096), new_plain_agent(4_096)
        for learner in (agent, plain):
            follow(learner, MountainCar(1), 1)
        yield gate("Agent.step", agent.learner.theta, plain.theta, TOLERANCE)

    def rows(self, effort: Effort) -> Iterator[Row]:
        world, rng = MountainCar(1), np.random.default_rng(0)
        observations = [world.reset()[0]]
        while len(observations) < self.steps:
            observation, _, ended, _, _ = world.step(int(rng.integers(3)))
            observations.append(world.reset()[0] if ended else observation)
        agent = new_agent(4_096)
        agent.start(observations[0])

        def call() -> None:
            step = agent.step
            for observation in observations:
                step(-1.0, observation)

        µs = fastest({"ours": Side(call, self.steps)}, effort.rounds, effort.seconds)["ours"]
        yield Row(
            "one agent",
            "step, 8 tilings, 3 actions, n = 4,096",
            gates=("Agent.step",),
            ours=µs,
            ratio=µs,
            at_most=12.0,
            note="ratio: µs beside the environment",
        )


@dataclass(frozen=True)
class Beside:
    """Agent and a Gymnasium environment together, beside the bare step of that environment."""

    env: str
    steps: int

    def gates(self) -> Iterator[Gate]:
        return iter(())  # that of ``OneStep``

    def rows(self, effort: Effort) -> Iterator[Row]:
        import gymnasium

        from emphatic.gymnasium import tiles

        env = gymnasium.make(self.env)
        bounds = {"o1": (-3.0, 3.0), "o3": (-3.5, 3.5)} if "Cart" in self.env else None
        names = [f"o{i}" for i in range(env.observation_space.shape[0])]  # type: ignore[index]
        maker = tiles(env.observation_space, [names], ranges=bounds, hashed=4_096)
        maker = Features([part for part in maker.parts if not isinstance(part, Bias)])
        agent = Agent("true_online_sarsa", maker, env.action_space, alpha=0.1, gamma=1.0, lambda_=0.9, seed=0)
        count = int(env.action_space.n)  # type: ignore[attr-defined]
        actions = np.random.default_rng(0).integers(count, size=self.steps).tolist()

        def bare() -> None:
            env.reset(seed=0)
            for action in actions:
                _, _, terminated, truncated, _ = env.step(action)
                if terminated or truncated:
                    env.reset()

        def together() -> None:
            action = agent.start(env.reset(seed=0)[0])
            for _ in range(self.steps):
                observation, reward, terminated, truncated, _ = env.step(action)
                action = agent.step(reward, observation, terminated, truncated)  # type: ignore[arg-type]
                if action is None:
                    action = agent.start(env.reset()[0])

        sides = {"ours": Side(together, self.steps), "bare": Side(bare, self.steps)}
        µs = fastest(sides, effort.rounds, effort.seconds)
        yield Row(
            "one agent",
            f"agent and {self.env}",
            gates=("Agent.step",),
            ours=µs["ours"],
            alternative=µs["bare"],
            versus="the bare environment, random actions",
            ratio=µs["ours"] / µs["bare"],
            at_most=3.0,
            note="ratio: together / bare",
        )


def fastest_of(sides: dict[str, Callable[[], Callable[[], int]]], rounds: int) -> dict[str, float]:
    """Microseconds a step for each side, the least over all rounds.

    Args:
        sides: Each sets up an agent that has not learned yet, and returns the call to time, which returns its steps.
        rounds: How often each side has its turn.
    """
    best = dict.fromkeys(sides, float("inf"))
    for _ in range(rounds):
        for name, prepare in sides.items():
            call = prepare()
            began = perf_counter()
            steps = call()
            best[name] = min(best[name], 1e6 * (perf_counter() - began) / steps)
    return best


@dataclass(frozen=True)
class BesideNumPy:
    """The first episodes of one agent in mountain car by ``Agent.train``, beside plain NumPy; n = 10,000."""

    episodes: int

    def gates(self) -> Iterator[Gate]:
        agent, plain = new_agent(10_000), new_plain_agent(10_000)
        agent.train(MountainCar(1), 1)
        follow(plain, MountainCar(1), 1)
        yield gate("Agent.train, n = 10,000", agent.learner.theta, plain.theta, TOLERANCE)

    def rows(self, effort: Effort) -> Iterator[Row]:
        def ours() -> Callable[[], int]:
            agent = new_agent(10_000)
            return lambda: int(np.sum(agent.train(MountainCar(1), self.episodes).steps))

        def numpy() -> Callable[[], int]:
            plain = new_plain_agent(10_000)
            return lambda: follow(plain, MountainCar(1), self.episodes)

        µs = fastest_of({"ours": ours, "NumPy": numpy}, effort.rounds)
        yield Row(
            "one agent",
            "compiled mountain car, n = 10,000",
            gates=("Agent.train, n = 10,000",),
            ours=µs["ours"],
            alternative=µs["NumPy"],
            versus="a plain NumPy agent",
            ratio=µs["NumPy"] / µs["ours"],
            at_least=20.0,
        )


@dataclass(frozen=True)
class Episodes:
    """Whole episodes by ``Agent.train``, beside the same agent stepped from Python."""

    world: str
    episodes: int
    limit: int

    @property
    def name(self) -> str:
        return f"{WORLDS[self.world][1]}, {self.world}"

    def pair(self) -> tuple[Agent, Any]:
        """A fresh agent and its world."""
        make, algorithm = WORLDS[self.world]
        world = make(seed=1, limit=self.limit)
        names = [f"o{i}" for i in range(len(world.ranges))]
        features: Any = Tiles(names, range=world.ranges) if names else world.mdp.S
        agent = Agent(algorithm, features, world.actions, alpha=0.3, gamma=1.0, lambda_=self.lambda_, seed=0)
        return agent, world

    @property
    def lambda_(self) -> float:
        return 0.0 if WORLDS[self.world][1] == "watkins_q" else 0.9

    def gates(self) -> Iterator[Gate]:
        (compiled, world), (stepped, other) = self.pair(), self.pair()
        compiled.train(world, min(20, self.episodes))
        follow(stepped, other, min(20, self.episodes))
        yield gate(self.name, compiled.learner.theta, stepped.learner.theta, TOLERANCE)

    def rows(self, effort: Effort) -> Iterator[Row]:
        def ours() -> Callable[[], int]:
            agent, world = self.pair()
            return lambda: int(np.sum(agent.train(world, self.episodes).steps))

        def stepped() -> Callable[[], int]:
            agent, world = self.pair()
            return lambda: follow(agent, world, self.episodes)

        µs = fastest_of({"ours": ours, "stepped": stepped}, effort.rounds)
        yield Row(
            "whole episodes of one agent by Agent.train",
            self.name,
            gates=(self.name,),
            ours=µs["ours"],
            alternative=µs["stepped"],
            versus="the same agent stepped from Python",
            ratio=µs["stepped"] / µs["ours"],
            at_least=20.0,
        )
