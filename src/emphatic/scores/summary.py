"""The account of a whole log: one object a question, and its learning curve."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emphatic.learning.inputs import refusal
from emphatic.scores.measures import finite, measures, running_mean
from emphatic.scores.offline import offline
from emphatic.scores.returns import known_return
from emphatic.scores.sums import Features

__all__ = ["PIECES", "Summary", "summary"]

#: Points of a learning curve.
PIECES = 20


class Summary(NamedTuple):
    """Scores and curves, a dict a question; the returns and where they are known, both (T, Q)."""

    scores: list[dict[str, Any]]
    curves: list[dict[str, Any]]
    G: NDArray[np.float64]
    known: NDArray[np.bool_]


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
    """Score the predictions (T, C·H) of a log of C signals at H horizons, beside three baselines.

    ``values`` (T, C) have the last reading held where one is ``missing``; a row with ``gap`` (T,) does not follow on
    the one before; ``phi()`` gives the rows' n features anew. Each object has the measures of the second half,
    ``first_half``, and on the second half ``persistence`` (the last reading), ``mean`` (of the readings so far) and
    ``offline`` (see ``emphatic.scores.offline``), then ``ratio_to_offline``, of the variance explained, and
    ``known``, the rows of the second half that could be scored. All are scored on the same rows: where the return
    is known and the signal has been seen. A curve has the errors in each of 20 pieces of the log, and the row
    where each ends. ``progress`` is told the part that is done, up to 1.
    """
    T, C, H = len(values), len(signals), len(horizons)
    wanted = {"gammas": (H,), "values": (T, C), "missing": (T, C), "gap": (T,), "predictions": (T, C * H)}
    for name, array in zip(wanted, (gammas, values, missing, gap, predictions), strict=True):
        if np.shape(array) != wanted[name]:
            raise refusal(name, "summary", f"have shape {wanted[name]}", f"shape {np.shape(array)}")
    # A question's rows lie together, as they are looked at one question at a time.
    G, known = np.empty((C * H, T)), np.empty((C * H, T), np.bool_)
    for c in range(C):
        seen = np.logical_or.accumulate(~missing[:, c])
        for h in range(H):
            G[c * H + h], certain = known_return(values[:, c], missing[:, c], gap, float(gammas[h]))
            known[c * H + h] = certain & seen
    batch, _ = offline(phi, n, G, known, H, progress)

    half = T // 2
    ends = np.arange(1, PIECES + 1) * T // PIECES
    scores, curves = [], []
    for c, signal in enumerate(signals):
        mean = running_mean(values[:, c], missing[:, c])
        for h, horizon in enumerate(horizons):
            q = c * H + h
            at = np.flatnonzero(known[q])
            middle = int(np.searchsorted(at, half))
            first, second = slice(middle), slice(middle, None)
            g = G[q, at]
            ours = np.asarray(predictions[at, q], np.float64)
            held = values[at, c]
            whole = measures(ours, g, second)
            fit = measures(batch[q, at[second] - half], g[second])
            scores.append(
                {
                    "signal": signal,
                    "horizon": horizon,
                    "gamma": float(gammas[h]),
                    **whole,
                    "first_half": measures(ours, g, first),
                    "persistence": measures(held, g, second),
                    "mean": measures(mean[at], g, second),
                    "offline": fit,
                    "ratio_to_offline": _ratio(whole["variance_explained"], fit["variance_explained"]),
                    "known": len(at) - middle,
                }
            )
            pieces = [slice(a, b) for a, b in itertools.pairwise([0, *np.searchsorted(at, ends).tolist()])]
            curves.append(
                {"signal": signal, "horizon": horizon, "rows": ends.tolist()}
                | {
                    name: [measures(guess, g, piece)["rmse"] for piece in pieces]
                    for name, guess in (("rmse", ours), ("persistence", held), ("mean", mean[at]))
                }
            )
    if progress is not None:
        progress(1.0)
    return Summary(scores, curves, G.T, known.T)


def _ratio(ours: float | None, best: float | None) -> float | None:
    """None where undefined, or where the offline fit explains nothing."""
    return finite(ours / best) if ours is not None and best is not None and best > 0 else None
