"""Streams that bite: experience on which a slip in an update cannot hide, and the one measure of agreement.

α, I, λ, ρ, γ and R all change every step; ρ = 0, γ = 0, I = 0, α = 0 and λ ∈ {0, 1} all occur; features are
signed, states recur, and some φ are 0. (On an on-policy walk with constant parameters half of the one-line
slips in the pseudocode go unnoticed.) The step size is scaled by what it meets, so that results stay O(1)
however long the stream. A rule's own parameters (β, λ', κ, π, μ, ξ) change every step too, independently.

    make(seed, T, n, K, …)      one seeded stream, for any of the rules
    streams(…)                  the same kind, drawn and shrunk by hypothesis
    relative_error, TOLERANCE   how far apart two results are, and how far they may be
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import emphatic
from tests.support.equations import CORE, LAST, RULES, Array, Result, Sequence
from tests.support.rules import find

TOLERANCE = {"float64": 1e-10, "float32": 1e-4}

PARAMETERS = ("R", "gamma_next", "alpha", "lambda_", "rho", "I")
NO_EXTRA: Mapping[str, Array] = MappingProxyType({})


def state(learner: emphatic.Learner) -> dict[str, bytes]:
    """All that a learner shows, to the bit."""
    names = ("steps", *learner.rule.vectors, *learner.rule.memory)
    return {name: np.asarray(getattr(learner, name)).tobytes() for name in names}


def relative_error(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    """max|a − b| / max(0.01, max|b|), b being the trusted side; NaN or another shape is infinitely far."""
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if a.shape != b.shape or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return float("inf")
    if a.size == 0:
        return 0.0
    return float(np.abs(a - b).max() / max(0.01, np.abs(b).max()))


@dataclass(frozen=True)
class Stream:
    """A log of T steps for one learner (K = None, parameters (T,)) or for K of them (parameters (T, K)).

    `Phi` is (T+1, n), or (T, n) beside a `Phi_next`. Where there are `indices` (rows, k), −1 being "none",
    and `values` (None: all 1), they say the same as `Phi`, and `run` and `learn` give them to the learner
    unless told `active=False`. `extra` holds a rule's own parameters, such as β.
    """

    Phi: Array
    R: Array
    gamma_next: Array
    alpha: Array
    lambda_: Array
    rho: Array
    I: Array
    extra: Mapping[str, Array] = field(default_factory=lambda: NO_EXTRA)
    Phi_next: Array | None = None
    indices: npt.NDArray[np.int64] | None = None
    values: Array | None = None
    indices_next: npt.NDArray[np.int64] | None = None
    values_next: Array | None = None

    @property
    def T(self) -> int:
        return len(self.R)

    @property
    def n(self) -> int:
        return int(self.Phi.shape[1])

    @property
    def K(self) -> int | None:
        return int(self.R.shape[1]) if self.R.ndim == 2 else None

    # ------------------------------------------------------------------ one learner's view

    def parameters(self, steps: slice | int = slice(None)) -> dict[str, Array]:
        """Every parameter of these steps by its name in `Learner.run`, but for Phi and Phi_next."""
        arrays = {name: getattr(self, name) for name in PARAMETERS} | dict(self.extra)
        return {name: array[steps] for name, array in arrays.items()}

    def sequence(self, k: int | None = None, theta_0: npt.ArrayLike | None = None) -> Sequence:
        """Learner k's (or the only learner's) sequence, for the functions of `tests.support.equations`."""
        if self.Phi_next is None:
            Phi, Phi_next = self.Phi[:-1], self.Phi[1:]
        else:
            Phi, Phi_next = self.Phi, self.Phi_next
        p: dict[str, Any] = {name: v if k is None else v[:, k] for name, v in self.parameters().items()}
        p["theta_0"] = np.zeros(self.n) if theta_0 is None else np.asarray(theta_0, dtype=np.float64)
        return Sequence(Phi, Phi_next, **p)

    def expected(self, rule: str, theta_0: npt.ArrayLike | None = None) -> Expected:
        """What the equations say of `rule` on this stream, in the shapes of a learner with this K."""
        if self.K is None:
            return Expected.of([RULES[rule](self.sequence(None, theta_0))])[0]
        starts = [None] * self.K if theta_0 is None else np.asarray(theta_0)
        return Expected.of([RULES[rule](self.sequence(k, starts[k])) for k in range(self.K)])

    def __getitem__(self, steps: slice) -> Stream:
        """The steps start:stop as a stream of their own."""
        start, stop, _ = steps.indices(self.T)
        rows = slice(start, stop + 1 if self.Phi_next is None else stop)
        cut: dict[str, Any] = {name: getattr(self, name) for name in ("Phi", "indices", "values")}
        cut = {name: None if v is None else v[rows] for name, v in cut.items()}
        for name in ("Phi_next", "indices_next", "values_next"):
            v = getattr(self, name)
            cut[name] = None if v is None else v[start:stop]
        p: dict[str, Any] = self.parameters(slice(start, stop))
        return replace(self, **cut, extra={k: p.pop(k) for k in self.extra}, **p)

    def of_learners(self, learners: npt.ArrayLike) -> Stream:
        """The stream with only these learners' parameters, in this order."""
        p: dict[str, Any] = {name: v[:, np.asarray(learners)] for name, v in self.parameters().items()}
        return replace(self, extra={k: p.pop(k) for k in self.extra}, **p)

    # ------------------------------------------------------------------ feeding a learner

    def features(self, active: bool = True) -> tuple[Any, Any]:
        """`Phi` and `Phi_next` as `run` takes them: `Active` where there are indices, else arrays."""
        if not active or self.indices is None:
            return self.Phi, self.Phi_next
        Phi = emphatic.Active(self.indices, self.values)
        if self.indices_next is None:
            return Phi, None
        return Phi, emphatic.Active(self.indices_next, self.values_next)

    def step_features(self, t: int, active: bool = True) -> tuple[Any, Any]:
        """φ_t and φ'_t as `learn` takes them."""
        if not active or self.indices is None:
            return self.Phi[t], self.Phi[t + 1] if self.Phi_next is None else self.Phi_next[t]

        def row(indices: npt.NDArray[np.int64], values: Array | None, t: int) -> Any:
            return emphatic.Active(indices[t], None if values is None else values[t])

        phi = row(self.indices, self.values, t)
        if self.indices_next is None:
            return phi, row(self.indices, self.values, t + 1)
        return phi, row(self.indices_next, self.values_next, t)

    def run(self, learner: Any, *, active: bool = True) -> Array:
        """Feed all steps by one `run`; its predictions."""
        Phi, Phi_next = self.features(active)
        p = self.parameters()
        R, gamma_next = p.pop("R"), p.pop("gamma_next")
        return np.asarray(learner.run(Phi, R, gamma_next, Phi_next=Phi_next, **p))

    def learn(self, learner: Any, *, active: bool = True) -> Array:
        """Feed all steps by `predict` and `learn`, one by one; the predictions."""
        predictions = []
        for t in range(self.T):
            phi, phi_next = self.step_features(t, active)
            predictions.append(learner.predict(phi))
            learner.learn(phi=phi, phi_next=phi_next, **self.parameters(t))
        return np.array(predictions, dtype=np.float64).reshape(self.R.shape)


