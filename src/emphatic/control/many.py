"""Many agents at once, each in a world of its own: whole episodes in one compiled call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from emphatic import problems
from emphatic.common.names import refusal, show, suggestion
from emphatic.control.agent import Agent, check_end, check_numbers, settings_of
from emphatic.control.algorithms import Algorithm, algorithm_of
from emphatic.control.policies import EpsilonGreedy, Schedule, Softmax, policy_of
from emphatic.engines import compiled
from emphatic.engines.sparse import Sparse
from emphatic.engines.sparse.acting import SETTINGS, STATUS, Known, acting_functions
from emphatic.engines.sparse.elementwise_sparse import SparseElementwise
from emphatic.features import Features, Tiles
from emphatic.features.plan import EXACT
from emphatic.learning.learner import Learner
from emphatic.problems import MDP, World
from emphatic.problems.control import words_of
from emphatic.rules import AnyRule, ElementwiseRule
from emphatic.stepsizes import StepSize

__all__ = ["WORLDS", "Agents", "Trainings", "tile_coding", "world_of"]

#: The control problems by name.
WORLDS: dict[str, Callable[..., World]] = {
    "mountain_car": problems.MountainCar,
    "acrobot": problems.Acrobot,
    "puddle_world": problems.PuddleWorld,
    "windy_gridworld": lambda king=False, **options: problems.Environment(
        problems.windy_gridworld(king=king), **options
    ),
    "cliff_walking": lambda **options: problems.Environment(problems.cliff_walking(), **options),
    "access_control": lambda **options: problems.Environment(problems.access_control(), **options),
}
#: Agents that are advanced side by side: as many as a processor computes with one instruction.
GROUP = 8
#: The table of epochs of an agent is short where there are few columns to settle when it is full, to stay in the cache,
#: and so many rows fewer than a multiple of 64: the tables of lanes would lie on one another in the cache.
ROWS_LESS = 32
#: Steps of an episode, at most, where no limit is given.
ENDLESS = np.iinfo(np.int64).max

# ----------------------------------------------------------- what the kernels call, besides the rule's functions

#: Places in ``progress``: whether the next step begins an episode, the steps in the episode, episodes done, divergence.
STARTS, IN_EPISODE, DONE, DIVERGED = range(4)
#: The number of the world, and how many readings are tile-coded where that is all that features are; else 0.
WORLD: int
DIMENSIONS: int
#: Whether a state of an MDP has a dense φ.
IS_DENSE: int
#: (state, k) → the state of agent k, as ``acting_kernels`` take it.
lane_of: Callable[..., Any]
#: (state, k): agent k forgets its traces.
cut_lane: Callable[..., None]


@dataclass(frozen=True, repr=False)
class Trainings:
    """The episodes of ``Agents.train``, (K, episodes); of an agent that diverged, those that it finished.

    Args:
        returns: The sum of rewards of each episode, not discounted; NaN where it was not finished.
        steps: The steps of each; 0 where it was not finished.
        diverged: Which agents diverged, (K,).
    """

    returns: NDArray[np.float64]
    steps: NDArray[np.int64]
    diverged: NDArray[np.bool_]

    def __repr__(self) -> str:
        """How many agents and episodes.

        >>> Trainings(np.zeros((2, 20)), np.zeros((2, 20), int), np.array([False, True]))
        Trainings(2 agents, 20 episodes each, 1 diverged)
        """
        K, episodes = self.returns.shape
        return f"Trainings({K:,} agents, {episodes:,} episodes each, {int(self.diverged.sum()):,} diverged)"


class Agents:
    """K agents, each with weights, random numbers and a world of its own, in one compiled call.

    Every agent does what an ``Agent`` with the same settings does in such a world, with the same random numbers; its
    weights are equal up to rounding. They run on one thread.

    >>> from emphatic.control import Agents
    >>> agents = Agents("sarsa", "cliff_walking", alpha=[0.1, 0.5], epsilon=0.1)
    >>> agents.train(20).returns.shape
    (2, 20)

    Args:
        algorithm: A name from ``emphatic.control.ALGORITHMS``, or an ``Algorithm``; the same for all agents.
        world: A name from ``emphatic.control.WORLDS``, an ``MDP``, or a ``World`` such as ``problems.MountainCar()``.
        K: The number of agents; by default as many as there are values of the settings.
        features: A ``Features`` of readings with given ranges, by default ``tile_coding(world)``; for an MDP the
            dense φ of each state, (S, n), by default one feature for each state.
        alpha: The step size α; it and what follows is one for all agents or a sequence of K.
        gamma: The discount γ.
        lambda_: The trace parameter λ.
        epsilon: ε of an ε-greedy policy, a ``Schedule`` of it, or ``Softmax(temperature)``.
        stepsize: A name or an object of ``emphatic.stepsizes`` that sets the step sizes; the same for all agents.
        seed: The seed of all random numbers.
        runs: The numbers of the agents' runs, (K,); by default 0 to K − 1. Agents with the same number have the same
            random numbers.
    """

    def __init__(
        self,
        algorithm: str | Algorithm,
        world: str | MDP | World,
        K: int | None = None,
        *,
        features: Features | ArrayLike | None = None,
        alpha: float | Sequence[float],
        gamma: float | Sequence[float] = 1.0,
        lambda_: float | Sequence[float] = 0.0,
        epsilon: object = 0.1,
        stepsize: str | StepSize | None = None,
        seed: int = 0,
        runs: Sequence[int] | None = None,
    ) -> None:
        self.algorithm, self.world = algorithm_of(algorithm), world_of(world)
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
            raise refusal("seed", "Agents", "be a whole number of 0 or more", show(seed))
        self.seed, self._stepsize = int(seed), stepsize
        settings = {"alpha": alpha, "gamma": gamma, "lambda_": lambda_, "epsilon": epsilon, "runs": runs}
        self.K = _count(K, settings)
        self.runs = list(range(self.K)) if runs is None else [int(run) for run in runs]
        if min(self.runs) < 0:
            raise refusal("runs", "Agents", "be whole numbers of 0 or more", show(runs))
        rows = {name: _spread(name, value, self.K) for name, value in settings.items() if name != "runs"}
        self.settings = [dict(zip(rows, row, strict=True)) for row in zip(*rows.values(), strict=True)]
        for row in self.settings:
            check_numbers(self.algorithm, row["alpha"], row["gamma"], row["lambda_"])
            check_end(self.algorithm, row["gamma"], self.world, "Agents")
        self._dense = self._check_dense(features)
        self._features = self._check_features(features)
        self._build()

    def _check_dense(self, features: object) -> NDArray[np.float64]:
        """φ of each state, (S, n); without rows where states have one feature each, or readings are observed."""
        if features is None or self.world.ranges:
            return np.zeros((0, 0))
        S = (len(self.world.tables[0]) - 2) // self.world.actions
        wanted = f"be None for an MDP, which has one per state, or an array of finite numbers ({S}, n)"
        try:
            phi = np.ascontiguousarray(features, np.float64)
        except (TypeError, ValueError):
            raise refusal("features", "Agents", wanted, show(features)) from None
        if phi.ndim != 2 or len(phi) != S or not phi.size or not np.isfinite(phi).all():
            raise refusal("features", "Agents", wanted, f"shape {phi.shape}" if phi.ndim else show(features))
        return phi

    def _check_features(self, features: object) -> Features | None:
        """Features that depend on the observation alone; None for states."""
        if not self.world.ranges:
            return None
        maker = tile_coding(self.world) if features is None else features
        wanted = "be a Features of readings with given ranges, without traces"
        if not isinstance(maker, Features):
            raise refusal("features", "Agents", wanted, show(features))
        if not maker.is_warm:
            count = len(self.world.ranges)
            try:
                maker.warm_up(np.empty((0, count)), names=[f"o{i}" for i in range(count)])
            except ValueError as error:
                raise refusal("features", "Agents", wanted, show(features)) from error
        if maker.constant_arguments() is None or len(maker.signals) != len(self.world.ranges):
            raise refusal("features", "Agents", wanted, show(features))
        return maker

    def _build(self) -> None:
        """Make the learners, and the arrays of the kernel."""
        world, maker, K, A = self.world, self._features, self.K, self.world.actions
        self.n = (len(world.tables[0]) - 2) // A if maker is None else maker.n
        slots = 1 if maker is None else maker.active
        if self._dense.size:
            self.n = slots = self._dense.shape[1]
        learner = Learner(self.algorithm.base, self.n * A, engine="sparse", stepsize=self._stepsize)
        engine = learner._engine
        assert isinstance(engine, Sparse | SparseElementwise)
        self._learner, self._engine = learner, engine
        if isinstance(engine, SparseElementwise):
            engine.make_room(slots * (A + 1))
        self._elementwise = isinstance(engine, SparseElementwise)
        self._state = tuple(self._spread_state(array, i) for i, array in enumerate(self._engine.arrays))
        self._setting = np.array(
            [
                settings_of(
                    self.algorithm, self.n, row["alpha"], row["gamma"], row["lambda_"], policy_of(row["epsilon"])
                )
                for row in self.settings
            ]
        )
        self._status = np.zeros((K, len(STATUS)))
        self._place = np.zeros((K, 4))
        self._of_agent, self._of_world = (
            np.array([words_of([self.seed, run, stream]) for run in self.runs]) for stream in (0, 1)
        )
        self._rows = np.full((K, 3, slots), -1, np.int64), np.zeros((K, 3, slots))
        lanes, count = GROUP if K > 1 else 1, max(len(world.ranges), 1)
        self._work = (
            np.zeros((lanes, count)),
            np.full((lanes, slots), -1, np.int64),
            np.zeros((lanes, slots)),
            np.zeros((lanes, A * slots), np.int64),
            np.zeros((lanes, A * slots)),
            np.zeros(count * lanes),
            np.zeros(slots * lanes, np.int64),
            *np.zeros((3, A * lanes)),
            *np.zeros((5, lanes)),
            np.zeros(lanes, np.uint64 if lanes > 1 else np.int64),  # of several, none need be asked if it is negative
            np.zeros(lanes, np.int64),
            *np.zeros((2, 4 * lanes), np.uint64),
        )
        plan = None if maker is None else maker.constant_arguments()
        self._plan = _no_plan() if plan is None else plan
        self._progress = np.zeros((K, 4), np.int64)
        self._progress[:, STARTS] = 1

        arguments = self._arguments(0, 0, np.zeros((K, 0)), np.zeros((K, 0), np.int64))
        signature = tuple(map(_type_of, arguments))
        following = dict(zip(SETTINGS, self._setting[0].tolist(), strict=True))
        numbers = tuple((name, following[name]) for name in ("ETA", "SIGMA", "NEXT", "RATIO", "CUTS", "GREEDY"))
        unit = self._plan[6]  # (op, first slot, first feature, first member, members, …)
        dimensions = int(unit[0, 4]) if len(unit) == 1 and unit[0, 0] == EXACT and _are_even(self._plan) else 0
        constants = (("WORLD", world.number), ("DIMENSIONS", dimensions), ("IS_DENSE", int(self._dense.size > 0)))
        self._aligned = not self._elementwise and (dimensions > 0 or not world.ranges)
        known = Known(A, slots, lanes, self._aligned, numbers)
        interpreted = compiled.interpreted()
        self._kernel = _kernel(self._engine.rule, self._engine.dtype, known, constants, signature, interpreted)

    def _arguments(
        self, episodes: int, limit: int, returns: NDArray[np.float64], steps: NDArray[np.int64]
    ) -> tuple[Any, ...]:
        """The arguments of ``train`` in ``many_kernels``."""
        world = self.world
        return (
            *(self._state, self._setting, self._status, world.tables, self._dense, self._place),
            *(self._of_world, self._of_agent, self._plan, *self._rows, *self._work, self._progress, episodes, limit),
            *(world.continuing, returns, steps),
        )

    def _spread_state(self, array: NDArray[Any], i: int) -> NDArray[Any]:
        """One of the engine's arrays for every agent; of a linear rule only the scalars have an axis for learners."""
        one = array[0] if self._elementwise or i == 4 else array
        if i == 3 and not self._elementwise:
            columns = self.n * self.world.actions
            one = one[:, : min(one.shape[1], max(4 * columns, 128)) // 64 * 64 - ROWS_LESS]
        every = np.zeros((self.K, *one.shape), one.dtype)
        if one.tobytes().strip(b"\0"):
            every[:] = one
        return every

    # ------------------------------------------------------------------ learning

    def train(self, episodes: int, *, limit: int | None = None) -> Trainings:
        """Act and learn for this many episodes; an agent that would diverge stops there.

        Args:
            episodes: The number of episodes of each agent. In a world that never ends they are blocks of ``limit``
                steps, one directly after the other.
            limit: Episodes are truncated after this many steps; by default after those of the world, if it has a limit.
        """
        if isinstance(episodes, bool) or not isinstance(episodes, int | np.integer) or episodes < 0:
            raise refusal("episodes", "Agents.train", "be a whole number of 0 or more", show(episodes))
        most = limit if limit is not None else self.world.limit
        if most is not None and (isinstance(most, bool) or not isinstance(most, int | np.integer) or most < 1):
            raise refusal("limit", "Agents.train", "be a whole number of 1 or more, or None", show(most))
        if most is None and self.world.continuing:
            raise refusal("limit", "Agents.train", "be given, as this world never ends", "None")
        self._progress[:, DONE] = 0
        self._progress[:, IN_EPISODE] = 0
        returns, steps = np.zeros((self.K, episodes)), np.zeros((self.K, episodes), np.int64)
        arguments = self._arguments(int(episodes), int(most or ENDLESS), returns, steps)
        self._kernel(*arguments)
        returns[np.arange(episodes) >= self._progress[:, DONE, None]] = np.nan
        return Trainings(returns, steps, self._progress[:, DIVERGED] == 1)

    # ------------------------------------------------------------------ what was learned

    def _load(self, k: int) -> None:
        """Agent k's state into the engine of the learner."""
        for i, (one, every) in enumerate(zip(self._engine.arrays, self._state, strict=True)):
            if self._elementwise or i == 4:
                one[0] = every[k]
            elif i == 3:
                one[:, : every.shape[2]] = every[k]
            elif i == 0 and self._aligned:  # all actions of a feature are side by side in the kernel
                one[:] = every[k].reshape(self.n, -1).T.reshape(-1)
            else:
                one[:] = every[k]

    @property
    def theta(self) -> NDArray[np.float64]:
        """The weights of all agents, (K, actions·n)."""
        theta = np.empty((self.K, self.n * self.world.actions))
        for k in range(self.K):
            self._load(k)
            theta[k] = self._engine.vector(0)[0]
        return theta

    @property
    def reward_rate(self) -> NDArray[np.float64]:
        """R̄ of the differential algorithms, (K,)."""
        rates = np.empty(self.K)
        for k in range(self.K):
            self._load(k)
            rates[k] = self._learner.rbar
        return rates

    def alone(self, k: int) -> tuple[Agent, World]:
        """Agent k as it was before its first step, and its world: what it does can be repeated step by step.

        Args:
            k: The number of the agent.
        """
        row, run = self.settings[k], self.runs[k]
        features: object = self.n if self._features is None else Features(self._features.parts)
        if self._dense.size:
            features = self._dense.__getitem__
        agent = Agent(
            self.algorithm,
            features,
            self.world.actions,
            **row,
            stepsize=self._stepsize,
            seed=[self.seed, run, 0],  # type: ignore[arg-type]
        )
        world = _again(self.world)
        world.seed_with([self.seed, run, 1])
        return agent, world

    def __repr__(self) -> str:
        return f"Agents({self.algorithm.name!r}, {type(self.world).__name__}, K={self.K}, n={self.n})"


def world_of(world: object) -> World:
    """The world of that name, of an MDP, or the one that was passed.

    Args:
        world: A name from ``WORLDS``, an ``MDP`` or a ``World``.
    """
    if isinstance(world, World):
        return world
    if isinstance(world, MDP):
        return problems.Environment(world)
    name = str(world).replace("-", "_")
    if not isinstance(world, str) or name not in WORLDS:
        wanted = f"be one of {', '.join(WORLDS)}, an MDP or a World"
        raise refusal("world", "Agents", wanted, show(world), suggestion(name, WORLDS).strip())
    return WORLDS[name]()


def tile_coding(world: World) -> Features:
    """Tile coding of the observations of a world: 8 tilings of 8 × 8 tiles, or 16 hashed ones of 6⁴ for an acrobot.

    Args:
        world: A world whose observations are several numbers.
    """
    names = [f"o{i}" for i in range(len(world.ranges))]
    ranges = list(world.ranges)
    if len(names) > 2:
        return Features([Tiles(names, tiles=6, tilings=16, range=ranges, hashed=16_384, spacing="equal")])
    return Features([Tiles(names, tiles=8, tilings=8, range=ranges)])


def _again(world: World) -> World:
    """Another world of the same kind."""
    if isinstance(world, problems.Environment):
        return problems.Environment(world.mdp, limit=world.limit)
    return type(world)(limit=world.limit)


def _count(K: int | None, settings: dict[str, Any]) -> int:
    """The number of agents."""
    if K is not None and (isinstance(K, bool) or not isinstance(K, int | np.integer) or K < 1):
        raise refusal("K", "Agents", "be a whole number of 1 or more, or None", show(K))
    for name, value in settings.items():
        if _is_sequence(value):
            if not len(value) or (K is not None and len(value) != K):
                wanted = f"be one value or {K}, one for each agent" if K else "be one value or more"
                raise refusal(name, "Agents", wanted, f"{len(value)}")
            K = len(value)
    return int(K or 1)


def _is_sequence(value: object) -> bool:
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str) and np.ndim(value) != 0


