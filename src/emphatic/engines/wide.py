"""wide: the dense engine's kernel for many learners of few features, which go side by side in lanes.

The kernel is made for one n, with every component written out: a lane holds all of a learner's X. Cost a step and
learner: O(m n), at the speed of arithmetic.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from emphatic.engines import compiled
from emphatic.engines.text import Unrolled, fill

if TYPE_CHECKING:
    from emphatic.engines.base import Arrays
    from emphatic.rules import Rule

__all__ = ["MOST_FEATURES", "run"]

#: Up to here all of a learner's X fits the registers of a lane, more or less.
MOST_FEATURES = 16
#: Learners side by side; steps that are tried together, and count if no learner diverges.
LANES, STEPS = 64, 256

_TEXT = '''⟨header⟩
real = np.⟨dtype⟩


def wide(blocks, S, scalars, after, last_delta, Phi, Phi_next, top, t0, L, ⟨all_parameters⟩, predictions):
    """L steps of all learners on blocks of X, each m·n·lanes; False if one of them may diverge."""
    keep = predictions.shape[0] > 0
    top_next = top
    for block in range(blocks.shape[0]):
        X = blocks[block]
        first = block * ⟨LANES⟩
        lanes = min(scalars.shape[0] - first, ⟨LANES⟩)
        ⟨load⟩
        for t in range(L):
            ⟨parameters⟩
            ⟨features⟩
            ⟨squares⟩
            bad = 0
            for k in range(lanes):
                ⟨read⟩
                ⟨products⟩
                ⟨take⟩
                ⟨call⟩
                ⟨bounds⟩
                bad += 0 if (⟨finite⟩ and ⟨small⟩) else 1
                ⟨round⟩
                ⟨write⟩
                ⟨put⟩
            if bad > 0:
                return False
            if keep:
                row = predictions[t0 + t, first : first + lanes]
                for k in range(lanes):
                    row[k] = S[⟨prediction⟩ + k]
        ⟨finish⟩
    return True
'''


def source(rule: Rule, dtype: str, n: int) -> str:
    """The text of the kernel for n features."""
    u = Unrolled(rule)
    R, limit = u.vectors, float(np.finfo(dtype).max)
    products, unused = u.products()
    names = [*u.remembered(), *rule.parameters, "x0", "delta"]

    def lane(name: str) -> str:
        return f"S[{names.index(name) * LANES} + k]"

    def loop(line: str) -> list[str]:
        return ["for k in range(lanes):", f"    {line}"]

    def total(a: str, b: str) -> str:
        return " + ".join(f"{a.format(i=i)} * {b.format(i=i)}" for i in range(n))

    pair = {"pp": ("p{i}", "p{i}"), "pq": ("p{i}", "q{i}"), "qq": ("q{i}", "q{i}")}
    return fill(
        _TEXT,
        header=u.header(),
        dtype=dtype,
        LANES=str(LANES),
        prediction=str(names.index("x0") * LANES),
        all_parameters=", ".join(f"all_{name}" for name in rule.parameters),
        load=[
            line for i, name in enumerate(u.remembered()) for line in loop(f"{lane(name)} = scalars[first + k, {i}]")
        ],
        parameters=[
            line
            for name in rule.parameters
            for line in (
                f"if t == 0 or all_{name}.shape[0] > 1:",
                f"    if all_{name}.shape[1] == 1:",
                f"        {name} = all_{name}[t, 0]",
                *("        " + inner for inner in loop(f"{lane(name)} = {name}")),
                "    else:",
                f"        row = all_{name}[t, first : first + lanes]",
                *("        " + inner for inner in loop(f"{lane(name)} = row[k]")),
            )
        ],
        features=[f"p{i} = Phi[t0 + t, {i}]; q{i} = Phi_next[t0 + t, {i}]" for i in range(n)],
        squares=[f"{name} = np.float64({total(*pair[name])})" for name in products if name in pair]
        + [f"{name} = 0.0" for name in unused if name in pair],
        read=[f"z{r}_{i} = X[{(r * n + i) * LANES} + k]" for r in R for i in range(n)],
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
        write=[f"X[{(r * n + i) * LANES} + k] = {_component(u, r, i)}" for i in range(n) for r in R],
        put=[f"{lane(old)} = {new}" for old, new in zip(u.remembered(), u.results(), strict=True)]
        + [f"{lane('x0')} = x0", f"{lane('delta')} = delta"],
        finish=[line for i, name in enumerate(u.remembered()) for line in loop(f"after[first + k, {i}] = {lane(name)}")]
        + loop(f"last_delta[first + k] = {lane('delta')}"),
    )


def _component(u: Unrolled, r: int, i: int) -> str:
    """Component i of row r of A X + B [φ; φ']."""
    text = u.row(r, z="@", p=f"p{i}", q=f"q{i}", excess=True)
    for c in u.vectors:
        text = text.replace(f"@{c}", f"z{c}_{i}")
    return text


@functools.cache
def _kernel(rule: Rule, dtype: str, n: int) -> Any:
    real, f8, i8 = getattr(types, dtype), types.float64, types.int64
    module = compiled.module(f"wide_{rule.name}_{dtype}_{n}", source(rule, dtype, n))
    flat, scalars = types.Array(f8, 1, "C"), types.Array(f8, 2, "C")
    Phi = types.Array(real, 2, "C", readonly=True)
    parameters = [types.Array(f8, 2, "C", readonly=True)] * len(rule.parameters)
    return compiled.kernel(
        module, "wide", types.Array(real, 2, "C"), flat, scalars, scalars, flat, Phi, Phi, f8, i8, i8,
        *parameters, types.Array(real, 2, "C"),
    )  # fmt: skip


def run(
    rule: Rule, X: NDArray[Any], scalars: NDArray[np.float64], delta: NDArray[np.float64], phi: NDArray[Any],
    phi_next: NDArray[Any], top: float, parameters: Arrays, predictions: NDArray[Any],
) -> int:  # fmt: skip
    """The steps taken: T, or fewer if some learner may diverge in the chunk after them, which is left untaken."""
    m, K, n = X.shape
    T = len(phi)
    kernel = _kernel(rule, X.dtype.name, n)
    S = np.zeros((scalars.shape[1] + len(rule.parameters) + 2) * LANES)
    after = np.empty_like(scalars)
    blocks, trial = np.zeros((2, -(-K // LANES), m, n, LANES), X.dtype)
    for block, part in _parts(blocks, X):
        block[:] = part
    taken = 0
    while taken < T:
        L = min(STEPS, T - taken)
        given = [_once(p[taken : taken + L]) for p in parameters]
        trial[:] = blocks
        if not kernel(
            trial.reshape(len(trial), -1), S, scalars, after, delta, phi, phi_next, top, taken, L, *given, predictions
        ):
            break
        blocks, trial = trial, blocks
        scalars[:, :-1] = after[:, :-1]
        scalars[:, -1] += L
        taken += L
    for block, part in _parts(blocks, X):
        part[:] = block
    return taken


def _parts(blocks: NDArray[Any], X: NDArray[Any]) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Each block's lanes that are taken, and the same learners in X."""
    for b, block in enumerate(blocks):
        learners = X[:, b * LANES : (b + 1) * LANES].transpose(0, 2, 1)
        yield block[:, :, : learners.shape[2]], learners


def _once(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """A parameter (T, K) without what is repeated: (1, K), (T, 1) or (1, 1) where it does not vary over the other."""
    own = p[:1] if p.strides[0] == 0 else p
    return np.ascontiguousarray(own[:, :1] if p.strides[1] == 0 else own)
