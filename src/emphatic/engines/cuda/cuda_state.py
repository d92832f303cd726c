"""Learners' scalars on the device and on the host: the newer of the two copies is valid."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["CudaState"]


class CudaState:
    """Memory, bounds and counts of steps of K learners, and which of them are frozen."""

    def __init__(self, K: int, rows: int, device: torch.device) -> None:
        self.K = K
        #: Memory and bounds, (rows, K), before a chunk and after it; and the index of the current one.
        self.pair = torch.zeros((2, rows, K), dtype=torch.float64, device=device)
        self.at = 0
        #: 1 for those that are frozen, and how many they are.
        self.frozen = torch.zeros(K, dtype=torch.int8, device=device)
        self.standing = 0
        self._host: NDArray[np.float64] | None = None
        self._frozen = np.zeros(K, np.bool_)
        #: The counts of steps, and how many have been taken since by those that are not frozen.
        self._counts, self._steps = np.zeros(K), 0

    @property
    def nbytes(self) -> int:
        return int(self.pair.nbytes + self.frozen.nbytes)

    @property
    def present(self) -> torch.Tensor:
        """The current memory and bounds."""
        return self.pair[self.at]

    def on_host(self) -> NDArray[np.float64]:
        """(K, rows + 1), the counts last. The caller may write to it: this copy is valid until the next run."""
        if self._host is None:
            self._count()
            self._host = np.column_stack([self.present.cpu().numpy().T, self._counts])
        return self._host

    @property
    def counts(self) -> NDArray[np.float64]:
        """The counts of steps, (K,), without a transfer from the device."""
        if self._host is not None:
            return self._host[:, -1]
        self._count()
        return self._counts

    def set(self, scalars: NDArray[np.float64]) -> None:
        self._host = scalars

    def begin(self, frozen: NDArray[np.bool_]) -> None:
        """Make the device's copy the valid one, with these learners frozen."""
        if self._host is not None:
            self.present.copy_(torch.from_numpy(np.ascontiguousarray(self._host[:, :-1].T)))
            self._counts, self._steps, self._host = self._host[:, -1].copy(), 0, None
        self.freeze(frozen)

    def freeze(self, frozen: NDArray[np.bool_]) -> None:
        """Freeze these learners, and no others."""
        if self.standing or frozen.any():
            self._count()
            self._frozen[:] = frozen
            self.frozen.copy_(torch.from_numpy(self._frozen.view(np.int8)))
            self.standing = int(frozen.sum())

    def prepare(self) -> None:
        """Copy the state of frozen learners, which no kernel writes, to the other of the pair."""
        if self.standing:
            self.pair[self.at ^ 1] = self.present

    def advance(self, steps: int, chunks: int = 0) -> None:
        """Count these steps; each chunk of them went from one of the pair to the other."""
        self._steps += steps
        self.at ^= chunks & 1

    def _count(self) -> None:
        self._counts += np.where(self._frozen, 0.0, float(self._steps))
        self._steps = 0
