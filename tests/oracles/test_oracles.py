"""The published numbers of emphatic TD: Sutton, Mahmood & White, "An Emphatic Approach to the Problem of
Off-policy Temporal-Difference Learning", JMLR 17 (2016). "Printed" numbers are in the paper; the others
follow from its definitions and are computed here, once in closed form (`tests.support.equations`) and once by the
library.

The library's expected update needs no sampling and no tolerance: all histories that matter are
enumerated, the learner runs through each with α = 0 and takes one step at the end, and the steps are
averaged by probability.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import emphatic
from tests.support.equations import RULES, Array, FixedPoint, fixed_point, stationary, true_values
from tests.support.rules import find

ENGINES = emphatic.engines.available()
PLAIN = ("td", "etd")
TRUE_ONLINE = ("true_online_td", "true_online_etd")


@dataclass(frozen=True)
class Chain:
    """A finite problem with two actions, 0 and 1, each of which leads from state s to one state,
    `to[a][s]`."""

    Phi: Array
    to: tuple[tuple[int, ...], tuple[int, ...]]
    mu: tuple[float, float]
    gamma: Array
    R: float
    I: Array
    pi: tuple[float, float] = (0.0, 1.0)

    @property
    def S(self) -> int:
        return len(self.gamma)

    def P(self, policy: tuple[float, float]) -> Array:
        P = np.zeros((self.S, self.S))
        for a, s in itertools.product((0, 1), range(self.S)):
            P[s, self.to[a][s]] += policy[a]
        return P

    @property
    def d(self) -> Array:
        return stationary(self.P(self.mu))

    @property
    def v(self) -> Array:
        return true_values(self.P(self.pi), np.full(self.S, self.R), self.gamma)

    def fixed_point(self, lambda_: float, emphatic: bool) -> FixedPoint:
        r, lambdas = np.full(self.S, self.R), np.full(self.S, lambda_)
        return fixed_point(self.Phi, self.P(self.pi), r, self.gamma, lambdas, self.d, self.I, emphatic=emphatic)

    def histories(self, T: int) -> Iterator[tuple[float, list[int], list[float]]]:
        """All paths of T steps that can begin in d_μ: probability, the T + 1 states, the T ratios ρ."""
        for s, actions in itertools.product(range(self.S), itertools.product((0, 1), repeat=T)):
            states = [s]
            for a in actions:
                states.append(self.to[a][states[-1]])
            probability = self.d[s] * float(np.prod([self.mu[a] for a in actions]))
            yield probability, states, [self.pi[a] / self.mu[a] for a in actions]

    def expected_update(
        self, base: emphatic.Learner, lambda_: float, steps: int, size: float = 1.0, **extra: float
    ) -> tuple[Array, Array]:
        """What these learners, from where they stand, are expected to add to θ and to w (to θ again, where there is no
        w) in the last of some steps, over the step size. The traces are those of all histories, in which nothing is
        learned.

        The true online e holds α, so there α is not 0 in the history but so small that θ does not feel it.
        """
        is_online, second = base.rule.name.startswith("true_online"), base.rule.weights[-1]
        size = TINY if is_online else size
        moved = np.zeros((2, *np.shape(base.theta)))
        for probability, states, rho in self.histories(steps):
            learner = base.copy()
            for part, alpha in ((slice(0, steps - 1), TINY if is_online else 0.0), (slice(steps - 1, steps), size)):
                own: dict[str, Any] = dict(extra)
                actions = [int(self.pi[1] / self.mu[1] == ratio) for ratio in rho]
                for name, policy in (("pi", self.pi), ("mu", self.mu)):
                    if name in base.rule.extra:
                        own[name] = np.array([policy[a] for a in actions])[part, None]
                start = np.array([learner.theta, getattr(learner, second)])
                learner.run(
                    self.Phi[states[part.start : part.stop + 1]],
                    self.R,
                    self.gamma[states[1:]][part, None],
                    alpha=alpha,
                    lambda_=lambda_,
                    rho=np.array(rho)[part, None],
                    I=self.I[states[:-1]][part, None],
                    **own,
                )
            end = np.array([learner.theta, getattr(learner, second)])
            moved += probability * (end - start) / size
        return moved[0], moved[1]

    def expected_A_and_b(self, rule: str, engine: str, lambda_: float, T: int) -> tuple[Array, Array]:
        """A and b of the update α(b − Aθ) that the learner is expected to make at the last of T steps.

        Of its K = n + 1 learners one stands at θ = 0 and gives b, the others at the unit vectors and give b − A.
        """
        n = self.Phi.shape[1]
        learner = emphatic.Learner(rule, n, n + 1, engine=engine)
        learner.theta = np.vstack([np.zeros(n), np.eye(n)])
        update, _ = self.expected_update(learner, lambda_, T)
        return (update[0] - update[1:]).T, update[0]


TINY = 1e-8
#: The expected update is exact, but for the size of α in the true online rules.
EXPECTED = {"td": 1e-12, "etd": 1e-12, "true_online_td": 5e-6, "true_online_etd": 5e-6}


def is_emphatic(rule: str) -> bool:
    return "etd" in rule


# ----------------------------------------------------------------------------------------- θ → 2θ (section 2)

TWO = Chain(
    Phi=np.array([[1.0], [2.0]]),
    to=((0, 0), (1, 1)),
    mu=(0.5, 0.5),
    gamma=np.full(2, 0.9),
    R=0.0,
    I=np.ones(2),
)


@pytest.mark.plain
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("rule", "lambda_", "A"),
    [
        ("td", 0.0, -0.2),
        ("td", 1.0, 2.5),
        ("etd", 0.0, 3.4),
        ("etd", 0.5, 73 / 22),
        ("etd", 1.0, 2.5),
        ("true_online_td", 0.0, -0.2),
        ("true_online_etd", 0.0, 3.4),
        ("true_online_etd", 0.5, 73 / 22),
    ],
)
def test_two_states_expected_update(rule: str, lambda_: float, A: float, engine: str) -> None:
    """A = −0.2 (printed: TD(0) diverges) and A = 3.4 at λ = 0; 3.31818… = 73/22 at λ = .5; 2.5 at λ = 1.

    After T steps what is still missing of A is a sum of multiples of γᵀ and (γλ)ᵀ: three T's give the limit.
    """
    assert TWO.fixed_point(lambda_, is_emphatic(rule)).A.item() == pytest.approx(A)
    first, second, third = (TWO.expected_A_and_b(rule, engine, lambda_, T)[0].item() for T in (2, 3, 4))
    g, c = 0.9, 0.9 * lambda_
    limit = (third - (g + c) * second + g * c * first) / ((1 - g) * (1 - c))
    assert limit == pytest.approx(A, rel=EXPECTED[rule])


@pytest.mark.plain
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "rule", sorted(set(RULES) - {"gtd2", "proximal_gtd2", "gq", "emphatic_q", "residual_gradient"})
)
def test_two_states_one_step(rule: str, engine: str) -> None:
    """Printed: from θ = 10 with α = .1 and ρ = 2, to 11.6 in state 1 and to 9.2 in state 2. In its first
    step and with I = 1, no rule differs from TD(0), but for gtd2 and its proximal form, which learn by w, gq and
    emphatic_q, whose first action is given, and residual_gradient, which learns by φ' too. (In periods of one step, the
    first step is the last.) Where a step is bounded, it goes half of the way, from 20 to 19."""
    own = {"beta": 0.3, "pi": 1.0, "mu": 0.5, "xi": 0.7, "decay": 0.6, "period": 0.0}
    extra = {name: own[name] for name in find(rule).extra if name in own}
    for phi, theta in ((1.0, 11.6), (2.0, 9.5 if rule == "bounded_etd" else 9.2)):
        learner = emphatic.Learner(find(rule), 1, engine=engine)
        learner.theta = [10.0]
        learner.learn(0.1, 1.0, 0.0, [phi], 2.0, 0.0, [2.0], 0.9, **extra)
        assert learner.theta == pytest.approx([theta], rel=1e-15)


@pytest.mark.plain
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("rule", ["etd", "true_online_etd"])
def test_two_states_followon_trace(rule: str, engine: str) -> None:
    """Printed, for interest at t = 0 only: F_t = 1.8ᵗ if always right, E F_t = .9ᵗ, Var F_t = 1.62ᵗ − .81ᵗ.

    All 2ᵗ action strings are one learner each. What is remembered after step t − 1, ρ_{t−1}γ_tF_{t−1}, is
    F_t.
    """
    t = 7
    right = np.array(list(itertools.product((0, 1), repeat=t)))  # (2ᵗ, t)
    learner = emphatic.Learner(rule, 1, len(right), engine=engine)
    for T in range(t):
        # Any φ will do: F does not depend on it.
        learner.learn(0.1, float(T == 0), 0.5, [1.0], 2.0 * right[:, T], 0.0, [2.0], 0.9)
        F = learner.F
        assert F[-1] == pytest.approx(1.8 ** (T + 1))
        assert F.mean() == pytest.approx(0.9 ** (T + 1))
        assert F.var() == pytest.approx(1.62 ** (T + 1) - 0.81 ** (T + 1))


# --------------------------------------------------------------------------- the five-state chain (section 5)

FIVE = Chain(
    Phi=np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 1.0], [0.0, 0.0, 1.0]]),
    to=((0, 0, 1, 2, 3), (1, 2, 3, 4, 4)),
    mu=(2 / 3, 1 / 3),
    gamma=np.array([0.0, 1.0, 1.0, 1.0, 0.0]),
    R=1.0,
    I=np.ones(5),
)
INTERESTED = replace(FIVE, I=1.0 + FIVE.Phi @ [0.0, 1.0, 2.0])


@pytest.mark.plain
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("lambda_", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("rule", [*PLAIN, *TRUE_ONLINE])
def test_five_states_expected_update(rule: str, lambda_: float, engine: str) -> None:
    """The learner's own A and b are those of the closed form, and so is its fixed point. Four steps tell
    all: a longer history goes left (ρ = 0) or through an end (γ = 0), and is forgotten."""
    for problem in (FIVE, INTERESTED):
        expected = problem.fixed_point(lambda_, is_emphatic(rule))
        A, b = problem.expected_A_and_b(rule, engine, lambda_, T=4)
        np.testing.assert_allclose(A, expected.A, rtol=0, atol=EXPECTED[rule])
        np.testing.assert_allclose(b, expected.b, rtol=0, atol=EXPECTED[rule])
        assert np.linalg.solve(A, b) == pytest.approx(expected.theta, abs=EXPECTED[rule])


# ----------------------------------------------------------------------------------- emphasis in the long run


@pytest.mark.plain
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("gamma", "lambda_"), [(0.9, 0.0), (0.9, 0.7), (0.5, 1.0)])
def test_emphasis_of_on_policy_learning(gamma: float, lambda_: float, engine: str) -> None:
    """Printed: with constant γ and λ, ρ = 1 and I = 1, M → (1 − γλ)/(1 − γ). A φ never met before shows M
    in e."""
    T = 400
    learner = emphatic.Learner("etd", 2, engine=engine)
    phi = np.array([1.0, 0.0])
    learner.run(np.tile(phi, (T + 1, 1)), 0.0, gamma, alpha=0.0, lambda_=lambda_)
    learner.learn(0.0, 1.0, lambda_, np.array([0.0, 1.0]), 1.0, 0.0, phi, gamma)
    assert learner.e[1] == pytest.approx((1 - gamma * lambda_) / (1 - gamma), rel=1e-12)
