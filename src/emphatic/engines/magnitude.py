"""The largest component of an array, found at memory speed before a run starts.

(In a module of its own: what a module has is compiled when it is first imported, and dense features need no more.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from numba import types

from emphatic.engines.compiled import jit_for

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_i4, _i8 = (types.Array(kind, 1, "C", readonly=True) for kind in (types.int32, types.int64))


@jit_for((_i8, types.int64), (_i4, types.int64))
def largest(bits: NDArray[np.int64] | NDArray[np.int32], mask: int) -> int:
    """The largest of the floats' bits without their signs: those of max |x|, beyond infinity's if there is a NaN."""
    top: int = bits[0] & mask
    for i in range(bits.shape[0]):
        top = max(top, bits[i] & mask)
    return top
