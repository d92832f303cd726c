"""What elementwise rules may call: √ and ln as NumPy has them, and e^x in the arithmetic of rules, which is faster."""

from __future__ import annotations

from typing import Any

from numpy import log, sqrt

__all__ = ["exp", "log", "sqrt"]


def exp(x: Any) -> Any:
    """e^x for −32 ≤ x ≤ 32, and e^±32 beyond: (e^{x/64})^64, by the series to x¹³/13!; exact to about 1e-14.

    Exactly 1 at 0. Loops over weights become vector instructions: a library's exponential costs some 6 ns a weight, as
    it is called for one number at a time.

    Args:
        x: A number or an array.
    """
    y = min(max(x, -32.0), 32.0) * 0.015625
    s = 1.0 + y * (1.0 / 11.0) * (1.0 + y * (1.0 / 12.0) * (1.0 + y * (1.0 / 13.0)))
    s = 1.0 + y * (1.0 / 7.0) * (1.0 + y * 0.125 * (1.0 + y * (1.0 / 9.0) * (1.0 + y * 0.1 * s)))
    s = 1.0 + y * (1.0 / 4.0) * (1.0 + y * 0.2 * (1.0 + y * (1.0 / 6.0) * s))
    s = 1.0 + y * (1.0 + y * 0.5 * (1.0 + y * (1.0 / 3.0) * s))
    s = s * s
    s = s * s
    s = s * s
    s = s * s
    s = s * s
    return s * s
