"""What is expected of a signal from the last row on: recent readings, forecasts, the best baseline and the verdict.

A forecast is the answer to ``SIGNAL at +h``, which is known at a few horizons. Between them lines are straight. The
report and the live page show the same.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emphatic.nexting.answers.asked import Asked
from emphatic.nexting.answers.language import describe_learning, parse
from emphatic.nexting.scores.verdicts import describe_baseline

__all__ = ["Forecast", "Outlook", "SignalVerdict", "make_outlook", "read_forecasts", "read_verdict", "unit_of"]
__all__ += ["values_at"]

Array = NDArray[np.float64]
#: Rows before the last that are drawn, at least; and in multiples of the farthest forecast.
_BEFORE, _TIMES_AS_FAR = 60, 1.6
#: Recent rows that are drawn, about.
_DRAWN = 1500


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
        time: The times of the recent rows; their numbers without times.
        reading: The recent readings, NaN where missing.
        forecasts: The forecasts, nearest first.
        verdict: How good the forecasts were.
        unit: The unit of the signal, if it is known.
    """

    signal: str
    dated: bool
    time: Array
    reading: Array
    forecasts: Sequence[Forecast]
    verdict: SignalVerdict
    unit: str = ""

    @property
    def latest(self) -> float | None:
        """The last reading that is known."""
        known = self.reading[np.isfinite(self.reading)]
        return float(known[-1]) if len(known) else None

    @property
    def path(self) -> tuple[Array, ...]:
        """Times, values, and lower and upper bounds, from the last reading through the forecasts."""
        knots = [(forecast.time, forecast.mean, forecast.low, forecast.high) for forecast in self.forecasts]
        return self._from_last(knots, 4)

    @property
    def baseline(self) -> tuple[Array, ...]:
        """Times and values of the best baseline at each horizon, from the last reading on; empty if none is known."""
        knots = [(forecast.time, forecast.baseline) for forecast in self.forecasts if forecast.baseline is not None]
        return self._from_last(knots, 2)

    def _from_last(self, knots: list[Any], count: int) -> tuple[Array, ...]:
        """The numbers of knots as arrays, NaN for None, after those of the last reading."""
        if knots and len(self.reading) and math.isfinite(self.reading[-1]):
            knots.insert(0, (float(self.time[-1]), *[float(self.reading[-1])] * (count - 1)))
        return tuple(np.array([knot[i] for knot in knots], np.float64) for i in range(count))


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

    >>> asked = {"text": "x at +2", "kind": "at", "signal": "x", "answer": 1.5, "low": 1.0, "high": None}
    >>> read_forecasts([asked, {"text": "mean of x over 2", "kind": "mean", "answer": 2.0}], 10.0, None)
    {'x': [Forecast(signal='x', horizon=2, time=12.0, mean=1.5, low=1.0, high=None, baseline=None)]}
    """
    forecasts: dict[str, dict[float, Forecast]] = {}
    for score, signal in values_at(summary):
        if score.get("answer") is None:
            continue
        question = parse(score["text"])
        time = origin + question.span(step)
        baseline = (score.get("baselines") or {}).get(score.get("best_baseline"), {}).get("answer")
        ends = score.get("low"), score.get("high")
        forecast = Forecast(signal, question.length, time, score["answer"], *ends, baseline)
        forecasts.setdefault(signal, {}).setdefault(time, forecast)
    return {signal: sorted(of_one.values(), key=lambda forecast: forecast.time) for signal, of_one in forecasts.items()}


def values_at(summary: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], str]]:
    """The objects about a signal's value at +h, each with the signal.

    Args:
        summary: The objects of ``summary.json``.
    """
    return [(score, score["signal"]) for score in summary if score.get("kind") == "at" and score["signal"] is not None]


def read_verdict(summary: Sequence[Mapping[str, Any]], signal: str, judged: Mapping[str, Any] | None) -> SignalVerdict:
    """The verdict on a signal, as it was decided, with the errors behind it.

    Args:
        summary: The objects of ``summary.json``.
        signal: The signal.
        judged: The verdict as ``Asked.judge_signals`` gives it; None if there is none yet.
    """
    if judged is None:
        learning = [describe_learning(score) for score, about in values_at(summary) if about == signal]
        return SignalVerdict(f"{signal} cannot be judged yet ({learning[0]}).") if any(learning) else SignalVerdict()
    return SignalVerdict(
        judged["sentence"],
        judged["verdict"],
        judged["best_baseline"] or "",
        judged["skill_best"],
        judged["skill_best_low"],
        judged["skill_best_high"],
        judged["horizon"] or "",
        judged.get("rmse"),
        judged.get("baseline_rmse"),
    )


def make_outlook(
    asked: Asked,
    summary: Sequence[Mapping[str, Any]],
    signal: str,
    judged: Mapping[str, Any] | None,
    unit: str = "",
) -> Outlook:
    """The recent readings of a signal and its forecasts.

    Args:
        asked: The questions after the last row.
        summary: Their scores.
        signal: The signal.
        judged: The verdict on it; None if there is none yet.
        unit: Its unit.
    """
    step, scores = asked.timing.step, [score for score, about in values_at(summary) if about == signal]
    ahead = max((parse(score["text"]).span(step) for score in scores), default=0.0)
    time, reading = asked.readings(signal, max(_BEFORE, math.ceil(_TIMES_AS_FAR * ahead / (step or 1.0))))
    drawn = np.arange(len(time))[:: -max(1, len(time) // _DRAWN)][::-1]  # to the last row
    forecasts = read_forecasts(scores, float(time[-1]), step).get(signal, []) if len(time) else []
    verdict = read_verdict(scores, signal, judged)
    return Outlook(signal, asked.timing.dated, time[drawn], reading[drawn], forecasts, verdict, unit)
