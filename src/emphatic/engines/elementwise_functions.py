"""What a kernel may call of an elementwise rule, besides the loads and stores of ``rule_functions``.

As there: declarations for a reader and a type checker first, then the text of the functions for one rule. Kernels also
call ``component`` and ``adapt`` as the rule has them.

    s, u      scalars for ``component`` and for ``adapt``, in the learner's dtype
    sums      those of ``terms``, in the learner's dtype
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from emphatic.engines.unrolled import HUGE, Functions, tuple_of
from emphatic.rules import ElementwiseRule, Scalars

__all__ = ["ElementwiseFunctions"]

#: Whether there is an ``adapt``; where the memory has the change of the prediction at φ', or −1.
ADAPTS: bool
CHANGE: int

#: (step, memory, δ) → u.
signals: Callable[[Scalars, Scalars, Any], Scalars]
#: (step, memory, δ, sums) → the computed entries of A, s, and the memory after the step.
decide_all: Callable[[Scalars, Scalars, Any, Scalars], tuple[Scalars, Scalars, Scalars]]
#: () → sums, all 0; (sums, z, p, q) → sums with one component more.
no_terms: Callable[[], Scalars]
add_terms: Callable[[Scalars, Scalars, Any, Any], Scalars]
#: (u, z, p) → z after ``adapt``; (s, z, p, q) → z after ``component``.
adapt: Callable[[Scalars, Scalars, Any], Scalars]
component: Callable[[Scalars, Scalars, Any, Any], Scalars]
#: (c, size) → size after A; (c, z) → A z.
bounds_of: Callable[[Scalars, Scalars], Scalars]
linear: Callable[[Scalars, Scalars], Scalars]
#: (z) → 0 if all of it is within the range of numbers, else more.
excesses: Callable[[Scalars], float]
#: (δ, memory, s): all are finite.
are_finite: Callable[[Any, Scalars, Scalars], bool]


class ElementwiseFunctions(Functions):
    """Text of the functions of one elementwise rule for one dtype."""

    rule: ElementwiseRule

    def _arithmetic(self) -> None:
        u, add, rule = self.u, self.add, self.rule
        sums, s, signals = rule.counts
        self.text += [f"{name} = small({name})\n" for name in ("exp", "terms", "component")]
        self.constant("ADAPTS", rule.adapt is not None)
        self.constant("CHANGE", rule.memory.index(rule.change) if rule.change else -1)
        step = tuple_of("delta" if i == 5 else f"step[{i}]" for i in range(len(rule.parameters)))
        if rule.adapt is None:
            add("signals(step, memory, delta)", "return ()")
            add("adapt(u, z, p)", "return z")
        else:
            self.text += [f"{name} = small({name})\n" for name in ("signal", "adapt")]
            reals = tuple_of(f"real(u[{i}])" for i in range(signals))
            add("signals(step, memory, delta)", f"u = signal({step}, memory)", f"return {reals}", decorator="@strict")
        entries = tuple_of(u.places[name] for name in u.coefficients)
        wide = tuple_of(f"np.float64(sums[{i}])" for i in range(sums))
        reals = tuple_of(f"real(s[{i}])" for i in range(s))
        add(
            "decide_all(step, memory, delta, sums)",
            f"A, s, after = rule({step}, memory, {wide})",
            f"return {entries}, {reals}, after",
            decorator="@strict",
        )
        add("no_terms()", f"return {tuple_of('real(0)' for _ in range(sums))}")
        totals = tuple_of(f"sums[{i}] + more[{i}]" for i in range(sums))
        add("add_terms(sums, z, p, q)", "more = terms(z, p, q)", f"return {totals}")
        within = " and ".join(f"abs(z[{r}]) <= LIMIT" for r in u.vectors)
        add("excesses(z)", f"return 0.0 if {within} else 1.0")
        numbers = [f"memory[{i}]" for i in range(u.M)] + [f"np.float64(s[{i}])" for i in range(s)]
        finite = " and ".join(f"abs({number}) <= {HUGE!r}" for number in ("delta", *numbers))
        add("are_finite(delta, memory, s)", f"return {finite}")
        add("bounds_of(c, size)", *self.unpack("c", "size"), f"return {tuple_of(u.bound(r) for r in u.vectors)}")
        coefficients = [f"abs(c[{i}])" for i in range(len(u.coefficients))]
        total = " + ".join([*(f"size[{r}]" for r in u.vectors), *coefficients])
        add("is_small(c, size, limit)", f"return {total} <= limit")
        add("linear(c, z)", *self.unpack("c", "z"), f"return {tuple_of(u.row(r) for r in u.vectors)}")
        ranges = [rule.ranges[name] for name in rule.parameters]
        within = " and ".join(
            f"{max(-HUGE, low)!r} <= step[{i}] <= {min(HUGE, high)!r}" for i, (low, high) in enumerate(ranges)
        )
        add("is_acceptable(step)", f"return {within}")
