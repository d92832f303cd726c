"""The page about a log: how well each signal was predicted, beside the actual returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from emphatic.learning.inputs import refusal
from emphatic.nexting.alarm_section import alarms_section
from emphatic.nexting.overview import failures_section, files_section, next_section, predictable_section
from emphatic.nexting.panels import curves_section, signals_section
from emphatic.nexting.quality import quality_section
from emphatic.nexting.score_sections import scores_section, summary_section
from emphatic.nexting.scoring import SignalPlot
from emphatic.report.account import settings_section, time_section
from emphatic.report.page import Plots, page

__all__ = ["NextingPage", "nexting_page"]


@dataclass(frozen=True)
class NextingPage:
    """All that the page shows, as plain data; what is empty is left out.

    - ``scores``: one mapping per signal × horizon, with ``signal``, ``horizon`` (a text, or a number of steps),
      ``gamma``, ``rmse``, ``variance_explained``, the same two under ``first_half``, ``persistence``, ``mean`` and
      ``offline``, ``ratio_to_offline`` (of the variances explained), ``known`` (rows scored), and of the intervals
      ``coverage``, ``interval_score`` and ``calibrated``. Any number may be None or missing.
    - ``curves``: ``rows``, where each piece of the log ends, and under ``ours``, ``persistence`` and ``mean`` for each
      score in turn the RMSE in each piece, None or NaN where unknown.
    - ``signals``: see ``signal_plot``; their horizons are those of the scores.
    - ``quality``: ``rows``, ``usual step``, ``gaps``, ``longest gaps`` [(row, from, to)], ``missing`` {signal: (count,
      longest run)}, ``clipped`` {source: (below, above)}, ``unreadable`` {signal: count}, ``constant`` [names] and
      ``ignored columns`` {name: why}; whatever else is in it is shown as it is.
    - ``upcoming``: one mapping per signal, with ``signal``, ``now`` (its last reading) and ``predictions`` from there,
      {horizon: value}, and the ends ``low`` and ``high`` of their intervals; ``when`` says when that was.
    - ``worst``: the largest errors, with ``when``, ``signal``, ``horizon``, ``prediction``, ``actual`` and ``off``.
    - ``alarms``: those with the highest scores, with ``when``, ``signal``, ``rows`` and ``anomaly``;
      ``false_alarm_rate``: how many false ones per row were put up with. Scores then count all ``alarms`` of a signal.
    - ``reading``: how the table was read, as ``summary.json`` has it.
    - ``files``: the files beside the page and what they hold; ``command``: how to go on live.
    - ``toml``: the settings as they can be pasted; otherwise ``settings``: nested mappings. ``seconds``: how long each
      stage took. ``versions``: of what took part. ``coverage``: the one that intervals are to have.
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
    upcoming: Sequence[Mapping[str, Any]] = ()
    when: str = ""
    worst: Sequence[Mapping[str, Any]] = ()
    reading: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    toml: str = ""
    coverage: float | None = None
    alarms: Sequence[Mapping[str, Any]] = ()
    false_alarm_rate: float | None = None


def nexting_page(nexting: NextingPage) -> str:
    """The page as HTML, complete in itself."""
    for name, many in nexting.curves.items():
        if name != "rows" and len(many) != len(nexting.scores):
            wanted = f"have one curve for each of the {len(nexting.scores)} scores"
            raise refusal(f"curves[{name!r}]", "nexting_page", wanted, str(len(many)))
    plots, plotted = Plots(), [signal.name for signal in nexting.signals]
    sections = {
        "What comes next": next_section(nexting.upcoming, nexting.when, nexting.scores, plotted, nexting.coverage),
        "Predictable": predictable_section(nexting.scores, nexting.quality.get("constant") or (), plotted),
        "Failures": failures_section(nexting.worst, plotted),
        "Alarms": alarms_section(nexting.alarms, nexting.scores, nexting.false_alarm_rate, plotted),
        "Summary": summary_section(
            nexting.scores, nexting.quality.get("rows"), nexting.seconds.get("learning"), nexting.coverage
        ),
        "Signals": signals_section(nexting.signals, nexting.scores, plots, nexting.coverage),
        "Learning curves": curves_section(nexting.curves, nexting.scores, plots),
        "Scores": scores_section(nexting.scores, plotted, nexting.coverage),
        "Data quality": quality_section(nexting.quality, nexting.reading),
        "Files": files_section(nexting.files, nexting.command),
        "Settings": settings_section(nexting.settings, nexting.versions, nexting.toml),
        "Time": time_section(nexting.seconds),
    }
    return page(nexting.title, nexting.intro, {name: part for name, part in sections.items() if part}, plots)
