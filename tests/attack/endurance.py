"""Leaks and drift: what only shows after very many steps."""

from __future__ import annotations

import gc
import json
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np

from emphatic import GVF, Active, Horde, Learner
from emphatic import features as f

__all__ = ["drift", "leaks"]

#: Growth, in MiB, that is taken for a leak: what an allocator keeps is less.
_MOST = 8.0


def resident() -> float:
    """MiB of memory that this process has."""
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def leaks(scale: float = 1.0) -> int:
    """Memory before and after very many calls, once all has been used; how many grew."""
    rng = np.random.default_rng(0)
    phi, Phi = rng.normal(size=16), rng.normal(size=(11, 16))
    index = rng.integers(0, 4, size=(11, 4)) + 4 * np.arange(4)
    one, log = Active(index[0]), Active(index)
    dense, sparse = Learner("true_online_etd", 16, engine="dense"), Learner("true_online_etd", 16, engine="sparse")
    many = Learner("true_online_etd", 16, 3, engine="sparse")
    horde = Horde([GVF("x", horizon=5), GVF("y", horizon=9)], f.Features([f.Bias(), f.SoftBins("*", bins=5)]))
    horde.warm_up({"x": rng.normal(size=50), "y": rng.normal(size=50)})
    rows = rng.normal(size=(97, 2)).tolist()

    def learn(t: int) -> None:
        if t & 1:
            dense.learn(1e-4, 1.0, 0.9, phi, 1.0, 1.0, phi, 0.9)
        else:
            sparse.learn(1e-4, 1.0, 0.9, one, 1.0, 1.0, one, 0.9)

    def run(t: int) -> None:
        if t & 1:
            dense.run(Phi, 1.0, 0.9, alpha=1e-4)
        else:
            many.run(log, 1.0, 0.9, alpha=1e-4)

    def observe(t: int) -> None:
        horde.observe(rows[t % 97])

    grown = 0
    work: dict[str, tuple[Callable[[int], None], int]] = {
        "learn": (learn, 1_000_000), "run": (run, 100_000), "observe": (observe, 100_000),
    }  # fmt: skip
    for name, (call, count) in work.items():
        times = int(count * scale)
        for t in range(max(1000, times // 10)):
            call(t)
        before = resident()
        for t in range(times):
            call(t)
        grown += _report(name, times, before, resident())
    return grown + _live(int(86_400 * scale))


def _live(readings: int) -> int:
    """A live pipe, one reading a second for a day, through its own descriptors."""
    from emphatic.nexting.live import Live
    from emphatic.nexting.runs.settings import Settings

    sizes: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        (source, feed), (drain, sink) = os.pipe(), os.pipe()

        def write() -> None:
            with os.fdopen(feed, "w") as file:
                for t in range(readings):
                    row = {"time": f"2024-01-01 {t // 3600:02d}:{t // 60 % 60:02d}:{t % 60:02d}", "x": np.sin(t / 60)}
                    file.write(json.dumps(row) + "\n")
                    if t in (readings // 4, readings // 2, readings - 1):
                        sizes.append(resident())

        def read() -> None:
            with os.fdopen(drain, "rb") as file:
                while file.read(1 << 16):
                    pass

        threads = [threading.Thread(target=work) for work in (write, read)]
        for thread in threads:
            thread.start()
        model = Path(folder) / "model.safetensors"
        try:
            Live(model, Settings(horizons=(10, 600)), save_every=2.0, source=source, sink=sink).run()
        finally:
            os.close(sink)
        for thread in threads:
            thread.join()
        os.close(source)
    return _report("live readings", readings, sizes[0], sizes[-1])


def _report(name: str, count: int, before: float, after: float) -> int:
    grew = after - before > _MOST
    print(
        f"{name}: {count:,} times, {before:.1f} MiB before, {after:.1f} MiB after{', GREW' if grew else ''}", flush=True
    )
    return int(grew)


def drift(steps: int, n: int = 64, most: float = 1e-10) -> int:
    """Dense, sparse and chunked after so many steps in float64, in several rules; how many pairs are further apart."""
    apart = 0
    for rule in ("td", "true_online_etd", "tdrc"):
        rng, block = np.random.default_rng(1), 100_000
        learners = {engine: Learner(rule, n, 2, engine=engine) for engine in ("dense", "sparse", "chunked")}
        learners |= {"dense, one": Learner(rule, n, engine="dense"), "sparse, one": Learner(rule, n, engine="sparse")}
        last = rng.integers(0, 8, size=(1, 8)) + 8 * np.arange(8)
        for begin in range(0, steps, block):
            T = min(block, steps - begin)
            index = np.concatenate([last, rng.integers(0, 8, size=(T, 8)) + 8 * np.arange(8)])
            Phi = np.zeros((T + 1, n))
            np.put_along_axis(Phi, index, 1.0, 1)
            given = {"R": rng.normal(size=T), "gamma_next": np.where(rng.random(T) < 0.01, 0.0, 0.95)}
            given |= {"lambda_": rng.choice([0.0, 0.5, 0.9], T), "rho": rng.choice([0.0, 0.7, 1.3], T)}
            for name, learner in learners.items():
                feature = Active(index) if name.startswith("sparse") else Phi
                learner.run(feature, **given, alpha=1e-4, predictions=False)  # type: ignore[arg-type]
            last = index[-1:]
        expected = learners["dense"].theta
        for name, learner in learners.items():
            theta = learner.theta if learner.K else np.stack([learner.theta] * 2)
            error = float(np.abs(theta - expected).max() / max(0.01, np.abs(expected).max()))
            print(
                f"{rule}, {name}: {steps:,} steps, {error:.1e} from dense{', APART' if error > most else ''}",
                flush=True,
            )
            apart += error > most
    return apart
