"""Pages to look at: one self-contained HTML file each, made from plain data.

``page`` is the shell that any page shares (style, script, plotly.js, all inline), ``table`` a sortable table,
``Plot`` a figure of panels that is drawn when it comes into view. What a page is about is put together by the package
that knows it: ``emphatic.nexting``, ``emphatic.studies``.
"""

from __future__ import annotations

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
