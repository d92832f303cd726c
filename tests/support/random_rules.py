"""Rules drawn at random: any names, any structure, every computed entry bounded, so that any of them can be run."""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Callable, Sequence
from typing import Any

from emphatic import Rule

#: Names that kernels, small functions, NumPy, numba and Python itself use.
NASTY = (
    "p", "q", "n", "v", "i", "k", "t", "s", "x0", "y", "z", "c", "a", "b", "d", "f0", "p0", "p1", "a0_0", "b0",
    "z0", "h", "X", "S", "T", "M", "K", "A", "B", "C", "H", "E", "W", "Q", "V", "G", "Z", "P", "F", "D", "L",
    "begins", "real", "size", "scale", "index", "value", "step", "memory", "work", "load", "store", "read", "write",
    "update", "decide", "keep", "kept", "bounds", "zeros", "rounded", "excess", "rule", "after", "sums", "top",
    "learners", "frozen", "numba", "np", "tl", "triton", "inner", "small", "strict", "min", "max", "abs", "range",
    "len", "float", "out", "given", "dtype", "engine", "LIMIT", "HUGE", "COUNTER", "VECTORS", "OPTIONS",
    "lambda_next", "beta", "kappa", "_", "__", "_x", "ε",
)  # fmt: skip

#: Names of vectors and memory, which are attributes of a learner.
ATTRIBUTES = (
    "w", "e", "y", "z", "u", "gamma", "F", "D", "f0", "size0", "x", "p", "c", "X", "zz", "h", "real", "index",
    "value",
)  # fmt: skip

#: Chooses one of several options.
Pick = Callable[[Sequence[Any]], Any]

_number = itertools.count()


def make_rule(pick: Pick) -> Rule:
    """A rule of one or two weights, up to three traces, two remembered scalars and six parameters of its own."""
    names = pick_several(pick, ATTRIBUTES, 7)
    weights = ("theta", *names[: pick((0, 1))])
    traces = names[1 : 1 + pick(range(4))]
    memory = names[4 : 4 + pick(range(3))]
    vectors = weights + traces
    free = [name for name in NASTY if name not in vectors + memory]
    extra = pick_several(pick, free, pick(range(7)))
    m, M = len(vectors), len(memory)

    scalars = ["alpha", "I", "lambda_", "rho", "gamma_next", "delta"] + [f"own{i}" for i in range(len(extra))]
    scalars += [f"old{i}" for i in range(M)] + [f"at{r}" for r in range(m)] + [f"next{r}" for r in range(m)]
    scalars += ["square", "product", "square_next"]

    def entry(*literals: str) -> str:
        return pick((*literals, "", "")) or bounded(pick, scalars)

    A = [["0.0"] * m for _ in vectors]
    B = [["0.0", "0.0"] for _ in vectors]
    for r in range(m):
        A[r][r] = entry("1.0", "1", "-1") if r < len(weights) else entry("0.0", "0.5", "1", "-0.9", "1.1")
        B[r][0] = entry("0.0", "1", "0.25")
        for j in range(len(weights), m) if r < len(weights) else ():
            A[r][j] = entry("0.0")
        if r < len(weights):
            B[r][1] = entry("0.0", "0")
    if all(b in ("0.0", "0") for b in B[0]):
        B[0][0] = "alpha * delta"

    source = "def own(step, memory, x, x_next, g):\n"
    source += unpack(scalars[: 6 + len(extra)], "step") + unpack([f"old{i}" for i in range(M)], "memory")
    source += unpack([f"at{r}" for r in range(m)], "x") + unpack([f"next{r}" for r in range(m)], "x_next")
    source += unpack(["square", "product", "square_next"], "g")
    source += f"    return {group(A)}, {group(B)}, ({''.join(f'{bounded(pick, scalars)}, ' for _ in memory)})\n"
    function = functions_of(source)["own"]
    return Rule("random", function, weights=weights, traces=traces, memory=memory, extra=extra)


def pick_several(pick: Pick, options: Sequence[str], count: int) -> tuple[str, ...]:
    """Different ones, in any order."""
    chosen: list[str] = []
    for _ in range(count):
        chosen.append(pick([option for option in options if option not in chosen]))
    return tuple(chosen)


def bounded(pick: Pick, scalars: Sequence[str]) -> str:
    """Something of a few scalars, between −0.4 and 0.4; a rule may write 1 for 1.0."""
    form = pick(("{0} * {1}", "{0} - {1} * {2}", "({0} > 0.1) * {1}", "{0} + {1} / 2", "{0}"))
    return f"0.4 * max(min({form.format(*(pick(scalars) for _ in range(3)))}, 1), -1)"


def group(rows: Sequence[Sequence[str]]) -> str:
    """A tuple of tuples, as source."""
    return "(" + "".join(f"({', '.join(row)},), " for row in rows) + ")"


def unpack(names: Sequence[str], argument: str) -> str:
    """The line that gives the entries of an argument their names."""
    return f"    ({''.join(f'{name}, ' for name in names)}) = {argument}\n" if names else ""


def functions_of(source: str, **known: Any) -> dict[str, Any]:
    """The functions that a text defines, as if it were a file."""
    file = f"<random rule {next(_number)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    namespace: dict[str, Any] = dict(known)
    exec(compile(source, file, "exec"), namespace)
    return namespace
