"""Eight numbers at a time, in kernels that do the same for many things that lie side by side.

What ``load`` returns is a vector of ``LANES`` numbers, which is computed with as with one: ``+ - * /``, comparisons,
and the functions below. ``if`` becomes ``where``. A compiler makes vectors of a loop by itself only if it can tell that
no two of its arrays overlap; with many arrays it gives up. Without a compiler a vector is an array of NumPy.
"""

from __future__ import annotations

import math
import operator
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba.core.config
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typeconv.castgraph import Conversion
from numba.core.typing.templates import AbstractTemplate, infer_global
from numba.extending import intrinsic, lower_builtin, lower_cast, models, register_model

__all__ = [
    "CODE",
    "LANES",
    "larger",
    "load",
    "load_row",
    "magnitude",
    "mirror",
    "power",
    "root",
    "smaller",
    "spread",
    "store",
    "store_row",
    "tally",
    "total",
    "where",
]

#: A type, a value or an instruction of numba's or LLVM's, which declare no types.
Node = Any
# (numba declares no types)
_lower: Node = lower_builtin
_lower_cast: Node = lower_cast
_infer: Node = infer_global
_register: Node = register_model
_model: Node = models.PrimitiveModel
#: How many numbers a vector has.
LANES = 8
#: A kernel knows this number, so that it is compiled anew when this file changes.
CODE = zlib.crc32(Path(__file__).read_bytes())

#: (array, i) and (matrix, row, i): the vector that begins at entry i. There must be as many entries after it.
load: Callable[[Any, int], Any]
load_row: Callable[[Any, int, int], Any]
#: (array, i, vector) and (matrix, row, i, vector): put it there.
store: Callable[[Any, int, Any], None]
store_row: Callable[[Any, int, int, Any], None]
#: (number): the vector whose numbers are all this one.
spread: Callable[[float], Any]
#: (condition, a, b): a where the condition holds, and b elsewhere.
where: Callable[[Any, Any, Any], Any]
#: (condition): in how many lanes it holds.
tally: Callable[[Any], int]
#: (vector): the sum of its numbers.
total: Callable[[Any], float]
#: (a, b): as ``min`` and ``max`` choose: the first, where one of them is not a number.
smaller: Callable[[Any, Any], Any]
larger: Callable[[Any, Any], Any]
#: (vector): square root, and size without sign.
root: Callable[[Any], Any]
magnitude: Callable[[Any], Any]
#: (base, exponent): the power of a base that is above 0, and 0 where it is less than about 1e-300.
power: Callable[[Any, Any], Any]
#: (matrix, i, j): what is in eight rows from i on and eight columns from j on, transposed, to the rows from j on.
mirror: Callable[[Any, int, int], None]


def __getattr__(name: str) -> Node:
    """Whichever is due when a kernel is made."""
    if name not in __all__:
        raise AttributeError(name)
    interpreted = numba.core.config.DISABLE_JIT  # type: ignore[attr-defined]
    return (_IN_PYTHON if interpreted else _COMPILED)[name]


class _Vector(types.Type):
    def can_convert_from(self, typingctx: Node, other: Node) -> Node:
        return Conversion.safe if isinstance(other, types.Float | types.Integer) else None


class _Mask(types.Type):
    pass


_KINDS: Node = (_Vector, "vector"), (_Mask, "mask")

_vector, _mask = (kind(name) for kind, name in _KINDS)
_numbers, _bits = ir.VectorType(ir.DoubleType(), LANES), ir.VectorType(ir.IntType(1), LANES)


def _model_of(data: Node) -> Node:
    """What numba makes of a vector: a value of LLVM."""

    class Model(_model):  # type: ignore[misc]
        def __init__(self, manager: Node, kind: Node) -> None:
            super().__init__(manager, kind, data)

    return Model


_register(_Vector)(_model_of(_numbers))
_register(_Mask)(_model_of(_bits))


