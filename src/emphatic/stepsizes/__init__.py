"""Step sizes: schedules fixed in advance, and methods that adapt them while learning.

``Learner(rule, n, stepsize=…)`` accepts a name from ``names()`` or an object of one of these classes. The ``alpha`` of
``learn`` and ``run`` then multiplies the method's step size: 1 leaves it unchanged, 0 freezes the weights.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from emphatic.common.discovery import discover
from emphatic.common.names import check_names
from emphatic.stepsizes.autostep import Autostep
from emphatic.stepsizes.idbd import IDBD, TIDBD
from emphatic.stepsizes.meta_gradient import Emphatic, SwiftTD
from emphatic.stepsizes.method import StepSize, parse_number
from emphatic.stepsizes.rprop import RPROP
from emphatic.stepsizes.scalar import AlphaBound, Auto, Constant, Decaying, Scaled, constant, decaying

__all__ = [
    "IDBD",
    "RPROP",
    "TIDBD",
    "AlphaBound",
    "Auto",
    "Autostep",
    "Constant",
    "Decaying",
    "Emphatic",
    "Scaled",
    "StepSize",
    "SwiftTD",
    "constant",
    "decaying",
    "get",
    "names",
]

_PLUGINS = discover(__name__, "emphatic.stepsizes")

#: Simple ones first; a method that is not among these comes after them.
_SCALAR = ("constant", "scaled", "decaying", "alphabound", "auto")
_ORDER = (*_SCALAR, "idbd", "tidbd", "autostep", "rprop", "swifttd", "emphatic")


def names() -> tuple[str, ...]:
    """The names of the step-size methods: those of the library, and those of other distributions' entry points.

    >>> "auto" in names()
    True
    """
    return (*_library(), *_PLUGINS.entry_points)


def get(stepsize: Any) -> StepSize:
    """The step-size method that an argument ``stepsize`` names.

    Args:
        stepsize: a name from ``names()``, for the default options; {"name": …, option: …}, as ``StepSize.config``
            writes it; or a method, which is returned as it is.

    Raises:
        ValueError: if there is no such method, or it has no such option.

    >>> get({"name": "autostep", "mu": 0.1})
    Autostep(alpha=0.01, mu=0.1, tau=10000.0)
    """
    if isinstance(stepsize, StepSize):
        return stepsize
    if isinstance(stepsize, Mapping):
        options = {key: parse_number(value) for key, value in stepsize.items() if key != "name"}
        kind = type(get(stepsize.get("name")))
        check_names(options, [field.name for field in fields(kind)], f"stepsize {kind.name!r}")
        return kind(**options)
    if not isinstance(stepsize, str) or not (stepsize in _library() or stepsize in _PLUGINS.entry_points):
        raise ValueError(
            f"The 'stepsize' parameter must be one of {', '.join(names())}, or an object of emphatic.stepsizes. "
            f"Got {stepsize!r} instead."
        )
    return kind_of(stepsize)()


def kind_of(name: str) -> type[StepSize]:
    """The class of the method of this name; KeyError or TypeError if there is none."""
    if name in _library():
        return _library()[name]
    if name not in _PLUGINS.entry_points:
        raise KeyError(name)
    wanted = f"a subclass of emphatic.stepsizes.StepSize with the name {name!r}"
    kind: type[StepSize] = _PLUGINS.objects(name, lambda kind: _is_method(kind) and kind.name == name, wanted)[0]
    return kind


@functools.cache
def _library() -> dict[str, type[StepSize]]:
    """The methods that the files of this package define."""
    kinds = {kind.name: kind for file in _PLUGINS.files for kind in _PLUGINS.objects(file, _is_method, "a method")}
    ordered = [*(name for name in _ORDER if name in kinds), *sorted(kinds.keys() - set(_ORDER))]
    return {name: kinds[name] for name in ordered}


def _is_method(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, StepSize) and hasattr(value, "name")
