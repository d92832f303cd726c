"""The combination of answers: a plain version, any cut, hostile answers and readings, and bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import emphatic
from emphatic.engines import lanes
from emphatic.hordes import blend, blend_kernels
from emphatic.hordes import blend_kernels as constants
from emphatic.hordes.blend import Combination
from emphatic.scores import known_return

Array = NDArray[np.float64]
Truth = NDArray[np.bool_]


def errors_of(V: Array, x: Array, follows: Truth, gamma: float, p: Array) -> Array:
    """R of the last row from its definition, for readings that are all there: each return is followed to the end."""
    T = len(x)
    answers, trace = np.empty((T, V.shape[1] + 3)), float(x[0])
    for t in range(T):
        trace += (1 - gamma) * (x[t] - trace)
        answers[t] = [*V[t], x[t], trace, x[: t + 1].mean()]
    R, total, step = np.zeros((answers.shape[1],) * 2), 0.0, 0
    for s in range(T - 1):
        if not follows[s + 1]:
            continue
        G, discount, t = 0.0, 1.0, s + 1
        while t < T and follows[t]:
            G += discount * (1 - gamma) * x[t]
            discount *= gamma
            t += 1
        G += discount * p[t - 1]
        step += 1
        total += step
        R += step * np.outer(G - answers[s], G - answers[s])
    return R / total


def in_lanes(array: Array) -> Array:
    """The state of one question, as that of several of them in lanes."""
    return np.repeat(array[..., None], lanes.WIDTH, axis=-1)


def doubt(
    v: Array, raw: Array, state: Array, weights: Array, x: float, equal: float, known: bool, h: float, error: float,
    used: Array,
) -> None:  # fmt: skip
    """``doubt`` of one question."""
    numbers = [lanes.every(number) for number in (x, equal, max(constants.FEWEST, 0.5 * h), error)]
    truths, a = [lanes.below(lanes.WIDTH * is_true) for is_true in (known, True)], in_lanes(state)
    with np.errstate(all="ignore"):
        arguments: tuple[Any, ...] = (*numbers[:2], *truths, *numbers[2:], in_lanes(used))
        answers = constants.doubt(in_lanes(v), in_lanes(raw), a, in_lanes(weights), *arguments)
    used[:], state[:] = answers[:, 0], a[:, :, 0]


def weigh(learned: float, R: Array, W: Array, mixture: Array, h: float) -> None:
    """``weigh`` of one question."""
    s, weights, mixtures, N = np.zeros(constants.OPEN_WEIGHT + 1), in_lanes(W), in_lanes(mixture), len(R)
    s[constants.LEARNED] = learned
    due, room = np.ones((2, lanes.WIDTH)), np.empty((2 * N + 4, N, lanes.WIDTH))
    constants.weigh(in_lanes(s), in_lanes(R), weights, mixtures, lanes.every(h), due, room)
    W[:], mixture[:] = weights[..., 0], mixtures[..., 0]


def renew(i: int, state: Array, W: Array, R: Array) -> None:
    """``renew`` of one question."""
    arrays = [in_lanes(array) for array in (state, W, R)]
    constants.renew(i, 0, *arrays)
    state[:], W[:], R[:] = (array[..., 0] for array in arrays)


def stream(T: int = 400) -> tuple[Array, Array, Truth]:
    """Answers (T, 2, 3), readings (T, 2) with some missing, and which rows follow the row before."""
    rng = np.random.default_rng(2)
    x = 5.0 + rng.normal(size=(T, 2)).cumsum(axis=0) * 0.3
    V = x[:, :, None] + rng.normal(size=(T, 2, 3)) * [0.1, 1.0, 4.0]
    x[50:55, 0] = np.nan
    x[rng.random((T, 2)) < 0.02] = np.nan
    x[0] = 5.0
    follows = rng.random(T) > 0.01
    return V, x, follows


@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.95])
def test_products_of_errors_are_those_of_the_definition(gamma: float) -> None:
    """Telescoped from row to row, they are the means over all rows with returns that are followed to the last one."""
    V, x, follows = stream(300)
    x = np.where(np.isfinite(x), x, 4.0)
    V = np.clip(V, x.min(), x.max())
    combination = Combination(np.full(2, gamma), 3)
    p, single = combination(V, x, follows)
    for q in range(2):
        R = errors_of(single[:, q, :3], x[:, q], follows, gamma, p[:, q])
        assert np.abs(np.tril(combination.errors[q]) - np.tril(R)).max() < 1e-9 * np.abs(R).max()
    assert single.shape == (300, 2, 5)
    assert np.array_equal(single[:, :, 3], x)


@pytest.mark.parametrize("seed", range(3))
def test_weights_minimise_what_they_are_said_to(seed: int) -> None:
    rng = np.random.default_rng(seed)
    error = rng.normal(size=(50, 6)) * rng.uniform(0.5, 3.0, 6)
    R, W, mixture, h, learned = error.T @ error / 50, np.full((3, 6), 1 / 6), np.ones((4, 3)), 4.0, 800.0
    weigh(learned, R, W, mixture, h)
    evidence, least = learned / h, R.diagonal().min()
    power = min(constants.STEEPEST, constants.STEEPER * evidence)
    assert np.allclose(W[0], R.diagonal() ** -power / (R.diagonal() ** -power).sum())  # (none are alike)
    assert np.allclose(W.sum(axis=1), 1.0)
    assert W[1].min() >= -1e-9

    def convex(w: Array) -> float:
        return float(w @ R @ w + least * constants.CONVEX_PRIOR / evidence * ((w - W[0]) ** 2).sum())

    def free(w: Array) -> float:
        return float(w @ R @ w + least * constants.FREE_PRIOR / evidence * ((w - W[1]) ** 2).sum())

    for _ in range(200):
        w = rng.dirichlet(np.full(6, 0.5))
        assert convex(W[1]) <= convex(0.99 * W[1] + 0.01 * w) + 1e-6 * least
        direction = rng.normal(size=6) * 0.01
        assert free(W[2]) <= free(W[2] + direction - direction.mean()) + 1e-9 * least


def test_copies_of_an_answer_weigh_as_much_as_one() -> None:
    rng = np.random.default_rng(4)
    error = rng.normal(size=(50, 3)) * [1.0, 1.05, 1.1]
    copied = np.concatenate([error, error[:, [2, 2]]], axis=1)
    weights = []
    for errors in (error, copied):
        N = errors.shape[1]
        W = np.full((3, N), 1 / N)
        weigh(800.0, errors.T @ errors / 50, W, np.ones((4, 3)), 4.0)
        weights.append(W[0])
    single, several = weights
    assert np.allclose(single, [*several[:2], several[2:].sum()])
    assert np.ptp(several[2:]) < 1e-12


def test_an_answer_is_not_stuck_while_readings_are_missing_and_is_left_out_when_no_number() -> None:
    state, used = np.zeros((11, 5)), np.empty(5)
    state[constants.TRUST], state[constants.AGE], state[constants.USUAL] = 1.0, 100.0, 1e4
    answers, weights = np.array([1.0, 9.0, 4.0, 4.0, 4.0]), np.full(5, 0.2)
    state[constants.PREVIOUS] = answers
    doubt(answers, answers, state, weights, 4.0, 0.0, False, 10.0, 1e4, used)
    assert state[constants.REPEATS].max() == 0.0
    assert used.tolist() == answers.tolist()
    broken = np.where(np.arange(5) == 1, np.nan, answers)
    doubt(answers, broken, state, weights, 4.0, 10.0, True, 10.0, 1e4, used)
    assert state[constants.TRUST].tolist() == [1.0, 0.0, 1.0, 1.0, 1.0]
    assert used[1] == pytest.approx((1.0 + 3 * 4.0) / 4)


def test_rounding_errors_of_answers_do_not_grow() -> None:
    """Of two equal answers either may be the steepest: what is found must not depend on which."""
    V, x, follows = stream()
    V = np.concatenate([V, V[:, :, :2]], axis=2)
    gamma = np.array([0.5, 0.95])
    whole, _ = Combination(gamma, 5)(V, x, follows)
    for seed in range(3):
        moved = V * (1.0 + 1e-15 * np.random.default_rng(seed).normal(size=V.shape))
        np.testing.assert_allclose(Combination(gamma, 5)(moved, x, follows)[0], whole, rtol=0, atol=1e-10)


def test_bits_do_not_depend_on_blocks_and_the_state_can_be_restored() -> None:
    V, x, follows = stream()
    V[150:, :, 2] = V[150, :, 2]  # an answer that is doubted
    gamma = np.array([0.5, 0.95])
    fresh = np.zeros(V.shape, bool)
    fresh[[90, 200], :, 1] = True
    combination = Combination(gamma, 3)
    whole, _ = combination(V, x, follows, fresh)
    blocks, resumed = Combination(gamma, 3), Combination(gamma, 3)
    rows = [slice(a, b) for a, b in ((0, 1), (1, 17), (17, 333))]
    answers = [blocks(V[r], x[r], follows[r], fresh[r])[0] for r in rows]
    resumed.restore({name: array.copy() for name, array in blocks.arrays().items()})
    answers.append(resumed(V[333:], x[333:], follows[333:], fresh[333:])[0])
    assert np.array_equal(np.concatenate(answers), whole)
    for name, array in combination.arrays().items():
        assert np.array_equal(array, resumed.arrays()[name])
    with pytest.raises(ValueError, match="'errors' of the combination"):
        resumed.restore(blocks.arrays() | {"errors": np.full_like(blocks.errors, np.nan)})


def test_hostile_readings_do_no_harm() -> None:
    V, x, follows = stream()
    V[:, :, 1], V[100:, :, 2], V[120::7, :, 0] = np.nan, 1e300, -np.inf
    x[200] = 1e200
    combination = Combination(np.array([0.5, 0.95]), 3)
    answers, single = combination(V, x, follows)
    assert np.isfinite(answers).all()
    assert np.isfinite(single).all()
    assert all(np.isfinite(array).all() for array in combination.arrays().values())
    x[:] = np.nan
    answers, _ = Combination(np.array([0.5, 0.95]), 3)(V, x, follows)
    assert np.isfinite(answers).all()
    for constant in (0.0, 3.0):
        still, _ = Combination(np.array([0.9]), 1)(
            np.full((300, 1, 1), 7.0), np.full((300, 1), constant), follows[:300]
        )
        assert np.abs(still - constant).max() < 1e-9


def sine(rng: np.random.Generator, T: int) -> Array:
    return np.sin(np.arange(T) / 15) + 0.3 * rng.normal(size=T)


def walk(rng: np.random.Generator, T: int) -> Array:
    return rng.normal(size=T).cumsum()


def counts(rng: np.random.Generator, T: int) -> Array:
    readings: Array = rng.poisson(np.maximum(2 * np.sin(np.arange(T) / 40), 0.02)).astype(np.float64)
    return readings


def autoregression(rng: np.random.Generator, T: int) -> Array:
    x = rng.normal(size=T)
    for t in range(1, T):
        x[t] += 0.9 * x[t - 1]
    return x


Signal = Callable[[np.random.Generator, int], Array]
SIGNALS = [sine, walk, counts, autoregression]
GAMMA = np.array([0.5, 0.9])


def honest(make: Signal, seed: int, T: int = 3000) -> tuple[Array, Array, Array, Truth]:
    """Readings (T, 2), two honest answers with errors of their own, the returns, and where they are scored."""
    rng = np.random.default_rng(seed)
    x = np.repeat(make(rng, T)[:, None], 2, axis=1)
    G, known = np.empty(x.shape), np.empty(x.shape, bool)
    no = np.zeros(T, bool)
    for q, gamma in enumerate(GAMMA):
        G[:, q], known[:, q] = known_return(x[:, q], no, no, gamma)
    known[: T // 2] = False
    G = np.where(np.isfinite(G), G, x.mean(axis=0))
    answers = G[:, :, None] + G.std(axis=0)[:, None] * rng.normal(size=(T, 2, 2)) * [0.5, 0.8]
    return x, answers, G, known


def explained(p: Array, G: Array, known: Truth) -> Array:
    rows = [known[:, q] for q in range(p.shape[1])]
    return np.array([1 - np.mean((G[r, q] - p[r, q]) ** 2) / np.var(G[r, q]) for q, r in enumerate(rows)])


HOSTILE: dict[str, tuple[float, Callable[[np.random.Generator, Array, Array, Array], Array]]] = {
    "noise": (0.02, lambda rng, x, G, good: x.mean() + x.std() * rng.normal(size=x.shape)),
    "loud noise": (0.02, lambda rng, x, G, good: x.mean() + 10 * x.std() * rng.normal(size=x.shape)),
    "spikes": (0.02, lambda rng, x, G, good: good + 100 * x.std() * (rng.random(x.shape) < 0.01)),
    "spikes of both signs": (
        0.02,
        lambda rng, x, G, good: x.mean() + 100 * x.std() * rng.choice([-1, 0, 1], x.shape, p=[0.005, 0.99, 0.005]),
    ),
    "stuck": (0.1, lambda rng, x, G, good: after(good, x.max())),
    "perfect, then stuck": (0.1, lambda rng, x, G, good: after(G, x.max())),
    "no number": (0.02, lambda rng, x, G, good: after(good, np.nan)),
    "diverged": (0.02, lambda rng, x, G, good: after(good, np.inf)),
}


def after(answer: Array, value: float) -> Array:
    """The answer, and the value from 60% of the rows on."""
    return np.where(np.arange(len(answer))[:, None] < 0.6 * len(answer), answer, value)


@pytest.mark.parametrize("make", SIGNALS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_answer_costs_little(kind: str, make: Signal) -> None:
    limit, hostile = HOSTILE[kind]
    for seed in range(3):
        x, answers, G, known = honest(make, seed)
        follows = np.ones(len(x), bool)
        alone, _ = Combination(GAMMA, 2)(answers, x, follows)
        worse = hostile(np.random.default_rng(seed + 10), x, G, answers[:, :, 0])
        beside, _ = Combination(GAMMA, 3)(np.concatenate([answers, worse[:, :, None]], axis=2), x, follows)
        cost = explained(alone, G, known) - explained(beside, G, known)
        assert cost.max() <= limit, (seed, cost)


def test_what_stands_in_for_a_doubted_answer_is_the_best_of_the_others() -> None:
    """An answer that was far better than all others leaves them weights near 0: their ratios still count."""
    answers = np.array([1.0, 9.0, 50.0, 4.0, 4.0, 4.0])  # the third is stuck
    weights = np.array([1e-6, 1e-9, 1.0, 1e-9, 1e-9, 1e-9])
    state, used = np.zeros((11, 6)), np.empty(6)
    state[constants.TRUST], state[constants.AGE], state[constants.USUAL] = 1.0, 100.0, 1e4
    state[constants.PREVIOUS] = answers
    doubt(answers, answers, state, weights, 4.0, 0.0, True, 10.0, 1e4, used)
    assert state[constants.TRUST].tolist() == [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]  # all three repeat themselves
    assert used[:3].tolist() == [4.0, 4.0, 4.0]
    state[constants.TRUST], state[constants.REPEATS] = 1.0, 0.0
    doubt(answers, answers + np.array([1.0, 1.0, 0.0, 0.0, 0.0, 0.0]), state, weights, 4.0, 0.0, True, 10.0, 1e4, used)
    assert used[2] == pytest.approx(1.0, abs=0.02)


def test_the_further_an_answer_is_from_all_others_the_less_it_counts() -> None:
    """Its first row before it repeats itself is all that a stuck answer can spoil: in a short log that is much."""
    weights = np.array([1e-40, 1.0, 1e-60, 1e-60, 1e-60])
    off = []
    for far in (2.0, 4.0, 40.0):
        answers = np.array([1.0, 1.0 + far, 1.0, 1.0, 1.0])
        state, used = np.zeros((11, 5)), np.empty(5)
        state[constants.TRUST], state[constants.AGE], state[constants.USUAL] = 1.0, 1e6, 1.0
        doubt(answers, answers, state, weights, 9.0, 0.0, True, 100.0, 1e-9, used)
        off.append(used[1] - 1.0)
    assert off[0] == 2.0
    assert off[2] < 0.3 < off[1] < 2.5


def test_weights_are_found_less_often_as_rows_grow_many() -> None:
    between = [constants.rows_between_weights(learned, 2.0) for learned in (1.0, 16_000.0, 16_384.0, 1e6, 2**30)]
    assert between == [1.0, 16.0, 32.0, 1024.0, 2.0**21]
    assert [constants.rows_between_weights(learned, 2.0) for learned in (31.0, 32.0, 255.0, 256.0)] == [1, 2, 8, 16]
    assert constants.rows_between_weights(100.0, 1000.0) == 125.0


@pytest.mark.parametrize("h", [2.0, 100.0, 1000.0, 1440.0])
def test_the_next_row_at_which_weights_are_found_is_the_first_that_they_are_due_at(h: float) -> None:
    due = [row for row in range(1, 5000) if row % constants.rows_between_weights(row, h) == 0]
    assert [int(constants.next_weights(row, h)) for row in [0, *due[:-1]]] == due
    assert all(constants.next_weights(row - 1, h) == row for row in due)


def test_the_numbers_of_the_class_are_those_of_the_kernel() -> None:
    assert blend.WIDTH == lanes.WIDTH
    assert blend._LEARNED == constants.LEARNED
    assert blend._COMBINED == constants.OPEN_WEIGHT + 1


def several(Q: int, T: int = 300) -> tuple[Array, Array, Truth, Truth, Array]:
    """Answers (T, Q, 4), readings with missing ones, of some questions at the beginning, and which are fresh."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(T, Q)).cumsum(axis=0)
    V = x[:, :, None] + rng.normal(size=(T, Q, 4)) * [0.1, 1.0, 4.0, 0.5]
    V[120:190, ::2, 1] = V[120, ::2, 1]  # stuck, far, and no number
    V[200, 1::2, 2], V[210:220, :, 0], V[rng.random((T, Q)) < 0.3, 3] = 1e3, np.nan, np.nan
    x[rng.random((T, Q)) < 0.05] = np.nan
    x[:60, ::3], x[:, 5:6] = np.nan, np.nan
    fresh = np.zeros(V.shape, bool)
    fresh[[90, 150], :, 3] = True
    return V, x, rng.random(T) > 0.02, fresh, rng.uniform(0.0, 0.99, Q)


