"""A log in blocks of steps on the device: the next block is copied while the current one is computed."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from emphatic.engines.cuda.cuda_functions import GROUP

if TYPE_CHECKING:
    from emphatic.engines.cuda.cuda_part import CudaPart

__all__ = ["ROWS", "CudaBlock", "CudaLog", "tensor_of"]

#: Feature rows in a chunk.
ROWS = 64
#: About how many bytes of a log are on the device at a time; at least one chunk is.
_BYTES = 1 << 29
#: FP16 halves hold numbers down to this part of the largest in full.
_FAINT = 2.0**-16


class CudaBlock:
    """Some steps of a log on the device, in chunks of ROWS rows, in the forms that the kernels read."""

    def __init__(
        self, part: CudaPart, begin: int, phi: torch.Tensor, phi_next: torch.Tensor | None,
        top: torch.Tensor, parameters: list[torch.Tensor], keep: bool,
    ) -> None:  # fmt: skip
        self.part, self.begin, self.parameters = part, begin, parameters
        self.phi, self.phi_next = phi, phi_next
        self.apart = phi_next is not None
        self.T = len(phi) if self.apart else len(phi) - 1
        #: Steps a chunk.
        self.steps = ROWS // 2 if self.apart else ROWS - 1
        self.turns = GROUP // 2 if self.apart else GROUP
        self.chunks = -(-self.T // self.steps)
        self.out = torch.empty((self.T if keep else 0, part.K), dtype=part.real, device=part.device)
        self.keep = keep
        self.P = self._rows()
        self.G = torch.bmm(self.P, self.P.transpose(1, 2))
        self.H = _windows(self.G, self.apart)
        self.scale = torch.ones(self.chunks, dtype=torch.float32, device=part.device)
        #: For which chunks P can be split into halves. (The host waits to know it, which one chunk does not repay.)
        self.fits = [False] * self.chunks
        if part.dtype == "float32" and self.chunks > 1:
            self.scale, fits, *self.halves = _halve(self.P)
            self.fits = fits.tolist()
        #: A bound on the components of each chunk's rows: none where products of rows are beyond the number range, so
        #: that such a chunk is taken step by step.
        self.top = torch.where(self.G.isfinite().flatten(1).all(1), top, torch.inf)
        self.pointers = [
            value
            for p in parameters
            for value in (p, p.stride(0) if len(p) > 1 else 0, p.stride(1) if p.shape[1] > 1 else 0)
        ]
        self.varies = [len(p) > 1 for p in parameters]

    def _rows(self) -> torch.Tensor:
        """P of every chunk, (chunks, ROWS, width)."""
        part, phi, width = self.part, self.phi, self.part.width
        stride = 2 * self.steps if self.apart else self.steps
        padded = phi.new_zeros((stride * self.chunks + 1, width))
        if self.phi_next is not None:
            padded[0 : 2 * self.T : 2, : part.n] = phi
            padded[1 : 2 * self.T : 2, : part.n] = self.phi_next
        else:
            padded[: self.T + 1, : part.n] = phi
        return padded.as_strided((self.chunks, ROWS, width), (stride * width, width, 1)).contiguous()

    @cached_property
    def rows(self) -> tuple[torch.Tensor, torch.Tensor]:
        """P rounded to TF32, and the remainder."""
        return _split(self.P)

    @cached_property
    def columns(self) -> tuple[torch.Tensor, ...]:
        """The same by columns: (chunks, width, ROWS)."""
        return tuple(part.transpose(1, 2).contiguous() for part in self.rows)

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
        return [p[t if len(p) > 1 else 0].double().expand(self.part.K) for p in self.parameters]

    def deliver(self, predictions: Any, some: slice) -> None:
        """Put the predictions into those of all learners, of which these are ``some``."""
        if self.keep:
            target = predictions[self.begin : self.begin + self.T, some]
            if isinstance(target, np.ndarray):
                torch.from_numpy(target).copy_(self.out)
            else:
                target.copy_(self.out)


class CudaLog:
    """All steps of a run, as blocks."""

    def __init__(self, part: CudaPart, phi: Any, phi_next: Any, top: float, parameters: Any, keep: bool) -> None:
        self.part, self.keep, self.T = part, keep, len(phi)
        self.top = torch.tensor(top, dtype=torch.float64, device=part.device)
        self.apart = not _one_log(phi, phi_next)
        self.phi, self.phi_next = tensor_of(phi), tensor_of(phi_next)
        self.parameters = [tensor_of(_reduced(p)) for p in parameters]
        # What is the same at every step is copied once, in float64.
        self.constant = [
            p.to(part.device, torch.float64) if len(p) == 1 or self.T == 1 else None for p in self.parameters
        ]
        # Numbers a step: φ, P in all its forms and its G; predictions; and the parameters that are still to be copied.
        each = 8 * part.n * (1 + self.apart) + 2 * ROWS + part.K * keep
        each += sum(
            p.shape[1]
            for p, constant in zip(self.parameters, self.constant, strict=True)
            if constant is None and p.device != part.device
        )
        steps = ROWS // 2 if self.apart else ROWS - 1
        #: Steps a block.
        self.size = max(1, _BYTES // (each * part.X.element_size() * steps)) * steps
        self._stream = torch.cuda.Stream() if part.device.type == "cuda" else None
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream())  # arrays on the device may still be being computed
        self._next: CudaBlock | None = None
        self._begin = 0

    def blocks(self, size: int) -> Iterator[CudaBlock]:
        """Every block in turn, of so many steps."""
        self.size = size
        while self.fetch():
            block, self._next = self._next, None
            assert block is not None
            yield block

    def fetch(self) -> bool:
        """Begin to copy the next block, unless that is done; False if there is none."""
        if self._next is not None or self._begin >= self.T:
            return self._next is not None
        begin, end = self._begin, min(self._begin + self.size, self.T)
        self._begin = end
        if self._stream is None:
            self._next = self._block(begin, end)
            return True
        with self.part.active(), torch.cuda.stream(self._stream):
            self._next = self._block(begin, end)
            ready = torch.cuda.Event()
            ready.record()
        torch.cuda.current_stream(self.part.device).wait_event(ready)
        return True

    def _block(self, begin: int, end: int) -> CudaBlock:
        part = self.part
        if self.apart:
            phi, phi_next = (self._sent(rows[begin:end], part.real) for rows in (self.phi, self.phi_next))
        else:
            # One row more: φ of the first steps, φ' of all.
            rows = (self.phi[begin:end], self.phi_next[end - 1 : end])
            phi, phi_next = torch.cat([self._sent(some, part.real) for some in rows]), None
        parameters = []
        for p, constant in zip(self.parameters, self.constant, strict=True):
            if constant is not None:
                parameters.append(constant)
            else:
                # Numbers for each learner and step are most of the transfer: in the learners' own precision.
                given = p.device == part.device and p.is_floating_point()
                kind = p.dtype if given else part.real if p.shape[1] > 1 else torch.float64
                parameters.append(self._sent(p[begin:end], kind))
        return CudaBlock(part, begin, phi, phi_next, self.top, parameters, self.keep)

    def _sent(self, some: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """On the device, in that type; from the host through pinned memory, so that the copy is asynchronous."""
        device = self.part.device
        if some.device.type == device.type:
            return some.to(device, dtype)
        pinned = torch.empty(some.shape, dtype=dtype, pin_memory=True).copy_(some)
        return pinned.to(device, non_blocking=True)


def tensor_of(value: Any) -> torch.Tensor:
    """An array as a tensor in the same memory, if torch can have it there."""
    if isinstance(value, torch.Tensor):
        return value
    if min(value.strides, default=0) < 0 or not value.flags.aligned:  # which torch does not have
        value = value.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it may be read-only, and is only read
        return torch.from_numpy(value)


def _reduced(p: Any) -> Any:
    """Without the axes along which it is constant: one entry stands for all of them."""
    steps, learners = p.stride() if isinstance(p, torch.Tensor) else p.strides
    p = p[:1] if steps == 0 else p
    return p[:, :1] if learners == 0 else p


def _one_log(phi: Any, phi_next: Any) -> bool:
    """Whether φ' of every step is the next φ: the same memory, one row further."""
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
    """P rounded to TF32, and the remainder; a float64 is not split."""
    if P.dtype == torch.float64:
        return P, P
    high = ((P.view(torch.int32) + 4096) & -8192).view(torch.float32)
    return high, P - high


def _halve(P: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Each chunk's P = scale (high + low), its two halves in FP16: scale, whether it fits, high, low.

    The scale is the power of two that brings the largest number to between 2¹⁴ and 2¹⁵. It fits where no row and no
    column has its largest number below 2⁻¹⁶ of that: so far, halves of 11 bits are as exact as those of TF32.
    """
    size = P.abs()
    largest = size.amax((1, 2))
    exponent = torch.frexp(largest).exponent
    fits = exponent.abs() < 100
    for dim in (1, 2):
        along = size.amax(dim)
        fits &= ((along >= largest[:, None] * _FAINT) | (along == 0.0)).all(1)
    one = torch.ones_like(largest)
    scaled = P * torch.ldexp(one, 15 - exponent)[:, None, None]
    high = scaled.half()
    return torch.ldexp(one, exponent - 15), fits, high, (scaled - high).half()
