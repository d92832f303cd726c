"""Rules as such: what they must be, in words; the one form of their source; and a rule of one's own on every engine."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import linecache
import pickle
import pkgutil
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emphatic
from emphatic.learning.learner import _Named
from emphatic.rules import STEP, ElementwiseRule, Rule, Scalars, Update
from emphatic.rules._fields import ATTRIBUTES, KEYWORDS
from tests.support.streams import TOLERANCE, relative_error

ALL = [emphatic.rules.get(name) for name in emphatic.rules.names()]


def toy(step: Scalars, memory: Scalars, x: Scalars, x_next: Scalars, g: Scalars) -> Update:
    """e ← ργλe + φ;  θ ← θ + α[δe − κ(e·w)φ'];  w ← (1 − ακ)w + ακ[δe − (w·φ)φ + φ'];  remembered: e·w, e·e"""
    alpha, I, lambda_, rho, gamma_next, delta, kappa = step
    gamma, ew, ee = memory
    _, w_phi, e_phi = x
    _, _, e_phi_next = x_next
    phi_phi, phi_phi_next, _ = g
    c = rho * gamma * lambda_
    ee = c * c * ee + 2.0 * c * e_phi + phi_phi
    ew = c * ew + w_phi
    e_phi = c * e_phi + phi_phi
    e_phi_next = c * e_phi_next + phi_phi_next
    a, h = alpha * delta, alpha * kappa * ew
    b = alpha * kappa
    d = 1.0 - b
    return (
        ((1.0, 0.0, a * c), (0.0, d, b * delta * c), (0.0, 0.0, c)),
        ((a, -h), (b * delta - b * w_phi, b), (1.0, 0.0)),
        (gamma_next, d * ew + b * (delta * ee - w_phi * e_phi + e_phi_next), ee),
    )


TOY = Rule("toy", toy, weights=("theta", "w"), traces=("e",), memory=("gamma", "ew", "ee"), extra=("kappa",))


@pytest.mark.plain
def test_a_weight_that_scales_itself_away_is_settled_in_time() -> None:
    """The toy's w decays by 1 − ακ each step: its lazy scale leaves any bounds again and again."""
    rng = np.random.default_rng(0)
    T, n = 2001, 7
    index = rng.integers(0, n, size=(T + 1, 1))
    common: dict[str, Any] = {"alpha": 0.5, "lambda_": 0.5, "kappa": 0.9}
    results = []
    for engine in ("reference", "sparse"):
        learner = emphatic.Learner(TOY, n, engine=engine)
        learner.run(emphatic.Active(index), np.ones(T), 0.9, **common)
        results.append(np.concatenate([learner.theta, learner.w, learner.e]))
    assert relative_error(results[1], results[0]) <= TOLERANCE["float64"]


# ------------------------------------------------------------------ making rules


def written(source: str, name: str = "f", number: Any = itertools.count(), **outside: Any) -> Any:  # noqa: B008
    """A function of this source, in a module that has these names besides."""
    file = f"<written {next(number)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec", dont_inherit=True), outside)
    return outside[name]


#: TD(λ) on-policy with one more factor, its step's last entry or nothing.
TD = """def f(step, memory, x, x_next, g):
    alpha, I, lambda_, rho, gamma_next, delta{more} = step
    (gamma,) = memory
    c = gamma * lambda_
    w = alpha * delta
    {line}
    return ((1.0, w * c), (0.0, c)), ((w, 0.0), (1.0, 0.0)), (gamma_next,)
"""
changed: Any = dataclasses.replace
td_like = functools.partial(Rule, "own", weights=("theta",), traces=("e",), memory=("gamma",))


def with_line(line: str, **outside: Any) -> Rule:
    return td_like(written(TD.format(line=line, more=""), **outside))


def with_extra(*extra: str, **more: Any) -> Rule:
    names = "".join(f", p{i}" for i in range(len(extra)))
    return td_like(written(TD.format(line="w = w" + names.replace(",", " *"), more=names)), extra=extra, **more)


# ------------------------------------------------------------------ source


