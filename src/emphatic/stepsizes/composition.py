"""A rule whose α is set by a method: one function, generated from those of the rule and of the method.

    α_t      = alpha · method(…)                      the method has persistent memory of its own
    α_t      ← α_t / max(1, f(α_t) φ·φ / bound)       f is the rule's effective step, ρ M α for the emphatic ones
    A, B, …  = rule(α_t, …)

The result is an ordinary ``Rule``, so every engine runs it. A second step size β = eta·α follows α: it is multiplied
by the method's factor, and bounded by β φ·φ ≤ bound.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from emphatic.rules import Rule, Scalars, _source

__all__ = ["Method", "SteppedRule", "compose"]


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
            "step. Give the rule an effective_step(step, memory), such as ραM."
        )
    name = f"{base.name} with {method.name}"
    return SteppedRule(
        name,
        _source.compiled(name, _compose_source(base, method)),
        weights=base.weights,
        traces=base.traces,
        memory=base.memory + method.memory,
        lasting=base.lasting + method.memory,
        extra=base.extra,
        defaults=base.defaults,
        interest=base.interest,
        paper=base.paper,
        extra_ranges=base.extra_ranges,
        emphasis=base.emphasis,
        fixed_point=base.fixed_point,
        action_values=base.action_values,
        of=base,
        method=method,
    )


def _compose_source(base: Rule, method: Method) -> str:
    """The source text of the combined function."""
    step = [f"in_{name}" for name in base.arguments["step"]]
    base_memory, method_memory = ([f"old_{name}" for name in names] for names in (base.memory, method.memory))
    entries = {"step": base.arguments["step"], "memory": method.memory, "g": base.arguments["g"]}
    lines = [f"{_tuple(step)} = step", "pp, pq, qq = g", f"{_tuple(base_memory + method_memory)} = memory"]

    def inline(prefix: str, source: str, arguments: Mapping[str, str]) -> list[str]:
        """Append the lines of this function, inlined with these arguments; returns the names of its results."""
        body, results = _inlined(source, prefix, arguments)
        lines.extend(body)
        return results

    arguments = {"step": _tuple(step), "memory": _tuple(method_memory), "g": "g"}
    if method.trial is not None:
        source = _source.canonical(method.name, method.trial, {"memory": method.memory})
        (factor,) = inline("trial", source, {"memory": _tuple(method_memory)})
        lines.append(f"tried = in_alpha * {factor}")
        changes = []
        for delta in ("0.0", "1.0"):
            trial = _tuple({"in_alpha": "tried", "in_delta": delta}.get(name, name) for name in step)
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
    lines += [f"{_tuple(base_names)} = {new_base}"] * bool(base_names) + [f"{_tuple(method_names)} = {new_method}"]
    lines.append(f"return {A}, {B}, {_tuple(base_names + method_names)}")
    return "def rule(step, memory, x, x_next, g):\n" + "".join(f"    {line}\n" for line in lines)


def _arguments(step: str, memory: list[str], *, only: bool = False) -> dict[str, str]:
    arguments = {"step": step, "memory": _tuple(memory)}
    return arguments if only else arguments | {"x": "x", "x_next": "x_next", "g": "g"}


def _step(names: list[str], changed: Mapping[str, str]) -> str:
    return _tuple(changed.get(name, name) for name in names)


def _change(base: Rule, prefix: str, A: str, B: str, lines: list[str]) -> str:
    """δ after the update less δ before it: (θ_new − θ)·(γ'φ' − φ), from what the rule returned."""
    m = len(base.vectors)
    a, b = ([f"{prefix}_{letter}{i}" for i in range(size)] for letter, size in (("a", m), ("b", 2)))
    lines.append(f"{_tuple(f'{prefix}_A{r}' for r in range(m))} = {A}")
    lines.append(f"{_tuple(f'{prefix}_B{r}' for r in range(m))} = {B}")
    lines.append(f"{_tuple(a)} = {prefix}_A0")
    lines.append(f"{_tuple(b)} = {prefix}_B0")
    x, y = ([f"{prefix}_{letter}{i}" for i in range(m)] for letter in ("x", "y"))
    lines.append(f"{_tuple(x)} = x")
    lines.append(f"{_tuple(y)} = x_next")
    terms = []
    for r in range(m):
        scale = f"({a[r]} - 1.0)" if r == 0 else a[r]
        terms.append(f"{scale} * (in_gamma_next * {y[r]} - {x[r]})")
    terms += [f"{b[0]} * (in_gamma_next * pq - pp)", f"{b[1]} * (in_gamma_next * qq - pq)"]
    return " + ".join(terms)


def _inlined(source: str, prefix: str, arguments: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The statements of a canonical function with its names prefixed, and what it returns."""
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.FunctionDef)
    bound = {name: f"{prefix}_{name}" for name, value in arguments.items() if not value.isidentifier()}
    lines = [f"{bound[name]} = {arguments[name]}" for name in bound]

    class Renamed(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.Name:
            if node.id in ("min", "max"):
                return node
            if node.id in arguments:
                return ast.Name(bound.get(node.id, arguments[node.id]), node.ctx)
            return ast.Name(f"{prefix}_{node.id}", node.ctx)

    *statements, ending = (Renamed().visit(statement) for statement in definition.body)
    lines += [ast.unparse(statement) for statement in statements]
    results = ending.value.elts if isinstance(ending.value, ast.Tuple) else [ending.value]
    return lines, [f"({ast.unparse(value)})" for value in results]


def _tuple(names: Iterable[str]) -> str:
    return "(" + "".join(f"{name}, " for name in names) + ")"
