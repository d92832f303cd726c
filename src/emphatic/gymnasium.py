"""Gymnasium: learns the answers to questions while any agent acts through the ordinary ``reset`` and ``step``.

>>> import gymnasium
>>> from emphatic import GVF, Policy
>>> from emphatic.gymnasium import LearnGVFs, tiles
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
from functools import partial
from typing import Any, Self, SupportsFloat

import numpy as np
from numpy.typing import ArrayLike, NDArray

from emphatic import rules, stepsizes
from emphatic.errors import CheckpointError
from emphatic.features import Bias, Features, Function, OneHot, Tiles
from emphatic.gvfs.evaluator import Behaviour
from emphatic.gvfs.gvf import GVF
from emphatic.hordes.horde import NO, REWARD, USUAL, YES, Horde, probability
from emphatic.learning.inputs import Active, refusal, whole
from emphatic.learning.learner import Learner
from emphatic.nexting.tables import Block
from emphatic.rules import AnyRule
from emphatic.stepsizes import StepSize

try:
    import gymnasium
    from gymnasium import spaces
    from gymnasium.vector import AutoresetMode
    from gymnasium.vector.utils import iterate
except ImportError as error:
    raise ImportError("emphatic.gymnasium needs gymnasium: pip install 'emphatic[gym]'") from error

__all__ = ["LearnGVFs", "LearnGVFsVector", "component_names", "tiles"]

Array = NDArray[np.float64]
_NO_LABELS: dict[str, Any] = {}


class LearnGVFs(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Learns the answers to ``questions`` about an environment; ``info["predictions"]`` has them, (Q,).

    ``info["support"]`` has the effective number of steps that speak for each, (Q,): with less than 10 it is unsupported
    (see ``Horde.support``). A ``DivergenceWarning`` names a question whose prediction is impossible.

    The signals that a question may name are the observation's components and "reward". A question's functions are given
    (observation, action, reward, next observation), or the row {name: value} that follows if they have one parameter; a
    policy's (observation, action). Predictions are returns, not scaled. ``env.mu = p`` sets the probability of the next
    action, for the next step only.

    Args:
        env: The environment.
        questions: The questions, a list of ``GVF``.
        features: A maker for the observation's components, or a function of the observation that returns φ, of constant
            length.
        names: The names of the components; o0, o1, … by default.
        mu: The probability (or density) with which the agent chose its action: a function of (observation, action), a
            table or a number; by default all actions of a ``Discrete`` space are equally likely. It is used for
            policies whose ``behaviour`` is "count"; where nothing gives μ, actions are counted.
        rule: A name or your own rule, for all questions; by default bounded_etd for those with a policy, whose
            predictions keep to what is possible, and true_online_etd for the others. For one that uses π or μ itself
            (tree_backup, abtd), every question must have a policy.
        alpha: α, a number or one per question; by default ``rate`` over the mean of φ·φ. An active tile is 1/√tilings,
            so that φ·φ of ``tiles`` is 1 for each group and 1 for the bias.
        rate: By default 0.3 for questions with a policy and 0.1 for others. With ``alpha``, a factor of it, 1 by
            default.
        stepsize: A name or an object of ``emphatic.stepsizes``: α is ``alpha``, 1 by default, times its step size.
        warm_up: The number of observations from which ranges are found, if the features were not given all of them;
            until then predictions are NaN.
        every: With more than 1 there are predictions only at every ``every``-th step, and where an episode begins or
            ends; the steps in between are learned from together, which is faster and leads to the same weights.
        record: Whether the learner's input is recorded, for ``log``.
        dtype: The dtype of the weights.
        engine: One of ``emphatic.engines.available()``.
        extra: The rule's own parameters: eta, beta, ….
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        questions: Sequence[GVF],
        features: Features | Callable[[Any], Any],
        *,
        names: Sequence[str] | None = None,
        mu: Behaviour = None,
        rule: str | AnyRule | None = None,
        alpha: float | Sequence[float] | None = None,
        rate: float | None = None,
        stepsize: str | StepSize | Mapping[str, Any] | None = None,
        warm_up: int = 0,
        every: int = 1,
        record: bool = False,
        dtype: str = "float64",
        engine: str = "sparse",
        **extra: Any,
    ) -> None:
        super().__init__(env)
        extra |= {"stepsize": stepsize, "record": record, "dtype": dtype, "engine": engine}
        extra |= {"rule": rule, "alpha": alpha, "rate": rate, "warm_up": warm_up}
        extra |= _by_spaces(env.observation_space, env.action_space, features, names, mu)
        episodes = Episodes(questions, **extra)
        self._start(episodes, whole("every", every, "LearnGVFs"), 0)

    def _start(self, episodes: Episodes, every: int, since: int) -> None:
        #: All that is learned: ``episodes.theta``, ``episodes.learners``, ``episodes.hordes``, ….
        self.episodes = episodes
        self._every, self._since = every, since
        #: The probability of the next action, if it is known; forgotten after the step.
        self.mu: float | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment and begin an episode; ``info["predictions"]`` has the first predictions.

        Args:
            seed: The seed of the environment's random numbers.
            options: What the environment takes besides.
        """
        observation, info = self.env.reset(seed=seed, options=options)
        self.episodes.begin(0, observation)
        self._since = 0
        info["predictions"], info["support"] = self.episodes.predictions[0], self.episodes.support(0)
        return observation, info

    def step(self, action: object) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a step in the environment and learn from it.

        Args:
            action: The action.
        """
        observation, reward, terminated, truncated, info = self.env.step(action)
        mu, self.mu = self.mu, None
        self._since += 1
        predict = bool(terminated or truncated) or self._since >= self._every
        self.episodes.step(0, action, reward, observation, bool(terminated), mu, predict, bool(truncated))
        if predict:
            self._since = 0
            info["predictions"], info["support"] = self.episodes.predictions[0], self.episodes.support(0)
        return observation, reward, terminated, truncated, info

    def log(self, learner: int | None = None) -> dict[str, Any]:
        """The recorded input: ``Learner(rule, n, K).run(**env.log())`` leads to the same weights, K of a learner.

        Args:
            learner: As for ``Horde.log``: with questions with and without a policy, 0 is the learner of the first
                question, and 1 the other.
        """
        return self.episodes.log(0, learner)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one safetensors file with the complete state, except the environment itself.

        Questions with functions cannot be saved, as no file can hold them.

        Args:
            path: The file.
        """
        if not self.episodes.hordes:
            raise RuntimeError("Nothing can be saved during the warm-up.")
        (horde,) = self.episodes.hordes
        horde.save(path, gymnasium={"every": self._every, "since": self._since})

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        env: gymnasium.Env[Any, Any],
        *,
        mu: Behaviour = None,
        rule: AnyRule | None = None,
    ) -> LearnGVFs:
        """Wrap ``env`` with what ``save`` wrote; continues bit for bit, even in the middle of an episode.

        Args:
            path: The file.
            env: The environment, in the same state as before, or to be reset.
            mu: Must be passed again if it was a function.
            rule: Must be passed again if it was your own rule.
        """
        horde, saved = Horde.load_with(path, mu=mu, rule=rule)
        space = env.observation_space
        if "gymnasium" not in saved:
            raise CheckpointError(f"{os.fsdecode(path)!r} was not saved by LearnGVFs: Horde.load opens it.")
        signals = horde.makers[0].signals
        if len(signals) != len(component_names(space)):
            raise refusal("env", "LearnGVFs.load", f"have observations of {len(signals)} components", repr(space))
        try:
            every, since = (saved["gymnasium"][name] for name in ("every", "since"))
            if not (type(every) is int and every > 0 and type(since) is int and since >= 0):
                raise ValueError(f"its counts of steps are {every!r} and {since!r}")
            episodes = Episodes.resume(horde, *_conversions(space))
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{os.fsdecode(path)!r} is not a valid LearnGVFs checkpoint: {error}") from error
        self = cls.__new__(cls)
        gymnasium.Wrapper.__init__(self, env)
        self._start(episodes, every, since)
        return self


