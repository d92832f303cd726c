"""Every rule on every engine, by discovery, against the equations: one tolerance, streams that vary everything."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import emphatic
from emphatic.engines import chunked
from emphatic.engines.dense import lanes
from tests.support.contract import ALSO_COMPILED, COMPILED, COMPILED_LATE, STRUCTURES, T, violations
from tests.support.equations import RULES
from tests.support.plain import CHUNK, plain_python
from tests.support.rules import EVERY, find
from tests.support.streams import TOLERANCE, make, relative_error


def test_every_rule_has_its_equations() -> None:
    assert set(EVERY) == set(RULES)


@pytest.mark.plain
@pytest.mark.parametrize("engine", emphatic.engines.available())
def test_a_rule_without_interest_accepts_only_1(engine: str) -> None:
    """Those whose equations have no I; `learn` and `run` say so, and nothing is changed."""
    without = {"htd", "true_online_gtd", "true_online_gtd_separate", "tree_backup", "vtrace", "abtd"}
    assert {name for name in RULES if not find(name).interest} == without
    for rule in without:
        stream = make(1, 7, 3, rule=rule)
        for I in (0.0, 0.5, 2.0):
            bad = replace(stream, I=np.where(np.arange(7) == 4, I, 1.0))
            learner = emphatic.Learner(find(rule), 3, engine=engine)
            with pytest.raises(
                ValueError, match=rf"'I' parameter of run must be 1 for rule '{learner.rule.name}'. Got {I} at step 4"
            ):
                bad.run(learner)
            with pytest.raises(
                ValueError, match=f"'I' parameter of learn must be 1 for rule '{learner.rule.name}'. Got {I}"
            ):
                bad[4:5].learn(learner)
            assert not learner.theta.any()
            assert learner.steps == 0


def length(engine: str, K: int | None, compiled: bool) -> int:
    """Steps to take: fewer where there are many learners, and where each one's step is a turn of a Python loop."""
    if not compiled or engine == "reference":
        return 2 * CHUNK + 5 if (K or 1) < 9 else 5
    return T if (K or 1) < 64 else 71


def kinds() -> list[Any]:
    """Every rule in plain Python, alone and in pairs; rules of every structure in more numbers, and compiled.

    A kernel takes seconds to compile: every entry for one rule, in both dtypes, and for the others what differs most.
    """
    found = []
    for rule in EVERY:
        for K in (None, 1, 2, 7, 64):
            for dtype in ("float64", "float32"):
                numbers = (None, 2, 7) if rule in STRUCTURES else (None, 2)
                if K in (numbers if dtype == "float64" else (2,)):
                    found.append((rule, K, dtype, False))
                if rule in STRUCTURES:
                    found.append((rule, K, dtype, True))
    return [
        pytest.param(
            *kind,
            id="-".join(map(str, kind[:3])) + "-compiled" * kind[3],
            marks=pytest.mark.long if kind[3] and not compiled_early(*kind[:3]) else (),
        )
        for kind in found
    ]


def compiled_early(rule: str, K: int | None, dtype: str) -> bool:
    """Whether its kernels are compiled in every run; those of the others are among the tests that take long."""
    return rule in COMPILED[dtype] or ((rule, K) in ALSO_COMPILED and dtype == "float64")


# The engine changes fastest, so that the outcome of one stream is worked out once for all of them.
@pytest.mark.parametrize("engine", emphatic.engines.available())
@pytest.mark.parametrize(("rule", "K", "dtype", "compiled"), kinds())
def test_run_and_learn_follow_the_equations(rule: str, engine: str, dtype: str, K: int | None, compiled: bool) -> None:
    def learner(n: int, K: int | None) -> emphatic.Learner:
        return emphatic.Learner(find(rule), n, K, dtype=dtype, engine=engine)

    with nullcontext() if compiled else plain_python():
        steps = length(engine, K, compiled)
        assert violations(rule, learner, K, dtype, by="run", T=steps) == []
        # No chunk of steps begins or ends where they are learned one by one: fewer of them show as much.
        assert violations(rule, learner, K, dtype, by="learn", T=min(steps, 71 if compiled else CHUNK + 4)) == []


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param(rule, marks=pytest.mark.long if rule in COMPILED_LATE else ())
        for rule in EVERY
        if rule not in COMPILED["float64"]
    ],
)
@pytest.mark.parametrize("compiled", [True])
def test_every_rule_compiles(rule: str, compiled: bool) -> None:
    """One kernel of each rule that has no other compiled in float64: the one that compiles most quickly."""
    stream = make(3, 41, 6, rule=rule)
    learner = emphatic.Learner(find(rule), 6, engine="dense")
    assert relative_error(stream.run(learner), stream.expected(rule).predictions) <= TOLERANCE["float64"]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("engine", [name for name in emphatic.engines.available() if name != "reference"])
