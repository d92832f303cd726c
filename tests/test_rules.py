"""Rules as such: what their source may hold, their structure, and a rule of one's own on every engine."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import textwrap
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import emphatic
from emphatic.rules import Rule, Scalars, Update
from tests.streams import TOLERANCE, make, relative_error

ALL = [emphatic.rules.get(name) for name in emphatic.rules.names()]


def toy(step: Scalars, memory: Scalars, x: Scalars, x_next: Scalars, g: Scalars) -> Update:
    """e ← ργλe + φ;  θ ← θ + α[δe − κ(e·w)φ'];  w ← (1 − ακ)w + ακ[δe − (w·φ)φ + φ'];  remembered: e·w, e·e"""
    alpha, I, lambda_, rho, gamma_next, delta, kappa = step
    gamma, ew, ee = memory
    _, w_phi, e_phi = x
    _, _, e_phi_next = x_next
    phi_phi, phi_phi_next, _ = g
    c = rho * gamma * lambda_
    ee = c * c * ee + 2.0 * c * e_phi + phi_phi
    ew = c * ew + w_phi
    e_phi = c * e_phi + phi_phi
    e_phi_next = c * e_phi_next + phi_phi_next
    a, h = alpha * delta, alpha * kappa * ew
    b = alpha * kappa
    d = 1.0 - b
    return (
        ((1.0, 0.0, a * c), (0.0, d, b * delta * c), (0.0, 0.0, c)),
        ((a, -h), (b * delta - b * w_phi, b), (1.0, 0.0)),
        (gamma_next, d * ew + b * (delta * ee - w_phi * e_phi + e_phi_next), ee),
    )


TOY = Rule("toy", toy, weights=("theta", "w"), traces=("e",), memory=("gamma", "ew", "ee"), extra=("kappa",))


def toy_in_vectors(stream: Any, kappa: npt.NDArray[Any], k: int) -> tuple[npt.NDArray[Any], ...]:
    """The toy rule with e·w as a product of vectors, as its docstring says."""
    theta, w, e = np.zeros(stream.n), np.zeros(stream.n), np.zeros(stream.n)
    s, gamma = stream.sequence(k), 0.0
    for t in range(stream.T):
        phi, phi_next, alpha = s.Phi[t], s.Phi_next[t], s.alpha[t]
        delta = s.R[t] + s.gamma_next[t] * theta @ phi_next - theta @ phi
        e = s.rho[t] * gamma * s.lambda_[t] * e + phi
        theta, w = (
            theta + alpha * (delta * e - kappa[t] * (e @ w) * phi_next),
            (1 - alpha * kappa[t]) * w + alpha * kappa[t] * (delta * e - (w @ phi) * phi + phi_next),
        )
        gamma = s.gamma_next[t]
    return theta, w, e


@pytest.mark.parametrize("engine", emphatic.engines.available())
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("active", [None, 3])
def test_a_rule_of_three_vectors_runs_on_every_engine(engine: str, dtype: str, active: int | None) -> None:
    K = 3
    stream = make(5, 151, 9, K, active=active, binary=False, separate=True)
    kappa = np.random.default_rng(1).random(stream.T)
    learner = emphatic.Learner(TOY, stream.n, K, dtype=dtype, engine=engine)
    Phi, Phi_next = stream.features()
    p: dict[str, Any] = stream.parameters()
    learner.run(Phi, p.pop("R"), p.pop("gamma_next"), Phi_next=Phi_next, kappa=kappa, **p)
    for k in range(K):
        theta, w, e = toy_in_vectors(stream, kappa, k)
        assert np.abs(w).max() > 0.01
        for got, wanted in ((learner.theta[k], theta), (learner.w[k], w), (learner.e[k], e)):
            assert relative_error(got, wanted) <= TOLERANCE[dtype]
        assert relative_error(learner.ew[k], e @ w) <= TOLERANCE[dtype]


def test_a_weight_that_scales_itself_away_is_settled_in_time() -> None:
    """The toy's w decays by 1 − ακ each step: its lazy scale leaves any bounds again and again."""
    rng = np.random.default_rng(0)
    T, n = 2001, 7
    index = rng.integers(0, n, size=(T + 1, 1))
    common: dict[str, Any] = {"alpha": 0.5, "lambda_": 0.5, "kappa": 0.9}
    results = []
    for engine in ("reference", "sparse"):
        learner = emphatic.Learner(TOY, n, engine=engine)
        learner.run(emphatic.Active(index), np.ones(T), 0.9, **common)
        results.append(np.concatenate([learner.theta, learner.w, learner.e]))
    assert relative_error(results[1], results[0]) <= TOLERANCE["float64"]


# ------------------------------------------------------------------ source


