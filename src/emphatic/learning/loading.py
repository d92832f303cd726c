"""A learner from the file that ``Learner.save`` wrote."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from emphatic.common.names import refusal, show
from emphatic.learning import checkpoint
from emphatic.learning.learner import Learner
from emphatic.learning.least_squares import LeastSquares
from emphatic.rules import AnyRule

__all__ = ["load"]


def load(
    path: str | os.PathLike[str],
    *,
    engine: str | None = None,
    rule: AnyRule | None = None,
    devices: Sequence[int] | None = None,
) -> Any:
    """The ``Learner`` or ``LeastSquares`` that ``save`` wrote; it continues bit for bit on the same engine.

    ``engine`` names another engine to continue with, and ``devices`` the GPUs among which the cuda engine divides the
    learners: they are not saved. A learner of a ``Rule`` of your own needs that ``rule`` again. What
    more was saved with it is left in the file: ``load_with`` of its class reads that too.
    """
    if checkpoint.has_entry(path, "least_squares"):
        for name, value in (("engine", engine), ("rule", rule), ("devices", devices)):
            if value is not None:
                raise refusal(name, "load", "be left out for a LeastSquares learner", show(value))
        return LeastSquares.load_with(path)[0]
    return Learner._load(path, engine, rule, devices)[0]
