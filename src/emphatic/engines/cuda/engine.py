"""cuda: a million learners on one stream of features, on a GPU.  The chunked form in Triton, derived in CUDA.md.

X (m, K, n) stays on the device. A chunk of steps is three kernels: ``project`` (V = X Pᵀ), ``dual`` (the rule on V, one
thread a learner) and ``update`` (X ← A_total X + W P). None waits for the host: where a chunk may overflow, its steps
raise a flag, the kernels after it do nothing, and that chunk is taken step by step, which says exactly where.

Frozen learners take no part in the kernels: what they predict is a matrix product.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import triton
from numpy.typing import NDArray

from emphatic.engines import generated
from emphatic.engines.base import Arrays, Engine, Features
from emphatic.engines.cuda import cuda_products
from emphatic.engines.cuda.cuda_blocks import ROWS, CudaBlock, CudaLog
from emphatic.engines.cuda.cuda_functions import module_text
from emphatic.engines.cuda.cuda_state import CudaState
from emphatic.engines.cuda.cuda_steps import stand_still, take_steps
from emphatic.engines.watch import Watch

if TYPE_CHECKING:
    from emphatic.rules import Rule

__all__ = ["Cuda"]

#: X's rows are this many numbers apart, or a multiple: then they can be read in the widest loads.
_ALIGNED = 16
#: How many programs keep a large GPU busy; fewer learners than that share out their columns.
_PROGRAMS = 528
#: Numbers of X that pass to or from the host at a time.
_PASSED = 1 << 26
_NO_CHUNK = 2**31 - 1


def device() -> str:
    """Where learners live: the GPU, or the host where Triton only interprets."""
    if os.environ.get("TRITON_INTERPRET") == "1":
        return "cpu"
    if not torch.cuda.is_available():
        raise ValueError("The 'engine' parameter must be one for this machine. Got 'cuda' instead, which needs a GPU.")
    return "cuda"


@functools.cache
def kernels(rule: Rule, dtype: str) -> Any:
    """The module with this rule's ``dual`` and ``update``."""
    return generated.module(f"cuda_{rule.name}_{dtype}", module_text(rule, dtype), triton.__version__)


