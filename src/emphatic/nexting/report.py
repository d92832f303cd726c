"""The report of a run of ``emphatic nexting``: one page about what comes next and how well each signal was predicted.

``render_report`` takes a log that has been scored. ``NextingPage`` is what the page shows, and ``nexting_page`` fills
the template ``nexting.html`` from it. A function here makes the tables or the plots of one section; the words are in
the template.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.answers.asked import Asked
from emphatic.answers.periods import describe_periods
from emphatic.asking.gvfs import ASKED_KEYS, Card, FollowedGVFs, make_cards, make_gvf_cards
from emphatic.common import versions
from emphatic.learning.inputs import refusal
from emphatic.nexting.intervals import alarms_by_signal
from emphatic.nexting.outlook import (
    Outlook,
    SignalVerdict,
    make_outlook,
    read_forecasts,
    read_verdict,
    unit_of,
)
from emphatic.nexting.scoring import Scored, SignalPlot, Stretch
from emphatic.questions.durations import format_duration
from emphatic.report.page import (
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
    seconds,
    share,
    table,
    text,
    time_table,
    with_digits,
)
from emphatic.report.plots import Line, Marks, Panel, Plot

__all__ = ["FILES", "NextingPage", "nexting_page", "render_report"]

Array = NDArray[np.float64]
Row = Mapping[str, Any]

FILES = {
    "predictions.parquet": "for each row: predictions with their intervals, anomaly scores, alarms and reasons",
    "summary.json": "the scores, as numbers",
    "report.html": "this page",
    "model.safetensors": "the trained model",
}

#: The four that are compared: where a score keeps each ("" is the score itself), and its name on the page.
RIVALS = {"": "online", "offline": "offline fit", "persistence": "persistence", "mean": "running mean"}

#: The ink of rows in alarm.
ALARM = "c1"
#: Signals whose plots stand open; those after them are folded.
OPEN = 8


# ---------------------------------------------------------------------- from a run


def render_report(scored: Scored, seconds: Mapping[str, float]) -> str:
    """The whole page of a log that has been scored.

    Args:
        scored: The scores, with the learners and the table that they are of.
        seconds: How long each phase took.
    """
    learned, summary = scored.learned, scored.summary
    settings, dated = learned.log.settings, learned.log.table.dated
    rule = "true online emphatic TD(λ)" if settings.rule in (None, "true_online_etd") else settings.rule
    features = max(maker.n for maker in learned.horde.makers)
    learners = f"{count(learned.learners, 'learner')} on {count(features, 'feature')}"
    errors = {"ours": "rmse", "persistence": "persistence", "mean": "mean"}
    return nexting_page(
        NextingPage(
            title=learned.log.table.name.replace("\\", "/").split("/")[-1],
            intro=f"{_describe_span(scored)} Learned online in one pass by {rule}: {learners}.",
            scores=summary,
            curves={"rows": scored.curves[0]["rows"]}
            | {name: [curve[key] for curve in scored.curves] for name, key in errors.items()},
            signals=scored.plots,
            quality=_quality(scored),
            settings=settings.table(),
            seconds=seconds,
            versions=versions("pyarrow"),
            upcoming=scored.upcoming,
            asked=learned.asked,
            returns=learned.derived.returns,
            outlooks=_outlooks(scored),
            when=_moment(dated, scored.span[1]),
            reading=summary[0].get("reading", {}) if summary else {},
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
    history, learned = scored.history, scored.learned
    if history is None or not len(history.rows[0]):
        return []
    origin, step = float(history.rows[0][-1]), history.timing.step
    summary = [*scored.summary, *learned.further_scores]
    forecasts = read_forecasts(summary, origin, step)
    units = (scored.summary[0].get("reading") or {}).get("units") or {}
    outlooks: list[Outlook] = []
    for signal in history.signals:
        verdict = read_verdict(summary, signal)
        periods = sorted(learned.horde.periods.get(signal, ()), key=lambda period: -period.rows)
        period = periods[0].rows * (step or 1.0) if periods else None
        unit = unit_of(signal, units)
        outlooks.append(make_outlook(history, signal, forecasts.get(signal, []), verdict, period, unit))
    return outlooks


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
    clock, hold = learned.clock, learned.horde.hold
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
    missing = zip(table.names, hold.missing.tolist(), hold.longest.tolist(), strict=True)
    quality["missing"] = {name: (absent, longest) for name, absent, longest in missing if absent}
    clipped = (counts for maker in learned.horde.makers for counts in maker.clipped.items())
    quality["clipped"] = {name: beyond for name, beyond in clipped if any(beyond)}
    quality["constant"] = scored.constant
    if periods := describe_periods(learned.horde.periods):
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

    - ``scores``: one mapping per signal × horizon, with ``signal``, ``horizon`` (a text, or a number of steps),
      ``gamma``, ``rmse``, ``variance_explained``, the same two under ``first_half``, ``persistence``, ``mean`` and
      ``offline``, ``ratio_to_offline`` (of the variances explained), ``known`` (rows scored), and of the intervals
      ``coverage``, ``interval_score`` and ``calibrated``. Any number may be None or missing.
    - ``curves``: ``rows``, where each piece of the log ends, and under ``ours``, ``persistence`` and ``mean`` for each
      score in turn the RMSE in each piece, None or NaN where unknown.
    - ``signals``: their horizons are those of the scores.
    - ``quality``: ``rows``, ``usual step``, ``gaps``, ``longest gaps`` [(row, from, to)], ``missing`` {signal: (count,
      longest run)}, ``clipped`` {source: (below, above)} and ``constant`` [names]; whatever else is in it is shown as
      it is.
    - ``upcoming``: one mapping per signal, with ``signal``, ``now`` (its last reading) and ``predictions`` from there,
      {horizon: value}, and the ends ``low`` and ``high`` of their intervals; ``when`` says when that was.
    - ``asked``: the questions of one line, after the last row; ``returns``: the user's own questions.
    - ``outlooks``: each signal's recent readings, forecasts, seasonal shape and verdict, which open the page.
    - ``alarms``: those with the highest scores, with ``when``, ``signal``, ``rows``, ``anomaly``, ``why``;
      ``false_alarm_rate``: how many false ones per row were put up with. Scores then count all ``alarms`` of a signal.
    - ``reading``: how the table was read, as ``summary.json`` has it.
    - ``files``: the files beside the page and what they hold; ``command``: how to go on live.
    - ``toml``: the settings as they can be pasted; otherwise ``settings``: nested mappings. ``seconds``: how long each
      stage took. ``versions``: of what took part. ``coverage``: the one that intervals are to have.
    """

    title: str
    intro: str
    scores: Sequence[Row]
    curves: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    signals: Sequence[SignalPlot] = ()
    quality: Row = field(default_factory=dict)
    settings: Row = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    upcoming: Sequence[Row] = ()
    when: str = ""
    reading: Row = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    toml: str = ""
    coverage: float | None = None
    alarms: Sequence[Row] = ()
    false_alarm_rate: float | None = None
    asked: Asked | None = None
    returns: FollowedGVFs | None = None
    outlooks: Sequence[Outlook] = ()

    @cached_property
    def horizons(self) -> list[Any]:
        """The horizons in their order, from the shortest."""
        return list(dict.fromkeys(score["horizon"] for score in self.scores))

    @cached_property
    def shades(self) -> dict[Any, float]:
        """Each horizon with its shade, from 0 (the shortest) to 1 (the longest)."""
        return {horizon: i / max(1, len(self.horizons) - 1) for i, horizon in enumerate(self.horizons)}

    @cached_property
    def score_of(self) -> dict[tuple[str, Any], Row]:
        """The score of each signal and horizon."""
        return {(score["signal"], score["horizon"]): score for score in self.scores}

    @cached_property
    def place_of(self) -> dict[str, int]:
        """The number of each signal's plot."""
        return {signal.name: i for i, signal in enumerate(self.signals)}

    def link(self, signal: str) -> str:
        """A signal's name, which leads to its plot where there is one."""
        place = self.place_of.get(signal)
        return signal if place is None else piece("link", f"#signal-{place}", signal)


