"""The actual returns: what followed each row of a log, and where it is known."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from emphatic.learning.inputs import refusal

__all__ = ["KNOWN", "SEEN", "known_return", "rows_known"]

#: A return is known where at least this share of its weight lies before the log's end or a gap,
KNOWN = 0.99
#: and this share was seen: if a few readings are missing, the rest give the mean well enough.
SEEN = 0.5
#: For sums of weights that come to that share but for rounding.
_SLACK = 1e-9


def known_return(
    x: NDArray[np.float64], missing: NDArray[np.bool_], gap: NDArray[np.bool_], gamma: float
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The weighted mean of the values that followed each row of a signal, and where it is known.

        G_t = Σ w_k x_{t+1+k} / Σ w_k,   w_k = (1 − γ) γᵏ

    over the values that are not missing, up to the next gap or the end of the log. It is known if .99 of the weight
    lies before that, and at least half of the weight falls on values that are not missing. If there is no such value, G
    is NaN. With γ = 0 it is the next value.

    Args:
        x: The values of a signal, (T,).
        missing: Where there is none, (T,); these are left out.
        gap: Which rows do not follow the one before, (T,).
        gamma: γ, at least 0 and less than 1.

    Returns:
        G and where it is known, (T,) each.

    >>> x, no = np.array([3.0, 1.0, 2.0, 4.0]), np.zeros(4, bool)
    >>> G, known = known_return(x, no, no, 0.0)
    >>> G.tolist(), known.tolist()
    ([1.0, 2.0, 4.0, nan], [True, True, True, False])
    """
    from scipy.signal import lfilter  # late: to import it takes long

    if not 0.0 <= gamma < 1.0:  # also refuses NaN
        raise refusal("gamma", "known_return", "be at least 0 and less than 1", repr(gamma))
    x = np.asarray(x, np.float64)
    missing, gap = (np.asarray(flags, np.bool_) for flags in (missing, gap))
    for name, flags in (("missing", missing), ("gap", gap)):
        if flags.shape != x.shape or x.ndim != 1:
            raise refusal(name, "known_return", "have the shape (T,) of 'x'", f"{flags.shape} beside {x.shape}")
    centre = x[np.argmin(missing)] if not missing.all() else 0.0  # far from 0, sums would lose digits
    weighed = np.stack([np.where(missing, 0.0, x - centre), ~missing, np.ones(len(x))])
    sums = np.zeros((3, len(x)))
    for begin, end in pairwise([0, *(np.flatnonzero(gap[1:]) + 1).tolist(), len(x)]):
        backwards = lfilter([1.0 - gamma], [1.0, -gamma], weighed[:, begin:end][:, ::-1])
        sums[:, begin : end - 1] = backwards[:, ::-1][:, 1:]
    value, seen, reached = sums
    G = np.divide(value, seen, out=np.full(len(x), np.nan), where=seen > 0.0) + centre
    return G, (reached >= KNOWN - _SLACK) & (seen >= SEEN - _SLACK)


def rows_known(gamma: float) -> int:
    """The rows after which a return is known where none is missing: k with γᵏ ≤ 1 − .99.

    >>> rows_known(0.0), rows_known(0.5)
    (1, 7)
    """
    return 1 if gamma <= 0.0 else max(1, math.ceil(math.log(1.0 - KNOWN) / math.log(gamma) - 1e-9))
