"""What numba has no word for, as compiled code has it and, without a compiler, in Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba.core.config
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

#: A type, a value or an instruction of numba's or LLVM's, which declare no types.
Node = Any
#: Numbers of arrays that do not overlap; those beyond are arrays like any other.
MOST_APART = 16

__all__ = ["address", "get_apart", "prefetch", "put_apart", "tail", "use_widest_vectors"]

#: (array, offset): ask for the cache line so many bytes after the array's beginning. It need not be the array's own: to
#: ask for memory that is not there does nothing. Into the second-level cache.
prefetch: Callable[[Any, int], None]
#: (array): where it begins. (``array.ctypes.data`` counts references, which takes longer than a short step's products.)
address: Callable[[Any], int]
#: (array, i, number) → array[i], and (array, i, number, value) sets it. Arrays of different numbers must not overlap: a
#: loop that writes to several arrays would otherwise begin by comparing all their addresses, which for four vectors
#: takes as long as thirty components.
get_apart: Callable[[Any, int, int], Any]
put_apart: Callable[[Any, int, int, Any], None]
#: (array, i) → array[i:], of a contiguous array, to be used with indices from 0 on; nobody looks whether i and they lie
#: within. A slice compares i with the length, and LLVM then does not see that a loop over slices goes through
#: neighbours: it makes no vectors of it.
tail: Callable[[Any, int], Any]
#: (): the function in which this stands is compiled for the widest vectors of the processor. On Intel's LLVM would use
#: half their width.
use_widest_vectors: Callable[[], None]


def __getattr__(name: str) -> Any:
    """Whichever is due when a kernel is made."""
    if name not in __all__:
        raise AttributeError(name)
    interpreted = numba.core.config.DISABLE_JIT  # type: ignore[attr-defined]
    return (_IN_PYTHON if interpreted else _COMPILED)[name]


def _prefetch(typing: Node, array: Node, offset: Node) -> Node:
    def code(context: Node, builder: Node, signature: Node, arguments: Node) -> Node:
        byte, integer = ir.IntType(8).as_pointer(), ir.IntType(32)
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        place = builder.gep(builder.bitcast(data, byte), [arguments[1]])
        function = ir.FunctionType(ir.VoidType(), [byte, integer, integer, integer])
        call: Any = cgutils.get_or_insert_function
        to_read, second_level, data = integer(0), integer(2), integer(1)
        builder.call(call(builder.module, function, "llvm.prefetch.p0"), [place, to_read, second_level, data])
        return context.get_dummy_value()

    return types.void(array, types.int64), code


def _address(typing: Node, array: Node) -> Node:
    def code(context: Node, builder: Node, signature: Node, arguments: Node) -> Node:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.ptrtoint(data, ir.IntType(64))

    return types.int64(array), code


def _place(context: Node, builder: Node, signature: Node, arguments: Node) -> Node:
    """The address of entry i of a contiguous array."""
    data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
    return builder.gep(data, [arguments[1]])


def _set_apart(builder: Node, instruction: Node, number: int) -> Any:
    """Mark a load or a store as of the array of this number, and of no other."""
    if number >= MOST_APART:
        return instruction
    add = builder.module.add_metadata
    domain = add(["emphatic"])
    scopes = [add([f"emphatic {i}", domain]) for i in range(MOST_APART)]
    instruction.set_metadata("alias.scope", add([scopes[number]]))
    instruction.set_metadata("noalias", add([scope for i, scope in enumerate(scopes) if i != number]))
    return instruction


def _get_apart(typing: Node, array: Node, i: Node, number: Node) -> Node:
    def code(context: Node, builder: Node, signature: Node, arguments: Node) -> Node:
        place = _place(context, builder, signature, arguments)
        return _set_apart(builder, builder.load(place), number.literal_value)

    return array.dtype(array, types.int64, number), code


def _put_apart(typing: Node, array: Node, i: Node, number: Node, value: Node) -> Node:
    def code(context: Node, builder: Node, signature: Node, arguments: Node) -> Node:
        place = _place(context, builder, signature, arguments)
        _set_apart(builder, builder.store(arguments[3], place), number.literal_value)
        return context.get_dummy_value()

    return types.void(array, types.int64, number, array.dtype), code


def _tail(typing: Node, array: Node, i: Node) -> Node:
    def code(context: Node, builder: Node, signature: Node, arguments: Node) -> Node:
        data = context.data_model_manager[array].get_field_position("data")
        return builder.insert_value(arguments[0], _place(context, builder, signature, arguments), data)

    return array(array, types.int64), code


def _use_widest_vectors(typing: Node) -> Node:
    def code(context: Node, builder: Node, signature: Node, arguments: Node) -> Node:
        attributes: set[str] = builder.function.attributes
        set.add(attributes, '"prefer-vector-width"="512"')  # (llvmlite's own ``add`` knows only words)
        return context.get_dummy_value()

    return types.void(), code


_COMPILED: dict[str, Any] = {
    "prefetch": intrinsic(_prefetch),
    "address": intrinsic(_address),
    "get_apart": intrinsic(prefer_literal=True)(_get_apart),
    "put_apart": intrinsic(prefer_literal=True)(_put_apart),
    "tail": intrinsic(_tail),
    "use_widest_vectors": intrinsic(_use_widest_vectors),
}
_IN_PYTHON: dict[str, Any] = {
    "prefetch": lambda array, offset: None,
    "address": lambda array: array.ctypes.data,
    "get_apart": lambda array, i, number: array[i],
    "put_apart": lambda array, i, number, value: array.__setitem__(i, value),
    "tail": lambda array, i: array[i:],
    "use_widest_vectors": lambda: None,
}
