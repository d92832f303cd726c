"""The hordes suite and the studies suite: their gates bite."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import hordes, studies
from benchmarks.hordes import Array, Horde, Learn
from benchmarks.measure import GateFailed
from emphatic.studies import sweep


def test_a_wrong_learner_fails_its_gate() -> None:
    stream = Horde(5, 40, 30)

    def slipped(k: int, by: float) -> Learn:
        def learn(stream: Horde) -> tuple[Array, Array | None]:
            theta, predictions = hordes.by_numpy(stream)
            theta[k] += by
            return theta, predictions

        return learn

    assert len(list(hordes.against_reference("right", stream, hordes.by_numpy))) == 2
    for k in hordes.sample(40):
        with pytest.raises(GateFailed, match="wrong"):
            list(hordes.against_reference("wrong", stream, slipped(k, 1e-8)))


def test_errors_are_compared_each_by_its_own_size() -> None:
    want = np.array([1e-3, 1e200, np.inf])
    assert studies.alike("right", want * (1 + 1e-12), want).error < 1e-11
    for wrong in (
        [1e-3 * (1 + 1e-9), 1e200, np.inf],
        [1e-3, np.inf, np.inf],
        [1e-3, 1e200, 1e300],
        [1e-3, np.nan, 1.0],
    ):
        with pytest.raises(GateFailed, match="wrong"):
            studies.alike("wrong", np.array(wrong), want)


@pytest.mark.parametrize(("field", "slip"), [("mean", 1 + 1e-9), ("final", 1 + 1e-9), ("curve", 1 + 1e-5)])
def test_a_wrong_sweep_fails_its_gate(field: str, slip: float) -> None:
    found = sweep("collision", studies.SMALL, runs=1, steps=100)
    assert len(list(studies.against_reference("right", found))) == 3
    wrong = getattr(found, field) * np.float64(slip)
    with pytest.raises(GateFailed, match=f"wrong, td: {field}"):
        list(studies.against_reference("wrong", replace(found, **{field: wrong})))
