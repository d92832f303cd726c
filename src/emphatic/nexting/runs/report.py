"""The report of a run of ``emphatic nexting``: one page about what comes next and how well each signal was predicted.

``render_report`` takes a log that has been scored. ``NextingPage`` is what the page shows, and ``nexting_page`` fills
the template ``nexting.html`` from it. A function here makes the tables or the plots of one section; the words are in
the template.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.common import versions
from emphatic.gvfs.durations import format_duration
from emphatic.nexting.answers.asked import Asked
from emphatic.nexting.answers.periods import describe_periods
from emphatic.nexting.report.page import (
    NONE,
    Column,
    Html,
    Key,
    Plots,
    amount,
    count,
    known,
    percent,
    piece,
    render_page,
    share,
    table,
    text,
    time_table,
    with_digits,
)
from emphatic.nexting.report.plots import Line, Marks, Panel, Plot
from emphatic.nexting.runs.alarms import alarms_by_signal
from emphatic.nexting.runs.cards import ASKED_KEYS, Card, make_cards, make_gvf_cards
from emphatic.nexting.runs.gvfs import FollowedGVFs
from emphatic.nexting.runs.outlook import Outlook, SignalVerdict, make_outlook, unit_of
from emphatic.nexting.runs.scoring import Scored
from emphatic.nexting.scores.verdicts import describe_baseline

__all__ = ["FILES", "NextingPage", "nexting_page", "render_report"]

Array = NDArray[np.float64]
Row = Mapping[str, Any]

FILES = {
    "predictions.parquet": "for each row: predictions with their intervals, anomaly scores, alarms and reasons",
    "summary.json": "the scores, as numbers",
    "report.html": "this page",
    "model.safetensors": "the trained model",
}

#: Signals whose forecasts are drawn, at most: a page with more would be too large to open.
DRAWN = 100
#: The scores of a question that have a column of their own.
_SCORES = ("variance_explained", "rmse", "mae", "skill_best", "coverage", "known")


# ---------------------------------------------------------------------- from a run


def render_report(scored: Scored, seconds: Mapping[str, float]) -> str:
    """The whole page of a log that has been scored.

    Args:
        scored: The scores, with the learners and the table that they are of.
        seconds: How long each phase took.
    """
    learned, summary, horde = scored.learned, scored.summary, scored.learned.forecaster.horde
    settings, dated = learned.log.settings, learned.log.table.dated
    rule = "true online emphatic TD(λ)" if settings.rule in (None, "true_online_etd") else settings.rule
    features = max(maker.n for maker in horde.makers)
    learners = f"{count(learned.learners, 'learner')} of {rule} on {count(features, 'feature')}"
    return nexting_page(
        NextingPage(
            title=learned.log.table.name.replace("\\", "/").split("/")[-1],
            intro=f"{_describe_span(scored)} Learned online in one pass, with {learners}.",
            summary=summary,
            quality=_quality(scored),
            settings=settings.table(),
            seconds=seconds,
            versions=versions("pyarrow"),
            asked=learned.forecaster.asked,
            returns=learned.forecaster.returns,
            outlooks=_outlooks(scored),
            files=FILES,
            command="tail -f READINGS | emphatic nexting - --model model.safetensors",
            toml=settings.toml(),
            coverage=settings.coverage,
            alarms=_with_moments(dated, scored.alarms),
            false_alarm_rate=settings.false_alarm_rate,
        )
    )


def _outlooks(scored: Scored) -> list[Outlook]:
    """What is expected of each signal, in the order of the log."""
    asked, summary = scored.learned.forecaster.asked, scored.summary[1:]
    units = scored.summary[0]["reading"].get("units") or {}
    return [
        make_outlook(asked, summary, row["signal"], row, unit_of(row["signal"], units))
        for row in scored.summary[0]["signals"][:DRAWN]
    ]


def _describe_span(scored: Scored) -> str:
    """From when to when, how many rows and which columns."""
    log = scored.learned.log
    begin, end = (_moment(log.table.dated, time) for time in scored.span)
    signals, categories = log.table.names, len(log.table.categories)
    listed = ", ".join(signals[:8]) + (f" and {len(signals) - 8:,} more" if len(signals) > 8 else "")
    words = f" and {count(categories, 'column')} of words" if categories else ""
    span = f"{begin} to {end}, " if begin and end else ""
    return f"{span}{count(log.rows, 'row')}; {count(len(signals), 'signal')} ({listed}){words}."


def _quality(scored: Scored) -> dict[str, Any]:
    """What was counted while the table was read and learned from, besides what ``summary.json`` has of it."""
    learned, table = scored.learned, scored.learned.log.table
    clock, horde = learned.clock, learned.forecaster.horde
    quality: dict[str, Any] = {"rows": learned.log.rows}
    if clock is not None and np.isfinite(clock.step):
        quality["usual step"] = format_duration(clock.step) if table.dated else f"{clock.step:g}"
        quality["gaps"] = clock.gaps
        longest = clock.longest
        quality["longest gaps"] = [
            (row, _when(table.dated, begin), _when(table.dated, end)) for row, begin, end in longest
        ]
        quality["irregular steps"] = clock.irregular
        quality["times that go backwards or repeat"] = clock.backwards + clock.repeats
    missing = zip(table.names, horde.hold.missing.tolist(), horde.hold.longest.tolist(), strict=True)
    quality["missing"] = {name: (absent, longest) for name, absent, longest in missing if absent}
    clipped = (counts for maker in horde.makers for counts in maker.clipped.items())
    quality["clipped"] = {name: beyond for name, beyond in clipped if any(beyond)}
    quality["constant"] = learned.constant
    if periods := describe_periods(learned.forecaster.asked.periods):
        quality["periods found"] = periods
    if learned.frozen:
        quality["learners frozen after diverging"] = learned.frozen
    return quality


def _with_moments(dated: bool, rows: Sequence[Row]) -> list[Row]:
    return [{**row, "when": _moment(dated, row["time"]) or f"row {row['row']:,}"} for row in rows]


#: The seconds from 1970 to the farthest dates that can be written.
_FARTHEST_DATE = 9e15


def _moment(dated: bool, time: float | None) -> str:
    """A time as it is written on the page; "" if there is none."""
    return "" if time is None or not np.isfinite(time) else _when(dated, time)


def _when(dated: bool, time: float) -> str:
    """A time as it is written on the page; a number where it is no date, or one too far away to be written."""
    if not dated or abs(time) > _FARTHEST_DATE:
        return f"{time:g}"
    return str(np.datetime64(int(time * 1000), "ms")).replace("T", " ").removesuffix(".000")


# ---------------------------------------------------------------------- the page


@dataclass(frozen=True)
class NextingPage:
    """All that the page shows, as plain data; what is empty is left out.

    - ``summary``: the objects of ``summary.json``.
    - ``quality``: ``rows``, ``usual step``, ``gaps``, ``longest gaps`` [(row, from, to)], ``missing`` {signal: (count,
      longest run)}, ``clipped`` {source: (below, above)} and ``constant`` [names]; whatever else is in it is shown as
      it is.
    - ``asked``: the questions after the last row; ``returns``: the user's own questions.
    - ``outlooks``: each signal's recent readings, forecasts and verdict, which open the page.
    - ``alarms``: those with the highest scores, with ``when``, ``signal``, ``rows``, ``anomaly``, ``why``;
      ``false_alarm_rate``: how many false ones per row were put up with.
    - ``files``: the files beside the page and what they hold; ``command``: how to go on live.
    - ``toml``: the settings as they can be pasted; otherwise ``settings``: nested mappings. ``seconds``: how long each
      stage took. ``versions``: of what took part. ``coverage``: the one that intervals are to have.
    """

    title: str
    intro: str
    summary: Sequence[Row]
    quality: Row = field(default_factory=dict)
    settings: Row = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    toml: str = ""
    coverage: float | None = None
    alarms: Sequence[Row] = ()
    false_alarm_rate: float | None = None
    asked: Asked | None = None
    returns: FollowedGVFs | None = None
    outlooks: Sequence[Outlook] = ()


def _question_cards(page: NextingPage, plots: Plots) -> list[Card]:
    """Cards of the questions that were asked, and of the user's own."""
    cards = make_cards(page.asked, plots) if page.asked else []
    dated = page.asked is not None and page.asked.timing.dated
    return cards + (make_gvf_cards(page.returns, plots, dated) if page.returns else [])


