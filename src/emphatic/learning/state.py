"""The state of a learner: its rule and its engine; shown, set, copied, split and saved."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from emphatic import engines, rules, stepsizes
from emphatic.common.guard import Guard
from emphatic.common.names import show
from emphatic.engines.base import Engine, Features, Rows
from emphatic.learning import checkpoint, inputs, restoring
from emphatic.learning.tensors import Stored, TensorPart
from emphatic.rules import AnyRule, ElementwiseRule
from emphatic.stepsizes import StepSize

__all__ = ["State"]

#: Prefix of the names of arrays that a user saves with a learner.
_MORE = "more."


class _Named:
    """A vector or memory of some rule as an attribute of learners (``__getattr__`` would slow every other one)."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, state: State | None, kind: type[State]) -> Any:
        return self if state is None else state._named(self.name)


class State:
    """A rule and K learners' vectors and memory in an engine; see ``Learner``, which learns."""

    _stepper: Callable[..., Any] | None
    _predictor: Callable[[Any], float] | None

    __slots__ = (
        "_K",
        "_ahead",
        "_decided",
        "_dtype",
        "_engine",
        "_frozen",
        "_guard",
        "_inputs",
        "_leader",
        "_predictor",
        "_stepper",
        "_threads",
        "_type",
        "rule",
    )

    def __init__(
        self,
        rule: str | AnyRule,
        n: int,
        K: int | None = None,
        *,
        dtype: Any = "float64",
        engine: str = "auto",
        threads: int = 1,
        devices: Sequence[int] | None = None,
        stepsize: str | StepSize | Mapping[str, Any] | None = None,
    ) -> None:
        self.rule: AnyRule = rule if isinstance(rule, AnyRule) else rules.get(rule)
        method = None if stepsize is None else stepsizes.get(stepsize)
        if self.rule.stepsize is not None:  # (a learner's rule, which begins with the numbers of its method)
            wanted = "have no step size: give the rule without it (rule.base), and the method as stepsize=…"
            raise inputs.refusal("rule", "Learner", wanted, repr(self.rule.name))
        if method is not None:
            self.rule = method.rule(self.rule)
        inputs.whole("n", n)
        self._K = None if K is None else inputs.whole("K", K)
        self._threads = inputs.whole("threads", threads)
        try:
            self._dtype: str = np.dtype(dtype).name
        except Exception:  # whatever the object's own methods raise
            self._dtype = show(dtype)
        if self._dtype not in ("float32", "float64"):
            raise ValueError(f"The 'dtype' parameter must be 'float64' or 'float32'. Got {show(dtype)} instead.")
        self._type = np.dtype(self._dtype)
        if devices is not None and engine not in ("cuda", "cuda-tf32"):
            raise inputs.refusal("devices", "Learner", "come with engine='cuda' or 'cuda-tf32'", f"engine={engine!r}")
        self._decided = not isinstance(engine, str) or engine != "auto"
        self._frozen: NDArray[np.bool_] = np.zeros(self._K or 1, bool)
        # The position in the stream is derived from one learner that is not frozen: ``_ahead`` of its own step count.
        self._leader = self._ahead = 0
        self._guard = Guard("learner")
        # Until auto decides, the plainest engine holds the state.
        name = engine if self._decided else "reference"
        self._take(engines.make(name, self.rule, int(n), self._K, self._dtype, self._threads, devices))
        if method is not None:
            self._begin(method)

    # ------------------------------------------------------------------ what it is

    @property
    def n(self) -> int:
        """The number of features."""
        return self._engine.n

    @property
    def K(self) -> int | None:
        """The number of learners; None for one without the K axis."""
        return self._K

    @property
    def dtype(self) -> str:
        """The dtype of the vectors; a rule's scalars are always float64."""
        return self._dtype

    @property
    def engine(self) -> str:
        """The engine's name; "auto" until it has been chosen."""
        return self._engine.name if self._decided else "auto"

    @property
    def grain(self) -> tuple[int, int]:
        """(steps, learners): multiples at which a run, and a horde, can be divided without changing a single bit.

        A run in pieces whose lengths are multiples of these steps (the last of any length), or a horde in parts that
        are multiples of these learners, gives the same bits as the whole, on the same machine and while no learner is
        near overflow; divided elsewhere, the results are equal to rounding. So are the predictions, except those of
        the reference engine, which are computed for all learners at once. Where only the whole gives the same bits,
        the grain of learners is K (a sparse horde) and that of steps 0 (a single dense learner). There is no grain
        before ``auto`` has chosen an engine.
        """
        if not self._decided:
            raise inputs.refusal("engine", "Learner", "be named, or have been chosen by a first step", "'auto'")
        steps, learners = self._engine.grain
        return steps, learners or self._engine.K

    @property
    def steps(self) -> int:
        """The steps learned so far: the most of any learner."""
        return int(self._engine.counts.max())

    @property
    def steps_taken(self) -> Any:
        """The steps that each learner has learned from, (K,): fewer for one that was frozen."""
        taken = self._engine.counts.astype(np.int64)
        return int(taken[0]) if self._K is None else taken

    @property
    def position(self) -> int:
        """The steps of the stream so far, including those that only some learners learned from."""
        return self._ahead + int(self._engine.scalars[self._leader, -1])

    @property
    def frozen(self) -> Any:
        """Which learners are frozen because they would have diverged, (K,); setting ``theta`` unfreezes them."""
        return bool(self._frozen[0]) if self._K is None else self._frozen.copy()

    @property
    def stepsize(self) -> StepSize | None:
        """The step-size method with its options; None where ``alpha`` alone determines the step sizes."""
        header = self.rule.stepsize
        if header is None:
            return None
        with self._guard.shared:
            scalars = self._engine.scalars.copy()
        memory: dict[str, Any] = {}
        for i, name in enumerate(self.rule.memory):
            value = scalars[:, i]
            memory[name] = float(value[0]) if (value == value[0]).all() else value
        return stepsizes.kind_of(header["name"]).restored(header, memory)

    @property
    def nbytes(self) -> int:
        """The size of the state in bytes."""
        return self._engine.nbytes

    @property
    def theta(self) -> NDArray[Any]:
        """θ, (n,) or (K, n): a read-only copy; assign the whole array to set it."""
        return self._vector(0)

    @theta.setter
    def theta(self, value: ArrayLike) -> None:
        array = inputs.numbers("theta", value, "Learner")
        shape = (self.n,) if self._K is None else (self._K, self.n)
        if array.shape not in (shape, (self.n,)):
            raise inputs.refusal("theta", "Learner", f"have shape {shape}", f"shape {array.shape}")
        with np.errstate(over="ignore"):
            cast = np.broadcast_to(array, (self._engine.K, self.n)).astype(self._dtype)
        if not np.isfinite(cast).all():
            raise inputs.refusal("theta", "Learner", f"be finite in {self._dtype}", "NaN or infinity")
        with self._guard:
            self._engine.put(0, cast)
            self._frozen[:] = False

    if TYPE_CHECKING:  # the rule's vectors and memory, each by a ``_Named``

        def __getattr__(self, name: str) -> Any: ...

    def _named(self, name: str) -> Any:
        if name in self.rule.vectors:
            return self._vector(self.rule.vectors.index(name))
        if name in self.rule.memory:
            with self._guard.shared:
                value = self._engine.scalars[:, self.rule.memory.index(name)]
                return float(value[0]) if self._K is None else value.copy()
        known = ", ".join(self.rule.vectors + self.rule.memory)
        raise AttributeError(f"A learner of rule {self.rule.name!r} has no {name!r}; it has {known}.")

    def __repr__(self) -> str:
        K = "" if self._K is None else f", K={self._K}"
        method = "" if self.rule.stepsize is None else f", stepsize={self.rule.stepsize['name']!r}"
        kind = f"{self.rule.base.name!r}, n={self.n}{K}, dtype={self.dtype!r}, engine={self.engine!r}"
        return f"Learner({kind}{method})"

    # ------------------------------------------------------------------ copying and saving

    def copy(self) -> Self:
        """Another learner in the same state."""
        with self._guard.shared:
            return self._with(self._engine.copy(), self._K, self._frozen, self.position)

    def select(self, ks: ArrayLike) -> Self:
        """The learners at these indices, in this order, as a new horde."""
        try:
            chosen = np.arange(self._engine.K)[np.asarray(ks)]
        except Exception:  # no such learner, lists of several lengths, or what an object's own ``__array__`` raises
            chosen = np.empty(0, np.int64)
        if self._K is None or chosen.ndim != 1 or not len(chosen):
            raise inputs.refusal("ks", "select", f"be a list of learners of a horde, below K = {self._K}", show(ks))
        with self._guard.shared:
            return self._with(self._engine.select(chosen), len(chosen), self._frozen[chosen], self.position)

    __copy__ = copy

    def __deepcopy__(self, memo: object) -> Self:
        return self.copy()

    def __getstate__(self) -> tuple[Any, ...]:
        kind = self.rule, self._K, self._dtype, self._threads, self._decided
        with self._guard.shared:  # (a copy, as it is only written when this has returned)
            return *kind, self._frozen.copy(), self._engine.copy(), self.position

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.rule, self._K, self._dtype, self._threads, self._decided, self._frozen, engine, position = state
        self._type = np.dtype(self._dtype)
        self._guard = Guard("learner")
        self._take(engine)
        self._set_position(position)

    def save(self, path: str | os.PathLike[str], **more: Any) -> None:
        """Write one safetensors file, which ``emphatic.load`` and other tools can open, completely or not at all.

        ``more`` is saved with it, for ``Learner.load_with``: arrays as arrays, other values as JSON in the header.
        """
        with self._guard.shared:
            header, parts = self._state()
            header["more"], kept = restoring.pack(more, _MORE, (*header, *parts, "format", "frozen", "steps_taken"))
            checkpoint.write(path, header, parts | kept)

    @classmethod
    def load_with(
        cls,
        path: str | os.PathLike[str],
        *,
        engine: str | None = None,
        rule: AnyRule | None = None,
        devices: Sequence[int] | None = None,
    ) -> tuple[Self, dict[str, Any]]:
        """The learner, as ``emphatic.load`` gives it, and the ``more`` that was saved with it."""
        return cls._load(path, engine, rule, devices, more=True)

    def cut(self) -> None:
        """Start a new sequence: forget the traces and the memory, and keep the weights."""
        with self._guard:
            self._engine.cut()

    # ------------------------------------------------------------------ inside

    def _state(self) -> tuple[dict[str, Any], dict[str, TensorPart]]:
        """The complete state: a header, and arrays by name."""
        engine = self._engine
        lead = () if self._K is None else (self._K,)
        parts = {
            name: TensorPart(self._dtype, (*lead, self.n), engine.blocks(r)) for r, name in enumerate(self.rule.vectors)
        }
        parts |= {name: TensorPart("float64", lead, (engine.scalars[:, i],)) for i, name in enumerate(self.rule.memory)}
        parts |= {f"{self.engine}.{name}": TensorPart.of(array) for name, array in engine.pending().items()}
        if self._frozen.any():
            parts["frozen"] = TensorPart.of(self._frozen.astype(np.uint8))
        if (engine.counts != engine.counts[0]).any():
            parts["steps_taken"] = TensorPart.of(self.steps_taken)
        header = {
            "rule": self.rule.base.name,
            "vectors": list(self.rule.vectors),
            "memory": list(self.rule.memory),
            "n": self.n,
            "K": self._K,
            "dtype": self._dtype,
            "engine": self.engine,
            "threads": self._threads,
            "steps": self.steps,
            "position": self.position,
        }
        if self.rule.stepsize is not None:
            header["stepsize"] = self.rule.stepsize
        if rules.is_own(self.rule.base):
            header["own_rule"] = True
        return header, parts

    @classmethod
    def _load(
        cls,
        path: str | os.PathLike[str],
        engine: str | None,
        rule: AnyRule | None,
        devices: Sequence[int] | None = None,
        *,
        more: bool = False,
    ) -> tuple[Self, dict[str, Any]]:
        restoring.check_engine(engine)
        if rule is not None and not isinstance(rule, AnyRule):
            raise inputs.refusal("rule", "load", "be a Rule", repr(rule))
        with restoring.open_checkpoint(path) as (header, arrays):
            name = engine or str(header.get("engine"))
            lacking = engines.missing(name)
            misplaced = devices is not None and not name.startswith("cuda")
            if not lacking and not misplaced:
                learner = cls._restored(header, arrays, engine, rule, devices)
                if "horde" in header:
                    what = f"{os.fsdecode(path)!r} holds a Horde; emphatic.load gives only its learner. "
                    warnings.warn(f"{what}emphatic.Horde.load opens the complete Horde.", stacklevel=3)
                return learner, restoring.unpack(header.get("more", {}), arrays, _MORE) if more else {}
        if misplaced:  # (the file is not at fault)
            raise inputs.refusal("devices", "load", "come with engine='cuda' or 'cuda-tf32'", f"engine={name!r}")
        raise restoring.lacking_engine(engine, name, lacking)

    @classmethod
    def _restored(
        cls,
        header: dict[str, Any],
        arrays: dict[str, Stored],
        engine: str | None = None,
        own: AnyRule | None = None,
        devices: Sequence[int] | None = None,
    ) -> Self:
        """The learner of an open checkpoint; ValueError, KeyError or TypeError if it is invalid."""
        rule = restoring.check(header, arrays, own)
        frozen, position = restoring.frozen(header, arrays), restoring.position(header)
        kind = {"dtype": header["dtype"], "engine": engine or header["engine"], "threads": header["threads"]}
        kind["stepsize"] = rule.stepsize  # (its numbers are in the rule's memory)
        learner = cls(rule.base, header["n"], header["K"], **kind, devices=devices)
        restoring.fill(learner._engine, learner.engine, header, arrays)
        _ = learner.stepsize  # which refuses what its method does
        learner._frozen[:] = frozen
        learner._set_position(position)
        return learner

    def _begin(self, method: StepSize) -> None:
        """Set the memory of the method's rule before the first step."""
        engine = self._engine
        with np.errstate(over="ignore"):
            held = method.memory() | method.vectors()
        for name, value in held.items():
            if np.ndim(value) and np.shape(value) != (self._K,):
                wanted = "have numbers, or one for each of K learners, in its options"
                raise inputs.refusal("stepsize", "Learner", wanted, f"an array of shape {np.shape(value)}, K={self._K}")
            remembered = name in self.rule.memory
            with np.errstate(over="ignore"):
                cast = np.asarray(value).astype("float64" if remembered else self._dtype)
            if not np.isfinite(cast).all() or not (remembered or (cast > 0.0).all()):
                wanted = f"have options in the range of {cast.dtype}, and no bound below 1e-307"
                raise inputs.refusal("stepsize", "Learner", wanted, repr(method))
            if remembered:
                engine.scalars[:, self.rule.memory.index(name)] = cast
            else:
                rows = np.broadcast_to(cast[..., None], (engine.K, self.n))
                engine.put(self.rule.vectors.index(name), np.ascontiguousarray(rows))

    def _with(self, engine: Engine, K: int | None, frozen: NDArray[np.bool_], position: int) -> Self:
        """A learner like this one with another engine."""
        other = object.__new__(type(self))
        kind = self.rule, K, self._dtype, self._threads, self._decided
        other.__setstate__((*kind, np.array(frozen), engine, position))
        return other

    def _set_position(self, position: int) -> None:
        """Set the position in the stream; needed after steps in which the leading learner may have been frozen."""
        self._leader = int(np.argmin(self._frozen))
        self._ahead = position - int(self._engine.counts[self._leader])

    def _take(self, engine: Engine) -> None:
        for name in self.rule.vectors + self.rule.memory:
            if not hasattr(State, name):
                setattr(State, name, _Named(name))
        self._engine = engine
        self._stepper = self._predictor = None
        self._inputs: Any = inputs
        if engine.takes_tensors:
            from emphatic.learning import device_inputs  # late: torch is imported only where its tensors are used

            self._inputs = device_inputs

    def _decide(self, features: Features, T: int) -> None:
        """``auto``: choose the engine and give it the state so far."""
        if self._decided:
            return
        old = self._engine
        active = len(features.indices) / max(1, len(features)) if isinstance(features, Rows) else None
        elementwise = isinstance(self.rule, ElementwiseRule)
        name = engines.choose(old.n, self._K, T, active, elementwise=elementwise)
        new = engines.make(name, self.rule, old.n, self._K, old.dtype, self._threads)
        for r in range(len(self.rule.vectors)):
            value = old.view(r)
            if value.any():
                new.put(r, value)
        new.scalars[:, : new.M], new.scalars[:, -1] = old.scalars[:, : new.M], old.scalars[:, -1]
        self._decided = True
        self._take(new)

    def _vector(self, r: int) -> NDArray[Any]:
        with self._guard.shared:
            value = self._engine.vector(r)
        value = value[0] if self._K is None else value
        value.flags.writeable = False
        return value

    def _drop_K(self, array: NDArray[Any]) -> NDArray[Any]:
        return array[:, 0] if self._K is None else array
