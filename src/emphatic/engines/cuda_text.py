"""The text of a rule's Triton kernels: the steps of a chunk on V, and what they make of X.  Derived in CUDA.md.

One thread has one learner. A chunk's steps go in groups, and the numbers of a group's rows form a ring of variables,
which a GPU keeps in registers. Its first rows are those of the step's φ and φ'; a step moves all others and puts the
coefficients of the rows it has used at the end, so that when V is used up the ring holds W:

    z{r}_{i}        X_r·(row i of the ring), or the coefficient of a row gone by in X_r
    q_a{r}{c}       the step's entry of A, rounded; likewise q_b{r} for φ and q_d{r} for φ'
    T{r}{c}         the product of the group's A;  total{r}{c} of the chunk's
    o{r}            the coefficient of the last φ' in weight r, where that is the next step's φ
    p{r}            the same of the step before the group, moved by the group's A

Names of ``text`` besides. Steps after the last one of a short chunk are taken with A = 1 and B = 0.
"""

from __future__ import annotations

from collections.abc import Callable

from emphatic.engines.text import HUGE, Unrolled, fill
from emphatic.rules import Rule

__all__ = ["GROUP", "ring", "source"]

#: Rows in a group.
GROUP = 16

_TEXT = '''import triton
import triton.language as tl

from emphatic.engines.cuda_kernels import product, split


@triton.jit(do_not_specialize=["t0", "L", "turns", "chunk", "parts", ⟨strides⟩])
def dual(
    Z, G, H, BEFORE, AFTER, TAIL, DELTA, FLAG, TOP, OUT, ⟨pointers⟩,
    t0, L, turns, chunk, K, parts, ⟨varies⟩,
    KEEP: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):
    if tl.load(FLAG) < chunk:
        return
    wide = tl.cast(K, tl.int64)
    k = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ok = k < K
    none = 0 * k  # makes an answer of each learner's own of one for all: Triton's interpreter confuses masks otherwise
    z = Z + k
    G += chunk * ROWS * ROWS
    top = tl.load(TOP).to(tl.⟨real⟩)
    ⟨load⟩
    ⟨constant⟩
    i = tl.arange(0, ⟨GROUP⟩)
    within = ok[None, :] & (i[:, None] < ROWS)
    if parts > 1:
        for row in range(0, ⟨m⟩ * ROWS, ⟨GROUP⟩):
            at = z[None, :] + (row + i)[:, None] * wide
            total = tl.load(at, mask=within, other=0.0)
            for part in range(1, parts):
                total += tl.load(at + part * ⟨m⟩ * ROWS * wide, mask=within, other=0.0)
            tl.store(at, total, mask=within)
        tl.debug_barrier()
    fine = ok == ok
    delta_last = tl.zeros((BLOCK,), tl.float64)
    ⟨pending⟩
    ⟨totals⟩
    for group in range(0, (L + ⟨steps⟩ - 1) // ⟨steps⟩):
        first = group * ⟨steps⟩
        row0 = group * ⟨GROUP⟩ + 0 * L  # (a tensor also where Triton interprets)
        y = z + row0 * wide
        ⟨rows⟩
        for j in range(0, turns):
            t = first + j
            when = t0 + t + 0 * wide  # (in 64 bits: K steps of K numbers are beyond 32)
            live = t + none < L
            h = H + (chunk * ROWS + t) * ⟨both⟩
            ⟨step⟩
        ⟨back⟩
        tl.debug_barrier()
        for other in range(0, row0, ⟨GROUP⟩):
            ⟨scale⟩
        for other in range(row0 + ⟨GROUP⟩, ⟨used⟩, ⟨GROUP⟩):
            ⟨spread⟩
        tl.debug_barrier()
        ⟨compose⟩
    ⟨last_row⟩
    tl.store(DELTA + k, delta_last, mask=ok)
    ⟨store⟩
    if tl.max(tl.where(ok & (fine == 0), 1, 0)) > 0:
        tl.atomic_min(FLAG, chunk)


@triton.jit(do_not_specialize=["chunk"])
def update(
    X, Z, TAIL, FLAG, P, P_rest, chunk, K, n, span,
    FIRST: tl.constexpr, LAST: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr,
    THREE: tl.constexpr, STAGES: tl.constexpr,
):
    """X ← A_total X + W P for a block of learners and ``span`` columns, vectors FIRST to LAST; P is (n, ROWS)."""
    if tl.load(FLAG) <= chunk:
        return
    wide = tl.cast(K, tl.int64)
    k = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ok = k < K
    j = tl.arange(0, ROWS)
    i = tl.arange(0, TILE)
    first = tl.program_id(1) * span
    ⟨tails⟩
    ⟨weights⟩
    ⟨bases⟩
    P += chunk * ROWS * n
    P_rest += chunk * ROWS * n
    count = (min(first + span, n) - first + TILE - 1) // TILE
    for turn in tl.range(0, count, num_stages=STAGES):
        # Each program begins elsewhere, or all would ask the same few channels of memory at a time.
        c = first + (turn + tl.program_id(0)) % count * TILE + i
        inside = c < n
        p = tl.load(P + c[None, :] * ROWS + j[:, None], mask=inside[None, :], other=0.0)
        rest = tl.load(P_rest + c[None, :] * ROWS + j[:, None], mask=inside[None, :], other=0.0) if THREE else p
        there = ok[:, None] & inside[None, :]
        ⟨fold⟩
        ⟨write⟩
'''


