"""Hordes checked: learners here and there against the reference, all of them against NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

import emphatic
from benchmarks.cases import RULE, TOLERANCE, by_reference
from benchmarks.hordes.streams import Array, Horde
from benchmarks.measure import Gate, gate

#: A way to learn a stream: θ (K, n) and the predictions (T, K), or None where none are made.
Learn = Callable[[Horde], tuple[Array, Array | None]]


def sample(K: int) -> list[int]:
    """Learners at the ends, in the middle and where blocks of 64 and 256 meet."""
    return sorted({k for k in (0, 1, 63, 64, K // 2, 255, 256, K - 1) if 0 <= k < K})


def against_reference(name: str, stream: Horde, learn: Learn) -> Iterator[Gate]:
    """A sample of learners, each by the reference on its own."""
    theta, predictions = learn(stream)
    ks = sample(stream.K)
    wanted = [by_reference(stream.of_learner(k), stream.n) for k in ks]
    yield gate(name, theta[ks], np.array([weights for weights, _ in wanted]), TOLERANCE[stream.dtype])
    want = np.array([made for _, made in wanted]).T
    if predictions is not None and (want.any() or predictions.any()):  # all are 0 until some feature is active again
        yield gate(f"{name}, predictions", predictions[:, ks], want, TOLERANCE[stream.dtype])


def all_alike(name: str, stream: Horde, ours: Learn, other: Learn) -> Gate:
    """Every learner's weights as the alternative has them."""
    return gate(f"{name}, every learner", ours(stream)[0], other(stream)[0], TOLERANCE[stream.dtype])


def first(stream: Horde, T: int) -> Horde:
    """Its first steps, T at most."""
    return replace(stream, T=min(stream.T, T))


def new_learner(stream: Horde, engine: str = "auto") -> Any:
    return emphatic.Learner(RULE, stream.n, stream.K if stream.K > 1 else None, dtype=stream.dtype, engine=engine)


def by_run(engine: str) -> Learn:
    def learn(stream: Horde) -> tuple[Array, Array]:
        learner = new_learner(stream, engine)
        predictions = learner.run(stream.Phi, **stream.arguments)
        return learner.theta.reshape(stream.K, stream.n), predictions.reshape(stream.T, stream.K)

    return learn


def by_learn(engine: str) -> Learn:
    def learn(stream: Horde) -> tuple[Array, None]:
        learner = new_learner(stream, engine)
        for arguments in learn_calls(stream):
            learner.learn(*arguments)
        return learner.theta.reshape(stream.K, stream.n), None

    return learn


def learn_calls(stream: Horde) -> list[tuple[Any, ...]]:
    """The arguments of ``learn`` at each step."""
    features = stream.dense if stream.active is None else [emphatic.Active(row) for row in stream.indices]
    return stream.calls(list(features))
