"""Every public call of a learner in any order, with proper input and with hostile, beside the reference.

Before each call the reference engine is given the learner's own state, so that what is compared is that call alone.
Proper input must give what the reference gives, to the tolerance of the contract; hostile input must be refused with
an error that the library documents, and change nothing, or be accepted by both.
"""

from __future__ import annotations

import pickle
import warnings
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

import emphatic
from emphatic import Active, Diverged, Learner
from tests.attack.hostile import FOLDER, LARGEST, disguise, strange_array, strange_value
from tests.support.contract import STRUCTURES
from tests.support.plain import plain_python
from tests.support.streams import TOLERANCE, Stream, make

__all__ = ["COUNTS", "LearnerMachine"]

#: The calls made so far, by name; refusals and divergences among them, and again by engine ("engine dense").
COUNTS: Counter[str] = Counter()
SEEDS = st.integers(0, 2**32 - 1)
PATH = FOLDER / "model.safetensors"
#: For many learners of few features there is a kernel for each n: so that few are compiled.
SIZES = {None: (1, 6, 13), 1: (6,), 3: (6, 13), 9: (6,)}


def mirror(learner: Learner) -> Learner:
    """The reference in the same state."""
    other = Learner(learner.rule, learner.n, learner.K, dtype=learner.dtype, engine="reference")
    inner, own = other._engine, learner._engine
    for r in range(len(learner.rule.vectors)):
        inner.put(r, np.array(own.vector(r)))
    inner.scalars[:, : inner.M], inner.scalars[:, -1] = own.scalars[:, : own.M], own.scalars[:, -1]
    other._frozen[:] = learner._frozen
    return other


def state(learner: Learner) -> dict[str, bytes]:
    """All that a learner shows, to the bit."""
    names = ("steps", "position", "frozen", *learner.rule.vectors, *learner.rule.memory)
    return {name: np.asarray(getattr(learner, name)).tobytes() for name in names}


