"""Gymnasium: learns the answers to questions while any agent acts through the ordinary ``reset`` and ``step``.

>>> import gymnasium
>>> from emphatic import GVF, Policy
>>> from emphatic.streams.gymnasium import LearnGVFs, tiles
>>> env = gymnasium.make("CartPole-v1")
>>> left = Policy({0: 1.0})  # always push left; the agent here pushes at random, the default for μ
>>> fall = GVF(1.0, gamma=1.0, lambda_=0.9, policy=left, name="steps until the pole falls")
>>> ranges = {"o0": (-2.4, 2.4), "o1": (-3, 3), "o2": (-0.21, 0.21), "o3": (-3.5, 3.5)}
>>> env = LearnGVFs(env, [fall], tiles(env.observation_space, ranges=ranges))
>>> observation, info = env.reset(seed=0)
>>> observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
>>> info["predictions"].shape
(1,)

Rewards and observations pass through unchanged. ``terminated`` is γ' = 0; a truncated episode bootstraps from the final
observation, and is then cut off.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.errors import CheckpointError
from emphatic.features import Bias, Features, Function, OneHot, Part, Tiles
from emphatic.hordes.episodes import Episodes
from emphatic.hordes.horde import Horde
from emphatic.learning.inputs import refusal, whole
from emphatic.questions.gvf import GVF
from emphatic.questions.ratios import Behaviour
from emphatic.rules import AnyRule

try:
    import gymnasium
    from gymnasium import spaces
    from gymnasium.vector import AutoresetMode
    from gymnasium.vector.utils import iterate
except ImportError as error:
    raise ImportError("emphatic.streams.gymnasium needs gymnasium: pip install 'emphatic[gym]'") from error

__all__ = ["LearnGVFs", "LearnGVFsVector", "component_names", "tiles"]

Array = NDArray[np.float64]


class LearnGVFs(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Learns the answers to ``questions`` about an environment; ``info["predictions"]`` has them, (Q,).

    The signals that a question may name are the observation's components, ``names`` (o0, o1, … unless given), and
    "reward"; ``features`` is a maker for the same components, or a function of the observation that returns φ, of
    constant length. ``rule`` is a name or a rule of your own; for one that uses π or μ itself (tree_backup, abtd),
    every question must have a policy. A question's functions are given (observation, action,
    reward, next observation), or the row {name: value} that follows if they have one parameter; a policy's
    (observation, action). Predictions are returns, not scaled.

    ``mu`` is the probability (or density) with which the agent chose its action: a function of (observation,
    action), a table or a number; by default all actions of a ``Discrete`` space are equally likely. ``env.mu = p`` sets
    it for the next step only. It is used for policies whose ``behaviour`` is "count"; where nothing gives μ, actions
    are counted.

    α is ``alpha``, a number or one per question, by default 0.1 over the mean of φ·φ. With several ``rates`` a question
    has a learner for each, with α that many times ``alpha`` (or 1 over the mean of φ·φ), and its predictions are a
    blend of theirs. ``warm_up`` is the number of observations from which ranges are found, if the features were not
    given all of them; until then predictions are NaN. With ``every`` above 1 there are predictions only at every
    ``every``-th step, and where an episode begins or ends; the steps in between are learned from together, which is
    faster and leads to the same weights. ``record=True`` records the learner's input, for ``log``. With a ``stepsize``
    (a name or an object of ``emphatic.stepsizes``) α is ``alpha``, 1 by default, times the method's step size.
    ``extra`` are the rule's own parameters: eta, beta, ….
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        questions: Sequence[GVF],
        features: Features | Callable[[Any], Any],
        *,
        names: Sequence[str] | None = None,
        mu: Behaviour = None,
        rule: str | AnyRule = "true_online_etd",
        alpha: float | Sequence[float] | None = None,
        rates: float | Sequence[float] | None = None,
        stepsize: Any = None,
        warm_up: int = 0,
        every: int = 1,
        record: bool = False,
        dtype: str = "float64",
        engine: str = "sparse",
        **extra: Any,
    ) -> None:
        super().__init__(env)
        space = env.observation_space
        names = component_names(space) if names is None else names
        mu = _uniform(env.action_space) if mu is None else mu
        episodes = Episodes(
            questions, _features(features, space, names), names, _flat(space), rule=rule, alpha=alpha, rates=rates,
            stepsize=stepsize, mu=mu, warm_up=warm_up, record=record, dtype=dtype, engine=engine, **extra,
        )  # fmt: skip
        self._start(episodes, whole("every", every, "LearnGVFs"), 0)

    def _start(self, episodes: Episodes, every: int, since: int) -> None:
        #: All that is learned: ``episodes.theta``, ``episodes.learners``, ``episodes.hordes``, ….
        self.episodes = episodes
        self._every, self._since = every, since
        #: The probability of the next action, if it is known; forgotten after the step.
        self.mu: float | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self.episodes.begin(0, observation)
        self._since = 0
        info["predictions"] = self.episodes.predictions[0]
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        mu, self.mu = self.mu, None
        self._since += 1
        now = bool(terminated or truncated) or self._since >= self._every
        self.episodes.step(0, action, reward, observation, bool(terminated), mu, now, bool(truncated))
        if now:
            self._since = 0
            info["predictions"] = self.episodes.predictions[0]
        return observation, reward, terminated, truncated, info

    def log(self) -> dict[str, Any]:
        """The recorded input: ``Learner(rule, n, K=Q).run(**env.log())`` leads to the same weights."""
        return self.episodes.log(0)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one safetensors file with the complete state, except the environment itself.

        Questions with functions cannot be saved, as no file can hold them.
        """
        if not self.episodes.hordes:
            raise RuntimeError("There is nothing to save before the warm-up is over.")
        (horde,) = self.episodes.hordes
        horde.save(path, gymnasium={"every": self._every, "since": self._since})

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], env: gymnasium.Env[Any, Any], *, mu: Behaviour = None,
        rule: AnyRule | None = None,
    ) -> LearnGVFs:  # fmt: skip
        """Wrap ``env`` with what ``save`` wrote; continues bit for bit, even in the middle of an episode.

        The environment must be in the same state as before, or be reset. ``mu`` must be passed again if it was a
        function, and so must a ``rule`` of your own.
        """
        horde, more = Horde.load_with(path, mu=mu, rule=rule)
        space = env.observation_space
        if "gymnasium" not in more:
            raise CheckpointError(f"{os.fsdecode(path)!r} was not saved by LearnGVFs: Horde.load opens it.")
        signals = horde.features.signals
        if len(signals) != len(component_names(space)):
            raise refusal("env", "LearnGVFs.load", f"have observations of {len(signals)} components", repr(space))
        try:
            every, since = (more["gymnasium"][name] for name in ("every", "since"))
            if not (type(every) is int and every > 0 and type(since) is int and since >= 0):
                raise ValueError(f"its counts of steps are {every!r} and {since!r}")
            episodes = Episodes.resume(horde, _flat(space), _unflat(space))
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{os.fsdecode(path)!r} is not a sound LearnGVFs checkpoint: {error}") from error
        learning = cls.__new__(cls)
        gymnasium.Wrapper.__init__(learning, env)
        learning._start(episodes, every, since)
        return learning