def nexting_page(page: NextingPage) -> str:
    """The page as HTML, complete in itself."""
    plots = Plots()
    sections: dict[str, tuple[str, Any]] = {
        "outlook": ("Forecast", _outlook(page, plots)),
        "asked": ("Questions", _question_cards(page, plots)),
        "alarms": ("Alarms", _alarms(page)),
        "scores": ("Scores", _scores(page)),
        "quality": ("Data quality", _quality_tables(page.quality, page.summary[0]["reading"])),
        "files": ("Files", _files(page)),
        "settings": ("Settings", page.settings or page.versions),
        "time": ("Time", time_table(page.seconds)),
    }
    return render_page(
        "nexting.html",
        page.title,
        page.intro,
        {name: words for name, (words, shown) in sections.items() if shown},
        plots,
        coverage=None if page.coverage is None else percent(page.coverage),
        versions=page.versions,
        asked_keys=ASKED_KEYS,
        toml=page.toml,
        times=sections.pop("time")[1],
        **{name: shown for name, (_, shown) in sections.items()} | {"settings": page.settings},
    )


# ---------------------------------------------------------------------- what a person looks for first


def _outlook(page: NextingPage, plots: Plots) -> Row | None:
    """The first screen: the verdict on a signal that the reader chooses, its forecast, and a table of all signals."""
    if not page.outlooks:
        return None
    constant = page.quality.get("constant") or ()
    outlooks = sorted(page.outlooks, key=lambda outlook: outlook.signal in constant)
    views = {str(i): [_outlook_panel(outlook)] for i, outlook in enumerate(outlooks)}
    inside = "" if page.coverage is None else f" {percent(page.coverage)}"
    keys = [Key("reading", "reading"), Key("hue", f"forecast with its{inside} interval", 1.0)]
    if any(len(outlook.baseline[0]) for outlook in outlooks):
        keys.append(Key("baseline", "best baseline"))
    better = sum(outlook.verdict.kind == "better" for outlook in outlooks)
    judged = sum(outlook.verdict.skill is not None for outlook in outlooks)
    of_all = f"{better} of {count(judged, 'signal')} predicted better than the best baseline." if judged else ""
    return {
        "plot": plots(
            Plot(views, "outlook"), "Forecast: recent readings, the forecast with its interval, the baseline"
        ),
        "keys": keys,
        "options": {str(i): outlook.signal for i, outlook in enumerate(outlooks)},
        "verdicts": [_verdict_words(outlook) for outlook in outlooks],
        "table": _outlook_table(page, outlooks),
        "of_all": of_all if len(outlooks) > 1 else "",
        "rows": len(outlooks),
        "judged": judged,
    }


