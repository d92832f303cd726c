"""Eight numbers that are computed with as one: a processor's vector, in kernels that treat eight questions at a time.

A kernel that follows one question after the other waits for each operation before it starts the next. One that
follows eight of them at a time, each in a *lane*, does eight times as much while it waits, and every operation on a
lane is rounded as it would be alone: the bits are the same. An array has the lanes as its last axis, ``get`` and
``put`` move eight numbers, ``select`` stands in the place of a branch. Compiled, lanes are a vector of LLVM, which
makes instructions of whatever width the processor has; in plain Python, an array of NumPy.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils, imputils
from numba.core.datamodel import models
from numba.core.typing import templates
from numba.extending import register_model

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "WIDTH",
    "any_of",
    "below",
    "every",
    "fetch",
    "gather",
    "get",
    "larger",
    "put",
    "root",
    "scatter",
    "select",
    "smaller",
]

#: Lanes of a vector.
WIDTH = 8

#: Lanes as kernels have them: numbers, or truths.
Numbers = Any
Truths = Any
#: A type, a value or an instruction of numba's or LLVM's, which declare no types.
Node = Any


def get(array: NDArray[np.float64], i: int) -> Numbers:
    """The lanes ``array[i]`` of an array (…, WIDTH)."""
    return array[i].copy()


def put(array: NDArray[np.float64], i: int, value: Numbers) -> None:
    """Set the lanes ``array[i]``."""
    array[i] = value


def gather(array: NDArray[np.float64], begin: int, stride: int, size: int) -> Numbers:
    """Numbers of a contiguous array, of any shape, that lie ``stride`` apart; those from ``size`` on are the last."""
    return array.reshape(-1)[begin + np.minimum(np.arange(WIDTH), size - 1) * stride]


def scatter(array: NDArray[np.float64], begin: int, stride: int, size: int, value: Numbers) -> None:
    """Set numbers of a contiguous array that lie ``stride`` apart, to the first ``size`` lanes."""
    array.reshape(-1)[begin + np.arange(size) * stride] = np.broadcast_to(value, WIDTH)[:size]


def fetch(array: NDArray[np.float64], i: int) -> None:
    """Ask for the cache line of number i of a contiguous array, which may lie beyond its end."""


def every(value: float) -> Numbers:
    """Lanes that are all this number."""
    return np.full(WIDTH, value)


def select(truths: Truths, value: Numbers, otherwise: Numbers) -> Numbers:
    """One value where it is true, the other elsewhere."""
    return np.where(truths, value, otherwise)


def below(size: int) -> Truths:
    """The first ``size`` lanes."""
    return np.arange(WIDTH) < size


def any_of(truths: Truths) -> bool:
    """Whether a lane is true."""
    return bool(truths.any())


def smaller(a: Numbers, b: Numbers) -> Numbers:
    """``min(a, b)`` in each lane."""
    return np.where(b < a, b, a)


def larger(a: Numbers, b: Numbers) -> Numbers:
    """``max(a, b)`` in each lane."""
    return np.where(b > a, b, a)


def root(a: Numbers) -> Numbers:
    """The square root of each lane."""
    return np.sqrt(a)


# ---------------------------------------------------------------------- compiled

# Modules of numba, which declare no types.
_templates: Node = templates
_lowering: Node = imputils
_codegen: Node = cgutils
_models: Node = models


class _Lanes(types.Type):
    """Lanes of numbers, or of truths."""


_NUMBERS, _TRUTHS = _Lanes("lanes"), _Lanes("truths of lanes")
_byte, _integer = ir.IntType(8), ir.IntType(32)
_numbers, _truths = ir.VectorType(ir.DoubleType(), WIDTH), ir.VectorType(ir.IntType(1), WIDTH)


@register_model(_Lanes)
class _LanesModel(_models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Node, lanes: Node) -> None:
        super().__init__(manager, lanes, _numbers if lanes is _NUMBERS else _truths)


def _declare(function: Callable[..., Any], result: Node, *arguments: Node) -> Callable[[Callable[..., Node]], None]:
    """Let compiled code call ``function`` with such arguments; a number stands for lanes that all are this number.

    Returns a decorator of what makes its instructions, from a builder of LLVM's, lanes, numbers and places of arrays.
    """

    def takes(kind: Node, given: Node) -> bool:
        if isinstance(kind, type):
            return isinstance(given, kind)
        return given is kind or (kind is _NUMBERS and given == types.float64)

    class Declared(_templates.AbstractTemplate):  # type: ignore[misc]
        def generic(self, given: Node, named: Node) -> Node:
            fits = len(given) == len(arguments) and not named and all(map(takes, arguments, given))
            if not fits or (_NUMBERS in arguments and set(given) == {types.float64}):  # (no lanes)
                return None
            kinds = zip(arguments, given, strict=True)
            of_lanes = (
                kind if isinstance(kind, _Lanes) else types.int64 if kind is types.Integer else actual
                for kind, actual in kinds
            )
            return _templates.signature(result, *of_lanes)

    _templates.infer_global(function)(Declared)

    def lower(code: Callable[..., Node]) -> None:
        def lowered(context: Node, builder: Node, call: Node, values: Node) -> Node:
            plain = (
                context.make_array(kind)(context, builder, value).data if isinstance(kind, types.Array) else value
                for kind, value in zip(call.args, values, strict=True)
            )
            out = code(builder, *plain)
            return context.get_dummy_value() if result is types.void else out

        _lowering.lower_builtin(function, *arguments)(lowered)

    return lower


def _declare_each(result: Node, argument: Node, codes: dict[Any, Callable[..., Node]]) -> None:
    """Declare functions of lanes, of one kind, by what makes their instructions."""
    for function, code in codes.items():
        _declare(function, result, *[argument] * (code.__code__.co_argcount - 1))(code)


def _comparison(sign: str) -> Callable[[Node, Node, Node], Node]:
    return lambda builder, a, b: builder.fcmp_ordered(sign, a, b)


def _function(name: str) -> Callable[[Node, Node], Node]:
    """A function of LLVM's."""
    kind = ir.FunctionType(_numbers, [_numbers])
    name = f"llvm.{name}.v{WIDTH}f64"
    return lambda builder, a: builder.call(_codegen.get_or_insert_function(builder.module, kind, name), [a])


