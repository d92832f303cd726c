"""Bad input is refused in words and leaves no trace; good input of any make gives what plain input gives.

Every refusal is a ``ValueError`` that names the argument and what was got (and where), after which θ, e, the memory
and the count of steps are the same bits as before. Each test goes through a whole table and shows every hole at once.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import emphatic
from emphatic import Active, Learner
from tests.attack.hostile import LAYOUTS
from tests.support.plain import plain_python
from tests.support.streams import TOLERANCE, Stream, make, relative_error, state

ENGINES = emphatic.engines.available()
#: The rule of w besides θ, with memory and the extra parameters β and κ.
RULE = "tdrc"
n, T = 5, 8
STREAMS = {K: make(3, T, n, K, beta=True) for K in (None, 3)}
#: The least and the largest that each parameter of a step may be.
RANGES = {
    "alpha": (0.0, math.inf),
    "I": (0.0, math.inf),
    "rho": (0.0, math.inf),
    "beta": (0.0, math.inf),
    "lambda_": (0.0, 1.0),
    "gamma_next": (0.0, 1.0),
    "R": (-math.inf, math.inf),
}

pytestmark = pytest.mark.plain
compiled = pytest.mark.parametrize("compiled", [True])  # where machine code could misread an array
engines = pytest.mark.parametrize("engine", ENGINES)
both_K = pytest.mark.parametrize("K", [None, 3])


def warm(engine: str, K: int | None, *, rule: str = RULE, dtype: str = "float64") -> Learner:
    """A learner in mid-stream: nothing in it is 0."""
    learner = Learner(rule, n, K, engine=engine, dtype=dtype)
    make(1, 7, n, K, rule=rule).run(learner)
    return learner


def objection(call: Callable[[], object], *words: str, learner: Learner | None = None) -> list[str]:
    """What is wrong with how bad input is refused: nothing, or one sentence."""
    before = state(learner) if learner else None
    try:
        call()
    except ValueError as error:
        if missing := [word for word in words if word not in str(error)]:
            return [f"{missing} not in {str(error)!r}"]
        if type(error).__name__.startswith("Numba"):
            return [f"numba's own words: {error}"]
    except Exception as error:
        return [f"{type(error).__name__} for {words}: {error}"]
    else:
        return [f"accepted: {words}"]
    return [] if not learner or state(learner) == before else [f"left a trace: {words}"]


def none_of(found: list[str]) -> None:
    """Every hole at once, in full."""
    assert not found, "\n".join(["", *dict.fromkeys(found)])


def step(K: int | None, changed: dict[str, Any] | None = None) -> dict[str, Any]:
    """Good arguments of one ``learn``, but for what is changed."""
    stream = STREAMS[K]
    return {"phi": stream.Phi[0], "phi_next": stream.Phi[1], **stream.parameters(0), **(changed or {})}


def log(K: int | None, changed: dict[str, Any] | None = None) -> dict[str, Any]:
    """Good arguments of one ``run``, but for what is changed."""
    return {"Phi": STREAMS[K].Phi, **STREAMS[K].parameters(), **(changed or {})}


def without_beta(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if name != "beta"}


def step_of(rule: str, K: int | None, changed: dict[str, Any]) -> dict[str, Any]:
    """Arguments of one ``learn`` of a rule whose kernels are compiled: one without β, or one without interest."""
    return without_beta(step(K, changed)) if rule == "true_online_etd" else step(K, {"I": 1.0, **changed})


#: Not numbers at all, and what the message should say was got.
NOT_NUMBERS: dict[str, tuple[Any, str]] = {
    "a string": ("0.5", "'0.5'"),
    "bytes": (b"1", "b'1'"),
    "None": (None, "None"),
    "complex": (0.5 + 1j, "j"),
    "an object": (object(), "object"),
    "a dict": ({"a": 1}, "{'a': 1}"),
    "a ragged list": ([[0.1], [0.2, 0.3]], "[[0.1], [0.2, 0.3]]"),
    "a list with None": ([0.1, None], "None"),
    "a time": (np.datetime64("2020-01-01"), "2020"),
    "an int beyond any float": (10**400, "1000000"),
    "a fraction": (Fraction(1, 2), "Fraction"),
    "a decimal": (Decimal("0.5"), "Decimal"),
    "a masked value": (np.ma.masked, "masked"),
    "an Active": (Active([1]), "Active"),
}  # fmt: skip


@engines
@both_K
@pytest.mark.parametrize("name", RANGES)
@compiled
def test_a_bad_parameter_of_learn(engine: str, K: int | None, name: str, compiled: bool) -> None:
    if name == "beta":  # of a rule that is compiled for few entries
        with plain_python():
            objections_of_learn(engine, K, name, "true_online_gtd")
    else:
        objections_of_learn(engine, K, name, "true_online_etd")


def objections_of_learn(engine: str, K: int | None, name: str, rule: str) -> None:
    learner = warm(engine, K, rule=rule)
    assert learner.e.any()
    low, high = RANGES[name]
    bad: list[tuple[Any, str]] = [(v, str(v)) for v in (math.nan, math.inf, -math.inf)]
    bad += [(np.float32(math.nan), "nan"), (np.array(math.inf), "inf"), (np.longdouble("1e4000"), "inf")]
    bad += [(low - 0.25, str(low - 0.25))] * (low > -math.inf) + [(1.25, "1.25")] * (high < math.inf)
    bad += [(np.zeros(7), "(7,)"), ([], "(0,)"), (np.zeros((1, 1)), "(1, 1)"), (np.zeros((2, 2, 2)), "(2, 2, 2)")]
    bad += [([0.5], "(1,)")] if K is None else [([0.5, 0.5], "(2,)"), (np.zeros((3, 1)), "(3, 1)")]
    bad += NOT_NUMBERS.values()
    found = []
    for value, got in bad:
        words = (f"'{name}' parameter of learn", got)
        found += objection(partial(learner.learn, **step_of(rule, K, {name: value})), *words, learner=learner)
    if K is not None:
        last = partial(learner.learn, **step_of(rule, K, {name: [0.5, 0.5, math.nan]}))
        found += objection(last, f"'{name}' parameter of learn", "nan", "learner 2", learner=learner)
    none_of(found)


@engines
@both_K
@pytest.mark.parametrize("name", RANGES)
def test_a_bad_parameter_of_run(engine: str, K: int | None, name: str) -> None:
    """Bad at a late step too: then none of the steps before it is taken."""
    learner = warm(engine, K)
    low, high = RANGES[name]
    out = [math.nan, math.inf, -math.inf] + [low - 0.25] * (low > -math.inf) + [1.25] * (high < math.inf)
    bad: list[tuple[Any, tuple[str, ...]]] = [(v, (str(v),)) for v in out]
    for v in out:
        late = STREAMS[K].parameters()[name].copy()
        late[(6,) if K is None else (6, 1)] = v
        bad.append((late, (str(v), "step 6", *["learner 1"] * (K is not None))))
    late = STREAMS[K].parameters()[name].copy()
    late[1], late[5] = math.inf, -math.inf  # their sum is NaN, and worth no warning
    bad.append((late, ("inf", "step 1")))
    for shape in [(T + 1,), (T - 1,), (0,), (1,), (T + 1, 1), (T, 2), (1, 1, 1)] + [(T, 1)] * (K is None):
        bad.append((np.full(shape, 0.5), (str(shape),)))
    if K is not None:
        bad.append((np.array([0.5, math.nan, 0.5]), ("nan", "learner 1")))
        bad.append((np.full((3, T), 0.5), ("(3, 8)", "(8, 3)")))
    bad += [(value, (got,)) for value, got in NOT_NUMBERS.values()]
    bad += [(np.array(["0.5"] * T), ("0.5",)), (np.full(T, 1j), ("1.j",)), (np.full(T, None), ("None",))]
    masked = np.ma.array(np.full(T, 0.5), mask=np.arange(T) == 4)
    bad.append((masked, ("masked",)))
    found = []
    for value, got in bad:
        words = (f"'{name}' parameter of run", *got)
        found += objection(partial(learner.run, **log(K, {name: value})), *words, learner=learner)
    none_of(found)


def csr(rows: int, **changed: Any) -> Any:
    """One feature a row, but for what is changed, as it comes from a damaged file: nothing is checked."""
    array = sp.csr_array((rows, n))
    array.data, array.indices, array.indptr = np.ones(rows), np.arange(rows) % n, np.arange(rows + 1)
    for name, (at, value) in changed.items():
        part = getattr(array, name).astype(type(value)) if isinstance(value, complex) else getattr(array, name)
        part[at] = value
        setattr(array, name, part)
    return array


def bad_features(rows: int) -> Iterator[tuple[str, Any, tuple[str, ...]]]:
    """φ that no function takes, of one step (rows = 0) or of many: what it is, the value, and words of the refusal."""
    flat = rows == 0
    good = np.ones(n) if flat else np.ones((rows, n))
    step_6 = () if flat else ("step 6",)
    for v in (math.nan, math.inf, -math.inf):
        bad = good.copy()
        bad[2 if flat else (6, 2)] = v
        yield f"{v}", bad, (str(v), "feature 2", *step_6)
        yield f"{v}, float32", bad.astype(np.float32), (str(v), "feature 2", *step_6)
        yield f"{v}, a list", bad.tolist(), (str(v), "feature 2", *step_6)
    bad = bad.copy()
    bad[0 if flat else (0, 0)] = math.inf
    yield "both infinities", bad, ("feature 0",)
    wrong: list[Any] = [good[..., :-1], np.ones((*good.shape[:-1], n + 1)), good.ravel()[:0], np.float64(1.0)]
    wrong += [good[None]] if flat else [good[0], good[None], np.ones((n, rows)), np.ones((rows, 0))]
    for shaped in wrong:
        yield f"shape {np.shape(shaped)}", shaped, (f"shape {np.shape(shaped)}",)
    for what, (value, got) in NOT_NUMBERS.items():
        if what not in ("an Active", "a masked value"):
            yield what, value, (got,)
    yield "strings", good.astype(str), ("'1.0'",)
    yield "objects", good.astype(object), ("1.0",)
    yield "complex", good + 0j, ("j",)
    yield "records", np.zeros(good.shape, "f8,f8"), ()
    yield "masked", np.ma.array(good, mask=good == good), ("masked",)
    index = np.array([0, n]) if flat else np.where(np.arange(rows)[:, None] == 6, [0, n], [0, 1])
    yield "an index of n", Active(index), (f"Got {n}", f"n = {n}", *step_6)
    yield "an index of 2⁴⁰", Active(index + 2**40), (str(2**40),)
    yield "Active of the other kind", Active([[0]] if flat else [0]), ("shape",)
    yield "a CSC array", sp.csc_array(np.ones((rows + 1, n))), ("csc",)
    vector = sp.csr_array(np.ones(n))
    if vector.ndim == 1:  # scipy >= 1.13
        yield "a CSR vector", vector, (f"shape {(n,)}",)
    if flat:
        yield "a CSR array", sp.csr_array(np.ones((1, n))), ("CSR",)
        return
    yield "CSR of another width", sp.csr_array(np.ones((rows, n + 1))), (f"shape {(rows, n + 1)}",)
    yield "CSR with NaN", csr(rows, data=(6, math.nan)), ("nan", "step 6")
    yield "CSR, complex", csr(rows, data=(6, 1j)), ("j",)
    yield "CSR with a column twice", csr(rows, indices=(6, 0), indptr=(6, 5)), ("column 0", "step 6", "sum_duplicates")
    for column in (n, -1, -7):
        yield f"CSR with column {column}", csr(rows, indices=(6, column)), (f"column {column}",)
    for t, start in ((1, 9_999_999), (rows, 9_999_999), (rows, -1), (2, 0), (0, -5), (0, 1)):
        yield f"CSR whose row {t} starts at {start}", csr(rows, indptr=(t, start)), ()
    short = csr(rows)
    short.data = short.data[:-1]
    yield "CSR with too few values", short, ()


@engines
@both_K
@pytest.mark.parametrize("name", ["phi", "phi_next"])
@compiled
def test_bad_features_of_learn(engine: str, K: int | None, name: str, compiled: bool) -> None:
    rule = "true_online_etd"
    learner = warm(engine, K, rule=rule)
    found = []
    for what, value, got in bad_features(0):
        words = (f"'{name}' parameter of learn", *got)
        for good in ({}, {"phi": Active([1]), "phi_next": Active([1])}):
            call = partial(learner.learn, **step_of(rule, K, {**good, name: value}))
            found += [f"{what}: {o}" for o in objection(call, *words, learner=learner)]
    none_of(found)


@engines
@both_K
@pytest.mark.parametrize("name", ["Phi", "Phi_next"])
def test_bad_features_of_run(engine: str, K: int | None, name: str) -> None:
    learner = warm(engine, K)
    good = {"Phi": STREAMS[K].Phi[:-1]} if name == "Phi_next" else {}
    found = []
    for what, value, got in bad_features(T if name == "Phi_next" else T + 1):
        if value is not None or name == "Phi":
            call = partial(learner.run, **log(K, {**good, name: value}))
            words = (f"'{name}' parameter of run", *got)
            found += [f"{what}: {o}" for o in objection(call, *words, learner=learner)]
    for rows in (0, T - 1, T + 1):
        call = partial(learner.run, **log(K, {"Phi": np.ones((T, n)), "Phi_next": np.ones((rows, n))}))
        found += objection(call, "'Phi_next' parameter of run", str(T), str(rows), learner=learner)
    for nothing in (np.ones((0, n)), Active(np.ones((0, 1), int)), sp.csr_array((0, n))):
        call = partial(learner.run, **log(K, {"Phi": nothing}))
        found += objection(call, "'Phi' parameter of run", "none", learner=learner)
    none_of(found)


@engines
@both_K
@compiled
def test_a_bad_row_far_into_a_wide_log(engine: str, K: int | None, compiled: bool) -> None:
    """Rows may be looked over as a run goes on: then the steps before are taken back, also where they diverge first."""
    wide = 40_000
    Phi = np.zeros((7, wide))
    Phi[:, :3] = 1.0
    learner = Learner("true_online_etd", wide, K, engine=engine)
    learner.run(Phi, 1.0, 0.9, alpha=0.1, lambda_=0.5)
    Phi[5, wide - 1] = math.nan
    words = ("'Phi", "nan", f"feature {wide - 1}")
    calls: list[dict[str, Any]] = [{}, {"predictions": False}, {"alpha": 1e300}]
    calls += [{"probe": (Phi[:1], [1.0], [1.0]), "probe_every": 2}, {"Phi": Phi[:-1], "Phi_next": Phi[1:]}]
    found = []
    for call in calls:
        arguments: dict[str, Any] = {"Phi": Phi, "R": 1.0, "gamma_next": 0.9, "alpha": 0.1, **call}
        found += objection(partial(learner.run, **arguments), *words, learner=learner)
    none_of(found)
    again = learner.copy()
    for each in (learner, again):
        each.run(Phi[:4], 1.0, 0.9, alpha=0.1)
    assert state(learner) == state(again)


@engines
@both_K
@compiled
def test_bad_features_of_predict(engine: str, K: int | None, compiled: bool) -> None:
    """Also where every weight is 0, so that no prediction shows it, and of values changed after they were checked."""
    good = {"a CSR array", "Active of the other kind", f"shape {(1, n)}", f"shape {(n,)}"}
    found = []
    changed = Active([[0, 1], [1, 2]], np.ones((2, 2)))
    changed.values[1, 0] = math.nan
    for learner in (warm(engine, K, rule="true_online_etd"), Learner("true_online_etd", n, K, engine=engine)):
        for what, value, got in (*bad_features(0), *bad_features(T), ("changed values", changed, ("nan", "step 1"))):
            if what not in good:
                words = ("'phi' parameter of predict", *got)
                found += [f"{what}: {o}" for o in objection(partial(learner.predict, value), *words, learner=learner)]
    none_of(found)


@pytest.mark.parametrize("engine", ["dense", "sparse", "reference"])
@pytest.mark.parametrize("K", [None, 3])
@compiled
def test_what_float32_cannot_hold(engine: str, K: int | None, compiled: bool) -> None:
    """1e300 is a fine number, but not in a float32 learner, however it comes."""
    learner = warm(engine, K, rule="true_online_etd", dtype="float32")
    Phi = np.full((T + 1, n), 1e300)
    where = {"an array": Phi, "a list": Phi.tolist(), "a CSR array": sp.csr_array(Phi)}
    where["an Active"] = Active([[0]] * (T + 1), np.full((T + 1, 1), 1e300))
    found = []
    for what, Phi in where.items():
        calls = {
            "Phi": partial(learner.run, **without_beta(log(K, {"Phi": Phi}))),
            "phi": partial(learner.predict, Phi),
        }
        for name, call in calls.items():
            found += [f"{what}: {o}" for o in objection(call, f"'{name}'", "float32", "1e+300", learner=learner)]
    for phi in (np.full(n, 1e300), Active([0, 1], [1.0, 1e300])):
        for name in ("phi", "phi_next"):
            call = partial(learner.learn, **without_beta(step(K, {name: phi})))
            found += objection(call, f"'{name}' parameter of learn", "float32", "1e+300", learner=learner)
    none_of(found)


@engines
def test_where_T_is_K(engine: str) -> None:
    """A 1-D array could be either: it is refused with the remedy, and the remedy works."""
    K = T
    stream = make(5, T, n, K, beta=True)
    p: dict[str, Any] = dict(stream.parameters())
    a = np.linspace(0.01, 0.02, T)
    learner = warm(engine, K)
    words = ("'alpha' parameter of run", "(8, 1)", "(1, 8)", "Got shape (8,)")
    none_of(objection(partial(learner.run, stream.Phi, **{**p, "alpha": a}), *words, learner=learner))
    for view, full in ((a[:, None], np.repeat(a[:, None], K, 1)), (a[None, :], np.repeat(a[None, :], T, 0))):
        one, other = warm(engine, K), warm(engine, K)
        one.run(stream.Phi, **{**p, "alpha": view})
        other.run(stream.Phi, **{**p, "alpha": full})
        assert state(one) == state(other)
    single = Learner("true_online_etd", 2, 1, engine=engine)
    assert single.run(np.ones((2, 2)), [1.0], [0.5], alpha=[0.1]).shape == (1, 1)  # T = K = 1: no doubt


@engines
@both_K
def test_missing_and_unknown_extra_parameters(engine: str, K: int | None) -> None:
    rule = "true_online_etd_beta"  # the extra parameter of which is required
    learner, plain = warm(engine, K, rule=rule), warm(engine, K, rule="td")
    one, many = without_beta(step(K)), without_beta(log(K))
    found = objection(partial(learner.learn, **one), "'decay' parameter of learn", "required", rule, learner=learner)
    found += objection(partial(learner.run, **many), "'decay' parameter of run", "required", rule, learner=learner)
    for name in ("beta", "X", "k", "scalars", "index", "pi"):
        for call in (partial(plain.learn, **one), partial(plain.run, **many)):
            found += objection(partial(call, **{name: 0.5}), f"'{name}' parameter", "'td'", learner=plain)
    found += objection(partial(learner.learn, **one, beta=0.5), "'beta'", rule, "decay", learner=learner)
    none_of(found)
    with pytest.raises(TypeError):
        plain.learn(0.1, 1.0)  # type: ignore[call-arg]


S = 3
PROBE = (np.ones((S, n)), np.zeros(S), np.ones(S))


@engines
@both_K
def test_a_bad_probe(engine: str, K: int | None) -> None:
    Phi_s, v, d = PROBE
    bad: list[Any] = [5, "abc", (), {"a": 1}, (Phi_s, v), (Phi_s, v, d, d), (Phi_s[:0], v[:0], d[:0])]
    bad += [(given, v, d) for given in (None, Phi_s[0], Phi_s[:, :-1], Phi_s * math.inf, Phi_s * 1j)]
    bad += [(Phi_s, given, d) for given in (v[:-1], v * math.nan, v.astype(str), [[1.0], [1.0, 2.0]])]
    bad += [(Phi_s, v, given) for given in (d[:-1], -d, 0 * d, d * math.inf, [1.0, None, 1.0])]
    learner = warm(engine, K)
    run = partial(learner.run, **log(K))
    found = []
    for value in bad:
        call = partial(run, probe=value)
        found += [f"{value!r}: {o}" for o in objection(call, "'probe' parameter of run", learner=learner)]
    for every in (0, -1, 1.5, True, "2", None):
        call = partial(run, probe=PROBE, probe_every=every)
        found += objection(call, "'probe_every' parameter of run", repr(every), learner=learner)
    none_of(found)


@pytest.mark.parametrize("engine", [*ENGINES, "auto"])
@both_K
def test_a_bad_theta(engine: str, K: int | None) -> None:
    learner = Learner(RULE, n, K) if engine == "auto" else warm(engine, K)
    shapes = [(), (1,), (n - 1,), (n + 1,), (2, n), (n, 3), (1, 1, n), (3, 1)] + [(1, n)] * (K is None)
    bad: list[tuple[Any, str]] = [(np.ones(shape), str(shape)) for shape in shapes]
    good = np.ones(n if K is None else (K, n))
    bad += [(np.where(np.arange(n) == 2, v, good), "finite") for v in (math.nan, math.inf, -math.inf)]
    bad += [(good + 1j, "j"), (good.astype(str), "1.0"), (good.astype(object), "1.0")]
    bad += [(np.ma.array(good, mask=good == 1), "masked")]
    bad += [(value, got) for what, (value, got) in NOT_NUMBERS.items() if "masked" not in what]
    found = []
    for value, got in bad:
        found += objection(partial(setattr, learner, "theta", value), "'theta'", got, learner=learner)
    single = Learner("td", n, K, dtype="float32", engine="reference")
    found += objection(partial(setattr, single, "theta", good * 1e300), "'theta'", "float32", learner=single)
    none_of(found)


def test_bad_constructors() -> None:
    """The argument and what was got; nothing half-made."""
    bad: list[tuple[str, Any]] = [
        (name, value)
        for name in ("n", "K", "threads")
        for value in (0, -1, True, False, 3.0, "3", math.nan, [3], np.array(3), 1j, object(), np.bool_(True))
    ]
    bad += [("n", None), ("threads", None)]
    bad += [(name, 10**power) for name in ("n", "K") for power in (18, 19, 30)]  # numpy has its own words for each
    names: list[Any] = [None, "", "TD", "nope", b"td", 3, [], {}, object(), ["td"]]
    names += [np.array(["td"]), np.array(["td", "etd"])]
    bad += [("rule", value) for value in names]
    bad += [("engine", value) for value in (*names, "Dense", "cuda", "td", np.array(["dense"]))]
    bad += [("dtype", value) for value in ("float16", int, complex, "nope", {}, [], "f8,f8", object(), 3, b"\0")]
    found = []
    for name, value in bad:
        got = str(value) if isinstance(value, int | float) else ""
        for engine in ("auto", *ENGINES) if name in ("n", "K") else ("auto",):
            call = partial(Learner, **{"rule": "td", "n": 3, "engine": engine, name: value})
            found += [f"{name}={value!r}: {o}" for o in objection(call, f"'{name}' parameter", got)]
    none_of(found)


def test_bad_active() -> None:
    indices: list[tuple[Any, tuple[str, ...]]] = [
        (5, ("shape ()",)),
        ([[[1]]], ("(1, 1, 1)",)),
        ([1.0, 2.0], ("float64",)),
        ([1, math.nan], ("float64",)),
        ([True, False], ("bool",)),
        ("12", ()),
        (["1", "2"], ()),
        (None, ()),
        ([1, None], ("object",)),
        ([1j], ("complex",)),
        ({1, 2}, ("object",)),
        ([[1, 2], [3]], ("[[1, 2], [3]]",)),
        ([10**30], ()),
        ([3, -2], ("-2",)),
        ([[3, 1], [0, -2]], ("-2", "step 1")),
        ([3, 4, 3], ("3 more than once", "-1")),
        ([[3, 4], [4, 3], [7, 7]], ("7 more than once", "step 2")),
        ([0, 0], ("0 more than once",)),
        (np.array([2**64 - 1], np.uint64), ("18446744073709551615",)),
        (np.array([2**63], np.uint64), ("9223372036854775808",)),
        (np.array([1, 2], "M8[s]"), ("datetime64",)),
        (np.ma.array([1, 2], mask=[False, True]), ("masked",)),
        (Active([1]), ()),
    ]
    found = []
    for value, got in indices:
        found += [f"{value!r}: {o}" for o in objection(partial(Active, value), "'indices' parameter of Active", *got)]
    values: list[tuple[Any, tuple[str, ...]]] = [
        (1.0, ("(2,)", "shape ()")),
        ([1.0], ("(2,)", "(1,)")),
        ([[1.0, 2.0]], ("(1, 2)",)),
        ([], ("(0,)",)),
        ([1.0, math.nan], ("nan", "1")),
        ([-math.inf, 1.0], ("-inf", "0")),
        (["1", "2"], ("'1'",)),
        ("ab", ("'ab'",)),
        ([1.0, 1j], ("j",)),
        ([1.0, None], ("None",)),
        ([10**400, 1], ("1000000",)),
        ([[1.0], [1.0, 2.0]], ("[[1.0], [1.0, 2.0]]",)),
        (np.array([1, 2], "M8[s]"), ("1970",)),
        (np.array([1, 2], object), ("object",)),
        (np.ma.array([1.0, 2.0], mask=[False, True]), ("masked",)),
        (np.array([1, "1e4000"], np.longdouble), ("inf",)),
        (object(), ("object",)),
    ]
    for value, got in values:
        call = partial(Active, [4, 7], value)
        found += [f"{value!r}: {o}" for o in objection(call, "'values' parameter of Active", *got)]
    late = np.ones((4, 2))
    late[3, 1] = math.nan
    found += objection(partial(Active, [[1, 2]] * 4, late), "'values' parameter of Active", "nan", "step 3")
    none_of(found)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_active_changed_behind_our_back(engine: str) -> None:
    """A caller's own buffer may change after it was checked: no crash, no wild write, and no other error than ours."""
    buffer = np.tile([0, 1], (T + 1, 1))
    Phi = Active(buffer)
    phi = Active([0, 1])
    for bad in (10**12, -(10**12), n, 1):
        learner, fresh = warm(engine, None), warm(engine, None)
        Phi.indices[4] = phi.indices[:] = bad
        with suppress(ValueError, emphatic.Diverged):
            fresh.run(**log(None, {"Phi": Phi}))
        with suppress(ValueError, emphatic.Diverged):
            learner.learn(**step(None, {"phi": phi}))
        assert all(np.isfinite(x.theta).all() and np.isfinite(x.e).all() for x in (learner, fresh))


