"""Verdicts: whether predictions are better than the best baseline, by more than chance.

Errors of overlapping returns depend on one another. So the squared errors of a prediction and of each baseline are
summed in at most 64 blocks of consecutive rows, which merge pairwise when more rows come. Before they are compared,
blocks are joined until each is three horizons long. The interval of the skill

    1 − Σ error² / Σ error² of the best baseline

is that of the bootstrap over those blocks (Künsch 1989), widened as a t quantile is against a normal one, for blocks
are few. Its lower end decides: above 0 the prediction is *better*. With fewer than 8 blocks the log is *too short* to
tell; otherwise the prediction is *no better*.

A signal is judged by its best horizon. The level, 5%, is divided by the number of horizons then: with
more horizons one of them is more often better by chance. What is judged are its values at +h where they are predicted,
for these are what a forecast shows; otherwise the weighted means of what follows.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["BLOCKS", "LEVEL", "ErrorBlocks", "Verdict", "judge_errors", "judge_signal"]

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
    """Sums over blocks of consecutive rows, of several columns for each of Q questions, in constant memory.

    There are up to 64 blocks. When they are full, they merge pairwise and their length doubles.

    Args:
        columns: What is summed, by name, besides the number of rows.
        Q: The number of questions.
        rows: The number of rows, where it is known: blocks then never merge.

    >>> blocks = ErrorBlocks(["error"], 1)
    >>> blocks.add(0, {"error": np.ones((1, 100))}, np.ones((1, 100), bool))
    >>> blocks.length, blocks.sums("error")[:, 0].tolist()[:2]
    (2, [2.0, 2.0])
    """

    def __init__(self, columns: Sequence[str], Q: int, rows: int | None = None) -> None:
        self.columns = tuple(columns)
        self.length = 1 if rows is None else max(1, -(-rows // BLOCKS))
        self._sums = np.zeros((1 + len(self.columns), BLOCKS, Q))

    def add(self, row: int, values: Mapping[str, Array], use: NDArray[np.bool_]) -> None:
        """Consecutive rows from ``row`` on; each column (Q, B), and where it counts (Q, B)."""
        stop = row + use.shape[1]
        while stop > BLOCKS * self.length:
            self._merge()
        edges = [row, *range((row // self.length + 1) * self.length, stop, self.length), stop]
        with np.errstate(over="ignore", invalid="ignore"):
            columns = [use.astype(np.float64), *(np.where(use, values[name], 0.0) for name in self.columns)]
            for begin, end in pairwise(edges):
                for sums, column in zip(self._sums, columns, strict=True):
                    sums[begin // self.length] += column[:, begin - row : end - row].sum(axis=1)

    def add_rows(self, rows: NDArray[np.int64], values: Mapping[str, Array]) -> None:
        """Rows of one question in ascending order, each column (B,): bits do not depend on how they are cut."""
        at = 0
        while at < len(rows):
            if rows[at] >= BLOCKS * self.length:
                self._merge()
                continue
            end = int(np.searchsorted(rows, BLOCKS * self.length))
            block = rows[at:end] // self.length
            with np.errstate(over="ignore", invalid="ignore"):
                np.add.at(self._sums[0, :, 0], block, 1.0)
                for i, name in enumerate(self.columns, 1):
                    np.add.at(self._sums[i, :, 0], block, values[name][at:end])
            at = end

    def _merge(self) -> None:
        """Join blocks pairwise."""
        self._sums[:, : BLOCKS // 2] = self._sums[:, 0::2] + self._sums[:, 1::2]
        self._sums[:, BLOCKS // 2 :] = 0.0
        self.length *= 2

    def sums(self, name: str | None = None) -> Array:
        """The sums of a column, (64, Q); by default the numbers of rows."""
        sums: Array = self._sums[0 if name is None else self.columns.index(name) + 1]
        return sums

    def state(self) -> Array:
        """The state as one array."""
        length = np.full((1, *self._sums.shape[1:]), float(self.length))
        return np.concatenate([length, self._sums])

    def restore(self, state: Array) -> None:
        """Go on from ``state``; ValueError if it does not fit."""
        if state.shape != (len(self._sums) + 1, *self._sums.shape[1:]) or not state[0, 0, 0] >= 1.0:
            raise ValueError("the sums of errors in blocks do not fit")
        self.length, self._sums = int(state[0, 0, 0]), np.array(state[1:], np.float64)


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


def judge_signal(signal: str, narrow: Mapping[Any, Verdict], kind: str = "mean") -> dict[str, Any]:
    """The verdict on a signal, that of its best horizon.

    Args:
        signal: The signal.
        narrow: The verdict on each horizon, at a level that is divided by their number.
        kind: What was predicted: "value", at +h, or "mean", the weighted mean of what follows.

    >>> better = Verdict("better", "persistence", 0.25, 0.1, 0.4)
    >>> judge_signal("power", {"1h": better}, "value")["sentence"]
    'power is predicted better than by the last value, by 25% at +1h.'
    """
    order = (BETTER, NO_BETTER, TOO_SHORT)
    horizon = min(narrow, key=lambda h: (order.index(narrow[h].verdict), -_or_least(narrow[h].skill_best)))
    judged = narrow[horizon]
    return {
        "signal": signal,
        "verdict": judged.verdict,
        "sentence": _describe_verdict(signal, judged, horizon, kind),
        "horizon": horizon,
        "kind": kind,
        **judged._asdict(),
    }


def _describe_verdict(signal: str, judged: Verdict, horizon: object, kind: str) -> str:
    """The verdict on a signal in one sentence."""
    from emphatic.scores.baselines import describe_baseline

    if judged.best_baseline is None:
        return f"{signal} cannot be judged: too few of its values are known."
    if judged.verdict == TOO_SHORT:
        return f"{signal}: the log is too short to tell whether it can be predicted."
    name = describe_baseline(judged.best_baseline)
    if judged.verdict == BETTER:
        gain = 100.0 * (judged.skill_best or 0.0)
        length = horizon if isinstance(horizon, str) else f"{horizon} row{'' if horizon == 1 else 's'}"
        at = f"at +{length}" if kind == "value" else f"in the mean over {length}"
        return f"{signal} is predicted better than by {name}, by {gain:.{0 if gain >= 1 else 1}f}% {at}."
    return f"{signal} is predicted no better than by {name}."


def _or_least(value: float | None) -> float:
    return -math.inf if value is None else value


def _interval(error: Array, of_best: Array, skill: float, level: float) -> tuple[float, float]:
    """The ends of the interval of the skill, by resampling blocks."""
    n = len(error)
    draws = _draws(n)
    unit = float(of_best.max())  # (sums may be near the largest number)
    denominator = draws @ (of_best / unit)
    with np.errstate(all="ignore"):
        skills = np.where(denominator > 0.0, 1.0 - draws @ (error / unit) / denominator, -np.inf)
        low, high = np.quantile(skills, [0.5 * level, 1.0 - 0.5 * level])
        # The deviation of few blocks is itself uncertain, and their bootstrap is too narrow by √((n − 1) / n).
        widened = _t_quantile(1.0 - 0.5 * level, n - 1) / NormalDist().inv_cdf(1.0 - 0.5 * level)
        widened *= math.sqrt(n / (n - 1.0))
        low, high = skill - widened * (skill - low), min(1.0, skill + widened * (high - skill))
    return (float(low) if math.isfinite(low) else -1e300), (float(high) if math.isfinite(high) else 1.0)


@functools.lru_cache(maxsize=8)
def _draws(n: int) -> Array:
    """How often each of n blocks is drawn, (draws, n): always the same, so that a verdict is."""
    counts: Array = np.random.default_rng(n).multinomial(n, np.full(n, 1.0 / n), _DRAWS).astype(np.float64)
    return counts


def _t_quantile(p: float, degrees: int) -> float:
    """Student's t, by the expansion of Cornish and Fisher (Abramowitz & Stegun 26.7.5)."""
    z = NormalDist().inv_cdf(p)
    terms = (
        (z**3 + z) / 4.0,
        (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / 96.0,
        (3.0 * z**7 + 19.0 * z**5 + 17.0 * z**3 - 15.0 * z) / 384.0,
    )
    return z + math.fsum(term / float(degrees) ** (k + 1) for k, term in enumerate(terms))
