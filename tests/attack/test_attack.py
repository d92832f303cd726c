"""A few seconds of the standing attack, from fixed seeds, with kernels as plain Python: see ``tests.attack``."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from emphatic.rules import _lazy
from tests.attack import campaign
from tests.attack.campaign import draw_rules
from tests.attack.endurance import drift, leaks
from tests.attack.machine import COUNTS, LearnerMachine
from tests.attack.surfaces import SURFACES


@pytest.mark.plain
def test_every_call_of_a_learner() -> None:
    before = COUNTS.total()
    some = settings(
        max_examples=12, stateful_step_count=15, deadline=None, derandomize=True, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    run_state_machine_as_test(LearnerMachine, settings=some)
    assert COUNTS.total() - before > 100


@pytest.mark.plain
@pytest.mark.parametrize("surface", SURFACES)
def test_every_other_surface(surface: str) -> None:
    for seed in range(40):
        SURFACES[surface](np.random.default_rng(seed))


@pytest.mark.long
@pytest.mark.parametrize("surface", [name for name in SURFACES if name.startswith("own_")])
def test_many_rules_and_methods_that_nobody_has_written(surface: str) -> None:
    assert draw_rules(200, 1000, {surface: SURFACES[surface]}).failures == {}


def test_rules_that_a_check_lets_through_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_lazy, "obstacle", lambda rule: "")
    surfaces = {name: SURFACES[name] for name in ("own_rules", "own_elementwise_rules")}
    found = draw_rules(30, 0, surfaces)
    assert set(found.failures) == {"own_elementwise_rules"}
    assert any("theta on sparse is off by" in report for report in found.reports)


def test_nothing_leaks(capsys: pytest.CaptureFixture[str]) -> None:
    assert leaks(0.01) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in said] == ["learn", "run", "observe", "live readings"]


@pytest.mark.plain
def test_engines_stay_together() -> None:
    assert drift(200) == 0


def test_the_attack_in_several_processes() -> None:
    command = [sys.executable, "-m", "tests.attack", "--calls", "1", "--processes", "2", "--engines", "sparse"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["failures"] == {}
    assert found["calls"] > 100
    assert set(found["by_engine"]) == {"sparse"}


def end_the_process(_: object) -> None:
    os._exit(9)


def test_a_failure_and_a_dead_process_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "compile_kernels", end_the_process)
    assert campaign.attack(1, 0, 60.0, 2, {"engines": ("dense",)}).failures == {"process": 1}
    monkeypatch.setattr(campaign, "run_state_machine_as_test", lambda *_, **__: None)
    monkeypatch.setattr(campaign, "SURFACES", {"policies": lambda rng: 1 / 0})
    found = campaign.attack_once(3)
    assert found.failures == {"policies": campaign.ATTEMPTS}
    assert "ZeroDivisionError" in found.reports[0]
