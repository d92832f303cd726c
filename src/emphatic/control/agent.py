"""An agent with discrete actions that learns action values, one compiled step at a time."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from emphatic import rules, stepsizes
from emphatic.common.names import refusal, show
from emphatic.control.algorithms import Algorithm, algorithm_of
from emphatic.control.episodes import DIVERGED, DONE, STARTS, episode_kernel, episode_plan
from emphatic.control.observers import FunctionObserver, MakerObserver, MoreSlots, Observation, observer_of, restored
from emphatic.control.policies import EpsilonGreedy, Schedule, Softmax, policy_codes, policy_config, policy_from
from emphatic.engines.sparse.acting import SETTINGS, STATUS, ActingKernels
from emphatic.errors import CheckpointError, Diverged
from emphatic.features.sources import is_number
from emphatic.learning.learner import Learner
from emphatic.problems import World
from emphatic.problems.control import state_words
from emphatic.problems.stream import seeds
from emphatic.stepsizes import StepSize

__all__ = ["Agent", "Training"]

#: A Gymnasium environment, or anything with its ``reset`` and ``step``.
Environment = Any

#: Decisions of one call, after which Ctrl-C is noticed.
_AT_A_TIME = 10_000_000
#: Steps of an episode, at most, where there is no limit.
_ENDLESS = np.iinfo(np.int64).max
#: Random numbers drawn at a time.
DRAWN = 512
_MU, _DELTA = STATUS.index("MU"), STATUS.index("DELTA")
#: Episodes of which a training shows the means.
_LAST = 10


@dataclass(frozen=True, repr=False)
class Training:
    """The episodes of ``Agent.train``: as a sequence, their returns.

    Args:
        returns: The sum of rewards of each episode, not discounted.
        steps: The steps of each.
    """

    returns: NDArray[np.float64]
    steps: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.returns)

    def __getitem__(self, which: int | slice) -> Any:
        return self.returns[which]

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.returns, dtype)

    def __repr__(self) -> str:
        """How many episodes, and the mean return and steps of the last ones.

        >>> Training(np.array([-3.0, -1.0]), np.array([3, 1]))
        Training(2 episodes; the last 2: mean return -2, mean steps 2)
        """
        last = min(len(self), _LAST)
        if not last:
            return "Training(0 episodes)"
        means = f"mean return {self.returns[-last:].mean():.4g}, mean steps {self.steps[-last:].mean():.4g}"
        return f"Training({len(self):,} episodes; the last {last}: {means})"


def _setting(name: str) -> Any:
    """A number of an agent, or its policy: when it is set, it is checked, and acts from the next step on."""

    def change(self: Agent, value: object) -> None:
        self._choose(self._settings | {name: value})

    return property(lambda self: self._settings[name], change)


class Agent:
    """Learns action values q(S, A) = θ·φ(S, A) while it acts; φ(S, A) has the features of S at A·n + i.

    >>> from emphatic.control import Agent
    >>> agent = Agent("sarsa", 3, 2, alpha=0.5, gamma=0.9, seed=1)  # three states, two actions
    >>> action = agent.start(0)
    >>> action = agent.step(1.0, 2)
    >>> print(agent.step(5.0, 0, terminated=True))
    None
    >>> agent.values(2).shape
    (2,)

    The next action is chosen before the update, by one random number of ``numpy.random.default_rng(seed)``: it is the
    first whose cumulative probability is above that number. Bad input raises ``ValueError`` and changes nothing; an
    update that is no longer finite raises ``Diverged``.

    Args:
        algorithm: A name from ``emphatic.control.ALGORITHMS``, or an ``Algorithm``.
        features: ``emphatic.features.Tiles`` or a whole ``Features``, such as ``emphatic.gymnasium.tiles``
            makes; a number of states, which are then observed as whole numbers from 0, or a Gymnasium ``Discrete``
            space of them; or a function of the observation that returns φ(S), an array or ``Active`` (the function then
            has an attribute ``n``, the number of features).
        actions: The number of actions, a Gymnasium ``Discrete`` space, or a list of actions.
        alpha: The step size α; with a ``stepsize``, a factor of it. As each of the active ``Tiles`` is 1/√tilings, φ·φ
            of a tile coder is 1, and α = 1 moves a value all the way to its target.
        gamma: The discount γ, from 0 to 1. A differential algorithm with γ below 1 centres rewards (Naik et al. 2024).
        lambda_: The trace parameter λ.
        epsilon: ε of an ε-greedy policy, a number or a ``Schedule``; 0.1 if there is no ``policy``.
        policy: ``Softmax(temperature)`` or ``EpsilonGreedy(epsilon)``, in place of ``epsilon``.
        stepsize: A name or an object of ``emphatic.stepsizes`` that sets the step sizes.
        seed: The seed of the agent's random numbers.
        **extra: The rule's own parameters: ``eta`` or ``beta``, ``kappa``, ….
    """

    #: α, γ, λ, the policy and the rule's own parameters: what they are set to acts from the next step on.
    alpha: float = _setting("alpha")
    gamma: float = _setting("gamma")
    lambda_: float = _setting("lambda_")
    policy: EpsilonGreedy | Softmax = _setting("policy")
    extra: Mapping[str, float] = _setting("extra")

    def __init__(
        self,
        algorithm: str | Algorithm,
        features: object,
        actions: object,
        *,
        alpha: float,
        gamma: float,
        lambda_: float = 0.0,
        epsilon: float | Schedule | None = None,
        policy: EpsilonGreedy | Softmax | None = None,
        stepsize: str | StepSize | Mapping[str, Any] | None = None,
        seed: int | None = None,
        **extra: float,
    ) -> None:
        self.algorithm = algorithm_of(algorithm)
        if epsilon is not None and policy is not None:
            raise refusal("epsilon", "Agent", "be left out where 'policy' is given", show(epsilon))
        self._actions = _actions_of(actions)
        self._stepsize = None if stepsize is None else stepsizes.get(stepsize)
        self._observer = observer_of(features)
        if policy is None:
            policy = EpsilonGreedy(0.1 if epsilon is None else epsilon)
        self._choose({"alpha": alpha, "gamma": gamma, "lambda_": lambda_, "policy": policy, "extra": extra})
        self._bits = np.random.PCG64(None if seed is None else seeds(seed, "Agent"))
        self._draw()
        self._learner: Learner | None = None
        #: Whether an episode is under way.
        self.acting = False
        self._status = np.zeros(len(STATUS))
        if self._observer.n and self._observer.slots:
            self._build(None)

    # ------------------------------------------------------------------ acting

    def start(self, observation: Observation) -> Any:
        """Begin an episode; returns the first action.

        An episode that was under way is cut off: nothing is learned from its last action.

        Args:
            observation: The first observation.
        """
        self._prepare(observation)
        with self._guard:
            self._observer.begin()
            self._observe(observation, 1)
            u, readings = self._pool[self._drawn], self._observer.readings
            action = self._kernels.begin(self._state, self._setting, self._status, readings, *self._work, u)
            if action < 0:
                raise self._error(action, observation)
            self._engine.cut()
            self._spend()
            self.acting = True
            return self._actions[action]

    def step(self, reward: float, observation: Observation, terminated: bool = False, truncated: bool = False) -> Any:
        """Learn from the reward and the observation that followed; returns the next action, None after an end.

        Args:
            reward: The reward R.
            observation: The observation S'.
            terminated: Whether the episode ended in S': its value is 0.
            truncated: Whether the episode is cut off in S', whose value counts.
        """
        if not self.acting:
            raise RuntimeError("Agent.step was called before start(): call start(observation) first.")
        guard = self._guard
        if guard.users:
            guard.wait()
        guard.users = -1
        try:
            try:
                number = float(reward)
            except (TypeError, ValueError, OverflowError):
                number = math.nan
            if not -math.inf < number < math.inf:
                raise refusal("reward", "Agent.step", "be a finite number", show(reward))
            self._observe(observation, 1)
            action = self._kernels.act(
                self._state,
                self._setting,
                self._status,
                self._observer.readings,
                *self._work,
                self._pool[self._drawn],
                number,
                bool(terminated),
                bool(truncated),
            )
            if action >= 0:
                self._drawn += 1  # as ``_spend``, without a call
                if self._drawn == DRAWN:
                    self._draw()
                return self._actions[action]
            if action != -1:
                raise self._error(action, observation)
            if not terminated:
                self._spend()
            self.acting = False
            return None
        finally:
            guard.users = 0

    def values(self, observation: Observation) -> NDArray[np.float64]:
        """The values of all actions, (actions,); nothing is learned.

        Args:
            observation: An observation.
        """
        self._prepare(observation)
        with self._guard:
            try:
                readings = self._observer.appraise(observation, *self._rows[2])
            except MoreSlots as more:
                self._reserve(more.slots)
                return self.values(observation)
            if not np.isfinite(readings).all():
                raise self._error(-2, observation)
            q = np.zeros(len(self._actions))
            self._kernels.appraise(self._state, self._setting, *self._work[:4], q)
            return q

    @property
    def learner(self) -> Learner:
        """The learner inside, of n features for each action, one action after the other."""
        if self._learner is None:
            raise RuntimeError("The number of features is not known yet: call start(observation) first.")
        return self._learner

    @property
    def actions(self) -> tuple[Any, ...]:
        """The actions, in the order of their values."""
        return tuple(self._actions)

    @property
    def probability(self) -> float:
        """μ(A|S): the probability with which the last action was chosen."""
        return float(self._status[_MU])

    @property
    def delta(self) -> float:
        """The TD error δ of the last step."""
        return float(self._status[_DELTA])

    @property
    def reward_rate(self) -> float:
        """R̄ of the differential algorithms."""
        return float(self.learner.rbar)

    def train(self, env: Environment, episodes: int, *, seed: int | None = None) -> Training:
        """Act in a Gymnasium environment for this many episodes, and learn.

        In a world of ``emphatic.problems`` whole episodes are one compiled call, in which the agent does the same.

        ``env.mu`` is set to the probability of each action where there is such an attribute, as in ``LearnGVFs``: that
        wrapper learns the answers to questions on the same stream.

        Args:
            env: The environment, not a vector of several.
            episodes: The number of episodes.
            seed: The seed with which the environment is first reset.
        """
        if isinstance(episodes, bool) or not isinstance(episodes, int | np.integer) or episodes < 0:
            raise refusal("episodes", "train", "be a whole number of 0 or more", show(episodes))
        self._check_environment(env)
        if self.can_run_episodes(env):
            if seed is not None:
                env.seed_with(seed)
            training = Training(*self.run_episodes(env, int(episodes), env.limit))
            if len(training) < episodes:
                raise Diverged(self.learner.steps, of="learning")
            return training
        returns, lengths = np.zeros(episodes), np.zeros(episodes, np.int64)
        has_mu = hasattr(env, "mu")
        for episode in range(episodes):
            observation, _ = env.reset(seed=seed if episode == 0 else None)
            action = self.start(observation)
            while action is not None:
                if has_mu:
                    env.mu = self.probability
                observation, reward, terminated, truncated, _ = env.step(action)
                returns[episode] += reward
                lengths[episode] += 1
                action = self.step(reward, observation, bool(terminated), bool(truncated))
        return Training(returns, lengths)

    def evaluate(self, env: Environment, episodes: int, seed: int | None = None) -> Training:
        """Act greedily for this many episodes, with the weights as they are, and learn nothing.

        Ties are broken by the random numbers that the agent would draw next, and draws again afterwards.

        Args:
            env: The environment, as for ``train``.
            episodes: The number of episodes.
            seed: The seed with which the environment is first reset.
        """
        still = Agent("sarsa", self._observer.copy(), list(self._actions), alpha=0.0, gamma=0.0, epsilon=0.0)
        still._continue(self._before, self._drawn)
        if self._learner is not None:
            still.learner.theta = self._learner.theta
        return still.train(env, episodes, seed=seed)

    def can_run_episodes(self, world: object) -> bool:
        """Whether ``run_episodes`` takes this environment; in others, the agent takes one step after the other.

        Args:
            world: The environment.
        """
        return self._plan(world) is not None

    def run_episodes(
        self, world: World, episodes: int, limit: int | None, *, blocks: bool = False
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Act and learn for whole episodes in one compiled call.

        Args:
            world: A world of ``emphatic.problems``.
            episodes: The number of episodes.
            limit: Episodes are truncated after this many steps; None for no limit.
            blocks: Whether episodes are blocks of ``limit`` steps, each of which goes on where the one before was left.

        Returns:
            The returns and steps of the episodes that were finished before the learner would diverge.
        """
        plan = self._plan(world)
        if plan is None:
            wanted = "be of emphatic.problems, with the agent's actions and features of its observations alone"
            raise refusal("world", "run_episodes", wanted, show(world))
        kernel = episode_kernel(self._engine.rule, self._engine.dtype, self._observer.slots, self._setting, world, plan)
        returns, steps = np.zeros(episodes), np.zeros(episodes, np.int64)
        progress = np.array([0, not (blocks and self.acting), False], np.int64)
        with self._guard:
            random = self._random_words()
            arguments = (
                *(self._state, self._setting, self._status, *self._work, world.tables, world.place, world.random),
                *(random, np.zeros((1, max(len(world.ranges), 1))), plan, _ENDLESS if limit is None else int(limit)),
                *(not blocks, _AT_A_TIME, progress, returns, steps),
            )
            try:
                while progress[DONE] < episodes and not progress[DIVERGED]:
                    kernel(*arguments)
            finally:
                self._continue_random(random)
                self.acting = not progress[STARTS]
                world._steps = -1
        return returns[: progress[DONE]], steps[: progress[DONE]]

    def _plan(self, world: object) -> tuple[NDArray[Any], ...] | None:
        plan = episode_plan(self._observer, self._actions, world)
        if plan is not None and isinstance(self._observer, MakerObserver):
            assert isinstance(world, World)
            self._prepare(np.zeros(len(world.ranges)))
        return plan

    def _random_words(self) -> NDArray[np.uint64]:
        """The state of the random numbers, as worlds have theirs."""
        self._bits.state = self._before
        return state_words(self._bits.advance(self._drawn))

    def _continue_random(self, random: NDArray[np.uint64]) -> None:
        """Draw the next random numbers after those that an episode has used."""
        state = self._bits.state
        state["state"]["state"] = int(random[0]) << 64 | int(random[1])
        self._continue(state, 0)

    def _check_environment(self, env: Environment) -> None:
        """ValueError unless this is one environment that takes these actions."""
        if not (callable(getattr(env, "reset", None)) and callable(getattr(env, "step", None))):
            raise refusal("env", "train", "be an environment with reset and step, as in Gymnasium", show(env))
        if hasattr(env, "num_envs"):
            raise refusal("env", "train", "be one environment", f"a vector of {env.num_envs}")
        _check_space(getattr(env, "action_space", None), self)
        check_end(self.algorithm, self.gamma, env, "train")
        if getattr(env, "continuing", False) and getattr(env, "limit", None) is None:
            raise refusal("env", "train", "have a 'limit' of steps, as it never ends", "None")

    # ------------------------------------------------------------------ saving

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one safetensors file with the complete state, also in the middle of an episode.

        ``emphatic.load`` opens its learner. Features that are a function are not in it, and are passed to ``load``.

        Args:
            path: The file to write; one that exists is replaced.
        """
        header, arrays = self._observer.save()
        algorithm = asdict(self.algorithm) | {"rule": self.algorithm.base.base.name}
        about = {
            "algorithm": algorithm,
            "own_rule": rules.is_own(self.algorithm.base),
            "features": header,
            "actions": [_plain(action) for action in self._actions],
            "policy": policy_config(self.policy),
            "numbers": {"alpha": self.alpha, "gamma": self.gamma, "lambda_": self.lambda_, **self.extra},
            "random": self._before,
            "drawn": self._drawn,
            "acting": self.acting,
        }
        index, value, *_ = self._work if self._learner is not None else (np.zeros((3, 0)), np.zeros((3, 0)))
        state = {"status": self._status, "index": index[0], "value": value[0]}
        self.learner.save(path, agent=about, **state, **{f"features_{name}": array for name, array in arrays.items()})

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, features: object = None, algorithm: Algorithm | None = None) -> Self:
        """The agent that ``save`` wrote; it continues bit for bit, also in the middle of an episode.

        Args:
            path: The file.
            features: Must be passed again if it was a function.
            algorithm: Must be passed again if it is your own rule.
        """
        rule = None if algorithm is None else algorithm.base
        learner, saved = Learner.load_with(path, rule=rule)
        if "agent" not in saved:
            raise CheckpointError(f"{os.fsdecode(path)!r} was not saved by an Agent: emphatic.load opens it.")
        about = saved["agent"]
        of_features = {name.removeprefix("features_"): a for name, a in saved.items() if name.startswith("features_")}
        observer = restored(about["features"], of_features, features)
        try:
            self = cls(
                algorithm or Algorithm(**about["algorithm"]),
                observer,
                about["actions"],
                policy=policy_from(about["policy"]),
                **about["numbers"],
            )
            self._continue(about["random"], int(about["drawn"]))
            status, index, value = (saved[name] for name in ("status", "index", "value"))
            if status.shape != self._status.shape or not 0 <= self._drawn < DRAWN or index.shape != value.shape:
                raise ValueError("its arrays do not fit an agent")
            if learner.n != self._observer.n * len(self._actions):
                raise ValueError(f"its learner has {learner.n} features")
            self._status[:] = status
            self._observer.slots = max(self._observer.slots, len(index))
            self._build(learner)
            self._work[0][0], self._work[1][0] = index, value
            self.acting = bool(about["acting"])
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise CheckpointError(f"{os.fsdecode(path)!r} is not a valid Agent checkpoint: {error}") from error
        return self

    def __repr__(self) -> str:
        n = self._observer.n or "?"
        return f"Agent({self.algorithm.name!r}, n={n}, actions={len(self._actions)})"

    # ------------------------------------------------------------------ inside

    def _prepare(self, observation: Observation) -> None:
        """Make the learner from a first observation, unless it is there."""
        if self._learner is None:
            self._observer.prepare(observation)
            self._build(None)

    def _build(self, learner: Learner | None) -> None:
        """Make the learner, now that the number of features is known, and the arrays of a step."""
        size = self._observer.n * len(self._actions)
        if learner is None:
            learner = Learner(self.algorithm.base, size, engine="sparse", stepsize=self._stepsize)
        self._learner, self._guard, self._engine = learner, learner._guard, learner._engine
        self._kernels = ActingKernels(self._engine)
        self._setting[SETTINGS.index("N")] = self._observer.n
        self._work: tuple[NDArray[Any], ...] = ()
        self._reserve(self._observer.slots)

    def _reserve(self, slots: int) -> None:
        """Arrays for so many active features of a state: rows for S, for S', and to work in."""
        A, before = len(self._actions), self._work
        index, value = np.full((3, slots), -1, np.int64), np.zeros((3, slots))
        if before:
            width = before[0].shape[1]
            index[0, :width], value[0, :width] = before[0][0], before[1][0]
        self._work = index, value, np.zeros(A * slots, np.int64), np.zeros(A * slots), *np.zeros((3, A))
        self._rows = [(index[row : row + 1], value[row : row + 1]) for row in range(3)]
        self._observer.slots = slots
        self._state = self._kernels.state(slots * (A + 1))

    def _observe(self, observation: Observation, row: int) -> None:
        try:
            self._observer.observe(observation, *self._rows[row])
        except MoreSlots as more:
            self._reserve(more.slots)
            self._observer.observe(observation, *self._rows[row])

    def _choose(self, settings: Mapping[str, Any]) -> None:
        """Check what can be set, and let kernels have it from the next step on."""
        numbers = {name: _checked(name, settings[name]) for name in ("alpha", "gamma", "lambda_")}
        policy, extra = settings["policy"], MappingProxyType(dict(settings["extra"]))
        if not isinstance(policy, EpsilonGreedy | Softmax):
            raise refusal("policy", "Agent", "be EpsilonGreedy(epsilon) or Softmax(temperature)", show(policy))
        rule = self.algorithm.base
        rule = rule if self._stepsize is None else self._stepsize.rule(rule)
        values = (numbers["alpha"], 1.0, numbers["lambda_"], 1.0, numbers["gamma"], 0.0)
        codes = *self.algorithm.codes, *policy_codes(policy), *self.algorithm.step_parameters(rule, values, extra)
        # in the order of SETTINGS; n is 0 until it is known
        self._setting = np.array([self._observer.n, *numbers.values(), *codes], np.float64)
        self._settings = {**numbers, "policy": policy, "extra": extra}

    def _continue(self, random: Mapping[str, Any], drawn: int) -> None:
        """Continue with random numbers of which some are spent."""
        self._bits.state = random  # type: ignore[assignment]
        self._draw()
        self._drawn = drawn

    def _draw(self) -> None:
        """Draw random numbers for the next decisions."""
        self._before = self._bits.state
        self._pool: list[float] = np.random.Generator(self._bits).random(DRAWN).tolist()
        self._drawn = 0

    def _spend(self) -> None:
        """The next random number of the pool."""
        self._drawn += 1
        if self._drawn == DRAWN:
            self._draw()

    def _error(self, status: int, observation: Observation) -> Exception:
        """What a kernel has reported."""
        if status == -2:
            if isinstance(self._observer, FunctionObserver):
                wanted = "return a φ without NaN or infinity"
                return refusal("features", "Agent", wanted, f"such a φ for the observation {show(observation)}")
            return refusal("observation", "Agent", "be finite", show(observation))
        return Diverged(self.learner.steps, of="learning")


