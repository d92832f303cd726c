"""What a sweep learns from: simulated runs of a problem with exact values, or one recorded log with actual returns.

Both have a ``name``, a ``metric`` (``is_cost`` if it is what episodes cost), ``notes`` on their baselines, ``steps``
(of a ``unit``, steps or episodes), ``fresh`` (whether each run has a problem of its own), ``check``, ``identity``,
``points``, ``baselines`` and ``score``, which learns with all settings side by side and gives ``Scores``.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from emphatic import engines
from emphatic.learning import inputs
from emphatic.learning.inputs import Active, refusal
from emphatic.learning.sequences import UndiscountedWarning, returns
from emphatic.nexting.runs.learning import open_log
from emphatic.nexting.runs.settings import Settings as NextingSettings
from emphatic.nexting.scores import known_return
from emphatic.problems import MDP, Stream, Tasks
from emphatic.studies.grid import GridSettings, LeastSquaresRule

__all__ = ["Recorded", "Scores", "Simulated"]

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

#: A learner has diverged if its error is this many times as large as that without learning.
_DIVERGED = 1e6


class Scores(NamedTuple):
    """Of K learners: the error over all steps and at the end, (K,); at chosen points, (K, P); and which diverged.

    A learner whose weights would no longer have been finite has an infinite error from there on, and so over all steps.
    It has diverged, and so has every learner whose error, over all steps or at the end, is more than a million times as
    large as that of the first weights and that of θ = 0.
    """

    mean: Array
    final: Array
    curve: NDArray[np.float32]
    diverged: Flags

    @classmethod
    def of(cls, mean: Array, final: Array, curve: Array, frozen: Flags, without_learning: float) -> Scores:
        """From errors, of which the curve (P, K) is infinite where weights would not have been finite."""
        mean, final = (np.where(frozen, np.inf, error) for error in (mean, final))
        most = _DIVERGED * (without_learning or 1.0)
        with np.errstate(over="ignore"):
            return cls(mean, final, curve.T.astype(np.float32), ~((mean <= most) & (final <= most)))

    @classmethod
    def averaged(cls, tasks: Sequence[Scores]) -> Scores:
        """The mean over several tasks; a learner that diverged in one of them has diverged."""
        if len(tasks) == 1:
            return tasks[0]
        with np.errstate(over="ignore"):
            mean, final, curve = (np.mean([errors[i] for errors in tasks], axis=0) for i in range(3))
        return cls(mean, final, curve, np.any([task.diverged for task in tasks], axis=0))


# ---------------------------------------------------------------------- simulated runs

#: Errors in memory at a time: 8 MB of them.
_ERRORS = 1 << 20
#: Below this many steps between errors, going step by step is faster than by matrix products.
_OFTEN = 16


@dataclass(frozen=True)
class Simulated:
    """Run i of a problem is a stream of its own, the same for all rules: that of seed (seed, i).

    A function that takes a ``seed`` makes a problem of its own for each run, of the same seed. The error is the root
    mean square value error, weighted by d_μ·I or by ``d``, of the weights before an update; at the end, of the last
    weights. Of ``Tasks`` each has learners of its own, and the error is the mean over the tasks.

    Where the target policy is undefined nothing is learned: ρ, I and both step sizes are 0 there.

    With ``unit`` "episodes" a run has so many of these, and the error is measured at the end of each, as for the random
    walk in the literature: ``mean`` is that of all ends, ``final`` that of the last one.
    """

    problem: MDP | Tasks | Callable[..., MDP | Tasks]
    steps: int
    seed: int = 0
    theta: tuple[float, ...] | None = None
    d: tuple[float, ...] | float | None = None
    unit: str = "steps"

    metric = "RMSVE"
    is_cost: ClassVar[bool] = False
    notes: ClassVar[Mapping[str, str]] = {}

    @property
    def weights(self) -> str:
        """What weighs the states' errors."""
        return "d_μ·I" if self.d is None else "given"

    @functools.cached_property
    def name(self) -> str:
        """The problem's name, with its options."""
        if isinstance(self.problem, MDP | Tasks):
            return self.problem.name or "MDP"
        if not isinstance(self.problem, functools.partial):
            return str(getattr(self.problem, "__name__", "problem"))
        values = {name: repr(value) for name, value in self.problem.keywords.items()}
        options = ", ".join(f"{name}={value if len(value) < 40 else '…'}" for name, value in values.items())
        return f"{getattr(self.problem.func, '__name__', 'problem')}({options})"

    @property
    def fresh(self) -> bool:
        """Whether each run has a problem of its own."""
        if isinstance(self.problem, MDP | Tasks) or "seed" in getattr(self.problem, "keywords", ()):
            return False
        return "seed" in inspect.signature(self.problem).parameters

    def mdp(self, run: int) -> MDP | Tasks:
        """The problem of a run."""
        return self._build(seed=(self.seed, run)) if self.fresh else self._shared

    @functools.cached_property
    def _shared(self) -> MDP | Tasks:
        """The problem of all runs, which caches what was computed of it."""
        return self._build()

    def _build(self, **seed: tuple[int, int]) -> MDP | Tasks:
        problem = self.problem if isinstance(self.problem, MDP | Tasks) else self.problem(**seed)
        if not isinstance(problem, MDP | Tasks):
            raise refusal("problem", "sweep", "be a problem, or a function that creates one", repr(problem))
        return problem

    def tasks(self, run: int) -> tuple[MDP, ...]:
        """The tasks of a run; an ``MDP`` is its own only task."""
        problem = self.mdp(run)
        return problem.tasks if isinstance(problem, Tasks) else (problem,)

    def check(self, settings: GridSettings) -> None:
        """ValueError where these settings cannot learn from it."""
        rule = settings.rule
        for mdp in self.tasks(0):
            if not rule.interest and (mdp.I[mdp.defined] != 1.0).any():
                wanted = f"use interest, which {self.name} has where its target policy is defined"
                raise refusal("rule", "sweep", wanted, repr(rule.name))
            if self.theta is not None and isinstance(rule, LeastSquaresRule):
                raise refusal("theta", "sweep", f"be left out for {rule.name!r}, which begins without weights", "some")
            if rule.action_values and (mdp.pi != mdp.mu).any():
                wanted = f"learn state values; {rule.name} learns those of the target policy only on-policy"
                raise refusal("rule", "sweep", wanted, repr(rule.name))
            self._first_weights(mdp)
            self._probe(mdp)
            self._ends_per_step(mdp)

    def _ends_per_step(self, mdp: MDP) -> float:
        """The share of the steps of behaviour with which an episode ends, γ' = 0; ValueError if runs need some."""
        if self.unit == "steps":
            return 0.0
        ends = float(np.einsum("s,sa,sax,x->", mdp.d_mu, mdp.mu, mdp.P, np.append(mdp.gamma == 0.0, True)))
        if not ends:
            raise refusal("episodes", "sweep", f"be left out: {self.name} has no ends", repr(self.steps))
        return ends

    def identity(self) -> str:
        """A hash that identifies these runs."""
        digest = hashlib.sha256(
            f"{self.name} {self.steps} {self.unit} {self.seed} {self.fresh} {self.theta} {self.d}".encode()
        )
        for mdp in self.tasks(0):
            for name in ("P", "R", "gamma", "pi", "mu", "Phi", "I", "lambda_", "start"):
                array = np.ascontiguousarray(getattr(mdp, name), np.float64)
                digest.update(f"{name} {array.shape}".encode() + array.tobytes())
        return digest.hexdigest()

    def points(self, count: int, every: int, early: bool = False) -> NDArray[np.int64]:
        """About ``count`` of the steps 0, every, 2·every, …, evenly spread; with ``early`` half of them towards 0."""
        total = -(-self.steps // every)
        geometric = np.geomspace(1, total, count // 2) - 1 if early and total > count else np.empty(0)
        even = np.linspace(0, total - 1, min(count, total) - len(geometric))
        return np.unique(np.round(np.append(geometric, even)).astype(np.int64)) * every

    def baselines(self, runs: int) -> dict[str, float]:
        """Errors to compare with, as means over the runs: of the first weights and of the best weights."""
        errors = []
        for run in range(runs if self.fresh else 1):
            for mdp in self.tasks(run):
                error = inputs.probe(self._probe(mdp), mdp.n, None)
                errors.append(error(np.stack([self._first_weights(mdp), mdp.best_for(self.d)])))
        start, best = np.mean(errors, axis=0)
        return {"first weights" if self.theta else "θ = 0": float(start), "best linear approximation": float(best)}

    def score(self, run: int, settings: GridSettings, every: int, points: NDArray[np.int64]) -> Scores:
        """Learn all settings side by side on one stream."""
        return Scores.averaged([self._score(mdp, run, settings, every, points) for mdp in self.tasks(run)])

    def _score(self, mdp: MDP, run: int, settings: GridSettings, every: int, points: NDArray[np.int64]) -> Scores:
        """Of one task."""
        K, probe = len(settings), self._probe(mdp)
        stream, edges = self._stream(mdp, run)
        by_episode, steps = bool(edges), edges[-1] if edges else self.steps
        size = every * max(1, _ERRORS // (K * (1 if stream.active.all() else every)))
        edges = edges or [*range(0, steps, size), steps]
        learner = settings.learner(mdp.n, self._engine(mdp, settings, every, min(size, steps)))
        if self.theta is not None:
            learner.theta = self._first_weights(mdp)  # type: ignore[misc]  # least squares was rejected by ``check``
        measured: dict[str, Any] = {} if by_episode else {"probe": probe, "probe_every": every}
        error_of = inputs.probe(probe, mdp.n, None)
        total, curve = np.zeros(K), np.empty((len(points), K))
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore", UndiscountedWarning)  # an episode may be longer than a block
            for number, (begin, end) in enumerate(pairwise(edges)):
                block = self._block(mdp, stream, settings, begin, end)
                errors = learner.run(**block, predictions=False, on_divergence="freeze", **measured)
                if by_episode:
                    error, place = np.where(learner.frozen, np.inf, error_of(learner.theta))[None], points - number
                else:
                    error, place = errors[1], (points - begin) // every
                total += error.sum(axis=0)
                inside = (place >= 0) & (place < len(error))
                curve[inside] = error[place[inside]]
        if not by_episode:
            curve[(points[:, None] > learner._taken) & learner.frozen] = np.inf
        # the larger of two, as the first weights may be the best
        start = error_of(np.stack([self._first_weights(mdp), np.zeros(mdp.n)])).max()
        mean = total / (self.steps if by_episode else -(-steps // every))
        return Scores.of(mean, error_of(learner.theta), curve, learner.frozen, float(start))

    def _stream(self, mdp: MDP, run: int) -> tuple[Stream, list[int]]:
        """The steps of a run and, of episodes, where each begins, and where the last one ends."""
        if self.unit == "steps":
            return mdp.simulate(self.steps, seed=(self.seed, run)), []
        T = round(1.5 * self.steps / self._ends_per_step(mdp)) + 100
        while True:
            stream = mdp.simulate(T, seed=(self.seed, run))  # begins as a shorter one
            ends = np.flatnonzero(stream.gamma_next == 0.0)[: self.steps] + 1
            if len(ends) == self.steps:
                return stream, [0, *ends.tolist()]
            T *= 2

    def _block(self, mdp: MDP, stream: Stream, settings: GridSettings, begin: int, end: int) -> dict[str, Any]:
        """Some steps of a stream with all settings, as ``run`` takes them."""
        series, constants = stream.inputs(settings.stream_rule), _constants(settings, mdp)
        if "lambda_" in constants:
            series.pop("lambda_next", None)  # as a grid sets λ, it is the same everywhere
        # (T+1, n), or (T, 1): a column is for all learners, even where there are as many of them as steps
        block: dict[str, Any] = {
            name: value[begin : end + 1] if name == "Phi" else value[begin:end, None] for name, value in series.items()
        }
        block |= constants
        if "alpha" in constants and not stream.active.all():
            # β = eta·α follows α
            follows = "beta" in constants and settings.rule.defaults.get("beta") == "eta"
            for name in ["alpha", *["beta"] * follows]:
                block[name] = constants[name] * stream.active[begin:end, None]
        return block

    def _engine(self, mdp: MDP, settings: GridSettings, every: int, steps: int) -> str:
        """The engine of all settings together."""
        if every < _OFTEN or isinstance(settings.rule, LeastSquaresRule):
            return "dense"
        return engines.choose(mdp.n, len(settings), steps, None, settings.stepped_rule)

    def _first_weights(self, mdp: MDP) -> Array:
        theta = np.zeros(mdp.n) if self.theta is None else np.asarray(self.theta, np.float64)
        if theta.shape != (mdp.n,) or not np.isfinite(theta).all():
            raise refusal("theta", "sweep", f"be {mdp.n} finite numbers", repr(self.theta))
        return theta

    def _probe(self, mdp: MDP) -> tuple[Array, Array, Array]:
        """What errors are measured with."""
        if self.d is None:
            return mdp.probe
        return mdp.Phi, mdp.v_pi, mdp.checked_weights(self.d, "sweep")


def _constants(settings: GridSettings, mdp: MDP) -> dict[str, Array]:
    """The parameters as ``run`` takes them, (1, K)."""
    values = settings.step_arguments
    if "zeta" in values:
        values["xi"] = np.array([mdp.xi(zeta) for zeta in values.pop("zeta")])
    return {name: column[None] for name, column in values.items()}


# ---------------------------------------------------------------------- a recorded log

#: Predictions in memory at a time: 16 MB of them.
_PREDICTIONS = 1 << 21
#: What ``Recorded`` has for each step, or once for all.
_SERIES = ("R", "gamma_next", "rho", "I", "lambda_", "pi", "mu")


@dataclass(frozen=True, eq=False, repr=False)
class Recorded:
    """One log as ``Learner.run`` takes it, to sweep on: actual returns are known, exact values are not.

    The error is the root mean square of prediction minus return: over all steps whose return is known, over the last
    tenth of them, and in pieces of the log.

    Args:
        Phi: Features, T+1 rows: an array (T+1, n) or ``Active``.
        R: Rewards R_{t+1}, (T,), as every series that follows; each may also be one number.
        gamma_next: Discounts γ_{t+1}.
        rho: Importance sampling ratios.
        I: Interest. By default 1 − γ for a rule with emphasis and a constant γ below 1, which brings F to 1 on-policy,
            and else 1.
        lambda_: λ, where the grid does not set it.
        pi: Probability of the action taken under the target policy, for rules that use it.
        mu: Probability of the action taken under the behaviour policy, for rules that use it.
        cuts: Rows that do not follow the row before.
        outcome: (G, known), the return of each step and where it is known. By default what
            ``emphatic.learning.returns`` computes, which are returns of behaviour: off-policy (a ρ other than 0 and 1)
            it must be given.
        others: Predictions to compare with, by name, (T,).
        n: Number of features; needed only if ``Phi`` is ``Active``.
        name: Title in the report.
    """

    Phi: Any
    R: Any  # array-like when passed, an array afterwards
    gamma_next: Any
    rho: Any = 1.0
    I: ArrayLike | None = None
    lambda_: ArrayLike = 0.0
    pi: ArrayLike | None = None
    mu: ArrayLike | None = None
    cuts: Sequence[int] = ()
    outcome: tuple[ArrayLike, ArrayLike] | None = None
    others: Mapping[str, Any] = field(default_factory=dict)
    n: int | None = None
    name: str = "log"

    metric = "return error"
    unit: ClassVar[str] = "steps"
    is_cost: ClassVar[bool] = False
    notes: ClassVar[Mapping[str, str]] = {}
    fresh = False

    def __post_init__(self) -> None:
        self._check_features()
        for name in _SERIES:
            if getattr(self, name) is not None:
                array = np.asarray(inputs.real_array(name, getattr(self, name), "Recorded"), np.float64)
                if array.shape not in ((), (self.steps,)):
                    raise refusal(name, "Recorded", f"be a number or of shape ({self.steps},)", f"{array.shape}")
                object.__setattr__(self, name, array)
        self._check_others()
        cuts = sorted({int(row) for row in self.cuts})
        if any(not 0 < row <= self.steps for row in cuts):
            raise refusal("cuts", "Recorded", f"be rows from 1 to {self.steps}", repr(self.cuts))
        object.__setattr__(self, "cuts", tuple(cuts))
        self._check_outcome()

    def _check_features(self) -> None:
        if not isinstance(self.Phi, Active):
            object.__setattr__(self, "Phi", np.asarray(inputs.real_array("Phi", self.Phi, "Recorded"), np.float64))
            if not np.isfinite(self.Phi).all():
                t, i = np.argwhere(~np.isfinite(self.Phi))[0]
                raise refusal("Phi", "Recorded", "be finite", f"{self.Phi[t, i]} in row {t}, feature {i}")
        if len(self.Phi.shape) != 2 or self.steps < 1:
            raise refusal("Phi", "Recorded", "have T+1 rows of features", f"shape {self.Phi.shape}")
        if self.n is None:
            object.__setattr__(self, "n", self.Phi.top + 1 if isinstance(self.Phi, Active) else self.Phi.shape[1])

    def _check_others(self) -> None:
        predictions = {name: np.asarray(prediction, np.float64) for name, prediction in self.others.items()}
        for name, prediction in predictions.items():
            if prediction.shape != (self.steps,) or not np.isfinite(prediction).all():
                wanted = f"be {self.steps} finite numbers"
                raise refusal(f"others[{name!r}]", "Recorded", wanted, f"{prediction.shape}")
        object.__setattr__(self, "others", predictions)

    def _check_outcome(self) -> None:
        if self.outcome is not None:
            G, known = np.asarray(self.outcome[0], np.float64), np.asarray(self.outcome[1], bool)
            if not G.shape == known.shape == (self.steps,) or not np.isfinite(G[known]).all():
                raise refusal("outcome", "Recorded", "be (G, known), two of (T,)", f"{G.shape}, {known.shape}")
            object.__setattr__(self, "outcome", (G, known))
        elif not np.isin(self.rho, (0.0, 1.0)).all():
            wanted = "be given off-policy, because the returns of the log are not those of the target policy"
            raise refusal("outcome", "Recorded", wanted, "none")
        if not self.truth[1].any():
            raise refusal("R", "Recorded", "be long enough for at least one known return", f"{self.steps} steps")

    def __repr__(self) -> str:
        return f"Recorded({self.name!r}, T={self.steps}, n={self.n})"

    @classmethod
    def table(
        cls,
        source: Any,
        predict: str,
        horizon: float | str,
        *,
        time: str | bool | None = None,
        delimiter: str | None = None,
    ) -> Recorded:
        """One signal of a table at one horizon, with the features that ``emphatic nexting`` would make.

        Values are deviations from their mean in the first rows, in the unit of the signal. If a value is missing, ρ is
        0, so that nothing is learned from it (w of a gradient rule may still change θ). A gap in time is a cut.

        Args:
            source: A file, a frame or a mapping of columns: whatever ``emphatic.nexting.run`` takes.
            predict: The column to predict.
            horizon: Averaging horizon h in γ = 1 − 1/h: steps, or a duration such as "15min".
            time: The column of times; False: there is none; None: it is looked for.
            delimiter: What separates the columns of a text file; None: it is detected.

        Returns:
            The log, with persistence among its ``others``.
        """
        chosen = NextingSettings(predict=(predict,), horizons=(horizon,), time=time, delimiter=delimiter)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UndiscountedWarning)
            log = open_log(source, chosen, lambda *_: None)
            horde = log.warmed_up(log.new_guard())
        x, missing, gap = log.readings()
        gamma, base = float(horde.gamma[0]), float(horde.base[0])
        blocks = list(log.phi(horde.makers[0]))
        Phi = Active(*(np.concatenate([getattr(block, name) for block in blocks]) for name in ("indices", "values")))
        G, known = known_return(x[:, 0], missing[:, 0], gap, gamma)
        return cls(
            Phi,
            np.where(missing[1:, 0], 0.0, (1.0 - gamma) * (x[1:, 0] - base)),
            gamma,
            rho=np.where(missing[1:, 0], 0.0, 1.0),
            lambda_=log.settings.gvfs()[0].default_lambda(gamma),
            cuts=(np.flatnonzero(gap[1:]) + 1).tolist(),
            outcome=(np.where(known, G - base, 0.0)[:-1], known[:-1]),
            others={"persistence": x[:-1, 0] - base},
            n=horde.features.n,
            name=f"{os.path.basename(log.table.name)}: {predict} at {horizon}",
        )

    @property
    def steps(self) -> int:
        """T."""
        return int(self.Phi.shape[0]) - 1

    @functools.cached_property
    def truth(self) -> tuple[Array, Flags]:
        """The return of each step, and where it is known."""
        if self.outcome is not None:
            return np.asarray(self.outcome[0]), np.asarray(self.outcome[1])
        G, known = np.zeros(self.steps), np.zeros(self.steps, bool)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UndiscountedWarning)
            for begin, end in self._sequences():
                R, gamma = (np.broadcast_to(value, self.steps)[begin:end] for value in (self.R, self.gamma_next))
                G[begin:end], known[begin:end] = returns(R, gamma)
        return G, known

    def _sequences(self) -> Iterator[tuple[int, int]]:
        """The steps between two cuts; the step into a cut belongs to neither side."""
        for begin, end in pairwise((0, *self.cuts, self.steps + 1)):
            if end - 1 > begin:
                yield begin, end - 1

    def check(self, settings: GridSettings) -> None:
        """ValueError where these settings cannot learn from it.

        Args:
            settings: Settings of one rule.
        """
        self._run_arguments(settings)

    def identity(self) -> str:
        """A hash that identifies this log."""
        digest = hashlib.sha256(repr((self.name, self.cuts)).encode())
        features = (self.Phi.indices, self.Phi.values) if isinstance(self.Phi, Active) else (self.Phi,)
        for value in (*features, *(getattr(self, name) for name in _SERIES), *self.truth):
            array = np.ascontiguousarray(np.nan if value is None else value)
            digest.update(repr((array.dtype.str, array.shape)).encode() + array.tobytes())
        return digest.hexdigest()

    def points(self, count: int, every: int, early: bool = False) -> NDArray[np.int64]:
        """Where the pieces of the log end, all of one length.

        Args:
            count: Number of pieces.
            every: Ignored: every step has an error.
            early: Ignored: a piece needs all its steps.
        """
        return np.unique(np.round(np.linspace(0, self.steps, min(count, self.steps) + 1)).astype(np.int64))[1:]

    def baselines(self, runs: int) -> dict[str, float]:
        """Errors to compare with: of θ = 0, of the mean return, and of ``others``.

        Args:
            runs: Ignored: a log is one run.
        """
        G, known = self.truth
        predictions = {"θ = 0": np.zeros_like(G), "mean return": np.full_like(G, G[known].mean())}
        predictions |= {name: np.asarray(value) for name, value in self.others.items()}
        return {name: float(np.sqrt(np.mean((value - G)[known] ** 2))) for name, value in predictions.items()}

    def score(self, run: int, settings: GridSettings, every: int, points: NDArray[np.int64]) -> Scores:
        """Learn all settings side by side.

        Args:
            run: Ignored: a log is one run.
            settings: Settings of one rule.
            every: Ignored: every step has an error.
            points: Where the pieces of the log end.
        """
        K = len(settings)
        arguments = self._run_arguments(settings)
        learner = settings.learner(self.n or 1, self._engine(settings, points))
        edges = np.unique([0, *points, self.steps])
        sums, counts = np.zeros((len(edges) - 1, K)), np.zeros(len(edges) - 1)
        G, known = self.truth
        tenth = np.flatnonzero(known)[-max(1, int(known.sum()) // 10)]
        late_sum = np.zeros(K)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore", UndiscountedWarning)
            for start, stop in self._sequences():
                for begin, end in _blocks(start, stop, edges, max(1, _PREDICTIONS // len(settings))):
                    block: dict[str, Any] = {
                        name: value[begin:end, None] if value.ndim == 1 else value for name, value in arguments.items()
                    }
                    predictions = learner.run(self.Phi[begin : end + 1], **block, on_divergence="freeze")
                    judged = known[begin:end]
                    square = np.square(predictions[judged] - G[begin:end][judged][:, None])
                    piece = np.searchsorted(edges, begin, "right") - 1
                    sums[piece] += square.sum(axis=0)
                    counts[piece] += len(square)
                    late_sum += square[np.arange(begin, end)[judged] >= tenth].sum(axis=0)
                    sums[piece, learner.frozen] = np.inf
                learner.cut()
            curve = np.sqrt(sums / counts[:, None])[: len(points)]
            mean, final = np.sqrt(sums.sum(axis=0) / counts.sum()), np.sqrt(late_sum / known[tenth:].sum())
        return Scores.of(mean, final, curve, learner.frozen, self.baselines(1)["θ = 0"])

    def _engine(self, settings: GridSettings, points: NDArray[np.int64]) -> str:
        """The engine of all settings together; features that are given by index leave it to the learner."""
        if isinstance(self.Phi, Active) or isinstance(settings.rule, LeastSquaresRule):
            return "auto"
        first_block = next(
            end - begin
            for start, stop in self._sequences()
            for begin, end in _blocks(
                start, stop, np.unique([0, *points, self.steps]), max(1, _PREDICTIONS // len(settings))
            )
        )
        return engines.choose(self.n or 1, len(settings), first_block, None, settings.stepped_rule)

    def _run_arguments(self, settings: GridSettings) -> dict[str, Array]:
        """The arguments of ``run`` besides the features: (T,), (1, K) or a number."""
        rule = settings.rule
        self._check_rule(settings)
        arguments = {"R": self.R, "gamma_next": self.gamma_next, "rho": self.rho, "lambda_": self.lambda_}
        if rule.interest:
            gamma = np.asarray(self.gamma_next)
            steady = bool(rule.emphasis) and gamma.ndim == 0 and gamma < 1.0
            arguments["I"] = self.I if self.I is not None else 1.0 - gamma if steady else 1.0
        arguments |= {name: getattr(self, name) for name in ("pi", "mu") if name in rule.extra}
        if "lambda_next" in rule.extra and "lambda" not in settings.values and np.ndim(self.lambda_):
            lambdas = np.asarray(self.lambda_)
            arguments["lambda_next"] = np.append(lambdas[1:], lambdas[-1])
        arguments |= {name: column[None] for name, column in settings.step_arguments.items()}
        return {name: np.asarray(value, np.float64) for name, value in arguments.items()}

    def _check_rule(self, settings: GridSettings) -> None:
        rule = settings.rule
        if not rule.interest and self.I is not None and np.any(self.I != 1.0):
            raise refusal("rule", "sweep", "use interest, which the log has", repr(rule.name))
        if rule.action_values and np.any(self.rho != 1.0):
            wanted = f"learn state values; {rule.name} learns those of the target policy only on-policy"
            raise refusal("rule", "sweep", wanted, repr(rule.name))
        for name in ("pi", "mu"):
            if name in rule.extra and getattr(self, name) is None:
                raise refusal(name, "Recorded", f"be given for the rule {rule.name!r}", "none")
        if "zeta" in settings.values:
            raise refusal("zeta", "sweep", "be 'xi' on a log, whose policies are not known", "zeta")


def _blocks(start: int, stop: int, edges: NDArray[np.int64], size: int) -> Iterator[tuple[int, int]]:
    """The steps from ``start`` to ``stop`` in blocks of at most ``size`` that do not reach over an edge."""
    inner = edges[(edges > start) & (edges < stop)].tolist()
    for begin, end in pairwise((start, *inner, stop)):
        for first_step in range(begin, end, size):
            yield first_step, min(first_step + size, end)
