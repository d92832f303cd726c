"""The parts that features are composed of: one file per kind, plain records, in Python and in TOML.

A part is of signals ("S1", several, or "*" for all), of their traces or of their changes:

    SoftBins(Trace("*", steps=30), bins=20)
    kind = "soft_bins", of = { trace = "*", steps = 30 }, bins = 20

Each module of this package defines one kind completely, and has the kind's name in TOML.
"""

from __future__ import annotations

import sys
from typing import Any

from emphatic.common.names import show
from emphatic.features import sources
from emphatic.features.discovery import classes
from emphatic.features.parts._part import Part
from emphatic.learning.inputs import refusal

__all__ = ["KINDS", "Part", "check_kind", "from_config"]

#: The kinds by their names in TOML.
KINDS: dict[str, type[Part]] = classes(sys.modules[__name__], Part)
# Kept importable from here, as when this was one module.
globals().update({kind.__name__: kind for kind in (*KINDS.values(), *sources.KINDS.values())})


def check_kind(part: Part) -> None:
    """Raise for a part that could not be read back."""
    if KINDS.get(getattr(part, "kind", "")) is not type(part):
        raise ValueError(
            f"{part!r} cannot be saved: {type(part).__name__} is not one of the library's kinds of features, and could "
            "not be read back. Use Function, which can be supplied again on loading, or list its parts instead."
        )


def from_config(table: Any) -> Part:
    """The part that a table of a TOML file describes."""
    if not isinstance(table, dict) or table.get("kind") not in KINDS:
        got = table.get("kind") if isinstance(table, dict) else table
        raise refusal("kind", "a feature", f"be one of {', '.join(KINDS)}", show(got))
    return KINDS[table["kind"]].from_config({name: value for name, value in table.items() if name != "kind"})
