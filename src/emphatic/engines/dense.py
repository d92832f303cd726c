"""dense: step by step in numba, one pass over memory a step: the update, and the inner products of the next step.

X is (K, m, n) in the learner's dtype; the rule's scalars are always float64. Cost a step and learner: O(m n) time;
m n numbers of memory. In each step all learners first find their coefficients and only then move, so that if one of
them diverges all stand before that same step.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from emphatic.engines import compiled
from emphatic.engines.base import Arrays, Engine, Features
from emphatic.engines.text import Unrolled, fill

if TYPE_CHECKING:
    from emphatic.rules import Rule

__all__ = ["Dense"]

_TEXT = '''⟨header⟩
real = np.⟨dtype⟩
zero = real(0)


def learn(X, scalars, phi, phi_next, ⟨parameters⟩):
    """One step of one learner; its TD error, or NaN if the step was refused and nothing changed."""
    n = X.shape[2]
    if phi.shape[0] != n or phi_next.shape[0] != n or not (⟨acceptable⟩):
        return np.nan
    k = 0
    refused = np.nan
    ⟨zeros⟩
    for i in range(n):
        ⟨read⟩
        p = phi[i]; q = phi_next[i]
        ⟨sums⟩
    ⟨products⟩
    top = 1.0 + pp + qq
    ⟨decide_one⟩
    for i in range(n):
        ⟨read⟩
        p = phi[i]; q = phi_next[i]
        ⟨update⟩
        ⟨write⟩
    ⟨store⟩
    return delta


def run(X, scalars, Phi, Phi_next, top, ⟨all_parameters⟩, predictions, last_delta, work):
    """T steps of K learners; −1, or t·K + k where learner k would diverge at step t."""
    K, n, T = X.shape[0], X.shape[2], Phi.shape[0]
    keep = predictions.shape[0] > 0
    for k in range(K if T > 0 else 0):
        ⟨zeros⟩
        for i in range(n):
            ⟨read⟩
            p = Phi[0, i]; q = Phi_next[0, i]
            ⟨sums⟩
        ⟨keep_products⟩
    for t in range(T):
        for k in range(K):
            refused = t * K + k
            ⟨at_t_k⟩
            ⟨recall_products⟩
            ⟨decide_many⟩
            if keep:
                predictions[t, k] = x0
            last_delta[k] = delta
            ⟨keep⟩
        s = min(t + 1, T - 1)
        for k in range(K):
            ⟨recall⟩
            ⟨zeros⟩
            for i in range(n):
                ⟨read⟩
                p = Phi[t, i]; q = Phi_next[t, i]
                ⟨update⟩
                ⟨write⟩
                p = Phi[s, i]; q = Phi_next[s, i]
                ⟨sums⟩
            ⟨keep_products⟩
            ⟨store⟩
    return -1
'''

# The coefficients of one step, or a refusal. Only when the bounds say that something may overflow is it tried.
_DECIDE = """⟨load⟩
⟨call⟩
⟨bounds⟩
if not (⟨finite⟩):
    return refused
