"""Which faults of a sensor do alarms find, how soon, and how do simpler charts do at as many false alarms?

Faults are put into the second half of a household's log, one signal at a time: a reading that is stuck, a drift, a
single spike, and a dropout to 0. Each copy of the log, with faults of its own, is learned from as it is, from the first
row. Beside the score of ``emphatic nexting`` (``emphatic.nexting.intervals``) are the two that one would try first: a
running z-score, and the control chart of Roberts (1959),

    |x − mean| / deviation        |z − mean| / (deviation √(λ / (2 − λ))),    z ← z + λ (x − z)

All are held to as many false alarms: for each signal and detector the threshold is the lowest one at which the log
without faults raises one alarm in 10,000 rows of its second half. There is no published number to compare with: the
study reports its findings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emphatic import data
from emphatic.nexting.predictor import OF_A_SIGNAL
from emphatic.nexting.runner import run as learn
from emphatic.report import Axis, Figure, Key, Line, Panel, Plot, category
from emphatic.studies.agreement import Check, Outcome, finding
from emphatic.studies.conditions import Conditions
from emphatic.tables import open_table

__all__ = ["SOURCE", "TITLE", "run"]

TITLE = "Alarms: which faults of a sensor are found, and how soon"
SOURCE = (
    "Unexpected demon error: A. White, Developing a Predictive Approach to Knowledge, thesis (2015). Control chart: "
    "S. W. Roberts, Control Chart Tests Based on Geometric Moving Averages (1959)."
)

Array = NDArray[np.float64]
OURS, DEFAULT = "emphatic", "emphatic, default threshold"
#: The rows of each kind of fault: of a drift, those in which it grows to 3 standard deviations.
FAULTS = {"stuck": 120, "drift": 720, "spike": 1, "dropout": 60}
#: In standard deviations of the first half.
SIZES = {"drift": 3.0, "spike": 5.0}
#: Rows from one fault to the next, and by how many they vary.
SPACING, VARY = 1_000, 200
#: Rows to one false alarm; alarms that begin within so many rows of another are one.
ROWS, TOGETHER = 10_000, 60
HORIZONS = ("2min", "15min", "3h", "24h")
#: Rows over which means and deviations of the z-score and of the charts are taken.
DAY, LONG = 1_440, 20_000
CHARTS = {"EWMA chart, λ = .2": 0.2, "EWMA chart, λ = .05": 0.05}
Z_SCORE = "z-score over a day"


class Fault(NamedTuple):
    """Of the signal number ``signal``, from row ``begin`` to before row ``end``."""

    signal: int
    kind: str
    begin: int
    end: int


class LogCopy(NamedTuple):
    """A copy of the first rows of the log (None: all) to be learned from; copy 0 has no faults."""

    copy: int
    seed: int
    rows: int | None


def inject(x: Array, first: int, rng: np.random.Generator) -> tuple[Array, list[Fault]]:
    """The readings (T, C) with faults from row ``first`` on, of every kind in every signal in turn, in random order.

    >>> x, faults = inject(np.random.default_rng(0).normal(size=(5000, 2)), 2500, np.random.default_rng(0))
    >>> [(fault.signal, fault.kind) for fault in faults]
    [(0, 'spike'), (1, 'stuck')]
    >>> float(np.ptp(x[faults[1].begin - 1 : faults[1].end, 1]))
    0.0
    """
    y, faults = x.copy(), []
    deviation = np.nanstd(x[:first], axis=0)
    every = [(c, kind) for c in range(x.shape[1]) for kind in FAULTS]
    begins = range(first + VARY, len(x) - SPACING, SPACING)
    order = [every[i] for _ in range(len(begins) // len(every) + 1) for i in rng.permutation(len(every))]
    for place, (c, kind) in zip(begins, order, strict=False):
        a = place + int(rng.integers(VARY))
        b, sign = a + FAULTS[kind], rng.choice([-1.0, 1.0])
        if np.isnan(x[a - 1 : b, c]).any():
            continue
        if kind in SIZES:
            y[a:b, c] += sign * SIZES[kind] * deviation[c] * np.arange(1, b - a + 1) / (b - a)
        else:
            y[a:b, c] = y[a - 1, c] if kind == "stuck" else 0.0
        faults.append(Fault(c, kind, a, b))
    return y, faults


def score(task: LogCopy) -> tuple[dict[str, Array], NDArray[np.bool_], list[Fault]]:
    """Of each detector the scores (T, C) of a copy; our alarms at the default threshold; and the faults."""
    table = open_table(data.household())
    blocks = [next(table.blocks(task.rows))] if task.rows else list(table.blocks())
    x, time = np.concatenate([b.values for b in blocks]), np.concatenate([b.time for b in blocks if b.time is not None])
    faults: list[Fault] = []
    if task.copy:
        x, faults = inject(x, len(x) // 2, np.random.default_rng((task.seed, task.copy)))
    columns: dict[str, Any] = dict(zip(table.names, x.T, strict=True)) | {"time": time}
    found = learn(columns, time="time", predict=table.names, horizons=HORIZONS, offline=False).predictions
    anomaly, alarm = (
        np.stack([found.column(f"{name}.{kind}").to_numpy() for name in table.names], axis=1) for kind in OF_A_SIGNAL
    )
    return {OURS: np.nan_to_num(anomaly), **charts(x)}, alarm.astype(bool), faults


def charts(x: Array) -> dict[str, Array]:
    """The z-score and the control charts of readings (T, C); 0 where one is missing, and in the first rows."""
    T, C = x.shape
    found = {name: np.zeros((T, C)) for name in (Z_SCORE, *CHARTS)}
    λ = np.array(list(CHARTS.values()))[:, None]
    windows, count = np.array([[DAY], [LONG]]), np.zeros(C)
    mean, variance, z = np.zeros((2, C)), np.zeros((2, C)), np.zeros((len(CHARTS), C))
    for t, row in enumerate(x):
        read = ~np.isnan(row)
        now = np.where(read, row, 0.0)
        z = np.where(read, np.where(count == 0, now, z + λ * (now - z)), z)
        deviation = np.sqrt(np.maximum(variance, 1e-12))
        if t >= DAY // 2:
            found[Z_SCORE][t] = np.where(read, abs(now - mean[0]) / deviation[0], 0.0)
            wide = abs(z - mean[1]) / (deviation[1] * np.sqrt(λ / (2.0 - λ)))
            for name, own in zip(CHARTS, wide, strict=True):
                found[name][t] = np.where(read, own, 0.0)
        count += read
        a = np.where(read, np.maximum(1.0 / np.maximum(count, 1), 1.0 / windows), 0.0)
        off = now - mean
        mean, variance = mean + a * off, (1.0 - a) * (variance + a * off**2)
    return found


def begun(alarm: NDArray[np.bool_]) -> int:
    """How many alarms begin in these rows.

    >>> begun(np.array([True, False, True] + [False] * 100 + [True]))
    2
    """
    rows = np.flatnonzero(alarm)
    return int(np.sum(np.diff(rows) > TOGETHER)) + 1 if len(rows) else 0


def threshold(scores: Array, allowed: int) -> float:
    """The lowest threshold, going down, before more alarms begin than allowed."""
    falling = np.sort(scores)[::-1]
    lowest = float(falling[0])
    for rank in np.unique(np.geomspace(1, max(len(scores) // 20, 2), 200).astype(int)):
        if begun(scores > falling[rank]) > allowed:
            break
        lowest = float(falling[rank])
    return lowest


def run(how: Conditions) -> Outcome:
    """Detection and delay of every kind of fault, for every detector."""
    rows, copies = (8_000, 3) if how.quick else (None, 8)
    tasks = [LogCopy(i, how.seed, rows) for i in range(copies + 1)]
    (clean, alarm, _), *faulty = how.each(score, tasks, "copies of the log")
    half = len(alarm) // 2
    allowed = max(1, round((len(alarm) - half) / ROWS))
    limits = {name: [threshold(s, allowed) for s in scores[half:].T] for name, scores in clean.items()}
    delays: dict[str, dict[str, list[float]]] = {kind: {name: [] for name in (*clean, DEFAULT)} for kind in FAULTS}
    for scores, alarms, faults in faulty:
        for c, kind, a, b in faults:
            above = {name: own[a:b, c] > limits[name][c] for name, own in scores.items()} | {DEFAULT: alarms[a:b, c]}
            for name, hit in above.items():
                delays[kind][name].append(float(np.argmax(hit)) if hit.any() else np.inf)
    delays = {kind: found for kind, found in delays.items() if found[OURS]}  # a quick study may have none of a kind
    false = [begun(own) / len(own) * ROWS for own in alarm[half:].T]
    checks = [check for kind, found in delays.items() for check in _findings(kind, found)]
    checks.append(
        finding(
            f"false alarms in {ROWS:,} rows, default threshold", float(np.mean(false)),
            f"mean of {len(false)} signals of the log without faults, second half; stated: 1 at most",
        )
    )  # fmt: skip
    notes = [
        f"Thresholds for equal false alarms are set with hindsight, at {allowed} in the second half of the log without "
        "faults; the default threshold is not: it is found online, from the past alone.",
        "A meter that reads 0 for hours cannot be seen to be stuck at 0, or to have dropped to it: three of the seven "
        "signals are such meters, and count like the others.",
        f"Drifts grow to {SIZES['drift']:g} and spikes are of {SIZES['spike']:g} standard deviations; a fault is found "
        "if an alarm is raised while it lasts.",
    ]
    settings = {"copies": copies, "horizons": list(HORIZONS), "rows of a fault": FAULTS}
    return Outcome(checks, [_figure(delays)], notes, settings)


def _findings(kind: str, delays: Mapping[str, list[float]]) -> list[Check]:
    """The share of faults that each detector finds; how long that takes is in the note."""
    checks = []
    for name, own in delays.items():
        found = np.array(own)[np.isfinite(own)]
        late = f"median delay {np.median(found):g} rows" if len(found) else "none found"
        share, many = len(found) / len(own), "1 fault" if len(own) == 1 else f"{len(own)} faults"
        checks.append(finding(f"{kind}: {name}", share, f"share of {many} found; {late}"))
    return checks


def _figure(delays: Mapping[str, Mapping[str, list[float]]]) -> Figure:
    panels, names = [], list(next(iter(delays.values())))
    for kind, found in delays.items():
        x = np.arange(1, max(3, FAULTS[kind] + 1), dtype=float)
        lines = [
            Line(
                x,
                [float(np.mean(np.array(found[name]) < rows)) for rows in x],
                name,
                category(j),
            )
            for j, name in enumerate(names)
        ]
        panels.append(Panel(kind, lines, y_range=(0.0, 1.0)))
    plot = Plot({"all": panels}, "alarms", 2, 1, x=Axis("rows of the fault read", "log"), y=Axis("share found"))
    caption = "At equal false alarms, but for the default threshold."
    return Figure("Faults found", plot, caption, [Key(category(j), name) for j, name in enumerate(names)])
