"""Pages to look at: one self-contained HTML file each, made from plain data.

``page`` is the shell that any page shares (style, script, plotly.js, all inline), ``table`` a sortable table,
``Plot`` a figure of panels that is drawn when it comes into view. ``sweep_page`` and ``reproduction_page`` put them
together.
"""

from __future__ import annotations

from emphatic.report.page import Html, Key, Plots, page, section, text
from emphatic.report.plots import Axis, Level, Line, Marks, Panel, Plot, category, shades
from emphatic.report.reproduction import Figure, ReproductionPage, reproduction_page, reproductions_index, verdict
from emphatic.report.signals import SignalPlot, Stretch, signal_plot, thin
from emphatic.report.sweep import SweepPage, sweep_page
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
    "ReproductionPage",
    "SignalPlot",
    "Stretch",
    "SweepPage",
    "amount",
    "category",
    "page",
    "reproduction_page",
    "reproductions_index",
    "seconds",
    "section",
    "shades",
    "share",
    "signal_plot",
    "sweep_page",
    "table",
    "text",
    "thin",
    "verdict",
]
