"""The text of a rule's Triton kernels: the steps of a chunk on V, and what they make of X.  Derived in CUDA.md.

One thread has one learner. A chunk's steps go in groups: those of a group are written out, with every number they
touch in a variable of its own, which a GPU keeps in registers:

    v{r}_{i}        X_r·(row i of the group)
    q_a{r}{c}_{j}   step j's entry of A, rounded; likewise q_b{r}_{j} for φ and q_d{r}_{j} for φ'
    T{r}{c}         the product of the group's A, from the last step to the first
    w{r}_{i}        the coefficient of row i in X_r after the group
    o{r}            the same of the φ' of the group's last step, which is the next group's first row

Names of ``text`` besides. Steps after the last one of a short chunk are taken with A = 1 and B = 0.
"""

from __future__ import annotations

from emphatic.engines.text import HUGE, Unrolled, fill
from emphatic.rules import Rule

__all__ = ["GROUP", "source"]

#: Rows in a group.
GROUP = 16

_TEXT = '''import triton
import triton.language as tl

from emphatic.engines.cuda_kernels import product


@triton.jit(do_not_specialize=["t0", "L", "chunk", "parts", ⟨strides⟩])
def dual(
    Z, G, BEFORE, AFTER, TAIL, DELTA, FLAG, TOP, OUT, ⟨pointers⟩,
    t0, L, chunk, K, parts, ⟨varies⟩,
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
        g = G + row0 * ROWS + row0
        y = z + row0 * wide
        ⟨columns⟩
        ⟨group⟩
        ⟨back⟩
        tl.debug_barrier()
        for later in range(0, ROWS, ⟨GROUP⟩):
            if later != row0:
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
    ROWS: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr, THREE: tl.constexpr, STAGES: tl.constexpr,
):
    """X ← A_total X + W P for a block of learners and ``span`` columns; P comes as (n, ROWS)."""
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
    for begin in tl.range(first, min(first + span, n), TILE, num_stages=STAGES):
        c = begin + i
        inside = c < n
        p = tl.load(P + c[None, :] * ROWS + j[:, None], mask=inside[None, :], other=0.0)
        rest = tl.load(P_rest + c[None, :] * ROWS + j[:, None], mask=inside[None, :], other=0.0) if THREE else p
        there = ok[:, None] & inside[None, :]
        ⟨read⟩
        ⟨fold⟩
        ⟨write⟩
'''


