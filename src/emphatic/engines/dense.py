"""dense: step by step in numba, two passes over memory a step: the inner products, then the update.

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
    ⟨look⟩
    top = 1.0 + pp + qq
    ⟨decide⟩
    ⟨move⟩
    ⟨store⟩
    return delta


def run(X, scalars, Phi, Phi_next, top, ⟨all_parameters⟩, predictions, last_delta, work):
    """T steps of K learners; −1, or t·K + k where learner k would diverge at step t."""
    K, n = X.shape[0], X.shape[2]
    keep = predictions.shape[0] > 0
    for t in range(Phi.shape[0]):
        phi = Phi[t]
        phi_next = Phi_next[t]
        for k in range(K):
            refused = t * K + k
            ⟨at_t_k⟩
            ⟨look⟩
            ⟨decide⟩
            if keep:
                predictions[t, k] = x0
            last_delta[k] = delta
            kept = work[k]
            ⟨keep⟩
        for k in range(K):
            ⟨vectors⟩
            row = scalars[k]
            kept = work[k]
            ⟨recall⟩
            ⟨move⟩
            ⟨store⟩
    return -1
'''

_LOOK = """⟨vectors⟩
⟨zeros⟩
for i in range(n):
    p = phi[i]; q = phi_next[i]
    ⟨sums⟩
⟨products⟩"""

_DECIDE = """row = scalars[k]
⟨load⟩
⟨call⟩
⟨bounds⟩
if not (⟨finite⟩):
    return refused
⟨round⟩
if not (⟨small⟩):
    ⟨trial_bounds⟩
    for i in range(n):
        p = phi[i]; q = phi_next[i]
        ⟨components⟩
        ⟨trial⟩
        if not (⟨trial_finite⟩):
            return refused
        ⟨trial_sizes⟩"""

_MOVE = """for i in range(n):
    p = phi[i]; q = phi_next[i]
    ⟨components⟩
    ⟨update⟩"""


def source(rule: Rule, dtype: str) -> str:
    """The text of this rule's kernels."""
    u = Unrolled(rule)
    R = u.vectors
    limit = float(np.finfo(dtype).max)
    # Results first, as they lie in the learner's row of scalars, then the coefficients.
    kept = u.results() + u.coefficients
    return fill(
        _TEXT,
        look=_LOOK.split("\n"),
        decide=_DECIDE.split("\n"),
        move=_MOVE.split("\n"),
        header=u.header(),
        dtype=dtype,
        parameters=", ".join(rule.parameters),
        all_parameters=", ".join(f"all_{name}" for name in rule.parameters),
        at_t_k=[f"{name} = all_{name}[t, k]" for name in rule.parameters],
        acceptable=u.acceptable(),
        vectors=[f"X{r} = X[k, {r}]" for r in R],
        zeros=[*(f"x_{r} = zero; y_{r} = zero" for r in R), "pp_ = zero; pq_ = zero; qq_ = zero"],
        sums=[*(f"x_{r} += X{r}[i] * p; y_{r} += X{r}[i] * q" for r in R), "pp_ += p * p; pq_ += p * q; qq_ += q * q"],
        products=[*(f"{v}{r} = np.float64({v}_{r})" for r in R for v in "xy"),
                  *(f"{v} = np.float64({v}_)" for v in ("pp", "pq", "qq"))],
        load=u.load(),
        call=u.call(),
        bounds=u.bounds(),
        finite=u.finite(),
        round=[f"{name} = real({name})" for name in u.coefficients],
        small=u.small(limit),
        components=[f"z{r} = X{r}[i]" for r in R],
        trial_bounds=[f"size_next{r} = 0.0" for r in R],
        trial=[f"v{r} = abs(np.float64(real({u.row(r)})))" for r in R],
        trial_finite=" and ".join(f"v{r} <= {limit!r}" for r in R),
        trial_sizes=[f"size_next{r} = max(size_next{r}, v{r})" for r in R],
        keep=[f"kept[{i}] = {name}" for i, name in enumerate(kept)],
        recall=[f"{name} = {f'kept[{i}]' if i < u.counter else f'real(kept[{i}])'}" for i, name in enumerate(kept)],
        update=[f"X{r}[i] = {u.row(r)}" for r in R],
        store=u.store(),
    )  # fmt: skip


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
        self._work = np.zeros((K, u.counter + len(u.coefficients)))
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
