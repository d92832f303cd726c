"""A run that is watched: learners that would diverge stand still, and errors are written down along the way.

This is the way for any engine. What stands still is taken out and the others go on; at each step to be probed the run
is interrupted. The dense engine does both within its kernels.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from emphatic.engines.probe import Probe
from emphatic.engines.rows import block

if TYPE_CHECKING:
    from emphatic.engines.base import Arrays, Engine, Features

__all__ = ["Watch", "run", "strides"]


@dataclass(frozen=True, eq=False)
class Watch:
    """What is watched in a run of K learners."""

    #: Who stands still, (K,); with ``freeze`` those that would diverge join them.
    frozen: NDArray[np.bool_]
    freeze: bool = False
    #: Before steps ``first``, ``first`` + ``every``, … the learners' errors go into the next row of ``errors``, (…, K).
    probe: Probe | None = None
    errors: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 0)))
    every: int = 1
    first: int = 0


def run(
    engine: Engine, phi: Features, phi_next: Features, top: float, parameters: Arrays, out: NDArray[Any], watch: Watch
) -> int:
    """``Engine.run_watched`` in pieces, each of which is ``Engine.run`` for the learners that are not frozen."""
    if watch.probe is None:
        return _freezing(engine, phi, phi_next, top, parameters, out, watch.frozen, freeze=watch.freeze)
    T, plain = len(phi), replace(watch, probe=None)
    probed = range(watch.first, T, watch.every)
    for begin, end in itertools.pairwise((0, *probed, T)):
        if begin == end:
            continue
        if begin in probed:
            watch.errors[(begin - watch.first) // watch.every] = watch.probe(engine.vector(0))
        piece = (block(phi, begin, end), block(phi_next, begin, end), top, tuple(p[begin:end] for p in parameters))
        status = engine.run_watched(*piece, out[begin:end], plain)
        if status != -1:
            return begin * engine.K + status if status >= 0 else status
    return -1


def _freezing(
    whole: Engine, phi: Features, phi_next: Features, top: float, parameters: Arrays, out: NDArray[Any],
    frozen: NDArray[np.bool_], *, freeze: bool,
) -> int:  # fmt: skip
    T, t, status = len(phi), 0, -1
    if not frozen.any():
        status, _ = whole.run(phi, phi_next, top, parameters, out)
        if status < 0 or not freeze:
            return status
        t, k = divmod(status, whole.K)
        frozen[k], status = True, -1
    alive = np.flatnonzero(~frozen)
    if len(out):
        with np.errstate(all="ignore"):  # the last weights are finite, what they predict need not be
            out[t:, frozen] = whole.select(np.flatnonzero(frozen)).predict(block(phi, t, T))
    if not len(alive):
        return status
    part = whole.select(alive)
    while t < T and len(alive):
        rest = tuple(_columns(p[t:], alive) for p in parameters)
        made = np.empty((T - t if len(out) else 0, len(alive)), whole.dtype)
        status, _ = part.run(block(phi, t, T), block(phi_next, t, T), top, rest, made)
        if status < -1:
            break
        taken, k = (T - t, 0) if status == -1 else divmod(status, len(alive))
        if len(out):
            out[t : t + taken, alive] = made[:taken]
        t += taken
        if status == -1:
            break
        if not freeze:
            status = t * whole.K + int(alive[k])
            break
        stopped = part.select(np.array([k]))
        if len(out):
            with np.errstate(all="ignore"):
                out[t:, alive[k]] = stopped.predict(block(phi, t, T))[:, 0]
        whole.place(alive[k : k + 1], stopped)
        frozen[alive[k]] = True
        others = np.delete(np.arange(len(alive)), k)
        part, alive, status = part.select(others), alive[others], -1
    whole.place(alive, part)
    return status


def _columns(p: NDArray[np.float64], ks: NDArray[np.int64]) -> NDArray[np.float64]:
    """The columns of these learners, taking no memory where the parameter is constant."""
    t, k = strides(p)
    if k == 0:
        return p[:, : len(ks)]
    chosen = (p[:1] if t == 0 else p)[:, ks.tolist()]
    if t != 0:
        return chosen
    return np.broadcast_to(chosen, (len(p), len(ks))) if isinstance(p, np.ndarray) else chosen.expand(len(p), len(ks))


def strides(array: Any) -> tuple[int, ...]:
    """Of an array or a tensor: 0 along an axis that takes no memory."""
    found: tuple[int, ...] = array.strides if isinstance(array, np.ndarray) else array.stride()
    return found