def _question_cards(page: NextingPage, plots: Plots) -> list[Card]:
    """Cards of the questions that were asked, and of the user's own."""
    cards = make_cards(page.asked, plots) if page.asked else []
    dated = page.asked is not None and page.asked.timing.dated
    return cards + (make_gvf_cards(page.returns, plots, dated) if page.returns else [])


def nexting_page(page: NextingPage) -> str:
    """The page as HTML, complete in itself."""
    for name, many in page.curves.items():
        if name != "rows" and len(many) != len(page.scores):
            wanted = f"have one curve for each of the {len(page.scores)} scores"
            raise refusal(f"curves[{name!r}]", "nexting_page", wanted, str(len(many)))
    plots = Plots()
    sections: dict[str, tuple[str, Any]] = {
        "outlook": ("Forecast", _outlook(page, plots)),
        "asked": ("Questions", _question_cards(page, plots)),
        "next": ("Weighted means", _upcoming(page)),
        "alarms": ("Alarms", _alarms(page)),
        "summary": ("Summary", _summary(page)),
        "signals": ("Signals", _signals(page, plots)),
        "curves": ("Learning curves", _curves(page, plots)),
        "scores": ("Scores", _scores(page)),
        "quality": ("Data quality", _quality_tables(page.quality, page.reading)),
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
        upcoming=sections.pop("next")[1],
        times=sections.pop("time")[1],
        **{name: shown for name, (_, shown) in sections.items()} | {"settings": page.settings},
    )


