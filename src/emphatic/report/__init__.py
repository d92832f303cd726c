"""Pages to look at: one self-contained HTML file each, made from plain data.

``page`` is the shell that any page shares (style, script, plotly.js, all inline), ``table`` a sortable table,
``Plot`` a figure of panels that is drawn when it comes into view. ``nexting_page`` puts them together.
"""

from __future__ import annotations

from emphatic.report.nexting import Nexting, nexting_page
from emphatic.report.page import Html, Plots, page, section, text
from emphatic.report.plots import Line, Panel, Plot
from emphatic.report.signals import SignalPlot, Stretch, signal_plot, thin
from emphatic.report.tables import Column, amount, seconds, share, table

__all__ = [
    "Column",
    "Html",
    "Line",
    "Nexting",
    "Panel",
    "Plot",
    "Plots",
    "SignalPlot",
    "Stretch",
    "amount",
    "nexting_page",
    "page",
    "seconds",
    "section",
    "share",
    "signal_plot",
    "table",
    "text",
    "thin",
]