def _spread(name: str, value: object, K: int) -> list[Any]:
    """One value for each agent, as plain numbers."""
    if not isinstance(value, Sequence | np.ndarray) or not _is_sequence(value):
        return [value] * K
    if name == "epsilon":
        return [v if isinstance(v, Schedule | Softmax | EpsilonGreedy) else float(v) for v in value]
    return [float(v) if isinstance(v, int | float | np.floating | np.integer) else v for v in value]


# ------------------------------------------------------------------ compiling


def _are_even(plan: tuple[NDArray[Any], ...]) -> bool:
    """Whether the knots of every scale are at equal distances, up to rounding."""
    knots = [plan[10][start : start + count] for _, start, count in plan[5][:, :3].tolist()]
    return all(np.allclose(np.diff(k), (k[-1] - k[0]) / (len(k) - 1), rtol=1e-6, atol=0.0) for k in knots)


def _no_plan() -> tuple[NDArray[Any], ...]:
    """Arguments of ``activate`` where nothing is to be activated."""
    return tuple(np.zeros((0,) * ndim, dtype) for dtype, ndim in _PLAN)


#: The arrays of ``Features.constant_arguments``.
_PLAN = (
    *(("f8", 1), ("i8", 2), ("f8", 2), ("i8", 2), ("f8", 1), ("i8", 2), ("i8", 2), ("f8", 2), ("i8", 1)),
    *(("f8", 1), ("f8", 1), ("f8", 2), ("i8", 2), ("i8", 2), ("f8", 2), ("f8", 1)),
)


