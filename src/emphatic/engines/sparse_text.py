"""The text of the sparse engine's kernels; sparse.py holds the state they work on, SPARSE.md derives them.

Names in the text beyond those of ``text``: H{r}[k, i] is column i of H, E{j}[k, i] the epoch that trace j of that
column is up to date with, e{j} the present epoch; C[…] are the scales of learner k, in the slots of ``Layout``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from emphatic.engines.text import Unrolled, fill

if TYPE_CHECKING:
    from emphatic.rules import Rule

__all__ = ["DEAD", "HIGH", "LOW", "NEAR_THE_END", "SHRUNK", "STAMP", "Layout", "source"]

#: An epoch is closed when its trace's scale is below this part of its peak: the error is about 4e-16 divided by it.
SHRUNK = 1e-2
#: Outside these a scale is closed in any case; traces that feed no weight close only here.
LOW, HIGH = 1e-10, 1e10
#: What an epoch's columns keep of a trace counts as nothing below this.
DEAD = 1e-100
#: The type of stamps, which holds a position in φ too (modulo its largest value).
STAMP = {"float64": "int32", "float32": "int16"}
#: Beyond this, steps are taken on plain columns (C = 1), as the dense engine does: C and H need room that X does not.
NEAR_THE_END = {"float64": 1e280, "float32": 1e25}

_TEXT = '''⟨header⟩
real = np.⟨dtype⟩


def settle(k, ⟨columns⟩, scale, epoch, table):
    """Bring every column of learner k up to date and make C the identity: H is X."""
    C = scale[k]
    ⟨epochs⟩
    for i in range(H0.shape[1]):
        ⟨fetch⟩
        ⟨fold⟩
        ⟨reset_stamps⟩
    ⟨identity⟩
    epoch[k, :] = 0


settle = numba.njit(**OPTIONS)(settle)


def settle_all(⟨columns⟩, scale, epoch, table):
    """The same for every learner."""
    for k in range(scale.shape[0]):
        settle(k, ⟨columns⟩, scale, epoch, table)


def learn(⟨columns⟩, scale, epoch, table, scalars, index, value, index_next, value_next, ⟨parameters⟩):
    """One step of one learner; its TD error, or NaN if the step was refused and nothing changed."""
    n = H0.shape[1]
    if value.shape[0] != index.shape[0] or value_next.shape[0] != index_next.shape[0] or not (⟨acceptable⟩):
        return np.nan
    for a in range(index.shape[0]):
        if not -1 <= index[a] < n:
            return np.nan
    for a in range(index_next.shape[0]):
        if not -1 <= index_next[a] < n:
            return np.nan
    k = 0
    refused = np.nan
    begin, end, begin_next, end_next = 0, index.shape[0], 0, index_next.shape[0]
    ⟨look⟩
    top, top_next = 1.0 + pp, 1.0 + qq
    ⟨decide⟩
    ⟨move⟩
    ⟨store⟩
    return delta


def run(
    ⟨columns⟩, scale, epoch, table, scalars, start, index, value, start_next, index_next, value_next, top,
    ⟨all_parameters⟩, predictions, last_delta, work
):
    """T steps of K learners; −1, or t·K + k where learner k would diverge at step t."""
    K, n = H0.shape
    top_next = top
    keep = predictions.shape[0] > 0
    for t in range(start.shape[0] - 1):
        begin, end, begin_next, end_next = start[t], start[t + 1], start_next[t], start_next[t + 1]
        for k in range(K):
            refused = t * K + k
            ⟨at_t_k⟩
            ⟨look⟩
            ⟨decide⟩
            if keep:
                predictions[t, k] = x0
            last_delta[k] = delta
            kept = work[k]
            ⟨keep⟩
        for k in range(K):
            C = scale[k]
            kept = work[k]
            ⟨recall⟩
            ⟨move⟩
            ⟨store⟩
    return -1


def predict_one(⟨columns⟩, scale, epoch, table, index, value):
    """θ·φ of one learner, changing nothing; NaN if an index is out of range."""
    n, k = H0.shape[1], 0
    C = scale[k]
    total = 0.0
    for a in range(index.shape[0]):
        i = index[a]
        if not -1 <= i < n:
            return np.nan
        if i >= 0:
            ⟨read_theta⟩
            total += value[a] * theta
    return total


def predict(⟨columns⟩, scale, epoch, table, start, index, value, out):
    """θ·φ for every row and learner, changing nothing."""
    K, n = H0.shape
    for t in range(start.shape[0] - 1):
        for k in range(K):
            C = scale[k]
            total = 0.0
            for a in range(start[t], start[t + 1]):
                i = index[a]
                if 0 <= i < n:
                    ⟨read_theta⟩
                    total += value[a] * theta
            out[t, k] = total
'''

# The stamp of the first trace of φ's columns is borrowed to mark their position in φ, for φ·φ'; they are up to date
# then.
_LOOK = """C = scale[k]
⟨epochs⟩
⟨zeros⟩
for a in range(begin, end):
    i = index[a]
    if 0 <= i < n and ⟨mark⟩[k, i] >= 0:
        v = value[a]
        ⟨fetch⟩
        ⟨mark⟩[k, i] = -1 - (a - begin) % ⟨PERIOD⟩
        pp += v * v
        ⟨sums⟩