class LearnGVFsVector(gymnasium.vector.VectorWrapper):
    """The same for a vector environment: ``info["predictions"]`` is (envs, Q).

    Each sub-environment is a sequence of its own. With ``weights="one"`` all learn one θ, one after the other in each
    step (for rules whose only weights are θ); with "several" each learns its own. ``mu`` is as for ``LearnGVFs``;
    ``env.mu`` is (envs,). All autoreset modes of Gymnasium are supported.
    """

    def __init__(
        self,
        env: gymnasium.vector.VectorEnv[Any, Any, Any],
        questions: Sequence[GVF],
        features: Features | Callable[[Any], Any],
        *,
        weights: str = "one",
        names: Sequence[str] | None = None,
        mu: Behaviour = None,
        rule: str | AnyRule = "true_online_etd",
        alpha: float | Sequence[float] | None = None,
        rates: float | Sequence[float] | None = None,
        stepsize: Any = None,
        warm_up: int = 0,
        record: bool = False,
        dtype: str = "float64",
        engine: str = "sparse",
        **extra: Any,
    ) -> None:
        super().__init__(env)
        space = env.single_observation_space
        names = component_names(space) if names is None else names
        mu = _uniform(env.single_action_space) if mu is None else mu
        #: All that is learned: ``episodes.theta``, ``episodes.learners``, ….
        self.episodes = Episodes(
            questions, _features(features, space, names), names, _flat(space), sequences=env.num_envs, weights=weights,
            rule=rule, alpha=alpha,
            rates=rates, stepsize=stepsize, mu=mu, warm_up=warm_up, record=record, dtype=dtype, engine=engine, **extra,
        )  # fmt: skip
        #: The probabilities of the next actions, if they are known; forgotten after the step.
        self.mu: Any = None
        self._mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        self._over = np.zeros(env.num_envs, bool)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        # (the environment removes the mask from the options)
        mask = None if options is None else options.get("reset_mask")
        resets = np.ones(self.num_envs, bool) if mask is None else np.array(mask, bool)
        observations, infos = self.env.reset(seed=seed, options=options)
        each = list(iterate(self.observation_space, observations))
        for i in np.flatnonzero(resets):
            self.episodes.begin(int(i), each[i])
        self._over &= ~resets
        infos["predictions"] = np.array(self.episodes.predictions)
        return observations, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        mu, self.mu = self.mu, None
        each = list(iterate(self.observation_space, observations))
        for i, action in enumerate(iterate(self.action_space, actions)):
            chance = None if mu is None else float(mu[i])
            if self._mode == AutoresetMode.NEXT_STEP and self._over[i]:
                self.episodes.begin(i, each[i])  # the action was ignored
                continue
            over = terminated[i] or truncated[i]
            same = over and self._mode == AutoresetMode.SAME_STEP
            final = infos["final_obs"][i] if same else each[i]
            self.episodes.step(i, action, rewards[i], final, bool(terminated[i]), chance, truncated=bool(truncated[i]))
            if same:
                self.episodes.begin(i, each[i])
        self._over = np.logical_or(terminated, truncated)
        infos["predictions"] = np.array(self.episodes.predictions)
        return observations, rewards, terminated, truncated, infos

    def log(self, i: int) -> dict[str, Any]:
        """The recorded input of sub-environment i's learner: ``Learner.run`` leads to its weights.

        Where the weights are shared, these are its part of them, and all parts must be added.
        """
        return self.episodes.log(i)


