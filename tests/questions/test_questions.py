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
from emphatic.gvfs import durations
from emphatic.gvfs.evaluator import Evaluator, Expression
from emphatic.gvfs.gvf import Observations


def evaluator(*questions: GVF, signals: tuple[str, ...] = ("x", "y"), step: float | None = None, mu: Any = None,
              rule: str = "true_online_etd") -> Evaluator:  # fmt: skip
    return Evaluator(questions, signals, ("door",), step, rules.get(rule), mu)


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
        made = evaluator(question)
        gamma = 1 - 1 / h
        assert made.gamma[0] == pytest.approx(gamma, abs=1e-15)
        assert made.lambda_[0] == pytest.approx(min(0.9, max(0.0, 1 - 4 / h)))
        assert made.scale[0] == pytest.approx(1 - gamma)
        rows = Observations(("x", "y"), np.ones((3, 2)), {})
        targets = made(rows, rows)
        np.testing.assert_allclose(targets.interest[1:], 1 - gamma)
        np.testing.assert_array_equal(targets.gamma, made.gamma[0])
        np.testing.assert_array_equal(targets.R, 1.0)
        np.testing.assert_array_equal(targets.rho[1:], 1.0)
        assert targets.known.all()
    assert GVF("x", gamma=0.5).constant_gamma(None) == 0.5
    assert GVF("x", horizon="2min").constant_gamma(30.0) == 0.75
    assert GVF("x", horizon="1s").constant_gamma(30.0) == 0.0
    varying = evaluator(GVF("x", gamma="y"))
    assert np.isnan(varying.gamma[0])
    assert varying.lambda_[0] == 0.9
    rows = Observations(("x", "y"), np.array([[3.0, 0.25], [4.0, 0.75]]), {})
    targets = varying(rows, rows)
    assert (targets.R[1, 0], targets.gamma[1, 0], targets.interest[1, 0]) == (4.0, 0.75, 1.0)
    assert evaluator(GVF("x", horizon=9, lambda_=0)).lambda_[0] == 0.0


def test_rules_without_emphasis_weigh_every_step_alike() -> None:
    rows = Observations(("x",), np.ones((2, 1)), {})
    for rule, interest, steady in (
        ("true_online_etd", 0.1, True), ("etd", 0.1, True), ("etd_beta", 0.1, False), ("td", 1.0, False),
        ("htd", 1.0, False),
    ):  # fmt: skip
        made = Evaluator([GVF("x", gamma=0.9)], ("x",), (), None, rules.get(rule))
        assert made(rows, rows).interest[1, 0] == pytest.approx(interest)
        assert made.steady[0] == steady


def test_a_duration_needs_a_stream_with_time() -> None:
    for step in (None, 0.0, math.nan):
        with pytest.raises(ValueError, match=r"'horizon'.*no time"):
            GVF("x", horizon="2min").constant_gamma(step)


def test_a_sum_without_end_is_found() -> None:
    assert evaluator(GVF("x", gamma=1), GVF("x", gamma=0.5), GVF("x", gamma="y")).endless == ["x@1"]


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


def test_a_question_has_either_gamma_or_a_horizon() -> None:
    with pytest.raises(ValueError, match=r"one of 'gamma' and 'horizon'\. Neither was given"):
        GVF("x")
    with pytest.raises(ValueError, match=r"one of 'gamma' and 'horizon'\. Both were given"):
        GVF("x", gamma=0.5, horizon=2)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        *(("target", {"target": t}) for t in (None, 0.5, "a", {}, {"a": 0.5}, {"a": 0.5, "b": 0.6}, {"a": -1, "b": 2})),
        *(("target", {"target": t}) for t in ({"a": math.nan}, {"a": "1"}, {"a": True}, {1: 0.5, "1": 0.5})),
        *(("behaviour", {"behaviour": b}) for b in (None, 0, 1.5, math.nan, True, {"a": 1.1}, {"a": None}, [1])),
        *((name, {name: lambda observation: 0.5}) for name in ("target", "behaviour")),
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
        evaluator(question)