def _positions(times: Array, dated: bool) -> NDArray[Any]:
    return (times * 1000.0).astype("int64").astype("datetime64[ms]") if dated else times


def _outlook_panel(outlook: Outlook) -> Panel:
    """Recent readings, then the forecast: a dot with its interval at each horizon, a thinner line between them."""
    dated = outlook.dated
    readings = Line(_positions(outlook.time, dated), outlook.reading, "reading", "reading", width=1.4)
    time, value, low, high = outlook.path
    lines, marks = [readings], []
    if len(outlook.baseline[0]):
        times, values = outlook.baseline
        lines.append(Line(_positions(times, dated), values, "best baseline", "baseline", width=1.1, dash="dash"))
    if outlook.forecasts:
        bounds: dict[str, Any] = {"low": low, "high": high} if np.isfinite(low).any() else {}
        path = Line(_positions(time, dated), value, "between forecasts", "hue", 1.0, width=1.1, opacity=0.8, **bounds)
        lines.append(path)
        columns = [[forecast[i] for forecast in outlook.forecasts] for i in (2, 3, 4, 5)]
        places, means, lows, highs = (np.array(column, np.float64) for column in columns)
        names = [f"at +{_rows(forecast.horizon)}" for forecast in outlook.forecasts]
        marks.append(
            Marks(_positions(places, dated), means, "forecast", "hue", 1.0, "dot", None, names, "", lows, highs)
        )
    known = np.concatenate(
        [np.asarray(y, np.float64) for y in (outlook.reading, outlook.baseline[1], value, low, high)]
    )
    known = known[np.isfinite(known)]
    span = float(np.ptp(known)) if len(known) else 0.0
    room = 0.06 * span if span > 0 else max(1.0, abs(float(known[0])) if len(known) else 1.0) * 0.1
    frame = (float(known.min()) - room, float(known.max()) + room) if len(known) else (0.0, 1.0)
    origin = float(outlook.time[-1]) * (1000.0 if dated else 1.0) if len(outlook.time) else None
    title = outlook.signal + (f", {outlook.unit}" if outlook.unit and outlook.unit not in outlook.signal else "")
    return Panel(title, lines, frame, marks, (), origin)


