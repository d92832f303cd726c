"""Steps of all learners one by one, in torch: slow, and exact about which learner would diverge where."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from emphatic.engines.cuda.cuda_blocks import CudaBlock
    from emphatic.engines.watch import Watch

__all__ = ["stand_still", "take_steps"]

#: Components of X that are tried, or copied, at a time.
_TRIED = 1 << 26


def take_steps(blocks: Sequence[CudaBlock], where: Sequence[slice], chunk: int, watch: Watch) -> int:
    """The steps of a chunk; −1, or t·K + k if learner k would diverge at the block's step t, before which all stand.

    There is a block for each device, whose learners are ``where``.
    """
    first, K = blocks[0], where[-1].stop
    for t in range(first.t0(chunk), first.t0(chunk + 1)):
        tries = [_Step(block, t) for block in blocks]
        for step, some in zip(tries, where, strict=True):
            if not bool(step.fine.all()):
                if not watch.freeze:
                    return int(t * K + some.start + int((~step.fine).int().argmax()))
                watch.frozen[some][(~step.fine).cpu().numpy()] = True
                step.part.state.freeze(watch.frozen[some])
        for step in tries:
            step.take()
    return -1


class _Step:
    """One step of a device's learners, tried: nothing has changed yet."""

    def __init__(self, block: CudaBlock, t: int) -> None:
        self.block, self.t, self.part = block, t, block.part
        part, rule = self.part, self.part.rule
        X, P = part.X[:, :, : part.n], block.rows_at(t)
        self.x, g = torch.matmul(X, P.T).double(), (P @ P.T).double()
        x, step = self.x, block.step_at(t)
        step[5] = self.delta = step[5] + step[4] * x[0, :, 1] - x[0, :, 0]  # R gives way to δ
        bound: dict[str, Any] = {"min": _pairwise(torch.minimum), "max": _pairwise(torch.maximum)}
        function = types.FunctionType(rule.pure.__code__, bound)
        memory = tuple(part.state.present[: part.M].clone())
        products = (g[0, 0], g[0, 1], g[1, 1])
        A, B, self.after = function(tuple(step), memory, tuple(x[..., 0]), tuple(x[..., 1]), products)
        self.move = _Move(part.K, len(rule.weights), A, B, P)

        #: Who is finite after it, or frozen.
        self.fine = torch.isfinite(self.delta)
        for value in self.after:
            self.fine &= torch.isfinite(value)
        for some in _parts(block, part.K):
            self.fine[some] &= torch.isfinite(self.move(X[:, some], some)).all(2).all(0)
        self.fine |= part.state.frozen.bool()

    def take(self) -> None:
        """Move everyone who is not frozen."""
        part, state = self.part, self.part.state
        X = part.X[:, :, : part.n]
        if self.block.keep:
            self.block.out[self.t] = self.x[0, :, 0]
        moves = state.frozen == 0
        for some in _parts(self.block, part.K):
            here = moves[some]
            moved = torch.where(here[:, None], self.move(X[:, some], some), X[:, some])
            X[:, some] = moved
            bounds = state.present[part.M :, some]
            bounds.copy_(torch.where(here, moved.abs().amax(2).double(), bounds))
        for old, new in zip(state.present, self.after, strict=False):
            old.copy_(torch.where(moves, new, old))
        part.last_delta.copy_(self.delta)
        state.advance(1)


def stand_still(block: CudaBlock, begin: int, end: int) -> None:
    """What frozen learners predict at these steps of a block, and their δ of the last one."""
    part = block.part
    if begin == end or not part.state.standing:
        return
    who = part.state.frozen.nonzero()[:, 0]
    step = block.step_at(end - 1)
    for some in _parts(block, len(who)):
        ks = who[some]
        theta = part.X[0, ks, : part.n]
        if block.keep:
            block.out[begin:end, ks] = block.phi[begin:end] @ theta.T
        v, v_next = (theta @ block.rows_at(end - 1).T).double().T
        part.last_delta[ks] = step[5][ks] + step[4][ks] * v_next - v


class _Move:
    """X ← A X + B [φ; φ'] of some learners, the coefficients rounded; a weight's own scale by what it has over 1."""

    def __init__(self, K: int, weights: int, A: Any, B: Any, P: torch.Tensor) -> None:
        self.K, self.weights, self.A, self.B, self.P = K, weights, A, B, P

    def __call__(self, X: torch.Tensor, some: slice) -> torch.Tensor:
        def rounded(value: torch.Tensor) -> torch.Tensor:
            return value.expand(self.K)[some].to(X.dtype)[:, None]

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


def _parts(block: CudaBlock, K: int) -> list[slice]:
    """K learners, some at a time."""
    size = max(1, _TRIED // (block.part.m * block.part.width))
    return [slice(begin, begin + size) for begin in range(0, K, size)]


def _pairwise(function: Any) -> Any:
    """Of two numbers or tensors."""
    return lambda a, b: function(*(torch.as_tensor(v, dtype=torch.float64) for v in (a, b)))
