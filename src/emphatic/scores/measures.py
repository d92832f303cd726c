"""Measures of predictions against the actual returns, and the scores of a whole log.

A measure is one ``Measure`` in ``__all__`` of a module of this package, or an entry point of another package in the
group ``emphatic.measures``. Every score has it under its name, beside the root mean square error.

``measures`` takes arrays. ``LogScores`` and ``IntervalScores`` take blocks of rows in order and keep sums only;
``summary`` scores a log that is in memory.

A *verdict* says whether predictions are better than the best baseline, by more than chance. Errors of overlapping
returns depend on one another. So the squared errors of a prediction and of each baseline are summed in at most 64
blocks of consecutive rows, which merge pairwise when more rows come. Before they are compared, blocks are joined until
each is three horizons long. The interval of the skill

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emphatic.learning.inputs import refusal
from emphatic.scores.baselines import (
    Array,
    Calendar,
    Features,
    FirstHalf,
    PlainAnswers,
    blocks,
    find_baselines,
    find_members,
)
from emphatic.scores.returns import Returns, rows_to_score

# The scores have the measures in this order.
__all__ = ["RMSE", "VARIANCE_EXPLAINED", "PIECES", "IntervalScores", "LogScores", "Measure", "Moments", "Summary"]  # noqa: RUF022
__all__ += ["find_measures", "finite", "measures", "summary"]
__all__ += ["BLOCKS", "LEVEL", "ErrorBlocks", "Verdict", "judge_errors", "judge_signal"]

Measures = dict[str, float | None]

#: Returns that vary less than this, against their mean square, do not vary.
_NEGLIGIBLE = 1e-12
#: Points of a learning curve. An even number: half of them cover the first half of the log.
PIECES = 20
#: Why there are no scores.
UNKNOWN = "no return of the second half is known: it reaches past the end or a gap, or too many values are missing"
LOG_TOO_SHORT = "no return of the second half is known: the log is too short, {:,} rows are needed"
STILL = "the return does not vary in the second half"


class Moments(NamedTuple):
    """Means over the rows that are scored, from which measures are computed.

    Args:
        rows: The number of rows, 1 or more.
        error: The mean squared error.
        variance: The variance of the return.
        square: The mean square of the return.
        loss: The mean of the measure's ``loss``; NaN for a measure without one.
    """

    rows: int
    error: float
    variance: float
    square: float
    loss: float = math.nan


@dataclass(frozen=True)
class Measure:
    """A score of predictions: one number, from means over the rows whose return is known.

    Args:
        name: Its key in the scores.
        compute: From the moments of predictions and returns to the number; NaN where it is undefined.
        loss: Of predictions and returns, an array of the same shape, whose mean is ``Moments.loss``. A measure that
            needs only the squared error and the return's variance has none.
    """

    name: str
    compute: Callable[[Moments], float]
    loss: Callable[[Array, Array], Array] | None = None


def _explain(moments: Moments) -> float:
    varies = moments.variance > _NEGLIGIBLE * moments.square
    return 1 - moments.error / moments.variance if varies else math.nan


RMSE = Measure("rmse", lambda moments: math.sqrt(moments.error))
VARIANCE_EXPLAINED = Measure("variance_explained", _explain)


@functools.cache
def find_measures() -> dict[str, Measure]:
    """All measures by name: those of this package, then those of others."""
    members: dict[str, Measure] = find_members("emphatic.measures", Measure, "a Measure")
    for name in members:
        if name in find_baselines():
            raise ValueError(f"The name {name!r} of a Measure is taken: there is a Baseline of that name.")
    return members


def _losses() -> list[Callable[[Array, Array], Array]]:
    """What is averaged over rows: the squared error, then the losses of measures."""
    return [_squared_error, *(measure.loss for measure in find_measures().values() if measure.loss is not None)]


def _squared_error(prediction: Array, G: Array) -> Array:
    error: Array = prediction - G
    error *= error
    return error


def _where_known(known: NDArray[np.bool_], values: Array) -> Array:
    """The values that are to be summed, 0 where no return is known."""
    return values if known.all() else np.where(known, values, 0.0)


def _evaluate(rows: int, means: Sequence[float], variance: float, square: float) -> Measures:
    """All measures of this many rows, from the means of ``_losses`` and the return's variance and mean square."""
    if not rows:
        return dict.fromkeys(find_measures())
    losses = iter(means[1:])
    scores = {}
    for name, measure in find_measures().items():
        loss = math.nan if measure.loss is None else next(losses)
        scores[name] = finite(float(measure.compute(Moments(rows, means[0], variance, square, loss))))
    return scores


