"""cuda: a million learners on one stream of features, on a GPU.  The chunked form in Triton, derived in CUDA.md.

X (m, K, n) stays on the device. A chunk of steps is three kernels: ``project`` (V = X Pᵀ), ``dual`` (the rule on V, one
thread a learner) and ``update`` (X ← A_total X + W P). None waits for the host: where a chunk may overflow, its steps
raise a flag, the kernels after it do nothing, and that chunk is taken step by step, which says exactly where.
"""

from __future__ import annotations

import functools
import os
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray

from emphatic.engines import cuda_kernels, generated
from emphatic.engines.base import Arrays, Engine, Features
from emphatic.engines.cuda_blocks import ROWS, Block, Log
from emphatic.engines.cuda_steps import stepwise
from emphatic.engines.cuda_text import source

if TYPE_CHECKING:
    from emphatic.rules import Rule

__all__ = ["Cuda"]

#: X's rows are this many numbers apart, or a multiple: then they can be read in the widest loads.
_ALIGNED = 16
#: How many programs keep a large GPU busy; fewer learners than that share out their columns.
_PROGRAMS = 528
_NO_CHUNK = 2**31 - 1


def device() -> str:
    """Where learners live: the GPU, or the host where Triton only interprets."""
    if os.environ.get("TRITON_INTERPRET") == "1":
        return "cpu"
    if not torch.cuda.is_available():
        raise ValueError("The 'engine' parameter must be one for this machine. Got 'cuda' instead, which needs a GPU.")
    return "cuda"


