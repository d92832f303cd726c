"""Grids: every combination of rules and values of their parameters."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic import rules, stepsizes
from emphatic.common.names import suggestion
from emphatic.learning.inputs import refusal
from emphatic.learning.learner import Learner
from emphatic.learning.least_squares import LeastSquares
from emphatic.rules import AnyRule
from emphatic.stepsizes import StepSize
from emphatic.studies.least_squares_rule import LEAST_SQUARES, LeastSquaresRule
from emphatic.studies.values import numbers

__all__ = ["GridSettings", "find_rule", "parameters", "settings"]

#: What a step brings with it, and no grid sets.
_GIVEN = ("lambda_next", "pi", "mu")


@dataclass(frozen=True)
class GridSettings:
    """Settings of one rule: each of the K learners' parameters, by the names that files have (``lambda``)."""

    rule: AnyRule | LeastSquaresRule
    values: Mapping[str, NDArray[np.float64]]
    stepsize: StepSize | None = None

    @property
    def method(self) -> str:
        """The step-size method's name in the table; "" where α alone sets the step sizes."""
        return "" if self.stepsize is None else named(self.stepsize)

    @property
    def label(self) -> str:
        """The rule, and the method where there is one."""
        return f"{self.name}, {self.method}" if self.method else self.name

    @property
    def name(self) -> str:
        """The rule's."""
        return self.rule.name

    def __len__(self) -> int:
        return len(self.values["alpha"])

    def learner(self, n: int, engine: str = "auto") -> Any:
        """The learners of all settings, as one."""
        if isinstance(self.rule, LeastSquaresRule):
            options: dict[str, Any] = {name: self.values[name] for name in self.rule.extra if name in self.values}
            return LeastSquares(n, len(self), emphatic=bool(self.rule.emphasis), **options)
        return Learner(self.rule, n, len(self), engine=engine, stepsize=self.stepsize)

    @property
    def stream_rule(self) -> AnyRule:
        """The rule whose input these settings take from a stream."""
        if isinstance(self.rule, LeastSquaresRule):
            return rules.get("etd" if self.rule.emphasis else "td")
        return self.rule

    @property
    def of_steps(self) -> dict[str, NDArray[np.float64]]:
        """The values that ``run`` takes, by its names for them."""
        skipped = ("alpha", *self.rule.extra) if isinstance(self.rule, LeastSquaresRule) else ()
        return {
            "lambda_" if name == "lambda" else name: column
            for name, column in self.values.items()
            if name not in skipped
        }

    def part(self, begin: int, end: int) -> GridSettings:
        """Some of them."""
        return GridSettings(self.rule, {name: column[begin:end] for name, column in self.values.items()}, self.stepsize)


def find_rule(rule: Any) -> Any:
    """The rule of a name, "lstd" and "elstd" among them, or one of your own: whatever ``Learner`` takes."""
    if isinstance(rule, LeastSquaresRule) or (isinstance(rule, str) and rule in LEAST_SQUARES):
        return LEAST_SQUARES[rule] if isinstance(rule, str) else rule
    return Learner(rule, 1, engine="reference").rule


def parameters(rule: AnyRule | LeastSquaresRule) -> dict[str, tuple[float, float]]:
    """The parameters that a grid can set, and the range of each.

    Least squares has no ``alpha``, but ``ridge`` and ``forgetting``. ``eta`` can be set instead of ``beta``, where
    β = eta·α, and ``zeta`` instead of ABTD's ``xi``.
    """
    found = {} if isinstance(rule, LeastSquaresRule) else {"alpha": rules.RANGES["alpha"]}
    if "lambda_" in rule.uses:
        found["lambda"] = rules.RANGES["lambda_"]
    for name in rule.extra:
        if name in _GIVEN:
            continue
        if rule.defaults.get(name) == "eta":
            found["eta"] = rules.RANGES["eta"]
        if name == "xi":
            found["zeta"] = (0.0, 1.0)
        found[name] = rule.ranges[name]
    return found