def test_each_question_is_combined_as_if_it_were_alone() -> None:
    V, x, follows, fresh, gamma = several(11)
    together = Combination(gamma, 4)
    p, single = together(V, x, follows, fresh, 3)
    for q in range(11):
        question, alone = slice(q, q + 1), Combination(gamma[q : q + 1], 4)
        answer, answers = alone(V[:, question], x[:, question], follows, fresh[:, question], 3)
        assert np.array_equal(answer, p[:, question])
        assert np.array_equal(answers, single[:, question])
        for name, array in together.arrays().items():
            assert np.array_equal(alone.arrays()[name], array[question])


def test_the_kernel_has_the_bits_of_plain_python(monkeypatch: pytest.MonkeyPatch) -> None:
    V, x, follows, fresh, gamma = several(3, 230)
    compiled, plain = Combination(gamma, 4), Combination(gamma, 4)
    expected, single = compiled(V, x, follows, fresh, 3)
    kernel = getattr(blend_kernels.combine, "py_func", blend_kernels.combine)
    monkeypatch.setattr(blend, "direct", lambda _: np.errstate(all="ignore")(kernel))
    answers, plain_single = plain(V, x, follows, fresh, 3)
    assert np.array_equal(answers, expected)
    assert np.array_equal(plain_single, single)
    for name, array in compiled.arrays().items():
        assert np.array_equal(plain.arrays()[name], array)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_bound_that_was_reached_ten_times_is_never_passed(sign: float) -> None:
    rng = np.random.default_rng(5)
    x = sign * np.maximum(rng.normal(size=(600, 2)), 0.0)
    x[::11, 1] = np.nan
    V = sign * rng.normal(size=(600, 2, 3)) * [1.0, 10.0, 1e6] - sign
    combination = Combination(GAMMA, 3)
    p, single = combination(V, x, np.ones(600, bool))
    reached = (x == 0.0).cumsum(axis=0) >= 10
    assert (sign * single[~reached]).min() < 0.0
    assert (sign * p[reached]).min() >= 0.0
    assert (sign * single[reached]).min() >= 0.0
    # a reading beyond it is a new bound, which has not been reached ten times
    _, single = combination(np.full((1, 2, 3), -100.0 * sign), np.full((1, 2), -sign), np.ones(1, bool))
    assert (sign * single[0, 0, :3]).max() < -1.0


