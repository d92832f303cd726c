"""Scores of the predictions of a log: the actual returns, two measures, and three baselines.

Row t's prediction is made after row t was seen. It is of the mean of what follows, nearer readings weighing more,

    G_t = (1 − γ) Σ_{k≥0} γᵏ x_{t+1+k}

in the signal's own unit, and it is scored only where nearly all of that was seen (``known_return``). Questions are
ordered by signal, then horizon: question q = c·H + h.
"""

from emphatic.scores.baselines import STRENGTHS, offline, running_mean
from emphatic.scores.measures import PIECES, Summary, measures, summary
from emphatic.scores.returns import KNOWN, known_return

__all__ = ["KNOWN", "PIECES", "STRENGTHS", "Summary", "known_return", "measures", "offline", "running_mean", "summary"]
