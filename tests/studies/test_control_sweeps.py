"""Sweeps over agents: what they score, fresh runs, files, and bad input."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emphatic import problems
from emphatic.control import Agent, Algorithm
from emphatic.studies import sweep
from emphatic.studies.acting import acting
from emphatic.studies.figures import baseline_levels, error_range
from emphatic.studies.sweep_config import SweepConfig
from tests.support.plain import plain_python

GRID = {"rule": ["watkins_q", "greedy_gq"], "alpha": [0.1, 0.2], "lambda": [0.0, 0.5], "epsilon": 0.2}


def test_a_sweep_scores_the_episodes_of_agents(tmp_path: Path) -> None:
    with plain_python():
        cliff = acting("cliff-walking", 4, 0, {"limit": 20})
        result = sweep(cliff, GRID, runs=2, rerun=2, seed=3, out=tmp_path)
        world = problems.Environment(problems.cliff_walking(), limit=20)
        seed: Any = [3, 1, 0]
        world.seed_with([3, 1, 1])
        agent = Agent("greedy_gq", 48, 4, alpha=0.2, gamma=1.0, lambda_=0.5, epsilon=0.2, seed=seed)
        costs = -agent.train(world, 4).returns
    assert result.mean.shape == (8, 2)
    assert result.mean[7, 1] == pytest.approx(costs.mean())
    assert result.curve[7, 1] == pytest.approx(costs)
    assert result.final[7, 1] == costs[-1]
    assert result.rerun is not None
    assert result.rerun.mean.shape == (2, 2)
    assert result.baselines["best actions"] == pytest.approx(13.0)
    assert [row["rule"] for row in result.best] == ["watkins_q", "greedy_gq"]
    summary = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    assert summary["metric"] == "minus return per episode"
    assert (summary["episodes"], summary["learner_episodes"]) == (4, 8 * 2 * 4)
    assert not summary.keys() & {"steps", "learner_steps"}
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "4 episodes" in page
    assert "not in the sweep" not in page
    assert "above that of random actions" in page
    assert "episodes are cut after 20 steps" in page
    assert "On a logarithmic axis" in page
    assert str(result) == "Sweep('cliff_walking(limit=20)', settings=8, runs=2, episodes=4)"


def test_the_parameters_of_a_rule_are_swept() -> None:
    """eta and kappa of QRC(λ), each setting the agent that has them; an algorithm without them takes no part."""
    qrc = Algorithm("qrc", "tdrc", "expected", "rho", greedy=True)
    with plain_python():
        world = problems.Environment(problems.cliff_walking(), limit=20)
        grid = {"rule": [qrc, "expected_sarsa"], "alpha": 0.2, "eta": [0.1, 1.0], "kappa": [0.0, 1.0]}
        result = sweep(world, grid, runs=1, episodes=6)
        assert result.labels == ["qrc"] * 4 + ["expected_sarsa"]
        for setting, (eta, kappa) in enumerate(itertools.product([0.1, 1.0], [0.0, 1.0])):
            world.seed_with([0, 0, 1])
            seed: Any = [0, 0, 0]
            agent = Agent(qrc, 48, 4, alpha=0.2, gamma=1.0, eta=eta, kappa=kappa, seed=seed)
            assert result.mean[setting, 0] == -agent.train(world, 6).returns.mean()
    assert len(set(result.mean[:4, 0])) > 2


def test_a_frame_leaves_out_a_baseline_far_above_and_has_those_of_rewards() -> None:
    low, high = error_range([9_700.0], [[300.0, 1_200.0]])
    assert (low, 1_200.0 < high < 2_000.0) == (0.0, True)
    low, high = error_range([-1.7, -2.75], [[-2.4, -2.3]])
    assert low < -2.75 < -1.7 < high < 0.0
    assert list(error_range([1.0], [[0.3, 0.5]])) == pytest.approx([0.0, 1.15])


def test_mean_costs_use_the_axis() -> None:
    """As in the book's figures: what bad settings and random actions cost is above the frame."""
    baselines, costs = [9_700.0], [[212.0, 800.0, np.inf], [177.5, 3_000.0]]
    low, high = error_range(baselines, costs, is_cost=True)
    assert (212.0 - 177.5) / (high - low) > 0.2
    assert low < 177.5
    assert [
        level.name for level in baseline_levels({"random actions": 9_700.0, "best actions": 170.0}, (low, high))
    ] == ["best actions"]
    assert error_range([-1.7, -2.75], [[-2.4, -2.3]], is_cost=True) == error_range([-1.7, -2.75], [[-2.4, -2.3]])


