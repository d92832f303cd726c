"""Kernels as the Python that they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numba.core.config
import pytest

__all__ = ["plain_python"]


@contextmanager
def plain_python() -> Iterator[None]:
    """Within it, learners are made whose kernels are not compiled, as with NUMBA_DISABLE_JIT=1."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numba.core.config, "DISABLE_JIT", 1)
        yield
