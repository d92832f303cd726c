"""The safetensors format as a stream: arrays of any size are read and written through a buffer of fixed size.

A file is the length of its header (8 bytes, little-endian), the header, and the arrays one after the other without
gaps, little-endian and in C order. The header is JSON, filled up with spaces to a multiple of 8 bytes; it gives each
array's dtype, shape and place. Wider numbers come first, so that every array is aligned. There is one way to write
given arrays, and a file written in any other way is refused.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, BinaryIO, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "DTYPES",
    "Stored",
    "TensorPart",
    "encode_header",
    "new_checksum",
    "pieces",
    "read",
    "write",
]

#: Number types as NumPy names them, in the order in which their arrays come.
DTYPES = (
    *("uint64", "int64", "float64", "float32", "uint32", "int32"),
    *("float16", "uint16", "int16", "int8", "uint8", "bool"),
)
#: The same as the format names them: U64, F32, …
_NAMES = {name: f"{name[0].upper()}{8 * np.dtype(name).itemsize}" for name in DTYPES} | {"bool": "BOOL"}
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}

#: Numbers that are written at a time.
_PIECE = 1 << 18
#: Bytes that are read at a time, to be hashed while they are in the cache.
_READ = 1 << 20
#: Numbers that are read at a time from each of several arrays, for columns that stay in the cache meanwhile.
_TOGETHER = 1 << 17
#: The longest header that is read or written: far beyond what a few dozen arrays need.
_LONGEST = 1 << 24


class TensorLayout(Protocol):
    """What the header holds about an array, apart from its place."""

    @property
    def dtype(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...]: ...


class TensorPart(NamedTuple):
    """An array to be written: its numbers come in blocks, in C order."""

    dtype: str
    shape: tuple[int, ...]
    blocks: Iterable[NDArray[Any]]

    @classmethod
    def of(cls, array: NDArray[Any]) -> TensorPart:
        """An array that is complete in memory."""
        return cls(array.dtype.name, array.shape, (array,))

    @classmethod
    def join(cls, parts: Sequence[TensorPart]) -> tuple[TensorPart, TensorPart]:
        """Arrays of one dtype, in a row, and their shapes: one for each of them, −1 in the place of lacking axes."""
        axes = max(len(part.shape) for part in parts)
        shapes = np.array([(*part.shape, *[-1] * (axes - len(part.shape))) for part in parts], np.int64)
        size = sum(math.prod(part.shape) for part in parts)
        return cls(parts[0].dtype, (size,), chain.from_iterable(part.blocks for part in parts)), cls.of(shapes)


def pieces(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """The numbers in C order, little-endian, some at a time; views where the array's memory is like that already."""
    flags: Any = ["external_loop", "buffered", "zerosize_ok"]
    per: Any = {"op_flags": [["readonly", "contig"]], "op_dtypes": [array.dtype.newbyteorder("<")]}
    yield from np.nditer(array, flags, order="C", casting="equiv", buffersize=_PIECE, **per)


def new_checksum(data: bytes = b"") -> hashlib.blake2b:
    """A checksum of these bytes and of those that it is updated with: against damage, not against forgery."""
    return hashlib.blake2b(data, digest_size=8)


