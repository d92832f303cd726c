"""The loops of ``possible``.  Compiled without fast mathematics: the bits do not depend on how rows are cut."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numba import from_dtype, types

from emphatic.engines.compiled import jit_for

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Records = NDArray[Any]

#: A question in its stream:
#:     scale         1 − γ, or 0 where γ is 1 or varies
#:     factor        what an answer is multiplied by to be in the learner's unit
#:     base          what it is then lessened by
#:     log_product   log Π ρ since the window was last filled
#:     window        the steps of the window: 0 without a policy, −1 where γ is 1 or varies
#:     begin         where it begins among the ratios
#:     steps         the steps so far
_FLOATS, _INTEGERS = ("scale", "factor", "base", "log_product"), ("window", "begin", "steps")
QUESTION = np.dtype([*((name, "f8") for name in _FLOATS), *((name, "i8") for name in _INTEGERS)])
#: What is known of it:
#:     least, most   the least and the most cumulant, and 0
#:     found         whether an impossible answer was found
#:     largest       the largest log w
#:     total         Σw in units of that w
#:     squares       Σw² in units of its square
#:     support       the support
_KNOWN = ("least", "most", "found", "largest", "total", "squares", "support")
KNOWN = np.dtype([(name, "f8") for name in _KNOWN])
#: The least and the most return, in the last axis but one.
LOW, HIGH = range(2)

_f1, _f2, _f3 = (types.Array(types.float64, ndim, "C") for ndim in (1, 2, 3))
_r2, _r3 = (types.Array(types.float64, ndim, "C", readonly=True) for ndim in (2, 3))
_question, _known = (types.Array(from_dtype(dtype), 1, "C") for dtype in (QUESTION, KNOWN))


@jit_for((_r2, _r2, _question, _known, _f1, _f3), fastmath=False)
def take(R: Floats, rho: Floats, questions: Records, knowledge: Records, ratios: Floats, bounds: Floats) -> None:
    """Take the cumulants and ρ of the next steps, (T, Q), in each learner's unit.

    ``bounds`` take the least and the most return that is then possible, (T, 2, Q), or (1, 2, Q) after the last step.
    To be exact and quick, the product of ρ over a window is that of the present stretch of so many steps and of the end
    of the stretch before, whose products from each step on stand among the ``ratios``, as logarithms.
    """
    several = len(bounds) > 1
    for t in range(len(R)):
        row = bounds[min(t, len(bounds) - 1)]
        for q in range(len(questions)):
            question, known = questions[q], knowledge[q]
            window = question["window"]
            if several or not known["least"] <= R[t, q] <= known["most"]:
                least, most = min(known["least"], R[t, q]), max(known["most"], R[t, q])
                known["least"], known["most"], scale = least, most, question["scale"]
                row[LOW, q] = least / scale if scale > 0.0 else -math.inf
                row[HIGH, q] = most / scale if scale > 0.0 else math.inf
            if window < 0 or math.isnan(rho[t, q]):
                continue
            if window == 0:
                known["support"] += 1.0
                continue
            ratio = math.log(rho[t, q]) if rho[t, q] > 0.0 else -math.inf
            place = question["steps"] % window
            at = question["begin"] + place
            log_w = question["log_product"] = ratio if place == 0 else question["log_product"] + ratio
            if question["steps"] >= window and place + 1 < window:
                log_w += ratios[at + 1]
            ratios[at] = ratio
            if place + 1 == window:
                for i in range(at - 1, at - window, -1):
                    ratios[i] += ratios[i + 1]
            question["steps"] += 1
            if log_w > known["largest"]:
                shrink = math.exp(known["largest"] - log_w)
                known["total"] *= shrink
                known["squares"] *= shrink * shrink
                known["largest"] = log_w
            if log_w > -math.inf:
                w = math.exp(log_w - known["largest"])
                known["total"] += w
                known["squares"] += w * w
                known["support"] = known["total"] * known["total"] / known["squares"]


@jit_for((_r2, _question, _known, _r3), fastmath=False)
def find_impossible(answers: Floats, questions: Records, knowledge: Records, bounds: Floats) -> int:
    """The place of the first answer (B, Q) that is further outside what is possible than that is wide, or −1.

    Each question is found once. ``bounds`` (B, 2, Q) are those at each row, or (1, 2, Q) at all of them.
    """
    for t in range(len(answers)):
        row = bounds[min(t, len(bounds) - 1)]
        for q in range(len(questions)):
            question, low, high = questions[q], row[LOW, q], row[HIGH, q]
            value, width = answers[t, q] * question["factor"] - question["base"], high - low
            outside = value < low - width or value > high + width
            if outside and 0.0 < width < math.inf and knowledge[q]["found"] == 0.0:
                knowledge[q]["found"] = 1.0
                return t * len(questions) + q
    return -1


@jit_for((_f2, _r3), fastmath=False)
def clip(V: Floats, bounds: Floats) -> None:
    """Keep predictions (B, Q) within the bounds at each row, (B, 2, Q), or (1, 2, Q) at all of them."""
    for t in range(len(V)):
        row = bounds[min(t, len(bounds) - 1)]
        for q in range(V.shape[1]):
            V[t, q] = min(max(V[t, q], row[LOW, q]), row[HIGH, q])
