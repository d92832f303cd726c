"""A few seconds of the standing attack, from fixed seeds, with kernels as plain Python: see ``tests.attack``."""

from __future__ import annotations

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


@pytest.mark.plain
def test_a_failure_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "SURFACES", {"expressions": lambda rng: 1 / 0})
    found = campaign.attack_once(3, {"engines": ("sparse",)})
    assert found.failures == {"expressions": campaign.ATTEMPTS}
    assert "ZeroDivisionError" in found.reports[0]
    assert found.total > 100
