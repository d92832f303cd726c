"""Questions in one line of text, such as ``P(power > 5 within 1h)``: the forms, and what is said of a mistake.

``power@1h`` asks for a weighted mean of all that follows, with an averaging horizon of 1 hour.

The expression inside a form is an ``Expression`` of signals, or a ``Condition``; a name that is not a plain word is
written in backticks. A duration is written as everywhere (90s, 2min, 1.5h, 1d), in words (2 hours), or in rows.

Answers are put in sentences: "Within the next 1 h power exceeds 5 with probability 0.31 (usually 0.12 at this hour)."
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from emphatic.common.names import suggestion
from emphatic.gvfs import durations
from emphatic.gvfs.evaluator import Condition, Expression
from emphatic.nexting.scores.verdicts import describe_baseline

__all__ = [
    "FORMS",
    "Question",
    "describe_answer",
    "describe_learning",
    "describe_score",
    "parse",
    "parse_all",
    "quoted",
]

#: The forms by kind, as messages and the docs show them.
FORMS = {
    "event": "P(COND within 1h)",
    "event_at": "P(COND at +1h)",
    "until": "time until COND up to 1d",
    "share": "share of time COND over 1d",
    "integral": "integral of EXPR over 1d in h",
    "sum": "sum of EXPR over 1d",
    "mean": "mean of EXPR over 1d",
    "max": "max of EXPR within 1h",
    "min": "min of EXPR within 1h",
    "at": "EXPR at +1h",
    "weighted": "EXPR@1h",
}
#: The kinds that ask about a condition, and those whose answer is a probability.
CONDITIONS = ("event", "event_at", "until", "share")
EVENTS = ("event", "event_at")
#: The kinds that ask about a value where ``share`` asks about a condition.
_OVER = ("mean", "sum", "weighted")
#: The horizon of ``time until COND`` without ``up to``, in rows.
CAP = 256

_DURATION = r"(?P<duration>[0-9][^()]*?)"
_PATTERNS = {
    "event": rf"P\s*\((?P<body>.+) within {_DURATION}\s*\)",
    "event_at": rf"P\s*\((?P<body>.+) at \+\s*{_DURATION}\s*\)",
    "until": rf"time until (?P<body>.+?)(?: up to {_DURATION})?",
    "share": rf"share of time (?P<body>.+) over {_DURATION}",
    "integral": rf"integral of (?P<body>.+) over {_DURATION} in (?P<unit>[a-z]+)",
    "sum": rf"sum of (?P<body>.+) over {_DURATION}",
    "mean": rf"mean of (?P<body>.+) over {_DURATION}",
    "max": rf"max of (?P<body>.+) within {_DURATION}",
    "min": rf"min of (?P<body>.+) within {_DURATION}",
    "at": rf"(?P<body>.+) at \+\s*{_DURATION}",
    "weighted": rf"(?P<body>.+)@\s*{_DURATION}",
}
#: (between two words may be more than one space)
_COMPILED = {kind: re.compile(pattern.replace(" ", " +"), re.IGNORECASE) for kind, pattern in _PATTERNS.items()}

#: Words for units besides those of ``durations``.
_WORDS = {"ms": "ms", "millisecond": "ms", "second": "s", "sec": "s", "minute": "min", "hour": "h", "hr": "h"}
_WORDS |= {"min": "min", "day": "d", "week": "w"}
_ROWS = re.compile(r"([0-9]+(?:\.0*)?)\s*(?:rows?|steps?|readings?)?")
#: The longest text allowed.
_LONGEST = 1000
#: A time until something is at its cap from this share of the cap on.
_AT_THE_CAP = 0.95
#: What people write instead, and what they mean: tried one after another and together to find the nearest right form.
_REPAIRS: tuple[tuple[str, str], ...] = (
    (r"^(?:probability|prob|chance)\s*(?:of|that)?\s*\(?\s*(.+?)\)?$", r"P(\1)"),
    (r"^(?:average|avg|expected)\s+(?:of\s+)?", "mean of "),
    (r"^(?:maximum|highest|peak)\s+(?:of\s+)?", "max of "),
    (r"^(?:minimum|lowest)\s+(?:of\s+)?", "min of "),
    (r"^(?:total)\s+(?:of\s+)?", "sum of "),
    (r"^(?:until|when|time to|time till|how long until)\s+", "time until "),
    (r"^(P\([^()]*)$", r"\1)"),
    (r"^(sum|mean|max|min|integral)\s+(?!of\b)", r"\1 of "),
    (r"^(?:share|fraction)\s+(?:of\s+)?(?:time\s+)?", "share of time "),
    (r" at (?=[0-9])", " at +"),
    (r" (?:in|over|for|during|inside|at \+|at|next|the next|within the next) (?=[0-9][^ ]*\)?$)", " within "),
    (r" (?:in|within|for|during|of the next|next|over the next) (?=[0-9])", " over "),
    (r" (?:in|after|within|over) (?=[0-9])", " at +"),
    (r" (?:within|over|in|at most|max|cap) (?=[0-9])", " up to "),
    (r"^(.+ (?:within|at) .+)$", r"P(\1)"),
    (r"^P ?([^(].*)$", r"P(\1)"),
    (r"^P\((.+)\) (within .+|at .+)$", r"P(\1 \2)"),
    (r" in$", " in h"),
    (r"^(integral of .+ over [^ ]+)$", r"\1 in h"),
    (r"^([^ ()]+) over (?=[0-9])", r"sum of \1 over "),
    (r"^([^()]*[<>=][^()]*)$", r"P(\1 within 1h)"),
)
_UNITS = r"(?:ms|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|weeks?|rows?)"
_NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_FUNCTIONS = r"(mean|average|avg|sum|total|max|maximum|min|minimum|integral)"
#: Everyday English in terms of the language: applied in this order, all of them, before the repairs above are tried.
_REWORDINGS: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"\s+", " "),
    (r"[ ?!.]+$", ""),
    (r"^(?:please )?(?:what(?:'s| is| are)?|give me|tell me|show(?: me)?|predict|forecast|estimate) ", ""),
    (r"^(?:the |value of |future |expected value of )+", ""),
    (r"^will (.+?) be (?=(?:in|at|after|on)\b)", r"\1 "),
    (
        r"^(?:when (?:will|is|does)|(?:how (?:long|many \w+)|seconds|minutes|hours|days|weeks) (?:until|till|before)) ",
        "time until ",
    ),
    (r"^P ?[\[{](.+)[\]}]$", r"P(\1)"),
    (r"^(?:probability|prob|pr|chances?|likelihood|odds|risk)\b ?(?:of|that)? ?\((.+)\)$", r"P(\1)"),
    (r"^(?:probability|prob|pr|chances?|likelihood|odds|risk)\b ?(?:of|that)? ?", "P "),
    (r"^(?:will|does|is|can) (?:the )?(.+)$", r"P(\1)"),
    (
        r"^(?:share|fraction|percentage|percent|proportion|part) of (?:the )?time (?:with |that |when |in which )?",
        "share of time ",
    ),
    (
        r"^(?:percentage|percent|proportion|how often|how much of the time|count|number of times|how many times)"
        r"(?: of)? ",
        "share of time ",
    ),
    (rf"^{_FUNCTIONS} ?\(([^(),]+), ?([0-9][^)]*)\)$", r"\1 of \2 in \3"),
    (rf"^{_FUNCTIONS} ?\(([^(),]+)\) ", r"\1 of \2 "),
    (r" ?\( ?t ?\+ ?([0-9][^)]*)\)$", r" at +\1"),
    (r" ?@ ?\+?(?=[0-9])", " at +"),
    (r"=>", ">="),
    (r"=<", "<="),
    (r" ?≥ ?", " >= "),
    (r" ?≤ ?", " <= "),
    (r"[−–]", "-"),
    (r"[×·]", "*"),
    (r"÷", "/"),
    (r" ?&&? ?", " and "),
    (r" ?\|\| ?", " or "),
    (r"\b(and|or|not)\b", lambda match: match[0].lower()),
    (r"(?<![<>=!])=(?!=)", "=="),
    (r"(?<=[0-9]),(?=[0-9])", "."),
    (r" ?(?:,|\|) ?(?:h ?= ?)?\+?(?=[0-9])", " within "),
    (r" ?, ?(?=(?:the )?next )", " "),
    (r"(?<=[0-9]) ?h(?:ours?)?(?: and)? ?([0-9]{1,2}) ?m(?:in(?:ute)?s?)?\b", r"h\1min"),
    *((rf"\b{word}(?= {_UNITS}\b)", str(number)) for number, word in enumerate(_NUMBERS, 1)),
    (r"\bhalf an? hour\b", "30min"),
    (rf"\b(?:(?:within|over|in|for|during|of) )?(?:the )?(?:next|coming|following) (?={_UNITS}\b)", "within 1"),
    (rf"\b(?:(?:within|over|in|for|during|of) )?(?:the )?(?:next|coming|following) (?=[0-9]+ ?{_UNITS}\b)", "within "),
    (rf"\ban? (?={_UNITS}\b)", "1"),
    (r"^(P\b.*?) (?:by |before |until )?tomorrow\b", r"\1 within 1d"),
    (r" (?:by |before |until )?tomorrow\b", " in 1d"),
    (rf"(?<=[0-9]) (?={_UNITS}\b)", ""),
    *(
        (rf"(?<=[0-9]){words}\b", unit)
        for words, unit in (
            ("(?:secs?|seconds?)", "s"),
            ("(?:mins?|minutes?)", "min"),
            ("(?:hrs?|hours?)", "h"),
            ("days?", "d"),
            ("weeks?", "w"),
        )
    ),
    (rf"\b(within|over|in|up to)(?=[0-9]+{_UNITS}\b)", r"\1 "),
    (rf" (?:at |in )?\+?([0-9.]+{_UNITS}) (?:from now|ahead|later|hence)(?=\)?$)", r" at +\1"),
    (rf"(?<! at)(?<! at ) ?\+ ?([0-9.]+{_UNITS})(?=\)?$)", r" at +\1"),
    (rf"(?<! in) in at \+(?=[0-9.]+{_UNITS}\b)", " at +"),
    (rf"^([^ ]+) ([0-9.]+{_UNITS})$", r"\1 at +\2"),
    (rf" ([0-9.]+{_UNITS})\)$", r" within \1)"),
    (r"\bwithin within\b", "within"),
    (r"\b(in|over|up to|at most|within|after) within ", r"\1 "),
    (r"(-?[0-9.]+) ?(<=?) ?([^<>=()]+?) ?(<=?) ?(-?[0-9.]+)", r"\1 \2 \3 and \3 \4 \5"),
    (r"([^ (]+) (?:is |lies |stays )?between (-?[0-9.]+) and (-?[0-9.]+)", r"\1 > \2 and \1 < \3"),
    (r"\b(?:is|are|be|goes|gets|rises|stays|becomes|comes|climbs|grows) over (?=-?[0-9])", "> "),
    (
        r" (?:is |are |be |goes |gets? |rises |stays |becomes |comes |climbs |grows )?"
        r"(?:above|exceeds?|exceeding|more than|greater than|higher than|larger than|bigger than) ",
        " > ",
    ),
    (
        r" (?:is |are |be |goes |gets? |falls |drops |sinks |stays |becomes |comes )?"
        r"(?:below|under|less than|lower than|smaller than) ",
        " < ",
    ),
    (r" (?:is |be )?(?:at least|reach(?:es)?) ", " >= "),
    (r" (?:is|be) at most ", " <= "),
    (r" (?:is |be )?(?:equals?|equal to)(?: to)? ", " == "),
    (
        r"((?:[<>]=?|==) ?-?[0-9.]+) ?(?!and\b|or\b|within\b|at\b|over\b|up\b|in\b|for\b|after\b|during\b)"
        r"[%°A-Za-zµ][^ ()]*",
        r"\1",
    ),
    (r" in (?:[kMG]?[WVA]?h|[kMG]?VAh)$", " in h"),
)
#: Words of the forms and of expressions: others that follow one another are a name that backticks are missing from.
_KEYWORDS = "P|p|within|at|over|up|to|in|of|time|until|share|sum|mean|integral|max|min|and|or|not|is|be|will"


@dataclass(frozen=True)
class Question:
    """A question as it was put.

    Args:
        text: The question itself; the name of its column.
        kind: A key of ``FORMS``.
        body: The expression or condition in it.
        horizon: How far it looks ahead: a duration as text, or a number of rows.
        unit: The seconds of the unit of an integral.
    """

    text: str
    kind: str
    body: str
    horizon: str | float
    unit: float = 1.0

    @property
    def is_event(self) -> bool:
        """Whether the answer is a probability."""
        return self.kind in EVENTS

    @cached_property
    def expression(self) -> Expression:
        """The expression in it; a ``Condition`` where it asks about one."""
        return Condition(self.body) if self.kind in CONDITIONS else Expression(self.body)

    @property
    def value_of(self) -> str | None:
        """The signal whose value at +h it asks for; None if it asks for something else.

        >>> [parse(text).value_of for text in ("`side 1` at +3", "x * 2 at +3", "mean of x over 3")]
        ['side 1', None, None]
        """
        return self.signal if self.kind == "at" else None

    @property
    def signal(self) -> str | None:
        """The signal, where the question is about one by itself; None if it is about an expression or a condition.

        >>> parse("mean of `side 1` over 3").signal, parse("P(x > 1 within 3)").signal
        ('side 1', None)
        """
        names = self.expression.names
        name = self.body.strip().removeprefix("`").removesuffix("`")
        return name if names == {name} and self.kind not in CONDITIONS else None

    @property
    def length(self) -> str | int:
        """The horizon: a duration as text, or a whole number of rows."""
        return self.horizon if isinstance(self.horizon, str) else int(self.horizon)

    def span(self, step: float | None) -> float:
        """The horizon in the unit of time; in rows without a ``step``. ValueError if the log has no such horizon."""
        if isinstance(self.horizon, str):
            if step is None:
                raise ValueError(
                    f"{self.text!r}: {self.horizon!r} is a duration, and the log has no time. Give it in rows: "
                    f"{self.text.replace(self.horizon, '10 rows')!r}."
                )
            length = durations.seconds(self.horizon)
            if length < 0.99 * step:
                usual = durations.format_duration(step).replace(" ", "")
                raise ValueError(
                    f"{self.text!r}: {self.horizon!r} is shorter than a typical step of the log, {usual}. Use {usual} "
                    "or more, or a number of rows."
                )
            return length
        return self.horizon * (1.0 if step is None else step)

    def check(self, signals: Sequence[str]) -> None:
        """ValueError if it names a signal that there is not."""
        for name in sorted(self.expression.names - set(signals)):
            known = ", ".join(signals[:12]) + (", …" if len(signals) > 12 else "")
            raise ValueError(
                f"{self.text!r}: there is no signal {name!r}.{suggestion(name, signals)} Signals: {known}."
            )


def parse(text: str) -> Question:
    """The question that a line of text puts; ValueError with the nearest right form if it puts none.

    Args:
        text: The line of text.

    >>> parse("P(power > 5 within 1h)")
    Question(text='P(power > 5 within 1h)', kind='event', body='power > 5', horizon='1h', unit=1.0)
    >>> parse("mean of `side 1` over 24 rows").horizon
    24.0
    >>> parse("x@24")
    Question(text='x@24', kind='weighted', body='x', horizon=24.0, unit=1.0)
    >>> parse("P(power > 5 in 1h)")
    Traceback (most recent call last):
    ValueError: 'P(power > 5 in 1h)' is not a question. Did you mean 'P(power > 5 within 1h)'?
    """
    if not isinstance(text, str) or not text.strip() or len(text) > _LONGEST:
        raise ValueError(f"a question must be text of 1 to {_LONGEST} characters. Got {str(text)[:60]!r} instead.")
    text = text.strip()
    error = ""
    try:
        question = _parse(text)
        if question is not None:
            return question
    except _Remedied as reason:
        raise ValueError(f"{text!r} is not a question: {reason}") from None
    except ValueError as reason:
        error = str(reason)
    repaired = _repair(text)
    if re.search(r"\b[0-9]{1,2}:[0-9]{2}\b", text):
        form = _nearest_form(text)
        hint = (
            f"Write how far ahead it is instead of the time of day, such as 90min or 6h. The nearest form is {form!r}."
        )
    elif repaired is not None:
        hint = f"Did you mean {repaired!r}?"
    else:
        hint = f"The nearest form is {_nearest_form(text)!r}. Forms: {'; '.join(FORMS.values())}."
    raise ValueError(f"{text!r} is not a question{f': {error}' if error else ''}. {hint}")


def parse_all(texts: Sequence[str]) -> list[Question]:
    """Questions, each asked once; ValueError for the first mistake.

    Args:
        texts: The lines of text.
    """
    questions = [parse(text) for text in texts]
    names = [question.text for question in questions]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name!r} is asked twice. Ask it once.")
    return questions


def quoted(name: str) -> str:
    """The name of a signal as an expression has it: in backticks where it is not a plain word.

    >>> quoted("S1"), quoted("side 1")
    ('S1', '`side 1`')
    """
    return name if name.isidentifier() and name not in ("and", "or", "not") else f"`{name}`"


def _parse(text: str) -> Question | None:
    """The question, None if it has none of the forms; ValueError if what is inside the form is wrong."""
    # Words inside backticks are no part of a form. What masks them has the same length, so that places stay the same.
    masked = re.sub(r"`[^`]*`", lambda match: "\ue000" * len(match[0]), text)
    masked = re.sub(r"\s", " ", masked)
    for kind, pattern in _COMPILED.items():
        match = pattern.fullmatch(masked)
        if match is None:
            continue
        body = text[slice(*match.span("body"))].strip()
        written = match["duration"]
        horizon: str | float = float(CAP) if written is None else _horizon(written)
        unit = 1.0
        if kind == "integral":
            unit = durations.seconds(f"1{_unit_word(match['unit'])}")
        question = Question(text, kind, body, horizon, unit)
        if kind not in CONDITIONS and question.expression.is_condition:
            form = f"share of time {body} over {written}" if kind in _OVER else f"P({body} within {written})"
            form = f"P({body} at +{written})" if kind == "at" else form
            raise _Remedied(f"{body!r} is a condition, not a value. Did you mean {form!r}?")
        if not question.expression.names:
            raise ValueError(f"{body!r} names no signal")
        return question
    return None


class _Remedied(ValueError):
    """A mistake whose message names the right form."""


def _unit_word(word: str) -> str:
    word = word.lower()
    return _WORDS.get(word.removesuffix("s") if len(word) > 2 else word, word)


def _horizon(written: str) -> str | float:
    """A duration as ``durations`` writes it, or a number of rows."""
    written = written.strip()
    if rows := _ROWS.fullmatch(written):
        count = float(rows[1])
        if not 1.0 <= count < 1e9:
            raise ValueError(f"{written!r} is not a number of rows from 1 on")
        return count
    if words := re.fullmatch(r"([0-9.]+)\s*([A-Za-z]+)", written):
        written = f"{words[1]}{_unit_word(words[2])}"
    seconds = durations.seconds(written)
    if not math.isfinite(seconds):
        raise ValueError(f"{written!r} is not a duration")
    return written


def _repair(text: str) -> str | None:
    """The text with one or two usual slips repaired, if it then is a question; or its wording, and then these."""
    worded = text
    for pattern, repair in _REWORDINGS:
        worded = re.sub(pattern, repair, worded, flags=re.IGNORECASE)
    worded = _minutes(worded).strip()

    def is_question(candidate: str) -> bool:
        try:
            return candidate != text and len(candidate) <= _LONGEST and _parse(candidate) is not None
        except ValueError:
            return False

    def distance(candidate: str) -> tuple[float, str]:
        return -difflib.SequenceMatcher(None, text, candidate).ratio(), candidate

    for begin in dict.fromkeys((text, worded, _quote_words(worded))):
        tried = [begin]
        for _ in range(3):
            if fitting := sorted(filter(is_question, tried), key=distance):
                return fitting[0]
            tried = list(
                dict.fromkeys(
                    re.sub(pattern, repair, candidate, count=1, flags=re.IGNORECASE)
                    for candidate in tried
                    for pattern, repair in _REPAIRS
                )
            )
    return None


def _minutes(text: str) -> str:
    """Durations of hours and minutes, such as 1h30min, in minutes."""
    return re.sub(r"\b([0-9]+)h([0-9]{1,2})min\b", lambda match: f"{60 * int(match[1]) + int(match[2])}min", text)


def _quote_words(text: str) -> str:
    """The text with backticks around what may be the name of a signal and is no plain word: living room, pm2.5, S-1."""
    word = rf"(?!(?:{_KEYWORDS})\b)"
    name = rf"(?<![\w.]){word}[^\W0-9][\w.%°#:-]*(?: {word}[\w.%°#:-]+)*"
    after = r"(?= ?(?:[<>=+*/)]|(?:at|within|over|in|for|during)\b))"
    if "`" in text:
        return text
    return re.sub(name + after, lambda match: match[0] if match[0].isidentifier() else f"`{match[0]}`", text)


def _nearest_form(text: str) -> str:
    """The form whose words are most like those of a text."""
    words = set(re.findall(r"[a-z]+|[(+]", text.lower()))
    if re.fullmatch(r"`[^`]+`|\w+", text):
        return FORMS["at"]

    def likeness(form: str) -> tuple[int, float]:
        shared = len(words & set(re.findall(r"[a-z]+|[(+]", form.lower())))
        return shared, difflib.SequenceMatcher(None, text.lower(), form.lower()).ratio()

    probabilities = [FORMS[kind] for kind in EVENTS]
    return max(probabilities if re.match(r"p\s*\(", text, re.IGNORECASE) else FORMS.values(), key=likeness)


# ---------------------------------------------------------------------- answers in sentences


#: Windows that must be known before an answer is more than a first guess.
ENOUGH = 100


def describe_answer(score: Mapping[str, Any], last: float | None = None) -> str:
    """The answer from the last row.

    Args:
        score: The object of a question in ``summary.json``.
        last: The time of the last row, in seconds since 1970: times until are then shown as clock times too.

    >>> describe_answer({"text": "P(power > 5 within 1h)", "kind": "event", "answer": 0.31, "usual": 0.12, "now": 0.0})
    'Within the next 1 h power exceeds 5 with probability 0.31 (usually 0.12; not so now).'
    >>> late = {"answer": 172_000.0, "low": 1.7e5, "high": 172_800.0}
    >>> describe_answer({"text": "time until level < 1 up to 2d", "kind": "until"} | late)
    'level falls below 1 in 2 d or later, if at all.'
    """
    answer, usual = score.get("answer"), score.get("usual")
    if answer is None:
        return f"{score['text']}: no answer yet."
    if score["kind"] == "gvf":
        mark = f" ({score['mark']})" if "mark" in score else ""
        return f"{score['text']}: {_format_number(answer)}{mark}{_between(score)}{_usually(score)}."
    question = parse(score["text"])
    body, span = question.body, describe_span(question)
    if question.is_event:
        now = "" if score.get("now") is None else "; so now" if score["now"] else "; not so now"
        when = f"Within the next {span}" if question.kind == "event" else f"In {span}"
        usually = f"usually {_probability(score['usual'])}{_at(score)}{now}"
        return f"{when} {_clause(body)} with probability {_probability(answer)} ({usually})."
    show: Callable[[float], str] = _format_number
    show_usual = show
    if question.kind == "until":
        show = _duration(question, [score[end] for end in ("answer", "low", "high") if score.get(end) is not None])
        show_usual = show if usual is None else _duration(question, [usual])
    between, usually = _between(score, show), _usually(score, show_usual)
    subject = {
        "at": f"In {span} {body} is",
        "until": f"{_clause(body)} in",
        "sum": f"Over the next {span} the sum of {body} is",
        "integral": f"Over the next {span} the integral of {body} is",
        "mean": f"Over the next {span} the mean of {body} is",
        "weighted": f"The weighted mean of {body}, with a horizon of {span}, is",
        "share": f"Over the next {span} the share of time with {body} is",
        "max": f"Within {span} the highest {body} is",
        "min": f"Within {span} the lowest {body} is",
    }[question.kind]
    clock = ""
    if question.kind == "until":
        cap = durations.seconds(question.horizon) if isinstance(question.horizon, str) else float(question.horizon)
        if answer >= _AT_THE_CAP * cap:
            return f"{subject} {span} or later, if at all{usually}."
    if question.kind == "until" and last is not None and isinstance(question.horizon, str):
        times = [last + score[end] for end in ("answer", "low", "high") if score.get(end) is not None]
        clock = f", at about {_clock(times[0])}" + (f" ({_clock(times[1])} to {_clock(times[2])})" if times[2:] else "")
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
    if abs(skill) < 0.005:
        difference = f"the same {measure}"
    if verdict == "too short":
        return f"The log is too short to tell whether this is better than {name} ({difference})."
    return f"No better than {name}: {difference}."


def describe_learning(score: Mapping[str, Any]) -> str:
    """ "learning: 37 of 100 windows known", and nothing once there are enough."""
    count, what = score.get("known", ENOUGH), "returns" if score.get("kind") == "gvf" else "windows"
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


def _format_number(value: float) -> str:
    return f"{value:.4g}" if abs(value) < 1e4 or not math.isfinite(value) else f"{value:,.0f}"


def _between(score: Mapping[str, Any], show: Callable[[float], str] = _format_number) -> str:
    """The interval in words."""
    low, high = score.get("low"), score.get("high")
    return "" if low is None or high is None else f", between {show(low)} and {show(high)}"


def _usually(score: Mapping[str, Any], show: Callable[[float], str] = _format_number) -> str:
    """The usual answer in words."""
    return "" if score.get("usual") is None else f" (usually {show(score['usual'])}{_at(score)})"


def _at(score: Mapping[str, Any]) -> str:
    return f" at this {score['usual_by']}" if score.get("usual_by") else ""


def _probability(value: float) -> str:
    """A probability to two decimals; one that rounds to 0 or 1 is neither.

    >>> [_probability(value) for value in (0.001, 0.3, 0.9999)]
    ['below 0.01', '0.30', 'above 0.99']
    """
    text = f"{value:.2f}"
    return {"0.00": "below 0.01", "1.00": "above 0.99"}.get(text, text)


def _duration(question: Question, shown: Sequence[float]) -> Callable[[float], str]:
    """How the times until something are written: as durations in the unit of the first, or in rows.

    >>> show = _duration(parse("time until x > 5 up to 2d"), [135_648.0, 69_840.0, 172_800.0])
    >>> show(135_648.0), show(69_840.0)
    ('1.57 d', '0.808 d')
    """
    if not isinstance(question.horizon, str):
        return _format_number
    largest = max(shown)
    units = (durations.format_duration(max(seconds, 0.0)).rpartition(" ")[2] for seconds in (shown[0], largest))
    unit = next((unit for unit in units if largest < 100.0 * durations.seconds(f"1{unit}")), "d")
    size = durations.seconds(f"1{unit}")
    return lambda seconds: f"{max(seconds, 0.0) / size:.3g} {unit}"


def _clock(seconds: float) -> str:
    return str(np.datetime64(int(seconds), "s")).replace("T", " ")[:16]
