"""Questions: every argument, what is left out, names, files, durations; and expressions, hostile ones too."""

from __future__ import annotations

import json
import math
import tomllib
from typing import Any

import numpy as np
import pytest
import tomli_w

from emphatic import GVF, Policy, rules
from emphatic.learning.sequences import UndiscountedWarning
from emphatic.questions import durations
from emphatic.questions.answers import Asking
from emphatic.questions.expressions import Expression
from emphatic.questions.gvf import Observations


def asking(*questions: GVF, signals: tuple[str, ...] = ("x", "y"), step: float | None = None) -> Asking:
    return Asking(questions, signals, ("door",), step, rules.get("true_online_etd"))


def anything(value: Any) -> Any:
    return value


# ---------------------------------------------------------------------------------------------------- durations


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("90 sec", 90), ("2min", 120), ("1.5h", 5400), (".5d", 43200), ("1day", 86400), (" 1 w ", 604800),
     ("250ms", 0.25), ("1e3s", 1000), ("1e-1s", 0.1)],
)  # fmt: skip
def test_durations(text: str, seconds: float) -> None:
    assert durations.seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "5", "s", "-5s", "5 parsecs", "1h30", "0s", "1e999d", "nan s", "5s;", None, 5, "٣s"]
)
def test_what_is_no_duration(text: Any) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        durations.seconds(text)


# ---------------------------------------------------------------------------------------------------- GVF


def test_what_is_left_out() -> None:
    for h in (1, 2, 9, 36.5, 1000):
        question = GVF("x", horizon=h)
        made = asking(question)
        gamma = 1 - 1 / h
        assert made.gamma[0] == pytest.approx(gamma, abs=1e-15)
        assert made.lambda_[0] == pytest.approx(min(0.9, max(0.0, 1 - 4 / h)))
        rows = Observations(("x", "y"), np.ones((3, 2)), {})
        row = made(rows, rows)
        np.testing.assert_allclose(row.interest, 1 - gamma)
        np.testing.assert_array_equal(row.gamma, made.gamma[0])
        np.testing.assert_allclose(row.R, 1 - gamma)
        np.testing.assert_array_equal(row.rho, 1.0)
        assert row.there.all()
    assert GVF("x", gamma=0.5).constant_gamma(None) == 0.5
    assert GVF("x", horizon="2min").constant_gamma(30.0) == 0.75
    assert GVF("x", horizon="1s").constant_gamma(30.0) == 0.0
    varying = asking(GVF("x", gamma="y"))
    assert np.isnan(varying.gamma[0])
    assert varying.lambda_[0] == 0.9
    rows = Observations(("x", "y"), np.array([[3.0, 0.25]]), {})
    row = varying(rows, rows)
    assert (row.R[0, 0], row.gamma[0, 0], row.interest[0, 0]) == (3.0, 0.25, 1.0)
    assert asking(GVF("x", horizon=9, lambda_=0)).lambda_[0] == 0.0


def test_rules_without_emphasis_weigh_every_step_alike() -> None:
    rows = Observations(("x",), np.ones((1, 1)), {})
    for rule, interest, steady in (
        ("true_online_etd", 0.1, True), ("etd", 0.1, True), ("etd_beta", 0.1, False), ("td", 1.0, False),
        ("htd", 1.0, False),
    ):  # fmt: skip
        made = Asking([GVF("x", gamma=0.9)], ("x",), (), None, rules.get(rule))
        assert made(rows, rows).interest[0, 0] == pytest.approx(interest)
        assert made.steady[0] == steady


def test_a_duration_needs_a_stream_with_time() -> None:
    for step in (None, 0.0, math.nan):
        with pytest.raises(ValueError, match=r"'horizon'.*no time"):
            GVF("x", horizon="2min").constant_gamma(step)


def test_a_sum_without_end_is_warned_of() -> None:
    with pytest.warns(UndiscountedWarning, match="'x@1'"):
        asking(GVF("x", gamma=1))