@dataclass(frozen=True)
class Expected:
    """Every vector as the last step leaves it, by name, and every prediction, of all learners: (K, n), (T, K)."""

    vectors: Mapping[str, Array]
    predictions: Array

    @property
    def theta(self) -> Array:
        return self.vectors["theta"]

    @property
    def e(self) -> Array:
        return self.vectors["e"]

    @classmethod
    def of(cls, results: list[Result]) -> Expected:
        last = [r.last for r in results]
        vectors = {name: np.array([vectors[name] for vectors in last]) for name in last[0]}
        return cls(vectors, np.array([r.predictions for r in results]).T)

    def __getitem__(self, k: int | npt.NDArray[np.int64]) -> Expected:
        """Learner k alone, or these learners in this order."""
        return Expected({name: rows[k] for name, rows in self.vectors.items()}, self.predictions[:, k])


# ------------------------------------------------------------------------------------------------ making them


def scaled_alpha(a: Array, Phi: Array, gamma_next: Array, lambda_: Array, rho: Array, I: Array, decay: Array) -> Array:
    """a_t / max(1, ‖φ‖²_max ε_t), where ε_t‖φ‖_max bounds the length of the accumulating trace for the
    largest emphasis that any of the rules would give. So α_tρ_tM_tφ_t·φ_t ≤ a_t: no rule overshoots far."""
    alpha = np.zeros_like(a)
    F = epsilon = gamma = rho_before = np.zeros_like(a[0])
    square = max(1e-9, float((Phi**2).sum(axis=1).max()))
    for t in range(len(a)):
        F = rho_before * np.where(gamma == 0.0, 0.0, np.maximum(gamma, decay[t])) * F + I[t]
        M = lambda_[t] * I[t] + (1.0 - lambda_[t]) * F
        epsilon = rho[t] * (gamma * lambda_[t] * epsilon + M)
        alpha[t] = a[t] / np.maximum(1.0, square * epsilon)
        gamma, rho_before = gamma_next[t], rho[t]
    return alpha


