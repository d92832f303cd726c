"""Studies: sweeps over settings."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emphatic.studies.results import Sweep
    from emphatic.studies.sources import Recorded
    from emphatic.studies.statistics import Interval
    from emphatic.studies.sweeps import Track, sweep

__all__ = ["Interval", "Recorded", "Sweep", "Track", "sweep"]

_HOME = {"Interval": "statistics", "Recorded": "sources", "Sweep": "results", "Track": "sweeps", "sweep": "sweeps"}


def __getattr__(name: str) -> Any:
    """Public names are imported when they are first used: the command line reads ``sweep_config`` for its flags."""
    if name not in _HOME:
        raise AttributeError(f"module 'emphatic.studies' has no attribute {name!r}")
    return getattr(importlib.import_module(f"emphatic.studies.{_HOME[name]}"), name)