def test_names() -> None:
    def bump(o: Any) -> float:
        return 0.0

    for question, name in (
        (GVF("x", horizon=9), "x@9"),
        (GVF("x - y", horizon="2min"), "x - y@2min"),
        (GVF("x", gamma=0.5), "x@0.5"),
        (GVF("x", gamma="y"), "x"),
        (GVF(bump, horizon=3), "bump@3"),
        (GVF("x", horizon=9, name="mine"), "mine"),
        (GVF("x", horizon=anything(np.int64(9))), "x@9"),
    ):
        assert question.name == name
    assert repr(GVF("x", horizon=9, interest=1.0, name="mine")) == "GVF('x', horizon=9, interest=1.0, name='mine')"


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("gamma", {}),
        ("gamma", {"gamma": 0.5, "horizon": 2}),
        ("cumulant", {"cumulant": None, "horizon": 2}),
        *(("cumulant", {"cumulant": c, "horizon": 2}) for c in (True, [1], math.nan, math.inf, b"x")),
        *(("gamma", {"gamma": g}) for g in (-0.1, 1.1, math.nan, True, [0.5])),
        *(("horizon", {"horizon": h}) for h in (0, 0.5, -1, math.inf, math.nan, True, "5", "0s", "soon", len)),
        *(("lambda_", {"horizon": 2, "lambda_": v}) for v in (-1, 1.01, math.nan, True)),
        ("lambda_", {"horizon": 2, "lambda_": "x"}),
        ("lambda_", {"horizon": 2, "lambda_": abs}),
        *(("interest", {"horizon": 2, "interest": i}) for i in (-1, math.nan, math.inf, True, [1.0])),
        *(("terminal", {"horizon": 2, "terminal": z}) for z in (math.nan, math.inf, False, [1.0])),
        *(("policy", {"horizon": 2, "policy": p}) for p in (5, {"a": 1.0}, "x")),
        ("name", {"horizon": 2, "name": 5}),
    ],
)
def test_what_a_question_cannot_be(name: str, given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"The '{name}' parameter of GVF must .*Got .* instead"):
        GVF(**{"cumulant": "x", **given})


@pytest.mark.parametrize(
    ("name", "given"),
    [
        *(("target", {"target": t}) for t in (None, 0.5, "a", {}, {"a": 0.5}, {"a": 0.5, "b": 0.6}, {"a": -1, "b": 2})),
        *(("target", {"target": t}) for t in ({"a": math.nan}, {"a": "1"}, {"a": True}, {1: 0.5, "1": 0.5})),
        *(("behaviour", {"behaviour": b}) for b in (None, 0, 1.5, math.nan, True, {"a": 1.1}, {"a": None}, [1])),
        ("column", {"column": 5}),
        ("action", {"target": {None: 1.0}}),
        ("action", {"target": {("a",): 1.0}}),
    ],
)
def test_what_a_policy_cannot_be(name: str, given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"The '{name}' parameter of"):
        Policy(**{"target": {"a": 1.0}, **given})


def test_an_action_has_one_name() -> None:
    assert Policy({1: 0.5, np.float64(2.0): 0.25, False: 0.25}).target == {"1": 0.5, "2": 0.25, "0": 0.25}
    assert Policy({"1": 0.5, 2.5: 0.5}).target == {"1": 0.5, "2.5": 0.5}


QUESTIONS = [
    GVF("x", horizon=9),
    GVF("x", horizon="2min", name="soon"),
    GVF("abs(`a b`) > 1", gamma="1 - y", interest="y", lambda_=0.25, terminal=2.5),
    GVF(1, gamma=anything(np.float32(0.5)), terminal="x"),
    GVF("x", horizon=2, policy=Policy({"go": 0.5, "stay": 0.5}, "move", {"go": 0.25, "stay": 0.75})),
    GVF("x", horizon=3, policy=Policy({0: 0.25, 1: 0.75}, behaviour=0.5)),
    GVF("x", horizon=4, policy=Policy({0: 1.0}, "move", "chance")),
    GVF("x", horizon=5, policy=Policy({0: 1.0}, "move")),
]


@pytest.mark.parametrize("question", QUESTIONS, ids=repr)
def test_through_a_file(question: GVF) -> None:
    table = question.config()
    assert GVF.from_config(tomllib.loads(tomli_w.dumps(table))) == question
    assert GVF.from_config(json.loads(json.dumps(table, allow_nan=False))) == question
    assert GVF.from_config(table).config() == table
    assert "lambda_" not in table


@pytest.mark.parametrize(
    "question",
    [
        GVF(len, horizon=2, name="mine"),
        GVF("x", gamma=len, name="mine"),
        GVF("x", horizon=2, interest=len, name="mine"),
        GVF("x", horizon=2, terminal=len, name="mine"),
        GVF("x", horizon=2, policy=Policy(lambda o, a: 1.0), name="mine"),
        GVF("x", horizon=2, policy=Policy({"a": 1.0}, behaviour=lambda o, a: 1.0), name="mine"),
    ],
)
def test_no_file_holds_a_function(question: GVF) -> None:
    with pytest.raises(ValueError, match="question 'mine' has a function as its"):
        question.config()


