"""What the chunked kernel needs of a rule besides ``rule_functions``: where lanes keep things, and the scan of the A.

T is the product of the A of all steps after some step: an arrow as every A is, of which the entries at ``pairs``, the
*tails*, may differ from 0. In the text they are T{r}_{c} for vectors r, c; other names are as in ``unrolled``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.engines.unrolled import Functions, Slots, Unrolled, tuple_of
from emphatic.rules import Rule, Scalars

Array = NDArray[Any]
Floats = NDArray[np.float64]

#: Learners a block.
LANES = 256
#: Places in a lane, and where in S the first lane has what.
SLOTS: int
AT_MEMORY: int
AT_GROWTH: int
AT_STEP: int
AT_PRODUCTS: int
AT_DELTA: int
AT_AMISS: int
AT_C: int
AT_TAILS: int
AT_SHARES: int
#: How many vectors have a scale of their own that may exceed 1, and how many entries of T there are: tails.
#: The first of them are each vector's own scale.
GROWING: int
TAILS: int
#: For each entry of T what it has over the coefficient that ``folded`` takes: 1 for a weight's own scale.
OVER: tuple[float, ...]
#: (vector, 0 for φ or 1 for φ') of each inner product that the rule uses, and of each share T B.
PRODUCTS: tuple[tuple[int, int], ...]
SHARES: tuple[tuple[int, int], ...]

#: If φ·φ is less than this, its last digits are beyond the range. A share less than this is left out if a trace has
#: faded to ``FADED`` since: it counts for nothing, and products with numbers at the end of the range can take a
#: hundred times as long as others.
SHORTEST: float
FADED: float
#: Whether rows of V go in pairs, which share what is read of Q: faster, as long as LLVM makes vectors of the loop.
PAIRED: bool

#: (S, k) → what lane k has: memory, size, growth; step; x and x_next; c, as ``excess`` made it; tails.
lane_state: Callable[[Floats, int], tuple[Scalars, Scalars, Scalars]]
lane_step: Callable[[Floats, int], Scalars]
lane_products: Callable[[Floats, int], tuple[Scalars, Scalars]]
lane_coefficients: Callable[[Floats, int], Scalars]
lane_tails: Callable[[Floats, int], Scalars]
#: (S, k, …): put these there.
set_state: Callable[[Floats, int, Scalars, Scalars, Scalars, Any, Scalars], None]
set_scan: Callable[[Floats, int, Scalars, Scalars], None]
#: (Q, t, k) → the coefficients of step t.
coefficients_at: Callable[[Array, int, int], Scalars]
#: (c, growth) → for each vector that scales itself by more than 1 perhaps, the largest product of its scales in the
#: steps up to this one, however many.
grown: Callable[[Scalars, Scalars], Scalars]
#: (c, size, growth, x, x_next): all are so small that neither the numbers nor their digits can be lost in the chunk.
is_tame: Callable[[Scalars, Scalars, Scalars, Scalars, Scalars], bool]
#: (tails, c) → the shares T B of a step, and the tails before it.
scanned: Callable[[Scalars, Scalars], tuple[Scalars, Scalars]]
#: (shares, tails): all are well within the range of the learner's dtype.
are_within: Callable[[Scalars, Scalars], bool]
#: (tail, k) → tails of a learner; (tails, z, new) → one component of A_total X + W P, of which new is the second.
tails_at: Callable[[Array, int], Scalars]
folded: Callable[[Scalars, Scalars, Scalars], Scalars]


#: LLVM makes vectors of a loop if it need not compare more pairs of addresses than this to know that none overlap.
_COMPARED = 128


def pairs(u: Unrolled) -> list[tuple[int, int]]:
    """Where T may differ from 0: each vector's own scale, and what each weight takes of the traces."""
    return [(r, r) for r in u.vectors] + [(r, j) for r in u.weights for j in u.feeds[r]]


