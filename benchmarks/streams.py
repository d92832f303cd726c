"""The data of one learner, made from a seed so that gate and timing see the same numbers; the reference on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from emphatic.reference import TrueOnlineETD

RULE = "true_online_etd"
#: What float32 and float64 may differ from the reference, relative.
TOLERANCE = {"float64": 1e-10, "float32": 1e-4}
NAMES = ("alpha", "I", "lambda_", "rho", "R", "gamma_next")


def by_reference(calls: Sequence[tuple[Any, ...]], n: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """θ after the given calls of ``learn``, and the predictions θ_t·φ_t, by the reference in float64."""
    reference, predictions = TrueOnlineETD(n), []
    for alpha, I, lambda_, phi, rho, R, phi_next, gamma_next in calls:
        phi, phi_next = np.asarray(phi, np.float64), np.asarray(phi_next, np.float64)
        predictions.append(reference.predict(phi))
        reference.learn(alpha, I, lambda_, phi, rho, R, phi_next, gamma_next)
    return reference.theta, np.array(predictions)


@dataclass(frozen=True)
class Dense:
    """T steps with n features, every parameter different at every step, with the zeros that cut traces."""

    n: int
    T: int
    dtype: DTypeLike = np.float64

    @cached_property
    def Phi(self) -> NDArray[Any]:
        Phi = np.random.default_rng(1).standard_normal((self.T + 1, self.n))
        Phi /= np.sqrt(self.n)  # φ·φ ≈ 1
        return Phi.astype(self.dtype, copy=False)

    @cached_property
    def parameters(self) -> dict[str, Any]:
        rng, T = np.random.default_rng(2), self.T
        parameters = {
            "alpha": rng.uniform(0.005, 0.015, T),
            "I": rng.uniform(0, 2, T),
            "lambda_": rng.uniform(0, 1, T),
            "rho": rng.uniform(0, 1.8, T),
            "R": rng.standard_normal(T),
            "gamma_next": rng.uniform(0.8, 1, T),
        }
        for name, every in (("I", 7), ("rho", 31), ("gamma_next", 53), ("lambda_", 11)):
            parameters[name][every - 1 :: every] = 0.0
        return parameters

    @cached_property
    def steps(self) -> list[tuple[float, ...]]:
        """(α, I, λ, ρ, R, γ') of each step as Python floats."""
        return list(zip(*(self.parameters[name].tolist() for name in NAMES), strict=True))

    @cached_property
    def calls(self) -> list[tuple[Any, ...]]:
        """The arguments of ``learn`` at each step."""
        rows = list(self.Phi)
        return [
            (alpha, I, lambda_, rows[t], rho, R, rows[t + 1], gamma_next)
            for t, (alpha, I, lambda_, rho, R, gamma_next) in enumerate(self.steps)
        ]


GAMMA = 0.999
BLOCK = 1_024


@dataclass(frozen=True)
class Sparse:
    """T steps with ``active`` of n binary features at random places, distinct within a step; ρ = I = 1.

    γ = .999 and λ makes γλ. Random places are the worst case for caches: a tile coder's indices mostly stay.
    The first steps do not depend on T.
    """

    n: int
    T: int
    active: int
    gamma_lambda: float

    @property
    def lambda_(self) -> float:
        return self.gamma_lambda / GAMMA

    @property
    def alpha(self) -> float:
        """A hundredth of 1 / (M φ·φ), with M ≈ (1 − γλ) / (1 − γ) in the long run."""
        M = (1 - self.gamma_lambda) / (1 - GAMMA)
        return 0.01 / (M * self.active)

    @cached_property
    def indices(self) -> NDArray[np.int64]:
        """Drawn in blocks of steps, each block anew where an index is repeated within a step."""
        blocks = [self._block(seed) for seed in range(self.T // BLOCK + 1)]
        return np.concatenate(blocks)[: self.T + 1]

    def _block(self, seed: int) -> NDArray[np.int64]:
        rng = np.random.default_rng([3, seed])
        block = rng.integers(0, self.n, (BLOCK, self.active))
        while True:
            in_order = np.sort(block, axis=1)
            (repeated,) = np.nonzero((in_order[:, 1:] == in_order[:, :-1]).any(axis=1))
            if not len(repeated):
                return block
            block[repeated] = rng.integers(0, self.n, (len(repeated), self.active))

    @cached_property
    def R(self) -> NDArray[np.float64]:
        return np.random.default_rng(4).standard_normal(self.T)

    @property
    def rewards(self) -> list[float]:
        """R as Python floats."""
        return [float(reward) for reward in self.R]

    def compact(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The columns that are ever active, and φ_0…φ_T as dense rows over those columns alone."""
        columns, place = np.unique(self.indices, return_inverse=True)
        rows = np.zeros((self.T + 1, len(columns)))
        np.put_along_axis(rows, place.reshape(self.T + 1, self.active), 1.0, axis=1)
        return columns, rows
