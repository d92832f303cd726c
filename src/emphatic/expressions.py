"""Expressions over named signals, as a question may be written in a file: ``"S1 - S2"``, ``"abs(S3) > 0.5"``.

Names of columns, numbers, + − * / ** %, comparisons, ``and``, ``or``, ``not``, and the functions below; a name that
is not a plain word stands in backticks. Nothing else is understood, so that a file can do no harm. True counts as 1.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["FUNCTIONS", "Expression"]

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": np.abs, "min": np.minimum, "max": np.maximum, "sqrt": np.sqrt, "exp": np.exp, "log": np.log,
    "sin": np.sin, "cos": np.cos, "sign": np.sign, "where": np.where,
}  # fmt: skip

_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Pow: operator.pow, ast.Mod: operator.mod, ast.USub: operator.neg, ast.UAdd: operator.pos,
    ast.Not: np.logical_not, ast.And: np.logical_and, ast.Or: np.logical_or,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip

#: Longer ones are a mistake, and could be deep enough to exhaust the interpreter.
_LONGEST = 1000


class Expression:
    """A formula of signals.

    >>> import numpy as np
    >>> area = Expression("2 * `side 1` + max(S2, 0)")
    >>> sorted(area.names)
    ['S2', 'side 1']
    >>> area({"side 1": np.array([1.0, 2.0]), "S2": np.array([-1.0, 1.0])}).tolist()
    [2.0, 5.0]
    """

    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or not text.strip() or len(text) > _LONGEST:
            raise ValueError(f"an expression of 1 to {_LONGEST} characters is due, got {text!r}")
        self.text = text
        quoted: dict[str, str] = {}

        def plain(match: re.Match[str]) -> str:
            return f" {quoted.setdefault(match[1], f'_quoted_{len(quoted)}')} "

        try:
            tree = ast.parse(re.sub(r"`([^`]+)`", plain, text).strip(), mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise ValueError(f"{text!r} is not an expression of signals") from None
        names = {word: name for name, word in quoted.items()}
        self.names: set[str] = set()
        self._value = self._compiled(tree.body, names)

    def _compiled(self, node: ast.AST, quoted: Mapping[str, str]) -> Callable[[Mapping[str, Any]], Any]:
        """A function of the signals."""

        def inner(child: ast.AST) -> Callable[[Mapping[str, Any]], Any]:
            return self._compiled(child, quoted)

        match node:
            case ast.Constant(value=bool() | int() | float() as number):
                return lambda signals: np.float64(number)
            case ast.Name(id=word):
                name = quoted.get(word, word)
                self.names.add(name)
                return lambda signals: signals[name]
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return _applied(_OPERATORS[type(op)], inner(left), inner(right))
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
                return _applied(_OPERATORS[type(op)], inner(operand))
            case ast.BoolOp(op=op, values=[first, *rest]) if rest:
                made = inner(first)
                for value in rest:
                    made = _applied(_OPERATORS[type(op)], made, inner(value))
                return made
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _OPERATORS:
                return _applied(_OPERATORS[type(op)], inner(left), inner(right))
            case ast.Call(func=ast.Name(id=name), args=[_, *_] as args, keywords=[]) if name in FUNCTIONS:
                return _applied(FUNCTIONS[name], *map(inner, args))
        raise ValueError(
            f"{self.text!r} has a part that is not understood: {ast.unparse(node)!r}. There are names of signals, "
            f"numbers, + - * / ** %, comparisons, and, or, not, and {', '.join(FUNCTIONS)}"
        )

    def __call__(self, signals: Mapping[str, NDArray[Any] | float]) -> Any:
        """Its value; NaN where a signal is missing or the formula has none."""
        with np.errstate(all="ignore"):
            return np.asarray(self._value(signals), np.float64)

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"


def _applied(function: Callable[..., Any], *parts: Callable[[Mapping[str, Any]], Any]) -> Callable[..., Any]:
    return lambda signals: function(*(part(signals) for part in parts))
