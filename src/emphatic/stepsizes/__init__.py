"""Step sizes: schedules fixed in advance, and methods that adapt them while learning.

``Learner(rule, n, stepsize=…)`` accepts a name from ``names()`` or an object of one of these classes. The ``alpha`` of
``learn`` and ``run`` then multiplies the method's step size: 1 leaves it unchanged, 0 freezes the weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

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

_METHODS: dict[str, type[StepSize]] = {
    kind.name: kind
    for kind in (Constant, Scaled, Decaying, AlphaBound, Auto, IDBD, TIDBD, Autostep, RPROP, SwiftTD, Emphatic)
}


def names() -> tuple[str, ...]:
    """The names of the step-size methods.

    >>> "auto" in names()
    True
    """
    return tuple(_METHODS)


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
    if not isinstance(stepsize, str) or stepsize not in _METHODS:
        raise ValueError(
            f"The 'stepsize' parameter must be one of {', '.join(names())}, or an object of emphatic.stepsizes. "
            f"Got {stepsize!r} instead."
        )
    return _METHODS[stepsize]()


def kind_of(name: Any) -> type[StepSize]:
    """The class of the method of this name; KeyError or TypeError if there is none."""
    return _METHODS[name]
