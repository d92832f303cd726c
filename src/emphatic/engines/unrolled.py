"""The text of a rule's small functions, with every loop over its vectors written out.

Written out, LLVM sees scalars instead of small arrays, and the structural zeros of A and B (which it may not drop by
itself: 0·∞ is not 0) are simply not there. ``rule_functions`` describes each function.

No name of the rule leaves its own function: what a step brings is known here by its position only. Names in the text,
for vectors r, c and memory i:

    a{r}_{c}, b{r}, d{r}    the computed entries of A, and of B for φ and φ'
    z{r}                    one component of X_r;  p and q those of φ and φ'
    size{r}                 a bound on max |X_r|, which finds divergence without a look at n numbers: |X_r| grows by no
                            more than the coefficients say. Only when it nears the end of the number range are the
                            numbers themselves tried.
"""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from emphatic.rules import AnyRule, ElementwiseRule, Scalars

__all__ = ["HUGE", "ElementwiseFunctions", "Functions", "Slots", "Unrolled", "tuple_of", "unrolled"]

#: The largest float64.
HUGE = float(np.finfo(np.float64).max)


class Unrolled:
    """The structure of a rule: which entries of A and B are computed, and what is made of them."""

    def __init__(self, rule: AnyRule) -> None:
        self.rule = rule
        self.A, self.B = rule.form
        self.m, self.M, self.w = len(rule.vectors), len(rule.memory), len(rule.weights)
        self.vectors, self.weights, self.traces = range(self.m), range(self.w), range(self.w, self.m)
        #: Where a learner's row of scalars has its count of steps, after memory and bounds.
        self.counter = self.M + self.m
        #: Every entry of A and B by its name: its value, or None where it is computed; and where the rule returns it.
        self.entries: dict[str, float | None] = {}
        self.places: dict[str, str] = {}
        for r in self.vectors:
            row = [(f"a{r}_{c}", self.A[r][c], f"A[{r}][{c}]") for c in self.vectors]
            row += [(f"{name}{r}", self.B[r][side], f"B[{r}][{side}]") for side, name in enumerate("bd")]
            for name, entry, place in row:
                self.entries[name], self.places[name] = entry, place
        self.coefficients = [name for name, entry in self.entries.items() if entry is None]
        #: Those by which a weight scales itself.
        self.scales = {f"a{r}_{r}" for r in self.weights if self.A[r][r] is None}
        #: The vectors that take φ': weights, and traces that are the last φ'.
        self.takes_next = [r for r in self.vectors if self.B[r][1] != 0.0]
        #: The traces that each weight takes.
        self.feeds = {r: [j for j in self.traces if self.A[r][j] != 0.0] for r in self.weights}

    @property
    def products(self) -> list[str]:
        """The inner products that the rule uses: x{r}, y{r}, pp, pq, qq."""
        x, y, g = self.rule.products
        named = [(f"x{r}", x[r]) for r in self.vectors] + [(f"y{r}", y[r]) for r in self.vectors]
        return [name for name, used in (*named, *zip(("pp", "pq", "qq"), g, strict=True)) if used]

    @property
    def lengths(self) -> list[str]:
        """The same, with the squares of φ and, where a weight takes it, of φ'."""
        squares = ["pp", "qq"] if self.takes_next else ["pp"]
        return self.products + [name for name in squares if name not in self.products]

    def entry(self, name: str) -> str:
        """An entry of A or B as a factor: its name where it is computed, else its value."""
        value = self.entries[name]
        return name if value is None else repr(value)

    def excess(self, name: str) -> str:
        """A coefficient ready to be rounded: of a weight's own scale what it has over 1."""
        return f"({name} - 1.0)" if name in self.scales else name

    def row(self, r: int, z: str = "z", *, excess: bool = False) -> str:
        """Row r of A X + B [φ; φ'] for one component; a{r}_{r} of a weight as it is or as ``excess``."""
        terms = [f"{z}{r}"] if excess and f"a{r}_{r}" in self.scales else []
        for name, value in (*((f"a{r}_{c}", f"{z}{c}") for c in self.vectors), (f"b{r}", "p"), (f"d{r}", "q")):
            factor = self.entry(name)
            if factor == "1.0":
                terms.append(value)
            elif factor != "0.0":
                terms.append(f"{factor} * {value}")
        return " + ".join(terms) or "0.0"

    def bound(self, r: int) -> str:
        """max |X_r| after the step is no more than this."""
        terms = []
        named = [(f"a{r}_{c}", f"size{c}") for c in self.vectors] + [(f"b{r}", "top"), (f"d{r}", "top_next")]
        for name, value in named:
            factor = self.entry(name)
            if factor == "1.0":
                terms.append(value)
            elif factor != "0.0":
                terms.append(f"abs({factor}) * {value}")
        return " + ".join(terms) or "0.0"


