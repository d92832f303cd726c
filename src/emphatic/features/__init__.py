"""From observations to φ: a list of soft bins, tile coding, traces, changes, time, categories and functions."""

from emphatic.features.maker import Features
from emphatic.features.parts import (
    Bias,
    Function,
    Missing,
    OneHot,
    Part,
    SoftBins,
    Tiles,
    TimeOfDay,
    TimeOfWeek,
    TimeOfYear,
)
from emphatic.features.sources import Change, Trace

__all__ = ["Bias", "Change", "Features", "Function", "Missing", "OneHot", "Part", "SoftBins", "Tiles", "TimeOfDay"]
__all__ += ["TimeOfWeek", "TimeOfYear", "Trace"]
