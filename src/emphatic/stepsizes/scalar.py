"""One step size for all weights, on every engine: constant, scaled to the features, decaying, or bounded.

``constant`` and ``decaying`` compute step sizes in advance; the classes set them while learning.

Each may carry a ``bound`` on the effective step. A step moves θ along φ by b = ραM (each rule defines its own), which
removes the part b φ·φ of the error. With α lowered where b φ·φ would be above the bound,

    b = min(ραM, bound/φ·φ),

one step with a bound of 1 does not overshoot its own target, however large ρ and M are. That is about one step: where
the target moves with θ (td on θ → 2θ), or where traces grow by ργλ > 1, learning can still diverge.

A rule with its method is one function, generated from those of the two (``compose``):

    α_t      = alpha · method(…)                      the method has persistent memory of its own
    α_t      ← α_t / max(1, f(α_t) φ·φ / bound)       f is the rule's effective step, ρ M α for the emphatic ones
    A, B, …  = rule(α_t, …)

The result is an ordinary ``Rule``, so every engine runs it. A second step size β = eta·α follows α: it is multiplied
by the method's factor, and bounded by β φ·φ ≤ bound.
"""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from emphatic.common.names import refusal
from emphatic.rules import AnyRule, Rule, Scalars, _algebra, _source
from emphatic.stepsizes.method import Option, StepSize, check_number

__all__ = ["AlphaBound", "Auto", "Constant", "Decaying", "Method", "ScalarStepSize", "Scaled", "constant", "decaying"]

FloatArray = NDArray[np.float64]

_POSITIVE = "greater than 0 and finite"
_FINITE = float(np.finfo(np.float64).max)


@dataclass(frozen=True)
class Method:
    """How α is computed, in the language of rules.

    ``function(step, memory, g)`` returns the factor of α and the method's memory after the step. With ``trial`` it is
    also given ``contraction``: the part of a TD error at φ, φ' that the rule's update would remove with α = alpha ·
    ``trial(memory)``, and that α.
    """

    #: The name and the options that are not numbers, as a checkpoint has them.
    header: tuple[tuple[str, str], ...]
    function: Callable[..., Any]
    #: The names of its memory, all of it persistent.
    memory: tuple[str, ...]
    trial: Callable[[Scalars], Any] | None = None
    #: The position of 1/bound in the memory; a value of 0 means no bound.
    bound: str = "stepsize_inverse_bound"

    @property
    def name(self) -> str:
        """The name used in error messages."""
        return " ".join(value for _, value in self.header)


@dataclass(frozen=True, eq=False)
class ScalarStepSize(StepSize):
    """A method that sets one α for all weights."""

    def rule(self, base: AnyRule) -> AnyRule:
        if not isinstance(base, Rule):
            raise ValueError(f"The 'stepsize' parameter must be None for {base.name!r}, which has its own step sizes.")
        return compose(base, self.method())

    def method(self) -> Method:
        """How α is computed."""
        raise NotImplementedError

    def memory(self) -> dict[str, Any]:
        memory = super().memory()
        bound = memory.pop("stepsize_bound")
        return memory | {"stepsize_inverse_bound": 0.0 if bound is None else 1.0 / np.asarray(bound)}

    @classmethod
    def restored(cls, header: Mapping[str, Any], memory: Mapping[str, Any]) -> Self:
        inverse = np.asarray(memory["stepsize_inverse_bound"])
        with np.errstate(divide="ignore"):
            bounds = np.asarray(1.0 / inverse)
        bound = None if not inverse.any() else float(bounds) if bounds.ndim == 0 else bounds
        return super().restored(header, {**memory, "stepsize_bound": bound})

    def check(self, *names: str) -> None:
        """Check that these options are positive and finite, and the bound, if there is one."""
        for name in names:
            check_number(self, name, 0.0, _FINITE, _POSITIVE)
        if getattr(self, "bound", None) is not None:
            check_number(self, "bound", 0.0, math.inf, "None or greater than 0")


