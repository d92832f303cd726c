"""Lanes: compiled, every function has the bits of plain Python."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from emphatic.engines import compiled
from emphatic.engines.lanes import (
    WIDTH,
    any_of,
    below,
    every,
    gather,
    get,
    larger,
    put,
    root,
    scatter,
    select,
    smaller,
)  # fmt: skip
from emphatic.hordes import blend_kernels, ridge_kernels

Array = NDArray[np.float64]


def compute(a: Array, results: Array, table: Array, size: int) -> int:
    x, y, first = get(a, 0), get(a, 1), below(size)
    put(results, 0, x + 2.0 * y - x / y)
    put(results, 1, 1.0 - abs(x))
    put(results, 2, select((x < y) & first | ~(x != y), 5.0, root(y * y)))
    put(results, 3, smaller(larger(x, 0.5), y))
    put(results, 4, select(x >= y, gather(table, 1, 3, size), select(x <= 0.0, every(2.0), y)))
    scatter(table, 2, 3, size, x * x)
    return int(any_of(x > y)) + 2 * int(any_of(below(0))) + 4 * int(any_of(x == y))


@pytest.mark.parametrize("size", [1, 5, WIDTH])
def test_compiled_lanes_have_the_bits_of_plain_python(size: int) -> None:
    rng = np.random.default_rng(size)
    a, table = rng.normal(size=(2, WIDTH)), rng.normal(size=(WIDTH, 3))
    a[0, 2], a[0, 3], a[1, 4] = a[1, 2], np.nan, np.inf
    njit: Any = numba.njit(error_model="numpy")
    plain, other = (np.zeros((5, WIDTH)), table.copy()), (np.zeros((5, WIDTH)), table.copy())
    with np.errstate(all="ignore"):
        assert compute(a, *plain, size) == njit(compute)(a, *other, size)
    assert np.array_equal(plain[0], other[0], equal_nan=True)
    assert np.array_equal(plain[1], other[1], equal_nan=True)
    assert np.array_equal(other[1][size:], table[size:])


def test_numbers_that_are_no_lanes_are_computed_as_ever() -> None:
    njit: Any = numba.njit
    assert njit(lambda a, b: abs(a - b) / (a + b) * 2.0)(1.0, 3.0) == 1.0
    assert njit(lambda a, b: (a < b) | (a == b))(1.0, 3.0)


def test_the_name_of_a_kernel_knows_what_lanes_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ``lanes`` does is not in a kernel's text: an edit must not meet old machine code."""
    source = compiled.relocated_source(blend_kernels.__name__, "{}")
    assert compiled.relocated_source(ridge_kernels.__name__, "{}").count("compiled with") == 0
    monkeypatch.setattr(compiled, "_digest", lambda *names: "another")
    assert compiled.relocated_source(blend_kernels.__name__, "{}") != source
