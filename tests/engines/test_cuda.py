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


@pytest.mark.parametrize("rules", [emphatic.rules.names()[i::2] for i in range(2)], ids="-".join)
def test_every_rule_follows_the_equations(rules: tuple[str, ...]) -> None:
    interpreted("follow_the_equations", *rules)


def test_a_run_in_pieces_by_learn_with_tensors_and_from_a_file(tmp_path: Path) -> None:
    interpreted("go_on_in_any_way", str(tmp_path / "m.safetensors"))


def test_divergence_ranges_frozen_learners_and_any_rule() -> None:
    interpreted("learn_as_the_reference_does")


def test_what_it_needs_is_said() -> None:
    if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
        assert "cuda" not in emphatic.engines.available()
        with pytest.raises(ValueError, match="Got 'cuda' instead, which needs a GPU"):
            emphatic.Learner("td", 2, 2, engine="cuda")