@dataclass(frozen=True, eq=False)
class Constant(ScalarStepSize):
    """α_t = alpha.

    Args:
        alpha: the step size, greater than 0.
        bound: the largest effective step b φ·φ; None for no bound.

    >>> import numpy as np
    >>> from emphatic import Learner
    >>> learner = Learner("td", 1, stepsize=Constant(0.5, bound=0.25))
    >>> learner.run(np.ones((3, 1)), 1.0, 0.0)
    array([0.  , 0.25])
    """

    alpha: Option = 1.0
    bound: Option | None = None

    name: ClassVar[str] = "constant"

    def __post_init__(self) -> None:
        self.check("alpha")

    def method(self) -> Method:
        return _CONSTANT


@dataclass(frozen=True, eq=False)
class Scaled(ScalarStepSize):
    """α_t = c over the running mean, or the running maximum, of φ·φ.

    The mean is over the steps so far, including this one, in which φ is not 0.

    Args:
        c: the part of the error that a step on a φ of average length removes, if ρM = 1.
        over: "mean" or "max".
        bound: the largest effective step b φ·φ; None for no bound.
    """

    c: Option = 0.1
    over: str = "mean"
    bound: Option | None = None

    name: ClassVar[str] = "scaled"

    def __post_init__(self) -> None:
        self.check("c")
        if self.over not in ("mean", "max"):
            raise refusal("over", "Scaled", "be 'mean' or 'max'", repr(self.over))

    def method(self) -> Method:
        return _SCALED if self.over == "mean" else _SCALED_BY_LARGEST


@dataclass(frozen=True, eq=False)
class Auto(ScalarStepSize):
    """α_t = rate over the running mean of φ·φ, with a bounded effective step: a good first choice.

    On sensor logs it was within .01 variance explained of the best of seven rates chosen in hindsight, and safe with
    rates from 0.01 to 1.

    Args:
        rate: the part of the error that a step on a φ of average length removes, if ρM = 1.
        bound: the largest effective step b φ·φ; None for no bound.
    """

    rate: Option = 0.1
    bound: Option = 1.0

    name: ClassVar[str] = "auto"

    def __post_init__(self) -> None:
        self.check("rate")

    def method(self) -> Method:
        return _AUTO


@dataclass(frozen=True, eq=False)
class Decaying(ScalarStepSize):
    """α_t = alpha / (1 + t/after)^power for the steps t = 0, 1, … that a learner has taken: see ``decaying``.

    Args:
        alpha: the first step size, greater than 0.
        after: the number of steps, 1 or more, after which the step size falls.
        power: how fast it falls, ½ < power ≤ 1.
        bound: the largest effective step b φ·φ; None for no bound.
    """

    alpha: Option = 1.0
    after: Option = 1000.0
    power: Option = 1.0
    bound: Option | None = None

    name: ClassVar[str] = "decaying"

    def __post_init__(self) -> None:
        self.check("alpha")
        check_number(self, "after", math.nextafter(1.0, 0.0), _FINITE, "1 or more, and finite")
        check_number(self, "power", 0.5, 1.0, "greater than 0.5 and at most 1")

    def method(self) -> Method:
        return _DECAYING


@dataclass(frozen=True, eq=False)
class AlphaBound(ScalarStepSize):
    """α_t = min(α_{t−1}, 1/|e_t·(γ'φ' − φ)|), starting at alpha, with e not scaled by α.

    Dabney & Barto (2012), "Adaptive step-size for online temporal difference learning". α only ever falls, to where one
    update cannot turn the TD error around. For any rule, e·(γ'φ' − φ) is how much an update changes the TD error for
    each unit of it and of α; for a true online rule, whose e holds the earlier α, by the α before this step.

    Args:
        alpha: the first step size, greater than 0.
        bound: the largest effective step b φ·φ; None for no bound.
    """

    alpha: Option = 1.0
    bound: Option | None = None

    name: ClassVar[str] = "alphabound"

    def __post_init__(self) -> None:
        self.check("alpha")

    def method(self) -> Method:
        return _ALPHABOUND


