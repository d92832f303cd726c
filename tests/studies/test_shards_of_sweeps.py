"""Tasks of a sweep in shards: every bit is that of the task uncut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emphatic.studies.sources import Recorded, Scores, Simulated
from emphatic.studies.sweeps import SweepPlan, sweep


def walk(rows: int = 300) -> Recorded:
    rng = np.random.default_rng(0)
    return Recorded(rng.normal(size=(rows + 1, 3)) / 2, rng.normal(size=rows), 0.9)


@pytest.mark.plain
@pytest.mark.parametrize(
    ("grid", "every", "count", "shards"),
    [
        ({"rule": "td", "alpha": np.geomspace(0.001, 0.1, 37).tolist(), "lambda": [0, 0.9]}, 1, 3, 3),
        ({"rule": "etd", "alpha": np.geomspace(0.001, 0.01, 65).tolist(), "lambda": [0.5]}, 1, 4, 4),
        ({"rule": "td", "alpha": np.geomspace(0.001, 0.1, 9).tolist(), "lambda": [0]}, 1, 4, 1),  # too few to cut
        ({"rule": "lstd", "ridge": np.linspace(1, 2, 40).tolist(), "lambda": [0]}, 1, 4, 1),  # share a matrix
    ],
)
def test_a_task_in_shards(grid: dict[str, Any], every: int, count: int, shards: int) -> None:
    from emphatic import problems

    for source in (Simulated(problems.get("chain"), 200), walk()):
        plan = SweepPlan.of(source, grid, None if isinstance(source, Recorded) else 2, every, None)
        for task in plan.tasks:
            pieces = task.cut(count)
            assert len(pieces) == shards
            whole, joined = task(), Scores.joined([piece() for piece in pieces])
            for expected, got in zip(whole, joined, strict=True):
                np.testing.assert_array_equal(got, expected)
            assert len({float(error) for error in whole.mean}) > 5  # settings differ


def test_engines_that_are_chosen_for_all_settings() -> None:
    """The chunked engine, which many settings get whose error is seldom measured, is cut at its grain."""
    from emphatic import problems

    grid = {"rule": "td", "alpha": np.geomspace(0.0001, 0.01, 600).tolist(), "lambda": [0.5]}
    source = Simulated(problems.get("random_walk"), 600)
    [task] = SweepPlan.of(source, grid, 1, 200, None).tasks
    pieces = task.cut(2)
    whole = task()
    for expected, got in zip(whole, Scores.joined([piece() for piece in pieces]), strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.plain
def test_tasks_that_others_run(tmp_path: Any) -> None:
    """In any order, and in shards; what was done is not done again."""
    done: list[int] = []

    def run_tasks(tasks: Any) -> Any:
        for number in sorted(tasks, reverse=True):
            if len(done) == 2:
                raise KeyboardInterrupt
            done.append(number)
            yield number, Scores.joined([piece() for piece in tasks[number].cut(2)])

    grid = {"rule": ["td", "etd"], "alpha": np.geomspace(0.001, 0.1, 40).tolist(), "lambda": [0, 0.9]}
    options: dict[str, Any] = {"runs": 2, "steps": 100}
    expected = sweep("chain", grid, **options)
    with pytest.raises(KeyboardInterrupt):
        sweep("chain", grid, **options, run_tasks=run_tasks, out=tmp_path)
    assert done == [3, 2]
    done.clear()
    result = sweep("chain", grid, **options, run_tasks=run_tasks, out=tmp_path)
    assert done == [1, 0]
    np.testing.assert_array_equal(result.mean, expected.mean)
    np.testing.assert_array_equal(result.curve, expected.curve)
