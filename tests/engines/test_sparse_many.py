"""The sparse engine for K learners beside the reference, through the engines' own interface."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba.core.config
import numpy as np
import numpy.typing as npt
import pytest

from emphatic import rules
from emphatic.engines.base import Rows, Steps, Watch
from emphatic.engines.reference import Reference
from emphatic.engines.sparse.sparse_many import SparseMany
from emphatic.engines.sparse.sparse_many_kernels import NEVER
from emphatic.rules import Rule

Array = npt.NDArray[Any]
#: By dtype: what rounding may make of a stream that does not grow.
SAME = {"float64": 1e-12, "float32": 2e-4}
every_dtype = pytest.mark.parametrize("dtype", SAME)


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels run as the Python that they are."""
    monkeypatch.setattr(numba.core.config, "DISABLE_JIT", True)


@dataclass
class Log:
    """T steps of K learners: φ as rows with a −1 here and there, and as an array."""

    rows: Rows
    dense: Array
    parameters: tuple[Array, ...]

    @staticmethod
    def drawn(rule: Rule, seed: int, n: int = 6, K: int = 3, T: int = 60, dtype: str = "float64") -> Log:
        rng = np.random.default_rng(seed)
        index = np.array([rng.permutation(n)[: min(n, 4)] for _ in range(T + 1)])
        index[rng.random(index.shape) < 0.2] = -1
        value = rng.normal(size=index.shape).astype(dtype).astype(np.float64) / 2
        rows = Rows(np.arange(T + 2) * index.shape[1], index.reshape(-1), value.reshape(-1))
        ranges: dict[str, Any] = {
            "alpha": rng.uniform(0, 0.1, (T, K)),
            "I": rng.choice([0.0, 0.1, 1.0], (T, K)) if rule.interest else np.ones((T, K)),
            "lambda_": np.broadcast_to(np.linspace(0.05, 0.99, K), (T, K)),
            "rho": rng.choice([0.0, *[0.9, 1.0, 1.05] * 10], (T, K)),
            "gamma_next": rng.choice([0.0, *[0.95, 1.0] * 20], (T, K)),
            "R": rng.normal(size=(T, K)),
            "beta": rng.uniform(0, 0.05, (T, K)),
        }
        given = (ranges.get(name, rng.uniform(0, 1, (T, K))) for name in rule.parameters)
        return Log(rows, rows.dense(n, dtype), tuple(np.array(p) for p in given))

    def run(self, engine: Any, begin: int, end: int, watch: Watch | None = None, more: int = 0) -> tuple[int, Array]:
        predictions = np.zeros((end - begin + more, engine.K), engine.dtype)
        features: Any = (
            (self.rows.block(begin, end), self.rows.block(begin + 1, end + 1))
            if engine.takes_rows
            else (self.dense[begin:end], self.dense[begin + 1 : end + 1])
        )
        parameters = tuple(p[begin:end] for p in self.parameters)
        watch = watch or Watch(np.zeros(engine.K, bool))
        phi, phi_next = features
        return engine.run(Steps(phi, phi_next, 10.0, parameters, predictions, watch)), predictions

    def step(self, engine: SparseMany, t: int, frozen: Array | None = None) -> Any:
        frozen = np.zeros(engine.K, bool) if frozen is None else frozen
        parameters = tuple(p[t : t + 1] for p in self.parameters)
        return engine.stepper(False)(self.rows.block(t, t + 1), self.rows.block(t + 1, t + 2), parameters, frozen)


def state(engine: Any) -> list[Array]:
    vectors = [engine.vector(r) for r in range(len(engine.rule.vectors))]
    return [*vectors, engine.scalars[:, : engine.M], engine.scalars[:, -1:]]


def apart(one: Any, other: Any, learners: Any = slice(None)) -> float:
    """The largest difference, relative to each learner's own largest number of a kind."""
    out = 0.0
    for a, b in zip(state(one), state(other), strict=True):
        for x, y in zip(a[learners].astype(np.float64), b[learners].astype(np.float64), strict=True):
            if len(y):
                out = max(out, float(np.abs(x - y).max() / max(np.abs(y).max(), 1e-30)))
    return out


def sliding(rule: Rule, dtype: str, K: int = 3, T: int = 40) -> Log:
    """Nine columns a row, nearly all of them those of the row before and in the same order, as a log's features are."""
    log, rng = Log.drawn(rule, 5, n=24, K=K, T=T, dtype=dtype), np.random.default_rng(6)
    index = np.empty((T + 1, 9), np.int64)
    index[0] = np.arange(0, 18, 2)
    for t in range(T):
        index[t + 1] = index[t]
        slot = rng.integers(9)
        index[t + 1, slot] = rng.choice(np.setdiff1d(np.arange(-1, 24), index[t]))
    value = rng.normal(size=index.shape).astype(dtype).astype(np.float64) / 2
    rows = Rows(np.arange(T + 2) * 9, index.reshape(-1), value.reshape(-1))
    return Log(rows, rows.dense(24, dtype), log.parameters)