# ------------------------------------------------------------------------------------------------ good input


MAKES: dict[str, Callable[[Any], Any]] = LAYOUTS | {
    "tuples": lambda a: tuple(map(tuple, a)) if np.ndim(a) == 2 else tuple(a) if np.ndim(a) else float(a),
    "float32": np.float32,
    "float16": np.float16,
    "long double": np.longdouble,
    "big-endian float32": lambda a: np.asarray(a, ">f4"),
    "0-d or subclass": lambda a: np.array(a) if np.ndim(a) == 0 else np.array(a).view(np.memmap),
    "masked, nothing masked": np.ma.array,
    "strided by 0": lambda a: np.broadcast_to(a, (2, *np.shape(a)))[1],
}


def eighths(K: int | None, beta: bool) -> Stream:
    """A stream in eighths, exact in every float type."""
    stream = make(11, T, n, K, beta=beta)
    p: dict[str, Any] = {name: np.round(8 * v) / 8 for name, v in stream.parameters().items()}
    p["alpha"] = p["alpha"] * 0 + 0.125
    return Stream(np.round(8 * stream.Phi) / 8, extra={name: p.pop(name) for name in stream.extra}, **p)


@engines
@both_K
@pytest.mark.parametrize("how", MAKES)
@compiled
def test_arrays_of_any_make(engine: str, K: int | None, how: str, compiled: bool) -> None:
    assert_any_make_is_the_same("true_online_etd", engine, K, how)


