"""sparse for K learners: shared active columns, one contiguous run of all learners' values a feature.

X = C·H as for one learner (SPARSE.md), with C of each learner its own. A stamp per learner and column would cost as
much as a vector, so here a learner whose trace has shrunk *folds*: the columns that still have a trace for it are
visited, the latest touched first. A learner that forgets its trace (ρ, γ or λ is 0) visits only what was touched
since it last did so, and nothing if no weight has used the trace since.

Cost per step: O(m K active), and O(m K live columns) each time the traces have shrunk to 1/100. Memory: m K n numbers
and 68 bytes per feature.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numba import types
from numpy.typing import NDArray

from emphatic.engines import compiled
from emphatic.engines.base import UNBROKEN, Arrays, Engine, Features, Flags, Row, Rows, Steps, StoredArray
from emphatic.engines.sparse import HIGH, LOW, SHRUNK, add_limits, hold, settle_bounds
from emphatic.engines.sparse.sparse_many_kernels import LANES, NEVER
from emphatic.engines.unrolled import Functions, tuple_of, unrolled

if TYPE_CHECKING:
    from emphatic.rules import Rule, Scalars

    Floats = NDArray[np.float64]

__all__ = ["HIGH", "LOW", "SHRUNK", "SparseMany"]


@functools.cache
def kernel(rule: Rule, dtype: str, name: str, interpreted: bool) -> Any:
    """One of the functions of ``sparse_many_kernels``, for this rule."""
    real, f8, i8, i4, flag = getattr(types, dtype), types.float64, types.int64, types.int32, types.boolean
    # (lean: a step of an agent passes some forty arrays, and to count references to them takes a tenth of it)
    text = compiled.lean(compiled.compose(functions_for(rule, dtype), "sparse.sparse_many_kernels"))
    module = compiled.module(f"sparse_many_{rule.name}_{dtype}", text)

    def array(of: types.Type, ndim: int, layout: Literal["C", "A"] = "C", readonly: bool = False) -> Any:
        return types.Array(of, ndim, layout, readonly=readonly)

    index = array(i8, 1, readonly=True)
    rows = (index, index, array(f8, 1, "A", readonly=True))
    state = (array(real, 2), array(f8, 2), array(i4, 1), array(i4, 2))
    log = (array(i4, 2), array(i4, 1), array(i8, 1))
    learners = (array(f8, 2), array(f8, 1))
    phi = (array(i4, 1), array(f8, 1), array(f8, 1))
    due = (array(i4, 1), array(f8, 1))
    draws = (array(real, 1), array(real, 1))
    scratch = (array(f8, 2), array(f8, 2), array(i4, 1), *draws, array(real, 2), array(i4, 1), array(i4, 2))
    parameters = compiled.several(array(f8, 2, "A", readonly=True), len(rule.parameters))
    inputs = (array(flag, 1), flag, *rows, *rows, array(flag, 1, readonly=True), f8, flag, parameters, array(real, 2))
    signature = {
        "run": (*state, *log, *learners, *phi, *phi, *due, *due, *scratch, *inputs),
        "predict": (*state, *phi, *rows, array(f8, 2)),
        "settle_some": (*state, i8, i8),
        "forget_all": (*state, *log),
    }
    return compiled.kernel(module, name, *signature[name])


#: What a learner is made of in a checkpoint, and along which axis of the array the learners lie.
_LEARNERS = {"H": 2, "diag": 1, "take": 2, "peak": 1, "since": 1, "mark": 1, "left": 1}
#: Bytes of a cache line, and of the widest vector.
_LINE = 64
#: The time at which the clock starts again.
_MIDNIGHT = NEVER - 1


def _zeros(shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """Zeros from the beginning of a cache line on: a vector that lies in two lines takes twice as long to read."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    room = np.zeros(size + _LINE, np.uint8)
    begin = -room.ctypes.data % _LINE
    return room[begin : begin + size].view(dtype).reshape(shape)


