"""Some or all of a horde's learners on one device: their vectors and scalars, and the launches of the kernels."""

from __future__ import annotations

import functools
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import triton
from triton.runtime.errors import OutOfResources

from emphatic.common.names import refusal
from emphatic.engines import generated
from emphatic.engines.cuda import cuda_products
from emphatic.engines.cuda.cuda_blocks import ROWS, CudaBlock
from emphatic.engines.cuda.cuda_functions import module_text
from emphatic.engines.cuda.cuda_state import CudaState

if TYPE_CHECKING:
    from emphatic.rules import Rule

__all__ = ["CudaPart"]

#: X's rows are a multiple of this many numbers apart: the widest loads fit, and so do tiles of halves.
ALIGNED = 32
#: The fewest columns of a share: its sums take a quarter of the room that these columns of X take.
_SPAN = 256
#: No chunk: the value of the flag while all is well.
_NO_CHUNK = 2**31 - 1

#: Learners in a program, columns in a turn, and how Triton arranges them: the first for which the device has room.
SHAPES: dict[str, dict[str, tuple[dict[str, int], ...]]] = {
    "float32": {
        "project": ({"BLOCK": 128, "TILE": 32, "STAGES": 3, "num_warps": 4},),
        "dual": ({"BLOCK": 32, "num_warps": 1},),
        "dual of many": ({"BLOCK": 64, "num_warps": 2},),
        "update": ({"BLOCK": 64, "TILE": 64, "STAGES": 1, "num_warps": 4},),
    },
    "halves": {
        "project": ({"BLOCK": 128, "TILE": 32, "STAGES": 3, "num_warps": 4},),
        "update": tuple({"BLOCK": 128, "TILE": 32, "STAGES": stages, "num_warps": 8} for stages in (3, 2, 1)),
        "update of one": tuple({"BLOCK": 128, "TILE": 32, "STAGES": stages, "num_warps": 8} for stages in (4, 2, 1)),
    },
    "float64": {
        "project": ({"BLOCK": 32, "TILE": 32, "STAGES": 1, "num_warps": 4},),
        "dual": ({"BLOCK": 64, "num_warps": 2},),
        "dual of many": ({"BLOCK": 64, "num_warps": 2},),
        "update": ({"BLOCK": 32, "TILE": 32, "STAGES": 1, "num_warps": 4},),
    },
}


@functools.cache
def kernels(rule: Rule, dtype: str) -> Any:
    """The module with this rule's ``dual`` and ``update``."""
    return generated.module(f"cuda_{rule.name}_{dtype}", module_text(rule, dtype), triton.__version__)


