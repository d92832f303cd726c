"""Which rows each question is fitted on: few sets of rows for many questions, one bit per row."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["Bits", "count", "share_masks", "unpack"]

#: Flags of rows, packed eight to a byte as ``np.packbits`` does, zeros after the last.
Bits = NDArray[np.uint8]

#: Up to so many, each question keeps all its rows.
_FEW = 8
_ONES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1, dtype=np.uint8)


def count(bits: Bits) -> int:
    """How many are set."""
    return int(_ONES[bits].sum(dtype=np.int64))


def unpack(bits: Bits, start: int, stop: int) -> NDArray[np.bool_]:
    """The flags of the rows from ``start`` to ``stop`` of several masks, (g, stop − start)."""
    first = start // 8
    flags = np.unpackbits(bits[:, first : -(-stop // 8)], axis=1)
    return flags[:, start - 8 * first : stop - 8 * first].view(np.bool_)


def share_masks(known: Bits, H: int) -> tuple[Bits, NDArray[np.int64]]:
    """Masks (g, bytes) and which of them each question has, from the rows ``known`` of Q questions, H a signal.

    Questions with the same rows share a mask. If that leaves more than 8, questions of the same horizon share the
    rows known for all of them, so long as none loses more than half of its own.
    """
    masks, group = _distinct(known)
    if len(masks) <= _FEW:
        return masks, group
    rows = [count(mask) for mask in known]
    merged = list(known)
    for h in range(H):
        clusters: list[tuple[Bits, int, list[int]]] = []
        for q in sorted(range(h, len(known), H), key=lambda q: -rows[q]):  # the first of a cluster has the most rows
            for at, (mask, most, members) in enumerate(clusters):
                both = mask & known[q]
                if 2 * count(both) >= most:
                    clusters[at] = both, most, [*members, q]
                    break
            else:
                clusters.append((known[q], rows[q], [q]))
        for mask, _, members in clusters:
            for q in members:
                merged[q] = mask
    return _distinct(merged)


def _distinct(known: Bits | Sequence[Bits]) -> tuple[Bits, NDArray[np.int64]]:
    number: dict[bytes, int] = {}
    group = np.array(
        [number.setdefault(hashlib.sha256(mask.tobytes()).digest(), len(number)) for mask in known], np.int64
    )
    return np.stack([known[int(np.argmax(group == u))] for u in range(len(number))]), group
