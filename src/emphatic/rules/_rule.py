"""An algorithm as data: names, and one function of scalars."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from emphatic.rules import _source, _structure
from emphatic.rules._fields import STEP, check_fields
from emphatic.rules._traits import RuleFields

__all__ = ["Rule", "Scalars", "Update"]

Scalars = tuple[Any, ...]
Update = tuple[tuple[Scalars, ...], tuple[Scalars, ...], Scalars]


@dataclass(frozen=True)
class Rule(RuleFields):
    """An algorithm: the names of what it keeps, and its one function.

    All fields are checked when a rule is created; a ValueError names what is wrong.

    Args:
        name: The rule's name.
        function: The update: (step, memory, x, x_next, g) to A, B and the next memory.
        weights: The names of the weight vectors, θ first; θ alone unless given.
        traces: The names of the traces; e unless given.
        memory: The names of the scalars that it remembers.
        extra: Its parameters besides α, I, λ, ρ and γ'.
        defaults: The values of extra parameters that are not passed: a number, the name of another parameter, or
            "eta": the second step size β = eta·α, with eta another keyword (1 by default). A parameter whose default is
            ∞ or −∞ may be just that; the function is then called with the largest or the least float64 in its place.
        interest: Whether steps are weighted by the interest I. A rule without accepts only I = 1.
        paper: Where the rule is from, for the table of rules.
        extra_ranges: The least and the largest value of each extra parameter that is not in ``RANGES``.
        emphasis: The discount of the follow-on trace F: "gamma", "decay", or "" where there is none.
        fixed_point: Where the expected update is 0: "projected", θ of TD(λ) with that emphasis; "cut", the same with
            λ/max(1, ρ⁻) for λ; "residual", θ of the least mean squared TD error; or "" where that is not known.
        action_values: Whether φ is of a state and an action.
        update: The update in words, for the table of rules; by default the function's docstring.
        effective_step: The step along φ as an expression in the names of the function, "rho * alpha * M" for an
            emphatic rule: what a step size with a ``bound`` limits. It depends on step and memory alone.
        change: The entry of the memory that is (θ_new − θ)·φ', where the rule takes it for (θ − θ⁻)·φ of the next step.
        lasting: The last entries of the memory, which ``cut`` leaves unchanged.
        continuing: Whether γ = 1 throughout is meant: values are then relative to an average reward.
        ordered: Two extra parameters, of which the first must never be above the second: the two ends of a range.
    """

    name: str
    function: Callable[[Scalars, Scalars, Scalars, Scalars, Scalars], Update]
    weights: tuple[str, ...] = ("theta",)
    traces: tuple[str, ...] = ("e",)
    memory: tuple[str, ...] = ()
    effective_step: str = ""
    #: The function as engines compile it, ``def rule(step, memory, x, x_next, g)``: see ``emphatic.rules._canonical``.
    source: str = field(init=False, repr=False)
    #: ``effective_step`` as such a function of step and memory; "" where there is none.
    effective_source: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_fields(self)
        put = functools.partial(object.__setattr__, self)
        put("defaults", {k: v if isinstance(v, str) else float(v) for k, v in self.defaults.items()})
        put("extra_ranges", {k: (float(low), float(high)) for k, (low, high) in self.extra_ranges.items()})
        put("update", self.update or " ".join((getattr(self.function, "__doc__", None) or "").split()))
        put("source", _source.canonical(self.name, self.function, self.arguments))
        put("effective_source", "")
        if self.effective_step:
            put("effective_source", _source.effective(self.name, self.function, self.arguments, self.effective_step))
        _ = self.form  # which looks at all that the function returns

    @functools.cached_property
    def pure(self) -> Any:
        """``source`` as a function: the one that every engine runs."""
        return _source.compiled(self.name, self.source)

    @property
    def arguments(self) -> dict[str, tuple[str, ...]]:
        """The names of the scalars in each argument of the function."""
        x = {name: tuple(f"{vector}·{phi}" for vector in self.vectors) for name, phi in (("x", "φ"), ("x_next", "φ'"))}
        return {"step": STEP + self.extra, "memory": self.memory, **x, "g": ("φ·φ", "φ·φ'", "φ'·φ'")}

    @functools.cached_property
    def form(self) -> _structure.Form:
        """The structure of A and B: an entry that is always 0 or 1 is 0.0 or 1.0, a computed one is None."""
        return _structure.arrow(self, self._traced[0])

    @functools.cached_property
    def products(self) -> tuple[tuple[bool, ...], tuple[bool, ...], tuple[bool, ...]]:
        """Which of x, x_next and g an engine needs: what the function uses, and θ·φ and θ·φ' for δ."""
        _, _, x, x_next, g = self._traced[1]
        return (True, *x[1:]), (True, *x_next[1:]), g

    @functools.cached_property
    def uses(self) -> tuple[str, ...]:
        """The parameters of a step that the function uses; R, from which δ is computed, is among them."""
        return tuple(name for name, used in zip(self.parameters, self._traced[1][0], strict=True) if used)

    @functools.cached_property
    def _traced(self) -> tuple[Update, list[tuple[bool, ...]]]:
        """What the function returns for computed scalars, and which of its arguments' scalars it used."""
        return _structure.traced(self)
