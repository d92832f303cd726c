"""Baselines and measures of another package: found by their entry points, and scored under their names."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from emphatic.common.discovery import Plugins
from emphatic.scores import Baseline, measures
from emphatic.scores.baselines import OfflineFit, find_baselines, find_members
from emphatic.scores.measures import LogScores, find_measures
from tests.support.distributions import run_with, write_distribution

OUTSIDE = '''
import numpy as np
from emphatic.scores import Baseline, Measure

class LastButOne:
    def __init__(self, gammas, C):
        self.H, self.last = len(gammas), np.zeros((1, C))

    def __call__(self, held, missing):
        rows = np.vstack([self.last, held])
        self.last = rows[-1:]
        return np.repeat(rows[:-1].T, self.H, axis=0)

class MeanReturn:
    """The mean return of the first half."""

    passes, room = 1, 0

    def __init__(self, n, T, H, half, a):
        self.half, self.centre, self.reasons = half.half, half.centre, [""] * len(half.centre)

    def add(self, start, index, value, G, answers=None):
        rows = np.arange(start, start + G.shape[1])
        return np.where(rows >= self.half, self.centre[:, None], np.nan)

last_but_one = Baseline("last_but_one", start=LastButOne)
mean_return = Baseline("mean_return", fit=MeanReturn)
mae = Measure("mae", lambda moments: moments.loss, loss=lambda prediction, G: abs(prediction - G))
'''
POINTS = {
    "emphatic.baselines": {"last_but_one": "outside:last_but_one", "mean_return": "outside:mean_return"},
    "emphatic.measures": {"mae": "outside:mae"},
}
SUMMARY = """
import json
import numpy as np
import emphatic
from emphatic import scores

T = 400
x = np.sin(np.arange(T) / 7.0)[:, None] + 3.0
no = np.zeros((T, 1), bool)
phi = lambda: iter([emphatic.Active(np.zeros((T, 1), np.int64))])
made = scores.summary(["x"], [2], np.array([0.5]), x, no, no[:, 0], x, phi, 1)
G, known = made.G[:, 0], made.known[:, 0]
late = known & (np.arange(T) >= T // 2)
level = G[known & (np.arange(T) < T // 2)].mean()
print(json.dumps([made.scores, made.curves, scores.measures(np.roll(x[:, 0], 1), G, late),
                  scores.measures(np.full(T, level), G, late)]))
"""


def test_each_is_scored_under_its_name(tmp_path: Path) -> None:
    write_distribution(tmp_path, "outside", {"outside": OUTSIDE}, POINTS)
    (scored,), (curve,), shifted, level = json.loads(run_with(tmp_path, SUMMARY))
    assert list(scored) == [
        *("signal", "horizon", "gamma", "rmse", "variance_explained", "mae", "skill", "first_half"),
        *("persistence", "mean", "offline", "last_but_one", "mean_return"),
        *("answers", "ratio_to_offline", "known", "reasons", "baselines"),
        *("verdict", "best_baseline", "skill_best", "skill_best_low", "skill_best_high"),
    ]
    assert list(scored["baselines"]) == ["persistence", "mean", "past_mean", "last_but_one"]
    for name in ("first_half", "persistence", "mean", "offline", "last_but_one", "mean_return"):
        assert list(scored[name]) == ["rmse", "variance_explained", "mae"]
    assert scored["last_but_one"] == pytest.approx(shifted, rel=1e-12)
    assert scored["mean_return"] == pytest.approx(level, rel=1e-9, abs=1e-12)
    assert 0.0 < scored["mae"] < scored["rmse"]
    assert list(curve) == ["signal", "horizon", "rows", "rmse", "persistence", "mean", "last_but_one"]


def test_without_other_packages_there_are_those_of_the_library() -> None:
    seasonal = ["past_mean", "last_day", "last_week", "last_year", "last_period", "climatology"]
    assert list(find_baselines()) == ["persistence", "mean", *seasonal, "offline"]
    assert list(find_measures()) == ["rmse", "variance_explained"]
    assert find_baselines()["offline"].fit is OfflineFit
    assert list(measures(np.ones(2), np.arange(2.0))) == ["rmse", "variance_explained"]


def test_a_fit_that_was_not_passed_has_no_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    known = find_baselines() | {"other": Baseline("other", fit=OfflineFit)}
    monkeypatch.setattr(sys.modules["emphatic.scores.measures"], "find_baselines", lambda: known)
    scored = LogScores(["x"], [1], np.zeros(1), 40)
    x, yes = np.arange(40.0) % 7, np.ones((1, 40), bool)
    scored.add(0, x[:, None], ~yes.T, x[:, None], x[None], np.roll(x, 1)[None], yes)
    (score,) = scored.scores({"offline": [""]})
    assert score["offline"]["rmse"] == score["rmse"]
    assert score["other"] == {"rmse": None, "variance_explained": None}


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ("Baseline('mean', start=print)", r"name 'mean' of a Baseline in the entry point 'ours' .* is taken"),
        ("Baseline('skill', start=print)", r"name 'skill' of a Baseline in the entry point 'ours' .* is taken"),
        ("Baseline('x')", "needs one of 'start', 'fit', 'follow' and 'answer'. None was given"),
        ("3", r"must be a Baseline. Got 3 instead"),
    ],
)
def test_wrong_declarations_are_refused(
    declared: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"of_ours_{abs(hash(declared))}"
    text = f"from emphatic.scores import Baseline\nit = {declared}\n"
    write_distribution(tmp_path, "ours", {name: text}, {"emphatic.baselines": {"ours": f"{name}:it"}})
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys.modules["emphatic.scores.baselines"], "discover", Plugins)
    with pytest.raises((ValueError, TypeError, ImportError), match=message):
        find_members("emphatic.baselines", Baseline, "a Baseline")


def test_predictions_of_a_wrong_shape_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Baseline("wrong", start=lambda gammas, C: lambda held, missing: held)
    monkeypatch.setattr(sys.modules["emphatic.scores.measures"], "find_baselines", lambda: {"wrong": wrong})
    with pytest.raises(ValueError, match=r"'wrong' must return predictions of shape \(1, 3\). Got \(3, 1\)"):
        LogScores(["x"], [1], np.zeros(1), 3).add(
            0, np.zeros((3, 1)), np.zeros((3, 1), bool), np.zeros((3, 1)), {}, np.zeros((1, 3)), np.ones((1, 3), bool)
        )
