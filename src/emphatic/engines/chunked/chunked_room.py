"""Work arrays of a run of the chunked engine."""

from __future__ import annotations

import math
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from emphatic.engines.chunked.chunked_functions import LANES, pairs
from emphatic.engines.unrolled import unrolled

if TYPE_CHECKING:
    from emphatic.engines.chunked.engine import Chunked

__all__ = ["Room"]

#: A room of so many bytes is kept for the next run.
_KEEP = 1 << 22
#: Bytes of a cache line.
_LINE = 64


class Room:
    """Every block's outcome, and scratch for each thread."""

    def __init__(self, engine: Chunked, steps: int, rows: int) -> None:
        self.fits = _fits(engine, steps, rows)
        u, K, dtype = unrolled(engine.rule), engine.K, engine.dtype
        lanes = min(LANES, K)
        self.blocks = [slice(first, min(first + LANES, K)) for first in range(0, K, LANES)]
        self.W = _aligned((len(self.blocks), u.m, rows, lanes), dtype)
        self.tail = np.empty((len(pairs(u)), K), dtype)
        self.after = np.empty_like(engine.scalars)
        self.amiss = np.empty(K, np.bool_)
        #: (V, Q, new): a thread takes one and puts it back.
        self.scratch = deque(
            (
                _aligned((u.m, rows, lanes), dtype),
                _aligned((len(u.coefficients), steps, lanes), dtype),
                _aligned((u.m, lanes, engine.n), dtype),
            )
            for _ in range(min(engine.threads, len(self.blocks)))
        )
        every = (self.W, self.tail, self.after, *(array for some in self.scratch for array in some))
        self.nbytes = sum(array.nbytes for array in every)

    @staticmethod
    def of(engine: Chunked, steps: int, rows: int) -> Room:
        """The one kept from a run of the same kind, or another."""
        with suppress(IndexError):
            room = _kept.pop()
            if room.fits == _fits(engine, steps, rows):
                return room
        return Room(engine, steps, rows)

    def leave(self) -> None:
        """Keep it, if it is small."""
        if self.nbytes <= _KEEP:
            _kept.append(self)


#: The work arrays of the last run: to allocate them each time can take as long as a short run.
_kept: deque[Room] = deque(maxlen=1)


def _fits(engine: Chunked, steps: int, rows: int) -> tuple[object, ...]:
    return engine.rule, engine.n, engine.K, engine.dtype, engine.threads, steps, rows


def _aligned(shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """An array that begins with a cache line: the steps on one that does not take a third longer."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(size + _LINE, np.uint8)
    begin = -memory.ctypes.data % _LINE
    return memory[begin : begin + size].view(dtype).reshape(shape)
