"""A log on its way to the device, a block of steps at a time: the next one travels while one is computed."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from emphatic.engines.cuda.cuda_functions import GROUP

if TYPE_CHECKING:
    from emphatic.engines.cuda.engine import Cuda

__all__ = ["ROWS", "CudaBlock", "CudaLog"]

#: Feature rows in a chunk.
ROWS = 64
#: Bytes of a log that are on the device at a time, about; at least one chunk is.
_BYTES = 1 << 29


class CudaBlock:
    """Some steps of a log on the device, cut into chunks of ROWS rows and made ready for the kernels."""

    def __init__(
        self, engine: Cuda, begin: int, phi: torch.Tensor, phi_next: torch.Tensor | None,
        top: torch.Tensor, parameters: list[torch.Tensor], keep: bool,
    ) -> None:  # fmt: skip
        self.engine, self.begin, self.parameters = engine, begin, parameters
        self.phi, self.phi_next = phi, phi_next
        self.apart = phi_next is not None
        self.T = len(phi) if self.apart else len(phi) - 1
        #: Steps a chunk.
        self.steps = ROWS // 2 if self.apart else ROWS - 1
        self.turns = GROUP // 2 if self.apart else GROUP
        self.chunks = -(-self.T // self.steps)
        self.out = torch.empty((self.T if keep else 0, engine.K), dtype=engine.real, device=engine.device)
        self.keep = keep
        self._prepare()
        #: A bound on the components of each chunk's rows: none where products of rows are beyond the number range, so
        #: that such a chunk is taken step by step.
        self.top = torch.where(self.G.isfinite().flatten(1).all(1), top, torch.inf)
        self.pointers = [
            value
            for p in parameters
            for value in (p, p.stride(0) if len(p) > 1 else 0, p.stride(1) if p.shape[1] > 1 else 0)
        ]
        self.varies = [len(p) > 1 for p in parameters]

    def _prepare(self) -> None:
        """P of every chunk, by rows and by columns, each as it is in TF32 and what that leaves; and G = P Pᵀ."""
        engine, phi = self.engine, self.phi
        stride = 2 * self.steps if self.apart else self.steps
        padded = phi.new_zeros((stride * self.chunks + 1, engine.width))
        if self.phi_next is not None:
            padded[0 : 2 * self.T : 2, : engine.n] = phi
            padded[1 : 2 * self.T : 2, : engine.n] = self.phi_next
        else:
            padded[: self.T + 1, : engine.n] = phi
        P = padded.as_strided((self.chunks, ROWS, engine.width), (stride * engine.width, engine.width, 1)).contiguous()
        self.G = torch.bmm(P, P.transpose(1, 2))
        self.H = _windows(self.G, self.apart)
        self.rows = _split(P)
        self.columns = tuple(part.transpose(1, 2).contiguous() for part in self.rows)

    def t0(self, chunk: int) -> int:
        """The chunk's first step; T for the one after the last."""
        return min(chunk * self.steps, self.T)

    def length(self, chunk: int) -> int:
        """How many steps that chunk has."""
        return self.t0(chunk + 1) - self.t0(chunk)

    def rows_at(self, t: int) -> torch.Tensor:
        """φ and φ' of step t, (2, n)."""
        return self.phi[t : t + 2] if self.phi_next is None else torch.stack([self.phi[t], self.phi_next[t]])

    def step_at(self, t: int) -> list[torch.Tensor]:
        """The parameters of step t, (K,) each."""
        return [p[t if len(p) > 1 else 0].double().expand(self.engine.K) for p in self.parameters]

    def deliver(self, predictions: Any) -> None:
        """Put the predictions where they are wanted."""
        if self.keep:
            target = predictions[self.begin : self.begin + self.T]
            if isinstance(target, np.ndarray):
                torch.from_numpy(target).copy_(self.out)
            else:
                target.copy_(self.out)


