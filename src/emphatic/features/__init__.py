"""From observations to φ: a list of soft bins, tile coding, traces, changes, time, categories and functions."""

from emphatic.features.maker import Features
from emphatic.features.parts import Part
from emphatic.features.parts.bias import Bias
from emphatic.features.parts.function import Function
from emphatic.features.parts.missing import Missing
from emphatic.features.parts.one_hot import OneHot
from emphatic.features.parts.soft_bins import SoftBins
from emphatic.features.parts.tiles import Tiles
from emphatic.features.parts.time_of_day import TimeOfDay
from emphatic.features.parts.time_of_week import TimeOfWeek
from emphatic.features.sources.change import Change
from emphatic.features.sources.trace import Trace

__all__ = [
    "Bias",
    "Change",
    "Features",
    "Function",
    "Missing",
    "OneHot",
    "Part",
    "SoftBins",
    "Tiles",
    "TimeOfDay",
    "TimeOfWeek",
    "Trace",
]
