"""The attack at length:

    python -m tests.attack --rounds 2000             all rules, engines and dtypes, and every other surface
                           --processes 16            in so many processes
    python -m tests.attack --rules 200               so many rules, elementwise rules and step-size methods, drawn
    python -m tests.attack --leaks                   memory after 10⁶ learn, 10⁵ run, 10⁵ observe, a day of a live pipe
    python -m tests.attack --drift 10_000_000        every engine after that many steps, against the others

It prints what was tried, how often and what failed, the calls as one line of JSON, and exits with 1 if anything did.

The cuda engine is among them where there is a GPU, or where Triton interprets (TRITON_INTERPRET=1, which is slow).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import emphatic
from tests.attack.campaign import attack, draw_rules
from tests.attack.endurance import drift, leaks
from tests.attack.machine import LearnerMachine
from tests.attack.surfaces import SURFACES


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attack")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--compile-all", action="store_true", help="kernels of every rule, not of one for each structure"
    )
    parser.add_argument("--rules", type=int, default=0, help="rules of random structure, of each kind")
    parser.add_argument("--leaks", action="store_true")
    parser.add_argument("--drift", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--engines", nargs="+", help="these alone, each drawn as often as it is listed")
    given = parser.parse_args()
    # As attributes of the machine. One learner in ten is on a GPU: calls are slow there.
    machine: dict[str, Any] = {"engines": tuple(given.engines or 3 * LearnerMachine.engines)}
    if "cuda" in emphatic.engines.available() and not given.engines:
        machine["engines"] += ("cuda",)
    if given.compile_all:
        machine["compiled"] = dict.fromkeys(LearnerMachine.compiled, emphatic.rules.names())
    failed = 0
    if given.rounds:
        began = time.monotonic()
        found = attack(given.rounds, given.seed, given.processes, machine)
        failed = found.failures.total()
        run = {"seed": given.seed, "processes": given.processes, "seconds": round(time.monotonic() - began)}
        print(*found.reports, json.dumps(run | found.summary()), sep="\n")
    if given.rules:
        drawn = {name: surface for name, surface in SURFACES.items() if name.startswith("own_")}
        found = draw_rules(given.rules, given.seed, drawn)
        failed += found.failures.total()
        print(*found.reports, json.dumps({"seed": given.seed} | found.summary()), sep="\n")
    failed += leaks() if given.leaks else 0
    failed += drift(given.drift) if given.drift else 0
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
