"""A researcher's instrument: own rules, several tasks, other weights, fresh runs, figures, and who watches."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from emphatic import Learner, Rule, problems
from emphatic.nexting.cli import app
from emphatic.problems import MDP
from emphatic.studies import Recorded, Sweep, sweep
from emphatic.studies import pages as page
from emphatic.studies.sweeps import fingerprint
from tests.support import elementwise_rules

RUNNER = CliRunner()
OWN = """
from emphatic import Rule


def step(step, memory, x, x_next, g):
    alpha, I, lambda_, rho, gamma_next, delta, damping = step
    s = alpha * rho * delta / (1.0 + damping * g[0])
    return ((1.0,),), ((s, 0.0),), ()


vectors = {"weights": ("theta",), "traces": (), "memory": ()}
damped = Rule("damped_td", step, **vectors, extra=("damping",), defaults={"damping": 1.0})
"""


def _step(step: Any, memory: Any, x: Any, x_next: Any, g: Any) -> Any:
    alpha, I, lambda_, rho, gamma_next, delta = step
    s = alpha * rho * delta
    return ((1.0,),), ((s, 0.0),), ()


def _other_step(step: Any, memory: Any, x: Any, x_next: Any, g: Any) -> Any:
    alpha, I, lambda_, rho, gamma_next, delta = step
    s = 0.5 * alpha * rho * delta
    return ((1.0,),), ((s, 0.0),), ()


def _half_td(step: Any, memory: Any, sums: Any) -> Any:
    """Of an elementwise rule."""
    alpha, I, lambda_, rho, gamma_next, delta = step
    (gamma,) = memory
    c = rho * gamma * lambda_
    w = 0.5 * alpha * delta
    return ((1.0, w * c), (0.0, c)), (w, c, rho * I), (gamma_next,)


#: TD(0), and half of it.
PLAIN = Rule("plain_td", _step, weights=("theta",), traces=(), memory=())
HALF = Rule("plain_td", _other_step, weights=("theta",), traces=(), memory=())


# ---------------------------------------------------------------------- own rules


def test_a_rule_of_ones_own_is_swept_beside_the_others(tmp_path: Path) -> None:
    grid = {"rule": ["td", PLAIN], "alpha": [0.01, 0.02], "lambda": 0}
    found = sweep("chain", grid, runs=2, steps=300, out=tmp_path, jobs=2)
    assert found.rules == ["td", "td", "plain_td", "plain_td"]
    np.testing.assert_allclose(found.mean[2:], found.mean[:2], rtol=1e-12)  # at λ = 0 it is td
    assert json.loads((tmp_path / "summary.json").read_text("utf-8"))["best"][1]["rule"] == "plain_td"
    assert "plain_td" in (tmp_path / "report.html").read_text("utf-8")
    log = Recorded(Phi=np.eye(4)[np.arange(60) % 4], R=np.ones(59), gamma_next=0.5)
    assert sweep(log, {"rule": PLAIN, "alpha": 0.1}).mean.shape == (1, 1)


@pytest.mark.plain
def test_an_edited_rule_is_another_sweep(tmp_path: Path) -> None:
    """What a stopped sweep goes on from includes the rule's source, not only its name."""
    assert fingerprint(PLAIN) != fingerprint(HALF)
    assert fingerprint(PLAIN) == fingerprint(replace(PLAIN))

    def stop(done: int, total: int) -> None:
        if done > 400:
            raise KeyboardInterrupt

    def swept(rule: Rule, **more: Any) -> Any:
        return sweep("chain", {"rule": rule, "alpha": 0.02}, runs=4, steps=200, out=tmp_path, **more)

    with pytest.raises(KeyboardInterrupt):
        swept(PLAIN, progress=stop)
    went: list[int] = []
    half = swept(HALF, progress=lambda done, total: went.append(done))
    assert went[0] == 0
    alone = sweep("chain", {"rule": "td", "alpha": 0.01, "lambda": 0}, runs=4, steps=200)
    np.testing.assert_allclose(half.mean, alone.mean, rtol=1e-12)
    again: list[int] = []
    swept(PLAIN, progress=lambda done, total: again.append(done))
    assert again[0] > 400


