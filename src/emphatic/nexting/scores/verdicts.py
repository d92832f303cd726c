"""Verdicts: whether predictions are better than the best baseline, by more than chance.

Errors of overlapping windows depend on one another. So the squared errors of a prediction and of each baseline are
summed in at most 64 blocks of consecutive rows, which merge pairwise when more rows come. Before they are compared,
blocks are joined until each is three horizons long. The interval of the skill

    1 − Σ error² / Σ error² of the best baseline

is that of the bootstrap over those blocks (Künsch 1989), widened as a t quantile is against a normal one, for blocks
are few. Its lower end decides: above 0 the prediction is *better*. With fewer than 8 blocks the log is *too short* to
tell; otherwise the prediction is *no better*.

A signal is judged by its best horizon. The level, 5%, is divided by the number of horizons then: with more horizons
one of them is more often better by chance.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["BLOCKS", "LEVEL", "ErrorBlocks", "Verdict", "describe_baseline", "finite", "judge_errors", "judge_signal"]
__all__ += ["mean_of", "share_of"]

Array = NDArray[np.float64]

#: The share of intervals that may miss the true skill, half of it on either side.
LEVEL = 0.05
#: The blocks that errors are summed in, at most, and those that are needed to tell.
BLOCKS, FEWEST = 64, 8
#: The horizons that a block has to last.
HORIZONS = 3.0
#: The draws of the bootstrap.
_DRAWS = 4000
BETTER, NO_BETTER, TOO_SHORT = "better", "no better", "too short"
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
    "rate": "the usual rate",
    "so_now": "what is so now",
}


def finite(number: float) -> float | None:
    """None for what JSON cannot hold."""
    return float(number) if math.isfinite(number) else None


def mean_of(total: float, count: float, root: bool = False) -> float | None:
    """The mean, or its root; None where nothing was counted."""
    mean = float(total / count) if count > 0.0 else math.nan
    return finite(math.sqrt(max(mean, 0.0)) if root else mean)


def share_of(errors: float, of_all: float) -> float | None:
    """1 − errors / of_all; None where there is nothing to explain."""
    return finite(1.0 - errors / of_all) if of_all > 0.0 else None


def describe_baseline(name: str) -> str:
    """A baseline in words.

    Args:
        name: Its name in ``summary.json``.

    >>> describe_baseline("last_day")
    'the day before'
    """
    return _WORDS.get(name, name)


class Verdict(NamedTuple):
    """What is said of the predictions of one question.

    Args:
        verdict: "better", "no better" or "too short".
        best_baseline: The name of the baseline with the smallest error; None if nothing was scored.
        skill_best: 1 − MSE / MSE of that baseline; None where it makes no error.
        skill_best_low: The lower end of its interval; None where there are too few blocks.
        skill_best_high: The upper end.
    """

    verdict: str
    best_baseline: str | None = None
    skill_best: float | None = None
    skill_best_low: float | None = None
    skill_best_high: float | None = None


class ErrorBlocks:
    """Sums over blocks of consecutive rows, of several columns, in constant memory.

    There are up to 64 blocks. When they are full, they merge pairwise and their length doubles.

    Args:
        columns: What is summed, by name, besides the number of rows.

    >>> blocks = ErrorBlocks(["error"])
    >>> blocks.add(np.arange(100), {"error": np.ones(100)})
    >>> blocks.length, blocks.sums("error").tolist()[:2]
    (2, [2.0, 2.0])
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns, self.length = tuple(columns), 1
        self._sums = np.zeros((1 + len(self.columns), BLOCKS))

    def add(self, rows: NDArray[np.int64], values: Mapping[str, Array]) -> None:
        """Rows in ascending order, each column (B,): bits do not depend on how they are cut."""
        at = 0
        while at < len(rows):
            if rows[at] >= BLOCKS * self.length:
                self._merge()
                continue
            end = int(np.searchsorted(rows, BLOCKS * self.length))
            block = rows[at:end] // self.length
            with np.errstate(over="ignore", invalid="ignore"):
                np.add.at(self._sums[0], block, 1.0)
                for i, name in enumerate(self.columns, 1):
                    np.add.at(self._sums[i], block, values[name][at:end])
            at = end

    def _merge(self) -> None:
        """Join blocks pairwise."""
        self._sums[:, : BLOCKS // 2] = self._sums[:, 0::2] + self._sums[:, 1::2]
        self._sums[:, BLOCKS // 2 :] = 0.0
        self.length *= 2

    def sums(self, name: str | None = None) -> Array:
        """The sums of a column, (64,); by default the numbers of rows."""
        sums: Array = self._sums[0 if name is None else self.columns.index(name) + 1]
        return sums

    def count_before(self, row: int) -> int:
        """How many blocks begin before a row.

        Args:
            row: The row, counted from the first that was added.
        """
        return min(BLOCKS, max(0, -(-row // self.length)))

    def state(self) -> Array:
        """The state as one array."""
        return np.concatenate([np.full((1, BLOCKS), float(self.length)), self._sums])

    def restore(self, state: Array) -> None:
        """Go on from ``state``; ValueError if it does not fit."""
        if state.shape != (len(self._sums) + 1, BLOCKS) or not state[0, 0] >= 1.0:
            raise ValueError("the sums of errors in blocks do not fit")
        self.length, self._sums = int(state[0, 0]), np.array(state[1:], np.float64)


def judge_errors(
    counts: Array,
    errors: Array,
    baselines: Mapping[str, Array],
    horizon: float,
    length: float = 1.0,
    level: float = LEVEL,
) -> Verdict:
    """Compare the squared errors of a prediction with those of the best baseline.

    Args:
        counts: The rows that were scored in each block of consecutive rows.
        errors: The sum of the prediction's squared errors in each block.
        baselines: The same of each baseline, by name.
        horizon: How many rows ahead a return reaches.
        length: The rows of a block.
        level: The share of intervals that may miss the true skill.

    >>> rng = np.random.default_rng(1)
    >>> noise, ours = rng.normal(size=500), 0.5 * rng.normal(size=500)
    >>> judge_errors(np.ones(500), ours**2, {"mean": noise**2}, 1.0).verdict
    'better'
    >>> judge_errors(np.ones(500), noise**2, {"mean": (noise + 0.01) ** 2}, 1.0).verdict
    'no better'
    >>> judge_errors(np.ones(500), ours**2, {"mean": noise**2}, 100.0).verdict
    'too short'
    """
    rows = float(np.sum(counts))
    totals = {name: float(np.sum(sums)) for name, sums in baselines.items()}
    totals = {name: total for name, total in totals.items() if math.isfinite(total)}
    if rows <= 0.0 or not totals:
        return Verdict(TOO_SHORT)
    best = min(totals, key=lambda name: totals[name])
    ours = float(np.sum(errors))
    skill = 1.0 - ours / totals[best] if totals[best] > 0.0 and math.isfinite(ours) else None
    joined = max(-(-len(counts) // BLOCKS), math.ceil(min(HORIZONS * horizon / length, len(counts))))
    starts = np.arange(0, len(counts), joined)
    number, error, of_best = (np.add.reduceat(sums, starts) for sums in (counts, errors, baselines[best]))
    scored = number > 0.0
    if scored.sum() < FEWEST:
        return Verdict(TOO_SHORT, best, skill)
    if skill is None:
        return Verdict(NO_BETTER, best)
    low, high = _interval(error[scored], of_best[scored], skill, level)
    return Verdict(BETTER if low > 0.0 else NO_BETTER, best, skill, low, high)


def judge_signal(signal: str, narrow: Mapping[Any, Verdict]) -> dict[str, Any]:
    """The verdict on a signal, that of its best horizon.

    Args:
        signal: The signal.
        narrow: The verdict on its value at each horizon, at a level that is divided by their number.

    >>> better = Verdict("better", "persistence", 0.25, 0.1, 0.4)
    >>> judge_signal("power", {"1h": better})["sentence"]
    'power is predicted better than with the last value, by 25% at +1h.'
    """
    order = (BETTER, NO_BETTER, TOO_SHORT)
    horizon = min(narrow, key=lambda h: (order.index(narrow[h].verdict), -_or_least(narrow[h].skill_best)))
    judged = narrow[horizon]
    sentence = _describe_verdict(signal, judged, horizon)
    return {"signal": signal, "verdict": judged.verdict, "sentence": sentence, "horizon": horizon, **judged._asdict()}


def _describe_verdict(signal: str, judged: Verdict, horizon: object) -> str:
    """The verdict on a signal in one sentence."""
    if judged.best_baseline is None:
        return f"{signal} cannot be judged: too few of its values are known."
    if judged.verdict == TOO_SHORT:
        return f"{signal}: the log is too short to tell whether it can be predicted."
    name = describe_baseline(judged.best_baseline)
    if judged.verdict == BETTER:
        gain = 100.0 * (judged.skill_best or 0.0)
        length = horizon if isinstance(horizon, str) else f"{horizon} row{'' if horizon == 1 else 's'}"
        return f"{signal} is predicted better than with {name}, by {gain:.{0 if gain >= 1 else 1}f}% at +{length}."
    return f"{signal} is predicted no better than with {name}."


def _or_least(value: float | None) -> float:
    return -math.inf if value is None else value


def _interval(error: Array, of_best: Array, skill: float, level: float) -> tuple[float, float]:
    """The ends of the interval of the skill, by resampling blocks."""
    from scipy.special import stdtrit  # late: to import it takes a quarter of a second

    n = len(error)
    draws = _draws(n)
    unit = float(of_best.max())  # (sums may be near the largest number)
    denominator = draws @ (of_best / unit)
    with np.errstate(all="ignore"):
        skills = np.where(denominator > 0.0, 1.0 - draws @ (error / unit) / denominator, -np.inf)
        low, high = np.quantile(skills, [0.5 * level, 1.0 - 0.5 * level])
        # The deviation of few blocks is itself uncertain, and their bootstrap is too narrow by √((n − 1) / n).
        widened = float(stdtrit(n - 1, 1.0 - 0.5 * level)) / NormalDist().inv_cdf(1.0 - 0.5 * level)
        widened *= math.sqrt(n / (n - 1.0))
        low, high = skill - widened * (skill - low), min(1.0, skill + widened * (high - skill))
    return (float(low) if math.isfinite(low) else -1e300), (float(high) if math.isfinite(high) else 1.0)


@functools.lru_cache(maxsize=8)
def _draws(n: int) -> Array:
    """How often each of n blocks is drawn, (draws, n): always the same, so that a verdict is."""
    counts: Array = np.random.default_rng(n).multinomial(n, np.full(n, 1.0 / n), _DRAWS).astype(np.float64)
    return counts
