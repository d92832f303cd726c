"""Mutants must die: known one-line slips, in rules and in engines, each of which the contract must catch.

A rule's mutant runs on the reference engine, since every engine compiles that same text; an engine's mutant runs as
plain Python, from the text that numba would have compiled.
"""

from __future__ import annotations

import inspect
import itertools
import linecache
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import emphatic
from emphatic.engines import dense, sparse
from emphatic.rules import Rule
from tests.contract import violations

#: (rule, what its source says, what the slip makes of it)
SLIPS = [
    ("td", "c = rho * gamma * lambda_", "c = gamma * lambda_"),
    ("td", "c = rho * gamma * lambda_", "c = rho * gamma_next * lambda_"),
    ("td", "s = rho * I", "s = I"),
    ("td", "w * s, 0.0", "w, 0.0"),
    ("td", "w = alpha * delta", "w = delta"),
    ("etd", "F = F + I", "F = F * I"),
    ("etd", "F = F + I", "F = F + 1.0"),
    ("etd", "M = lambda_ * I + (1.0 - lambda_) * F", "M = F"),
    ("etd", "M = lambda_ * I + (1.0 - lambda_) * F", "M = (1.0 - lambda_) * I + lambda_ * F"),
    ("etd", "rho * gamma_next * F", "gamma_next * F"),
    ("etd", "rho * gamma_next * F", "rho * gamma * F"),
    ("etd_beta", "beta * (gamma > 0.0) * F", "beta * F"),
    ("etd_beta", "beta * (gamma > 0.0) * F", "gamma * F"),
    ("etd_beta", "(gamma_next, rho * F)", "(gamma_next, F)"),
    ("true_online_td", "S - b", "S"),
    ("true_online_td", "b = rho * alpha * I", "b = alpha * I"),
    ("true_online_td", "b = rho * alpha * I", "b = rho * alpha"),
    ("true_online_etd", "F = F + I", "F = I"),
    ("true_online_etd", "M = lambda_ * I + (1.0 - lambda_) * F", "M = lambda_ * F + (1.0 - lambda_) * I"),
    ("true_online_etd", "c = rho * gamma * lambda_", "c = gamma * lambda_"),
    ("true_online_etd", "b = rho * alpha * M", "b = alpha * M"),
    ("true_online_etd", "S = b * (1.0 - c * e_phi)", "S = b"),
    ("true_online_etd", "S = b * (1.0 - c * e_phi)", "S = b * (1.0 - e_phi)"),
    ("true_online_etd", "S = b * (1.0 - c * e_phi)", "S = b * (1.0 + c * e_phi)"),
    ("true_online_etd", "w = (delta + D) * c", "w = delta * c"),
    ("true_online_etd", "w = (delta + D) * c", "w = (delta - D) * c"),
    ("true_online_etd", "q = delta * S + D * (S - b)", "q = delta * S + D * S"),
    ("true_online_etd", "q = delta * S + D * (S - b)", "q = delta * S"),
    ("true_online_etd", "D = w * e_phi_next + q * phi_phi_next", "D = w * e_phi_next"),
    ("true_online_etd", "D = w * e_phi_next + q * phi_phi_next", "D = q * phi_phi_next"),
    ("true_online_etd", "D = w * e_phi_next + q * phi_phi_next", "D = w * e_phi + q * phi_phi_next"),
    ("true_online_etd", "(gamma_next, D, rho", "(gamma, D, rho"),
    ("true_online_etd", "rho * gamma_next * F", "gamma_next * F"),
    ("true_online_etd", "rho * gamma_next * F", "rho * F"),
    ("true_online_etd_beta", "beta * (gamma > 0.0) * F", "beta * F"),
    ("true_online_etd_beta", "(gamma_next, D, rho * F)", "(gamma_next, D, beta * F)"),
]  # fmt: skip

