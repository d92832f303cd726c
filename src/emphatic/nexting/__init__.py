"""The main job: a table of readings in; predictions, scores, a report and a model out; the same live on a pipe.

``run`` does it in one call; ``Nexting`` is the same in steps.
"""

from emphatic.nexting.runner import Nexting, NextingResult, Progress, run

__all__ = ["Nexting", "NextingResult", "Progress", "run"]
