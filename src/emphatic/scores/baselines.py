"""Baselines: what predicts a return without learning online.

A baseline is one ``Baseline`` in ``__all__`` of a module of this package, or an entry point of another package in the
group ``emphatic.baselines``. Every score of a log has it under its name.

Those that use the past alone are causal, and predictions are judged by the best of them (``scores.measures``):

    persistence     the present reading
    mean            the mean of the readings so far; ``past_mean`` is the same. Of questions that are asked in text,
                    ``mean`` is that of the first half
    last_day        what followed one day ago; ``last_week`` and ``last_year`` likewise, as the step of the rows allows
    last_period     what followed one period ago: the longer of the signal's periods so far (``hordes.seasons``)
    climatology     the mean so far at the hours that follow (at days of the week, or months, of slower rows)
    rate, so_now    of events: how often they came in the first half, and whether it is so now

The *offline ridge fit* is made in hindsight: ridge regression of the returns on the inputs of the online predictions,

    θ, w = argmin Σ_t (G_t − c − θ·φ_t − w·u_t)² + r ‖θ‖²

on the known returns of the first half of a log, φ being the same features and u the same answers that need no learning:
the present reading, and its trace over the horizon (``PlainAnswers``). The intercept c and w are free: all
is centred on its means, and only θ is shrunk. The strength r is one of ``STRENGTHS`` times the mean square of an active
feature's value, so that it counts in rows; for each question the one that does best on the last fifth of the first
half, after fitting on what comes before, is used to fit the whole first half. The fit is then scored on the second
half, on which it learns nothing. All it needs of the rows are sums, so that one pass does: the first half is summed and
fitted, the second half predicted.

Returns near the end of the first half reach into the second, and are used too: if anything, this favours the baseline.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from emphatic.common.discovery import discover
from emphatic.engines.compiled import blas_threads
from emphatic.learning.inputs import Active, refusal
from emphatic.scores.returns import Bits, count_bits, share_masks, unpack_bits

# The scores have the baselines in this order.
__all__ = ["PERSISTENCE", "MEAN", "PAST_MEAN", "LAST_DAY", "LAST_WEEK", "LAST_YEAR", "LAST_PERIOD", "CLIMATOLOGY"]  # noqa: RUF022
__all__ += ["OFFLINE", "STRENGTHS", "Baseline", "Calendar", "FirstHalf", "OfflineFit", "PlainAnswers"]
__all__ += ["RunningMean", "blocks", "describe_baseline", "find_baselines", "offline", "running_mean"]

Array = NDArray[np.float64]
Features = Callable[[], Iterator[Active]]
#: Predictions (Q, B) of the next rows, from their readings (B, C) and where these are missing.
Predictor = Callable[[Array, NDArray[np.bool_]], Array]
#: The same, with the times of the rows (B,) in seconds since 1970 besides.
TimedPredictor = Callable[[Array, NDArray[np.bool_], Array], Array]

#: Ridge strengths, in rows.
STRENGTHS = 10.0 ** np.arange(-2, 7)
#: Rows of a block of a factor; its first row, the row after its last, and the inverse of its part of L.
FACTOR_BLOCK = 48
_Blocks = list[tuple[int, int, Array]]
#: Solving for more features than this would take minutes.
_FEATURES = 4096
#: Bytes for the sums of φφᵀ that are gathered in one pass.
ROOM = 2**28
#: What is added to the square of an answer, in its own unit: two answers may be the same.
_SLIGHT = 1e-6
#: The keys of a question's scores that are no baseline and no measure.
RESERVED = {
    *("signal", "horizon", "gamma", "skill", "first_half", "answers", "ratio_to_offline", "known", "reasons"),
    *("baselines", "verdict", "best_baseline", "skill_best", "skill_best_low", "skill_best_high"),
    *("coverage", "interval_score", "calibrated", "alarms", "alarm_rows", "guarded", "reading"),  # added by nexting
    *("periods", "signals", "text", "question", "rate", "so_now"),
}
#: Baselines in words.
_WORDS = {
    "persistence": "the last value",
    "mean": "the mean",
    "past_mean": "the mean so far",
    "last_day": "the day before",
    "last_week": "the week before",
    "last_year": "the year before",
    "last_period": "the last period",
    "last_longer_period": "the last longer period",
    "usual_day": "what is usual at that time of day",
    "usual_week": "what is usual at that time of the week",
    "usual_year": "what is usual at that time of the year",
    "usual_period": "what is usual at that time of the period",
    "usual_longer_period": "what is usual at that time of the longer period",
    "moving_average": "the moving average",
    "drift": "the last period and the mean rise",
    "climatology": "what is usual at that hour",
    "rate": "the usual rate",
    "so_now": "what is so now",
}
_DAY, _WEEK, _YEAR = 86_400.0, 604_800.0, 365.2425 * 86_400.0
#: 1970-01-05 was a Monday.
_MONDAY = 4 * _DAY
#: Numbers between the rows of an array that is written column by column: if rows are a power of two apart, all of a
#: column share a few lines of the processor's cache.
_APART = 8
#: Bytes of the readings that are remembered for one baseline: a longer cycle is left out.
_REMEMBERED = 1 << 28


# ------------------------------------------------------------------ declarations


class HindsightFit(Protocol):
    """A fit to the first half of a log that predicts the second half, as ``OfflineFit`` is one.

    The rows are passed in order ``passes`` times or more, all but the last time those of the first half only; what
    exceeds its own passes it ignores.
    """

    #: How often it needs the rows.
    passes: int

    @property
    def room(self) -> int:
        """The bytes that it takes."""

    @property
    def reasons(self) -> list[str]:
        """Why there is no fit, of each question; "" where there is."""

    def add(self, start: int, index: NDArray[np.int64], value: Array, G: Array, answers: Array | None = None) -> Array:
        """The next rows: active features (B, k), returns (Q, B) and plain answers (a, Q, B).

        Returns predictions (Q, B), NaN in the first half.
        """


@dataclass(frozen=True)
class Baseline:
    """A prediction without online learning, with which the learned predictions are compared.

    It is computed from readings, by ``start``; from readings and their times, by ``follow``; from an ``answer`` that
    was kept while learning; or in hindsight from returns and features, by ``fit``. Questions are ordered by signal,
    then horizon.

    Args:
        name: Its key in the scores.
        start: ``start(gammas, C)``, with the discounts of the H horizons and the number of signals, begins a log. The
            function that it returns is called with the values (B, C) of the next rows, with the last value where one is
            missing, and with a mask of the missing ones (B, C). It returns predictions (C·H, B), in which row t depends
            on rows up to t.
        fit: ``fit(n, T, H, half, a)``, with the numbers of features, rows, horizons and plain answers and the
            ``FirstHalf``, begins a fit such as ``OfflineFit``.
        follow: ``follow(gammas, C, calendar)`` begins a log as ``start`` does, or returns None if the ``Calendar`` has
            no such cycle. The function that it returns also gets the times of the rows. Before the cycle has passed
            once, the prediction may be NaN; it is then scored as the current value.
        answer: The name of a candidate prediction of a horde, which is the prediction.
    """

    name: str
    start: Callable[[Array, int], Predictor] | None = None
    fit: Callable[[int, int, int, FirstHalf, int], HindsightFit] | None = None
    follow: Callable[[Array, int, Calendar], TimedPredictor | None] | None = None
    answer: str | None = None

    def __post_init__(self) -> None:
        ways = [way for way in (self.start, self.fit, self.follow, self.answer) if way is not None]
        if len(ways) != 1:
            given = "More than one was given." if ways else "None was given."
            raise ValueError(f"Baseline needs one of 'start', 'fit', 'follow' and 'answer'. {given}")


def describe_baseline(name: str) -> str:
    """A baseline in words.

    >>> describe_baseline("last_day")
    'the day before'
    """
    return _WORDS.get(name, name)


@functools.cache
def find_baselines() -> dict[str, Baseline]:
    """All baselines by name: those of this package, then those of others."""
    return find_members("emphatic.baselines", Baseline, "a Baseline")


def find_members(group: str, kind: type[Any], wanted: str) -> dict[str, Any]:
    """The declarations of a kind in the modules of this package and in a group of entry points, by name.

    Raises:
        ValueError: if two have one name, or one has the name of another key of the scores.
    """
    plugins = discover("emphatic.scores", group)
    members: dict[str, Any] = {}
    for plugin in plugins:
        if plugin == "kernels":  # numba is imported on first use
            continue
        for member in plugins.objects(plugin, lambda value: isinstance(value, kind), wanted):
            if member.name in members or member.name in RESERVED:
                where = plugin if plugin in plugins.files else f"the entry point {plugin!r} of {group!r}"
                raise ValueError(f"The name {member.name!r} of {wanted} in {where} is taken: scores have it already.")
            members[member.name] = member
    return members


# ------------------------------------------------------------------ without learning


def _persist(gammas: Array, C: int) -> Predictor:
    """The present reading."""
    return lambda held, missing: np.repeat(held.T, len(gammas), axis=0)


def _average(gammas: Array, C: int) -> Predictor:
    """The mean of the readings so far."""
    mean = RunningMean(C)
    return lambda held, missing: np.repeat(mean(held, missing).T, len(gammas), axis=0)


class Cycle(NamedTuple):
    """A cycle of the calendar: its length and when it begins, in seconds since 1970, and its bins of climatology."""

    period: float
    begin: float = 0.0
    bins: int = 1


class Calendar(NamedTuple):
    """What is known of the times of a log.

    Args:
        step: The usual step between two rows, in seconds; None where rows have no dates.
        rows: The number of rows.

    >>> Calendar(3600.0, 1000).cycles
    {'last_day': Cycle(period=86400.0, begin=0.0, bins=24), 'last_week': Cycle(period=604800.0, begin=345600.0, bins=7)}
    """

    step: float | None
    rows: int

    @property
    def cycles(self) -> dict[str, Cycle]:
        """The cycles that rows of this step may follow, the shortest first, by the name of their baseline."""
        step = self.step
        if step is None or not 0.0 < step <= 0.5 * _YEAR:
            return {}
        week = Cycle(_WEEK, _MONDAY, 7)
        if step <= 0.5 * _DAY:
            return {"last_day": Cycle(_DAY, 0.0, min(24, max(2, round(_DAY / step)))), "last_week": week}
        year = Cycle(_YEAR, 0.0, min(12, max(2, round(_YEAR / step))))
        return {"last_week": week, "last_year": year} if step <= 0.5 * _WEEK else {"last_year": year}

    def passes(self, cycle: Cycle) -> bool:
        """Whether the cycle has passed once before the second half of the log, which is scored."""
        return self.step is not None and 2.0 * cycle.period <= self.step * self.rows


def _repeat(name: str) -> Callable[[Array, int, Calendar], TimedPredictor | None]:
    """What followed one cycle ago."""

    def follow(gammas: Array, C: int, calendar: Calendar) -> TimedPredictor | None:
        cycle = calendar.cycles.get(name)
        if cycle is None or calendar.step is None or not calendar.passes(cycle):
            return None
        period = round(cycle.period / calendar.step)
        return LastCycle(gammas, C, calendar.step, period) if 8 * C * period <= _REMEMBERED else None

    return follow


class LastCycle:
    """What followed one cycle ago, of C signals, one block of rows after the other.

    Rows are put in places of a regular grid by their times; a row without one follows the row before.

    Args:
        gammas: The discount of each horizon.
        C: The number of signals.
        step: The usual step in seconds.
        period: The length of the cycle in rows.

    >>> gammas, x = np.array([0.0]), np.arange(6.0)[:, None] % 3
    >>> LastCycle(gammas, 1, 1.0, 3)(x, np.zeros((6, 1), bool), np.arange(6.0)).tolist()
    [[nan, nan, nan, 1.0, 2.0, 0.0]]
    """

    def __init__(self, gammas: Array, C: int, step: float, period: int) -> None:
        self._gammas, self._step, self._period = np.ascontiguousarray(gammas, np.float64), step, period
        lasting = np.full(len(self._gammas), float(period))  # further ahead the weights are below rounding errors
        np.divide(37.0, 1.0 - self._gammas, out=lasting, where=self._gammas < 1.0)
        self._paths = np.where(self._gammas > 0.0, np.minimum(period, lasting.astype(np.int64) + 1), 1)
        self._ring, self._sums = np.zeros((period + 1, C)), np.zeros((len(self._gammas), C))
        self._origin, self._place, self._filled = math.nan, -1, 0

    def __call__(self, held: Array, missing: NDArray[np.bool_], time: Array) -> Array:
        """Predictions (C·H, B) at the next rows."""
        from emphatic.scores import kernels

        place, x = self._places(time), np.nan_to_num(np.ascontiguousarray(held), nan=0.0)
        out = np.empty((self._sums.size, len(held) + _APART))
        arrays = self._gammas, self._paths, self._filled, self._ring, self._sums
        self._filled = kernels.repeat_path(x, place, self._place, self._period, *arrays, out)
        self._place = int(place[-1]) if len(place) else self._place
        return out[:, : len(held)]

    def _places(self, time: Array) -> NDArray[np.int64]:
        """The place of each row on the grid, never before that of the row before."""
        known = np.isfinite(time)
        if math.isnan(self._origin) and known.any():
            self._origin = float(time[np.argmax(known)])
        counted = self._place + 1 + np.arange(len(time))
        place = np.where(known, np.rint((time - self._origin) / self._step), -1.0).astype(np.int64)
        place = np.where(known, place, counted if not known.any() else self._place)
        highest: NDArray[np.int64] = np.maximum.accumulate(np.maximum(place, max(self._place, 0)))
        return highest


def _climatology(gammas: Array, C: int, calendar: Calendar) -> TimedPredictor | None:
    """The mean so far at the hours that follow, or at the days or months of rows that are too far apart for hours."""
    cycle = next(iter(calendar.cycles.values()), None)
    if cycle is None or calendar.step is None or not calendar.passes(cycle):
        return None
    width = cycle.period / (cycle.bins * calendar.step)
    climate, discounts = np.zeros((C, 2, cycle.bins + 1)), np.ascontiguousarray(gammas, np.float64)

    def predict(held: Array, missing: NDArray[np.bool_], time: Array) -> Array:
        from emphatic.scores import kernels

        with np.errstate(invalid="ignore"):
            turns = (time - cycle.begin) / cycle.period
            # (times on the edge of a bin belong to the bin that begins there, whatever rounding does)
            phase = np.ascontiguousarray(((turns - np.floor(turns)) * cycle.bins + 1e-6) % cycle.bins)
        phase[~np.isfinite(phase)] = math.nan
        out = np.empty((C * len(discounts), len(held) + _APART))
        x, gone = np.ascontiguousarray(held), np.ascontiguousarray(missing)
        kernels.follow_climate(x, gone, phase, discounts, width, climate, out)
        return out[:, : len(held)]

    return predict


class PlainAnswers:
    """The answers to a question that need no learning: the present reading, and its trace over the horizon.

    They are those of C signals at H horizons, one block of rows after the other. Both the online blend
    (``emphatic.hordes.blend``) and the offline fit use them.
    """

    def __init__(self, gammas: ArrayLike, C: int) -> None:
        self._gammas = [float(gamma) for gamma in np.asarray(gammas, np.float64)]
        self._traces = np.full((C * len(self._gammas), 1), np.nan)

    def __call__(self, held: NDArray[np.float64]) -> NDArray[np.float64]:
        """(2, Q, B) of the next rows (B, C), in which the last reading is held where one is missing."""
        from emphatic.scores import kernels

        H = len(self._gammas)
        answers = np.empty((2, len(self._traces), len(held)))
        for q, state in enumerate(self._traces):
            x = np.ascontiguousarray(held[:, q // H], np.float64)
            answers[0, q] = x
            kernels.forward(x, self._gammas[q % H], state, answers[1, q])
        return answers


class RunningMean:
    """The mean of the readings of C signals so far, one block of rows after the other."""

    def __init__(self, C: int) -> None:
        self._centre = np.full(C, np.nan)  # a signal far from 0 would lose digits in long sums
        self._total, self._count = np.zeros(C), np.zeros(C, np.int64)

    def __call__(self, values: NDArray[np.float64], missing: NDArray[np.bool_]) -> NDArray[np.float64]:
        """For each of the next rows (B, C) the mean up to and including it; NaN before the first reading."""
        if not len(values):
            return np.empty(values.shape)
        earliest = np.take_along_axis(values, np.argmin(missing, axis=0)[None], axis=0)[0]
        self._centre = np.where((self._count == 0) & ~missing.all(axis=0), earliest, self._centre)
        departures = np.where(missing, 0.0, values - self._centre)
        total = np.cumsum(np.vstack([self._total, departures]), axis=0)[1:]
        count = self._count + np.cumsum(~missing, axis=0)
        self._total, self._count = total[-1], count[-1]
        with np.errstate(invalid="ignore", divide="ignore"):
            mean: NDArray[np.float64] = self._centre + total / count
        return mean


def running_mean(x: NDArray[np.float64], missing: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The mean of the values up to and including each row; NaN before the first.

    Args:
        x: The values of a signal, (T,).
        missing: Where there is none, (T,).

    >>> running_mean(np.array([1.0, 9.0, 3.0]), np.array([False, True, False])).tolist()
    [1.0, 1.0, 2.0]
    """
    return RunningMean(1)(np.asarray(x, np.float64)[:, None], missing[:, None])[:, 0]


