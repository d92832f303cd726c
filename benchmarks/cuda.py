"""The cuda suite: needs a GPU. Every rule is checked against float64 on the CPU first; then hordes are timed."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import torch

import emphatic
from benchmarks.measure import Case, Effort, Gate, GateFailed, gate
from benchmarks.report import Row
from benchmarks.streams import RULE
from emphatic import features as f
from emphatic.engines.base import UNBROKEN
from emphatic.engines.cuda.engine import Cuda, CudaBlock, CudaLog, CudaShard, dense_rows

EFFORT = Effort(1, 0.0)
TOLERANCE = 1e-5
#: The gate of the log from a file.
FROM_FILE = "nexting: θ of 40 learners from a Parquet file"
#: A chunk's steps: T is a multiple, so that no chunk is a short one.
CHUNK = 63
#: Rows of a file that are read at a time.
AT_A_TIME = CHUNK * 32 * 4
#: Rules with 2, 3 and 5 vectors.
BY_VECTORS = ("true_online_etd", "gtd", "true_online_gtd")


def cases(quick: bool) -> Sequence[Case]:
    """Everything on a GPU; ``quick`` makes it small."""
    if not torch.cuda.is_available():
        raise GateFailed("there is no GPU here")
    return [OnGpu(quick)]


@dataclass(frozen=True)
class OnGpu:
    """Every rule checked, then hordes timed."""

    quick: bool

    def gates(self) -> Iterator[Gate]:
        yield from checks(300 if self.quick else 10_000)
        yield from accuracy(CHUNK * 4 if self.quick else 10_000)
        with tempfile.TemporaryDirectory() as folder:
            yield FromFile(f"{folder}/short.parquet", CHUNK * (2 if self.quick else 64)).check()

    def rows(self, effort: Effort) -> Iterator[Row]:
        quick, small = self.quick, 100 if self.quick else 1
        copied = bandwidth(1 << (20 if quick else 30))
        yield from million(1_000_000 // small, 1_024, CHUNK * (2 if quick else 64))
        yield from nexting(CHUNK * (2 if quick else 128))
        yield from from_file(CHUNK * (4 if quick else 32 * 32))
        yield from beside_torch(131_072 // small, 1_024, CHUNK * (2 if quick else 32))
        yield from small_hordes(CHUNK * (2 if quick else 64))
        yield from table(copied, small)


# ------------------------------------------------------------------------------------------------ checks


def checks(T: int) -> Iterator[Gate]:
    """Every rule in float32 and float64, with one log and with φ' apart.

    Almost all of the time goes into compiling, so each is a process of its own, those of most vectors first.
    """
    jobs = [
        (rule, dtype, separate)
        for rule in sorted(emphatic.rules.names(), key=lambda name: -len(emphatic.rules.get(name).vectors))
        for dtype in ("float32", "float64")
        for separate in (False, True)
    ]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(16, mp_context=context) as pool:
        results = pool.map(check, *zip(*jobs, strict=True), [T] * len(jobs))
        for (rule, _, _), compared in zip(jobs, results, strict=True):
            for name, got, want, tolerance in compared:
                yield gate(f"{rule}: {name}", got, want, tolerance)


def check(rule: str, dtype: str, separate: bool, T: int) -> list[tuple[str, Any, Any, float]]:
    """θ and predictions after T steps of a stream that varies everything, beside NumPy's in float64."""
    from tests.support.streams import make

    stream = make(3, T if not separate else min(T, 500), 32, 4, rule=rule, separate=separate)
    reference = emphatic.Learner(rule, stream.n, stream.K, engine="reference")
    want = stream.run(reference)
    learner = emphatic.Learner(rule, stream.n, stream.K, dtype=dtype, engine="cuda")
    tolerance = TOLERANCE if dtype == "float32" else 1e-10
    how = f"{dtype}, {'φ apart' if separate else 'one log'}"
    return [
        (f"predictions, {how}", stream.run(learner), want, tolerance),
        (f"θ, {how}", learner.theta, reference.theta, tolerance),
    ]