@functools.cache
def _kernel(
    rule: AnyRule,
    dtype: str,
    known: Known,
    constants: tuple[tuple[str, int], ...],
    signature: tuple[Any, ...],
    interpreted: bool,
) -> Any:
    """``train``, for this rule and world, and arguments of these types."""
    from emphatic.features import kernels as of_features

    if isinstance(of_features.activate, compiled.LazyKernel) and not interpreted:
        of_features.activate.compile()  # a kernel calls what is compiled

    functions, kernels = acting_functions(rule, dtype, known)
    places = ("STARTS", STARTS), ("IN_EPISODE", IN_EPISODE), ("DONE", DONE), ("DIVERGED", DIVERGED)
    for name, number in (*constants, *places):
        functions.constant(name, number)
    elementwise = isinstance(rule, ElementwiseRule)
    one = ", ".join(
        f"state[{i}][np.int64(k):np.int64(k) + 1]" if elementwise or i == 4 else f"state[{i}][k]"
        for i in range(11 if elementwise else 5)
    )
    functions.add("lane_of(state, k)", f"return ({one})")
    lazy = ", ".join(f"state[{i}][k]" for i in range(4))
    zero = [f"    state[0][k, i]['H{j}'] = 0.0" for j in functions.u.traces]
    forget = (
        [
            f"settle({lazy})",
            "for i in range(state[0].shape[1]):",
            *zero,
            "    state[0][k, i]['Q'] = 0",
            "state[6][k] = 0",
        ]
        if elementwise
        else [f"forget({lazy})", "begin_epochs(state[2][k], state[3][k])"]
    )
    text = compiled.compose(functions, *kernels)
    late = "\n".join(["@small", "def cut_lane(state, k):", *(f"    {line}" for line in forget)])
    late += "\n    for i in range(FORGOTTEN):\n        state[4][k, i] = 0.0\n"
    # the machine code of ``activate`` is linked in: its module's name is a hash of its source
    features = f"from emphatic.features.kernels import activate  # {of_features.activate.__module__}\n"
    sources = [compiled.source_of(f"emphatic.{name}") for name in ("problems.worlds", "control.many_kernels")]
    text = compiled.lean("\n\n".join([text, late, features, *sources]))
    module = compiled.module(f"many_{rule.name}_{dtype}", text)
    return compiled.kernel(module, "train", *signature)


def _type_of(argument: object) -> Any:
    """The type of an argument of ``train``, in kernels."""
    import numba
    from numba import types

    if isinstance(argument, tuple):
        return types.Tuple([_type_of(entry) for entry in argument])  # type: ignore[no-untyped-call]
    if isinstance(argument, np.ndarray):
        return types.Array(numba.from_dtype(argument.dtype), argument.ndim, "C")
    return types.boolean if isinstance(argument, bool) else types.int64