@pytest.mark.parametrize("rule", ["true_online_etd", pytest.param("true_online_gtd", marks=pytest.mark.long)])
def test_more_learners_than_lanes_and_more_steps_than_a_block(rule: str, engine: str, threads: int) -> None:
    """An engine may take learners and steps in blocks: here there are several of each, the last ones ragged.

    There are only seven different learners, which come again and again.
    """
    stream = make(11, 2 * max(chunked.STEPS, lanes.STEPS) + 5, 6, 7, rule=rule)
    which = np.arange(2 * max(chunked.LANES, lanes.LANES) + 3) % 7
    learner = emphatic.Learner(rule, stream.n, len(which), engine=engine, threads=threads)
    predictions = stream.of_learners(which).run(learner)
    expected = stream.expected(rule)
    assert relative_error(predictions, expected.predictions[:, which]) < TOLERANCE["float64"]
    for name in learner.rule.vectors:
        assert relative_error(getattr(learner, name), expected.vectors[name][which]) < TOLERANCE["float64"], name


@pytest.mark.parametrize("n", [1, 2, 9, 16])
@pytest.mark.parametrize(
    ("rule", "compiled"),
    [*((rule, False) for rule in STRUCTURES), pytest.param("true_online_gtd", True, marks=pytest.mark.long)],
)
def test_learners_of_any_few_features_side_by_side(
    rule: str, n: int, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel that is generated for each n, as far as it is used; ``tests.conftest`` keeps all others to six."""
    monkeypatch.setattr(lanes, "MOST_FEATURES", 16)
    stream = make(12, 9, n, 9, rule=rule)
    expected = stream.expected(rule)
    with nullcontext() if compiled else plain_python():
        learner = emphatic.Learner(rule, n, 9, engine="dense")
        assert relative_error(stream.run(learner), expected.predictions) <= TOLERANCE["float64"]
    for name in learner.rule.vectors:
        assert relative_error(getattr(learner, name), expected.vectors[name]) <= TOLERANCE["float64"], name


@pytest.mark.parametrize("active", [False, True])
def test_auto_decides_at_the_first_step(active: bool) -> None:
    def learner(n: int, K: int | None) -> emphatic.Learner:
        return emphatic.Learner("true_online_etd", n, K)

    assert violations("true_online_etd", learner, None, "float64") == []
    n = 1000
    made = emphatic.Learner("true_online_etd", n)
    assert made.engine == "auto"
    phi = emphatic.Active([1]) if active else np.eye(n)[1]
    made.learn(0.1, 1.0, 0.5, phi, 1.0, 1.0, phi, 0.5)
    assert made.engine == ("sparse" if active else "dense")
    assert repr(made) == f"Learner('true_online_etd', n={n}, dtype='float64', engine='{made.engine}')"


@pytest.mark.plain
@pytest.mark.parametrize(("engine", "K"), [("dense", None), ("dense", 2), ("dense", 9), ("sparse", 2), ("chunked", 2)])
def test_a_weight_decays_by_less_than_a_float32_can_say(engine: str, K: int | None) -> None:
    """Where φ = 0, tdrc's w ← (1 − βκ)w and nothing else. Rounded to float32, this factor would be off by 3e-8 a step,
    here 9e-5 in all; only the steps' own roundings, which go either way, may be left."""
    features, steps = 2, 3000
    beta = 1001 * 2.0**-25  # 1 − β lies midway between two float32
    learner = emphatic.Learner("tdrc", features, K, dtype="float32", engine=engine)
    learner.run([[1.0, 0.3]] * 10, 1.0, 0.0, alpha=0.1)
    before = np.array(learner.w, np.float64)
    assert (before > 0.01).all()
    learner.run(np.zeros((steps + 1, features)), 1.0, 0.0, alpha=0.1, beta=beta, predictions=False)
    assert relative_error(learner.w, before * (1.0 - beta) ** steps) < 1e-5
