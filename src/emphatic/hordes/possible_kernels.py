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

#: Of a question: 1/(1 − γ), or 0 where γ is 1 or varies; the steps of its window, 0 without a policy, −1 where it has
#: none; where its window begins among the ratios; and by what an answer is multiplied to be in the learner's unit, 0
#: where no answer is compared with what is possible.
QUESTION = np.dtype([("span", "f8"), ("window", "i8"), ("begin", "i8"), ("factor", "f8")])
#: What is known of it: the least and the most cumulant, and 0; the impossible prediction that was found, with the range
#: at that time; the largest log w, and Σw and Σw² in units of that w and its square.
_NUMBERS = ("least", "most", "named", "prediction", "low", "high", "largest", "total", "squares")
KNOWN = np.dtype([(name, "f8") for name in _NUMBERS])
#: Of the sequence: its steps, and log Π ρ since the window was last filled.
SEQUENCE = np.dtype([("steps", "f8"), ("product", "f8")])

_f1, _f2 = (types.Array(types.float64, ndim, "C") for ndim in (1, 2))
_r1, _r2 = (types.Array(types.float64, ndim, "C", readonly=True) for ndim in (1, 2))
_question, _known, _sequence = (types.Array(from_dtype(dtype), 1, "C") for dtype in (QUESTION, KNOWN, SEQUENCE))


@jit_for((_r2, _r2, _question, _known, _sequence, _f1, _f2, _f2, _f1), fastmath=False)
def take(
    R: Floats, rho: Floats, questions: Records, knowledge: Records, sequences: Records, ratios: Floats, low: Floats,
    high: Floats, support: Floats,
) -> None:  # fmt: skip
    """Take the cumulants and ρ of the next steps, (T, Q), in each learner's unit.

    ``low`` and ``high`` (T, K), or (1, K) for the last step alone, take the least and the most return that is then
    possible. ``support`` (Q,) takes (Σw)²/Σw², w = Π ρ over the steps of the window. To be exact and quick, the product
    over a window is that of the present stretch of so many steps and of the end of the stretch before, whose products
    from each step on stand among the ``ratios``, as logarithms.
    """
    Q = len(questions)
    for t in range(len(R)):
        row = min(t, len(low) - 1)
        for q in range(Q):
            question, known, sequence = questions[q], knowledge[q], sequences[q]
            known["least"] = min(known["least"], R[t, q])
            known["most"] = max(known["most"], R[t, q])
            span, window = question["span"], question["window"]
            for k in range(q, low.shape[1], Q):
                low[row, k] = known["least"] * span if span > 0.0 else -math.inf
                high[row, k] = known["most"] * span if span > 0.0 else math.inf
            if window < 0:
                continue
            ratio = math.log(rho[t, q]) if rho[t, q] > 0.0 else -math.inf
            log_w = ratio
            if window > 0:
                place = int(sequence["steps"]) % window
                product = ratio if place == 0 else sequence["product"] + ratio
                at = question["begin"] + place
                log_w = product
                if sequence["steps"] >= window and place + 1 < window:
                    log_w += ratios[at + 1]
                ratios[at] = ratio
                if place + 1 == window:
                    for i in range(at - 1, at - window, -1):
                        ratios[i] += ratios[i + 1]
                sequence["product"] = product
                sequence["steps"] += 1.0
            if log_w > known["largest"]:
                shrink = math.exp(known["largest"] - log_w)
                known["total"] *= shrink
                known["squares"] *= shrink * shrink
                known["largest"] = log_w
            if log_w > -math.inf:
                w = math.exp(log_w - known["largest"])
                known["total"] += w
                known["squares"] += w * w
                support[q] = known["total"] * known["total"] / known["squares"]


@jit_for((_r2, _r1, _question, _known, _r2, _r2), fastmath=False)
def find_impossible(
    answers: Floats, base: Floats, questions: Records, knowledge: Records, low: Floats, high: Floats
) -> int:
    """How many questions are answered (B, Q) further outside what is possible than that is wide, for the first time.

    ``low`` and ``high`` are those at each row, or at all of them, (1, …).
    """
    count = 0
    for t in range(len(answers)):
        row = min(t, len(low) - 1)
        for q in range(len(questions)):
            question, known = questions[q], knowledge[q]
            width = high[row, q] - low[row, q]
            value = answers[t, q] * question["factor"] - base[q]
            outside = value < low[row, q] - width or value > high[row, q] + width
            compared = question["factor"] > 0.0 and 0.0 < width < math.inf
            if outside and compared and known["named"] == 0.0:
                known["named"], known["prediction"] = 1.0, value
                known["low"], known["high"] = low[row, q], high[row, q]
                count += 1
    return count
