"""The data of the hordes: made from a seed, its first steps the same whatever T is."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

import emphatic
from benchmarks.streams import NAMES

Array = NDArray[Any]
#: What differs between learners, and what between steps: see ``Horde.parameters``.
QUESTIONS, SWEEP, EVERYTHING = "a question a learner", "a sweep over α and λ", "everything (T, K)"


@dataclass(frozen=True)
class Horde:
    """T steps of K learners that share n features, φ·φ ≈ 1, or ``active`` binary ones, one of each of as many tilings.

    A tiling's active feature is drawn anew each step: the worst case for caches.
    """

    n: int
    K: int
    T: int
    dtype: str = "float64"
    varies: str = QUESTIONS
    active: int | None = None

    @property
    def what(self) -> str:
        φ = "" if self.active is None else f", {self.active:,} active"
        return f"n = {self.n:,}, K = {self.K:,}, T = {self.T:,}{φ}"

    @cached_property
    def indices(self) -> NDArray[np.int64]:
        assert self.active is not None
        width = self.n // self.active
        drawn = np.random.default_rng(11).integers(0, width, (self.T + 1, self.active))
        drawn += width * np.arange(self.active)
        return drawn

    @cached_property
    def dense(self) -> Array:
        """φ_0…φ_T as dense rows."""
        if self.active is None:
            Phi: Array = np.random.default_rng(12).standard_normal((self.T + 1, self.n)) / np.sqrt(self.n)
            return Phi.astype(self.dtype, copy=False)
        rows = np.zeros((self.T + 1, self.n), self.dtype)
        np.put_along_axis(rows, self.indices, 1.0, axis=1)
        return rows

    @cached_property
    def Phi(self) -> Any:
        """What ``run`` is given."""
        return self.dense if self.active is None else emphatic.Active(self.indices)

    @cached_property
    def parameters(self) -> dict[str, Array]:
        """Every parameter in the smallest of the shapes (1, 1), (T, 1), (1, K) and (T, K) that holds it."""
        T, K, square = self.T, self.K, self.active or 1
        shape = {
            QUESTIONS: dict.fromkeys(("alpha", "lambda_", "gamma_next"), (1, K)) | {"R": (T, K)},
            SWEEP: dict.fromkeys(("alpha", "lambda_"), (1, K)) | dict.fromkeys(("R", "gamma_next", "rho"), (T, 1)),
            EVERYTHING: dict.fromkeys(NAMES, (T, K)),
        }[self.varies]
        ranges = {"alpha": (0.002, 0.02), "I": (0, 2), "lambda_": (0, 1), "rho": (0, 1.8), "gamma_next": (0.5, 0.95)}
        drawn: dict[str, Array] = {name: np.ones((1, 1)) for name in NAMES}
        for name, size in shape.items():
            rng = np.random.default_rng([13, NAMES.index(name)])
            drawn[name] = rng.standard_normal(size) if name == "R" else rng.uniform(*ranges[name], size)
        if self.varies == SWEEP:
            side = math.ceil(math.sqrt(K))
            alpha, lambda_ = np.meshgrid(np.geomspace(*ranges["alpha"], side), np.linspace(*ranges["lambda_"], side))
            drawn["alpha"], drawn["lambda_"] = alpha.reshape(1, -1)[:, :K], lambda_.reshape(1, -1)[:, :K]
        drawn["alpha"] = drawn["alpha"] / square
        return drawn

    @property
    def arguments(self) -> dict[str, Any]:
        """The parameters as ``run`` is given them; one learner has no axis K."""
        return {
            name: float(p[0, 0]) if p.size == 1 else p[:, 0] if self.K == 1 else p
            for name, p in self.parameters.items()
        }

    def steps(self, dtype: str) -> list[tuple[Any, ...]]:
        """(α, I, λ, ρ, R, γ') of each step, each a float or an array (K,)."""
        own = (each(self.parameters[name], self.T, dtype) for name in NAMES)
        return list(zip(*own, strict=True))

    def calls(self, features: Any, dtype: str = "float64") -> list[tuple[Any, ...]]:
        """The arguments of ``learn`` at each step, with these φ_0…φ_T."""
        return _calls(features, self.steps(dtype))

    def of_learner(self, k: int) -> list[tuple[Any, ...]]:
        """The calls of learner k alone, with dense φ."""
        own = (p[:, k if p.shape[1] > 1 else 0] for p in (self.parameters[name] for name in NAMES))
        return _calls(self.dense, zip(*(np.broadcast_to(p, self.T).tolist() for p in own), strict=True))


def each(p: Array, steps: int, dtype: DTypeLike = np.float64) -> list[Any]:
    """A float or an array (K,) for each of so many steps."""
    rows = p[:, 0].tolist() if p.shape[1] == 1 else list(p.astype(dtype, copy=False))
    return rows if len(rows) == steps else rows * steps


def _calls(features: Any, steps: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [
        (alpha, I, lambda_, features[t], rho, R, features[t + 1], gamma_next)
        for t, (alpha, I, lambda_, rho, R, gamma_next) in enumerate(steps)
    ]
