"""sparse for K learners: shared active columns, one contiguous run of all learners' values a feature.

X = C·H as for one learner (SPARSE.md), with C of each learner its own. A stamp per learner and column would cost as
much as a vector, so here a learner whose trace has shrunk *folds*: the columns that still have a trace for it are
visited, the latest touched first. A learner that forgets its trace (ρ, γ or λ is 0) visits only what was touched
since it last did so, and nothing where no weight has taken of the trace since.

Cost a step: O(m K active), and O(m K live columns) each time the traces have shrunk to 1/100. Memory: m K n numbers and
24 bytes a feature.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
from numba import types
from numpy.typing import NDArray

from emphatic import rules
from emphatic.engines import columns, compiled
from emphatic.engines.base import Arrays, Engine, Features
from emphatic.engines.calling import DECIDE, MOST, address
from emphatic.engines.columns import LANES, NEVER, Columns
from emphatic.engines.rows import Rows
from emphatic.engines.sparse import believed, hold
from emphatic.engines.sparse_text import NEAR_THE_END
from emphatic.engines.text import Unrolled, fill

if TYPE_CHECKING:
    from emphatic.rules import Rule

__all__ = ["SparseMany"]

_TEXT = '''⟨header⟩


def decide(t, parameters, x, y, squares, top, limits, scalars, A, B, after, last_delta, near):
    """A, B and the new scalars of every learner; the first learner whose step is not finite, or −1."""
    ⟨all_parameters⟩
    pp, pq, qq = squares
    limit, near_the_end = limits
    top_next = top
    near[:] = False
    for k in range(x.shape[1]):
        ⟨at_t_k⟩
        ⟨products⟩
        ⟨load⟩
        ⟨call⟩
        ⟨bounds⟩
        # Sums are in float64 here; what a prediction in the dtype could not hold has diverged.
        if not (⟨finite⟩ and abs(x0) <= limit and abs(y0) <= limit):
            return k
        near[k] = not (⟨small⟩)
        ⟨put⟩
        ⟨keep⟩
        last_delta[k] = delta
    return -1
'''


def source(rule: Rule) -> str:
    """The text of this rule's kernel."""
    u = Unrolled(rule)

    def slot(name: str) -> str:
        return f"A[{name[1]}, {name[2]}, k]" if name[0] == "a" else f"B[{name[1]}, {'bd'.index(name[0])}, k]"

    return fill(
        _TEXT,
        header=u.header(),
        all_parameters=[f"all_{name} = parameters[{i}]" for i, name in enumerate(rule.parameters)],
        at_t_k=[f"{name} = all_{name}[t, k]" for name in rule.parameters],
        products=[f"{v}{r} = {v}[{r}, k]" for r in u.vectors for v in "xy"],
        load=u.load(),
        call=u.call(),
        bounds=u.bounds(),
        finite=u.finite(),
        small=u.small("near_the_end"),
        put=[f"{slot(name)} = {name}" for name in u.coefficients],
        keep=[f"after[k, {i}] = {name}" for i, name in enumerate(u.results())],
    )


_f8, _i8 = types.float64, types.int64
_several: Any = types.UniTuple
_parameters = DECIDE.args[1]
_flat, _table = (types.Array(_f8, ndim, "C") for ndim in (1, 2))


@functools.cache
def _decide(rule: Rule) -> Any:
    """The rule's ``decide``, kept for good: it is called by its address."""
    module = compiled.module(f"sparse_many_{rule.name}", source(rule))
    return compiled.kernel(module, "decide", *DECIDE.args)


@functools.cache
def _decide_for(rule: Rule) -> Any:
    """Where that is."""
    return address(_decide(rule))


@functools.cache
def _kernel(dtype: str, name: str) -> Any:
    typeof: Any = numba.typeof
    index = types.Array(_i8, 1, "C", readonly=True)
    rows = [index, index, types.Array(_f8, 1, "A", readonly=True)]
    state = typeof(fresh(rules.get("td"), 1, 1, dtype))
    if name == "settle_all":
        return compiled.kernel(columns, name, state)
    if name == "predict":
        return compiled.kernel(columns, name, state, *rows, _table)
    out, limits = types.Array(getattr(types, dtype), 2, "C"), _several(_f8, 2)
    return compiled.kernel(
        columns, name, _i8, state, _table, _table, _flat, _parameters, *rows, *rows, _f8, limits, out
    )


