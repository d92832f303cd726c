"""Run a suite: ``python -m benchmarks core [--quick] [--out DIR]``."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from benchmarks.measure import GateFailed, one_thread

SUITES = {
    "core": "benchmarks.core",
    "hordes": "benchmarks.hordes",
    "nexting": "benchmarks.nexting",
    "live": "benchmarks.live",
    "studies": "benchmarks.studies",
    "stepsizes": "benchmarks.stepsizes",
    "cuda": "benchmarks.cuda",
    "cluster": "benchmarks.cluster",
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("suite", choices=sorted(SUITES))
    parser.add_argument("--quick", action="store_true", help="small sizes, one round: a smoke test, no measurement")
    parser.add_argument("--out", type=Path, default=None, metavar="DIR")
    args = parser.parse_args()

    one_thread()  # before a suite imports numpy
    suite = importlib.import_module(SUITES[args.suite])
    report = importlib.import_module("benchmarks.report")
    try:
        gates, rows = suite.run(args.quick)
    except GateFailed as failure:
        print(f"gate failed, nothing timed: {failure}", file=sys.stderr)
        return 1
    command = f"python -m benchmarks {args.suite}" + (" --quick" if args.quick else "")
    report.publish(args.suite, command, gates, rows, args.out or report.RESULTS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