class LearnGVFsVector(gymnasium.vector.VectorWrapper):
    """The same for a vector environment: ``info["predictions"]`` and ``info["support"]`` are (envs, Q).

    Each sub-environment is a sequence of its own. ``env.mu`` is (envs,). All autoreset modes are supported.

    Args:
        env: The vector environment.
        questions: As for ``LearnGVFs``.
        features: As for ``LearnGVFs``.
        weights: With "one" all sequences learn one θ, one after the other in each step (for rules whose only weights
            are θ); with "several" each learns its own.
        settings: All other arguments of ``LearnGVFs`` but ``every``, and the rule's own parameters.
    """

    def __init__(
        self,
        env: gymnasium.vector.VectorEnv[Any, Any, Any],
        questions: Sequence[GVF],
        features: Features | Callable[[Any], Any],
        *,
        weights: str = "one",
        **settings: Any,
    ) -> None:
        super().__init__(env)
        spaces_of = env.single_observation_space, env.single_action_space
        settings |= _by_spaces(*spaces_of, features, settings.get("names"), settings.get("mu"))
        #: All that is learned: ``episodes.theta``, ``episodes.learners``, ….
        self.episodes = Episodes(questions, sequences=env.num_envs, weights=weights, **{"engine": "sparse"} | settings)
        #: The probabilities of the next actions, if they are known; forgotten after the step.
        self.mu: Sequence[float] | NDArray[np.float64] | None = None
        self._mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        self._over = np.zeros(env.num_envs, bool)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset the sub-environments and begin an episode in each.

        Args:
            seed: The seed of the environments' random numbers, or one for each of them.
            options: What the environment takes besides; only those in its "reset_mask" are reset, if it has one.
        """
        # (the environment removes the mask from the options)
        mask = None if options is None else options.get("reset_mask")
        resets = np.ones(self.num_envs, bool) if mask is None else np.array(mask, bool)
        observations, infos = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        of_env = list(iterate(self.observation_space, observations))
        for i in np.flatnonzero(resets):
            self.episodes.begin(int(i), of_env[i])
        self._over &= ~resets
        self._inform(infos)
        return observations, infos

    def step(self, actions: ArrayLike) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take a step in every sub-environment and learn from them.

        Args:
            actions: The action in each.
        """
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        mu, self.mu = self.mu, None
        of_env = list(iterate(self.observation_space, observations))
        for i, action in enumerate(iterate(self.action_space, actions)):
            chance = None if mu is None else float(mu[i])
            if self._mode == AutoresetMode.NEXT_STEP and self._over[i]:
                self.episodes.begin(i, of_env[i])  # the action was ignored
                continue
            over = terminated[i] or truncated[i]
            same = over and self._mode == AutoresetMode.SAME_STEP
            final = infos["final_obs"][i] if same else of_env[i]
            self.episodes.step(i, action, rewards[i], final, bool(terminated[i]), chance, truncated=bool(truncated[i]))
            if same:
                self.episodes.begin(i, of_env[i])
        self._over = np.logical_or(terminated, truncated)
        self._inform(infos)
        return observations, rewards, terminated, truncated, infos

    def _inform(self, infos: dict[str, Any]) -> None:
        infos["predictions"] = np.array(self.episodes.predictions)
        infos["support"] = np.array([self.episodes.support(i) for i in range(self.num_envs)])

    def log(self, i: int, learner: int | None = None) -> dict[str, Any]:
        """The recorded input of sub-environment i's learner: ``Learner.run`` leads to its weights.

        Where the weights are shared, these are its share of them, and all shares must be added.

        Args:
            i: The number of the sub-environment.
            learner: As for ``LearnGVFs.log``.
        """
        return self.episodes.log(i, learner)


