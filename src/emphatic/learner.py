"""A rule, its state and an engine: learn, run, predict, save."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from emphatic import checkpoint, engines, inputs, rules
from emphatic.active import Active
from emphatic.engines.base import UNFIT, Arrays, Engine, Features
from emphatic.engines.rows import Rows
from emphatic.errors import Diverged
from emphatic.rules import Rule
from emphatic.sequences import warn_if_never_terminating
from emphatic.tensors import Part

__all__ = [
    "ABTD",
    "ETD",
    "GQ",
    "GTD",
    "GTD2",
    "HTD",
    "TD",
    "TDRC",
    "ETDBeta",
    "Learner",
    "ProximalGTD2",
    "TreeBackup",
    "TrueOnlineETD",
    "TrueOnlineETDBeta",
    "TrueOnlineGTD",
    "TrueOnlineTD",
    "VTrace",
    "join",
]

#: Components of φ that are converted at a time when features do not come in the form the engine reads.
_BLOCK = 1 << 21
#: What kernels take without a second look; masked arrays and other subclasses go the long way.
_plain = np.ndarray
#: A log shorter than this may well lie within one episode, whose end is in the next call.
_EPISODE = 10


class Learner:
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

    _quick: Callable[..., float] | None
    _quick_predict: Callable[[Any], float] | None

    __slots__ = (
        "_K",
        "_decided",
        "_dtype",
        "_engine",
        "_frozen",
        "_quick",
        "_quick_predict",
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

    # ------------------------------------------------------------------ learning

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
                if phi.__class__ is Active or (
                    phi.__class__ is _plain is phi_next.__class__ and phi.dtype is self._type
                ):
                    delta = quick(phi, phi_next, alpha, I, lambda_, rho, gamma_next, R, **extra)
                    if delta == delta:
                        return delta
            except Exception:  # not what a kernel takes: the long way says what is wrong
                pass
        return self._learn(phi, phi_next, extra, alpha, I, lambda_, rho, gamma_next, R)

    def _learn(self, phi: Any, phi_next: Any, extra: dict[str, Any], *values: Any) -> Any:
        """``learn`` with every check in words."""
        now, top = inputs.features("phi", phi, "learn", self.n, self._dtype)
        following, top_next = inputs.features("phi_next", phi_next, "learn", self.n, self._dtype)
        parameters = inputs.parameters(self.rule, "learn", 1, self._K, values, extra)
        self._decide(now, 1)
        fit, fit_next = self._fit(now), self._fit(following)
        quick = self._quickly()
        if quick is not None:  # the same kernel as ever, so that the same steps give the same bits
            one, one_next = (f if isinstance(f, Rows) else f[0] for f in (fit, fit_next))
            delta = quick(one, one_next, *(float(p[0, 0]) for p in parameters))
            if delta != delta:
                raise Diverged(self.steps, of="learning")
            return delta
        none = np.empty((0, self._engine.K), self._dtype)
        if self._frozen.any():
            with np.errstate(all="ignore"):
                v, v_next = self._engine.predict(fit)[0], self._engine.predict(fit_next)[0]
                deltas = parameters[5][0] + parameters[4][0] * v_next - v
            status = self._steps(fit, fit_next, max(top, top_next), parameters, none, freeze=False)
        else:
            status, deltas = self._engine.run(fit, fit_next, max(top, top_next), parameters, none)
        if status != -1:
            raise Diverged(self.steps, status, of="learning")
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
        predictions: bool = True,
        probe: tuple[ArrayLike, ArrayLike, ArrayLike] | None = None,
        probe_every: int = 1,
        on_divergence: Literal["raise", "freeze"] = "raise",
        **extra: Any,
    ) -> Any:
        """Learn from a whole log; returns the predictions θ_t·φ_t made before each update, (T,) or (T, K).

        ``Phi`` is (T+1, n), row t being φ_t; with ``Phi_next`` (where φ' of one step is not φ of the next) both are
        (T, n). Either may be ``Active`` or a scipy CSR array. Every other quantity is a number, (T,), (K,) or (T,
        K), ``R[t]`` being R_{t+1} and ``gamma_next[t]`` γ_{t+1}. ``predictions=False`` returns None in their place.

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
        parameters = inputs.parameters(self.rule, "run", T, self._K, (alpha, I, lambda_, rho, gamma_next, R), extra)
        goal = None if probe is None else inputs.probe(probe, self.n)
        every = inputs.whole("probe_every", probe_every, "run")
        if on_divergence not in ("raise", "freeze"):
            raise inputs.refusal("on_divergence", "run", "be 'raise' or 'freeze'", repr(on_divergence))
        gamma = parameters[4]
        constant = T > 1 and gamma.strides[0] == 0
        if constant or T >= _EPISODE:
            warn_if_never_terminating(gamma[:1] if constant else gamma)
        self._decide(now, T)

        K = self._engine.K
        out = np.empty((T if predictions else 0, K), self._dtype)
        error = np.empty((0 if goal is None else -(-T // every), K))
        converts = self._engine.takes_rows != isinstance(now, Rows) or type(now) is not type(following)
        block = every if goal is not None else max(1, _BLOCK // self.n) if converts else max(1, T)
        before = self._engine.copy() if trusting else None
        for begin in range(0, T, block):
            end = min(begin + block, T)
            if goal is not None:
                error[begin // every] = goal(self._engine.vector(0))
            status = self._steps(
                self._fit(_block(now, begin, end)),
                self._fit(_block(following, begin, end)),
                top,
                tuple(p[begin:end] for p in parameters),
                out[begin:end],
                on_divergence == "freeze",
            )
            if status != -1:
                if before is not None:
                    after = self._engine
                    self._take(before)
                    self._log(Phi, Phi_next)  # raises if the features are at fault, and then nothing has changed
                    self._take(after)
                raise Diverged(begin + status // K, status % K)
        answer = self._drop_K(out) if predictions else None
        return answer if goal is None else (answer, self._drop_K(error))

    def _steps(
        self,
        phi: Features,
        phi_next: Features,
        top: float,
        parameters: Arrays,
        out: NDArray[Any],
        freeze: bool,
    ) -> int:
        """``Engine.run`` for the learners that are not frozen; with ``freeze`` those that would diverge join them."""
        whole, T = self._engine, len(phi)
        if not freeze and not self._frozen.any():
            return whole.run(phi, phi_next, top, parameters, out)[0]
        alive, t, status = np.flatnonzero(~self._frozen), 0, -1
        part = whole.select(alive)
        if len(out) and len(alive) < whole.K:
            with np.errstate(all="ignore"):
                out[:, self._frozen] = whole.select(np.flatnonzero(self._frozen)).predict(phi)
        while t < T and len(alive):
            rest = tuple(_columns(p[t:], alive) for p in parameters)
            made = np.empty((T - t if len(out) else 0, len(alive)), self._dtype)
            status, _ = part.run(_block(phi, t, T), _block(phi_next, t, T), top, rest, made)
            if status == UNFIT:
                break
            taken, k = (T - t, 0) if status == -1 else divmod(status, len(alive))
            if len(out):
                out[t : t + taken, alive] = made[:taken]
            t += taken
            if status == -1:
                break
            if not freeze:
                status = t * whole.K + int(alive[k])
                break
            stopped = part.select(np.array([k]))
            if len(out):
                with np.errstate(all="ignore"):  # the last weights are finite, what they predict need not be
                    out[t:, alive[k]] = stopped.predict(_block(phi, t, T))[:, 0]
            whole.place(alive[k : k + 1], stopped)
            self._frozen[alive[k]] = True
            others = np.delete(np.arange(len(alive)), k)
            part, alive, status = part.select(others), alive[others], -1
        whole.place(alive, part)
        return status

    def _log(self, Phi: Any, Phi_next: Any, *, look_over: bool = True) -> tuple[Features, Features, float]:
        """φ and φ' of every step, and the largest |component|."""
        now, top = inputs.features("Phi", Phi, "run", self.n, self._dtype, look_over=look_over)
        if Phi_next is None:
            T = len(now) - 1
            if T < 0:
                raise inputs.refusal("Phi", "run", "have T+1 rows, one at least", "none")
            return _block(now, 0, T), _block(now, 1, T + 1), top
        following, top_next = inputs.features("Phi_next", Phi_next, "run", self.n, self._dtype, look_over=look_over)
        if len(following) != len(now):
            raise inputs.refusal("Phi_next", "run", f"have as many rows as 'Phi', {len(now)}", str(len(following)))
        return now, following, max(top, top_next)

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
        features, _ = inputs.features("phi", phi, "predict", self.n, self._dtype)
        answer = self._engine.predict(self._fit(features))
        one = (phi.indices.ndim if isinstance(phi, Active) else np.ndim(phi)) == 1
        if not one:
            return self._drop_K(answer)
        return float(answer[0, 0]) if self._K is None else answer[0]

    def cut(self) -> None:
        """Forget the traces and the memory (the weights stay): what follows is another sequence."""
        self._engine.cut()

    # ------------------------------------------------------------------ keeping

    def copy(self) -> Learner:
        """Another learner in the same state."""
        return self._with(self._engine.copy(), self._K, self._frozen)

    def select(self, ks: ArrayLike) -> Learner:
        """The learners of these indices, in this order, as a horde of their own."""
        try:
            chosen = np.arange(self._engine.K)[np.asarray(ks)]
        except IndexError:
            chosen = np.empty(0, np.int64)
        if self._K is None or chosen.ndim != 1 or not len(chosen):
            raise inputs.refusal("ks", "select", f"be a list of learners of a horde, below K = {self._K}", repr(ks))
        return self._with(self._engine.select(chosen), len(chosen), self._frozen[chosen])

    __copy__ = copy

    def __deepcopy__(self, memo: object) -> Learner:
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

    def _with(self, engine: Engine, K: int | None, frozen: NDArray[np.bool_]) -> Learner:
        """A learner like this one around another engine."""
        other = Learner(self.rule, 1, dtype=self._dtype, engine="reference", threads=self._threads)
        other._K, other._decided, other._frozen = K, self._decided, np.array(frozen)
        other._take(engine)
        return other

    def _take(self, engine: Engine) -> None:
        self._engine = engine
        self._quick = self._quick_predict = None

    def _quickly(self) -> Callable[..., float] | None:
        """The engine's own way of taking one step, compiled when it is first wanted."""
        if self._quick is None and self._K is None and self._decided and not self._frozen[0]:
            self._quick = self._engine.quick()
        return self._quick

    def _decide(self, features: Features, T: int) -> None:
        """``auto``: choose the engine and hand it what has been set so far."""
        if self._decided:
            return
        old = self._engine
        active = len(features.indices) / max(1, len(features)) if isinstance(features, Rows) else None
        name = engines.choose(old.n, old.K, T, active)
        new = engines.make(name, self.rule, old.n, self._K, old.dtype, self._threads)
        for r in range(len(self.rule.vectors)):
            value = old.vector(r)
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

    def _fit(self, features: Features) -> Features:
        """Features in the form that the engine reads."""
        if isinstance(features, Rows):
            return features if self._engine.takes_rows else features.dense(self.n, self._dtype)
        return Rows.of(features) if self._engine.takes_rows else features


def join(hordes: Sequence[Learner]) -> Learner:
    """One horde of all these learners, which have the same rule, n and dtype, in order; on the first one's engine."""
    first = hordes[0] if len(hordes) else None
    if first is None:
        raise inputs.refusal("hordes", "join", "be a list of one learner or more", "none")
    for i, other in enumerate(hordes):
        if (other.rule, other.n, other.dtype, other.engine) != (first.rule, first.n, first.dtype, first.engine):
            raise inputs.refusal("hordes", "join", f"all be like the first, {first!r}", f"{other!r} at {i}")
    if len({other.steps for other in hordes}) > 1:
        raise inputs.refusal("hordes", "join", "have learned the same number of steps", "different numbers")
    parts = [other._engine for other in hordes]
    whole = parts[0].like(sum(part.K for part in parts))
    whole.join(parts)
    return first._with(whole, whole.K, np.concatenate([other._frozen for other in hordes]))


TD = partial(Learner, "td")
TrueOnlineTD = partial(Learner, "true_online_td")
ETD = partial(Learner, "etd")
ETDBeta = partial(Learner, "etd_beta")
TrueOnlineETD = partial(Learner, "true_online_etd")
TrueOnlineETDBeta = partial(Learner, "true_online_etd_beta")
GTD = partial(Learner, "gtd")
GTD2 = partial(Learner, "gtd2")
TrueOnlineGTD = partial(Learner, "true_online_gtd")
HTD = partial(Learner, "htd")
ProximalGTD2 = partial(Learner, "proximal_gtd2")
TDRC = partial(Learner, "tdrc")
GQ = partial(Learner, "gq")
TreeBackup = partial(Learner, "tree_backup")
VTrace = partial(Learner, "vtrace")
ABTD = partial(Learner, "abtd")


def _columns(p: NDArray[np.float64], ks: NDArray[np.int64]) -> NDArray[np.float64]:
    """The columns of these learners, taking no memory where the parameter is constant."""
    if p.strides[1] == 0:
        return p[:, : len(ks)]
    return np.broadcast_to(p[:1, ks], (len(p), len(ks))) if p.strides[0] == 0 else p[:, ks]


def _block(features: Features, begin: int, end: int) -> Features:
    return features.block(begin, end) if isinstance(features, Rows) else features[begin:end]