@engines
@both_K
def test_extra_parameters_of_any_make(engine: str, K: int | None) -> None:
    for how in MAKES:
        assert_any_make_is_the_same(RULE, engine, K, how)


def assert_any_make_is_the_same(rule: str, engine: str, K: int | None, how: str) -> None:
    """The same bits as from plain arrays in ``run``; in ``learn`` and ``predict`` the same to rounding."""
    stream, given = eighths(K, beta=rule == RULE), MAKES[how]
    plain, other, stepped = (Learner(rule, n, K, engine=engine) for _ in range(3))
    theta = np.round(8 * np.random.default_rng(0).normal(size=(K or 1, n))) / 8
    plain.theta = theta if K else theta[0]
    other.theta = stepped.theta = given(theta if K else theta[0])
    expected = stream.run(plain)
    p = {name: given(v) for name, v in stream.parameters().items()}
    assert np.array_equal(other.run(given(stream.Phi), **p), expected)
    assert state(other) == state(plain)
    p = stream.parameters()
    for t in range(T):
        phi, phi_next = given(stream.Phi[t]), given(stream.Phi[t + 1])
        assert relative_error(stepped.predict(phi), expected[t]) <= TOLERANCE["float64"]
        stepped.learn(phi=phi, phi_next=phi_next, **{name: given(v[t]) for name, v in p.items()})
    assert relative_error(stepped.theta, plain.theta) <= TOLERANCE["float64"]
    assert relative_error(stepped.e, plain.e) <= TOLERANCE["float64"]
    assert relative_error(stepped.predict(given(stream.Phi)), plain.predict(stream.Phi)) <= 1e-13


