"""Faults that alarms find on many logs, beside an earlier version of this package, and on series with labels.

    python -m benchmarks.alarms [--old CHECKOUT] [--log NAME …] [--table FILE …]

Faults are put into the second half of each log, one signal at a time, as ``emphatic reproduce alarms`` does it: spike,
stuck, level, drift, noise. A fault is found if there is an alarm while it lasts. False alarms are those that begin in
the second half of the same log without faults, and "by chance" is how many of the same windows have one there.
With ``--old``, the package in that checkout is run on the same logs, with its own defaults. Labelled series come from
packages, whose files are read: ``pip install --no-deps aeon sktime``. A log of fewer than
2,000 rows is left out: there are no alarms in its first 700.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.development_logs import choose_logs, is_installed, log_options, package_folder
from benchmarks.log_runs import OLD, OURS, Answers, Flags, Log, run_logs
from reproductions.open_questions import Fault, count_alarms, inject

#: The rows of each kind of fault; from one fault to the next, and by how many that varies.
FAULT_ROWS = {"spike": 1, "stuck": 60, "level": 60, "drift": 240, "noise": 60}
SPACING, VARY = 400, 80
#: Faults of each log at least, the copies of a log at most, and the rows of a log at least.
FAULTS, COPIES, SHORTEST = 50, 50, 2_000
#: False alarms are counted in so many rows; what must not be exceeded, and what is wanted of the earlier version.
ROWS, FALSE, RATIO = 10_000, 3.0, 1.5
#: Of labelled series: the package, the file in it, and the column of labels.
LABELLED = (
    ("sktime", "datasets/data/yahoo/yahoo.csv", "label"),
    ("sktime", "datasets/data/mitdb/mitdb.csv", "label"),
    ("aeon", "datasets/data/KDD-TSAD_135/135_UCR_Anomaly_InternalBleeding16_TEST.csv", "is_anomaly"),
    ("aeon", "datasets/data/UnitTest/ecg-diff-count-3_TEST.csv", "is_anomaly"),
)


def inject_faults(log: Log) -> tuple[list[Log], list[list[Fault]]]:
    """A log without faults and copies of it with faults; the faults of each, none of the first."""
    logs: list[Log] = [log]
    faults_by_copy: list[list[Fault]] = [[]]
    for copy in range(1, COPIES + 1):
        rng = np.random.default_rng((copy, len(log.x)))
        faulty, faults = inject(log.x, len(log.x) // 2, rng, FAULT_ROWS, SPACING, VARY)
        logs.append(log.with_readings(faulty))
        faults_by_copy.append(faults)
        if sum(map(len, faults_by_copy)) >= FAULTS:
            break
    return logs, faults_by_copy


def count_beginnings(alarm: Flags) -> int:
    """How many alarms begin in rows (T, …): consecutive rows are one alarm.

    >>> count_beginnings(np.array([True, True, False, True]))
    2
    """
    before = np.concatenate([np.zeros_like(alarm[:1]), alarm[:-1]])
    return int(np.sum(alarm & ~before))


class Tally:
    """What one version found on some logs.

    - ``faults``: by kind, for each fault whether it was found, whether by chance, and the first reason given;
    - ``false``: alarms that began in the second half of logs without faults, the same if those within 60 rows of each
      other are one, and the rows there, times signals.
    """

    def __init__(self) -> None:
        self.faults: dict[str, list[tuple[bool, bool, str]]] = {kind: [] for kind in FAULT_ROWS}
        self.false = np.zeros(3)

    def add(self, every: Sequence[Sequence[Fault]], answers: Sequence[Answers], read: Flags) -> None:
        """Count the alarms of a log's copies, the first without faults; only where there was a reading."""
        quiet = answers[0].alarm & read
        half = len(quiet) // 2
        together = sum(count_alarms(column) for column in quiet[half:].T)
        self.false += [count_beginnings(quiet[half:]), together, read[half:].sum()]
        for faults, answer in zip(every, answers, strict=True):
            for c, kind, a, b in faults:
                hit = answer.alarm[a:b, c]
                reason = str(answer.why[a:b, c][hit.argmax()]) if hit.any() else ""
                self.faults[kind].append((bool(hit.any()), bool(quiet[a:b, c].any()), reason))

    def join(self, other: Tally) -> None:
        """Add what was found on another log."""
        self.false += other.false
        for kind, faults in other.faults.items():
            self.faults[kind] += faults

    @property
    def rate(self) -> float:
        """False alarms in 10,000 rows of a signal."""
        return float(ROWS * self.false[0] / max(self.false[2], 1.0))

    @property
    def rate_together(self) -> float:
        """The same if alarms within 60 rows of each other are one."""
        return float(ROWS * self.false[1] / max(self.false[2], 1.0))

    def share(self, kind: str, of: int = 0) -> float:
        """The share of faults that was found; ``of=1``: of the same windows, by chance."""
        return float(np.mean([fault[of] for fault in self.faults[kind]])) if self.faults[kind] else np.nan

    @property
    def found(self) -> int:
        """How many faults were found, of all kinds."""
        return sum(fault[0] for faults in self.faults.values() for fault in faults)