def accuracy(T: int) -> Iterator[Gate]:
    """θ of many learners after T steps beside float64 on the CPU, relative to each learner's own largest weight.

    Of ordinary features, and of such as span twelve orders of magnitude, for which FP16 is not enough.
    """
    K, n = 256, 1_024
    for name, scale in (("", np.ones(n)), (", components of 1e-6 to 1e6", np.logspace(-6, 6, n))):
        Phi, parameters = questions(K, n, T)
        rows = (Phi.cpu().numpy() * scale / np.sqrt(np.mean(scale**2))).astype(np.float32)
        given = {name: value.cpu().numpy() for name, value in parameters.items()}
        pair = []
        for dtype, engine in (("float64", "chunked"), ("float32", "cuda")):
            learner = emphatic.Learner(RULE, n, K, dtype=dtype, engine=engine)
            learner.run(rows, predictions=None, **given)
            pair.append(np.asarray(learner.theta, np.float64))
        want, got = (theta / np.abs(pair[0]).max(axis=1, keepdims=True) for theta in pair)
        yield gate(f"θ of each of {K} learners after {T:,} steps{name}", got, want, 1e-6)


# ------------------------------------------------------------------------------------------------ what is timed


def questions(K: int, n: int, T: int) -> tuple[torch.Tensor, dict[str, Any]]:
    """A question a learner: α, λ and γ its own, R its own at every step; on the device."""
    g = torch.Generator("cuda").manual_seed(0)

    def each(low: float, high: float) -> torch.Tensor:
        return low + (high - low) * torch.rand(1, K, device="cuda", generator=g, dtype=torch.float64)

    Phi = torch.randn(T + 1, n, device="cuda", generator=g) / n**0.5
    R = torch.randn(T, K, device="cuda", generator=g)
    return Phi, {"alpha": each(0.002, 0.02), "lambda_": each(0, 1), "gamma_next": each(0.5, 0.95), "R": R}


def seconds(call: Callable[[], object], rounds: int = 3) -> float:
    """The least of several, after one that compiles."""
    best = float("inf")
    for _ in range(rounds + 1):
        torch.cuda.synchronize()
        began = perf_counter()
        call()
        torch.cuda.synchronize()
        best = min(best, perf_counter() - began)
    return best


def passed(rule: str) -> tuple[str, ...]:
    """The gates of what is timed."""
    return tuple(f"{rule}: {what}, float32, one log" for what in ("θ", "predictions"))


def rate(section: str, learner: Any, Phi: Any, parameters: dict[str, Any], at_least: float) -> Row:
    T = len(Phi) - 1
    took = seconds(lambda: learner.run(Phi, predictions=None, **parameters))
    return Row(
        section,
        "float32, steps a second",
        gates=passed(RULE),
        ours=T / took,
        unit="steps/s",
        ratio=T / took,
        at_least=at_least,
    )


def million(K: int, n: int, T: int) -> Iterator[Row]:
    section = f"run, {RULE}, K = {K:,}, n = {n:,}"
    Phi, parameters = questions(K, n, T)
    torch.cuda.reset_peak_memory_stats()
    given = torch.cuda.memory_allocated()
    learner = emphatic.Learner(RULE, n, K, dtype="float32", engine="cuda")
    yield rate(section, learner, Phi, parameters, 7_300)
    engine: Any = learner._engine
    state = engine.parts[0].X.nbytes
    block = 8 * Phi.nbytes  # P in all its forms
    yield Row(
        section,
        "memory beside the vectors, to the vectors",
        gates=passed(RULE),
        ours=(torch.cuda.max_memory_allocated() - given) / 1e9,
        alternative=state / 1e9,
        versus="vectors",
        unit="GB",
        ratio=(torch.cuda.max_memory_allocated() - given - block) / state - 1.0,
        at_most=0.15,
    )
    rough = emphatic.Learner(RULE, n, K, dtype="float32", engine="cuda-tf32")
    took = seconds(lambda: rough.run(Phi, predictions=None, **parameters))
    pair = [horde.select(range(64)).theta for horde in (rough, learner)]
    off = float(np.abs(pair[0] - pair[1]).max() / np.abs(pair[1]).max())
    yield Row(
        section,
        "cuda-tf32, steps a second",
        gates=passed(RULE),
        ours=T / took,
        unit="steps/s",
        note=f"θ off by {off:.0e}",
    )
    took = seconds(lambda: learner.run(Phi * torch.logspace(-6, 0, n, device="cuda"), predictions=None, **parameters))
    yield Row(
        section,
        "float32, components that span 1e6, steps a second",
        gates=passed(RULE),
        ours=T / took,
        unit="steps/s",
        note="products in TF32",
    )


