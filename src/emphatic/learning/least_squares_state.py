"""The state of least squares: its matrices and sums; shown, copied and saved."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from emphatic.common.guard import Guard
from emphatic.learning import checkpoint, inputs, restoring
from emphatic.learning.tensors import Stored, TensorPart

__all__ = ["LIMIT", "LeastSquaresState"]

Array = NDArray[np.float64]

#: The most features, unless another limit is given: two matrices of 4,000² take 256 MB, and a step about 0.1 s.
LIMIT = 4000
#: P and θ are computed directly after so many steps, or two for each feature: it adds little to the cost of a step.
_PERIOD = 512
#: The least that forgetting leaves of the ridge.
_LEFT = 1e-12
#: Prefix of the names of arrays that a user saves with a learner.
_MORE = "more."
#: The arrays of the state, in the order of ``_arrays``.
_COMMON = ("Pb", "Pe", "phi_next")
_ARRAYS = ("forgetting", "ridge", "A", "P", "b", "theta", "e", "memory", "frozen", "steps_taken")


class LeastSquaresState:
    """The matrices, sums and traces of K learners; see ``LeastSquares``, which learns."""

    def __init__(
        self,
        n: int,
        K: int | None = None,
        *,
        emphatic: bool = False,
        forgetting: float | ArrayLike = 1.0,
        ridge: float | ArrayLike = 1.0,
        limit: int = LIMIT,
    ) -> None:
        n, limit = inputs.whole("n", n, "LeastSquares"), inputs.whole("limit", limit, "LeastSquares")
        self._K = None if K is None else inputs.whole("K", K, "LeastSquares")
        if not isinstance(emphatic, bool):
            raise inputs.refusal("emphatic", "LeastSquares", "be True or False", repr(emphatic))
        if n > limit:
            needs = f"{16 * n * n / 1e9:,.1f} GB for each matrix"
            wanted = f"be at most {limit:,}: it takes n² memory and time, {needs}. Use a Learner, or give a limit"
            raise inputs.refusal("n", "LeastSquares", wanted, f"{n:,}")
        self.n, self.emphatic, self.limit = n, emphatic, limit
        given = {
            "forgetting": _option("forgetting", forgetting, self._K, 1.0),
            "ridge": _option("ridge", ridge, self._K, inputs._LARGEST),
        }
        count, G = self._K or 1, max(map(len, given.values()))
        self._forgetting, self._ridge = (np.array(np.broadcast_to(p, G)) for p in given.values())
        self._A, self._P = np.zeros((G, n, n)), np.zeros((G, n, n))
        for g in range(G):
            np.fill_diagonal(self._A[g], self._ridge[g])
            with np.errstate(over="ignore"):  # beyond 1e308 the first step solves directly
                np.fill_diagonal(self._P[g], 1.0 / self._ridge[g])
        self._b, self._theta = np.zeros((count, n)), np.zeros((count, n))
        self._e, self._memory = np.zeros((G, n)), np.zeros((G, 2))
        #: Of learners with a matrix in common: Pb, Pe and φ' of the last step.
        self._Pb, self._Pe, self._phi_next = (np.zeros(shape) for shape in ((0, n), (0, n), (0,)))
        self._frozen, self._delta = np.zeros(G, bool), np.zeros(count)
        self._taken = np.zeros(count, np.int64)
        self._steps = 0
        self._period = max(_PERIOD, 2 * n)
        if (least := float(self._forgetting.min())) < 1.0:
            self._period = max(1, min(self._period, int(math.log(_LEFT) / math.log(least))))
        self._guard = Guard("learner")

    # ------------------------------------------------------------------ what it is

    @property
    def K(self) -> int | None:
        """The number of learners; None for one without the K axis."""
        return self._K

    @property
    def theta(self) -> Array:
        """θ = A⁻¹b, (n,) or (K, n): a copy."""
        return self._first(self._theta)

    @property
    def b(self) -> Array:
        """b, (n,) or (K, n): a copy."""
        return self._first(self._b)

    @property
    def A(self) -> Array:
        """A, with the ridge: (n, n), or (K, n, n): a copy."""
        return self._of_each(self._A) - self._open() if self._is_common else self._of_each(self._A)

    @property
    def e(self) -> Array:
        """The trace, (n,) or (K, n)."""
        return self._of_each(self._e)

    @property
    def steps(self) -> int:
        """The steps so far."""
        return self._steps

    @property
    def steps_taken(self) -> Any:
        """The steps that each learner has learned from, (K,): fewer for one that was frozen."""
        return int(self._taken[0]) if self._K is None else self._taken.copy()

    @property
    def frozen(self) -> Any:
        """Which learners are frozen because they would have diverged, (K,)."""
        frozen = np.broadcast_to(self._frozen, self._K or 1)
        return bool(frozen[0]) if self._K is None else frozen.copy()

    @property
    def matrices(self) -> int:
        """1 where one matrix serves all learners, else K."""
        return len(self._A)

    @property
    def nbytes(self) -> int:
        """The size of the state in bytes."""
        return sum(array.nbytes for array in self._arrays().values())

    def __repr__(self) -> str:
        K = "" if self._K is None else f", K={self._K}"
        return f"LeastSquares(n={self.n}{K}, emphatic={self.emphatic}, steps={self._steps})"

    # ------------------------------------------------------------------ copying and saving

    def copy(self) -> Self:
        """Another learner in the same state."""
        with self._guard.shared:
            other = object.__new__(type(self))
            vars(other).update(vars(self) | {f"_{name}": array.copy() for name, array in self._state().items()})
            other._delta, other._guard = self._delta.copy(), Guard("learner")
            return other

    __copy__ = copy

    def __deepcopy__(self, memo: object) -> Self:
        return self.copy()

    def save(self, path: str | os.PathLike[str], **more: Any) -> None:
        """Write one safetensors file, which ``emphatic.load`` and other tools can open, completely or not at all.

        ``more`` is saved with it, for ``load_with``: arrays as arrays, other values as JSON in the header.
        """
        with self._guard.shared:
            header = {"n": self.n, "K": self._K, "emphatic": self.emphatic, "limit": self.limit, "steps": self._steps}
            arrays = self._arrays()
            entries, kept = restoring.pack(more, _MORE, (*arrays, "format", "least_squares"))
            parts = {name: TensorPart.of(array) for name, array in arrays.items()}
            checkpoint.write(path, {"least_squares": header, "more": entries}, parts | kept)

    @classmethod
    def load_with(cls, path: str | os.PathLike[str]) -> tuple[Self, dict[str, Any]]:
        """The learner that ``save`` wrote, and the ``more`` that was saved with it."""
        with restoring.open_checkpoint(path) as (header, stored):
            if "least_squares" not in header:
                raise ValueError("it does not hold a LeastSquares; emphatic.load opens other learners")
            return cls._restored(header["least_squares"], stored), restoring.unpack(header["more"], stored, _MORE)

    @classmethod
    def _restored(cls, header: Mapping[str, Any], stored: Mapping[str, Stored]) -> Self:
        """From an open checkpoint; ValueError, KeyError or TypeError if it is invalid."""
        G = stored["forgetting"].shape
        if len(G) != 1 or G[0] not in (1, header["K"] or 1) or any(stored[name].shape[:1] != G for name in ("A", "P")):
            raise ValueError("its matrices are neither one nor one for each learner")
        options = {
            name: found if len(found := stored[name].array()) > 1 else found[0] for name in ("forgetting", "ridge")
        }
        learner = cls(header["n"], header["K"], emphatic=header["emphatic"], limit=header["limit"], **options)
        if len(learner._A) < G[0]:
            learner._split()
        if "phi_next" in stored:
            if G[0] != 1:
                raise ValueError("it has both a matrix in common and one for each learner")
            learner._share()
        for name, own in learner._arrays().items():
            held = stored[name]
            if (held.dtype, held.shape) != (own.dtype.name, own.shape):
                raise ValueError(f"its {name!r} is {held.dtype} of shape {held.shape}")
            held.into(own)
            if name not in ("P", "Pb", "Pe") and not np.isfinite(own).all():
                raise ValueError(f"its {name!r} is not finite")
        steps = header["steps"]
        if not (type(steps) is int and 0 <= learner._taken.min() <= learner._taken.max() <= steps):
            raise ValueError(f"its counts of steps are not from 0 to {steps!r}")
        learner._steps = steps
        return learner

    # ------------------------------------------------------------------ inside

    def _state(self) -> dict[str, NDArray[Any]]:
        """The arrays that change, by the names of their attributes."""
        names = ("forgetting", "ridge", "A", "P", "b", "theta", "e", "memory", "frozen", "taken")
        return {name: getattr(self, f"_{name}") for name in (*names, *(_COMMON if self._is_common else ()))}

    def _arrays(self) -> dict[str, NDArray[Any]]:
        """The same as files name and hold them."""
        arrays = [array.view(np.uint8) if array.dtype == bool else array for array in self._state().values()]
        return dict(zip((*_ARRAYS, *(_COMMON if self._is_common else ())), arrays, strict=True))

    def _first(self, array: Array) -> Array:
        return np.array(array[0] if self._K is None else array)

    def _of_each(self, array: Array) -> Array:
        """Of each learner, from what each matrix has."""
        return np.array(array[0]) if self._K is None else np.array(np.broadcast_to(array, (self._K, *array.shape[1:])))

    def _without_K(self, array: Array) -> Array:
        return array[:, 0] if self._K is None else array

    @property
    def _is_common(self) -> bool:
        """Whether learners with γ and traces of their own have S = A + γ' e φ'ᵀ in common."""
        return len(self._phi_next) > 0

    def _open(self) -> Array:
        """γ' e φ'ᵀ of each learner with a matrix in common, (K, n, n)."""
        return (self._memory[:, :1] * self._e)[:, :, None] * self._phi_next

    def _share(self) -> None:
        """Before the first step: what learners with λ = 1 need beside a matrix in common."""
        count = self._K or 1
        self._e, self._memory = np.zeros((count, self.n)), np.zeros((count, 2))
        self._Pb, self._Pe, self._phi_next = np.zeros((count, self.n)), np.zeros((count, self.n)), np.zeros(self.n)

    def _split(self) -> None:
        """Give each learner its own matrix, as it is now."""
        common, K = self._is_common, self._K or 1
        for name in ("forgetting", "ridge", "A", "P", "frozen", *(() if common else ("e", "memory"))):
            shared = getattr(self, f"_{name}")
            setattr(self, f"_{name}", np.repeat(shared, K, axis=0))
        if common:
            self._A -= self._open()
            with np.errstate(all="ignore"):  # where A is singular P is not finite, and the next step solves directly
                rest = 1.0 - self._memory[:, 0] * (self._Pe @ self._phi_next)
                along = self._memory[:, :1] * (self._phi_next @ self._P[0]) / rest[:, None]
                self._P += self._Pe[:, :, None] * along[:, None]
            self._Pb, self._Pe, self._phi_next = (np.zeros(shape) for shape in ((0, self.n), (0, self.n), (0,)))


def _option(name: str, value: Any, K: int | None, most: float) -> Array:
    """A positive number, or one for each learner, as (1,) or (K,)."""
    array = np.asarray(inputs.numbers(name, value, "LeastSquares"), np.float64)
    each = "a number" if K is None else f"a number or {K} numbers"
    if array.shape not in ((), (K,)) or not ((array > 0.0) & (array <= most)).all():
        wanted = f"be {each} greater than 0" + (" and at most 1" if most == 1.0 else ", and finite")
        raise inputs.refusal(name, "LeastSquares", wanted, repr(value))
    return array.reshape(-1)