class LearnerMachine(RuleBasedStateMachine):
    """One learner, of any rule, engine, dtype and number."""

    #: Each is drawn as often as it is listed.
    engines: tuple[str, ...] = ("dense", "sparse", "chunked")
    #: The rules whose kernels are compiled; the others' have the same structure, and run as plain Python.
    compiled: Mapping[str, tuple[str, ...]] = MappingProxyType({"float64": STRUCTURES, "float32": STRUCTURES[:1]})

    def __init__(self) -> None:
        super().__init__()
        self.context = ExitStack()

    def teardown(self) -> None:
        """No kernel of this learner is used any more."""
        self.context.close()

    @initialize(seed=SEEDS)
    def begin(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.name = str(rng.choice(emphatic.rules.names() if seed & 1 else STRUCTURES))
        engine, dtype = str(rng.choice(self.engines)), str(rng.choice(["float64", "float32"], p=[0.75, 0.25]))
        K = [None, 1, 3, 9][rng.integers(4)]
        n = int(rng.choice(SIZES[K]))
        if self.name not in self.compiled[dtype] and engine != "cuda":
            self.context.enter_context(plain_python())
        self.learner = Learner(self.name, n, K, dtype=dtype, engine=engine)

    # ------------------------------------------------------------------ what is to be as the reference has it

    def stream(self, seed: int, T: int) -> Stream:
        x = self.learner
        return make(seed, T, x.n, x.K, rule=self.name, active=min(3, x.n), binary=bool(seed & 1))

    @rule(seed=SEEDS)
    def learn(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        stream = self.stream(seed, int(rng.integers(1, 4)))
        self.compare("learn", lambda x: stream.learn(x, active=x.engine == "sparse"))

    @rule(seed=SEEDS)
    def run(self, seed: int) -> None:
        """With features and parameters in any layout; afterwards they may be overwritten."""
        rng = np.random.default_rng(seed)
        T = int(rng.choice([0, 1, 2, 7, 20, 40]))
        stream = self.stream(seed, max(T, 1))[:T]
        given: dict[str, Any] = {name: disguise(rng, v) for name, v in stream.parameters().items()}
        kind = rng.integers(4)
        if kind == 0:
            Phi: Any = Active(np.array(stream.indices), None if stream.values is None else np.array(stream.values))
        elif kind == 1:
            Phi = sp.csr_array(stream.Phi)
        else:
            Phi = disguise(rng, stream.Phi)
        if T == 0 or kind == 3:
            given["Phi_next"] = disguise(rng, stream.Phi[1:])
            Phi = disguise(rng, stream.Phi[:-1])
        if self.learner.K == T:  # a parameter of shape (T,) would be ambiguous
            given = {name: v if np.ndim(v) != 1 else np.reshape(v, (T, 1)) for name, v in given.items()}
        before = self.compare("run", lambda x: x.run(Phi, **given))
        for array in (Phi, *given.values()):
            if isinstance(array, np.ndarray) and array.flags.writeable:
                array[...] = np.nan  # nothing of the caller's is kept
        assert state(self.learner) == before

    @rule(seed=SEEDS)
    def predict(self, seed: int) -> None:
        rng, x = np.random.default_rng(seed), self.learner
        phi = rng.normal(size=(int(rng.integers(0, 4)), x.n)) if seed & 1 else rng.normal(size=x.n)
        before = state(x)
        given = disguise(rng, phi)
        self.compare("predict", lambda each: each.predict(given))
        assert state(x) == before

    @rule(seed=SEEDS)
    def aliases(self, seed: int) -> None:
        """φ and φ' the same array, or θ itself; what is returned is the caller's."""
        x = self.learner
        theta = x.theta if x.K is None else x.theta[0]
        phi = np.clip(theta, -1.0, 1.0)
        values: dict[str, Any] = {"alpha": 0.01, "I": 1.0, "lambda_": 0.5, "rho": 1.0, "R": 0.5, "gamma_next": 0.5}
        values |= dict.fromkeys(x.rule.extra, 0.5)
        self.compare("learn", lambda each: each.learn(phi=phi, phi_next=phi, **values))
        before = state(x)
        for made in (x.predict(phi), x.predict(np.stack([phi, phi]))):
            if isinstance(made, np.ndarray):
                made[...] = np.nan
        assert state(x) == before

    # ------------------------------------------------------------------ what keeps every bit

    @rule(seed=SEEDS)
    def keep(self, seed: int) -> None:
        """Copied, pickled, saved and loaded, taken apart and put together."""
        x = self.learner
        before = state(x)
        kind = seed % 5
        if kind == 0:
            other = x.copy()
        elif kind == 1:
            other = pickle.loads(pickle.dumps(x))
        elif kind == 2:
            x.save(PATH)
            other = emphatic.load(PATH)
        elif kind == 3 and x.K is not None:
            other = emphatic.join([x.select([k]) for k in range(x.K)])
            assert np.array_equal(other.theta, x.theta)
            other = x
        else:
            x.save(PATH, note=[1, "δ"], numbers=np.arange(3))
            other, more = Learner.load_with(PATH)
            assert more["note"] == [1, "δ"]
        self.count("keep")
        assert state(other) == before == state(x)
        self.learner = other

    @rule(seed=SEEDS)
    def reset(self, seed: int) -> None:
        rng, x = np.random.default_rng(seed), self.learner
        if seed & 1:
            lasting = {name: np.copy(getattr(x, name)) for name in x.rule.lasting}
            x.cut()
            for name in (*x.rule.traces, *x.rule.memory):
                assert np.array_equal(getattr(x, name), lasting.get(name, np.zeros_like(getattr(x, name)))), name
        else:
            shape = (x.n,) if x.K is None else (x.K, x.n)
            theta = rng.normal(size=shape).astype(x.dtype)
            x.theta = disguise(rng, theta)
            assert np.array_equal(x.theta, theta)
        self.count("cut" if seed & 1 else "theta")

    # ------------------------------------------------------------------ what is to be refused

    @rule(seed=SEEDS)
    def hostile(self, seed: int) -> None:
        """Any argument of any call is something else. Refused, nothing changes; accepted, the state stays finite."""
        rng, x = np.random.default_rng(seed), self.learner
        T = int(rng.integers(1, 6))
        stream = self.stream(seed, T)
        before = state(x)
        kind = rng.integers(6)
        try:
            if kind == 0:
                p = {name: v[0] for name, v in stream.parameters().items()}
                phi: dict[str, Any] = {"phi": stream.Phi[0], "phi_next": stream.Phi[1]}
                self.spoil(rng, p, phi, (x.n,))
                x.learn(**phi, **p)
            elif kind == 1:
                q: dict[str, Any] = dict(stream.parameters())
                Phi: dict[str, Any] = {"Phi": stream.Phi}
                self.spoil(rng, q, Phi, stream.Phi.shape)
                freeze = {"on_divergence": "freeze"} if rng.random() < 0.3 else {}
                x.run(**Phi, **q, **freeze)  # type: ignore[arg-type]
            elif kind == 2:
                x.predict(strange_array(rng, (x.n,) if seed & 1 else (2, x.n)))
            elif kind == 3:
                x.theta = strange_array(rng, (x.n,) if x.K is None else (x.K, x.n))
            elif kind == 4:
                x.select(strange_value(rng) if seed & 1 else [0, strange_value(rng)])
            else:
                index = rng.integers(-3, x.n + 2, size=(T + 1, 2))
                kinds: list[Any] = [np.int64, np.int8, np.float64, ">i4"]
                extra: dict[str, Any] = dict.fromkeys(x.rule.extra, 0.5)
                x.run(Active(index.astype(kinds[rng.integers(4)])), 0.5, 0.5, alpha=0.01, **extra)
        except Diverged:
            COUNTS["diverged"] += 1
        except ValueError:
            COUNTS["refused"] += 1
            assert state(x) == before
        finally:
            self.count("hostile")
        self.settle()

    def spoil(self, rng: np.random.Generator, values: dict[str, Any], phi: dict[str, Any], shape: Any) -> None:
        """One argument is replaced; now and then a second."""
        T, K = shape[0] - 1, () if self.learner.K is None else (self.learner.K,)
        for _ in range(int(rng.choice([1, 1, 2]))):
            if rng.random() < 0.4:
                phi[str(rng.choice(list(phi)))] = strange_array(rng, shape)
            else:
                name = str(rng.choice(list(values)))
                of = (T, *K) if len(shape) == 2 else K
                values[name] = strange_array(rng, of) if rng.random() < 0.5 else strange_value(rng)
                if rng.random() < 0.05:
                    values["no_such_name"] = 1.0

    # ------------------------------------------------------------------ inside

    def count(self, name: str) -> None:
        COUNTS[name] += 1
        COUNTS[f"engine {self.learner.engine}"] += 1

    def compare(self, name: str, call: Any) -> dict[str, bytes]:
        """The same call of the learner and of the reference; the learner's state afterwards."""
        self.count(name)
        x, other = self.learner, mirror(self.learner)
        before = state(x)
        ours, theirs = outcome(call, x), outcome(call, other)
        if isinstance(ours, Exception) or isinstance(theirs, Exception):
            assert type(ours) is type(theirs), (repr(x), ours, theirs)
            if isinstance(ours, ValueError):
                assert state(x) == before
            COUNTS["diverged" if isinstance(ours, Diverged) else "refused"] += 1
        else:
            names = (*x.rule.vectors, *x.rule.memory)
            pairs = {"answer": (ours, theirs)} | {one: (getattr(x, one), getattr(other, one)) for one in names}
            scale = max((largest(b) for _, b in pairs.values()), default=0.0)
            for what, (a, b) in pairs.items():
                error = np.abs(np.subtract(a, b, dtype=np.float64)).max(initial=0.0) / max(
                    0.01, largest(b), 1e-3 * scale
                )
                assert np.shape(a) == np.shape(b), (repr(x), what)
                assert error <= TOLERANCE[x.dtype], (repr(x), name, what, float(error))
        self.settle()
        return state(self.learner)

    def settle(self) -> None:
        """Every number is finite. Where they have become so large that rounding says nothing, begin again."""
        x = self.learner
        found = [np.asarray(getattr(x, name)) for name in (*x.rule.vectors, *x.rule.memory)]
        assert all(np.isfinite(value).all() for value in found), repr(x)
        limit = min(1e-6 * LARGEST[x.dtype] ** 0.5, 1e30)  # (of the squares of larger ones, differences are rounding)
        if max((largest(value) for value in found), default=0.0) > limit or np.any(x.frozen):
            self.learner = Learner(x.rule, x.n, x.K, dtype=x.dtype, engine=x.engine)


def largest(value: npt.ArrayLike) -> float:
    return float(np.abs(np.asarray(value, np.float64)).max(initial=0.0))


def outcome(call: Any, learner: Learner) -> Any:
    """What a call returns, or the error that it raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", emphatic.UndiscountedWarning)
        try:
            return call(learner)
        except (ValueError, Diverged) as error:
            return error
