"""Sweeps: the scores are those of learners on their own, the table is the same however the work is done."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import joblib
import numba
import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import emphatic
from emphatic import problems
from emphatic.nexting.cli import app
from emphatic.studies import Recorded, Sweep, sweep
from emphatic.studies import pages as page
from emphatic.studies.grid import parameters, settings
from emphatic.studies.grid import parse_numbers as numbers
from emphatic.studies.sources import Simulated
from emphatic.studies.sweep_config import SweepConfig as Order

RUNNER = CliRunner()
GRID = {"rule": ["td", "true_online_etd"], "alpha": "2^-6, 2^-3, 2^5", "lambda": [0, 0.9]}


def swept(grid: Any = GRID, **more: Any) -> Sweep:
    return sweep("chain", grid, **({"runs": 3, "steps": 700, "every": 3, "points": 7, "seed": 5} | more))


def same(a: Sweep, b: Sweep) -> bool:
    return bool(a.table.equals(b.table)) and bool(a.settings.equals(b.settings))


# ---------------------------------------------------------------------- grids


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("2^-2..2^1", [0.25, 0.5, 1.0, 2.0]),
        ("1..100:*10", [1.0, 10.0, 100.0]),
        ("0..1:+.25", [0.0, 0.25, 0.5, 0.75, 1.0]),
        (".5, 1/4,1-2^-3", [0.5, 0.25, 0.875]),
        ("8..1:*.5", [8.0, 4.0, 2.0, 1.0]),
        (["2^-1", 3], [0.5, 3.0]),
        (np.float32(0.5), [0.5]),
        (np.array(0.5), [0.5]),
    ],
)
def test_numbers(text: Any, want: list[float]) -> None:
    assert numbers("alpha", text) == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize(
    "text", ["", "a", "1..0", "0..1", "1..2:*1", "nan", "1/0", [], None, "__import__('os')", "1..9:+0"]
)
def test_numbers_that_are_none(text: Any) -> None:
    with pytest.raises(ValueError, match="'alpha' parameter of sweep"):
        numbers("alpha", text)


def test_a_rule_takes_its_own_parameters() -> None:
    assert list(parameters(emphatic.rules.get("td"))) == ["alpha", "lambda"]
    assert list(parameters(emphatic.rules.get("tdrc"))) == ["alpha", "lambda", "eta", "beta", "kappa"]
    assert list(parameters(emphatic.rules.get("abtd"))) == ["alpha", "zeta", "xi"]  # it has no λ
    made = settings({"rule": ["td", "gtd", "abtd"], "alpha": [0.1, 0.2], "lambda": [0, 1], "eta": [1, 2], "zeta": 0})
    assert [(one.name, len(one)) for one in made] == [("td", 4), ("gtd", 8), ("abtd", 2)]
    assert made[1].values["eta"].tolist() == [1, 2] * 4


@pytest.mark.parametrize(
    ("grid", "said"),
    [
        ({"alpha": 0.1}, "'rule' parameter of sweep must be one or several of td"),
        ({"rule": "tdd", "alpha": 0.1}, "must be one of td"),
        ({"rule": "td"}, "'alpha' parameter of sweep must be given"),
        ({"rule": "td", "alpha": -1}, "'alpha' parameter of sweep must be between 0"),
        ({"rule": "td", "alpha": 1, "lambda": 2}, "'lambda' parameter of sweep must be between 0 and 1. Got 2.0"),
        ({"rule": "td", "alpha": 1, "eta": 2}, "have only parameters of its rules, alpha, lambda. Got 'eta'"),
        ({"rule": "td", "alpha": 1, "lamda": 2}, "Did you mean 'lambda'"),
        ({"rule": "gtd", "alpha": 1, "eta": 2, "beta": 1}, "'eta' parameter of sweep must be given, or 'beta'"),
        ({"rule": "etd_beta", "alpha": 1}, "'decay' parameter of sweep must be given for 'etd_beta'"),
        ({"rule": "abtd", "alpha": 1}, "'xi' parameter of sweep must be given for 'abtd'"),
        ([], "'grid' parameter"),
        ("td", "'grid' parameter"),
    ],
)
def test_bad_grids(grid: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("'", "['\"]")):
        sweep("chain", grid, runs=1, steps=10)


# ---------------------------------------------------------------------- scores


def test_scores_are_those_of_a_learner_alone() -> None:
    found = swept()
    chain = problems.chain()
    rows = found.table.to_pylist()
    assert [row["setting"] for row in rows] == [s for s in range(12) for _ in range(3)]
    assert [row["run"] for row in rows] == [0, 1, 2] * 12
    assert found.points.tolist() == [0, 117, 234, 348, 465, 582, 699]
    frozen = 0
    for row in rows:
        stream = chain.simulate(700, seed=(5, row["run"]))
        learner = emphatic.Learner(row["rule"], 3, engine="reference")
        given = stream.inputs(row["rule"]) | {"alpha": row["alpha"], "lambda_": row["lambda"]}
        given.pop("lambda_next", None)
        _, error = learner.run(**given, probe=chain.probe, predictions=False, on_divergence="freeze")
        assert row["diverged"] == (learner.frozen or max(error[::3].mean(), row["final"]) > 1e6 * error[0])
        curve = np.where(learner.frozen & (found.points > learner.steps), np.inf, error[found.points])
        with np.errstate(over="ignore"):
            assert row["curve"] == pytest.approx(curve.astype(np.float32), rel=1e-6)
        frozen += learner.frozen
        if learner.frozen:
            assert row["mean"] == row["final"] == np.inf
        elif not row["diverged"]:
            assert row["mean"] == pytest.approx(error[::3].mean(), rel=1e-9)
            assert row["final"] == pytest.approx(chain.rmsve(learner.theta), rel=1e-9)
    assert 3 <= frozen <= sum(row["diverged"] for row in rows) < 20


def test_means_and_standard_errors() -> None:
    found = swept()
    for s, row in enumerate(found.settings.to_pylist()):
        own = np.array([r["mean"] for r in found.table.to_pylist() if r["setting"] == s])
        if row["diverged"] == 0:
            assert row["mean"] == pytest.approx(own.mean())
            assert row["mean_se"] == pytest.approx(np.sqrt(((own - own.mean()) ** 2).sum() / 2 / 3))
    for best in found.best:
        means = [row["mean"] for row in found.settings.to_pylist() if row["rule"] == best["rule"]]
        assert best["mean"] == min(means)
        assert best["diverged"] == 0


def test_as_many_settings_as_steps() -> None:
    """What a step brings is of all learners, and not one number each."""
    alpha = [0.01 * k for k in range(1, 8)]  # from eight on there would be a kernel for each n
    long, short = (sweep("chain", {"rule": "td", "alpha": alpha, "lambda": 0}, runs=1, steps=T) for T in (14, 7))
    np.testing.assert_allclose(short.curve[:, :, :7], long.curve[:, :, :7], rtol=1e-6)
    piece = sweep(Recorded(**log(70)), {"rule": "td", "alpha": alpha, "lambda": 0}, points=10)
    alone = sweep(Recorded(**log(70)), {"rule": "td", "alpha": alpha[4], "lambda": 0}, points=10)
    np.testing.assert_allclose(piece.curve[4], alone.curve[0], rtol=1e-6)


def test_first_weights() -> None:
    """θ → 2θ from θ = 1: off-policy TD grows, emphatic TD does not."""
    found = sweep("two_theta", {"rule": ["td", "etd"], "alpha": 0.01}, theta=[1], runs=4, steps=20_000, every=100)
    assert found.mean[0].min() > 1e3 * found.curve[0, 0, 0]
    assert found.final[1].max() < 0.1 * found.curve[1, 0, 0]
    with pytest.raises(ValueError, match="'theta' parameter of sweep must be 1 finite numbers"):
        sweep("two_theta", {"rule": "td", "alpha": 0.1}, theta=[1, 2])


def test_first_weights_that_are_the_answer_are_no_measure_of_divergence() -> None:
    found = sweep("boyan", {"rule": "td", "alpha": [0.1, 100.0], "lambda": 0}, theta=[-24, -16, -8, 0], runs=1)
    assert found.curve[0, 0, 0] < 1e-9 < 1e-3 < found.mean[0, 0] < 5.0
    assert found.diverged[:, 0].tolist() == [False, True]
    assert found.about()["theta"] == (-24, -16, -8, 0)


def test_a_seed_that_is_given_stays() -> None:
    """Then all runs are of one problem."""
    ours = functools.partial(problems.collision, seed=3)
    found = sweep(ours, {"rule": "td", "alpha": 0.01}, runs=3, steps=100)
    source = found.plan.source
    assert isinstance(source, Simulated)
    np.testing.assert_array_equal(source.mdp(1).Phi, problems.collision(3).Phi)
    assert (Simulated(problems.collision, 100).mdp(1).Phi != Simulated(problems.collision, 100).mdp(2).Phi).any()
    assert found.about()["problem"] == "collision(seed=3)"


def test_rules_that_would_learn_something_else_are_refused() -> None:
    """GQ is for action values: of state values it learns those of behaviour."""
    grid = {"rule": "gq", "alpha": 0.01, "lambda": 0}
    with pytest.raises(ValueError, match="'rule' parameter of sweep must learn state values"):
        sweep("chain", grid, runs=1, steps=10)
    Simulated(problems.random_walk, 10).check(settings(grid)[0])  # on-policy it is gtd
    with pytest.raises(ValueError, match="'rule' parameter of sweep must use interest, which example_9_4 has"):
        sweep("example_9_4", grid | {"rule": "htd"}, runs=1, steps=10)
    T = 400
    outcome = (np.zeros(T), np.ones(T, bool))
    with pytest.raises(ValueError, match="'rule' parameter of sweep must learn state values"):
        sweep(Recorded(**log(), rho=np.zeros(T), outcome=outcome), grid)
    with pytest.raises(ValueError, match="'rule' parameter of sweep must use interest, which the log has"):
        sweep(Recorded(**log(), I=0.5), grid | {"rule": "vtrace"})


@pytest.mark.plain
def test_second_parameters_reach_their_learners() -> None:
    """On collision, whose features are drawn anew in every run; ζ is ABTD's own way to say ξ."""
    grid = [
        {"rule": "gtd", "alpha": 0.05, "lambda": 0.5, "eta": [0.1, 4]},
        {"rule": "etd_beta", "alpha": 0.01, "decay": [0.2, 1], "lambda": 0},
        {"rule": "abtd", "alpha": 0.05, "zeta": [0, 0.75]},
    ]
    found = sweep("collision", grid, runs=2, steps=300, every=300)
    for row in found.table.to_pylist():
        mdp = problems.collision(seed=(0, row["run"]))
        given = mdp.simulate(300, seed=(0, row["run"])).inputs(row["rule"]) | {"alpha": row["alpha"]}
        if row["lambda"] is not None:
            given |= {"lambda_": row["lambda"]}
            given.pop("lambda_next", None)
        for name in ("eta", "decay"):
            if row[name] is not None:
                given[name] = row[name]
        if row["zeta"] is not None:
            given["xi"] = mdp.xi(row["zeta"])
        learner = emphatic.Learner(row["rule"], 6, engine="reference")
        learner.run(**given, predictions=False)
        assert row["mean"] == pytest.approx(0.68908, abs=5e-6)  # every 300th step is the first
        assert row["final"] == pytest.approx(mdp.rmsve(learner.theta), rel=1e-9)
    finals = found.final.mean(axis=1)
    assert len(np.unique(finals.round(9))) == 6


