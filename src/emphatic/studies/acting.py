"""A sweep over agents: every setting of an algorithm acts in a world of its own."""

from __future__ import annotations

import copy
import functools
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from emphatic import problems
from emphatic.common.names import suggestion
from emphatic.control import ALGORITHMS, WORLDS, Agent, Algorithm
from emphatic.control.agent import check_end
from emphatic.control.algorithms import algorithm_of
from emphatic.features import Tiles
from emphatic.learning.inputs import refusal, whole
from emphatic.problems import Environment, World
from emphatic.studies.grid import ControlRule, Grid, GridSettings
from emphatic.studies.sources import Array, Scores

__all__ = ["Acting", "acting", "control_grid", "is_world", "maker_of"]

#: Steps of an episode, at most, where the world has no limit.
_LIMIT = 10_000
#: Steps of a block in a world that never ends.
_BLOCK = 1_000
#: Runs of random actions, for comparison.
_RANDOM_RUNS = 20


def is_world(problem: object) -> bool:
    """Whether a problem is one to act in: a ``World``, or the name of one.

    Args:
        problem: The argument of ``sweep``.
    """
    return isinstance(problem, World) or (isinstance(problem, str) and problem.replace("-", "_") in WORLDS)


def maker_of(name: str) -> Callable[..., Any]:
    """The function that makes a problem to predict; the message for an unknown name has those to act in too.

    Args:
        name: One of ``emphatic.problems.names()``; hyphens count as underscores.
    """
    known = (*problems.names(), *WORLDS)
    if name.replace("-", "_") not in problems.names():
        raise refusal("problem", "sweep", f"be one of {', '.join(known)}", repr(name), suggestion(name, known).strip())
    return problems.get(name)


def control_grid(grid: Grid) -> list[dict[str, Any]]:
    """The same grid, with the algorithms of agents in place of their names: some rules have the same names.

    Args:
        grid: The argument of ``sweep``.
    """
    grids = [grid] if isinstance(grid, Mapping) else list(grid)
    return [dict(axes) | {"rule": _algorithms(axes.get("rule"))} for axes in grids if isinstance(axes, Mapping)]


def _algorithms(names: object) -> list[ControlRule]:
    several = list(names) if isinstance(names, list | tuple) else [names]
    if isinstance(names, str):
        several = [name.strip() for name in names.split(",")]
    chosen = []
    for name in several:
        if not isinstance(name, Algorithm) and name not in ALGORITHMS:
            wanted = f"be one or several of {', '.join(ALGORITHMS)}, or an Algorithm, to act"
            raise refusal("rule", "sweep", wanted, repr(name))
        algorithm = algorithm_of(name)
        chosen.append(ControlRule.of(algorithm))
    return chosen