@functools.cache
def kernels(rule: Rule, dtype: str, apart: bool) -> Any:
    """The rule's kernels, with the rule's own function compiled into them."""
    bound = {"tl": tl, "Scalars": tl.tuple, "Update": tl.tuple, "min": tl.minimum, "max": tl.maximum}
    if device() == "cpu":  # the interpreter gives ``tl`` other functions while it runs
        bound |= {"min": lambda a, b: tl.minimum(a, b), "max": lambda a, b: tl.maximum(a, b)}
    function = types.FunctionType(rule.function.__code__, bound, rule.name)
    function.__module__ = rule.function.__module__
    text = source(rule, dtype, apart=apart)
    name = f"cuda_{rule.name}_{dtype}_{'apart' if apart else 'log'}"
    return generated.module(name, text, triton.__version__, rule=triton.jit(function))


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
        self._host: NDArray[np.float64] | None = None
        super().__init__(rule, n, K, dtype)
        with torch.device(self.device):
            self.X = torch.zeros((m, K, self.width), dtype=self.real)
            self._Z = torch.empty((self.parts, m, ROWS, K), dtype=self.real)
            self._tail = torch.empty((self.pairs, K), dtype=self.real)
            self._states = torch.zeros((2, self.M + m, K), dtype=torch.float64)
            self._delta = torch.zeros(K, dtype=torch.float64)
            self._flag = torch.full((1,), _NO_CHUNK, dtype=torch.int32)
        #: Which of the two states is the present one.
        self._at = 0

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
        each += 8 * (2 * (len(rule.memory) + self.m) + 1)
        free = torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - torch.cuda.memory_allocated() - (1 << 29)
        if K * each > free:
            raise ValueError(
                f"The 'K' parameter of Learner must be at most {free // each:,} for n = {n:,} in {dtype} on this GPU, "
                f"which has {free / 1e9:.1f} GB free. Got {K:,} instead."
            )

    @property
    def grain(self) -> tuple[int, int]:
        # Whole chunks, be φ' the next φ or apart; and so many learners that none shares out its columns.
        return (ROWS - 1) * (ROWS // 2), 64 * _PROGRAMS

    # ------------------------------------------------------------------ scalars: the newer of two copies counts

    @property
    def scalars(self) -> NDArray[np.float64]:
        """As in every engine, from the device where that is ahead. Whoever asks may write: the host's copy counts."""
        if self._host is None:
            self._host = np.empty((self.K, self.M + self.m + 1))
            self._host[:, :-1] = self._states[self._at].cpu().numpy().T
            self._host[:, -1] = self._steps_before + self._steps
        return self._host

    @scalars.setter
    def scalars(self, value: NDArray[np.float64]) -> None:
        self._host = value

    @property
    def counts(self) -> NDArray[np.float64]:
        """As in every engine; it takes nothing from the device."""
        return self._steps_before + self._steps if self._host is None else self._host[:, -1]

    def _to_device(self) -> None:
        if self._host is not None:
            self._states[self._at] = torch.from_numpy(np.ascontiguousarray(self._host[:, :-1].T)).to(self.device)
            self._steps_before, self._steps = self._host[:, -1].copy(), 0
            self._host = None

    # ------------------------------------------------------------------ running

    def run(
        self, phi: Features, phi_next: Features, top: float, parameters: Arrays, predictions: Any
    ) -> tuple[int, NDArray[np.float64]]:
        self._to_device()
        log = Log(self, phi, phi_next, top, parameters, len(predictions) > 0)
        for block in log.blocks():
            chunk = 0
            while (chunk := self._chunks(block, chunk, log)) < block.chunks:
                status = stepwise(self, block, chunk)
                if status != -1:
                    block.deliver(predictions)
                    return block.begin * self.K + status, self._last_delta()
                chunk += 1
            block.deliver(predictions)
        return -1, self._last_delta()

    def _last_delta(self) -> NDArray[np.float64]:
        # (pinned memory is several times as fast to copy to)
        on_host = torch.empty(self.K, dtype=torch.float64, pin_memory=self.device == "cuda")
        made: NDArray[np.float64] = on_host.copy_(self._delta).numpy()
        return made

    def _chunks(self, block: Block, begin: int, log: Log) -> int:
        """Take the block's chunks from this one on; which one may overflow, or their number if none."""
        if begin >= block.chunks:
            return block.chunks
        self._flag.fill_(_NO_CHUNK)
        for chunk in range(begin, block.chunks):
            self.project(block, chunk)
            self.dual(block, chunk, self._at ^ ((chunk - begin) & 1))
            self.update(block, chunk)
        log.fetch()  # the next block's data travels while this one is computed
        stopped = min(int(self._flag.item()), block.chunks)
        self._at ^= (stopped - begin) & 1
        self._steps += sum(block.length(chunk) for chunk in range(begin, stopped))
        return stopped

    def project(self, block: Block, chunk: int) -> None:
        """V = X Pᵀ."""
        shape = _SHAPES[self.dtype]["project"]
        cuda_kernels.project[(-(-self.m * self.K // shape["BLOCK"]), self.parts)](
            self.X, self._Z, *block.rows, self._flag, chunk, self.K, self.m * self.K, self.width, self.span,
            ROWS=ROWS, THREE=self._three, **shape,
        )  # fmt: skip

    def dual(self, block: Block, chunk: int, at: int) -> None:
        """The chunk's steps on V, from state ``at`` to the other one; W in the place of V."""
        shape = _SHAPES[self.dtype]["dual"]
        kernels(self.rule, self.dtype, block.apart).dual[(-(-self.K // shape["BLOCK"]),)](
            self._Z, block.G, block.H, self._states[at], self._states[at ^ 1], self._tail, self._delta, self._flag,
            block.top, block.out, *block.pointers, block.t0(chunk), block.length(chunk), block.turns, chunk,
            self.K, self.parts, *block.varies, KEEP=block.keep, ROWS=ROWS, PRECISION=self._precision, **shape,
        )  # fmt: skip

    def update(self, block: Block, chunk: int) -> None:
        """X ← A_total X + W P."""
        shape = _SHAPES[self.dtype]["update"]
        kernel = kernels(self.rule, self.dtype, block.apart).update[(-(-self.K // shape["BLOCK"]), self.parts)]
        # Two vectors have room beside each other. Weights take of the old traces, and go first.
        for first in range(0, self.m, 2):
            kernel(
                self.X, self._Z, self._tail, self._flag, *block.columns, chunk, self.K, self.width, self.span,
                FIRST=first, LAST=min(first + 1, self.m - 1), ROWS=ROWS, THREE=self._three, **shape,
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
        size = max(1, (1 << 26) // self.width)
        for begin in range(0, self.K, size):
            yield self.X[r, begin : begin + size, : self.n].cpu().numpy().copy()

    def set_vector(self, r: int, value: NDArray[Any]) -> None:
        size = max(1, (1 << 26) // self.width)
        for begin in range(0, self.K, size):
            part = np.ascontiguousarray(value[begin : begin + size])
            self.X[r, begin : begin + size, : self.n] = torch.from_numpy(part).to(self.device)

    def predict(self, phi: Features) -> NDArray[Any]:
        rows = torch.as_tensor(phi, device=self.device, dtype=self.real)
        out: NDArray[Any] = (rows @ self.X[0, :, : self.n].T).cpu().numpy()
        return out

    def room(self, T: int, of: Any = None) -> torch.Tensor:
        if of is not None:
            return torch.as_tensor(of, device=self.device)
        return torch.empty((T, self.K), dtype=self.real, device=self.device)

    def clear_traces(self) -> None:
        self.X[len(self.rule.weights) :] = 0.0

    @property
    def nbytes(self) -> int:
        return sum(t.nbytes for t in (self.X, self._Z, self._tail, self._states, self._delta))

    def like(self, K: int) -> Cuda:
        return Cuda(self.rule, self.n, K, self.dtype, exact=self.exact)

    def select(self, ks: NDArray[np.int64]) -> Cuda:
        other = self.like(len(ks))
        torch.index_select(self.X, 1, torch.from_numpy(ks).to(self.device), out=other.X)
        other.scalars[:] = self.scalars[ks]
        return other

    def place(self, ks: NDArray[np.int64], part: Any) -> None:
        self.X[:, torch.from_numpy(ks).to(self.device)] = part.X
        self.scalars[ks] = part.scalars


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
