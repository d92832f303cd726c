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
import math
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
from numba import types
from numpy.typing import NDArray

from emphatic.engines import compiled
from emphatic.engines.base import Arrays, Engine, Features, Rows, Watch
from emphatic.engines.sparse.sparse_functions import STAMP, Layout, functions_for

if TYPE_CHECKING:
    from emphatic.rules import Rule

__all__ = ["Sparse", "choose_bounds", "hold"]


@functools.cache
def kernel(rule: Rule, dtype: str, name: str, interpreted: bool) -> Any:
    """One of the functions of ``sparse_kernels``, for this rule."""
    f8, i8 = types.float64, types.int64
    functions = functions_for(rule, dtype)
    functions.add_learn("columns, scale, epoch, table, scalars, index, value, index_next, value_next")
    module = compiled.module(f"sparse_{rule.name}_{dtype}", compiled.compose(functions, "sparse.sparse_kernels"))
    column: Any = numba.from_dtype(Layout(rule).fields(dtype))
    flat, scalars = types.Array(f8, 1, "C"), types.Array(f8, 2, "C")
    state = (types.Array(column, 1, "C"), flat, types.Array(i8, 1, "C"), types.Array(f8, 3, "C"))
    index, value = types.Array(i8, 1, "C", readonly=True), types.Array(f8, 1, "A", readonly=True)
    rows = (index, index, value)
    count = len(rule.parameters)
    parameters = compiled.several(types.Array(f8, 2, "A", readonly=True), count)
    signature = {
        "learn": (*state, scalars, index, value, index, value, *[f8] * count),
        "run": (*state, scalars, *rows, *rows, parameters, types.Array(getattr(types, dtype), 2, "C"), flat),
        "settle_all": state,
        "predict_one": (*state, index, value),
        "predict": (*state, *rows, scalars),
    }
    return compiled.kernel(module, name, *signature[name])


class Sparse(Engine):
    """X = C·H of one learner, columns brought up to date when they are next active."""

    name = "sparse"
    takes_rows = True

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

    def stepper(self, single: bool) -> Any:
        step = functools.partial(self._compiled("learn"), *self._state, self.scalars)

        def learn(phi: Any, phi_next: Any, *parameters: float) -> float:
            delta: float = step(phi.indices, phi.values, phi_next.indices, phi_next.values, *parameters)
            return delta

        return learn

    def predictor(self) -> Any:
        value = functools.partial(self._compiled("predict_one"), *self._state)
        if compiled.interpreted():  # (compiled, it refuses arrays of two dimensions itself)
            return lambda phi: value(phi.indices, phi.values) if phi.indices.ndim == 1 else math.nan
        return lambda phi: value(phi.indices, phi.values)

    def take(
        self, phi: Features, phi_next: Features, top: float, parameters: Arrays, predictions: NDArray[Any], watch: Watch
    ) -> int:
        assert isinstance(phi, Rows)
        assert isinstance(phi_next, Rows)
        T, t = len(phi), 0
        status: int
        if not watch.frozen[0]:
            rows = (phi.start, phi.index, phi.value, phi_next.start, phi_next.index, phi_next.value)
            status = self._compiled("run")(*self._state, self.scalars, *rows, parameters, predictions, self.delta)
            if status == -1 or not watch.freeze:
                return status
            t, watch.frozen[0] = status, True
        with np.errstate(all="ignore"):  # the last weights are finite, what they predict need not be
            if len(predictions):
                predictions[t:T] = self.predict(phi.block(t, T))
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
        self._settle()
        for j in self._layout.traces:
            self._columns[f"H{j}"] = 0.0

    def like(self, K: int) -> Engine:
        if K == 1:
            return Sparse(self.rule, self.n, 1, self.dtype)
        from emphatic.engines.sparse.sparse_many import SparseMany

        return SparseMany(self.rule, self.n, K, self.dtype)

    def pending(self) -> dict[str, NDArray[Any]]:
        """C, H and the stamps as they are, and of the table what some column may still owe; each with an axis K = 1."""
        used = int(self._epoch[::2].max(initial=0))
        fields = {name: self._columns[name] for name in self._layout.names}
        scales = {"scale": self._scale, "epoch": self._epoch, "table": self._table[:, :used]}
        return {name: array[None] for name, array in (fields | scales).items()} | {
            "bounds": self.scalars[:, self.M : -1]
        }

    def resume(self, pending: dict[str, NDArray[Any]]) -> None:
        if not pending:
            return
        traces, width = len(self.rule.traces), self._table.shape[2]
        hold("epoch", pending["epoch"], "int64", (1, *self._epoch.shape))
        epoch = pending["epoch"][0]
        present = epoch[::2]
        if not ((epoch[1::2] >= 0) & (epoch[1::2] <= present) & (present < self._table.shape[1])).all():
            raise ValueError("its epochs are out of range")
        used = int(present.max(initial=0))
        table = pending["table"][:, :, :used]
        hold("table", table, "float64", (1, traces, used, width))
        hold("scale", pending["scale"], "float64", (1, *self._scale.shape))
        if not (pending["scale"][:, : self._layout.m] != 0.0).all():
            raise ValueError("one of its scales is 0")
        for name in self._layout.names:
            hold(name, pending[name], self._columns.dtype[name].name, (1, self.n))
            if name[0] == "E":
                stamp, j = pending[name], int(name[1:]) - self._layout.w
                if not ((stamp >= 0) & (stamp <= present[j])).all():
                    raise ValueError(f"its stamps {name!r} are out of range")
        bounds = self.scalars[:, self.M : -1]
        hold("bounds", pending["bounds"], "float64", bounds.shape)
        bounds[:] = choose_bounds(pending["bounds"], bounds)
        for name in self._layout.names:
            self._columns[name] = pending[name][0]
        self._scale[:], self._epoch[:], self._table[:, :used] = pending["scale"][0], epoch, table[0]

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in (*self._state, self.scalars))


def hold(name: str, array: NDArray[Any], dtype: str, shape: tuple[int, ...]) -> None:
    """Check an array of a checkpoint against the expected dtype and shape."""
    if array.dtype != dtype or array.shape != shape or not np.isfinite(array).all():
        raise ValueError(
            f"its {name!r} is {array.dtype} of shape {array.shape}, where finite {dtype} {shape} is expected"
        )


def choose_bounds(saved: NDArray[np.float64], found: NDArray[np.float64]) -> NDArray[np.float64]:
    """Bounds on |X| as they were saved, unless what was found is larger by more than rounding."""
    return np.where(saved >= (1.0 - 1e-9) * found, saved, found)
