"""The cuda engine: interpreted on the CPU, and compiled for a GPU that need not be there; skipped without Triton.

Triton decides when it is imported whether it interprets, so all that is interpreted goes through processes of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import emphatic

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch", reason="needs torch: pip install 'emphatic[cuda]'")
    triton = pytest.importorskip("triton", reason="needs triton: pip install 'emphatic[cuda]'")

ROOT = Path(__file__).parent.parent

#: Two streams for a rule: one log, and φ' apart; more steps than two groups, learners and features odd.
CONTRACT = """
import sys
from tests.streams import TOLERANCE, make, relative_error
for rule in sys.argv[1:]:
    for seed, separate, dtype, K in ((0, False, "float64", 3), (1, True, "float32", None)):
        stream = make(seed, 35 if K else 19, 7, K, rule=rule, separate=separate)
        learner = emphatic.Learner(rule, stream.n, K, dtype=dtype, engine="cuda")
        predictions, expected = stream.run(learner), stream.expected(rule)
        found = {"predictions": relative_error(predictions, expected.predictions)}
        for name in learner.rule.vectors:
            found[name] = relative_error(getattr(learner, name), expected.vectors[name])
        assert max(found.values()) < TOLERANCE[dtype], (rule, dtype, found)
"""


def interpreted(code: str, *arguments: str) -> str:
    """Run with Triton's interpreter."""
    env = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    program = f"import numpy as np\nimport emphatic\n{code}"
    command = [sys.executable, "-W", "ignore", "-c", program, *arguments]
    result = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.parametrize("rules", [emphatic.rules.names()[i::4] for i in range(4)], ids="-".join)
def test_every_rule_follows_the_equations(rules: tuple[str, ...]) -> None:
    interpreted(CONTRACT, *rules)


def test_a_run_in_pieces_by_learn_with_tensors_and_from_a_file(tmp_path: Path) -> None:
    interpreted(
        """
import sys, torch
from tests.streams import make, relative_error
rule = "gtd"
stream = make(5, 67, 6, 2, rule=rule)
expected = stream.expected(rule)
def new():
    return emphatic.Learner(rule, 6, 2, engine="cuda")
whole = new()
predictions = stream.run(whole)
assert relative_error(predictions, expected.predictions) < 1e-10 and whole.steps == 67
assert "cuda" in emphatic.engines.available() and "numba" not in sys.modules
pieces = new()
stream[:16].run(pieces)
stream[16:17].learn(pieces)
pieces.save(sys.argv[1])
dense = emphatic.load(sys.argv[1], engine="reference")
stream[17:].run(dense)
dense.save(sys.argv[1])
back = emphatic.load(sys.argv[1], engine="cuda")
for learner in (whole, dense, back, back.copy(), back.select([0, 1])):
    for name in learner.rule.vectors:
        assert relative_error(getattr(learner, name), expected.vectors[name]) < 1e-10, (learner, name)
    assert learner.steps == 67
tensors = {name: torch.tensor(value) for name, value in stream.parameters().items()}
made = new().run(torch.tensor(stream.Phi), predictions="device", **tensors)
assert isinstance(made, torch.Tensor) and relative_error(made.numpy(), expected.predictions) < 1e-10
errors = new().run(stream.Phi, predictions=None, returns=stream.R, **stream.parameters())
assert relative_error(errors, np.square(expected.predictions - stream.R).mean(0)) < 1e-10
far = torch.from_file(sys.argv[1] + ".R", shared=True, size=67 << 27, dtype=torch.float64).view(67, 1 << 27)[:, :2]
far.copy_(tensors["R"])  # a step's numbers as far apart as those of a hundred million learners
distant = new()
assert relative_error(distant.run(stream.Phi, **(tensors | {"R": far})), expected.predictions) < 1e-10
back.cut()
assert not back.e.any() and not back.gamma.any() and back.theta.any()
try:
    new().run(torch.full((68, 6), float("nan")), predictions="device", **tensors)
except ValueError as error:
    assert "'Phi' parameter of run must be finite in float64. Got nan at step 0, feature 0 instead." in str(error)
else:
    raise AssertionError
""",
        str(tmp_path / "m.safetensors"),
    )


def test_divergence_names_step_and_learner_and_freezes() -> None:
    interpreted(
        """
def run(engine, dtype, **how):
    learner = emphatic.Learner("td", 2, 3, engine=engine, dtype=dtype)
    try:
        out = learner.run(np.ones((61, 2)), 1.0, 0.9, alpha=np.array([0.1, 50.0, 1e3]), **how)
        return out, learner
    except emphatic.Diverged as error:
        return str(error), learner
message, there = run("reference", "float32")
again, here = run("cuda", "float32")
assert message == again and "Learner 2 diverged at step 16" in again and here.steps == there.steps == 16
assert np.allclose(here.theta, there.theta, rtol=1e-5)
(out, one), (made, other) = (run(engine, "float32", on_divergence="freeze") for engine in ("reference", "cuda"))
assert other.frozen.tolist() == one.frozen.tolist() == [False, True, True]
assert np.allclose(other.theta, one.theta, rtol=1e-5) and np.allclose(made, out, rtol=1e-5)
"""
    )


def test_what_it_needs_is_said() -> None:
    if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
        assert "cuda" not in emphatic.engines.available()
        with pytest.raises(ValueError, match="Got 'cuda' instead, which needs a GPU"):
            emphatic.Learner("td", 2, 2, engine="cuda")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("rule", emphatic.rules.names())
def test_every_kernel_compiles_for_a_gpu(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As they are launched for float32: Triton's interpreter takes more than its compiler."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from emphatic.engines import cuda, cuda_kernels
    from emphatic.engines.cuda_blocks import ROWS

    monkeypatch.setattr(cuda, "device", lambda: "cuda")
    made = cuda.kernels(emphatic.rules.get(rule), "float32", rule == "gq")
    parameters = emphatic.rules.get(rule).parameters
    constants: dict[str, Any] = {f"{name}_varies": name == "R" for name in parameters}
    constants |= {"R_k": 1, "KEEP": True, "PRECISION": "tf32x3", "THREE": True, "ROWS": ROWS}
    constants |= {"FIRST": 0, "LAST": 0}
    pointers = dict.fromkeys(("X", "Z", "G", "H", "P", "P_rest", "TAIL", "OUT"), "*fp32") | {"FLAG": "*i32"}
    pointers |= dict.fromkeys(("BEFORE", "AFTER", "DELTA", "TOP", *(f"{name}_at" for name in parameters)), "*fp64")
    for function, shape in ((made.dual, "dual"), (made.update, "update"), (cuda_kernels.project, "project")):
        settings: dict[str, Any] = dict(cuda._SHAPES["float32"][shape])
        options = {"num_warps": settings.pop("num_warps")}
        given = {name: value for name, value in (constants | settings).items() if name in function.arg_names}
        signature = {name: pointers.get(name, "i32") for name in function.arg_names} | dict.fromkeys(given, "constexpr")
        source = ASTSource(function, signature, constexprs=given)
        compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
        assert ".visible .entry" in compiled.asm["ptx"]
        assert compiled.metadata.shared <= 232_448, (shape, compiled.metadata.shared)