def ring(apart: bool) -> int:
    """Rows of a group's steps: the last φ' is one more where it is shared with the next group."""
    return GROUP if apart else GROUP + 1


class _Steps:
    """The lines that a group of steps is made of; ``apart`` is where φ' of a step is not φ of the next."""

    def __init__(self, rule: Rule, dtype: str, *, apart: bool) -> None:
        self.u = u = Unrolled(rule)
        self.rule, self.real = rule, f"tl.{dtype}"
        #: Rows from one step's φ to the next one's, and rows in the ring: also the φ' that the next group begins with.
        self.stride = 2 if apart else 1
        self.ring = ring(apart)
        self.limit = 1e30 if dtype == "float32" else 1e290
        R = u.vectors
        #: Entries of A and B that are not the identity's: where the rule has them, and what they are without a step.
        self.entries: dict[str, tuple[str, float]] = {}
        for r in R:
            for c in R:
                name = f"a{r}{c}"
                if u.A[r][c] != (1.0 if r == c else 0.0):
                    self.entries[name] = (f"A[{r}][{c}]", 1.0 if r == c and name not in u.scales else 0.0)
            for side, letter in enumerate("bd"):
                if u.B[r][side] != 0.0:
                    self.entries[f"{letter}{r}"] = (f"B[{r}][{side}]", 0.0)
        self.pairs = [(r, c) for r in R for c in R if f"a{r}{c}" in self.entries]
        shares = [r for r in range(u.w) if f"d{r}" in self.entries]
        #: The weights for which a step's φ' is the next step's φ.
        self.pending = [] if apart else shares

    def row(self, r: int, of: Callable[[int], str], a: str = "q_a") -> list[str]:
        """The terms of row r of A Z, where Z is ``of(c)``."""
        diagonal = f"a{r}{r}"
        terms = [of(r)] if diagonal not in self.entries or diagonal in self.u.scales else []
        return terms + [f"{a}{r}{c} * {of(c)}" for c in self.u.vectors if (r, c) in self.pairs]

    def step(self) -> list[str]:
        """One step: the rule on the ring's first rows, then all others by A and B, and the first ones to the end."""
        u = self.u
        uses = self.rule.products
        out = []
        for name in self.rule.parameters:
            at = f"{name}_at + when * {name}_t + k * {name}_k"
            out += [f"if {name}_varies:", f"    {name} = tl.load({at}, mask=ok & live, other=0.0).to(tl.float64)"]
        for i, letter in enumerate("xy"):
            out += [
                f"{letter}{r} = z{r}_{i}.to(tl.float64)" if used else f"{letter}{r} = nought"
                for r, used in enumerate(uses[i])
            ]
        for name, place, used in zip(("pp", "pq", "qq"), (0, 1, self.ring + 1), uses[2], strict=True):
            out.append(f"{name} = tl.load(h + {place}).to(tl.float64)" if used else f"{name} = 0.0")
        out += self._decide()
        for i in range(self.stride, self.ring):
            out.append(f"g = tl.load(h + {i})")
            if any(name.startswith("d") for name in self.entries):
                out.append(f"g_next = tl.load(h + {self.ring + i})")
            for r in u.vectors:
                terms = self.row(r, lambda c, i=i: f"z{c}_{i}")  # type: ignore[misc]
                terms += [
                    f"q_{letter}{r} * {g}"
                    for letter, g in (("b", "g"), ("d", "g_next"))
                    if f"{letter}{r}" in self.entries
                ]
                out.append(f"n{r}_{i} = " + " + ".join(terms))
        for r in u.vectors:
            share = [f"q_b{r}"] if f"b{r}" in self.entries else []
            share += self._own(r, f"o{r}") if r in self.pending else []
            out += [f"z{r}_{i} = n{r}_{i + self.stride}" for i in range(self.ring - self.stride)]
            ends = [" + ".join(share) or "none_real"]
            ends += [f"q_d{r}" if f"d{r}" in self.entries else "none_real"] * (self.stride - 1)
            out += [f"z{r}_{self.ring - self.stride + i} = {end}" for i, end in enumerate(ends)]
        for r in self.pending:
            # (a step that is not taken passes it on)
            out += [f"o{r} = tl.where(live, q_d{r}, o{r})", f"p{r} = " + " + ".join(self._own(r, f"p{r}"))]
        return out + self._multiplied("T", "q_a")

    def _own(self, r: int, value: str) -> list[str]:
        """What A makes of a coefficient in weight r."""
        diagonal = f"a{r}{r}"
        if diagonal not in self.entries:
            return [value]
        return [value, f"q_{diagonal} * {value}"] if diagonal in self.u.scales else [f"q_{diagonal} * {value}"]

    def _decide(self) -> list[str]:
        """δ, the rule, its coefficients rounded, the bounds and the memory after the step."""
        u = self.u
        step = ", ".join("delta" if name == "R" else name for name in self.rule.parameters)
        memory = "".join(f"f{i}, " for i in range(u.M))
        x, y = (", ".join(f"{name}{r}" for r in u.vectors) for name in "xy")
        out = [
            "delta = R + gamma_next * y0 - x0",
            f"A, B, new = rule(({step}), ({memory}), ({x}), ({y}), (pp, pq, qq))",
        ]
        for name, (entry, neutral) in self.entries.items():
            value = f"{entry} - 1.0" if name in u.scales else entry
            out.append(f"q_{name} = tl.where(live, {value}, {neutral} + nought).to({self.real})")
        for r in u.vectors:
            terms = self.row(r, lambda c: f"size{c}")
            terms = [
                term.replace("q_a", "tl.abs(q_a", 1).replace(" *", ") *", 1) if "*" in term else term for term in terms
            ]
            terms += [f"tl.abs(q_{letter}{r}) * top" for letter in "bd" if f"{letter}{r}" in self.entries]
            out.append(f"next{r} = " + " + ".join(terms))
        out += [f"size{r} = next{r}" for r in u.vectors]
        small = " + ".join([f"size{r}" for r in u.vectors] + [f"tl.abs(q_{name})" for name in self.entries])
        finite = " + ".join(["tl.abs(delta)"] + [f"tl.abs(new[{i}])" for i in range(u.M)])
        out.append(f"fine = fine & ((({small}) <= {self.limit!r}) & (({finite}) <= {HUGE!r}) | (live == 0))")
        out += ["if KEEP:", "    tl.store(OUT + when * wide + k, z0_0, mask=ok & live)"]
        out.append("delta_last = tl.where(live, delta, delta_last)")
        return out + [f"f{i} = tl.where(live, new[{i}], f{i})" for i in range(u.M)]

    def _multiplied(self, total: str, by: str) -> list[str]:
        """total ← by · total, of two arrows."""
        out = []
        for r, c in sorted(self.pairs, key=lambda pair: pair[0] == pair[1]):
            excess = by == "q_a" and f"a{r}{r}" in self.u.scales
            own = f"{by}{r}{r} * {total}{r}{c}" if (r, r) in self.pairs else f"{total}{r}{c}"
            own = f"{total}{r}{c} + {own}" if excess else own
            if r != c:
                other = f" * {total}{c}{c}" if (c, c) in self.pairs else ""
                own = f"{own} + {by}{r}{c}{other}"
            out.append(f"{total}{r}{c} = {own}")
        return out

    def rows(self) -> list[str]:
        """V of the group's rows, and of the row after it."""
        out = []
        for i in range(self.ring):
            mask = "ok" if i < GROUP else f"ok & (row0 + none + {GROUP} < ROWS)"
            out += [
                f"z{r}_{i} = tl.load(y + {r} * ROWS * wide + {i} * wide, mask={mask}, other=0.0)"
                for r in self.u.vectors
            ]
        out += [f"T{r}{c} = nought + {1.0 if r == c else 0.0}" for r, c in self.pairs]
        return out + [line for r in self.pending for line in (f"p{r} = o{r}", f"o{r} = none_real")]

    def back(self) -> list[str]:
        """The group's coefficients in the place of its V, and its A rounded."""
        u, first = self.u, self.ring - GROUP
        out = [
            f"tl.store(y + {r} * ROWS * wide + {i} * wide, z{r}_{first + i}, mask=ok)"
            for r in u.vectors
            for i in range(GROUP)
        ]
        return out + [
            f"S{r}{c} = (T{r}{c}{' - 1.0' if f'a{r}{c}' in u.scales else ''}).to({self.real})" for r, c in self.pairs
        ]

    def _others(self) -> list[str]:
        """Rows outside the group, moved by the group's A."""
        out = ["at = z[None, :] + (other + i)[:, None] * wide"]
        out += [f"b{r} = tl.load(at + {r} * ROWS * wide, mask=within, other=0.0)" for r in self.u.vectors]
        for r in self.u.vectors:
            terms = [term.replace(" * b", "[None, :] * b") for term in self.row(r, lambda c: f"b{c}", "S")]
            out.append(f"u{r} = " + " + ".join(terms))
        return out

    def _put(self) -> list[str]:
        return [f"tl.store(at + {r} * ROWS * wide, u{r}, mask=within)" for r in self.u.vectors]

    def scale(self) -> list[str]:
        """Coefficients of rows gone by: only A moves them."""
        return self._others() + self._put()

    def spread(self) -> list[str]:
        """V of rows to come: by A, and by W with their products with the group's rows."""
        out = self._others()
        out.append("near = tl.load(G + (row0 + i)[None, :] * ROWS + other + i[:, None])")
        if self.pending:
            out.append(f"beyond = tl.load(G + (row0 + {GROUP}) * ROWS + other + i)[:, None]")
        for r in self.u.vectors:
            group = f"tl.load(y[None, :] + ({r} * ROWS + i)[:, None] * wide, mask=within, other=0.0)"
            more = f" + beyond * o{r}[None, :]" if r in self.pending else ""
            out.append(f"u{r} += tl.dot(near, {group}, input_precision=PRECISION, out_dtype={self.real}){more}")
        return out + self._put()

    def coefficients(self, r: int) -> list[str]:
        """Row r of W."""
        return [
            f"w{r} = tl.load(Z + ({r} * ROWS + j)[None, :] * wide + k[:, None], mask=ok[:, None], other=0.0)",
            f"w{r}, w{r}_rest = split(w{r}, THREE)",
        ]

    def fold(self, r: int) -> list[str]:
        """X_r after the chunk, from itself and what feeds it."""
        needed = sorted({r, *(c for c in self.u.vectors if (r, c) in self.pairs)})
        out = [f"x{c} = tl.load(x{c}_at + c[None, :], mask=there, other=0.0)" for c in needed]
        terms = " + ".join(self.row(r, lambda c: f"x{c}", "T"))
        return [*out, f"n{r} = product(w{r}, w{r}_rest, p, rest, {terms}, THREE)"]

    def compose(self) -> list[str]:
        """The chunk's A so far; and the first row's share from the step before the group, which V has had already."""
        out = [f"tl.store(y + {r} * ROWS * wide, z{r}_1 + p{r}, mask=ok)" for r in self.pending]
        return out + self._multiplied("total", "T")

    def last_row(self) -> list[str]:
        """The last φ' of a chunk that ends with a group has a row of its own, of which only weights take."""
        if self.stride == 2:
            return ["pass"]
        out = [f"if (L % {GROUP} == 0) & (L < ROWS):"]
        for r in self.u.vectors:
            value = f"o{r}" if r in self.pending else "none_real"
            out.append(f"    tl.store(z + ({r} * ROWS + L) * wide, {value}, mask=ok)")
        return out


