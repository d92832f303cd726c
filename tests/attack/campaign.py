"""The attack at length, in one process or in several: rounds with a seed each, and what they found added up.

Round ``seed`` is the same in any number of processes: ``--seed SEED --calls 1`` runs it again alone.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

import emphatic
from tests.attack.machine import COUNTS, SIZES, LearnerMachine
from tests.attack.surfaces import SURFACES
from tests.support.streams import make

__all__ = ["Found", "attack", "draw_rules", "prepare"]

#: Of each surface, in a round.
ATTEMPTS = 10
#: Failures whose traceback is printed.
SHOWN = 20
#: Seconds without the end of any round after which those that run are given up.
PATIENCE = 300.0
MACHINE = settings(
    max_examples=10, stateful_step_count=40, deadline=None, database=None, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck), print_blob=False,
)  # fmt: skip


@dataclass
class Found:
    """What was tried, how often, what failed, and the text of the failures."""

    calls: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    reports: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        """Calls; refusals and divergences, and the engines that made them, are among these."""
        kinds = (name for name in self.calls if name not in ("refused", "diverged") and not name.startswith("engine "))
        return sum(self.calls[name] for name in kinds)

    def fail(self, name: str, report: str) -> None:
        self.failures[name] += 1
        self.reports.append(report)

    def add(self, other: Found) -> None:
        self.calls += other.calls
        self.failures += other.failures
        self.reports += other.reports

    def summary(self) -> dict[str, Any]:
        """For JSON."""
        engines = {name.split()[1]: count for name, count in sorted(self.calls.items()) if name.startswith("engine ")}
        by_call = {name: count for name, count in sorted(self.calls.items()) if not name.startswith("engine ")}
        return {"calls": self.total, "by_call": by_call, "by_engine": engines, "failures": dict(self.failures)}


def attack_once(number: int) -> Found:
    """One round: about 400 calls of learners, and some attempts at each of the other surfaces."""
    found, rng = Found(), np.random.default_rng(number)
    COUNTS.clear()
    try:
        run_state_machine_as_test(seed(number)(LearnerMachine), settings=MACHINE)
    except Exception:
        found.fail("learners", f"learners, --seed {number}:\n{_shortened(traceback.format_exc())}")
    for name, surface in SURFACES.items():
        for attempt in rng.integers(2**32, size=ATTEMPTS).tolist():
            _try(found, name, surface, attempt, f"--seed {number}")
    found.calls += COUNTS
    return found


def draw_rules(count: int, first: int, surfaces: Mapping[str, Callable[[np.random.Generator], None]]) -> Found:
    """So many rules of each kind, from the seeds that begin with this one."""
    found = Found()
    COUNTS.clear()
    for name, surface in surfaces.items():
        for attempt in range(first, first + count):
            _try(found, name, surface, attempt, f"--seed {attempt} --rules 1")
    found.calls += COUNTS
    return found


def _try(found: Found, name: str, surface: Callable[[np.random.Generator], None], attempt: int, command: str) -> None:
    COUNTS[name] += 1
    try:
        surface(np.random.default_rng(attempt))
    except Exception:
        found.fail(name, f"{name}({attempt}), {command}:\n{_shortened(traceback.format_exc())}")


def _shortened(text: str, most: int = 4000) -> str:
    return text if len(text) <= most else f"{text[: most // 2]}\n[…]\n{text[-most // 2 :]}"


def compile_kernels(kind: tuple[str, str, str]) -> None:
    """The kernels of a rule on an engine, in a dtype, of the sizes that the machine draws: they stay in the cache."""
    name, engine, dtype = kind
    for K, n in ((K, n) for K, sizes in SIZES.items() for n in sizes):
        with suppress(Exception):  # the rounds report what is wrong
            learner = emphatic.Learner(name, n, K, dtype=dtype, engine=engine)
            for given in ({"active": min(3, n), "binary": True}, {"active": min(3, n), "binary": False}, {}):
                stream = make(0, 5, n, K, rule=name, **given)  # type: ignore[arg-type]
                stream.run(learner)
                stream.learn(learner, active=engine == "sparse")


def attack(calls: int, first: int, limit: float, processes: int, machine: dict[str, Any]) -> Found:
    """So many calls, or as many as the seconds allow; ``machine`` are attributes of ``LearnerMachine``."""
    found, began = Found(), time.monotonic()
    shown = began
    for one in _rounds(itertools.count(first), processes, machine):
        for report in one.reports[: max(0, SHOWN - found.failures.total())]:
            print(report, flush=True)
        found.add(one)
        now = time.monotonic()
        if now - shown > 30:
            shown = now
            print(f"{found.total:,} calls in {now - began:,.0f} s, {found.failures.total()} failures", flush=True)
        if found.total >= calls or now - began > limit:
            break
    return found


def prepare(machine: dict[str, Any]) -> None:
    """In every process, before its first round."""
    warnings.simplefilter("ignore")
    warnings.simplefilter("error", np.exceptions.ComplexWarning)  # a number read as another
    for name, value in machine.items():
        setattr(LearnerMachine, name, value)


def _rounds(seeds: Iterator[int], processes: int, machine: dict[str, Any]) -> Iterator[Found]:
    """What each round found, in the order in which they end."""
    if processes == 1:
        yield from map(attack_once, seeds)
        return
    os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, mp_context=context, initializer=prepare, initargs=(machine,))
    running: dict[Future[Found], int] = {}
    try:
        list(pool.map(compile_kernels, _kinds()))  # each kernel by one process
        while True:
            for number in itertools.islice(seeds, 2 * processes - len(running)):
                running[pool.submit(attack_once, number)] = number
            done, _ = wait(running, timeout=PATIENCE, return_when=FIRST_COMPLETED)
            if not done:
                yield _broken(running.values(), "did not end")
                for process in list(pool._processes.values()):
                    process.kill()
                return
            for future in done:
                del running[future]
                yield future.result()
    except BrokenProcessPool:
        yield _broken(running.values(), "ended their process")
    finally:
        pool.shutdown(cancel_futures=True)


def _broken(numbers: Iterable[int], what: str) -> Found:
    found = Found()
    found.fail("process", f"One or more of the rounds with --seed {', '.join(map(str, numbers))} {what}.")
    return found


def _kinds() -> list[tuple[str, str, str]]:
    """The rules whose kernels are compiled, on each engine; on a GPU those of all rules are."""
    found = []
    for engine in dict.fromkeys(LearnerMachine.engines):
        for dtype, names in LearnerMachine.compiled.items():
            of = emphatic.rules.names() if engine == "cuda" else names
            found += [(name, engine, dtype) for name in of]
    return found