@pytest.mark.parametrize("bounds", ["1, inf", [1, np.inf], [1, "inf"]])
def test_a_parameter_that_may_be_infinite(bounds: Any, tmp_path: Path) -> None:
    """``rho_bar`` without a bound is an axis of a sweep as 1 is; other parameters stay finite."""
    axes = {"alpha": [0.01, 0.02], "lambda": [0.0, 0.5]}
    swept = sweep("chain", {"rule": "vtrace", "rho_bar": bounds} | axes, runs=2, steps=200)
    assert sorted(set(swept.parameters["rho_bar"])) == [1.0, np.inf]
    unbounded = sweep("chain", {"rule": "vtrace"} | axes, runs=2, steps=200)
    assert np.allclose(swept.mean[np.isinf(swept.parameters["rho_bar"])], unbounded.mean, rtol=1e-12)
    assert ["rho_bar" in edge for edge in swept.edges] == [bound == 1.0 for bound in swept.parameters["rho_bar"]]
    swept.write(tmp_path)
    for bad in ({"alpha": "inf"}, {"rho_bar": [np.nan]}, {"rho_bar": [-np.inf]}, {"rho_bar": "1..inf"}):
        with pytest.raises(ValueError, match=f"'{next(iter(bad))}' parameter of sweep"):
            settings({"rule": "vtrace"} | axes | bad)


