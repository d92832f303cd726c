"""What the cuda engine does where Triton interprets: each check is run by ``test_cuda`` in a process of its own.

TRITON_INTERPRET=1 python -m tests.support.interpreted follow_the_equations td gtd
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import emphatic
from emphatic import Learner, rules
from emphatic.engines.base import Engine, Steps, Watch
from emphatic.engines.cuda.engine import Cuda
from emphatic.engines.reference import Reference
from emphatic.rules import Rule, Scalars, Update
from tests.support.foreign import Foreign
from tests.support.rules import find
from tests.support.streams import TOLERANCE, make, relative_error

#: Rules of every structure.
STRUCTURES = ("true_online_etd", "tdrc", "htd", "true_online_gtd", "gq")

# ------------------------------------------------------------------ rules unlike any that ship


def no_trace(step: Scalars, memory: Scalars, x: Scalars, x_next: Scalars, g: Scalars) -> Update:
    """Residual gradient."""
    alpha, I, lambda_, rho, gamma_next, delta = step
    w = alpha * rho * delta
    return ((1.0,),), ((w, -gamma_next * w),), ()


def scaled(step: Scalars, memory: Scalars, x: Scalars, x_next: Scalars, g: Scalars) -> Update:
    """No trace, a weight that scales itself, numbers that a float32 does not hold, and coefficients of all learners."""
    alpha, I, lambda_, rho, gamma_next, delta, p0_at, tl = step
    ring, k = memory
    pp, pq, qq = g
    w = alpha * rho * delta * p0_at
    return (
        ((1.0 - 0.01 * tl, 0.0), (0.0, 0.9)),
        ((w + 0.001 * ring, -gamma_next * w * min(0.1, I)), (0.3 * pq, 0.1 * pp)),
        (0.5 * ring + delta, min(k + qq, 0.7)),
    )


def literal(step: Scalars, memory: Scalars, x: Scalars, x_next: Scalars, g: Scalars) -> Update:
    """Literals in A and B, a trace that feeds nothing, one that forgets at once, and no memory."""
    alpha, I, lambda_, rho, gamma_next, delta = step
    w = alpha * delta
    return (
        ((0.999, w * lambda_, 0.0, -0.5 * w), (0.0, 0.3, 0.0, 0.0), (0.0, 0.0, 0.7, 0.0), (0.0, 0.0, 0.0, 0.0)),
        ((w, 0.25), (0.5, 0.0), (1.0, 0.0), (-1.0, 0.0)),
        (),
    )


OWN = (
    Rule("no_trace", no_trace, weights=("theta",), traces=(), memory=()),
    Rule("scaled", scaled, weights=("theta", "w"), traces=(), memory=("ring", "k"), extra=("p0_at", "tl")),
    Rule("literal", literal, weights=("theta",), traces=("e", "y", "z"), memory=()),
)

# ------------------------------------------------------------------ checks


def follow_the_equations(*names: str) -> None:
    """More steps than a group, learners and features odd; φ' apart for rules of every structure."""
    for name in names:
        cases = [(0, False, "float64", 3, 18)] + [(1, True, "float32", None, 9)] * (name in STRUCTURES)
        for seed, separate, dtype, K, T in cases:
            stream = make(seed, T, 7, K, rule=name, separate=separate)
            learner = Learner(find(name), stream.n, K, dtype=dtype, engine="cuda")
            predictions, expected = stream.run(learner), stream.expected(name)
            found = {"predictions": relative_error(predictions, expected.predictions)}
            for vector in learner.rule.vectors:
                found[vector] = relative_error(getattr(learner, vector), expected.vectors[vector])
            assert max(found.values()) < TOLERANCE[dtype], (name, dtype, found)