@pytest.mark.parametrize(
    ("table", "match"),
    [
        (5, "'table'"),
        ({"cumulant": "x", "horizn": 2}, "'table'.*horizon.*Got 'horizn'"),
        ({"cumulant": "x", "horizon": 2, "policy": {"columns": "a"}}, "'policy'"),
        ({"cumulant": "x", "horizon": 2, "policy": {"target": 5}}, "'target'"),
        ({"cumulant": ["x"], "horizon": 2}, "'cumulant'"),
        ({"horizon": 2}, "'cumulant'"),
    ],
)
def test_bad_tables(table: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        GVF.from_config(table)


@pytest.mark.parametrize(
    ("question", "match"),
    [
        (GVF("z", horizon=2), "'cumulant'.*x, y.*'z' in 'z@2'"),
        (GVF("x +", horizon=2), "'cumulant'.*'x \\+'"),
        (GVF("x", gamma="1 - z"), "'gamma'.*'z'"),
        (GVF("x", horizon=2, interest="open(x)"), "'interest'.*'open\\(x\\)'"),
        (GVF("x", horizon=2, terminal="door"), "'terminal'.*'door'"),
        (GVF("x", horizon=2, policy=Policy({0: 1.0}, "z")), "'policy'.*'z'"),
        (GVF("x", horizon=2, policy=Policy({0: 1.0}, "x", "door")), "'policy'.*'door'"),
    ],
)
def test_names_that_are_not_there(question: GVF, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        asking(question)


@pytest.mark.parametrize(
    ("question", "match"),
    [
        (GVF("x", gamma="y", name="q"), "'gamma'.*in every row. Got 7.0 of 'q'"),
        (GVF("x", gamma=lambda o: o["y"], name="q"), "'gamma'.*Got 7.0 of 'q'"),
        (GVF("x", gamma=lambda o: anything("y"), name="q"), "'gamma'.*'q'.*Got 'y'"),
        (GVF("x", horizon=2, interest="-y", name="q"), "'interest'.*Got -7.0 of 'q'"),
        (GVF("x", horizon=2, interest=lambda o: math.inf, name="q"), "'interest'.*Got inf of 'q'"),
        (GVF(lambda o: anything([]), horizon=2, name="q"), "'cumulant'.*'q'.*Got \\[\\]"),
        (GVF("x", horizon=2, policy=Policy(lambda o, a: 2.0, "y"), name="q"), "'policy'.*'q'.*Got 2.0"),
        (GVF("x", horizon=2, policy=Policy(lambda o, a: anything(None), "y"), name="q"), "'policy'.*'q'.*Got None"),
        (GVF("x", horizon=2, policy=Policy({7: 1.0}), name="q"), "'action'.*'q'"),
        (GVF("x", horizon=2, policy=Policy({7: 1.0}, "y", "y"), name="q"), "'mu'.*'7'.*Got 7.0"),
        (GVF("x", horizon=2, policy=Policy({7: 1.0}, "y", {"8": 1.0}), name="q"), "'mu'.*'7'.*Got 0.0"),
    ],
)
def test_what_rows_show_to_be_wrong(question: GVF, match: str) -> None:
    rows = Observations(("x", "y"), np.array([[1.0, 7.0]]), {})
    with pytest.raises(ValueError, match=match):
        asking(question)(rows, rows)


# ---------------------------------------------------------------------------------------------------- expressions

X, Y = np.array([1.0, -2.0, 0.5]), np.array([4.0, 4.0, 0.0])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("x", X), ("x - y", X - Y), ("-x + +y", -X + Y), ("2 * x ** 2 % 3", 2 * X**2 % 3), ("`odd name` / 2", Y / 2),
        ("x > 0", X > 0), ("(x > 0) + (y > 0)", (X > 0) * 1.0 + (Y > 0)), ("-(x > 0)", -1.0 * (X > 0)),
        ("(x > 0) - (y > 0)", (X > 0) * 1.0 - (Y > 0)),
        ("x >= 1 and y == 4 and x != 2", (X >= 1) & (Y == 4)), ("x < 0 or not y <= 0", (X < 0) | (Y > 0)),
        ("abs(x) + sqrt(y) + sign(x)", abs(X) + np.sqrt(Y) + np.sign(X)), ("min(x, y, 0)", np.minimum(X, 0)),
        ("max(x, 0.25, `odd name` - 3)", np.maximum(np.maximum(X, 0.25), Y - 3)),
        ("exp(x) + log(y + 1) + sin(x) * cos(x)", np.exp(X) + np.log(Y + 1) + np.sin(X) * np.cos(X)),
        ("where(x > 0, x, -y)", np.where(X > 0, X, -Y)), ("3", np.full(3, 3.0)), ("True + True", np.full(3, 2.0)),
        (" x\t+ 1 ", X + 1), ("x / y", X / np.where(Y == 0, np.nan, Y)), ("2 - 3 - 4", np.full(3, -5.0)),
    ],
)  # fmt: skip
def test_expressions(text: str, value: Any) -> None:
    before = X.copy(), Y.copy()
    got = np.broadcast_to(Expression(text)({"x": X, "y": Y, "odd name": Y}), 3)
    if text == "x / y":
        got = np.where(np.isinf(got), np.nan, got)
    np.testing.assert_allclose(got, np.asarray(value, np.float64), rtol=1e-15)
    np.testing.assert_array_equal(before, (X, Y))


