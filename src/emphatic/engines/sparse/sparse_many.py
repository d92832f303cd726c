"""sparse for K learners: shared active columns, one contiguous run of all learners' values a feature.

X = C·H as for one learner (SPARSE.md), with C of each learner its own. A stamp per learner and column would cost as
much as a vector, so here a learner whose trace has shrunk *folds*: the columns that still have a trace for it are
visited, the latest touched first. A learner that forgets its trace (ρ, γ or λ is 0) visits only what was touched
since it last did so, and nothing if no weight has used the trace since.

Cost per step: O(m K active), and O(m K live columns) each time the traces have shrunk to 1/100. Memory: m K n numbers
and 44 bytes per feature.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numba import types
from numpy.typing import NDArray

from emphatic.engines import compiled
from emphatic.engines.base import Arrays, Engine, Features
from emphatic.engines.rows import Rows
from emphatic.engines.sparse.columns_kernels import LANES, NEVER
from emphatic.engines.sparse.engine import choose_bounds, hold
from emphatic.engines.sparse.sparse_many_functions import rows_of, sparse_many_functions
from emphatic.engines.unrolled import unrolled
from emphatic.engines.watch import Watch

if TYPE_CHECKING:
    from emphatic.rules import Rule

__all__ = ["SparseMany"]


@functools.cache
def kernel(rule: Rule, dtype: str, name: str, interpreted: bool) -> Any:
    """One of the functions of ``sparse_many_kernels``, for this rule."""
    real, f8, i8, i4, flag = getattr(types, dtype), types.float64, types.int64, types.int32, types.boolean
    text = compiled.compose(sparse_many_functions(rule, dtype), "sparse.columns_kernels", "sparse.sparse_many_kernels")
    module = compiled.module(f"sparse_many_{rule.name}_{dtype}", text)

    def array(of: Any, ndim: int, layout: Literal["C", "A"] = "C", readonly: bool = False) -> Any:
        return types.Array(of, ndim, layout, readonly=readonly)

    index = array(i8, 1, readonly=True)
    rows = (index, index, array(f8, 1, "A", readonly=True))
    state = (array(real, 2), array(f8, 2), array(i4, 1), array(i4, 2))
    log = (array(i4, 2), array(i4, 1), array(i8, 1))
    learners = (array(f8, 2), array(f8, 1))
    phi = (array(i4, 1), array(f8, 1), array(f8, 1))
    draws = (array(real, 1), array(real, 1))
    scratch = (array(f8, 2), array(f8, 2), array(i4, 1), *draws, array(real, 2), array(i4, 1), array(i4, 2))
    parameters = compiled.several(array(f8, 2, "A", readonly=True), len(rule.parameters))
    given = (array(flag, 1), flag, *rows, *rows, f8, flag, parameters, array(real, 2))
    signature = {
        "run": (*state, *log, *learners, *phi, *phi, *scratch, *given),
        "predict": (*state, *phi, *rows, array(f8, 2)),
        "settle_some": (*state, i8, i8),
    }
    return compiled.kernel(module, name, *signature[name])


#: What a learner is made of in a checkpoint, and along which axis of the array the learners lie.
_LEARNERS = {"H": 2, "diag": 1, "take": 2, "peak": 1, "since": 1, "mark": 1, "left": 1}
#: The time at which the clock starts again.
_MIDNIGHT = NEVER - 1


class SparseMany(Engine):
    """X = C·H of K learners on one stream."""

    name = "sparse"
    takes_rows = True

    def __init__(self, rule: Rule, n: int, K: int, dtype: str) -> None:
        super().__init__(rule, n, K, dtype)
        u, rows = unrolled(rule), rows_of(rule)
        m, w, q = u.m, u.w, len(u.traces)
        #: H; C, and what else is known of the traces' scales; since when columns count, by vector and learner.
        self._H = np.zeros((n, m * K), dtype)
        self._scale = np.zeros((rows["SCALE"], K))
        self._scale[:m] = self._scale[rows["PEAK"] :] = 1.0
        self._since = np.zeros(m * K, np.int32)
        #: Of each column, when it was last touched, and its place in the log; see ``columns_kernels``.
        self._places = np.zeros((2, n), np.int32)
        self._places[1] = -1
        #: The traces' marks, the log, and the time with the length of the log.
        self._marks = np.zeros((q, K), np.int32)
        self._log = np.zeros(3 * n, np.int32)
        self._clock = np.zeros(2, np.int64)
        #: Valid only within a step: φ and φ' as lists and as arrays, and X·φ and X·φ';
        self._phi, self._phi_next = ((np.zeros(n, np.int32), np.zeros(n), np.zeros(m * K)) for _ in range(2))
        #: the same for predictions;
        self._rooms: list[tuple[NDArray[Any], ...]] = []
        #: and what comes of them, in the order of the kernel's arguments.
        self._scratch = (
            np.zeros((rows["FORM"], K)),
            np.zeros_like(self.scalars),
            np.zeros(K, np.int32),
            np.zeros(m * K, dtype),
            np.zeros(rows["NEXT"] * K, dtype),
            np.zeros((w + 1, K), dtype),
            np.zeros(K, np.int32),
            np.zeros((3, -(-K // LANES)), np.int32),
        )

    @property
    def grain(self) -> tuple[int, int]:
        return 1, 0

    def make_kernel(self, name: str) -> Any:
        made = compiled.direct(kernel(self.rule, self.dtype, name, compiled.interpreted()))
        state: Any = (self._H, self._scale, self._since, self._places)
        if name == "run":
            state += (self._marks, self._log, self._clock, self.scalars, self.delta)
            state += (*self._phi, *self._phi_next, *self._scratch)
        return functools.partial(made, *state)

    def run(
        self, phi: Features, phi_next: Features, top: float, parameters: Arrays, predictions: NDArray[Any], watch: Watch
    ) -> int:
        if watch.probe is None:
            return self.take(phi, phi_next, top, parameters, predictions, watch)
        return super().run(phi, phi_next, top, parameters, predictions, watch)

    def take(
        self, phi: Features, phi_next: Features, top: float, parameters: Arrays, predictions: NDArray[Any], watch: Watch
    ) -> int:
        assert isinstance(phi, Rows)
        assert isinstance(phi_next, Rows)
        self._make_time(len(phi))
        status: int = self._compiled("run")(
            watch.frozen, watch.freeze, phi.start, phi.index, phi.value, phi_next.start, phi_next.index, phi_next.value,
            top, True, parameters, predictions,
        )  # fmt: skip
        return status

    def stepper(self, single: bool) -> Any:
        run, start, start_next = self._compiled("run"), np.zeros(2, np.int64), np.zeros(2, np.int64)
        none = np.empty((0, self.K), self.dtype)

        def step(phi: Any, phi_next: Any, parameters: Arrays, frozen: NDArray[np.bool_]) -> NDArray[np.float64] | None:
            self._make_time(1)
            index, index_next = phi.indices, phi_next.indices
            start[1], start_next[1] = len(index), len(index_next)
            status = run(
                frozen, False, start, index, phi.values, start_next, index_next, phi_next.values, 0.0, False,
                parameters, none,
            )  # fmt: skip
            return self.delta.copy() if status == -1 else None

        return step

    def vector(self, r: int) -> NDArray[Any]:
        return np.concatenate(list(self.blocks(r)))

    def blocks(self, r: int) -> Iterator[NDArray[Any]]:
        # (every number is rounded as ``settle`` rounds it)
        u, c, touch = unrolled(self.rule), self._fields(), self._places[0]
        for first in range(0, self.K, LANES):
            some = slice(first, first + LANES)

            def trace(j: int, some: slice = some) -> NDArray[Any]:
                return np.where(touch[:, None] >= c["since"][j - u.w, some], c["H"][:, j, some], 0.0)

            value = c["diag"][r, some] * (trace(r) if r >= u.w else c["H"][:, r, some])
            for j in u.feeds.get(r, []):
                value = value + c["take"][r, j - u.w, some] * trace(j)
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
            room = tuple(np.zeros(part.shape, part.dtype) for part in self._phi)
        self._compiled("predict")(*room, phi.start, phi.index, phi.value, out)
        self._rooms.append(room)
        predictions: NDArray[Any] = out.astype(self.dtype, copy=False)
        return predictions

    def clear_traces(self) -> None:
        self._make_time(1)
        self._compiled("settle_some")(0, self.K)
        self._clock[0] += 1
        c = self._fields()
        c["since"][:] = c["mark"][:] = self._clock[0]
        c["left"][:] = 1.0

    def select(self, ks: NDArray[np.int64]) -> SparseMany:
        other = SparseMany(self.rule, self.n, len(ks), self.dtype)
        for name, array in other._fields().items():
            np.take(self._fields()[name], ks, _LEARNERS[name], out=array, mode="clip")
        other._share(self)
        other.scalars[:] = self.scalars[ks]
        return other

    def _share(self, other: SparseMany) -> None:
        """The same times as another's."""
        self._places[:], self._log[:], self._clock[:] = other._places, other._log, other._clock

    def join(self, parts: Sequence[Engine]) -> None:
        engines = [part for part in parts if isinstance(part, SparseMany)]
        np.concatenate([part.scalars for part in parts], out=self.scalars)
        if len(engines) < len(parts):  # single learners, each in its own form
            for r in range(len(self.rule.vectors)):
                self.set_vector(r, np.concatenate([part.vector(r) for part in parts]))
            return
        if not all(np.array_equal(engine._places[0], engines[0]._places[0]) for engine in engines):
            engines = [engine.select(np.arange(engine.K)) for engine in engines]
            for engine in engines:
                engine._settle()
        fields = [engine._fields() for engine in engines]
        for name, array in self._fields().items():
            np.concatenate([field[name] for field in fields], _LEARNERS[name], out=array)
        self._share(engines[0])

    def pending(self) -> dict[str, NDArray[Any]]:
        """C, H and the times as they are; the order of the log follows from the times."""
        times = {"touch": self._places[0], "clock": self._clock[:1]}
        return self._fields() | times | {"bounds": self.scalars[:, self.M : -1]}

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
        self.scalars[:, self.M : -1] = choose_bounds(pending["bounds"], own.pop("bounds"))
        for name, array in own.items():
            array[:] = pending[name]
        touch, where = self._places
        self._log[: self.n] = np.argsort(touch, kind="stable")
        where[self._log[: self.n]] = np.arange(self.n)
        self._clock[1] = self.n

    @property
    def nbytes(self) -> int:
        state = (self._H, self._scale, self._since, self._places, self._marks, self._log, self._clock, self.scalars)
        return sum(array.nbytes for array in (*state, *self._phi, *self._phi_next, *self._scratch))