def nexting(T: int) -> Iterator[Row]:
    K, n, active = 2_160, 6_065, 457
    g = torch.Generator("cuda").manual_seed(0)
    width = n // active
    drawn = torch.randint(0, width, (T + 1, active), device="cuda", generator=g)
    Phi = torch.zeros(T + 1, n, device="cuda")
    Phi.scatter_(1, drawn + width * torch.arange(active, device="cuda"), 1.0)
    gamma = torch.tensor([0.0, 0.8, 0.95, 0.9875], device="cuda", dtype=torch.float64).repeat(K // 4)[None]
    parameters = {"alpha": 0.1 / active, "lambda_": 0.9, "gamma_next": gamma}
    parameters["R"] = torch.randn(T, K, device="cuda", generator=g)
    learner = emphatic.Learner(RULE, n, K, dtype="float32", engine="cuda")
    yield rate(f"run, nexting: {RULE}, K = {K:,}, n = {n:,}", learner, Phi, parameters, 200_000)


#: As in nexting (Modayil et al. 2014), what is predicted is every signal and some of the features, at 4 time scales.
SIGNALS, TARGETS, HORIZONS = 57, 540, (0.0, 0.8, 0.95, 0.9875)


def ahead(items: Iterator[Any]) -> Iterator[Any]:
    """The same items, the next one made in a thread while one is used."""
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = pool.submit(next, items, None)
            yield item


class FromFile:
    """A log in a Parquet file, learned on the GPU: 540 targets at 4 time scales, from 6,065 features, 457 active."""

    def __init__(self, path: str, rows: int) -> None:
        self.path, self.n = path, 6_065
        g = np.random.default_rng(0)
        readings = np.empty((rows, SIGNALS), np.float32)
        x = g.standard_normal(SIGNALS)
        for t in range(rows):
            x = 0.9 * x + g.standard_normal(SIGNALS) * 0.19**0.5
            readings[t] = x
        table = pyarrow.table({f"s{i}": readings[:, i] for i in range(SIGNALS)})
        pyarrow.parquet.write_table(table, path, row_group_size=AT_A_TIME)

    def features(self) -> f.Features:
        names = [f"s{i}" for i in range(SIGNALS)]
        tiles = [f.Tiles(name, tiles=12 if i else 29, tilings=8, range=(-4.0, 4.0)) for i, name in enumerate(names)]
        return f.Features([f.Bias(), *tiles]).warm_up(np.empty((0, SIGNALS)), names=names)

    def readings(self) -> Iterator[Any]:
        """Some rows at a time, each time with the row before them."""
        before = np.empty((0, SIGNALS))
        for batch in pyarrow.parquet.ParquetFile(self.path).iter_batches(AT_A_TIME):
            rows = np.stack([column.to_numpy() for column in batch.columns], axis=1)
            yield np.concatenate([before, rows])
            before = rows[-1:].astype(np.float64)

    def batches(self) -> Iterator[tuple[emphatic.Active, Any]]:
        """φ of such rows, and the rows: features have fixed ranges and no traces."""
        maker = self.features()
        for readings in ahead(self.readings()):
            yield maker(readings), readings

    def learn(self) -> emphatic.Learner:
        """All from the file to θ. Features of the next rows are made while these are learned."""
        learner = emphatic.Learner(RULE, self.n, TARGETS * len(HORIZONS), dtype="float32", engine="cuda")
        gamma = torch.tensor(HORIZONS, dtype=torch.float64, device="cuda").repeat(TARGETS)[None]
        for active, readings in ahead(self.batches()):
            Phi = dense_rows(active.rows, self.n, torch.device("cuda"), torch.float32)
            targets = torch.cat([torch.from_numpy(readings).cuda().float(), Phi[:, 1 : 1 + TARGETS - SIGNALS]], 1)
            R = targets[1:].repeat_interleave(len(HORIZONS), 1)
            learner.run(Phi, R=R, alpha=0.1 / 58, lambda_=0.9, gamma_next=gamma, predictions=None)
        torch.cuda.synchronize()
        return learner

    def check(self) -> Gate:
        """θ of the first signals' learners beside float64 on the CPU."""
        few = 10
        gamma = np.tile(HORIZONS, few)[None]
        other = emphatic.Learner(RULE, self.n, few * len(HORIZONS), engine="chunked")
        for phi, readings in self.batches():
            R = np.repeat(readings[1:, :few], len(HORIZONS), axis=1)
            other.run(phi, R=R, alpha=0.1 / 58, lambda_=0.9, gamma_next=gamma, predictions=None)
        ours = self.learn().select(range(few * len(HORIZONS)))
        return gate(FROM_FILE, ours.theta, other.theta, TOLERANCE)


def from_file(T: int) -> Iterator[Row]:
    """From a Parquet file to θ: reading, features and learning."""
    with tempfile.TemporaryDirectory() as folder:
        log = FromFile(f"{folder}/long.parquet", T)
        took = seconds(log.learn, 2)
        began = perf_counter()
        for _ in log.batches():
            pass
        alone = perf_counter() - began
    yield Row(
        f"nexting from a Parquet file of {SIGNALS} signals: {RULE}, K = 2,160, n = 6,065, 457 active",
        "reading, features and learning, rows a second",
        gates=(FROM_FILE,),
        ours=T / took,
        unit="rows/s",
        ratio=T / took,
        at_least=100_000,
        note=f"reading and features alone {T / alone:,.0f}",
    )


class StepByStep:
    """True online ETD(λ) of K learners in torch, a step at a time, as one would write it without this library.

    θ and e (K, n) are updated in place; with ``fused``, the update is as ``torch.compile`` makes it, in one pass.
    """

    def __init__(self, n: int, K: int, *, fused: bool) -> None:
        self.X = torch.zeros(2, K, n, device="cuda")
        self.F, self.D, self.gamma = (torch.zeros(K, device="cuda") for _ in range(3))
        self._update = torch.compile(update) if fused else update

    @property
    def theta(self) -> torch.Tensor:
        return self.X[0]

    def run(self, Phi: torch.Tensor, p: dict[str, Any]) -> None:
        alpha, lambda_, gamma_next = (p[name][0].float() for name in ("alpha", "lambda_", "gamma_next"))
        for t, R in enumerate(p["R"]):
            both = Phi[t : t + 2]
            v = self.X @ both.T  # one pass over X for all four products
            self.F = self.F + 1.0
            M = lambda_ + (1.0 - lambda_) * self.F
            c, b = self.gamma * lambda_, alpha * M
            s = b * (1.0 - c * v[1, :, 0])
            delta = R + gamma_next * v[0, :, 1] - v[0, :, 0]
            w, q = (delta + self.D) * c, delta * s + self.D * (s - b)
            self.D = w * v[1, :, 1] + q * (both[0] @ both[1])
            self._update(self.X[0], self.X[1], w, q, c, s, both[0])
            self.F, self.gamma = gamma_next * self.F, gamma_next


def update(
    theta: torch.Tensor, e: torch.Tensor, w: torch.Tensor, q: torch.Tensor, c: torch.Tensor, s: torch.Tensor,
    phi: torch.Tensor,
) -> None:  # fmt: skip
    """θ ← θ + w e + q φ;  e ← c e + s φ."""
    theta.addcmul_(w[:, None], e).addcmul_(q[:, None], phi)
    e.mul_(c[:, None]).addcmul_(s[:, None], phi)


def beside_torch(K: int, n: int, T: int) -> Iterator[Row]:
    Phi, parameters = questions(K, n, T)
    learner = emphatic.Learner(RULE, n, K, dtype="float32", engine="cuda")
    few = 20
    theirs = {name: StepByStep(n, K, fused=fused) for name, fused in (("torch", False), ("torch.compile", True))}
    for name, other in theirs.items():
        fresh = emphatic.Learner(RULE, n, K, dtype="float32", engine="cuda")
        start = {p: v[:few] if len(v) > 1 else v for p, v in parameters.items()}
        fresh.run(Phi[: few + 1], predictions=None, **start)
        other.run(Phi[: few + 1], start)
        gate(name, fresh.theta[:64], other.theta[:64].cpu().numpy(), 1e-4)
    ours = seconds(lambda: learner.run(Phi, predictions=None, **parameters)) / T
    for name, other in theirs.items():
        took = seconds(lambda other=other: other.run(Phi[: few + 1], start)) / few  # type: ignore[misc]
        yield Row(
            f"run, {RULE}, K = {K:,}, n = {n:,}; a step of all learners",
            f"beside {name}, step by step",
            gates=passed(RULE),
            ours=ours * 1e6,
            alternative=took * 1e6,
            versus=name,
            ratio=took / ours,
            at_least=60 if name == "torch" else None,
        )


def small_hordes(T: int) -> Iterator[Row]:
    """From where a GPU pays: the same run on the CPU, on one core and on all of them; also with the log on the host."""
    cores = os.cpu_count() or 1
    torch.set_num_threads(cores)  # as torch does by itself: it copies a log on the host with all cores
    for K in (10, 100, 1_000, 10_000):
        for n in (256, 1_024, 4_096):
            Phi, parameters = questions(K, n, T)
            few = max(2 * CHUNK, min(T, 2_000_000_000 // (K * n)))
            learner = emphatic.Learner(RULE, n, K, dtype="float32", engine="cuda")
            ours = T / seconds(partial(learner.run, Phi, predictions=None, **parameters))
            rows, given = Phi.cpu().numpy(), {p: v.cpu().numpy() for p, v in parameters.items()}
            sent = T / seconds(partial(learner.run, rows, predictions=None, **given))
            rows, given = rows[: few + 1], {p: v[:few] for p, v in given.items()}
            rates = []
            for threads in (1, cores):
                other = emphatic.Learner(RULE, n, K, dtype="float32", engine="chunked", threads=threads)
                rates.append(few / seconds(partial(other.run, rows, predictions=None, **given), 2))
            yield Row(
                f"run, {RULE}, float32, beside the chunked engine on the CPU",
                f"K = {K:,}, n = {n:,}",
                gates=passed(RULE),
                ours=ours,
                alternative=max(rates),
                versus="chunked",
                unit="steps/s",
                ratio=ours / max(rates),
                note=f"log on the host {sent:,.0f}; chunked on one core {rates[0]:,.0f}, on {cores} {rates[1]:,.0f}",
            )
            if K <= 100:
                yield Row(
                    f"run, {RULE}, float32, the log on the host beside the log on the device",
                    f"K = {K:,}, n = {n:,}",
                    gates=passed(RULE),
                    ours=sent,
                    alternative=ours,
                    versus="on the device",
                    unit="steps/s",
                    ratio=sent / ours,
                    at_least=0.9,
                )


# ------------------------------------------------------------------------------------------------ parts and the floor


def bandwidth(size: int) -> float:
    """Bytes a second that a copy reads and writes."""
    a = torch.zeros(size, device="cuda")
    b = torch.empty_like(a)
    return float(2 * a.nbytes / seconds(lambda: b.copy_(a)))


def table(copied: float, small: int) -> Iterator[Row]:
    for rule in BY_VECTORS:
        for K, n in ((1_000_000, 256), (1_000_000, 1_024), (131_072, 1_024), (131_072, 4_096), (10_000, 4_096)):
            yield parts(rule, max(64, K // small), n, copied)
            torch.cuda.empty_cache()


def parts(rule: str, K: int, n: int, copied: float) -> Row:
    """A chunk's two kernels, each timed by itself, beside X read twice and written once."""
    part = Cuda(emphatic.rules.get(rule), n, K, "float32").parts[0]
    part.state.begin(np.zeros(K, np.bool_))
    block = chunks_of(part, K, n)
    times = dict.fromkeys(("dual", "update"), float("inf"))
    for _ in range(6):
        part.clear_flag()
        part.project(block, 0)
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
        marks[0].record()
        part.dual(block, 0, 0)
        marks[1].record()
        part.update(block, 0)
        marks[2].record()
        torch.cuda.synchronize()
        for i, name in enumerate(times):
            times[name] = min(times[name], marks[i].elapsed_time(marks[i + 1]) / 1e3)
    if part.stopped() == 0:
        raise GateFailed(f"{rule}: a learner diverged where kernels were to be timed")
    whole = sum(times.values())
    floor = 3 * part.X.nbytes / copied
    share = f"dual {1e3 * times['dual']:.2f}, update and next projection {1e3 * times['update']:.2f}"
    return Row(
        f"kernels of a chunk of {CHUNK} steps; the floor: X read twice and written once at {copied / 1e12:.2f} TB/s",
        f"{rule}, m = {part.m}, K = {K:,}, n = {n:,}",
        gates=passed(rule),
        ours=1e3 * whole,
        alternative=1e3 * floor,
        versus="floor",
        unit="ms",
        ratio=floor / whole,
        at_least=0.55 if n == 256 else 0.65 if K == 131_072 else None,
        note=share,
    )


def chunks_of(part: CudaShard, K: int, n: int) -> CudaBlock:
    """A block of two chunks."""
    T = 2 * CHUNK
    Phi, given = questions(K, n, T)
    one = torch.ones(1, 1, device="cuda", dtype=torch.float64)
    values = {name: given.get(name, one * (0.01 if name == "beta" else 1.0)) for name in part.rule.parameters}
    parameters = [value.expand(T, K) for value in values.values()]
    return next(CudaLog(part, Phi[:-1], Phi[1:], 1.0, parameters, False, UNBROKEN).blocks(T))
