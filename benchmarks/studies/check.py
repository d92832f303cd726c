"""Sweeps checked: a few settings of each rule, by the reference on the same stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

import emphatic
from benchmarks.measure import Gate, gate
from emphatic.problems import MDP, Stream
from emphatic.studies import Sweep
from emphatic.studies.sources import Simulated

Array = NDArray[np.float64]

#: Steps that are checked: by then some settings of every rule of the collision study have diverged.
CHECKED = 5_000


def alike(
    name: str, got: NDArray[Any], want: NDArray[Any], tolerance: float = 1e-10, size: NDArray[Any] | None = None
) -> Gate:
    """Every error relative to its own ``size``: those of learners that diverge are of all sizes, and infinite."""
    with np.errstate(all="ignore"):
        off = np.where(got == want, 0.0, (got - want) / (want if size is None else size))
    return gate(name, 1.0 + off, np.ones_like(off), tolerance)


def largest(curves: Array) -> Array:
    """The largest error so far, (T, K): what rounding has done by then is of that size, wherever the curve goes."""
    return np.asarray(np.maximum.accumulate(curves))


def sample(K: int) -> list[int]:
    """Settings from the smallest α to the largest; of the largest of the study's 19, with which most diverge, three."""
    return sorted({0, K // 3, K // 2, 2 * K // 3, K - 1 - K // 38, K - max(1, K // 19), K - 1})


def by_reference(
    rule: str, mdp: MDP, stream: Stream, values: dict[str, Any], every: int = 1
) -> tuple[emphatic.Learner, Array]:
    """The learners of these settings after the stream, and their errors along it."""
    K = len(values["alpha"])
    learner = emphatic.Learner(rule, mdp.n, K, engine="reference")
    keywords = {"predictions": False, "probe": mdp.probe, "probe_every": every, "on_divergence": "freeze"}
    if not stream.active.all():  # nothing is learned where the target policy is undefined
        values = values | {"alpha": values["alpha"] * stream.active[:, None]}
    with np.errstate(all="ignore"):
        _, error = learner.run(**(stream.inputs(rule) | values | keywords))
    return learner, error


def against_reference(name: str, found: Sweep) -> Iterator[Gate]:
    """Of each rule a sample of settings in the first run: mean, last error and curve, means over the tasks."""
    source, rules = found.plan.source, np.array(found.rules)
    assert isinstance(source, Simulated)
    for rule in dict.fromkeys(found.rules):
        own = np.flatnonzero(rules == rule)
        ks = own[sample(len(own))]
        values: dict[str, Any] = {name: column[ks] for name, column in found.parameters.items()}
        values = {name: column for name, column in values.items() if not np.isnan(column).any()}
        each = [_task_by_reference(rule, mdp, dict(values), found) for mdp in source.tasks(0)]
        mean, final, curve = (np.mean(parts, axis=0) for parts in zip(*each, strict=True))
        yield alike(f"{name}, {rule}: mean", found.mean[ks, 0], mean)
        yield alike(f"{name}, {rule}: final", found.final[ks, 0], final)
        yield alike(f"{name}, {rule}: curve, in float32", found.curve[ks, 0], curve.T.astype(np.float32), 1e-6)


def _task_by_reference(rule: str, mdp: MDP, values: dict[str, Any], found: Sweep) -> tuple[Array, Array, Array]:
    """Mean and last error, (K,), and the curve (P, K) in one task."""
    source = found.plan.source
    assert isinstance(source, Simulated)
    if "lambda" in values:
        values["lambda_"] = values.pop("lambda")
    if "zeta" in values:
        values["xi"] = np.array([mdp.xi(zeta) for zeta in values.pop("zeta")])
    stream = mdp.simulate(source.steps, seed=(source.seed, 0))
    learner, error = by_reference(rule, mdp, stream, values, found.plan.every)
    with np.errstate(all="ignore"):
        # an error whose terms overflow, ∞ − ∞, is infinite
        error, last = (np.where(np.isnan(x), np.inf, x) for x in (error, mdp.rmsve(learner.theta)))
        mean, final = (np.where(learner.frozen, np.inf, x) for x in (error.mean(axis=0), last))
        curve = error[found.points // found.plan.every]
        curve[(found.points[:, None] > learner.steps_taken) & learner.frozen] = np.inf
        return mean, final, curve.astype(np.float32)
