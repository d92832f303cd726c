"""Whether an elementwise rule moves components that are not active by its A alone, so that no step need visit them.

This is decided when a rule is created, from formulas of its functions at φ_i = φ'_i = 0 (``_algebra``). A rule is lazy
only if that is shown. Where it is not, numbers of both signs, 0 and 1e-3 … 1e3 are tried, so that a message can name
a case in which the rule is not lazy.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from emphatic.rules._algebra import ANYTHING, FUNCTIONS, Bounds, Formula, largest, smallest, variables
from emphatic.rules._fields import STEP, refusal

if TYPE_CHECKING:
    from emphatic.rules._elementwise import ElementwiseRule

__all__ = ["obstacle"]

#: How many cases are tried where nothing could be shown.
CASES = 256
_WHERE = "where φ and φ' are 0"
_PHI = {"φ": ANYTHING, "φ'": ANYTHING}


def obstacle(rule: ElementwiseRule) -> str:
    """Why a step has to visit every component, active or not; "" where it need not.

    Args:
        rule: the rule.

    Raises:
        ValueError: if ``adapt`` changes θ, or ``component`` is a polynomial that is linear where nothing is active, but
            not A.
    """
    analysis = _Analysis(rule)
    try:
        doubt = analysis.find_doubt()
        if doubt is not None:
            analysis.find_bounds()  # which takes longer, and is seldom needed
            doubt = analysis.find_doubt()
    except ZeroDivisionError:
        return "one of its functions divides by 0, whatever the step"
    if doubt is None:
        return ""
    case = doubt.compare and analysis.counterexample(doubt.compare)
    if case and doubt.is_mistake:
        raise refusal(rule.name, doubt.function, doubt.wanted, case)
    evidence = f", and gives {case}" if case else ", which its source does not show"
    return f"its {doubt.function!r} would have to {doubt.wanted}{evidence}"


#: Of scalars by group and components z: what differs from what it should be, or "".
Compare = Callable[[dict[str, Any], tuple[float, ...]], str]


@dataclass
class _Doubt:
    """A function that is not shown to be what it should be for a rule that is lazy."""

    function: str
    wanted: str
    compare: Compare | None = None
    #: Whether a case in which it is not makes the rule invalid on every engine.
    is_mistake: bool = False


class _Analysis:
    """The formulas of a rule's functions."""

    def __init__(self, rule: ElementwiseRule) -> None:
        self.rule = rule
        self.functions = rule.functions(smallest, largest)
        self.functions |= FUNCTIONS
        step = {name: ANYTHING if name == "delta" else rule.ranges[name] for name in STEP + rule.extra}
        sums = [f"sum {i}" for i in range(rule.counts[0])]
        #: What each scalar and each component can be, by the arguments of the functions.
        self.bounds: dict[str, dict[str, Bounds]] = {"step": step}
        self.bounds |= {
            group: dict.fromkeys(names, ANYTHING)
            for group, names in (("memory", rule.memory), ("z", rule.vectors), ("sums", sums))
        }

    def find_doubt(self) -> _Doubt | None:
        """The first of the conditions for a lazy rule that is not shown."""
        #: X_i of a component that is not visited: an eager rule visits all whose traces are not 0.
        self.z = self._components(() if self.rule.eager else self.rule.traces)
        self.A, self.s, _ = self._decide(_without_zeros)
        for find in (self._doubt_adapt, self._doubt_component, self._doubt_traces, self._doubt_terms):
            doubt = find()
            if doubt is not None:
                return doubt
        return None

    def _doubt_adapt(self) -> _Doubt | None:
        if self.rule.adapt is None:
            return None
        u, theta = self._signals(), self.rule.weights[0]
        (p,) = variables({"φ": ANYTHING})
        z = self._components(self.rule.traces)
        if not _are_same(self._call("adapt", u, z, p)[:1], z[:1]):
            raise refusal(self.rule.name, "adapt", f"leave {theta!r} as it is", "one that does not, or may not")
        if _are_same(self._call("adapt", u, self.z, 0.0), self.z):
            return None
        return _Doubt("adapt", "change nothing where φ is 0", self._compare_adapt)

    def _doubt_component(self) -> _Doubt | None:
        """Whether ``component`` is A X_i; X_i itself where an eager rule has no traces, as nothing moves it there."""
        after = self._call("component", self.s, self.z, 0.0, 0.0)
        if not _are_same(after, [sum(a * x for a, x in zip(row, self.z, strict=True)) for row in self.A]):
            # Where it is linear, another A could describe it. One that depends on a sign (learning from positive errors
            # only) is no slip: engines that visit every component do not use A.
            is_mistake = all(
                value.is_safe and value.is_polynomial and value.is_linear(self.rule.vectors) for value in after
            )
            return _Doubt("component", f"be A X {_WHERE}", self._compare_component, is_mistake)
        if self.rule.eager and not _are_same(after, self.z):
            return _Doubt("component", f"leave weights without traces as they are {_WHERE}, as the rule is eager")
        return None

    def _doubt_traces(self) -> _Doubt | None:
        """Whether the traces of an eager rule decay as A says, by which the engine knows when to drop them."""
        rule = self.rule
        if not rule.eager:
            return None
        z, (q,) = self._components(rule.traces), variables({"φ'": ANYTHING})
        at_rest, with_q = (self._call("component", self.s, z, 0.0, phi_next) for phi_next in (0.0, q))
        for j, name in enumerate(rule.traces, start=len(rule.weights)):
            alone = self._components((name,))
            decayed = self._call("component", self.s, alone, 0.0, 0.0)
            if not _are_same(decayed[j : j + 1], [self.A[j][j] * alone[j]]):
                return _Doubt("component", f"let the trace {name!r} decay as A says {_WHERE}, as the rule is eager")
            if not _are_same(at_rest[j : j + 1], with_q[j : j + 1]):
                return _Doubt("component", f"not give φ' to the trace {name!r}, as the rule is eager")
        return None

    def _doubt_terms(self) -> _Doubt | None:
        for i, term in enumerate(self._call("terms", self.z, 0.0, 0.0)):
            if not _are_same([term], [0.0]):

                def compare(values: dict[str, Any], z: tuple[float, ...], i: int = i) -> str:
                    value = self.rule.pure["terms"](z, 0.0, 0.0)[i]
                    return f"{float(value):.3g}" if value != 0.0 else ""

                return _Doubt(f"terms[{i}]", f"be 0 {_WHERE}", compare)
        return None

    # ------------------------------------------------------------------ formulas

    def _components(self, traces: Sequence[str]) -> tuple[Any, ...]:
        """X_i with these traces; the others are 0."""
        values = dict(zip(self.rule.vectors, _without_zeros(self.bounds["z"]), strict=True))
        return tuple(values[name] if name in (*self.rule.weights, *traces) else 0.0 for name in self.rule.vectors)

    def _call(self, name: str, *arguments: Any) -> tuple[Formula, ...]:
        """What ``adapt``, ``component`` or ``terms`` returns; formulas that are not safe where it divides by 0."""
        count = self.rule.counts[0] if name == "terms" else len(self.rule.vectors)
        try:
            return tuple(map(_lifted, self.functions[name](*arguments)))
        except ZeroDivisionError:
            return (Formula({}, is_safe=False),) * count

    def _signals(self) -> tuple[Formula, ...]:
        arguments = (variables(self.bounds[group]) for group in ("step", "memory"))
        scalars: tuple[Formula, ...] = _settled(self.functions["signal"](*arguments))
        return scalars

    def _decide(self, make: Callable[[dict[str, Bounds]], tuple[Any, ...]] = variables) -> tuple[Any, ...]:
        """A, s and memory; an engine refuses a step in which one of them is not finite."""
        arguments = (make(self.bounds[group]) for group in ("step", "memory", "sums"))
        return tuple(map(_settled, self.functions["rule"](*arguments)))

    def find_bounds(self) -> None:
        """Vectors and memory begin at 0 and move as the functions say, except what can be set from outside."""
        rule, bounds = self.rule, self.bounds
        free = {rule.weights[0], rule.change, *rule.lasting, *rule.set_from_outside}
        for group, names in (("z", rule.vectors), ("memory", rule.memory)):
            bounds[group] = {name: ANYTHING if name in free else (0.0, 0.0) for name in names}
        for attempt in range(5):
            p, q = variables(_PHI)
            z = variables(bounds["z"])
            adapted = dict(bounds["z"])
            if rule.adapt is not None:
                after = _settled(self.functions["adapt"](self._signals(), z, p))
                adapted = {name: value.bounds for name, value in zip(rule.vectors, after, strict=True)}
                z = variables(adapted)
            terms = _settled(self.functions["terms"](z, p, q))
            bounds["sums"] = {f"sum {i}": _bounds_of_sum(term.bounds) for i, term in enumerate(terms)}
            _, s, memory = self._decide()
            moved = _settled(self.functions["component"](s, z, p, q))
            after = {name: value.bounds for name, value in zip(rule.vectors, moved, strict=True)}
            after |= {name: value.bounds for name, value in zip(rule.memory, memory, strict=True)}
            grown = False
            for group in ("z", "memory"):
                for name, (low, high) in bounds[group].items():
                    ends = [after[name], adapted.get(name, (low, high))]
                    least, most = min(end[0] for end in ends), max(end[1] for end in ends)
                    if least < low or most > high:
                        # What still grows after a few steps has no end.
                        low = min(low, least) if attempt < 2 else -math.inf if least < low else low
                        high = max(high, most) if attempt < 2 else math.inf if most > high else high
                        bounds[group][name], grown = (low, high), True
            if not grown:
                return
        bounds |= {group: dict.fromkeys(bounds[group], ANYTHING) for group in ("z", "memory", "sums")}

    # ------------------------------------------------------------------ numbers

    def counterexample(self, compare: Compare) -> str:
        """The first of many cases in which ``compare`` finds a difference, in words."""
        rng = random.Random(0)
        for _ in range(CASES):
            values = {
                name: tuple(_drawn(rng, limits) for limits in group.values()) for name, group in self.bounds.items()
            }
            still = zip(values["z"], self.z, strict=True)
            z = tuple(0.0 if isinstance(component, float) else value for value, component in still)
            before = ", ".join(f"{name} = {value:.3g}" for name, value in zip(self.rule.vectors, z, strict=True))
            try:
                with np.errstate(all="ignore"):  # of roots and logarithms
                    difference = compare(values, z)
            except ZeroDivisionError:
                difference = "a division by 0"
            if difference:
                return f"{difference} where {before}"
        return ""

    def _compare_adapt(self, values: dict[str, Any], z: tuple[float, ...]) -> str:
        try:
            u = self.rule.pure["signal"](values["step"], values["memory"])
        except ZeroDivisionError:
            return ""  # every engine refuses such a step
        return _difference(self.rule.vectors, self.rule.pure["adapt"](u, z, 0.0), z)

    def _compare_component(self, values: dict[str, Any], z: tuple[float, ...]) -> str:
        try:
            A, s, _ = self.rule.pure["rule"](values["step"], values["memory"], values["sums"])
        except ZeroDivisionError:
            return ""
        wanted = [sum(a * x for a, x in zip(row, z, strict=True)) for row in A]
        scale = [sum(abs(a * x) for a, x in zip(row, z, strict=True)) for row in A]
        return _difference(self.rule.vectors, self.rule.pure["component"](s, z, 0.0, 0.0), wanted, scale)


