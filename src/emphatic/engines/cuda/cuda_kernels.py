"""A chunk's steps on V, and the update of X, in Triton.  Derived in CUDA.md.

One thread has one learner. A chunk's steps go in groups, and the numbers of a group's rows form a *ring*, a tuple of
rows, which a GPU keeps in registers. Its first rows are those of the step's φ and φ'; a step moves all others and puts
the coefficients of the rows it has used at the end, so that when V is used up the ring holds W.

Functions that are not here are those of the rule, declared in ``cuda_functions``; what is compiled is one text
of them all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

from emphatic.engines.cuda.cuda_products import inner, load_rows_of, place_of_share, product, split

if TYPE_CHECKING:
    from emphatic.engines.cuda.cuda_functions import (
        GROUP, MEMORY, PAIRS, PARAMETERS, REAL, TAKES_NEXT, VECTORS, add_late, apply, apply_to, bounds, compose, decide,
        drop_traces, identity, is_fine, late_row, leave, leave_both, make_late, move, move_late, multiply, no_late,
        products, round_total, start_sequence, store_late,
    )  # fmt: skip


@triton.jit
def take_chunk(
    Z, G, H, BEFORE, AFTER, TAIL, DELTA, FLAG, TOP, OUT, FROZEN, FIRST, parameters, varies, t0, L, turns, chunk, K,
    parts, APART: tl.constexpr, BROKEN: tl.constexpr, KEEP: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """L steps on V, (m, ROWS, K) in Z, from step t0 of a block on; W in its place, and A_total in TAIL.

    FLAG is lowered to the chunk if a learner may overflow. Each of ``parameters`` is a pointer and its distances from
    step to step and from learner to learner; ``varies`` says which of them vary from step to step. In a BROKEN log
    sequences begin where FIRST is not 0: the step's A is then one that takes nothing of a trace.
    """
    STRIDE: tl.constexpr = 2 if APART else 1
    RING: tl.constexpr = GROUP if APART else GROUP + 1
    STEPS: tl.constexpr = GROUP // STRIDE
    wide = tl.cast(K, tl.int64)
    k = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ok = k < K
    # Frozen learners are computed and not stored. No load of V is masked by this: Triton lays a product out by the
    # narrowest type that any of its factors depends on, masks included, and fails to do so for float64.
    moves = ok & (tl.load(FROZEN + k, mask=ok, other=1) == 0)
    none = 0 * k  # makes scalars one value a learner: otherwise Triton's interpreter confuses masks
    nought = tl.zeros((BLOCK,), tl.float64)
    z = Z + k
    G += chunk * ROWS * ROWS
    # Sizes that start at 1 or more bound, besides X, also W (as if a row were 1) and products of A (as if X were 1).
    top = tl.maximum(tl.load(TOP + chunk).to(REAL), 1.0)
    memory, size = load_state(BEFORE, wide, k, ok)
    constant = load_step(parameters, k, ok)
    when = t0 + 0 * wide  # (in 64 bits: K steps of K numbers are beyond 32)
    step = vary_step(constant, parameters, varies, when, k, ok & (none < L))
    i = tl.arange(0, GROUP)
    within = ok[None, :] & (i[:, None] < ROWS)
    if parts > 1:
        add_parts(z, wide, within, parts, ROWS)
        tl.debug_barrier()
    fine = ok == ok
    delta_last = tl.zeros((BLOCK,), tl.float64)
    late = no_late(nought)
    total = identity(nought)
    for group in range((L + STEPS - 1) // STEPS):
        t_group = group * STEPS
        row0 = group * GROUP + 0 * L  # (a tensor also where Triton interprets)
        y = z + row0 * wide
        ring = load_ring(y, wide, ok, ok & (row0 + none + GROUP < ROWS), RING, ROWS)
        size = at_least_1(size)
        of_group = identity(nought)
        late_before = late
        late = no_late(nought)
        for j in range(turns):
            t = t_group + j
            live = t + none < L
            h = H + (chunk * ROWS + t) * (2 * RING)
            # Load the next step's parameters while this step is computed.
            next_step = vary_step(constant, parameters, varies, when + 1, k, ok & (t + none < L - 1))
            x, x_next, g = products(ring[0], ring[1], h, nought, RING)
            if BROKEN:
                begins = tl.load(FIRST + when + none, mask=ok & live, other=0) != 0
                memory, x, x_next = start_sequence(begins, memory, x, x_next, nought)
            delta, c, memory = decide(step, memory, x, x_next, g, live, nought)
            if BROKEN:
                c = drop_traces(begins, c)
            size = bounds(c, size, top)
            fine = fine & (is_fine(delta, memory, c, size) | (live == 0))
            if KEEP:
                tl.store(OUT + when * wide + k, ring[0][0], mask=moves & live)
            delta_last = tl.where(live, delta, delta_last)
            ring = turn(ring, c, late, nought, h, STRIDE, RING)
            if not APART:
                late = make_late(live, c, late)
                late_before = move_late(c, late_before)
            of_group = multiply(c, of_group)
            step = next_step
            when += 1
        store_ring(y, wide, ok, ring, RING - GROUP, ROWS)
        scale = along_rows(round_total(of_group))
        tl.debug_barrier()
        for row in range(0, row0, GROUP):
            at = z[None, :] + (row + i)[:, None] * wide
            store_rows(at, wide, within, apply(scale, load_rows(at, wide, within, ROWS)), ROWS)
        for row in range(row0 + GROUP, 2 * L if APART else L + 1, GROUP):
            at = z[None, :] + (row + i)[:, None] * wide
            moved = apply(scale, load_rows(at, wide, within, ROWS))
            near = tl.load(G + (row0 + i)[None, :] * ROWS + row + i[:, None])
            beyond = tl.load(G + (row0 + GROUP) * ROWS + row + i)[:, None]
            moved = spread(moved, near, y, wide, within, late, beyond, APART, ROWS, PRECISION)
            store_rows(at, wide, within, moved, ROWS)
        tl.debug_barrier()
        if not APART:
            # Add the first row's coefficient from the step before the group, which V already includes.
            store_late(y, ROWS * wide, ok, ring[1], late_before)
        total = compose(of_group, total)
    # If a chunk ends with a group, its last φ' has a row of its own, with coefficients of weights only.
    if (L % GROUP == 0) & (L < ROWS) & (not APART):
        store_row(z + L * wide, wide, ok, late_row(late, nought), ROWS)
    tl.store(DELTA + k, delta_last, mask=moves)
    store_state(AFTER, wide, k, moves, memory, size)
    store_total(TAIL, wide, k, ok, round_total(total))
    if tl.max(tl.where(moves & (fine == 0), 1, 0)) > 0:
        tl.atomic_min(FLAG, chunk)


@inner
def at_least_1(size):
    out = ()
    for r in tl.static_range(VECTORS):
        out = out + (tl.maximum(size[r], 1.0),)
    return out


@inner
def turn(ring, c, late, nought, h, STRIDE: tl.constexpr, RING: tl.constexpr):
    """The ring after a step: all but its first rows moved, and the coefficients of those at the end."""
    out = ()
    for i in tl.static_range(STRIDE, RING):
        g = tl.load(h + i)
        g_next = tl.load(h + RING + i) if TAKES_NEXT else g
        out = out + (move(c, ring[i], g, g_next),)
    return out + ((leave(c, late, nought),) if STRIDE == 1 else leave_both(c, nought))


@inner
def spread(
    moved, near, y, wide, within, late, beyond, APART: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr
):
    """V of later rows with what the group's W adds; ``near`` are the products of those rows with the group's rows."""
    i = tl.arange(0, GROUP)
    gains = ()
    for r in tl.static_range(VECTORS):
        w = tl.load(y[None, :] + (r * ROWS + i)[:, None] * wide, mask=within, other=0.0)
        gains = gains + (tl.dot(near, w, input_precision=PRECISION, out_dtype=REAL),)
    if not APART:
        gains = add_late(gains, late, beyond)
    out = ()
    for r in tl.static_range(VECTORS):
        out = out + (moved[r] + gains[r],)
    return out


@triton.jit(do_not_specialize=["chunk"])
def update(
    X, Z, TAIL, FLAG, FROZEN, P, P_rest, SCALE, chunk, K, n, span,
    ONE: tl.constexpr, OTHER: tl.constexpr, NEXT: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    TILE: tl.constexpr, THREE: tl.constexpr, HALVES: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """X ← A_total X + W P for a block of learners and ``span`` columns; of two vectors, or of one if they are the same.

    P is (n, ROWS), or in HALVES (ROWS, n). With NEXT, also V = X Pᵀ of the next chunk's rows, as in ``project``.
    """
    if tl.load(FLAG) <= chunk:
        return
    wide = tl.cast(K, tl.int64)
    k = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ok = k < K
    moves = ok & (tl.load(FROZEN + k, mask=ok, other=1) == 0)  # (see ``take_chunk``)
    j = tl.arange(0, ROWS)
    i = tl.arange(0, TILE)
    left = tl.program_id(1) * span
    total = load_total(TAIL, wide, k, moves)
    scale = tl.load(SCALE + chunk)
    scale_next = tl.load(SCALE + chunk + 1) if NEXT else scale
    COUNT: tl.constexpr = 1 if ONE == OTHER else 2
    W = ()
    V = ()
    for s in tl.static_range(COUNT):
        row = ((OTHER if s else ONE) * ROWS + j)[None, :] * wide
        w = tl.load(Z + row + k[:, None], mask=ok[:, None], other=0.0)
        W = W + (split(w, THREE, HALVES),)
        V = V + (tl.zeros((BLOCK, ROWS), REAL),)
    at = ()
    for r in tl.static_range(VECTORS):
        at = at + (X + (r * wide + k)[:, None] * n,)
    P += chunk * ROWS * n
    P_rest += chunk * ROWS * n
    count = (tl.minimum(left + span, n) - left + TILE - 1) // TILE
    for tile in tl.range(0, count, num_stages=STAGES):
        # Each program begins at another tile: otherwise all would read from the same few memory channels at once.
        c = left + (tile + tl.program_id(0)) % count * TILE + i
        inside = c < n
        place = c[None, :] + j[:, None] * n if HALVES else c[None, :] * ROWS + j[:, None]
        p = load_rows_of(P, place, inside[None, :], HALVES)
        p_rest = load_rows_of(P_rest, place, inside[None, :], HALVES) if THREE else p
        there = moves[:, None] if HALVES else moves[:, None] & inside[None, :]
        old = ()
        for s in tl.static_range(COUNT):
            old = old + (apply_to(OTHER if s else ONE, total, at, c, there),)
        if NEXT:
            later = c[:, None] + (ROWS + j)[None, :] * n
            q = load_rows_of(P, later, inside[:, None], HALVES)
            q_rest = load_rows_of(P_rest, later, inside[:, None], HALVES) if THREE else q
        sums = ()
        for s in tl.static_range(COUNT):
            x = product(W[s], p, p_rest, scale, old[s], THREE, HALVES)
            tl.store(at[OTHER if s else ONE] + c[None, :], x, mask=there)
            if NEXT:
                sums = sums + (product(split(x, THREE, HALVES), q, q_rest, scale_next, V[s], THREE, HALVES),)
            else:
                sums = sums + (V[s],)
        V = sums
    if NEXT:
        z = Z + place_of_share(VECTORS * ROWS * wide)
        for s in tl.static_range(COUNT):
            row = ((OTHER if s else ONE) * ROWS + j)[None, :] * wide
            tl.store(z + row + k[:, None], V[s], mask=ok[:, None])


# ------------------------------------------------------------------ loads and stores, as tuples of a number a learner


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
        for share in range(2, parts + 1):
            total += tl.load(at + share * VECTORS * ROWS * wide, mask=within, other=0.0)
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
