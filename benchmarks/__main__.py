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
    "forecasting": "benchmarks.forecasting",
    "live": "benchmarks.live",
    "studies": "benchmarks.studies",
    "stepsizes": "benchmarks.stepsizes",
    "control": "benchmarks.control",
    "cuda": "benchmarks.cuda",
    "cluster": "benchmarks.cluster",
    "threads": "benchmarks.threads",
    "many_threads": "benchmarks.many_threads",
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("suite", choices=sorted(SUITES))
    parser.add_argument("--quick", action="store_true", help="small sizes, one round: a smoke test, no measurement")
    parser.add_argument("--out", type=Path, default=None, metavar="DIR")
    parser.add_argument(
        "--table", type=Path, action="append", default=[], metavar="FILE",
        help="forecasting: a log of your own, after the others; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--horizons", type=lambda text: text.split(","), metavar="LIST", help="forecasting: those of each FILE"
    )
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="forecasting: processes that share logs and forecasters"
    )
    parser.add_argument(
        "--keep-others", action="store_true",
        help="forecasting: measure our scores only, and keep those of the others and all times of the last results",
    )  # fmt: skip
    args = parser.parse_args()
    if not args.table and args.horizons is not None:
        parser.error("--horizons are those of --table FILE")
    if args.table and args.suite != "forecasting":
        parser.error("--table FILE is for the suite forecasting")
    if args.jobs != 1 and args.suite != "forecasting":
        parser.error("--jobs N is for the suite forecasting")
    if args.keep_others and args.suite != "forecasting":
        parser.error("--keep-others is for the suite forecasting")
    own = {"tables": args.table, "horizons": args.horizons} if args.table else {}
    own |= {"jobs": args.jobs} if args.jobs != 1 else {}
    own |= {"keep_others": True} if args.keep_others else {}
    command = f"python -m benchmarks {args.suite}" + (" --quick" if args.quick else "")
    command += "".join(f" --table {table.name}" for table in args.table)
    command += "" if args.horizons is None else f" --horizons {','.join(args.horizons)}"
    command += " --keep-others" if args.keep_others else ""

    one_thread()  # before a suite imports numpy
    suite = importlib.import_module(SUITES[args.suite])
    report = importlib.import_module("benchmarks.report")
    try:
        gates, rows = suite.run(args.quick, **own)
    except GateFailed as failure:
        print(f"gate failed, nothing timed: {failure}", file=sys.stderr)
        return 1
    layout = getattr(suite, "LAYOUT", report.Layout())
    report.publish(args.suite, command, gates, rows, args.out or report.RESULTS, layout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
