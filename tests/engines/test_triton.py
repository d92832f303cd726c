"""Kernels of the cuda engine, compiled for a GPU that need not be there; skipped where Triton is not.

Triton's interpreter takes more than its compiler. Most of what the compiler refuses it refuses when it reads a kernel's
source, which is quick.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import emphatic.rules
from emphatic.rules import Rule, Scalars, Update
from tests.support.contract import STRUCTURES
from tests.support.rules import EVERY, find

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.xdist_group("triton")]


@pytest.fixture(scope="module", autouse=True)
def triton() -> Any:
    """Imported by the worker that needs it: torch takes more than a second."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("torch", reason="needs torch: pip install 'emphatic[cuda]'")
        return pytest.importorskip("triton", reason="needs triton: pip install 'emphatic[cuda]'")


def no_trace(step: Scalars, memory: Scalars, x: Scalars, x_next: Scalars, g: Scalars) -> Update:
    """Residual gradient, with numbers that a float32 does not hold, and with extras of a kernel's names."""
    alpha, I, lambda_, rho, gamma_next, delta, tl, p0_at = step
    w = alpha * max(rho, 0.1) * delta * tl
    return ((1.0,),), ((w, -gamma_next * w * min(0.3, 0.7) * p0_at),), ()


NO_TRACE = Rule("no_trace", no_trace, weights=("theta",), traces=(), memory=(), extra=("tl", "p0_at"))


def sources(rule: Rule, dtype: str, apart: bool, broken: bool = True) -> dict[str, tuple[Any, dict[str, int]]]:
    """Each kernel as it is launched: what Triton compiles, and its options. In float32 also the kernels of halves."""
    from triton.compiler import ASTSource

    from emphatic.engines.cuda import cuda_products
    from emphatic.engines.cuda import engine as cuda_part
    from emphatic.engines.cuda.engine import ROWS

    made = cuda_part.kernels(rule, dtype)
    count = len(rule.parameters)
    constants: dict[str, Any] = {f"p{i}_varies": i == 5 for i in range(count)}
    constants |= {"p5_k": 1, "KEEP": True, "APART": apart, "BROKEN": broken, "ROWS": ROWS}
    passes = cuda_part._passes(rule.form[0])
    unused = {"dual" if len(rule.vectors) > 2 else "dual of many"}
    unused |= set() if any(r == s for r, s in passes) else {"update of one"}
    one, other = passes[0]
    constants |= {"ONE": one, "OTHER": other}
    constants |= {"THREE": dtype == "float32"}
    pointers = dict.fromkeys(("X", "Z", "G", "H", "P", "P_rest", "TAIL", "OUT"), f"*fp{dtype[-2:]}")
    pointers |= {"FLAG": "*i32", "FROZEN": "*i8", "FIRST": "*i32", "SCALE": "*fp32"}
    pointers |= dict.fromkeys(
        ("BEFORE", "AFTER", "GROUPS", "DELTA", "TOP", *(f"p{i}_at" for i in range(count))), "*fp64"
    )
    halves = [("halves", dict.fromkeys(("P", "P_rest"), "*fp16"))] if dtype == "float32" else []
    functions = {"dual": made.dual, "update": made.update, "project": cuda_products.project}
    found = {}
    for form, others in ((dtype, {}), *halves):
        for name, shapes in cuda_part.SHAPES[form].items():
            if name in unused:
                continue
            function, settings = functions[name.split()[0]], dict(shapes[0])
            options: dict[str, int] = {key: settings.pop(key) for key in ("num_warps", "maxnreg") if key in settings}
            settings |= {"HALVES": form == "halves", "NEXT": form == "halves"}
            settings |= {"OTHER": one} if name == "update of one" else {}
            given = {name: value for name, value in (constants | settings).items() if name in function.arg_names}
            signature = {name: (pointers | others).get(name, "i32") for name in function.arg_names}
            signature |= dict.fromkeys(given, "constexpr")
            found[f"{name}, {form}"] = ASTSource(function, signature, constexprs=given), options
    return found


def read(source: Any, options: dict[str, int]) -> str:
    """What Triton's compiler makes of a kernel's source at first."""
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget
    from triton.compiler import make_backend

    target = GPUTarget("cuda", 90, 32)
    backend = make_backend(target)
    parsed = backend.parse_options(options | source.parse_options())
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    functions, modules = backend.get_codegen_implementation(parsed), backend.get_module_map()
    return str(source.make_ir(target, parsed, functions, modules, context))


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in (*STRUCTURES, "gq") else pytest.mark.long) for name in EVERY],
)
def test_the_compiler_reads_every_kernel(name: str) -> None:
    rule = find(name)
    for kernel, given in sources(rule, "float32", apart=name == "gq").items():
        assert "tt.func public" in read(*given), kernel


@pytest.mark.parametrize("method", ["auto", "alphabound", "decaying"])
def test_the_compiler_reads_rules_with_step_sizes(method: str) -> None:
    rule: Any = emphatic.stepsizes.get(method).rule(emphatic.rules.get("true_online_etd"))
    kernels = sources(rule, "float32", apart=False)
    for kernel in (name for name in kernels if name.startswith("dual")):
        assert "tt.func public" in read(*kernels[kernel]), kernel


@pytest.mark.parametrize("maker", ["truncated_etd", "nstep_etd"])
def test_the_compiler_reads_emphasis_over_sixteen_steps(maker: str) -> None:
    """The most memory that a rule of emphasis has; ``test_cuda`` runs rules, and what is elementwise is refused."""
    kernels = sources(getattr(emphatic.rules, maker)(16), "float32", apart=False)
    for kernel in (name for name in kernels if name.startswith("dual")):
        assert "tt.func public" in read(*kernels[kernel]), kernel


def test_numbers_of_a_rule_are_float64() -> None:
    """Triton 3.6 makes a float32 of a number that meets a minimum, and then a float64 of that."""
    text = read(*sources(NO_TRACE, "float64", apart=False)["dual, float64"])
    for number in ("1.000000e-01", "3.000000e-01"):
        assert f"arith.constant {number} : f64" in text


@pytest.mark.parametrize("broken", [True, pytest.param(False, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("true_online_etd", "float32"),
        ("no_trace", "float64"),
        pytest.param("true_online_gtd_separate", "float64", marks=pytest.mark.long),
    ],
)
def test_every_kernel_compiles_for_a_gpu(name: str, dtype: str, broken: bool, triton: Any) -> None:
    """Down to machine code. (Triton 3.6 aborts on a product of float64 if an int8 has to do with a factor.)"""
    from triton.backends.compiler import GPUTarget

    rule = NO_TRACE if name == "no_trace" else find(name)
    for kernel, (source, options) in sources(rule, dtype, apart=rule is NO_TRACE, broken=broken).items():
        compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
        assert ".visible .entry" in compiled.asm["ptx"]
        assert compiled.metadata.shared <= 232_448, (kernel, compiled.metadata.shared)
        # λI + (1−λ)F must not become F + λ(I−F).
        assert not {"reassoc", "fast"} & set(compiled.asm["llir"].split())