def _repeat(context: Node, builder: Node, kind: Node, to: Node, value: Node) -> Node:
    number = context.cast(builder, value, kind, types.float64)
    vector = builder.insert_element(ir.Constant(_numbers, ir.Undefined), number, ir.IntType(32)(0))
    places = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(vector, vector, places)


_lower_cast(types.Float, _Vector)(_repeat)
_lower_cast(types.Integer, _Vector)(_repeat)


def _is_vector(kinds: tuple[Node, ...]) -> bool:
    return _vector in kinds and all(kind == _vector or isinstance(kind, types.Float | types.Integer) for kind in kinds)


def _declare(function: Node, takes: Node, result: Node, code: Callable[[Node, Node, Node], Node]) -> None:
    """An operator of two vectors, of which one may be a number, or of two conditions."""

    class Template(AbstractTemplate):
        key = function

        def generic(self, kinds: tuple[Node, ...], keywords: Node) -> Node:
            fits = _is_vector(kinds) if takes is _vector else kinds == (takes, takes)
            return result(takes, takes) if len(kinds) == 2 and fits else None

    _infer(function)(Template)
    of = type(takes)
    _lower(function, of, of)(lambda context, builder, kinds, values: code(builder, *values))


def _compare(word: str) -> Callable[[Node, Node, Node], Node]:
    def code(builder: Node, a: Node, b: Node) -> Node:
        return (builder.fcmp_unordered if word == "!=" else builder.fcmp_ordered)(word, a, b)

    return code


_declare(operator.add, _vector, _vector, lambda builder, a, b: builder.fadd(a, b))
_declare(operator.sub, _vector, _vector, lambda builder, a, b: builder.fsub(a, b))
_declare(operator.mul, _vector, _vector, lambda builder, a, b: builder.fmul(a, b))
_declare(operator.truediv, _vector, _vector, lambda builder, a, b: builder.fdiv(a, b))
_declare(operator.lt, _vector, _mask, _compare("<"))
_declare(operator.le, _vector, _mask, _compare("<="))
_declare(operator.gt, _vector, _mask, _compare(">"))
_declare(operator.ge, _vector, _mask, _compare(">="))
_declare(operator.eq, _vector, _mask, _compare("=="))
_declare(operator.ne, _vector, _mask, _compare("!="))
_declare(operator.and_, _mask, _mask, lambda builder, a, b: builder.and_(a, b))
_declare(operator.or_, _mask, _mask, lambda builder, a, b: builder.or_(a, b))


def _place(context: Node, builder: Node, kind: Node, array: Node, at: list[Node]) -> Node:
    """Where a vector begins in a contiguous array, as a pointer to a vector."""
    array = context.make_array(kind)(context, builder, array)
    offset = at[-1]
    if kind.ndim == 2:
        width = builder.extract_value(array.shape, 1)
        offset = builder.add(builder.mul(at[0], width), offset)
    return builder.bitcast(builder.gep(array.data, [offset]), _numbers.as_pointer())


def _load_from(array: Node, count: int) -> Node:
    def code(context: Node, builder: Node, kinds: Node, values: Node) -> Node:
        return builder.load(_place(context, builder, kinds.args[0], values[0], list(values[1:])), align=8)

    return _vector(array, *(types.int64,) * count), code


def _store_to(array: Node, count: int) -> Node:
    def code(context: Node, builder: Node, kinds: Node, values: Node) -> Node:
        place = _place(context, builder, kinds.args[0], values[0], list(values[1:-1]))
        builder.store(values[-1], place, align=8)
        return context.get_dummy_value()

    return types.void(array, *(types.int64,) * count, _vector), code


def _load(typing: Node, array: Node, i: Node) -> Node:
    return _load_from(array, 1)


def _load_row(typing: Node, array: Node, row: Node, i: Node) -> Node:
    return _load_from(array, 2)