def _horizon_label(horizon: float | str) -> str:
    """A horizon as text: a number is of steps."""
    return count(horizon, "step") if known(horizon) else str(horizon)


def _median(values: Iterable[Any]) -> float | None:
    """The median of the numbers that are known, None if none is."""
    numbers = [value for value in values if known(value)]
    return statistics.median(numbers) if numbers else None


def _of(score: Row, rival: str, what: str) -> Any:
    """A number of a score, or of one of its baselines; None if there is none."""
    return ((score.get(rival) or {}) if rival else score).get(what)


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
        "verdicts": [_verdict_words(page, outlook) for outlook in outlooks],
        "table": _outlook_table(page, outlooks),
        "of_all": of_all if len(outlooks) > 1 else "",
        "rows": len(outlooks),
        "judged": judged,
        "seasons": any(outlook.seasons for outlook in outlooks),
    }


def _positions(times: Array, dated: bool) -> NDArray[Any]:
    return (times * 1000.0).astype("int64").astype("datetime64[ms]") if dated else times


def _outlook_panel(outlook: Outlook) -> Panel:
    """Recent readings, then the forecast: a dot with its interval at each horizon, a thinner line between them."""
    dated, verdict = outlook.dated, outlook.verdict
    readings = Line(_positions(outlook.time, dated), outlook.reading, "reading", "reading", width=1.4)
    time, value, low, high = outlook.path
    lines, marks = [readings], []
    if len(outlook.baseline[0]):
        times, values = outlook.baseline
        lines.append(Line(_positions(times, dated), values, verdict.baseline_words, "baseline", width=1.1, dash="dash"))
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


def _verdict_words(page: NextingPage, outlook: Outlook) -> Row:
    """The verdict in a sentence, and the facts behind it."""
    verdict, unit = outlook.verdict, f" {outlook.unit}" if outlook.unit else ""
    sentence = verdict.sentence or _without_forecast(page, outlook.signal)
    facts = []
    if known(verdict.skill):
        about = f"mean over {_rows(verdict.horizon)}" if verdict.of_mean else f"at +{_rows(verdict.horizon)}"
        facts.append(f"Skill {_skill(verdict)} over {verdict.baseline_words} ({verdict.baseline}), {about}")
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