class Cuda(Engine):
    """X on the device, moved once a chunk."""

    name = "cuda"
    takes_rows = False
    takes_tensors = True

    def __init__(self, rule: Rule, n: int, K: int, dtype: str, *, exact: bool = True) -> None:
        self.exact = exact
        self.device = device()
        self.real = getattr(torch, dtype)
        self.m = m = len(rule.vectors)
        self.width = -(-n // _ALIGNED) * _ALIGNED
        self.parts, self.span = self._shares(K)
        A, _ = rule.form
        self.pairs = sum(A[r][c] != (1.0 if r == c else 0.0) for r in range(m) for c in range(m))
        self._refuse_too_many(rule, n, K, dtype)
        self.state = CudaState(K, len(rule.memory) + m, self.device)
        super().__init__(rule, n, K, dtype)
        with torch.device(self.device):
            self.X = torch.zeros((m, K, self.width), dtype=self.real)
            self._Z = torch.empty((self.parts, m, ROWS, K), dtype=self.real)
            self._tail = torch.empty((self.pairs, K), dtype=self.real)
            self.last_delta = torch.zeros(K, dtype=torch.float64)
            self._flag = torch.full((1,), _NO_CHUNK, dtype=torch.int32)

    def _shares(self, K: int) -> tuple[int, int]:
        """Into how many parts the columns are split, and the columns of each."""
        wanted = max(1, _PROGRAMS // -(-self.m * K // 64))
        span = max(256, -(-self.width // wanted))
        span = -(-span // 64) * 64
        return -(-self.width // span), span

    def _refuse_too_many(self, rule: Rule, n: int, K: int, dtype: str) -> None:
        if self.device == "cpu":
            return
        each = np.dtype(dtype).itemsize * (self.m * (self.width + self.parts * ROWS) + self.pairs)
        each += 8 * (2 * (len(rule.memory) + self.m) + 1) + 1
        free = torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - torch.cuda.memory_allocated() - (1 << 29)
        if K * each > free:
            raise ValueError(
                f"The 'K' parameter of Learner must be at most {free // each:,} for n = {n:,} in {dtype} on this GPU, "
                f"which has {free / 1e9:.1f} GB free. Got {K:,} instead."
            )

    @property
    def grain(self) -> tuple[int, int]:
        # Whole chunks, be φ' the next φ or apart. Of learners all: the order of sums depends on a learner's place.
        return (ROWS - 1) * (ROWS // 2), 0

    def make_kernel(self, name: str) -> Any:
        return getattr(kernels(self.rule, self.dtype), name)

    @property
    def scalars(self) -> NDArray[np.float64]:
        """As in every engine; from the device where that is ahead."""
        return self.state.on_host()

    @scalars.setter
    def scalars(self, value: NDArray[np.float64]) -> None:
        self.state.set(value)

    @property
    def counts(self) -> NDArray[np.float64]:
        """As in every engine; it takes nothing from the device."""
        return self.state.counts

    # ------------------------------------------------------------------ running

    def take(
        self, phi: Features, phi_next: Features, top: float, parameters: Arrays, predictions: Any, watch: Watch
    ) -> int:
        self.state.begin(watch.frozen)
        log = CudaLog(self, phi, phi_next, top, parameters, len(predictions) > 0)
        status = -1
        for block in log.blocks():
            status = self._take_block(block, log, watch)
            block.deliver(predictions)
            if status != -1:
                status += block.begin * self.K
                break
        # (pinned memory is several times as fast to copy to)
        on_host = torch.empty(self.K, dtype=torch.float64, pin_memory=self.device == "cuda")
        self.delta = on_host.copy_(self.last_delta).numpy()
        return status

    def _take_block(self, block: CudaBlock, log: CudaLog, watch: Watch) -> int:
        """As ``take``, from the block's first step on."""
        chunk = 0
        while chunk < block.chunks:
            stopped = self._take_chunks(block, chunk, log)
            stand_still(self, block, block.t0(chunk), block.t0(stopped))
            if stopped < block.chunks:
                status = take_steps(self, block, stopped, watch)
                if status != -1:
                    return status
            chunk = stopped + 1
        return -1

    def _take_chunks(self, block: CudaBlock, begin: int, log: CudaLog) -> int:
        """Take the block's chunks from this one on; which one may overflow, or their number if none."""
        stopped = block.chunks
        if self.state.standing < self.K:
            self.state.prepare()
            self._flag.fill_(_NO_CHUNK)
            for chunk in range(begin, block.chunks):
                self.project(block, chunk)
                self.dual(block, chunk, self.state.at ^ ((chunk - begin) & 1))
                self.update(block, chunk)
        log.fetch()  # the next block's data travels while this one is computed
        if self.state.standing < self.K:
            stopped = min(int(self._flag.item()), block.chunks)
            self.state.advance(block.t0(stopped) - block.t0(begin), stopped - begin)
        return stopped

    def project(self, block: CudaBlock, chunk: int) -> None:
        """V = X Pᵀ."""
        shape = _SHAPES[self.dtype]["project"]
        cuda_products.project[(-(-self.m * self.K // shape["BLOCK"]), self.parts)](
            self.X, self._Z, *block.rows, self._flag, chunk, self.K, self.m * self.K, self.width, self.span,
            ROWS=ROWS, THREE=self._three, **shape,
        )  # fmt: skip

    def dual(self, block: CudaBlock, chunk: int, at: int) -> None:
        """The chunk's steps on V, from state ``at`` to the other one; W in the place of V."""
        shape = _SHAPES[self.dtype]["dual"]
        self._compiled("dual")[(-(-self.K // shape["BLOCK"]),)](
            self._Z, block.G, block.H, self.state.pair[at], self.state.pair[at ^ 1], self._tail, self.last_delta,
            self._flag, block.top, block.out, self.state.frozen, *block.pointers, block.t0(chunk), block.length(chunk),
            block.turns, chunk, self.K, self.parts, *block.varies, APART=block.apart, KEEP=block.keep, ROWS=ROWS,
            PRECISION=self._precision, **shape,
        )  # fmt: skip

    def update(self, block: CudaBlock, chunk: int) -> None:
        """X ← A_total X + W P."""
        shape = _SHAPES[self.dtype]["update"]
        kernel = self._compiled("update")[(-(-self.K // shape["BLOCK"]), self.parts)]
        # Two vectors have room beside each other. Weights take of the old traces, and go first.
        for first in range(0, self.m, 2):
            kernel(
                self.X, self._Z, self._tail, self._flag, self.state.frozen, *block.columns, chunk, self.K, self.width,
                self.span, FIRST=first, LAST=min(first + 1, self.m - 1), ROWS=ROWS, THREE=self._three, **shape,
            )  # fmt: skip

    @property
    def _three(self) -> bool:
        return self.exact and self.dtype == "float32"

    @property
    def _precision(self) -> str:
        return "ieee" if self.dtype == "float64" else "tf32x3" if self.exact else "tf32"

    # ------------------------------------------------------------------ state

    def vector(self, r: int) -> NDArray[Any]:
        return np.concatenate(list(self.blocks(r)))

    def blocks(self, r: int) -> Iterator[NDArray[Any]]:
        size = max(1, _PASSED // self.width)
        for begin in range(0, self.K, size):
            yield self.X[r, begin : begin + size, : self.n].cpu().numpy().copy()

    def set_vector(self, r: int, value: NDArray[Any]) -> None:
        size = max(1, _PASSED // self.width)
        for begin in range(0, self.K, size):
            part = np.ascontiguousarray(value[begin : begin + size])
            self.X[r, begin : begin + size, : self.n] = torch.from_numpy(part).to(self.device)

    def predict(self, phi: Features) -> NDArray[Any]:
        rows = torch.as_tensor(phi, device=self.device, dtype=self.real)
        out: NDArray[Any] = (rows @ self.X[0, :, : self.n].T).cpu().numpy()
        return out

    def room(self, T: int) -> torch.Tensor:
        return torch.empty((T, self.K), dtype=self.real, device=self.device)

    def clear_traces(self) -> None:
        self.X[len(self.rule.weights) :] = 0.0

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in (self.X, self._Z, self._tail, self.state, self.last_delta))

    def like(self, K: int) -> Cuda:
        return Cuda(self.rule, self.n, K, self.dtype, exact=self.exact)

    def select(self, ks: NDArray[np.int64]) -> Cuda:
        other = self.like(len(ks))
        torch.index_select(self.X, 1, torch.from_numpy(ks).to(self.device), out=other.X)
        other.scalars[:] = self.scalars[ks]
        return other


#: Learners a program, columns a turn, and how Triton is to arrange them.
_SHAPES: dict[str, dict[str, dict[str, int]]] = {
    "float32": {
        "project": {"BLOCK": 128, "TILE": 32, "STAGES": 3, "num_warps": 4},
        "dual": {"BLOCK": 32, "num_warps": 1},
        "update": {"BLOCK": 64, "TILE": 64, "STAGES": 1, "num_warps": 4},
    },
    "float64": {
        "project": {"BLOCK": 32, "TILE": 32, "STAGES": 1, "num_warps": 4},
        "dual": {"BLOCK": 64, "num_warps": 2},
        "update": {"BLOCK": 32, "TILE": 32, "STAGES": 1, "num_warps": 4},
    },
}
