"""How large and how readable the package is: ``python -m tools.measure_code [FOLDER] [--list MEASURE]``.

Prints a table by package, then every measure beside its limit. ``--list`` prints the places that a measure counts.
The limits keep the package small enough for one person, and readable: few and deep modules, names of the domain, types
and documentation. A limit of size only falls: a test also fails when the size lies far below its limit, which then
follows. Tests, benchmarks and docs have ceilings.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import re
import sys
import tomllib
import types
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "emphatic"

#: Pronouns, participles and the like, which say nothing of what a variable holds.
VAGUE = frozenset(
    {
        *("told", "said", "found", "made", "given", "kept", "held", "taken", "own", "some", "each", "one", "those"),
        *("these", "rest", "more", "whole", "part", "parts", "apart", "again", "other", "others", "before", "after"),
        *("now", "following", "first", "last"),
    }
)
#: The largest size of the package, in code lines. It only falls, but for what these add once: ``bounded_etd`` and its
#: default 500, ``bootstrap`` 600, ``jax`` and ``export`` 450, and ``answers`` 2,400 until all that it replaces is gone.
#: What moves to another package takes its part of the limit along.
CODE_LINES = 37_832
#: The same by package; "." is what lies beside the packages.
PACKAGE_LINES = {
    ".": 505,
    "common": 562,
    "control": 902,
    "engines": 6_162,
    "features": 1_170,
    "gvfs": 822,
    "hordes": 1_526,
    "learning": 2_422,
    "nexting": 680,
    "nexting.answers": 2_400,
    "nexting.cli": 1_124,
    "nexting.data": 4,
    "nexting.report": 687,
    "nexting.runs": 4_485,
    "nexting.scores": 179,
    "nexting.serve": 2_867,
    "nexting.tables": 4_806,
    "problems": 1_183,
    "rules": 1_999,
    "stepsizes": 813,
    "studies": 2_539,
}
#: The largest value that each measure may have.
LIMITS: dict[str, float] = {
    "code lines": CODE_LINES,
    **{f"code lines of {package}": lines for package, lines in PACKAGE_LINES.items()},
    "modules": 212,  # more only for what CODE_LINES names, the modules that it needs
    "command-line options": 78,
    "mandatory dependencies": 11,
    "functions of complexity above 25": 36,
    "arguments of a kernel": 40,
    "code lines of tests": 33_600,
    "code lines of benchmarks": 4_200,  # of these 500 for ``offpolicy`` and 400 for ``answers``
    "words of docs": 28_800,
    "imports, % of code lines": 7.0,
    "vague names per 1,000 code lines": 5.0,
    "functions called number": 0,
    ": Any": 131,
    "fmt: skip outside kernels": 0,
    "uses of another class's _private": 15,
    "small modules that one module imports": 1,  # engines/magnitude.py: its name is part of a compiled kernel's
    "checks of complexity above 10": 0,
    "undocumented public arguments": 0,
}
#: How far below its limit a measure of the package's size may lie, before the limit has to follow.
SLACK: dict[str, float] = {
    "code lines": 200,
    **dict.fromkeys((f"code lines of {package}" for package in PACKAGE_LINES), 200),
    "modules": 212,
    "command-line options": 5,
    "mandatory dependencies": 0,
    "functions of complexity above 25": 36,
    "arguments of a kernel": 0,
}
#: A module with fewer lines that only one other module imports belongs into that one.
SMALL = 100
COMPLEX = 10
#: A function that forks more often is read by nobody.
TOO_COMPLEX = 25
#: Names of functions that check input.
CHECK = re.compile(r"_*(check|checked|require|validate|verify|refuse)(_|$)")
#: Modules whose text is compiled: engines find them by name, and their lines follow the shape of a formula.
KERNEL = re.compile(r"kernels$|_functions$|^intrinsics$|^unrolled$|^cuda_(products|rows|blocks)$")
#: What a named tuple offers to everybody, in spite of the underscore; and a documented function of Python.
PUBLIC = frozenset({"_replace", "_asdict", "_fields", "_make", "_getframe", "_exit"})

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Module:
    """One file, and what is counted in it."""

    name: str
    path: Path
    text: str
    tree: ast.Module = field(init=False)

    def __post_init__(self) -> None:
        self.tree = ast.parse(self.text)

    @property
    def package(self) -> str:
        names = self.name.split(".")
        depth = 3 if names[1:2] == ["nexting"] and (len(names) > 3 or self.path.stem == "__init__") else 2
        is_inside = len(names) > depth or (self.path.stem == "__init__" and len(names) > 1)
        return ".".join(names[1:depth]) or "." if is_inside else ".".join(names[1 : depth - 1]) or "."

    @property
    def is_kernel(self) -> bool:
        return KERNEL.search(self.path.stem) is not None

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    def place(self, node: Any, what: str = "") -> str:
        return f"{self.path.relative_to(ROOT) if self.path.is_relative_to(ROOT) else self.path}:{node.lineno} {what}"

    @cached_property
    def code_lines(self) -> int:
        """Lines without comments, docstrings and blank lines."""
        code = {i for i, line in enumerate(self.text.splitlines(), 1) if line.strip() and line.lstrip()[0] != "#"}
        for node in self._strings:
            code.update(range(node.lineno, node.end_lineno + 1))
        for node in self.nodes:
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                code.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        return len(code)

    @cached_property
    def _strings(self) -> list[Any]:
        """The strings of the code, also those with fields."""
        return [
            node
            for node in self.nodes
            if isinstance(node, ast.JoinedStr)
            or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))
        ]

    @cached_property
    def comments(self) -> int:
        """Lines with a # that is in no string; one between the lines of a string is not seen."""
        strings: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for node in self._strings:
            for i in range(node.lineno, node.end_lineno + 1):
                begin = node.col_offset if i == node.lineno else 0
                strings[i].append((begin, node.end_col_offset if i == node.end_lineno else sys.maxsize))
        return sum(
            any(
                not any(begin <= mark.start() < end for begin, end in strings[i])
                for mark in re.finditer(b"#", line.encode())
            )
            for i, line in enumerate(self.text.splitlines(), 1)
            if "#" in line
        )

    @property
    def import_lines(self) -> int:
        imports = (node for node in self.nodes if isinstance(node, ast.Import | ast.ImportFrom))
        return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in imports)

    def vague_names(self) -> Iterator[str]:
        for node in self.nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id.strip("_") in VAGUE:
                yield self.place(node, node.id)

    def called_number(self) -> Iterator[str]:
        for node in self.nodes:
            if isinstance(node, Function) and node.name.strip("_") in ("number", "numbers"):
                yield self.place(node, node.name)

    def any_annotations(self) -> Iterator[str]:
        """Lines with ``: Any``; a line counts once."""
        yield from (
            f"{self.path}:{i}" for i, line in enumerate(self.text.splitlines(), 1) if re.search(": Any\\b", line)
        )

    def unformatted(self) -> Iterator[str]:
        if not self.is_kernel:
            yield from (f"{self.path}:{i}" for i, line in enumerate(self.text.splitlines(), 1) if "fmt: skip" in line)

    def private_uses(self) -> Iterator[str]:
        """Uses of ``object._name`` outside of the class that defines ``_name``."""
        classes = [(node, _defined(node)) for node in self.nodes if isinstance(node, ast.ClassDef)]
        for node in self.nodes:
            if not isinstance(node, ast.Attribute) or not re.match(r"_[^_]", node.attr) or node.attr in PUBLIC:
                continue
            itself = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            around = (names for cls, names in classes if cls.lineno <= node.lineno <= (cls.end_lineno or cls.lineno))
            if not itself and not any(node.attr in names for names in around):
                yield self.place(node, ast.unparse(node))

    def functions(self) -> Iterator[Function]:
        yield from (node for node in self.nodes if isinstance(node, Function))

    def complex_checks(self) -> Iterator[str]:
        """Functions that check input and fork too often; the rules are left alone."""
        for function in self.functions():
            if self.package != "rules" and CHECK.match(function.name) and (count := complexity(function)) > COMPLEX:
                yield self.place(function, f"{function.name}: {count}")

    def too_complex(self) -> Iterator[str]:
        for function in self.functions():
            if (count := complexity(function)) > TOO_COMPLEX:
                yield self.place(function, f"{function.name}: {count}")

    def kernel_arguments(self) -> dict[str, int]:
        """How many arguments each function of a module of numba kernels has, by its place.

        A record or a tuple of arrays is one of them. Triton's kernels are left alone: they take neither.
        """
        if not self.is_kernel or "cuda" in self.name:
            return {}
        return {self.place(function, function.name): len(function.args.args) for function in self.functions()}

    def imported(self, modules: set[str]) -> set[str]:
        """The modules of the package that this one imports, anywhere in its text."""
        names: set[str] = set()
        for node in self.nodes:
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        return names & modules


