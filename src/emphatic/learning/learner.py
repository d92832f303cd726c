"""Learning: one step, a whole log, and what has been learned so far."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from operator import mul
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from emphatic.engines.base import Arrays, Features, Rows, Watch, block
from emphatic.errors import Diverged
from emphatic.learning import inputs
from emphatic.learning.active import Active
from emphatic.learning.runs import Collection, Log, check_outputs, fit
from emphatic.learning.sequences import warn_if_never_terminating
from emphatic.learning.state import State
from emphatic.rules import AnyRule

__all__ = ["Learner"]

#: The one class of arrays that kernels take directly; masked arrays and other subclasses are converted first.
_plain = np.ndarray
_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
#: The default of ``alpha`` in ``run``, where None is bad input unless the learner has a stepsize.
_ABSENT: Any = object()


class Learner(State):
    """K learners of one rule on one stream of features; K=None is a single learner without the K axis.

    ``rule`` is a name from ``emphatic.rules.names()`` or a ``Rule`` of your own; ``dtype`` is "float64" or "float32";
    ``engine`` is one of ``emphatic.engines.available()`` or "auto", which decides at the first ``learn`` or ``run``;
    ``threads`` is the most threads that an engine may use; ``devices`` are the numbers of the GPUs among which the cuda
    engine divides the learners. ``stepsize`` is a name from ``emphatic.stepsizes.names()`` or an object of
    ``emphatic.stepsizes`` that sets the step sizes; ``alpha`` then multiplies them.

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
    """

    __slots__ = ()

    def learn(
        self,
        alpha: Any,
        I: Any,
        lambda_: Any,
        phi: Any,
        rho: Any,
        R: Any,
        phi_next: Any,
        gamma_next: Any,
        **extra: Any,
    ) -> Any:
        """One step; returns the TD error δ = R + γ'θ·φ' − θ·φ, from before the update.

        Arguments are in the order of Sutton (2015): alpha through rho are at t, the rest at t+1.

        φ and φ' are (n,) or ``Active``; every other argument is a number, or with K learners an array (K,). At a
        termination pass ``gamma_next=0`` and any φ' (zeros by convention), and continue with the next episode's first
        state; or give the terminal state a call of its own with φ = 0 and I = 0.
        """
        guard = self._guard
        if guard.users:
            guard.wait()
        guard.users = -1  # (no call in between: see ``common.guard``)
        try:
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
                        one, one_next = phi, phi_next
                    else:
                        one, one_next = self._active(phi), self._active(phi_next)
                    if extra:
                        delta = step(one, one_next, alpha, I, lambda_, rho, gamma_next, R, **extra)
                    else:  # (unpacking even an empty dict takes time)
                        delta = step(one, one_next, alpha, I, lambda_, rho, gamma_next, R)
                    if delta == delta if delta.__class__ is float else delta is not None:
                        return delta
                except Exception:  # not what a kernel accepts: the checks below name the problem
                    pass
            return self._learn(phi, phi_next, extra, alpha, I, lambda_, rho, gamma_next, R)
        finally:
            guard.users = 0

    def _learn(self, phi: Any, phi_next: Any, extra: dict[str, Any], *values: Any) -> Any:
        """``learn`` with every check, and an error message for each."""
        check = self._inputs
        now, top = check.features("phi", phi, "learn", self.n, self._dtype)
        following, top_next = check.features("phi_next", phi_next, "learn", self.n, self._dtype)
        parameters = check.parameters(self.rule, "learn", 1, self._K, values, extra)
        self._decide(now, 1)
        engine = self._engine
        now, following = fit(now, engine), fit(following, engine)
        step = self._stepper or self._make_stepper()
        if step is not None:  # the same kernel as ever, so that the same steps give the same bits
            one, one_next = (some if isinstance(some, Rows) else some[0] for some in (now, following))
            if self._K is None:
                delta = step(one, one_next, *(p.item() for p in parameters))
                if delta != delta:
                    raise Diverged(self.steps, of="learning")
                return delta
            deltas = step(one, one_next, *(p[0] for p in parameters))
            if deltas is not None:
                return deltas
        none, position = np.empty((0, engine.K), self._dtype), self.position
        status = engine.run(now, following, max(top, top_next), parameters, none, Watch(self._frozen))
        if status != -1:
            raise Diverged(self.steps, status, of="learning")
        self._set_position(position + 1)
        return float(engine.delta[0]) if self._K is None else engine.delta.copy()

    def run(
        self,
        Phi: Any,
        R: Any,
        gamma_next: Any,
        *,
        alpha: Any = _ABSENT,
        lambda_: Any = 0.0,
        rho: Any = 1.0,
        I: Any = 1.0,
        Phi_next: Any = None,
        predictions: bool | Literal["device"] | None = True,
        returns: Any = None,
        probe: tuple[ArrayLike, ArrayLike, ArrayLike] | None = None,
        probe_every: int = 1,
        on_divergence: Literal["raise", "freeze"] = "raise",
        **extra: Any,
    ) -> Any:
        """Learn from a whole log; returns the predictions θ_t·φ_t made before each update, (T,) or (T, K).

        ``Phi`` is (T+1, n), row t being φ_t; with ``Phi_next`` (where φ' of one step is not φ of the next) both are
        (T, n). Either may be ``Active`` or a scipy CSR array. Every other quantity is a number, (T,), (K,) or (T,
        K), ``R[t]`` being R_{t+1} and ``gamma_next[t]`` γ_{t+1}. ``predictions=False`` or None returns None in their
        place, and ``"device"`` leaves them on the cuda engine's device, as a torch tensor. Given the actual
        ``returns``, each learner's mean squared prediction error is returned in their place, (K,).

        ``alpha`` may be left out where the learner has a ``stepsize``.

        Every array may be anything with ``__dlpack__``, such as a torch tensor or a CuPy or JAX array. The cuda engine
        uses those on its device where they are; with other engines they must be on the host.

        ``probe=(Phi_s, v, d)`` also returns the root mean square value error sqrt(Σ d (Phi_s θ_t − v)² / Σ d) before
        each update, or before each ``probe_every``-th one: the result is then (predictions, error). ``v`` and ``d`` are
        (S,), or with K learners (K, S): then learner k is judged by its own values v[k] and weights d[k].

        With ``on_divergence="freeze"`` a learner that would diverge keeps its last finite weights from there on, and
        the others go on; ``frozen`` tells which. By default ``Diverged`` is raised.

        >>> import numpy as np
        >>> learner = Learner("true_online_td", 1)
        >>> learner.run(np.ones((4, 1)), [1.0, 1.0, 1.0], 0.5, alpha=0.5)
        array([0.   , 0.5  , 0.875])
        """
        guard = self._guard
        if guard.users:
            guard.wait()
        guard.users = -1  # (no call in between: see ``common.guard``)
        try:
            return self._run(
                Phi, R, gamma_next, alpha, lambda_, rho, I, Phi_next, predictions, returns, probe, probe_every,
                on_divergence, extra,
            )  # fmt: skip
        finally:
            guard.users = 0

    def _run(
        self, Phi: Any, R: Any, gamma_next: Any, alpha: Any, lambda_: Any, rho: Any, I: Any, Phi_next: Any,
        predictions: Any, returns: Any, probe: Any, probe_every: int, on_divergence: Any, extra: dict[str, Any],
    ) -> Any:  # fmt: skip
        """``run``, with exclusive use of the learner."""
        if self.rule.stepsize is not None and (alpha is _ABSENT or alpha is None):
            alpha = 1.0
        if alpha is _ABSENT:
            raise TypeError("run() missing 1 required keyword-only argument: 'alpha'; or give Learner a stepsize.")
        values = (alpha, I, lambda_, rho, gamma_next, R)
        # An engine that checks features as it runs needs no check beforehand.
        trusting = on_divergence == "raise" and self._decided and self._engine.looks_over
        log = self._log(Phi, Phi_next, values, extra, look_over=not trusting)
        T, check = len(log.phi), self._inputs
        if trusting and T == 0:
            self._features(Phi, Phi_next)  # no step will check the only row
        aim = None if returns is None else check.series("run", T, self._K, self.rule, "returns", returns)
        check_outputs(predictions, on_divergence, device=self._engine.takes_tensors)
        goal = None if probe is None else inputs.probe(probe, self.n, self._K)
        every = inputs.whole("probe_every", probe_every, "run")
        _warn_of(check.least_rows(log.parameters[4]))
        if "lambda_next" in self.rule.extra and "lambda_next" not in extra:
            _warn_of_lambda_next(self.rule, log.parameters[2])
        self._decide(log.phi, T)

        collection = Collection(self._engine, T, predictions, aim, goal, every, direct=predictions == "device")
        before, position = self._engine.snapshot() if trusting else None, self.position
        for begin, end, steps in log.blocks(self._engine, collection.most):
            made = collection.room(begin, end)
            watch = collection.watch(begin, self._frozen, on_divergence == "freeze")
            status = self._engine.run(steps.phi, steps.phi_next, steps.top, steps.parameters, made, watch)
            if status != -1:
                if before is not None:
                    self._refuse_unfit(before, Phi, Phi_next)
                raise Diverged(begin + status // self._engine.K, status % self._engine.K)
            collection.add(begin, end, made, check.sum_squares)
        self._pass(position + T)
        return self._answer(collection, predictions, aim, goal)

    def _answer(self, collection: Collection, predictions: Any, aim: Any, goal: Any) -> Any:
        """What ``run`` returns."""
        if aim is not None:
            mean = collection.squares / collection.T
            answer: Any = mean if self._K is not None else float(mean[0])
        else:
            answer = self._drop_K(collection.predictions) if predictions else None
        return answer if goal is None else (answer, self._drop_K(collection.errors))

    def predict(self, phi: Any) -> Any:
        """θ·φ for φ of shape (n,) or (T, n), ``Active`` or CSR: a number or (T,); with K learners (K,) or (T, K)."""
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
                    if math.isfinite(value):
                        return value
                except Exception:
                    pass
            phi = self._inputs.import_array("phi", phi, "predict")
            features, _ = self._inputs.features("phi", phi, "predict", self.n, self._dtype)
            answer = self._engine.predict(fit(features, self._engine))
            one = (phi.indices.ndim if isinstance(phi, Active) else np.ndim(phi)) == 1
            if not one:
                return self._drop_K(answer)
            return float(answer[0, 0]) if self._K is None else answer[0]
        finally:
            guard.users -= 1

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
        guard.users = -1  # (no call in between: see ``common.guard``)
        try:
            if not self._decided:
                self._decide(phi, 1)
            engine, T = self._engine, len(phi.start) - 1
            position = self._ahead + int(engine.scalars.item(self._leader, -1))
            predictions: NDArray[Any] = np.empty((T + 1, engine.K), self._type)
            now, following = (phi, phi_next) if engine.takes_rows else (fit(phi, engine), fit(phi_next, engine))
            watch = Watch(self._frozen, True)
            engine.run(now, following, top, parameters, predictions[:T] if afresh else predictions, watch)
            if afresh:
                with np.errstate(all="ignore"):
                    predictions[T] = engine.predict(block(following, T - 1, T))[0]
            if np.count_nonzero(self._frozen):
                self._pass(position + T)
            return predictions[1:]
        finally:
            guard.users = 0

    def _pass(self, position: int) -> None:
        """Set the position in the stream after a run in which learners may have been frozen."""
        if np.count_nonzero(self._frozen):
            self._set_position(position)
            self._stepper = None

    def _log(
        self, Phi: Any, Phi_next: Any, values: tuple[Any, ...], extra: dict[str, Any], *, look_over: bool = True
    ) -> Log:
        """Features and parameters of every step, checked."""
        now, following, top = self._features(Phi, Phi_next, look_over=look_over)
        return Log(now, following, top, self._inputs.parameters(self.rule, "run", len(now), self._K, values, extra))

    def _features(self, Phi: Any, Phi_next: Any, *, look_over: bool = True) -> tuple[Features, Features, float]:
        """φ and φ' of every step, and the largest |component|."""
        read = self._inputs.features
        now, top = read("Phi", Phi, "run", self.n, self._dtype, look_over=look_over)
        if Phi_next is None:
            T = len(now) - 1
            if T < 0:
                raise inputs.refusal("Phi", "run", "have T + 1 rows for T steps, so at least one", "none")
            return block(now, 0, T), block(now, 1, T + 1), top
        following, top_next = read("Phi_next", Phi_next, "run", self.n, self._dtype, look_over=look_over)
        if len(following) != len(now):
            raise inputs.refusal("Phi_next", "run", f"have as many rows as 'Phi', {len(now)}", str(len(following)))
        return now, following, max(top, top_next)

    def _refuse_unfit(self, before: Any, Phi: Any, Phi_next: Any) -> None:
        """Raise if the features were at fault; the state is then restored."""
        try:
            self._features(Phi, Phi_next)
        except ValueError:
            self._engine.restore(before)
            raise

    def _make_stepper(self) -> Callable[..., Any] | None:
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
        self._stepper = step
        return step

    def _active(self, phi: Any) -> Any:
        """One φ given as ``Active``, in the form the engine reads; ``TypeError`` if it does not fit."""
        if phi.__class__ is not Active or phi.indices.ndim != 1 or phi.top >= self.n:
            raise TypeError
        if self._engine.takes_rows:
            return phi
        out = np.zeros(self.n + 1, self._dtype)  # −1, "none", is the last
        out[phi.indices] = phi.values
        return out[:-1]


def _with_extras(step: Callable[..., Any], rule: AnyRule) -> Callable[..., Any]:
    """A step of a rule with extra parameters, passed by name or left at their defaults, or all passed by position."""

    def take(phi: Any, phi_next: Any, *values: Any, **extra: Any) -> Any:
        if len(values) == 6:  # only the parameters of every rule
            values = tuple(inputs.resolve(rule, "learn", values, extra, inputs.as_given, mul))
        return step(phi, phi_next, *values)

    return take


def _of_numbers(step: Callable[..., Any]) -> Callable[..., Any]:
    """The step of one learner as plain Python, which must refuse before it begins what a compiled one cannot read."""

    def take(phi: Any, phi_next: Any, *values: Any) -> Any:
        if not all(isinstance(value, (int, float, np.integer, np.floating)) for value in values):
            raise TypeError
        return step(phi, phi_next, *values)

    return take


def _for_horde(step: Callable[..., Any], count: int, K: int, frozen: NDArray[np.bool_]) -> Callable[..., Any]:
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


def _warn_of(gamma: NDArray[np.float64]) -> None:
    """Warn if γ is 1 throughout, unless the log is so short that it may well lie within one episode."""
    constant = len(gamma) > 1 and gamma.strides[0] == 0
    if constant or len(gamma) >= inputs.EPISODE:
        warn_if_never_terminating(gamma[:1] if constant else gamma, stacklevel=5)


def _warn_of_lambda_next(rule: AnyRule, lambda_: Any) -> None:
    """Warn if λ varies over the steps and λ' was not given, so that λ of the same step is used."""
    if len(lambda_) > 1 and (lambda_[1:] != lambda_[:-1]).any():
        warnings.warn(
            f"lambda_ varies over the steps, rule {rule.name!r} uses λ of the next step too, and 'lambda_next' was not "
            "given: λ of the same step is used in its place. Give lambda_next=, row t being λ_{t+1}.",
            stacklevel=4,
        )