class CudaLog:
    """All steps of a run, as blocks."""

    def __init__(self, engine: Cuda, phi: Any, phi_next: Any, top: float, parameters: Any, keep: bool) -> None:
        self.engine, self.keep, self.T = engine, keep, len(phi)
        self.top = torch.tensor(top, dtype=torch.float64, device=engine.device)
        self.apart = not _one_log(phi, phi_next)
        self.phi, self.phi_next = _tensor(phi), _tensor(phi_next)
        self.parameters = [_reduced(_tensor(p)) for p in parameters]
        # What is the same at every step travels once, and may well be exact.
        self.constant = [
            p.to(engine.device, torch.float64) if len(p) == 1 or self.T == 1 else None for p in self.parameters
        ]
        # Numbers a step: φ, P in all its forms and its G; predictions; and what of the parameters is not there yet.
        each = 6 * engine.n * (1 + self.apart) + 2 * ROWS + engine.K * keep
        each += sum(
            p.shape[1]
            for p, constant in zip(self.parameters, self.constant, strict=True)
            if constant is None and p.device.type != engine.device
        )
        steps = ROWS // 2 if self.apart else ROWS - 1
        self.size = max(1, _BYTES // (each * engine.X.element_size() * steps)) * steps
        self._stream = torch.cuda.Stream() if engine.device == "cuda" else None
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream())  # what is on the device already may be in the making
        self._next: CudaBlock | None = None
        self._begin = 0

    def blocks(self) -> Iterator[CudaBlock]:
        """Every block in turn."""
        self.fetch()
        while self._next is not None:
            block, self._next = self._next, None
            yield block
            self.fetch()

    def fetch(self) -> None:
        """Send the next block on its way, unless that is done."""
        if self._next is not None or self._begin >= self.T:
            return
        begin, end = self._begin, min(self._begin + self.size, self.T)
        self._begin = end
        if self._stream is None:
            self._next = self._block(begin, end)
            return
        with torch.cuda.stream(self._stream):
            self._next = self._block(begin, end)
            ready = torch.cuda.Event()
            ready.record()
        torch.cuda.current_stream().wait_event(ready)

    def _block(self, begin: int, end: int) -> CudaBlock:
        engine = self.engine
        if self.apart:
            phi, phi_next = (self._sent(rows[begin:end], engine.real) for rows in (self.phi, self.phi_next))
        else:
            # One row more: φ of the first steps, φ' of all.
            parts = (self.phi[begin:end], self.phi_next[end - 1 : end])
            phi, phi_next = torch.cat([self._sent(part, engine.real) for part in parts]), None
        parameters = []
        for p, constant in zip(self.parameters, self.constant, strict=True):
            if constant is not None:
                parameters.append(constant)
            else:
                # A number for each learner and step is most of what travels: in the learners' own precision.
                given = p.device.type == engine.device and p.is_floating_point()
                kind = p.dtype if given else engine.real if p.shape[1] > 1 else torch.float64
                parameters.append(self._sent(p[begin:end], kind))
        return CudaBlock(engine, begin, phi, phi_next, self.top, parameters, self.keep)

    def _sent(self, part: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """On the device, in that type; through pinned memory, so that nobody waits."""
        device = self.engine.device
        if part.device.type == device:
            return part.to(dtype)
        pinned = torch.empty(part.shape, dtype=dtype, pin_memory=True).copy_(part)
        return pinned.to(device, non_blocking=True)


def _tensor(value: Any) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it may be read-only, and is only read
        return torch.from_numpy(value)


def _reduced(p: torch.Tensor) -> torch.Tensor:
    """Without the axes along which it is constant: one entry stands for all of them."""
    p = p[:1] if p.stride(0) == 0 else p
    return p[:, :1] if p.stride(1) == 0 else p


def _one_log(phi: Any, phi_next: Any) -> bool:
    """Whether φ' of every step is the next φ: the same memory, a row on."""
    if isinstance(phi, torch.Tensor) and isinstance(phi_next, torch.Tensor):
        step = phi.stride(0) * phi.element_size()
        return bool(phi.stride() == phi_next.stride() and phi_next.data_ptr() == phi.data_ptr() + step)
    if isinstance(phi, np.ndarray) and isinstance(phi_next, np.ndarray):
        return phi.strides == phi_next.strides and phi_next.ctypes.data == phi.ctypes.data + phi.strides[0]
    return False


def _windows(G: torch.Tensor, apart: bool) -> torch.Tensor:
    """For each step its rows of G, of φ and of φ', from φ on as far as the ring goes: (chunks, ROWS, 2, ring)."""
    stride, ring = (2, GROUP) if apart else (1, GROUP + 1)
    t = torch.arange(ROWS, device=G.device)[:, None, None]
    side = torch.arange(2, device=G.device)[:, None]
    i = torch.arange(ring, device=G.device)
    row, column = stride * t + side + 0 * i, stride * t + i + 0 * side
    within = ((stride * t) % GROUP + i < ring) & (torch.maximum(row, column) < ROWS)
    last = ROWS - 1
    return torch.where(within, G[:, row.clamp(max=last), column.clamp(max=last)], 0.0).contiguous()


def _split(P: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """P as it is in TF32, and what that leaves; a float64 is not split."""
    if P.dtype == torch.float64:
        return P, P
    high = ((P.view(torch.int32) + 4096) & -8192).view(torch.float32)
    return high, P - high
