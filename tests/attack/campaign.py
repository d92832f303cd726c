"""The attack at length: rounds with a seed each, and what they found added up.

Round ``seed`` is the same in any number of processes: ``--seed SEED --rounds 1`` runs it again alone.
"""

from __future__ import annotations

import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import joblib
import numpy as np
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.attack.machine import COUNTS, LearnerMachine
from tests.attack.surfaces import SURFACES

__all__ = ["Found", "attack", "attack_once", "draw_rules"]

#: Of each surface, in a round.
ATTEMPTS = 10
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


def attack_once(number: int, machine: Mapping[str, Any]) -> Found:
    """One round: about 400 calls of learners, and some attempts at each of the other surfaces."""
    warnings.simplefilter("ignore")
    warnings.simplefilter("error", np.exceptions.ComplexWarning)  # a number read as another
    for name, value in machine.items():
        setattr(LearnerMachine, name, value)
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


def attack(rounds: int, first: int, processes: int, machine: Mapping[str, Any]) -> Found:
    """So many rounds; ``machine`` are attributes of ``LearnerMachine``."""
    found = Found()
    pool = joblib.Parallel(processes, return_as="generator")
    for one in pool(joblib.delayed(attack_once)(number, machine) for number in range(first, first + rounds)):
        found.add(one)
    return found
