"""Triton kernels that do not depend on the rule: products of float32 as sums of TF32 ones, and V = X Pᵀ."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl

__all__ = ["inner", "product", "project", "split"]


def inner(function: Callable[..., Any]) -> Any:
    """A function that kernels call. Triton's interpreter runs it as it is, quicker than one that it is told of."""
    return function if os.environ.get("TRITON_INTERPRET") == "1" else triton.jit(function)


@inner
def split(a, THREE: tl.constexpr):
    """a = hi + lo, with hi in the eleven bits of TF32; as it is, twice, unless THREE."""
    if THREE:
        high = ((a.to(tl.int32, bitcast=True) + 4096) & -8192).to(tl.float32, bitcast=True)
        low = a - high
    else:
        high = a
        low = a
    return high, low


@inner
def product(a, a_rest, b, b_rest, out, THREE: tl.constexpr):
    """out + a b, both split.

    What is left out, lo·lo, is below a float32's own rounding: the three products are as exact as float32 ones. A
    tensor core cuts off where it should round, so that a long sum shrinks: the product is added to ``out`` apart.
    """
    if THREE:
        made = tl.dot(a_rest, b, input_precision="tf32")
        made = tl.dot(a, b_rest, made, input_precision="tf32")
        made = tl.dot(a, b, made, input_precision="tf32")
    else:
        made = tl.dot(a, b, input_precision="tf32", out_dtype=a.dtype)
    return out + made


@triton.jit(do_not_specialize=["chunk"])
def project(
    X, Z, P, P_rest, FLAG, chunk, K, mK, n, span,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr, THREE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """V = X Pᵀ of the chunk's rows P (ROWS, n), as partial sums over ``span`` columns of X: Z (parts, m, ROWS, K)."""
    if tl.load(FLAG) < chunk:
        return
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = row < mK
    j = tl.arange(0, ROWS)
    i = tl.arange(0, TILE)
    first = tl.program_id(1) * span
    x_at = X + row.to(tl.int64)[:, None] * n
    at = chunk * ROWS * n + j[None, :] * n
    v = tl.zeros((BLOCK, ROWS), X.dtype.element_ty)
    count = (tl.minimum(first + span, n) - first + TILE - 1) // TILE
    for turn in tl.range(0, count, num_stages=STAGES):
        # Each program begins elsewhere, or all would ask the same few channels of memory at a time.
        c = first + (turn + tl.program_id(0)) % count * TILE + i
        inside = c < n
        x = tl.load(x_at + c[None, :], mask=there[:, None] & inside[None, :], other=0.0)
        p = tl.load(P + at + c[:, None], mask=inside[:, None], other=0.0)
        rest = tl.load(P_rest + at + c[:, None], mask=inside[:, None], other=0.0) if THREE else p
        x, x_rest = split(x, THREE)
        v = product(x, x_rest, p, rest, v, THREE)
    part = tl.program_id(1).to(tl.int64) * mK * ROWS
    k = part + (row // K).to(tl.int64) * ROWS * K + row % K
    tl.store(Z + k[:, None] + j[None, :].to(tl.int64) * K, v, mask=there[:, None])