def _without_forecast(page: NextingPage, signal: str) -> str:
    """What is said of a signal without values at +h."""
    if signal in (page.quality.get("constant") or ()):
        return f"{signal} never changes."
    explained = [(page.score_of.get((signal, h)) or {}).get("variance_explained") for h in page.horizons]
    scores = [(value, h) for value, h in zip(explained, page.horizons, strict=True) if known(value)]
    if not scores:
        return f"{signal} could not be scored."
    value, horizon = max(scores, key=lambda score: score[0])
    return (
        f"The mean of what {signal} does next (horizon {_horizon_label(horizon)}) is predicted with a variance "
        f"explained of {share(value)}. No value at a time ahead was forecast."
    )


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
            row[f"at {forecast.horizon}"] = piece("interval", value, ends, False) if ends else text(value)
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


def _upcoming(page: NextingPage) -> Row | None:
    """The prediction of each signal from the last row, at every horizon, with its interval, beside the last reading."""
    if not page.upcoming:
        return None
    unsure = {(score["signal"], score["horizon"]) for score in page.scores if score.get("calibrated") is False}
    rows = []
    for entry in page.upcoming:
        latest = entry.get("now")
        low, high = ((entry.get(end) or {}).get(page.horizons[0]) for end in ("low", "high"))
        width = high - low if known(low) and known(high) else None
        row: dict[str, Any] = {
            "signal": page.link(entry["signal"]),
            "now": _with_width(latest, width),
            "value now": latest,
        }
        for i, horizon in enumerate(page.horizons):
            row[f"value {i}"] = entry["predictions"].get(horizon)
            row[str(i)] = _with_interval(entry, horizon, (entry["signal"], horizon) in unsure)
        rows.append(row)
    columns = [Column("signal", "signal"), Column("last value", "now", str, order="value now")]
    columns += [
        Column(_horizon_label(h), str(i), Html, "weighted mean of future values, by horizon", order=f"value {i}")
        for i, h in enumerate(page.horizons)
    ]
    shown = {entry["signal"] for entry in page.upcoming}
    return {
        "when": page.when,
        "unsure": any(signal in shown for signal, _ in unsure),
        "rows": len(rows),
        "table": table(columns, rows, sort=True, tall=True),
    }


def _with_interval(entry: Row, horizon: float | str, unsure: bool) -> Html | None:
    """A prediction, and below it the interval; one that is not calibrated yet has a question mark."""
    value, low, high = ((entry.get(kind) or {}).get(horizon) for kind in ("predictions", "low", "high"))
    if value is None:
        return None
    if not (known(low) and known(high)):
        return text(_with_width(value))
    ends = " to ".join(with_digits(end, high - low) for end in (low, high))
    return piece("interval", with_digits(value, high - low), ends, unsure)


def _with_width(value: float | None, width: float | None = None) -> str:
    """A quantity with as many digits as its interval shows; without one three, of a large number all before the point:
    predictions of it differ in the last ones."""
    if width is None and known(value) and abs(value) >= 1e5:
        return f"{value:,.0f}".replace("-", "−") if abs(value) < 1e15 else amount(value)
    return with_digits(value, width)


def _alarms(page: NextingPage) -> Row | None:
    """A row for each alarm, in the order of time; nothing if none were looked for."""
    if page.false_alarm_rate is None:
        return None
    total = sum(alarms_by_signal(page.scores).values())
    columns = [
        Column("signal", "signal"),
        Column("when", "when"),
        Column("rows", "rows", amount, hint="how long it lasted"),
        Column("score", "anomaly", amount),
        Column("why", "why"),
    ]
    rows = [{**alarm, "signal": page.link(alarm["signal"])} for alarm in page.alarms]
    return {
        "total": count(total, "alarm") if total else "",
        "rows_per_false_alarm": f"{1.0 / page.false_alarm_rate:,.0f}",
        "highest": len(rows) if len(rows) < total else 0,
        "table": table(columns, rows, sort=True, tall=True) if rows else Html(),
    }


