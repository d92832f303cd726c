"""The scores of a whole log: one object per question, and its learning curve."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emphatic.learning.inputs import refusal
from emphatic.scores.answers import PlainAnswers
from emphatic.scores.measures import Measures, RunningMean, finite, from_moments
from emphatic.scores.offline import FirstHalf, OfflineFit
from emphatic.scores.returns import Returns, rows_to_score
from emphatic.scores.sums import Array, Features, blocks

__all__ = ["PIECES", "LogScores", "Summary", "summary"]

#: Points of a learning curve. An even number: half of them cover the first half of the log.
PIECES = 20
#: The predictions that are scored, by the names that the scores have for them.
_RIVALS = ("", "persistence", "mean", "offline")


#: Why there are no scores.
UNKNOWN = "no return is known in the second half: it reaches beyond the end or a gap, or too little of it was read"
TOO_SHORT = "no return is known in the second half: the log is too short, {:,} rows would do"
STILL = "the return does not vary in the second half"


class Summary(NamedTuple):
    """Scores and curves, one dict per question; the returns and where they are known, both (T, Q)."""

    scores: list[dict[str, Any]]
    curves: list[dict[str, Any]]
    G: NDArray[np.float64]
    known: NDArray[np.bool_]


class LogScores:
    """Scores of T rows of C signals at H horizons, from blocks of rows in order: only sums are kept.

    For each of 20 pieces of the log, and each question, these are the number of rows N whose return is known, the
    squared errors of each prediction, and the returns' mean and sum of squared departures from it. Blocks are merged by

        δ = mean_b − mean,   mean += δ N_b / N,   M₂ += M₂_b + δ² N N_b / (N + N_b)

    (Chan, Golub & LeVeque 1979), which keeps the digits of a signal far from 0.
    """

    def __init__(self, signals: Sequence[str], horizons: Sequence[object], gammas: Array, T: int) -> None:
        self._signals, self._horizons, self._gammas = signals, horizons, gammas
        self._ends = np.arange(1, PIECES + 1) * T // PIECES
        Q = len(signals) * len(horizons)
        self._running = RunningMean(len(signals))
        self._N = np.zeros((PIECES, Q), np.int64)
        self._mean, self._M2 = np.zeros((PIECES, Q)), np.zeros((PIECES, Q))
        self._errors = np.zeros((len(_RIVALS), PIECES, Q))
        self._answers: dict[str, Array] = {}

    def add(
        self, start: int, held: Array, missing: NDArray[np.bool_], predictions: NDArray[Any], offline: Array, G: Array,
        known: NDArray[np.bool_],
    ) -> None:  # fmt: skip
        """The next B rows, from ``start`` on.

        Readings (B, C), the last one held where one is ``missing``; predictions (B, Q); the offline fit's, the returns
        and where they are known, (Q, B) each.
        """
        H = len(self._horizons)
        simple = (held, self._running(held, missing))
        guesses = (np.asarray(predictions, np.float64).T, *(np.repeat(p.T, H, axis=0) for p in simple), offline)
        stop = start + len(held)
        inner = self._ends[(self._ends > start) & (self._ends < stop)].tolist()
        with np.errstate(over="ignore", invalid="ignore"):
            for a, b in pairwise([start, *inner, stop]):
                piece, rows = int(np.searchsorted(self._ends, a, "right")), slice(a - start, b - start)
                use, g = known[:, rows], G[:, rows]
                for i, guess in enumerate(guesses):
                    self._errors[i, piece] += np.where(use, (guess[:, rows] - g) ** 2, 0.0).sum(axis=1)
                self._merge(piece, use, g)

    def add_answers(self, start: int, answers: Mapping[str, Array], G: Array, known: NDArray[np.bool_]) -> None:
        """Single answers (Q, B) at rows from ``start`` on, of which those in the second half of the log are scored."""
        rows = slice(max(0, int(self._ends[PIECES // 2 - 1]) - start), None)
        use, g = known[:, rows], G[:, rows]
        with np.errstate(over="ignore", invalid="ignore"):
            for name, answer in answers.items():
                sums = self._answers.setdefault(name, np.zeros(len(G)))
                sums += np.where(use, (answer[:, rows] - g) ** 2, 0.0).sum(axis=1)

    def _merge(self, piece: int, use: NDArray[np.bool_], g: Array) -> None:
        """Mean and M₂ of these rows, and of all so far in this piece."""
        N = use.sum(axis=1)
        rows = np.maximum(N, 1)
        mean = np.where(use, g, 0.0).sum(axis=1) / rows
        departures = np.where(use, g - mean[:, None], 0.0)
        rest = departures.sum(axis=1)
        mean, M2 = mean + rest / rows, (departures**2).sum(axis=1) - rest**2 / rows
        before = self._N[piece]
        delta, both = mean - self._mean[piece], np.maximum(before + N, 1)
        self._mean[piece] = np.where(N > 0, self._mean[piece] + delta * (N / both), self._mean[piece])
        self._M2[piece] += np.where(N > 0, M2 + delta**2 * (before * (N / both)), 0.0)
        self._N[piece] += N

    def scores(self, offline: Sequence[str] = ()) -> list[dict[str, Any]]:
        """One object per question, as ``summary`` describes it; ``offline`` has the reasons for missing fits."""
        found: list[dict[str, Any]] = []
        first, second = slice(0, PIECES // 2), slice(PIECES // 2, PIECES)
        for q, (signal, horizon, gamma) in enumerate(self._questions()):
            ours, persistence, mean, fit = (self._measures(i, q, second) for i in range(len(_RIVALS)))
            found.append(
                {
                    "signal": signal,
                    "horizon": horizon,
                    "gamma": gamma,
                    **ours,
                    "skill": self._skill(q, second),
                    "first_half": self._measures(0, q, first),
                    "persistence": persistence,
                    "mean": mean,
                    "offline": fit,
                    "answers": self._single(q, second),
                    "ratio_to_offline": _ratio(ours["variance_explained"], fit["variance_explained"]),
                    "known": int(self._N[second, q].sum()),
                    "reasons": self._reasons(q, ours, fit, offline[q] if offline else ""),
                }
            )
        return found

    def _reasons(self, q: int, ours: Measures, fit: Measures, offline: str) -> dict[str, str]:
        """Why a number is None, by its name; empty if none is."""
        if not self._N[PIECES // 2 :, q].any():
            gamma = float(self._gammas[q % len(self._horizons)])
            short = gamma < 1.0 and self._ends[-1] < rows_to_score(gamma)
            why = TOO_SHORT.format(rows_to_score(gamma)) if short else UNKNOWN
            return dict.fromkeys(("variance_explained", "skill", "offline"), why)
        found = {}
        if ours["variance_explained"] is None:
            found["variance_explained"] = STILL
        if self._skill(q, slice(PIECES // 2, PIECES)) is None:
            found["skill"] = "persistence makes no error"
        if fit["variance_explained"] is None:
            found["offline"] = offline or found.get("variance_explained", "its errors overflow")
        return found

    def _skill(self, q: int, pieces: slice) -> float | None:
        """1 − MSE / MSE(persistence); None where persistence makes no error."""
        ours, persistence = (float(np.sum(self._errors[i, pieces, q])) for i in (0, 1))
        return finite(1.0 - ours / persistence) if persistence > 0.0 else None

    def curves(self) -> list[dict[str, Any]]:
        """The errors in each piece of the log, and the row where it ends, for each question."""
        rows = self._ends.tolist()
        with np.errstate(invalid="ignore", divide="ignore"):
            errors = np.sqrt(self._errors / self._N)
        return [
            {"signal": signal, "horizon": horizon, "rows": rows}
            | {
                name or "rmse": [finite(error) for error in errors[i, :, q].tolist()]
                for i, name in enumerate(_RIVALS[:3])
            }
            for q, (signal, horizon, _) in enumerate(self._questions())
        ]

    def _questions(self) -> list[tuple[str, object, float]]:
        each = list(zip(self._horizons, self._gammas, strict=True))
        return [(signal, horizon, float(gamma)) for signal in self._signals for horizon, gamma in each]

    def _single(self, q: int, pieces: slice) -> dict[str, float | None]:
        """The variance that each single answer explains; a question may not have all of them (NaN)."""
        sums = {name: float(errors[q]) for name, errors in self._answers.items() if not np.isnan(errors[q])}
        return {name: self._moments(error, q, pieces)["variance_explained"] for name, error in sums.items()}

    def _measures(self, rival: int, q: int, pieces: slice) -> Measures:
        return self._moments(float(np.sum(self._errors[rival, pieces, q])), q, pieces)

    def _moments(self, squares: float, q: int, pieces: slice) -> Measures:
        """The measures of predictions whose squared errors add up to this."""
        N, means = self._N[pieces, q], self._mean[pieces, q]
        rows = int(N.sum())
        if not rows:
            return from_moments(0, np.nan, np.nan, np.nan)
        with np.errstate(over="ignore", invalid="ignore"):
            level = means[np.argmax(N > 0)]
            mean = level + np.sum(np.where(N > 0, N * (means - level), 0.0)) / rows
            M2 = np.sum(self._M2[pieces, q]) + np.sum(np.where(N > 0, N * (means - mean) ** 2, 0.0))
            error, variance = squares / rows, M2 / rows
            return from_moments(rows, float(error), float(variance), float(variance + mean**2))


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
    """Score the predictions (T, C·H) of a log of C signals at H horizons, together with three baselines.

    ``values`` (T, C) have the last reading held where one is ``missing``; a row with ``gap`` (T,) does not follow
    the one before; each call of ``phi()`` iterates over the rows' n features again. Each object has the measures of the
    second half, ``skill``, 1 − MSE / MSE(persistence), ``first_half``, and on the second half ``persistence`` (the last
    reading), ``mean`` (of the readings so far) and ``offline`` (see ``emphatic.scores.offline``), then
    ``ratio_to_offline``, of the variance explained, ``known``, the rows of the second half that could be scored, and
    ``reasons``, why a number is None. All are scored on the same rows: where the return is known and the signal has
    been seen. A curve has the errors in each of 20 pieces of the log, and the row where each ends. ``progress`` is
    called with the share that is done, up to 1.
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
    first = FirstHalf(T, np.repeat(centres, H))
    first.add(0, G, known)
    fit, scored = OfflineFit(n, T, H, first, 2), LogScores(signals, horizons, gammas, T)
    steps, done = (fit.passes - 1) * fit.half + T, 0
    for last in [fit.half] * (fit.passes - 1) + [T]:
        answers = PlainAnswers(gammas, C)
        for start, stop, index, value in blocks(phi, last):
            rows = slice(start, stop)
            batch = fit.add(start, index, value, G[:, rows], answers(values[rows]))
            if last == T:
                scored.add(start, values[rows], missing[rows], predictions[rows], batch, G[:, rows], known[:, rows])
            done += stop - start
            if progress is not None:
                progress(done / steps)
    return Summary(scored.scores(fit.reasons), scored.curves(), G.T, known.T)


def _ratio(ours: float | None, best: float | None) -> float | None:
    """None where undefined, or where the offline fit explains nothing."""
    return finite(ours / best) if ours is not None and best is not None and best > 0 else None
