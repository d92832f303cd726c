"""Lines of predictions: many numbers as text, each as ``repr`` writes it, in one pass.

The shortest decimal that is read as the same float64, and of several the nearest, is found as by Schubfach (R.
Giulietti, "The Schubfach way to render doubles", 2020), whose names are used here. All integers are below 2⁶³ or wrap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import types
from numba.extending import register_jitable

from emphatic.engines.compiled import jit_for

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    Integers = NDArray[np.int64]

_u1 = types.Array(types.uint8, 1, "C")
_text = types.Array(types.uint8, 1, "C", readonly=True)
_i1, _i2 = (types.Array(types.int64, ndim, "C", readonly=True) for ndim in (1, 2))
_out = types.Array(types.int64, 1, "C")

#: The least and the greatest k of ``powers``: of the decimal exponents of float64, −324 is the least.
LEAST_POWER, MOST_POWER = -324, 292
#: The most characters of a number, as in -1.2345678901234567e-308.
LONGEST = 24
#: The most digits of a number.
MOST_DIGITS = 17
#: Of a float64: the bits after the exponent, what the exponent of 1.0 is stored as and these, and the least exponent.
BITS, BIAS, LEAST_EXPONENT = 52, 1075, -1074
#: 32 and 63 ones.
HALF, MASK = (1 << 32) - 1, (1 << 63) - 1
ZERO, POINT, MINUS, PLUS, E = 48, 46, 45, 43, 101


def powers() -> Integers:
    """The table of the kernel: of each k, g = ⌊10⁻ᵏ 2ʳ⌋ + 1, with r such that it has 126 bits, as two halves of 63."""
    table = np.empty((MOST_POWER - LEAST_POWER + 1, 2), np.int64)
    for row, k in enumerate(range(LEAST_POWER, MOST_POWER + 1)):
        power = 10 ** abs(k)
        length = power.bit_length()
        g = ((1 << (125 + length)) // power if k > 0 else (power << 126) >> length) + 1
        table[row] = g >> 63, g & MASK
    return table


@register_jitable
def divide(a: int, b: int) -> int:
    """⌊a / b⌋ of integers that are not negative, of which the compiler does not know that."""
    return np.int64(np.uint64(a) // np.uint64(b))  # type: ignore[return-value]


@register_jitable
def high_product(a: int, b: int) -> int:
    """⌊ab / 2⁶⁴⌋."""
    a1, a0, b1, b0 = a >> 32, a & HALF, b >> 32, b & HALF
    middle = a1 * b0 + (((a0 * b0) >> 32) & HALF)
    low = a0 * b1 + (middle & HALF)
    return a1 * b1 + (middle >> 32) + (low >> 32)


@register_jitable
def round_to_odd(g1: int, g0: int, cp: int) -> int:
    """⌊g cp / 2¹²⁶⌋, and its last bit is 1 where that is not all."""
    z = (((g1 * cp) >> 1) & MASK) + high_product(g0, cp)
    return (high_product(g1, cp) + ((z >> 63) & 1)) | ((z & MASK) != 0)


@register_jitable
def shortest(bits: int, table: Integers) -> tuple[int, int]:
    """The digits of |x| as an integer, and its decimal exponent; x is finite, and not 0."""
    fraction, stored = bits & ((1 << BITS) - 1), (bits >> BITS) & 2047
    c = fraction | (1 << BITS) if stored > 0 else fraction
    q = stored - BIAS if stored > 0 else LEAST_EXPONENT
    if -BITS <= q <= 0 and (c >> -q) << -q == c:
        return c >> -q, 0
    is_power = fraction == 0 and stored > 1  # the next smaller number is nearer than the next larger one
    out = c & 1
    k = (q * 661_971_961_083 - (274_743_187_321 if is_power else 0)) >> 41
    h = q + ((-k * 913_124_641_741) >> 38) + 2
    g1, g0 = table[k - LEAST_POWER, 0], table[k - LEAST_POWER, 1]
    lower = round_to_odd(g1, g0, (4 * c - (1 if is_power else 2)) << h) + out
    upper = round_to_odd(g1, g0, (4 * c + 2) << h) - out
    v = round_to_odd(g1, g0, (4 * c) << h)
    s = v >> 2
    tenth = divide(s, 10)
    if s >= 10 and (lower <= 40 * tenth) != (40 * tenth + 40 <= upper):
        return tenth + (40 * tenth + 40 <= upper), k + 1
    if (lower <= 4 * s) != (4 * s + 4 <= upper):
        return s + (4 * s + 4 <= upper), k
    middle = 4 * s + 2
    return s + (v > middle or (v == middle and s & 1 == 1)), k


@register_jitable
def put(text: Bytes, begin: int, end: int, out: Bytes, at: int) -> int:
    """Copy a part of a text; returns where the next begins."""
    for i in range(begin, end):
        out[at + i - begin] = text[i]
    return at + end - begin


@register_jitable
def put_integer(value: int, count: int, out: Bytes, at: int) -> int:
    """So many last digits of an integer that is not negative."""
    for i in range(count - 2, -1, -2):
        hundredth = divide(value, 100)
        pair = value - 100 * hundredth
        tens = (pair * 103) >> 10
        out[at + i], out[at + i + 1] = ZERO + tens, ZERO + pair - 10 * tens
        value = hundredth
    if count % 2 == 1:
        out[at] = ZERO + value - 10 * divide(value, 10)
    return at + count


@register_jitable
def put_digits(digits: int, count: int, out: Bytes, at: int) -> int:
    """All digits of a number: by two halves, as a processor computes both at once."""
    if count <= 8:
        return put_integer(digits, count, out, at)
    high = divide(digits, 10**8)
    put_integer(high, count - 8, out, at)
    return put_integer(digits - high * 10**8, 8, out, at + count - 8)


@register_jitable
def put_number(bits: int, table: Integers, out: Bytes, at: int) -> int:
    """A finite float64, from its bits."""
    if bits < 0:
        out[at] = MINUS
        at += 1
    if bits & MASK == 0:
        out[at], out[at + 1], out[at + 2] = ZERO, POINT, ZERO
        return at + 3
    digits, exponent = shortest(bits & MASK, table)
    tenth = divide(digits, 10)
    while 10 * tenth == digits:
        digits, tenth, exponent = tenth, divide(tenth, 10), exponent + 1
    count, bound = MOST_DIGITS, 10 ** (MOST_DIGITS - 1)
    while digits < bound:
        count, bound = count - 1, divide(bound, 10)
    point = count + exponent  # so many digits stand before the point
    if -4 < point <= 0:
        out[at], out[at + 1] = ZERO, POINT
        at = put_integer(0, -point, out, at + 2)
        return put_digits(digits, count, out, at)
    if 0 < point <= 16:
        if exponent >= 0:
            at = put_integer(0, exponent, out, put_digits(digits, count, out, at))
            out[at], out[at + 1] = POINT, ZERO
            return at + 2
        put_digits(digits, count, out, at + 1)
        for i in range(point):
            out[at + i] = out[at + i + 1]
        out[at + point] = POINT
        return at + count + 1
    put_digits(digits, count, out, at + 1)
    out[at] = out[at + 1]
    out[at + 1] = POINT
    at += count + 1 if count > 1 else 1
    out[at], out[at + 1] = E, MINUS if point < 1 else PLUS
    size = abs(point - 1)
    return put_integer(size, 3 if size > 99 else 2, out, at + 2)


@jit_for((_text, _i1, _text, _i1, _i1, _i2, _i2, _i2, _u1, _out), fastmath=False, allocates=False)
def write_lines(
    heads: Bytes, head_ends: Integers, texts: Bytes, text_ends: Integers, fields: Integers, numbers: Integers,
    words: Integers, table: Integers, out: Bytes, ends: Integers,
) -> None:  # fmt: skip
    """Lines of the same form, one after the other in ``out``; ``ends`` (B,) tells where each ends.

    A line is its own head, and then each field and the text that follows it. A field f ≥ 0 is the bits of a number,
    ``numbers[:, f]``, and one below 0 the number of a text, ``words[:, -1 - f]``. A number that is not finite is text
    0. The texts after the fields are the last ones.
    """
    B, F, at, begin = len(ends), len(fields), 0, 0
    between = len(text_ends) - F
    for b in range(B):
        at = put(heads, begin, head_ends[b], out, at)
        begin = head_ends[b]
        for f in range(F):
            text = 0
            if fields[f] < 0:
                text = words[b, -1 - fields[f]]
            bits = numbers[b, max(fields[f], 0)]
            if fields[f] >= 0 and (bits >> BITS) & 2047 < 2047:
                at = put_number(bits, table, out, at)
            else:
                at = put(texts, text_ends[text - 1] if text > 0 else 0, text_ends[text], out, at)
            at = put(texts, text_ends[between + f - 1], text_ends[between + f], out, at)
        ends[b] = at