# ------------------------------------------------------------------ the offline fit


class FirstHalf:
    """What must be known of the returns of the first half before the features are seen: where they are known (a bit
    a question and row), and their means, which keep digits in the sums. Blocks of rows come in any order."""

    def __init__(self, T: int, level: Array) -> None:
        self.half = T // 2
        self.bits = np.zeros((len(level), -(-self.half // 8)), np.uint8)
        self.level, self.total, self.count = level, np.zeros(len(level)), np.zeros(len(level), np.int64)

    def add(self, start: int, G: Array, known: NDArray[np.bool_]) -> None:
        """Rows from ``start`` on, a multiple of 8; (Q, B) each."""
        assert start % 8 == 0
        G, known = G[:, : max(0, self.half - start)], known[:, : max(0, self.half - start)]
        packed = np.packbits(known, axis=1)
        self.bits[:, start // 8 : start // 8 + packed.shape[1]] = packed
        self.total += np.where(known, G - self.level[:, None], 0.0).sum(axis=1)
        self.count += known.sum(axis=1)

    def of(self, questions: NDArray[np.int64]) -> FirstHalf:
        """The same for some of the questions."""
        subset = FirstHalf(2 * self.half, self.level[questions])
        subset.bits, subset.total, subset.count = self.bits[questions], self.total[questions], self.count[questions]
        return subset

    @property
    def centre(self) -> Array:
        """The mean return of each question; 0 where none is known."""
        mean: Array = self.level + self.total / np.maximum(1, self.count)
        return np.where(self.count > 0, mean, 0.0)


class OfflineFit:
    """The fit, from rows of features given in order: ``passes`` times, all but the last time only the first half.

    One pass is enough unless the questions' known rows differ so much, and the features are so many, that the sums
    would take more than 256 MiB. Each question has ``answers`` besides. ``strength`` (Q,) is each question's, in rows;
    NaN where nothing could be fitted or no strength chosen, and with more than some 4000 features active in the first
    half: ``reasons`` (Q,) explains why, or is "".
    """

    def __init__(self, n: int, T: int, H: int, first: FirstHalf, answers: int = 0) -> None:
        self.n, self.half, self._a = n, first.half, answers
        self._cut = self.half * 4 // 5
        self._centre = first.centre
        Q = len(self._centre)
        self.strength = np.full(Q, np.nan)
        self._masks, self._group = share_masks(first.bits, H)
        self._room = min(n, _FEATURES)
        self._keeps_rows = self.half <= self._room
        g = len(self._masks) if self._masks.any() else 0
        most = max(1, g if self._keeps_rows else ROOM // (16 * self._room**2) - 1)
        self._batches = [range(u, min(u + most, g)) for u in range(0, g, most)]
        self.passes = max(1, len(self._batches))
        self._place = np.full(n + 1, -1)  # of each feature in the sums; −1, none, is the last
        self._square = self._active = 0.0
        self._live = self._pass = 0
        self._W, self._c = np.zeros((0, Q)), np.full(Q, np.nan)
        self._w = np.zeros((Q, answers))
        self._sums: MaskedSums | KeptRows | None = None
        few = "fewer than two returns known in the first four fifths, or in the last fifth, of the first half"
        self.reasons = [few] * Q

    @property
    def room(self) -> int:
        """The bytes of the sums, or of the rows, of a pass."""
        if self._keeps_rows:
            return 3 * 8 * self.half * (self._room + 1)
        return 16 * self._room**2 * (1 + max(map(len, self._batches), default=0))

    def add(self, start: int, index: NDArray[np.int64], value: Array, G: Array, answers: Array | None = None) -> Array:
        """The next rows of a pass, from ``start`` on: active features (B, k), returns (Q, B) and answers (a, Q, B).

        Returns predictions (Q, B); NaN in the first half.
        """
        stop = start + len(index)
        u = np.empty((0, *G.shape)) if answers is None else answers - self._centre[:, None]
        if index.max(initial=-1) >= self.n:
            raise refusal("phi", "offline", f"have indices below n = {self.n}", str(index.max()))
        predictions = np.full(G.shape, np.nan)
        for a, b in pairwise([start, *(e for e in (self._cut, self.half) if start < e < stop), stop]):
            rows = slice(a - start, b - start)
            if b > self.half:
                predictions[:, rows] = self._predict(index[rows], value[rows], u[:, :, rows])
                continue
            if self._pass < len(self._batches):
                self._gather(a, index[rows], value[rows], G[:, rows], u[:, :, rows])
                if b == self.half:
                    self._fit_batch()
        return predictions

    def _gather(self, start: int, index: NDArray[np.int64], value: Array, G: Array, u: Array) -> None:
        batch = self._batches[self._pass]
        if self._pass == 0:
            self._survey(index, value)
            if self._live > self._room:
                self._batches, self._sums = [], None
                reason = f"more than {_FEATURES:,} active features would take too long to fit"
                self.reasons = [reason] * len(self.reasons)
                return
        members = np.isin(self._group, batch)
        if self._sums is None:
            group = self._group[members] - batch[0]
            gather = KeptRows if self._keeps_rows else MaskedSums
            self._sums = gather(self._masks[batch], group, self.half, self._cut, self._room, self._a)
        self._sums.add(start, self._place[index], value, G[members] - self._centre[members, None], u[:, members])

    def _survey(self, index: NDArray[np.int64], value: Array) -> None:
        """Give features a place when they are first active, and sum the squares of active values."""
        seen = np.zeros(self.n + 1, np.bool_)
        seen[index] = True
        new = np.flatnonzero(seen[: self.n] & (self._place[: self.n] < 0))
        self._place[new] = np.arange(self._live, self._live + len(new))
        self._live += len(new)
        active = value[index >= 0]
        self._square += float(np.sum(active**2))
        self._active += len(active)

    def _fit_batch(self) -> None:
        """The first half has been seen: fit the questions of this pass."""
        sums, batch = self._sums, self._batches[self._pass]
        self._sums, self._pass = None, self._pass + 1
        if sums is None or not self._live:
            return
        live = np.flatnonzero(self._place[: self.n] >= 0)
        order = self._place[live]
        self._place[live] = np.arange(len(live))
        if not len(self._W):
            self._W = np.zeros((len(live), self._W.shape[1]))
        scale = self._square / self._active if self._square else 1.0
        for u in batch:
            with blas_threads(1):  # more would wait for each other on a busy machine
                fitted = sums.fit(u - batch[0], order, scale)
            if fitted is not None:
                q = np.flatnonzero(self._group == u)
                self._W[:, q], self._w[q], self._c[q], self.strength[q] = fitted
                for i in q:
                    self.reasons[i] = ""

    def _predict(self, index: NDArray[np.int64], value: Array, u: Array) -> Array:
        from emphatic.scores import kernels

        out = np.zeros((len(index), self._W.shape[1]))
        if len(self._W):
            kernels.apply(self._place[index], value, self._W, out)
        predictions: Array = out.T + np.einsum("qa,aqt->qt", self._w, u) + (self._c + self._centre)[:, None]
        return predictions


def offline(
    phi: Features,
    n: int,
    G: Array,
    known: NDArray[np.bool_],
    H: int,
    progress: Callable[[float], None] | None = None,
    *,
    answers: Array | None = None,
) -> tuple[Array, Array]:
    """The predictions (Q, T − T//2) of the second half, and each question's ridge strength (Q,), in rows.

    NaN where nothing could be fitted or no strength chosen, and with more than some 4000 active features.

    Args:
        phi: Each call iterates over the T rows of features, in blocks.
        n: The number of features.
        G: The returns, (Q, T).
        known: Where they are known, (Q, T).
        H: The number of questions per signal.
        progress: Called with the share that is done, up to 1.
        answers: Predictions without learning, such as the current value, (a, Q, T); they are further inputs of the
            regression, without shrinkage.
    """
    T = G.shape[1]
    half = FirstHalf(T, np.array([g[k].mean() if k.any() else 0.0 for g, k in zip(G, known, strict=True)]))
    half.add(0, G, known)
    fit = OfflineFit(n, T, H, half, 0 if answers is None else len(answers))
    predictions = np.full((len(G), T), np.nan)
    steps, done = (fit.passes - 1) * fit.half + T, 0
    for rows in [fit.half] * (fit.passes - 1) + [T]:
        for start, stop, index, value in blocks(phi, rows):
            u = None if answers is None else answers[:, :, start:stop]
            predictions[:, start:stop] = fit.add(start, index, value, G[:, start:stop], u)
            done += stop - start
            if progress is not None:
                progress(done / steps)
    return predictions[:, fit.half :], fit.strength


#: θ (n, m), w (m, a), intercepts (m,) and strengths (m,) of some questions: chosen on the late rows, fitted on all.
Fitted = tuple[Array, Array, Array, Array]


def _fit(early: Sums, late: Sums, scale: float) -> Fitted:
    means = early.means
    test = late.about(*means)
    solve = _ridge(early.about(*means))
    errors = [_error(test, *solve(r * scale)) for r in STRENGTHS]
    best = np.argmin(errors, axis=0)
    total = early.plus(late)
    mean, level, usual = total.means
    total = total.about(mean, level, usual)
    theta, w = np.empty_like(total.b), np.empty_like(total.d)
    for i in set(best.tolist()):
        questions = best == i
        theta[:, questions], w[questions] = _ridge(total.of(questions))(STRENGTHS[i] * scale)
    return theta, w, level - mean @ theta - np.sum(usual * w, axis=1), STRENGTHS[best]


def _ridge(S: Sums) -> Callable[[float], tuple[Array, Array]]:
    """A function of the strength r: θ (n, m) and w (m, a) of

        [A + r I   U] [θ]   [b]
        [Uᵀ        D] [w] = [d]

    for each question, by elimination of θ: with A + r I = LLᵀ, all that w needs is L⁻¹[b U]. (Several strengths take
    less time this way than the eigenvectors of A.)
    """
    n, m, a = S.U.shape
    system = np.concatenate([S.A, S.b, S.U.reshape(n, m * a)], axis=1)
    work = np.empty_like(system)
    unit = _unit(np.einsum("maa->ma", S.D))

    def solve(r: float) -> tuple[Array, Array]:
        inverses = factor(system, r, work)
        if inverses is None:
            return _solve_plainly(S, r, unit)
        y, V = work[:, n : n + m].copy(), work[:, n + m :].reshape(n, m, a)
        D, d = S.D - np.einsum("nma,nmb->mab", V, V), S.d - np.einsum("nma,nm->ma", V, y)
        w = _solve_answers(D, d, unit)
        y -= np.einsum("nma,ma->nm", V, w)
        return solve_upper(work, inverses, y), w

    return solve


def _unit(squares: Array) -> Array:
    """The length of each answer over the rows; 1 of one that is 0 in all."""
    return np.where(squares > 0.0, np.sqrt(squares), 1.0)


def _solve_answers(D: Array, d: Array, unit: Array) -> Array:
    """w (m, a) of Dw = d, where answers are measured in these units (m, a)."""
    if not unit.shape[1]:
        return np.zeros(unit.shape)
    D = D / (unit[:, :, None] * unit[:, None]) + _SLIGHT * np.eye(unit.shape[1])
    w: Array = np.linalg.solve(D, (d / unit)[:, :, None])[:, :, 0] / unit
    return w


def _solve_plainly(S: Sums, r: float, unit: Array) -> tuple[Array, Array]:
    """The same where rounding has left A + r I without a Cholesky factor."""
    n, m, a = S.U.shape
    damped = S.A.copy()
    damped.flat[:: n + 1] += r
    solved = np.linalg.solve(damped, np.concatenate([S.b, S.U.reshape(n, m * a)], axis=1))
    theta, V = solved[:, :m], solved[:, m:].reshape(n, m, a)
    D, d = S.D - np.einsum("nma,nmb->mab", S.U, V), S.d - np.einsum("nma,nm->ma", S.U, theta)
    w = _solve_answers(D, d, unit)
    return theta - np.einsum("nma,ma->nm", V, w), w


def factor(system: Array, r: float, work: Array) -> _Blocks | None:
    """With A + r 𝟙 = LLᵀ, write [Lᵀ L⁻¹b] into ``work``, which is of the shape of the system [A b].

    Of the symmetric A the upper half is read, in blocks. Returns what ``solve_upper`` needs; None if A + r 𝟙 is not
    positive definite. In blocks of rows, for NumPy has matrix products but no triangular solver.
    """
    from emphatic.scores import kernels

    n, blocks = len(system), []
    for a in range(0, n, FACTOR_BLOCK):
        e = min(a + FACTOR_BLOCK, n)
        complement, inverse = system[a:e, a:] - work[:a, a:e].T @ work[:a, a:], np.zeros((e - a, e - a))
        if not kernels.invert_factor(complement, r, inverse):
            return None
        work[a:e, e:] = inverse @ complement[:, e - a :]
        blocks.append((a, e, inverse))
    return blocks


def solve_upper(work: Array, blocks: _Blocks, x: Array) -> Array:
    """L⁻ᵀx, written over x (n, m), for what ``factor`` left in ``work``."""
    n = len(work)
    for a, e, inverse in reversed(blocks):
        x[a:e] = inverse.T @ (x[a:e] - work[a:e, e:n] @ x[e:])
    return x


def _error(S: Sums, theta: Array, w: Array) -> Array:
    """Σ (G − θ·φ − w·u)² of each question."""
    square = np.sum(theta * (S.A @ theta), axis=0) + np.einsum("ma,mab,mb->m", w, S.D, w)
    square += 2.0 * np.einsum("nma,nm,ma->m", S.U, theta, w)
    error: Array = S.yy - 2.0 * (np.sum(theta * S.b, axis=0) + np.sum(w * S.d, axis=1)) + square
    return error


# ------------------------------------------------------------------ sums over rows: all that least squares needs


class Sums(NamedTuple):
    """Sums over some rows: their number, φ, φφᵀ; of m questions φG, G and G²; and of the a answers u that each has
    besides: u (m, a), φu (n, m, a), uuᵀ (m, a, a) and uG (m, a)."""

    N: int
    s: Array
    A: Array
    b: Array
    y: Array
    yy: Array
    v: Array
    U: Array
    D: Array
    d: Array

    def about(self, phi: Array, G: Array, u: Array) -> Sums:
        """The same sums of φ − phi, G − G and u − u."""
        N, s, y, v = self.N, self.s, self.y, self.v
        A = self.A - np.outer(s, phi)
        A -= np.outer(phi, s)
        A += N * np.outer(phi, phi)
        b = self.b - np.outer(s, G) - np.outer(phi, y) + N * np.outer(phi, G)
        U = self.U - np.multiply.outer(s, u) - np.multiply.outer(phi, v) + N * np.multiply.outer(phi, u)
        D = self.D - v[:, :, None] * u[:, None] - u[:, :, None] * v[:, None] + N * u[:, :, None] * u[:, None]
        d = self.d - v * G[:, None] - u * y[:, None] + N * u * G[:, None]
        return Sums(N, s - N * phi, A, b, y - N * G, self.yy - 2 * G * y + N * G**2, v - N * u, U, D, d)

    def plus(self, addend: Sums) -> Sums:
        """The sums over these rows and those of the addend."""
        totals: list[Any] = [x + y for x, y in zip(tuple(self), tuple(addend), strict=True)]  # type: ignore[operator]
        return Sums(*totals)

    def of(self, questions: NDArray[np.bool_]) -> Sums:
        """The same of some questions."""
        b, y, yy, v = self.b[:, questions], self.y[questions], self.yy[questions], self.v[questions]
        return Sums(self.N, self.s, self.A, b, y, yy, v, self.U[:, questions], self.D[questions], self.d[questions])

    @property
    def means(self) -> tuple[Array, Array, Array]:
        """Of φ, G and u."""
        return self.s / self.N, self.y / self.N, self.v / self.N


class MaskedSums:
    """Sums over the first half of a log for g masks (g, bytes), of the rows before ``cut`` apart from those after.

    ``group`` says which mask each of m questions has, and ``a`` how many answers; there are at most ``room`` features.
    Most rows are in most masks: φφᵀ is summed over all rows, and over the rows outside a mask, to be subtracted.
    """

    def __init__(self, masks: Bits, group: NDArray[np.int64], half: int, cut: int, room: int, a: int) -> None:
        g, m = len(masks), len(group)
        self._masks, self._group, self._cut = masks, group, cut
        self._outside = np.array([count_bits(mask) > 0.5 * half for mask in masks])
        self._A = np.zeros((2, g + 1, room, room))
        self._P = np.zeros((2, room, g + m + a * m))
        self._N = np.zeros((2, g), np.int64)
        self._y, self._yy = np.zeros((2, m)), np.zeros((2, m))
        self._v, self._D, self._d = np.zeros((2, m, a)), np.zeros((2, m, a, a)), np.zeros((2, m, a))

    def add(self, start: int, at: NDArray[np.int64], value: Array, Y: Array, answers: Array) -> None:
        """Rows from ``start`` on, all on one side of the cut: places of features, their values, G (m, B) and answers
        (a, m, B)."""
        from emphatic.scores import kernels

        side, mask = int(start >= self._cut), unpack_bits(self._masks, start, start + len(at))
        y = np.where(mask[self._group], Y, 0.0)
        u = np.where(mask[self._group], answers, 0.0)
        every = np.full((1, len(at)), self._outside.any())
        use = np.ascontiguousarray(np.vstack([every, mask ^ self._outside[:, None]]).T)
        kernels.gram(at, value, use, self._A[side])
        columns = np.concatenate([mask, y, u.reshape(-1, len(at))])
        kernels.project(at, value, np.ascontiguousarray(columns.T, np.float64), self._P[side])
        self._N[side] += mask.sum(axis=1)
        self._y[side] += y.sum(axis=1)
        self._yy[side] += (y**2).sum(axis=1)
        self._v[side] += u.sum(axis=2).T
        self._D[side] += np.einsum("amt,bmt->mab", u, u)
        self._d[side] += np.einsum("amt,mt->ma", u, y)

    def fit(self, u: int, order: NDArray[np.int64], scale: float) -> Fitted | None:
        """The fit for mask u, features in this order of their places; None without rows before or after the cut."""
        early, late = self._of_side(0, u, order), self._of_side(1, u, order)
        return _fit(early, late, scale) if early.N and late.N else None

    def _of_side(self, side: int, u: int, order: NDArray[np.int64]) -> Sums:
        g, m, q = len(self._masks), len(self._group), self._group == u
        A = self._A[side, u + 1][np.ix_(order, order)]
        if self._outside[u]:
            A = self._A[side, 0][np.ix_(order, order)] - A
        A += A.T  # the kernel fills one side of the diagonal only, and the diagonal
        A.flat[:: len(order) + 1] *= 0.5
        P = self._P[side][order]
        U = P[:, g + m :].reshape(len(order), -1, m).transpose(0, 2, 1)[:, q]
        y, yy, v = self._y[side, q], self._yy[side, q], self._v[side, q]
        N, b = int(self._N[side, u]), P[:, g : g + m][:, q]
        return Sums(N, P[:, u], A, b, y, yy, v, U, self._D[side, q], self._d[side, q])


# ------------------------------------------------------------------ rows, where they are fewer than features


class FittedRows(NamedTuple):
    """Some rows: φ (N, n), and of m questions G (N, m) and the a answers (N, m, a)."""

    phi: Array
    y: Array
    u: Array

    @property
    def means(self) -> FittedRows:
        """Of φ, G and u."""
        return FittedRows(*(array.mean(axis=0) for array in self))

    def about(self, means: FittedRows) -> FittedRows:
        """The same less these means."""
        return FittedRows(*(array - mean for array, mean in zip(self, means, strict=True)))

    def of(self, questions: NDArray[np.bool_]) -> FittedRows:
        """The same of some questions."""
        return FittedRows(self.phi, self.y[:, questions], self.u[:, questions])


class KeptRows:
    """``MaskedSums`` for a log whose first half has fewer rows than features: the rows are kept, and not their sums.

    With K = ΦΦᵀ + r I, N × N, the same θ and w are

        r UᵀK⁻¹U w = r UᵀK⁻¹y,   θ = Φᵀα with α = K⁻¹(y − Uw),

    and predictions on other rows are Φ'Φᵀα + U'w: θ itself is needed only once.
    """

    def __init__(self, masks: Bits, group: NDArray[np.int64], half: int, cut: int, room: int, a: int) -> None:
        m = len(group)
        self._masks, self._group, self._cut = masks, group, cut
        self._rows = FittedRows(np.zeros((half, room + 1)), np.zeros((half, m)), np.zeros((half, m, a)))

    def add(self, start: int, at: NDArray[np.int64], value: Array, Y: Array, answers: Array) -> None:
        """Rows from ``start`` on: places of features (−1: none), their values, G (m, B) and answers (a, m, B)."""
        rows = slice(start, start + len(at))
        np.put_along_axis(self._rows.phi[rows], np.where(at < 0, self._rows.phi.shape[1] - 1, at), value, axis=1)
        self._rows.y[rows], self._rows.u[rows] = Y.T, answers.transpose(2, 1, 0)

    def fit(self, u: int, order: NDArray[np.int64], scale: float) -> Fitted | None:
        """The fit for mask u, features in this order of their places; None without rows before or after the cut."""
        rows = np.flatnonzero(unpack_bits(self._masks[u : u + 1], 0, len(self._rows.y))[0])
        cut, q = int(np.searchsorted(rows, self._cut)), self._group == u
        if not 0 < cut < len(rows):
            return None
        known = FittedRows(self._rows.phi[np.ix_(rows, order)], self._rows.y[rows][:, q], self._rows.u[rows][:, q])
        early, late = (FittedRows(*(array[half] for array in known)) for half in (slice(cut), slice(cut, None)))
        means = early.means
        early, test = early.about(means), late.about(means)
        solve, between, errors = _solve_rows(early), test.phi @ early.phi.T, []
        for r in STRENGTHS:
            alpha, w = solve(r * scale)
            missed = test.y - between @ alpha - np.einsum("nma,ma->nm", test.u, w)
            errors.append(np.sum(missed**2, axis=0))
        best = np.argmin(errors, axis=0)
        means = known.means
        known = known.about(means)
        alpha, w = np.empty_like(known.y), np.empty(known.u.shape[1:])
        gram = known.phi @ known.phi.T
        for i in set(best.tolist()):
            questions = best == i
            alpha[:, questions], w[questions] = _solve_rows(known.of(questions), gram)(STRENGTHS[i] * scale)
        theta = known.phi.T @ alpha
        return theta, w, means.y - means.phi @ theta - np.sum(means.u * w, axis=1), STRENGTHS[best]


def _solve_rows(rows: FittedRows, gram: Array | None = None) -> Callable[[float], tuple[Array, Array]]:
    """A function of the strength r: α (N, m) and w (m, a) of ``KeptRows``, for centred rows with this ΦΦᵀ."""
    N, m, a = rows.u.shape
    products = rows.phi @ rows.phi.T if gram is None else gram
    system = np.concatenate([products, rows.y, rows.u.reshape(N, m * a)], axis=1)
    work, unit = np.empty_like(system), _unit(np.sum(rows.u**2, axis=0))

    def solve(r: float) -> tuple[Array, Array]:
        blocks = factor(system, r, work)
        if blocks is None:  # (rounding has left K without a factor)
            solved = np.linalg.solve(products + r * np.eye(N), system[:, N:])
            y, V = solved[:, :m], solved[:, m:].reshape(N, m, a)
            w = _solve_answers(r * np.einsum("nma,nmb->mab", rows.u, V), r * np.einsum("nma,nm->ma", rows.u, y), unit)
            return y - np.einsum("nma,ma->nm", V, w), w
        y, V = work[:, N : N + m].copy(), work[:, N + m :].reshape(N, m, a)
        w = _solve_answers(r * np.einsum("nma,nmb->mab", V, V), r * np.einsum("nma,nm->ma", V, y), unit)
        y -= np.einsum("nma,ma->nm", V, w)
        return solve_upper(work, blocks, y), w

    return solve


def blocks(phi: Features, T: int) -> Iterator[tuple[int, int, NDArray[np.int64], Array]]:
    """(start, stop, indices, values) of the first T rows."""
    start = 0
    for block in phi():
        index, value = np.ascontiguousarray(block.indices), np.ascontiguousarray(block.values)
        stop = min(start + len(index), T)
        yield start, stop, index[: stop - start], value[: stop - start]
        start = stop
        if start == T:
            return
    if start < T:
        raise refusal("phi", "offline", f"give {T} rows", f"{start}")


PERSISTENCE = Baseline("persistence", start=_persist)
MEAN = Baseline("mean", start=_average)
PAST_MEAN = Baseline("past_mean", start=_average)
LAST_DAY, LAST_WEEK, LAST_YEAR = (Baseline(n, follow=_repeat(n)) for n in ("last_day", "last_week", "last_year"))
LAST_PERIOD = Baseline("last_period", answer="long season")
CLIMATOLOGY = Baseline("climatology", follow=_climatology)
OFFLINE = Baseline("offline", fit=OfflineFit)
