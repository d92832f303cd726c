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
    ERROR_LABELS,
) = range(32)
CONSTANTS = 32

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
    TIMES_LEAST,
    TIMES_MOST,
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
#: The rate of the seasonal means, the most that a standardised feature may be, and that a target may be in standard
#: deviations of the readings so far.
SEASON_RATE, CLIP, FARTHEST = 0.2, 5.0, 50.0
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
# The answers that a number is combined of: six ridge regressions, now, the last of the long cycle, the usual answer,
# TD at three rates, the mean so far and the last of the short cycle. All but regressions and TD are simple answers.
NOW_MEMBER, SEASON_MEMBER, USUAL_MEMBER, TD_MEMBERS, MEAN_MEMBER, LAST_MEMBER = 6, 7, 8, 9, 12, 13
MEMBERS = 14
#: The n-th label counts as n to this power less one, so that recent ones count more; so many windows are remembered at
#: least, where these are long.
RECENT, ERROR_WINDOWS = 3.0, 20.0
#: Members are weighted by 1 / (their mean squared error) to such a power, which grows with each window: all of them,
#: and the simple ones among themselves.
POWER, POWER_WINDOW, SIMPLE_POWER, SIMPLE_POWER_WINDOW, MOST_POWER = 2.0, 0.01, 4.0, 0.03, 64.0
#: The share of all members beside the simple ones before anything is known, and the windows that this counts as.
SHARE, SHARE_WINDOWS = 0.5, 10.0
# What may be answered in the end: the combination, by a quarter, a half, three quarters and in full towards the median,
# halfway to now, now. A value may be any of them; what is about a window is not now.
CHOICES = 7
# Their mean squared and absolute errors, absolute ones of the baselines, how far all members go beyond the simple ones
# and how far they should, the choice (0 for none, so that zeros are a beginning) and the labels that were counted.
CHOICE_SQUARE, CHOICE_ABS = 0, CHOICES
SIMPLE_ABS = 2 * CHOICES
ALONG, AROUND, CHOICE, CHOICE_LABELS = range(SIMPLE_ABS + BASELINE_COUNT, SIMPLE_ABS + BASELINE_COUNT + 4)
CHOICE_STATE = CHOICE_LABELS + 1
#: Labels and windows before which the combination itself is answered, what it costs to be worse than a simple answer,
#: and by how much, divided by the root of the windows, it must be better to move towards the median or now.
UNCHOSEN, ENOUGH, WORSE, MARGIN = 50.0, 30.0, 20.0, 0.3
#: So many windows halve the distance to the median.
MEDIAN_WINDOWS = 2.0
#: Ratios of errors to their expected size that are remembered, rows between two looks at their quantiles.
REMEMBERED_RATIOS, RATIO_TICKS = 1000, 20
#: Probabilities are corrected by the mean error of such probabilities so far, which is kept at so many log odds, one
#: apart from the least on. Errors of so many windows are remembered, and so many without an error are added to them.
KNOTS, LEAST_KNOT, CALIBRATION_WINDOWS, CALIBRATION_PRIOR = 9, -4.0, 15.0, 10.0
#: Probabilities nearer to 0 and 1 than this are not corrected.
SURE = 1e-4
#: Where the probability before its correction waits, among the components of an event.
UNCORRECTED = COMPONENTS + 5
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
