"""``Learner``: one step, a whole log, and what has been learned so far; ``join`` and ``load``.

A learner is a rule and an engine that holds the vectors and the memory of K learners. The steps themselves are the
engine's; this module checks input, divides a log into blocks, and copies, splits and saves the state.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from operator import mul
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from emphatic import engines, rules, stepsizes
from emphatic.common.locks import Guard
from emphatic.common.names import refusal, show
from emphatic.engines.base import UNBROKEN, Arrays, Engine, Features, Flags, Probe, Row, Rows, Steps, Watch, block
from emphatic.errors import Diverged
from emphatic.learning import checkpoint, inputs
from emphatic.learning.inputs import Active, FeaturesLike, Numbers, SupportsDLPack
from emphatic.learning.sequences import warn_if_never_terminating
from emphatic.learning.tensors import Stored, TensorPart
from emphatic.rules import AnyRule
from emphatic.stepsizes import StepSize

__all__ = ["Learner", "RecordedLearner", "join", "load"]

Array = NDArray[np.float64]
#: One step as an engine computes it: φ, φ' and the parameters; returns δ, or NaN or None where it cannot.
Step = Callable[..., Any]
#: One φ as an engine reads it.
Vector = NDArray[Any] | Row

#: The one class of arrays that kernels take directly; masked arrays and other subclasses are converted first.
_plain = np.ndarray
_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
#: The default of ``alpha`` in ``run``, where None is bad input unless the learner has a stepsize.
_ABSENT: Any = object()
#: Prefix of the names of arrays that a user saves with a learner.
_MORE = "more."
#: Components of φ converted at a time when features are not in the form that the engine reads.
_CONVERTED = 1 << 21
#: Predictions held at a time when only their errors are requested.
_COMPARED = 1 << 24


class _Named:
    """A vector or memory of some rule as an attribute of learners (``__getattr__`` would slow every other one)."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, learner: Learner | None, kind: type[Learner]) -> Any:
        return self if learner is None else learner._named(self.name)


