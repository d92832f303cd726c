"""What is carried from row to row, as records with names: kernels read them by name, and files hold them by name.

A *series* is what questions are about: a signal, an expression of signals, or the margin of a condition. A *group* is
the questions about one series at one horizon, which share features and the sums of their products. A *target* is one
kind of label in a group: the value at the end of the window, its mean, its weighted mean, and so on.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Arrival", "Group", "Mean", "Memory", "Pending", "Recent", "Scored", "Series", "Stream", "Target"]

#: An array of records.
Records = NDArray[Any]

#: Labels over the window (t, t + h]: the value at its end, the mean, the weighted mean, the greatest, the least,
#: whether a condition holds in any row, and when it first does.
AT, MEAN_OF, WEIGHTED, MAX, MIN, ANY, FIRST = range(7)

#: The simple answers, which are also the baselines: the present value, the mean label so far, a moving average (or the
#: label of the window before), what followed one period ago and the rise since, and by each period what followed one
#: period ago and what usually follows. The regressions come after them: on all features and on those of the series' own
#: past, each of the difference from the present value and from what is usual. Last comes the weighted mean that TD
#: predicts.
NOW, PAST, TRACE, DRIFT, AGO = range(5)
PERIODS = 2
SIMPLE = AGO + 2 * PERIODS
TD = SIMPLE + 4
ANSWERS = TD + 1
#: What may be answered in the end: the combination, three steps towards the median, the median, halfway to the present
#: value, the present value.
CHOICES = 7
#: What errors are divided by for the band: their mean size, that at this hour, what the regression expects, and how
#: much the series has moved of late.
SCALES = 4
HOURS = 24
#: The most targets of a group, and what its regressions say of each: two differences and the size of the error; and by
#: the series' own past two differences.
TARGETS = 2
SIDES = 5 * TARGETS

#: Spans of moving averages, lags, spans of the mean movement and of the mean departure from what is usual.
SPANS, LAGS, MOVES, DEPARTURES = (2, 4, 16, 64, 256, 1024), (1, 2, 3, 6, 12, 24), (8, 64), (4, 16, 64, 256)
#: Features of a series: differences that no level changes; its level and its departures; movement, hinges and products
#: with the calendar; the calendar; then, at these places, what answers need of the row: the least and the greatest
#: answer, the mean movement, how many readings so far were fractions and lay between others, and the rise from each
#: period to the next.
OWN, LEVEL, REST, CALENDAR = len(SPANS) + len(LAGS) + PERIODS, 1 + PERIODS + len(DEPARTURES), 9, 20
COMMON = OWN + LEVEL + REST + CALENDAR
KNOWN = COMMON + 5 + PERIODS
#: Those of them that other series see, and how many other series are seen.
OTHER, OTHERS = (OWN, 2, 8, OWN + PERIODS), 8
#: Features of a condition's margins: three margins, two products, and a hinge of each at these edges, in deviations.
EDGES = (-1.0, -0.5, -0.25, 0.0, 0.25, 0.5, 1.0)
MARGINS = 5 + 3 * len(EDGES)
#: Of its past: its greatest margin over so many rows, how long ago it held, how often it did over these spans, and the
#: log odds of the mean label and of those that are usual.
HELD = (4, 16, 64, 256)
PAST_INPUTS = 2 + len(HELD)
CONDITION = MARGINS + PAST_INPUTS + 1 + PERIODS
#: Ratios of error and scale that are remembered.
RATIOS = 400
#: Rows that are missing, at least, where time goes back or jumps far: no window reaches across.
BREAK = 1e9
#: Blocks of rows in which errors are summed; the first is for the rows before those that are scored.
BLOCKS = 65
#: Edges of the probabilities whose share of events is counted.
CUTS = (0.05, 0.2, 0.4, 0.6, 0.8, 0.95)

Mean = np.dtype([("n", "f8"), ("value", "f8")])

Series = np.dtype(
    [
        *(("readings", "f8"), ("origin", "f8"), ("latest", "f8"), ("mean", "f8"), ("variance", "f8")),
        *(("lowest", "f8"), ("highest", "f8"), ("times_lowest", "f8"), ("times_highest", "f8")),
        # readings that are no whole numbers, and those that are neither the lowest nor the highest of the others
        *(("fractions", "f8"), ("between", "f8")),
        *(("traces", "f8", len(SPANS)), ("moves", "f8", len(MOVES)), ("departures", "f8", len(DEPARTURES))),
        # rows of each period, 0 for none; slots of its usual readings, their share of a row's weight, and whether the
        # clock tells the slot
        *(("periods", "i8", PERIODS), ("slots", "i8", PERIODS), ("pace", "f8", PERIODS), ("dated", "i8", PERIODS)),
        # the mean rise from one period to the next
        *(("rises", "f8", PERIODS), ("is_condition", "i8"), ("held", "f8", len(HELD)), ("since", "f8")),
    ]
)

Group = np.dtype(
    [
        # the window in rows and in time; one row in ``stride`` waits for its label; where they wait
        *(("series", "i8"), ("h", "i8"), ("span", "f8"), ("stride", "i8"), ("begin", "i8"), ("room", "i8")),
        # its targets, features, and whether its answer is a probability; its powers of γ; its learner, −1 for none
        *(("target", "i8"), ("targets", "i8"), ("features", "i8"), ("own", "i8"), ("is_event", "i8")),
        *(("fade", "i8"), ("learner", "i8")),
        # the next row whose window is to close, the last row of that window; rows learned from, at the last solution
        *(("closed", "i8"), ("end", "i8"), ("rows", "f8"), ("solved_at", "f8"), ("trace", "f8")),
        # a weighted mean is scored by as many rows as have .99 of the weights; the next row to score
        *(("far", "i8"), ("scored", "i8")),
    ]
)

Target = np.dtype(
    [
        *(("kind", "i8"), ("mean", Mean), ("errors", "f8", (ANSWERS, ANSWERS)), ("weights", "f8", ANSWERS)),
        *(("absolute", "f8", SIMPLE + CHOICES), ("squares", "f8", SIMPLE + CHOICES), ("choice", "i8")),
        *(("hourly", "f8", HOURS), ("scale", "i8"), ("interval", "f8", SCALES), ("middle", "f8")),
        *(("low", "f8", SCALES), ("high", "f8", SCALES), ("moved", "f8", (SCALES, 2)), ("dropped", "f8")),
        # of rows that are scored: bands and those that held the label by hour; rows, probabilities, and events by cut
        *(("bands", "f8", (HOURS, 2)), ("cuts", "f8", (len(CUTS) + 1, 3))),
    ]
)

#: A row that waits for the label of a target. ``scale`` is that of each kind of band, ``ends`` is the band answered.
Pending = np.dtype(
    [
        *(("answers", "f8", ANSWERS), ("centre", "f8"), ("off", "f8"), ("final", "f8")),
        *(("scale", "f8", SCALES), ("low", "f8", SCALES), ("high", "f8", SCALES), ("ends", "f8", 2)),
    ]
)

#: A row that waits, for all targets of its group: its hour of the week, hour of the day, slot of each period,
#: and whether it is there, not filled in.
Arrival = np.dtype([("cell", "i8"), ("hour", "i8"), ("slots", "i8", PERIODS), ("is_there", "i8"), ("odds", "f8")])

#: What was answered at a row, and the label.
Recent = np.dtype([(name, "f8") for name in ("row", "answer", "low", "high", "usual", "label")])

#: What holds for the whole stream. Rows from ``half`` on are scored, in blocks of so many rows.
Stream = np.dtype(
    [
        *(("step", "f8"), ("regular", "i8"), ("slack", "f8"), ("limit", "f8"), ("coverage", "f8")),
        *(("half", "i8"), ("block", "i8")),
    ]
)

#: Sums over a block of rows.
Scored = np.dtype(
    [
        *(("rows", "f8"), ("label", "f8"), ("label_square", "f8"), ("square", "f8"), ("absolute", "f8")),
        ("td_square", "f8"),
        *(("baseline_square", "f8", SIMPLE), ("baseline_absolute", "f8", SIMPLE)),
        *(("intervals", "f8"), ("inside", "f8"), ("interval_score", "f8")),
    ]
)


class Memory(NamedTuple):
    """All that kernels read and write: S series, G groups, T targets, W waiting rows, R remembered rows.

    What has a place for each remembered row is a ring that is written twice, n mod R and R + n mod R, so that any R
    rows in a row lie side by side.

    Args:
        stream: The stream (1,).
        series: The series (S,).
        groups: The groups (G,).
        targets: The targets (T,).
        arrivals: Rows that wait (W,), group by group.
        features: Their features (W, D).
        pending: What was answered there (W, TARGETS), target by target.
        x: Feature readings (S, 2R), held where missing; of a condition, its margin.
        z: Readings as labels know them (S, 2R), held; of a condition, 0 or 1.
        sums: The sum of known labels less the series' origin up to each row (S, 2R).
        reads: How many were known up to each row (S, 2R).
        expected: How many rows there should have been up to each row (2R,).
        time: The time of each row (2R,).
        clock: Hour of the week, hour of the day, slot of each period of the calendar, and whether the row is there
            (2R, 5).
        usual: The usual reading by slot (S, 2, slots).
        labels: The usual label by slot (T, 2, slots).
        hours: Sums of features and right-hand sides by hour of the week (G, hours, D + 3 TARGETS).
        weights: Of the regressions (G, SIDES, D).
        effects: Of the hour of the week (G, hours, SIDES).
        clip: The least and the greatest of each feature (G, 2, D).
        ratios: Error / scale of the last rows (T, 4, RATIOS).
        scores: Sums by blocks of rows (T, BLOCKS).
        related: The other signals that each series sees (S, OTHERS).
        fade: γᵏ of each length of the window (horizons, leads).
        recent: The last rows of each target (T, N), row n at n mod N.
    """

    stream: Records
    series: Records
    groups: Records
    targets: Records
    arrivals: Records
    features: NDArray[np.float64]
    pending: Records
    x: NDArray[np.float64]
    z: NDArray[np.float64]
    sums: NDArray[np.float64]
    reads: NDArray[np.float64]
    expected: NDArray[np.float64]
    time: NDArray[np.float64]
    clock: NDArray[np.int64]
    usual: Records
    labels: Records
    hours: NDArray[np.float64]
    weights: NDArray[np.float64]
    effects: NDArray[np.float64]
    clip: NDArray[np.float64]
    ratios: NDArray[np.float64]
    scores: Records
    related: NDArray[np.int64]
    fade: NDArray[np.float64]
    recent: Records