def _doubt(v: list[float], usual: list[float], trust: list[float]) -> tuple[Array, Array]:
    """What is used of answers v, the first two of which have half the weight each, and how far each is trusted."""
    N = len(v)
    a, used = np.zeros((11, N)), np.empty(N)
    a[constants.USUAL], a[constants.AGE], a[constants.TRUST] = usual, 100.0, trust
    answers, weights = np.array(v), np.array([0.5, 0.5] + [0.0] * (N - 2))
    doubt(answers, answers, a, weights, -9.0, 1e-6, True, 2.0, 0.0, used)
    return used, a[constants.TRUST]


def test_an_answer_counts_the_less_the_further_it_is() -> None:
    used, trust = _doubt([6.0, 0.0, 0.0, 0.0, 0.0], [1.0] * 5, [1.0] * 5)
    recent = 6.0**2 / 4  # the mean over four rows, of which it was far in one
    assert trust[0] == pytest.approx((constants.FAR / 6.0**2) ** 2 * (constants.FAR_RECENTLY / recent) ** 2)
    assert used.tolist() == pytest.approx([6.0 * trust[0], 0.0, 0.0, 0.0, 0.0])


def test_an_answer_that_got_stuck_does_not_make_the_others_seem_far() -> None:
    """Others stand in for it: without it, the mean of the others would jump, and the second would be doubted too."""
    used, trust = _doubt([100.0, 1.0, 0.0, 0.0, 0.0], [0.05] * 5, [0.0, 1.0, 1.0, 1.0, 1.0])
    assert (trust[1:] == 1.0).all()
    assert used[0] == pytest.approx(1.0, abs=0.01)