@pytest.mark.parametrize(
    ("question", "match"),
    [
        (GVF("x", gamma="y", name="q"), "'gamma'.*in every row. Got 7.0 of 'q'"),
        (GVF("x", gamma=lambda o: o["y"], name="q"), "'gamma'.*Got 7.0 of 'q'"),
        (GVF("x", gamma=lambda o: anything("y"), name="q"), "'gamma'.*'q'.*Got 'y'"),
        (GVF("x", horizon=2, interest="-y", name="q"), "'interest'.*Got -7.0 of 'q'"),
        (GVF("x", horizon=2, interest=lambda o: math.inf, name="q"), "'interest'.*Got inf of 'q'"),
        (GVF(lambda o: anything([]), horizon=2, name="q"), "'cumulant'.*'q'.*Got \\[\\]"),
        (GVF("x", horizon=2, policy=Policy(lambda o, a: -2.0, "y"), name="q"), "'policy'.*'q'.*Got -2.0"),
        (GVF("x", horizon=2, policy=Policy(lambda o, a: math.inf, "y"), name="q"), "'policy'.*'q'.*Got inf"),
        (GVF("x", horizon=2, policy=Policy({7: 1.0}, "y", lambda o, a: 0.0), name="q"), "'mu'.*'7'.*Got 0.0"),
        (GVF("x", horizon=2, policy=Policy(lambda o, a: anything(None), "y"), name="q"), "'policy'.*'q'.*Got None"),
        (GVF("x", horizon=2, policy=Policy({7: 1.0}), name="q"), "'action'.*'q'"),
        (GVF("x", horizon=2, policy=Policy({7: 1.0}, "y", "y"), name="q"), "'mu'.*'7'.*Got 7.0"),
        (GVF("x", horizon=2, policy=Policy({7: 1.0}, "y", {"8": 1.0}), name="q"), "'mu'.*'7'.*Got 0.0"),
    ],
)
def test_what_rows_show_to_be_wrong(question: GVF, match: str) -> None:
    rows = Observations(("x", "y"), np.array([[1.0, 7.0]]), {})
    with pytest.raises(ValueError, match=match):
        evaluator(question)(rows, rows)


# ---------------------------------------------------------------------------------------------------- the evaluator


def two_rows(**more: Any) -> Observations:
    return Observations(("x", "reward"), np.array([[1.0, 10.0], [2.0, 20.0]]), {"door": ["open", None]}, **more)


def test_a_function_is_given_a_row_or_a_transition() -> None:
    seen: list[Any] = []

    def of_row(row: Any) -> float:
        seen.append(row)
        return 0.5

    def of_step(observation: Any, action: Any, reward: Any, following: Any) -> float:
        seen.append((observation, action, reward, following))
        return 0.25

    first, second = {"x": 1.0, "reward": 10.0, "door": "open"}, {"x": 2.0, "reward": 20.0, "door": None}
    rows = two_rows(actions=["up", "down"])
    for name in ("cumulant", "gamma", "interest", "terminal"):
        given: dict[str, Any] = {"cumulant": 1.0, "gamma": 0.5}
        by_row = evaluator(GVF(**given | {name: of_row}), signals=("x", "reward"))
        assert not by_row.needs_before
        by_row(rows, rows)
        assert seen == [first, second], name
        seen.clear()
        by_step = evaluator(GVF(**given | {name: of_step}), signals=("x", "reward"))
        assert by_step.needs_before
        targets = by_step(rows, rows, None, np.array([False, True]))
        assert seen == [(first, "up", 20.0, second)], name
        seen.clear()
        value = {"cumulant": targets.R, "gamma": targets.gamma, "interest": targets.interest}.get(name)
        assert (targets.R[1, 0] == 1.0 + 0.5 * 0.25) if value is None else (value[1, 0] == 0.25)
        before, after = rows.part(slice(0, 1)), rows.part(slice(1, 2))
        one = by_step.transition((before, before), after, after, False)
        assert seen == [(first, "up", 20.0, second)], name
        for field in ("R", "gamma", "interest"):
            np.testing.assert_array_equal(getattr(one, field)[0], getattr(targets, field)[1])
        seen.clear()


def test_a_log_without_rewards_or_actions_has_none() -> None:
    seen = []
    made = evaluator(GVF(lambda *step: seen.append(step[1:3]), gamma=0.5, name="q"))
    rows = Observations(("x", "y"), np.ones((2, 2)), {"door": ["open", "shut"]})
    assert not made(rows, rows).known[:, 0].any()
    assert seen == [(None, None)]
    policy = Policy({"open": 1.0}, "door", 0.5)
    made = evaluator(GVF(lambda *step: seen.append(step[1:3]), gamma=0.5, policy=policy, name="q"))
    made(rows, rows)
    assert seen[1:] == [("open", None)]


