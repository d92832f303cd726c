"""Grids of settings: every combination of rules and values of their parameters.

Values may be text, such as ``0, .5, 1-2^-3`` or ``2^-18..2^0``.
"""

from __future__ import annotations

import importlib
import itertools
import math
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from emphatic import rules, stepsizes
from emphatic.common.names import suggestion
from emphatic.control.algorithms import Algorithm
from emphatic.gvfs.evaluator import Expression
from emphatic.learning.inputs import refusal
from emphatic.learning.learner import Learner
from emphatic.learning.least_squares import LeastSquares
from emphatic.rules import AnyRule
from emphatic.rules._traits import RuleTraits
from emphatic.stepsizes import StepSize

__all__ = ["ControlRule", "Grid", "GridSettings", "LeastSquaresRule", "find_rule", "parameters", "parse_numbers"]
__all__ += ["resolve", "settings"]

# ---------------------------------------------------------------------- numbers as text

#: A range: its two ends, and how it goes from one to the other.
_RANGE = re.compile(r"(?P<start>.+?)\.\.(?P<stop>[^:]+)(:(?P<operation>[*+])(?P<by>.+))?")
#: The most numbers that one range may stand for: more is a slip of the pen, and would fill the memory.
_MOST = 100_000


def parse_numbers(name: str, values: object, *, infinite: float = 0.0) -> tuple[float, ...]:
    """The numbers of a parameter: one, a list of them, or a text.

    In a text they are separated by commas, with + − * / ^ and brackets. ``a..b`` goes from a to b by doubling,
    ``a..b:*f`` by multiplying with f, and ``a..b:+s`` by adding s. ``inf`` or ``-inf`` is one if ``infinite``.

    >>> parse_numbers("alpha", "2^-3..2^0, 3/2")
    (0.125, 0.25, 0.5, 1.0, 1.5)
    >>> parse_numbers("lambda", "0..1:+.25")
    (0.0, 0.25, 0.5, 0.75, 1.0)
    """
    if isinstance(values, str):
        numbers = [number for item in values.split(",") for number in _parse_item(name, item.strip())]
    elif isinstance(values, Iterable) and getattr(values, "shape", None) != ():
        numbers = [number for item in values for number in parse_numbers(name, item, infinite=infinite)]
    else:
        numbers = [_as_float(name, values)]
    if not numbers or not all(math.isfinite(number) or number == infinite for number in numbers):
        raise refusal(name, "sweep", "be finite numbers, one at least", repr(values))
    return tuple(numbers)