class Episodes:
    """Q questions about B sequences of transitions: a horde for each sequence, with its own traces.

    A sequence may have its own weights too, or all may share one θ. Then θ = Σ_i θ_i, each sequence's learner holding
    what it has itself contributed; what the others contribute to its TD error,

        δ = R + γ'θ·φ' − θ·φ = (R + γ'v' − v) + γ'θ_i·φ' − θ_i·φ,   v = Σ_{j≠i} θ_j·φ,  v' = Σ_{j≠i} θ_j·φ',

    is part of the cumulant it is given. That is exact for every rule with one weight vector, for none looks at θ but
    through δ: the weights are those of one learner whose traces are swapped at each turn. bounded_etd looks at θ·φ'
    too: its bounds are lessened by v'. What is possible, and the support, are those of all sequences together.

    ``flat`` converts an observation to an array (C,), whose components are called ``names``. With ``alpha``, which is
    α itself, ``rate`` is a factor of it, by default 1.
    """

    def __init__(
        self,
        questions: Sequence[GVF],
        features: Features,
        names: Sequence[str],
        flat: Callable[[Any], Array],
        *,
        sequences: int = 1,
        weights: str = "several",
        rule: str | AnyRule | None = None,
        alpha: float | Sequence[float] | None = None,
        rate: float | None = None,
        warm_up: int = 0,
        **settings: Any,
    ) -> None:
        questions = tuple(questions) if isinstance(questions, Sequence) else ()
        if not questions or not all(isinstance(question, GVF) for question in questions):
            raise refusal("questions", "LearnGVFs", "be a list of GVFs", repr(questions))
        if not isinstance(features, Features):
            raise refusal("features", "LearnGVFs", "be emphatic.features.Features, or a function", repr(features))
        if weights not in ("one", "several"):
            raise refusal("weights", "LearnGVFs", "be 'one' or 'several'", repr(weights))
        # (both rules that are the default for some questions have one weight vector)
        traits: AnyRule = rule if isinstance(rule, AnyRule) else rules.get(USUAL if rule is None else rule)
        if settings.get("stepsize") is not None:
            traits = stepsizes.get(settings["stepsize"]).rule(traits)
        self._shared = weights == "one" and sequences > 1
        if self._shared and len(getattr(traits, "weights", ())) > 1:
            wanted = f"be 'several' for rule {traits.name!r}, which has more weights than θ"
            raise refusal("weights", "LearnGVFs", wanted, "'one'")
        if rate is None and alpha is not None:
            rate = 1.0
        settings |= {"rule": rule, "rate": rate, "alpha": alpha, "scaled": False, "centred": False}
        self._new: Callable[[Features], Horde] = lambda features: Horde(questions, features, **settings)
        horde = self._new(features)
        evaluator = horde.evaluator((*names, REWARD))  # reports an invalid question at once
        self._warm_up = 0 if warm_up == 0 else whole("warm_up", warm_up, "LearnGVFs")
        self._set(horde, sequences, names, flat, evaluator.needs_observations)
        if self.features.is_warm or not self._warm_up:
            self._prepare()

    def _set(
        self, horde: Horde, sequences: int, names: Sequence[str], flat: Callable[[Any], Array], watched: bool
    ) -> None:
        self._hordes, self._names, self._flat = [horde], tuple(names), flat
        self._watched = watched  # whether functions need observations
        self._observations: list[Array] = []  # of the warm-up
        self._ready = False
        #: The predictions at the last observation of each sequence, (Q,): 0 where it has terminated, NaN before the
        #: warm-up is over.
        self.predictions = [np.full(len(self.questions), np.nan) for _ in range(sequences)]

    @classmethod
    def resume(cls, horde: Horde, flat: Callable[[Any], Array], observation_of: Callable[[Array], Any]) -> Self:
        """One sequence, from a saved horde; ``observation_of`` is the inverse of ``flat``."""
        self = cls.__new__(cls)
        self._shared = False
        self._set(horde, 1, horde.makers[0].signals, flat, horde.needs_observations)
        self._ready = True
        horde.resume_episode(observation_of)
        return self

    # ------------------------------------------------------------------ properties

    @property
    def questions(self) -> tuple[GVF, ...]:
        """The questions, in the order of the predictions."""
        return self._hordes[0].questions

    @property
    def features(self) -> Features:
        """The features of the first sequence; those of the others differ in their traces alone."""
        return self._hordes[0].makers[0]

    @property
    def hordes(self) -> tuple[Horde, ...]:
        """The horde of each sequence; none before the warm-up is over."""
        return tuple(self._hordes) if self._ready else ()

    @property
    def learners(self) -> list[Learner]:
        """The learners of each sequence in turn, one for each rule; none before the warm-up is over."""
        return [learner for horde in self.hordes for learner in horde.learners]

    @property
    def theta(self) -> Array:
        """θ of each question: (Q, n) where there is one set of weights, else (B, Q, n)."""
        thetas = self._of_learners("theta")
        return thetas.sum(axis=0) if self._shared or len(thetas) == 1 else thetas

    @property
    def frozen(self) -> NDArray[np.bool_]:
        """Which questions keep their last weights because they would have diverged, (B, Q)."""
        return self._of_learners("frozen")

    def _of_learners(self, name: str) -> NDArray[Any]:
        """An attribute of the learners of each sequence, (B, Q, …), in the order of the questions."""
        order = np.argsort(np.concatenate(self._hordes[0].shares))
        of_hordes = [[getattr(learner, name) for learner in horde.learners] for horde in self.hordes]
        return np.array([np.concatenate(of_groups)[order] for of_groups in of_hordes])

    def support(self, i: int) -> Array:
        """The support of each question in sequence i, (Q,): NaN before the warm-up is over."""
        return self._hordes[i].support if self._ready else np.full(len(self.questions), np.nan)

    def log(self, i: int, learner: int | None = None) -> dict[str, Any]:
        """The recorded input of sequence i's learner: arguments of ``Learner.run`` that lead to the same weights.

        Where the weights are shared, R includes what the other sequences contribute, and the learners' θ must be added.
        """
        return self._hordes[i].log(learner)

    # ------------------------------------------------------------------ the stream

    def begin(self, i: int, observation: object) -> None:
        """Begin an episode with its first observation. An episode that has not terminated is cut off here."""
        row = self._row(observation, np.nan)
        if not self._ready:
            self._observations.append(row[0, :-1])
            if len(self._observations) < self._warm_up:
                return
            self._prepare()
        block = Block(0, row, None, _NO_LABELS, gap=YES, terminated=NO, originals=self._originals(observation))
        self.predictions[i] = self._hordes[i].advance(block)[0]

    def step(
        self,
        i: int,
        action: object,
        reward: SupportsFloat,
        observation: object,
        terminated: bool,
        mu: float | None = None,
        predict: bool = True,
        truncated: bool = False,
    ) -> None:
        """A transition: learn, and predict at the new observation.

        If not ``predict``, learning is deferred and done together with later steps, with the same resulting weights. If
        no episode is running, as in an environment that resets itself, the observation begins one.
        """
        if not self._ready or not self._hordes[i].in_episode:
            self.begin(i, observation)
            return
        horde, row = self._hordes[i], self._row(observation, reward)
        if mu is None and not (terminated or truncated or self._watched) and horde.can_follow(row):
            answers = horde.follow(row, predict)
        else:
            block = Block(0, row, None, _NO_LABELS, terminated=YES if terminated else NO, truncated=truncated)
            block.action_before, block.mu_before = action, probability(mu, "learn")
            block.originals = self._originals(observation)
            answers = horde.advance(block, predict=predict)
        if answers is not None:
            self.predictions[i] = answers[0]

    # ------------------------------------------------------------------ inside

    def _prepare(self) -> None:
        """With features: a horde for each sequence."""
        features, B = self.features, len(self.predictions)
        if not features.is_warm:
            rows = np.array(self._observations).reshape(-1, len(self._names))
            try:
                for maker in self._hordes[0].makers:
                    maker.warm_up(rows, names=self._names)
            except ValueError as error:
                raise ValueError(f"{error} Give every part a range, or pass warm_up=500.") from error
        self._hordes += [self._new(deepcopy(features)) for _ in range(B - 1)]
        for horde in self._hordes:
            horde.prepare(self._names)
        if self._shared:
            for groups in zip(*(horde.groups for horde in self._hordes), strict=True):
                for group in groups:
                    group.others = partial(_sum_at, [sharer.learner for sharer in groups if sharer is not group])
                    group.possible.share(groups[0].possible)
        self._observations, self._ready = [], True

    def _row(self, observation: object, reward: SupportsFloat) -> Array:
        """The components of an observation and the reward that came with it, (1, C + 1)."""
        flat = self._flat(observation)
        row = np.empty((1, len(flat) + 1))
        row[0, :-1] = flat
        row[0, -1] = float(reward)
        return row

    def _originals(self, observation: object) -> list[Any] | None:
        """A copy of an observation for functions, as an environment may reuse its array."""
        if not self._watched:
            return None
        return [observation.copy() if isinstance(observation, np.ndarray) else observation]