@functools.cache
def unrolled(rule: AnyRule) -> Unrolled:
    """The structure of this rule, found once."""
    return Unrolled(rule)


class Functions:
    """Text of functions of one rule for one dtype; an engine adds those that only its own kernels need."""

    def __init__(self, rule: AnyRule, dtype: str) -> None:
        self.rule, self.dtype, self.u = rule, dtype, unrolled(rule)
        self.text: list[str] = []
        self.names: list[str] = []
        self._constants()
        self._arithmetic()
        self._arrays()

    def add(self, signature: str, *lines: str, decorator: str = "@small") -> None:
        """A function of that signature and body."""
        body = textwrap.indent("\n".join(lines) or "pass", "    ")
        self.text.append(f"{decorator}\ndef {signature}:\n{body}\n")
        self.names.append(signature.partition("(")[0])

    def add_learn(self, state: str) -> None:
        """``learn``, the entry that takes one number a parameter: quicker to call than one that takes a tuple."""
        step = [f"p{i}" for i in range(len(self.rule.parameters))]
        self.add(f"learn({state}, {', '.join(step)})", f"return learn_step({state}, {tuple_of(step)})", decorator="")

    def constant(self, name: str, value: object) -> None:
        """A number, or whatever else Python writes as it reads it, under a name."""
        self.text.append(f"{name} = {value!r}\n")
        self.names.append(name)

    def unpack(self, *tuples: str) -> list[str]:
        """Lines that name the entries of these tuples: any of c, z, size, memory."""
        u = self.u
        entries = {
            "c": u.coefficients,
            "z": [f"z{r}" for r in u.vectors],
            "size": [f"size{r}" for r in u.vectors],
            "memory": [f"f{i}" for i in range(u.M)],
        }
        return [f"{tuple_of(entries[name])} = {name}" for name in tuples if entries[name]]

    def _constants(self) -> None:
        u = self.u
        for name, value in (
            ("VECTORS", u.m),
            ("WEIGHTS", u.w),
            ("TRACES", u.m - u.w),
            ("MEMORY", u.M),
            ("FORGOTTEN", u.M - len(self.rule.lasting)),
            ("PARAMETERS", len(self.rule.parameters)),
            ("COEFFICIENTS", len(u.coefficients)),
            ("COUNTER", u.counter),
            ("LIMIT", float(np.finfo(self.dtype).max)),
            ("HUGE", HUGE),
        ):
            self.constant(name, value)
        self.text.append(f"real = np.{self.dtype}\n")
        self.names.append("real")

    def _arithmetic(self) -> None:
        """The rule, and what is made of its coefficients."""
        u, add, unpack = self.u, self.add, self.unpack
        count = len(self.rule.parameters)
        delta = "delta = step[5] + step[4] * x_next[0] - x[0]"
        entries = [u.places[name] for name in u.coefficients]
        parameters = tuple_of("delta" if i == 5 else f"step[{i}]" for i in range(count))
        add(
            "decide(step, memory, x, x_next, g)",
            delta,
            f"A, B, after = rule({parameters}, memory, x, x_next, g)",
            f"return delta, {tuple_of(entries)}, after",
            decorator="@strict",
        )
        add(
            "bounds(c, size, top, top_next)",
            *unpack("c", "size"),
            f"return {tuple_of(u.bound(r) for r in u.vectors)}",
        )
        sizes, coefficients = ([f"{name}[{i}]" for i in range(n)] for name, n in (("size", u.m), ("c", len(entries))))
        total = " + ".join(["abs(delta)", *(f"abs(memory[{i}])" for i in range(u.M))])
        add("is_finite(delta, memory)", f"return {total} <= {HUGE!r}")
        total = " + ".join([*sizes, *(f"abs({name})" for name in coefficients)])
        add("is_small(c, size, limit)", f"return {total} <= limit")
        add("is_acceptable(step)", f"return {acceptable(self.rule)}")
        over = [u.excess(name) for name in u.coefficients]
        add("excess(c)", *unpack("c"), f"return {tuple_of(over)}")
        add("rounded(c)", *unpack("c"), f"return {tuple_of(f'real({value})' for value in over)}")
        add("update(c, z, p, q)", *unpack("c", "z"), f"return {tuple_of(u.row(r, excess=True) for r in u.vectors)}")
        add("update_plain(c, z, p, q)", *unpack("c", "z"), f"return {tuple_of(u.row(r) for r in u.vectors)}")
        self._products("no_products", "add_products", "split_products", u.products)
        self._products("no_lengths", "add_lengths", "split_lengths", u.lengths)
        common = [name for name in u.products if name in ("pp", "pq", "qq")]
        self._products("no_common", "add_common", "split_common", common)
        self._products("no_own", "add_own", "split_own", [name for name in u.products if name not in common])

    def _products(self, zero: str, add: str, split: str, names: Sequence[str]) -> None:
        """The inner products of these names: sums in the learner's dtype, what is made of them in float64."""
        terms = {"pp": "p * p", "pq": "p * q", "qq": "q * q"}
        terms |= {f"{x}{r}": f"z[{r}] * {p}" for x, p in (("x", "p"), ("y", "q")) for r in self.u.vectors}
        at = {name: f"np.float64(sums[{i}])" for i, name in enumerate(names)}
        groups = ([f"x{r}" for r in self.u.vectors], [f"y{r}" for r in self.u.vectors], ["pp", "pq", "qq"])
        self.add(f"{zero}()", f"return {tuple_of('real(0)' for _ in names)}")
        totals = tuple_of(f"sums[{i}] + {terms[name]}" for i, name in enumerate(names))
        self.add(f"{add}(sums, z, p, q)", f"return {totals}")
        groups_text = ", ".join(tuple_of(at.get(name, "0.0") for name in group) for group in groups)
        self.add(f"{split}(sums)", f"return {groups_text}")

    def _arrays(self) -> None:
        """Loads and stores, and what is tried near the end of the number range."""
        u, add = self.u, self.add
        vectors, memory, coefficients = u.vectors, range(u.M), range(len(u.coefficients))
        add("read(X, k, i)", f"return {tuple_of(f'X[{r}, k, i]' for r in vectors)}")
        add("write(X, k, i, z)", *(f"X[{r}, k, i] = z[{r}]" for r in vectors))
        components = tuple_of(f"get_apart(x{r}, i, {r + 1})" for r in vectors)
        add(
            "move(X, k, c, phi, phi_next)",
            *(f"x{r} = X[{r}, k]" for r in vectors),
            "for i in range(X.shape[2]):",
            f"    z = update(c, {components}, get_apart(phi, i, 0), get_apart(phi_next, i, 0))",
            *(f"    put_apart(x{r}, i, {r + 1}, z[{r}])" for r in vectors),
        )
        parameters = range(len(self.rule.parameters))
        add("step_at(parameters, t, k)", f"return {tuple_of(f'parameters[{i}][t, k]' for i in parameters)}")

        def row(array: str) -> str:
            f, size = (f"{array}[k, {i}]" for i in memory), (f"{array}[k, {u.M + r}]" for r in vectors)
            return f"{tuple_of(f)}, {tuple_of(size)}"

        def to_row(array: str) -> list[str]:
            lines = [f"{array}[k, {i}] = memory[{i}]" for i in memory]
            return lines + [f"{array}[k, {u.M + r}] = size[{r}]" for r in vectors]

        add("load(scalars, k)", f"return {row('scalars')}")
        add("store(scalars, k, memory, size)", *to_row("scalars"))
        add(
            "keep(work, k, memory, size, c)",
            *to_row("work"),
            *(f"work[k, {u.counter + i}] = c[{i}]" for i in coefficients),
        )
        c = tuple_of(f"real(work[k, {u.counter + i}])" for i in coefficients)
        add("kept(work, k)", f"return {row('work')}, {c}")
        add("magnitudes(z)", f"return {tuple_of(f'abs(np.float64(real(z[{r}])))' for r in vectors)}")
        limit = float(np.finfo(self.dtype).max)
        add("all_within(size)", "return " + " and ".join(f"size[{r}] <= {limit!r}" for r in vectors))
        add("larger(size, other)", f"return {tuple_of(f'max(size[{r}], other[{r}])' for r in vectors)}")
        add("zeros()", f"return {tuple_of('0.0' for _ in vectors)}")


