"""Studies: sweeps over settings, and published results reproduced."""

from __future__ import annotations

from emphatic.studies.recorded import Recorded
from emphatic.studies.results import Sweep
from emphatic.studies.statistics import Interval
from emphatic.studies.sweeping import Track, sweep

__all__ = ["Interval", "Recorded", "Sweep", "Track", "sweep"]
