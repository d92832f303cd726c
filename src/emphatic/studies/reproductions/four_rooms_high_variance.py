"""The Four Rooms study, its variant of high variance: behaviour is nearly always the same in four cells.

Ghiassian & Sutton (2021). See ``four_rooms``.
"""

from __future__ import annotations

from emphatic.studies.agreement import Outcome
from emphatic.studies.conditions import Conditions
from emphatic.studies.reproductions.four_rooms import SOURCE, run_variant

__all__ = ["SOURCE", "TITLE", "run"]

TITLE = "The Four Rooms study, high variance"


def run(how: Conditions) -> Outcome:
    """The variant of high variance."""
    return run_variant(how, True)
