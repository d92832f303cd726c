"""Several sequences in one log: ``run(first=mask)`` beside ``cut``, and the warning where nothing marks them."""

from __future__ import annotations

import itertools
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp

import emphatic
from emphatic import Active, Learner, SequenceWarning
from emphatic.engines import chunked
from emphatic.rules import AnyRule, Rule, Scalars, Update
from tests.support.contract import STRUCTURES
from tests.support.plain import CHUNK, plain_python
from tests.support.rules import EVERY, find
from tests.support.streams import TOLERANCE, Stream, make, relative_error

Mask = npt.NDArray[np.bool_]

#: The engines on which a mask gives the bits of ``cut``; on the others it gives the same up to rounding.
EXACT = ("reference", "dense", "sparse")
#: Rules with ``separate_next``, which keep the last φ, and the rule of which each is the exact form.
EXACT_FORMS = {name: find(name).name for name in EVERY if find(name).plain is not find(name)}
every_engine = pytest.mark.parametrize("engine", emphatic.engines.available())


def pieces(first: Mask) -> list[slice]:
    """The steps of each sequence."""
    edges = [0, *np.flatnonzero(first).tolist(), len(first)]
    return [slice(*pair) for pair in itertools.pairwise(edges) if pair[0] < pair[1]]


def in_pieces(learner: Any, stream: Stream, first: Mask, **options: Any) -> npt.NDArray[Any]:
    """``run`` of each sequence, with a ``cut`` before those that the mask marks."""
    outputs = []
    for steps in pieces(first):
        if first[steps.start]:
            learner.cut()
        outputs.append(masked(learner, stream[steps], None, **options))
    return np.concatenate(outputs)


def masked(learner: Any, stream: Stream, first: Any, **options: Any) -> npt.NDArray[Any]:
    """``run`` with a mask; parameters (T, 1) where (T,) would be ambiguous."""
    Phi, Phi_next = stream.features()
    p: dict[str, Any] = stream.parameters()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SequenceWarning)
        warnings.simplefilter("ignore", emphatic.UndiscountedWarning)
        return np.asarray(
            learner.run(Phi, p.pop("R"), p.pop("gamma_next"), Phi_next=Phi_next, first=first, **p, **options)
        )


def state(learner: Any) -> dict[str, npt.NDArray[Any]]:
    """Every vector and scalar of a learner."""
    return {name: np.array(getattr(learner, name)) for name in (*learner.rule.vectors, *learner.rule.memory)}


def agrees(engine: str, dtype: str, a: npt.NDArray[Any], b: npt.NDArray[Any]) -> bool:
    """Whether two results are the same: bit for bit, or up to rounding on engines that take steps in chunks."""
    if engine in EXACT:
        return np.array_equal(a, b)
    return relative_error(a, b) <= TOLERANCE[dtype]


def masks(rng: np.random.Generator, T: int) -> list[Mask]:
    """Rare and frequent breaks, one at every step, none, and breaks at either end."""
    ends = np.zeros(T, bool)
    ends[[0, T - 1]] = True
    return [rng.random(T) < 0.05, rng.random(T) < 0.5, np.ones(T, bool), np.zeros(T, bool), ends]