def start_sequences() -> None:
    """A mask gives what the reference gives, in groups and chunks, for frozen and for diverging learners too."""
    last = Rule("last", literal, weights=("theta",), traces=("e", "y", "z"), memory=())
    cases: list[tuple[Any, int, int | None, bool, str]] = [
        ("true_online_etd", 68, 3, False, "float64"),
        ("true_online_gtd_separate", 19, 2, True, "float64"),
        ("true_online_td_separate", 34, None, True, "float32"),
        ("tdrc", 19, 2, False, "float32"),
        (last, 19, 2, True, "float64"),
        (rules.get("td"), 34, 1, True, "float64"),
    ]
    for seed, (rule, T, K, separate, dtype) in enumerate(cases):
        name = rule if isinstance(rule, str) else "td"
        rule = find(rule) if isinstance(rule, str) else rule
        stream = make(seed, T, 7, K, rule=name, separate=separate)
        rng = np.random.default_rng(seed)
        p: dict[str, Any] = stream.parameters()
        for first in (rng.random(T) < 0.1, np.ones(T, bool)) if seed % 2 else (rng.random(T) < 0.3,):
            got, wanted = (Learner(rule, 7, K, dtype=dtype, engine=engine) for engine in ("cuda", "reference"))
            predictions = [
                learner.run(stream.Phi, Phi_next=stream.Phi_next, first=first, **p) for learner in (got, wanted)
            ]
            assert relative_error(*predictions) < TOLERANCE[dtype], (rule, seed)
            for vector in (*got.rule.vectors, *got.rule.memory):
                error = relative_error(getattr(got, vector), getattr(wanted, vector))
                assert error < TOLERANCE[dtype], (rule, seed, vector, error)
    stream = make(4, 70, 6, 3, rule="td", separate=True)
    alpha = np.array(stream.alpha)
    alpha[20, 1] = 1e308
    diverging: dict[str, Any] = stream.parameters() | {
        "alpha": alpha,
        "R": stream.R + 10.0,
        "rho": np.ones_like(stream.rho),
    }
    first = np.zeros(70, bool)
    first[[5, 20, 33, 50]] = True
    for freeze in (True, False):
        learners = [Learner("td", 6, 3, engine=engine) for engine in ("cuda", "reference")]
        for learner in learners:
            with nullcontext() if freeze else pytest.raises(emphatic.Diverged):
                option: Any = "freeze" if freeze else "raise"
                learner.run(
                    stream.Phi, Phi_next=stream.Phi_next, first=torch.tensor(first), on_divergence=option, **diverging
                )
        assert learners[0].frozen.tolist() == learners[1].frozen.tolist() == [False, freeze, False]
        for vector in ("theta", "e", "gamma"):
            assert relative_error(getattr(learners[0], vector), getattr(learners[1], vector)) < 1e-10, vector
    # Of tensors, the first break that nothing marks is found where they are.
    tensors = {"Phi": torch.tensor(stream.Phi), "Phi_next": torch.tensor(stream.Phi_next)}
    parameters: dict[str, Any] = stream.parameters()
    with pytest.warns(emphatic.SequenceWarning) as seen:
        Learner("td", 6, 3, engine="cuda").run(**tensors, **parameters)
    with pytest.warns(emphatic.SequenceWarning) as wanted_too:
        Learner("td", 6, 3, engine="reference").run(stream.Phi, Phi_next=stream.Phi_next, **parameters)
    assert str(seen[0].message) == str(wanted_too[0].message)


