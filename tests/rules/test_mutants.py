"""Mutants must die: known one-line slips, in rules and in engines, each of which the contract must catch.

A rule's mutant runs on the reference engine, since every engine compiles that same text; a kernel's mutant runs as
plain Python: its own source, after the rule's small functions, as numba would have compiled them.
"""

from __future__ import annotations

import inspect
import itertools
import linecache
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import emphatic
from emphatic.engines import chunked, compiled, dense, sparse
from emphatic.engines.dense import lanes
from emphatic.engines.sparse import sparse_many
from emphatic.engines.unrolled import Functions
from emphatic.rules import Rule
from tests.engines.test_probe import differences_in_blocks
from tests.engines.test_sparse_many import differences_of_neighbours
from tests.support.contract import T, violations
from tests.support.plain import CHUNK, plain_python
from tests.support.rules import EVERY, find

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
    ("etd_beta", "decay * (gamma > 0.0) * F", "decay * F"),
    ("etd_beta", "decay * (gamma > 0.0) * F", "gamma * F"),
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
    ("bounded_etd", "lambda_ / max(rho_before, 1.0)", "lambda_"),
    ("bounded_etd", "lambda_ / max(rho_before, 1.0)", "lambda_ / max(rho, 1.0)"),
    ("bounded_etd", "lambda_ / max(rho_before, 1.0)", "lambda_ * min(rho_before, 1.0)"),
    ("bounded_etd", "lambda_ / max(rho_before, 1.0)", "lambda_ / max(rho_before, 0.5)"),
    ("bounded_etd", "M = cut * I + (1.0 - cut) * F", "M = lambda_ * I + (1.0 - lambda_) * F"),
    ("bounded_etd", "c = rho * gamma * cut", "c = rho * gamma * lambda_"),
    ("bounded_etd", "b = rho * alpha * M", "b = alpha * M"),
    ("bounded_etd", "b = b / max(2.0 * b * phi_phi, 1.0)", "b = b"),
    ("bounded_etd", "max(2.0 * b * phi_phi, 1.0)", "max(b * phi_phi, 1.0)"),
    ("bounded_etd", "max(2.0 * b * phi_phi, 1.0)", "max(2.0 * b * phi_phi_next, 1.0)"),
    ("bounded_etd", "max(2.0 * b * phi_phi, 1.0)", "max(2.0 * alpha * phi_phi, 1.0)"),
    ("bounded_etd", "max(2.0 * b * phi_phi, 1.0)", "max(2.0 * b * phi_phi, 2.0)"),
    ("bounded_etd", "min(max(v_next, low), high)", "max(v_next, low)"),
    ("bounded_etd", "min(max(v_next, low), high)", "min(v_next, high)"),
    ("bounded_etd", "min(max(v_next, low), high)", "min(max(v_next, -high), high)"),
    ("bounded_etd", "error = delta - gamma_next * beyond", "error = delta"),
    ("bounded_etd", "error = delta - gamma_next * beyond", "error = delta - beyond"),
    ("bounded_etd", "error = delta - gamma_next * beyond", "error = delta - gamma * beyond"),
    ("bounded_etd", "error = delta - gamma_next * beyond", "error = delta + gamma_next * beyond"),
    ("bounded_etd", "q * phi_phi_next + beyond", "q * phi_phi_next"),
    ("bounded_etd", "q * phi_phi_next + beyond", "q * phi_phi_next - beyond"),
    ("bounded_etd", "D * (S - b)", "D * S"),
    ("bounded_etd", "w = (error + D) * c", "w = (delta + D) * c"),
    ("bounded_etd", "q = error * S", "q = delta * S"),
    ("bounded_etd", "min(rho * gamma_next * F, 1e30)", "min(min(rho, 1.0) * gamma_next * F, 1e30)"),
    ("bounded_etd", "(gamma_next, D, F, rho)", "(gamma_next, D, F, rho_before)"),
    ("true_online_etd_beta", "decay * (gamma > 0.0) * F", "decay * F"),
    ("true_online_etd_beta", "(gamma_next, D, rho * F)", "(gamma_next, D, decay * F)"),
    *((f"{rule}_separate", said, slip)
      for rule in ("true_online_td", "true_online_etd", "true_online_etd_beta", "true_online_gtd")
      for said, slip in [("old_D = old_change_e", "old_D = 2.0 * old_change_e"), ("1e-300", "1.0"),
                         (" + old_change_p * ", " - old_change_p * "), ("- after_change_e", "+ after_change_e")]),
    ("true_online_gtd_separate", "after_change_p_next = b_0_1", "after_change_p_next = -b_0_1"),
    ("true_online_gtd_separate", "(0.0, 1.0)", "(1.0, 0.0)"),
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
    ("vtrace", "alpha * min(rho, rho_bar) * delta", "alpha * min(rho, 1.0) * delta"),
    ("vtrace", "alpha * min(rho, rho_bar) * delta", "alpha * rho * delta"),
    ("vtrace", "alpha * min(rho, rho_bar) * delta", "alpha * min(rho_before, rho_bar) * delta"),
    ("vtrace", "alpha * min(rho, rho_bar) * delta", "alpha * rho_bar * delta"),
    ("vtrace", "min(rho_before, 1.0)", "min(rho_before, rho_bar)"),
    ("vtrace", "(gamma_next, rho)", "(gamma_next, min(rho, rho_bar))"),
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
    ("emphatic_q", "F = rho * gamma * F + I", "F = gamma * F + I"),
    ("emphatic_q", "F = rho * gamma * F + I", "F = rho * gamma_next * F + I"),
    ("emphatic_q", "M = lambda_ * I + (1.0 - lambda_) * F", "M = F"),
    ("emphatic_q", "((w * M, 0.0), (M, 0.0))", "((w * rho * M, 0.0), (rho * M, 0.0))"),
    ("emphatic_q", "c = rho * gamma * lambda_", "c = gamma * lambda_"),
    ("emphatic_q", "(gamma_next, F)", "(gamma_next, rho * F)"),
    *((rule, "difference = delta - rbar", slip) for rule in ("differential_td", "differential_etd")
      for slip in ("difference = delta", "difference = delta + rbar", "difference = rbar - delta")),
    *((rule, "rbar + beta * rho * difference", slip) for rule in ("differential_td", "differential_etd")
      for slip in ("rbar + beta * difference", "rbar + alpha * rho * difference", "rbar + beta * rho * delta")),
    ("differential_td", "s = rho * I", "s = I"),
    ("differential_etd", "decay * (gamma > 0.0) * F", "decay * F"),
    ("differential_etd", "decay * (gamma > 0.0) * F", "gamma * F"),
    ("differential_etd", "rho * F, rbar", "F, rbar"),
    ("per_etd", "F = within * F + I", "F = F + I"),
    ("per_etd", "c = within * rho", "c = rho"),
    ("per_etd", "w = ends * alpha", "w = alpha"),
    ("per_etd", "count >= period", "count > period"),
    ("per_etd", "(1.0 - ends) * (count + 1.0)", "count + 1.0"),
    ("per_etd", "rho * gamma_next * F", "gamma_next * F"),
    ("clipped_etd", "min(rho, clip) * gamma_next", "rho * gamma_next"),
    ("clipped_etd", "min(rho, clip) * gamma_next", "max(rho, clip) * gamma_next"),
    ("clipped_etd", "min(rho, clip) * gamma_next", "min(rho, 1.0) * gamma_next"),
    ("clipped_etd", "s = rho * M", "s = min(rho, clip) * M"),
]  # fmt: skip

