"""Restores engines from checkpoints: the contents are checked before anything of their size is allocated.

Also what a user saved with the learner: ``more`` entries of the header, and arrays.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic import engines, rules
from emphatic.common.names import show
from emphatic.engines.base import Engine
from emphatic.errors import CheckpointError
from emphatic.learning import checkpoint, inputs
from emphatic.learning.tensors import DTYPES, Stored, TensorPart, pieces
from emphatic.rules import AnyRule
from emphatic.stepsizes import kind_of

__all__ = [
    "check",
    "check_engine",
    "check_own_rule",
    "fill",
    "frozen",
    "lacking_engine",
    "open_checkpoint",
    "pack",
    "position",
    "unpack",
]

#: Counts are whole numbers in float64.
_MOST_STEPS = 1 << 53
#: Levels of nested lists and tables in what a user saves.
_DEEPEST = 100


@contextmanager
def open_checkpoint(path: str | os.PathLike[str]) -> Iterator[tuple[dict[str, Any], dict[str, Stored]]]:
    """``checkpoint.open_checkpoint``, with ``CheckpointError`` for any fault found while it is open."""
    with checkpoint.open_checkpoint(path) as (header, arrays):
        try:
            yield header, arrays
        except (ValueError, TypeError, KeyError, OverflowError, MemoryError, OSError) as error:
            raise CheckpointError(f"{os.fsdecode(path)!r} is not a sound checkpoint: {error}") from error


def check_engine(engine: Any) -> None:
    """Refuse what is not an engine's name, "auto" or None."""
    if engine is not None and not engines.known(engine) and (not isinstance(engine, str) or engine != "auto"):
        raise inputs.refusal("engine", "load", f"be 'auto' or one of {', '.join(engines.available())}", repr(engine))


def lacking_engine(engine: str | None, name: str, lacking: str) -> ValueError:
    """The error where the engine that was asked for, or else the file's, is not on this machine."""
    wanted = f"name an engine for this machine, such as 'auto': {name!r} needs {lacking}"
    return inputs.refusal("engine", "load", wanted, repr(engine) if engine else f"none, and the file's is {name!r},")


def check_own_rule(header: Mapping[str, Any]) -> None:
    """ValueError if the learner's rule is not the library's, whatever its name: a file does not hold it."""
    if isinstance(header["rule"], str) and (header["rule"] not in rules.names() or header.get("own_rule")):
        raise ValueError(
            f"it holds the rule {header['rule']!r}, which is not the library's: give that Rule again, as rule=…"
        )


def check(header: Mapping[str, Any], arrays: Mapping[str, Stored], own: AnyRule | None = None) -> AnyRule:
    """The rule of the learner, if header and arrays agree with it; ``own`` for a rule that the library does not have.

    ValueError, KeyError or TypeError if they do not.
    """
    if "least_squares" in header:
        raise ValueError("it holds a LeastSquares: open it with emphatic.load or LeastSquares.load_with")
    if own is None:
        check_own_rule(header)
    base = own.base if own is not None else rules.get(header["rule"])
    rule = base if header.get("stepsize") is None else _stepped(base, header["stepsize"])
    if (header["rule"], header["vectors"], header["memory"]) != (base.name, list(rule.vectors), list(rule.memory)):
        raise ValueError(f"it holds rule {header['rule']!r} with other vectors or memory than rule {rule.name!r}")
    n, lead = inputs.whole("n", header["n"]), _lead(header)
    if header["dtype"] not in ("float32", "float64") or not isinstance(header["engine"], str):
        raise ValueError(f"its dtype is {header['dtype']!r} and its engine {header['engine']!r}")
    for name, shape, dtype in (
        *((name, (*lead, n), header["dtype"]) for name in rule.vectors),
        *((name, lead, "float64") for name in rule.memory),
    ):
        array = arrays[name]
        if (array.dtype, array.shape) != (dtype, shape):
            raise ValueError(f"its {name!r} is {array.dtype} of shape {array.shape}, where {dtype} {shape} is expected")
    return rule


def _stepped(base: AnyRule, found: Any) -> AnyRule:
    """The rule with the step-size method that a header names; the method's numbers are in the rule's memory."""
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise ValueError(f"its step size is {found!r}")
    options = {key: value for key, value in found.items() if key != "name"}
    return kind_of(found["name"])(**options).rule(base)