def _checked(name: str, value: object) -> float:
    """α, γ or λ; ValueError unless an agent can learn with it."""
    wanted, most = ("be a number of 0 or more", math.inf) if name == "alpha" else ("be a number from 0 to 1", 1.0)
    if not (is_number(value) and 0.0 <= value <= most):
        raise refusal(name, "Agent", wanted, show(value))
    return float(value)


def _check_space(space: object, agent: Agent) -> None:
    """ValueError unless an environment with this action space takes the agent's actions; None for any."""
    contains: Callable[[object], bool] | None = getattr(space, "contains", None)
    if contains is None:
        return
    kind, dtype, actions = type(space).__name__, getattr(space, "dtype", None), agent.actions
    is_fit = kind != "Discrete" or getattr(space, "n", None) == len(actions)
    is_fit = is_fit and all(contains(np.asarray(action, dtype) if kind == "Box" else action) for action in actions)
    if not is_fit:
        hint = "Continuous actions are not supported: give a list of those to choose among to Agent."
        wanted = f"take the agent's {len(actions)} actions"
        raise refusal("env", "train", wanted, show(space), hint if kind == "Box" else "")


def check_end(algorithm: Algorithm, gamma: float, env: Environment, function: str) -> None:
    """ValueError where γ = 1 in a world that never ends, unless values are relative to the average reward.

    Args:
        algorithm: The agent's algorithm.
        gamma: The discount γ.
        env: The environment; one that never ends has ``continuing``.
        function: What was called.
    """
    if getattr(env, "continuing", False) and gamma == 1.0 and not algorithm.base.base.continuing:
        wanted = f"be below 1 for {algorithm.name!r} in a world that never ends"
        raise refusal("gamma", function, wanted, show(gamma), "Or use differential_sarsa or differential_q.")


def _actions_of(actions: object) -> Sequence[Any]:
    """The actions in order, from a number of them, a ``Discrete`` space or a list."""
    wanted = "be a number of actions of 1 or more, a Discrete space, or a list of different actions"
    if isinstance(actions, int | np.integer) and not isinstance(actions, bool):
        if actions < 1:
            raise refusal("actions", "Agent", wanted, show(actions))
        return range(int(actions))
    if isinstance(actions, list | tuple):
        if not actions or len({repr(action) for action in actions}) < len(actions):
            raise refusal("actions", "Agent", wanted, show(actions))
        return list(actions)
    if type(actions).__name__ == "Discrete" and hasattr(actions, "n"):
        start = int(getattr(actions, "start", 0))
        return range(start, start + int(actions.n))
    hint = "Continuous actions are not supported: give a list of the actions to choose among."
    is_continuous = type(actions).__name__ == "Box"
    raise refusal("actions", "Agent", wanted, show(actions), hint if is_continuous else "")


def _plain(action: object) -> Any:
    """An action as JSON holds it."""
    return action.tolist() if isinstance(action, np.ndarray | np.generic) else action
