"""The periods of a signal, found from its readings alone: up to two, each with its strength.

A period must be seen in two ways. The *spectrum* of the readings, less their straight line and whitened by their
autocorrelation of one row, must have a line: power of more than ln(n/2) + 5 times the noise beside it. White noise, a
random walk and AR(1) noise become white, and have none. And the *autocorrelation* at the period and its multiples must
be high, and higher than at a shorter lag. Its mean over the multiples is the strength, and its place the period, which
is known better from many of them.

A multiple of a line's period counts only if a further line supports it, one that the line's own period cannot explain
(the week beside the day): noise never doubles the period of a sine. What the first period explains is taken away
before the second is looked for. A period that was found before is kept while it does about as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Period", "describe_periods", "find_periods"]

Array = NDArray[np.float64]
#: A line's power beyond ln(n/2) times the noise, and that of a line that only supports a multiple.
_EXCESS, _SUPPORT = 5.0, 2.0
#: The least strength of a first and a second period, and in standard deviations of a correlation.
_LEAST, _SECOND, _DEVIATIONS = 0.1, 0.15, 3.0
#: By how much the autocorrelation rises from its lowest before a period, and the fewest periods in the readings.
_RISE, _CYCLES = 0.1, 3.0
#: The noise beside a line: the quantile of the power so many cycles around it.
_QUANTILE, _AROUND = 0.25, 12.0
#: The shortest period within this share of the best strength is taken; multiples that are tried.
_WITHIN, _MULTIPLES = 0.88, 8
#: By how much a multiple is stronger than a line's own period, in standard deviations of a correlation.
_GAIN = 4.0
#: The strength that a line's own period needs to be taken together with its multiple.
_BOTH = 0.3
#: The share of the strength of a new period at which a similar or an earlier one is kept.
_KEPT = 0.95
#: Lines that are looked at, the longest comb of multiples, and the finest grid of periods.
_LINES, _COMB, _GRID = 6, 20, 81
#: How close in cycles of the whole log a line is to a harmonic, to be one, or not to be a new line.
_HARMONIC, _SAME = 1.0, 2.5
#: Signals whose periods are said in words.
_LISTED = 8


class Period(NamedTuple):
    """A period.

    Args:
        rows: Its length in rows.
        strength: The mean autocorrelation at its multiples.
    """

    rows: int
    strength: float


def describe_periods(periods: Mapping[str, Sequence[int]]) -> str:
    """The periods of the first signals that have any, in words; empty if none has.

    Args:
        periods: The periods of each signal in rows, by its name.

    >>> describe_periods({"volume": [24, 168], "rain": []})
    'volume every 24 and every 168 rows'
    """
    lists = {name: " and ".join(f"every {rows:,}" for rows in of_one) for name, of_one in periods.items()}
    texts = [f"{name} {listed} rows" for name, listed in lists.items() if listed]
    unlisted = f"; and {len(texts) - _LISTED} more signals" if len(texts) > _LISTED else ""
    return "; ".join(texts[:_LISTED]) + unlisted


def find_periods(x: Array, before: Sequence[int] = ()) -> list[Period]:
    """The periods of readings at equal intervals, shortest first; none, one or two.

    Args:
        x: The readings, all finite.
        before: The periods that were found from fewer readings.

    >>> noise = np.random.default_rng(0).normal(size=600)
    >>> find_periods(noise), [period.rows for period in find_periods(noise + 2 * np.sin(np.arange(600) * np.pi / 12))]
    ([], [24])
    """
    n = len(x)
    if n < 4 * _CYCLES:
        return []
    largest = float(np.abs(x).max())
    if not 1e-150 < largest < 1e150:  # squares would not be finite
        x = x / max(largest, 1e-300)
    line = np.arange(n) - (n - 1) / 2
    residual = x - x.mean()
    residual = residual - line * (line @ residual) / (line @ line)
    low, high = np.quantile(residual, (0.02, 0.98))
    residual = np.clip(residual, 2 * low - high, 2 * high - low)
    if not residual.std() > 1e-9 * np.abs(x).max():
        return []
    periods: list[Period] = []
    exact: list[float] = []
    while len(periods) < 2:
        candidates, correlation = _candidates(residual, exact)
        least = max(_SECOND if periods else _LEAST, _DEVIATIONS / math.sqrt(n))
        new = [c for c in candidates if c.strength >= least and all(abs(c.rows - p) > 0.1 * p for p, _ in periods)]
        if not new:
            break
        best = max(c.strength for c in new)
        shortest = min((c for c in new if c.strength >= _WITHIN * best), key=lambda c: c.rows)
        choice = max((c for c in new if abs(c.rows - shortest.rows) <= 0.05 * shortest.rows), key=lambda c: c.strength)
        if not periods and choice.line.rows < 0.7 * choice.rows and choice.line.strength >= _BOTH:
            periods = [_keep(correlation, choice.line, before), _keep(correlation, choice.period, before)]
            break
        periods.append(_keep(correlation, choice.period, before))
        exact.append(choice.exact)
        phase = np.arange(n) % choice.rows
        profile = np.bincount(phase, residual, choice.rows) / np.bincount(phase, minlength=choice.rows)
        residual = residual - profile[phase]
    if not periods and any(before):
        correlation = _correlation(residual)
        least = max(_LEAST, _DEVIATIONS / math.sqrt(n))
        periods = [p for p in _standing(correlation, before) if p.strength >= least]
    return sorted(periods)


class _Candidate(NamedTuple):
    rows: int
    strength: float
    exact: float
    line: Period

    @property
    def period(self) -> Period:
        return Period(self.rows, self.strength)


def _candidates(residual: Array, exact: Sequence[float]) -> tuple[list[_Candidate], Array]:
    """The periods of the lines of a spectrum, and their supported multiples; and the autocorrelation."""
    n, squares = len(residual), float(residual @ residual)
    if not squares > 0.0:
        return [], np.ones(1)
    slope = min(max(float(residual[1:] @ residual[:-1]) / squares, 0.0), 1.0)
    white = residual[1:] - slope * residual[:-1]
    size = _fft_size(n - 1)
    raised_cosine = 0.5 - 0.5 * np.cos(2 * np.pi * (np.arange(n - 1) + 0.5) / (n - 1))
    transform = np.fft.rfft((white - white.mean()) * raised_cosine, size)
    power = transform.real**2 + transform.imag**2
    ratio = power[1:-1] / np.maximum(_noise(power, max(4, int(_AROUND * size / (n - 1))))[1:-1], 1e-300)
    k = np.arange(len(power))[1:-1]
    peaks = (power[1:-1] >= power[:-2]) & (power[1:-1] > power[2:])
    supports = k[peaks & (ratio > math.log(n / 2) + _SUPPORT)] / size
    lines = k[peaks & (ratio > math.log(n / 2) + _EXCESS) & (k * n >= (_CYCLES - 0.25) * size) & (k < 0.47 * size)]
    for period in exact:
        lines = lines[~_is_harmonic(lines / size, period, n, _SAME)]
    if not len(lines):
        return [], np.ones(1)
    correlation = _correlation(residual)
    lowest = np.minimum.accumulate(correlation)
    candidates = []
    for k_line in lines[np.argsort(-power[lines])][:_LINES]:
        at = size / float(k_line)
        new = supports[~_is_harmonic(supports, at, n, _SAME)]
        of_line = Period(0, 0.0)
        for multiple in range(1, _MULTIPLES + 1):
            longer = at * multiple
            if longer > n / _CYCLES:
                break
            if multiple > 1 and not _is_harmonic(new, longer, n, _HARMONIC).any():
                continue
            half = max(0.6, (0.6 if multiple == 1 else 0.3) * longer * longer / n)
            strength, place = _comb(
                correlation, np.linspace(max(2.0, longer - half), longer + half, _steps(half, n, longer))
            )
            period = round(place)
            strength = min(strength, float(correlation[period]))
            of_line = Period(period, strength) if multiple == 1 else of_line
            gains = multiple == 1 or strength - of_line.strength > _GAIN / math.sqrt(n)
            if gains and correlation[period] - lowest[period] > _RISE:
                candidates.append(_Candidate(period, strength, place, of_line))
    return candidates, correlation


def _steps(half: float, n: int, period: float) -> int:
    """The points of a grid of periods that is fine enough for the comb."""
    return min(_GRID, 2 * math.ceil(2 * half * max(1, min(int(0.6 * n / period), _COMB))) + 1)


def _comb(correlation: Array, periods: Array) -> tuple[float, float]:
    """The best of these periods: its mean autocorrelation at its multiples, the longer ones counting less, and it."""
    n = len(correlation)
    multiples = np.arange(1, max(1, min(int(0.6 * n / float(periods.mean())), _COMB)) + 1)
    lags = np.rint(np.outer(periods, multiples)).astype(np.int64)
    weight = np.where(lags < 0.67 * n, 1.0 - lags / n, 0.0)
    means = (correlation[np.minimum(lags, n - 1)] * weight).sum(axis=1) / np.maximum(weight.sum(axis=1), 1e-9)
    best = int(np.argmax(means))
    return float(means[best]), float(periods[best])


def _standing(correlation: Array, before: Sequence[int]) -> list[Period]:
    """The periods of ``before`` that are still ones, with their present strength."""
    lowest, periods = np.minimum.accumulate(correlation), []
    for rows in sorted(set(before)):
        if 2 <= rows <= len(correlation) / _CYCLES and correlation[rows] - lowest[rows] > _RISE:
            strength, _ = _comb(correlation, np.array([float(rows)]))
            periods.append(Period(rows, min(strength, float(correlation[rows]))))
    return periods


def _keep(correlation: Array, period: Period, before: Sequence[int]) -> Period:
    """A period of ``before`` in the place of a similar one that is hardly stronger."""
    for earlier in _standing(correlation, before):
        if abs(earlier.rows - period.rows) <= 0.05 * period.rows and earlier.strength >= _KEPT * period.strength:
            return earlier
    return period


def _is_harmonic(frequency: Array, period: float, n: int, cycles: float) -> NDArray[np.bool_]:
    """Which frequencies are multiples of that of a period, up to so many cycles in n rows."""
    return np.asarray(np.abs(frequency * period - np.rint(frequency * period)) <= cycles * period / n)


def _correlation(residual: Array) -> Array:
    """The autocorrelation at each lag."""
    n, centred = len(residual), residual - residual.mean()
    size = _fft_size(2 * n)
    transform = np.fft.rfft(centred, size)
    correlation = np.fft.irfft(transform.real**2 + transform.imag**2, size)[:n]
    return np.asarray(correlation / max(correlation[0], 1e-300) * n / (n - np.arange(n)))


def _noise(power: Array, around: int) -> Array:
    """The mean power beside each frequency, from a quantile, which a few lines do not move."""
    at = np.linspace(0, len(power) - 1, max(2, min(64, 2 * len(power) // around))).astype(np.int64)
    begin = np.clip(at - around, 1, max(1, len(power) - 2 * around))
    beside = power[np.minimum(begin[:, None] + np.arange(2 * around), len(power) - 1)]
    k = int(_QUANTILE * 2 * around)
    return np.interp(np.arange(len(power)), at, np.partition(beside, k, axis=1)[:, k] / -math.log(1.0 - _QUANTILE))


def _fft_size(n: int) -> int:
    """The least number from n on that is a power of 2, or 3, 5, 9 or 15 times one."""
    return min(odd << max(0, math.ceil(math.log2(n / odd))) for odd in (1, 3, 5, 9, 15))