def _as_float(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise refusal(name, "sweep", "be numbers", repr(value)) from None


def _parse_item(name: str, text: str) -> list[float]:
    """A number, or the numbers of a range."""
    match = _RANGE.fullmatch(text)
    if match is None:
        return [float(text) if text in ("inf", "-inf") else _evaluate(name, text)]
    start, stop, by = (_evaluate(name, match[group] or "2") for group in ("start", "stop", "by"))
    additive = match["operation"] == "+"
    steps = _steps_between(start, stop, by, additive)
    if not 0 <= steps <= _MOST:  # also rejects NaN
        raise refusal(name, "sweep", "be ranges that reach their end, such as 2^-6..2^0 or 0..1:+.1", repr(text))
    indices = range(int(steps + 1e-9) + 1)  # an end that rounding has moved away counts as reached
    # from the start each time, so that no error adds up
    return [start + i * by if additive else start * by**i for i in indices]


def _steps_between(start: float, stop: float, by: float, additive: bool) -> float:
    """How many steps a range takes to its end, not rounded; NaN if it never gets there."""
    if additive:
        return (stop - start) / by if by else math.nan
    if start > 0 and stop > 0 and by > 0 and by != 1:
        return math.log(stop / start) / math.log(by)
    return math.nan


def _evaluate(name: str, text: str) -> float:
    try:
        return float(Expression(text.replace("^", "**"))({}))
    except Exception:  # whatever is wrong with it
        raise refusal(name, "sweep", "be numbers such as .1, 2^-8 or 1-1/4", repr(text)) from None


# ---------------------------------------------------------------------- rules of a sweep


@dataclass(frozen=True)
class LeastSquaresRule(RuleTraits):
    """``emphatic.LeastSquares`` with the attributes of a rule; ``emphasis`` is "gamma" for ELSTD(λ).

    It has no step size, but a ridge and a factor of forgetting.
    """

    name: str
    emphasis: Literal["", "gamma"] = ""
    weights: tuple[str, ...] = ("theta",)
    traces: tuple[str, ...] = ("e",)
    extra: tuple[str, ...] = ("ridge", "forgetting")
    uses: tuple[str, ...] = ("I", "lambda_", "rho", "gamma_next", "R")
    interest: bool = True
    action_values: bool = False
    defaults: Mapping[str, float] = field(default_factory=lambda: {"ridge": 1.0, "forgetting": 1.0}, hash=False)
    extra_ranges: Mapping[str, tuple[float, float]] = field(
        default_factory=lambda: {"ridge": (math.ulp(0.0), math.inf), "forgetting": (math.ulp(0.0), 1.0)}, hash=False
    )


@dataclass(frozen=True)
class ControlRule(RuleTraits):
    """An algorithm of ``emphatic.control`` with the attributes of a rule: a grid sets ε and γ too."""

    name: str
    algorithm: Algorithm
    extra: tuple[str, ...]
    defaults: Mapping[str, Any] = field(hash=False)
    extra_ranges: Mapping[str, tuple[float, float]] = field(hash=False)
    weights: tuple[str, ...] = ("theta",)
    traces: tuple[str, ...] = ("e",)
    uses: tuple[str, ...] = ("lambda_",)
    emphasis: Literal["", "gamma"] = ""
    interest: bool = False
    action_values: bool = True

    @classmethod
    def of(cls, algorithm: Algorithm) -> ControlRule:
        """Of an algorithm, with the extra parameters of its rule.

        Args:
            algorithm: The algorithm.
        """
        rule, names = algorithm.base, [name for name in algorithm.extra if name != "eta"]
        defaults = {"epsilon": 0.1, "gamma": 1.0} | {
            name: rule.defaults[name] for name in names if name in rule.defaults
        }
        ranges = {"epsilon": (0.0, 1.0), "gamma": (0.0, 1.0)} | {name: rule.ranges[name] for name in names}
        return cls(algorithm.name, algorithm, ("epsilon", "gamma", *names), defaults, ranges)


#: The rules of a sweep that are no step-by-step rules of ``emphatic.rules``.
LEAST_SQUARES = {"lstd": LeastSquaresRule("lstd"), "elstd": LeastSquaresRule("elstd", "gamma")}

SweptRule = AnyRule | LeastSquaresRule | ControlRule


def rule_names() -> tuple[str, ...]:
    """The names of all rules that a grid may have."""
    return (*rules.names(), *LEAST_SQUARES)


def find_rule(rule: str | SweptRule) -> SweptRule:
    """The rule of a name, "lstd" and "elstd" among them; a rule of your own is returned as it is."""
    if isinstance(rule, LeastSquaresRule | ControlRule):
        return rule
    if isinstance(rule, str) and rule in LEAST_SQUARES:
        return LEAST_SQUARES[rule]
    return Learner(rule, 1, engine="reference").rule


def resolve(rule: Any) -> Any:
    """Rules by their names; MODULE:NAME is imported, from the current folder or Python's path.

    Other values are returned unchanged: ``sweep`` reports them.
    """
    if isinstance(rule, list):
        return [resolve(item) for item in rule]
    if not isinstance(rule, str):
        return rule
    if ":" in rule:
        return _import_rule(rule)
    return find_rule(rule) if rule in rule_names() else rule


def _import_rule(path: str) -> AnyRule:
    """The rule at MODULE:NAME."""
    module, _, name = path.partition(":")
    if not (module and name):
        raise ValueError(f"rule {path}: a rule of your own is given as MODULE:NAME.")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        rule = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise ValueError(f"rule {path}: the module {module!r} cannot be imported: {error}.") from error
    except AttributeError:
        raise ValueError(f"rule {path}: the module {module!r} has no {name!r}.") from None
    if not isinstance(rule, AnyRule):
        raise ValueError(f"rule {path}: must be an emphatic.Rule or ElementwiseRule. Got {rule!r:.100} instead.")
    return rule


#: What a step brings with it, and no grid sets.
_OF_STEPS = ("lambda_next", "pi", "mu")


def parameters(rule: SweptRule) -> dict[str, tuple[float, float]]:
    """The parameters that a grid can set, and the range of each.

    Least squares has no ``alpha``, but ``ridge`` and ``forgetting``. ``eta`` can be set instead of ``beta``, where
    β = eta·α, and ``zeta`` instead of ABTD's ``xi``.
    """
    ranges = {} if isinstance(rule, LeastSquaresRule) else {"alpha": rules.RANGES["alpha"]}
    if "lambda_" in rule.uses:
        ranges["lambda"] = rules.RANGES["lambda_"]
    for name in rule.extra:
        if name in _OF_STEPS:
            continue
        if rule.defaults.get(name) == "eta":
            ranges["eta"] = rules.RANGES["eta"]
        if name == "xi":
            ranges["zeta"] = (0.0, 1.0)
        ranges[name] = rule.ranges[name]
    return ranges


# ---------------------------------------------------------------------- settings

Grid = Mapping[str, Any] | Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class GridSettings:
    """Settings of one rule: each of the K learners' parameters, by the names that files have (``lambda``)."""

    rule: SweptRule
    values: Mapping[str, NDArray[np.float64]]
    stepsize: StepSize | None = None

    @property
    def method(self) -> str:
        """The step-size method's name in the table; "" where α alone sets the step sizes."""
        return "" if self.stepsize is None else _describe_method(self.stepsize)

    @property
    def label(self) -> str:
        """The rule, and the method where there is one."""
        return f"{self.name}, {self.method}" if self.method else self.name

    @property
    def name(self) -> str:
        """The rule's name."""
        return self.rule.name

    def __len__(self) -> int:
        return len(self.values["alpha"])

    def learner(self, n: int, engine: str = "auto") -> Learner | LeastSquares:
        """The learners of all settings, side by side."""
        if isinstance(self.rule, LeastSquaresRule):
            options: dict[str, Any] = {name: self.values[name] for name in self.rule.extra if name in self.values}
            return LeastSquares(n, len(self), emphatic=bool(self.rule.emphasis), **options)
        return Learner(self.stream_rule, n, len(self), engine=engine, stepsize=self.stepsize)

    @property
    def stream_rule(self) -> AnyRule:
        """The rule whose input these settings take from a stream."""
        if isinstance(self.rule, LeastSquaresRule):
            return rules.get("etd" if self.rule.emphasis else "td")
        return self.rule.algorithm.base if isinstance(self.rule, ControlRule) else self.rule

    @property
    def stepped_rule(self) -> AnyRule:
        """The rule as it is learned, with its step-size method."""
        return self.stream_rule if self.stepsize is None else self.stepsize.rule(self.stream_rule)

    @property
    def step_arguments(self) -> dict[str, NDArray[np.float64]]:
        """The values that ``run`` takes, by its names for them."""
        skipped = ("alpha", *self.rule.extra) if isinstance(self.rule, LeastSquaresRule) else ()
        return {
            "lambda_" if name == "lambda" else name: column
            for name, column in self.values.items()
            if name not in skipped
        }

    def take(self, numbers: Sequence[int]) -> GridSettings:
        """The settings with these numbers."""
        return replace(self, values={name: column[list(numbers)] for name, column in self.values.items()})

    def select(self, begin: int, end: int) -> GridSettings:
        """The settings from number ``begin`` up to ``end``."""
        return replace(self, values={name: column[begin:end] for name, column in self.values.items()})


def settings(grid: Grid) -> tuple[GridSettings, ...]:
    """All settings, a ``GridSettings`` for each rule of each grid.

    A grid is {"rule": …, "alpha": …, "lambda": …, …}, each a value or several; a rule is a name, a ``Rule`` or an
    ``ElementwiseRule``. A rule takes of the grid what it has: a grid for ``td`` and ``gtd`` may have ``eta``. With
    ``stepsize``, names or objects of ``emphatic.stepsizes``, ``alpha`` multiplies what they say, and may be left out.

    >>> groups = settings({"rule": ["td", "gtd"], "alpha": "2^-3..2^-1", "lambda": [0, 0.9], "eta": [0.1, 1]})
    >>> [(group.name, len(group)) for group in groups]
    [('td', 6), ('gtd', 12)]
    """
    grids = [grid] if isinstance(grid, Mapping) else list(grid) if isinstance(grid, Sequence) else []
    if not grids or not all(isinstance(axes, Mapping) for axes in grids):
        raise refusal("grid", "sweep", "be {'rule': …, 'alpha': …, …} or a list of such", repr(grid))
    groups = tuple(group for axes in grids for group in _expand(axes))
    by_name: dict[str, SweptRule] = {}
    for group in groups:
        if by_name.setdefault(group.name, group.rule) != group.rule:
            raise refusal("rule", "sweep", "have a name of its own", f"two rules called {group.name!r}")
    return groups


def _expand(grid: Mapping[str, Any]) -> list[GridSettings]:
    """The settings of one grid: one ``GridSettings`` for each of its rules and step-size methods."""
    axes = {("lambda" if name == "lambda_" else name): value for name, value in grid.items()}
    chosen, methods = _find_rules(axes.pop("rule", None)), _find_methods(axes.pop("stepsize", None))
    ranges = [parameters(rule) for rule in chosen]
    known = set(itertools.chain.from_iterable(ranges))
    defaults = [item for rule in chosen for item in rule.defaults.items()]
    unbounded = {name: float(default) for name, default in defaults if default in (math.inf, -math.inf)}
    values = _parse_axes(axes, known, unbounded, alpha_required=None in methods and "alpha" in known)
    products = [_product(rule, values, allowed) for rule, allowed in zip(chosen, ranges, strict=True)]
    groups = []
    for product in products:
        if isinstance(product.rule, LeastSquaresRule):
            groups.append(product)
            continue
        for method in methods:
            if method is not None:
                method.rule(product.stream_rule)  # raises if it does not fit
            groups.append(replace(product, stepsize=method))
    return groups


def _parse_axes(
    axes: Mapping[str, Any], known: set[str], unbounded: Mapping[str, float], alpha_required: bool
) -> dict[str, tuple[float, ...]]:
    """The numbers of each axis; α is 1 where a step-size method makes it optional, ``unbounded`` has what may be ±∞."""
    for name in axes:
        if name not in known:
            wanted = f"have only parameters of its rules, {', '.join(sorted(known))}"
            raise ValueError(f"{refusal('grid', 'sweep', wanted, repr(name))}{suggestion(name, known)}")
    if alpha_required and "alpha" not in axes:
        raise refusal("alpha", "sweep", "be given", "none")
    # the order of the axes is that of the table's columns and of its rows
    complete = axes if "alpha" in axes else {**axes, "alpha": 1.0}
    return {name: parse_numbers(name, value, infinite=unbounded.get(name, 0.0)) for name, value in complete.items()}


def _find_rules(names: Any) -> list[SweptRule]:
    """The values of the axis ``rule``, each once."""
    several = list(names) if isinstance(names, Sequence) and not isinstance(names, str) else [names]
    if not several or names is None:
        wanted = f"be one or several of {', '.join(rule_names())}, or a rule of your own"
        raise refusal("rule", "sweep", wanted, repr(names))
    chosen: list[SweptRule] = []
    for rule in map(find_rule, several):
        if rule not in chosen:
            chosen.append(rule)
    return chosen


def _find_methods(names: Any) -> list[StepSize | None]:
    """The values of the axis ``stepsize``: names, objects, or None for α alone."""
    if isinstance(names, str):
        names = [name.strip() for name in names.split(",")]
    several = list(names) if isinstance(names, Sequence) else [names]
    if not several:
        raise refusal("stepsize", "sweep", f"be one or several of {', '.join(stepsizes.names())}", repr(names))
    return [None if method is None else stepsizes.get(method) for method in several]


def _describe_method(method: StepSize) -> str:
    """The name of a method, with the options that are not its defaults."""
    defaults: dict[str, Any] = {field.name: field.default for field in fields(method)}
    changed = {name: value for name, value in method.options().items() if not np.array_equal(value, defaults[name])}
    options = ", ".join(f"{name}={value}" for name, value in changed.items())
    return f"{method.name}({options})" if options else method.name


def _product(
    rule: SweptRule, values: Mapping[str, tuple[float, ...]], ranges: Mapping[str, tuple[float, float]]
) -> GridSettings:
    """Every combination of the values that this rule has a parameter for."""
    axes = {name: column for name, column in values.items() if name in ranges}
    for name, column in axes.items():
        low, high = ranges[name]
        outside = [value for value in column if not low <= value <= high]
        if outside:
            raise refusal(name, "sweep", f"be between {low:g} and {high:g}", repr(outside[0]))
    _check_choice(rule, axes, ranges)
    columns = dict(zip(axes, np.array(list(itertools.product(*axes.values())), np.float64).T, strict=True))
    if isinstance(rule, LeastSquaresRule):  # the table has a column alpha, empty for these
        count = len(next(iter(columns.values()))) if columns else 1
        columns = {"alpha": np.full(count, np.nan)} | columns
    return GridSettings(rule, columns)


def _check_choice(rule: SweptRule, axes: Mapping[str, object], ranges: Mapping[str, object]) -> None:
    """ValueError if two parameters that stand for each other are both set, or one without a default is not."""
    for name, substitute in (("eta", "beta"), ("zeta", "xi")):
        if name in axes and substitute in axes:
            raise refusal(name, "sweep", f"be given, or {substitute!r} in its place", "both")
    for name in ranges:
        required = name in rule.extra and name not in rule.defaults
        if required and name not in axes and not (name == "xi" and "zeta" in axes):
            raise refusal(name, "sweep", f"be given for {rule.name!r}", "none")