def _constant(step: Scalars, memory: Scalars, g: Scalars) -> Any:
    alpha, inverse_bound = memory
    return alpha, (alpha, inverse_bound)


def _scaled(step: Scalars, memory: Scalars, g: Scalars) -> Any:
    mean, count, c, inverse_bound = memory
    phi_phi, _, _ = g
    count = count + 1.0 * (phi_phi > 0.0)
    mean = mean + (phi_phi - mean) * (phi_phi > 0.0) / max(count, 1.0)
    return c * (mean > 0.0) / max(mean, 1e-300), (mean, count, c, inverse_bound)


def _scaled_by_largest(step: Scalars, memory: Scalars, g: Scalars) -> Any:
    largest, c, inverse_bound = memory
    phi_phi, _, _ = g
    largest = max(largest, phi_phi)
    return c * (largest > 0.0) / max(largest, 1e-300), (largest, c, inverse_bound)


def _decaying(step: Scalars, memory: Scalars, g: Scalars) -> Any:
    """exp(−power·l) with l = ln(1 + t/after), which grows by ln((after+t+1)/(after+t)) = 2 artanh(y) a step.

    Rules have no functions but min and max: both are series, exact to rounding for y ≤ 1/3 and z ≤ 1/2.
    """
    t, l, alpha, after, power, inverse_bound = memory
    z = min(power * l, 32.0) / 64.0
    s = 1.0 - z / 13.0 * (1.0 - z / 14.0)
    s = 1.0 - z / 10.0 * (1.0 - z / 11.0 * (1.0 - z / 12.0 * s))
    s = 1.0 - z / 6.0 * (1.0 - z / 7.0 * (1.0 - z / 8.0 * (1.0 - z / 9.0 * s)))
    s = 1.0 - z * (1.0 - z / 2.0 * (1.0 - z / 3.0 * (1.0 - z / 4.0 * (1.0 - z / 5.0 * s))))
    s = s * s * s * s
    s = s * s * s * s
    s = s * s * s * s
    y = 1.0 / (2.0 * (after + t) + 1.0)
    q = y * y
    r = 1.0 / 25.0 + q * (1.0 / 27.0 + q * (1.0 / 29.0 + q * (1.0 / 31.0 + q / 33.0)))
    r = 1.0 / 17.0 + q * (1.0 / 19.0 + q * (1.0 / 21.0 + q * (1.0 / 23.0 + q * r)))
    r = 1.0 / 9.0 + q * (1.0 / 11.0 + q * (1.0 / 13.0 + q * (1.0 / 15.0 + q * r)))
    r = 1.0 + q * (1.0 / 3.0 + q * (1.0 / 5.0 + q * (1.0 / 7.0 + q * r)))
    return alpha * s, (t + 1.0, l + 2.0 * y * r, alpha, after, power, inverse_bound)


def _alphabound(step: Scalars, memory: Scalars, g: Scalars, contraction: Scalars) -> Any:
    largest, alpha, inverse_bound = memory
    fraction, tried = contraction
    largest = max(largest, max(fraction, -fraction) * (tried > 0.0) / max(tried, 1e-300))
    return 1.0 / max(largest, 1.0 / alpha), (largest, alpha, inverse_bound)


def _alphabound_before(memory: Scalars) -> Any:
    largest, alpha, inverse_bound = memory
    return 1.0 / max(largest, 1.0 / alpha)


def _names(*names: str) -> tuple[str, ...]:
    return tuple(f"stepsize_{name}" for name in (*names, "inverse_bound"))