def _defined(cls: ast.ClassDef) -> frozenset[str]:
    """The names that a class defines: methods, class attributes and attributes of ``self``."""
    names: set[str] = set()
    for node in ast.walk(cls):
        if isinstance(node, Function):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
                names.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return frozenset(names)


def complexity(function: ast.AST) -> int:
    """Cyclomatic complexity, as radon counts it: one more for every place where the way forks.

    >>> complexity(ast.parse("def f(x):\\n    if x and x > 1:\\n        return [y for y in x if y]").body[0])
    5
    """
    count = 1
    for node in ast.walk(function):
        if isinstance(
            node, ast.If | ast.IfExp | ast.With | ast.AsyncWith | ast.Assert | ast.ExceptHandler | ast.Lambda
        ):
            count += 1
        elif isinstance(node, ast.For | ast.AsyncFor | ast.While):
            count += 1 + bool(node.orelse)
        elif isinstance(node, ast.comprehension):
            count += 1 + len(node.ifs)
        elif isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
        elif isinstance(node, ast.match_case) or (isinstance(node, Function) and node is not function):
            count += 1
    return count


def read_modules(folder: Path) -> list[Module]:
    """Every module below the folder of a package."""
    modules = []
    for path in sorted(folder.rglob("*.py")):
        parts = (folder.name, *path.relative_to(folder).with_suffix("").parts)
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        modules.append(Module(name, path, path.read_text(encoding="utf-8")))
    return modules