#: (engine, what its kernels' text says, what the slip makes of it)
KERNEL_SLIPS = [
    (dense, "sum_y0 += z0 * q", "sum_y0 += z0 * p"),
    (dense, "sum_pq += p * q", "sum_pq += p * p"),
    (dense, "v0 = z0 + a01 * z1 + b0 * p; v1", "v0 = z0 + a01 * z1 + b0 * q; v1"),
    (dense, "v1 = a11 * z1 + b1 * p", "v1 = a11 * z1"),
    (dense, "z0 = v0; z1 = v1", "z0 = v0; z1 = a11 * z1"),
    (dense, "f0 = new0", "pass"),
    (dense, "scalars[k, 0] = new0", "pass"),
    (dense, "gamma_next = all_gamma_next[t, k]", "gamma_next = all_gamma_next[t, 0]"),
    (dense, "z0 = X[0, k, i]", "z0 = X[0, 0, i]"),
    (dense, "s = min(t + 1, T - 1)", "s = t"),
    (dense, "predictions[t, k] = x0", "predictions[t, k] = y0"),
    (sparse, "C[1] *= a11", "C[1] = a11"),
    (sparse, "C[2] = C[2] + a01 * C[1]", "C[2] = a01 * C[1]"),
    (sparse, "H0[k, i] += table[k, 0, s, 0] * h", "pass"),
    (sparse, "H1[k, i] = h * table[k, 0, s, 1]", "pass"),
    (sparse, "owed[s, 0] += C[2] / C[0] * left", "owed[s, 0] = C[2] / C[0] * left"),
    (sparse, "left *= C[1]", "left *= 1.0"),
    (sparse, "for s in range(live, e + 1):", "for s in range(e, e + 1):"),
    (sparse, "u0 = (b0 - C[2] * u1) / C[0]", "u0 = b0 / C[0]"),
    (sparse, "u1 = b1 / C[1]", "u1 = b1"),
    (sparse, "pq += value[b] * v", "pq += v * v"),
    (sparse, "x0 = C[0] * hx0 + C[2] * hx1", "x0 = C[0] * hx0"),
    (sparse, "C[2] = 0.0", "pass"),
]


def mutant(rule: Rule, old: str, new: str, number: Any = itertools.count()) -> Rule:  # noqa: B008
    """The rule with that slip in its source; NumPy and numba find the new source like any other."""
    source = inspect.getsource(rule.function)
    slipped = source.replace(old, new)
    assert slipped != source, f"{rule.name} does not say {old!r}"
    file = f"<mutant {next(number)} of {rule.name}>"
    linecache.cache[file] = (len(slipped), None, slipped.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {}
    exec(compile("from __future__ import annotations\n" + slipped, file, "exec"), namespace)
    return replace(rule, function=namespace[rule.function.__name__])


@pytest.mark.parametrize(("name", "old", "new"), SLIPS)
def test_a_slip_in_a_rule_is_caught(name: str, old: str, new: str) -> None:
    if name == "true_online_td":
        old, new = (text.replace("S", "s") for text in (old, new))
    rule = mutant(emphatic.rules.get(name), old, new)
    assert violations(name, lambda n, K: emphatic.Learner(rule, n, K, engine="reference"), None, "float64") != []


def in_python(engine: Any, slip: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the engine run its kernels' text, changed by ``slip``, without numba."""

    def kernel(rule: Rule, dtype: str, name: str) -> Any:
        text = slip(engine.source(rule, dtype))
        text = text.replace("numba.njit(inline='always', **OPTIONS)", "").replace("numba.njit(**OPTIONS)", "")
        namespace: dict[str, Any] = {}
        exec(text, namespace)
        return namespace[name]

    monkeypatch.setattr(engine, "_kernel", kernel)


def kernel_violations(engine: Any) -> list[str]:
    name = engine.__name__.rsplit(".", 1)[1]
    rule = "true_online_etd"
    with np.errstate(all="ignore"):
        try:
            maker = partial(emphatic.Learner, rule, engine=name)
            return violations(rule, maker, None, "float64") + violations(rule, maker, 2, "float64")
        except (emphatic.Diverged, ZeroDivisionError) as error:
            return [str(error)]


@pytest.mark.parametrize(("engine", "old", "new"), KERNEL_SLIPS)
def test_a_slip_in_a_kernel_is_caught(engine: Any, old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def slip(text: str) -> str:
        assert old in text, f"the kernels do not say {old!r}"
        return text.replace(old, new)

    in_python(engine, slip, monkeypatch)
    assert kernel_violations(engine) != []


@pytest.mark.parametrize("engine", [dense, sparse])
def test_the_kernels_as_they_are_pass_in_plain_python(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    in_python(engine, lambda text: text, monkeypatch)
    assert kernel_violations(engine) == []


def test_a_mutant_is_compiled_anew() -> None:
    """A kernel of the right rule on disk must not stand in for the mutant's."""
    rule = mutant(emphatic.rules.get("true_online_etd"), "S = b * (1.0 - c * e_phi)", "S = b")
    for engine in ("dense", "sparse"):
        made = violations("true_online_etd", partial(emphatic.Learner, rule, engine=engine), None, "float64")
        assert made != []
