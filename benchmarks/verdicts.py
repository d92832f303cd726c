"""How often a verdict reads "better": ``python -m benchmarks.verdicts`` prints the table of the docs.

Of ten kinds of series the future cannot be predicted beyond a baseline; of ten others it can. Each is drawn with many
seeds and run as a user would run it, with the default horizons. The constants of ``emphatic.scores.measures`` were
chosen on seeds below 1,000, so seeds begin there. With ``--log`` a run that was stopped continues.

    python -m benchmarks.verdicts --seeds 200 --rows 2000 20000 --jobs 16 --log verdicts.jsonl
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = ["PREDICTABLE", "UNPREDICTABLE", "chance_interval", "main", "measure", "read_verdict"]

Array = NDArray[np.float64]
Columns = dict[str, NDArray[np.generic]]
Draw = Callable[[np.random.Generator, int], Array]

SEEDS, FIRST_SEED, ROWS = 200, 1000, (2000, 20_000)
#: A kind of series, a seed and a number of rows.
Task = tuple[str, int, int]


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


def read_verdict(kind: str, seed: int, rows: int, exponential_only: bool | None = None) -> str:
    """The verdict on one log: on its values at +h, or on the exponential means alone."""
    from emphatic import nexting

    log = make_log(kind, seed, rows)
    result = nexting.run(log, predict="x", offline=False, exponential_only=exponential_only)
    return str(result.verdict[0]["verdict"])


def measure(tasks: Sequence[Task], jobs: int = 1, exponential_only: bool | None = None) -> Iterator[tuple[Task, str]]:
    """The verdict on each log, as they become known."""
    if jobs == 1:
        yield from ((task, read_verdict(*task, exponential_only)) for task in tasks)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        verdicts = {pool.submit(read_verdict, *task, exponential_only): task for task in tasks}
        yield from ((verdicts[verdict], verdict.result()) for verdict in as_completed(verdicts))


def chance_interval(count: int, of: int) -> tuple[float, float]:
    """The 95% interval of a share (Wilson 1927).

    >>> [round(end, 3) for end in chance_interval(0, 200)]
    [0.0, 0.019]
    """
    z = 1.959964
    centre, spread = count + 0.5 * z**2, z * math.sqrt(count * (of - count) / of + 0.25 * z**2)
    return max(0.0, (centre - spread) / (of + z**2)), min(1.0, (centre + spread) / (of + z**2))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verdicts", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--kinds", nargs="+", default=[*UNPREDICTABLE, *PREDICTABLE])
    parser.add_argument("--exponential-only", action="store_true", default=None)
    parser.add_argument("--log", type=Path, help="a file of lines, one for each verdict, that a further run continues")
    options = parser.parse_args(arguments)
    lines = options.log.read_text().splitlines() if options.log is not None and options.log.exists() else []
    verdicts: dict[Task, str] = {(kind, seed, rows): verdict for kind, seed, rows, verdict in map(json.loads, lines)}
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    tasks = [(kind, seed, rows) for rows in options.rows for seed in seeds for kind in options.kinds]
    tasks = [task for task in tasks if task not in verdicts]
    for task, verdict in measure(tasks, options.jobs, options.exponential_only):
        verdicts[task] = verdict
        if options.log is not None:
            with options.log.open("a") as file:
                file.write(json.dumps([*task, verdict]) + "\n")
    print_table(verdicts)


def print_table(verdicts: dict[Task, str]) -> None:
    """The share of verdicts that read "better", of each kind of series and number of rows."""
    for rows in sorted({rows for _, _, rows in verdicts}):
        print(f"| {rows:,} rows | predictable | better | 95% interval |\n|---|---|--:|---|")
        for kind in (*UNPREDICTABLE, *PREDICTABLE):
            several = [verdict for (name, _, length), verdict in verdicts.items() if (name, length) == (kind, rows)]
            if several:
                better = several.count("better")
                low, high = chance_interval(better, len(several))
                predictable = "yes" if kind in PREDICTABLE else "no"
                print(f"| {kind} | {predictable} | {better} of {len(several)} | {low:.1%} to {high:.1%} |")
        print()


if __name__ == "__main__":
    main()
