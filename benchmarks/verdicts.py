"""The verdicts suite: how often a verdict reads "better".

Of twelve kinds of series the future cannot be predicted beyond a baseline; of eight others it can. Each is drawn with
many seeds and run as a user would run it, with the default horizons. The constants of
``emphatic.nexting.scores.verdicts`` were chosen on seeds below 1,000, so seeds begin there.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context

import numpy as np
from numpy.typing import NDArray

from benchmarks.forecasting import variance_explained
from benchmarks.measure import Case, Effort, Gate, gate
from benchmarks.report import Layout, Row
from emphatic import nexting

Array = NDArray[np.float64]
Columns = dict[str, NDArray[np.generic]]
Draw = Callable[[np.random.Generator, int], Array]

EFFORT = Effort(1, 0.0)
FIRST_SEED = 1000
LAYOUT = Layout(how="Each row is a share of verdicts that read better, with its 95% interval (Wilson 1927).")


def cases(quick: bool) -> Sequence[Case]:
    """All cases; ``quick`` draws few short series."""
    if quick:
        return [Scores(), *(Verdicts(kind, 600, 2) for kind in ("white noise", "AR(1)"))]
    return [
        Scores(),
        *(Verdicts(kind, rows, 200) for rows in (2_000, 20_000) for kind in (*UNPREDICTABLE, *PREDICTABLE)),
    ]


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
    # (what is usual at that time of the period is a baseline)
    "sine with noise": lambda rng, T: np.sin(2.0 * np.pi * np.arange(T) / 50.0) + 0.3 * rng.normal(size=T),
    "sawtooth": lambda rng, T: np.arange(T) % 30 / 30.0 + 0.1 * rng.normal(size=T),
}
PREDICTABLE: dict[str, Draw] = {
    "AR(1)": lambda rng, T: autoregression(rng, T, 0.8),
    "day and week": lambda rng, T: (
        np.sin(2.0 * np.pi * np.arange(T) / 24.0)
        + 0.5 * (np.arange(T) // 24 % 7 >= 5)
        + 0.2 * autoregression(rng, T, 0.8)
    ),
    "AR(2) oscillation": lambda rng, T: autoregression(rng, T, 1.8, -0.9),
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


def read_verdict(kind: str, rows: int, seed: int) -> str:
    """The verdict on one log."""
    return str(nexting.run(make_log(kind, seed, rows), predict="x").verdict[0]["verdict"])


def chance_interval(count: int, of: int) -> tuple[float, float]:
    """The 95% interval of a share (Wilson 1927).

    >>> [round(end, 3) for end in chance_interval(0, 200)]
    [0.0, 0.019]
    """
    z = 1.959964
    centre, spread = count + 0.5 * z**2, z * math.sqrt(count * (of - count) / of + 0.25 * z**2)
    return max(0.0, (centre - spread) / (of + z**2)), min(1.0, (centre + spread) / (of + z**2))


class Scores:
    """The scores from which verdicts come, beside the same computed here."""

    name = "sine with noise: the scores of summary.json, from labels computed here"

    def gates(self) -> Iterator[Gate]:
        log = make_log("sine with noise", FIRST_SEED, 2_000)
        result, x = nexting.run(log, predict="x", horizons=(2, 9)), log["x"].astype(np.float64)
        scores = [score for score in result.summary[1:] if score["kind"] == "at"]
        predictions = np.array([result.predictions.column(score["text"]).to_numpy() for score in scores])
        labels = np.array(
            [np.concatenate([x[score["horizon"] :], np.full(score["horizon"], np.nan)]) for score in scores]
        )
        explained = variance_explained(predictions, labels, ~np.isnan(labels))
        # (predictions are stored in float32, and scores computed before that)
        yield gate(self.name, explained, np.array([score["variance_explained"] for score in scores]), 1e-5)

    def rows(self, effort: Effort) -> Iterator[Row]:
        return iter(())


@dataclass(frozen=True)
class Verdicts:
    """Series of one kind and length: how many verdicts read "better"."""

    kind: str
    T: int
    seeds: int

    def gates(self) -> Iterator[Gate]:
        return iter(())  # that of ``Scores``

    def rows(self, effort: Effort) -> Iterator[Row]:
        seeds = range(FIRST_SEED, FIRST_SEED + self.seeds)
        with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
            verdicts = list(pool.map(partial(read_verdict, self.kind, self.T), seeds, chunksize=8))
        better = verdicts.count("better")
        low, high = chance_interval(better, self.seeds)
        predictable = self.kind in PREDICTABLE
        yield Row(
            f"series of {self.T:,} rows that {'can' if predictable else 'cannot'} be predicted",
            self.kind,
            gates=(Scores.name,),
            ours=better,
            unit=f"of {self.seeds}",
            ratio=better / self.seeds,
            at_least=0.9 if predictable else None,
            at_most=None if predictable else 0.05,
            note=f"{low:.1%} to {high:.1%}",
        )
