"""A learner from the file that ``Learner.save`` wrote."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic import checkpoint, engines, inputs, rules
from emphatic.errors import CheckpointError
from emphatic.learner import Learner
from emphatic.rules import Rule

__all__ = ["load"]


def load(path: str | os.PathLike[str], *, engine: str | None = None, rule: Rule | None = None) -> Learner:
    """The learner that ``Learner.save`` wrote; goes on with the same bits on the same engine.

    ``engine`` names another engine to go on with. A learner of a ``Rule`` of your own needs that ``rule`` again.
    """
    if engine is not None and (not isinstance(engine, str) or engine not in ("auto", *engines.available())):
        raise inputs.refusal("engine", "load", f"be 'auto' or one of {', '.join(engines.available())}", repr(engine))
    if rule is not None and not isinstance(rule, Rule):
        raise inputs.refusal("rule", "load", "be a Rule", repr(rule))
    header, arrays = checkpoint.read(path)
    try:
        return _restored(header, arrays, engine, rule)
    except CheckpointError:
        raise
    except (ValueError, TypeError, KeyError, OverflowError, MemoryError) as error:
        raise CheckpointError(f"{os.fsdecode(path)!r} is not a sound checkpoint: {error}") from error


def _restored(header: dict[str, Any], arrays: dict[str, NDArray[Any]], engine: str | None, own: Rule | None) -> Learner:
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
        if array.shape != shape or array.dtype != dtype:
            raise ValueError(f"its {name!r} is {array.dtype} of shape {array.shape}, where {dtype} {shape} is due")
        if not np.isfinite(array).all():
            raise ValueError(f"its {name!r} is not finite")
    learner = Learner(rule, n, K, dtype=header["dtype"], engine=engine or header["engine"], threads=header["threads"])
    inner = learner._engine
    for r, name in enumerate(rule.vectors):
        inner.put(r, arrays[name].reshape(inner.K, n))
    for i, name in enumerate(rule.memory):
        inner.scalars[:, i] = arrays[name]
    inner.scalars[:, -1] = steps
    if "frozen" in arrays:
        if arrays["frozen"].shape != (inner.K,) or arrays["frozen"].dtype != np.uint8 or arrays["frozen"].max() > 1:
            raise ValueError("its list of frozen learners is damaged")
        learner._frozen[:] = arrays["frozen"]
    prefix = f"{learner.engine}."
    inner.resume({name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)})
    with np.errstate(all="ignore"):
        for r, name in enumerate(rule.vectors):
            if not np.array_equal(inner.vector(r), arrays[name].reshape(inner.K, n)):
                raise ValueError(f"what the {learner.engine} engine needs to go on does not give its {name!r}")
    return learner
