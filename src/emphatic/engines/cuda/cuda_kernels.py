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
        ADDED, AHEAD, GROUP, MEMORY, PAIRS, PARAMETERS, REAL, TAKES_NEXT, UNROLLED, VECTORS, add_late, apply, apply_to,
        bounds, compose, decide, drop_traces, identity, is_fine, late_row, leave, leave_both, make_late, move,
        move_late, multiply, no_late, products, round_total, start_sequence, store_late,
    )  # fmt: skip


@triton.jit
def take_chunk(
    Z, G, H, BEFORE, AFTER, GROUPS, TAIL, DELTA, FLAG, TOP, OUT, FROZEN, FIRST, parameters, varies, t0, L, chunk, K,
    parts, APART: tl.constexpr, BROKEN: tl.constexpr, KEEP: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
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
    queue = ()
    for ahead in tl.static_range(AHEAD):
        queue = queue + (vary_step(constant, parameters, varies, when + ahead, k, ok & (none < L - ahead)),)
    if parts > 1:
        add_parts(z, wide, ok, parts, ROWS)
        tl.debug_barrier()
    fine = ok == ok
    delta_last = tl.zeros((BLOCK,), tl.float64)
    late = no_late(nought)
    total = identity(nought)
    of_group = identity(nought)
    for group in range((L + STEPS - 1) // STEPS):
        t_group = group * STEPS
        row0 = group * GROUP + 0 * L  # (a tensor also where Triton interprets)
        y = z + row0 * wide
        ring = load_ring(y, wide, ok, ok & (row0 + none + GROUP < ROWS), RING, ROWS)
        ring = catch_up(ring, z, G, GROUPS, wide, k, ok, group, row0, total, late, nought, APART, ROWS, RING)
        size = at_least_1(size)
        of_group = identity(nought)
        late_before = late
        late = no_late(nought)
        steps = tl.minimum(L - t_group, STEPS)
        for j in range(steps):
            t = t_group + j
            h = H + (chunk * ROWS + t) * (2 * RING)
            # Load the parameters of a step some steps ahead, while this step is computed.
            last = vary_step(constant, parameters, varies, when + AHEAD, k, ok & (t + none < L - AHEAD))
            x, x_next, g = products(ring[0], ring[1], h, nought, RING)
            if BROKEN:
                begins = tl.load(FIRST + when + none, mask=ok, other=0) != 0
                memory, x, x_next = start_sequence(begins, memory, x, x_next, nought)
            delta, c, memory = decide(in_float64(queue[0]), memory, x, x_next, g, nought)  # type: ignore[misc]
            if BROKEN:
                c = drop_traces(begins, c)
            size = bounds(c, size, top)
            fine = fine & is_fine(delta, memory, c, size)
            if KEEP:
                tl.store(OUT + when * wide + k, ring[0][0], mask=moves)
            delta_last = delta
            ring = turn(ring, c, late, nought, h, STRIDE, RING)
            if not APART:
                late = make_late(c, late)
                late_before = move_late(c, late_before)
            of_group = multiply(c, of_group)
            queue = move_up(queue, last, AHEAD)
            when += 1
        for _ in range(steps, STEPS):
            ring = idle(ring, late, nought, STRIDE, RING)
        store_ring(y, wide, ok, ring, RING - GROUP, ROWS)
        if not APART:
            # Add the first row's coefficient from the step before the group, which V already includes.
            store_late(y, ROWS * wide, ok, ring[1], late_before)
        store_total(GROUPS + group * PAIRS * wide, wide, k, ok, of_group)
        total = compose(of_group, total)
    since = identity(nought)
    for back in range(1, (L + STEPS - 1) // STEPS):
        group = (L + STEPS - 1) // STEPS - 1 - back
        since = compose(since, load_product(GROUPS + (group + 1) * PAIRS * wide, wide, k, ok))
        scale = round_total(since)
        for row in range(group * GROUP, group * GROUP + GROUP, UNROLLED):
            move_rows(z, wide, ok, row, scale, ROWS)
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
def idle(ring, late, nought, STRIDE: tl.constexpr, RING: tl.constexpr):
    """The ring after a step that a short group does not have: the last φ' is the first row that no step has used."""
    out = ()
    for i in tl.static_range(STRIDE, RING):
        out = out + (ring[i],)
    row = late_row(late, nought)
    return out + ((row,) if STRIDE == 1 else (row, row))


@inner
def catch_up(
    ring, z, G, GROUPS, wide, k, ok, group, row0, total, late, nought, APART: tl.constexpr, ROWS: tl.constexpr,
    RING: tl.constexpr,
):  # fmt: skip
    """V of a group's rows with what the groups before it add, the last of them first.

    Their W are as they were at the end of their group; ``since`` is the product of A since then.
    """
    scale = round_total(total)
    out = ()
    for i in tl.static_range(RING):
        out = out + (apply(scale, ring[i]),)
    since = identity(nought)
    for back in range(1, group + 1):
        scale = round_total(since)
        first = row0 - back * GROUP
        for row in range(first, first + GROUP, UNROLLED):
            w = load_rows(z + row * wide, wide, ok, ROWS)
            moved = ()
            for s in tl.static_range(UNROLLED):
                moved = moved + (apply(scale, w[s]),)
            out = gather(out, moved, G + row * ROWS + row0, 0 * k, ROWS, RING)
        since = compose(since, load_product(GROUPS + (group - back) * PAIRS * wide, wide, k, ok))
    if not APART:
        out = gather_late(out, late, G + row0 * ROWS + row0, RING)
    return out


@inner
def gather(ring, w, at, none, ROWS: tl.constexpr, RING: tl.constexpr):
    """The ring with the products of some rows: w are their coefficients, ``at`` their products with the ring's."""
    for s in tl.static_range(UNROLLED):
        g = load_numbers(at + s * ROWS, none, RING)
        out = ()
        for i in tl.static_range(RING):
            out = out + (add_row(ring[i], w[s], g[i]),)
        ring = out
    return ring


@inner
def load_numbers(at, none, COUNT: tl.constexpr):
    """At least COUNT numbers that are the same for all learners, four by one load."""
    out = ()
    for i in tl.static_range(0, COUNT, 4):
        four = tl.load((at + i + tl.arange(0, 4))[None, :] + none[:, None])
        even, odd = tl.split(tl.reshape(four, (none.shape[0], 2, 2)))
        a, c = tl.split(even)
        b, d = tl.split(odd)
        out = out + (a, b, c, d)
    return out


@inner
def add_row(z, w, g):
    out = ()
    for r in tl.static_range(VECTORS):
        out = out + (z[r] + w[r] * g,)
    return out


@inner
def gather_late(ring, late, g, RING: tl.constexpr):
    out = ()
    for i in tl.static_range(RING):
        out = out + (add_late(ring[i], late, tl.load(g + i)),)
    return out


@inner
def move_rows(z, wide, ok, row, a, ROWS: tl.constexpr):
    """Move W of some rows by A."""
    at = z + row * wide
    w = load_rows(at, wide, ok, ROWS)
    for s in tl.static_range(UNROLLED):
        store_row(at + s * wide, wide, ok, apply(a, w[s]), ROWS)


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
    """The same with the varying parameters of step ``when``, as they are in memory."""
    out = ()
    for r in tl.static_range(PARAMETERS):
        if varies[r]:
            at = parameters[r][0] + when * parameters[r][1] + k * parameters[r][2]
            out = out + (tl.load(at, mask=ok, other=0.0),)
        else:
            out = out + (step[r],)
    return out


@inner
def in_float64(step):
    out = ()
    for r in tl.static_range(PARAMETERS):
        out = out + (step[r].to(tl.float64),)
    return out


@inner
def move_up(queue, last, AHEAD: tl.constexpr):
    """The queue without its first step, and the last one behind it."""
    out = ()
    for i in tl.static_range(1, AHEAD):
        out = out + (queue[i],)
    return out + (last,)


@inner
def add_parts(z, wide, ok, parts, ROWS: tl.constexpr):
    """V as the sum of its parts, which lie behind it, in their order."""
    i = tl.arange(0, ADDED)
    within = ok[None, :] & (i[:, None] < ROWS)
    for row in range(0, VECTORS * ROWS, ADDED):
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
def load_rows(at, wide, ok, ROWS: tl.constexpr):
    """UNROLLED rows."""
    out = ()
    for s in tl.static_range(UNROLLED):
        z = ()
        for r in tl.static_range(VECTORS):
            z = z + (tl.load(at + r * ROWS * wide + s * wide, mask=ok, other=0.0),)
        out = out + (z,)
    return out


@inner
def store_total(TAIL, wide, k, ok, a):
    for r in tl.static_range(PAIRS):
        tl.store(TAIL + r * wide + k, a[r], mask=ok)


@inner
def load_product(at, wide, k, ok):
    """A product of several A."""
    a = ()
    for r in tl.static_range(PAIRS):
        a = a + (tl.load(at + r * wide + k, mask=ok, other=0.0),)
    return a


@inner
def load_total(TAIL, wide, k, ok):
    """A_total, for blocks with learners along the first axis."""
    a = ()
    for r in tl.static_range(PAIRS):
        a = a + (tl.load(TAIL + r * wide + k, mask=ok, other=0.0)[:, None],)
    return a
