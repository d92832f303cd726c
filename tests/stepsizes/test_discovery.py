"""Step-size methods of other distributions, which entry points add."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from tests.stepsizes.test_own import Harmonic, harmonic
from tests.support.distributions import run_with, write_distribution

HARMONIC = f"""
from __future__ import annotations
from dataclasses import dataclass
from typing import Any, ClassVar

from emphatic.rules import Scalars
from emphatic.stepsizes.scalar import Method, ScalarStepSize

__all__ = ["Harmonic"]

{inspect.getsource(harmonic)}
{inspect.getsource(Harmonic).replace("test_harmonic", "harmonic")}
"""

USE = """
import numpy as np
import emphatic
from emphatic import Learner, stepsizes

assert stepsizes.names()[-1] == "harmonic", stepsizes.names()
rng = np.random.default_rng(0)
Phi, R = rng.normal(size=(41, 3)), rng.normal(size=40)
learner = Learner("td", 3, engine="reference", stepsize={"name": "harmonic", "alpha": 0.5})
learner.run(Phi[:21], R[:20], 0.9)
learner.save("model.safetensors")
again = emphatic.load("model.safetensors")
assert again.stepsize == learner.stepsize == stepsizes.get({"name": "harmonic", "alpha": 0.5})
again.run(Phi[20:], R[20:], 0.9)
plain = Learner("td", 3, engine="reference")
plain.run(Phi, R, 0.9, alpha=0.5 / np.arange(1.0, 41.0))
assert np.allclose(again.theta, plain.theta, rtol=1e-12)
print("learned")
"""


@pytest.mark.parametrize("value", ["of_another:Harmonic", "of_another"])
def test_a_method_of_another_distribution_learns_and_is_saved(value: str, tmp_path: Path) -> None:
    write_distribution(tmp_path, "another", {"of_another": HARMONIC}, {"emphatic.stepsizes": {"harmonic": value}})
    assert run_with(tmp_path, USE) == "learned\n"


MISUSE = """
from emphatic import stepsizes

assert stepsizes.get("auto") == stepsizes.Auto()
for name in ("broken", "other"):
    try:
        stepsizes.get(name)
    except (ImportError, TypeError) as error:
        print(error)
try:
    stepsizes.get("scalar")
except ValueError as error:
    print(error)
"""


def test_an_entry_point_that_is_no_method_is_named_and_harms_no_other(tmp_path: Path) -> None:
    points = {"broken": "of_nobody:Method", "other": "collections:OrderedDict"}
    write_distribution(tmp_path, "another", {}, {"emphatic.stepsizes": points})
    broken, other, unknown = run_with(tmp_path, MISUSE).splitlines()
    assert broken.startswith("The entry point 'broken = of_nobody:Method' of another (group 'emphatic.stepsizes') ca")
    assert "must be a subclass of emphatic.stepsizes.StepSize with the name 'other'. Got <class" in other
    assert unknown.startswith("The 'stepsize' parameter must be one of constant, scaled, ")
    assert "emphatic, broken, other, or an object" in unknown
