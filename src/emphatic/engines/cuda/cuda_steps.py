"""Steps of all learners one by one, in torch: slow, and exact about which learner would diverge where."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from emphatic.engines.cuda.cuda_blocks import CudaBlock
    from emphatic.engines.cuda.engine import Cuda
    from emphatic.engines.watch import Watch

__all__ = ["stand_still", "take_steps"]

#: Components of X that are tried, or copied, at a time.
_TRIED = 1 << 26


def take_steps(engine: Cuda, block: CudaBlock, chunk: int, watch: Watch) -> int:
    """The steps of a chunk; −1, or t·K + k if learner k would diverge at the block's step t, before which all stand."""
    for t in range(block.t0(chunk), block.t0(chunk + 1)):
        k = _step(engine, block, t, watch)
        if k >= 0:
            return t * engine.K + k
    return -1


def _step(engine: Cuda, block: CudaBlock, t: int, watch: Watch) -> int:
    """One step; −1, or the first learner that would diverge and may not freeze, and then nothing has changed."""
    rule, state = engine.rule, engine.state
    X, P = engine.X[:, :, : engine.n], block.rows_at(t)
    x, g = torch.matmul(X, P.T).double(), (P @ P.T).double()
    step = block.step_at(t)
    step[5] = delta = step[5] + step[4] * x[0, :, 1] - x[0, :, 0]  # R gives way to δ
    bound: dict[str, Any] = {"min": _pairwise(torch.minimum), "max": _pairwise(torch.maximum)}
    function = types.FunctionType(rule.pure.__code__, bound)
    memory = tuple(state.present[: engine.M].clone())
    A, B, after = function(tuple(step), memory, tuple(x[..., 0]), tuple(x[..., 1]), (g[0, 0], g[0, 1], g[1, 1]))
    move = _Move(engine.K, len(rule.weights), A, B, P)

    fine = torch.isfinite(delta)
    for value in after:
        fine &= torch.isfinite(value)
    parts = _parts(engine, engine.K)
    for part in parts:
        fine[part] &= torch.isfinite(move(X[:, part], part)).all(2).all(0)
    fine |= state.frozen.bool()
    if not bool(fine.all()):
        if not watch.freeze:
            return int((~fine).int().argmax())
        watch.frozen[(~fine).cpu().numpy()] = True
        state.freeze(watch.frozen)
    if block.keep:
        block.out[t] = x[0, :, 0]
    moves = state.frozen == 0
    for part in parts:
        here = moves[part]
        moved = torch.where(here[:, None], move(X[:, part], part), X[:, part])
        X[:, part] = moved
        bounds = state.present[engine.M :, part]
        bounds.copy_(torch.where(here, moved.abs().amax(2).double(), bounds))
    for old, new in zip(state.present, after, strict=False):
        old.copy_(torch.where(moves, new, old))
    engine.last_delta.copy_(delta)
    state.advance(1)
    return -1


def stand_still(engine: Cuda, block: CudaBlock, begin: int, end: int) -> None:
    """What frozen learners predict at these steps of a block, and their δ of the last one."""
    if begin == end or not engine.state.standing:
        return
    who = engine.state.frozen.nonzero()[:, 0]
    step = block.step_at(end - 1)
    for part in _parts(engine, len(who)):
        ks = who[part]
        theta = engine.X[0, ks, : engine.n]
        if block.keep:
            block.out[begin:end, ks] = block.phi[begin:end] @ theta.T
        v, v_next = (theta @ block.rows_at(end - 1).T).double().T
        engine.last_delta[ks] = step[5][ks] + step[4][ks] * v_next - v


class _Move:
    """X ← A X + B [φ; φ'] of some learners, the coefficients rounded; a weight's own scale by what it has over 1."""

    def __init__(self, K: int, weights: int, A: Any, B: Any, P: torch.Tensor) -> None:
        self.K, self.weights, self.A, self.B, self.P = K, weights, A, B, P

    def __call__(self, X: torch.Tensor, part: slice) -> torch.Tensor:
        def rounded(value: torch.Tensor) -> torch.Tensor:
            return value.expand(self.K)[part].to(X.dtype)[:, None]

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


def _parts(engine: Cuda, K: int) -> list[slice]:
    """K learners, some at a time."""
    size = max(1, _TRIED // (engine.m * engine.width))
    return [slice(begin, begin + size) for begin in range(0, K, size)]


def _pairwise(function: Any) -> Any:
    """Of two numbers or tensors."""
    return lambda a, b: function(*(torch.as_tensor(v, dtype=torch.float64) for v in (a, b)))