def test_the_source_is_one_function_in_one_form() -> None:
    source = """
import functools
class Somewhere:
    @staticmethod
    @functools.lru_cache
    def rule(s, min: float, /, x: "not looked at" = 3, x_next=None, step=(1,)) -> None:
        '''Says something.'''
        lambda_: float = s[2]  # a comment
        [gamma] = min
        rule, c = 2 * s[-2], FACTOR - 1_0 * lambda_ * (gamma > 0)
        "and something more"
        return ((1, rule), (0, c)), ((c, 0), (-LEAST, 0)), (gamma / 2,)
    f = rule
"""
    made = td_like(written(source, "Somewhere", FACTOR=np.float32(0.5), LEAST=-3).f)
    assert made.source.replace("gamma, =", "(gamma,) =").splitlines() == [  # as Pythons differ in it
        "def rule(step, memory, x, x_next, g):",
        "    step_0, step_1, step_2, step_3, step_4, step_5 = step",
        "    lambda_ = step_2",
        "    (gamma,) = memory",
        "    rule, c = (2.0 * step_4, 0.5 - 10.0 * lambda_ * (gamma > 0.0))",
        "    return (((1.0, rule), (0.0, c)), ((c, 0.0), (--3.0, 0.0)), (gamma / 2.0,))",
    ]
    assert inspect.getsource(made.pure) == made.source
    assert made.pure((1.0, 1.0, 0.5, 1.0, 0.25, 1.0), (0.5,), (), (), ()) == (
        ((1.0, 0.5), (0.0, -4.5)), ((-4.5, 0.0), (3.0, 0.0)), (0.25,),
    )  # fmt: skip
    assert made.form == (((1.0, None), (0.0, None)), ((None, 0.0), (None, 0.0)))


@pytest.mark.parametrize("rule", [*ALL, TOY], ids=lambda rule: rule.name)
def test_the_form_of_a_rule_is_its_function(rule: Rule) -> None:
    """The same numbers, to the last bit; and the form of the form is the form."""
    rng = np.random.default_rng(0)
    assert td_like(rule.pure, **{f: getattr(rule, f) for f in ("weights", "traces", "memory", "extra")}).source == (
        rule.source
    )
    for _ in range(20):
        arguments = [tuple(rng.normal(size=len(held)).tolist()) for held in rule.arguments.values()]
        assert rule.pure(*arguments) == rule.function(*arguments)
    assert rule.pure.__globals__.keys() == {"min", "max", "__builtins__", "__name__", "rule"}


@pytest.mark.parametrize("name", ["read", "decide", "rule", "min", "step", "f", "λ", "_", "numba"])
def test_a_function_may_have_any_name(name: str) -> None:
    source = TD.format(line="", more="").replace("def f(", f"def {name}(")
    assert td_like(written(source, name)).source == with_line("").source


def test_functions_within_functions_and_lambdas_are_found() -> None:
    def maker(c: float) -> Callable[..., Any]:
        def inner(step: Scalars, memory: Scalars, x: Scalars, x_next: Scalars, g: Scalars) -> Update:
            return ((1.0, c * step[0]), (0.0, c)), ((0.0, 0.0), (0.0, 0.0)), (step[4],)

        return inner

    half, third = td_like(maker(0.5)), td_like(maker(0.25))
    assert "0.5 * step_0" in half.source
    assert "0.25 * step_0" in third.source
    assert half != third
    one, other = (lambda s, m, x, y, g: (((1, s[0]), (0, 0)), ((0, 0), (0, 0)), (s[4],)),
                  lambda s, m, x, y, g: (((1, s[1]), (0, 0)), ((0, 0), (0, 0)), (s[4],)))  # fmt: skip
    assert "return (((1.0, step_1)," in td_like(other).source
    assert td_like(one).source != td_like(other).source


def test_what_numba_compiled_is_found() -> None:
    numba = pytest.importorskip("numba")
    assert td_like(numba.njit(written(TD.format(line="", more="")))).source == with_line("").source


def test_numbers_from_outside_are_as_they_were_when_the_rule_was_made() -> None:
    space: dict[str, Any] = {"C": 0.5}
    function = written(TD.format(line="w = C * w", more=""), **space)
    first = td_like(function)
    function.__globals__["C"] = 0.75
    second = td_like(function)
    assert ("w = 0.5 * w" in first.source, "w = 0.75 * w" in second.source) == (True, True)
    assert first != second  # an engine that keeps kernels by rule must not take one for the other


