"""How sure a mean over runs is, and how runs spread: confidence and tolerance intervals, and paired differences.

The interval of a mean is a percentile-t bootstrap that is nowhere narrower than Student's t. All rows of an array have
theirs at once: as a resampled mean is a product with a matrix of counts, thousands of settings take seconds.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from emphatic.engines.compiled import blas_threads

__all__ = ["CONFIDENCE", "Interval", "difference", "interval", "mean_intervals", "median_interval", "over_runs"]
__all__ += ["runs_for_tolerance", "t_quantile", "tolerance_interval"]

Array = NDArray[np.float64]

CONFIDENCE = 0.95
#: Fewer runs than this have Student's t alone: too many resamples of them would repeat a single run.
FEWEST = 5
#: Samples of a bootstrap, and what they are drawn from: the same numbers give the same interval.
_SAMPLES, _SEED = 2000, 20
#: The least standard error of a resample, as a share of that of the runs.
_LEAST_SPREAD = 0.2
#: Rows whose resampled means are in memory at a time: 16 MB of each.
_ROWS = 1000


@dataclass(frozen=True)
class Interval:
    """A mean or a median over runs with its 95% confidence interval.

    Args:
        value: The mean or median.
        low: Lower end of the interval.
        high: Upper end of the interval.
        how: How the interval was computed: "t" (Student's) or "bootstrap"; "" where it is not known.
    """

    value: float
    low: float
    high: float
    how: str

    @property
    def above_zero(self) -> bool:
        """Whether all of it is above 0."""
        return self.low > 0.0


@functools.cache
def t_quantile(p: float, df: float) -> float:
    """The p-quantile of Student's t with ``df`` degrees of freedom, p ≥ ½.

    >>> round(t_quantile(0.975, 9), 4)
    2.2622
    """
    # P(T ≤ t) = 1 − I_x(df/2, ½)/2 with x = df/(df + t²), found by halving.
    low, high = 0.0, 1.0
    while 1.0 - 0.5 * _beta(df / (df + high * high), df) < p:
        high *= 2.0
    for _ in range(80):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if 1.0 - 0.5 * _beta(df / (df + middle * middle), df) < p else (low, middle)
    return 0.5 * (low + high)


def _beta(x: float, df: float) -> float:
    """I_x(df/2, ½), the regularised incomplete beta function, by its continued fraction (Press et al., section 6.4)."""
    a, b = 0.5 * df, 0.5
    if x > (a + 1.0) / (a + b + 2.0):
        return 1.0 - _fraction(1.0 - x, b, a)
    return _fraction(x, a, b)


def _fraction(x: float, a: float, b: float) -> float:
    if x <= 0.0:
        return 0.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    value, c, d = 1.0, 1.0, 0.0
    for i in range(400):
        m = i // 2
        if i == 0:
            term = 1.0
        elif i % 2 == 0:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        else:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d = 1.0 / (1.0 + term * d)
        c = 1.0 + term / c
        value *= c * d
        if i and abs(1.0 - c * d) < 1e-15:
            break
    return front * (value - 1.0)


def mean_intervals(values: ArrayLike) -> tuple[Array, Array]:
    """The ends of the confidence intervals of the means of rows; NaN for rows that are not finite, or of one value.

    Percentile-t (Efron & Tibshirani 1993, section 12.5): the distribution of the studentised mean is taken from
    resamples of the row, not from Student, so that skewed errors have the longer end that they need. Each end is at
    least as far from the mean as that of Student's t. Rows of fewer than five values have Student's t alone. The
    standard error of a resample counts as a fifth of that of the row at least.

    >>> low, high = mean_intervals([[1.0, 2.0, 3.0], [1.0, 1.0, 1.0]])
    >>> low.round(2).tolist(), high.round(2).tolist()
    ([-0.48, 1.0], [4.48, 1.0])
    """
    rows = np.atleast_2d(np.asarray(values, np.float64))
    R = rows.shape[1]
    low, high = (np.full(len(rows), np.nan) for _ in range(2))
    finite = np.flatnonzero(np.isfinite(rows).all(axis=1))
    if R < 2 or not len(finite):
        return low, high
    for begin in range(0, len(finite), _ROWS):
        chunk = finite[begin : begin + _ROWS]
        mean, error = over_runs(rows[chunk])
        width = np.full((2, len(chunk)), t_quantile(0.5 + CONFIDENCE / 2, R - 1))  # in standard errors
        if R >= FEWEST:
            least, largest = _studentised(rows[chunk] - mean[:, None])
            width = np.maximum(width, [largest, -least])
        low[chunk], high[chunk] = mean - width[0] * error, mean + width[1] * error
    return low, high


def _studentised(centred: Array) -> tuple[Array, Array]:
    """The quantiles of the resampled mean in its resampled standard errors, of rows whose mean is 0."""
    R = centred.shape[1]
    scale = np.abs(centred).max(axis=1, keepdims=True)
    unit = np.divide(centred, scale, out=np.zeros_like(centred), where=scale > 0.0)  # squares must not overflow
    with blas_threads(1):  # the last bits depend on how many there are
        mean, square = (power @ _resampling(R) for power in (unit, unit * unit))
    error = np.sqrt(np.maximum(square - mean * mean, 0.0) / (R - 1))
    # A resample without the few runs that differ has hardly any spread: it must not make the interval endless.
    least = _LEAST_SPREAD * np.sqrt(np.mean(unit * unit, axis=1, keepdims=True) / (R - 1))
    ratio = np.divide(mean, np.maximum(error, least), out=np.zeros_like(mean), where=least > 0.0)
    tail = round((1.0 - CONFIDENCE) / 2 * (_SAMPLES + 1)) - 1
    ratio.partition([tail, _SAMPLES - 1 - tail], axis=1)
    return ratio[:, tail], ratio[:, _SAMPLES - 1 - tail]


@functools.lru_cache(maxsize=2)
def _resampling(R: int) -> Array:
    """How often each of R runs is in each resample, as a share, (R, samples)."""
    counts = np.random.default_rng(_SEED).multinomial(R, np.full(R, 1.0 / R), _SAMPLES)
    return np.ascontiguousarray(counts.T / R)


def interval(values: ArrayLike) -> Interval:
    """The mean of independent values, such as the errors of runs, and its confidence interval (``mean_intervals``).

    Of one value, or where one is not finite, the interval is not known.

    >>> mean = interval([1.0, 2.0, 3.0])
    >>> mean.value, round(mean.low, 2), round(mean.high, 2), mean.how
    (2.0, -0.48, 4.48, 't')
    """
    x = np.asarray(values, np.float64)
    if not np.isfinite(x).all():
        return Interval(math.inf if not np.isnan(x).any() else math.nan, math.nan, math.nan, "")
    (low,), (high,) = mean_intervals(x)
    how = "" if len(x) < 2 else "t" if len(x) < FEWEST else "bootstrap"
    return Interval(float(x.mean()), float(low), float(high), how)


def median_interval(values: ArrayLike) -> Interval:
    """The median of the values, of which infinite ones are the largest, and its bootstrap confidence interval."""
    x = np.asarray(values, np.float64)
    with np.errstate(invalid="ignore"):
        middle = float(np.median(x))
        if len(x) < 2 or math.isnan(middle):
            return Interval(middle, math.nan, math.nan, "")
        chosen = np.random.default_rng(_SEED).integers(0, len(x), (_SAMPLES, len(x)))
        medians = np.sort(np.median(x[chosen], axis=1))
    tail = (1.0 - CONFIDENCE) / 2
    low, high = (float(medians[round(p * (_SAMPLES - 1))]) for p in (tail, 1.0 - tail))
    return Interval(middle, low, high, "bootstrap")


def difference(values: ArrayLike, baseline: ArrayLike) -> Interval:
    """How much larger ``values`` are than ``baseline`` on the same runs: the mean of the differences, run by run.

    Settings of a sweep share their streams, so that what is hard for one is hard for the other: the difference is
    surer than either mean. Where a run of either diverged no difference is known.
    """
    with np.errstate(invalid="ignore"):
        differences = np.asarray(values, np.float64) - np.asarray(baseline, np.float64)
    if not np.isfinite(differences).all():
        return Interval(math.nan, math.nan, math.nan, "")
    return interval(differences)


def tolerance_interval(values: ArrayLike, share: float) -> tuple[float, float]:
    """Between which values a share of all runs lies, with 95% confidence; NaN where there are too few runs to say.

    A confidence interval says where the mean is; this says what a single run may come to. It is free of assumptions on
    their distribution (Wilks 1941): from the r-th least to the r-th largest value, with the largest r that has the
    confidence.

    Args:
        values: The errors of runs; those that diverged are infinite, and so the largest.
        share: The share of runs, between 0 and 1.

    >>> tolerance_interval(range(100), 0.9)
    (1.0, 98.0)
    >>> tolerance_interval(range(45), 0.9)
    (nan, nan)
    """
    x = np.sort(np.asarray(values, np.float64))
    R = len(x)
    left_out = 0
    while 2 * (left_out + 1) <= R and _confidence(R, left_out + 1, share) >= CONFIDENCE:
        left_out += 1
    if not left_out or np.isnan(x).any():
        return math.nan, math.nan
    return float(x[left_out - 1]), float(x[R - left_out])


def runs_for_tolerance(share: float) -> int:
    """The fewest runs of which a tolerance interval is known.

    >>> runs_for_tolerance(0.9), runs_for_tolerance(0.5)
    (46, 8)
    """
    runs = 2
    while _confidence(runs, 1, share) < CONFIDENCE:
        runs += 1
    return runs


@functools.lru_cache(1024)  # it depends on the number of runs alone, and all settings of a sweep have as many
def _confidence(R: int, rank: int, share: float) -> float:
    """How surely the r-th least and the r-th largest of R values enclose the share: P(Bin(R, share) ≤ R − 2r)."""
    logs = [
        math.lgamma(R + 1)
        - math.lgamma(k + 1)
        - math.lgamma(R - k + 1)
        + k * math.log(share)
        + (R - k) * math.log1p(-share)
        for k in range(R - 2 * rank + 1)
    ]
    return math.fsum(map(math.exp, logs))


def over_runs(values: NDArray[np.floating]) -> tuple[Array, Array]:
    """The mean over runs (the second axis) and its standard error; NaN for that where there is but one run."""
    R = values.shape[1]
    with np.errstate(all="ignore"):
        mean = values.mean(axis=1, dtype=np.float64)
        if R < 2:
            return mean, np.full(mean.shape, np.nan)
        return mean, values.std(axis=1, ddof=1, dtype=np.float64) / math.sqrt(R)
