"""The alarms suite: faults that alarms find on many logs.

Faults are put into the second half of each log, one signal at a time, as the reproduction ``alarms`` does it: spike,
stuck, level, drift, noise. A fault is found if there is an alarm while it lasts. False alarms are those that begin in
the second half of the same log without faults, and "by chance" is the share of the same windows that have an alarm
there. A log of fewer than 2,000 rows is left out: there are no alarms in its first 700.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import emphatic
from benchmarks.development_logs import DevelopmentLog, chosen_logs, first_rows
from benchmarks.measure import Case, Effort, Gate, gate
from benchmarks.report import Layout, Row
from reproductions.open_questions import Fault, count_alarms, inject

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

EFFORT = Effort(1, 0.0)
#: The rows of each kind of fault; from one fault to the next, and by how many that varies.
FAULT_ROWS = {"spike": 1, "stuck": 60, "level": 60, "drift": 240, "noise": 60}
SPACING, VARY = 400, 80
#: Faults of each log at least, the copies of a log at most, and the rows of a log at least.
FAULTS, COPIES, SHORTEST = 50, 50, 2_000
#: False alarms are counted in so many rows of a signal, and there may be so many.
ROWS, FALSE = 10_000, 3.0
LAYOUT = Layout(how="Shares of the faults that were found; false alarms begin in the same rows without faults.")


def cases(quick: bool, tables: Sequence[Path] = (), horizons: Sequence[str] | None = None) -> Sequence[Case]:
    """All logs; ``quick`` takes the first rows of one."""
    logs = chosen_logs(tables, horizons)
    if quick:
        logs = [DevelopmentLog("the first rows of the household's log", "", lambda: first_rows(SHORTEST), (2, 9))]
    return [AllLogs([Faults(log, 5 if quick else FAULTS) for log in logs])]


@dataclass(frozen=True)
class Answers:
    """The anomaly scores and alarms (T, C) of a run, and the reasons of alarms (T, C)."""

    anomaly: Array
    alarm: Flags
    why: NDArray[np.str_]


@dataclass
class Faults:
    """One log, and copies of it with faults.

    - ``false``: the alarms that begin in the second half without faults, the same if those within 60 rows of each other
      are one, and the rows there, times signals;
    - ``hits``: by kind, for each fault whether it was found, whether by chance, and the first reason given.

    Args:
        log: The log.
        count: How many faults it gets at least.
    """

    log: DevelopmentLog
    count: int
    false: Array = field(default_factory=lambda: np.zeros(3))
    hits: dict[str, list[tuple[bool, bool, str]]] = field(default_factory=lambda: {kind: [] for kind in FAULT_ROWS})

    @property
    def name(self) -> str:
        return f"{self.log.name}: the scores before the first fault are those without faults"

    def gates(self) -> Iterator[Gate]:
        """None for a log that is too short."""
        table = emphatic.nexting.tables.open_table(self.log.read())
        blocks = [(block.values, block.time) for block in table.blocks()]
        self.x = np.concatenate([values for values, _ in blocks])
        self.time = np.concatenate([time for _, time in blocks]) if table.dated else None
        self.names = list(table.names)
        if len(self.x) < SHORTEST:
            return
        half = len(self.x) // 2
        self.quiet = self.run(self.x)
        faulty, faults = self.copy(1)
        begin = min(a for _, _, a, _ in faults)
        with_faults = self.run(faulty)
        assert begin >= half
        yield gate(self.name, with_faults.anomaly[:begin], self.quiet.anomaly[:begin], 0.0)

    def copy(self, seed: int) -> tuple[Array, list[Fault]]:
        """The readings with faults in them, and the faults."""
        rng = np.random.default_rng((seed, len(self.x)))
        return inject(self.x, len(self.x) // 2, rng, FAULT_ROWS, SPACING, VARY)

    def run(self, x: Array) -> Answers:
        """``emphatic nexting`` on these readings."""
        times = {} if self.time is None else {"time": (1e9 * self.time).astype("datetime64[ns]")}
        # (an earlier version had weighted means without the values at each horizon, and a fit in hindsight)
        known = inspect.signature(emphatic.nexting.run).parameters
        options: Any = {"offline": False, "exponential_only": True} if "exponential_only" in known else {}
        result = emphatic.nexting.run(
            dict(zip(self.names, x.T, strict=True)) | times,
            time=None if self.time is None else "time",
            predict=self.names,
            horizons=self.log.horizons,
            **options,
        )
        table = result.predictions

        def stack(names: Sequence[str]) -> Any:
            return np.stack([table.column(name).to_numpy(zero_copy_only=False) for name in names], axis=1)

        why = np.array([[reason or "" for reason in table.column(f"{name}.why").to_pylist()] for name in self.names]).T
        alarm = stack([f"{name}.alarm" for name in self.names]).astype(bool)
        return Answers(stack([f"{name}.anomaly" for name in self.names]), alarm, why)

    def measure(self) -> None:
        """Count the false alarms, and the faults that were found."""
        read = ~np.isnan(self.x)
        quiet = self.quiet.alarm & read
        half = len(quiet) // 2
        together = sum(count_alarms(column) for column in quiet[half:].T)
        self.false += [count_beginnings(quiet[half:]), together, read[half:].sum()]
        for seed in range(1, COPIES + 1):
            faulty, faults = self.copy(seed)
            answers = self.run(faulty)
            for c, kind, a, b in faults:
                hit = answers.alarm[a:b, c]
                reason = str(answers.why[a:b, c][hit.argmax()]) if hit.any() else ""
                self.hits[kind].append((bool(hit.any()), bool(quiet[a:b, c].any()), reason))
            if sum(map(len, self.hits.values())) >= self.count:
                break


@dataclass(frozen=True)
class AllLogs:
    """The shares of faults that were found in all logs, then in each."""

    logs: Sequence[Faults]

    def gates(self) -> Iterator[Gate]:
        """Those of the logs that are long enough."""
        for log in self.logs:
            yield from log.gates()

    def rows(self, effort: Effort) -> Iterator[Row]:
        """Three tables: all logs, the reasons given, and each log."""
        logs = [log for log in self.logs if len(log.x) >= SHORTEST]
        for log in logs:
            log.measure()
        yield from found_rows("all logs", logs)
        for kind in FAULT_ROWS:
            reasons = [reason for log in logs for hit, _, reason in log.hits[kind] if hit]
            for reason in sorted(set(reasons)):
                count = float(reasons.count(reason))
                yield Row(
                    "the first reason of a fault that was found",
                    f"{kind}: {reason or 'none'}",
                    names_of(logs),
                    count,
                    unit="",
                )
        for log in logs:
            yield from found_rows(f"{log.log.name}: {len(log.x):,} rows × {len(log.names)} signals", [log])


def names_of(logs: Sequence[Faults]) -> tuple[str, ...]:
    return tuple(log.name for log in logs)


def found_rows(section: str, logs: Sequence[Faults]) -> Iterator[Row]:
    """The share of each kind that was found, and the false alarms in 10,000 rows of a signal."""
    for kind in FAULT_ROWS:
        hits = [hit for log in logs for hit in log.hits[kind]]
        if hits:
            shares = [float(np.mean([hit[i] for hit in hits])) for i in (0, 1)]
            yield Row(
                section,
                kind,
                gates=names_of(logs),
                ours=shares[0],
                alternative=shares[1],
                versus="by chance",
                unit=f"of {len(hits)}",
                ratio=shares[0],
            )
    false, together, rows = np.sum([log.false for log in logs], axis=0).tolist()
    yield Row(
        section,
        f"false alarms in {ROWS:,} rows of a signal",
        gates=names_of(logs),
        ours=ROWS * false / rows,
        unit="",
        ratio=ROWS * false / rows,
        at_most=FALSE if len(logs) > 1 else None,
        note=f"{ROWS * together / rows:.2f} if those within 60 rows of each other are one",
    )


def count_beginnings(alarm: Flags) -> int:
    """How many alarms begin in rows (T, …): consecutive rows are one alarm.

    >>> count_beginnings(np.array([True, True, False, True]))
    2
    """
    before = np.concatenate([np.zeros_like(alarm[:1]), alarm[:-1]])
    return int(np.sum(alarm & ~before))
