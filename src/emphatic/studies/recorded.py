"""A recorded log to sweep on: actual outcomes are known, exact values are not."""

from __future__ import annotations

import functools
import hashlib
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.learning import inputs
from emphatic.learning.inputs import Active
from emphatic.learning.returns import UndiscountedWarning, returns
from emphatic.nexting.runner import Nexting
from emphatic.nexting.settings import Settings as NextingSettings
from emphatic.scores import known_return
from emphatic.studies.grid import GridSettings
from emphatic.studies.scores import Scores

__all__ = ["Recorded"]

#: Predictions that are kept at a time.
_PREDICTIONS = 1 << 21


@dataclass(frozen=True, eq=False, repr=False)
class Recorded:
    """One log as ``Learner.run`` takes it: ``Phi`` of T+1 rows, and per step ``R``, ``gamma_next``, ``rho``, ….

    ``I`` is by default 1 − γ for a rule with emphasis and a constant γ below 1, which keeps the emphasis at 1, and else
    1. ``cuts`` are rows that do not follow the one before. ``outcome`` is (G, known), the return of each step and
    where it is known; by default what ``emphatic.returns`` finds, which are returns of behaviour: off-policy (a ρ other
    than 0 and 1) it must be given. ``others`` are predictions to compare with, by name, (T,). ``n`` is needed only
    if ``Phi`` is ``Active``.

    The error is the root mean square of prediction minus return: over all steps whose return is known, over the last
    tenth of them, and in pieces of the log.
    """

    Phi: Any
    R: Any
    gamma_next: Any
    rho: Any = 1.0
    I: Any = None
    lambda_: Any = 0.0
    pi: Any = None
    mu: Any = None
    cuts: Sequence[int] = ()
    outcome: tuple[Any, Any] | None = None
    others: Mapping[str, Any] = field(default_factory=dict)
    n: int | None = None
    name: str = "log"

    metric = "return error"
    fresh = False

    def __post_init__(self) -> None:
        if not isinstance(self.Phi, Active):
            object.__setattr__(self, "Phi", np.asarray(inputs.real_array("Phi", self.Phi, "Recorded"), np.float64))
            if not np.isfinite(self.Phi).all():
                t, i = np.argwhere(~np.isfinite(self.Phi))[0]
                raise inputs.refusal("Phi", "Recorded", "be finite", f"{self.Phi[t, i]} in row {t}, feature {i}")
        if len(self.Phi.shape) != 2 or self.steps < 1:
            raise inputs.refusal("Phi", "Recorded", "have T+1 rows of features", f"shape {self.Phi.shape}")
        if self.n is None:
            object.__setattr__(self, "n", self.Phi.top + 1 if isinstance(self.Phi, Active) else self.Phi.shape[1])
        for name in ("R", "gamma_next", "rho", "I", "lambda_", "pi", "mu"):
            value = getattr(self, name)
            if value is None:
                continue
            array = np.asarray(inputs.real_array(name, value, "Recorded"), np.float64)
            if array.shape not in ((), (self.steps,)):
                raise inputs.refusal(name, "Recorded", f"be a number or of shape ({self.steps},)", f"{array.shape}")
            object.__setattr__(self, name, array)
        others = {name: np.asarray(part, np.float64) for name, part in self.others.items()}
        for name, part in others.items():
            if part.shape != (self.steps,) or not np.isfinite(part).all():
                raise inputs.refusal(
                    f"others[{name!r}]", "Recorded", f"be {self.steps} finite numbers", f"{part.shape}"
                )
        object.__setattr__(self, "others", others)
        cuts = sorted({int(row) for row in self.cuts})
        if any(not 0 < row <= self.steps for row in cuts):
            raise inputs.refusal("cuts", "Recorded", f"be rows from 1 to {self.steps}", repr(self.cuts))
        object.__setattr__(self, "cuts", tuple(cuts))
        if self.outcome is not None:
            G, known = np.asarray(self.outcome[0], np.float64), np.asarray(self.outcome[1], bool)
            if not G.shape == known.shape == (self.steps,) or not np.isfinite(G[known]).all():
                raise inputs.refusal("outcome", "Recorded", "be (G, known), two of (T,)", f"{G.shape}, {known.shape}")
            object.__setattr__(self, "outcome", (G, known))
        elif not np.isin(self.rho, (0.0, 1.0)).all():
            wanted = "be given off-policy, where returns of the log are not those of the target policy"
            raise inputs.refusal("outcome", "Recorded", wanted, "none")
        if not self.truth[1].any():
            raise inputs.refusal("R", "Recorded", "be long enough that some return is known", f"{self.steps} steps")

    def __repr__(self) -> str:
        return f"Recorded({self.name!r}, T={self.steps}, n={self.n})"

    @classmethod
    def table(
        cls, source: Any, predict: str, horizon: float | str, *, time: str | bool | None = None,
        delimiter: str | None = None,
    ) -> Recorded:  # fmt: skip
        """One signal of a table at one horizon, with the features that ``emphatic nexting`` would make.

        Readings are deviations from their mean in the first rows, in the signal's own unit. Where one is missing ρ is
        0, so that nothing is learned from it (w of a gradient rule may still move θ), and a gap in time is a cut.
        """
        chosen = NextingSettings(predict=(predict,), horizons=(horizon,), time=time, delimiter=delimiter)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UndiscountedWarning)
            job = Nexting(source, chosen, Path()).open().begin()
        x, missing, gap = job.readings()
        gamma, base = float(job.horde.gamma[0]), float(job.horde.base[0])
        parts = list(job.phi())
        Phi = Active(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("indices", "values")))
        G, known = known_return(x[:, 0], missing[:, 0], gap, gamma)
        R = np.where(missing[1:, 0], 0.0, (1.0 - gamma) * (x[1:, 0] - base))
        lambda_ = job.settings.gvfs()[0].default_lambda(gamma)
        return cls(
            Phi, R, gamma, rho=np.where(missing[1:, 0], 0.0, 1.0), lambda_=lambda_,
            cuts=(np.flatnonzero(gap[1:]) + 1).tolist(), outcome=(np.where(known, G - base, 0.0)[:-1], known[:-1]),
            others={"persistence": x[:-1, 0] - base}, n=job.horde.features.n,
            name=f"{os.path.basename(job.table.name)}: {predict} at {horizon}",
        )  # fmt: skip

    @property
    def steps(self) -> int:
        """T."""
        return int(self.Phi.shape[0]) - 1

    @functools.cached_property
    def truth(self) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """The return of each step, and where it is known."""
        if self.outcome is not None:
            return self.outcome
        G, known = np.zeros(self.steps), np.zeros(self.steps, bool)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UndiscountedWarning)
            for begin, end in self._sequences():
                R, gamma = (np.broadcast_to(value, self.steps)[begin:end] for value in (self.R, self.gamma_next))
                G[begin:end], known[begin:end] = returns(R, gamma)
        return G, known

    def _sequences(self) -> Iterator[tuple[int, int]]:
        """The steps of each: the one into a cut belongs to none."""
        for begin, end in pairwise((0, *self.cuts, self.steps + 1)):
            if end - 1 > begin:
                yield begin, end - 1

    def check(self, settings: GridSettings) -> None:
        """ValueError where these settings cannot learn from it."""
        self._given(settings)

    def identity(self) -> str:
        """A hash that identifies this log."""
        digest = hashlib.sha256(repr((self.name, self.cuts)).encode())
        features = (self.Phi.indices, self.Phi.values) if isinstance(self.Phi, Active) else (self.Phi,)
        given = (getattr(self, name) for name in ("R", "gamma_next", "rho", "I", "lambda_", "pi", "mu"))
        for part in (*features, *given, *self.truth):
            array = np.ascontiguousarray(np.nan if part is None else part)
            digest.update(repr((array.dtype.str, array.shape)).encode() + array.tobytes())
        return digest.hexdigest()

    def points(self, count: int, every: int, early: bool = False) -> NDArray[np.int64]:
        """Where the pieces of the log end, all of one length."""
        return np.unique(np.round(np.linspace(0, self.steps, min(count, self.steps) + 1)).astype(np.int64))[1:]

    def baselines(self, runs: int) -> dict[str, float]:
        """Errors to compare with: of θ = 0, of the mean return, and of ``others``."""
        G, known = self.truth
        made = {"θ = 0": np.zeros_like(G), "mean return": np.full_like(G, G[known].mean())} | dict(self.others)
        return {name: float(np.sqrt(np.mean((part - G)[known] ** 2))) for name, part in made.items()}

    def score(self, run: int, settings: GridSettings, every: int, points: NDArray[np.int64]) -> Scores:
        """Learn all settings side by side."""
        K = len(settings)
        given = self._given(settings)
        learner = settings.learner(self.n or 1)
        edges = np.unique([0, *points, self.steps])
        sums, counts = np.zeros((len(edges) - 1, K)), np.zeros(len(edges) - 1)
        G, known = self.truth
        tenth = np.flatnonzero(known)[-max(1, int(known.sum()) // 10)]
        last, size = np.zeros(K), max(1, _PREDICTIONS // K)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore", UndiscountedWarning)
            for start, stop in self._sequences():
                inner = edges[(edges > start) & (edges < stop)].tolist()
                for piece_begin, piece_end in pairwise((start, *inner, stop)):
                    for begin in range(piece_begin, piece_end, size):
                        some = slice(begin, min(begin + size, piece_end))
                        block: dict[str, Any] = {
                            name: value[some, None] if value.ndim == 1 else value for name, value in given.items()
                        }
                        made = learner.run(self.Phi[some.start : some.stop + 1], **block, on_divergence="freeze")
                        at = np.searchsorted(edges, begin, "right") - 1
                        square = np.square(made[known[some]] - G[some][known[some]][:, None])
                        sums[at] += square.sum(axis=0)
                        counts[at] += len(square)
                        late = np.arange(some.start, some.stop)[known[some]] >= tenth
                        last += square[late].sum(axis=0)
                        sums[at, learner.frozen] = np.inf
                learner.cut()
            curve = np.sqrt(sums / counts[:, None])[: len(points)]
            mean, final = np.sqrt(sums.sum(axis=0) / counts.sum()), np.sqrt(last / known[tenth:].sum())
        return Scores.of(mean, final, curve, learner.frozen, self.baselines(1)["θ = 0"])

    def _given(self, settings: GridSettings) -> dict[str, NDArray[np.float64]]:
        """The arguments of ``run`` besides the features: (T,), (1, K) or a number."""
        rule, gamma = settings.rule, np.asarray(self.gamma_next)
        if not rule.interest and self.I is not None and np.any(self.I != 1.0):
            raise inputs.refusal("rule", "sweep", "use interest, which the log has", repr(rule.name))
        if rule.action_values and np.any(self.rho != 1.0):
            wanted = f"learn state values; {rule.class_name} learns those of the target policy only on-policy"
            raise inputs.refusal("rule", "sweep", wanted, repr(rule.name))
        given = {"R": self.R, "gamma_next": self.gamma_next, "rho": self.rho, "lambda_": self.lambda_}
        if rule.interest:
            steady = bool(rule.emphasis) and gamma.ndim == 0 and gamma < 1.0
            given["I"] = self.I if self.I is not None else 1.0 - gamma if steady else 1.0
        for name in ("pi", "mu"):
            if name in rule.extra:
                value = getattr(self, name)
                if value is None:
                    raise inputs.refusal(name, "Recorded", f"be given for the rule {rule.name!r}", "none")
                given[name] = value
        if "lambda_next" in rule.extra and "lambda" not in settings.values and np.ndim(self.lambda_):
            given["lambda_next"] = np.append(self.lambda_[1:], self.lambda_[-1])
        if "zeta" in settings.values:
            raise inputs.refusal("zeta", "sweep", "be 'xi' on a log, whose policies are not known", "zeta")
        given |= {name: column[None] for name, column in settings.of_steps.items()}
        return {name: np.asarray(value, np.float64) for name, value in given.items()}