class CudaPart:
    """K learners on one device; ``exact`` unless products of float32 may be one of 11 bits."""

    def __init__(self, rule: Rule, n: int, K: int, dtype: str, device: torch.device, *, exact: bool) -> None:
        self.rule, self.n, self.K, self.dtype, self.device, self.exact = rule, n, K, dtype, device, exact
        self.real = getattr(torch, dtype)
        self.m, self.M = len(rule.vectors), len(rule.memory)
        self.width = -(-n // ALIGNED) * ALIGNED
        A, _ = rule.form
        self.pairs = sum(A[r][c] != (1.0 if r == c else 0.0) for r in range(self.m) for c in range(self.m))
        self.passes = _passes(A)
        self.shares, self.span = self._share_columns()
        slots = self.shares + (self.shares > 1)
        self._refuse_too_many(slots)
        #: Shapes that the device has no room for, by kernel and what is compiled in.
        self._too_large: dict[Any, int] = {}
        self.state = CudaState(K, self.M + self.m, device)
        with device:
            self.X = torch.zeros((self.m, K, self.width), dtype=self.real)
            #: V and, in its place, W; behind it the sums of each share of the columns.
            self.Z = torch.empty((slots, self.m, ROWS, K), dtype=self.real)
            self.tail = torch.empty((self.pairs, K), dtype=self.real)
            self.last_delta = torch.zeros(K, dtype=torch.float64)
            self.flag = torch.full((1,), _NO_CHUNK, dtype=torch.int32)

    def active(self) -> Any:
        """A context in which kernels and streams are those of this device."""
        return torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext()

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in (self.X, self.Z, self.tail, self.state, self.last_delta))

    def _share_columns(self) -> tuple[int, int]:
        """Into how many shares the columns are cut, so that few learners keep every multiprocessor busy; columns each.

        The time is that of a round of programs, one on each multiprocessor, times the rounds, and a hundredth for each
        share, whose sums are added up.
        """
        processors = 132
        if self.device.type == "cuda":
            processors = torch.cuda.get_device_properties(self.device).multi_processor_count
        blocks = -(-self.K // 128)
        most = max(1, self.width // _SPAN)

        def cost(shares: int) -> float:
            return -(-blocks * shares // processors) / shares + 0.01 * shares * max(1.0, blocks / processors)

        wanted = min(range(1, most + 1), key=cost)
        span = -(-self.width // (wanted * 64)) * 64
        return -(-self.width // span), span

    def _refuse_too_many(self, slots: int) -> None:
        if self.device.type == "cpu":
            return
        each = np.dtype(self.dtype).itemsize * (self.m * (self.width + slots * ROWS) + self.pairs)
        each += 8 * (2 * (self.M + self.m) + 1) + 1
        reserved, used = torch.cuda.memory_reserved(self.device), torch.cuda.memory_allocated(self.device)
        free = torch.cuda.mem_get_info(self.device)[0] + reserved - used - (1 << 29)
        if self.K * each > free:
            where = f"GPU {self.device.index}, which has {free / 1e9:.1f} GB free"
            wanted = f"be at most {free // each:,} for n = {self.n:,} in {self.dtype} on {where}"
            remedy = "Several GPUs can share the learners: devices=[0, 1, …]."
            raise refusal("K", "Learner", wanted, f"{self.K:,}", remedy)

    # ------------------------------------------------------------------ kernels

    def clear_flag(self) -> None:
        self.flag.fill_(_NO_CHUNK)

    def stopped(self) -> int:
        """The first chunk in which a learner may overflow; a large number if there is none. Waits for the device."""
        return int(self.flag.item())

    def project(self, block: CudaBlock, chunk: int) -> None:
        """V = X Pᵀ."""
        halves = block.fits[chunk]
        P = block.halves if halves else block.rows
        self._launch(
            "project", cuda_products.project, self.m * self.K, halves,
            self.X, self.Z, *P, block.scale, self.flag, chunk, self.K, self.m * self.K, self.width, self.span,
            ROWS=ROWS, THREE=self._three, HALVES=halves,
        )  # fmt: skip

    def dual(self, block: CudaBlock, chunk: int, at: int) -> None:
        """The chunk's steps on V, from state ``at`` to the other one; W in the place of V."""
        (shape,) = SHAPES[self.dtype]["dual of many" if self.m > 3 else "dual"]
        kernels(self.rule, self.dtype).dual[(-(-self.K // shape["BLOCK"]),)](
            self.Z, block.G, block.H, self.state.pair[at], self.state.pair[at ^ 1], self.tail, self.last_delta,
            self.flag, block.top, block.out, self.state.frozen, *block.pointers, block.t0(chunk), block.length(chunk),
            block.turns, chunk, self.K, self.shares, *block.varies, APART=block.apart, KEEP=block.keep, ROWS=ROWS,
            PRECISION=self._precision, **shape,
        )  # fmt: skip

    def update(self, block: CudaBlock, chunk: int) -> None:
        """X ← A_total X + W P; and V = X Pᵀ of the chunk after it, if there is one."""
        halves, more = block.fits[chunk], chunk + 1 < block.chunks
        both = halves and more and block.fits[chunk + 1]
        P = block.halves if halves else block.columns
        kernel = kernels(self.rule, self.dtype).update
        for one, other in self.passes:
            self._launch(
                "update of one" if halves and one == other else "update", kernel, self.K, halves,
                self.X, self.Z, self.tail, self.flag, self.state.frozen, *P, block.scale, chunk, self.K, self.width,
                self.span, ONE=one, OTHER=other, NEXT=both, ROWS=ROWS, THREE=self._three, HALVES=halves,
            )  # fmt: skip
        if more and not both:
            self.project(block, chunk + 1)

    def _launch(self, name: str, kernel: Any, rows: int, halves: bool, *arguments: Any, **constants: Any) -> None:
        """Launch a kernel on so many rows of X, in the first shape that fits into the device's shared memory."""
        shapes = SHAPES["halves" if halves else self.dtype][name]
        kind = name, tuple(constants.values())
        while True:
            at = self._too_large.get(kind, 0)
            try:
                kernel[(-(-rows // shapes[at]["BLOCK"]), self.shares)](*arguments, **constants, **shapes[at])
                return
            except OutOfResources:
                if at + 1 == len(shapes):
                    raise
                self._too_large[kind] = at + 1

    @property
    def _three(self) -> bool:
        return self.exact and self.dtype == "float32"

    @property
    def _precision(self) -> str:
        return "ieee" if self.dtype == "float64" else "tf32x3" if self.exact else "tf32"


def _passes(A: Any) -> list[tuple[int, int]]:
    """The vectors in pairs, each pair one pass over X; the last may be one vector, twice.

    A vector takes of others as they were before the chunk, so it goes before them or with them. A pair of a weight and
    a trace that it alone takes reads nothing else.
    """
    takes = [{c for c, a in enumerate(row) if c != r and a != 0.0} for r, row in enumerate(A)]
    left, passes = list(range(len(A))), []
    while left:
        one, *others = left
        its_own = (c for c in others if c in takes[one] and not any(c in takes[other] for other in others))
        other = next(its_own, others[0] if others else one)
        passes.append((one, other))
        left = [r for r in others if r != other]
    return passes
