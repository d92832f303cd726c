"""What the sparse engine's kernels call of their rule, besides ``rule_functions``; and where a learner's parts lie.

As there: declarations for a reader and a type checker first, then the text of the functions for one rule. A ``column``
is a record of H, ``scale`` is C, and e the present epoch of every trace, one at least.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from emphatic.engines.unrolled import Functions, tuple_of, unrolled

if TYPE_CHECKING:
    from emphatic.rules import AnyRule, Scalars

    Floats = NDArray[np.float64]

__all__ = ["HIGH", "LOW", "SHRUNK", "STAMP", "Layout", "add_limits", "functions_for"]

#: The type of stamps, which holds a position in φ too (modulo its largest value).
STAMP = {"float64": "int32", "float32": "int16"}

#: A trace's scale is reset when it is below this part of its peak: the error is about 4e-16 divided by it.
SHRUNK = 1e-2
#: Outside these it is reset in any case; traces that feed no weight do so only here.
LOW, HIGH = 1e-10, 1e10
#: Beyond this, steps are run on plain columns (C = 1), as the dense engine does: C and H need room that X does not.
NEAR_THE_END: float
_NEAR_THE_END = {"float64": 1e280, "float32": 1e25}
#: Where ``scale`` has the peak of the first trace's scale.
PEAKS: int
#: How many positions in φ a mark can tell apart.
PERIOD: int

#: (epoch) → e.
epochs: Callable[[NDArray[np.int64]], Scalars]
#: (column, e, table): pay what the column owes.
fetch: Callable[[np.void, Scalars, Floats], None]
#: (column, scale, e, table) → the column of X, in float64; nothing changes.
present: Callable[[np.void, Floats, Scalars, Floats], Scalars]
#: (column, z): z is the column of X, where C = 1 and every trace is in its first epoch.
place: Callable[[np.void, Scalars], None]
#: (sums, column, v) → sums + v H.
add_held: Callable[[Scalars, np.void, Any], Scalars]
#: (column, u, p): H += u p; and for φ', of the weights that take it.
add_phi: Callable[[np.void, Scalars, Any], None]
add_phi_next: Callable[[np.void, Scalars, Any], None]
#: (column, position): write into its mark. (column) → what is there; always 0 for a rule that does not use φ·φ'.
mark: Callable[[np.void, int], None]
marked: Callable[[np.void], int]

#: (size) → bounds on |X| that are 1 or more, so that they bound what C grows to as well, also where X is 0.
at_least_one: Callable[[Scalars], Scalars]
#: (scale, h) → C h.
combine: Callable[[Floats, Scalars], Scalars]
#: (scale, c): C ← A C.
advance: Callable[[Floats, Scalars], None]
#: (scale, c) → C⁻¹B for φ and for φ'.
increments: Callable[[Floats, Scalars], tuple[Scalars, Scalars]]
#: (r, trace) → where ``scale`` has C_rj, or −1 if weight r does not take that trace.
slot: Callable[[int, int], int]


class Layout:
    """The places of C in ``scale``, and the fields of a column.

    ``scale`` begins with C_rr of every vector and ends with the peak of every trace's scale. A column has H{r} of every
    vector, and for every trace the epoch E{j} that it is up to date with.
    """

    def __init__(self, rule: AnyRule) -> None:
        u = unrolled(rule)
        self.m, self.w, self.traces, self.takes = u.m, u.w, u.traces, u.feeds
        pairs = [(r, r) for r in u.vectors] + [(r, j) for r in u.weights for j in self.takes[r]]
        self.slot = {pair: i for i, pair in enumerate(pairs)}
        self.peaks = len(pairs)
        self.names = [f"H{r}" for r in u.vectors] + [f"E{j}" for j in self.traces]
        #: The field in which φ's columns are marked if the rule uses φ·φ': the stamp of the first trace. For want of
        #: one, a field of its own, which is 0 between steps and no part of the state.
        self.mark = f"E{u.w}" if "pq" in u.products else ""

    def fields(self, dtype: str) -> np.dtype[Any]:
        """One column."""
        names = dict.fromkeys([*self.names, self.mark] if self.mark else self.names)
        return np.dtype([(name, dtype if name[0] == "H" else STAMP[dtype]) for name in names])

    def fresh(self) -> NDArray[np.float64]:
        """C = 1, peaks = 1."""
        scale = np.zeros(self.peaks + len(self.traces))
        scale[: self.m] = scale[self.peaks :] = 1.0
        return scale


def add_limits(functions: Functions) -> None:
    """Give a kernel SHRUNK, LOW, HIGH and NEAR_THE_END of its dtype by value, so that its hash includes them."""
    functions.constant("SHRUNK", SHRUNK)
    functions.constant("LOW", LOW)
    functions.constant("HIGH", HIGH)
    functions.constant("NEAR_THE_END", _NEAR_THE_END[functions.dtype])


def functions_for(rule: AnyRule, dtype: str, kind: type[Functions] = Functions) -> Functions:
    """The functions of this rule that ``sparse_kernels`` calls, beside those of this kind."""
    functions, at = kind(rule, dtype), Layout(rule)
    add_limits(functions)
    functions.add("at_least_one(size)", f"return {tuple_of(f'max(size[{r}], 1.0)' for r in functions.u.vectors)}")
    functions.constant("PEAKS", at.peaks)
    functions.constant("PERIOD", int(np.iinfo(STAMP[dtype]).max))
    _of_columns(functions, at)
    _of_scales(functions, at)
    return functions


def _of_columns(functions: Functions, at: Layout) -> None:
    u, add, w = functions.u, functions.add, at.w

    def owed(j: int, h: list[str], found: str) -> list[str]:
        """Lines that pay for trace j where s is its stamp; ``h`` has the place of each vector, ``found`` H_j now."""
        paid = [f"{h[r]} += table[{j - w}, s, {r}] * {found}" for r in u.weights if j in at.takes[r]]
        return [*paid, f"{h[j]} = {found} * table[{j - w}, s, {w}]"]

    def where_due(j: int, *lines: str) -> list[str]:
        return [f"s = column['E{j}']", f"if s != e[{j - w}]:", *(f"    {line}" for line in lines)]

    fields = [f"column['H{r}']" for r in u.vectors]
    h = [f"h{r}" for r in u.vectors]
    add("epochs(epoch)", f"return {tuple_of([f'epoch[{2 * (j - w)}]' for j in u.traces] or ['0'])}")
    add(
        "fetch(column, e, table)",
        *_joined(
            where_due(j, f"h = {fields[j]}", *owed(j, fields, "h"), f"column['E{j}'] = e[{j - w}]") for j in u.traces
        ),
    )
    add(
        "present(column, scale, e, table)",
        *(f"{name} = np.float64({field})" for name, field in zip(h, fields, strict=True)),
        *_joined(where_due(j, *owed(j, h, h[j])) for j in u.traces),
        f"return combine(scale, {tuple_of(h)})",
    )
    reset = [f"column['E{j}'] = 0" for j in u.traces]
    add("place(column, z)", *(f"{field} = z[{r}]" for r, field in enumerate(fields)), *reset)
    totals = (f"sums[{r}] + {field} * v" for r, field in enumerate(fields))
    add("add_held(sums, column, v)", f"return {tuple_of(totals)}")
    add("add_phi(column, u, p)", *(f"{field} += u[{r}] * p" for r, field in enumerate(fields)))
    add("add_phi_next(column, u, q)", *(f"{fields[r]} += u[{i}] * q" for i, r in enumerate(u.takes_next)))
    add("mark(column, position)", f"column['{at.mark}'] = position" if at.mark else "pass")
    add("marked(column)", f"return column['{at.mark}']" if at.mark else "return 0")


def _of_scales(functions: Functions, at: Layout) -> None:
    u, add, C = functions.u, functions.add, at.slot
    factors = {r: u.entry(f"a{r}_{r}") for r in u.vectors}
    rows = [[f"scale[{r}] * h[{r}]", *(f"scale[{C[r, j]}] * h[{j}]" for j in at.takes.get(r, []))] for r in u.vectors]
    add("combine(scale, h)", f"return {tuple_of(' + '.join(row) for row in rows)}")
    add(
        "advance(scale, c)",
        *functions.unpack("c"),
        *(
            f"scale[{C[r, j]}] = {factors[r]} * scale[{C[r, j]}] + {u.entry(f'a{r}_{j}')} * scale[{j}]"
            for r in u.weights
            for j in at.takes[r]
        ),
        *(f"scale[{r}] *= {factor}" for r, factor in factors.items() if factor != "1.0"),
    )
    less = {r: "".join(f" - scale[{C[r, j]}] * u{j}" for j in at.takes[r]) for r in u.weights}
    of_next = (f"{u.entry(f'd{r}')} / scale[{r}]" for r in u.takes_next)
    add(
        "increments(scale, c)",
        *functions.unpack("c"),
        *(f"u{j} = {u.entry(f'b{j}')} / scale[{j}]" for j in u.traces),
        *(f"u{r} = ({u.entry(f'b{r}')}{less[r]}) / scale[{r}]" for r in u.weights),
        f"return {tuple_of(f'u{r}' for r in u.vectors)}, {tuple_of(of_next)}",
    )
    cases = ((f"if r == {r} and trace == {j - at.w}:", f"    return {C[r, j]}") for r in u.weights for j in at.takes[r])
    add("slot(r, trace)", *_joined(cases), "return -1")


def _joined(groups: Iterable[Iterable[str]]) -> list[str]:
    return [line for group in groups for line in group]
