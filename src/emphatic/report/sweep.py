"""The page about a sweep: how each rule's error depends on its settings, and how it learns with the best of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from emphatic.report.account import settings_section, time_section
from emphatic.report.page import Plots, page

__all__ = ["SweepPage", "sweep_page"]


@dataclass(frozen=True)
class SweepPage:
    """All that the page shows, as plain data; what is empty is left out. Numbers may be None, NaN or infinite.

    - ``metric``: what is measured, less being better ("RMSVE"); ``unit``: about it, a sentence or a part of one
      ("weighted by d_μ, mean over 20,000 steps and 50 runs").
    - ``counts``: any of ``settings``, ``runs`` (of each setting), ``steps`` (of each run), ``learner_steps`` (of all
      together), ``diverged_settings`` (in which some run diverged) and ``diverged_runs``.
    - ``sensitivity``: one mapping a rule, with ``rule``, ``x_name`` (default "alpha"), ``line_name`` ("lambda",
      "zeta") and ``panels``: one for each choice of the other parameters, {``choice``: "eta = 1/16", or "" where there
      is no other, ``lines``: one for each λ: {``value``: λ, ``alpha``, ``mean``, ``se``, ``diverged``}}, the last four
      of one length. ``se`` and ``diverged`` (the share of runs) may be left out. A mean that is not finite, or that of
      runs all diverged, leaves the frame.
    - ``learning``: ``points`` (steps) and under any other key ("best mean", "best final") the choice it names: one
      mapping a rule with ``rule``, ``setting`` (words), ``mean`` and ``se`` at the points.
    - ``best``: one mapping a rule with ``rule``, ``alpha``, ``lambda`` (numbers or words), ``second`` (words),
      ``mean``, ``mean_se``, ``final``, ``final_se``, ``diverged`` (runs of this setting) and ``runs``.
    - ``baseline``: {words: error} drawn as horizontal lines, such as "w = 0" and "best linear approximation".
    - ``settings``: nested mappings. ``seconds``: how long each stage took. ``versions``: of what took part.
    """

    title: str
    intro: str
    metric: str
    unit: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    sensitivity: Sequence[Mapping[str, Any]] = ()
    learning: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    best: Sequence[Mapping[str, Any]] = ()
    baseline: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)


def sweep_page(sweep: SweepPage) -> str:
    """The page as HTML, complete in itself."""
    plots = Plots()
    sections = {
        "Settings": settings_section(sweep.settings, sweep.versions),
        "Time": time_section(sweep.seconds),
    }
    return page(sweep.title, sweep.intro, {name: part for name, part in sections.items() if part}, plots)
