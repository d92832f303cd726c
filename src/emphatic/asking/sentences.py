"""Answers in sentences: "Within the next 1 h power exceeds 5 with probability 0.31 (usually 0.12 at this hour)."."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from emphatic.asking.language import Question, parse
from emphatic.questions import durations
from emphatic.scores.baselines import describe_baseline

__all__ = ["asked_lines", "describe_answer", "describe_learning", "describe_prediction", "describe_score"]

#: Windows that must be known before an answer is more than a first guess.
ENOUGH = 100


def asked_lines(summary: Sequence[Mapping[str, Any]]) -> list[str]:
    """Two sentences for each question of a summary: its answer from the last row, and how good its answers were."""
    asked = [score for score in summary if "text" in score and not score.get("headline")]
    lines = [f"{describe_answer(score)} {describe_score(score)}" for score in asked]
    own = [score for score in summary if "question" in score]
    return [*lines, *(f"{describe_prediction(score)} {describe_score(score)}" for score in own)]


def describe_prediction(score: Mapping[str, Any]) -> str:
    """The prediction of a question of the user's own from the last row.

    Args:
        score: The object of the question in ``summary.json``.

    >>> describe_prediction({"question": "near", "answer": 0.25, "low": 0.1, "high": 0.5, "usual": 0.3})
    'near: 0.25, between 0.1 and 0.5 (usually 0.3).'
    """
    if score.get("answer") is None:
        return f"{score['question']}: no prediction yet."
    between = usually = ""
    if score.get("low") is not None and score.get("high") is not None:
        between = f", between {_format_number(score['low'])} and {_format_number(score['high'])}"
    if score.get("usual") is not None and score.get("known", 1):
        usually = f" (usually {_format_number(score['usual'])})"
    return f"{score['question']}: {_format_number(score['answer'])}{between}{usually}."


def describe_answer(score: Mapping[str, Any], last: float | None = None) -> str:
    """The answer from the last row.

    Args:
        score: The object of a question in ``summary.json``.
        last: The time of the last row, in seconds since 1970: times until are then shown as clock times too.

    >>> describe_answer({"text": "P(power > 5 within 1h)", "answer": 0.31, "usual": 0.12, "now": 0.0})
    'Within the next 1 h power exceeds 5 with probability 0.31 (usually 0.12; not so now).'
    """
    question = parse(score["text"])
    answer, usual = score.get("answer"), score.get("usual")
    if answer is None:
        return f"{question.text}: no answer yet."
    body, span = question.body, describe_span(question)
    if question.is_event:
        now = "" if score.get("now") is None else "; so now" if score["now"] else "; not so now"
        when = f"Within the next {span}" if question.kind == "event" else f"In {span}"
        return f"{when} {_clause(body)} with probability {answer:.2f} (usually {usual:.2f}{_at(score)}{now})."
    show = _duration(question) if question.kind == "until" else _format_number
    between = ""
    if score.get("low") is not None:
        between = f", between {show(score['low'])} and {show(score['high'])}"
    usually = "" if usual is None else f" (usually {show(usual)}{_at(score)})"
    subject = {
        "at": f"In {span} {body} is",
        "until": f"{_clause(body)} in",
        "sum": f"Over the next {span} the sum of {body} is",
        "integral": f"Over the next {span} the integral of {body} is",
        "mean": f"Over the next {span} the mean of {body} is",
        "share": f"Over the next {span} the share of time with {body} is",
        "max": f"Within {span} the highest {body} is",
        "min": f"Within {span} the lowest {body} is",
    }[question.kind]
    clock = ""
    if question.kind == "until" and last is not None and isinstance(question.horizon, str):
        times = [last + score[end] for end in ("answer", "low", "high") if score.get(end) is not None]
        clock = f", at about {_clock(times[0])}" + (f" ({_clock(times[1])} to {_clock(times[2])})" if times[2:] else "")
        if answer >= 0.99 * durations.seconds(question.horizon):
            clock = ", if at all"
    return f"{subject} {show(answer)}{between}{clock}{usually}."


def describe_score(score: Mapping[str, Any]) -> str:
    """How much better the answers were than the best baseline, or that they were not: the verdict in words.

    >>> describe_score({"text": "x at +1h", "scored": 500, "skill": {"persistence": 0.25, "mean": 0.9}})
    'Better than the last value: mean squared error 25% lower.'
    """
    if reason := (score.get("reasons") or {}).get("variance_explained"):
        return f"Not scored: {reason}."
    learning = describe_learning(score)
    if learning:
        return f"{learning[0].upper()}{learning[1:]}."
    skills = {name: skill for name, skill in score.get("skill", {}).items() if skill is not None}
    if not score.get("scored") or not skills:
        return "Not scored: no window of the second half is known, or nothing happened in it."
    best = score.get("best_baseline") or min(skills, key=lambda name: skills[name])
    name, skill = describe_baseline(best), skills.get(best, 0.0)
    measure = "Brier score" if "brier" in score else "mean squared error"
    verdict = score.get("verdict") or ("better" if skill > 0.0 else "no better")
    if verdict == "better":
        return f"Better than {name}: {measure} {skill:.0%} lower."
    chance = ", which may be chance" if skill > 0.0 else ""
    difference = f"{measure} {abs(skill):.0%} {'lower' if skill > 0.0 else 'higher'}{chance}"
    if verdict == "too short":
        return f"The log is too short to tell whether this is better than {name} ({difference})."
    return f"No better than {name}: {difference}."


def describe_learning(score: Mapping[str, Any]) -> str:
    """ "learning: 37 of 100 windows known", and nothing once there are enough."""
    count, what = score.get("known", ENOUGH), "returns" if "question" in score else "windows"
    return f"learning: {count} of {ENOUGH} {what} known" if count < ENOUGH else ""


def describe_span(question: Question) -> str:
    """The horizon in words."""
    if isinstance(question.horizon, str):
        return durations.format_duration(durations.seconds(question.horizon))
    return f"{question.horizon:g} row{'' if question.horizon == 1 else 's'}"


def _clause(condition: str) -> str:
    """A condition as a clause, where it is a single comparison."""
    match = re.fullmatch(r"([^<>=!]+?)\s*(>=|<=|>|<)\s*([^<>=!]+)", condition)
    if match is None or re.search(r"\b(and|or|not)\b", condition):
        return f"it holds that {condition}"
    verb = {">": "exceeds", ">=": "reaches", "<": "falls below", "<=": "falls to"}[match[2]]
    return f"{match[1]} {verb} {match[3]}"


def _at(score: Mapping[str, Any]) -> str:
    return f" at this {score['usual_by']}" if score.get("usual_by") else ""


def _format_number(value: float) -> str:
    return f"{value:.4g}" if abs(value) < 1e4 or not math.isfinite(value) else f"{value:,.0f}"


def _duration(question: Question) -> Any:
    """How a time until something is written: as a duration, or in rows."""
    if isinstance(question.horizon, str):
        return lambda seconds: durations.format_duration(max(seconds, 0.0))
    return _format_number


def _clock(seconds: float) -> str:
    return str(np.datetime64(int(seconds), "s")).replace("T", " ")[:16]
