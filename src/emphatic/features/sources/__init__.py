"""Sources of parts other than the readings themselves: one file per kind.

A source is a record with ``of`` and ``steps``, an operation ``op`` of the loop over rows (``kernels.sense``), and is
written in TOML as { name = …, steps = … }, by the name of its file.
"""

from __future__ import annotations

import sys
from typing import Any

from emphatic.common.names import show
from emphatic.features.discovery import classes
from emphatic.features.records import from_fields
from emphatic.features.sources._smoothed import Names, Smoothed
from emphatic.learning.inputs import refusal

__all__ = ["KINDS", "Names", "Smoothed", "from_config"]

#: The kinds by their names in TOML.
KINDS: dict[str, type[Smoothed]] = classes(sys.modules[__name__], Smoothed)


def from_config(table: Any) -> Any:
    """The source that a table of a TOML file describes; names are as they are."""
    if not isinstance(table, dict):
        return table
    for name, kind in KINDS.items():
        if name in table:
            return from_fields(kind, name, {"of" if key == name else key: value for key, value in table.items()})
    tables = " or ".join(f"{{ {name} = …, steps = … }}" for name in KINDS)
    raise refusal("of", "a feature", f"be a name, {tables}", show(table))
