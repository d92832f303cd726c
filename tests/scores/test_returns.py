"""Actual returns against plain sums."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emphatic.nexting.scores.returns import known_return, rows_known


def ref_return(x: np.ndarray, missing: np.ndarray, gap: np.ndarray, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """(G, whether it is known) as sums."""
    T = len(x)
    G, weight, reach = np.full(T, np.nan), np.zeros(T), np.zeros(T)
    for t in range(T):
        end = next((j for j in range(t + 1, T) if gap[j]), T)
        seen = [((1 - gamma) * gamma**k, x[j]) for k, j in enumerate(range(t + 1, end)) if not missing[j]]
        weight[t] = sum(w for w, _ in seen)
        reach[t] = sum((1 - gamma) * gamma**k for k in range(end - t - 1))
        if weight[t] > 0:
            G[t] = sum(w * value for w, value in seen) / weight[t]
    return G, (reach >= 0.99 - 1e-9) & (weight >= 0.5 - 1e-9)


@given(
    st.lists(st.tuples(st.floats(-1e3, 1e3), st.sampled_from([False] * 9 + [True]), st.booleans()), max_size=40),
    st.sampled_from([0.0, 0.1, 0.5, 0.9]),
    st.sampled_from([0.0, 1e6]),
    st.booleans(),
)
def test_returns_are_sums(rows: list[tuple[float, bool, bool]], gamma: float, level: float, gaps: bool) -> None:
    x, missing, gap = (np.array([row[i] for row in rows], (float, bool, bool)[i]) for i in range(3))
    gap &= gaps & (np.arange(len(gap)) % 7 == 3)
    x += level
    x[missing] = np.nan  # must not be looked at
    G, known = known_return(x, missing, gap, gamma)
    G_ref, known_ref = ref_return(x, missing, gap, gamma)
    np.testing.assert_allclose(G, G_ref, rtol=1e-12, atol=1e-9)
    np.testing.assert_array_equal(known, known_ref)


def test_returns_of_a_long_far_signal_keep_their_digits() -> None:
    rng = np.random.default_rng(1)
    x, no, gamma = rng.normal(size=20_000), np.zeros(20_000, bool), 1 - 1e-3
    G, known = known_return(x, no, no, gamma)
    far, _ = known_return(x + 2.0**30, no, no, gamma)
    np.testing.assert_allclose(far[known] - 2.0**30, G[known], atol=1e-6)
    assert known.sum() == 20_000 - math.ceil(math.log(0.01) / math.log(gamma))
    direct = (1 - gamma) * np.sum(gamma ** np.arange(19_999) * x[1:]) / (1 - gamma**19_999)
    assert G[0] == pytest.approx(direct, rel=1e-10)


@pytest.mark.parametrize("gamma", [0.0, 0.1, 0.5, 0.9, 0.99])
def test_the_first_return_is_known_after_so_many_rows(gamma: float) -> None:
    rows, no = rows_known(gamma), np.zeros(1000, bool)
    for T, first in ((rows, False), (rows + 1, True)):
        assert known_return(np.arange(float(T)), no[:T], no[:T], gamma)[1][0] == first


def test_bad_parameters_are_refused() -> None:
    x, no = np.zeros(3), np.zeros(3, bool)
    with pytest.raises(ValueError, match=r"The 'gamma' parameter of known_return must be .* Got 1\.0 instead"):
        known_return(x, no, no, 1.0)
    with pytest.raises(ValueError, match="The 'gap' parameter of known_return must have the shape"):
        known_return(x, no, no[:2], 0.5)
