"""Where numbers lie in the arrays of the kernels that answer questions, and constants of features and learners.

The kernels compile these numbers in; what reads scores needs no kernel.
"""

from __future__ import annotations

# Kinds of questions, by how a window becomes a label.
ANY, AT, FIRST, MEAN, MAX, MIN = range(6)

# What is fixed for a question.
(
    KIND,
    EVENT,
    CONDITION,
    SPAN,
    STEP,
    ROWS,
    REGULAR,
    LOWEST,
    HIGHEST,
    STRIDE,
    HALF,
    COVERAGE,
    PERIOD_A,
    SLOTS_A,
    BINS_A,
    OFFSET_A,
    PERIOD_B,
    SLOTS_B,
    BINS_B,
    OFFSET_B,
    SHIFT,
    WEEKLY,
    CYCLES,
    OTHERS,
    DECAY,
    SMALL,
    FULL,
    LIMIT,
    SLACK,
    EVIDENCE,
    HOUR_PACE,
) = range(31)
CONSTANTS = 31

# What a question carries from row to row.
(
    ROW,
    LAST_TIME,
    FIRST_READING,
    END_READING,
    FIRST_PENDING,
    END_PENDING,
    HELD,
    SEEN,
    SINCE,
    LABELS,
    DROPPED,
    ERROR,
    SIZE,
    LEVEL_LOW,
    LEVEL_HIGH,
    RATIOS,
    Q_LOW,
    Q_MIDDLE,
    Q_HIGH,
    LEAST,
    MOST,
    TD_OPEN,
    TD_SQUARE,
    SCALE_ROWS,
    SCALE_SUM,
    ABSOLUTE,
    MIX_SQUARE,
    MIX_LABELS,
) = range(28)
STATE = 28

# What waits for the label of a row: when it was, its keys, its answer, and then features and component answers.
(
    AT_TIME,
    AT_ROW,
    KEY_HOUR,
    KEY_WEEK,
    KEY_NOW,
    ANSWER,
    LOW,
    HIGH,
    USUAL,
    SIGMA,
    UNIT,
    BASE_NOW,
    BASE_SEASON,
    CENTRE,
    OUTCOME,
    BASELINES,
) = range(16)
#: Baselines that are known at a row: persistence (or so now), past mean, climatology, and the last of either cycle.
PERSISTENCE, PAST_MEAN, CLIMATOLOGY, LAST_A, LAST_B = range(5)
BASELINE_COUNT = 5
COMPONENTS = BASELINES + BASELINE_COUNT
COMPONENT_COUNT = 12
FEATURES = COMPONENTS + COMPONENT_COUNT

#: Lags whose differences are features, memories of traces in rows, and steps of the hinges of a margin, in standard
#: deviations, and of a margin by the season.
LAGS = (1, 2, 3, 6, 12)
TRACES = (4.0, 16.0, 64.0, 256.0)
HINGES = (-2.0, -1.0, -0.5, -0.25, 0.0, 0.25, 0.5, 1.0)
SEASON_HINGES = (-1.0, -0.5, -0.25, 0.0, 0.25, 0.5)
NUMBER_HINGES = (-1.0, 0.0, 1.0)
#: Readings that are remembered for lags, deviation and extremes.
REMEMBERED = 24
#: Raw features that are standardised: the reading, lags, traces, deviation, highest and lowest; then of the season.
PLAIN = 1 + 5 + 4 + 3
SEASONAL = 10
#: What is added to a phase in bins: of a stamp on the hour it may be a little less than whole.
NEARLY = 1e-6
#: Points of a window at which the season is looked up, at most.
LOOKED_UP = 48
#: Rows before which scales are not known, and labels before which the usual answer is given.
UNSCALED, UNLEARNED, UNLEARNED_NUMBER = 20, 20, 50
#: The rate of the seasonal means, the most that a standardised feature may be.
SEASON_RATE, CLIP = 0.2, 5.0
#: Forgetting, and the rows that errors are averaged over.
FORGET, ERROR_ROWS = 1.0 - 1.0 / 4000.0, 4000.0
#: Ridges of the components of a probability and of a number (times the rows of the window where marked), of the
#: combination and of the size of errors.
EVENT_RIDGES = (10.0, 100.0, 10.0, 30.0)
NUMBER_RIDGES = (30.0, 100.0, 10.0)
TOP_RIDGE, SIZE_RIDGE, TOP_FORGET = 30.0, 30.0, 1.0 - 1.0 / 1000.0
#: Step sizes of the TD learners, as factors of 1 / mean φ·φ, and their λ.
RATES = (0.1, 0.03, 0.01)
TRACE_DECAY = 0.9
#: Windows of more rows than this are learned from as if their rows were fewer: neighbouring labels are much the same.
ALIKE = 20.0
#: The most that the ends of the intervals of an hour move with a label.
HOUR_RATE = 0.05
#: How steeply a mixture that is worse than the best simple answer gives way to it.
STEEPNESS = 8.0
#: Ratios of errors to their expected size that are remembered, rows between two looks at their quantiles.
REMEMBERED_RATIOS, RATIO_TICKS = 1000, 20
#: The bins of a reliability curve are cut at these probabilities.
CUTS = (0.05, 0.2, 0.4, 0.6, 0.8, 0.95)
# Sums for the scores of either half: counts, labels, errors, those of the baselines, and of intervals.
COUNT, LABEL, LABEL_SQUARE, SQUARE, ABS = range(5)
BASELINE_SQUARE = 5
BASELINE_ABS = BASELINE_SQUARE + BASELINE_COUNT
MEMBER_SQUARE = BASELINE_ABS + BASELINE_COUNT
TD_MEMBER = MEMBER_SQUARE
INTERVALS, INSIDE, INTERVAL_SCORE = range(MEMBER_SQUARE + 1, MEMBER_SQUARE + 4)
BINS = MEMBER_SQUARE + 4
HOURS = BINS + 3 * 7
SUMS = HOURS + 2 * 24