def go_on_in_any_way(path: str) -> None:
    """Chunks, pieces, ``learn``, tensors, a file, and another engine in between."""
    rule = "td"
    stream = make(5, 67, 6, 2, rule=rule)
    expected = stream.expected(rule)

    def new() -> Learner:
        return Learner(rule, 6, 2, engine="cuda")

    whole = new()
    assert relative_error(stream.run(whole), expected.predictions) < 1e-10
    assert "cuda" in emphatic.engines.available()
    assert "numba" not in sys.modules
    pieces = new()
    stream[:16].run(pieces)
    stream[16:17].learn(pieces)
    pieces.save(path)
    reference = emphatic.load(path, engine="reference")
    stream[17:].run(reference)
    reference.save(path)
    back = emphatic.load(path, engine="cuda")
    assert back.engine == "cuda"
    rough = emphatic.load(path, engine="cuda-tf32")
    rough.save(path)
    assert emphatic.load(path).engine == rough.engine == "cuda-tf32"
    for learner in (whole, reference, back, back.copy(), back.select([0, 1])):
        for name in learner.rule.vectors:
            assert relative_error(getattr(learner, name), expected.vectors[name]) < 1e-10, (learner, name)
        assert learner.steps == 67

    short, T = stream[:17], 17
    tensors = {name: torch.tensor(value) for name, value in short.parameters().items()}
    made = new().run(torch.tensor(short.Phi), predictions="device", **tensors)
    assert isinstance(made, torch.Tensor)
    assert relative_error(made.cpu().numpy(), expected.predictions[:T]) < 1e-10
    parameters: dict[str, Any] = short.parameters()
    errors = new().run(short.Phi, predictions=None, returns=short.R, **parameters)
    assert relative_error(errors, np.square(expected.predictions[:T] - short.R).mean(0)) < 1e-10
    far = torch.from_file(path + ".R", shared=True, size=T << 27, dtype=torch.float64).view(T, 1 << 27)[:, :2]
    far.copy_(tensors["R"])  # a step's numbers as far apart as those of a hundred million learners
    assert relative_error(new().run(short.Phi, **(tensors | {"R": far})), expected.predictions[:T]) < 1e-10
    back.cut()
    assert not back.e.any()
    assert not back.gamma.any()
    assert back.theta.any()
    assert new().run(np.zeros((1, 6)), np.empty((0, 2)), 0.9, alpha=0.1).shape == (0, 2)
    message = "'Phi' parameter of run must be finite in float64. Got nan at step 0, feature 0 instead."
    with pytest.raises(ValueError, match=message):
        new().run(torch.full((T + 1, 6), float("nan")), predictions="device", **tensors)


def learn_in_chunks() -> None:
    """More than one chunk of float32, in halves of FP16 where these hold the features; columns in several shares."""
    for name, T, n, separate in (("true_online_etd", 66, 7, False), ("gq", 34, 7, True), ("td", 66, 600, False)):
        stream = make(2, T, n, 3, rule=name, separate=separate)
        reference = Learner(name, n, 3, engine="reference")
        expected = stream.run(reference)
        for engine, tolerance in (("cuda", 2e-6), ("cuda-tf32", 5e-3)):
            learner = Learner(name, n, 3, dtype="float32", engine=engine)
            assert (learner._engine.parts[0].shares > 1) == (n > 512)  # type: ignore[attr-defined]
            assert relative_error(stream.run(learner), expected) < tolerance, (name, engine)
            for vector in learner.rule.vectors:
                found = relative_error(getattr(learner, vector), getattr(reference, vector))
                assert found < tolerance, (name, engine, vector, found)
            if (name, engine) == ("td", "cuda"):
                break

    # Components of 1e-6 to 1e6, and weights to match: FP16 would lose most of what they add up to.
    scale = 10.0 ** np.arange(-6, 7, 2)
    stream = make(2, 66, 7, 2, rule="td")
    ends = []
    for engine, dtype in (("reference", "float64"), ("cuda", "float32")):
        learner = Learner("td", 7, 2, dtype=dtype, engine=engine)
        learner.theta = np.array([[1.0], [2.0]]) / scale
        given: dict[str, Any] = stream.parameters() | {"alpha": 1e-15}
        predictions = learner.run(stream.Phi * scale, **given)
        ends.append((predictions, learner.theta * scale))
    for there, here in zip(*ends, strict=True):
        assert relative_error(here, there) < 2e-6


