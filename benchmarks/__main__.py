"""Run a suite: ``python -m benchmarks core [--quick] [--out DIR] [--old CHECKOUT]``."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any

from benchmarks.measure import Effort, GateFailed, one_thread, run_cases

SUITES = (
    "core", "hordes", "control", "offpolicy", "nexting", "forecasting", "answers", "alarms", "verdicts",
    "first_minute", "live", "cuda", "studies",
)  # fmt: skip
#: The suites that also take logs of one's own.
OF_LOGS = ("forecasting", "alarms")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("--quick", action="store_true", help="small sizes, one round: a smoke test, no measurement")
    parser.add_argument("--out", type=Path, default=None, metavar="DIR", help="where the table goes")
    parser.add_argument("--old", type=Path, metavar="CHECKOUT", help="compare with the package in another checkout")
    parser.add_argument(
        "--table", type=Path, action="append", default=[], metavar="FILE", help="a log of your own; may be repeated"
    )
    parser.add_argument(
        "--horizons", type=lambda text: text.split(","), metavar="LIST", help="the horizons of each FILE"
    )
    parser.add_argument(
        "--keep-others", action="store_true",
        help="forecasting: measure our scores only, and keep those of the others and all times of the last results",
    )  # fmt: skip
    parser.add_argument("--lenient", action="store_true", help="leave out what raises an error in this version")
    args = parser.parse_args()
    if args.horizons and not args.table:
        parser.error("--horizons are those of --table FILE")
    if args.table and args.suite not in OF_LOGS:
        parser.error(f"--table FILE is for the suites {' and '.join(OF_LOGS)}")
    if args.keep_others and args.suite != "forecasting":
        parser.error("--keep-others is for the suite forecasting")
    if args.old is not None and not (args.old / "src" / "emphatic").is_dir():
        parser.error(f"{args.old} is no checkout of emphatic: git worktree add DIR COMMIT makes one")
    flags = ["--quick"] * args.quick
    flags += [word for table in args.table for word in ("--table", str(table))]
    flags += ["--horizons", ",".join(args.horizons)] if args.horizons else []
    flags += ["--keep-others"] * args.keep_others
    command = " ".join(["python -m benchmarks", args.suite, *(Path(flag).name for flag in flags)])
    command += "" if args.old is None else " --old CHECKOUT"

    one_thread()  # before a suite imports numpy
    report = importlib.import_module("benchmarks.report")
    if args.old is not None:
        # (answers of both versions to the same question are compared, not two numbers)
        versions = importlib.import_module("benchmarks.answers" if args.suite == "answers" else "benchmarks.versions")
        gates, rows = versions.compare([args.suite, *flags], args.old)
        layout = versions.LAYOUT
    else:
        suite = importlib.import_module(f"benchmarks.{args.suite}")
        layout = getattr(suite, "LAYOUT", report.Layout())
        given: dict[str, Any] = {"tables": args.table, "horizons": args.horizons} if args.table else {}
        given |= {"keep_others": True} if args.keep_others else {}
        effort = Effort(1, 0.0) if args.quick else suite.EFFORT
        try:
            gates, rows = run_cases(suite.cases(args.quick, **given), effort, args.lenient)
        except GateFailed as failure:
            print(f"gate failed, nothing timed: {failure}", file=sys.stderr)
            return 1
    out = args.out or (report.RESULTS if args.old is None else Path("comparison"))
    report.publish(args.suite, command, gates, rows, out, layout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
