"""Triton kernels that do not depend on the rule: float32 products as sums of TF32 or FP16 ones, and V = X Pᵀ."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl

__all__ = ["inner", "load_rows_of", "place_of_share", "product", "project", "split"]


def inner(function: Callable[..., Any]) -> Any:
    """A function that kernels call. Under Triton's interpreter it stays plain Python, which runs faster."""
    return function if os.environ.get("TRITON_INTERPRET") == "1" else triton.jit(function)


@inner
def split(a, THREE: tl.constexpr, HALVES: tl.constexpr):
    """a = (high + low) scale, with 11 bits each in high and low; unless THREE or HALVES, a as it is.

    FP16 has few bits of exponent. So each row is scaled by a power of two that brings its largest number to between 2¹⁴
    and 2¹⁵: numbers down to 2⁻¹⁶ of that keep as many bits as TF32 would, and no error exceeds 2⁻³⁹ of it.
    """
    scale = 1.0
    if HALVES:
        exponent = tl.maximum(tl.max(tl.abs(a), 1).to(tl.int32, bitcast=True) >> 23, 15)
        scale = ((exponent - 14) << 23).to(tl.float32, bitcast=True)[:, None]
        a = a * ((268 - exponent) << 23).to(tl.float32, bitcast=True)[:, None]
        high = a.to(tl.float16)
        low = (a - high.to(tl.float32)).to(tl.float16)
    elif THREE:
        high = ((a.to(tl.int32, bitcast=True) + 4096) & -8192).to(tl.float32, bitcast=True)
        low = a - high
    else:
        high = a
        low = a
    return high, low, scale


@inner
def product(a, b, b_rest, scale, out, THREE: tl.constexpr, HALVES: tl.constexpr):
    """out + a b, both split; ``scale`` is that of b.

    What is left out, low·low, is below a float32's own rounding: the three products are as exact as float32 ones. A
    tensor core cuts off where it should round, so that a long sum shrinks: the product is added to ``out`` apart.
    """
    high, low, a_scale = a
    if HALVES:
        if THREE:
            total = tl.dot(low, b)
            total = tl.dot(high, b_rest, total)
            total = tl.dot(high, b, total)
        else:
            total = tl.dot(high, b)
        out = out + total * (a_scale * scale)
    elif THREE:
        total = tl.dot(low, b, input_precision="tf32")
        total = tl.dot(high, b_rest, total, input_precision="tf32")
        total = tl.dot(high, b, total, input_precision="tf32")
        out = out + total
    else:
        out = out + tl.dot(high, b, input_precision="tf32", out_dtype=high.dtype)
    return out


@triton.jit(do_not_specialize=["chunk"])
def project(
    X, Z, P, P_rest, SCALE, FLAG, chunk, K, mK, n, span,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr, THREE: tl.constexpr, HALVES: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """V = X Pᵀ of the chunk's rows P (ROWS, n), stored in Z; with several shares of columns, their sums behind it."""
    if tl.load(FLAG) < chunk:
        return
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = row < mK
    j = tl.arange(0, ROWS)
    i = tl.arange(0, TILE)
    left = tl.program_id(1) * span
    x_at = X + row.to(tl.int64)[:, None] * n
    at = chunk * ROWS * n + j[None, :] * n
    scale = tl.load(SCALE + chunk)
    v = tl.zeros((BLOCK, ROWS), X.dtype.element_ty)
    count = (tl.minimum(left + span, n) - left + TILE - 1) // TILE
    for turn in tl.range(0, count, num_stages=STAGES):
        # Each program begins at another tile: otherwise all would read from the same few memory channels at once.
        c = left + (turn + tl.program_id(0)) % count * TILE + i
        inside = c < n
        within = there[:, None] if HALVES else there[:, None] & inside[None, :]
        x = tl.load(x_at + c[None, :], mask=within, other=0.0)
        p = load_rows_of(P, at + c[:, None], inside[:, None], HALVES)
        p_rest = load_rows_of(P_rest, at + c[:, None], inside[:, None], HALVES) if THREE else p
        v = product(split(x, THREE, HALVES), p, p_rest, scale, v, THREE, HALVES)
    k = place_of_share(mK * ROWS) + (row // K).to(tl.int64) * ROWS * K + row % K
    tl.store(Z + k[:, None] + j[None, :].to(tl.int64) * K, v, mask=there[:, None])


@inner
def load_rows_of(P, place, inside, HALVES: tl.constexpr):
    """A tile of P. Tiles of HALVES always lie within the padded rows: without a mask they load faster."""
    return tl.load(P + place) if HALVES else tl.load(P + place, mask=inside, other=0.0)


@inner
def place_of_share(size):
    """The offset in Z of this program's sums: 0, or behind V where several shares are to be added up."""
    share = tl.program_id(1) + tl.where(tl.num_programs(1) > 1, 1, 0)
    return share.to(tl.int64) * size
