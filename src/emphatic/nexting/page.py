"""The page about a log: how well each signal was predicted, beside the actual returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from emphatic.learning.inputs import refusal
from emphatic.nexting.panels import curves_section, signals_section
from emphatic.nexting.quality import quality_section
from emphatic.nexting.score_sections import scores_section, summary_section
from emphatic.nexting.signals import SignalPlot
from emphatic.report.account import settings_section, time_section
from emphatic.report.page import Plots, page

__all__ = ["NextingPage", "nexting_page"]


@dataclass(frozen=True)
class NextingPage:
    """All that the page shows, as plain data; what is empty is left out.

    - ``scores``: one mapping per signal × horizon, with ``signal``, ``horizon`` (a text, or a number of steps),
      ``gamma``, ``rmse``, ``variance_explained``, the same two under ``first_half``, ``persistence``, ``mean`` and
      ``offline``, ``ratio_to_offline`` (of the variances explained) and ``known`` (rows scored). Any number may be
      None or missing.
    - ``curves``: ``rows``, where each piece of the log ends, and under ``ours``, ``persistence`` and ``mean`` for each
      score in turn the RMSE in each piece, None or NaN where unknown.
    - ``signals``: see ``signal_plot``; their horizons are those of the scores.
    - ``quality``: ``rows``, ``usual step``, ``gaps``, ``longest gaps`` [(row, from, to)], ``missing`` {signal: (count,
      longest run)}, ``clipped`` {source: (below, above)}, ``unreadable`` {signal: count}, ``constant`` [names] and
      ``ignored columns`` {name: why}; whatever else is in it is shown as it is.
    - ``settings``: nested mappings. ``seconds``: how long each stage took. ``versions``: of what took part.
    """

    title: str
    intro: str
    scores: Sequence[Mapping[str, Any]]
    curves: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    signals: Sequence[SignalPlot] = ()
    quality: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)


def nexting_page(nexting: NextingPage) -> str:
    """The page as HTML, complete in itself."""
    for name, many in nexting.curves.items():
        if name != "rows" and len(many) != len(nexting.scores):
            wanted = f"have one curve for each of the {len(nexting.scores)} scores"
            raise refusal(f"curves[{name!r}]", "nexting_page", wanted, str(len(many)))
    plots = Plots()
    sections = {
        "Summary": summary_section(nexting.scores, nexting.quality.get("rows"), nexting.seconds.get("learning")),
        "Signals": signals_section(nexting.signals, nexting.scores, plots),
        "Learning curves": curves_section(nexting.curves, nexting.scores, plots),
        "Scores": scores_section(nexting.scores, [signal.name for signal in nexting.signals]),
        "Data quality": quality_section(nexting.quality),
        "Settings": settings_section(nexting.settings, nexting.versions),
        "Time": time_section(nexting.seconds),
    }
    return page(nexting.title, nexting.intro, {name: part for name, part in sections.items() if part}, plots)