def _store(typing: Node, array: Node, i: Node, vector: Node) -> Node:
    return _store_to(array, 1)


def _store_row(typing: Node, array: Node, row: Node, i: Node, vector: Node) -> Node:
    return _store_to(array, 2)


def _spread(typing: Node, number: Node) -> Node:
    return _vector(_vector), lambda context, builder, kinds, values: values[0]


def _where(typing: Node, condition: Node, a: Node, b: Node) -> Node:
    return _vector(_mask, _vector, _vector), lambda context, builder, kinds, values: builder.select(*values)


def _tally(typing: Node, condition: Node) -> Node:
    def code(context: Node, builder: Node, kinds: Node, values: Node) -> Node:
        bits = builder.bitcast(values[0], ir.IntType(LANES))
        return builder.zext(builder.ctpop(bits), ir.IntType(64))

    return types.int64(_mask), code


def _total(typing: Node, vector: Node) -> Node:
    def code(context: Node, builder: Node, kinds: Node, values: Node) -> Node:
        (sums,), width = values, LANES
        while width > 1:  # (the halves are added)
            width //= 2
            places = [ir.Constant(ir.VectorType(ir.IntType(32), width), list(range(i, i + width))) for i in (0, width)]
            sums = builder.fadd(*(builder.shuffle_vector(sums, sums, half) for half in places))
        return builder.extract_element(sums, ir.IntType(32)(0))

    return types.float64(_vector), code


def _selected(word: str) -> Node:
    """The second where it compares so with the first, and the first elsewhere."""

    def code(context: Node, builder: Node, kinds: Node, values: Node) -> Node:
        a, b = values
        return builder.select(builder.fcmp_ordered(word, b, a), b, a)

    return _vector(_vector, _vector), code


def _smaller(typing: Node, a: Node, b: Node) -> Node:
    return _selected("<")


def _larger(typing: Node, a: Node, b: Node) -> Node:
    return _selected(">")


def _call(builder: Node, name: str, vector: Node) -> Node:
    """A function of LLVM."""
    function = ir.FunctionType(_numbers, [_numbers])
    call: Node = cgutils.get_or_insert_function
    return builder.call(call(builder.module, function, f"llvm.{name}.v{LANES}f64"), [vector])


def _called(name: str) -> Node:
    return _vector(_vector), lambda context, builder, kinds, values: _call(builder, name, values[0])


def _root(typing: Node, vector: Node) -> Node:
    return _called("sqrt")


def _magnitude(typing: Node, vector: Node) -> Node:
    return _called("fabs")


def _power(typing: Node, base: Node, exponent: Node) -> Node:
    """2 to the power of exponent · log₂ base, both by their series."""

    def code(context: Node, builder: Node, kinds: Node, values: Node) -> Node:
        words = ir.VectorType(ir.IntType(64), LANES)

        def integers(number: int) -> Node:
            return ir.Constant(words, [number] * LANES)

        def repeated(number: float) -> Node:
            return ir.Constant(_numbers, [number] * LANES)

        def series(x: Node, coefficients: list[float]) -> Node:
            total = repeated(coefficients[-1])
            for coefficient in reversed(coefficients[:-1]):
                total = builder.fadd(builder.fmul(total, x), repeated(coefficient))
            return total

        # base = m 2ⁿ with m from √½ to √2, and ln m = 2 (s + s³ / 3 + s⁵ / 5 + …) with s = (m − 1) / (m + 1).
        bits = builder.sub(builder.bitcast(values[0], words), integers(0x3FE6A09E667F3BCD))
        n = builder.sitofp(builder.ashr(bits, integers(52)), _numbers)
        fraction = builder.and_(bits, integers((1 << 52) - 1))
        m = builder.bitcast(builder.add(fraction, integers(0x3FE6A09E667F3BCD)), _numbers)
        s = builder.fdiv(builder.fsub(m, repeated(1.0)), builder.fadd(m, repeated(1.0)))
        odd = series(builder.fmul(s, s), [2.0 / math.log(2.0) / (2 * k + 1) for k in range(11)])
        y = builder.fmul(values[1], builder.fadd(n, builder.fmul(s, odd)))
        # 2ʸ = 2ⁿ eˣ with x = (y − n) ln 2.
        y = builder.select(builder.fcmp_ordered("<", y, repeated(-1000.0)), repeated(-1000.0), y)
        n = _call(builder, "rint", y)
        x = builder.fmul(builder.fsub(y, n), repeated(math.log(2.0)))
        exponential = builder.bitcast(series(x, [1.0 / math.factorial(k) for k in range(14)]), words)
        moved = builder.add(exponential, builder.shl(builder.fptosi(n, words), integers(52)))
        return builder.select(
            builder.fcmp_ordered(">", y, repeated(-1000.0)), builder.bitcast(moved, _numbers), repeated(0.0)
        )

    return _vector(_vector, _vector), code


