"""Scores against a second, plain text of what each is; and logs whose truth is known."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import emphatic
from emphatic import scores
from emphatic.scores.baselines import PlainAnswers
from emphatic.scores.verdicts import LogScores
from emphatic.scores.returns import Returns, rows_between, share_masks
from emphatic.scores.returns import unpack_bits as unpack

GAMMAS = (0.0, 0.5, 0.9)


def features(Phi: np.ndarray, block: int = 64) -> Callable[[], Iterator[emphatic.Active]]:
    """The rows as active features, the slots of each row in another order, zeros left out."""
    rng = np.random.default_rng(0)
    order = np.array([rng.permutation(Phi.shape[1]) for _ in Phi]).reshape(Phi.shape)
    value = np.take_along_axis(Phi, order, axis=1)
    index = np.where(value == 0.0, -1, order)

    def phi() -> Iterator[emphatic.Active]:
        for start in range(0, len(Phi), block):
            yield emphatic.Active(index[start : start + block], value[start : start + block])

    return phi


def sparse(rng: np.random.Generator, T: int, n: int) -> np.ndarray:
    return rng.normal(size=(T, n)) * (rng.random((T, n)) < 0.5)


# ------------------------------------------------------------------ returns


def ref_return(x: np.ndarray, missing: np.ndarray, gap: np.ndarray, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """(G, whether it is known) as sums."""
    T = len(x)
    G, weight, reach = np.full(T, np.nan), np.zeros(T), np.zeros(T)
    for t in range(T):
        end = next((j for j in range(t + 1, T) if gap[j]), T)
        seen = [((1 - gamma) * gamma**k, x[j]) for k, j in enumerate(range(t + 1, end)) if not missing[j]]
        weight[t] = sum(w for w, _ in seen)
        reach[t] = sum((1 - gamma) * gamma**k for k in range(end - t - 1))
        if weight[t] > 0:
            G[t] = sum(w * value for w, value in seen) / weight[t]
    return G, (reach >= 0.99 - 1e-9) & (weight >= 0.5 - 1e-9)


@given(
    st.lists(st.tuples(st.floats(-1e3, 1e3), st.sampled_from([False] * 9 + [True]), st.booleans()), max_size=40),
    st.sampled_from([0.0, 0.1, 0.5, 0.9]),
    st.sampled_from([0.0, 1e6]),
    st.booleans(),
)
def test_returns_are_sums(rows: list[tuple[float, bool, bool]], gamma: float, level: float, gaps: bool) -> None:
    x, missing, gap = (np.array([row[i] for row in rows], (float, bool, bool)[i]) for i in range(3))
    gap &= gaps & (np.arange(len(gap)) % 7 == 3)
    x += level
    x[missing] = np.nan  # must not be looked at
    G, known = scores.known_return(x, missing, gap, gamma)
    G_ref, known_ref = ref_return(x, missing, gap, gamma)
    np.testing.assert_allclose(G, G_ref, rtol=1e-12, atol=1e-9)
    np.testing.assert_array_equal(known, known_ref)


def test_returns_of_a_long_far_signal_keep_their_digits() -> None:
    rng = np.random.default_rng(1)
    x, no, gamma = rng.normal(size=20_000), np.zeros(20_000, bool), 1 - 1e-3
    G, known = scores.known_return(x, no, no, gamma)
    far, _ = scores.known_return(x + 2.0**30, no, no, gamma)
    np.testing.assert_allclose(far[known] - 2.0**30, G[known], atol=1e-6)
    assert known.sum() == 20_000 - math.ceil(math.log(0.01) / math.log(gamma))
    direct = (1 - gamma) * np.sum(gamma ** np.arange(19_999) * x[1:]) / (1 - gamma**19_999)
    assert G[0] == pytest.approx(direct, rel=1e-10)


def test_bad_parameters_are_refused() -> None:
    x, no = np.zeros(3), np.zeros(3, bool)
    with pytest.raises(ValueError, match=r"The 'gamma' parameter of known_return must be .* Got 1\.0 instead"):
        scores.known_return(x, no, no, 1.0)
    with pytest.raises(ValueError, match="The 'gap' parameter of known_return must have the shape"):
        scores.known_return(x, no, no[:2], 0.5)
    with pytest.raises(ValueError, match=r"The 'predictions' parameter of summary must have shape \(3, 2\)"):
        scores.summary(
            ["a"], [1, 2], np.array([0, 0.5]), x[:, None], no[:, None], no, np.zeros((3, 1)), features(x[:, None]), 1
        )
    G, known = np.zeros((1, 8)), np.ones((1, 8), bool)
    with pytest.raises(ValueError, match=r"The 'phi' parameter of offline must give 8 rows\. Got 7 instead"):
        scores.offline(features(np.ones((7, 2))), 2, G, known, 1)
    with pytest.raises(ValueError, match=r"must have indices below n = 1\. Got 1 instead"):
        scores.offline(features(np.ones((8, 2))), 1, G, known, 1)


# ------------------------------------------------------------------ measures and simple baselines


def test_measures() -> None:
    rng = np.random.default_rng(2)
    G, p, use = rng.normal(size=50), rng.normal(size=50), rng.random(50) < 0.5
    found = scores.measures(p, G, use)
    errors = [(a - b) ** 2 for a, b, u in zip(p, G, use, strict=True) if u]
    outcomes = [b for b, u in zip(G, use, strict=True) if u]
    mean = sum(outcomes) / len(outcomes)
    variance = sum((b - mean) ** 2 for b in outcomes) / len(outcomes)
    mse = sum(errors) / len(errors)
    assert found == {"rmse": pytest.approx(math.sqrt(mse)), "variance_explained": pytest.approx(1 - mse / variance)}
    assert scores.measures(G, G, use) == {"rmse": 0.0, "variance_explained": 1.0}
    assert scores.measures(p.astype(np.float32), G, use)["rmse"] == pytest.approx(found["rmse"], rel=1e-6)


def test_measures_are_none_where_undefined() -> None:
    some = np.array([True, True, False])
    nothing = scores.measures(np.ones(3), np.arange(3.0), np.zeros(3, bool))
    assert nothing == {"rmse": None, "variance_explained": None}
    assert scores.measures(np.zeros(3), np.full(3, 2.0), some) == {"rmse": 2.0, "variance_explained": None}
    assert scores.measures(np.zeros(3), 1e9 + np.arange(3.0), some)["variance_explained"] is None
    assert scores.measures(np.full(3, np.nan), np.arange(3.0), some) == nothing
    assert scores.measures(np.full(3, 1e300), np.arange(3.0), some) == nothing


def test_the_running_mean_leaves_out_what_is_missing() -> None:
    rng = np.random.default_rng(3)
    x, missing = rng.normal(size=30) + 1e6, rng.random(30) < 0.4
    missing[:3] = True
    expected = np.array([np.mean(x[: t + 1][~missing[: t + 1]]) if t >= 3 else np.nan for t in range(30)])
    np.testing.assert_allclose(scores.running_mean(np.where(missing, np.nan, x), missing), expected)
    assert np.isnan(scores.running_mean(x, np.ones(30, bool))).all()


# ------------------------------------------------------------------ the offline fit


def ref_ridge(Phi: np.ndarray, G: np.ndarray, r: float, answers: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """By least squares on rows √r I put below, with a free intercept and (nearly) free weights of the answers."""
    n, a = Phi.shape[1], len(answers)
    design = np.block(
        [[Phi, answers.T, np.ones((len(Phi), 1))], [np.diag(penalties(n, r, answers)), np.zeros((n + a, 1))]]
    )
    solution = np.linalg.lstsq(design, np.append(G, np.zeros(n + a)), rcond=None)[0]
    return solution[:n], solution[n : n + a], solution[n + a]


def penalties(n: int, r: float, answers: np.ndarray) -> np.ndarray:
    return np.append(np.full(n, math.sqrt(r)), 1e-3 * np.sqrt(((answers.T - answers.mean(axis=1)) ** 2).sum(axis=0)))


def ref_offline(
    Phi: np.ndarray, G: np.ndarray, known: np.ndarray, answers: np.ndarray | None = None
) -> tuple[np.ndarray, float]:
    """One question: predictions of the second half, and the strength that is best on the last fifth of the first."""
    half = len(G) // 2
    cut = half * 4 // 5
    scale = np.mean(Phi[:half][Phi[:half] != 0] ** 2)
    early, late, whole = (np.flatnonzero(known[a:b]) + a for a, b in ((0, cut), (cut, half), (0, half)))
    own = np.empty((0, len(G))) if answers is None else answers

    def error(r: float) -> float:
        theta, w, c = ref_ridge(Phi[early], G[early], r * scale, own[:, early])
        return float(np.mean((Phi[late] @ theta + w @ own[:, late] + c - G[late]) ** 2))

    best = min(10.0 ** np.arange(-2, 7), key=error)
    theta, w, c = ref_ridge(Phi[whole], G[whole], best * scale, own[:, whole])
    return Phi[half:] @ theta + w @ own[:, half:] + c, best


@pytest.mark.parametrize("unknown", [0.0, 0.2, 0.7])
def test_offline_is_ridge_regression_with_the_strength_that_validates_best(unknown: float) -> None:
    rng = np.random.default_rng(4)
    T, n, Q = 401, 12, 6
    Phi = sparse(rng, T, n)
    Phi[:, 0] = 1.0  # a bias feature beside the free intercept
    Phi[:, 3] = Phi[:, 1]
    Phi[: T // 2, 5] = 0.0  # not seen in the first half
    noise = 10.0 ** np.arange(-2, 4)[:, None]
    G = rng.normal(size=(Q, n)) @ Phi.T + noise * rng.normal(size=(Q, T)) + 50.0
    known = rng.random((Q, T)) >= unknown
    known[1::2] = known[::2]  # pairs of questions share their rows
    made, strength = scores.offline(features(Phi), n, np.where(known, G, np.nan), known, 2)
    assert len(set(strength)) > 2
    for q in range(Q):
        expected, best = ref_offline(Phi, G[q], known[q])
        assert strength[q] == best
        np.testing.assert_allclose(made[q], expected, rtol=1e-7, atol=1e-7)


def test_offline_is_the_same_with_fewer_rows_than_features() -> None:
    rng = np.random.default_rng(17)
    T, n, Q = 163, 120, 6
    Phi = sparse(rng, T, n)
    Phi[:, 0] = 1.0
    Phi[:, 3] = Phi[:, 1]
    answers = np.cumsum(rng.normal(size=(2, Q, T)), axis=2)
    G = answers[0] + 10.0 ** np.arange(-3, 3)[:, None] * rng.normal(size=(Q, n)) @ Phi.T + rng.normal(size=(Q, T))
    known = rng.random((Q, T)) < 0.8
    known[1::2] = known[::2]
    made, strength = scores.offline(features(Phi, 50), n, np.where(known, G, np.nan), known, 2, answers=answers)
    assert len(set(strength)) > 2
    for q in range(Q):
        expected, best = ref_offline(Phi, G[q], known[q], answers[:, q])
        assert strength[q] == best
        np.testing.assert_allclose(made[q], expected, rtol=1e-5, atol=1e-5)


def test_offline_uses_the_answers_that_the_blend_has() -> None:
    """A signal far outside the range of its features: only the reading itself can follow it."""
    rng = np.random.default_rng(15)
    T, n, Q = 403, 6, 4
    Phi = sparse(rng, T, n)
    x = 1e4 + np.cumsum(rng.normal(size=(Q, T)), axis=1)
    x[3] = 7.0  # a constant says nothing
    answers = np.stack([x, x])  # and one of two that are the same is enough
    answers[1, :2] += rng.normal(size=(2, T))
    G = 0.9 * x + rng.normal(size=(Q, n)) @ Phi.T + 0.1 * rng.normal(size=(Q, T))
    known = rng.random((Q, T)) < 0.9
    made, strength = scores.offline(features(Phi), n, G, known, 2, answers=answers)
    for q in range(Q):
        expected, best = ref_offline(Phi, G[q] - 1e4, known[q], answers[:, q] - 1e4)
        assert strength[q] == best
        np.testing.assert_allclose(made[q] - 1e4, expected, rtol=1e-5, atol=1e-4)
    without, _ = scores.offline(features(Phi), n, G, known, 2)
    second = slice(T // 2, T)
    for q in range(3):
        assert np.mean((made[q] - G[q, second]) ** 2) < 0.1 * np.mean((without[q] - G[q, second]) ** 2)


def test_plain_answers_are_the_reading_and_its_trace_in_any_blocks() -> None:
    rng = np.random.default_rng(16)
    x = rng.normal(size=(50, 2)) + 3.0
    x[:4, 1] = np.nan  # not read yet
    expected = np.empty((2, 4, 50))
    for q in range(4):
        gamma, trace = (0.0, 0.8)[q % 2], np.nan
        for t, value in enumerate(x[:, q // 2]):
            trace = value if np.isnan(trace) else trace + (1 - gamma) * (value - trace)
            expected[:, q, t] = value, trace
    for edges in ([0, 50], [0, 1, 2, 17, 50]):
        answers = PlainAnswers([0.0, 0.8], 2)
        made = np.concatenate([answers(x[a:b]) for a, b in pairwise(edges)], axis=2)
        np.testing.assert_allclose(made, expected, rtol=1e-14)


def test_offline_does_not_depend_on_blocks_nor_on_the_unit_of_features_and_signals() -> None:
    rng = np.random.default_rng(5)
    Phi = sparse(rng, 200, 5)
    G = rng.normal(size=(2, 5)) @ Phi.T + rng.normal(size=(2, 200))
    known = np.ones((2, 200), bool)
    made, strength = scores.offline(features(Phi), 5, G, known, 1)
    for block, unit, level in ((7, 1.0, 0.0), (200, 1.0, 0.0), (64, 1e3, 0.0), (64, 1e-3, 1e3)):
        again, chosen = scores.offline(features(Phi * unit, block), 5, G + level, known, 1)
        np.testing.assert_array_equal(chosen, strength)
        np.testing.assert_allclose(again - level, made, rtol=1e-8, atol=1e-8)


def test_offline_is_undefined_without_rows_to_fit_or_to_choose_on() -> None:
    rng = np.random.default_rng(6)
    Phi, G = rng.normal(size=(100, 3)), rng.normal(size=(4, 100))
    known = np.ones((4, 100), bool)
    known[0], known[1, :40], known[2, 40:50] = False, False, False
    made, strength = scores.offline(features(Phi), 3, np.where(known, G, np.nan), known, 1)
    np.testing.assert_array_equal(np.isnan(strength), [True, True, True, False])
    np.testing.assert_array_equal(np.isnan(made).all(axis=1), [True, True, True, False])
    assert np.isfinite(made[3]).all()
    made, _ = scores.offline(features(np.zeros((100, 3))), 3, G, known, 1)  # nothing is active
    assert np.isnan(made).all()


def test_many_groups_in_little_room_are_gathered_in_more_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(7)
    Phi, known = sparse(rng, 120, 4), rng.random((5, 120)) < 0.8
    G = rng.normal(size=(5, 120))
    told: list[float] = []
    expected, strength = scores.offline(features(Phi), 4, G, known, 1, told.append)
    assert told == sorted(told)
    assert told[-1] == 1.0
    monkeypatch.setattr(sys.modules["emphatic.scores.baselines"], "ROOM", 3 * 16 * 4**2)
    told.clear()
    made, chosen = scores.offline(features(Phi), 4, G, known, 1, told.append)
    assert told[-1] == 1.0
    np.testing.assert_array_equal(chosen, strength)
    np.testing.assert_allclose(made, expected, rtol=1e-9, atol=1e-12)


def test_masks_are_shared() -> None:
    rng = np.random.default_rng(8)
    T, H = 403, 2

    def sharing(known: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        masks, group = share_masks(np.packbits(known, axis=1), H)
        return unpack(masks, 0, T), group

    few = rng.random((4, T)) < 0.5
    masks, group = sharing(few[[0, 1, 0, 2, 3, 3]])
    np.testing.assert_array_equal(masks[group], few[[0, 1, 0, 2, 3, 3]])
    assert len(masks) == 4

    known = rng.random((20, T)) < 0.97  # ten signals, nearly all known at both horizons
    known[6] = np.arange(T) < 40  # but for one of few rows
    known[8] = np.arange(T) >= 40
    masks, group = sharing(known)
    assert len(masks) == 3
    for q in range(20):
        mask = masks[group[q]]
        assert not (mask & ~known[q]).any()
        assert mask.sum() >= known[q].sum() / 2
    np.testing.assert_array_equal(masks[group[6]], known[6])
    np.testing.assert_array_equal(masks[group[1]], known[1::2].all(axis=0))


# ------------------------------------------------------------------ the whole account


def log(T: int = 300) -> dict[str, Any]:
    rng = np.random.default_rng(9)
    raw = np.cumsum(rng.normal(size=(T, 2)), axis=0)
    missing = rng.random((T, 2)) < 0.01
    missing[:5, 1] = True
    at = np.maximum.accumulate(np.where(missing, 0, np.arange(T)[:, None]), axis=0)
    values = np.take_along_axis(raw, at, axis=0)
    values[:5, 1] = np.nan  # nothing to hold yet
    gap = np.zeros(T, bool)
    gap[[60, 220]] = True
    return {
        "signals": ["a", "b"],
        "horizons": [1, "2 min", 10],
        "gammas": np.array(GAMMAS),
        "values": values,
        "missing": missing,
        "gap": gap,
        "predictions": rng.normal(size=(T, 6)),
    }


def test_summary_says_of_every_question_what_the_parts_say() -> None:
    given_log, T = log(), 300
    Phi = sparse(np.random.default_rng(10), T, 6)
    told: list[float] = []
    found = scores.summary(**given_log, phi=features(Phi), n=6, progress=told.append)
    assert told[-1] == 1.0
    assert json.loads(json.dumps(found.scores, allow_nan=False)) == found.scores
    assert [(s["signal"], s["horizon"]) for s in found.scores] == [(s, h) for s in "ab" for h in (1, "2 min", 10)]
    for q, (score, curve) in enumerate(zip(found.scores, found.curves, strict=True)):
        c, gamma = q // 3, GAMMAS[q % 3]
        x, missing = given_log["values"][:, c], given_log["missing"][:, c]
        G, sure = ref_return(x, missing, given_log["gap"], gamma)
        use = sure & ~np.isnan(x)
        np.testing.assert_array_equal(found.known[:, q], use)
        np.testing.assert_allclose(found.G[:, q], G)
        second = use & (np.arange(T) >= T // 2)
        ours = given_log["predictions"][:, q]
        mean = scores.running_mean(x, missing)
        own = PlainAnswers([gamma], 1)(x[:, None])[:, 0]
        batch = np.append(np.zeros(T // 2), ref_offline(Phi, np.where(use, G, 0.0), use, own)[0])
        expected = {name: scores.measures(p, G, second) for name, p in
                    (("persistence", x), ("mean", mean), ("offline", batch))}  # fmt: skip
        expected["first_half"] = scores.measures(ours, G, use & ~second)
        assert score["gamma"] == gamma
        assert score["known"] == second.sum() > 0
        for name, pair in ((None, scores.measures(ours, G, second)), *expected.items()):
            at = score if name is None else score[name]
            assert {key: at[key] for key in pair} == {key: pytest.approx(value) for key, value in pair.items()}
        errors = [np.mean((p - G)[second] ** 2) for p in (ours, x)]
        assert score["skill"] == pytest.approx(1 - errors[0] / errors[1])
        best = score["offline"]["variance_explained"]
        assert score["ratio_to_offline"] == (score["variance_explained"] / best if best > 0 else None)
        assert curve["rows"] == list(range(15, 301, 15))
        for name, p in (("rmse", ours), ("persistence", x), ("mean", mean)):
            pieces = [[t for t in range(end - 15, end) if use[t]] for end in curve["rows"]]
            assert curve[name] == [
                pytest.approx(math.sqrt(np.mean((p[at] - G[at]) ** 2))) if len(at) else None for at in pieces
            ]


def test_a_wave_is_predicted_by_its_phase_and_not_by_holding_it() -> None:
    T, period = 2000, 40
    phase = 2 * math.pi * np.arange(T) / period
    x = np.sin(phase)[:, None]
    no = np.zeros((T, 1), bool)
    # With a horizon near half a period, what follows is mostly of the other sign.
    gammas = np.array([0.0, 1 - 2 / period])
    truth = np.column_stack(
        [((1 - g) * np.exp(1j * (phase + phase[1])) / (1 - g * np.exp(1j * phase[1]))).imag for g in gammas]
    )
    Phi = np.column_stack([np.ones(T), np.sin(phase), np.cos(phase)])
    found = scores.summary(["x"], [1, 20], gammas, x, no, no[:, 0], truth, features(Phi), 3)
    short, long = found.scores
    for score in (short, long):
        assert score["variance_explained"] > 0.999
        assert score["offline"]["variance_explained"] > 0.999
        assert score["ratio_to_offline"] == pytest.approx(1.0, abs=1e-3)
        assert abs(score["mean"]["variance_explained"]) < 0.05
    assert short["persistence"]["variance_explained"] > 0.95
    assert long["persistence"]["variance_explained"] < -1.0
    assert (short["known"], long["known"]) == (999, 1000 - math.ceil(math.log(0.01) / math.log(0.95)))


def test_logs_too_short_or_constant_have_no_scores_but_are_no_error() -> None:
    for T in (1, 2, 3, 30):
        no = np.zeros((T, 1), bool)
        found = scores.summary(
            ["x"], [10], np.array([0.9]), np.ones((T, 1)), no, no[:, 0], np.ones((T, 1)), features(np.ones((T, 1))), 1
        )
        [score], [curve] = found.scores, found.curves
        assert score["variance_explained"] is score["offline"]["rmse"] is score["ratio_to_offline"] is None
        assert score["known"] == 0
        assert curve["rmse"] == [None] * 20
    T = 200
    no = np.zeros((T, 1), bool)
    found = scores.summary(
        ["x"], [2], np.array([0.5]), np.ones((T, 1)), no, no[:, 0], np.ones((T, 1)), features(np.ones((T, 1))), 1
    )
    assert found.scores[0]["rmse"] == 0.0
    assert found.scores[0]["offline"] == {"rmse": 0.0, "variance_explained": None}


# ------------------------------------------------------------------ in blocks


def test_a_reading_covers_the_rows_until_the_next_is_due() -> None:
    T, x = 600, np.arange(600.0)[:, None]
    missing, gap = (np.arange(T) % 3 != 1)[:, None], np.zeros(T, bool)
    every = rows_between(missing)
    assert every.tolist() == [3.0]
    gone = missing.copy()
    gone[200:300] = True  # the sensor is away
    assert rows_between(gone).tolist() == [3.0]
    for gamma in (0.9, 0.97):
        assert not Returns([gamma], [0.0])(x, missing, gap)[1].any()
        G, known = Returns([gamma], [0.0], every)(x, missing, gap)
        reached = 1.0 - gamma ** (T - 1 - np.arange(T)) >= 0.99
        np.testing.assert_array_equal(known[0], reached)
        rows = np.flatnonzero(reached)
        np.testing.assert_allclose(G[0, rows] - rows, 1.0 / (1.0 - gamma), atol=3.0)
        known = Returns([gamma], [0.0], every)(x, gone, gap)[1]
        assert known[0, :150].all()
        assert not known[0, 200:260].any()


def test_returns_in_blocks_have_the_same_bits() -> None:
    rng = np.random.default_rng(11)
    x = np.cumsum(rng.normal(size=(500, 2)), axis=0) + np.array([0.0, 1e6])
    missing, gap = rng.random((500, 2)) < 0.1, rng.random(500) < 0.01
    gap[300] = True  # where a block begins
    centres = [x[np.argmin(missing[:, c]), c] for c in range(2)]
    returns = Returns(GAMMAS, centres)
    parts = []
    for begin, end in ((400, 500), (399, 400), (300, 399), (0, 300)):
        before = returns.state.copy()
        parts.append(returns(x[begin:end], missing[begin:end], gap[begin:end]))
        after, returns.state = returns.state, before  # and once more, as scoring does
        np.testing.assert_array_equal(returns(x[begin:end], missing[begin:end], gap[begin:end])[0], parts[-1][0])
        np.testing.assert_array_equal(returns.state, after)
    for q in range(6):
        expected = scores.known_return(x[:, q // 3], missing[:, q // 3], gap, GAMMAS[q % 3])
        for i in (0, 1):
            np.testing.assert_array_equal(np.concatenate([part[i][q] for part in parts[::-1]]), expected[i])


@given(st.lists(st.integers(1, 299), max_size=8))
def test_scores_do_not_depend_on_blocks(edges: list[int]) -> None:
    given_log, T, rng = log(), 300, np.random.default_rng(12)
    values, missing, predictions = (given_log[name] for name in ("values", "missing", "predictions"))
    G, known, batch = rng.normal(size=(6, T)), rng.random((6, T)) < 0.9, rng.normal(size=(6, T))
    known[:, :5] = False
    found = []
    for cuts in ([0, T], sorted({0, T, *edges})):
        scored = LogScores(given_log["signals"], given_log["horizons"], given_log["gammas"], T)
        for a, b in pairwise(cuts):
            rows = slice(a, b)
            scored.add(a, values[rows], missing[rows], predictions[rows], batch[:, rows], G[:, rows], known[:, rows])
        found.append((scored.scores(), scored.curves()))
    for one, other in zip(*(flat(part) for part in found), strict=True):
        assert one == (pytest.approx(other, rel=1e-12) if isinstance(other, float) else other)


def flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [inner for key in value for inner in (key, *flat(value[key]))]
    return [inner for part in value for inner in flat(part)] if isinstance(value, list | tuple) else [value]


def test_scores_of_a_far_signal_keep_their_digits() -> None:
    """Returns of 1e5 that vary by 1, in many blocks: as precise as from exact sums."""
    T, rng = 4000, np.random.default_rng(13)
    G = 1e5 + rng.normal(size=T)
    ours = G + 0.5 * rng.normal(size=T)
    scored = LogScores(["x"], [1], np.zeros(1), T)
    none, known = np.zeros((7, 1), bool), np.ones((1, 7), bool)
    for a in range(0, T, 7):
        rows, n = slice(a, a + 7), min(7, T - a)
        scored.add(a, ours[rows, None], none[:n], ours[rows, None], ours[None, rows], G[None, rows], known[:, :n])
    second = [(Fraction(p), Fraction(g)) for p, g in zip(ours[T // 2 :].tolist(), G[T // 2 :].tolist(), strict=True)]
    mean = sum(g for _, g in second) / len(second)
    explained = 1 - sum((p - g) ** 2 for p, g in second) / sum((g - mean) ** 2 for _, g in second)
    assert scored.scores()[0]["variance_explained"] == pytest.approx(float(explained), rel=1e-12)


def test_too_many_features_to_fit_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(14)
    Phi, G, known = rng.normal(size=(100, 5)), rng.normal(size=(2, 100)), np.ones((2, 100), bool)
    monkeypatch.setattr(sys.modules["emphatic.scores.baselines"], "_FEATURES", 4)
    assert np.isnan(scores.offline(features(Phi), 5, G, known, 1)[0]).all()
    Phi[:50, 2] = 0.0  # never active in the first half
    assert np.isfinite(scores.offline(features(Phi), 5, G, known, 1)[0]).all()
