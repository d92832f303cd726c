"""The source of a rule's function: found, compared with the code that runs, and written in one canonical form.

The canonical form (``_canonical``) defines a rule's function completely: a kernel cached under the hash of the text
is never used for another rule.
"""

from __future__ import annotations

import ast
import builtins
import copy
import functools
import hashlib
import inspect
import linecache
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress
from typing import Any

from emphatic.rules._canonical import Canonical
from emphatic.rules._fields import refusal

__all__ = ["canonical", "compiled", "effective", "inlined", "needed", "tuple_of"]

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def canonical(
    rule: str, function: Any, arguments: Mapping[str, tuple[str, ...]], field: str = "function", **known: Any
) -> str:
    """The function as the text of one ``def rule(step, memory, x, x_next, g)``.

    ``arguments`` has the contents of each of its arguments, ``field`` names the rule's function, and ``known`` what it
    may call besides ``min`` and ``max``.
    """
    return ast.unparse(_form(rule, function, arguments, known, field).function())


def effective(rule: str, function: Any, arguments: Mapping[str, tuple[str, ...]], expression: Any) -> str:
    """A ``def rule(step, memory)`` that returns this expression in the names of the rule's function."""
    form = _form(rule, function, arguments, {}, "effective_step")
    try:
        value = form.scalar(ast.parse(expression, mode="eval").body)
    except (SyntaxError, TypeError):
        wanted = "be an expression in the names of the function, such as 'rho * alpha * M'"
        raise refusal(rule, "effective_step", wanted, repr(expression)) from None
    module = form.function()
    (definition,) = module.body
    assert isinstance(definition, ast.FunctionDef)
    definition.body = [*needed(definition.body[:-1], _names([value])), ast.Return(value)]
    if used := sorted(_names(definition.body) & {"x", "x_next", "g"}):
        wanted = "depend on step and memory alone"
        raise refusal(rule, "effective_step", wanted, f"`{expression}`, which depends on {used[0]}")
    definition.args.args = [ast.arg("step"), ast.arg("memory")]
    return ast.unparse(module)


def needed(statements: Sequence[ast.stmt], names: Iterable[str]) -> list[ast.stmt]:
    """The assignments, of these, on which the values of these names depend in the end."""
    names = set(names)
    chosen: list[ast.stmt] = []
    for statement in reversed(statements):
        assert isinstance(statement, ast.Assign)
        target, value = statement.targets[0], statement.value
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            wanted = [isinstance(name, ast.Name) and name.id in names for name in target.elts]
            target.elts, value.elts = (list(compress(side.elts, wanted)) for side in (target, value))
        assigned = {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}
        if assigned & names:
            chosen.append(statement)
            names = names - assigned | _names([value])
    return chosen[::-1]


def inlined(source: str, prefix: str, arguments: Mapping[str, str]) -> tuple[list[str], list[str]]:
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


def tuple_of(names: Iterable[str]) -> str:
    """The text of a tuple."""
    return "(" + "".join(f"{name}, " for name in names) + ")"


def compiled(rule: str, source: str) -> types.FunctionType:
    """The canonical text as a function whose globals are ``min`` and ``max`` alone; ``inspect`` finds its source."""
    file = f"<rule {rule!r} {hashlib.sha256(source.encode()).hexdigest()[:16]}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"min": min, "max": max, "__builtins__": {}, "__name__": __name__}
    exec(compile(source, file, "exec", dont_inherit=True), namespace)
    made: types.FunctionType = namespace["rule"]
    return made


def _form(
    rule: str, function: Any, arguments: Mapping[str, tuple[str, ...]], known: Mapping[str, Any], field: str
) -> Canonical:
    if not isinstance(function, types.FunctionType) and callable(function):
        function = inspect.unwrap(function)  # numba.njit and functools.cache keep the function they took
    if not isinstance(function, types.FunctionType):
        raise refusal(rule, field, "be a function written in Python", repr(function))
    node = _node(rule, function, field)
    outside, file = functools.partial(_outside, function), function.__code__.co_filename
    return Canonical(rule, node, arguments, outside, file, known, field)


