"""The algorithms of an agent: a rule, and what φ', ρ and λ of a step are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from emphatic import rules
from emphatic.common.names import refusal, show, suggestion
from emphatic.rules import AnyRule

__all__ = ["ALGORITHMS", "Algorithm", "algorithm_of"]

Next = Literal["sampled", "expected", "mixed"]
Ratio = Literal["one", "rho", "pi", "mixed"]


@dataclass(frozen=True)
class Algorithm:
    """What an agent learns by.

    π is the policy whose values are learned: the agent's own, μ, or the greedy one. Both are of the weights with which
    the action was chosen, before the update.

    Args:
        name: The algorithm's name.
        rule: A rule, or the name of one, that takes φ(S, A).
        next_phi: φ': "sampled" is φ(S', A'), "expected" is φ̄' = Σ_a π(a|S')φ(S', a), "mixed" is σ of the first and
            1 − σ of the second.
        ratio: ``rho`` of a step: "one", "rho" = π(A|S)/μ(A|S), "pi" = π(A|S), or "mixed", σρ + (1 − σ)π(A|S).
        greedy: Whether π is the greedy policy; else it is μ.
        cuts: Whether λ = 0 at an action that is not greedy (Watkins).
        sigma: σ, from 0 to 1.
        eta: The factor of the second step size, β = eta·α, for rules that have one.
        separate_next: As of ``Learner``; φ̄' of a step is not φ of the next one.
    """

    name: str
    rule: str | AnyRule
    next_phi: Next = "sampled"
    ratio: Ratio = "one"
    greedy: bool = False
    cuts: bool = False
    sigma: float = 0.5
    eta: float = 1.0
    separate_next: bool = False

    def __post_init__(self) -> None:
        for field, known in (("next_phi", ("sampled", "expected", "mixed")), ("ratio", ("one", "rho", "pi", "mixed"))):
            if getattr(self, field) not in known:
                wanted = f"be one of {', '.join(map(repr, known))}"
                raise refusal(field, "Algorithm", wanted, show(getattr(self, field)))
        for field, most in (("sigma", 1.0), ("eta", 1e300)):
            value = getattr(self, field)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= most:
                raise refusal(field, "Algorithm", f"be a number from 0 to {most:g}", show(value))

    @property
    def base(self) -> AnyRule:
        """The rule itself."""
        rule = self.rule if isinstance(self.rule, AnyRule) else rules.get(self.rule)
        return rules.separate(rule) if self.separate_next else rule

    @property
    def codes(self) -> tuple[float, ...]:
        """(eta, sigma, next, ratio, cuts, greedy), as kernels take them."""
        following = ("sampled", "expected", "mixed").index(self.next_phi)
        ratio = ("one", "rho", "pi", "mixed").index(self.ratio)
        return tuple(map(float, (self.eta, self.sigma, following, ratio, self.cuts, self.greedy)))

    def replace(self, **changes: Any) -> Algorithm:
        """The same algorithm with some fields changed, such as ``sigma``.

        Args:
            **changes: Fields of ``Algorithm``.
        """
        return replace(self, **changes)


#: The algorithms by name.
ALGORITHMS = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm("sarsa", "td"),
        Algorithm("true_online_sarsa", "true_online_td"),
        Algorithm("expected_sarsa", "gq", "expected", "rho", eta=0.0),
        Algorithm("true_online_expected_sarsa", "true_online_td", "expected", separate_next=True),
        Algorithm("q", "td", "expected", greedy=True, cuts=True),
        Algorithm("true_online_q", "true_online_td", "expected", greedy=True, cuts=True, separate_next=True),
        Algorithm("gq", "gq", "expected", "rho", greedy=True),
        Algorithm("tree_backup", "gq", "expected", "pi", eta=0.0),
        Algorithm("q_sigma", "gq", "mixed", "mixed", eta=0.0),
        Algorithm("emphatic_sarsa", "emphatic_q", "sampled", "rho"),
        Algorithm("differential_sarsa", "differential_td"),
        Algorithm("differential_q", "differential_td", "expected", greedy=True, cuts=True),
    )
}


def algorithm_of(algorithm: object) -> Algorithm:
    """The algorithm of that name, or the one that was passed.

    Args:
        algorithm: One of ``ALGORITHMS`` by name, or an ``Algorithm``.

    >>> algorithm_of("q").rule
    'td'
    """
    if isinstance(algorithm, Algorithm):
        return algorithm
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        wanted = f"be one of {', '.join(ALGORITHMS)}, or an Algorithm"
        raise refusal("algorithm", "Agent", wanted, show(algorithm), suggestion(algorithm, ALGORITHMS).strip())
    return ALGORITHMS[algorithm]
