"""The report of a run of ``emphatic nexting``: its numbers as the page needs them."""

from __future__ import annotations

from typing import Any

import numpy as np

from emphatic.common.versions import versions
from emphatic.nexting.reading_facts import unused_columns
from emphatic.questions.durations import format_duration

__all__ = ["page"]


def page(run: Any) -> str:
    """The whole page, of a finished ``emphatic.nexting.runner.Nexting``."""
    from emphatic.nexting.page import NextingPage, nexting_page

    n, K = run.horde.features.n, run.horde.learner.K
    rule = "true online emphatic TD(λ)" if run.settings.rule == "true_online_etd" else run.settings.rule
    intro = (
        f"{run.rows:,} rows, {len(run.settings.predict or ())} signals at {len(run.settings.horizons or ())} horizons, "
        f"learned online in one pass by {rule}: {K:,} learners on {n:,} features."
    )
    return nexting_page(
        NextingPage(
            title=run.table.name.replace("\\", "/").split("/")[-1],
            intro=intro,
            scores=run.summary,
            curves=_curves(run.curves),
            signals=run.plots,
            quality=_quality(run),
            settings=run.settings.table(),
            seconds=run.seconds,
            versions=versions("pyarrow"),
        )
    )


def _curves(curves: list[dict[str, Any]]) -> dict[str, Any]:
    names = {"ours": "rmse", "persistence": "persistence", "mean": "mean"}
    return {"rows": curves[0]["rows"]} | {shown: [curve[name] for curve in curves] for shown, name in names.items()}


def _quality(run: Any) -> dict[str, Any]:
    names, counts, clock, hold = run.table.names, run.counts, run.clock, run.horde.hold
    quality: dict[str, Any] = {"rows": run.rows}
    if clock is not None and np.isfinite(clock.step):
        quality["usual step"] = format_duration(clock.step) if run.table.dated else f"{clock.step:g}"
        quality["gaps"] = clock.gaps
        quality["longest gaps"] = [(row, _when(run, a), _when(run, b)) for row, a, b in clock.longest]
        quality["irregular steps"] = clock.irregular
        quality["times that go backwards or repeat"] = clock.backwards + clock.repeats
    quality["missing"] = {n: (int(a), int(b)) for n, a, b in zip(names, hold.missing, hold.longest, strict=True) if a}
    quality["clipped"] = {n: both for n, both in run.horde.features.clipped.items() if any(both)}
    unreadable = {name: a + b for name, a, b in zip(names, counts.unreadable, counts.infinite, strict=True)}
    quality["unreadable"] = {name: count for name, count in unreadable.items() if count}
    quality["constant"] = run.constant
    quality["ignored columns"] = run.table.ignored | unused_columns(run)
    if run.table.broken:
        quality["malformed lines skipped"] = run.table.broken
    frozen = int(run.horde.learner.frozen.sum())
    if frozen:
        quality["learners frozen after diverging"] = frozen
    return quality


def _when(run: Any, time: float) -> str:
    if not run.table.dated:
        return f"{time:g}"
    return str(np.datetime64(int(time * 1000), "ms")).replace("T", " ").removesuffix(".000")
