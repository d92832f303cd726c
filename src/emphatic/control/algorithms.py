"""The algorithms of an agent: a rule, and what φ', ρ and λ of a step are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from emphatic import rules
from emphatic.common.names import refusal, show, suggestion
from emphatic.engines.sparse.acting import brought_by_steps
from emphatic.learning.inputs import parameters
from emphatic.rules import AnyRule

__all__ = ["ALGORITHMS", "Algorithm", "algorithm_of"]

#: What φ' and ``rho`` may be, in the order of their numbers in kernels.
Next = Literal["sampled", "expected", "mixed"]
Ratio = Literal["one", "rho", "pi", "mixed", "clipped"]


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
        ratio: ``rho`` of a step: "one", "rho" = π(A|S)/μ(A|S), "pi" = π(A|S), "mixed", σρ + (1 − σ)π(A|S), or
            "clipped", min(1, ρ).
        greedy: Whether π is the greedy policy; else it is μ.
        cuts: Whether λ = 0 at an action that is not greedy (Watkins).
        sigma: σ, from 0 to 1.
        eta: The factor of the second step size, β = eta·α, for rules that have one; an ``Agent`` may have another. With
            0, the algorithm has no second step size.
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
        for field, known in (("next_phi", get_args(Next)), ("ratio", get_args(Ratio))):
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
        """(sigma, next, ratio, cuts, greedy), as kernels take them."""
        following, ratio = get_args(Next).index(self.next_phi), get_args(Ratio).index(self.ratio)
        return tuple(map(float, (self.sigma, following, ratio, self.cuts, self.greedy)))

    @property
    def extra(self) -> tuple[str, ...]:
        """The extra parameters of the rule that an agent is given by their names; what steps bring is not among them.

        >>> Algorithm("qrc", "tdrc", "expected").extra, ALGORITHMS["expected_sarsa"].extra
        (('beta', 'lambda_next', 'kappa', 'eta'), ('lambda_next',))
        """
        rule = self.base
        steps = [name for name in rule.extra if rule.defaults.get(name) == "eta"]
        names = [name for name in rule.extra if name not in brought_by_steps(rule)] + ["eta"] * bool(steps)
        return tuple(name for name in names if self.eta or name not in (*steps, "eta"))

    def step_parameters(self, rule: AnyRule, values: Sequence[float], extra: Mapping[str, float]) -> list[float]:
        """The extra parameters of a step in the rule's order, by their defaults where they are not given.

        Args:
            rule: The rule, with its step-size method if it has one.
            values: α, I, λ, ρ, γ' and R.
            extra: Parameters by name, checked here.
        """
        for name in extra:
            if name not in self.extra:
                known = f" These can be given: {', '.join(self.extra)}." if self.extra else ""
                raise ValueError(f"The {name!r} parameter of Agent is none of algorithm {self.name!r}.{known}")
        brought = dict.fromkeys(brought_by_steps(rule), 1.0)
        of_eta = [name for name in rule.extra if rule.defaults.get(name) == "eta"]
        if of_eta and not {"eta", *of_eta} & extra.keys():
            brought["eta"] = self.eta
        resolved = parameters(rule, "Agent", 1, None, values, brought | dict(extra))
        return [float(series.item()) for series in resolved[len(values) :]]

    def replace(self, **changes: Any) -> Algorithm:
        """The same algorithm with some fields changed, such as ``sigma``.

        Args:
            **changes: Fields of ``Algorithm``.
        """
        return replace(self, **changes)


#: The algorithms by name. None has a rule's name.
ALGORITHMS = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm("sarsa", "td"),
        Algorithm("true_online_sarsa", "true_online_td"),
        Algorithm("expected_sarsa", "gq", "expected", "rho", eta=0.0),
        Algorithm("true_online_expected_sarsa", "true_online_td", "expected", separate_next=True),
        Algorithm("watkins_q", "td", "expected", greedy=True, cuts=True),
        Algorithm("true_online_watkins_q", "true_online_td", "expected", greedy=True, cuts=True, separate_next=True),
        Algorithm("greedy_gq", "gq", "expected", "rho", greedy=True),
        Algorithm("tree_backup_control", "gq", "expected", "pi", eta=0.0),
        Algorithm("retrace", "gq", "expected", "clipped", greedy=True, eta=0.0),
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

    >>> algorithm_of("watkins_q").rule
    'td'
    """
    if isinstance(algorithm, Algorithm):
        return algorithm
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        wanted = f"be one of {', '.join(ALGORITHMS)}, or an Algorithm"
        raise refusal("algorithm", "Agent", wanted, show(algorithm), suggestion(algorithm, ALGORITHMS).strip())
    return ALGORITHMS[algorithm]