def component_names(space: spaces.Space[Any]) -> tuple[str, ...]:
    """o0, o1, …: a name for each component of an observation.

    Args:
        space: The space of observations.
    """
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
    """Tile coding of a space's observations by ``features.Tiles``, and a bias; ready where all ranges are known.

    An active tile is 1/√tilings: φ·φ is the number of groups, and 1 for the bias. A ``Discrete`` space has one feature
    per observation.

    Args:
        space: The space of observations, a ``Box`` or ``Discrete``.
        of: Groups of components, each tiled jointly; by default each component is tiled separately.
        ranges: The range of a component, by name; by default the space's own bounds. For a component with neither, the
            wrapper needs a ``warm_up``.
        tiles: The number of tiles along each component.
        tilings: The number of tilings of each group.
        hashed: The number of features that the tiles of a group are hashed to; by default they are not hashed.
        names: The names of the components; o0, o1, … by default.
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
    shape: dict[str, Any] = {"tiles": tiles, "tilings": tilings, "hashed": hashed, "spacing": "equal"}
    groups = [[name] for name in names] if of is None else of
    spans = [[known[name] for name in group] if known.keys() >= set(group) else None for group in groups]
    maker = Features([Bias(), *(Tiles(list(g), range=span, **shape) for g, span in zip(groups, spans, strict=True))])
    return maker if None in spans else maker.warm_up(np.empty((0, len(names))), names=names)


def _by_spaces(
    space: spaces.Space[Any], actions: spaces.Space[Any], features: object, names: Sequence[str] | None, mu: Behaviour
) -> dict[str, Any]:
    """The arguments of ``Episodes`` that follow from an environment's spaces of observations and actions."""
    names = component_names(space) if names is None else names
    if mu is None and isinstance(actions, spaces.Discrete):
        mu = 1.0 / float(actions.n)
    return {"features": _features(features, space, names), "names": names, "flat": _conversions(space)[0], "mu": mu}


