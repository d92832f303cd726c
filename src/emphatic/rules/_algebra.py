"""Symbolic arithmetic in the language of rules: what computes the same number has the same normal form.

A ``Formula`` is a polynomial in *atoms*, which are variables and whatever is not a polynomial of them:

    max(a, b) = b + [a − b]⁺      min(a, b) = −max(−a, −b)      [−x]⁺ = [x]⁺ − x      [2x]⁺ = 2[x]⁺
    (a > b) = 1 where a − b is positive       (a <= b) = 1 − (a > b)        1/x = x⁻¹

Every formula has bounds, from those of its variables, by which comparisons and maxima are decided where they can be.
Products of more than ``MOST_TERMS`` terms are not expanded. Everything is meant for numbers without rounding. Formulas
that are the same here compute the same; those that are not may do so too.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

__all__ = ["ANYTHING", "FUNCTIONS", "Bounds", "Formula", "largest", "smallest", "variables"]

MOST_TERMS = 64

#: The least and the largest value that something can have.
Bounds = tuple[float, float]
#: Powers of atoms that are multiplied.
Monomial = frozenset[tuple["Atom", int]]

ANYTHING = (-math.inf, math.inf)
_ONE: Monomial = frozenset()


class Atom:
    """A factor of a monomial: a variable, or [x]⁺, x > 0, x < 0, eˣ, √x, ln x or x itself for a formula x."""

    __slots__ = ("_hash", "bounds", "key", "kind", "names")

    def __init__(self, kind: str, key: Any, bounds: Bounds, names: frozenset[str]) -> None:
        self.kind, self.key, self.bounds, self.names = kind, key, bounds, names
        self._hash = hash((kind, key))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Atom) and (self.kind, self.key) == (other.kind, other.key))


class Formula:
    """What a function of scalars computes: coefficients by monomial.

    ``is_safe`` tells whether every divisor on the way is different from 0, and every root and logarithm defined,
    whatever the variables are. ``limits`` computes bounds from those of the operands, which may be closer than those of
    the terms.
    """

    __slots__ = ("_bounds", "_limits", "is_safe", "terms")

    def __init__(
        self, terms: Mapping[Monomial, float], *, is_safe: bool = True, limits: Callable[[], Bounds] = lambda: ANYTHING
    ) -> None:
        self.terms = {monomial: value for monomial, value in terms.items() if value != 0.0}
        self.is_safe, self._limits = is_safe, limits
        self._bounds: Bounds | None = None

    # ------------------------------------------------------------------ what is known of it

    @property
    def constant(self) -> float | None:
        """Its value where it has no variables."""
        if not self.terms:
            return 0.0
        return self.terms.get(_ONE) if len(self.terms) == 1 else None

    @property
    def names(self) -> frozenset[str]:
        """The variables that it depends on."""
        return frozenset().union(*(atom.names for monomial in self.terms for atom, _ in monomial))

    @property
    def bounds(self) -> Bounds:
        """Between which numbers its value lies."""
        if self._bounds is None:
            low = high = 0.0
            for monomial, value in self.terms.items():
                ends = (value, value)
                for atom, power in monomial:
                    ends = _times(ends, _power(atom.bounds, power))
                low, high = low + ends[0], high + ends[1]
            least, most = self._limits()
            self._bounds = (max(low, least), min(high, most))
        return self._bounds

    @property
    def is_polynomial(self) -> bool:
        """Whether it is made of its variables by sums and products alone, without maxima, comparisons and others."""
        return all(atom.kind == "variable" for monomial in self.terms for atom, _ in monomial)

    def is_linear(self, names: Iterable[str]) -> bool:
        """Whether it is a sum of multiples of these variables.

        Args:
            names: the variables; the multiples may depend on others.
        """
        names = frozenset(names)
        among = ([pair for pair in monomial if pair[0].names & names] for monomial in self.terms)
        return all(len(pairs) == 1 and pairs[0][0].kind == "variable" and pairs[0][1] == 1 for pairs in among)

    # ------------------------------------------------------------------ arithmetic

    def __add__(self, other: Any) -> Formula:
        addend, terms = _lift(other), dict(self.terms)
        for monomial, value in addend.terms.items():
            _accumulate(terms, monomial, value)

        def limits() -> Bounds:
            (low, high), (least, most) = self.bounds, addend.bounds
            return low + least, high + most

        return Formula(terms, is_safe=self.is_safe and addend.is_safe, limits=limits)

    def __mul__(self, other: Any) -> Formula:
        x, y = self, _lift(other)
        if len(x.terms) * len(y.terms) > MOST_TERMS:
            x, y = x._as_atom(), y._as_atom()
        terms: dict[Monomial, float] = {}
        for left, value in x.terms.items():
            for right, factor in y.terms.items():
                monomial = _multiplied(left, right)
                if monomial is not None:
                    _accumulate(terms, monomial, value * factor)
        return Formula(terms, is_safe=x.is_safe and y.is_safe, limits=lambda: _times(x.bounds, y.bounds))

    def __truediv__(self, other: Any) -> Formula:
        divisor = _lift(other)
        if divisor.constant is not None:
            return self * (1.0 / divisor.constant)  # (or ZeroDivisionError)
        low, high = divisor.bounds
        scale, unit = divisor._normalized()
        (monomial,) = unit._as_atom().terms
        inverse = {frozenset((atom, -power) for atom, power in monomial): 1.0 / scale}
        is_safe = divisor.is_safe and (low > 0.0 or high < 0.0)
        return self * Formula(inverse, is_safe=is_safe, limits=lambda: _power(divisor.bounds, -1))

    def __neg__(self) -> Formula:
        return self * -1.0

    def __sub__(self, other: Any) -> Formula:
        return self + -_lift(other)

    def __rsub__(self, other: Any) -> Formula:
        return _lift(other) - self

    def __rtruediv__(self, other: Any) -> Formula:
        return _lift(other) / self

    __radd__, __rmul__ = __add__, __mul__

    def __gt__(self, other: Any) -> Formula:
        return _positive(self - other)

    def __lt__(self, other: Any) -> Formula:
        return _positive(_lift(other) - self)

    def __ge__(self, other: Any) -> Formula:
        return _lift(1.0) - self.__lt__(other)

    def __le__(self, other: Any) -> Formula:
        return _lift(1.0) - self.__gt__(other)

    # ------------------------------------------------------------------ inside

    @property
    def _key(self) -> frozenset[tuple[Monomial, float]]:
        # To 12 digits, which two ways of computing a coefficient have in common.
        return frozenset((monomial, float(f"{value:.12e}")) for monomial, value in self.terms.items())

    def _normalized(self) -> tuple[float, Formula]:
        """A number and a formula whose product this is; x, 2x and −x have the same formula."""
        scale = self.terms[min(self.terms, key=hash)]
        terms = {monomial: value / scale for monomial, value in self.terms.items()}
        inverse = (1.0 / scale, 1.0 / scale)
        return scale, Formula(terms, is_safe=self.is_safe, limits=lambda: _times(self.bounds, inverse))

    def _as_atom(self) -> Formula:
        """The same as a formula of one term."""
        if len(self.terms) <= 1:
            return self
        scale, unit = self._normalized()
        return Formula({_monomial("value", unit, unit.bounds): scale}, is_safe=self.is_safe)


def variables(bounds: Mapping[str, Bounds]) -> tuple[Formula, ...]:
    """A variable of each of these names, within these bounds."""
    atoms = [Atom("variable", name, limits, frozenset((name,))) for name, limits in bounds.items()]
    return tuple(Formula({frozenset(((atom, 1),)): 1.0}) for atom in atoms)


def largest(x: Any, y: Any) -> Formula:
    """The function ``max`` of rules."""
    a, b = _lift(x), _lift(y)
    larger = b + _positive_part(a - b)

    def limits() -> Bounds:
        (low, high), (least, most) = a.bounds, b.bounds
        return max(low, least, (a + b).bounds[0] / 2.0), max(high, most)  # max(x, −x) is 0 or more

    return Formula(larger.terms, is_safe=larger.is_safe, limits=limits)


def smallest(x: Any, y: Any) -> Formula:
    """The function ``min`` of rules."""
    return -largest(-_lift(x), -_lift(y))


def _increasing(kind: str, function: Callable[[float], float], x: Any) -> Formula:
    """An increasing function, which is −∞ where it is not defined."""
    x = _lift(x)
    low, high = map(function, x.bounds)
    is_safe = x.is_safe and low > -math.inf
    return Formula({_ONE: low} if x.constant is not None else {_monomial(kind, x, (low, high)): 1.0}, is_safe=is_safe)


#: What elementwise rules may call besides ``min`` and ``max``; ``exp`` is constant below −32 and above 32.
FUNCTIONS: dict[str, Callable[[Any], Formula]] = {
    "exp": functools.partial(_increasing, "exp", lambda x: math.exp(min(max(x, -32.0), 32.0))),
    "sqrt": functools.partial(_increasing, "sqrt", lambda x: math.sqrt(x) if x >= 0.0 else -math.inf),
    "log": functools.partial(_increasing, "log", lambda x: math.log(x) if x > 0.0 else -math.inf),
}


def _lift(value: Any) -> Formula:
    return value if isinstance(value, Formula) else Formula({_ONE: float(value)})


def _accumulate(terms: dict[Monomial, float], monomial: Monomial, value: float) -> None:
    """Add a term; what rounding leaves of two that cancel is 0."""
    before = terms.get(monomial, 0.0)
    total = before + value
    terms[monomial] = 0.0 if abs(total) <= 1e-12 * abs(before) else total


def _monomial(kind: str, x: Formula, bounds: Bounds) -> Monomial:
    return frozenset(((Atom(kind, x._key, bounds, x.names), 1),))


def _positive_part(x: Formula) -> Formula:
    """[x]⁺ = max(x, 0)."""
    low, high = x.bounds
    if low >= 0.0 or high <= 0.0:
        return x * float(low >= 0.0)
    # [ax]⁺ = a[x]⁺ where a is never negative.
    common = frozenset.intersection(*x.terms)
    factor = frozenset((atom, power) for atom, power in common if atom.bounds[0] >= 0.0 or power % 2 == 0)
    if factor:
        cofactor = Formula({monomial - factor: value for monomial, value in x.terms.items()}, is_safe=x.is_safe)
        return Formula({factor: 1.0}) * _positive_part(cofactor)
    scale, unit = x._normalized()
    clipped = Formula({_monomial("positive part", unit, (0.0, max(unit.bounds[1], 0.0))): 1.0}, is_safe=x.is_safe)
    return clipped * scale if scale > 0.0 else (clipped - unit) * -scale


def _positive(x: Formula) -> Formula:
    """1 where x > 0, else 0."""
    low, high = x.bounds
    if low > 0.0 or high <= 0.0:
        return Formula({_ONE: float(low > 0.0)}, is_safe=x.is_safe)
    scale, unit = x._normalized()
    return Formula({_monomial("x > 0" if scale > 0.0 else "x < 0", unit, (0.0, 1.0)): 1.0}, is_safe=x.is_safe)


def _multiplied(left: Monomial, right: Monomial) -> Monomial | None:
    """The product of two monomials; None where it is 0."""
    if not left or not right:
        return left or right
    powers = dict(left)
    for atom, power in right:
        powers[atom] = powers.get(atom, 0) + power
    signs: dict[Any, str] = {}
    for atom in powers:
        if atom.kind in ("x > 0", "x < 0"):
            powers[atom] = 1
            if signs.setdefault(atom.key, atom.kind) != atom.kind:
                return None
    return frozenset((atom, power) for atom, power in powers.items() if power)


def _times(left: Bounds, right: Bounds) -> Bounds:
    ends = [0.0 if a == 0.0 or b == 0.0 else a * b for a in left for b in right]
    return min(ends), max(ends)


def _power(bounds: Bounds, power: int) -> Bounds:
    low, high = bounds
    if power < 0:
        if low < 0.0 < high or low == high == 0.0:
            low, high = ANYTHING
        else:
            low, high = (1.0 / high if high else -math.inf), (1.0 / low if low else math.inf)
    ends = low, high
    for _ in range(abs(power) - 1):
        ends = _times(ends, (low, high))
    return (max(ends[0], 0.0), ends[1]) if power % 2 == 0 else ends
