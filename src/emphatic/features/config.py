"""Parts as tables of a TOML or JSON file, and back.

[[features]]
kind = "soft_bins"
of = { trace = "*", steps = [4, 16] }
bins = 20
"""

from __future__ import annotations

import dataclasses
from typing import Any

from emphatic.features.parts import Bias, Change, Missing, OneHot, Part, SoftBins, Tiles, TimeOfDay, TimeOfWeek, Trace
from emphatic.learning.inputs import refusal

__all__ = ["from_config"]

KINDS: dict[str, type[Part]] = {
    part.kind: part for part in (Bias, SoftBins, Tiles, TimeOfDay, TimeOfWeek, OneHot, Missing)
}


def from_config(table: Any) -> Part:
    """The part that a table of a TOML file describes."""
    if not isinstance(table, dict) or table.get("kind") not in KINDS:
        got = table.get("kind") if isinstance(table, dict) else table
        raise refusal("kind", "a feature", f"be one of {', '.join(KINDS)}", repr(got))
    part = KINDS[table["kind"]]
    given = {name: value for name, value in table.items() if name != "kind"}
    if "of" in given and part in (SoftBins, Tiles):
        of = given["of"]
        given["of"] = [_source(one) for one in of] if isinstance(of, list) else _source(of)
    made: Part = _made(part, part.kind, given)
    return made


def _source(given: Any) -> Any:
    if not isinstance(given, dict):
        return given
    for kind in (Trace, Change):
        name = kind.__name__.lower()
        if name in given:
            return _made(kind, name, {"of" if key == name else key: value for key, value in given.items()})
    raise refusal("of", "a feature", "be a name, { trace = …, steps = … } or { change = … }", repr(given))


def _made(record: Any, name: str, given: dict[str, Any]) -> Any:
    fields = {item.name: item for item in dataclasses.fields(record)}
    for key in given:
        if key not in fields:
            raise ValueError(f"The '{key}' parameter of {name} is not one of its parameters: {', '.join(fields)}.")
    for key, item in fields.items():
        if item.default is dataclasses.MISSING and key not in given:
            raise ValueError(f"The '{key}' parameter of {name} is required.")
    of = () if "of" not in given else (given.pop("of"),)
    return record(*of, **given)