def test_no_mixture_leaves_the_range_of_the_answers() -> None:
    """Free weights may be 2 and −1: if the first of these answers jumps, twice its jump would be predicted."""
    rng, T = np.random.default_rng(4), 2000
    x = rng.normal(size=(T, 1)).cumsum(axis=0)
    G = np.append(x[1:], x[-1:], axis=0)
    bias = rng.normal(size=(T, 1))
    V = np.stack([G + bias, G + 2.0 * bias], axis=2)
    V[-1, 0, 0] += 3.0
    combination = Combination(np.array([0.0]), 2)
    p, _ = combination(V, x, np.ones(T, bool))
    assert combination.weights[0, 2, 0] > 1.5
    assert p[-1, 0] <= max(V[-1, 0].max(), x[-1, 0], x.mean())


def test_a_fresh_answer_does_not_inherit_the_record_of_one_perfect_answer() -> None:
    """If that one then gets stuck, the fresh answer would outweigh all honest ones by errors that were not its own."""
    R = np.tril(np.full((5, 5), 0.5)) + np.diag([-0.499, 0.5, 0.6, 9.0, 3.0])
    state, weights = np.zeros((11, 5)), np.full((3, 5), 0.2)
    state[constants.ERROR] = np.arange(5.0)
    renew(3, state, weights, R)
    assert R[3, 3] == R[1, 1] == 1.0
    assert R[3, 0] == R[1, 0]
    assert R[4, 3] == R[4, 1]
    assert state[constants.ERROR, 3] == 1.0
    assert weights[0].tolist() == [0.2, 0.4, 0.2, 0.0, 0.2]


