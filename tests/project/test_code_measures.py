"""The measures of the code: ``python -m tools.measure_code`` prints them beside their limits."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tools.measure_code import (
    LIMITS,
    PACKAGE,
    Module,
    complexity,
    documented_arguments,
    exceeded,
    measure,
    read_modules,
    slack,
    small_modules,
)

SOURCE = '''"""A module."""

from a import b  # why

class Box:
    """A box."""

    def __init__(self, size: Any) -> None:
        self._size = size

    def copy(self, part: Box) -> Box:
        found = Box(part._size)
        found._label = part._name  # fmt: skip
        return found
'''


@pytest.fixture
def module() -> Module:
    return Module("emphatic.boxes.box", Path("box.py"), SOURCE)


def test_a_module_is_measured(module: Module) -> None:
    assert module.package == "boxes"
    assert module.code_lines == 8
    assert module.import_lines == 1
    assert module.comments == 2
    assert [place.split()[-1] for place in module.vague_names()] == ["found"]
    assert len(list(module.any_annotations())) == 1
    assert len(list(module.unformatted())) == 1
    assert sorted(place.split()[-1] for place in module.private_uses()) == ["found._label", "part._name"]


def test_complexity_counts_forks() -> None:
    source = "def f(x):\n    for y in x:\n        if y and x or not y:\n            return [z for z in y if z]\n"
    assert complexity(ast.parse(source).body[0]) == 7


def test_documented_arguments() -> None:
    doc = "Do it.\n\nArgs:\n    a: A number: of what.\n        note: not a name, but deeper.\n\nReturns:\n    b: no.\n"
    assert "a" in documented_arguments(doc)
    assert "b" not in documented_arguments(doc)


def test_small_modules_with_one_importer(tmp_path: Path) -> None:
    package = tmp_path / "box"
    package.mkdir()
    for name, text in {"__init__": "", "lid": "x = 1\n", "side": "from box import lid\n", "top": "x = 2\n"}.items():
        (package / f"{name}.py").write_text(text)
    assert [line.split("/")[-1] for line in small_modules(read_modules(package))] == [
        "lid.py 1 lines, only imported by box.side"
    ]


def test_arguments_of_kernels_are_counted(module: Module) -> None:
    kernels = Module("emphatic.boxes.box_kernels", Path("box_kernels.py"), "def add(box, a, b):\n    return a + b\n")
    assert list(kernels.kernel_arguments().values()) == [3]
    assert module.kernel_arguments() == {}


def test_a_limit_holds_and_follows() -> None:
    exact = dict(LIMITS)
    assert exceeded(exact) == slack(exact) == []
    assert exceeded(exact | {"code lines": LIMITS["code lines"] + 1, "code lines of boxes": 1}) == [
        "code lines",
        "code lines of boxes",
    ]
    assert slack(exact | {"code lines": LIMITS["code lines"] - 200}) == []
    assert slack(exact | {"code lines": LIMITS["code lines"] - 201}) == ["code lines"]


def test_the_package_keeps_its_limits() -> None:
    values = measure(read_modules(PACKAGE))
    assert set(values) >= set(LIMITS)
    assert exceeded(values) == [], "python -m tools.measure_code --list MEASURE prints the places"
    assert slack(values) == [], "lower the limits in tools/measure_code.py to what there is"