@engines
@both_K
@compiled
def test_whole_numbers_and_booleans(engine: str, K: int | None, compiled: bool) -> None:
    rng = np.random.default_rng(4)
    Phi = rng.integers(-1, 2, (T + 1, n))
    R, end, went = rng.integers(-3, 4, T), rng.random(T) < 0.7, rng.random(T) < 0.5
    learners = [Learner("true_online_etd", n, K, engine=engine) for _ in range(7)]
    floats: dict[str, Any] = {"alpha": 0.125, "lambda_": 1.0, "I": 1.0}
    expected = learners[0].run(Phi.astype(float), R.astype(float), end.astype(float), rho=went.astype(float), **floats)
    many: list[tuple[Any, Any, Any, Any]] = [
        (Phi.astype(np.int8), R.astype(np.int16), end.astype(np.uint8), went),
        (Phi.tolist(), R.tolist(), end.tolist(), went.tolist()),
        (Phi, R.astype(">i4"), end, went.astype(np.uint64)),
    ]
    for learner, (Phi_, R_, end_, went_) in zip(learners[1:], many, strict=False):
        got = learner.run(Phi_, R_, end_, rho=went_, alpha=0.125, lambda_=True, I=np.int32(1))
        assert np.array_equal(got, expected)
        assert state(learner) == state(learners[0])
    for learner, scalar in zip(learners[4:], (np.int64, np.float32, bool), strict=True):
        for t in range(T):
            rho, gamma_next = scalar(went[t]), scalar(end[t])
            learner.learn(0.125, scalar(1), scalar(1), Phi[t], rho, int(R[t]), Phi[t + 1].tolist(), gamma_next)
        assert relative_error(learner.theta, learners[0].theta) <= TOLERANCE["float64"]


