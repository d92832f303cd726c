"""The live suite: what learning beside an agent adds to a step of its environment, and readings as they come."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import ceil
from time import perf_counter
from typing import Any

import emphatic
from benchmarks.cases import RULE, Effort, run_cases
from benchmarks.measure import Gate, Side, fastest, gate
from benchmarks.readings import Incoming, RowByRow
from benchmarks.report import Row
from benchmarks.service import ByHttp, ByMqtt
from emphatic import GVF
from emphatic.engines.sparse.sparse_many import SparseMany

has_mujoco = all(importlib.util.find_spec(name) is not None for name in ("gymnasium", "mujoco"))
INSTALL = "pip install 'gymnasium[mujoco]' to compare"
HORIZONS = (20, 40, 80, 160, 320, 640)
EVERY = (1, 10, 100)


def run(quick: bool = False) -> tuple[list[Gate], list[Row]]:
    """Every gate and every row; ``quick`` only shows that the suite works."""
    beside = Beside("HalfCheetah-v5" if has_mujoco else "Pendulum-v1", 100, 60 if quick else 900)
    T, C = (200, 2) if quick else (6000, 20)
    incoming = [Incoming(T, C), Incoming(T, C, exponential_only=True)]
    by_row = RowByRow(400, 100) if quick else RowByRow(2000)
    served = ByMqtt(2, 100, 2) if quick else ByMqtt(20, 1000, 60)
    posted = ByHttp(2, 2, 1) if quick else ByHttp(2, 8, 20)
    return run_cases([beside, by_row, *incoming, served, posted], Effort(1, 0.0) if quick else Effort(7, 0.1))


@dataclass(frozen=True)
class Beside:
    """``questions`` GVFs learned beside an agent that acts at random, with about 1,000 tile-coded features."""

    environment: str
    questions: int
    T: int

    @property
    def what(self) -> str:
        return f"{self.questions} GVFs beside {self.environment}"

    def plain(self) -> Any:
        import gymnasium

        return gymnasium.make(self.environment, max_episode_steps=100_000)

    def learning(self, **more: Any) -> Any:
        """The same environment, with every component in some joint tiling."""
        from emphatic.streams.gymnasium import LearnGVFs, component_names, tiles

        env = self.plain()
        names = component_names(env.observation_space)
        pairs = [list(names[i : i + 2]) for i in range(0, len(names), 2)]
        side = ceil((1_000 / 4 / len(pairs)) ** 0.5) - 1
        ranges = dict.fromkeys(names, (-10.0, 10.0))
        features = tiles(env.observation_space, pairs, ranges=ranges, tiles=side, tilings=4)
        asked = [GVF(name, horizon=h, lambda_=0.9) for h, name in product(HORIZONS, (*names, "reward"))]
        many = [GVF("reward", gamma=1 - 1 / (700 + i), lambda_=0.9) for i in range(self.questions)]
        return LearnGVFs(env, (asked + many)[: self.questions], features, **more)

    def actions(self) -> list[Any]:
        env = self.plain()
        env.action_space.seed(0)
        return [env.action_space.sample() for _ in range(self.T)]

    def gates(self) -> Iterator[Gate]:
        for every in EVERY:
            env = self.learning(every=every, record=True)
            loop(env, self.actions()[:300])()
            log = env.log()
            reference = emphatic.Learner(RULE, env.episodes.learners[0].n, K=self.questions, engine="reference")
            reference.run(**log)
            yield gate(self.name(every), env.episodes.theta, reference.theta)

    def name(self, every: int) -> str:
        return f"{self.what}, predictions every {every}"

    def rows(self, effort: Effort) -> Iterator[Row]:
        actions, learning = self.actions(), {every: self.learning(every=every) for every in EVERY}
        sides = {"plain": Side(loop(self.plain(), actions), self.T)}
        sides |= {self.name(every): Side(loop(env, actions), self.T) for every, env in learning.items()}
        µs = fastest(sides, effort.rounds, effort.seconds)
        for every, env in learning.items():
            features, added = env.episodes.features, µs[self.name(every)] - µs["plain"]
            yield Row(
                f"what the wrapper adds to a step of {self.environment}: {self.questions} GVFs, "
                f"{features.n:,} tile-coded features, {features.active} active",
                "predictions at every step" if every == 1 else f"predictions at every {every}th step",
                gates=(self.name(every),),
                ours=added,
                alternative=µs["plain"],
                versus="the step without" if has_mujoco else INSTALL,
                ratio=added / µs["plain"] if has_mujoco else None,
                at_most=0.8 if every == 1 else 1.0,
            )
        env = learning[EVERY[0]]
        section = f"where a step with {self.questions} GVFs goes; ratio is to the step without them"
        for what, owner, method in (
            ("the environment's own step, after learning", type(env.env), "step"),
            ("learning and predicting, Python's calls included", type(env.episodes), "step"),
            ("the compiled step of all learners", SparseMany, "learn_row"),
        ):
            inside = 1e6 * min(seconds_within(owner, method, loop(env, actions)) for _ in range(effort.rounds)) / self.T
            yield Row(section, what, gates=(self.name(1),), ours=inside, ratio=inside / µs["plain"])


def seconds_within(owner: type, method: str, call: Any) -> float:
    """The seconds that a call spends in a method of a class."""
    total, original = 0.0, getattr(owner, method)

    def timed(*arguments: Any, **keywords: Any) -> Any:
        nonlocal total
        began = perf_counter()
        result = original(*arguments, **keywords)
        total += perf_counter() - began
        return result

    setattr(owner, method, timed)
    try:
        call()
    finally:
        setattr(owner, method, original)
    return total


def loop(env: Any, actions: list[Any]) -> Any:
    """The same trajectory at every call: the cost of a step depends on where the body is."""

    def call() -> None:
        env.reset(seed=0)
        for action in actions:
            env.step(action)

    return call
