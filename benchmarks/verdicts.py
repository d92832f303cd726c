"""How often a verdict reads "better": ``python -m benchmarks.verdicts`` prints the table of the docs.

Of ten kinds of series the future cannot be predicted beyond a baseline; of ten others it can. Each is drawn with many
seeds and run as a user would run it, with the default horizons.

    python -m benchmarks.verdicts --seeds 200 --rows 2000 20000 --jobs 16
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
from numpy.typing import NDArray

__all__ = ["PREDICTABLE", "UNPREDICTABLE", "main", "measure", "read_verdict"]

Array = NDArray[np.float64]
Columns = dict[str, NDArray[np.generic]]
Draw = Callable[[np.random.Generator, int], Array]

SEEDS, ROWS = 200, (2000, 20_000)


def garch(rng: np.random.Generator, T: int) -> Array:
    """Noise whose variance follows its squares, GARCH(1, 1)."""
    noise, x, variance = rng.normal(size=T), np.empty(T), 1.0
    for t in range(T):
        x[t] = np.sqrt(variance) * noise[t]
        variance = 0.05 + 0.1 * x[t] ** 2 + 0.85 * variance
    return x


def autoregression(rng: np.random.Generator, T: int, *weights: float) -> Array:
    """x_t = Σ w_k x_{t−k} + noise."""
    x, lags = rng.normal(size=T + 200), len(weights)
    for t in range(lags, T + 200):
        x[t] += sum(weight * x[t - 1 - k] for k, weight in enumerate(weights))
    return x[200:]


def jumping_walk(rng: np.random.Generator, T: int) -> Array:
    """A random walk with rare large steps."""
    return np.cumsum(rng.normal(size=T) + 10.0 * rng.normal(size=T) * (rng.random(T) < 0.01))


def switch(rng: np.random.Generator, T: int) -> Array:
    """On for about 20 rows and off for about 40, at times that vary little, with noise."""
    lengths = np.round(rng.normal(np.tile([20.0, 40.0], T // 40 + 2), 2.0)).astype(np.int64)
    states = np.tile([1.0, 0.0], T // 40 + 2)
    return np.repeat(states, np.maximum(lengths, 1))[:T] + 0.1 * rng.normal(size=T)


def damped_steps(rng: np.random.Generator, T: int) -> Array:
    """A level that decays back to 0 after each of its random steps, with noise."""
    x, level = np.empty(T), 0.0
    steps = np.where(rng.random(T) < 0.02, rng.normal(0.0, 5.0, T), 0.0)
    for t in range(T):
        level = 0.95 * level + steps[t]
        x[t] = level
    return x + 0.2 * rng.normal(size=T)


UNPREDICTABLE: dict[str, Draw] = {
    "random walk": lambda rng, T: np.cumsum(rng.normal(size=T)),
    "white noise": lambda rng, T: rng.normal(size=T),
    "stock prices": lambda rng, T: 100.0 * np.exp(np.cumsum(0.01 * rng.normal(size=T))),
    "heavy tails": lambda rng, T: rng.standard_t(3, size=T),
    "walk with jumps": jumping_walk,
    "GARCH noise": garch,
    "Poisson counts": lambda rng, T: rng.poisson(4.0, T).astype(np.float64),
    "noise with outliers": lambda rng, T: rng.normal(size=T) * np.where(rng.random(T) < 0.01, 30.0, 1.0),
    "coin tosses": lambda rng, T: (rng.random(T) < 0.5).astype(np.float64),
    "a constant with noise": lambda rng, T: 20.0 + 0.01 * rng.normal(size=T),
}
PREDICTABLE: dict[str, Draw] = {
    "AR(1)": lambda rng, T: autoregression(rng, T, 0.8),
    "sine with noise": lambda rng, T: np.sin(2.0 * np.pi * np.arange(T) / 50.0) + 0.3 * rng.normal(size=T),
    "day and week": lambda rng, T: (
        np.sin(2.0 * np.pi * np.arange(T) / 24.0)
        + 0.5 * (np.arange(T) // 24 % 7 >= 5)
        + 0.2 * autoregression(rng, T, 0.8)
    ),
    "AR(2) oscillation": lambda rng, T: autoregression(rng, T, 1.8, -0.9),
    "sawtooth": lambda rng, T: np.arange(T) % 30 / 30.0 + 0.1 * rng.normal(size=T),
    "trend and season": lambda rng, T: (
        0.002 * np.arange(T) + np.sin(2.0 * np.pi * np.arange(T) / 40.0) + 0.2 * rng.normal(size=T)
    ),
    "on and off": switch,
    "mean-reverting": lambda rng, T: 5.0 + autoregression(rng, T, 0.9),
    "lagged copy": lambda rng, T: rng.normal(size=T),
    "damped steps": damped_steps,
}


def make_log(kind: str, seed: int, rows: int) -> Columns:
    """A log of one kind, whose signal is ``x``."""
    draw = (UNPREDICTABLE | PREDICTABLE)[kind]
    order = [*UNPREDICTABLE, *PREDICTABLE].index(kind)
    x = draw(np.random.default_rng((seed, order)), rows)
    if kind == "lagged copy":
        return {"x": np.roll(x, 3), "leader": x}
    if kind == "day and week":
        return {"time": np.datetime64("2024-01-01T00:00:00") + np.arange(rows) * np.timedelta64(3600, "s"), "x": x}
    return {"x": x}


def read_verdict(kind: str, seed: int, rows: int) -> str:
    """The verdict on one log."""
    from emphatic import nexting

    return str(nexting.run(make_log(kind, seed, rows), predict="x", offline=False).verdict[0]["verdict"])


def _verdict_of(task: tuple[str, int, int]) -> str:
    return read_verdict(*task)


def measure(kinds: Sequence[str], seeds: int, rows: int, jobs: int = 1) -> dict[str, float]:
    """The share of logs of each kind whose verdict is "better"."""
    tasks = [(kind, seed, rows) for kind in kinds for seed in range(seeds)]
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        verdicts = list(pool.map(_verdict_of, tasks, chunksize=max(1, min(10, len(tasks) // (4 * jobs)))))
    better = np.array([verdict == "better" for verdict in verdicts]).reshape(len(kinds), seeds)
    return dict(zip(kinds, better.mean(axis=1).tolist(), strict=True))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verdicts", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--kinds", nargs="+", default=[*UNPREDICTABLE, *PREDICTABLE])
    options = parser.parse_args(arguments)
    for rows in options.rows:
        shares = measure(options.kinds, options.seeds, rows, options.jobs)
        print(f"| {rows:,} rows, {options.seeds} seeds | predictable | better |\n|---|---|--:|")
        for kind, share in shares.items():
            print(f"| {kind} | {'no' if kind in UNPREDICTABLE else 'yes'} | {share:.1%} |", flush=True)


if __name__ == "__main__":
    main()
