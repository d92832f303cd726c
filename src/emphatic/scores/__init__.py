"""Scores of the predictions of a log: the actual returns, measures, and baselines.

The prediction at row t is made after row t was read. It predicts a weighted mean of the values that follow,

    G_t = (1 − γ) Σ_{k≥0} γᵏ x_{t+1+k}

in the unit of the signal. It is scored only if nearly all of the weight was read (``known_return``). Questions are
ordered by signal, then horizon: question q = c·H + h.

A ``Baseline`` or a ``Measure`` of another package is found by its entry point, and scored under its name.
"""

from emphatic.scores.baselines import STRENGTHS, Baseline, offline, running_mean
from emphatic.scores.measures import PIECES, Measure, Moments, Summary, measures, summary
from emphatic.scores.returns import KNOWN, known_return

__all__ = ["KNOWN", "PIECES", "STRENGTHS", "Baseline", "Measure", "Moments", "Summary", "known_return", "measures"]
__all__ += ["offline", "running_mean", "summary"]
