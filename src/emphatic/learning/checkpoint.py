"""Checkpoints: one safetensors file, with a JSON header in its metadata.  Never pickle.

At any moment the path holds a complete checkpoint, the old one or the new one (``common.files``). Neither writing nor
reading needs memory for a second copy of the arrays. A learner is restored from an open file: the contents are checked
before anything of their size is allocated.

The vectors of a learner whose engine holds them in another form, as sparse does, are not saved beside that form: they
follow from it.

The JSON header has BLAKE2b checksums of every array and, under "__metadata__", of everything before the arrays, with
the digits of the checksums as zeros.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from emphatic import engines, rules
from emphatic.common.files import atomic_file
from emphatic.common.names import refusal, show
from emphatic.engines.base import Engine
from emphatic.errors import CheckpointError
from emphatic.learning import inputs, tensors
from emphatic.learning.tensors import DTYPES, Stored, TensorPart
from emphatic.rules import AnyRule
from emphatic.stepsizes import kind_of

__all__ = [
    "FORMAT",
    "check",
    "check_engine",
    "check_not_of_nexting",
    "check_own_rule",
    "fill",
    "frozen",
    "has_entry",
    "lacking_engine",
    "open_checkpoint",
    "open_sound",
    "pack",
    "position",
    "unpack",
    "write",
]

#: The version of the format; files of another version are refused.
FORMAT = 1

_KEY = "emphatic"
#: The entry of the checksums, and among them the one of the header.
_CHECKSUMS, _OF_HEADER = "blake2b", "__metadata__"
#: Counts are whole numbers in float64.
_MOST_STEPS = 1 << 53
#: Levels of nested lists and tables in what a user saves.
_DEEPEST = 100


def write(path: str | os.PathLike[str], header: dict[str, Any], parts: Mapping[str, TensorPart]) -> None:
    """Write header and arrays to one file, atomically. ValueError for what could not be read back."""
    target = Path(os.path.realpath(os.fsdecode(path)))
    if target.exists() and not target.is_file():  # a folder, or a device or pipe that a rename would destroy
        raise OSError(f"{str(target)!r} already exists and is not a file; a checkpoint cannot replace it.")
    header = {"format": FORMAT, **header}
    blank = _with_checksums(header, dict.fromkeys((_OF_HEADER, *parts)))
    try:
        _parse(blank)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{str(target)!r} would have a header that cannot be read back: {error}") from error
    with atomic_file(target) as file:
        checksums = tensors.write(file, {_KEY: blank}, parts)
        checksums = {_OF_HEADER: _hash_header(blank, parts)} | {name: checksums[name] for name in parts}
        file.seek(0)
        file.write(tensors.encode_header({_KEY: _with_checksums(header, checksums)}, parts))


def _with_checksums(header: Mapping[str, Any], checksums: Mapping[str, str | None]) -> str:
    """The text of the header, with zeros for unknown checksums."""
    digits = {name: checksum or "0" * 16 for name, checksum in checksums.items()}
    return json.dumps({**header, _CHECKSUMS: digits}, allow_nan=False)


def _hash_header(blank: str, arrays: Mapping[str, tensors.TensorLayout]) -> str:
    """The checksum of everything before the arrays, from the text in which the checksums are zeros."""
    return tensors.new_checksum(tensors.encode_header({_KEY: blank}, arrays)).hexdigest()


@contextmanager
def open_checkpoint(path: str | os.PathLike[str]) -> Iterator[tuple[dict[str, Any], dict[str, Stored]]]:
    """The header, and the arrays still in the file; ``CheckpointError`` if the file is not a complete checkpoint.

    The file is opened once: a checkpoint that replaces it meanwhile is another file.
    """
    path = os.fsdecode(path)
    where = repr(path)
    if not os.path.exists(path):
        raise FileNotFoundError(f"There is no checkpoint at {where}.")
    if not os.path.isfile(path):
        raise CheckpointError(f"{where} is not a file but a folder, a pipe or a device.")
    with ExitStack() as stack:
        try:
            metadata, arrays = tensors.read(stack.enter_context(open(path, "rb")))
        except (OSError, ValueError, TypeError, KeyError, RecursionError, MemoryError) as error:
            raise CheckpointError(f"{where} is not a whole safetensors file: {error}") from error
        yield _header(where, metadata, arrays), arrays
        try:
            for array in arrays.values():  # those that were not read, too
                array.verify()
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{where} is not a valid checkpoint: {error}.") from error


def has_entry(path: str | os.PathLike[str], *entries: str) -> bool:
    """Whether the header of a checkpoint has an entry, given with those that it is in; False if it is no checkpoint."""
    if not os.path.isfile(path):  # (a pipe would wait for a writer)
        return False
    try:
        with open(path, "rb") as file:
            header = json.loads(tensors.read(file)[0][_KEY])
        for entry in entries:
            header = header[entry]
        return True
    except (OSError, ValueError, TypeError, KeyError, RecursionError, MemoryError):
        return False


def check_not_of_nexting(path: str | os.PathLike[str]) -> None:
    """Refuse a model of ``nexting``, which has more than a horde: it is known by the settings that it holds."""
    if has_entry(path, "horde", "more", "settings"):
        what = "is a model of emphatic.nexting: emphatic.nexting.load_model(path) loads what continues."
        raise CheckpointError(f"{os.fsdecode(path)!r} {what}")


def _header(where: str, metadata: dict[str, str], arrays: dict[str, Stored]) -> dict[str, Any]:
    """The header, if it is sound; it gives the arrays their checksums."""
    if _KEY not in metadata:
        raise CheckpointError(f"{where} was not written by this library: its metadata has no {_KEY!r} entry.")
    try:
        header = _parse(metadata[_KEY])
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{where} has a damaged header: {error}") from error
    if type(header.get("format")) is not int:
        raise CheckpointError(f"{where} has a damaged header: it names no format.")
    if header["format"] != FORMAT:
        raise CheckpointError(
            f"{where} has format {header['format']}; this version of the library reads format {FORMAT}."
        )
    checksums = header.pop(_CHECKSUMS, None)
    if not isinstance(checksums, dict) or checksums.keys() != {_OF_HEADER, *arrays}:
        raise CheckpointError(f"{where} has a damaged header: its checksums are not one for each array.")
    if checksums[_OF_HEADER] != _hash_header(_with_checksums(header, dict.fromkeys(checksums)), arrays):
        raise CheckpointError(f"{where} has a damaged header: it does not match its checksum.")
    for name, array in arrays.items():
        array.checksum = checksums[name]
    return header


def _parse(text: str) -> dict[str, Any]:
    """The header of this text; ValueError if it is not written as this library writes it."""
    header = json.loads(text, parse_constant=_refuse)
    if not isinstance(header, dict):
        raise ValueError("it is not a table")
    if json.dumps(header) != text:
        raise ValueError("it is not written as this library writes it, or has an entry twice")
    return header


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number")


# ------------------------------------------------------------------------------------------------ learners


@contextmanager
def open_sound(path: str | os.PathLike[str]) -> Iterator[tuple[dict[str, Any], dict[str, Stored]]]:
    """``open_checkpoint``, with ``CheckpointError`` for any fault found while it is open."""
    with open_checkpoint(path) as (header, arrays):
        try:
            yield header, arrays
        except (ValueError, TypeError, KeyError, OverflowError, MemoryError, OSError) as error:
            raise CheckpointError(f"{os.fsdecode(path)!r} is not a valid checkpoint: {error}") from error


def check_engine(engine: object) -> None:
    """Refuse what is not an engine's name, "auto" or None."""
    if engine is not None and not engines.known(engine) and (not isinstance(engine, str) or engine != "auto"):
        raise refusal("engine", "load", f"be 'auto' or one of {', '.join(engines.available())}", repr(engine))


