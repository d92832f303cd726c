"""The contract that every rule keeps on every engine: asked by ``test_contract``, and of slips by ``test_mutants``.

``violations`` runs a learner over streams that bite and compares it with the equations; a right pair has none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from emphatic import Learner
from emphatic.engines import chunked
from tests.support.plain import WIDE
from tests.support.streams import TOLERANCE, Expected, Stream, make, relative_error

Maker = Callable[[int, int | None], Learner]

#: Rules of every structure: two vectors; w that scales itself; two weights and three traces, one feeding neither.
STRUCTURES = ("true_online_etd", "tdrc", "true_online_gtd")
#: The rule whose kernels are compiled for every engine and every entry. As plain Python, all rules are tested in both
#: dtypes.
COMPILED = {"float64": STRUCTURES[:1], "float32": STRUCTURES[:1]}
#: Learners of the other structures whose kernels are compiled in every run, in double precision.
ALSO_COMPILED = {("tdrc", None), ("true_online_gtd", None)}
#: Rules of td's structure, whose kernels differ from td's by scalars alone: compiled only in the long tests.
COMPILED_LATE = ("differential_td", "differential_etd", "per_etd", "clipped_etd", "emphatic_q")
#: Steps: more than a chunk, and odd.
T = chunked.STEPS // 2 * 2 + 15
#: Learners with parameters of their own: an odd number, so that neighbours in any block of lanes differ.
DIFFERENT = 7
#: What a rule may remember of two of its vectors: their inner product.
PRODUCTS = {
    "ew": ("e", "w"),
    "ee": ("e", "e"),
    "zw": ("z", "w"),
    "yw": ("y", "w"),
    "zz": ("z", "z"),
    "zy": ("z", "y"),
    "w_hat": ("w", "e_hat"),
    "x_hat": ("x", "e_hat"),
}


@functools.lru_cache(4)
def streams(rule: str, K: int | None, T: int = T, seed: int = 0) -> list[tuple[str, Stream, Expected, Any]]:
    """Dense, with a separate φ', and sparse: binary and signed. With each the weights to start from, and the outcome.

    Few features are 6 throughout: for many learners of so few there is a kernel for each n. Of many learners there are
    only ``DIFFERENT``, which come again and again.

    The start is exact in single precision, so that one outcome holds for both.
    """
    different = K if K is None else min(K, DIFFERENT)
    of: dict[str, Any] = {"K": different, "T": T, "rule": rule}
    made = {
        "dense": make(seed, n=6, **of),
        "separate": make(seed + 1, n=6, separate=True, given="eta", **of),
        "binary": make(seed + 2, n=23, active=4, given="", **of),
        "wide": make(seed + 4, n=WIDE if T < chunked.STEPS else 300, **(of | {"T": min(T, 31)})),
        "signed": make(seed + 3, n=19, active=3, binary=False, separate=True, **of),
    }
    rng = np.random.default_rng(7)
    found = []
    for kind, stream in made.items():
        theta_0 = rng.normal(size=(stream.n,) if different is None else (different, stream.n)).astype(np.float32)
        expected = stream.expected(rule, theta_0)
        if K is not None and K > DIFFERENT:
            which = np.arange(K) % DIFFERENT
            stream, expected, theta_0 = stream.of_learners(which), expected[which], theta_0[which]
        found.append((kind, stream, expected, theta_0))
    return found


def violations(rule: str, learner: Maker, K: int | None, dtype: str, *, by: str = "run", T: int = T) -> list[str]:
    """Where learners made by ``learner(n, K)`` differ from the equations of ``rule``, if anywhere."""
    found = []
    for kind, stream, expected, theta_0 in streams(rule, K, T):
        made = learner(stream.n, K)
        made.theta = theta_0
        predictions = stream.run(made) if by == "run" else stream.learn(made)
        compared: dict[str, tuple[Any, Any]] = {
            name: (getattr(made, name), expected.vectors[name]) for name in made.rule.vectors
        }
        compared["predictions"] = (predictions, expected.predictions)
        if "gamma" in made.rule.memory:
            compared["gamma"] = (made.gamma, stream.gamma_next[-1])
        for name in set(made.rule.memory) & set(PRODUCTS):
            one, other = (expected.vectors[vector] for vector in PRODUCTS[name])
            compared[name] = (getattr(made, name), np.sum(one * other, axis=-1))
        for name, (got, wanted) in compared.items():
            error = relative_error(got, wanted)
            if not error <= TOLERANCE[dtype]:
                found.append(f"{kind}, by {by}: {name} is off by {error:.1e}")
    return found
