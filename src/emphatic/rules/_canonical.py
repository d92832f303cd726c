"""One canonical form for the function of every rule, which NumPy, numba and Triton all accept.

    def rule(step, memory, x, x_next, g):
        …

without decorators, annotations and docstring; every literal is a float, a number from outside has the value that it
had when the rule was created, and indexing is replaced by unpacking. Anything that some compiler would reject or
misread is refused here, with an explanation and its line.
"""

from __future__ import annotations

import ast
import math
import os
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

from emphatic.rules._fields import refusal

__all__ = ["Canonical"]

#: What to write in place of what is refused.
_ADVICE: dict[type, str] = {
    ast.AugAssign: "c = c + d for c += d",
    ast.Pow: "c * c for c ** 2",
    ast.If: "a comparison as a factor for a condition",
    ast.IfExp: "a comparison as a factor for a condition",
    ast.BoolOp: "a product of comparisons for 'and'",
    ast.Starred: "a name for each entry",
    ast.AnnAssign: "a name's value beside its annotation",
    ast.Attribute: "the number itself",
    ast.FunctionDef: "what it does in its place",
    ast.Lambda: "what it does in its place",
}
#: The same for functions that are called.
_CALLS = {
    "clip": "min(max(x, low), high)",
    "abs": "max(x, -x)",
    "fabs": "max(x, -x)",
    "maximum": "max(x, y)",
    "minimum": "min(x, y)",
    "sign": "1.0 * (x > 0.0) - 1.0 * (x < 0.0)",
}


