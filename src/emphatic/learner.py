"""Learning: one step, a whole log, and what has been learned so far."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from emphatic import inputs
from emphatic.active import Active
from emphatic.engines.base import Arrays, Features
from emphatic.engines.rows import Rows, block
from emphatic.engines.watching import Watch, strides
from emphatic.errors import Diverged
from emphatic.sequences import warn_if_never_terminating
from emphatic.state import State

__all__ = ["Learner"]

#: Components of φ that are converted at a time when features do not come in the form the engine reads.
_BLOCK = 1 << 21
#: Predictions that are kept at a time when only their errors are wanted.
_SQUARES = 1 << 24
#: What kernels take without a second look; masked arrays and other subclasses go the long way.
_plain = np.ndarray
#: A log shorter than this may well lie within one episode, whose end is in the next call.
_EPISODE = 10


class Learner(State):
    """K learners of one rule on one stream of features; K=None is a single learner without the K axis.

    ``rule`` is a name of ``emphatic.rules.names()`` or a ``Rule``; ``dtype`` is "float64" or "float32"; ``engine`` is
    one of ``emphatic.engines.available()`` or "auto", which decides at the first ``learn`` or ``run``; ``threads`` is
    the most that an engine may use.

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
    raises ``Diverged``.
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
        """One step in the seed's order: alpha through rho are at t, the rest at t+1. Returns the TD error δ.

        φ and φ' are (n,) or ``Active``; every other argument is a number, or with K learners an array (K,). At a
        termination pass ``gamma_next=0`` and any φ' (zeros, by custom), and go on with the next episode's first
        state; or give the terminal state a call of its own with φ = 0 and I = 0.
        """
        quick = self._quick or self._quickly()
        if quick is not None:
            # The kernel looks at everything but the array's type, and answers NaN where anything is amiss.
            try:
                # (numba takes masked arrays for plain ones)
                if (phi.__class__ is _plain is phi_next.__class__ and phi.dtype is self._type) or (
                    phi.__class__ is Active and self._engine.takes_rows
                ):
                    delta = quick(phi, phi_next, alpha, I, lambda_, rho, gamma_next, R, **extra)
                    if delta == delta:
                        return delta
                elif phi.__class__ is Active:
                    one, one_next = self._spread(phi), self._spread(phi_next)
                    delta = quick(one, one_next, alpha, I, lambda_, rho, gamma_next, R, **extra)
                    if delta == delta:
                        return delta
            except Exception:  # not what a kernel takes: the long way says what is wrong
                pass
        return self._learn(phi, phi_next, extra, alpha, I, lambda_, rho, gamma_next, R)

    def _learn(self, phi: Any, phi_next: Any, extra: dict[str, Any], *values: Any) -> Any:
        """``learn`` with every check in words."""
        tensors = self._engine.takes_tensors
        now, top = inputs.features("phi", phi, "learn", self.n, self._dtype, tensors=tensors)
        following, top_next = inputs.features("phi_next", phi_next, "learn", self.n, self._dtype, tensors=tensors)
        parameters = inputs.parameters(self.rule, "learn", 1, self._K, values, extra, tensors=tensors)
        self._decide(now, 1)
        fit, fit_next = self._fit(now), self._fit(following)
        quick = self._quickly()
        if quick is not None:  # the same kernel as ever, so that the same steps give the same bits
            one, one_next = (f if isinstance(f, Rows) else f[0] for f in (fit, fit_next))
            delta = quick(one, one_next, *(float(p[0, 0]) for p in parameters))
            if delta != delta:
                raise Diverged(self.steps, of="learning")
            return delta
        none, position = np.empty((0, self._engine.K), self._dtype), self.position
        if self._frozen.any():
            with np.errstate(all="ignore"):
                v, v_next = self._engine.predict(fit)[0], self._engine.predict(fit_next)[0]
                deltas = parameters[5][0] + parameters[4][0] * v_next - v
            status = self._engine.run_watched(fit, fit_next, max(top, top_next), parameters, none, Watch(self._frozen))
        else:
            status, deltas = self._engine.run(fit, fit_next, max(top, top_next), parameters, none)
        if status != -1:
            raise Diverged(self.steps, status, of="learning")
        self._stand_at(position + 1)
        return float(deltas[0]) if self._K is None else deltas.copy()

    def run(
        self,
        Phi: Any,
        R: Any,
        gamma_next: Any,
        *,
        alpha: Any,
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
        place, and ``"device"`` leaves them on the cuda engine's device, as a torch tensor. Given the ``returns`` that
        the predictions were to foretell, each learner's mean squared error is returned in their place, (K,).

        The cuda engine also takes torch tensors; those on its device are used where they are.

        ``probe=(Phi_s, v, d)`` also returns the root mean square value error sqrt(Σ d (Phi_s θ_t − v)² / Σ d) before
        each update, or before each ``probe_every``-th one: the result is then (predictions, error).

        With ``on_divergence="freeze"`` a learner that would diverge keeps its last finite weights from there on, and
        the others go on; ``frozen`` says which these are. By default ``Diverged`` is raised.

        >>> import numpy as np
        >>> learner = Learner("true_online_td", 1)
        >>> learner.run(np.ones((4, 1)), [1.0, 1.0, 1.0], 0.5, alpha=0.5)
        array([0.   , 0.5  , 0.875])
        """
        # An engine that looks the features over as it goes need not wait for a look before.
        trusting = self._decided and self._engine.looks_over
        now, following, top = self._log(Phi, Phi_next, look_over=not trusting)
        T = len(now)
        if trusting and T == 0:
            self._log(Phi, Phi_next)  # no step will look at the one row there is
        tensors = self._engine.takes_tensors
        values = (alpha, I, lambda_, rho, gamma_next, R)
        parameters = inputs.parameters(self.rule, "run", T, self._K, values, extra, tensors=tensors)
        aim = None if returns is None else inputs.series("returns", returns, T, self._K, self.rule, tensors=tensors)
        if not (predictions is None or isinstance(predictions, bool) or (predictions == "device" and tensors)):
            wanted = "be True, False or None, or 'device' with the cuda engine"
            raise inputs.refusal("predictions", "run", wanted, repr(predictions))
        goal = None if probe is None else inputs.probe(probe, self.n)
        every = inputs.whole("probe_every", probe_every, "run")
        if on_divergence not in ("raise", "freeze"):
            raise inputs.refusal("on_divergence", "run", "be 'raise' or 'freeze'", repr(on_divergence))
        gamma = parameters[4]
        constant = T > 1 and strides(gamma)[0] == 0
        if constant or T >= _EPISODE:
            warn_if_never_terminating(inputs.least(gamma[:1] if constant else gamma))
        self._decide(now, T)

        K = self._engine.K
        direct = predictions == "device" and on_divergence == "raise" and not self._frozen.any()
        kept = T if predictions and aim is None else 0
        out = self._engine.room(kept) if direct else np.empty((kept, K), self._dtype)
        squares = np.zeros(K)
        error = np.empty((0 if goal is None else -(-T // every), K))
        converts = self._engine.takes_rows != isinstance(now, Rows) or type(now) is not type(following)
        size = max(1, _BLOCK // self.n if converts else T)
        if aim is not None:
            size = min(size, max(1, _SQUARES // K))
        if size < T:  # as the engine would cut them itself
            grain = self._engine.grain[0] or 1
            size = max(1, size // grain) * grain
        before = self._engine.copy() if trusting else None
        position = self.position
        for begin in range(0, T, size):
            end = min(begin + size, T)
            made = out[begin:end] if aim is None else np.empty((end - begin, K), self._dtype)
            watch = Watch(
                self._frozen, on_divergence == "freeze", goal, error[-(-begin // every) :], every, -begin % every
            )
            status = self._engine.run_watched(
                self._fit(block(now, begin, end)),
                self._fit(block(following, begin, end)),
                top,
                tuple(p[begin:end] for p in parameters),
                made,
                watch,
            )
            if aim is not None and status == -1:
                squares += inputs.squares(made, aim[begin:end])
            if status != -1:
                if before is not None:
                    after = self._engine
                    self._take(before)
                    self._log(Phi, Phi_next)  # raises if the features are at fault, and then nothing has changed
                    self._take(after)
                raise Diverged(begin + status // K, status % K)
        self._stand_at(position + T)
        if aim is not None:
            answer: Any = squares / T if self._K is not None else float(squares[0] / T)
        else:
            if predictions == "device" and not direct:
                out = self._engine.room(T, out)
            answer = self._drop_K(out) if predictions else None
        return answer if goal is None else (answer, self._drop_K(error))

    def predict(self, phi: Any) -> Any:
        """θ·φ for φ of shape (n,) or (T, n), ``Active`` or CSR: a number or (T,); with K learners (K,) or (T, K)."""
        if self._quick_predict is None and self._K is None and self._decided:
            self._quick_predict = self._engine.quick_predict()
        quick = self._quick_predict
        if quick is not None and (phi.__class__ is Active or (phi.__class__ is _plain and phi.dtype is self._type)):
            try:
                value = quick(phi)
                if math.isfinite(value):
                    return value
            except Exception:
                pass
        features, _ = inputs.features("phi", phi, "predict", self.n, self._dtype, tensors=self._engine.takes_tensors)
        answer = self._engine.predict(self._fit(features))
        one = (phi.indices.ndim if isinstance(phi, Active) else np.ndim(phi)) == 1
        if not one:
            return self._drop_K(answer)
        return float(answer[0, 0]) if self._K is None else answer[0]

    # ------------------------------------------------------------------ inside

    def _step(self, phi: Rows, phi_next: Rows, top: float, parameters: Arrays) -> NDArray[Any]:
        """``run`` on a few rows, then ``predict`` at the last φ', (K,), for a caller who has checked what he gives.

        No component of φ or φ' may be larger than ``top``; the parameters are (T, K).
        """
        self._decide(phi, 1)
        status, v = self._engine.step(self._fit(phi), self._fit(phi_next), top, parameters)
        if status != -1:
            raise Diverged(status // self._engine.K, status % self._engine.K)
        return v

    def _log(self, Phi: Any, Phi_next: Any, *, look_over: bool = True) -> tuple[Features, Features, float]:
        """φ and φ' of every step, and the largest |component|."""
        of: dict[str, Any] = {"look_over": look_over, "tensors": self._engine.takes_tensors}
        now, top = inputs.features("Phi", Phi, "run", self.n, self._dtype, **of)
        if Phi_next is None:
            T = len(now) - 1
            if T < 0:
                raise inputs.refusal("Phi", "run", "have T+1 rows, one at least", "none")
            return block(now, 0, T), block(now, 1, T + 1), top
        following, top_next = inputs.features("Phi_next", Phi_next, "run", self.n, self._dtype, **of)
        if len(following) != len(now):
            raise inputs.refusal("Phi_next", "run", f"have as many rows as 'Phi', {len(now)}", str(len(following)))
        return now, following, max(top, top_next)

    def _quickly(self) -> Callable[..., float] | None:
        """The engine's own way of taking one step, compiled when it is first wanted."""
        if self._quick is None and self._K is None and self._decided and not self._frozen[0]:
            self._quick = self._engine.quick()
        return self._quick

    def _spread(self, phi: Active) -> NDArray[Any]:
        """One φ as an array, quickly; IndexError if it is not one φ of n features."""
        if phi.indices.ndim != 1 or phi.top >= self.n:
            raise IndexError
        out = np.zeros(self.n + 1, self._dtype)  # −1, "none", is the last
        out[phi.indices] = phi.values
        return out[:-1]

    def _fit(self, features: Features) -> Features:
        """Features in the form that the engine reads."""
        if isinstance(features, Rows):
            return features if self._engine.takes_rows else features.dense(self.n, self._dtype)
        return Rows.of(features) if self._engine.takes_rows else features
