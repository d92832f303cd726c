"""chunked: many learners on one stream of features at matrix-multiply speed, and exact.  Derived in CHUNKED.md.

A chunk of L steps is run in *dual* coordinates: all that happens inside it stays in the span of its feature rows P and
of the old X, so the rule needs only V = X Pᵀ and G = P Pᵀ. One product makes V, the steps are taken on V, and one
product puts the outcome back into X. Learners go in blocks, side by side in the lanes of the processor; nothing of
size T·K·n is made.
"""

from __future__ import annotations

import functools
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from emphatic.engines import compiled
from emphatic.engines.base import Arrays, Engine, Features
from emphatic.engines.dense import Dense
from emphatic.engines.text import Unrolled, fill

if TYPE_CHECKING:
    from emphatic.rules import Rule

__all__ = ["Chunked"]

#: Steps a chunk, learners a block.
STEPS, LANES = 127, 256
#: Fewer steps than this are taken one by one.
_FEW_STEPS = 8

# Lanes are the last axis of every array that a lane loop touches, or at constant distances in a flat one: these are
# the forms of which LLVM makes vectors.
_TEXT = '''⟨header⟩
real = np.⟨dtype⟩


def dual(
    V, W, Q, S, tail, G, at, top, scalars, after, last_delta, first, lanes, t0, L, rows, ⟨all_parameters⟩, predictions
):
    """L steps of a block of learners on V, their outcome in W and tail; False if one of them may diverge."""
    keep = predictions.shape[0] > 0
    lanes = min(lanes, ⟨LANES⟩)
    top_next = top
    ⟨load⟩
    for t in range(L):
        p = at[t]
        pp = np.float64(G[p, p]); pq = np.float64(G[p, p + 1]); qq = np.float64(G[p + 1, p + 1])
        ⟨parameters⟩
        ⟨products⟩
        if keep:
            for k in range(lanes):
                predictions[t0 + t, first + k] = V[0, p, k]
        bad = 0
        for k in range(lanes):
            ⟨take⟩
            ⟨call⟩
            ⟨bounds⟩
            bad += 0 if (⟨finite⟩ and ⟨small⟩) else 1
            ⟨put⟩
        if bad > 0:
            return False
        ⟨hand⟩
        for row in range(p + 1, rows):
            P = G[p, row]; Q_ = G[p + 1, row]
            for k in range(lanes):
                ⟨move⟩
    for i in range(rows):
        for k in range(lanes):
            ⟨clear⟩
    for k in range(lanes):
        ⟨identity⟩
    for t in range(L - 1, -1, -1):
        p = at[t]
        ⟨fetch⟩
        for k in range(lanes):
            ⟨recall⟩
            ⟨gather⟩
        ⟨pour⟩
    ⟨finish⟩
    return True


def fold(X, new, tail, first, lanes):
    """X ← A_total X + coefficients P for a block of learners."""
    for k in range(lanes):
        ⟨tails⟩
        for i in range(X.shape[2]):
            ⟨components⟩
            ⟨folded⟩
'''