def test_figures_for_papers_have_random_actions_in_words_and_episodes_on_a_linear_axis() -> None:
    pytest.importorskip("matplotlib")
    with plain_python():
        world = problems.Environment(problems.cliff_walking(), limit=400)
        result = sweep(world, {"rule": "sarsa", "alpha": [0.2, 0.5], "lambda": [0.0, 0.5]}, runs=2, episodes=30)
    cost = result.baselines["random actions"]
    for x in ("alpha", "rules", "lambda", "runs"):
        figure = result.plot(x)
        words = " ".join(text.get_text() for text in figure.texts).replace("\n", " ")
        if cost > figure.axes[0].get_ylim()[1]:
            assert "episodes are cut after 400 steps, above the plot" in words, x
        assert figure.axes[0].get_ylim()[1] < 2.0 * result.mean.max()
    axes = result.plot("steps").axes[0]
    assert (axes.get_xscale(), axes.get_yscale()) == ("linear", "log")


def test_steps_are_counted_where_each_costs_one() -> None:
    metrics = {
        "mountain_car": "steps per episode",
        "windy_gridworld": "steps per episode",
        "puddle_world": "minus return per episode",
        "access_control": "minus reward per step",
    }
    assert {name: acting(name, 1, 0).metric for name in metrics} == metrics
    with plain_python():
        world = problems.Environment(problems.access_control(), limit=40)
        result = sweep(world, {"rule": "differential_sarsa", "alpha": 0.01}, runs=2, episodes=3)
        world.seed_with([0, 1, 1])
        seed: Any = [0, 1, 0]
        agent = Agent("differential_sarsa", world.mdp.S, 2, alpha=0.01, gamma=1.0, seed=seed)
        returns, _ = agent.run_episodes(world, 3, 40, blocks=True)
        assert result.mean[0, 1] == pytest.approx(-returns.sum() / 120)
        assert result.baselines["best actions"] == pytest.approx(-2.747642, abs=1e-6)


def test_agents_that_diverge_have_an_infinite_cost() -> None:
    with plain_python(), np.errstate(all="ignore"):
        world = acting("mountain_car", 2, 0, {"limit": 20})
        result = sweep(world, {"rule": "sarsa", "alpha": [0.1, 1e300], "lambda": 0.9}, runs=1)
    assert result.diverged.tolist() == [[False], [True]]
    assert result.mean.tolist() == [[20.0], [np.inf]]
    assert result.plan.source.name == "mountain_car(limit=20)"


def test_the_command_line_knows_control_problems() -> None:
    config = SweepConfig(problem="mountain-car", episodes=3, options={"limit": 9})
    assert not config.is_log
    assert config.grids[0]["rule"] == "sarsa, expected_sarsa, watkins_q"
    assert SweepConfig.usual(None, "acrobot")["alpha"] == "2^-6..2^0"
    assert SweepConfig.usual(None, "access-control")["rule"] == "differential_sarsa, differential_q"
    assert config.arguments == {"episodes": 3}
    source: Any = config.source()
    assert (source.steps, source.world.limit) == (3, 9)


@pytest.mark.parametrize(
    ("problem", "grid", "options", "message"),
    [
        ("mountain_car", {"rule": "td", "alpha": 0.1}, {}, "'rule' parameter of sweep must be one or several of sarsa"),
        ("mountain_car", {"rule": "watkins_q", "alpha": 0.1, "eta": 1}, {}, "have only parameters of its rules"),
        (
            "mountain_car",
            {"rule": "watkins_q", "alpha": 0.1, "epsilon": 2},
            {},
            "'epsilon' parameter of sweep must be between",
        ),
        (
            "mountain_car",
            {"rule": "watkins_q", "alpha": 0.1},
            {"steps": 10},
            "'steps' parameter of sweep must be left out",
        ),
        ("mountain_car", {"rule": "watkins_q", "alpha": 0.1}, {"episodes": 0}, "'episodes' parameter of sweep"),
        (
            "cliffwalking",
            {"rule": "watkins_q", "alpha": 0.1},
            {},
            "cliff_walking, access_control. .* Did you mean .cliff_walking",
        ),
        ("access_control", {"rule": "sarsa", "alpha": 0.1}, {}, "'gamma' parameter of sweep must be below 1"),
    ],
)
def test_bad_input_is_refused_in_one_line(problem: str, grid: Any, options: Any, message: str) -> None:
    with plain_python(), pytest.raises(ValueError, match=message) as error:
        sweep(problem, grid, runs=1, **options)
    assert "\n" not in str(error.value)
