"""True online ETD(λ) of K learners on a GPU in torch, a step at a time: what one would write without this library."""

from __future__ import annotations

from typing import Any

import torch


class StepByStep:
    """θ and e (K, n), updated in place; with ``fused``, the update as ``torch.compile`` makes it, in one pass."""

    def __init__(self, n: int, K: int, *, fused: bool) -> None:
        self.X = torch.zeros(2, K, n, device="cuda")
        self.F, self.D, self.gamma = (torch.zeros(K, device="cuda") for _ in range(3))
        self._update = torch.compile(update) if fused else update

    @property
    def theta(self) -> torch.Tensor:
        return self.X[0]

    def run(self, Phi: torch.Tensor, p: dict[str, Any]) -> None:
        alpha, lambda_, gamma_next = (p[name][0].float() for name in ("alpha", "lambda_", "gamma_next"))
        for t, R in enumerate(p["R"]):
            both = Phi[t : t + 2]
            v = self.X @ both.T  # one pass over X for all four products
            self.F = self.F + 1.0
            M = lambda_ + (1.0 - lambda_) * self.F
            c, b = self.gamma * lambda_, alpha * M
            s = b * (1.0 - c * v[1, :, 0])
            delta = R + gamma_next * v[0, :, 1] - v[0, :, 0]
            w, q = (delta + self.D) * c, delta * s + self.D * (s - b)
            self.D = w * v[1, :, 1] + q * (both[0] @ both[1])
            self._update(self.X[0], self.X[1], w, q, c, s, both[0])
            self.F, self.gamma = gamma_next * self.F, gamma_next


def update(
    theta: torch.Tensor, e: torch.Tensor, w: torch.Tensor, q: torch.Tensor, c: torch.Tensor, s: torch.Tensor,
    phi: torch.Tensor,
) -> None:  # fmt: skip
    """θ ← θ + w e + q φ;  e ← c e + s φ."""
    theta.addcmul_(w[:, None], e).addcmul_(q[:, None], phi)
    e.mul_(c[:, None]).addcmul_(s[:, None], phi)