def compare(rule: str | AnyRule, stream: Stream, first: Mask, engine: str, dtype: str = "float64", **kind: Any) -> None:
    """``run`` with the mask, beside ``run`` and ``cut``, of learners that are in the middle of a sequence."""
    learner = Learner(rule, stream.n, stream.K, dtype=dtype, engine=engine, **kind)
    learner.theta = np.random.default_rng(1).normal(size=learner.theta.shape).astype(np.float32)
    masked(learner, stream[: stream.T // 3], None)
    by_hand = learner.copy()
    predictions, expected = masked(learner, stream, first), in_pieces(by_hand, stream, first)
    assert agrees(engine, dtype, predictions, expected)
    wanted = state(by_hand)
    for name, value in state(learner).items():
        assert agrees(engine, dtype, value, wanted[name]), name


# ------------------------------------------------------------------------------------------------ every rule


@every_engine
@pytest.mark.parametrize("rule", EVERY)
def test_a_mask_is_a_cut_at_every_break(rule: str, engine: str) -> None:
    """Single learners and hordes, arrays and indices, φ' the next φ or not, in both precisions."""
    kinds: list[tuple[int | None, int | None, bool, str]] = [
        (None, None, True, "float64"),
        (None, 3, True, "float32"),
        (3, 4, True, "float64"),
    ]
    if rule in STRUCTURES:
        kinds += [(2, None, False, "float64"), (9, None, True, "float64")]
    with plain_python():
        for seed, (K, active, separate, dtype) in enumerate(kinds):
            T = 2 * CHUNK + 7 if K is None or K < 9 else 11
            stream = make(seed, T, 6 if active is None else 17, K, rule=rule, active=active, separate=separate)
            rng = np.random.default_rng(seed)
            for first in masks(rng, T) if rule in STRUCTURES else [rng.random(T) < 0.2]:
                compare(find(rule), stream, first, engine, dtype)


@pytest.mark.parametrize("K", [None, 3, 9])
@pytest.mark.parametrize("engine", ["dense", "sparse", "chunked"])
def test_compiled_kernels(engine: str, K: int | None) -> None:
    """More steps than a chunk, a block of lanes or what is looked over at a time; n beyond the narrow kernel."""
    T = 2 * chunked.STEPS + 31
    for rule in STRUCTURES[:1]:
        for n, active in ((6, None), (23, 4), (300, None)):
            if n == 300 and K is not None:
                continue
            for seed in range(2):
                stream = make(seed, T, n, K, rule=rule, active=active, separate=True)
                compare(rule, stream, np.random.default_rng(seed).random(T) < 0.07, engine)


@pytest.mark.parametrize("engine", ["reference", "dense", "sparse"])
@pytest.mark.parametrize("stepsize", ["autostep", "idbd", "rprop", "auto", "alphabound"])
def test_a_step_size_method_keeps_what_lasts(stepsize: str, engine: str) -> None:
    """Step sizes, of each weight or of all, survive a break; traces and the rest of the memory do not."""
    with plain_python():
        for seed, (K, active) in enumerate([(None, None), (2, 3)]):
            stream = make(seed, 41, 6, K, rule="td", active=active, separate=True)
            first = np.random.default_rng(seed).random(41) < 0.15
            compare("td", stream, first, engine, stepsize=stepsize)


def lasting(step: Scalars, memory: Scalars, x: Scalars, x_next: Scalars, g: Scalars) -> Update:
    """td, with a trace that is never scaled, and a sum of δ² that ``cut`` does not forget"""
    alpha, I, lambda_, rho, gamma_next, delta = step
    gamma, total = memory
    c, s = rho * gamma * lambda_, rho * I
    w = alpha * delta
    return (
        ((1.0, w * c, 0.001 * w), (0.0, c, 0.0), (0.0, 0.0, 1.0)),
        ((w * s, 0.0), (s, 0.0), (s, 0.0)),
        (gamma_next, total + delta * delta),
    )


LASTING = Rule("lasting", lasting, ("theta",), ("e", "total_phi"), ("gamma", "total"), lasting=("total",))


@every_engine
@pytest.mark.parametrize("K", [None, 2, 9])
def test_a_rule_of_your_own_with_lasting_memory(engine: str, K: int | None) -> None:
    """A trace whose own scale is always 1 ends at a break too, and what lasts stays."""
    with plain_python():
        T = 2 * CHUNK + 7 if (K or 1) < 9 else 13
        stream = make(5, T, 6, K, rule="td", separate=True)
        for first in masks(np.random.default_rng(3), T):
            compare(LASTING, stream, first, engine)


# ------------------------------------------------------------------------------------------------ what else a run does


@every_engine
@pytest.mark.parametrize("K", [None, 2, 9])
def test_errors_recorded_beside_breaks(engine: str, K: int | None) -> None:
    """``probe`` and ``returns`` of a run with a mask are those of the runs between the breaks."""
    with plain_python():
        T = 31
        stream = make(8, T, 6, K, rule="true_online_etd", separate=True)
        first = np.random.default_rng(8).random(T) < 0.2
        rng = np.random.default_rng(2)
        probe = (rng.normal(size=(5, 6)), rng.normal(size=5), rng.random(5))
        learner, by_hand = (Learner("true_online_etd", 6, K, engine=engine) for _ in range(2))
        Phi, Phi_next = stream.features()
        p: dict[str, Any] = stream.parameters()
        _, errors = learner.run(
            Phi, p.pop("R"), p.pop("gamma_next"), Phi_next=Phi_next, first=first, probe=probe, probe_every=3, **p
        )
        expected = []
        for t in range(T):
            if first[t]:
                by_hand.cut()
            if t % 3 == 0:
                by_theta = np.atleast_2d(by_hand.theta) @ probe[0].T - probe[1]
                expected.append(np.sqrt((probe[2] * by_theta**2).sum(axis=1) / probe[2].sum()))
            in_pieces(by_hand, stream[t : t + 1], np.zeros(1, bool))
        assert relative_error(errors, np.array(expected)[:, 0] if K is None else expected) < 1e-9


@every_engine
def test_a_frozen_learner_forgets_too(engine: str) -> None:
    """A learner that would diverge keeps its weights; its traces and memory end with the sequence, as by ``cut``."""
    with plain_python():
        for K, wild in ((None, ()), (3, (1,)), (9, (0, 7))):
            T = 2 * CHUNK + 7 if (K or 1) < 9 else 15
            stream = make(4, T, 6, K, rule="td", separate=True)
            alpha = np.array(stream.alpha)
            if K is None:
                alpha[4] = 1e308
            else:
                alpha[4, list(wild)] = 1e308
            wild_stream = replace(stream, alpha=alpha, R=stream.R + 10.0, rho=np.ones_like(stream.rho))
            first = np.zeros(T, bool)
            first[[2, 6, 9]] = True
            learner, by_hand = (Learner("td", 6, K, engine=engine) for _ in range(2))
            predictions = masked(learner, wild_stream, first, on_divergence="freeze")
            expected = in_pieces(by_hand, wild_stream, first, on_divergence="freeze")
            assert np.any(learner.frozen)
            assert np.array_equal(learner.frozen, by_hand.frozen)
            # (what frozen learners predict is a product of their own, with another order of sums)
            assert relative_error(predictions, expected) < 1e-12
            for name, value in state(learner).items():
                assert agrees(engine, "float64", value, state(by_hand)[name]), name


@every_engine
@pytest.mark.parametrize("K", [None, 3, 9])
def test_where_it_diverges(engine: str, K: int | None) -> None:
    """At a break, or after it: the step that is named, and the state that is left, are those of runs and cuts."""
    with plain_python():
        for at in (6, 7):
            T = 12
            stream = make(4, T, 6, K, rule="td", separate=True)
            alpha = np.array(stream.alpha)
            alpha[at] = 1e308
            wild = replace(stream, alpha=alpha, R=stream.R + 10.0, rho=np.ones_like(stream.rho), I=stream.I + 1.0)
            first = np.zeros(T, bool)
            first[[2, 6]] = True
            learner, by_hand = (Learner("td", 6, K, engine=engine) for _ in range(2))
            with pytest.raises(emphatic.Diverged) as info:
                masked(learner, wild, first)
            with pytest.raises(emphatic.Diverged):
                in_pieces(by_hand, wild, first)
            assert info.value.step == at
            for name, value in state(learner).items():
                assert agrees(engine, "float64", value, state(by_hand)[name]), name


@pytest.mark.parametrize(
    "form", ["list", "int", "csr", "strided", pytest.param("torch", marks=pytest.mark.xdist_group("triton"))]
)
def test_forms_of_a_mask_and_of_features(form: str) -> None:
    stream = make(2, 30, 6, None, rule="td", separate=True)
    first = np.random.default_rng(2).random(30) < 0.2
    learner, by_hand = (Learner("td", 6, engine="reference") for _ in range(2))
    given: Any = {"list": first.tolist(), "int": first.astype(int), "strided": np.repeat(first, 2)[::2]}.get(
        form, first
    )
    if form == "torch":
        given = pytest.importorskip("torch").from_numpy(first)
    dressed: Any = sp.csr_array if form == "csr" else np.asarray
    p: dict[str, Any] = stream.parameters()
    learner.run(
        dressed(stream.Phi), p.pop("R"), p.pop("gamma_next"), Phi_next=dressed(stream.Phi_next), first=given, **p
    )
    in_pieces(by_hand, stream, first)
    assert np.array_equal(learner.theta, by_hand.theta)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (
            np.zeros(4, bool),
            r"'first' parameter of run must be a mask of shape \(5,\), one entry per step. Got shape \(4,",
        ),
        (np.zeros((5, 2), bool), r"shape \(5,\)"),
        (True, r"shape \(5,\)"),
        ([0, 1, 2, 0, 0], "be a mask of True and False"),
        ([0.0, np.nan, 0.0, 0.0, 0.0], "be a mask of True and False"),
        (["a"] * 5, "be real numbers"),
    ],
)
@pytest.mark.parametrize("engine", ["reference", "dense"])
def test_a_bad_mask_changes_nothing(mask: Any, message: str, engine: str) -> None:
    with plain_python():
        learner = Learner("td", 2, engine=engine)
        with pytest.raises(ValueError, match=message):
            learner.run(np.ones((6, 2)), np.ones(5), 0.5, alpha=0.1, first=mask)
        assert learner.steps == 0
        assert not learner.theta.any()


