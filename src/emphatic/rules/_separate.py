"""True online rules for a φ' that is not the next φ, as in a log of several sequences, or an expectation over actions.

    D = (θ_t − θ_{t−1})·φ_t            θ_t − θ_{t−1} = Σ_j a_j X_j + q φ + r φ' of the step before

The rules remember D as (θ_new − θ)·φ', as the pseudocode does, which is right if φ' of a step is φ of the next one.
Here the last φ is a trace p (and the last φ' a trace p_next, if θ takes φ'), and the memory holds the factors of the
change. A trace X_j has changed by then to c_j X_j + s_j φ: its factor is a_j/c_j, and that of φ is q − Σ_j s_j a_j/c_j.
Where c_j = 0, a_j is 0 too. In an unbroken sequence both forms are equal up to rounding.
"""

from __future__ import annotations

import ast
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from emphatic.common import names
from emphatic.rules._rule import Rule
from emphatic.rules._source import compiled, inlined, needed, tuple_of

if TYPE_CHECKING:
    from emphatic.rules import AnyRule

__all__ = ["separate"]


@dataclass(frozen=True)
class SeparateRule(Rule):
    """A rule of the same name, made exact for separate φ'."""

    of: Rule | None = None

    @property
    def plain(self) -> Any:
        return self.of

    def __reduce__(self) -> Any:
        return separate, (self.of,)


@functools.cache
def separate(base: AnyRule) -> Rule:
    """The rule with (θ − θ⁻)·φ as printed, even if φ is not φ' of the previous step.

    Args:
        base: A rule with a ``change``, such as true_online_td.

    Raises:
        ValueError: if the rule has none.
    """
    if isinstance(base, SeparateRule):
        return base
    if not isinstance(base, Rule) or not base.change:
        wanted = f"be False for rule {base.name!r}, which has no (θ − θ⁻)·φ to take from the step before"
        raise names.refusal("separate_next", "Learner", wanted, "True")
    A, B = base.form
    carried = [j for j in range(len(base.weights), len(base.vectors)) if A[0][j] != 0.0]
    copies = ("p", "p_next") if B[0][1] != 0.0 else ("p",)
    changes = tuple(f"change_{name}" for name in (*(base.vectors[j] for j in carried), *copies))
    at = base.memory.index(base.change)
    memory = (*base.memory[:at], *changes, *base.memory[at + 1 :])
    function = compiled(base.name, _separate_source(base, carried, copies, changes, memory))
    fields = base.shared | {"traces": base.traces + copies, "memory": memory, "change": ""}
    step = "effective" if base.effective_step else ""
    return SeparateRule(base.name, function, **fields, effective_step=step, of=base)


def _separate_source(
    base: Rule, carried: list[int], copies: tuple[str, ...], changes: tuple[str, ...], memory: tuple[str, ...]
) -> str:
    """The source text of the function."""
    m, size = len(base.vectors), len(base.vectors) + len(copies)
    x, x_next = ([f"{name}_{r}" for r in range(size)] for name in ("x", "y"))
    a, b = ([[f"{name}_{r}_{c}" for c in range(count)] for r in range(m)] for name, count in (("a", m), ("b", 2)))
    old = {name: f"old_{name}" for name in (*base.memory, *memory)}
    products = [f"{old[change]} * {x[r]}" for change, r in zip(changes, [*carried, *range(m, size)], strict=True)]
    lines = [f"{tuple_of(old[name] for name in memory)} = memory"]
    if base.effective_source:
        memory_0 = tuple_of("0.0" if name == base.change else old[name] for name in base.memory)
        body, (effective,) = inlined(base.effective_source, "effective", {"step": "step", "memory": memory_0})
        lines += [*body, f"effective = {effective}"]
    lines += [f"{tuple_of(x)} = x", f"{tuple_of(x_next)} = x_next", f"{old[base.change]} = {' + '.join(products)}"]
    arguments = {"step": "step", "memory": tuple_of(old[name] for name in base.memory), "g": "g"}
    arguments |= {"x": tuple_of(x[:m]), "x_next": tuple_of(x_next[:m])}
    body, (A, B, remembered) = inlined(base.source, "in", arguments)
    lines += [*body, f"{tuple_of(f'after_{name}' for name in base.memory)} = {remembered}"]
    for rows, name, value in ((a, "A", A), (b, "B", B)):
        lines.append(f"{tuple_of(f'{name}_{r}' for r in range(m))} = {value}")
        lines += [f"{tuple_of(row)} = {name}_{r}" for r, row in enumerate(rows)]
    factors = [f"{a[0][j]} * {a[j][j]} / max({a[j][j]} * {a[j][j]}, 1e-300)" for j in carried]
    lines += [f"after_{change} = {factor}" for change, factor in zip(changes, factors, strict=False)]
    products = [f" - after_{change} * {b[j][0]}" for change, j in zip(changes, carried, strict=False)]
    lines += [f"after_change_p = {b[0][0]}{''.join(products)}", f"after_change_p_next = {b[0][1]}"]
    zeros = ["0.0"] * len(copies)
    rows_of_A = [tuple_of([*row, *zeros]) for row in a] + [tuple_of(["0.0"] * size)] * len(copies)
    rows_of_B = [tuple_of(row) for row in b] + ["(1.0, 0.0)", "(0.0, 1.0)"][: len(copies)]
    result = f"{tuple_of(rows_of_A)}, {tuple_of(rows_of_B)}, {tuple_of(f'after_{name}' for name in memory)}"
    names = {node.id for node in ast.walk(ast.parse(result)) if isinstance(node, ast.Name)}
    assignments = needed(ast.parse("\n".join(lines)).body, names | {"effective"})
    body = [*map(ast.unparse, assignments), f"return {result}"]
    return "def rule(step, memory, x, x_next, g):\n" + "".join(f"    {line}\n" for line in body)