@pytest.mark.parametrize(
    "text", ["x > 0", "not x", "x > 0 or y > 0", "x == x", "where(x > 0, 1, 0)", "x ** 0", "max(x, y)"]
)
def test_what_is_missing_stays_missing(text: str) -> None:
    got = Expression(text)({"x": np.array([np.nan, 1.0]), "y": np.array([1.0, 1.0])})
    assert np.isnan(got).tolist() == [True, False]


def test_names_in_an_expression() -> None:
    assert Expression("`a b` + `c` * quoted0 - c + abs(`abs`)").names == {"a b", "c", "quoted0", "abs"}
    got = Expression("`a b` - quoted0")({"a b": np.array([5.0]), "quoted0": np.array([3.0])})
    assert got.tolist() == [2.0]


HOSTILE = [
    "", " ", "x +", "x y", "x; y", "x = 1", "import os", "__import__('os').system('false')", "x.__class__", "x.T",
    "x[0]",
    "().__class__.__bases__[0].__subclasses__()", "open('x')", "abs.__self__", "(lambda: 1)()", "lambda: x", "(x := 1)",
    "[x for x in y]", "{x: y}", "{x}", "[x]", "(x, y)", "f'{x}'", "'x'", "b'x'", "1j", "...", "None", "x if y else 1",
    "x in y", "x is y", "x < y < 1", "~x", "x // y", "x & y", "x @ y", "x << 2", "await x", "yield x", "*x", "abs(*x)",
    "abs(**x)", "abs(x, y)", "abs(x=1)", "abs()", "min(x)", "where(x)", "where(x, y)", "sqrt(x, y)", "exp(x, x)",
    "eval('1')",
    "exec('1')", "x(1)", "abs(x)(1)", "9" * 400, "1e400", "-1e301", "`x", "``", "x\0", "\ud800", "print(x)",
    "x" * 1001, "(" * 400 + "x" + ")" * 400, "[" * 400, "x +" * 300, "x." + "y." * 300 + "z", "abs(" * 200,
    "x[" * 150 + "0" + "]" * 150, "lambda:" * 140 + "x", "1if x else " * 80 + "1", "not " * 200 + "x.y",
    "-" * 900 + "x.y", "x\n+ y", "1and 2 is", "0x", "1_",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text)[:30])
def test_nothing_else_is_understood(text: str) -> None:
    with pytest.raises(ValueError, match=r"expression|not understood"):
        Expression(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-" * 998 + "x", 2.0),
        ("+".join(["x"] * 500), 1000.0),
        ("x" + "**x" * 300, math.inf),
        ("9**9**9**9**9**9", math.inf),
        ("(" * 60 + "x" + ")" * 60, 2.0),
        ("abs(" * 60 + "x" + ")" * 60, 2.0),
        ("-x" * 1 + "+9" * 400, 3598.0),
    ],
)
def test_deep_and_huge_ones_are_counted_and_end(text: str, value: float) -> None:
    try:
        made = Expression(text)
    except ValueError:
        return  # deeper than Python's own parser goes: refused
    assert float(made({"x": np.array([2.0])})[()].item()) == value


def test_an_expression_is_text() -> None:
    for wrong in (None, 5, b"x", ["x"]):
        with pytest.raises(ValueError, match="expression"):
            Expression(wrong)  # type: ignore[arg-type]
