"""Checkpoints: one safetensors file, with a JSON header in its metadata.  Never pickle.

At any moment the path holds a whole checkpoint, the old one or the new one (``common.files``). Neither writing nor
reading needs memory for a second copy of the arrays.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NoReturn

from emphatic.common.files import atomic_file
from emphatic.errors import CheckpointError
from emphatic.learning import tensors
from emphatic.learning.tensors import Stored, TensorPart

__all__ = ["FORMAT", "open_checkpoint", "write"]

#: The version of the format that is written; files of a later one are refused.
FORMAT = 1

_KEY = "emphatic"


def write(path: str | os.PathLike[str], header: dict[str, Any], parts: Mapping[str, TensorPart]) -> None:
    """Put header and arrays in one file, atomically."""
    target = Path(os.path.realpath(os.fsdecode(path)))
    if target.exists() and not target.is_file():  # a folder, or a device or pipe that a rename would destroy
        raise OSError(f"{str(target)!r} is there already and is not a file: no checkpoint can take its place.")
    text = json.dumps({"format": FORMAT, **header}, allow_nan=False)
    with atomic_file(target) as file:
        tensors.write(file, {_KEY: text}, parts)


@contextmanager
def open_checkpoint(path: str | os.PathLike[str]) -> Iterator[tuple[dict[str, Any], dict[str, Stored]]]:
    """The header, and the arrays still in the file; ``CheckpointError`` if the file is not a whole checkpoint.

    It is opened once: a checkpoint that takes its place meanwhile is another file.
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
        yield _header(where, metadata), arrays


def _header(where: str, metadata: dict[str, str]) -> dict[str, Any]:
    if _KEY not in metadata:
        raise CheckpointError(f"{where} was not written by this library: its metadata has no {_KEY!r} entry.")
    try:
        header = json.loads(metadata[_KEY], parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{where} has a damaged header: {error}") from error
    if not isinstance(header, dict) or type(header.get("format")) is not int:
        raise CheckpointError(f"{where} has a damaged header: it names no format.")
    if header["format"] != FORMAT:
        raise CheckpointError(
            f"{where} has format {header['format']}; this version of the library reads format {FORMAT}."
        )
    return header


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number")
