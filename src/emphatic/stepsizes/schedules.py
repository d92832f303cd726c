"""Step sizes fixed in advance: a constant scaled to the features, and a sequence that decays to zero."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from emphatic.common.names import refusal

__all__ = ["constant", "decaying"]

FloatArray = npt.NDArray[np.float64]


def constant(Phi: Any, fraction: float = 0.1) -> float:
    """The constant step size that removes a fraction of the error of the longest feature vector.

        α = fraction / max_t φ_t·φ_t

    With ρM = 1 and λ = 0, one step moves that vector's prediction by ``fraction`` of its TD error;
    off-policy, ρM can be far above 1 and requires a smaller one. k active binary features give fraction/k.
    ``Phi`` is (T+1, n), ``Active`` or scipy CSR, as for ``run``, or a single φ.

    >>> constant([[3.0, 4.0], [1.0, 0.0]])
    0.004
    >>> from emphatic import Active
    >>> constant(Active([[3, 7, 9, 12], [4, 5, -1, -1]]))
    0.025

    Source: Sutton's guide, section 1 (0.1/max φ·φ).
    """
    _refuse_unless(0.0 < fraction < np.inf, "fraction", "constant", "greater than 0 and finite", fraction)
    squares = np.atleast_1d(_squares(Phi))
    bad = np.flatnonzero(~np.isfinite(squares))
    if len(bad):
        got = f"φ·φ = {squares[bad[0]]} at step {bad[0]}"
        raise refusal("Phi", "constant", "have a finite φ·φ in every row", got)
    longest = float(squares.max(initial=0.0))
    if longest == 0.0:
        got, remedy = f"zeros only in {len(squares)} rows", "Nothing could be learned from them."
        raise refusal("Phi", "constant", "have a nonzero feature", got, remedy)
    return fraction / longest


def decaying(alpha: float, T: int, *, after: float = 1000.0, power: float = 1.0) -> FloatArray:
    """A step size that decreases to zero slowly: about ``alpha`` until step ``after``, then as t^−power.

        α_t = alpha / (1 + t/after)^power,   t = 0 … T−1,   ½ < power ≤ 1

    For these powers Σ α_t = ∞, so that any distance can be covered, and Σ α_t² < ∞, so that the noise dies
    out: the conditions of Robbins & Monro (1951), under which emphatic TD converges (Yu, 2015). A power of 1
    averages best once the weights are near; a lower one, or a larger ``after``, gets there from farther away.

    >>> decaying(0.5, 4, after=1).tolist()
    [0.5, 0.25, 0.16666666666666666, 0.125]

    Source: Sutton's guide, section 1.
    """
    _refuse_unless(0.0 < alpha < np.inf, "alpha", "decaying", "greater than 0 and finite", alpha)
    _refuse_unless(isinstance(T, int | np.integer) and T >= 0, "T", "decaying", "an integer of at least 0", T)
    _refuse_unless(0.0 < after < np.inf, "after", "decaying", "greater than 0 and finite", after)
    _refuse_unless(0.5 < power <= 1.0, "power", "decaying", "greater than 0.5 and at most 1", power)
    sequence: FloatArray = alpha / (1.0 + np.arange(T) / after) ** power
    return sequence


def _squares(Phi: Any) -> FloatArray:
    """φ_t·φ_t of every row."""
    if hasattr(Phi, "tocsr"):
        return np.asarray(Phi.multiply(Phi).sum(axis=1), dtype=np.float64).ravel()
    if hasattr(Phi, "indices"):  # Active
        return np.asarray(np.sum(Phi.values**2, axis=-1, where=Phi.indices >= 0))
    dense = np.asarray(Phi)
    if dense.ndim not in (1, 2) or dense.dtype.kind not in "biuf":
        wanted = "be a (T+1, n) array of real numbers, Active or scipy CSR"
        raise refusal("Phi", "constant", wanted, f"shape {dense.shape} and dtype {dense.dtype}")
    return np.asarray(np.einsum("...n,...n->...", dense, dense, dtype=np.float64))


def _refuse_unless(fine: bool, name: str, of: str, wanted: str, got: object) -> None:
    if not fine:
        raise refusal(name, of, f"be {wanted}", repr(got))