def test_a_rule_is_data() -> None:
    for rule in ALL:
        assert (again := pickle.loads(pickle.dumps(rule))) == rule == dataclasses.replace(rule)
        assert {rule: 1}[again] == 1
        assert again.pure.__code__.co_code == rule.pure.__code__.co_code
        assert (again.form, again.products, again.uses) == (rule.form, rule.products, rule.uses)
    defaults = {"q": 1.0}
    rule = with_extra("q", defaults=defaults)
    defaults["q"] = -1.0
    assert rule.defaults == {"q": 1.0}
    with pytest.raises(dataclasses.FrozenInstanceError):
        rule.name = "other"  # type: ignore[misc]


def test_a_rule_is_quickly_made() -> None:
    """In so many function calls, which take about 3 ms: every import of the package makes all rules."""
    calls: Counter[str] = Counter()
    for rule in ALL:
        calls.clear()
        sys.setprofile(lambda frame, event, argument: calls.update([event]))
        try:
            dataclasses.replace(rule)
        finally:
            sys.setprofile(None)
        assert 100 < calls["call"] + calls["c_call"] < 15_000


#: A line that some compiler would refuse, or take for something else; what the refusal says; and what it shows.
UNFIT = {
    "c += 1.0": (r"write c = c \+ d for c \+= d", "`c += 1.0`"),
    "c = c ** 2.0": (r"write c \* c for c \*\* 2", "`c ** 2.0`"),
    "c = c % 2.0": ("numbers, names", "`c % 2.0`"),
    "c = not c": ("numbers, names", "`not c`"),
    "c = ~c": ("numbers, names", "`~c`"),
    "c = abs(c)": ("call only Python's min and max", "`abs(c)`"),
    "c = helper(c)": ("call only Python's min and max", "`helper(c)`"),
    "c = np.minimum(c, w)": ("call only Python's min and max", "`np.minimum(c, w)`"),
    "c = min(c, 1.0, 2.0)": ("of two numbers each", "`min(c, 1.0, 2.0)`"),
    "c = min(c, key=w)": ("of two numbers each", "`min(c, key=w)`"),
    "c = min(*x)": ("of two numbers each", "`min(*x)`"),
    "min = c; c = min(c, w)": ("Python's min and max", "`min(c, w)`"),
    "c = np.pi * c": ("write the number itself", "`np.pi`"),
    "c = min * c": ("use only finite numbers", "`min` = <built-in function min>"),
    "c = helper": ("use only finite numbers", "`helper` = <function"),
    "c = LIMIT * c": ("have a value when the rule is created", "`LIMIT`"),
    "c = True * c": ("use only finite numbers", "`True`"),
    "c = YES * c": ("use only finite numbers", "`YES` = True"),
    "c = 'a'": ("use only finite numbers", "`'a'`"),
    "c = None": ("use only finite numbers", "`None`"),
    "c = 1j * c": ("use only finite numbers", "`1j`"),
    "c = 1e999 * c": ("use only finite numbers", "`1e309`"),
    f"c = {10**400}": ("use only finite numbers", "`1000"),
    "c = c > 0.0": (r"only as factors of a product, such as c \* \(a > b\)", "`c > 0.0`"),
    "c = c + (c > 0.0)": ("only as factors of a product", "`c > 0.0`"),
    "c = c * (c == 0.0)": ("only as factors of a product", "`c == 0.0`"),
    "c = c * (0.0 < c < 1.0)": ("numbers, names", "`0.0 < c < 1.0`"),
    "c = c * ((c > 0.0) and (w > 0.0))": ("write a product of comparisons for 'and'", "`c > 0.0 and w > 0.0`"),
    "c = 1.0 if c > 0.0 else 2.0": ("write a comparison as a factor", "`1.0 if c > 0.0 else 2.0`"),
    "if c > 0.0: c = w": ("write a comparison as a factor", "`if c > 0.0:`"),
    "for i in x: c = i": ("numbers, names", "`for i in x:`"),
    "c: float": ("write a name's value beside its annotation", "`c: float`"),
    "a, *b = step": ("write a name for each entry", r"`*b`"),
    "a, (b, d) = c, w": ("numbers, names", "`(b, d)`"),
    "a = b = c": ("numbers, names", "`a = b = c`"),
    "c = (a := w)": ("numbers, names", "`(a := w)`"),
    "c = (lambda: w)()": ("call only", "`(lambda: w)()`"),
    "def h(): return c": ("write what it does in its place", "`def h():`"),
    "return (), (), ()": ("numbers, names", "`return ((), (), ())`"),
    "del c": ("numbers, names", "`del c`"),
    "pass": ("numbers, names", "`pass`"),
    "c = (c, w) * 2.0": ("numbers, names", "`(c, w)`"),
    "c = x[c]": ("by unpacking, or by a literal index", "`x[c]`"),
    "c = x[0:1]": ("by unpacking, or by a literal index", "`x[0:1]`"),
    "c = w[0]": ("by unpacking, or by a literal index", "`w[0]`"),
    "c = x[2]": (r"entries that 'x' has: \(theta·φ, e·φ\)", "`x[2]`"),
    "a, b = g": (r"unpack 'g' into 3: \(φ·φ, φ·φ', φ'·φ'\)", "2 names, `(a, b)`,"),
    "a, b = memory": (r"unpack 'memory' into 1: \(gamma\)", "2 names, `(a, b)`,"),
}