_CONSTANT = Method((("name", "constant"),), _constant, _names("alpha"))
_SCALED = Method((("name", "scaled"), ("over", "mean")), _scaled, _names("mean", "count", "c"))
_SCALED_BY_LARGEST = Method((("name", "scaled"), ("over", "max")), _scaled_by_largest, _names("largest", "c"))
_AUTO = Method((("name", "auto"),), _scaled, _names("mean", "count", "rate"))
_DECAYING = Method((("name", "decaying"),), _decaying, _names("t", "log", "alpha", "after", "power"))
_ALPHABOUND = Method((("name", "alphabound"),), _alphabound, _names("largest", "alpha"), trial=_alphabound_before)


# ------------------------------------------------------------------------------------------ a rule with its method


@dataclass(frozen=True)
class SteppedRule(Rule):
    """A rule combined with a step-size method."""

    of: Rule | None = None
    method: Method | None = None

    @property
    def base(self) -> Any:
        return self.of

    @property
    def stepsize(self) -> dict[str, str]:
        assert self.method is not None
        return dict(self.method.header)

    def __reduce__(self) -> Any:
        return compose, (self.base, self.method)


@functools.cache
def compose(base: Rule, method: Method) -> SteppedRule:
    """The base rule with its α set by this method."""
    if not base.effective_source:
        raise ValueError(
            f"The 'stepsize' parameter must be None for rule {base.name!r}, which does not define its effective "
            "step. Give the rule an effective_step, such as 'rho * alpha * M'."
        )
    if not _is_proportional_to_alpha(base):
        raise ValueError(
            f"The 'effective_step' parameter of Rule({base.name!r}, …) must be a multiple of alpha, so that a smaller "
            f"alpha keeps a bound on it. Got `{base.effective_source.splitlines()[-1].strip()}` instead."
        )
    name = f"{base.name} with {method.name}"
    memory = {"memory": base.memory + method.memory, "lasting": base.lasting + method.memory}
    fields = base.shared | memory
    return SteppedRule(name, _source.compiled(name, _compose_source(base, method)), **fields, of=base, method=method)


def _is_proportional_to_alpha(base: Rule) -> bool:
    """Whether the source of the effective step shows that it is α times something."""
    names = {name: base.arguments[name] for name in ("step", "memory")}
    arguments = (_algebra.variables(dict.fromkeys(group, _algebra.ANYTHING)) for group in names.values())
    function = _source.compiled(base.name, base.effective_source)
    known = {"min": _algebra.smallest, "max": _algebra.largest}
    effective = types.FunctionType(function.__code__, known)(*arguments)
    return _algebra.Formula({}).__add__(effective).is_linear(["alpha"])


