"""sparse, for elementwise rules: exact, at a cost per step proportional to the active features, whatever n and γλ.

What is not active moves by the rule's A, lazily, as with any rule (SPARSE.md); an active column is taken out of
X = C·H, moved by the rule, and put back. An eager rule moves every column with a trace: they are listed, and the
cost is in proportion to their number. Each learner has columns of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from emphatic.engines import compiled
from emphatic.engines.base import Engine, Features, Row, Rows, Steps, StoredArray
from emphatic.engines.sparse import STAMP, Layout, Lazy, column_type, functions_for, hold, settle_bounds
from emphatic.engines.unrolled import ElementwiseFunctions, Functions, tuple_of

if TYPE_CHECKING:
    from emphatic.rules import ElementwiseRule, Scalars

    Floats = NDArray[np.float64]

__all__ = ["SparseElementwise", "elementwise_functions", "record"]

#: Whether the rule is eager.
EAGER: bool
#: (column, scale, e, z): z is the column of X.
put: Callable[[np.void, Floats, Scalars, Scalars], None]
#: (column) → the column of X, and (column, z) as before, where C = 1 and every trace is in its first epoch.
held: Callable[[np.void], Scalars]
set_held: Callable[[np.void, Scalars], None]
#: (work, a) → the a-th column of ``work``; (work, a, z): z is to be that.
z_at: Callable[[Floats, int], Scalars]
set_z: Callable[[Floats, int, Scalars], None]
#: (c) → the most by which A scales a trace; (memory) → to what part an eager rule's traces may decay.
decay_of: Callable[[Scalars], float]
drop_of: Callable[[Scalars], float]
#: (made, k, memory, size, c): what is decided, kept until all learners have decided; and taken up again.
keep_decisions: Callable[[Floats, int, Scalars, Scalars, Scalars], None]
decisions: Callable[[Floats, int], tuple[Scalars, Scalars, Scalars]]


def elementwise_functions(rule: ElementwiseRule, dtype: str) -> Functions:
    """The rule's functions, with those that are declared here."""
    functions, at = functions_for(rule, dtype, ElementwiseFunctions), Layout(rule)
    u, add = functions.u, functions.add
    functions.constant("EAGER", bool(rule.eager))
    lines = []
    for j in u.traces:
        lines += [f"h{j} = real(z[{j}] / scale[{j}])", f"column['H{j}'] = h{j}", f"column['E{j}'] = e[{j - at.w}]"]
    for r in u.weights:
        less = "".join(f" - scale[{at.slot[r, j]}] * h{j}" for j in at.takes[r])
        lines.append(f"column['H{r}'] = (z[{r}]{less}) / scale[{r}]")
    add("put(column, scale, e, z)", *lines)
    fields = [f"column['H{r}']" for r in u.vectors]
    add("held(column)", f"return {tuple_of(f'np.float64({field})' for field in fields)}")
    add("set_held(column, z)", *(f"{field} = z[{r}]" for r, field in enumerate(fields)))
    add("z_at(work, a)", f"return {tuple_of(f'work[{r}, a]' for r in u.vectors)}")
    add("set_z(work, a, z)", *(f"work[{r}, a] = z[{r}]" for r in u.vectors))
    decays = [f"abs({u.entry(f'a{j}_{j}')})" for j in u.traces] or ["0.0"]
    add("decay_of(c)", *functions.unpack("c"), f"return {functools.reduce(lambda a, b: f'max({a}, {b})', decays)}")
    add("drop_of(memory)", f"return memory[{rule.memory.index(rule.eager)}]" if rule.eager else "return 0.0")
    values = [*(f"memory[{i}]" for i in range(u.M)), *(f"size[{r}]" for r in u.vectors)]
    values += [f"c[{i}]" for i in range(len(u.coefficients))]
    add("keep_decisions(made, k, memory, size, c)", *(f"made[k, {i}] = {name}" for i, name in enumerate(values)))
    groups, begin = [], 0
    for size in (u.M, u.m, len(u.coefficients)):
        groups.append(tuple_of(f"made[k, {i}]" for i in range(begin, begin + size)))
        begin += size
    add("decisions(made, k)", f"return {', '.join(groups)}")
    return functions


def record(rule: ElementwiseRule, dtype: str) -> np.dtype[Any]:
    """A column: H, the stamps, and Q, its place among the active ones: between steps 0, or that among the live ones.

    Of an eager rule also L, what is left of its traces since it was last active.
    """
    fields = [(name, kind[0]) for name, kind in (Layout(rule).fields(dtype).fields or {}).items()]
    return np.dtype([*fields, ("Q", np.dtype("int32")), *[("L", np.dtype(dtype))] * bool(rule.eager)])


