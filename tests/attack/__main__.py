"""The attack at length:

    python -m tests.attack --calls 1_000_000         all rules, engines and dtypes, compiled, and every other surface
    python -m tests.attack --leaks                   memory after 10⁶ learn, 10⁵ run, 10⁵ observe, a day of a live pipe
    python -m tests.attack --drift 10_000_000        every engine after that many steps, against the others
    python -m tests.attack --costs                   what checksums and the guard of threads cost

It prints what was tried, how often and what failed, and exits with 1 if anything did.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
import warnings
from collections import Counter

import numpy as np
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

import emphatic
from tests.attack.costs import costs
from tests.attack.endurance import drift, leaks
from tests.attack.machine import COUNTS, LearnerMachine
from tests.attack.surfaces import SURFACES


def attack(calls: int, first: int, limit: float) -> int:
    """So many calls, or as many as the seconds allow; half of them of learners. How many failed."""
    failures: Counter[str] = Counter()
    began, now, round_ = time.monotonic(), time.monotonic(), first
    rng = np.random.default_rng(first)
    machine = settings(
        max_examples=10, stateful_step_count=40, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck), print_blob=False,
    )  # fmt: skip
    while _calls() < calls and time.monotonic() - began < limit:
        round_ += 1
        try:
            run_state_machine_as_test(seed(round_)(LearnerMachine), settings=machine)
        except Exception:
            failures["learners"] += 1
            print(f"learners, seed {round_}:\n{traceback.format_exc()[-3000:]}", flush=True)
        for name, surface in SURFACES.items():
            for _ in range(10):
                attempt = int(rng.integers(2**32))
                COUNTS[name] += 1
                try:
                    surface(np.random.default_rng(attempt))
                except Exception:
                    failures[name] += 1
                    if failures[name] <= 3:
                        print(f"{name}, seed {attempt}:\n{traceback.format_exc()[-2000:]}", flush=True)
        if time.monotonic() - now > 30:
            now = time.monotonic()
            print(f"{_calls():,} calls in {now - began:,.0f} s, {failures.total()} failures", flush=True)
    print(f"{_calls():,} calls in {time.monotonic() - began:,.0f} s from seed {first}:")
    for name, count in sorted(COUNTS.items()):
        print(f"  {name:14}{count:>12,}{failures[name]:>8} failed" if name in SURFACES else f"  {name:14}{count:>12,}")
    print(f"failures: {failures.total()}")
    return failures.total()


def _calls() -> int:
    return COUNTS.total() - COUNTS["refused"] - COUNTS["diverged"]  # which are among the others


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attack")
    parser.add_argument("--calls", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many, whatever the calls")
    parser.add_argument(
        "--compile-all", action="store_true", help="kernels of every rule, not of one for each structure"
    )
    parser.add_argument("--leaks", action="store_true")
    parser.add_argument("--drift", type=int, default=0)
    parser.add_argument("--costs", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    warnings.simplefilter("error", np.exceptions.ComplexWarning)  # a number read as another
    if given.compile_all:
        LearnerMachine.compiled = dict.fromkeys(LearnerMachine.compiled, emphatic.rules.names())
    failed = attack(given.calls, given.seed, given.seconds) if given.calls else 0
    failed += leaks() if given.leaks else 0
    failed += drift(given.drift) if given.drift else 0
    if given.costs:
        costs()
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
