"""What a kernel may call of its rule: small functions on tuples, which ``unrolled`` writes for each rule.

A kernel is an ordinary module, the same for every rule. Where it needs what only the rule knows (how many vectors
there are, which entries of A and B are not structural zeros, what the memory is), it calls one of these functions; the
module that is compiled is their text followed by the kernel's own source. The declarations here are what a type
checker and a reader see; a kernel imports them under TYPE_CHECKING only.

The tuples, all of scalars:

    step      a rule's parameters, R at the place of δ
    memory    the remembered scalars
    size      for each vector r a bound on max |X_r|
    x, x_next X·φ and X·φ';  g = (φ·φ, φ·φ', φ'·φ')
    c         the computed entries of A and B, in the order of ``Unrolled.coefficients``
    z         one component of every vector
    sums      the inner products that the rule uses, in the learner's dtype

A weight that scales itself (tdrc's w, by 1 − βκ) does so by a number near 1, of which a float32 keeps little of what
matters. ``excess`` and ``rounded`` therefore give of such a coefficient what it has over 1, and ``update`` adds that
times X_r to X_r. ``update_plain`` takes the coefficients as the rule makes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.rules import Scalars

Array = NDArray[Any]
Scalars64 = NDArray[np.float64]

#: How many vectors, weights (which come first), traces, remembered scalars, parameters and coefficients there are.
VECTORS: int
WEIGHTS: int
TRACES: int
MEMORY: int
PARAMETERS: int
COEFFICIENTS: int
#: How many of the remembered scalars are 0 at the start of a sequence; those after them persist.
FORGOTTEN: int
#: Where a learner's row of scalars has its count of steps.
COUNTER: int
#: The largest number of the learner's dtype, and the largest float64: ``abs(v) <= HUGE`` is the one test for a finite
#: number that survives fastmath.
LIMIT: float
HUGE: float
#: A number in the learner's dtype.
real: Callable[[Any], Any]

#: (step, memory, x, x_next, g) → δ, c and the memory after the step. The rule's own arithmetic, never reassociated.
decide: Callable[[Scalars, Scalars, Scalars, Scalars, Scalars], tuple[Any, Scalars, Scalars]]
#: (c, size, top, top_next) → size after the step, where no component of φ is larger than top, of φ' than top_next.
bounds: Callable[[Scalars, Scalars, Any, Any], Scalars]
#: (δ, memory): all are finite.
is_finite: Callable[[Any, Scalars], bool]
#: (c, size, limit): coefficients and bounds are below the limit.
is_small: Callable[[Scalars, Scalars, Any], bool]
#: (step): every parameter is a number in its range.
is_acceptable: Callable[[Scalars], bool]

#: (c) → what ``update`` takes: of a weight's own scale what it has over 1; ``rounded`` also in the learner's dtype.
excess: Callable[[Scalars], Scalars]
rounded: Callable[[Scalars], Scalars]
#: (c, z, p, q) → one component of A X + B [φ; φ'], with p and q those of φ and φ'.
update: Callable[[Scalars, Scalars, Any, Any], Scalars]
update_plain: Callable[[Scalars, Scalars, Any, Any], Scalars]

#: (X, k, i) → z of an array (m, K, n); and z back into it.
read: Callable[[Array, int, int], Scalars]
write: Callable[[Array, int, int, Scalars], None]
#: (X, k, c, φ, φ'): all components of learner k after the step.
move: Callable[[Array, int, Scalars, Array, Array], None]

#: () → sums, all 0.
no_products: Callable[[], Scalars]
#: (sums, z, p, q) → sums with one component more.
add_products: Callable[[Scalars, Scalars, Any, Any], Scalars]
#: (sums) → x, x_next and g in float64, 0 for those that the rule does not use.
split_products: Callable[[Scalars], tuple[Scalars, Scalars, Scalars]]
#: The same three, with φ·φ and (where a vector takes φ') φ'·φ' in any case: their roots bound the components.
no_lengths: Callable[[], Scalars]
add_lengths: Callable[[Scalars, Scalars, Any, Any], Scalars]
split_lengths: Callable[[Scalars], tuple[Scalars, Scalars, Scalars]]
#: The same three for g alone, which learners of one stream have in common (its z may be empty), and for x and x_next.
no_common: Callable[[], Scalars]
add_common: Callable[[Scalars, Scalars, Any, Any], Scalars]
split_common: Callable[[Scalars], tuple[Scalars, Scalars, Scalars]]
no_own: Callable[[], Scalars]
add_own: Callable[[Scalars, Scalars, Any, Any], Scalars]
split_own: Callable[[Scalars], tuple[Scalars, Scalars, Scalars]]

#: (parameters, t, k) → step, from a tuple of (T, K) arrays.
step_at: Callable[[tuple[Scalars64, ...], int, int], Scalars]
#: (scalars, k) → memory and size from a learner's row; and both back into it.
load: Callable[[Scalars64, int], tuple[Scalars, Scalars]]
store: Callable[[Scalars64, int, Scalars, Scalars], None]
#: (work, k, memory, size, c): what is decided, kept until all learners have decided; and taken up again.
keep: Callable[[Scalars64, int, Scalars, Scalars, Scalars], None]
kept: Callable[[Scalars64, int], tuple[Scalars, Scalars, Scalars]]

#: (z) → each |component| in float64, rounded to the learner's dtype first.
magnitudes: Callable[[Scalars], Scalars]
#: (magnitudes): none is beyond the learner's dtype.
all_within: Callable[[Scalars], bool]
#: (size, magnitudes) → the larger of each.
larger: Callable[[Scalars, Scalars], Scalars]
#: () → a 0 for every vector.
zeros: Callable[[], Scalars]