# ---------------------------------------------------------------------- scores


def _summary(page: NextingPage) -> Row:
    """A sentence or two, the median over signals for each horizon, and why numbers are missing."""
    lines = []
    for horizon in page.horizons:
        scores = [score for score in page.scores if score["horizon"] == horizon]
        line: dict[str, Any] = {"horizon": _horizon_label(horizon)}
        line |= {
            name: _median(_of(score, rival, "variance_explained") for score in scores) for rival, name in RIVALS.items()
        }
        line["meter"] = piece("meter", min(max(line["online"] or 0.0, 0.0), 1.0))
        line["coverage"] = _coverage(scores)
        lines.append(line)
    columns = [Column("horizon", "horizon")]
    columns += [Column(name, name, share, rival="best") for name in RIVALS.values()]
    columns.insert(2, Column("", "meter"))
    if page.coverage is not None:
        hint = "measured coverage of the intervals, median over the signals"
        columns.append(Column(f"in the {percent(page.coverage)} interval", "coverage", str, hint=hint))
    signals = len({score["signal"] for score in page.scores})
    rows, learning = page.quality.get("rows"), page.seconds.get("learning")
    passed = f" of {amount(rows)} rows" if rows is not None else ""
    took = f", in {seconds(learning)}" if learning is not None else ""
    questions = f"{count(signals, 'signal')} predicted at {count(len(lines), 'horizon')}"
    lead = f"{questions}, learned in one pass over a log{passed}{took}."
    explained = [f"{percent(line['online'])} at {line['horizon']}" for line in lines if line["online"] is not None]
    if explained:
        median = " for the median signal" if signals > 1 else ""
        lead += f" Variance explained of the weighted means{median}: {', '.join(explained)}."
    return {"lead": lead, "table": table(columns, lines), "reasons": _reasons(page.scores)}


def _coverage(scores: Sequence[Row]) -> str | None:
    """The median coverage of a horizon's intervals, unless those of most signals are not calibrated yet."""
    middle = _median(score.get("coverage") for score in scores)
    if middle is None:
        return None
    calibrated = [score.get("calibrated") for score in scores if known(score.get("coverage"))]
    return percent(middle) if 2 * sum(map(bool, calibrated)) > len(calibrated) else "not calibrated yet"


def _reasons(scores: Sequence[Row]) -> list[str]:
    """Why a column is empty, where it is so for some signals at least."""
    concerned: dict[str, list[Row]] = {}
    for score in scores:
        for name, why in (score.get("reasons") or {}).items():
            if name in ("variance_explained", "offline"):
                shown = "Offline fit" if name == "offline" else "Variance explained"
                concerned.setdefault(f"{shown}: {why}", []).append(score)
    return [f"– {why} ({_describe_scores(subset, scores)})." for why, subset in concerned.items()]


def _describe_scores(subset: Sequence[Row], scores: Sequence[Row]) -> str:
    """Which of the scores these are: "all", or the signals and, where not all of theirs, the horizons."""
    if len(subset) == len(scores):
        return "all"
    names = list(dict.fromkeys(score["signal"] for score in subset))
    listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    horizons = {score["horizon"] for score in scores}
    if len(names) * len(horizons) == len(subset):
        return listed
    return f"{listed} at {', '.join(map(_horizon_label, dict.fromkeys(score['horizon'] for score in subset)))}"