def lacking_engine(engine: str | None, name: str, lacking: str) -> ValueError:
    """The error where the engine that was asked for, or else the file's, is not on this machine."""
    wanted = f"name an engine for this machine, such as 'auto': {name!r} needs {lacking}"
    return refusal("engine", "load", wanted, repr(engine) if engine else f"none, and the file's is {name!r},")


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
    base = own.base.plain if own is not None else rules.get(header["rule"])
    base = rules.separate(base) if header.get("separate_next") else base
    rule = base if header.get("stepsize") is None else _stepped(base, header["stepsize"])
    if (header["rule"], header["vectors"], header["memory"]) != (base.name, list(rule.vectors), list(rule.memory)):
        raise ValueError(f"it holds rule {header['rule']!r} with other vectors or memory than rule {rule.name!r}")
    _check_arrays(rule, header, arrays)
    return rule


def _check_arrays(rule: AnyRule, header: Mapping[str, Any], arrays: Mapping[str, Stored]) -> None:
    """ValueError if a vector or the memory of the rule has another dtype or shape than the header says."""
    n, lead = inputs.whole("n", header["n"]), _lead(header)
    if header["dtype"] not in ("float32", "float64") or not isinstance(header["engine"], str):
        raise ValueError(f"its dtype is {header['dtype']!r} and its engine {header['engine']!r}")
    expected = dict.fromkeys(rule.memory, ("float64", lead))
    if rule.vectors[0] in arrays:
        expected |= dict.fromkeys(rule.vectors, (header["dtype"], (*lead, n)))
    elif all(math.prod(array.shape) < math.prod((*lead, n)) for array in _pending(header, arrays).values()):
        raise ValueError(f"it has neither {rule.vectors[0]!r} nor the state from which that follows")
    for name, (dtype, shape) in expected.items():
        array = arrays[name]
        if (array.dtype, array.shape) != (dtype, shape):
            raise ValueError(f"its {name!r} is {array.dtype} of shape {array.shape}, where {dtype} {shape} is expected")