@pytest.mark.parametrize("line", UNFIT)
def test_what_some_compiler_refuses_is_refused(line: str) -> None:
    words, shown = UNFIT[line]
    with pytest.raises(ValueError, match=words) as error:
        with_line(line, np=np, helper=toy, YES=True)
    message = str(error.value)
    assert message.startswith("The 'function' parameter of Rule('own', …) must ")
    assert f" Got {shown}" in message
    assert re.search(r" at line 6 of <written \d+> instead\.$", message)


#: What calling it once shows.
BROKEN = {
    "c = d": ("use names that have a value", "`d` at line 6"),
    "c = c + u; u = c": ("be one that can be called", "UnboundLocalError"),
    "c = step * w": ("be one that can be called", "TypeError"),
    "a, b = c": ("be one that can be called", "TypeError"),
    "a, b = c, w, w": ("be one that can be called", "ValueError: too many values to unpack"),
    "c = 1.0 / 0.0": ("be one that can be called", "ZeroDivisionError"),
    "w = w, w": ("be one that can be called", "TypeError"),
    "gamma_next = 0.5": ("compute its memory", "0.5 for gamma"),
}


@pytest.mark.parametrize("line", BROKEN)
def test_what_cannot_be_called_is_refused(line: str) -> None:
    words, shown = BROKEN[line]
    with pytest.raises(ValueError, match=words) as error:
        with_line(line)
    assert f" Got {shown}" in str(error.value)


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        ("w", "return A, B and memory. Got … instead"),
        ("(), ()", r"return A, B and memory. Got \(\(\), \(\)\) instead"),
        ("((1.0, c),), ((w, 0.0), (1.0, 0.0)), (c,)", r"A as 2 rows of 2: .*\(theta, e\). Got \(\(1.0, …\),\) for A"),
        ("((1.0, c), (0.0,)), ((w, 0.0), (1.0, 0.0)), (c,)", "A as 2 rows of 2"),
        ("((1.0, c), (0.0, c)), ((w,), (1.0,)), (c,)", "B as 2 rows of 2: .* a column for φ and one for φ'"),
        ("((1.0, c), (0.0, c)), ((w, 0.0), (1.0, 0.0)), ()", r"memory as a tuple of 1: gamma. Got \(\) for memory"),
        ("((1.0, c), (0.0, c)), ((w, 0.0), (1.0, 0.0)), (c, c)", "memory as a tuple of 1"),
        ("((1.0, c), (0.0, c)), ((w, 0.0), (1.0, 0.0)), c", "memory as a tuple of 1"),
        ("((1.0, x), (0.0, c)), ((w, 0.0), (1.0, 0.0)), (c,)", "return numbers in A, B and memory"),
        ("((1.0, c), (0.0, c)), ((w, 0.0), (1.0, 0.0)), (0.0,)", "compute its memory.* Got 0.0 for gamma"),
        ("((1.0, c), (c, c)), ((w, 0.0), (1.0, 0.0)), (c,)", "an arrow.* e takes theta"),
        ("((1.0, c), (0.0, c)), ((w, 0.0), (1.0, c)), (c,)", "only weights take φ'.* the trace e takes φ'"),
    ],
)
def test_what_a_function_returns_is_looked_at(returned: str, words: str) -> None:
    source = f"def f(step, memory, x, x_next, g):\n    (c,) = memory\n    w = c\n    return {returned}\n"
    with pytest.raises(ValueError, match=words):
        td_like(written(source))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (
            "def f(step, memory, x, x_next):\n    return 1",
            "5 parameters step, memory, x, x_next, g. Got",
        ),
        ("def f(step, *rest):\n    return 1", r"Got \(step, \*rest\) at line 1"),
        ("def f(step, memory, x, x_next, g, *, k=1):\n    return 1", "5 parameters"),
        ("def f(step, memory, x, x_next, g):\n    c = 1.0", "end by returning A, B and memory"),
        ("def f(step, memory, x, x_next, g):\n    'nothing'", "end by returning A, B and memory"),
        ("def f(step, memory, x, x_next, g):\n    return", "numbers, names"),
        ("async def f(step, memory, x, x_next, g):\n    return 1", "be a plain function. Got async def f"),
        ("def f(step, memory, x, x_next, g):\n    yield 1", "numbers, names"),
        ("def w(f):\n    def f(*all): return all\n    return f\n@w\ndef f(step): pass", r"Got \(\*all\) at line 2"),
    ],
)
def test_what_is_no_function_of_scalars_is_refused(source: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        td_like(written(source))


@pytest.mark.parametrize("function", [None, 3, "td", max, np.add, dict, functools.partial(toy)])
def test_what_is_no_function_is_refused(function: Any) -> None:
    with pytest.raises(ValueError, match=r"'function' parameter of Rule.* must be a function written in Python. Got"):
        td_like(function)


def test_a_function_without_source_is_refused() -> None:
    space: dict[str, Any] = {}
    exec(TD.format(line="", more=""), space)
    with pytest.raises(ValueError, match=r"put the function into a module and import it. Got f, whose source"):
        td_like(space["f"])


def test_a_file_that_was_changed_since_gives_no_other_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "changing.py"
    path.write_text(TD.format(line="w = 0.5 * w", more=""))
    import changing  # type: ignore[import-not-found]

    right = td_like(changing.f)
    path.write_text("# moved down\n" + TD.format(line="w = 0.5 * w", more=""))
    assert td_like(changing.f) == right
    for text in (TD.format(line="w = 2.5 * w", more=""), TD.format(line="w = 0.5 * c", more=""), "g = 1", "def f("):
        path.write_text(text)
        with pytest.raises(ValueError, match="which has changed since then: import it again"):
            td_like(changing.f)


# ------------------------------------------------------------------ names


def test_the_refused_names_are_those_of_learn_and_run() -> None:
    found = {
        parameter.name
        for function in (emphatic.Learner.learn, emphatic.Learner.run)
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is not parameter.VAR_KEYWORD
    }
    assert found == KEYWORDS
    assert {*STEP, "R"} - KEYWORDS == {"delta"}
    for name in (*KEYWORDS, "delta"):
        with pytest.raises(ValueError, match=rf"that a step, learn and run do not have already. Got '{name}' instead"):
            with_extra(name)


def test_no_vector_and_no_memory_hides_behind_an_attribute_of_a_learner() -> None:
    emphatic.Learner("etd", 2)  # the class gets e and F, which are the rule's
    found = {name for name in dir(emphatic.Learner) if not isinstance(getattr(emphatic.Learner, name), _Named)}
    found = {name for name in found if not name.startswith("_")} - {"theta"}
    assert found <= ATTRIBUTES
    for field in ("weights", "traces", "memory"):
        for name in ATTRIBUTES:
            with pytest.raises(
                ValueError, match=rf"'{field}' .* not attributes of Learner itself. Got '{name}' instead"
            ):
                changed(TOY, **{field: (*getattr(TOY, field)[:-1], name)})
        with pytest.raises(ValueError, match=rf"'{field}' .* not begin with an underscore. Got '_x' instead"):
            changed(TOY, **{field: (*getattr(TOY, field)[:-1], "_x")})


@pytest.mark.parametrize("field", ["weights", "traces", "memory", "extra"])
@pytest.mark.parametrize(
    "name", ["", " ", "a b", "1a", "a-b", "lambda", "if", "None", "__debug__", "µ", 3, None, ("a",)]
)
def test_names_are_identifiers(field: str, name: Any) -> None:
    got = re.escape(repr(name))
    with pytest.raises(ValueError, match=rf"'{field}' .* Python identifiers that are not keywords. Got {got} instead"):
        changed(TOY, **{field: (name,)})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": ""}, "'name' parameter of Rule.* be a name of one letter or more. Got '' instead"),
        ({"name": None}, "'name' .* Got None instead"),
        ({"weights": ()}, r"'weights' .* name one vector or more, such as \('theta',\). Got none"),
        ({"weights": "theta"}, "'weights' .* be a tuple of names.* Got 'theta' instead"),
        ({"traces": ["e"]}, r"'traces' .* be a tuple of names.* Got \['e'\] instead"),
        ({"memory": None}, "'memory' .* be a tuple of names.* Got None instead"),
        ({"weights": ("theta", "theta")}, "'weights' .* name each once. Got 'theta' 2 times"),
        ({"extra": ("q", "q")}, "'extra' .* name each once. Got 'q' 2 times"),
        ({"traces": ("w",)}, "'traces' .* other names than 'weights'. Got 'w' in both"),
        ({"extra": ("gamma",)}, "'extra' .* that the rule's vectors and memory do not have. Got 'gamma' instead"),
        ({"memory": ("gamma", "ew", "e")}, "'memory' .* other names than 'traces'. Got 'e' in both"),
        ({"weights": ("v", "theta")}, "'weights' .* 'theta' only for the first of the weights"),
        ({"weights": ("v", "w"), "traces": ("theta",)}, "'traces' .* 'theta' only for the first of the weights"),
        ({"defaults": {"kappa": "eta"}, "extra": ("eta", "kappa")}, "'extra' .* other names than 'eta'"),
        ({"defaults": None}, "'defaults' .* be a mapping from extra parameters. Got None"),
        ({"defaults": {"q": 1.0}}, "'defaults' .* be of extra parameters, here kappa. Got 'q' instead"),
        ({"defaults": {"kappa": "q"}}, "'defaults' .* names of parameters that come before. Got 'q' for 'kappa'"),
        ({"defaults": {"kappa": "kappa"}}, "'defaults' .* that come before. Got 'kappa' for 'kappa'"),
        ({"defaults": {"kappa": "delta"}}, "'defaults' .* Got 'delta' for 'kappa'"),
        ({"defaults": {"kappa": None}}, "'defaults' .* Got None for 'kappa'"),
        ({"defaults": {"kappa": True}}, "'defaults' .* Got True for 'kappa'"),
        ({"defaults": {"kappa": float("nan")}}, "'defaults' .* Got nan for 'kappa'"),
        ({"defaults": {"kappa": -1.0}}, "'defaults' .* from 0 to inf for 'kappa'. Got -1.0 instead"),
        ({"extra_ranges": 3}, "'extra_ranges' .* be a mapping from extra parameters. Got 3"),
        ({"extra_ranges": {"alpha": (0, 1)}}, "'extra_ranges' .* be of extra parameters, here kappa. Got 'alpha'"),
        ({"extra_ranges": {"kappa": 1.0}}, "'extra_ranges' .* be pairs of the least and the largest value. Got 1.0"),
        ({"extra_ranges": {"kappa": (1.0, 0.0)}}, r"'extra_ranges' .* Got \(1.0, 0.0\) for 'kappa'"),
        ({"interest": 1}, "'interest' .* be a bool. Got 1 instead"),
        ({"paper": None}, "'paper' .* be a str. Got None instead"),
        ({"emphasis": "F"}, "'emphasis' .* be one of '', 'gamma', 'decay'. Got 'F' instead"),
        ({"fixed_point": "td"}, "'fixed_point' .* be one of '', 'projected', 'cut', 'residual'. Got 'td' instead"),
    ],
)  # fmt: skip
def test_a_field_that_is_not_as_it_must_be_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        changed(TOY, **changes)


