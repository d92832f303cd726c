"""Checkpoints: one safetensors file, with a JSON header in its metadata.  Never pickle.

At any moment the path holds a complete checkpoint, the old one or the new one (``common.files``). Neither writing nor
reading needs memory for a second copy of the arrays.

The JSON header has XXH3 checksums of every array and, under "__metadata__", of everything before the arrays, with
the digits of the checksums as zeros. The files under tests/data/0.1.0 have no checksums and load without them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NoReturn

import xxhash

from emphatic.common.files import atomic_file
from emphatic.errors import CheckpointError
from emphatic.learning import tensors
from emphatic.learning.tensors import Stored, TensorPart

__all__ = ["FORMAT", "has_entry", "open_checkpoint", "write"]

#: The version of the format that is written; files of a later version are refused.
FORMAT = 1

_KEY = "emphatic"
#: The entry of the checksums, and among them the one of the header.
_CHECKSUMS, _OF_HEADER = "xxh3", "__metadata__"
#: The entries of a header without checksums, as under tests/data/0.1.0; such a file has no others.
_WITHOUT = {
    "format", "rule", "vectors", "memory", "n", "K", "dtype", "engine", "threads", "steps", "position", "more", "horde",
}  # fmt: skip


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
    return xxhash.xxh3_64_hexdigest(tensors.encode_header({_KEY: blank}, arrays))


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
            raise CheckpointError(f"{where} is not a sound checkpoint: {error}.") from error


def has_entry(path: str | os.PathLike[str], entry: str) -> bool:
    """Whether the header of a checkpoint has this entry; False also for what is no checkpoint."""
    if not os.path.isfile(path):  # (a pipe would wait for a writer)
        return False
    try:
        with open(path, "rb") as file:
            return entry in json.loads(tensors.read(file)[0][_KEY])
    except (OSError, ValueError, TypeError, KeyError, RecursionError, MemoryError):
        return False


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
    if _CHECKSUMS not in header:
        if unknown := header.keys() - _WITHOUT:
            raise CheckpointError(f"{where} has a damaged header: it has no checksums, but an entry {min(unknown)!r}.")
        return header
    checksums = header.pop(_CHECKSUMS)
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