def source(rule: Rule, dtype: str) -> str:
    """The text of this rule's kernels."""
    u = Unrolled(rule)
    R, weights, traces = u.vectors, range(u.w), range(u.w, u.m)
    limit = float(np.finfo(dtype).max)
    products, unused = u.products()
    inner = [name for name in products if name[0] in "xy"]
    pairs = [(r, r) for r in R] + [(r, j) for r in weights for j in traces if u.A[r][j] != 0.0]
    tails = [f"T{r}{c}" for r, c in pairs]
    names = [*u.remembered(), *rule.parameters, *inner, "delta", *tails, *u.coefficients]

    def lane(name: str) -> str:
        return f"S[{names.index(name) * LANES} + k]"

    def V(r: int, row: str, array: str = "V") -> str:
        return f"{array}[{r}, {row}, k]"

    def loop(*lines: str) -> list[str]:
        return ["for k in range(lanes):", *("    " + line for line in lines)]

    def Q(name: str) -> str:
        return f"Q[{u.coefficients.index(name)}, t, k]"

    def coefficient(r: int, side: int) -> str | None:
        entry = u.B[r][side]
        return None if entry == 0.0 else f"{'bd'[side]}{r}" if entry is None else repr(entry)

    gather, pour, shares = [], [], []
    for side, row in ((0, "p"), (1, "p + 1")):
        for r in R:
            terms = [f"T{r}{c} * {coefficient(c, side)}" for c in R if (r, c) in pairs and coefficient(c, side)]
            if terms:
                share = f"w{side}{r}"
                shares.append(share)
                gather.append(f"⟨{share}⟩ = {' + '.join(terms)}")
                pour += loop(f"{V(r, row, 'W')} += real(⟨{share}⟩)")
    names += shares
    gather, pour = (
        [fill(line, **{share: lane(share) for share in shares}) for line in part] for part in (gather, pour)
    )
    for r, c in sorted(pairs, key=lambda pair: pair[0] == pair[1]):
        entry = {1.0: "1.0", None: f"a{r}{c}"}.get(u.A[r][c], repr(u.A[r][c]))
        if entry in u.scales:
            gather.append(f"T{r}{r} = T{r}{r} + T{r}{r} * {entry}")
        elif r == c:
            gather.append(f"T{r}{r} = T{r}{r} * {entry}")
        else:
            gather.append(f"T{r}{c} = T{r}{r} * {entry} + T{r}{c} * {'1.0' if u.A[c][c] == 1.0 else f'a{c}{c}'}")
    gather += [f"{lane(name)} = {name}" for name in tails]
    # X takes the total scale of a weight, too, by what it has over 1.
    totals = [f"({lane(f'T{r}{c}')} - 1.0)" if f"a{r}{c}" in u.scales else lane(f"T{r}{c}") for r, c in pairs]

    return fill(
        _TEXT,
        header=u.header(),
        dtype=dtype,
        LANES=str(LANES),
        all_parameters=", ".join(f"all_{name}" for name in rule.parameters),
        load=[
            line for i, name in enumerate(u.remembered()) for line in loop(f"{lane(name)} = scalars[first + k, {i}]")
        ],
        parameters=[
            line
            for name in rule.parameters
            for line in [
                f"if t == 0 or all_{name}.strides[0] != 0:",
                *("    " + inside for inside in loop(f"{lane(name)} = all_{name}[t0 + t, first + k]")),
            ]
        ],
        products=[
            line
            for name in inner
            for line in loop(f"{lane(name)} = {V(int(name[1:]), 'p' if name[0] == 'x' else 'p + 1')}")
        ],
        take=[f"{name} = {lane(name)}" for name in (*u.remembered(), *rule.parameters, *inner)]
        + [f"{name} = 0.0" for name in unused if name[0] in "xy"],
        call=u.call(),
        bounds=u.bounds(),
        finite=u.finite(),
        small=u.small(limit),
        put=[f"{lane(old)} = {new}" for old, new in zip(u.remembered(), u.results(), strict=True)]
        + [f"{lane('delta')} = delta"]
        + [f"{lane(name)} = {u.excess(name)}" for name in u.coefficients],
        hand=[line for name in u.coefficients for line in loop(f"{Q(name)} = real({lane(name)})")],
        move=[f"z{r} = {V(r, 'row')}" for r in R]
        + [f"{name} = {Q(name)}" for name in u.coefficients]
        + [f"{V(r, 'row')} = {u.row(r, p='P', q='Q_', excess=True)}" for r in R if u.row(r) != f"z{r}"],
        clear=[f"{V(r, 'i', 'W')} = real(0)" for r in R],
        identity=[f"{lane(f'T{r}{c}')} = {1.0 if r == c else 0.0}" for r, c in pairs],
        fetch=[line for name in u.coefficients for line in loop(f"{lane(name)} = {Q(name)}")],
        recall=[f"{name} = {lane(name)}" for name in (*tails, *u.coefficients)],
        pour=pour,
        gather=gather,
        finish=[line for i, name in enumerate(u.remembered()) for line in loop(f"after[first + k, {i}] = {lane(name)}")]
        + loop(f"last_delta[first + k] = {lane('delta')}")
        + [line for i, total in enumerate(totals) for line in loop(f"tail[{i}, first + k] = real({total})")],
        tails=[f"{name} = tail[{i}, first + k]" for i, name in enumerate(tails)],
        components=[f"z{r} = X[{r}, first + k, i]" for r in R],
        folded=[
            f"X[{r}, first + k, i] = new[{r}, k, i] + "
            + (f"z{r} + " if f"a{r}{r}" in u.scales else "")
            + " + ".join(f"T{r}{c} * z{c}" for c in R if (r, c) in pairs)
            for r in R
        ],
    )


