"""sparse: exact, at a cost per step proportional to the active features, whatever n and γλ.  Derived in SPARSE.md.

X = C·H lazily, with C an arrow of scalars. A step multiplies C by A, touching no vector, and adds C⁻¹B[φ; φ'] to
the active columns of H. When the scale of a trace has shrunk to 1/100 of its peak, the trace's *epoch* is closed:
its scale becomes 1 again and no column is visited. Each column is stamped with the epoch it was last brought up to
date in, and a table holds the decay that a column of that epoch still owes; it is applied when the column is next
active or read.

A column's values and stamps lie side by side in memory. For θ and e that is 20 bytes in float64 and 10 in float32:
2.5 numbers per weight, besides a table of max(4096, n/256) epochs (at most 32,767 in float32).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numba
import numpy as np
from numba import types
from numpy.typing import NDArray

from emphatic.engines import compiled
from emphatic.engines.base import Engine, Features, Row, Rows, Steps, StoredArray
from emphatic.engines.unrolled import Functions, tuple_of, unrolled

if TYPE_CHECKING:
    from emphatic.rules import AnyRule, Rule, Scalars

    Floats = NDArray[np.float64]

__all__ = ["HIGH", "LOW", "SHRUNK", "STAMP", "Layout", "Sparse", "add_limits", "functions_for", "hold"]

#: The type of stamps, which holds a position in φ too (modulo its largest value).
STAMP = {"float64": "int32", "float32": "int16"}

#: A trace's scale is reset when it is below this part of its peak: the error is about 4e-16 divided by it.
SHRUNK = 1e-2
#: Outside these it is reset in any case; traces that feed no weight do so only here.
LOW, HIGH = 1e-10, 1e10
#: Beyond this, steps are run on plain columns (C = 1), as the dense engine does: C and H need room that X does not.
_NEAR_THE_END = {"float64": 1e280, "float32": 1e25}


@functools.cache
def kernel(rule: Rule, dtype: str, name: str, interpreted: bool) -> Any:
    """One of the functions of ``sparse_kernels``, for this rule."""
    f8, i8 = types.float64, types.int64
    functions = functions_for(rule, dtype)
    functions.add_learn("columns, scale, epoch, table, scalars, index, value, index_next, value_next")
    module = compiled.module(f"sparse_{rule.name}_{dtype}", compiled.compose(functions, "sparse.sparse_kernels"))
    column = column_type(Layout(rule).fields(dtype))
    flat, scalars = types.Array(f8, 1, "C"), types.Array(f8, 2, "C")
    state = (types.Array(column, 1, "C"), flat, types.Array(i8, 1, "C"), types.Array(f8, 3, "C"))
    index, value = types.Array(i8, 1, "C", readonly=True), types.Array(f8, 1, "A", readonly=True)
    rows, flags = (index, index, value), types.Array(types.boolean, 1, "C", readonly=True)
    count = len(rule.parameters)
    parameters = compiled.several(types.Array(f8, 2, "A", readonly=True), count)
    signature = {
        "learn": (*state, scalars, index, value, index, value, *[f8] * count),
        "run": (*state, scalars, *rows, *rows, flags, parameters, types.Array(getattr(types, dtype), 2, "C"), flat),
        "settle_all": state,
        "forget_all": state,
        "predict_one": (*state, index, value),
        "predict_rows": (*state, *(types.Array(kind, 2, "A", readonly=True) for kind in (i8, f8)), flat),
        "predict": (*state, *rows, scalars),
    }
    return compiled.kernel(module, name, *signature[name])


def column_type(fields: np.dtype[Any]) -> types.Type:
    """The type of a column in kernels."""
    return numba.from_dtype(fields)  # type: ignore[no-any-return]


class Sparse(Engine):
    """X = C·H of one learner, columns brought up to date when they are next active."""

    name = "sparse"
    takes_rows = True
    pending_gives_vectors = True
    rule: Rule

    def __init__(self, rule: Rule, n: int, K: int, dtype: str) -> None:
        super().__init__(rule, n, K, dtype)
        self._layout = Layout(rule)
        self._columns = np.zeros(n, self._layout.fields(dtype))
        self._scale = self._layout.fresh()
        self._epoch = np.zeros(2 * len(rule.traces), np.int64)
        epochs = min(max(4096, n // 256), np.iinfo(STAMP[dtype]).max)
        self._table = np.zeros((len(rule.traces), epochs, len(rule.weights) + 1))

    def make_kernel(self, name: str) -> Any:
        return kernel(self.rule, self.dtype, name, compiled.interpreted())

    @property
    def grain(self) -> tuple[int, int]:
        return 1, 1

    @property
    def _state(self) -> tuple[NDArray[Any], ...]:
        return self._columns, self._scale, self._epoch, self._table

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """The whole state, as kernels take it."""
        return *self._state, self.scalars

    def stepper(self, single: bool) -> Any:
        step = functools.partial(self._compiled("learn"), *self.arrays)

        def learn(phi: Row, phi_next: Row, *parameters: float) -> float:
            delta: float = step(phi.indices, phi.values, phi_next.indices, phi_next.values, *parameters)
            return delta

        return learn

    def predictor(self) -> Any:
        predict_one, state, dtype = (
            functools.partial(self._compiled("predict_one"), *self._state),
            self._state,
            self.dtype,
        )

        def predict(phi: Row) -> float | NDArray[Any]:
            indices = phi.indices
            if indices.ndim == 1:
                value: float = predict_one(indices, phi.values)
                return value
            values = np.empty(len(indices))
            fine = self._compiled("predict_rows")(*state, indices, phi.values, values)
            return values.astype(dtype, copy=False) if fine else math.nan

        return predict

    def take(self, steps: Steps[Rows]) -> int:
        phi, phi_next, _, parameters, predictions, watch, breaks = steps
        T, t = len(phi), 0
        status: int
        if not watch.frozen[0]:
            rows = (phi.start, phi.index, phi.value, phi_next.start, phi_next.index, phi_next.value)
            log = (*rows, breaks, parameters)
            status = self._compiled("run")(*self._state, self.scalars, *log, predictions, self.delta)
            if status == -1 or not watch.freeze:
                return status
            t, watch.frozen[0] = status, True
        with np.errstate(all="ignore"):  # the last weights are finite, what they predict need not be
            for begin, end in itertools.pairwise([t, *(t + np.flatnonzero(breaks[t:])).tolist(), T]):
                if len(breaks) and breaks[begin]:
                    self.cut()
                if len(predictions):
                    predictions[begin:end] = self.predict(phi.block(begin, end))
            if T:
                v, v_next = (self.predict(features.block(T - 1, T))[0] for features in (phi, phi_next))
                self.delta[:] = parameters[5][T - 1] + parameters[4][T - 1] * v_next - v
        return -1

    def vector(self, r: int) -> NDArray[Any]:
        at, w, scale = self._layout, self._layout.w, self._scale

        def owed(j: int, what: int, now: float) -> NDArray[np.float64]:
            stamp = self._columns[f"E{j}"]
            entry = self._table[j - w, np.minimum(stamp, self._table.shape[1] - 1), what]
            return np.where(stamp == self._epoch[2 * (j - w)], now, entry)

        value: NDArray[Any] = scale[r] * self._columns[f"H{r}"]
        if r >= w:
            value = value * owed(r, w, 1.0)
        for j in at.takes.get(r, []):
            value += (scale[r] * owed(j, r, 0.0) + scale[at.slot[r, j]] * owed(j, w, 1.0)) * self._columns[f"H{j}"]
        return value.astype(self.dtype, copy=False)[None]

    def _settle(self) -> None:
        self._compiled("settle_all")(*self._state)

    def set_vector(self, r: int, value: NDArray[Any]) -> None:
        self._settle()
        self._columns[f"H{r}"] = value[0]

    def predict(self, phi: Features) -> NDArray[Any]:
        assert isinstance(phi, Rows)
        out = np.zeros((len(phi), 1))
        self._compiled("predict")(*self._state, phi.start, phi.index, phi.value, out)
        predictions: NDArray[Any] = out.astype(self.dtype, copy=False)
        return predictions

    def clear_traces(self) -> None:
        self._compiled("forget_all")(*self._state)

    def like(self, K: int) -> Engine:
        if K == 1:
            return Sparse(self.rule, self.n, 1, self.dtype)
        from emphatic.engines.sparse.sparse_many import SparseMany

        return SparseMany(self.rule, self.n, K, self.dtype)

    def pending(self) -> dict[str, NDArray[Any]]:
        """C, H and the stamps as they are, and of the table what some column may still owe; each with an axis K = 1."""
        return self._lazy.pending() | {"bounds": self.scalars[:, self.M : -1]}

    def resume(self, pending: dict[str, NDArray[Any]]) -> None:
        self._lazy.fill(pending)

    def reload(self, stored: Mapping[str, StoredArray]) -> None:
        settle_bounds(self, stored, self._lazy.reload(stored))

    @property
    def _lazy(self) -> Lazy:
        return Lazy(self._layout, *(array[None] for array in self._state))

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in (*self._state, self.scalars))


def hold(name: str, array: NDArray[Any], dtype: str, shape: tuple[int, ...]) -> None:
    """Check an array of a checkpoint against the expected dtype and shape."""
    if array.dtype != dtype or array.shape != shape or not np.isfinite(array).all():
        raise ValueError(
            f"its {name!r} is {array.dtype} of shape {array.shape}, where finite {dtype} {shape} is expected"
        )


class Lazy(NamedTuple):
    """X = C·H of K learners, as a checkpoint holds it: H and the stamps, C, the epochs, and what columns may owe."""

    layout: Layout
    columns: NDArray[Any]
    scale: NDArray[np.float64]
    epoch: NDArray[np.int64]
    table: NDArray[np.float64]

    def pending(self) -> dict[str, NDArray[Any]]:
        """The arrays by name; of the table what some column may still owe."""
        used = int(self.epoch[:, ::2].max(initial=0))
        fields = {name: self.columns[name] for name in self.layout.names}
        return fields | {"scale": self.scale, "epoch": self.epoch, "table": self.table[:, :, :used]}

    def _check_scales(self, pending: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
        """Check what is not one number a column; returns the present epoch of every trace, (K, traces)."""
        hold("epoch", pending["epoch"], "int64", self.epoch.shape)
        epoch = pending["epoch"]
        present = epoch[:, ::2]
        if not ((epoch[:, 1::2] >= 0) & (epoch[:, 1::2] <= present) & (present < self.table.shape[2])).all():
            raise ValueError("its epochs are out of range")
        used = int(present.max(initial=0))
        hold("table", pending["table"][:, :, :used], "float64", (*self.table.shape[:2], used, self.table.shape[3]))
        hold("scale", pending["scale"], "float64", self.scale.shape)
        if not (pending["scale"][:, : self.layout.m] != 0.0).all():
            raise ValueError("one of its scales is 0")
        return present

    def fill(self, pending: Mapping[str, NDArray[Any]]) -> None:
        """Take over arrays that ``pending`` returned."""
        for name in self.layout.names:
            self.columns[name] = pending[name]
        self._fill_scales(pending)

    def _fill_scales(self, pending: Mapping[str, NDArray[Any]]) -> None:
        used = int(pending["epoch"][:, ::2].max(initial=0))
        self.scale[:], self.epoch[:] = pending["scale"], pending["epoch"]
        self.table[:, :, :used] = pending["table"][:, :, :used]

    def reload(self, stored: Mapping[str, StoredArray]) -> Floats:
        """Check and take over what a file holds, some columns at a time; returns upper bounds on |X|, (K, m)."""
        scales = {name: stored[name].array() for name in ("scale", "epoch", "table")}
        present = self._check_scales(scales)
        self._fill_scales(scales)
        largest, names = np.zeros((len(self.columns), self.layout.m)), self.layout.names
        for name in names:
            kind, array = self.columns.dtype[name].name, stored[name]
            if (array.dtype, array.shape) != (kind, self.columns.shape):
                raise ValueError(f"its {name!r} is {array.dtype} of shape {array.shape}")
        for pieces in zip(*(stored[name].pieces() for name in names), strict=True):
            for name, (k, first, piece) in zip(names, pieces, strict=True):
                low, high, number = float(piece.min()), float(piece.max()), int(name[1:])
                if not (math.isfinite(low) and math.isfinite(high)):
                    raise ValueError(f"its {name!r} is not finite")
                if name[0] == "H":
                    largest[k, number] = max(largest[k, number], high, -low)
                elif not 0 <= low <= high <= present[k, number - self.layout.w]:
                    raise ValueError(f"its stamps {name!r} are out of range")
                self.columns[name][k, first : first + len(piece)] = piece
        return self._bound(largest)

    def _bound(self, largest: Floats) -> Floats:
        """Upper bounds on |X|, where these are the largest |H|, (K, m)."""
        at, scale = self.layout, self.scale
        used, bounds = int(self.epoch[:, ::2].max(initial=0)), np.abs(scale[:, : at.m]) * largest
        for j in at.traces:
            # Whatever its stamp, a column owes what one of these entries says, or nothing.
            owed = self.table[:, j - at.w, :used]
            for r in [r for r in at.takes if j in at.takes[r]]:
                now = scale[:, at.slot[r, j], None]
                taken = np.abs(scale[:, r, None] * owed[..., r] + now * owed[..., at.w]).max(axis=1, initial=0.0)
                bounds[:, r] += np.maximum(taken, np.abs(now[:, 0])) * largest[:, j]
            bounds[:, j] *= np.maximum(np.abs(owed[..., at.w]).max(axis=1, initial=0.0), 1.0)
        return bounds


def settle_bounds(engine: Engine, stored: Mapping[str, StoredArray], upper: Floats) -> None:
    """Take over the saved bounds on |X|; where these are below ``upper``, (K, m), they are compared with X itself."""
    saved, bounds = stored["bounds"].array(), engine.scalars[:, engine.M : -1]
    hold("bounds", saved, "float64", bounds.shape)
    bounds[:] = saved
    for r in np.flatnonzero(~(saved >= upper).all(axis=0)).tolist():  # (a NaN is not)
        largest = np.concatenate([np.maximum(block.max(axis=1), -block.min(axis=1)) for block in engine.blocks(r)])
        if not np.isfinite(largest).all():
            raise ValueError(f"its {engine.rule.vectors[r]!r} is not finite")
        bounds[:, r] = choose_bounds(saved[:, r], largest)


def choose_bounds(saved: NDArray[np.float64], found: NDArray[np.float64]) -> NDArray[np.float64]:
    """Bounds on |X| as they were saved, unless what was found is larger by more than rounding."""
    return np.where(saved >= (1.0 - 1e-9) * found, saved, found)


# ----------------------------------------------------------- what the kernels call of a rule besides ``rule_functions``
#
# A ``column`` is a record of H, ``scale`` is C, and e the present epoch of every trace, one at least.

#: The limit of the learner's dtype.
NEAR_THE_END: float
#: Where ``scale`` has the peak of the first trace's scale.
PEAKS: int
#: How many positions in φ a mark can tell apart.
PERIOD: int

#: (epoch) → e.
epochs: Callable[[NDArray[np.int64]], Scalars]
#: (column, e, table): pay what the column owes.
fetch: Callable[[np.void, Scalars, Floats], None]
#: (column, scale, e, table) → the column of X, in float64; nothing changes.
present: Callable[[np.void, Floats, Scalars, Floats], Scalars]
#: (column, z): z is the column of X, where C = 1 and every trace is in its first epoch.
place: Callable[[np.void, Scalars], None]
#: (sums, column, v) → sums + v H.
add_held: Callable[[Scalars, np.void, Any], Scalars]
#: (column, u, p): H += u p; and for φ', of the weights that take it.
add_phi: Callable[[np.void, Scalars, Any], None]
add_phi_next: Callable[[np.void, Scalars, Any], None]
#: (column, position): write into its mark. (column) → what is there; always 0 for a rule that does not use φ·φ'.
mark: Callable[[np.void, int], None]
marked: Callable[[np.void], int]

#: (size) → bounds on |X| that are 1 or more, so that they bound what C grows to as well, also where X is 0.
at_least_one: Callable[[Scalars], Scalars]
#: (scale, h) → C h.
combine: Callable[[Floats, Scalars], Scalars]
#: (scale, c): C ← A C.
advance: Callable[[Floats, Scalars], None]
#: (scale, c) → C⁻¹B for φ and for φ'.
increments: Callable[[Floats, Scalars], tuple[Scalars, Scalars]]
#: (r, trace) → where ``scale`` has C_rj, or −1 if weight r does not take that trace.
slot: Callable[[int, int], int]


class Layout:
    """The places of C in ``scale``, and the fields of a column.

    ``scale`` begins with C_rr of every vector and ends with the peak of every trace's scale. A column has H{r} of every
    vector, and for every trace the epoch E{j} that it is up to date with.
    """

    def __init__(self, rule: AnyRule) -> None:
        u = unrolled(rule)
        self.m, self.w, self.traces, self.takes = u.m, u.w, u.traces, u.feeds
        pairs = [(r, r) for r in u.vectors] + [(r, j) for r in u.weights for j in self.takes[r]]
        self.slot = {pair: i for i, pair in enumerate(pairs)}
        self.peaks = len(pairs)
        self.names = [f"H{r}" for r in u.vectors] + [f"E{j}" for j in self.traces]
        #: The field in which φ's columns are marked if the rule uses φ·φ': the stamp of the first trace. For want of
        #: one, a field of its own, which is 0 between steps and no part of the state.
        self.mark = f"E{u.w}" if "pq" in u.products else ""

    def fields(self, dtype: str) -> np.dtype[Any]:
        """One column."""
        names = dict.fromkeys([*self.names, self.mark] if self.mark else self.names)
        return np.dtype([(name, dtype if name[0] == "H" else STAMP[dtype]) for name in names])

    def fresh(self) -> NDArray[np.float64]:
        """C = 1, peaks = 1."""
        scale = np.zeros(self.peaks + len(self.traces))
        scale[: self.m] = scale[self.peaks :] = 1.0
        return scale


def add_limits(functions: Functions) -> None:
    """Give a kernel SHRUNK, LOW, HIGH and NEAR_THE_END of its dtype by value, so that its hash includes them."""
    functions.constant("SHRUNK", SHRUNK)
    functions.constant("LOW", LOW)
    functions.constant("HIGH", HIGH)
    functions.constant("NEAR_THE_END", _NEAR_THE_END[functions.dtype])


def functions_for(rule: AnyRule, dtype: str, kind: type[Functions] = Functions) -> Functions:
    """The functions of this rule that ``sparse_kernels`` calls, beside those of this kind."""
    functions, at = kind(rule, dtype), Layout(rule)
    add_limits(functions)
    functions.add("at_least_one(size)", f"return {tuple_of(f'max(size[{r}], 1.0)' for r in functions.u.vectors)}")
    functions.constant("PEAKS", at.peaks)
    functions.constant("PERIOD", int(np.iinfo(STAMP[dtype]).max))
    _of_columns(functions, at)
    _of_scales(functions, at)
    return functions


def _of_columns(functions: Functions, at: Layout) -> None:
    u, add, w = functions.u, functions.add, at.w

    def owed(j: int, h: list[str], found: str) -> list[str]:
        """Lines that pay for trace j where s is its stamp; ``h`` has the place of each vector, ``found`` H_j now."""
        paid = [f"{h[r]} += table[{j - w}, s, {r}] * {found}" for r in u.weights if j in at.takes[r]]
        return [*paid, f"{h[j]} = {found} * table[{j - w}, s, {w}]"]

    def where_due(j: int, *lines: str) -> list[str]:
        return [f"s = column['E{j}']", f"if s != e[{j - w}]:", *(f"    {line}" for line in lines)]

    fields = [f"column['H{r}']" for r in u.vectors]
    h = [f"h{r}" for r in u.vectors]
    add("epochs(epoch)", f"return {tuple_of([f'epoch[{2 * (j - w)}]' for j in u.traces] or ['0'])}")
    add(
        "fetch(column, e, table)",
        *_joined(
            where_due(j, f"h = {fields[j]}", *owed(j, fields, "h"), f"column['E{j}'] = e[{j - w}]") for j in u.traces
        ),
    )
    add(
        "present(column, scale, e, table)",
        *(f"{name} = np.float64({field})" for name, field in zip(h, fields, strict=True)),
        *_joined(where_due(j, *owed(j, h, h[j])) for j in u.traces),
        f"return combine(scale, {tuple_of(h)})",
    )
    reset = [f"column['E{j}'] = 0" for j in u.traces]
    add("place(column, z)", *(f"{field} = z[{r}]" for r, field in enumerate(fields)), *reset)
    totals = (f"sums[{r}] + {field} * v" for r, field in enumerate(fields))
    add("add_held(sums, column, v)", f"return {tuple_of(totals)}")
    add("add_phi(column, u, p)", *(f"{field} += u[{r}] * p" for r, field in enumerate(fields)))
    add("add_phi_next(column, u, q)", *(f"{fields[r]} += u[{i}] * q" for i, r in enumerate(u.takes_next)))
    add("mark(column, position)", f"column['{at.mark}'] = position" if at.mark else "pass")
    add("marked(column)", f"return column['{at.mark}']" if at.mark else "return 0")


def _of_scales(functions: Functions, at: Layout) -> None:
    u, add, C = functions.u, functions.add, at.slot
    factors = {r: u.entry(f"a{r}_{r}") for r in u.vectors}
    rows = [[f"scale[{r}] * h[{r}]", *(f"scale[{C[r, j]}] * h[{j}]" for j in at.takes.get(r, []))] for r in u.vectors]
    add("combine(scale, h)", f"return {tuple_of(' + '.join(row) for row in rows)}")
    add(
        "advance(scale, c)",
        *functions.unpack("c"),
        *(
            f"scale[{C[r, j]}] = {factors[r]} * scale[{C[r, j]}] + {u.entry(f'a{r}_{j}')} * scale[{j}]"
            for r in u.weights
            for j in at.takes[r]
        ),
        *(f"scale[{r}] *= {factor}" for r, factor in factors.items() if factor != "1.0"),
    )
    less = {r: "".join(f" - scale[{C[r, j]}] * u{j}" for j in at.takes[r]) for r in u.weights}
    of_next = (f"{u.entry(f'd{r}')} / scale[{r}]" for r in u.takes_next)
    add(
        "increments(scale, c)",
        *functions.unpack("c"),
        *(f"u{j} = {u.entry(f'b{j}')} / scale[{j}]" for j in u.traces),
        *(f"u{r} = ({u.entry(f'b{r}')}{less[r]}) / scale[{r}]" for r in u.weights),
        f"return {tuple_of(f'u{r}' for r in u.vectors)}, {tuple_of(of_next)}",
    )
    cases = ((f"if r == {r} and trace == {j - at.w}:", f"    return {C[r, j]}") for r in u.weights for j in at.takes[r])
    add("slot(r, trace)", *_joined(cases), "return -1")


def _joined(groups: Iterable[Iterable[str]]) -> list[str]:
    return [line for group in groups for line in group]