@functools.cache
def kernel(rule: ElementwiseRule, dtype: str, name: str, interpreted: bool) -> Any:
    """One of the functions of ``elementwise_sparse_kernels``, for this rule."""
    f8, i8, flag = types.float64, types.int64, types.boolean
    functions = elementwise_functions(rule, dtype)
    state = "columns, scale, epoch, table, scalars, live, counts, made, active, phi, work"
    functions.add_learn(f"{state}, index, value, index_next, value_next")
    text = compiled.compose(functions, "sparse.sparse_kernels", "sparse.elementwise_sparse_kernels")
    module = compiled.module(f"sparse_{rule.name}_{dtype}", text)
    column = column_type(record(rule, dtype))
    flat, table = types.Array(f8, 1, "C"), types.Array(f8, 2, "C")
    counts, lists = types.Array(i8, 1, "C"), types.Array(i8, 2, "C")
    lazy = (types.Array(column, 2, "C"), table, lists, types.Array(f8, 4, "C"))
    cube = types.Array(f8, 3, "C")
    arrays = (*lazy, table, lists, counts, table, lists, cube, cube)
    index, value = types.Array(i8, 1, "C", readonly=True), types.Array(f8, 1, "A", readonly=True)
    rows, count = (index, index, value), len(rule.parameters)
    parameters = compiled.several(types.Array(f8, 2, "A", readonly=True), count)
    predictions = types.Array(getattr(types, dtype), 2, "C")
    signature = {
        "learn": (*arrays, index, value, index, value, *[f8] * count),
        "run_many": (*arrays, counts, flat, types.Array(flag, 1, "C"), flag, *rows, *rows, parameters, predictions),
        "settle_learner": lazy,
        "predict_many": (*lazy, *rows, table),
    }
    return compiled.kernel(module, name, *signature[name])