def small_modules(modules: list[Module]) -> Iterator[str]:
    """Modules of a few lines that one other module imports; rules, kernels and public modules excepted."""
    names = {module.name for module in modules}
    importers: dict[str, set[str]] = defaultdict(set)
    for module in modules:
        for name in module.imported(names - {module.name}):
            importers[name].add(module.name)
    for module in modules:
        is_public = importers[module.name] == {module.name.partition(".")[0]}  # by the face of the whole package
        left_alone = module.path.stem == "__init__" or module.is_kernel or module.package == "rules" or is_public
        if module.lines < SMALL and len(importers[module.name]) == 1 and not left_alone:
            yield f"{module.path} {module.lines} lines, only imported by {min(importers[module.name])}"


# ------------------------------------------------------------------------------------------------ documentation


def public_objects() -> dict[str, Any]:
    """Every name that users can reach: of ``emphatic.__all__``, of its modules, and of the pages of reference."""
    import emphatic

    objects = {f"emphatic.{name}": getattr(emphatic, name) for name in emphatic.__all__}
    for page in sorted((ROOT / "docs" / "api").glob("*.md")):
        for dotted in re.findall(r"^::: (emphatic[\w.]*)", page.read_text(encoding="utf-8"), re.M):
            objects[dotted] = _resolve(dotted)
    for name, value in list(objects.items()):
        if isinstance(value, types.ModuleType):
            del objects[name]
            objects |= {f"{name}.{member}": getattr(value, member) for member in getattr(value, "__all__", ())}
    callables = {name: value for name, value in objects.items() if inspect.isclass(value) or inspect.isfunction(value)}
    return {min(names): value for value, names in _by_identity(callables)}


