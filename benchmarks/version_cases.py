"""What is timed in each of two versions: a process of its own, which reads commands and prints times.

``python version_cases.py`` with PYTHONPATH set to a version's ``src``. It uses only what every version has.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

import emphatic

#: (rule, dtype, n, K, T, active) of each run, by engine.
RULES = ("true_online_etd", "true_online_gtd")


def parameters(rule: str, T: int, n: float) -> dict[str, Any]:
    """A stream on which nothing diverges."""
    rng = np.random.default_rng(1)
    given = {
        "alpha": 0.1 / n,
        "lambda_": 0.9,
        "rho": rng.uniform(0.5, 1.2, T),
        "R": rng.normal(size=T),
        "gamma_next": 0.9,
    }
    return given | ({"beta": 0.01 / n, "lambda_next": 0.9} if rule == "true_online_gtd" else {})


def run(engine: str, rule: str, dtype: str, n: int, K: int | None, T: int, active: int | None) -> Callable[[], object]:
    """One ``run``."""
    rng = np.random.default_rng(0)
    learner = emphatic.Learner(rule, n, K, engine=engine, dtype=dtype)
    given = parameters(rule, T, active or n)
    if active is None:
        Phi: Any = (rng.normal(size=(T + 1, n))).astype(dtype)
    else:
        Phi = emphatic.Active(np.array([np.sort(rng.choice(n, active, replace=False)) for _ in range(T + 1)]))
    if K is not None and K > 1:
        given |= {"alpha": given["alpha"] * rng.uniform(0.1, 1.0, (1, K)), "lambda_": rng.uniform(0.0, 1.0, (1, K))}
    given = {
        k: v[:, None] if K is not None and isinstance(v, np.ndarray) and v.ndim == 1 else v for k, v in given.items()
    }
    return lambda: learner.run(
        Phi, given["R"], given["gamma_next"], **{k: v for k, v in given.items() if k not in ("R", "gamma_next")}
    )


def learn(n: int, K: int | None, calls: int) -> Callable[[], object]:
    """So many calls of ``learn``."""
    rng = np.random.default_rng(0)
    learner = emphatic.Learner("true_online_etd", n, K, engine="dense")
    phi, phi_next = rng.normal(size=(2, n)) / np.sqrt(n)
    R: Any = 0.5 if K is None else rng.normal(size=K)

    def call() -> None:
        for _ in range(calls):
            learner.learn(0.01, 1.0, 0.9, phi, 1.0, R, phi_next, 0.9)

    return call


def short_runs(n: int, calls: int) -> Callable[[], object]:
    rng = np.random.default_rng(0)
    learner = emphatic.Learner("true_online_etd", n, engine="dense")
    Phi = rng.normal(size=(2, n)) / np.sqrt(n)

    def call() -> None:
        for _ in range(calls):
            learner.run(Phi, 0.5, 0.9, alpha=0.01, lambda_=0.9)

    return call


def creations(n: int, calls: int) -> Callable[[], object]:
    def call() -> None:
        for _ in range(calls):
            emphatic.Learner("true_online_etd", n, engine="dense")

    return call


def take(signals: int, horizons: list[int], block: int, readings: int) -> Callable[[], object]:
    """So many readings by ``Predictor.take``, a block at a time, after a warm-up; each call goes on from the last.

    A version that has the values at each horizon leaves them out, so that both compute the same.
    """
    from emphatic.nexting.predictor import Predictor
    from emphatic.nexting.settings import Settings

    rng, t = np.random.default_rng(0), np.arange(20_000)[:, None]
    values = 3.0 * np.sin(t * 2 * np.pi / 24) + np.cumsum(rng.normal(0, 0.1, (len(t), signals)), axis=0)
    values += rng.normal(size=values.shape)
    rows: list[Any] = [
        (i, {f"s{c}": value for c, value in enumerate(row)}) for i, row in enumerate(values.tolist(), start=1)
    ]
    alike: Any = {"exponential_only": True} if hasattr(Settings, "exponential_only") else {}
    predictor = Predictor(Settings(horizons=tuple(horizons), **alike), warm_up=500)
    predictor.take(rows[:1000])
    position = 1000

    def call() -> None:
        nonlocal position
        if position + readings > len(rows):
            position = 0
        for begin in range(position, position + readings, block):
            predictor.take(rows[begin : begin + block])
        position += readings

    return call


def read(rows: int, columns: int) -> Callable[[], object]:
    """All blocks of a CSV file with time stamps and so many columns; the sums of its columns."""
    from emphatic.streams import open_table

    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name) / "log.csv"
    times = np.datetime_as_string(np.datetime64("2007-02-01T00:00:00") + 60 * np.arange(rows))
    values = np.random.default_rng(0).normal(2.0, 1.0, (rows, columns)).round(3).tolist()
    lines = [",".join([time, *map(str, row)]) for time, row in zip(times.tolist(), values, strict=True)]
    path.write_text("\n".join([",".join(["time", *(f"s{c}" for c in range(columns))]), *lines]) + "\n")

    def call() -> object:
        assert folder.name  # the folder lives as long as this function
        return np.sum([np.nansum(block.values, axis=0) for block in open_table(path).blocks()], axis=0)

    return call


def make(case: dict[str, Any]) -> Callable[[], object]:
    kinds: dict[str, Callable[..., Callable[[], object]]] = {
        "run": run, "learn": learn, "short runs": short_runs, "creations": creations, "take": take,
        "read": read,
    }  # fmt: skip
    return kinds[case["kind"]](**case["of"])


def main() -> None:
    """Each line is a case and a number of seconds; the answer is the least time of a call, and of the first one."""
    made: dict[str, Callable[[], object]] = {}
    for line in sys.stdin:
        case = json.loads(line)
        name, first, outcome = json.dumps(case["of"]) + case["kind"], 0.0, []
        if name not in made:
            begin = process_time()
            made[name] = make(case)
            result = made[name]()
            first = process_time() - begin
            outcome = [] if result is None else [float(x) for x in np.asarray(result, np.float64).reshape(-1)[-100:]]
        least, until = float("inf"), perf_counter() + case["seconds"]
        while True:
            begin = perf_counter()
            made[name]()
            end = perf_counter()
            least = min(least, end - begin)
            if end >= until:
                break
        print(json.dumps({"least": least, "first": first, "outcome": outcome}), flush=True)


if __name__ == "__main__":
    main()