def _scores(page: NextingPage) -> Html | None:
    """Every signal and horizon beside its baselines; a signal's name leads to its plot."""
    if not page.scores:
        return None
    rows = []
    for score in page.scores:
        row = {
            "signal": page.link(score["signal"]),
            "horizon": _horizon_label(score["horizon"]),
            "first": _of(score, "first_half", "variance_explained"),
            "calibrated": {None: None, True: "yes", False: "not yet"}[score.get("calibrated")],
        }
        row |= {
            name: score.get(name)
            for name in ("gamma", "ratio_to_offline", "skill", "known", "coverage", "interval_score")
        }
        row |= {what + rival: _of(score, rival, what) for what in ("variance_explained", "rmse") for rival in RIVALS}
        rows.append(row)
    explained, error = "variance explained", "RMSE"
    skill = "1 − MSE / MSE(persistence): above 0 is better than persistence"
    columns = [Column("signal", "signal"), Column("horizon", "horizon", order="gamma")]
    columns += [Column(name, "variance_explained" + r, share, explained, "explained") for r, name in RIVALS.items()]
    columns += [
        Column("÷ offline", "ratio_to_offline", share, explained, hint="online divided by the offline ridge fit"),
        Column("skill", "skill", share, explained, hint=skill),
        Column("first half", "first", share, explained, hint="online, in the first half of the log"),
    ]
    columns += [Column(name, "rmse" + rival, amount, error, "error", -1) for rival, name in RIVALS.items()]
    if page.coverage is not None:
        over = f"{percent(page.coverage)} interval"
        columns += [
            Column("coverage", "coverage", share, over, hint="measured coverage"),
            Column("interval score", "interval_score", amount, over, hint="width plus a penalty for returns outside"),
            Column("calibrated", "calibrated", str, over),
        ]
    columns.append(Column("rows scored", "known", amount))
    return table(columns, rows, sort=True, tall=True)


# ---------------------------------------------------------------------- plots


def _signals(page: NextingPage, plots: Plots) -> Row | None:
    """For each signal a column of panels: its readings, then for each horizon the prediction and the actual return."""
    if not page.signals:
        return None
    shades, score_of = page.shades, page.score_of
    ours = "prediction, short to long horizon"
    if page.coverage is not None:
        ours += f", with its {percent(page.coverage)} interval"
    keys = [("reading", "reading"), ("truth", "actual return"), ("hue", ours)]
    stretches = [stretch for signal in page.signals for stretch in (signal.close, signal.whole)]
    if any(stretch is not None and stretch.alarm is not None for stretch in stretches):
        keys.append((ALARM, "alarm"))
    rows_per_point = max((signal.whole.each for signal in page.signals if signal.whole), default=1)
    cards = []
    for signal in page.signals:
        views = {"close": signal.close, "whole": signal.whole or signal.close}
        scores = {horizon: score_of.get((signal.name, horizon), {}) for horizon in shades}
        plot = Plot({name: _signal_panels(stretch, shades, scores) for name, stretch in views.items()}, "signals")
        explained = (f"{_horizon_label(h)} {share(score.get('variance_explained'))}" for h, score in scores.items())
        drawing = plots(plot, f"{signal.name}: readings, predictions and actual returns")
        cards.append((signal.name, " · ".join(explained), drawing))
    return {
        "keys": [Key(*key) for key in keys],
        "cards": cards,
        "open": OPEN,
        "rows_per_point": amount(rows_per_point) if rows_per_point > 1 else "",
    }


def _signal_panels(stretch: Stretch, shades: Mapping[Any, float], scores: Mapping[Any, Row]) -> list[Panel]:
    readings = [Line(stretch.x, stretch.reading, "reading", "reading", width=1.2)]
    if stretch.alarm is not None:
        readings.append(Line(stretch.x, stretch.alarm, "alarm", ALARM, width=3.0))
    panels = [Panel("reading", readings)]
    for horizon, shade in shades.items():
        lines = []
        if horizon in stretch.predictions:  # broad, below: where the two agree, both are seen
            ours, low, high = stretch.predictions[horizon], stretch.low.get(horizon), stretch.high.get(horizon)
            lines.append(Line(stretch.x, ours, "prediction", "hue", shade, width=3.2, low=low, high=high))
        if horizon in stretch.returns:
            lines.append(Line(stretch.x, stretch.returns[horizon], "actual return", "truth", width=1.1))
        panels.append(Panel(f"{_horizon_label(horizon)} · {_describe_score(scores[horizon])}", lines))
    return panels


