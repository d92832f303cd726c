"""A few seconds of the standing attack, from fixed seeds, with kernels as plain Python: see ``tests.attack``."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

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
