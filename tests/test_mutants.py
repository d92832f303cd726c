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
from emphatic.engines import chunked, columns, dense, sparse, sparse_many, wide
from emphatic.rules import Rule
from tests.contract import violations
from tests.test_probe import differences_in_blocks

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
    ("gtd", "c = rho * gamma * lambda_", "c = gamma * lambda_"),
    ("gtd", "s = rho * I", "s = I"),
    ("gtd", "2.0 * c * s * e_phi", "c * s * e_phi"),
    ("gtd", "ew = c * ew + s * w_phi", "ew = c * ew"),
    ("gtd", "e_phi = c * e_phi + s * phi_phi", "e_phi = s * phi_phi"),
    ("gtd", "(1.0 - lambda_next)", "(1.0 - lambda_)"),
    ("gtd", "h = alpha * gamma_next", "h = alpha * gamma"),
    ("gtd", "h = alpha * gamma_next", "h = beta * gamma_next"),
    ("gtd", "beta * w_phi", "alpha * w_phi"),
    ("gtd", "(a * s, -h)", "(a * s, h)"),
    ("gtd", "(b * s - k, 0.0)", "(b * s, 0.0)"),
    ("gtd", "ew + b * ee - k * e_phi", "ew + b * ee"),
    ("gtd2", "alpha * w_phi", "alpha * delta"),
    ("gtd2", "(alpha * w_phi, -h)", "(alpha * w_phi, 0.0)"),
    ("gtd2", "(0.0, 1.0, b * c)", "(0.0, 1.0, 0.0)"),
    ("gtd2", "(1.0 - lambda_next) * ew", "(1.0 - lambda_next) * w_phi"),
    ("gtd2", "ew + b * ee - k * e_phi", "ew + b * ee - k * phi_phi"),
    ("tdrc", "1.0 - beta * kappa", "1.0 - kappa"),
    ("tdrc", "1.0 - beta * kappa", "1.0 - alpha * kappa"),
    ("tdrc", "(0.0, d, b * c)", "(0.0, 1.0, b * c)"),
    ("tdrc", "d * ew + b * ee", "ew + b * ee"),
    ("tdrc", "(a * s, -h)", "(a * s, -d * h)"),
    ("gq", "s = I", "s = rho * I"),
    ("gq", "s = I", "s = 1.0"),
    ("gq", "c = rho * gamma * lambda_", "c = gamma * lambda_"),
    ("gq", "(1.0 - lambda_next)", "1.0"),
    ("htd", "cz = rho * cy", "cz = cy"),
    ("htd", "2.0 * cz * rho * z_phi", "2.0 * cz * z_phi"),
    ("htd", "rho * cy * y_phi", "cy * y_phi"),
    ("htd", "zw = cz * zw + rho * w_phi", "zw = cz * zw + w_phi"),
    ("htd", "yw = cy * yw + w_phi", "yw = cz * yw + w_phi"),
    ("htd", "u = phi_phi - gamma_next * phi_phi_next", "u = phi_phi"),
    ("htd", "alpha * (zw - yw)", "alpha * zw"),
    ("htd", "beta * yw", "beta * zw"),
    ("htd", "(a * rho + j, -j * gamma_next)", "(a * rho + j, 0.0)"),
    ("htd", "(b * rho - k, k * gamma_next)", "(b * rho - k, -k * gamma_next)"),
    ("htd", "zw + b * zz - k * zu", "zw + b * zy - k * zu"),
    ("htd", "yw + b * zy - k * yu", "yw + b * zy - k * zu"),
    ("proximal_gtd2", "delta + gamma_next * (q", "delta + gamma * (q"),
    ("proximal_gtd2", "h * phi_next_phi_next", "h * phi_phi_next"),
    ("proximal_gtd2", "beta * (delta * e_phi - w_phi * phi_phi)", "beta * delta * e_phi"),
    ("proximal_gtd2", "beta * (delta * ee - w_phi * e_phi)", "beta * delta * ee"),
    ("proximal_gtd2", "b, k = beta * delta_half", "b, k = beta * delta"),
    ("proximal_gtd2", "k = beta * delta_half, beta * w_phi_half", "k = beta * delta_half, beta * w_phi"),
    ("proximal_gtd2", "(alpha * w_phi_half,", "(alpha * w_phi,"),
    ("proximal_gtd2", "-alpha * r * ew_half", "-alpha * r * ew"),
    ("proximal_gtd2", "(gamma_next, ew + b * ee", "(gamma_next, ew_half + b * ee"),
    ("true_online_gtd", "rho_before * gamma * lambda_", "rho * gamma * lambda_"),
    ("true_online_gtd", "b = rho * alpha", "b = alpha"),
    ("true_online_gtd", "b * (1.0 - c * e_phi)", "b"),
    ("true_online_gtd", "beta * (1.0 - cx * x_phi)", "beta"),
    ("true_online_gtd", "hat_phi = c * hat_phi + rho * phi_phi", "hat_phi = c * hat_phi + phi_phi"),
    ("true_online_gtd", "cx * rho * x_phi", "rho * x_phi"),
    ("true_online_gtd", "w_hat = c * w_hat + rho * w_phi", "w_hat = c * w_hat + w_phi"),
    ("true_online_gtd", "rho * delta", "delta"),
    ("true_online_gtd", "D * (s - b)", "D * s"),
    ("true_online_gtd", " - h * phi_next_phi_next", ""),
    ("true_online_gtd", "(gamma_next, rho, D", "(gamma_next, rho_before, D"),
    ("true_online_gtd", "w_hat + u * x_hat - k * hat_phi", "w_hat + u * x_hat"),
    ("tree_backup", "lambda_ * pi_before", "lambda_ * pi"),
    ("tree_backup", "alpha * rho * delta", "alpha * delta"),
    ("tree_backup", "(gamma_next, pi)", "(gamma_next, rho)"),
    ("vtrace", "min(rho_before, 1.0)", "rho_before"),
    ("vtrace", "min(rho_before, 1.0)", "min(rho, 1.0)"),
    ("vtrace", "min(rho_before, 1.0)", "max(rho_before, 1.0)"),
    ("vtrace", "alpha * rho * delta", "alpha * min(rho, 1.0) * delta"),
    ("abtd", "c = gamma * nu_pi", "c = gamma * lambda_ * nu_pi"),
    ("abtd", "min(xi, 1.0 / max(pi, mu))", "xi"),
    ("abtd", "min(xi, 1.0 / max(pi, mu))", "min(xi, 1.0 / mu)"),
    ("abtd", "min(xi, 1.0 / max(pi, mu))", "max(xi, 1.0 / max(pi, mu))"),
    ("abtd", "nu * pi", "nu"),
    ("abtd", "nu * pi", "nu * rho"),
    ("residual_gradient", "alpha * rho * I * delta", "alpha * I * delta"),
    ("residual_gradient", "alpha * rho * I * delta", "alpha * rho * delta"),
    ("residual_gradient", "alpha * rho * I * delta", "alpha * rho * I"),
    ("residual_gradient", "-w * gamma_next", "w * gamma_next"),
    ("residual_gradient", "-w * gamma_next", "-w"),
    ("residual_gradient", "-w * gamma_next", "0.0"),
    ("residual_gradient", "-w * gamma_next", "-w * gamma_next * (1.0 - lambda_)"),
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
    (sparse_many, "x1 = x[1, k]", "x1 = y[1, k]"),
    (sparse_many, "A[0, 1, k] = a01", "A[0, 1, 0] = a01"),
    (sparse_many, "after[k, 0] = new0", "pass"),
    (columns, "scalars[k, i] = after[k, i]", "pass"),
    (columns, "predictions[t, k] = c.x[0, k]", "predictions[t, k] = c.y[0, k]"),
    (columns, "pq += value[begin + c.place[index_next[a]]] * value_next[a]", "pq += value_next[a] * value_next[a]"),
    (columns, "            c.place[index[a]] = -1", "            pass"),
    (columns, "v2 * x2[k] + v3 * x3[k]", "v2 * x2[k] + v3 * x2[k]"),
    (columns, "h1 = v1 * x1[k] if t1 >= s[k] else 0.0", "h1 = v1 * x1[k]"),
    (columns, "total[k] += v * x[k] if touched >= s[k] else 0.0", "total[k] += v * x[k]"),
    (columns, "out[r, k] += c.take[r, j, k] * out[w + j, k]", "pass"),
    (columns, "c.take[r, j, k] = c.A[r, r, k] * c.take[r, j, k] + ", "c.take[r, j, k] = "),
    (columns, "c.diag[r, k] *= c.A[r, r, k]", "c.diag[r, k] = c.A[r, r, k]"),
    (columns, "more -= c.take[r, j, k]", "more -= 0.0"),
    (columns, "c.u[j, k] = c.B[j, 0, k] / c.diag[j, k]", "c.u[j, k] = c.B[j, 0, k]"),
    (columns, "c.take[r, j, k] = 0.0", "pass"),
    (columns, "c.keep[j, k] = scale if owes else 1.0", "c.keep[j, k] = 1.0"),
    (columns, "owes = owes or c.take[r, j, k] != 0.0", "pass"),
    (columns, "x[k] += pay[k] * h", "pass"),
    (columns, "e[k] = keep[k] * h", "pass"),
    (
        columns,
        "            if touched < oldest:\n                break",
        "            if touched <= oldest:\n                break",
    ),
    (columns, "c.pay[:, :, first:last] = 0.0", "pass"),
    (columns, "e[k] = h + v * u[k]", "e[k] += v * u[k]"),
    (columns, "c.touch[i], c.where[i], c.log[at] = now, at, i", "c.touch[i] = now"),
    (columns, "c.where[i] = length", "pass"),
    (columns, "if c.where[i] == at:\n            c.log[length]", "if True:\n            c.log[length]"),
    (chunked, "P = G[p, row]; Q_ = G[p + 1, row]", "P = G[p, row]; Q_ = G[p, row]"),
    (chunked, "pq = np.float64(G[p, p + 1])", "pq = np.float64(G[p, p])"),
    (chunked, "= V[0, p + 1, k]", "= V[0, p, k]"),
    (chunked, "all_alpha[t0 + t, first + k]", "all_alpha[t, first + k]"),
    (chunked, "if t == 0 or all_rho.strides[0] != 0:", "if t == 0:"),
    (chunked, "predictions[t0 + t, first + k] = V[0, p, k]", "predictions[t0 + t, first + k] = V[0, p + 1, k]"),
    (chunked, "for row in range(p + 1, rows):", "for row in range(p + 2, rows):"),
    (chunked, "z0 + a02 * z2 + b0 * P + d0 * Q_", "z0 + a02 * z2 + b0 * P"),
    (chunked, "W[0, i, k] = real(0)", "pass"),
    (chunked, "for t in range(L - 1, -1, -1):", "for t in range(L):"),
    (chunked, "= T00 * b0 + T02 * b2", "= T00 * b0"),
    (chunked, "= T00 * d0", "= d0 * 0.0"),
    (chunked, "W[0, p + 1, k] +=", "W[0, p, k] +="),
    (chunked, "W[0, p + 1, k] +=", "W[0, p + 1, k] ="),
    (chunked, "T02 = T00 * a02 + T02 * a22", "T02 = T00 * a02 + T02"),
    (chunked, "T14 = T11 * a14 + T14 * a44", "T14 = T14 * a44"),
    (chunked, "T22 = T22 * a22", "T22 = a22"),
    (chunked, "new[0, k, i] + T00 * z0 + T02 * z2", "new[0, k, i] + T00 * z0"),
    (wide, "p1 = Phi[t, 1]", "p1 = Phi[t, 0]"),
    (wide, "Z[0 + k] = z0_0 + a02 * z2_0 + b0 * p0 + d0 * q0", "Z[0 + k] = z0_0 + a02 * z2_0 + b0 * p0"),
    (wide, "z1_0 * p0 + z1_1 * p1", "z1_0 * p0 + z1_1 * q1"),
    (wide, "f1 = S[64 + k]", "f1 = S[64]"),
    (wide, "row = all_beta[t if", "row = all_beta[0 if"),
    (wide, "if t == t0 or all_rho.shape[0] > 1:", "if t == t0:"),
]

