"""A step size for each weight: every method, rule and engine against the equations, by discovery."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emphatic
from emphatic import stepsizes
from emphatic.stepsizes import RPROP, Autostep, Emphatic, SwiftTD
from emphatic.stepsizes.weightwise import WeightwiseStepSize
from tests.support.equations_stepsizes import METHODS
from tests.support.plain import plain_python
from tests.support.streams import TOLERANCE, Stream, make, relative_error

ENGINES = ("reference", "dense", "sparse")
KINDS: dict[str, Any] = {
    name: kind for name in stepsizes.names() if issubclass(kind := stepsizes.kind_of(name), WeightwiseStepSize)
}
#: Options with which all that a method does is seen on the streams; and none of it, the plain rule.
LIVELY: dict[str, dict[str, Any]] = {
    "idbd": {"alpha": 0.7, "mu": 0.8},
    "tidbd": {"alpha": 0.7, "mu": 0.8},
    "autostep": {"alpha": 2.5, "mu": 0.3, "tau": 5.0},
    "rprop": {"alpha": 0.5, "smallest": 0.2, "largest": 0.8},
    "swifttd": {"alpha": 0.9, "mu": 0.1, "eta": 0.6, "decay": 0.8, "drop": 0.0},
    "emphatic": {"alpha": 0.9, "mu": 0.1, "eta": 0.6, "decay": 0.8, "drop": 0.0},
}
STILL: dict[str, dict[str, Any]] = {
    "idbd": {"mu": 0.0},
    "tidbd": {"mu": 0.0},
    "autostep": {"mu": 0.0},
    "rprop": {"grow": 1.0, "shrink": 1.0},
    "swifttd": {"mu": 0.0, "eta": np.inf},
    "emphatic": {"mu": 0.0, "eta": np.inf},
}
PAIRS = [(method, rule) for method, kind in KINDS.items() for rule in kind.fits]


def stream_of(i: int, rule: str, K: int | None = None, T: int = 31) -> Stream:
    """Dense, with a separate φ', binary, and signed."""
    kinds: list[dict[str, Any]] = [
        {"n": 6},
        {"n": 6, "separate": True},
        {"n": 13, "active": 4},
        {"n": 13, "active": 3, "binary": False, "separate": True},
    ]
    return make(i, T, K=K, rule=rule, **kinds[i % 4])


def bounded(method: str, stream: Stream) -> Stream:
    """With steps so large that a method with a bound meets it."""
    return replace(stream, alpha=5.0 * stream.alpha) if "eta" in LIVELY[method] else stream


def test_every_method_has_its_equations() -> None:
    assert set(KINDS) == set(METHODS) == set(LIVELY) == set(STILL)
    assert {"idbd", "tidbd", "autostep", "rprop", "swifttd", "emphatic"} <= set(stepsizes.names())


