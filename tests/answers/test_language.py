"""The forms of questions, and what is said of mistakes."""

from __future__ import annotations

from typing import Any

import pytest

from emphatic.nexting.answers.language import FORMS, describe_answer, parse, parse_all, quoted


@pytest.mark.parametrize(
    ("text", "kind", "body", "horizon"),
    [
        ("P(power > 5 within 1h)", "event", "power > 5", "1h"),
        ("P(a > 1 and not b < 2 at +2 hours)", "event_at", "a > 1 and not b < 2", "2h"),
        ("max(a, b) at +10 rows", "at", "max(a, b)", 10.0),
        ("`x at +1h` at +6h", "at", "`x at +1h`", "6h"),
        ("time until x < 2", "until", "x < 2", 256.0),
        ("time until x < 2 up to 1d", "until", "x < 2", "1d"),
        ("sum of x - y over 90s", "sum", "x - y", "90s"),
        ("mean of `a over 3h` over 3h", "mean", "`a over 3h`", "3h"),
        ("integral of p over 1d in h", "integral", "p", "1d"),
        ("share of time x == 1 over 1 week", "share", "x == 1", "1w"),
        ("max of x within 30 minutes", "max", "x", "30min"),
        ("  min of x within 5  ", "min", "x", 5.0),
        ("P( x  > 5  within  60 mins )", "event", "x  > 5", "60min"),
        ("x@24", "weighted", "x", 24.0),
        (" x @ 1 hour ", "weighted", "x", "1h"),
        ("`a@1 b`@1h", "weighted", "`a@1 b`", "1h"),
        ("max(a, b)@90s", "weighted", "max(a, b)", "90s"),
        ("`x@1h` at +6h", "at", "`x@1h`", "6h"),
    ],
)
def test_each_form_is_read(text: str, kind: str, body: str, horizon: object) -> None:
    question = parse(text)
    assert (question.kind, question.body, question.horizon) == (kind, body, horizon)
    assert question.text == text.strip()


@pytest.mark.parametrize(
    ("mistake", "meant"),
    [
        ("P(x > 5 in 1h)", "P(x > 5 within 1h)"),
        ("P(x > 5) within 1h", "P(x > 5 within 1h)"),
        ("x > 5 within 1h", "P(x > 5 within 1h)"),
        ("probability of x > 5 within 1h", "P(x > 5 within 1h)"),
        ("x at 6h", "x at +6h"),
        ("x in 6h", "x at +6h"),
        ("average of x over 1d", "mean of x over 1d"),
        ("sum x over 1d", "sum of x over 1d"),
        ("sum of x within 1d", "sum of x over 1d"),
        ("max of x over 1h", "max of x within 1h"),
        ("until x > 3", "time until x > 3"),
        ("time till x > 3", "time until x > 3"),
        ("P(x > 5 within 1h", "P(x > 5 within 1h)"),
        ("time until x > 3 within 2h", "time until x > 3 up to 2h"),
        ("integral of x over 1d", "integral of x over 1d in h"),
        ("mean of x > 3 over 1d", "share of time x > 3 over 1d"),
        ("what is the probability that x > 5 within 1h", "P(x > 5 within 1h)"),
        ("will x exceed 5 in the next hour?", "P(x > 5 within 1h)"),
        ("Pr(x > 5 within 1h)", "P(x > 5 within 1h)"),
        ("P[x > 5 within 1h]", "P(x > 5 within 1h)"),
        ("P(x > 5, 1h)", "P(x > 5 within 1h)"),
        ("P(x > 5 | 1h)", "P(x > 5 within 1h)"),
        ("P(x>5 in the next two hours)", "P(x>5 within 2h)"),
        ("P(x > 5 within half an hour)", "P(x > 5 within 30min)"),
        ("P(x > 5 within 1h30m)", "P(x > 5 within 90min)"),
        ("P(x>5 within1h)", "P(x>5 within 1h)"),
        ("P(x > 5 by tomorrow)", "P(x > 5 within 1d)"),
        ("P(x is above 5 within 1h)", "P(x > 5 within 1h)"),
        ("P(x drops below 5 within 1h)", "P(x < 5 within 1h)"),
        ("P(x is between 5 and 8 within 1h)", "P(x > 5 and x < 8 within 1h)"),
        ("P(5 < x <= 8 within 1h)", "P(5 < x and x <= 8 within 1h)"),
        ("P(x => 5 AND y = 3 within 1h)", "P(x >= 5 and y == 3 within 1h)"),
        ("P(x > 5 && y < 3 within 1h)", "P(x > 5 and y < 3 within 1h)"),
        ("P(x > 5 kW within 1h)", "P(x > 5 within 1h)"),
        ("P(x > 5,5 within 1h)", "P(x > 5.5 within 1h)"),
        ("P(living room > 5 within 1h)", "P(`living room` > 5 within 1h)"),
        ("P(side 1 > 5 and pm2.5 < 3 within 1h)", "P(`side 1` > 5 and `pm2.5` < 3 within 1h)"),
        ("mean of pm2.5 over the next 6 hours", "mean of `pm2.5` over 6h"),
        ("x > 5 at +1h", "P(x > 5 at +1h)"),
        ("x > 5", "P(x > 5 within 1h)"),
        ("what will x be in 6 hours?", "x at +6h"),
        ("value of x at +6h", "x at +6h"),
        ("predict x 1d ahead", "x at +1d"),
        ("x(t+1h)", "x at +1h"),
        ("x > 3 @ 1d", "share of time x > 3 over 1d"),
        ("x +1h", "x at +1h"),
        ("x tomorrow", "x at +1d"),
        ("living room at +1h", "`living room` at +1h"),
        ("when will x < 0.1", "time until x < 0.1"),
        ("days until x falls below 0.1", "time until x < 0.1"),
        ("time until x = 0", "time until x == 0"),
        ("integral of x over 1d in kWh", "integral of x over 1d in h"),
        ("average x over the next day", "mean of x over 1d"),
        ("mean(x) over 1d", "mean of x over 1d"),
        ("max(x, 1h)", "max of x within 1h"),
        ("maximum x over the next 24 hours", "max of x within 24h"),
        ("min of x over 1 d", "min of x within 1d"),
        ("percentage of time x > 5 over 1d", "share of time x > 5 over 1d"),
        ("how often x > 5 over 1d", "share of time x > 5 over 1d"),
        ("P(x × 2 > y − 1 within 1h)", "P(x * 2 > y - 1 within 1h)"),
    ],
)
def test_a_mistake_names_the_nearest_right_form(mistake: str, meant: str) -> None:
    with pytest.raises(ValueError, match="is not a question") as caught:
        parse(mistake)
    assert repr(meant) in str(caught.value)
    parse(meant)


