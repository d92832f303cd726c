"""Engines and what passes between them and a learner: features in rows, and what is watched in a run."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

if TYPE_CHECKING:
    from emphatic.rules import AnyRule

__all__ = [
    "UNBROKEN",
    "UNFIT",
    "ArrayEngine",
    "Arrays",
    "DenseSteps",
    "Engine",
    "Features",
    "Flags",
    "Probe",
    "Row",
    "Rows",
    "Steps",
    "StoredArray",
    "Watch",
    "block",
]

#: The status of a run whose features are not all finite: it stopped somewhere, and its state is invalid.
UNFIT = -2

Arrays = tuple[NDArray[np.float64], ...]
Flags = NDArray[np.bool_]
#: The mask of a run in which no step begins a sequence.
UNBROKEN: Flags = np.zeros(0, np.bool_)
#: X and the scalars, copied.
Snapshot = tuple[NDArray[Any], NDArray[np.float64]]
#: Some of the learners.
Indices = slice | NDArray[np.int64]


class Row(Protocol):
    """One sparse φ: the indices of its active features, and their values."""

    @property
    def indices(self) -> NDArray[np.int64]: ...

    @property
    def values(self) -> NDArray[np.float64]: ...


class StoredArray(Protocol):
    """An array in a file that is read in pieces."""

    @property
    def dtype(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    def array(self) -> NDArray[Any]:
        """The whole array."""

    def into(self, out: NDArray[Any], first: int = 0) -> None:
        """Fill a contiguous array with the numbers from the ``first`` on."""

    def pieces(self) -> Iterator[tuple[int, int, NDArray[Any]]]:
        """(row, first, numbers) of all numbers in C order, as a matrix of rows of the last axis; in one buffer."""


@dataclass(eq=False, slots=True)
class Rows:
    """Row t has the features ``index[start[t]:start[t+1]]``, −1 being "none", with the ``value`` of each."""

    start: NDArray[np.int64]
    index: NDArray[np.int64]
    value: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.start) - 1

    @property
    def indices(self) -> NDArray[np.int64]:
        """All indices; of one row, what ``Active`` calls so."""
        return self.index[self.start[0] : self.start[-1]]

    @property
    def values(self) -> NDArray[np.float64]:
        """The values of ``indices``."""
        return self.value[self.start[0] : self.start[-1]]

    def block(self, begin: int, end: int) -> Rows:
        """Rows begin … end−1, without a copy."""
        return Rows(self.start[begin : end + 1], self.index, self.value)

    def dense(self, n: int, dtype: DTypeLike) -> NDArray[Any]:
        """The same as an array (T, n)."""
        out = np.zeros((len(self), n), dtype)
        row = np.repeat(np.arange(len(self)), np.diff(self.start))
        active = (self.indices >= 0) & (self.indices < n)
        out[row[active], self.indices[active]] = self.values[active]
        return out

    @staticmethod
    def of(dense: NDArray[Any]) -> Rows:
        """The components of an array (T, n) that are not zero."""
        row, index = np.nonzero(dense)
        start = np.zeros(len(dense) + 1, np.int64)
        np.cumsum(np.bincount(row, minlength=len(dense)), out=start[1:])
        return Rows(start, index.astype(np.int64), dense[row, index].astype(np.float64))


#: φ of several steps: (T, n), or compressed.
Features = NDArray[Any] | Rows


def once(p: NDArray[Any]) -> NDArray[Any]:
    """A parameter (T, K) without the axes along which it is constant by its strides."""
    return p[tuple(slice(None) if stride else slice(0, 1) for stride in p.strides)]


def survey(index: NDArray[np.int64], start: NDArray[np.int64]) -> tuple[int, bool, int]:
    """(row, repeated, index) of the first row with an index below −1 or repeated.

    (−1, False, the largest index) if there is none.
    """
    from emphatic.engines import scan

    return scan.survey(index, start)


def block(features: NDArray[Any] | Rows, begin: int, end: int) -> NDArray[Any] | Rows:
    """The features of these steps, without a copy."""
    return features.block(begin, end) if isinstance(features, Rows) else features[begin:end]


@dataclass(frozen=True, eq=False)
class Probe:
    """The root mean square value error sqrt(Σ d (Phi_s θ − v)² / Σ d) of any θ, as ‖U θ − q‖.

    ``R`` is [U | q], the triangle of a QR decomposition of sqrt(d/Σd)·[Phi_s | v]: an orthogonal transform preserves
    the length of Phi_s θ − v, and is as exact as the sum over states itself. It has min(S, n+1) rows, of which row i is
    0 before column i: n(n+1)/2 products for each θ, whatever S. The error that no θ can remove is in row n.

    ``R`` is (1, rows, n+1) where all learners have the same values and weights, else (K, rows, n+1).

    Where the squares overflow, the error is infinity.
    """

    R: NDArray[np.float64]

    @staticmethod
    def of(Phi_s: NDArray[np.float64], v: NDArray[np.float64], d: NDArray[np.float64]) -> Probe:
        """The probe of these states' features, values and weights, both (S,), or one of them or both (K, S)."""
        v, d = np.broadcast_arrays(np.atleast_2d(v), np.atleast_2d(d))
        triangles = []
        for values, weight in zip(v, d, strict=True):
            weighted = np.sqrt(weight / weight.sum())[:, None] * np.column_stack([Phi_s, values])
            triangles.append(np.linalg.qr(weighted, mode="r"))
        return Probe(np.ascontiguousarray(triangles))

    @property
    def shared(self) -> bool:
        """Whether all learners have one goal."""
        return len(self.R) == 1

    def __call__(self, theta: NDArray[Any], learners: Indices = slice(None)) -> NDArray[np.float64]:
        """The error of each row of θ, those of these learners, (K,)."""
        with np.errstate(all="ignore"):
            x = theta.astype(np.float64)
            if self.shared:
                off = x @ self.R[0, :, :-1].T - self.R[0, :, -1]
            else:
                R = self.R[learners]
                off = (R[:, :, :-1] @ x[:, :, None])[:, :, 0] - R[:, :, -1]
            square = np.square(off).sum(axis=1)
            return np.where(square <= np.finfo(np.float64).max, np.sqrt(square), np.inf)