def differences_of_neighbours(rule: Rule, dtype: str) -> list[str]:
    """What is wrong where rows share most of their columns: beside the reference, in pieces, and with breaks."""
    T, differences = 40, []
    log, first = sliding(rule, dtype, T=T), np.zeros(T, bool)
    first[[7, 8, 20]] = True
    engine, broken, pieces = (SparseMany(rule, 24, 3, dtype) for _ in range(3))
    reference, watch = Reference(rule, 24, 3, dtype), Watch(np.zeros(3, bool))
    _, predictions = log.run(engine, 0, T)
    log.run(reference, 0, T)
    if not apart(engine, reference) <= 10 * SAME[dtype]:
        differences.append("the reference")
    in_pieces = SparseMany(rule, 24, 3, dtype)
    parts = [log.run(in_pieces, begin, end)[1] for begin, end in ((0, 1), (1, 9), (9, 10), (10, T))]
    if not np.array_equal(predictions, np.concatenate(parts)):
        differences.append("the predictions in pieces")
    if not all(np.array_equal(a, b) for a, b in zip(state(engine), state(in_pieces), strict=True)):
        differences.append("the state in pieces")
    rows, rows_next = log.rows.block(0, T), log.rows.block(1, T + 1)
    broken.run(Steps(rows, rows_next, 10.0, log.parameters, predictions, watch, first))
    for begin, end in ((0, 7), (7, 8), (8, 20), (20, T)):
        if begin:
            pieces.clear_traces()
            pieces.scalars[:, : pieces.M] = 0.0
        log.run(pieces, begin, end)
    if not apart(broken, pieces) <= 10 * SAME[dtype]:
        differences.append("breaks")
    return differences


@every_dtype
@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "interpreted"])
@pytest.mark.parametrize(
    "rule", [*map(rules.get, ("true_online_etd", "true_online_gtd", "tdrc"))], ids=lambda r: r.name
)
def test_rows_that_share_their_columns(rule: Rule, compiled: bool, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba.core.config, "DISABLE_JIT", not compiled)
    assert differences_of_neighbours(rule, dtype) == []


@pytest.mark.usefixtures("interpreted")
@every_dtype
def test_a_frozen_learner_does_not_fold_with_its_neighbours(dtype: str) -> None:
    """Frozen where its trace has shrunk a little, and nobody's so much that columns had to be visited."""
    rule = rules.get("true_online_etd")
    log = Log.drawn(rule, 7, dtype=dtype)
    for name, value in (("lambda_", 0.5), ("rho", 1.0), ("gamma_next", 1.0), ("I", 1.0)):
        log.parameters[rule.parameters.index(name)][:] = value
    engine, frozen = SparseMany(rule, 6, 3, dtype), np.array([False, True, False])
    log.run(engine, 0, 5)
    before, lazy = state(engine), engine.pending()
    assert (lazy["diag"][1] < 0.2).all()
    log.run(engine, 5, 60, Watch(frozen))
    assert lazy["since"][0, 0] > 0
    for a, b in zip(before, state(engine), strict=True):
        assert np.array_equal(a[1], b[1])


@every_dtype
@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "interpreted"])
def test_settling_changes_no_bit(dtype: str, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """X = C·H is rounded alike where it is read and where C becomes 1."""
    monkeypatch.setattr(numba.core.config, "DISABLE_JIT", not compiled)
    rule = rules.get("true_online_etd")
    engine = SparseMany(rule, 6, 3, dtype)
    Log.drawn(rule, 4, dtype=dtype).run(engine, 0, 60)
    assert (engine.pending()["take"] != 0.0).any()
    before = state(engine)
    engine.set_vector(0, engine.vector(0))
    assert (engine.pending()["take"] == 0.0).all()
    assert all(np.array_equal(a, b) for a, b in zip(before, state(engine), strict=True))


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("by_step", [False, True])
def test_time_begins_anew(by_step: bool) -> None:
    """The clock is a small number; where it would run out, all is settled and it starts again."""
    rule = rules.get("true_online_gtd")
    log = Log.drawn(rule, 6)
    engine, reference = SparseMany(rule, 6, 3, "float64"), Reference(rule, 6, 3, "float64")
    engine.pending()["clock"][0] = NEVER - 30
    for t in range(0, 60, 10):
        log.run(reference, t, t + 10)
        if by_step:
            assert all(log.step(engine, s) is not None for s in range(t, t + 10))
        else:
            log.run(engine, t, t + 10)
    assert engine.pending()["clock"][0] <= 60
    assert apart(engine, reference) <= SAME["float64"]
