"""Steps of all learners one by one, in torch: slow, and exact about which learner would diverge where."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from emphatic.engines.cuda import Cuda
    from emphatic.engines.cuda_blocks import Block

__all__ = ["stepwise"]

#: Components of X that are tried at a time.
_TRIED = 1 << 26


def stepwise(engine: Cuda, block: Block, chunk: int) -> int:
    """The steps of a chunk; −1, or t·K + k if learner k would diverge at the block's step t, before which all stand."""
    first = block.t0(chunk)
    for t in range(first, first + block.length(chunk)):
        k = _step(engine, block, t)
        if k >= 0:
            return t * engine.K + k
    return -1


def _step(engine: Cuda, block: Block, t: int) -> int:
    """One step; −1, or the first learner that would diverge, and then nothing has changed."""
    rule, n, K = engine.rule, engine.n, engine.K
    phi_next = block.phi[t + 1] if block.phi_next is None else block.phi_next[t]
    P = torch.stack([block.phi[t], phi_next])
    X, state = engine.X[:, :, :n], engine._states[engine._at]
    x = torch.matmul(X, P.T).double()
    g = (P @ P.T).double()
    step = [p[t if len(p) > 1 else 0].double().expand(K) for p in block.parameters]
    step[5] = delta = step[5] + step[4] * x[0, :, 1] - x[0, :, 0]  # R gives way to δ
    bound: dict[str, Any] = {"min": _pairwise(torch.minimum), "max": _pairwise(torch.maximum)}
    function = types.FunctionType(rule.function.__code__, bound)
    memory = tuple(state[: engine.M].clone())
    A, B, new = function(tuple(step), memory, tuple(x[..., 0]), tuple(x[..., 1]), (g[0, 0], g[0, 1], g[1, 1]))

    after = torch.stack([torch.as_tensor(value, dtype=torch.float64, device=P.device).expand(K) for value in new])
    fine = torch.isfinite(delta) & torch.isfinite(after).all(0)
    size = max(1, _TRIED // (engine.m * engine.width))
    parts = [slice(begin, begin + size) for begin in range(0, K, size)]
    for part in parts:
        fine[part] &= torch.isfinite(_moved(X[:, part], A, B, P, part, len(rule.weights))).all(2).all(0)
    if not bool(fine.all()):
        return int((~fine).int().argmax())
    if block.keep:
        block.out[t] = x[0, :, 0]
    for part in parts:
        moved = _moved(X[:, part], A, B, P, part, len(rule.weights))
        X[:, part] = moved
        state[engine.M :, part] = moved.abs().amax(2).double()
    state[: engine.M] = after
    engine._delta.copy_(delta)
    engine._steps += 1
    return -1


def _moved(X: torch.Tensor, A: Any, B: Any, P: torch.Tensor, part: slice, weights: int) -> torch.Tensor:
    """A X + B [φ; φ'] of some learners, the coefficients rounded; a weight's own scale by what it has over 1."""

    def rounded(value: torch.Tensor) -> torch.Tensor:
        return value[part].to(X.dtype)[:, None]

    out = torch.zeros_like(X)
    for r, (row, pair) in enumerate(zip(A, B, strict=True)):
        for c, a in enumerate(row):
            if isinstance(a, float):
                out[r] += a * X[c] if a else 0.0
            elif r == c and r < weights:
                out[r] += X[r] + rounded(a - 1.0) * X[r]
            else:
                out[r] += rounded(a) * X[c]
        for b, phi in zip(pair, P, strict=True):
            if isinstance(b, float):
                out[r] += b * phi if b else 0.0
            else:
                out[r] += rounded(b) * phi
    return out


def _pairwise(function: Any) -> Any:
    """Of two numbers or tensors."""
    return lambda a, b: function(*(torch.as_tensor(v, dtype=torch.float64) for v in (a, b)))
