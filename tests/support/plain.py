"""Kernels as the Python that they are, on chunks so short that a short stream has several."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numba.core.config
import pytest

from emphatic.engines.chunked.engine import Chunked
from emphatic.engines.dense import engine as dense

__all__ = ["CHUNK", "WIDE", "plain_python"]

#: Steps a chunk; features from which on they are looked over ahead.
CHUNK, WIDE = 13, 30


@contextmanager
def plain_python() -> Iterator[None]:
    """Within it, learners are made whose kernels are not compiled, as with NUMBA_DISABLE_JIT=1."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numba.core.config, "DISABLE_JIT", 1)
        patch.setattr(Chunked, "length", CHUNK)
        patch.setattr(dense, "_WIDE", WIDE)
        yield
