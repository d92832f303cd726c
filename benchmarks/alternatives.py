"""What a user would use instead: the seed in plain NumPy, a call a step and as a loop, and ``swifttd`` from PyPI."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import cycle, islice
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from benchmarks.measure import Gate, Side, gate
from benchmarks.streams import GAMMA, Sparse
from emphatic.reference import TrueOnlineETD

try:
    import swifttd
except ImportError:  # optional: its rows then stay blank
    swifttd = None

has_swifttd = swifttd is not None
SWIFTTD_INSTALL = "not installed: PIP_CONSTRAINT=benchmarks/swifttd-build.txt pip install swifttd==0.2.2"

Vector = NDArray[Any]


class NumPySeed:
    """``learn`` of Sutton (2015), written for speed in plain NumPy: the default alternative.

    The fastest of the forms tried that keep the guide's lines: ``dot`` beats ``@`` on short vectors, scalars
    are Python floats, every vector operation writes in place.
    """

    def __init__(self, n: int, dtype: DTypeLike = np.float64) -> None:
        self.e, self.theta, self.Delta, self._spare = np.zeros((4, n), dtype)
        self.F = self.D = self.gamma = 0.0

    def learn(
        self,
        alpha: float,
        I: float,
        lambda_: float,
        phi: Vector,
        rho: float,
        R: float,
        phi_next: Vector,
        gamma_next: float,
    ) -> float:
        e, theta, Delta, spare, D = self.e, self.theta, self.Delta, self._spare, self.D
        delta = R + gamma_next * float(theta.dot(phi_next)) - float(theta.dot(phi))
        F = self.F + I
        b = rho * alpha * (lambda_ * I + (1 - lambda_) * F)
        c = rho * self.gamma * lambda_
        S = b * (1 - c * float(e.dot(phi)))
        np.multiply(e, c, e)  # e ← c e + S φ
        np.multiply(phi, S, spare)
        np.add(e, spare, e)
        np.multiply(e, delta + D, Delta)  # Δ ← δ e + D (e − b φ)
        np.multiply(phi, D * b, spare)
        np.subtract(Delta, spare, Delta)
        np.add(theta, Delta, theta)
        self.D = float(Delta.dot(phi_next))
        self.F = rho * gamma_next * F
        self.gamma = gamma_next
        return delta


def numpy_run(learner: NumPySeed, rows: list[Vector], steps: list[tuple[float, ...]]) -> NDArray[np.float64]:
    """The loop over a log: ``NumPySeed.learn`` inlined, predictions θ_t·φ_t kept. ``rows`` are φ_0…φ_T."""
    e, theta, Delta, spare = learner.e, learner.theta, learner.Delta, learner._spare
    F, D, gamma = learner.F, learner.D, learner.gamma
    multiply, add, subtract = np.multiply, np.add, np.subtract
    predictions = []
    phi = rows[0]
    for (alpha, I, lambda_, rho, R, gamma_next), phi_next in zip(steps, rows[1:], strict=True):
        v = float(theta.dot(phi))
        predictions.append(v)
        delta = R + gamma_next * float(theta.dot(phi_next)) - v
        F += I
        b = rho * alpha * (lambda_ * I + (1 - lambda_) * F)
        c = rho * gamma * lambda_
        S = b * (1 - c * float(e.dot(phi)))
        multiply(e, c, e)
        multiply(phi, S, spare)
        add(e, spare, e)
        multiply(e, delta + D, Delta)
        multiply(phi, D * b, spare)
        subtract(Delta, spare, Delta)
        add(theta, Delta, theta)
        D = float(Delta.dot(phi_next))
        F *= rho * gamma_next
        gamma, phi = gamma_next, phi_next
    learner.F, learner.D, learner.gamma = F, D, gamma
    return np.array(predictions)


EPSILON = 1e-5  # swifttd's own README: a trace below this fraction of its step size is dropped


def swifttd_learner(stream: Sparse, adapt: bool = True) -> Any:
    """swifttd's binary-features class, set as in its README; ``adapt=False`` leaves true online TD(λ)."""
    alpha, eta, decay, meta = (1e-3, 0.1, 0.999, 1e-3) if adapt else (ALPHA, 1e9, 1.0, 0.0)
    make = swifttd.SwiftTDBinaryFeatures
    return make(stream.n, stream.lambda_, alpha, GAMMA, EPSILON, eta, decay, meta, 1e-10)


ALPHA = 0.01


def swifttd_gate(name: str, stream: Sparse) -> Gate:
    """swifttd without its adaptation predicts what the seed does with M = 1, which is true online TD(λ)."""
    start = replace(stream, T=min(stream.T, 300))
    columns, rows = start.compact()
    lambda_, seed, other = start.lambda_, TrueOnlineETD(len(columns)), swifttd_learner(start, adapt=False)
    other.step(start.indices[0].tolist(), 0.0)
    got, want = [], []
    for t, R in enumerate(start.rewards):
        got.append(other.step(start.indices[t + 1].tolist(), R))
        want.append(seed.predict(rows[t + 1]))
        I = 1 - (1 - lambda_) * seed.F  # makes M = 1
        seed.learn(ALPHA, I, lambda_, rows[t], 1.0, R, rows[t + 1], GAMMA)
    return gate(name, np.array(got), np.array(want), 1e-4)  # it computes in float32


def swifttd_side(stream: Sparse, quick: bool) -> Side:
    """swifttd's step on the stream's first 20,000 steps over and over, its list of traces at full length."""
    start = replace(stream, T=min(stream.T, 20_000))
    inputs = cycle(zip(start.indices[1:].tolist(), start.rewards, strict=True))
    learner = swifttd_learner(stream)

    def call(steps: int) -> None:
        step = learner.step
        for indices, R in islice(inputs, steps):
            step(indices, R)

    life = math.ceil(math.log(EPSILON) / math.log(stream.gamma_lambda))  # steps until (γλ)^t < EPSILON
    call(20 if quick else life + life // 5)
    steps = 20 if quick else 2_000 if life < 100 else 100
    return Side(lambda: call(steps), steps)