class SparseMany(Engine):
    """X = C·H of K learners on one stream."""

    name = "sparse"
    takes_rows = True
    pending_gives_vectors = True
    rule: Rule

    def __init__(self, rule: Rule, n: int, K: int, dtype: str) -> None:
        super().__init__(rule, n, K, dtype)
        u, rows = unrolled(rule), rows_of(rule)
        m, w, q = u.m, u.w, len(u.traces)
        #: H; C, and what else is known of the traces' scales; since when columns count, by vector and learner.
        self._H = _zeros((n, m * K), dtype)
        self._scale = np.zeros((rows["SCALE"], K))
        self._scale[:m] = self._scale[rows["PEAK"] :] = 1.0
        self._since = np.zeros(m * K, np.int32)
        #: Of each column, when it was last touched, and its place in the log; see ``sparse_many_kernels``.
        self._places = np.zeros((2, n), np.int32)
        self._places[1] = -1
        #: The traces' marks, the log, and the time with the length of the log.
        self._marks = np.zeros((q, K), np.int32)
        self._log = np.zeros(3 * n, np.int32)
        self._clock = np.zeros(2, np.int64)
        #: Valid only within a step: φ and φ' as lists and as arrays, and X·φ and X·φ';
        self._phi, self._phi_next = (
            (np.zeros(n, np.int32), np.zeros(n), _zeros((m * K,), "float64")) for _ in range(2)
        )
        #: those of the step before, whose columns have not moved yet;
        self._due, self._due_next = ((np.zeros(n, np.int32), np.zeros(n)) for _ in range(2))
        #: φ and its products for predictions;
        self._rooms: list[tuple[NDArray[Any], ...]] = []
        #: and what comes of them, in the order of the kernel's arguments.
        self._scratch = (
            np.zeros((rows["FORM"], K)),
            np.zeros_like(self.scalars),
            np.zeros(K, np.int32),
            _zeros((m * K,), dtype),
            np.zeros(rows["NEXT"] * K, dtype),
            np.zeros((w + 1, K), dtype),
            np.zeros(K, np.int32),
            np.zeros((3, -(-K // LANES)), np.int32),
        )

    @property
    def grain(self) -> tuple[int, int]:
        return 1, 0

    def make_kernel(self, name: str) -> Any:
        entry = compiled.direct(kernel(self.rule, self.dtype, name, compiled.interpreted()))
        state: tuple[NDArray[Any], ...] = (self._H, self._scale, self._since, self._places)
        if name == "run":
            state += (self._marks, self._log, self._clock, self.scalars, self.delta)
            state += (*self._phi, *self._phi_next, *self._due, *self._due_next, *self._scratch)
        elif name == "forget_all":
            state += (self._marks, self._log, self._clock)
        return functools.partial(entry, *state)

    def run(self, steps: Steps[Rows]) -> int:
        return self.take(steps) if steps.watch.probe is None else super().run(steps)

    def take(self, steps: Steps[Rows]) -> int:
        phi, phi_next, top, parameters, predictions, watch, breaks = steps
        self._make_time(len(phi) + len(breaks))
        rows = (phi.start, phi.index, phi.value, phi_next.start, phi_next.index, phi_next.value)
        log = (*rows, breaks, top, True, parameters)
        status: int = self._compiled("run")(watch.frozen, watch.freeze, *log, predictions)
        return status

    def learn_row(self, phi: Rows, phi_next: Rows, top: float, parameters: Arrays, frozen: Flags) -> NDArray[Any]:
        self._make_time(1)
        start, index, value = phi_next.start, phi_next.index, phi_next.value
        log = (phi.start, phi.index, phi.value, start, index, value, UNBROKEN, top, True, parameters)
        predictions: NDArray[Any] = np.empty((2, self.K), self.dtype)
        self._compiled("run")(frozen, True, *log, predictions)
        return predictions[1:]

    def stepper(self, single: bool) -> Any:
        run, start, start_next = self._compiled("run"), np.zeros(2, np.int64), np.zeros(2, np.int64)
        none = np.empty((0, self.K), self.dtype)

        def step(phi: Row, phi_next: Row, parameters: Arrays, frozen: NDArray[np.bool_]) -> NDArray[np.float64] | None:
            self._make_time(1)
            index, index_next = phi.indices, phi_next.indices
            start[1], start_next[1] = len(index), len(index_next)
            rows = (start, index, phi.values, start_next, index_next, phi_next.values)
            status = run(frozen, False, *rows, UNBROKEN, 0.0, False, parameters, none)
            return self.delta.copy() if status == -1 else None

        return step

    def vector(self, r: int) -> NDArray[Any]:
        return np.concatenate(list(self.blocks(r)))

    def blocks(self, r: int) -> Iterator[NDArray[Any]]:
        # (every number is rounded as ``settle`` rounds it)
        u, c, touch = unrolled(self.rule), self._fields(), self._places[0]
        for begin in range(0, self.K, LANES):
            lanes = slice(begin, begin + LANES)

            def trace(j: int, lanes: slice = lanes) -> NDArray[Any]:
                return np.where(touch[:, None] >= c["since"][j - u.w, lanes], c["H"][:, j, lanes], 0.0)

            value = c["diag"][r, lanes] * (trace(r) if r >= u.w else c["H"][:, r, lanes])
            for j in u.feeds.get(r, []):
                value = value + c["take"][r, j - u.w, lanes] * trace(j)
            yield value.T.astype(self.dtype, copy=False)

    def _fields(self) -> dict[str, NDArray[Any]]:
        """What a learner is made of, as a checkpoint has it."""
        u = unrolled(self.rule)
        m, w, q, K = u.m, u.w, len(u.traces), self.K
        take = m + w * q
        return {
            "H": self._H.reshape(self.n, m, K),
            "diag": self._scale[:m],
            "take": self._scale[m:take].reshape(w, q, K),
            "peak": self._scale[take : take + q],
            "since": self._since.reshape(m, K)[w:],
            "mark": self._marks,
            "left": self._scale[take + q :],
        }

    def _make_time(self, steps: int) -> None:
        """Restart the clock before it overflows."""
        if self._clock.item(0) + steps >= _MIDNIGHT:
            self._settle()

    def _settle(self) -> None:
        """H ← X, with a trace in every column, as of the beginning of time."""
        self._compiled("settle_some")(0, self.K)
        self._since[:] = self._marks[:] = 0
        self._fields()["left"][:] = 1.0
        touch, where = self._places
        touch[:] = 0
        self._log[: self.n] = where[:] = np.arange(self.n)
        self._clock[:] = 0, self.n

    def set_vector(self, r: int, value: NDArray[Any]) -> None:
        self._settle()
        self._fields()["H"][:, r] = value.T

    def predict(self, phi: Features) -> NDArray[Any]:
        assert isinstance(phi, Rows)
        out = np.zeros((len(phi), self.K))
        try:
            room = self._rooms.pop()
        except IndexError:  # others are predicting at the same time, or nobody has
            room = tuple(np.zeros(array.shape, array.dtype) for array in self._phi)
        self._compiled("predict")(*room, phi.start, phi.index, phi.value, out)
        self._rooms.append(room)
        predictions: NDArray[Any] = out.astype(self.dtype, copy=False)
        return predictions

    def clear_traces(self) -> None:
        self._make_time(1)
        self._compiled("forget_all")()

    def select(self, ks: NDArray[np.int64]) -> SparseMany:
        selection = SparseMany(self.rule, self.n, len(ks), self.dtype)
        for name, array in selection._fields().items():
            np.take(self._fields()[name], ks, _LEARNERS[name], out=array, mode="clip")
        selection.share_times(self)
        selection.scalars[:] = self.scalars[ks]
        return selection

    @property
    def touched(self) -> NDArray[np.int32]:
        """When each column was last touched."""
        times: NDArray[np.int32] = self._places[0]
        return times

    def share_times(self, other: SparseMany) -> None:
        """The same times as another's."""
        self._places[:], self._log[:], self._clock[:] = other._places, other._log, other._clock

    def join(self, engines: Sequence[Engine]) -> None:
        hordes = [engine for engine in engines if isinstance(engine, SparseMany)]
        np.concatenate([engine.scalars for engine in engines], out=self.scalars)
        if len(hordes) < len(engines):  # single learners, each in its own form
            for r in range(len(self.rule.vectors)):
                self.set_vector(r, np.concatenate([engine.vector(r) for engine in engines]))
            return
        if not all(np.array_equal(engine.touched, hordes[0].touched) for engine in hordes):
            hordes = [engine.select(np.arange(engine.K)) for engine in hordes]
            for engine in hordes:
                engine._settle()
        fields = [engine._fields() for engine in hordes]
        for name, array in self._fields().items():
            np.concatenate([field[name] for field in fields], _LEARNERS[name], out=array)
        self.share_times(hordes[0])

    def pending(self) -> dict[str, NDArray[Any]]:
        """C, H and the times as they are; the order of the log follows from the times."""
        times = {"touch": self._places[0], "clock": self._clock[:1]}
        return self._fields() | times | {"bounds": self.scalars[:, self.M : -1]}

    def reload(self, stored: Mapping[str, StoredArray]) -> None:
        state, H = self.pending(), self._fields()["H"]
        if (stored["H"].dtype, stored["H"].shape) != (self.dtype, H.shape):
            raise ValueError(f"its 'H' is {stored['H'].dtype} of shape {stored['H'].shape}")
        stored["H"].into(H)
        others = {name: stored[name].array() for name in state if name != "H"}
        largest = np.maximum(H.max(axis=0), -H.min(axis=0)).astype(np.float64)
        if not np.isfinite(largest).all():
            raise ValueError("its 'H' is not finite")
        self._check(others)
        for name in others.keys() - {"bounds"}:
            state[name][:] = others[name]
        self._order_log()
        u, upper = unrolled(self.rule), np.abs(others["diag"]) * largest
        for r in u.weights:
            for j in u.feeds.get(r, []):
                upper[r] += np.abs(others["take"][r, j - u.w]) * largest[j]
        settle_bounds(self, stored, upper.T)

    def _check(self, pending: Mapping[str, NDArray[Any]]) -> None:
        """ValueError if these are not arrays that ``pending`` could have returned."""
        state = self.pending()
        for name, array in pending.items():
            hold(name, array, state[name].dtype.name, state[name].shape)
        present = int(pending["clock"][0])
        for name in ("touch", "since", "mark", "clock"):
            if not ((pending[name] >= 0) & (pending[name] <= min(present, _MIDNIGHT))).all():
                raise ValueError(f"its times {name!r} are out of range")
        if not (pending["diag"] != 0.0).all():
            raise ValueError("one of its scales is 0")

    def _order_log(self) -> None:
        """List the columns in the order of their times."""
        touch, where = self._places
        self._log[: self.n] = np.argsort(touch, kind="stable")
        where[self._log[: self.n]] = np.arange(self.n)
        self._clock[1] = self.n

    @property
    def nbytes(self) -> int:
        state = (self._H, self._scale, self._since, self._places, self._marks, self._log, self._clock, self.scalars)
        return sum(
            array.nbytes for array in (*state, *self._phi, *self._phi_next, *self._due, *self._due_next, *self._scratch)
        )


# ----------------------------------------------------------- what the kernels call of a rule besides ``rule_functions``
#
# Rows of ``scale``, each (K,): C_rr of every vector; C_rj of every weight and trace; of every trace, the largest |C_jj|
# since it was closed; and what is left of the traces of columns last touched before its mark. Rows of ``form``: A_rr
# and A_rj likewise; then B of every vector for φ, and for φ'.

#: Beyond this bound on |X| steps are taken on plain columns.
NEAR_THE_END: float
#: The first of these rows of ``scale`` and ``form``: C_rj and A_rj, the peaks, and what is left; B for φ and for φ'.
TAKE: int
PEAK: int
LEFT: int
PHI: int
PHI_NEXT: int
#: How many vectors take φ', those before them included, or all if a trace does; and whether any weight scales itself.
NEXT: int
OWN_SCALES: bool

#: (r, j): whether vector r takes trace j, which is counted from 0.
feeds: Callable[[int, int], bool]
#: (x, k, K) → X·φ of learner k, where x has it of all.
products: Callable[[Floats, int, int], Scalars]
#: (form, k, c): put A and B of learner k there, all that is not always 0.
put_form: Callable[[Floats, int, Scalars], None]


def rows_of(rule: Rule) -> dict[str, int]:
    """The first rows by name, and how many there are of ``scale`` and of ``form``."""
    u = unrolled(rule)
    pairs = u.m + u.w * len(u.traces)
    sizes = {"SCALE": pairs + 2 * len(u.traces), "FORM": pairs + 2 * u.m}
    names = {"TAKE": u.m, "PEAK": pairs, "LEFT": pairs + len(u.traces), "PHI": pairs, "PHI_NEXT": pairs + u.m}
    count = max(u.takes_next, default=-1) + 1
    return names | sizes | {"NEXT": u.m if count > u.w else count}


def functions_for(rule: Rule, dtype: str) -> Functions:
    """The functions of this rule for ``sparse_many_kernels``."""
    functions, rows = Functions(rule, dtype), rows_of(rule)
    u, add = functions.u, functions.add
    add_limits(functions)
    for name, row in rows.items():
        functions.constant(name, row)
    functions.constant("OWN_SCALES", any(u.A[r][r] != 1.0 for r in u.weights))

    fed = [(r, j - u.w) for r in u.weights for j in u.feeds[r]]
    add("feeds(r, j)", f"return {' or '.join(f'(r == {r} and j == {j})' for r, j in fed) or 'False'}")
    add("products(x, k, K)", f"return {tuple_of(f'x[{r} * K + k]' for r in u.vectors)}")
    where = {f"a{r}_{r}": r for r in u.vectors}
    where |= {f"a{r}_{u.w + j}": rows["TAKE"] + r * len(u.traces) + j for r, j in fed}
    where |= {f"b{r}": rows["PHI"] + r for r in u.vectors} | {f"d{r}": rows["PHI_NEXT"] + r for r in u.takes_next}
    entries = (f"form[{i}, k] = {u.entry(name)}" for name, i in where.items())
    add("put_form(form, k, c)", *functions.unpack("c"), *entries)
    return functions
