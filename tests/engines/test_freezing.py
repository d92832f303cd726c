"""Frozen learners, on every engine: no bit of theirs changes, they still predict and have a TD error, and the others
go on as if alone."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import emphatic
from emphatic import Learner
from tests.support.contract import STRUCTURES
from tests.support.plain import CHUNK, plain_python
from tests.support.rules import EVERY, find
from tests.support.streams import TOLERANCE, Stream, make, relative_error

ENGINES = emphatic.engines.available()
K = 5
#: Those whose step size is beyond measure from some step on.
WILD = {1: CHUNK + 2, 3: 2 * CHUNK, 4: 0}
TAME = [0, 2]


def wild_stream(rule: str, engine: str, T: int = 2 * CHUNK + 26) -> Stream:
    """A stream on which some learners of any rule diverge, within a few steps of each other."""
    stream = make(7, T, 6, K, rule=rule, active=3 if engine == "sparse" else None, binary=False)
    for k, begin in WILD.items():
        for name in ("alpha", "rho", "gamma_next", "lambda_"):
            getattr(stream, name)[begin:, k] = {"alpha": 1e60, "rho": 1.0, "gamma_next": 0.9, "lambda_": 0.9}[name]
        if "beta" in stream.extra:
            stream.extra["beta"][begin:, k] = 1e60
        if rule == "bounded_etd":  # it bounds any αM that is a number
            stream.I[begin + 2 :, k] = 1e308
    return stream


def run(learner: Learner, stream: Stream, **options: Any) -> Any:
    Phi, Phi_next = stream.features()
    p: dict[str, Any] = stream.parameters()
    with np.errstate(all="ignore"):
        return learner.run(Phi, p.pop("R"), p.pop("gamma_next"), Phi_next=Phi_next, **p, **options)


def state(learner: Learner) -> dict[str, Any]:
    return {name: np.array(getattr(learner, name)) for name in learner.rule.vectors + learner.rule.memory}


def kinds() -> list[Any]:
    """Every rule as plain Python; compiled, the smallest structure and, among the tests that take long, the largest."""
    every = [(rule, engine, False) for rule in EVERY for engine in ENGINES]
    structures, compiling = STRUCTURES[::2], ("dense", "sparse", "chunked")
    every += [(rule, engine, True) for rule in structures for engine in compiling]
    return [
        pytest.param(
            *kind, id=f"{kind[0]}-{kind[1]}" + "-compiled" * kind[2], marks=pytest.mark.long if late(*kind) else ()
        )
        for kind in every
    ]


def late(rule: str, engine: str, compiled: bool) -> bool:
    """Whether its kernels are compiled for the tests that take long."""
    return compiled and rule != STRUCTURES[0]


@pytest.mark.parametrize(("rule", "engine", "compiled"), kinds())
def test_who_would_diverge_is_frozen_and_the_others_go_on(rule: str, engine: str, compiled: bool) -> None:
    if engine == "cuda" and rule not in STRUCTURES:
        pytest.skip("an interpreter within an interpreter: rules of every structure")
    with nullcontext() if compiled else plain_python():
        stream = wild_stream(rule, engine)
        learner, alone = (Learner(find(rule), 6, count, engine=engine) for count in (K, len(TAME)))
        predictions = run(learner, stream, on_divergence="freeze")
        expected = run(alone, stream.of_learners(TAME))
        assert learner.frozen.tolist() == [k in WILD for k in range(K)]
        for k, begin in WILD.items():
            assert begin <= learner._taken[k] < stream.T
        assert relative_error(predictions[:, TAME], expected) <= TOLERANCE["float64"]
        for name, value in state(alone).items():
            assert relative_error(state(learner)[name][TAME], value) <= TOLERANCE["float64"], name
        for k in WILD:  # it predicts with the last finite weights
            at = slice(learner._taken[k], None)
            wanted = stream.Phi[:-1][at] @ learner.theta[k]
            assert relative_error(predictions[at, k] / np.abs(wanted).max(), wanted / np.abs(wanted).max()) < 1e-10


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("rule", "compiled"),
    [*((rule, False) for rule in STRUCTURES[::2]), ("true_online_etd", True),
     pytest.param("true_online_gtd", True, marks=pytest.mark.long)],
)  # fmt: skip
def test_frozen_is_frozen(rule: str, engine: str, compiled: bool) -> None:
    """Whatever comes after, by run and by learn: the same bits, until θ is set."""
    if compiled and engine == "cuda":
        pytest.skip("interpreted in any case")
    with nullcontext() if compiled else plain_python():
        stream, quiet = wild_stream(rule, engine), make(8, 3 * CHUNK, 6, K, rule=rule)
        learner = Learner(rule, 6, K, engine=engine)
        run(learner, stream, on_divergence="freeze")
        frozen = np.flatnonzero(learner.frozen)
        before, taken = state(learner), np.array(learner._taken)
        for _ in range(2):
            run(learner, quiet)
        t = 4
        phi, phi_next = quiet.step_features(t)
        theta = np.array(learner.theta)
        with np.errstate(all="ignore"):
            delta = learner.learn(phi=phi, phi_next=phi_next, **quiet.parameters(t))
            wanted = quiet.R[t] + quiet.gamma_next[t] * (theta @ phi_next) - theta @ phi
        assert relative_error(delta[TAME], wanted[TAME]) < 1e-10
        for k in frozen:
            assert relative_error(delta[k] / np.abs(wanted[k]), wanted[k] / np.abs(wanted[k])) < 1e-10
        bad = np.array(quiet.Phi)
        bad[20, 3] = np.nan
        with pytest.raises(ValueError, match=r"'Phi' parameter of run must be finite.*step 20, feature 3"):
            learner.select(frozen).run(bad, 1.0, 0.9, alpha=0.1)  # (no step of a frozen learner would find it)
        after = state(learner)
        for name, value in before.items():
            assert np.array_equal(after[name][frozen], value[frozen]), name
        assert (learner._taken[frozen] == taken[frozen]).all()
        assert (learner._taken[TAME] == taken[TAME] + 2 * quiet.T + 1).all()
        learner.theta = np.zeros((K, 6))
        assert not learner.frozen.any()
        learner.cut()
        if learner.rule.weights == ("theta",):
            run(learner, quiet)
            assert learner.theta[frozen].any(axis=1).all()


def test_what_is_no_answer_to_divergence_is_refused() -> None:
    with pytest.raises(ValueError, match="'on_divergence' parameter of run"):
        Learner("td", 3, engine="reference").run(np.ones((3, 3)), 0.0, 0.9, alpha=0.1, on_divergence="ignore")  # type: ignore[arg-type]
