"""The studies suite: its grid is the study's, its alternatives learn and walk as they should, and its gates bite."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks import studies
from benchmarks.measure import GateFailed
from benchmarks.studies import whole
from benchmarks.studies.alternatives import BLOCK, walk
from benchmarks.studies.beside import NUMPY, Beside
from benchmarks.studies.check import against_reference, alike, by_reference
from benchmarks.studies.collision import SMALL, Study
from benchmarks.studies.growth import Growth
from benchmarks.studies.simulation import Simulation
from emphatic import problems, rules
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


def test_a_whole_study_out_of_time_is_to_be_called_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for count in (1, 2):
        assert whole.run("four-rooms", 1, 0.0, tmp_path, quick=True) == 3
        out = capsys.readouterr().out
        assert f"four-rooms: 0.0% done in {count} calls, " in out
        assert out.endswith("not finished: call it again\n")
        calls = json.loads((tmp_path / "four-rooms" / "calls.json").read_text("utf-8"))
        assert len(calls) == count
        assert calls[-1]["cpu"] > 0.0


@pytest.mark.parametrize("rule", ["td", "etd"])
@pytest.mark.parametrize("which", NUMPY)
def test_numpy_over_settings_is_the_rule(which: str, rule: str) -> None:
    """For every setting, over steps that do not fill their last block."""
    given = _, mdp, stream, alpha, lambda_ = Beside(rule, 2 * BLOCK + 3).given(2 * BLOCK + 3)
    made = NUMPY[which](*given)
    learner, want = by_reference(rule, mdp, stream, {"alpha": alpha, "lambda_": lambda_})
    assert not learner.frozen.any()
    assert made.shape == (2 * BLOCK + 3, 228)
    np.testing.assert_allclose(made, want, rtol=1e-11)


def test_the_loop_in_python_takes_the_steps_that_there_are() -> None:
    mdp = problems.collision()
    names = ("R", "gamma_next", "rho")
    made, stream = walk(mdp, 3_000, 1), mdp.simulate(3_000)
    assert (made["Phi"] == mdp.Phi[made["states"]]).all()

    def steps(states: NDArray[np.int64], columns: list[Any]) -> set[tuple[float, ...]]:
        return set(
            zip(states[:-1].tolist(), states[1:].tolist(), *(column.tolist() for column in columns), strict=True)
        )

    ours = steps(stream.states, [getattr(stream, name) for name in names])
    assert steps(made["states"], [made[name] for name in names]) == ours


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