@pytest.mark.plain
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("method", "rule"), PAIRS)
def test_every_method_follows_its_equations(method: str, rule: str, engine: str) -> None:
    kind = KINDS[method]
    options = kind(**LIVELY[method]).options()
    for i in range(4):
        stream = bounded(method, stream_of(i, rule))
        expected = METHODS[method](rule, stream.sequence(), **options)
        for by in ("run", "learn")[i % 2 :]:
            learner = emphatic.Learner(rule, stream.n, engine=engine, stepsize=kind(**options))
            predictions = getattr(stream, by)(learner)
            assert relative_error(predictions, expected.predictions) < TOLERANCE["float64"], (i, by)
            for name in ("theta", "alphas"):
                got = getattr(learner, name)
                assert relative_error(got, getattr(expected, name)) < TOLERANCE["float64"], (i, by, name)
        assert relative_error(learner.alphas, np.full(stream.n, options["alpha"])) > 1e-3


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("method", "dtype"),
    [
        ("autostep", "float64"),
        ("tidbd", "float32"),
        pytest.param("emphatic", "float64", marks=pytest.mark.plain),
        pytest.param("emphatic", "float64", marks=pytest.mark.long, id="emphatic-compiled"),
    ],
)
def test_learners_with_options_of_their_own(method: str, engine: str, dtype: str, tmp_path: Path) -> None:
    """K learners with different meta steps; saved and resumed bit for bit, selected, and put together again."""
    rule, K = "true_online_etd", 3
    first = "grow" if method == "rprop" else "mu"
    values = LIVELY[method][first] * np.array([0.0, 0.5, 1.0])
    stream = stream_of(3, rule, K, T=101)
    options = {**LIVELY[method], first: values}
    learner = emphatic.Learner(rule, stream.n, K, engine=engine, dtype=dtype, stepsize=KINDS[method](**options))
    before = stream[:40].run(learner)
    learner.save(tmp_path / "model.safetensors")
    others = [emphatic.load(tmp_path / "model.safetensors"), learner.copy()]
    parts = emphatic.join([learner.select([0, 1]), learner.select([2])])
    after = stream[40:].run(learner)
    for other in others:
        assert np.array_equal(stream[40:].run(other), after)
        for name in learner.rule.vectors + learner.rule.memory:
            assert np.array_equal(getattr(other, name), getattr(learner, name)), name
        assert other.stepsize == learner.stepsize
    assert relative_error(stream[40:].run(parts), after) < TOLERANCE[dtype]
    for k in range(K):
        given = KINDS[method](**{**options, first: values[k]}).options()
        expected = METHODS[method](rule, stream.sequence(k), **given)
        got = np.concatenate([before[:, k], after[:, k]])
        assert relative_error(got, expected.predictions) < TOLERANCE[dtype]


@pytest.mark.plain
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("method", "rule"), PAIRS)
def test_with_a_meta_step_of_0_it_is_the_plain_rule(method: str, rule: str, engine: str) -> None:
    stream = stream_of(3, rule)
    expected = replace(stream, alpha=0.3 * stream.alpha).expected(rule)
    learner = emphatic.Learner(rule, stream.n, engine=engine, stepsize=KINDS[method](alpha=0.3, **STILL[method]))
    assert relative_error(stream.run(learner), expected.predictions) < TOLERANCE["float64"]
    assert relative_error(learner.theta, expected.theta) < TOLERANCE["float64"]


@pytest.mark.plain
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("method", KINDS)
def test_cut_forgets_the_traces_and_keeps_weights_and_step_sizes(method: str, engine: str) -> None:
    stream = stream_of(2, "true_online_etd")
    learner = emphatic.Learner("true_online_etd", 13, engine=engine, stepsize=KINDS[method](**LIVELY[method]))
    stream.run(learner)
    kept = {name: getattr(learner, name) for name in learner.rule.weights + learner.rule.lasting}
    learner.cut()
    for name, value in kept.items():
        assert np.array_equal(getattr(learner, name), value)
    for name in (*learner.rule.traces, "gamma", "F", "D"):
        assert not np.any(getattr(learner, name)), name


@pytest.mark.plain
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("method", KINDS)
@pytest.mark.parametrize("freeze", [False, True])
def test_who_diverges_stands_before_that_step(method: str, engine: str, freeze: bool) -> None:
    """Learner 1 is thrown to and fro by cumulants near the end of all numbers; or all stop before that step."""
    stream = stream_of(2, "true_online_td", 3, T=15)
    ones = np.ones((15, 3))
    stream = replace(stream, alpha=ones, rho=ones, I=ones, gamma_next=0.5 * ones, lambda_=0.5 * ones)
    assert stream.indices is not None
    stream.indices[7:] = stream.indices[7]
    stream.R[7:, 1] = 1.5e308 * (-1.0) ** np.arange(8)
    # (a huge meta-gradient would make the step sizes of these so small that nothing moves)
    kind = KINDS[method](**LIVELY[method] | ({"mu": 0.0} if "idbd" in method else {}))
    learner, other = (emphatic.Learner("true_online_td", 13, 3, engine=engine, stepsize=kind) for _ in range(2))
    Phi, _ = stream.features()
    p: dict[str, Any] = dict(stream.parameters())
    R, gamma_next = p.pop("R"), p.pop("gamma_next")
    if freeze:
        learner.run(Phi, R, gamma_next, **p, on_divergence="freeze")
        assert learner.frozen.tolist() == [False, True, False]
        reference = emphatic.Learner("true_online_td", 13, 3, engine="reference", stepsize=kind)
        reference.run(Phi, R, gamma_next, **p, on_divergence="freeze")
        assert learner._taken.tolist() == reference._taken.tolist()
        return
    with pytest.raises(emphatic.Diverged) as caught:
        learner.run(Phi, R, gamma_next, **p)
    assert caught.value.learner == 1
    stream[: caught.value.step].run(other)
    for name in learner.rule.vectors:
        assert relative_error(getattr(learner, name), getattr(other, name)) < 1e-12, name


