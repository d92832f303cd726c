"""sparse: exact, at a cost a step proportional to the active features, whatever n and γλ.  Derived in SPARSE.md.

X = C·H lazily, with C an arrow of scalars. A step multiplies C by A, touching no vector, and adds C⁻¹B[φ; φ'] to
the active columns of H. When the scale of a trace has shrunk to 1/100 of its peak, the trace's *epoch* is closed:
its scale becomes 1 again and no column is visited. Each column is stamped with the epoch it was last brought up to
date in, and a table says what a column of that epoch still owes; it pays when it is next active or read.

A column's values and stamps lie side by side in memory. For θ and e that is 20 bytes in float64 and 10 in float32:
2.5 numbers a weight, besides a table of max(4096, n/256) epochs (at most 32,767 in float32).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
from numba import types
from numpy.typing import NDArray

from emphatic.engines import compiled
from emphatic.engines.base import Arrays, Engine, Features
from emphatic.engines.rows import Rows
from emphatic.engines.sparse_text import STAMP, Layout, source
from emphatic.engines.text import Unrolled

if TYPE_CHECKING:
    from emphatic.rules import Rule

__all__ = ["Sparse", "believed", "hold"]


@functools.cache
def _kernel(rule: Rule, dtype: str, name: str) -> Any:
    f8, i8 = types.float64, types.int64
    module = compiled.module(f"sparse_{rule.name}_{dtype}", source(rule, dtype))
    layout = Layout(rule)
    column = np.zeros((1, 1), layout.fields(dtype))
    typeof: Any = numba.typeof
    state = [typeof(column[field]).copy(layout="A") for field in layout.names]
    state += [types.Array(f8, 2, "C"), types.Array(i8, 2, "C"), types.Array(f8, 4, "C")]
    index, value = types.Array(i8, 1, "C", readonly=True), types.Array(f8, 1, "A", readonly=True)
    scalars = types.Array(f8, 2, "C")
    rows = [index, index, value]
    if name == "learn":
        arguments = [*state, scalars, index, value, index, value, *[f8] * len(rule.parameters)]
    elif name == "settle_all":
        arguments = state
    elif name == "predict_one":
        arguments = [*state, index, value]
    elif name == "predict":
        arguments = [*state, *rows, types.Array(f8, 2, "C")]
    else:
        parameters = [types.Array(f8, 2, "A", readonly=True)] * len(rule.parameters)
        out = [types.Array(getattr(types, dtype), 2, "C"), types.Array(f8, 1, "C"), types.Array(f8, 2, "C")]
        arguments = [*state, scalars, *rows, *rows, f8, *parameters, *out]
    return compiled.kernel(module, name, *arguments)


class Sparse(Engine):
    """X = C·H, columns brought up to date when they are next active."""

    name = "sparse"
    takes_rows = True

    def __init__(self, rule: Rule, n: int, K: int, dtype: str) -> None:
        super().__init__(rule, n, K, dtype)
        self._layout = Layout(rule)
        self._columns = np.zeros((K, n), self._layout.fields(dtype))
        self._scale = self._layout.fresh(K)
        self._epoch = np.zeros((K, 2 * len(rule.traces)), np.int64)
        self._table = np.zeros(
            (K, len(rule.traces), min(max(4096, n // 256), np.iinfo(STAMP[dtype]).max), len(rule.weights) + 1)
        )
        u = Unrolled(rule)
        self._work = np.zeros((K, u.counter + 1 + len(u.coefficients)))
        self._delta = np.zeros(K)

    @property
    def _state(self) -> list[NDArray[Any]]:
        fields = [self._columns[name] for name in self._layout.names]
        return [*fields, self._scale, self._epoch, self._table]

    @property
    def grain(self) -> tuple[int, int]:
        return 1, 1

    def quick(self) -> Any:
        if self.K > 1:
            return None
        step = functools.partial(_kernel(self.rule, self.dtype, "learn"), *self._state, self.scalars)

        def learn(phi: Any, phi_next: Any, *parameters: float, **extra: float) -> float:
            delta: float = step(phi.indices, phi.values, phi_next.indices, phi_next.values, *parameters, **extra)
            return delta

        return learn

    def quick_predict(self) -> Any:
        if self.K > 1:
            return None
        value = functools.partial(_kernel(self.rule, self.dtype, "predict_one"), *self._state)
        return lambda phi: value(phi.indices, phi.values)

    def run(
        self, phi: Features, phi_next: Features, top: float, parameters: Arrays, predictions: NDArray[Any]
    ) -> tuple[int, NDArray[np.float64]]:
        assert isinstance(phi, Rows)
        assert isinstance(phi_next, Rows)
        rows = (phi.start, phi.index, phi.value, phi_next.start, phi_next.index, phi_next.value)
        status = _kernel(self.rule, self.dtype, "run")(
            *self._state, self.scalars, *rows, top, *parameters, predictions, self._delta, self._work
        )
        return status, self._delta

    def vector(self, r: int) -> NDArray[Any]:
        at, w = self._layout, self._layout.w
        k = np.arange(self.K)[:, None]
        C = {pair: self._scale[:, slot, None] for pair, slot in at.slot.items()}

        def owed(j: int, what: int, now: float) -> NDArray[np.float64]:
            stamp = self._columns[f"E{j}"]
            entry = self._table[k, j - w, np.minimum(stamp, self._table.shape[2] - 1), what]
            return np.where(stamp == self._epoch[:, 2 * (j - w), None], now, entry)

        value: NDArray[Any] = C[r, r] * self._columns[f"H{r}"]
        if r >= w:
            value = value * owed(r, w, 1.0)
        for j in at.takes.get(r, []):
            value += (C[r, r] * owed(j, r, 0.0) + C[r, j] * owed(j, w, 1.0)) * self._columns[f"H{j}"]
        return value.astype(self.dtype, copy=False)

    def _settle(self) -> None:
        _kernel(self.rule, self.dtype, "settle_all")(*self._state)

    def place(self, ks: NDArray[np.int64], part: Any) -> None:
        self._columns[ks], self._scale[ks], self._epoch[ks] = part._columns, part._scale, part._epoch
        self._table[ks], self.scalars[ks] = part._table, part.scalars

    def set_vector(self, r: int, value: NDArray[Any]) -> None:
        self._settle()
        self._columns[f"H{r}"] = value

    def predict(self, phi: Features) -> NDArray[Any]:
        assert isinstance(phi, Rows)
        out = np.zeros((len(phi), self.K))
        _kernel(self.rule, self.dtype, "predict")(*self._state, phi.start, phi.index, phi.value, out)
        predictions: NDArray[Any] = out.astype(self.dtype, copy=False)
        return predictions

    def clear_traces(self) -> None:
        self._settle()
        for j in self._layout.traces:
            self._columns[f"H{j}"] = 0.0

    def like(self, K: int) -> Engine:
        if K == 1:
            return Sparse(self.rule, self.n, 1, self.dtype)
        from emphatic.engines.sparse_many import SparseMany

        return SparseMany(self.rule, self.n, K, self.dtype)

    def pending(self) -> dict[str, NDArray[Any]]:
        """C, H and the stamps as they are, and of the table what some column may still owe."""
        used = int(self._epoch[:, ::2].max())
        fields = {name: self._columns[name] for name in self._layout.names}
        fields["bounds"] = self.scalars[:, self.M : -1]
        return fields | {"scale": self._scale, "epoch": self._epoch, "table": self._table[:, :, :used]}

    def resume(self, pending: dict[str, NDArray[Any]]) -> None:
        if not pending:
            return
        K, traces, width = self.K, len(self.rule.traces), self._table.shape[3]
        epoch, table = pending["epoch"], pending["table"]
        hold("epoch", epoch, "int64", self._epoch.shape)
        now = epoch[:, ::2]
        if not ((epoch[:, 1::2] >= 0) & (epoch[:, 1::2] <= now) & (now < self._table.shape[2])).all():
            raise ValueError("its epochs are out of range")
        used = int(now.max())
        hold("table", table[:, :, :used], "float64", (K, traces, used, width))
        hold("scale", pending["scale"], "float64", self._scale.shape)
        if not (pending["scale"][:, : self._layout.m] != 0.0).all():
            raise ValueError("one of its scales is 0")
        for name in self._layout.names:
            hold(name, pending[name], self._columns.dtype[name].name, (K, self.n))
            if name[0] == "E":
                stamp, j = pending[name], int(name[1:]) - self._layout.w
                if not ((stamp >= 0) & (stamp <= now[:, j, None])).all():
                    raise ValueError(f"its stamps {name!r} are out of range")
        bounds = self.scalars[:, self.M : -1]
        hold("bounds", pending["bounds"], "float64", bounds.shape)
        bounds[:] = believed(pending["bounds"], bounds)
        for name in self._layout.names:
            self._columns[name] = pending[name]
        self._scale[:], self._epoch[:] = pending["scale"], epoch
        self._table[:, :, :used] = table[:, :, :used]

    @property
    def nbytes(self) -> int:
        arrays = (self._columns, self._scale, self._epoch, self._table, self.scalars, self._work)
        return sum(array.nbytes for array in arrays)


def hold(name: str, array: NDArray[Any], dtype: str, shape: tuple[int, ...]) -> None:
    """An array of a checkpoint against what is due."""
    if array.dtype != dtype or array.shape != shape or not np.isfinite(array).all():
        raise ValueError(f"its {name!r} is {array.dtype} of shape {array.shape}, where finite {dtype} {shape} is due")


def believed(saved: NDArray[np.float64], found: NDArray[np.float64]) -> NDArray[np.float64]:
    """Bounds on |X| as they were saved, unless what was found is larger by more than rounding."""
    return np.where(saved >= (1.0 - 1e-9) * found, saved, found)
