"""The actual returns: what followed each row of a log."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from emphatic.learning.inputs import refusal

__all__ = ["KNOWN", "SEEN", "Returns", "known_return", "rows_to_score"]

#: A return is known where at least this share of its weight lies before the log's end or a gap,
KNOWN = 0.99
#: and this share was seen: if a few readings are missing, the rest give the mean well enough.
SEEN = 0.5
#: For sums of weights that come to that share but for rounding.
_SLACK = 1e-9


class Returns:
    """The returns of C signals at H horizons, computed backwards in time, one block of rows after the other.

    ``gammas`` are those of the horizons. ``centres``, one per signal, are subtracted before summing: a signal far from
    0 would lose digits in long sums. ``state`` (Q, 3) is what the rows given so far hand on to those before them; set
    it to an earlier copy to compute the returns of a block again.
    """

    def __init__(self, gammas: ArrayLike, centres: ArrayLike) -> None:
        self._gammas = [float(gamma) for gamma in np.asarray(gammas, np.float64)]
        self._centres = [float(centre) for centre in np.asarray(centres, np.float64)]
        self.state = np.zeros((len(self._gammas) * len(self._centres), 3))

    def __call__(
        self, values: NDArray[np.float64], missing: NDArray[np.bool_], gap: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """G and where it is known, both (Q, B), of the B rows before those given last; see ``known_return``."""
        from emphatic.scores import kernels

        G, known = np.empty((len(self.state), len(gap))), np.empty((len(self.state), len(gap)), np.bool_)
        gap = np.ascontiguousarray(gap, np.bool_)
        for c, centre in enumerate(self._centres):
            x, gone = np.ascontiguousarray(values[:, c], np.float64), np.ascontiguousarray(missing[:, c], np.bool_)
            for h, gamma in enumerate(self._gammas):
                q = c * len(self._gammas) + h
                kernels.backward(
                    x, gone, gap, gamma, centre, KNOWN - _SLACK, SEEN - _SLACK, self.state[q], G[q], known[q]
                )
        return G, known


def known_return(
    x: NDArray[np.float64], missing: NDArray[np.bool_], gap: NDArray[np.bool_], gamma: float
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The mean of what followed each row of a signal, and where it is known.

        G_t = Σ w_k x_{t+1+k} / Σ w_k,   w_k = (1 − γ) γᵏ

    over the readings that were seen: those ``missing`` are left out, and nothing counts from a ``gap`` on (a row that
    does not follow the one before) or beyond the log's end. It is known where .99 of the weight lies before that,
    and half of the weight was seen. Where nothing was seen G is NaN. γ = 0: the next reading.

    >>> x, no = np.array([3.0, 1.0, 2.0, 4.0]), np.zeros(4, bool)
    >>> G, known = known_return(x, no, no, 0.0)
    >>> G.tolist(), known.tolist()
    ([1.0, 2.0, 4.0, nan], [True, True, True, False])
    """
    if not 0.0 <= gamma < 1.0:  # also refuses NaN
        raise refusal("gamma", "known_return", "be at least 0 and less than 1", repr(gamma))
    x = np.asarray(x, np.float64)
    missing, gap = (np.asarray(flags, np.bool_) for flags in (missing, gap))
    for name, flags in (("missing", missing), ("gap", gap)):
        if flags.shape != x.shape or x.ndim != 1:
            raise refusal(name, "known_return", "have the shape (T,) of 'x'", f"{flags.shape} beside {x.shape}")
    centre = x[np.argmin(missing)] if not missing.all() else 0.0
    G, known = Returns([gamma], [centre])(x[:, None], missing[:, None], gap)
    return G[0], known[0]


def rows_to_score(gamma: float) -> int:
    """The rows of a log without gaps from which the second half has two returns that are known, at least.

    A return is known k rows before the end, where γᵏ ≤ 1 − .99.

    >>> rows_to_score(0.0), rows_to_score(0.5)
    (5, 17)
    """
    ahead = 1 if gamma <= 0.0 else math.ceil(math.log(1.0 - KNOWN) / math.log(gamma) - 1e-9)
    return 2 * max(ahead, 1) + 3
