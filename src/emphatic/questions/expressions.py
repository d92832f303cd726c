"""Expressions over named signals, as a question may be written in a file: ``"S1 - S2"``, ``"abs(S3) > 0.5"``.

Names of columns, numbers, + − * / ** %, comparisons, ``and``, ``or``, ``not``, and the functions below; a name that
is not a plain word is written in backticks. Nothing else is allowed, so that a file cannot run code. True counts as 1.
"""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["FUNCTIONS", "Condition", "Expression"]


Function = Callable[..., Any]

#: Each function, and its least and greatest number of arguments.
FUNCTIONS: dict[str, tuple[Function, int, int]] = {"abs": (np.abs, 1, 1)}
FUNCTIONS["min"] = lambda *values: reduce(np.minimum, values), 2, 99
FUNCTIONS["max"] = lambda *values: reduce(np.maximum, values), 2, 99
FUNCTIONS |= {name: (getattr(np, name), 1, 1) for name in ("sqrt", "exp", "log", "sin", "cos", "sign")}
FUNCTIONS["where"] = np.where, 3, 3

_OPERATORS: dict[type[ast.AST], Function] = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}
_OPERATORS |= {ast.Div: operator.truediv, ast.Pow: operator.pow, ast.Mod: operator.mod}
_OPERATORS |= {ast.USub: operator.neg, ast.UAdd: operator.pos}
_OPERATORS |= {ast.Not: np.logical_not, ast.And: np.logical_and, ast.Or: np.logical_or}
_OPERATORS |= {ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Lt: operator.lt, ast.LtE: operator.le}
_OPERATORS |= {ast.Eq: operator.eq, ast.NotEq: operator.ne}