@pytest.mark.plain
def test_an_elementwise_rule_is_swept_beside_the_others() -> None:
    mine = replace(elementwise_rules.WRITTEN_BOTH_WAYS["td"], name="elementwise_td")
    grid = {"rule": ["td", mine], "alpha": [0.01, 0.02], "lambda": [0, 0.9]}
    found = sweep("chain", grid, runs=2, steps=100, rerun=2)
    np.testing.assert_allclose(found.mean[4:], found.mean[:4], rtol=1e-9)
    assert found.rules[4:] == ["elementwise_td"] * 4
    edited = replace(mine, function=_half_td)
    assert fingerprint(edited) != fingerprint(mine)
    with pytest.raises(ValueError, match="'stepsize' parameter must be None for 'elementwise_td'"):
        sweep("chain", grid | {"rule": mine, "stepsize": "auto"}, runs=1, steps=10)


@pytest.mark.parametrize("problem", [len, lambda states: problems.chain(), 3])
def test_what_makes_no_problem_is_refused(problem: Any) -> None:
    with pytest.raises(ValueError, match="'problem' parameter of sweep must be a name, an MDP"):
        sweep(problem, {"rule": "td", "alpha": 0.1}, runs=1, steps=10)


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (3, "'rule' parameter must be one of td"),
        (_step, "'rule' parameter must be one of td"),
        ([PLAIN, HALF], "'rule' parameter of sweep must have a name of its own. Got two rules called 'plain_td'"),
    ],
)
def test_what_is_no_rule_is_refused(rule: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        sweep("chain", {"rule": rule, "alpha": 0.1}, runs=1, steps=10)


@pytest.mark.long
def test_the_command_imports_a_rule(tmp_path: Path) -> None:
    """From the folder in which it is given, in every process; its own parameters come from a file."""
    (tmp_path / "my_rules.py").write_text(OWN)
    (tmp_path / "sweep.toml").write_text(
        'problem = "chain"\nruns = 2\nsteps = 100\n[[grid]]\nrule = ["td", "my_rules:damped"]\n'
        "alpha = [0.01, 0.02]\nlambda = 0\ndamping = [0, 1]\n"
    )
    command = [
        sys.executable,
        "-m",
        "emphatic.nexting.cli",
        "sweep",
        "--config",
        "sweep.toml",
        "--out",
        "out",
        "--jobs",
        "2",
    ]
    plain = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    subprocess.run(command, check=True, cwd=tmp_path, stdout=subprocess.DEVNULL, env=plain)
    rows = pq.read_table(tmp_path / "out" / "settings.parquet").to_pylist()
    assert [(row["rule"], row["damping"]) for row in rows[2:4]] == [("damped_td", 0.0), ("damped_td", 1.0)]
    assert rows[2]["mean"] == pytest.approx(rows[0]["mean"], rel=1e-9)


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("no_such_module:x", "rule no_such_module:x: the module 'no_such_module' cannot be imported"),
        ("emphatic:no_such_rule", "rule emphatic:no_such_rule: the module 'emphatic' has no 'no_such_rule'"),
        ("emphatic:GVF", "rule emphatic:GVF: must be an emphatic.Rule or ElementwiseRule. Got <class"),
        (":x", "rule :x: a rule of your own is given as MODULE:NAME"),
        ("emphatic:", "rule emphatic:: a rule of your own is given as MODULE:NAME"),
    ],
)
def test_rules_that_the_command_cannot_import(rule: str, said: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    result = RUNNER.invoke(app, ["sweep", "chain", "--rules", rule, "--alpha", ".1"])
    assert result.exit_code == 2
    assert said in result.output


# ---------------------------------------------------------------------- tasks and weights


@pytest.mark.plain
def test_the_error_of_several_tasks_is_their_mean() -> None:
    """Each task by the reference, with α = 0 where it is not active; gtd2 would go on learning with ρ = 0 alone."""
    for rule in ("etd", "gtd2"):
        found = sweep("four_rooms", {"rule": rule, "alpha": [0.01, 0.05], "lambda": 0.5}, runs=2, steps=40, every=4)
        for i, alpha in enumerate((0.01, 0.05)):
            errors = []
            for k in range(8):
                task = problems.four_rooms(k)
                stream = task.simulate(40, seed=(0, 1))
                learner = Learner(rule, 12, engine="reference")
                given = stream.inputs(rule) | {"lambda_": 0.5, "alpha": alpha * stream.active}
                errors.append(learner.run(**given, probe=task.probe, predictions=False)[1])
            mean = np.mean(errors, axis=0)
            assert found.mean[i, 1] == pytest.approx(mean[::4].mean(), rel=1e-9)
            assert found.curve[i, 1] == pytest.approx(mean[found.points], rel=1e-5)


@pytest.mark.plain
def test_a_rule_without_interest_where_the_policy_is_undefined() -> None:
    """Allowed in Four Rooms; refused where there is interest of another size."""
    grid = {"rule": "htd", "alpha": 0.01, "lambda": 0}
    assert sweep("four_rooms", grid, runs=1, steps=50).mean.shape == (1, 1)
    with pytest.raises(
        ValueError, match=r"must use interest, which chain\(I=.*\) has where its target policy is defined"
    ):
        sweep(functools.partial(problems.chain, I=[1, 2, 1, 1, 1]), grid, runs=1, steps=50)


@pytest.mark.plain
def test_errors_are_weighted_by_interest_or_as_given() -> None:
    grid = {"rule": "etd", "alpha": 0.0, "lambda": 1}
    own, other = (sweep("example_9_4", grid, runs=1, steps=20, theta=[4, 0], d=d) for d in (None, [1, 1, 1, 1]))
    assert own.mean.tolist() == [[0.0]]
    assert other.mean[0, 0] == pytest.approx(np.sqrt((1 + 4 + 1) / 4))
    assert own.plan.identity != other.plan.identity
    assert other.plan.source.baselines(1)["best linear approximation"] == pytest.approx(0.5)
    with pytest.raises(ValueError, match="'d' parameter of sweep must be a number or have shape"):
        sweep("example_9_4", grid, runs=1, steps=20, d=[1, 2])
    with pytest.raises(ValueError, match="'d' parameter of sweep must not be 0 in every state"):
        sweep("example_9_4", grid, runs=1, steps=20, d=[0, 0, 0, 0])
    never = MDP(np.eye(5)[1:].reshape(4, 1, 5), 1.0, 1.0, [1.0], I=0.0)
    with pytest.raises(ValueError, match="there is no interest where behaviour goes"):
        never.rmsve(np.zeros(4))


# ---------------------------------------------------------------------- figures


def test_points_are_closer_at_the_beginning_unless_their_number_is_given() -> None:
    found = sweep("chain", {"rule": "td", "alpha": 0.01, "lambda": 0}, runs=1, steps=5000, every=5)
    points = found.points
    assert (points[0], points[-1]) == (0, 4995)
    assert 40 <= len(points) <= 50
    assert (points % 5 == 0).all()
    assert (points < 100).sum() >= 8
    even = sweep("chain", {"rule": "td", "alpha": 0.01, "lambda": 0}, runs=1, steps=5000, points=6).points
    assert np.ptp(np.diff(even)) <= 1


@functools.cache
def found_for_papers() -> Sweep:
    grid = {"rule": ["td", "etd", "abtd"], "alpha": "2^-8..2^6:*8", "lambda": [0, 0.9], "zeta": [0, 0.5]}
    return sweep("collision", grid, runs=3, steps=100)


@pytest.mark.plain
@pytest.mark.parametrize("kind", ["alpha", "rules", "lambda", "steps", "runs"])
def test_figures_for_papers(kind: str, tmp_path: Path) -> None:
    found = found_for_papers()
    kinds = (("svg", b"<?xml"), ("pdf", b"%PDF"), ("png", b"\x89PNG"))
    for suffix, begins in kinds if kind == "alpha" else kinds[:1]:
        path = tmp_path / f"figure.{suffix}"
        figure = found.plot(kind, path)
        assert path.read_bytes().startswith(begins)
    axes = [place for place in figure.axes if place.get_visible()]
    assert len(axes) == (3 if kind == "alpha" else 1)
    drawn = {line.get_label(): line.get_xydata() for line in axes[0].get_lines()}
    if kind == "alpha":
        here = np.flatnonzero((np.array(found.rules) == "td") & (found.parameters["lambda"] == 0.9))
        want = np.where(found.diverged[here].any(axis=1), 1e9, found.mean[here].mean(axis=1))
        np.testing.assert_allclose(drawn["λ = 0.9"], np.column_stack([found.parameters["alpha"][here], want]))
        assert axes[0].get_xscale() == "log"
    if kind == "steps":
        assert axes[0].get_xscale() == "log"
        np.testing.assert_allclose(drawn["td"][:, 0], found.points + 1)
        np.testing.assert_allclose(drawn["td"][:, 1], found.curve[found.choose()[0]].mean(axis=0), rtol=1e-6)


def test_figures_that_cannot_be_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = sweep("chain", {"rule": PLAIN, "alpha": 0.1}, runs=1, steps=10)
    with pytest.raises(ValueError, match=r"must be 'alpha', 'rules', 'lambda', 'steps' or 'runs'\. Got"):
        found.plot("beta")
    with pytest.raises(ValueError, match=r"Figures are written as svg, pdf, png\. Got 'gif'"):
        found.plot("alpha", tmp_path / "a.gif")
    for kind in ("lambda", "rules"):
        with pytest.raises(ValueError, match="there is nothing to draw"):
            found.plot(kind)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'emphatic\[plot\]'"):
        found.plot("alpha")


@pytest.mark.plain
def test_figures_by_the_command(tmp_path: Path) -> None:
    words = "--rules td --alpha .01,.1 --lambda 0,.9 --runs 2 --steps 50 --rerun 2 --figures"
    result = RUNNER.invoke(app, ["sweep", "chain", *words.split(), "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert {"alpha.svg", "rules.svg", "lambda.svg", "steps.svg"} < {path.name for path in tmp_path.iterdir()}
    assert "2 runs to choose and 2 others to report" in " ".join(result.output.split())


@pytest.mark.plain
def test_the_page_draws_the_error_against_lambda() -> None:
    found = sweep("chain", {"rule": ["td", PLAIN], "alpha": [0.01, 0.1], "lambda": [0, 0.9]}, runs=2, steps=100)
    (td,) = page._along(found)
    mean = found.mean.mean(axis=1)
    assert (td["rule"], td["x"].tolist()) == ("td", [0.0, 0.9])
    assert td["mean"].tolist() == pytest.approx([min(mean[[0, 2]]), min(mean[[1, 3]])])
    text = page.page(found)
    assert '<section id="lambda"' in text
    assert "On logarithmic axes" in text


# ---------------------------------------------------------------------- who watches


@pytest.mark.plain
def test_learning_curves_are_tracked() -> None:
    """As TensorBoard's add_scalar and MLflow's log_metric take them."""
    calls: list[tuple[str, float, int]] = []

    def add_scalar(tag: str, scalar_value: float, global_step: int) -> None:
        calls.append((tag, scalar_value, global_step))

    found = sweep("chain", {"rule": ["td", "etd"], "alpha": 0.01, "lambda": 0}, runs=2, steps=90, track=add_scalar)
    assert [step for tag, _, step in calls if tag == "td/RMSVE"] == found.points.tolist()
    values = [value for tag, value, _ in calls if tag == "etd/RMSVE"]
    assert values == pytest.approx(found.curve[1].mean(axis=0), rel=1e-6)
