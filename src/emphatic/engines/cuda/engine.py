"""cuda: a million learners on one stream of features, on a GPU.  The chunked form in Triton, derived in CUDA.md.

X (m, K, n) stays on the device. A chunk of steps is two kernels: ``dual`` (the rule on V = X Pᵀ, one thread per
learner) and ``update`` (X ← A_total X + W P, and V of the next chunk). Neither waits for the host: where a chunk may
overflow, its steps lower a flag, the kernels after it do nothing, and that chunk is run step by step, which finds
exactly where.

With several devices each has a share of the learners, and all advance chunk by chunk together.

Frozen learners take no part in the kernels: what they predict is a matrix product.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from emphatic.common.names import refusal
from emphatic.engines.base import Arrays, Engine, Features
from emphatic.engines.cuda.cuda_blocks import ROWS, CudaBlock, CudaLog, tensor_of
from emphatic.engines.cuda.cuda_part import CudaPart
from emphatic.engines.cuda.cuda_steps import stand_still, take_steps
from emphatic.engines.watch import Watch

if TYPE_CHECKING:
    from emphatic.rules import Rule

__all__ = ["Cuda", "CudaTF32"]

#: Numbers of X that pass to or from the host at a time.
_PASSED = 1 << 26


class Cuda(Engine):
    """X on one device or several, moved once per chunk."""

    name = "cuda"
    takes_rows = False
    takes_tensors = True
    #: Whether products of float32 are as exact as float32.
    exact: ClassVar[bool] = True

    def __init__(self, rule: Rule, n: int, K: int, dtype: str, *, devices: Sequence[int] | None = None) -> None:
        self.devices = devices
        places = self._places(devices, K)
        cuts = np.linspace(0, K, len(places) + 1).astype(int).tolist()
        #: Which learners are where.
        self.where = [slice(*cuts[i : i + 2]) for i in range(len(places))]
        self.parts = [
            CudaPart(rule, n, some.stop - some.start, dtype, place, exact=self.exact)
            for some, place in zip(self.where, places, strict=True)
        ]
        super().__init__(rule, n, K, dtype)

    def _places(self, devices: Sequence[int] | None, K: int) -> list[torch.device]:
        """The devices; the host where Triton only interprets."""
        interprets = os.environ.get("TRITON_INTERPRET") == "1"
        if not interprets and not torch.cuda.is_available():
            raise ValueError(
                f"The 'engine' parameter must be one for this machine. Got {self.name!r} instead, which needs a GPU."
            )
        if devices is None:
            return [torch.device("cpu") if interprets else torch.device("cuda", torch.cuda.current_device())]
        count = 1 if interprets else torch.cuda.device_count()
        known = isinstance(devices, Sequence) and all(device in range(count) for device in devices)
        if not known or not 1 <= len(devices) <= K:
            wanted = f"be a list of GPUs of this machine, numbers from 0 to {count - 1}, and of at most K = {K:,}"
            raise refusal("devices", "Learner", wanted, repr(devices))
        return [torch.device("cpu") if interprets else torch.device("cuda", device) for device in devices]

    @property
    def grain(self) -> tuple[int, int]:
        # Whole chunks, be φ' the next φ or apart. Of learners all: the order of sums depends on a learner's place.
        return (ROWS - 1) * (ROWS // 2), 0

    @property
    def scalars(self) -> NDArray[np.float64]:
        """As in every engine; from the devices where these are ahead."""
        host = [part.state.on_host() for part in self.parts]
        if len(host) == 1:
            return host[0]
        whole = host[0].base
        if whole is None or any(one.base is not whole for one in host):
            self.scalars = whole = np.concatenate(host)
        return whole

    @scalars.setter
    def scalars(self, value: NDArray[np.float64]) -> None:
        for part, some in zip(self.parts, self.where, strict=True):
            part.state.set(value[some] if len(self.parts) > 1 else value)

    @property
    def counts(self) -> NDArray[np.float64]:
        """As in every engine; it takes nothing from the device."""
        counts = [part.state.counts for part in self.parts]
        return counts[0] if len(counts) == 1 else np.concatenate(counts)

    # ------------------------------------------------------------------ running

    def take(
        self, phi: Features, phi_next: Features, top: float, parameters: Arrays, predictions: Any, watch: Watch
    ) -> int:
        logs = []
        for part, some in zip(self.parts, self.where, strict=True):
            with part.active():
                part.state.begin(watch.frozen[some])
                logs.append(CudaLog(part, phi, phi_next, top, [p[:, some] for p in parameters], len(predictions) > 0))
        size = min(log.size for log in logs)
        status = -1
        for blocks in zip(*(log.blocks(size) for log in logs), strict=True):
            status = self._take_block(blocks, logs, watch)
            for block, some in zip(blocks, self.where, strict=True):
                block.deliver(predictions, some)
            if status != -1:
                status += blocks[0].begin * self.K
                break
        # (pinned memory is several times as fast to copy to)
        on_host = torch.empty(self.K, dtype=torch.float64, pin_memory=self.parts[0].device.type == "cuda")
        for part, some in zip(self.parts, self.where, strict=True):
            on_host[some].copy_(part.last_delta)
        self.delta = on_host.numpy()
        return status

    def _take_block(self, blocks: Sequence[CudaBlock], logs: Sequence[CudaLog], watch: Watch) -> int:
        """As ``take``, from the block's first step on."""
        chunk, first = 0, blocks[0]
        while chunk < first.chunks:
            stopped = self._take_chunks(blocks, chunk, logs)
            for block in blocks:
                with block.part.active():
                    stand_still(block, first.t0(chunk), first.t0(stopped))
            if stopped < first.chunks:
                status = take_steps(blocks, self.where, stopped, watch)
                if status != -1:
                    return status
            chunk = stopped + 1
        return -1

    def _take_chunks(self, blocks: Sequence[CudaBlock], begin: int, logs: Sequence[CudaLog]) -> int:
        """Take the block's chunks from this one on; which one may overflow, or their number if none."""
        moving = [block for block in blocks if block.part.state.standing < block.part.K]
        stopped = blocks[0].chunks
        for block in moving:
            with block.part.active():
                block.part.state.prepare()
                block.part.clear_flag()
                block.part.project(block, begin)
        for chunk in range(begin, stopped):
            for block in moving:
                with block.part.active():
                    block.part.dual(block, chunk, block.part.state.at ^ ((chunk - begin) & 1))
            # No device may go past a chunk that another must take step by step.
            if len(moving) > 1 and any(block.part.stopped() <= chunk for block in moving):
                break
            for block in moving:
                with block.part.active():
                    block.part.update(block, chunk)
        for log in logs:
            with log.part.active():
                log.fetch()  # the next block's data travels while this one is computed
        stopped = min([stopped, *(block.part.stopped() for block in moving)])
        for block in moving:
            block.part.state.advance(block.t0(stopped) - block.t0(begin), stopped - begin)
        return stopped

    # ------------------------------------------------------------------ state

    def vector(self, r: int) -> NDArray[Any]:
        return np.concatenate(list(self.blocks(r)))

    def blocks(self, r: int) -> Iterator[NDArray[Any]]:
        for part in self.parts:
            size = max(1, _PASSED // part.width)
            for begin in range(0, part.K, size):
                yield part.X[r, begin : begin + size, : self.n].cpu().numpy().copy()

    def set_vector(self, r: int, value: NDArray[Any]) -> None:
        for part, some in zip(self.parts, self.where, strict=True):
            size = max(1, _PASSED // part.width)
            for begin in range(0, part.K, size):
                end = min(begin + size, part.K)
                rows = np.ascontiguousarray(value[some][begin:end])
                part.X[r, begin:end, : self.n] = torch.from_numpy(rows).to(part.device)

    def predict(self, phi: Features) -> NDArray[Any]:
        made = []
        for part in self.parts:
            rows = tensor_of(phi).to(part.device, part.real)
            made.append((rows @ part.X[0, :, : self.n].T).cpu().numpy())
        return np.concatenate(made, axis=1)

    def room(self, T: int) -> torch.Tensor:
        return torch.empty((T, self.K), dtype=self.parts[0].real, device=self.parts[0].device)

    def clear_traces(self) -> None:
        for part in self.parts:
            part.X[len(self.rule.weights) :] = 0.0

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts)

    def like(self, K: int) -> Cuda:
        return type(self)(self.rule, self.n, K, self.dtype, devices=self.devices and self.devices[:K])

    def select(self, ks: NDArray[np.int64]) -> Engine:
        other = self.like(len(ks))
        if len(self.parts) > 1:
            for r in range(len(self.rule.vectors)):
                other.set_vector(r, self.vector(r)[ks])
        else:  # on the device
            chosen = torch.from_numpy(ks).to(self.parts[0].device)
            torch.index_select(self.parts[0].X, 1, chosen, out=other.parts[0].X)
        other.scalars[:] = self.scalars[ks]
        return other


class CudaTF32(Cuda):
    """The same with products of float32 that are one of 11 bits: faster, with errors of 1e-3 in place of 1e-7."""

    name = "cuda-tf32"
    exact = False
