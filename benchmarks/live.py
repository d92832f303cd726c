"""The live suite: what learning beside an agent adds to a step of its environment, and readings as they come."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product
from math import ceil
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

import emphatic
from benchmarks.measure import Case, Effort, Gate, Side, fastest, gate
from benchmarks.report import Row
from benchmarks.streams import RULE
from emphatic import GVF
from emphatic.nexting.runs.predictor import Prediction, Predictor
from emphatic.nexting.runs.settings import Settings
from emphatic.nexting.tables.pipe import Readings

EFFORT = Effort(7, 0.1)
has_mujoco = all(importlib.util.find_spec(name) is not None for name in ("gymnasium", "mujoco"))
INSTALL = "pip install 'gymnasium[mujoco]' to compare"
#: Predictions are made at every so many steps beside an agent.
EVERY = (1, 10, 100)
HORIZONS = (2, 9, 36, 144)
WARM_UP = 500


def cases(quick: bool) -> Sequence[Case]:
    """All cases; ``quick`` makes them small."""
    beside = Beside("HalfCheetah-v5" if has_mujoco else "Pendulum-v1", 100, 60 if quick else 900)
    T, C = (200, 2) if quick else (6000, 20)
    return [beside, Incoming(T, 1), Incoming(T, C)]


# ------------------------------------------------------------------------------------------------ beside an agent


@dataclass(frozen=True)
class Beside:
    """``questions`` GVFs learned beside an agent that acts at random, with about 1,000 tile-coded features."""

    environment: str
    questions: int
    T: int

    def plain(self) -> Any:
        import gymnasium

        return gymnasium.make(self.environment, max_episode_steps=100_000)

    def learning(self, **more: Any) -> Any:
        """The same environment, with every component in some joint tiling."""
        from emphatic.gymnasium import LearnGVFs, component_names, tiles

        env = self.plain()
        names = component_names(env.observation_space)
        pairs = [list(names[i : i + 2]) for i in range(0, len(names), 2)]
        side = ceil((1_000 / 4 / len(pairs)) ** 0.5) - 1
        ranges = dict.fromkeys(names, (-10.0, 10.0))
        features = tiles(env.observation_space, pairs, ranges=ranges, tiles=side, tilings=4)
        horizons = product((20, 40, 80, 160, 320, 640), (*names, "reward"))
        asked = [GVF(name, horizon=h, lambda_=0.9) for h, name in horizons]
        many = [GVF("reward", gamma=1 - 1 / (700 + i), lambda_=0.9) for i in range(self.questions)]
        return LearnGVFs(env, (asked + many)[: self.questions], features, **more)

    def actions(self) -> list[Any]:
        env = self.plain()
        env.action_space.seed(0)
        return [env.action_space.sample() for _ in range(self.T)]

    def gates(self) -> Iterator[Gate]:
        for every in EVERY:
            env = self.learning(every=every, record=True)
            repeat(env, self.actions()[:300])()
            log = env.log()
            reference = emphatic.Learner(RULE, env.episodes.learners[0].n, K=self.questions, engine="reference")
            reference.run(**log)
            yield gate(self.name(every), env.episodes.theta, reference.theta)

    def name(self, every: int) -> str:
        return f"{self.questions} GVFs beside {self.environment}, predictions every {every}"

    def rows(self, effort: Effort) -> Iterator[Row]:
        actions, learning = self.actions(), {every: self.learning(every=every) for every in EVERY}
        sides = {"plain": Side(repeat(self.plain(), actions), self.T)}
        sides |= {self.name(every): Side(repeat(env, actions), self.T) for every, env in learning.items()}
        µs = fastest(sides, effort.rounds, effort.seconds)
        for every, env in learning.items():
            features, added = env.episodes.features, µs[self.name(every)] - µs["plain"]
            yield Row(
                f"what the wrapper adds to a step of {self.environment}: {self.questions} GVFs, "
                f"{features.n:,} tile-coded features, {features.active} active",
                "predictions at every step" if every == 1 else f"predictions at every {every}th step",
                gates=(self.name(every),),
                ours=added,
                alternative=µs["plain"],
                versus="the step without" if has_mujoco else INSTALL,
                ratio=added / µs["plain"] if has_mujoco else None,
                at_most=0.8 if every == 1 else 1.0,
            )


def repeat(env: Any, actions: list[Any]) -> Any:
    """The same trajectory at every call: the cost of a step depends on where the body is."""

    def call() -> None:
        env.reset(seed=0)
        for action in actions:
            env.step(action)

    return call


# ------------------------------------------------------------------------------------------------ readings on a pipe


def signals(T: int, C: int) -> dict[str, Any]:
    """C waves with noise, and the time."""
    rng, t = np.random.default_rng(0), np.arange(T)
    waves = {f"s{i}": np.round(np.sin(t / (40 + 10 * i)) + rng.normal(0, 0.1, T), 4) for i in range(C)}
    return {"time": 1.7e9 + t, **waves}


def as_rows(columns: dict[str, Any]) -> list[dict[str, float]]:
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def json_lines(T: int, C: int) -> list[bytes]:
    return [json.dumps(row).encode() + b"\n" for row in as_rows(signals(T, C))]


@dataclass(frozen=True)
class Incoming:
    """T readings of C signals, learned from one by one, in blocks of 64, and by ``emphatic nexting -``."""

    T: int
    C: int

    @property
    def name(self) -> str:
        return f"{self.C} signal{'s' * (self.C > 1)} as readings come"

    def saved(self, folder: Path) -> Path:
        """A model that is warmed up and has learned from the first rows."""
        path = folder / "model.safetensors"
        predictor = Predictor(Settings(horizons=HORIZONS), warm_up=WARM_UP)
        predictor.take(Readings(json_lines(WARM_UP, self.C)))
        assert predictor.horde is not None
        predictor.horde.save(path, **predictor.state())
        return path

    def gates(self) -> Iterator[Gate]:
        with tempfile.TemporaryDirectory() as folder:
            path = self.saved(Path(folder))
            numbered = list(Readings(json_lines(WARM_UP + min(self.T, 60), self.C)))[WARM_UP:]
            whole, single = (Predictor.load(path)[0] for _ in range(2))
            one_by_one = [single.take([reading])[0] for reading in numbered]
            got, want = (
                np.array([one.values for one in outcomes if isinstance(one, Prediction)])
                for outcomes in (whole.take(numbered), one_by_one)
            )
            yield gate(self.name, np.nan_to_num(got), np.nan_to_num(want), 0.0)

    def rows(self, effort: Effort) -> Iterator[Row]:
        with tempfile.TemporaryDirectory() as folder:
            path = self.saved(Path(folder))
            section = f"a reading of {self.C} signal{'s' * (self.C > 1)} at {len(HORIZONS)} horizons"
            for together in (1, 64):
                each = min(self.processor_time(path, together) for _ in range(effort.rounds))
                yield Row(
                    section, f"CPU time, {together} at a time", gates=(self.name,), ours=each, unit="µs", ratio=each
                )
            rate = max(self.piped(path) for _ in range(max(1, effort.rounds // 2)))
            yield Row(
                section,
                "readings a second through a pipe, JSON in and JSON out",
                gates=(self.name,),
                ours=1e6 / rate,
                ratio=rate,
            )

    def processor_time(self, path: Path, together: int) -> float:
        """The CPU time of a reading in µs, so many at a time."""
        numbered = list(Readings(json_lines(WARM_UP + self.T, self.C)))[WARM_UP:]
        predictor, _ = Predictor.load(path)
        predictor.take(numbered[:64])
        began = process_time()
        for i in range(64, self.T, together):
            predictor.take(numbered[i : i + together])
        return (process_time() - began) / (self.T - 64) * 1e6

    def piped(self, path: Path) -> float:
        """Readings a second through a process, from the 256th answer to the last."""
        lines = json_lines(WARM_UP + self.T, self.C)[WARM_UP:]
        model = shutil.copy(path, path.with_name("piped.safetensors"))  # the run changes it
        command = [
            sys.executable,
            "-m",
            "emphatic.nexting.cli",
            "nexting",
            "-",
            "--model",
            str(model),
            "--save-every",
            "1h",
        ]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            feed, out = process.stdin, process.stdout

            def write() -> None:
                feed.writelines(lines)
                feed.close()

            thread = threading.Thread(target=write)
            thread.start()
            first = min(256, self.T // 2)
            for _ in range(first):
                out.readline()
            begin = perf_counter()
            rest = sum(1 for _ in islice(out, self.T - first))
            seconds = perf_counter() - begin  # without the end, at which the model is saved
            answers = first + rest + sum(1 for _ in out)
            thread.join()
        if answers != self.T:
            raise RuntimeError(f"{answers} answers to {self.T} readings")
        return rest / seconds