def test_a_fresh_answer_takes_over_what_is_known_of_the_second_best() -> None:
    """An answer that was poor and is perfect from a row on gains weight sooner where that is said."""
    x, answers, G, known = honest(sine, 0)
    renewed = np.where(np.arange(len(x))[:, None] < 1500, 5.0, G)
    V, follows = np.concatenate([answers, renewed[:, :, None]], axis=2), np.ones(len(x), bool)
    fresh = np.zeros(V.shape, bool)
    fresh[1500, :, 2] = True
    unaware, aware = Combination(GAMMA, 3), Combination(GAMMA, 3)
    known[:1500], known[1900:] = False, False
    without, with_fresh = unaware(V, x, follows)[0], aware(V, x, follows, fresh)[0]
    gain = explained(with_fresh, G, known) - explained(without, G, known)
    assert gain.min() > 0.01
    assert np.array_equal(without[:1500], with_fresh[:1500])


def test_predictions_do_not_lose_to_the_best_single_answer() -> None:
    """Untuned, on signals of many kinds: no worse than the best of eleven answers in hindsight, but for a little."""
    rng, t = np.random.default_rng(7), np.arange(4000)
    slow, noise = np.zeros(4000), rng.normal(size=(3, 4000))
    for k in range(2, 4000):
        slow[k] = 1.6 * slow[k - 1] - 0.65 * slow[k - 2] + noise[0, k]
    log = {
        "season": 3 * np.sin(t / 30) + 0.3 * noise[1],
        "walk": noise[2].cumsum(),
        "slow": slow,
        "on": (np.sin(t / 15) > 0.5) * (rng.random(4000) > 0.02).astype(float),
        "still": np.full(4000, 2.0),
    }
    result = emphatic.nexting.run(log, horizons=[2, 12], offline=False)
    scored = [score for score in result.summary if score["variance_explained"] is not None]
    assert len(scored) == 8
    loss = [max(score["answers"].values()) - score["variance_explained"] for score in scored]
    assert max(loss) < 0.02
    assert np.median(loss) < 1e-4
    assert all(list(score["answers"]) == list(scored[0]["answers"]) for score in scored)
    assert len(scored[0]["answers"]) == 11
