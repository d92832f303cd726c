"""Triton takes every rule's source too: compiled for a GPU that need not be there; skipped where Triton is not."""

from __future__ import annotations

import types
import warnings

import pytest

import emphatic.rules

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    triton = pytest.importorskip("triton", reason="needs triton: pip install triton")
    tl = pytest.importorskip("triton.language")


@triton.jit  # type: ignore[untyped-decorator]
def load(P, count: tl.constexpr):  # type: ignore[no-untyped-def, name-defined]
    out = (tl.load(P),)
    for i in tl.static_range(1, count):
        out = out + (tl.load(P + i),)  # type: ignore[assignment]  # noqa: RUF005
    return out


@triton.jit  # type: ignore[untyped-decorator]
def one_step(STEP, MEMORY, X, X_NEXT, G, OUT, rule: tl.constexpr, S: tl.constexpr, M: tl.constexpr, m: tl.constexpr):  # type: ignore[no-untyped-def, name-defined]
    A, B, memory = rule(load(STEP, S), load(MEMORY, M), load(X, m), load(X_NEXT, m), load(G, 3))
    for i in tl.static_range(M):
        tl.store(OUT + i, memory[i])
    tl.store(OUT + M, A[0][m - 1])
    tl.store(OUT + M + 1, B[0][0])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", emphatic.rules.names())
def test_a_rule_compiles_for_a_gpu(name: str) -> None:
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    rule = emphatic.rules.get(name)
    function = types.FunctionType(rule.pure.__code__, {"min": tl.minimum, "max": tl.maximum}, rule.name)
    function.__module__ = rule.pure.__module__
    constants = {"rule": triton.jit(function), "S": len(rule.parameters), "M": len(rule.memory), "m": len(rule.vectors)}
    pointers = dict.fromkeys(("STEP", "MEMORY", "X", "X_NEXT", "G", "OUT"), "*fp32")
    source = ASTSource(one_step, pointers | dict.fromkeys(constants, "constexpr"), constexprs=constants)
    assert ".visible .entry" in triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"]
