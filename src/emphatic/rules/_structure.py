"""Traces a rule's function with symbolic scalars: which it uses, and where A and B are always 0 or 1."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from emphatic.rules._fields import refusal

if TYPE_CHECKING:
    from emphatic.rules import AnyRule
    from emphatic.rules._rule import Rule

__all__ = ["Computed", "Form", "arrow", "check_shapes", "traced"]

#: Of A and of B: 0.0 or 1.0 where an entry is that literal, None where it is computed.
Form = tuple[tuple[tuple[float | None, ...], ...], tuple[tuple[float | None, ...], ...]]


class Computed:
    """Represents any computed scalar: an operation on it gives another computed scalar, and marks it as used."""

    used = False

    def _same(self, *_: object) -> Computed:
        return self.either(self, *_)

    @staticmethod
    def either(*operands: object) -> Computed:
        for operand in operands:
            if isinstance(operand, Computed):
                operand.used = True
            elif not isinstance(operand, float):
                raise TypeError(f"{type(operand).__name__} where a number should be")
        return Computed()

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _same
    __truediv__ = __rtruediv__ = __neg__ = __lt__ = __gt__ = __le__ = __ge__ = _same


def traced(rule: Rule) -> tuple[Any, list[tuple[bool, ...]]]:
    """What the function returns for computed scalars, and which of its arguments' scalars it used."""
    arguments = [tuple(Computed() for _ in held) for held in rule.arguments.values()]
    either: dict[str, Any] = {"min": Computed.either, "max": Computed.either}
    try:
        update = types.FunctionType(rule.pure.__code__, either)(*arguments)
    except (TypeError, ValueError, NameError, ZeroDivisionError) as error:
        raise refusal(rule.name, "function", "be one that can be called", f"{type(error).__name__}: {error}") from None
    check_shapes(rule, update)
    for part in (*update[0], *update[1], update[2]):
        Computed.either(*part)  # what is returned as it came is used too
    return update, [tuple(scalar.used for scalar in group) for group in arguments]


def check_shapes(rule: AnyRule, update: Any) -> None:
    """ValueError unless A, B and memory are tuples of numbers of the right sizes."""
    m, M = len(rule.vectors), len(rule.memory)
    if not (isinstance(update, tuple) and len(update) == 3):
        raise refusal(rule.name, "function", "return A, B and memory", _format(update))
    A, B, memory = update
    vectors, remembered = ", ".join(rule.vectors), ", ".join(rule.memory) or "nothing"
    for name, part, columns, wanted in (
        ("A", A, m, f"A as {m} rows of {m}: a row and a column per vector ({vectors})"),
        ("B", B, 2, f"B as {m} rows of 2: a row per vector ({vectors}), a column for φ and one for φ'"),
    ):
        rows = part if isinstance(part, tuple) else ()
        if len(rows) != m or not all(isinstance(row, tuple) and len(row) == columns for row in rows):
            raise refusal(rule.name, "function", f"return {wanted}", f"{_format(part)} for {name}")
    if not isinstance(memory, tuple) or len(memory) != M:
        wanted = f"return memory as a tuple of {M}: {remembered}"
        raise refusal(rule.name, "function", wanted, f"{_format(memory)} for memory")
    for row in (*A, *B, memory):
        for entry in row:
            if not isinstance(entry, Computed | float):
                raise refusal(rule.name, "function", "return numbers in A, B and memory", _format(entry))
    for name, entry in zip(rule.memory, memory, strict=True):
        if isinstance(entry, float):
            wanted = "compute its memory: a constant does not belong in the memory"
            raise refusal(rule.name, "function", wanted, f"{entry} for {name}")


def arrow(rule: AnyRule, update: Any) -> Form:
    """The structure of A and B; raises unless A is an arrow: only weights take traces.

    Only weights take φ', and traces that keep nothing of themselves and that no weight takes: the last φ'.
    """
    A, B = (tuple(tuple(_literal(entry) for entry in row) for row in part) for part in update[:2])
    first = len(rule.weights)
    for r, name in enumerate(rule.vectors):
        for c, other in enumerate(rule.vectors):
            if r != c and A[r][c] != 0.0 and not r < first <= c:
                wanted = "make A an arrow, in which a weight takes itself and traces, and a trace itself"
                raise refusal(rule.name, "function", wanted, f"one in which {name} takes {other}")
        if r >= first and B[r][1] != 0.0 and any(row[r] != 0.0 for row in A):
            wanted = "make A an arrow and B such that only weights take φ', or a trace that is nothing but the last φ'"
            raise refusal(rule.name, "function", wanted, f"one in which the trace {name} takes φ'")
    return A, B


def _literal(entry: Computed | float) -> float | None:
    """0.0 or 1.0; any other number counts as computed."""
    return abs(entry) if isinstance(entry, float) and entry in (0.0, 1.0) else None


def _format(value: Any) -> str:
    """A result of the function, with … for computed scalars."""
    if isinstance(value, tuple):
        return f"({', '.join(_format(entry) for entry in value)}{',' * (len(value) == 1)})"
    return "…" if isinstance(value, Computed) else repr(value)