def share_out_the_learners(path: str) -> None:
    """Two devices, which are one here: all that a learner does is as on one."""
    stream = make(5, 67, 6, 3, rule="td")
    one, two = (Learner("td", 6, 3, engine="cuda", devices=devices) for devices in ([0], [0, 0]))
    assert len(two._engine.parts) == 2  # type: ignore[attr-defined]
    expected, found = (stream[:65].run(learner) for learner in (one, two))
    assert relative_error(found, expected) < 1e-12
    two.save(path)
    for learner in (two.copy(), two.select([0, 1, 2]), emphatic.load(path, devices=[0, 0]), two):
        twin = one.copy()
        learner.theta = twin.theta = twin.theta + 1.0
        assert learner.predict(stream.Phi[0]) == pytest.approx(twin.predict(stream.Phi[0]))
        for each in (learner, twin):
            stream[65:].learn(each)
        assert learner.steps == 67
        assert learner.gamma.tolist() == twin.gamma.tolist()
        assert relative_error(learner.e, twin.e) < 1e-12
        assert relative_error(learner.theta, twin.theta) < 1e-12
    two.cut()
    assert not two.e.any()
    assert two.nbytes > 0
    given: dict[str, Any] = stream[:8].parameters()
    fresh = Learner("td", 6, 3, engine="cuda", devices=[0, 0])
    made = fresh.run(stream.Phi[:9], predictions="device", **given)
    assert relative_error(made.cpu().numpy(), expected[:8]) < 1e-12
    for devices in ([], [1], [-1], [0] * 4, 2, "00"):
        with pytest.raises(ValueError, match="The 'devices' parameter of Learner must be a list of GPUs"):
            Learner("td", 6, 3, engine="cuda", devices=devices)  # type: ignore[arg-type]


def take_other_arrays() -> None:
    """DLPack in, and out; tensors of a graph of gradients; arrays that go backwards in memory, which torch has not."""
    stream = make(5, 17, 6, 2, rule="td")
    expected = stream.expected("td")
    learner = Learner("td", 6, 2, engine="cuda")
    backwards: dict[str, Any] = {name: p.copy()[::-1].copy()[::-1] for name, p in stream.parameters().items()}
    backwards["R"] = backwards["R"].astype(np.float32)[::-1].copy()[::-1]
    Phi = stream.Phi[::-1, ::-1].copy()[::-1, ::-1]
    assert relative_error(learner.run(Phi, **backwards), expected.predictions) < 1e-6
    assert np.array_equal(learner.predict(Phi), learner.predict(stream.Phi))
    assert np.array_equal(learner.predict(Phi[0]), learner.predict(stream.Phi)[0])
    learner.run(stream.Phi, np.float32(1.0), np.array(0.9, np.float32), alpha=0.1)
    for kind in (Foreign, lambda value: torch.tensor(value, requires_grad=True)):
        learner = Learner("td", 6, 2, engine="cuda")
        given: dict[str, Any] = {name: kind(value) for name, value in stream.parameters().items()}
        made = learner.run(kind(stream.Phi), predictions="device", **given)
        assert relative_error(np.from_dlpack(made.cpu()), expected.predictions) < 1e-10
        assert learner.predict(kind(stream.Phi[0])).shape == (2,)
        assert learner.predict(kind(stream.Phi)).shape == (18, 2)
    take_infinite_bounds()
    take_ranges()
    compressed = [Learner("td", 6, 2, engine="cuda") for _ in range(2)]
    index = np.array([[0, 3, -1], [1, 2, 5], [4, -1, -1], [0, 1, 2]])
    rows = emphatic.Active(index, np.arange(1.0, 13.0).reshape(4, 3))
    dense = np.zeros((4, 7))
    np.put_along_axis(dense, index, rows.values, 1)  # (−1 is the last column, which is left out)
    forms: tuple[Any, Any] = (rows, dense[:, :6])
    for one, Phi in zip(compressed, forms, strict=True):
        one.run(Phi, 1.0, 0.9, alpha=0.001)
        one.run(Phi[:2], 1.0, 0.9, alpha=0.001, Phi_next=Phi[2:], first=[True, True])
    assert np.array_equal(compressed[0].theta, compressed[1].theta)
    dense[3, 5] = np.nan
    with pytest.raises(ValueError, match="nan at step 3, feature 5"):
        learner.run(dense[:, :6], 1.0, 0.9, alpha=0.1)
    for bad in (Foreign(stream.Phi, device=2), torch.ones((18, 6), dtype=torch.complex64)):
        with pytest.raises(ValueError, match="'Phi' parameter of run must be"):
            learner.run(bad, 1.0, 0.9, alpha=0.1)
    short = {"R": 1.0, "gamma_next": torch.ones(17, 1), "alpha": 0.0}
    with pytest.warns(emphatic.UndiscountedWarning):
        learner.run(stream.Phi, **short)


