"""Hordes as such: taken apart and together, frozen one by one, and the engine that ``auto`` chooses for them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emphatic
from emphatic import Learner
from tests.support.streams import TOLERANCE, make, relative_error

ENGINES = emphatic.engines.available()
RULE, n, K, T = "true_online_etd", 9, 7, 60


def everything(learner: Learner) -> list[Any]:
    """All that it knows, bit for bit."""
    names = learner.rule.vectors + learner.rule.memory
    return [learner.steps, *(np.asarray(getattr(learner, name)).tobytes() for name in names)]


def test_what_cannot_be_selected_or_joined_is_refused() -> None:
    horde = Learner(RULE, n, K)
    for ks in ([], [[0]], 3, [K], [0.5], ["a"]):
        with pytest.raises(ValueError, match="'ks' parameter of select"):
            horde.select(ks)
    with pytest.raises(ValueError, match="'ks' parameter of select"):
        Learner(RULE, n).select([0])
    with pytest.raises(ValueError, match="'hordes' parameter of join"):
        emphatic.join([])
    with pytest.raises(ValueError, match="all be like the first"):
        emphatic.join([horde, Learner("td", n, K)])


# ------------------------------------------------------------------------------------------------ frozen, taken apart


def some_frozen(engine: str, K: int | None = K, begin: int = 0, end: int = 30) -> Learner:
    """Learners 1 and 5 (or the only one) stop on their way, the others go on."""
    stream = make(1, T, n, K, active=3, binary=False)
    horde = Learner(RULE, n, K, engine=engine)
    part: dict[str, Any] = stream[begin:end].parameters()
    if K is None:
        part["R"][12:] = 1e300
        part["alpha"][12:] = 1e300
    else:
        part["R"][12:, 1] = part["alpha"][12:, 1] = 1e300
        part["R"][20:, 5] = part["alpha"][20:, 5] = 1e300
    Phi, _ = stream[begin:end].features()
    horde.run(Phi, on_divergence="freeze", **part)
    return horde


def go_on(horde: Learner, of: Any = slice(None), begin: int = 30, end: int = T) -> Any:
    part = make(1, T, n, K, active=3, binary=False)[begin:end].of_learners(np.arange(K)[of])
    given: dict[str, Any] = part.parameters()
    return horde.run(part.features()[0], on_divergence="freeze", **given)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "shares",
    [[[0, 2, 3, 4, 6], [1, 5]], [[1], [5], [0, 2, 3, 4, 6]], [[k] for k in range(K)], [[6, 5, 4], [3, 2, 1, 0]]],
)
def test_join_undoes_select_whoever_is_frozen(engine: str, shares: list[list[int]]) -> None:
    """Also parts of which nobody moves; all go on to the same bits, and in parts they stay together."""
    horde = some_frozen(engine)
    assert horde.frozen.tolist() == [k in (1, 5) for k in range(K)]
    taken, order = horde._taken, np.concatenate(shares)
    assert 12 <= taken[1] < 20 <= taken[5] < 30
    parts = [horde.select(share) for share in shares]
    assert {part.position for part in parts} == {30}
    assert [part.steps for part in parts] == [max(taken[share]) for share in shares]
    before = everything(horde)
    whole, plain = emphatic.join(parts), horde.select(order)
    assert everything(whole) == everything(plain)
    assert np.array_equal(plain.theta, horde.theta[order])
    assert whole.frozen.tolist() == horde.frozen[order].tolist()
    assert whole._taken.tolist() == taken[order].tolist()
    assert whole.position == plain.position == 30
    assert np.array_equal(go_on(whole, order), go_on(plain, order))
    assert everything(whole) == everything(plain)
    # Each part by itself: those of which nobody moves are still where the others are.
    for share, part in zip(shares, parts, strict=True):
        go_on(part, share)
    assert everything(horde) == before, "a selection is a copy"
    again = emphatic.join(parts)
    assert again.position == whole.position == T
    assert again._taken.tolist() == whole._taken.tolist()
    assert relative_error(again.theta, whole.theta) <= TOLERANCE["float64"]


@pytest.mark.parametrize("engine", ENGINES)
def test_hordes_at_different_positions_are_not_joined(engine: str) -> None:
    """However far those that still move, and those that do not, have learned."""
    horde = some_frozen(engine)
    early, late = horde.select([1]), horde.select([0, 2])
    go_on(late, [0, 2], 30, 31)
    for parts in ([early, late], [late, early]):
        with pytest.raises(ValueError, match=r"be at the same position of the stream. Got steps 30, 31 instead"):
            emphatic.join(parts)
    ahead = Learner(RULE, n, 2, engine=engine)
    with pytest.raises(ValueError, match=r"be at the same position of the stream. Got steps 0, 30 instead"):
        emphatic.join([horde, ahead])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("one", [False, True])
def test_the_stream_goes_on_whoever_stands_still(engine: str, one: bool, tmp_path: Path) -> None:
    """By ``run``, by ``learn``, through a file, a copy and a pickle, and when set free; but not past a refusal."""
    learner = some_frozen(engine, None) if one else some_frozen(engine).select([1, 5])
    assert np.all(learner.frozen)
    stopped, (short, longer) = learner.steps, (np.zeros((1, n)), np.zeros((4, n)))
    assert (stopped < 30, learner.position) == (True, 30)
    learner.run(longer, 0.0, 0.9, alpha=0.1)
    learner.run(short, 0.0, 0.9, alpha=0.1)
    for _ in range(2):
        learner.learn(0.1, 1.0, 0.5, short[0], 1.0, 0.0, short[0], 0.9)
    with pytest.raises(ValueError, match="alpha"):
        learner.learn(-0.1, 1.0, 0.5, short[0], 1.0, 0.0, short[0], 0.9)
    with pytest.raises(ValueError, match="alpha"):
        learner.run(longer, 0.0, 0.9, alpha=-0.1)
    learner.save(tmp_path / "m")
    for other in (learner, learner.copy(), pickle.loads(pickle.dumps(learner)), emphatic.load(tmp_path / "m")):
        assert (other.position, other.steps) == (35, stopped)
        other.theta = np.zeros(n)
        other.run(longer, 0.0, 0.9, alpha=0.1)
        other.learn(0.1, 1.0, 0.5, short[0], 1.0, 0.0, short[0], 0.9)
        assert (other.position, other.steps) == (39, stopped + 4)
        with pytest.raises(emphatic.Diverged) as info:
            other.run(np.ones((9, n)), [0.0, 0.0] + [1e300] * 6, 0.9, alpha=1e300)
        assert info.value.step >= 2
        assert (other.position, other.steps) == (39 + info.value.step, stopped + 4 + info.value.step)


@pytest.mark.parametrize(
    ("n", "K", "T", "active", "engine"),
    [
        (100, None, 1000, None, "dense"),
        (100_000, None, 1000, None, "dense"),
        (1_000_000, None, 1000, 32, "sparse"),
        (6, None, 1, 1, "sparse"),  # to write φ out takes longer
        (1024, 1024, 1000, None, "chunked"),
        (6, 1000, 1000, None, "dense"),
        (64, 1024, 1000, None, "chunked"),
        (64, 16, 1000, None, "dense"),  # too few to share what is done once
        (1024, 1024, 1, None, "dense"),
        (1024, 256, 32, None, "chunked"),
        (1_000_000, 64, 1, 32, "sparse"),
        (64, 1024, 1000, 1, "chunked"),
        (1024, 1024, 32, 10, "sparse"),
        (1024, 16, 1, 10, "sparse"),
        (1024, 1024, 1, 10, "sparse"),
        (1024, 1024, 1000, 10, "chunked"),  # nearly every trace is alive
        (4096, 256, 500, 1, "sparse"),
        (6065, 2160, 1, 457, "sparse"),
        (6065, 2160, 1000, 457, "chunked"),
    ],
)
def test_auto_chooses_by_cost(n: int, K: int | None, T: int, active: float | None, engine: str) -> None:
    assert emphatic.engines.choose(n, K, T, active) == engine


@pytest.mark.parametrize("engine", ENGINES)
def test_parameters_of_any_shape_are_as_if_written_out(engine: str) -> None:
    """A number, (T,), (K,) and (T, K) in any order of memory; more learners than a block, more steps than a chunk."""
    n, K, T = 6, 70, 261
    rng = np.random.default_rng(4)
    Phi, R = rng.normal(size=(T + 1, n)) / np.sqrt(n), rng.normal(size=T)
    lambda_, gamma_next, I = rng.uniform(size=K), rng.uniform(0, 0.9, (T, 1)), rng.uniform(size=(1, K))
    alpha = np.asfortranarray(rng.uniform(0, 0.1, (T, K)))
    given: dict[str, Any] = {"alpha": alpha, "I": I, "lambda_": lambda_, "rho": 0.9, "gamma_next": gamma_next}
    brief, full = (Learner(RULE, n, K, engine=engine) for _ in range(2))
    written: dict[str, Any] = {name: np.array(np.broadcast_to(p, (T, K)), order="C") for name, p in given.items()}
    written["R"] = np.array(np.broadcast_to(R[:, None], (T, K)), order="C")
    assert np.array_equal(brief.run(Phi, R, **given), full.run(Phi, **written))
    assert everything(brief) == everything(full)


def test_between_runs_a_chunked_horde_is_its_state() -> None:
    """m K n numbers and less than a tenth, whatever its runs and threads needed: all of it goes into a pickle."""
    n, K = 400, 300
    horde = Learner(RULE, n, K, engine="chunked", threads=2)
    for T in (10, 20):
        make(3, T, n, K).run(horde)
    numbers = len(horde.rule.vectors) * K * n * 8
    assert numbers <= horde.nbytes <= len(pickle.dumps(horde)) < 1.1 * numbers