def _describe_score(score: Row) -> str:
    """How good the predictions of a panel are, and their intervals."""
    explained = f"variance explained {share(score.get('variance_explained'))}"
    if score.get("calibrated") is False:
        return f"{explained} · interval not calibrated yet"
    if known(score.get("coverage")):
        return f"{explained} · {percent(score['coverage'])} inside the interval"
    return explained


def _curves(page: NextingPage, plots: Plots) -> Row | None:
    """A panel for each horizon: the error in each piece of the log, for all signals or for a chosen one."""
    if not page.curves:
        return None
    rows = np.array(page.curves["rows"], np.float64)
    shape = (len(page.scores), len(rows))
    errors = {name: np.array(page.curves[name], np.float64).reshape(shape) for name in ("ours", "persistence", "mean")}
    signals = list(dict.fromkeys(score["signal"] for score in page.scores))
    shades = page.shades
    place = {(score["signal"], score["horizon"]): i for i, score in enumerate(page.scores)}
    of_horizon = {h: [i for (_, horizon), i in place.items() if horizon == h] for h in shades}
    views = {"all": [_all_signals(rows, errors, of_horizon[h], h, shade) for h, shade in shades.items()]}
    for j, signal in enumerate(signals):
        horizons = [h for h in shades if (signal, h) in place]
        views[str(j)] = [_single_signal(rows, errors, place[signal, h], h, shades[h]) for h in horizons]
    across = min(4, len(shades))
    drawing = plots(
        Plot(views, "curves", across, min(2, across)), "Learning curves: the error of the predictions along the log"
    )
    options = {"all": "All signals, relative to the running mean"}
    options |= {str(j): f"{signal}, RMSE in its own unit" for j, signal in enumerate(signals)}
    keys = [Key("hue", "online"), Key("baseline", "persistence (dashed), running mean (dotted)")]
    return {"pieces": len(rows), "keys": keys, "options": options, "plot": drawing}


def _all_signals(
    rows: Array, errors: Mapping[str, Array], places: list[int], horizon: float | str, shade: float
) -> Panel:
    mean = np.where(errors["mean"][places] > 0, errors["mean"][places], np.nan)
    ours, persistence = errors["ours"][places] / mean, errors["persistence"][places] / mean
    middles = [_medians(ours), _medians(persistence)]
    lines = [Line(rows, signal, "", "hue", shade, width=1, opacity=0.22, hover=False) for signal in ours]
    lines.append(Line(rows, np.ones(len(rows)), "running mean", "baseline", dash="dot", width=1.2))
    lines.append(Line(rows, middles[1], "persistence", "baseline", dash="dash"))
    lines.append(Line(rows, middles[0], "online", "hue", shade, width=2.4))
    # The first pieces of a slow start would flatten all the rest.
    top = max([1.0, *(float(v) for middle in middles for v in middle if not math.isnan(v))])
    return Panel(_horizon_label(horizon), lines, (0.0, 1.08 * min(top, 2.0)))


def _medians(many: Array) -> list[float]:
    """Down the columns, of what is not NaN; NaN where all is."""
    if not np.isnan(many).any():
        return np.median(many, axis=0).tolist() if len(many) else [math.nan] * many.shape[1]
    numbers = [column[~np.isnan(column)] for column in many.T]
    return [float(np.median(column)) if len(column) else math.nan for column in numbers]


def _single_signal(rows: Array, errors: Mapping[str, Array], i: int, horizon: float | str, shade: float) -> Panel:
    lines = [
        Line(rows, errors["mean"][i], "running mean", "baseline", dash="dot", width=1.2),
        Line(rows, errors["persistence"][i], "persistence", "baseline", dash="dash"),
        Line(rows, errors["ours"][i], "online", "hue", shade, width=2.4),
    ]
    return Panel(_horizon_label(horizon), lines)


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
