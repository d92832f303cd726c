"""A learner from the file that ``Learner.save`` wrote."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic import checkpoint, engines, inputs, rules
from emphatic.errors import CheckpointError
from emphatic.learner import Learner
from emphatic.rules import Rule
from emphatic.tensors import Stored, pieces

__all__ = ["load", "restored"]


def load(path: str | os.PathLike[str], *, engine: str | None = None, rule: Rule | None = None) -> Learner:
    """The learner that ``Learner.save`` wrote; goes on with the same bits on the same engine.

    ``engine`` names another engine to go on with. A learner of a ``Rule`` of your own needs that ``rule`` again.
    """
    if engine is not None and (not isinstance(engine, str) or engine not in ("auto", *engines.available())):
        raise inputs.refusal("engine", "load", f"be 'auto' or one of {', '.join(engines.available())}", repr(engine))
    if rule is not None and not isinstance(rule, Rule):
        raise inputs.refusal("rule", "load", "be a Rule", repr(rule))
    with checkpoint.opened(path) as (header, arrays):
        try:
            return restored(header, arrays, engine, rule)
        except (ValueError, TypeError, KeyError, OverflowError, MemoryError, OSError) as error:
            raise CheckpointError(f"{os.fsdecode(path)!r} is not a sound checkpoint: {error}") from error


def restored(
    header: dict[str, Any], arrays: dict[str, Stored], engine: str | None = None, own: Rule | None = None
) -> Learner:
    """The learner of an open checkpoint; ValueError, KeyError or TypeError if it is not sound."""
    rule = own if own is not None else rules.get(header["rule"])
    if (header["rule"], header["vectors"], header["memory"]) != (rule.name, list(rule.vectors), list(rule.memory)):
        raise ValueError(f"it holds rule {header['rule']!r} with other vectors or memory than rule {rule.name!r}")
    n, K, steps = inputs.whole("n", header["n"]), header["K"], header["steps"]
    lead = () if K is None else (inputs.whole("K", K),)
    if not (type(steps) is int and 0 <= steps < 1 << 53):
        raise ValueError(f"its count of steps is {steps!r}")
    if header["dtype"] not in ("float32", "float64") or not isinstance(header["engine"], str):
        raise ValueError(f"its dtype is {header['dtype']!r} and its engine {header['engine']!r}")
    # Every array is held against the header before anything of that size is made.
    for name, shape, dtype in (
        *((name, (*lead, n), header["dtype"]) for name in rule.vectors),
        *((name, lead, "float64") for name in rule.memory),
    ):
        array = arrays[name]
        if (array.dtype, array.shape) != (dtype, shape):
            raise ValueError(f"its {name!r} is {array.dtype} of shape {array.shape}, where {dtype} {shape} is due")
    memory = {name: arrays[name].array() for name in rule.memory}
    frozen = _frozen(arrays.get("frozen"), lead or (1,))
    learner = Learner(rule, n, K, dtype=header["dtype"], engine=engine or header["engine"], threads=header["threads"])
    inner = learner._engine
    with np.errstate(all="ignore"):
        for r, name in enumerate(rule.vectors):
            # Straight into the engine's own array, where it has one: ``put`` then finds it in its place.
            value = np.ascontiguousarray(inner.view(r))
            arrays[name].into(value)
            inner.put(r, value)
    for i, name in enumerate(rule.memory):
        inner.scalars[:, i] = memory[name]
    # The scalars are the memory and each vector's largest component.
    for name, scalar in zip(rule.memory + rule.vectors, inner.scalars.T, strict=False):
        if not np.isfinite(scalar).all():
            raise ValueError(f"its {name!r} is not finite")
    inner.scalars[:, -1] = steps
    learner._frozen[:] = frozen
    prefix = f"{learner.engine}."
    pending = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
    inner.resume({name: array.array() for name, array in pending.items()})
    with np.errstate(all="ignore"):
        for r, name in enumerate(rule.vectors):
            if pending and not _same(inner.blocks(r), arrays[name]):
                raise ValueError(f"what the {learner.engine} engine needs to go on does not give its {name!r}")
    return learner


def _frozen(stored: Stored | None, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Which learners stand still; none where the file does not say."""
    if stored is None:
        return np.zeros(shape, bool)
    if (stored.dtype, stored.shape) != ("uint8", shape):
        raise ValueError("its list of frozen learners is damaged")
    value = stored.array()
    if value.max() > 1:
        raise ValueError("its list of frozen learners is damaged")
    return value.astype(bool)


def _same(blocks: Iterable[NDArray[Any]], stored: Stored) -> bool:
    """Whether the blocks are the numbers in the file."""
    at = 0
    for block in blocks:
        for piece in pieces(block):
            there = np.empty(piece.shape, stored.dtype)
            stored.into(there, at)
            if not np.array_equal(piece, there):
                return False
            at += piece.size
    return True
