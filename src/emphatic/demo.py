"""``emphatic demo``: five states, off-policy, and what emphasis does about it.

The chain of Sutton, Mahmood & White (2016). In each of five states in a row, left and right move one state
(at the ends: stay); R = +1 on every step; γ = (0, 1, 1, 1, 0). The behaviour policy μ goes left with
probability ⅔, the target policy π always goes right, and three features must do for five values:
φ = (1,0,0), (1,1,0), (0,1,0), (0,1,1), (0,0,1). Where π goes but μ seldom does, off-policy TD hardly looks.
"""

from __future__ import annotations

from itertools import accumulate
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Chain", "learn_chain", "show"]

FloatArray = npt.NDArray[np.float64]

NEXT = np.array([[0, 1], [0, 2], [1, 3], [2, 4], [3, 4]])  # the state that left and right lead to
PHI = np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 1.0], [0.0, 0.0, 1.0]])
GAMMA = np.array([0.0, 1.0, 1.0, 1.0, 0.0])
MU = np.array([2 / 3, 1 / 3])
PI = np.array([0.0, 1.0])

MOST_STEPS = 10_000_000  # about 1 GB


class Chain(NamedTuple):
    """The value of each state, exact, as the two algorithms converge to it and as they learned it."""

    d_mu: FloatArray
    v_pi: FloatArray
    etd_fixed_point: FloatArray
    etd: FloatArray
    td_fixed_point: FloatArray
    td: FloatArray

    def msve(self, v: FloatArray) -> float:
        """The mean squared value error Σ_s d_μ(s) (v(s) − v_π(s))²."""
        return float(self.d_mu @ (v - self.v_pi) ** 2)


def solve_chain() -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """d_μ, v_π, and the weights that ETD(0) and off-policy TD(0) converge to, in closed form.

        d_μ = P_μᵀ d_μ        v_π = (𝟙 − P_π Γ)⁻¹ r        f = (𝟙 − Γ P_πᵀ)⁻¹ d_μ      (I = 1)
        θ* = A⁻¹ b,   A = Φᵀ diag(m) (𝟙 − P_π Γ) Φ,   b = Φᵀ diag(m) r

    m = f for ETD(0) and m = d_μ for TD(0); Γ acts on the next state.
    """
    one, r = np.eye(5), np.ones(5)
    P_mu, P_pi = (np.einsum("a,sax->sx", policy, one[NEXT]) for policy in (MU, PI))
    # One equation of d = P_μᵀ d follows from the others; Σ d = 1 takes its place.
    d_mu = np.linalg.solve(np.vstack([(one - P_mu.T)[:-1], r]), one[-1])
    discounted = one - P_pi * GAMMA
    f = np.linalg.solve(discounted.T, d_mu)
    theta = [np.linalg.solve(PHI.T * m @ discounted @ PHI, PHI.T * m @ r) for m in (f, d_mu)]
    return d_mu, np.linalg.solve(discounted, r), theta[0], theta[1]


def sample_chain(steps: int, seed: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """S_0 … S_T and A_0 … A_{T−1} (0 is left, 1 is right) under μ, from the leftmost state."""
    actions = (np.random.default_rng(seed).random(steps) >= MU[0]).astype(np.int64)
    table = NEXT.tolist()
    walk = accumulate(actions.tolist(), lambda state, action: table[state][action], initial=0)
    return np.fromiter(walk, dtype=np.int64, count=steps + 1), actions


def learn_chain(steps: int, seed: int) -> Chain:
    """Learn v_π from one stream of behaviour under μ by true online ETD(0) and by off-policy TD(0).

    Both see the same steps with the same step sizes. F reaches 40 on three moves to the right, which is why
    α starts at 0.005: ραMφ·φ is then at most 1.2.

    >>> chain = learn_chain(100_000, seed=0)
    >>> chain.msve(chain.etd) < chain.msve(chain.td)
    True
    """
    if not 1 <= steps <= MOST_STEPS:
        raise ValueError(f"The 'steps' parameter of demo must be between 1 and {MOST_STEPS}. Got {steps} instead.")
    if seed < 0:
        raise ValueError(f"The 'seed' parameter of demo must be at least 0. Got {seed} instead.")
    from emphatic.learner import Learner
    from emphatic.sequences import rho
    from emphatic.stepsizes import decaying

    states, actions = sample_chain(steps, seed)
    Phi, gamma_next, ratio = PHI[states], GAMMA[states[1:]], rho(PI[actions], MU[actions])
    alpha = decaying(0.005, steps, after=2000)
    learned = []
    for rule in ("true_online_etd", "td"):
        learner = Learner(rule, 3)
        learner.run(Phi, 1.0, gamma_next, alpha=alpha, lambda_=0.0, rho=ratio, I=1.0, predictions=False)
        learned.append(learner.theta)
    d_mu, v_pi, etd, td = solve_chain()
    return Chain(d_mu, v_pi, PHI @ etd, PHI @ learned[0], PHI @ td, PHI @ learned[1])


def show(steps: int, seed: int) -> None:
    """Learn the chain and print the table."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    with console.status(f"Learning from {steps:,} steps, twice …"):
        chain = learn_chain(steps, seed)
    table = Table(title=f"The five-state chain, off-policy, {steps:,} steps (seed {seed})")
    table.add_column("state")
    for above, below in (
        ("exact", "v_π"),
        ("true online ETD", "learned"),
        ("", "fixed point"),
        ("off-policy TD", "learned"),
        ("", "fixed point"),
    ):
        table.add_column(f"{above}\n{below}", justify="right")
    columns = (chain.v_pi, chain.etd, chain.etd_fixed_point, chain.td, chain.td_fixed_point)
    for s, row in enumerate(zip(*columns, strict=True), start=1):
        table.add_row(str(s), *(f"{v:.3f}" for v in row), end_section=s == 5)
    table.add_row("MSVE", *(f"{chain.msve(v):.3f}" for v in columns))
    console.print(table)
    console.print(reading(chain), highlight=False)


def reading(chain: Chain) -> str:
    """What the numbers say, in a line."""
    etd = np.abs(chain.etd - chain.etd_fixed_point).max()
    td = np.abs(chain.td - chain.td_fixed_point).max()
    ratio = chain.msve(chain.etd) / chain.msve(chain.td)
    return (
        f"Largest distance from the fixed point: ETD {etd:.3f}, TD {td:.3f}. "
        f"Emphasis brings the error (MSVE, weighted by d_μ) to {ratio:.2f} of TD's."
    )
