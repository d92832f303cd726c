"""V-trace's bound ρ̄ as a parameter: what is refused, and step-size methods."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from emphatic import Learner
from tests.support.streams import make, relative_error

pytestmark = pytest.mark.plain


@pytest.mark.parametrize("bad", [-0.1, -math.inf, math.nan, "1", None, 1j, [1.0, 2.0]])
@pytest.mark.parametrize("engine", ["reference", "dense", "sparse"])
def test_what_is_no_bound_is_named_and_changes_nothing(engine: str, bad: Any) -> None:
    learner = Learner("vtrace", 4, engine=engine)
    phi = np.eye(4)
    learner.learn(0.1, 1.0, 0.9, phi[0], 1.0, 1.0, phi[1], 0.9, rho_bar=1.0)
    theta = learner.theta
    with pytest.raises(ValueError, match=r"'rho_bar' parameter of learn"):
        learner.learn(0.1, 1.0, 0.9, phi[1], 1.0, 1.0, phi[2], 0.9, rho_bar=bad)
    with pytest.raises(ValueError, match=r"'rho_bar' parameter of run"):
        learner.run(phi, 1.0, 0.9, alpha=0.1, rho_bar=bad)
    assert np.array_equal(learner.theta, theta)
    assert learner.steps == 1


def test_only_what_is_declared_may_be_infinite() -> None:
    """α, and κ of tdrc, whose default is a number; the message says so."""
    phi = np.eye(3)
    for rule, name in (("vtrace", "alpha"), ("tdrc", "kappa"), ("tdrc", "alpha"), ("vtrace", "rho")):
        arguments: dict[str, Any] = {"alpha": 0.1, "rho": 1.0} | {name: math.inf}
        with pytest.raises(ValueError, match=rf"'{name}' parameter of run must be 0 or more, and finite. Got inf"):
            Learner(rule, 3, engine="dense").run(phi, 1.0, 0.9, **arguments)
    with pytest.raises(ValueError, match=r"'rho_bar' parameter of run must be 0 or more\. Got -1.0 at step 1"):
        Learner("vtrace", 3, engine="dense").run(phi, 1.0, 0.9, alpha=0.1, rho_bar=[math.inf, -1.0])


@pytest.mark.parametrize("stepsize", ["alphabound", "decaying", "scaled"])
def test_step_size_methods_take_the_bound(stepsize: str) -> None:
    """With ρ̄ = 1 as with ratios clipped at 1; without, as with an infinite one."""
    stream = replace(make(4, 60, 6, 3, rule="vtrace"), extra={})
    parameters = stream.parameters() | {"alpha": 0.05}
    clipped = parameters | {"rho": np.minimum(stream.rho, 1.0)}

    def taught(**given: Any) -> Any:
        learner = Learner("vtrace", 6, 3, engine="dense", stepsize=stepsize)
        learner.run(stream.Phi, **given)
        return learner.theta

    assert relative_error(taught(**parameters, rho_bar=1.0), taught(**clipped)) < 1e-9
    assert np.array_equal(taught(**parameters, rho_bar=math.inf), taught(**parameters))
    assert relative_error(taught(**parameters, rho_bar=1.0), taught(**parameters)) > 1e-4
