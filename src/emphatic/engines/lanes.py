"""Eight numbers that are computed with as one: a processor's vector, in kernels that treat eight questions at a time.

A kernel that follows one question after the other waits for each operation before it starts the next. One that
follows eight of them at a time, each in a *lane*, does eight times as much while it waits, and every operation on a
lane is rounded as it would be alone: the bits are the same. ``select`` stands in the place of a branch. ``get`` and
``put`` move eight numbers of an array that has the lanes as its last axis, ``load`` and ``store`` those that begin
anywhere. A compiler makes vectors of a loop by itself only if it can tell that no two of its arrays overlap; with many
arrays it gives up. Compiled, lanes are a vector of LLVM, which makes instructions of whatever width the processor has;
in plain Python, an array of NumPy.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

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
    "load",
    "load_row",
    "mirror",
    "power",
    "put",
    "root",
    "scatter",
    "select",
    "smaller",
    "store",
    "store_row",
    "tally",
    "total",
]

#: Lanes of a vector.
WIDTH = 8
#: Powers that are less than this are 0.
LEAST_POWER = 2.0**-1000

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


def load(array: NDArray[np.float64], i: int) -> Numbers:
    """The lanes that begin at number i of a contiguous array."""
    return array[i : i + WIDTH].copy()


def load_row(matrix: NDArray[np.float64], row: int, i: int) -> Numbers:
    """The lanes that begin at number i of a row of a contiguous matrix."""
    return load(matrix[row], i)


def store(array: NDArray[np.float64], i: int, value: Numbers) -> None:
    """Set the lanes that begin at number i of a contiguous array."""
    array[i : i + WIDTH] = value


def store_row(matrix: NDArray[np.float64], row: int, i: int, value: Numbers) -> None:
    """Set the lanes that begin at number i of a row of a contiguous matrix."""
    store(matrix[row], i, value)


def mirror(matrix: NDArray[np.float64], i: int, j: int) -> None:
    """Set eight rows from j on and columns from i on to the rows from i on and columns from j on, transposed."""
    matrix[j : j + WIDTH, i : i + WIDTH] = matrix[i : i + WIDTH, j : j + WIDTH].T.copy()


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


def tally(truths: Truths) -> int:
    """How many lanes are true."""
    return int(np.count_nonzero(truths))


def total(a: Numbers) -> float:
    """The sum of the lanes: the halves are added, and again until one number is left."""
    while len(a) > 1:
        a = a[: len(a) // 2] + a[len(a) // 2 :]
    return float(a[0])


def smaller(a: Numbers, b: Numbers) -> Numbers:
    """``min(a, b)`` in each lane."""
    return np.where(b < a, b, a)


def larger(a: Numbers, b: Numbers) -> Numbers:
    """``max(a, b)`` in each lane."""
    return np.where(b > a, b, a)


def root(a: Numbers) -> Numbers:
    """The square root of each lane."""
    return np.sqrt(a)


def power(base: Numbers, exponent: Numbers) -> Numbers:
    """The power of a base that is not negative, to a few last bits; 0 where it is less than ``LEAST_POWER``."""
    out = np.power(base, exponent)
    return np.where(out > LEAST_POWER, out, 0.0)


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
_words = ir.VectorType(ir.IntType(64), WIDTH)


@register_model(_Lanes)
class _LanesModel(_models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Node, lanes: Node) -> None:
        super().__init__(manager, lanes, _numbers if lanes is _NUMBERS else _truths)


class _Array(NamedTuple):
    """Where a contiguous array begins, and the length of its last axis."""

    data: Node
    length: Node


def _declare(function: Callable[..., Any], result: Node, *arguments: Node) -> Callable[[Callable[..., Node]], None]:
    """Let compiled code call ``function`` with such arguments; a number stands for lanes that all are this number.

    Returns a decorator of what makes its instructions, from a builder of LLVM's, lanes, numbers and arrays.
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
            def plain(kind: Node, value: Node) -> Node:
                if not isinstance(kind, types.Array):
                    return value
                parts = context.data_model_manager[kind]
                lengths = parts.get(builder, value, "shape")
                return _Array(parts.get(builder, value, "data"), builder.extract_value(lengths, kind.ndim - 1))

            out = code(builder, *map(plain, call.args, values))
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


