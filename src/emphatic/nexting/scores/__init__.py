"""Scores of predictions: the actual returns, and verdicts beside baselines.

The prediction at row t is made after row t was read. That of a weighted mean predicts

    G_t = (1 − γ) Σ_{k≥0} γᵏ x_{t+1+k}

in the unit of the signal. It is scored only if nearly all of the weight was read (``known_return``).
"""

from emphatic.nexting.scores.returns import KNOWN, known_return
from emphatic.nexting.scores.verdicts import Verdict, describe_baseline, judge_errors

__all__ = ["KNOWN", "Verdict", "describe_baseline", "judge_errors", "known_return"]