for a in range(begin_next, end_next):
    i = index_next[a]
    if 0 <= i < n:
        v = value_next[a]
        if ⟨mark⟩[k, i] < 0:
            b = begin - 1 - ⟨mark⟩[k, i]
            while index[b] != i:
                b += ⟨PERIOD⟩
            pq += value[b] * v
        else:
            ⟨fetch⟩
        qq += v * v
        ⟨sums_next⟩
for a in range(begin, end):
    i = index[a]
    if 0 <= i < n:
        ⟨mark⟩[k, i] = ⟨first_epoch⟩
⟨products⟩"""

_DECIDE = """⟨load⟩
⟨call⟩
⟨bounds⟩
if not (⟨finite⟩):
    return refused
near = 0.0
if not (⟨small⟩):
    near = 1.0
    settle(k, ⟨columns⟩, scale, epoch, table)
    ⟨scatter⟩
    ⟨trial_bounds⟩
    for i in range(n):
        p = dense[0, i]; q = dense[1, i]
        ⟨components⟩
        ⟨trial⟩
        if not (⟨trial_finite⟩):
            return refused
        ⟨trial_sizes⟩"""

_MOVE = """if near > 0.0:
    ⟨scatter⟩
    for i in range(n):
        p = dense[0, i]; q = dense[1, i]
        ⟨components⟩
        ⟨update⟩
else:
    ⟨advance⟩
    ⟨close⟩
    ⟨epochs⟩
    ⟨increments⟩
    for a in range(begin, end):
        i = index[a]
        if 0 <= i < n:
            v = value[a]
            ⟨fetch⟩
            ⟨add⟩
    ⟨add_next⟩"""

_SCATTER = """dense = np.zeros((2, n))
for a in range(begin, end):
    if 0 <= index[a] < n:
        dense[0, index[a]] = value[a]
for a in range(begin_next, end_next):
    if 0 <= index_next[a] < n:
        dense[1, index_next[a]] = value_next[a]"""

_CLOSE = """c = abs(C[⟨jj⟩])
if c > C[⟨peak⟩]:
    C[⟨peak⟩] = c