#: (kernel, what its source or that of the rule's small functions says, what the slip makes of it)
KERNEL_SLIPS = [
    ("dense_kernels", "sums[2] + z[0] * q", "sums[2] + z[0] * p"),
    ("dense_kernels", "sums[4] + p * q", "sums[4] + p * p"),
    ("dense_kernels", "z0 + a0_1 * z1 + b0 * p", "z0 + a0_1 * z1 + b0 * q"),
    ("dense_kernels", "a1_1 * z1 + b1 * p", "a1_1 * z1"),
    ("dense_kernels", "X[1, k, i] = z[1]", "pass"),
    ("dense_kernels", "memory, size = memory_next, size_next", "size = size_next"),
    ("dense_kernels", "scalars[k, 0] = memory[0]", "pass"),
    ("dense_kernels", "parameters[4][t, k]", "parameters[4][t, 0]"),
    ("dense_kernels", "X[0, k, i], X[1, k, i]", "X[0, 0, i], X[1, k, i]"),
    ("dense_kernels", "s = min(t + 1, T - 1)", "s = t"),
    ("dense_kernels", "predictions[t, k] = x[0]", "predictions[t, k] = x_next[0]"),
    ("dense_kernels", "predictions[t, 0] = x[0]", "predictions[t, 0] = x_next[0]"),
    ("dense_kernels", "(sums, z, Phi[s, i], Phi_next[s, i])", "(sums, z, Phi[s, i], Phi[s, i])"),
    ("dense_kernels", "delta = step[5] + step[4] * x_next[0] - x[0]", "delta = step[5] + x_next[0] - x[0]"),
    ("dense_kernels", "memory, size, c = kept(work, k)", "memory, size, c = kept(work, 0)"),
    ("dense_kernels", "put_apart(x1, i, 2, z[1])", "pass"),
    ("dense_kernels", "x1 = X[1, k]", "x1 = X[1, 0]"),
    ("dense_kernels", "add_common(common, (), phi[i], phi_next[i])", "add_common(common, (), phi[i], phi[i])"),
    ("dense_kernels", "(own, read(X, k, i), phi[i], phi_next[i])", "(own, read(X, k, i), phi[i], phi[i])"),
    ("sparse_kernels", "scale[1] *= a1_1", "scale[1] = a1_1"),
    ("sparse_kernels", "scale[2] = 1.0 * scale[2] + a0_1 * scale[1]", "scale[2] = a0_1 * scale[1]"),
    ("sparse_kernels", "column['H0'] += table[0, s, 0] * h", "pass"),
    ("sparse_kernels", "column['H1'] = h * table[0, s, 1]", "pass"),
    ("sparse_kernels", "column['E1'] = e[0]", "pass"),
    ("sparse_kernels", "table[trace, s, r] += share", "table[trace, s, r] = share"),
    ("sparse_kernels", "left = scale[WEIGHTS + trace] * table", "left = table"),
    ("sparse_kernels", "for s in range(live, now + 1):", "for s in range(now, now + 1):"),
    ("sparse_kernels", "u0 = (b0 - scale[2] * u1) / scale[0]", "u0 = b0 / scale[0]"),
    ("sparse_kernels", "u1 = b1 / scale[1]", "u1 = b1"),
    ("sparse_kernels", "pq += value[b] * value_next[a]", "pq += value_next[a] * value_next[a]"),
    ("sparse_kernels", "scale[0] * h[0] + scale[2] * h[1]", "scale[0] * h[0]"),
    ("sparse_kernels", "            scale[i] = 0.0\n            for s", "            for s"),
    ("sparse_kernels", "h0 += table[0, s, 0] * h1", "pass"),
    ("sparse_kernels", "mark(columns[index[a]], e[0])", "pass"),
    ("sparse_many_kernels", "products(x_next, k, K)", "products(x, k, K)"),
    ("sparse_many_kernels", "form[2, k] = a0_1", "form[2, 0] = a0_1"),
    ("sparse_many_kernels", "scalars[k, i] = after[k, i]", "pass"),
    ("sparse_many_kernels", "predictions[t, k] = x[k]", "predictions[t, k] = x_next[k]"),
    ("sparse_many_kernels", "pq += phi[i] * phi_next[i]", "pq += phi[i] * phi[i]"),
    ("sparse_many_kernels", "        phi[active[a]] = 0.0", "        pass"),
    ("sparse_many_kernels", "+ v3 * get_apart(h3, k, 1)", "+ v3 * get_apart(h2, k, 1)"),
    ("sparse_many_kernels", "t0 >= latest and t1 >= latest and t2 >= latest and t3 >= latest", "t0 >= latest"),
    ("sparse_many_kernels", "v * get_apart(h, k, 1) if touched >= get_apart(since, k, 2) else 0.0",
     "v * get_apart(h, k, 1)"),
    ("sparse_many_kernels", "z1 = real((get_apart(h1, k, 5) if t1 >= begin else real(0)) + u1 * u)",
     "z1 = real(get_apart(h1, k, 5) + u1 * u)"),
    ("sparse_many_kernels", "+ v1 * z1 + v2 * z2", "+ v1 * z1 + v2 * z1"),
    ("sparse_many_kernels", "+ w2 * z2 + w3 * z3", "+ w2 * z2 + v3 * z3"),
    ("sparse_many_kernels", "put_apart(h2, k, 6, z2)", "pass"),
    ("sparse_many_kernels", "    due[i] = 0.0", "    pass"),
    ("sparse_many_kernels", "x[k] += scale[TAKE + r * TRACES + j, k] * e[k]", "pass"),
    ("sparse_many_kernels", "scale[row, k] = form[r, k] * scale[row, k] + ", "scale[row, k] = "),
    ("sparse_many_kernels", "scale[r, k] *= form[r, k]", "scale[r, k] = form[r, k]"),
    ("sparse_many_kernels", "more -= scale[TAKE + r * TRACES + j, k]", "more -= 0.0"),
    ("sparse_many_kernels", "form[PHI + r, k] = u[k] = more / scale[r, k]", "form[PHI + r, k] = u[k] = more"),
    ("sparse_many_kernels", "                scale[TAKE + r * TRACES + j, k] = 0.0", "                pass"),
    ("sparse_many_kernels", "scaled if closing[k] else 1.0", "1.0"),
    ("sparse_many_kernels", "scale[TAKE + r * TRACES + j, k] / scale[r, k] if closing[k] else 0.0", "0.0"),
    ("sparse_many_kernels", "z = get_apart(h, k, 1) if touched >= get_apart(since, k, 2) else real(0)",
     "z = get_apart(h, k, 1)"),
    ("sparse_many_kernels", "= clock[0], clock[1], i", "= clock[0], places[WHERE, i], i"),
    ("chunked_kernels", "g_p, g_next = G[p, row], G[p + 1, row]", "g_p, g_next = G[p, row], G[p, row]"),
    ("chunked_kernels", "G[p + 1, row], G[p, row + 1]", "G[p + 1, row], G[p, row]"),
    ("chunked_kernels", "update(q, y, h_p, h_next)", "update(q, z, h_p, h_next)"),
    ("chunked_kernels", "np.float64(G[p, p + 1])", "np.float64(G[p, p])"),
    ("chunked_kernels", "= V[r, p + ahead, k]", "= V[r, p, k]"),
    ("chunked_kernels", "values[t0 + t, left + k]", "values[t, left + k]"),
    ("chunked_kernels", "if t == 0 or values.strides[0] != 0:", "if t == 0:"),
    ("chunked_kernels", "left + k] = V[0, p, k]", "left + k] = V[0, p + 1, k]"),
    ("chunked_kernels", "for row in range(p + 1, alone, 2):", "for row in range(p + 3, alone, 2):"),
    ("chunked_kernels", "for row in range(alone, rows):", "for row in range(alone + 1, rows):"),
    ("chunked_kernels", "W[r, row, k] = real(0)", "pass"),
    ("chunked_kernels", "for t in range(L - 1, -1, -1):", "for t in range(L):"),
    ("chunked_kernels", "w0_1 = T1_1 * b1 + T1_2 * b2", "w0_1 = T1_1 * b1"),
    ("chunked_kernels", "w1_0 = T0_0 * d0", "w1_0 = d0 * 0.0"),
    ("chunked_kernels", "W[r, p + ahead, k] += real(", "W[r, p, k] += real("),
    ("chunked_kernels", "W[r, p + ahead, k] += real(", "W[r, p + ahead, k] = real("),
    ("chunked_kernels", "T1_2 = T1_1 * a1_2 + T1_2 * a2_2", "T1_2 = T1_1 * a1_2 + T1_2"),
    ("chunked_kernels", "T1_2 = T1_1 * a1_2 + T1_2 * a2_2", "T1_2 = T1_2 * a2_2"),
    ("chunked_kernels", "T2_2 = T2_2 * a2_2", "T2_2 = a2_2"),
    ("chunked_kernels", "tails[1] * z[1] + tails[3] * z[2]", "tails[1] * z[1]"),
    ("chunked_kernels", "scalars[first + k, i] = after[first + k, i]", "pass"),
    ("lanes_kernels", "Phi[t, 0], Phi[t, 1]", "Phi[t, 0], Phi[t, 0]"),
    ("lanes_kernels", "add_products(sums, vectors[1], p[1], q[1])", "add_products(sums, vectors[1], p[1], p[1])"),
    ("lanes_kernels", "z = update(c, vectors[1], p[1], q[1])", "z = update(c, vectors[0], p[1], q[1])"),
    ("lanes_kernels", "move_lane(Z, k, rounded(c), vectors, p, q)", "move_lane(Z, k, rounded(c), vectors, p, p)"),
    ("lanes_kernels", "S[at + k] = values[row, learners[k]]", "S[at + k] = values[row, learners[0]]"),
    ("lanes_kernels", "if t == t0 or values.shape[0] > 1:", "if t == t0:"),
    ("lanes_kernels", "row = t if values.shape[0] > 1 else 0", "row = 0"),
    ("lanes_kernels", "row[k] = S[AT_PREDICTION + k]", "row[k] = S[AT_PREDICTION]"),
    ("lanes_kernels", "X[r, who[k], i] = Z", "X[r, who[0], i] = Z"),
    ("lanes_kernels", "scalars[who[k], i] = S", "scalars[who[0], i] = S"),
]  # fmt: skip