def source(rule: Rule, dtype: str, *, apart: bool) -> str:
    """The text of this rule's kernels for a log in which each φ' is the next φ, or, ``apart``, need not be."""
    s = _Steps(rule, dtype, apart=apart)
    u, real = s.u, s.real
    kept = u.remembered()
    loads = [
        f"{name} = tl.load(BEFORE + {i} * wide + k, mask=ok, other=0.0)"
        + (f".to({real})" if name.startswith("size") else "")
        for i, name in enumerate(kept)
    ]
    constant = [
        line
        for name in rule.parameters
        for line in (f"{name} = tl.load({name}_at + k * {name}_k, mask=ok, other=0.0).to(tl.float64)",)
    ]
    scaled = [f"total{r}{c} - 1.0" if f"a{r}{c}" in u.scales else f"total{r}{c}" for r, c in s.pairs]
    return fill(
        _TEXT,
        real=dtype,
        m=str(u.m),
        GROUP=str(GROUP),
        steps=str(GROUP // s.stride),
        both=str(2 * s.ring),
        used="2 * L" if apart else "L + 1",
        pointers=", ".join(f"{name}_at, {name}_t, {name}_k" for name in rule.parameters),
        strides=", ".join(f'"{name}_t"' for name in rule.parameters),
        varies=", ".join(f"{name}_varies: tl.constexpr" for name in rule.parameters),
        load=["nought = tl.zeros((BLOCK,), tl.float64)", f"none_real = nought.to({real})", *loads],
        constant=constant,
        pending=[f"o{r} = none_real" for r in s.pending] or ["pass"],
        totals=[f"total{r}{c} = nought + {1.0 if r == c else 0.0}" for r, c in s.pairs],
        rows=s.rows(),
        step=s.step(),
        back=s.back(),
        scale=s.scale(),
        spread=s.spread(),
        compose=s.compose(),
        last_row=s.last_row(),
        store=[f"tl.store(AFTER + {i} * wide + k, {name}, mask=ok)" for i, name in enumerate(kept)]
        + [f"tl.store(TAIL + {i} * wide + k, ({value}).to({real}), mask=ok)" for i, value in enumerate(scaled)],
        tails=[
            f"T{r}{c} = tl.load(TAIL + {i} * wide + k, mask=ok, other=0.0)[:, None]" for i, (r, c) in enumerate(s.pairs)
        ],
        bases=[f"x{r}_at = X + ({r} * wide + k)[:, None] * n" for r in u.vectors],
        weights=_each(u.vectors, s.coefficients),
        fold=_each(u.vectors, s.fold),
        write=_each(u.vectors, lambda r: [f"tl.store(x{r}_at + c[None, :], n{r}, mask=there)"]),
    )


def _each(vectors: range, lines: Callable[[int], list[str]]) -> list[str]:
    """Lines for those vectors that a kernel is to write."""
    return [line for r in vectors for line in (f"if (FIRST <= {r}) & ({r} <= LAST):", *("    " + x for x in lines(r)))]
