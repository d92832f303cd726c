"""What is expected of each signal from the last row on: recent readings, seasonal shape, forecasts and their verdict.

A forecast is the answer to ``SIGNAL at +h``, which is known at a few horizons only. Between them ``Outlook.path``
follows the seasonal profile plus the deviation from it, interpolated in time. The exponential mean of ``SIGNAL@h`` is
no value at t + h, and does not occur here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emphatic.answers.language import describe_learning, parse
from emphatic.answers.timing import Timing
from emphatic.scores.baselines import describe_baseline

__all__ = ["DAY", "WEEK", "Forecast", "History", "Outlook", "Season", "SignalVerdict", "make_outlook"]
__all__ += ["read_forecasts", "read_verdict", "unit_of", "values_at"]

Array = NDArray[np.float64]
#: Times, values, and their lower and upper bounds.
Path = tuple[Array, Array, Array, Array]
_NOTHING: Array = np.empty(0)

DAY, WEEK = 86400.0, 604800.0
#: The first Monday after the epoch, less a week: weeks begin on Mondays.
_MONDAY = 3 * DAY
#: Rows that a history keeps, and points of a path.
_KEPT, _POINTS = 30_000, 240
#: Recent rows that are drawn, about.
_DRAWN = 1500
#: The most slots of a seasonal profile of a day and of a week.
_DAY_SLOTS, _WEEK_SLOTS = 96, 168
#: The largest reading that is drawn.
_LARGEST = 1e100
#: The share of the variance that a profile must explain for a line to follow it.
_CLEAR = 0.1


# ---------------------------------------------------------------------- seasonal shape


class Season(NamedTuple):
    """The mean reading at each time of a cycle.

    Args:
        period: The length of the cycle in seconds.
        values: The means; the k-th is that of readings around k / len(values) of the cycle.
        offset: When a cycle begins, in seconds.
        cycles: How many cycles the readings span.
        strength: The share that the profile explains of how recent readings vary around their mean over a cycle, as
            far as that is more than chance.
    """

    period: float
    values: Array
    offset: float = 0.0
    cycles: float = 0.0
    strength: float = 1.0

    def __call__(self, time: NDArray[np.floating[Any]]) -> Array:
        """The profile at times in seconds since 1970.

        >>> Season(24.0, np.array([0.0, 10.0, 20.0, 10.0]))(np.array([0.0, 3.0, 6.0, 24.0, 21.0])).tolist()
        [0.0, 5.0, 10.0, 0.0, 5.0]
        """
        phase = np.mod((np.asarray(time) - self.offset) / self.period, 1.0) * len(self.values)
        closed = np.append(self.values, self.values[0])
        profile: Array = np.interp(phase, np.arange(len(closed)), closed)
        return profile


class _SlotMeans:
    """Sums of readings by their time in a cycle."""

    def __init__(self, period: float, slots: int, offset: float, signals: int) -> None:
        self._period, self._slots, self._offset = period, slots, offset
        self._sums, self._counts = np.zeros((slots, signals)), np.zeros((slots, signals))
        self._centre = np.full(signals, np.nan)  # sums of deviations from it round less

    def add(self, time: Array, readings: Array) -> None:
        phase = np.mod((time - self._offset) / self._period, 1.0) * self._slots
        slot = np.rint(phase).astype(np.int64) % self._slots
        known = np.isfinite(readings)
        read = known.any(axis=0)
        begin = np.where(read, readings[known.argmax(axis=0), np.arange(readings.shape[1])], np.nan)
        self._centre = np.where(np.isnan(self._centre), begin, self._centre)
        place = slot[:, None] * readings.shape[1] + np.arange(readings.shape[1])  # (far quicker than whole rows)
        np.add.at(self._sums.reshape(-1), place, np.where(known, readings - self._centre, 0.0))
        np.add.at(self._counts.reshape(-1), place, known.astype(np.float64))

    def season(self, signal: int, cycles: float) -> Season | None:
        """The profile of a signal; None where less than two cycles, or less than half of one, are known."""
        counts = self._counts[:, signal]
        seen = counts > 0
        if cycles < 2.0 or 2 * seen.sum() < self._slots or self._slots < 2:
            return None
        means = self._sums[seen, signal] / counts[seen]
        values = np.interp(np.arange(self._slots), np.flatnonzero(seen), means, period=self._slots)
        return Season(self._period, values + self._centre[signal], self._offset, cycles)


class History:
    """The last readings of each signal and their seasonal shape, gathered from blocks of rows in order.

    Args:
        signals: The signals.
        timing: What is known of the times.
    """

    def __init__(self, signals: Sequence[str], timing: Timing) -> None:
        self.signals, self.timing = list(signals), timing
        step = timing.step or 1.0
        cycles = {}
        if timing.dated and step <= DAY / 4:
            cycles[DAY] = _SlotMeans(DAY, min(_DAY_SLOTS, round(DAY / step)), 0.0, len(signals))
        if timing.dated and step <= DAY:
            cycles[WEEK] = _SlotMeans(WEEK, min(_WEEK_SLOTS, round(WEEK / step)), _MONDAY, len(signals))
        self._cycles = cycles
        self._blocks: list[tuple[Array, Array]] = []
        self._seasons: dict[int, dict[float, Season]] = {}  # until the next rows
        self._begin = math.nan
        self._rows = 0
        self._sums, self._counts = np.zeros(len(signals)), np.zeros(len(signals))

    def add(self, time: NDArray[np.floating[Any]] | None, readings: NDArray[np.floating[Any]]) -> None:
        """The next rows.

        Args:
            time: Their times; None to count rows.
            readings: The readings (B, signals), NaN where missing.
        """
        when = self._rows + np.arange(len(readings), dtype=np.float64) if time is None else np.asarray(time, np.float64)
        self._rows += len(readings)
        self._seasons.clear()
        sound = np.isfinite(when)
        when, values = when[sound], np.asarray(readings, np.float64)[sound]
        values = np.where(np.abs(values) < _LARGEST, values, np.nan)  # squares of larger ones overflow
        if not len(when):
            return
        if math.isnan(self._begin):
            self._begin = float(when[0])
        known = np.isfinite(values)
        self._sums += np.where(known, values, 0.0).sum(axis=0)
        self._counts += known.sum(axis=0)
        for means in self._cycles.values():
            means.add(when, values)
        self._blocks.append((when, values))
        while sum(len(block) for block, _ in self._blocks[1:]) >= _KEPT:
            self._blocks.pop(0)

    @property
    def rows(self) -> tuple[Array, Array]:
        """The times and the readings (rows, signals) of the last rows."""
        if not self._blocks:
            return np.empty(0), np.empty((0, len(self.signals)))
        when, values = (np.concatenate(arrays)[-_KEPT:] for arrays in zip(*self._blocks, strict=True))
        return when, values

    def mean(self, signal: int) -> float:
        """The mean of all readings of a signal so far."""
        return float(self._sums[signal] / self._counts[signal]) if self._counts[signal] else math.nan

    def seasons(self, signal: int) -> dict[float, Season]:
        """The seasonal profiles of a signal by the length of their cycle."""
        if signal not in self._seasons:
            self._seasons[signal] = self._find_seasons(signal)
        return self._seasons[signal]

    def _find_seasons(self, signal: int) -> dict[float, Season]:
        when, _ = self.rows
        span = float(when[-1]) - self._begin if len(when) else 0.0
        profiles = {period: means.season(signal, span / period) for period, means in self._cycles.items()}
        return {
            period: season._replace(strength=self._strength(signal, season))
            for period, season in profiles.items()
            if season is not None
        }

    def _strength(self, signal: int, season: Season) -> float:
        """The share that a profile explains of how recent readings vary around their mean over a cycle."""
        when, values = self.rows
        reading, window = values[:, signal], round(season.period / (self.timing.step or 1.0))
        known = np.isfinite(reading)
        if known.sum() < 1.5 * window or window < 2:
            return 0.0
        filled = np.interp(when, when[known], reading[known])
        total = np.concatenate([[0.0], np.cumsum(filled - filled[0])])  # (of differences: its rounding stays small)
        level = (total[window:] - total[:-window]) / window + filled[0]
        begin = window // 2
        inside = slice(begin, begin + len(level))
        deviations, profile = filled[inside] - level, season(when[inside])
        spread = float(np.var(deviations))
        explained = 1.0 - float(np.var(deviations - profile)) / spread if spread > 0.0 else 0.0
        chance = 1.0 / max(season.cycles, 1.5)  # what a profile of noise explains of the readings that made it
        return max(0.0, (explained - chance) / (1.0 - chance))


# ---------------------------------------------------------------------- forecasts


class Forecast(NamedTuple):
    """The value of a signal that is expected at a time.

    Args:
        signal: The signal.
        horizon: How far ahead: a duration as text, or a number of rows.
        time: When, in the unit of the log's time.
        mean: The expected value.
        low: The lower bound of its interval; None if it has none.
        high: The upper bound.
        baseline: What the best baseline says; None if that is unknown.
    """

    signal: str
    horizon: str | float
    time: float
    mean: float
    low: float | None = None
    high: float | None = None
    baseline: float | None = None


class SignalVerdict(NamedTuple):
    """How a signal's forecasts compare with the best baseline.

    Args:
        sentence: The verdict in words.
        kind: "better", "no better", "too short" or "".
        baseline: The key of the best baseline; "" if none is known.
        skill: 1 − MSE / MSE of the best baseline.
        low: The lower bound of the skill; None if unknown.
        high: The upper bound.
        horizon: The horizon that this is about.
        rmse: The error of the forecasts there.
        baseline_rmse: That of the best baseline.
        of_mean: Whether this is about the weighted mean of what follows, not about values at +h.
    """

    sentence: str = ""
    kind: str = ""
    baseline: str = ""
    skill: float | None = None
    low: float | None = None
    high: float | None = None
    horizon: str | float = ""
    rmse: float | None = None
    baseline_rmse: float | None = None
    of_mean: bool = False

    @property
    def baseline_words(self) -> str:
        """The best baseline in words."""
        return describe_baseline(self.baseline)


@dataclass(frozen=True)
class Outlook:
    """A signal around the last row.

    Args:
        signal: The signal.
        dated: Whether times are dates, in seconds since 1970.
        time: The times of the recent rows.
        reading: The recent readings.
        forecasts: The forecasts, nearest first.
        path: Times, values, and the bounds of the line from the last reading through the forecasts.
        verdict: How good the forecasts were.
        baseline: Times and values of the best baseline, over the recent rows and beyond.
        seasons: The seasonal profiles by the length of their cycle.
        unit: The unit of the signal, if it is known.
        learning: "learning: 37 of 100 windows known", while that is so.
    """

    signal: str
    dated: bool
    time: Array
    reading: Array
    forecasts: Sequence[Forecast] = ()
    path: Path = (_NOTHING, _NOTHING, _NOTHING, _NOTHING)
    verdict: SignalVerdict = field(default_factory=SignalVerdict)
    baseline: tuple[Array, Array] = (_NOTHING, _NOTHING)
    seasons: Mapping[float, Season] = field(default_factory=dict)
    unit: str = ""
    learning: str = ""

    @property
    def latest(self) -> float | None:
        """The last reading that is known."""
        known = self.reading[np.isfinite(self.reading)]
        return float(known[-1]) if len(known) else None


def unit_of(signal: str, units: Mapping[str, str] = {}) -> str:
    """The unit of a signal: that of the table, or what stands in brackets at the end of its name.

    >>> [unit_of(name, {"p": "kW"}) for name in ("p", "temp (°C)", "wind [m/s]", "f(x) y", "Voltage")]
    ['kW', '°C', 'm/s', '', '']
    """
    match = re.search(r"\S\s*[(\[]\s*([^()\[\]]{1,12}?)\s*[)\]]$", signal)
    return units.get(signal) or (match[1] if match else "")


def read_forecasts(
    summary: Sequence[Mapping[str, Any]], origin: float, step: float | None
) -> dict[str, list[Forecast]]:
    """The forecasts in the objects of a summary, by signal, nearest first.

    Of all questions, those for ``SIGNAL at +h`` count.

    Args:
        summary: The objects of ``summary.json``.
        origin: The time of the last row; its number without times.
        step: The usual step; None without times.

    >>> asked = {"text": "x at +2", "kind": "at", "answer": 1.5, "low": 1.0, "high": None}
    >>> read_forecasts([asked, {"text": "mean of x over 2", "kind": "mean", "answer": 2.0}], 10.0, None)
    {'x': [Forecast(signal='x', horizon=2, time=12.0, mean=1.5, low=1.0, high=None, baseline=None)]}
    """
    forecasts: dict[str, list[Forecast]] = {}
    for score, signal in values_at(summary):
        if score.get("answer") is None:
            continue
        question = parse(score["text"])
        time = origin + question.span(step)
        forecast = Forecast(signal, question.length, time, score["answer"], score.get("low"), score.get("high"))
        if all(known.time != time for known in forecasts.setdefault(signal, [])):
            forecasts[signal].append(forecast)
    return {signal: sorted(several, key=lambda forecast: forecast.time) for signal, several in forecasts.items()}


def values_at(summary: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], str]]:
    """The objects about a value at +h, each with its signal.

    Args:
        summary: The objects of ``summary.json``.
    """
    named = ((score, score.get("signal"), _signal_at(score["text"])) for score in summary if "text" in score)
    return [(score, signal or about) for score, signal, about in named if about is not None]


@lru_cache(4096)
def _signal_at(text: str) -> str | None:
    """The signal whose value at +h a question asks for; None if it asks for something else."""
    return parse(text).value_of


def read_verdict(
    summary: Sequence[Mapping[str, Any]], signal: str, verdicts: Mapping[str, Mapping[str, Any]] | None = None
) -> SignalVerdict:
    """The verdict on a signal, as it was decided, with the errors behind it.

    Args:
        summary: The objects of ``summary.json``.
        signal: The signal.
        verdicts: The verdict on each signal, as ``judge_signal`` describes it; default: those of the summary.
    """
    if verdicts is None:
        verdicts = {row["signal"]: row for score in summary for row in score.get("signals") or ()}
    if signal not in verdicts:
        learning = [describe_learning(score) for score, about in values_at(summary) if about == signal]
        return SignalVerdict(f"{signal} cannot be judged yet ({learning[0]}).") if any(learning) else SignalVerdict()
    judged = verdicts[signal]
    best, horizon, of_mean = judged["best_baseline"], judged["horizon"], judged.get("kind") != "value"
    about = [score for score in summary if "text" not in score and score.get("signal") == signal]
    about = about if of_mean else [score for score, name in values_at(summary) if name == signal]
    score = next((score for score in about if score.get("horizon") == horizon), {})
    rmse = judged.get("rmse", score.get("rmse"))
    of_best = judged.get("baseline_rmse", ((score.get("baselines") or {}).get(best) or {}).get("rmse"))
    skill, low, high = (judged.get(f"skill_best{end}") for end in ("", "_low", "_high"))
    return SignalVerdict(
        judged["sentence"], judged["verdict"], best or "", skill, low, high, horizon, rmse, of_best, of_mean
    )


# ---------------------------------------------------------------------- paths


def make_outlook(
    history: History,
    signal: str,
    forecasts: Sequence[Forecast],
    verdict: SignalVerdict,
    period: float | None = None,
    unit: str = "",
    learning: str = "",
) -> Outlook:
    """The recent readings of a signal, its forecasts and the lines through them.

    Args:
        history: The rows so far.
        signal: The signal.
        forecasts: Its forecasts, nearest first.
        verdict: How good they were.
        period: The period that ``last_period`` repeats, in the unit of time.
        unit: The unit of the signal.
        learning: What is said while forecasts are still learned.
    """
    column = history.signals.index(signal)
    when, values = history.rows
    reading, seasons = values[:, column], history.seasons(column)
    step = history.timing.step or 1.0
    origin = float(when[-1]) if len(when) else 0.0
    ahead = max((forecast.time - origin for forecast in forecasts), default=0.0)
    back = max(1.6 * ahead, 60.0 * step)
    recent = np.flatnonzero(when >= origin - back)
    recent = recent[:: -max(1, len(recent) // _DRAWN)][::-1]  # to the last row
    end = max(origin + ahead, origin + 0.25 * back if not forecasts else 0.0)
    shape = _best_season(seasons)
    baseline = _baseline_path(verdict.baseline, when, reading, origin, end, seasons, history.mean(column), period)
    with_baseline = [
        forecast._replace(baseline=_value_at(baseline, forecast.time)) if len(baseline[0]) else forecast
        for forecast in forecasts
    ]
    return Outlook(
        signal,
        history.timing.dated,
        when[recent],
        reading[recent],
        with_baseline,
        _path(origin, reading, forecasts, shape),
        verdict,
        baseline,
        seasons,
        unit=unit,
        learning=learning,
    )


def _best_season(seasons: Mapping[float, Season]) -> Season | None:
    """The profile that explains more: of the week, once three are known, or of the day; None if neither says much."""
    clear = [season for season in seasons.values() if season.strength >= _CLEAR]
    clear = [season for season in clear if season.period == DAY or season.cycles >= 3.0]
    return max(clear, key=lambda season: season.strength, default=None)


def _path(origin: float, reading: Array, forecasts: Sequence[Forecast], season: Season | None) -> Path:
    """From the last reading through the forecasts: the seasonal profile plus the interpolated deviation."""
    if not forecasts:
        return _NOTHING, _NOTHING, _NOTHING, _NOTHING
    knots = [(forecast.time, forecast.mean, forecast.low, forecast.high) for forecast in forecasts]
    if len(reading) and math.isfinite(reading[-1]):
        knots.insert(0, (origin, float(reading[-1]), float(reading[-1]), float(reading[-1])))
    places = np.array([knot[0] for knot in knots])
    means, lows, highs = (np.array([knot[i] for knot in knots], np.float64) for i in (1, 2, 3))
    time = np.union1d(np.linspace(places[0], places[-1], _POINTS), places)
    profile = season if season is not None else np.zeros_like
    value = profile(time) + np.interp(time, places, means - profile(places))
    low, high = value + np.interp(time, places, lows - means), value + np.interp(time, places, highs - means)
    known = np.concatenate([reading, means, lows, highs])
    known = known[np.isfinite(known)]  # between forecasts, too, nothing lies outside of what was read or is expected
    ends = (known.min(), known.max()) if len(known) else (-np.inf, np.inf)
    return time, *(np.clip(line, *ends) for line in (value, low, high))


def _baseline_path(
    name: str,
    when: Array,
    reading: Array,
    origin: float,
    end: float,
    seasons: Mapping[float, Season],
    mean: float,
    period: float | None,
) -> tuple[Array, Array]:
    """What a baseline says from the last row on; empty where it cannot be drawn."""
    known = np.isfinite(reading)
    if not name or not known.any() or end <= origin:
        return _NOTHING, _NOTHING
    time = np.linspace(origin, end, _POINTS)
    lag = {"last_day": DAY, "last_week": WEEK, "last_year": 365.2425 * DAY, "last_period": period}.get(name)
    if name == "persistence":
        return time, np.full(len(time), reading[known][-1])
    if name in ("mean", "past_mean"):
        return time, np.full(len(time), mean)
    usual = {"climatology": next(iter(seasons), 0.0), "usual_day": DAY, "usual_week": WEEK}.get(name, 0.0)
    if usual in seasons:
        return time, seasons[usual](time)
    if lag:
        # As often as needed to lie in the past.
        source = time - lag * np.maximum(1.0, np.ceil((time - origin) / lag - 1e-9))
        if source[0] >= when[known][0]:
            return time, np.interp(source, when[known], reading[known])
    return _NOTHING, _NOTHING


def _value_at(path: tuple[Array, Array], time: float) -> float | None:
    value = float(np.interp(time, *path))
    return value if math.isfinite(value) else None
