"""What numba has no word for, as compiled code has it and, without a compiler, in Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba.core.config
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["address", "prefetch"]

#: (array, offset): ask for the cache line so many bytes after the array's beginning. It need not be the array's own: to
#: ask for memory that is not there does nothing.
prefetch: Callable[[Any, int], None]
#: (array): where it begins. (``array.ctypes.data`` counts references, which takes longer than a short step's products.)
address: Callable[[Any], int]


def __getattr__(name: str) -> Any:
    """Whichever is due when a kernel is made."""
    if name not in __all__:
        raise AttributeError(name)
    interpreted = numba.core.config.DISABLE_JIT  # type: ignore[attr-defined]
    return (_IN_PYTHON if interpreted else _COMPILED)[name]


def _prefetch(typing: Any, array: Any, offset: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte, integer = ir.IntType(8).as_pointer(), ir.IntType(32)
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        place = builder.gep(builder.bitcast(data, byte), [arguments[1]])
        function = ir.FunctionType(ir.VoidType(), [byte, integer, integer, integer])
        call: Any = cgutils.get_or_insert_function
        # to read, into the second-level cache, data
        builder.call(call(builder.module, function, "llvm.prefetch.p0"), [place, integer(0), integer(2), integer(1)])
        return context.get_dummy_value()

    return types.void(array, types.int64), code


def _address(typing: Any, array: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.ptrtoint(data, ir.IntType(64))

    return types.int64(array), code


_COMPILED: dict[str, Any] = {"prefetch": intrinsic(_prefetch), "address": intrinsic(_address)}
_IN_PYTHON: dict[str, Any] = {"prefetch": lambda array, offset: None, "address": lambda array: array.ctypes.data}
