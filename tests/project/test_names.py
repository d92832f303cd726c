"""Names that a reader meets: no class name stands for two things."""

from __future__ import annotations

import ast
import importlib
import sys
from collections import defaultdict
from pathlib import Path

import pytest

import emphatic
from emphatic._moved import MOVED

PACKAGE = Path(emphatic.__file__).parent


def test_public_class_names_are_unique() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(path.relative_to(PACKAGE)))
    assert {name: places for name, places in found.items() if len(places) > 1} == {}


@pytest.mark.parametrize("old", MOVED)
def test_modules_can_be_imported_by_their_old_names(old: str) -> None:
    if "cuda" in old or "device" in old:
        pytest.importorskip("torch", reason="needs torch: pip install 'emphatic[cuda]'")
        pytest.importorskip("triton", reason="needs triton: pip install 'emphatic[cuda]'")
    module = importlib.import_module(f"emphatic.{old}")
    assert module is sys.modules[f"emphatic.{MOVED[old]}"]
    assert module.__spec__ is not None
    assert module.__spec__.name == module.__name__ == f"emphatic.{MOVED[old]}"