def _difference(
    names: Sequence[str], after: Sequence[float], wanted: Sequence[float], scale: Sequence[float] = ()
) -> str:
    """The first vector that is not as it should be, beyond rounding."""
    for name, value, due, size in zip(names, after, wanted, scale or map(abs, wanted), strict=True):
        total = size + abs(value)
        if total < math.inf and abs(value - due) > 1e-9 * total:
            digits = 3 if f"{value:.3g}" != f"{due:.3g}" else 12
            return f"{value:.{digits}g} in place of {due:.{digits}g} for {name!r}"
    return ""


def _without_zeros(bounds: dict[str, Bounds]) -> tuple[Any, ...]:
    """Variables, and 0 in place of those that are always 0."""
    return tuple(0.0 if limits == (0.0, 0.0) else variables({name: limits})[0] for name, limits in bounds.items())


def _lifted(value: Any) -> Formula:
    return Formula({}).__add__(value)


def _settled(value: Any) -> Any:
    """A formula, or a tuple of such, of which it is known that its value is a number."""
    if isinstance(value, tuple):
        return tuple(map(_settled, value))
    formula = _lifted(value)
    return Formula(formula.terms, limits=lambda: formula.bounds)


def _are_same(formulas: Iterable[Any], wanted: Iterable[Any]) -> bool:
    """Whether formulas are shown to be the same as those that are wanted, and never divide by 0."""
    differences = [_lifted(formula) - due for formula, due in zip(formulas, wanted, strict=True)]
    return all(difference.is_safe and not difference.terms for difference in differences)


def _bounds_of_sum(bounds: Bounds) -> Bounds:
    low, high = bounds
    return 0.0 if low >= 0.0 else -math.inf, 0.0 if high <= 0.0 else math.inf


def _drawn(rng: random.Random, bounds: Bounds) -> float:
    """A number within these bounds: 0, an end of them, or of any size from 1e-3 to 1e3 and of either sign."""
    low, high = bounds
    size = 10.0 ** rng.uniform(-3.0, 3.0)
    value = rng.choice((0.0, size, size, -size, -size, low, high, rng.uniform(low, high) if high - low < 1e6 else size))
    return value if low <= value <= high and abs(value) < math.inf else min(max(size, low), high)