def _stepped(base: AnyRule, method: object) -> AnyRule:
    """The rule with the step-size method that a header names; the method's numbers are in the rule's memory."""
    if not isinstance(method, dict) or not all(isinstance(value, str) for value in method.values()):
        raise ValueError(f"its step size is {method!r}")
    options = {key: value for key, value in method.items() if key != "name"}
    return kind_of(method["name"])(**options).rule(base)


def fill(inner: Engine, name: str, header: Mapping[str, Any], arrays: Mapping[str, Stored]) -> None:
    """Fill a new engine with the state of a checked checkpoint; ``name`` is the learner's name for the engine."""
    rule, counts = inner.rule, _counts(header, arrays)
    memory = {name: arrays[name].array() for name in rule.memory}
    gamma = memory.get("gamma")
    if gamma is not None and rule.base.name in rules.names() and not ((gamma >= 0.0) & (gamma <= 1.0)).all():
        raise ValueError("its 'gamma' is not between 0 and 1")
    with np.errstate(all="ignore"):
        if rule.vectors[0] in arrays:
            for r, vector in enumerate(rule.vectors):
                # Straight into the engine's own array, where it has one: ``put`` then finds it in its place.
                value = np.ascontiguousarray(inner.view(r))
                arrays[vector].into(value)
                inner.put(r, value)
        else:
            _reload(inner, name, header, arrays)
    for i, scalar in enumerate(rule.memory):
        inner.scalars[:, i] = memory[scalar]
    # The scalars are the memory and each vector's largest component.
    for scalar, values in zip(rule.memory + rule.vectors, inner.scalars.T, strict=False):
        if not np.isfinite(values).all():
            raise ValueError(f"its {scalar!r} is not finite")
    inner.scalars[:, -1] = counts


def _reload(inner: Engine, name: str, header: Mapping[str, Any], arrays: Mapping[str, Stored]) -> None:
    """Fill a new engine with vectors that follow from the state of the engine that saved them."""
    saver = inner
    if name != header["engine"]:
        saver = engines.make(header["engine"], inner.rule, inner.n, header["K"], inner.dtype)
    if not saver.pending_gives_vectors:
        raise ValueError(f"it has no {inner.rule.vectors[0]!r}")
    saver.reload(_pending(header, arrays))
    if saver is not inner:
        for r in range(len(inner.rule.vectors)):
            inner.put(r, saver.vector(r))


def _pending(header: Mapping[str, Any], arrays: Mapping[str, Stored]) -> dict[str, Stored]:
    """The state of the engine that saved the file, besides vectors and memory."""
    prefix = f"{header['engine']}."
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def frozen(header: Mapping[str, Any], arrays: Mapping[str, Stored]) -> NDArray[np.bool_]:
    """Which learners are frozen; none where the file does not say."""
    shape = _lead(header) or (1,)
    stored = arrays.get("frozen")
    if stored is None:
        return np.zeros(shape, bool)
    if (stored.dtype, stored.shape) != ("uint8", shape) or (value := stored.array()).max() > 1:
        raise ValueError("its list of frozen learners is damaged")
    return value.astype(bool)


def position(header: Mapping[str, Any]) -> int:
    """The learners' position in the stream."""
    steps, at = header["steps"], header["position"]
    if not (type(at) is int and steps <= at < _MOST_STEPS):
        raise ValueError(f"its position in the stream is {at!r}, after {steps!r} steps")
    return at


def pack(more: Mapping[str, Any], prefix: str, own: Iterable[str] = ()) -> tuple[dict[str, Any], dict[str, TensorPart]]:
    """What a user saves with a learner: entries of the header, and arrays under names that begin with ``prefix``.

    ``own`` are the names already in use.
    """
    reserved = set(own)
    entries, arrays = {}, {}
    for name, value in more.items():
        if name in reserved:
            raise refusal(name, "save", "have another name: the learner's own is saved under this one", "it")
        if isinstance(value, np.ndarray):
            if value.dtype.name not in DTYPES or isinstance(value, np.ma.MaskedArray):
                raise refusal(name, "save", f"be an array of {', '.join(DTYPES)}", f"one of {value.dtype}")
            arrays[f"{prefix}{name}"] = TensorPart.of(value)
            continue
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            got = f"{show(value)}: {show(error)}"
            raise refusal(name, "save", "be an array, or what JSON can hold", got) from None
        if _is_deep(value):
            raise refusal(name, "save", f"be nested no deeper than {_DEEPEST} levels", "more")
        entries[name] = value
    return entries, arrays


def _is_deep(value: object) -> bool:
    """Whether a value is nested too deeply to be read back by any caller of ``load``."""
    level = [value]
    for _ in range(_DEEPEST):
        level = [inner for outer in level for inner in _items(outer)]
        if not level:
            return False
    return True


def _items(value: object) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


def unpack(entries: object, arrays: Mapping[str, Stored], prefix: str) -> dict[str, Any]:
    """What ``pack`` saved."""
    saved = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
    if not isinstance(entries, dict) or entries.keys() & saved.keys():
        raise ValueError("the extra data saved with it is damaged")
    return entries | {name: array.array() for name, array in saved.items()}


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