@pytest.mark.parametrize("low", ["-inf, -1", [-np.inf, -1]])
def test_a_parameter_that_may_be_minus_infinity(low: Any) -> None:
    """``low`` as ``rho_bar`` above, with the other sign: neither takes the infinity of the other."""
    axes = {"rule": "bounded_etd", "alpha": [0.01], "lambda": [0.5]}
    swept = sweep("chain", axes | {"low": low, "high": [0.5, np.inf]}, runs=2, steps=200)
    assert sorted(set(swept.parameters["low"])) == [-np.inf, -1.0]
    free = np.isinf(swept.parameters["low"]) & np.isinf(swept.parameters["high"])
    assert np.allclose(swept.mean[free], sweep("chain", axes, runs=2, steps=200).mean, rtol=1e-12)
    assert len(np.unique(swept.mean.round(9))) > 1
    for bad in ({"low": [np.inf]}, {"low": "inf"}, {"high": [-np.inf]}, {"high": "-inf"}, {"low": "-inf..1"}):
        with pytest.raises(ValueError, match=f"'{next(iter(bad))}' parameter of sweep"):
            settings(axes | bad)


def test_state_dependent_lambda_where_the_grid_has_none() -> None:
    chain = problems.chain()
    own = problems.MDP(chain.P, chain.R, chain.gamma, chain.pi, chain.mu, chain.Phi, lambda_=[0.1, 0.9, 0.3, 0.5, 0.0])
    found = sweep(own, {"rule": "gtd", "alpha": 0.01}, runs=1, steps=200)
    learner = emphatic.Learner("gtd", 3, engine="reference")
    learner.run(**own.simulate(200, seed=(0, 0)).inputs("gtd"), alpha=0.01, predictions=False)
    assert found.final[0, 0] == pytest.approx(own.rmsve(learner.theta), rel=1e-9)
    found = sweep(
        own, {"rule": "gtd", "alpha": 0.01, "lambda": 0.4}, runs=1, steps=200
    )  # then it is the same everywhere
    learner = emphatic.Learner("gtd", 3, engine="reference")
    given = own.simulate(200, seed=(0, 0)).inputs("gtd") | {"lambda_": 0.4, "lambda_next": 0.4}
    learner.run(**given, alpha=0.01, predictions=False)
    assert found.final[0, 0] == pytest.approx(own.rmsve(learner.theta), rel=1e-9)