def acceptable(rule: AnyRule) -> str:
    """The text of what must be so of a step's parameters: each in its range, and the ends of a range in order."""
    ranges = [rule.ranges[name] for name in rule.parameters]
    within = [f"{max(-HUGE, low)!r} <= step[{i}] <= {min(HUGE, high)!r}" for i, (low, high) in enumerate(ranges)]
    ends = [f"step[{rule.parameters.index(name)}]" for name in rule.ordered]
    return " and ".join([*within, " <= ".join(ends)] if ends else within)


def tuple_of(items: Iterable[str]) -> str:
    """The text of a tuple."""
    return "(" + "".join(f"{item}, " for item in items) + ")"


class Slots:
    """Groups of scalars of learners that go side by side, each scalar with a place in every lane of one flat array.

    At constant distances from each other in one array is a form of which LLVM makes vectors.

    Adds the constants LANES, SLOTS (places in a lane) and, for each group, AT_GROUP: where in S the first lane has it.
    """

    def __init__(self, functions: Functions, lanes: int, **counts: int) -> None:
        functions.constant("LANES", lanes)
        self.places: dict[str, list[str]] = {}
        begin = 0
        for group, count in counts.items():
            functions.constant(f"AT_{group.upper()}", begin * lanes)
            self.places[group] = [f"S[{slot * lanes} + k]" for slot in range(begin, begin + count)]
            begin += count
        functions.constant("SLOTS", begin)

    def get(self, *groups: str) -> str:
        """The text that returns these groups of lane k."""
        return "return " + ", ".join(tuple_of(self.places[group]) for group in groups)

    def put(self, *groups: str) -> list[str]:
        """The lines that put tuples of these names into lane k."""
        return [f"{place} = {group}[{i}]" for group in groups for i, place in enumerate(self.places[group])]