#: The longest expression allowed.
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
            raise ValueError(f"an expression must have 1 to {_LONGEST} characters, got {str(text)[:60]!r}")
        self.text = text
        word = "quoted"
        while word in text:
            word += "_"
        quoted: list[str] = []

        def plain(match: re.Match[str]) -> str:
            quoted.append(match[1])
            return f" {word}{len(quoted) - 1} "

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                source = re.sub(r"`([^`]+)`", plain, text).strip()
                tree = ast.parse(source, mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise ValueError(f"{text!r} is not an expression of signals") from None
        self.names: set[str] = set()
        #: In reverse Polish order: numbers, names, and functions with their number of arguments. There is
        #: no recursion, neither here nor in a call, for a text may be nested deeper than the interpreter goes.
        self._program: list[float | str | tuple[Function, int]] = []
        self._tree, self._source = tree.body, source
        self._quoted = {f"{word}{i}": name for i, name in enumerate(quoted)}
        todo: list[ast.AST] = [tree.body]
        while todo:
            item, operands = self._decompose(todo.pop())
            self._program.append(item)
            todo += operands
        self._program.reverse()

    @property
    def is_condition(self) -> bool:
        """Whether it is a comparison, or conditions joined by ``and``, ``or`` and ``not``."""
        match self._tree:
            case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
                return True
        return False

    def _decompose(self, node: ast.AST) -> tuple[float | str | tuple[Function, int], list[ast.expr]]:
        """The operation of a node, and its operands."""
        match node:
            case ast.Constant(value=bool() | int() | float() as number) if abs(number) < 1e300:
                return float(number), []
            case ast.Name(id=word):
                name = self._quoted.get(word, word)
                self.names.add(name)
                return name, []
            case ast.BinOp(left=left, op=op, right=right) | ast.Compare(left=left, ops=[op], comparators=[right]) if (
                type(op) in _OPERATORS
            ):
                return (_OPERATORS[type(op)], 2), [left, right]
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
                return (_OPERATORS[type(op)], 1), [operand]
            case ast.BoolOp(op=op, values=values):
                function = _OPERATORS[type(op)]
                return (lambda *values: reduce(function, values), len(values)), values
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
                function, least, most = FUNCTIONS[name]
                if least <= len(args) <= most:
                    return (function, len(args)), args
        segment = ast.get_source_segment(self._source, node)
        raise ValueError(
            f"{self.text!r} has a part that is not understood: {segment!r}. There are names of signals, numbers, "
            f"+ - * / ** %, comparisons of two, and, or, not, and {', '.join(FUNCTIONS)}"
        )

    def __call__(self, signals: Mapping[str, NDArray[Any] | float]) -> Any:
        """Its value; NaN where any of its signals is missing or the formula has none."""
        return self._evaluate(self._program, signals)

    def _evaluate(
        self, program: list[float | str | tuple[Function, int]], signals: Mapping[str, NDArray[Any] | float]
    ) -> Any:
        stack: list[Any] = []
        with np.errstate(all="ignore"):
            for item in program:
                if isinstance(item, str):
                    stack.append(np.asarray(signals[item], np.float64))
                elif isinstance(item, float):
                    stack.append(np.float64(item))
                else:
                    function, count = item
                    values = stack[-count:]
                    del stack[-count:]
                    stack.append(np.asarray(function(*values), np.float64))
            # A comparison with what is missing is false, and would count as 0.
            missing = reduce(operator.or_, (np.isnan(signals[name]) for name in self.names), np.False_)
            return np.where(missing, np.nan, stack[0])

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"


#: How far two sides of a comparison are on its right side, in their own unit; ± 1 where there is no distance.
_MARGINS: dict[type[ast.AST], Function] = {
    ast.Gt: operator.sub,
    ast.GtE: operator.sub,
    ast.Lt: lambda a, b: b - a,
    ast.LtE: lambda a, b: b - a,
    ast.Eq: lambda a, b: np.where(a == b, 1.0, -1.0),
    ast.NotEq: lambda a, b: np.where(a != b, 1.0, -1.0),
}


class Condition(Expression):
    """An expression that holds where it is not 0, with a margin: by how much it holds, or fails below 0.

    The margin of ``a > b`` is a − b, of ``and`` the smallest margin, of ``or`` the greatest, of ``not`` the negative,
    and of whatever else ± 1.

    >>> import numpy as np
    >>> hot = Condition("T > 30 and not H < 20")
    >>> signals = {"T": np.array([31.0, 35.0, 20.0]), "H": np.array([50.0, 18.0, np.nan])}
    >>> hot(signals).tolist(), hot.margin(signals).tolist()
    ([1.0, 0.0, nan], [1.0, -2.0, nan])
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._margins: list[float | str | tuple[Function, int]] = []
        todo: list[tuple[ast.AST, bool]] = [(self._tree, True)]
        while todo:
            node, holds = todo.pop()
            item: float | str | tuple[Function, int]
            operands: list[tuple[ast.AST, bool]]
            match node:
                case ast.Compare(left=left, ops=[op], comparators=[right]) if holds:
                    item, operands = (_MARGINS[type(op)], 2), [(left, False), (right, False)]
                case ast.BoolOp(op=op, values=values) if holds:
                    smallest_or_greatest = np.minimum if isinstance(op, ast.And) else np.maximum
                    item = (lambda *margins, f=smallest_or_greatest: reduce(f, margins)), len(values)
                    operands = [(value, True) for value in values]
                case ast.UnaryOp(op=ast.Not(), operand=operand) if holds:
                    item, operands = (operator.neg, 1), [(operand, True)]
                case _ if holds:
                    item, operands = (lambda value: np.where(value != 0, 1.0, -1.0), 1), [(node, False)]
                case _:
                    item, numbers = self._decompose(node)
                    operands = [(number, False) for number in numbers]
            self._margins.append(item)
            todo += operands
        self._margins.reverse()

    def margin(self, signals: Mapping[str, NDArray[Any] | float]) -> Any:
        """By how much it holds; NaN where any of its signals is missing."""
        return self._evaluate(self._margins, signals)