def test_a_rule_has_no_parameter_called_first() -> None:
    def own(step: Scalars, memory: Scalars, x: Scalars, x_next: Scalars, g: Scalars) -> Update:
        return ((1.0,),), ((step[5] * step[6], 0.0),), ()

    with pytest.raises(ValueError, match="'first'"):
        Rule("own", own, ("theta",), (), (), extra=("first",))


# ------------------------------------------------------------------------------------------------ the warning


def two_sequences(n: int = 4, T: int = 100) -> dict[str, Any]:
    """Two sequences, each cut off, in one log."""
    rng = np.random.default_rng(0)
    A, B = rng.normal(size=(2, T // 2 + 1, n)) / 2
    return {
        "Phi": np.vstack([A[:-1], B[:-1]]),
        "Phi_next": np.vstack([A[1:], B[1:]]),
        "R": rng.normal(size=T),
        "gamma_next": np.full(T, 0.9),
        "alpha": 0.02,
        "lambda_": 0.9,
    }


def warned(learner: Any, **log: Any) -> list[str]:
    """The messages of SequenceWarning in a run, each pointing here."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        learner.run(**log)
    assert all(warning.filename == __file__ for warning in seen)
    return [str(warning.message) for warning in seen if warning.category is SequenceWarning]


@every_engine
@pytest.mark.parametrize("form", ["array", "active", "csr", "mixed", "float32"])
def test_it_warns_of_the_first_break_that_nothing_marks(engine: str, form: str) -> None:
    log = two_sequences()
    if form in ("active", "mixed", "csr"):
        index = np.tile(np.arange(4), (100, 1))
        dressed = {name: Active(index, log[name]) for name in ("Phi", "Phi_next")}
        if form == "csr":
            dressed = {name: sp.csr_array(log[name]) for name in ("Phi", "Phi_next")}
        log |= {"Phi": dressed["Phi"]} if form == "mixed" else dressed
    with plain_python():

        def make_learner(K: int | None = None) -> Any:
            return Learner("td", 4, K, engine=engine, dtype="float32" if form == "float32" else "float64")

        (message,) = warned(make_learner(), **log)
        assert "'Phi_next' of step 49 is not 'Phi' of step 50" in message
        first = np.arange(100) == 50
        for mask in (first, np.zeros(100, bool), np.zeros(100).tolist()):
            assert warned(make_learner(), **log, first=mask) == []
        ended = np.where(np.arange(100) == 49, 0.0, 0.9)
        assert warned(make_learner(), **log | {"gamma_next": ended}) == []
        per_learner = np.column_stack([ended, ended, log["gamma_next"]])
        assert len(warned(make_learner(3), **log | {"gamma_next": per_learner, "R": log["R"][:, None]})) == 1
        assert warned(make_learner(3), **log | {"gamma_next": per_learner[:, :2].repeat(2, 1)[:, :3]}) == []


def test_what_is_the_same_feature_vector() -> None:
    """Indices in another order, −1, and a value of 0 are the same φ; another value, or one more, is not."""
    index, value = np.array([[3, 5, -1], [1, 2, 6], [0, 1, 2]]), np.array([[1.0, 2.0, 9.0], [1.0, 1.0, 0.0], [1.0] * 3])
    same = Active(np.array([[2, 1, -1], [2, 0, 1], [4, 5, 6]]), np.array([[1.0, 1.0, 5.0], [1.0] * 3, [1.0] * 3]))
    log = {"R": np.ones(3), "gamma_next": 0.5, "alpha": 0.1}
    Phi: Any = Active(index, value)
    with plain_python():
        assert warned(Learner("td", 7, engine="sparse"), Phi=Phi, Phi_next=same, **log) == []
        for change in ([[2, 1, 6], [2, 0, 1], [4, 5, 6]], [[2, -1, -1], [2, 0, 1], [4, 5, 6]]):
            other = Active(np.array(change), np.where(np.array(change) == 6, 3.0, 1.0))
            assert len(warned(Learner("td", 7, engine="sparse"), Phi=Phi, Phi_next=other, **log)) == 1
        Phi = np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]])
        Phi_next = np.array([[-0.0, 2.0], [3.0, -0.0], [9.0, 9.0]])
        for engine in ("reference", "dense"):
            assert warned(Learner("td", 2, engine=engine), Phi=Phi, Phi_next=Phi_next, **log) == []


def test_which_rules_warn() -> None:
    """All but those whose φ' is an expectation and those that keep the last φ; with any step-size method too."""
    log = two_sequences()
    with plain_python():
        for rule in EVERY:
            needed = ("beta", "pi", "mu", "xi", "decay", "period")
            extra = {name: 0.5 for name in find(rule).extra if name in needed}
            messages = warned(Learner(find(rule), 4, engine="reference"), **log, **extra)
            assert bool(messages) == (rule not in ("gq", "emphatic_q") and rule not in EXACT_FORMS), rule
            assert all(("separate_next=True a learner uses φ" in m) == (rule in EXACT_FORMS.values()) for m in messages)
        for rule, count in (("td", 1), ("true_online_td_separate", 0)):
            assert len(warned(Learner(find(rule), 4, engine="reference", stepsize="alphabound"), **log)) == count
        assert len(warned(Learner("td", 4, engine="reference", stepsize="autostep"), **log)) == 1


def test_one_log_is_never_compared() -> None:
    """Phi alone, and views of one array one row apart, are one sequence."""
    Phi = np.random.default_rng(0).normal(size=(51, 4))
    log = {"R": np.ones(50), "gamma_next": 0.9, "alpha": 0.01}
    for engine in ("reference", "auto"):
        assert warned(Learner("td", 4, engine=engine), Phi=Phi, **log) == []
        assert warned(Learner("td", 4, engine=engine), Phi=Phi[:-1], Phi_next=Phi[1:], **log) == []
        assert warned(Learner("td", 4, engine=engine), Phi=Phi[:-1].copy(), Phi_next=Phi[1:].copy(), **log) == []
        last = np.vstack([Phi[1:-1], 7 * Phi[:1]])  # φ' of the last step is compared with nothing
        assert warned(Learner("td", 4, engine=engine), Phi=Phi[:-1], Phi_next=last, **log) == []


@pytest.mark.parametrize("at", [0, 1, 4_095, 8_191, 8_192, 19_998])
def test_breaks_anywhere_in_a_long_log(at: int) -> None:
    """Blocks of comparisons end somewhere: a break beside such an end is found too."""
    T, n = 20_000, 2
    rng = np.random.default_rng(1)
    Phi = rng.normal(size=(T + 1, n)) / 4
    Phi, Phi_next = Phi[:-1], Phi[1:].copy()
    Phi_next[at, 1] += 1e-9
    (message,) = warned(Learner("td", n, engine="dense"), Phi=Phi, Phi_next=Phi_next, R=0.0, gamma_next=0.9, alpha=0.1)
    assert f"of step {at} is not" in message


def test_an_error_is_not_preceded_by_a_warning_and_a_warning_that_raises_changes_nothing() -> None:
    log = two_sequences()
    learner = Learner("td", 4, engine="dense")
    bad = log["Phi_next"].copy()
    bad[70, 2] = np.nan
    with pytest.raises(ValueError, match="'Phi_next' parameter of run must be finite"):
        learner.run(**log | {"Phi_next": bad})
    with warnings.catch_warnings(action="error"), pytest.raises(SequenceWarning):
        learner.run(**log)
    assert learner.steps == 0
    assert not learner.theta.any()


# ------------------------------------------------------------------------------------------ rules that keep the last φ


@pytest.mark.parametrize("rule", EXACT_FORMS)
@every_engine
def test_equal_to_the_plain_rule_in_one_sequence(rule: str, engine: str) -> None:
    """Where each φ' is the next φ the two rules are one, and elsewhere they differ."""
    with plain_python():
        for seed, K in ((1, None), (2, 2)):
            for separate in (False, True):
                stream = make(seed, 2 * CHUNK + 7, 6, K, rule=rule, separate=separate)
                one, other = (Learner(each, 6, K, engine=engine) for each in (find(rule), EXACT_FORMS[rule]))
                error = relative_error(masked(one, stream, None), masked(other, stream, None))
                assert error > 1e-5 if separate else error <= TOLERANCE["float64"]


@pytest.mark.parametrize("rule", EXACT_FORMS)
def test_what_they_keep(rule: str) -> None:
    """p is φ of the last step, and nothing of it is left after ``cut``."""
    stream = make(3, 20, 5, rule=rule, separate=True)
    learner = Learner(EXACT_FORMS[rule], 5, engine="reference", separate_next=True)
    stream.run(learner)
    assert stream.Phi_next is not None
    assert np.array_equal(learner.p, stream.Phi[-1])
    if "p_next" in learner.rule.traces:
        assert np.array_equal(learner.p_next, stream.Phi_next[-1])
    learner.cut()
    assert not learner.p.any()


# ------------------------------------------------------------------------------------------------ hordes and shards


def test_a_recorded_log_marks_its_cuts() -> None:
    """``Horde.log`` replays without a warning."""
    made = emphatic.features.Features([emphatic.features.SoftBins("x", bins=3)])
    horde = emphatic.Horde([emphatic.GVF("x", gamma=0.9)], made, record=True, rate=0.1, engine="reference")
    horde.prepare(["x"], np.linspace(-1.0, 1.0, 50)[:, None])
    horde.begin({"x": 0.1})
    for t in range(8):
        horde.learn(None, 0.0, {"x": np.sin(t)}, False, truncated=t == 3)
        if t == 3:
            horde.begin({"x": -0.4})
    log = horde.log()
    assert log["first"].sum() == 1
    learner = Learner(horde.learner.rule, horde.learner.n, 1, engine="reference")
    assert warned(learner, **log) == []
    assert np.allclose(learner.theta, horde.learner.theta, rtol=1e-12)


def test_a_horde_takes_a_mask_of_rows() -> None:
    """``Horde.run(first=…)`` is ``observe_many(gap=…)`` in rows of a table."""
    x = np.sin(np.arange(600.0) / 3)
    first = np.random.default_rng(0).random(600) < 0.05

    def horde() -> emphatic.Horde:
        parts = [emphatic.features.Bias(), emphatic.features.SoftBins("x", bins=4)]
        return emphatic.Horde([emphatic.GVF("x", horizon=5)], emphatic.features.Features(parts), rate=0.3)

    one, two = horde().warm_up({"x": x}), horde().warm_up({"x": x})
    predictions = one.run({"x": x}, first=first)
    assert np.array_equal(predictions, two.observe_many({"x": x}, gap=first))
    assert not np.array_equal(predictions, horde().warm_up({"x": x}).run({"x": x}))


@pytest.mark.parametrize("length", [0, 1, 599, 601, 1200])
@pytest.mark.parametrize("form", ["columns", "csv"])
def test_a_horde_learns_nothing_with_a_mask_of_another_length(length: int, form: str, tmp_path: Path) -> None:
    """Nor is it warmed up: a file is counted before its first row is learned."""
    x = np.sin(np.arange(600.0) / 3)
    (tmp_path / "log.csv").write_text("x\n" + "\n".join(map(str, x)))
    table: Any = {"x": x} if form == "columns" else tmp_path / "log.csv"
    parts = [emphatic.features.Bias(), emphatic.features.SoftBins("x", bins=4)]
    horde = emphatic.Horde([emphatic.GVF("x", horizon=5)], emphatic.features.Features(parts), rate=0.3)
    horde.block_rows = 100
    with pytest.raises(ValueError, match=r"'first' .* must be a mask of shape \(600,\), one entry per row"):
        horde.run(table, first=np.zeros(length, bool))
    assert not horde.is_warm
    horde.warm_up(table)
    with pytest.raises(ValueError, match="one entry per row of the table"):
        horde.run(table, first=np.zeros(length, bool))
    assert horde.rows == 0
    assert horde.run(table, first=np.zeros(600, bool)).shape == (600, 1)


@pytest.mark.parametrize(("K", "dtype"), [(None, "float64"), (3, "float64"), (3, "float32")])
def test_a_cut_leaves_the_bits_of_sparse_weights(K: int | None, dtype: str) -> None:
    """What is read of θ, and what it predicts, is the same before and after."""
    stream = make(6, 60, 17, K, rule="true_online_etd", active=4, binary=False)
    with plain_python():
        learner = Learner("true_online_etd", 17, K, engine="sparse", dtype=dtype)
        stream.run(learner)
        theta, predictions = learner.theta, learner.predict(stream.Phi)
        assert np.any(learner.e)
        learner.cut()
        assert not np.any(learner.e)
        assert np.array_equal(learner.theta, theta)
        assert relative_error(learner.predict(stream.Phi), predictions) < (1e-14 if dtype == "float64" else 1e-6)


# ------------------------------------------------------------------------------------------------ least squares


@pytest.mark.parametrize("K", [None, 3])
@pytest.mark.parametrize("lambda_", [0.6, 1.0])
@pytest.mark.parametrize("emphasis", [False, True])
def test_least_squares_take_a_mask(K: int | None, lambda_: float, emphasis: bool) -> None:
    """The bits of ``cut``, with learners that share a matrix and without; probes and refusals as of ``Learner``."""
    T, n = 60, 4
    rng = np.random.default_rng(5)
    Phi, Phi_next = rng.normal(size=(T, n)), rng.normal(size=(T, n))
    Phi_next[:-1] = np.where(rng.random((T - 1, 1)) < 0.8, Phi[1:], 0.0)
    R = rng.normal(size=T if K is None else (T, K))
    gamma: Any = 0.9 if K is None else np.array([[0.5, 0.9, 0.95]])
    probe = (np.eye(n), np.ones(n), np.ones(n))
    for first in masks(rng, T):
        one = emphatic.LeastSquares(n, K, emphatic=emphasis)
        by_hand = emphatic.LeastSquares(n, K, emphatic=emphasis)
        options: dict[str, Any] = {"lambda_": lambda_, "probe": probe, "probe_every": 7}
        answers, errors = one.run(Phi, R, gamma, Phi_next=Phi_next, first=first, **options)
        expected = []
        for steps in pieces(first):
            if first[steps.start]:
                by_hand.cut()
            length = steps.stop - steps.start
            unmarked = np.zeros(length, bool)
            expected.append(
                by_hand.run(Phi[steps], R[steps], gamma, lambda_=lambda_, Phi_next=Phi_next[steps], first=unmarked)
            )
        assert np.array_equal(answers, np.concatenate(expected))
        assert len(errors) == -(-T // 7)
        for name in ("theta", "A", "b"):
            assert np.array_equal(getattr(one, name), getattr(by_hand, name))
    learner = emphatic.LeastSquares(n, K)
    with pytest.raises(ValueError, match="'first' parameter of run must be a mask of shape"):
        learner.run(Phi, R, gamma, Phi_next=Phi_next, first=np.zeros(T + 1, bool))
    assert learner.steps == 0
    log = {"Phi": Phi, "R": R, "gamma_next": gamma, "Phi_next": Phi_next, "lambda_": lambda_}
    assert len(warned(learner, **log)) == 1
    assert warned(learner, **log, first=np.zeros(T, bool)) == []
    assert warned(learner, **log | {"gamma_next": 0.0}) == []