def functions_for(rule: Rule, dtype: str) -> Functions:
    """The rule's functions, with those that ``chunked_kernels`` declares."""
    functions = Functions(rule, dtype)
    u, add = functions.u, functions.add
    limit, precision = float(np.finfo(dtype).max), float(np.finfo(dtype).eps)
    products = [(int(name[1:]), "xy".index(name[0])) for name in u.products if name[0] in "xy"]
    growing = [r for r in u.vectors if u.A[r][r] is None or abs(u.A[r][r] or 0.0) > 1.0]
    tails = [f"T{r}_{c}" for r, c in pairs(u)]
    shares, scan = _scan(u)
    slots = Slots(
        functions,
        LANES,
        memory=u.M,
        size=u.m,
        growth=len(growing),
        step=len(rule.parameters),
        products=len(products),
        delta=1,
        amiss=1,
        c=len(u.coefficients),
        tails=len(tails),
        shares=len(shares),
    )
    functions.constant("PRODUCTS", tuple(products))
    functions.constant("SHARES", tuple((r, side) for r, side in shares))
    functions.constant("TAILS", len(tails))
    functions.constant("GROWING", len(growing))
    functions.constant("SHORTEST", float(np.finfo(dtype).tiny) / precision)
    functions.constant("FADED", precision**2)
    written = 2 * u.m
    functions.constant("PAIRED", written * (written - 1) // 2 + written * len(u.coefficients) <= _COMPARED)
    functions.constant("OVER", tuple(float(f"a{r}_{c}" in u.scales) for r, c in pairs(u)))

    place_of = {product: slots.places["products"][i] for i, product in enumerate(products)}
    x, x_next = (tuple_of(place_of.get((r, side), "0.0") for r in u.vectors) for side in (0, 1))
    add("lane_state(S, k)", slots.get("memory", "size", "growth"))
    add("lane_step(S, k)", slots.get("step"))
    add("lane_products(S, k)", f"return {x}, {x_next}")
    add("lane_coefficients(S, k)", slots.get("c"))
    add("lane_tails(S, k)", slots.get("tails"))
    put_delta = f"{slots.places['delta'][0]} = delta"
    add("set_state(S, k, memory, size, growth, delta, c)", *slots.put("memory", "size", "growth", "c"), put_delta)
    add("set_scan(S, k, shares, tails)", *slots.put("shares", "tails"))
    add("coefficients_at(Q, t, k)", f"return {tuple_of(f'Q[{i}, t, k]' for i in range(len(u.coefficients)))}")

    products_of_scales = [f"max(growth[{i}], 1.0) * abs({u.entry(f'a{r}_{r}')})" for i, r in enumerate(growing)]
    add("grown(c, growth)", *functions.unpack("c"), f"return {tuple_of(products_of_scales)}")
    # One comparison for all: each sum is weighed by what it may reach.
    most, root = limit / 4, limit**0.5
    inner = [f"abs({('x', 'x_next')[side]}[{r}])" for r, side in products]
    total = _sum([f"size[{r}]" for r in u.vectors] + inner)
    total += f" + {most / root!r} * ({_sum(f'abs(c[{i}])' for i in range(len(u.coefficients)))})"
    total += f" + {most * precision**0.5!r} * ({_sum(f'growth[{i}]' for i in range(len(growing)))})"
    add("is_tame(c, size, growth, x, x_next)", f"return {total} <= {most!r}")
    total = _sum([f"abs(shares[{i}])" for i in range(len(shares))] + [f"abs(tails[{i}])" for i in range(len(tails))])
    add("are_within(shares, tails)", f"return {total} <= {most!r}")
    add(
        "scanned(tails, c)",
        f"{tuple_of(tails)} = tails",
        *functions.unpack("c"),
        *scan,
        f"return {tuple_of(f'w{side}_{r}' for r, side in shares)}, {tuple_of(tails)}",
    )
    add("tails_at(tail, k)", f"return {tuple_of(f'tail[{i}, k]' for i in range(len(tails)))}")
    rows = []
    for r in u.vectors:
        terms = [f"new[{r}]", *[f"z[{r}]"] * (f"a{r}_{r}" in u.scales)]
        terms += [f"tails[{i}] * z[{c}]" for i, (row, c) in enumerate(pairs(u)) if row == r]
        rows.append(" + ".join(terms))
    add("folded(tails, z, new)", f"return {tuple_of(rows)}")
    return functions


def _scan(u: Unrolled) -> tuple[list[tuple[int, int]], list[str]]:
    """(r, 0 for φ and 1 for φ') of the shares T B that a step has, and the lines that make them and the T before it."""
    shares, lines = [], []
    for side, name in enumerate("bd"):
        for r in u.vectors:
            columns = [c for row, c in pairs(u) if row == r and u.B[c][side] != 0.0]
            if columns:
                shares.append((r, side))
                w, left = f"w{side}_{r}", _sum(f"abs(T{r}_{c})" for c in columns)
                lines.append(f"{w} = {_sum(f'T{r}_{c} * ' + u.entry(f'{name}{c}') for c in columns)}")
                lines.append(f"{w} = {w} if abs({w}) >= SHORTEST or {left} >= FADED else 0.0")
    for r, c in reversed(pairs(u)):  # what a weight takes needs the weight's own scale as it was
        entry = f"a{r}_{c}"
        if entry in u.scales:
            lines.append(f"T{r}_{r} = T{r}_{r} + T{r}_{r} * {entry}")
        elif r == c:
            lines.append(f"T{r}_{r} = T{r}_{r} * {u.entry(entry)}")
        else:
            lines.append(f"T{r}_{c} = T{r}_{r} * {u.entry(entry)} + T{r}_{c} * {u.entry(f'a{c}_{c}')}")
    return shares, lines


def _sum(terms: Iterable[str]) -> str:
    return " + ".join(terms) or "0.0"
