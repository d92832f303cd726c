"""Reward rates, differential and optimal values, beside plain enumeration of policies."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from emphatic import problems


@pytest.mark.parametrize("seed", range(3))
def test_rates_and_values_are_those_of_all_policies(seed: int) -> None:
    rng = np.random.default_rng(seed)
    S, A = 4, 2
    P, R = rng.dirichlet(np.ones(S), size=(S, A)), rng.normal(size=(S, A))
    rates, values = [], []
    for policy in itertools.product(range(A), repeat=S):
        pi = np.eye(A)[list(policy)]
        mdp = problems.MDP(P, R, 0.9, pi)
        chain, r = P[np.arange(S), policy], R[np.arange(S), policy]
        d = np.linalg.matrix_power(chain, 3000)[0]
        assert mdp.reward_rate == pytest.approx(d @ r, abs=1e-10)
        v = mdp.differential_values
        assert abs(r - d @ r + chain @ v - v).max() < 1e-10
        assert abs(d @ v) < 1e-10
        rates.append(d @ r)
        values.append(np.linalg.solve(np.eye(S) - 0.9 * chain, r))
    assert mdp.optimal_reward_rate == pytest.approx(max(rates), abs=1e-10)
    assert abs(mdp.optimal_values - np.max(values, axis=0)).max() < 1e-9


def test_several_rates_are_refused() -> None:
    mdp = problems.MDP(np.eye(2)[:, None], [[0.0], [1.0]], 1.0, [1.0])
    with pytest.raises(ValueError, match="d_pi is not unique"):
        _ = mdp.reward_rate
