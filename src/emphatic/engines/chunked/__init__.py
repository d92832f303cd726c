"""chunked: many learners on one stream of features at matrix-multiply speed, and exact.  Derived in CHUNKED.md.

A chunk of L steps is run in *dual* coordinates: all that happens inside it stays in the span of its feature rows P and
of the old X, so the rule needs only V = X Pᵀ and G = P Pᵀ. One product gives V, the steps are run on V, and one
product puts the result back into X. Learners are processed in blocks, side by side in the lanes of the processor;
nothing of size T·K·n is allocated.
"""

from __future__ import annotations

import functools
import math
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from emphatic.engines import compiled
from emphatic.engines.base import DenseSteps, Engine, Watch
from emphatic.engines.dense import Dense
from emphatic.engines.unrolled import Functions, Slots, Unrolled, tuple_of, unrolled

if TYPE_CHECKING:
    from emphatic.rules import Rule, Scalars

__all__ = ["LANES", "STEPS", "Chunked"]

#: Steps a chunk, and learners a block.
STEPS = 127
LANES = 256
#: Fewer steps than this are run one by one.
_FEW_STEPS = 8
#: Overflow warnings are off: the bounds detect it.
_quiet = functools.partial(np.errstate, all="ignore")
#: A room of so many bytes is kept for the next run.
_KEEP = 1 << 22
#: Bytes of a cache line.
_LINE = 64
#: LLVM makes vectors of a loop if it need not compare more pairs of addresses than this to know that none overlap.
_COMPARED = 128

Array = NDArray[Any]
Floats = NDArray[np.float64]


@functools.cache
def kernel(rule: Rule, dtype: str, name: str, interpreted: bool) -> Any:
    """One of the functions of ``chunked_kernels``, for this rule."""
    real, f8, i8 = getattr(types, dtype), types.float64, types.int64
    text = compiled.compose(functions_for(rule, dtype), "chunked.chunked_kernels")
    module = compiled.module(f"chunked_{rule.name}_{dtype}", text)
    X, table, scalars, flags = (
        types.Array(of, ndim, "C") for of, ndim in ((real, 3), (real, 2), (f8, 2), (types.boolean, 1))
    )
    parameters = compiled.several(types.Array(f8, 2, "A", readonly=True), len(rule.parameters))
    chunk = (X, X, X, table, table, table, types.Array(i8, 1, "C"), f8)
    learners = (scalars, scalars, types.Array(f8, 1, "C"), flags, i8, i8)
    signature = {
        "dual": (*chunk, *learners, i8, i8, types.Array(types.boolean, 1, "C", readonly=True), parameters, table),
        "fold": (X, scalars, X, table, scalars, flags, i8, i8),
    }
    return compiled.kernel(module, name, *signature[name])