def _compose_source(base: Rule, method: Method) -> str:
    """The source text of the combined function."""
    step = [f"in_{name}" for name in base.arguments["step"]]
    base_memory, method_memory = ([f"old_{name}" for name in names] for names in (base.memory, method.memory))
    entries = {"step": base.arguments["step"], "memory": method.memory, "g": base.arguments["g"]}
    lines = [
        f"{_source.tuple_of(step)} = step",
        "pp, pq, qq = g",
        f"{_source.tuple_of(base_memory + method_memory)} = memory",
    ]

    def inline(prefix: str, source: str, arguments: Mapping[str, str]) -> list[str]:
        """Append the lines of this function, inlined with these arguments; returns the names of its results."""
        body, results = _source.inlined(source, prefix, arguments)
        lines.extend(body)
        return results

    arguments = {"step": _source.tuple_of(step), "memory": _source.tuple_of(method_memory), "g": "g"}
    if method.trial is not None:
        source = _source.canonical(method.name, method.trial, {"memory": method.memory})
        (factor,) = inline("trial", source, {"memory": _source.tuple_of(method_memory)})
        lines.append(f"tried = in_alpha * {factor}")
        changes = []
        for delta in ("0.0", "1.0"):
            trial = _source.tuple_of({"in_alpha": "tried", "in_delta": delta}.get(name, name) for name in step)
            prefix = f"at_{delta[0]}"
            A, B, _ = inline(prefix, base.source, _arguments(trial, base_memory))
            changes.append(f"{prefix}_change")
            lines.append(f"{changes[-1]} = {_change(base, prefix, A, B, lines)}")
        arguments["contraction"] = f"({changes[0]} - {changes[1]}, tried)"
        entries["contraction"] = ("fraction", "alpha")
    factor, new_method = inline("method", _source.canonical(method.name, method.function, entries), arguments)
    lines += [f"factor = {factor}", "alpha = in_alpha * factor"]
    scaled = {"in_alpha": "alpha"}
    (effective,) = inline("effective", base.effective_source, _arguments(_step(step, scaled), base_memory, only=True))
    inverse = f"old_{method.bound}"
    lines.append(f"alpha = alpha / max(1.0, {effective} * pp * {inverse})")
    for name in base.extra:
        if base.defaults.get(name) == "eta":
            scaled[f"in_{name}"] = name
            lines.append(f"{name} = in_{name} * factor")
            lines.append(f"{name} = {name} / max(1.0, {name} * pp * {inverse})")
    A, B, new_base = inline("base", base.source, _arguments(_step(step, scaled), base_memory))
    base_names = [f"new_{name}" for name in base.memory]
    method_names = [f"after_{name}" for name in method.memory]
    lines += [f"{_source.tuple_of(base_names)} = {new_base}"] * bool(base_names) + [
        f"{_source.tuple_of(method_names)} = {new_method}"
    ]
    lines.append(f"return {A}, {B}, {_source.tuple_of(base_names + method_names)}")
    return "def rule(step, memory, x, x_next, g):\n" + "".join(f"    {line}\n" for line in lines)


def _arguments(step: str, memory: list[str], *, only: bool = False) -> dict[str, str]:
    arguments = {"step": step, "memory": _source.tuple_of(memory)}
    return arguments if only else arguments | {"x": "x", "x_next": "x_next", "g": "g"}


def _step(names: list[str], changed: Mapping[str, str]) -> str:
    return _source.tuple_of(changed.get(name, name) for name in names)


def _change(base: Rule, prefix: str, A: str, B: str, lines: list[str]) -> str:
    """δ after the update less δ before it: (θ_new − θ)·(γ'φ' − φ), from what the rule returned."""
    m = len(base.vectors)
    a, b = ([f"{prefix}_{letter}{i}" for i in range(size)] for letter, size in (("a", m), ("b", 2)))
    lines.append(f"{_source.tuple_of(f'{prefix}_A{r}' for r in range(m))} = {A}")
    lines.append(f"{_source.tuple_of(f'{prefix}_B{r}' for r in range(m))} = {B}")
    lines.append(f"{_source.tuple_of(a)} = {prefix}_A0")
    lines.append(f"{_source.tuple_of(b)} = {prefix}_B0")
    x, y = ([f"{prefix}_{letter}{i}" for i in range(m)] for letter in ("x", "y"))
    lines.append(f"{_source.tuple_of(x)} = x")
    lines.append(f"{_source.tuple_of(y)} = x_next")
    terms = []
    for r in range(m):
        scale = f"({a[r]} - 1.0)" if r == 0 else a[r]
        terms.append(f"{scale} * (in_gamma_next * {y[r]} - {x[r]})")
    terms += [f"{b[0]} * (in_gamma_next * pq - pp)", f"{b[1]} * (in_gamma_next * qq - pq)"]
    return " + ".join(terms)


# ------------------------------------------------------------------------------------------ fixed in advance


