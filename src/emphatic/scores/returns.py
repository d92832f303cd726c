"""What then happened."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emphatic.learning.inputs import refusal

__all__ = ["KNOWN", "SEEN", "known_return"]

#: A return is known where at least this share of its weight lies before the log's end or a gap,
KNOWN = 0.99
#: and this share was seen: of a few missing readings, the rest tells the mean well enough.
SEEN = 0.5
#: For sums of weights that come to that share but for rounding.
_SLACK = 1e-9


def known_return(
    x: NDArray[np.float64], missing: NDArray[np.bool_], gap: NDArray[np.bool_], gamma: float
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The mean of what followed each row of a signal, and where it is known.

        G_t = Σ w_k x_{t+1+k} / Σ w_k,   w_k = (1 − γ) γᵏ

    over the readings that were seen: those ``missing`` are left out, and nothing counts from a ``gap`` on (a row that
    does not follow on the one before) or beyond the log's end. It is known where .99 of the weight lies before that,
    and half of the weight was seen. Where nothing was seen G is NaN. γ = 0: the next reading.

    >>> x, no = np.array([3.0, 1.0, 2.0, 4.0]), np.zeros(4, bool)
    >>> G, known = known_return(x, no, no, 0.0)
    >>> G.tolist(), known.tolist()
    ([1.0, 2.0, 4.0, nan], [True, True, True, False])
    """
    from emphatic.scores import kernels

    if not 0.0 <= gamma < 1.0:  # also refuses NaN
        raise refusal("gamma", "known_return", "be at least 0 and less than 1", repr(gamma))
    x = np.ascontiguousarray(x, np.float64)
    missing, gap = (np.ascontiguousarray(flags, np.bool_) for flags in (missing, gap))
    for name, flags in (("missing", missing), ("gap", gap)):
        if flags.shape != x.shape or x.ndim != 1:
            raise refusal(name, "known_return", "have the shape (T,) of 'x'", f"{flags.shape} beside {x.shape}")
    G, known = np.empty(len(x)), np.empty(len(x), np.bool_)
    # A signal far from 0 would lose digits in long sums.
    centre = float(x[np.argmin(missing)]) if not missing.all() else 0.0
    kernels.backward(x, missing, gap, float(gamma), centre, KNOWN - _SLACK, SEEN - _SLACK, G, known)
    return G, known