def _names(nodes: Iterable[ast.AST]) -> set[str]:
    """The names whose values are used."""
    each = (node for tree in nodes for node in ast.walk(tree))
    return {node.id for node in each if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def _node(rule: str, function: types.FunctionType, field: str) -> ast.FunctionDef | ast.Lambda:
    """The syntax tree of the function in the source of its module."""
    code = function.__code__
    try:
        text = "".join(inspect.findsource(function)[0])
    except (OSError, TypeError):
        wanted = "have its source in a file, which engines compile: put the function into a module and import it"
        raise refusal(rule, field, wanted, f"{code.co_name}, whose source is not found") from None
    try:
        tree = _parsed(text)
    except SyntaxError:
        tree = ast.Module([], [])
    nodes = ast.walk(tree) if code.co_name == "<lambda>" else _statements(tree)
    named = [n for n in nodes if isinstance(n, _Function) and getattr(n, "name", "<lambda>") == code.co_name]
    imports = _imports(tree)
    # The nearest first; the line itself may have moved since.
    for node in sorted(named, key=lambda node: abs(node.lineno - code.co_firstlineno)):
        if _traits(_code(node, code.co_freevars, imports)) == _traits(code):
            if isinstance(node, ast.AsyncFunctionDef):
                raise refusal(rule, field, "be a plain function", f"async def {node.name}")
            return node
    wanted = f"be as {code.co_filename} has it, which has changed since then: import it again"
    raise refusal(rule, field, wanted, f"{code.co_name} with other code")


@functools.lru_cache(4)
def _parsed(text: str) -> ast.Module:
    """A file as a tree; a notebook's cell may have ``await`` at its top."""
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    tree: ast.Module = compile(text, "<source>", "exec", flags, dont_inherit=True)
    return tree


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements under the node, without descending into expressions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield child
            yield from _statements(child)


def _imports(tree: ast.Module) -> list[ast.stmt]:
    """The imports at the top of a module: Python compiles ``np.clip(x)`` in another way where np is imported."""
    statements: list[ast.AST] = [tree]
    for statement in statements:
        if not isinstance(statement, _Function | ast.ClassDef):
            children = ast.iter_child_nodes(statement)
            statements += [child for child in children if isinstance(child, ast.stmt | ast.excepthandler)]
    return [statement for statement in statements if isinstance(statement, ast.Import | ast.ImportFrom)]


def _code(node: _Function, free: tuple[str, ...], imports: list[ast.stmt]) -> types.CodeType:
    """What the node compiles to where these names are of a function around it, in a module with these imports."""
    inner = copy.copy(node)
    inner.args = copy.deepcopy(node.args)
    inner.args.defaults, inner.args.kw_defaults = [], [None] * len(inner.args.kwonlyargs)
    for argument in ast.walk(inner.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    if not isinstance(inner, ast.Lambda):
        inner.decorator_list, inner.returns = [], None
    module = ast.parse(f"def outer({', '.join(free)}): pass")
    outer = module.body[0]
    assert isinstance(outer, ast.FunctionDef)
    outer.body = [ast.copy_location(ast.Expr(inner), node) if isinstance(inner, ast.Lambda) else inner]
    module.body = [*imports, outer]
    code = compile(module, "<source>", "exec", dont_inherit=True)
    for _ in range(2):  # from the module into outer, and from there into the function
        code = next(const for const in code.co_consts if isinstance(const, types.CodeType))
    return code


def _traits(code: types.CodeType) -> tuple[object, ...]:
    """Everything that distinguishes code from other code, except its place in a file."""
    consts = [const.co_name if isinstance(const, types.CodeType) else repr(const) for const in code.co_consts]
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount)
    return code.co_code, consts, counts, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars


def _outside(function: types.FunctionType, name: str) -> Any:
    """The value of a name that is not the function's own; KeyError where there is none."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    if name in cells:
        try:
            return cells[name].cell_contents
        except ValueError:
            raise KeyError(name) from None
    return function.__globals__[name] if name in function.__globals__ else vars(builtins)[name]
