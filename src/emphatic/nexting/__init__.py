"""The main job: a table of readings in; predictions, scores, a report and a model out; the same live on a pipe.

``run`` does it in one call; ``Nexting`` is the same in steps.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emphatic.nexting.job import NextingResult as NextingResult
    from emphatic.nexting.job import run as run
    from emphatic.nexting.runner import Nexting as Nexting
    from emphatic.nexting.runner import Progress as Progress

__all__ = ["Nexting", "NextingResult", "Progress", "run"]

_HOME = {"Nexting": "runner", "NextingResult": "job", "Progress": "runner", "run": "job"}


def __getattr__(name: str) -> Any:
    """Public names are imported when they are first used: the command line reads ``settings`` alone for its flags."""
    if name not in _HOME:
        raise AttributeError(f"module 'emphatic.nexting' has no attribute {name!r}")
    return getattr(importlib.import_module(f"emphatic.nexting.{_HOME[name]}"), name)