# ---------------------------------------------------------------------- the page


def test_every_setting_is_on_the_page(tmp_path: Path) -> None:
    """Also of a rule that is in two grids, of which each leaves a parameter open; but α = 0, on a logarithmic axis."""
    grid = [
        {"rule": "gtd", "alpha": [0, 0.01, 0.02], "lambda": 0, "eta": [0.1, 1]},
        {"rule": "gtd", "alpha": [0.01, 0.02], "beta": 0.1},
        {"rule": "td", "alpha": 0},
    ]
    found = sweep("chain", grid, runs=2, steps=50, out=tmp_path)
    (drawn,) = page._sensitivity(found)
    assert [panel["choice"] for panel in drawn["panels"]] == [
        "eta = 0.1, beta = not set", "eta = 1, beta = not set", "eta = not set, beta = 0.1",
    ]  # fmt: skip
    lines = [line for panel in drawn["panels"] for line in panel["lines"]]
    assert [line["value"] for line in lines] == [0.0, 0.0, "not set"]
    assert all(line["alpha"].tolist() == [0.01, 0.02] for line in lines)
    assert lines[1]["mean"] == pytest.approx(found.mean[[3, 5]].mean(axis=1))
    assert list(page._grid(found.plan.settings)) == ["gtd", "gtd, grid 2", "td"]
    assert "gtd, grid 2" in (tmp_path / "report.html").read_text("utf-8")


# ---------------------------------------------------------------------- however the work is done


def test_the_table_is_the_same_for_any_number_of_jobs() -> None:
    with joblib.parallel_config(backend="threading", n_jobs=2):
        threads = swept()
    assert same(swept(), threads)
    assert same(swept(), swept(jobs=2))
    # Matrices that a process on its own would spread over threads, with other last bits.
    large = functools.partial(problems.garnet, 100, n=64)
    alone, two = (sweep(large, {"rule": "td", "alpha": [1e-3, 2e-3]}, runs=2, steps=50, jobs=jobs) for jobs in (1, 2))
    assert same(alone, two)


