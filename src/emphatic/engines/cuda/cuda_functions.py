"""The small functions on tuples that the cuda engine's kernels call, as Triton source generated for each rule.

They are to ``cuda_kernels`` what those of ``rule_functions`` are to kernels in numba: loops over vectors written out,
structural zeros left out, and no name of the rule outside its own function. The declarations are for the reader. The
tuples, of a number a learner:

    step      a rule's parameters, R at the place of δ
    memory    the remembered scalars
    size      for each vector r a bound on max |X_r|
    z         a row of the ring: for each vector r X_r·row, or the coefficient of a row gone by in X_r
    c         (a, b, d): a step's entries of A, and of B for φ and for φ', rounded; those that are not the identity's
    total     a product of several A, in float64
    late      of each vector that takes φ' its coefficient of the last φ', where that is the next step's φ

A weight's own scale is in ``a`` what it has over 1 (see ``rule_functions``), and whole in ``total``.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from emphatic.engines.cuda import cuda_kernels
from emphatic.engines.unrolled import HUGE, tuple_of, unrolled
from emphatic.rules import Rule

__all__ = ["GROUP", "module_text", "pairs_of"]

#: Rows in a group.
GROUP = 8
#: How many steps ahead parameters are loaded.
AHEAD = 4
#: Rows of W that are loaded at a time, and rows of V whose parts are added at a time.
UNROLLED, ADDED = 4, 16
#: How many vectors, remembered scalars, parameters and entries of A there are; whether a vector takes φ'.
VECTORS: int
MEMORY: int
PARAMETERS: int
PAIRS: int
TAKES_NEXT: bool
#: The learners' dtype.
REAL: Any

_Function = Callable[..., Any]
#: (z, z_next, h, nought, RING) → x, x_next and g in float64, of a step's two rows and its row of H.
products: _Function
#: (begins, memory, x, x_next, nought) → the same with 0 for the memory and the traces, where a sequence begins.
start_sequence: _Function
#: (begins, c) → c with 0 for what is taken of traces, where a sequence begins.
drop_traces: _Function
#: (step, memory, x, x_next, g, nought) → δ, c, and the memory after the step.
decide: _Function
#: (c, size, top) → size after the step.
bounds: _Function
#: (δ, memory, c, size) → whether all are finite and small enough for the chunked form.
is_fine: _Function
#: (c, z, g, g_next) → z after the step, where g and g_next are its row's products with φ and φ'.
move: _Function
#: (a, z) → A z;  (r, a, at, columns, there) → row r of A X, whose vectors are at ``at``.
apply: _Function
apply_to: _Function
#: (c, late, nought) → the coefficients of the row of a step's φ;  (c, nought) → those of φ and those of φ'.
leave: _Function
leave_both: _Function
#: (nought) → late, all 0;  (c, late) → late after the step;  (c, late) → late moved by A.
no_late: _Function
make_late: _Function
move_late: _Function
#: (z, late, g) → z of rows whose products with the last φ' are g, with what late adds;  (late, nought) → late as z.
add_late: _Function
late_row: _Function
#: (at, distance, ok, z, late): store z + late for the vectors that have a late coefficient.
store_late: _Function
#: (nought) → 1;  (c, total) → A total;  (later, total) → later total;  (total) → total as an ``a``.
identity: _Function
multiply: _Function
compose: _Function
round_total: _Function

#: Beyond this a chunk is taken step by step: products with features, and their sums, are then still in the range.
_LIMIT = {"float32": 1e30, "float64": 1e290}

# Triton rounds a literal argument of ``minimum`` to float32. (Subtracting 0 costs nothing.)
_HEADER = """import triton
import triton.language as tl

from emphatic.engines.cuda.cuda_products import inner


@inner
def min(a, b):
    nought = tl.full((), 0.0, tl.float64)
    return tl.minimum(a - nought, b - nought)


@inner
def max(a, b):
    nought = tl.full((), 0.0, tl.float64)
    return tl.maximum(a - nought, b - nought)