#: The same, of what is only there for a run that is watched.
WATCH_SLIPS = [
    ("dense_kernels", "h = -row[n]", "h = row[n]"),
    ("dense_kernels", "for j in range(n - i):", "for j in range(n - i - 1):"),
    ("dense_kernels", "square += h * h", "square = h * h"),
    ("dense_kernels", "frozen[k] = True", "pass"),
    ("dense_kernels", "elif freeze:", "elif freeze and k == 0:"),
    ("dense_kernels", "(t - begin) % every", "t % every"),
    ("dense_kernels", "errors[(t - begin) // every, k]", "errors[t, k]"),
    ("lanes_kernels", "u1_2 * z2", "u1_2 * z1"),
    ("lanes_kernels", " - u2_6", ""),
    ("lanes_kernels", "(t - begin) % every", "t % every"),
    ("lanes_kernels", "errors[(t - begin) // every, who[k]]", "errors[t, who[k]]"),
    ("lanes_kernels", "failed[count] = who[k]", "failed[count] = who[0]"),
    ("lanes_kernels", " + u6_6 * u6_6", ""),
    ("lanes_kernels", "errors[(t - begin) // every, who[k]]", "errors[(t - begin) // every, left + k]"),
    ("lanes_kernels", "predictions[t, who[k]]", "predictions[t, left + k]"),
    ("lanes_kernels", "values[row, learners[k]]", "values[row, k]"),
    ("lanes_kernels", "X[r, who[k], i] = ", "X[r, left + k, i] = "),
    ("lanes_kernels", "failed[count] = who[k]", "failed[count] = left + k"),
    ("lanes_kernels", "scalars[who[k], COUNTER] += t1 - t0", "scalars[who[k], COUNTER] += 1"),
]  # fmt: skip


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