class Learner:
    """K learners of one rule on one stream of features; K=None is a single learner without the K axis.

    >>> import numpy as np
    >>> learner = Learner("true_online_etd", 2)
    >>> learner.learn(alpha=0.1, I=1.0, lambda_=0.9, phi=np.array([1.0, 0.0]), rho=1.0, R=0.5,
    ...               phi_next=np.array([0.0, 1.0]), gamma_next=0.95)
    0.5
    >>> learner.predict([1.0, 0.0])
    0.05
    >>> learner
    Learner('true_online_etd', n=2, dtype='float64', engine='dense')

    The vectors and the memory of the rule are attributes: ``theta``, ``e``, ``F``, ``D``, ``gamma``, … (copies;
    ``theta`` can be set). Bad input raises ``ValueError`` and changes nothing; an update that is no longer finite
    raises ``Diverged``. A learner belongs to one thread at a time: any other that uses it meanwhile gets
    ``RuntimeError``. Threads that only read may do so at the same time.

    Args:
        rule: A name from ``emphatic.rules.names()``, or your own ``Rule``.
        n: The number of features.
        K: The number of learners; None for one without the K axis.
        dtype: The dtype of the vectors, "float64" or "float32".
        engine: One of ``emphatic.engines.available()``, or "auto", which decides at the first ``learn`` or ``run``.
        threads: The most threads that an engine may use.
        devices: The numbers of the GPUs among which the cuda engine divides the learners.
        stepsize: A name from ``emphatic.stepsizes.names()`` or an object of ``emphatic.stepsizes`` that sets the step
            sizes; ``alpha`` then multiplies them.
        separate_next: Whether φ' of a step need not be φ of the next one. The true online rules then compute
            (θ − θ⁻)·φ from the last φ, which they keep as another vector, instead of from φ' of the last step.
    """

    _stepper: Step | None
    _direct: tuple[Any, ...] | None
    _predictor: Callable[[Any], Any] | None

    __slots__ = (
        "_K",
        "_ahead",
        "_decided",
        "_direct",
        "_dtype",
        "_engine",
        "_frozen",
        "_guard",
        "_inputs",
        "_leader",
        "_predictor",
        "_stepper",
        "_strides",
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
        separate_next: bool = False,
    ) -> None:
        self.rule: AnyRule = rule if isinstance(rule, AnyRule) else rules.get(rule)
        method = None if stepsize is None else stepsizes.get(stepsize)
        if self.rule.stepsize is not None:  # (a learner's rule, which begins with the numbers of its method)
            wanted = "have no step size: give the rule without it (rule.base), and the method as stepsize=…"
            raise refusal("rule", "Learner", wanted, repr(self.rule.name))
        if not isinstance(separate_next, bool):
            raise refusal("separate_next", "Learner", "be True or False", show(separate_next))
        if separate_next:
            self.rule = rules.separate(self.rule)
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
            raise refusal("devices", "Learner", "come with engine='cuda' or 'cuda-tf32'", f"engine={engine!r}")
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

    # ------------------------------------------------------------------ learning

    def learn(
        self, alpha: Any, I: Any, lambda_: Any, phi: Any, rho: Any, R: Any, phi_next: Any, gamma_next: Any, **extra: Any
    ) -> Any:
        """One step; returns the TD error δ = R + γ'θ·φ' − θ·φ, from before the update.

        Arguments are in the order of Sutton (2015): alpha to rho belong to time t, the others to t+1. φ and φ' are (n,)
        or ``Active``; every other argument is a number, or with K learners an array (K,).

        At a termination pass ``gamma_next=0`` and any φ' (zeros by convention), and continue with the next episode's
        first state; or make a separate call for the terminal state with φ = 0 and I = 0.

        Args:
            alpha: The step size α; with a ``stepsize``, a factor of it.
            I: The interest in φ.
            lambda_: The trace parameter λ.
            phi: The features φ of the state.
            rho: The importance sampling ratio ρ of the action taken.
            R: The cumulant R that followed.
            phi_next: The features φ' of the next state.
            gamma_next: The discount γ' at the next state.
            **extra: The rule's own parameters, such as ``beta``.
        """
        guard = self._guard
        if guard.users:
            guard.wait()
        guard.users = -1  # (no call in between: see ``common.locks``)
        try:
            direct = self._direct
            if direct is not None and not extra:
                # Arrays and numbers of exactly the kernel's types need no look at each of them by numba, which takes as
                # long as a step of 100 features.
                try:
                    if (
                        R.__class__ is gamma_next.__class__ is alpha.__class__ is float
                        and I.__class__ is lambda_.__class__ is rho.__class__ is float
                        and phi.__class__ is phi_next.__class__ is _plain
                        and phi.dtype is phi_next.dtype is self._type
                        and phi.strides == phi_next.strides == self._strides
                    ):
                        learn, X, scalars = direct
                        delta = learn(X, scalars, phi, phi_next, alpha, I, lambda_, rho, gamma_next, R)
                        if delta == delta:
                            return delta
                except Exception:  # the checks below name the problem
                    pass
            step = self._stepper or self._make_stepper()
            if step is not None:
                # The kernel checks everything but types, and returns NaN or None where something is wrong.
                try:
                    # (numba would treat masked arrays as plain ones and ignore byte order; which
                    # of the two dtypes is the learner's it knows itself, and to look it up here takes longer than all
                    # else)
                    if (
                        phi.__class__ is _plain is phi_next.__class__
                        and ((dtype := phi.dtype) is _FLOAT64 or dtype is _FLOAT32)
                        and phi_next.dtype is dtype
                    ):
                        row, row_next = phi, phi_next
                    else:
                        row, row_next = self._active(phi), self._active(phi_next)
                    if extra:
                        delta = step(row, row_next, alpha, I, lambda_, rho, gamma_next, R, **extra)
                    else:  # (unpacking even an empty dict takes time)
                        delta = step(row, row_next, alpha, I, lambda_, rho, gamma_next, R)
                    if delta == delta if delta.__class__ is float else delta is not None:
                        return delta
                except Exception:  # not what a kernel accepts: the checks below name the problem
                    pass
            return self._learn(phi, phi_next, extra, alpha, I, lambda_, rho, gamma_next, R)
        finally:
            guard.users = 0

    def _learn(self, phi: FeaturesLike, phi_next: FeaturesLike, extra: dict[str, Any], *values: Numbers) -> Any:
        """``learn`` with every check, and an error message for each."""
        check = self._inputs
        row, top = check.features("phi", phi, "learn", self.n, self._dtype)
        row_next, top_next = check.features("phi_next", phi_next, "learn", self.n, self._dtype)
        parameters = check.parameters(self.rule, "learn", 1, self._K, values, extra)
        self._decide(row, 1)
        engine = self._engine
        row, row_next = fit(row, engine), fit(row_next, engine)
        step = self._stepper or self._make_stepper()
        if step is not None:  # the same kernel as ever, so that the same steps give the same bits
            vector, vector_next = (rows if isinstance(rows, Rows) else rows[0] for rows in (row, row_next))
            if self._K is None:
                delta = step(vector, vector_next, *(p.item() for p in parameters))
                if delta != delta:
                    raise Diverged(self.steps, of="learning")
                return delta
            deltas = step(vector, vector_next, *(p[0] for p in parameters))
            if deltas is not None:
                return deltas
        none, position = np.empty((0, engine.K), self._dtype), self.position
        status = engine.run(Steps(row, row_next, max(top, top_next), parameters, none, Watch(self._frozen)))
        if status != -1:
            raise Diverged(self.steps, status, of="learning")
        self._set_position(position + 1)
        return float(engine.delta[0]) if self._K is None else engine.delta.copy()

    def run(
        self,
        Phi: Any,
        R: Numbers,
        gamma_next: Numbers,
        *,
        alpha: Numbers | None = _ABSENT,
        lambda_: Numbers = 0.0,
        rho: Numbers = 1.0,
        I: Numbers = 1.0,
        Phi_next: FeaturesLike | None = None,
        first: ArrayLike | SupportsDLPack | None = None,
        predictions: bool | Literal["device"] | None = True,
        returns: Numbers | None = None,
        probe: tuple[ArrayLike, ArrayLike, ArrayLike] | None = None,
        probe_every: int = 1,
        on_divergence: Literal["raise", "freeze"] = "raise",
        **extra: Numbers,
    ) -> Any:
        """Learn from a whole log; returns the predictions θ_t·φ_t made before each update, (T,) or (T, K).

        ``Phi`` and ``Phi_next`` are arrays, ``Active`` or scipy CSR arrays. Every other quantity is a number, (T,),
        (K,) or (T, K), ``R[t]`` being R_{t+1} and ``gamma_next[t]`` γ_{t+1}.

        Every array may be anything with ``__dlpack__``, such as a torch tensor or a CuPy or JAX array. The cuda engine
        uses those on its device where they are; with other engines they must be on the host.

        >>> import numpy as np
        >>> learner = Learner("true_online_td", 1)
        >>> learner.run(np.ones((4, 1)), [1.0, 1.0, 1.0], 0.5, alpha=0.5)
        array([0.   , 0.5  , 0.875])

        A log of several sequences needs ``Phi_next``, for the last φ' of a sequence is not the first φ of the next one,
        and ``first``, unless γ' is 0 at the end of each: otherwise traces run on into the next sequence. Without
        ``first``, a step whose φ' is not φ of the next step and whose γ' is not 0 gives a ``SequenceWarning``.

        Args:
            Phi: The features, (T+1, n), row t being φ_t; with ``Phi_next``, (T, n).
            R: The cumulants.
            gamma_next: The discounts γ'.
            alpha: The step sizes α; may be left out where the learner has a ``stepsize``.
            lambda_: The trace parameters λ.
            rho: The importance sampling ratios ρ.
            I: The interests.
            Phi_next: φ' of each step, (T, n), where that is not φ of the next step.
            first: A mask (T,), True where a step begins a sequence: as if ``cut`` were called before that step.
            predictions: False or None returns None in their place; "device" leaves them on the cuda engine's device,
                as a torch tensor.
            returns: The actual returns; each learner's mean squared prediction error is then returned in place of the
                predictions, (K,).
            probe: (Phi_s, v, d): also returns the root mean square value error sqrt(Σ d (Phi_s θ_t − v)² / Σ d) before
                each update, as (predictions, error). ``v`` and ``d`` are (S,), or with K learners (K, S): learner k is
                then judged by its own values v[k] and weights d[k].
            probe_every: The error is computed before each ``probe_every``-th update.
            on_divergence: "raise" raises ``Diverged``. With "freeze" a learner that would diverge keeps its last
                finite weights from there on, and the others continue; ``frozen`` tells which.
            **extra: The rule's own parameters, such as ``beta``.
        """
        values: tuple[Any, ...] = (alpha, I, lambda_, rho, gamma_next, R)
        with self._guard:
            if self.rule.stepsize is not None and (values[0] is _ABSENT or values[0] is None):
                values = (1.0, *values[1:])
            if values[0] is _ABSENT:
                raise TypeError("run() missing 1 required keyword-only argument: 'alpha'; or give Learner a stepsize.")
            # An engine that checks features as it runs needs no check beforehand. A frozen learner takes no step.
            trusting = on_divergence == "raise" and self._decided and self._engine.looks_over and not self._frozen.all()
            phi, phi_next, top = self._features(Phi, Phi_next, look_over=not trusting)
            T, check = len(phi), self._inputs
            breaks = UNBROKEN if first is None else inputs.mask("first", first, "run", T)
            log = Log(phi, phi_next, top, check.parameters(self.rule, "run", T, self._K, values, extra), breaks)
            if trusting and T == 0:
                self._features(Phi, Phi_next)  # no step will check the only row
            aim = None if returns is None else check.series("run", T, self._K, self.rule, "returns", returns)
            _check_outputs(predictions, on_divergence, device=self._engine.takes_tensors)
            goal = None if probe is None else inputs.probe(probe, self.n, self._K)
            every = inputs.whole("probe_every", probe_every, "run")
            if not self.rule.base.continuing:
                _warn_of(check.least_rows(log.parameters[4]))
            if "lambda_next" in self.rule.extra and "lambda_next" not in extra:
                _warn_of_lambda_next(self.rule, log.parameters[2])
            if first is None and Phi_next is not None and not self.rule.base.free_next:
                self._warn_of_sequences(log, Phi, Phi_next, trusting)
            self._decide(log.phi, T)

            collection = Collection(
                self._engine, T, bool(predictions), aim, goal, every, direct=predictions == "device"
            )
            snapshot, position = self._engine.snapshot() if trusting else None, self.position
            for begin, end, steps in log.blocks(self._engine, collection.most):
                room = collection.room(begin, end)
                watch = collection.watch(begin, self._frozen, on_divergence == "freeze")
                status = self._engine.run(steps.into(room, watch))
                if status != -1:
                    if snapshot is not None:
                        try:
                            self._features(Phi, Phi_next)
                        except ValueError:  # the features were at fault
                            self._engine.restore(snapshot)
                            raise
                    raise Diverged(begin + status // self._engine.K, status % self._engine.K)
                if aim is not None:
                    collection.squares += check.sum_squares(room, aim[begin:end])
            self._pass(position + T)
            if aim is not None:
                mean = collection.squares / T
                answer: NDArray[Any] | float | None = mean if self._K is not None else float(mean[0])
            else:
                answer = self._drop_K(collection.predictions) if predictions else None
            return answer if goal is None else (answer, self._drop_K(collection.errors))

    def predict(self, phi: Any) -> Any:
        """θ·φ for one φ or several: a number or (T,); with K learners (K,) or (T, K).

        Args:
            phi: (n,) or (T, n), as an array, ``Active`` or CSR.
        """
        guard = self._guard
        if guard.users < 0:
            raise guard.refusal()
        guard.users += 1
        try:
            if self._predictor is None and self._K is None and self._decided:
                self._predictor = self._engine.predictor()
            value_at = self._predictor
            plain = phi.__class__ is _plain and phi.dtype is self._type
            if value_at is not None and (plain or phi.__class__ is Active):
                try:
                    value = value_at(phi)
                    if value.__class__ is _plain or math.isfinite(value):
                        return value
                except Exception:
                    pass
            phi = self._inputs.import_array("phi", phi, "predict")
            features, _ = self._inputs.features("phi", phi, "predict", self.n, self._dtype)
            answer = self._engine.predict(fit(features, self._engine))
            ndim = phi.indices.ndim if isinstance(phi, Active) else np.ndim(phi)
            if ndim != 1:
                return self._drop_K(answer)
            return float(answer[0, 0]) if self._K is None else answer[0]
        finally:
            guard.users -= 1

    def cut(self) -> None:
        """Start a new sequence: forget the traces and the memory, and keep the weights."""
        with self._guard:
            self._engine.cut()

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

        A run in pieces whose lengths are multiples of these steps (the last of any length), or a horde in shards that
        are multiples of these learners, is bit-for-bit identical to the undivided one, on the same machine and while
        no learner is near overflow; divided elsewhere, the results are equal up to rounding. So are the predictions,
        except those of the reference engine, which are computed for all learners at once. Where only the undivided run
        gives the same bits, the grain of learners is K (a sparse horde) and that of steps 0 (a single dense learner).
        There is no grain before ``auto`` has chosen an engine.
        """
        if not self._decided:
            raise refusal("engine", "Learner", "be named, or have been chosen by a first step", "'auto'")
        steps, learners = self._engine.grain
        return steps, learners or self._engine.K

    @property
    def steps(self) -> int:
        """The steps learned so far: the most of any learner."""
        return int(self._engine.counts.max())

    @property
    def _taken(self) -> NDArray[np.int64]:
        """The steps that each learner has learned from, (K,): fewer for one that was frozen."""
        return self._engine.counts.astype(np.int64)

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
        columns = zip(self.rule.memory, scalars.T, strict=False)  # the memory comes first
        memory = {name: float(value[0]) if (value == value[0]).all() else value for name, value in columns}
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
        array = inputs.real_array("theta", value, "Learner")
        shape = (self.n,) if self._K is None else (self._K, self.n)
        if array.shape not in (shape, (self.n,)):
            raise refusal("theta", "Learner", f"have shape {shape}", f"shape {array.shape}")
        with np.errstate(over="ignore"):
            cast = np.broadcast_to(array, (self._engine.K, self.n)).astype(self._dtype)
        if not np.isfinite(cast).all():
            raise refusal("theta", "Learner", f"be finite in {self._dtype}", "NaN or infinity")
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
        separate = "" if self.rule.base.plain is self.rule.base else ", separate_next=True"
        kind = f"{self.rule.base.name!r}, n={self.n}{K}, dtype={self.dtype!r}, engine={self.engine!r}"
        return f"Learner({kind}{method}{separate})"

    # ------------------------------------------------------------------ copying and saving

    def copy(self) -> Self:
        """Another learner in the same state."""
        with self._guard.shared:
            return self._with(self._engine.copy(), self._K, self._frozen, self.position)

    def select(self, ks: ArrayLike) -> Self:
        """The learners at these indices, in this order, as a new horde; ``join`` is the opposite.

        Args:
            ks: The indices of learners, or a mask.
        """
        try:
            chosen = np.arange(self._engine.K)[np.asarray(ks)]
        except Exception:  # no such learner, lists of several lengths, or what an object's own ``__array__`` raises
            chosen = np.empty(0, np.int64)
        if self._K is None or chosen.ndim != 1 or not len(chosen):
            raise refusal("ks", "select", f"be a list of learners of a horde, below K = {self._K}", show(ks))
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

    def save(self, path: str | os.PathLike[str], **more: object) -> None:
        """Write one safetensors file, which ``emphatic.load`` and other tools can open, completely or not at all.

        The sparse engine saves its vectors in its own form only: ``emphatic.load(path).theta`` gives θ.

        Args:
            path: The file to write; one that exists is replaced.
            **more: What to save with the learner, for ``Learner.load_with``: arrays as arrays, other values as JSON in
                the header.
        """
        with self._guard.shared:
            header, tensors = self._state()
            names = (*header, *tensors, *self.rule.vectors, "format", "frozen", "steps_taken")
            header["more"], arrays = checkpoint.pack(more, _MORE, names)
            checkpoint.write(path, header, tensors | arrays)

    @classmethod
    def load_with(
        cls,
        path: str | os.PathLike[str],
        *,
        engine: str | None = None,
        rule: AnyRule | None = None,
        devices: Sequence[int] | None = None,
    ) -> tuple[Self, dict[str, Any]]:
        """The learner, as ``emphatic.load`` gives it, and the ``more`` that was saved with it.

        Args:
            path: The file that ``save`` wrote.
            engine: Another engine to continue with.
            rule: Your own ``Rule``, if the learner has one.
            devices: The GPUs among which the cuda engine divides the learners.
        """
        return cls._load(path, engine, rule, devices, more=True)

    def _state(self) -> tuple[dict[str, Any], dict[str, TensorPart]]:
        """The complete state: a header, and arrays by name."""
        engine = self._engine
        lead = () if self._K is None else (self._K,)
        tensors = {}
        if not engine.pending_gives_vectors:
            for r, name in enumerate(self.rule.vectors):
                tensors[name] = TensorPart(self._dtype, (*lead, self.n), engine.blocks(r))
        tensors |= {
            name: TensorPart("float64", lead, (engine.scalars[:, i],)) for i, name in enumerate(self.rule.memory)
        }
        tensors |= {f"{self.engine}.{name}": TensorPart.of(array) for name, array in engine.pending().items()}
        if self._frozen.any():
            tensors["frozen"] = TensorPart.of(self._frozen.astype(np.uint8))
        if (engine.counts != engine.counts[0]).any():
            tensors["steps_taken"] = TensorPart.of(self._taken)
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
        if self.rule.base.plain is not self.rule.base:
            header["separate_next"] = True
        if rules.is_own(self.rule.base):
            header["own_rule"] = True
        return header, tensors

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
        checkpoint.check_engine(engine)
        if rule is not None and not isinstance(rule, AnyRule):
            raise refusal("rule", "load", "be a Rule", repr(rule))
        with checkpoint.open_sound(path) as (header, arrays):
            name = engine or str(header.get("engine"))
            lacking = engines.missing(name)
            misplaced = devices is not None and not name.startswith("cuda")
            if not lacking and not misplaced:
                learner = cls._restored(header, arrays, engine, rule, devices)
                if "horde" in header:
                    what = f"{os.fsdecode(path)!r} holds a Horde; emphatic.load gives only its learner. "
                    warnings.warn(f"{what}emphatic.Horde.load opens the complete Horde.", stacklevel=3)
                return learner, checkpoint.unpack(header.get("more", {}), arrays, _MORE) if more else {}
        if misplaced:  # (the file is not at fault)
            raise refusal("devices", "load", "come with engine='cuda' or 'cuda-tf32'", f"engine={name!r}")
        raise checkpoint.lacking_engine(engine, name, lacking)

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
        rule = checkpoint.check(header, arrays, own)
        frozen, position = checkpoint.frozen(header, arrays), checkpoint.position(header)
        kind = {"dtype": header["dtype"], "engine": engine or header["engine"], "threads": header["threads"]}
        kind["stepsize"] = rule.stepsize  # (its numbers are in the rule's memory)
        learner = cls(rule.base, header["n"], header["K"], **kind, devices=devices)
        checkpoint.fill(learner._engine, learner.engine, header, arrays)
        _ = learner.stepsize  # which refuses what its method does
        learner._frozen[:] = frozen
        learner._set_position(position)
        return learner

    # ------------------------------------------------------------------ inside

    def _step(self, phi: Rows, phi_next: Rows, top: float, parameters: Arrays, afresh: bool = False) -> NDArray[Any]:
        """``run`` on a few rows: θ·φ' after each, (T, K), for a caller that has checked its input.

        φ' of each step is φ of the next. No component of φ or φ' may be larger than ``top``; the parameters are (T, K).
        A learner that would diverge is frozen. With ``afresh`` the last θ·φ' has the bits of ``predict``, which are
        those of the prediction before the next update; else an engine may take it from sums that it has at hand.
        """
        guard = self._guard
        if guard.users:
            guard.wait()
        guard.users = -1  # (no call in between: see ``common.locks``)
        try:
            if not self._decided:
                self._decide(phi, 1)
            engine, T = self._engine, len(phi.start) - 1
            position = self._ahead + int(engine.scalars.item(self._leader, -1))
            rows, rows_next = (phi, phi_next) if engine.takes_rows else (fit(phi, engine), fit(phi_next, engine))
            if T == 1 and not afresh:
                predictions = engine.learn_row(rows, rows_next, top, parameters, self._frozen)
            else:
                room: NDArray[Any] = np.empty((T if afresh else T + 1, engine.K), self._type)
                engine.run(Steps(rows, rows_next, top, parameters, room, Watch(self._frozen, True)))
                predictions = room[1:]
            if np.count_nonzero(self._frozen):
                self._pass(position + T)
            if not afresh:
                return predictions
            with np.errstate(all="ignore"):
                answers = engine.predict(rows_next if T == 1 else block(rows_next, T - 1, T))
            return answers if T == 1 else np.concatenate([predictions, answers])
        finally:
            guard.users = 0

    def _pass(self, position: int) -> None:
        """Set the position in the stream after a run in which learners may have been frozen."""
        if np.count_nonzero(self._frozen):
            self._set_position(position)
            self._stepper = self._direct = None

    def _features(
        self, Phi: FeaturesLike, Phi_next: FeaturesLike | None, *, look_over: bool = True
    ) -> tuple[Features, Features, float]:
        """φ and φ' of every step, and the largest |component|."""

        def read(name: str, value: FeaturesLike) -> tuple[Features, float]:
            return self._inputs.features(name, value, "run", self.n, self._dtype, look_over=look_over)

        return inputs.log_features(read, Phi, Phi_next)

    def _warn_of_sequences(self, log: Log, Phi: FeaturesLike, Phi_next: FeaturesLike, trusting: bool) -> None:
        """Warn if a step's φ' is not φ of the next step, its γ' is not 0, and no mask was given."""
        t = self._inputs.first_discontinuity(log.phi, log.phi_next, log.parameters[4], self.n)
        if t < 0:
            return
        if trusting:
            self._features(Phi, Phi_next)  # (features that are not finite are an error, not another sequence)
        inputs.warn_of_sequences(t, self.rule.base, stacklevel=4)

    def _make_stepper(self) -> Step | None:
        """The engine's own function for one step, compiled on first use."""
        if not self._decided or self._frozen.all():
            return None
        step = self._engine.stepper(self._K is None)
        if step is not None and self._K is None:
            from emphatic.engines.compiled import interpreted  # (here, where the engine has loaded numba)

            step = _of_numbers(step) if interpreted() else step
        if step is not None and self._K is not None:
            step = _for_horde(step, len(self.rule.parameters), self._K, self._frozen)
        if step is not None and self.rule.extra:
            step = _with_extras(step, self.rule)
        self._direct = self._engine.direct_learn() if self._K is None and not self.rule.extra else None
        self._stepper = step
        return step

    def _active(self, phi: Active) -> Any:
        """One φ given as ``Active``, in the form the engine reads; ``TypeError`` if it does not fit."""
        if phi.__class__ is not Active or phi.indices.ndim != 1 or phi.top >= self.n:
            raise TypeError
        if self._engine.takes_rows:
            return phi
        row = np.zeros(self.n + 1, self._dtype)  # −1, "none", is the last
        row[phi.indices] = phi.values
        return row[:-1]

    def _begin(self, method: StepSize) -> None:
        """Set the memory of the method's rule before the first step."""
        engine = self._engine
        with np.errstate(over="ignore"):
            initial = method.memory() | method.vectors()
        for name, value in initial.items():
            if np.ndim(value) and np.shape(value) != (self._K,):
                wanted = "have numbers, or one for each of K learners, in its options"
                raise refusal("stepsize", "Learner", wanted, f"an array of shape {np.shape(value)}, K={self._K}")
            remembered = name in self.rule.memory
            with np.errstate(over="ignore"):
                cast = np.asarray(value).astype("float64" if remembered else self._dtype)
            if not np.isfinite(cast).all() or not (remembered or (cast > 0.0).all()):
                wanted = f"have options in the range of {cast.dtype}, and no bound below 1e-307"
                raise refusal("stepsize", "Learner", wanted, repr(method))
            if remembered:
                engine.scalars[:, self.rule.memory.index(name)] = cast
            else:
                rows = np.broadcast_to(cast[..., None], (engine.K, self.n))
                engine.put(self.rule.vectors.index(name), np.ascontiguousarray(rows))

    def _with(self, engine: Engine, K: int | None, frozen: NDArray[np.bool_], position: int) -> Self:
        """A learner like this one with another engine."""
        learner = object.__new__(type(self))
        kind = self.rule, K, self._dtype, self._threads, self._decided
        learner.__setstate__((*kind, np.array(frozen), engine, position))
        return learner

    @classmethod
    def _joined(cls, hordes: Sequence[Learner]) -> Learner:
        """``join`` of hordes that fit together."""
        shards = [horde._engine for horde in hordes]
        engine = shards[0].like(sum(shard.K for shard in shards))
        with ExitStack() as stack:
            for horde in hordes:
                stack.enter_context(horde._guard.shared)
            engine.join(shards)
        frozen = np.concatenate([horde._frozen for horde in hordes])
        return hordes[0]._with(engine, engine.K, frozen, hordes[0].position)

    def _set_position(self, position: int) -> None:
        """Set the position in the stream; needed after steps in which the leading learner may have been frozen."""
        self._leader = int(np.argmin(self._frozen))
        self._ahead = position - int(self._engine.counts[self._leader])

    def _take(self, engine: Engine) -> None:
        for name in self.rule.vectors + self.rule.memory:
            if not hasattr(Learner, name):
                setattr(Learner, name, _Named(name))
        self._engine = engine
        self._strides = (self._type.itemsize,)
        self._stepper = self._direct = self._predictor = None
        self._inputs: ModuleType | inputs.TensorInputs = (
            inputs.TensorInputs(engine.place) if engine.takes_tensors else inputs
        )

    def _decide(self, features: Features, T: int) -> None:
        """``auto``: choose the engine and give it the state so far."""
        if self._decided:
            return
        old = self._engine
        active = len(features.indices) / max(1, len(features)) if isinstance(features, Rows) else None
        name = engines.choose(old.n, self._K, T, active, self.rule)
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


# ------------------------------------------------------------------------------------------------ steps


def _with_extras(step: Step, rule: AnyRule) -> Step:
    """A step of a rule with extra parameters, passed by name or left at their defaults, or all passed by position."""

    def take(phi: Vector, phi_next: Vector, *values: ArrayLike, **extra: ArrayLike) -> Any:
        if len(values) == 6:  # only the parameters of every rule
            values = tuple(inputs.resolve(rule, "learn", values, extra, inputs.as_given, mul))
        return step(phi, phi_next, *values)

    return take


def _of_numbers(step: Step) -> Step:
    """The step of one learner as plain Python, which must refuse before it begins what a compiled one cannot read."""

    def take(phi: Vector, phi_next: Vector, *values: float) -> Any:
        if not all(isinstance(value, (int, float, np.integer, np.floating)) for value in values):
            raise TypeError
        return step(phi, phi_next, *values)

    return take


def _for_horde(step: Step, count: int, K: int, frozen: NDArray[np.bool_]) -> Step:
    """The step of K learners, each parameter a number or (K,); returns None where one is neither."""
    table = np.empty((count, 1, K))
    parameters, rows, shape = tuple(table), [row[0] for row in table], (K,)

    def take(phi: Any, phi_next: Any, *values: Any) -> Any:
        for row, value in zip(rows, values, strict=True):
            if value.__class__ is float or value.__class__ is int:
                row.fill(value)
            elif value.__class__ is _plain and value.dtype is _FLOAT64 and value.shape == shape:
                row[:] = value
            else:
                return None
        return step(phi, phi_next, parameters, frozen)

    return take


# ------------------------------------------------------------------------------------------------ one run


@dataclass(slots=True)
class Log:
    """T steps: φ and φ' of each, the largest |component| of these, the parameters (T, K), and where sequences begin."""

    phi: Features
    phi_next: Features
    top: float
    parameters: Arrays
    first: Flags = field(default_factory=lambda: UNBROKEN)

    def into(self, predictions: NDArray[Any], watch: Watch) -> Steps[Any]:
        """The steps as an engine takes them."""
        return Steps(self.phi, self.phi_next, self.top, self.parameters, predictions, watch, self.first)

    def blocks(self, engine: Engine, most: int) -> Iterator[tuple[int, int, Log]]:
        """The steps in blocks of at most so many, and features in the form that the engine reads: begin, end, log."""
        T = len(self.phi)
        fits = isinstance(self.phi, Rows) == isinstance(self.phi_next, Rows) == engine.takes_rows
        if fits and most >= T:
            if T:
                yield 0, T, self
            return
        size = most if fits else min(most, _CONVERTED // engine.n)
        grain = engine.grain[0] or 1
        size = max(1, size // grain) * grain  # as the engine would cut them itself
        for begin in range(0, T, size):
            end = min(begin + size, T)
            phi, phi_next = (block(rows, begin, end) for rows in (self.phi, self.phi_next))
            if isinstance(phi, Rows) and isinstance(phi_next, Rows) and not engine.takes_rows:
                phi, phi_next = engine.dense(phi, phi_next)
            else:
                phi, phi_next = fit(phi, engine), fit(phi_next, engine)
            parameters = tuple(p[begin:end] for p in self.parameters)
            yield begin, end, Log(phi, phi_next, self.top, parameters, self.first[begin:end])


def fit(features: Features, engine: Engine) -> Features:
    """Features in the form that the engine reads."""
    if isinstance(features, Rows):
        return features if engine.takes_rows else features.dense(engine.n, engine.dtype)
    return Rows.of(features) if engine.takes_rows else features


_NOTHING = np.empty(0)


class Collection:
    """What a run of T steps leaves besides the weights: predictions or their squared errors, and value errors."""

    def __init__(
        self, engine: Engine, T: int, predicts: bool, aim: object, probe: Probe | None, every: int, *, direct: bool
    ) -> None:
        self.K, self._dtype, self._compares = engine.K, engine.dtype, aim is not None
        rows = T if predicts and aim is None else 0
        #: (T, K), on the device if requested; no rows if none are requested.
        self.predictions = engine.room(rows) if direct else np.empty((rows, self.K), engine.dtype)
        self.squares: Array = np.zeros(self.K) if self._compares else _NOTHING
        self._probe, self._every = probe, every
        self.errors = _NOTHING if probe is None else np.empty((-(-T // every), self.K))
        #: How many steps to run at a time, so that little memory is needed.
        self.most = T if aim is None else max(1, _COMPARED // self.K)

    def room(self, begin: int, end: int) -> Any:
        """Where the predictions of these steps go."""
        if self._compares:
            return np.empty((end - begin, self.K), self._dtype)
        return self.predictions[begin:end] if len(self.predictions) else self.predictions

    def watch(self, begin: int, frozen: NDArray[np.bool_], freeze: bool) -> Watch:
        """What to watch from step ``begin`` on."""
        if self._probe is None:
            return Watch(frozen, freeze)
        every = self._every
        return Watch(frozen, freeze, self._probe, self.errors[-(-begin // every) :], every, -begin % every)


def _check_outputs(predictions: object, on_divergence: object, *, device: bool) -> None:
    """Check the keywords of ``run`` that select its outputs."""
    if not (predictions is None or isinstance(predictions, bool) or (predictions == "device" and device)):
        wanted = "be True, False or None, or 'device' with the cuda engine"
        raise refusal("predictions", "run", wanted, repr(predictions))
    if on_divergence not in ("raise", "freeze"):
        raise refusal("on_divergence", "run", "be 'raise' or 'freeze'", repr(on_divergence))


def _warn_of(gamma: Array) -> None:
    """Warn if γ is 1 throughout, unless the log is so short that it may well lie within one episode."""
    constant = len(gamma) > 1 and gamma.strides[0] == 0
    if constant or len(gamma) >= inputs.EPISODE:
        warn_if_never_terminating(gamma[:1] if constant else gamma, stacklevel=4)


def _warn_of_lambda_next(rule: AnyRule, lambda_: Array) -> None:
    """Warn if λ varies over the steps and λ' was not given, so that λ of the same step is used."""
    if len(lambda_) > 1 and (lambda_[1:] != lambda_[:-1]).any():
        warnings.warn(
            f"lambda_ varies over the steps, rule {rule.name!r} uses λ of the next step too, and 'lambda_next' was not "
            "given: λ of the same step is used in its place. Give lambda_next=, row t being λ_{t+1}.",
            stacklevel=3,
        )


# ------------------------------------------------------------------------------------------------ several, and files


def join(hordes: Sequence[Learner]) -> Learner:
    """One horde of all these learners, in order: frozen learners stay frozen, and each keeps its own step count.

    Args:
        hordes: Learners with the same rule, n, dtype and engine, at the same position of their stream, as
            ``Learner.select`` gives them.
    """
    if not isinstance(hordes, Sequence) or not all(isinstance(horde, Learner) for horde in hordes) or not hordes:
        raise refusal("hordes", "join", "be a list of one learner or more", show(hordes))
    model = hordes[0]
    for i, horde in enumerate(hordes):
        if (horde.rule, horde.n, horde.dtype, horde.engine) != (model.rule, model.n, model.dtype, model.engine):
            raise refusal("hordes", "join", f"all be like the first, {model!r}", f"{horde!r} at {i}")
    positions = sorted({horde.position for horde in hordes})
    if len(positions) > 1:
        steps = f"steps {', '.join(map(str, positions))}"
        raise refusal("hordes", "join", "be at the same position of the stream", steps)
    return Learner._joined(hordes)


def load(
    path: str | os.PathLike[str],
    *,
    engine: str | None = None,
    rule: AnyRule | None = None,
    devices: Sequence[int] | None = None,
) -> Any:
    """The ``Learner`` or ``LeastSquares`` that ``save`` wrote; it continues bit for bit on the same engine.

    What ``more`` was saved with it is left in the file: ``load_with`` of its class reads that too.

    Args:
        path: The file.
        engine: Another engine to continue with.
        rule: Your own ``Rule``, if the learner has one: a file cannot hold it.
        devices: The GPUs among which the cuda engine divides the learners; they are not saved.
    """
    if checkpoint.has_entry(path, "least_squares"):
        from emphatic.learning.least_squares import LeastSquares

        for name, value in (("engine", engine), ("rule", rule), ("devices", devices)):
            if value is not None:
                raise refusal(name, "load", "be left out for a LeastSquares learner", show(value))
        return LeastSquares.load_with(path)[0]
    checkpoint.check_not_of_nexting(path)
    return Learner._load(path, engine, rule, devices)[0]


# ------------------------------------------------------------------------------------------------ recording

#: Where all of these are 0 a step changes no weight, whatever the rule.
_OFF = ("alpha", "beta", "rho", "gamma_next", "R")


class RecordedLearner:
    """The learner of K questions. One that would diverge is frozen: it keeps its last weights; the others continue.

    ``constant`` has all parameters of a step, (1, K) each, of which I, ρ, γ' and R are passed anew in each step. No
    component of φ is larger than ``top``; where that is None, the components are checked.
    """

    def __init__(self, learner: Learner, constant: Arrays, top: float | None, record: bool) -> None:
        self.learner, self._constant, self._top = learner, constant, top
        self._phi_next: Rows | None = None  # of the last step, where its largest component is known
        self._top_next = 0.0
        self._off = [at for at, name in enumerate(learner.rule.parameters) if name in _OFF]
        self._steps: list[tuple[Any, ...]] | None = [] if record else None

    def learn(
        self,
        phi: Rows,
        phi_next: Rows,
        I: Array,
        rho: Array,
        gamma: Array,
        R: Array,
        alpha: Array | None = None,
        extra: Mapping[str, Array] | None = None,
        afresh: bool = False,
    ) -> Array:
        """Learn from T steps with parameters (T, K); returns θ·φ' after each, (T, K).

        ``alpha`` may be given where no other parameter depends on it, and ``extra`` parameters that vary. With
        ``afresh`` all is as ``Learner.run`` and ``Learner.predict`` would do it, bit for bit.
        """
        constant = self._constant if len(R) == 1 else [np.broadcast_to(p, R.shape) for p in self._constant]
        if extra:
            names = self.learner.rule.parameters
            constant = [extra.get(name, p) for name, p in zip(names, constant, strict=True)]
        parameters = (constant[0] if alpha is None else alpha, I, constant[2], rho, gamma, R, *constant[6:])
        if len(R) == 1 and not (afresh or extra) and self._steps is None and self._top is not None:
            return self.step(phi, phi_next, parameters)
        taken = self._taken if self._steps is not None else None
        top = self._top
        if top is None or afresh:
            # φ of a step is mostly φ' of the step before, whose largest component is known.
            top_now = self._top_next if phi is self._phi_next else _largest(phi.values)
            self._phi_next, self._top_next = phi_next, _largest(phi_next.values)
            top = max(top_now, self._top_next)
        v = self.learner._step(phi, phi_next, top, parameters, afresh)
        if self._steps is not None and taken is not None:
            learned = self._taken - taken
            parameters = self._without(parameters, np.arange(len(phi))[:, None] >= learned)
            features = (phi.indices, phi.values, phi_next.indices, phi_next.values)
            rows = (array.reshape(len(phi), -1) for array in features)
            self._steps.append((*rows, np.zeros(len(phi), bool), *parameters))
        return v

    def step(self, phi: Rows, phi_next: Rows, parameters: Arrays) -> Array:
        """``learn`` from one step with all ``parameters``, where no φ is larger than ``top``; nothing is recorded."""
        assert self._top is not None
        return self.learner._step(phi, phi_next, self._top, parameters)

    @property
    def _taken(self) -> NDArray[np.int64]:
        return self.learner._taken

    def cut(self) -> None:
        """Start a new sequence."""
        self.learner.cut()
        if self._steps:
            index, value, _, _, _, *parameters = (array[-1:] for array in self._steps[-1])
            index, value = np.full_like(index, -1), np.zeros_like(value)
            nothing = self._without(tuple(parameters), np.ones_like(parameters[0], bool))
            self._steps.append((index, value, index, value, np.ones(1, bool), *nothing))

    def log(self) -> dict[str, Any]:
        """The arguments of ``Learner.run`` that lead to the same weights.

        A cut is a step with φ = φ' = 0 and α = ρ = γ' = 0, which changes no weight; ``first`` is True there.
        """
        if not self._steps:
            raise RuntimeError("Nothing was recorded: pass record=True when creating it.")
        index, value, index_next, value_next, first, *parameters = map(np.concatenate, zip(*self._steps, strict=True))
        phi = {"Phi": Active(index, value), "Phi_next": Active(index_next, value_next), "first": first}
        return phi | dict(zip(self.learner.rule.parameters, parameters, strict=True))

    def _without(self, parameters: Arrays, ineffective: NDArray[np.bool_]) -> Arrays:
        """The parameters of steps (T, K), where the marked ones change nothing; copies, for some change in place."""
        return tuple(np.where(ineffective & (at in self._off), 0.0, p) for at, p in enumerate(parameters))


def _largest(values: Array) -> float:
    """The largest |component|."""
    return float(np.maximum.reduce(np.abs(values), initial=0.0))  # (quicker than the method max)
