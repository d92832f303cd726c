"""Pages to look at: one self-contained HTML file each, made from plain data.

``page`` is the shell that any page shares (style, script, plotly.js, all inline), ``table`` a sortable table,
``Plot`` a figure of panels that is drawn when it comes into view. What a page is about is put together by the package
that knows it: ``emphatic.nexting``, ``emphatic.studies``.
"""

from __future__ import annotations

import importlib
from typing import Any

from emphatic.report.page import Figure, Html, Key, Plots, page, section, text
from emphatic.report.plots import Axis, Level, Line, Marks, Panel, Plot, category, shades
from emphatic.report.tables import Column, amount, seconds, share, table

__all__ = [
    "Axis",
    "Column",
    "Figure",
    "Html",
    "Key",
    "Level",
    "Line",
    "Marks",
    "Panel",
    "Plot",
    "Plots",
    "amount",
    "category",
    "page",
    "seconds",
    "section",
    "shades",
    "share",
    "table",
    "text",
]

#: Names that were here until 0.2, and where they are.
_MOVED = {
    "emphatic.nexting.page": {"Nexting": "NextingPage", "nexting_page": "nexting_page"},
    "emphatic.nexting.signals": {name: name for name in ("SignalPlot", "Stretch", "signal_plot", "thin")},
    "emphatic.studies.reproduction_page": {
        name: name for name in ("ReproductionPage", "reproduction_page", "reproductions_index", "verdict")
    },
    "emphatic.studies.sweep_page": {name: name for name in ("SweepPage", "sweep_page")},
}


def __getattr__(name: str) -> Any:
    for module, names in _MOVED.items():
        if name in names:
            return getattr(importlib.import_module(module), names[name])
    raise AttributeError(f"module 'emphatic.report' has no attribute {name!r}")
