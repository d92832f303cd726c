"""Where everything of K sparse learners lies, and the small functions of their rule that only their kernels need.

Rows of ``scale``, each (K,): C_rr of every vector; C_rj of every weight and trace; of every trace, the largest |C_jj|
since it was closed; and what is left of the traces of columns last touched before its mark. Rows of ``form``: A_rr and
A_rj likewise; then B of every vector for φ, and of every weight for φ'.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from emphatic.engines.sparse.sparse_functions import HIGH, LOW, SHRUNK, add_limits
from emphatic.engines.unrolled import Functions, tuple_of, unrolled

if TYPE_CHECKING:
    from emphatic.rules import Rule, Scalars

__all__ = ["HIGH", "LOW", "SHRUNK", "functions_for", "rows_of"]

Floats = NDArray[np.float64]

#: Beyond this bound on |X| steps are taken on plain columns.
NEAR_THE_END: float
#: The first of these rows of ``scale`` and ``form``: C_rj and A_rj, the peaks, and what is left; B for φ and for φ'.
TAKE: int
PEAK: int
LEFT: int
PHI: int
PHI_NEXT: int
#: How many weights take φ', those before them included; and whether any weight scales itself.
NEXT: int
OWN_SCALES: bool

#: (r, j): whether vector r takes trace j, which is counted from 0.
feeds: Callable[[int, int], bool]
#: (x, k, K) → X·φ of learner k, where x has it of all.
products: Callable[[Floats, int, int], Scalars]
#: (form, k, c): put A and B of learner k there, all that is not always 0.
put_form: Callable[[Floats, int, Scalars], None]


def rows_of(rule: Rule) -> dict[str, int]:
    """The first rows by name, and how many there are of ``scale`` and of ``form``."""
    u = unrolled(rule)
    pairs = u.m + u.w * len(u.traces)
    sizes = {"SCALE": pairs + 2 * len(u.traces), "FORM": pairs + u.m + u.w}
    names = {"TAKE": u.m, "PEAK": pairs, "LEFT": pairs + len(u.traces), "PHI": pairs, "PHI_NEXT": pairs + u.m}
    return names | sizes | {"NEXT": max(u.takes_next, default=-1) + 1}


def functions_for(rule: Rule, dtype: str) -> Functions:
    """The functions of this rule for ``columns_kernels`` and ``sparse_many_kernels``."""
    functions, rows = Functions(rule, dtype), rows_of(rule)
    u, add = functions.u, functions.add
    add_limits(functions)
    for name, row in rows.items():
        functions.constant(name, row)
    functions.constant("OWN_SCALES", any(u.A[r][r] != 1.0 for r in u.weights))

    fed = [(r, j - u.w) for r in u.weights for j in u.feeds[r]]
    add("feeds(r, j)", f"return {' or '.join(f'(r == {r} and j == {j})' for r, j in fed) or 'False'}")
    add("products(x, k, K)", f"return {tuple_of(f'x[{r} * K + k]' for r in u.vectors)}")
    where = {f"a{r}_{r}": r for r in u.vectors}
    where |= {f"a{r}_{u.w + j}": rows["TAKE"] + r * len(u.traces) + j for r, j in fed}
    where |= {f"b{r}": rows["PHI"] + r for r in u.vectors} | {f"d{r}": rows["PHI_NEXT"] + r for r in u.takes_next}
    entries = (f"form[{i}, k] = {u.entry(name)}" for name, i in where.items())
    add("put_form(form, k, c)", *functions.unpack("c"), *entries)
    return functions