#: A rule's own parameters that may be left out.
OPTIONAL = ("beta", "lambda_next", "kappa", "rho_bar", "clip", "low", "high")


def with_parameters_of(rule: str, stream: Stream, seed: int, a: Array, given: str) -> Stream:
    """The stream with the rule's own parameters and with I = 1 if it has no interest.

    Both step sizes are scaled by φ and by the traces that the rule itself will have, so that α_tρ_t‖e_t‖‖φ‖ ≤ a_t.
    """
    rng, shape = np.random.default_rng([seed, 16]), stream.R.shape

    def drawn(low: float, high: float, *special: float) -> Array:
        otherwise = low + (high - low) * rng.random(shape)
        return np.where(rng.random(shape) < 0.3, rng.choice(special, shape), otherwise)

    own = {
        "beta": drawn(0.1, 0.7, 0.0, 0.5),
        "eta": drawn(0.0, 1.5, 0.0, 1.0),
        "lambda_next": drawn(0.0, 1.0, 0.0, 1.0),
        "kappa": drawn(0.0, 2.0, 0.0, 1.0),
        "pi": drawn(0.0, 1.0, 0.0, 1.0),
        "mu": drawn(0.05, 1.0, 1.0),
        "xi": drawn(0.0, 3.0, 0.0, 1.0, 2.0),
        "rho_bar": drawn(0.0, 2.0, 0.0, 1.0, math.inf),
        "decay": drawn(0.0, 1.0, 0.0, 1.0),
        "period": np.floor(drawn(0.0, 5.0, 0.0, 3.0)),
        "clip": drawn(0.0, 2.0, 0.0, 1.0),
        "low": drawn(-1.0, 0.2, 0.2, -math.inf),
        "high": drawn(0.2, 1.0, 0.2, math.inf),
    }
    traits = find(rule)
    extra = {name: own[name] for name in traits.extra if given == "all" or name not in OPTIONAL}
    if given == "eta" and "beta" in traits.extra:
        extra["eta"] = own["eta"]
    I = stream.I if traits.interest else np.ones(shape)
    still = {name: np.zeros(shape) if name == "beta" else v for name, v in extra.items()}
    frozen = replace(stream, alpha=np.zeros(shape), I=I, extra=still)
    learners = [None] if stream.K is None else range(stream.K)
    lengths = np.empty((stream.T, len(learners)))
    for column, k in enumerate(learners):
        s = frozen.sequence(k)
        rows = RULES[rule](s).rows
        vectors = [s.Phi, *(rows[name][1:] for name in traits.traces)]
        lengths[:, column] = np.max([np.linalg.norm(vector, axis=1) for vector in vectors], axis=0)
    both = stream.Phi if stream.Phi_next is None else np.concatenate([stream.Phi, stream.Phi_next])
    longest = np.linalg.norm(both, axis=1).max()
    scale = 1.0 / np.maximum(1.0, longest * np.maximum(stream.rho, 1.0) * lengths.reshape(shape))
    if "beta" in extra:
        extra["beta"] = extra["beta"] * scale
    return replace(stream, alpha=a * scale, I=I, extra=extra)


