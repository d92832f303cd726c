"""Cards of the report: each question that was asked with its answer in a sentence, its scores and its plots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emphatic.gvfs.durations import format_duration
from emphatic.nexting.answers.asked import Asked
from emphatic.nexting.answers.language import describe_answer, describe_score
from emphatic.nexting.report.page import NONE, Column, Html, Key, Plots, amount, share, table
from emphatic.nexting.report.plots import Axis, Line, Marks, Panel, Plot
from emphatic.nexting.runs.gvfs import FollowedGVFs

__all__ = ["ASKED_KEYS", "Card", "make_cards", "make_gvf_cards"]

Array = NDArray[np.float64]

#: Units of times until, the longest first.
_UNITS = ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"))
#: Where the answers are drawn; those of other kinds at the end of their windows.
_PLACES = {"at": "Forecast, at the time that it is about", "weighted": "Weighted mean, at the row that asks"}
#: What the lines of the plots mean.
ASKED_KEYS = (
    Key("hue", "answer, with its interval"),
    Key("truth", "what came, or when the condition held"),
    Key("baseline", "usual at this time"),
)


class Card(NamedTuple):
    """What the report shows of a question."""

    text: str
    answer: str
    score: str
    table: Html
    plot: Html
    reliability: Html | None


def make_cards(asked: Asked, plots: Plots) -> list[Card]:
    """A card for each question that was asked, in their order; what is asked by default has its own place.

    Args:
        asked: The questions after the last row.
        plots: The plots of the page.
    """
    cards = []
    questions = asked.questions
    scores = asked.summary([question.text for question in questions])
    for q, (question, score) in enumerate(zip(questions, scores, strict=True)):
        rows = asked.recent(question.text)
        dated = asked.timing.dated
        last = float(rows["time"][-1]) if dated and len(rows["time"]) else None
        span = question.span(asked.timing.step)
        panel = _event_panel(rows, dated) if question.is_event else _number_panel(question.kind, rows, span, dated)
        shown = "probability and events" if question.is_event else "forecasts with intervals, and actual values"
        plot = plots(Plot({"": [panel]}, f"asked {q}"), f"{question.text}: {shown}")
        reliability = _reliability(score, plots) if question.is_event and score["scored"] else None
        cards.append(
            Card(question.text, describe_answer(score, last), describe_score(score), _scores(score), plot, reliability)
        )
    return cards


def make_gvf_cards(returns: FollowedGVFs, plots: Plots, dated: bool) -> list[Card]:
    """A card for each question of the user's own, in their order.

    Args:
        returns: The questions and their returns after the last row.
        plots: The plots of the page.
        dated: Whether times are seconds since 1970.
    """
    cards = []
    for q, score in enumerate(returns.scores()):
        rows = returns.recent(q)
        has_time = bool(len(rows["time"])) and bool(np.isfinite(rows["time"]).all())
        x = _x(rows, dated) if has_time else rows["row"]
        lines = [
            Line(x, rows["usual"], "usual", "baseline", dash="dash"),
            Line(x, rows["label"], "actual return", "truth"),
            Line(x, rows["answer"], "prediction", "hue", low=rows["low"], high=rows["high"]),
        ]
        low, high = returns.possible[:, q]
        outside = ((rows["answer"] < low) | (rows["answer"] > high)).any()
        marked = f"; values below {low:.4g} or above {high:.4g} are impossible" if outside else ""
        panel = Panel(f"Prediction and actual return, at the row that predicts{marked}", lines)
        plot = plots(Plot({"": [panel]}, f"own {q}"), f"{score['text']}: predictions and actual returns")
        table_of = _scores(score)
        definition = ", ".join(f"{key} = {value}" for key, value in score["definition"].items())
        answer = f"{describe_answer(score)} ({definition})"
        cards.append(Card(score["text"], answer, describe_score(score), table_of, plot, None))
    return cards


def _scores(score: Mapping[str, Any]) -> Html:
    """The score of the answers, and those of the baselines."""
    event = "brier" in score
    measures = ("brier",) if event else ("rmse", "mae", "variance_explained")
    names = {"brier": "Brier score", "mae": "MAE", "rmse": "RMSE"}
    names["variance_explained"] = "variance explained"
    rows: list[dict[str, Any]] = [{"name": "answer", **{name: score[name] for name in measures}}]
    for name, values in score["baselines"].items():
        rows.append({"name": name.replace("_", " "), "skill": score["skill"][name]} | values)
    lasting = score["kind"] == "until" and isinstance(score["horizon"], str)
    shows = {"rmse": _lasting, "mae": _lasting} if lasting else {}
    columns = [Column("", "name"), *(Column(names[name], name, shows.get(name, amount)) for name in measures)]
    columns.append(Column("skill over it", "skill", share))
    return table(columns, rows)


def _lasting(value: float | None) -> str:
    return NONE if value is None else format_duration(value)


def _x(rows: Mapping[str, Array], dated: bool, shift: float = 0.0) -> NDArray[Any]:
    if dated:
        return ((rows["time"] + shift) * 1000.0).astype("int64").astype("datetime64[ms]")
    return rows["time"] + shift


def _event_panel(rows: Mapping[str, Array], dated: bool) -> Panel:
    x = _x(rows, dated)
    holds = rows["now"] > 0.0
    lines = [
        Line(x, rows["usual"], "usual", "baseline", dash="dash"),
        Line(x, rows["answer"], "probability", "hue", low=rows["low"], high=rows["high"]),
    ]
    marks = [Marks(x[holds], np.ones(int(holds.sum())), "the condition holds", symbol="dot", size=0.6)]
    return Panel("Probability, and rows in which the condition holds", lines, (0.0, 1.05), marks)


def _number_panel(kind: str, rows: Mapping[str, Array], span: float, dated: bool) -> Panel:
    """Each answer at the end of what it is about; a weighted mean and a time until, at the row that asks."""
    x = _x(rows, dated, 0.0 if kind in ("until", "weighted") else span)
    unit, title = 1.0, _PLACES.get(kind, "Answer, at the end of its window")
    if kind == "until":
        unit, word = next((u for u in _UNITS if dated and span >= 2 * u[0]), (1.0, "seconds" if dated else "rows"))
        title = f"Time until, in {word}, at the row that asks"
    usual, label, answer, low, high = (rows[name] / unit for name in ("usual", "label", "answer", "low", "high"))
    lines = [
        Line(x, usual, "usual", "baseline", dash="dash"),
        Line(x, label, "what came", "truth"),
        Line(x, answer, "answer", "hue", low=low, high=high),
    ]
    return Panel(title, lines)


def _reliability(score: Mapping[str, Any], plots: Plots) -> Html:
    """How often it happened where a probability was given, beside the diagonal."""
    bins = [entry for entry in score["reliability"] if entry["count"]]
    predicted = np.array([entry["predicted"] for entry in bins])
    observed = np.array([entry["observed"] for entry in bins])
    notes = [f"{entry['count']:,} windows" for entry in bins]
    ends = np.array([0.0, 1.0])
    lines = [Line(ends, ends, "perfectly calibrated", "baseline", dash="dash")]
    lines.append(Line(predicted, observed, "observed", "hue", notes=notes))
    panel = Panel("Reliability", lines, (0.0, 1.0))
    axis = Axis("predicted probability", range=(0.0, 1.0))
    plot = Plot({"": [panel]}, "reliability", x=axis, y=Axis("how often it happened"))
    return plots(plot, f"{score['text']}: how often it happened, by the predicted probability")