def component_names(space: spaces.Space[Any]) -> tuple[str, ...]:
    """o0, o1, …: a name for each component of an observation."""
    count = 1 if isinstance(space, spaces.Discrete) else spaces.flatdim(space)
    return tuple(f"o{i}" for i in range(count))


def tiles(
    space: spaces.Space[Any],
    of: Sequence[Sequence[str]] | None = None,
    *,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    tiles: int = 8,
    tilings: int = 8,
    hashed: int | None = None,
    names: Sequence[str] | None = None,
) -> Features:
    """Tile coding of a space's observations, and a bias.

    ``of`` lists groups of components, each tiled jointly; by default each component is tiled by itself. Ranges are the
    space's own bounds unless given by name. For a component with neither, the wrapper needs a ``warm_up``. A
    ``Discrete`` space has one feature per observation.
    """
    names = component_names(space) if names is None else tuple(names)
    if isinstance(space, spaces.Discrete):
        return Features([OneHot(names[0], categories=[float(space.start + i) for i in range(int(space.n))])])
    if not isinstance(space, spaces.Box):
        raise refusal("space", "tiles", "be a Box or Discrete", repr(space))
    pairs = zip(space.low.reshape(-1).tolist(), space.high.reshape(-1).tolist(), strict=True)
    # Bounds near the largest float mean no more than infinity does.
    known = {name: pair for name, pair in zip(names, pairs, strict=True) if max(map(abs, pair)) < 1e30}
    known |= dict(ranges or {})
    parts: list[Part] = [Bias()]
    for group in [[name] for name in names] if of is None else of:
        span = [known[name] for name in group] if all(name in known for name in group) else None
        parts.append(Tiles(list(group), tiles=tiles, tilings=tilings, hashed=hashed, range=span, spacing="equal"))
    return Features(parts)


def _flat(space: spaces.Space[Any]) -> Callable[[Any], Array]:
    """Observations as arrays (C,): numbers unchanged, and everything else as Gymnasium flattens it."""
    if isinstance(space, spaces.Box):
        return lambda observation: np.asarray(observation, np.float64).reshape(-1)
    if isinstance(space, spaces.Discrete):
        return lambda observation: np.array([observation], np.float64)
    return lambda observation: np.asarray(spaces.flatten(space, observation), np.float64)


def _unflat(space: spaces.Space[Any]) -> Callable[[Array], Any]:
    """The inverse: arrays to observations."""
    if isinstance(space, spaces.Box):
        return lambda flat: flat.astype(space.dtype).reshape(space.shape)
    if isinstance(space, spaces.Discrete):
        return lambda flat: space.dtype.type(flat[0])
    return lambda flat: spaces.unflatten(space, flat)


def _features(features: Any, space: spaces.Space[Any], names: Sequence[str]) -> Any:
    """A feature maker; for a function of the observation, one that calls it."""
    if not callable(features) or isinstance(features, Features):
        return features
    observation_of, name = _unflat(space), getattr(features, "__name__", "<lambda>")

    def of(flat: Array) -> Any:
        return features(observation_of(flat))

    sample = _flat(space)(deepcopy(space).sample())  # (a copy, so that the space's own random numbers do not change)
    try:
        size = np.asarray(of(sample), np.float64).size
    except (TypeError, ValueError) as error:
        wanted = f"return numbers for an observation such as {observation_of(sample)!r}"
        raise refusal("features", "LearnGVFs", wanted, f"{type(error).__name__}: {error}") from error
    function = Function(
        lambda row: of(np.array([row[component] for component in names], np.float64)), size=size,
        name="features" if name == "<lambda>" else name,
    )  # fmt: skip
    return Features([function])


def _uniform(space: spaces.Space[Any]) -> float | None:
    return 1.0 / float(space.n) if isinstance(space, spaces.Discrete) else None