class Chunked(Dense):
    """X as in the dense engine, moved once per chunk."""

    name = "chunked"
    #: Steps a chunk.
    length = STEPS

    def __init__(self, rule: Rule, n: int, K: int, dtype: str, threads: int = 1) -> None:
        super().__init__(rule, n, K, dtype)
        self.threads = threads

    def make_kernel(self, name: str) -> Any:
        if name in ("dual", "fold"):
            return kernel(self.rule, self.dtype, name, compiled.interpreted())
        return super().make_kernel(name)

    @property
    def grain(self) -> tuple[int, int]:
        return self.length, LANES

    @property
    def looks_over(self) -> bool:
        return False

    def like(self, K: int) -> Chunked:
        return Chunked(self.rule, self.n, K, self.dtype, self.threads)

    #: Between two recorded errors it runs all steps at once, in chunks.
    run = Engine.run

    def take(self, steps: DenseSteps) -> int:
        phi, phi_next, watch, T = steps.phi, steps.phi_next, steps.watch, len(steps.phi)
        if T < _FEW_STEPS:
            return super().take(steps)
        one_log = phi_next.ctypes.data == phi.ctypes.data + phi.strides[0]
        length = min(self.length, T)
        room = Room.of(self, length, length + 1 if one_log else 2 * length)
        frozen = bool(watch.frozen.any())
        blocks = _moving(room, watch) if frozen else room.blocks
        # A pool of one thread would cost more than it gives.
        workers = ThreadPoolExecutor(len(room.scratch)) if len(room.scratch) > 1 else nullcontext()
        with compiled.blas_threads(1), workers as pool:
            for_each = pool.map if pool else map
            for t0 in range(0, T, self.length):
                t1 = min(t0 + self.length, T)
                if one_log:
                    P, at = np.concatenate([phi[t0:t1], phi_next[t1 - 1 : t1]]), np.arange(t1 - t0)
                else:
                    P, at = _merged(phi[t0:t1], phi_next[t0:t1])
                with _quiet():
                    G = P @ P.T
                look = functools.partial(self._look, room, P, G, at, t0, steps)
                amiss, excluded = sum(for_each(look, blocks)), room.amiss
                if amiss or frozen:
                    excluded = room.amiss | watch.frozen
                    status = self._take_apart(excluded, t0, t1, steps)
                    if status != -1:
                        return status
                deque(for_each(functools.partial(self._move, room, P, excluded), blocks), 0)
                if amiss and watch.freeze:
                    frozen, blocks = bool(watch.frozen.any()), _moving(room, watch)
        room.leave()
        return -1

    @_quiet()
    def _look(
        self, room: Room, P: NDArray[Any], G: NDArray[Any], at: NDArray[Any], t0: int, steps: DenseSteps, block: slice
    ) -> int:
        """Project a block of learners on P and run the chunk's steps there; returns how many may overflow."""
        lanes, rows = block.stop - block.start, len(P)
        V, Q, new = room.scratch.pop()
        for r, v in enumerate(V):
            np.matmul(P, self.X[r, block].T, out=v[:rows, :lanes])
        chunk = (V, room.W[block.start // LANES], Q, room.tail, P, G, at, steps.top)
        learners = (self.scalars, room.after, self.delta, room.amiss, block.start, lanes)
        run = (t0, rows, steps.first, steps.parameters, steps.predictions)
        count: int = self._compiled("dual")(*chunk, *learners, *run)
        room.scratch.append((V, Q, new))
        return count

    def _take_apart(self, excluded: NDArray[np.bool_], t0: int, t1: int, steps: DenseSteps) -> int:
        """The chunk's steps of learners that are frozen, and step by step of those that the chunk may lose."""
        frozen = steps.watch.frozen
        unsure = np.flatnonzero(excluded & ~frozen)
        self._stand_still(np.flatnonzero(frozen), t0, t1, steps)
        X, scalars = self.X[:, unsure], self.scalars[unsure]
        status = self._step_by_step(unsure, t0, t1, steps)
        if status != -1:  # all must be before the same step
            self.X[:, unsure], self.scalars[unsure] = X, scalars
            status = self._step_by_step(np.flatnonzero(~frozen), t0, t1, steps)
        return status

    @_quiet()
    def _move(self, room: Room, P: NDArray[Any], excluded: NDArray[np.bool_], block: slice) -> None:
        """Put a block's outcome back into X and the scalars."""
        lanes, rows = block.stop - block.start, len(P)
        V, Q, new = room.scratch.pop()
        for r, w in enumerate(room.W[block.start // LANES]):
            np.matmul(w[:rows, :lanes].T, P, out=new[r, :lanes])
        self._compiled("fold")(self.X, self.scalars, new, room.tail, room.after, excluded, block.start, lanes)
        room.scratch.append((V, Q, new))


def _merged(phi: NDArray[Any], phi_next: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The rows of P in time order, φ' after its φ and shared with the next φ where they are equal; and where φ_t is."""
    shared = (phi_next[:-1] == phi[1:]).all(axis=1)
    at = np.concatenate(([0], np.cumsum(2 - shared)))
    P = np.empty((at[-1] + 2, phi.shape[1]), phi.dtype)
    P[at], P[at + 1] = phi, phi_next
    return P, at


def _moving(room: Room, watch: Watch) -> list[slice]:
    """The blocks in which not all learners are frozen."""
    return [block for block in room.blocks if not watch.frozen[block].all()]


class Room:
    """Every block's outcome, and scratch for each thread."""

    def __init__(self, engine: Chunked, steps: int, rows: int) -> None:
        self.fits = _fits(engine, steps, rows)
        u, K, dtype = unrolled(engine.rule), engine.K, engine.dtype
        lanes = min(LANES, K)
        self.blocks = [slice(begin, min(begin + LANES, K)) for begin in range(0, K, LANES)]
        self.W = _aligned((len(self.blocks), u.m, rows, lanes), dtype)
        self.tail = np.empty((len(pairs(u)), K), dtype)
        self.after = np.empty_like(engine.scalars)
        self.amiss = np.empty(K, np.bool_)
        #: (V, Q, new): a thread takes one and puts it back.
        self.scratch = deque(
            (
                _aligned((u.m, rows, lanes), dtype),
                _aligned((len(u.coefficients), steps, lanes), dtype),
                _aligned((u.m, lanes, engine.n), dtype),
            )
            for _ in range(min(engine.threads, len(self.blocks)))
        )
        every = (self.W, self.tail, self.after, *(array for arrays in self.scratch for array in arrays))
        self.nbytes = sum(array.nbytes for array in every)

    @staticmethod
    def of(engine: Chunked, steps: int, rows: int) -> Room:
        """The one kept from a run of the same kind, or another."""
        with suppress(IndexError):
            room = _spare.pop()
            if room.fits == _fits(engine, steps, rows):
                return room
        return Room(engine, steps, rows)

    def leave(self) -> None:
        """Keep it, if it is small."""
        if self.nbytes <= _KEEP:
            _spare.append(self)


#: The work arrays of the last run: to allocate them each time can take as long as a short run.
_spare: deque[Room] = deque(maxlen=1)


def _fits(engine: Chunked, steps: int, rows: int) -> tuple[object, ...]:
    return engine.rule, engine.n, engine.K, engine.dtype, engine.threads, steps, rows


def _aligned(shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """An array that begins with a cache line: the steps on one that does not take a third longer."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(size + _LINE, np.uint8)
    begin = -memory.ctypes.data % _LINE
    return memory[begin : begin + size].view(dtype).reshape(shape)


# ----------------------------------------------------------- what the kernels call of a rule besides ``rule_functions``
#
# T is the product of the A of all steps after some step: an arrow as every A is, of which the entries at ``pairs``, the
# *tails*, may differ from 0. In the text they are T{r}_{c} for vectors r, c; other names are as in ``unrolled``.

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
    sizes = {"memory": u.M, "size": u.m, "growth": len(growing), "step": len(rule.parameters)}
    sizes |= {"products": len(products), "delta": 1, "amiss": 1}
    sizes |= {"c": len(u.coefficients), "tails": len(tails), "shares": len(shares)}
    slots = Slots(functions, LANES, **sizes)
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