def settings(grid: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> tuple[GridSettings, ...]:
    """All settings, a ``GridSettings`` for each rule of each grid.

    A grid is {"rule": …, "alpha": …, "lambda": …, …}, each a value or several; a rule is a name, a ``Rule`` or an
    ``ElementwiseRule``. A rule takes of the grid what it has: a grid for ``td`` and ``gtd`` may have ``eta``. With
    ``stepsize``, names or objects of ``emphatic.stepsizes``, ``alpha`` multiplies what they say, and may be left out.

    >>> made = settings({"rule": ["td", "gtd"], "alpha": "2^-3..2^-1", "lambda": [0, 0.9], "eta": [0.1, 1]})
    >>> [(one.name, len(one)) for one in made]
    [('td', 6), ('gtd', 12)]
    """
    grids = [grid] if isinstance(grid, Mapping) else list(grid) if isinstance(grid, Sequence) else []
    if not grids or not all(isinstance(one, Mapping) for one in grids):
        raise refusal("grid", "sweep", "be {'rule': …, 'alpha': …, …} or a list of such", repr(grid))
    found = tuple(made for one in grids for made in _of(one))
    by_name: dict[str, Any] = {}
    for some in found:
        if by_name.setdefault(some.name, some.rule) != some.rule:
            raise refusal("rule", "sweep", "have a name of its own", f"two rules called {some.name!r}")
    return found


def _of(grid: Mapping[str, Any]) -> list[GridSettings]:
    given = {("lambda" if name == "lambda_" else name): value for name, value in grid.items()}
    names, methods = given.pop("rule", None), _methods(given.pop("stepsize", None))
    chosen = list(names) if isinstance(names, Sequence) and not isinstance(names, str) else [names]
    if not chosen or names is None:
        wanted = f"be one or several of {', '.join((*rules.names(), *LEAST_SQUARES))}, or a rule of your own"
        raise refusal("rule", "sweep", wanted, repr(names))
    found = [find_rule(rule) for rule in chosen]
    ranges_of = [(rule, parameters(rule)) for i, rule in enumerate(found) if rule not in found[:i]]
    known = {parameter for _, ranges in ranges_of for parameter in ranges}
    stepped = [rule for rule, _ in ranges_of if not isinstance(rule, LeastSquaresRule)]
    for name in given:
        if name not in known:
            wanted = f"have only parameters of its rules, {', '.join(sorted(known))}"
            raise ValueError(f"{refusal('grid', 'sweep', wanted, repr(name))}{suggestion(name, known)}")
    if "alpha" not in given:
        if None in methods and "alpha" in known:
            raise refusal("alpha", "sweep", "be given", "none")
        given["alpha"] = 1.0
    values = {name: numbers(name, value) for name, value in given.items()}
    made = [_product(rule, values, ranges) for rule, ranges in ranges_of]
    for rule in stepped:
        for method in methods:
            if method is not None:
                method.rule(rule)  # raises if it does not fit
    return [
        replace(one, stepsize=method) for one in made for method in (methods if one.rule in stepped else [None])
    ]  # fmt: skip


def _methods(given: Any) -> list[StepSize | None]:
    """The values of the axis ``stepsize``: names, objects, or None for α alone."""
    if isinstance(given, str):
        given = [part.strip() for part in given.split(",")]
    several = list(given) if isinstance(given, Sequence) else [given]
    if not several:
        raise refusal("stepsize", "sweep", f"be one or several of {', '.join(stepsizes.names())}", repr(given))
    return [None if one is None else stepsizes.get(one) for one in several]


def named(method: StepSize) -> str:
    """The name of a method, with the options that are not its defaults."""
    usual = stepsizes.get(method.name).options()
    shown = {name: value for name, value in method.options().items() if not np.array_equal(value, usual[name])}
    options = ", ".join(f"{name}={value}" for name, value in shown.items())
    return f"{method.name}({options})" if options else method.name


def _product(
    rule: AnyRule | LeastSquaresRule, values: Mapping[str, tuple[float, ...]], ranges: Mapping[str, tuple[float, float]]
) -> GridSettings:
    own = {name: column for name, column in values.items() if name in ranges}
    for name, column in own.items():
        low, high = ranges[name]
        bad = [value for value in column if not low <= value <= high]
        if bad:
            raise refusal(name, "sweep", f"be between {low:g} and {high:g}", repr(bad[0]))
    for pair in (("eta", "beta"), ("zeta", "xi")):
        if all(name in own for name in pair):
            raise refusal(pair[0], "sweep", f"be given, or {pair[1]!r} in its place", "both")
    wanting = [name for name in ("beta", "xi") if name in ranges and name not in rule.defaults]
    for name in wanting:
        if name not in own and not (name == "xi" and "zeta" in own):
            raise refusal(name, "sweep", f"be given for {rule.name!r}", "none")
    product = np.array(list(itertools.product(*own.values())), np.float64).T
    if isinstance(rule, LeastSquaresRule):
        none = {"alpha": np.full(product.shape[1] if own else 1, np.nan)}
        return GridSettings(rule, none | dict(zip(own, product, strict=True)))
    return GridSettings(rule, dict(zip(own, product, strict=True)))