class SparseElementwise(Engine):
    """X = C·H of each learner, of which only active columns are touched."""

    name = "sparse"
    takes_rows = True
    starts_sequences = False
    pending_gives_vectors = True
    rule: ElementwiseRule

    def __init__(self, rule: ElementwiseRule, n: int, K: int, dtype: str) -> None:
        super().__init__(rule, n, K, dtype)
        self._layout = Layout(rule)
        self._columns = np.zeros((K, n), record(rule, dtype))
        self._scale = np.tile(self._layout.fresh(), (K, 1))
        self._epoch = np.zeros((K, 2 * len(rule.traces)), np.int64)
        epochs = 1 if rule.eager else min(max(4096, n // 256), np.iinfo(STAMP[dtype]).max)
        self._table = np.zeros((K, len(rule.traces), epochs, len(rule.weights) + 1))
        #: The columns with traces, of an eager rule, and how many they are.
        self._live = np.zeros((K, n if rule.eager else 0), np.int64)
        self._counts = np.zeros(K, np.int64)
        coefficients = sum(entry is None for row in rule.form[0] for entry in row)
        self._made = np.zeros((K, self.M + len(rule.vectors) + coefficients))
        self._found = np.zeros(K, np.int64)
        self._room = self._scratch(n if rule.eager else min(n, 64))

    def _scratch(self, most: int) -> tuple[NDArray[Any], ...]:
        """Room for so many active columns of each learner."""
        K, m = self.K, len(self.rule.vectors)
        return np.empty((K, most), np.int64), np.empty((K, 2, most)), np.empty((K, m, most))

    def make_room(self, most: int) -> None:
        """Have room for so many active features in a step."""
        if self._room[0].shape[1] < min(self.n, most):
            self._room = self._scratch(min(self.n, 2 * most))
            self._kernels.pop("bound learn", None)

    def make_kernel(self, name: str) -> Any:
        return kernel(self.rule, self.dtype, name, compiled.interpreted())

    @property
    def grain(self) -> tuple[int, int]:
        return 1, 1

    @property
    def _lazy(self) -> tuple[NDArray[Any], ...]:
        return self._columns, self._scale, self._epoch, self._table

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """The state, and room to work in, as kernels take them."""
        return *self._lazy, self.scalars, self._live, self._counts, self._made, *self._room

    def stepper(self, single: bool) -> Any:
        if not single:
            return None
        compiled_learn, kernels = self._compiled("learn"), self._kernels

        def learn(phi: Row, phi_next: Row, *parameters: float) -> float:
            step = kernels.get("bound learn")
            if step is None:
                step = kernels["bound learn"] = functools.partial(compiled_learn, *self.arrays)
            delta: float = step(phi.indices, phi.values, phi_next.indices, phi_next.values, *parameters)
            if delta != delta and len(phi.indices) + len(phi_next.indices) > self._room[0].shape[1]:
                self.make_room(len(phi.indices) + len(phi_next.indices))
                return learn(phi, phi_next, *parameters) if self._room[0].shape[1] else delta
            return delta

        return learn

    def take(self, steps: Steps[Rows]) -> int:
        phi, phi_next, _, parameters, predictions, watch, _ = steps
        widest = sum(int(np.diff(rows.start).max(initial=0)) for rows in (phi, phi_next))
        self.make_room(widest)
        rows = (phi.start, phi.index, phi.value, phi_next.start, phi_next.index, phi_next.value)
        status: int = self._compiled("run_many")(
            *self.arrays, self._found, self.delta, watch.frozen, watch.freeze, *rows, parameters, predictions
        )
        return status

    def vector(self, r: int) -> NDArray[Any]:
        at, w = self._layout, self._layout.w

        def owed(j: int, what: int, now: float) -> NDArray[np.float64]:
            stamp = self._columns[f"E{j}"]
            at_stamp = np.minimum(stamp, self._table.shape[2] - 1)
            entry = np.take_along_axis(self._table[:, j - w, :, what], at_stamp.astype(np.int64), axis=1)
            return np.where(stamp == self._epoch[:, 2 * (j - w), None], now, entry)

        def scale(i: int) -> NDArray[np.float64]:
            return self._scale[:, i, None]

        value: NDArray[Any] = scale(r) * self._columns[f"H{r}"]
        if r >= w:
            value = value * owed(r, w, 1.0)
        for j in at.takes.get(r, []):
            value += (scale(r) * owed(j, r, 0.0) + scale(at.slot[r, j]) * owed(j, w, 1.0)) * self._columns[f"H{j}"]
        return value.astype(self.dtype, copy=False)

    def set_vector(self, r: int, value: NDArray[Any]) -> None:
        self._compiled("settle_learner")(*self._lazy)
        self._columns[f"H{r}"] = value
        self._relist()

    def _relist(self) -> None:
        """List the columns with traces again, for an eager rule."""
        if not self.rule.eager:
            return
        for k in range(self.K):
            traced = np.zeros(self.n, bool)
            for j in self._layout.traces:
                traced |= self._columns[f"H{j}"][k] != 0.0
            live = np.flatnonzero(traced)
            self._live[k, : len(live)], self._counts[k] = live, len(live)
            self._columns["L"][k, live] = 1.0
            self._mark(k)

    def _mark(self, k: int) -> None:
        """Give the live columns of learner k their places."""
        count = self._counts[k]
        self._columns["Q"][k] = 0
        self._columns["Q"][k, self._live[k, :count]] = np.arange(1, count + 1)

    def predict(self, phi: Features) -> NDArray[Any]:
        assert isinstance(phi, Rows)
        out = np.zeros((len(phi), self.K))
        self._compiled("predict_many")(*self._lazy, phi.start, phi.index, phi.value, out)
        predictions: NDArray[Any] = out.astype(self.dtype, copy=False)
        return predictions

    def clear_traces(self) -> None:
        self._compiled("settle_learner")(*self._lazy)
        for j in self._layout.traces:
            self._columns[f"H{j}"] = 0.0
        self._counts[:], self._columns["Q"] = 0, 0

    def pending(self) -> dict[str, NDArray[Any]]:
        """C, H and the stamps as they are, what columns of the table may still owe, and the list of live columns."""
        most, lists = int(self._counts.max(initial=0)), {}
        if self.rule.eager:
            lists = {"live": self._live[:, :most], "counts": self._counts, "L": self._columns["L"]}
        return Lazy(self._layout, *self._lazy).pending() | lists | {"bounds": self.scalars[:, self.M : -1]}

    def resume(self, pending: dict[str, NDArray[Any]]) -> None:
        self._resume_live(pending)
        Lazy(self._layout, *self._lazy).fill(pending)

    def reload(self, stored: Mapping[str, StoredArray]) -> None:
        upper = Lazy(self._layout, *self._lazy).reload(stored)
        if self.rule.eager:
            self._resume_live({name: stored[name].array() for name in ("live", "counts", "L")})
        settle_bounds(self, stored, upper)

    def _resume_live(self, pending: dict[str, NDArray[Any]]) -> None:
        if not self.rule.eager:
            return
        live, counts = pending["live"], pending["counts"]
        most = int(counts.max(initial=0))
        hold("counts", counts, "int64", (self.K,))
        hold("live", live[:, :most], "int64", (self.K, most))
        for k in range(self.K):
            listed = live[k, : counts[k]]
            if counts[k] < 0 or len(np.unique(listed)) != counts[k] or ((listed < 0) | (listed >= self.n)).any():
                raise ValueError("its list of live traces is not one of different features")
            self._live[k, : counts[k]], self._counts[k] = listed, counts[k]
            self._mark(k)
        hold("L", pending["L"], self.dtype, (self.K, self.n))
        self._columns["L"] = pending["L"]

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)