_declare_each(
    _NUMBERS,
    _NUMBERS,
    {
        operator.add: lambda builder, a, b: builder.fadd(a, b),
        operator.sub: lambda builder, a, b: builder.fsub(a, b),
        operator.mul: lambda builder, a, b: builder.fmul(a, b),
        operator.truediv: lambda builder, a, b: builder.fdiv(a, b),
        smaller: lambda builder, a, b: builder.select(builder.fcmp_ordered("<", b, a), b, a),
        larger: lambda builder, a, b: builder.select(builder.fcmp_ordered(">", b, a), b, a),
        abs: _function("fabs"),
        root: _function("sqrt"),
    },
)
_declare_each(
    _TRUTHS,
    _NUMBERS,
    {
        operator.lt: _comparison("<"),
        operator.le: _comparison("<="),
        operator.gt: _comparison(">"),
        operator.ge: _comparison(">="),
        operator.eq: _comparison("=="),
        operator.ne: lambda builder, a, b: builder.fcmp_unordered("!=", a, b),
    },
)
_declare_each(
    _TRUTHS,
    _TRUTHS,
    {
        operator.and_: lambda builder, a, b: builder.and_(a, b),
        operator.or_: lambda builder, a, b: builder.or_(a, b),
        operator.invert: lambda builder, a: builder.not_(a),
    },
)


@_declare(select, _NUMBERS, _TRUTHS, _NUMBERS, _NUMBERS)
def _select(builder: Node, truths: Node, value: Node, otherwise: Node) -> Node:
    return builder.select(truths, value, otherwise)


@_declare(any_of, types.boolean, _TRUTHS)
def _any_of(builder: Node, truths: Node) -> Node:
    bits = ir.IntType(WIDTH)
    return builder.icmp_unsigned("!=", builder.bitcast(truths, bits), bits(0))


@_lowering.lower_cast(types.float64, _Lanes)  # type: ignore[untyped-decorator]
def _cast(context: Node, builder: Node, number: Node, lanes: Node, value: Node) -> Node:
    single = builder.insert_element(ir.Constant(_numbers, ir.Undefined), value, _integer(0))
    return builder.shuffle_vector(single, single, ir.Constant(ir.VectorType(_integer, WIDTH), [0] * WIDTH))


@_declare(every, _NUMBERS, types.Float)
def _every(builder: Node, value: Node) -> Node:
    return _cast(None, builder, None, None, value)


@_declare(below, _TRUTHS, types.Integer)
def _below(builder: Node, size: Node) -> Node:
    truths = ir.Constant(_truths, ir.Undefined)
    for k in range(WIDTH):
        truths = builder.insert_element(truths, builder.icmp_signed("<", size.type(k), size), _integer(k))
    return truths


def _place(builder: Node, data: Node, i: Node) -> Node:
    return builder.bitcast(builder.gep(data, [builder.mul(i, i.type(WIDTH))]), _numbers.as_pointer())


@_declare(get, _NUMBERS, types.Array, types.Integer)
def _get(builder: Node, data: Node, i: Node) -> Node:
    return builder.load(_place(builder, data, i), align=8)


@_declare(put, types.void, types.Array, types.Integer, _NUMBERS)
def _put(builder: Node, data: Node, i: Node, value: Node) -> None:
    builder.store(value, _place(builder, data, i), align=8)


def _lane(builder: Node, k: int, data: Node, begin: Node, stride: Node, size: Node) -> Node:
    """Where lane k is, or the last of ``size`` lanes."""
    end = builder.sub(size, size.type(1))
    lane = builder.select(builder.icmp_signed("<", end, size.type(k)), end, size.type(k))
    return builder.gep(data, [builder.add(begin, builder.mul(lane, stride))])


@_declare(gather, _NUMBERS, types.Array, types.Integer, types.Integer, types.Integer)
def _gather(builder: Node, *places: Node) -> Node:
    value = ir.Constant(_numbers, ir.Undefined)
    for k in range(WIDTH):
        value = builder.insert_element(value, builder.load(_lane(builder, k, *places)), _integer(k))
    return value


@_declare(scatter, types.void, types.Array, types.Integer, types.Integer, types.Integer, _NUMBERS)
def _scatter(builder: Node, data: Node, begin: Node, stride: Node, size: Node, value: Node) -> None:
    for k in reversed(range(WIDTH)):  # the last of ``size`` lanes after those that have no place
        number = builder.extract_element(value, _integer(k))
        builder.store(number, _lane(builder, k, data, begin, stride, size))


@_declare(fetch, types.void, types.Array, types.Integer)
def _fetch(builder: Node, data: Node, i: Node) -> None:
    place = builder.bitcast(builder.gep(data, [i]), _byte.as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [_byte.as_pointer(), _integer, _integer, _integer])
    function = _codegen.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    to_read, near, is_data = _integer(0), _integer(3), _integer(1)
    builder.call(function, [place, to_read, near, is_data])
