"""Tiny streams with the weights after every step, for implementations in any language: ``python -m oracles``.

    {"rule": …, "n": …, "steps": [{"alpha", "I", "lambda", "phi", "rho", "R", "phi_next", "gamma_next",
                                   the rule's own parameters by name, "theta", "delta"}, …]}

θ and all traces are 0 before the first step; ``theta`` is θ after a step, ``delta`` its TD error R + γ'θ·φ' − θ·φ from
before the update. Every φ' is φ of the next step. ρ, γ, λ and I change and are sometimes 0, and the sequence has an
end: γ' = 0 and φ' = 0, then a step from φ = 0 with I = 0.

The numbers are those of the reference engine. They are compared with the equations of the papers, which the tests hold
as another text (``tests.support.equations``), and those of true_online_etd also with Sutton's pseudocode.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import emphatic
from tests.support.equations import RULES, Sequence

__all__ = ["FOLDER", "NAMES", "TOLERANCE", "check", "make", "write"]

FOLDER = Path(__file__).parent
#: The rules, the first of which is Sutton's (2015).
NAMES = ("true_online_etd", "td", "true_online_td", "etd", "gtd", "tdrc", "tree_backup", "bounded_etd")
#: The largest difference from the equations, as a part of the largest weight.
TOLERANCE = 1e-12
#: Of a step by the names of the files, in the order of ``learn``, and by ``learn``'s own names.
_LEARN = {
    **{name: name for name in ("alpha", "I")},
    "lambda": "lambda_",
    **{name: name for name in ("phi", "rho", "R", "phi_next", "gamma_next")},
}
_END = 14  # the step that ends the first sequence


def _stream(rule: str, T: int = 24, n: int = 3) -> list[dict[str, Any]]:
    """The steps of an oracle without what is learned: numbers of two digits, special ones often."""
    traits, rng = emphatic.rules.get(rule), np.random.default_rng(2015)

    def drawn(low: float, high: float, *special: float) -> list[float]:
        numbers = rng.uniform(low, high, T).round(2)
        return [float(x) for x in np.where(rng.random(T) < 0.4, rng.choice(special, T), numbers)]

    Phi = rng.uniform(-1.0, 1.0, (T + 1, n)).round(2) * (rng.random((T + 1, n)) < 0.7) + 0.0
    Phi[_END + 1] = 0.0
    columns = {"alpha": drawn(0.2, 1.0, 0.5), "I": drawn(0.1, 2.0, 0.0, 1.0), "lambda": drawn(0.1, 0.9, 0.0, 1.0)}
    columns |= {
        "rho": drawn(0.2, 1.8, 0.0, 1.0),
        "R": drawn(-2.0, 2.0, 0.0, 1.0),
        "gamma_next": drawn(0.3, 1.0, 0.0, 1.0),
    }
    own = {"beta": drawn(0.01, 0.2, 0.0), "kappa": drawn(0.1, 1.5, 1.0), "pi": drawn(0.1, 0.9, 0.0, 1.0)}
    own |= {"low": drawn(-0.3, -0.02, -0.1), "high": drawn(0.02, 0.3, 0.1)}
    own["lambda_next"] = [*columns["lambda"][1:], 0.0]
    columns["gamma_next"][_END], columns["I"][_END + 1] = 0.0, 0.0
    if not traits.interest:
        columns["I"] = [1.0] * T
    columns |= {name: own[name] for name in traits.extra}
    columns |= {"phi": Phi[:-1].tolist(), "phi_next": Phi[1:].tolist()}
    return [{name: columns[name][t] for name in (*_LEARN, *traits.extra)} for t in range(T)]


def make(rule: str) -> dict[str, Any]:
    """The oracle of a rule, by the reference engine.

    Args:
        rule: One of ``NAMES``.
    """
    steps = _stream(rule)
    n = len(steps[0]["phi"])
    learner = emphatic.Learner(rule, n, engine="reference")
    for step in steps:
        delta = learner.learn(**{_LEARN.get(name, name): value for name, value in step.items()})
        step |= {"theta": learner.theta.tolist(), "delta": delta}
    return {"rule": rule, "n": n, "steps": steps}


def write(oracle: dict[str, Any]) -> Path:
    """Write an oracle, a step to a line; its path.

    Args:
        oracle: As ``make`` gives it.
    """
    path = FOLDER / f"{oracle['rule']}.json"
    steps = ",\n".join(json.dumps(step, allow_nan=False) for step in oracle["steps"])
    head = json.dumps({"rule": oracle["rule"], "n": oracle["n"]})[:-1]
    path.write_text(f'{head}, "steps": [\n{steps}\n]}}\n', encoding="utf-8")
    return path


def check(oracle: dict[str, Any]) -> dict[str, float]:
    """How far an oracle is from each text of its algorithm, as a part of its largest number; of ∞ where it is NaN.

    Args:
        oracle: As read from its file.
    """
    steps, n = oracle["steps"], oracle["n"]
    theta, delta = (np.array([step[name] for step in steps]) for name in ("theta", "delta"))
    texts = {"reference": make(oracle["rule"])["steps"], "equations": _by_equations(oracle)}
    if oracle["rule"] == NAMES[0]:
        seed = emphatic.reference.TrueOnlineETD(n)
        texts["pseudocode"] = []
        for step in steps:
            given: dict[str, Any] = {
                _LEARN[name]: np.array(step[name]) if "phi" in name else step[name] for name in _LEARN
            }
            texts["pseudocode"].append({"delta": seed.learn(**given), "theta": seed.theta})
    found = {}
    for name, text in texts.items():
        wanted = [(np.array([step[key] for step in text]), ours) for key, ours in (("theta", theta), ("delta", delta))]
        found[name] = max(float(np.abs(ours - value).max() / np.abs(ours).max()) for value, ours in wanted)
    return found


def _by_equations(oracle: dict[str, Any]) -> list[dict[str, Any]]:
    """θ and δ by the equations."""
    names = {"phi": "Phi", "phi_next": "Phi_next", "lambda": "lambda_"}
    columns = {name: np.array([step[name] for step in oracle["steps"]]) for name in oracle["steps"][0]}
    given: dict[str, Any] = {
        names.get(name, name): column for name, column in columns.items() if name not in ("theta", "delta")
    }
    Theta = RULES[oracle["rule"]](Sequence(theta_0=np.zeros(oracle["n"]), **given)).rows["theta"]
    values, values_next = (np.sum(Theta[:-1] * columns[name], axis=1) for name in ("phi", "phi_next"))
    delta = columns["R"] + columns["gamma_next"] * values_next - values
    return [{"theta": theta, "delta": error} for theta, error in zip(Theta[1:], delta, strict=True)]