@functools.cache
def _kernel(rule: Rule, dtype: str, name: str) -> Any:
    real, f8, i8 = getattr(types, dtype), types.float64, types.int64
    module = compiled.module(f"chunked_{rule.name}_{dtype}", source(rule, dtype))
    X = types.Array(real, 3, "C")
    table, scalars = types.Array(real, 2, "C"), types.Array(f8, 2, "C")
    if name == "fold":
        return compiled.kernel(module, name, X, X, table, i8, i8)
    parameters = [types.Array(f8, 2, "A", readonly=True)] * len(rule.parameters)
    return compiled.kernel(
        module, name, X, X, X, types.Array(f8, 1, "C"), table, table, types.Array(i8, 1, "C"), f8, scalars, scalars,
        types.Array(f8, 1, "C"), *[i8] * 5, *parameters, table,
    )  # fmt: skip


#: Overflow says nothing here: the bounds find it.
_quiet = functools.partial(np.errstate, all="ignore")


class _Room:
    """What a run needs besides the state, as long as it lasts: every block's outcome, and scratch for each thread."""

    def __init__(self, engine: Chunked, steps: int, rows: int) -> None:
        self.fits = _fits(engine, steps, rows)
        u, K, dtype = Unrolled(engine.rule), engine.K, engine.dtype
        A, _ = engine.rule.form
        pairs = u.m + sum(A[r][j] != 0.0 for r in range(u.w) for j in range(u.w, u.m))
        count, lanes, blocks = len(u.coefficients), min(LANES, K), -(-K // LANES)
        slots = len(u.remembered()) + len(engine.rule.parameters) + 2 * u.m + 1 + pairs + count + 2 * u.m
        self.W = np.empty((blocks, u.m, rows, lanes), dtype)
        self.tail = np.empty((pairs, K), dtype)
        self.after = np.empty_like(engine.scalars)
        #: (V, Q, S, new): a thread takes one and puts it back.
        self.scratch = deque(
            (
                np.empty((u.m, rows, lanes), dtype),
                np.empty((count, steps, lanes), dtype),
                np.empty(slots * LANES),
                np.empty((u.m, lanes, engine.n), dtype),
            )
            for _ in range(min(engine.threads, blocks))
        )
        every = (self.W, self.tail, self.after, *(array for some in self.scratch for array in some))
        self.nbytes = sum(array.nbytes for array in every)

    @staticmethod
    def of(engine: Chunked, steps: int, rows: int) -> _Room:
        """The one kept from a run of the same kind, or another."""
        with suppress(IndexError):
            room = _kept.pop()
            if room.fits == _fits(engine, steps, rows):
                return room
        return _Room(engine, steps, rows)

    def leave(self) -> None:
        if self.nbytes <= _KEEP:
            _kept.append(self)


#: The last room, if it was small, whosever run it was: to ask for the memory each time can take as long as a short run.
_kept: deque[_Room] = deque(maxlen=1)
_KEEP = 1 << 22


def _fits(engine: Chunked, steps: int, rows: int) -> tuple[object, ...]:
    return engine.rule, engine.n, engine.K, engine.dtype, engine.threads, steps, rows


class Chunked(Dense):
    """X as in the dense engine, moved once a chunk."""

    name = "chunked"
    #: Steps a chunk.
    length = STEPS

    def __init__(self, rule: Rule, n: int, K: int, dtype: str, threads: int = 1) -> None:
        super().__init__(rule, n, K, dtype)
        self.threads = threads

    @property
    def grain(self) -> tuple[int, int]:
        return self.length, LANES

    @property
    def looks_over(self) -> bool:
        return False

    def like(self, K: int) -> Chunked:
        return Chunked(self.rule, self.n, K, self.dtype, self.threads)

    #: Chunks are what it is for: the general way of watching gives it as many steps at once as it can.
    run_watched = Engine.run_watched

    def run(
        self, phi: Features, phi_next: Features, top: float, parameters: Arrays, predictions: NDArray[Any]
    ) -> tuple[int, NDArray[np.float64]]:
        assert isinstance(phi, np.ndarray)
        assert isinstance(phi_next, np.ndarray)
        T = len(phi)
        if T < _FEW_STEPS:
            return super().run(phi, phi_next, top, parameters, predictions)
        one_log = phi_next.ctypes.data == phi.ctypes.data + phi.strides[0]
        steps = min(self.length, T)
        room = _Room.of(self, steps, steps + 1 if one_log else 2 * steps)
        # A pool of one thread would cost more than it gives.
        workers = ThreadPoolExecutor(len(room.scratch)) if len(room.scratch) > 1 else nullcontext()
        with compiled.blas_threads(1), workers as pool:
            for_each = pool.map if pool else map
            for t0 in range(0, T, self.length):
                L = min(self.length, T - t0)
                if one_log:
                    P = np.concatenate([phi[t0 : t0 + L], phi_next[t0 + L - 1 : t0 + L]])
                    at = np.arange(L)
                else:
                    P, at = _merged(phi[t0 : t0 + L], phi_next[t0 : t0 + L])
                with _quiet():
                    G = P @ P.T
                look = functools.partial(self._look, room, P, G, at, top, t0, parameters, predictions)
                if L < _FEW_STEPS or not all(for_each(look, range(len(room.W)))):
                    # The last steps are few, as they would be in a run of their own; or something is about to
                    # overflow: step by step says exactly where.
                    rest = tuple(p[t0 : t0 + L] for p in parameters)
                    out = predictions[t0 : t0 + L] if len(predictions) else predictions
                    status, delta = super().run(phi[t0 : t0 + L], phi_next[t0 : t0 + L], top, rest, out)
                    if status != -1:
                        return t0 * self.K + status, delta
                    continue
                deque(for_each(functools.partial(self._move, room, P), range(len(room.W))), 0)
                self.scalars[:, :-1] = room.after[:, :-1]
                self.scalars[:, -1] += L
        room.leave()
        return -1, self._delta

    @_quiet()
    def _look(
        self, room: _Room, P: NDArray[Any], G: NDArray[Any], at: NDArray[Any], top: float, t0: int, parameters: Arrays,
        predictions: NDArray[Any], block: int,
    ) -> bool:  # fmt: skip
        """Project a block of learners on P and take the chunk's steps there."""
        first = block * LANES
        lanes, rows = min(LANES, self.K - first), len(P)
        V, Q, S, new = room.scratch.pop()
        for r, v in enumerate(V):
            np.matmul(P, self.X[r, first : first + lanes].T, out=v[:rows, :lanes])
        fine: bool = _kernel(self.rule, self.dtype, "dual")(
            V, room.W[block], Q, S, room.tail, G, at, top, self.scalars, room.after, self._delta,
            first, lanes, t0, len(at), rows, *parameters, predictions,
        )  # fmt: skip
        room.scratch.append((V, Q, S, new))
        return fine

    @_quiet()
    def _move(self, room: _Room, P: NDArray[Any], block: int) -> None:
        """Put a block's outcome back into X."""
        first = block * LANES
        lanes, rows = min(LANES, self.K - first), len(P)
        V, Q, S, new = room.scratch.pop()
        for r, w in enumerate(room.W[block]):
            np.matmul(w[:rows, :lanes].T, P, out=new[r, :lanes])
        _kernel(self.rule, self.dtype, "fold")(self.X, new, room.tail, first, lanes)
        room.scratch.append((V, Q, S, new))


def _merged(phi: NDArray[Any], phi_next: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The rows of P in time order, φ' after its φ and shared with the next φ where they are equal; and where φ_t is."""
    shared = (phi_next[:-1] == phi[1:]).all(axis=1)
    at = np.concatenate(([0], np.cumsum(2 - shared)))
    P = np.empty((at[-1] + 2, phi.shape[1]), phi.dtype)
    P[at], P[at + 1] = phi, phi_next
    return P, at