@pytest.mark.parametrize(
    ("function", "right"),
    [
        (lambda row: 1.0, True), (lambda row, scale=2.0: 1.0, True), (lambda row, a=1, b=2, c=3: float(a), True),
        (lambda o, a, r, n: 1.0, True), (lambda o, a, r, n, more=1: 1.0, True), (lambda *step: float(len(step)), True),
        (len, True), (lambda: 1.0, False), (lambda o, a: 1.0, False), (lambda o, a, r: 1.0, False),
        (lambda a, b, c, d, e: 1.0, False), (lambda row, *, key: 1.0, False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("what", ["cumulant", "gamma", "interest", "terminal"])
def test_a_function_of_another_number_of_parameters_is_refused(what: str, function: Any, right: bool) -> None:
    given: dict[str, Any] = {"cumulant": "x", "gamma": 0.5, "name": "q", what: function}
    question = GVF(**given)
    if right:
        evaluator(question)
        return
    with pytest.raises(ValueError, match=f"'{what}' parameter of GVF .*in 'q'.* one parameter or of four"):
        evaluator(question)


def ratios(policy: Policy, rows: Observations, mu: Any = None) -> list[float]:
    """ρ of the rows, all at once, and one by one as transitions: the same."""
    made = evaluator(GVF("x", gamma=0.5, policy=policy), signals=("x", "reward"), mu=mu)
    made(rows, rows)
    of_steps = evaluator(GVF("x", gamma=0.5, policy=policy), signals=("x", "reward"), mu=mu)
    out = []
    for t in range(len(rows)):
        row = rows.part(slice(t, t + 1))
        out.append(float(of_steps.transition((row, row), row, row, False).rho[0, 0]))
    whole = evaluator(GVF("x", gamma=0.5, policy=policy), signals=("x", "reward"), mu=mu)
    double = Observations(
        rows.names, np.vstack([rows.values, rows.values[-1:]]), {"door": [*rows.labels["door"], None]},
        None if rows.actions is None else [*rows.actions, None], None if rows.mu is None else [*rows.mu, None],
    )  # fmt: skip
    assert whole(double, double).rho[1:, 0].tolist() == out
    return out


def test_where_mu_comes_from() -> None:
    table = {"up": 0.5, "down": 0.5}
    rows = two_rows(actions=["up", "down"])
    with_mu = two_rows(actions=["up", "down"], mu=[4.0, None])
    own = Policy(table, behaviour={"up": 0.25, "down": 0.75})
    counted = Policy(table)
    assert ratios(own, rows) == [2.0, 0.5 / 0.75]
    assert ratios(own, with_mu) == [0.125, 0.5 / 0.75]  # what comes with the row is first, and may be a density
    assert ratios(own, rows, mu=0.1) == [2.0, 0.5 / 0.75]  # then the policy's own
    assert ratios(counted, rows, mu=0.1) == [5.0, 5.0]  # then the stream's
    assert ratios(counted, rows, mu={"up": 0.2, "down": 0.8}) == [2.5, 0.5 / 0.8]
    assert ratios(counted, rows, mu=lambda o, a: 8.0 * o["x"]) == [0.5 / 8, 0.5 / 16]
    assert ratios(counted, rows) == [0.5, 1.0]  # then the count
    assert ratios(counted, with_mu) == [0.125, 1.0]


def test_densities_by_functions() -> None:
    rows = two_rows(actions=[np.array([0.5], np.float32), np.array([0.25], np.float32)], mu=[2.0, 8.0])
    assert ratios(Policy(lambda o, a: 4.0 * a), rows) == [1.0, 0.125]
    assert ratios(Policy(lambda o, a: 4.0, behaviour=lambda o, a: 16.0 * float(a[0])), rows) == [2.0, 0.5]
    with pytest.raises(ValueError, match=r"'mu'.*cannot be counted"):
        ratios(Policy(lambda o, a: 1.0), two_rows(actions=[np.array([0.5]), np.array([0.5])]))


def test_questions_about_one_policy_share_its_counts() -> None:
    policies = [Policy({"up": 0.5, "down": 0.5}), Policy({"up": 1.0}), Policy({"up": 0.5, "down": 0.5})]
    made = evaluator(*(GVF("x", gamma=0.5, policy=policy, name=f"{q}") for q, policy in enumerate(policies)))
    rows = Observations(("x", "y"), np.ones((3, 2)), {}, ["up", "up", "down"])
    made(rows, rows)
    assert made.counts == [{"up": 2, "down": 1}] * 3
    other = evaluator(*(GVF("x", gamma=0.5, policy=policy, name=f"{q}") for q, policy in enumerate(policies)))
    other.counts = made.counts
    np.testing.assert_array_equal(other(rows, rows).rho[1:], made(rows, rows).rho[1:])


def test_what_is_missing_or_too_large_is_not_known() -> None:
    made = evaluator(GVF("x", gamma=0.5), GVF("x + y", gamma="y"), GVF(1.0, gamma=0.5, terminal="x", name="Z"))
    values = np.array([[1.0, 0.5], [np.nan, 0.5], [1e101, 0.5], [1.0, np.nan], [-1e100, 0.5]])
    rows = Observations(("x", "y"), values, {})
    targets = made(rows, rows)
    assert targets.known.T.tolist() == [
        [True, False, False, True, True], [True, False, False, False, True], [True, False, False, True, True],
    ]  # fmt: skip
    assert not targets.R[~targets.known].any()
    assert np.isfinite(targets.R).all()
    for t in range(1, 5):
        before, after = rows.part(slice(t - 1, t)), rows.part(slice(t, t + 1))
        one = made.transition((before, before), after, after, False)
        for field in ("R", "known", "gamma", "rho", "interest"):
            np.testing.assert_array_equal(getattr(one, field)[0], getattr(targets, field)[t], err_msg=field)
        ended = made.transition((before, before), after, after, True)
        assert not ended.gamma.any()
        if targets.known[t, 2]:
            assert ended.R[0, 2] == 1.0 + values[t, 0]


def test_a_rule_without_interest_takes_none() -> None:
    evaluator(GVF("x", gamma=0.5, interest=1.0), rule="vtrace")
    with pytest.raises(ValueError, match=r"'interest'.*left out for rule 'vtrace'"):
        evaluator(GVF("x", gamma=0.5, interest=0.5), rule="vtrace")


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
