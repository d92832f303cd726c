"""Lanes: what moves and raises them, and the name of a kernel that uses them."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from emphatic.engines import compiled
from emphatic.engines.lanes import (
    WIDTH,
    load,
    load_row,
    mirror,
    power,
    store,
    store_row,
    tally,
    total,
)  # fmt: skip
from emphatic.hordes import blend_kernels, ridge_kernels

Array = NDArray[np.float64]


def move(a: Array, matrix: Array, i: int) -> tuple[int, float, float]:
    x, y = load(a, i), load_row(matrix, 3, i)
    store(a, i + WIDTH, x - y)
    store(a, 0, 0.5)
    store_row(matrix, 2, i + 1, x * y)
    mirror(matrix, 8, i)
    return tally(x < y), total(x), total(load_row(matrix, 9, 2))


@pytest.mark.parametrize("i", [0, 3, 11])
def test_lanes_are_moved_from_and_to_any_place(i: int) -> None:
    rng = np.random.default_rng(i)
    a, matrix = rng.normal(size=30), rng.normal(size=(20, 21))
    njit: Any = numba.njit(error_model="numpy")
    plain, other = (a.copy(), matrix.copy()), (a.copy(), matrix.copy())
    results = move(*plain, i), njit(move)(*other, i)
    assert results[0] == results[1]
    x, y = a[i : i + WIDTH].copy(), matrix[3, i : i + WIDTH].copy()
    a[i + WIDTH : i + 2 * WIDTH] = x - y
    a[:WIDTH] = 0.5
    matrix[2, i + 1 : i + 1 + WIDTH] = x * y
    matrix[i : i + WIDTH, 8 : 8 + WIDTH] = matrix[8 : 8 + WIDTH, i : i + WIDTH].T.copy()
    for ours in (plain, other):
        assert np.array_equal(ours[0], a)
        assert np.array_equal(ours[1], matrix)
    assert results[0] == pytest.approx((np.count_nonzero(x < y), x.sum(), matrix[9, 2 : 2 + WIDTH].sum()))


def raise_each(bases: Array, exponents: Array, out: Array) -> None:
    for i in range(0, len(out), WIDTH):
        store(out, i, power(load(bases, i), load(exponents, i)))


def test_powers_are_those_of_numpy_and_0_for_tiny_bases() -> None:
    """For ratios of the least mean squared error to others, and exponents from 2 to 64."""
    rng = np.random.default_rng(0)
    tiny = [0.0, 5e-324, 1e-320, 1e-160]
    bases = np.append(10.0 ** rng.uniform(-4.0, 0.0, 4080), [1.0, 0.5, 2.0, 1.5, *tiny] * 2)
    exponents = np.append(rng.uniform(2.0, 64.0, 4080), [2.0] * 8 + [64.0] * 8)
    expected = np.where(bases > max(tiny), np.power(bases, exponents), 0.0)
    njit: Any = numba.njit(error_model="numpy")
    for function in (raise_each, njit(raise_each)):
        out = np.empty(len(bases))
        function(bases, exponents, out)
        np.testing.assert_allclose(out, expected, rtol=1e-13)
        np.testing.assert_array_equal(out[expected == 0.0], 0.0)
        np.testing.assert_array_equal(out[4080:4083], [1.0, 0.25, 4.0])


def test_numbers_that_are_no_lanes_are_computed_as_ever() -> None:
    njit: Any = numba.njit
    assert njit(lambda a, b: abs(a - b) / (a + b) * 2.0)(1.0, 3.0) == 1.0
    assert njit(lambda a, b: (a < b) | (a == b))(1.0, 3.0)


@pytest.mark.parametrize("kernels", [blend_kernels])
def test_the_name_of_a_kernel_knows_what_lanes_are(kernels: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ``lanes`` does is not in a kernel's text: an edit must not meet old machine code."""
    source = compiled.relocated_source(kernels.__name__, "{}")
    assert compiled.relocated_source(ridge_kernels.__name__, "{}").count("compiled with") == 0
    monkeypatch.setattr(compiled, "_digest", lambda *names: f"another {names}")
    assert "another ('lanes',)" in compiled.relocated_source(kernels.__name__, "{}") != source