def take_infinite_bounds() -> None:
    """A parameter that may be infinite, in arrays of every kind and as a number."""
    stream = make(6, 5, 4, 2, rule="vtrace")
    bound, unbounded = stream.extra["rho_bar"], replace(stream, extra={})
    assert np.isinf(bound).any()
    assert (stream.rho > bound).any()
    kinds: dict[Any, str] = {np.asarray: "float64", Foreign: "float32", torch.tensor: "float64", np.float32: "float32"}
    for kind, dtype in kinds.items():
        learner = Learner("vtrace", 4, 2, engine="cuda", dtype=dtype)
        made = learner.run(stream.Phi, **stream.parameters() | {"rho_bar": kind(bound)})
        assert relative_error(made, stream.expected("vtrace").predictions) < max(TOLERANCE[dtype], 1e-6)
    parameters: dict[str, Any] = dict(unbounded.parameters())
    for given in (parameters, parameters | {"rho_bar": torch.tensor(np.inf)}):
        learner = Learner("vtrace", 4, 2, engine="cuda")
        made = learner.run(stream.Phi, **given)
        assert relative_error(made, unbounded.expected("vtrace").predictions) < TOLERANCE["float64"]
    for bad in (torch.tensor(np.nan), torch.tensor([np.inf, -1.0]), torch.tensor([-np.inf, 1.0])):
        with pytest.raises(ValueError, match=r"'rho_bar' parameter of run must be 0 or more\. Got (nan|-1.0|-inf)"):
            learner.run(stream.Phi, **stream.parameters() | {"rho_bar": bad})


def take_ranges() -> None:
    """Two ends of a range, which may be infinite, on the device, on the host, and one on each; out of order."""
    stream = make(6, 9, 4, 2, rule="bounded_etd")
    low, high = stream.extra["low"], stream.extra["high"]
    assert np.isinf(low).any()
    assert np.isinf(high).any()
    kinds: dict[Any, str] = {np.asarray: "float64", torch.tensor: "float64", Foreign: "float32", np.float32: "float32"}
    for kind, dtype in kinds.items():
        for ends in ({"low": kind(low), "high": kind(high)}, {"low": low, "high": kind(high)}):
            learner = Learner("bounded_etd", 4, 2, engine="cuda", dtype=dtype)
            made = learner.run(stream.Phi, **stream.parameters() | ends)
            assert relative_error(made, stream.expected("bounded_etd").predictions) < max(TOLERANCE[dtype], 1e-6)
    for bad, words in (
        ({"low": torch.tensor([0.0, 3.0]), "high": 2.0}, r"Got 3\.0 with 'high' = 2\.0 at learner 1"),
        ({"low": 3.0, "high": torch.tensor([[4.0]] * 8 + [[2.0]])}, r"Got 3\.0 with 'high' = 2\.0 at step 8"),
        ({"low": torch.tensor(np.inf)}, r"'low' .* be finite or -inf\. Got inf"),
        ({"low": torch.tensor([0.0, np.nan])}, r"'low' .* be finite or -inf\. Got nan at learner 1"),
        ({"high": torch.tensor(-np.inf)}, r"'high' .* be finite or inf\. Got -inf"),
    ):
        with pytest.raises(ValueError, match=words):
            Learner("bounded_etd", 4, 2, engine="cuda").run(stream.Phi, **stream.parameters() | bad)