def print_faults(tallies: Mapping[str, Mapping[str, Tally]]) -> None:
    """Tables: by log, by kind, and the reasons that were given."""
    versions = list(next(iter(tallies.values())))
    sums = {version: Tally() for version in versions}
    header = " | ".join(f"{kind}" for kind in FAULT_ROWS)
    print(f"\n| log, version | {header} | false in {ROWS:,} rows |\n|---|{'--:|' * (len(FAULT_ROWS) + 1)}")
    for name, by_version in tallies.items():
        for version, tally in by_version.items():
            shares = " | ".join(f"{tally.share(kind):.2f}" for kind in FAULT_ROWS)
            print(f"| {name}, {version} | {shares} | {tally.rate:.1f} |")
            sums[version].join(tally)
    for version, tally in sums.items():
        shares = " | ".join(f"{tally.share(kind):.2f} of {len(tally.faults[kind])}" for kind in FAULT_ROWS)
        print(f"| **all logs, {version}** | {shares} | {tally.rate:.2f} |")
        shares = " | ".join(f"{tally.share(kind, 1):.2f}" for kind in FAULT_ROWS)
        print(f"| all logs, {version}, by chance | {shares} | |")
    ours = sums[OURS]
    print(
        f"\n{OURS}: {ours.found} faults found at {ours.rate:.2f} false alarms in {ROWS:,} rows (at most {FALSE:g}); "
        f"{ours.rate_together:.2f} if those within 60 rows of each other are one."
    )
    if OLD in sums:
        old = sums[OLD]
        less = [kind for kind in FAULT_ROWS if ours.share(kind) < old.share(kind)]
        print(f"{OLD}: {old.found} at {old.rate:.2f}; {ours.found / max(old.found, 1):.2f} times as many (at least "
              f"{RATIO:g}); found less often: {', '.join(less) or 'none'}.")  # fmt: skip
    reasons = sorted({fault[2] for faults in ours.faults.values() for fault in faults if fault[0]})
    print(f"\n| first reason of {OURS} | {header} |\n|---|{'--:|' * len(FAULT_ROWS)}")
    for reason in reasons:
        counts = [sum(fault[0] and fault[2] == reason for fault in faults) for faults in ours.faults.values()]
        print(f"| {reason or 'none'} | {' | '.join(map(str, counts))} |")


def labelled_series() -> Iterator[tuple[str, Any, Flags]]:
    """The name of each labelled series, its columns as a frame, and which of its rows are labelled."""
    import pandas as pd

    for package, path, label in LABELLED:
        if is_installed(package):
            frame = pd.read_csv(package_folder(package) / path)
            labels = frame.pop(label).to_numpy() > 0
            yield Path(path).stem, frame.drop(columns="timestamp", errors="ignore").astype(float), labels


def find_windows(labels: Flags, apart: int = 10) -> list[tuple[int, int]]:
    """The first and the last row, exclusive, of each run of labelled rows; runs fewer rows apart are one.

    >>> find_windows(np.array([0, 1, 1, 0, 0, 1], bool), apart=2)
    [(1, 3), (5, 6)]
    """
    rows = np.flatnonzero(labels)
    if not len(rows):
        return []
    cuts = np.flatnonzero(np.diff(rows) > apart) + 1
    return [(int(run[0]), int(run[-1]) + 1) for run in np.split(rows, cuts)]


def print_labelled(checkouts: Mapping[str, Path | None]) -> None:
    """A table: of each labelled series the windows found, and the alarms that begin outside of them."""
    print(f"\n| labelled series, version | rows × signals | windows found | alarms outside, in {ROWS:,} rows |")
    print("|---|--:|--:|--:|")
    for name, frame, labels in labelled_series():
        windows = find_windows(labels)
        log = Log(list(frame.columns), frame.to_numpy(), None, (2, 9, 36, 144))
        for version, (answers,) in run_logs([log], checkouts).items():
            alarm = answers.alarm
            outside = alarm.copy()
            for a, b in windows:
                outside[a : b + FAULT_ROWS["stuck"]] = False
            found = sum(bool(alarm[a:b].any()) for a, b in windows)
            rate = ROWS * count_beginnings(outside) / outside.size
            shape = f"{alarm.shape[0]:,} × {alarm.shape[1]}"
            print(f"| {name}, {version} | {shape} | {found} of {len(windows)} | {rate:.1f} |", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print all tables."""
    options = log_options("alarms", __doc__).parse_args(arguments)
    checkouts: dict[str, Path | None] = ({OLD: options.old} if options.old else {}) | {OURS: None}
    tallies: dict[str, dict[str, Tally]] = {}
    for each in choose_logs(options):
        name, log = each.name, Log.read(each.read(), each.horizons)
        if len(log.x) < SHORTEST:
            print(f"{name}: {len(log.x)} rows, left out", flush=True)
            continue
        logs_with_faults, every = inject_faults(log)
        tallies[name] = {version: Tally() for version in checkouts}
        for version, answers in run_logs(logs_with_faults, checkouts).items():
            tallies[name][version].add(every, answers, ~np.isnan(log.x))
        rates = ", ".join(f"{tally.found} by {version}" for version, tally in tallies[name].items())
        print(f"{name}: {sum(map(len, every))} faults, found {rates}", flush=True)
    if tallies:
        print_faults(tallies)
    if not options.log:
        print_labelled(checkouts)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