def make(
    seed: int,
    T: int = 101,
    n: int = 6,
    K: int | None = None,
    *,
    rule: str = "td",
    given: str = "all",
    beta: bool = False,
    decay: bool = False,
    active: int | None = None,
    binary: bool = True,
    separate: bool = False,
) -> Stream:
    """One seeded stream of T steps for `rule`, with its own parameters in `extra`.

    Of those that may be left out, `given` = "all" gives β, λ' and κ, "eta" only eta, and "" none. `beta` and
    `decay` add one whatever the rule; `active` gives φ as at most that many `Active` features, all 1 if `binary` and
    signed if not, with −1 for "none" here and there; `separate` gives a Phi_next, mostly the next φ.
    """
    stream = _drawn(seed, T, n, K, rule, given, beta, decay, active, binary, separate)
    arrays = {name: value.copy() for name, value in vars(stream).items() if isinstance(value, np.ndarray)}
    return replace(stream, extra={name: value.copy() for name, value in stream.extra.items()}, **arrays)


@functools.lru_cache(32)
def _drawn(
    seed: int, T: int, n: int, K: int | None, rule: str, given: str, beta: bool, decay: bool, active: int | None,
    binary: bool, separate: bool,
) -> Stream:  # fmt: skip
    """The stream of ``make``, drawn once for all engines that it is asked for."""
    rng = np.random.default_rng(seed)
    shape = (T,) if K is None else (T, K)

    def one_of(values: npt.ArrayLike, chance: float, otherwise: Array) -> Array:
        special = rng.choice(np.asarray(values, dtype=np.float64), shape)
        return np.where(rng.random(shape) < chance, special, otherwise)

    # Two thirds of the visits are to states seen before; without recurrence D and e·φ would hardly matter.
    states = rng.normal(size=(max(2, n), n)) / np.sqrt(n)
    rows = T if separate else T + 1
    Phi = np.where(rng.random((rows, 1)) < 0.67, states[rng.integers(len(states), size=rows)], 0.0)
    Phi += np.where(np.any(Phi, axis=1, keepdims=True), 0.0, rng.normal(size=(rows, n)) / np.sqrt(n))
    Phi[rng.random(rows) < 0.05] = 0.0
    other = rng.random(T) < 0.2
    Phi_next = np.where(other[:, None], rng.normal(size=(T, n)) / np.sqrt(n), np.roll(Phi, -1, axis=0)[:T])

    sparse: dict[str, Any] = {}
    if active is not None:
        size = min(active, n)
        indices = np.array([rng.choice(n, size, replace=False) for _ in range(rows)], dtype=np.int64)
        revisit = rng.random(rows) < 0.5
        indices[revisit] = indices[rng.integers(0, max(1, rows // 4), size=rows)][revisit]
        indices[rng.random(indices.shape) < 0.1] = -1
        values = None if binary else rng.normal(size=indices.shape)
        other_row = np.where(other, rng.integers(rows, size=T), (np.arange(T) + 1) % rows)
        sparse = {"indices": indices, "values": values}
        if separate:
            sparse["indices_next"] = indices[other_row]
            sparse["values_next"] = None if values is None else values[other_row]
        Phi = densify(indices, values, n)
        Phi_next = Phi[other_row]

    uniform = rng.random
    R = rng.normal(size=shape)
    gamma_next = one_of([0.0, 1.0, 0.9], 0.4, uniform(shape))
    lambda_ = one_of([0.0, 1.0], 0.4, uniform(shape))
    rho = one_of([0.0, 1.0, 2.0], 0.4, 1.6 * uniform(shape))
    I = one_of([0.0, 1.0], 0.4, 2.0 * uniform(shape))
    b = one_of([0.0, 1.0], 0.2, uniform(shape))
    a = one_of([0.0], 0.05, 0.1 + 0.6 * uniform(shape))
    both = np.concatenate([Phi, Phi_next])
    alpha = scaled_alpha(a, both, gamma_next, lambda_, rho, I, b)
    extra = (
        {"beta": b} if beta else {"decay": b} if decay or rule.removesuffix("_separate").endswith("_beta") else NO_EXTRA
    )
    further = Phi_next if separate else None
    stream = Stream(Phi, R, gamma_next, alpha, lambda_, rho, I, extra, Phi_next=further, **sparse)
    return stream if rule in CORE | LAST else with_parameters_of(rule, stream, seed, a, given)


def densify(indices: npt.NDArray[np.int64], values: Array | None, n: int) -> Array:
    """The (rows, n) array of what `Active(indices, values)` stands for."""
    Phi = np.zeros((len(indices), n))
    for t, row in enumerate(indices):
        for j, i in enumerate(row):
            if i >= 0:
                Phi[t, i] = 1.0 if values is None else values[t, j]
    return Phi


@st.composite
def streams(
    draw: st.DrawFn,
    *,
    max_T: int = 25,
    max_n: int = 4,
    max_K: int | None = None,
    decay: bool = False,
    separate: bool = False,
) -> Stream:
    """Streams drawn by hypothesis: any T ≤ max_T, n ≤ max_n, and any parameters, the special values often."""
    T, n = draw(st.integers(1, max_T)), draw(st.integers(1, max_n))
    shape = (T,) if max_K is None else (T, draw(st.integers(1, max_K)))

    def array(of: tuple[int, ...], low: float, high: float, *special: float) -> Array:
        # Hundredths are as good as arbitrary floats here, quicker to draw, and legible in a failure.
        floats = st.integers(round(100 * low), round(100 * high)).map(lambda i: i / 100.0)
        elements = st.sampled_from(special) | floats if special else floats
        return np.asarray(draw(hnp.arrays(np.float64, of, elements=elements)))

    Phi = array((T if separate else T + 1, n), -1.0, 1.0)
    Phi_next = array((T, n), -1.0, 1.0) if separate else None
    R = array(shape, -2.0, 2.0)
    gamma_next, lambda_ = array(shape, 0.0, 1.0, 0.0, 1.0), array(shape, 0.0, 1.0, 0.0, 1.0)
    if T >= 10:  # a long log in which γ never falls below 1 is warned of
        gamma_next[0] = np.where((gamma_next == 1.0).all(axis=0), 0.5, gamma_next[0])
    rho, I = array(shape, 0.0, 2.0, 0.0, 1.0), array(shape, 0.0, 2.0, 0.0, 1.0)
    b = array(shape, 0.0, 1.0, 0.0, 1.0)
    both = Phi if Phi_next is None else np.concatenate([Phi, Phi_next])
    alpha = scaled_alpha(array(shape, 0.0, 1.0), both, gamma_next, lambda_, rho, I, b)
    extra = {"decay": b} if decay else NO_EXTRA
    return Stream(Phi, R, gamma_next, alpha, lambda_, rho, I, extra, Phi_next=Phi_next)


def wave(T: int, seed: int = 0) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """An hourly signal with a day and noise that lasts, and its times."""
    rng = np.random.default_rng(seed)
    time: npt.NDArray[np.float64] = 1.7e9 // 3600 * 3600 + 3600.0 * np.arange(T, dtype=np.float64)
    noise = np.zeros(T)
    for t in range(1, T):
        noise[t] = 0.9 * noise[t - 1] + rng.normal()
    return np.sin(time / 86400 * 2 * np.pi) * 4 + noise, time
