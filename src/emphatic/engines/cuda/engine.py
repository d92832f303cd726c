"""cuda: a million learners on one stream of features, on a GPU.  The chunked form in Triton, derived in CUDA.md.

X (m, K, n) stays on the device. A chunk of steps is two kernels: ``dual`` (the rule on V = X Pᵀ, one thread per
learner) and ``update`` (X ← A_total X + W P, and V of the next chunk). Neither waits for the host: where a chunk may
overflow, its steps lower a flag, the kernels after it do nothing, and that chunk is run step by step, which finds
exactly where.

With several devices each has a share of the learners, and all advance chunk by chunk together.

Frozen learners take no part in the kernels: what they predict is a matrix product.
"""

from __future__ import annotations

import functools
import os
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
import torch
import triton
from numpy.typing import NDArray
from triton.runtime.errors import OutOfResources

from emphatic.common.names import refusal
from emphatic.engines import generated
from emphatic.engines.base import UNBROKEN, Engine, Features, Flags, Rows, Steps, Watch
from emphatic.engines.cuda import cuda_products
from emphatic.engines.cuda.cuda_functions import GROUP, module_text, pairs_of

if TYPE_CHECKING:
    from emphatic.rules import Rule

__all__ = ["ROWS", "Cuda", "CudaTF32", "tensor_of"]

#: What is on the host or already on a device.
Values: TypeAlias = "NDArray[Any] | torch.Tensor"
#: A or B of some learners: numbers that all have in common, and tensors of one for each.
Coefficients: TypeAlias = "Sequence[Sequence[float | torch.Tensor]]"

#: Feature rows in a chunk.
ROWS = 64
#: About how many bytes of a log are on the device at a time; at least one chunk is.
_BYTES = 1 << 29
#: Bytes that are copied to a device at once.
_PIECE = 1 << 23
#: Bytes of a log below which the host looks over its features sooner than they are on a device.
_FEW_BYTES = 1 << 20
#: FP16 halves hold numbers down to this part of the largest in full.
_FAINT = 2.0**-16
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
        "dual": ({"BLOCK": 32, "num_warps": 1, "maxnreg": 168},),
        "dual of many": ({"BLOCK": 32, "num_warps": 1},),
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
#: Numbers of X that pass to or from the host at a time.
_PASSED = 1 << 26
#: Components of X that are tried, or copied, at a time.
_TRIED = 1 << 26


