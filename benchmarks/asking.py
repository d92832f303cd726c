"""Questions in text: what a row costs each question, and how good and how calibrated the answers are.

    python -m benchmarks.asking                                     the ten forms on the sample log
    python -m benchmarks.asking LOG.csv --ask TEXT [--ask TEXT …]   questions of your own about a log of your own

A line a question: the features it has, microseconds of CPU a row (≤ 30 at 150 features), and of the second half the
skill over the best simple answer, the variance explained or the expected calibration error, and the coverage of its
intervals, with that of the hours with the least and the most.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from time import process_time
from typing import Any

import numpy as np

import emphatic
from emphatic.asking import layout
from emphatic.asking.answers import Asked, Timing
from emphatic.tables import ReadingGuard, Table, open_table

QUESTIONS = (
    "P(Global_active_power > 4 within 1h)",
    "P(Global_active_power > 2 at +15min)",
    "Global_active_power at +1h",
    "time until Global_active_power > 4 up to 6h",
    "sum of Global_active_power over 1h",
    "mean of Global_active_power over 1h",
    "integral of Global_active_power over 1d in h",
    "share of time Global_active_power > 2 over 6h",
    "max of Global_active_power within 1h",
    "min of Voltage within 1h",
)


#: Rows that are answered at a time; those of a last block that is shorter are left out.
BLOCK = 1000


def measure(table: Table, text: str, rows: int) -> dict[str, Any]:
    """The score of a question on the first rows of a table, with its ``features`` and ``microseconds`` a row."""
    timing = Timing.of(table.clock(), table.dated)
    clock = table.clock()
    guard, asked = ReadingGuard(len(table.names)), Asked([text], table.names, timing, rows=rows)
    seconds, begun = 0.0, False
    for block in table.blocks(BLOCK, clock=clock):
        if block.row + len(block) > rows:
            break
        if not begun:
            guard.warm_up(block.values)
            Asked([text], table.names, timing)(block.values, block.values, block.gap, block.time)  # compiles
            begun = True
        guard.mark(block)
        began = process_time()
        asked(block.values, block.to_learn, block.gap, block.time)
        seconds += process_time() - began
    answerer = asked._answerers[0]
    features = int(answerer._constants[layout.FULL])
    return asked.summary()[0] | {"features": features, "microseconds": 1e6 * seconds / rows}


def describe(score: dict[str, Any]) -> str:
    """A line of the table."""
    best = score["best_baseline"] or "–"
    skill = "–" if score["skill_best"] is None else f"{score['skill_best']:.3f}"
    if "brier" in score:
        quality = f"Brier {score['brier']:.4f} ECE {score['ece']:.4f}" if score["scored"] else "not scored"
    else:
        hours = [share for share in score["coverage_by_hour"] if share is not None]
        quality = f"MAE {score['mae']:.4g} R² {score['variance_explained'] or np.nan:.3f}"
        quality += f" coverage {score['coverage'] or np.nan:.3f}"
        quality += f" ({min(hours):.2f}–{max(hours):.2f})" if hours else ""
    cost = f"{score['features']:4d} {score['microseconds']:6.1f} µs"
    return f"{score['text'][:46]:46s} {cost} {score['scored']:7,} {skill:>6} over {best:12s} {quality}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.asking", description=__doc__)
    parser.add_argument("log", nargs="?", help="default: the sample log")
    parser.add_argument("--ask", action="append", metavar="TEXT")
    parser.add_argument("--rows", type=int, default=20_000)
    args = parser.parse_args(arguments)
    table = open_table(args.log or emphatic.data.household())
    count = table.count_rows()
    for text in args.ask or QUESTIONS:
        print(describe(measure(table, text, min(args.rows, count))), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
