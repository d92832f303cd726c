"""Loads and stores of ``cuda_kernels``, as tuples of a number a learner."""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton.language as tl

from emphatic.engines.cuda.cuda_products import inner

if TYPE_CHECKING:
    from emphatic.engines.cuda.cuda_functions import GROUP, MEMORY, PAIRS, PARAMETERS, REAL, VECTORS


@inner
def load_state(BEFORE, wide, k, ok):
    """Memory and bounds."""
    memory = ()
    for r in tl.static_range(MEMORY):
        memory = memory + (tl.load(BEFORE + r * wide + k, mask=ok, other=0.0),)
    size = ()
    for r in tl.static_range(VECTORS):
        size = size + (tl.load(BEFORE + (MEMORY + r) * wide + k, mask=ok, other=0.0).to(REAL),)
    return memory, size


@inner
def store_state(AFTER, wide, k, moves, memory, size):
    for r in tl.static_range(MEMORY):
        tl.store(AFTER + r * wide + k, memory[r], mask=moves)
    for r in tl.static_range(VECTORS):
        tl.store(AFTER + (MEMORY + r) * wide + k, size[r], mask=moves)


@inner
def load_step(parameters, k, ok):
    """The parameters of the first step: those that do not vary hold for every step."""
    step = ()
    for r in tl.static_range(PARAMETERS):
        step = step + (tl.load(parameters[r][0] + k * parameters[r][2], mask=ok, other=0.0).to(tl.float64),)
    return step


@inner
def vary_step(step, parameters, varies, when, k, ok):
    """The same with the varying parameters of step ``when``."""
    out = ()
    for r in tl.static_range(PARAMETERS):
        if varies[r]:
            at = parameters[r][0] + when * parameters[r][1] + k * parameters[r][2]
            out = out + (tl.load(at, mask=ok, other=0.0).to(tl.float64),)
        else:
            out = out + (step[r],)
    return out


@inner
def add_parts(z, wide, within, parts, ROWS: tl.constexpr):
    """V as the sum of its parts, which lie behind it, in their order."""
    i = tl.arange(0, GROUP)
    for row in range(0, VECTORS * ROWS, GROUP):
        at = z[None, :] + (row + i)[:, None] * wide
        total = tl.load(at + VECTORS * ROWS * wide, mask=within, other=0.0)
        for part in range(2, parts + 1):
            total += tl.load(at + part * VECTORS * ROWS * wide, mask=within, other=0.0)
        tl.store(at, total, mask=within)


@inner
def load_ring(y, wide, ok, last_ok, RING: tl.constexpr, ROWS: tl.constexpr):
    """V of a group's rows and, where the ring has room, of the row after them."""
    ring = ()
    for i in tl.static_range(RING):
        z = ()
        for r in tl.static_range(VECTORS):
            z = z + (tl.load(y + r * ROWS * wide + i * wide, mask=ok if i < GROUP else last_ok, other=0.0),)
        ring = ring + (z,)
    return ring


@inner
def store_ring(y, wide, ok, ring, FIRST: tl.constexpr, ROWS: tl.constexpr):
    """W of a group's rows in the place of V, from the ring's row FIRST on."""
    for r in tl.static_range(VECTORS):
        for i in tl.static_range(GROUP):
            tl.store(y + r * ROWS * wide + i * wide, ring[FIRST + i][r], mask=ok)


@inner
def store_row(at, wide, ok, z, ROWS: tl.constexpr):
    for r in tl.static_range(VECTORS):
        tl.store(at + r * ROWS * wide, z[r], mask=ok)


@inner
def load_rows(at, wide, within, ROWS: tl.constexpr):
    """Some rows at a time, with learners along the second axis."""
    z = ()
    for r in tl.static_range(VECTORS):
        z = z + (tl.load(at + r * ROWS * wide, mask=within, other=0.0),)
    return z


@inner
def store_rows(at, wide, within, z, ROWS: tl.constexpr):
    for r in tl.static_range(VECTORS):
        tl.store(at + r * ROWS * wide, z[r], mask=within)


@inner
def store_total(TAIL, wide, k, ok, a):
    for r in tl.static_range(PAIRS):
        tl.store(TAIL + r * wide + k, a[r], mask=ok)


@inner
def load_total(TAIL, wide, k, ok):
    """A_total, for blocks with learners along the first axis."""
    a = ()
    for r in tl.static_range(PAIRS):
        a = a + (tl.load(TAIL + r * wide + k, mask=ok, other=0.0)[:, None],)
    return a


@inner
def along_rows(a):
    """For blocks with learners along the second axis."""
    out = ()
    for r in tl.static_range(PAIRS):
        out = out + (a[r][None, :],)
    return out