def _verdict_words(outlook: Outlook) -> Row:
    """The verdict in a sentence, and the facts behind it."""
    verdict, unit = outlook.verdict, f" {outlook.unit}" if outlook.unit else ""
    sentence = verdict.sentence or f"No value of {outlook.signal} was forecast."
    facts = []
    if known(verdict.skill):
        over = f"{verdict.baseline_words} ({verdict.baseline}), at +{_rows(verdict.horizon)}"
        facts.append(f"Skill {_skill(verdict)} over {over}")
    if known(verdict.rmse) and known(verdict.baseline_rmse):
        facts.append(f"error (RMSE) {amount(verdict.rmse)}{unit}, baseline {amount(verdict.baseline_rmse)}{unit}")
    if outlook.forecasts:
        final = outlook.forecasts[-1]
        width = final.high - final.low if final.low is not None and final.high is not None else None
        bounds = f" ({with_digits(final.low, width)} to {with_digits(final.high, width)})" if width is not None else ""
        moment = _when(True, final.time) if outlook.dated else f"{final.time:,.10g}"
        farthest = "farthest forecast, at" if len(outlook.forecasts) > 1 else "forecast at"
        at = f"{farthest} +{_rows(final.horizon)} ({moment})"
        facts.append(f"{at}: {with_digits(final.mean, width)}{unit}{bounds}")
    return {"sentence": sentence, "kind": verdict.kind.replace(" ", "-"), "facts": " · ".join(facts)}


