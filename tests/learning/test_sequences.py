"""The helpers against their definitions, written out here as sums and products."""

import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import emphatic
from emphatic.learning.sequences import (
    UndiscountedWarning,
    interest,
    returns,
    rho,
    terminal_cumulant,
    warn_if_never_terminating,
)

FloatArray = npt.NDArray[np.float64]


def ref_returns(R: FloatArray, gamma_next: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Σ_{k>t} R_k Π_{j=t+1}^{k−1} γ_j, and the weight Π_{j=t+1}^{T} γ_j of what comes after the log."""
    T = len(R)
    G, weight = np.zeros(T), np.zeros(T)
    for t in range(T):
        G[t] = sum(R[k] * np.prod(gamma_next[t:k]) for k in range(t, T))
        weight[t] = np.prod(gamma_next[t:])
    return G, weight


def discounts(rng: np.random.Generator, *shape: int) -> FloatArray:
    drawn: FloatArray = rng.choice([0.0, 0.3, 0.9, 0.99, 1.0], size=shape, p=[0.05, 0.1, 0.3, 0.3, 0.25])
    return drawn


def close(a: FloatArray, b: FloatArray) -> bool:
    return bool(a.shape == b.shape and np.allclose(a, b, rtol=1e-13, atol=1e-13))


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("tolerance", [0.0, 0.01, 0.5])
def test_returns_are_the_discounted_sums(seed: int, tolerance: float) -> None:
    rng = np.random.default_rng(seed)
    T = 1 + 7 * seed
    R, gamma_next = rng.standard_normal(T), discounts(rng, T)
    gamma_next[0] = 0.3
    ref_G, ref_weight = ref_returns(R, gamma_next)
    G, known = returns(R, gamma_next, tolerance=tolerance)
    assert close(G, ref_G)
    assert known.dtype == np.bool_
    assert known.tolist() == (ref_weight <= tolerance).tolist()


T, K = 23, 4
RNG = np.random.default_rng(5)
R_TK, GAMMA_TK = RNG.standard_normal((T, K)), np.where(np.arange(T)[:, None] == 11, 0.0, discounts(RNG, T, K))
GAMMA_T, GAMMA_K = GAMMA_TK[:, 0], np.array([0.0, 0.5, 0.9, 0.99])
SHAPES: list[tuple[FloatArray, npt.ArrayLike, FloatArray]] = [  # R, gamma_next, what it means in full
    (R_TK, 0.9, np.full((T, K), 0.9)),
    (R_TK, GAMMA_T, np.tile(GAMMA_T[:, None], (1, K))),
    (R_TK, GAMMA_T[:, None], np.tile(GAMMA_T[:, None], (1, K))),
    (R_TK, GAMMA_K, np.tile(GAMMA_K, (T, 1))),
    (R_TK, GAMMA_K[None, :], np.tile(GAMMA_K, (T, 1))),
    (R_TK, GAMMA_TK, GAMMA_TK),
    (R_TK[:, 0], GAMMA_K[None, :], np.tile(GAMMA_K, (T, 1))),
    (R_TK[:, 0], GAMMA_TK, GAMMA_TK),
    (R_TK[:, :1], GAMMA_T, GAMMA_T[:, None]),
    (R_TK[:, 1], 0.9, np.full(T, 0.9)),
    (np.asfortranarray(R_TK)[::-1], GAMMA_TK.tolist(), GAMMA_TK),
    (R_TK.astype(np.float32), GAMMA_K, np.tile(GAMMA_K, (T, 1))),
]


@pytest.mark.parametrize("case", range(len(SHAPES)))
def test_returns_of_every_shape(case: int) -> None:
    R, given, gamma_next = SHAPES[case]
    G, known = returns(R, given)
    assert G.shape == known.shape == gamma_next.shape
    R_full = np.broadcast_to(R if R.ndim == gamma_next.ndim else R[:, None], gamma_next.shape)
    for k in np.ndindex(gamma_next.shape[1:]):
        ref_G, ref_weight = ref_returns(R_full[:, *k], gamma_next[:, *k])
        assert close(G[:, *k], ref_G)
        assert known[:, *k].tolist() == (ref_weight <= 0.01).tolist()


def test_returns_leave_the_arguments_alone_and_take_read_only_ones() -> None:
    R, gamma_next = R_TK.copy(), GAMMA_TK.copy()
    R.flags.writeable = gamma_next.flags.writeable = False
    G, _ = returns(R, gamma_next)
    assert close(G, returns(R_TK, GAMMA_TK)[0])
    assert not np.shares_memory(G, R)


@pytest.mark.parametrize("shape", [(0,), (0, 3)])
def test_an_empty_log_has_no_returns(shape: tuple[int, ...]) -> None:
    G, known = returns(np.zeros(shape), 1.0)
    assert G.shape == known.shape == shape


def test_the_mask_tells_the_tail_that_a_long_log_cannot_know() -> None:
    G, known = returns(np.ones(1_000_000), 0.999)
    first_unknown = int(np.argmin(known))
    assert len(known) - first_unknown == int(np.log(0.01) / np.log(0.999))  # the last 4602 steps
    assert not known[first_unknown:].any()
    np.testing.assert_allclose(G[:first_unknown], 1000.0, rtol=0.01)


@pytest.mark.parametrize(
    ("gamma_next", "whose"),
    [(1.0, ""), (np.ones(T), ""), (np.where(np.arange(K) == 2, 1.0, GAMMA_TK), " for learner 2"),
     (np.array([[0.5, 0.9, 0.9, 1.0]]), " for learner 3")],
)  # fmt: skip
def test_a_log_that_never_terminates_is_warned_of(gamma_next: npt.ArrayLike, whose: str) -> None:
    with pytest.warns(UndiscountedWarning, match=f"'gamma_next' never falls below 1 in this log{whose}:") as seen:
        returns(R_TK[:, 0], gamma_next)
    assert len(seen) == 1
    assert seen[0].filename == __file__

    def run() -> None:
        warn_if_never_terminating(gamma_next)

    with pytest.warns(UndiscountedWarning) as seen:
        run()
    assert seen[0].filename == __file__


def test_a_log_that_terminates_once_is_not_warned_of() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_never_terminating(np.append(np.ones(99), 0.999))
        warn_if_never_terminating(np.append(np.ones((99, 2)), [[0.0, 0.5]], axis=0))
        warn_if_never_terminating(np.ones(0))
        warn_if_never_terminating(0.0)


@pytest.mark.parametrize("seed", range(5))
def test_terminal_cumulant_accumulates_to_the_terminal_pseudo_reward(seed: int) -> None:
    rng = np.random.default_rng(seed)
    Z, R, gamma_next = rng.standard_normal(40), rng.standard_normal(40), discounts(rng, 40)
    gamma_next[39] = 0.0
    cumulant = terminal_cumulant(Z, gamma_next, R)
    assert cumulant.tolist() == [r + (1.0 - g) * z for z, g, r in zip(Z, gamma_next, R, strict=True)]
    G, known = returns(terminal_cumulant(2.5, gamma_next), gamma_next)
    assert known.all()
    assert close(G, np.full(40, 2.5))


def test_terminal_cumulant_broadcasts_over_time_and_learners() -> None:
    cumulant = terminal_cumulant(GAMMA_K, GAMMA_T[:, None], R_TK)
    for t, k in np.ndindex(T, K):
        assert cumulant[t, k] == R_TK[t, k] + (1.0 - GAMMA_T[t]) * GAMMA_K[k]
    assert terminal_cumulant(3.0, 0.5) == 1.5


def ref_interest(gamma_next: list[float], kind: str, terminal_rows: bool) -> list[float]:
    """A walk through the log, one state at a time."""
    out, begins, at_terminal, product = [], True, False, 1.0
    for g in gamma_next:
        if at_terminal:
            out.append(0.0)
            at_terminal, begins = False, True
            continue
        product = 1.0 if begins else product
        out.append({"every": 1.0, "first": float(begins), "discounted": product}[kind])
        product *= g
        begins = g == 0.0 and not terminal_rows
        at_terminal = g == 0.0 and terminal_rows
    return out


@pytest.mark.parametrize("kind", ["every", "first", "discounted"])
@pytest.mark.parametrize("terminal_rows", [False, True])
def test_interest_is_that_of_a_walk_through_the_log(kind: Any, terminal_rows: bool) -> None:
    rng = np.random.default_rng(0)
    for length in [0, 1, 2, 3, *range(4, 60, 5)]:
        for often in (0.1, 0.5, 0.9):  # up to many γ' = 0 in a row
            gamma_next = np.where(rng.random(length) < often, 0.0, rng.choice([0.3, 0.9, 1.0], length))
            I = interest(gamma_next, kind, terminal_rows=terminal_rows)
            assert I.shape == (length,)
            assert I.dtype == np.float64
            assert close(I, np.array(ref_interest(gamma_next.tolist(), kind, terminal_rows)))


def test_rho_is_the_ratio() -> None:
    rng = np.random.default_rng(1)
    pi, mu = rng.random((T, K)), rng.uniform(0.1, 1.0, T)
    ratio = rho(pi, mu)
    for t, k in np.ndindex(T, K):
        assert ratio[t, k] == pi[t, k] / mu[t]
    assert rho(mu, mu).tolist() == [1.0] * T
    assert rho([0, 1], [1, 1]).tolist() == [0.0, 1.0]
    assert rho(1.0, 0.25) == 4.0


def with_value(array: FloatArray, at: Any, value: float) -> FloatArray:
    changed = array.copy()
    changed[at] = value
    return changed


HALVES = np.full(30, 0.5)
REFUSED: list[tuple[Callable[[], Any], str, str]] = [  # the call, the parameter, what was got and where
    (lambda: returns(HALVES, 0.5, tolerance=1.0), "tolerance", "1.0"),
    (lambda: returns(HALVES, 0.5, tolerance=np.nan), "tolerance", "nan"),
    (lambda: returns(1.0, 0.5), "R", "the scalar 1.0"),
    (lambda: returns(np.zeros((2, 3, 4)), 0.5), "R", "shape (2, 3, 4)"),
    (lambda: returns([[1.0, 2.0], [1.0]], 0.5), "R", "rows of different lengths"),
    (lambda: returns(["a", "b"], 0.5), "R", "dtype <U1"),
    (lambda: returns([1j], 0.5), "R", "dtype complex128"),
    (lambda: returns(with_value(HALVES, 17, np.nan), 0.5), "R", "nan at step 17"),
    (lambda: returns(with_value(R_TK, (9, 2), -np.inf), 0.5), "R", "-inf at step 9 for learner 2"),
    (lambda: returns(HALVES, 1.5), "gamma_next", "1.5"),
    (lambda: returns(HALVES, with_value(HALVES, 3, -0.1)), "gamma_next", "-0.1 at step 3"),
    (lambda: returns(R_TK, [0.5, 0.5, np.nan, 0.5]), "gamma_next", "nan for learner 2"),
    (lambda: returns(HALVES, HALVES[1:]), "gamma_next", "length 29"),
    (lambda: returns(R_TK, HALVES), "gamma_next", "length 30"),
    (lambda: returns(np.ones((6, 6)), np.full(6, 0.5)), "gamma_next", "length 6"),
    (lambda: returns(R_TK, GAMMA_TK[1:]), "gamma_next", "shape (22, 4)"),
    (lambda: returns(R_TK[:1], GAMMA_TK), "gamma_next", "shape (23, 4)"),
    (lambda: terminal_cumulant(with_value(HALVES, 4, np.inf), 0.5), "Z", "inf at step 4"),
    (lambda: terminal_cumulant(1.0, 2.0), "gamma_next", "2.0"),
    (lambda: terminal_cumulant(1.0, 0.5, np.nan), "R", "nan"),
    (lambda: terminal_cumulant(HALVES, HALVES[2:]), "gamma_next", "length 28"),
    (lambda: interest(HALVES, "last"), "kind", "'last'"),  # type: ignore[arg-type]
    (lambda: interest(0.5), "gamma_next", "shape ()"),
    (lambda: interest(GAMMA_TK), "gamma_next", "shape (23, 4)"),
    (lambda: interest(with_value(HALVES, 8, 1.01)), "gamma_next", "1.01 at step 8"),
    (lambda: rho(1.0, with_value(HALVES, 17, 0.0)), "mu", "0.0 at step 17"),
    (lambda: rho(0.0, 0.0), "mu", "0.0"),
    (lambda: rho(1.0, with_value(HALVES, 2, 5e-324)), "mu", "5e-324 at step 2"),
    (lambda: rho(with_value(HALVES, 5, 1.5), 0.5), "pi", "1.5 at step 5"),
    (lambda: rho(0.5, with_value(HALVES, 6, np.nan)), "mu", "nan at step 6"),
    (lambda: rho(HALVES, HALVES[:7]), "mu", "length 7"),
]


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_bad_input_is_refused_by_name_value_and_place(case: int) -> None:
    call, parameter, got = REFUSED[case]
    (function,) = set(call.__code__.co_names) & {"returns", "terminal_cumulant", "interest", "rho"}
    with pytest.raises(ValueError, match=f"^The '{parameter}' parameter of {function} must be ") as error:
        call()
    assert f". Got {got} instead." in str(error.value)


def test_a_refusal_says_what_is_wanted_and_the_way_out() -> None:
    with pytest.raises(ValueError, match="parameter of rho") as error:
        rho(1.0, [0.5, 0.0])
    assert str(error.value) == (
        "The 'mu' parameter of rho must be greater than 0 for an action that was taken. "
        "Got 0.0 at step 1 instead. "
        "Give the probability with which the behaviour policy chose it, or leave that step out."
    )
    with pytest.raises(ValueError, match="parameter of returns") as error:
        returns(np.ones((6, 6)), np.full(6, 0.5))
    assert str(error.value) == (
        "The 'gamma_next' parameter of returns must be two-dimensional where T = K = 6. "
        "Got length 6 instead. Pass (T, 1) or (1, K) to say which it is."
    )


def test_importing_sequences_does_not_import_numba() -> None:
    code = "import sys, emphatic.learning.sequences, emphatic.stepsizes; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_kernel_is_the_same_without_the_compiler() -> None:
    code = (
        "import numpy as np; from emphatic.learning.sequences import returns;"
        "G, known = returns(np.arange(9.0).reshape(3, 3), np.array([[0.5, 0.0, 0.9]]));"
        "print(G.round(12).tolist(), known.tolist())"
    )
    printed = [
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "NUMBA_DISABLE_JIT": off},
            capture_output=True, text=True, check=True,
        ).stdout
        for off in "01"
    ]  # fmt: skip
    assert printed[0] == printed[1]
    assert "True" in printed[0]


@pytest.mark.parametrize("zeta", [0.0, 0.2, 0.5, 0.75, 1.0])
def test_xi_is_the_published_function(zeta: float) -> None:
    """Mahmood, Yu & Sutton (2017): linear from 0 to ξ₀ at ½, and on to ξ_max at 1."""
    pi, mu = np.array([0.9, 0.1, 0.25]), np.array([0.5, 0.5, 0.2])
    xi_0, xi_max = 1 / 0.9, 1 / 0.25
    wanted = 2 * zeta * xi_0 if zeta <= 0.5 else xi_0 + (2 * zeta - 1) * (xi_max - xi_0)
    assert emphatic.learning.xi(zeta, pi, mu) == pytest.approx(wanted, rel=1e-14)


def test_xi_refuses() -> None:
    with pytest.raises(ValueError, match="'zeta' parameter of xi"):
        emphatic.learning.xi(1.5, 0.5, 0.5)
    with pytest.raises(ValueError, match="'mu' parameter of xi"):
        emphatic.learning.xi(0.5, [0.0, 1.0], [0.0, 1.0])


@pytest.mark.parametrize("rule", ["gtd", "tdrc", "true_online_gtd"])
def test_a_varying_lambda_without_the_next_ones_is_said(rule: str) -> None:
    """The rule uses λ' too: that of the same step takes its place, as ever, but not in silence."""
    Phi, lambda_ = np.eye(4)[np.arange(9) % 4], np.linspace(0.0, 1.0, 8)
    given: dict[str, Any] = {"R": np.ones(8), "gamma_next": 0.5, "alpha": 0.1, "predictions": False}
    quiet, told = (emphatic.Learner(rule, 4, engine="reference") for _ in range(2))
    with pytest.warns(UserWarning, match=f"rule '{rule}' uses λ of the next step too, and 'lambda_next' was not given"):
        told.run(Phi, lambda_=lambda_, **given)
    quiet.run(Phi, lambda_=lambda_, lambda_next=lambda_, **given)
    assert np.array_equal(told.theta, quiet.theta)
    quiet.run(Phi, lambda_=0.9, **given)
    quiet.run(Phi, lambda_=np.full(8, 0.9), **given)
    emphatic.Learner("td", 4, engine="reference").run(Phi, lambda_=lambda_, **given)
