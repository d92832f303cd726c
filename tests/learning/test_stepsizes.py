"""Step sizes fixed in advance, against their formulas."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from emphatic.learning.inputs import Active
from emphatic.stepsizes import constant, decaying


def test_constant_is_a_fraction_of_the_longest_feature_vector() -> None:
    rng = np.random.default_rng(0)
    Phi = rng.standard_normal((57, 11)) * (rng.random((57, 11)) < 0.3)
    Phi[20] = 0.0
    longest = max(sum(x * x for x in row) for row in Phi.tolist())
    assert constant(Phi) == pytest.approx(0.1 / longest, rel=1e-14)
    assert constant(Phi, 0.5) == pytest.approx(0.5 / longest, rel=1e-14)
    assert constant(Phi.tolist()) == constant(Phi)
    assert constant(scipy.sparse.csr_array(Phi)) == pytest.approx(0.1 / longest, rel=1e-14)
    assert constant(Phi[3]) == pytest.approx(0.1 / (Phi[3] @ Phi[3]), rel=1e-14)
    assert isinstance(constant(Phi), float)


def test_constant_adds_in_float64_whatever_the_features_are() -> None:
    assert constant(np.full((2, 3), 4097.0, dtype=np.float32)) == pytest.approx(0.1 / (3 * 4097**2), rel=1e-14)
    assert constant(np.full((2, 300), 1, dtype=np.int8)) == 0.1 / 300  # past the largest int8
    assert constant(np.ones((2, 300), dtype=bool)) == 0.1 / 300


def test_constant_counts_the_active_features_and_not_the_padding() -> None:
    indices = np.array([[3, 5, -1], [2, -1, -1], [9, 4, 0]])
    assert constant(Active(indices)) == 0.1 / 3
    assert constant(Active(indices[:2])) == 0.1 / 2
    assert constant(Active(indices[0])) == 0.1 / 2
    values = np.array([[3.0, -4.0, 100.0], [1.0, 7.0, 7.0], [0.0, 1.0, 2.0]])
    assert constant(Active(indices, values)) == 0.1 / 25


def test_decaying_is_its_formula() -> None:
    for after, power in [(1.0, 1.0), (1000.0, 0.51), (7.5, 0.75)]:
        alpha = decaying(0.3, 2000, after=after, power=power)
        assert alpha.shape == (2000,)
        assert alpha[0] == 0.3
        for t in (1, 5, 700, 1999):
            assert alpha[t] == pytest.approx(0.3 / (1 + t / after) ** power, rel=1e-14)
        assert (np.diff(alpha) < 0).all()
    assert decaying(0.3, 0).shape == (0,)


REFUSED: list[tuple[Callable[[], Any], str, str]] = [  # the call, the parameter, what was got and where
    (lambda: constant(np.zeros((4, 3))), "Phi", "zeros only in 4 rows"),
    (lambda: constant(np.zeros((0, 3))), "Phi", "zeros only in 0 rows"),
    (lambda: constant(Active([-1, -1])), "Phi", "zeros only in 1 rows"),
    (lambda: constant([[1.0, 0.0], [0.0, np.nan]]), "Phi", "φ·φ = nan at step 1"),
    (lambda: constant([[1e200, 0.0]]), "Phi", "φ·φ = inf at step 0"),
    (lambda: constant(3.0), "Phi", "shape () and dtype float64"),
    (lambda: constant(["a"]), "Phi", "shape (1,) and dtype <U1"),
    (lambda: constant([1.0], 0.0), "fraction", "0.0"),
    (lambda: constant([1.0], math.nan), "fraction", "nan"),
    (lambda: decaying(-0.1, 5), "alpha", "-0.1"),
    (lambda: decaying(math.inf, 5), "alpha", "inf"),
    (lambda: decaying(0.1, -1), "T", "-1"),
    (lambda: decaying(0.1, 2.5), "T", "2.5"),  # type: ignore[arg-type]
    (lambda: decaying(0.1, 5, after=0.0), "after", "0.0"),
    (lambda: decaying(0.1, 5, power=0.5), "power", "0.5"),
    (lambda: decaying(0.1, 5, power=1.1), "power", "1.1"),
]


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_bad_input_is_refused_by_name_value_and_place(case: int) -> None:
    call, parameter, got = REFUSED[case]
    (function,) = set(call.__code__.co_names) & {"constant", "decaying"}
    with pytest.raises(ValueError, match=f"^The '{parameter}' parameter of {function} must ") as error:
        call()
    assert f". Got {got} instead" in str(error.value)
