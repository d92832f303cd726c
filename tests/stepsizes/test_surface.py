"""Step sizes where learners are made for you: hordes, environments, sweeps and nexting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emphatic
from emphatic import GVF, Horde, stepsizes
from emphatic import features as f
from emphatic.nexting.runs.settings import Settings
from emphatic.stepsizes import Auto, Autostep, Constant
from emphatic.studies import sweep

pytestmark = pytest.mark.plain

LOG = {"x": np.sin(np.arange(700.0) / 9.0)}


def horde(**options: Any) -> Horde:
    maker = f.Features([f.Bias(), f.SoftBins("x", bins=3)])
    return Horde([GVF("x", horizon=2), GVF("x", horizon=9)], maker, engine="reference", **options)


@pytest.mark.parametrize("method", [None, *stepsizes.names()])
def test_an_alpha_of_0_freezes(method: str | None) -> None:
    """From the start and after ``cut`` every rule; in mid-sequence all but those whose traces hold α."""
    rng = np.random.default_rng(0)
    Phi, R, rho = rng.normal(size=(13, 3)), rng.normal(size=12), rng.uniform(0.5, 1.5, 12)
    given = {"beta": 0.9, "pi": 0.5, "mu": 0.5, "xi": 0.5, "decay": 0.5, "period": 2.0}
    fits = emphatic.rules.names() if method is None else _fitting(method)
    assert len(fits) > 1
    for rule in fits:
        learner = emphatic.Learner(rule, 3, engine="reference", stepsize=method)
        extra = {name: given[name] for name in learner.rule.extra if name not in learner.rule.defaults}
        names = [name for name in learner.rule.weights if name in ("theta", "w", "alphas")]

        def moves(alpha: float, learner: Any = learner, extra: Any = extra, names: Any = names) -> bool:
            before = [np.copy(getattr(learner, name)) for name in names]
            learner.run(Phi, R, 0.9, alpha=alpha, lambda_=0.8, rho=rho, **extra)
            return not all(np.array_equal(x, getattr(learner, name)) for x, name in zip(before, names, strict=True))

        assert not moves(0.0)
        assert moves(0.05)
        assert moves(0.0) == rule.startswith(("true_online", "bounded_etd"))
        learner.cut()
        assert not moves(0.0)


def _fitting(method: str) -> list[str]:
    """The rules that a method is for."""
    return [rule for rule in emphatic.rules.names() if _fits(method, rule)]


def _fits(method: str, rule: str) -> bool:
    try:
        stepsizes.get(method).rule(emphatic.rules.get(rule))
    except ValueError:
        return False
    return True


def test_a_horde_learns_with_a_method() -> None:
    """α is the rate times alpha times what the method says; both are 1 by default."""
    one = horde(stepsize=Auto(0.3))
    assert one.setup.rates.tolist() == [1.0, 1.0]
    predictions = one.run(LOG)
    assert one.learner.stepsize == Auto(0.3)
    assert np.isfinite(predictions).all()
    fixed = horde(rate=1.0, alpha=0.05).run(LOG)
    assert np.array_equal(horde(stepsize=Constant(0.05)).run(LOG), fixed)
    assert np.array_equal(horde(stepsize="constant", rate=0.05).run(LOG), fixed)
    with pytest.raises(ValueError, match="'stepsize' parameter must be one of"):
        horde(stepsize="fast")


def test_questions_of_an_agent() -> None:
    gymnasium = pytest.importorskip("gymnasium")
    from emphatic.gymnasium import LearnGVFs, LearnGVFsVector

    maker = f.Features([f.Bias()])
    env = LearnGVFs(gymnasium.make("CartPole-v1"), [GVF("reward", gamma=0.9)], maker, stepsize="auto")
    env.reset(seed=1)
    for _ in range(8):
        *_, info = env.step(0)
    assert env.episodes.learners[0].stepsize == Auto()
    assert info["predictions"][0] > 0.1
    vector = gymnasium.make_vec("CartPole-v1", 2)
    with pytest.raises(ValueError, match="'weights' parameter of LearnGVFs must be 'several'"):
        LearnGVFsVector(vector, [GVF("reward", gamma=0.9)], f.Features([f.Bias()]), stepsize="autostep")


def test_a_sweep_has_an_axis_of_methods(tmp_path: Path) -> None:
    grid = {"rule": ["td", "true_online_etd"], "stepsize": ["auto", Autostep(mu=0.1)], "alpha": [0.5, 1.0], "lambda": 0}
    found = sweep("chain", grid, runs=2, steps=200, every=20, out=tmp_path)
    assert found.table.num_rows == 16
    assert found.table["stepsize"].to_pylist()[0] == "auto"
    assert [(row["rule"], row["stepsize"]) for row in found.best] == [
        (rule, method) for rule in ("td", "true_online_etd") for method in ("auto", "autostep(mu=0.1)")
    ]
    assert "td, autostep(mu=0.1)" in (tmp_path / "report.html").read_text("utf-8")
    alone = sweep("chain", {"rule": "td", "stepsize": "auto", "lambda": 0}, runs=2, steps=200, every=20)
    assert np.allclose(alone.mean, found.mean[1:2], rtol=1e-12)
    with pytest.raises(ValueError, match="'autostep' is for the rules"):
        sweep("chain", {"rule": "gtd", "stepsize": "autostep"}, runs=1, steps=10)
    with pytest.raises(ValueError, match="'alpha' parameter of sweep must be given"):
        sweep("chain", {"rule": "td", "stepsize": [None, "auto"]}, runs=1, steps=10)


@pytest.mark.parametrize("compiled", [True])
def test_nexting_takes_a_method(compiled: bool, tmp_path: Path) -> None:
    result = emphatic.nexting.run(LOG, horizons=[2], ask=["x@2"], stepsize="auto")
    horde = result.model.horde
    assert horde is not None
    assert horde.learner.stepsize == Auto()
    assert horde.setup.rates.tolist() == [1.0]
    again = emphatic.nexting.run(LOG, horizons=[2], ask=["x@2"], config={"stepsize": {"name": "auto", "rate": 0.1}})
    assert again.predictions.to_pandas().equals(result.predictions.to_pandas())
    path = tmp_path / "settings.toml"
    path.write_text(result.settings.toml(), "utf-8")
    assert Settings.read(path) == result.settings
    with pytest.raises(ValueError, match="'stepsize' parameter must be one of"):
        emphatic.nexting.run(LOG, stepsize="fast")
    with pytest.raises(ValueError, match="rate"):
        emphatic.nexting.run(LOG, config={"stepsize": {"name": "auto", "rates": 0.1}})
