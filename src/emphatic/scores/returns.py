"""The actual returns: what followed each row of a log, and the sets of rows where it is known.

The rows on which each question is fitted are few sets of rows for many questions, one bit per row.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from emphatic.learning.inputs import refusal

__all__ = ["KNOWN", "SEEN", "Returns", "count_bits", "known_return", "rows_between", "rows_known", "rows_to_score"]
__all__ += ["share_masks", "unpack_bits"]

#: Flags of rows, packed eight to a byte as ``np.packbits`` does, zeros after the last.
Bits = NDArray[np.uint8]

#: A return is known where at least this share of its weight lies before the log's end or a gap,
KNOWN = 0.99
#: and this share was seen: if a few readings are missing, the rest give the mean well enough. Of a signal that holds a
#: reading only in each k-th row a k-th of that share counts: a reading covers the time until the next one is due.
SEEN = 0.5
#: For sums of weights that come to that share but for rounding.
_SLACK = 1e-9
#: Up to this many masks, each question keeps all its rows.
_FEW = 8
_ONES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1, dtype=np.uint8)


class Returns:
    """The returns of C signals at H horizons, computed backwards in time, one block of rows after the other.

    ``gammas`` are those of the horizons. ``centres``, one per signal, are subtracted before summing: a signal far from
    0 would lose digits in long sums. ``every``, one per signal, is the usual number of rows from a reading to the next,
    1 by default: a reading covers so many rows. ``state`` (Q, 3) is what the rows given so far hand on to those before
    them; set it to an earlier copy to compute the returns of a block again.
    """

    def __init__(self, gammas: ArrayLike, centres: ArrayLike, every: ArrayLike | None = None) -> None:
        self._gammas = [float(gamma) for gamma in np.asarray(gammas, np.float64)]
        self._centres = [float(centre) for centre in np.asarray(centres, np.float64)]
        count = len(self._centres)
        self._seen = (SEEN / np.asarray(np.ones(count) if every is None else every, np.float64) - _SLACK).tolist()
        self.state = np.zeros((len(self._gammas) * count, 3))

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
                    x, gone, gap, gamma, centre, KNOWN - _SLACK, self._seen[c], self.state[q], G[q], known[q]
                )
        return G, known


def rows_between(missing: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The usual number of rows from a reading of each signal to its next one, (C,); 1 of one that has fewer than two.

    Args:
        missing: Where there is no reading, (T, C).

    >>> rows_between(np.array([[0, 0, 1], [0, 1, 1], [0, 1, 1], [0, 0, 1]], bool)).tolist()
    [1.0, 3.0, 1.0]
    """
    steps = (np.diff(np.flatnonzero(~column)) for column in missing.T)
    return np.array([np.median(step) if len(step) else 1.0 for step in steps])


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


def rows_known(gamma: float) -> int:
    """The rows after which a return is known where none is missing: k with γᵏ ≤ 1 − .99.

    >>> rows_known(0.0), rows_known(0.5)
    (1, 7)
    """
    return 1 if gamma <= 0.0 else max(1, math.ceil(math.log(1.0 - KNOWN) / math.log(gamma) - 1e-9))


def rows_to_score(gamma: float) -> int:
    """The rows of a log without gaps from which the second half has two returns that are known, at least.

    >>> rows_to_score(0.0), rows_to_score(0.5)
    (5, 17)
    """
    return 2 * rows_known(gamma) + 3


def count_bits(bits: Bits) -> int:
    """How many are set."""
    return int(_ONES[bits].sum(dtype=np.int64))


def unpack_bits(bits: Bits, start: int, stop: int) -> NDArray[np.bool_]:
    """The flags of the rows from ``start`` to ``stop`` of several masks, (g, stop − start)."""
    byte = start // 8
    flags = np.unpackbits(bits[:, byte : -(-stop // 8)], axis=1)
    return flags[:, start - 8 * byte : stop - 8 * byte].view(np.bool_)


def share_masks(known: Bits, H: int) -> tuple[Bits, NDArray[np.int64]]:
    """Masks (g, bytes) and which of them each question has, from the rows ``known`` of Q questions, H a signal.

    Questions with the same rows share a mask. If that leaves more than 8, questions of the same horizon share the
    rows known for all of them, so long as none loses more than half of its own.
    """
    masks, group = _distinct(known)
    if len(masks) <= _FEW:
        return masks, group
    rows = [count_bits(mask) for mask in known]
    merged = list(known)
    for h in range(H):
        clusters: list[tuple[Bits, int, list[int]]] = []
        for q in sorted(range(h, len(known), H), key=lambda q: -rows[q]):  # the first of a cluster has the most rows
            for at, (mask, most, members) in enumerate(clusters):
                both = mask & known[q]
                if 2 * count_bits(both) >= most:
                    clusters[at] = both, most, [*members, q]
                    break
            else:
                clusters.append((known[q], rows[q], [q]))
        for mask, _, members in clusters:
            for q in members:
                merged[q] = mask
    return _distinct(merged)


def _distinct(known: Bits | Sequence[Bits]) -> tuple[Bits, NDArray[np.int64]]:
    """The different masks, and which of them each question has."""
    indices: dict[bytes, int] = {}
    digests = (hashlib.sha256(mask.tobytes()).digest() for mask in known)
    group = np.array([indices.setdefault(digest, len(indices)) for digest in digests], np.int64)
    return np.stack([known[int(np.argmax(group == u))] for u in range(len(indices))]), group
