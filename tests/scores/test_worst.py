"""The largest error of each question, in blocks of any size."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from emphatic.scores.measures import WorstErrors


@pytest.mark.parametrize("edges", [[0, 90], [0, 1, 44, 45, 46, 89, 90], [0, 45, 90]])
def test_the_worst_is_found_in_the_second_half(edges: list[int]) -> None:
    rng = np.random.default_rng(0)
    Q, T, first = 5, 90, 45
    ours, G, known = rng.normal(size=(T, Q)), rng.normal(size=(Q, T)), rng.random((Q, T)) < 0.8
    known[4, first:] = False  # nothing to be wrong about
    ours[50, 0] = np.nan
    G[1, 60] = np.nan
    time = np.arange(T, dtype=np.float64) * 60.0
    worst = WorstErrors(Q, first)
    for a, b in pairwise(edges):
        worst.add(a, ours[a:b], G[:, a:b], known[:, a:b], time[a:b])
    errors = np.where(known & (np.arange(T) >= first), np.abs(ours.T - G), -1.0)
    expected = np.nanargmax(errors, axis=1)
    np.testing.assert_array_equal(worst.row[:4], expected[:4])
    np.testing.assert_array_equal(worst.time[:4], 60.0 * expected[:4])
    for q in range(4):
        assert worst.prediction[q] == ours[expected[q], q]
        assert worst.actual[q] == G[q, expected[q]]
    assert worst.row[4] == -1
    assert np.isnan(worst.prediction[4])