def use_devices_and_arrays(path: str) -> None:
    """Both in one process: it takes seconds to import torch."""
    share_out_the_learners(path)
    take_other_arrays()


def diverge_where_the_reference_does() -> None:
    def run(engine: str, **how: Any) -> tuple[Any, Learner]:
        devices = [0, 0] if engine == "cuda" else None
        learner = Learner("td", 2, 3, engine=engine, dtype="float32", devices=devices)
        try:
            out = learner.run(np.ones((61, 2)), 1.0, 0.9, alpha=np.array([0.1, 50.0, 1e3]), **how)
        except emphatic.Diverged as error:
            return str(error), learner
        return out, learner

    (message, there), (again, here) = run("reference"), run("cuda")
    assert message == again
    assert "Learner 2 diverged at step 16" in again
    assert here.steps == there.steps == 16
    assert np.allclose(here.theta, there.theta, rtol=1e-5)
    (out, one), (made, other) = (run(engine, on_divergence="freeze") for engine in ("reference", "cuda"))
    assert other.frozen.tolist() == one.frozen.tolist() == [False, True, True]
    assert other._taken.tolist() == one._taken.tolist()
    assert np.allclose(other.theta, one.theta, rtol=1e-5)
    assert np.allclose(made, out, rtol=1e-5)


def leave_the_range_where_the_weights_do() -> None:
    """Numbers that only the chunked form has, A_total and W, overflow: the learners do not."""
    T = 32
    decayed = np.r_[np.zeros(16), np.ones(T - 16)]
    for feature, alpha, lambda_, rho in (
        (0.0, 0.0, 1.0, 40.0),  # A_total: 36³²
        (1e-30, 1e-3, 1.0, 40.0),  # W: 36³¹
        (0.0, 0.0, decayed, np.where(decayed > 0.0, 400.0, 1.0)),  # the product of one group's A: 360¹⁶
    ):
        how: dict[str, Any] = {"alpha": alpha, "lambda_": lambda_, "rho": rho}
        ends = []
        for engine in ("reference", "cuda"):
            learner = Learner("true_online_etd", 2, 2, dtype="float32", engine=engine)
            learner.theta = [[1.0, 2.0], [3.0, 4.0]]
            predictions = learner.run(np.full((T + 1, 2), feature), 0.0, 0.9, **how)
            ends.append([learner.theta, learner.e, predictions])
        for here, there in zip(*ends, strict=True):
            assert np.allclose(here, there, rtol=1e-5, atol=0.0), (feature, here, there)

    # F = 10¹⁵ + .1, I = .1 and λ = 1, so that M is .1.
    learner = Learner("etd", 2, 1, engine="cuda")
    how = {"alpha": 1e-20, "I": [1e15, 0.1], "lambda_": 1.0, "Phi_next": np.zeros((2, 2))}
    learner.run(np.eye(2), 0.0, 1.0, **how)
    assert learner.F == 1e15 + 0.1
    assert learner.e.tolist() == [[1e15, 0.1]]


