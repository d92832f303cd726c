"""Intervals and alarms: what is computed at each row from the predictions and the readings up to it.

``Derived`` is the one place where such things are made, named and saved. A run on a table writes them as further
columns of ``predictions.parquet``, a pipe as further entries of each line, and both save their state with the model.
They depend on the past alone, and on nothing but the predictions, the readings and the gaps, in the order of the rows:
a run that was interrupted may compute them again from its parts.

Intervals, by online conformal prediction
-----------------------------------------
A prediction p of a return G at horizon h = 1 / (1 − γ) has the interval

    p − z exp(ℓ + ℓ_b) E u √(½ + ½ v) f₋  to  p + z exp(ℓ + ℓ_b) E u √(½ + ½ v) f₊

z is the half-width that a standard normal distribution needs for the coverage. E is the running error and v the
variance expected now, as a multiple of its mean: both may be wrong. ℓ corrects them: each time a return becomes known,

    ℓ ← ℓ + η ((1 if G was outside its interval, else 0) − (1 − coverage))

so that in the long run the share of returns outside comes to 1 − coverage whatever the signal does (Gibbs & Candès
2021; Angelopoulos, Candès & Tibshirani 2023). While few horizons have passed it moves more slowly. A return is known
only D rows later. With a larger step than half of one over the returns that are not known yet, ℓ would be driven on by
misses that it has long corrected for. That is η, but at most 0.02, and falling with the square root of the number of
delays after the first 30, to a tenth.

The return of a row is taken as known after D rows, when 0.95 of its weight has been read; for the rest stands the
prediction there, corrected by the mean error so far; neither may lead out of the range of the readings.
Readings that are missing are left out; across a gap no return is known. For a long horizon only every k-th row's return
is looked at, at most 256 in D rows, so that memory does not grow with the horizon: it is 28 kB a question at most, and
40 kB where rows have phases.

E is √(π/2) times the mean absolute error of the last quarter of all rows, or of the last 20 D. Before a return is known
it is the standard deviation of the readings, which then counts for a horizon. For normal, Laplace and uniform errors
alike, z E is the right width at a coverage of 0.8 to within 1%.

u widens intervals while readings of few horizons are known: errors of n horizons say little about the next one, as
Student's distribution has wide tails, and a signal may drift. It is 1 + 1.8 / (1 + n), but u E is at most 1.1 standard
deviations of the readings so far, and u at least 1.

v is the answer to a GVF whose cumulant is the squared TD error, d² / avg d² with d = (1 − γ) x' + γ p' − p, and its
discount γ² (Sherstan et al. 2018: if TD errors are uncorrelated, it is the variance of the return around p). It is
linear in five features: 1, two traces of the cumulant, (x − p)² and (x − trace of x)². Its weights are found by least
squares, as ``emphatic.hordes.blend`` finds its own.

f₋ and f₊ make the scale that of rows like this one. Rows are put into bins in four ways: all together, by the phase of
a short cycle (the hour of the day), by that of a long one (the hour of the week), and by the size of the prediction. A
bin has the mean of its errors, as multiples of the running scale, and the means of those to either side; with few
visits it leans on the bin above it: the long cycle on the short one, all others on all rows. Each of the four gives a
way of scaling that is alike to both sides and one that is not; without any, the first way is plain. Each way has a
level of its own, and its interval score is known for the returns so far: its share is

    w ∝ prior exp(−½ n (mean score / usual score)),    n horizons, 60 at most

and f₋ and f₊ are means over the ways by these shares, drawn towards 1 by n / (n + 30). ℓ_b is the correction of ℓ in
the bin b of the short cycle: like ℓ it follows the returns outside, so that coverage is right at each hour.

Both ends are rounded to three digits of half the width: more mean nothing, and would take six times as much of a file.
An interval ends where the readings so far end (the least and the largest, and a millionth of their distance beyond), as
long as returns hardly ever lie beyond: less than a twentieth of the share that may fall outside. A power that was never
negative gets no negative interval, unless it is predicted to be negative; a signal that keeps rising is not held back.
A least or largest reading that has been read ten times is a bound, and no interval passes it.

Alarms
------
At a row with reading x, of a signal whose predictions at horizons h = 1 / (1 − γ) were p before and are p' now, there
are these statistics:

    |x − p| / usual             how far the reading is from the prediction at the shortest horizon
    1 + run                     how often in a row the same reading has come: a sensor that is stuck
    |mean of d| / usual         for each horizon, d = (1 − γ) x + γ p' − p being the TD errors, the mean that of about
                                the last h rows, and of 4 at least: predictions that fail to one side, as they do when
                                a signal drifts (the unexpected demon error of White 2015, section 7.4); x counts here
                                as at most 20 times the usual error from its prediction, so that one is no drift
    largest sum                 of errors to one side: s ← max(0, .99 s ± (x − p) / usual − ½), each error as at most 4
                                times the usual (Page 1954, with a leak): a slow drift
    late / usual                how large errors are of late, in the last 30 rows
    1 + missing                 at a row without a reading, and alone there: for how many rows it has been missing

"usual" is the running mean of what stands above it; in the first, half of it is that of the last 30 rows, so that a
restless hour is no alarm. Each statistic s is compared with its own past. Of u, which .02 of all rows exceed, and the
means M₁ of log(s/u) and M₂ of its square above u, the rate at which s is reached, per row, is

    rate = .02 θ (1 + ξ (s/u − 1) / (M₁ (1 − ξ₋)))^(−1/ξ),    ξ₋ = 1 − ½ / (1 − M₁²/M₂),    ξ = M₁ + ξ₋

for any kind of tail (Dekkers, Einmahl & de Haan 1989); θ is the share of exceedances before which there was none, for
what is large stays so for a while, and an alarm counts when it begins. While little is known, ξ₋ is drawn towards 0,
a tail like a power. All is learned from the past alone, the last 100,000 rows or so; rows in alarm count for a
twentieth, and so do those after 60 exceedances in a row, for a slow fault must not become usual while it grows. The
score of the row is

    anomaly = −log₁₀ (1.5 J · the least rate of the J statistics)

with a margin of 1.5, at least 0 and at most 16: a score above 4 begins once in 10,000 rows at most, on a stationary
stream (measured: .2 to 1 times as often as stated). Where there is nothing to judge by it is 0, and there is no alarm:
in the first 200 rows, and just after a gap.

A signal that never changed has no errors to be compared with. Its first change is an alarm with the highest score.
From there on all that follows from errors is learned as from the first row of a log: there are no such alarms for 200
rows. The same holds for a change that ends a run of equal readings longer than .9 of all rows so far.

The statistic with the least rate says why: the distance and the size of late errors "too high" or "too low", by the
side of the reading; repeats "stuck"; TD errors and sums "drifting"; rows without a reading "missing". Where the
distance alone is an alarm, it says so, whatever else it moves.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from emphatic.asking.gvfs import FollowedGVFs, find_marks
from emphatic.engines.compiled import direct
from emphatic.hordes.horde import Horde
from emphatic.nexting import interval_kernels as kernels
from emphatic.nexting.alarm_kernels import alarms
from emphatic.nexting.settings import FALSE_ALARM_RATE

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ENDS", "OF_A_SIGNAL", "WHY", "AlarmList", "Alarms", "Derived", "Intervals", "alarms_by_signal"]

Array = NDArray[np.float64]

#: What is derived for each question: the ends of its interval.
ENDS = ("low", "high")
#: What else there is for a question of the user's own.
USUAL = "usual"
#: And for each signal: how surprising its reading is, whether that is an alarm, and why.
OF_A_SIGNAL = ("anomaly", "alarm", "why")
#: What an alarm says of its signal: number k of "why" stands for the k-th of these, 0 for no alarm.
WHY = ("too high", "too low", "stuck", "drifting", "missing")

# ---------------------------------------------------------------------- intervals

#: The share of its weight that a return may lack to be taken as known.
REST = 0.05
#: Rows of a question whose returns are waited for at a time, at most.
WAITING = 256
#: The most phases of a short cycle and of a long one.
CYCLES = (24, 168)
#: The phases of one row whose time is not known.
_ANY_PHASE = np.full((1, 2), -1, np.int64)
#: Seconds since 1970 that are still a date, of the year 9999.
_LATEST = 2.5e11
#: Horizons' worth of known returns from which on coverage can be told: with fewer its own error exceeds 0.04.
ENOUGH = 100.0


class Intervals:
    """The intervals of Q questions, and their state from row to row.

    Args:
        signals: The place of each question's signal among the readings.
        gamma: The discounts of the questions (Q,), below 1.
        coverage: The share of returns that are to fall inside.
        cycles: The number of phases of a short cycle and of a long one, at most; 0 where there is none.

    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(5000, 1))  # to be predicted by its mean, one step ahead
    >>> low, high = Intervals([0], np.zeros(1), 0.8)(np.zeros((5000, 1)), x, np.zeros(5000, bool))
    >>> inside = (low[:-1] <= x[1:]) & (x[1:] <= high[:-1])
    >>> round(float(inside.mean()), 2)
    0.8
    """

    def __init__(self, signals: Sequence[int], gamma: Array, coverage: float, cycles: tuple[int, int] = (0, 0)) -> None:
        self.signals, self.gamma = np.asarray(signals, np.int64), np.ascontiguousarray(gamma, np.float64)
        self.coverage = coverage
        delays = [_delay(g) for g in self.gamma.tolist()]
        self._every = np.array([-(-delay // WAITING) for delay in delays], np.int64)
        count = -(-np.array(delays, np.int64) // np.maximum(self._every, 1))
        Q, order, every = len(self.gamma), np.argsort(self.gamma, kind="stable"), self._every.astype(np.float64)
        #: Eight questions are followed side by side, as the lanes of a block. Those of like γ are neighbours, for their
        #: returns are known in the same rows.
        self._block, self._lane = np.divmod(np.argsort(order, kind="stable"), kernels.LANES)
        self._state = np.zeros((-(-Q // kernels.LANES), kernels.ROWS))
        #: The same by block, lane and row.
        self._rows = self._state.reshape(-1, kernels.ROWS // kernels.LANES, kernels.LANES).transpose(0, 2, 1)
        powers = [_power(g, D) for g, D in zip(self.gamma.tolist(), (count * self._every).tolist(), strict=True)]
        spacing, period = 1.0 / ((1.0 - self.gamma) * every * kernels.SCORED), 1.0 / (every * (1.0 - self.gamma))
        for row, numbers in (
            (kernels.GAMMA, self.gamma),
            (kernels.HORIZON, 1.0 / (1.0 - self.gamma)),
            (kernels.DELAY, count * every),
            (kernels.BEYOND, np.array(powers)),
            (kernels.COUNT, count),
            (kernels.EVERY, every),
            (kernels.FIRST, np.cumsum(count) - count),
            (kernels.SPACING, np.maximum(np.floor(spacing), 1.0)),
            (kernels.PERIOD, np.maximum(period, 1.0)),
        ):
            # (lanes without a question are like the last one)
            lanes = np.pad(numbers[order], (0, self._state.shape[0] * kernels.LANES - Q), "edge")
            self._state[:, row : row + kernels.LANES] = lanes.reshape(-1, kernels.LANES)
        self._state[:, kernels.EXPONENT : kernels.EXPONENT + kernels.LANES] = math.nan  # its exponential is not known
        sizes = 1 + sum(cycles)
        self._kept = np.zeros((int(count.sum()), kernels.KEPT_OF_A_ROW))
        self._bins = np.zeros((len(self._state), (sizes + kernels.SIZES) * kernels.BIN * kernels.LANES))
        self._arguments = (
            order,
            self.signals[order],
            np.array([0, 1, 1 + cycles[0], sizes], np.int64),
            np.array([1.0 - coverage, NormalDist().inv_cdf(0.5 + 0.5 * coverage)]),
            self._state,
            self._kept,
            self._bins,
        )
        arrays = self.arrays()
        arrays["vectors"][:, 0, 0] = 1.0
        arrays["scales"][:] = 1.0, 0.0, (1.0 - kernels.PLAIN) / (kernels.WAYS - 1)
        arrays["scales"][:, 0, -1] = kernels.PLAIN
        arrays["bins"][:, :, -3:] = 1.0  # every mean error is as usual
        self._take(arrays)

    def __call__(
        self,
        predictions: Array,
        readings: Array,
        gap: NDArray[np.bool_],
        phase: NDArray[np.int64] | None = None,
    ) -> tuple[Array, Array]:
        """The lower and upper ends, (B, Q) each, of the next B rows: NaN before a signal's first reading.

        Args:
            predictions: The predictions (B, Q).
            readings: The readings (B, S) of all signals, NaN where missing.
            gap: The rows (B,) that do not follow the row before.
            phase: The phases (B, 2) of each row in the short and in the long cycle, from 0 on, −1 where unknown.
        """
        predictions = np.ascontiguousarray(predictions, np.float64)
        low, high = np.empty(predictions.shape), np.empty(predictions.shape)
        if phase is None:
            phase = _ANY_PHASE if len(gap) == 1 else np.full((len(gap), 2), -1, np.int64)
        direct(kernels.intervals)(
            predictions,
            np.ascontiguousarray(readings, np.float64),
            np.ascontiguousarray(gap, np.bool_),
            np.ascontiguousarray(phase, np.int64),
            *self._arguments,
            low,
            high,
        )
        return low, high

    @property
    def calibrated(self) -> NDArray[np.bool_]:
        """Which questions' intervals have proved right: the returns of 100 horizons are known, and of the later ones
        about as many fell inside as wanted (to a quarter of the share that may fall outside), or there was no error."""
        labels, error, covered = (
            self._of_each(row, 1)[:, 0] for row in (kernels.LABELS, kernels.ERROR, kernels.COVERED)
        )
        enough = labels * self._every >= ENOUGH / (1.0 - self.gamma)
        close = np.abs(covered - self.coverage) <= 0.25 * (1.0 - self.coverage)
        calibrated: NDArray[np.bool_] = enough & (close | (error == 0.0))
        return calibrated

    def _of_each(self, row: int, count: int) -> Array:
        """So many rows of what each question carries, (Q, count)."""
        return self._rows[self._block, self._lane, row // kernels.LANES : row // kernels.LANES + count]

    def _bins_of_each(self) -> Array:
        """The bins of each block and lane."""
        return self._bins.reshape(len(self._state), -1, kernels.BIN, kernels.LANES).transpose(0, 3, 1, 2)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """A copy of the state, by name, as it is saved: not in lanes."""
        vectors = self._of_each(kernels.WEIGHTS, 4 * kernels.FEATURES).reshape(-1, 4, kernels.FEATURES)
        products = np.zeros((len(vectors), kernels.FEATURES, kernels.FEATURES))
        products[:, *np.tril_indices(kernels.FEATURES)] = self._of_each(kernels.PRODUCTS, kernels.PAIRS)
        scales = self._of_each(kernels.WIDTHS, 3 * kernels.WAYS).reshape(-1, 3, kernels.WAYS).transpose(0, 2, 1)
        return {
            "scalars": self._of_each(kernels.SEEN, (kernels.WEIGHTS - kernels.SEEN) // kernels.LANES),
            "vectors": vectors,
            "products": products,
            "kept": self._kept.copy(),
            "scales": np.ascontiguousarray(scales),
            "bins": self._bins_of_each()[self._block, self._lane],
        }

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore what ``arrays`` returned; ValueError if it does not fit."""
        state = self.arrays()
        _restore(state, arrays, "intervals")
        self._take(state)

    def _take(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Put the state into lanes."""
        Q, products = len(self.gamma), arrays["products"][:, *np.tril_indices(kernels.FEATURES)]
        vectors, scales = arrays["vectors"].reshape(Q, -1), arrays["scales"].transpose(0, 2, 1).reshape(Q, -1)
        rows = np.concatenate([arrays["scalars"], vectors, products, scales], axis=1)
        self._rows[self._block, self._lane, : kernels.SAVED // kernels.LANES] = rows
        self._kept[:] = arrays["kept"]
        self._bins_of_each()[self._block, self._lane] = arrays["bins"]
        remainder = np.fmod(self._of_each(kernels.LABELS, 1), self._of_each(kernels.PERIOD, 1))[:, 0]
        self._rows[self._block, self._lane, kernels.REMAINDER // kernels.LANES] = remainder


def _restore(arrays: Mapping[str, NDArray[Any]], saved: Mapping[str, NDArray[Any]], owner: str) -> None:
    """Fill arrays with what was saved of them; ValueError if that does not fit."""
    for name, array in arrays.items():
        stored = np.asarray(saved.get(name))
        if stored.shape != array.shape or stored.dtype != array.dtype or not np.isfinite(stored).all():
            raise ValueError(f"the array {name!r} of the {owner} does not fit")
        array[:] = stored


def _power(base: float, exponent: int) -> float:
    """A power with the last bits that numba gives it."""
    power = 1.0
    if exponent > 1 << 16:
        return base**exponent
    while exponent:
        power *= base if exponent & 1 else 1.0
        base, exponent = base * base, exponent >> 1
    return power


def _delay(gamma: float) -> int:
    """The rows after which a return is taken as known: γᵏ ≤ ``REST``."""
    return 1 if gamma <= REST else math.ceil(math.log(REST) / math.log(gamma) - 1e-9)


# ---------------------------------------------------------------------- alarms

#: The state of a signal, of a question and of a tail, and what came later: see the kernel.
_ALARM_SCALARS, _ERRORS, _TAIL, _SUMS, _FURTHER_TAILS = 6, 4, 5, 4, 3


class Alarms:
    """The alarms of S signals that have Q questions in all, and their state from row to row.

    Args:
        signals: The place of each question's signal among the readings.
        gamma: The discounts of the questions (Q,), below 1.
        rate: The number of false alarms per row and signal that is tolerated.

    ``places`` (S,) are the places of the signals among the readings.

    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(5000, 1))
    >>> x[4000] = 12.0
    >>> anomaly, why = Alarms([0], np.zeros(1), 1e-4)(np.zeros((5000, 1)), x, np.zeros(5000, bool))
    >>> int(np.argmax(why[:, 0] > 0)), bool(anomaly[4000, 0] > 4.0), WHY[why[4000, 0] - 1]
    (4000, True, 'too high')
    """

    def __init__(self, signals: Sequence[int], gamma: Array, rate: float) -> None:
        self.rate, self.gamma = rate, np.ascontiguousarray(gamma, np.float64)
        by_signal: dict[int, list[int]] = {}
        for q in np.argsort(self.gamma, kind="stable").tolist():
            by_signal.setdefault(int(signals[q]), []).append(q)
        self.places = np.array(list(dict.fromkeys(signals)), np.int64)
        count = np.array([len(by_signal[c]) for c in self.places.tolist()], np.int64)
        S, H = len(self.places), int(count.max(initial=0))
        questions = np.zeros((S, H), np.int64)
        for i, c in enumerate(self.places.tolist()):
            questions[i, : count[i]] = by_signal[c]
        self.scalars, self.errors = np.zeros((S, _ALARM_SCALARS)), np.zeros((S, H, _ERRORS))
        self.tails = np.zeros((S, H + 2, _TAIL))
        self.tails[:, :, :4] = math.log(3.0), 0.5, 0.5, 1.0  # until more is known
        self.tails[:, 1, 0] = 0.0
        self.further, self.further_tails = np.zeros((S, _SUMS)), np.zeros((S, _FURTHER_TAILS, _TAIL))
        self.further_tails[:, :, :4] = math.log(3.0), 0.5, 0.5, 1.0
        self.further_tails[:, -1, 0] = 0.0
        threshold = np.array([-math.log10(rate)])
        self._arguments = (
            self.places,
            questions,
            count,
            self.gamma,
            threshold,
            self.scalars,
            self.errors,
            self.tails,
            self.further,
            self.further_tails,
            np.empty(self.tails.shape[1]),
            np.empty(self.further_tails.shape[1]),
        )

    def __call__(self, predictions: Array, readings: Array, gap: NDArray[np.bool_]) -> tuple[Array, NDArray[np.int8]]:
        """The scores of the next B rows and why there is an alarm, (B, S) each: a place in ``WHY`` counted from 1, 0
        where there is no alarm.

        Args:
            predictions: The predictions (B, Q).
            readings: The readings (B, …) of all signals, NaN where missing.
            gap: The rows (B,) that do not follow the row before.
        """
        anomaly = np.empty((len(gap), len(self.places)))
        why = np.empty(anomaly.shape, np.int8)
        direct(alarms)(
            np.ascontiguousarray(predictions, np.float64),
            np.ascontiguousarray(readings, np.float64),
            np.ascontiguousarray(gap, np.bool_),
            *self._arguments,
            anomaly,
            why,
        )
        return anomaly, why

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The state, by name."""
        arrays = {"scalars": self.scalars, "errors": self.errors, "tails": self.tails}
        return arrays | {"further": self.further, "further_tails": self.further_tails}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore what ``arrays`` returned; ValueError if it does not fit."""
        _restore(self.arrays(), arrays, "alarms")


#: How many alarms are listed with their rows; of the others only their number is.
KEPT = 50


@dataclass(order=True)
class _Alarm:
    """Consecutive rows in which a signal is in alarm."""

    score: float
    row: int
    signal: str
    time: float = field(compare=False)
    why: str = field(compare=False)
    rows: int = field(default=0, compare=False)

    def facts(self) -> dict[str, Any]:
        return {
            "signal": self.signal,
            "row": self.row,
            "time": self.time,
            "rows": self.rows,
            "anomaly": self.score,
            "why": self.why,
        }


def alarms_by_signal(summary: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """How many alarms each signal had. Every horizon of a signal has the same number.

    Args:
        summary: The objects of ``summary.json``.

    >>> alarms_by_signal([{"signal": "x", "alarms": 3}, {"signal": "x", "alarms": 3}, {"text": "x at +1h"}])
    {'x': 3}
    """
    return {score["signal"]: score["alarms"] for score in summary if "alarms" in score}


class AlarmList:
    """The alarms of a whole log: how many each signal raised, and when the highest of them were.

    They are gathered from blocks of rows in order. Consecutive rows in alarm are one, and the row with the highest
    score says why.

    Args:
        signals: The signals, in the order of the columns.

    >>> alarms = AlarmList(["x"])
    >>> alarms.add(10, np.array([[1.0], [4.5], [6.0], [0.5]]), np.array([[0], [3], [1], [0]]), None)
    >>> alarms.counts()
    {'x': {'alarms': 1, 'alarm_rows': 2}}
    >>> [(alarm["row"], alarm["rows"], alarm["anomaly"], alarm["why"]) for alarm in alarms.highest()]
    [(11, 2, 6.0, 'too high')]
    """

    def __init__(self, signals: Sequence[str]) -> None:
        self._signals = list(signals)
        self._counts = {name: {"alarms": 0, "alarm_rows": 0} for name in self._signals}
        self._latest: dict[str, _Alarm] = {}
        self._highest: list[_Alarm] = []

    def add(
        self, start: int, anomaly: NDArray[np.float64], why: NDArray[np.integer[Any]], time: NDArray[np.float64] | None
    ) -> None:
        """Add the next rows.

        Args:
            start: The number of the first of them.
            anomaly: The scores (B, S).
            why: The reasons of the alarms (B, S), 0 where there is none.
            time: The times (B,).
        """
        for c, name in enumerate(self._signals):
            rows = np.flatnonzero(why[:, c])
            for run in np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1) if len(rows) else []:
                begin, highest = int(run[0]), int(run[np.argmax(anomaly[run, c])])
                latest, score, reason = self._latest.get(name), anomaly[highest, c], WHY[int(why[highest, c]) - 1]
                if latest is None or start + begin > latest.row + latest.rows:
                    self._list(latest)
                    self._counts[name]["alarms"] += 1
                    when = float("nan") if time is None else float(time[begin])
                    latest = self._latest[name] = _Alarm(float(score), start + begin, name, when, reason)
                elif score > latest.score:  # it began in the rows before
                    latest.score, latest.why = float(score), reason
                latest.rows += len(run)
                self._counts[name]["alarm_rows"] += len(run)

    def _list(self, alarm: _Alarm | None) -> None:
        if alarm is not None:
            (heapq.heappush if len(self._highest) < KEPT else heapq.heappushpop)(self._highest, alarm)

    def counts(self) -> dict[str, dict[str, int]]:
        """For each signal how many alarms it raised, and the rows in alarm."""
        return self._counts

    def highest(self) -> list[dict[str, Any]]:
        """The alarms with the highest scores, in the order of their rows."""
        for name in list(self._latest):
            self._list(self._latest.pop(name))
        return [alarm.facts() for alarm in sorted(self._highest, key=lambda alarm: (alarm.row, alarm.signal))]


def write_reasons(why: NDArray[np.int8]) -> pa.Array:
    """The reasons of a signal's alarms (B,) as words, null where there is no alarm.

    >>> write_reasons(np.array([0, 3], np.int8)).to_pylist()
    [None, 'stuck']
    """
    import pyarrow as pa

    return pa.DictionaryArray.from_arrays(pa.array(why - 1, pa.int8(), mask=why == 0), pa.array(WHY))


def read_reasons(words: pa.ChunkedArray) -> NDArray[np.int8]:
    """The numbers of the reasons that ``write_reasons`` wrote."""
    import pyarrow as pa
    import pyarrow.compute as pc

    numbers: NDArray[np.int8] = pc.index_in(words.cast(pa.string()), pa.array(WHY)).fill_null(-1).to_numpy()
    return (numbers + 1).astype(np.int8)


# ---------------------------------------------------------------------- both


def find_phases(time: Array, step: float) -> NDArray[np.int64]:
    """The phases (B, 2) of rows in a short and in a long cycle of the calendar; −1 where a time is missing.

    Args:
        time: Seconds since 1970 (B,), NaN where missing.
        step: The usual seconds from row to row: rows finer than a day have an hour of the day and of the week, others
            a day of the week and a month. Rows of more than three days have no day of the week.

    >>> find_phases(np.array([0.0, 90_000.0, np.nan]), 3600.0).tolist()  # 1970 began on a Thursday
    [[0, 72], [1, 97], [-1, -1]]
    >>> find_phases(np.array([0.0, 32.0 * 86_400.0]), 86_400.0).tolist()
    [[3, 0], [0, 1]]
    """
    hourly = not step >= 0.9 * 86_400.0
    if len(time) == 1 and hourly and abs(time.item(0)) < _LATEST:  # without arrays, where there is one row
        hour = math.floor(time.item(0) / 3600.0)
        return np.array([[hour % 24, (hour + 72) % 168]], np.int64)
    known = np.abs(time) < _LATEST
    seconds = np.where(known, time, 0.0)
    hours = np.floor(seconds / 3600.0).astype(np.int64)
    days = hours // 24
    if hourly:
        phases = np.stack([hours % 24, (hours + 72) % 168], axis=1)
    else:
        months = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64) % 12
        weekdays = (days + 3) % 7 if step <= 3 * 86_400.0 else np.full(len(days), -1)
        phases = np.stack([weekdays, months], axis=1)
    phases[~known] = -1
    return phases


class Derived:
    """What is derived for the questions of a horde, and its state from row to row.

    Questions about a signal that have a constant γ < 1 and no policy get intervals: ``questions`` are their places
    among the horde's. Their ``signals`` get alarms. The last questions, of the user's own, get intervals whatever they
    ask, what is usual, and scores (``emphatic.asking.gvfs``). ValueError if a column would have the name of a question.

    Args:
        horde: The horde.
        coverage: The share of returns that are to fall inside their intervals.
        false_alarm_rate: The number of false alarms per row and signal that is tolerated.
        dated: Whether times are seconds since 1970, so that rows have a time of day and of week.
        own: How many of the last questions are the user's own.
        rows: The number of rows, where it is known: own questions are scored in the second half. Otherwise in all.
    """

    def __init__(
        self,
        horde: Horde,
        coverage: float,
        false_alarm_rate: float = FALSE_ALARM_RATE,
        dated: bool = False,
        own: int = 0,
        rows: int | None = None,
    ) -> None:
        gamma = horde.gamma
        self.questions = np.array(
            [
                q
                for q, question in enumerate(horde.questions)
                if horde.scaled and question.policy is None and question.cumulant in horde.signals and 0 <= gamma[q] < 1
            ],
            np.int64,
        )
        signals = [horde.signals.index(horde.questions[q].cumulant) for q in self.questions]
        #: The hours of the week are left out where they would take too much memory.
        self._cycles = CYCLES if horde.setup.weekly else (CYCLES[0], 0)
        self._dated, self._step = dated, math.nan if horde.step is None else float(horde.step)
        self.intervals = Intervals(signals, gamma[self.questions], coverage, self._cycles if dated else (0, 0))
        self.alarms = Alarms(signals, gamma[self.questions], false_alarm_rate)
        self.signals = tuple(horde.signals[c] for c in self.alarms.places.tolist())
        self._Q, self._all = len(gamma), len(self.questions) == len(gamma)
        #: The columns of ``predictions.parquet``: the name of each, its kind, and its place among those of this kind.
        self.names = [(f"{horde.names[q]}.{end}", end, q) for q in self.questions.tolist() for end in ENDS]
        self.names += [(f"{name}.{kind}", kind, i) for i, name in enumerate(self.signals) for kind in OF_A_SIGNAL]
        self._horde, self._own = horde, np.arange(len(gamma) - own, len(gamma))
        covered = set(self.questions.tolist())
        given = [i for i, q in enumerate(self._own.tolist()) if q in covered]
        #: The returns of the user's own questions.
        self.returns = FollowedGVFs(
            horde.questions[len(gamma) - own :],
            horde.signals,
            horde.categories,
            horde.step,
            coverage,
            dated,
            rows,
            given,
        )
        twice = {name for name, _, _ in self.names}.intersection(horde.names)
        if twice:
            raise ValueError(
                f"question {min(twice)!r}: this is the name of a column of intervals or alarms. Give it another name."
            )
        # (a question that has had one of these names keeps it)
        columns = {*horde.names, *(name for name, _, _ in self.names)}
        more = [(f"{horde.names[q]}.{kind}", kind, q) for q in self._own.tolist() for kind in (*ENDS, USUAL)]
        self.names += [entry for entry in more if entry[0] not in columns]

    def __call__(
        self,
        predictions: Array,
        readings: Array,
        gap: NDArray[np.bool_],
        time: Array | None = None,
        guarded: Array | None = None,
        labels: Mapping[str, Sequence[Any] | NDArray[np.object_]] | None = None,
    ) -> dict[str, NDArray[Any]]:
        """What is derived at the next B rows, by kind.

        Args:
            predictions: The predictions (B, Q).
            readings: The readings (B, S) of all signals, NaN where missing: alarms are raised about these.
            gap: The rows (B,) that do not follow the row before.
            time: The times (B,) of the rows, NaN where missing.
            guarded: The readings to learn intervals from, by a ``ReadingGuard``; by default ``readings``.
            labels: The words of each category, (B,) each: policies may name them.

        Returns:
            ``low`` and ``high`` (B, Q), NaN where a question has no interval; ``anomaly``, ``alarm`` and ``why``
            (B, S), a column for each of ``signals``; where there are own questions ``usual`` (B, Q), and ``mark``
            (B, Q), the number of each answer's mark as of the last of these rows (``emphatic.hordes.possible``).
        """
        plain = predictions if self._all else predictions[:, self.questions]
        phase = find_phases(time, self._step) if self._dated and time is not None else None
        if phase is not None and not self._cycles[1]:
            phase[:, 1] = -1
        low, high = self.intervals(plain, readings if guarded is None else guarded, gap, phase)
        if not self._all:
            low, high = self._spread(low), self._spread(high)
        anomaly, why = self.alarms(plain, readings, gap)
        derived: dict[str, NDArray[Any]] = {"low": low, "high": high, "anomaly": anomaly, "alarm": why > 0, "why": why}
        if len(self._own):
            own = self._own
            sound = readings if guarded is None else np.where(np.isnan(guarded), np.nan, readings)
            ends = self.returns(predictions[:, own], sound, gap, time, labels or {}, low[:, own], high[:, own])
            derived["usual"] = np.full(predictions.shape, np.nan)
            for kind, columns in ends.items():
                derived[kind][:, own] = columns
            has_policy = [question.policy is not None for question in self._horde.questions]
            possible = np.where(has_policy, self._horde.possible, [[-np.inf], [np.inf]])  # others may go on to rise
            derived["mark"] = find_marks(predictions, possible, self._horde.support)
            derived["mark"][:, : own[0]] = 0
            self.returns.note(possible[:, own], derived["mark"][:, own])
        return derived

    def _spread(self, ends: Array) -> Array:
        """Ends of intervals with a column for every question."""
        columns = np.full((len(ends), self._Q), np.nan)
        columns[:, self.questions] = ends
        return columns

    def columns(self, derived: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any] | pa.Array]:
        """The columns of ``predictions.parquet``, by name."""
        return {
            name: write_reasons(derived[kind][:, place])
            if kind == "why"
            else np.ascontiguousarray(derived[kind][:, place])
            for name, kind, place in self.names
        }

    def state(self) -> dict[str, Any]:
        """What is saved with the horde."""
        arrays: dict[str, Any] = {}
        for owner, kind in self._kinds():
            for name, array in kind.arrays().items():
                arrays[f"{owner}.{name}"] = array
        return arrays | self.returns.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what was saved with the horde; afresh, if it was saved without intervals or alarms.

        ValueError if what was saved does not fit.
        """
        for owner, kind in self._kinds():
            prefix = f"{owner}."
            arrays = {name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)}
            if arrays:
                kind.restore(arrays)
        self.returns.restore(state)

    def _kinds(self) -> list[tuple[str, Intervals | Alarms]]:
        """Each with the name that its state is saved under."""
        return [("intervals", self.intervals), ("alarms", self.alarms)]
