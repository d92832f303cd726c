"""Least squares against the direct solve of its sums, fixed points of small MDPs, and TD replayed to convergence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

import emphatic
from emphatic import Active, LeastSquares, problems

Array = NDArray[np.float64]


class Stream:
    """T steps in which everything varies: ρ, γ, I and λ of 0 and 1 among them, and φ' that is not always the next φ."""

    def __init__(self, T: int, n: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.Phi, self.Phi_next = rng.normal(size=(2, T, n)) * (rng.random((2, T, n)) < 0.7)
        follows = rng.random(T - 1) < 0.8
        self.Phi_next[:-1][follows] = self.Phi[1:][follows]
        self.R = rng.normal(size=T)
        self.gamma_next, self.lambda_, self.I = (
            rng.choice(values, T) for values in ([0, 0.5, 0.9, 1], [0, 0.3, 0.9, 1], [0, 0.5, 1, 2])
        )
        self.rho = rng.choice([0, 0.5, 1, 1, 2], T)

    @property
    def keywords(self) -> dict[str, Any]:
        return vars(self)

    def part(self, begin: int, end: int) -> dict[str, Any]:
        return {name: array[begin:end] for name, array in vars(self).items()}

    def direct(self, emphatic_: bool, ridge: float, forgetting: float, **given: Any) -> Array:
        """θ of the sums as the equations have them."""
        p = vars(self) | given
        n = p["Phi"].shape[1]
        A, b, e, F, rho, gamma = ridge * np.eye(n), np.zeros(n), np.zeros(n), 0.0, 0.0, 0.0
        for t in range(len(p["R"])):
            F = rho * gamma * F + p["I"][t]
            M = p["lambda_"][t] * p["I"][t] + (1 - p["lambda_"][t]) * F if emphatic_ else p["I"][t]
            rho = p["rho"][t]
            e = rho * (gamma * p["lambda_"][t] * e + M * p["Phi"][t])
            gamma = p["gamma_next"][t]
            A = forgetting * A + np.outer(e, p["Phi"][t] - gamma * p["Phi_next"][t])
            b = forgetting * b + e * p["R"][t]
        return np.asarray(np.linalg.solve(A, b), np.float64)


@pytest.mark.parametrize("forgetting", [1.0, 0.99])
@pytest.mark.parametrize("emphasis", [False, True])
def test_it_is_the_direct_solve_to_rounding(emphasis: bool, forgetting: float) -> None:
    stream = Stream(1200, 6)
    for T in (1, 7, 300, 500):
        learner = LeastSquares(6, emphatic=emphasis, forgetting=forgetting, ridge=0.5)
        learner.run(**stream.part(0, T))
        short = {name: array[:T] for name, array in vars(stream).items()}
        want = stream.direct(emphasis, 0.5, forgetting, **short)
        assert np.abs(learner.theta - want).max() < 1e-10 * max(1.0, np.abs(want).max())
    learner.run(**stream.part(500, 1200))  # beyond the first direct solve
    own = np.linalg.solve(learner.A, learner.b)
    assert np.abs(learner.theta - own).max() < 1e-10 * max(1.0, np.abs(own).max())
    if forgetting == 1.0:
        want = stream.direct(emphasis, 0.5, 1.0)
        assert np.abs(learner.theta - want).max() < 1e-10 * max(1.0, np.abs(want).max())


def test_steps_and_runs_and_any_split_agree_and_predictions_are_made_before_each_update() -> None:
    stream = Stream(700, 4)
    whole, parts, single = (LeastSquares(4, emphatic=True) for _ in range(3))
    predictions = whole.run(**stream.keywords)
    made = np.concatenate([parts.run(**stream.part(a, b)) for a, b in ((0, 13), (13, 600), (600, 600), (600, 700))])
    assert np.abs(made - predictions).max() < 1e-12
    for t in range(700):
        p = {name: array[t] for name, array in vars(stream).items()}
        before = single.predict(p["Phi"])
        delta = single.learn(p["I"], p["lambda_"], p["Phi"], p["rho"], p["R"], p["Phi_next"], p["gamma_next"])
        assert before == pytest.approx(predictions[t], abs=1e-12)
        if t == 0:
            assert delta == p["R"]
    for other in (parts, single):
        assert np.abs(other.theta - whole.theta).max() < 1e-12
        assert np.array_equal(other.e, whole.e)
        assert other.steps == 700


def test_a_trace_begins_anew_after_a_cut() -> None:
    stream = Stream(60, 3)
    cut, fresh = LeastSquares(3), LeastSquares(3)
    cut.run(**stream.part(0, 30))
    fresh.run(**stream.part(0, 30))
    cut.cut()
    fresh.run(np.zeros((1, 3)), 0.0, 0.0, rho=0.0, Phi_next=np.zeros((1, 3)))  # ρ = 0 forgets the trace
    for learner in (cut, fresh):
        learner.run(**stream.part(30, 60))
    assert np.abs(cut.theta - fresh.theta).max() < 1e-12


@pytest.mark.parametrize("rule", ["td", "etd"])
@pytest.mark.parametrize("problem", ["chain", "two_theta"])
def test_every_transition_in_its_proportion_gives_the_fixed_point(problem: str, rule: str) -> None:
    """λ = 0 with each transition once, weighted by the exact share of time, and by the exact emphasis."""
    mdp = problems.get(problem)()
    Phi, Phi_next, R, gamma_next, rho, I = [], [], [], [], [], []
    weight = mdp.d_mu * mdp.I if rule == "td" else mdp.emphasis(rule)
    for s, a, to in zip(*np.nonzero(mdp.P), strict=True):
        share = weight[s] * mdp.mu[s, a] * mdp.P[s, a, to]
        if share == 0.0:
            continue
        ended = to == mdp.S
        Phi.append(mdp.Phi[s])
        Phi_next.append(np.zeros(mdp.n) if ended else mdp.Phi[to])
        gamma_next.append(0.0 if ended else mdp.gamma[to])
        R.append(mdp.R[s, a, to])
        rho.append(mdp.pi[s, a] / mdp.mu[s, a])
        I.append(share)
    learner = LeastSquares(mdp.n, ridge=1e-14)
    for step in zip(I, Phi, rho, R, Phi_next, gamma_next, strict=True):
        learner.learn(step[0], 0.0, *step[1:])
        learner.cut()
    assert np.allclose(learner.theta, mdp.fixed_point(rule), atol=1e-9)


def test_learners_share_a_matrix_until_they_differ_in_more_than_the_cumulant() -> None:
    stream, rng = Stream(300, 5), np.random.default_rng(1)
    R, lambda_ = rng.normal(size=(300, 3)), np.array([[0.0, 0.5, 1.0]])
    shared = LeastSquares(5, 3, emphatic=True)
    made = shared.run(**stream.part(0, 150) | {"R": R[:150]})
    assert shared.matrices == 1
    assert shared.nbytes < 2 * LeastSquares(5).nbytes
    late = shared.run(**stream.part(150, 300) | {"R": R[150:], "lambda_": lambda_})
    assert shared.matrices == 3
    assert made.shape == late.shape == (150, 3)
    ridges = LeastSquares(5, 2, ridge=[0.1, 10.0])
    ridges.run(**stream.keywords)
    for k, ridge in enumerate((0.1, 10.0)):
        assert np.allclose(ridges.theta[k], stream.direct(False, ridge, 1.0), atol=1e-10)


class Telescoping:
    """Three learners with a γ each, λ = 1 and ρ = 1, in a log whose φ follow each other, with episodes that end."""

    def __init__(self, T: int, n: int) -> None:
        rng = np.random.default_rng(5)
        self.Phi = rng.normal(size=(T + 1, n)) * (rng.random((T + 1, n)) < 0.7)
        self.R, self.I = rng.normal(size=(T, 3)), rng.choice([0.0, 0.5, 1.0, 2.0], T)
        self.gamma_next = np.where(rng.random((T, 1)) < 0.02, 0.0, [[0.5, 0.9, 1.0]])

    def part(self, begin: int, end: int, k: Any = slice(None)) -> dict[str, Any]:
        own = {"R": self.R[begin:end, k], "gamma_next": self.gamma_next[begin:end, k]}
        return own | {"Phi": self.Phi[begin : end + 1], "I": self.I[begin:end], "lambda_": 1.0}


@pytest.mark.parametrize("ridge", [0.5, 1e-9])
@pytest.mark.parametrize("emphasis", [False, True])
def test_learners_with_different_gammas_are_those_alone(emphasis: bool, ridge: float) -> None:
    log = Telescoping(1300, 6)
    shared = LeastSquares(6, 3, emphatic=emphasis, ridge=ridge)
    made = np.concatenate([shared.run(**log.part(a, b)) for a, b in ((0, 1), (1, 300), (300, 1300))])
    for k in range(3):
        alone = LeastSquares(6, emphatic=emphasis, ridge=ridge)
        own = alone.run(**log.part(0, 1300, k))
        assert np.abs(own[12:] - made[12:, k]).max() < 1e-10 * np.abs(own).max()
        assert np.abs(shared.theta[k] - alone.theta).max() < 1e-10
        for ours, its in ((shared.A[k], alone.A), (shared.b[k], alone.b), (shared.e[k], alone.e)):
            np.testing.assert_allclose(ours, its, rtol=1e-10, atol=1e-10)


def test_when_one_diverges_the_others_go_on() -> None:
    log = Telescoping(400, 4)
    log.gamma_next[199] = [0.5, 0.9, 1.0]  # in the middle of an episode
    shared, alone = LeastSquares(4, 3, emphatic=True), [LeastSquares(4, emphatic=True) for _ in range(3)]
    log.R[251, 1] = 1e200
    for learner, k in zip((shared, *alone), (slice(None), 0, 1, 2), strict=True):
        learner.run(**log.part(0, 200, k))
        learner.run(**log.part(200, 400, k), on_divergence="freeze")
    assert shared.matrices == 3
    assert shared.frozen.tolist() == [False, True, False]
    for k in range(3):
        np.testing.assert_allclose(shared.theta[k], alone[k].theta, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(shared.A[k], alone[k].A, rtol=1e-9, atol=1e-9)
        assert shared._taken[k] == alone[k]._taken


class Pieces:
    """A random stream of K learners in pieces, with rows of zeros and breaks: a property of ``LeastSquares``.

    Features are mostly small whole numbers, so that A is singular now and then. Most streams keep λ = ρ = 1 and one I
    for all.
    """

    def __init__(self, seed: int) -> None:
        rng = self._rng = np.random.default_rng(seed)
        self.n, self.K = int(rng.integers(1, 5)), int(rng.integers(2, 5))
        self.options: dict[str, Any] = {
            "emphatic": bool(rng.random() < 0.3),
            "ridge": float(rng.choice([0.1, 1.0, 5.0])),
        }
        self._zeros, self._breaks = rng.choice([0.0, 0.2, 0.6], 2)
        self._gamma = rng.choice([0.0, 0.5, 0.8, 0.95, 1.0], self.K)
        self._varying = rng.random() < 0.3
        self.pieces = [self._piece(rng.random() < 0.1) for _ in range(rng.integers(1, 5))]

    def _features(self, T: int) -> Array:
        whole = self._rng.integers(-1, 3, size=(T, self.n)).astype(np.float64)
        some = whole if self._rng.random() < 0.7 else self._rng.normal(size=(T, self.n))
        return np.where(self._rng.random((T, 1)) < self._zeros, 0.0, some)

    def _piece(self, other: bool) -> dict[str, Any]:
        rng, T = self._rng, int(self._rng.integers(0, 9))
        Phi, Phi_next = self._features(T + 1), self._features(T)
        follows = rng.random(T) >= self._breaks
        Phi_next[follows] = Phi[1:][follows]
        gamma = np.where(rng.random((T, 1)) < 0.15, 0.0, self._gamma)
        if self._varying:
            gamma = np.where(rng.random((T, self.K)) < 0.3, 0.3, gamma)
        each = rng.choice([0.5, 1.0], (3, T, self.K)) if other else np.ones((3, T, self.K))
        each[2] *= rng.choice([0.0, 0.5, 1.0, 2.0], (T, 1), p=[0.15, 0.15, 0.6, 0.1])
        names = dict(zip(("lambda_", "rho", "I"), each, strict=True))
        self.cuts = [*getattr(self, "cuts", []), bool(rng.random() < 0.15)]
        return {"Phi": Phi[:T], "Phi_next": Phi_next, "R": rng.normal(size=(T, self.K)), "gamma_next": gamma, **names}

    def teach(self, learner: LeastSquares, k: int | slice, by_step: bool = False) -> list[tuple[Array, Array]]:
        """θ and A after each piece, with the cuts; ``k`` selects the learners."""
        states = []
        for piece, cuts in zip(self.pieces, self.cuts, strict=True):
            p = {name: array if name.startswith("Phi") else array[:, k] for name, array in piece.items()}
            if by_step:
                order = ("I", "lambda_", "Phi", "rho", "R", "Phi_next", "gamma_next")
                for t in range(len(p["R"])):
                    learner.learn(*(p[name][t] for name in order))
            else:
                learner.run(**p)
            states.append((learner.theta, learner.A))
            if cuts:
                learner.cut()
        return states


def find_faults(pieces: Pieces) -> list[str]:
    """Where K learners differ by more than 1e-8 from K single ones, of whatever neighbours have."""
    faults = []
    single = [pieces.teach(LeastSquares(pieces.n, **pieces.options), k) for k in range(pieces.K)]
    for by_step in (False, True):
        learner = LeastSquares(pieces.n, pieces.K, **pieces.options)
        for at, (theta, A) in enumerate(pieces.teach(learner, slice(None), by_step)):
            for k in range(pieces.K):
                theta_alone, A_alone = single[k][at]
                size = max(1.0, np.abs(A_alone).max())
                if np.abs(A[k] - A_alone).max() > 1e-8 * size:
                    faults.append(f"A of learner {k} after piece {at}")
                # (next to a singular A, θ of either is rounding error)
                size = max(1.0, np.abs(theta_alone).max())
                if np.linalg.cond(A_alone) < 1e6 and np.abs(theta[k] - theta_alone).max() > 1e-8 * size:
                    faults.append(f"θ of learner {k} after piece {at}")
    return faults


@pytest.mark.parametrize(
    "seeds", [range(400), pytest.param(range(400, 10_400), marks=pytest.mark.long)], ids=["some", "10,000"]
)
def test_learners_beside_others_are_those_alone_whatever_rows_are_zero_or_break(seeds: range) -> None:
    faults = {seed: found for seed in seeds if (found := find_faults(Pieces(seed)))}
    assert not faults


def test_active_and_csr_features_are_those_of_an_array() -> None:
    rng = np.random.default_rng(0)
    indices = np.sort(rng.permuted(np.tile(np.arange(8), (51, 1)), axis=1)[:, :3], axis=1)
    values = rng.normal(size=indices.shape)
    dense = np.zeros((51, 8))
    np.put_along_axis(dense, indices, values, axis=1)
    R, forms = rng.normal(size=50), (dense, Active(indices, values), sp.csr_array(dense))
    learners = [LeastSquares(8) for _ in forms]
    made = [learner.run(Phi, R, 0.9, lambda_=0.5) for learner, Phi in zip(learners, forms, strict=True)]
    for other, learner in zip(made[1:], learners[1:], strict=True):
        assert np.array_equal(made[0], other)
        assert np.array_equal(learner.theta, learners[0].theta)
    assert learners[0].predict(dense).shape == (51,)
    one = Active(indices[0], values[0])
    assert learners[0].predict(one) == learners[0].predict(dense[0]) == pytest.approx(dense[0] @ learners[0].theta)
    assert learners[0].learn(1.0, 0.5, one, 1.0, 1.0, Active(indices[1], values[1]), 0.9) == pytest.approx(
        learners[1].learn(1.0, 0.5, dense[0], 1.0, 1.0, dense[1], 0.9)
    )


def test_the_probe_is_that_of_learners() -> None:
    mdp = problems.chain()
    stream = mdp.simulate(50, seed=0)
    learner, again = LeastSquares(mdp.n), LeastSquares(mdp.n)
    predictions, errors = learner.run(**stream.inputs("td"), probe=mdp.probe, probe_every=7)
    assert errors.shape == (8,)
    given = stream.inputs("td")
    again.run(**{name: array[: 14 + (name == "Phi")] for name, array in given.items()})
    Phi_s, v, d = mdp.probe
    want = np.sqrt(np.sum(d * (Phi_s @ again.theta - v) ** 2) / np.sum(d))
    assert errors[2] == pytest.approx(want)
    assert predictions.shape == (50,)
    assert errors[0] == pytest.approx(np.sqrt(np.sum(d * v**2) / np.sum(d)))


@pytest.mark.parametrize("K", [None, 2])
def test_a_saved_learner_goes_on_bit_for_bit(K: int | None, tmp_path: Path) -> None:
    stream = Stream(900, 3)
    lambda_ = {} if K is None else {"lambda_": np.array([[0.2, 0.8]])}
    learner = LeastSquares(3, K, emphatic=True, forgetting=0.99 if K else 1.0)
    learner.run(**stream.part(0, 400) | lambda_)
    path = tmp_path / "model.safetensors"
    learner.save(path, note="kept", numbers=np.arange(3))
    loaded, (again, more), copied = emphatic.load(path), LeastSquares.load_with(path), learner.copy()
    assert more["note"] == "kept"
    assert more["numbers"].tolist() == [0, 1, 2]
    want = learner.run(**stream.part(400, 900) | lambda_)
    for other in (loaded, again, copied):
        assert isinstance(other, LeastSquares)
        assert np.array_equal(other.run(**stream.part(400, 900) | lambda_), want)
        assert np.array_equal(other.theta, learner.theta)
        assert other.matrices == learner.matrices
        assert repr(other) == repr(learner)


def test_other_files_are_refused_clearly(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    LeastSquares(3).save(path)
    with pytest.raises(emphatic.CheckpointError, match=r"holds a LeastSquares: open it with emphatic\.load"):
        emphatic.Learner.load_with(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-8])
    with pytest.raises(emphatic.CheckpointError):
        LeastSquares.load_with(path)
    with pytest.raises(emphatic.CheckpointError):
        emphatic.load(path)
    damaged = bytearray(whole)
    damaged[-3] ^= 1
    path.write_bytes(bytes(damaged))
    with pytest.raises(emphatic.CheckpointError):
        emphatic.load(path)
    emphatic.TD(3).save(path)
    with pytest.raises(emphatic.CheckpointError, match="does not hold a LeastSquares"):
        LeastSquares.load_with(path)
    with pytest.raises(FileNotFoundError):
        emphatic.load(tmp_path / "none")


def test_too_many_features_are_refused_before_anything_is_allocated() -> None:
    with pytest.raises(ValueError, match=r"n.*at most 4,000: it takes n² memory and time, 160\.0 GB.*Got 100,000"):
        LeastSquares(100_000)
    with pytest.raises(ValueError, match="at most 10"):
        LeastSquares(11, limit=10)


@pytest.mark.parametrize(
    "bad",
    [
        {"R": np.nan},
        {"gamma_next": 1.5},
        {"lambda_": -0.1},
        {"rho": -1.0},
        {"I": -1.0},
        {"Phi": np.full((4, 2), np.inf)},
        {"Phi": np.zeros((4, 3))},
        {"Phi_next": np.zeros((2, 2))},
        {"Phi": np.empty((0, 2))},
        {"predictions": "some"},
        {"on_divergence": "ignore"},
        {"probe_every": 0},
    ],
)
def test_bad_input_raises_and_changes_nothing(bad: dict[str, Any]) -> None:
    learner = LeastSquares(2)
    learner.run(np.eye(2), 1.0, 0.5)
    before = learner.theta, learner.A, learner.e
    given: dict[str, Any] = {"Phi": np.ones((4, 2)), "R": 1.0, "gamma_next": 0.5} | bad
    with pytest.raises(ValueError, match=next(iter(bad))):
        learner.run(**given)
    assert all(np.array_equal(a, b) for a, b in zip(before, (learner.theta, learner.A, learner.e), strict=True))


@pytest.mark.parametrize(
    "bad", [{"ridge": 0.0}, {"ridge": [1.0, 2.0]}, {"forgetting": 1.1}, {"forgetting": 0.0}, {"emphatic": 1}, {"K": 0}]
)
def test_bad_options_are_named(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        LeastSquares(2, **bad)


def test_a_singular_matrix_is_passed_over() -> None:
    """A = ridge + φ(φ − γ'φ')ᵀ = 1 − 1 = 0 after the first step: no weights follow from it, but some from the next."""
    learner = LeastSquares(1)
    learner.learn(1.0, 0.0, [1.0], 1.0, 3.0, [2.0], 1.0)
    assert learner.theta == 0.0
    learner.learn(1.0, 0.0, [1.0], 1.0, 1.0, [0.0], 0.0)
    assert learner.A.item() == pytest.approx(1.0)
    assert learner.theta == pytest.approx(4.0)


def test_a_feature_that_is_never_active_does_no_harm_to_forgetting() -> None:
    learner = LeastSquares(2, forgetting=0.5)
    learner.run(np.tile([1.0, 0.0], (5001, 1)), 1.0, 0.5)
    assert learner.theta == pytest.approx([2.0, 0.0], abs=0.01)
    assert np.isfinite(learner.A).all()


def test_what_is_no_longer_finite_diverges_or_is_frozen() -> None:
    Phi = np.full((5, 1), 1e80)
    with pytest.raises(emphatic.Diverged, match=r"step 0 of run: (?!.*alpha)"):
        LeastSquares(1).run(Phi, 1.0, 0.5, rho=1e30)
    learner = LeastSquares(1, 2)
    made = learner.run(np.ones((5, 1)), 1.0, 0.5, rho=np.array([1.0, 1e200]), on_divergence="freeze")
    assert learner.frozen.tolist() == [False, True]
    assert learner._taken.tolist() == [4, 0]
    assert np.isfinite(made).all()
    assert learner.theta[0] == pytest.approx(4 / 3)


def test_followon_of_lstd_is_not_counted() -> None:
    """A long stretch of ρ = 2 makes the follow-on trace infinite; LSTD(0), which does not use it, must not notice."""
    rng = np.random.default_rng(0)
    Phi, R = rng.normal(size=(801, 3)), rng.normal(size=800)
    learner = LeastSquares(3)
    learner.run(Phi, R, 0.9, rho=2.0)
    A = np.eye(3) + 2.0 * Phi[:-1].T @ (Phi[:-1] - 0.9 * Phi[1:])
    np.testing.assert_allclose(learner.theta, np.linalg.solve(A, 2.0 * Phi[:-1].T @ R), rtol=1e-9)
    with pytest.raises(emphatic.Diverged):
        LeastSquares(3, emphatic=True).run(Phi, R, 0.9, rho=2.0)


@pytest.mark.parametrize("phi_next", [1e101, 1e300])
def test_a_step_that_diverges_changes_nothing(phi_next: float, tmp_path: Path) -> None:
    """As long as θ = 0 the TD error says nothing of how large φ' is; A would not be finite."""
    learner = LeastSquares(2)
    learner.learn(1.0, 0.5, [1.0, 2.0], 1.0, 0.0, [1.0, 0.0], 0.9)
    before = [array.copy() for array in (learner.A, learner.b, learner.theta, learner.e)]
    with pytest.raises(emphatic.Diverged, match=r"step 1 of learn: .* Try smaller rho, lambda_ or I, or smaller feat"):
        learner.learn(1.0, 0.5, [1e20, 2.0], 1.0, 1.0, [phi_next, 0.0], 0.9)
    for was, now in zip(before, (learner.A, learner.b, learner.theta, learner.e), strict=True):
        np.testing.assert_array_equal(was, now)
    learner.save(tmp_path / "learner.safetensors")
    assert emphatic.load(tmp_path / "learner.safetensors").steps == 1