def test_defaults_and_ranges_of_one_s_own() -> None:
    rule = with_extra("q", "r", "b", defaults={"q": 2, "r": "q", "b": "eta"}, extra_ranges={"q": (-1, 3.0)})
    assert repr(rule.ranges["q"]) == "(-1.0, 3.0)"
    assert repr(rule.defaults["q"]) == "2.0"
    learner = emphatic.Learner(rule, 1, engine="reference")
    step: dict[str, Any] = {"phi": [1.0], "phi_next": [0.0], "R": 1.0, "gamma_next": 0.0, "rho": 1.0, "I": 1.0}
    learner.learn(alpha=0.5, lambda_=0.0, **step)
    assert learner.theta.tolist() == [0.5 * 2 * 2 * 0.5]
    for q in (-1.5, 3.5):
        with pytest.raises(ValueError, match=rf"'q' parameter of learn must be between -1 and 3. Got {q}"):
            learner.learn(alpha=0.5, lambda_=0.0, q=q, **step)


# ------------------------------------------------------------------ structure


def test_one_file_a_rule() -> None:
    files = {module.name for module in pkgutil.iter_modules(emphatic.rules.__path__)}
    assert {name for name in files if not name.startswith("_")} == set(emphatic.rules.names())
    for rule in ALL:
        assert rule.function.__name__ == rule.name
        assert "←" in (rule.function.__doc__ or "")
        assert rule.paper
        path = Path(inspect.getfile(rule.function))
        symbols = [{"theta": "θ", "e_hat": "ê"}.get(name, name) for name in rule.vectors]
        x, x_next = (", ".join(f"{name}·{phi}" for name in symbols) + "," * (len(symbols) == 1) for phi in ("φ", "φ'"))
        assert f"# x = ({x}), x_next = ({x_next}), g = (φ·φ, φ·φ', φ'·φ')\ndef " in path.read_text(encoding="utf-8")
    assert emphatic.rules.names()[:17] == (
        "td", "true_online_td", "etd", "etd_beta", "true_online_etd", "true_online_etd_beta", "bounded_etd",
        "gtd", "gtd2", "true_online_gtd", "htd", "proximal_gtd2", "tdrc", "gq", "tree_backup", "vtrace", "abtd",
    )  # fmt: skip


