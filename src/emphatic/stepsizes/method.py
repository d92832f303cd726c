"""The base class of step-size methods: a few options, which may differ between learners, and the rule they produce."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from emphatic.common.names import refusal
from emphatic.rules import AnyRule

__all__ = ["Option", "StepSize", "check_number", "parse_number"]

#: An option of a method: a number, or a (K,) array or list with one for each learner. It is read back as a float or an
#: array: a type checker has no word for an attribute that takes more types than it returns.
Option = Any


@dataclass(frozen=True, eq=False)
class StepSize(ABC):
    """A method that sets step sizes; its fields are numbers, or (K,) arrays with one value per learner.

    A learner keeps them with the rule's memory, as ``stepsize_<field>``: they are saved, selected and joined with it.
    """

    name: ClassVar[str]

    @abstractmethod
    def rule(self, base: AnyRule) -> AnyRule:
        """The base rule with its step sizes set by this method.

        Args:
            base: a rule without a step-size method.

        Raises:
            ValueError: if the method does not fit the rule.
        """

    def memory(self) -> dict[str, Any]:
        """The initial memory of the rule, where it is not 0."""
        return {f"stepsize_{name}": value for name, value in self.options().items() if not isinstance(value, str)}

    def vectors(self) -> dict[str, Any]:
        """The initial value of each component of a vector, where it is not 0."""
        return {}

    def options(self) -> dict[str, Any]:
        """The fields by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def config(self) -> dict[str, Any]:
        """The name and the options, as JSON and TOML can hold them; ``get`` takes it."""
        plain = {
            name: _plain(np.asarray(value).tolist()) for name, value in self.options().items() if value is not None
        }
        return {"name": self.name, **plain}

    def select(self, ks: NDArray[np.intp]) -> Self:
        """The method of some of the learners.

        Args:
            ks: the indices of these learners, in the order that they are to have.
        """
        arrays = {name: value[ks] for name, value in self.options().items() if isinstance(value, np.ndarray)}
        return replace(self, **arrays)

    def header(self) -> dict[str, Any]:
        """The entry for the method in a checkpoint's header; its numbers are in the memory of the rule."""
        texts = {name: value for name, value in self.options().items() if isinstance(value, str)}
        return {"name": self.name, **texts}

    @classmethod
    def restored(cls, header: Mapping[str, Any], memory: Mapping[str, Any]) -> Self:
        """The method of a learner that was saved.

        Args:
            header: what ``header`` returned.
            memory: the memory of the learner's rule by name.
        """
        options: dict[str, Any] = {key: value for key, value in header.items() if key != "name"}
        for field in fields(cls):
            if field.name not in options:
                options[field.name] = memory[f"stepsize_{field.name}"]
        return cls(**options)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        pairs = zip(self.options().values(), other.options().values(), strict=True)
        return all(np.array_equal(ours, theirs) for ours, theirs in pairs)

    __hash__ = None  # type: ignore[assignment]


def _plain(value: object) -> object:
    """Infinity, which JSON does not have, as "inf"."""
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    return "inf" if value == np.inf else value


def parse_number(value: object) -> object:
    """A number, or a list of them, from what ``StepSize.config`` wrote."""
    if isinstance(value, list):
        return [parse_number(entry) for entry in value]
    return np.inf if isinstance(value, str) and value == "inf" else value


def check_number(method: StepSize, name: str, low: float, high: float, wanted: str) -> None:
    """Make the field a float or a (K,) array of float64; ValueError unless it is above ``low`` and at most ``high``."""
    value = getattr(method, name)
    try:
        array = np.asarray(value, np.float64)
        fine = array.ndim <= 1 and array.size > 0 and bool(((array > low) & (array <= high)).all())
    except (TypeError, ValueError):
        fine = False
    if not fine or isinstance(value, bool | str):
        raise refusal(name, type(method).__name__, f"be {wanted}, or an array (K,) of such", repr(value))
    if array.ndim:
        array = array.copy()
        array.flags.writeable = False
    object.__setattr__(method, name, array if array.ndim else float(array))