def leave_frozen_learners_alone() -> None:
    """Not a bit of a frozen learner changes; the others go on as if it were not there, and it predicts."""
    rng = np.random.default_rng(0)
    T, n, K = 19, 3, 4
    Phi, frozen = rng.normal(size=(T + 1, n)), np.array([False, True, False, True])
    start = rng.normal(size=(2, K, n))
    start[:, 1] = [[-0.0, 1.0, 2.0], [1e300, -1e300, -0.0]]  # its trace·φ may overflow, and is not asked for
    parameters = [np.full((T, K), value) for value in (0.1, 1.0, 0.9, 1.0, 0.9)]
    parameters.append(rng.normal(size=(T, K)))

    def run(kind: Any) -> tuple[Engine, Any]:
        engine: Engine = kind(rules.get("td"), n, K, "float64")
        for r in range(2):
            engine.put(r, start[r])
        engine.scalars[:, 0], engine.scalars[:, -1] = 0.5, np.arange(K)
        predictions = np.empty((T, K))
        top = float(np.abs(Phi).max())
        assert engine.run(Steps(Phi[:-1], Phi[1:], top, tuple(parameters), predictions, Watch(frozen.copy()))) == -1
        return engine, predictions

    (engine, predictions), (reference, expected) = run(Cuda), run(Reference)
    for r in range(2):
        assert engine.vector(r)[frozen].tobytes() == start[r][frozen].tobytes()
        assert relative_error(engine.vector(r)[~frozen], reference.vector(r)[~frozen]) < 1e-10
    assert engine.scalars[frozen, 0].tolist() == [0.5, 0.5]
    assert engine.scalars[:, -1].tolist() == [T, 1, T + 2, 3]
    assert relative_error(predictions, expected) < 1e-10
    assert relative_error(engine.delta, reference.delta) < 1e-10


def run_any_rule() -> None:
    rng = np.random.default_rng(1)
    T, n, K = 18, 3, 2
    Phi = rng.normal(size=(T + 1, n)) / 2.0
    kinds: tuple[Any, ...] = (Reference, Cuda)
    for i, rule in enumerate(OWN):
        given = {name: rng.uniform(0.5, 1.0, (T, K)) for name in rule.parameters} | {"alpha": np.full((T, K), 0.1)}
        phi_next = Phi[1:] if i < 2 else rng.permutation(Phi)[1:]
        ends = []
        for kind in kinds:
            engine: Engine = kind(rule, n, K, "float64")
            predictions = np.empty((T, K))
            parameters = tuple(given[name] for name in rule.parameters)
            status = engine.run(Steps(Phi[:-1], phi_next, 9.0, parameters, predictions, Watch(np.zeros(K, np.bool_))))
            assert status == -1
            vectors = [engine.vector(r) for r in range(len(rule.vectors))]
            ends.append([predictions, engine.delta, engine.scalars[:, : engine.M], *vectors])
        for expected, found in zip(*ends, strict=True):
            assert relative_error(found, expected) < 1e-10, rule.name


def learn_as_the_reference_does() -> None:
    """All that is about neither one rule nor a file; divergence on two devices."""
    diverge_where_the_reference_does()
    leave_the_range_where_the_weights_do()
    leave_frozen_learners_alone()
    run_any_rule()


def withstand_the_attack() -> None:
    """Some of the standing attack (``tests.attack``), and arrays in the layouts that torch does not have."""
    from hypothesis import HealthCheck, settings
    from hypothesis.stateful import run_state_machine_as_test

    from tests.attack.machine import COUNTS, LearnerMachine

    stream = make(0, 7, 3, 2)
    here, there = (Learner("td", 3, 2, engine=engine) for engine in ("cuda", "reference"))
    backwards: dict[str, Any] = {name: v[::-1, ::-1].copy()[::-1, ::-1] for name, v in stream.parameters().items()}
    odd = np.ndarray(stream.Phi.shape, np.float64, bytearray(stream.Phi.nbytes + 1), 1)
    odd[...] = stream.Phi
    for Phi in (odd, stream.Phi[::-1].copy()[::-1]):
        assert relative_error(here.run(Phi, **backwards), there.run(Phi, **backwards)) < 1e-10

    LearnerMachine.engines = ("cuda",)
    some = settings(
        max_examples=4, stateful_step_count=10, deadline=None, derandomize=True, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    run_state_machine_as_test(LearnerMachine, settings=some)
    assert COUNTS["engine cuda"] > 20


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
