"""Names that a reader meets: no class name stands for two things."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import emphatic

PACKAGE = Path(emphatic.__file__).parent


def test_public_class_names_are_unique() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for name in re.findall(r"^class ([^\W_]\w*)", path.read_text(encoding="utf-8"), re.MULTILINE):
            found[name].append(str(path.relative_to(PACKAGE)))
    assert {"Learner", "Horde"} <= set(found)
    assert {name: places for name, places in found.items() if len(places) > 1} == {}