@pytest.mark.parametrize(
    "mistake", ["hello", "P(x within)", "x at +0h", "P(x > 5 within 1 fortnight)", "P(5 > 3 within 1h)"]
)
def test_a_mistake_without_a_repair_lists_the_forms(mistake: str) -> None:
    with pytest.raises(ValueError, match="The nearest form is") as caught:
        parse(mistake)
    assert all(form in str(caught.value) for form in FORMS.values())


def test_a_time_of_day_is_answered_with_how_far_ahead_it_is() -> None:
    with pytest.raises(ValueError, match=r"Write how far ahead it is instead of the time of day"):
        parse("P(x > 5 before 18:00)")


@pytest.mark.parametrize("text", ["", " ", "x" * 2000, "P(" * 300 + "x" + ")" * 300, None])
def test_whatever_is_not_text_of_a_question_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"question"):
        parse(text)


def test_questions_are_asked_once_about_signals_that_there_are() -> None:
    with pytest.raises(ValueError, match="asked twice"):
        parse_all(["x at +1", "x at +1"])
    with pytest.raises(ValueError, match="Did you mean 'power'"):
        parse("powr at +1").check(["power", "x"])
    with pytest.raises(ValueError, match="has no time"):
        parse("x at +1h").span(None)
    with pytest.raises(ValueError, match="shorter than a typical step"):
        parse("x at +1min").span(3600.0)
    assert parse(f"{quoted('pm2.5')} at +3").span(3600.0) == 3 * 3600.0


def test_answers_read_as_sentences() -> None:
    score: dict[str, Any] = {"text": "P(power > 5 within 1h)", "kind": "event"}
    score |= {"answer": 0.31, "usual": 0.12, "usual_by": "hour", "now": 1.0}
    assert describe_answer(score) == (
        "Within the next 1 h power exceeds 5 with probability 0.31 (usually 0.12 at this hour; so now)."
    )
    until: dict[str, Any] = {"text": "time until x < 2 up to 1d", "kind": "until"}
    until |= {"answer": 7200.0, "low": 3600.0, "high": 10800.0, "usual": 60.0}
    assert describe_answer(until, last=0.0) == (
        "x falls below 2 in 2 h, between 1 h and 3 h, at about 1970-01-01 02:00 (1970-01-01 01:00 to 1970-01-01 03:00) "
        "(usually 1 min)."
    )


@pytest.mark.parametrize("mistake", ["P(power >", "P(sum of power over 1d in h)", "p(power is high)"])
def test_a_probability_is_told_a_form_of_probabilities(mistake: str) -> None:
    with pytest.raises(ValueError, match=r"(nearest form is|mean) 'P\("):
        parse(mistake)
