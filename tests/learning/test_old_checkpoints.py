"""Checkpoints under tests/data load for ever, and learners go on from them as the version that made them did.

Where the outcome is held to the bit, that is on the machine that made it, with the same NumPy and compilers: elsewhere
sums are taken in another order, and the contract's tolerance holds. How a file is read is held to the bit everywhere.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emphatic
from emphatic import Horde
from tests.support import checkpoints
from tests.support.checkpoints import DATA, FORMS, Arrays
from tests.support.streams import TOLERANCE, relative_error

FOLDERS = sorted(path for path in DATA.iterdir() if path.is_dir())
FILES = [path for folder in FOLDERS for form in FORMS for path in sorted((folder / form).glob("*-float*.safetensors"))]
ROOT = Path(__file__).parents[2]

#: What still goes on to the same bits as the version that wrote it.
BIT_FOR_BIT = {"reference"}
#: What does so only to rounding, and why.
KERNELS = "a rule's scalars are compiled as they are written, and sums are in another order than in 0.1.0"
TO_ROUNDING = dict.fromkeys([*(form for form in FORMS if form != "reference"), "frozen", "nexting", "horde"], KERNELS)

every_folder = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


def hold(what: str, folder: Path, got: Arrays, of: str = "") -> None:
    """What was made now against what was made then."""
    metadata, stored = checkpoints.read(folder / "outcome.safetensors")
    expected = {name: array for name, array in stored.items() if name.startswith(of)}
    assert got.keys() == expected.keys()
    same_machine = metadata["machine"] == checkpoints.machine()
    for name, array in got.items():
        if what in BIT_FOR_BIT and same_machine:
            assert array.tobytes() == expected[name].tobytes(), name
        else:
            limit = TOLERANCE["float32" if "float32" in name else "float64"]
            assert relative_error(np.ravel(array), np.ravel(expected[name])) <= limit, name


def test_everything_is_held_one_way_or_the_other() -> None:
    assert {*FORMS, "frozen", "nexting", "horde"} == BIT_FOR_BIT | TO_ROUNDING.keys()
    assert not BIT_FOR_BIT & TO_ROUNDING.keys()


@every_folder
def test_a_version_left_one_checkpoint_a_rule_and_engine(folder: Path) -> None:
    for form in FORMS:
        found = {path.stem for path in (folder / form).glob("*-float*.safetensors")}
        assert len(found) >= 20
        assert {f"{rule}-float64" for rule in ("td", "true_online_etd", "true_online_gtd", "tdrc", "abtd")} <= found


@every_folder
@pytest.mark.plain
@pytest.mark.parametrize("form", [form for form in FORMS if form != "cuda-3"])
def test_goes_on_as_then(folder: Path, form: str) -> None:
    hold(form, folder / form, checkpoints.outcome(folder, form))


@every_folder
@pytest.mark.long
@pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("torch", "triton")),
    reason="needs torch and triton: pip install 'emphatic[cuda]'",
)
def test_cuda_goes_on_as_then(folder: Path, tmp_path: Path) -> None:
    """Interpreted, in a process of its own: Triton decides when it is imported whether it interprets."""
    command = [sys.executable, "-m", "tests.support.checkpoints", str(folder), "cuda-3", str(tmp_path / "made")]
    env = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    hold("cuda-3", folder / "cuda-3", checkpoints.read(tmp_path / "made")[1])


@every_folder
@pytest.mark.plain
def test_frozen_learners_still_stand_still(folder: Path) -> None:
    hold("frozen", folder / "frozen", checkpoints.outcome_of_frozen(folder))


@every_folder
@pytest.mark.parametrize("name", ["horde", "nexting"])
def test_a_horde_goes_on_as_then(folder: Path, name: str) -> None:
    made = checkpoints.outcome_of_horde(folder / "horde" / f"{name}.safetensors")
    hold(name, folder / "horde", {f"{name}/{part}": array for part, array in made.items()}, of=f"{name}/")


@every_folder
def test_what_more_was_saved_with_a_horde_comes_back(folder: Path) -> None:
    assert Horde.load_with(folder / "horde" / "horde.safetensors")[1] == {"note": {"rows": checkpoints.ROWS_SAVED}}
    assert Horde.load_with(folder / "horde" / "nexting.safetensors")[1]["settings"]["predict"] == ["x", "y"]


@pytest.mark.plain
@pytest.mark.parametrize("path", FILES, ids=lambda path: "-".join(path.parts[-3:]))
def test_what_is_read_is_what_was_written(path: Path, tmp_path: Path) -> None:
    """On any machine, to the bit: all that the learner shows, and all that it writes when it is saved again."""
    metadata, written = checkpoints.read(path)
    header: dict[str, Any] = json.loads(metadata["emphatic"])
    form = path.parent.name
    if form == "cuda-3":  # another engine takes it up, without what is cuda's own
        learner = emphatic.load(path, engine="reference")
        written = {name: array for name, array in written.items() if "." not in name}
    else:
        learner = emphatic.load(path)
        assert learner.engine == FORMS[form][0]
    assert (learner.n, learner.K, learner.dtype) == (header["n"], header["K"], header["dtype"])
    assert learner.steps == header["steps"] == checkpoints.SAVED
    for name in learner.rule.vectors + learner.rule.memory:
        assert np.asarray(getattr(learner, name)).tobytes() == written[name].tobytes(), name
    if form.startswith("sparse"):
        lazy = "sparse.table" if form == "sparse" else "sparse.take"
        assert written[lazy].any(), "no lazy state was pending"
    learner.save(tmp_path / "again")
    _, arrays = checkpoints.read(tmp_path / "again")
    if form.startswith("sparse"):  # it now saves its vectors in its own form only, and short stamps
        written = {name: array for name, array in written.items() if name not in learner.rule.vectors}
        written |= {name: array.astype(arrays[name].dtype) for name, array in written.items() if ".E" in name}
    assert arrays.keys() == written.keys()
    for name, array in arrays.items():
        if name == "sparse.bounds":  # a bound that rounding has overtaken is put right
            assert relative_error(array, written[name]) <= 1e-6
        else:
            assert (array.dtype, array.tobytes()) == (written[name].dtype, written[name].tobytes()), name
