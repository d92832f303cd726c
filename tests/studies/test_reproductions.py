"""Published studies in their quick mode, and the command that runs them.

The collision study goes rule by rule, so that each kernel is compiled by the worker that has that rule's other tests.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reproductions
from emphatic import Rule, problems
from emphatic.common.locks import hold_folder
from reproductions import ORIGINS, Outcome, biases, claim, compare, count_by_kind, count_numbers, finding, reproduce
from reproductions import RunOptions as Conditions
from reproductions.__main__ import main
from reproductions.comparisons import CollisionStudy as collision
from reproductions.comparisons import CollisionStudy as collision_grid
from reproductions.comparisons import FourRoomsStudy as four_rooms
from reproductions.open_questions import StepSizesStudy as step_sizes
from reproductions.pages import verdict
from reproductions.small_problems import ChainStudy as chain
from reproductions.small_problems import FollowonVarianceStudy as followon_variance
from tests.support.plain import plain_python

OTHERS = [name for name in reproductions.names() if name != "collision" and not name.startswith("four-rooms")]
#: Studies that compile kernels of many rules, or take many episodes.
LONG = ("control", "emphasis")


@pytest.mark.parametrize(
    "study", [pytest.param(name, marks=pytest.mark.long if name in LONG else ()) for name in OTHERS]
)
def test_quick(study: str, tmp_path: Path) -> None:
    """Every number agrees, and the page and the file say so."""
    # (the last has kernels of its own for each method)
    with plain_python() if study == "step-sizes" else nullcontext():
        outcome = reproduce(study, quick=True, out=tmp_path)
    assert [check for check in outcome.checks if check.agree is False] == []
    judged = [check for check in outcome.checks if check.agree is not None]
    if study in ("true-online-vs-accumulating", "step-sizes", "alarms", "emphasis"):
        assert not judged
    else:
        assert len(judged) >= 9
    if study == "alarms":  # faults of most kinds, and no share of none
        kinds = {check.name.split(":")[0] for check in outcome.checks[:-1]}
        assert kinds <= {"stuck", "drift", "spike", "dropout", "level", "noise"}
        assert len(kinds) >= 4
        assert not [check for check in outcome.checks if "share of 0" in check.note]
    assert outcome.title
    assert outcome.source
    assert outcome.figures
    assert outcome.notes
    written = json.loads((tmp_path / study / "results.json").read_text("utf-8"))
    assert written["agree"] is True
    assert [check["name"] for check in written["checks"]] == [check.name for check in outcome.checks]
    page = (tmp_path / study / "report.html").read_text("utf-8")
    assert all(figure.title.split(":")[0] in page for figure in outcome.figures)
    assert [figure["title"] for figure in written["figures"]] == [figure.title for figure in outcome.figures]
    panels = [panel for figure in written["figures"] for view in figure["views"].values() for panel in view]
    assert all(len(line["x"]) == len(line["y"]) for panel in panels for line in panel["lines"])
    assert sum(len(panel["lines"]) + len(panel["marks"]) for panel in panels) > 0
    assert {check.origin for check in judged} <= set(ORIGINS)
    assert all(f">{check.origin}</button>" in page or f">{check.origin}</th>" in page for check in judged)


# ------------------------------------------------------------------------------------------------ four rooms


@pytest.mark.parametrize("name", ["four-rooms", "four-rooms-high-variance"])
def test_four_rooms(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The study of two rules from end to end, in short runs: the problem agrees, and the rest is reported."""
    monkeypatch.setattr(four_rooms, "RULES", ("td", "abtd"))
    monkeypatch.setattr(four_rooms, "MORE", ())
    outcome = reproduce(name, quick=True, out=tmp_path)
    judged = [check for check in outcome.checks if check.agree is not None]
    assert len(judged) == 11
    assert outcome.agree
    (printed,) = [check for check in judged if check.origin == "printed"]
    assert printed.published == 2.0**14 * (25 if "high" in name else 1)
    assert [check.name for check in outcome.checks[11:]] == ["mean RMSVE, td", "mean RMSVE, abtd"]
    assert [figure.title for figure in outcome.figures] == [
        "Best settings", "Learning curves", "Error against λ", "Error over α, for each λ",
    ]  # fmt: skip
    assert (tmp_path / name / "sweep" / "rerun.parquet").exists()
    written = json.loads((tmp_path / name / "results.json").read_text("utf-8"))
    curve = written["figures"][1]["views"]["all"][0]["lines"][0]
    rooms = problems.four_rooms(high_variance="high" in name)
    before = rooms.rmsve(np.zeros((8, 12))).mean()  # anything is learned
    assert (curve["name"], curve["y"][0]) == ("td", pytest.approx(before))


