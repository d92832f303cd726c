"""Which rows each question is fitted on: few sets of rows for many questions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["shared"]

#: Up to so many, each question keeps all its rows.
_FEW = 8


def shared(known: NDArray[np.bool_], H: int) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Masks (g, T) and which of them each question has, from the rows ``known`` (Q, T) with H questions a signal.

    Questions with the same rows share a mask. If that leaves more than 8, questions of the same horizon share the
    rows known for all of them, so long as none loses more than half of its own.
    """
    masks, group = _distinct(known)
    if len(masks) <= _FEW:
        return masks, group
    rows = known.sum(axis=1)
    merged = known.copy()
    for h in range(H):
        clusters: list[tuple[NDArray[np.bool_], int, list[int]]] = []
        for q in sorted(range(h, len(known), H), key=lambda q: -rows[q]):  # the first of a cluster has the most rows
            for at, (mask, most, members) in enumerate(clusters):
                both = mask & known[q]
                if 2 * both.sum() >= most:
                    clusters[at] = both, most, [*members, q]
                    break
            else:
                clusters.append((known[q], int(rows[q]), [q]))
        for mask, _, members in clusters:
            merged[members] = mask
    return _distinct(merged)


def _distinct(known: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    number: dict[bytes, int] = {}
    group = np.array([number.setdefault(np.packbits(mask).tobytes(), len(number)) for mask in known], np.int64)
    first = [int(np.argmax(group == u)) for u in range(len(number))]
    return known[first], group