@pytest.mark.long
def test_a_cluster() -> None:
    """Workers of a real one, started for the purpose."""
    script = """
import joblib
from distributed import Client, LocalCluster
from emphatic.studies import sweep
if __name__ == "__main__":
    grid = {"rule": "td", "alpha": [0.01, 0.1], "lambda": 0}
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster):
        with joblib.parallel_config(backend="dask"):
            there = sweep("chain", grid, runs=3, steps=200)
    assert there.table.equals(sweep("chain", grid, runs=3, steps=200).table)
    print("the same")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "the same" in done.stdout, done.stderr


def test_seeds_differ() -> None:
    assert not same(swept(), swept(seed=6))


def test_a_stopped_sweep_goes_on(tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    seen: list[int] = []

    def stop(done: int, total: int) -> None:
        seen.append(done)
        if len(seen) == 4:
            raise Stop

    with pytest.raises(Stop):
        swept(out=tmp_path, progress=stop)
    assert not (tmp_path / "results.parquet").exists()
    parts = sorted(tmp_path.glob(".unfinished/*/*.npz"))
    assert len(parts) == 3
    parts[1].write_bytes(parts[1].read_bytes()[:100])  # as a crash of the machine may leave it
    went: list[int] = []
    found = swept(out=tmp_path, progress=lambda done, total: went.append(done))
    assert went[0] == 2 * 6 * 700
    assert len(went) == 5
    assert same(found, swept())
    assert pq.read_table(tmp_path / "results.parquet").equals(found.table)
    assert sorted(os.listdir(tmp_path)) == ["report.html", "results.parquet", "settings.parquet", "summary.json"]


def test_parts_of_another_sweep_do_not_count(tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done > 20_000:
            raise KeyboardInterrupt

    others: list[dict[str, Any]] = [{"seed": 6}, {"every": 1}, {"steps": 701}, {"points": 8}]
    others += [{"theta": [1, 0, 0]}, {"grid": GRID | {"lambda": [0, 0.8]}}, {"grid": GRID | {"rule": ["td", "etd"]}}]
    for other in others:
        with pytest.raises(KeyboardInterrupt):
            swept(out=tmp_path, progress=stop, **other)
        left = list(tmp_path.glob(".unfinished/*/*.npz"))
        assert left
        assert same(swept(out=tmp_path), swept())
        assert list(tmp_path.glob(".unfinished/*/*.npz")) == left  # they are there to go on from
        went: list[tuple[int, int]] = []
        swept(out=tmp_path, progress=lambda *told, went=went: went.append(told), **other)
        assert went[0][0] > 20_000
        assert not (tmp_path / ".unfinished").exists()


# ---------------------------------------------------------------------- logs


def log(T: int = 400) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    return {"Phi": rng.normal(size=(T + 1, 3)) / 2, "R": rng.normal(size=T), "gamma_next": 0.8}


def test_a_log_is_scored_by_its_returns() -> None:
    given = log()
    found = sweep(Recorded(**given), {"rule": ["td", "etd"], "alpha": [0.01, 0.1], "lambda": 0.5}, points=4)
    G, known = emphatic.learning.returns(given["R"], 0.8)
    assert found.points.tolist() == [100, 200, 300, 400]
    for row in found.table.to_pylist():
        learner = emphatic.Learner(row["rule"], 3, engine="reference")
        I = 0.2 if row["rule"] == "etd" else 1.0  # 1 − γ keeps emphasis at 1
        made = learner.run(**given, alpha=row["alpha"], lambda_=0.5, I=I)
        square = (made - G) ** 2
        assert row["mean"] == pytest.approx(np.sqrt(square[known].mean()), rel=1e-9)
        last = np.flatnonzero(known)[-(int(known.sum()) // 10) :]
        assert row["final"] == pytest.approx(np.sqrt(square[last].mean()), rel=1e-9)
        pieces = [np.sqrt(square[b : b + 100][known[b : b + 100]].mean()) for b in range(0, 400, 100)]
        assert row["curve"] == pytest.approx(pieces, rel=1e-6)


def test_cuts_and_divergence_in_a_log() -> None:
    given = log()
    cut = Recorded(**given, cuts=[150])
    found = sweep(cut, {"rule": "td", "alpha": [0.1, 1e9], "lambda": 0.9}, points=2)
    learner = emphatic.Learner("td", 3, engine="reference")
    pieces = []
    for begin, end in ((0, 149), (150, 400)):
        R = given["R"][begin:end]
        made = learner.run(given["Phi"][begin : end + 1], R, 0.8, alpha=0.1, lambda_=0.9)
        learner.cut()
        G, known = emphatic.learning.returns(R, 0.8)
        pieces.append(((made - G) ** 2)[known])
    assert found.mean[0, 0] == pytest.approx(np.sqrt(np.concatenate(pieces).mean()), rel=1e-9)
    assert found.diverged[:, 0].tolist() == [False, True]
    assert found.mean[1, 0] == found.final[1, 0] == np.inf
    assert np.isinf(found.curve[1, 0, -1])


def test_what_a_table_becomes() -> None:
    """With a missing reading and a gap in time: what is learned from and what it is judged by, in the signal's unit."""
    T, gap, lost = 900, 500, 300
    x = 7.0 + np.sin(np.arange(T) / 9)
    t = np.arange(T, dtype=float)
    t[gap:] += 1000.0
    values = x.copy()
    values[lost] = np.nan
    made = Recorded.table({"time": t, "x": values}, "x", 5)
    assert made.steps == T - 1
    assert made.cuts == (gap,)
    assert np.flatnonzero(made.rho != 1.0).tolist() == [lost - 1]
    assert made.rho[lost - 1] == 0.0
    base = x[1] - made.R[0] / 0.2  # γ = .8
    assert base == pytest.approx(7.0, abs=0.3)
    np.testing.assert_allclose(made.R, np.where(np.arange(1, T) == lost, 0.0, 0.2 * (x[1:] - base)), atol=1e-12)
    G, known = made.truth
    for row in (10, 350, gap, 800):
        assert known[row]
        ahead = x[row + 1 : gap if row < gap else T]
        assert G[row] == pytest.approx(0.2 * 0.8 ** np.arange(len(ahead)) @ (ahead - base), abs=0.02)
    assert not known[[gap - 2, gap - 1, T - 2]].any()


