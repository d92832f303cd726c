"""How an agent chooses actions: ε-greedy or softmax, with a rate that is constant or follows a schedule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from emphatic.common.names import refusal, show
from emphatic.features.sources import is_number

__all__ = ["EpsilonGreedy", "Schedule", "Softmax", "exponential", "linear"]


@dataclass(frozen=True)
class Schedule:
    """A rate that goes from ``start`` to ``end`` in ``steps`` decisions, and stays there.

    Args:
        start: The rate of the first decision.
        end: The rate from decision number ``steps`` on.
        steps: The number of decisions in between.
        kind: "linear", or "exponential" for a constant factor from one decision to the next.
    """

    start: float
    end: float
    steps: float
    kind: Literal["linear", "exponential"] = "linear"

    def __post_init__(self) -> None:
        for name in ("start", "end", "steps"):
            value = getattr(self, name)
            if not is_number(value) or value < 0.0:
                raise refusal(name, "Schedule", "be a finite number of 0 or more", show(value))
        if self.steps < 1:
            raise refusal("steps", "Schedule", "be 1 or more", show(self.steps))
        if self.kind not in ("linear", "exponential"):
            raise refusal("kind", "Schedule", "be 'linear' or 'exponential'", show(self.kind))
        if self.kind == "exponential" and min(self.start, self.end) <= 0.0:
            raise refusal("end", "Schedule", "be above 0, like 'start', if the schedule is exponential", show(self.end))

    @property
    def codes(self) -> tuple[float, float, float, float]:
        """(kind, start, end, steps), as kernels take them."""
        return (1.0 if self.kind == "linear" else 2.0), float(self.start), float(self.end), float(self.steps)


def linear(start: float, end: float, steps: float) -> Schedule:
    """A rate that changes by the same amount at each decision.

    Args:
        start: The rate of the first decision.
        end: The rate from decision number ``steps`` on.
        steps: The number of decisions in between.

    >>> linear(1.0, 0.1, 1000)
    Schedule(start=1.0, end=0.1, steps=1000, kind='linear')
    """
    return Schedule(start, end, steps)


def exponential(start: float, end: float, steps: float) -> Schedule:
    """A rate that changes by the same factor at each decision.

    Args:
        start: The rate of the first decision.
        end: The rate from decision number ``steps`` on.
        steps: The number of decisions in between.
    """
    return Schedule(start, end, steps, "exponential")


@dataclass(frozen=True)
class EpsilonGreedy:
    """With probability ε any action, all equally likely; else one of the largest value, ties equally likely.

    Args:
        epsilon: ε, from 0 to 1: a number or a ``Schedule``.
    """

    epsilon: float | Schedule = 0.1

    def __post_init__(self) -> None:
        for rate in _ends(self.epsilon):
            if not (is_number(rate) and 0.0 <= rate <= 1.0):
                wanted = "be a number from 0 to 1, or a Schedule of such numbers"
                hint = "Softmax(temperature) is a 'policy'." if isinstance(self.epsilon, Softmax) else ""
                raise refusal("epsilon", "Agent", wanted, show(self.epsilon), hint)


@dataclass(frozen=True)
class Softmax:
    """An action of value q is chosen with probability proportional to exp(q / temperature).

    Args:
        temperature: A number above 0, or a ``Schedule``.
    """

    temperature: float | Schedule = 1.0

    def __post_init__(self) -> None:
        for rate in _ends(self.temperature):
            if not (is_number(rate) and rate > 0.0):
                wanted = "be a finite number above 0, or a Schedule of such numbers"
                raise refusal("temperature", "Softmax", wanted, show(self.temperature))


def policy_codes(policy: EpsilonGreedy | Softmax) -> tuple[float, ...]:
    """(softmax, kind, start, end, steps), as kernels take them."""
    rate = _rate_of(policy)
    numbers = rate.codes if isinstance(rate, Schedule) else (0.0, float(rate), float(rate), 1.0)
    return float(isinstance(policy, Softmax)), *numbers


def policy_config(policy: EpsilonGreedy | Softmax) -> dict[str, Any]:
    """The policy as JSON holds it."""
    rate = _rate_of(policy)
    numbers = [*rate.codes[1:], rate.kind] if isinstance(rate, Schedule) else [float(rate)]
    return {"name": type(policy).__name__, "rate": numbers}


def policy_from(config: dict[str, Any]) -> EpsilonGreedy | Softmax:
    """The policy that ``policy_config`` described; ValueError if it is invalid."""
    numbers = config["rate"]
    rate = numbers[0] if len(numbers) == 1 else Schedule(*numbers)
    return Softmax(rate) if config["name"] == "Softmax" else EpsilonGreedy(rate)


def _rate_of(policy: EpsilonGreedy | Softmax) -> float | Schedule:
    return policy.epsilon if isinstance(policy, EpsilonGreedy) else policy.temperature


def _ends(rate: object) -> tuple[Any, ...]:
    return (rate.start, rate.end) if isinstance(rate, Schedule) else (rate,)