⟨round⟩
if not (⟨small⟩):
    ⟨no_bounds⟩
    for i in range(n):
        ⟨read⟩
        p = ⟨phi⟩; q = ⟨phi_next⟩
        ⟨update⟩
        ⟨rounded⟩
        if not (⟨new_finite⟩):
            return refused
        ⟨new_bounds⟩"""


def source(rule: Rule, dtype: str) -> str:
    """The text of this rule's kernels."""
    u = Unrolled(rule)
    R = u.vectors
    limit = float(np.finfo(dtype).max)
    products = [f"{v}{r}" for r in R for v in "xy"] + ["pp", "pq", "qq"]
    kept = u.results() + u.coefficients + products

    def keep(names: list[str], suffix: str = "") -> list[str]:
        return [f"work[k, {kept.index(name)}] = {name}{suffix}" for name in names]

    def recall(names: list[str], cast: str = "") -> list[str]:
        return [f"{name} = {cast}(work[k, {kept.index(name)}])" for name in names]

    return fill(
        _TEXT,
        decide_one=fill(_DECIDE, phi="phi[i]", phi_next="phi_next[i]").split("\n"),
        decide_many=fill(_DECIDE, phi="Phi[t, i]", phi_next="Phi_next[t, i]").split("\n"),
        header=u.header(),
        dtype=dtype,
        parameters=", ".join(rule.parameters),
        all_parameters=", ".join(f"all_{name}" for name in rule.parameters),
        at_t_k=[f"{name} = all_{name}[t, k]" for name in rule.parameters],
        acceptable=u.acceptable(),
        # Sums are in the learner's dtype, what is made of them in float64.
        zeros=[f"{name}_ = zero" for name in products],
        sums=[
            *(f"x{r}_ += z{r} * p; y{r}_ += z{r} * q" for r in R),
            "pp_ += p * p; pq_ += p * q; qq_ += q * q",
        ],
        products=[f"{name} = np.float64({name}_)" for name in products],
        keep_products=keep(products, "_"),
        recall_products=recall(products),
        load=u.load(),
        call=u.call(),
        bounds=u.bounds(),
        finite=u.finite(),
        round=[f"{name} = real({name})" for name in u.coefficients],
        small=u.small(limit),
        read=[f"z{r} = X[k, {r}, i]" for r in R],
        update=["; ".join(f"v{r} = {u.row(r)}" for r in R), "; ".join(f"z{r} = v{r}" for r in R)],
        write=[f"X[k, {r}, i] = z{r}" for r in R],
        no_bounds=[f"size_next{r} = 0.0" for r in R],
        rounded=[f"v{r} = abs(np.float64(real(z{r})))" for r in R],
        new_finite=" and ".join(f"v{r} <= {limit!r}" for r in R),
        new_bounds=[f"size_next{r} = max(size_next{r}, v{r})" for r in R],
        keep=keep(u.results() + u.coefficients),
        recall=recall(u.results()) + recall(u.coefficients, "real"),
        store=u.store(),
    )


@functools.cache
def _kernel(rule: Rule, dtype: str, name: str) -> Any:
    real, f8 = getattr(types, dtype), types.float64
    module = compiled.module(f"dense_{rule.name}_{dtype}", source(rule, dtype))
    state = (types.Array(real, 3, "C"), types.Array(f8, 2, "C"))
    if name == "learn":
        phi = types.Array(real, 1, "C", readonly=True)
        return compiled.kernel(module, name, *state, phi, phi, *[f8] * len(rule.parameters))
    Phi = types.Array(real, 2, "C", readonly=True)
    parameters = [types.Array(f8, 2, "A", readonly=True)] * len(rule.parameters)
    out = (types.Array(real, 2, "C"), types.Array(f8, 1, "C"), types.Array(f8, 2, "C"))
    return compiled.kernel(module, name, *state, Phi, Phi, f8, *parameters, *out)


class Dense(Engine):
    """All of X in one array, moved whole each step."""

    name = "dense"
    takes_rows = False

    def __init__(self, rule: Rule, n: int, K: int, dtype: str) -> None:
        super().__init__(rule, n, K, dtype)
        self.X: NDArray[Any] = np.zeros((K, len(rule.vectors), n), dtype)
        u = Unrolled(rule)
        self._work = np.zeros((K, u.counter + len(u.coefficients) + 2 * u.m + 3))
        self._delta = np.zeros(K)

    def quick(self) -> Any:
        if self.K > 1:
            return None
        return functools.partial(_kernel(self.rule, self.dtype, "learn"), self.X, self.scalars)

    def run(
        self, phi: Features, phi_next: Features, top: float, parameters: Arrays, predictions: NDArray[Any]
    ) -> tuple[int, NDArray[np.float64]]:
        kernel = _kernel(self.rule, self.dtype, "run")
        status = kernel(self.X, self.scalars, phi, phi_next, top, *parameters, predictions, self._delta, self._work)
        return status, self._delta

    def vector(self, r: int) -> NDArray[Any]:
        return self.X[:, r].copy()

    def set_vector(self, r: int, value: NDArray[Any]) -> None:
        self.X[:, r] = value

    def predict(self, phi: Features) -> NDArray[Any]:
        assert isinstance(phi, np.ndarray)
        out: NDArray[Any] = phi @ self.X[:, 0].T
        return out

    def clear_traces(self) -> None:
        self.X[:, len(self.rule.weights) :] = 0.0

    @property
    def nbytes(self) -> int:
        return self.X.nbytes + self.scalars.nbytes + self._work.nbytes
