"""Kernels as the Python that they are, on chunks so short that a short stream has several."""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager

import numba.core.config
import pytest

from emphatic.engines import dense
from emphatic.engines.chunked import Chunked

__all__ = ["CHUNK", "COMPILED_ON_IMPORT", "WIDE", "plain_python"]

#: Steps a chunk; features from which on they are looked over ahead.
CHUNK, WIDE = 7, 30
#: Modules whose functions are compiled when they are imported; those that take longest come first and last, so that two
#: workers that begin at the two ends meet where little is compiled.
COMPILED_ON_IMPORT = (
    "emphatic.nexting.answers.kernels",
    "emphatic.features.kernels",
    "emphatic.hordes.possible_kernels",
    "emphatic.engines.magnitude",
    "emphatic.engines.scan",
    "emphatic.nexting.runs.return_kernels",
    "emphatic.learning.sequence_kernels",
    "emphatic.problems.kernels",
    "emphatic.nexting.tables.grid_kernels",
    "emphatic.nexting.tables.guard_kernels",
    "emphatic.nexting.runs.alarm_kernels",
    "emphatic.learning.least_squares_kernels",
)


@contextmanager
def plain_python() -> Iterator[None]:
    """Within it, learners are made whose kernels are not compiled, as with NUMBA_DISABLE_JIT=1.

    What is compiled on import is imported before: it would remain plain for the rest of the process.
    """
    _import_compiled()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numba.core.config, "DISABLE_JIT", 1)
        patch.setattr(Chunked, "length", CHUNK)
        patch.setattr(dense, "_WIDE", WIDE)
        yield


@functools.cache
def _import_compiled() -> None:
    """Every second worker begins at the other end: two that start at once compile no function twice."""
    backwards = os.environ.get("PYTEST_XDIST_WORKER", "gw0")[-1] in "13579"
    for module in COMPILED_ON_IMPORT[:: -1 if backwards else 1]:
        importlib.import_module(module)