def caught(rule: str, learner: Any, K: int | None, T: int = T) -> list[str]:
    """The violations of the contract, of which to diverge is one."""
    with np.errstate(all="ignore"):
        try:
            return violations(rule, learner, K, "float64", T=T) or violations(
                rule, learner, K, "float64", by="learn", T=T
            )
        except (emphatic.Diverged, ZeroDivisionError, IndexError) as error:
            return [str(error)]


def test_every_rule_has_its_slips() -> None:
    assert {rule for rule, _, _ in SLIPS} == set(EVERY)


@pytest.mark.parametrize(("name", "old", "new"), SLIPS)
def test_a_slip_in_a_rule_is_caught(name: str, old: str, new: str) -> None:
    if name == "true_online_td":
        old, new = (text.replace("S", "s") for text in (old, new))
    rule = mutant(find(name), old, new)
    assert caught(name, partial(emphatic.Learner, rule, engine="reference"), None, T=4 * CHUNK + 5) != []


#: Slips in what becomes of columns that neighbouring rows share.
NEIGHBOUR_SLIPS = [
    ("is_shared and i == active_next[b + c] and", "is_shared and"),
    ("if t + 1 == T or (is_broken and first[t + 1]):", "if t + 1 == T:"),
    ("+ w2 * z2 + w3 * z3", "+ w2 * z2 + v3 * z3"),
    ("put_apart(h2, k, 6, z2)", "pass"),
    ("touch(places, log, clock, due, active[c])", "pass"),
    ("a, b = a + 4, b + 4", "a, b = a + 3, b + 3"),
]