# ------------------------------------------------------------------------------------------ elementwise rules
#
# What a kernel may call of an elementwise rule besides the loads and stores of ``rule_functions``, declared for a
# reader and a type checker. Kernels also call ``component`` and ``adapt`` as the rule has them.
#
#    s, u      scalars for ``component`` and for ``adapt``, in the learner's dtype
#    sums      those of ``terms``, in the learner's dtype

#: Whether there is an ``adapt``; where the memory has the change of the prediction at φ', or −1.
ADAPTS: bool
CHANGE: int

#: (step, memory, δ) → u.
signals: Callable[[Scalars, Scalars, Any], Scalars]
#: (step, memory, δ, sums) → the computed entries of A, s, and the memory after the step.
decide_all: Callable[[Scalars, Scalars, Any, Scalars], tuple[Scalars, Scalars, Scalars]]
#: () → sums, all 0; (sums, z, p, q) → sums with one component more.
no_terms: Callable[[], Scalars]
add_terms: Callable[[Scalars, Scalars, Any, Any], Scalars]
#: (u, z, p) → z after ``adapt``; (s, z, p, q) → z after ``component``.
adapt: Callable[[Scalars, Scalars, Any], Scalars]
component: Callable[[Scalars, Scalars, Any, Any], Scalars]
#: (c, size) → size after A; (c, z) → A z.
bounds_of: Callable[[Scalars, Scalars], Scalars]
linear: Callable[[Scalars, Scalars], Scalars]
#: (z) → 0 if all of it is within the range of numbers, else more.
excesses: Callable[[Scalars], float]
#: (δ, memory, s, c): all are finite.
are_finite: Callable[[Any, Scalars, Scalars, Scalars], bool]