class _Steps:
    """The lines that one group of steps is made of; ``apart`` is where φ' of a step is not φ of the next."""

    def __init__(self, rule: Rule, dtype: str, *, apart: bool) -> None:
        self.u = u = Unrolled(rule)
        self.rule, self.real = rule, f"tl.{dtype}"
        #: Rows from one step's φ to the next one's.
        self.stride = 2 if apart else 1
        self.steps = GROUP // self.stride
        self.limit = 1e30 if dtype == "float32" else 1e290
        R = u.vectors
        #: The entries of A and B that are not the identity's, with what they are where there is no step.
        self.entries: dict[str, tuple[str, str, float]] = {}
        for r in R:
            for c in R:
                if u.A[r][c] != (1.0 if r == c else 0.0):
                    name = f"a{r}{c}"
                    neutral = 1.0 if r == c and name not in u.scales else 0.0
                    self.entries[name] = (name, f"A[{r}][{c}]", neutral)
            for side, letter in enumerate("bd"):
                if u.B[r][side] != 0.0:
                    self.entries[f"{letter}{r}"] = (f"{letter}{r}", f"B[{r}][{side}]", 0.0)
        self.pairs = [(r, c) for r in R for c in R if f"a{r}{c}" in self.entries]
        self.shares = [r for r in range(u.w) if f"d{r}" in self.entries]

    @property
    def pending(self) -> list[int]:
        """The weights for which the φ' of a group's last step is the first row of the next."""
        return self.shares if self.stride == 1 else []

    def columns(self) -> list[str]:
        """V of the group's rows, and of the row after it."""
        out = []
        for i in range(GROUP + 2 - self.stride):
            mask = "ok" if i < GROUP else f"ok & (row0 + none + {GROUP} < ROWS)"
            out += [
                f"v{r}_{i} = tl.load(y + {r} * ROWS * wide + {i} * wide, mask={mask}, other=0.0)"
                for r in self.u.vectors
            ]
        return out

    def group(self) -> list[str]:
        """Every step of a group: the rule on entries of V and G, then V of the rows to come."""
        u, out = self.u, []
        x, y, products = self.rule.products
        loaded: set[tuple[int, int]] = set()

        def gram(a: int, b: int) -> str:
            if (a, b) not in loaded:
                loaded.add((a, b))
                mask = f", mask=row0 + {b} < ROWS, other=0.0" if b >= GROUP else ""
                out.append(f"g_{a}_{b} = tl.load(g + {a} * ROWS + {b}{mask})")
            return f"g_{a}_{b}"

        for j in range(self.steps):
            p = self.stride * j
            q = p + 1
            out += [f"live = first + none + {j} < L", f"t = t0 + first + {j}"]
            for name in self.rule.parameters:
                at = f"{name}_at + t * {name}_t + k * {name}_k"
                out.append(f"if {name}_varies:")
                out.append(f"    {name} = tl.load({at}, mask=ok & live, other=0.0).to(tl.float64)")
            out += [f"x{r} = v{r}_{p}.to(tl.float64)" if used else f"x{r} = nought" for r, used in enumerate(x)]
            out += [f"y{r} = v{r}_{q}.to(tl.float64)" if used else f"y{r} = nought" for r, used in enumerate(y)]
            for name, (a, b), used in zip(("pp", "pq", "qq"), ((p, p), (p, q), (q, q)), products, strict=True):
                if used and b >= GROUP and a >= GROUP:
                    # The last φ' of a group: its square is not in the group's own rows.
                    out.append(
                        f"{name} = tl.load(g + {a} * ROWS + {b}, mask=row0 + {b} < ROWS, other=0.0).to(tl.float64)"
                    )
                else:
                    out.append(f"{name} = {gram(a, b)}.to(tl.float64)" if used else f"{name} = 0.0")
            out += self._decide(j)
            for i in range(q, GROUP + 2 - self.stride):
                terms = {r: self._row(r, j, i, gram) for r in u.vectors}
                out += [f"n{r} = {terms[r]}" for r in u.vectors]
                out += [f"v{r}_{i} = n{r}" for r in u.vectors]
        return out

    def _row(self, r: int, j: int, i: int, gram: object) -> str:
        """Row r of A V + B [G_p; G_q] in column i after step j."""
        p = self.stride * j
        terms = []
        for c in self.u.vectors:
            name = f"a{r}{c}"
            if r == c and (name not in self.entries or name in self.u.scales):
                terms.append(f"v{r}_{i}")
            if name in self.entries:
                terms.append(f"q_{name}_{j} * v{c}_{i}")
        for letter, row in (("b", p), ("d", p + 1)):
            if f"{letter}{r}" in self.entries:
                value = gram(row, i) if row < GROUP else gram(i, row)  # type: ignore[operator]
                terms.append(f"q_{letter}{r}_{j} * {value}")
        return " + ".join(terms)

    def _decide(self, j: int) -> list[str]:
        """δ, the rule, its coefficients rounded, the bounds and the memory after step j."""
        u = self.u
        step = ", ".join("delta" if name == "R" else name for name in self.rule.parameters)
        memory = "".join(f"f{i}, " for i in range(u.M))
        x, y = (", ".join(f"{name}{r}" for r in u.vectors) for name in "xy")
        out = [
            "delta = R + gamma_next * y0 - x0",
            f"A, B, new = rule(({step}), ({memory}), ({x}), ({y}), (pp, pq, qq))",
        ]
        for name, entry, neutral in self.entries.values():
            value = f"{entry} - 1.0" if name in u.scales else entry
            out.append(f"q_{name}_{j} = tl.where(live, {value}, {neutral} + nought).to({self.real})")
        for r in u.vectors:
            terms = [f"size{r}"] if f"a{r}{r}" not in self.entries or f"a{r}{r}" in u.scales else []
            terms += [f"tl.abs(q_a{r}{c}_{j}) * size{c}" for c in u.vectors if f"a{r}{c}" in self.entries]
            terms += [f"tl.abs(q_{letter}{r}_{j}) * top" for letter in "bd" if f"{letter}{r}" in self.entries]
            out.append(f"next{r} = " + " + ".join(terms))
        out += [f"size{r} = next{r}" for r in u.vectors]
        small = " + ".join([f"size{r}" for r in u.vectors] + [f"tl.abs(q_{name}_{j})" for name in self.entries])
        finite = " + ".join(["tl.abs(delta)"] + [f"tl.abs(new[{i}])" for i in range(u.M)])
        out.append(f"fine = fine & ((({small}) <= {self.limit!r}) & (({finite}) <= {HUGE!r}) | (live == 0))")
        out += [f"if KEEP:\n    tl.store(OUT + t * wide + k, v0_{self.stride * j}, mask=ok & live)"]
        out += ["delta_last = tl.where(live, delta, delta_last)"]
        return out + [f"f{i} = tl.where(live, new[{i}], f{i})" for i in range(u.M)]

    def back(self) -> list[str]:
        """The group's coefficients and its A, collected from the last step to the first, and put in V's place."""
        u = self.u
        out = [f"T{r}{c} = nought + {1.0 if r == c else 0.0}" for r, c in self.pairs]
        found: dict[tuple[int, int], str] = {}

        def give(r: int, row: int, share: str) -> None:
            out.append(f"w{r}_{row} = {found[r, row] + ' + ' if (r, row) in found else ''}{share}")
            found[r, row] = f"w{r}_{row}"

        for j in reversed(range(self.steps)):
            p = self.stride * j
            for r in u.vectors:
                if f"d{r}" in self.entries and p + 1 < GROUP:
                    own = f"T{r}{r} * " if (r, r) in self.pairs else ""
                    give(r, p + 1, f"{own}q_d{r}_{j}")
                terms = [
                    (f"T{r}{c} * " if (r, c) in self.pairs else "") + f"q_b{c}_{j}"
                    for c in u.vectors
                    if f"b{c}" in self.entries and (r == c or (r, c) in self.pairs)
                ]
                if terms:
                    give(r, p, " + ".join(terms))
            for r, c in sorted(self.pairs, key=lambda pair: pair[0] == pair[1]):
                entry, own = f"q_a{r}{c}_{j}", f"T{r}{r}" if (r, r) in self.pairs else "1.0"
                if r != c:
                    decay = f" * q_a{c}{c}_{j}" if (c, c) in self.pairs else ""
                    out.append(f"T{r}{c} = {own} * {entry} + T{r}{c}{decay}")
                else:
                    more = f"T{r}{r} + " if f"a{r}{r}" in u.scales else ""
                    out.append(f"T{r}{r} = {more}T{r}{r} * {entry}")
        for r in self.pending:
            own = f"T{r}{r} * " if (r, r) in self.pairs else ""
            give(r, 0, f"{own}o{r}")
            out.append(f"o{r} = q_d{r}_{self.steps - 1}")
        for r in u.vectors:
            for row in range(GROUP):
                value = f"w{r}_{row}.to({self.real})" if (r, row) in found else f"nought.to({self.real})"
                out.append(f"tl.store(y + {r} * ROWS * wide + {row} * wide, {value}, mask=ok)")
        out += [f"S{r}{c} = T{r}{c}.to({self.real})" for r, c in self.pairs]
        return out + [
            f"S{r}{r} = (T{r}{r} - 1.0).to({self.real})" for r, c in self.pairs if r == c and f"a{r}{r}" in u.scales
        ]

    def spread(self) -> list[str]:
        """Rows outside the group: V of those to come and coefficients of those gone by move by the group's A and W."""
        u = self.u
        out = [
            "at = z[None, :] + (later + i)[:, None] * wide",
            "near = tl.load(g - row0 + i[None, :] * ROWS + later + i[:, None])",
            "near = tl.where(later > row0, near, 0.0)",
        ]
        out += [f"z{r} = tl.load(at + {r} * ROWS * wide, mask=within, other=0.0)" for r in u.vectors]
        for r in u.vectors:
            group = f"tl.load(y[None, :] + ({r} * ROWS + i)[:, None] * wide, mask=within, other=0.0)"
            terms = [f"z{r}"] if (r, r) not in self.pairs or f"a{r}{r}" in u.scales else []
            terms += [f"S{r}{c}[None, :] * z{c}" for c in u.vectors if (r, c) in self.pairs]
            out.append(f"u{r} = " + " + ".join(terms))
            if r in self.pending:
                beyond = f"tl.load(g - row0 + {GROUP} * ROWS + later + i, mask=later > row0 + i * 0, other=0.0)"
                out.append(f"u{r} += {beyond}[:, None] * o{r}[None, :]")
            out.append(f"u{r} = tl.dot(near, {group}, u{r}, input_precision=PRECISION, out_dtype={self.real})")
        return out + [f"tl.store(at + {r} * ROWS * wide, u{r}, mask=within)" for r in u.vectors]

    def compose(self) -> list[str]:
        """The chunk's A so far."""
        out = []
        for r, c in sorted(self.pairs, key=lambda pair: pair[0] == pair[1]):
            own = f"T{r}{r} * " if (r, r) in self.pairs else ""
            if r == c:
                out.append(f"total{r}{r} = {own}total{r}{r}")
            else:
                out.append(f"total{r}{c} = {own}total{r}{c} + T{r}{c} * {self._total(c)}")
        return out

    def _total(self, c: int) -> str:
        return f"total{c}{c}" if (c, c) in self.pairs else "1.0"

    def last_row(self) -> list[str]:
        """The last φ' of a chunk that ends with a group has a row of its own, of which only weights take."""
        if self.stride == 2:
            return ["pass"]
        out = [f"if (L % {self.steps} == 0) & (L < ROWS):"]
        for r in self.u.vectors:
            value = f"o{r}" if r in self.pending else f"nought.to({self.real})"
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
        for line in (
            f"{name} = tl.load({name}_at + k * {name}_k, mask=ok, other=0.0).to(tl.float64)",
        )
    ]
    scaled = [f"total{r}{c} - 1.0" if f"a{r}{c}" in u.scales else f"total{r}{c}" for r, c in s.pairs]
    fold = []
    for r in u.vectors:
        terms = [f"x{r}"] if (r, r) not in s.pairs or f"a{r}{r}" in u.scales else []
        terms += [f"T{r}{c} * x{c}" for c in u.vectors if (r, c) in s.pairs]
        fold.append(f"n{r} = product(w{r}, p, rest, {' + '.join(terms)}, THREE)")
    return fill(
        _TEXT,
        real=dtype,
        m=str(u.m),
        GROUP=str(GROUP),
        steps=str(s.steps),
        pointers=", ".join(f"{name}_at, {name}_t, {name}_k" for name in rule.parameters),
        strides=", ".join(f'"{name}_t"' for name in rule.parameters),
        varies=", ".join(f"{name}_varies: tl.constexpr" for name in rule.parameters),
        load=["nought = tl.zeros((BLOCK,), tl.float64)", *loads],
        constant=constant,
        pending=[f"o{r} = nought.to({real})" for r in s.pending] or ["pass"],
        totals=[f"total{r}{c} = nought + {1.0 if r == c else 0.0}" for r, c in s.pairs],
        columns=s.columns(),
        group=[part for line in s.group() for part in line.split("\n")],
        back=s.back(),
        spread=s.spread(),
        compose=s.compose(),
        last_row=s.last_row(),
        store=[f"tl.store(AFTER + {i} * wide + k, {name}, mask=ok)" for i, name in enumerate(kept)]
        + [f"tl.store(TAIL + {i} * wide + k, ({value}).to({real}), mask=ok)" for i, value in enumerate(scaled)],
        tails=[
            f"T{r}{c} = tl.load(TAIL + {i} * wide + k, mask=ok, other=0.0)[:, None]" for i, (r, c) in enumerate(s.pairs)
        ],
        weights=[
            f"w{r} = tl.load(Z + ({r} * ROWS + j)[None, :] * wide + k[:, None], mask=ok[:, None], other=0.0)"
            for r in u.vectors
        ],
        bases=[f"x{r}_at = X + ({r} * wide + k)[:, None] * n" for r in u.vectors],
        read=[f"x{r} = tl.load(x{r}_at + c[None, :], mask=there, other=0.0)" for r in u.vectors],
        fold=fold,
        write=[f"tl.store(x{r}_at + c[None, :], n{r}, mask=there)" for r in u.vectors],
    )