def test_a_method_is_for_the_rules_that_it_fits() -> None:
    for stepsize in ("autostep", "swifttd"):
        with pytest.raises(ValueError, match=f"{stepsize!r} is for the rules .*true_online_td.*Got 'gtd' instead"):
            emphatic.Learner("gtd", 3, stepsize=stepsize)
    for wrong in ({"mu": -1.0}, {"alpha": 0.0}, {"tau": 0.0}):
        with pytest.raises(ValueError, match=f"The '{next(iter(wrong))}' parameter of Autostep must be"):
            Autostep(**wrong)
    with pytest.raises(ValueError, match="'decay' parameter of SwiftTD"):
        SwiftTD(decay=1.5)
    with pytest.raises(ValueError, match="'grow' parameter of RPROP"):
        RPROP(grow=0.5)


def test_autostep_on_its_tracking_problem() -> None:
    """The problem of Sutton (1992), on which the paper begins: of 20 inputs 5 matter, and their signs flip.

    From step sizes that are too small or far too large, it finds that the relevant ones need larger step sizes, and
    has a smaller error than the best constant (3.4; 5 for predicting 0).
    """
    rng = np.random.default_rng(0)
    T, n = 50_000, 20
    Phi, which, signs = rng.normal(size=(T + 1, n)), rng.integers(0, 5, T), np.ones((T, 5))
    for t in range(0, T, 20):
        signs[t:, which[t]] *= -1.0
    y = (signs * Phi[:-1, :5]).sum(axis=1)
    for alpha in (1e-2, 1.0):
        # (with γ = 0 and I = 1 it is td, and a kernel that is there already)
        learner = emphatic.Learner("true_online_etd", n, engine="dense", stepsize=Autostep(alpha))
        predictions = learner.run(Phi, y, 0.0)
        assert np.mean((y - predictions)[T // 2 :] ** 2) < 2.5
        assert learner.alphas[:5].min() > 20.0 * learner.alphas[5:].max()


def test_the_sparse_list_of_traces_is_within_its_bound() -> None:
    """With traces dropped at 1e-6 of what they were, predictions stay within about that of those with all."""
    stream = make(2, 101, 60, rule="true_online_td", active=3)
    stream = replace(stream, gamma_next=np.full(101, 0.9), lambda_=np.full(101, 0.5), rho=np.ones(101))
    options = LIVELY["emphatic"]
    with plain_python():
        a, b = (
            emphatic.Learner("true_online_td", 60, engine="sparse", stepsize=Emphatic(**{**options, "drop": drop}))
            for drop in (0.0, 1e-6)
        )
        error = relative_error(stream.run(b), stream.run(a))
    assert 0.0 < error < 1e-5


def swifttd_predictions(Phi: Any, R: Any, n: int, *options: float) -> Any:
    """θ_t·φ_{t+1} of the package from PyPI, on features by index and value."""
    package = pytest.importorskip("swifttd", reason="swifttd is not installed: see benchmarks/swifttd-build.txt")
    learner = package.SwiftTD(n, *options, 1e-10)
    cumulants = np.concatenate([[0.0], R])
    return [
        learner.step([(int(i), float(phi[i])) for i in np.flatnonzero(phi)], float(r))
        for phi, r in zip(Phi, cumulants, strict=True)
    ]


@pytest.mark.plain
@pytest.mark.parametrize("engine", ["dense", "sparse"])
@pytest.mark.parametrize(("eta", "decay", "mu", "alpha"), [(0.5, 0.9, 1e-3, 0.01), (0.2, 0.99, 1e-2, 0.05)])
def test_swifttd_is_the_package_of_that_name(engine: str, eta: float, decay: float, mu: float, alpha: float) -> None:
    """On-policy, non-negative features, to the accuracy of its float32; with and without its bound hit."""
    rng = np.random.default_rng(0)
    T, n, gamma, lambda_ = 400, 13, 0.9, 0.8
    Phi = rng.random((T + 1, n)) * (rng.random((T + 1, n)) < 0.3)
    R = Phi[1:] @ rng.normal(size=n) + 0.1 * rng.normal(size=T)
    theirs = swifttd_predictions(Phi, R, n, lambda_, alpha, gamma, 0.0, eta, decay, mu)
    method = SwiftTD(alpha, mu, eta, decay, drop=0.0)
    learner, ours = emphatic.Learner("true_online_td", n, engine=engine, stepsize=method), [0.0]
    for t in range(T):
        ours.append(learner.predict(Phi[t + 1]))
        learner.learn(1.0, 1.0, lambda_, Phi[t], 1.0, R[t], Phi[t + 1], gamma)
    assert relative_error(ours, theirs) < 1e-5


def test_the_exponential_of_rules() -> None:
    for x in (0.0, 1e-12, -1e-3, 0.5, -7.0, 31.9):
        assert emphatic.rules.exp(x) == pytest.approx(np.exp(x), rel=5e-14)
    assert emphatic.rules.exp(0.0) == 1.0
    assert emphatic.rules.exp(1e9) == pytest.approx(np.exp(32.0))


SLIPS = [
    ("tidbd", "mu * delta * (alpha > 0.0)", "mu * delta"),
    ("tidbd", "e * r", "e"),
    ("tidbd", "w * e - D * b", "w * e"),
    ("tidbd", "max(1.0 - outside", "max(1.0 + outside"),
    ("tidbd", "k * a * p", "k * p"),
    ("idbd", "mu_delta * p * h", "mu_delta * h * h"),
    ("autostep", "a = n * a", "a = a"),
    ("autostep", "(size - v) * rate", "(size + v) * rate"),
    ("autostep", "mu * g / max(v, 1e-37)", "mu * g"),
    ("autostep", "alpha * rho * M * squares", "rho * squares"),
    ("rprop", "sign + still * g_before", "sign"),
    ("rprop", "up * (agreed > 0.0)", "up * (agreed < 0.0)"),
    ("swifttd", "h_before * p * (e - b)", "h_before * p * e"),
    ("swifttd", "c * kept * e_bar", "c * e_bar"),
    ("swifttd", "p * e_bar", "e_bar"),
    ("emphatic", "meta_D * trace_before", "0.0 * trace_before"),
    ("emphatic", "h * p * b", "h * p * e"),
    ("emphatic", "h = kept * h", "h = h"),
    ("emphatic", "exp(decrease * p * p)", "exp(decrease * p)"),
    ("emphatic", "w * e_bar - D * b", "w * e_bar"),
]


@pytest.mark.parametrize(("method", "old", "new"), SLIPS)
def test_slips_in_a_method_are_caught(method: str, old: str, new: str) -> None:
    """One line changed, run by the reference engine: the equations must tell the difference."""
    rule, off = "true_online_etd", 0.0
    options = KINDS[method](**LIVELY[method]).options()
    for i in range(4):
        stream = bounded(method, stream_of(i, rule))
        learner = emphatic.Learner(rule, stream.n, engine="reference", stepsize=KINDS[method](**options))
        slipped = replace(learner.rule)
        assert old in slipped.source
        object.__setattr__(slipped, "source", slipped.source.replace(old, new))
        learner._engine.rule = slipped
        try:
            predictions = stream.run(learner)
        except emphatic.Diverged:
            return
        expected = METHODS[method](rule, stream.sequence(), **options)
        off = max(off, relative_error(predictions, expected.predictions))
        off = max(off, relative_error(learner.alphas, expected.alphas))
    assert off > 1e-6