def encode_header(metadata: Mapping[str, str], arrays: Mapping[str, TensorLayout]) -> bytes:
    """The first bytes of a file, up to the arrays."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name in _order(arrays):
        dtype, shape = arrays[name].dtype, arrays[name].shape
        begin, end = end, end + _nbytes(dtype, shape)
        header[name] = {"dtype": _NAMES[dtype], "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > _LONGEST:
        raise ValueError(f"the header has {len(text):,} bytes, and at most {_LONGEST:,} can be read back")
    return len(text).to_bytes(8, "little") + text


def write(file: BinaryIO, metadata: Mapping[str, str], parts: Mapping[str, TensorPart]) -> dict[str, str]:
    """Write all parts to the file; returns the checksum of each."""
    header = encode_header(metadata, parts)
    file.write(header)
    checksums = {}
    for name in _order(parts):
        checksum = new_checksum()
        for block in parts[name].blocks:
            for piece in pieces(block):
                checksum.update(piece.data)
                file.write(piece.data)
        checksums[name] = checksum.hexdigest()
    if file.tell() != len(header) + sum(_nbytes(tensor.dtype, tensor.shape) for tensor in parts.values()):
        raise ValueError("the blocks of an array do not add up to its shape")
    return checksums


def _order(arrays: Mapping[str, TensorLayout]) -> list[str]:
    return sorted(arrays, key=lambda name: (DTYPES.index(arrays[name].dtype), name))


@dataclass
class Stored:
    """An array in an open file; with a ``checksum``, it is compared with that when it is first read whole."""

    file: BinaryIO
    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    checksum: str | None = None

    def into(self, out: NDArray[Any], first: int = 0) -> None:
        """Fill a contiguous array with the numbers from the ``first`` on."""
        assert out.flags.c_contiguous
        flat = out.reshape(-1).view(np.uint8)
        complete = flat.size == _nbytes(self.dtype, self.shape)
        checksum = self._read(flat, first * out.itemsize, hashed=complete and self.checksum is not None)
        if complete:
            self._compare(checksum)
        if sys.byteorder == "big":
            out.byteswap(inplace=True)

    def array(self) -> NDArray[Any]:
        """The whole array."""
        out = np.empty(self.shape, self.dtype)
        self.into(out)
        return out

    def pieces(self) -> Iterator[tuple[int, int, NDArray[Any]]]:
        """(row, first, numbers) of all numbers in C order, as a matrix of rows of the last axis; in one buffer."""
        length, room, checksum = self.shape[-1], np.empty(_TOGETHER, self.dtype), new_checksum()
        for row in range(math.prod(self.shape[:-1])):
            for first in range(0, length, len(room)):
                piece = room[: length - first]
                flat = piece.view(np.uint8)
                self._read(flat, (row * length + first) * piece.itemsize)
                checksum.update(flat.data)
                if sys.byteorder == "big":
                    piece.byteswap(inplace=True)
                yield row, first, piece
        self._compare(checksum.hexdigest())

    def split(self, shapes: NDArray[np.int64]) -> list[Stored]:
        """The arrays that ``TensorPart.join`` put in a row; ValueError if they do not have these shapes."""
        arrays, begin = [], self.begin
        for row in shapes.tolist():
            shape = tuple(length for length in row if length >= 0)
            arrays.append(Stored(self.file, self.name, self.dtype, shape, begin))
            begin += _nbytes(self.dtype, shape)
        if begin - self.begin != _nbytes(self.dtype, self.shape):
            raise ValueError(f"its {self.name!r} does not add up to the arrays that it is made of")
        return arrays

    def verify(self) -> None:
        """Compare with the checksum, unless that has been done; ValueError if they differ."""
        if self.checksum is None:
            return
        size, checksum, room = _nbytes(self.dtype, self.shape), new_checksum(), np.empty(_READ, np.uint8)
        for at in range(0, size, _READ):
            piece = room[: min(_READ, size - at)]
            self._read(piece, at)
            checksum.update(piece.data)
        self._compare(checksum.hexdigest())

    def _read(self, flat: NDArray[np.uint8], at: int, *, hashed: bool = False) -> str:
        """Read bytes of the array from this one on; returns their checksum."""
        checksum = new_checksum()
        self.file.seek(self.begin + at)
        for start in range(0, flat.size, _READ):
            piece = flat[start : start + _READ]
            if self.file.readinto(piece) != piece.size:  # type: ignore[attr-defined]
                raise ValueError("the file ends too soon")
            if hashed:
                checksum.update(piece.data)
        return checksum.hexdigest()

    def _compare(self, checksum: str) -> None:
        if self.checksum is not None and checksum != self.checksum:
            raise ValueError(f"its {self.name!r} does not match its checksum: the file was damaged or changed")
        self.checksum = None


def read(file: BinaryIO) -> tuple[dict[str, str], dict[str, Stored]]:
    """The metadata, and the arrays that the file holds; ValueError if it is not complete. No array is read yet."""
    size = os.fstat(file.fileno()).st_size
    prefix = file.read(8)
    length = int.from_bytes(prefix, "little")
    body = 8 + length
    if not (size >= 8 and length <= _LONGEST and body <= size):
        raise ValueError(f"its header would have {length} bytes")
    text = file.read(length)
    header = json.loads(text)
    if not isinstance(header, dict):
        raise ValueError("its header is not a table")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(entry, str) for entry in metadata.values()):
        raise ValueError("its metadata are not all text")
    arrays: dict[str, Stored] = {}
    end = body
    for name, entry in header.items():
        kind, shape, (begin, stop) = entry["dtype"], entry["shape"], entry["data_offsets"]
        sizes = [begin, stop, *shape]
        if not (kind in _DTYPES and isinstance(shape, list) and all(type(x) is int and x >= 0 for x in sizes)):
            raise ValueError(f"its {name!r} has no proper dtype, shape or place")
        if stop - begin != _nbytes(_DTYPES[kind], shape):
            raise ValueError(f"its {name!r} is {kind} {shape} in {stop - begin} bytes")
        arrays[name] = Stored(file, name, _DTYPES[kind], tuple(shape), body + begin)
        end = max(end, body + stop)
    if end != size:
        raise ValueError(f"it has {size} bytes where {end} are expected")
    if encode_header(metadata, arrays) != prefix + text:  # arrays that overlap or leave gaps, names that come twice, …
        raise ValueError("its header is not written as this library writes it")
    return metadata, arrays


def _nbytes(dtype: str, shape: Iterable[int]) -> int:
    return math.prod(shape) * np.dtype(dtype).itemsize