_NO_ERRORS = np.empty((0, 0))


@dataclass(eq=False, slots=True)
class Watch:
    """What is watched in a run of K learners."""

    #: Which learners are frozen, (K,); with ``freeze``, those that would diverge are added.
    frozen: NDArray[np.bool_]
    freeze: bool = False
    #: Before steps ``first``, ``first`` + ``every``, … the learners' errors go into the next row of ``errors``, (…, K).
    probe: Probe | None = None
    errors: NDArray[np.float64] = field(default_factory=lambda: _NO_ERRORS)
    every: int = 1
    first: int = 0

    def steps(self, T: int) -> range:
        """The steps of T before which errors are recorded."""
        return range(T, T) if self.probe is None else range(self.first, T, self.every)

    def write(self, begin: int, end: int, theta: NDArray[Any], learners: Indices = slice(None)) -> None:
        """Record the errors of these learners before steps begin … end − 1, with unchanged weights."""
        if self.probe is not None:
            rows = slice(*(max(0, -(-(t - self.first) // self.every)) for t in (begin, end)))
            self.errors[rows, learners] = self.probe(theta, learners)


#: φ as an engine reads it.
FeaturesType = TypeVar("FeaturesType", bound=Features)


class Steps(NamedTuple, Generic[FeaturesType]):
    """The T steps of a run: what they learn from, and where their results go.

    ``parameters`` are (T, K), in the rule's order; no component of φ or φ' is larger than ``top``. ``predictions``
    (T, K) get θ_t·φ_t, unless they have no rows; if they have one row more than there are steps, that is θ·φ' after the
    last of them. ``first`` (T,) is True where a step begins a sequence: before that step, all learners do what ``cut``
    does.
    """

    phi: FeaturesType
    phi_next: FeaturesType
    top: float
    parameters: Arrays
    predictions: NDArray[Any]
    watch: Watch
    first: Flags = UNBROKEN

    def between(self, begin: int, end: int) -> Steps[Any]:
        """The steps begin … end − 1."""
        phi, phi_next = block(self.phi, begin, end), block(self.phi_next, begin, end)
        room = self.predictions[begin:end] if len(self.predictions) else self.predictions
        parameters = tuple(p[begin:end] for p in self.parameters)
        return Steps(phi, phi_next, self.top, parameters, room, self.watch, self.first[begin:end])


DenseSteps = Steps[NDArray[Any]]


class Engine(ABC):
    """K learners of one rule. Engines trust their input: the learner has checked it.

    ``scalars`` is (K, M + m + 1), float64: a learner's M remembered scalars, for each of its m vectors a bound on
    its largest component, and the count of steps.
    """

    name: ClassVar[str]
    #: Whether φ comes as compressed ``Rows`` (True) or as an array (T, n).
    takes_rows: ClassVar[bool]
    #: Whether φ and parameters may also be torch tensors, which stay where they are.
    takes_tensors: ClassVar[bool] = False
    #: Whether ``take`` itself starts the sequences of a mask. If not, ``run`` takes them one by one, with a ``cut`` in
    #: between.
    starts_sequences: ClassVar[bool] = True
    #: Whether the vectors follow from what ``pending`` returns: a checkpoint then holds only that.
    pending_gives_vectors: ClassVar[bool] = False
    rule: AnyRule

    def __init__(self, rule: AnyRule, n: int, K: int, dtype: str) -> None:
        self.rule = rule
        self.n, self.K, self.dtype = n, K, dtype
        self.M = len(rule.memory)
        self.scalars: NDArray[np.float64] = np.zeros((K, self.M + len(rule.vectors) + 1))
        #: δ of the last step.
        self.delta: NDArray[np.float64] = np.zeros(K)
        self._kernels: dict[str, Any] = {}

    def make_kernel(self, name: str) -> Any:
        """One of the engine's kernels, compiled for its rule and dtype."""
        raise NotImplementedError(f"{self.name} has no kernels")

    def learn_row(self, phi: Any, phi_next: Any, top: float, parameters: Arrays, frozen: Flags) -> NDArray[Any]:
        """``run`` on one step, in which who would diverge is frozen: θ·φ' after it, (1, K)."""
        predictions: NDArray[Any] = np.empty((2, self.K), self.dtype)
        self.run(Steps(phi, phi_next, top, parameters, predictions, Watch(frozen, True)))
        return predictions[1:]

    def place(self, rows: NDArray[Any]) -> Any:
        """Rows of φ where the engine looks them over fastest: the same array, or a tensor on its device."""
        return rows

    def dense(self, phi: Rows, phi_next: Rows) -> tuple[Any, Any]:
        """Compressed φ and φ' of several steps as arrays (T, n), where the engine has them."""
        return phi.dense(self.n, self.dtype), phi_next.dense(self.n, self.dtype)

    def _compiled(self, name: str) -> Any:
        """The same, compiled on first use."""
        kernel = self._kernels.get(name)
        if kernel is None:
            kernel = self._kernels[name] = self.make_kernel(name)
        return kernel

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_kernels": {}}  # machine code is valid in one process only

    @property
    @abstractmethod
    def grain(self) -> tuple[int, int]:
        """(steps, learners), 0 meaning all of them.

        A run in pieces whose lengths are multiples of these steps (the last of any length), and a horde in parts that
        are multiples of these learners, give the same bits as the whole.
        """

    @property
    def counts(self) -> NDArray[np.float64]:
        """The number of steps of each learner, (K,)."""
        return self.scalars[:, -1]

    def run(self, steps: Steps[Any]) -> int:
        """Run T steps; −1, or t·K + k if learner k would diverge at step t (then every learner is as before step t).

        ``delta`` is then the last step's δ. A frozen learner predicts with the weights it has, and has a δ. With
        ``watch.freeze`` one that would diverge is frozen before that step, and the status is −1. Errors are recorded as
        ``watch`` specifies.
        """
        T = len(steps.phi)
        at_once = steps.watch.probe is None and (self.starts_sequences or not len(steps.first))
        status = self.take(steps) if at_once else self._take_pieces(steps)
        if status == -1 and len(steps.predictions) > T:
            with np.errstate(all="ignore"):
                steps.predictions[T] = self.predict(block(steps.phi_next, T - 1, T))[0]
        return status

    def _take_pieces(self, steps: Steps[Any]) -> int:
        """``take`` from one probe, or sequence, to the next."""
        T, watch, breaks = len(steps.phi), steps.watch, steps.first
        probed, plain = watch.steps(T), replace(watch, probe=None)
        starts = set() if self.starts_sequences else set(np.flatnonzero(breaks).tolist())
        for begin, end in itertools.pairwise(sorted({0, *probed, *starts, T})):
            if len(breaks) and breaks[begin]:
                self.cut()  # (before the errors are computed: it may change the last bit of a weight)
            if begin in probed:
                watch.write(begin, begin + 1, self.vector(0))
            piece = steps.between(begin, end)._replace(watch=plain)
            status = self.take(piece if self.starts_sequences else piece._replace(first=UNBROKEN))
            if status != -1:
                return begin * self.K + status if status >= 0 else status
        return -1

    @abstractmethod
    def take(self, steps: Steps[Any]) -> int:
        """``run`` without recording errors: each engine's own implementation."""

    def stepper(self, single: bool) -> Callable[..., Any] | None:
        """A function that runs one step and returns δ; None if nothing is faster than ``run`` with T = 1.

        For a ``single`` learner it takes (phi, phi_next, *step), one number per parameter, and returns a number; for a
        horde (phi, phi_next, parameters, frozen), (1, K) per parameter, and returns (K,). It checks everything except
        types, and returns NaN or None, having changed nothing, if anything is invalid.
        """
        return None

    def direct_learn(self) -> tuple[Any, ...] | None:
        """For a single learner on dense rows: the function of one step, as ``stepper`` has it, and its first arguments.

        It does not look at types: φ and φ' must be contiguous arrays of the engine's dtype with one axis, and every
        parameter a float. None if the engine has no such function.
        """
        return None

    @property
    def looks_over(self) -> bool:
        """Whether ``run`` itself detects features that are not finite: it then stops, and ``restore`` must follow."""
        return False

    def snapshot(self) -> Snapshot:
        """What ``restore`` needs to undo a run; for engines that check features."""
        raise NotImplementedError(f"{self.name} does not look features over")

    def restore(self, snapshot: Snapshot) -> None:
        """Restore the state of that snapshot."""
        raise NotImplementedError(f"{self.name} does not look features over")

    @abstractmethod
    def vector(self, r: int) -> NDArray[Any]:
        """A copy of the r-th vector of every learner, (K, n)."""

    @abstractmethod
    def set_vector(self, r: int, value: NDArray[Any]) -> None:
        """Set the r-th vector of every learner."""

    @abstractmethod
    def predict(self, phi: Features) -> NDArray[Any]:
        """θ·φ for every row of φ and every learner, (T, K)."""

    @abstractmethod
    def clear_traces(self) -> None:
        """Every trace ← 0."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of state."""

    def predictor(self) -> Callable[[Any], float | NDArray[Any]] | None:
        """A function of one φ or several that returns θ·φ; None as for ``stepper``.

        For several it is an array of numbers that are all finite; for both NaN if anything is invalid.
        """
        return None

    def room(self, T: int) -> Any:
        """Room for the predictions of T steps where the learners are, (T, K)."""
        return np.empty((T, self.K), self.dtype)

    def pending(self) -> dict[str, NDArray[Any]]:
        """What must be saved besides vectors and memory for a loaded learner to continue bit for bit."""
        return {}

    def resume(self, pending: dict[str, NDArray[Any]]) -> None:  # noqa: B027
        """Restore what ``pending`` returned, of learners of this process."""

    def reload(self, stored: Mapping[str, StoredArray]) -> None:
        """Restore a new engine from what ``pending`` returned, vectors included; ValueError if it is invalid.

        For engines with ``pending_gives_vectors``.
        """
        raise NotImplementedError(f"the vectors of {self.name} are saved by themselves")

    def put(self, r: int, value: NDArray[Any]) -> None:
        """``set_vector`` and its bound."""
        self.set_vector(r, value)
        # (as |value| would be a copy)
        self.scalars[:, self.M + r] = np.maximum(value.max(axis=1), -value.min(axis=1))

    def cut(self) -> None:
        """Forget the traces and all memory that does not persist."""
        self.clear_traces()
        self.scalars[:, : self.forgotten] = 0.0

    @property
    def forgotten(self) -> int:
        """How many entries of the memory are 0 at the start of a sequence; those after them persist."""
        return self.M - len(self.rule.lasting)

    def copy(self) -> Engine:
        """Another engine in the same state."""
        return self.select(np.arange(self.K))

    def select(self, ks: NDArray[np.int64]) -> Engine:
        """An engine of these learners, in this order, in the same state."""
        selection = self.like(len(ks))
        for r in range(len(self.rule.vectors)):
            selection.set_vector(r, self.vector(r)[ks])
        selection.resume({name: array[ks] for name, array in self.pending().items()})
        selection.scalars[:] = self.scalars[ks]
        return selection

    def join(self, engines: Sequence[Engine]) -> None:
        """Copy the state of these engines, one after the other along K."""
        for r in range(len(self.rule.vectors)):
            self.set_vector(r, np.concatenate([engine.vector(r) for engine in engines]))
        self.resume(_joined([engine.pending() for engine in engines]))
        np.concatenate([engine.scalars for engine in engines], out=self.scalars)

    def view(self, r: int) -> NDArray[Any]:
        """``vector`` without a copy, where possible."""
        return self.vector(r)

    def blocks(self, r: int) -> Iterator[NDArray[Any]]:
        """The r-th vector of every learner in order, (some, n) at a time where a whole ``view`` would be a copy."""
        yield self.view(r)

    def like(self, K: int) -> Engine:
        """A new engine of the same kind for K learners."""
        return type(self)(self.rule, self.n, K, self.dtype)


class ArrayEngine(Engine):
    """An engine that has all of X in one array, (m, K, n)."""

    takes_rows = False

    def __init__(self, rule: AnyRule, n: int, K: int, dtype: str) -> None:
        super().__init__(rule, n, K, dtype)
        self.X: NDArray[Any] = np.zeros((len(rule.vectors), K, n), dtype)

    def vector(self, r: int) -> NDArray[Any]:
        return np.array(self.X[r])

    def view(self, r: int) -> NDArray[Any]:
        out: NDArray[Any] = self.X[r]
        return out

    def set_vector(self, r: int, value: NDArray[Any]) -> None:
        self.X[r] = value

    def predict(self, phi: Features) -> NDArray[Any]:
        assert isinstance(phi, np.ndarray)
        out: NDArray[Any] = phi @ self.X[0].T
        return out

    def clear_traces(self) -> None:
        self.X[len(self.rule.weights) :] = 0.0

    @property
    def nbytes(self) -> int:
        return self.X.nbytes + self.scalars.nbytes


def _joined(pending: Sequence[dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """The arrays of all, one after the other along K; shorter ones filled up with zeros."""
    out = {}
    for name in pending[0]:
        arrays = [arrays_of[name] for arrays_of in pending]
        shape = np.max([array.shape[1:] for array in arrays], axis=0)
        out[name] = np.zeros((sum(len(array) for array in arrays), *shape), arrays[0].dtype)
        begin = 0
        for array in arrays:
            inside = tuple(slice(0, size) for size in array.shape[1:])
            out[name][(slice(begin, begin + len(array)), *inside)] = array
            begin += len(array)
    return out
