"""Elementwise rules drawn at random: most move what is not active by their A, some by something else, some by mistake.

Every computed scalar is bounded, so that any of them can be run. Whether one is lazy is not known here: ``breaches``
looks for a case in which it is not, among numbers of both signs and all sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from emphatic.rules import ElementwiseRule, exp
from tests.support.random_rules import Pick, bounded, functions_of, group, unpack

__all__ = ["Draft", "breaches", "draft_rule"]

STEP = ["alpha", "I", "lambda_", "rho", "gamma_next", "delta"]

#: What becomes of X_i's next value ``row``; ``v`` is what it was. The first ones leave a component alone that is not
#: active, the others may not.
ACTIVE_ONLY = (
    "{row} + gain * p", "{row} + gain * q", "{row} + gain * p * {v}", "{row} * (1.0 - on) + gain * p",
    "on * max({row} + gain * p, 0.0) + (1.0 - on) * ({row})", "({row} + p * gain) / (1.0 + p * p)",
    "{row} + gain * p * exp(-p * p)", "{row} * exp(0.1 * gain * p)", "{row} + gain * (p > 0.5) * p * q",
    "{row} + 0.5 * (max(gain * p, 0.0) + min(gain * p, 0.0))",
)  # fmt: skip
ANYWHERE = (
    "max({row} + gain * p, 0.0)", "min({row} + gain * p, 0.3)", "min(max({row} + gain * p, -0.8), 0.8)",
    "{row} + gain * p + 0.01 * gain", "({row} + gain * p) * ({v} > 0.15)", "({row} + gain * p) / (1.0 + {v} * {v})",
    "{row} + gain * p + 0.05 * max({v}, 0.0)", "({row}) * exp(-{v} * {v}) + gain * p",
    "max({row}, -({row})) + gain * p",
)  # fmt: skip
EAGER = ("{row} + gain * p + 0.1 * max({trace}, -{trace})", "{row} * exp(-{trace} * {trace}) + gain * p")
ACTIVE_TERMS = ("{v} * p", "{v} * q", "p * p", "max(p, -p)", "{v} * {v} * p", "{v} * p * q", "({v} > 0.1) * p * {v}")
ALL_TERMS = ("max({v}, -{v})", "{v} * {v}", "{v}", "1.0", "{v} * ({v} > 0.0)", "p * p + 0.1 * max({v}, 0.0)")
ADAPTED = ("{v} * exp(u * p)", "{v} + u * p", "{v} * (1.0 - on) + u * p", "on * max({v}, 0.2) + (1.0 - on) * {v}")
ADAPTED_ANYWHERE = ("max({v}, u * p)", "{v} + 0.1 * u", "min(max({v} + u * p, -1.0), 1.0)", "{v} * exp(u * {v})")


@dataclass(frozen=True)
class Draft:
    """The fields of a rule, not yet checked, and the text of its functions."""

    fields: Mapping[str, Any] = field(repr=False)
    source: str

    def rule(self) -> ElementwiseRule:
        """The rule, or ValueError."""
        return ElementwiseRule("random", **self.fields)


def draft_rule(pick: Pick) -> Draft:
    """A rule of one or two weights, up to two traces, two remembered scalars and a parameter of its own."""
    weights, traces = ("theta", "w")[: pick((1, 2))], ("e", "y")[: pick((0, 1, 1, 2))]
    eager = bool(traces) and pick((False, False, False, True))
    memory = ("gamma", "F")[: pick((1, 2))] + ("drop",) * eager
    extra = ("strength",)[: pick((0, 1))]
    vectors, old = weights + traces, [f"old_{name}" for name in memory]
    m, first = len(vectors), len(weights)
    names = [*STEP, *extra]
    strange = pick((False, False, True))

    def terms() -> list[str]:
        options = ACTIVE_TERMS + ALL_TERMS * strange
        names = traces if eager and not strange else vectors
        options += ALL_TERMS[:3] * (eager and not strange)
        return [pick(options).format(v=pick(names)) for _ in range(pick((1, 2, 3)))]

    sums = terms()
    scalars = [*names, *old, *(f"sum{i}" for i in range(len(sums)))]
    A = [["0.0"] * m for _ in vectors]
    for r in range(m):
        diagonal = ("1.0", *["0.97", "1.0 - 0.1 * lambda_", "max(0.5, 1.0 - alpha)"] * (not eager or strange))
        A[r][r] = pick(diagonal if r < first else ("old_gamma * lambda_", "0.5", "0.0", "-0.6 * lambda_", ""))
        A[r][r] = A[r][r] or bounded(pick, scalars)
        for j in range(first, m) if r < first else ():
            A[r][j] = pick(("0.0", "", "")) or bounded(pick, scalars)

    # The entries of A, as they are computed, are scalars for the component too: with a slip in one of 12 rules.
    slip = pick((*["{0}"] * 11, "max({0}, 0.0)", "1.1 * {0}"))
    s = [f"a{r}{c}" for r in range(m) for c in range(m)]
    computed = [f"    {name} = {A[r][c]}\n" for name, (r, c) in zip(s, np.ndindex(m, m), strict=True)]
    rows = []
    for r, name in enumerate(vectors):
        row = " + ".join(f"{slip.format(f'a{r}{c}')} * {vectors[c]}" for c in range(m) if A[r][c] != "0.0") or "0.0"
        options = ACTIVE_ONLY + ANYWHERE * strange + EAGER * (eager and r < first)
        if eager and r >= first and not strange:
            options = tuple(option for option in options if "gain * q" not in option)
        rows.append(pick(options).format(row=row, v=name, trace=vectors[-1]))
    after = [bounded(pick, scalars) for _ in memory]
    if pick((False, True)):
        after[0] = "gamma_next"
    if eager:
        after[-1] = "1.0 * old_drop"

    on = "    on = 1.0 * (p > 0.0) + 1.0 * (p < 0.0)\n"
    source = f"def terms(z, p, q):\n{unpack(vectors, 'z')}{on}    return ({''.join(f'{term}, ' for term in sums)})\n"
    source += f"def function(step, memory, sums):\n{unpack(names, 'step')}{unpack(old, 'memory')}"
    source += unpack(scalars[len(names) + len(old) :], "sums") + "".join(computed)
    returned = [[A[r][c] if A[r][c] in ("0.0", "1.0") else f"a{r}{c}" for c in range(m)] for r in range(m)]
    source += f"    return {group(returned)}, ({', '.join(s)}, {bounded(pick, scalars)}), "
    source += f"({''.join(f'{value}, ' for value in after)})\n"
    source += f"def component(s, z, p, q):\n{unpack([*s, 'gain'], 's')}{unpack(vectors, 'z')}{on}"
    source += f"    return ({''.join(f'{row}, ' for row in rows)})\n"
    fields: dict[str, Any] = {"weights": weights, "traces": traces, "memory": memory, "extra": extra}
    if m > 1 and pick((False, True)):
        options = ADAPTED + ADAPTED_ANYWHERE * strange
        adapted = [vectors[0], *(pick((name, *options)).format(v=name) for name in vectors[1:])]
        source += f"def signal(step, memory):\n{unpack(names, 'step')}{unpack(old, 'memory')}"
        source += f"    return ({bounded(pick, [*names, *old])},)\n"
        source += f"def adapt(u, z, p):\n    (u,) = u\n{unpack(vectors, 'z')}{on}    return ({', '.join(adapted)},)\n"
    if eager:
        fields["eager"] = "drop"
    elif pick((False, True)):
        fields["change"] = memory[-1]
    functions = functions_of(source, exp=exp)
    given = ("terms", "function", "component", "signal", "adapt")
    return Draft(fields | {name: functions[name] for name in given if name in functions}, source)


def breaches(fields: Mapping[str, Any], rng: np.random.Generator, cases: int = 2000) -> str:
    """A case in which something moves or counts where φ_i = φ'_i = 0 that A does not say; "" where none is seen."""
    weights, traces = len(fields["weights"]), len(fields["traces"])
    for _ in range(cases):
        z = _numbers(rng, weights) + (_numbers(rng, traces) if "eager" not in fields else (0.0,) * traces)
        alpha, I, lambda_, rho, gamma_next, delta, *more = _numbers(rng, 6 + len(fields["extra"]))
        lambda_, gamma_next = min(abs(lambda_), 1.0), min(abs(gamma_next), 1.0)
        step = (abs(alpha), abs(I), lambda_, abs(rho), gamma_next, delta, *more)
        memory = _numbers(rng, len(fields["memory"]))
        terms = fields["terms"](z, 0.0, 0.0)
        if any(terms):
            return f"terms: {terms}"
        if "adapt" in fields:
            adapted = fields["adapt"](fields["signal"](step, memory), z, 0.0)
            if _differ(adapted, z, z):
                return f"adapt: {adapted} in place of {z}"
        A, s, _ = fields["function"](step, memory, _numbers(rng, len(terms)))
        after = fields["component"](s, z, 0.0, 0.0)
        wanted, sizes = _product(A, z), _product(np.abs(A), np.abs(z))
        if _differ(after, wanted, sizes):
            return f"component: {after} in place of {wanted}"
        if "eager" in fields:
            full = z[:weights] + _numbers(rng, traces)
            at_rest, with_q = (fields["component"](s, full, 0.0, q)[weights:] for q in (0.0, delta))
            if _differ(after, z, z) or at_rest != with_q:
                return f"eager: {after} in place of {z}, or {with_q} in place of {at_rest}"
            for j in range(weights, weights + traces):
                alone = tuple(x if r == j or r < weights else 0.0 for r, x in enumerate(full))
                decayed, due = fields["component"](s, alone, 0.0, 0.0)[j], A[j][j] * alone[j]
                if _differ([decayed], [due], [due]):
                    return f"eager: a trace of {decayed} in place of {due}"
    return ""


def _numbers(rng: np.random.Generator, count: int) -> tuple[float, ...]:
    """Of both signs and of sizes from 1e-3 to 1e3, with some zeros."""
    sizes = 10.0 ** rng.uniform(-3.0, 3.0, count) * rng.choice([-1.0, 0.0, 1.0], count, p=[0.45, 0.1, 0.45])
    return tuple(sizes.tolist())


def _product(A: Any, z: Any) -> list[float]:
    return [float(np.dot(row, z)) for row in A]


def _differ(values: Any, wanted: Any, sizes: Any) -> bool:
    return bool((np.abs(np.subtract(values, wanted)) > 1e-9 * (np.abs(values) + np.abs(sizes))).any())