def measures(
    prediction: NDArray[Any], G: NDArray[Any], use: slice | NDArray[np.bool_] | NDArray[np.int64] = slice(None)
) -> Measures:
    """The root mean square error, and the variance explained.

        rmse = √MSE,   variance_explained = 1 − MSE / Var(G)

    None where undefined: without rows; variance explained also where the return does not vary. Measures of other
    packages (``Measure``) follow.

    Args:
        prediction: The predictions, (T,).
        G: The actual returns, (T,).
        use: The rows that are scored, as an index; all by default.

    >>> measures(np.array([1.0, 2.0]), np.array([1.0, 3.0]), np.array([True, True]))
    {'rmse': 0.7071067811865476, 'variance_explained': 0.5}
    >>> measures(np.array([1.0]), np.array([1.0]), np.array([False]))
    {'rmse': None, 'variance_explained': None}
    """
    outcome = np.asarray(G[use], np.float64)
    if not len(outcome):
        return _evaluate(0, (), math.nan, math.nan)
    with np.errstate(over="ignore", invalid="ignore"):
        means = [float(np.mean(loss(prediction[use], outcome))) for loss in _losses()]
        return _evaluate(len(outcome), means, float(np.var(outcome)), float(np.mean(outcome**2)))


def finite(number: float) -> float | None:
    """None for what JSON cannot hold."""
    return number if math.isfinite(number) else None


class IntervalScores:
    """Scores of the intervals of Q questions from row ``first`` on; blocks of rows come in order, only sums are kept.

    The interval score of a return G with the interval [l, u], of which a share α is to be missed, is

        u − l + 2/α (l − G)⁺ + 2/α (G − u)⁺

    in the unit of G: less is better, and it is least, in the mean, at the α/2 and 1 − α/2 quantiles (Winkler 1972;
    Gneiting & Raftery 2007, section 6.2).

    >>> scores = IntervalScores(1, 0, 0.8)
    >>> G = np.array([[1.0, 2.0, 5.0, 3.0]])
    >>> scores.add(0, np.zeros((4, 1)), np.full((4, 1), 4.0), G, np.array([[True, True, True, False]]))
    >>> scores.scores()
    [{'coverage': 0.6666666666666666, 'interval_score': 7.333333333333333}]
    """

    def __init__(self, Q: int, first: int, coverage: float) -> None:
        self._first, self._penalty = first, 2.0 / (1.0 - coverage)
        self._rows, self._inside, self._total = np.zeros(Q, np.int64), np.zeros(Q, np.int64), np.zeros(Q)

    def add(self, start: int, low: Array, high: Array, G: Array, known: NDArray[np.bool_]) -> None:
        """The next B rows, from ``start`` on: ends (B, Q), NaN where there is none; returns, where known, (Q, B)."""
        rows = slice(max(0, self._first - start), None)
        l, u, g = low[rows].T, high[rows].T, G[:, rows]
        use = known[:, rows] & ~np.isnan(l)
        with np.errstate(over="ignore", invalid="ignore"):
            missed = np.maximum(l - g, 0.0) + np.maximum(g - u, 0.0)
            score = np.where(use, u - l + self._penalty * missed, 0.0)
        self._rows += use.sum(axis=1)
        self._inside += (use & (l <= g) & (g <= u)).sum(axis=1)
        self._total += score.sum(axis=1)

    def scores(self) -> list[dict[str, float | None]]:
        """The share inside and the mean score of each question; None where no return is known."""
        sums = zip(self._rows.tolist(), self._inside.tolist(), self._total.tolist(), strict=True)
        return [
            {"coverage": inside / rows if rows else None, "interval_score": finite(total / rows) if rows else None}
            for rows, inside, total in sums
        ]