def _outlook_table(page: NextingPage, outlooks: Sequence[Outlook]) -> Html:
    """Every signal: its last value, its forecasts and the verdict."""
    horizons = {forecast.horizon: forecast.time for outlook in outlooks for forecast in outlook.forecasts}
    ordered = sorted(horizons, key=lambda horizon: horizons[horizon])
    rows = []
    for i, outlook in enumerate(outlooks):
        unit = f" {outlook.unit}" if outlook.unit else ""
        nearest = next((f.high - f.low for f in outlook.forecasts if f.low is not None and f.high is not None), None)
        row: dict[str, Any] = {
            "signal": piece("pick", i, outlook.signal),
            "latest": None if outlook.latest is None else with_digits(outlook.latest, nearest) + unit,
            "latest value": outlook.latest,
            "verdict": _badge(outlook.verdict),
            "skill": outlook.verdict.skill,
        }
        for forecast in outlook.forecasts:
            width = None if forecast.low is None or forecast.high is None else forecast.high - forecast.low
            value = with_digits(forecast.mean, width) + unit
            ends = "" if width is None else f"{with_digits(forecast.low, width)} to {with_digits(forecast.high, width)}"
            row[f"at {forecast.horizon}"] = piece("interval", value, ends) if ends else text(value)
            row[f"value {forecast.horizon}"] = forecast.mean
        rows.append(row)
    columns = [
        Column("signal", "signal"),
        Column("last value", "latest", str, order="latest value"),
        *(Column(f"at +{_rows(h)}", f"at {h}", Html, "forecast", order=f"value {h}") for h in ordered),
        Column("verdict", "verdict", Html, order="skill"),
    ]
    shown = [column for column in columns if any(row.get(column.key) for row in rows)]
    return table(shown, rows, sort=True)


def _rows(horizon: float | str) -> str:
    """A horizon of values as text: a number is of rows."""
    return count(horizon, "row") if known(horizon) else str(horizon)


def _badge(verdict: SignalVerdict) -> Html | None:
    if not verdict.kind:
        return None
    detail = f"skill {_skill(verdict)} over {verdict.baseline_words}" if known(verdict.skill) else ""
    return piece("badge", verdict.kind.replace(" ", "-"), verdict.kind, detail)


def _skill(verdict: SignalVerdict) -> str:
    """The skill over the best baseline with its interval: above 0 throughout where predictions are better."""
    bounds = f" ({share(verdict.low)} to {share(verdict.high)})" if known(verdict.low) and known(verdict.high) else ""
    return share(verdict.skill) + bounds


def _alarms(page: NextingPage) -> Row | None:
    """A row for each alarm, in the order of time; nothing if none were looked for."""
    if page.false_alarm_rate is None:
        return None
    total = sum(alarms_by_signal(page.summary).values())
    columns = [
        Column("signal", "signal"),
        Column("when", "when"),
        Column("rows", "rows", amount, hint="how long it lasted"),
        Column("score", "anomaly", amount),
        Column("why", "why"),
    ]
    rows = [dict(alarm) for alarm in page.alarms]
    return {
        "total": count(total, "alarm") if total else "",
        "rows_per_false_alarm": f"{1.0 / page.false_alarm_rate:,.0f}",
        "highest": len(rows) if len(rows) < total else 0,
        "table": table(columns, rows, sort=True, tall=True) if rows else Html(),
    }


# ---------------------------------------------------------------------- scores


def _scores(page: NextingPage) -> Html | None:
    """Every question beside its best baseline."""
    rows = []
    for place, score in enumerate(page.summary[1:]):
        of_best = (score["baselines"].get(score["best_baseline"]) or {}) if score["best_baseline"] else {}
        rows.append(
            {
                "text": score["text"],
                "place": place,
                "badge": piece("badge", score["verdict"].replace(" ", "-"), score["verdict"], ""),
                "baseline": describe_baseline(score["best_baseline"] or ""),
                "of_best": of_best.get("variance_explained"),
                "rmse_of_best": of_best.get("rmse"),
            }
            | {name: score.get(name) for name in _SCORES}
        )
    if not rows:
        return None
    explained, error = "variance explained", "RMSE"
    skill = "1 − MSE / MSE of the best baseline"
    columns = [
        Column("question", "text", order="place"),
        Column("verdict", "badge", Html, order="skill_best"),
        Column("skill", "skill_best", share, hint=skill),
        Column("best baseline", "baseline"),
        Column("online", "variance_explained", share, explained),
        Column("baseline", "of_best", share, explained),
        Column("online", "rmse", amount, error),
        Column("baseline", "rmse_of_best", amount, error),
        Column("MAE", "mae", amount),
    ]
    if page.coverage is not None:
        columns.append(Column(f"in the {percent(page.coverage)} interval", "coverage", share))
    columns.append(Column("windows known", "known", amount))
    return table(columns, rows, sort=True, tall=True)