class ElementwiseFunctions(Functions):
    """Text of the functions of one elementwise rule for one dtype."""

    rule: ElementwiseRule

    def _arithmetic(self) -> None:
        u, add, rule = self.u, self.add, self.rule
        sums, s, signals = rule.counts
        self.text += ["sqrt, log = np.sqrt, np.log\n"]
        self.text += [f"{name} = small({name})\n" for name in ("exp", "terms", "component")]
        self.constant("ADAPTS", rule.adapt is not None)
        self.constant("CHANGE", rule.memory.index(rule.change) if rule.change else -1)
        step = tuple_of("delta" if i == 5 else f"step[{i}]" for i in range(len(rule.parameters)))
        if rule.adapt is None:
            add("signals(step, memory, delta)", "return ()")
            add("adapt(u, z, p)", "return z")
        else:
            self.text += [f"{name} = small({name})\n" for name in ("signal", "adapt")]
            reals = tuple_of(f"real(u[{i}])" for i in range(signals))
            add("signals(step, memory, delta)", f"u = signal({step}, memory)", f"return {reals}", decorator="@strict")
        entries = tuple_of(u.places[name] for name in u.coefficients)
        wide = tuple_of(f"np.float64(sums[{i}])" for i in range(sums))
        reals = tuple_of(f"real(s[{i}])" for i in range(s))
        add(
            "decide_all(step, memory, delta, sums)",
            f"A, s, after = rule({step}, memory, {wide})",
            f"return {entries}, {reals}, after",
            decorator="@strict",
        )
        add("no_terms()", f"return {tuple_of('real(0)' for _ in range(sums))}")
        totals = tuple_of(f"sums[{i}] + more[{i}]" for i in range(sums))
        add("add_terms(sums, z, p, q)", "more = terms(z, p, q)", f"return {totals}")
        within = " and ".join(f"abs(z[{r}]) <= LIMIT" for r in u.vectors)
        add("excesses(z)", f"return 0.0 if {within} else 1.0")
        numbers = [f"memory[{i}]" for i in range(u.M)] + [f"np.float64(s[{i}])" for i in range(s)]
        numbers += [f"c[{i}]" for i in range(len(u.coefficients))]
        finite = " and ".join(f"abs({number}) <= {HUGE!r}" for number in ("delta", *numbers))
        add("are_finite(delta, memory, s, c)", f"return {finite}")
        add("bounds_of(c, size)", *self.unpack("c", "size"), f"return {tuple_of(u.bound(r) for r in u.vectors)}")
        coefficients = [f"abs(c[{i}])" for i in range(len(u.coefficients))]
        total = " + ".join([*(f"size[{r}]" for r in u.vectors), *coefficients])
        add("is_small(c, size, limit)", f"return {total} <= limit")
        add("linear(c, z)", *self.unpack("c", "z"), f"return {tuple_of(u.row(r) for r in u.vectors)}")
        add("is_acceptable(step)", f"return {acceptable(rule)}")