def constant(Phi: Any, fraction: float = 0.1) -> float:
    """The constant step size that removes a fraction of the error of the longest feature vector.

        α = fraction / max_t φ_t·φ_t

    With ρM = 1 and λ = 0, one step moves that vector's prediction by ``fraction`` of its TD error;
    off-policy, ρM can be far above 1 and requires a smaller one. k active binary features give fraction/k.

    Args:
        Phi: (T+1, n), ``Active`` or scipy CSR, as for ``run``, or a single φ.
        fraction: the part of the error that is removed, greater than 0.

    Raises:
        ValueError: if no feature is different from 0, or some φ·φ is not finite.

    >>> constant([[3.0, 4.0], [1.0, 0.0]])
    0.004
    >>> from emphatic import Active
    >>> constant(Active([[3, 7, 9, 12], [4, 5, -1, -1]]))
    0.025

    Source: Sutton's guide, section 1 (0.1/max φ·φ).
    """
    _check_range(0.0 < fraction < np.inf, "fraction", "constant", "greater than 0 and finite", fraction)
    squares = np.atleast_1d(_squared_lengths(Phi))
    bad = np.flatnonzero(~np.isfinite(squares))
    if len(bad):
        got = f"φ·φ = {squares[bad[0]]} at step {bad[0]}"
        raise refusal("Phi", "constant", "have a finite φ·φ in every row", got)
    longest = float(squares.max(initial=0.0))
    if longest == 0.0:
        got, remedy = f"zeros only in {len(squares)} rows", "Nothing could be learned from them."
        raise refusal("Phi", "constant", "have a nonzero feature", got, remedy)
    return fraction / longest


def decaying(alpha: float, T: int, *, after: float = 1000.0, power: float = 1.0) -> FloatArray:
    """A step size that decreases to zero slowly: about ``alpha`` until step ``after``, then as t^−power.

        α_t = alpha / (1 + t/after)^power,   t = 0 … T−1,   ½ < power ≤ 1

    For these powers Σ α_t = ∞, so that any distance can be covered, and Σ α_t² < ∞, so that the noise dies
    out: the conditions of Robbins & Monro (1951), under which emphatic TD converges (Yu, 2015). A power of 1
    averages best once the weights are near; a lower one, or a larger ``after``, gets there from farther away.

    Args:
        alpha: the first step size, greater than 0.
        T: the number of steps.
        after: the number of steps after which the step size falls.
        power: how fast it falls.

    Returns:
        The step sizes, (T,).

    >>> decaying(0.5, 4, after=1).tolist()
    [0.5, 0.25, 0.16666666666666666, 0.125]

    Source: Sutton's guide, section 1.
    """
    _check_range(0.0 < alpha < np.inf, "alpha", "decaying", "greater than 0 and finite", alpha)
    _check_range(isinstance(T, int | np.integer) and T >= 0, "T", "decaying", "an integer of at least 0", T)
    _check_range(0.0 < after < np.inf, "after", "decaying", "greater than 0 and finite", after)
    _check_range(0.5 < power <= 1.0, "power", "decaying", "greater than 0.5 and at most 1", power)
    sequence: FloatArray = alpha / (1.0 + np.arange(T) / after) ** power
    return sequence


def _squared_lengths(Phi: Any) -> FloatArray:
    """φ_t·φ_t of every row."""
    if hasattr(Phi, "tocsr"):
        return np.asarray(Phi.multiply(Phi).sum(axis=1), dtype=np.float64).ravel()
    if hasattr(Phi, "indices"):  # Active
        return np.asarray(np.sum(Phi.values**2, axis=-1, where=Phi.indices >= 0))
    dense = np.asarray(Phi)
    if dense.ndim not in (1, 2) or dense.dtype.kind not in "biuf":
        wanted = "be a (T+1, n) array of real numbers, Active or scipy CSR"
        raise refusal("Phi", "constant", wanted, f"shape {dense.shape} and dtype {dense.dtype}")
    return np.asarray(np.einsum("...n,...n->...", dense, dense, dtype=np.float64))


def _check_range(fine: bool, name: str, function: str, wanted: str, got: object) -> None:
    if not fine:
        raise refusal(name, function, f"be {wanted}", repr(got))
