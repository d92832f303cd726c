"""``lstd`` and ``elstd`` as rules of a sweep."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from emphatic import LeastSquares, problems
from emphatic.nexting.cli import app
from emphatic.studies import sweep
from emphatic.studies.sources import Recorded


def test_a_sweep_scores_least_squares_beside_td(tmp_path: Path) -> None:
    grids = [
        {"rule": ["lstd", "elstd"], "lambda": [0, 0.5], "ridge": [0.1, 1.0]},
        {"rule": "td", "alpha": [0.01], "lambda": 0},
    ]
    found = sweep("chain", grids, runs=2, steps=300, every=10, out=tmp_path)
    assert found.table.num_rows == 2 * (4 + 4 + 1)
    assert found.table.column("alpha").null_count == 2 * 8
    assert found.table.column("ridge").null_count == 2
    assert [best["rule"] for best in found.best] == ["lstd", "elstd", "td"]
    assert "alpha" not in found.best[0]
    assert {"results.parquet", "report.html"} <= {path.name for path in tmp_path.iterdir()}
    mdp = problems.chain()
    stream = mdp.simulate(300, seed=(0, 1))
    learner = LeastSquares(mdp.n, emphatic=True, ridge=1.0)
    _, errors = learner.run(**stream.inputs("etd") | {"lambda_": 0.5}, probe=mdp.probe, probe_every=10)
    assert found.mean[7, 1] == pytest.approx(errors.mean())
    assert found.final[7, 1] == pytest.approx(mdp.rmsve(learner.theta))


def test_a_log_can_be_swept_with_least_squares() -> None:
    rng = np.random.default_rng(0)
    Phi = rng.normal(size=(201, 3))
    log = Recorded(Phi, Phi[:-1] @ [1.0, 2.0, 3.0], 0.0)
    found = sweep(log, [{"rule": "lstd"}, {"rule": "td", "alpha": 0.01}])
    assert found.final[0, 0] < 0.1 < found.final[1, 0]


def test_what_least_squares_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="alpha"):
        sweep("chain", {"rule": "lstd", "alpha": 0.1}, runs=1, steps=10)
    with pytest.raises(ValueError, match=r"ridge.*between"):
        sweep("chain", {"rule": "lstd", "ridge": -1.0}, runs=1, steps=10)
    with pytest.raises(ValueError, match="theta"):
        sweep("chain", {"rule": "lstd"}, runs=1, steps=10, theta=[0.0, 0.0, 1.0])
    with pytest.raises(ValueError, match="alpha"):
        sweep("chain", {"rule": ["lstd", "td"]}, runs=1, steps=10)
    with pytest.raises(ValueError, match="step size"):
        sweep("chain", {"rule": "lstd"}, runs=1, steps=10).plot("alpha")


def test_the_command_sweeps_ridges_and_forgetting(tmp_path: Path) -> None:
    """Beside a rule with step sizes, which has neither; without a rule that has them they are refused."""
    flags = ["--lambda", ".5", "--runs", "1", "--steps", "50", "--out", str(tmp_path)]
    given = ["sweep", "chain", "--rules", "elstd,td", "--alpha", ".01"]
    result = CliRunner().invoke(app, [*given, "--grid", "ridge=.1,1", "--grid", "forgetting=.99,1", *flags])
    assert result.exit_code == 0, result.output
    settings = pq.read_table(tmp_path / "settings.parquet").select(["rule", "alpha", "ridge", "forgetting"])
    assert [tuple(row.values()) for row in settings.to_pylist()] == [
        *(("elstd", None, ridge, forgetting) for ridge in (0.1, 1.0) for forgetting in (0.99, 1.0)),
        ("td", 0.01, None, None),
    ]
    result = CliRunner().invoke(app, ["sweep", "chain", "--rules", "td", "--grid", "ridge=1", *flags])
    assert (result.exit_code, "ridge" in result.output) == (2, True)