@dataclass(frozen=True, eq=False)
class Acting:
    """Run i is one world and one stream of random numbers for all settings; each setting is an agent.

    States are a table. Observations of numbers are tile-coded: by 8 tilings of 8 × 8, and the acrobot's by 16 hashed
    ones of 6⁴. As each active tile is 1/√tilings, α = 1 moves a value all the way to its target in both.

    What is scored is the cost of an episode: its steps where each costs 1, else minus its return. In a world that never
    ends an episode is a block of 1,000 steps, or of the world's limit, and its cost is minus the mean reward. ``mean``
    is that of all episodes, ``final`` that of the last tenth of them.
    """

    world: World
    title: str
    steps: int
    seed: int = 0

    fresh: ClassVar[bool] = False
    unit: ClassVar[str] = "episodes"
    is_cost: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """The name of the world."""
        return self.title

    @property
    def notes(self) -> dict[str, str]:
        """What there is to say of a baseline: random actions may not come to an end."""
        return {} if self.world.continuing else {"random actions": f"episodes are cut after {self._limit:,} steps"}

    @property
    def _limit(self) -> int:
        return self.world.limit or (_BLOCK if self.world.continuing else _LIMIT)

    @property
    def metric(self) -> str:
        """What is scored."""
        if self.world.continuing:
            return "minus reward per step"
        return "steps per episode" if self._costs_steps else "minus return per episode"

    @functools.cached_property
    def _costs_steps(self) -> bool:
        """Whether every step costs 1, so that minus the return is the number of steps."""
        if isinstance(self.world, Environment):
            rewards = self.world.tables[3][: self.world.tables[0][-2]]
            return bool((rewards == -1.0).all())
        return type(self.world).__name__ in ("MountainCar", "Acrobot")

    def check(self, settings: GridSettings) -> None:
        """ValueError where these settings cannot act in it.

        Args:
            settings: Settings of one algorithm.
        """
        self._agent(settings, 0, 0)

    def identity(self) -> str:
        """A hash that identifies these runs."""
        digest = hashlib.sha256(repr((self.title, self.steps, self.seed, self._limit)).encode())
        for table in self.world.tables:
            digest.update(np.ascontiguousarray(table).tobytes())
        return digest.hexdigest()

    def points(self, count: int, every: int, early: bool = False) -> NDArray[np.int64]:
        """About ``count`` episodes, evenly spread.

        Args:
            count: How many.
            every: Only 1 is possible.
            early: Not used: there are few episodes.
        """
        return np.unique(np.round(np.linspace(0, self.steps - 1, min(count, self.steps))).astype(np.int64))

    def baselines(self, runs: int) -> dict[str, float]:
        """The cost of random actions and, of an MDP, of the best ones.

        Args:
            runs: Not used.
        """
        at_random = {"alpha": 0.0, "lambda": 0.0, "gamma": 0.0, "epsilon": 1.0}
        columns = {name: np.array([value]) for name, value in at_random.items()}
        settings = GridSettings(ControlRule.of(ALGORITHMS["sarsa"]), columns)
        random = [self._costs(self._agent(settings, 0, run), run, 1) for run in range(_RANDOM_RUNS)]
        costs = {"random actions": float(np.mean(random))}
        if isinstance(self.world, Environment):
            mdp = self.world.mdp
            best = mdp.optimal_reward_rate if self.world.continuing else float(mdp.start @ mdp.optimal_values)
            costs["best actions"] = -float(best)
        return costs

    def _agent(self, settings: GridSettings, k: int, run: int) -> Agent:
        """The agent of setting k, whose random numbers are those of seed (seed, run, 0)."""
        rule, world = settings.rule, self.world
        assert isinstance(rule, ControlRule)
        values: dict[str, Any] = {"gamma": 1.0}
        for name, column in settings.values.items():
            values["lambda_" if name == "lambda" else name] = float(column[k])
        features = _tiles(world) if world.ranges else (len(world.tables[0]) - 2) // world.actions
        seed: Any = [self.seed, run, 0]
        agent = Agent(rule.algorithm, features, world.actions, **values, stepsize=settings.stepsize, seed=seed)
        check_end(rule.algorithm, agent.gamma, world, "sweep")
        return agent

    def _costs(self, agent: Agent, run: int, episodes: int) -> Array:
        """Of each episode, infinite from the one on in which the agent would diverge.

        The random numbers of its world are those of seed (seed, run, 1).
        """
        world = copy.copy(self.world)  # tasks may share this one
        world.seed_with([self.seed, run, 1])
        returns, _ = agent.run_episodes(world, episodes, self._limit, blocks=world.continuing)
        costs = np.full(episodes, np.inf)
        costs[: len(returns)] = -returns / (self._limit if world.continuing else 1.0)
        return costs

    def score(self, run: int, settings: GridSettings, every: int, points: NDArray[np.int64]) -> Scores:
        """Let all settings act in one run.

        Args:
            run: The number of the run.
            settings: Settings of one algorithm.
            every: Only 1 is possible.
            points: The episodes that a curve has.
        """
        costs = np.array([self._costs(self._agent(settings, k, run), run, self.steps) for k in range(len(settings))])
        final = costs[:, -max(1, self.steps // 10) :].mean(axis=1)
        curve = costs[:, points].astype(np.float32)
        return Scores(costs.mean(axis=1), final, curve, ~np.isfinite(costs).all(axis=1))


def _tiles(world: World) -> Tiles:
    """8 tilings of 8 × 8 tiles, or 16 hashed ones of 6⁴ where four numbers are observed."""
    names = [f"o{i}" for i in range(len(world.ranges))]
    if len(names) > 2:
        return Tiles(names, tiles=6, tilings=16, range=world.ranges, hashed=16_384)
    return Tiles(names, tiles=8, tilings=8, range=world.ranges)


def acting(problem: str | World, episodes: int | None, seed: int, options: Mapping[str, Any] | None = None) -> Acting:
    """The source of a sweep over agents.

    Args:
        problem: A world, or the name of one.
        episodes: The episodes of each run; 50 by default.
        seed: The seed of all runs.
        options: Options of the world that is named, such as ``limit``.
    """
    count = whole("episodes", 50 if episodes is None else episodes, "sweep")
    if isinstance(problem, World):
        name = problem.mdp.name if isinstance(problem, Environment) else ""
        return Acting(problem, name or type(problem).__name__, count, seed)
    name = problem.replace("-", "_")
    chosen = dict(options or {})
    try:
        world = WORLDS[name](**chosen)
    except TypeError:
        raise refusal("options", "sweep", f"be those of {name}, such as limit", repr(chosen)) from None
    title = ", ".join(f"{key}={value}" for key, value in chosen.items())
    return Acting(world, f"{name}({title})" if title else name, count, seed)