def test_a_table(tmp_path: Path) -> None:
    """A column of a file, with gaps and a missing reading, by the command."""
    rng, T = np.random.default_rng(0), 900
    x = np.sin(np.arange(T) / 9) + 0.1 * rng.normal(size=T)
    t = np.arange(T, dtype=float)
    t[500:] += 1000.0
    rows = [f"{when:g},{'' if i == 300 else f'{value:.6f}'}" for i, (when, value) in enumerate(zip(t, x, strict=True))]
    (tmp_path / "log.csv").write_text("\n".join(["time,x [/m]", *rows]))
    out = tmp_path / "out"
    arguments = ["sweep", str(tmp_path / "log.csv"), "--predict", "x [/m]", "--horizon", "5", "--alpha", ".1,.3"]
    result = RUNNER.invoke(app, [*arguments, "--rules", "true_online_etd", "--lambda", ".5", "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "log.csv: x [/m] at 5" in result.output  # and no brackets are taken for colours
    summary = json.loads((out / "summary.json").read_text("utf-8"))
    assert summary["metric"] == "return error"
    assert summary["steps"] == T - 1
    assert summary["best"][0]["final"] < 0.75 * summary["baselines"]["mean return"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"Phi": np.where(np.arange(1203).reshape(401, 3) == 602, np.nan, 1.0)},
            "'Phi' .* finite. Got nan in row 200, feature 2",
        ),
        ({"others": {"flat": [0.0]}}, "must be 400 finite numbers"),
        ({"R": np.zeros(399)}, r"'R' parameter of Recorded must be a number or of shape \(400,\)"),
        ({"cuts": [401]}, "'cuts' parameter"),
        ({"gamma_next": 1.0}, "be long enough for at least one known return"),
        ({"outcome": (np.zeros(3), np.zeros(3, bool))}, "'outcome' parameter"),
        ({"rho": 2.0}, "'outcome' parameter of Recorded must be given off-policy"),
    ],
)
def test_bad_logs(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Recorded(**(log() | change))


def test_chosen_points() -> None:
    """On a problem step 0 has an error; on a log a piece cannot end there, and its pieces are those between points."""
    whole, grid = swept(points=700), {"rule": "td", "alpha": 0.1}
    some = swept(points=np.array([300, 0, 6]))
    assert some.points.tolist() == [0, 6, 300]
    np.testing.assert_array_equal(some.curve, whole.curve[:, :, np.isin(whole.points, some.points)])
    curve, quarters = (sweep(Recorded(**log()), grid, points=p).curve[0, 0] for p in ([100, 200], 4))
    np.testing.assert_array_equal(curve, quarters[:2])
    bad: list[Any] = [[], [1], [-3], [3.0], ["3"], "3", [700], [[3]]]
    for points in bad:
        with pytest.raises(ValueError, match="'points' parameter of sweep must be whole numbers from 0 to 699"):
            swept(points=points)
    for points in ([0, 100], [401]):
        with pytest.raises(ValueError, match="'points' parameter of sweep must be whole numbers from 1 to 400"):
            sweep(Recorded(**log()), grid, points=points)


def test_other_predictions_of_a_log() -> None:
    given = log()
    G, known = emphatic.learning.returns(given["R"], 0.8)
    errors = Recorded(**given, others={"flat": np.full(400, 0.5)}).baselines(1)
    assert list(errors) == ["θ = 0", "mean return", "flat"]
    assert errors["flat"] == pytest.approx(np.sqrt(np.mean((G[known] - 0.5) ** 2)))
    assert errors["mean return"] == pytest.approx(np.std(G[known]))


def test_a_log_has_one_run_and_no_policies() -> None:
    with pytest.raises(ValueError, match="'steps' parameter of sweep must be left out with a log"):
        sweep(Recorded(**log()), {"rule": "td", "alpha": 0.1}, steps=100)
    for given in ({"runs": 2}, {"every": 2}):
        with pytest.raises(ValueError, match=f"'{next(iter(given))}' parameter of sweep must be 1 on a log"):
            sweep(Recorded(**log()), {"rule": "td", "alpha": 0.1}, **given)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'pi' parameter of Recorded must be given for the rule 'tree_backup'"):
        sweep(Recorded(**log()), {"rule": "tree_backup", "alpha": 0.1})


# ---------------------------------------------------------------------- the command


def test_the_command(tmp_path: Path) -> None:
    config = tmp_path / "sweep.toml"
    config.write_text(
        'problem = "chain"\nruns = 3\nsteps = 700\nevery = 3\nseed = 5\n[[grid]]\n'
        'rule = ["td", "true_online_etd"]\nalpha = "2^-6, 2^-3, 2^5"\nlambda = [0, 0.9]\n'
    )
    by_file, by_flags = tmp_path / "file", tmp_path / "flags"
    result = RUNNER.invoke(app, ["sweep", "--config", str(config), "--out", str(by_file)])
    assert result.exit_code == 0, result.output
    assert "report.html" in result.output.replace("\n", "")
    flags = "--rules td,true_online_etd --alpha 2^-6,2^-3,2^5 --lambda 0,.9 --runs 3 --steps 700 --every 3"
    result = RUNNER.invoke(app, ["sweep", "chain", *flags.split(), "--seed", "5", "--out", str(by_flags)])
    assert result.exit_code == 0, result.output
    first, second = (pq.read_table(folder / "results.parquet") for folder in (by_file, by_flags))
    assert first.equals(second)
    assert first.equals(swept(points=None).table)
    assert first.column_names == ["setting", "rule", "alpha", "lambda", "run", "mean", "final", "diverged", "curve"]
    assert json.loads(first.schema.metadata[b"points"]) == swept(points=None).points.tolist()
    summary = json.loads((by_file / "summary.json").read_text("utf-8"))
    assert summary["settings"] == 12
    assert summary["learner_steps"] == 12 * 3 * 700
    assert [best["rule"] for best in summary["best"]] == ["td", "true_online_etd"]
    assert "<!DOCTYPE html>" in (by_file / "report.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["chian"], "Did you mean 'chain'"),
        ([], "name a problem or a log"),
        (["chain", "--predict", "x"], "'predict' goes with a log"),
        (["nothing.csv", "--steps", "5"], "'steps' goes with a problem"),
        (["nothing.csv", "--predict", "x", "--horizon", "3"], "nothing.csv"),
        (["nothing.csv"], "--predict COLUMN --horizon STEPS"),
        (["chain", "--runs", "0"], "'runs' parameter"),
        (["chain", "--jobs", "0"], "'jobs' parameter"),
        (["chain", "--alpha", "x"], "'alpha' parameter"),
        (["chain", "--grid", "eta"], "--grid takes NAME=VALUES. Got 'eta'."),
        (["chain", "--grid", "eta=x", "--rules", "gtd"], "'eta' parameter"),
    ],
)
def test_bad_commands(arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = RUNNER.invoke(app, ["sweep", *arguments])
    assert result.exit_code == 2
    assert said in result.output
    assert not list(tmp_path.iterdir())


@pytest.mark.plain
def test_folders_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of other options, another column or horizon; and a rule without λ needs none."""
    monkeypatch.chdir(tmp_path)
    few = ["--alpha", ".1", "--runs", "1", "--steps", "20"]
    for states, more in ((5, ["--rules", "td"]), (7, ["--rules", "abtd", "--grid", "zeta=.5"])):
        Path("walk.toml").write_text(f'problem = "random-walk"\noptions = {{states = {states}}}')
        result = RUNNER.invoke(app, ["sweep", "--config", "walk.toml", *few, *more])
        assert result.exit_code == 0, result.output
    assert sorted(os.listdir("sweep")) == ["random_walk-states=5", "random_walk-states=7"]
    assert Order(problem="a/log.csv", predict="speed km/h", horizon="2min").name == "log-speed_km_h-2min"
    said = RUNNER.invoke(app, ["sweep", "two-theta", "--rules", "td", "--lambda", "0", *few]).output
    assert "zero error. Set other initial weights with theta in a --config file." in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("t,x\n2024-01-03,1\n2024-01-02,2\n", "Sort them by time; or pass time = false in a --config file"),
        ("name\nfoo\nbar\nbaz\n", "pass it: delimiter = … in a --config file"),
    ],
)
def test_errors_of_a_log_name_what_the_command_has(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(text)
    result = RUNNER.invoke(app, ["sweep", str(tmp_path / "log.csv"), "--predict", "x", "--horizon", "2"])
    assert (result.exit_code, said in result.output, "--sort" in result.output) == (2, True, False), result.output


def test_a_sweep_says_that_it_compiles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    phases: list[str] = []
    monkeypatch.setattr(
        "emphatic.nexting.cli.studies.bars", lambda *_: nullcontext(lambda *given: phases.append(given[0]))
    )
    monkeypatch.setattr("emphatic.studies.sweep", lambda *_, **__: numba.njit("float64(float64)")(lambda x: x))
    RUNNER.invoke(app, ["sweep", "chain", "--out", str(tmp_path)])
    assert phases == ["compiling (once)"]


def test_a_problem_comes_before_a_file_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("two-theta").write_text("not a log")
    flags = ["--rules", "td", "--alpha", ".1", "--lambda", "0", "--runs", "1", "--steps", "20"]
    assert RUNNER.invoke(app, ["sweep", "two-theta", *flags]).exit_code == 0


def test_bad_files(tmp_path: Path) -> None:
    path = tmp_path / "sweep.toml"
    for text, said in (
        ("problm = 'chain'", "Did you mean 'problem'"),
        ("x = ", "not a TOML file"),
        ("grid = 3", "[[grid]]"),
        ("problem = 'chain'\ngrid = [3]", "[[grid]]"),
        ("problem = 3", "'problem' must be a name or a path. Got 3."),
        ("problem = 'chain'\noptions = 'x'", "[options]"),
        ("problem = 'x.csv'\npredict = 3", "'predict' must be the name of a column"),
        ("problem = 'x.csv'\npredict = 'x'\nhorizon = [3]", "'horizon' must be steps or a duration"),
        ("problem = 'chain'\nruns = 'x'", "'runs' parameter"),
        ("problem = 'chain'\npoints = [1.5]", "'points' parameter"),
        ("problem = 'chain'\npoints = [0, 10000]", "'points' parameter of sweep must be whole numbers from 0 to 9999"),
        ("problem = 'chain'\noptions = {colour = 'red'}", "has no option 'colour'"),
        ("problem = 'chain'\ntime = false", "'time' goes with a log"),
        ("problem = 'nothing.csv'\noptions = {states = 5}", "'options' goes with a problem"),
    ):
        path.write_text(text)
        result = RUNNER.invoke(app, ["sweep", "--config", str(path)])
        assert result.exit_code == 2
        assert said in result.output


def test_episodes_of_the_random_walk_are_the_figure_of_the_literature() -> None:
    """Each error is that of TD(λ) in plain NumPy at the ends of ten episodes, all states counting the same."""
    result = sweep("random_walk", episodes=10, d=1, runs=3, seed=2)
    assert set(result.labels) == {"td", "true_online_td"}
    assert (result.plan.source.unit, result.points.tolist()) == ("episodes", list(range(10)))
    walk = problems.random_walk()
    truth = np.linspace(-0.9, 0.9, 19)
    for run in range(3):
        stream = walk.simulate(20_000, seed=(2, run))
        places = zip(stream.states, stream.states[1:], stream.R, stream.gamma_next == 0.0, strict=False)
        v, e, errors = np.zeros(19), np.zeros(19), []
        for s, after, reward, ended in places:
            e *= 0.8
            e[s] += 1.0
            v += 0.3 * (reward + (0.0 if ended else v[after]) - v[s]) * e
            if ended:
                errors.append(np.sqrt(np.mean((v - truth) ** 2)))
                e[:] = 0.0
            if len(errors) == 10:
                break
        chosen = (np.array(result.labels) == "td") & np.isclose(result.parameters["alpha"], 0.3)
        (setting,) = np.flatnonzero(chosen & (result.parameters["lambda"] == 0.8))
        assert result.curve[setting, run] == pytest.approx(errors, rel=1e-6)
        assert result.mean[setting, run] == pytest.approx(np.mean(errors), rel=1e-12)
        assert result.final[setting, run] == pytest.approx(errors[-1], rel=1e-12)
    by_rule = {row["rule"]: row["mean"] for row in result.best}
    assert 0.2 < min(by_rule.values()) < max(by_rule.values()) < 0.3


def test_episodes_on_other_problems() -> None:
    """Divergence from an episode on, tasks, ends by γ = 0; and what goes with steps alone."""
    result = sweep("random_walk", {"rule": "td", "alpha": [0.1, 30.0], "lambda": 1}, runs=1, episodes=200)
    assert np.isinf(result.curve[1, 0]).any()
    assert np.isfinite(result.curve[0, 0]).all()
    assert result.diverged.tolist() == [[False], [True]]
    for problem in ("chain", "four_rooms"):
        assert np.isfinite(sweep(problem, {"rule": "td", "alpha": 0.01}, runs=1, episodes=5).mean).all()
    bad: list[tuple[dict[str, Any], str]] = [
        ({"episodes": 5, "steps": 9}, "'steps' parameter of sweep must be left out: runs are of 'episodes'"),
        ({"episodes": 0}, "'episodes' parameter of sweep must be a whole number"),
        ({"episodes": 5, "every": 2}, "'every' parameter of sweep must be 1"),
    ]
    for options, message in bad:
        with pytest.raises(ValueError, match=message):
            sweep("random_walk", {"rule": "td", "alpha": 0.1}, **options)
    with pytest.raises(ValueError, match="'episodes' parameter of sweep must be left out: baird has no ends"):
        sweep("baird", {"rule": "td", "alpha": 0.1}, episodes=5)
