"""dense: step by step in numba. For one learner one pass over memory a step: the update, and the next step's products.

X is (m, K, n) in the learner's dtype; the rule's scalars are always float64. Cost a step and learner: O(m n) time; m n
numbers of memory. In each step all learners first find their coefficients and only then move, so that if one of them
diverges all stand before that same step. Learners of few features go side by side: see ``wide``.

A step that is probed costs n²/2 more, whatever the number of states. A learner that is frozen costs nothing but what it
leaves to be written down.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from emphatic.engines import compiled, wide
from emphatic.engines.base import UNFIT, Arrays, Engine, Features
from emphatic.engines.text import HUGE, Unrolled, fill
from emphatic.engines.watching import Watch

if TYPE_CHECKING:
    from emphatic.rules import Rule

__all__ = ["Dense"]

_TEXT = '''⟨header⟩
real = np.⟨dtype⟩
zero = real(0)


def as_float(bits):
    """The float of those bits."""
    one = np.empty(1, np.int⟨width⟩)
    one[0] = bits
    return np.float64(one.view(real)[0])


as_float = numba.njit(**OPTIONS)(as_float)


def learn(X, scalars, phi, phi_next, ⟨parameters⟩):
    """One step of one learner; its TD error, or NaN if the step was refused and nothing changed."""
    n = X.shape[2]
    if phi.shape[0] != n or phi_next.shape[0] != n or not (⟨acceptable⟩):
        return np.nan
    k = 0
    ⟨zeros⟩
    norm = zero
    for i in range(n):
        ⟨read⟩
        p = phi[i]; q = phi_next[i]
        ⟨sums⟩
        norm += p * p + q * q
    ⟨products⟩
    top = 1.0 + np.float64(norm)
    top_next = top
    ⟨load⟩
    ⟨decide_one⟩
    if not fine:
        return np.nan
    for i in range(n):
        ⟨read⟩
        p = phi[i]; q = phi_next[i]
        ⟨update⟩
        ⟨write⟩
    ⟨store⟩
    scalars[k, ⟨counter⟩] += 1.0
    return delta


⟨run_narrow⟩


⟨run_wide⟩


def error(goal, theta):
    """The root mean square value error of one learner."""
    n = theta.shape[0]
    square = 0.0
    for i in range(goal.shape[0]):
        h = -goal[i, n]
        for j in range(i, n):
            h += goal[i, j] * theta[j]
        square += h * h
    return np.sqrt(square) if square <= ⟨HUGE⟩ else np.inf


error = numba.njit(**OPTIONS)(error)


def run_many(
    X, scalars, last_delta, learners, frozen, freeze, Phi, Phi_next, top, t0, t1, ⟨all_parameters⟩, predictions,
    goal, errors, every, begin, work
):
    """Steps t0 … t1 − 1 of these learners; −1, or t·K + k if learner k would diverge at step t and may not freeze."""
    K, n = X.shape[1], X.shape[2]
    top_next = top
    keep = predictions.shape[0] > 0
    for t in range(t0, t1):
        if goal.shape[0] > 0 and (t - begin) % every == 0:
            for k in learners:
                errors[(t - begin) // every, k] = error(goal, X[0, k])
        for k in learners:
            ⟨at_t_k⟩
            ⟨zeros⟩
            for i in range(n):
                ⟨read⟩
                p = Phi[t, i]; q = Phi_next[t, i]
                ⟨sums⟩
            ⟨products⟩
            if keep:
                predictions[t, k] = x0
            if frozen[k]:
                continue
            ⟨load⟩
            ⟨decide_many⟩
            if not fine:
                if not freeze:
                    return t * K + k
                frozen[k] = True
                continue
            last_delta[k] = delta
            ⟨keep⟩
        for k in learners:
            if frozen[k]:
                continue
            ⟨recall⟩
            for i in range(n):
                ⟨read⟩
                p = Phi[t, i]; q = Phi_next[t, i]
                ⟨update⟩
                ⟨write⟩
            ⟨store⟩
            scalars[k, ⟨counter⟩] += 1.0
    return -1

'''

_RUN = '''def ⟨name⟩(X, scalars, Phi, Phi_next, bits, bits_next, one_log, ⟨all_parameters⟩, predictions, last_delta):
    """T steps of one learner; −1, t where it would diverge at step t, or UNFIT if φ is not finite."""
    n, T, k = X.shape[2], Phi.shape[0], 0
    keep = predictions.shape[0] > 0
    status = -1
    delta = 0.0
    ⟨load⟩
    ⟨no_products⟩
    ⟨prepare⟩
    for t in range(T):
        ⟨look⟩
        if t == 0:
            ⟨zeros⟩
            for i in range(n):
                ⟨read⟩
                p = Phi[t, i]; q = Phi_next[t, i]
                ⟨sums⟩
            ⟨products⟩
        ⟨tops⟩
        ⟨at_t_k⟩
        ⟨decide_many⟩
        if not fine:
            status = t
            break
        if keep:
            predictions[t, k] = x0
        s = min(t + 1, T - 1)
        ⟨zeros⟩
        for i in range(n):
            ⟨read⟩
            p = Phi[t, i]; q = Phi_next[t, i]
            ⟨update⟩
            ⟨write⟩
            p = Phi[s, i]; q = Phi_next[s, i]
            ⟨sums⟩
        ⟨products⟩
        ⟨carry⟩
        scalars[k, ⟨counter⟩] += 1.0
    ⟨save⟩
    last_delta[k] = delta
    return status'''

# Wide features are looked over a block ahead: that brings them near, faster than the products would. In one log the φ'
# of a step is the φ of the next and need not be looked at twice. Narrow ones come soon enough; their length bounds
# their components, and if one is not finite neither is δ.
_LOOK = """if t == seen:
    seen = min(t + max(1, ⟨block⟩ // n), T)
    most = bits[t, 0] & ⟨mask⟩
    for s in range(t, seen):
        if s == 0 or not one_log:
            for i in range(n):
                most = max(most, bits[s, i] & ⟨mask⟩)
        for i in range(n):
            most = max(most, bits_next[s, i] & ⟨mask⟩)
    if most >= ⟨infinity⟩:
        status = ⟨UNFIT⟩
        break
    top = as_float(most)
    top_next = top"""

# The coefficients of one step. Only when the bounds say that something may overflow is the step tried on X itself.
_DECIDE = """⟨call⟩
⟨bounds⟩
fine = ⟨finite⟩
⟨round⟩
if fine and not (⟨small⟩):
    ⟨no_bounds⟩
    for i in range(n):
        ⟨read⟩
        p = ⟨phi⟩; q = ⟨phi_next⟩
        ⟨update⟩
        ⟨rounded⟩
        if not (⟨new_finite⟩):
            fine = False
        ⟨new_bounds⟩"""

#: From here on learners go side by side, if their features are few.
_SEVERAL = 8
#: Up to here the kernel probes: for more features NumPy's matrix product of all learners at once is quicker.
_PROBED = 64
#: Steps after which those that have been frozen are left out.
_STEPS = 4096
#: From here on features are looked over ahead of the steps.
_WIDE = 256
#: How many components of φ are looked over ahead: half of a common second-level cache.
_BLOCK = 1 << 16


def source(rule: Rule, dtype: str) -> str:
    """The text of this rule's kernels."""
    u = Unrolled(rule)
    R = u.vectors
    limit = float(np.finfo(dtype).max)
    integer = np.dtype(f"i{np.dtype(dtype).itemsize}")
    infinity = int(np.array(np.inf, dtype).view(integer))
    products, unused = u.products()
    uses_next = any(u.B[r][1] != 0.0 for r in R)
    with_length = [name for name in products + unused if name in products or name in ("pp", "qq")[: 1 + uses_next]]
    terms = {"x": "z{r} * p", "y": "z{r} * q", "pp": "p * p", "pq": "p * q", "qq": "q * q"}
    kept = u.results() + u.coefficients

    def zeros(names: list[str]) -> list[str]:
        return [f"sum_{name} = zero" for name in names]

    def sums(names: list[str]) -> list[str]:
        return [f"sum_{name} += {terms[name.rstrip('0123456789')].format(r=name[1:])}" for name in names]

    def results(names: list[str]) -> list[str]:
        rest = [name for name in products + unused if name not in names]
        return [f"{name} = np.float64(sum_{name})" for name in names] + [f"{name} = 0.0" for name in rest]

    def run(name: str, names: list[str], prepare: list[str], look: str, tops: list[str]) -> list[str]:
        parts = {"zeros": zeros(names), "sums": sums(names), "products": results(names)}
        return fill(_RUN, name=name, prepare=prepare, look=look.split("\n"), tops=tops, **parts).split("\n")

    return fill(
        _TEXT,
        run_narrow=run("run", with_length, ["pass"], "pass", ["top, top_next = 1.0 + pp, 1.0 + qq"]),
        run_wide=run("run_wide", products, ["seen, top, top_next = 0, 0.0, 0.0"], _LOOK, ["pass"]),
        decide_one=fill(_DECIDE, phi="phi[i]", phi_next="phi_next[i]").split("\n"),
        decide_many=fill(_DECIDE, phi="Phi[t, i]", phi_next="Phi_next[t, i]").split("\n"),
        header=u.header(),
        dtype=dtype,
        width=str(8 * integer.itemsize),
        mask=str(np.iinfo(integer).max),
        infinity=str(infinity),
        block=str(_BLOCK),
        UNFIT=str(UNFIT),
        HUGE=repr(HUGE),
        counter=str(u.counter),
        parameters=", ".join(rule.parameters),
        all_parameters=", ".join(f"all_{name}" for name in rule.parameters),
        at_t_k=[f"{name} = all_{name}[t, k]" for name in rule.parameters],
        acceptable=u.acceptable(),
        # Sums are in the learner's dtype, what is made of them in float64.
        zeros=zeros(products),
        sums=sums(products),
        products=results(products),
        no_products=[f"{name} = 0.0" for name in products + unused],
        load=u.load(),
        call=u.call(),
        bounds=u.bounds(),
        finite=u.finite(),
        round=[f"{name} = real({u.excess(name)})" for name in u.coefficients],
        small=u.small(limit),
        read=[f"z{r} = X[{r}, k, i]" for r in R],
        update=["; ".join(f"v{r} = {u.row(r, excess=True)}" for r in R), "; ".join(f"z{r} = v{r}" for r in R)],
        write=[f"X[{r}, k, i] = z{r}" for r in R],
        no_bounds=[f"size_next{r} = 0.0" for r in R],
        rounded=[f"v{r} = abs(np.float64(real(z{r})))" for r in R],
        new_finite=" and ".join(f"v{r} <= {limit!r}" for r in R),
        new_bounds=[f"size_next{r} = max(size_next{r}, v{r})" for r in R],
        carry=[f"{old} = {new}" for old, new in zip(u.remembered(), u.results(), strict=True)],
        save=[f"scalars[k, {i}] = {name}" for i, name in enumerate(u.remembered())],
        store=[f"scalars[k, {i}] = {name}" for i, name in enumerate(u.results())],
        keep=[f"work[k, {i}] = {name}" for i, name in enumerate(kept)],
        recall=[f"{name} = {'real' if name in u.coefficients else ''}(work[k, {i}])" for i, name in enumerate(kept)],
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
    bits = types.Array(getattr(types, f"int{real.bitwidth}"), 2, "C", readonly=True)
    parameters = [types.Array(f8, 2, "A", readonly=True)] * len(rule.parameters)
    out = [types.Array(real, 2, "C"), types.Array(f8, 1, "C")]
    if name in ("run", "run_wide"):
        return compiled.kernel(module, name, *state, Phi, Phi, bits, bits, types.boolean, *parameters, *out)
    i8, table = types.int64, types.Array(f8, 2, "C")
    who = (types.Array(i8, 1, "C"), types.Array(types.boolean, 1, "C"), types.boolean)
    return compiled.kernel(
        module, name, *state, out[1], *who, Phi, Phi, f8, i8, i8, *parameters, out[0], table, table, i8, i8, table
    )


class Dense(Engine):
    """All of X in one array, moved whole each step."""

    name = "dense"
    takes_rows = False

    def __init__(self, rule: Rule, n: int, K: int, dtype: str) -> None:
        super().__init__(rule, n, K, dtype)
        self.X: NDArray[Any] = np.zeros((len(rule.vectors), K, n), dtype)
        self._work = np.zeros((K, self.scalars.shape[1] + len(Unrolled(rule).coefficients)))
        self._delta = np.zeros(K)

    @property
    def looks_over(self) -> bool:
        return self.K == 1

    def quick(self) -> Any:
        if self.K > 1:
            return None
        return functools.partial(_kernel(self.rule, self.dtype, "learn"), self.X, self.scalars)

    def quick_predict(self) -> Any:
        if self.K > 1:
            return None
        theta = self.X[0, 0]
        return lambda phi: float(phi @ theta) if phi.shape == theta.shape else np.nan

    def run(
        self, phi: Features, phi_next: Features, top: float, parameters: Arrays, predictions: NDArray[Any]
    ) -> tuple[int, NDArray[np.float64]]:
        assert isinstance(phi, np.ndarray)
        assert isinstance(phi_next, np.ndarray)
        if self.K == 1:
            bits = [part.view(f"i{part.itemsize}") for part in (phi, phi_next)]
            one_log = phi_next.ctypes.data == phi.ctypes.data + phi.strides[0]
            kernel = _kernel(self.rule, self.dtype, "run_wide" if self.n >= _WIDE else "run")
            status = kernel(self.X, self.scalars, phi, phi_next, *bits, one_log, *parameters, predictions, self._delta)
            return status, self._delta
        return self._run_many(phi, phi_next, top, parameters, predictions, Watch(np.zeros(self.K, bool))), self._delta

    def run_watched(
        self, phi: Features, phi_next: Features, top: float, parameters: Arrays, predictions: NDArray[Any], watch: Watch
    ) -> int:
        assert isinstance(phi, np.ndarray)
        assert isinstance(phi_next, np.ndarray)
        if (self.K == 1 and watch.probe is None) or (self.n > _PROBED and watch.probe is not None):
            return super().run_watched(phi, phi_next, top, parameters, predictions, watch)
        if self.K == 1 and len(phi):  # its features may not have been looked over
            top = float(max(np.abs(phi).max(), np.abs(phi_next).max()))
            if not top <= HUGE:
                return UNFIT
        return self._run_many(phi, phi_next, top, parameters, predictions, watch)

    def _run_many(
        self, phi: NDArray[Any], phi_next: NDArray[Any], top: float, parameters: Arrays, predictions: NDArray[Any],
        watch: Watch,
    ) -> int:  # fmt: skip
        T, given = len(phi), (phi, phi_next, top, parameters, predictions, watch)
        few = self.n <= wide.MOST_FEATURES and self.K >= _SEVERAL
        steps = wide.stepper(self.rule, (self.X, self.scalars, self._delta), *given) if few else None
        size = wide.STEPS if few else _STEPS
        moving, standing = np.flatnonzero(~watch.frozen), np.flatnonzero(watch.frozen)
        for t0 in range(0, T, size):
            t1 = min(t0 + size, T)
            if len(standing):
                self._stand_still(standing, t0, t1, phi, predictions, watch)
            before = None if watch.freeze or steps is None else (self.X.copy(), self.scalars.copy())
            unsure = moving if steps is None else steps(moving, t0, t1)
            if not len(unsure):
                continue
            if before is not None:  # all are to stand before the same step
                (self.X[:], self.scalars[:]), unsure = before, moving
            # Where something may overflow, step by step says exactly where.
            status = self._step_by_step(unsure, t0, t1, *given)
            if status != -1:
                return status
            if watch.frozen[unsure].any():
                moving, standing = np.flatnonzero(~watch.frozen), np.flatnonzero(watch.frozen)
        return -1

    def _step_by_step(
        self, learners: NDArray[np.int64], t0: int, t1: int, phi: NDArray[Any], phi_next: NDArray[Any], top: float,
        parameters: Arrays, predictions: NDArray[Any], watch: Watch,
    ) -> int:  # fmt: skip
        goal = np.empty((0, 0)) if watch.probe is None else watch.probe.R
        status: int = _kernel(self.rule, self.dtype, "run_many")(
            self.X, self.scalars, self._delta, learners, watch.frozen, watch.freeze, phi, phi_next, top, t0, t1,
            *parameters, predictions, goal, watch.errors, watch.every, watch.first, self._work,
        )  # fmt: skip
        return status

    def _stand_still(
        self, ks: NDArray[np.int64], t0: int, t1: int, phi: NDArray[Any], predictions: NDArray[Any], watch: Watch
    ) -> None:
        """What learners that do not move predict, and how far they are off, at steps t0 … t1 − 1."""
        theta = self.X[0, ks]
        if len(predictions):
            with np.errstate(all="ignore"):  # the last weights are finite, what they predict need not be
                predictions[t0:t1, ks] = phi[t0:t1] @ theta.T
        if watch.probe is not None:
            rows = slice(*(-(-(t - watch.first) // watch.every) for t in (t0, t1)))
            watch.errors[rows, ks] = watch.probe(theta)

    def vector(self, r: int) -> NDArray[Any]:
        return np.array(self.X[r])

    def view(self, r: int) -> NDArray[Any]:
        out: NDArray[Any] = self.X[r]
        return out

    def place(self, ks: NDArray[np.int64], part: Any) -> None:
        self.X[:, ks], self.scalars[ks] = part.X, part.scalars

    def set_vector(self, r: int, value: NDArray[Any]) -> None:
        self.X[r] = value

    def predict(self, phi: Features) -> NDArray[Any]:
        assert isinstance(phi, np.ndarray)
        out: NDArray[Any] = phi @ self.X[0].T
        return out

    def clear_traces(self) -> None:
        self.X[len(self.rule.weights) :] = 0.0

    @property
    def nbytes(self) -> int:
        return self.X.nbytes + self.scalars.nbytes + self._work.nbytes
