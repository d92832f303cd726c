"""The notebooks run from end to end, and say what they show."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


def run(name: str) -> dict[str, Any]:
    """What the cells of a notebook have made."""
    spec = importlib.util.spec_from_file_location(name, NOTEBOOKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with mpl.rc_context({"backend": "agg"}):
        return dict(module.app.run()[1])


def test_there_are_two() -> None:
    assert sorted(path.stem for path in NOTEBOOKS.glob("*.py")) == ["new_rule", "ten_minutes"]


@pytest.mark.filterwarnings("ignore")  # of marimo's own
def test_the_algorithm_in_ten_minutes() -> None:
    made = run("ten_minutes")
    assert "self.F" in made["source"]
    assert made["A"] == pytest.approx({"td": -0.2, "etd": 3.4})
    assert abs(made["paths"]["td"][-1]) > 1.0 > abs(made["paths"]["true_online_etd"][-1])
    assert made["worth"] == pytest.approx([16, 24, 28, 30, 1])
    assert made["error"][-1] == pytest.approx(np.sqrt(1.728646), abs=0.1)


@pytest.mark.filterwarnings("ignore")
def test_a_new_rule_from_idea_to_figure() -> None:
    made = run("new_rule")
    assert made["apart"] == pytest.approx({"vtrace": 0.0, "td": 0.0}, abs=1e-12)
    assert [row["rule"] for row in made["table"]] == ["td", "vtrace", "etd", "clipped_td"]
    assert made["found"].rerun.plan.runs == 20
    assert made["verdict"] in ("clearly worse", "not clearly worse")
    assert len(made["over_alpha"].axes) >= 4