if c < ⟨LOW⟩ or c > ⟨HIGH⟩⟨or_shrunk⟩:
    e = epoch[k, ⟨now⟩]
    if e + 1 >= table.shape[2]:
        settle(k, ⟨columns⟩, scale, epoch, table)
    else:
        owed = table[k, ⟨trace⟩]
        owed[e, :] = 0.0
        owed[e, ⟨decay⟩] = 1.0
        live = epoch[k, ⟨live⟩]
        for s in range(live, e + 1):
            left = owed[s, ⟨decay⟩]
            ⟨owe⟩
            left *= C[⟨jj⟩]
            owed[s, ⟨decay⟩] = left if abs(left) > ⟨DEAD⟩ else 0.0
        while live <= e and owed[live, ⟨decay⟩] == 0.0:
            live += 1
        epoch[k, ⟨now⟩] = e + 1
        epoch[k, ⟨live⟩] = live
        ⟨unit⟩"""


class Layout:
    """Where everything of a learner lies: slots of C, of the epochs, and the fields of a column."""

    def __init__(self, rule: Rule) -> None:
        m, w = len(rule.vectors), len(rule.weights)
        self.m, self.w = m, w
        self.weights, self.traces = range(w), range(w, m)
        A, _ = rule.form
        #: The traces that each weight takes.
        self.takes = {r: [j for j in self.traces if A[r][j] != 0.0] for r in self.weights}
        slots = [(r, r) for r in range(m)] + [(r, j) for r in self.weights for j in self.takes[r]]
        self.slot = {pair: i for i, pair in enumerate(slots)}
        self.peak = {j: len(slots) + j - w for j in self.traces}
        self.scales = len(slots) + m - w
        self.names = [f"H{r}" for r in range(m)] + [f"E{j}" for j in self.traces]

    def fields(self, dtype: str) -> np.dtype[Any]:
        """One column: a value a vector, a stamp a trace."""
        return np.dtype([(name, dtype if name[0] == "H" else STAMP[dtype]) for name in self.names])

    def fresh(self, K: int) -> NDArray[np.float64]:
        """C = 1, peaks = 1."""
        scale = np.zeros((K, self.scales))
        scale[:, : self.m] = 1.0
        scale[:, self.scales - len(self.traces) :] = 1.0
        return scale


def source(rule: Rule, dtype: str) -> str:
    """The text of this rule's kernels."""
    u, at = Unrolled(rule), Layout(rule)
    R, w, C = u.vectors, at.w, at.slot
    limit = float(np.finfo(dtype).max)
    scales_itself = [r for r in at.weights if u.A[r][r] != 1.0]

    def owed(j: int, r: int, stamp: str) -> str:
        return f"table[k, {j - w}, {stamp}, {r}]"

    fetch: list[str] = []
    for j in at.traces:
        fetch += [f"s = E{j}[k, i]", f"if s != e{j}:", f"    h = H{j}[k, i]"]
        fetch += [f"    H{r}[k, i] += {owed(j, r, 's')} * h" for r in at.weights if j in at.takes[r]]
        fetch += [f"    H{j}[k, i] = h * {owed(j, w, 's')}", f"    E{j}[k, i] = e{j}"]

    def combine(r: int, name: str) -> str:
        return " + ".join([f"C[{C[r, r]}] * {name}{r}"] + [f"C[{C[r, j]}] * {name}{j}" for j in at.takes.get(r, [])])

    close: list[str] = []
    for j in at.traces:
        feeds = [r for r in at.weights if j in at.takes[r]]
        part = fill(
            _CLOSE,
            owe=[f"owed[s, {r}] += C[{C[r, j]}] / C[{C[r, r]}] * left" for r in feeds] or ["pass"],
            unit=[f"C[{C[j, j]}] = 1.0", f"C[{at.peak[j]}] = 1.0", *(f"C[{C[r, j]}] = 0.0" for r in feeds)],
            jj=str(C[j, j]),
            peak=str(at.peak[j]),
            trace=str(j - w),
            now=str(2 * (j - w)),
            live=str(2 * (j - w) + 1),
            decay=str(w),
            or_shrunk=f" or c < {SHRUNK!r} * C[{at.peak[j]}]" if feeds else "",
        )
        close += part.split("\n")
    for r in scales_itself:
        close += [
            f"if not {LOW!r} < abs(C[{C[r, r]}]) < {HIGH!r}:",
            "    settle(k, ⟨columns⟩, scale, epoch, table)",
        ]

    advance = [
        f"C[{C[r, j]}] = "
        + (f"C[{C[r, j]}]" if u.A[r][r] == 1.0 else f"a{r}{r} * C[{C[r, j]}]")
        + ("" if u.A[r][j] == 0.0 else f" + a{r}{j} * C[{C[j, j]}]")
        for r in at.weights
        for j in at.takes[r]
    ] + [f"C[{C[r, r]}] *= a{r}{r}" for r in R if u.A[r][r] is None]

    def coefficient(r: int, side: int) -> str:
        entry = u.B[r][side]
        return f"{'bd'[side]}{r}" if entry is None else repr(entry)

    increments = [f"u{j} = {coefficient(j, 0)} / C[{C[j, j]}]" for j in at.traces]
    for r in at.weights:
        less = "".join(f" - C[{C[r, j]}] * u{j}" for j in at.takes[r])
        increments.append(f"u{r} = ({coefficient(r, 0)}{less}) / C[{C[r, r]}]")
    next_ = [r for r in at.weights if u.B[r][1] != 0.0]
    increments += [f"v{r} = {coefficient(r, 1)} / C[{C[r, r]}]" for r in next_]
    add_next = ["for a in range(begin_next, end_next):", "    i = index_next[a]", "    if 0 <= i < n:"]
    add_next += ["        v = value_next[a]", "        ⟨fetch⟩", *(f"        H{r}[k, i] += v{r} * v" for r in next_)]

    read_theta: list[str] = [f"theta = C[{C[0, 0]}] * H0[k, i]"]
    for j in at.takes[0]:
        read_theta += [
            f"if E{j}[k, i] == epoch[k, {2 * (j - w)}]:",
            f"    theta += C[{C[0, j]}] * H{j}[k, i]",
            "else:",
            f"    theta += (C[{C[0, 0]}] * {owed(j, 0, f'E{j}[k, i]')} + C[{C[0, j]}] * {owed(j, w, f'E{j}[k, i]')})"
            f" * H{j}[k, i]",
        ]

    kept = [*u.results(), "near", *u.coefficients]
    return fill(
        _TEXT,
        look=_LOOK.split("\n"),
        decide=_DECIDE.split("\n"),
        move=_MOVE.split("\n"),
        scatter=_SCATTER.split("\n"),
        close=close,
        add_next=add_next if next_ else ["pass"],
        header=u.header(),
        dtype=dtype,
        columns=", ".join(at.names),
        parameters=", ".join(rule.parameters),
        all_parameters=", ".join(f"all_{name}" for name in rule.parameters),
        at_t_k=[f"{name} = all_{name}[t, k]" for name in rule.parameters],
        acceptable=u.acceptable(),
        mark=f"E{w}",
        first_epoch=f"e{w}",
        epochs=[f"e{j} = epoch[k, {2 * (j - w)}]" for j in at.traces],
        fetch=fetch,
        fold=[f"z{r} = np.float64(H{r}[k, i])" for r in R] + [f"H{r}[k, i] = {combine(r, 'z')}" for r in R],
        reset_stamps=[f"E{j}[k, i] = 0" for j in at.traces],
        identity=[
            *(f"C[{slot}] = {1.0 if r == c else 0.0}" for (r, c), slot in C.items()),
            *(f"C[{at.peak[j]}] = 1.0" for j in at.traces),
        ],
        zeros=[*(f"hx{r} = 0.0; hy{r} = 0.0" for r in R), "pp = 0.0; pq = 0.0; qq = 0.0"],
        sums=[f"hx{r} += H{r}[k, i] * v" for r in R],
        sums_next=[f"hy{r} += H{r}[k, i] * v" for r in R],
        products=[f"{v}{r} = {combine(r, f'h{v}')}" for r in R for v in "xy"],
        load=u.load(),
        call=u.call(),
        bounds=u.bounds(),
        # Sums are in float64 here; what a prediction in the dtype could not hold has diverged.
        finite=f"{u.finite()} and abs(x0) <= {limit!r} and abs(y0) <= {limit!r}",
        small=u.small(NEAR_THE_END[dtype]),
        components=[f"z{r} = H{r}[k, i]" for r in R],
        trial_bounds=[f"size_next{r} = 0.0" for r in R],
        trial=[f"t{r} = abs(np.float64(real({u.row(r)})))" for r in R],
        trial_finite=" and ".join(f"t{r} <= {limit!r}" for r in R),
        trial_sizes=[f"size_next{r} = max(size_next{r}, t{r})" for r in R],
        keep=[f"kept[{i}] = {name}" for i, name in enumerate(kept)],
        recall=[f"{name} = kept[{i}]" for i, name in enumerate(kept)],
        update=[f"H{r}[k, i] = {u.row(r)}" for r in R],
        advance=advance,
        increments=increments,
        add=[f"H{r}[k, i] += u{r} * v" for r in R],
        read_theta=read_theta,
        store=[
            *(f"scalars[k, {i}] = {name}" for i, name in enumerate(u.results())),
            f"scalars[k, {u.counter}] += 1.0",
        ],
        LOW=repr(LOW),
        HIGH=repr(HIGH),
        DEAD=repr(DEAD),
        PERIOD=str(np.iinfo(STAMP[dtype]).max),
    )