# ---------------------------------------------------------------------- verdicts


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
            columns = [use.astype(np.float64), *(_where_known(use, values[name]) for name in self.columns)]
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

    def count_before(self, row: int) -> int:
        """How many blocks begin before a row.

        Args:
            row: The row, counted from the first that was added.
        """
        return min(BLOCKS, max(0, -(-row // self.length)))

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
    'power is predicted better than with the last value, by 25% at +1h.'
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
        return f"{signal} is predicted better than with {name}, by {gain:.{0 if gain >= 1 else 1}f}% {at}."
    return f"{signal} is predicted no better than with {name}."


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


# ---------------------------------------------------------------------- scores of a log


class Summary(NamedTuple):
    """The result of ``summary``.

    Args:
        scores: One dict per question.
        curves: The learning curves, one dict per question.
        G: The actual returns, (T, Q).
        known: Where they are known, (T, Q).
    """

    scores: list[dict[str, Any]]
    curves: list[dict[str, Any]]
    G: NDArray[np.float64]
    known: NDArray[np.bool_]


class LogScores:
    """Scores of T rows of C signals at H horizons, from blocks of rows in order: only sums are kept.

    For each of 20 pieces of the log, and each question, these are the number of rows N whose return is known, the
    squared errors of each prediction, and the returns' mean and sum of squared departures from it. Blocks are merged by

        δ = mean_b − mean,   mean += δ N_b / N,   M₂ += M₂_b + δ² N N_b / (N + N_b)

    (Chan, Golub & LeVeque 1979), which keeps the digits of a signal far from 0. The squared errors of the second half
    are also summed in blocks, for the verdicts.
    """

    def __init__(
        self,
        signals: Sequence[str],
        horizons: Sequence[object],
        gammas: Array,
        T: int,
        step: float | None = None,
    ) -> None:
        self._signals, self._horizons, self._gammas = signals, horizons, gammas
        self._ends = np.arange(1, PIECES + 1) * T // PIECES
        Q = len(signals) * len(horizons)
        self._N = np.zeros((PIECES, Q), np.int64)
        self._mean, self._M2 = np.zeros((PIECES, Q)), np.zeros((PIECES, Q))
        self._losses = _losses()
        baselines = find_baselines().values()
        starts = {known.start: known.start(gammas, len(signals)) for known in baselines if known.start}
        #: The predictors of baselines by name; those that are the same share one.
        self._causal = {known.name: starts[known.start] for known in baselines if known.start}
        self._fitted = [known.name for known in baselines if known.fit]
        calendar = Calendar(step, T)
        timed = {known.name: known.follow(gammas, len(signals), calendar) for known in baselines if known.follow}
        self._timed = {name: predict for name, predict in timed.items() if predict is not None}
        #: The component answers that are baselines, and where they ever answered, (Q,).
        self._answering = {known.name: known.answer for known in baselines if known.answer}
        self._answered = {name: np.zeros(Q, np.bool_) for name in self._answering}
        #: The baselines that use the past alone, in the order of the registry.
        past = {*self._causal, *self._timed, *self._answering}
        self._past = [name for name in find_baselines() if name in past]
        #: The sums of each loss, (losses, pieces, Q), of the online predictions ("") and of each baseline.
        self._errors = {name: np.zeros((len(self._losses), PIECES, Q)) for name in ("", *self._past, *self._fitted)}
        self._blocks = ErrorBlocks(["", *self._past], Q, T - T // 2)
        self._answers: dict[str, Array] = {}

    def add(
        self,
        start: int,
        held: Array,
        missing: NDArray[np.bool_],
        predictions: NDArray[Any],
        offline: Array | Mapping[str, Array],
        G: Array,
        known: NDArray[np.bool_],
        time: Array | None = None,
        answers: Mapping[str, Array] | None = None,
    ) -> None:
        """The next B rows.

        Args:
            start: The number of the first of them.
            held: Readings (B, C), the last one held where one is missing.
            missing: Where they are missing, (B, C).
            predictions: The online predictions, (B, Q).
            offline: The predictions of the baselines that are fitted in hindsight, (Q, B) each, by name; or those of
                the offline fit alone. Where a fit is not passed, it has no scores.
            G: The returns, (Q, B).
            known: Where they are known, (Q, B).
            time: The times of the rows, (B,), in seconds since 1970; None without dates.
            answers: Component answers (Q, B) by name, of which those that are baselines are scored.
        """
        fits = offline if isinstance(offline, Mapping) else {"offline": offline}
        absent = np.full(G.shape, np.nan)
        guesses = {"": np.asarray(predictions, np.float64).T}
        causal = {id(predict): predict(held, missing) for predict in {id(p): p for p in self._causal.values()}.values()}
        guesses |= {name: _checked(name, causal[id(predict)], G) for name, predict in self._causal.items()}
        guesses |= {name: _checked(name, fits.get(name, absent), G) for name in self._fitted}
        guesses |= self._seasonal(held, missing, time, answers or {})
        stop = start + len(held)
        inner = self._ends[(self._ends > start) & (self._ends < stop)].tolist()
        pieces = [
            (int(np.searchsorted(self._ends, a, "right")), slice(a - start, b - start))
            for a, b in pairwise([start, *inner, stop])
        ]
        middle = int(self._ends[PIECES // 2 - 1])
        late, squares = slice(max(0, middle - start), None), dict[str, Array]()
        with np.errstate(over="ignore", invalid="ignore"):
            for names in _same_arrays(guesses):
                for i, loss in enumerate(self._losses):
                    losses = _where_known(known, loss(guesses[names[0]], G))
                    squares |= dict.fromkeys(names if i == 0 else (), losses[:, late])
                    for piece, rows in pieces:
                        total = losses[:, rows].sum(axis=1)
                        for name in names:
                            self._errors[name][i, piece] += total
            for piece, rows in pieces:
                self._merge(piece, known[:, rows], G[:, rows])
            if late.start < len(held):
                self._blocks.add(max(0, start - middle), squares, known[:, late])

    def _seasonal(
        self, held: Array, missing: NDArray[np.bool_], time: Array | None, answers: Mapping[str, Array]
    ) -> dict[str, Array]:
        """The predictions of baselines that follow a cycle, (Q, B); the present reading where there is none yet."""
        when = np.full(len(held), np.nan) if time is None else time
        present = np.repeat(held.T, len(self._horizons), axis=0)
        guesses = {name: predict(held, missing, when) for name, predict in self._timed.items()}
        for name, answer in self._answering.items():
            guesses[name] = answers.get(answer, np.full(present.shape, np.nan))
            self._answered[name] |= np.isfinite(guesses[name]).any(axis=1)
        for name, guess in guesses.items():
            unknown = np.isnan(_checked(name, guess, present))
            guesses[name] = np.where(unknown, present, guess) if unknown.any() else guess
        return guesses

    def add_answers(self, start: int, answers: Mapping[str, Array], G: Array, known: NDArray[np.bool_]) -> None:
        """Single answers (Q, B) at rows from ``start`` on, of which those in the second half of the log are scored."""
        rows = slice(max(0, int(self._ends[PIECES // 2 - 1]) - start), None)
        use, g = known[:, rows], G[:, rows]
        with np.errstate(over="ignore", invalid="ignore"):
            for name, answer in answers.items():
                sums = self._answers.setdefault(name, np.zeros(len(G)))
                sums += _where_known(use, _squared_error(answer[:, rows], g)).sum(axis=1)

    def _merge(self, piece: int, use: NDArray[np.bool_], g: Array) -> None:
        """Mean and M₂ of these rows, and of all so far in this piece."""
        N = use.sum(axis=1)
        rows = np.maximum(N, 1)
        mean = np.where(use, g, 0.0).sum(axis=1) / rows
        departures = np.where(use, g - mean[:, None], 0.0)
        rounding = departures.sum(axis=1)  # 0 but for rounding of the mean, which this corrects
        mean, M2 = mean + rounding / rows, (departures**2).sum(axis=1) - rounding**2 / rows
        earlier = self._N[piece]
        delta, both = mean - self._mean[piece], np.maximum(earlier + N, 1)
        self._mean[piece] = np.where(N > 0, self._mean[piece] + delta * (N / both), self._mean[piece])
        self._M2[piece] += np.where(N > 0, M2 + delta**2 * (earlier * (N / both)), 0.0)
        self._N[piece] += N

    def scores(self, offline: Sequence[str] | Mapping[str, Sequence[str]] = ()) -> list[dict[str, Any]]:
        """One object per question, as ``summary`` describes it.

        Args:
            offline: Why there is no fit of a question, "" where there is: a list for each baseline that is fitted in
                hindsight, by name; or that of the offline fit alone.
        """
        faults = offline if isinstance(offline, Mapping) else {"offline": offline}
        objects: list[dict[str, Any]] = []
        early, late = slice(0, PIECES // 2), slice(PIECES // 2, PIECES)
        for q, (signal, horizon, gamma) in enumerate(self._questions()):
            ours = self._measures("", q, late)
            shown = [name for name in find_baselines() if name in self._causal or name in self._fitted]
            baselines = {name: self._measures(name, q, late) for name in shown if name != "past_mean"}
            past = {name: self._measures(name, q, late) for name in self._applicable(q)}
            best = baselines["offline"]["variance_explained"]
            objects.append(
                {
                    "signal": signal,
                    "horizon": horizon,
                    "gamma": gamma,
                    **ours,
                    "skill": self._skill(q, late),
                    "first_half": self._measures("", q, early),
                    **baselines,
                    "answers": self._single(q, late),
                    "ratio_to_offline": _ratio(ours["variance_explained"], best),
                    "known": int(self._N[late, q].sum()),
                    "reasons": self._reasons(q, ours, baselines, faults),
                    "baselines": past,
                    **self.verdict(q)._asdict(),
                }
            )
        return objects

    def signals(self, scores: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The verdict on each signal, a dict a signal, as ``judge_signal`` describes it.

        Args:
            scores: The scores of all questions.
        """
        H = len(self._horizons)
        signals = []
        for q in range(0, len(scores), H):
            several = {score["horizon"]: score for score in scores[q : q + H]}
            judged = judge_signal(
                scores[q]["signal"], {scores[q + h]["horizon"]: self.verdict(q + h, LEVEL / H) for h in range(H)}
            )
            score = several[judged["horizon"]]
            best = score["baselines"].get(judged["best_baseline"], {})
            signals.append(judged | {"rmse": score["rmse"], "baseline_rmse": best.get("rmse")})
        return signals

    def verdict(self, q: int, level: float = LEVEL) -> Verdict:
        """Whether the predictions of question q are better than the best baseline.

        Args:
            q: The question.
            level: The share of intervals that may miss the true skill.
        """
        gamma = float(self._gammas[q % len(self._horizons)])
        horizon = 1.0 / (1.0 - gamma) if gamma < 1.0 else math.inf
        errors = {name: self._blocks.sums(name)[:, q] for name in self._applicable(q)}
        counts, ours = self._blocks.sums()[:, q], self._blocks.sums(self._blocks.columns[0])[:, q]
        return judge_errors(counts, ours, errors, horizon, self._blocks.length, level)

    def _applicable(self, q: int) -> list[str]:
        """The baselines that question q has: a component answer may not exist."""
        return [name for name in self._past if name not in self._answered or self._answered[name][q]]

    def _reasons(
        self, q: int, ours: Measures, baselines: Mapping[str, Measures], faults: Mapping[str, Sequence[str]]
    ) -> dict[str, str]:
        """Why a number is None, by its name; empty if none is."""
        if not self._N[PIECES // 2 :, q].any():
            gamma = float(self._gammas[q % len(self._horizons)])
            short = gamma < 1.0 and self._ends[-1] < rows_to_score(gamma)
            why = LOG_TOO_SHORT.format(rows_to_score(gamma)) if short else UNKNOWN
            return dict.fromkeys(("variance_explained", "skill", *self._fitted), why)
        reasons = {}
        if ours["variance_explained"] is None:
            reasons["variance_explained"] = STILL
        if self._skill(q, slice(PIECES // 2, PIECES)) is None:
            reasons["skill"] = "persistence has no error"
        for name in self._fitted:
            if baselines[name]["variance_explained"] is None:
                fault = faults[name][q] if faults.get(name) else ""
                reasons[name] = fault or reasons.get("variance_explained", "its errors overflow")
        return reasons

    def _skill(self, q: int, pieces: slice) -> float | None:
        """1 − MSE / MSE(persistence); None where persistence has no error."""
        ours, persistence = (float(np.sum(self._errors[name][0, pieces, q])) for name in ("", "persistence"))
        return finite(1.0 - ours / persistence) if persistence > 0.0 else None

    def curves(self) -> list[dict[str, Any]]:
        """The errors in each piece of the log, and the row where it ends, for each question."""
        rows = self._ends.tolist()
        with np.errstate(invalid="ignore", divide="ignore"):
            shown = [name for name in self._causal if name != "past_mean"]  # (of these questions it is the mean)
            errors = {name: np.sqrt(self._errors[name][0] / self._N) for name in ("", *shown)}
        return [
            {"signal": signal, "horizon": horizon, "rows": rows}
            | {name or "rmse": [finite(error) for error in array[:, q].tolist()] for name, array in errors.items()}
            for q, (signal, horizon, _) in enumerate(self._questions())
        ]

    def _questions(self) -> list[tuple[str, object, float]]:
        horizons = list(zip(self._horizons, self._gammas, strict=True))
        return [(signal, horizon, float(gamma)) for signal in self._signals for horizon, gamma in horizons]

    def _single(self, q: int, pieces: slice) -> dict[str, float | None]:
        """The variance that each single answer explains; a question may not have all of them (NaN)."""
        rows, variance, square = self._moments(q, pieces)
        sums = {name: float(errors[q]) for name, errors in self._answers.items() if not np.isnan(errors[q])}
        if not rows:
            return dict.fromkeys(sums)
        return {name: finite(_explain(Moments(rows, total / rows, variance, square))) for name, total in sums.items()}

    def _measures(self, name: str, q: int, pieces: slice) -> Measures:
        rows, variance, square = self._moments(q, pieces)
        means = [float(np.sum(sums[pieces, q])) / max(1, rows) for sums in self._errors[name]]
        return _evaluate(rows, means, variance, square)

    def _moments(self, q: int, pieces: slice) -> tuple[int, float, float]:
        """The rows whose return is known, and the return's variance and mean square."""
        N, means = self._N[pieces, q], self._mean[pieces, q]
        rows = int(N.sum())
        if not rows:
            return 0, math.nan, math.nan
        with np.errstate(over="ignore", invalid="ignore"):
            level = means[np.argmax(N > 0)]
            mean = level + np.sum(np.where(N > 0, N * (means - level), 0.0)) / rows
            M2 = np.sum(self._M2[pieces, q]) + np.sum(np.where(N > 0, N * (means - mean) ** 2, 0.0))
            variance = M2 / rows
            return rows, float(variance), float(variance + mean**2)


def _same_arrays(arrays: Mapping[str, Array]) -> list[list[str]]:
    """The names of arrays, those together that name the same one."""
    names: dict[int, list[str]] = {}
    for name, array in arrays.items():
        names.setdefault(id(array), []).append(name)
    return list(names.values())


def _checked(name: str, guess: Array, G: Array) -> Array:
    """A baseline's predictions, if they have the shape of the returns."""
    if np.shape(guess) != G.shape:
        raise ValueError(f"The baseline {name!r} must return predictions of shape {G.shape}. Got {np.shape(guess)}.")
    return guess


def summary(
    signals: Sequence[str],
    horizons: Sequence[object],
    gammas: NDArray[np.float64],
    values: NDArray[np.float64],
    missing: NDArray[np.bool_],
    gap: NDArray[np.bool_],
    predictions: NDArray[Any],
    phi: Features,
    n: int,
    progress: Callable[[float], None] | None = None,
) -> Summary:
    """Score the predictions of a log of C signals at H horizons, together with the baselines.

    Each object has the measures of the second half; ``skill``, 1 − MSE / MSE(persistence); ``first_half``; and for the
    second half ``persistence`` (the current value), ``mean`` (of the values so far), ``offline`` (see
    ``emphatic.scores.baselines``) and the baselines of other packages. It also has ``ratio_to_offline`` (of the
    variance explained), ``known`` (the number of rows of the second half that could be scored) and ``reasons`` (why a
    number is None). All are scored on the same rows: where the return is known and the signal has had a value. A curve
    has the errors in each of 20 pieces of the log, and the row where each ends.

    Args:
        signals: The names of the C signals.
        horizons: The H horizons, as they are to be named.
        gammas: The discount of each horizon, (H,).
        values: The values, (T, C), with the last value where one is missing.
        missing: Where a value is missing, (T, C).
        gap: Which rows do not follow the previous row, (T,).
        predictions: The predictions, (T, C·H).
        phi: Each call iterates over the rows' features, in blocks.
        n: The number of features.
        progress: Called with the share that is done, up to 1.
    """
    T, C, H = len(values), len(signals), len(horizons)
    wanted = {"gammas": (H,), "values": (T, C), "missing": (T, C), "gap": (T,), "predictions": (T, C * H)}
    for name, array in zip(wanted, (gammas, values, missing, gap, predictions), strict=True):
        if np.shape(array) != wanted[name]:
            raise refusal(name, "summary", f"have shape {wanted[name]}", f"shape {np.shape(array)}")
    seen = np.logical_or.accumulate(~missing, axis=0)
    centres = [values[np.argmax(seen[:, c]), c] if seen[:, c].any() else 0.0 for c in range(C)]
    G, known = Returns(gammas, centres)(values, missing, gap)
    known &= np.repeat(seen.T, H, axis=0)
    half = FirstHalf(T, np.repeat(centres, H))
    half.add(0, G, known)
    fits = {known.name: known.fit(n, T, H, half, 2) for known in find_baselines().values() if known.fit}
    scored = LogScores(signals, horizons, gammas, T)
    lengths = [half.half] * (max(fit.passes for fit in fits.values()) - 1) + [T]
    steps, done = sum(lengths), 0
    for length in lengths:
        answers = PlainAnswers(gammas, C)
        for start, stop, index, value in blocks(phi, length):
            rows = slice(start, stop)
            u = answers(values[rows])
            batch = {name: fit.add(start, index, value, G[:, rows], u) for name, fit in fits.items()}
            if length == T:
                scored.add(start, values[rows], missing[rows], predictions[rows], batch, G[:, rows], known[:, rows])
            done += stop - start
            if progress is not None:
                progress(done / steps)
    return Summary(scored.scores({name: fit.reasons for name, fit in fits.items()}), scored.curves(), G.T, known.T)


def _ratio(ours: float | None, best: float | None) -> float | None:
    """None where undefined, or where the offline fit explains nothing."""
    return finite(ours / best) if ours is not None and best is not None and best > 0 else None