def _conversions(space: spaces.Space[Any]) -> tuple[Callable[[Any], Array], Callable[[Array], Any]]:
    """Observations to arrays (C,) and back: numbers unchanged, and everything else as Gymnasium flattens it."""
    if isinstance(space, spaces.Box):
        return (lambda seen: np.asarray(seen, np.float64).reshape(-1)), (
            lambda flat: flat.astype(space.dtype).reshape(space.shape)
        )
    if isinstance(space, spaces.Discrete):
        return (lambda seen: np.array([seen], np.float64)), (lambda flat: space.dtype.type(flat[0]))
    return (lambda seen: np.asarray(spaces.flatten(space, seen), np.float64)), partial(spaces.unflatten, space)


def _features(features: object, space: spaces.Space[Any], names: Sequence[str]) -> Any:
    """A feature maker; for a function of the observation, one that calls it."""
    if not callable(features) or isinstance(features, Features):
        return features
    flat_of, observation_of = _conversions(space)
    name = getattr(features, "__name__", "<lambda>")

    def of(flat: Array) -> Any:
        return features(observation_of(flat))

    sample = flat_of(deepcopy(space).sample())  # (a copy, so that the space's own random numbers do not change)
    try:
        size = np.asarray(of(sample), np.float64).size
    except (TypeError, ValueError) as error:
        wanted = f"return numbers for an observation such as {observation_of(sample)!r}"
        raise refusal("features", "LearnGVFs", wanted, f"{type(error).__name__}: {error}") from error
    components = "features" if name == "<lambda>" else name
    return Features(
        [Function(lambda row: of(np.array([row[c] for c in names], np.float64)), size=size, name=components)]
    )


def _sum_at(learners: Sequence[Learner], phi: Active) -> Any:
    """The sum of the learners' predictions."""
    return sum(learner.predict(phi) for learner in learners)