ALLOWED = (
    ast.FunctionDef, ast.arguments, ast.arg, ast.Expr, ast.Assign, ast.Return, ast.Tuple, ast.Name, ast.Constant,
    ast.Load, ast.Store, ast.BinOp, ast.UnaryOp, ast.USub, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Compare, ast.Gt,
    ast.Lt, ast.GtE, ast.LtE, ast.Call,
)  # fmt: skip


def unfit(source: str) -> list[str]:
    """What in a rule's source NumPy, numba and Triton would not all take."""
    function = ast.parse(textwrap.dedent(source)).body[0]
    assert isinstance(function, ast.FunctionDef)
    found = []
    parents = {child: parent for parent in ast.walk(function) for child in ast.iter_child_nodes(parent)}
    local = {arg.arg for arg in function.args.args}
    local |= {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    annotations = {id(a.annotation) for a in function.args.args} | {id(function.returns)}
    for node in ast.walk(function):
        line = f"line {getattr(node, 'lineno', 1)}"
        if id(node) in annotations:
            continue
        if not isinstance(node, ALLOWED):
            found.append(f"{line}: {type(node).__name__}")
        if isinstance(node, ast.Call) and not (
            isinstance(node.func, ast.Name) and node.func.id in ("min", "max") and len(node.args) == 2
        ):
            found.append(f"{line}: a call")
        if isinstance(node, ast.Compare) and not (
            isinstance(parents[node], ast.BinOp) and isinstance(parents[node].op, ast.Mult)  # type: ignore[attr-defined]
        ):
            found.append(f"{line}: a comparison that is not a factor")
        if isinstance(node, ast.Name) and node.id not in local | {"min", "max"}:
            found.append(f"{line}: {node.id} from outside")
        if isinstance(node, ast.Constant) and not isinstance(node.value, float | str):
            found.append(f"{line}: the literal {node.value!r}")
        if isinstance(node, ast.Return):
            assert isinstance(node.value, ast.Tuple)
            memory = node.value.elts[-1]
            assert isinstance(memory, ast.Tuple)
            found += [f"{line}: literal memory" for entry in memory.elts if isinstance(entry, ast.Constant)]
    return found


@pytest.mark.parametrize("rule", [*ALL, TOY], ids=lambda rule: rule.name)
def test_a_rule_holds_only_what_every_compiler_takes(rule: Rule) -> None:
    assert unfit(inspect.getsource(rule.function)) == []


@pytest.mark.parametrize(
    "line",
    [
        "c += 1.0", "c = c ** 2.0", "c = abs(c)", "c = 1.0 if c > 0.0 else 2.0", "c = LIMIT * c",
        "a, *b = step", "c = c > 0.0",
        "c: float", "c = helper(c)", "c = min(c, 1.0, 2.0)", "c = 2 * c", "c = True * c", "c = not c", "c = c % 2.0",
    ],
)  # fmt: skip
def test_what_some_compiler_refuses_is_found(line: str) -> None:
    source = f"def rule(step, memory, x, x_next, g):\n    c = step\n    {line}\n    return (), (), (c,)\n"
    assert unfit(source) != []


def test_a_literal_in_memory_is_found() -> None:
    assert unfit("def rule(step, memory, x, x_next, g):\n    return (), (), (0.0,)\n") != []


def test_one_file_a_rule() -> None:
    files = {module.name for module in pkgutil.iter_modules(emphatic.rules.__path__)}
    assert files == set(emphatic.rules.names())
    for rule in ALL:
        assert rule.function.__name__ == rule.name
        assert "←" in (rule.function.__doc__ or "")


def test_structure_is_found_and_arrows_are_demanded() -> None:
    A, B = emphatic.rules.get("true_online_etd").form
    assert A == ((1.0, None), (0.0, None))
    assert B == ((None, 0.0), (None, 0.0))

    def crossed(step: Scalars, memory: Scalars, x: Scalars, x_next: Scalars, g: Scalars) -> Update:
        return ((1.0, 0.0), (x[0], 0.0)), ((0.0, 0.0), (0.0, 0.0)), ()

    def looks_ahead(step: Scalars, memory: Scalars, x: Scalars, x_next: Scalars, g: Scalars) -> Update:
        return ((1.0, 0.0), (0.0, 1.0)), ((0.0, 0.0), (0.0, x[0])), ()

    def clipped(step: Scalars, memory: Scalars, x: Scalars, x_next: Scalars, g: Scalars) -> Update:
        return ((1.0, 0.0), (0.0, min(step[3], 1.0))), ((0.0, 0.0), (0.0, 0.0)), ()

    for function, message in ((crossed, "takes theta"), (looks_ahead, "takes φ'")):
        with pytest.raises(ValueError, match=message):
            _ = Rule("r", function, ("theta",), ("e",), ()).form
    assert Rule("r", clipped, ("theta",), ("e",), ()).form[0][1][1] is None