#: Of each kernel: the engine that runs it, rules whose kernels have all that slips, and for how many learners.
EXAMPLES: dict[str, tuple[str, tuple[str, ...], tuple[int | None, ...]]] = {
    "dense_kernels": ("dense", ("true_online_etd",), (None, 2)),
    "sparse_kernels": ("sparse", ("true_online_etd",), (None,)),
    "sparse_many_kernels": ("sparse", ("true_online_etd",), (2, 7)),
    "chunked_kernels": ("chunked", ("proximal_gtd2", "true_online_etd"), (None, 2)),
    "lanes_kernels": ("dense", ("gtd",), (9,)),
}


@contextmanager
def slipped(kernel: str, old: str, new: str) -> Iterator[None]:
    """Kernels as plain Python, that one with a slip: in its own source, or in the rule's small functions before it."""
    compose, found = compiled.compose, []

    def with_slip(functions: Functions, *kernels: str) -> str:
        text = compose(functions, *kernels)
        if kernel not in [name.rpartition(".")[2] for name in kernels]:
            return text
        found.append(old in text)
        return text.replace(old, new)

    forget()
    with plain_python(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "compose", with_slip)
        yield
    forget()
    assert any(found), f"{kernel} does not say {old!r}"


def forget() -> None:
    """Let every engine make its kernels anew."""
    for engine in (dense, lanes, sparse, sparse_many, chunked):
        engine.kernel.cache_clear()


