"""wide: the dense engine's kernel for many learners of few features, which go side by side in lanes.

The kernel is made for one n, with every component written out: a lane holds all of a learner's X. Cost a step and
learner: O(m n), at the speed of arithmetic, and n²/2 more where it is probed. A lane whose numbers leave the range
harms no other: after the chunk it is told apart, and its learner stands where the chunk began.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from emphatic.engines import compiled
from emphatic.engines.text import HUGE, Unrolled, fill

if TYPE_CHECKING:
    from emphatic.engines.base import Arrays
    from emphatic.engines.watching import Watch
    from emphatic.rules import Rule

__all__ = ["LANES", "MOST_FEATURES", "STEPS", "stepper"]

#: Up to here all of a learner's X fits the registers of a lane, more or less.
MOST_FEATURES = 16
#: Learners side by side; steps that are tried together, and count for each learner that does not diverge.
LANES, STEPS = 64, 256

_TEXT = '''⟨header⟩
real = np.⟨dtype⟩


def wide(
    X, scalars, last_delta, learners, failed, Z, S, Phi, Phi_next, top, t0, t1, ⟨all_parameters⟩, predictions⟨given⟩
):
    """Steps t0 … t1 − 1 of these learners. How many may diverge: these are in ``failed``, and have not moved."""
    keep = predictions.shape[0] > 0
    top_next = top
    count = 0
    ⟨goal⟩
    for first in range(0, learners.shape[0], ⟨LANES⟩):
        who = learners[first : first + ⟨LANES⟩]
        lanes = who.shape[0]
        for k in range(lanes):
            S[⟨amiss⟩ + k] = 0.0
            ⟨load⟩
        for t in range(t0, t1):
            ⟨parameters⟩
            ⟨features⟩
            ⟨squares⟩
            ⟨probe⟩
            for k in range(lanes):
                ⟨read⟩
                ⟨products⟩
                ⟨take⟩
                ⟨call⟩
                ⟨bounds⟩
                S[⟨amiss⟩ + k] += 0.0 if (⟨finite⟩ and ⟨small⟩) else 1.0
                ⟨round⟩
                ⟨write⟩
                ⟨put⟩
            if keep:
                for k in range(lanes):
                    predictions[t, who[k]] = S[⟨prediction⟩ + k]
        for k in range(lanes):
            if S[⟨amiss⟩ + k] > 0.0:
                failed[count] = who[k]
                count += 1
            else:
                ⟨finish⟩
    return count
'''

# In a loop of its own: between the products and the update there are too few registers left for it.
_PROBE = """if (t - begin) % every == 0:
    for k in range(lanes):
        ⟨weights⟩
        ⟨differences⟩
        square = ⟨square⟩
        S[⟨error⟩ + k] = np.sqrt(square) if square <= ⟨HUGE⟩ else np.inf
    for k in range(lanes):
        errors[t // every, who[k]] = S[⟨error⟩ + k]"""


def source(rule: Rule, dtype: str, n: int, *, probed: bool = False) -> str:
    """The text of the kernel for n features."""
    u = Unrolled(rule)
    R, limit = u.vectors, float(np.finfo(dtype).max)
    products, unused = u.products()
    names = _lanes(rule)

    def lane(name: str) -> str:
        return f"S[{names.index(name) * LANES} + k]"

    def component(r: int, i: int) -> str:
        return f"Z[{(r * n + i) * LANES} + k]"

    def loop(line: str) -> list[str]:
        return ["for k in range(lanes):", f"    {line}"]

    def total(a: str, b: str) -> str:
        return " + ".join(f"{a.format(i=i)} * {b.format(i=i)}" for i in range(n))

    pair = {"pp": ("p{i}", "p{i}"), "pq": ("p{i}", "q{i}"), "qq": ("q{i}", "q{i}")}
    probe = fill(
        _PROBE,
        weights=[f"z{i} = np.float64({component(0, i)})" for i in range(n)],
        differences=[
            f"h{i} = " + " + ".join(f"u{i}_{j} * z{j}" for j in range(i, n)) + f" - u{i}_{n}" for i in range(n)
        ],
        square=" + ".join(f"h{i} * h{i}" for i in range(n)) + f" + u{n}_{n} * u{n}_{n}",
        error=str(names.index("error") * LANES),
        HUGE=repr(HUGE),
    )
    return fill(
        _TEXT,
        header=u.header(),
        dtype=dtype,
        LANES=str(LANES),
        given=", goal, errors, every, begin" if probed else "",
        goal=[f"u{i}_{j} = goal[{i}, {j}]" for i in range(n + 1) for j in range(i, n + 1)] if probed else ["pass"],
        probe=probe.split("\n") if probed else ["pass"],
        amiss=str(names.index("amiss") * LANES),
        prediction=str(names.index("x0") * LANES),
        all_parameters=", ".join(f"all_{name}" for name in rule.parameters),
        load=[f"{component(r, i)} = X[{r}, who[k], {i}]" for r in R for i in range(n)]
        + [f"{lane(name)} = scalars[who[k], {i}]" for i, name in enumerate(u.remembered())],
        parameters=[
            line
            for name in rule.parameters
            for line in (
                f"if t == t0 or all_{name}.shape[0] > 1:",
                f"    row = all_{name}[t if all_{name}.shape[0] > 1 else 0]",
                f"    if all_{name}.shape[1] == 1:",
                f"        {name} = row[0]",
                *("        " + inner for inner in loop(f"{lane(name)} = {name}")),
                "    else:",
                *("        " + inner for inner in loop(f"{lane(name)} = row[who[k]]")),
            )
        ],
        features=[f"p{i} = Phi[t, {i}]; q{i} = Phi_next[t, {i}]" for i in range(n)],
        squares=[f"{name} = np.float64({total(*pair[name])})" for name in products if name in pair]
        + [f"{name} = 0.0" for name in unused if name in pair],
        read=[f"z{r}_{i} = {component(r, i)}" for r in R for i in range(n)],
        products=[
            f"{name} = np.float64({total('z' + name[1:] + '_{i}', 'p{i}' if name[0] == 'x' else 'q{i}')})"
            for name in products
            if name not in pair
        ]
        + [f"{name} = 0.0" for name in unused if name not in pair],
        take=[f"{name} = {lane(name)}" for name in (*u.remembered(), *rule.parameters)],
        call=u.call(),
        bounds=u.bounds(),
        finite=u.finite(),
        small=u.small(limit),
        round=[f"{name} = real({u.excess(name)})" for name in u.coefficients],
        write=[f"{component(r, i)} = {_component(u, r, i)}" for i in range(n) for r in R],
        put=[f"{lane(old)} = {new}" for old, new in zip(u.remembered(), u.results(), strict=True)]
        + [f"{lane('x0')} = x0", f"{lane('delta')} = delta"],
        finish=[f"X[{r}, who[k], {i}] = {component(r, i)}" for r in R for i in range(n)]
        + [f"scalars[who[k], {i}] = {lane(name)}" for i, name in enumerate(u.remembered())]
        + [f"scalars[who[k], {u.counter}] += t1 - t0", f"last_delta[who[k]] = {lane('delta')}"],
    )


def _lanes(rule: Rule) -> list[str]:
    """What there is one of in each lane, besides X."""
    return [*Unrolled(rule).remembered(), *rule.parameters, "x0", "delta", "error", "amiss"]


def _component(u: Unrolled, r: int, i: int) -> str:
    """Component i of row r of A X + B [φ; φ']."""
    text = u.row(r, z="@", p=f"p{i}", q=f"q{i}", excess=True)
    for c in u.vectors:
        text = text.replace(f"@{c}", f"z{c}_{i}")
    return text


@functools.cache
def _kernel(rule: Rule, dtype: str, n: int, probed: bool) -> Any:
    real, f8, i8 = getattr(types, dtype), types.float64, types.int64
    module = compiled.module(f"wide_{rule.name}_{dtype}_{n}{'_probed' * probed}", source(rule, dtype, n, probed=probed))
    flat, table, some = types.Array(f8, 1, "C"), types.Array(f8, 2, "C"), types.Array(i8, 1, "C")
    Phi = types.Array(real, 2, "C", readonly=True)
    parameters = [types.Array(f8, 2, "A", readonly=True)] * len(rule.parameters)
    return compiled.kernel(
        module, "wide", types.Array(real, 3, "C"), table, flat, some, some, types.Array(real, 1, "C"), flat, Phi, Phi,
        f8, i8, i8, *parameters, types.Array(real, 2, "C"), *[table, table, i8, i8] * probed,
    )  # fmt: skip


def stepper(
    rule: Rule, state: tuple[NDArray[Any], NDArray[np.float64], NDArray[np.float64]], phi: NDArray[Any],
    phi_next: NDArray[Any], top: float, parameters: Arrays, predictions: NDArray[Any], watch: Watch,
) -> Callable[[NDArray[np.int64], int, int], NDArray[np.int64]]:  # fmt: skip
    """A function of (learners, t0, t1) that takes these steps, and returns the learners that may diverge, unmoved.

    The state is X, the scalars and the last step's δ.
    """
    X = state[0]
    m, K, n = X.shape
    kernel = _kernel(rule, X.dtype.name, n, watch.probe is not None)
    failed, Z, S = np.empty(K, np.int64), np.empty(m * n * LANES, X.dtype), np.empty(len(_lanes(rule)) * LANES)
    given = [_once(p) for p in parameters]
    probe: tuple[Any, ...] = ()
    if watch.probe is not None:
        goal = np.zeros((n + 1, n + 1))
        goal[: len(watch.probe.R)] = watch.probe.R
        probe = goal, watch.errors, watch.every, watch.first

    def steps(learners: NDArray[np.int64], t0: int, t1: int) -> NDArray[np.int64]:
        count = kernel(*state, learners, failed, Z, S, phi, phi_next, top, t0, t1, *given, predictions, *probe)
        return failed[:count]

    return steps


def _once(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """A parameter (T, K) without what is repeated: (1, K), (T, 1) or (1, 1) where it does not vary over the other."""
    own = p[:1] if p.strides[0] == 0 else p
    return own[:, :1] if p.strides[1] == 0 else own
