"""The report of a run of ``emphatic nexting``: its numbers as the page needs them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from emphatic.common.versions import versions
from emphatic.nexting.learning import Learned
from emphatic.nexting.overview import FILES
from emphatic.nexting.runner import unused_columns
from emphatic.nexting.score_sections import count
from emphatic.nexting.scoring import Scored
from emphatic.questions.durations import format_duration

__all__ = ["page"]


def page(scored: Scored, seconds: Mapping[str, float]) -> str:
    """The whole page, of a log that has been scored."""
    from emphatic.nexting.page import NextingPage, nexting_page

    run = scored.learned
    settings = run.log.settings
    n = max(maker.n for maker in run.horde.makers)
    rule = "true online emphatic TD(λ)" if settings.rule == "true_online_etd" else settings.rule
    learners = f"{count(run.learners, 'learner')} on {count(n, 'feature')}"
    intro = f"{_span(scored)} Learned online in one pass by {rule}: {learners}."
    return nexting_page(
        NextingPage(
            title=run.log.table.name.replace("\\", "/").split("/")[-1],
            intro=intro,
            scores=scored.summary,
            curves=_curves(scored.curves),
            signals=scored.plots,
            quality=_quality(scored),
            settings=settings.table(),
            seconds=seconds,
            versions=versions("pyarrow"),
            upcoming=scored.upcoming,
            when=_moment(run, scored.span[1]),
            worst=[row | {"when": _moment(run, row["time"]) or f"row {row['row']:,}"} for row in scored.worst],
            reading=scored.summary[0].get("reading", {}) if scored.summary else {},
            files=FILES,
            command="tail -f READINGS | emphatic nexting - --model model.safetensors",
            toml=settings.toml(),
            coverage=settings.coverage,
            alarms=[row | {"when": _moment(run, row["time"]) or f"row {row['row']:,}"} for row in scored.alarms],
            false_alarm_rate=settings.false_alarm_rate,
        )
    )


def _span(scored: Scored) -> str:
    """From when to when, how many rows and which columns."""
    run, table = scored.learned, scored.learned.log.table
    rows, signals = count(run.log.rows, "row"), list(table.names)
    first, last = (_moment(run, time) for time in scored.span)
    listed = ", ".join(signals[:8]) + (f" and {len(signals) - 8:,} more" if len(signals) > 8 else "")
    others = len(table.categories)
    columns = f"{count(len(signals), 'signal')} ({listed})" + (
        f" and {count(others, 'column')} of words" if others else ""
    )
    return f"{f'{first} to {last}, ' if first and last else ''}{rows}; {columns}."


def _curves(curves: list[dict[str, Any]]) -> dict[str, Any]:
    names = {"ours": "rmse", "persistence": "persistence", "mean": "mean"}
    return {"rows": curves[0]["rows"]} | {shown: [curve[name] for curve in curves] for shown, name in names.items()}


def _quality(scored: Scored) -> dict[str, Any]:
    run, table = scored.learned, scored.learned.log.table
    names, counts, clock, hold = table.names, run.counts, run.clock, run.horde.hold
    quality: dict[str, Any] = {"rows": run.log.rows}
    if clock is not None and np.isfinite(clock.step):
        quality["usual step"] = format_duration(clock.step) if table.dated else f"{clock.step:g}"
        quality["gaps"] = clock.gaps
        quality["longest gaps"] = [(row, _when(run, a), _when(run, b)) for row, a, b in clock.longest]
        quality["irregular steps"] = clock.irregular
        quality["times that go backwards or repeat"] = clock.backwards + clock.repeats
    quality["missing"] = {n: (int(a), int(b)) for n, a, b in zip(names, hold.missing, hold.longest, strict=True) if a}
    clipped = {n: both for maker in run.horde.makers for n, both in maker.clipped.items()}
    quality["clipped"] = {n: both for n, both in clipped.items() if any(both)}
    unreadable = {name: a + b for name, a, b in zip(names, counts.unreadable, counts.infinite, strict=True)}
    quality["unreadable"] = {name: count for name, count in unreadable.items() if count}
    quality["constant"] = scored.constant
    quality["ignored columns"] = table.ignored | unused_columns(run)
    if table.broken:
        quality["malformed lines skipped"] = table.broken
    if run.frozen:
        quality["learners frozen after diverging"] = run.frozen
    return quality


def _moment(run: Learned, time: float | None) -> str:
    """A time as it is written on the page; "" if there is none."""
    return "" if time is None or not np.isfinite(time) else _when(run, time)


def _when(run: Learned, time: float) -> str:
    if not run.log.table.dated:
        return f"{time:g}"
    return str(np.datetime64(int(time * 1000), "ms")).replace("T", " ").removesuffix(".000")