class Canonical:
    """Converts a function's statements to the canonical form, one by one."""

    def __init__(
        self,
        rule: str,
        node: ast.FunctionDef | ast.Lambda,
        arguments: Mapping[str, tuple[str, ...]],
        outside: Callable[[str], Any],
        file: str,
        known: Mapping[str, Any],
        field: str = "function",
    ) -> None:
        self.known, self.field = known, field
        self.rule, self.file, self.outside, self.arguments = rule, os.path.basename(file), outside, arguments
        self.body = [ast.Return(node.body)] if isinstance(node, ast.Lambda) else node.body
        self.node = node
        given = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
        if len(given) != len(arguments) or node.args.vararg or node.args.kwonlyargs or node.args.kwarg:
            wanted = f"have the {len(arguments)} parameters {', '.join(arguments)}"
            raise refusal(rule, field, wanted, f"({ast.unparse(node.args)}) at line {node.lineno} of {self.file}")
        stored = {name: "" for statement in self.body for name in _assigned(statement)}
        #: Parameters that are what they were all along, by the canonical name of each.
        self.fixed = {canon for name, canon in zip(given, arguments, strict=True) if name not in stored}
        self.taken = {*arguments, "min", "max", *stored}
        #: What each local name is called in the canonical form.
        self.names = dict(zip(given, arguments, strict=True))
        for name in stored:
            self.names.setdefault(name, self._free(name) if name in {*arguments, "min", "max"} else name)
        #: The names of a parameter's entries, where they are accessed by index.
        self.entries: dict[str, list[str]] = {}

    def function(self) -> ast.Module:
        """The whole function in the canonical form."""
        made = [done for statement in self.body for done in self._statement(statement)]
        if not made or not isinstance(made[-1], ast.Return):
            raise self._refusal(self.node, "end by returning A, B and memory", "a function that does not")
        module = ast.parse(f"def rule({', '.join(self.arguments)}): pass")
        (definition,) = module.body
        assert isinstance(definition, ast.FunctionDef)
        unpacked: list[ast.stmt] = [
            _assign(_tuple([ast.Name(name, ast.Store()) for name in names], ast.Store()), _load(argument))
            for argument, names in self.entries.items()
        ]
        definition.body = unpacked + made
        return module

    # ------------------------------------------------------------------ statements

    def _statement(self, node: ast.stmt) -> list[ast.stmt]:
        match node:
            case ast.Expr(ast.Constant(str())):  # a docstring
                return []
            case ast.Assign([target], value):
                self._count(target, value)
                return [_assign(self._target(target), self._value(value))]
            case ast.AnnAssign(ast.Name() as target, _, ast.expr() as value):
                return [_assign(self._target(target), self._value(value))]
            case ast.Return(ast.expr() as value) if node is self.body[-1]:
                return [ast.Return(self._value(value))]
        raise self._unfit(node)

    def _target(self, node: ast.expr) -> ast.expr:
        match node:
            case ast.Name(name):
                return ast.Name(self.names[name], ast.Store())
            case ast.Tuple(entries) | ast.List(entries) if all(isinstance(entry, ast.Name) for entry in entries):
                return _tuple([self._target(entry) for entry in entries], ast.Store())
            case ast.Tuple(entries) | ast.List(entries):
                raise self._unfit(next(entry for entry in entries if not isinstance(entry, ast.Name)))
        raise self._unfit(node)

    def _count(self, target: ast.expr, value: ast.expr) -> None:
        """Refuse to unpack an argument into more or fewer names than it holds."""
        canon = self.names.get(value.id) if isinstance(value, ast.Name) else None
        if canon in self.fixed and isinstance(target, ast.Tuple | ast.List):
            held, count = self.arguments[canon], len(target.elts)
            starred = any(isinstance(entry, ast.Starred) for entry in target.elts)
            if len(held) != count and not starred:
                wanted = f"unpack '{canon}' into {len(held)}: ({', '.join(held)})"
                raise self._refusal(target, wanted, f"{count} names, `{ast.unparse(target)}`,")

    # ------------------------------------------------------------------ expressions

    def _value(self, node: ast.expr) -> ast.expr:
        """A scalar, or a tuple of such."""
        if isinstance(node, ast.Tuple | ast.List):
            return _tuple([self._value(entry) for entry in node.elts], ast.Load())
        return self.scalar(node)

    def scalar(self, node: ast.expr, *, factor: bool = False) -> ast.expr:
        """One number, in the names of the function."""
        match node:
            case ast.Constant(value):
                return self._as_literal(node, value)
            case ast.Name(name) if name in self.names:
                return _load(self.names[name])
            case ast.Name():
                return self._as_literal(node, self._looked_up(node))
            case ast.BinOp(left, ast.Add() | ast.Sub() | ast.Mult() | ast.Div() as operation, right):
                times = isinstance(operation, ast.Mult)
                return ast.BinOp(self.scalar(left, factor=times), operation, self.scalar(right, factor=times))
            case ast.UnaryOp(ast.USub() as operation, operand):
                return ast.UnaryOp(operation, self.scalar(operand))
            case ast.Compare(left, [ast.Lt() | ast.LtE() | ast.Gt() | ast.GtE() as operation], [right]) if factor:
                return ast.Compare(self.scalar(left), [operation], [self.scalar(right)])
            case ast.Compare(_, [_]):
                raise self._refusal(node, "use <, <=, > and >= only as factors of a product, such as c * (a > b)")
            case ast.Call(ast.Name(("min" | "max") as name), [one, other], []) if self._is_builtin(name):
                return ast.Call(_load(name), [self.scalar(one), self.scalar(other)], [])
            case ast.Call(ast.Name(name), [one], []) if self.known.get(name) and self.outside(name) is self.known[name]:
                return ast.Call(_load(name), [self.scalar(one)], [])
            case ast.Call(callee):
                name = ast.unparse(callee)
                advice = _CALLS.get(name.rpartition(".")[2])
                wanted = "call only Python's min and max, of two numbers each"
                raise self._refusal(node, f"{wanted} (write {advice} for {name})" if advice else wanted)
            case ast.Subscript(ast.Name(name), index):
                return self._entry(node, name, index)
        raise self._unfit(node)

    def _as_literal(self, node: ast.expr, value: Any) -> ast.expr:
        try:
            number = float(value) if isinstance(value, Real) and value is not True and value is not False else math.nan
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            got = f"`{node.id}` = {value!r}" if isinstance(node, ast.Name) else f"`{ast.unparse(node)}`"
            raise self._refusal(node, "use only finite numbers, its own and from outside", got)
        size = ast.Constant(abs(number))
        return ast.UnaryOp(ast.USub(), size) if math.copysign(1.0, number) < 0.0 else size

    def _looked_up(self, node: ast.Name) -> Any:
        try:
            return self.outside(node.id)
        except KeyError:
            raise self._refusal(node, "use names that have a value when the rule is created") from None

    def _is_builtin(self, name: str) -> bool:
        return name not in self.names and self.outside(name) is {"min": min, "max": max}[name]

    def _entry(self, node: ast.Subscript, name: str, index: ast.expr) -> ast.expr:
        """``x[0]`` as a name of its own: not every compiler accepts an index into a tuple."""
        canon = self.names.get(name)
        try:
            at = ast.literal_eval(index)
        except ValueError:
            at = None
        if canon not in self.fixed or type(at) is not int:
            raise self._refusal(node, "take the entries of its parameters by unpacking, or by a literal index")
        held = self.arguments[canon]
        if not -len(held) <= at < len(held):
            raise self._refusal(node, f"take entries that '{canon}' has: ({', '.join(held)})")
        if canon not in self.entries:
            self.entries[canon] = [self._free(f"{canon}_{i}") for i in range(len(held))]
        return _load(self.entries[canon][at])

    # ------------------------------------------------------------------ inside

    def _free(self, name: str) -> str:
        """An unused name similar to this one."""
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def _unfit(self, node: ast.AST) -> ValueError:
        advice = _ADVICE.get(type(node)) or _ADVICE.get(type(getattr(node, "op", None)))
        wanted = "hold assignments of numbers, names, + − * /, min and max of two, and comparisons as factors"
        return self._refusal(node, f"{wanted} (write {advice})" if advice else wanted)

    def _refusal(self, node: ast.AST, wanted: str, got: str = "") -> ValueError:
        shown = got or f"`{ast.unparse(node).splitlines()[0]}`"
        return refusal(self.rule, self.field, wanted, f"{shown} at line {getattr(node, 'lineno', 1)} of {self.file}")


def _assigned(node: ast.stmt) -> list[str]:
    """The names that a statement assigns."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [name.id for target in targets if target for name in ast.walk(target) if isinstance(name, ast.Name)]


def _assign(target: ast.expr, value: ast.expr) -> ast.Assign:
    return ast.Assign([target], value, lineno=1)  # unparse needs a line number


def _load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _tuple(entries: list[ast.expr], context: ast.expr_context) -> ast.Tuple:
    return ast.Tuple(entries, context)
