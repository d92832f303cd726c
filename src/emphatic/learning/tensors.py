"""The safetensors format as a stream: arrays of any size go to and from a file through a buffer of fixed size.

A file is the length of its header (8 bytes, little-endian), the header, and the arrays one after the other without
gaps, little-endian and in C order. The header is JSON, filled up with spaces to a multiple of 8 bytes; it gives each
array's dtype, shape and place. Wider numbers come first, so that every array is aligned.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["DTYPES", "Stored", "TensorPart", "pieces", "read", "write"]

#: Names of number types, in the order in which their arrays come.
_DTYPES = {
    "U64": "uint64", "I64": "int64", "F64": "float64", "F32": "float32", "U32": "uint32", "I32": "int32",
    "F16": "float16", "U16": "uint16", "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool",
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
#: The same as NumPy names them.
DTYPES = tuple(_NAMES)
_ORDER = list(_DTYPES)

#: Numbers that pass at a time.
_PIECE = 1 << 18
#: The longest header that is read: far beyond what a few dozen arrays need.
_LONGEST = 1 << 24


class TensorPart(NamedTuple):
    """An array to be written: its numbers come in blocks, in C order."""

    dtype: str
    shape: tuple[int, ...]
    blocks: Iterable[NDArray[Any]]

    @classmethod
    def of(cls, array: NDArray[Any]) -> TensorPart:
        """An array that is there as a whole."""
        return cls(array.dtype.name, array.shape, (array,))


def pieces(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """The numbers in C order, little-endian, some at a time; views where the array's memory is like that already."""
    flags: Any = ["external_loop", "buffered", "zerosize_ok"]
    per: Any = {"op_flags": [["readonly", "contig"]], "op_dtypes": [array.dtype.newbyteorder("<")]}
    yield from np.nditer(array, flags, order="C", casting="equiv", buffersize=_PIECE, **per)


def write(file: BinaryIO, metadata: Mapping[str, str], parts: Mapping[str, TensorPart]) -> None:
    """All parts to the file."""
    order = sorted(parts, key=lambda name: (_ORDER.index(_NAMES[parts[name].dtype]), name))
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name in order:
        dtype, shape, _ = parts[name]
        begin, end = end, end + _nbytes(dtype, shape)
        header[name] = {"dtype": _NAMES[dtype], "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    for name in order:
        for block in parts[name].blocks:
            for piece in pieces(block):
                file.write(piece.data)
    if file.tell() != 8 + len(text) + end:
        raise ValueError("the blocks of an array are not as many as its shape says")


@dataclass(frozen=True)
class Stored:
    """An array in an open file."""

    file: BinaryIO
    dtype: str
    shape: tuple[int, ...]
    begin: int

    def into(self, out: NDArray[Any], first: int = 0) -> None:
        """Fill a contiguous array with the numbers from the ``first`` on."""
        assert out.flags.c_contiguous
        flat = out.reshape(-1).view(np.uint8)
        self.file.seek(self.begin + first * out.itemsize)
        if self.file.readinto(flat) != flat.size:  # type: ignore[attr-defined]
            raise ValueError("the file ends too soon")
        if sys.byteorder == "big":
            out.byteswap(inplace=True)

    def array(self) -> NDArray[Any]:
        """The whole array."""
        out = np.empty(self.shape, self.dtype)
        self.into(out)
        return out


def read(file: BinaryIO) -> tuple[dict[str, str], dict[str, Stored]]:
    """The metadata, and the arrays that the file holds; ValueError if it is not whole. No array is read yet."""
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(8), "little")
    body = 8 + length
    if not (size >= 8 and length <= _LONGEST and body <= size):
        raise ValueError(f"its header would have {length} bytes")
    header = json.loads(file.read(length))
    if not isinstance(header, dict):
        raise ValueError("its header is not a table")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise ValueError("its metadata are not texts")
    found, places = {}, []
    for name, entry in header.items():
        kind, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        sizes = [begin, end, *shape]
        if not (kind in _DTYPES and isinstance(shape, list) and all(type(x) is int and x >= 0 for x in sizes)):
            raise ValueError(f"its {name!r} has no proper dtype, shape or place")
        if end - begin != _nbytes(_DTYPES[kind], shape):
            raise ValueError(f"its {name!r} is {kind} {shape} in {end - begin} bytes")
        found[name] = Stored(file, _DTYPES[kind], tuple(shape), body + begin)
        places.append((begin, end))
    last = 0
    for begin, end in sorted(places):
        if begin != last:
            raise ValueError("its arrays overlap or leave gaps")
        last = end
    if body + last != size:
        raise ValueError(f"it has {size} bytes where {body + last} are due")
    return metadata, found


def _nbytes(dtype: str, shape: Iterable[int]) -> int:
    return math.prod(shape) * np.dtype(dtype).itemsize