def kernel_violations(kernel: str) -> list[str]:
    """How the first learners that do break the contract, of those that run it, on streams of a few chunks."""
    engine, rules, learners = EXAMPLES[kernel]
    for rule, K in itertools.product(rules, learners):
        found = caught(rule, partial(emphatic.Learner, rule, engine=engine), K, T=4 * CHUNK + 5)
        if found:
            return found
    return []


@pytest.mark.parametrize(("kernel", "old", "new"), KERNEL_SLIPS)
def test_a_slip_in_a_kernel_is_caught(kernel: str, old: str, new: str) -> None:
    with slipped(kernel, old, new):
        assert kernel_violations(kernel) != []


@pytest.mark.parametrize(("old", "new"), NEIGHBOUR_SLIPS)
def test_a_slip_in_columns_that_rows_share_is_caught(old: str, new: str) -> None:
    with slipped("sparse_many_kernels", old, new), np.errstate(all="ignore"):
        assert differences_of_neighbours(emphatic.rules.get("true_online_etd"), "float64") != []


@pytest.mark.parametrize("kernel", EXAMPLES)
def test_the_kernels_as_they_are_pass_in_plain_python(kernel: str) -> None:
    with slipped(kernel, "def", "def"):
        assert kernel_violations(kernel) == []


@pytest.mark.parametrize(
    ("kernel", "old", "new"), [("dense_kernels", "def", "def"), ("lanes_kernels", "def", "def"), *WATCH_SLIPS]
)
def test_a_slip_in_what_watches_a_run_is_caught(
    kernel: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with slipped(kernel, old, new), np.errstate(all="ignore"):
        try:
            found = differences_in_blocks(7 if kernel == "dense_kernels" else 9, monkeypatch)
        except (emphatic.Diverged, IndexError) as error:
            found = [str(error)]
    assert (found != []) == (old != new)


def test_a_mutant_is_compiled_anew() -> None:
    """A kernel of the right rule on disk must not stand in for the mutant's."""
    rule = mutant(emphatic.rules.get("true_online_etd"), "S = b * (1.0 - c * e_phi)", "S = b")
    made = violations("true_online_etd", partial(emphatic.Learner, rule, engine="dense"), None, "float64")
    assert made != []