# ---------------------------------------------------------------------- data, files


def _quality_tables(quality: Row, reading: Row) -> Row | None:
    """What was found in the table, and how it was read: gaps, missing and unreadable readings, values out of range,
    rows dropped, columns not used."""
    if not quality and not reading:
        return None
    rows, missing, unreadable = quality.get("rows"), quality.get("missing") or {}, reading.get("unreadable") or {}
    holes = [
        {"signal": name, "missing": n, "share": n / rows if rows else None, "run": run, "odd": unreadable.get(name)}
        for name, (n, run) in {**dict.fromkeys(unreadable, (0, 0)), **missing}.items()
        if n or unreadable.get(name)
    ]
    guarded = [{"signal": name, **counts} for name, counts in (reading.get("guarded") or {}).items()]
    clipped = [
        {"source": name, "below": below, "above": above}
        for name, (below, above) in (quality.get("clipped") or {}).items()
        if below or above
    ]
    gaps = [{"row": row, "from": start, "to": end} for row, start, end in quality.get("longest gaps") or ()]
    tables = {
        "missing": (
            [
                Column("signal", "signal"),
                Column("missing", "missing", amount),
                Column("share", "share", _hundredths),
                Column("longest run", "run", amount),
                Column("unreadable", "odd", amount),
            ],
            holes,
        ),
        "gaps": ([Column("row", "row", amount), Column("from", "from"), Column("to", "to")], gaps),
        "guarded": (
            [
                Column("signal", "signal"),
                Column("pulled in", "pulled_in", amount),
                Column("counted as missing", "missing", amount),
            ],
            guarded,
        ),
        "clipped": (
            [Column("source", "source"), Column("below", "below", amount), Column("above", "above", amount)],
            clipped,
        ),
        "dropped": (
            [Column("why", "why"), Column("rows", "count", amount), Column("first", "first", amount)],
            [dict(entry) for entry in reading.get("rows_dropped") or ()],
        ),
        "ignored": (
            [Column("column", "column"), Column("why", "why")],
            [{"column": entry["name"], "why": entry["why"]} for entry in reading.get("columns_left_out") or ()],
        ),
    }
    in_tables = ("longest gaps", "missing", "clipped")
    facts = _how_it_was_read(reading) | {name: value for name, value in quality.items() if name not in in_tables}
    return {"facts": facts} | {
        name: table(columns, entries, tall=True) if entries else "" for name, (columns, entries) in tables.items()
    }


def _how_it_was_read(reading: Row) -> dict[str, Any]:
    """The time column or why there is none, and what else was found out about the table."""
    facts: dict[str, Any] = {}
    time = reading.get("time") or {}
    if time.get("why"):
        facts["time column"] = f"none: {time['why']}"
    elif time:
        facts["time column"] = " + ".join(map(str, time.get("columns") or ()))
        facts |= {f"time {name}": time[name] for name in ("format", "zone") if time.get(name)}
    known_elsewhere = {"time", "step", "step_text", "gaps", "rows", "rows_dropped", "columns_left_out", "unscored"}
    known_elsewhere |= {"guarded", "unreadable"}
    remaining = {name: value for name, value in reading.items() if name not in known_elsewhere and value}
    return facts | {name.replace("_", " "): value for name, value in remaining.items()}


def _hundredths(value: float | None) -> str:
    return f"{100 * value:.2f}%" if known(value) else NONE


def _files(page: NextingPage) -> Row | None:
    """The files beside the page, and how to go on live: a command for a pipe, or a service."""
    if not page.files:
        return None
    rows = [{"file": piece("code", name), "what": what} for name, what in page.files.items()]
    return {"table": table([Column("file", "file"), Column("what it holds", "what")], rows), "command": page.command}
