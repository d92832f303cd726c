"""Agents: a step beside its environment, beside a plain NumPy agent, and many agents at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.cases import Case, Effort, run_cases
from benchmarks.measure import Gate, Side, fastest, gate
from benchmarks.report import Row
from emphatic.control import Agent, Agents
from emphatic.features import Bias, Features, Tiles
from emphatic.problems import MountainCar
from reproductions.plain_agents import PlainAgent

CAR = list(MountainCar.ranges)
#: Of one agent: θ beside that of an agent in plain NumPy, or of the same agent stepped from Python.
TOLERANCE = 1e-12


def run(quick: bool = False) -> tuple[list[Gate], list[Row]]:
    """Every gate and every row; ``quick`` only shows that the suite works."""
    return run_cases(cases(quick), Effort(1, 0.0) if quick else Effort(5, 0.05))


def cases(quick: bool) -> Sequence[Case]:
    if quick:
        return [OneStep(200), Many("windy_gridworld", "sarsa", 0.9, 3, 2, 60)]
    return [
        OneStep(2_000),
        Beside("CartPole-v1", 2_000),
        Beside("MountainCar-v0", 2_000),
        BesideNumPy(1_000),
        Many("windy_gridworld", "sarsa", 0.9, 100, 20, 200),
        Many("cliff_walking", "q", 0.0, 100, 20, 200),
        Many("mountain_car", "true_online_sarsa", 0.9, 100, 4, 300),
    ]


def hashed_tiles(n: int) -> Features:
    """8 tilings of n features."""
    names = ["o0", "o1"]
    return Features([Tiles(names, tiles=8, tilings=8, range=CAR, hashed=n)])


def tabled(maker: Features) -> Callable[[Any], Any]:
    """φ of an observation as a plain agent takes it, (n,)."""
    maker.warm_up(np.empty((0, 2)), names=["o0", "o1"])

    def phi(observation: Any) -> Any:
        active = maker(np.array(observation, np.float64))
        dense = np.zeros(maker.n)
        dense[active.indices[active.indices >= 0]] = active.values[active.indices >= 0]
        return dense

    return phi


def follow(agent: Any, world: Any, steps: int) -> None:
    """So many steps of episodes."""
    action = None
    for _ in range(steps):
        if action is None:
            action = agent.start(world.reset()[0])
        observation, reward, terminated, _, _ = world.step(action)
        action = agent.step(reward, observation, terminated)


@dataclass(frozen=True)
class OneStep:
    """``Agent.step`` on observations of mountain car, 8 tilings, 3 actions, n = 4,096."""

    steps: int

    def agent(self) -> Agent:
        return Agent("true_online_sarsa", hashed_tiles(4_096), 3, alpha=0.1, gamma=1.0, lambda_=0.9, seed=0)

    def gates(self) -> Iterator[Gate]:
        agent = self.agent()
        plain = PlainAgent("true_online_sarsa", tabled(hashed_tiles(4_096)), 4_096, 3, 0.1, 1.0, 0.9, 0.1, 0)
        for learner in (agent, plain):
            follow(learner, MountainCar(1), 500)
        yield gate("Agent.step", agent.learner.theta, plain.theta, TOLERANCE)

    def rows(self, effort: Effort) -> Iterator[Row]:
        world, rng = MountainCar(1), np.random.default_rng(0)
        observations = [world.reset()[0]]
        while len(observations) < self.steps:
            observation, _, ended, _, _ = world.step(int(rng.integers(3)))
            observations.append(world.reset()[0] if ended else observation)
        agent = self.agent()
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
        return iter(())

    def rows(self, effort: Effort) -> Iterator[Row]:
        import gymnasium

        from emphatic.streams.gymnasium import tiles

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


@dataclass(frozen=True)
class BesideNumPy:
    """One agent in a compiled mountain car, beside an agent in plain NumPy in the same world; n = 10,000."""

    steps: int

    def agents(self) -> Agents:
        return Agents("true_online_sarsa", "mountain_car", 1, features=hashed_tiles(10_000), alpha=0.1, lambda_=0.9)

    def gates(self) -> Iterator[Gate]:
        agents = self.agents()
        agents.train(1, limit=self.steps)
        _, world = agents.alone(0)
        phi = tabled(hashed_tiles(10_000))
        plain = PlainAgent("true_online_sarsa", phi, 10_000, 3, 0.1, 1.0, 0.9, 0.1, 0)
        plain.random = np.random.default_rng([0, 0, 0])
        follow(plain, world, self.steps)
        yield gate("one of Agents, n = 10,000", agents.theta[0], plain.theta, TOLERANCE)

    def rows(self, effort: Effort) -> Iterator[Row]:
        phi, best = tabled(hashed_tiles(10_000)), {"ours": float("inf"), "NumPy": float("inf")}
        for _ in range(4 * effort.rounds):  # every time from the first step, before an episode ends
            agents = self.agents()
            plain = PlainAgent("true_online_sarsa", phi, 10_000, 3, 0.1, 1.0, 0.9, 0.1, 0)
            _, world = agents.alone(0)
            start = perf_counter()
            steps = int(agents.train(1, limit=self.steps).steps.sum())
            times = {"ours": (perf_counter() - start) / steps}
            start = perf_counter()
            follow(plain, world, self.steps)
            times["NumPy"] = (perf_counter() - start) / self.steps
            best = {side: min(best[side], 1e6 * seconds) for side, seconds in times.items()}
        µs = best
        yield Row(
            "one agent",
            "compiled mountain car, n = 10,000",
            gates=("one of Agents, n = 10,000",),
            ours=µs["ours"],
            alternative=µs["NumPy"],
            versus="a plain NumPy agent",
            ratio=µs["NumPy"] / µs["ours"],
            at_least=20.0,
        )


@dataclass(frozen=True)
class Many:
    """K agents at once, beside K ``Agent``s stepped from Python, and beside K compiled runs one after another."""

    world: str
    algorithm: str
    lambda_: float
    K: int
    episodes: int
    limit: int

    @property
    def name(self) -> str:
        return f"{self.K} agents, {self.algorithm}, {self.world}"

    def agents(self, runs: Sequence[int]) -> Agents:
        return Agents(self.algorithm, self.world, alpha=0.3, lambda_=self.lambda_, epsilon=0.1, runs=runs)

    def alone(self, k: int) -> tuple[Agent, Any]:
        agent, world = self.agents([k]).alone(0)
        world.limit = self.limit
        return agent, world

    def gates(self) -> Iterator[Gate]:
        agents = self.agents(range(self.K))
        agents.train(self.episodes, limit=self.limit)
        several = range(0, self.K, max(1, self.K // 5))
        thetas = []
        for k in several:
            agent, world = self.alone(k)
            agent.train(world, self.episodes)
            thetas.append(agent.learner.theta)
        yield gate(self.name, agents.theta[list(several)], np.array(thetas), TOLERANCE)

    def rows(self, effort: Effort) -> Iterator[Row]:
        best = dict.fromkeys(("many", "single", "Python"), float("inf"))
        for _ in range(effort.rounds):
            many = self.agents(range(self.K))
            singles = [self.agents([k]) for k in range(self.K)]
            pairs = [self.alone(k) for k in range(self.K)]
            start = perf_counter()
            steps = int(many.train(self.episodes, limit=self.limit).steps.sum())
            times = {"many": perf_counter() - start}
            start = perf_counter()
            for agents in singles:
                agents.train(self.episodes, limit=self.limit)
            times["single"] = perf_counter() - start
            start = perf_counter()
            for agent, world in pairs:
                agent.train(world, self.episodes)
            times["Python"] = perf_counter() - start
            best = {side: min(best[side], seconds / steps * 1e6) for side, seconds in times.items()}
        for side, versus, at_least in (
            ("Python", "as many Agents stepped from Python", 20.0),
            ("single", "as many compiled runs, one after another", 1.5),
        ):
            yield Row(
                "many agents at once, on one thread",
                self.name,
                gates=(self.name,),
                ours=best["many"],
                alternative=best[side],
                versus=versus,
                ratio=best[side] / best["many"],
                at_least=at_least,
                note="without the time to set them up",
            )