@engines
@both_K
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("separate", [False, True])
@compiled
def test_sparse_features_in_every_dress(engine: str, K: int | None, dtype: str, separate: bool, compiled: bool) -> None:
    """Active of any integers, CSR array and matrix and a plain array are one and the same φ, on any engine."""
    rule = "true_online_etd"
    stream = make(21, 40, 9, K, active=3, binary=False, separate=separate)
    assert stream.indices is not None
    Phi, Phi_next = stream.features(active=False)
    reference = Learner(rule, 9, K, engine="reference")
    expected = stream.run(reference, active=False)

    def active(kind: str) -> tuple[Any, Any]:
        now = Active(stream.indices.astype(kind), stream.values)  # type: ignore[union-attr]
        return now, Active(stream.indices_next.astype(kind), stream.values_next) if separate else None  # type: ignore[union-attr]

    dresses: list[tuple[Any, Any]] = [(Phi, Phi_next), active("i4"), active(">i8"), active("i1")]
    dresses += [(kind(Phi), kind(Phi_next) if separate else None) for kind in (sp.csr_array, sp.csr_matrix)]
    if separate:
        dresses += [(active("i8")[0], Phi_next), (Phi, active("i8")[1]), (sp.csr_array(Phi), active("i8")[1])]
    for now, following in dresses:
        learner = Learner(rule, 9, K, engine=engine, dtype=dtype)
        p: dict[str, Any] = dict(stream.parameters())
        got = learner.run(now, Phi_next=following, **p)
        assert relative_error(got, expected) <= TOLERANCE[dtype]
        assert relative_error(learner.theta, reference.theta) <= TOLERANCE[dtype]
        assert relative_error(learner.e, reference.e) <= TOLERANCE[dtype]
        assert relative_error(learner.predict(now), reference.predict(Phi)) <= TOLERANCE[dtype]
    t = 5
    phis: list[Any] = [Phi[t], Active(stream.indices[t].astype(np.int32), stream.values[t])]  # type: ignore[index]
    values = [learner.predict(phi) for phi in phis]
    assert relative_error(values[1], values[0]) <= TOLERANCE[dtype]
    assert np.shape(values[0]) == (() if K is None else (K,))


