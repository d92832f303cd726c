"""Observations to φ: soft bins, tile coding, traces, changes, time, categories; composed by a list."""

from emphatic.features.maker import Features
from emphatic.features.parts import (
    Bias,
    Change,
    Missing,
    OneHot,
    Part,
    SoftBins,
    Tiles,
    TimeOfDay,
    TimeOfWeek,
    Trace,
)

__all__ = [
    "Bias",
    "Change",
    "Features",
    "Missing",
    "OneHot",
    "Part",
    "SoftBins",
    "Tiles",
    "TimeOfDay",
    "TimeOfWeek",
    "Trace",
]
