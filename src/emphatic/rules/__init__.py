"""Rules: WHAT is learned.  One short file an algorithm, scalars only.

Every linear TD algorithm keeps a few vectors X (θ, e, perhaps w, …) and, each step, does

    X ← A X + B [φ ; φ']            A is m×m, B is m×2, both made of scalars.

A rule is the one pure function that makes those scalars:

    A, B, memory = function(step, memory, x, x_next, g)

    step    (alpha, I, lambda_, rho, gamma_next, delta, *extra)     δ = R + γ'θ·φ' − θ·φ comes from the engine
    memory  the remembered scalars, all 0 at the start and after ``cut``
    x       X·φ,  one inner product a vector, before the update
    x_next  X·φ', the same
    g       (φ·φ, φ·φ', φ'·φ')

Weights (θ, w) come before traces in X, and A is an *arrow*: a weight scales itself and takes multiples of the
traces, a trace scales only itself, and only weights take φ'. Products of two vectors (e·w) are memory, with
recursions in x, x_next and g; no memory depends on the value of θ, so θ may be set at any time.

The same Python source is run by NumPy, compiled by numba and by Triton, so it holds only literals, + − * /,
two-argument ``min`` and ``max``, and comparisons used as factors. A compiler that has its own ``min`` and ``max``
is given the same code with other globals; Triton also looks up the names in the annotations there.
"""

from __future__ import annotations

import functools
import importlib
import math
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["RANGES", "STEP", "Rule", "Scalars", "Update", "get", "names"]

Scalars = tuple[Any, ...]
Update = tuple[tuple[Scalars, ...], tuple[Scalars, ...], Scalars]

#: What ``step`` holds before a rule's extra parameters.
STEP = ("alpha", "I", "lambda_", "rho", "gamma_next", "delta")

#: The least and the largest value each parameter may have; any finite number where none is given.
RANGES = {
    "alpha": (0.0, math.inf),
    "I": (0.0, math.inf),
    "lambda_": (0.0, 1.0),
    "rho": (0.0, math.inf),
    "gamma_next": (0.0, 1.0),
    "beta": (0.0, math.inf),
    "eta": (0.0, math.inf),
    "lambda_next": (0.0, 1.0),
    "kappa": (0.0, math.inf),
    "pi": (0.0, 1.0),
    "mu": (math.ulp(0.0), 1.0),  # an action that was taken had a chance
    "xi": (0.0, math.inf),
}

_NAMES = (
    "td",
    "true_online_td",
    "etd",
    "etd_beta",
    "true_online_etd",
    "true_online_etd_beta",
    "gtd",
    "gtd2",
    "true_online_gtd",
    "htd",
    "proximal_gtd2",
    "tdrc",
    "gq",
    "tree_backup",
    "vtrace",
    "abtd",
)


def names() -> tuple[str, ...]:
    """The rules that ship with the library.

    >>> "true_online_etd" in names()
    True
    """
    return _NAMES


def get(name: str) -> Rule:
    """The rule of that name: ``rule`` in the module ``emphatic.rules.<name>``."""
    if not isinstance(name, str) or name not in _NAMES:
        raise ValueError(f"The 'rule' parameter must be one of {', '.join(_NAMES)}. Got {name!r} instead.")
    rule: Rule = importlib.import_module(f"emphatic.rules.{name}").rule
    return rule


@dataclass(frozen=True)
class Rule:
    """An algorithm: the names of what it keeps, and its one function.

    ``defaults`` says what an extra parameter is where it is not given: a number, the value of another parameter, or
    "eta": the second step size β = eta·α, with eta another keyword (1 unless given). A rule without ``interest``
    accepts only I = 1.
    """

    name: str
    function: Callable[[Scalars, Scalars, Scalars, Scalars, Scalars], Update]
    weights: tuple[str, ...]
    traces: tuple[str, ...]
    memory: tuple[str, ...]
    extra: tuple[str, ...] = ()
    defaults: Mapping[str, float | str] = field(default_factory=dict, hash=False)
    interest: bool = True
    paper: str = ""

    @functools.cached_property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """The least and the largest value of each parameter."""
        free = (-math.inf, math.inf)
        found = {name: RANGES.get(name, free) for name in self.parameters}
        return found if self.interest else found | {"I": (1.0, 1.0)}

    @property
    def parameters(self) -> tuple[str, ...]:
        """What a step brings: ``step``'s names with the cumulant R in place of δ."""
        return tuple("R" if name == "delta" else name for name in STEP) + self.extra

    @property
    def vectors(self) -> tuple[str, ...]:
        """The rows of X: weights first, then traces."""
        return self.weights + self.traces

    @functools.cached_property
    def form(self) -> tuple[tuple[tuple[float | None, ...], ...], tuple[tuple[float | None, ...], ...]]:
        """The structure of A and B: a literal entry is its value (0.0 or 1.0), a computed one is None."""
        A, B, _ = self._traced[0]
        A0 = tuple(tuple(_literal(a) for a in row) for row in A)
        B0 = tuple(tuple(_literal(b) for b in row) for row in B)
        m, first = len(self.vectors), len(self.weights)
        for r in range(m):
            for c in range(m):
                if r != c and A0[r][c] != 0.0 and not r < first <= c:
                    raise ValueError(
                        f"Rule {self.name!r} is not an arrow: {self.vectors[r]} takes {self.vectors[c]}; only a "
                        "weight may take a trace."
                    )
            if r >= first and B0[r][1] != 0.0:
                raise ValueError(f"Rule {self.name!r} is not an arrow: the trace {self.vectors[r]} takes φ'.")
        return A0, B0

    @functools.cached_property
    def products(self) -> tuple[tuple[bool, ...], tuple[bool, ...], tuple[bool, ...]]:
        """Which of x, x_next and g an engine needs: what the function uses, and θ·φ and θ·φ' for δ."""
        _, _, x, x_next, g = self._traced[1]
        return (True, *x[1:]), (True, *x_next[1:]), g

    @functools.cached_property
    def uses(self) -> tuple[str, ...]:
        """The parameters of a step that the function looks at; R, of which δ is made, among them."""
        return tuple(name for name, used in zip(self.parameters, self._traced[1][0], strict=True) if used)

    @functools.cached_property
    def _traced(self) -> tuple[Update, list[tuple[bool, ...]]]:
        """What the function returns for computed scalars, and which of its arguments' scalars it used."""
        m = len(self.vectors)
        counts = (len(STEP) + len(self.extra), len(self.memory), m, m, 3)
        arguments = [tuple(_Computed() for _ in range(count)) for count in counts]
        either: dict[str, Any] = {"min": _Computed.either, "max": _Computed.either}
        update: Update = types.FunctionType(self.function.__code__, either)(*arguments)
        for part in (*update[0], *update[1], update[2]):
            _Computed.either(*part)  # what is returned as it came is used too
        return update, [tuple(scalar.used for scalar in group) for group in arguments]


class _Computed:
    """Stands for any computed scalar: every operation on it gives a computed scalar again, and marks it as used."""

    used = False

    def _same(self, *_: object) -> _Computed:
        return self.either(self, *_)

    @staticmethod
    def either(*operands: object) -> _Computed:
        for operand in operands:
            if isinstance(operand, _Computed):
                operand.used = True
        return _Computed()

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _same
    __truediv__ = __rtruediv__ = __neg__ = __lt__ = __gt__ = __le__ = __ge__ = _same


def _literal(value: object) -> float | None:
    return value if isinstance(value, float) else None