def fresh(rule: Rule, n: int, K: int, dtype: str) -> Columns:
    """All vectors 0."""
    A, B = rule.form
    m, w = len(rule.vectors), len(rule.weights)
    q = m - w
    f8, i4 = np.float64, np.int32
    return Columns(
        H=np.zeros((n, m, K), dtype),
        diag=np.ones((m, K)),
        take=np.zeros((w, q, K)),
        feeds=np.array([[A[r][j] != 0.0 for j in range(w, m)] for r in range(w)]),
        takes_next=np.array([B[r][1] != 0.0 for r in range(w)]),
        peak=np.ones((q, K)),
        since=np.zeros((q, K), i4),
        mark=np.zeros((q, K), i4),
        left=np.ones((q, K)),
        touch=np.zeros(n, i4),
        log=np.zeros(3 * n, i4),
        where=np.full(n, -1, i4),
        clock=np.zeros(2, np.int64),
        A=np.repeat(np.array([[a or 0.0 for a in row] for row in A], f8)[:, :, None], K, axis=2),
        B=np.repeat(np.array([[b or 0.0 for b in row] for row in B], f8)[:, :, None], K, axis=2),
        x=np.zeros((m, K)),
        y=np.zeros((m, K)),
        u=np.zeros((m, K), dtype),
        v=np.zeros((w, K), dtype),
        pay=np.zeros((w, q, K), dtype),
        keep=np.ones((q, K), dtype),
        later=np.zeros((q, K), i4),
        reach=np.full(-(-K // LANES), NEVER, i4),
        near=np.zeros(K, np.bool_),
        place=np.full(n, -1, i4),
    )


#: What a learner is made of, and along which axis of the array the learners lie.
_LEARNERS = {"H": 2, "diag": 1, "take": 2, "peak": 1, "since": 1, "mark": 1, "left": 1, "later": 1}
#: What all learners share.
_SHARED = ("touch", "log", "where", "clock")
#: The time at which it begins anew.
_MIDNIGHT = NEVER - 1


class SparseMany(Engine):
    """X = C·H of K learners on one stream."""

    name = "sparse"
    takes_rows = True

    def __init__(self, rule: Rule, n: int, K: int, dtype: str) -> None:
        super().__init__(rule, n, K, dtype)
        self.columns = fresh(rule, n, K, dtype)
        self._after = np.zeros_like(self.scalars)
        self._delta = np.zeros(K)
        self._limits = (float(np.finfo(dtype).max), NEAR_THE_END[dtype])
        self._run: Any = None

    def run(
        self, phi: Features, phi_next: Features, top: float, parameters: Arrays, predictions: NDArray[Any]
    ) -> tuple[int, NDArray[np.float64]]:
        assert isinstance(phi, Rows)
        assert isinstance(phi_next, Rows)
        if self.columns.clock[0] + len(phi) >= _MIDNIGHT:
            self._settle()
        if self._run is None:
            self._run = functools.partial(
                _kernel(self.dtype, "run"), _decide_for(self.rule), self.columns, self.scalars, self._after, self._delta
            )
        given = (*parameters, *[parameters[0]] * (MOST - len(parameters)))
        status = self._run(
            given, phi.start, phi.index, phi.value, phi_next.start, phi_next.index, phi_next.value, top, self._limits,
            predictions,
        )  # fmt: skip
        return status, self._delta

    @property
    def grain(self) -> tuple[int, int]:
        return 1, 0  # when columns are brought up to date is a matter of all learners

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_run": None}  # an address is good for one process only

    def step(self, phi: Features, phi_next: Features, top: float, parameters: Arrays) -> tuple[int, NDArray[Any]]:
        predictions = np.empty((len(phi) + 1, self.K), self.dtype)
        return self.run(phi, phi_next, top, parameters, predictions)[0], predictions[-1]

    def vector(self, r: int) -> NDArray[Any]:
        return np.concatenate(list(self.blocks(r)))

    def blocks(self, r: int) -> Iterator[NDArray[Any]]:
        c, w = self.columns, len(self.rule.weights)
        for first in range(0, self.K, LANES):
            some = slice(first, first + LANES)

            def trace(j: int, some: slice = some) -> NDArray[Any]:
                return np.where(c.touch[:, None] >= c.since[j, some], c.H[:, w + j, some], 0.0)

            value = c.diag[r, some] * (trace(r - w) if r >= w else c.H[:, r, some])
            for j in range(c.feeds.shape[1]):
                if r < w and c.feeds[r, j]:
                    value = value + c.take[r, j, some] * trace(j)
            yield value.T.astype(self.dtype, copy=False)

    def _settle(self) -> None:
        """H ← X, with a trace in every column, as of the beginning of time."""
        c = self.columns
        _kernel(self.dtype, "settle_all")(c)
        for times in (c.since, c.mark, c.later, c.touch):
            times[:] = 0
        c.left[:] = 1.0
        c.log[: self.n] = c.where[:] = np.arange(self.n)
        c.clock[:] = 0, self.n

    def set_vector(self, r: int, value: NDArray[Any]) -> None:
        self._settle()
        self.columns.H[:, r] = value.T

    def predict(self, phi: Features) -> NDArray[Any]:
        assert isinstance(phi, Rows)
        out = np.zeros((len(phi), self.K))
        _kernel(self.dtype, "predict")(self.columns, phi.start, phi.index, phi.value, out)
        predictions: NDArray[Any] = out.astype(self.dtype, copy=False)
        return predictions

    def clear_traces(self) -> None:
        _kernel(self.dtype, "settle_all")(self.columns)
        self.columns.clock[0] += 1
        for times in (self.columns.since, self.columns.mark, self.columns.later):
            times[:] = self.columns.clock[0]
        self.columns.left[:] = 1.0

    def select(self, ks: NDArray[np.int64]) -> SparseMany:
        other = SparseMany(self.rule, self.n, len(ks), self.dtype)
        for name, axis in _LEARNERS.items():
            np.take(getattr(self.columns, name), ks, axis, out=getattr(other.columns, name), mode="clip")
        for name in _SHARED:
            getattr(other.columns, name)[:] = getattr(self.columns, name)
        other.scalars[:] = self.scalars[ks]
        return other

    def place(self, ks: NDArray[np.int64], part: Any) -> None:
        self._settle()
        part._settle()
        for name, axis in _LEARNERS.items():
            np.moveaxis(getattr(self.columns, name), axis, 0)[ks] = np.moveaxis(getattr(part.columns, name), axis, 0)
        self.scalars[ks] = part.scalars

    def join(self, parts: Sequence[Engine]) -> None:
        engines = [part for part in parts if isinstance(part, SparseMany)]
        if len(engines) < len(parts):  # single learners, each in its own form
            for r in range(len(self.rule.vectors)):
                self.set_vector(r, np.concatenate([part.vector(r) for part in parts]))
            np.concatenate([part.scalars for part in parts], out=self.scalars)
            return
        touches = [engine.columns.touch for engine in engines]
        if not all(np.array_equal(touch, touches[0]) for touch in touches):
            engines = [engine.select(np.arange(engine.K)) for engine in engines]
            for engine in engines:
                engine._settle()
        for name, axis in _LEARNERS.items():
            np.concatenate([getattr(e.columns, name) for e in engines], axis, out=getattr(self.columns, name))
        for name in _SHARED:
            getattr(self.columns, name)[:] = getattr(engines[0].columns, name)
        np.concatenate([part.scalars for part in parts], out=self.scalars)

    def pending(self) -> dict[str, NDArray[Any]]:
        """C, H and the times as they are; the order of the log follows from the times."""
        names = [name for name in _LEARNERS if name != "later"]
        fields = {name: getattr(self.columns, name) for name in (*names, "touch")}
        return fields | {"clock": self.columns.clock[:1], "bounds": self.scalars[:, self.M : -1]}

    def resume(self, pending: dict[str, NDArray[Any]]) -> None:
        if not pending:
            return
        own = self.pending()
        for name, array in own.items():
            hold(name, pending[name], array.dtype.name, array.shape)
        now = int(pending["clock"][0])
        for name in ("touch", "since", "mark", "clock"):
            if not ((pending[name] >= 0) & (pending[name] <= min(now, _MIDNIGHT))).all():
                raise ValueError(f"its times {name!r} are out of range")
        if not (pending["diag"] != 0.0).all():
            raise ValueError("one of its scales is 0")
        self.scalars[:, self.M : -1] = believed(pending["bounds"], own.pop("bounds"))
        for name, array in own.items():
            array[:] = pending[name]
        c = self.columns
        c.later[:] = c.since
        c.log[: self.n] = np.argsort(c.touch, kind="stable")
        c.where[c.log[: self.n]] = np.arange(self.n)
        c.clock[1] = self.n

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in (*self.columns, self.scalars, self._after, self._delta))