def fill(inner: Engine, name: str, header: Mapping[str, Any], arrays: Mapping[str, Stored]) -> None:
    """Fill a new engine with the state of a checked checkpoint; ``name`` is the learner's name for the engine."""
    rule, counts = inner.rule, _counts(header, arrays)
    memory = {name: arrays[name].array() for name in rule.memory}
    gamma = memory.get("gamma")
    if gamma is not None and rule.base.name in rules.names() and not ((gamma >= 0.0) & (gamma <= 1.0)).all():
        raise ValueError("its 'gamma' is not between 0 and 1")
    with np.errstate(all="ignore"):
        for r, vector in enumerate(rule.vectors):
            # Straight into the engine's own array, where it has one: ``put`` then finds it in its place.
            value = np.ascontiguousarray(inner.view(r))
            arrays[vector].into(value)
            inner.put(r, value)
    for i, scalar in enumerate(rule.memory):
        inner.scalars[:, i] = memory[scalar]
    # The scalars are the memory and each vector's largest component.
    for what, found in zip(rule.memory + rule.vectors, inner.scalars.T, strict=False):
        if not np.isfinite(found).all():
            raise ValueError(f"its {what!r} is not finite")
    inner.scalars[:, -1] = counts
    prefix = f"{name}."
    pending = {of.removeprefix(prefix): array for of, array in arrays.items() if of.startswith(prefix)}
    inner.resume({of: array.array() for of, array in pending.items()})
    with np.errstate(all="ignore"):
        for r, vector in enumerate(rule.vectors):
            if pending and not _same(inner.blocks(r), arrays[vector]):
                raise ValueError(f"the state of the {name} engine does not match its {vector!r}")


def frozen(header: Mapping[str, Any], arrays: Mapping[str, Stored]) -> NDArray[np.bool_]:
    """Which learners are frozen; none where the file does not say."""
    shape = _lead(header) or (1,)
    stored = arrays.get("frozen")
    if stored is None:
        return np.zeros(shape, bool)
    if (stored.dtype, stored.shape) != ("uint8", shape):
        raise ValueError("its list of frozen learners is damaged")
    value = stored.array()
    if value.max() > 1:
        raise ValueError("its list of frozen learners is damaged")
    return value.astype(bool)


def position(header: Mapping[str, Any]) -> int:
    """The learners' position in the stream; where the file does not say, the steps that they have learned from."""
    steps, at = header["steps"], header.get("position", header["steps"])
    if not (type(at) is int and steps <= at < _MOST_STEPS):
        raise ValueError(f"its position in the stream is {at!r}, after {steps!r} steps")
    return at


def pack(more: Mapping[str, Any], prefix: str, own: Iterable[str] = ()) -> tuple[dict[str, Any], dict[str, TensorPart]]:
    """What a user saves with a learner: entries of the header, and arrays under names that begin with ``prefix``.

    ``own`` are the names already in use.
    """
    taken = set(own)
    entries, parts = {}, {}
    for name, value in more.items():
        if name in taken:
            raise inputs.refusal(name, "save", "have another name: the learner's own is saved under this one", "it")
        if isinstance(value, np.ndarray):
            if value.dtype.name not in DTYPES or isinstance(value, np.ma.MaskedArray):
                raise inputs.refusal(name, "save", f"be an array of {', '.join(DTYPES)}", f"one of {value.dtype}")
            parts[f"{prefix}{name}"] = TensorPart.of(value)
            continue
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            got = f"{show(value)}: {show(error)}"
            raise inputs.refusal(name, "save", "be an array, or what JSON can hold", got) from None
        if _is_deep(value):
            raise inputs.refusal(name, "save", f"be nested no deeper than {_DEEPEST} levels", "more")
        entries[name] = value
    return entries, parts


def _is_deep(value: Any) -> bool:
    """Whether a value is nested too deeply to be read back by any caller of ``load``."""
    level = [value]
    for _ in range(_DEEPEST):
        level = [inner for one in level for inner in _items(one)]
        if not level:
            return False
    return True


def _items(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


def unpack(entries: Any, arrays: Mapping[str, Stored], prefix: str) -> dict[str, Any]:
    """What ``pack`` saved."""
    kept = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
    if not isinstance(entries, dict) or entries.keys() & kept.keys():
        raise ValueError("the extra data saved with it is damaged")
    return entries | {name: array.array() for name, array in kept.items()}


def _lead(header: Mapping[str, Any]) -> tuple[int, ...]:
    """The axis of the learners, where there is one."""
    return () if header["K"] is None else (inputs.whole("K", header["K"]),)


def _counts(header: Mapping[str, Any], arrays: Mapping[str, Stored]) -> Any:
    """The steps that each learner has taken: all the same number, where the file does not say otherwise."""
    steps, stored = header["steps"], arrays.get("steps_taken")
    if not (type(steps) is int and 0 <= steps < _MOST_STEPS):
        raise ValueError(f"its count of steps is {steps!r}")
    if stored is None:
        return steps
    if (stored.dtype, stored.shape) != ("int64", _lead(header)):
        raise ValueError("its counts of steps are damaged")
    counts = stored.array()
    if counts.min() < 0 or counts.max() != steps:
        raise ValueError(f"its counts of steps are not from 0 to {steps}")
    return counts


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
