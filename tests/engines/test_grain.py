"""An engine's grain: where runs and hordes can be cut without any bit being another, and that it matters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import emphatic
from emphatic import Learner
from tests.support.contract import STRUCTURES
from tests.support.streams import TOLERANCE, Stream, make, relative_error

#: The largest among the tests that take long: for many learners its kernels compile for twenty seconds.
RULES = [STRUCTURES[0], pytest.param(STRUCTURES[2], marks=pytest.mark.long)]
ENGINES = ("reference", "dense", "sparse", "chunked")
#: Of hordes: steps of a run that are taken in pieces, and the pieces.
LENGTHS = {"reference": (20, 7), "dense": (300, 7), "sparse": (300, 7), "chunked": (127 * 2 + 3, 127)}


def outcome(learner: Learner, predictions: Any) -> dict[str, bytes]:
    """To the bit."""
    names = learner.rule.vectors + learner.rule.memory
    return {name: np.asarray(getattr(learner, name)).tobytes() for name in names} | {
        "predictions": np.ascontiguousarray(predictions).tobytes()
    }


def in_pieces(learner: Learner, stream: Stream, steps: int) -> Any:
    """Predictions of the whole stream, so many steps at a time."""
    return np.concatenate([stream[t : min(t + steps, stream.T)].run(learner) for t in range(0, stream.T, steps)])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("K", [None, 3, 16])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("separate", [False, True])
def test_a_run_in_pieces_of_the_grain(engine: str, K: int | None, rule: str, separate: bool) -> None:
    """The last piece is shorter than a chunk would be worth; one step at a time where the grain is one."""
    T, piece = LENGTHS[engine]
    stream = make(5, T, 6, K, rule=rule, separate=separate, active=3, binary=False)
    whole, parts, single = (Learner(rule, 6, K, engine=engine) for _ in range(3))
    steps, _ = whole.grain
    expected = outcome(whole, stream.run(whole))
    if steps == 0:  # no promise but the contract's
        in_pieces(parts, stream, piece)
        assert relative_error(parts.theta, whole.theta) <= TOLERANCE["float64"]
        return
    assert piece % steps == 0
    assert outcome(parts, in_pieces(parts, stream, piece)) == expected
    if T > 20:
        short = stream[:20]
        again = Learner(rule, 6, K, engine=engine)
        by_run, by_one = short.run(again), in_pieces(single, short, 1)
        same = outcome(again, by_run) == outcome(single, by_one)
        assert same if steps == 1 else relative_error(again.theta, single.theta) <= TOLERANCE["float64"]


@pytest.mark.parametrize("engine", ["reference", "dense", "chunked"])
@pytest.mark.parametrize("n", [6, 40])
@pytest.mark.parametrize("rule", RULES)
def test_a_horde_in_parts_of_the_grain(engine: str, n: int, rule: str) -> None:
    """Learners of few features go side by side, those of more do not."""
    _, learners = Learner(rule, n, 2, engine=engine).grain
    K, T = 3 * learners, 12 if engine == "reference" else 135
    stream = make(6, T, n, 7, rule=rule).of_learners(np.arange(K) % 7)
    whole = Learner(rule, n, K, engine=engine)
    predictions = stream.run(whole)
    first = range(2 * learners)
    shares = (first, range(2 * learners, K))
    parts = [Learner(rule, n, len(share), engine=engine) for share in shares]
    made = [stream.of_learners(share).run(part) for share, part in zip(shares, parts, strict=True)]
    got, expected = outcome(emphatic.join(parts), np.concatenate(made, axis=1)), outcome(whole, predictions)
    if engine == "reference":
        got["predictions"] = expected["predictions"]  # one product for all learners
    assert got == expected


def test_the_grain_of_each_engine() -> None:
    """What others may build on; a chunked or dense learner cut elsewhere is the same to rounding only."""
    grains = {engine: Learner("true_online_etd", 6, 5, engine=engine).grain for engine in ENGINES}
    assert grains == {"reference": (1, 1), "dense": (1, 8), "sparse": (1, 5), "chunked": (127, 256)}
    grains = {engine: Learner("true_online_etd", 6, engine=engine).grain for engine in ENGINES}
    assert grains == {"reference": (1, 1), "dense": (0, 1), "sparse": (1, 1), "chunked": (127, 256)}
    stream = make(5, 250, 6, 16)
    whole, cut = (Learner("true_online_etd", 6, 16, engine="chunked") for _ in range(2))
    stream.run(whole)
    in_pieces(cut, stream, 100)
    assert not np.array_equal(whole.theta, cut.theta)
    assert relative_error(cut.theta, whole.theta) <= TOLERANCE["float64"]


def test_before_an_engine_is_chosen() -> None:
    learner = Learner("true_online_etd", 6, 16)
    with pytest.raises(ValueError, match=r"'engine' parameter .* chosen by a first step"):
        _ = learner.grain
    make(5, 20, 6, 16).run(learner)
    assert learner.grain == (1, 8)


@pytest.mark.parametrize("K", [None, 20])
def test_features_that_are_converted_in_blocks(K: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run cuts a long log of indices itself, for an engine that reads arrays: at the grain too."""
    stream = make(5, 127 * 6, 6, K, active=2)
    whole, parts = (Learner("true_online_etd", 6, K, engine="chunked") for _ in range(2))
    monkeypatch.setattr("emphatic.learning.learner._CONVERTED", 6 * 300)
    expected = outcome(whole, stream.run(whole))
    assert outcome(parts, in_pieces(parts, stream, 127 * 3)) == expected
    arrays = Learner("true_online_etd", 6, K, engine="chunked")
    assert outcome(arrays, stream.run(arrays, active=False)) == expected
