"""Emphatic TD(λ) whose follow-on trace reaches back n steps: rules that are written for each n.

    truncated_etd(n)    F_k ← I + ρ⁻γF_{k−1} for k = n … 1, F_0 = I; M = λI + (1−λ)F_n
    nstep_etd(n)        F ← I + (Π of the last n ρ⁻γ) F of n steps before; M = λI + (1−λ)F

Both have e ← ρ(γλe + Mφ) and θ ← θ + αδe. Zhang & Whiteson (2022), "Truncated emphatic temporal difference methods for
prediction and control", equation 11: F_{t,n} is a sum over n steps of history, so that its variance is bounded, and its
bias falls as γⁿ. Jiang et al. (2021), "Emphatic algorithms for deep reinforcement learning": the n-step emphatic trace.
"""

from __future__ import annotations

import functools
import linecache
from typing import Any

from emphatic.common.names import refusal
from emphatic.rules._rule import Rule

__all__ = ["MOST_STEPS", "nstep_etd", "truncated_etd"]

#: A rule remembers a scalar for each step that its emphasis reaches back.
MOST_STEPS = 16

_FUNCTION = '''
def {name}(step, memory, x, x_next, g):
    """{doc}"""
    alpha, I, lambda_, rho, gamma_next, delta = step
    {memory} = memory
{lines}
    M = lambda_ * I + (1.0 - lambda_) * {emphasis}
    c = rho * gamma * lambda_
    s = rho * M
    w = alpha * delta
    return ((1.0, w * c), (0.0, c)), ((w * s, 0.0), (s, 0.0)), (gamma_next, rho, {remembered})

'''


def truncated_etd(n: int) -> Rule:
    """Truncated emphatic TD(λ): the follow-on trace is a sum over the last n steps.

    F_0 … F_n are attributes of its learners, F_n being the emphasis. n = 0 is ``td``; F_n tends to ``etd``'s F as n
    grows. Zhang & Whiteson (2022).

    Args:
        n: How many steps the emphasis reaches back, from 0 to 16.

    >>> from emphatic import Learner, rules
    >>> learner = Learner(rules.truncated_etd(2), 3)
    >>> learner.rule.memory
    ('gamma', 'rho_before', 'F_0', 'F_1', 'F_2')
    """
    return _truncated(_steps("truncated_etd", n, 0))


def nstep_etd(n: int) -> Rule:
    """N-step emphatic TD(λ): the emphasis is that of n steps before, times the ratios since, and the interest.

    ``F`` is an attribute of its learners. n = 1 is ``etd``. Jiang et al. (2021).

    Args:
        n: How many steps lie between an emphasis and the one that it comes from, from 1 to 16.
    """
    return _nstep(_steps("nstep_etd", n, 1))


def _steps(function: str, n: int, least: int) -> int:
    if isinstance(n, bool) or not isinstance(n, int) or not least <= n <= MOST_STEPS:
        raise refusal("n", function, f"be a whole number from {least} to {MOST_STEPS}", repr(n))
    return n


@functools.cache
def _truncated(n: int) -> Rule:
    names = [f"F_{k}" for k in range(n + 1)]
    lines = [f"F_{k} = I + rho_before * gamma * F_{k - 1}" for k in range(n, 0, -1)] + ["F_0 = I"]
    update = f"etd with M = λI + (1−λ)F_{n}; F_k ← I + ρ⁻γF_(k−1), F_0 = I"
    return _made(f"truncated_etd_{n}", names, lines, names[-1], update, "Zhang & Whiteson (2022)")


@functools.cache
def _nstep(n: int) -> Rule:
    names = ["F", *(f"G_{k}" for k in range(1, n))]
    sources = [*names, "oldest"]
    lines = [f"{after} = rho_before * gamma * {before}" for before, after in zip(names, sources[1:], strict=True)]
    lines = [*reversed(lines), "F = I + oldest"]
    update = f"etd with F ← I + (product of the last {n} ρ⁻γ)·F of {n} steps before"
    return _made(f"nstep_etd_{n}", names, lines, "F", update, "Jiang et al. (2021)")


def _made(name: str, names: list[str], lines: list[str], emphasis: str, update: str, paper: str) -> Rule:
    """The rule whose function has these lines; ``inspect`` finds its source, which engines compile."""
    memory = ", ".join(["gamma", "rho_before", *names])
    body = "\n".join(f"    {line}" for line in lines)
    parts = {"name": name, "doc": update, "memory": memory, "lines": body, "emphasis": emphasis}
    text = _FUNCTION.format(**parts, remembered=", ".join(names))
    file = f"<{name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {}
    exec(compile(text, file, "exec", dont_inherit=True), namespace)
    return Rule(
        name,
        namespace[name],
        memory=("gamma", "rho_before", *names),
        paper=paper,
        emphasis="gamma",
        update=update,
        effective_step="rho * alpha * M",
    )
