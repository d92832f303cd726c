"""What a learner is and holds: a rule, an engine with its state; shown, set, copied, taken apart and saved."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from emphatic import checkpoint, engines, inputs, rules
from emphatic.engines.base import Engine, Features
from emphatic.engines.rows import Rows
from emphatic.rules import Rule
from emphatic.tensors import Part

__all__ = ["State"]


class State:
    """A rule and K learners' vectors and memory in an engine; see ``Learner``, which learns."""

    _stepper: Callable[..., Any] | None
    _predictor: Callable[[Any], float] | None

    __slots__ = (
        "_K",
        "_decided",
        "_dtype",
        "_engine",
        "_extra",
        "_frozen",
        "_inputs",
        "_predictor",
        "_stepper",
        "_threads",
        "_type",
        "rule",
    )

    def __init__(
        self,
        rule: str | Rule,
        n: int,
        K: int | None = None,
        *,
        dtype: Any = "float64",
        engine: str = "auto",
        threads: int = 1,
    ) -> None:
        self.rule: Rule = rule if isinstance(rule, Rule) else rules.get(rule)
        inputs.whole("n", n)
        self._K = None if K is None else inputs.whole("K", K)
        self._threads = inputs.whole("threads", threads)
        try:
            self._dtype: str = np.dtype(dtype).name
        except TypeError:
            self._dtype = repr(dtype)
        if self._dtype not in ("float32", "float64"):
            raise ValueError(f"The 'dtype' parameter must be 'float64' or 'float32'. Got {dtype!r} instead.")
        self._type = np.dtype(self._dtype)
        self._decided = not isinstance(engine, str) or engine != "auto"
        self._frozen: NDArray[np.bool_] = np.zeros(self._K or 1, bool)
        # Until auto decides, the plainest engine holds the state.
        name = engine if self._decided else "reference"
        self._take(engines.make(name, self.rule, int(n), self._K, self._dtype, self._threads))

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
        """Of the vectors; a rule's scalars are always float64."""
        return self._dtype

    @property
    def engine(self) -> str:
        """The engine's name; "auto" until that has decided."""
        return self._engine.name if self._decided else "auto"

    @property
    def steps(self) -> int:
        """The steps learned so far."""
        return int(self._engine.scalars[:, -1].max())

    @property
    def steps_taken(self) -> Any:
        """The steps that each learner has learned from, (K,): fewer for one that stood still."""
        taken = self._engine.scalars[:, -1].astype(np.int64)
        return int(taken[0]) if self._K is None else taken

    @property
    def frozen(self) -> Any:
        """Which learners stand still since they would have diverged, (K,); setting ``theta`` sets them free."""
        return bool(self._frozen[0]) if self._K is None else self._frozen.copy()

    @property
    def nbytes(self) -> int:
        """The bytes that the state takes."""
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
        self._engine.put(0, cast)
        self._frozen[:] = False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self.rule.vectors:
            return self._vector(self.rule.vectors.index(name))
        if name in self.rule.memory:
            value = self._engine.scalars[:, self.rule.memory.index(name)]
            return float(value[0]) if self._K is None else value.copy()
        known = ", ".join(self.rule.vectors + self.rule.memory)
        raise AttributeError(f"A learner of rule {self.rule.name!r} has no {name!r}; it has {known}.")

    def __repr__(self) -> str:
        K = "" if self._K is None else f", K={self._K}"
        return f"Learner({self.rule.name!r}, n={self.n}{K}, dtype={self.dtype!r}, engine={self.engine!r})"

    # ------------------------------------------------------------------ keeping

    def copy(self) -> Self:
        """Another learner in the same state."""
        return self._with(self._engine.copy(), self._K, self._frozen)

    def select(self, ks: ArrayLike) -> Self:
        """The learners of these indices, in this order, as a horde of their own."""
        try:
            chosen = np.arange(self._engine.K)[np.asarray(ks)]
        except IndexError:
            chosen = np.empty(0, np.int64)
        if self._K is None or chosen.ndim != 1 or not len(chosen):
            raise inputs.refusal("ks", "select", f"be a list of learners of a horde, below K = {self._K}", repr(ks))
        return self._with(self._engine.select(chosen), len(chosen), self._frozen[chosen])

    __copy__ = copy

    def __deepcopy__(self, memo: object) -> Self:
        return self.copy()

    def __getstate__(self) -> tuple[Any, ...]:
        return self.rule, self._K, self._dtype, self._threads, self._decided, self._frozen, self._engine

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.rule, self._K, self._dtype, self._threads, self._decided, self._frozen, engine = state
        self._type = np.dtype(self._dtype)
        self._take(engine)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one safetensors file that ``emphatic.load`` and other tools can open; whole or not at all."""
        checkpoint.write(path, *self._state())

    def cut(self) -> None:
        """Forget the traces and the memory (the weights stay): what follows is another sequence."""
        self._engine.cut()

    # ------------------------------------------------------------------ inside

    def _state(self) -> tuple[dict[str, Any], dict[str, Part]]:
        """All that a learner is: a header, and arrays by name."""
        engine = self._engine
        lead = () if self._K is None else (self._K,)
        parts = {name: Part(self._dtype, (*lead, self.n), engine.blocks(r)) for r, name in enumerate(self.rule.vectors)}
        parts |= {name: Part("float64", lead, (engine.scalars[:, i],)) for i, name in enumerate(self.rule.memory)}
        parts |= {f"{self.engine}.{name}": Part.of(array) for name, array in engine.pending().items()}
        if self._frozen.any():
            parts["frozen"] = Part.of(self._frozen.astype(np.uint8))
        header = {
            "rule": self.rule.name,
            "vectors": list(self.rule.vectors),
            "memory": list(self.rule.memory),
            "n": self.n,
            "K": self._K,
            "dtype": self._dtype,
            "engine": self.engine,
            "threads": self._threads,
            "steps": self.steps,
        }
        return header, parts

    def _with(self, engine: Engine, K: int | None, frozen: NDArray[np.bool_]) -> Self:
        """A learner like this one around another engine."""
        other = object.__new__(type(self))
        other.__setstate__((self.rule, K, self._dtype, self._threads, self._decided, np.array(frozen), engine))
        return other

    def _take(self, engine: Engine) -> None:
        self._engine = engine
        self._extra = self.rule.extra  # one look less in every step
        self._stepper = self._predictor = None
        self._inputs: Any = inputs
        if engine.takes_tensors:
            from emphatic import device_inputs  # late: torch is imported where its tensors are taken

            self._inputs = device_inputs

    def _decide(self, features: Features, T: int) -> None:
        """``auto``: choose the engine and hand it what has been set so far."""
        if self._decided:
            return
        old = self._engine
        active = len(features.indices) / max(1, len(features)) if isinstance(features, Rows) else None
        name = engines.choose(old.n, self._K, T, active)
        new = engines.make(name, self.rule, old.n, self._K, old.dtype, self._threads)
        for r in range(len(self.rule.vectors)):
            value = old.view(r)
            if value.any():
                new.put(r, value)
        new.scalars[:, : new.M], new.scalars[:, -1] = old.scalars[:, : new.M], old.scalars[:, -1]
        self._decided = True
        self._take(new)

    def _vector(self, r: int) -> NDArray[Any]:
        value = self._engine.vector(r)
        value = value[0] if self._K is None else value
        value.flags.writeable = False
        return value

    def _drop_K(self, array: NDArray[Any]) -> NDArray[Any]:
        return array[:, 0] if self._K is None else array
