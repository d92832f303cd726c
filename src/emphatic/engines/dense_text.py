"""The text of the dense engine's kernels: ``learn`` and ``run`` for one learner, ``run_many`` for several."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emphatic.engines.base import UNFIT
from emphatic.engines.text import HUGE, Unrolled, fill

if TYPE_CHECKING:
    from emphatic.rules import Rule

__all__ = ["source"]

_TEXT = '''⟨header⟩
real = np.⟨dtype⟩
zero = real(0)


def as_float(bits):
    """The float of those bits."""
    one = np.empty(1, np.int⟨width⟩)
    one[0] = bits
    return np.float64(one.view(real)[0])


as_float = numba.njit(**OPTIONS)(as_float)


def learn(X, scalars, phi, phi_next, ⟨parameters⟩):
    """One step of one learner; its TD error, or NaN if the step was refused and nothing changed."""
    n = X.shape[2]
    if phi.shape[0] != n or phi_next.shape[0] != n or not (⟨acceptable⟩):
        return np.nan
    k = 0
    ⟨zeros⟩
    norm = zero
    for i in range(n):
        ⟨read⟩
        p = phi[i]; q = phi_next[i]
        ⟨sums⟩
        norm += p * p + q * q
    ⟨products⟩
    top = 1.0 + np.float64(norm)
    top_next = top
    ⟨load⟩
    ⟨decide_one⟩
    if not fine:
        return np.nan
    for i in range(n):
        ⟨read⟩
        p = phi[i]; q = phi_next[i]
        ⟨update⟩
        ⟨write⟩
    ⟨store⟩
    scalars[k, ⟨counter⟩] += 1.0
    return delta


⟨run_narrow⟩


⟨run_wide⟩


def error(goal, theta):
    """The root mean square value error of one learner."""
    n = theta.shape[0]
    square = 0.0
    for i in range(goal.shape[0]):
        row = goal[i]
        h = -row[n]
        for j in range(n - i):
            h += row[i + j] * theta[i + j]
        square += h * h
    return np.sqrt(square) if square <= ⟨HUGE⟩ else np.inf


error = numba.njit(**OPTIONS)(error)


def run_many(
    X, scalars, last_delta, learners, frozen, freeze, Phi, Phi_next, top, t0, t1, ⟨all_parameters⟩, predictions,
    goal, errors, every, begin, work
):
    """Steps t0 … t1 − 1 of these learners; −1, or t·K + k if learner k would diverge at step t and may not freeze."""
    K, n = X.shape[1], X.shape[2]
    top_next = top
    keep = predictions.shape[0] > 0
    for t in range(t0, t1):
        if goal.shape[0] > 0 and (t - begin) % every == 0:
            for k in learners:
                errors[t // every, k] = error(goal, X[0, k])
        for k in learners:
            ⟨at_t_k⟩
            ⟨zeros⟩
            for i in range(n):
                ⟨read⟩
                p = Phi[t, i]; q = Phi_next[t, i]
                ⟨sums⟩
            ⟨products⟩
            if keep:
                predictions[t, k] = x0
            if frozen[k]:
                continue
            ⟨load⟩
            ⟨decide_many⟩
            if not fine:
                if not freeze:
                    return t * K + k
                frozen[k] = True
                continue
            last_delta[k] = delta
            ⟨keep⟩
        for k in learners:
            if frozen[k]:
                continue
            ⟨recall⟩
            for i in range(n):
                ⟨read⟩
                p = Phi[t, i]; q = Phi_next[t, i]
                ⟨update⟩
                ⟨write⟩
            ⟨store⟩
            scalars[k, ⟨counter⟩] += 1.0
    return -1

'''

_RUN = '''def ⟨name⟩(X, scalars, Phi, Phi_next, bits, bits_next, one_log, ⟨all_parameters⟩, predictions, last_delta):
    """T steps of one learner; −1, t where it would diverge at step t, or UNFIT if φ is not finite."""
    n, T, k = X.shape[2], Phi.shape[0], 0
    keep = predictions.shape[0] > 0
    status = -1
    delta = 0.0
    ⟨load⟩
    ⟨no_products⟩
    ⟨prepare⟩
    for t in range(T):
        ⟨look⟩
        if t == 0:
            ⟨zeros⟩
            for i in range(n):
                ⟨read⟩
                p = Phi[t, i]; q = Phi_next[t, i]
                ⟨sums⟩
            ⟨products⟩
        ⟨tops⟩
        ⟨at_t_k⟩
        ⟨decide_many⟩
        if not fine:
            status = t
            break
        if keep:
            predictions[t, k] = x0
        s = min(t + 1, T - 1)
        ⟨zeros⟩
        for i in range(n):
            ⟨read⟩
            p = Phi[t, i]; q = Phi_next[t, i]
            ⟨update⟩
            ⟨write⟩
            p = Phi[s, i]; q = Phi_next[s, i]
            ⟨sums⟩
        ⟨products⟩
        ⟨carry⟩
        scalars[k, ⟨counter⟩] += 1.0
    ⟨save⟩
    last_delta[k] = delta
    return status'''

# Wide features are looked over a block ahead: that brings them near, faster than the products would. In one log the φ'
# of a step is the φ of the next and need not be looked at twice. Narrow ones come soon enough; their length bounds
# their components, and if one is not finite neither is δ.
_LOOK = """if t == seen:
    seen = min(t + max(1, ⟨block⟩ // n), T)
    most = bits[t, 0] & ⟨mask⟩
    for s in range(t, seen):
        if s == 0 or not one_log:
            for i in range(n):
                most = max(most, bits[s, i] & ⟨mask⟩)
        for i in range(n):
            most = max(most, bits_next[s, i] & ⟨mask⟩)
    if most >= ⟨infinity⟩:
        status = ⟨UNFIT⟩
        break
    top = as_float(most)
    top_next = top"""

# The coefficients of one step. Only when the bounds say that something may overflow is the step tried on X itself.
_DECIDE = """⟨call⟩
⟨bounds⟩
fine = ⟨finite⟩
⟨round⟩
if fine and not (⟨small⟩):
    ⟨no_bounds⟩
    for i in range(n):
        ⟨read⟩
        p = ⟨phi⟩; q = ⟨phi_next⟩
        ⟨update⟩
        ⟨rounded⟩
        if not (⟨new_finite⟩):
            fine = False
        ⟨new_bounds⟩"""

#: How many components of φ are looked over ahead: half of a common second-level cache.
_BLOCK = 1 << 16


def source(rule: Rule, dtype: str) -> str:
    """The text of this rule's kernels."""
    u = Unrolled(rule)
    R = u.vectors
    limit = float(np.finfo(dtype).max)
    integer = np.dtype(f"i{np.dtype(dtype).itemsize}")
    infinity = int(np.array(np.inf, dtype).view(integer))
    products, unused = u.products()
    uses_next = any(u.B[r][1] != 0.0 for r in R)
    with_length = [name for name in products + unused if name in products or name in ("pp", "qq")[: 1 + uses_next]]
    terms = {"x": "z{r} * p", "y": "z{r} * q", "pp": "p * p", "pq": "p * q", "qq": "q * q"}
    kept = u.results() + u.coefficients

    def zeros(names: list[str]) -> list[str]:
        return [f"sum_{name} = zero" for name in names]

    def sums(names: list[str]) -> list[str]:
        return [f"sum_{name} += {terms[name.rstrip('0123456789')].format(r=name[1:])}" for name in names]

    def results(names: list[str]) -> list[str]:
        rest = [name for name in products + unused if name not in names]
        return [f"{name} = np.float64(sum_{name})" for name in names] + [f"{name} = 0.0" for name in rest]

    def run(name: str, names: list[str], prepare: list[str], look: str, tops: list[str]) -> list[str]:
        parts = {"zeros": zeros(names), "sums": sums(names), "products": results(names)}
        return fill(_RUN, name=name, prepare=prepare, look=look.split("\n"), tops=tops, **parts).split("\n")

    return fill(
        _TEXT,
        run_narrow=run("run", with_length, ["pass"], "pass", ["top, top_next = 1.0 + pp, 1.0 + qq"]),
        run_wide=run("run_wide", products, ["seen, top, top_next = 0, 0.0, 0.0"], _LOOK, ["pass"]),
        decide_one=fill(_DECIDE, phi="phi[i]", phi_next="phi_next[i]").split("\n"),
        decide_many=fill(_DECIDE, phi="Phi[t, i]", phi_next="Phi_next[t, i]").split("\n"),
        header=u.header(),
        dtype=dtype,
        width=str(8 * integer.itemsize),
        mask=str(np.iinfo(integer).max),
        infinity=str(infinity),
        block=str(_BLOCK),
        UNFIT=str(UNFIT),
        HUGE=repr(HUGE),
        counter=str(u.counter),
        parameters=", ".join(rule.parameters),
        all_parameters=", ".join(f"all_{name}" for name in rule.parameters),
        at_t_k=[f"{name} = all_{name}[t, k]" for name in rule.parameters],
        acceptable=u.acceptable(),
        # Sums are in the learner's dtype, what is made of them in float64.
        zeros=zeros(products),
        sums=sums(products),
        products=results(products),
        no_products=[f"{name} = 0.0" for name in products + unused],
        load=u.load(),
        call=u.call(),
        bounds=u.bounds(),
        finite=u.finite(),
        round=[f"{name} = real({u.excess(name)})" for name in u.coefficients],
        small=u.small(limit),
        read=[f"z{r} = X[{r}, k, i]" for r in R],
        update=["; ".join(f"v{r} = {u.row(r, excess=True)}" for r in R), "; ".join(f"z{r} = v{r}" for r in R)],
        write=[f"X[{r}, k, i] = z{r}" for r in R],
        no_bounds=[f"size_next{r} = 0.0" for r in R],
        rounded=[f"v{r} = abs(np.float64(real(z{r})))" for r in R],
        new_finite=" and ".join(f"v{r} <= {limit!r}" for r in R),
        new_bounds=[f"size_next{r} = max(size_next{r}, v{r})" for r in R],
        carry=[f"{old} = {new}" for old, new in zip(u.remembered(), u.results(), strict=True)],
        save=[f"scalars[k, {i}] = {name}" for i, name in enumerate(u.remembered())],
        store=[f"scalars[k, {i}] = {name}" for i, name in enumerate(u.results())],
        keep=[f"work[k, {i}] = {name}" for i, name in enumerate(kept)],
        recall=[f"{name} = {'real' if name in u.coefficients else ''}(work[k, {i}])" for i, name in enumerate(kept)],
    )