def _td(step: Any, memory: Any, x: Any, x_next: Any, g: Any) -> Any:
    alpha, I, lambda_, rho, gamma_next, delta = step
    s = alpha * rho * delta
    return ((1.0,),), ((s, 0.0),), ()


#: TD(0), without λ.
OWN = Rule("own_td", _td, weights=("theta",), traces=(), memory=(), interest=False)


def test_a_rule_of_ones_own_in_a_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is reported beside the others, on the page too; studies without a grid have no place for it."""
    monkeypatch.setattr(four_rooms, "RULES", ("td", "abtd"))
    monkeypatch.setattr(four_rooms, "MORE", ())
    outcome = reproduce("four-rooms", quick=True, out=tmp_path, rule=OWN)
    assert outcome.checks[-1].name == "mean RMSVE, own_td"
    assert "own_td" in (tmp_path / "four-rooms" / "report.html").read_text("utf-8")
    monkeypatch.setattr(collision, "RULES", ("etd",))
    monkeypatch.setattr(collision, "RUNS", 2)
    monkeypatch.setattr(collision, "STEPS", 100)
    outcome = reproduce("collision", rule=[OWN])
    assert outcome.checks[-1].name == "own_td, best over the grid"
    assert [panel.title for panel in outcome.figures[-1].plot.views["all"]] == ["etd", "own_td"]
    with pytest.raises(ValueError, match="'rule' parameter of reproduce must be left out of 'chain'; it can"):
        reproduce("chain", quick=True, rule=OWN)


def test_four_rooms_whole_grid() -> None:
    """The paper's grids, and two rules more; ξ(ζ) of ABTD goes from 0 to 4."""
    grids = {grid["rule"]: grid for grid in four_rooms.grids(False)}
    sizes = {rule: math.prod(np.size(v) for k, v in grid.items() if k != "rule") for rule, grid in grids.items()}
    assert sum(sizes[rule] for rule in four_rooms.RULES) == 16_416
    assert (four_rooms.RUNS, four_rooms.STEPS, four_rooms.EVERY) == (50, 50_000, 10)
    xi = grids["abtd"]["xi"]
    assert (min(xi), max(xi)) == (0.0, 4.0)
    assert sorted(xi)[len(xi) // 3] == pytest.approx(1.0)  # ζ = ½


@pytest.mark.plain
def test_step_sizes_on_the_log() -> None:
    """Larger first rates do better in the first rows than such as 1e-6, which leave the prediction at 0."""
    errors = step_sizes.on_log(("auto", 700))
    assert errors.shape == step_sizes.FIRST.shape
    assert errors[-3] < 0.9 * errors[0]


# ------------------------------------------------------------------------------------------------- collision


@pytest.mark.parametrize("rule", collision.RULES)
def test_collision(rule: str) -> None:
    """Both settings of each rule in 50 runs; for etd the curve over α too, and where it diverges."""
    found = collision.errors(Conditions(quick=True), (rule,))
    checks = collision.checks(found, True, (rule,))
    assert [check for check in checks if not check.agree] == []
    assert len(checks) == (19 if rule == "etd" else 4)
    assert {check.origin for check in checks} == {"replayed"}
    assert count_numbers([vars(check) for check in checks])[1] == (16 if rule == "etd" else 2)  # each once


def test_collision_whole_grid() -> None:
    """16,416 settings, and one of true_online_etd."""
    grids = collision_grid.grids(False, collision.RULES)
    rules = [np.size(grid["rule"]) * math.prod(np.size(v) for k, v in grid.items() if k != "rule") for grid in grids]
    assert sum(rules) == 16_416 + 1


@pytest.mark.parametrize("rule", ["etd"])
def test_collision_page(rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole study of one rule from end to end, in runs too short to agree: our best is none of the published."""
    monkeypatch.setattr(collision, "RULES", (rule,))
    monkeypatch.setattr(collision, "RUNS", 2)
    monkeypatch.setattr(collision, "STEPS", 200)
    outcome = reproduce("collision", out=tmp_path, seed=1)
    assert not outcome.agree
    assert outcome.settings["settings"] == 19 * 12 + 1
    names = [check.name for check in outcome.checks]
    assert names[:4] == ["d_μ × 35", "RMSVE at w = 0", "etd, best over λ: that setting", "etd, best over λ"]
    assert all(check.agree for check in outcome.checks[:2])
    there, best = (check.ours for check in outcome.checks[2:4])
    assert isinstance(there, float)
    assert isinstance(best, float)
    assert best < there
    page = (tmp_path / "collision" / "report.html").read_text("utf-8")
    assert all(figure.title in page for figure in outcome.figures)
    assert len(outcome.figures) == 3
    assert (tmp_path / "collision" / "sweep" / "results.parquet").exists()


# ------------------------------------------------------------------------------------------------ agreement


def test_agreement_is_by_the_tolerance_that_is_shown() -> None:
    assert compare("x", 1.0, 1.0149, 0.01499).agree  # shown as .015
    assert not compare("x", 1.0, 1.0151, 0.01499).agree
    assert not compare("x", 1.0, math.nan, 0.1).agree
    assert not compare("x", 1.0, 1.0, math.nan).agree
    assert not compare("x", [1.0, 2.0], [1.0, 2.2], [0.5, 0.1]).agree
    assert compare("x", [1.0, 2.0], [1.4, 2.0], [0.5, 0.1]).agree
    assert compare("x", -0.5, [-0.5], 1e-9).ours == "−0.5"


@pytest.mark.parametrize(("ours", "theirs"), [(0.03, 0.04), (0.05, 0.0), (0.0, 0.05), (0.0, 0.0)])
def test_differences_are_in_units_of_both_errors(ours: float, theirs: float) -> None:
    check = compare("x", 1.0, 0.9, 0.2, errors=(ours, theirs))
    assert check.difference == pytest.approx(-0.1)
    assert (check.error, check.published_error) == (ours or None, theirs or None)
    if ours or theirs:
        assert check.in_errors == pytest.approx(-2.0)
    else:
        assert check.in_errors is None
    several = compare("x", [1.0, 2.0, 3.0], [1.1, 2.3, 3.1], 0.5, errors=([0.1, 0.1, 0.01], 0.0))
    assert several.in_errors == pytest.approx(10.0)  # of the one that is farthest off
    assert several.difference == pytest.approx(0.1)


def test_counts_keep_kinds_apart() -> None:
    checks = [
        compare("a", 1.0, 1.0, 0.1, origin="printed"),
        compare("b", 1.0, 2.0, 0.1, origin="digitised"),
        compare("c", 1.0, 1.0, 0.1, origin="digitised"),
        compare("c again", 1.0, 1.0, 0.1, origin="digitised", number="c"),
        compare("d", 1.0, 1.0, 0.1, origin="printed", trivial=True),
        finding("e", 1.0),
    ]
    described = [vars(check) for check in checks]
    assert count_by_kind(described) == {"printed": (1, 1), "digitised": (1, 2), "trivial": (1, 1)}
    words = "3 of 4 numbers agree (printed 1 of 1, digitised 1 of 2, trivial 1 of 1); 1 more is only reported."
    assert verdict(described) == words


def test_the_bias_over_a_table() -> None:
    apart = [-0.1, -0.2, -0.3, 0.2]
    checks = [compare(str(off), 1.0, 1.0 + off, 1.0, errors=(0.0, 0.1), table="T") for off in apart]
    (bias,) = biases([*checks, compare("no table", 1.0, 2.0, 3.0)])
    assert (bias.table, bias.numbers, bias.lower) == ("T", 4, 3)
    assert bias.mean == pytest.approx(-0.1)
    assert bias.in_errors == pytest.approx(-1.0)
    assert str(bias) == "T: ours is lower in 3 of 4, by 0.1 on average, 1 of the error of one number."
    (exact,) = biases([compare("x", 1.0, 1.5, 1.0, table="T")])
    assert str(exact) == "T: ours is lower in 0 of 1, and higher by 0.5 on average."


def test_the_random_walk_says_how_well_it_agrees(tmp_path: Path) -> None:
    """All 21 numbers in units of both errors, their bias, and what else might be behind it."""
    reproduce("random-walk", quick=True, out=tmp_path)
    written = json.loads((tmp_path / "random-walk" / "results.json").read_text("utf-8"))
    assert written["counts"] == {"digitised": {"agree": 20, "judged": 20}, "trivial": {"agree": 8, "judged": 8}}
    table = [check for check in written["checks"] if check["table"]]
    (bias,) = written["bias"]
    assert bias["numbers"] == len(table) == 21
    assert bias["lower"] == sum(check["ours"] < check["published"] for check in table)
    for check in table:
        assert check["difference"] == pytest.approx(check["ours"] - check["published"])
        error = math.hypot(check["error"], check["published_error"])
        assert check["in_errors"] == pytest.approx(check["difference"] / error)
        # the book has 100 runs, as many as the quick mode, and a reading of ±.003
        assert check["published_error"] == pytest.approx(math.hypot(check["error"], 0.003))
    assert any("Other ways to average errors are further" in note for note in written["notes"])
    page = (tmp_path / "random-walk" / "report.html").read_text("utf-8")
    assert f"ours is lower in {bias['lower']} of 21" in page
    assert "in errors</button>" in page


def test_an_outcome_disagrees_where_one_number_does() -> None:
    good, open_, bad = compare("a", 1.0, 1.0, 0.1), finding("b", 2.0), claim("c", "diverges", 0.3, False)
    assert Outcome([good, open_]).agree
    assert not Outcome([good, bad]).agree


def test_jobs_change_nothing() -> None:
    tasks = [(0, i, 200) for i in range(3)]
    seen: list[tuple[str, int, int]] = []
    alone = Conditions(progress=lambda *told: seen.append(told)).each(chain.learn, tasks, "streams")
    assert seen == [("streams", i, 3) for i in (1, 2, 3)]
    np.testing.assert_array_equal(alone, Conditions(jobs=2).each(chain.learn, tasks, "streams"))


# ---------------------------------------------------------------------------------------------- the command


Command = Callable[..., tuple[int, str]]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run ``python -m reproductions`` with arguments; its exit code, and what it printed."""
    monkeypatch.setenv("COLUMNS", "160")

    def run(*arguments: str | Path) -> tuple[int, str]:
        code = main(list(map(str, arguments)))
        return code, "".join(capsys.readouterr())

    return run


def test_command_agrees(command: Command, tmp_path: Path) -> None:
    code, said = command("followon-variance", "--quick", "--out", tmp_path)
    assert code == 0
    assert "9 of 9 numbers agree" in said
    assert "disagree" not in said
    assert (tmp_path / "followon-variance" / "report.html").exists()


def test_another_run_into_the_same_folder_is_refused(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "followon-variance"
    with hold_folder(folder):
        code, said = command("followon-variance", "--quick", "--out", tmp_path)
    assert code == 2
    assert said.startswith(f"Error: {folder}: another run, process {os.getpid()}, is writing here.")
    assert not folder.exists()
    assert command("followon-variance", "--quick", "--out", tmp_path)[0] == 0
    assert sorted(path.name for path in folder.iterdir()) == ["report.html", "results.json"]


def test_command_disagrees(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong published number: exit code 1, and every file says which."""
    monkeypatch.setitem(followon_variance.PUBLISHED, "mean of F", lambda t: 0.9**t + 1e-9)
    code, said = command("followon-variance", "--quick", "--out", tmp_path)
    assert code == 1
    assert said.count(" disagree ") == 3
    assert "6 of 9 numbers agree" in said
    written = json.loads((tmp_path / "followon-variance" / "results.json").read_text("utf-8"))
    assert written["agree"] is False
    assert "Different from what was published: mean of F" in (tmp_path / "followon-variance" / "report.html").read_text(
        "utf-8"
    )


def test_command_all(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproductions, "_NAMES", ("followon-variance", "two-theta"))
    code, said = command("--all", "--quick", "--out", tmp_path)
    assert code == 0
    assert "index.html" in said
    index = (tmp_path / "index.html").read_text("utf-8")
    assert 'href="followon-variance/report.html"' in index
    assert 'href="two-theta/report.html"' in index


def test_command_cannot_write(command: Command, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("in the way")
    code, said = command("chain", "--out", tmp_path / "out")
    assert code == 2
    assert "Error:" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["random-wlak"], "Did you mean 'random-walk'?"),
        (["two-theta", "bard"], "Did you mean 'baird'?"),
        ([], "or give --all"),
        (["chain", "--all"], "or give --all"),
        (["chain", "--seed", "-1"], "The 'seed' parameter of reproduce must be a whole number of 0 or more"),
        (["chain", "--jobs", "0"], "The 'jobs' parameter of reproduce must be a whole number of 1 or more"),
    ],
)
def test_command_misused(command: Command, arguments: list[str], words: str, tmp_path: Path) -> None:
    """Exit code 2, and nothing has been run or written."""
    code, said = command(*arguments, "--out", tmp_path / "out")
    assert code == 2
    assert words in said
    assert not (tmp_path / "out").exists()