def _resolve(dotted: str) -> Any:
    try:
        return importlib.import_module(dotted)
    except ModuleNotFoundError:
        module, _, name = dotted.rpartition(".")
        return getattr(_resolve(module), name)


def _by_identity(objects: dict[str, Any]) -> list[tuple[Any, list[str]]]:
    names: dict[int, list[str]] = defaultdict(list)
    for name, value in objects.items():
        names[id(value)].append(name)
    return [(objects[aliases[0]], aliases) for aliases in names.values()]


def undocumented_arguments() -> Iterator[str]:
    """Arguments of public functions, classes and methods that no ``Args:`` names."""
    for name, value in public_objects().items():
        yield from _undocumented(name, value, inspect.getdoc(value) or "")
        if not inspect.isclass(value):
            continue
        for member in sorted(vars(value)):
            function = inspect.unwrap(_function_of(vars(value)[member]))
            ours = inspect.isfunction(function) and function.__module__.startswith("emphatic")
            if ours and not member.startswith("_"):
                yield from _undocumented(f"{name}.{member}", function, inspect.getdoc(getattr(value, member)) or "")


def _function_of(member: Any) -> Any:
    return member.__func__ if isinstance(member, staticmethod | classmethod) else member


def _undocumented(name: str, value: Any, doc: str) -> Iterator[str]:
    try:
        parameters = list(inspect.signature(value).parameters)
    except (TypeError, ValueError):
        return
    if inspect.isclass(value) and issubclass(value, BaseException) and "__init__" not in vars(value):
        return
    if getattr(value, "_is_protocol", False):  # nobody creates one; its methods are documented
        return
    documented = documented_arguments(doc)
    for parameter in parameters:
        if parameter not in documented and parameter not in ("self", "cls") and not parameter.startswith("_"):
            yield f"{name}({parameter})"


def documented_arguments(doc: str) -> set[str]:
    """The names in the sections ``Args:`` and ``Attributes:`` of a docstring in Google's style.

    >>> sorted(documented_arguments("Do it.\\n\\nArgs:\\n    a: A number.\\n    b, c: Two.\\n    **d (int): More.\\n"))
    ['a', 'b', 'c', 'd']
    """
    names: set[str] = set()
    for section in re.finditer(r"^(?:Args|Attributes):\n((?:[ \t]+.*\n?|\n)+)", doc, re.M):
        for line in re.finditer(r"^[ \t]+((?:\*{0,2}\w+(?:, )?)+)(?: \(.*?\))?:", section[1], re.M):
            names |= {name.lstrip("*") for name in line[1].split(", ")}
    return names


# ------------------------------------------------------------------------------------------------ the table


#: Measures that count places in one module, each with the method that finds them.
PLACES = {
    "vague names per 1,000 code lines": Module.vague_names,
    "functions called number": Module.called_number,
    ": Any": Module.any_annotations,
    "fmt: skip outside kernels": Module.unformatted,
    "uses of another class's _private": Module.private_uses,
    "checks of complexity above 10": Module.complex_checks,
    "functions of complexity above 25": Module.too_complex,
}
LISTED = (*PLACES, "small modules that one module imports", "undocumented public arguments")


def places(measure: str, modules: list[Module]) -> list[str]:
    """The places that a measure counts."""
    if measure in PLACES:
        return [place for module in modules for place in PLACES[measure](module)]
    return list(small_modules(modules) if measure.startswith("small") else undocumented_arguments())


