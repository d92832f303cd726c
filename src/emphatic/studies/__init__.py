"""Studies: sweeps over settings, and published results reproduced."""

from __future__ import annotations

from emphatic.studies.results import Interval, Sweep
from emphatic.studies.sources import Recorded
from emphatic.studies.sweeps import Track, sweep

__all__ = ["Interval", "Recorded", "Sweep", "Track", "sweep"]
