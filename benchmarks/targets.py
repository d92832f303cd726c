"""What is wanted of predictions on the development logs, and what is measured: seasons, drift, glitches, intervals.

    python -m benchmarks.targets [--old CHECKOUT] [--log NAME …] [--table FILE …] [--no-glitches]

All scores are the variance explained on the second half of a log, against returns of the readings without glitches.
A glitch is put into every signal at once, at rows of its own in the third quarter of the log. Its cost is what the same
log without it explains more; for sentinel values, what the log with these cells empty explains more.
With ``--old``, the package in that checkout is run on the same logs, and its predictions and intervals are compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import emphatic
from benchmarks.development_logs import choose_logs, log_options
from benchmarks.forecasters import repeated_means
from benchmarks.forecasting import hold, returns
from benchmarks.log_runs import OLD, OURS, Answers, Flags, Log, run_logs

Array = NDArray[np.float64]

#: What a signal is wanted to reach at a horizon.
LEAST = {
    ("traffic", "traffic_volume", 9): 0.91, ("traffic", "traffic_volume", 36): 0.66,
    ("taylor, without stamps", "x", 14): 0.92, ("taylor, without stamps", "x", 36): 0.85, ("taylor", "x", 48): 0.83,
    ("airpassengers", "x", 2): 0.90, ("airpassengers", "x", 8): -0.3,
    ("Beijing", "PRES", 36): 0.915, ("Beijing", "PRES", 144): 0.92,
}  # fmt: skip
#: Logs that are not to be below the seasonal naive at the first horizon, nor below the past mean at the second.
SMALL, ROOM = ("wineind", "ausbeer", "UKDriverDeaths"), 0.05
#: The periods of the small logs, in rows.
YEAR = {"wineind": 12, "ausbeer": 4, "UKDriverDeaths": 12}
#: Deviations of a single reading that is off, and what it may cost; sentinels: the value, the share of rows, and what
#: it may cost up to SHORT rows and beyond.
SIZES, COST = (10.0, 100.0, 1_000.0), 0.02
SENTINELS, SHORT = ((65535.0, 0.005, 0.05, 0.05), (-999.0, 0.02, 0.05, 0.10)), 36.0
#: The share of returns that intervals are to hold, and its bounds in rows EARLY at the longest horizon.
COVERAGE, EARLY, EARLY_LEAST = 0.8, slice(300, 1_500), 0.72


class Truth:
    """The returns G (T, Q) of a log, and where they are known."""

    def __init__(self, log: Log, gammas: Array) -> None:
        table = emphatic.streams.open_table(log.columns)
        clock = table.clock()
        gap = np.concatenate([block.find_gaps(clock) for block in table.blocks()])
        G, known = returns(log.x, gap, gammas)
        self.G, self.known = G.T, known.T

    def explain(self, predictions: Array) -> Array:
        """The variance explained of each question by predictions (T, Q), NaN where the return does not vary."""
        half = len(self.G) // 2
        explained = np.full(self.G.shape[1], np.nan)
        for q in range(len(explained)):
            rows = np.flatnonzero(self.known[half:, q]) + half
            if len(rows) and np.ptp(self.G[rows, q]) > 0.0:
                errors = predictions[rows, q] - self.G[rows, q]
                explained[q] = 1.0 - np.mean(errors**2) / np.var(self.G[rows, q])
        return explained

    def covered(self, answers: Answers) -> tuple[Flags, Flags]:
        """Where intervals hold the return, and where there are both, (T, Q)."""
        judged = self.known & np.isfinite(answers.low)
        with np.errstate(invalid="ignore"):
            return (answers.low <= self.G) & (answers.high >= self.G) & judged, judged

    def interval_scores(self, answers: Answers) -> Array:
        """The mean interval score of each question in the second half: width, and 2/(1 − .8) of what is outside."""
        _, judged = self.covered(answers)
        outside = np.maximum(answers.low - self.G, 0.0) + np.maximum(self.G - answers.high, 0.0)
        scores = answers.high - answers.low + 2.0 / (1.0 - COVERAGE) * outside
        judged[: len(judged) // 2] = False
        with np.errstate(invalid="ignore"):
            means: Array = np.sum(scores, axis=0, where=judged) / judged.sum(axis=0)
        return means


def make_glitches(log: Log) -> Iterator[tuple[str, Log, float]]:
    """By name logs with glitches, and the deviations or the value of them; an empty log before each with sentinels."""
    T, C = log.x.shape
    deviation = np.nanstd(log.x, axis=0)
    rows = np.linspace(0.55 * T, 0.7 * T, C).astype(int)
    for size in SIZES:
        x = log.x.copy()
        x[rows, np.arange(C)] += size * deviation * np.where(np.arange(C) % 2, -1.0, 1.0)
        yield f"a reading off by {size:,g} deviations", log.with_readings(x), size
    for value, share, *_ in SENTINELS:
        cells = np.random.default_rng(int(abs(value))).random(log.x.shape) < share
        for name, written in ((f"{100 * share:g}% empty", np.nan), (f"{value:g} in {100 * share:g}%", value)):
            yield name, log.with_readings(np.where(cells & ~np.isnan(log.x), written, log.x)), value


def print_wanted(name: str, log: Log, truth: Truth, explained: Array) -> None:
    """The numbers that are wanted of a log, beside those that are measured."""
    H = len(log.horizons)
    for (of, signal, horizon), least in LEAST.items():
        if of == name and signal in log.names:
            measured = explained[log.names.index(signal) * H + log.horizons.index(horizon)]
            print(f"| {name}, {signal} at {horizon} | ≥ {least:g} | {measured:.3f} | {_verdict(measured >= least)} |")
    if name in SMALL:
        held = hold(log.x)
        gammas = 1.0 - 1.0 / np.array(log.horizons, float)
        naive = repeated_means(held, YEAR[name], gammas)[:, 0]
        mean = np.cumsum(held, axis=0) / np.arange(1, len(held) + 1)[:, None]
        for h, (what, predictions) in enumerate((("seasonal naive", naive), ("past mean", np.tile(mean, H)))):
            least = truth.explain(predictions)[h] - ROOM
            line = f"| {name} at {log.horizons[h]}, the {what} − {ROOM} | ≥ {least:.3f} | {explained[h]:.3f} |"
            print(f"{line} {_verdict(explained[h] >= least)} |", flush=True)


def _verdict(met: bool) -> str:
    return "met" if met else "**missed**"


def print_intervals(name: str, log: Log, truth: Truth, answers: dict[str, list[Answers]]) -> None:
    """Coverage by hour, early in the log, and the score beside the earlier version's."""
    held, judged = truth.covered(answers[OURS][0])
    half, H = len(held) // 2, len(log.horizons)
    texts = []
    if log.time is not None and np.median(np.diff(log.time)) < 43_200.0:
        hour = (log.time[half:] // 3_600 % 24).astype(int)
        for h in range(H):
            by_hour = [
                held[half:, h::H][hour == i].sum() / max(judged[half:, h::H][hour == i].sum(), 1) for i in range(24)
            ]
            texts.append(f"{log.horizons[h]}: {min(by_hour):.2f}–{max(by_hour):.2f}")
    count = judged[EARLY, H - 1 :: H].sum()
    early = f"{held[EARLY, H - 1 :: H].sum() / count:.2f}" if count else "–"
    ratio = ""
    if OLD in answers:
        scores = {version: truth.interval_scores(each[0]) for version, each in answers.items()}
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = f"{np.nanmedian(scores[OURS] / scores[OLD]):.3f}"
    print(f"| {name} | {ratio} | {early} | {', '.join(texts)} |", flush=True)


def measure(
    log: Log, checkouts: dict[str, Path | None], glitches: bool
) -> tuple[Truth, dict[str, list[Answers]], list[str]]:
    """The truth of a log, the answers of all versions to it, and those of ours to the log with glitches."""
    changed = list(make_glitches(log)) if glitches else []
    answers = run_logs([log], {version: path for version, path in checkouts.items() if version != OURS})
    answers |= run_logs([log, *(each for _, each, _ in changed)], {OURS: None})
    return Truth(log, answers[OURS][0].gammas), answers, [name for name, *_ in changed]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print all tables."""
    parser = log_options("targets", __doc__)
    parser.add_argument("--no-glitches", action="store_true", help="leave out what takes longest")
    options = parser.parse_args(arguments)
    checkouts: dict[str, Path | None] = ({OLD: options.old} if options.old else {}) | {OURS: None}
    measured = {}
    for each in choose_logs(options):
        log = Log.read(each.read(), each.horizons)
        measured[each.name] = (log, *measure(log, checkouts, not options.no_glitches))
        print(f"{each.name}: measured", flush=True)
    print("\n| wanted | at least | measured | |\n|---|--:|--:|---|")
    for name, (log, truth, answers, _) in measured.items():
        print_wanted(name, log, truth, truth.explain(answers[OURS][0].predictions))
    print("\n| intervals | score / earlier | coverage of rows 300–1,500, longest horizon | coverage by hour |")
    print("|---|--:|--:|---|")
    for name, (log, truth, answers, _) in measured.items():
        print_intervals(name, log, truth, answers)
    if options.old:
        print_differences({name: (truth, answers) for name, (_, truth, answers, _) in measured.items()})
    if not options.no_glitches:
        print_glitches({name: entry[1:] for name, entry in measured.items()})
    return 0


def print_differences(measured: dict[str, tuple[Truth, dict[str, list[Answers]]]]) -> None:
    """What questions gained and lost since the earlier version."""
    print("\n| since the earlier version | questions | median | up, down by > .02 | down by > .005 | worst |")
    print("|---|--:|--:|--:|--:|--:|")
    every = []
    for name, (truth, answers) in measured.items():
        ours, old = (truth.explain(answers[version][0].predictions) for version in (OURS, OLD))
        gain = (ours - old)[~np.isnan(ours - old)]
        every.append(gain)
        _print_gain(name, gain)
    _print_gain("**all**", np.concatenate(every))


def _print_gain(name: str, gain: Array) -> None:
    counts = f"{np.sum(gain > 0.02)}, {np.sum(gain < -0.02)} | {np.sum(gain < -0.005)}"
    print(f"| {name} | {len(gain)} | {np.median(gain):+.3f} | {counts} | {gain.min():+.3f} |")


def print_glitches(measured: dict[str, tuple[Truth, dict[str, list[Answers]], list[str]]]) -> None:
    """What each kind of glitch costs: how many questions lose more than they may, and the worst."""
    costs: dict[str, list[tuple[float, float, str]]] = {}
    for name, (truth, answers, glitches) in measured.items():
        each = [truth.explain(answer.predictions) for answer in answers[OURS]]
        horizon = np.tile(1.0 / (1.0 - answers[OURS][0].gammas), len(each[0]) // len(answers[OURS][0].gammas))
        before = each[0]
        for glitch, explained in zip(glitches, each[1:], strict=True):
            if not glitch.endswith("empty"):
                lost = np.where(np.isnan(before - explained), 0.0, before - explained)
                costs.setdefault(glitch, []).extend(
                    (float(cost), float(rows), name) for cost, rows in zip(lost, horizon, strict=True)
                )
            before = explained if glitch.endswith("empty") else each[0]
    may = {f"{value:g} in {100 * share:g}%": (short, long) for value, share, short, long in SENTINELS}
    print("\n| glitch | questions | lose more than they may | worst |\n|---|--:|--:|---|")
    for glitch, entries in costs.items():
        short, long = may.get(glitch, (COST, COST))
        over = sum(cost > (short if rows <= SHORT else long) for cost, rows, _ in entries)
        worst = max(entries)
        print(f"| {glitch} | {len(entries)} | {over} | {worst[0]:.3f} ({worst[2]} at {worst[1]:.0f} rows) |")


if __name__ == "__main__":
    raise SystemExit(main())
