"""The hordes suite: many learners on one stream of features, beside NumPy over all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

import emphatic
from benchmarks.measure import Case, Effort, Gate, Side, fastest, gate, loop
from benchmarks.report import Row
from benchmarks.streams import NAMES, RULE, TOLERANCE, by_reference

EFFORT = Effort(5, 0.1)
Array = NDArray[Any]
#: What differs between learners, and what between steps: see ``Horde.parameters``.
QUESTIONS, SWEEP, EVERYTHING = "a question a learner", "a sweep over α and λ", "everything (T, K)"
#: The discounts of the robot's questions.
GAMMAS = (0.0, 0.8, 0.95, 0.9875)
CALLS = 20  # of ``learn`` where a cell of the grid has T = 1


def cases(quick: bool) -> Sequence[Case]:
    """All cases; ``quick`` makes them small."""
    size = 64 if quick else 1_024
    steps = 40 if quick else 1_000
    robot = Robot(200, 20, 12, active=15) if quick else Robot(6_065, 2_160, 12, active=457)
    both = ("float32", "float64")
    return [
        *(Rate(Horde(size, size, steps, dtype), size=64 if quick else 2_048, at_least=0.6) for dtype in both),
        RunHorde(Horde(6, 1_000, steps, varies=SWEEP), at_least=10),
        RunHorde(Horde(6, 1_000, steps, varies=EVERYTHING)),
        *(Nexting(replace(robot, dtype=dtype), times_numpy=15, steps_a_second=100) for dtype in both),
        Auto(grid(quick), at_most=1.5),
        *growth(quick),
    ]


def grid(quick: bool) -> Sequence[Cell]:
    """Every size with every other; of binary features one in a hundred is active, or one."""
    if quick:
        return [Cell(6, 1, 32, None), Cell(6, 16, 32, None), Cell(64, 16, 1, 1), Cell(64, 16, 32, 1)]
    return [
        Cell(n, K, T, active)
        for n, K, T in product((6, 64, 1_024), (1, 16, 256, 1_024), (1, 32, 1_000))
        for active in (None, max(1, n // 100))
    ]


def growth(quick: bool) -> Sequence[Case]:
    """From one size in the middle, each along its own."""
    if quick:
        return [Growth("n", "chunked", Horde(64, 16, 40))]
    many, sparse = Horde(256, 256, 508), Horde(16_384, 64, 256, active=32)
    dense = ("chunked", "dense")
    return [
        *(Growth("n", engine, replace(many, n=n)) for engine, n in product(dense, (16, 64, 256, 1_024, 4_096))),
        *(Growth("n", "sparse", replace(sparse, n=n)) for n in (1_024, 16_384, 131_072)),
        *(Growth("K", engine, replace(many, K=K)) for engine, K in product(dense, (4, 16, 64, 256, 1_024, 4_096))),
        *(Growth("K", "sparse", replace(sparse, K=K)) for K in (4, 16, 64, 256)),
        *(Growth("T", engine, replace(many, T=T)) for engine, T in product(dense, (8, 32, 127, 508, 2_032))),
        *(Growth("T", "sparse", replace(sparse, T=T)) for T in (8, 64, 512)),
        *(Growth("the active features", "sparse", replace(sparse, active=active)) for active in (1, 8, 64, 512)),
    ]


# ------------------------------------------------------------------------------------------------ the data


@dataclass(frozen=True)
class Horde:
    """T steps of K learners that share n features, φ·φ ≈ 1, or ``active`` binary ones, one of each of as many tilings.

    A tiling's active feature is drawn anew each step: the worst case for caches.
    """

    n: int
    K: int
    T: int
    dtype: str = "float64"
    varies: str = QUESTIONS
    active: int | None = None

    @property
    def what(self) -> str:
        φ = "" if self.active is None else f", {self.active:,} active"
        return f"n = {self.n:,}, K = {self.K:,}, T = {self.T:,}{φ}"

    @cached_property
    def indices(self) -> NDArray[np.int64]:
        assert self.active is not None
        width = self.n // self.active
        drawn = np.random.default_rng(11).integers(0, width, (self.T + 1, self.active))
        drawn += width * np.arange(self.active)
        return drawn

    @cached_property
    def dense(self) -> Array:
        """φ_0…φ_T as dense rows."""
        if self.active is None:
            Phi: Array = np.random.default_rng(12).standard_normal((self.T + 1, self.n)) / np.sqrt(self.n)
            return Phi.astype(self.dtype, copy=False)
        rows = np.zeros((self.T + 1, self.n), self.dtype)
        np.put_along_axis(rows, self.indices, 1.0, axis=1)
        return rows

    @cached_property
    def Phi(self) -> Any:
        """What ``run`` is given."""
        return self.dense if self.active is None else emphatic.Active(self.indices)

    @cached_property
    def parameters(self) -> dict[str, Array]:
        """Every parameter in the smallest of the shapes (1, 1), (T, 1), (1, K) and (T, K) that holds it."""
        T, K, square = self.T, self.K, self.active or 1
        shape = {
            QUESTIONS: dict.fromkeys(("alpha", "lambda_", "gamma_next"), (1, K)) | {"R": (T, K)},
            SWEEP: dict.fromkeys(("alpha", "lambda_"), (1, K)) | dict.fromkeys(("R", "gamma_next", "rho"), (T, 1)),
            EVERYTHING: dict.fromkeys(NAMES, (T, K)),
        }[self.varies]
        ranges = {"alpha": (0.002, 0.02), "I": (0, 2), "lambda_": (0, 1), "rho": (0, 1.8), "gamma_next": (0.5, 0.95)}
        drawn: dict[str, Array] = {name: np.ones((1, 1)) for name in NAMES}
        for name, size in shape.items():
            rng = np.random.default_rng([13, NAMES.index(name)])
            drawn[name] = rng.standard_normal(size) if name == "R" else rng.uniform(*ranges[name], size)
        if self.varies == SWEEP:
            side = math.ceil(math.sqrt(K))
            alpha, lambda_ = np.meshgrid(np.geomspace(*ranges["alpha"], side), np.linspace(*ranges["lambda_"], side))
            drawn["alpha"], drawn["lambda_"] = alpha.reshape(1, -1)[:, :K], lambda_.reshape(1, -1)[:, :K]
        drawn["alpha"] = drawn["alpha"] / square
        return drawn

    @property
    def arguments(self) -> dict[str, Any]:
        """The parameters as ``run`` is given them; one learner has no axis K."""
        return {
            name: float(p[0, 0]) if p.size == 1 else p[:, 0] if self.K == 1 else p
            for name, p in self.parameters.items()
        }

    def steps(self, dtype: str) -> list[tuple[Any, ...]]:
        """(α, I, λ, ρ, R, γ') of each step, each a float or an array (K,)."""
        own = (each(self.parameters[name], self.T, dtype) for name in NAMES)
        return list(zip(*own, strict=True))

    def calls(self, features: Any, dtype: str = "float64") -> list[tuple[Any, ...]]:
        """The arguments of ``learn`` at each step, with these φ_0…φ_T."""
        return _calls(features, self.steps(dtype))

    def of_learner(self, k: int) -> list[tuple[Any, ...]]:
        """The calls of learner k alone, with dense φ."""
        own = (p[:, k if p.shape[1] > 1 else 0] for p in (self.parameters[name] for name in NAMES))
        return _calls(self.dense, zip(*(np.broadcast_to(p, self.T).tolist() for p in own), strict=True))


def each(p: Array, steps: int, dtype: DTypeLike = np.float64) -> list[Any]:
    """A float or an array (K,) for each of so many steps."""
    rows = p[:, 0].tolist() if p.shape[1] == 1 else list(p.astype(dtype, copy=False))
    return rows if len(rows) == steps else rows * steps


def _calls(features: Any, steps: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [
        (alpha, I, lambda_, features[t], rho, R, features[t + 1], gamma_next)
        for t, (alpha, I, lambda_, rho, R, gamma_next) in enumerate(steps)
    ]


class Robot(Horde):
    """A robot's questions (Modayil et al. 2014): four discounts, λ = .9, α = .1 over the active features."""

    @cached_property
    def parameters(self) -> dict[str, Array]:
        assert self.active is not None
        return {
            "alpha": np.full((1, 1), 0.1 / self.active),
            "I": np.ones((1, 1)),
            "lambda_": np.full((1, 1), 0.9),
            "rho": np.ones((1, 1)),
            "R": np.random.default_rng(14).standard_normal((self.T, self.K)),
            "gamma_next": np.resize(GAMMAS, (1, self.K)),
        }


def first(stream: Horde, T: int) -> Horde:
    """Its first steps, T at most."""
    return replace(stream, T=min(stream.T, T))


# ------------------------------------------------------------------------------------------------ NumPy over learners


class NumPyHorde:
    """The seed's lines with an axis K: θ and e are (K, n), in place.

    What is a number for one learner is (K,) here, or still a number where all learners share it.
    """

    def __init__(self, n: int, K: int, dtype: str) -> None:
        self.theta, self.e, self._Delta, self._spare = np.zeros((4, K, n), dtype)
        self.F = self.D = np.zeros(K, dtype)
        self.gamma: Any = 0.0

    def learn(
        self, alpha: Any, I: Any, lambda_: Any, phi: Array, rho: Any, R: Any, phi_next: Array, gamma_next: Any
    ) -> Array:
        """One step; the predictions θ·φ before it."""
        theta, e, Delta, D = self.theta, self.e, self._Delta, self.D
        v = self.dot(theta, phi)
        delta = R + gamma_next * self.dot(theta, phi_next) - v
        F = self.F + I
        b = rho * alpha * (lambda_ * I + (1 - lambda_) * F)
        c = rho * self.gamma * lambda_
        S = b * (1 - c * self.dot(e, phi))
        e *= column(c, e)  # e ← c e + S φ
        self.add(e, S, phi)
        np.multiply(e, column(delta + D, e), Delta)  # Δ ← δ e + D (e − b φ)
        self.add(Delta, -D * b, phi)
        theta += Delta
        self.D = self.dot(Delta, phi_next)
        self.F, self.gamma = rho * gamma_next * F, gamma_next
        return v

    def dot(self, X: Array, phi: Array) -> Array:
        """X·φ of every learner."""
        values: Array = X @ phi
        return values

    def add(self, X: Array, scale: Any, phi: Array) -> None:
        """X ← X + s φ, with an s for each learner or one for all."""
        X += np.multiply(column(scale, X), phi, self._spare)

    def run(self, stream: Horde) -> Array:
        """Learn from the first step on, with the weights there are; the predictions."""
        self.e[:] = 0.0
        self.F = self.D = np.zeros_like(self.D)
        self.gamma = 0.0
        predictions = np.empty((stream.T, stream.K), stream.dtype)
        for v, arguments in zip(predictions, stream.calls(stream.dense, stream.dtype), strict=True):
            v[:] = self.learn(*arguments)
        return predictions


class NumPyNexting(NumPyHorde):
    """Binary φ given by index: products take the active columns; e decays and θ takes of it whole."""

    def dot(self, X: Array, phi: Array) -> Array:
        sums: Array = X.take(phi, axis=1).sum(axis=1)  # (faster than ``X[:, phi]``)
        return sums

    def add(self, X: Array, scale: Any, phi: Array) -> None:
        X[:, phi] += column(scale, X)


def column(p: Any, like: Array) -> Array:
    """A number a learner, or one for all, as a factor of rows."""
    return np.asarray(p, like.dtype)[..., None]


# ------------------------------------------------------------------------------------------------ gates

#: A way to learn a stream: θ (K, n) and the predictions (T, K), or None where none are made.
Learn = Callable[[Horde], tuple[Array, Array | None]]


def sample(K: int) -> list[int]:
    """Learners at the ends, in the middle and where blocks of 64 and 256 meet."""
    return sorted({k for k in (0, 1, 63, 64, K // 2, 255, 256, K - 1) if 0 <= k < K})


def against_reference(name: str, stream: Horde, learn: Learn) -> Iterator[Gate]:
    """A sample of learners, each by the reference on its own."""
    theta, predictions = learn(stream)
    ks = sample(stream.K)
    wanted = [by_reference(stream.of_learner(k), stream.n) for k in ks]
    yield gate(name, theta[ks], np.array([weights for weights, _ in wanted]), TOLERANCE[stream.dtype])
    want = np.array([values for _, values in wanted]).T
    if predictions is not None and (want.any() or predictions.any()):  # all are 0 until some feature is active again
        yield gate(f"{name}, predictions", predictions[:, ks], want, TOLERANCE[stream.dtype])


def all_alike(name: str, stream: Horde, ours: Learn, other: Learn) -> Gate:
    """Every learner's weights as the alternative has them."""
    return gate(f"{name}, every learner", ours(stream)[0], other(stream)[0], TOLERANCE[stream.dtype])


def new_learner(stream: Horde, engine: str = "auto") -> Any:
    return emphatic.Learner(RULE, stream.n, stream.K if stream.K > 1 else None, dtype=stream.dtype, engine=engine)


def by_run(engine: str) -> Learn:
    def learn(stream: Horde) -> tuple[Array, Array]:
        learner = new_learner(stream, engine)
        predictions = learner.run(stream.Phi, **stream.arguments)
        return learner.theta.reshape(stream.K, stream.n), predictions.reshape(stream.T, stream.K)

    return learn


def by_learn(engine: str) -> Learn:
    def learn(stream: Horde) -> tuple[Array, None]:
        learner = new_learner(stream, engine)
        loop(learner.learn, learn_calls(stream)).call()
        return learner.theta.reshape(stream.K, stream.n), None

    return learn


def by_numpy(stream: Horde) -> tuple[Array, Array]:
    """A log by NumPy over all learners."""
    other = NumPyHorde(stream.n, stream.K, stream.dtype)
    predictions = other.run(stream)
    return other.theta, predictions


def robot_by_numpy(stream: Horde) -> tuple[Array, None]:
    """A robot's steps by NumPy over all learners."""
    other = NumPyNexting(stream.n, stream.K, stream.dtype)
    loop(other.learn, stream.calls(list(stream.indices), stream.dtype)).call()
    return other.theta, None


def learn_calls(stream: Horde) -> list[tuple[Any, ...]]:
    """The arguments of ``learn`` at each step."""
    features = stream.dense if stream.active is None else [emphatic.Active(row) for row in stream.indices]
    return stream.calls(list(features))


def running(stream: Horde, learner: Any) -> Side:
    return Side(lambda: learner.run(stream.Phi, **stream.arguments), stream.T)


def running_numpy(stream: Horde) -> Side:
    other = NumPyHorde(stream.n, stream.K, stream.dtype)
    return Side(lambda: other.run(stream), stream.T)


# ------------------------------------------------------------------------------------------------ run


def blas() -> str:
    """The BLAS that NumPy uses."""
    library = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return f"{library['name']} {library['version']}"


@dataclass(frozen=True)
class Rate:
    """The chunked engine beside the best rate of a matrix product, where a step of a learner counts as 8 n flop.

    That is what X Pᵀ and W P take for the two vectors of true online ETD(λ), when a chunk's steps share their φ.
    """

    stream: Horde
    size: int
    at_least: float

    @property
    def name(self) -> str:
        return f"run, {self.stream.what}, {self.stream.dtype}"

    def gates(self) -> Iterator[Gate]:
        start = first(self.stream, 300)
        sides: dict[str, Learn] = {"chunked": by_run("chunked"), "dense": by_run("dense"), "NumPy": by_numpy}
        for side, learn in sides.items():
            yield from against_reference(f"{self.name}: {side}", start, learn)
        yield all_alike(f"{self.name}: chunked", start, by_run("chunked"), by_numpy)

    def rows(self, effort: Effort) -> Iterator[Row]:
        stream, short = replace(self.stream), first(self.stream, 20)
        square = np.random.default_rng(6).standard_normal((self.size, self.size)).astype(stream.dtype)
        out = np.empty_like(square)
        sides = {
            "chunked": running(stream, new_learner(stream, "chunked")),
            "product": Side(lambda: np.matmul(square, square, out), 2 * self.size**3),
            "dense": running(short, new_learner(short, "dense")),
            "NumPy": running_numpy(short),
        }
        µs = fastest(sides, effort.rounds, effort.seconds)
        ours, limit = 8 * stream.n * stream.K / µs["chunked"] / 1e3, 1 / µs["product"] / 1e3
        section = f"run, n = {stream.n:,}, K = {stream.K:,}, chunked; a step of all learners, 8 n flop each"
        yield Row(
            section,
            f"{stream.dtype}, part of a matrix product's rate",
            gates=(f"{self.name}: chunked", f"{self.name}: chunked, every learner"),
            ours=ours,
            alternative=limit,
            versus=f"{self.size:,}³, {blas()}",
            unit="GFLOP/s",
            ratio=ours / limit,
            at_least=self.at_least,
        )
        for side, versus in (("dense", "our dense engine"), ("NumPy", "NumPy")):
            yield Row(
                section,
                f"{stream.dtype}, beside {versus}",
                gates=(f"{self.name}: chunked", f"{self.name}: {side}"),
                ours=µs["chunked"],
                alternative=µs[side],
                versus=versus,
                ratio=µs[side] / µs["chunked"],
            )


@dataclass(frozen=True)
class RunHorde:
    """``run`` on the engine that ``auto`` chooses, beside NumPy over all learners."""

    stream: Horde
    at_least: float | None = None

    @property
    def name(self) -> str:
        return f"run, {self.stream.what}, {self.stream.varies}"

    def gates(self) -> Iterator[Gate]:
        yield from against_reference(f"{self.name}: ours", self.stream, by_run("auto"))
        yield from against_reference(f"{self.name}: NumPy", self.stream, by_numpy)
        yield all_alike(f"{self.name}: ours", self.stream, by_run("auto"), by_numpy)

    def rows(self, effort: Effort) -> Iterator[Row]:
        stream = replace(self.stream)
        learner = new_learner(stream)
        sides = {"ours": running(stream, learner), "NumPy": running_numpy(stream)}
        µs = fastest(sides, effort.rounds, effort.seconds)
        yield Row(
            f"run, {stream.what}, {stream.dtype}; a step of all learners",
            stream.varies,
            gates=tuple(f"{self.name}: {side}" for side in ("ours", "ours, every learner", "NumPy")),
            ours=µs["ours"],
            alternative=µs["NumPy"],
            versus="NumPy",
            ratio=µs["NumPy"] / µs["ours"],
            at_least=self.at_least,
            note=learner.engine,
        )


@dataclass(frozen=True)
class Nexting:
    """``learn``, a call a step for all learners, each φ' made from an array of indices as it comes.

    NumPy moves every number of e and θ each step, in and out of memory: 4 K n of them. Ours moves the active columns
    only, about n / active times fewer, and all that have a trace when the traces have shrunk.
    """

    stream: Robot
    times_numpy: float
    steps_a_second: float

    @property
    def name(self) -> str:
        return f"nexting, {self.stream.dtype}"

    def gates(self) -> Iterator[Gate]:
        yield from against_reference(f"{self.name}: ours", self.stream, by_learn("sparse"))
        yield from against_reference(f"{self.name}: NumPy", self.stream, robot_by_numpy)
        yield all_alike(f"{self.name}: ours", self.stream, by_learn("sparse"), robot_by_numpy)

    def rows(self, effort: Effort) -> Iterator[Row]:
        stream = replace(self.stream)
        learner = new_learner(stream, "sparse")
        calls = stream.calls(list(stream.indices))

        def ours() -> None:
            learn, Active = learner.learn, emphatic.Active
            φ = Active(stream.indices[0])
            for alpha, I, lambda_, _, rho, R, indices, gamma_next in calls:
                φ_next = Active(indices)
                learn(alpha, I, lambda_, φ, rho, R, φ_next, gamma_next)
                φ = φ_next

        other = NumPyNexting(stream.n, stream.K, stream.dtype)
        numpy = loop(other.learn, stream.calls(list(stream.indices), stream.dtype))
        µs = fastest({"ours": Side(ours, stream.T), "NumPy": numpy}, effort.rounds, effort.seconds)
        section = f"learn, a call a step, nexting: n = {stream.n:,}, {stream.active} active, K = {stream.K:,}"
        gates = (f"{self.name}: ours", f"{self.name}: ours, every learner")
        yield Row(
            section,
            f"{stream.dtype}, a step of all learners",
            gates=(*gates, f"{self.name}: NumPy"),
            ours=µs["ours"],
            alternative=µs["NumPy"],
            versus="NumPy",
            ratio=µs["NumPy"] / µs["ours"],
            at_least=self.times_numpy,
        )
        rate = 1e6 / µs["ours"]
        yield Row(
            section,
            f"{stream.dtype}, steps a second",
            gates=gates,
            ours=rate,
            unit="steps/s",
            ratio=rate,
            at_least=self.steps_a_second,
        )


# ------------------------------------------------------------------------------------------------ the chosen engine


@dataclass(frozen=True)
class Cell:
    """One point of the grid; T = 1 is ``learn``, a call a step."""

    n: int
    K: int
    T: int
    active: int | None

    @property
    def stream(self) -> Horde:
        return Horde(self.n, self.K, CALLS if self.T == 1 else self.T, active=self.active)

    @property
    def name(self) -> str:
        T = "learn" if self.T == 1 else f"T = {self.T:,}"
        return f"n = {self.n:,}, K = {self.K:,}, {T}, {'dense φ' if self.active is None else f'{self.active} active'}"

    @property
    def engines(self) -> list[str]:
        """All but the reference; sparse where φ is given by index, for otherwise it does dense's work and more."""
        return ["dense", "chunked"] + ["sparse"] * (self.active is not None)

    def side(self, learner: Any) -> Side:
        stream = self.stream
        return loop(learner.learn, learn_calls(stream)) if self.T == 1 else running(stream, learner)

    def chosen(self) -> str:
        """The engine that a first call of this kind gets."""
        learner, start = new_learner(self.stream), self.stream
        if self.T == 1:
            learner.learn(*learn_calls(start)[0])
        else:
            learner.run(start.Phi, **start.arguments)
        engine: str = learner.engine
        return engine


@dataclass(frozen=True)
class Auto:
    """The chosen engine's time over the best one's, everywhere; the target is held against the worst of each kind."""

    cells: Sequence[Cell]
    at_most: float

    def gates(self) -> Iterator[Gate]:
        for cell in self.cells:
            for engine in cell.engines:
                learn = by_learn(engine) if cell.T == 1 else by_run(engine)
                gates = against_reference(f"auto, {cell.name}: {engine}", first(cell.stream, 150), learn)
                yield next(gates)

    def rows(self, effort: Effort) -> Iterator[Row]:
        section = f"auto: the engine it chooses beside the best, over {len(self.cells)} sizes; a step of all learners"
        found = [self._row(cell, section, effort) for cell in self.cells]
        for kind in (True, False):
            rows = [row for cell, row in zip(self.cells, found, strict=True) if (cell.active is None) is kind]
            worst = max(rows, key=lambda row: row.ratio or 0.0)
            gates = tuple(name for row in rows for name in row.gates)
            yield replace(worst, what=f"worst: {worst.what}", gates=gates, at_most=self.at_most)
        yield from found

    def _row(self, cell: Cell, section: str, effort: Effort) -> Row:
        sides = {engine: cell.side(new_learner(cell.stream, engine)) for engine in cell.engines}
        µs = fastest(sides, effort.rounds, effort.seconds / 3)  # there are many
        chosen, best = cell.chosen(), min(µs, key=lambda engine: µs[engine])
        others = ", ".join(f"{engine} {time / µs[chosen]:.2f}" for engine, time in µs.items() if engine != chosen)
        return Row(
            section,
            cell.name,
            gates=tuple(f"auto, {cell.name}: {engine}" for engine in cell.engines),
            ours=µs[chosen],
            alternative=µs[best],
            versus=best,
            ratio=µs[chosen] / µs[best],
            note=f"{chosen}; {others}",
        )


# ------------------------------------------------------------------------------------------------ growth


@dataclass(frozen=True)
class Growth:
    """``run`` on one engine at one size."""

    along: str
    engine: str
    stream: Horde

    @property
    def what(self) -> str:
        return f"{self.engine}: {self.stream.what}"

    @property
    def name(self) -> str:
        return f"growth with {self.along}, {self.what}"

    def gates(self) -> Iterator[Gate]:
        yield from against_reference(self.name, first(self.stream, 150), by_run(self.engine))

    def rows(self, effort: Effort) -> Iterator[Row]:
        stream = replace(self.stream)
        µs = fastest({"ours": running(stream, new_learner(stream, self.engine))}, effort.rounds, effort.seconds / 3)
        section = f"run, growth with {self.along}; a step of one learner"
        yield Row(section, self.what, gates=(self.name,), ours=1e3 * µs["ours"] / stream.K, unit="ns")
