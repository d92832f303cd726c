"""Names that a reader meets: no class name stands for two things."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import emphatic

PACKAGE = Path(emphatic.__file__).parent


def test_public_class_names_are_unique() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(path.relative_to(PACKAGE)))
    assert {name: places for name, places in found.items() if len(places) > 1} == {}
