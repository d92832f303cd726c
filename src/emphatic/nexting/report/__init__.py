"""Pages to look at, and figures in files, both made from plain data.

``Plot`` describes a figure of panels: uPlot draws it on a page when it comes into view, matplotlib in a file. Pages
are one self-contained HTML file each, from the templates of this folder. What a page is about is put together by the
package that knows it: ``emphatic.nexting``, ``emphatic.studies``.
"""

from __future__ import annotations

from emphatic.nexting.report.page import (
    Column,
    Figure,
    Html,
    Key,
    Plots,
    amount,
    render_page,
    seconds,
    share,
    table,
    text,
)
from emphatic.nexting.report.plots import Axis, Level, Line, Marks, Panel, Plot, category, shades

__all__ = ["Axis", "Column", "Figure", "Html", "Key", "Level", "Line", "Marks", "Panel", "Plot", "Plots", "amount"]
__all__ += ["category", "render_page", "seconds", "shades", "share", "table", "text"]
