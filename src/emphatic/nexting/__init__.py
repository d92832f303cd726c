"""Forecasts of logs: a table of readings in; forecasts, scores, a report and a model out; the same live.

``run`` does it in one call; ``load`` reads the result of an earlier run, ``load_model`` the model that continues.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emphatic.nexting import cluster as cluster
    from emphatic.nexting import data as data
    from emphatic.nexting import scores as scores
    from emphatic.nexting import tables as tables
    from emphatic.nexting.runs.runner import NextingResult as NextingResult
    from emphatic.nexting.runs.runner import Progress as Progress
    from emphatic.nexting.runs.runner import load as load
    from emphatic.nexting.runs.runner import load_model as load_model
    from emphatic.nexting.runs.runner import run as run

__all__ = ["NextingResult", "Progress", "load", "load_model", "run"]
_MODULES = ("cluster", "data", "scores", "tables")


def __getattr__(name: str) -> Any:
    """Public names are imported when they are first used: the command line reads ``settings`` alone for its flags."""
    if name in _MODULES:
        return importlib.import_module(f"emphatic.nexting.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'emphatic.nexting' has no attribute {name!r}")
    from emphatic.nexting.runs import runner

    return globals().setdefault(name, getattr(runner, name))
