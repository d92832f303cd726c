"""The contract that every rule keeps on every engine: asked by ``test_contract``, and of slips by ``test_mutants``.

``violations`` runs a learner over streams that bite and compares it with the equations; a right pair has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from emphatic import Learner
from tests.streams import TOLERANCE, Stream, make, relative_error

Maker = Callable[[int, int | None], Learner]


def streams(rule: str, K: int | None, seed: int = 0, T: int = 101) -> Iterator[tuple[str, Stream]]:
    """Dense, with a separate φ', of many features, and sparse: binary and signed."""
    beta = rule.endswith("_beta")
    yield "dense", make(seed, T, 6, K, beta=beta)
    yield "separate", make(seed + 1, T, 5, K, beta=beta, separate=True)
    yield "binary", make(seed + 2, T, 23, K, beta=beta, active=4)
    yield "wide", make(seed + 4, 31, 300, K, beta=beta)
    yield "signed", make(seed + 3, T, 11, K, beta=beta, active=3, binary=False, separate=True)


def violations(rule: str, learner: Maker, K: int | None, dtype: str, *, by: str = "run", T: int = 101) -> list[str]:
    """Where learners made by ``learner(n, K)`` differ from the equations of ``rule``, if anywhere."""
    found = []
    for kind, stream in streams(rule, K, T=T):
        rng = np.random.default_rng(7)
        theta_0 = rng.normal(size=(stream.n,) if K is None else (K, stream.n)).astype(dtype)
        made = learner(stream.n, K)
        made.theta = theta_0
        predictions = stream.run(made) if by == "run" else stream.learn(made)
        expected = stream.expected(rule, theta_0)
        compared: dict[str, tuple[Any, Any]] = {
            "theta": (made.theta, expected.theta),
            "e": (made.e, expected.e),
            "predictions": (predictions, expected.predictions),
            "gamma": (made.gamma, stream.gamma_next[-1]),
        }
        for name, (got, wanted) in compared.items():
            error = relative_error(got, wanted)
            if not error <= TOLERANCE[dtype]:
                found.append(f"{kind}, by {by}: {name} is off by {error:.1e}")
    return found
