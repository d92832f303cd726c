"""The report of a run of ``emphatic nexting``: its numbers as the page needs them."""

from __future__ import annotations

from typing import Any

import numpy as np

from emphatic.common import versions
from emphatic.nexting.overview import FILES
from emphatic.nexting.reading_facts import unused_columns
from emphatic.nexting.score_sections import count
from emphatic.questions.durations import format_duration

__all__ = ["page"]


def page(run: Any) -> str:
    """The whole page, of a finished ``emphatic.nexting.runner.Nexting``."""
    from emphatic.nexting.page import NextingPage, nexting_page

    n = max(maker.n for maker in run.horde.makers)
    rule = "true online emphatic TD(λ)" if run.settings.rule == "true_online_etd" else run.settings.rule
    intro = (
        f"{_span(run)} Learned online in one pass by {rule}: {count(run.learners, 'learner')} on {count(n, 'feature')}."
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
            upcoming=run.upcoming,
            when=_moment(run, run.last_time),
            worst=[row | {"when": _moment(run, row["time"]) or f"row {row['row']:,}"} for row in run.worst],
            reading=run.summary[0].get("reading", {}) if run.summary else {},
            files=FILES,
            command="tail -f READINGS | emphatic nexting - --model model.safetensors",
            toml=run.settings.toml(),
            coverage=run.settings.coverage,
            alarms=[row | {"when": _moment(run, row["time"]) or f"row {row['row']:,}"} for row in run.alarms],
            false_alarm_rate=run.settings.false_alarm_rate,
        )
    )


def _span(run: Any) -> str:
    """From when to when, how many rows and which columns."""
    rows, signals = count(run.rows, "row"), list(run.table.names)
    first, last = (_moment(run, time) for time in (run.first_time, run.last_time))
    listed = ", ".join(signals[:8]) + (f" and {len(signals) - 8:,} more" if len(signals) > 8 else "")
    others = len(run.table.categories)
    columns = f"{count(len(signals), 'signal')} ({listed})" + (
        f" and {count(others, 'column')} of words" if others else ""
    )
    return f"{f'{first} to {last}, ' if first and last else ''}{rows}; {columns}."


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
    clipped = {n: both for maker in run.horde.makers for n, both in maker.clipped.items()}
    quality["clipped"] = {n: both for n, both in clipped.items() if any(both)}
    unreadable = {name: a + b for name, a, b in zip(names, counts.unreadable, counts.infinite, strict=True)}
    quality["unreadable"] = {name: count for name, count in unreadable.items() if count}
    quality["constant"] = run.constant
    quality["ignored columns"] = run.table.ignored | unused_columns(run)
    if run.table.broken:
        quality["malformed lines skipped"] = run.table.broken
    if run.frozen:
        quality["learners frozen after diverging"] = run.frozen
    return quality


def _moment(run: Any, time: float | None) -> str:
    """A time as it is written on the page; "" if there is none."""
    return "" if time is None or not np.isfinite(time) else _when(run, time)


def _when(run: Any, time: float) -> str:
    if not run.table.dated:
        return f"{time:g}"
    return str(np.datetime64(int(time * 1000), "ms")).replace("T", " ").removesuffix(".000")