@inner
"""

# A kernel's arguments have names. A parameter is a pointer, its distances from step to step and from learner to
# learner, and whether it varies from step to step.
_ENTRY = """@triton.jit(do_not_specialize=["t0", "L", "chunk", "parts", {distances}])
def dual(
    Z, G, H, BEFORE, AFTER, GROUPS, TAIL, DELTA, FLAG, TOP, OUT, FROZEN, FIRST, {pointers},
    t0, L, chunk, K, parts, {varies},
    APART: tl.constexpr, BROKEN: tl.constexpr, KEEP: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    if tl.load(FLAG) < chunk:
        return
    take_chunk(
        Z, G, H, BEFORE, AFTER, GROUPS, TAIL, DELTA, FLAG, TOP, OUT, FROZEN, FIRST,
        {parameters},
        {which},
        t0, L, chunk, K, parts, APART, BROKEN, KEEP, ROWS, BLOCK,
    )
"""


def module_text(rule: Rule, dtype: str) -> str:
    """The text that is compiled: the rule, its small functions, the source of the kernels, and ``dual``."""
    names = [f"p{i}" for i in range(len(rule.parameters))]
    entry = _ENTRY.format(
        distances=", ".join(f'"{p}_t"' for p in names),
        pointers=", ".join(f"{p}_at, {p}_t, {p}_k" for p in names),
        varies=", ".join(f"{p}_varies: tl.constexpr" for p in names),
        parameters=tuple_of(f"({p}_at, {p}_t, {p}_k)" for p in names),
        which=tuple_of(f"{p}_varies" for p in names),
    )
    future = "from __future__ import annotations\n"
    texts = [_HEADER + _in_float64(rule.source), *_Functions(rule, dtype).text, inspect.getsource(cuda_kernels), entry]
    return future + "\n\n".join(text.replace(future, "", 1) for text in texts)


def pairs_of(A: Sequence[Sequence[float | None]], weights: int) -> list[tuple[int, int]]:
    """Where A differs from 1, and the traces' own scales, which are 0 where a sequence begins."""
    m = range(len(A))
    return [(r, c) for r in m for c in m if A[r][c] != float(r == c) or r == c >= weights]


def _in_float64(source: str) -> str:
    """The rule with its returned literals in float64: Triton would round them to float32, but not through ``max``."""
    tree = ast.parse(source)
    for returned in ast.walk(tree):
        for group in ast.walk(returned) if isinstance(returned, ast.Return) else ():
            if isinstance(group, ast.Tuple):
                group.elts = [_exact(entry) for entry in group.elts]
    return ast.unparse(tree)


def _exact(entry: ast.expr) -> ast.expr:
    try:
        value = ast.literal_eval(entry)
    except ValueError:
        return entry
    if not isinstance(value, float) or float(np.float32(value)) == value:
        return entry
    return ast.parse(f"max({value!r}, {value!r})", mode="eval").body


class _Functions:
    """The text of one rule's functions."""

    def __init__(self, rule: Rule, dtype: str) -> None:
        self.rule, self.u, self.limit = rule, unrolled(rule), _LIMIT[dtype]
        u = self.u
        self.pairs = pairs_of(u.A, u.w)
        self.a = {pair: f"a[{i}]" for i, pair in enumerate(self.pairs)}
        self.b, self.d = (
            {r: f"{name}[{i}]" for i, r in enumerate(r for r in u.vectors if u.B[r][side] != 0.0)}
            for side, name in enumerate("bd")
        )
        #: The pairs for which ``a`` holds the excess over 1.
        self.scales = [(r, r) for r in u.weights if f"a{r}_{r}" in u.scales]
        self.text: list[str] = []
        for name, value in (
            ("GROUP", GROUP),
            ("AHEAD", AHEAD),
            ("UNROLLED", UNROLLED),
            ("ADDED", ADDED),
            ("VECTORS", u.m),
            ("MEMORY", u.M),
            ("PARAMETERS", len(rule.parameters)),
            ("PAIRS", len(self.pairs)),
            ("TAKES_NEXT", bool(self.d)),
            ("REAL", f"tl.{dtype}"),
        ):
            self.text.append(f"{name} = tl.constexpr({value})\n")
        self._add_steps()
        self._add_rows()
        self._add_late()
        self._add_totals()

    def add(self, signature: str, *lines: str) -> None:
        """Add a function with this signature and body."""
        body = textwrap.indent("\n".join(lines) or "pass", "    ")
        self.text.append(f"@inner\ndef {signature}:\n{body}\n")

    def row(self, r: int, z: str = "z[{}]") -> str:
        """Row r of A z."""
        terms = [z.format(r)] if (r, r) not in self.a or (r, r) in self.scales else []
        return " + ".join(terms + [f"{self.a[r, c]} * {z.format(c)}" for c in self.u.vectors if (r, c) in self.a])

    def own(self, r: int, value: str, *, excess: bool = True) -> str:
        """a_rr times a value of vector r."""
        if (r, r) not in self.a:
            return value
        scaled = f"{self.a[r, r]} * {value}"
        return f"{value} + {scaled}" if excess and (r, r) in self.scales else scaled

    def excess(self, pair: tuple[int, int], value: str) -> str:
        """A coefficient in the form in which it is rounded."""
        return f"({value} - 1.0)" if pair in self.scales else value

    def _add_steps(self) -> None:
        """Functions that call the rule and bound the sizes."""
        u, entries = self.u, [*self.a.values(), *self.b.values(), *self.d.values()]
        uses_x, uses_next, uses_g = self.rule.products
        x, x_next = (
            tuple_of(f"{z}[{r}].to(tl.float64)" if used else "nought" for r, used in enumerate(uses))
            for z, uses in (("z", uses_x), ("z_next", uses_next))
        )
        places = zip(("0", "1", "RING + 1"), uses_g, strict=True)
        g = tuple_of(f"tl.load(h + {place}).to(tl.float64)" if used else "0.0" for place, used in places)
        self.add("products(z, z_next, h, nought, RING: tl.constexpr)", f"return {x}, {x_next}, {g}")

        def kept(name: str, r: int, count: int) -> str:
            return f"{name}[{r}]" if r < count else f"tl.where(begins, nought, {name}[{r}])"

        remembered = tuple_of(
            f"tl.where(begins, nought, memory[{i}])" if i < u.M - len(self.rule.lasting) else f"memory[{i}]"
            for i in range(u.M)
        )
        x, x_next = (tuple_of(kept(name, r, u.w) for r in u.vectors) for name in ("x", "x_next"))
        self.add("start_sequence(begins, memory, x, x_next, nought)", f"return {remembered}, {x}, {x_next}")
        a = tuple_of(self.a[r, c] if c < u.w else f"tl.where(begins, 0.0, {self.a[r, c]})" for r, c in self.pairs)
        self.add("drop_traces(begins, c)", "a, b, d = c", f"return {a}, b, d")

        def rounded(value: str) -> str:
            return f"({value} - nought).to(REAL)"

        step = tuple_of("delta" if i == 5 else f"step[{i}]" for i in range(len(self.rule.parameters)))
        a = tuple_of(rounded(self.excess((r, c), f"A[{r}][{c}]")) for r, c in self.pairs)
        b, d = (tuple_of(rounded(f"B[{r}][{side}]") for r in column) for side, column in enumerate((self.b, self.d)))
        self.add(
            "decide(step, memory, x, x_next, g, nought)",
            "delta = step[5] + step[4] * x_next[0] - x[0]",
            f"A, B, after = rule({step}, memory, x, x_next, g)",
            f"return delta, {tuple_of((a, b, d))}, {tuple_of(f'after[{i}] - nought' for i in range(u.M))}",
        )
        bounds = []
        for r in u.vectors:
            terms = [f"size[{r}]"] if (r, r) not in self.a or (r, r) in self.scales else []
            terms += [f"tl.abs({self.a[r, c]}) * size[{c}]" for c in u.vectors if (r, c) in self.a]
            bounds.append(
                " + ".join(terms + [f"tl.abs({column[r]}) * top" for column in (self.b, self.d) if r in column])
            )
        self.add("bounds(c, size, top)", "a, b, d = c", f"return {tuple_of(bounds)}")
        small = " + ".join([f"size[{r}]" for r in u.vectors] + [f"tl.abs({entry})" for entry in entries])
        finite = " + ".join(["tl.abs(delta)"] + [f"tl.abs(memory[{i}])" for i in range(u.M)])
        fine = f"(({small}) <= {self.limit!r}) & (({finite}) <= {HUGE!r})"
        self.add("is_fine(delta, memory, c, size)", "a, b, d = c", f"return {fine}")

    def _add_rows(self) -> None:
        """Functions that move rows by A and B, and that give the coefficients of rows already used."""
        u, lines = self.u, []
        moved = []
        for r in u.vectors:
            shares = [f"{column[r]} * {g}" for column, g in ((self.b, "g"), (self.d, "g_next")) if r in column]
            moved.append(" + ".join([self.row(r), *shares]))
        self.add("move(c, z, g, g_next)", "a, b, d = c", f"return {tuple_of(moved)}")
        self.add("apply(a, z)", f"return {tuple_of(self.row(r) for r in u.vectors)}")
        for r in u.vectors:
            lines.append(f"if r == {r}:")
            needed = [c for c in u.vectors if c == r or (r, c) in self.a]
            lines += [f"    x{c} = tl.load(at[{c}] + columns[None, :], mask=there, other=0.0)" for c in needed]
            lines.append(f"    out = {self.row(r, 'x{}')}")
        self.add("apply_to(r: tl.constexpr, a, at, columns, there)", *lines, "return out")
        b, d = (tuple_of(column.get(r, "nought.to(REAL)") for r in u.vectors) for column in (self.b, self.d))
        self.add("leave_both(c, nought)", "a, b, d = c", f"return {b}, {d}")

    def _add_late(self) -> None:
        """The coefficients of a φ' that is the next step's φ."""
        u, late = self.u, {r: f"late[{i}]" for i, r in enumerate(self.d)}
        self.add("no_late(nought)", f"return {tuple_of('nought.to(REAL)' for _ in late)}")
        self.add("make_late(c, late)", "a, b, d = c", f"return {tuple_of(self.d[r] for r in late)}")
        self.add("move_late(c, late)", "a, b, d = c", f"return {tuple_of(self.own(r, late[r]) for r in late)}")
        left = []
        for r in u.vectors:
            shares = ([self.b[r]] if r in self.b else []) + ([self.own(r, late[r])] if r in late else [])
            left.append(" + ".join(shares) or "nought.to(REAL)")
        self.add("leave(c, late, nought)", "a, b, d = c", f"return {tuple_of(left)}")
        sums = tuple_of(f"z[{r}] + g * {late[r]}" if r in late else f"z[{r}]" for r in u.vectors)
        self.add("add_late(z, late, g)", f"return {sums}")
        self.add("late_row(late, nought)", f"return {tuple_of(late.get(r, 'nought.to(REAL)') for r in u.vectors)}")
        stores = [f"tl.store(at + {r} * distance, z[{r}] + {late[r]}, mask=ok)" for r in late]
        self.add("store_late(at, distance, ok, z, late)", *stores)

    def _add_totals(self) -> None:
        """Functions for products of several A, all of them in the arrow form."""
        at = {pair: f"total[{i}]" for i, pair in enumerate(self.pairs)}
        self.add("identity(nought)", f"return {tuple_of(f'nought + {float(r == c)}' for r, c in self.pairs)}")
        for signature, excess in (("multiply(c, total)", True), ("compose(a, total)", False)):
            entries = []
            for r, c in self.pairs:
                through_trace = f"{self.a[r, c]} * {at[c, c]}" if (c, c) in at else self.a[r, c]
                entries.append(self.own(r, at[r, c], excess=excess) + (f" + {through_trace}" if r != c else ""))
            self.add(signature, *["a, b, d = c"] * excess, f"return {tuple_of(entries)}")
        rounded = tuple_of(f"{self.excess(pair, at[pair])}.to(REAL)" for pair in self.pairs)
        self.add("round_total(total)", f"return {rounded}")
