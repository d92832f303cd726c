"""The pieces of a kernel's source that depend on the rule, with every loop over vectors written out.

Written out, LLVM sees scalars instead of small arrays, and the structural zeros of A and B (which it may not drop
by itself: 0·∞ is not 0) are simply not there. Names in the text, for vectors r, c and memory i:

    a{r}{c}, b{r}, d{r}     the computed entries of A, and of B for φ and φ'
    x{r}, y{r}              X_r·φ and X_r·φ'
    f{i}, new{i}            memory before and after the step
    size{r}                 a bound on max |X_r|;  size_next{r} after the step
    top, top_next           a bound on max |φ| and max |φ'|

A weight that scales itself (tdrc's w, by 1 − βκ) does so by a number near 1, of which a float32 keeps little of what
matters. Where coefficients are rounded, ``excess`` makes a{r}{r} what it has over 1, and the update adds that times
X_r to X_r.

The bound is what finds divergence without looking at n numbers: |X_r| grows by no more than the coefficients say.
Only when it nears the end of the number range are the numbers themselves tried.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterable

from emphatic.rules import Rule

__all__ = ["HUGE", "Unrolled", "fill"]

#: The largest float64. ``abs(v) <= HUGE`` is the one test for a finite number that survives fastmath.
HUGE = 1.7976931348623157e308


def fill(template: str, **parts: str | list[str]) -> str:
    """The template with its ⟨parts⟩: text within a line, or a block of lines, which takes the indent of its place."""
    for name, part in parts.items():
        if isinstance(part, str):
            template = template.replace(f"⟨{name}⟩", part)
        else:
            for place in set(re.findall(rf"^( *)⟨{name}⟩$", template, re.M)):
                block = textwrap.indent("\n".join(part), place)
                template = re.sub(rf"^{place}⟨{name}⟩$", block.replace("\\", r"\\"), template, flags=re.M)
    return template


class Unrolled:
    """What a kernel's text needs to know of a rule."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.A, self.B = rule.form
        self.m, self.M, self.w = len(rule.vectors), len(rule.memory), len(rule.weights)
        self.vectors = range(self.m)
        #: Where a learner's row of scalars holds memory, bounds and the count of steps.
        self.counter = self.M + self.m
        self.coefficients = [
            name
            for r in self.vectors
            for name, entry in (
                *((f"a{r}{c}", self.A[r][c]) for c in self.vectors),
                (f"b{r}", self.B[r][0]),
                (f"d{r}", self.B[r][1]),
            )
            if entry is None
        ]
        #: Those by which a weight scales itself.
        self.scales = {f"a{r}{r}" for r in range(self.w) if self.A[r][r] is None}

    def header(self) -> str:
        """Imports and the rule itself, as every generated module begins."""
        source = textwrap.dedent(inspect.getsource(self.rule.function))
        return (
            "from __future__ import annotations\n\nimport numba\nimport numpy as np\n\n"
            "from emphatic.engines.compiled import OPTIONS\n\n\n"
            f"{source}\n\nrule = numba.njit(inline='always', **OPTIONS)({self.rule.function.__name__})\n"
        )

    def products(self) -> tuple[list[str], list[str]]:
        """The inner products that the rule uses, and those that it does not."""
        x, y, g = self.rule.products
        pairs = [(f"x{r}", x[r]) for r in self.vectors] + [(f"y{r}", y[r]) for r in self.vectors]
        pairs += zip(("pp", "pq", "qq"), g, strict=True)
        return [name for name, used in pairs if used], [name for name, used in pairs if not used]

    def remembered(self) -> list[str]:
        """What a learner's row of scalars holds: memory, then bounds."""
        return [f"f{i}" for i in range(self.M)] + [f"size{r}" for r in self.vectors]

    def results(self) -> list[str]:
        """The same after a step."""
        return [f"new{i}" for i in range(self.M)] + [f"size_next{r}" for r in self.vectors]

    def load(self) -> list[str]:
        """Memory and bounds from the learner's row of scalars."""
        return [f"{name} = scalars[k, {i}]" for i, name in enumerate(self.remembered())]

    def call(self) -> list[str]:
        """δ, then A, B and the new memory from the rule."""
        names = set(self.coefficients)
        A = _tuple(_tuple(_known(f"a{r}{c}", names) for c in self.vectors) for r in self.vectors)
        B = _tuple(_tuple((_known(f"b{r}", names), _known(f"d{r}", names))) for r in self.vectors)
        step = _tuple("delta" if name == "R" else name for name in self.rule.parameters)
        memory, new = (_tuple(f"{name}{i}" for i in range(self.M)) for name in ("f", "new"))
        x, y = (_tuple(f"{name}{r}" for r in self.vectors) for name in "xy")
        return [
            "delta = R + gamma_next * y0 - x0",
            f"{A}, {B}, {new} = rule({step}, {memory}, {x}, {y}, (pp, pq, qq))",
        ]

    def bounds(self) -> list[str]:
        """size_next{r} ≥ max |X_r| after the step."""
        out = []
        for r in self.vectors:
            terms = [
                f"size{c}" if self.A[r][c] == 1.0 else f"abs(a{r}{c}) * size{c}"
                for c in self.vectors
                if self.A[r][c] != 0.0
            ]
            for name, entry, top in ((f"b{r}", self.B[r][0], "top"), (f"d{r}", self.B[r][1], "top_next")):
                if entry != 0.0:
                    terms.append(top if entry == 1.0 else f"abs({name}) * {top}")
            out.append(f"size_next{r} = " + " + ".join(terms))
        return out

    def finite(self) -> str:
        """δ and the new memory are finite."""
        return " + ".join(["abs(delta)"] + [f"abs(new{i})" for i in range(self.M)]) + f" <= {HUGE!r}"

    def small(self, limit: float | str) -> str:
        """The bounds and the coefficients are below the limit, a number or a name for one."""
        terms = [f"size_next{r}" for r in self.vectors] + [f"abs({name})" for name in self.coefficients]
        return " + ".join(terms) + f" <= {limit}"

    def acceptable(self) -> str:
        """Every parameter of a step is a number in its range."""
        return " and ".join(
            f"{max(-HUGE, low)!r} <= {name} <= {min(HUGE, high)!r}" for name, (low, high) in self.rule.ranges.items()
        )

    def excess(self, name: str) -> str:
        """A coefficient ready to be rounded: of a weight's scale what it has over 1."""
        return f"({name} - 1.0)" if name in self.scales else name

    def row(self, r: int, z: str = "z", p: str = "p", q: str = "q", *, excess: bool = False) -> str:
        """Row r of A X + B [φ; φ'] for one component: X in z{c}, φ in p, φ' in q; a{r}{r} as it is or as ``excess``."""
        terms = [f"{z}{r}"] if excess and f"a{r}{r}" in self.scales else []
        for coefficient, entry, value in (
            *((f"a{r}{c}", self.A[r][c], f"{z}{c}") for c in self.vectors),
            (f"b{r}", self.B[r][0], p),
            (f"d{r}", self.B[r][1], q),
        ):
            if entry == 1.0:
                terms.append(value)
            elif entry != 0.0:
                terms.append(f"{coefficient if entry is None else repr(entry)} * {value}")
        return " + ".join(terms) or "0.0"


def _tuple(items: Iterable[str]) -> str:
    return "(" + "".join(f"{item}, " for item in items) + ")"


def _known(name: str, names: set[str]) -> str:
    return name if name in names else "_"