@engines
@pytest.mark.parametrize(
    ("rule", "K", "compiled"),
    [("true_online_gtd", None, True), ("true_online_gtd", 3, False), ("true_online_etd", 3, True)],
)
def test_no_steps(engine: str, K: int | None, rule: str, compiled: bool) -> None:
    """T = 0 is a log too: an empty answer of the right shape and kind, and nothing changes."""
    learner = warm(engine, K, rule=rule)
    extra = {"beta": 0.5} if "beta" in learner.rule.extra else {}
    before = state(learner)
    shape = (0,) if K is None else (0, K)
    nothing: Any = np.empty((0, n))
    calls: list[dict[str, Any]] = [
        {"Phi": np.ones((1, n))},
        {"Phi": [[1.0] * n], "R": 1.0, "gamma_next": 0.5, "alpha": 0.1, **extra},
        {"Phi": nothing, "Phi_next": nothing},
        {"Phi": Active(np.array([[1]]))},
        {"Phi": Active(np.empty((0, 3), int)), "Phi_next": nothing},
        {"Phi": sp.csr_array((1, n))},
        {"Phi": sp.csr_array((0, n)), "Phi_next": sp.csr_array((0, n))},
    ]
    empty: dict[str, Any] = {name: [] for name in ("R", "gamma_next", "alpha", *extra)}
    for call in calls:
        for dress in ({}, {"rho": np.empty(shape), "I": 1.0}):
            got = learner.run(**{**empty, **dress, **call})
            assert got.shape == shape
            assert got.dtype == np.float64
        answer, error = learner.run(**{**empty, **call}, probe=PROBE, probe_every=2)
        assert answer.shape == error.shape == shape
        assert learner.run(**{**empty, **call}, predictions=False) is None
    for phi in (nothing, Active(np.empty((0, 2), int)), sp.csr_array((0, n))):
        assert learner.predict(phi).shape == shape
    assert state(learner) == before
    bad = [[1.0] * (n - 1) + [math.nan]]  # though no step uses it
    none_of(objection(partial(learner.run, bad, **empty), "'Phi' parameter of run", "nan", learner=learner))


@engines
@both_K
def test_no_features(engine: str, K: int | None) -> None:
    """φ = 0 in every dress: no active index, only −1, no column at all."""
    plain = warm(engine, K)
    expected = plain.run(**log(K, {"Phi": np.zeros((T + 1, n))}))
    dresses = [Active(np.empty((T + 1, 0), int)), Active(np.full((T + 1, 2), -1)), sp.csr_array((T + 1, n))]
    dresses += [Active(np.full((T + 1, 2), -1), np.ones((T + 1, 2)))]
    for Phi in dresses:
        learner = warm(engine, K)
        assert relative_error(learner.run(**log(K, {"Phi": Phi})), expected) == 0.0
        assert relative_error(learner.theta, plain.theta) <= 1e-13
        assert relative_error(learner.predict(Phi), expected[:1].repeat(T + 1, axis=0)) == 0.0
    for phi in (np.zeros(n), Active([]), Active([-1, -1])):
        delta = learner.learn(**step(K, {"phi": phi, "phi_next": phi}))
        assert relative_error(delta, STREAMS[K].R[0]) == 0.0


@engines
def test_one_of_K_is_one(engine: str) -> None:
    """K=1 differs from K=None by an axis and by nothing else."""
    stream, many = make(3, T, n, None, beta=True), make(3, T, n, 1, beta=True)
    one, other = (Learner(RULE, n, K, engine=engine) for K in (None, 1))
    expected = stream.run(one)
    p: dict[str, Any] = {name: v[:, None] for name, v in stream.parameters().items()}
    got = other.run(many.Phi, **p)
    assert (expected.shape, got.shape) == ((T,), (T, 1))
    assert relative_error(got[:, 0], expected) <= TOLERANCE["float64"]
    for name in ("theta", "e"):
        assert (getattr(one, name).shape, getattr(other, name).shape) == ((n,), (1, n))
        assert relative_error(getattr(other, name)[0], getattr(one, name)) <= TOLERANCE["float64"]
    for name in one.rule.memory:
        assert isinstance(getattr(one, name), float)
        assert getattr(other, name).shape == (1,)
    assert (one.K, other.K, one.n, one.steps, other.steps) == (None, 1, n, T, T)
    delta, deltas = one.learn(**step(None)), other.learn(**step(None))
    assert isinstance(delta, float)
    assert deltas.shape == (1,)
    assert relative_error(deltas[0], delta) <= TOLERANCE["float64"]
    phi = stream.Phi[0]
    assert isinstance(one.predict(phi), float)
    assert other.predict(phi).shape == (1,)
    assert one.predict(stream.Phi).shape == (T + 1,)
    assert other.predict(stream.Phi).shape == (T + 1, 1)
    none_of(objection(partial(other.learn, **step(None, {"alpha": np.ones((1, 1))})), "'alpha'", "(1, 1)"))


