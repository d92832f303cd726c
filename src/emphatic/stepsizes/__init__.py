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
        _check_name(type(stepsize))
        return stepsize
    if isinstance(stepsize, Mapping):
        options = {key: parse_number(value) for key, value in stepsize.items() if key != "name"}
        kind = type(get(stepsize.get("name")))
        check_names(options, [field.name for field in fields(kind)], f"stepsize {kind.name!r}")
        return kind(**options)
    if isinstance(stepsize, str) and (stepsize in names() or _defined(stepsize) is not None):
        return kind_of(stepsize)()
    raise ValueError(
        f"The 'stepsize' parameter must be one of {', '.join(names())}, or an object of emphatic.stepsizes. "
        f"Got {stepsize!r} instead."
    )


def kind_of(name: str) -> type[StepSize]:
    """The class of the method of this name, also of one that this process has defined; KeyError if there is none."""
    if name in _library():
        return _library()[name]
    if name not in _PLUGINS.entry_points:
        defined = _defined(name)
        if defined is None:
            raise KeyError(f"step-size method {name!r}, which is not installed: import the module that defines it")
        return defined
    wanted = f"a subclass of emphatic.stepsizes.StepSize with the name {name!r}"
    kind: type[StepSize] = _PLUGINS.objects(name, lambda kind: _is_method(kind) and kind.name == name, wanted)[0]
    return kind


def _defined(name: str) -> type[StepSize] | None:
    """The method of this name that a module or a notebook has defined."""
    kinds = StepSize.__subclasses__()
    for kind in kinds:
        kinds += kind.__subclasses__()
    # The latest, where a notebook's cell has run twice.
    return next((kind for kind in reversed(kinds) if vars(kind).get("name") == name), None)


def is_own(method: StepSize) -> bool:
    """Whether a method is not one of the library's."""
    return type(method) not in _library().values()


@functools.cache
def _library() -> dict[str, type[StepSize]]:
    """The methods that the files of this package define."""
    kinds = {kind.name: kind for file in _PLUGINS.files for kind in _PLUGINS.objects(file, _is_method, "a method")}
    ordered = [*(name for name in _ORDER if name in kinds), *sorted(kinds.keys() - set(_ORDER))]
    return {name: kinds[name] for name in ordered}


def _check_name(kind: type[StepSize]) -> None:
    """ValueError unless a method has a name of its own, by which it is found again when it is saved."""
    name = vars(kind).get("name")
    is_taken = name in _library() or name in _PLUGINS.entry_points
    if not isinstance(name, str) or (is_taken and kind_of(name) is not kind):
        taken = f"{name!r}, which is another's" if name else "none"
        raise ValueError(f"The 'name' attribute of {kind.__name__} must be a name of its own. Got {taken} instead.")


def _is_method(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, StepSize) and hasattr(value, "name")
