"""Two shards on one GPU, in this process: the numbers of one process. Without a GPU there is nothing to test.

python -m pytest -m "" -n 0 tests/cluster/test_two_shards_on_one_card.py
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import emphatic
from emphatic.cluster import local


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_two_shards_on_one_card_learn_what_one_learner_does(dtype: str) -> None:
    torch = pytest.importorskip("torch", reason="needs torch: pip install 'emphatic[cuda]'")
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    rng = np.random.default_rng(0)
    n, K, T = 50, 512, 3 * 1016
    Phi, R = rng.normal(size=(T + 1, n)) / np.sqrt(n), rng.normal(size=(T, K))
    given: dict[str, Any] = {"alpha": np.linspace(0.001, 0.05, K)[None], "lambda_": 0.8, "rho": rng.uniform(0, 2, T)}
    alone = emphatic.Learner("true_online_etd", n, K, dtype=dtype, engine="cuda")
    expected = np.asarray(alone.run(Phi, R, 0.9, **given))
    with local("true_online_etd", n, K, shards=2, dtype=dtype, engine="cuda") as learner:
        together, theta = learner.run(Phi, R, 0.9, **given), learner.theta
    tolerance = 1e-10 if dtype == "float64" else 1e-4
    assert np.abs(expected).max() > 0.01
    np.testing.assert_allclose(together, expected, rtol=0, atol=tolerance * np.abs(expected).max())
    np.testing.assert_allclose(theta, alone.theta, rtol=0, atol=tolerance * np.abs(alone.theta).max())
