"""The studies suite: its grid is the study's, and its gates bite."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import studies
from benchmarks.measure import GateFailed
from benchmarks.studies import SMALL, Growth, Simulation, Study, against_reference, alike
from emphatic import rules
from emphatic.studies import sweep
from emphatic.studies.grid import settings


def test_the_targets_are_all_there() -> None:
    cases = studies.cases(quick=False)
    study, rooms = [case for case in cases if isinstance(case, Study)]
    assert (rooms.problem, rooms.grid, rooms.runs, rooms.steps) == ("four_rooms", study.grid, 50, 50_000)
    assert (rooms.every, rooms.tasks, rooms.jobs, rooms.minutes) == (10, 8, 2, 120)
    wide = [case for case in cases if isinstance(case, Growth) and case.what.startswith("n = 32, ")]
    assert ({case.at_most for case in wide}, tuple(case.rule for case in wide)) == ({60}, rules.names())
    grid = settings(study.grid)
    assert (len(grid), sum(map(len, grid)), study.runs, study.steps) == (11, 16_416, 50, 20_000)
    assert (study.jobs, study.part % study.jobs, study.minutes) == (2, 0, 15)
    simulated = [(case.T, case.runs, case.millions) for case in cases if isinstance(case, Simulation)]
    assert simulated == [(1_000_000, None, 10), (20_000, 50, 10)]


def test_errors_are_compared_each_by_its_own_size() -> None:
    want = np.array([1e-3, 1e200, np.inf])
    assert alike("right", want * (1 + 1e-12), want).error < 1e-11
    for wrong in (
        [1e-3 * (1 + 1e-9), 1e200, np.inf],
        [1e-3, np.inf, np.inf],
        [1e-3, 1e200, 1e300],
        [1e-3, np.nan, 1.0],
    ):
        with pytest.raises(GateFailed, match="wrong"):
            alike("wrong", np.array(wrong), want)


@pytest.mark.parametrize(("field", "slip"), [("mean", 1 + 1e-9), ("final", 1 + 1e-9), ("curve", 1 + 1e-5)])
def test_a_wrong_sweep_fails_its_gate(field: str, slip: float) -> None:
    found = sweep("collision", SMALL, runs=1, steps=100)
    assert len(list(against_reference("right", found))) == 3
    wrong = getattr(found, field) * np.float64(slip)
    with pytest.raises(GateFailed, match=f"wrong, td: {field}"):
        list(against_reference("wrong", replace(found, **{field: wrong})))