#: The same, of what is only there for a run that is watched.
WATCH_SLIPS = [
    (dense, "h = -row[n]", "h = row[n]"),
    (dense, "for j in range(n - i):", "for j in range(n - i - 1):"),
    (dense, "square += h * h", "square = h * h"),
    (dense, "frozen[k] = True", "pass"),
    (dense, "(t - begin) % every", "t % every"),
    (dense, "errors[t // every, k]", "errors[t, k]"),
    (wide, "u1_2 * z2", "u1_2 * z1"),
    (wide, " - u2_6", ""),
    (wide, " + u6_6 * u6_6", ""),
    (wide, "(t - begin) % every", "t % every"),
    (wide, "errors[t // every, who[k]]", "errors[t // every, first + k]"),
    (wide, "predictions[t, who[k]]", "predictions[t, first + k]"),
    (wide, "row[who[k]]", "row[first + k]"),
    (wide, "X[1, who[k], 3] = ", "X[1, first + k, 3] = "),
    (wide, "failed[count] = who[k]", "failed[count] = first + k"),
    (wide, "scalars[who[k], 3] += t1 - t0", "scalars[who[k], 3] += 1"),
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


def caught(rule: str, learner: Any, K: int | None) -> list[str]:
    """The violations of the contract, of which to diverge is one."""
    with np.errstate(all="ignore"):
        try:
            return violations(rule, learner, K, "float64")
        except (emphatic.Diverged, ZeroDivisionError, IndexError) as error:
            return [str(error)]


def test_every_rule_has_its_slips() -> None:
    assert {rule for rule, _, _ in SLIPS} == set(emphatic.rules.names())


@pytest.mark.parametrize(("name", "old", "new"), SLIPS)
def test_a_slip_in_a_rule_is_caught(name: str, old: str, new: str) -> None:
    if name == "true_online_td":
        old, new = (text.replace("S", "s") for text in (old, new))
    rule = mutant(emphatic.rules.get(name), old, new)
    assert caught(name, partial(emphatic.Learner, rule, engine="reference"), None) != []


def in_python(engine: Any, slip: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the engine run its kernels' text, changed by ``slip``, without numba."""

    def plain(text: str) -> dict[str, Any]:
        for decorator in ("numba.njit(inline='always', **OPTIONS)", "numba.njit(**OPTIONS)", "@jit\n"):
            text = text.replace(decorator, "")
        namespace: dict[str, Any] = {"__name__": "plain"}
        exec(text, namespace)
        return namespace

    def kernel(rule: Rule, dtype: str, which: Any, *probed: bool) -> Any:
        # Kernels are made by name, but the wide one for its n.
        if engine is wide:
            return plain(slip(wide.source(rule, dtype, which, probed=any(probed))))["wide"]
        return plain(slip(engine.source(rule, dtype)))[which]

    if engine not in (columns, sparse_many):
        monkeypatch.setattr(engine, "_kernel", kernel)
        return
    text = inspect.getsource(columns)
    made = plain(slip(text) if engine is columns else text)
    made["function_at"] = lambda decide: decide  # which is no address here
    monkeypatch.setattr(sparse_many, "_kernel", lambda dtype, name: made[name])
    change: Callable[[str], str] = str if engine is columns else slip
    monkeypatch.setattr(sparse_many, "_decide_for", lambda rule: plain(change(sparse_many.source(rule)))["decide"])


#: A rule whose kernel has all that slips, and for how many learners; "wide" is the dense engine's for several.
EXAMPLES: dict[Any, tuple[str, str, tuple[int | None, ...]]] = {
    dense: ("dense", "true_online_etd", (None, 2)),
    sparse: ("sparse", "true_online_etd", (None,)),
    sparse_many: ("sparse", "true_online_etd", (2, 7)),
    columns: ("sparse", "true_online_etd", (2, 7)),
    chunked: ("chunked", "true_online_gtd", (None, 2)),
    wide: ("dense", "gtd", (9,)),
}


def kernel_violations(engine: Any) -> list[str]:
    name, rule, learners = EXAMPLES[engine]
    return [found for K in learners for found in caught(rule, partial(emphatic.Learner, rule, engine=name), K)]


@pytest.mark.parametrize(("engine", "old", "new"), KERNEL_SLIPS)
def test_a_slip_in_a_kernel_is_caught(engine: Any, old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def slip(text: str) -> str:
        assert old in text, f"the kernels do not say {old!r}"
        return text.replace(old, new)

    in_python(engine, slip, monkeypatch)
    assert kernel_violations(engine) != []


@pytest.mark.parametrize("engine", EXAMPLES)
def test_the_kernels_as_they_are_pass_in_plain_python(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    in_python(engine, lambda text: text, monkeypatch)
    assert kernel_violations(engine) == []


@pytest.mark.parametrize(("engine", "old", "new"), [(dense, "", ""), (wide, "", ""), *WATCH_SLIPS])
def test_a_slip_in_what_watches_a_run_is_caught(
    engine: Any, old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slip(text: str) -> str:
        assert old in text, f"the kernels do not say {old!r}"
        return text.replace(old, new)

    in_python(engine, slip, monkeypatch)
    with np.errstate(all="ignore"):
        try:
            found = differences_in_blocks(7 if engine is dense else 9, monkeypatch)
        except (emphatic.Diverged, IndexError) as error:
            found = [str(error)]
    assert (found != []) == (old != new)


def test_a_mutant_is_compiled_anew() -> None:
    """A kernel of the right rule on disk must not stand in for the mutant's."""
    rule = mutant(emphatic.rules.get("true_online_etd"), "S = b * (1.0 - c * e_phi)", "S = b")
    for engine in ("dense", "sparse"):
        made = violations("true_online_etd", partial(emphatic.Learner, rule, engine=engine), None, "float64")
        assert made != []
