"""The limits within which both sparse engines keep X = C·H, as constants of their kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from emphatic.engines.unrolled import Functions

__all__ = ["HIGH", "LOW", "NEAR_THE_END", "SHRUNK", "add_limits"]

#: A trace's scale is reset when it is below this part of its peak: the error is about 4e-16 divided by it.
SHRUNK = 1e-2
#: Outside these it is reset in any case; traces that feed no weight do so only here.
LOW, HIGH = 1e-10, 1e10
#: Beyond this, steps are run on plain columns (C = 1), as the dense engine does: C and H need room that X does not.
NEAR_THE_END = {"float64": 1e280, "float32": 1e25}


def add_limits(functions: Functions) -> None:
    """Give a kernel SHRUNK, LOW, HIGH and NEAR_THE_END of its dtype by value, so that its hash includes them."""
    functions.constant("SHRUNK", SHRUNK)
    functions.constant("LOW", LOW)
    functions.constant("HIGH", HIGH)
    functions.constant("NEAR_THE_END", NEAR_THE_END[functions.dtype])
