"""Learners that would diverge stand still, and the others go on without them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.engines.base import UNFIT, Arrays, Engine, Features
from emphatic.engines.rows import block
from emphatic.inputs import strides

__all__ = ["run"]


def run(
    whole: Engine, frozen: NDArray[np.bool_], phi: Features, phi_next: Features, top: float, parameters: Arrays,
    out: NDArray[Any], *, freeze: bool,
) -> int:  # fmt: skip
    """``Engine.run`` for the learners that are not frozen; with ``freeze`` those that would diverge join them."""
    T, t, status = len(phi), 0, -1
    if not frozen.any():
        status, _ = whole.run(phi, phi_next, top, parameters, out)
        if status in (-1, UNFIT) or not freeze:
            return status
        t, k = divmod(status, whole.K)
        frozen[k], status = True, -1
    alive = np.flatnonzero(~frozen)
    part = whole.select(alive)
    if len(out):
        with np.errstate(all="ignore"):  # the last weights are finite, what they predict need not be
            out[t:, frozen] = whole.select(np.flatnonzero(frozen)).predict(block(phi, t, T))
    while t < T and len(alive):
        rest = tuple(_columns(p[t:], alive) for p in parameters)
        made = np.empty((T - t if len(out) else 0, len(alive)), whole.dtype)
        status, _ = part.run(block(phi, t, T), block(phi_next, t, T), top, rest, made)
        if status == UNFIT:
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