@engines
@both_K
def test_without_predictions(engine: str, K: int | None) -> None:
    quiet, plain = warm(engine, K), warm(engine, K)
    assert quiet.run(**log(K), predictions=False) is None
    plain.run(**log(K))
    assert state(quiet) == state(plain)


# ------------------------------------------------------------------------------------------------ what a learner shows


@pytest.mark.parametrize("engine", [*ENGINES, "auto"])
@both_K
def test_what_is_read_is_a_copy(engine: str, K: int | None) -> None:
    """θ, e and memory cannot be written to, nor do they change when the learner does."""
    learner = warm(engine, K) if engine != "auto" else Learner(RULE, n, K)
    seen = {name: getattr(learner, name) for name in ("theta", "w", "e", "gamma", "ew", "ee")}
    kept = {name: np.array(value) for name, value in seen.items()}
    for name in ("theta", "w", "e"):
        with pytest.raises(ValueError, match="read-only"):
            seen[name][...] = 1.0
    answers = [learner.run(**log(K)), learner.learn(**step(K)), learner.predict(STREAMS[K].Phi)]
    copies = [np.array(a) for a in answers]
    STREAMS[K].run(learner)
    learner.learn(**step(K))
    assert all(np.array_equal(a, b) for a, b in zip(answers, copies, strict=True))
    assert all(np.array_equal(seen[name], kept[name]) for name in seen)
    for name in ("e", "w", "ew", "gamma", "n", "K", "steps", "engine", "dtype", "nope"):
        with pytest.raises(AttributeError, match=name):
            setattr(learner, name, getattr(learner, name, 1))
    assert Learner("etd", n).F == 0.0
    with pytest.raises(AttributeError, match=r"'F'.*theta, w, e, gamma, ew, ee"):
        learner.F  # noqa: B018
    assert not hasattr(learner, "F")


@pytest.mark.parametrize("engine", [*ENGINES, "auto"])
@both_K
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_theta_can_be_set_at_any_time(engine: str, K: int | None, dtype: str) -> None:
    """Before the first step and in mid-stream; traces and memory stay, and the caller's array is not kept."""
    rng = np.random.default_rng(2)
    first, second = (rng.normal(size=n if K is None else (K, n)).astype(dtype) for _ in range(2))
    rule = RULE if dtype == "float64" else "true_online_etd"
    learner, reference = (Learner(rule, n, K, engine=e, dtype=dtype) for e in (engine, "reference"))
    stream = make(3, T, n, K, beta=rule == RULE)
    for each in (learner, reference):
        given = first.copy()
        each.theta = given
        given[...] = 7.0
        assert np.array_equal(each.theta, first)
        stream[:5].run(each)
        e, memory = each.e, [getattr(each, name) for name in each.rule.memory]
        each.theta = second.tolist()
        assert np.array_equal(each.theta, second)
        assert relative_error(each.e, e) <= {"float64": 1e-14, "float32": 1e-6}[dtype]
        assert [np.array_equal(getattr(each, name), m) for name, m in zip(each.rule.memory, memory, strict=True)]
        stream[5:].learn(each)
    assert relative_error(learner.theta, reference.theta) <= TOLERANCE[dtype]
    assert relative_error(learner.predict(stream.Phi), reference.predict(stream.Phi)) <= TOLERANCE[dtype]