def measure(modules: list[Module]) -> dict[str, float]:
    """Every measure of ``LIMITS``, and the size of packages that have no limit yet."""
    code = sum(module.code_lines for module in modules)
    values: dict[str, float] = {name: len(places(name, modules)) for name in LISTED}
    values["modules"], values["code lines"] = len(modules), code
    values |= {f"code lines of {package}": 0 for package in PACKAGE_LINES}
    for module in modules:
        name = f"code lines of {module.package}"
        values[name] = values.get(name, 0) + module.code_lines
    values["command-line options"] = len(list(options()))
    values["mandatory dependencies"] = len(
        tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    )
    values["arguments of a kernel"] = max(count for module in modules for count in module.kernel_arguments().values())
    values["code lines of tests"] = sum(module.code_lines for module in read_modules(ROOT / "tests"))
    values["code lines of benchmarks"] = sum(module.code_lines for module in read_modules(ROOT / "benchmarks"))
    values["words of docs"] = sum(len(page.read_text("utf-8").split()) for page in (ROOT / "docs").glob("*.md"))
    values["imports, % of code lines"] = 100.0 * sum(module.import_lines for module in modules) / code
    values["vague names per 1,000 code lines"] *= 1000.0 / code
    return values


def options() -> Iterator[str]:
    """The options of every command, but ``--help`` and those of the shell's completion."""
    import typer

    from emphatic.nexting.cli import app

    def below(command: Any, path: str) -> Iterator[str]:
        for parameter in command.params:
            if parameter.param_type_name == "option" and not parameter.opts[0].endswith(("help", "-completion")):
                yield f"{path} {parameter.opts[0]}"
        for name, inner in getattr(command, "commands", {}).items():
            yield from below(inner, f"{path} {name}")

    yield from below(typer.main.get_command(app), "emphatic")


def exceeded(values: dict[str, float]) -> list[str]:
    """The measures above their limits."""
    return [name for name, value in values.items() if value > LIMITS.get(name, 0)]


def slack(values: dict[str, float]) -> list[str]:
    """The measures so far below their limits that these have to follow."""
    return [name for name, room in SLACK.items() if values[name] < LIMITS[name] - room]


def by_package(modules: list[Module]) -> str:
    """A table with a row for each package."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for module in modules:
        counts[module.package].update(
            {
                "modules": 212,
                "lines": module.lines,
                "code": module.code_lines,
                "imports": module.import_lines,
                "vague": len(list(module.vague_names())),
                "private": len(list(module.private_uses())),
                "Any": len(list(module.any_annotations())),
                "fmt": len(list(module.unformatted())),
                "comments": module.comments,
            }
        )
    counts["all"] = sum(counts.values(), Counter())
    columns = ("modules", "lines", "code", "imports", "vague", "private", "Any", "fmt", "comments")
    lines = [f"{'package':12}" + "".join(f"{column:>10}" for column in columns)]
    for package, count in counts.items():
        lines.append(f"{package:12}" + "".join(f"{count[column]:10,}" for column in columns))
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.measure_code", description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "folder", nargs="?", type=Path, default=PACKAGE, help="a package's folder; default: src/emphatic"
    )
    parser.add_argument("--list", choices=LISTED, metavar="MEASURE", help="print the places that it counts")
    arguments = parser.parse_args()
    modules = read_modules(arguments.folder.resolve())
    if arguments.list:
        print("\n".join(places(arguments.list, modules)))
        return 0
    print(by_package(modules), end="\n\n")
    values = measure(modules)
    too_much, too_little = exceeded(values), slack(values)
    for name, value in values.items():
        verdict = "  EXCEEDED" if name in too_much else "  LOWER THE LIMIT" if name in too_little else ""
        print(f"{name:50} {value:10,.1f}  at most {LIMITS.get(name, 0):,g}{verdict}")
    return 1 if too_much or too_little else 0


if __name__ == "__main__":
    sys.exit(main())