@_declare(tally, types.int64, _TRUTHS)
def _tally(builder: Node, truths: Node) -> Node:
    return builder.zext(builder.ctpop(builder.bitcast(truths, ir.IntType(WIDTH))), ir.IntType(64))


def _shuffle(builder: Node, a: Node, b: Node, lanes: list[int]) -> Node:
    """Those of the lanes of a and, after them, of b."""
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_integer, len(lanes)), lanes))


@_declare(total, types.float64, _NUMBERS)
def _total(builder: Node, a: Node) -> Node:
    width = WIDTH
    while width > 1:
        width //= 2
        halves = [_shuffle(builder, a, a, list(range(begin, begin + width))) for begin in (0, width)]
        a = builder.fadd(*halves)
    return builder.extract_element(a, _integer(0))


@_declare(power, _NUMBERS, _NUMBERS, _NUMBERS)
def _power(builder: Node, base: Node, exponent: Node) -> Node:
    """2 to the power of exponent · log₂ base, both by their series."""

    def integers(number: int) -> Node:
        return ir.Constant(_words, [number] * WIDTH)

    def repeated(number: float) -> Node:
        return ir.Constant(_numbers, [number] * WIDTH)

    def series(x: Node, coefficients: list[float]) -> Node:
        out = repeated(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            out = builder.fadd(builder.fmul(out, x), repeated(coefficient))
        return out

    # base = m 2ⁿ with m from √½ to √2, and ln m = 2 (s + s³ / 3 + s⁵ / 5 + …) with s = (m − 1) / (m + 1).
    root_of_half, one = integers(0x3FE6A09E667F3BCD), repeated(1.0)
    bits = builder.sub(builder.bitcast(base, _words), root_of_half)
    n = builder.sitofp(builder.ashr(bits, integers(52)), _numbers)
    m = builder.bitcast(builder.add(builder.and_(bits, integers((1 << 52) - 1)), root_of_half), _numbers)
    s = builder.fdiv(builder.fsub(m, one), builder.fadd(m, one))
    odd = series(builder.fmul(s, s), [2.0 / math.log(2.0) / (2 * k + 1) for k in range(11)])
    y = builder.fmul(exponent, builder.fadd(n, builder.fmul(s, odd)))
    # 2ʸ = 2ⁿ eˣ with x = (y − n) ln 2.
    least = repeated(math.log2(LEAST_POWER))
    y = builder.select(builder.fcmp_ordered("<", y, least), least, y)
    n = _function("rint")(builder, y)
    x = builder.fmul(builder.fsub(y, n), repeated(math.log(2.0)))
    exponential = builder.bitcast(series(x, [1.0 / math.factorial(k) for k in range(14)]), _words)
    moved = builder.add(exponential, builder.shl(builder.fptosi(n, _words), integers(52)))
    return builder.select(builder.fcmp_ordered(">", y, least), builder.bitcast(moved, _numbers), repeated(0.0))


@_lowering.lower_cast(types.float64, _Lanes)  # type: ignore[untyped-decorator]
def _cast(context: Node, builder: Node, number: Node, lanes: Node, value: Node) -> Node:
    single = builder.insert_element(ir.Constant(_numbers, ir.Undefined), value, _integer(0))
    return _shuffle(builder, single, single, [0] * WIDTH)


@_declare(every, _NUMBERS, types.Float)
def _every(builder: Node, value: Node) -> Node:
    return _cast(None, builder, None, None, value)


@_declare(below, _TRUTHS, types.Integer)
def _below(builder: Node, size: Node) -> Node:
    truths = ir.Constant(_truths, ir.Undefined)
    for k in range(WIDTH):
        truths = builder.insert_element(truths, builder.icmp_signed("<", size.type(k), size), _integer(k))
    return truths


def _place(builder: Node, array: _Array, i: Node, row: Node = None) -> Node:
    """Where lanes are that begin at number i of an array, or of a row of it."""
    if row is not None:
        i = builder.add(builder.mul(row, array.length), i)
    return builder.bitcast(builder.gep(array.data, [i]), _numbers.as_pointer())


@_declare(load, _NUMBERS, types.Array, types.Integer)
def _load(builder: Node, array: _Array, i: Node) -> Node:
    return builder.load(_place(builder, array, i), align=8)


@_declare(load_row, _NUMBERS, types.Array, types.Integer, types.Integer)
def _load_row(builder: Node, matrix: _Array, row: Node, i: Node) -> Node:
    return builder.load(_place(builder, matrix, i, row), align=8)


@_declare(get, _NUMBERS, types.Array, types.Integer)
def _get(builder: Node, array: _Array, i: Node) -> Node:
    return builder.load(_place(builder, array, builder.mul(i, i.type(WIDTH))), align=8)


@_declare(store, types.void, types.Array, types.Integer, _NUMBERS)
def _store(builder: Node, array: _Array, i: Node, value: Node) -> None:
    builder.store(value, _place(builder, array, i), align=8)


@_declare(store_row, types.void, types.Array, types.Integer, types.Integer, _NUMBERS)
def _store_row(builder: Node, matrix: _Array, row: Node, i: Node, value: Node) -> None:
    builder.store(value, _place(builder, matrix, i, row), align=8)


@_declare(put, types.void, types.Array, types.Integer, _NUMBERS)
def _put(builder: Node, array: _Array, i: Node, value: Node) -> None:
    builder.store(value, _place(builder, array, builder.mul(i, i.type(WIDTH))), align=8)


@_declare(mirror, types.void, types.Array, types.Integer, types.Integer)
def _mirror(builder: Node, matrix: _Array, i: Node, j: Node) -> None:
    def place(row: Node, k: int, column: Node) -> Node:
        return _place(builder, matrix, column, builder.add(row, row.type(k)))

    rows = [builder.load(place(i, k, j), align=8) for k in range(WIDTH)]
    # Row k exchanges numbers with the row at that ``distance``: halves, then quarters, then eighths.
    for distance in (4, 2, 1):
        upper = [n if not n & distance else n - distance + WIDTH for n in range(WIDTH)]
        lower = [n + distance if not n & distance else n + WIDTH for n in range(WIDTH)]
        previous = rows[:]
        for k in range(WIDTH):
            first = k & ~distance
            lanes = lower if k & distance else upper
            rows[k] = _shuffle(builder, previous[first], previous[first + distance], lanes)
    for k in range(WIDTH):
        builder.store(rows[k], place(j, k, i), align=8)


def _lane(builder: Node, k: int, array: _Array, begin: Node, stride: Node, size: Node) -> Node:
    """Where lane k is, or the last of ``size`` lanes."""
    end = builder.sub(size, size.type(1))
    lane = builder.select(builder.icmp_signed("<", end, size.type(k)), end, size.type(k))
    return builder.gep(array.data, [builder.add(begin, builder.mul(lane, stride))])


@_declare(gather, _NUMBERS, types.Array, types.Integer, types.Integer, types.Integer)
def _gather(builder: Node, *places: Node) -> Node:
    value = ir.Constant(_numbers, ir.Undefined)
    for k in range(WIDTH):
        value = builder.insert_element(value, builder.load(_lane(builder, k, *places)), _integer(k))
    return value


@_declare(scatter, types.void, types.Array, types.Integer, types.Integer, types.Integer, _NUMBERS)
def _scatter(builder: Node, array: _Array, begin: Node, stride: Node, size: Node, value: Node) -> None:
    for k in reversed(range(WIDTH)):  # the last of ``size`` lanes after those that have no place
        number = builder.extract_element(value, _integer(k))
        builder.store(number, _lane(builder, k, array, begin, stride, size))


@_declare(fetch, types.void, types.Array, types.Integer)
def _fetch(builder: Node, array: _Array, i: Node) -> None:
    place = builder.bitcast(builder.gep(array.data, [i]), _byte.as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [_byte.as_pointer(), _integer, _integer, _integer])
    function = _codegen.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    to_read, near, is_data = _integer(0), _integer(3), _integer(1)
    builder.call(function, [place, to_read, near, is_data])
