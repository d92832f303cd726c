"""Scores of the predictions of a log: the actual returns, measures, and baselines.

Row t's prediction is made after row t was seen. It is of the mean of what follows, nearer readings weighing more,

    G_t = (1 − γ) Σ_{k≥0} γᵏ x_{t+1+k}

in the signal's own unit, and it is scored only where nearly all of that was seen (``known_return``). Questions are
ordered by signal, then horizon: question q = c·H + h.

A ``Baseline`` or a ``Measure`` of another package is found by its entry point, and scored under its name.
"""

from emphatic.scores.baselines import STRENGTHS, Baseline, offline, running_mean
from emphatic.scores.measures import PIECES, Measure, Moments, Summary, measures, summary
from emphatic.scores.returns import KNOWN, known_return

__all__ = ["KNOWN", "PIECES", "STRENGTHS", "Baseline", "Measure", "Moments", "Summary", "known_return", "measures"]
__all__ += ["offline", "running_mean", "summary"]
