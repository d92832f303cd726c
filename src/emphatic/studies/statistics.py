"""How sure a mean over runs is: confidence intervals of means, medians and paired differences."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["CONFIDENCE", "Interval", "difference", "interval", "median_interval", "over_runs", "t_quantile"]

Array = NDArray[np.float64]

CONFIDENCE = 0.95
#: Errors of runs that are more skewed than this are not for a t-interval.
SKEWED = 1.0
#: Samples of a bootstrap, and what they are drawn from: the same numbers give the same interval.
_SAMPLES, _SEED = 2000, 20
_NORMAL = NormalDist()


@dataclass(frozen=True)
class Interval:
    """A mean or a median over runs with its 95% confidence interval.

    Args:
        value: The mean or median.
        low: Lower end of the interval.
        high: Upper end of the interval.
        how: How the interval was computed: "t" or "bootstrap"; "" where it is not known.
    """

    value: float
    low: float
    high: float
    how: str

    @property
    def above_zero(self) -> bool:
        """Whether all of it is above 0."""
        return self.low > 0.0


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


def interval(values: ArrayLike) -> Interval:
    """The mean of independent values, such as the errors of runs, and its confidence interval.

    Student's t; where the values are skewed (|skewness| > 1, and 8 of them or more) a bootstrap that corrects for bias
    and skewness (BCa; Efron 1987). Of one value, or where one is not finite, the interval is not known.

    >>> mean = interval([1.0, 2.0, 3.0])
    >>> mean.value, round(mean.low, 2), round(mean.high, 2), mean.how
    (2.0, -0.48, 4.48, 't')
    """
    x = np.asarray(values, np.float64)
    R = len(x)
    if not np.isfinite(x).all():
        return Interval(math.inf if not np.isnan(x).any() else math.nan, math.nan, math.nan, "")
    mean = float(x.mean())
    if R < 2:
        return Interval(mean, math.nan, math.nan, "")
    if R >= 8 and abs(_skewness(x)) > SKEWED:
        return Interval(mean, *_bootstrap(x, lambda samples: samples.mean(axis=1)), "bootstrap")
    half = t_quantile(0.5 + CONFIDENCE / 2, R - 1) * float(x.std(ddof=1)) / math.sqrt(R)
    return Interval(mean, mean - half, mean + half, "t")


def median_interval(values: ArrayLike) -> Interval:
    """The median of the values, of which infinite ones are the largest, and its bootstrap confidence interval."""
    x = np.asarray(values, np.float64)
    with np.errstate(invalid="ignore"):
        middle = float(np.median(x))
        if len(x) < 2 or math.isnan(middle):
            return Interval(middle, math.nan, math.nan, "")
        medians = np.sort(np.median(_resampled(x), axis=1))
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


def _skewness(x: Array) -> float:
    off = x - x.mean()
    spread = float(np.mean(off**2))
    return float(np.mean(off**3)) / spread**1.5 if spread > 0.0 else 0.0


def _resampled(x: Array) -> Array:
    return x[np.random.default_rng(_SEED).integers(0, len(x), (_SAMPLES, len(x)))]


def _bootstrap(x: Array, statistic: Callable[[Array], Array]) -> tuple[float, float]:
    """BCa: percentiles of the resampled statistic, moved by its bias and by how its spread depends on its value."""
    samples, estimate = np.sort(statistic(_resampled(x))), float(statistic(x[None])[0])
    share = (np.sum(samples < estimate) + 0.5 * np.sum(samples == estimate)) / len(samples)
    bias = _NORMAL.inv_cdf(min(max(float(share), 1e-6), 1.0 - 1e-6))
    without = statistic(np.stack([np.delete(x, i) for i in range(len(x))]))
    off = without.mean() - without
    square = float(np.sum(off**2))
    acceleration = float(np.sum(off**3)) / (6.0 * square**1.5) if square > 0.0 else 0.0
    ends = []
    for p in ((1.0 - CONFIDENCE) / 2, (1.0 + CONFIDENCE) / 2):
        z = bias + _NORMAL.inv_cdf(p)
        ends.append(float(np.quantile(samples, _NORMAL.cdf(bias + z / (1.0 - acceleration * z)))))
    return ends[0], ends[1]


def over_runs(values: NDArray[np.floating]) -> tuple[Array, Array]:
    """The mean over runs (the second axis) and its standard error; NaN for that where there is but one run."""
    R = values.shape[1]
    with np.errstate(all="ignore"):
        mean = values.mean(axis=1, dtype=np.float64)
        if R < 2:
            return mean, np.full(mean.shape, np.nan)
        return mean, values.std(axis=1, ddof=1, dtype=np.float64) / math.sqrt(R)
