"""The studies suite: published grids, sweeps beside NumPy, simulation and how costs grow; what intervals cover."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

import emphatic
from benchmarks.measure import Case, Effort, Gate, Side, fastest, gate
from benchmarks.report import Row
from emphatic import problems, rules
from emphatic.problems import MDP, Stream
from emphatic.studies import Sweep, sweep
from emphatic.studies.grid import find_rule, parameters
from emphatic.studies.sources import Simulated
from emphatic.studies.statistics import mean_intervals
from reproductions.comparisons import BEST, published

EFFORT = Effort(5, 0.3)
Array = NDArray[np.float64]
GRID: tuple[Mapping[str, Any], ...] = tuple(map(published, BEST))
#: What shows that the suite works.
SMALL: tuple[Mapping[str, Any], ...] = ({"rule": ["td"], "alpha": "2^-3..2^0", "lambda": [0, 0.5, 1]},)


def cases(quick: bool) -> Sequence[Case]:
    """All cases; ``quick`` makes them small."""
    if quick:
        return [
            Study(SMALL, runs=4, part=2, steps=300, jobs=2, minutes=15),
            Study(SMALL, runs=4, part=2, steps=100, jobs=2, minutes=120, problem="four_rooms", every=10, tasks=8),
            Simulation(20_000, None, millions=10),
            Simulation(2_000, 3, millions=10),
            Growth("the learners that diverge", "a third", diverge=1 / 3, K=24, T=300),
            Coverage(200),
        ]
    return [
        Study(GRID, runs=50, part=8, steps=20_000, jobs=2, minutes=15),
        Study(GRID, runs=50, part=2, steps=50_000, jobs=2, minutes=120, problem="four_rooms", every=10, tasks=8),
        Simulation(1_000_000, None, millions=10),
        Simulation(20_000, 50, millions=10),
        *growth(),
        Coverage(10_000),
    ]


def growth() -> Sequence[Case]:
    """From td with 228 settings of 6 features and errors at every step, each along its own."""

    def garnet(n: int) -> MDP:
        return problems.garnet(64, 4, 2, n, on_policy=True)

    by_rule = "n and the rule, errors at one step in 10"
    vectors = ((2, "td"), (3, "gtd"), (4, "htd"))
    return [
        *(Growth("n", f"n = {n}", garnet(n)) for n in (2, 6, 12, 16, 32)),
        *(Growth(by_rule, f"n = 32, {rule}", garnet(32), rule, every=10, at_most=60) for rule in rules.names()),
        *(Growth("K", f"K = {K:,}", K=K) for K in (16, 228, 2_048)),
        *(Growth("the steps between errors", f"{every}", every=every) for every in (1, 10, 100)),
        *(Growth("the rule's vectors", f"{m}, {rule}", rule=rule) for m, rule in vectors),
        *(Growth("the learners that diverge", share, diverge=d) for share, d in (("none", 0.0), ("a third", 1 / 3))),
    ]


# ------------------------------------------------------------------------------------------------ gates

#: Steps that are checked: by then some settings of every rule of the collision study have diverged.
CHECKED = 5_000


def alike(
    name: str, got: NDArray[Any], want: NDArray[Any], tolerance: float = 1e-10, size: NDArray[Any] | None = None
) -> Gate:
    """Every error relative to its own ``size``: those of learners that diverge are of all sizes, and infinite."""
    with np.errstate(all="ignore"):
        off = np.where(got == want, 0.0, (got - want) / (want if size is None else size))
    return gate(name, 1.0 + off, np.ones_like(off), tolerance)


def largest(curves: Array) -> Array:
    """The largest error so far, (T, K): what rounding has done by then is of that size, wherever the curve goes."""
    return np.asarray(np.maximum.accumulate(curves))


def sample(K: int) -> list[int]:
    """Settings from the smallest α to the largest; of the largest of the study's 19, with which most diverge, three."""
    return sorted({0, K // 3, K // 2, 2 * K // 3, K - 1 - K // 38, K - max(1, K // 19), K - 1})


def by_reference(
    rule: str, mdp: MDP, stream: Stream, values: dict[str, Any], every: int = 1
) -> tuple[emphatic.Learner, Array]:
    """The learners of these settings after the stream, and their errors along it."""
    K = len(values["alpha"])
    learner = emphatic.Learner(rule, mdp.n, K, engine="reference")
    keywords = {"predictions": False, "probe": mdp.probe, "probe_every": every, "on_divergence": "freeze"}
    if not stream.active.all():  # nothing is learned where the target policy is undefined
        values = values | {"alpha": values["alpha"] * stream.active[:, None]}
    with np.errstate(all="ignore"):
        _, error = learner.run(**(stream.inputs(rule) | values | keywords))
    return learner, error


def against_reference(name: str, found: Sweep) -> Iterator[Gate]:
    """Of each rule a sample of settings in the first run: mean, last error and curve, means over the tasks."""
    source, rules = found.plan.source, np.array(found.rules)
    assert isinstance(source, Simulated)
    for rule in dict.fromkeys(found.rules):
        own = np.flatnonzero(rules == rule)
        ks = own[sample(len(own))]
        values: dict[str, Any] = {name: column[ks] for name, column in found.parameters.items()}
        values = {name: column for name, column in values.items() if not np.isnan(column).any()}
        each = [_task_by_reference(rule, mdp, dict(values), found) for mdp in source.tasks(0)]
        mean, final, curve = (np.mean(parts, axis=0) for parts in zip(*each, strict=True))
        yield alike(f"{name}, {rule}: mean", found.mean[ks, 0], mean)
        yield alike(f"{name}, {rule}: final", found.final[ks, 0], final)
        yield alike(f"{name}, {rule}: curve, in float32", found.curve[ks, 0], curve.T.astype(np.float32), 1e-6)


def _task_by_reference(rule: str, mdp: MDP, values: dict[str, Any], found: Sweep) -> tuple[Array, Array, Array]:
    """Mean and last error, (K,), and the curve (P, K) in one task."""
    source = found.plan.source
    assert isinstance(source, Simulated)
    if "lambda" in values:
        values["lambda_"] = values.pop("lambda")
    if "zeta" in values:
        values["xi"] = np.array([mdp.xi(zeta) for zeta in values.pop("zeta")])
    stream = mdp.simulate(source.steps, seed=(source.seed, 0))
    learner, error = by_reference(rule, mdp, stream, values, found.plan.every)
    with np.errstate(all="ignore"):
        # an error whose terms overflow, ∞ − ∞, is infinite
        error, last = (np.where(np.isnan(x), np.inf, x) for x in (error, mdp.rmsve(learner.theta)))
        mean, final = (np.where(learner.frozen, np.inf, x) for x in (error.mean(axis=0), last))
        curve = error[found.points // found.plan.every]
        curve[(found.points[:, None] > learner._taken) & learner.frozen] = np.inf
        return mean, final, curve.astype(np.float32)


# ------------------------------------------------------------------------------------------------ whole grids


@dataclass(frozen=True)
class Study:
    """The whole grid and all steps, on ``part`` of the runs; table and page are written. Not counted: compiling."""

    grid: Sequence[Mapping[str, Any]]
    runs: int
    part: int
    steps: int
    jobs: int
    minutes: float
    problem: str = "collision"
    every: int = 1
    tasks: int = 1

    @property
    def name(self) -> str:
        return f"the {self.problem} study"

    def swept(self, runs: int, steps: int, jobs: int, out: str | None = None) -> Sweep:
        return sweep(self.problem, self.grid, runs=runs, steps=steps, every=self.every, jobs=jobs, out=out)

    def gates(self) -> Iterator[Gate]:
        yield from against_reference(self.name, self.swept(1, min(self.steps, CHECKED), 1))

    def rows(self, effort: Effort) -> Iterator[Row]:
        self.swept(2 * self.jobs, 300, self.jobs)  # so that every process has its kernels
        with tempfile.TemporaryDirectory() as folder:
            began = perf_counter()
            swept = self.swept(self.part, self.steps, self.jobs, folder)
            seconds = perf_counter() - began
        times = self.runs / self.part
        gates = tuple(f"{self.name}, {rule}: mean" for rule in dict.fromkeys(swept.rules))
        yield Row(
            f"{self.name}: {len(swept.mean):,} settings of {len(gates)} rules, {self.runs} runs × "
            f"{self.steps:,} steps, errors at {'every step' if self.every == 1 else f'one step in {self.every}'}, "
            f"{self.jobs} jobs",
            f"{times * self.tasks * swept.plan.learner_steps:,.0f} learner-steps",
            gates=gates,
            ours=times * seconds / 60,
            unit="min",
            ratio=times * seconds / 60,
            at_most=self.minutes,
            note=f"{self.part} of the {self.runs} runs took {seconds:.3g} s, with table and page: times {times:g}",
        )


# ------------------------------------------------------------------------------------------------ simulation


@dataclass(frozen=True)
class Simulation:
    """T steps of collision, in one run or in several."""

    T: int
    runs: int | None
    millions: float

    @property
    def what(self) -> str:
        return f"{self.T:,} steps" if self.runs is None else f"{self.runs} runs × {self.T:,} steps"

    @property
    def name(self) -> str:
        return f"simulation, {self.what}"

    def gates(self) -> Iterator[Gate]:
        mdp = problems.collision()
        states = mdp.simulate(self.T, runs=self.runs).states
        share = np.bincount(states.ravel(), minlength=mdp.S) / states.size
        yield gate(f"{self.name}: time in each state", share, mdp.d_mu, 10 / np.sqrt(states.size))

    def rows(self, effort: Effort) -> Iterator[Row]:
        mdp = problems.collision()

        def call() -> list[dict[str, Any]]:
            stream = mdp.simulate(self.T, runs=self.runs)
            return [one.inputs("td") for one in ([stream] if self.runs is None else stream)]

        µs = fastest({"ours": Side(call, self.T * (self.runs or 1))}, effort.rounds, effort.seconds)
        yield Row(
            "simulation of collision, all arrays ready for run; ratio is million steps a second",
            self.what,
            gates=(f"{self.name}: time in each state",),
            ours=1 / µs["ours"],
            unit="M steps/s",
            ratio=1 / µs["ours"],
            at_least=self.millions,
        )


# ------------------------------------------------------------------------------------------------ growth

#: What a rule has besides α, if it has it.
GIVEN = {"lambda": 0.9, "decay": 0.9, "zeta": 0.5}


@dataclass(frozen=True, eq=False)
class Growth:
    """A sweep over α in one run, simulation and table included; a share ``diverge`` of its learners has α = 64."""

    along: str
    what: str
    problem: MDP = field(default_factory=problems.collision)
    rule: str = "td"
    K: int = 228
    every: int = 1
    diverge: float = 0.0
    T: int = 20_000
    at_most: float | None = None

    @property
    def name(self) -> str:
        return f"growth with {self.along}, {self.what}"

    def swept(self, steps: int) -> Sweep:
        alpha = np.geomspace(2.0**-18, 2.0**-7, self.K)
        alpha[: round(self.K * self.diverge)] = 64.0
        known = parameters(find_rule(self.rule))
        grid = {"rule": self.rule, "alpha": alpha} | {name: GIVEN[name] for name in GIVEN if name in known}
        return sweep(self.problem, grid, runs=1, steps=steps, every=self.every, jobs=1)

    def gates(self) -> Iterator[Gate]:
        found = self.swept(min(self.T, 500))
        yield from against_reference(self.name, found)
        stay = np.array([1.0 - found.diverged.mean()])
        yield gate(f"{self.name}: who diverges", stay, np.array([1.0 - self.diverge]), 1 / self.K)

    def rows(self, effort: Effort) -> Iterator[Row]:
        side = Side(lambda: self.swept(self.T).table, self.K * self.T)
        µs = fastest({"ours": side}, effort.rounds, effort.seconds)
        yield Row(
            f"a sweep, growth with {self.along}; a step of one learner",
            self.what,
            gates=(f"{self.name}, {self.rule}: mean", f"{self.name}: who diverges"),
            ours=1e3 * µs["ours"],
            unit="ns",
            ratio=None if self.at_most is None else 1e3 * µs["ours"],
            at_most=self.at_most,
        )


# ------------------------------------------------------------------------------------------------ what intervals cover

RUNS = (5, 10, 30, 100)
#: What errors are drawn from, and its mean.
DISTRIBUTIONS: dict[str, tuple[Callable[[np.random.Generator, tuple[int, int]], Array], float]] = {
    "normal": (lambda rng, shape: rng.normal(size=shape), 0.0),
    "exponential": (lambda rng, shape: rng.exponential(size=shape), 1.0),
    "lognormal(0, 1)": (lambda rng, shape: rng.lognormal(size=shape), math.exp(0.5)),
}


def measure_coverage(distribution: str, runs: int, repetitions: int, seed: int = 0) -> float:
    """The share of the 95% intervals of sweeps that hold the mean of what errors are drawn from."""
    draw, mean = DISTRIBUTIONS[distribution]
    low, high = mean_intervals(draw(np.random.default_rng((seed, runs)), (repetitions, runs)))
    return float(np.mean((low <= mean) & (mean <= high)))


@dataclass(frozen=True)
class Coverage:
    """How often 95% intervals cover the mean of 5 to 100 runs."""

    repetitions: int
    name = "intervals: each repetition as alone"

    def gates(self) -> Iterator[Gate]:
        errors = np.random.default_rng(0).normal(size=(5, 10))
        want = [[float(end[0]) for end in mean_intervals(each[None])] for each in errors]
        yield gate(self.name, np.array(mean_intervals(errors)).T, np.array(want))

    def rows(self, effort: Effort) -> Iterator[Row]:
        for distribution in DISTRIBUTIONS:
            for runs in RUNS:
                yield Row(
                    f"coverage of 95% intervals in {self.repetitions:,} repetitions",
                    f"{distribution}, {runs} runs",
                    gates=(self.name,),
                    ratio=measure_coverage(distribution, runs, self.repetitions),
                )