def test_structure_is_found_and_arrows_are_demanded() -> None:
    A, B = emphatic.rules.get("true_online_etd").form
    assert A == ((1.0, None), (0.0, None))
    assert B == ((None, 0.0), (None, 0.0))
    assert emphatic.rules.get("residual_gradient").form == (((1.0,),), ((None, None),))

    def crossed(step: Scalars, memory: Scalars, x: Scalars, x_next: Scalars, g: Scalars) -> Update:
        return ((1.0, 0.0), (x[0], 0.0)), ((0.0, 0.0), (0.0, 0.0)), ()

    def looks_ahead(step: Scalars, memory: Scalars, x: Scalars, x_next: Scalars, g: Scalars) -> Update:
        return ((1.0, 0.0), (0.0, 1.0)), ((0.0, 0.0), (0.0, x[0])), ()

    def clipped(step: Scalars, memory: Scalars, x: Scalars, x_next: Scalars, g: Scalars) -> Update:
        return ((1, 0.0), (-0.0, min(step[3], 1.0))), ((0.5, 0.0), (0.0, 0)), ()

    for function, message in ((crossed, "takes theta"), (looks_ahead, "takes φ'")):
        with pytest.raises(ValueError, match=message):
            Rule("r", function, ("theta",), ("e",), ())
    # Of literals 0 and 1 alone are left out of kernels.
    assert Rule("r", clipped, ("theta",), ("e",), ()).form == (((1.0, 0.0), (0.0, None)), ((None, 0.0), (0.0, 0.0)))


def test_a_call_of_an_imported_module_is_named() -> None:
    """Python compiles ``np.clip(x)`` in another way where np is imported in the module: that is no change."""

    def clipped(step: Any, memory: Any, x: Any, x_next: Any, g: Any) -> Any:
        alpha, I, lambda_, rho, gamma_next, delta = step
        return ((1.0,),), ((alpha * rho * np.clip(delta, -1.0, 1.0), 0.0),), ()

    def limited(s: Any, z: Any, p: Any, q: Any) -> Any:
        return (np.clip(z[0] + s[0] * p, 0.0, 1.0),)

    wanted = r"\(write min\(max\(x, low\), high\) for np.clip\)\. Got `np.clip\("
    with pytest.raises(
        ValueError, match=rf"'function' parameter .*{wanted}delta, -1.0, 1.0\)` at line \d+ of test_rules"
    ):
        Rule("clipped", clipped, weights=("theta",), traces=(), memory=(), interest=False)
    with pytest.raises(ValueError, match=rf"'component' parameter .*{wanted}"):
        ElementwiseRule(
            "limited",
            lambda z, p, q: (),
            lambda step, memory, sums: (((1.0,),), (step[5],), ()),
            limited,
            weights=("theta",),
            traces=(),
            memory=(),
        )