def _mirror(typing: Node, array: Node, i: Node, j: Node) -> Node:
    def code(context: Node, builder: Node, kinds: Node, values: Node) -> Node:
        def place(row: Node, offset: int, column: Node) -> Node:
            at = [builder.add(row, ir.IntType(64)(offset)), column]
            return _place(context, builder, kinds.args[0], values[0], at)

        _, row, column = values
        rows = [builder.load(place(row, k, column), align=8) for k in range(LANES)]
        # Row k exchanges numbers with the row at that ``distance``: halves, then quarters, then eighths.
        for distance in (4, 2, 1):
            upper = [n if not n & distance else n - distance + LANES for n in range(LANES)]
            lower = [n + distance if not n & distance else n + LANES for n in range(LANES)]
            previous = rows[:]
            for k in range(LANES):
                places = lower if k & distance else upper
                pair = (previous[k - distance], previous[k]) if k & distance else (previous[k], previous[k + distance])
                rows[k] = builder.shuffle_vector(*pair, ir.Constant(ir.VectorType(ir.IntType(32), LANES), places))
        for k in range(LANES):
            builder.store(rows[k], place(column, k, row), align=8)
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64), code


_COMPILED: dict[str, Any] = {
    "load": intrinsic(_load),
    "load_row": intrinsic(_load_row),
    "store": intrinsic(_store),
    "store_row": intrinsic(_store_row),
    "tally": intrinsic(_tally),
    "total": intrinsic(_total),
    "spread": intrinsic(_spread),
    "where": intrinsic(_where),
    "smaller": intrinsic(_smaller),
    "larger": intrinsic(_larger),
    "root": intrinsic(_root),
    "magnitude": intrinsic(_magnitude),
    "power": intrinsic(_power),
    "mirror": intrinsic(_mirror),
}
_IN_PYTHON: dict[str, Any] = {
    "load": lambda array, i: array[i : i + LANES].copy(),
    "load_row": lambda array, row, i: array[row, i : i + LANES].copy(),
    "store": lambda array, i, vector: array.__setitem__(slice(i, i + LANES), vector),
    "store_row": lambda array, row, i, vector: array.__setitem__((row, slice(i, i + LANES)), vector),
    "tally": lambda condition: int(np.count_nonzero(condition)),
    "total": lambda vector: float(np.sum(vector)),
    "spread": lambda number: np.full(LANES, float(number)),
    "where": np.where,
    "smaller": lambda a, b: np.where(np.less(b, a), b, a),
    "larger": lambda a, b: np.where(np.greater(b, a), b, a),
    "root": np.sqrt,
    "magnitude": np.abs,
    "power": np.power,
    "mirror": lambda matrix, i, j: matrix.__setitem__(
        (slice(j, j + LANES), slice(i, i + LANES)), matrix[i : i + LANES, j : j + LANES].T.copy()
    ),
}
