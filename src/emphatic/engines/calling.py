"""Calling a compiled function by its address: how one kernel serves every rule.

A kernel may be given a function as it is, but then numba looks its address up anew in each call, which takes longer
than a whole step of a hundred learners. An address is a number, and found once.
"""

from __future__ import annotations

from typing import Any

import numba.core.config
from numba import types
from numba.core.cgutils import create_struct_proxy
from numba.extending import intrinsic

__all__ = ["DECIDE", "MOST", "address", "function_at"]

#: As many parameters as any rule has, so that all have the same kind of ``decide``.
MOST = 9

_f8, _i8 = types.float64, types.int64
_several: Any = types.UniTuple
_flat, _table, _cube = (types.Array(_f8, ndim, "C") for ndim in (1, 2, 3))
_parameters = _several(types.Array(_f8, 2, "A", readonly=True), MOST)
#: What the sparse engine's ``decide`` takes and returns.
DECIDE = _i8(
    _i8, _parameters, _table, _table, _several(_f8, 3), _f8, _several(_f8, 2), _table, _cube, _cube, _table, _flat,
    types.Array(types.boolean, 1, "C"),
)  # fmt: skip


def address(function: Any) -> Any:
    """Where ``decide``, compiled for DECIDE, is. The function must be kept as long as it may be called."""
    if numba.core.config.DISABLE_JIT:  # type: ignore[attr-defined]
        return function
    made = function.get_compile_result(DECIDE)
    return made.library.get_pointer_to_function(made.fndesc.llvm_cfunc_wrapper_name)


def _function_at(typing: Any, at: Any) -> Any:
    """The ``decide`` at this address."""
    function = types.FunctionType(DECIDE)

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        made = create_struct_proxy(function)(context, builder)  # type: ignore[no-untyped-call]
        made.c_addr = builder.inttoptr(arguments[0], context.get_value_type(types.voidptr))
        return made._getvalue()

    return function(at), code


#: In a kernel, the ``decide`` at an address; without compilation, what ``address`` gave.
function_at: Any = (lambda at: at) if numba.core.config.DISABLE_JIT else intrinsic(_function_at)  # type: ignore[attr-defined]
