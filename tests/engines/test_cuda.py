"""The cuda engine as Triton interprets it, on the CPU; skipped without Triton.

Triton decides when it is imported whether it interprets, so all that is interpreted is run in processes of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import emphatic
from tests.support.rules import EVERY

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch", reason="needs torch: pip install 'emphatic[cuda]'")
    pytest.importorskip("triton", reason="needs triton: pip install 'emphatic[cuda]'")

ROOT = Path(__file__).parents[2]


def interpreted(check: str, *arguments: str) -> None:
    """One of the checks of ``tests.support.interpreted``."""
    env = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-W", "ignore", "-m", "tests.support.interpreted", check, *arguments]
    result = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("rules", [EVERY[i::2] for i in range(2)], ids="-".join)
def test_every_rule_follows_the_equations(rules: tuple[str, ...]) -> None:
    interpreted("follow_the_equations", *rules)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a learner of cuda-tf32, after a run in pieces, by learn, with tensors and from a file."""
    path = tmp_path_factory.mktemp("cuda") / "m.safetensors"
    interpreted("go_on_in_any_way", str(path))
    return path


def test_a_run_in_pieces_by_learn_with_tensors_and_from_a_file(saved: Path) -> None:
    assert saved.stat().st_size


def test_divergence_ranges_frozen_learners_and_any_rule() -> None:
    interpreted("learn_as_the_reference_does")


def test_several_chunks_and_shares_of_columns() -> None:
    interpreted("learn_in_chunks")


def test_several_devices_and_arrays_of_other_libraries(tmp_path: Path) -> None:
    interpreted("use_devices_and_arrays", str(tmp_path / "m.safetensors"))


def test_sequences_begin_within_a_chunk() -> None:
    interpreted("start_sequences")


def test_some_of_the_attack() -> None:
    interpreted("withstand_the_attack")


def test_halves_hold_what_they_claim_to() -> None:
    """FP16 halves are as exact as those of TF32 wherever a chunk is said to fit."""
    from emphatic.engines.cuda.engine import _halve

    P = torch.randn(7, 64, 96, generator=torch.Generator().manual_seed(0))
    P[1] *= torch.logspace(-6, 6, 96)  # components of many scales
    P[2, 5] *= 1e7  # one row far above the others
    P[3] *= 1e20
    P[4] = 0.0
    P[5] = (P[5] > 1.0).float()
    P[6, :, 7] = 2.0**-15 * (P[6].abs().amax())  # as faint as may be
    scale, fits, high, low = _halve(P)
    assert fits.tolist() == [True, False, False, True, True, True, True]
    made = scale[:, None, None] * (high.double() + low.double())
    largest = P.abs().amax((1, 2), keepdim=True)
    for chunk in fits.nonzero()[:, 0]:
        clear = P[chunk].abs() >= 2.0**-16 * largest[chunk]
        error = (made - P)[chunk].abs()
        assert (error[clear] <= 2.0**-22 * P[chunk].abs()[clear]).all()
        assert (error <= 2.0**-38 * largest[chunk].double()).logical_or(clear).all()


def test_it_is_only_ever_chosen_by_name() -> None:
    sizes = (1, 100, 1_000_000)
    chosen = {
        emphatic.engines.choose(n, K, T, active)
        for n in sizes for K in (None, *sizes) for T in sizes for active in (None, 1.0)
    }  # fmt: skip
    assert chosen <= {"dense", "sparse", "chunked"}


def test_what_it_needs_is_said(saved: Path) -> None:
    if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
        assert "cuda" not in emphatic.engines.available()
        with pytest.raises(ValueError, match="Got 'cuda' instead, which needs a GPU"):
            emphatic.Learner("td", 2, 2, engine="cuda")
        for engine in (None, "cuda", "cuda-tf32"):
            named = engine or "cuda-tf32"
            with pytest.raises(ValueError, match=f"such as 'auto': '{named}' needs a GPU") as info:
                emphatic.load(saved, engine=engine)
            assert not isinstance(info.value, emphatic.CheckpointError)
        assert emphatic.load(saved, engine="auto").steps
    with pytest.raises(ValueError, match="'devices' parameter of Learner must come with engine='cuda'"):
        emphatic.Learner("td", 2, 2, devices=[0])
