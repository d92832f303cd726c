"""Rules of other distributions, which entry points add."""

from __future__ import annotations

from pathlib import Path

from tests.support.distributions import run_with, write_distribution

LMS = '''
"""TD(0) without bootstrapping: θ ← θ + α (R − θ·φ) φ."""

from emphatic import Rule


def _lms(step, memory, x, x_next, g):
    alpha, I, lambda_, rho, gamma_next, delta = step
    error = delta - gamma_next * x_next[0]
    return ((1.0,),), ((alpha * error, 0.0),), ()


rule = Rule("lms", _lms, weights=("theta",), traces=(), memory=())
'''

USE = """
import numpy as np
import emphatic
from emphatic import Learner, rules

assert rules.names()[-1] == "lms", rules.names()
rng = np.random.default_rng(0)
Phi, R = rng.normal(size=(41, 3)), rng.normal(size=40)
learner = Learner("lms", 3, engine="reference")
learner.run(Phi, R, 0.0, alpha=0.1)
learner.save("model.safetensors")
assert np.array_equal(emphatic.load("model.safetensors").theta, learner.theta)
plain = Learner("td", 3, engine="reference")
plain.run(Phi, R, 0.0, alpha=0.1)
assert np.allclose(learner.theta, plain.theta, rtol=1e-12)
print("learned")
"""


def test_a_rule_of_another_distribution_learns_and_is_saved(tmp_path: Path) -> None:
    write_distribution(tmp_path, "another", {"of_another": LMS}, {"emphatic.rules": {"lms": "of_another"}})
    assert run_with(tmp_path, USE) == "learned\n"