@pytest.mark.parametrize("engine", [*ENGINES, "auto"])
@both_K
@pytest.mark.parametrize("how", ["copy", "copy.copy", "copy.deepcopy", "pickle"])
def test_copies_are_independent(engine: str, K: int | None, how: str) -> None:
    """However a learner is copied: the same bits at first and after the same steps, and no effect on each other."""
    import copy
    import pickle

    ways: dict[str, Callable[[Learner], Learner]] = {
        "copy": Learner.copy,
        "copy.copy": copy.copy,
        "copy.deepcopy": copy.deepcopy,
        "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    }
    learner = warm(engine, K) if engine != "auto" else Learner(RULE, n, K)
    if engine == "auto":
        learner.theta = np.ones(n if K is None else (K, n))
    before = state(learner)
    other = ways[how](learner)
    assert (repr(other), state(other)) == (repr(learner), before)
    stream = STREAMS[K]
    stream.run(other)
    other.learn(**step(K))
    assert state(learner) == before
    value = other.predict(stream.Phi[1])
    assert relative_error(value, other.theta @ stream.Phi[1]) <= 1e-13  # not the θ of before
    stream.run(learner)
    learner.learn(**step(K))
    assert state(other) == state(learner)
    other.theta = np.zeros(n if K is None else (K, n))
    other.cut()
    assert learner.theta.any()
    assert learner.e.any()


def test_repr() -> None:
    assert repr(emphatic.TrueOnlineETD(4)) == "Learner('true_online_etd', n=4, dtype='float64', engine='auto')"
    many = emphatic.TD(4, 3, dtype=np.float32, engine="sparse")
    assert repr(many) == "Learner('td', n=4, K=3, dtype='float32', engine='sparse')"
    assert repr(Learner("td", int(np.int64(2)), 1)) == "Learner('td', n=2, K=1, dtype='float64', engine='auto')"
    assert repr(Active([3, 7])) == "Active([3, 7])"
    assert repr(Active([3, 7], [0.5, 1])) == "Active([3, 7], [0.5, 1.0])"
    assert "(9, 2)" in repr(Active(np.tile([0, 1], (9, 1))))


# ------------------------------------------------------------------------------------------------ γ that never falls


@pytest.mark.parametrize("engine", [*ENGINES, "auto"])
@pytest.mark.parametrize(
    ("K", "gamma_next", "whose"),
    [
        (None, 1.0, "log:"),
        (None, np.ones(20), "log:"),
        (3, 1, "learner 0"),
        (3, np.array([0.5, 1.0, 0.9]), "learner 1"),
        (3, np.ones((20, 1)), "learner 0"),
        (3, np.where(np.arange(3) == 2, 1.0, np.linspace(0, 1, 20)[:, None]), "learner 2"),
    ],
)
def test_gamma_that_never_falls_below_1(engine: str, K: int | None, gamma_next: Any, whose: str) -> None:
    """A warning that points at the user's own line; as an error, it comes before the first step."""
    learner = Learner("true_online_etd", n, K, engine=engine)
    Phi = np.ones((21, n))
    with pytest.warns(emphatic.UndiscountedWarning, match=whose) as record:
        learner.run(Phi, 0.5, gamma_next, alpha=0.01)
    assert [w.filename for w in record] == [__file__]
    assert learner.steps == 20
    before = state(learner)
    with warnings.catch_warnings(action="error"), pytest.raises(emphatic.UndiscountedWarning):
        learner.run(Phi, 0.5, gamma_next, alpha=0.01)
    assert state(learner) == before


@pytest.mark.parametrize("gamma_next", [0.999999, [1.0] * 19 + [0.0], [1.0, 0.99] + [1.0] * 18])
def test_gamma_that_falls_is_no_matter(gamma_next: Any) -> None:
    """Warnings are errors here: none may come, nor for a few undiscounted steps that may lie within an episode."""
    learner = Learner("td", n, engine="reference")
    learner.run(np.ones((21, n)), 0.5, gamma_next, alpha=0.01)
    learner.run(np.ones((5, n)), 0.5, np.ones(4), alpha=0.01)
    learner.learn(0.1, 1.0, 0.5, np.ones(n), 1.0, 1.0, np.ones(n), 1.0)


# ------------------------------------------------------------------------------------------------ rows of an Active


@pytest.mark.parametrize("values", [None, "given"])
def test_rows_of_an_active_are_those_of_an_array(values: str | None) -> None:
    """Any slice that an array takes, without a copy and without a second look."""
    rng = np.random.default_rng(5)
    index = np.array([rng.choice(n, 3, replace=False) for _ in range(9)])
    weight = None if values is None else rng.normal(size=index.shape)
    Phi = Active(index, weight)
    assert len(Phi) == 9
    bounds = (None, 0, 1, 4, 9, 20, -1, -4, -20)
    for some in (slice(a, b, by) for a in bounds for b in bounds for by in (None, 1, 2, -1, -3)):
        part = Phi[some]
        assert np.array_equal(part.indices, index[some])
        assert np.array_equal(part.values, np.ones(index[some].shape) if weight is None else weight[some])
        assert np.shares_memory(part.indices, Phi.indices) == bool(len(part)) == bool(part.indices.size)
        assert len(part) == part.shape[0] == len(part.rows)
        dense = part.rows.dense(n, "float64")
        assert np.array_equal(dense, Phi.rows.dense(n, "float64")[some])
    for t in (0, 3, -1, np.int32(8)):
        phi = Phi[t]
        assert phi.shape == (3,)
        assert repr(phi) == repr(Active(index[t], None if weight is None else weight[t]))
        assert np.shares_memory(phi.indices, Phi.indices)
    assert [repr(phi) for phi in Phi] == [repr(Phi[t]) for t in range(9)]
    with pytest.raises(IndexError):
        Phi[9]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("K", [None, 3])
@compiled
def test_rows_of_an_active_are_learned_from(engine: str, K: int | None, compiled: bool) -> None:
    """By ``run`` in parts, one by one, and with a step: the very bits of rows that were given by themselves."""
    rng = np.random.default_rng(6)
    index = np.array([rng.choice(n, 3, replace=False) for _ in range(T + 1)])
    weight, R = rng.normal(size=index.shape), rng.normal(size=T)
    for values in (None, weight):
        Phi = Active(index, values)
        sliced, plain = (Learner("true_online_etd", n, K, engine=engine) for _ in range(2))

        def alone(rows: Any, values: Any = values) -> Active:
            return Active(index[rows].copy(), None if values is None else values[rows].copy())

        for some in (slice(0, 5), slice(4, T), slice(None, None, 2), slice(None, None, -1)):
            steps = slice(0, len(index[some]) - 1)
            for learner, rows in ((sliced, Phi[some]), (plain, alone(some))):
                learner.run(rows, R[steps] if K is None else R[steps, None], 0.9, alpha=0.1, lambda_=0.8)
        for t in range(3):
            for learner, one, following in ((sliced, Phi[t], Phi[t + 1]), (plain, alone(t), alone(t + 1))):
                learner.learn(0.1, 1.0, 0.8, one, 1.0, R[t], following, 0.9)
            assert np.array_equal(sliced.predict(Phi[t]), plain.predict(alone(t)))
        assert sliced.theta.tobytes() == plain.theta.tobytes()


def test_rows_within_n_of_a_log_beyond_n() -> None:
    """What counts is what the rows themselves hold."""
    Phi = Active([[0], [1], [7], [2]])
    for engine in ENGINES:
        learner = Learner("true_online_etd", 3, engine=engine)
        learner.run(Phi[:2], 1.0, 0.9, alpha=0.5)
        learner.learn(0.5, 1.0, 0.0, Phi[0], 1.0, 1.0, Phi[3], 0.9)
        assert learner.steps == 2
        with pytest.raises(ValueError, match=r"have indices below n = 3. Got 7 at step 1 instead"):
            learner.run(Phi[1:], 1.0, 0.9, alpha=0.5)
        with pytest.raises(ValueError, match=r"have indices below n = 3. Got 7 instead"):
            learner.learn(0.5, 1.0, 0.0, Phi[2], 1.0, 1.0, Phi[3], 0.9)


def test_what_has_no_rows_to_take() -> None:
    phi, Phi = Active([1, 2]), Active([[1, 2]])
    assert phi
    assert Phi[:0]
    with pytest.raises(TypeError, match=r"Active of shape \(2,\) is one φ and has no length"):
        len(phi)
    for rows in (0, slice(None), [0]):
        with pytest.raises(TypeError, match=r"Active of shape \(2,\) is one φ and has no rows to take"):
            phi[rows]
    for bad in ([0], (0, 1), np.array([True]), 0.0, None, "a"):
        with pytest.raises(TypeError, match="indexed by a slice or an integer"):
            Phi[bad]
