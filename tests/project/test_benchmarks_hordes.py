"""The hordes suite: its gates bite."""

from __future__ import annotations

import pytest

from benchmarks.hordes import (
    Array,
    Horde,
    Learn,
    against_reference,
    by_numpy,
    sample,
)
from benchmarks.measure import GateFailed


def test_a_wrong_learner_fails_its_gate() -> None:
    stream = Horde(5, 40, 30)

    def slipped(k: int, by: float) -> Learn:
        def learn(stream: Horde) -> tuple[Array, Array | None]:
            theta, predictions = by_numpy(stream)
            theta[k] += by
            return theta, predictions

        return learn

    assert len(list(against_reference("right", stream, by_numpy))) == 2
    for k in sample(40):
        with pytest.raises(GateFailed, match="wrong"):
            list(against_reference("wrong", stream, slipped(k, 1e-8)))
