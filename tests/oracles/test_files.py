"""The files of ``oracles/``: what they hold, that they are right, and that they find slips."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import emphatic
from oracles import FOLDER, NAMES, TOLERANCE, check, make
from tests.rules.test_mutants import SLIPS, mutant
from tests.support.plain import plain_python

KEYS = ["alpha", "I", "lambda", "phi", "rho", "R", "phi_next", "gamma_next"]


def read(rule: str) -> Any:
    return json.loads((FOLDER / f"{rule}.json").read_text(encoding="utf-8"))


def weights(oracle: Any, rule: Any, engine: str) -> Any:
    """θ after each step, (T, n), by a rule on an engine."""
    learner, found = emphatic.Learner(rule, oracle["n"], engine=engine), []
    for step in oracle["steps"]:
        given = {"lambda_" if name == "lambda" else name: value for name, value in step.items()}
        learner.learn(**{name: given[name] for name in given if name not in ("theta", "delta")})
        found.append(learner.theta)
    return np.array(found)


def off(oracle: Any, theta: Any) -> float:
    wanted = np.array([step["theta"] for step in oracle["steps"]])
    return float(np.abs(theta - wanted).max() / np.abs(wanted).max())


def test_there_is_a_file_for_each_rule() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.json")) == sorted(NAMES)


@pytest.mark.parametrize("rule", NAMES)
def test_a_file_is_as_it_is_made_and_right(rule: str) -> None:
    oracle, made = read(rule), make(rule)
    assert list(oracle) == ["rule", "n", "steps"]
    for step, again in zip(oracle["steps"], made["steps"], strict=True):
        assert list(step) == [*KEYS, *emphatic.rules.get(rule).extra, "theta", "delta"]
        assert {name: step[name] for name in list(step)[:-2]} == {name: again[name] for name in list(step)[:-2]}
        assert np.isfinite([value for value in step.values() if isinstance(value, float)]).all()
    assert max(check(oracle).values()) <= TOLERANCE
    assert [step["phi"] for step in oracle["steps"][1:]] == [step["phi_next"] for step in oracle["steps"][:-1]]
    columns = {name: {step[name] for step in oracle["steps"]} for name in ("rho", "gamma_next", "lambda", "I")}
    assert all(0.0 in values and 1.0 in values and len(values) > 5 for name, values in columns.items() if name != "I")
    assert 0.0 in columns["I"] or not emphatic.rules.get(rule).interest


@pytest.mark.parametrize("engine", ["dense", "sparse", "chunked"])
@pytest.mark.parametrize("rule", NAMES)
def test_every_engine_passes(rule: str, engine: str) -> None:
    oracle = read(rule)
    with plain_python():
        assert off(oracle, weights(oracle, rule, engine)) <= TOLERANCE


@pytest.mark.parametrize(("rule", "old", "new"), [slip for slip in SLIPS if slip[0] in NAMES])
def test_a_slip_is_found(rule: str, old: str, new: str) -> None:
    if rule == "true_online_td":
        old, new = (text.replace("S", "s") for text in (old, new))
    oracle = read(rule)
    try:
        theta = weights(oracle, mutant(emphatic.rules.get(rule), old, new), "reference")
    except (emphatic.Diverged, ZeroDivisionError):
        return
    assert off(oracle, theta) > 1e-6


def test_a_wrong_number_is_found() -> None:
    oracle = read("td")
    oracle["steps"][-1]["theta"][1] += 1e-9
    assert min(check(oracle).values()) > TOLERANCE