class Cuda(Engine):
    """X on one device or several, moved once per chunk."""

    name = "cuda"
    takes_rows = False
    takes_tensors = True
    rule: Rule
    #: Whether products of float32 are as exact as float32.
    exact: ClassVar[bool] = True

    def __init__(self, rule: Rule, n: int, K: int, dtype: str, *, devices: Sequence[int] | None = None) -> None:
        self.devices = devices
        places = self._places(devices, K)
        cuts = np.linspace(0, K, len(places) + 1).astype(int).tolist()
        #: Which learners are where.
        self.where = [slice(*cuts[i : i + 2]) for i in range(len(places))]
        self.parts = [
            CudaShard(rule, n, learners.stop - learners.start, dtype, place, exact=self.exact)
            for learners, place in zip(self.where, places, strict=True)
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

    def place(self, rows: NDArray[Any]) -> Values:
        """Rows of φ on the device, which looks them over faster, if there is only one and they fit into one block."""
        device = self.parts[0].device
        if len(self.parts) > 1 or device.type != "cuda" or not _FEW_BYTES <= rows.nbytes <= _BYTES:
            return rows
        read = tensor_of(rows)
        return send(read, device, read.dtype)

    @property
    def grain(self) -> tuple[int, int]:
        # Whole chunks, be φ' the next φ or apart. Of learners all: the order of sums depends on a learner's place.
        return (ROWS - 1) * (ROWS // 2), 0

    @property
    def scalars(self) -> NDArray[np.float64]:
        """As in every engine; from the devices where these are ahead."""
        host = [shard.state.on_host() for shard in self.parts]
        if len(host) == 1:
            return host[0]
        scalars = host[0].base
        if scalars is None or any(rows.base is not scalars for rows in host):
            self.scalars = scalars = np.concatenate(host)
        return scalars

    @scalars.setter
    def scalars(self, value: NDArray[np.float64]) -> None:
        for shard, learners in zip(self.parts, self.where, strict=True):
            shard.state.set(value[learners] if len(self.parts) > 1 else value)

    @property
    def counts(self) -> NDArray[np.float64]:
        """As in every engine; it takes nothing from the device."""
        counts = [shard.state.counts for shard in self.parts]
        return counts[0] if len(counts) == 1 else np.concatenate(counts)

    # ------------------------------------------------------------------ running

    def take(self, steps: Steps[Any]) -> int:
        phi, phi_next, top, parameters, predictions, watch, breaks = steps
        logs = []
        for shard, learners in zip(self.parts, self.where, strict=True):
            with shard.active():
                shard.state.begin(watch.frozen[learners])
                columns = [p[:, learners] for p in parameters]
                logs.append(CudaLog(shard, phi, phi_next, top, columns, len(predictions) > 0, breaks))
        size = min(log.size for log in logs)
        status = -1
        for blocks in zip(*(log.blocks(size) for log in logs), strict=True):
            status = self._take_block(blocks, logs, watch)
            for block, learners in zip(blocks, self.where, strict=True):
                block.deliver(predictions, learners)
            if status != -1:
                status += blocks[0].begin * self.K
                break
        # (pinned memory is several times as fast to copy to)
        on_host = torch.empty(self.K, dtype=torch.float64, pin_memory=self.parts[0].device.type == "cuda")
        for shard, learners in zip(self.parts, self.where, strict=True):
            on_host[learners].copy_(shard.last_delta)
        self.delta = on_host.numpy()
        return status

    def _take_block(self, blocks: Sequence[CudaBlock], logs: Sequence[CudaLog], watch: Watch) -> int:
        """As ``take``, from the block's first step on."""
        chunk, leader = 0, blocks[0]
        while chunk < leader.chunks:
            stopped = self._take_chunks(blocks, chunk, logs)
            for block in blocks:
                with block.shard.active():
                    stand_still(block, leader.t0(chunk), leader.t0(stopped))
            if stopped < leader.chunks:
                status = take_steps(blocks, self.where, stopped, watch)
                if status != -1:
                    return status
            chunk = stopped + 1
        return -1

    def _take_chunks(self, blocks: Sequence[CudaBlock], begin: int, logs: Sequence[CudaLog]) -> int:
        """Take the block's chunks from this one on; which one may overflow, or their number if none."""
        moving = [block for block in blocks if block.shard.state.standing < block.shard.K]
        stopped = blocks[0].chunks
        for block in moving:
            with block.shard.active():
                block.shard.state.prepare()
                block.shard.clear_flag()
                block.shard.project(block, begin)
        for chunk in range(begin, stopped):
            for block in moving:
                with block.shard.active():
                    block.shard.dual(block, chunk, block.shard.state.at ^ ((chunk - begin) & 1))
            # No device may go past a chunk that another must take step by step.
            if len(moving) > 1 and any(block.shard.stopped() <= chunk for block in moving):
                break
            for block in moving:
                with block.shard.active():
                    block.shard.update(block, chunk)
        for log in logs:
            with log.shard.active():
                log.fetch()  # the next block's data travels while this one is computed
        stopped = min([stopped, *(block.shard.stopped() for block in moving)])
        for block in moving:
            block.shard.state.advance(block.t0(stopped) - block.t0(begin), stopped - begin)
        return stopped

    # ------------------------------------------------------------------ state

    def vector(self, r: int) -> NDArray[Any]:
        return np.concatenate(list(self.blocks(r)))

    def blocks(self, r: int) -> Iterator[NDArray[Any]]:
        for shard in self.parts:
            size = max(1, _PASSED // shard.width)
            for begin in range(0, shard.K, size):
                yield shard.X[r, begin : begin + size, : self.n].cpu().numpy().copy()

    def set_vector(self, r: int, value: NDArray[Any]) -> None:
        for shard, learners in zip(self.parts, self.where, strict=True):
            size = max(1, _PASSED // shard.width)
            for begin in range(0, shard.K, size):
                end = min(begin + size, shard.K)
                rows = np.ascontiguousarray(value[learners][begin:end])
                shard.X[r, begin:end, : self.n] = torch.from_numpy(rows).to(shard.device)

    def predict(self, phi: Features) -> NDArray[Any]:
        predictions = []
        for shard in self.parts:
            rows = tensor_of(phi).to(shard.device, shard.real)
            predictions.append((rows @ shard.X[0, :, : self.n].T).cpu().numpy())
        return np.concatenate(predictions, axis=1)

    def dense(self, phi: Rows, phi_next: Rows) -> tuple[torch.Tensor, torch.Tensor]:
        place = self.parts[0].device, self.parts[0].real
        if phi.index is phi_next.index and np.array_equal(phi.start[1:], phi_next.start[:-1]):
            rows = dense_rows(Rows(np.append(phi.start[:1], phi_next.start), phi.index, phi.value), self.n, *place)
            return rows[:-1], rows[1:]  # (φ' is the next φ: one log)
        return dense_rows(phi, self.n, *place), dense_rows(phi_next, self.n, *place)

    def room(self, T: int) -> torch.Tensor:
        return torch.empty((T, self.K), dtype=self.parts[0].real, device=self.parts[0].device)

    def clear_traces(self) -> None:
        for shard in self.parts:
            shard.X[len(self.rule.weights) :] = 0.0

    @property
    def nbytes(self) -> int:
        return sum(shard.nbytes for shard in self.parts)

    def like(self, K: int) -> Cuda:
        return type(self)(self.rule, self.n, K, self.dtype, devices=self.devices and self.devices[:K])

    def select(self, ks: NDArray[np.int64]) -> Engine:
        selection = self.like(len(ks))
        if len(self.parts) > 1:
            for r in range(len(self.rule.vectors)):
                selection.set_vector(r, self.vector(r)[ks])
        else:  # on the device
            chosen = torch.from_numpy(ks).to(self.parts[0].device)
            torch.index_select(self.parts[0].X, 1, chosen, out=selection.parts[0].X)
        selection.scalars[:] = self.scalars[ks]
        return selection


class CudaTF32(Cuda):
    """The same with products of float32 that are one of 11 bits: faster, with errors of 1e-3 in place of 1e-7."""

    name = "cuda-tf32"
    exact = False


# ----------------------------------------------------------------------------------------------- learners on one device


@functools.cache
def kernels(rule: Rule, dtype: str) -> Any:
    """The module with this rule's ``dual`` and ``update``."""
    return generated.module(f"cuda_{rule.name}_{dtype}", module_text(rule, dtype), triton.__version__)


class CudaShard:
    """K learners on one device; ``exact`` unless products of float32 may be one of 11 bits."""

    def __init__(self, rule: Rule, n: int, K: int, dtype: str, device: torch.device, *, exact: bool) -> None:
        self.rule, self.n, self.K, self.dtype, self.device, self.exact = rule, n, K, dtype, device, exact
        self.real = getattr(torch, dtype)
        self.m, self.M = len(rule.vectors), len(rule.memory)
        self.width = -(-n // ALIGNED) * ALIGNED
        A, _ = rule.form
        self.pairs = len(pairs_of(A, len(rule.weights)))
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
            #: The product of A of each group of a chunk.
            self.groups = torch.empty((ROWS // GROUP, self.pairs, K), dtype=torch.float64)
            self.last_delta = torch.zeros(K, dtype=torch.float64)
            self.flag = torch.full((1,), _NO_CHUNK, dtype=torch.int32)

    def active(self) -> Any:
        """A context in which kernels and streams are those of this device."""
        return torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext()

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in (self.X, self.Z, self.groups, self.tail, self.state, self.last_delta))

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
        size = np.dtype(self.dtype).itemsize * (self.m * (self.width + slots * ROWS) + self.pairs)
        size += 8 * (ROWS // GROUP * self.pairs + 2 * (self.M + self.m) + 1) + 1
        reserved, used = torch.cuda.memory_reserved(self.device), torch.cuda.memory_allocated(self.device)
        free = torch.cuda.mem_get_info(self.device)[0] + reserved - used - (1 << 29)
        if self.K * size > free:
            where = f"GPU {self.device.index}, which has {free / 1e9:.1f} GB free"
            wanted = f"be at most {free // size:,} for n = {self.n:,} in {self.dtype} on {where}"
            remedy = "Several GPUs can share the learners: devices=[0, 1, …]."
            raise refusal("K", "Learner", wanted, f"{self.K:,}", remedy)

    def start_sequence(self, learners: slice | torch.Tensor) -> None:
        """What ``cut`` does, of these learners."""
        self.X[len(self.rule.weights) :, learners] = 0.0
        self.state.present[: self.M - len(self.rule.lasting), learners] = 0.0

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
        rows = self.m * self.K
        arguments = (self.X, self.Z, *P, block.scale, self.flag, chunk, self.K, rows, self.width, self.span)
        constants = {"ROWS": ROWS, "THREE": self._three, "HALVES": halves}
        self._launch("project", cuda_products.project, rows, halves, arguments, constants)

    def dual(self, block: CudaBlock, chunk: int, at: int) -> None:
        """The chunk's steps on V, from state ``at`` to the other one; W in the place of V."""
        (shape,) = SHAPES[self.dtype]["dual of many" if self.m > 2 else "dual"]
        state, grid = self.state, (-(-self.K // shape["BLOCK"]),)
        products = (
            self.Z,
            block.G,
            block.H,
            state.pair[at],
            state.pair[at ^ 1],
            self.groups,
            self.tail,
            self.last_delta,
        )
        outcome = (self.flag, block.top, block.out, state.frozen, block.first)
        steps = (block.t0(chunk), block.length(chunk), chunk, self.K, self.shares)
        kind = {"APART": block.apart, "BROKEN": len(block.breaks) > 0, "KEEP": block.keep}
        constants = {**kind, "ROWS": ROWS, **shape}
        kernels(self.rule, self.dtype).dual[grid](
            *products, *outcome, *block.pointers, *steps, *block.varies, **constants
        )

    def update(self, block: CudaBlock, chunk: int) -> None:
        """X ← A_total X + W P; and V = X Pᵀ of the chunk after it, if there is one."""
        halves, goes_on = block.fits[chunk], chunk + 1 < block.chunks
        both = halves and goes_on and block.fits[chunk + 1]
        P = block.halves if halves else block.columns
        kernel = kernels(self.rule, self.dtype).update
        state = (self.X, self.Z, self.tail, self.flag, self.state.frozen)
        arguments = (*state, *P, block.scale, chunk, self.K, self.width, self.span)
        for r, s in self.passes:
            name = "update of one" if halves and r == s else "update"
            constants = {"ONE": r, "OTHER": s, "NEXT": both, "ROWS": ROWS, "THREE": self._three, "HALVES": halves}
            self._launch(name, kernel, self.K, halves, arguments, constants)
        if goes_on and not both:
            self.project(block, chunk + 1)

    def _launch(
        self,
        name: str,
        kernel: triton.JITFunction,
        rows: int,
        halves: bool,
        arguments: tuple[object, ...],
        constants: dict[str, int],
    ) -> None:
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


def _passes(A: Sequence[Sequence[float | None]]) -> list[tuple[int, int]]:
    """The vectors in pairs, each pair one pass over X; the last may be one vector, twice.

    A vector takes of others as they were before the chunk, so it goes before them or with them. A pair of a weight and
    a trace that it alone takes reads nothing else.
    """
    takes = [{c for c, a in enumerate(row) if c != r and a != 0.0} for r, row in enumerate(A)]
    left, passes = list(range(len(A))), []
    while left:
        r, *later = left
        its_own = (c for c in later if c in takes[r] and not any(c in takes[s] for s in later))
        s = next(its_own, later[0] if later else r)
        passes.append((r, s))
        left = [r for r in later if r != s]
    return passes


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


# -------------------------------------------------------------------------------------------------- a log on the device


class CudaBlock:
    """Some steps of a log on the device, in chunks of ROWS rows, in the forms that the kernels read."""

    def __init__(
        self,
        shard: CudaShard,
        begin: int,
        phi: torch.Tensor,
        phi_next: torch.Tensor | None,
        top: torch.Tensor,
        parameters: list[torch.Tensor],
        keep: bool,
        breaks: Flags,
    ) -> None:
        self.shard, self.begin, self.parameters = shard, begin, parameters
        #: Where sequences begin, on the host and on the device; empty where none does.
        self.breaks = breaks
        # (as wide as other numbers: of a narrow type Triton makes the layout of all that depends on it)
        self.first = torch.from_numpy(breaks.astype(np.int32)).to(shard.device) if len(breaks) else shard.flag
        self.phi, self.phi_next = phi, phi_next
        self.apart = phi_next is not None
        self.T = len(phi) if self.apart else len(phi) - 1
        #: Steps a chunk.
        self.steps = ROWS // 2 if self.apart else ROWS - 1
        self.chunks = -(-self.T // self.steps)
        self.out = torch.empty((self.T if keep else 0, shard.K), dtype=shard.real, device=shard.device)
        self.keep = keep
        self.P = self._rows()
        self.G = torch.bmm(self.P, self.P.transpose(1, 2))
        self.H = _windows(self.G, self.apart)
        self.scale = torch.ones(self.chunks, dtype=torch.float32, device=shard.device)
        #: For which chunks P can be split into halves. (The host waits to know it, which one chunk does not repay.)
        self.fits = [False] * self.chunks
        if shard.dtype == "float32" and self.chunks > 1:
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
        shard, phi, width = self.shard, self.phi, self.shard.width
        stride = 2 * self.steps if self.apart else self.steps
        padded = phi.new_zeros((stride * self.chunks + 1, width))
        if self.phi_next is not None:
            padded[0 : 2 * self.T : 2, : shard.n] = phi
            padded[1 : 2 * self.T : 2, : shard.n] = self.phi_next
        else:
            padded[: self.T + 1, : shard.n] = phi
        return padded.as_strided((self.chunks, ROWS, width), (stride * width, width, 1)).contiguous()

    @cached_property
    def rows(self) -> tuple[torch.Tensor, torch.Tensor]:
        """P rounded to TF32, and the remainder."""
        return _split(self.P)

    @cached_property
    def columns(self) -> tuple[torch.Tensor, ...]:
        """The same by columns: (chunks, width, ROWS)."""
        return tuple(term.transpose(1, 2).contiguous() for term in self.rows)

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
        return [p[t if len(p) > 1 else 0].double().expand(self.shard.K) for p in self.parameters]

    def deliver(self, predictions: Values, learners: slice) -> None:
        """Put the predictions into those of all learners, of which these are ``some``."""
        if self.keep:
            target = predictions[self.begin : self.begin + self.T, learners]
            if isinstance(target, np.ndarray):
                torch.from_numpy(target).copy_(self.out)
            else:
                target.copy_(self.out)


class CudaLog:
    """All steps of a run, as blocks."""

    def __init__(
        self,
        shard: CudaShard,
        phi: Values,
        phi_next: Values,
        top: float,
        parameters: Sequence[Values],
        keep: bool,
        first: Flags,
    ) -> None:
        self.shard, self.keep, self.first, self.T = shard, keep, first, len(phi)
        self.top = torch.tensor(top, dtype=torch.float64, device=shard.device)
        self.apart = not _one_log(phi, phi_next)
        self.phi, self.phi_next = tensor_of(phi), tensor_of(phi_next)
        self.parameters = [tensor_of(_reduced(p)) for p in parameters]
        # What is the same at every step is copied once, in float64.
        self.constant = [
            p.to(shard.device, torch.float64) if len(p) == 1 or self.T == 1 else None for p in self.parameters
        ]
        # Numbers a step: φ, P in all its forms and its G; predictions; and the parameters that are still to be copied.
        numbers = 8 * shard.n * (1 + self.apart) + 2 * ROWS + shard.K * keep
        numbers += sum(
            p.shape[1]
            for p, constant in zip(self.parameters, self.constant, strict=True)
            if constant is None and p.device != shard.device
        )
        steps = ROWS // 2 if self.apart else ROWS - 1
        #: Steps a block.
        self.size = max(1, _BYTES // (numbers * shard.X.element_size() * steps)) * steps
        self._stream = torch.cuda.Stream() if shard.device.type == "cuda" else None
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
        with self.shard.active(), torch.cuda.stream(self._stream):
            self._next = self._block(begin, end)
            ready = torch.cuda.Event()
            ready.record()
        torch.cuda.current_stream(self.shard.device).wait_event(ready)
        return True

    def _block(self, begin: int, end: int) -> CudaBlock:
        shard = self.shard
        if self.apart:
            phi, phi_next = (send(rows[begin:end], shard.device, shard.real) for rows in (self.phi, self.phi_next))
        else:
            # One row more: φ of the first steps, φ' of all.
            rows = (self.phi[begin:end], self.phi_next[end - 1 : end])
            phi, phi_next = torch.cat([send(piece, shard.device, shard.real) for piece in rows]), None
        parameters = []
        for p, constant in zip(self.parameters, self.constant, strict=True):
            if constant is not None:
                parameters.append(constant)
            else:
                # Numbers for each learner and step are most of the transfer: in the learners' own precision.
                in_place = p.device == shard.device and p.is_floating_point()
                kind = p.dtype if in_place else shard.real if p.shape[1] > 1 else torch.float64
                parameters.append(send(p[begin:end], shard.device, kind))
        breaks = self.first[begin:end]
        return CudaBlock(
            shard, begin, phi, phi_next, self.top, parameters, self.keep, breaks if breaks.any() else UNBROKEN
        )


def send(rows: torch.Tensor, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """On the device, in that type; from the host through pinned memory, so that the copy is asynchronous.

    The next piece of rows is copied to pinned memory while the last one is on its way to the device.
    """
    if rows.device.type == device.type:
        return rows.to(device, dtype)
    sent = torch.empty(rows.shape, dtype=dtype, device=device)
    size = max(1, len(rows) * _PIECE // max(1, sent.nbytes))
    for piece, target in zip(rows.split(size), sent.split(size), strict=True):
        target.copy_(torch.empty(piece.shape, dtype=dtype, pin_memory=True).copy_(piece), non_blocking=True)
    return sent


def tensor_of(value: Values) -> torch.Tensor:
    """An array as a tensor in the same memory, if torch can have it there."""
    if isinstance(value, torch.Tensor):
        return value
    if min(value.strides, default=0) < 0 or not value.flags.aligned:  # which torch does not have
        value = value.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it may be read-only, and is only read
        return torch.from_numpy(value)


def dense_rows(rows: Rows, n: int, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """Compressed rows as (T, n) on a device; only what is active travels."""
    active, count = tensor_of(rows.indices).to(device), np.diff(rows.start)
    if len(count) and (count == count[0]).all():
        row = torch.arange(len(count), device=device)[:, None].expand(-1, int(count[0])).reshape(-1)
    else:
        row = torch.repeat_interleave(torch.from_numpy(count).to(device))
    # What is no feature goes to a place of its own, behind all rows.
    place = torch.where((active >= 0) & (active < n), row * n + active, len(rows) * n)
    out = torch.zeros(len(rows) * n + 1, dtype=dtype, device=device)
    out[place] = tensor_of(rows.values).to(device).to(dtype)
    return out[:-1].view(len(rows), n)


def _reduced(p: Values) -> Values:
    """Without the axes along which it is constant: one entry stands for all of them."""
    steps, learners = p.stride() if isinstance(p, torch.Tensor) else p.strides
    p = p[:1] if steps == 0 else p
    return p[:, :1] if learners == 0 else p


def _one_log(phi: Values, phi_next: Values) -> bool:
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
    end = ROWS - 1
    return torch.where(within, G[:, row.clamp(max=end), column.clamp(max=end)], 0.0).contiguous()


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
    ones = torch.ones_like(largest)
    scaled = P * torch.ldexp(ones, 15 - exponent)[:, None, None]
    high = scaled.half()
    return torch.ldexp(ones, exponent - 15), fits, high, (scaled - high).half()


# --------------------------------------------------------------------------------------------------------- step by step


def take_steps(blocks: Sequence[CudaBlock], where: Sequence[slice], chunk: int, watch: Watch) -> int:
    """The steps of a chunk; −1, or t·K + k if learner k would diverge at the block's step t, before which all stand.

    There is a block for each device, whose learners are ``where``.
    """
    leader, K = blocks[0], where[-1].stop
    for t in range(leader.t0(chunk), leader.t0(chunk + 1)):
        if len(leader.breaks) and leader.breaks[t]:
            for block in blocks:
                block.shard.start_sequence(slice(None))
        tries = [_Step(block, t) for block in blocks]
        for step, learners in zip(tries, where, strict=True):
            if not bool(step.fine.all()):
                if not watch.freeze:
                    return int(t * K + learners.start + int((~step.fine).int().argmax()))
                watch.frozen[learners][(~step.fine).cpu().numpy()] = True
                step.shard.state.freeze(watch.frozen[learners])
        for step in tries:
            step.take()
    return -1


class _Step:
    """One step of a device's learners, tried: nothing has changed yet."""

    def __init__(self, block: CudaBlock, t: int) -> None:
        self.block, self.t, self.shard = block, t, block.shard
        shard, rule = self.shard, self.shard.rule
        X, P = shard.X[:, :, : shard.n], block.rows_at(t)
        self.x, g = torch.matmul(X, P.T).double(), (P @ P.T).double()
        x, step = self.x, block.step_at(t)
        step[5] = self.delta = step[5] + step[4] * x[0, :, 1] - x[0, :, 0]  # R gives way to δ
        bound: dict[str, Any] = {"min": _pairwise(torch.minimum), "max": _pairwise(torch.maximum)}
        function = types.FunctionType(rule.pure.__code__, bound)
        memory = tuple(shard.state.present[: shard.M].clone())
        products = (g[0, 0], g[0, 1], g[1, 1])
        A, B, self.after = function(tuple(step), memory, tuple(x[..., 0]), tuple(x[..., 1]), products)
        self.move = _Move(shard.K, len(rule.weights), A, B, P)

        #: Who is finite after it, or frozen.
        self.fine = torch.isfinite(self.delta)
        for value in self.after:
            self.fine &= torch.isfinite(value)
        for learners in _batches(block, shard.K):
            self.fine[learners] &= torch.isfinite(self.move(X[:, learners], learners)).all(2).all(0)
        self.fine |= shard.state.frozen.bool()

    def take(self) -> None:
        """Move everyone who is not frozen."""
        shard, state = self.shard, self.shard.state
        X = shard.X[:, :, : shard.n]
        if self.block.keep:
            self.block.out[self.t] = self.x[0, :, 0]
        moves = state.frozen == 0
        for learners in _batches(self.block, shard.K):
            here = moves[learners]
            moved = torch.where(here[:, None], self.move(X[:, learners], learners), X[:, learners])
            X[:, learners] = moved
            bounds = state.present[shard.M :, learners]
            bounds.copy_(torch.where(here, moved.abs().amax(2).double(), bounds))
        for old, new in zip(state.present, self.after, strict=False):
            old.copy_(torch.where(moves, new, old))
        shard.last_delta.copy_(self.delta)
        state.advance(1)


def stand_still(block: CudaBlock, begin: int, end: int) -> None:
    """What frozen learners predict at these steps of a block, and their δ of the last one."""
    shard = block.shard
    if begin == end or not shard.state.standing:
        return
    who = shard.state.frozen.nonzero()[:, 0]
    if block.breaks[begin:end].any():
        shard.start_sequence(who)
    step = block.step_at(end - 1)
    for batch in _batches(block, len(who)):
        ks = who[batch]
        theta = shard.X[0, ks, : shard.n]
        if block.keep:
            block.out[begin:end, ks] = block.phi[begin:end] @ theta.T
        v, v_next = (theta @ block.rows_at(end - 1).T).double().T
        shard.last_delta[ks] = step[5][ks] + step[4][ks] * v_next - v


class _Move:
    """X ← A X + B [φ; φ'] of some learners, the coefficients rounded; a weight's own scale by what it has over 1."""

    def __init__(self, K: int, weights: int, A: Coefficients, B: Coefficients, P: torch.Tensor) -> None:
        self.K, self.weights, self.A, self.B, self.P = K, weights, A, B, P

    def __call__(self, X: torch.Tensor, learners: slice) -> torch.Tensor:
        def rounded(value: torch.Tensor) -> torch.Tensor:
            return value.expand(self.K)[learners].to(X.dtype)[:, None]

        out = torch.zeros_like(X)
        for r, (row, pair) in enumerate(zip(self.A, self.B, strict=True)):
            for c, a in enumerate(row):
                if isinstance(a, float):
                    out[r] += a * X[c] if a else 0.0
                elif r == c and r < self.weights:
                    out[r] += X[r] + rounded(a - 1.0) * X[r]
                else:
                    out[r] += rounded(a) * X[c]
            for b, phi in zip(pair, self.P, strict=True):
                if isinstance(b, float):
                    out[r] += b * phi if b else 0.0
                else:
                    out[r] += rounded(b) * phi
        return out


def _batches(block: CudaBlock, K: int) -> list[slice]:
    """K learners, some at a time."""
    size = max(1, _TRIED // (block.shard.m * block.shard.width))
    return [slice(begin, begin + size) for begin in range(0, K, size)]


def _pairwise(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Of two numbers or tensors."""
    return lambda a, b: function(*(torch.as_tensor(v, dtype=torch.float64) for v in (a, b)))
